"""A GPU that is not there: tensors have a device, "gpu", a shape and a type, and no numbers. What mixes devices fails as it would on a real one.

    python tests/support/fake_gpu.py

runs what the package does on a GPU on such tensors, one line for each thing that fails; status 1 when one does. A process of its own, because torch
takes the name of a device once and for all.

torch's `FakeTensorMode` refuses operations on tensors of two devices. Three faults it lets through are refused here: a generator of another device, a
tensor on the CPU indexed by one that is not, and numpy on what is not on the CPU. A number that a program reads from a tensor is 1, a truth value True,
except that of `any`.
"""

import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

DEVICE = "gpu"


class Backend:
    """What torch asks a device's module."""

    is_available = is_initialized = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 1)
    current_device = staticmethod(lambda: 0)
    _is_in_bad_fork = staticmethod(lambda: False)
    manual_seed_all = staticmethod(lambda seed: None)
    get_amp_supported_dtype = staticmethod(lambda: [torch.bfloat16, torch.float16])


class Strict(TorchDispatchMode):
    """What fake tensors let through is refused; numbers that are read are made up."""

    def __init__(self) -> None:
        super().__init__()
        self.of_any: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        if name == "_local_scalar_dense":
            if args[0].dtype == torch.bool:
                return not any(args[0] is t for t in self.of_any)
            return 1.0 if args[0].is_floating_point() else 1
        if name == "equal":
            return True
        if name == "nonzero":  # as if everything were chosen
            return args[0].new_empty((args[0].numel(), args[0].dim()), dtype=torch.long)
        if name in ("index", "index_put", "index_put_") and not on_gpu(args[0]) and any(on_gpu(i) for i in args[1]):
            raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
        output = func(*args, **kwargs)
        generator = kwargs.get("generator")
        for t in tree_leaves(output) if generator is not None else ():
            if isinstance(t, Tensor) and t.device.type != generator.device.type:
                raise RuntimeError(f"Expected a {t.device.type!r} device type for generator but found {generator.device.type!r}")
        if name == "any":
            self.of_any.append(output)
        return output


# What torch does below the level of its dispatcher, where fake tensors are not seen

TENSOR, NEW_TENSOR, GET_ITEM = torch.tensor, Tensor.new_tensor, Tensor.__getitem__


def made_of(data: Any, *, device: Any = "cpu", **options: Any) -> Tensor:
    like = TENSOR(data, **options)
    return torch.empty(like.shape, dtype=like.dtype, device=device)


def made_like(self: Tensor, data: Any, *, device: Any = None, dtype: torch.dtype | None = None) -> Tensor:
    return made_of(data, dtype=dtype or self.dtype, device=device or self.device)


def item_of(self: Tensor, index: Any) -> Tensor:
    return GET_ITEM(self, made_of(index, device=self.device) if isinstance(index, list) else index)


def counts_of(self: Tensor, weights: None = None, minlength: int = 0) -> Tensor:
    """As if all were in the first bin."""
    COUNTS[minlength] = [self.numel()] + [0] * (minlength - 1)
    return self.new_empty(minlength)


COUNTS: dict[int, list[int]] = {}  # what `bincount` would have counted, by the number of bins


def as_numpy(self: Tensor, **_: Any) -> np.ndarray:
    if on_gpu(self):
        raise TypeError("can't convert gpu device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first.")
    return np.ones(tuple(self.shape), dtype=str(self.dtype).removeprefix("torch."))


def as_list(self: Tensor) -> Any:
    if self.dim() == 1 and len(self) in COUNTS and not self.is_floating_point():
        return COUNTS[len(self)]
    return np.ones(tuple(self.shape), dtype=float if self.is_floating_point() else int).tolist()


def convert(self: nn.Module, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
    """In place of `nn.Module._apply`, which changes tensors in place, as fake ones cannot be: makes new ones and keeps ties."""
    for child in self.children():
        child._apply(fn)
    for tensors in (self._parameters, self._buffers):
        for key, old in tensors.items():
            if old is not None and id(old) not in CONVERTED:
                new = fn(old.detach())
                new = nn.Parameter(new, old.requires_grad) if isinstance(old, nn.Parameter) else new
                CONVERTED[id(old)] = old, new
                CONVERTED[id(new)] = new, new
            if old is not None:
                tensors[key] = CONVERTED[id(old)][1]
    return self


CONVERTED: dict[int, tuple[Tensor, Tensor]] = {}


def deepcopy(self: FakeTensor, memo: dict[int, Any]) -> Tensor:
    """Copies the tensor, but not the mode that it belongs to."""
    new = self.detach().clone()
    return memo.setdefault(id(self), nn.Parameter(new, self.requires_grad) if isinstance(self, nn.Parameter) else new)


def on_gpu(thing: Any) -> bool:
    return isinstance(thing, Tensor) and thing.device.type == DEVICE


def attempt(name: str, job: Callable[[], Any], quiet: bool = False) -> Exception | None:
    """Runs one thing; what it raises, after a line that says where in the package that was."""
    COUNTS.clear()
    try:
        with FakeTensorMode(), Strict():
            job()
    except Exception as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "tlm_book" in f.filename]
        where = f"{frames[-1].filename.split('src/')[-1]}:{frames[-1].lineno}" if frames else "outside the package"
        if not quiet:
            print(f"{name}: {where}: {type(error).__name__}: {str(error)[:200]}")
        return error
    return None


def jobs() -> dict[str, Callable[[], Any]]:
    """What is done on a GPU, by name."""
    from tlm_book.auditing import audit
    from tlm_book.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
    from tlm_book.inference import beam_search, complete, generate, stream
    from tlm_book.linear_attention import LinearAttention
    from tlm_book.loss import shift, weighted_loss
    from tlm_book.small_world.judging import written_stories
    from tlm_book.tokenization import Tokenizer
    from tlm_book.training import TrainConfig, optimizer_for, train, train_step
    from tlm_book.transformer_lm import Config, TransformerLM
    from tlm_book.viewer import playground, questions, show

    family = {"qwen2": {"n_kv_heads": 2}, "qwen3": {"n_kv_heads": 2}, "mistral": {"n_kv_heads": 2, "window": 3}, "mixtral": {"n_kv_heads": 2, "n_experts": 3}, "gemma": {"n_kv_heads": 1}}
    sizes = {"d_model": 16, "d_ff": 24, "n_layers": 2, "n_heads": 4, "max_len": 16}
    presets = [name for name, value in vars(Config).items() if isinstance(value, classmethod)]

    def config(name: str) -> Config:
        own = family.get(name, {}) | ({"d_head": 4} if name in ("qwen3", "gemma") else {})
        return getattr(Config, name)(13, **(sizes | own))

    def model(name: str) -> TransformerLM:
        return TransformerLM(config(name)).to(DEVICE)

    def bytewise() -> TransformerLM:
        return TransformerLM(Config.gpt2(len(Tokenizer([])), **sizes)).to(DEVICE).eval()

    def tokens(*shape: int) -> Tensor:
        return torch.randint(13, shape, device=DEVICE)

    def forward(name: str) -> None:
        lm = model(name).eval()
        assert on_gpu(lm(tokens(2, 7))) and on_gpu(lm.attention_weights(tokens(2, 7)))

    def step(name: str, dtype: str) -> None:
        lm, settings = model(name).train(), TrainConfig(steps=2, warmup=1, dtype=dtype, batch_size=2)
        y = tokens(2, 7)
        train_step(lm, optimizer_for(lm, settings), shift(y), y, settings)
        assert on_gpu(weighted_loss(lm(shift(y)), y))

    def write(name: str) -> None:
        lm = model(name).eval()
        assert on_gpu(generate(lm, tokens(2, 3), 4, temperature=0.0))
        assert on_gpu(generate(lm, tokens(2, 3), 4, temperature=0.8, top_k=5, top_p=0.9, generator=torch.Generator().manual_seed(0)))
        list(stream(lm, tokens(3), 4))

    def whole_run(dtype: str) -> None:
        settings = TrainConfig(steps=2, warmup=1, eval_every=1, batch_size=2, dtype=dtype)
        text = torch.randint(13, (60,))
        assert all(on_gpu(p) for p in train(settings, config("gpt2"), text, text[:20], device=DEVICE, progress=False).model.parameters())

    def translator() -> None:
        whole = EncoderDecoder(EncoderDecoderConfig.vaswani(13, d_model=16, d_ff=24, n_layers=2, n_heads=4, max_len=16)).to(DEVICE)
        whole.train()(tokens(2, 5), tokens(2, 4)).sum().backward()

    def hybrid() -> None:
        lm = TransformerLM(config("llama"))
        lm.blocks[0].attention = LinearAttention(16, 4)
        lm, settings, y = lm.to(DEVICE), TrainConfig(steps=2, warmup=1, dtype="bfloat16", batch_size=2), tokens(2, 7)
        train_step(lm.train(), optimizer_for(lm, settings), shift(y), y, settings)
        assert on_gpu(generate(lm.eval(), y, 4)) and all(map(on_gpu, generate(lm, [[1, 2], [3]], 4)))

    made: dict[str, Callable[[], Any]] = {}
    for name in presets:
        made[f"{name}, forward"] = lambda name=name: forward(name)
        made[f"{name}, training step"] = lambda name=name: step(name, "float32")
        made[f"{name}, decoding"] = lambda name=name: write(name)
    made["gpt2, training step in bfloat16"] = lambda: step("gpt2", "bfloat16")
    made |= {f"a run in {dtype}": lambda dtype=dtype: whole_run(dtype) for dtype in ("float32", "bfloat16")}
    made["a text of the CPU"] = lambda: [generate(model("gpt2").eval(), text, 4) for text in (torch.tensor([1, 2]), [1, 2], range(3))]
    made["text from text"] = lambda: complete(bytewise(), Tokenizer([]), "ab", 4)
    made["stories"] = lambda: written_stories(bytewise(), Tokenizer([]), 2)
    made["names of what is inside"] = lambda: model("gpt2").eval().run_with_cache(tokens(4))
    made["weights in fewer bits"] = lambda: generate(model("gpt2").eval(), tokens(3), 4, weights="bfloat16")
    made["beams"] = lambda: beam_search(model("gpt2").eval(), tokens(3), 4, width=2)
    made["encoder and decoder"] = translator
    made["a hybrid model"] = hybrid
    story = "Al was in.\nWho? Al.\n"
    made["picture of attention"] = lambda: show(bytewise(), Tokenizer([]), "ab")
    made["picture with questions"] = lambda: questions(bytewise(), Tokenizer([]), [story])
    made["picture of a playground"] = lambda: playground(bytewise(), Tokenizer([]), stories=[story])
    made["audit"] = lambda: audit(model("gpt2"), tokens(2, 5), progress=False)
    return made


def planted() -> dict[str, Callable[[], Any]]:
    """What fails on a real GPU, and must fail here."""
    here = lambda *shape: torch.ones(*shape, device=DEVICE)
    return {
        "two devices": lambda: here(3) + torch.arange(3),
        "a product of two devices": lambda: here(3, 3) @ torch.ones(3, 3),
        "an embedding of another device": lambda: nn.functional.embedding(torch.tensor([1]), here(5, 2)),
        "a mask without device": lambda: here(3, 3).masked_fill(torch.ones(3, 3, dtype=torch.bool).triu(1), 0.0),
        "numpy": lambda: here(3).numpy(),
        "a generator of the CPU": lambda: torch.multinomial(here(3), 1, generator=torch.Generator().manual_seed(0)),
        "an index of another device": lambda: torch.ones(3)[torch.tensor([1], device=DEVICE)],
    }


def main() -> int:
    _setup_privateuseone_for_python_backend(DEVICE, Backend)
    library = torch.library.Library("_", "IMPL", "AutocastPrivateUse1")
    library.fallback(torch.library.fallthrough_kernel)
    nn.Module._apply, FakeTensor.__deepcopy__ = convert, deepcopy
    torch.tensor, Tensor.new_tensor, Tensor.__getitem__, Tensor.bincount = made_of, made_like, item_of, counts_of
    for kind in (Tensor, FakeTensor):
        kind.numpy, kind.__array__, kind.tolist = as_numpy, as_numpy, as_list
    words = sys.argv[1:]
    named = {name: job for name, job in jobs().items() if not words or any(word in name for word in words)}
    failed = sum(attempt(name, job) is not None for name, job in named.items())
    unnoticed = [name for name, job in planted().items() if attempt(name, job, quiet=True) is None]
    print(f"{len(named)} things tried, {failed} failed; of {len(planted())} planted faults not noticed: {', '.join(unnoticed) or 'none'}")
    return int(failed > 0 or bool(unnoticed))


if __name__ == "__main__":
    sys.exit(main())

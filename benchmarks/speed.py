"""Forward pass and training step beside other implementations of the same model, in one run, with the same weights.

    python benchmarks/speed.py [--nanogpt DIR] [--compile] [--device cuda] [--rounds 16] [--out benchmarks]

Peers: Hugging Face's GPT2LMHeadModel (sdpa), torch.nn.TransformerEncoder and, where DIR holds a checkout of nanoGPT, its model.py.
Each trains as it usually does: its own loss, its own AdamW settings, gradients clipped to length 1; ours as `train` does it (on a GPU its step is recorded, on
a CPU it multiplies by the quicker of torch's two libraries, in the forward pass alone as well: `quick_products`). All models of a comparison have the same
weights and, before anything is timed, must give the same loss. The runs alternate.

Sizes: S (4 layers, 4 heads, d 128, n 128, batch 16, V 512), L (6 layers, 8 heads, d 512, n 256, batch 4, V 8192) and, with
`--device cuda`, GPT-2 124M (n 1024, bfloat16, compiled). Then: from the plain version to the fast one, step by step; the share of the
processor's speed in products of matrices, and that of torch's two libraries; bfloat16; the loss in chunks. Writes speed.json, speed.md and speed.svg.
"""

import argparse
import contextlib
import functools
import importlib.util
import io
import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import harness
import torch
from harness import Spread, Timing, ratio
from torch import Tensor, nn
from torch.nn import functional as F

from tlm_book.loss import chunked_loss, shift, weighted_loss
from tlm_book.onednn import onednn_available, quick_linear, quick_products
from tlm_book.operators import causal_mask
from tlm_book.training import TrainConfig, optimizer_for
from tlm_book.training.recorded import StepTaker, library_for
from tlm_book.transformer_lm import Config, TransformerLM


@dataclass(frozen=True)
class Size:
    n_layers: int
    n_heads: int
    d_model: int
    n: int
    batch: int
    vocab_size: int

    def config(self, activation: str) -> Config:
        sizes = {name: getattr(self, name) for name in ("n_layers", "n_heads", "d_model")}
        return Config.gpt2(self.vocab_size, **sizes, d_ff=4 * self.d_model, max_len=self.n, activation=activation)

    def products(self) -> int:
        """Floating point operations of a training step in products of matrices; the backward pass has twice those of the forward pass."""
        d, tokens = self.d_model, self.batch * self.n
        one_token = 2 * (self.n_layers * 12 * d * d + self.vocab_size * d) + 4 * self.n_layers * self.n * d
        return 3 * tokens * one_token


SIZES = {
    "S": Size(n_layers=4, n_heads=4, d_model=128, n=128, batch=16, vocab_size=512),
    "L": Size(n_layers=6, n_heads=8, d_model=512, n=256, batch=4, vocab_size=8192),
    "GPT-2 124M": Size(n_layers=12, n_heads=12, d_model=768, n=1024, batch=16, vocab_size=50304),
}
PEAKS = {"H100": 989e12, "H200": 989e12, "A100": 312e12}  # operations a second in bfloat16, dense, by the data sheets
SETTINGS = TrainConfig(lr=1e-4)


# The models: each knows its loss and its usual training step


@dataclass(frozen=True)
class Player:
    """A model, its loss on (what it reads, what it is judged on), and its way of training."""

    model: nn.Module
    loss: Callable[[Tensor, Tensor], Tensor]
    step: Callable[[], None]

    def forward(self, x: Tensor, y: Tensor) -> None:
        with torch.no_grad():
            self.loss(x, y)


def usual_step(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Callable[[], Tensor]) -> Callable[[], None]:
    def step() -> None:
        loss().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def autocast(loss: Callable[[Tensor, Tensor], Tensor], dtype: str) -> Callable[[Tensor, Tensor], Tensor]:
    def run(x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16, enabled=dtype == "bfloat16"):
            return loss(x, y)

    return run


def ours(size: Size, batch: tuple[Tensor, Tensor], dtype: str, compiled: bool, activation: str) -> Player:
    x, y = batch
    model = TransformerLM(size.config(activation)).to(x.device)
    if compiled:
        model.compile()
    settings = TrainConfig(lr=SETTINGS.lr, dtype=dtype, compile=compiled)
    library = library_for(settings, x.device)
    take = StepTaker(model, optimizer_for(model, settings), library)
    loss = autocast(lambda x, y: weighted_loss(model(x), y), dtype)

    def quick_loss(x: Tensor, y: Tensor) -> Tensor:
        with quick_products(model, library):
            return loss(x, y)

    return Player(model, quick_loss, lambda: take(x, y, settings))


def nanogpt(size: Size, batch: tuple[Tensor, Tensor], dtype: str, compiled: bool, folder: Path) -> Player:
    spec = importlib.util.spec_from_file_location("nanogpt_model", folder / "model.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with contextlib.redirect_stdout(io.StringIO()):
        sizes = {"n_layer": size.n_layers, "n_head": size.n_heads, "n_embd": size.d_model}
        model = module.GPT(module.GPTConfig(block_size=size.n, vocab_size=size.vocab_size, dropout=0.0, bias=True, **sizes)).to(batch[0].device)
        optimizer = model.configure_optimizers(SETTINGS.weight_decay, SETTINGS.lr, (0.9, 0.95), batch[0].device.type)
    if compiled:
        model.compile()
    loss = autocast(lambda x, y: model(x, y)[1], dtype)
    return Player(model, loss, usual_step(model, optimizer, lambda: loss(*batch)))


def hugging_face(size: Size, batch: tuple[Tensor, Tensor], dtype: str, compiled: bool, activation: str) -> Player:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=size.vocab_size, n_positions=size.n, n_embd=size.d_model, n_layer=size.n_layers, n_head=size.n_heads, activation_function=activation,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False, attn_implementation="sdpa", bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    model = GPT2LMHeadModel(config).to(batch[0].device).train()
    if compiled:
        model.compile()
    # its Trainer's optimizer: fused, no decay unless asked for
    optimizer = torch.optim.AdamW(model.parameters(), lr=SETTINGS.lr, weight_decay=0.0, fused=True)
    loss = autocast(lambda x, y: model(input_ids=x, labels=y, shift_labels=y).loss, dtype)
    return Player(model, loss, usual_step(model, optimizer, lambda: loss(*batch)))


class Encoder(nn.Module):
    """torch's own layers, used as a language model."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        d = size.d_model
        self.tokens, self.positions = nn.Embedding(size.vocab_size, d), nn.Embedding(size.n, d)
        layer = nn.TransformerEncoderLayer(d, size.n_heads, 4 * d, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, size.n_layers, nn.LayerNorm(d), enable_nested_tensor=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(size.n))

    def forward(self, x: Tensor) -> Tensor:
        x = self.tokens(x) + self.positions.weight
        return F.linear(self.encoder(x, mask=self.mask, is_causal=True), self.tokens.weight)


def torch_encoder(size: Size, batch: tuple[Tensor, Tensor], dtype: str, compiled: bool) -> Player:
    model = Encoder(size).to(batch[0].device)
    if compiled:
        model.compile()
    optimizer = torch.optim.AdamW(model.parameters(), lr=SETTINGS.lr)
    loss = autocast(lambda x, y: F.cross_entropy(model(x).flatten(0, 1), y.flatten()), dtype)
    return Player(model, loss, usual_step(model, optimizer, lambda: loss(*batch)))


@torch.no_grad()
def copy_weights(model: TransformerLM, other: nn.Module) -> None:
    """Our weights into another's model: the tensors match one to one, apart from a transpose in Hugging Face's Conv1D."""
    if isinstance(other, Encoder):
        places = {
            "tokens": "embedding.table", "positions.weight": "position.table", "encoder.norm": "norm", "self_attn.in_proj_": "attention.qkv.",
            "self_attn.out_proj": "attention.out", "linear1": "feed_forward.up", "linear2": "feed_forward.down", "norm1": "norm_attention",
            "norm2": "norm_feed_forward", "encoder.layers": "blocks",
        }  # fmt: skip
    else:
        places = {
            "transformer.wte": "embedding.table", "transformer.wpe.weight": "position.table", "transformer.ln_f": "norm", "transformer.h": "blocks",
            "ln_1": "norm_attention", "ln_2": "norm_feed_forward", "attn.c_attn": "attention.qkv", "attn.c_proj": "attention.out",
            "mlp.c_fc": "feed_forward.up", "mlp.c_proj": "feed_forward.down", "lm_head": "unembedding",
        }  # fmt: skip
    weights, taken = model.state_dict(), set()
    for name, weight in other.named_parameters():
        for theirs, mine in places.items():
            name = name.replace(theirs, mine)
        conv1d = type(other).__name__ == "GPT2LMHeadModel" and weight.dim() == 2 and name.startswith("blocks")
        weight.copy_(weights[name].T if conv1d else weights[name])
        taken.add(name)
    missing = set(weights) - taken - {"unembedding.weight"}
    if missing:
        raise SystemExit(f"weights without a place in {type(other).__name__}: {sorted(missing)}")


# Side by side


def random_batch(size: Size, device: str) -> tuple[Tensor, Tensor]:
    y = torch.randint(size.vocab_size, (size.batch, size.n), generator=torch.Generator().manual_seed(0)).to(device)
    return shift(y), y


def groups(nanogpt_folder: Path | None) -> dict[str, dict[str, Callable[..., Player]]]:
    """Peers by their activation, which ours then has too: nanoGPT and torch take the exact GELU, GPT-2 its tanh form."""
    exact = {"nanoGPT": functools.partial(nanogpt, folder=nanogpt_folder)} if nanogpt_folder else {}
    tanh = {"Hugging Face": functools.partial(hugging_face, activation="gelu_new")}
    tanh["Hugging Face, fused GELU"] = functools.partial(hugging_face, activation="gelu_pytorch_tanh")
    return {"gelu": exact | {"TransformerEncoder": torch_encoder}, "gelu_tanh": tanh}


def players(size: Size, activation: str, peers: dict[str, Callable[..., Player]], device: str, dtype: str, compiled: bool) -> dict[str, Player]:
    torch.manual_seed(0)
    batch = random_batch(size, device)
    made = {"ours": ours(size, batch, dtype, compiled, activation)}
    for name, make in peers.items():
        made[name] = make(size, batch, dtype, compiled)
        copy_weights(made["ours"].model, made[name].model)
        gap = abs(made["ours"].loss(*batch) - made[name].loss(*batch)).item()
        if gap > (1e-4 if dtype == "float32" else 2e-2):
            raise SystemExit(f"ours and {name} differ by {gap:.2g} in their loss, so their times cannot be compared")
    return made


def gpu_memory(run: Callable[[], None], device: str) -> float | None:
    """The most MB that a run takes on the GPU beyond what is there before (weights, states of optimizers); None on a CPU."""
    if not device.startswith("cuda"):
        return None
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    return (torch.cuda.max_memory_allocated() - before) / 1e6


def few(options: argparse.Namespace, name: str) -> int:
    """Rounds for that size: half as many where each takes long."""
    return options.rounds if name == "S" else max(3, options.rounds // 2)


def compare(name: str, options: argparse.Namespace, dtype: str, compiled: bool) -> list[dict]:
    """For each peer and job: the times, the ratio by the clock and in processor time."""
    size, rows = SIZES[name], []
    for activation, peers in groups(options.nanogpt).items():
        made = players(size, activation, peers, options.device, dtype, compiled)
        batch = random_batch(size, options.device)
        for job in ("training step", "forward"):
            runs = {who: player.step if job == "training step" else functools.partial(player.forward, *batch) for who, player in made.items()}
            peak = gpu_memory(runs["ours"], options.device)  # of the first step, since a recorded one uses the memory of its recording
            times = harness.side_by_side(runs, few(options, name), device=options.device)
            for peer in peers:
                rows.append({"size": name, "job": job, "dtype": dtype, "compiled": compiled, "peer": peer, "ours": times["ours"].json(), "theirs": times[peer].json()})
                rows[-1]["ratio"] = {clock: vars(ratio(times[peer], times["ours"], clock)) for clock in ("wall", "processor")}
                rows[-1]["tokens a second"] = size.batch * size.n / Spread.of(times["ours"].wall).median
                rows[-1]["peak MB"] = peak
                print(f"{name:3} {job:14} {peer:26} {'compiled ' * compiled}{ratio(times[peer], times['ours']).text(3)}, processor {ratio(times[peer], times['ours'], 'processor').text(3)}", flush=True)
    return rows


# From the plain version to the fast one: the parts of the model as a textbook has them


def heads_one_by_one(self: nn.Module, x: Tensor) -> Tensor:
    W, b = (part.unflatten(0, (3, self.n_heads, self.d_head)) for part in (self.qkv.weight, self.qkv.bias))
    heads = []
    for i in range(self.n_heads):
        q, k, v = (F.linear(x, W[j, i], b[j, i]) for j in range(3))
        heads.append(causal_mask(q @ k.mT / math.sqrt(self.d_head)).softmax(-1) @ v)
    return self.out(torch.cat(heads, -1))


def pattern_in_memory(self: nn.Module, x: Tensor) -> Tensor:
    q, k, v = self.qkv(x).unflatten(-1, (3, self.n_heads, self.d_head)).movedim(-3, 0).transpose(-3, -2)
    heads = causal_mask(q @ k.mT / math.sqrt(self.d_head)).softmax(-1) @ v
    return self.out(heads.transpose(-3, -2).flatten(-2))


def heads_copied(self: nn.Module, x: Tensor) -> Tensor:
    q, k, v = self.qkv(x).unflatten(-1, (3, self.n_heads, self.d_head)).movedim(-3, 0).transpose(-3, -2)
    heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return self.out(heads.transpose(-3, -2).flatten(-2))


def norm_by_formula(self: nn.Module, x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return self.weight * centred / (centred.square().mean(-1, keepdim=True) + self.eps).sqrt() + self.bias


def gelu_by_formula(self: nn.Module, x: Tensor) -> Tensor:
    x = self.up(x)
    return self.down(0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))


def sums_twice(self: nn.Module, x: Tensor) -> Tensor:
    seen = self.attention(self.norm_attention(x))
    return x + seen + self.feed_forward(self.norm_feed_forward(x + seen))


def loss_by_formula(scores: Tensor, tokens: Tensor) -> Tensor:
    return -scores.log_softmax(-1).gather(-1, tokens[..., None]).mean()


STEPS = {  # what is changed, and the parts of the model that are still plain before it
    "plain: one head after another": "",
    "all heads in one product": "heads",
    "attention in one kernel, no n × n pattern in memory": "pattern",
    "normalization in one kernel": "norm",
    "activation in one kernel": "gelu",
    "logarithm and choice of the token in one kernel": "loss",
    "queries, keys, values as views; each sum once": "copies",
    "AdamW in one kernel": "adam",
    "products by the quicker library": "products",
}


def put_on(model: TransformerLM, plain: set[str]) -> None:
    """Give the parts named in `plain` their textbook form, all others the package's."""
    for block in model.blocks:
        forms = {
            block.attention: heads_one_by_one if "heads" in plain else pattern_in_memory if "pattern" in plain else heads_copied if "copies" in plain else None,
            block.norm_attention: norm_by_formula if "norm" in plain else None,
            block.norm_feed_forward: norm_by_formula if "norm" in plain else None,
            block.feed_forward: gelu_by_formula if "gelu" in plain else None,
            block: sums_twice if "copies" in plain else None,
        }
        for part, form in forms.items():
            part.__dict__.pop("forward", None)
            if form:
                part.forward = form.__get__(part)
    model.norm.__dict__.pop("forward", None)
    if "norm" in plain:
        model.norm.forward = norm_by_formula.__get__(model.norm)


def step_by_step(name: str, options: argparse.Namespace) -> dict[str, Timing]:
    """The training step after each change, all in turn, on one model."""
    torch.manual_seed(0)
    size, (x, y) = SIZES[name], random_batch(SIZES[name], options.device)
    model = TransformerLM(size.config("gelu_tanh")).to(options.device)
    fused, groups = optimizer_for(model, SETTINGS), optimizer_for(model, SETTINGS).param_groups
    loop = torch.optim.AdamW([{key: group[key] for key in ("params", "weight_decay")} for group in groups], lr=SETTINGS.lr, foreach=False)
    marks = [mark for mark in STEPS.values() if mark]

    def job(plain: set[str]) -> Callable[[], None]:
        loss = loss_by_formula if "loss" in plain else weighted_loss
        train = usual_step(model, loop if "adam" in plain else fused, lambda: loss(model(x), y))
        products = "linear" if "products" in plain else "auto"

        def run() -> None:
            put_on(model, plain)
            with quick_products(model, products):
                train()

        return run

    jobs = {step: job(set(marks[k:])) for k, step in enumerate(STEPS)}
    for plain in (set(marks), set()):  # the same function before and after
        put_on(model, plain)
        gap = abs(loss_by_formula(model(x), y) - weighted_loss(model(x), y)).item()
        if gap > 1e-4:
            raise SystemExit(f"the plain version differs by {gap:.2g} in its loss")
    return harness.side_by_side(jobs, few(options, name), device=options.device)


# Shares, formats, chunks


def peak_speed(device: str, dtype: torch.dtype, library: str = "auto") -> float:
    """Operations a second that a large product of matrices reaches here, the best of several."""
    k = 8192 if device.startswith("cuda") else 2048
    A, B = (torch.randn(k, k, device=device, dtype=dtype) for _ in range(2))
    times = harness.side_by_side({"product": lambda: quick_linear(A, B, library=library)}, 8, device=device)["product"]
    return 2 * k**3 / min(times.wall)


NARROW = {"ONEDNN_MAX_CPU_ISA": "AVX2"}  # with which oneDNN uses registers of 256 bits


def libraries(options: argparse.Namespace) -> dict[str, float] | None:
    """Operations a second of torch's two libraries, each in a process of its own; None on a GPU, or where there is only one."""
    if options.device != "cpu" or not onednn_available():
        return None
    runs = {"linear": ("linear", {}), "onednn": ("onednn", {}), "onednn, 256 bits": ("onednn", NARROW)}
    child = lambda library: [sys.executable, __file__, "--device", "cpu", "--peak", library]
    return {
        name: float(subprocess.run(child(library), env=os.environ | more, stdout=subprocess.PIPE, text=True, check=True).stdout)
        for name, (library, more) in runs.items()
    }


def bfloat16(options: argparse.Namespace) -> dict[str, Timing] | None:
    """Our training step at L in float32 and under bfloat16 autocast; None where the processor has no such arithmetic."""
    if options.device == "cpu" and not harness.processor_flags() & {"avx512_bf16", "amx_bf16"}:
        return None
    torch.manual_seed(0)
    batch = random_batch(SIZES["L"], options.device)
    made = {dtype: ours(SIZES["L"], batch, dtype, False, "gelu_tanh") for dtype in ("float32", "bfloat16")}
    return harness.side_by_side({dtype: player.step for dtype, player in made.items()}, few(options, "L"), device=options.device)


LOSSES = {"plain": lambda H, W, x: weighted_loss(F.linear(H, W), x), "chunks": chunked_loss}


def hidden_rows(device: str) -> tuple[Tensor, Tensor, Tensor]:
    """4,096 hidden rows of width 768, the unembedding of GPT-2, and tokens."""
    torch.manual_seed(0)
    H, W = torch.randn(4, 1024, 768, device=device), torch.randn(50257, 768, device=device) / 768**0.5
    return H.requires_grad_(), W.requires_grad_(), torch.randint(50257, (4, 1024), device=device)


def loss_memory(way: str, device: str) -> float:
    """MB that the loss and its gradient need beyond what they are given; in a process of its own."""
    H, W, x = hidden_rows(device)
    if device.startswith("cuda"):
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        torch.autograd.grad(LOSSES[way](H, W, x), (H, W))
        return (torch.cuda.max_memory_allocated() - before) / 1e6
    high = lambda: next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    torch.autograd.grad(LOSSES[way](H[:, :2], W, x[:, :2]), (H, W))  # the libraries' own buffers
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark falls to what is in use
    before = high()
    torch.autograd.grad(LOSSES[way](H, W, x), (H, W))
    return (high() - before) * 1024 / 1e6


def chunks(options: argparse.Namespace) -> dict[str, object]:
    """Time and memory of the loss with GPT-2's vocabulary, plain and in chunks."""
    memory = {}
    for way in LOSSES:
        child = [sys.executable, __file__, "--device", options.device, "--memory", way]
        memory[way] = float(subprocess.run(child, stdout=subprocess.PIPE, text=True, check=True).stdout)
    H, W, x = hidden_rows(options.device)
    jobs = {way: lambda loss=loss: torch.autograd.grad(loss(H, W, x), (H, W)) for way, loss in LOSSES.items()}
    times = harness.side_by_side(jobs, max(2, options.rounds // 5), warmup=1, device=options.device)
    return {"MB": memory, "times": times, "ratio": ratio(times["plain"], times["chunks"])}


# The report


def side_table(rows: list[dict]) -> list[dict[str, str]]:
    ms = lambda spread: f"{spread['median']:.1f} ± {(spread['high'] - spread['low']) / 2:.1f}"
    return [
        {"size": row["size"], "what": row["job"] + ", compiled" * row["compiled"], "beside": row["peer"], "ours, ms": ms(row["ours"]["wall_ms"]), "theirs, ms": ms(row["theirs"]["wall_ms"])}
        | {"theirs / ours": Spread(**row["ratio"]["wall"]).text(), "in processor time": f"{row['ratio']['processor']['median']:.2f}"}
        for row in rows
    ]


def step_table(steps: dict[str, dict[str, Timing]]) -> list[dict[str, str]]:
    """One row for each change: the time after it, and what it gained."""
    rows = [{"step": step} for step in STEPS]
    for size, times in steps.items():
        before = None
        for row in rows:
            now = times[row["step"]]
            row[f"{size}, ms"] = now.ms()
            row[f"{size}: gain"] = "" if before is None else f"{ratio(before, now).median:.2f} ×"
            before = now
    first, *_, last = STEPS
    total = {"step": "all together"}
    for size, times in steps.items():
        total |= {f"{size}, ms": "", f"{size}: gain": f"{ratio(times[first], times[last]).median:.2f} ×"}
    return [*rows, total]


def share_line(rows: list[dict], peak: float, gpu: str, dtype: str) -> str:
    """What our training step reaches of the speed of products of matrices."""
    lines = []
    for name in dict.fromkeys(row["size"] for row in rows):
        row = next(row for row in rows if row["size"] == name and row["job"] == "training step")
        speed = SIZES[name].products() / (row["ours"]["wall_ms"]["median"] / 1e3)
        line = f"{name}: {row['tokens a second']:,.0f} tokens a second, {speed / 1e9:,.0f} billion operations a second in products of matrices, {speed / peak:.0%} of what one large product reaches here"
        line += f", {row['peak MB']:,.0f} MB beside weights and optimizer" if row["peak MB"] else ""
        sheet = next((value for key, value in PEAKS.items() if key in gpu), None)
        lines.append(line + (f", {speed / sheet:.1%} of the data sheet's {sheet / 1e12:.0f} TFLOP/s" if sheet and dtype == "bfloat16" else ""))
    return "Our training step, " + "; ".join(lines) + "."


COLUMNS = ("ours, ms", "theirs, ms", "theirs / ours", "in processor time")


def page(entries: harness.Entries) -> str:
    """The machines side by side, and what else was said of each."""
    side = harness.abreast({name: report["side"] for name, report in entries.items()}, ("size", "what", "beside"), COLUMNS, ("ours, ms", "theirs / ours"))
    parts = [f"One training step and one forward pass, float32 (GPT-2 124M: bfloat16). Above 1, ours is faster; in brackets the quartiles.\n\n{harness.table(side)}"]
    gains = {
        name: [{"step": row["step"]} | {size: row.get(f"{size}: gain") for size in ("S", "L")} for row in report["steps"]]
        for name, report in entries.items()
    }
    if any(gains.values()):
        steps = harness.abreast(gains, ("step",), ("S", "L"))
        steps.sort(key=lambda row: [*STEPS, "all together"].index(row["step"]))
        head = "From the plain version to the fast one, one training step (tanh form of GELU): the gain of each step over the line above."
        parts.append(f"{head}\n\n{harness.table(steps)}\n\n{harness.measured(entries)}")
    return "\n\n".join([*parts, harness.sections(entries, said)])


def said(report: harness.Report) -> str:
    """What is said of one machine, in sentences."""
    clock = f"Medians of alternating runs, ± half the distance of the quartiles; {harness.about(report['machine'])}."
    return "\n\n".join(part for part in (report["share"], report.get("libraries"), report["bfloat16"], report["chunks"], clock) if part)


def chunk_line(found: dict) -> str:
    plain, chunked = found["MB"]["plain"], found["MB"]["chunks"]
    return (
        f"The loss and its gradients for 4,096 positions of width 768 and the vocabulary of GPT-2 (50,257): {plain:,.0f} MB and {found['times']['plain'].ms()} ms plain, "
        f"{chunked:,.0f} MB and {found['times']['chunks'].ms()} ms in chunks of 512: {chunked / plain:.2f} of the memory, {1 / found['ratio'].median:.2f} of the time."
    )


def library_line(found: dict[str, float] | None) -> str:
    if found is None:
        return ""
    usual, other, narrow = (f"{speed / 1e9:,.0f}" for speed in found.values())
    return (
        f"One large product in float32: {usual} billion operations a second with the library that torch takes, {other} with oneDNN "
        f"({found['onednn'] / found['linear']:.2f} times as many), {narrow} with oneDNN if it may not use registers of more than 256 bits."
    )


def bfloat16_line(found: dict[str, Timing] | None) -> str:
    if found is None:
        return "bfloat16: this processor has no arithmetic for it, so it is not measured."
    gain = ratio(found["float32"], found["bfloat16"])
    return f"bfloat16 (autocast) at L: {found['bfloat16'].ms()} ms in the place of {found['float32'].ms()} ms in float32, {gain.text()} times as fast."


def draw_ratios(report: harness.Report, axes: object) -> None:
    harness.bars(axes, {f"{row['size']}, {row['what']}, {row['beside']}": float(row["theirs / ours"].split()[0]) for row in report["side"]}, mark=1, unit=" ×")
    axes.set(xlabel="their time / ours")


def draw_steps(report: harness.Report, axes: object) -> None:
    for size, times in report["step_times"].items():
        medians = [times[step]["wall_ms"]["median"] for step in STEPS if step in times]
        axes.plot([100 * m / medians[0] for m in medians], range(len(medians)), "o-", label=size)
    axes.set(yticks=range(len(STEPS)), yticklabels=STEPS, xlabel="time of a training step, plain = 100", xlim=(0, 105))
    axes.invert_yaxis()
    axes.legend()


def main() -> None:
    parser = harness.parser(__doc__, rounds=16)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--nanogpt", type=Path, metavar="DIR", help="a checkout of nanoGPT, whose model.py is then a peer")
    parser.add_argument("--compile", action="store_true", help="everything under torch.compile as well (takes minutes)")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, help="S and L; on a GPU GPT-2 124M as well")
    parser.add_argument("--only", nargs="+", choices=("side", "steps", "bfloat16", "chunks"), default=("side", "steps", "bfloat16", "chunks"))
    parser.add_argument("--memory", choices=LOSSES, help=argparse.SUPPRESS)
    parser.add_argument("--peak", choices=("linear", "onednn"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        return print(loss_memory(options.memory, options.device))
    if options.peak:
        return print(peak_speed(options.device, torch.float32, options.peak))
    if options.write:
        return harness.rewrite(options.out, "speed", page, draw_ratios, draw_steps)
    if options.nanogpt and not (options.nanogpt / "model.py").is_file():
        parser.error(f"--nanogpt: no model.py in {options.nanogpt}")
    cuda = options.device.startswith("cuda")
    names = options.sizes or (["S", "L", "GPT-2 124M"] if cuda else ["S", "L"])
    rows, texts = [], []
    for name in names:
        dtype = "bfloat16" if name == "GPT-2 124M" else "float32"
        for compiled in (False, True)[name == "GPT-2 124M" :] if options.compile or name == "GPT-2 124M" else (False,):
            if "side" in options.only:
                rows += compare(name, options, dtype, compiled)
    machine = harness.torch_machine(options.device)
    peaks = {dtype: peak_speed(options.device, getattr(torch, dtype)) for dtype in {row["dtype"] for row in rows}}
    for dtype, peak in peaks.items():
        texts.append(share_line([row for row in rows if row["dtype"] == dtype], peak, str(machine["gpu"]), dtype))
    steps = {name: step_by_step(name, options) for name in names if name in ("S", "L")} if "steps" in options.only else {}
    found = chunks(options) if "chunks" in options.only else None
    report = {
        "machine": machine, "dtype": "float32" + " (GPT-2 124M: bfloat16)" * cuda, "sizes": {name: vars(SIZES[name]) for name in names}, "runs": rows,
        "side": side_table(rows), "share": "\n\n".join(texts), "libraries": library_line(libraries(options) if "side" in options.only else None), "steps": step_table(steps) if steps else [],
        "step_times": {size: {step: time.json() for step, time in times.items()} for size, times in steps.items()},
        "bfloat16": bfloat16_line(bfloat16(options)) if "bfloat16" in options.only else "", "chunks": chunk_line(found) if found else "",
    }  # fmt: skip
    harness.write(options.out, "speed", report, page, draw_ratios, draw_steps)


if __name__ == "__main__":
    main()

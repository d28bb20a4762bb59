"""Continuing where reading stopped: keys and values are kept. Generated from book/inference.ipynb: edit the notebook, then `make export`."""

import copy
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from tlm_book.attention import attention
from tlm_book.checks import (
    expects,
    expects_kind,
    expects_length,
    expects_positive,
    expects_text,
    expects_tokens,
    refuse,
)
from tlm_book.collector import collector_off
from tlm_book.inference.layers import RowLayers
from tlm_book.inference.products import Products
from tlm_book.inference.states import States
from tlm_book.multi_head import windowed_attention
from tlm_book.transformer_lm import Config, TransformerLM

__all__ = [
    "CacheSlot",
    "Cache",
    "Recorded",
    "CachedModel",
    "step_flops",
]


# --- The implementation


class CacheSlot(NamedTuple):
    """The place of a step: it writes column `columns` of each of the `rows` (one for
    each text and key head) and reads the first n columns, except the hidden ones.
    """

    rows: slice | Int[Tensor, "heads"]
    columns: int | Int[Tensor, "heads"]
    n: int
    hidden: Bool[Tensor, "heads 1 n"] | None


class Cache:
    """Keys and values of one block, with room for R = max_len tokens, or for as many as
    the window holds: (batch·g, 2, R, k), K before V. Token p belongs to column p mod R
    of the scores. `like` gives device and dtype. With `columns`, there is room for so
    many at first, and for twice as many whenever more are needed. (T-cache,
    T-cache-size)
    """

    def __init__(
        self,
        config: Config,
        batch: int,
        like: Float[Tensor, "..."],
        columns: int | None = None,
    ) -> None:
        c = config
        h, g, k = c.n_heads, c.kv_heads, c.head_width
        self.room = min(c.max_len, c.window or c.max_len)
        self.window = c.window
        self.shape = batch, g, h // g, k
        at_first = self.room if columns is None else min(columns, self.room)
        self.kept = like.new_zeros(batch * g, 2, at_first, k)

    def _reserve(self, n: int) -> None:
        """Make room for at least n columns."""
        old, before = self.kept, self.kept.shape[2]
        if n > before:
            columns = min(self.room, max(n, 2 * before))
            self.kept = old.new_zeros(len(old), 2, columns, old.shape[3])
            self.kept[:, :, :before] = old

    def fill(
        self, qkv: Float[Tensor, "rows a"], lengths: Sequence[int]
    ) -> Float[Tensor, "rows hk"]:
        """The heads' outputs for texts of these lengths, read from their beginning;
        stores keys and values.
        """
        B, g, r, k = self.shape
        parts = qkv.view(B, -1, g, r + 2, k).movedim(1, 3)  # (B, g, r + 2, n, k)
        Q, K, V = (t.flatten(1, 2) for t in parts.split((r, 1, 1), dim=2))
        if self.window is None:
            seen = attention(Q, K, V, scale=1.0)  # (B, g·r, n, k)
        else:
            seen = windowed_attention(Q, K, V, self.window, 1.0)
        new = torch.stack((K, V), 2).flatten(0, 1)  # (B·g, 2, n, k)
        if new.shape[2] > self.room:  # the newest token of each column
            last = torch.tensor(lengths, device=new.device)[:, None] - 1
            columns = torch.arange(self.room, device=new.device)
            newest = (last - (last - columns) % self.room).clamp(min=0)
            at = newest.repeat_interleave(g, 0)[:, None, :, None]
            new = new.gather(2, at.expand(-1, 2, -1, k))
        n = new.shape[2]
        self._reserve(n)
        self.kept[:, :, :n] = new
        return seen.transpose(1, 2).flatten(2).flatten(0, 1)

    def append(
        self, qkv: Float[Tensor, "B a"], at: CacheSlot
    ) -> Float[Tensor, "B hk"]:
        """The heads' outputs for one new row of each text; stores its key and value."""
        B, g, r, k = self.shape
        self._reserve(at.n)
        Q, new = qkv.view(B * g, r + 2, k).split((r, 2), dim=1)
        self.kept[at.rows, :, at.columns] = new
        K, V = self.kept.narrow(2, 0, at.n).unbind(1)  # (B·g, n, k)
        scores = torch.bmm(Q, K.mT)  # (B·g, r, n)
        if at.hidden is not None:
            scores = scores.masked_fill(at.hidden, float("-inf"))
        seen = torch.bmm(scores.softmax(-1), V)
        return seen.view(B, g * r * k)

    def select(self, texts: Int[Tensor, "b"], n: int) -> None:
        """Keep only these texts, in this order, with their first n columns; one may
        come twice.
        """
        _, g, r, k = self.shape
        heads = (texts[:, None] * g + torch.arange(g, device=texts.device)).flatten()
        old, self.shape = self.kept, (len(texts), g, r, k)
        self.kept = old.new_zeros(len(heads), *old.shape[1:])
        self.kept[:, :, :n] = old[heads, :, :n]

    def slot(self, where: int | Int[Tensor, "B"], n: int) -> CacheSlot:
        """The slot of a step when the texts have `where` tokens, an int if all have
        equally many.
        """
        R, n = self.room, min(n, self.room)
        if isinstance(where, int):
            return CacheSlot(slice(None), where % R, n, None)
        where = where.repeat_interleave(self.shape[1])  # the same for each head
        rows, j = (torch.arange(m, device=where.device) for m in (len(where), n))
        return CacheSlot(rows, where % R, n, (j > where[:, None])[:, None])


def _expects_texts(texts: Sequence[Int[Tensor, "_"]], config: Config) -> None:
    """Check that the texts can be read. On a GPU the tokens are not checked, which
    would be slow."""
    expects(texts, "texts", "none", "at least one")
    for text in texts:
        _expects_integers("texts", text)
        if text.dim() != 1:
            refuse("texts", f"a text of shape {tuple(text.shape)}", "(n)")
        expects_length("texts", len(text), config.max_len)
        if text.device.type == "cpu":
            expects_tokens("texts", text, config.vocab_size)


def _expects_next(token: Int[Tensor, "B"], texts: int, config: Config) -> None:
    """Check that there is a token of each text; on a GPU its number is not checked."""
    if not texts:
        refuse("step", "no texts to go on with", "read(texts) first")
    _expects_integers("token", token)
    if token.shape != (texts,):
        shape = tuple(token.shape)
        refuse("token", f"shape {shape}", f"({texts}), one for each text")
    if token.device.type == "cpu":
        numbers, V = token.tolist(), config.vocab_size
        if min(numbers) < 0 or max(numbers) >= V:  # quicker than `expects_tokens`
            expects_tokens("token", token, V)


def _expects_integers(argument: str, tokens: Int[Tensor, "_"]) -> None:
    expects_kind(argument, tokens, Tensor, "a tensor of integer tokens")
    if tokens.dtype not in (torch.int64, torch.int32):
        wants = "integer tokens (int64 or int32)"
        refuse(argument, f"dtype {tokens.dtype}", wants, TypeError)


_Step = Callable[[], Float[Tensor, "B V"]]


class Recorded:
    """A compiled step, to be repeated after its first run. On a GPU it is recorded: its
    hundred kernels then start together; starting them one by one takes longer than
    running them. On a processor its program is called directly; torch.compile would
    first check that it still fits the model.

    The step always uses the memory that it used at first, so token and place are
    copied there. For caches that stay where they are in memory.
    """

    def __init__(
        self, step: _Step, token: Int[Tensor, "B"], where: Int[Tensor, "B"]
    ) -> None:
        self.token, self.where = token, where
        self.step = step  # holds the memory that a recording uses
        self.replay = _cuda_graph(step, token.device) if token.is_cuda else step

    def __call__(
        self, token: Int[Tensor, "B"], where: Int[Tensor, "B"]
    ) -> Float[Tensor, "B V"]:
        self.token.copy_(token)
        self.where.copy_(where)
        return self.replay()


@lru_cache
def _recording_stream(device: torch.device) -> Any:
    """One for all recordings: cuBLAS keeps memory for each stream for ever."""
    return torch.cuda.Stream(device)


def _cuda_graph(step: _Step, device: torch.device) -> _Step:
    """The step with its kernels recorded; it must have run once before."""
    graph, stream = torch.cuda.CUDAGraph(), _recording_stream(device)
    mode = "thread_local"  # other threads go on undisturbed
    # outside inference mode, as later recordings share the generator's state
    with torch.cuda.device(device), collector_off(), torch.inference_mode(False):
        recording = torch.cuda.graph(graph, stream=stream, capture_error_mode=mode)
        with recording, torch.inference_mode():
            scores = step()

    def replay() -> Float[Tensor, "B V"]:
        graph.replay()
        return scores.clone()

    return replay


class _CompiledSteps:
    """The step of all cached models: a program is compiled once for models of a kind."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], Sequence[Tensor]]] = []
        self.too_many: Any = getattr(torch._dynamo.exc, "FailOnRecompileLimitHit", ())
        self.advance = torch.compile(
            CachedModel._advance, fullgraph=True, backend=self._noting
        )

    def _noting(self, graph: Any, examples: Any) -> Callable[..., Sequence[Tensor]]:
        """The program of a graph, which notes how it is called."""
        program = _compiler(graph, examples)

        def noted(*inputs: Any) -> Sequence[Tensor]:
            results = program(*inputs)
            # the memory of now, even if a layer is later moved or converted
            kept = [t.detach() if isinstance(t, Tensor) else t for t in inputs]
            self.calls.append(partial(program, *kept))
            return results

        return noted

    def run(self, *inputs: Any) -> tuple[Float[Tensor, "B V"], _Step | None]:
        """The scores of a step, and the step as a function without arguments: it uses
        these inputs again, and the model's weights and caches. None where torch has
        been told not to compile."""
        self.calls.clear()
        try:
            z = self.advance(*inputs)
        except self.too_many:  # the ninth kind or length
            with torch._dynamo.config.patch(cache_size_limit=1000):
                z = self.advance(*inputs)
        if not self.calls:
            return z, None
        call = self.calls.pop()
        return z, lambda: call()[0]


def _compiler(graph: Any, examples: Any) -> Callable[..., Sequence[Tensor]]:
    unchecked = {"size_asserts": False}  # later calls have the tensors of the first
    return torch._inductor.compile(graph, examples, options=unchecked)


_one_at_a_time = threading.Lock()  # several models may begin at the same time


@lru_cache(maxsize=1)
def _compiled_steps() -> _CompiledSteps:
    return _CompiledSteps()


class CachedModel(RowLayers):
    """A model that continues reading where it stopped, with keys and values kept.
    (T-cache)

    Make a new one after further training, since some weights are copied. No dropout.
    `compile`: a step is one compiled graph for 64, 128, … columns, recorded with the
    memory of the weights, and the autocast, of its first run.
    `products`: the form of the products of a step, "auto" for the quickest, found by
    trying; `weights`: "bfloat16" or "int8" to keep the blocks' matrices in fewer bits
    (T-fewer-bits). TypeError for a model with other layers than the book's (but the
    normalization may be any that `derive` calls rowwise, and attention any layer with
    the method `read` of `LinearAttention`: its states are kept, and its weights stay
    as they are), ValueError
    for attention without the mask, for hooks, for blocks that rotate differently and
    for unknown names. It uses a layer's weights; a subclass's `forward` need not be
    called.

    The scores are inference tensors: `clone` those through which gradients are to flow.
    """

    def __init__(
        self,
        model: TransformerLM,
        compile: bool = False,
        *,
        products: str = "auto",
        weights: str | None = None,
    ) -> None:
        self.products = Products(products, weights, compile)
        super().__init__(model, self.products)
        self.compile = compile
        self.lengths: list[int] = []  # how many tokens of each text have been read
        self.recorded: dict[int, Recorded] = {}

    @torch.inference_mode()
    def read(
        self, texts: Sequence[Int[Tensor, "_"]] | Int[Tensor, "B n"]
    ) -> Float[Tensor, "B V"]:
        """The scores after whole texts of 1 … max_len tokens each; earlier texts are
        forgotten.
        """
        texts = list(texts)
        _expects_texts(texts, self.config)
        lengths = [len(text) for text in texts]
        if len(lengths) != len(self.lengths):
            columns = None if self.compile else max(64, 2 * max(lengths))
            new = partial(Cache, self.config, len(texts), self.E, columns)
            self.cache = [
                new() if block.whole is None else States(block.whole)
                for block in self.blocks
            ]
            self.recorded.clear()
        self.lengths = []  # until everything has been read
        tokens = pad_sequence(texts, batch_first=True)  # (B, n)
        n = tokens.shape[1]
        if not self.compile:
            self.products.prepare(len(texts), once=tokens.numel())
        x = self.embed(tokens, slice(n)).flatten(0, 1)  # (B·n, d)
        fills = [partial(cache.fill, lengths=lengths) for cache in self.cache]
        at = torch.arange(n, device=tokens.device).repeat(len(lengths))
        x = self.through(x, fills, at)
        last = [b * n + length - 1 for b, length in enumerate(lengths)]
        self.lengths = lengths
        return self.unembed(self.norm(x[last]))

    @torch.inference_mode()
    def step(self, token: Int[Tensor, "B"]) -> Float[Tensor, "B V"]:
        """The scores after one more token of each text; ValueError if one already has
        max_len tokens, and before `read`. After an error the texts are as before.
        """
        _expects_next(token, len(self.lengths), self.config)
        M, longest = self.config.max_len, max(self.lengths)
        expects_length("text", longest + 1, M)
        places = partial(torch.tensor, self.lengths, device=token.device)
        if self.compile:  # few shapes, since each is recorded
            doubled = 1 << longest.bit_length()
            n = min(M, max(64, doubled) if token.is_cuda else longest // 64 * 64 + 64)
            if n in self.recorded:
                z = self.recorded[n](token, places())
            else:
                z = self._record(token.clone(), places(), n)
        elif min(self.lengths) == longest:
            z = self._advance(token, longest, longest + 1)
        else:
            z = self._advance(token, places(), longest + 1)
        self.lengths = [length + 1 for length in self.lengths]
        return z

    def _advance(
        self, token: Int[Tensor, "B"], where: int | Int[Tensor, "B"], n: int
    ) -> Float[Tensor, "B V"]:
        caches = [kept for kept in self.cache if not isinstance(kept, States)]
        at: Any = caches[0].slot(where, n) if caches else None  # the same for all
        attends = [partial(cache.append, at=at) for cache in self.cache]
        x = self.through(self.embed(token, where), attends, where)
        z = self.unembed(self.norm(x))
        for kept in self.cache:  # after all that can fail
            if isinstance(kept, States):
                kept.keep()
        return z

    def __deepcopy__(self, memo: dict[int, Any]) -> "CachedModel":
        new = memo[id(self)] = self.__class__.__new__(self.__class__)
        # what was recorded uses the memory of this one
        vars(new).update(copy.deepcopy(vars(self) | {"recorded": {}}, memo))
        return new

    def _record(
        self, token: Int[Tensor, "B"], where: Int[Tensor, "B"], n: int
    ) -> Float[Tensor, "B V"]:
        """The scores of a step, which is kept for all others with n columns."""
        with _one_at_a_time:
            z, step = _compiled_steps().run(self, token, where, n)
            if step is not None:
                self.recorded[n] = Recorded(step, token, where)
        return z

    @torch.inference_mode()
    def select(self, texts: Int[Tensor, "b"]) -> None:
        """Go on with these texts of the batch, in this order; one may come twice."""
        wants = "read(texts) first"
        expects(self.lengths, "select", "no texts to go on with", wants)
        expects_text("texts", texts)
        expects(len(texts) > 0, "texts", "none", "the number of one text or more")
        expects_tokens("texts", texts, len(self.lengths))
        lengths = [self.lengths[b] for b in texts.tolist()]
        for cache in self.cache:
            cache.select(texts, max(self.lengths))
        self.recorded.clear()
        if not self.compile:
            self.products.prepare(len(texts))
        self.lengths = lengths


# --- What a token costs


def step_flops(config: Config, n: int) -> int:
    """The operations of a step in matrix products, with n rows up to and including its
    own: L(4d(h + g)k + 4df + 4nhk) + 2dV with plain layers. (T-step-cost) ValueError
    for n below 1.

    >>> step_flops(Config(2, d_model=2, d_ff=3, n_layers=1, n_heads=1), 5)
    104
    """
    expects_positive(n=n)
    c = config
    d, h, g, k = c.d_model, c.n_heads, c.kv_heads, c.head_width
    mlp = (6 if c.gated else 4) * d * c.d_ff
    if c.n_experts is not None:
        mlp = c.n_experts_used * mlp + 2 * d * c.n_experts
    seen = min(n, c.window or n)
    block = 4 * d * (h + g) * k + mlp + 4 * seen * h * k
    return c.n_layers * block + 2 * d * c.vocab_size

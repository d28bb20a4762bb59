"""Using the model: one token after another. Generated from book/inference.ipynb: edit the notebook, then `make export`."""

import codecs
import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from tlm_book.attention import attention
from tlm_book.checks import (
    expects,
    expects_length,
    expects_one_of,
    expects_positive,
    expects_shape,
    expects_tokens,
)
from tlm_book.decoder_block import DecoderBlock
from tlm_book.feed_forward import ACTIVATIONS
from tlm_book.multi_head import MultiHeadAttention
from tlm_book.normalization import Normalization
from tlm_book.tokenization import Tokenizer
from tlm_book.transformer_lm import Config, TransformerLM

__all__ = [
    "window",
    "distribution",
    "last_scores",
    "Rows",
    "Place",
    "Cache",
    "Decoder",
    "quantiles",
    "cut_tail",
    "Sampler",
    "Texts",
    "generate",
    "stream",
    "step_flops",
    "Hypothesis",
    "beam_search",
    "stream_text",
    "complete",
]


# --- The implementation


def window(
    tokens: Int[Tensor, "*batch n"], max_len: int, start: int | None
) -> Int[Tensor, "*batch m"]:
    """What the model reads: the start marker, if any, then the tokens; of too many
    tokens, the last ones that fit. (T-window)
    """
    if start is None:
        return tokens[..., -max_len:]
    first = tokens.new_full((*tokens.shape[:-1], 1), start)
    rest = tokens[..., max(0, tokens.shape[-1] - (max_len - 1)) :]
    return torch.cat((first, rest), dim=-1)


@torch.no_grad()
def distribution(
    model: TransformerLM,
    tokens: Int[Tensor, "*batch n"],
    temperature: float = 1.0,
    start: int | None = None,
) -> Float[Tensor, "*batch V"]:
    """P(· | tokens) = softmax(z / τ) in float64, where z is the model's last row for
    `window(tokens)`. (T-next-token)

    ValueError unless τ > 0, when there is nothing to read, and when a score is NaN.
    """
    expects(temperature > 0, "temperature", temperature, "a number > 0")
    z = last_scores(model, tokens, start)
    return _tempered(z, temperature)


def _tempered(
    z: Float[Tensor, "*batch V"], temperature: float
) -> Float[Tensor, "*batch V"]:
    """softmax(z / τ), from scores of at most 0, so that no τ is too small."""
    z = z - z.amax(-1, keepdim=True)
    return (z / temperature).softmax(-1)


def last_scores(
    model: TransformerLM, tokens: Int[Tensor, "*batch n"], start: int | None
) -> Float[Tensor, "*batch V"]:
    """The model's scores for the token after the last one, in float64.

    Errors as in `generate`.
    """
    z = model(window(tokens, model.config.max_len, start))[..., -1, :].double()
    expects(
        bool((z < float("inf")).all()),
        "model",
        "scores that are NaN or +∞",
        "a model whose weights are finite",
    )
    return z


Rows = Callable[[Float[Tensor, "rows a"]], Float[Tensor, "rows b"]]


def _product(layer: nn.Linear) -> Rows:
    """X ↦ XW + 1b, in the way that is fastest for a single row."""
    got = type(layer).__name__
    expects(type(layer) is nn.Linear, "model", f"a layer {got}", "Linear", TypeError)
    out_in = layer.weight.detach()
    b = out_in.new_zeros(len(out_in)) if layer.bias is None else layer.bias.detach()
    if out_in.numel() <= 2**17:
        W = out_in.T.contiguous()
        return lambda X: torch.addmm(b, X, W)

    def product(X: Float[Tensor, "rows a"]) -> Float[Tensor, "rows b"]:
        if len(X) > 1:
            return F.linear(X, out_in, b)
        return torch.addmv(b, out_in, X[0])[None]

    return product


def _normalizer(layer: nn.Module) -> Rows:
    """The layer; in one call where torch has one."""
    if isinstance(layer, Normalization) and layer.eps_mode == "inside":
        a, b, eps = layer.weight.detach(), layer.bias.detach(), layer.eps
        return lambda X: torch.layer_norm(X, a.shape, a, b, eps)
    return layer.forward


def _queries_keys_values(layer: MultiHeadAttention) -> Rows:
    """X ↦ (cQ, K, V) of the first head, the second, …, with the score scale c in W_Q."""
    expects(
        layer.causal, "model", "attention without mask", "the mask in each block"
    )
    qkv = copy.deepcopy(layer.qkv).requires_grad_(False)
    c = 1 / math.sqrt(layer.d_head) if layer.scale is None else layer.scale
    for w in qkv.parameters():
        parts = w.unflatten(0, (3, layer.n_heads, layer.d_head)).clone()
        parts[0] *= c
        w.copy_(parts.transpose(0, 1).flatten(0, 2))
    return _product(qkv)


class _Block:
    """A decoder block on some rows: `attend` takes their (cQ, K, V) to what the
    heads see.
    """

    def __init__(self, block: DecoderBlock) -> None:
        self.norm, self.variant = block.norm, block.variant
        self.norm_attention = _normalizer(block.norm_attention)
        self.norm_feed_forward = _normalizer(block.norm_feed_forward)
        self.qkv = _queries_keys_values(block.attention)
        self.out = _product(block.attention.out)
        self.up = _product(block.feed_forward.up)
        self.down = _product(block.feed_forward.down)
        self.activation = ACTIVATIONS[block.feed_forward.activation]

    def __call__(
        self, x: Float[Tensor, "rows d"], attend: Rows
    ) -> Float[Tensor, "rows d"]:
        if self.norm == "post":
            x = self.norm_attention(x + self.see(x, attend))
            return self.norm_feed_forward(x + self.think(x))
        seen = self.see(self.norm_attention(x), attend)
        if self.variant == "parallel":
            return x + seen + self.think(self.norm_feed_forward(x))
        y = x + seen
        thought = self.think(self.norm_feed_forward(y))
        return (x if self.variant == "simplified" else y) + thought

    def see(
        self, x: Float[Tensor, "rows d"], attend: Rows
    ) -> Float[Tensor, "rows d"]:
        return self.out(attend(self.qkv(x)))

    def think(self, x: Float[Tensor, "rows d"]) -> Float[Tensor, "rows d"]:
        return self.down(self.activation(self.up(x)))


class Place(NamedTuple):
    """Where a step stands: it writes column `columns` of each of the `rows` (one for
    each text and head) and looks at the first n columns, less the hidden ones.
    """

    rows: slice | Int[Tensor, "heads"]
    columns: int | Int[Tensor, "heads"]
    n: int
    hidden: Bool[Tensor, "heads 1 n"] | None


class Cache:
    """Keys and values of one block, with room for max_len tokens: K (batch·h, k, M) and
    V (batch·h, M, k). `like` gives device and dtype. (T-cache)
    """

    def __init__(
        self, config: Config, batch: int, like: Float[Tensor, "..."]
    ) -> None:
        h, M = config.n_heads, config.max_len
        k = config.d_head or config.d_model // h
        self.shape = batch, h, k
        self.K = like.new_zeros(batch * h, k, M)
        self.V = like.new_zeros(batch * h, M, k)

    def fill(self, qkv: Float[Tensor, "rows hkv"]) -> Float[Tensor, "rows hk"]:
        """What the heads see in texts from their beginning; keeps keys and values."""
        B, h, k = self.shape
        q, K, V = qkv.view(B, -1, h, 3, k).permute(3, 0, 2, 1, 4).flatten(1, 2)
        n = q.shape[1]  # q, K, V: (B·h, n, k)
        self.K[:, :, :n], self.V[:, :n] = K.mT, V
        seen = attention(q, K, V, scale=1.0).view(B, h, n, k)
        return seen.transpose(1, 2).reshape(B * n, h * k)

    def append(
        self, qkv: Float[Tensor, "B hkv"], at: Place
    ) -> Float[Tensor, "B hk"]:
        """What the heads see in one new row of each text; keeps its key and value."""
        B, h, k = self.shape
        q, K, V = qkv.view(B * h, 3, k).unbind(1)
        self.K[at.rows, :, at.columns] = K
        self.V[at.rows, at.columns] = V
        scores = torch.bmm(q[:, None], self.K.narrow(2, 0, at.n))  # (B·h, 1, n)
        if at.hidden is not None:
            scores = scores.masked_fill(at.hidden, float("-inf"))
        return torch.bmm(scores.softmax(-1), self.V.narrow(1, 0, at.n)).view(
            B, h * k
        )

    def select(self, texts: Int[Tensor, "b"], n: int) -> None:
        """Only these texts remain, in this order, with their first n columns; one
        may come twice.
        """
        _, h, k = self.shape
        heads = (texts[:, None] * h + torch.arange(h, device=texts.device)).flatten()
        old, self.shape = (self.K, self.V), (len(texts), h, k)
        self.K, self.V = (
            kept.new_zeros(len(heads), *kept.shape[1:]) for kept in old
        )
        self.K[:, :, :n], self.V[:, :n] = old[0][heads, :, :n], old[1][heads, :n]

    def place(self, where: int | Int[Tensor, "B"], n: int) -> Place:
        """Where a step stands when the texts have `where` tokens: one number if they
        all have as many.
        """
        if isinstance(where, int):
            return Place(slice(None), where, n, None)
        columns = where.repeat_interleave(self.shape[1])  # the same for each head
        rows, j = (torch.arange(m, device=where.device) for m in (len(columns), n))
        return Place(rows, columns, n, (j > columns[:, None])[:, None])


def _expects_model(model: TransformerLM) -> None:
    right, got = isinstance(model, TransformerLM), type(model).__name__
    expects(right, "model", got, "a TransformerLM", TypeError)


class _Layers:
    """The model's layers, made ready to read row by row; `attends` holds what becomes
    of (cQ, K, V), block by block.
    """

    def __init__(self, model: TransformerLM) -> None:
        _expects_model(model)
        c, table = model.config, model.embedding.table.weight.detach()
        self.config = c
        self.E = table * model.embedding.scale
        self.P = None if c.pe == "none" else model.position.table.detach().clone()
        self.blocks = [_Block(block) for block in model.blocks]
        self.norm = _normalizer(model.norm)
        self.unembed = _product(model.unembedding)

    def embed(
        self, tokens: Int[Tensor, "*rows"], at: int | slice | Int[Tensor, "*rows"]
    ) -> Float[Tensor, "*rows d"]:
        X = F.embedding(tokens, self.E)
        return X if self.P is None else X + self.P[at]

    def through(
        self, x: Float[Tensor, "rows d"], attends: Iterable[Rows]
    ) -> Float[Tensor, "rows d"]:
        for block, attend in zip(self.blocks, attends):
            x = block(x, attend)
        return x


class Decoder(_Layers):
    """A model that goes on reading where it stopped, with keys and values kept.
    (T-cache)

    Made anew when the model has learned more: some weights are copied. No dropout.
    `compile`: a step is one compiled graph of fixed shape. TypeError for a model
    with other layers than the book's, ValueError for attention without the mask.
    """

    def __init__(self, model: TransformerLM, compile: bool = False) -> None:
        super().__init__(model)
        self.compile = compile
        self.lengths: list[int] = []  # how many tokens of each text have been read
        self.advance = self._advance
        if compile:
            self.advance = torch.compile(
                self._advance, fullgraph=True, mode="reduce-overhead"
            )

    @torch.inference_mode()
    def read(self, texts: Sequence[Int[Tensor, "_"]]) -> Float[Tensor, "B V"]:
        """The scores after whole texts of 1 … max_len tokens each; earlier ones are
        forgotten.
        """
        lengths = [len(text) for text in texts]
        expects(lengths, "texts", "none", "at least one")
        for n in (min(lengths), max(lengths)):
            expects_length("texts", n, self.config.max_len)
        if len(lengths) != len(self.lengths):
            self.cache = [
                Cache(self.config, len(texts), self.E) for _ in self.blocks
            ]
        self.lengths = lengths
        tokens = pad_sequence(list(texts), batch_first=True)  # (B, n)
        n = tokens.shape[1]
        x = self.embed(tokens, slice(n)).flatten(0, 1)  # (B·n, d)
        x = self.through(x, [cache.fill for cache in self.cache])
        last = [b * n + length - 1 for b, length in enumerate(lengths)]
        return self.unembed(self.norm(x[last]))

    @torch.inference_mode()
    def step(self, token: Int[Tensor, "B"]) -> Float[Tensor, "B V"]:
        """The scores after one more token of each text; ValueError when one has
        max_len tokens.
        """
        M, longest = self.config.max_len, max(self.lengths)
        expects_length("text", longest + 1, M)
        where: int | Tensor = self.lengths[0]
        n = longest + 1
        if self.compile or min(self.lengths) < longest:
            where = torch.tensor(self.lengths, device=token.device)
            n = M if self.compile else n
        self.lengths = [length + 1 for length in self.lengths]
        return self.advance(token, where, n)

    def _advance(
        self, token: Int[Tensor, "B"], where: int | Int[Tensor, "B"], n: int
    ) -> Float[Tensor, "B V"]:
        at = self.cache[0].place(where, n)
        attends = [partial(cache.append, at=at) for cache in self.cache]
        x = self.through(self.embed(token, where), attends)
        return self.unembed(self.norm(x))

    @torch.inference_mode()
    def select(self, texts: Int[Tensor, "b"]) -> None:
        """Go on with these texts of the batch, in this order; one may come twice."""
        for cache in self.cache:
            cache.select(texts, max(self.lengths))
        self.lengths = [self.lengths[b] for b in texts.tolist()]


# --- Drawing and writing


def quantiles(
    p: Float[Tensor, "*batch V"], u: Float[Tensor, "*batch"]
) -> Int[Tensor, "*batch"]:
    """The smallest j with u < p_0 + … + p_j, for each row. (T-quantile)"""
    F = p.cumsum(-1)
    return (F / F[..., -1:] <= u[..., None]).sum(-1)


def cut_tail(
    p: Float[Tensor, "*batch V"],
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
) -> Float[Tensor, "*batch V"]:
    """p with zeros where top-k, then top-p, then min-p cut; each row sums to 1 again.
    (T-top-k-top-p, T-min-p)
    """
    if (top_k, top_p) != (None, None):
        sorted_p, order = p.sort(dim=-1, descending=True, stable=True)
        k = p.shape[-1] if top_k is None else top_k
        sorted_p[..., k:] = 0
        if top_p is not None:
            mass = sorted_p.cumsum(-1)
            before = mass - sorted_p  # of all tokens that stand before
            before[..., 1:] = mass[..., :-1]
            sorted_p[before >= top_p * mass[..., -1:]] = 0
        p = torch.zeros_like(p).scatter(-1, order, sorted_p)
    if min_p is not None:
        p = p.masked_fill(p < min_p * p.amax(-1, keepdim=True), 0)
    return p / p.sum(-1, keepdim=True)


@dataclass(frozen=True)
class Sampler:
    """How the next token is chosen, in this order. (T-choices)

    repetition_penalty  θ > 0: for scores of tokens that the text holds
    temperature         0 takes the likeliest token; τ > 0 draws from softmax(z / τ)
    top_k, top_p, min_p what is cut off before drawing; None: nothing

    ValueError or TypeError for a value out of range.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        for name, got in vars(self).items():
            number = isinstance(got, int | float) and not isinstance(got, bool)
            free = got is None and name in ("top_k", "top_p", "min_p")
            expects(number or free, name, repr(got), "a number", TypeError)
        tau, theta = self.temperature, self.repetition_penalty
        expects(0 <= tau < math.inf, "temperature", tau, "a finite number ≥ 0")
        wants = "a finite number > 0"
        expects(0 < theta < math.inf, "repetition_penalty", theta, wants)
        if self.top_k is not None:
            expects_positive(top_k=self.top_k)
        s, m = self.top_p, self.min_p
        expects(s is None or 0 < s <= 1, "top_p", s, "None or 0 < top_p ≤ 1")
        expects(m is None or 0 <= m <= 1, "min_p", m, "None or 0 ≤ min_p ≤ 1")

    def scores(
        self, z: Float[Tensor, "B V"], seen: Bool[Tensor, "B V"]
    ) -> Float[Tensor, "B V"]:
        """The scores after the penalty; `seen` is true for tokens of the text.
        (T-repetition-penalty)
        """
        theta = self.repetition_penalty
        if theta == 1:
            return z
        return torch.where(seen, torch.where(z > 0, z / theta, z * theta), z)

    def distribution(
        self, z: Float[Tensor, "B V"], seen: Bool[Tensor, "B V"]
    ) -> Float[Tensor, "B V"]:
        """The probabilities from which a token is drawn, in float64; for τ > 0."""
        p = _tempered(self.scores(z.double(), seen), self.temperature)
        return cut_tail(p, self.top_k, self.top_p, self.min_p)

    def draw(
        self,
        z: Float[Tensor, "B V"],
        seen: Bool[Tensor, "B V"],
        generator: torch.Generator | None,
    ) -> Int[Tensor, "B"]:
        """One token for each row of scores; ValueError for a row of NaN, +∞ or
        nothing but −∞.
        """
        best, token = self.scores(z, seen).max(-1)
        fine = all(map(math.isfinite, best.tolist()))
        wants = "a model whose weights are finite"
        expects(fine, "model", "scores that are NaN or +∞", wants)
        if self.temperature == 0:
            return token
        place = torch.device("cpu") if generator is None else generator.device
        u = torch.rand(
            len(z), dtype=torch.float64, generator=generator, device=place
        )
        return quantiles(self.distribution(z, seen), u.to(z.device))


def _written(
    model: TransformerLM,
    texts: Sequence[Int[Tensor, "_"]],
    n_new: int,
    sampler: Sampler,
    start: int | None,
    stop: Sequence[int],
    generator: torch.Generator | None,
    compile: bool,
) -> Iterator[Int[Tensor, "B"]]:
    """The new tokens of all texts, step by step, until each text is over."""
    M, V, B = model.config.max_len, model.config.vocab_size, len(texts)
    decoder = Decoder(model, compile)
    new: list[Tensor] = []
    seen = torch.zeros(B, V, dtype=torch.bool, device=texts[0].device)
    for row, text in zip(seen, texts):
        row[text] = True
    over, ends = seen.new_zeros(B), texts[0].new_tensor(stop)
    for _ in range(n_new):
        if new and max(decoder.lengths) < M:
            z = decoder.step(new[-1])
        else:  # at the beginning, and at every step when the window slides
            added = torch.stack(new, 1) if new else texts[0].new_zeros(B, 0)
            whole = [torch.cat(pair) for pair in zip(texts, added)]
            z = decoder.read([window(text, M, start) for text in whole])
        token = sampler.draw(z, seen, generator).to(texts[0].dtype)
        if stop:
            token = torch.where(over, new[-1], token) if new else token
            over = over | torch.isin(token, ends)
        if sampler.repetition_penalty != 1:
            seen.scatter_(1, token[:, None].long(), True)
        new.append(token)
        yield token
        if stop and bool(over.all()):
            return


def _expects_writing(
    model: TransformerLM,
    texts: Sequence[Int[Tensor, "_"]],
    n_new: int,
    start: int | None,
    stop: int | Sequence[int] | None,
    on_overflow: str,
) -> list[int]:
    """Check what is to be continued and how; the stop tokens."""
    _expects_model(model)
    V = model.config.vocab_size
    expects(len(texts) > 0, "tokens", "no texts", "at least one")
    for text in texts:
        expects_tokens("tokens", text, V)
        expects(
            text.dim() == 1, "tokens", f"a text of shape {tuple(text.shape)}", "(n)"
        )
        wants = "at least 1 token, or a start marker"
        nothing = len(text) == 0 and start is None
        expects(not nothing, "tokens", "an empty prompt", wants)
    expects(isinstance(n_new, int), "n_new", n_new, "a whole number", TypeError)
    expects(n_new >= 0, "n_new", n_new, "a number ≥ 0")
    expects_one_of("on_overflow", on_overflow, ("error", "slide"))
    M, rows = model.config.max_len, (start is not None) + n_new - 1
    rows += max(map(len, texts))
    wants = f'at most max_len = {M}, or on_overflow="slide"'
    fits = rows <= M or on_overflow == "slide"
    expects(fits, "n_new", f"{n_new}, for which {rows} rows are read", wants)
    ends = [] if stop is None else [stop] if isinstance(stop, int) else stop
    listed = isinstance(ends, Sequence) and not isinstance(ends, str)
    expects(
        listed, "stop", stop, "None, a whole number or a list of them", TypeError
    )
    signs: list[tuple[str, Any]] = [("stop", token) for token in ends]
    for name, token in signs + [("start", start)] * (start is not None):
        wants = f"None or a token from 0 to {V - 1}"
        expects(isinstance(token, int), name, token, "a whole number", TypeError)
        expects(0 <= token < V, name, token, wants, IndexError)
    return list(ends)


Texts = Int[Tensor, "*batch n"] | Sequence[Int[Tensor, "_"]]


def generate(
    model: TransformerLM,
    tokens: Texts,
    n_new: int,
    *,
    start: int | None = None,
    stop: int | Sequence[int] | None = None,
    generator: torch.Generator | None = None,
    on_overflow: str = "error",
    compile: bool = False,
    **choices: Any,
) -> Int[Tensor, "*batch m"] | list[Int[Tensor, "_"]]:
    """The tokens, continued by at most n_new of the model's own, written side by
    side. (T-sampling)

    tokens       (*batch, n); or a list of texts of any lengths, then a list comes back
    start        marker that the model reads before the tokens (it is not returned)
    stop         one token or several: a text that has produced one is over; in a tensor
                 it is filled up with that token, in a list it ends there
    generator    source of the uniform numbers; None is torch's global one
    on_overflow  "error", or "slide" for the last tokens that fit: see `window`
    compile      steps of fixed shape through torch.compile
    choices      temperature, top_k, top_p, min_p, repetition_penalty: see `Sampler`

    The model is used without dropout, whatever its mode. ValueError for an empty
    prompt without start, texts that grow too long, settings out of range and scores
    that are not finite; IndexError for a token outside the vocabulary; TypeError for
    what is no integer.
    """
    if isinstance(tokens, list | tuple):
        texts = list(tokens)
    else:
        rows: Any = tokens
        expects_tokens("tokens", rows, 2**63)
        expects_shape("tokens", rows, ("n",))
        texts = list(rows.reshape(rows.shape[:-1].numel(), rows.shape[-1]))
    stop = _expects_writing(model, texts, n_new, start, stop, on_overflow)
    sampler = Sampler(**choices)
    new = list(
        _written(model, texts, n_new, sampler, start, stop, generator, compile)
    )
    added = torch.stack(new, 1) if new else texts[0].new_zeros(len(texts), 0)
    if isinstance(tokens, Tensor):
        return torch.cat((tokens, added.view(*tokens.shape[:-1], len(new))), -1)
    ends = [  # just behind the first stop token
        next((i + 1 for i, token in enumerate(row) if token in stop), len(row))
        for row in added.tolist()
    ]
    return [torch.cat((x, row[:end])) for x, row, end in zip(texts, added, ends)]


def stream(
    model: TransformerLM,
    tokens: Int[Tensor, "n"],
    n_new: int,
    *,
    start: int | None = None,
    stop: int | Sequence[int] | None = None,
    generator: torch.Generator | None = None,
    on_overflow: str = "error",
    compile: bool = False,
    **choices: Any,
) -> Iterator[int]:
    """The new tokens that `generate` writes after this one text, each as soon as it
    is there.

    Arguments and errors as in `generate`; they are checked at once, not with the
    first token.
    """
    ends = _expects_writing(model, [tokens], n_new, start, stop, on_overflow)
    new = _written(
        model,
        [tokens],
        n_new,
        Sampler(**choices),
        start,
        ends,
        generator,
        compile,
    )
    return (int(token) for token in new)


# --- What a token costs


def step_flops(config: Config, n: int) -> int:
    """F(n) = L(8dw + 4df + 4nw) + 2dV: operations of a step that looks at n rows.
    (T-step-cost) ValueError for n below 1.

    >>> step_flops(Config(2, d_model=2, d_ff=3, n_layers=1, n_heads=1), 5)
    104
    """
    expects_positive(n=n)
    c = config
    w = c.n_heads * (c.d_head or c.d_model // c.n_heads)
    block = 8 * c.d_model * w + 4 * c.d_model * c.d_ff + 4 * n * w
    return c.n_layers * block + 2 * c.d_model * c.vocab_size


# --- Several beginnings at once


class Hypothesis(NamedTuple):
    """A continuation, the logarithm of its probability, and its value."""

    tokens: Int[Tensor, "_"]
    log_p: float
    value: float


@torch.no_grad()
def beam_search(
    model: TransformerLM,
    tokens: Int[Tensor, "n"],
    n_new: int,
    *,
    width: int = 4,
    length_power: float = 0.0,
    start: int | None = None,
    stop: int | Sequence[int] | None = None,
) -> list[Hypothesis]:
    """At most `width` continuations of the text, each of at most n_new tokens, the
    best first. (T-beam-text)

    value = log P / |y|^length_power. Errors as in `generate`; ValueError for a width
    below 1, a length_power that is negative or not finite, and n_new < 1.
    """
    signs = _expects_writing(model, [tokens], n_new, start, stop, "error")
    expects_positive(width=width, n_new=n_new)
    fine = 0 <= length_power < math.inf
    expects(fine, "length_power", length_power, "a finite number ≥ 0")
    V, M = model.config.vocab_size, model.config.max_len
    decoder, y = Decoder(model), tokens.new_zeros(1, 0)
    z, ends = decoder.read([window(tokens, M, start)]), tokens.new_tensor(signs)
    log_p = z.new_zeros(1, dtype=torch.float64)  # of each hypothesis
    over, length = log_p.bool(), log_p.long()
    for step in range(n_new):
        fine = bool(z.amax(-1).isfinite().all())
        wants = "a model whose weights are finite"
        expects(fine, "model", "scores that are NaN or +∞", wants)
        gain = z.double().log_softmax(-1)
        gain[over] = -math.inf
        gain[over, 0] = 0  # what is over stays as it is: one candidate
        log_p, length = (
            log_p[:, None] + gain,
            (length + ~over)[:, None].expand(-1, V),
        )
        value = (log_p / length**length_power).flatten()
        best = value.sort(descending=True, stable=True).indices[:width]
        best = best[value[best] > -math.inf]
        parent, token = best // V, best % V
        log_p, length, value = (
            log_p.flatten()[best],
            length.flatten()[best],
            value[best],
        )
        token = (
            torch.where(over[parent], y[parent, -1:].flatten(), token)
            if step
            else token
        )
        y, over = torch.cat((y[parent], token[:, None]), 1), torch.isin(token, ends)
        bound = (log_p / n_new**length_power)[~over]
        if bool(over[0] & (value[0] >= bound).all()) or step == n_new - 1:
            break
        decoder.select(parent)
        z = decoder.step(token)
    return [
        Hypothesis(y_b[:n], float(p), float(v))
        for y_b, n, p, v in zip(y, length.tolist(), log_p, value)
    ]


# --- From text to text


def _characters(tokenizer: Tokenizer, tokens: Iterator[int]) -> Iterator[str]:
    """The text of the tokens, in pieces of whole characters. (T-stream)"""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    for token in tokens:
        if piece := decoder.decode(tokenizer.token_bytes(token)):
            yield piece
    if rest := decoder.decode(b"", final=True):
        yield rest


def stream_text(
    model: TransformerLM,
    tokenizer: Tokenizer,
    prompt: str,
    max_new: int = 100,
    *,
    temperature: float = 0.8,
    seed: int = 0,
    on_overflow: str = "slide",
    **choices: Any,
) -> Iterator[str]:
    """The continuation that `complete` writes, piece by piece, each as soon as it is
    there. Errors as in `complete`, at once.
    """
    V, end = model.config.vocab_size, tokenizer.start
    wants = f"the model's vocab_size = {V}"
    expects(len(tokenizer) == V, "tokenizer", f"{len(tokenizer)} tokens", wants)
    expects(isinstance(seed, int), "seed", seed, "a whole number", TypeError)
    expects(0 <= seed < 2**63, "seed", seed, "a whole number from 0 to 2^63 − 1")
    device = model.embedding.table.weight.device
    tokens = tokenizer.encode(prompt) or [end]  # no prompt: a new document
    new = stream(
        model,
        torch.tensor(tokens, dtype=torch.long, device=device),
        max_new,
        start=end,
        stop=end,
        generator=torch.Generator().manual_seed(seed),
        on_overflow=on_overflow,
        temperature=temperature,
        **choices,
    )
    return _characters(tokenizer, (token for token in new if token != end))


def complete(
    model: TransformerLM,
    tokenizer: Tokenizer,
    prompt: str,
    max_new: int = 100,
    temperature: float = 0.8,
    seed: int = 0,
    **choices: Any,
) -> str:
    """The prompt and its continuation by at most max_new tokens, up to the end of
    the document if the model ends it.

    An empty prompt begins a document. `choices` as in `Sampler`, and `on_overflow`,
    here "slide" by default. The same arguments give the same text. Errors as in
    `generate`; ValueError when the tokenizer is not the model's.
    """
    options: dict[str, Any] = {"temperature": temperature, "seed": seed, **choices}
    return prompt + "".join(
        stream_text(model, tokenizer, prompt, max_new, **options)
    )

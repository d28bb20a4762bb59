"""Going on where one stopped: keys and values are kept. Generated from book/inference.ipynb: edit the notebook, then `make export`."""

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from tlm_book.attention import attention
from tlm_book.checks import expects, expects_length, expects_positive
from tlm_book.decoder_block import DecoderBlock
from tlm_book.feed_forward import GATE_ACTIVATIONS, FeedForward, GatedFeedForward
from tlm_book.multi_head import MultiHeadAttention
from tlm_book.normalization import Normalization
from tlm_book.transformer_lm import Config, TransformerLM

__all__ = [
    "Rows",
    "CacheSlot",
    "Cache",
    "CachedModel",
    "step_flops",
]


# --- The implementation


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


def _mlp(layer: nn.Module) -> Rows:
    """The feed-forward layer, with products that are fast for a single row."""
    if isinstance(layer, FeedForward | GatedFeedForward):
        f, up, down = (
            GATE_ACTIVATIONS[layer.activation],
            _product(layer.up),
            _product(layer.down),
        )
        if isinstance(layer, FeedForward):
            return lambda X: down(f(up(X)))
        gate = _product(layer.gate)
        return lambda X: down(f(gate(X)) * up(X))
    return layer.forward


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
        self.mlp = _mlp(block.feed_forward)

    def __call__(
        self, x: Float[Tensor, "rows d"], attend: Rows
    ) -> Float[Tensor, "rows d"]:
        heads = lambda x: self.out(attend(self.qkv(x)))
        if self.norm == "post":
            x = self.norm_attention(x + heads(x))
            return self.norm_feed_forward(x + self.mlp(x))
        attended = heads(self.norm_attention(x))
        if self.variant == "parallel":
            return x + attended + self.mlp(self.norm_feed_forward(x))
        y = x + attended
        mlp_out = self.mlp(self.norm_feed_forward(y))
        return (x if self.variant == "simplified" else y) + mlp_out


class CacheSlot(NamedTuple):
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
        k = config.head_width
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
        self, qkv: Float[Tensor, "B hkv"], at: CacheSlot
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

    def slot(self, where: int | Int[Tensor, "B"], n: int) -> CacheSlot:
        """Where a step stands when the texts have `where` tokens: one number if they
        all have as many.
        """
        if isinstance(where, int):
            return CacheSlot(slice(None), where, n, None)
        columns = where.repeat_interleave(self.shape[1])  # the same for each head
        rows, j = (torch.arange(m, device=where.device) for m in (len(columns), n))
        return CacheSlot(rows, columns, n, (j > columns[:, None])[:, None])


def expects_model(model: TransformerLM) -> None:
    """The model is one of this book; TypeError otherwise."""
    right, got = isinstance(model, TransformerLM), type(model).__name__
    expects(right, "model", got, "a TransformerLM", TypeError)


class _Layers:
    """The model's layers, made ready to read row by row; `attends` holds what becomes
    of (cQ, K, V), block by block.
    """

    def __init__(self, model: TransformerLM) -> None:
        expects_model(model)
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


class CachedModel(_Layers):
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
    def read(
        self, texts: Sequence[Int[Tensor, "_"]] | Int[Tensor, "B n"]
    ) -> Float[Tensor, "B V"]:
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
        at = self.cache[0].slot(where, n)
        attends = [partial(cache.append, at=at) for cache in self.cache]
        x = self.through(self.embed(token, where), attends)
        return self.unembed(self.norm(x))

    @torch.inference_mode()
    def select(self, texts: Int[Tensor, "b"]) -> None:
        """Go on with these texts of the batch, in this order; one may come twice."""
        for cache in self.cache:
            cache.select(texts, max(self.lengths))
        self.lengths = [self.lengths[b] for b in texts.tolist()]


# --- What a token costs


def step_flops(config: Config, n: int) -> int:
    """F(n) = L(8dw + 4df + 4nw) + 2dV: operations of a step that looks at n rows.
    (T-step-cost) ValueError for n below 1.

    >>> step_flops(Config(2, d_model=2, d_ff=3, n_layers=1, n_heads=1), 5)
    104
    """
    expects_positive(n=n)
    c = config
    w = c.n_heads * c.head_width
    block = 8 * c.d_model * w + 4 * c.d_model * c.d_ff + 4 * n * w
    return c.n_layers * block + 2 * c.d_model * c.vocab_size

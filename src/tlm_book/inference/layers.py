"""The layers of a model, made ready to read single rows. Generated from book/inference.ipynb: edit the notebook, then `make export`."""

from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tlm_book.checks import expects, refuse
from tlm_book.decoder_block import DecoderBlock
from tlm_book.derivation import Kind, derive
from tlm_book.embedding import Embedding
from tlm_book.feed_forward import (
    GATE_ACTIVATIONS,
    FeedForward,
    GatedFeedForward,
    MixtureOfExperts,
)
from tlm_book.inference.products import Product, Products, Rows
from tlm_book.inference.states import as_now, reads_on
from tlm_book.multi_head import MultiHeadAttention
from tlm_book.normalization import Normalization, RMSNorm
from tlm_book.onednn import is_linear
from tlm_book.positional_encoding import PositionalEncoding, Rotary
from tlm_book.transformer_lm import TransformerLM
from tlm_book.weights import expects_model

__all__ = [
    "Angles",
    "Turn",
]


# --- The implementation


Angles = tuple[Float[Tensor, "n 1 m k"], Float[Tensor, "n 1 m k"]]
Turn = Callable[[Float[Tensor, "rows a"], Angles | None], Float[Tensor, "rows a"]]


def _expects_layer(layer: nn.Module, right: bool, wants: str) -> None:
    expects(right, "model", f"a layer {type(layer).__name__}", wants, TypeError)


def _product(layer: nn.Linear, products: Products, keep: bool = False) -> Product:
    """X ↦ XW + 1b, in the form that turns out to be quickest; with `keep`, in the
    number type of the layer.
    """
    _expects_layer(layer, is_linear(layer), "Linear")
    b = None if layer.bias is None else layer.bias.detach()
    return products.add(layer.weight.detach(), b, keep)


def _normalizer(layer: nn.Module) -> Rows:
    """The layer as a function; a single torch call if there is one. One of another kind
    must be row-wise, since it reads single rows.
    """
    if isinstance(layer, Normalization) and layer.eps_mode == "inside":
        a, b, eps = layer.weight.detach(), layer.bias.detach(), layer.eps
        return lambda X: torch.layer_norm(X, a.shape, a, b, eps)
    if isinstance(layer, RMSNorm):
        a, eps = layer.weight.detach(), layer.eps
        return lambda X: torch.rms_norm(X, a.shape, a, eps)
    if not isinstance(layer, Normalization | nn.Identity):
        rowwise, wants = derive(layer).kind is Kind.ROWWISE, "one that derive calls rowwise"
        _expects_layer(layer, rowwise, wants)
    return layer.forward


def _queries_keys_values(layer: MultiHeadAttention, products: Products) -> Product:
    """X ↦ (cQ, K, V), one group of heads after another: the queries that share a key,
    the key, the value. The score scale c is in W_Q (unless queries are normalized).
    """
    expects(
        layer.causal, "model", "attention without mask", "the mask in each block"
    )
    _expects_layer(layer.qkv, is_linear(layer.qkv), "Linear")
    c = 1.0 if layer.query_norm is not None else layer.score_scale
    h, g, k = layer.n_heads, layer.n_kv_heads, layer.d_head

    def in_groups(w: Float[Tensor, "a ..."]) -> Float[Tensor, "a ..."]:
        Q, K, V = w.detach().split((h * k, g * k, g * k))
        parts = [t.unflatten(0, (g, -1, k)) for t in (c * Q, K, V)]
        return torch.cat(parts, dim=1).flatten(0, 2)

    b = layer.qkv.bias
    return products.add(
        in_groups(layer.qkv.weight), None if b is None else in_groups(b)
    )


def _turn(layer: MultiHeadAttention) -> Turn | None:
    """What is done to queries and keys before their product: normalization, then
    rotation by the given angles; None if nothing is done.
    """
    if layer.query_norm is None and layer.rotary is None:
        return None
    g, k, scale = layer.n_kv_heads, layer.d_head, layer.score_scale
    r, rotary = layer.n_heads // g, layer.rotary

    def turn(
        qkv: Float[Tensor, "rows a"], angles: Angles | None
    ) -> Float[Tensor, "rows a"]:
        X = qkv.view(-1, g, r + 2, k)
        if layer.query_norm is not None and layer.key_norm is not None:
            Q, K, V = X.split((r, 1, 1), dim=2)
            Q = scale * layer.query_norm(Q)  # the norm would undo a scale in W_Q
            X = torch.cat((Q, layer.key_norm(K), V), dim=2)
        if isinstance(rotary, Rotary) and angles is not None:
            c, s = angles
            X = torch.addcmul(X * c, rotary.swapped(X), s).to(qkv.dtype)
        return X.flatten(1)

    return turn


def _mlp(layer: nn.Module, products: Products) -> Rows:
    """The feed-forward layer as a function, with products in the quickest form."""
    if isinstance(layer, FeedForward | GatedFeedForward):
        f, up, down = (
            GATE_ACTIVATIONS[layer.activation],
            _product(layer.up, products),
            _product(layer.down, products),
        )
        if isinstance(layer, FeedForward):
            return lambda X: down(f(up(X)))
        gate = _product(layer.gate, products)
        return lambda X: down(f(gate(X)) * up(X))
    wants = "a feed-forward layer of this book"
    if isinstance(layer, MixtureOfExperts):
        return _experts(layer)
    refuse("model", f"a layer {type(layer).__name__}", wants, TypeError)


def _experts(layer: MixtureOfExperts) -> Rows:
    """The layer as a function; in a compiled graph each row has its experts'
    matrices, since shapes there must not depend on data.
    """
    f = GATE_ACTIVATIONS[layer.activation]

    def fixed(X: Float[Tensor, "rows d"]) -> Float[Tensor, "rows d"]:
        weights, chosen = layer.route(X)  # (rows, m)
        gate, up, down = (w[chosen] for w in (layer.gate, layer.up, layer.down))
        x = X[:, None, :, None]  # (rows, 1, d, 1)
        results = (down @ (f(gate @ x) * (up @ x))).squeeze(-1)  # (rows, m, d)
        return (weights[..., None] * results).sum(1)

    return lambda X: fixed(X) if torch.compiler.is_compiling() else layer(X)


class _Block:
    """A decoder block on some rows: `attend` maps their (cQ, K, V) to the outputs of
    the heads, or, if the layer reads on from a state, the rows to its results.
    """

    def __init__(self, block: DecoderBlock, products: Products) -> None:
        self.norm, self.variant = block.norm, block.variant
        self.norm_attention = _normalizer(block.norm_attention)
        self.norm_feed_forward = _normalizer(block.norm_feed_forward)
        layer: Any = block.attention
        self.whole = as_now(layer) if reads_on(layer) else None  # all of `attend`
        if self.whole is None:
            self.qkv = _queries_keys_values(layer, products)
            self.turn = _turn(layer)
            self.out = _product(layer.out, products)
        self.mlp = _mlp(block.feed_forward, products)

    def __call__(
        self,
        x: Float[Tensor, "rows d"],
        attend: Rows,
        angles: Angles | None = None,
    ) -> Float[Tensor, "rows d"]:
        if self.norm == "post":
            x = self.norm_attention(x + self.heads(x, attend, angles))
            return self.norm_feed_forward(x + self.mlp(x))
        attended = self.heads(self.norm_attention(x), attend, angles)
        if self.variant == "parallel":
            return x + attended + self.mlp(self.norm_feed_forward(x))
        y = x + attended
        mlp_out = self.mlp(self.norm_feed_forward(y))
        return (x if self.variant == "simplified" else y) + mlp_out

    def heads(
        self, x: Float[Tensor, "rows d"], attend: Rows, angles: Angles | None
    ) -> Float[Tensor, "rows d"]:
        if self.whole is not None:
            return attend(x)
        qkv = self.qkv(x)
        return self.out(attend(qkv if self.turn is None else self.turn(qkv, angles)))


def _expects_no_hooks(model: TransformerLM) -> None:
    """Check that no module has a forward hook, which would not be called; ValueError
    otherwise."""
    wants = "none: here layers are not called (run_with_hooks calls them)"
    for name, part in model.named_modules():
        if part._forward_hooks or part._forward_pre_hooks:
            refuse("model", f"hooks on {name or 'the model'}", wants)


def _expects_parts(model: TransformerLM) -> None:
    """Check that the parts that are not called are of this book; TypeError otherwise."""

    def of(kind: type[nn.Module], layer: nn.Module) -> None:
        _expects_layer(layer, isinstance(layer, kind), f"the book's {kind.__name__}")

    of(Embedding, model.embedding)
    of(PositionalEncoding, model.position)
    for block in model.blocks:
        of(DecoderBlock, block)
        if not reads_on(block.attention):
            of(MultiHeadAttention, block.attention)


def _one_rotary(model: TransformerLM) -> Rotary | None:
    """The rotation that all blocks share, None without one; ValueError for several."""
    heads = [b.attention for b in model.blocks if not reads_on(b.attention)]
    rotary, *others = {layer.rotary for layer in heads} or {None}
    right = isinstance(rotary, Rotary | None) and not others
    expects(right, "model", "other rotations", "one Rotary, shared by all blocks")
    return cast(Rotary | None, rotary)


class RowLayers:
    """The model's layers, made ready to read row by row; `attends` holds what is done
    to (cQ, K, V), block by block. It uses the layers' weights: their `forward` need
    not be called, and hooks are refused.
    """

    def __init__(self, model: TransformerLM, products: Products) -> None:
        expects_model(model)
        _expects_no_hooks(model)
        _expects_parts(model)
        c, table = model.config, model.embedding.table.weight.detach()
        self.config = c
        scale = model.embedding.scale
        self.E = table if scale == 1 else table * scale
        added = c.pe not in ("none", "rotary")
        self.P = model.position.table.detach().clone() if added else None
        self.blocks = [_Block(block, products) for block in model.blocks]
        self.rotary = _one_rotary(model)
        self.norm = _normalizer(model.norm)
        self.unembed = _product(model.unembedding, products, keep=True)

    def embed(
        self, tokens: Int[Tensor, "*rows"], at: int | slice | Int[Tensor, "*rows"]
    ) -> Float[Tensor, "*rows d"]:
        X = F.embedding(tokens, self.E)
        return X if self.P is None else X + self.P[at]

    def through(
        self,
        x: Float[Tensor, "rows d"],
        attends: Iterable[Rows],
        at: int | Int[Tensor, "rows"],
    ) -> Float[Tensor, "rows d"]:
        angles = self.angles(at)  # the same in all blocks
        for block, attend in zip(self.blocks, attends):
            x = block(x, attend, angles)
        return x

    def angles(self, at: int | Int[Tensor, "rows"]) -> Angles | None:
        """The factors of the rotation for queries, key and value of a group, the last
        of which is not turned: (1 or rows, 1, r + 2, k).
        """
        if self.rotary is None:
            return None
        turned = 1 + self.config.n_heads // self.config.kv_heads
        c, s = (t[:, None, None] for t in self.rotary.factors(1, at))
        c = torch.cat((c.expand(-1, -1, turned, -1), torch.ones_like(c)), 2)
        return c, torch.cat((s.expand(-1, -1, turned, -1), torch.zeros_like(s)), 2)

"""Several heads at once: multi-head attention. Generated from book/multi_head.ipynb: edit the notebook, then `make export`."""

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tlm_book.attention import attention as fused_attention
from tlm_book.attention import attention_pattern as softmax_weights
from tlm_book.checks import expects, expects_positive, expects_shape
from tlm_book.derivation import (
    Derivation,
    Kind,
    compose,
    concat,
    derive,
    pattern,
    primitive,
    product,
    register_rule,
)
from tlm_book.operators import causal_mask

__all__ = [
    "MultiHeadAttention",
    "fuse_heads",
    "split_heads",
    "CrossAttention",
]


# --- Definition


class MultiHeadAttention(nn.Module):
    """CA(X) = [H_0(X), …, H_{h−1}(X)] W_O + 1b_O, all heads in one pass. (W-mh-def)

    `d_head` defaults to d_model / n_heads, and then n_heads must divide d_model
    (ValueError otherwise). `qkv_bias` and `out_bias`: whether queries, keys, values
    and the output have bias rows. `scale` replaces 1/√d_head and must be positive;
    without `causal` there is no mask.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_head: int | None = None,
        qkv_bias: bool = False,
        out_bias: bool = True,
        causal: bool = True,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        expects_positive(d_model=d_model, n_heads=n_heads)
        if d_head is None:
            expects(
                d_model % n_heads == 0,
                "n_heads",
                n_heads,
                f"a divisor of d_model = {d_model}",
            )
            d_head = d_model // n_heads
        expects_positive(d_head=d_head)
        expects(scale is None or scale > 0, "scale", scale, "None or a number > 0")
        self.n_heads = n_heads
        self.d_head = d_head
        self.causal = causal
        self.scale = scale
        # weight: fuse_heads of all heads
        self.qkv = nn.Linear(d_model, 3 * n_heads * d_head, bias=qkv_bias)
        self.out = nn.Linear(n_heads * d_head, d_model, bias=out_bias)

    def _queries_keys_values(
        self, x: Float[Tensor, "*batch n d"]
    ) -> list[Float[Tensor, "*batch h n k"]]:
        if x.dim() < 2 or x.shape[-1] != self.qkv.in_features:
            expects_shape("x", x, ("n", self.qkv.in_features))
        qkv = self.qkv(x).view(*x.shape[:-1], 3, self.n_heads, self.d_head)
        # three views: nothing is copied, and one copy joins their gradients
        return [part.transpose(-3, -2) for part in qkv.unbind(-3)]

    def forward(self, x: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n d"]:
        q, k, v = self._queries_keys_values(x)
        heads = fused_attention(q, k, v, self.causal, self.scale)  # (*batch, h, n, k)
        # heads side by side: (*batch, n, h·k)
        return self.out(heads.transpose(-3, -2).flatten(-2))

    def attention_weights(
        self, x: Float[Tensor, "*batch n d"]
    ) -> Float[Tensor, "*batch h n n"]:
        """The attention weights of every head for this input."""
        q, k, _ = self._queries_keys_values(x)
        return softmax_weights(q, k, self.causal, self.scale)

    def spec_weights(self) -> dict[str, np.ndarray]:
        """{"W_Q", "W_K", "W_V", "W_O", "b_O"} (and "b_Q", "b_K", "b_V") as float64
        copies, for `spec.multi_head.multi_head`."""
        W, W_O = split_heads(self.qkv.weight, self.n_heads), self.out.weight.T
        b_O = W_O.new_zeros(W_O.shape[1]) if self.out.bias is None else self.out.bias
        named = {"W_Q": W[0], "W_K": W[1], "W_V": W[2], "W_O": W_O, "b_O": b_O}
        if self.qkv.bias is not None:
            b = self.qkv.bias.unflatten(0, (3, self.n_heads, self.d_head))
            named |= {"b_Q": b[0], "b_K": b[1], "b_V": b[2]}
        return {
            k: w.detach().double().cpu().numpy().copy() for k, w in named.items()
        }


# --- The implementation


def fuse_heads(weights: Float[Tensor, "3 h d k"]) -> Float[Tensor, "3*h*k d"]:
    """W_Q[i], W_K[i], W_V[i] of every head as the weight of one linear layer: the
    inverse of `split_heads`.

    Rows in the order: every W_Q[i]ᵀ, then every W_K[i]ᵀ, then every W_V[i]ᵀ.
    (W-mh-weights) ValueError for another shape.
    """
    fits = weights.dim() == 4 and len(weights) == 3
    expects(fits, "weights", f"shape {tuple(weights.shape)}", "(3, h, d, k)")
    return weights.mT.flatten(0, 2)


def split_heads(
    weight: Float[Tensor, "rows d"], n_heads: int
) -> Float[Tensor, "3 h d k"]:
    """The matrices W_Q[i], W_K[i], W_V[i] in the weight of one linear layer: the
    inverse of `fuse_heads`. (W-mh-weights)

    ValueError when 3·n_heads does not divide the number of rows.
    """
    expects_positive(n_heads=n_heads)
    expects(
        len(weight) % (3 * n_heads) == 0,
        "weight",
        f"{len(weight)} rows",
        f"a multiple of 3·n_heads = {3 * n_heads}",
    )
    return weight.unflatten(0, (3, n_heads, -1)).mT


# --- Two sequences


class CrossAttention(nn.Module):
    """[head_0, …, head_{h−1}] W_O + 1b_O: queries from x, keys and values from memory.
    (A-def-4.2, T-padding)

    `d_key` defaults to d_model / n_heads, which must then be whole; `d_value` to
    `d_key`. x: (*batch, m, d_model), memory: (*batch, n, d_model), key_mask: (*batch, n)
    with True for real rows of the memory. With `causal`, row i sees rows 0 … i of the
    memory. Result (*batch, m, d_model). ValueError for sizes or shapes that do not fit.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_key: int | None = None,
        d_value: int | None = None,
        qkv_bias: bool = False,
        out_bias: bool = True,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        expects_positive(d_model=d_model, n_heads=n_heads)
        if d_key is None:
            whole = d_model % n_heads == 0
            expects(whole, "n_heads", n_heads, f"a divisor of d_model = {d_model}")
            d_key = d_model // n_heads
        d_value = d_key if d_value is None else d_value
        expects_positive(d_key=d_key, d_value=d_value)
        expects(scale is None or scale > 0, "scale", scale, "None or a number > 0")
        self.n_heads, self.scale = n_heads, scale
        self.query = nn.Linear(d_model, n_heads * d_key, bias=qkv_bias)
        self.key = nn.Linear(d_model, n_heads * d_key, bias=qkv_bias)
        self.value = nn.Linear(d_model, n_heads * d_value, bias=qkv_bias)
        self.out = nn.Linear(n_heads * d_value, d_model, bias=out_bias)

    def _heads(
        self, rows: Float[Tensor, "*batch n hk"]
    ) -> Float[Tensor, "*batch h n k"]:
        return rows.unflatten(-1, (self.n_heads, -1)).transpose(-3, -2)

    def keys_values(
        self, memory: Float[Tensor, "*batch n d"]
    ) -> tuple[Float[Tensor, "*batch h n k"], Float[Tensor, "*batch h n v"]]:
        """What the layer makes of a memory; it may be kept for later rows of x."""
        expects_shape("memory", memory, ("n", self.key.in_features))
        return self._heads(self.key(memory)), self._heads(self.value(memory))

    def forward(
        self,
        x: Float[Tensor, "*batch m d"],
        memory: Float[Tensor, "*batch n d"],
        key_mask: Bool[Tensor, "*batch n"] | None = None,
        causal: bool = False,
    ) -> Float[Tensor, "*batch m d"]:
        return self.attend(x, *self.keys_values(memory), key_mask, causal)

    def attend(
        self,
        x: Float[Tensor, "*batch m d"],
        keys: Float[Tensor, "*batch h n k"],
        values: Float[Tensor, "*batch h n v"],
        key_mask: Bool[Tensor, "*batch n"] | None = None,
        causal: bool = False,
    ) -> Float[Tensor, "*batch m d"]:
        """The same with keys and values made before by `keys_values`."""
        A = self._weights(x, keys, key_mask, causal)
        return self.out((A @ values).transpose(-3, -2).flatten(-2))

    def attention_weights(
        self,
        x: Float[Tensor, "*batch m d"],
        memory: Float[Tensor, "*batch n d"],
        key_mask: Bool[Tensor, "*batch n"] | None = None,
        causal: bool = False,
    ) -> Float[Tensor, "*batch h m n"]:
        """The attention weights of every head."""
        return self._weights(x, self.keys_values(memory)[0], key_mask, causal)

    def _weights(
        self,
        x: Float[Tensor, "*batch m d"],
        keys: Float[Tensor, "*batch h n k"],
        key_mask: Bool[Tensor, "*batch n"] | None,
        causal: bool,
    ) -> Float[Tensor, "*batch h m n"]:
        expects_shape("x", x, ("m", self.query.in_features))
        scale = keys.shape[-1] ** -0.5 if self.scale is None else self.scale
        scores = scale * self._heads(self.query(x)) @ keys.mT  # (*batch, h, m, n)
        if key_mask is not None:
            expects_shape("key_mask", key_mask, (*keys.shape[:-3], keys.shape[-2]))
            hidden = ~key_mask[..., None, None, :]
            scores = scores.masked_fill(hidden, float("-inf"))
        if causal:
            scores = causal_mask(scores)
        weights = scores.softmax(-1)
        if key_mask is not None:  # a row that sees nothing: 0 and not 0/0
            weights = weights.masked_fill(
                (scores == float("-inf")).all(-1, keepdim=True), 0.0
            )
        return weights

    def spec_weights(self) -> dict[str, np.ndarray]:
        """The weights as float64, for `spec.multi_head.multi_head_attention`."""
        named = {"W_O": self.out.weight.T}
        if self.out.bias is not None:
            named["b_O"] = self.out.bias
        for letter, layer in (("Q", self.query), ("K", self.key), ("V", self.value)):
            named[f"W_{letter}"] = layer.weight.unflatten(0, (self.n_heads, -1)).mT
            if layer.bias is not None:
                named[f"b_{letter}"] = layer.bias.unflatten(0, (self.n_heads, -1))
        return {
            k: w.detach().double().cpu().numpy().copy() for k, w in named.items()
        }


# --- The proof, derived


def _listed(name: str, h: int) -> str:
    names = [f"{name}{i}" for i in range(h)]
    return ", ".join(names if h < 4 else [names[0], "…", names[-1]])


@register_rule(MultiHeadAttention)
def _multi_head_attention(module: MultiHeadAttention) -> Derivation:
    if not module.causal:
        return primitive("MultiHeadAttention", Kind.UNPROVED, "no causal mask")
    h, rows = module.n_heads, derive(module.qkv)
    head = product(
        f"H_i for i = {_listed('', h)}",
        pattern("softmax(◺(Q_iK_iᵀ)·scale)", rows, rows),
        rows,
    )
    return compose("CA", concat(f"[{_listed('H_', h)}]", head), derive(module.out))

"""Attention with one head. Generated from book/attention.ipynb: edit the notebook, then `make export`."""

import math

import numpy as np
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from tlm_book.arrays import as_float64
from tlm_book.checks import (
    expects,
    expects_mask,
    expects_positive,
    expects_shape,
)
from tlm_book.derivation import Derivation, derive, pattern, product, register_rule
from tlm_book.operators import masked_softmax as torch_masked_softmax

__all__ = [
    "CausalAttention",
    "attention_pattern",
    "attention",
]


# --- Definition


class CausalAttention(nn.Module):
    """CA_1(X) = softmax(◺(QKᵀ)/√d_head) V with Q = XW_Q, K = XW_K, V = XW_V: one
    head, no biases. (W-ca1-def)

    `d_head` defaults to d_model. ValueError for an input whose width is not
    d_model, or that has no row.
    """

    def __init__(self, d_model: int, d_head: int | None = None) -> None:
        super().__init__()
        d_head = d_model if d_head is None else d_head
        expects_positive(d_model=d_model, d_head=d_head)
        self.d_model = d_model
        self.query = nn.Linear(d_model, d_head, bias=False)
        self.key = nn.Linear(d_model, d_head, bias=False)
        self.value = nn.Linear(d_model, d_head, bias=False)

    def forward(self, x: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n k"]:
        if x.dim() < 2 or x.shape[-1] != self.d_model:
            expects_shape("x", x, ("n", self.d_model))
        return attention(self.query(x), self.key(x), self.value(x))

    def attention_weights(
        self, x: Float[Tensor, "*batch n d"]
    ) -> Float[Tensor, "*batch n n"]:
        """The attention weights for this input."""
        expects_shape("x", x, ("n", self.d_model))
        return attention_pattern(self.query(x), self.key(x))

    def spec_weights(self) -> dict[str, np.ndarray]:
        """{"W_Q", "W_K", "W_V"} as float64 copies, for
        `spec.attention.causal_attention`."""
        layers = {"W_Q": self.query, "W_K": self.key, "W_V": self.value}
        kept = {name: layer.weight.T.detach() for name, layer in layers.items()}
        return {name: as_float64(W) for name, W in kept.items()}


# --- The implementation


def attention_pattern(
    q: Float[Tensor, "*batch n k"],
    k: Float[Tensor, "*batch m k"],
    causal: bool = True,
    scale: float | None = None,
    mask: Bool[Tensor, "n m"] | None = None,
) -> Float[Tensor, "*batch n m"]:
    """softmax(◺(c QKᵀ)): the weights that rows give to one another. For inspection:
    `attention` does not form them.

    c = 1/√k unless `scale` is given; there is no ◺ unless `causal`. `mask` hides the
    keys where it is False; a row that sees none has weights 0. ValueError if the widths
    of q and k differ, if there is no key, or for a mask of another shape than (n, m);
    TypeError for a mask of numbers.
    """
    if k.shape[-1] != q.shape[-1]:
        expects_shape("k", k, ("m", q.shape[-1]))
    expects(k.shape[-2] >= 1, "k", "0 rows", "at least one key")
    c = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = c * (q @ k.mT)
    if mask is not None:
        expects_mask("mask", mask, (q.shape[-2], k.shape[-2]))
        mask = mask.tril() if causal else mask
        scores = scores.masked_fill(~mask, float("-inf"))
    A = torch_masked_softmax(scores) if causal else scores.softmax(-1)
    return A if mask is None else A.masked_fill(~mask.any(-1, keepdim=True), 0)


def _four_axes(x: Float[Tensor, "*batch n k"]) -> Float[Tensor, "a b n k"]:
    return x[(None,) * (4 - x.dim())] if x.dim() < 4 else x.flatten(0, -4)


def attention(
    q: Float[Tensor, "*batch n k"],
    k: Float[Tensor, "*groups m k"],
    v: Float[Tensor, "*groups m v"],
    causal: bool = True,
    scale: float | None = None,
    mask: Bool[Tensor, "n m"] | None = None,
) -> Float[Tensor, "*batch n v"]:
    """attention_pattern(q, k) · v by torch's fused kernel, which avoids storing the
    whole pattern where it can.

    If q has h heads on its third axis from the end, k and v may have g, a divisor of
    h: head i reads keys and values i // (h/g). (T-grouped-query) A `mask` hides the
    keys where it is False; then `causal` must be False. ValueError if it is not, if
    the widths of q and k, the numbers of keys and values, or the leading axes do not
    fit, if there is no key, for a mask of another shape than (n, m), and for a scale
    that is not positive; TypeError for a mask of numbers.
    """
    expects(scale is None or scale > 0, "scale", scale, "None or a number > 0")
    expects(k.shape[-2] >= 1, "k", "0 rows", "at least one key")
    if k.shape[-1] != q.shape[-1] or v.shape[-2] != k.shape[-2]:
        expects_shape("k", k, ("m", q.shape[-1]))
        expects_shape("v", v, (k.shape[-2], "v"))
    if mask is not None:
        expects_mask("mask", mask, (q.shape[-2], k.shape[-2]))
        expects(not causal, "causal", causal, "False beside a mask")
    grouped = q.shape[:-2] != k.shape[:-2]
    if grouped or k.shape[:-2] != v.shape[:-2]:
        _expects_groups(q, k, v)
    if q.dim() != 4:
        q4, k4, v4 = (_four_axes(t) for t in (q, k, v))
        result = attention(q4, k4, v4, causal, scale, mask)
        return result.reshape(*q.shape[:-1], v.shape[-1])
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=grouped
    )


def _expects_groups(
    q: Float[Tensor, "*batch n k"],
    k: Float[Tensor, "*groups m k"],
    v: Float[Tensor, "*groups m v"],
) -> None:
    """ValueError unless k and v have the leading axes of q, or fewer heads."""
    lead = tuple(q.shape[:-2])
    for name, t in (("k", k), ("v", v)):
        got = tuple(t.shape[:-2])
        fits = got == lead or (
            len(got) == len(lead)
            and got[:-1] == lead[:-1]
            and got[-1] >= 1
            and lead[-1] % got[-1] == 0
        )
        wants = f"the leading axes of q, {lead}, or fewer heads"
        expects(fits, name, f"shape {tuple(t.shape)}", wants)
    same = k.shape[:-2] == v.shape[:-2]
    wants = f"the leading axes of k, {tuple(k.shape[:-2])}"
    expects(same, "v", f"shape {tuple(v.shape)}", wants)


# --- The proof, derived


@register_rule(CausalAttention)
def _causal_attention(module: CausalAttention) -> Derivation:
    weights = pattern(
        "softmax(◺(QKᵀ)/√d_head)", derive(module.query), derive(module.key)
    )
    return product("CA_1", weights, derive(module.value))

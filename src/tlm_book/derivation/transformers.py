"""Torch's attention and the layers made of it: the mask is an argument of the call, so the wrapper `Causal` fixes the call."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tlm_book.checks import expects
from tlm_book.derivation.calculus import (
    compose,
    concat,
    pattern,
    primitive,
    product,
    residual,
)
from tlm_book.derivation.kinds import Kind
from tlm_book.derivation.rules import Rule, derive, register_rule
from tlm_book.derivation.tree import Derivation
from tlm_book.operators import causal_mask

__all__ = ["Causal"]

_MASK_ARGUMENT: dict[type[nn.Module], str] = {
    nn.MultiheadAttention: "attn_mask",
    nn.TransformerEncoderLayer: "src_mask",
    nn.TransformerEncoder: "mask",
    nn.TransformerDecoderLayer: "tgt_mask",
    nn.TransformerDecoder: "tgt_mask",
}


class Causal(nn.Module):
    """x ↦ module(x, mask ◺): one of torch's attention layers, always called with the
    causal mask. (W-mask-op-def)

    Takes a MultiheadAttention, called with x as query, key and value, or a
    TransformerEncoder, a TransformerDecoder or a layer of these (TypeError for
    others). `memory` is a decoder's second argument; TypeError for a decoder without
    it and for others with one. The rows of x run along its last
    axis but one; for a module with batch_first=False, in a batch (n, batch, d), along
    its first, as in torch.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        fits = isinstance(module, tuple(_MASK_ARGUMENT))
        wants = "one of torch's layers that take a mask"
        expects(fits, "module", type(module).__name__, wants, TypeError)
        self.module = module

    def forward(
        self, x: Float[Tensor, "*batch d"], *memory: Float[Tensor, "*other k"]
    ) -> Float[Tensor, "*batch d"]:
        reads = isinstance(self.module, nn.TransformerDecoder | nn.TransformerDecoderLayer)
        wants = "one, for a decoder" if reads else "none: only a decoder reads one"
        expects(len(memory) == reads, "memory", f"{len(memory)} of them", wants, TypeError)
        attention = next(
            m for m in self.module.modules() if hasattr(m, "batch_first")
        )
        n = x.shape[-2] if attention.batch_first or x.dim() == 2 else x.shape[0]
        mask = causal_mask(x.new_zeros(n, n))
        if isinstance(self.module, nn.MultiheadAttention):
            return self.module(x, x, x, attn_mask=mask, need_weights=False)[0]
        (name,) = {
            n for t, n in _MASK_ARGUMENT.items() if isinstance(self.module, t)
        }
        return self.module(x, *memory, **{name: mask})


_WITH_MASK: dict[type[nn.Module], Rule] = {}


_TwoRules = Callable[[Any, bool], Derivation]  # without the mask and with it


def _with_and_without_mask(
    module_type: type[nn.Module],
) -> Callable[[_TwoRules], _TwoRules]:
    def register(rule: _TwoRules) -> _TwoRules:
        register_rule(module_type)(lambda module: rule(module, False))
        _WITH_MASK[module_type] = lambda module: rule(module, True)
        return rule

    return register


@register_rule(Causal)
def _causal(module: Causal) -> Derivation:
    if type(module.module) not in _WITH_MASK:
        name = type(module.module).__name__
        return primitive(f"Causal({name})", Kind.UNPROVED, "no rule for this type")
    return _WITH_MASK[type(module.module)](module.module)


@_with_and_without_mask(nn.MultiheadAttention)
def _attention(module: nn.MultiheadAttention, causal: bool) -> Derivation:
    name, d, h = type(module).__name__, module.embed_dim, module.num_heads
    name += "" if module.batch_first else ", rows on the first axis"
    if module.training and module.dropout > 0:
        return primitive(name, Kind.UNPROVED, "random in training mode")
    if (
        module.bias_k is not None
        or module.bias_v is not None
        or module.add_zero_attn
    ):
        return primitive(name, Kind.UNPROVED, "hears a key that belongs to no row")
    if not module.kdim == module.vdim == d:
        return primitive(name, Kind.UNPROVED, "queries and keys of different rows")
    rows = primitive(f"Linear({d} → {3 * d})", Kind.ROWWISE, "one map for all rows")
    scores = "softmax(◺(Q_iK_iᵀ)/√k)" if causal else "softmax(Q_iK_iᵀ/√k)"
    head = product("H_i", pattern(scores, rows, rows, causal), rows)
    listed = [f"H_{i}" for i in range(h)]
    listed = listed if h < 4 else [listed[0], "…", listed[-1]]
    heads = concat(f"[{', '.join(listed)}]", *[head] * h)
    return compose(name, heads, derive(module.out_proj))


_ENTRYWISE: tuple[object, ...] = (F.relu, F.gelu, F.silu, F.mish)
_ENTRYWISE += (torch.relu, torch.tanh, torch.sigmoid)


def _activation_of(layer: nn.Module) -> Derivation:
    f = layer.activation
    if isinstance(f, nn.Module):
        return derive(f)
    name = getattr(f, "__name__", type(f).__name__)
    if not any(f is known for known in _ENTRYWISE):
        return primitive(name, Kind.UNPROVED, "an unknown function")
    return primitive(name, Kind.ROWWISE, "entry by entry")


def _part(module: nn.Module, wants: type[nn.Module], causal: bool) -> Derivation:
    """The derivation of a part that is called with more than x; it must be of exactly the expected type."""
    if type(module) is not wants:
        name = type(module).__name__
        return primitive(
            name, Kind.UNPROVED, f"no rule for it in place of {wants.__name__}"
        )
    return derive(Causal(module)) if causal else derive(module)


def _branch(subject: str, *steps: Derivation) -> Derivation:
    """The composition of these steps, without those that do nothing."""
    kept = [step for step in steps if not step.is_identity]
    return kept[0] if len(kept) == 1 else compose(subject, *kept)


def _cross(module: nn.Module) -> Derivation:
    if (
        type(module) is not nn.MultiheadAttention
        or module.training
        and module.dropout > 0
    ):
        return primitive(
            "cross-attention", Kind.UNPROVED, "random, or no rule for it"
        )
    return primitive("cross-attention", Kind.ROWWISE, "one map for a fixed memory")


@_with_and_without_mask(nn.TransformerEncoderLayer)
@_with_and_without_mask(nn.TransformerDecoderLayer)
def _layer(m: Any, causal: bool) -> Derivation:
    dec = isinstance(m, nn.TransformerDecoderLayer)
    attend = _part(m.self_attn, nn.MultiheadAttention, causal)
    feed = [
        derive(m.linear1),
        _activation_of(m),
        derive(m.dropout),
        derive(m.linear2),
    ]
    branches = [("SA", m.norm1, [attend, derive(m.dropout1)])]
    if dec:
        branches += [("XA", m.norm2, [_cross(m.multihead_attn), derive(m.dropout2)])]
    norm, dropout = (m.norm3, m.dropout3) if dec else (m.norm2, m.dropout2)
    branches += [("FF", norm, [*feed, derive(dropout)])]
    steps = []
    for name, norm, branch in branches:
        if m.norm_first:
            step = _branch(f"{name}∘N", derive(norm), *branch)
            steps += [residual(f"Res({name}∘N)", step)]
        else:
            steps += [residual(f"Res({name})", _branch(name, *branch)), derive(norm)]
    return compose(type(m).__name__, *steps)


@_with_and_without_mask(nn.TransformerEncoder)
@_with_and_without_mask(nn.TransformerDecoder)
def _stack(module: Any, causal: bool) -> Derivation:
    dec = isinstance(module, nn.TransformerDecoder)
    one = nn.TransformerDecoderLayer if dec else nn.TransformerEncoderLayer
    steps = [_part(layer, one, causal) for layer in module.layers]
    if len(steps) == 0:
        return primitive(type(module).__name__, Kind.UNPROVED, "has no layers")
    steps += [] if module.norm is None else [derive(module.norm)]
    return compose(type(module).__name__, *steps)

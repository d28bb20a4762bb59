"""The decoder block. Generated from book/decoder_block.ipynb: edit the notebook, then `make export`."""

from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor, nn

from tlm_book.checks import expects, expects_numbers, expects_one_of, expects_shape
from tlm_book.derivation import (
    Derivation,
    add,
    compose,
    derive,
    register_rule,
    residual,
)
from tlm_book.feed_forward import FeedForward, GatedFeedForward, MixtureOfExperts
from tlm_book.inside import Watch
from tlm_book.multi_head import MultiHeadAttention
from tlm_book.normalization import Normalization, RMSNorm

NORMS = ("pre", "post", "none")
NORM_KINDS = ("layer", "rms")
VARIANTS = ("sequential", "parallel", "simplified")

__all__ = [
    "NORMS",
    "NORM_KINDS",
    "VARIANTS",
    "DecoderBlock",
]


# --- The block


class DecoderBlock(nn.Module):
    """DB = Res(FF ∘ N_ff) ∘ Res(CA ∘ N_ca), from (…, n, d_model) to the same shape.
    (W-db-def)

    `norm`: "pre" (Wojcik), "post" (normalize after each sum) or "none".
    `variant`: "sequential" (Wojcik), "parallel" (both layers read the same
    input) or "simplified" (W-idea-simplified-block); the last two not with norm
    "post". `dropout` acts on what each layer adds to the stream, in training mode
    only.

    The choices of models since Llama (T-block-2020): `norm_kind` "rms" takes RMS
    norm, whose ε is inside the root whatever `eps_mode` is; `gated` takes the gated
    feed-forward layer, and `n_experts` that many such layers, without biases, of which
    each row uses `n_experts_used`; without `ff_bias` the others have no biases either.
    `n_kv_heads`, `window`, `qk_norm` (with this `eps`) and `rotary` are passed on
    to the attention layer. ValueError for another choice, for sizes that do not
    fit, and for an input whose width is not d_model.
    """

    watch: Watch | None = None  # set while `run_with_cache` looks inside

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_ff: int,
        *,
        d_head: int | None = None,
        activation: str = "relu",
        norm: str = "pre",
        variant: str = "sequential",
        eps: float = 1e-6,
        eps_mode: str = "outside",
        qkv_bias: bool = False,
        out_bias: bool = True,
        scale: float | None = None,
        dropout: float = 0.0,
        norm_kind: str = "layer",
        gated: bool = False,
        ff_bias: bool = True,
        n_experts: int | None = None,
        n_experts_used: int = 2,
        n_kv_heads: int | None = None,
        window: int | None = None,
        qk_norm: bool = False,
        rotary: nn.Module | None = None,
    ) -> None:
        super().__init__()
        expects_numbers(dropout=dropout)
        expects_one_of("norm", norm, NORMS)
        expects_one_of("norm_kind", norm_kind, NORM_KINDS)
        expects_one_of(
            "variant", variant, VARIANTS if norm != "post" else ("sequential",)
        )
        expects(0 <= dropout < 1, "dropout", dropout, "a probability in [0, 1)")
        self.d_model, self.norm, self.variant = d_model, norm, variant

        def normalization() -> nn.Module:
            if norm == "none":
                return nn.Identity()
            if norm_kind == "rms":
                return RMSNorm(d_model, eps)
            return Normalization(d_model, eps, eps_mode)

        self.norm_attention = normalization()
        self.attention = MultiHeadAttention(
            d_model,
            n_heads,
            d_head,
            qkv_bias,
            out_bias,
            causal=True,
            scale=scale,
            n_kv_heads=n_kv_heads,
            window=window,
            qk_norm=qk_norm,
            qk_eps=eps,
            rotary=rotary,
        )
        self.norm_feed_forward = normalization()
        self.feed_forward: FeedForward | GatedFeedForward | MixtureOfExperts
        if n_experts is not None:
            self.feed_forward = MixtureOfExperts(
                d_model, d_ff, n_experts, n_experts_used, activation
            )
        elif gated:
            self.feed_forward = GatedFeedForward(d_model, d_ff, activation, ff_bias)
        else:
            self.feed_forward = FeedForward(d_model, d_ff, activation, ff_bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n d"]:
        expects_shape("x", x, ("n", self.d_model))
        if self.norm == "post":
            x = self.norm_attention(x + self.dropout(self.attention(x)))
            return self.norm_feed_forward(x + self.dropout(self.feed_forward(x)))
        y = x + self.dropout(self.attention(self.norm_attention(x)))
        if self.watch is not None:
            y = self.watch("residual_mid", y)
        read = x if self.variant == "parallel" else y
        mlp_out = self.dropout(self.feed_forward(self.norm_feed_forward(read)))
        return (x if self.variant == "simplified" else y) + mlp_out

    def attention_weights(
        self, x: Float[Tensor, "*batch n d"]
    ) -> Float[Tensor, "*batch h n n"]:
        """The attention weights of every head when the block reads x."""
        return self.attention.attention_weights(
            x if self.norm == "post" else self.norm_attention(x)
        )

    def spec_weights(self) -> dict[str, dict[str, Any]]:
        """{"N_ca", "CA", "N_ff", "FF"}, with norm "none" only {"CA", "FF"}, each a dict
        of float64 arrays, for `spec.decoder_block.decoder_block`."""
        layers: dict[str, Any] = {"CA": self.attention, "FF": self.feed_forward}
        if self.norm != "none":
            layers |= {"N_ca": self.norm_attention, "N_ff": self.norm_feed_forward}
        return {name: layer.spec_weights() for name, layer in layers.items()}


# --- The proof, printed


def _branch(*modules: nn.Module) -> Derivation:
    """What a branch adds: its layers in the order in which they are applied,
    without identities."""
    steps = [step for step in map(derive, modules) if not step.is_identity]
    return (
        steps[0]
        if len(steps) == 1
        else compose("∘".join(step.subject for step in reversed(steps)), *steps)
    )


def _res(branch: Derivation) -> Derivation:
    return residual(f"Res({branch.subject})", branch)


@register_rule(DecoderBlock)
def _decoder_block(module: DecoderBlock) -> Derivation:
    N_ca = module.norm_attention
    CA = module.attention
    N_ff = module.norm_feed_forward
    FF = module.feed_forward
    D = module.dropout
    if module.norm == "post":
        return compose(
            "DB",
            _res(_branch(CA, D)),
            derive(N_ca),
            _res(_branch(FF, D)),
            derive(N_ff),
        )
    C, F = _branch(N_ca, CA, D), _branch(N_ff, FF, D)
    if module.variant == "parallel":
        return residual("DB", add(f"{C.subject} + {F.subject}", C, F))
    if module.variant == "simplified":
        inner = compose(f"{F.subject}∘Res({C.subject})", _res(C), F)
        return residual("DB", inner)
    return compose("DB", _res(C), _res(F))

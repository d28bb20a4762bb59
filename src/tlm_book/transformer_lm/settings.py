"""Every choice that makes a model, each with a name and a check. Generated from book/transformer_lm.ipynb: edit the notebook, then `make export`."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, TypeVar

from tlm_book.checks import (
    expects,
    expects_numbers,
    expects_one_of,
    expects_positive,
    expects_switches,
    expects_whole,
    plain_fields,
)
from tlm_book.decoder_block import NORM_KINDS, NORMS, VARIANTS
from tlm_book.feed_forward import ACTIVATIONS, GATE_ACTIVATIONS
from tlm_book.normalization import EPS_MODES
from tlm_book.positional_encoding import KINDS, LAYOUTS, RopeScaling

__all__ = [
    "Settings",
]


# --- Every choice has a name


_S = TypeVar("_S", bound="Settings")


@dataclass(frozen=True)
class Settings:
    """Every choice that makes a transformer language model; the defaults are
    Wojcik's. (W-tlm-params, T-family)

    `eps_mode` is for layer norm (RMS norm has ε inside), `rope_…` for pe="rotary". A
    dict given as `rope_scaling` becomes a `RopeScaling`, and numbers of numpy or torch
    become Python's own. ValueError or TypeError for a value that fits no model.
    """

    vocab_size: int  # V
    d_model: int = 512  # d: the width of the rows
    d_ff: int = 2048  # the width inside the feed-forward layer
    n_layers: int = 6  # L: the number of decoder blocks
    n_heads: int = 8  # h
    max_len: int = 2048  # M
    d_head: int | None = None  # None: d_model / n_heads
    activation: str = "relu"
    norm: str = "pre"  # "post": after each sum; "none": none inside the blocks
    final_norm: bool = True  # whether N comes before Φ
    variant: str = "sequential"  # how a block is wired
    eps: float = 1e-6
    eps_mode: str = "outside"  # σ + ε; "inside": √(σ² + ε); "none": σ
    pe: str = "learned_from_sinusoid"
    pe_start: int = 1  # the position of the first token, for the sinusoid
    embed_scale: bool = False  # True: embeddings are multiplied by √d_model
    qkv_bias: bool = False  # biases in queries, keys and values
    out_bias: bool = True  # bias in the attention's output matrix
    unembed_bias: bool = True  # b
    tied: bool = False  # True: Y is the embedding table, transposed
    scale: float | None = None  # of attention scores; None: 1/√d_head
    dropout: float = 0.0  # in training mode only
    n_kv_heads: int | None = None  # g: heads of keys and values; None: as many as h
    norm_kind: str = "layer"  # "rms": the mean is not subtracted
    gated: bool = False  # True: φ(XW_G) ⊙ XW_1 inside the feed-forward layer
    ff_bias: bool = True  # biases in the feed-forward layer
    n_experts: int | None = None  # E: the number of gated layers; None: one layer
    n_experts_used: int = 2  # how many of them each row uses
    window: int | None = None  # w: each row sees itself and the w − 1 before it
    qk_norm: bool = False  # RMS norm of the queries and keys of each head
    rope_base: float = 10000.0  # the base of the angles
    rope_layout: str = "halves"  # which two entries turn together
    rope_scaling: RopeScaling | None = None  # for texts longer than in training

    def __post_init__(self) -> None:
        if isinstance(self.rope_scaling, dict):  # read from a file
            scaling = RopeScaling(**self.rope_scaling)
            object.__setattr__(self, "rope_scaling", scaling)
        plain_fields(self)
        _check_sizes(self)
        _check_numbers(self)
        _check_choices(self)
        _check_family(self)

    @property
    def head_width(self) -> int:
        """The width of the rows of one head: d_head, or d_model / n_heads."""
        return self.d_head or self.d_model // self.n_heads

    @property
    def kv_heads(self) -> int:
        """How many heads keys and values have: n_kv_heads, or n_heads."""
        return self.n_kv_heads or self.n_heads

    def replace(self: _S, **changes: Any) -> _S:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)


_SIZES = ("vocab_size", "d_model", "d_ff", "n_layers", "n_heads", "max_len")
_SWITCHES = (
    *("final_norm", "embed_scale", "qkv_bias", "out_bias", "unembed_bias", "tied"),
    *("gated", "ff_bias", "qk_norm"),
)


def _check_sizes(c: Settings) -> None:
    expects_positive(**{name: getattr(c, name) for name in _SIZES})
    d, h = c.d_model, c.n_heads
    if c.d_head is None:
        expects(d % h == 0, "n_heads", h, f"a divisor of d_model = {d}")
    else:
        expects_positive(d_head=c.d_head)
    if c.pe in ("sinusoidal", "learned_from_sinusoid"):
        wish = "an even width: each sine needs its cosine"
        expects(d % 2 == 0, "d_model", d, wish)


def _check_numbers(c: Settings) -> None:
    expects_whole(pe_start=c.pe_start)
    expects_numbers(eps=c.eps, dropout=c.dropout, rope_base=c.rope_base)
    if c.scale is not None:
        expects_numbers(scale=c.scale)
    expects(0 <= c.eps < math.inf, "eps", c.eps, "a finite number ≥ 0")
    expects(0 <= c.dropout < 1, "dropout", c.dropout, "a probability in [0, 1)")
    fits = c.scale is None or 0 < c.scale < math.inf
    expects(fits, "scale", c.scale, "None or a finite number > 0")


def _check_choices(c: Settings) -> None:
    activations = GATE_ACTIVATIONS if c.gated else ACTIVATIONS
    expects_one_of("activation", c.activation, tuple(activations))
    expects_one_of("norm", c.norm, NORMS)
    variants = VARIANTS if c.norm != "post" else ("sequential",)
    expects_one_of("variant", c.variant, variants)
    expects_one_of("eps_mode", c.eps_mode, EPS_MODES)
    expects_one_of("pe", c.pe, KINDS)
    expects_switches(**{name: getattr(c, name) for name in _SWITCHES})


def _check_family(c: Settings) -> None:
    counts = {name: getattr(c, name) for name in ("n_kv_heads", "n_experts", "window")}
    expects_positive(**{name: got for name, got in counts.items() if got is not None})
    expects_positive(n_experts_used=c.n_experts_used)
    h, g, E = c.n_heads, c.kv_heads, c.n_experts
    expects(h % g == 0, "n_kv_heads", g, f"a divisor of n_heads = {h}")
    expects_one_of("norm_kind", c.norm_kind, NORM_KINDS)
    expects(c.gated or E is None, "gated", c.gated, "True with n_experts")
    expects(E is None or not c.ff_bias, "ff_bias", c.ff_bias, "False with n_experts")
    few = E is None or c.n_experts_used <= E
    expects(few, "n_experts_used", c.n_experts_used, f"at most n_experts = {E}")
    expects(1 < c.rope_base < math.inf, "rope_base", c.rope_base, "a finite number > 1")
    expects_one_of("rope_layout", c.rope_layout, LAYOUTS)
    got, fits = c.rope_scaling, c.rope_scaling is None or isinstance(c.rope_scaling, RopeScaling)
    expects(fits, "rope_scaling", repr(got), "None or a RopeScaling", TypeError)
    k = c.head_width
    even = c.pe != "rotary" or k % 2 == 0
    expects(even, "d_head", k, "an even width: entries turn in pairs")

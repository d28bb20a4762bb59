"""Every choice that makes a model, the sources' choices by name, and how many numbers they come to. Generated from book/transformer_lm.ipynb: edit the notebook, then `make export`."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, TypeVar

from tlm_book.checks import expects, expects_one_of, expects_positive, named
from tlm_book.decoder_block import NORM_KINDS, NORMS, VARIANTS
from tlm_book.feed_forward import ACTIVATIONS, GATE_ACTIVATIONS
from tlm_book.normalization import EPS_MODES
from tlm_book.positional_encoding import KINDS, LAYOUTS, RopeScaling

__all__ = [
    "Settings",
    "Config",
    "count_parameters",
]


# --- Every choice has a name


_S = TypeVar("_S", bound="Settings")


@dataclass(frozen=True)
class Settings:
    """Every choice that makes a transformer language model; the defaults are
    Wojcik's. (W-tlm-params, T-family)

    `eps_mode` is for layer norm (RMS norm has ε inside), `rope_…` for pe="rotary". A
    dict given as `rope_scaling` becomes a `RopeScaling`. ValueError or TypeError for
    a value that describes no model.
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
    final_norm: bool = True  # whether N stands before Φ
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
    n_experts: int | None = None  # E: so many gated layers instead of one
    n_experts_used: int = 2  # of them, for each row
    window: int | None = None  # w: each row sees itself and the w − 1 before it
    qk_norm: bool = False  # RMS norm of the queries and keys of each head
    rope_base: float = 10000.0  # of the angles
    rope_layout: str = "halves"  # which two entries turn together
    rope_scaling: RopeScaling | None = None  # for texts longer than in training

    def __post_init__(self) -> None:
        if isinstance(self.rope_scaling, dict):  # read from a file
            scaling = RopeScaling(**self.rope_scaling)
            object.__setattr__(self, "rope_scaling", scaling)
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


def _is_number(got: object) -> bool:
    return isinstance(got, int | float) and not isinstance(got, bool)


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
    start = c.pe_start
    whole = isinstance(start, int) and not isinstance(start, bool)
    expects(whole, "pe_start", repr(start), "a whole number", TypeError)
    for name in ("eps", "dropout", *(["scale"] if c.scale is not None else [])):
        got = getattr(c, name)
        expects(_is_number(got), name, repr(got), "a number", TypeError)
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
    for name in _SWITCHES:
        got = getattr(c, name)
        expects(isinstance(got, bool), name, repr(got), "True or False", TypeError)


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
    expects(_is_number(c.rope_base), "rope_base", repr(c.rope_base), "a number", TypeError)
    expects(1 < c.rope_base < math.inf, "rope_base", c.rope_base, "a finite number > 1")
    expects_one_of("rope_layout", c.rope_layout, LAYOUTS)
    got, fits = c.rope_scaling, c.rope_scaling is None or isinstance(c.rope_scaling, RopeScaling)
    expects(fits, "rope_scaling", repr(got), "None or a RopeScaling", TypeError)
    k = c.head_width
    even = c.pe != "rotary" or k % 2 == 0
    expects(even, "d_head", k, "an even width: entries turn in pairs")


_SINCE_2020: dict[str, Any] = {  # Llama, and what grew out of it
    "norm_kind": "rms",
    "eps_mode": "inside",
    "pe": "rotary",
    "pe_start": 0,
    "gated": True,
    "ff_bias": False,
    "activation": "silu",
    "out_bias": False,
    "unembed_bias": False,
}


@named
@dataclass(frozen=True)
class Config(Settings):
    """`Settings`, with the models of the sources as presets: Config(V),
    Config.gpt2(), Config.lei_mao(V, n_layers=2), Config.mistral(window=None), …

    Every field, and whose models have which of its values ("since 2020": Llama, Qwen
    2 and 3, Mistral, Mixtral, Gemma):

    vocab_size      V, the number of tokens
    d_model         d, the width of a row
    d_ff            the width inside the feed-forward layer
    n_layers        L, the number of blocks
    n_heads         h, the number of heads; 1 in Lelarge's
    n_kv_heads      g, heads of keys and values; None: h; fewer in Qwen's, Mistral's,
                    Mixtral's, and 1 in Gemma's
    d_head          the width of a head; None: d / h; 2d / h in Qwen 3's
    max_len         M, the longest text
    activation      "gelu" (Becker-Kahn), "gelu_tanh" (GPT-2, Gemma), "silu" (Llama, Qwen 2,
                    Qwen 3, Mistral, Mixtral), "relu" (the others); also "sigmoid" and
                    "identity" where it is gated
    gated           φ(XW_G) ⊙ XW_1 inside: True (since 2020), False (the others)
    ff_bias         biases in that layer: False (since 2020), True (the others)
    n_experts       so many gated layers; None: one layer; 8 in Mixtral's
    n_experts_used  of them, for each row: 2 in Mixtral's
    norm            where a block normalizes: "post" (Agarwal, Lei Mao, Vaswani), "none"
                    (Becker-Kahn), "pre" (the others)
    norm_kind       "rms" (since 2020): the mean stays; "layer" (the others)
    final_norm      N before Φ: True (Wojcik, GPT-2, since 2020), False (the others)
    eps             ε: 10⁻⁶, 10⁻⁵, and 0 in Agarwal's
    eps_mode        σ + ε "outside" (Wojcik, Becker-Kahn), σ "none" (Agarwal), √(σ² + ε)
                    "inside" (the others); Becker-Kahn normalizes nothing
    variant         how a block is wired: "sequential" in all; "parallel", "simplified"
    pe              positions: "learned_from_sinusoid" (Wojcik), "learned" (Becker-Kahn,
                    GPT-2), "none" (Lelarge), "rotary" (since 2020), "sinusoidal"
                    (the others)
    pe_start        position of the first token, for sines: 1 (Wojcik, Lelarge, Agarwal),
                    0 (the others)
    rope_base       of the angles: 10⁴, and 10⁶ in Qwen's and Mixtral's
    rope_layout     which two entries turn together: "halves" in all; "interleaved"
    rope_scaling    a `RopeScaling`, as Llama 3 has; None in all presets
    embed_scale     embeddings times √d: True (Lei Mao, Vaswani, Gemma), False (the others)
    tied            Y is the embedding table, transposed: True (GPT-2, Vaswani, Qwen 2,
                    Qwen 3, Gemma), False (the others)
    unembed_bias    b: True (Wojcik, Lelarge, Agarwal, Lei Mao), False (the others)
    qkv_bias        of queries, keys, values: True (Lelarge, GPT-2, Qwen 2), False
                    (the others)
    out_bias        of W^O: True (Wojcik, GPT-2), False (the others)
    scale           of the scores; None: 1/√d_head; 1 in Becker-Kahn's
    qk_norm         queries and keys normalized: True (Qwen 3), False (the others)
    window          w: a row sees itself and the w − 1 before it; None: all before it;
                    4096 in Mistral's
    dropout         in training mode: 0; 0.1 in Vaswani's
    """

    @classmethod
    def wojcik(cls, vocab_size: int, **changes: Any) -> "Config":
        """The main source, Wojcik 2021: the default values."""
        return cls(vocab_size, **changes)

    @classmethod
    def lelarge(cls, vocab_size: int, **changes: Any) -> "Config":
        """Lelarge: pre-norm, one head with query, key and value biases, ε inside the
        root; no positions, no last normalization.
        """
        settings: dict[str, Any] = {
            "n_heads": 1,
            "qkv_bias": True,
            "out_bias": False,
            "eps": 1e-5,
            "eps_mode": "inside",
            "pe": "none",
            "final_norm": False,
        }
        return cls(vocab_size, **settings | changes)

    @classmethod
    def becker_kahn(cls, vocab_size: int, **changes: Any) -> "Config":
        """Becker-Kahn: no normalization, no score scale, learned positions, no
        biases in attention or unembedding.
        """
        settings: dict[str, Any] = {
            "norm": "none",
            "final_norm": False,
            "scale": 1.0,
            "pe": "learned",
            "pe_start": 0,
            "out_bias": False,
            "unembed_bias": False,
            "activation": "gelu",
        }
        return cls(vocab_size, **settings | changes)

    @classmethod
    def agarwal(cls, vocab_size: int, **changes: Any) -> "Config":
        """Agarwal: post-norm without ε, fixed sinusoids from position 1, no biases
        in attention.
        """
        settings: dict[str, Any] = {
            "norm": "post",
            "final_norm": False,
            "eps": 0.0,
            "eps_mode": "none",
            "pe": "sinusoidal",
            "pe_start": 1,
            "out_bias": False,
        }
        return cls(vocab_size, **settings | changes)

    @classmethod
    def lei_mao(cls, vocab_size: int, **changes: Any) -> "Config":
        """Lei Mao: post-norm, fixed sinusoids from position 0, embeddings scaled by
        √d_model, no biases in attention.
        """
        settings: dict[str, Any] = {
            "norm": "post",
            "final_norm": False,
            "eps": 1e-5,
            "eps_mode": "inside",
            "pe": "sinusoidal",
            "pe_start": 0,
            "out_bias": False,
            "embed_scale": True,
        }
        return cls(vocab_size, **settings | changes)

    @classmethod
    def gpt2(cls, vocab_size: int = 50257, **changes: Any) -> "Config":
        """GPT-2 small: GELU (tanh form), ε inside, learned positions, biases
        everywhere but in a tied unembedding.
        """
        settings: dict[str, Any] = {
            "d_model": 768,
            "d_ff": 3072,
            "n_layers": 12,
            "n_heads": 12,
            "max_len": 1024,
            "activation": "gelu_tanh",
            "eps": 1e-5,
            "eps_mode": "inside",
            "pe": "learned",
            "pe_start": 0,
            "qkv_bias": True,
            "unembed_bias": False,
            "tied": True,
        }
        return cls(vocab_size, **settings | changes)

    @classmethod
    def vaswani(cls, vocab_size: int, **changes: Any) -> "Config":
        """The decoder half of the 2017 model, without cross-attention: post-norm,
        fixed sinusoids from 0, scaled and tied embeddings.
        """
        settings: dict[str, Any] = {
            "norm": "post",
            "final_norm": False,
            "eps": 1e-6,
            "eps_mode": "inside",
            "pe": "sinusoidal",
            "pe_start": 0,
            "out_bias": False,
            "embed_scale": True,
            "tied": True,
            "unembed_bias": False,
            "dropout": 0.1,
        }
        return cls(vocab_size, **settings | changes)

    @classmethod
    def llama(cls, vocab_size: int = 32000, **changes: Any) -> "Config":
        """Llama 2 7B: pre-norm with RMS norm, rotary positions, gated feed-forward
        layers (SwiGLU), no biases.
        """
        settings: dict[str, Any] = {
            "d_model": 4096,
            "d_ff": 11008,
            "n_layers": 32,
            "n_heads": 32,
            "max_len": 4096,
            "eps": 1e-5,
        }
        return cls(vocab_size, **_SINCE_2020 | settings | changes)

    @classmethod
    def qwen2(cls, vocab_size: int = 151936, **changes: Any) -> "Config":
        """Qwen2 0.5B: as Llama, with shared heads, biases of queries, keys and values,
        a larger base of the angles, and a tied unembedding.
        """
        settings: dict[str, Any] = {
            "d_model": 896,
            "d_ff": 4864,
            "n_layers": 24,
            "n_heads": 14,
            "n_kv_heads": 2,
            "max_len": 131072,
            "eps": 1e-6,
            "qkv_bias": True,
            "rope_base": 1e6,
            "tied": True,
        }
        return cls(vocab_size, **_SINCE_2020 | settings | changes)

    @classmethod
    def qwen3(cls, vocab_size: int = 151936, **changes: Any) -> "Config":
        """Qwen3 0.6B: queries and keys are normalized instead of having biases, and
        the heads together are wider than the rows.
        """
        settings: dict[str, Any] = {
            "d_model": 1024,
            "d_ff": 3072,
            "n_layers": 28,
            "n_heads": 16,
            "n_kv_heads": 8,
            "d_head": 128,
            "max_len": 40960,
            "eps": 1e-6,
            "qk_norm": True,
            "rope_base": 1e6,
            "tied": True,
        }
        return cls(vocab_size, **_SINCE_2020 | settings | changes)

    @classmethod
    def mistral(cls, vocab_size: int = 32000, **changes: Any) -> "Config":
        """Mistral 7B v0.1: as Llama, with shared heads and a window of 4,096 rows."""
        settings: dict[str, Any] = {
            "d_model": 4096,
            "d_ff": 14336,
            "n_layers": 32,
            "n_heads": 32,
            "n_kv_heads": 8,
            "max_len": 32768,
            "eps": 1e-5,
            "window": 4096,
        }
        return cls(vocab_size, **_SINCE_2020 | settings | changes)

    @classmethod
    def mixtral(cls, vocab_size: int = 32000, **changes: Any) -> "Config":
        """Mixtral 8x7B: as Mistral, without the window, and with eight experts of which
        each row uses two.
        """
        settings: dict[str, Any] = {
            "d_model": 4096,
            "d_ff": 14336,
            "n_layers": 32,
            "n_heads": 32,
            "n_kv_heads": 8,
            "max_len": 32768,
            "eps": 1e-5,
            "n_experts": 8,
            "n_experts_used": 2,
            "rope_base": 1e6,
        }
        return cls(vocab_size, **_SINCE_2020 | settings | changes)

    @classmethod
    def gemma(cls, vocab_size: int = 256000, **changes: Any) -> "Config":
        """Gemma 2B: one head of keys and values for all, GELU in the gate (GeGLU), and
        embeddings scaled by √d_model and tied.
        """
        settings: dict[str, Any] = {
            "d_model": 2048,
            "d_ff": 16384,
            "n_layers": 18,
            "n_heads": 8,
            "n_kv_heads": 1,
            "d_head": 256,
            "max_len": 8192,
            "eps": 1e-6,
            "activation": "gelu_tanh",
            "embed_scale": True,
            "tied": True,
        }
        return cls(vocab_size, **_SINCE_2020 | settings | changes)


def expects_config(config: Config) -> Config:
    """The config is one of this book; TypeError otherwise."""
    got = type(config).__name__
    expects(isinstance(config, Config), "config", got, "a Config", TypeError)
    return config


# --- How many numbers


def count_parameters(config: Config, active: bool = False) -> int:
    """Numbers that training may change, by formula, without building the model.
    (W-tlm-params, T-family-count)

    For Wojcik's: Vd + Md + L(4d² + 2d·d_ff + d_ff + 6d) + 2d + dV + V. With `active`,
    of the experts only as many as a row uses. TypeError for anything but a Config.

    >>> count_parameters(Config.gpt2())
    124439808
    """
    c = expects_config(config)
    V, d, f, L, M = c.vocab_size, c.d_model, c.d_ff, c.n_layers, c.max_len
    k = c.head_width
    hk, gk = c.n_heads * k, c.kv_heads * k
    norm = d if c.norm_kind == "rms" else 2 * d
    qkv = (d + c.qkv_bias) * (hk + 2 * gk) + 2 * k * c.qk_norm
    attention = qkv + hk * d + d * c.out_bias
    inner = 2 if c.gated else 1  # matrices from d to f
    feed_forward = inner * (d + c.ff_bias) * f + (f + c.ff_bias) * d
    if c.n_experts is not None:
        used = c.n_experts_used if active else c.n_experts
        feed_forward = used * feed_forward + d * c.n_experts
    positions = M * d * (c.pe in ("learned", "learned_from_sinusoid"))
    unembedding = d * V * (not c.tied) + V * c.unembed_bias
    return (
        V * d
        + positions
        + L * (attention + feed_forward + 2 * norm * (c.norm != "none"))
        + norm * c.final_norm
        + unembedding
    )

"""The transformer language model. Generated from book/transformer_lm.ipynb: edit the notebook, then `make export`."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tlm_book.arrays import as_float64
from tlm_book.checks import (
    expects,
    expects_length,
    expects_one_of,
    expects_positive,
    expects_shape,
)
from tlm_book.decoder_block import NORMS, VARIANTS, DecoderBlock
from tlm_book.derivation import Derivation, compose, derive, register_rule
from tlm_book.embedding import Embedding
from tlm_book.feed_forward import ACTIVATIONS
from tlm_book.normalization import EPS_MODES, Normalization
from tlm_book.positional_encoding import KINDS, PositionalEncoding

__all__ = [
    "TransformerLM",
    "Settings",
    "Config",
    "count_parameters",
]


# --- The model


_OF_BLOCKS = "d_head activation norm variant eps eps_mode qkv_bias out_bias scale dropout"


class TransformerLM(nn.Module):
    """T_LM = Φ ∘ N ∘ DB_L ∘ … ∘ DB_1 ∘ PE ∘ Em: tokens (*batch, n) to scores
    (*batch, n, vocab_size). (W-tlm-def)

    TypeError for tokens that are no integer tensor, IndexError for a token outside
    the vocabulary (on the CPU; on a GPU the check would wait for the device),
    ValueError for n outside 1 … max_len.

    >>> TransformerLM(Config(5, d_model=4, d_ff=8, n_layers=2, n_heads=2))(torch.tensor([3, 1, 4])).shape
    torch.Size([3, 5])
    """

    def __init__(self, config: "Config") -> None:
        super().__init__()
        c = self.config = _expects_config(config)
        options = {name: getattr(c, name) for name in _OF_BLOCKS.split()}
        scale = math.sqrt(c.d_model) if c.embed_scale else 1.0
        self.embedding = Embedding(c.vocab_size, c.d_model, scale)
        self.position = PositionalEncoding(c.max_len, c.d_model, c.pe, c.pe_start)
        self.dropout = nn.Dropout(c.dropout)
        self.blocks: Any = nn.ModuleList(
            DecoderBlock(c.d_model, c.n_heads, c.d_ff, **options)
            for _ in range(c.n_layers)
        )
        self.norm: Any = nn.Identity()
        if c.final_norm:
            self.norm = Normalization(c.d_model, c.eps, c.eps_mode)
        # Φ
        self.unembedding = nn.Linear(c.d_model, c.vocab_size, bias=c.unembed_bias)
        if c.tied:
            self.unembedding.weight = self.embedding.table.weight
        self.initialize()

    def forward(
        self, tokens: Int[Tensor, "*batch n"]
    ) -> Float[Tensor, "*batch n V"]:
        x = self._first(tokens)
        for block in self.blocks:
            x = block(x)
        return self.unembedding(self.norm(x))

    def _first(self, tokens: Int[Tensor, "*batch n"]) -> Float[Tensor, "*batch n d"]:
        got, wish = type(tokens).__name__, "a tensor of integers"
        expects(isinstance(tokens, Tensor), "tokens", got, wish, TypeError)
        expects_shape("tokens", tokens, ("n",))
        expects_length("tokens", tokens.shape[-1], self.config.max_len)
        return self.dropout(self.position(self.embedding(tokens)))

    def residual_stream(
        self, tokens: Int[Tensor, "*batch n"]
    ) -> list[Float[Tensor, "*batch n d"]]:
        """What each block reads, in order, and last what the final normalization
        reads: L + 1 tensors.
        """
        streams = [self._first(tokens)]
        for block in self.blocks:
            streams.append(block(streams[-1]))
        return streams

    @torch.no_grad()
    def attention_weights(
        self, tokens: Int[Tensor, "*batch n"]
    ) -> Float[Tensor, "L *batch h n n"]:
        """The attention weights of every head in every block for these tokens."""
        return torch.stack(
            [block.attention_weights(x) for block, x in zip(self.blocks, self.residual_stream(tokens))]
        )

    @torch.no_grad()
    def initialize(self) -> None:
        """Normal weights of standard deviation 0.02, zero biases; layers that write
        to the stream are 1/√(2L) smaller.
        """
        if not self.embedding.table.weight.is_meta:  # no numbers to draw
            _initialize(self)

    def spec_weights(self) -> dict[str, object]:
        """The weights, as float64 arrays, for `spec.transformer_lm.transformer_lm`;
        see also `spec_settings`.
        """
        return _spec_weights(self)

    def spec_settings(self) -> dict[str, object]:
        """The settings that the specification needs beside the weights."""
        return {
            name: getattr(self.config, name)
            for name in ("activation", "norm", "variant", "eps", "eps_mode", "scale")
        }


# --- Every choice has a name


_S = TypeVar("_S", bound="Settings")


@dataclass(frozen=True)
class Settings:
    """Every choice that makes a transformer language model; the defaults are
    Wojcik's. (W-tlm-params)

    ValueError or TypeError for a value that describes no model.
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

    def __post_init__(self) -> None:
        _check_sizes(self)
        _check_numbers(self)
        _check_choices(self)

    @property
    def head_width(self) -> int:
        """The width of the rows of one head: d_head, or d_model / n_heads."""
        return self.d_head or self.d_model // self.n_heads

    def replace(self: _S, **changes: Any) -> _S:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)


_SIZES = ("vocab_size", "d_model", "d_ff", "n_layers", "n_heads", "max_len")
_SWITCHES = ("final_norm", "embed_scale", "qkv_bias", "out_bias", "unembed_bias", "tied")


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
    expects_one_of("activation", c.activation, tuple(ACTIVATIONS))
    expects_one_of("norm", c.norm, NORMS)
    variants = VARIANTS if c.norm != "post" else ("sequential",)
    expects_one_of("variant", c.variant, variants)
    expects_one_of("eps_mode", c.eps_mode, EPS_MODES)
    expects_one_of("pe", c.pe, KINDS)
    for name in _SWITCHES:
        got = getattr(c, name)
        expects(isinstance(got, bool), name, repr(got), "True or False", TypeError)


@dataclass(frozen=True)
class Config(Settings):
    """`Settings`, with the models of the sources as presets: Config(V),
    Config.gpt2(), Config.lei_mao(V, n_layers=2), …
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


def _expects_config(config: Config) -> Config:
    got = type(config).__name__
    expects(isinstance(config, Config), "config", got, "a Config", TypeError)
    return config


# --- The model in torch


def _initialize(model: TransformerLM) -> None:
    c, std = model.config, 0.02
    nn.init.normal_(
        model.embedding.table.weight,
        std=1 / math.sqrt(c.d_model) if c.embed_scale else std,
    )
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Linear):
            # its result is added to the stream
            writes = name.endswith(("attention.out", "feed_forward.down"))
            if layer.weight is not model.embedding.table.weight:
                nn.init.normal_(
                    layer.weight,
                    std=std / math.sqrt(2 * c.n_layers) if writes else std,
                )
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def _spec_weights(model: TransformerLM) -> dict[str, object]:
    c, Phi = model.config, model.unembedding
    return {
        **model.embedding.spec_weights(),
        "P": None if c.pe == "none" else model.position.spec_weights()["P"],
        "blocks": [block.spec_weights() for block in model.blocks],
        "N": model.norm.spec_weights() if c.final_norm else None,
        "Y": as_float64(Phi.weight.T),
        "b": np.zeros(c.vocab_size)
        if Phi.bias is None
        else as_float64(Phi.bias),
    }


# --- It never looks ahead


@register_rule(TransformerLM)
def _transformer_lm(module: TransformerLM) -> Derivation:
    layers = [
        module.embedding,
        module.position,
        module.dropout,
        *module.blocks,
        module.norm,
        module.unembedding,
    ]
    if type(module.dropout) is nn.Dropout and module.dropout.p == 0:
        layers.remove(module.dropout)  # it does nothing: not in the tree
    return compose("T_LM", *(derive(layer) for layer in layers))


# --- How many numbers


def count_parameters(config: Config) -> int:
    """Numbers that training may change, by formula, without building the model.
    (W-tlm-params)

    For Wojcik's: Vd + Md + L(4d² + 2d·d_ff + d_ff + 6d) + 2d + dV + V. TypeError
    for anything but a Config.

    >>> count_parameters(Config.gpt2())
    124439808
    """
    c = _expects_config(config)
    V, d, f, L, M = c.vocab_size, c.d_model, c.d_ff, c.n_layers, c.max_len
    hk = c.n_heads * c.head_width
    norm = 2 * d * (c.norm != "none")
    attention = 3 * d * hk + 3 * hk * c.qkv_bias + hk * d + d * c.out_bias
    feed_forward = d * f + f + f * d + d
    positions = M * d * (c.pe in ("learned", "learned_from_sinusoid"))
    unembedding = d * V * (not c.tied) + V * c.unembed_bias
    return (
        V * d
        + positions
        + L * (attention + feed_forward + 2 * norm)
        + 2 * d * c.final_norm
        + unembedding
    )

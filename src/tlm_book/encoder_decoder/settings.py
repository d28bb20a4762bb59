"""Every choice that makes an encoder–decoder. Generated from book/encoder_decoder.ipynb: edit the notebook, then `make export`."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from tlm_book.checks import (
    expects,
    expects_one_of,
    expects_positive,
    expects_switches,
    with_suggestions,
)
from tlm_book.transformer_lm import Config, Settings

__all__ = [
    "EncoderDecoderConfig",
]


# --- The model in torch


_OF_DECODERS = "n_kv_heads norm_kind gated ff_bias n_experts n_experts_used window"
_OF_DECODERS += " qk_norm rope_base rope_layout rope_scaling"


@with_suggestions
@dataclass(frozen=True)
class EncoderDecoderConfig(Settings):
    """Every choice that makes an encoder–decoder; the defaults give the model of 2017
    in Lei Mao's form. (M-sizes)

    vocab_size         tokens of the target
    source_vocab_size  those of the source; None, in all presets: one vocabulary and one
                       table for both
    n_layers           blocks in each half
    d_value            d_v, the width of the values; None, in all presets: d_head
    norm, final_norm   "post", False (Lei Mao, Agarwal, Vaswani); "pre", True (pre_norm)
    eps, eps_mode      10⁻⁵, "inside" (Lei Mao, pre_norm); 10⁻⁶, "inside" (Vaswani);
                       0, "none" (Agarwal); "outside" as Wojcik has it
    pe, pe_start       "sinusoidal" in all, from 0, and from 1 in Agarwal's; or "learned",
                       "learned_from_sinusoid", "none"
    pe_halves          True: all sines, then all cosines (Marian's files); False: by turns
    embed_scale        embeddings times √d: True in all but Agarwal's
    tied               U is the target's table, transposed: True in Vaswani's
    unembed_bias       u: False in Vaswani's
    out_bias           of W^O: False in all presets
    dropout            0; 0.1 in Vaswani's

    `d_model`, `d_ff`, `n_heads`, `d_head`, `max_len`, `activation`, `qkv_bias` and
    `scale` are those of `Config`; its other fields keep their defaults, since they are
    for decoders alone. ValueError or TypeError for values that describe no model.
    """

    norm: str = "post"  # or "pre"
    final_norm: bool = False
    eps: float = 1e-5
    eps_mode: str = "inside"
    pe: str = "sinusoidal"
    pe_start: int = 0
    embed_scale: bool = True
    out_bias: bool = False
    source_vocab_size: int | None = None
    d_value: int | None = None  # None: as wide as the keys, d_head
    pe_halves: bool = False  # True: all sines first, then all cosines

    def __post_init__(self) -> None:
        super().__post_init__()
        expects_one_of("norm", self.norm, ("post", "pre"))
        expects_one_of("variant", self.variant, ("sequential",))
        expects(self.pe != "rotary", "pe", repr(self.pe), "positions that are added")
        for name in _OF_DECODERS.split():
            got, only = getattr(self, name), getattr(Settings, name)
            expects(got == only, name, got, f"{only}: others are for decoders alone")
        sizes = {name: getattr(self, name) for name in ("source_vocab_size", "d_value")}
        expects_positive(**{name: n for name, n in sizes.items() if n is not None})
        expects_switches(pe_halves=self.pe_halves)
        fits = not self.pe_halves or self.pe == "sinusoidal"
        expects(fits, "pe_halves", self.pe_halves, f"False with pe = {self.pe!r}")

    @classmethod
    def lei_mao(cls, vocab_size: int, **changes: Any) -> "EncoderDecoderConfig":
        """Lei Mao: the default values."""
        return cls(vocab_size, **changes)

    @classmethod
    def pre_norm(cls, vocab_size: int, **changes: Any) -> "EncoderDecoderConfig":
        """Today's form: pre-norm, and one more normalization after each stack."""
        settings: dict[str, Any] = {"norm": "pre", "final_norm": True}
        return cls(vocab_size, **settings | changes)

    @classmethod
    def agarwal(cls, vocab_size: int, **changes: Any) -> "EncoderDecoderConfig":
        """Agarwal: no ε, positions from 1."""
        return cls(**dataclasses.asdict(Config.agarwal(vocab_size)) | changes)

    @classmethod
    def vaswani(cls, vocab_size: int, **changes: Any) -> "EncoderDecoderConfig":
        """The paper of 2017: tied embeddings, dropout 0.1."""
        return cls(**dataclasses.asdict(Config.vaswani(vocab_size)) | changes)

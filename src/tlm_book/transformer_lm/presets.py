"""The sources' choices by name. Generated from book/transformer_lm.ipynb: edit the notebook, then `make export`."""

from dataclasses import dataclass
from typing import Any

from tlm_book.checks import expects_kind, with_suggestions
from tlm_book.transformer_lm.settings import Settings

__all__ = [
    "Config",
]


# --- Every choice has a name


_SINCE_LLAMA: dict[str, Any] = {  # Llama and its successors
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


@with_suggestions
@dataclass(frozen=True)
class Config(Settings):
    """`Settings`, with the models of the sources as presets: Config(V),
    Config.gpt2(), Config.lei_mao(V, n_layers=2), Config.mistral(window=None), …

    Every field, and which models have which of its values ("since Llama": Llama, Qwen
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
    gated           φ(XW_G) ⊙ XW_1 inside: True (since Llama), False (the others)
    ff_bias         biases in that layer: False (since Llama), True (the others)
    n_experts       E, the number of gated layers; None: one layer; 8 in Mixtral's
    n_experts_used  how many of them each row uses: 2 in Mixtral's
    norm            where a block normalizes: "post" (Agarwal, Lei Mao, Vaswani), "none"
                    (Becker-Kahn), "pre" (the others)
    norm_kind       "rms" (since Llama): no mean is subtracted; "layer" (the others)
    final_norm      N before Φ: True (Wojcik, GPT-2, since Llama), False (the others)
    eps             ε: 10⁻⁶, 10⁻⁵, and 0 in Agarwal's
    eps_mode        σ + ε "outside" (Wojcik, Becker-Kahn), σ "none" (Agarwal), √(σ² + ε)
                    "inside" (the others); Becker-Kahn normalizes nothing
    variant         how a block is wired: "sequential" in all; "parallel", "simplified"
    pe              positions: "learned_from_sinusoid" (Wojcik), "learned" (Becker-Kahn,
                    GPT-2), "none" (Lelarge), "rotary" (since Llama), "sinusoidal"
                    (the others)
    pe_start        position of the first token, for sines: 1 (Wojcik, Lelarge, Agarwal),
                    0 (the others)
    rope_base       the base of the angles: 10⁴, and 10⁶ in Qwen's and Mixtral's
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
        root; no positions, no final normalization.
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
        return cls(vocab_size, **_SINCE_LLAMA | settings | changes)

    @classmethod
    def qwen2(cls, vocab_size: int = 151936, **changes: Any) -> "Config":
        """Qwen2 0.5B: like Llama, with shared heads, biases in queries, keys and
        values, a larger base of the angles, and a tied unembedding.
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
        return cls(vocab_size, **_SINCE_LLAMA | settings | changes)

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
        return cls(vocab_size, **_SINCE_LLAMA | settings | changes)

    @classmethod
    def mistral(cls, vocab_size: int = 32000, **changes: Any) -> "Config":
        """Mistral 7B v0.1: like Llama, with shared heads and a window of 4,096 rows."""
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
        return cls(vocab_size, **_SINCE_LLAMA | settings | changes)

    @classmethod
    def mixtral(cls, vocab_size: int = 32000, **changes: Any) -> "Config":
        """Mixtral 8x7B: like Mistral, without the window, and with eight experts, of
        which each row uses two.
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
        return cls(vocab_size, **_SINCE_LLAMA | settings | changes)

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
        return cls(vocab_size, **_SINCE_LLAMA | settings | changes)


def expects_config(config: Config) -> Config:
    """The config; TypeError unless it is a Config of this book."""
    expects_kind("config", config, Config, "a Config")
    return config

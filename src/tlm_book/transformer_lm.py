import dataclasses
import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tlm_book.checks import expects, expects_length, expects_one_of, expects_positive
from tlm_book.decoder_block import NORMS, VARIANTS, DecoderBlock
from tlm_book.embedding import Embedding
from tlm_book.feed_forward import ACTIVATIONS
from tlm_book.normalization import EPS_MODES, Normalization
from tlm_book.operators import Derivation, compose, derive, derives
from tlm_book.positional_encoding import KINDS, PositionalEncoding


@dataclass(frozen=True)
class Config:
    """Every choice that makes a transformer language model; the defaults are the article's. (W-tlm-params)

    Chapter: transformer_lm.
    """

    vocab_size: int
    d_model: int = 512
    d_ff: int = 2048
    n_layers: int = 6
    n_heads: int = 8
    max_len: int = 2048
    d_head: int | None = None  # None: d_model / n_heads
    activation: str = "relu"
    norm: str = "pre"
    final_norm: bool = True
    variant: str = "sequential"
    eps: float = 1e-6
    eps_mode: str = "outside"
    pe: str = "learned_from_sinusoid"
    pe_start: int = 1
    embed_scale: bool = False  # True: multiply embeddings by √d_model
    qkv_bias: bool = False
    out_bias: bool = True
    unembed_bias: bool = True
    tied: bool = False  # True: Y is the embedding table, transposed
    scale: float | None = None  # None: 1/√d_head
    dropout: float = 0.0

    def __post_init__(self) -> None:
        expects_positive(
            vocab_size=self.vocab_size, d_model=self.d_model, d_ff=self.d_ff,
            n_layers=self.n_layers, n_heads=self.n_heads, max_len=self.max_len,
        )
        if self.d_head is None:
            expects(self.d_model % self.n_heads == 0, "n_heads", self.n_heads, f"a divisor of d_model = {self.d_model}")
        expects_one_of("activation", self.activation, tuple(ACTIVATIONS))
        expects_one_of("norm", self.norm, NORMS)
        expects_one_of("variant", self.variant, VARIANTS)
        expects_one_of("eps_mode", self.eps_mode, EPS_MODES)
        expects_one_of("pe", self.pe, KINDS)
        expects(0 <= self.dropout < 1, "dropout", self.dropout, "a probability in [0, 1)")

    def replace(self, **changes: object) -> "Config":
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    @classmethod
    def wojcik(cls, vocab_size: int, **changes: object) -> "Config":
        """The main source, Wojcik 2021: the default values."""
        return cls(vocab_size, **changes)

    @classmethod
    def lelarge(cls, vocab_size: int, **changes: object) -> "Config":
        """Lelarge: query, key and value biases, no output matrix bias, ε inside the root, no positions of its own."""
        return cls(vocab_size, **{"eps": 1e-5, "eps_mode": "inside", "qkv_bias": True, "pe": "none"} | changes)

    @classmethod
    def becker_kahn(cls, vocab_size: int, **changes: object) -> "Config":
        """Becker-Kahn: no normalization, no score scale, learned positions, no biases in attention or unembedding."""
        settings = {
            "norm": "none", "final_norm": False, "scale": 1.0, "pe": "learned", "pe_start": 0,
            "qkv_bias": False, "out_bias": False, "unembed_bias": False, "activation": "gelu",
        }
        return cls(vocab_size, **settings | changes)

    @classmethod
    def agarwal(cls, vocab_size: int, **changes: object) -> "Config":
        """Agarwal: post-norm without ε, fixed sinusoids from position 1, no biases in attention."""
        settings = {
            "norm": "post", "final_norm": False, "eps_mode": "none", "eps": 0.0, "pe": "sinusoidal", "pe_start": 1,
            "out_bias": False, "embed_scale": True,
        }
        return cls(vocab_size, **settings | changes)

    @classmethod
    def lei_mao(cls, vocab_size: int, **changes: object) -> "Config":
        """Lei Mao: post-norm, fixed sinusoids from position 0, embeddings scaled by √d_model, no biases in attention."""
        settings = {
            "norm": "post", "final_norm": False, "eps_mode": "inside", "eps": 1e-5, "pe": "sinusoidal", "pe_start": 0,
            "out_bias": False, "embed_scale": True,
        }
        return cls(vocab_size, **settings | changes)

    @classmethod
    def gpt2(cls, vocab_size: int = 50257, **changes: object) -> "Config":
        """GPT-2 small: GELU (tanh form), ε inside, learned positions, biases everywhere but in a tied unembedding."""
        settings = {
            "d_model": 768, "d_ff": 3072, "n_layers": 12, "n_heads": 12, "max_len": 1024, "activation": "gelu_tanh",
            "eps": 1e-5, "eps_mode": "inside", "pe": "learned", "pe_start": 0, "qkv_bias": True, "unembed_bias": False, "tied": True,
        }
        return cls(vocab_size, **settings | changes)

    @classmethod
    def vaswani(cls, vocab_size: int, **changes: object) -> "Config":
        """The decoder half of the 2017 model, without cross-attention: post-norm, fixed sinusoids from 0, scaled and tied embeddings."""
        settings = {
            "norm": "post", "final_norm": False, "eps": 1e-6, "eps_mode": "inside", "pe": "sinusoidal", "pe_start": 0,
            "out_bias": False, "embed_scale": True, "tied": True, "unembed_bias": False, "dropout": 0.1,
        }
        return cls(vocab_size, **settings | changes)


class TransformerLM(nn.Module):
    """T_LM = Φ ∘ N ∘ DB_L ∘ … ∘ DB_1 ∘ PE ∘ Em: token ids (*batch, n) to scores (*batch, n, vocab_size). (W-tlm-def)

    Errors: IndexError for a token outside the vocabulary, TypeError for tokens that are not integers, ValueError for n outside 1 … max_len.

    Chapter: transformer_lm.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        c = self.config = config
        self.embedding = Embedding(c.vocab_size, c.d_model, math.sqrt(c.d_model) if c.embed_scale else 1.0)
        self.position = PositionalEncoding(c.max_len, c.d_model, c.pe, c.pe_start)
        self.dropout = nn.Dropout(c.dropout)
        self.blocks = nn.ModuleList(
            DecoderBlock(
                c.d_model, c.n_heads, c.d_ff, d_head=c.d_head, activation=c.activation, norm=c.norm, variant=c.variant,
                eps=c.eps, eps_mode=c.eps_mode, qkv_bias=c.qkv_bias, out_bias=c.out_bias, scale=c.scale, dropout=c.dropout,
            )
            for _ in range(c.n_layers)
        )
        self.norm = Normalization(c.d_model, c.eps, c.eps_mode) if c.final_norm else nn.Identity()
        self.unembedding = nn.Linear(c.d_model, c.vocab_size, bias=c.unembed_bias)  # Φ
        if c.tied:
            self.unembedding.weight = self.embedding.table.weight
        self.initialize()

    @torch.no_grad()
    def initialize(self) -> None:
        """Normal weights of standard deviation 0.02, zero biases; layers that write to the stream are 1/√(2L) smaller."""
        std = 0.02
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                writes = name.endswith(("attention.out", "feed_forward.down"))
                nn.init.normal_(module.weight, std=std / math.sqrt(2 * self.config.n_layers) if writes else std)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=1 / math.sqrt(self.config.d_model) if self.config.embed_scale else std)

    def stream(self, tokens: Int[Tensor, "*batch n"]) -> list[Float[Tensor, "*batch n d"]]:
        """What each block reads, in order, and last what the final normalization reads: L + 1 tensors."""
        expects_length("tokens", tokens.shape[-1], self.config.max_len)
        streams = [self.dropout(self.position(self.embedding(tokens)))]
        for block in self.blocks:
            streams.append(block(streams[-1]))
        return streams

    def forward(self, tokens: Int[Tensor, "*batch n"]) -> Float[Tensor, "*batch n V"]:
        expects_length("tokens", tokens.shape[-1], self.config.max_len)
        x = self.dropout(self.position(self.embedding(tokens)))
        for block in self.blocks:
            x = block(x)
        return self.unembedding(self.norm(x))

    @torch.no_grad()
    def patterns(self, tokens: Int[Tensor, "*batch n"]) -> Float[Tensor, "L *batch h n n"]:
        """The attention weights of every head in every block for these tokens."""
        return torch.stack([block.pattern(x) for block, x in zip(self.blocks, self.stream(tokens))])

    def spec_weights(self) -> dict[str, object]:
        """Arguments for `spec.transformer_lm.transformer_lm`, as float64 arrays; see also `spec_settings`."""
        c = self.config
        bias = self.unembedding.bias
        return {
            **self.embedding.spec_weights(),
            "P": None if c.pe == "none" else self.position.spec_weights()["P"],
            "blocks": [block.spec_weights() for block in self.blocks],
            "N": self.norm.spec_weights() if c.final_norm else None,
            "Y": self.unembedding.weight.T.detach().double().cpu().numpy(),
            "b": np.zeros(c.vocab_size) if bias is None else bias.detach().double().cpu().numpy(),
        }

    def spec_settings(self) -> dict[str, object]:
        """The settings that the specification needs beside the weights."""
        return {name: getattr(self.config, name) for name in ("activation", "norm", "variant", "eps", "eps_mode", "scale")}


@derives(TransformerLM)
def _transformer_lm(module: TransformerLM) -> Derivation:
    blocks = [derive(block) for block in module.blocks]
    layers = (derive(module.embedding), derive(module.position), derive(module.dropout), *blocks, derive(module.norm), derive(module.unembedding))
    return compose("T_LM", *layers)


def count_parameters(config: Config) -> int:
    """Numbers that training may change, by formula, without building the model. (W-tlm-params)

    For the article: Vd + Md + L(4d² + 2d·d_ff + d_ff + 6d) + 2d + dV + V.

    Chapter: transformer_lm.
    """
    c = config
    V, d, f, L, M = c.vocab_size, c.d_model, c.d_ff, c.n_layers, c.max_len
    hk = c.n_heads * (c.d_head or d // c.n_heads)
    norm = 2 * d * (c.norm != "none")
    attention = 3 * d * hk + 3 * hk * c.qkv_bias + hk * d + d * c.out_bias
    feed_forward = d * f + f + f * d + d
    positions = M * d * (c.pe in ("learned", "learned_from_sinusoid"))
    unembedding = d * V * (not c.tied) + V * c.unembed_bias
    return V * d + positions + L * (attention + feed_forward + 2 * norm) + 2 * d * c.final_norm + unembedding

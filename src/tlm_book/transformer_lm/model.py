"""The model in torch, its initial weights, and the proof that it never looks ahead. Generated from book/transformer_lm.ipynb: edit the notebook, then `make export`."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tlm_book.arrays import as_float64
from tlm_book.checks import expects, expects_kind, expects_length, expects_shape
from tlm_book.decoder_block import DecoderBlock
from tlm_book.derivation import Derivation, compose, derive, register_rule
from tlm_book.embedding import Embedding
from tlm_book.feed_forward import MixtureOfExperts
from tlm_book.inside import Hook, run_with_cache, run_with_hooks
from tlm_book.modes import evaluating
from tlm_book.multi_head import MultiHeadAttention
from tlm_book.normalization import Normalization, RMSNorm
from tlm_book.positional_encoding import PositionalEncoding, Rotary
from tlm_book.transformer_lm.presets import Config, expects_config

__all__ = [
    "TransformerLM",
]


# --- The model


_OF_BLOCKS = "d_head activation norm variant eps eps_mode qkv_bias out_bias scale dropout"
_OF_BLOCKS += " n_kv_heads norm_kind gated ff_bias n_experts n_experts_used window qk_norm"


class TransformerLM(nn.Module):
    """T_LM = Φ ∘ N ∘ DB_{L−1} ∘ … ∘ DB_0 ∘ PE ∘ Em: tokens (*batch, n) to scores
    (*batch, n, vocab_size). (W-tlm-def)

    TypeError for anything but a tensor of integers, IndexError for a token outside
    the vocabulary (on the CPU; on a GPU the check would wait for the device),
    ValueError for n outside 1 … max_len.

    >>> TransformerLM(Config(5, d_model=4, d_ff=8, n_layers=2, n_heads=2))(torch.tensor([3, 1, 4])).shape
    torch.Size([3, 5])
    """

    def __init__(self, config: "Config") -> None:
        super().__init__()
        c = self.config = expects_config(config)
        options = {name: getattr(c, name) for name in _OF_BLOCKS.split()}
        scale = math.sqrt(c.d_model) if c.embed_scale else 1.0
        self.embedding = Embedding(c.vocab_size, c.d_model, scale)
        self.position = PositionalEncoding(c.max_len, c.d_model, c.pe, c.pe_start)
        rotary = _rotary(c)  # one for all blocks
        self.dropout = nn.Dropout(c.dropout)
        self.blocks: Any = nn.ModuleList(
            DecoderBlock(c.d_model, c.n_heads, c.d_ff, **options, rotary=rotary)
            for _ in range(c.n_layers)
        )
        self.norm: Any = nn.Identity()
        if c.final_norm:
            self.norm = _norm(c)
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
        expects_kind("tokens", tokens, Tensor, "a tensor of integers")
        expects_shape("tokens", tokens, ("n",))
        expects_length("tokens", tokens.shape[-1], self.config.max_len)
        return _in_autocast(self.dropout(self.position(self.embedding(tokens))))

    def residual_stream(
        self, tokens: Int[Tensor, "*batch n"]
    ) -> list[Float[Tensor, "*batch n d"]]:
        """What each block reads, in order, and last, what the final normalization
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
        """The attention weights of every head in every block for these tokens, without
        dropout."""
        with evaluating(self):
            L = len(self.blocks)
            names = [f"blocks.{l}.attention.weights" for l in range(L)]
            found = self.run_with_cache(tokens, names)[1]
        return torch.stack(list(found.values()))

    def run_with_cache(
        self,
        tokens: Int[Tensor, "*batch n"],
        names: str | Iterable[str] | None = None,
        hooks: Mapping[str, Hook] | None = None,
    ) -> tuple[Float[Tensor, "*batch n V"], dict[str, Float[Tensor, "..."]]]:
        """(logits, cache): the scores, and every intermediate result by name, or only
        those in `names`; `hooks` replace results. See `inside.run_with_cache`.
        """
        return run_with_cache(self, tokens, names, hooks)

    def run_with_hooks(
        self, tokens: Int[Tensor, "*batch n"], hooks: Mapping[str, Hook]
    ) -> Float[Tensor, "*batch n V"]:
        """The scores of a run in which `hooks`, {name: f}, replace each named result by
        f(result). See `inside.run_with_cache`.
        """
        return run_with_hooks(self, tokens, hooks)

    @torch.no_grad()
    def initialize(self) -> None:
        """Draw all matrices but a table of positions, normal with standard deviation
        0.02, or 0.02/√(2L) in layers that write to the stream (1/√d in an embedding
        that is scaled); biases of linear layers are set to 0.
        """
        if not self.embedding.table.weight.is_meta:  # meta tensors hold no numbers
            _initialize(self)

    def spec_weights(self) -> dict[str, object]:
        """The weights, as float64 arrays, for `spec.transformer_lm.transformer_lm`;
        see also `spec_settings`.
        """
        return _spec_weights(self)

    def spec_settings(self) -> dict[str, object]:
        """The settings that the specification needs besides the weights."""
        return _spec_settings(self)


# --- The model in torch


def _norm(c: "Config") -> nn.Module:
    if c.norm_kind == "rms":
        return RMSNorm(c.d_model, c.eps)
    return Normalization(c.d_model, c.eps, c.eps_mode)


def _in_autocast(x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
    """x; under autocast to bfloat16 in that type, so that all sums of the stream are.
    (float16 could overflow.)
    """
    kind = x.device.type
    on = kind != "meta" and torch.is_autocast_enabled(kind)  # meta tensors know none
    half = on and torch.get_autocast_dtype(kind) == torch.bfloat16
    return x.bfloat16() if half and x.dtype == torch.float32 else x


def _rotary(c: "Config") -> Rotary | None:
    if c.pe != "rotary":
        return None
    return Rotary(c.head_width, c.max_len, c.rope_base, c.rope_layout, c.rope_scaling)


def _initialize(model: TransformerLM) -> None:
    c, std = model.config, 0.02
    small = std / math.sqrt(2 * c.n_layers)
    nn.init.normal_(
        model.embedding.table.weight,
        std=1 / math.sqrt(c.d_model) if c.embed_scale else std,
    )
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Linear):
            # its result is added to the stream
            writes = name.endswith(("attention.out", "feed_forward.down"))
            if layer.weight is not model.embedding.table.weight:
                nn.init.normal_(layer.weight, std=small if writes else std)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        elif isinstance(layer, MixtureOfExperts):
            nn.init.normal_(layer.gate, std=std)
            nn.init.normal_(layer.up, std=std)
            nn.init.normal_(layer.down, std=small)


def _expects_attention(model: TransformerLM) -> None:
    wants = "the book's MultiHeadAttention, which the specification knows"
    for block in model.blocks:
        right = isinstance(block.attention, MultiHeadAttention)
        got = f"a layer {type(block.attention).__name__}"
        expects(right, "model", got, wants, TypeError)


def _spec_weights(model: TransformerLM) -> dict[str, object]:
    _expects_attention(model)
    c, Phi = model.config, model.unembedding
    return {
        **model.embedding.spec_weights(),
        "P": None if c.pe in ("none", "rotary") else model.position.spec_weights()["P"],
        "blocks": [block.spec_weights() for block in model.blocks],
        "N": model.norm.spec_weights() if c.final_norm else None,
        "Y": as_float64(Phi.weight.T),
        "b": np.zeros(c.vocab_size)
        if Phi.bias is None
        else as_float64(Phi.bias),
    }


def _spec_settings(model: TransformerLM) -> dict[str, object]:
    _expects_attention(model)
    c, rotary = model.config, model.blocks[0].attention.rotary
    same = "activation norm variant eps eps_mode scale norm_kind n_experts_used window"
    return {
        **{name: getattr(c, name) for name in same.split()},
        "feed_forward": "experts" if c.n_experts else "gated" if c.gated else "plain",
        "rotary": None if rotary is None else rotary.spec_settings(),
    }


# --- The theorem, retraced and tried


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
        layers.remove(module.dropout)  # it does nothing, so it is not in the tree
    return compose("T_LM", *(derive(layer) for layer in layers))

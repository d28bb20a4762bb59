"""The encoder–decoder in torch, and the proof that its target never looks ahead. Generated from book/encoder_decoder.ipynb: edit the notebook, then `make export`."""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from tlm_book.arrays import as_float64
from tlm_book.checks import (
    expects,
    expects_kind,
    expects_length,
    expects_mask,
    expects_shape,
)
from tlm_book.derivation import (
    Derivation,
    Kind,
    compose,
    concat,
    derive,
    pattern,
    primitive,
    product,
    register_rule,
    residual,
)
from tlm_book.embedding import Embedding
from tlm_book.encoder_decoder.settings import EncoderDecoderConfig
from tlm_book.feed_forward import FeedForward
from tlm_book.modes import evaluating
from tlm_book.multi_head import CrossAttention
from tlm_book.normalization import Normalization
from tlm_book.positional_encoding import PositionalEncoding

__all__ = [
    "EncoderBlock",
    "KeysValues",
    "CrossBlock",
    "State",
    "EncoderDecoder",
]


# --- The model in torch


class _Block(nn.Module):
    """What both blocks have in common: self-attention, the feed-forward layer, and
    where to normalize."""

    def __init__(self, c: EncoderDecoderConfig) -> None:
        super().__init__()
        self.pre = c.norm == "pre"
        self.self_attention = self._attention(c)
        self.norm_self = Normalization(c.d_model, c.eps, c.eps_mode)
        self.feed_forward = FeedForward(c.d_model, c.d_ff, c.activation)
        self.norm_feed_forward = Normalization(c.d_model, c.eps, c.eps_mode)
        self.dropout = nn.Dropout(c.dropout)

    @staticmethod
    def _attention(c: EncoderDecoderConfig) -> CrossAttention:
        widths = (c.d_model, c.n_heads, c.d_head, c.d_value)
        return CrossAttention(*widths, c.qkv_bias, c.out_bias, c.scale)

    def _reads(self, norm: Normalization, x: Tensor) -> Tensor:
        return norm(x) if self.pre else x

    def _adds(self, norm: Normalization, x: Tensor, z: Tensor) -> Tensor:
        x = x + self.dropout(z)
        return x if self.pre else norm(x)

    def _feeds_forward(self, x: Tensor) -> Tensor:
        z = self.feed_forward(self._reads(self.norm_feed_forward, x))
        return self._adds(self.norm_feed_forward, x, z)

    def spec_weights(self) -> dict[str, dict[str, np.ndarray]]:
        """The weights of the block, for `spec.encoder_decoder`."""
        found: dict[str, Any] = {"SA": self.self_attention, "FF": self.feed_forward}
        found |= {"N_sa": self.norm_self, "N_ff": self.norm_feed_forward}
        return {name: layer.spec_weights() for name, layer in found.items()}


class EncoderBlock(_Block):
    """Self-attention over all visible rows, then the feed-forward layer.
    (A-encoder-block, M-encoder-stack)

    x: (*batch, n, d_model) and key_mask: (*batch, n) to the shape of x.
    """

    def forward(
        self,
        x: Float[Tensor, "*batch n d"],
        key_mask: Bool[Tensor, "*batch n"] | None = None,
    ) -> Float[Tensor, "*batch n d"]:
        rows = self._reads(self.norm_self, x)
        x = self._adds(self.norm_self, x, self.self_attention(rows, rows, key_mask))
        return self._feeds_forward(x)


# for any number of rows, which the axis _ leaves open
KeysValues = tuple[Float[Tensor, "*batch h _ k"], Float[Tensor, "*batch h _ v"]]


class CrossBlock(_Block):
    """Masked self-attention, cross-attention to a memory, feed-forward layer.
    (A-decoder-block, M-decoder-stack)

    y: (*batch, m, d_model), memory: (*batch, n, d_model), key_mask: (*batch, n) to the
    shape of y.
    """

    def __init__(self, c: EncoderDecoderConfig) -> None:
        super().__init__(c)
        self.cross_attention = self._attention(c)
        self.norm_cross = Normalization(c.d_model, c.eps, c.eps_mode)

    def forward(
        self,
        y: Float[Tensor, "*batch m d"],
        memory: Float[Tensor, "*batch n d"],
        key_mask: Bool[Tensor, "*batch n"] | None = None,
    ) -> Float[Tensor, "*batch m d"]:
        return self.step(y, self.cross_attention.keys_values(memory), key_mask)[0]

    def step(
        self,
        y: Float[Tensor, "*batch m d"],
        memory: KeysValues,
        key_mask: Bool[Tensor, "*batch n"] | None = None,
        past: KeysValues | None = None,
    ) -> tuple[Float[Tensor, "*batch m d"], KeysValues]:
        """The rows of y after the block, and all keys and values of self-attention so
        far. If `past` is given, y is one new row."""
        y, past = self._looks_back(y, past)
        rows = self._reads(self.norm_cross, y)
        heard = self.cross_attention.attend(rows, *memory, key_mask)
        y = self._adds(self.norm_cross, y, heard)
        return self._feeds_forward(y), past

    def attention_weights(
        self,
        y: Float[Tensor, "*batch m d"],
        memory: Float[Tensor, "*batch n d"],
        key_mask: Bool[Tensor, "*batch n"] | None = None,
    ) -> Float[Tensor, "*batch h m n"]:
        """The weights of cross-attention when the block reads y and the memory."""
        rows = self._reads(self.norm_cross, self._looks_back(y, None)[0])
        return self.cross_attention.attention_weights(rows, memory, key_mask)

    def _looks_back(
        self, y: Float[Tensor, "*batch m d"], past: KeysValues | None
    ) -> tuple[Float[Tensor, "*batch m d"], KeysValues]:
        """The rows of y after masked self-attention, and all its keys and values."""
        count = y.shape[-2]
        one = past is None or count == 1
        expects(one, "y", f"{count} rows", "one row, when there is a past")
        rows = self._reads(self.norm_self, y)
        new = self.self_attention.keys_values(rows)
        K, V = new if past is None else map(torch.cat, zip(past, new), (-2, -2))
        seen = self.self_attention.attend(rows, K, V, causal=past is None)
        return self._adds(self.norm_self, y, seen), (K, V)

    def spec_weights(self) -> dict[str, dict[str, np.ndarray]]:
        CA, N_ca = self.cross_attention.spec_weights(), self.norm_cross.spec_weights()
        return super().spec_weights() | {"CA": CA, "N_ca": N_ca}


class State(NamedTuple):
    """What is remembered while a target is written: for each block the keys and values
    of the memory and of the target so far; which source tokens are visible; and how
    many target tokens have been read.
    """

    memory: list[KeysValues]
    past: list[KeysValues | None]
    key_mask: Bool[Tensor, "batch n"] | None
    length: int

    def select(self, index: Int[Tensor, "k"]) -> "State":
        """The state of some sequences of the batch, in the order of `index`; a sequence
        may come twice."""
        pick = lambda pairs: [p and (p[0][index], p[1][index]) for p in pairs]
        key_mask = None if self.key_mask is None else self.key_mask[index]
        return State(pick(self.memory), pick(self.past), key_mask, self.length)


def _expects_tensors(wants: str, **given: object) -> None:
    for name, got in given.items():
        expects_kind(name, got, Tensor, wants)


def _expects_key_mask(key_mask: Tensor | None, shape: tuple[int, ...]) -> None:
    if key_mask is not None:
        _expects_tensors("a tensor of torch.bool", key_mask=key_mask)
        expects_mask("key_mask", key_mask, shape)


def _expects_same_batch(source: Tensor, target: Tensor) -> None:
    _expects_tensors("a tensor of integers", source=source, target=target)
    same, got = source.shape[:-1] == target.shape[:-1], tuple(target.shape)
    wants = f"as many sequences as source, shape {tuple(source.shape)}"
    expects(same, "target", f"shape {got}", wants)


class EncoderDecoder(nn.Module):
    """T(s, t), from source tokens (*batch, n) and target tokens (*batch, m) to scores
    (*batch, m, vocab_size) of the next target tokens. (M-onehot-output)

    key_mask: (*batch, n), true for real source tokens; None: all. ValueError for an
    empty or too long sequence and for batches of different sizes, IndexError for a
    token outside the vocabulary, TypeError for tokens that are not integers and for
    a key_mask that is not a tensor of torch.bool.
    """

    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__()
        expects_kind("config", config, EncoderDecoderConfig, "an EncoderDecoderConfig")
        c = self.config = config
        factor = math.sqrt(c.d_model) if c.embed_scale else 1.0
        self.embedding = Embedding(c.vocab_size, c.d_model, factor)
        self.source_embedding = self.embedding
        if c.source_vocab_size is not None:
            self.source_embedding = Embedding(c.source_vocab_size, c.d_model, factor)
        self.position = self.positions(c)
        self.dropout = nn.Dropout(c.dropout)
        self.encoder: Any = nn.ModuleList(EncoderBlock(c) for _ in range(c.n_layers))
        self.decoder: Any = nn.ModuleList(CrossBlock(c) for _ in range(c.n_layers))
        self.norm_encoder: Any = nn.Identity()
        self.norm_decoder: Any = nn.Identity()
        if c.final_norm:
            self.norm_encoder = Normalization(c.d_model, c.eps, c.eps_mode)
            self.norm_decoder = Normalization(c.d_model, c.eps, c.eps_mode)
        self.unembedding = nn.Linear(c.d_model, c.vocab_size, bias=c.unembed_bias)
        self.initialize()
        if c.tied:
            self.unembedding.weight = self.embedding.table.weight

    @staticmethod
    def positions(config: EncoderDecoderConfig) -> PositionalEncoding:
        """The layer that adds the positions of these settings."""
        c = config
        return PositionalEncoding(c.max_len, c.d_model, c.pe, c.pe_start, c.pe_halves)

    @torch.no_grad()
    def initialize(self) -> None:
        """Draw all matrices but a table of positions: those of linear layers uniform
        (Glorot), those of embeddings (and with `tied` the last layer's) normal with
        standard deviation 1/√d if they are scaled, 0.02 otherwise; biases of linear
        layers are set to 0.
        """
        std = self.config.d_model**-0.5 if self.config.embed_scale else 0.02
        table = self.embedding.table.weight  # with `tied`, that of the last layer, too
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                if layer.weight is not table:
                    nn.init.xavier_uniform_(layer.weight)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)
            elif isinstance(layer, nn.Embedding):
                nn.init.normal_(layer.weight, std=std)

    def forward(
        self,
        source: Int[Tensor, "*batch n"],
        target: Int[Tensor, "*batch m"],
        key_mask: Bool[Tensor, "*batch n"] | None = None,
    ) -> Float[Tensor, "*batch m V"]:
        _expects_same_batch(source, target)
        return self.decode(target, self.encode(source, key_mask), key_mask)

    def _rows(
        self, name: str, tokens: Int[Tensor, "*batch n"], embedding: Embedding
    ) -> Float[Tensor, "*batch n d"]:
        _expects_tensors("a tensor of integers", **{name: tokens})
        expects_shape(name, tokens, ("n",))
        expects_length(name, tokens.shape[-1], self.config.max_len)
        return self.dropout(self.position(embedding(tokens)))

    def encode(
        self,
        source: Int[Tensor, "*batch n"],
        key_mask: Bool[Tensor, "*batch n"] | None = None,
    ) -> Float[Tensor, "*batch n d"]:
        """The memory: one row for each source token."""
        x = self._rows("source", source, self.source_embedding)
        _expects_key_mask(key_mask, tuple(source.shape))
        for block in self.encoder:
            x = block(x, key_mask)
        return self.norm_encoder(x)

    def decode(
        self,
        target: Int[Tensor, "*batch m"],
        memory: Float[Tensor, "*batch n d"],
        key_mask: Bool[Tensor, "*batch n"] | None = None,
    ) -> Float[Tensor, "*batch m V"]:
        """The scores of all target rows, given the memory of each sequence."""
        _expects_tensors("a tensor of integers", target=target)
        _expects_tensors("a tensor of rows", memory=memory)
        _expects_key_mask(key_mask, tuple(memory.shape[:-1]))
        same, got = target.shape[:-1] == memory.shape[:-2], f"shape {tuple(target.shape)}"
        wants = f"as many sequences as memory, shape {tuple(memory.shape)}"
        expects(same, "target", got, wants)
        y = self._rows("target", target, self.embedding)
        for block in self.decoder:
            y = block(y, memory, key_mask)
        return self.unembedding(self.norm_decoder(y))

    def begin(
        self,
        source: Int[Tensor, "batch n"],
        key_mask: Bool[Tensor, "batch n"] | None = None,
    ) -> State:
        """The state after reading the source, before anything is written."""
        memory = self.encode(source, key_mask)
        got = f"shape {tuple(source.shape)}"
        expects(source.dim() == 2, "source", got, "(batch, n)")
        pairs = [block.cross_attention.keys_values(memory) for block in self.decoder]
        return State(pairs, [None] * len(pairs), key_mask, 0)

    def advance(
        self, tokens: Int[Tensor, "batch"], state: State
    ) -> tuple[Float[Tensor, "batch V"], State]:
        """The scores after one more target token of each sequence, and the new
        state."""
        expects_length("tokens", state.length + 1, self.config.max_len)
        _expects_tensors("a tensor of integers", tokens=tokens)
        batch = len(state.memory[0][0])
        expects(tokens.shape == (batch,), "tokens", f"shape {tuple(tokens.shape)}", f"({batch},)")
        y = self.embedding(tokens[:, None])
        if self.position.kind != "none":
            y = y + self.position.table[state.length]
        y, past = self.dropout(y), []
        for block, memory, before in zip(self.decoder, state.memory, state.past):
            y, after = block.step(y, memory, state.key_mask, before)
            past.append(after)
        scores = self.unembedding(self.norm_decoder(y))[:, 0]
        return scores, State(state.memory, past, state.key_mask, state.length + 1)

    @torch.no_grad()
    def cross_attention_weights(
        self,
        source: Int[Tensor, "*batch n"],
        target: Int[Tensor, "*batch m"],
        key_mask: Bool[Tensor, "*batch n"] | None = None,
    ) -> Float[Tensor, "N *batch h m n"]:
        """The weights of cross-attention in every block and head, without dropout: how
        much each target row looks at each source row."""
        _expects_same_batch(source, target)
        found = []
        with evaluating(self):
            memory = self.encode(source, key_mask)
            y = self._rows("target", target, self.embedding)
            for block in self.decoder:
                found.append(block.attention_weights(y, memory, key_mask))
                y = block(y, memory, key_mask)
        return torch.stack(found)

    def spec_weights(self) -> dict[str, object]:
        """The weights as float64 arrays, for `spec.encoder_decoder.encoder_decoder`."""
        c, u = self.config, self.unembedding.bias
        found: dict[str, Any] = {
            "E_s": as_float64(self.source_embedding.table.weight),
            "E_t": as_float64(self.embedding.table.weight),
            "P": None if c.pe == "none" else self.position.spec_weights()["P"],
            "encoder": [block.spec_weights() for block in self.encoder],
            "decoder": [block.spec_weights() for block in self.decoder],
            "U": as_float64(self.unembedding.weight.T),
            "u": np.zeros(c.vocab_size) if u is None else as_float64(u),
        }
        for name in ("encoder", "decoder"):
            last = getattr(self, f"norm_{name}")
            found[f"N_{name}"] = last.spec_weights() if c.final_norm else None
        return found

    def spec_settings(self) -> dict[str, object]:
        """The settings that the specification needs in addition to the weights."""
        names = ("norm", "activation", "eps", "eps_mode", "scale")
        settings = {name: getattr(self.config, name) for name in names}
        return settings | {"embed_scale": None if self.config.embed_scale else 1.0}


# --- The proof, derived


@register_rule(CrossBlock)
def _cross_block(module: CrossBlock) -> Derivation:
    attention, cross = module.self_attention, module.cross_attention
    for part in (attention, cross):
        if type(part) is not CrossAttention:
            why = f"no rule for {type(part).__name__} in place of CrossAttention"
            return primitive("CrossBlock", Kind.UNPROVED, why)
    query, key, value = map(derive, (attention.query, attention.key, attention.value))
    head = product("H_i", pattern("softmax(◺(QKᵀ)·scale)", query, key), value)
    proved = all(derive(layer).kind is not Kind.UNPROVED for layer in (cross.key, cross.value))
    kind, why = Kind.ROWWISE if proved else Kind.UNPROVED, "keys and values do not change"
    hears = primitive("attention to a fixed memory", kind, why)
    layers = {
        "SA": compose("SA", concat("heads", head), derive(attention.out)),
        "CA": compose("CA", derive(cross.query), hears, derive(cross.out)),
        "FF": derive(module.feed_forward),
    }
    norms = (module.norm_self, module.norm_cross, module.norm_feed_forward)
    steps, D = [], derive(module.dropout)
    dropout = [] if D.is_identity else [D]
    for (name, layer), N in zip(layers.items(), map(derive, norms)):
        parts = [N] * module.pre + [layer] + dropout
        names = "∘".join(part.subject for part in reversed(parts))
        branch = compose(names, *parts) if len(parts) > 1 else layer
        steps += [residual(f"Res({name})", branch)] + [N] * (not module.pre)
    return compose("CrossBlock, memory fixed", *steps)


@register_rule(EncoderDecoder)
def _encoder_decoder(module: EncoderDecoder) -> Derivation:
    name, D = "t ↦ T(s, t), source fixed", derive(module.dropout)
    for part in module.encoder.modules():  # a random memory is not fixed
        if isinstance(part, nn.Dropout) and derive(part).kind is Kind.UNPROVED:
            return primitive(name, Kind.UNPROVED, "random in training mode")
    rows = [module.embedding, module.position]
    rest = [*module.decoder, module.norm_decoder, module.unembedding]
    dropout = [] if D.is_identity else [D]
    steps = [*map(derive, rows), *dropout, *map(derive, rest)]
    return compose(name, *steps)

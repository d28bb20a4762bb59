"""Small models for `test_auditing.py`: in each of PLANTED something looks ahead, and it is known where; each of CLEAN only seems to.

A case makes its model and inputs afresh. `module` is the path of the culprit, `cause` a word of the guess, `fault` what is reported.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tlm_book.decoder_block import DecoderBlock
from tlm_book.derivation import Causal
from tlm_book.feed_forward import MixtureOfExperts
from tlm_book.transformer_lm import Config, TransformerLM

D, V, N, B = 8, 13, 9, 2  # width, tokens, rows, sequences


class Case(NamedTuple):
    """One model: make() gives it and its inputs."""

    name: str
    make: Callable[[], tuple[Any, Any]]
    module: str | None = None
    cause: str = ""
    fault: str = "future"
    options: dict[str, Any] = {}
    setting: str = ""


def rows(*shape: int) -> Tensor:
    return torch.randn(*(shape or (B, N, D)))


def tokens(n: int = N) -> Tensor:
    return torch.randint(V, (B, n))


# --- The parts of a decoder


class Attention(nn.Module):
    """softmax(masked scores) values, two heads; what is left open is how the mask is made."""

    def __init__(self, d: int = D, heads: int = 2):
        super().__init__()
        self.qkv, self.out, self.heads = nn.Linear(d, 3 * d), nn.Linear(d, d), heads

    def later(self, n: int) -> Tensor:
        return torch.ones(n, n, dtype=torch.bool).triu(1)

    def mask(self, scores: Tensor) -> Tensor:
        return scores.masked_fill(self.later(scores.shape[-1]), -math.inf)

    def weights(self, scores: Tensor) -> Tensor:
        return self.mask(scores).softmax(-1)

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(-2, -3)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = map(self.split, self.qkv(x).chunk(3, -1))
        weights = self.weights(q @ k.mT / math.sqrt(q.shape[-1]))
        return self.out((weights @ v).transpose(-2, -3).flatten(-2))


class FeedForward(nn.Sequential):
    def __init__(self, d: int = D):
        super().__init__(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))


class Block(nn.Module):
    def __init__(self, attention: nn.Module | None = None, mix: nn.Module | None = None, norm: Callable[[], nn.Module] = lambda: nn.LayerNorm(D)):
        super().__init__()
        self.norm1, self.attention = norm(), attention or Attention()
        self.norm2, self.mix = nn.LayerNorm(D), mix or FeedForward()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mix(self.norm2(x))


class Positions(nn.Module):
    def __init__(self, most: int = 32):
        super().__init__()
        self.table = nn.Parameter(torch.randn(most, D))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table[: x.shape[-2]]


class Decoder(nn.Module):
    """Tokens to logits through three blocks, one of which may be of another kind."""

    def __init__(self, block: nn.Module | None = None, at: int = 1, positions: nn.Module | None = None, norm: nn.Module | None = None):
        super().__init__()
        self.embedding, self.positions = nn.Embedding(V, D), positions or Positions()
        self.blocks = nn.ModuleList(block if block is not None and k == at else Block() for k in range(3))
        self.norm, self.head = norm or nn.LayerNorm(D), nn.Linear(D, V, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.positions(self.embedding(ids))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Fn(nn.Module):
    """A function of the rows as a module."""

    def __init__(self, f: Callable[[Tensor], Tensor]):
        super().__init__()
        self.f = f

    def forward(self, x: Tensor) -> Tensor:
        return self.f(x)


class Across(nn.Module):
    """A layer for (batch, channels, rows) between rows."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.mT).mT


class First(nn.Module):
    """The first output of a recurrence."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0]


def decoder(part: Callable[[], nn.Module], place: str = "mix", at: int = 1) -> Callable[[], tuple[nn.Module, Tensor]]:
    """A decoder with this part in one block: as `mix`, `attention`, or `norm1`."""

    def make() -> tuple[nn.Module, Tensor]:
        block = Block(norm=part) if place == "norm1" else Block(**{place: part()})
        return Decoder(block, at), tokens()

    return make


# --- Attention that looks ahead


class SmallNoMask(Attention):
    """No mask, and the row itself is added: with the small weights of a fresh model it is a thousand times louder than all the others."""

    def __init__(self):
        super().__init__()
        for weight in self.parameters():
            nn.init.normal_(weight, std=0.02)

    def mask(self, scores: Tensor) -> Tensor:
        return scores

    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)


class NoMask(Attention):
    def mask(self, scores):
        return scores


class Ahead(Attention):
    """The mask begins so many diagonals too late."""

    def __init__(self, by: int):
        super().__init__()
        self.by = by

    def later(self, n):
        return torch.ones(n, n, dtype=torch.bool).triu(1 + self.by)


class When(Attention):
    """Masks only under a condition on (module, n)."""

    def __init__(self, condition):
        super().__init__()
        self.condition = condition

    def mask(self, scores):
        return super().mask(scores) if self.condition(self, scores.shape[-1]) else scores


class Weak(Attention):
    """Adds a number that is meant to be −∞."""

    def __init__(self, penalty: float):
        super().__init__()
        self.penalty = penalty

    def mask(self, scores):
        return scores + self.penalty * self.later(scores.shape[-1])


class MaskAfter(Attention):
    """Masks the weights, when softmax has already seen all scores."""

    def weights(self, scores):
        return scores.softmax(-1).masked_fill(self.later(scores.shape[-1]), 0.0)


class WrongAxis(Attention):
    def weights(self, scores):
        return self.mask(scores).softmax(-2)


class MixedUp(Attention):
    """Rows and heads change places by a view where a transpose is wanted."""

    def split(self, x):
        return x.reshape(*x.shape[:-2], self.heads, x.shape[-2], -1)

    def forward(self, x):
        q, k, v = map(self.split, self.qkv(x).chunk(3, -1))
        weights = self.weights(q @ k.mT)
        return self.out((weights @ v).transpose(-2, -3).flatten(-2))


class Threshold(Attention):
    """Keeps, of each column of the weights, those above the column's mean: the mean is over all queries."""

    def weights(self, scores):
        w = super().weights(scores)
        return w * (w > w.mean(-2, keepdim=True))


class PaddingInstead(nn.Module):
    """The pattern of the chapter: is_causal only when there is no other mask."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(D, 3 * D)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        mask = None if mask is None else mask[:, None, :].bool()
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)


class WithPadding(nn.Module):
    def __init__(self, attention: nn.Module):
        super().__init__()
        self.embedding, self.attention, self.head = nn.Embedding(V, D), attention, nn.Linear(D, V)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        x = self.embedding(input_ids)
        return self.head(x + self.attention(x, attention_mask))


class BothMasks(PaddingInstead):
    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        n = x.shape[1]
        seen = torch.ones(n, n, dtype=torch.bool).tril()[None]
        seen = seen if mask is None else seen & mask[:, None, :].bool() | torch.eye(n, dtype=torch.bool)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)


class LeastNumber(PaddingInstead):
    """The least number in place of −∞: a row that is wholly hidden attends to all."""

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        hidden = torch.ones(1, x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        hidden = hidden if mask is None else hidden | (mask == 0)[:, None, :]
        return (q @ k.mT).masked_fill(hidden, torch.finfo(x.dtype).min).softmax(-1) @ v


class Pooled(nn.Module):
    """A child makes the summary, its parent gives it to every row."""

    def __init__(self, pool: nn.Module, weight: float = 1.0):
        super().__init__()
        self.pool, self.weight = pool, weight

    def forward(self, x):
        return x + self.weight * self.pool(x.mT).mT


class Rows(NamedTuple):
    rows: Tensor
    mask: Tensor | None


class GivesTuple(nn.Module):
    """The leaking module takes its rows out of a tuple, or out of one with names, and nothing else."""

    def __init__(self, kind: type):
        super().__init__()
        self.kind, self.inner = kind, TakesTuple(kind)

    def forward(self, x):
        return self.inner(Rows(x, None) if self.kind is Rows else (x, None))


class TakesTuple(nn.Module):
    def __init__(self, kind: type):
        super().__init__()
        self.kind = kind

    def forward(self, given):
        assert type(given) is self.kind
        return given[0] + given[0].mean(-2, keepdim=True)


class Behind(nn.Module):
    """A causal layer inside returns more rows or fewer than it is given; the leak is made of them, behind it."""

    def __init__(self, inner: nn.Module, align: Callable[[Tensor, int], Tensor], leak: Callable[[Tensor], Tensor]):
        super().__init__()
        self.inner, self.align, self.leak = inner, align, leak

    def forward(self, x):
        return self.leak(self.align(self.inner(x.mT), x.shape[-2]).mT)


def centred(y: Tensor) -> Tensor:
    return y - y.mean(-2, keepdim=True)


def crop(y: Tensor, n: int) -> Tensor:
    """The first n rows of a convolution padded on both sides."""
    return y[..., :n]


def last_pair(y: Tensor, n: int) -> Tensor:
    """For each row the mean of the last pair of rows that is complete."""
    return F.pad(y.repeat_interleave(2, -1), (1, 1))[..., :n]


class BlockLocal(Attention):
    """Attention inside blocks of three, without order."""

    def later(self, n):
        block = torch.arange(n) // 3
        return block[:, None] != block[None]


class ExpertChoice(nn.Module):
    """Each expert picks the rows that it likes best, from the whole sequence."""

    def __init__(self):
        super().__init__()
        self.gate, self.experts = nn.Linear(D, 2), nn.ModuleList(nn.Linear(D, D) for _ in range(2))

    def forward(self, x):
        scores = self.gate(x)
        chosen = scores >= scores.topk((x.shape[-2] + 1) // 2, -2).values[..., -1:, :]
        return sum(chosen[..., k : k + 1] * expert(x) for k, expert in enumerate(self.experts))


class TokenChoice(ExpertChoice):
    """Each row picks its experts: the `most` best."""

    def __init__(self, most: int = 1):
        super().__init__()
        self.most = most

    def forward(self, x):
        scores = self.gate(x)
        chosen = (scores >= scores.topk(self.most, -1).values[..., -1:]) * scores.softmax(-1)
        return sum(chosen[..., k : k + 1] * expert(x) for k, expert in enumerate(self.experts))


class ScaledPositions(Positions):
    """Positions as fractions of the length."""

    def forward(self, x):
        n = x.shape[-2]
        return x + torch.arange(n)[:, None] / n * self.table[0]


class FromTheEnd(Positions):
    def forward(self, x):
        return x + self.table[: x.shape[-2]].flip(0)


class LengthScale(Attention):
    def mask(self, scores):
        return super().mask(scores * math.log(1 + scores.shape[-1]))


class NextToken(nn.Module):
    """Adds to each row what the next token embeds to."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(V, D)

    def forward(self, ids):
        return self.table(ids) + F.pad(self.table(ids)[:, 1:], (0, 0, 0, 1))


class Recomputed(nn.Module):
    """A language model whose step function keeps the running sum; `drift` spoils it."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(V, D), nn.Linear(D, V)

    def forward(self, ids):
        return self.head(self.embedding(ids).cumsum(1).tanh())

    def step(self, drift: float = 0.0):
        def step(ids, state):
            state = self.embedding(ids) + (0 if state is None else (1 - drift) * state)
            return self.head(state.tanh()), state

        return step


def with_step(drift: float):
    model = Recomputed()
    return model, tokens(), {"step": model.step(drift)}


def f(function: Callable[[Tensor], Tensor]) -> Callable[[], nn.Module]:
    return lambda: Fn(function)


def circular(x: Tensor) -> Tensor:
    kernel = torch.linspace(1, 0, x.shape[-2])[:, None].to(x)
    return torch.fft.irfft(torch.fft.rfft(x, dim=-2) * torch.fft.rfft(kernel, dim=-2), n=x.shape[-2], dim=-2)


def dropped_by_spread(x: Tensor) -> Tensor:
    return F.dropout(x, 0.3) * x.std(-2, keepdim=True)


def alone(make: Callable[[], nn.Module], **shape: Any) -> Callable[[], tuple[nn.Module, Tensor]]:
    return lambda: (make(), rows())


class BatchFirstMistake(nn.Module):
    """Attention along the batch: batch_first forgotten."""

    def __init__(self):
        super().__init__()
        self.inner = nn.MultiheadAttention(D, 2)

    def forward(self, x):
        return self.inner(x, x, x, need_weights=False)[0]


def tiny(weight: float) -> Callable[[], nn.Module]:
    return f(lambda x: x + weight * x.mean(-2, keepdim=True))


def with_norm(norm: Callable[[], nn.Module]):
    return lambda: (Decoder(norm=norm()), tokens())


def with_positions(positions: Callable[[], nn.Module]):
    return lambda: (Decoder(positions=positions()), tokens())


def sequence_norm(x: Tensor) -> Tensor:
    return (x - x.mean(-2, keepdim=True)) / (x.std(-2, keepdim=True, correction=0) + 1e-3)


class NextTokenDecoder(Decoder):
    def __init__(self):
        super().__init__()
        self.embedding = NextToken()


PLANTED = [
    *(Case(f"no mask in block {k}", decoder(NoMask, "attention", k), f"blocks.{k}.attention", "mask missing") for k in range(3)),
    Case("no mask beside a loud residual", decoder(SmallNoMask, "attention"), "blocks.1.attention", "mask missing"),
    Case("mask off by one", decoder(lambda: Ahead(1), "attention"), "blocks.1.attention", "mask off by one"),
    Case("mask off by three", decoder(lambda: Ahead(3), "attention", 2), "blocks.2.attention", "mask off by 3"),
    Case("no mask in evaluation", decoder(lambda: When(lambda m, n: m.training), "attention", 0), "blocks.0.attention", "mask missing", setting="eval"),
    Case("no mask in training", decoder(lambda: When(lambda m, n: not m.training), "attention"), "blocks.1.attention", "mask missing", setting="train"),
    Case("no mask at odd lengths", decoder(lambda: When(lambda m, n: n % 2 == 0), "attention"), "blocks.1.attention", "mask missing"),
    Case("no mask at even lengths", decoder(lambda: When(lambda m, n: n % 2), "attention"), "blocks.1.attention", "mask missing"),
    Case("no mask at n = 2", decoder(lambda: When(lambda m, n: n != 2), "attention"), "blocks.1.attention", "mask"),
    Case("no mask above n = 8", decoder(lambda: When(lambda m, n: n <= 8), "attention"), "blocks.1.attention", "mask missing"),
    Case("mask of −10", decoder(lambda: Weak(-10.0), "attention"), "blocks.1.attention", "mask too weak"),
    Case("mask of −30", decoder(lambda: Weak(-30.0), "attention", 2), "blocks.2.attention", "mask too weak"),
    Case("mask of −60, below all rounding", decoder(lambda: Weak(-60.0), "attention", 0), "blocks.0.attention", "mask too weak"),
    Case("mask after softmax", decoder(MaskAfter, "attention"), "blocks.1.attention", "mask missing"),
    Case("softmax over the queries", decoder(WrongAxis, "attention"), "blocks.1.attention", "softmax over the sequence axis"),
    Case("heads and rows mixed up", decoder(MixedUp, "attention"), "blocks.1.attention", "mixing"),
    Case("threshold over the queries", decoder(Threshold, "attention"), "blocks.1.attention", "a step without a derivative"),
    Case("block-local without order", decoder(BlockLocal, "attention"), "blocks.1.attention", "blocks of 3"),
    Case("padding mask in place of ◺", lambda: (WithPadding(PaddingInstead()), tokens()), "attention", "mask missing"),
    Case("group norm", decoder(lambda: Across(nn.GroupNorm(2, D)), "norm1"), "blocks.1.norm1.layer", "normalization over the sequence"),
    Case("instance norm", decoder(lambda: Across(nn.InstanceNorm1d(D)), "norm1", 0), "blocks.0.norm1.layer", "normalization over the sequence"),
    Case("norm over the rows, by hand", decoder(f(sequence_norm), "norm1"), "blocks.1.norm1", "normalization over the sequence"),
    Case("final norm over the rows", with_norm(f(sequence_norm)), "norm", "normalization over the sequence"),
    Case("batch norm in training", with_norm(lambda: Across(nn.BatchNorm1d(D))), "norm.layer", "batch statistics", setting="train"),
    Case("batch norm without running statistics", with_norm(lambda: Across(nn.BatchNorm1d(D, track_running_stats=False))), "norm.layer", "batch statistics", setting="eval"),
    Case("convolution, padded on both sides", decoder(lambda: Across(nn.Conv1d(D, D, 3, padding=1))), "blocks.1.mix.layer", "convolution padding: the window reaches 1 row ahead"),
    Case("convolution, five wide", decoder(lambda: Across(nn.Conv1d(D, D, 5, padding="same"))), "blocks.1.mix.layer", "convolution padding: the window reaches 2 rows"),
    Case("bidirectional LSTM", decoder(lambda: First(nn.LSTM(D, D // 2, batch_first=True, bidirectional=True))), "blocks.1.mix.layer", "bidirectional"),
    Case("bidirectional GRU", decoder(lambda: First(nn.GRU(D, D // 2, batch_first=True, bidirectional=True)), at=2), "blocks.2.mix.layer", "bidirectional"),
    Case("backward running sum", decoder(f(lambda x: x.flip(-2).cumsum(-2).flip(-2).tanh())), "blocks.1.mix", "later rows are seen, every one"),
    Case("running share of the total", decoder(f(lambda x: x.exp().cumsum(-2) / x.exp().sum(-2, keepdim=True))), "blocks.1.mix", "normalization over the sequence"),
    Case("mean added", decoder(f(lambda x: x + x.mean(-2, keepdim=True))), "blocks.1.mix", "averages over the sequence"),
    Case("mean added to rows in a tuple", decoder(lambda: GivesTuple(tuple)), "blocks.1.mix.inner", "averages over the sequence"),
    Case("mean added to rows in a named tuple", decoder(lambda: GivesTuple(Rows)), "blocks.1.mix.inner", "averages over the sequence"),
    Case("largest added", decoder(f(lambda x: x + x.amax(-2, keepdim=True))), "blocks.1.mix", "pooling"),
    Case("pooling layer", decoder(lambda: Pooled(nn.AdaptiveAvgPool1d(1))), "blocks.1.mix.pool", "pooling"),
    Case("a mean behind a convolution that is cropped", decoder(lambda: Behind(nn.Conv1d(D, D, 3, padding=2), crop, centred)), "blocks.1.mix", "pooling"),
    Case("a mean behind a left pad", decoder(lambda: Behind(nn.Sequential(nn.ConstantPad1d((2, 0), 0.0), nn.Conv1d(D, D, 3)), crop, centred)), "blocks.1.mix", "pooling"),
    Case("a mean behind pairs of rows", decoder(lambda: Behind(nn.AvgPool1d(2, ceil_mode=True), last_pair, centred)), "blocks.1.mix", "pooling"),
    Case("last row added", decoder(f(lambda x: x + x[..., -1:, :])), "blocks.1.mix", "last row"),
    Case("wrapped around: row 0 gets the last", decoder(f(lambda x: x.roll(1, -2))), "blocks.1.mix", "last row"),
    Case("shifted the wrong way", decoder(f(lambda x: x + F.pad(x[..., 1:, :], (0, 0, 0, 1)))), "blocks.1.mix", "an offset: each row sees 1 row ahead"),
    Case("reversed", decoder(f(lambda x: x.flip(-2))), "blocks.1.mix", "reversed"),
    Case("sorted", decoder(f(lambda x: x.sort(-2).values)), "blocks.1.mix", "sort"),
    Case("ranks", decoder(f(lambda x: x.argsort(-2).argsort(-2).to(x))), "blocks.1.mix", "sort, rank, dispatch"),
    Case("expert choice", decoder(ExpertChoice), "blocks.1.mix", "sort, rank, dispatch"),
    Case("largest entry as the unit", decoder(f(lambda x: (x / x.abs().amax((-1, -2), keepdim=True) * 127).round() / 127)), "blocks.1.mix", "rounding across positions"),
    Case("circular convolution", decoder(f(circular)), "blocks.1.mix", "a full mixing"),
    Case("detached mean", decoder(f(lambda x: x + x.mean(-2, keepdim=True).detach())), "blocks.1.mix", "averages over the sequence"),
    Case("in training only, by the spread", decoder(lambda: Trainly(dropped_by_spread)), "blocks.1.mix", "normalization over the sequence", setting="train"),
    Case("a millionth of the mean", decoder(tiny(1e-6)), "blocks.1.mix", "averages over the sequence"),
    Case("a billionth of the mean", decoder(tiny(1e-9)), "blocks.1.mix", "averages over the sequence"),
    Case("10⁻¹³ of the mean", decoder(tiny(1e-13), at=2), "blocks.2.mix", "pooling"),
    Case("10⁻²⁰ of the mean, below all rounding", decoder(tiny(1e-20), at=0), "blocks.0.mix", ""),
    Case("positions as fractions of n", with_positions(ScaledPositions), "positions", "number of rows", "length"),
    Case("positions from the end", with_positions(FromTheEnd), "positions", "number of rows", "length"),
    Case("temperature by n", decoder(LengthScale, "attention"), "blocks.1.attention", "number of rows", "length"),
    Case("next token embedded", lambda: (NextTokenDecoder(), tokens()), "embedding", "1 row ahead"),
    Case("torch encoder without a mask", lambda: (nn.TransformerEncoder(nn.TransformerEncoderLayer(D, 2, 16, 0.1, batch_first=True), 2, enable_nested_tensor=False), rows()), "layers.0.self_attn", "mask missing"),
    Case("a function without its mask", lambda: unmasked_function(), "encoder.layers.0.self_attn", "mask missing"),
    Case("batch and rows confused", alone(BatchFirstMistake), "inner", "sequences of a batch are mixed", "batch"),
    Case("a cache that forgets", lambda: with_step(1e-9), None, "", "cache"),
]


class Trainly(Fn):
    def forward(self, x):
        return self.f(x) if self.training else x


def unmasked_function():
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(D, 2, 16, 0.0, batch_first=True), 1, enable_nested_tensor=False)
    return (lambda x: encoder(x)), rows()


# --- Clean, and suspicious


class CausalConv(nn.Module):
    def __init__(self, width: int = 3, dilation: int = 1):
        super().__init__()
        self.conv, self.left = nn.Conv1d(D, D, width, dilation=dilation), (width - 1) * dilation

    def forward(self, x):
        return self.conv(F.pad(x.mT, (self.left, 0))).mT


class Trimmed(nn.Module):
    """Padded on both sides, the overhang cut off."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(D, D, 4, padding=3)

    def forward(self, x):
        return self.conv(x.mT)[..., : x.shape[-2]].mT


class Window(Attention):
    def later(self, n):
        ones = torch.ones(n, n, dtype=torch.bool)
        return ones.triu(1) | ones.tril(-3)


class Alibi(Attention):
    def mask(self, scores):
        n = scores.shape[-1]
        return super().mask(scores - 0.5 * (torch.arange(n)[:, None] - torch.arange(n)).abs())


class Rotary(Attention):
    def split(self, x):
        x = super().split(x)
        angle = torch.arange(x.shape[-2])[:, None] / 10.0 ** torch.arange(x.shape[-1] // 2)
        a, b = x.chunk(2, -1)
        return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)


class StateSpace(nn.Module):
    """h ← a h + b x, y = c h, as a loop."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (nn.Parameter(torch.rand(D)) for _ in range(3))

    def forward(self, x):
        h, ys = torch.zeros_like(x[..., 0, :]), []
        for row in x.unbind(-2):
            h = self.a * h + self.b * row
            ys.append(self.c * h)
        return torch.stack(ys, -2)


class LongConv(StateSpace):
    """The same as one convolution, through the Fourier transform: exact but for rounding, which mixes all rows."""

    def forward(self, x):
        n = x.shape[-2]
        kernel = self.c * self.b * self.a ** torch.arange(n)[:, None]
        y = torch.fft.rfft(x, n=2 * n, dim=-2) * torch.fft.rfft(kernel, n=2 * n, dim=-2)
        return torch.fft.irfft(y, n=2 * n, dim=-2)[..., :n, :]


class Offset(LongConv):
    """The same with ten thousand added before and taken away after: rounding is as much larger."""

    def forward(self, x):
        return super().forward(x + 1e4) - super().forward(torch.full_like(x, 1e4))


class LinearAttention(nn.Module):
    """Σ exp(k) v / Σ exp(k) so far; `steady` subtracts the largest k of the whole sequence, which changes nothing but rounding."""

    def __init__(self, steady: bool = False):
        super().__init__()
        self.k, self.v, self.steady = nn.Linear(D, D), nn.Linear(D, D), steady

    def forward(self, x):
        k = self.k(x)
        weight = (k - k.amax(-2, keepdim=True) if self.steady else k).exp()
        return (weight * self.v(x)).cumsum(-2) / weight.cumsum(-2)


class SteadySoftmax(Attention):
    """Subtracts the largest of all scores before the softmax."""

    def mask(self, scores):
        return super().mask(scores - scores.amax((-1, -2), keepdim=True))


class CentredKeys(nn.Module):
    """Keys minus their mean over all rows: softmax does not see the difference."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(D, D) for _ in range(3))

    def forward(self, x):
        k = self.k(x)
        scores = self.q(x) @ (k - k.mean(-2, keepdim=True)).mT
        return scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf).softmax(-1) @ self.v(x)


class BlockCausal(Attention):
    """Attention inside blocks of three, with order."""

    def later(self, n):
        block = torch.arange(n) // 3
        return (block[:, None] != block[None]) | super().later(n)


class Noisy(nn.Module):
    """Draws noise from a generator of its own."""

    def __init__(self):
        super().__init__()
        self.generator = torch.Generator().manual_seed(3)

    def forward(self, x):
        return x + 0.1 * torch.randn(x.shape, generator=self.generator, dtype=x.dtype)


class SingleOnly(nn.Module):
    """A model that refuses float64."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(D, D)

    def forward(self, x):
        if x.dtype == torch.float64:
            raise RuntimeError("no kernel for float64")
        return self.inner(x).cumsum(-2)


class Hidden(nn.Module):
    """Its layers stand in a plain list, which torch does not see."""

    def __init__(self):
        super().__init__()
        self.layers = [Attention(), Attention()]

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x


class Counting(nn.Module):
    """Keeps count of its calls, in an attribute, a list and a buffer."""

    def __init__(self):
        super().__init__()
        self.calls, self.seen = 0, []
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        self.seen.append(x.shape)
        self.total += 1
        return x.cumsum(-2)


class Tuple(nn.Module):
    def forward(self, x):
        y = x.cumsum(-2)
        return y, y.sum()


class NoWords(Decoder):
    """Some tokens may never come: −∞."""

    def forward(self, ids):
        return super().forward(ids).masked_fill(torch.arange(V) < 3, -math.inf)


class UnusedTotals(nn.Module):
    """Returns statistics of the whole sequence beside its rows, as a router does for its loss."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(D, D)

    def forward(self, x):
        y = self.inner(x)
        return y, y.mean((-2, -1))


def hugging_face(kind: str, **options: Any) -> Callable[[], tuple[nn.Module, Tensor]]:
    """A decoder from a small random configuration."""

    def make() -> tuple[nn.Module, Tensor]:
        import transformers

        sizes = {"vocab_size": V, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
        sizes |= {"max_position_embeddings": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
        config = getattr(transformers, f"{kind}Config")(**(sizes | options))
        name = f"{kind}LMHeadModel" if kind == "GPT2" else f"{kind}ForCausalLM"
        return getattr(transformers, name)(config), tokens()

    return make


def double_flip(x: Tensor) -> Tensor:
    return x.flip(-2).flip(-2).cumsum(-2)


def sorted_and_back(x: Tensor) -> Tensor:
    order = x.argsort(-2)
    return x.gather(-2, order).tanh().gather(-2, order.argsort(-2))


def masked_encoder(**call: Any):
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(D, 2, 16, 0.1, batch_first=True), 2, enable_nested_tensor=False)
    mask = nn.Transformer.generate_square_subsequent_mask
    return (lambda x: encoder(x, mask=mask(x.shape[1], dtype=x.dtype), **call)), rows()


def causal_rows_first():
    return Causal(nn.MultiheadAttention(D, 2)), rows(N, B, D), {"input_axis": 0}


CLEAN = [
    Case("the decoder itself", lambda: (Decoder(), tokens())),
    Case("RMS norm", with_norm(lambda: nn.RMSNorm(D))),
    Case("group norm over channels", decoder(lambda: Fn(lambda x: F.group_norm(x.flatten(0, 1), 2).view_as(x)), "norm1")),
    Case("causal convolution", decoder(CausalConv)),
    Case("dilated convolutions", decoder(lambda: nn.Sequential(CausalConv(2, 1), CausalConv(2, 2), CausalConv(2, 4)))),
    Case("means of pairs of rows", decoder(lambda: Behind(nn.AvgPool1d(2, ceil_mode=True), last_pair, torch.tanh))),
    Case("convolution trimmed on the right", decoder(Trimmed)),
    Case("LSTM", decoder(lambda: First(nn.LSTM(D, D, batch_first=True)))),
    Case("GRU, two layers with dropout", decoder(lambda: First(nn.GRU(D, D, 2, batch_first=True, dropout=0.2)))),
    Case("plain recurrence", decoder(lambda: First(nn.RNN(D, D, batch_first=True)))),
    Case("state space as a loop", decoder(StateSpace)),
    Case("state space by Fourier transform", decoder(LongConv)),
    Case("Fourier transform with an offset", decoder(Offset)),
    Case("sliding window", decoder(Window, "attention")),
    Case("ALiBi", decoder(Alibi, "attention")),
    Case("rotary", decoder(Rotary, "attention")),
    Case("blocks with order", decoder(BlockCausal, "attention")),
    Case("mask of −10⁹", decoder(lambda: Weak(-1e9), "attention")),
    Case("softmax steadied by the largest of all scores", decoder(SteadySoftmax, "attention")),
    Case("centred keys", decoder(CentredKeys, "attention")),
    Case("experts, one for each row", decoder(TokenChoice)),
    Case("experts, two for each row", decoder(lambda: TokenChoice(2))),
    Case("linear attention", decoder(LinearAttention)),
    Case("linear attention steadied by the largest key", decoder(lambda: LinearAttention(True))),
    Case("running mean", decoder(f(lambda x: x.cumsum(-2) / torch.arange(1, x.shape[-2] + 1)[:, None]))),
    Case("running maximum", decoder(f(lambda x: x.cummax(-2).values))),
    Case("token shift", decoder(f(lambda x: F.pad(x, (0, 0, 1, 0))[..., :-1, :]))),
    Case("sorted inside each row", decoder(f(lambda x: x.sort(-1).values))),
    Case("reversed inside each row", decoder(f(lambda x: x.flip(-1)))),
    Case("reversed twice", decoder(f(double_flip))),
    Case("sorted and put back", decoder(f(sorted_and_back))),
    Case("zero times the mean", decoder(f(lambda x: x + 0.0 * x.mean(-2, keepdim=True)))),
    Case("dropout", decoder(lambda: nn.Sequential(FeedForward(), nn.Dropout(0.4)))),
    Case("batch norm with running statistics", with_norm(lambda: Across(nn.BatchNorm1d(D))), options={"modes": ["eval"]}),
    Case("noise of its own generator", alone(Noisy)),
    Case("no float64", alone(SingleOnly)),
    Case("bfloat16", lambda: (Decoder().bfloat16(), tokens())),
    Case("float16 rows", lambda: (nn.Sequential(nn.Linear(D, D), nn.LayerNorm(D), nn.Linear(D, D)).half(), rows().half())),
    Case("layers in a plain list", alone(Hidden)),
    Case("counts its calls", alone(Counting)),
    Case("renormalizing embedding", lambda: (nn.Sequential(nn.Embedding(V, D, max_norm=0.5), Fn(lambda x: x.cumsum(-2))), tokens())),
    Case("spectral norm", decoder(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(D, D)))),
    Case("tuple with a total beside", alone(Tuple)),
    Case("statistics beside the rows", alone(UnusedTotals)),
    Case("infinite logits", lambda: (NoWords(), tokens())),
    Case("padding and ◺", lambda: (WithPadding(BothMasks()), tokens())),
    Case("this book's decoder block", alone(lambda: DecoderBlock(D, 2, 16, dropout=0.1))),
    Case("this book's model", lambda: (TransformerLM(Config(V, d_model=D, d_ff=16, n_layers=2, n_heads=2, max_len=16)), tokens())),
    Case("torch encoder with a mask", masked_encoder),
    Case("torch encoder with mask and is_causal", lambda: masked_encoder(is_causal=True)),
    Case("causal attention, rows first", causal_rows_first),
    Case("one sequence without a batch", lambda: (nn.Sequential(nn.Linear(D, D), Attention()), rows(N, D))),
    Case("tokens that equal their positions, without a batch", lambda: (Decoder(), torch.arange(N))),
    Case("tokens that equal their positions", lambda: (Decoder(), torch.arange(N).expand(B, N))),
    Case("a function", lambda: ((lambda x: x.cumsum(-2)), rows())),
    Case("channels first", lambda: (nn.Sequential(nn.ConstantPad1d((2, 0), 0.0), nn.Conv1d(D, D, 3)), rows(B, D, N), {"input_axis": -1})),
    Case("a cache that keeps", lambda: with_step(0.0)),
    Case("GPT-2", hugging_face("GPT2", n_positions=32, n_embd=16, n_layer=2, n_head=2), options={"back_ends": ["eager", "sdpa"]}),
    Case("Llama", hugging_face("Llama", num_key_value_heads=1), options={"back_ends": ["eager"]}),
    Case("Mistral with a window", hugging_face("Mistral", sliding_window=4, num_key_value_heads=1)),
    Case("GPT-NeoX", hugging_face("GPTNeoX")),
    Case("Bloom", hugging_face("Bloom", n_layer=2, n_head=2)),
    Case("Qwen2", hugging_face("Qwen2", num_key_value_heads=1)),
]


# --- Patterns from libraries, mostly a fault and its cure


class TimesMask(Attention):
    """Multiplies the scores by the mask: what is hidden has score 0, not −∞."""

    def mask(self, scores):
        return scores * ~self.later(scores.shape[-1])


class Prefix(Attention):
    """The first four rows see each other, as in a prefix model."""

    def later(self, n):
        later = super().later(n)
        later[:, :4] = False
        return later


class DynamicRotary(Rotary):
    """The base grows with the length."""

    def split(self, x):
        x = Attention.split(self, x)
        n = x.shape[-2]
        angle = torch.arange(n)[:, None] / (10.0 * max(1.0, n / 4)) ** torch.arange(x.shape[-1] // 2)
        a, b = x.chunk(2, -1)
        return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)


class Switch(nn.Module):
    """One expert for each row, while there is room: `room(n)` rows, the earlier first; `flat` counts the whole batch together."""

    def __init__(self, room: Callable[[int], int], flat: bool = False):
        super().__init__()
        self.gate, self.experts = nn.Linear(D, 2), nn.ModuleList(nn.Linear(D, D) for _ in range(2))
        self.room, self.flat = room, flat

    def forward(self, x):
        rows = x.flatten(0, -2)[None] if self.flat else x
        chosen = F.one_hot(self.gate(rows).argmax(-1), 2)
        fits = (chosen > 0) & (chosen.cumsum(-2) <= self.room(x.shape[-2]))
        return sum(fits[..., k : k + 1] * expert(rows) for k, expert in enumerate(self.experts)).view_as(x)


class TrimmedWrong(nn.Module):
    """Padded on both sides, the overhang cut off where it should stay."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(D, D, 3, padding=2)

    def forward(self, x):
        return self.conv(x.mT)[..., 2:].mT


class OneMemory(nn.Module):
    """Writes every output into the same memory, as a captured graph does."""

    def __init__(self, weight: float):
        super().__init__()
        self.weight, self.memory = weight, {}

    def forward(self, x):
        y = x.cumsum(-2) + self.weight * x.mean(-2, keepdim=True)
        memory = self.memory.setdefault(x.dtype, torch.empty(2**14, dtype=x.dtype))
        return memory[: x.numel()].view_as(x).copy_(y.detach())


class InFours(nn.Module):
    """Sums within blocks of four rows; the last block is padded at its end, or the first at its beginning."""

    def __init__(self, front: bool):
        super().__init__()
        self.front = front

    def forward(self, x):
        n, lacks = x.shape[-2], -x.shape[-2] % 4
        full = F.pad(x, (0, 0, lacks, 0) if self.front else (0, 0, 0, lacks))
        y = full.unflatten(-2, (-1, 4)).cumsum(-2).flatten(-3, -2)
        return y[..., lacks:, :] if self.front else y[..., :n, :]


class HeadMasks(nn.Module):
    """One mask for each sequence and head: the sequences' masks, each twice, or all of them twice over."""

    def __init__(self, each: bool):
        super().__init__()
        self.embedding, self.attention, self.each = nn.Embedding(V, D), nn.MultiheadAttention(D, 2, batch_first=True), each

    def forward(self, input_ids, attention_mask=None):
        x = self.embedding(input_ids)
        b, n, _ = x.shape
        hidden = torch.ones(b, n, n, dtype=torch.bool).triu(1)
        if attention_mask is not None:
            hidden |= (attention_mask[:, None, :] == 0) & ~torch.eye(n, dtype=torch.bool)
        hidden = hidden.repeat_interleave(2, 0) if self.each else hidden.repeat(2, 1, 1)
        return self.attention(x, x, x, attn_mask=hidden, need_weights=False)[0]


class Output(dict):
    """Like the output of a Hugging Face model."""

    past_key_values: Any = None


class Chunked(nn.Module):
    """Decodes in chunks; the mask of a chunk lies in the right corner of the matrix, or in the wrong one."""

    def __init__(self, right: bool):
        super().__init__()
        self.embedding, self.qkv, self.right = nn.Embedding(V, D), nn.Linear(D, 3 * D), right

    def forward(self, input_ids, past_key_values=None, use_cache=False):
        q, k, v = self.qkv(self.embedding(input_ids)).chunk(3, -1)
        if past_key_values is not None:
            k, v = (torch.cat(pair, 1) for pair in zip(past_key_values, (k, v)))
        m, n = q.shape[1], k.shape[1]
        seen = torch.ones(m, n, dtype=torch.bool).tril(n - m if self.right or m == 1 else 0)
        output = Output(logits=F.scaled_dot_product_attention(q, k, v, attn_mask=seen))
        output.past_key_values = (k, v)
        return output


class OneHot(nn.Module):
    """Tokens without an embedding module."""

    def __init__(self, weight: float):
        super().__init__()
        self.table, self.weight = nn.Parameter(torch.randn(V, D)), weight

    def forward(self, ids):
        x = F.one_hot(ids, V).to(self.table) @ self.table
        return x.cumsum(-2) + self.weight * x.mean(-2, keepdim=True)


class InPlace(Positions):
    def forward(self, x):
        x += self.table[: x.shape[-2]]
        return x


class OwnInput(nn.Module):
    """Spoils its input."""

    def forward(self, x):
        return x.mul_(2).cumsum(-2)


class SingleFourier(LongConv):
    """Float32 inside, whatever comes."""

    def forward(self, x):
        n = x.shape[-2]
        kernel = (self.c * self.b * self.a ** torch.arange(n)[:, None]).float()
        y = torch.fft.rfft(x.float(), n=2 * n, dim=-2) * torch.fft.rfft(kernel, n=2 * n, dim=-2)
        return torch.fft.irfft(y, n=2 * n, dim=-2)[..., :n, :].to(x.dtype)


class MaskOnce(Attention):
    """Keeps the mask of its first call, and cuts it."""

    kept: Tensor | None = None

    def later(self, n):
        if self.kept is None or len(self.kept) < n:
            self.kept = super().later(n)
        return self.kept[:n, :n]


class AlibiFromTheEnd(Attention):
    """The distance to the last row in place of that to the query: softmax does not see the difference."""

    def mask(self, scores):
        n = scores.shape[-1]
        return super().mask(scores + 0.5 * (torch.arange(n) - (n - 1)))


class Doubling(nn.Module):
    """The running sum in log n steps."""

    def forward(self, x):
        for k in range((x.shape[-2] - 1).bit_length()):
            x = x + F.pad(x, (0, 0, 2**k, 0))[..., : x.shape[-2], :]
        return x


class PlainTable(nn.Module):
    """A table in an attribute, which no change of precision reaches."""

    def __init__(self):
        super().__init__()
        self.table, self.attention = torch.randn(32, D), Attention()

    def forward(self, x):
        return self.attention(x * self.table[: x.shape[-2]].cos())


class OtherKernel(nn.Module):
    """Rounds differently when there is padding, as another kernel does."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(V, D)

    def forward(self, input_ids, attention_mask=None):
        y = self.embedding(input_ids)
        padded = attention_mask is not None and bool((attention_mask == 0).any())
        return y * (1 + 300 * torch.finfo(y.dtype).eps * padded)


class Best(Decoder):
    """The best token of each row: whole numbers."""

    def forward(self, ids):
        return super().forward(ids).argmax(-1)


def t5() -> tuple[nn.Module, dict[str, Tensor]]:
    import transformers

    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_decoder_layers": 1, "num_heads": 2}
    config = transformers.T5Config(vocab_size=V, pad_token_id=0, decoder_start_token_id=0, **sizes)
    return transformers.T5ForConditionalGeneration(config), {"input_ids": tokens(5), "decoder_input_ids": tokens()}


def left_padded(model: nn.Module) -> tuple[nn.Module, dict[str, Tensor]]:
    """With what a tokenizer gives for sentences of several lengths."""
    ids = tokens()
    mask = torch.ones_like(ids)
    mask[0, :3], mask[1, :2] = 0, 0
    return model, {"input_ids": ids, "attention_mask": mask}


PLANTED += [
    Case("scores times the mask", decoder(TimesMask, "attention"), "blocks.1.attention", "mask missing"),
    Case("prefix without a mask", decoder(Prefix, "attention"), "blocks.1.attention", "prefix"),
    Case("normalize along the default axis", decoder(f(lambda x: F.normalize(x)), "norm1"), "blocks.1.norm1", "normalization over the sequence"),
    Case("layer norm over rows and channels", lambda: (nn.Sequential(nn.Linear(D, D), nn.LayerNorm((N, D))), rows()), "1", "normalization"),
    Case("softmax over the batch", lambda: (nn.Sequential(nn.Linear(D, D), nn.Softmax(0)), rows()), "1", "sequences of a batch are mixed", "batch"),
    Case("rotary base by n", decoder(DynamicRotary, "attention"), "blocks.1.attention", "number of rows", "length"),
    Case("experts with room by n", alone(lambda: Switch(lambda n: math.ceil(0.4 * n))), "", "number of rows", "length"),
    Case("experts with room for the batch", alone(lambda: Switch(lambda n: 3, True)), "", "mixed", "batch"),
    Case("convolution trimmed on the left", decoder(TrimmedWrong), "blocks.1.mix", "an offset: each row sees 2 rows ahead (convolution padding"),
    Case("a mean in one memory", alone(lambda: OneMemory(1.0)), "", ""),
    Case("blocks aligned at the end", decoder(lambda: InFours(True)), "blocks.1.mix", "number of rows", "length"),
    Case("masks for heads, in the wrong order", lambda: (HeadMasks(False), tokens()), "attention", "padding", "padding"),
    Case("mask of a chunk in the wrong corner", lambda: (Chunked(False), tokens()), None, "", "cache"),
    Case("one-hot tokens and a millionth of the mean", lambda: (OneHot(1e-6), tokens()), "", "pooling"),
    Case("in training, a billionth, with dropout", decoder(lambda: Trainly(lambda x: F.dropout(x, 0.3) + 1e-9 * x.std(-2, keepdim=True))), "blocks.1.mix", "pooling", setting="train"),
]
CLEAN += [
    Case("experts with room for three", decoder(lambda: Switch(lambda n: 3))),
    Case("running sums in one memory", alone(lambda: OneMemory(0.0))),
    Case("blocks aligned at the start", decoder(lambda: InFours(False))),
    Case("masks for heads", lambda: (HeadMasks(True), tokens())),
    Case("mask of a chunk", lambda: (Chunked(True), tokens())),
    Case("one-hot tokens", lambda: (OneHot(0.0), tokens())),
    Case("positions added in place", with_positions(InPlace)),
    Case("spoils its input", alone(OwnInput)),
    Case("Fourier transform in float32", decoder(SingleFourier)),
    Case("keeps its mask", decoder(MaskOnce, "attention")),
    Case("ALiBi from the end", decoder(AlibiFromTheEnd, "attention")),
    Case("running sum by doubling", decoder(Doubling)),
    Case("table in an attribute", decoder(PlainTable)),
    Case("another kernel for padding", lambda: (OtherKernel(), tokens())),
    Case("whole numbers", lambda: (Best(), tokens())),
    Case("complex numbers", alone(lambda: Fn(lambda x: torch.polar(x.cumsum(-2).tanh().abs() + 0.1, x)))),
    Case("dropout of whole rows", decoder(lambda: nn.Sequential(nn.Linear(D, D), nn.Dropout1d(0.4)))),
    Case("T5", t5),
    Case("a left-padded batch", lambda: left_padded(hugging_face("GPT2", n_positions=32, n_embd=16, n_layer=2, n_head=2)()[0])),
    Case("a left-padded batch whose padding sees all", lambda: left_padded(WithPadding(LeastNumber()))),
]


# --- The family since Llama


class WindowOf(Attention):
    """Row i sees the `back` rows that end `ahead` rows after it."""

    def __init__(self, back: int, ahead: int = 0):
        super().__init__()
        self.back, self.ahead = back, ahead

    def later(self, n):
        ones = torch.ones(n, n, dtype=torch.bool)
        return ones.triu(1 + self.ahead) | ones.tril(self.ahead - self.back)


class Grouped(Attention):
    """Four heads of queries, two of keys and values; head i reads the one that `mapping` says."""

    def __init__(self, mapping: Callable[[int], int]):
        super().__init__(heads=4)
        self.mapping = mapping

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = map(self.split, self.qkv(x).chunk(3, -1))
        read = [self.mapping(i) for i in range(4)]
        weights = self.weights(q @ k[..., read, :, :].mT / math.sqrt(q.shape[-1]))
        return self.out((weights @ v[..., read, :, :]).transpose(-2, -3).flatten(-2))


class RotaryCache(nn.Module):
    """One rotary head, and a step function that keeps the rotated keys; `queries` and `keys`: by how much the step miscounts."""

    def __init__(self):
        super().__init__()
        self.embedding, self.qkv, self.head = nn.Embedding(V, D), nn.Linear(D, 3 * D), nn.Linear(D, V)

    def turned(self, x: Tensor, at: Tensor) -> Tensor:
        angle = at[:, None] / 10.0 ** torch.arange(D // 2)
        a, b = x.chunk(2, -1)
        return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)

    def read(self, ids: Tensor, kept: tuple[Tensor, Tensor] | None = None, queries: int = 0, keys: int = 0) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        q, k, v = self.qkv(self.embedding(ids)).chunk(3, -1)
        at = torch.arange(ids.shape[1]) + (0 if kept is None else kept[0].shape[1])
        q, k = self.turned(q, at + queries), self.turned(k, at + keys)
        if kept is not None:
            k, v = (torch.cat(pair, 1) for pair in zip(kept, (k, v)))
        scores = q @ k.mT
        later = torch.arange(k.shape[1]) > at[:, None]
        return self.head(scores.masked_fill(later, -math.inf).softmax(-1) @ v), (k, v)

    def forward(self, ids: Tensor) -> Tensor:
        return self.read(ids)[0]


def rotary_cache(queries: int, keys: int):
    model = RotaryCache()
    return model, tokens(), {"step": lambda ids, kept: model.read(ids, kept, queries, keys)}


class Experts(MixtureOfExperts):
    def weigh(self, x: Tensor, weights: Tensor) -> Tensor:
        """The results of all experts, with these weights."""
        return sum(weights[..., e : e + 1] * self._expert(e, x.flatten(0, -2)).view_as(x) for e in range(self.n_experts))


class ExpertsChoose(Experts):
    """The book's experts, but each expert takes half of the rows: those that it likes best, of the whole sequence."""

    def forward(self, x):
        logits = self.router(x)
        best = logits.topk((x.shape[-2] + 1) // 2, -2).values[..., -1:, :]
        return self.weigh(x, logits.softmax(-1) * (logits >= best))


class RoomForTheBatch(Experts):
    """The book's experts, but each takes at most five rows of the batch, the first ones."""

    def forward(self, x):
        rows_ = x.flatten(0, -2)
        logits = self.router(rows_)
        chosen = F.one_hot(logits.argmax(-1), self.n_experts)
        fits = (chosen > 0) & (chosen.cumsum(0) <= 5)
        return self.weigh(rows_, fits).view_as(x)


class WeightsOverRows(Experts):
    """The book's experts, but the router's softmax runs over the rows."""

    def forward(self, x):
        return self.weigh(x, self.router(x).softmax(-2))


FAMILY = {  # small sizes for the presets since Llama
    "llama": {},
    "qwen2": {"n_kv_heads": 2},
    "qwen3": {"n_kv_heads": 2, "d_head": 4},
    "mistral": {"n_kv_heads": 2, "window": 3},
    "mixtral": {"n_kv_heads": 2, "n_experts": 4},
    "gemma": {"n_kv_heads": 1, "d_head": 4},
}


def of_the_family(name: str) -> Callable[[], tuple[nn.Module, Tensor]]:
    sizes = {"d_model": D, "d_ff": 16, "n_layers": 2, "n_heads": 4, "max_len": 16} | FAMILY[name]
    return lambda: (TransformerLM(getattr(Config, name)(V, **sizes)), tokens())


PLANTED += [
    Case("a window that reaches one row ahead", decoder(lambda: WindowOf(4, 1), "attention"), "blocks.1.attention", "1 row ahead"),
    Case("a cache with keys turned one place too far", lambda: rotary_cache(0, 1), None, "", "cache"),
    Case("a cache with queries turned one place too far", lambda: rotary_cache(1, 0), None, "", "cache"),
    Case("experts choose their rows", decoder(lambda: ExpertsChoose(D, 12, 3)), "blocks.1.mix", "dispatch"),
    Case("router's softmax over the rows", decoder(lambda: WeightsOverRows(D, 12, 3)), "blocks.1.mix", "softmax over the sequence axis"),
    Case("room for five rows of the batch", alone(lambda: RoomForTheBatch(D, 12, 2)), "", "sequences of a batch are mixed", "batch"),
]
CLEAN += [  # the first five are not what was meant, but none of them looks ahead
    Case("a window one row too short", decoder(lambda: WindowOf(2), "attention")),
    Case("a window one row too long", decoder(lambda: WindowOf(4), "attention")),
    Case("shared heads, dealt out in turn", decoder(lambda: Grouped(lambda i: i % 2), "attention")),
    Case("shared heads, all queries on one", decoder(lambda: Grouped(lambda i: 0), "attention")),
    Case("a cache that counts from one: only distances matter", lambda: rotary_cache(1, 1)),
    Case("shared heads", decoder(lambda: Grouped(lambda i: i // 2), "attention")),
    Case("a cache with angles", lambda: rotary_cache(0, 0)),
    *(Case(f"this book's {name}", of_the_family(name)) for name in FAMILY),
]


# --- Causes that are easily confused: a weak mask, no mask, an average


class BlockSparse(Attention):
    """Blocks of `size` rows; one row, `shared`, is seen by all; no order anywhere; a loud copy of the row before, if wanted."""

    def __init__(self, size: int, shared: int = -1, loud: float = 0.0):
        super().__init__()
        self.size, self.shared, self.loud = size, shared, loud

    def later(self, n):
        block = torch.arange(n) // self.size
        return (block[:, None] != block[None]) & (torch.arange(n) != self.shared)

    def forward(self, x):
        return super().forward(x) + self.loud * F.pad(x, (0, 0, 1, 0))[..., :-1, :]


class Near(Attention):
    """One head, no order: near rows are preferred, and a row sees those in its block of `size`, in its stride, or in its band."""

    def __init__(self, kind: str, size: int, slope: float = 0.5):
        super().__init__(heads=1)
        self.kind, self.size, self.slope = kind, size, slope

    def mask(self, scores):
        i = torch.arange(scores.shape[-1])
        apart, block = (i[:, None] - i).abs(), i // self.size
        hidden = {"block": block[:, None] != block, "stride": apart % self.size > 0, "band": apart > self.size}
        return (scores - self.slope * apart).masked_fill(hidden[self.kind], -math.inf)


class Fused(Attention):
    """The kernel of torch, with a mask of our own or none."""

    def __init__(self, penalty: float | None):
        super().__init__()
        self.penalty = penalty

    def forward(self, x):
        q, k, v = map(self.split, self.qkv(x).chunk(3, -1))
        mask = None if self.penalty is None else self.penalty * self.later(x.shape[-2]).to(x)
        return self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(-2, -3).flatten(-2))


class Centred(Attention):
    """Right but for what comes before it: from each row a little of the mean of all rows is taken."""

    def __init__(self, weight: float):
        super().__init__()
        self.weight = weight

    def forward(self, x):
        return super().forward(x - self.weight * x.mean(-2, keepdim=True))


class TurnedRound(Attention):
    """Hides the rows before, not those after."""

    def later(self, n):
        return super().later(n).mT


class CappedAfter(Attention):
    """Caps the scores after the mask, and so the mask."""

    def weights(self, scores):
        return (3 * torch.tanh(self.mask(scores) / 3)).softmax(-1)


class SqueezeExcite(nn.Module):
    """Each channel is scaled by what the mean of the rows says."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(D, D)

    def forward(self, x):
        return x * self.gate(x.mean(-2, keepdim=True)).sigmoid()


class WindowWeak(Weak):
    """A window of three rows, hidden well; the later rows hidden badly."""

    def mask(self, scores):
        return super().mask(scores).masked_fill(torch.ones_like(scores, dtype=torch.bool).tril(-3), -math.inf)


PLANTED += [
    *(Case(f"blocks of {size} without order", decoder(lambda size=size: BlockSparse(size), "attention"), "blocks.1.attention", f"blocks of {size}") for size in (2, 4)),
    Case("blocks without order and a shared row", decoder(lambda: BlockSparse(3, 4), "attention"), "blocks.1.attention", "mask missing for"),
    Case("blocks without order beside a loud copy", decoder(lambda: BlockSparse(3, -1, 1e4), "attention"), "blocks.1.attention", "blocks of 3"),
    Case("blocks and a shared row beside a loud copy", decoder(lambda: BlockSparse(3, 4, 1e4), "attention"), "blocks.1.attention", "mask missing for"),
    *(Case(f"blocks of {size} that prefer what is near", decoder(lambda size=size: Near("block", size), "attention"), "blocks.1.attention", f"blocks of {size}") for size in (2, 3)),
    *(Case(f"one row in {size}, without order", decoder(lambda size=size, slope=slope: Near("stride", size, slope), "attention"), "blocks.1.attention", "mask missing for") for size, slope in ((2, 0.0), (3, 0.5), (4, 0.5))),
    Case("a band without order", decoder(lambda: Near("band", 2), "attention"), "blocks.1.attention", "each row sees 2 rows ahead"),
    Case("no mask, near rows preferred", decoder(lambda: Near("band", 99), "attention"), "blocks.1.attention", "mask missing"),
    Case("torch's kernel without a mask", decoder(lambda: Fused(None), "attention"), "blocks.1.attention", "mask missing"),
    Case("torch's kernel with a mask of −12", decoder(lambda: Fused(-12.0), "attention"), "blocks.1.attention", "mask too weak"),
    Case("window with a mask of −20", decoder(lambda: WindowWeak(-20.0), "attention"), "blocks.1.attention", "mask too weak"),
    Case("mask turned round", decoder(TurnedRound, "attention"), "blocks.1.attention", "mask turned round"),
    Case("scores capped after the mask", decoder(CappedAfter, "attention"), "blocks.1.attention", "mask too weak"),
    Case("channels scaled by a mean", decoder(SqueezeExcite), "blocks.1.mix", "averages over the sequence"),
    Case("a mean taken off before attention", decoder(lambda: Centred(1.0), "attention"), "blocks.1.attention", "averages over the sequence"),
    Case("a ten-thousandth of the mean before attention", decoder(lambda: Centred(1e-4), "attention"), "blocks.1.attention", "averages over the sequence"),
    Case("a millionth of the mean before attention", decoder(lambda: Centred(1e-6), "attention"), "blocks.1.attention", "averages over the sequence"),
]

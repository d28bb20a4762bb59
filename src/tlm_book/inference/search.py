"""Writing token by token: one loop, one beam search. Generated from book/inference.ipynb: edit the notebook, then `make export`."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tlm_book.checks import expects, expects_numbers, expects_positive
from tlm_book.inference.cache import CachedModel
from tlm_book.inference.sampling import Sampler, expects_finite, window
from tlm_book.transformer_lm import TransformerLM

__all__ = [
    "Scorer",
    "write",
    "TextReader",
    "Hypothesis",
    "Reader",
    "beams",
]


# --- Drawing and writing


Scorer = Callable[[Int[Tensor, "B"]], Float[Tensor, "B V"]]


def write(
    step: Scorer,
    z: Float[Tensor, "B V"],
    n_new: int,
    sampler: Sampler,
    stop: Sequence[int] = (),
    generator: torch.Generator | None = None,
    seen: Bool[Tensor, "B V"] | None = None,
) -> Iterator[Int[Tensor, "B"]]:
    """The new tokens of all texts, step by step, until each text is over. (T-sampling,
    T-stop)

    z are the scores after the texts; `step` maps one token of each to the next
    scores. A text that is over repeats its last token. `seen` is true for tokens of
    the text and is kept up to date. Errors as in `Sampler.draw`.
    """
    ends = torch.tensor(stop, dtype=torch.long, device=z.device)
    over = torch.zeros(len(z), dtype=torch.bool, device=z.device)
    token = over.long()
    for k in range(n_new):
        drawn = sampler.draw(step(token) if k else z, seen, generator)
        token = torch.where(over, token, drawn) if stop else drawn
        if seen is not None:
            seen.scatter_(1, token[:, None], True)
        yield token
        if stop:
            over = over | torch.isin(token, ends)
            if bool(over.all()):
                return


class TextReader:
    """A model and the texts that it reads: from the cache as long as they fit, then
    through the window. (T-window, T-overflow)
    """

    def __init__(
        self,
        model: TransformerLM,
        texts: Sequence[Int[Tensor, "_"]],
        start: int | None = None,
        compile: bool = False,
        products: str = "auto",
        weights: str | None = None,
    ) -> None:
        self.model = CachedModel(model, compile, products=products, weights=weights)
        self.texts, self.start = texts, start
        self.new: list[Tensor] = []  # one token of each text

    def read(self) -> Float[Tensor, "B V"]:
        """The scores after the texts as they are now, with all rows computed anew."""
        M, start = self.model.config.max_len, self.start
        none = self.texts[0].new_zeros(len(self.texts), 0)
        added = torch.stack(self.new, 1) if self.new else none
        whole = [torch.cat(pair) for pair in zip(self.texts, added)]
        return self.model.read([window(text, M, start) for text in whole])

    def step(self, token: Int[Tensor, "B"]) -> Float[Tensor, "B V"]:
        """The scores after one more token of each text."""
        self.new.append(token)
        if max(self.model.lengths) < self.model.config.max_len:
            return self.model.step(token)
        return self.read()


# --- Several beginnings at once


class Hypothesis(NamedTuple):
    """A continuation, the logarithm of its probability, and its value."""

    tokens: Int[Tensor, "_"]
    log_p: float
    value: float


@runtime_checkable
class Reader(Protocol):
    """A reader of several texts side by side, one more token of each at a time."""

    def step(self, token: Int[Tensor, "B"]) -> Float[Tensor, "B V"]:
        """The scores after one more token of each text."""

    def select(self, texts: Int[Tensor, "b"]) -> None:
        """Go on with these texts, in this order; one may come twice."""


@torch.no_grad()
def beams(
    reader: Reader,
    z: Float[Tensor, "B V"],
    n_new: int,
    width: int,
    length_penalty: float = 0.0,
    stop: Sequence[int] = (),
) -> list[list[Hypothesis]]:
    """For each text at most `width` continuations by at most n_new tokens, the best
    first; z are the scores after the texts. (T-beam-text)

    value = log P / |y|^length_penalty. ValueError for a width or n_new below 1, for a
    length_penalty that is negative, not finite or so large that n_new^length_penalty
    is 2^1000 or more, and for scores that are not finite.
    """
    expects_positive(width=width, n_new=n_new)
    expects_numbers(length_penalty=length_penalty)
    exponent = length_penalty * math.log2(n_new)
    fine = 0 <= length_penalty < math.inf and exponent < 1000
    wants = f"a finite number ≥ 0 with {n_new}^length_penalty < 2^1000"
    expects(fine, "length_penalty", length_penalty, wants)
    B, V = z.shape
    first = torch.arange(B, device=z.device)[:, None]
    ends = torch.tensor(stop, dtype=torch.long, device=z.device)
    log_p = z.new_zeros(B, 1, dtype=torch.float64)  # of each hypothesis
    over, length = log_p.bool(), log_p.clone()
    y = log_p.long().new_zeros(B, 1, 0)
    for step in range(n_new):
        expects_finite(z.amax(-1))
        gain = z.double().log_softmax(-1).view(B, -1, V)
        gain[over] = -math.inf
        gain[..., 0][over] = 0  # a hypothesis that is over stays as it is: one candidate
        log_p = (log_p[..., None] + gain).flatten(1)
        length = (length + ~over).repeat_interleave(V, 1)
        value = log_p / length**length_penalty
        value, best = value.sort(dim=-1, descending=True, stable=True)
        k = min(width, int((value > -math.inf).sum(1).max()))
        value, best = value[:, :k], best[:, :k]
        log_p, length = log_p.gather(1, best), length.gather(1, best)
        parent, token = best // V, best % V
        y, over = y[first, parent], over.gather(1, parent)
        token = torch.where(over, y[..., -1], token) if step else token
        y = torch.cat((y, token[..., None]), -1)
        over = over | torch.isin(token, ends)
        bound = log_p / float(n_new) ** length_penalty
        bound = bound.masked_fill(over, -math.inf)
        done = over[:, :1] & (value[:, :1] >= bound).all(1, keepdim=True)
        if bool(done.all()) or step == n_new - 1:
            break
        over = over | done  # a beam that is done stays as it is
        reader.select((first * gain.shape[1] + parent).flatten())
        z = reader.step(token.flatten())
    return [
        [
            Hypothesis(y_i[: int(n)], float(p), float(v))
            for y_i, n, p, v in zip(*found)
            if v > -math.inf
        ]
        for found in zip(y, length, log_p, value)
    ]

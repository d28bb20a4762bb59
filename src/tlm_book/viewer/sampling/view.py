"""Drawing the next token: temperature, top-k and top-p on a given distribution, and draws to compare with it. Written by hand."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import traitlets
from jaxtyping import Float64

from tlm_book.checks import expects
from tlm_book.viewer.base import (
    Picture,
    bdi,
    expects_strings,
    module,
    number_between,
    scores_of,
    shown_title,
    softmax,
    table,
    visible,
    weight_bar,
    whole_between,
)  # fmt: skip
from tlm_book.viewer.drawn import bars

__all__ = ["Sampling", "sampling"]

MAX_TOKENS, MAX_DRAWS = 4096, 100_000
LOWEST, HIGHEST = 0.1, 10.0  # of the temperature


class Sampling(Picture):
    """The picture that `sampling` returns. The reader's choices: `temperature` τ, `top_k`, `top_p`, and `draws`, the number of draws.
    """

    _esm = module("sampling", "choice")
    _word = "sampling"
    temperature = traitlets.Float(1.0).tag(sync=True, picture=True)
    top_k = traitlets.Int(1).tag(sync=True, picture=True)
    top_p = traitlets.Float(1.0).tag(sync=True, picture=True)
    draws = traitlets.Int(0).tag(sync=True, picture=True)

    @traitlets.validate("temperature", "top_k", "top_p", "draws")
    def _in_range(self, proposal: Mapping[str, Any]) -> float:
        return self._in(proposal, temperature=(LOWEST, HIGHEST), top_k=(1, len(self.data["scores"])), top_p=(0.01, 1.0), draws=(0, MAX_DRAWS))

    def __repr__(self) -> str:
        V = len(self.data["scores"])
        return f"<sampling from {V} tokens: temperature {self.temperature:g}, top_k {self.top_k}, top_p {self.top_p:g}; {self.draws} drawn>"

    def _fallback(self) -> str:
        data, z = self.data, np.array(self.data["scores"])
        before = softmax(z)
        after, sums = _after(z, self.temperature, self.top_k, self.top_p)
        n = data["shown"]
        rows = [[bdi(data["tokens"][j]), weight_bar(before[j], 16), weight_bar(after[j], 16), f"{sums[j]:.3f}"] for j in range(n)]
        if n < len(z):
            rows.append([f"the other {len(z) - n:,}", weight_bar(before[n:].sum(), 16), weight_bar(after[n:].sum(), 16), "1.000"])
        what = f"temperature {self.temperature:g}, top-k {self.top_k:,}, top-p {self.top_p:g}"
        heads = ["next token", "the model's probability", "after", "sum so far"]
        return table(f"{data['title'] or 'Which token comes next'}: probabilities before and after {what}.", heads, rows)


    def _figure(self) -> Any:
        data, z = self.data, np.array(self.data["scores"])
        after, _ = _after(z, self.temperature, self.top_k, self.top_p)
        n = data["shown"]
        rest = ["the others"] if n < len(z) else []
        groups = {"the model's probability": softmax(z), f"temperature {self.temperature:g}, top-k {self.top_k}, top-p {self.top_p:g}": after}
        weights = {label: [*p[:n].tolist(), *[float(p[n:].sum())] * len(rest)] for label, p in groups.items()}
        return bars(data["title"], [*data["tokens"][:n], *rest], weights)


def sampling(
    scores: Any,
    tokens: Sequence[str],
    *,
    probabilities: bool = False,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    seed: int = 0,
    shown: int = 12,
    title: str | None = None,
) -> Sampling:
    """A next-token distribution as bars, with sliders for temperature, top-k and top-p, and buttons that draw from it.

    scores         V numbers, 1 ≤ V ≤ 4096: a model's last row of scores z. A list, an array or a torch tensor.
    tokens         the V tokens' texts.
    probabilities  True: `scores` are probabilities (their sum is taken as 1); tokens of probability 0 are left out.
    temperature    τ at first, from 0.1 to 10.
    top_k, top_p   their values at first, from 1 to the number of tokens that have a probability, and from 0.01 to 1; None keeps all
                   tokens, 1.0 all mass.
    seed           seed of the draws, from 0 to 2³² − 1: s ← 1664525·s + 1013904223 modulo 2³², u = s / 2³².
    shown          how many of the likeliest tokens have a bar of their own, from 1 to 64.
    title          a line above the picture.

    The tokens stand in the order of their scores, equal ones in the given order. Of p = softmax(z/τ), the first k are
    kept and divided by their sum; of these, the shortest beginning whose sum reaches top_p is kept and again divided by its
    sum. The draw for u is the first token at which the cumulative sums of these exceed u. The page holds each score minus the
    largest, to four digits after the point, so its probabilities are right up to a factor of e^(±0.0001/τ).

    Raises TypeError and ValueError for scores that are not finite real numbers, another number of tokens, or a choice outside
    its range.

    >>> sampling([2.0, 1.0, 0.0], ["mat", "rug", "dog"], top_k=2)
    <sampling from 3 tokens: temperature 1, top_k 2, top_p 1; 0 drawn>
    """
    title = shown_title(title)
    tau = number_between("temperature", temperature, LOWEST, HIGHEST)
    seed = whole_between("seed", seed, 0, 2**32 - 1)
    names = expects_strings("tokens", tokens)
    z = _scores(scores, probabilities)
    expects(len(names) == len(z), "tokens", f"{len(names)} of them", f"{len(z)}, one for each score")
    order = [j for j in np.argsort(-z, kind="stable") if z[j] > -np.inf]
    k = whole_between("top_k", len(order) if top_k is None else top_k, 1, len(order))
    p = number_between("top_p", top_p, 0.01, 1.0)
    shown = whole_between("shown", shown, 1, 64)
    data = {
        "scores": [round(float(z[j] - z[order[0]]), 4) + 0.0 for j in order], "tokens": [visible(names[j]) for j in order],
        "seed": seed, "shown": min(shown, len(order)), "title": title,
    }  # fmt: skip
    return Sampling(data=data, temperature=tau, top_k=k, top_p=p)


def _scores(scores: Any, probabilities: bool) -> Float64[np.ndarray, "V"]:
    """The scores in float64; for probabilities, their logarithms, with −∞ for 0."""
    z = scores_of(scores, MAX_TOKENS, "V")
    if not probabilities:
        return z
    expects(bool((z >= 0).all()) and z.sum() > 0, "scores", "probabilities below 0 or all 0", "probabilities")
    with np.errstate(divide="ignore"):
        return np.log(z)


def _after(
    z: Float64[np.ndarray, "V"], tau: float, k: int, p: float
) -> tuple[Float64[np.ndarray, "V"], Float64[np.ndarray, "V"]]:
    """The distribution from which tokens are drawn, and the cumulative sums by which top-p decides; z must be in decreasing order."""
    kept = softmax(z, tau) * (np.arange(len(z)) < k)
    sums = np.cumsum(kept / kept.sum())
    if p < 1:
        kept = kept * (np.concatenate(([0.0], sums[:-1])) < p)
    return kept / kept.sum(), sums

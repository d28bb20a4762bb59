"""Softmax under a temperature, and why scores are divided by the root of the width, shown by bars. Written by hand."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import traitlets
from jaxtyping import Float64

from tlm_book.checks import expects, is_whole
from tlm_book.viewer.base import (
    Picture,
    bdi,
    expects_strings,
    module,
    number,
    number_between,
    scores_of,
    shown_title,
    softmax,
    table,
    visible_line,
    weight_bar,
    whole_between,
)  # fmt: skip
from tlm_book.viewer.drawn import bars
from tlm_book.viewer.style import BLUE, RED

__all__ = ["SoftmaxTemperature", "softmax_temperature"]

MAX_SCORES, MAX_WIDTHS = 64, 24
LOWEST, HIGHEST = 0.01, 100.0  # of the temperature


class SoftmaxTemperature(Picture):
    """The picture that `softmax_temperature` returns: `temperature` is τ, `width` is d if the scores are given for widths.
    """

    _esm = module("softmax_temperature")
    _word = "softmax"
    temperature = traitlets.Float(1.0).tag(sync=True, picture=True)
    width = traitlets.Int(0).tag(sync=True, picture=True)

    @traitlets.validate("temperature", "width")
    def _in_range(self, proposal: Mapping[str, Any]) -> float:
        name, got = proposal["trait"].name, proposal["value"]
        if name == "temperature":
            return self._in(proposal, temperature=(LOWEST, HIGHEST))
        widths = [d for d, _ in self.data["scores"]]
        expects(got in widths, name, got, f"one of the widths {widths}" if widths[0] else "no width for scores without one")
        return got

    def __repr__(self) -> str:
        n = len(self.data["labels"])
        by_width = self.data["scores"][0][0] > 0
        return f"<softmax of {n} scores, {f'width {self.width}' if by_width else f'temperature {self.temperature:g}'}>"

    def _fallback(self) -> str:
        s = np.array(dict(self.data["scores"])[self.width])
        labels, d = self.data["labels"], self.width
        taus = [1.0, float(np.sqrt(d))] if d else [1.0, self.temperature] if self.temperature != 1 else [0.5, 1.0, 2.0]
        heads = ["softmax(s)", f"softmax(s/√{d})"] if d else [f"softmax(s/{t:g})" for t in taus]
        weights = [softmax(s, t) for t in taus]
        rows = [
            [bdi(label), number(float(s[i])), *(weight_bar(float(w[i]), 12) for w in weights)] for i, label in enumerate(labels)
        ]
        what = f"Scores s of width {d}, as they are and divided by √{d}" if d else "Scores s and their softmax at a few temperatures"
        return table(f"{self.data['title'] or what}.", ["", "s", *heads], rows)


    def _figure(self) -> Any:
        s, d = dict(self.data["scores"])[self.width], self.width
        taus = {f"softmax(s/√{d})": math.sqrt(d)} if d else {f"softmax(s/{self.temperature:g})": self.temperature}
        weights = {label: softmax(np.array(s), tau).tolist() for label, tau in ({"softmax(s)": 1.0} | taus).items()}
        return bars(self.data["title"], self.data["labels"], weights, (RED, BLUE) if d else (BLUE, RED))


def softmax_temperature(
    scores: Any,
    *,
    labels: Sequence[str] | None = None,
    temperature: float = 1.0,
    width: int | None = None,
    title: str | None = None,
) -> SoftmaxTemperature:
    """The weights softmax(s/τ) of scores s as bars, with a slider for the temperature τ; or the same for scores of several widths.

    scores       n numbers, 1 ≤ n ≤ 64: the bars are softmax(s/τ) and a slider moves τ from 0.01 to 100. Or a mapping from
                 widths d ≥ 1 to n numbers each, say the inner products of a query with n keys in ℝ^d: a slider chooses d,
                 and softmax(s) stands beside softmax(s/√d). An array, a torch tensor or a list. The page holds each score to
                 nine significant digits.
    labels       n names for the bars; by default, numbers.
    temperature  τ at first.
    width        d at first; by default, the smallest.
    title        a line above the picture.

    Raises TypeError (scores that are not real numbers, labels that are not strings, …) and ValueError (a wrong number of
    them, scores not finite, τ or d outside their range).

    >>> softmax_temperature([2.0, 1.0, 0.0], labels=["mat", "rug", "dog"])
    <softmax of 3 scores, temperature 1>
    >>> softmax_temperature({1: [0.5, -0.2], 100: [12.0, -3.0]}, width=100)
    <softmax of 2 scores, width 100>
    """
    title = shown_title(title)
    tau = number_between("temperature", temperature, LOWEST, HIGHEST)
    if isinstance(scores, Mapping):
        expects(1 <= len(scores) <= MAX_WIDTHS, "scores", f"{len(scores)} widths", f"from 1 to {MAX_WIDTHS}")
        by_width = {whole_between("scores: a width", d, 1, 1_000_000): row for d, row in scores.items()}
        given: list[list[Any]] = [[d, _scores(by_width[d])] for d in sorted(by_width)]
        width = given[0][0] if width is None else width
        expects(is_whole(width) and width in by_width, "width", width, f"one of {sorted(by_width)}")
    else:
        expects(width is None, "width", width, "none: these scores have no width")
        given, width = [[0, _scores(scores)]], 0
    n = len(given[0][1])
    for d, s in given:
        expects(len(s) == n, "scores", f"{len(s)} numbers for width {d}", f"{n}, as for width {given[0][0]}")
    names = [str(i) for i in range(n)] if labels is None else expects_strings("labels", labels)
    expects(len(names) == n, "labels", f"{len(names)} names", f"{n}, one for each score")
    data = {"scores": given, "labels": [visible_line(name) for name in names], "title": title}
    return SoftmaxTemperature(data=data, temperature=tau, width=int(width))


def _scores(scores: Any) -> list[float]:
    """The scores as a list, rounded to nine digits, since the last digits of a matrix product differ from machine to machine."""
    return [float(f"{x:.9g}") for x in scores_of(scores, MAX_SCORES, "n")]

"""The spread that a standardized row keeps, with ε outside and inside the root, over the spread σ. Written by hand."""

import math
from collections.abc import Mapping
from typing import Any

import traitlets

from tlm_book.viewer.base import (
    Picture,
    module,
    number,
    number_between,
    point,
    shown_title,
    svg,
    table,
    ten_to,
)
from tlm_book.viewer.drawn import graphs

__all__ = ["EpsilonSpread", "epsilon_spread"]

EPSILONS, SIGMAS = (1e-12, 1.0), (1e-12, 1e3)  # the sliders' ranges


class EpsilonSpread(Picture):
    """The picture that `epsilon_spread` returns: `epsilon` is ε and `sigma` is σ."""

    _esm = module("epsilon_spread")
    _word = "epsilon"
    epsilon = traitlets.Float(1e-6).tag(sync=True, picture=True)
    sigma = traitlets.Float(1e-3).tag(sync=True, picture=True)

    @traitlets.validate("epsilon", "sigma")
    def _in_range(self, proposal: Mapping[str, Any]) -> float:
        return self._in(proposal, epsilon=EPSILONS, sigma=SIGMAS)

    def __repr__(self) -> str:
        return f"<spread of a standardized row: ε = {self.epsilon:g}, σ = {self.sigma:g}>"

    def _fallback(self) -> str:
        e, width, height, left, bottom = self.epsilon, 480, 190, 20, 24
        low, high = (math.log10(x) for x in SIGMAS)
        x = lambda power: left + (width - left - 18) * (power - low) / (high - low)
        y = lambda value: 8 + (height - bottom - 8) * (1 - value)
        powers = [low + k * (high - low) / 60 for k in range(61)]
        shapes = [f'<path d="M{point(left, y(1))}L{point(left, y(0))}L{point(width - 18, y(0))}"/>']
        for f, colour, dash in ((_outside, "#0072b2", "none"), (_inside, "#d55e00", "7 4")):
            line = "L".join(point(x(p), y(f(10**p, e))) for p in powers)
            shapes.append(f'<path d="M{line}" stroke="{colour}" stroke-width="2.5" stroke-dasharray="{dash}"/>')
        text = '<text x="{:g}" y="{:g}" font-size="12" fill="currentColor" stroke="none" text-anchor="{}">{}</text>'
        shapes += [text.format(x(p), height - 6, "middle", ten_to(p) if p else "1") for p in range(-12, 4, 3)]
        shapes += [text.format(left - 6, y(v) + 4, "end", v) for v in (0, 1)]
        label = f"Curves over the spread σ for ε = {number(e)}: σ/(σ + ε) solid and blue, σ/√(σ² + ε) dashed and orange"
        sigmas = sorted({self.sigma, e, math.sqrt(e), 1.0})
        rows = [[number(s), f"{_outside(s, e):.6f}", f"{_inside(s, e):.6f}"] for s in sigmas]
        caption = f"{self.data['title'] or 'What a standardized row keeps of its spread'}. {label}."
        return svg(width, height, label, *shapes) + table(caption, ["spread σ", "σ/(σ + ε)", "σ/√(σ² + ε)"], rows)


    def _figure(self) -> Any:
        low, high = (math.log10(x) for x in SIGMAS)
        sigmas = [10 ** (low + k * (high - low) / 200) for k in range(201)]
        lines = {"σ/(σ + ε)": [_outside(s, self.epsilon) for s in sigmas], "σ/√(σ² + ε)": [_inside(s, self.epsilon) for s in sigmas]}
        return graphs(self.data["title"] or f"ε = {number(self.epsilon)}", "spread σ", sigmas, lines, self.sigma)


def epsilon_spread(epsilon: float = 1e-6, *, sigma: float = 1e-3, title: str | None = None) -> EpsilonSpread:
    """The spread of a standardized row as a function of the spread σ of the row: σ/(σ + ε) and σ/√(σ² + ε), with sliders for ε and σ.

    The first has ε outside the root, the second inside. Both are near 1 for a large σ and near 0 for a small one; the first
    is ½ at σ = ε, the second at σ = √(ε/3). The axis of σ is logarithmic.

    epsilon  ε at first, from 10⁻¹² to 1.
    sigma    σ at first, from 10⁻¹² to 1000.
    title    a line above the picture.

    Raises TypeError (not a number) and ValueError (outside the range).

    >>> epsilon_spread(1e-5)
    <spread of a standardized row: ε = 1e-05, σ = 0.001>
    """
    title = shown_title(title)
    epsilon = number_between("epsilon", epsilon, *EPSILONS)
    sigma = number_between("sigma", sigma, *SIGMAS)
    return EpsilonSpread(data={"title": title}, epsilon=epsilon, sigma=sigma)


def _outside(sigma: float, epsilon: float) -> float:
    return sigma / (sigma + epsilon)


def _inside(sigma: float, epsilon: float) -> float:
    return sigma / math.sqrt(sigma**2 + epsilon)

"""Sinusoidal positions as the hands of clocks: going k positions on turns each hand by its own angle. Written by hand."""

import math
from collections.abc import Mapping
from typing import Any

import traitlets

from tlm_book.checks import expects
from tlm_book.viewer.base import (
    Picture,
    module,
    number,
    number_between,
    point,
    shown_title,
    svg,
    table,
    whole_between,
)
from tlm_book.viewer.drawn import clocks

__all__ = ["ClockHands", "clock_hands"]

MAX_WIDTH = 64
RADIUS = 40  # radius of a clock in the still picture


class ClockHands(Picture):
    """The picture that `clock_hands` returns; `position` is p and `offset` is k."""

    _esm = module("clock_hands")
    _word = "clocks"
    position = traitlets.Int(0).tag(sync=True, picture=True)
    offset = traitlets.Int(0).tag(sync=True, picture=True)

    @traitlets.validate("position", "offset")
    def _in_range(self, proposal: Mapping[str, Any]) -> int:
        name, got = proposal["trait"].name, proposal["value"]
        high = self.data["max_" + name]
        low = -high if name == "offset" else 0
        expects(low <= got <= high, name, got, f"a whole number from {low} to {high}", IndexError)
        return got

    def __repr__(self) -> str:
        return f"<clock hands: {len(self.data['omega'])} frequencies; position {self.position}, offset {self.offset}>"

    def _fallback(self) -> str:
        omega, p, k = self.data["omega"], self.position, self.offset
        clocks, step, across = [], 2 * RADIUS + 14, min(len(omega), 6)
        for i, w in enumerate(omega):
            x, y = step * (i % across + 0.5), step * (i // across + 0.5)
            hands = [
                f'<path d="M{point(x, y)}L{point(x + r * math.sin(t * w), y - r * math.cos(t * w))}" stroke="{colour}" stroke-width="{thick}"/>'
                for t, r, colour, thick in ((p, 30, "#0072b2", 5), (p + k, 36, "#d55e00", 2.5))
            ]
            clocks += [f'<circle cx="{x:g}" cy="{y:g}" r="{RADIUS}"/>', *hands]
        label = f"{len(omega)} clocks; blue and thick: the hand at {p}; orange and thin: at {p + k}"
        rows = [
            [f"{i}", number(w), f"{number(k * w)} rad", *(_pair(t * w) for t in (p, p + k))]
            for i, w in enumerate(omega)
        ]
        head = ["hand", "turn a step", f"turn in {k} steps", f"(sin, cos) at {p}", f"(sin, cos) at {p + k}"]
        caption = f"{self.data['title'] or 'Positions as clock hands'}: {label}."
        height = step * math.ceil(len(omega) / across)
        return svg(step * across, height, label, *clocks) + table(caption, head, rows)


    def _figure(self) -> Any:
        return clocks(self.data["title"], self.data["omega"], self.position, self.offset)


def _pair(angle: float) -> str:
    return f"{math.sin(angle):.3f}, {math.cos(angle):.3f}".replace("-", "−")


def clock_hands(
    d_model: int = 8,
    *,
    position: int = 3,
    offset: int = 5,
    max_position: int = 100,
    max_offset: int = 50,
    base: float = 10000.0,
    title: str | None = None,
) -> ClockHands:
    """Sinusoidal positions as the hands of d_model / 2 clocks, with a slider for the position p and one for the offset k.

    Hand i points in the direction (sin ω_i·p, cos ω_i·p), the pair of coordinates 2i and 2i + 1 of the position vector, with
    ω_i = base^(−2i / d_model): the sine is how far it points to the right, the cosine how far up, so it stands at the
    angle ω_i·p clockwise from the top. The hand at p + k is the hand at p turned by k·ω_i, whatever p is; the picture
    computes both ways.

    d_model       an even number from 2 to 64.
    position      p at first, from 0 to `max_position`.
    offset        k at first, from −`max_offset` to `max_offset`.
    max_position, max_offset   the ends of the sliders, from 1 to 1,000,000.
    base          the number whose powers the frequencies are, more than 1 and at most 10¹².
    title         a line above the picture.

    Raises TypeError (numbers of another type) and ValueError (odd or too large d_model, numbers outside their range); setting
    `position` or `offset` of the picture outside its range raises IndexError.

    >>> clock_hands(6)
    <clock hands: 3 frequencies; position 3, offset 5>
    """
    title = shown_title(title)
    d = whole_between("d_model", d_model, 2, MAX_WIDTH)
    expects(d % 2 == 0, "d_model", d, "an even number: a sine and a cosine for each hand")
    max_position = whole_between("max_position", max_position, 1, 1_000_000)
    max_offset = whole_between("max_offset", max_offset, 1, 1_000_000)
    position = whole_between("position", position, 0, max_position)
    offset = whole_between("offset", offset, -max_offset, max_offset)
    expects(number_between("base", base, 1, 1e12) > 1, "base", base, "a number greater than 1")
    # Fifteen digits: the last one of a power differs from machine to machine, and the page must not.
    omega = [float(f"{float(base) ** (-2 * i / d):.15g}") for i in range(d // 2)]
    data = {"omega": omega, "max_position": max_position, "max_offset": max_offset, "title": title}
    return ClockHands(data=data, position=position, offset=offset)

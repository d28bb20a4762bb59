"""Descent on a surface: a path whose start, rule and rate the reader chooses. Written by hand."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import traitlets

from tlm_book.checks import expects, expects_one_of
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
from tlm_book.viewer.drawn import levels

__all__ = ["Descent", "descent"]

Point = tuple[float, float]

SURFACES = ("valley", "turned valley", "bent valley")
RULES = ("gradient descent", "momentum", "Adam")
MOST_STEPS = 200
RANGES = {"rate": (1e-3, 1.0), "beta": (0.0, 0.99), "steps": (0, MOST_STEPS), "x": (-3.0, 3.0), "y": (-2.0, 2.0)}  # the sliders'
LEVELS = (0.1, 0.5, 1.5, 3.5, 7.0, 13.0, 22.0, 35.0)
EPS, BETA_2 = 1e-8, 0.99  # of Adam


class Descent(Picture):
    """The picture that `descent` returns: `surface`, `rule`, `rate` η, `beta` β, `steps`, and the start `x`, `y`."""

    _esm = module("descent")
    _word = "descent"
    surface = traitlets.Unicode("valley").tag(sync=True, picture=True)
    rule = traitlets.Unicode("gradient descent").tag(sync=True, picture=True)
    rate = traitlets.Float(0.1).tag(sync=True, picture=True)
    beta = traitlets.Float(0.9).tag(sync=True, picture=True)
    steps = traitlets.Int(30).tag(sync=True, picture=True)
    x = traitlets.Float(-2.5).tag(sync=True, picture=True)
    y = traitlets.Float(1.0).tag(sync=True, picture=True)

    @traitlets.validate("surface", "rule", *RANGES)
    def _in_range(self, proposal: Mapping[str, Any]) -> Any:
        name, got = proposal["trait"].name, proposal["value"]
        if name in RANGES:
            return self._in(proposal, **RANGES)
        expects_one_of(name, got, SURFACES if name == "surface" else RULES)
        return got

    def __repr__(self) -> str:
        return f"<{self.steps} steps of {self.rule} in the {self.surface}: η = {self.rate:g}, from ({self.x:g}, {self.y:g})>"

    def _fallback(self) -> str:
        points = path(self.surface, self.rule, self.rate, self.beta, self.steps, (self.x, self.y))
        f, _, curve = SHAPES[self.surface]
        place = lambda p: point(min(max(80 * (p[0] + 3), -999), 1480), min(max(80 * (2 - p[1]), -999), 1320))
        angles = [k * math.pi / 24 for k in range(48)]
        shapes = [f'<path d="M{"L".join(place(curve(c, a)) for a in angles)}Z" opacity="0.5"/>' for c in LEVELS]
        shapes.append(f'<path d="M{"L".join(map(place, points))}" stroke="#0072b2" stroke-width="2"/>')
        x, y = place(points[0]).split()
        shapes.append(f'<circle cx="{x}" cy="{y}" r="5" stroke="#0072b2" stroke-width="2"/>')
        label = f"Level curves of the {self.surface}; a path of {len(points) - 1} steps of {self.rule} with rate {number(self.rate)}"
        shown = [t for t in (0, 1, 2, 3, 5, 10, 20, 50, 100, 200) if t < len(points) - 1] + [len(points) - 1]
        rows = [[f"{t}", number(points[t][0]), number(points[t][1]), number(f(*points[t]))] for t in shown]
        caption = f"{self.data['title'] or 'Descent on a surface'}. {label}."
        return svg(480, 320, label, *shapes) + table(caption, ["step", "across", "up", "f"], rows)


    def _figure(self) -> Any:
        curve = SHAPES[self.surface][2]
        rings = [[curve(c, k * math.pi / 96) for k in range(192)] for c in LEVELS]
        points = path(self.surface, self.rule, self.rate, self.beta, self.steps, (self.x, self.y))
        return levels(self.data["title"] or f"{self.rule} with rate {number(self.rate)}", rings, points)


def descent(
    surface: str = "valley",
    rule: str = "gradient descent",
    *,
    rate: float = 0.1,
    beta: float = 0.9,
    steps: int = 30,
    start: Point = (-2.5, 1.0),
    title: str | None = None,
) -> Descent:
    """A path of descent on a surface over the plane; the reader moves its start, its rate and its momentum, and changes the rule.

    surface  "valley", ½(x² + 16y²); "turned valley", the same turned by 45°; or "bent valley", ½(1 − x)² + 4(y + 1 − ½x²)².
    rule     "gradient descent", "momentum" (m ← βm + g, w ← w − ηm) or "Adam" (β₁ = β, β₂ = 0.99).
    rate     η at first, from 0.001 to 1.
    beta     β at first, from 0 to 0.99.
    steps    how many steps at first, from 0 to 200.
    start    a pair of numbers, the first from −3 to 3, the second from −2 to 2.
    title    a line above the picture.

    Raises TypeError (not a number, no pair) and ValueError (outside the range, another surface or rule).

    >>> descent("turned valley", "Adam", rate=0.3)
    <30 steps of Adam in the turned valley: η = 0.3, from (-2.5, 1)>
    """
    title = shown_title(title)
    expects_one_of("surface", surface, SURFACES)
    expects_one_of("rule", rule, RULES)
    expects(isinstance(start, (tuple, list)) and len(start) == 2, "start", repr(start), "a pair of numbers", TypeError)
    rate, beta = number_between("rate", rate, *RANGES["rate"]), number_between("beta", beta, *RANGES["beta"])
    steps = whole_between("steps", steps, 0, MOST_STEPS)
    x, y = (number_between("start", got, *RANGES[axis]) for axis, got in zip("xy", start))
    return Descent(data={"title": title}, surface=surface, rule=rule, rate=rate, beta=beta, steps=steps, x=x, y=y)


def path(surface: str, rule: str, rate: float, beta: float, steps: int, start: Point) -> list[Point]:
    """The points of the path, from the start on; it ends early if it diverges."""
    _, slope, _ = SHAPES[surface]
    points, m, v = [start], [0.0, 0.0], [0.0, 0.0]
    for t in range(1, steps + 1):
        if not math.hypot(*points[-1]) < 1e6:
            break
        g, moved = slope(*points[-1]), []
        for j in range(2):
            move = g[j]
            if rule == "momentum":
                move = m[j] = beta * m[j] + g[j]
            elif rule == "Adam":
                m[j] = beta * m[j] + (1 - beta) * g[j]
                v[j] = BETA_2 * v[j] + (1 - BETA_2) * g[j] ** 2
                move = m[j] / (1 - beta**t) / (math.sqrt(v[j] / (1 - BETA_2**t)) + EPS)
            moved.append(points[-1][j] - rate * move)
        points.append((moved[0], moved[1]))
    return points


def _level(c: float, a: float) -> Point:
    return math.sqrt(2 * c) * math.cos(a), math.sqrt(2 * c) / 4 * math.sin(a)


def _turned_level(c: float, a: float) -> Point:
    u, v = _level(c, a)
    return (u - v) / math.sqrt(2), (u + v) / math.sqrt(2)


def _bent_level(c: float, a: float) -> Point:
    x = 1 + math.sqrt(2 * c) * math.cos(a)
    return x, x * x / 2 - 1 + math.sqrt(c) / 2 * math.sin(a)


# {surface: its value, its slope, its level curve of height c at an angle}
SHAPES: dict[str, tuple[Callable[[float, float], float], Callable[[float, float], Point], Callable[[float, float], Point]]] = {
    "valley": (lambda x, y: (x * x + 16 * y * y) / 2, lambda x, y: (x, 16 * y), _level),
    "turned valley": (
        lambda x, y: ((x + y) ** 2 + 16 * (y - x) ** 2) / 4,
        lambda x, y: ((x + y) / 2 - 8 * (y - x), (x + y) / 2 + 8 * (y - x)),
        _turned_level,
    ),
    "bent valley": (
        lambda x, y: (1 - x) ** 2 / 2 + 4 * (y + 1 - x * x / 2) ** 2,
        lambda x, y: (x - 1 - 8 * x * (y + 1 - x * x / 2), 8 * (y + 1 - x * x / 2)),
        _bent_level,
    ),
}

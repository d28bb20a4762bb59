"""Drawings of what the pictures show now, by matplotlib, for files that are not pages. Written by hand; attention has a module of its own."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tlm_book.libraries import library
from tlm_book.viewer.base import number
from tlm_book.viewer.style import BLUE, INK, LINE, ORANGE, RED

__all__ = ["bars", "clocks", "graphs", "levels", "tokens"]


def _axes(title: str | None, width: float, height: float) -> tuple[Any, Any]:
    """(figure, axes) of this size in inches."""
    figure = library("matplotlib.figure", "viewer").Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    if title:
        axes.set_title(title, parse_math=False)
    return figure, axes


def bars(title: str | None, names: Sequence[str], groups: Mapping[str, Sequence[float]], colours: Sequence[str] = (BLUE, RED)) -> Any:
    """A row for each name, with a bar for each group: weights from 0 to 1."""
    figure, axes = _axes(title, 6.4, 1.0 + 0.14 * len(names) * (1 + len(groups)))
    share = 0.8 / len(groups)
    for k, ((label, weights), colour) in enumerate(zip(groups.items(), colours)):
        places = [i - 0.4 + share * (k + 0.5) for i in range(len(names))]
        axes.barh(places, weights, share, color=colour, label=label)
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.invert_yaxis()
    axes.set(xlim=(0, 1), xlabel="weight")
    axes.legend()
    return figure


def graphs(title: str | None, xlabel: str, x: Sequence[float], lines: Mapping[str, Sequence[float]], at: float) -> Any:
    """Curves over a logarithmic axis, with the position of the slider marked."""
    figure, axes = _axes(title, 6.4, 3.2)
    for (label, y), dash in zip(lines.items(), ("-", "--")):
        axes.semilogx(x, y, dash, label=label)
    axes.axvline(at, color=LINE, zorder=0)
    axes.set(xlabel=xlabel, ylim=(0, 1.05))
    axes.legend()
    return figure


def levels(title: str | None, curves: Sequence[Sequence[tuple[float, float]]], path: Sequence[tuple[float, float]]) -> Any:
    """Level curves of a surface over the plane, and a path on it, whose start is marked by a ring."""
    figure, axes = _axes(title, 6.4, 4.4)
    for curve in curves:
        axes.fill(*zip(*curve), fill=False, edgecolor=INK, alpha=0.5, linewidth=0.8)
    axes.plot(*zip(*path), "o-", color=BLUE, markersize=2.5, linewidth=1.2)
    axes.plot(*path[0], "o", color=BLUE, markersize=8, fillstyle="none")
    axes.set(xlim=(-3, 3), ylim=(-2, 2), aspect="equal", xlabel="across", ylabel="up")
    return figure


def clocks(title: str | None, omega: Sequence[float], position: int, offset: int) -> Any:
    """A clock for each frequency, with its hand at the position and at the position plus the offset."""
    across = min(len(omega), 8)
    down = math.ceil(len(omega) / across)
    figure, axes = _axes(title, 1.1 * max(across, 3), 1.2 * down + 0.8)
    for i, w in enumerate(omega):
        x, y = 2.4 * (i % across), -2.9 * (i // across)
        turn = np.linspace(0, 2 * np.pi, 73)
        axes.plot(x + np.cos(turn), y + np.sin(turn), color=INK, linewidth=0.8)
        for p, length, colour, thick in ((position, 0.75, BLUE, 4), (position + offset, 0.9, RED, 1.8)):
            axes.plot([x, x + length * math.sin(p * w)], [y, y + length * math.cos(p * w)], color=colour, linewidth=thick, label=f"at {p}" if i == 0 else None)
        axes.text(x, y - 1.15, f"ω = {number(w)}", ha="center", va="top", fontsize=7, parse_math=False)
    axes.set_aspect("equal")
    axes.axis("off")
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def tokens(title: str | None, texts: Sequence[str], marked: Sequence[int] = (), room: int = 64) -> Any:
    """Tokens as boxes, line by line; those at the places `marked` are about to fuse."""
    places, line, left = [], 0, 0.0
    for text in texts:
        wide = len(text) + 1.2
        if left and left + wide > room:
            line, left = line + 1, 0.0
        places.append((left, line, wide))
        left += wide + 0.5
    figure, axes = _axes(title, 6.4, 0.6 + 0.34 * (line + 1))
    for i, (text, (x, y, wide)) in enumerate(zip(texts, places)):
        box = dict(xy=(x, -y - 0.4), width=wide, height=0.8, edgecolor=INK, facecolor=ORANGE if i in marked else "white")
        axes.add_patch(library("matplotlib.patches", "viewer").Rectangle(**box))
        axes.text(x + wide / 2, -y, text, ha="center", va="center_baseline", family="monospace", fontsize=7.5, parse_math=False)
    axes.set(xlim=(-0.5, room + 1), ylim=(-line - 0.7, 0.7))
    axes.axis("off")
    return figure

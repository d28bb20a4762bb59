"""The curves of a run, drawn as they grow: one SVG picture in a file or in a notebook. Written by hand."""

import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tlm_book.checks import expects
from tlm_book.files import new_file
from tlm_book.libraries import library
from tlm_book.training.config import TrainConfig
from tlm_book.training.logs import Entry

__all__ = ["CURVES", "CurvesInFile", "CurvesInNotebook", "Observer", "curves"]

Observer = Callable[[list[Entry], TrainConfig], TrainConfig | None]  # called after each step; may return new settings for the rest of the run
CURVES = "curves.svg"
WIDTH, LEFT, RIGHT = 640, 58, 14  # width of the picture, and its free margins
LOSS, RATE = (34, 268), (300, 366)  # top and bottom of the two panels
MOST = 500  # points of a line

STYLE = """
.tlm-curves { background: #ffffff; font: 12px system-ui, sans-serif; }
.tlm-curves text { fill: #333333; } .tlm-curves .title { font-weight: 600; }
.tlm-curves .grid { stroke: #e3e3e3; } .tlm-curves .axis { stroke: #777777; }
.tlm-curves .loss, .tlm-curves .held, .tlm-curves .rate { fill: none; stroke-width: 2; stroke-linejoin: round; }
.tlm-curves .each { fill: none; stroke: #2f6fb0; stroke-opacity: .25; } .tlm-curves .dot { fill: #c4510a; }
.tlm-curves .loss { stroke: #2f6fb0; } .tlm-curves .held { stroke: #c4510a; } .tlm-curves .rate { stroke: #6b6b6b; }
@media (prefers-color-scheme: dark) {
.tlm-curves { background: #17191c; } .tlm-curves text { fill: #d8d8d8; } .tlm-curves .grid { stroke: #33373c; }
.tlm-curves .axis { stroke: #999999; } .tlm-curves .each, .tlm-curves .loss { stroke: #7db5ea; }
.tlm-curves .held { stroke: #f2a065; } .tlm-curves .dot { fill: #f2a065; } .tlm-curves .rate { stroke: #b0b0b0; }
}"""


def ticks(low: float, high: float, most: int = 8) -> list[float]:
    """Round numbers from low to high, at most `most` of them.

    >>> ticks(0, 900)
    [0.0, 200.0, 400.0, 600.0, 800.0]
    """
    span = max(high - low, 1e-12)
    unit = 10.0 ** math.floor(math.log10(span / most))
    step = next(unit * factor for factor in (1, 2, 5, 10, 20) if span / (unit * factor) <= most - 1)
    return [round(k * step, 12) for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def smoothed(losses: Sequence[float]) -> list[float]:
    """The running mean: of each number and those before it, together at most a fiftieth of the list."""
    sums, k = np.concatenate([[0.0], np.cumsum(losses)]), max(1, len(losses) // 50)
    ends = np.arange(1, len(losses) + 1)
    firsts = np.maximum(ends - k, 0)
    means: list[float] = ((sums[ends] - sums[firsts]) / (ends - firsts)).tolist()
    return means


def curves(log: Sequence[Entry], steps: int | None = None) -> str:
    """An SVG picture of the run with this log: the loss of each training batch (and its running mean), the loss on the held-out text and, below,
    the learning rate, against the step, up to `steps`. ValueError for a log without entries.
    """
    expects(len(log) > 0, "log", "no entries", "at least one step")
    last = max(int(log[-1]["step"]), steps or 1)
    at, losses = [entry["step"] for entry in log], [float(entry["loss"]) for entry in log]
    means = smoothed(losses)
    held = [(entry["step"], float(entry["held_out"])) for entry in log if "held_out" in entry]
    seen = [loss for loss in [*means, *(loss for _, loss in held)] if math.isfinite(loss)] or [0.0]
    low, high = min(seen), max(seen)
    low, high = low - 0.05 * (high - low or 1.0), high + 0.05 * (high - low or 1.0)
    top = 1.08 * max(max(float(entry["lr"]) for entry in log), 1e-12)
    x = lambda step: LEFT + (WIDTH - LEFT - RIGHT) * step / last
    y = lambda value: LOSS[1] - (LOSS[1] - LOSS[0]) * ((min(max(value, low), high) if math.isfinite(value) else high) - low) / (high - low)
    z = lambda rate: RATE[1] - (RATE[1] - RATE[0]) * rate / top
    chosen = sorted({round(k) for k in np.linspace(0, len(log) - 1, min(MOST, len(log)))})
    line = lambda kind, points: f'<polyline class="{kind}" points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in points)}"/>'
    put = lambda a, b, words, more="": f'<text x="{a:.1f}" y="{b:.1f}" {more}>{words}</text>'
    mark = lambda a, b, c, d, kind="grid": f'<line class="{kind}" x1="{a:.1f}" y1="{b:.1f}" x2="{c:.1f}" y2="{d:.1f}"/>'
    end = 'text-anchor="end"'
    parts = []
    for value in ticks(low, high):
        parts += [mark(LEFT, y(value), WIDTH - RIGHT, y(value)), put(LEFT - 7, y(value) + 4, f"{value:g}", end)]
    for rate in ticks(0, top, 3):
        parts += [mark(LEFT, z(rate), WIDTH - RIGHT, z(rate)), put(LEFT - 7, z(rate) + 4, f"{rate:g}", end)]
    for step in ticks(0, last, 7):
        parts += [mark(x(step), LOSS[0], x(step), RATE[1]), put(x(step), RATE[1] + 17, f"{step:,.0f}", 'text-anchor="middle"')]
    parts += [mark(LEFT, bottom, WIDTH - RIGHT, bottom, "axis") for bottom in (LOSS[1], RATE[1])]
    parts += [line("each", [(x(at[k]), y(losses[k])) for k in chosen]), line("loss", [(x(at[k]), y(means[k])) for k in chosen])]
    parts += [line("held", [(x(step), y(loss)) for step, loss in held])]
    parts += [f'<circle class="dot" cx="{x(step):.1f}" cy="{y(loss):.1f}" r="3"/>' for step, loss in held]
    parts += [line("rate", [(x(at[k]), z(float(log[k]["lr"]))) for k in chosen])]
    says = f"loss of the training batches {means[-1]:.3f}" + (f", on held-out text {held[-1][1]:.3f}" if held else "")
    heads = [
        put(LEFT, 20, "loss, nats per token", 'class="title"'),
        mark(WIDTH - 348, 16, WIDTH - 328, 16, "loss") + put(WIDTH - 322, 20, "training batches, mean of a few"),
        mark(WIDTH - 100, 16, WIDTH - 80, 16, "held") + put(WIDTH - 74, 20, "held-out"),
        put(LEFT, RATE[0] - 8, "learning rate", 'class="title"'),
        put((LEFT + WIDTH - RIGHT) / 2, RATE[1] + 34, "step", 'text-anchor="middle"'),
    ]
    words = f"Loss and learning rate up to step {at[-1]:,} of {last:,}: {says} nats per token"
    head = f'<svg class="tlm-curves" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {RATE[1] + 44}" width="{WIDTH}" role="img" aria-label="{words}">'
    return "\n".join([head, f"<title>{words}</title>", f"<style>{STYLE}</style>", *parts, *heads, "</svg>", ""])


class CurvesInFile:
    """An observer that redraws the picture in a file every few seconds, after each measurement and at the end; the file is complete at any time."""

    def __init__(self, file: str | os.PathLike[str], every: float = 2.0) -> None:
        self.file, self.every, self.drawn = Path(file), every, -math.inf

    def __call__(self, log: Sequence[Entry], config: TrainConfig) -> None:
        """Called after a step."""
        now = time.perf_counter()
        if now - self.drawn >= self.every or "held_out" in log[-1]:
            self.draw(curves(log, config.steps))
            self.drawn = time.perf_counter()

    def draw(self, picture: str) -> None:
        """Write the picture to the file."""
        with new_file(self.file) as part:
            part.write_text(picture, encoding="utf-8")


class CurvesInNotebook(CurvesInFile):
    """An observer that redraws the picture in a notebook's output, below the cell. ImportError without IPython."""

    def __init__(self, every: float = 1.0) -> None:
        super().__init__(CURVES, every)
        self.handle: Any = None
        self.shown = library("IPython.display", "book")

    def draw(self, picture: str) -> None:
        """Show the picture in place of the previous one."""
        if self.handle is None:
            self.handle = self.shown.display(self.shown.SVG(picture), display_id=True)
        else:
            self.handle.update(self.shown.SVG(picture))

"""A proof tree as text and as a picture."""

import math
from collections.abc import Sequence
from typing import Any

from tlm_book.derivation.kinds import Kind, ProofNode
from tlm_book.libraries import library

__all__ = ["Lines", "tree_text", "draw_tree"]

Lines = Sequence[tuple[int, int, ProofNode]]  # (depth, how often in a row, sentence)


def _label(times: int, step: ProofNode) -> str:
    return f"{step.subject} (× {times})" if times > 1 else step.subject


def tree_text(lines: Lines) -> str:
    """The tree as text: each sentence stands above its premises, which are indented."""
    text = []
    more: set[int] = set()  # the depths at which another branch is still to come
    for depth, times, step in reversed(lines):
        more = {level for level in more if level <= depth}
        rest = "".join(
            "│  " if level in more else "   " for level in range(1, depth)
        )
        branch = ("├─ " if depth in more else "└─ ") if depth else ""
        label = _label(times, step)
        text.append(f"{rest}{branch}{label}: {step.kind.value}   [{step.reason}]")
        more.add(depth)
    return "\n".join(reversed(text))


def draw_tree(lines: Lines, ax: Any) -> Any:
    """Draw the tree, with a colour for each kind, on these matplotlib axes or on new ones; returns the axes."""
    plt = library("matplotlib.pyplot", "viewer")

    import tlm_book.viewer.style as style

    ink = [style.BLUE, style.PURPLE, style.GREEN, style.ORANGE, style.RED]
    colours = dict(zip(Kind, [*ink, style.GREEN, style.ORANGE]))
    step_right, step_down = 0.26, 0.29  # inches
    own, ends = ax is None, []
    if own:
        size = (7.0, step_down * (len(lines) + 0.4))
        ax = plt.figure(figsize=size).add_axes((0, 0, 1, 1))
    where: dict[int, int] = {}  # the last line of each depth
    for y, (depth, times, step) in enumerate(lines):
        colour, where[depth] = colours[step.kind], y
        if depth:
            x = depth - 0.55
            line = dict(color=style.GREY, linewidth=0.8, zorder=0, clip_on=False)
            ax.plot([x, x], [where[depth - 1] + 0.36, y], **line)
            ax.plot([x, depth], [y, y], **line)
        edge = "dashed" if step.kind is Kind.UNPROVED else "solid"
        frame = dict(
            boxstyle="round,pad=0.25", fc="white", ec=colour, ls=edge, lw=1.3
        )
        name = _label(times, step)
        box = ax.text(depth, y, name, fontsize=8, va="center", bbox=frame)
        beside = dict(
            xy=(1, 0.5), textcoords="offset points", va="center", fontsize=8
        )
        words, why = (
            step.kind.value,
            f"by {step.reason}" if step.premises else step.reason,
        )
        kind = ax.annotate(
            words, xycoords=box, xytext=(9, 0), color=style.INK, **beside
        )
        ends.append(
            ax.annotate(
                why, xycoords=kind, xytext=(7, 0), color=style.GREY, **beside
            )
        )
    if own:  # the figure ends where the longest line does
        figure = ax.get_figure()
        ax.set(xlim=(-0.5, 7.0 / step_right - 0.5))
        right = max(end.get_window_extent().x1 for end in ends)
        figure.set_figwidth(math.ceil(10 * right / figure.dpi + 1) / 10)
    width, height = ax.get_figure().get_size_inches() * ax.get_position().size
    ax.set(
        xlim=(-0.5, width / step_right - 0.5), ylim=(height / step_down - 0.7, -0.7)
    )
    ax.axis("off")
    return ax

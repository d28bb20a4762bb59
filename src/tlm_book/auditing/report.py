"""What an audit finds, in words and as a picture."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from tlm_book.auditing.tensors import spread_out
from tlm_book.libraries import library

__all__ = ["Leak", "Report"]


@dataclass(frozen=True)
class Leak:
    """One fault: in `setting`, output row `row` does what it should not with input row `source`.

    `fault`: "future" (the row depends on a later row), "length" (on how many rows come after it), "batch" (on another sequence),
    "padding" (on the content of the padding), "cache" (decoding step by step differs from the whole pass), "blind" (it does not depend
    on a row on which it should), "far" (it depends on a row beyond `max_lookback`). `size` is a fraction of the largest `unit`:
    "output", or "derivative" if no change of rows was seen; `ways` are the experiments that found the fault; `module`, `type` and
    `cause` are the culprit's path, its class and a guess at the cause; `sizes` has the size at each length.
    """

    fault: str
    setting: str
    row: int
    source: int
    size: float
    ways: tuple[str, ...] = ()
    module: str | None = None
    type: str = ""
    cause: str = ""
    sizes: Mapping[int, float] = field(default_factory=dict, hash=False)
    unit: str = "output"

    def __str__(self) -> str:
        return "\n".join(leak_lines(self))


SAYS = {
    "future": "output row {i} depends on the later input row {j}",
    "length": "output row {i} changes when the rows from {j} on are removed",
    "batch": "output row {i} depends on another sequence of the batch",
    "padding": "output row {i} depends on what stands in the padding, at {j}",
    "cache": "decoding with a cache, row {i} differs from the full pass",
    "blind": "output row {i} does not depend on input row {j}",
    "far": "output row {i} depends on input row {j}, beyond max_lookback",
}


def leak_lines(leak: Leak) -> list[str]:
    says = SAYS[leak.fault].format(i=leak.row, j=leak.source)
    if leak.fault != "blind":
        share = f"{leak.size:.1f} times" if leak.size >= 1 else f"{leak.size:.1e} of"
        says += f", by {share} the largest {leak.unit}"
    lines = [f"{leak.fault.upper()} [{leak.setting}]: {says}"]
    if leak.ways:
        lines.append(f"    found by: {', '.join(leak.ways)}")
    if leak.module is not None:
        where = leak.module or "(the model itself)"
        lines.append(f"    first in: {where} ({leak.type})")
    if leak.cause:
        lines.append(f"    likely cause: {leak.cause}")
    if len(leak.sizes) > 1:
        shown = spread_out(list(leak.sizes), 8)
        sizes = ", ".join(f"{n}: {leak.sizes[n]:.1e}" for n in shown)
        lines.append(f"    by length: {sizes}")
    return lines


@dataclass(frozen=True, eq=False)
class Report:
    """What `audit` found: `ok`, `leaks`, `problems` (what could not be decided), `notes` (what was tried, and in which
    precision) and `effects`, in which entry (i, j) is the change of output row i, as a fraction of the largest output, when the input
    rows from j on are replaced (at the last length; 0 in column 0, which is not tried). `subject` is the model's name, changes up to
    `tolerance` are noise in `effects`, and `undecided` is true if something that was asked for could not be tried.
    """

    subject: str
    leaks: tuple[Leak, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    effects: Float[np.ndarray, "n n"]
    tolerance: float
    undecided: bool = False

    @property
    def ok(self) -> bool:
        """True if every test that was asked for was carried out and no fault was found."""
        return not self.leaks and not self.undecided

    def __repr__(self) -> str:
        count = len(self.leaks)
        verdict = "ok" if self.ok else "not decided"
        verdict = f"{count} fault{'s' * (count != 1)} found" if count else verdict
        lines = [f"audit of {self.subject}: {verdict}"]
        lines += [f"  {line}" for leak in self.leaks for line in leak_lines(leak)]
        lines += [f"  problem: {line}" for line in self.problems]
        return "\n".join(lines + [f"  {line}" for line in self.notes])

    def plot(self, ax: Any = None) -> Any:
        """Draw `effects` on these matplotlib axes or on new ones, leaks with an orange-red frame; returns the axes."""
        return draw_effects(self, ax)


def draw_effects(report: Report, ax: Any) -> Any:
    plt = library("matplotlib.pyplot", "viewer")
    from matplotlib.patches import Rectangle

    from tlm_book.viewer import style

    style.use_style()
    n, effects = len(report.effects), report.effects
    if ax is None:
        ax = plt.subplots(figsize=(4.6, 3.9), layout="constrained")[1]
    lowest = math.log10(max(report.tolerance, 1e-18))
    above = effects > report.tolerance
    logs = np.log10(effects, where=above, out=np.full(effects.shape, np.nan))
    shades = {"vmin": lowest, "vmax": max(0.0, lowest + 1)}
    image = ax.imshow(logs, cmap=style.SEQUENTIAL, **shades)
    width = min(1.4, 12 / max(n, 1))
    frame: dict[str, Any] = {"fill": False, "ec": style.RED, "lw": width}
    for i, j in np.argwhere(np.triu(above, 1)):
        ax.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, **frame))
    corner = np.repeat(np.arange(n + 1), 2)[1:-1] - 0.5
    ax.plot(corner[1:], corner[:-1], color=style.GREY, lw=0.8)
    ax.set(xlabel="rows j, j + 1, … are replaced", ylabel="output row i")
    ax.set(xlim=(-0.5, n - 0.5), ylim=(n - 0.5, -0.5))
    ax.grid(False)
    capped = "max" if (logs > shades["vmax"]).any() else "neither"
    ax.get_figure().colorbar(
        image, ax=ax, label="change (power of 10)", extend=capped
    )
    return ax

"""What the benchmarks share: runs in turn, their medians and spread, the machine, and the files that are written.

    options = parser(__doc__, rounds=15).parse_args()
    found = side_by_side({"ours": run, "theirs": other_run}, options.rounds)   # {"ours": Timing, "theirs": Timing}
    found["ours"].ms(), ratio(found["theirs"], found["ours"]).text()           # "12.3 ± 0.4", "1.08 (1.06 to 1.11)"
    write(options.out, "name", report, text, lambda axes: bars(axes, {"theirs / ours": 1.08}))

Importing this file is light (no torch, no matplotlib), so that a process that measures its own memory may do so.
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

HERE = Path(__file__).parent
NO_GPU = "GPU: not measured on this machine"
Found = TypeVar("Found")


# Numbers with their spread


@dataclass(frozen=True)
class Spread:
    """A median between the quartiles: half of the runs lie between `low` and `high`."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, numbers: Sequence[float]) -> "Spread":
        if len(numbers) == 1:
            return cls(numbers[0], numbers[0], numbers[0])
        low, median, high = statistics.quantiles(numbers, n=4, method="inclusive")
        return cls(median, low, high)

    def text(self, digits: int = 2) -> str:
        return f"{self.median:.{digits}f} ({self.low:.{digits}f} to {self.high:.{digits}f})"


@dataclass(frozen=True)
class Timing:
    """Seconds of each run by the wall clock, and of processor time (all threads of this process together)."""

    wall: list[float]
    processor: list[float]

    def ms(self, clock: str = "wall") -> str:
        """The median in milliseconds and half the distance of the quartiles."""
        spread = Spread.of(getattr(self, clock))
        digits = 2 if spread.median < 0.1 else 1
        return f"{1e3 * spread.median:.{digits}f} ± {1e3 * (spread.high - spread.low) / 2:.{digits}f}"

    def json(self) -> dict[str, dict[str, float]]:
        """{"wall_ms": {median, low, high}, "processor_ms": …}, rounded."""
        clocks = {"wall_ms": self.wall, "processor_ms": self.processor}
        return {name: {key: round(1e3 * number, 3) for key, number in vars(Spread.of(times)).items()} for name, times in clocks.items()}


def ratio(theirs: Timing, ours: Timing, clock: str = "wall") -> Spread:
    """Their time over ours, round by round: above 1, ours is faster. Both runs of a round meet the same state of the machine."""
    return Spread.of([a / b for a, b in zip(getattr(theirs, clock), getattr(ours, clock), strict=True)])


# Runs in turn


def in_turn(jobs: Mapping[str, Callable[[], Found]], rounds: int, warmup: int = 0) -> dict[str, list[Found]]:
    """What each job returns in each round: all jobs take their turn, in the opposite order from round to round; the first
    `warmup` rounds are not kept."""
    found: dict[str, list[Found]] = {name: [] for name in jobs}
    for round_ in range(-warmup, rounds):
        for name in list(jobs) if round_ % 2 == 0 else reversed(jobs):
            result = jobs[name]()
            if round_ >= 0:
                found[name].append(result)
    return found


def timed(job: Callable[[], object], wait: Callable[[], None] = lambda: None) -> tuple[float, float]:
    """(seconds by the clock, seconds of processor time) of one run; `wait` returns when a GPU is done."""
    wait()
    wall, processor = time.perf_counter(), time.process_time()
    job()
    wait()
    return time.perf_counter() - wall, time.process_time() - processor


def side_by_side(jobs: Mapping[str, Callable[[], object]], rounds: int, warmup: int = 2, device: str = "cpu") -> dict[str, Timing]:
    """Each job's times over the rounds, in turn (see `in_turn`)."""
    wait = waiter(device)
    runs = in_turn({name: lambda job=job: timed(job, wait) for name, job in jobs.items()}, rounds, warmup)
    return {name: Timing(*map(list, zip(*times, strict=True))) for name, times in runs.items()}


def waiter(device: str) -> Callable[[], None]:
    """A function that returns when the device has done all its work."""
    if not device.startswith("cuda"):
        return lambda: None
    import torch

    return torch.cuda.synchronize


# The machine


def processor_name() -> str:
    """The processor's name where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def processor_flags() -> set[str]:
    """What the processor can do, such as "avx512_bf16"; empty where the system does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    return set(next((line.split(":", 1)[1] for line in lines if line.startswith("flags")), "").split())


def machine(**more: object) -> dict[str, object]:
    """The date, the processor, its cores and Python; `more`, such as versions of libraries, is added."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    today = datetime.date.today().isoformat()
    return {"date": today, "processor": processor_name(), "cores": cores, "python": platform.python_version(), **more}


def torch_machine(device: str = "cpu", **more: object) -> dict[str, object]:
    """`machine` with torch, its threads, and the GPU's name where one is measured."""
    import torch

    gpu = torch.cuda.get_device_name(device) if device.startswith("cuda") else NO_GPU
    return machine(threads=torch.get_num_threads(), torch=torch.__version__, gpu=gpu, **more)


def about(facts: Mapping[str, object]) -> str:
    """The machine as one line of text."""
    return ", ".join(str(fact) if fact == NO_GPU else f"{name} {fact}" for name, fact in facts.items())


# What is written


def parser(doc: str, rounds: int, out: Path = HERE) -> argparse.ArgumentParser:
    """The arguments of every benchmark: --rounds and --out; the description is the file's docstring."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--rounds", type=int, default=rounds, help=f"runs of each job ({rounds})")
    made.add_argument("--out", type=Path, default=out, help="folder for what is written")
    return made


def table(rows: Sequence[Mapping[str, object]]) -> str:
    """Rows with the same keys as a Markdown table; numbers stand at the right, None is an empty cell."""
    cells = [["" if cell is None else str(cell) for cell in row.values()] for row in rows]
    numeric = [all(cell[:1].isdigit() or not cell for cell in column) for column in zip(*cells, strict=True)]
    lines = [list(rows[0]), ["---:" if right else "---" for right in numeric], *cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def bars(axes: object, lengths: Mapping[str, float], mark: float | None = None, unit: str = "") -> None:
    """Horizontal bars with their numbers, the first on top, and a line at `mark`."""
    from tlm_book.viewer import style

    drawn = axes.barh(list(lengths), list(lengths.values()), color=style.BLUE, height=0.7)
    axes.bar_label(drawn, [f"{length:.3g}{unit}" for length in lengths.values()], padding=3, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5})
    axes.invert_yaxis()
    axes.margins(x=0.12, y=0.01)
    axes.grid(visible=False, axis="y")
    if mark is not None:
        axes.axvline(mark, color=style.RED, linewidth=1)


def write(out: Path, name: str, report: Mapping[str, object], text: str, *draw: Callable[[object], None]) -> None:
    """NAME.json, NAME.md and, when there is something to draw, NAME.svg with one panel below the other; prints the text."""
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    (out / f"{name}.md").write_text(text, encoding="utf-8")
    if draw:
        save_plot(out / f"{name}.svg", *draw)
    print("\n" + text)


def save_plot(path: Path, *draw: Callable[[object], None]) -> None:
    """One panel for each function, which gets its axes."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    from tlm_book.viewer.style import use_style

    use_style()
    matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text: a fifth of the size
    figure, panels = pyplot.subplots(len(draw), squeeze=False, layout="constrained")
    for axes, paint in zip(panels[:, 0], draw, strict=True):
        paint(axes)
    heights = [0.9 + 0.28 * len(axes.get_yticks()) for axes in panels[:, 0]]  # inches: each line its place
    figure.set_size_inches(8, sum(heights))
    panels[0, 0].get_gridspec().set_height_ratios(heights)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)

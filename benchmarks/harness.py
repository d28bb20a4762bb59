"""What the benchmarks share: runs in turn, their medians and spread, the machine, and the files that are written.

    options = parser(__doc__, rounds=15).parse_args()
    found = side_by_side({"ours": run, "theirs": other_run}, options.rounds)   # {"ours": Timing, "theirs": Timing}
    found["ours"].ms(), ratio(found["theirs"], found["ours"]).text()           # "12.3 ± 0.4", "1.08 (1.06 to 1.11)"
    report = {"machine": torch_machine(options.device), "rounds": options.rounds, "rows": rows}
    write(options.out, "name", report, text_of, draw)

One entry for each machine. NAME.json is {"entries": {machine: report}}: the key is the GPU's name where one was measured, else the processor's
with its vector instructions (processors of one name may differ in them) and the number of cores ("AMD EPYC (AVX2), 2 cores", "NVIDIA H200").
A run replaces the entry of its own machine and leaves the others, so figures of several machines gather in one file. A report holds "machine" (what `torch_machine` or `machine` says: date, processor, cores, blas, gpu, versions), "rounds",
and what the benchmark found: lists of rows (`table` writes them), numbers, sentences; nothing else is needed to write it again.

NAME.md and NAME.svg are written from NAME.json alone, all entries together: `text_of(entries)` is the page, `draw(report, axes)` the panel of one entry.
`sections` puts one machine's text below another's, `abreast` makes one table with the machines side by side. `--write` does that without measuring.

Importing this file is light (no torch, no matplotlib), so that a process that measures its own memory may do so.
"""

import argparse
import datetime
import functools
import itertools
import json
import os
import platform
import re
import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

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
        """The median in milliseconds and half the distance between the quartiles."""
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


def processor_says(field: str) -> str:
    """A line of what the system tells of the (first) processor, such as "model name"; "" where it does not."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.split(":")[0].strip() == field), "")


def processor_name() -> str:
    """The processor's name where the system tells it."""
    return processor_says("model name") or platform.processor() or platform.machine()


def processor_flags() -> set[str]:
    """What the processor can do, such as "avx512_bf16"; empty where the system does not tell."""
    return set(processor_says("flags").split())


def vectors(flags: set[str], maker: str = "", family: str = "") -> str:
    """The widest vector instructions of an x86 processor: "AVX512", "AVX512 in halves" (AMD's Zen 4 has units of 256 bits, which work on each half in
    turn), "AVX2", or "" where none is known of."""
    if "avx512f" in flags:
        return "AVX512 in halves" if (maker, family) == ("AuthenticAMD", "25") else "AVX512"
    return "AVX2" if "avx2" in flags else ""


def machine(**more: object) -> dict[str, object]:
    """The date, the processor with its vector instructions and cores, and Python; `more`, such as versions of libraries, is added."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    today = datetime.date.today().isoformat()
    widest = vectors(processor_flags(), processor_says("vendor_id"), processor_says("cpu family"))
    processor = {"processor": processor_name(), "vectors": widest, "cores": cores}
    return {"date": today, **processor, "python": platform.python_version(), **more}


def torch_machine(device: str = "cpu", **more: object) -> dict[str, object]:
    """`machine` with torch, its threads, the libraries of linear algebra, and the GPU's name where one is measured."""
    import torch

    gpu = torch.cuda.get_device_name(device) if device.startswith("cuda") else NO_GPU
    return machine(threads=torch.get_num_threads(), torch=torch.__version__, blas=blas(), gpu=gpu, **more)


def blas() -> str:
    """The libraries of linear algebra: "torch MKL 2024.2, numpy OpenBLAS 0.3.31"."""
    import numpy
    import torch

    built = torch.__config__.show()
    mkl = re.search(r"Math Kernel Library Version (\d+\.\d+)", built)
    named = re.search(r"BLAS_INFO=(\w+)", built)
    of_torch = f"MKL {mkl[1]}" if mkl else named[1] if named else "unknown"
    found = numpy.show_config(mode="dicts")["Build Dependencies"]["blas"]
    name, number = str(found.get("name", "unknown")), ".".join(str(found.get("version", "")).split(".")[:3])
    return f"torch {of_torch}, numpy {'OpenBLAS' if 'openblas' in name else name} {number}".strip()


def about(facts: Mapping[str, object]) -> str:
    """The machine as one line of text."""
    return ", ".join(str(fact) if fact == NO_GPU else f"{name} {fact}" for name, fact in facts.items() if fact != "")


# What is written


def parser(doc: str, rounds: int, out: Path = HERE) -> argparse.ArgumentParser:
    """The arguments of every benchmark: --rounds, --out and --write; the description is the file's docstring."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--rounds", type=int, default=rounds, help=f"runs of each job ({rounds})")
    made.add_argument("--out", type=Path, default=out, help="folder for what is written")
    made.add_argument("--write", action="store_true", help="measure nothing: write the report and its picture anew from what was measured")
    return made


def table(rows: Sequence[Mapping[str, object]]) -> str:
    """Rows with the same keys as a Markdown table; numbers are aligned to the right (as is "none …" among them), None is an empty cell."""
    cells = [["" if cell is None else str(cell) for cell in row.values()] for row in rows]
    numeric = [all(cell.lstrip("-−")[:1].isdigit() or not cell or cell.startswith("none ") for cell in column) for column in zip(*cells, strict=True)]
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


# One entry for each machine

Report = dict[str, Any]
Entries = dict[str, Report]  # by the machine's name


def entry_name(facts: Mapping[str, object]) -> str:
    """The key of a machine's entry: its GPU where one was measured, else processor, vector instructions (where they were written down) and cores."""
    gpu = str(facts.get("gpu", NO_GPU))
    vectors_ = f" ({facts['vectors']})" if facts.get("vectors") else ""
    return f"{facts['processor']}{vectors_}, {facts['cores']} cores" if gpu == NO_GPU else gpu


def entries(folder: Path, name: str) -> Entries:
    """What has been measured so far; empty when nothing has."""
    path = folder / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))["entries"] if path.is_file() else {}


def sections(found: Entries, text_of: Callable[[Report], str]) -> str:
    """The text of each entry, with the machine's name above it where there are several."""
    texts = {name: text_of(report).strip() + "\n" for name, report in found.items()}
    return "\n".join(f"## {name}\n\n{text}" for name, text in texts.items()) if len(texts) > 1 else "".join(texts.values())


def measured(found: Entries) -> str:
    """The machines and the days of the measurements, as a line below a table (which `quoting` takes along)."""
    return "Measured on " + "; ".join(f"{name}, {report['machine']['date']}" for name, report in found.items()) + "."


def short_names(names: Collection[str]) -> dict[str, str]:
    """Each machine's name without trademarks, vector instructions and cores, as far as it is still the only one of that name:
    "Intel(R) Xeon(R) Processor (AVX512), 2 cores" is "Intel Xeon"."""
    trademarks, vectors_, cores = r"\((?:R|TM)\)|Processor", r"\(AVX[^)]*\)", r", \d+ cores"
    levels = [f"{trademarks}|{vectors_}|{cores}", f"{trademarks}|{cores}", "$"]
    shorts = [{name: " ".join(re.sub(dropped, " ", name).split()) for name in names} for dropped in levels]
    return {name: next(short[name] for short in shorts if [*short.values()].count(short[name]) == 1) for name in names}


def abreast(
    tables: Mapping[str, Sequence[Mapping[str, object]]], keys: Sequence[str], columns: Sequence[str], few: Sequence[str] | None = None
) -> list[dict[str, object]]:
    """One table of several machines' rows: those that agree in `keys` are one row, with these columns of each machine that has rows, or only a `few` of them
    if there are several machines, so that the table stays narrow."""
    prefix = {name: f"{short}: " if len(tables) > 1 else "" for name, short in short_names(tables).items()}
    tables = {name: table_ for name, table_ in tables.items() if table_}
    columns = few if few and len(tables) > 1 else columns
    rows: dict[tuple, dict[str, object]] = {}
    for table_ in tables.values():
        for row in table_:
            empty = {f"{prefix[name]}{column}": None for name in tables for column in columns}
            rows.setdefault(tuple(row[key] for key in keys), {key: row[key] for key in keys} | empty)
    for name, table_ in tables.items():
        for row in table_:
            rows[tuple(row[key] for key in keys)] |= {f"{prefix[name]}{column}": row.get(column) for column in columns}
    return list(rows.values())


def write(folder: Path, name: str, report: Report, text_of: Callable[[Entries], str], *draw: Callable[[Report, object], None]) -> None:
    """Puts the report into NAME.json as its machine's entry, and writes NAME.md and NAME.svg anew."""
    folder.mkdir(parents=True, exist_ok=True)
    found = entries(folder, name) | {entry_name(report["machine"]): report}
    (folder / f"{name}.json").write_text(json.dumps({"entries": found}, indent=1) + "\n", encoding="utf-8")
    rewrite(folder, name, text_of, *draw)


def rewrite(folder: Path, name: str, text_of: Callable[[Entries], str], *draw: Callable[[Report, object], None]) -> None:
    """NAME.md and, when there is something to draw, NAME.svg with one panel below the other, from NAME.json; prints the text."""
    found = entries(folder, name)
    text = text_of(found)
    (folder / f"{name}.md").write_text(text, encoding="utf-8")
    panels = [(machine_, functools.partial(paint, report)) for machine_, report in found.items() for paint in draw]
    if panels:
        titles, paints = zip(*panels, strict=True)
        save_plot(folder / f"{name}.svg", *paints, titles=titles if len(found) > 1 else ())
    print("\n" + text)


def save_plot(path: Path, *draw: Callable[[object], None], titles: Sequence[str] = ()) -> None:
    """One panel for each function, which is given the axes to draw on; some have a title."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    from tlm_book.viewer.style import use_style

    use_style()
    matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text: a fifth of the size
    figure, panels = pyplot.subplots(len(draw), squeeze=False, layout="constrained")
    for axes, paint, title in itertools.zip_longest(panels[:, 0], draw, titles):
        paint(axes)
        axes.set_title(title or "")
    heights = [0.9 + 0.3 * bool(titles) + 0.28 * len(axes.get_yticks()) for axes in panels[:, 0]]  # inches: room for each line
    figure.set_size_inches(8, sum(heights))
    panels[0, 0].get_gridspec().set_height_ratios(heights)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)

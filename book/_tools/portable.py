"""Run the chapters as other machines would, and list which printed digits differ: `python book/_tools/portable.py [--as NAME …] [CHAPTER …]`.

Environment variables make the numerical libraries take the code paths that they take on other processors. Nothing is written; the new outputs are
compared with the committed ones. Ends with status 1 if a cell fails or an output does not agree (agreement.py). Cells that measure are held to their
assertions only; with TLM_BOOK_ALL_SEEDS=1 in the environment, for every seed.
"""

import argparse
import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import NamedTuple

import nbformat
from agreement import differences, texts, without_numbers
from chapters import BOOK, chosen, read, table_of_contents
from forked_kernels import use_forks
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
IMITATIONS = {
    "aten-default": {"ATEN_CPU_CAPABILITY": "default"},
    "aten-avx2": {"ATEN_CPU_CAPABILITY": "avx2"},
    "openblas-prescott": {"OPENBLAS_CORETYPE": "Prescott"},
    "openblas-haswell": {"OPENBLAS_CORETYPE": "Haswell"},
    "openblas-zen": {"OPENBLAS_CORETYPE": "Zen"},
    "mkl-sse4": {"MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
    "mkl-compatible": {"MKL_CBWR": "COMPATIBLE"},  # the path for processors of other makers
    "onednn-sse4": {"ONEDNN_MAX_CPU_ISA": "SSE41"},
    "1-thread": {},
    "2-threads": dict.fromkeys(ONE_THREAD, "2"),
    "4-threads": dict.fromkeys(ONE_THREAD, "4"),
    # Two that combine several of the above.
    "old": {"ATEN_CPU_CAPABILITY": "default", "OPENBLAS_CORETYPE": "Prescott", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41"},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "OPENBLAS_CORETYPE": "Haswell", "MKL_CBWR": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
}
# These come first, so that no worker is left with one of them at the end.
LONGEST = ("training", "translation", "loss", "transformer_lm", "word_vectors", "inference", "rewards", "linear_attention", "heads", "playground", "tokenization", "overview", "scaling")


class Seen(NamedTuple):
    """One chapter on one imitated machine: cells whose digits differ in the last place, and cells that disagree or failed, as (cell, what)."""

    chapter: str
    machine: str
    last_place: list[tuple[int, str]]
    refused: list[tuple[int, str]]

    @property
    def mark(self) -> str:
        return f"{len(self.refused)} ✗" if self.refused else str(len(self.last_place) or "=")


def observe(chapter: str, machine: str) -> Seen:
    """Run the chapter with the machine's settings and compare each cell with its committed outputs."""
    notebook = read(chapter)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    committed = [cell.outputs for cell in code]
    for cell in code:
        cell.execution_count = None
    client = NotebookClient(
        notebook, timeout=1800, kernel_name="python3", coalesce_streams=True, shutdown_kernel="immediate", extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(BOOK)}},
    )
    failed: list[tuple[int, str]] = []
    try:
        client.execute(env={**os.environ, **ONE_THREAD, **IMITATIONS[machine]})
    except CellExecutionError as error:
        ran = sum(cell.execution_count is not None for cell in code)
        failed.append((ran - 1, f"failed: {error.ename}: {error.evalue}"))
    return Seen(chapter, machine, *_compared(notebook, committed, failed))


def _compared(notebook: nbformat.NotebookNode, committed: list, refused: list[tuple[int, str]]) -> tuple[list, list]:
    last_place = []
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    stop = refused[0][0] if refused else len(cells)
    for place, (cell, old) in enumerate(zip(cells[:stop], committed)):
        if "nbval-ignore-output" in cell.metadata.get("tags", []):
            continue
        if found := differences(old, cell.outputs):
            refused.append((place, found[0]))
        elif texts(old) != texts(cell.outputs):
            last_place.append((place, _changed(texts(old), texts(cell.outputs))))
    return last_place, refused


def _changed(old: dict[str, list[str]], new: dict[str, list[str]]) -> str:
    """The first number that is printed differently, before and after."""
    for key in old:
        for a, b in zip(old[key], new[key]):
            pairs = zip(without_numbers(a)[1], without_numbers(b)[1])
            for one, other in pairs:
                if one != other:
                    return f"{one} → {other}"
    return "packed numbers"


def table(seen: list[Seen], chapters: list[str], machines: list[str]) -> str:
    """A row for each chapter, a column for each machine: `=` same digits, n cells that differ in the last place, n ✗ that disagree."""
    marks = {(s.chapter, s.machine): s.mark for s in seen}
    rows = [[chapter, *(marks.get((chapter, machine), "") for machine in machines)] for chapter in chapters]
    lines = ["| chapter | " + " | ".join(machines) + " |", "|---|" + "--:|" * len(machines)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("chapters", nargs="*", metavar="CHAPTER", help="all, if none is named")
    parser.add_argument("--as", dest="machines", nargs="+", choices=IMITATIONS, default=list(IMITATIONS), metavar="NAME", help=", ".join(IMITATIONS))
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    chapters = chosen(options.chapters, table_of_contents())
    seen: list[Seen] = []
    with ProcessPoolExecutor(options.workers, initializer=use_forks) as pool:
        longest = sorted(chapters, key=lambda name: LONGEST.index(name) if name in LONGEST else len(LONGEST))
        waiting = [pool.submit(observe, chapter, machine) for machine in options.machines for chapter in longest]
        for done in as_completed(waiting):
            seen.append(done.result())
            print(f"{seen[-1].machine:18} {seen[-1].chapter:20} {seen[-1].mark}", flush=True)
    print("\n" + table(seen, chapters, options.machines) + "\n")
    for name, kind in (("last_place", "differs in the last place"), ("refused", "DOES NOT AGREE")):
        for one in sorted(seen):
            for cell, what in getattr(one, name):
                print(f"{kind}: {one.chapter}, code cell {cell}, as {one.machine}: {what}")
    refused = sum(len(one.refused) for one in seen)
    print(f"{len(chapters)} chapters on {len(options.machines)} imitated machines: {len(seen) - sum(bool(one.refused) for one in seen)} passed, "
          f"{sum(bool(one.refused) for one in seen)} failed")
    raise SystemExit(bool(refused))


if __name__ == "__main__":
    main()

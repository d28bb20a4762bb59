"""Every claim of mutations.json, broken on purpose, against the check cells of its chapter.

    python tests/support/broken.py [CHAPTER …]      measure what changed since the last time, and say what no check has noticed

An outcome is kept in _build/broken.json under the hash of all that it depends on: the change itself, the cells of the chapter up to the last check
of the statement, and the modules of the package that the chapter imports, with those that they import. The tests run a sample (`sample`).
"""

import ast
import functools
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import chapters as book
import commands
from forked_kernels import IMPORTED
from mutations import Mutation, code_cells

HERE = Path(__file__).parent
TABLE = HERE / "mutations.json"
KEPT = book.ROOT / "_build" / "broken.json"
SAMPLE = 7  # claims of each chapter that the tests break


def all_mutations() -> list[Mutation]:
    return [Mutation(*row) for row in json.loads(TABLE.read_text(encoding="utf-8"))]


def digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def sample(mutations: Iterable[Mutation], most: int = SAMPLE) -> list[Mutation]:
    """For each chapter, the few whose hashes are smallest: always the same, and chosen in no other way."""
    chosen: list[Mutation] = []
    chapters: dict[str, list[Mutation]] = {}
    for mutation in mutations:
        chapters.setdefault(mutation.chapter, []).append(mutation)
    for of_chapter in chapters.values():
        chosen += sorted(of_chapter, key=lambda mutation: digest(*mutation))[:most]
    return chosen


def run(chapter: str, mutations: Sequence[Mutation], timeout: int = 3600) -> list[str]:
    """What becomes of each, from one run of the chapter in a process of its own, without type checker: the check must notice, not a type."""
    program = f"import sys; sys.path[:0] = {[str(HERE), str(book.ROOT / 'book' / '_tools')]}; import mutations; mutations.main()"
    result = commands.run_code(program, chapter, json.dumps(mutations), cwd=book.BOOK, imported=IMPORTED, longest=timeout)
    assert result.returncode == 0, result.stderr[-2000:]
    return json.loads(result.stdout)


def imported(source: str) -> set[str]:
    """The modules of the package that a program names, as dotted names; some may be names inside a module."""
    found: set[str] = set()
    for node in ast.walk(ast.parse("\n".join(line for line in source.splitlines() if not line.lstrip().startswith("%")))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in found if name.split(".")[0] == "tlm_book"}


@functools.cache
def module_file(name: str) -> Path | None:
    place = book.SOURCE.joinpath(*name.split(".")[1:])
    return next((file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()), None)


@functools.cache
def module(file: Path) -> tuple[str, frozenset[Path]]:
    """Its text's hash, and the files that it imports."""
    source = file.read_text(encoding="utf-8")
    return digest(source), frozenset(filter(None, map(module_file, imported(source))))


def state_of_package(source: str) -> str:
    """One hash for all modules that a program imports, and those that they import."""
    waiting, seen = [file for file in map(module_file, imported(source)) if file], set()
    while waiting:
        file = waiting.pop()
        if file not in seen:
            seen.add(file)
            waiting += module(file)[1]
    return digest(*(f"{file.relative_to(book.SOURCE)} {module(file)[0]}" for file in sorted(seen)))


def keys(chapter: str, mutations: Iterable[Mutation]) -> dict[Mutation, str]:
    """What an outcome is kept under."""
    cells = code_cells(chapter)
    package, tool = state_of_package("\n".join(cells)), digest((HERE / "mutations.py").read_text(encoding="utf-8"))
    checks = [book.directives(cell).get("checks", "").split() for cell in cells]
    last = {id_: number for number, ids in enumerate(checks) for id_ in ids}
    return {m: digest(*m, package, tool, *cells[: last.get(m.statement, len(cells)) + 1]) for m in mutations}


def measure(only: Sequence[str]) -> int:
    """Break what has to be broken, print what no check has noticed, and return how many those are."""
    mutations = [m for m in all_mutations() if not only or m.chapter in only]
    known: dict[str, str] = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    chapters = list(dict.fromkeys(m.chapter for m in mutations))
    of = {chapter: keys(chapter, [m for m in mutations if m.chapter == chapter]) for chapter in chapters}
    fresh = {key: known[key] for group in of.values() for key in group.values() if key in known}

    def work(chapter: str) -> str:
        tick, new = time.perf_counter(), [m for m, key in of[chapter].items() if key not in known]
        found = dict(zip(new, run(chapter, new))) if new else {}
        fresh.update({of[chapter][m]: outcome for m, outcome in found.items()})
        left = [m for m, key in of[chapter].items() if fresh[key] != "caught"]
        lines = [f"{chapter:20}{len(of[chapter]) - len(left):4} of {len(of[chapter]):4} noticed; run now: {len(new)}, {time.perf_counter() - tick:.0f} s"]
        for m in left:
            lines += [f"    {m.statement}: {fresh[of[chapter][m]]}", *(f"      - {line}" for line in m.old.splitlines()),
                      *(f"      + {line}" for line in m.new.splitlines())]
        KEPT.parent.mkdir(exist_ok=True)
        KEPT.write_text(json.dumps({**known, **dict(fresh)} if only else dict(fresh), indent=0), encoding="utf-8")
        return "\n".join(lines)

    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with ThreadPoolExecutor(min(2, processors)) as pool:
        for words in pool.map(work, chapters):
            print(words, flush=True)
    left = sum(fresh[key] != "caught" for group in of.values() for key in group.values())
    statements = {m.statement for m in mutations}
    print(f"{len(mutations)} broken claims of {len(statements)} statements; {len(mutations) - left} noticed, {left} not")
    return left


if __name__ == "__main__":
    sys.exit(1 if measure(sys.argv[1:] and book.chosen(sys.argv[1:], book.table_of_contents())) else 0)

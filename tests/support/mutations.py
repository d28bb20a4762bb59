"""Claims that were broken on purpose, and whether the chapter's own checks noticed. As a program (`main`): a chapter's name and its mutations as
JSON; it prints the outcomes.

One run of a chapter serves all its mutations: at the cell to be changed the process forks, the child runs the changed cell and goes
on to the check cells of the named statement; the parent goes on with the cell as it stands. It runs the same check cells, and none may fail there.
Cells that none of these need (`needed`) are left out, in the parent and in the children.
"""

import ast
import dis
import importlib
import json
import linecache
import os
import sys
from types import CodeType
from typing import NamedTuple

import chapters as book


class Mutation(NamedTuple):
    """In `chapter`, the one cell that holds `old` says `new` instead; a check cell of `statement` must then fail."""

    chapter: str
    statement: str
    old: str
    new: str


def code_cells(chapter: str) -> list[str]:
    return [
        cell.source for cell in book.read(chapter).cells
        if cell.cell_type == "code" and "remove-cell" not in cell.metadata.get("tags", [])
    ]


def run_cell(number: int, source: str, names: dict[str, object]) -> None:
    file = f"<cell {number}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)  # so that inspect finds the source
    exec(compile(source, file, "exec"), names)


def names_of(code: CodeType) -> tuple[set[str], set[str]]:
    """The names that the code takes from outside, and those that it binds."""
    taken: set[str] = set()
    bound: set[str] = set()
    for step in dis.get_instructions(code):
        if step.opname in ("STORE_NAME", "STORE_GLOBAL"):
            bound.add(step.argval)
        elif step.opname in ("LOAD_NAME", "LOAD_GLOBAL"):
            taken |= {step.argval} - bound
        elif isinstance(step.argval, CodeType):
            taken |= names_of(step.argval)[0] - bound
    return taken, bound


def needed(cells: list[str], wanted: dict[int, list[str]]) -> list[str]:
    """The cells up to the last of the wanted ones; those left empty that export nothing and bind no name which a later one takes.

    `wanted` has the changed forms of each: their names are needed as well. A cell that only changes an object in place is left out: a check that
    cannot do without it fails in the parent, too.
    """
    kept, awaited = [""] * (max(wanted) + 1), set()
    for number in reversed(range(len(kept))):
        forms = [names_of(compile(source, "", "exec")) for source in [cells[number], *wanted.get(number, [])]]
        if number in wanted or forms[0][1] & awaited or "export" in book.directives(cells[number]):
            kept[number] = cells[number]
            awaited = (awaited - forms[0][1]).union(*(taken for taken, _ in forms))
    return kept


def checks_of(statement: str, cells: list[str]) -> list[int]:
    """The numbers of its check cells."""
    return [number for number, cell in enumerate(cells) if statement in book.directives(cell).get("checks", "").split()]


def publish(source: str, names: dict[str, object]) -> None:
    """What a changed cell exports stands in its module, too, and in every module that took it from there."""
    room = book.directives(source).get("export")
    if room is None:
        return
    home = importlib.import_module(f"tlm_book.{room}")
    rooms = [module for name, module in list(sys.modules.items()) if name.split(".")[0] == "tlm_book"]
    for node in ast.parse(source).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and hasattr(home, node.name):
            whole = getattr(home, node.name)
            for module in rooms:
                if getattr(module, node.name, None) is whole:
                    setattr(module, node.name, names[node.name])


def is_caught(cells: list[str], start: int, mutation: Mutation, names: dict[str, object]) -> str:
    """What becomes of one mutation: "caught" when a check cell of its statement fails.

    A failure elsewhere is passed over; after one, only AssertionError counts, for other errors may come from missing names.
    """
    counts: type[Exception] = Exception
    checks = checks_of(mutation.statement, cells)
    for number in range(start, max(checks, default=start) + 1):
        source = cells[number].replace(mutation.old, mutation.new) if number == start else cells[number]
        checked = number in checks
        try:
            run_cell(number, source, names)
        except Exception as error:
            if checked and isinstance(error, AssertionError if number == start else counts):
                return "caught"
            if number == start:
                return f"the changed cell does not run: {error!r}"
            counts = AssertionError
        else:
            if number == start:
                publish(source, names)
    return "not noticed"


def in_a_child(cells: list[str], start: int, mutation: Mutation, names: dict[str, object]) -> str:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, is_caught(cells, start, mutation, names).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as pipe:
        return pipe.read().decode() or "the changed chapter crashed"


def outcomes(chapter: str, mutations: list[Mutation]) -> list[str]:
    """One word or sentence a mutation, in the order given."""
    import matplotlib

    matplotlib.use("Agg")
    cells = code_cells(chapter)
    places: dict[int, list[int]] = {}
    for index, mutation in enumerate(mutations):
        found = [number for number, source in enumerate(cells) if mutation.old in source]
        if len(found) != 1 or cells[found[0]].count(mutation.old) != 1:
            raise SystemExit(f"{chapter}: {mutation.old!r} stands in cells {found}; wanted: once, in one cell")
        places.setdefault(found[0], []).append(index)
    wanted: dict[int, list[str]] = {}
    for start, those in places.items():
        for _, statement, old, new in (mutations[index] for index in those):
            wanted.setdefault(start, []).append(cells[start].replace(old, new))
            wanted |= {check: [] for check in checks_of(statement, cells) if check > start and check not in wanted}
    cells = needed(cells, wanted)
    results, names = [""] * len(mutations), {"__name__": "__main__", "display": lambda *things: None}
    for number, source in enumerate(cells):
        for index in places.get(number, []):
            results[index] = in_a_child(cells, number, mutations[index], names)
        run_cell(number, source, names)
    return results


def main() -> None:
    chapter, mutations = sys.argv[1], [Mutation(*fields) for fields in json.loads(sys.argv[2])]
    output = os.dup(1)
    os.dup2(2, 1)  # what the cells print goes to stderr
    answer = outcomes(chapter, mutations)
    os.write(output, json.dumps(answer).encode())

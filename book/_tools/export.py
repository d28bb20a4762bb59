"""Write `src/tlm_book` from the chapters: each cell that begins `#| export MODULE` goes into that module, in order.

    python book/_tools/export.py            rewrite the modules
    python book/_tools/export.py --check    change nothing; exit 1 and name what differs

A chapter X exports to `X`, to `spec.X`, or, if X is a package, to its rooms `X.room`. A module has the title of its chapter, unless
its first cell begins with a docstring. If the second line of a cell is `#| private`, its names stay out of `__all__`. A file whose first
line does not say "Generated from" is written by hand and left alone.
"""

import ast
import builtins
import re
import symtable
import sys
from pathlib import Path
from typing import NamedTuple

from chapters import (
    SOURCE,
    chapters,
    directives,
    notebook_path,
    read,
    without_directives,
)

GENERATED = re.compile(r"Generated from book/(\w+)\.ipynb: edit the notebook")
OF_EVERY_MODULE = {"__name__", "__file__", "__doc__", "__package__", "__spec__", "__path__", "__all__"}


class Piece(NamedTuple):
    """One exported cell: the heading above it, its code, and whether its names are public."""

    section: str
    code: str
    public: bool


def heading(markdown: str) -> str | None:
    """The last heading of a markdown cell, without its marks."""
    titles = [line.lstrip("# ").strip() for line in markdown.splitlines() if line.startswith("#")]
    return titles[-1] if titles else None


def public_names(code: str) -> list[str]:
    """Names that a module defines at its top level, without leading underscore."""
    names = []
    for node in ast.parse(code).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names += [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)]
    return list(dict.fromkeys(name for name in names if not name.startswith("_")))


def undefined_names(code: str) -> list[str]:
    """Names that a module uses and neither defines nor imports. Strings are not looked at: in a type they name axes."""
    scopes = [symtable.symtable(code, "module", "exec")]
    for scope in scopes:  # the list grows while it is read: the scopes inside, to any depth
        scopes += scope.get_children()
    symbols = [(scope is scopes[0], symbol) for scope in scopes for symbol in scope.get_symbols()]
    made = {s.get_name() for top, s in symbols if (top or s.is_declared_global()) and (s.is_assigned() or s.is_imported())}
    used = {s.get_name() for _, s in symbols if s.is_global() and s.is_referenced()}
    return sorted(used - made - set(dir(builtins)) - OF_EVERY_MODULE)


def expects_place(chapter: str, module: str) -> None:
    """A chapter may export to three places."""
    room = re.fullmatch(rf"(?:spec\.)?{chapter}|{chapter}\.[a-z]\w*", module)
    if not room:
        raise SystemExit(f"book/{chapter}.ipynb: a cell exports to {module!r}; wanted {chapter!r}, 'spec.{chapter}' or a room '{chapter}.name'")


def modules_of(chapter: str) -> dict[str, str]:
    """{module name: text} of one chapter: `X`, `spec.X` and rooms `X.room`, nothing else."""
    title, section = None, None
    pieces: dict[str, list[Piece]] = {}
    for cell in read(chapter).cells:
        if cell.cell_type == "markdown":
            section = heading(cell.source) or section
            title = title or section
            continue
        marks = directives(cell.source)
        if "export" not in marks:
            continue
        expects_place(chapter, marks["export"])
        piece = Piece(section, without_directives(cell.source), "private" not in marks)
        pieces.setdefault(marks["export"], []).append(piece)
    rooms = {module for module in pieces if module.startswith(f"{chapter}.")}
    if rooms and chapter in pieces:
        raise SystemExit(f"book/{chapter}.ipynb exports to {chapter!r} and to rooms of it; the package's __init__.py is written by hand")
    for module, some in pieces.items():
        if missing := undefined_names("\n\n".join(piece.code for piece in some)):
            raise SystemExit(f"book/{chapter}.ipynb: the cells that make {module!r} use names that they never define: {', '.join(missing)}")
    return {module: module_text(chapter, title, some) for module, some in pieces.items()}


def split_docstring(code: str, otherwise: str) -> tuple[str, str]:
    """The docstring with which a first cell begins, on one line, and the code below it."""
    first, doc = ast.parse(code).body[:1], ast.get_docstring(ast.parse(code))
    if doc is None:
        return otherwise, code
    return " ".join(doc.split()).rstrip("."), "\n".join(code.splitlines()[first[0].end_lineno :]).strip("\n")


def module_text(chapter: str, title: str, pieces: list[Piece]) -> str:
    """One module: a head that names its chapter, the first cell (imports), `__all__`, then the cells in order, each section under its heading."""
    (_, imports, _), *rest = pieces
    title, imports = split_docstring(imports, title)
    names = dict.fromkeys(name for piece in pieces if piece.public for name in public_names(piece.code))
    listed = "".join(f'    "{name}",\n' for name in names)
    public = f"__all__ = [\n{listed}]" if names else "__all__: list[str] = []"
    body, above = "", None
    for section, code, _ in rest:
        body += "\n\n" + f"# --- {section}\n\n\n" * (section != above) + f"{code}\n"
        above = section
    return (
        f'"""{title}{"" if title[-1] in "?!" else "."} Generated from book/{chapter}.ipynb: edit the notebook, then `make export`."""\n\n'
        f"{imports}\n\n{public}\n{body}"
    )


def exported() -> dict[Path, bytes]:
    """Every generated file of the package and its content."""
    files = {}
    for chapter in chapters():
        if not notebook_path(chapter).exists():
            raise SystemExit(f"_toc.yml names {chapter}, but {notebook_path(chapter)} is missing")
        for module, text in modules_of(chapter).items():
            path = SOURCE / (module.replace(".", "/") + ".py")
            if path.with_suffix("").is_dir():
                raise SystemExit(f"book/{chapter}.ipynb exports to {module!r}, which is a package; name a room of it, '{chapter}.name'")
            if not (path.parent / "__init__.py").exists():
                raise SystemExit(f"book/{chapter}.ipynb exports to {module!r}: write the package's {path.parent.name}/__init__.py first")
            files[path] = text.encode()
    return files


def is_generated(path: Path) -> bool:
    """Does the file say so in its first line? All others are written by hand."""
    return bool(GENERATED.search(path.read_text(encoding="utf-8").split("\n", 1)[0]))


def differences() -> list[str]:
    """What a fresh export would change, one line each; empty when notebooks and package agree."""
    want = exported()
    found = [f"differs: {path.relative_to(SOURCE)}" for path, text in want.items()
             if not path.exists() or path.read_bytes() != text]
    return found + [f"no chapter exports: {name}" for name in orphans(want)]


def orphans(want: dict[Path, bytes]) -> list[str]:
    """Generated modules that no chapter exports any more."""
    left = [path for path in sorted(SOURCE.rglob("*.py")) if path not in want and is_generated(path)]
    return [path.relative_to(SOURCE).as_posix() for path in left]


def main() -> None:
    if "--check" in sys.argv[1:]:
        found = differences()
        print("\n".join(found) or "notebooks and package agree")
        raise SystemExit(bool(found))
    written, files = 0, exported()
    by_hand = [path for path in files if path.exists() and not is_generated(path)]
    if by_hand:
        raise SystemExit(f"{by_hand[0].relative_to(SOURCE)} is written by hand, and a chapter exports to it: remove one of the two")
    for path, content in files.items():
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            print("wrote", path.relative_to(SOURCE.parent))
            written += 1
    print(f"{written} files written")
    if left := orphans(files):
        raise SystemExit(f"no chapter exports: {', '.join(left)}; remove what is not wanted")


if __name__ == "__main__":
    main()

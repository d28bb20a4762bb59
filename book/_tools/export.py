"""Write `src/tlm_book` from the chapters: each cell that begins `#| export MODULE` goes into that module, in order.

    python book/_tools/export.py            rewrite the modules and the package's copy of book/data
    python book/_tools/export.py --check    change nothing; exit 1 and name what differs
"""

import ast
import sys
from pathlib import Path

from chapters import (
    BOOK,
    SOURCE,
    chapters,
    directives,
    notebook_path,
    read,
    without_directives,
)


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
            names += [target.id for target in targets if isinstance(target, ast.Name)]
    return list(dict.fromkeys(name for name in names if not name.startswith("_")))


def modules_of(chapter: str) -> dict[str, str]:
    """{module name: text} of one chapter: `X` and `spec.X`, nothing else."""
    title, section, pieces = None, None, {}
    for cell in read(chapter).cells:
        if cell.cell_type == "markdown":
            section = heading(cell.source) or section
            title = title or section
            continue
        module = directives(cell.source).get("export")
        if module is None:
            continue
        if module not in (chapter, f"spec.{chapter}"):
            raise SystemExit(f"book/{chapter}.ipynb: a cell exports to {module!r}; wanted {chapter!r} or 'spec.{chapter}'")
        pieces.setdefault(module, []).append((section, without_directives(cell.source)))
    return {module: module_text(chapter, title, cells) for module, cells in pieces.items()}


def module_text(chapter: str, title: str, cells: list[tuple[str, str]]) -> str:
    """One module: a head that names its chapter, the first cell (imports), `__all__`, then the cells in order."""
    (_, imports), *rest = cells
    names = public_names("\n\n".join(code for _, code in cells))
    listed = "\n".join(f'    "{name}",' for name in names)
    body = "".join(f"\n\n# {chapter}: {section}\n{code}\n" for section, code in rest)
    return (
        f'"""{title}{"" if title[-1] in "?!" else "."} Generated from book/{chapter}.ipynb: edit the notebook, then `make export`."""\n\n'
        f"{imports}\n\n__all__ = [\n{listed}\n]\n{body}"
    )


def exported() -> dict[Path, bytes]:
    """Every generated file of the package and its content."""
    files = {}
    for chapter in chapters():
        if not notebook_path(chapter).exists():
            raise SystemExit(f"_toc.yml names {chapter}, but {notebook_path(chapter)} is missing")
        for module, text in modules_of(chapter).items():
            files[SOURCE / (module.replace(".", "/") + ".py")] = text.encode()
    for file in sorted((BOOK / "data").rglob("*")):
        if file.is_file():
            files[SOURCE / "data" / file.relative_to(BOOK / "data")] = file.read_bytes()
    return files


BY_HAND = {"__init__.py", "__main__.py", "checks.py", "py.typed", "spec/__init__.py"}


def differences() -> list[str]:
    """What a fresh export would change, one line each; empty when notebooks and package agree."""
    want = exported()
    found = [f"differs: {path.relative_to(SOURCE)}" for path, text in want.items()
             if not path.exists() or path.read_bytes() != text]
    for path in SOURCE.rglob("*"):
        name = path.relative_to(SOURCE).as_posix()
        if path.is_file() and path not in want and name not in BY_HAND and not name.startswith(("viewer/", "exercises/")) \
                and "__pycache__" not in name:
            found.append(f"no chapter exports: {name}")
    return found


def main() -> None:
    if "--check" in sys.argv[1:]:
        found = differences()
        print("\n".join(found) or "notebooks and package agree")
        raise SystemExit(bool(found))
    written = 0
    for path, content in exported().items():
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            print("wrote", path.relative_to(SOURCE.parent))
            written += 1
    print(f"{written} files written")


if __name__ == "__main__":
    main()

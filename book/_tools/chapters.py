"""What the tools and tests know about the book: its chapters in order, their cells, the address in `_config.yml`."""

import difflib
import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
import yaml

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "book"
SOURCE = ROOT / "src" / "tlm_book"
APPENDIX = "Appendix"  # the caption of the last part
DIRECTIVE = re.compile(r"^#\|\s*(\w+)\s*:?\s*(.*)$")


@functools.cache
def _parsed(text: str) -> Any:
    """YAML as Python objects, each text parsed once: the parser is slow, and the table of contents is asked for thousands of times."""
    return yaml.safe_load(text)


def parts() -> dict[str, list[str]]:
    """{caption of a part: its notebooks}, in the order of `_toc.yml`. Pages of plain Markdown (`book/X.md`) have no cells and are left out."""
    toc = _parsed((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    files = {part["caption"]: [Path(chapter["file"]).stem for chapter in part["chapters"]] for part in toc["parts"]}
    return {caption: [name for name in names if not (BOOK / f"{name}.md").exists()] for caption, names in files.items()}


def appendices() -> list[str]:
    """Notebooks of the appendix. They run and may export like chapters; they need no exercises and hold no statements."""
    return parts().get(APPENDIX, [])


def chapters() -> list[str]:
    """Names of the chapters, then of the appendices: every notebook but the landing page."""
    return [name for names in parts().values() for name in names]


def table_of_contents() -> list[str]:
    """Names of all notebooks, the landing page first."""
    return ["index", *chapters()]


def chosen(names: Sequence[str], known: Sequence[str]) -> list[str]:
    """These names, or all that are known if there is none. SystemExit for one that is not known, which suggests the nearest."""
    for name in names:
        if name not in known:
            raise SystemExit(f"got {name}, want names of chapters in _toc.yml; did you mean {difflib.get_close_matches(name, known, 1, 0)[0]}?")
    return list(names or known)


def notebook_path(name: str) -> Path:
    return BOOK / f"{name}.ipynb"


def read(name: str) -> nbformat.NotebookNode:
    return nbformat.read(notebook_path(name), as_version=4)


def directives(source: str) -> dict[str, str]:
    """The `#| key value` lines at the top of a code cell.

    >>> directives("#| checks: W-a W-b\\nassert True")
    {'checks': 'W-a W-b'}
    """
    found = {}
    for line in source.splitlines():
        match = DIRECTIVE.match(line)
        if not match:
            break
        found[match[1]] = match[2].strip()
    return found


def without_directives(source: str) -> str:
    lines = source.splitlines()
    while lines and DIRECTIVE.match(lines[0]):
        lines.pop(0)
    return "\n".join(lines).strip("\n")


def repository_url() -> str:
    config = _parsed((ROOT / "_config.yml").read_text(encoding="utf-8"))
    return config["repository"]["url"].rstrip("/")


def install_cell() -> str:
    """The first code cell of every chapter; the address stands in `_config.yml` alone."""
    return (
        "# On a bare machine (Colab), fetch the package that this book exports. Elsewhere: nothing to do.\n"
        "import importlib.util\n\n"
        'if importlib.util.find_spec("tlm_book") is None:\n'
        f'    %pip install -q "tlm_book[book] @ git+{repository_url()}"'
    )

"""Puts the tables of the reports into the pages that quote them.

    python benchmarks/quoting.py

In a chapter, what stands between <!-- begin: benchmarks/NAME.md --> and <!-- end: benchmarks/NAME.md --> is the first table of that report, with the
line that says where and when it was measured; a number after the name, counted from 1, means another: <!-- begin: benchmarks/NAME.md 2 -->.
"""

import json
import re
from pathlib import Path

HERE = Path(__file__).parent
BOOK = HERE.parent / "book"
QUOTED = re.compile(r"(<!-- begin: benchmarks/(\w+)\.md(?: (\d+))? -->\n\n)(.*?)(\n*<!-- end: benchmarks/\2\.md -->)", re.S)


def tables(name: str) -> list[str]:
    """The tables of a report, in order; none when nothing has been measured."""
    path = HERE / f"{name}.md"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return re.findall(r"(?:^\|.*\n)+(?:\nMeasured on .*\n)?", text, re.M)


def quoted(text: str) -> str:
    """A page with the tables as they now stand in the reports."""

    def table(found: re.Match[str]) -> str:
        begin, name, number, _, end = found.groups()
        made = tables(name)
        return begin + made[int(number or 1) - 1].rstrip("\n") + end if made else found[0]

    return QUOTED.sub(table, text)


def main() -> None:
    for path in sorted(BOOK.glob("*.ipynb")):
        page = json.loads(path.read_text(encoding="utf-8"))
        before = json.dumps(page)
        for cell in page["cells"]:
            if cell["cell_type"] == "markdown":
                cell["source"] = quoted("".join(cell["source"])).splitlines(keepends=True)
        if json.dumps(page) != before:
            path.write_text(json.dumps(page, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            print(f"{path.name}: other figures")


if __name__ == "__main__":
    main()

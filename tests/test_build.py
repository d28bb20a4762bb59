"""The build of the site refuses what is broken: a small book of two pages with the site's own settings and extension."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import chapters as book
import nbformat
import pytest
import yaml

TEXT = """# Second page

<a id="T-here"></a>

> **Definition** (a thing). Let $x$ be a thing with $\\unicode{x25FA}x=1$.

See [the thing](#T-here) and [the other page](first.ipynb#T-there), by name `T-there`, but no `T-nothing`.
"""


PRINTED = {  # what may be wrapped on a narrow page, and what may not
    True: ["a sentence of many words", "three numbers: 1 2 3\nfour:  1 2 3 4", "[1, 2, 3]"],
    False: ["a  1\nbc  2", "x\n├─ y", "[[1. 2.]\n [3. 4.]]"],
}


def notebook(*sources):
    cells = [nbformat.v4.new_markdown_cell(source) for source in sources]
    for text in sum(PRINTED.values(), []):
        cells.append(nbformat.v4.new_code_cell("print(text)", execution_count=1, outputs=[nbformat.v4.new_output("stream", text=text)]))
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}, "language_info": {"name": "python"}}
    return nbformat.v4.new_notebook(cells=cells, metadata=metadata)


@pytest.fixture
def small_book(tmp_path):
    """A function that builds the book and returns its exit status and what it said."""
    shutil.copy(book.ROOT / "_config.yml", tmp_path)
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: book/first\nchapters:\n- file: book/second\n", encoding="utf-8")
    for name in ("_ext", "assets"):
        shutil.copytree(book.BOOK / name, tmp_path / "book" / name, ignore=shutil.ignore_patterns("__pycache__"))
    nbformat.write(notebook('# First page\n\n<a id="T-there"></a>\n\n> **Claim** (there). It is there.'), tmp_path / "book" / "first.ipynb")

    def write(text):
        nbformat.write(notebook(text), tmp_path / "book" / "second.ipynb")

    def build(text=TEXT):
        write(text)
        program = Path(sys.executable).with_name("jupyter-book")
        done = subprocess.run([program, "build", ".", "-W", "-n", "--keep-going"], cwd=tmp_path, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    build.folder, build.write = tmp_path, write
    return build


def test_a_whole_book_builds_twice(small_book):
    for text in (TEXT, TEXT + "\nOne line more.\n"):
        status, said = small_book(text)
        assert status == 0, said
    html = (small_book.folder / "_build" / "html" / "book" / "second.html").read_text(encoding="utf-8")
    assert "Definition 0.1" in html or "Definition 1" in html
    assert "One line more." in html
    assert r"\triangle{}x=1" in html
    assert re.search(r'<a class="[^"]*statement-link[^"]*" href="first.html#T-there"[^>]*>T-there</a>', html)
    assert ">T-nothing</span></code>" in html
    assert [("flows" in kinds) for kinds in re.findall(r'<div class="output stream ([^"]*)">', html)] == [wrap for wrap, texts in PRINTED.items() for _ in texts]


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ("[a page](third.ipynb)", "third.ipynb"),
        ("[a place](#T-nowhere)", "T-nowhere"),
        ("[a place elsewhere](first.ipynb#T-nowhere)", "T-nowhere"),
        ("![a picture](nowhere.png)", "nowhere.png"),
        ('<a id="T-odd"></a>\n\n> **Sermon** (odd). No such kind.', "T-odd"),
    ],
)
def test_a_fault_stops_the_build(small_book, fault, complaint):
    status, said = small_book(f"{TEXT}\n{fault}\n")
    assert status != 0
    assert complaint in said


def test_a_missing_chapter_stops_the_build(small_book):
    toc = small_book.folder / "_toc.yml"
    toc.write_text(yaml.safe_dump({**yaml.safe_load(toc.read_text()), "chapters": [{"file": "book/second"}, {"file": "book/third"}]}))
    status, said = small_book()
    assert status != 0
    assert "book/third" in said

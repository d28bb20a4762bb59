"""The build of the site refuses what is broken: a small book of two pages with the site's own settings and extension."""

import re
import shutil
from itertools import chain

import building
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
    for text in chain.from_iterable(PRINTED.values()):
        outputs = [nbformat.v4.new_output("stream", text=text)]
        cells += [nbformat.v4.new_code_cell("print(text)", execution_count=1, outputs=outputs)]
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}, "language_info": {"name": "python"}}
    return nbformat.v4.new_notebook(cells=cells, metadata=metadata)


@pytest.fixture
def small_book(tmp_path):
    """A function that builds the book and returns its exit status and what it said."""
    shutil.copy(book.ROOT / "_config.yml", tmp_path)
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: book/first\nchapters:\n- file: book/second\n", encoding="utf-8")
    for name in ("site", "book/assets"):
        shutil.copytree(book.ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    nbformat.write(notebook('# First page\n\n<a id="T-there"></a>\n\n> **Claim** (there). It is there.'), tmp_path / "book" / "first.ipynb")

    def write(text):
        nbformat.write(notebook(text), tmp_path / "book" / "second.ipynb")

    def build(text=TEXT, by=building.build):
        write(text)
        return by(tmp_path)

    build.folder, build.write = tmp_path, write
    return build


@pytest.mark.long
def test_a_whole_book_builds_twice(small_book):
    for text, by in ((TEXT, building.program), (TEXT + "\nOne line more.\n", building.build)):
        status, said = small_book(text, by)
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


GLOSSARY = '# Glossary\n\n<a id="term-row"></a>**Row** (*line*). A thing in $\\mathbb R^d$, see [it](first.ipynb#T-there).\n\n<a id="term-row-sum"></a>**Row sum**. A number.\n'
USES = """# Rows are here

<a id="T-rows"></a>

> **Definition** (rows). A row is a row.

`row`, $row$, **row**, [a row](first.ipynb#T-there) and Arrows. Row sums and a row sum and two Rows and a line.

| row |
|---|
| row |
"""
STATEMENTS = '# All\n\n<div data-statements="summary"></div>\n\n## W\n\n<div data-statements="W"></div>\n\n## Own\n\n<div data-statements="T"></div>\n'


def test_punctuation_stays_where_it_was_written(small_book):
    """Between a link and a formula with equal texts before them, only the formula's bracket moves."""
    status, said = small_book("# Second page\n\n*One* ([a row](first.ipynb#T-there)) *two* ($x$), *three* ($y$).\n")
    assert status == 0, said
    html = (small_book.folder / "_build" / "html" / "book" / "second.html").read_text(encoding="utf-8")
    (paragraph,) = re.findall(r"<p><em>One.*?</p>", html, re.DOTALL)
    assert re.sub(r"<[^>]*>|\s", "", paragraph) == "One(arow)two(x),three(y)."


def test_terms_lead_to_the_glossary_and_statements_are_listed(small_book):
    """The first use in prose alone; the list of statements knows where each is stated and checked. A change of the glossary reaches the chapters."""
    folder = small_book.folder / "book"
    toc = {"format": "jb-book", "root": "book/first", "chapters": [{"file": f"book/{name}"} for name in ("second", "glossary", "statements")]}
    (small_book.folder / "_toc.yml").write_text(yaml.safe_dump(toc), encoding="utf-8")
    package = small_book.folder / "src" / "tlm_book"
    (package / "data").mkdir(parents=True)
    (package / "derivation").mkdir()
    (package / "data" / "statements.csv").write_text("id,kind,verdict,chapter\nW-gone,claim,false,second\n", encoding="utf-8")
    (package / "derivation" / "coq.py").write_text('MACHINE_CHECKED: dict = {"T-rows": ("rows_are_rows",)}\n', encoding="utf-8")
    (folder / "glossary.md").write_text(GLOSSARY, encoding="utf-8")
    (folder / "statements.md").write_text(STATEMENTS, encoding="utf-8")
    status, said = small_book(USES)
    assert status == 0, said
    html = {name: (small_book.folder / "_build" / "html" / "book" / f"{name}.html").read_text(encoding="utf-8") for name in ("second", "statements")}
    terms = re.findall(r'<a class="term statement-link[^"]*" href="glossary.html#(term-[\w-]+)" title="([^"]+)">([^<]+)</a>([^<]{0,6})', html["second"])
    assert [term[:3] for term in terms] == [("term-row-sum", "row sum: glossary", "Row sums"), ("term-row", "row: glossary", "Rows")], terms
    previews = (small_book.folder / "_build" / "html" / "_static" / "previews" / "glossary.js").read_text(encoding="utf-8")
    assert '"term-row": "' in previews and "mathbb R^d" in previews and "href" not in previews

    rows = re.findall(r'<tr data-verdict="([^"]+)"><th scope="row"><code>([^<]+)</code>(.*?)</tr>', html["statements"])
    assert [row[:2] for row in rows] == [("false", "W-gone"), ("proved-here", "T-there"), ("proved-here", "T-rows")]
    assert ["rows_are_rows" in row[2] for row in rows] == [False, False, True]
    assert "not stated" in rows[0][2] and "not checked" in rows[0][2] and 'href="second.html#T-rows"' in rows[2][2]

    other = GLOSSARY.replace("(*line*)", "(*lines*, *line*)").replace("**Row**", "**Column**")
    for glossary, links in (
        (other, [("term-row-sum", "Row sums"), ("term-row", "line")]),
        (other.replace("-there).", "-there). <!-- no link in: first, second -->"), [("term-row-sum", "Row sums")]),  # where the word means something else
    ):
        (folder / "glossary.md").write_text(glossary, encoding="utf-8")
        status, said = small_book(USES)
        assert status == 0, said
        again = (small_book.folder / "_build" / "html" / "book" / "second.html").read_text(encoding="utf-8")
        assert re.findall(r'href="glossary.html#(term-[\w-]+)" title="[^"]+">([^<]+)</a>', again) == links
    (folder / "glossary.md").write_text(other.replace("-there).", "-there). <!-- no link in: third -->"), encoding="utf-8")
    status, said = small_book(USES)
    assert status != 0 and "third" in said

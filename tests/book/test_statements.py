"""Every statement stands once, is checked by a cell that ran and asserts, and the main source is covered whole."""

import csv
import re
from collections import Counter

import chapters as book
import pytest
import yaml

ANCHOR = re.compile(r'<a id="([A-Z]-[\w.\-]+)"></a>')
STATEMENT = re.compile(
    r"^> \*\*(Definition|Lemma|Claim|Theorem|Proposition|Corollary|Example|Remark|Convention|Algorithm|Counterexample|Question|Observation)\*\*"
)
HOW = re.compile(r"(proved|exhaustive|sampled|example|measured|reported): \S.{0,88}[^.\s]")
ASSERTS = re.compile(r"\bassert\b|\braises\b")
CATALOGUE = {row["id"]: row for row in csv.DictReader((book.SOURCE / "data" / "statements.csv").open(encoding="utf-8"))}


def stated() -> Counter:
    return Counter(
        id_ for name in book.table_of_contents() for cell in book.read(name).cells if cell.cell_type == "markdown"
        for id_ in ANCHOR.findall(cell.source)
    )


# What may stand without a check: an attribution for which no ground was found, and praise.
UNCHECKED = {"A-gehring-attribution", "M-simple-remark"}


def home_pages() -> list[str]:
    """Where statements stand: not in the appendix, whose cells (the errata) come on top."""
    return [name for name in book.table_of_contents() if name not in book.appendices()]


def checks(names: list[str]) -> dict[str, list]:
    """{id: its check cells on these pages}."""
    found: dict[str, list] = {}
    for name in names:
        for cell in book.read(name).cells:
            if cell.cell_type == "code":
                for id_ in re.split(r"[\s,]+", book.directives(cell.source).get("checks", "")):
                    if id_:
                        found.setdefault(id_, []).append(cell)
    return found


def test_each_statement_stands_once():
    assert {id_: count for id_, count in stated().items() if count > 1} == {}


def test_ids_are_of_the_sources_or_our_own():
    unknown = {id_ for id_ in [*stated(), *checks(book.table_of_contents())] if id_ not in CATALOGUE and not id_.startswith("T-")}
    assert unknown == set(), "ids of our own begin with T-; others must be in src/tlm_book/data/statements.csv"


def test_every_check_belongs_to_a_statement():
    assert set(checks(book.table_of_contents())) - set(stated()) == set()


def test_every_statement_of_the_sources_is_stated():
    assert len(CATALOGUE) == 290
    assert set(CATALOGUE) - set(stated()) == set()


def test_every_statement_is_checked():
    """In a chapter: by a cell that ran and asserts (test_check_cells_ran_and_assert)."""
    assert set(stated()) - set(checks(home_pages())) == UNCHECKED
    assert all(CATALOGUE[id_]["verdict"] == "opinion" for id_ in UNCHECKED)


@pytest.mark.parametrize("name", book.table_of_contents())
def test_anchors_introduce_a_statement(name):
    """After a line of anchors and a blank line comes the block quote that it names."""
    for cell in book.read(name).cells:
        lines = cell.source.splitlines() if cell.cell_type == "markdown" else []
        for count, line in enumerate(lines):
            if ANCHOR.search(line):
                assert ANCHOR.sub("", line).strip() == "", f"{name}: an anchor shares its line with text: {line}"
                assert lines[count + 1 : count + 2] == [""] and STATEMENT.match("".join(lines[count + 2 : count + 3])), (
                    f"{name}: after {line} a blank line and '> **Definition** …' are wanted"
                )


@pytest.mark.parametrize("name", book.table_of_contents())
def test_check_cells_ran_and_assert(name):
    for cell in book.read(name).cells:
        if cell.cell_type == "code" and "checks" in book.directives(cell.source):
            assert cell.execution_count, f"{name}: a check cell was not executed"
            assert ASSERTS.search(cell.source), f"{name}: a check cell asserts nothing:\n{cell.source}"


@pytest.mark.parametrize("name", book.table_of_contents())
def test_check_cells_say_how_and_are_folded(name):
    """`#| how: sampled: 300 shapes`: the line of the fold, and the word in the table of statements."""
    for cell in book.read(name).cells:
        marks = book.directives(cell.source) if cell.cell_type == "code" else {}
        assert ("how" in marks) == ("checks" in marks), f"{name}: a check cell says how it checks, no other cell does:\n{cell.source[:200]}"
        if "how" in marks:
            assert HOW.fullmatch(marks["how"]), f"{name}: {marks['how']!r}: wanted a word of the list, a colon, at most 90 signs, no full stop"
            tags = cell.metadata.get("tags", [])
            assert "hide-cell" in tags or "hide-input" in tags, f"{name}: a check cell is not folded:\n{cell.source[:200]}"


@pytest.mark.parametrize("name", book.table_of_contents())
def test_a_cell_that_checks_several_statements_names_each(name):
    """In a message or a comment at the assertions that are for it, so that a failure says what has failed."""
    for cell in book.read(name).cells:
        ids = book.directives(cell.source).get("checks", "").split() if cell.cell_type == "code" else []
        body = "\n".join(line for line in cell.source.splitlines() if not line.startswith("#|"))
        unnamed = [id_ for id_ in ids if not re.search(re.escape(id_) + r"(?![\w-])", body)]
        assert len(ids) < 2 or not unnamed, f"{name}: {unnamed} are not named in\n{cell.source}"


def test_the_list_names_the_chapter_where_a_statement_stands():
    where = {
        id_: name for name in book.table_of_contents() for cell in book.read(name).cells if cell.cell_type == "markdown"
        for id_ in ANCHOR.findall(cell.source)
    }
    assert {id_: row["chapter"] for id_, row in CATALOGUE.items()} == {id_: where.get(id_) for id_ in CATALOGUE}


# Where this book's verdict is another than the full catalogue's, and is shown to be right. Self-attention whose queries keep the axis seq is not ill-typed: it is
# the lift of attention, which named_tensors computes slice by slice.
OTHERWISE = {"L-selfattention-def": "true-with-conditions"}


def test_catalogue_copy_is_current():
    """Where the full catalogue stands beside the checkout, its ids, kinds and verdicts must equal the copy's. (It sorts the statements by subject.)"""
    full = book.ROOT.parent / "shared" / "statements.yml"
    if not full.exists():
        pytest.skip("the full catalogue of statements is not beside this checkout")
    entries = yaml.safe_load(full.read_text(encoding="utf-8"))
    want = [(e["id"], e["kind"], OTHERWISE.get(e["id"], str(e["verdict"]).lower())) for e in entries]
    assert [(row["id"], row["kind"], row["verdict"]) for row in CATALOGUE.values()] == want


def test_the_translator_is_described_as_it_was_measured():
    """The numbers of an Observation belong to one machine: those of T-translator are the ones that its check printed there."""
    (text,) = [cell.source for cell in book.read("translation").cells if '<a id="T-translator"></a>' in cell.source]
    said = re.search(r"translates ([\d.]+) in 100 of .*; with the seeds 1 to 4, from ([\d.]+) to ([\d.]+)\. ", text)
    printed = "".join(output.text for output in checks(["translation"])["T-translator"][0].outputs)
    greedy, others = re.search(r"^greedy +([\d.]+) ", printed, re.M), [float(n) for n in re.findall(r"^seed \d: ([\d.]+)$", printed, re.M)]
    assert len(others) == 4 and [float(n) for n in said.groups()] == [float(greedy[1]), min(others), max(others)]

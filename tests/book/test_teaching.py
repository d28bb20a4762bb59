"""The page for teachers and the sheet of formulas: the plans name what is there, in an order in which it can be taught."""

import json
import re
import sys

import chapters as book
import pytest
from test_appendices import (
    DISPLAYED,
    letters_of,
    markdown,
    other_letters,
    page,
    shapes_of_letters,
)

sys.path.insert(0, str(book.ROOT / "site"))
from tlm import teaching

BOOK = teaching.chapters(book.ROOT)
CORE = [name for part, names in teaching.parts(book.ROOT).items() for name in names if teaching.is_core(part, name)]
SECTION = re.compile(r"\]\((\w+)\.ipynb#(\S+?)\)(?=[\s,.;:|)]|$)", re.M)
NUMBERS = re.compile(r"`(\w+)` (\d+(?:, \d+)*)")


def plan(heading):
    """The rows of the table under a heading, each a list of cells."""
    lines = page("teaching").partition(f"\n## {heading}\n")[2].partition("\n## ")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("|")][2:]


def places(name):
    """What a link into a chapter may name: anchors, and headings with dashes for spaces."""
    headings = re.findall(r"^#+ (.+)$", markdown(name), re.M)
    return {*re.findall(r'<a id="([^"]+)"', markdown(name)), *(re.sub(r"[`*]", "", heading).replace(" ", "-") for heading in headings)}


@pytest.mark.parametrize("name", ["teaching", "sheet"])
def test_links_lead_to_what_is_there(name):
    links = SECTION.findall(page(name))
    assert len(links) > 30
    assert not [f"{chapter}#{place}" for chapter, place in links if place not in places(chapter)]
    named = re.findall(r"\[([^\]]+)\]\(\w+\.ipynb#(\S+?)\)(?=[\s,.;:|]|$)", page("teaching"), re.M)
    assert all(place.startswith((words.replace(" ", "-"), "B-")) for words, place in named)  # a section is called by its heading


def test_exercises_that_are_set_exist():
    asked = NUMBERS.findall(page("teaching"))
    assert len(asked) > 50
    for name, numbers in asked:
        assert max(map(int, numbers.split(", "))) <= len(BOOK[name].exercises), f"{name} has no exercise {numbers}"


@pytest.mark.parametrize(("heading", "lectures"), [("Six lectures", 6), ("Fourteen lectures", 14)])
def test_a_plan_is_whole_and_in_order(heading, lectures):
    """Every chapter of the core, none before what it needs; each lecture sets exercises of its own chapters."""
    rows = plan(heading)
    assert len(rows) == lectures
    taught = [re.findall(r"\]\((\w+)\.ipynb\)", " ".join(row[:2])) for row in rows]
    first = {name: k for k, names in reversed(list(enumerate(taught))) for name in names}
    assert set(CORE) <= set(first)
    order = list(BOOK)
    assert all(first[need] <= first[name] for name in CORE for need in BOOK[name].needs)
    assert [name for names in taught[: lectures - 1] for name in names if name in CORE] == sorted(
        [name for names in taught[: lectures - 1] for name in names if name in CORE], key=order.index
    )
    for row, names in zip(rows, taught):
        assert {name for name, _ in NUMBERS.findall(" ".join(row))} <= set(names), row[0]
        assert NUMBERS.findall(" ".join(row)), f"{row[0]}: no exercises"


def test_the_core_needs_the_core_alone():
    assert len(CORE) == 16 and all(set(BOOK[name].needs) <= set(CORE) for name in CORE)
    rows = plan("The core, and what may be left out")
    assert [row[0].strip("`") for row in rows] == CORE[1:]  # nothing of the overview
    for row in rows:
        assert all(chapter == row[0].strip("`") for chapter, _ in SECTION.findall(row[1])) and SECTION.findall(row[1])


def reachable(pairs, name):
    found = {need for need, later in pairs if later == name}
    return found.union(*(reachable(pairs, need) for need in found))


def test_the_arrows_left_out_change_nothing():
    """The arrows lead from each chapter to all that it needs, and without any one of them they do not."""
    pairs = teaching.arrows(BOOK)
    for name, chapter in BOOK.items():
        assert set(chapter.needs) <= reachable(pairs, name)
    for pair in pairs:
        assert pair[0] not in reachable([other for other in pairs if other != pair], pair[1])


def test_no_two_chapters_of_the_picture_touch():
    place, ways = teaching.layout(BOOK)
    assert {node for node in place if isinstance(node, str)} == set(BOOK)
    for row in {row for _, row in place.values()}:
        nodes = sorted((x, teaching.NODE if isinstance(node, str) else teaching.TURN) for node, (x, level) in place.items() if level == row)
        assert all(right - left >= (one + other) / 2 + teaching.GAP - 1e-6 for (left, one), (right, other) in zip(nodes, nodes[1:]))
    assert all(place[b][1] == place[a][1] + 1 for way in ways for a, b in zip(way, way[1:]))
    drawn = teaching.graph(book.ROOT, "{}.html".format)
    assert drawn.count("<a href=") == len(BOOK) and drawn.count("marker-end") == len(ways)


def test_minutes_are_counted_as_the_page_says(tmp_path):
    """A minute for a hundred words, two displayed formulas, ten lines of code; 5, 15 and 40 for an exercise."""
    cells = [
        ("markdown", "# Title of many words\n\n" + "word " * 1000 + "`code` $x$ [a link](first.ipynb#place)\n\n" + "$$x$$\n\n" * 10),
        ("code", "from tlm_book.second import x\n" + "x = 1\n" * 99),
        ("markdown", "## For the curious: more\n\n" + "word " * 1000 + "[a link](third.ipynb#place)"),
        ("markdown", "## Exercises\n\n● is routine, ●●● is hard.\n\n**1.** ● One.\n\n**2. Two.** ●●● Two.\n\n### Exercise 3: three\n\nThree."),
        ("code", "from tlm_book.third import x\n" * 100),
    ]
    path = tmp_path / "fourth.ipynb"
    path.write_text(json.dumps({"cells": [{"cell_type": kind, "source": text, "metadata": {}} for kind, text in cells]}), encoding="utf-8")
    chapter = teaching.Chapter(path, ["first", "second", "third"])
    assert (chapter.words, chapter.formulas, chapter.lines, chapter.exercises) == (1002, 10, 100, ["●", "●●●", "●●"])
    assert chapter.reading == 25 and chapter.solving == 60 and chapter.needs == ["first", "second"]
    said = page("teaching")
    assert "a minute for a hundred words, for two displayed formulas and for ten lines of code" in said and "5 minutes for an exercise marked ●, 15 for ●●" in said
    assert (teaching.WORDS, teaching.FORMULAS, teaching.LINES, teaching.GRADES) == (100, 2, 10, {"●": 5, "●●": 15, "●●●": 40})
    assert teaching.time(95) == "1:35"


def test_the_sheet_covers_the_core_in_the_letters_of_the_book():
    linked = {chapter for chapter, _ in re.findall(r"\]\((\w+)\.ipynb(#\S+)?\)", page("sheet"))}
    assert set(CORE) - {"training"} <= linked
    known = set(shapes_of_letters()) | set(other_letters())
    assert set().union(*map(letters_of, DISPLAYED.findall(page("sheet")))) <= known

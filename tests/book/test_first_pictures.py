"""What the first page and the playground show before they wake, as their text has it: a right answer, and a darkest word that is the answer's."""

import json
from pathlib import Path

import pytest

from tlm_book import small_world
from tlm_book.heads import knock_out
from tlm_book.viewer.playground.file import prepared
from tlm_book.viewer.playground.still import looked

BOOK = Path(__file__).resolve().parents[2] / "book"


def tales(page: str) -> list[str]:
    """The stories that a page's notebook shows, in its order."""
    cells = json.loads((BOOK / f"{page}.ipynb").read_text(encoding="utf-8"))["cells"]
    (source,) = [text for cell in cells if "\ntales = " in (text := "".join(cell["source"]))]
    names = {"small_world": small_world}
    for line in source.splitlines():
        if line.startswith("tales = "):
            exec(line, names)
    return names["tales"]


def said(tokenizer, found) -> str:
    return tokenizer.decode(found.tokens[found.asked :]).strip()


@pytest.mark.parametrize("page, survives", [("index", True), ("playground", False)])
def test_the_first_picture(page, survives):
    model, tokenizer = small_world.model()
    first = prepared(tales(page))[0]
    question, answer = first["asked"][0]
    found = looked(model, tokenizer, first["story"], question)
    darkest = max(range(found.story), key=lambda j: found.weights[j])
    assert said(tokenizer, found) == answer and tokenizer.decode([found.tokens[darkest]]).strip() == found.word and found.weights[darkest] > 0.9
    head = found.block, found.head
    without = looked(knock_out(model, head), tokenizer, first["story"], question, off=[head])
    assert (said(tokenizer, without) == answer) == survives and (without.block, without.head) != head


@pytest.mark.parametrize("level", range(len(small_world.LEVELS)))
def test_every_answer_is_one_sentence(level):
    """The pages judge an answer up to its first full stop."""
    for story in prepared(small_world.stories(40, seed=level, levels=(level,))):
        assert all(answer.endswith(".") and answer.count(".") == 1 for _, answer in story["asked"])


def test_on_the_first_page_something_is_given_away():
    assert any(" gave " in story.splitlines()[0] for story in tales("index"))

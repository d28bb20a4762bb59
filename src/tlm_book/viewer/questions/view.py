"""A story, a question and a model's answer, with the words at which the model looked. Written by hand."""

from collections.abc import Sequence
from typing import Any

import traitlets

from tlm_book.viewer.base import module, shown_title
from tlm_book.viewer.playground.file import OfModel, checked_name, data_of, prepared
from tlm_book.viewer.playground.still import still

__all__ = ["Questions", "questions"]


class Questions(OfModel):
    """The picture that `questions` returns. The reader's choices: `story`, `question`, and `off`, the heads that are switched off, as "block.head"."""

    _esm = module("questions", "../playground/tokens", "../playground/computer", "../playground/asking")
    _word = "questions"
    story = traitlets.Unicode("").tag(sync=True, picture=True)
    question = traitlets.Unicode("").tag(sync=True, picture=True)

    def __repr__(self) -> str:
        return f"<{len(self.data['stories'])} stories and their questions>"

    def _fallback(self) -> str:
        return self.data["still"]


def questions(model: Any, tokenizer: Any, stories: Sequence[str], *, title: str | None = None, file: str | None = None) -> Questions:
    """A story of the small world, a question that can be changed, the model's answer, and the words at which the head that found it looked.

    model, tokenizer, file   as for `playground`.
    stories   as `small_world.story` tells them: a line of prose, then a line for each question and its answer.
    title     a line above the picture.

    The head that found the answer is the one that gave the longest word of the answer the largest weight, in the row that wrote this word.
    A story that is too long loses its beginning, as in `playground`, and the page says so.
    TypeError and ValueError as in `playground`, and for stories without questions.
    """
    title = shown_title(title)
    known = prepared(stories)
    data = {**data_of(model, tokenizer), "title": title, "stories": known}
    story, (question, right) = known[0]["story"], known[0]["asked"][0]
    data["still"] = still(model, tokenizer, story, question, right)
    view = Questions(data=data, story=story, question=question)
    view._file = checked_name(file)
    return view

"""Whether a text belongs to the small world: each sentence grammatical, all of them true together, every answer right. Written by hand."""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tlm_book.checks import expects_kind
from tlm_book.small_world.language import Named, NotGrammatical, Sentence, read
from tlm_book.small_world.questions import answer
from tlm_book.small_world.world import Contradiction, World

__all__ = ["Fault", "Reading", "proofread", "sentences"]


class Fault(NamedTuple):
    """A sentence that does not belong, and why: kind is "grammar", "world" or "answer"."""

    sentence: str
    kind: str
    why: str


class Reading(NamedTuple):
    """What `proofread` found.

    sentences:   how many sentences the text has, questions with their answers counted as one
    faults:      in the text's order, sentences that are not of the language, contradict what was told before, or give a wrong answer
    asked:       how many questions; askable: how many of them have an answer
    """

    sentences: int
    faults: list[Fault]
    asked: int
    askable: int

    @property
    def consistent(self) -> bool:
        """Whether there is no fault."""
        return not self.faults

    def count(self, kind: str) -> int:
        """The number of faults of this kind."""
        return sum(fault.kind == kind for fault in self.faults)


def sentences(line: str) -> list[str]:
    """The sentences of a line; a full stop or question mark inside quotation marks does not end a sentence.

    >>> sentences('"Where is the key?" Ben asked Anna. Ada was sad.')
    ['"Where is the key?" Ben asked Anna.', 'Ada was sad.']
    """
    return [found.strip() for found in re.findall(r'(?:[^.?"]|"[^"]*")+[.?]?|[.?"]', line) if found.strip()]


class _Told(NamedTuple):
    """A sentence, its number in the text, and what it says."""

    number: int
    text: str
    said: Sentence


_Faults = dict[int, Fault]  # by the number of the sentence


def _read(numbered: Iterable[tuple[int, str]], faults: _Faults) -> Iterator[_Told]:
    """The grammatical sentences, in the order in which their events happen: one that looks back comes before the sentence that it follows."""
    named = Named()
    last: _Told | None = None
    looked_back = False
    for number, text in numbered:
        try:
            told = _Told(number, text, read(text, named))
            named = told.said.named
        except NotGrammatical as error:
            faults[number] = Fault(text, "grammar", str(error))
            continue
        if not told.said.before:
            if last:
                yield last
            last, looked_back = told, False
        elif last and not looked_back:
            looked_back = True
            yield told
        else:
            faults[number] = Fault(text, "world", "no event stands right before it that it could precede")
    if last:
        yield last


def _tell(told: _Told, world: World, faults: _Faults) -> World:
    """The world after a sentence; the same world if the sentence contradicts it."""
    try:
        return world.after(told.said.event)
    except Contradiction as error:
        faults[told.number] = Fault(told.text, "world", str(error))
        return world


def _asked(line: str, world: World) -> Fault | None:
    """The fault of a question with its answer; None if there is none."""
    question, _, given = line.partition("?")
    try:
        right = answer(question + "?", world)
    except NotGrammatical as error:
        return Fault(line, "grammar", str(error))
    return None if given == " " + right else Fault(line, "answer", f"the answer is {right!r}")


def proofread(text: str) -> Reading:
    """Read a story with its questions, and say which sentences break the language or the world.

    A line is either prose or a question with its answer ("Who had the key? Anna."). A sentence with a fault leaves
    the world as it is; pronouns in the next one may still refer to whom it names. Sentences, questions and answers are one space apart.
    TypeError for anything but a text.
    """
    expects_kind("text", text, str, "a str")
    world, faults, count, asked, askable = World(), _Faults(), 0, 0, 0
    for line in filter(None, map(str.strip, text.splitlines())):
        if "?" in line and '"' not in line:
            fault = _asked(line, world)
            if fault:
                faults[count] = fault
            count, asked, askable = count + 1, asked + 1, askable + (fault is None or fault.kind == "answer")
        else:
            texts = sentences(line)
            apart = next((k for k in range(len(texts)) if not line.startswith(" ".join(texts[: k + 1]))), None)
            for told in _read(enumerate(texts, count), faults):
                world = _tell(told, world, faults)
            if apart is not None:
                faults.setdefault(count + apart, Fault(texts[apart], "grammar", "sentences are one space apart"))
            count += len(texts)
    return Reading(count, [faults[number] for number in sorted(faults)], asked, askable)

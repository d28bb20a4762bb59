"""Whether a text is one of the small world: each sentence grammatical, all of them true together, every answer right. Written by hand."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from tlm_book.checks import expects
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
    faults:      those that are no sentences of the language, contradict what was told before, or answer wrongly
    asked:       how many questions
    """

    sentences: int
    faults: list[Fault]
    asked: int

    @property
    def consistent(self) -> bool:
        """No fault at all."""
        return not self.faults

    def count(self, kind: str) -> int:
        return sum(fault.kind == kind for fault in self.faults)


def sentences(line: str) -> list[str]:
    """A line's sentences; what is said within quotation marks ends none.

    >>> sentences('"Where is the key?" Ben asked Anna. Ada was sad.')
    ['"Where is the key?" Ben asked Anna.', 'Ada was sad.']
    """
    return [found.strip() for found in re.findall(r'(?:[^.?"]|"[^"]*")+[.?]?|[.?"]', line) if found.strip()]


def _read(texts: list[str], faults: list[Fault]) -> Iterator[tuple[str, Sentence]]:
    """The sentences that are of the language, in the order in which they happen: one that looks back comes before the one that it follows."""
    named = Named()
    last: tuple[str, Sentence] | None = None
    for text in texts:
        try:
            said = read(text, named)
            named = said.named
        except NotGrammatical as error:
            faults.append(Fault(text, "grammar", str(error)))
            continue
        if said.before and not last:
            faults.append(Fault(text, "world", "no event stands before it that it could precede"))
        elif said.before:
            yield text, said
        elif last:
            yield last
            last = None
        last = last if said.before else (text, said)
    if last:
        yield last


def _tell(text: str, said: Sentence, world: World, faults: list[Fault]) -> World:
    """The world after a sentence; the same world when it cannot be so."""
    try:
        return world.after(said.event)
    except Contradiction as error:
        faults.append(Fault(text, "world", str(error)))
        return world


def _asked(line: str, world: World, faults: list[Fault]) -> None:
    """A question with its answer."""
    question, _, given = line.partition("?")
    try:
        right = answer(question + "?", world)
        if given.strip() != right:
            faults.append(Fault(line, "answer", f"the answer is {right!r}"))
    except NotGrammatical as error:
        faults.append(Fault(line, "grammar", str(error)))


def proofread(text: str) -> Reading:
    """Read a story with its questions, and say which sentences break the language or the world.

    A line is either prose or a question with its answer ("Who had the key? Anna."). A sentence with a fault is left out of what follows.
    TypeError for what is no text.
    """
    expects(isinstance(text, str), "text", type(text).__name__, "a str", TypeError)
    world, faults, count, asked = World(), list[Fault](), 0, 0
    for line in filter(None, map(str.strip, text.splitlines())):
        if "?" in line and '"' not in line:
            count, asked = count + 1, asked + 1
            _asked(line, world, faults)
        else:
            texts = sentences(line)
            count += len(texts)
            for sentence, said in _read(texts, faults):
                world = _tell(sentence, said, world, faults)
    return Reading(count, faults, asked)

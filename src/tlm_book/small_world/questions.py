"""What can be asked of a story, and the one right answer to each question. Written by hand."""

import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from tlm_book.small_world.language import NotGrammatical
from tlm_book.small_world.words import (
    CONTAINERS,
    PEOPLE,
    PLACES,
    THINGS,
    said,
    sort_of,
)
from tlm_book.small_world.world import World

__all__ = ["QUESTIONS", "Question", "answer", "askable"]


class Question(NamedTuple):
    """A question with up to two names in it: what they name, and the answer."""

    text: str
    sorts: tuple[str, ...]
    answer: Callable[..., str]
    makes_sense: Callable[..., object] = lambda world, *names: True


def _nobody(names: list[str]) -> str:
    return said(names) + "." if names else "Nobody."


def _things(names: list[str]) -> str:
    words = said([f"the {name}" for name in names]) if names else "nothing"
    return words[0].upper() + words[1:] + "."


def _somewhere(where: str) -> str:
    preposition = PLACES.get(where, "in")
    return f"{preposition.capitalize()} the {where}."


def _where(world: World, what: str) -> str:
    where = world.where[what]
    return f"{where} had it." if sort_of(where) == "person" else _somewhere(where)


def _before(world: World, who: str, place: str) -> str:
    path = world.path[who]
    return _somewhere(path[len(path) - 1 - path[::-1].index(place) - 1])


def _bearer(world: World, what: str) -> list[str]:
    return [world.where[what]] if sort_of(world.where[what]) == "person" else []


QUESTIONS = {
    "where is it": Question("Where was the {}?", ("object",), _where),
    "in which place": Question("In which place was the {}?", ("object",), lambda world, what: _somewhere(world.place_of(what))),
    "where is who": Question("Where was {}?", ("person",), lambda world, who: _somewhere(world.where[who])),
    "who has it": Question("Who had the {}?", ("object",), lambda world, what: _nobody(_bearer(world, what))),
    "what is in it": Question("What was in the {}?", ("container",), lambda world, box: _things(world.inside(box))),
    "what has who": Question("What did {} have?", ("person",), lambda world, who: _things(world.inside(who))),
    "with whom": Question(
        "Who was with {}?", ("person",), lambda world, who: _nobody([other for other in world.at(world.where[who]) if other != who])
    ),
    "who gave it": Question(
        "Who gave the {} to {}?", ("object", "person"), lambda world, what, who: world.giver[what, who] + ".",
        lambda world, what, who: (what, who) in world.giver,
    ),
    "before that place": Question(
        "Where was {} before the {}?", ("person", "place"), _before, lambda world, who, place: place in world.path[who][1:]
    ),
    "what colour": Question(
        "What colour was the {}?", ("object",), lambda world, what: world.colour[what].capitalize() + ".", lambda world, what: what in world.colour
    ),
    "what trade": Question(
        "What was the trade of {}?", ("person",), lambda world, who: world.trade[who].capitalize() + ".", lambda world, who: who in world.trade
    ),
    "what wish": Question(
        "What did {} want?", ("person",), lambda world, who: _things([world.wish[who]]), lambda world, who: who in world.wish
    ),
    "what mood": Question("How did {} feel?", ("person",), lambda world, who: world.mood[who].capitalize() + ".", lambda world, who: who in world.mood),
}  # fmt: skip

_KINDS = {"object": [*THINGS, *CONTAINERS], "container": CONTAINERS, "person": PEOPLE, "place": PLACES}


@cache
def _expression(kind: str) -> re.Pattern[str]:
    return re.compile(re.escape(QUESTIONS[kind].text).replace(r"\{\}", r"(\w+)"))


def _fits(world: World, kind: str, names: tuple[str, ...]) -> bool:
    question = QUESTIONS[kind]
    known = all(name in world.where or sort == "place" for name, sort in zip(names, question.sorts))
    return known and bool(question.makes_sense(world, *names))


def askable(world: World) -> list[tuple[str, tuple[str, ...]]]:
    """Every question that has an answer in this world, as (kind, names)."""
    objects = [*world.all("thing"), *world.all("container")]
    names = {"object": objects, "container": world.all("container"), "person": world.all("person"),
             "place": sorted({place for path in world.path.values() for place in path})}  # fmt: skip
    found: list[tuple[str, tuple[str, ...]]] = []
    for kind, question in QUESTIONS.items():
        rest = names[question.sorts[1]] if len(question.sorts) == 2 else None
        for name in names[question.sorts[0]]:
            found += [(kind, (name, other)) for other in rest] if rest is not None else [(kind, (name,))]
    return [(kind, of) for kind, of in found if _fits(world, kind, of)]


def answer(question: str, world: World) -> str:
    """The right answer. NotGrammatical when it is no question of the language, or has no answer in this world.

    >>> from tlm_book.small_world.events import Goes, Stays
    >>> answer("Where was Anna before the hill?", World().after(Stays("Anna", "mill")).after(Goes("Anna", "hill")))
    'At the mill.'
    """
    for kind in QUESTIONS:
        found = _expression(kind).fullmatch(question)
        if found and all(name in _KINDS[sort] for name, sort in zip(found.groups(), QUESTIONS[kind].sorts)):
            if not _fits(world, kind, found.groups()):
                raise NotGrammatical(f"{question!r} has no answer here")
            return QUESTIONS[kind].answer(world, *found.groups())
    raise NotGrammatical(f"{question!r} is no question")

"""What can be asked about a story, and the one right answer to each question. Written by hand.

Lists name people and things in the order in which the story introduced them. What somebody has, or what is in a container, does not include what
these things contain in turn. What somebody wanted can be asked until they are said to have it. "Before" a place means before one came there last;
the simulator asks this only if one came there once.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from tlm_book.small_world.language import NotGrammatical, raised
from tlm_book.small_world.words import (
    CONTAINERS,
    PEOPLE,
    PLACES,
    THINGS,
    said,
    sort_of,
    where_it_is,
)
from tlm_book.small_world.world import World

__all__ = ["QUESTIONS", "Question", "answer", "askable"]


class Question(NamedTuple):
    """A question with up to two names in it: the sorts of the names, the answer, when it makes sense, and when it is unambiguous."""

    text: str
    sorts: tuple[str, ...]
    answer: Callable[..., str]
    makes_sense: Callable[..., object] = lambda world, *names: True
    clear: Callable[..., object] = lambda world, *names: True


def _nobody(names: list[str]) -> str:
    return said(names) + "." if names else "Nobody."


def _things(names: list[str]) -> str:
    return raised(said([f"the {name}" for name in names]) if names else "nothing") + "."


def _somewhere(*where: str) -> str:
    return raised(", ".join(map(where_it_is, where))) + "."


def _where(world: World, what: str) -> str:
    where = world.where[what]
    return f"{where} had it." if sort_of(where) == "person" else _somewhere(where)


def _company(world: World, who: str) -> str:
    """The answer, reasoned aloud: where `who` was, then where the others were, with "too" for the same place; at the end, who these were."""
    here = world.where[who]
    others = [name for name in world.all("person") if name != who]
    beside = [name for name in others if world.where[name] == here]
    everywhere = ", ".join([f"{who} was {where_it_is(here)}", *(f"{name} {where_it_is(world.where[name])}" + ", too" * (name in beside) for name in others)])
    return f"{everywhere}: {said(beside) if beside else 'nobody'}."


def _before(world: World, who: str, place: str) -> str:
    path = world.path[who]
    return _somewhere(path[len(path) - 1 - path[::-1].index(place) - 1])


def _bearer(world: World, what: str) -> list[str]:
    return [world.where[what]] if sort_of(world.where[what]) == "person" else []


QUESTIONS = {
    "where is it": Question("Where was the {}?", ("object",), _where),
    "in which place": Question("In which place was the {}?", ("object",), lambda world, what: _somewhere(*world.way_to(what))),
    "where is who": Question("Where was {}?", ("person",), lambda world, who: _somewhere(world.where[who])),
    "who has it": Question("Who had the {}?", ("object",), lambda world, what: _nobody(_bearer(world, what))),
    "what is in it": Question("What was in the {}?", ("container",), lambda world, box: _things(world.inside(box))),
    "what has who": Question("What did {} have?", ("person",), lambda world, who: _things(world.inside(who))),
    "with whom": Question("Who was with {}?", ("person",), _company),
    "who gave it": Question(
        "Who gave the {} to {}?", ("object", "person"), lambda world, what, who: world.giver.get((what, who), "Nobody") + "."
    ),
    "before that place": Question(
        "Where was {} before the {}?", ("person", "place"), _before, lambda world, who, place: place in world.path[who][1:],
        lambda world, who, place: world.path[who][1:].count(place) == 1,
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
    """Every question that has one clear answer in this world, as (kind, names)."""
    objects = [*world.all("thing"), *world.all("container")]
    names = {"object": objects, "container": world.all("container"), "person": world.all("person"),
             "place": sorted({place for path in world.path.values() for place in path})}  # fmt: skip
    found: list[tuple[str, tuple[str, ...]]] = []
    for kind, question in QUESTIONS.items():
        rest = names[question.sorts[1]] if len(question.sorts) == 2 else None
        for name in names[question.sorts[0]]:
            found += [(kind, (name, other)) for other in rest] if rest is not None else [(kind, (name,))]
    return [(kind, of) for kind, of in found if _fits(world, kind, of) and QUESTIONS[kind].clear(world, *of)]


def answer(question: str, world: World) -> str:
    """The right answer to a question. NotGrammatical if it is not a question of the language, or has no answer in this world.

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

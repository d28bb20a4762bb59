"""The lessons that the model of the small world takes, in order: copying, facts, and stories in which more and more happens. Written by hand."""

import random
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tlm_book.checks import expects_one_of
from tlm_book.small_world.events import Stays
from tlm_book.small_world.judging import marked
from tlm_book.small_world.questions import answer
from tlm_book.small_world.telling import LEVELS, Level, story
from tlm_book.small_world.words import PEOPLE, PLACES, THINGS
from tlm_book.small_world.world import World
from tlm_book.tokenization import Tokenizer

__all__ = ["COMPANY", "COPY", "FACTS", "LESSONS", "Lesson", "batch_of", "company", "copied", "facts", "row_of", "text_of"]

COPY, FACTS, COMPANY = "copy", "facts", "company"  # rows that are not stories: see `copied`, `facts` and `company`


class Lesson(NamedTuple):
    """A lesson: the rows of a step take these kinds in turn, each a level of stories, COPY, FACTS or COMPANY.

    context, batch   the number of tokens in a row, and of rows in a step
    enough, most     the lesson ends when the share of right answers in new rows of its last kind reaches `enough`, or after `most` steps
    """

    kinds: tuple[Level | str, ...]
    context: int
    batch: int
    enough: float = 0.9
    most: int = 100_000


THREE = Level(3, 3, 0, 2, 0, 8, plain=True)  # nothing happens: the story says who and what is where
DEEDS, BUSY = Level(2, 3, 0, 2, 4, 2, plain=True), Level(2, 3, 1, 3, 4, 3)  # much happens to few people
L0, L1, L2, L3, _ = LEVELS
LESSONS = (
    Lesson((COPY,), 64, 24),
    Lesson((COPY, FACTS, FACTS, FACTS), 96, 16, most=900),
    Lesson((COPY, FACTS, FACTS, COMPANY, THREE, THREE), 128, 12, 0.8),
    Lesson((COPY, FACTS, COMPANY, THREE, L0, L0), 128, 12, 0.85, most=2000),
    Lesson((COPY, COMPANY, THREE, L0, DEEDS, DEEDS, L1, L1), 192, 9, 0.8, most=1200),
    Lesson((COPY, COMPANY, THREE, L0, DEEDS, L1, BUSY, L2, L2), 256, 8, 0.8, most=1200),
    Lesson((L0, L1, L2, BUSY, COMPANY, L3, L3, L0, L1, L2, BUSY, L2, L3, L3), 336, 7),
)
MORE, QUESTIONS = 0.3, 8  # this share of the stories to learn from has this many questions, the others as many as their level says
ANSWER = 4.0  # the weight of a token of an answer; one of the story has weight 1 (the loss is a weighted mean: only the ratio counts)


def copied(n: int, vocab_size: int, chance: random.Random) -> tuple[list[int], list[float]]:
    """A row that repeats 8 to 24 random tokens again and again, and weights: 0 for these and the first repeated one, which nothing tells, then 1."""
    k = chance.randrange(8, 25)
    again = [chance.randrange(vocab_size) for _ in range(k)] * (n // k + 1)
    return again[:n], ([0.0] * (k + 1) + [1.0] * n)[:n]


def facts(chance: random.Random) -> str:
    """A text that says who or what was where, each in the same words, and asks for each once."""
    names = chance.sample(list(PEOPLE), k=chance.randint(2, 6)) if chance.random() < 0.5 else ["the " + x for x in chance.sample(list(THINGS), k=chance.randint(2, 6))]
    where = {name: chance.choice(list(PLACES)) for name in names}
    told = " ".join(f"{name[0].upper()}{name[1:]} was {PLACES[p]} the {p}." for name, p in where.items())
    asked = "".join(f"Where was {name}? {PLACES[where[name]].capitalize()} the {where[name]}.\n" for name in chance.sample(names, k=len(names)))
    return f"{told}\n{asked}"


def company(chance: random.Random) -> str:
    """A text that says who was where and asks who was with whom."""
    names, places = chance.sample(list(PEOPLE), k=chance.randint(2, 5)), chance.sample(list(PLACES), k=2)
    world = World()
    for name in names:
        world = world.after(Stays(name, chance.choice(places)))
    told = " ".join(f"{name} was {PLACES[p]} the {p}." for name, p in world.where.items())
    asked = [f"Who was with {name}?" for name in chance.sample(names, k=len(names))]
    return "\n".join([told, *(f"{question} {answer(question, world)}" for question in asked)]) + "\n"


def text_of(kind: Level | str, chance: random.Random) -> str:
    """A text of this kind with its questions: a story of a level, FACTS or COMPANY; ValueError for another kind."""
    if isinstance(kind, Level):
        return story(kind, chance)
    expects_one_of("kind", kind, (FACTS, COMPANY))
    return facts(chance) if kind == FACTS else company(chance)


def row_of(kind: Level | str, n: int, tokenizer: Tokenizer, chance: random.Random) -> tuple[list[int], list[float]]:
    """A row of n tokens of this kind and their weights: `ANSWER` for tokens of answers; for others, 1 in stories and 0 in FACTS and COMPANY."""
    if kind == COPY:
        return copied(n, len(tokenizer), chance)
    other = 1.0 if isinstance(kind, Level) else 0.0
    tokens: list[int] = []
    weights: list[float] = []
    while len(tokens) < n:
        this = kind._replace(questions=QUESTIONS) if isinstance(kind, Level) and chance.random() < MORE else kind
        more, of_answer = marked(text_of(this, chance), tokenizer)
        tokens, weights = tokens + more, weights + [ANSWER if a else other for a in of_answer]
    return tokens[:n], weights[:n]


def batch_of(lesson: Lesson, tokenizer: Tokenizer, seed: int, step: int) -> tuple[Int[Tensor, "batch n"], Float[Tensor, "batch n"]]:
    """New rows, whose kinds take turns, and the weights of their tokens; the same for the same seed and step."""
    chance = random.Random(f"{seed} {step}")
    first = step * lesson.batch
    rows = [row_of(lesson.kinds[(first + i) % len(lesson.kinds)], lesson.context, tokenizer, chance) for i in range(lesson.batch)]
    return torch.tensor([tokens for tokens, _ in rows]), torch.tensor([weights for _, weights in rows])

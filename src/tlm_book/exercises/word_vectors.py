"""Graders for the exercises of the chapter word_vectors."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tlm_book.exercises.grading import call, holds, value
from tlm_book.spec.word_vectors import shifted_pmi, skip_gram_pairs


def neighbours(E: np.ndarray) -> list[int]:
    unit = E / np.linalg.norm(E, axis=1, keepdims=True)
    return (unit @ unit.T - 2 * np.eye(len(E))).argmax(axis=1).tolist()


def other_tables(another: Any) -> Iterator[tuple[str, object]]:
    differ = 0
    for seed in range(5):
        E, C = np.random.default_rng(seed).normal(size=(2, 8, 3))
        E2, C2 = (np.asarray(table, dtype=float) for table in call(another, E, C, names=["E", "C"]))
        yield "The tables do not have the shapes of E and C.", E2.shape == E.shape and C2.shape == C.shape
        yield "The product E Cᵀ changes, so the loss sees the difference.", np.allclose(E2 @ C2.T, E @ C.T, atol=1e-8)
        differ += neighbours(E2) != neighbours(E)
    yield "The product is the same, and so are the nearest neighbours, for each of five pairs of tables.", differ > 0


# Two rare words that keep to each other: summed with equal weights, M is positive.
COUPLE = np.array([[1000.0, 1, 1], [1, 10, 10], [1, 10, 10]])
# Here M is positive for the squares, the roots or the logarithms of the shares.
OTHERS = [[[640, 17, 24], [17, 3, 58], [24, 58, 13]], [[1, 1, 10], [1, 2, 18], [10, 18, 499]], [[4, 20, 4], [20, 1089, 8], [4, 8, 1]]]


def counts() -> Iterator[np.ndarray]:
    yield COUPLE
    yield from (np.array(number, dtype=float) for number in OTHERS)
    yield np.array([[1.0, 2.0], [2.0, 1.0]])
    for seed in range(4):
        half = np.random.default_rng(seed).integers(1, 9, size=(seed + 2, seed + 2))
        yield (half + half.T) * 1.0 + 5 * np.eye(seed + 2)


def no_square(witness: Any) -> Iterator[tuple[str, object]]:
    for number in counts():
        for k in (1, 4):
            x = np.asarray(call(witness, number, k, names=["number", "k"]), dtype=float)
            yield "x must have one number for each word.", x.shape == (len(number),)
            M = shifted_pmi(number, k, number.sum(axis=0) / number.sum())
            yield "x is 0 and tells nothing.", x.any()
            yield f"For {number.tolist()} and k = {k}, x M xᵀ is not negative.", x @ M @ x < 0


def small_pmi() -> tuple[float, ...]:
    number = np.zeros((3, 3))
    for w, c in skip_gram_pairs(np.array([0, 1, 0, 2]), 2):
        number[w, c] += 1
    pmi = np.exp(shifted_pmi(number, 1, number.sum(axis=0) / number.sum()))
    return float(pmi[0, 1]), float(pmi[0, 0]), float(pmi[1, 2])


EXERCISES = [
    holds(
        "a function `another(E, C)` that returns two other tables which the loss cannot tell from E and C, but with other neighbours",
        other_tables,
        [lambda E, C: (E, C), lambda E, C: (2 * E, C / 2), lambda E, C: (E * [9, 1, 1], C), lambda E, C: (-E, -C),
         lambda E, C: (E @ np.diag([9, 1, 1]), C @ np.diag([9, 1, 1]))],
    ),
    value(
        "a pair of truth values: is the mean log-probability on the held-out essays still above that of the word frequencies, and is"
        " the ranking there still better than chance?",
        lambda: (False, True),
        {
            "Fitting the training text better is not the same as predicting the held-out one.": (True, True),
            "The model is too sure of its probabilities, but the order of its scores may still be right.": (False, False),
            "Look at the two once more: it is the other way round.": (True, False),
        },
    ),
    holds(
        "a function `witness(number, k)`: for a symmetric matrix of positive counts, a vector x with x M xᵀ < 0",
        no_square,
        [lambda number, k: np.ones(len(number)), lambda number, k: np.eye(len(number))[0], lambda number, k: 0 * number[0],
         lambda number, k: 1 / number.sum(axis=0), lambda number, k: number.sum(axis=0) ** 2, lambda number, k: number.sum(axis=0) ** 0.5,
         lambda number, k: np.log(number.sum(axis=0))],
    ),
    value(
        "the three numbers, as a tuple",
        small_pmi,
        {
            "The pair (the, the) occurs twice: each of the two is a context of the other.": (4 / 3, 0.4, 5 / 3),
            "With window 2 a word also meets the word after the next.": (2, 0, 0),
            "Divide by the sums of the row and of the column, too.": (0.2, 0.2, 0.1),
            "These are the logarithms; the numbers that they are taken of are wanted.": (0.2876820724517809, -0.2231435513142097, 0.5108256237659907),
            "A pair of two equal words counts in both directions, too.": (1.5, 0.5625, 1.5),
        },
    ),
]

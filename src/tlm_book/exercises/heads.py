"""Graders for the exercises of the chapter heads."""

from typing import Any

import numpy as np

from tlm_book.exercises.grading import function, value
from tlm_book.spec.attention import attention_pattern
from tlm_book.spec.heads import (
    duplicate_token_score,
    induction_score,
    previous_token_score,
)


def said(m: int, times: int) -> np.ndarray:
    return np.array([0, *list(range(1, m + 1)) * times])


def by_hand(t: np.ndarray, back: int = 1, beta: float = 20.0) -> np.ndarray:
    """The pattern of the second head if the first looks `back` places back."""
    n, token = len(t), np.eye(t.max() + 1)[t]
    slot = attention_pattern(beta * np.eye(n, k=-back), np.eye(n), scale=1.0) @ token
    return attention_pattern(beta * token, slot, scale=1.0)


def mistaken() -> set[int]:
    """The m up to 10 for which a head that always looks the same way back has a positive induction score."""
    found = set()
    for m in range(1, 11):
        t = said(m, 2)
        heads = [np.eye(len(t)), np.eye(len(t), k=-1)]  # row 0 does not count
        if any(induction_score(A, t) > 0 for A in heads):
            found.add(m)
    return found


def weight(r: int) -> float:
    """The weight that row 1 of round r gives to the token after the first copy of its own token."""
    m = 4
    return float(by_hand(said(m, r))[(r - 1) * m + 1, 2])


def copied(m: int, back: int) -> int:
    """The place of the token that the forecast copies in the first row of the second round."""
    A = by_hand(said(m, 2), back)[m + 1]
    return int(A.argmax())


def a_pattern() -> tuple[float, float, float]:
    A = np.array([[4, 0, 0, 0], [2, 2, 0, 0], [1, 2, 1, 0], [0, 1, 2, 1]]) / 4
    t = np.array([0, 1, 0, 1])
    return previous_token_score(A), duplicate_token_score(A, t), induction_score(A, t)


def even() -> tuple[float, float]:
    t = said(2, 2)
    A = np.tri(len(t)) / np.arange(1, len(t) + 1)[:, None]
    return previous_token_score(A), duplicate_token_score(A, t)


def sink(m: int) -> tuple[float, float, float]:
    t, A = said(m, 2), np.zeros((2 * m + 1, 2 * m + 1))
    A[:, 0] = 1
    return previous_token_score(A), duplicate_token_score(A, t), induction_score(A, t)


def some_rows(rng: np.random.Generator, n: int) -> tuple[Any, ...]:
    gone = set(rng.permutation(n)[: (n + 1) // 2].tolist())
    return rng.normal(size=5), rng.normal(size=(n, 3)), rng.normal(size=(n, 3, 5)), gone


def new_bias(b: np.ndarray, r: np.ndarray, W_O: np.ndarray, gone: set[int]) -> np.ndarray:
    return b + sum(r[i] @ W_O[i] for i in gone)


def largest(n: int) -> float:
    """The largest sum of the two scores: each row i ≥ 1 gives all its weight to the place that counts most often."""
    t, best = np.zeros(n, dtype=int), np.zeros((n, n))
    for i in range(n):
        counts = [(j < i) + (1 <= j <= i) for j in range(i + 1)]
        best[i, int(np.argmax(counts))] = 1
    return duplicate_token_score(best, t) + induction_score(best, t)


EXERCISES = [
    value(
        "the set of all m from 1 to 10 for which one of the two heads has an induction score above 0",
        mistaken,
        {
            "For m = 2 the token before is what followed the earlier copy. But look at m = 1, too.": {2},
            "For m = 1 the row itself is what followed the earlier copy. But look at m = 2, too.": {1},
            "A head scores only if it looks at i − m + 1, and the two look at i and i − 1.": {1, 2, 3},
            "They do score for some m: look at the shortest texts.": set(),
        },
    ),
    function(
        "a function `weight(r)`: the limit, as β grows without bound, of the weight that a row of round r ≥ 2 gives to the place"
        " after the *first* copy of its token",
        [(2,), (3,), (4,), (7,)],
        weight,
        {
            "All earlier copies have the same score; the last is not preferred.": lambda r: float(r == 2),
            "The first copy is not preferred either.": lambda r: 1.0,
            "In round r there are r − 1 earlier copies.": lambda r: 1 / r,
            "The weights of a row sum to 1: divide by the number of earlier copies.": lambda r: r - 1.0,
        },
        tol=1e-4,
    ),
    function(
        "a function `copied(m, back)`: the place that the second head looks at in row m + 1, the first of the second round, when the"
        " first head looks `back` places back, 1 ≤ back ≤ m",
        [(4, 1), (4, 2), (6, 3), (9, 5), (2, 2)],
        copied,
        {
            "This is right only for the machine of the chapter: the place after the copy.": lambda m, back: 2,
            "It looks at the row whose slot holds its token. Which row is that?": lambda m, back: 1,
            "The first head looks back, not ahead: the slot of row j holds the token of place j − back.": lambda m, back: m + 1 - back,
            "This is one place too early.": lambda m, back: back,
        },
    ),
    value(
        "the three numbers (prev, dup, ind)",
        a_pattern,
        {
            "prev is a mean over the rows 1, 2, 3: row 0 has no row before it.": (3 / 8, 1 / 4, 1 / 2),
            "dup and ind are means over the two rows whose token has come before.": (1 / 2, 1 / 8, 1 / 4),
            "dup looks at the earlier copy, ind at the place after it.": (1 / 2, 1 / 2, 1 / 4),
        },
    ),
    value(
        "the two numbers (prev, dup)",
        even,
        {
            "Row i gives 1/(i + 1) to each of its i + 1 places.": (25 / 48, 7 / 24),
            "prev is a mean over four rows, dup over two.": (77 / 60, 9 / 20),
            "The rows of the second round are 3 and 4.": (77 / 240, 47 / 120),
            "A text said twice begins with the start marker: it has five rows.": (13 / 36, 7 / 24),
        },
    ),
    function(
        "a function `sink(m)` that returns the three scores (prev, dup, ind) for m ≥ 2",
        [(2,), (3,), (5,), (12,)],
        sink,
        {
            "For one row, place 0 is the row before.": lambda m: (0.0, 0.0, 0.0),
            "prev is a mean over 2m rows.": lambda m: (1 / (2 * m + 1), 0.0, 0.0),
            "The marker stands at no other place: no token has it as an earlier copy.": lambda m: (1 / (2 * m), 1.0, 0.0),
            "What follows an earlier copy stands at place 2 or later.": lambda m: (1 / (2 * m), 0.0, 1 / m),
        },
    ),
    function(
        "a function `new_bias(b, r, W_O, gone)` for b of shape (d,), rows r of shape (h, k), W_O of shape (h, k, d) and the set `gone` of"
        " the heads knocked out",
        some_rows,
        new_bias,
        {
            "Only the heads that are gone leave their row behind.": lambda b, r, W_O, gone: b + sum(r[i] @ W_O[i] for i in range(len(r))),
            "Each of the heads that are gone leaves its row behind.": lambda b, r, W_O, gone: b + sum(r[i] @ W_O[i] for i in list(gone)[:1]),
            "The bias that was there stays.": lambda b, r, W_O, gone: new_bias(0 * b, r, W_O, gone),
            "The row r_i stands in the place of H_i: it is added, not subtracted.": lambda b, r, W_O, gone: 2 * b - new_bias(b, r, W_O, gone),
        },
    ),
    function(
        "a function `largest(n)`: the largest dup + ind of a head on n ≥ 2 equal tokens",
        [(2,), (3,), (4,), (9,)],
        largest,
        {
            "Row 1 has one earlier copy, at place 0, and what followed it is row 1 itself: no place counts twice.": lambda n: 2.0,
            "The places between the first and the row itself count in both scores.": lambda n: 1.0,
            "The mean is over the n − 1 rows with an earlier copy.": lambda n: (2 * n - 3) / n,
        },
    ),
]

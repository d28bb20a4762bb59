"""Graders for the exercises of the chapter playground."""

from typing import Any, Literal

import numpy as np

from tlm_book.exercises.grading import function, value


def draw(p: Any, k: int, u: float, side: Literal["left", "right"] = "right") -> int:
    kept, first = np.zeros(len(p)), np.argsort(-np.asarray(p), kind="stable")[:k]
    kept[first] = np.asarray(p)[first]
    return int(np.searchsorted(np.cumsum(kept) / kept.sum(), u, side=side))


def by_rank(p: Any, k: int, u: float) -> int:
    first = np.argsort(-np.asarray(p), kind="stable")[:k]
    F = np.cumsum(np.asarray(p)[first])
    return int(first[np.searchsorted(F / F[-1], u, side="right")])


def not_divided(p: Any, k: int, u: float) -> int:
    kept, first = np.zeros(len(p)), np.argsort(-np.asarray(p), kind="stable")[:k]
    kept[first] = np.asarray(p)[first]
    return min(int(np.searchsorted(np.cumsum(kept), u, side="right")), len(p) - 1)


P = [0.1, 0.4, 0.2, 0.3]

EXERCISES = [
    value(
        "the list of the four whole numbers",
        lambda: [64, -127, 38, 0],
        {
            "63.5 lies halfway: it is rounded to the even number.": [63, -127, 38, 0],
            "The largest absolute value of the column becomes 127, not 128.": [64, -128, 38, 0],
            "Signs are kept.": [64, 127, 38, 0],
            "The whole numbers run from −127 to 127: there are 255 of them.": [32, -64, 19, 0],
        },
    ),
    function(
        "a function `worst(b, m)`: the largest error of one number, for b bits and a column whose largest absolute value is m",
        [(8, 1.0), (4, 3.0), (2, 5.0), (8, 127.0)],
        lambda b, m: m / (2 * (2 ** (b - 1) - 1)),
        {
            "That is a whole step; the nearest whole number is at most half a step away.": lambda b, m: m / (2 ** (b - 1) - 1),
            "The whole numbers end at 2^(b−1) − 1: for eight bits at 127, not at 128.": lambda b, m: m / 2**b,
            "One bit is for the sign.": lambda b, m: m / (2 * (2**b - 1)),
        },
    ),
    function(
        "a function `anew(n, k, L, causal)`: how many rows are computed anew, counting the rows after each of the L blocks",
        [(8, 7, 2, True), (8, 0, 3, True), (5, 2, 4, True), (8, 7, 2, False), (5, 2, 4, False)],
        lambda n, k, L, causal: L * (n - k) if causal else L * n,
        {
            "Row k itself is computed anew, too.": lambda n, k, L, causal: L * (n - k - 1) if causal else L * n,
            "There are such rows after each block.": lambda n, k, L, causal: n - k if causal else n,
            "Without the mask the rows before k see token k.": lambda n, k, L, causal: L * (n - k),
            "With the mask the rows before k are kept.": lambda n, k, L, causal: L * n,
        },
    ),
    function(
        "a function `draw(p, k, u)`: the token drawn for the probabilities p, the k of top-k and the number u",
        [(P, 4, 0.05), (P, 4, 0.3), (P, 2, 0.5), (P, 2, 0.6), (P, 3, 0.45), (P, 1, 0.9), ([0.25] * 4, 2, 0.75), ([0.125, 0.5, 0.125, 0.25], 4, 0.125)],
        draw,
        {
            "The probabilities are added up in the order of the vocabulary, not from the largest down.": by_rank,
            "What is kept must sum to 1 again.": not_divided,
            "The cumulative probability has to exceed u, not only to reach it.": lambda p, k, u: draw(p, k, u, "left"),
            "Tokens outside the k likeliest are never drawn.": lambda p, k, u: draw(p, len(p), u),
        },
    ),
    value(
        "the two answers, as a pair of truth values",
        lambda: (False, True),
        {
            "What do the heads of one block read? None of them reads what another writes.": (True, True),
            "Later blocks read the residual stream, to which the head no longer adds.": (False, False),
            "It is the other way round.": (True, False),
        },
    ),
]

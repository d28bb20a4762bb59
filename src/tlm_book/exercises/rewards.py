"""Graders for the exercises of the chapter rewards."""

from collections.abc import Iterator
from math import comb
from typing import Any

import numpy as np

from tlm_book.exercises.grading import Exercise, function, holds, value
from tlm_book.spec.rewards import best_of, tilted


def relative_entropy(q: np.ndarray, p: np.ndarray) -> float:
    return float(q @ np.log(q / p))


def pass_at(n: int, c: int, k: int) -> float:
    return 1 - comb(n - c, k) / comb(n, k)


def within(p: np.ndarray, r: np.ndarray, most: float) -> np.ndarray:
    low, high = 0.0, 1.0
    while relative_entropy(tilted(p, r, 1 / high), p) < most:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if relative_entropy(tilted(p, r, 1 / middle), p) < most else (low, middle)
    return tilted(p, r, 1 / high)


def bounded(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, float]:
    """P, rewards, and the relative entropy of some tilted distribution as the bound."""
    p, r = rng.dirichlet(np.full(n + 1, 3.0)), rng.normal(size=n + 1)
    return p, r, relative_entropy(tilted(p, r, float(rng.uniform(0.4, 2))), p)


def noisier(pair: Any) -> Iterator[tuple[str, object]]:
    q, p = (np.asarray(one, dtype=float) for one in pair)
    for name, one in (("Q", q), ("P", p)):
        yield f"{name} must have a positive number for each of a few answers.", one.ndim == 1 and one.size > 1 and bool((one > 0).all())
        yield f"{name} must sum to 1.", abs(one.sum() - 1) < 1e-9
    yield "Q and P must have the same number of answers.", q.shape == p.shape
    x = p / q
    plain, other = -np.log(x), x - 1 - np.log(x)
    spread = [float(q @ (estimate - q @ estimate) ** 2) for estimate in (plain, other)]
    yield f"Here log(Q/P) has the variance {spread[0]:.3g}, the other estimate {spread[1]:.3g}: not more.", spread[1] > spread[0] + 1e-9


EXERCISES: list[Exercise] = [
    value(
        "three pairs: the value if the first is drawn, if the second is drawn, and the mean",
        lambda: ((0.5, -0.5), (0.5, -0.5), (0.5, -0.5)),
        {
            "A reward below the baseline gives a negative factor: the second gradient is turned round.": ((0.5, -0.5), (-0.5, 0.5), (0.0, 0.0)),
            "The baseline is not subtracted.": ((1.5, -1.5), (-0.5, 0.5), (0.5, -0.5)),
            "The gradient of log Q(y) by the logits is the unit row of y minus Q, not the unit row.": ((1.0, 0.0), (0.0, -1.0), (0.5, -0.5)),
        },
    ),
    value(
        "the number of answers and $e^{1/\\beta}$",
        lambda: (8, 16.0),
        {
            "With seven answers all are wrong with the probability 0.8⁷ = 0.2097…, a little too often.": (7, 16.0),
            "The odds, p/(1 − p), rise from 1/4 to 4.": (8, 4.0),
            "This is β.": (8, 1 / np.log(16)),
            "This is 1/β.": (8, float(np.log(16))),
        },
    ),
    function(
        "a function `pass_at(n, c, k)`",
        lambda rng, n: (n + 3, int(rng.integers(0, n + 4)), int(rng.integers(1, n + 4))),
        pass_at,
        {
            "This puts c/n for p, which is wrong on average for k > 1.": lambda n, c, k: 1 - (1 - c / n) ** k,
            "This is the share of the sets without a right answer.": lambda n, c, k: comb(n - c, k) / comb(n, k),
            "This is the share of right answers, which is the case k = 1.": lambda n, c, k: c / n,
            "This counts the sets in which all are right.": lambda n, c, k: comb(c, k) / comb(n, k),
        },
    ),
    function(
        "a function `within(p, r, most)`: the array of the Q(y)",
        bounded,
        within,
        {
            "This is P itself: the bound allows more.": lambda p, r, most: p,
            "The bound is a relative entropy, not a β.": lambda p, r, most: tilted(p, r, most),
            "This takes the bound for 1/β.": lambda p, r, most: tilted(p, r, 1 / most),
            "This is the best of two answers; the bound allows another reward.": lambda p, r, most: best_of(p, r, 2),
            "This forgets P: the tilted distribution is proportional to P exp(r/β).": lambda p, r, most: within(np.full(len(p), 1 / len(p)), r, most),
        },
    ),
    holds(
        "a pair `(q, p)` of distributions on a few answers for which the second estimate has the greater variance",
        noisier,
        [([0.5, 0.5], [0.5, 0.5]), ([0.5, 0.5], [0.6, 0.4]), ([0.5, 0.5], [1.0, 0.0]), ([0.2, 0.3], [0.5, 0.5]), ([1.0], [1.0]), ([0.9, 0.1], [0.95, 0.05])],
    ),
]

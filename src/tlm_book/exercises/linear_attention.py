"""Graders for the exercises of the chapter linear_attention."""

from collections.abc import Iterator
from math import cos, pi, sin, sqrt
from typing import Any

import numpy as np

from tlm_book.exercises.grading import Exercise, function, holds, value


def averages(Q: np.ndarray, K: np.ndarray, V: np.ndarray) -> np.ndarray:
    A = np.tril(Q @ K.T)
    return A / A.sum(1, keepdims=True) @ V


def positive(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Queries and keys with positive entries, and values."""
    Q, K = rng.uniform(0.1, 1, size=(2, n + 1, 3))
    return Q, K, rng.normal(size=(n + 1, 2))


def variance(q: np.ndarray, k: np.ndarray) -> float:
    return float(np.exp(2 * q @ k) * np.expm1((q + k) @ (q + k)))


def two_rows(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    q, k = 0.5 * rng.normal(size=(2, n + 1))
    return q, k


def thirds(keys: Any) -> Iterator[tuple[str, object]]:
    K = np.asarray(keys, dtype=float)
    yield "There must be two keys with two entries each.", K.shape == (2, 2)
    yield "Each key must have the length 1.", bool(np.allclose((K**2).sum(1), 1, atol=1e-5))
    one, two = (np.eye(2) - 2 * np.outer(k, k) for k in K)
    R = two @ one
    yield "After one token some state has not changed: the two keys reflect at the same line.", not np.allclose(R, np.eye(2), atol=1e-5)
    yield "After three tokens some state has not come back.", bool(np.allclose(R @ R @ R, np.eye(2), atol=1e-5))


EXERCISES: list[Exercise] = [
    value(
        "two pairs: by the sum rule, by the delta rule",
        lambda: ((3.6, 2.8), (2.52, 1.0)),
        {
            "The second key is not orthogonal to the first: it also finds a part of the first value.": ((3.0, 1.0), (3.0, 1.0)),
            "By the delta rule the second key finds 1.8 and stores the difference from 1, which is −0.8.": ((3.6, 2.8), (3.6, 2.8)),
            "What the second key stores by the delta rule changes what the first one finds, by −0.8 · 0.6.": ((3.6, 2.8), (3.0, 1.0)),
            "The pairs are exchanged: the sum rule comes first.": ((2.52, 1.0), (3.6, 2.8)),
        },
    ),
    value(
        "the two numbers of tokens",
        lambda: (33, 69),
        {
            "With 32 tokens cache and states are equally large.": (32, 69),
            "After 68 tokens a little more than half is left.": (33, 68),
            "A token has a key and a value in the cache, so 128 numbers a head.": (65, 69),
            "The number of heads counts on both sides.": (3, 69),
        },
    ),
    function(
        "a function `averages(Q, K, V)` that returns these rows",
        positive,
        averages,
        {
            "The rows are not divided by the sums of their weights.": lambda Q, K, V: np.tril(Q @ K.T) @ V,
            "The mask is missing: a row must not see later ones.": lambda Q, K, V: (Q @ K.T) / (Q @ K.T).sum(1, keepdims=True) @ V,
            "The weights are not exponentials.": lambda Q, K, V: np.tril(np.exp(Q @ K.T)) / np.tril(np.exp(Q @ K.T)).sum(1, keepdims=True) @ V,
            "This divides by the number of rows, not by the sum of their weights.": lambda Q, K, V: np.tril(Q @ K.T) @ V / np.arange(1, len(Q) + 1)[:, None],
        },
    ),
    function(
        "a function `variance(q, k)`",
        two_rows,
        variance,
        {
            "This is the mean, e^(q·k).": lambda q, k: np.exp(q @ k),
            "This is the mean of the square; that of the product itself, squared, is to be subtracted.": lambda q, k: np.exp(2 * q @ k + (q + k) @ (q + k)),
            "This leaves out the factor e^(2 q·k).": lambda q, k: np.expm1((q + k) @ (q + k)),
            "The factor in front is e^(2 q·k).": lambda q, k: np.exp(q @ k) * np.expm1((q + k) @ (q + k)),
        },
    ),
    holds(
        "the two keys, rows of length $1$",
        thirds,
        [
            ((1.0, 0.0), (0.0, 1.0)),
            ((1.0, 0.0), (1.0, 0.0)),
            ((1.0, 0.0), (cos(2 * pi / 9), sin(2 * pi / 9))),
            ((2.0, 0.0), (1.0, sqrt(3))),
            ((1.0, 0.0, 0.0), (0.5, sqrt(3) / 2, 0.0)),
        ],
    ),
]

"""Graders for the exercises of the chapter feed_forward."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tlm_book.exercises.grading import function, holds
from tlm_book.spec.feed_forward import feed_forward
from tlm_book.spec.operators import agree

LINE = np.linspace(-3, 3, 13)[:, None]
ROWS = np.random.default_rng(9).normal(size=(5, 4))


def two_layers(answer: Any) -> Iterator[tuple[str, object]]:
    for words, weights, want in zip(("|x|", "x"), answer, (np.abs(LINE), LINE)):
        A, k, B, l = (np.asarray(w, dtype=float) for w in weights)
        got = feed_forward(LINE, A, k, B, l)
        yield f"The layer for {words} is right for x ≥ 0 and not for x < 0.", not agree(got[6:], want[6:]) or agree(got, want)
        yield f"The layer for {words} is right for x ≤ 0 and not for x > 0.", not agree(got[:7], want[:7]) or agree(got, want)
        yield f"The layer for {words} computes something else.", agree(got, want)
    yield "Weights of two layers are wanted, that for |x| first.", len(answer) == 2


def some_weights(rng: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
    return rng.normal(size=(4, n)), rng.normal(size=n), rng.normal(size=(n, 4)), rng.normal(size=4)


def permuted(rng: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
    A, k, B, _ = some_weights(rng, n + 1)
    return rng.permutation(n + 1), A, k, B


def renamed(A: np.ndarray, k: np.ndarray, B: np.ndarray) -> np.ndarray:
    """A, and beside it what the layer does."""
    return np.hstack([A, feed_forward(ROWS, A, k, B, np.zeros(4))[:4].T])


def scaled_is_same(activation: str, c: float) -> bool:
    A, k, B, l = some_weights(np.random.default_rng(0), 3)
    scale = np.array([1, c, 1])
    return agree(feed_forward(ROWS, A * scale, k * scale, B / scale[:, None], l, activation), feed_forward(ROWS, A, k, B, l, activation), 1e-9)


one, minus = np.array([[1.0, -1.0]]), np.array([[1.0], [-1.0]])
absolute = (one, np.zeros(2), np.ones((2, 1)), np.zeros(1))

EXERCISES = [
    holds(
        "a pair: the weights (A, k, B, l) of the layer for |x|, and those of the layer for x, as arrays",
        two_layers,
        [(absolute, (np.ones((1, 1)), np.zeros(1), np.ones((1, 1)), np.zeros(1))), (absolute, absolute),
         ((one, np.zeros(2), minus, np.zeros(1)), absolute), ((-one[:, :1], np.zeros(1), np.ones((1, 1)), np.zeros(1)), absolute)],
    ),
    function(
        "a function `merged(A, k, B, l)` that returns the pair (W, c)",
        some_weights,
        lambda A, k, B, l: (ROWS @ A + k) @ B + l,
        {
            "The bias k goes through B as well.": lambda A, k, B, l: (A @ B, l),
            "The bias l is forgotten.": lambda A, k, B, l: (A @ B, k @ B),
            "l is not multiplied by anything: it comes after B.": lambda A, k, B, l: (A @ B, k @ B + l @ A @ B),
        },
        through=lambda out, A, k, B, l: ROWS @ out[0] + out[1],
    ),
    function(
        "a function `rename(p, A, k, B)` that returns the new (A, k, B), where the new A is A[:, p]",
        permuted,
        lambda p, A, k, B: np.hstack([A[:, p], renamed(A, k, B)[:, len(k):]]),
        {
            "The rows of B stay: then other numbers are multiplied.": lambda p, A, k, B: (A[:, p], k[p], B),
            "The entries of k have to be moved with the columns of A.": lambda p, A, k, B: (A[:, p], k, B[p]),
            "B is permuted the other way round: right only where p is its own inverse.":
                lambda p, A, k, B: (A[:, p], k[p], B[np.argsort(p)]),
            "A itself is not A[:, p].": lambda p, A, k, B: (A, k, B),
        },
        through=lambda out, p, A, k, B: renamed(*out),
    ),
    function(
        "a function `unchanged(activation, c) -> bool` for the activations \"relu\" and \"gelu\" and any number c other than 0",
        [(activation, c) for activation in ("relu", "gelu") for c in (2.5, -2.5, 1.0, -1.0, 0.3)],
        scaled_is_same,
        {
            "For negative c the bend is at the other side.": lambda activation, c: activation == "relu" or c == 1,
            "GELU does not scale: it is curved.": lambda activation, c: c > 0,
            "A factor of 1 changes nothing, whatever the activation.": lambda activation, c: activation == "relu" and c > 0,
            "There are factors besides 1.": lambda activation, c: c == 1,
        },
    ),
]

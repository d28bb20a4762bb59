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
        W_1, b_1, W_2, b_2 = (np.asarray(w, dtype=float) for w in weights)
        got = feed_forward(LINE, W_1, b_1, W_2, b_2)
        yield f"The layer for {words} is right for x ≥ 0 and not for x < 0.", not agree(got[6:], want[6:]) or agree(got, want)
        yield f"The layer for {words} is right for x ≤ 0 and not for x > 0.", not agree(got[:7], want[:7]) or agree(got, want)
        yield f"The layer for {words} computes something else.", agree(got, want)
    yield "Weights of two layers are wanted, that for |x| first.", len(answer) == 2


def some_weights(rng: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
    return rng.normal(size=(4, n)), rng.normal(size=n), rng.normal(size=(n, 4)), rng.normal(size=4)


def permuted(rng: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
    W_1, b_1, W_2, _ = some_weights(rng, n + 1)
    return rng.permutation(n + 1), W_1, b_1, W_2


def renamed(W_1: np.ndarray, b_1: np.ndarray, W_2: np.ndarray) -> np.ndarray:
    """A, and beside it what the layer does."""
    return np.hstack([W_1, feed_forward(ROWS, W_1, b_1, W_2, np.zeros(4))[:4].T])


def scaled_is_same(activation: str, c: float) -> bool:
    W_1, b_1, W_2, b_2 = some_weights(np.random.default_rng(0), 3)
    scale = np.array([1, c, 1])
    return agree(feed_forward(ROWS, W_1 * scale, b_1 * scale, W_2 / scale[:, None], b_2, activation), feed_forward(ROWS, W_1, b_1, W_2, b_2, activation), 1e-9)


one, minus = np.array([[1.0, -1.0]]), np.array([[1.0], [-1.0]])
absolute = (one, np.zeros(2), np.ones((2, 1)), np.zeros(1))

EXERCISES = [
    holds(
        "a pair: the weights (W_1, b_1, W_2, b_2) of the layer for |x|, and those of the layer for x, as arrays",
        two_layers,
        [(absolute, (np.ones((1, 1)), np.zeros(1), np.ones((1, 1)), np.zeros(1))), (absolute, absolute),
         ((one, np.zeros(2), minus, np.zeros(1)), absolute), ((-one[:, :1], np.zeros(1), np.ones((1, 1)), np.zeros(1)), absolute)],
    ),
    function(
        "a function `merged(W_1, b_1, W_2, b_2)` that returns the pair (W, c)",
        some_weights,
        lambda W_1, b_1, W_2, b_2: (ROWS @ W_1 + b_1) @ W_2 + b_2,
        {
            "The bias b_1 goes through W_2 as well.": lambda W_1, b_1, W_2, b_2: (W_1 @ W_2, b_2),
            "The bias b_2 is forgotten.": lambda W_1, b_1, W_2, b_2: (W_1 @ W_2, b_1 @ W_2),
            "b_2 is not multiplied by anything: it comes after W_2.": lambda W_1, b_1, W_2, b_2: (W_1 @ W_2, b_1 @ W_2 + b_2 @ W_1 @ W_2),
        },
        through=lambda out, W_1, b_1, W_2, b_2: ROWS @ out[0] + out[1],
    ),
    function(
        "a function `rename(p, W_1, b_1, W_2)` that returns the new (W_1, b_1, W_2), where the new W_1 is W_1[:, p]",
        permuted,
        lambda p, W_1, b_1, W_2: np.hstack([W_1[:, p], renamed(W_1, b_1, W_2)[:, len(b_1):]]),
        {
            "The rows of W_2 stay: then other numbers are multiplied.": lambda p, W_1, b_1, W_2: (W_1[:, p], b_1[p], W_2),
            "The entries of b_1 have to be moved with the columns of W_1.": lambda p, W_1, b_1, W_2: (W_1[:, p], b_1, W_2[p]),
            "B is permuted the other way round: right only where p is its own inverse.":
                lambda p, W_1, b_1, W_2: (W_1[:, p], b_1[p], W_2[np.argsort(p)]),
            "W_1 itself is not W_1[:, p].": lambda p, W_1, b_1, W_2: (W_1, b_1, W_2),
        },
        through=lambda out, p, W_1, b_1, W_2: renamed(*out),
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

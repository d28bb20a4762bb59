"""Graders for the exercises of the chapter feed_forward."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tlm_book.exercises.grading import function, holds, value
from tlm_book.spec.feed_forward import (
    chosen_experts,
    feed_forward,
    gated_feed_forward,
)
from tlm_book.spec.operators import agree

LINE = np.linspace(-3, 3, 13)[:, None]
ROWS = np.random.default_rng(9).normal(size=(5, 4))


def two_layers(answer: Any) -> Iterator[tuple[str, object]]:
    yield "Weights of two layers are wanted, those for |x| first.", len(answer) == 2
    for words, weights, want in zip(("|x|", "x"), answer, (np.abs(LINE), LINE)):
        W_1, b_1, W_2, b_2 = (np.asarray(w, dtype=float) for w in weights)
        got = feed_forward(LINE, W_1, b_1, W_2, b_2)
        yield f"The layer for {words} is right for x ≥ 0 but not for x < 0.", not agree(got[6:], want[6:]) or agree(got, want)
        yield f"The layer for {words} is right for x ≤ 0 but not for x > 0.", not agree(got[:7], want[:7]) or agree(got, want)
        yield f"The layer for {words} computes something else.", agree(got, want)
        far = feed_forward(1e20 * LINE, W_1, b_1, W_2, b_2) / 1e20
        yield f"The layer for {words} is right only near 0: ReLU throws away the negative part of x + b as well.", agree(far, want)


def some_weights(rng: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
    return rng.normal(size=(4, n)), rng.normal(size=n), rng.normal(size=(n, 4)), rng.normal(size=4)


def permuted(rng: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
    W_1, b_1, W_2, _ = some_weights(rng, n + 1)
    return rng.permutation(n + 1), W_1, b_1, W_2


def renamed(W_1: np.ndarray, b_1: np.ndarray, W_2: np.ndarray) -> np.ndarray:
    """The answer's matrix W_1, followed by the output of the layer."""
    return np.hstack([W_1, feed_forward(ROWS, W_1, b_1, W_2, np.zeros(4))[:4].T])


def scaled_is_same(activation: str, c: float) -> bool:
    W_1, b_1, W_2, b_2 = some_weights(np.random.default_rng(0), 3)
    scale = np.array([1, c, 1])
    return agree(feed_forward(ROWS, W_1 * scale, b_1 * scale, W_2 / scale[:, None], b_2, activation), feed_forward(ROWS, W_1, b_1, W_2, b_2, activation), 1e-9)


one, minus = np.array([[1.0, -1.0]]), np.array([[1.0], [-1.0]])
absolute = (one, np.zeros(2), np.ones((2, 1)), np.zeros(1))
shifted = (np.ones((1, 1)), np.array([10.0]), np.ones((1, 1)), np.array([-10.0]))

def _matched(d: int, f: int, E: int, k: int, router: int = 1, biases: int = 1, matrices: int = 3) -> tuple[int, float]:
    plain = 2 * d * f + biases * (f + d)
    width = (plain - router * d * E) // (matrices * k * d)
    return width, (router * d * E + matrices * E * d * width) / plain


def matched(d: int, f: int, E: int, k: int) -> tuple[int, float]:
    return _matched(d, f, E, k)


def by_position(R: np.ndarray) -> np.ndarray:
    """True at (i, e) if row i gets expert e, for k = 1 and the capacity ⌈n/2⌉."""
    G, wanted = np.zeros(R.shape, dtype=bool), chosen_experts(R, 1)
    for i, row in enumerate(wanted):
        G[i] = row & (G[:i].sum(axis=0) < -(-len(R) // 2))
    return G


def differs_when_cut(answer: Any) -> Iterator[tuple[str, object]]:
    yield "A pair (R, i) is wanted.", isinstance(answer, (tuple, list)) and len(answer) == 2
    R, i = np.asarray(answer[0], dtype=float), answer[1]
    yield "R has two columns, one for each expert.", R.ndim == 2 and R.shape[1] == 2
    yield "Router logits are finite numbers.", np.isfinite(R).all()
    yield "i is a whole number with 1 ≤ i < n.", hasattr(i, "__index__") and 1 <= i < len(R)
    yield "The first i rows are granted the same experts with and without the later ones.", not np.array_equal(by_position(R)[:i], by_position(R[:i]))
    yield "A shorter text will do.", len(R) <= 3


def some_forms(rng: np.random.Generator, n: int) -> tuple[np.ndarray]:
    Q = rng.normal(size=(d := 2 + n % 3, d, d))
    return (Q + Q.transpose(0, 2, 1),)


def _bilinear(Q: np.ndarray, mixed: float = 2, square: float = 1) -> tuple[np.ndarray, ...]:
    i, j = np.triu_indices(len(Q))
    return np.eye(len(Q))[:, i], np.eye(len(Q))[:, j], (Q[:, i, j] * np.where(i < j, mixed, square)).T


def _all_pairs(Q: np.ndarray) -> tuple[np.ndarray, ...]:
    i, j = (pair.ravel() for pair in np.indices(Q.shape[1:]))
    return np.eye(len(Q))[:, i], np.eye(len(Q))[:, j], Q[:, i, j].T


def form_values(out: Any, Q: np.ndarray) -> np.ndarray:
    W_G, W_1, W_2 = (np.asarray(W, dtype=float) for W in out)
    if W_G.shape[1] > len(Q) * (len(Q) + 1) // 2:
        raise ValueError(f"{W_G.shape[1]} inner numbers are more than d(d + 1)/2")
    return gated_feed_forward(ROWS[:, : len(Q)], W_G, W_1, W_2, "identity")

EXERCISES = [
    holds(
        "a pair: the weights (W_1, b_1, W_2, b_2) of the layer for |x|, and those of the layer for x, as arrays",
        two_layers,
        [(absolute, (np.ones((1, 1)), np.zeros(1), np.ones((1, 1)), np.zeros(1))), (absolute, absolute), (absolute, shifted),
         ((one, np.zeros(2), minus, np.zeros(1)), absolute), ((-one[:, :1], np.zeros(1), np.ones((1, 1)), np.zeros(1)), absolute)],
    ),
    function(
        "a function `merged(W_1, b_1, W_2, b_2)` that returns the pair (W, c)",
        some_weights,
        lambda W_1, b_1, W_2, b_2: (ROWS @ W_1 + b_1) @ W_2 + b_2,
        {
            "The bias b_1 goes through W_2 as well.": lambda W_1, b_1, W_2, b_2: (W_1 @ W_2, b_2),
            "The bias b_2 is forgotten.": lambda W_1, b_1, W_2, b_2: (W_1 @ W_2, b_1 @ W_2),
            "b_2 is not multiplied by anything: it is added after W_2.": lambda W_1, b_1, W_2, b_2: (W_1 @ W_2, b_1 @ W_2 + b_2 @ W_1 @ W_2),
        },
        through=lambda out, W_1, b_1, W_2, b_2: ROWS @ out[0] + out[1],
    ),
    function(
        "a function `rename(p, W_1, b_1, W_2)` that returns the new (W_1, b_1, W_2), where the new W_1 is W_1[:, p]",
        permuted,
        lambda p, W_1, b_1, W_2: np.hstack([W_1[:, p], renamed(W_1, b_1, W_2)[:, len(b_1):]]),
        {
            "The rows of W_2 have stayed in place, and now multiply the wrong inner numbers.": lambda p, W_1, b_1, W_2: (W_1[:, p], b_1[p], W_2),
            "The entries of b_1 must move with the columns of W_1.": lambda p, W_1, b_1, W_2: (W_1[:, p], b_1, W_2[p]),
            "W_2 is permuted the other way round, which is right only if p is its own inverse.":
                lambda p, W_1, b_1, W_2: (W_1[:, p], b_1[p], W_2[np.argsort(p)]),
            "The new W_1 is to be W_1[:, p], not W_1 itself.": lambda p, W_1, b_1, W_2: (W_1, b_1, W_2),
        },
        through=lambda out, p, W_1, b_1, W_2: renamed(*out),
    ),
    function(
        "a function `unchanged(activation, c) -> bool`: whether the layer stays the same, for the activations"
        " \"relu\" and \"gelu\" and any c other than 0",
        [(activation, c) for activation in ("relu", "gelu") for c in (2.5, -2.5, 1.0, -1.0, 0.3)],
        scaled_is_same,
        {
            "A negative c puts the kink on the other side.": lambda activation, c: activation == "relu" or c == 1,
            "GELU(cx) is not c GELU(x), for GELU is curved.": lambda activation, c: c > 0,
            "A factor of 1 changes nothing, whatever the activation.": lambda activation, c: activation == "relu" and c > 0,
            "For one of the activations there are other factors besides 1.": lambda activation, c: c == 1,
        },
    ),
    value(
        "an array of two rows: the results for (1, 2) and (2, 1)",
        lambda: np.array([[2.0, 3.0], [2.0, 0.0]]),
        {
            "The gate of a negative number is 0, not the number.": np.array([[2.0, 3.0], [2.0, -3.0]]),
            "The gates alone are not yet the result: multiply them by XW_1.": np.array([[1.0, 1.0], [2.0, 0.0]]),
            "A row stands on the left of a matrix: its entries multiply the rows of W_G.": np.array([[0.0, 6.0], [1.0, 3.0]]),
            "This is XW_1. It has yet to be multiplied by the gates.": np.array([[2.0, 3.0], [1.0, 3.0]]),
        },
    ),
    value(
        "an array of three rows: the four weights for k = 1, 2 and 3",
        lambda: np.array([[0, 0, 0, 1], [0, 1 / 3, 0, 2 / 3], [0, 1 / 4, 1 / 4, 1 / 2]]),
        {
            "For k = 2, the first of the equal logits is chosen.": np.array([[0, 0, 0, 1], [0, 0, 1 / 3, 2 / 3], [0, 1 / 4, 1 / 4, 1 / 2]]),
            "The weights of the chosen experts must sum to 1.": np.array(
                [[0, 0, 0, 10], [0, 5, 0, 10], [0, 5, 5, 10]]) / 22,
            "Even with a tie, only k experts are chosen.": np.array([[0, 0, 0, 1], [0, 1 / 4, 1 / 4, 1 / 2], [0, 1 / 4, 1 / 4, 1 / 2]]),
        },
    ),
    function(
        "a function `match(d, f, E, k)` that returns the pair: the greatest f', and the parameters of the mixture divided by those of the plain layer",
        [(512, 2048, 8, 2), (4, 16, 3, 1), (64, 256, 16, 4), (7, 50, 2, 2), (3, 8, 2, 1)],
        matched,
        {
            "The router's parameters are used by every row, too.": lambda d, f, E, k: _matched(d, f, E, k, router=0),
            "The plain layer has biases.": lambda d, f, E, k: _matched(d, f, E, k, biases=0),
            "A gated layer has three matrices.": lambda d, f, E, k: _matched(d, f, E, k, matrices=2),
            "A row uses k experts, not all of them.": lambda d, f, E, k: _matched(d, f, E, E),
        },
    ),
    holds(
        "a pair (R, i): an array R of router logits with two columns and as few rows as possible, and the number i of rows after which the text is"
        " cut, such that the first i rows alone are granted other experts than in the whole text",
        differs_when_cut,
        [(np.array([[1.0, 0.0]] * 4), 2), (np.array([[1.0, 0.0]] * 3), 1), (np.array([[1.0, 0.0], [1.0, 0.0]]), 1),
         (np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]), 2), (np.array([[1.0, 0.0], [1.0, 0.0], [np.nan, np.nan]]), 2)],
    ),
    function(
        "a function `bilinear(Q)` that returns, for an array Q of d symmetric d×d matrices, weights (W_G, W_1, W_2) with at most d(d+1)/2"
        " inner numbers",
        some_forms,
        lambda Q: np.einsum("ni,rij,nj->nr", ROWS[:, : len(Q)], Q, ROWS[:, : len(Q)]),
        {
            "For i < j the product x_i x_j occurs twice in the form.": lambda Q: _bilinear(Q, 1),
            "": _all_pairs,
            "Each square occurs once in the form, not twice.": lambda Q: _bilinear(Q, 2, 2),
        },
        through=form_values,
    ),
]

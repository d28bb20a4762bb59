"""Graders for the exercises of the chapter multi_head."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tlm_book.exercises.grading import call, function, holds
from tlm_book.spec.attention import attention_pattern
from tlm_book.spec.multi_head import multi_head

X = np.random.default_rng(7).normal(size=(5, 6))


def weights(h: int, k: int = 3) -> dict[str, Any]:
    rng = np.random.default_rng(h)
    shapes = {"W_Q": (h, 6, k), "W_K": (h, 6, k), "W_V": (h, 6, k), "W_O": (h * k, 6), "b_O": (6,)}
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def some_order(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    return weights(n)["W_O"], rng.permutation(n)


def reordered(out: np.ndarray, W_O: np.ndarray, order: np.ndarray) -> np.ndarray:
    w = weights(len(order))
    return multi_head(X, w["W_Q"][order], w["W_K"][order], w["W_V"][order], out, w["b_O"])


def previous(n: int) -> np.ndarray:
    P = np.eye(n, k=-1)
    P[0, 0] = 1
    return P


def shared_sizes(d: int, h: int, k: int, g: int) -> int:
    """Build the layer and count the arrays in it, each once."""
    K, V = ([np.zeros((d, k)) for _ in range(g)] for _ in "KV")
    used = [A for i in range(h) for A in (np.zeros((d, k)), K[i * g // h], V[i * g // h])] + [np.zeros((h * k, d))]
    return sum(A.size for A in {id(A): A for A in used}.values())


def widened(W: np.ndarray, b: np.ndarray, first: bool = False, factor: float = 1.0) -> np.ndarray:
    parts = [factor * b[:, None], W] if first else [W, factor * b[:, None]]
    return np.concatenate(parts, axis=1)


def narrow(sharp: Any) -> Iterator[tuple[str, object]]:
    for n in (3, 1, 2, 7, 20):
        Q, K = (np.asarray(W, dtype=float) for W in call(sharp, n, names=["n"]))
        yield f"The matrices have shapes {Q.shape} and {K.shape} for n = {n}; (n, 2) is wanted.", Q.shape == K.shape == (n, 2)
        weights = attention_pattern(Q, K, causal=False)
        wrong = np.flatnonzero(weights.argmax(axis=1) != np.arange(n))
        yield f"For n = {n} row {wrong[:1]} looks at another row more than at itself.", len(wrong) == 0
        least = weights.diagonal().min()
        yield f"For n = {n} some row gives only {least:.2f} to itself: it can be sharper.", least >= 0.99


def circle(turn: float, size: Callable[[int], float]) -> Callable[[int], tuple[np.ndarray, np.ndarray]]:
    def sharp(n: int) -> tuple[np.ndarray, np.ndarray]:
        angle = turn * np.pi * np.arange(n) / n
        points = np.column_stack([np.cos(angle), np.sin(angle)])
        return points, size(n) * points
    return sharp


EXERCISES = [
    function(
        "a function `moved(W_O, order)` that returns the output matrix for the layer whose head i is head `order[i]` of the old one",
        some_order,
        lambda W_O, order: multi_head(X, **weights(len(order))),
        {
            "The blocks have not moved.": lambda W_O, order: W_O,
            "The blocks have moved the other way: head order[i] is now head i.":
                lambda W_O, order: W_O.reshape(len(order), -1, 6)[np.argsort(order)].reshape(W_O.shape),
            "Rows have moved inside the blocks. A block belongs to a head and moves whole.":
                lambda W_O, order: W_O.reshape(-1, len(order), 6)[:, order].reshape(W_O.shape),
            "The columns of W_O are the outputs; the heads meet its rows.":
                lambda W_O, order: np.take(W_O, np.argsort(np.argsort(np.resize(order, 6), kind="stable"), kind="stable"), axis=1),
        },
        through=reordered,
    ),
    function(
        "a function `taller(W, b)` for W of shape (h, d, k) and b of shape (h, k), where the column of ones is appended last",
        lambda rng, n: (rng.normal(size=(2, n, 3)), rng.normal(size=(2, 3))),
        lambda W, b: np.array([np.random.default_rng(1).normal(size=(4, W.shape[1])) @ W[i] + b[i] for i in range(len(W))]),
        {
            "The ones are appended last, so the new row of W is its last.": lambda W, b: widened(W, b, first=True),
            "The new row is 0, so the biases are gone.": lambda W, b: widened(W, 0 * b),
            "The bias enters once, whatever the width is.": lambda W, b: widened(W, b / W.shape[1]),
            "The bias has the wrong sign.": lambda W, b: widened(W, -b),
        },
        through=lambda out, W, b: np.column_stack([np.random.default_rng(1).normal(size=(4, W.shape[1])), np.ones(4)]) @ out,
    ),
    function(
        "a function `back(n, m)`: the product of m patterns *previous* for n rows, where row 0, which has none before it, looks at itself",
        [(5, 2), (1, 2), (4, 0), (6, 3), (3, 5), (8, 1)],
        lambda n, m: np.linalg.matrix_power(previous(n), m),
        {
            "The first rows cannot look so far back. They do not look nowhere: their weights sum to 1.": lambda n, m: np.eye(n, k=-m),
            "The first rows end at row 0, not at themselves.":
                lambda n, m: np.eye(n, k=-m) + np.diag((np.arange(n) < m).astype(float)) * (m > 0),
            "One step too few.": lambda n, m: np.linalg.matrix_power(previous(n), max(m - 1, 0)),
            "It looks ahead.": lambda n, m: np.linalg.matrix_power(previous(n), m).T,
        },
    ),
    function(
        "a function `count(d, h, k, g)`: the number of weights of a layer with h heads of width k where g groups of heads, of equal size, share keys"
        " and values (g = 1 is multi-query attention, g = h shares nothing)",
        [(12, 4, 3, 1), (12, 4, 3, 4), (12, 4, 3, 2), (8, 1, 5, 1), (768, 12, 64, 3)],
        shared_sizes,
        {
            "This is the layer that shares nothing.": lambda d, h, k, g: 4 * d * h * k,
            "The output matrix is forgotten.": lambda d, h, k, g: d * h * k + 2 * d * g * k,
            "Right for h·k = d only: the width of a head is a number of its own.": lambda d, h, k, g: 2 * d * d + 2 * d * g * k,
            "Queries and outputs are not shared; you share them, too.": lambda d, h, k, g: 4 * d * g * k,
        },
    ),
    holds(
        "a function `sharp(n)` that returns W_Q and W_K, each of shape (n, 2), with which each of the n unit vectors gives at least 0.99 to itself",
        narrow,
        [circle(2, lambda n: 1.0), circle(2, lambda n: 50.0), circle(1, lambda n: -50.0 * n**2), lambda n: (np.eye(n), 20 * np.eye(n)),
         lambda n: (np.arange(2.0 * n).reshape(n, 2),) * 2, lambda n: (np.column_stack([np.arange(n), np.zeros(n)]),) * 2],
    ),
]

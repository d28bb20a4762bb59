"""Graders for the exercises of the chapter attention."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tlm_book.exercises.grading import call, function, holds, value
from tlm_book.spec.attention import attention, attention_pattern, causal_attention
from tlm_book.spec.operators import agree, is_causal_pattern, masked_softmax, softmax

logistic = lambda t: 1 / (1 + np.exp(-t))


def sharp(n: int, g: float) -> float:
    """The scale at which the worst case gets 99 percent, found by halving an interval."""
    low, high = 0.0, 1e6
    for _ in range(100):
        c = (low + high) / 2
        low, high = (low, c) if softmax(c * np.array([[g] + [0.0] * (n - 1)]))[0, 0] >= 0.99 else (c, high)
    return high


def fixed_keys(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights, and keys whose width is the number of keys, or one less or more."""
    return rng.dirichlet(np.ones(n)), rng.normal(size=(n, n - 1 + n % 3))


def with_scores(K: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """A query that gives the keys these scores, up to a constant."""
    return np.linalg.lstsq(np.column_stack([K, np.ones(len(K))]), scores, rcond=None)[0][:-1]


def without_rescaling(q: np.ndarray, K: np.ndarray, V: np.ndarray) -> np.ndarray:
    largest, total, average = -np.inf, 0.0, np.zeros(V.shape[1])
    for key, row in zip(K, V):
        score = q @ key / np.sqrt(len(q))
        largest = max(largest, score)
        total, average = total + np.exp(score - largest), average + np.exp(score - largest) * row
    return average / total


def half_rescaled(q: np.ndarray, K: np.ndarray, V: np.ndarray) -> np.ndarray:
    largest, total, average = -np.inf, 0.0, np.zeros(V.shape[1])
    for key, row in zip(K, V):
        score = q @ key / np.sqrt(len(q))
        shrink, largest = np.exp(largest - max(largest, score)), max(largest, score)
        total, average = shrink * total + np.exp(score - largest), average + np.exp(score - largest) * row
    return average / total


def naive(q: np.ndarray, K: np.ndarray, V: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        e = np.exp(K @ q / np.sqrt(len(q)))
        return e @ V / e.sum()


def triangular(pattern: Any) -> Iterator[tuple[str, object]]:
    X = np.random.default_rng(0).normal(size=(6, 3))
    A = lambda X: np.asarray(call(pattern, X, names=["X"]), dtype=float)
    for n in (6, 2, 1):
        got = A(X[:n])
        yield f"The pattern of {n} rows has shape {got.shape}.", got.shape == (n, n)
        yield "It is not lower triangular.", not np.triu(got, 1).any()
        yield "Some weights are negative.", (got >= 0).all()
        yield "Its rows do not sum to 1.", agree(got.sum(axis=1), np.ones(n), 1e-9)
        yield "The same rows have another pattern when it is asked again.", agree(got, A(X[:n]), 1e-9)
    yield "This one is a causal pattern: its leading blocks are the patterns of the leading rows.", not is_causal_pattern(A, X, 1e-9)


def averaged(d: int, W_Q: np.ndarray, W_K: np.ndarray, W_V: np.ndarray) -> np.ndarray:
    W_Q, W_K, W_V = (np.asarray(W, dtype=float) for W in (W_Q, W_K, W_V))
    return causal_attention(np.random.default_rng(d).normal(size=(5, d)), W_Q, W_K, W_V)


zeros, eye = lambda d: np.zeros((d, d)), np.eye

def weighed() -> tuple[float, float]:
    q, K = np.array([[2.0, 0, 0, 0]]), np.array([[0.0, 0, 0, 0], [np.log(3), 0, 0, 0]])
    first, second = attention(q, K, np.diag([4.0, 8.0]), causal=False)[0]
    return float(first), float(second)


def of_the_jacobian() -> tuple[float, float, float]:
    p = np.array([2.0, 1.0, 1.0]) / 4
    J = np.diag(p) - np.outer(p, p)
    return float(J[0, 0]), float(J[0, 1]), float(np.trace(J))


EXERCISES = [
    function(
        "a function `weight(q, k) -> float`: the weight that row 1 gives to itself, for queries q and keys k of shape (2, d)",
        lambda rng, n: (rng.normal(size=(2, n)), rng.normal(size=(2, n))),
        lambda q, k: float(attention_pattern(q, k)[1, 1]),
        {
            "This is what row 1 gives to row 0: the difference of the keys has the wrong sign.":
                lambda q, k: logistic(q[1] @ (k[0] - k[1]) / np.sqrt(len(q[1]))),
            "The scores are not divided by the root of the width: right for width 1.": lambda q, k: logistic(q[1] @ (k[1] - k[0])),
            "The scores are divided by the width, not by its root.": lambda q, k: logistic(q[1] @ (k[1] - k[0]) / len(q[1])),
            "The score of row 0 is left out.": lambda q, k: logistic(q[1] @ k[1] / np.sqrt(len(q[1]))),
        },
    ),
    function(
        "a function `weights(d)` that returns (W_Q, W_K, W_V), each of shape (d, d)",
        [(3,), (1,), (2,), (6,)],
        lambda d: np.cumsum(np.random.default_rng(d).normal(size=(5, d)), axis=0) / np.arange(1, 6)[:, None],
        {
            "With W_V = 0 there is nothing to average.": lambda d: (zeros(d), zeros(d), zeros(d)),
            "All weights of a row have to be equal, whatever X is. Here the scores differ.": lambda d: (eye(d), eye(d), eye(d)),
            "The weights are equal now, but each value has to be the row itself: right for d = 1 only.":
                lambda d: (zeros(d), eye(d), np.ones((d, d))),
            "Equal numbers in W_Q and W_K do not make equal scores.": lambda d: (np.ones((d, d)), np.ones((d, d)), eye(d)),
        },
        through=lambda out, d: averaged(d, *out),
    ),
    function(
        "a function `one_pass(q, K, V)` that returns this row for one query q of shape (k,), keys K of shape (m, k) and values V of shape (m, v),"
        " without the mask; scores may be in the thousands",
        lambda rng, n: ((5000 if n % 2 else 1) * rng.normal(size=n + 1), rng.normal(size=(n, n + 1)), rng.normal(size=(n, 2))),
        lambda q, K, V: attention(q[None], K, V, causal=False)[0],
        {
            "When a new largest score comes, the old sums have to be made relative to it.": without_rescaling,
            "The sum of the exponentials is made relative to the new maximum, but the weighted sum of values is not.": half_rescaled,
            "The scores are not divided by the root of the width.": lambda q, K, V: softmax((K @ q)[None])[0] @ V,
            "exp overflows if the largest score is not subtracted.": naive,
            "The width in the scores is that of the keys, not of the values.": lambda q, K, V: softmax((K @ q)[None] / np.sqrt(V.shape[1]))[0] @ V,
        },
    ),
    function(
        "a function `scale(n, g)`: the smallest c that is enough for any n scores whose largest is ahead by at least g",
        [(2, 1.0), (10, 1.0), (3, 0.2), (1000, 5.0), (5, 3.0)],
        sharp,
        {
            "That is enough, but a little more than needed: the weight is 1 / (1 + others), not 1 − others.":
                lambda n, g: np.log(100 * (n - 1)) / g,
            "There are n − 1 others, not n.": lambda n, g: np.log(99 * n) / g,
            "The scale and the gap are multiplied: half the gap needs twice the scale.": lambda n, g: np.log(99 * (n - 1)) * g,
            "This is for a single other score, right for n = 2.": lambda n, g: np.log(99) / g,
        },
        tol=1e-7,
    ),
    function(
        "a function `query(p, K)`: a query that gives keys K of shape (m, k), with k ≥ m − 1, the weights p; the scores are not scaled",
        fixed_keys,
        lambda p, K: p,
        {
            "The scores have to be log p, not p.": lambda p, K: with_scores(K, p),
            "Softmax itself takes exp: the scores have to be log p, not exp p.": lambda p, K: with_scores(K, np.exp(p)),
            "Scores are not divided by √k here.": lambda p, K: with_scores(K, np.log(p)) * np.sqrt(K.shape[1]),
            "For k = m − 1 there is hardly ever a query with the scores log p. But other scores give the weights p, too.":
                lambda p, K: np.linalg.lstsq(K, np.log(p), rcond=None)[0],
            "The query is not the weighted average of the keys: weights come from scores.": lambda p, K: p @ K,
        },
        through=lambda out, p, K: attention_pattern(np.asarray(out, dtype=float)[None], K, causal=False, scale=1.0)[0],
    ),
    holds(
        "a function `pattern(X)` of your own: lower triangular, with entries at least 0 and rows that sum to 1, and yet not a causal pattern",
        triangular,
        [lambda X: masked_softmax(X @ X.T), lambda X: softmax(X @ X.T), lambda X: np.tril(softmax(X @ X.T)),
         lambda X: masked_softmax((X @ X.T).T * 0), lambda X: np.tril(np.ones((len(X), len(X)))) / len(X)],
    ),
    value(
        "the two numbers of the result",
        weighed,
        {
            "The scores are divided by the root of the width, which is 2.": (0.4, 7.2),
            "The two weights are exchanged.": (3, 2),
            "The weights come from the exponentials of the scores, not from the scores themselves.": (0, 8),
            "The exponentials are not divided by their sum.": (4, 24),
        },
    ),
    value(
        "the three numbers, in this order",
        of_the_jacobian,
        {
            "A weight falls when another score grows.": (1 / 4, 1 / 8, 5 / 8),
            "Only ppᵀ is left: diag(p) is missing.": (-1 / 4, -1 / 8, -3 / 8),
            "Only diag(p) is left: ppᵀ is missing.": (1 / 2, 0, 1),
        },
    ),
]

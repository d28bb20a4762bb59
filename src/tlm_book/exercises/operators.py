"""Graders for the exercises of the chapter operators."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tlm_book.exercises.grading import call, function, holds, value
from tlm_book.spec.operators import (
    agree,
    is_autoregressive,
    is_causal_pattern,
    masked_softmax,
    softmax,
)


def convolve(X: np.ndarray, weights: tuple[float, ...], ahead: int) -> np.ndarray:
    padded = np.pad(X, ((2 - ahead, ahead), (0, 0)))
    return sum((w * padded[k:k + len(X)] for k, w in enumerate(weights)), np.zeros_like(X))


def does_not_look_ahead(weights: tuple[float, ...], ahead: int) -> bool:
    return is_autoregressive(lambda X: convolve(X, weights, ahead), np.random.default_rng(0).normal(size=(6, 2)))


PATTERNS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "A + C": lambda A, C: A + C, "A C": lambda A, C: A @ C, "A ⊙ C": lambda A, C: A * C, "A Cᵀ": lambda A, C: A @ C.T,
    "Aᵀ": lambda A, C: A.T, "A⁻¹": lambda A, C: np.linalg.inv(A), "A / sum of A": lambda A, C: A / A.sum(),
}


def causal_ones() -> set[str]:
    rng = np.random.default_rng(0)
    X, Q, K = rng.normal(size=(5, 3)), rng.normal(size=(3, 2)), rng.normal(size=(3, 2))
    A = lambda X: masked_softmax(X @ Q @ (X @ K).T / 5)
    C = lambda X: np.tril(X @ K @ (X @ Q).T)
    return {name for name, f in PATTERNS.items() if is_causal_pattern(lambda X: f(A(X), C(X)).round(9), X, 1e-6)}


def peeking_keys(keys: Any) -> Iterator[tuple[str, object]]:
    X = np.random.default_rng(0).normal(size=(5, 3))
    K = lambda X: np.asarray(call(keys, X, names=["X"]))
    yield f"K(X) has shape {K(X).shape}; it has to be that of X, {X.shape}.", K(X).shape == X.shape
    yield "These keys are random: for the same X they are not always the same.", np.array_equal(K(X), K(X))
    yield "These keys do not peek: as an operator, X ↦ K(X) is autoregressive.", not is_autoregressive(K, X)
    yield "These are the centred rows of the exercise. Find other keys.", not agree(K(X), X - X.mean(0), 1e-9)
    yield "The peeking shows: the pattern softmax(◺(X K(X)ᵀ)) of the first rows changes when later rows follow.", (
        is_causal_pattern(lambda X: masked_softmax(X @ K(X).T), X, 1e-9))
    yield "All scores of a row are equal: these keys tell no rows apart.", not agree(
        masked_softmax(X @ K(X).T), masked_softmax(np.zeros((5, 5))), 1e-6)


def choices(s: int, M: int) -> tuple[int, ...]:
    """The numbers of maps, counted by enumerating what each free choice among s results may depend on."""
    inputs = [X for n in range(1, M + 1) for X in itertools.product(range(s), repeat=n)]
    seen: tuple[set[Any], ...] = (set(), set(), set(), set())
    for X in inputs:
        for i in range(len(X)):
            for places, key in zip(seen, (X[i], (i, X[i]), X[:i + 1], (i, X))):
                places.add(key)
    return tuple(s ** len(places) for places in seen)


def counted(maps: Callable[[int, int], int], before: int = 1, top: bool = False) -> Callable[[int, int], tuple[int, ...]]:
    def count(s: int, M: int) -> tuple[int, ...]:
        product = lambda factors: int(np.prod([1, *factors], dtype=object))
        every = maps(s, M) ** M if top else product(maps(s, n) ** n for n in range(1, M + 1))
        return maps(s, 1), maps(s, 1) ** M, product(maps(s, i + before) for i in range(M)), every
    return count


SCORES = np.array([[5, 7, 7], [0, np.log(3), 9], [0, np.log(2), np.log(5)]])
OPERATORS = (np.cumsum, lambda x: x - x.mean(), lambda x: np.cumsum(x) / len(x))


def without_diagonal() -> tuple[bool, bool]:
    """A mask that hides the diagonal, row 0 filled with zeros: is it a causal pattern, and do the rows sum to 1?"""
    X = np.random.default_rng(0).normal(size=(4, 3))

    def weights(X: np.ndarray) -> np.ndarray:
        A = np.zeros((len(X), len(X)))
        for i in range(1, len(X)):
            A[i, :i] = softmax(X[i : i + 1] @ X[:i].T)[0]
        return A

    return is_causal_pattern(weights, X), bool(np.allclose(weights(X).sum(axis=1), 1))


def last_row_of_the_running_sum(S: Any) -> Iterator[tuple[str, object]]:
    T = lambda X: np.asarray(call(S, X, names=["X"]), dtype=float)
    texts = [np.random.default_rng(n).normal(size=(n, 3)) for n in (1, 2, 3, 6)]
    yield "S(X) must have the shape of X.", all(T(X).shape == X.shape for X in texts)
    yield "The last row is not that of the running sum.", all(agree(T(X)[-1], X.sum(axis=0), 1e-9) for X in texts)
    yield "This is the running sum itself.", not all(agree(T(X), np.cumsum(X, axis=0), 1e-9) for X in texts)


EXERCISES = [
    function(
        "a function `inverse(Y)` that takes D(X) back to X, for X of shape (n, d)",
        lambda rng, n: (rng.normal(size=(n, 3)),),
        lambda Y: np.linalg.solve(np.eye(len(Y)) - np.eye(len(Y), k=-1), Y),
        {
            "This is D itself, not its inverse.": lambda Y: np.diff(Y, axis=0, prepend=0),
            "It sums along the wrong axis: it adds the numbers within a row, not the rows.": lambda Y: np.cumsum(Y, axis=1),
            "It works from the last row to the first, so that row i depends on later rows.": lambda Y: np.cumsum(Y[::-1], axis=0)[::-1],
            "It adds only the row before: right for two rows, but not for three.": lambda Y: Y + np.vstack([0 * Y[:1], Y[:-1]]),
        },
    ),
    function(
        "a function `fits(weights, ahead) -> bool`: is the convolution of rows i − 2 + ahead, i − 1 + ahead, i + ahead with"
        " these three weights autoregressive? (`ahead` is 0, 1 or 2)",
        [*((tuple(map(float, w)), ahead) for w in itertools.product((0, 0.5), (0, 0.3), (0, -0.2)) for ahead in (0, 1, 2)), ((0.1, 0.4, -0.4), 2)],
        does_not_look_ahead,
        {
            "A window that reaches beyond row i may still give no weight to what lies there.": lambda weights, ahead: ahead == 0,
            "Right for ahead = 0 and 1. With ahead = 2 two of the rows lie beyond row i.":
                lambda weights, ahead: ahead == 0 or weights[2] == 0,
            "You look at the weights of the earliest rows; it is those of the latest that matter.":
                lambda weights, ahead: not any(weights[:ahead]),
            "Two weights that sum to 0 belong to different rows: both have to be 0.": lambda weights, ahead: sum(weights[3 - ahead:]) == 0,
        },
    ),
    value(
        'the set of those among "A + C", "A C", "A ⊙ C", "A Cᵀ", "Aᵀ", "A⁻¹", "A / sum of A" that are causal patterns for all causal'
        " patterns A and C (for A⁻¹: all invertible A)",
        causal_ones,
        {
            "Being triangular is not enough: the leading block must be computed from the leading rows.":
                {"A + C", "A C", "A ⊙ C", "A⁻¹", "A / sum of A"},
            "A transposed pattern is upper triangular: row i depends on the rows after it.": {"A + C", "A C", "A ⊙ C", "A Cᵀ", "A⁻¹"},
            "You are right about sums and products. There is one more.": {"A + C", "A C", "A ⊙ C"},
            "Is the product of two lower triangular matrices not lower triangular?": {"A + C", "A ⊙ C", "A⁻¹"},
        },
    ),
    holds(
        "a function `keys(X)` of your own, other than centring: keys of the shape of X that depend on later rows and do not make"
        " all scores of a row equal, while softmax(◺(X K(X)ᵀ)) is a causal pattern",
        peeking_keys,
        [lambda X: X, lambda X: X - X.mean(axis=0), lambda X: X - X.mean(axis=1, keepdims=True), lambda X: X * X.mean(axis=0),
         lambda X: np.zeros_like(X) + X.mean(axis=0), lambda X: X + np.random.default_rng().normal(size=3)],
    ),
    function(
        "a function `count(s, M)` that returns the four numbers, in this order: rowwise, indexed-rowwise, autoregressive, all",
        [(2, 2), (1, 3), (2, 1), (3, 1), (3, 2), (2, 3)],
        choices,
        {
            "A function of i rows has s^i possible inputs, not s·i.": counted(lambda s, i: s ** (s * i)),
            "Row i of an autoregressive operator may use row i itself: i + 1 rows, not i.": counted(lambda s, i: s ** s**i, before=0),
            "An operator is defined at every height up to M: the last number is a product over heights.":
                counted(lambda s, i: s ** s**i, top=True),
        },
    ),
    value(
        "the matrix of weights, with three rows",
        lambda: masked_softmax(SCORES),
        {
            "The mask is missing: row 0 may look only at itself.": softmax(SCORES),
            "These are the weights before each row is divided by its sum.": np.tril(np.exp(SCORES)),
            "A score is not a weight: take the exponential, e^log 3 = 3.": np.tril(SCORES) / np.tril(SCORES).sum(axis=1, keepdims=True),
            "The visible places do not get equal shares: the weights depend on the scores.": np.tril(np.ones((3, 3))) / np.arange(1, 4)[:, None],
        },
    ),
    value(
        "three pairs of numbers, one for each operator: row 1 for X, then row 1 for X[:2]",
        lambda: tuple((float(T(np.array([1.0, 2, 6]))[1]), float(T(np.array([1.0, 2]))[1])) for T in OPERATORS),
        {
            "The mean of two rows is not that of three: centring sees that a row is gone.": ((3, 3), (-1, -1), (1, 1.5)),
            "The third divides by n, the number of all rows: 3 for X, and 2 for X[:2].": ((3, 3), (-1, 0.5), (1.5, 1.5)),
            "Rows count from 0: row 1 is the second.": ((1, 1), (-2, -0.5), (1 / 3, 0.5)),
        },
    ),
    value(
        "a tuple: the set of the indices of the rows with NaN, and the two answers as True or False",
        lambda: ({0}, *without_diagonal()),
        {
            "Row 1 still sees row 0: one score is enough for a softmax.": ({0, 1}, True, False),
            "Row 0 is zero at every height, so the leading blocks agree: test it with is_causal_pattern.": ({0}, False, False),
            "The weights of row 0 are all 0.": ({0}, True, True),
        },
    ),
    holds(
        "such a function `S(X)`, for X of shape (n, d)",
        last_row_of_the_running_sum,
        [lambda X: np.cumsum(X, axis=0), lambda X: np.zeros_like(X), lambda X: X.sum(axis=0, keepdims=True), lambda X: np.cumsum(X, axis=1)],
    ),
]

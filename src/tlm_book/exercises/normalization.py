"""Graders for the exercises of the chapter normalization."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tlm_book.exercises.grading import call, function, holds, value
from tlm_book.spec.normalization import (
    layer_norm,
    rms_norm,
    standardize,
    standardize_over,
)


def row(d: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(d,))


def unbiased(x: np.ndarray, eps: float) -> np.ndarray:
    return (x - x.mean()) / (x.std(ddof=1) + eps)


def twice(x: np.ndarray, eps: float) -> float:
    once, far = standardize(x, eps), np.abs(x - x.mean()).argmax()
    return float(standardize(once, eps)[far] / once[far])


def spread(x: np.ndarray, eps: float) -> float:
    return float(x.std() / (x.std() + eps))


def lost(directions: Any) -> Iterator[tuple[str, object]]:
    for seed, d in enumerate((5, 3, 8, 2)):
        x = np.random.default_rng(seed).normal(size=d)
        H = np.asarray(call(directions, x, names=["x"]), dtype=float)
        yield f"The result has shape {H.shape}; a direction is a row of {d} numbers.", H.ndim == 2 and H.shape[1] == d
        H = H / np.maximum(np.abs(H).max(axis=-1, keepdims=True, initial=0), 1e-300)  # small changes are wanted, but how small does not matter
        step = 1e-6
        for h in H:
            change = standardize(x + step * h, eps_mode="none") - standardize(x - step * h, eps_mode="none")
            yield f"One of the directions changes std(x) (d = {d}).", np.abs(change).max() < 1e-8 * (1 + np.abs(h).max())
        rank = int(np.linalg.matrix_rank(H, tol=1e-9))
        yield "The directions are not independent of one another.", rank == len(H)
        yield f"There are more independent ones than {rank} (d = {d}).", rank >= 2


def shifted_rows(rng: np.random.Generator, n: int) -> tuple[np.ndarray]:
    return ((1e6 + rng.normal(size=(n, 512))).astype(np.float32),)


def single(centre: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    """The formula in float32 throughout."""
    def f(X: np.ndarray) -> np.ndarray:
        u = centre(X)
        return u / (np.sqrt((u * u).mean(-1, keepdims=True)) + np.float32(1e-6))
    return f


def precise(out: Any, X: np.ndarray) -> np.ndarray:
    if np.asarray(out).dtype != np.float32:
        raise TypeError(f"its dtype is {np.asarray(out).dtype}; all of it has to be computed in float32")
    return np.asarray(out)


mean = lambda X: X.mean(-1, keepdims=True)
once = lambda X: X - mean(X)

THREE = np.random.default_rng(3).normal(size=(5, 3))


def future_seen(pair: Any) -> Iterator[tuple[str, object]]:
    X, Y = (np.asarray(Z, dtype=float) for Z in pair)
    yield "Each array has two rows and two columns.", X.shape == Y.shape == (2, 2)
    yield "The first rows are not the same.", np.array_equal(X[0], Y[0])
    first = [standardize_over(Z, (0, 1))[0] for Z in (X, Y)]
    yield "The results in the first row differ by too little.", np.abs(first[0] - first[1]).max() > 1

EXERCISES = [
    function(
        "a function `narrow(x, b)` that gives, without computing a spread, what the layer returns for a row x of one or two numbers,"
        " with gains 1, biases b and a negligible ε",
        [(np.array(x), np.array(b)) for x, b in [([3.0], [0.5]), ([1.0, 4.0], [0.0, 0.0]), ([4.0, 1.0], [1.0, 2.0]), ([-2.0], [0.0]),
                                                ([-1.0, -9.0], [0.5, 0.5]), ([3.0, 3.0], [0.5, 1.0])]],
        lambda x, b: standardize(x, eps=1e-15) + b,
        {
            "Right for two numbers. A row of one number is constant: what is x − x̄?": lambda x, b: np.sign(x - x[::-1] + (len(x) == 1)) + b,
            "Two equal numbers are a constant row, too.": lambda x, b: (np.where(x == x.max(), 1.0, -1.0) if len(x) == 2 else 0 * x) + b,
            "The signs are exchanged: the larger number stays the larger.": lambda x, b: np.sign(x[::-1] - x) + b,
            "The row is centred, but not divided by its spread.": lambda x, b: x - x.mean() + b,
            "The bias is missing.": lambda x, b: np.sign(x - x.mean()),
        },
        tol=1e-6,
    ),
    function(
        "a function `outlier(d)` that returns a row x of d numbers such that std(x) has a coordinate within 0.001 of √(d − 1)",
        [(5,), (2,), (3,), (30,), (100,), (2000,)],
        lambda d: 0.0,
        {
            "Half above and half below gives ±1: right for d = 2 only.": lambda d: np.where(np.arange(d) % 2, 1.0, -1.0),
            "Equally spaced numbers do not come near the bound.": lambda d: np.arange(float(d)),
            "A number may stick out more than that.": lambda d: np.append(np.arange(d - 1.0), 2.0 * d),
            "Two numbers stick out; one is better.": lambda d: np.append(np.zeros(d - 2), [1.0, -1.0]),
            "For large d the spread of this row is so small that ε matters.": lambda d: np.eye(d)[0],
        },
        through=lambda out, d: float(np.sqrt(d - 1) - np.abs(standardize(np.asarray(out, dtype=float).reshape(d))).max()),
        tol=1e-3,
    ),
    function(
        "a function `convert(d, eps)` that returns a pair (c, e) with std'(x) = c · std(x) for every row of d numbers, where ε is eps"
        " in std' and e in std",
        [(d, eps) for d in (5, 2, 17) for eps in (0.5, 1e-6, 2.0)],
        lambda d, eps: np.stack([unbiased(row(d, seed), eps) for seed in range(3)]),
        {
            "Another factor in σ means another ε as well.": lambda d, eps: (np.sqrt((d - 1) / d), eps),
            "The factor is upside down: σ' is larger than σ, so std' is smaller.": lambda d, eps: (np.sqrt(d / (d - 1)), eps * np.sqrt(d / (d - 1))),
            "The factor of the variance is not that of its root.": lambda d, eps: ((d - 1) / d, eps * (d - 1) / d),
            "ε changes the other way.": lambda d, eps: (np.sqrt((d - 1) / d), eps * np.sqrt(d / (d - 1))),
        },
        through=lambda out, d, eps: np.stack(
            [out[0] * standardize(row(d, seed), float(out[1])) for seed in range(3)]),
    ),
    function(
        "a function `factor(x, eps)`: the number c with std(std(x)) = c · std(x)",
        lambda rng, n: (rng.normal(size=n + 1), float(rng.uniform(0.01, 0.5))),
        twice,
        {
            "They are equal only for ε = 0.": lambda x, eps: 1.0,
            "The second division has an ε, too.": lambda x, eps: 1 / spread(x, eps),
            "This is the spread of std(x) plus ε, which one divides by.": lambda x, eps: spread(x, eps) + eps,
            "The spread of std(x) is not that of x.": lambda x, eps: 1 / (x.std() + eps),
        },
    ),
    holds(
        "a function `directions(x)` that returns such changes as rows, as many independent ones as there are",
        lost,
        [lambda x: np.ones((1, len(x))), lambda x: np.ones((2, len(x))), lambda x: np.stack([np.ones(len(x)), x**2 + 1]),
         lambda x: np.stack([x]), lambda x: np.ones(len(x)), lambda x: np.eye(len(x))[:2]],
    ),
    function(
        "a function `norm32(X)` that standardizes the rows of a float32 array of numbers near 1,000,000, in float32 alone, to within 0.00001",
        shifted_rows,
        lambda X: layer_norm(X.astype(np.float64), np.ones(X.shape[1]), np.zeros(X.shape[1])),
        {
            "The rounding error of the mean is still in it: this is the plain formula.": single(once),
            "The mean of the squares and the square of the mean are both huge, and their difference is rounding error.":
                lambda X: once(X) / np.sqrt(np.maximum(mean(X * X) - mean(X) ** 2, np.float32(1e-6))),
            "It is centred twice, but not divided by the spread.": lambda X: once(once(X)),
            "": lambda X: layer_norm(X.astype(np.float64), np.ones(X.shape[1]), np.zeros(X.shape[1])),
        },
        through=precise,
        tol=1e-5,
    ),
    value(
        "an array of two rows: layer norm, then RMS norm, of (0, 0, 4, 4)",
        lambda: np.array([[-2.0, 0.0, 1.0, 3.0], [0.0, 0.0, 2**0.5, 3 * 2**0.5]]),
        {
            "The gain and the bias are missing.": np.array([[-1.0, -1.0, 1.0, 1.0], [0.0, 0.0, 2**0.5, 2**0.5]]),
            "RMS norm subtracts no mean.": np.array([[-2.0, 0.0, 1.0, 3.0], [-2.0, -1.0, 1.0, 3.0]]),
            "The root mean square is the root of the mean, not of the sum.": np.array([[-2.0, 0.0, 1.0, 3.0], [0.0, 0.0, 0.5**0.5, 3 * 0.5**0.5]]),
        },
    ),
    value(
        "the row, an array of four numbers",
        lambda: np.array([1.0, -1.0, 1.0, 1.0]),
        {
            "Without the guard any multiple would do. Here ε = 3 tells which one it is.": np.array([0.5, -0.5, 0.5, 0.5]),
            "The factor is a square root.": np.array([2.0, -2.0, 2.0, 2.0]),
            "No mean was subtracted.": np.array([0.5, -1.5, 0.5, 0.5]),
        },
    ),
    holds(
        "a pair of arrays (X, Y), each of two rows and two columns, with the same first row, for which the first rows of the"
        " program's results differ by more than 1 somewhere",
        future_seen,
        [(np.zeros((2, 2)), np.zeros((2, 2))), (np.eye(2), -np.eye(2)), (np.array([[0.0, 1.0], [1.0, 1.0]]), np.array([[0.0, 1.0], [1.0, 0.0]])),
         (np.zeros((3, 2)), np.ones((3, 2)))],
    ),
    function(
        "a function `fold(W, b)` that returns the pair (W', b')",
        lambda rng, n: (rng.normal(size=(3, n + 1)), rng.normal(size=n + 1)),
        lambda W, b: layer_norm(THREE @ W + b, np.ones(len(b)), np.zeros(len(b)), 0.1, "inside"),
        {
            "The mean is that of a row of W, not of a column.": lambda W, b: (W - W.mean(axis=0), b - b.mean()),
            "The bias has a mean, too.": lambda W, b: (W - W.mean(axis=1, keepdims=True), b),
            "The mean of each row is wanted, not one mean of all entries.": lambda W, b: (W - W.mean(), b - b.mean()),
            "Only the mean goes into the matrix; RMS norm divides.": lambda W, b: (
                (W - W.mean(axis=1, keepdims=True)) / (1 + W.std(axis=1, keepdims=True)), b - b.mean()),
        },
        through=lambda out, W, b: rms_norm(THREE @ out[0] + out[1], np.ones(len(b)), 0.1),
    ),
]

"""Graders for the exercises of the chapter multi_head."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tlm_book.exercises.grading import call, function, holds, value
from tlm_book.spec.attention import attention, attention_pattern
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
    """The number of weights, counted in a layer that is built, with each array once."""
    K, V = ([np.zeros((d, k)) for _ in range(g)] for _ in "KV")
    used = [A for i in range(h) for A in (np.zeros((d, k)), K[i * g // h], V[i * g // h])] + [np.zeros((h * k, d))]
    return sum(A.size for A in {id(A): A for A in used}.values())


def widened(W: np.ndarray, b: np.ndarray, first: bool = False, factor: float = 1.0) -> np.ndarray:
    parts = [factor * b[:, None], W] if first else [W, factor * b[:, None]]
    return np.concatenate(parts, axis=1)


def narrow(sharp: Any) -> Iterator[tuple[str, object]]:
    for n in (3, 1, 2, 7, 20, 2000):
        Q, K = (np.asarray(W, dtype=float) for W in call(sharp, n, names=["n"]))
        yield f"The matrices have shapes {Q.shape} and {K.shape} for n = {n}; (n, 2) is wanted.", Q.shape == K.shape == (n, 2)
        weights = attention_pattern(Q, K, causal=False)
        wrong = np.flatnonzero(weights.argmax(axis=1) != np.arange(n))
        yield f"For n = {n} row {wrong[:1]} looks at another row more than at itself.", len(wrong) == 0
        least = weights.diagonal().min()
        yield f"For n = {n} some row gives only {least:.2f} to itself: it can be sharper.", least >= 0.99


def some_latents(rng: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
    """Queries of h heads, m kept rows of width r, and what makes them keys and values."""
    h, m, r, k, v = n + 2, *rng.integers(2, 7, size=4)
    return rng.normal(size=(h, k)), rng.normal(size=(m, r)), rng.normal(size=(h, r, k)), rng.normal(size=(h, r, v))


def from_latents(q: np.ndarray, C: np.ndarray, A: np.ndarray, B: np.ndarray, width: int | None = None) -> np.ndarray:
    """With keys and values formed; scores are divided by the root of `width`, by default that of a query."""
    factor = np.sqrt(q.shape[1] / (width or q.shape[1]))
    return np.concatenate([attention(factor * q[i : i + 1], C @ A[i], C @ B[i], causal=False) for i in range(len(q))])


def circle(turn: float, size: Callable[[int], float]) -> Callable[[int], tuple[np.ndarray, np.ndarray]]:
    def sharp(n: int) -> tuple[np.ndarray, np.ndarray]:
        angle = turn * np.pi * np.arange(n) / n
        points = np.column_stack([np.cos(angle), np.sin(angle)])
        return points, size(n) * points
    return sharp


def two_averages() -> tuple[float, float]:
    rows, zero, b = 2 * np.eye(2), np.zeros((2, 2, 1)), np.array([1.0, 0.0])
    first, second = multi_head(rows, zero, zero, np.eye(2)[:, :, None], np.array([[1.0, 1.0], [0.0, 2.0]]), b)[1]
    return float(first), float(second)


def kept(rows: int, groups: int) -> int:
    """MiB for this many rows of a model with 32 layers and heads of width 128, in 16 bits."""
    return np.zeros((32, 2, groups, 128), dtype=np.float16).nbytes * rows // 2**20


def mixed(answer: Any) -> Iterator[tuple[str, object]]:
    X, Y = (np.asarray(rows, dtype=float) for rows in answer)
    yield f"The arrays have shapes {X.shape} and {Y.shape}; (3, 2) is wanted.", X.shape == Y.shape == (3, 2)
    yield "Rows 0 and 1 of X and Y differ.", np.array_equal(X[:2], Y[:2])
    yield "The two texts are the same.", not np.array_equal(X, Y)
    first, second = (attention(U, U, rows)[1] for rows in (X, Y) for U in [rows / np.sqrt((rows**2).mean() + 1e-6)])
    same = np.allclose(first, second, rtol=0, atol=1e-6)
    yield "The mean squares of both are equal: give the last rows different lengths.", not (same and np.isclose((X**2).mean(), (Y**2).mean()))
    yield "Row 1 of the results is the same. It averages rows 0 and 1: choose these so that the weights depend on the size of the scores.", not same


def families() -> list[tuple[np.ndarray, int]]:
    rng = np.random.default_rng(5)
    found = [(rng.normal(size=(r, d, k)) @ rng.normal(size=(d, k)).T, k) for r, d, k in [(2, 4, 2), (1, 3, 1), (3, 2, 2), (4, 5, 3), (2, 2, 3)]]
    M, k = found[0]
    return [*found, (np.stack([0 * M[0], *M, -M.sum(axis=0)]), k)]  # neither the rows of M_0 nor those of the sum span those of all


def one_key(shared: Any) -> Iterator[tuple[str, object]]:
    for M, k in families():
        W_Q, W_K = (np.asarray(W, dtype=float) for W in call(shared, M, k, names=["M", "k"]))
        r, d, _ = M.shape
        yield f"The shapes are {W_Q.shape} and {W_K.shape}; {(r, d, k)} and {(d, k)} are wanted.", W_Q.shape == (r, d, k) and W_K.shape == (d, k)
        off = [i for i in range(r) if not np.allclose(W_Q[i] @ W_K.T, M[i], rtol=0, atol=1e-8)]
        yield f"For r = {r}, d = {d}, k = {k} the product W_Q[{off[:1]}] W_Kᵀ is not M_i.", not off


def by_svd(M: np.ndarray, k: int, stack: Callable[[np.ndarray], np.ndarray], root: bool = False) -> tuple[np.ndarray, np.ndarray]:
    r, d, _ = M.shape
    U, s, Vt = np.linalg.svd(stack(M), full_matrices=False)
    P, R, m = np.zeros((r * d, k)), np.zeros((d, k)), min(k, d)
    P[:, :m], R[:, :m] = (U * (np.sqrt(s) if root else s))[:, :m], Vt[:m].T
    return P.reshape(r, d, k), R


EXERCISES = [
    function(
        "a function `moved(W_O, order)` that returns the output matrix for the layer whose head i is head `order[i]` of the old one",
        some_order,
        lambda W_O, order: multi_head(X, **weights(len(order))),
        {
            "The blocks have not moved.": lambda W_O, order: W_O,
            "The blocks have moved the other way: block i of the old matrix is now block order[i].":
                lambda W_O, order: W_O.reshape(len(order), -1, 6)[np.argsort(order)].reshape(W_O.shape),
            "Rows have moved inside the blocks. A block belongs to a head and moves whole.":
                lambda W_O, order: W_O.reshape(-1, len(order), 6)[:, order].reshape(W_O.shape),
            "The columns of W_O belong to the outputs; the rows belong to the heads.":
                lambda W_O, order: np.take(W_O, np.argsort(np.argsort(np.resize(order, 6), kind="stable"), kind="stable"), axis=1),
        },
        through=reordered,
    ),
    function(
        "a function `taller(W, b)` that returns such matrices for W of shape (h, d, k) and b of shape (h, k), where the column of ones comes last",
        lambda rng, n: (rng.normal(size=(1 + n % 3, n, 3)), rng.normal(size=(1 + n % 3, 3))),
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
        "a function `back(n, m)`: the product of m patterns *previous* for n rows, where row 0, which has no row before it, looks at itself",
        [(5, 2), (1, 2), (4, 0), (6, 3), (3, 5), (8, 1)],
        lambda n, m: np.linalg.matrix_power(previous(n), m),
        {
            "The first rows cannot look so far back, but they must look somewhere: their weights sum to 1.": lambda n, m: np.eye(n, k=-m),
            "The first rows end at row 0, not at themselves.":
                lambda n, m: np.eye(n, k=-m) + np.diag((np.arange(n) < m).astype(float)) * (m > 0),
            "One step too few.": lambda n, m: np.linalg.matrix_power(previous(n), max(m - 1, 0)),
            "It looks ahead.": lambda n, m: np.linalg.matrix_power(previous(n), m).T,
        },
    ),
    value(
        "the number",
        lambda: next(g for g in range(1, 33) if shared_sizes(4096, 32, 128, g) == 41_943_040),
        {
            "The output matrix is missing.": 24,
            "Queries and outputs are not shared, but you share them, too.": 20,
            "This many heads of queries share one head of keys and values.": 4,
            "Each head of keys and values has two matrices.": 16,
        },
    ),
    holds(
        "a function `sharp(n)` that returns W_Q and W_K, each of shape (n, 2), with which each of the n unit vectors"
        " gives itself a weight of at least 0.99",
        narrow,
        [circle(2, lambda n: 1.0), circle(2, lambda n: 50.0), circle(2, lambda n: 1e6), circle(1, lambda n: -50.0 * n**2), lambda n: (np.eye(n), 20 * np.eye(n)),
         lambda n: (np.arange(2.0 * n).reshape(n, 2),) * 2, lambda n: (np.column_stack([np.arange(n), np.zeros(n)]),) * 2],
    ),
    value(
        "the two numbers of row 1",
        two_averages,
        {
            "The bias is missing.": (1, 3),
            "The heads average, they do not add.": (3, 6),
            "H stands to the left of W_O: the rows of W_O, not its columns, belong to the heads.": (3, 2),
            "Row 1 also sees row 0.": (1, 4),
        },
    ),
    value(
        "the three numbers, in MiB (2²⁰ bytes)",
        lambda: (kept(4096, 8), kept(32_768, 8), kept(4096, 32)),
        {
            "Keys and values are both kept.": (256, 2048, 1024),
            "A number of 16 bits has 2 bytes.": (256.0 * 16, 2048.0 * 16, 1024.0 * 16),
            "Every layer keeps its own.": (16, 128, 64),
            "The second and the third are exchanged.": (512, 2048, 4096),
        },
    ),
    holds(
        "two arrays (X, Y) of shape (3, 2) that agree in rows 0 and 1, while their results differ in row 1",
        mixed,
        [
            (np.ones((3, 2)), np.ones((3, 2))),
            (np.eye(3, 2), np.eye(3, 2) * 2),
            (np.vstack([np.eye(2), [[3, 0]]]), np.vstack([np.eye(2), [[0, -3]]])),
            (np.zeros((3, 2)), np.eye(3)[:, 1:]),
            (np.ones((3, 2)), np.vstack([np.ones((2, 2)), [[5, 5]]])),
        ],
    ),
    holds(
        "a function `shared(M, k)` that returns (W_Q, W_K), of shapes (r, d, k) and (d, k), for M of shape (r, d, d) whose stack has rank at most k",
        one_key,
        [
            lambda M, k: (M[:, :, :k], np.eye(M.shape[1])[:, :k]),
            lambda M, k: by_svd(M, k, lambda M: M.reshape(-1, M.shape[2]), root=True),
            lambda M, k: by_svd(M, k, lambda M: M.transpose(0, 2, 1).reshape(-1, M.shape[2])),
            lambda M, k: (by_svd(M[:1], k, lambda M: M[0])[0].repeat(len(M), axis=0), by_svd(M[:1], k, lambda M: M[0])[1]),
            lambda M, k: (M @ by_svd(M[:1], k, lambda M: M[0])[1], by_svd(M[:1], k, lambda M: M[0])[1]),
            lambda M, k: (M @ by_svd(M[:1], k, lambda _: M.sum(axis=0))[1], by_svd(M[:1], k, lambda _: M.sum(axis=0))[1]),
        ],
    ),
    function(
        "a function `latent(q, C, A, B)` that returns an array of shape (h, v), for q of shape (h, k), C (m, r), A (h, r, k) and B (h, r, v)",
        some_latents,
        from_latents,
        {
            "The scores are divided by the root of k, the width of a query.": lambda q, C, A, B: from_latents(q, C, A, B, C.shape[1]),
            "The scores are not divided by √k.": lambda q, C, A, B: from_latents(q, C, A, B, 1),
            "Each head has its own A and B.": lambda q, C, A, B: from_latents(q, C, A[:1].repeat(len(A), axis=0), B[:1].repeat(len(B), axis=0)),
            "The heads are wanted one below the other, not added up.": lambda q, C, A, B: from_latents(q, C, A, B).sum(axis=0),
        },
    ),
]

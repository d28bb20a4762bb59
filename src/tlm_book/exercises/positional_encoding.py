"""Graders for the exercises of the chapter positional_encoding."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tlm_book.exercises.grading import function, holds, precision, value
from tlm_book.spec.operators import agree
from tlm_book.spec.positional_encoding import offset_map, rotary, sinusoid


def nearest(d: int, M: int, order: int = 1) -> int:
    P = sinusoid(M, d)
    distance = np.array([np.linalg.norm(P[k:] - P[:-k], axis=1).min() for k in range(1, M)])
    return int((order * distance).argmin()) + 1


def sines_first(d: int) -> np.ndarray:
    return np.eye(d)[[*range(0, d, 2), *range(1, d, 2)]]


def by_formula(query: tuple[float, float], p: float, key: tuple[float, float], q: float) -> tuple[np.ndarray, np.ndarray, float]:
    """One pair of columns: query and key turned by p and by q radians, and their score."""
    x, y = (rotary(np.array([pair], dtype=float), np.array([at]))[0] for pair, at in ((query, p), (key, q)))
    return x, y, float(x @ y)


def halves_from_interleaved(columns: int, h: int) -> list[int]:
    """For each column of the halves layout, its column in the interleaved layout, head by head."""
    k = columns // h
    return [i * k + c for i in range(h) for c in (*range(0, k, 2), *range(1, k, 2))]


def orthogonal_and_no_rotation(answer: Any) -> Iterator[tuple[str, object]]:
    A, near = np.asarray(answer, dtype=float), max(1e-9, precision(answer))
    yield "A matrix of shape (3, 3) is wanted.", A.shape == (3, 3)
    yield "It is not orthogonal: AAᵀ is not I.", agree(A @ A.T, np.eye(3), tol=near)
    yield "Its determinant is 1: this is a rotation.", np.linalg.det(A) < 0
    powers = [np.linalg.matrix_power(A, p) for p in range(1, 101)]
    yield "One of its first hundred powers is I: two positions are not told apart.", not any(agree(B, np.eye(3), tol=1e-6) for B in powers)


def survivors() -> set[str]:
    """The theorems that hold with base 1, where all frequencies are equal, found by trying each."""
    d, k = 6, 4
    P, T = sinusoid(50, d, base=1.0), lambda k: offset_map(k, d, base=1.0)
    swap = np.eye(d)[[2, 3, 0, 1, 4, 5]]
    tried = {
        "offset map": agree(P[:-k] @ T(k).T, P[k:]),
        "group law": agree(T(2) @ T(3), T(5)),
        "inner products": agree((P @ P.T).diagonal(2), np.full(48, (P @ P.T)[0, 2])),
        "uniqueness": not agree(P[:-k] @ (swap @ T(k)).T, P[k:]),
    }
    return {name for name, true in tried.items() if true}


EXERCISES = [
    function(
        "a function `read_clock(vector)` that returns the whole number p",
        [(sinusoid(1, 8, start=p)[0].round(5),) for p in (0, 1, 2, 700, 1569, 1572, 2200, 3000)],
        lambda vector: int(np.linalg.norm(sinusoid(3001, 8, start=0) - vector, axis=1).argmin()),
        {
            "Right up to p = 1570: the sine alone does not determine the angle; use the cosine, too.":
                lambda vector: round(float(np.arcsin(vector[6])) * 1000),
            "It is rounded down, not to the nearest whole number.": lambda vector: int(np.arctan2(*vector[6:8]) % (2 * np.pi) * 1000),
            "You read the fastest hand, which has turned many times.": lambda vector: round(float(np.arctan2(*vector[:2]) % (2 * np.pi))),
            "Sine and cosine are exchanged.": lambda vector: round(float(np.arctan2(*vector[7:5:-1]) % (2 * np.pi)) * 1000),
        },
    ),
    value(
        "the turned query, the turned key and their score, as a tuple (pair, pair, number)",
        lambda: by_formula((3, 4), np.pi / 2, (1, 2), np.pi),
        {
            "Turned the wrong way: a quarter turn takes (1, 0) to (0, 1).": by_formula((3, 4), -np.pi / 2, (1, 2), -np.pi),
            "The key must be turned as well, by its own position.": by_formula((3, 4), np.pi / 2, (1, 2), 0),
            "Query and key have changed places.": by_formula((1, 2), np.pi / 2, (3, 4), np.pi),
            "The score here is the inner product, not divided by √d_k.": ((-4, 3), (-1, -2), -np.sqrt(2)),
            "Half a turn takes (1, 2) to (−1, −2).": by_formula((3, 4), np.pi / 2, (1, -2), np.pi),
        },
    ),
    value(
        "the query as a list, and the two columns: (list, number, number)",
        lambda: ([*range(0, 6, 2), *range(1, 6, 2)], 2 * 4, 2 * (68 - 64) + 1),
        {
            "This is the permutation the other way round: from halves to interleaved.": ([0, 3, 1, 4, 2, 5], 2, 34),
            "The list is right. Column i of the halves comes from column 2i, and column i + k/2 from column 2i + 1.": ([0, 2, 4, 1, 3, 5], 2, 34),
            "In the halves layout, column 0 and column 1 belong to different pairs.": ([0, 1, 2, 3, 4, 5], 4, 68),
        },
    ),
    function(
        "a function `nearest_return(d, M)`: the offset at which two of the first M rows of the table of width d come nearest",
        [(2, 1000), (2, 100), (2, 20), (4, 300), (6, 50), (2, 710)],
        lambda d, M: nearest(d, M),
        {
            "Six steps are nearly one turn, but there are better approximations.": lambda d, M: 6,
            "After half a turn the vector has the opposite sign: whole turns are wanted.":
                lambda d, M: min(range(1, M), key=lambda k: abs(k / np.pi - round(k / np.pi))),
            "This is right for one hand. The second one must return as well.":
                lambda d, M: min(range(1, M), key=lambda k: abs(k / 2 / np.pi - round(k / 2 / np.pi))),
            "You found where they are farthest apart.": lambda d, M: nearest(d, M, -1),
            "The first M rows are the rows 0, …, M − 1: no two of them are M apart.": lambda d, M: nearest(d, M + 1),
        },
    ),
    function(
        "a function `moving(k, d)`: the matrix that takes the reordered vector of each position p, as a column, to that of p + k",
        [(4, 6), (1, 2), (3, 8), (-2, 4), (0, 6), (10, 6)],
        lambda k, d: sinusoid(20, d, start=k + 20) @ sines_first(d).T,
        {
            "This is the map for the order of the chapter, sine beside cosine.": lambda k, d: offset_map(k, d),
            "The permutation and its transpose are exchanged.": lambda k, d: sines_first(d).T @ offset_map(k, d) @ sines_first(d),
            "It moves backwards, from p to p − k.": lambda k, d: sines_first(d) @ offset_map(-k, d) @ sines_first(d).T,
            "The vector comes out in the order of the chapter: permute it again.": lambda k, d: offset_map(k, d) @ sines_first(d).T,
        },
        through=lambda out, k, d: sinusoid(20, d, start=20) @ sines_first(d).T @ np.asarray(out).T,
    ),
    value(
        'the set of those of "offset map", "group law", "inner products", "uniqueness" that survive',
        survivors,
        {
            "Another map fits as well when two hands turn alike: exchange them.": {"offset map", "group law", "inner products", "uniqueness"},
            "Turning by k and then by l is turning by k + l, at any speed.": {"offset map", "inner products"},
            "The inner product is a sum of cosines of the offset, at any speed.": {"offset map", "group law"},
        },
    ),
    function(
        "a function `to_halves(W, h)`: the matrix for the halves layout, with the same shape",
        lambda rng, n: (rng.normal(size=(n, 12)), 1 + n % 3),
        lambda W, h: W[:, halves_from_interleaved(12, h)],
        {
            "The heads are mixed: the even columns of each head come first, not those of all heads.":
                lambda W, h: W[:, [*range(0, 12, 2), *range(1, 12, 2)]],
            "This is the way from halves to interleaved.": lambda W, h: W[:, np.argsort(halves_from_interleaved(12, h))],
            "Nothing has moved.": lambda W, h: W,
            "The rows of W stay in place: it is the columns that move.": lambda W, h: W[np.argsort(np.arange(len(W)) % 2, kind="stable")],
        },
    ),
    holds(
        "such a matrix $A_1$ of shape (3, 3)",
        orthogonal_and_no_rotation,
        [np.eye(3), np.diag([1.0, 1.0, -1.0]), 2 * np.eye(3), -offset_map(1, 4)[:3, :3], np.diag([-1.0, -1.0, -1.0])],
    ),
]

"""Graders for the exercises of the chapter positional_encoding."""

from collections.abc import Callable

import numpy as np

from tlm_book.exercises.grading import function, value
from tlm_book.spec.operators import agree
from tlm_book.spec.positional_encoding import offset_map, sinusoid


def nearest(d: int, M: int, order: int = 1) -> int:
    P = sinusoid(M, d)
    distance = np.array([np.linalg.norm(P[k:] - P[:-k], axis=1).min() for k in range(1, M)])
    return int((order * distance).argmin()) + 1


def sines_first(d: int) -> np.ndarray:
    return np.eye(d)[[*range(0, d, 2), *range(1, d, 2)]]


def turned(T_of_x: int, T_of_y: int) -> Callable[[np.ndarray, np.ndarray, int], np.ndarray]:
    """Wrong scores: the rows are turned with these signs."""
    def scores(X: np.ndarray, Y: np.ndarray, start: int) -> np.ndarray:
        turn = lambda Z, sign: np.stack([offset_map(sign * (start + p), Z.shape[1]) @ z for p, z in enumerate(Z)])
        return turn(X, T_of_x) @ turn(Y, T_of_y).T
    return scores


def survivors() -> set[str]:
    """Each theorem tried with base 1, where all frequencies are equal."""
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
            "Right up to p = 1570: an angle has a sine and a cosine, and the sine alone does not tell it.":
                lambda vector: round(float(np.arcsin(vector[6])) * 1000),
            "It is cut down, not rounded, to a whole number.": lambda vector: int(np.arctan2(*vector[6:8]) % (2 * np.pi) * 1000),
            "You read the fastest hand, which has turned many times.": lambda vector: round(float(np.arctan2(*vector[:2]) % (2 * np.pi))),
            "Sine and cosine are exchanged.": lambda vector: round(float(np.arctan2(*vector[7:5:-1]) % (2 * np.pi)) * 1000),
        },
    ),
    function(
        "a function `nearest_return(d, M)`: the offset at which two of the first M rows of width d come nearest",
        [(2, 1000), (2, 100), (2, 20), (4, 300), (6, 50)],
        lambda d, M: nearest(d, M),
        {
            "Every 6 steps are nearly one turn. There are better approximations.": lambda d, M: 6,
            "After half a turn the vector has the opposite sign: whole turns are wanted.":
                lambda d, M: min(range(1, M), key=lambda k: abs(k / np.pi - round(k / np.pi))),
            "This is right for one hand. The second one must return as well.":
                lambda d, M: min(range(1, M), key=lambda k: abs(k / 2 / np.pi - round(k / 2 / np.pi))),
            "You found where they are farthest apart.": lambda d, M: nearest(d, M, -1),
        },
    ),
    function(
        "a function `moving(k, d)`: the matrix that takes the new vector of each position p, as a column, to that of p + k",
        [(4, 6), (1, 2), (3, 8), (-2, 4), (0, 6), (10, 6)],
        lambda k, d: sinusoid(20, d, start=k + 20) @ sines_first(d).T,
        {
            "This is the map for the order of the chapter, sine beside cosine.": lambda k, d: offset_map(k, d),
            "The permutation stands on the wrong sides.": lambda k, d: sines_first(d).T @ offset_map(k, d) @ sines_first(d),
            "It moves backwards, from p to p − k.": lambda k, d: sines_first(d) @ offset_map(-k, d) @ sines_first(d).T,
            "The vector comes out in the order of the chapter: permute back.": lambda k, d: offset_map(k, d) @ sines_first(d).T,
        },
        through=lambda out, k, d: sinusoid(20, d, start=20) @ sines_first(d).T @ np.asarray(out).T,
    ),
    function(
        "a function `rotary_scores(X, Y, start)`: all scores of the rows of X and of Y, of shape (n, n), with the first at position `start`",
        lambda rng, n: (rng.normal(size=(n, 4)), rng.normal(size=(n, 4)), 7 * n),
        lambda X, Y, start: np.array([[x @ offset_map(q - p, 4) @ y for q, y in enumerate(Y)] for p, x in enumerate(X)]),
        {
            "Only one of the two is turned, so the score knows the position itself.": turned(1, 0),
            "The two are turned in opposite directions: the score depends on p + q.": turned(1, -1),
            "They are turned backwards: the score depends on p − q.": turned(-1, -1),
            "The table is added; nothing is turned.":
                lambda X, Y, start: (X + sinusoid(len(X), 4, start=start)) @ (Y + sinusoid(len(Y), 4, start=start)).T,
            "No position enters: these are the scores of the rows as they are.": lambda X, Y, start: X @ Y.T,
        },
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
]

"""Graders for the exercises of the chapter graph_networks."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tlm_book.exercises.grading import call, function, holds, value
from tlm_book.spec.graph_networks import mlp
from tlm_book.spec.operators import agree

LINE = np.linspace(-3, 3, 13)[:, None]


def skip(answer: Any) -> Iterator[tuple[str, object]]:
    weights, biases = [[np.asarray(w, dtype=float) for w in part] for part in answer]
    yield f"It has depth {len(weights)}, not 2.", len(weights) == 2
    y, want = mlp(LINE, weights, biases), 2 * np.maximum(LINE, 0) + 3 * LINE
    yield "It is right for x ≥ 0. For x < 0 the bend swallows what the skipping edge carries.", agree(y, want) or not agree(y[6:], want[6:])
    yield "It is right for x ≤ 0 but not for x > 0.", agree(y, want) or not agree(y[:7], want[:7])
    yield "It computes a different function.", agree(y, want)
    far = mlp(1e20 * LINE, weights, biases) / 1e20
    yield "It is right only near 0: ReLU throws away the negative part of x + b as well.", agree(far, want)


def corners(incoming: np.ndarray, bias: np.ndarray, outgoing: np.ndarray) -> int:
    """The number of places at which the slope changes: where a hidden vertex bends, unless others cancel its change."""
    with np.errstate(divide="ignore", invalid="ignore"):
        places, changes = -bias / incoming, np.abs(incoming) * outgoing
    together = [changes[places == place] for place in set(places)]
    return sum(bool(abs(part.sum()) > 1e-9 * np.abs(part).sum()) for part in together)


def bends(best: Any) -> Iterator[tuple[str, object]]:
    for f in (2, 1, 7, 4):
        weights, biases = ([np.asarray(w, dtype=float) for w in part] for part in call(best, f, names=["f"]))
        shapes = [w.shape for w in (*weights, *biases)]
        yield f"The shapes {shapes} are not those of one input, f hidden vertices and one output (f = {f}).", shapes == [(1, f), (f, 1), (f,), (1,)]
        pieces = 1 + corners(weights[0][0], biases[0], weights[1][:, 0])
        yield f"For f = {f} it has {pieces} pieces; there can be more.", pieces > f


def acyclic(rng: np.random.Generator, n: int) -> tuple[np.ndarray]:
    """The weights of an acyclic graph whose vertices are numbered at random."""
    W, order = np.triu(rng.normal(size=(n + 2, n + 2)), 1), rng.permutation(n + 2)
    return (W[order][:, order],)


def all_paths(W: np.ndarray) -> np.ndarray:
    """P[u, v], found by walking: the paths to v are the paths to its predecessors with one more edge."""
    P = np.eye(len(W))
    for _ in W:
        P = np.eye(len(W)) + P @ W
    return P


one = np.array([[1.0, -1.0]])
hidden = lambda f: (np.ones((1, f)), np.ones((f, 1)))

EXERCISES = [
    holds(
        "a pair `(weights, biases)` of lists of arrays, as `mlp` takes them",
        skip,
        [([np.ones((1, 1)), np.full((1, 1), 5.0)], [np.zeros(1), np.zeros(1)]), ([one, np.array([[5.0], [3.0]])], [np.zeros(2), np.zeros(1)]),
         ([np.full((1, 1), 3.0)], [np.zeros(1)]), ([one, np.array([[2.0], [-3.0]])], [np.zeros(2), np.zeros(1)]),
         ([np.ones((1, 2)), np.array([[2.0], [3.0]])], [np.array([0.0, 10.0]), np.full(1, -30.0)])],
    ),
    holds(
        "a function `best(f)` that returns the pair `(weights, biases)` of a network with as many pieces as there can be",
        bends,
        [lambda f: (list(hidden(f)), [np.zeros(f), np.zeros(1)]),
         lambda f: ([np.ones((1, f)), np.eye(f)[:, :1]], [-np.arange(f) - 0.5, np.zeros(1)]),
         lambda f: ([np.ones((1, f)), np.where(np.arange(f) % 2, -1.0, 1.0)[:, None]], [-(np.arange(f) // 2) - 0.5, np.zeros(1)]),
         lambda f: (list(hidden(f + 1)), [-np.arange(f + 1) - 0.5, np.zeros(1)]), lambda f: ([np.zeros((1, f)), np.ones((f, 1))], [np.arange(f), np.zeros(1)])],
    ),
    function(
        "a function `paths(W)` that returns the matrix P",
        acyclic,
        all_paths,
        {
            "Paths of more than one edge count as well.": lambda W: np.eye(len(W)) + W,
            "The path without edges is missing: P_uu is 1.": lambda W: all_paths(W) - np.eye(len(W)),
            "Rows and columns are exchanged: row u belongs to the vertex where the path begins.": lambda W: all_paths(W).T,
            "Paths of three edges and more count as well.": lambda W: np.eye(len(W)) + W + W @ W,
        },
    ),
    value(
        "the four results, as a tuple",
        lambda: tuple(4 + x - 3 * max(0, 2 * x - 1) for x in (-1, 0, 1, 2)),
        {
            "The hidden vertex sends no negative number: below zero, ReLU is 0.": (12, 7, 2, -3),
            "An output has no activation: it may be negative.": (3, 4, 2, 0),
            "The output has a bias of its own.": (-1, 0, -2, -7),
            "One edge leads from the input past the hidden vertex to the output.": (4, 4, 1, -5),
        },
    ),
]

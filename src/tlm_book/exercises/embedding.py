"""Graders for the exercises of the chapter embedding."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from tlm_book.embedding import Embedding
from tlm_book.exercises.grading import function, holds, value
from tlm_book.spec.embedding import embed, one_hot


def moved(optimizer: Any, texts: list[list[int]]) -> set[int]:
    """The rows that the last of the texts moves, after one step for each text."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layer = Embedding(vocab_size=5, d_model=3)
    steps, before = optimizer(layer.parameters()), layer.table.weight.detach().clone()
    for text in texts:
        before = layer.table.weight.detach().clone()
        steps.zero_grad()
        layer(torch.tensor(text)).sum().backward()
        steps.step()
    return set(torch.nonzero((layer.table.weight != before).any(dim=1)).flatten().tolist())


def all_moved() -> tuple[set[int], ...]:
    plain = lambda p: torch.optim.SGD(p, lr=0.1)
    decay, none = (lambda p, w=w: torch.optim.AdamW(p, lr=0.1, weight_decay=w) for w in (0.1, 0.0))
    return (moved(plain, [[1, 3]]), moved(decay, [[1, 3]]), moved(none, [[1, 3]]), moved(none, [[1, 3], [0]]))


SMALL = np.array([[1.0, 0], [0, 2], [3, 1], [-1, 1]])
ONCE, TWICE = np.array([[0.0, 0], [100, 7], [0, 0], [10, 5]]), np.array([[0.0, 0], [101, 7], [0, 0], [10, 5]])


def winners_but_the_last(answer: Any) -> Iterator[tuple[str, object]]:
    E = np.asarray(answer, dtype=float)
    yield "A table of shape (5, 2) is wanted.", E.shape == (5, 2)
    yield "Two rows are equal.", len(np.unique(E, axis=0)) == 5
    angle = np.linspace(0, 2 * np.pi, 3601)
    scores = np.stack([np.cos(angle), np.sin(angle)], axis=1) @ E.T
    second, first = np.sort(scores, axis=1)[:, -2:].T
    won = set(scores.argmax(axis=1)[first > second + 1e-9 * np.abs(scores).max()].tolist())
    yield "Token 4 wins for some y: its row is no weighted average of the others.", 4 not in won
    yield f"Only the tokens {sorted(won)} can win; 0, 1, 2 and 3 are wanted.", won == {0, 1, 2, 3}


EXERCISES = [
    function(
        "a function `rename(E, pi)` that returns the new table, where pi[v] is the new name of token v",
        lambda rng, n: (rng.normal(size=(n + 2, 2)), rng.permutation(n + 2)),
        lambda E, pi: E,
        {
            "This is right for the way back: it renames π(v) to v.": lambda E, pi: E[pi],
            "The columns are permuted. A token is a row.": lambda E, pi: E[:, np.argsort(pi[pi < 2])],
            "Nothing is renamed.": lambda E, pi: E,
        },
        through=lambda out, E, pi: embed(pi, out),
    ),
    value(
        "a pair `(numbers, multiplications)`",
        lambda: (50_257 * 768, 1000 * 50_257 * 768),
        {
            "For each token of the text the product multiplies by the whole table, zeros included.": (50_257 * 768, 1000 * 768),
            "This number of multiplications is for one token; the text has 1,000.": (50_257 * 768, 50_257 * 768),
            "The table holds one row for each token of the vocabulary, not of the text.":
                (1000 * 768, 1000 * 50_257 * 768),
            "A matrix has V times d numbers, not V plus d.": (50_257 + 768, 1000 * 50_257 * 768),
        },
    ),
    function(
        "a function `total(counts, E)`: the sum of the rows of Em(t), where counts[v] is the number of times token v occurs in t",
        lambda rng, n: (np.bincount(rng.integers(0, n + 3, size=3 * n), minlength=n + 3), rng.normal(size=(n + 3, 3))),
        lambda counts, E: embed(np.repeat(np.arange(len(E)), counts), E).sum(axis=0),
        {
            "A token that occurs twice counts twice.": lambda counts, E: (counts > 0) @ E,
            "This is the mean of the rows, not their sum.": lambda counts, E: counts @ E / counts.sum(),
            "The counts are used as if they were the tokens.": lambda counts, E: E[np.minimum(counts, len(E) - 1)].sum(axis=0),
        },
    ),
    value(
        "four sets of rows of a table with five rows: those that move in one step for the text [1, 3] by gradient descent, by AdamW with decay,"
        " and by AdamW without decay; and those that move in a second step, for the text [0], by AdamW without decay",
        all_moved,
        {
            "Weight decay shrinks every row, also those without a gradient.": ({1, 3}, {1, 3}, {1, 3}, {0, 1, 3}),
            "AdamW keeps running averages: a row that has once had a gradient goes on moving.": ({1, 3}, {0, 1, 2, 3, 4}, {1, 3}, {0}),
            "Gradient descent moves only rows that have a gradient.": ({0, 1, 2, 3, 4},) * 3 + ({0, 1, 3},),
            "Without decay a row that has never had a gradient stays.": ({1, 3}, {0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}),
        },
    ),
    value(
        "the matrix Em(t) and the four scores, as a pair",
        lambda: (embed(np.array([2, 0, 2]), SMALL), SMALL[2] @ SMALL.T),
        {
            "Tokens are numbered from 0: token 2 owns the third row.": (SMALL[[1, 0, 1]], SMALL[1] @ SMALL.T),
            "The last token is 2 again: its row gives the scores.": (SMALL[[2, 0, 2]], SMALL[0] @ SMALL.T),
            "The scores are inner products with the rows of the table, the token's own included.": (SMALL[[2, 0, 2]], SMALL.sum(axis=1)),
        },
    ),
    value(
        "the two 4×2 matrices, as a pair",
        lambda: tuple(one_hot(np.array([1, 3, 1]), 4).T @ np.array([[1.0, 0], [10, 5], [100, 7]]) * rate for rate in (1, -0.1)),
        {
            "Token 1 occurs twice: its two rows of G are added.": (ONCE, -ONCE / 10),
            "A step of descent goes against the gradient.": (TWICE, TWICE / 10),
            "The rows of G for one token are added, not averaged.": (TWICE / [[1], [2], [1], [1]], -TWICE / [[10], [20], [10], [10]]),
        },
    ),
    value(
        'the set of those among "input", "tied", "untied", "for ever" that hold',
        lambda: {"input", "tied"},
        {
            "A matrix of its own has a column for each of the two.": {"input", "tied", "untied"},
            "A text may contain one of the two and not the other: only the row of that one has a gradient.": {"input", "tied", "for ever"},
            "Tied, both scores are inner products with one and the same row.": {"input"},
            "The matrix Em(t) is the same for both, and the model sees nothing else.": {"tied"},
        },
    ),
    holds(
        "such a table E of shape (5, 2)",
        winners_but_the_last,
        [np.eye(5)[:, :2], np.zeros((5, 2)), np.array([[1.0, 1], [1, -1], [-1, 1], [-1, -1], [2, 0]]), np.arange(10.0).reshape(5, 2)],
    ),
]

"""Graders for the exercises of the chapter overview."""

import math
from collections.abc import Callable

import numpy as np

from tlm_book.exercises.grading import function, value

Rows = tuple[set[int], set[int]]


def two_texts(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    t = rng.integers(0, 5, size=n)
    return t, np.where(rng.random(n) < 0.3, (t + 1) % 5, t)


def pair(before: int, earlier: bool = True) -> Callable[[np.ndarray, np.ndarray], Rows]:
    """The rows whose tokens agree up to the one `before` places earlier (with `earlier`, all earlier ones), and the rows whose own token agrees."""

    def rows(t: np.ndarray, u: np.ndarray) -> Rows:
        same = {i for i in range(len(t)) if t[i] == u[i]}
        prefix = {i for i in range(len(t)) if (t[: i + 1 + before] == u[: i + 1 + before]).all()}
        return (prefix if earlier else same), same

    return rows


def window(after: int = 0, before: int = 0, blocked: float = -np.inf) -> Callable[[np.ndarray, int], np.ndarray]:
    """A wrong mask: the scores, with `blocked` outside a window that is some places too wide."""

    def masked(S: np.ndarray, w: int) -> np.ndarray:
        row, column = np.indices(S.shape)
        return np.where((column <= row + after) & (row < column + w + before), S, blocked)

    return masked


EXERCISES = [
    value(
        "the number of parameters",
        lambda: 274,
        {
            "The biases count, too: b^O, b_1, b_2 and b.": 274 - 4 - 8 - 4 - 10,
            "E and Y are separate tables.": 274 - 40,
            "Each head has matrices of its own: there are two each of W^Q, W^K and W^V.": 274 - 24,
            "The three normalizations have two rows of parameters each.": 274 - 12,
            "P and W^O have 16 numbers each. Is one of the two left out?": 274 - 16,
        },
    ),
    value(
        "a 3 × 2 array: the rows that the head returns",
        lambda: np.array([[8, 0], [16 / 3, 8 / 3], [2, 6]]),
        {
            "Here every row looks at all three. Row 0 may look only at itself.": np.array([[2.0, 6.0]] * 3),
            "The weights of a row sum to 1 even if some are 0: mask first, then take the softmax.": np.array([[1.0, 0], [2, 1], [2, 6]]),
            "The weights are proportional to the powers of e, not to the scores.": np.array([[8.0, 0], [4, 4], [4 * math.log10(2), 8 - 4 * math.log10(2)]]),
        },
    ),
    value(
        "a pair of numbers: the loss of the model, and the loss of a model that gives every token the same probability",
        lambda: (2 * math.log(2), math.log(16)),
        {
            "The loss is a mean over the tokens, not a sum.": (8 * math.log(2), 4 * math.log(16)),
            "These are bits. The loss takes the natural logarithm.": (2.0, 4.0),
            "It is the mean of the logarithms, not the logarithm of the mean.": (-math.log(9 / 32), math.log(16)),
            "The logarithm of a probability is negative; the loss has a minus sign.": (-2 * math.log(2), -math.log(16)),
        },
    ),
    function(
        "a function `rows(t, u)` that returns a pair of sets of rows: those that agree for all parameters, and those that agree if all blocks add 0",
        two_texts,
        pair(0),
        {
            "Attention brings earlier tokens into a row: it is not enough that the row's own token agrees.": pair(0, earlier=False),
            "A row also depends on its own token.": pair(-1),
            "A row does not depend on the token after it.": pair(1),
        },
    ),
    function(
        "a function `masked(S, w)` that returns the matrix of scores S with −∞ wherever a row may not look",
        lambda rng, n: (rng.normal(size=(n, n)), 1 + n // 3),
        window(),
        {
            "Later rows stay masked, too.": lambda S, w: np.where(np.subtract(*np.indices(S.shape)) < w, S, -np.inf),
            "The window is one row too wide: w counts the row itself.": window(before=1),
            "A score of 0 is not a weight of 0: softmax gives it a positive weight.": window(blocked=0.0),
        },
    ),
    value(
        "a 2 × 3 array: the probabilities, and those at the temperature ½",
        lambda: np.array([[1 / 8, 2 / 8, 5 / 8], [1 / 30, 4 / 30, 25 / 30]]),
        {
            "Dividing by ½ doubles the logits, so the powers of e are squared.": np.array([[1 / 8, 2 / 8, 5 / 8], np.sqrt([1, 2, 5]) / np.sqrt([1, 2, 5]).sum()]),
            "The temperature divides the logits, not the probabilities.": np.array([[1 / 8, 2 / 8, 5 / 8], [1 / 4, 2 / 4, 5 / 4]]),
            "Probabilities sum to 1.": np.array([[1.0, 2, 5], [1, 4, 25]]),
        },
    ),
    value(
        'the set of those of "copy", "low", "stand", "last" that are true',
        lambda: {"copy"},
        {
            "A model that copies has a low loss, but while it writes, the next row is not there yet.": {"copy", "low"},
            "Row 0 looks at the new row, too.": {"copy", "stand"},
            "With the mask, too, the last row sees all rows; but what do these rows hold after block 0?": {"copy", "last"},
            "Row i + 1 of the input holds the token that row i should forecast.": set(),
        },
    ),
    function(
        "a function `last(i, L, n)` that returns the number of this token in a text of n tokens",
        [(0, 1, 5), (0, 3, 9), (1, 2, 5), (2, 4, 5), (4, 1, 5), (3, 4, 12)],
        lambda i, L, n: min(i + L, n - 1),
        {
            "Each block looks one row further: the rows that it reads have looked ahead already.": lambda i, L, n: min(i + 1, n - 1),
            "A text of n tokens ends with token n − 1.": lambda i, L, n: i + L,
            "In each block a row reads rows up to the next one, not all rows.": lambda i, L, n: n - 1,
        },
    ),
]

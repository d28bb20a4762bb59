"""Graders for the exercises of the chapter inference."""

from collections.abc import Callable

import numpy as np

from tlm_book.exercises.grading import function, value
from tlm_book.spec.inference import tempered, top_k


def scores(rng: np.random.Generator, n: int) -> tuple[np.ndarray, float, np.ndarray]:
    return rng.normal(size=n + 1), float(rng.uniform(0.3, 0.8)), rng.random((20_000, n + 1))


def shares(out: np.ndarray, z: np.ndarray, tau: float, U: np.ndarray) -> np.ndarray:
    tokens = np.asarray(out)
    if tokens.shape != U.shape[:1]:
        raise ValueError(f"it has shape {tokens.shape}; one token for each row of U is wanted, {U.shape[:1]}")
    return np.bincount(tokens.astype(int), minlength=len(z)) / len(U)


def some_k(rng: np.random.Generator, n: int) -> tuple[np.ndarray, int, float]:
    return rng.normal(size=n + 3), n, float(rng.uniform(0.3, 2))


def cut(low: float, keep_largest: bool = True, before: bool = True) -> Callable[[np.ndarray, int, float], np.ndarray]:
    """A wrong top-k, in which all but k scores are replaced by `low`."""
    def highest(z: np.ndarray, k: int, temperature: float) -> np.ndarray:
        order = np.argsort(-z if keep_largest else z, kind="stable")[:k]
        kept = np.isin(np.arange(len(z)), order)
        return tempered(np.where(kept, z, low), temperature) if before else np.where(kept, tempered(z, temperature), 0.0)
    return highest


def read(n: int, m: int) -> tuple[int, int]:
    """The numbers of rows computed while m tokens are written, without a cache and with one, counted one by one."""
    without = sum(1 for step in range(m) for _row in range(n + step))
    seen: set[int] = set()
    for step in range(m):
        seen |= set(range(n + step))
    return without, len(seen)


def by_writing(n: int, c: int, R: int) -> int:
    """The content of column c after the tokens 0, …, n − 1 have been written into R columns, one by one."""
    columns = [-1] * R
    for p in range(n):
        columns[p % R] = p
    return columns[c]


EXERCISES = [
    function(
        "a function `temperature(gap, p)` for gap = z_0 − z_1 > 0",
        [(1.0, 0.6), (3.0, 0.9), (0.2, 0.999), (5.0, 0.51)],
        lambda gap, p: float(p),
        {
            "This is upside down: a larger gap needs a higher temperature.": lambda gap, p: np.log(p / (1 - p)) / gap,
            "The two probabilities are to be compared with each other: take the quotient p / (1 − p).": lambda gap, p: -gap / np.log(p),
            "Take the logarithm of the quotient.": lambda gap, p: gap / (p / (1 - p)),
            "At temperature 1 the gap alone fixes the probability.": lambda gap, p: 1.0,
        },
        through=lambda tau, gap, p: float(tempered(np.array([gap, 0.0]), np.asarray(tau, dtype=float).item())[0]),
    ),
    function(
        "a function `draw(z, tau, U)` that returns one token for each row of an array U of uniform numbers, shape (m, V)",
        scores,
        lambda z, tau, U: tempered(z, tau),
        {
            "Here the temperature has no effect: divide the scores by it before the noise is added, and not the noise.":
                lambda z, tau, U: ((z - np.log(-np.log(U))) / tau).argmax(axis=1),
            "The noise has the wrong sign.": lambda z, tau, U: (z / tau + np.log(-np.log(U))).argmax(axis=1),
            "One logarithm is not enough.": lambda z, tau, U: (z / tau - np.log(U)).argmax(axis=1),
            "The uniform numbers themselves will not do as noise.": lambda z, tau, U: (z / tau + U).argmax(axis=1),
            "Nothing is drawn: this is always the token with the highest score.": lambda z, tau, U: np.full(len(U), z.argmax()),
        },
        through=shares,
        tol=0.02,
    ),
    function(
        "a function `highest(z, k, temperature)` that returns the distribution",
        some_k,
        lambda z, k, temperature: top_k(tempered(z, temperature), k),
        {
            "A score of 0 does not make the probability 0.": cut(0.0),
            "The probabilities no longer sum to 1.": cut(0.0, before=False),
            "These are the k lowest.": cut(-np.inf, keep_largest=False),
            "The temperature is forgotten.": lambda z, k, temperature: top_k(tempered(z, 1.0), k),
        },
    ),
    function(
        "a function `rows_read(n, m)` that returns the pair of numbers: without, with",
        [(10, 20), (1, 1), (5, 1), (1, 7), (100, 50)],
        read,
        {
            "The last token is written but never read.": lambda n, m: (sum(n + k for k in range(m)), n + m),
            "The first step reads the prompt alone.": lambda n, m: (sum(n + k + 1 for k in range(m)), n + m - 1),
            "The prompt is read once, and so is each token written, except the last.": lambda n, m: (sum(n + k for k in range(m)), m),
            "Without the cache every step reads all that is there so far.": lambda n, m: (n * m, n + m - 1),
        },
    ),
    function(
        "a function `third(p, q)` that returns the third distribution, for p ≠ q",
        lambda rng, n: tuple(rng.dirichlet(np.ones(n + 1), size=2)),
        lambda p, q: p,
        {
            "Then what the small model likes comes too often: the kept guesses already supply part of p.": lambda p, q: p,
            "The small model has had its turn.": lambda p, q: q,
            "A distribution sums to 1.": lambda p, q: np.maximum(p - q, 0),
            "What is missing is the excess of p over q, not of q over p.": lambda p, q: np.maximum(q - p, 0) / np.maximum(q - p, 0).sum(),
            "Where q is larger than p, nothing is missing.": lambda p, q: np.abs(p - q) / np.abs(p - q).sum(),
        },
        through=lambda out, p, q: np.minimum(p, q) + (1 - np.minimum(p, q).sum()) * np.asarray(out, dtype=float),
    ),
    value(
        "three tuples of tokens, for instance ((0,), (3, 4), (1, 2))",
        lambda: ((0,), (0, 1), (0, 1, 2, 3)),
        {
            "Top-p takes tokens until their probabilities together reach 0.6; the token that reaches it is kept, too.": ((0,), (0,), (0, 1, 2, 3)),
            "Min-p asks for a share of the largest probability: 0.2 · 0.4.": ((0,), (0, 1), (0, 1, 2)),
            "Top-k keeps k tokens, whatever their probabilities.": ((0, 1), (0, 1), (0, 1, 2, 3)),
            "0.05 is less than 0.08: token 4 does not stay.": ((0,), (0, 1), (0, 1, 2, 3, 4)),
        },
        through=lambda left: tuple(tuple(sorted(tokens)) for tokens in left),
    ),
    value(
        "a pair of numbers: bytes for one token, bytes for the text",
        lambda: (12_288, 402_653_184),
        {
            "A key and a value are kept for each token, and a number takes two bytes.": (6_144, 201_326_592),
            "Only two heads have keys and values of their own.": (86_016, 2_818_572_288),
            "Every block has a cache of its own.": (512, 16_777_216),
        },
    ),
    function(
        "a function `newest(n, c, R)`: the token in column c after n tokens, or −1 if the column is empty",
        [(n, c, R) for R in (1, 2, 4) for n in (1, 2, 3, 4, 5, 8, 9) for c in range(R)],
        by_writing,
        {
            "For c ≥ n mod R this token has not been read yet.": lambda n, c, R: n // R * R + c,
            "The first token in the column is overwritten by later ones.": lambda n, c, R: c if c < n else -1,
            "After n tokens the last one is n − 1.": lambda n, c, R: max(n - (n - c) % R, -1),
            "An empty column holds no token: −1.": lambda n, c, R: n - 1 - (n - 1 - c) % R,
        },
    ),
    value(
        'the set of all such changes among "no mask", "a sliding window", "positions counted from the last row", "keys shared by two heads",'
        ' "the mean of all rows subtracted"',
        lambda: {"a sliding window", "keys shared by two heads"},
        {
            "When a row is appended, every row before it gets another position.":
                {"a sliding window", "positions counted from the last row", "keys shared by two heads"},
            "The mean of all rows changes with each row that is appended.":
                {"a sliding window", "keys shared by two heads", "the mean of all rows subtracted"},
            "A window drops old rows; those that it still sees are as they were.": {"keys shared by two heads"},
            "Two heads may read the same keys, which do not depend on later rows.": {"a sliding window"},
        },
    ),
    value(
        "four numbers: the probabilities of 000, 200 and 255 with the restriction, and that of each of them without it",
        lambda: (1 / 300, 1 / 180, 1 / 108, 1 / 256),
        {
            "After 2 the second digit is at most 5: six digits are possible.": (1 / 300, 1 / 300, 1 / 180, 1 / 256),
            "The first digit is 0, 1 or 2: three digits are possible.": (1 / 1000, 1 / 600, 1 / 360, 1 / 256),
            "Only after 25 the last digit is at most 5.": (1 / 300, 1 / 108, 1 / 108, 1 / 256),
            "With the restriction the numbers are not equally likely.": (1 / 256, 1 / 256, 1 / 256, 1 / 256),
            "Of the texts that are kept there are 256, all equally likely.": (1 / 300, 1 / 180, 1 / 108, 1 / 1000),
        },
        tol=1e-6,
    ),
]

"""Graders for the exercises of the chapter loss."""

from collections.abc import Callable

import numpy as np
import torch

from tlm_book.exercises.grading import function, value
from tlm_book.spec.loss import batch_loss, log_softmax


def mean_loss(chances: list[float]) -> float:
    return batch_loss(np.log(np.array([chances])), np.ones((1, len(chances))))


def turning_point(a: float, b: float, m: int) -> float:
    """The probability p at which the two losses are equal, found by halving an interval of log p."""
    low, high = -200.0, 0.0
    for _ in range(200):
        middle = (low + high) / 2
        loss = -((m - 1) * np.log(a) + middle) / m
        low, high = (middle, high) if loss > mean_loss([b] * m) else (low, middle)
    return float(np.exp(high))


def some_lengths(rng: np.random.Generator, n: int) -> tuple[list[int], int]:
    return [int(k) for k in rng.integers(1, n + 1, size=3)], n


def true_tokens(lengths: list[int], n: int) -> float:
    y = -np.random.default_rng(n).exponential(size=(len(lengths), n))
    return -float(np.concatenate([row[:k] for row, k in zip(y, lengths)]).mean())


def weighted(out: np.ndarray, lengths: list[int], n: int) -> float:
    return batch_loss(-np.random.default_rng(n).exponential(size=(len(lengths), n)), np.asarray(out, dtype=float))


def inside(weight: Callable[[int, int, int], float]) -> Callable[[list[int], int], np.ndarray]:
    """A wrong matrix of weights: weight(place, length, n)."""
    return lambda lengths, n: np.array([[weight(j, k, n) for j in range(n)] for k in lengths])


Half = tuple[np.ndarray, np.ndarray]


def two_halves(rng: np.random.Generator, n: int) -> tuple[list[Half]]:
    return ([(-rng.exponential(size=(r, n)), rng.uniform(0.1, 1, size=(r, n)) * scale) for r, scale in ((2, 1.0), (3, 5.0))],)


def peeked(out: np.ndarray, t: np.ndarray, V: int) -> np.ndarray:
    return log_softmax(np.asarray(out, dtype=float).reshape(len(t), V))[np.arange(len(t) - 1), t[1:]]


def copies(column: Callable[[np.ndarray], np.ndarray], size: float = 60) -> Callable[[np.ndarray, int], np.ndarray]:
    return lambda t, V: size * np.eye(V)[column(t)]


CHANGES: dict[str, Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]] = {
    "add to a row": lambda z, x: (z + np.arange(len(z))[:, None], x),
    "add to a column": lambda z, x: (z + np.arange(z.shape[1]), x),
    "double": lambda z, x: (2 * z, x),
    "rename the tokens": lambda z, x: (z[:, ::-1], z.shape[1] - 1 - x),
    "reorder rows and tokens": lambda z, x: (z[::-1], x[::-1]),
    "replace by log-softmax": lambda z, x: (log_softmax(z), x),
}


def harmless() -> set[str]:
    z, x = np.random.default_rng(0).normal(size=(4, 5)), np.array([0, 3, 1, 4])
    loss = lambda z, x: -log_softmax(z)[np.arange(len(x)), x].mean()
    return {name for name, change in CHANGES.items() if abs(loss(*change(z, x)) - loss(z, x)) < 1e-9}


def pieces_of_scores(rng: np.random.Generator, n: int) -> tuple[list[np.ndarray]]:
    return ([(1000 if n % 2 else 1) * rng.normal(size=k) for k in rng.integers(1, 6, size=n)],)


def quiet(f: Callable[[list[np.ndarray]], float]) -> Callable[[list[np.ndarray]], float]:
    def silent(pieces: list[np.ndarray]) -> float:
        with np.errstate(all="ignore"):
            return float(f(pieces))
    return silent


one = lambda z: float(torch.logsumexp(torch.from_numpy(z), 0))


def not_rescaled(pieces: list[np.ndarray]) -> float:
    m, total = -np.inf, 0.0
    for z in pieces:
        m = max(m, z.max())
        total += np.exp(z - m).sum()
    return m + np.log(total)


def curvature(z: np.ndarray, beta: float, h: float = 1e-3) -> float:
    """The second derivative, by differences of fourth order."""
    f = lambda b: -log_softmax(b * z[None])[0, 0]
    return float((-f(beta + 2 * h) + 16 * f(beta + h) - 30 * f(beta) + 16 * f(beta - h) - f(beta - 2 * h)) / (12 * h * h))


def moment(z: np.ndarray, beta: float, k: int) -> float:
    return float(np.exp(log_softmax(beta * z[None]))[0] @ z**k)


def floors_in_bits() -> tuple[float, float]:
    """The lower bounds of the loss in bits, from the table of all four texts."""
    Q = np.array([[1 / 2, 1 / 4], [0, 1 / 4]])
    entropy = lambda p: float(-(p[p > 0] * np.log2(p[p > 0])).sum())
    return (entropy(Q.sum(axis=0)) + entropy(Q.sum(axis=1))) / 2, entropy(Q) / 2


EXERCISES = [
    function(
        "a function `turn(a, b, m)`: the probability in the one bad place of m for which a model with probability a in the m − 1 others has the"
        " same loss as one with b everywhere",
        [(0.9, 0.8, 100), (0.6, 0.5, 10), (0.99, 0.9, 30), (0.5, 0.4, 2)],
        turning_point,
        {
            "This makes the mean probabilities equal. The loss is a mean of logarithms.": lambda a, b, m: m * b - (m - 1) * a,
            "Only m − 1 places have the probability a.": lambda a, b, m: (b / a) ** m,
            "Model B has b in all m places.": lambda a, b, m: (b / a) ** (m - 1),
            "This is the logarithm of what is wanted.": lambda a, b, m: m * np.log(b) - (m - 1) * np.log(a),
        },
        tol=1e-7,
    ),
    function(
        "a function `weights(lengths, n)` that returns an array with a row of n weights for each text, padded at the end to n tokens",
        some_lengths,
        true_tokens,
        {
            "Here the padding counts like the rest.": inside(lambda j, k, n: 1.0),
            "Every text counts the same, whatever its length. The mean over tokens is wanted.": inside(lambda j, k, n: (j < k) / k),
            "One token too many counts in each text.": inside(lambda j, k, n: float(j <= k)),
            "Here the padding counts, and the text does not.": inside(lambda j, k, n: float(j >= k) + 1e-9),
        },
        through=weighted,
    ),
    function(
        "a function `combined(halves)` for a list of pairs (y, w): the loss of the whole batch from the `batch_loss` of each half and its weights",
        two_halves,
        lambda halves: batch_loss(np.concatenate([y for y, _ in halves]), np.concatenate([w for _, w in halves])),
        {
            "This is the plain average of the two.": lambda halves: float(np.mean([batch_loss(*half) for half in halves])),
            "The halves count by their total weights, not by their sizes.":
                lambda halves: float(np.average([batch_loss(*half) for half in halves], weights=[y.size for y, _ in halves])),
            "This is the sum. An average is wanted.": lambda halves: float(sum(batch_loss(y, w) * w.sum() for y, w in halves)),
            "The halves are weighted the wrong way round.":
                lambda halves: float(np.average([batch_loss(*half) for half in halves], weights=[1 / w.sum() for _, w in halves])),
        },
    ),
    function(
        "a function `peeking(t, V)` that returns scores of shape (n, V) for the shifted text t that the model reads; row i < n − 1 is judged on"
        " token t[i + 1]",
        lambda rng, n: (rng.integers(0, n + 2, size=n + 1), n + 2),
        lambda t, V: np.zeros(len(t) - 1),
        {
            "Row i copies what stands in row i: that is the token before the one it is judged on.": copies(lambda t: t),
            "Row i copies the row before it; it has to look ahead.": copies(lambda t: np.roll(t, 1)),
            "The right token is preferred, but not by enough: the loss is not near 0.": copies(lambda t: np.roll(t, -1), 1.0),
            "All tokens have the same score.": lambda t, V: np.zeros((len(t), V)),
        },
        through=peeked,
        tol=1e-6,
    ),
    value(
        "the set of those of " + ", ".join(f'"{name}"' for name in CHANGES) + " that never change the loss",
        harmless,
        {
            "A number added to one column changes that token's probability in every row.": {
                "add to a row", "add to a column", "rename the tokens", "reorder rows and tokens", "replace by log-softmax"},
            "Doubling sharpens the probabilities.": {"add to a row", "double", "rename the tokens", "reorder rows and tokens", "replace by log-softmax"},
            "Log-softmax only adds a number to each row.": {"add to a row", "rename the tokens", "reorder rows and tokens"},
            "There are more: names and places do not matter to the loss if tokens and scores move together.": {
                "add to a row", "replace by log-softmax"},
        },
    ),
    function(
        "a function `log_sum_exp(pieces)` for a list of arrays",
        pieces_of_scores,
        lambda pieces: one(np.concatenate(pieces)),
        {
            "exp overflows, unless a maximum is subtracted first.": quiet(lambda pieces: np.log(sum(np.exp(z).sum() for z in pieces))),
            "When a new maximum comes, the sum so far must be rescaled to it.": quiet(not_rescaled),
            "This adds the logarithms of the pieces. It is the sums of exponentials that add up.": quiet(lambda pieces: sum(one(z) for z in pieces)),
            "The first piece's maximum may be far below that of a later one.":
                quiet(lambda pieces: pieces[0].max() + np.log(sum(np.exp(z - pieces[0].max()).sum() for z in pieces))),
            "This is only the largest score: nearly right when one score is far ahead.": quiet(lambda pieces: max(z.max() for z in pieces)),
        },
        tol=1e-12,
    ),
    value(
        "a pair: the loss, and the list of the three derivatives",
        lambda: (float(np.log(4)), [1 / 8, -3 / 4, 5 / 8]),
        {
            "The derivative at the token that came is its probability minus 1.": (float(np.log(4)), [1 / 8, 1 / 4, 5 / 8]),
            "The sign of the derivatives is wrong: a larger score of the right token makes the loss smaller.": (float(np.log(4)), [-1 / 8, 3 / 4, -5 / 8]),
            "The loss is in bits; natural logarithms are used here.": (2.0, [1 / 8, -3 / 4, 5 / 8]),
            "This is the loss if token 2 comes.": (float(np.log(8 / 5)), [1 / 8, 1 / 4, -3 / 8]),
        },
    ),
    value(
        "the pair $(h_0,h_1)$ of these losses, in bits per letter",
        floors_in_bits,
        {
            "These are bits per text.": (1.8112781244591327, 1.5),
            "These are nats.": (0.6277410, 0.5198604),
            "The first letter is a three times out of four, the second two times: the two places have different entropies.": (1.0, 0.75),
            "These are the losses at the second place alone. The mean over both places is wanted.": (1.0, 0.6887218755408672),
        },
        tol=1e-6,
    ),
    function(
        "a function `second(z, beta)`: the second derivative with respect to β of −log softmax(βz)_x, for a row z of scores; it does not depend on the"
        " token x",
        lambda rng, n: (rng.normal(size=n), float(rng.uniform(0.5, 2))),
        curvature,
        {
            "This is the mean of the squares. The square of the mean has to be subtracted.": lambda z, beta: moment(z, beta, 2),
            "The mean is taken with the probabilities at β, not with equal weights.": lambda z, beta: float(np.var(z)),
            "The probabilities are those of softmax(βz), not of softmax(z).": lambda z, beta: moment(z, 1.0, 2) - moment(z, 1.0, 1) ** 2,
            "The sign is wrong.": lambda z, beta: moment(z, beta, 1) ** 2 - moment(z, beta, 2),
        },
        tol=1e-6,
    ),
]

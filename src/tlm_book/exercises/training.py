"""Graders for the exercises of the chapter training."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from tlm_book.exercises.grading import call, function, holds, value
from tlm_book.spec.loss import batch_loss
from tlm_book.spec.optimization import adamw, clip
from tlm_book.spec.training import bigram_table

logistic = lambda w: 1 / (1 + np.exp(-w))


def walk(n_a: int, n_b: int) -> tuple[float, float, float]:
    """The end of a long walk, the loss there, and 2 over the curvature there, by differences."""
    loss = lambda w: (n_a * np.log1p(np.exp(-w)) + n_b * np.log1p(np.exp(w))) / (n_a + n_b)
    w = 0.0
    for _ in range(4000):
        w -= logistic(w) - n_a / (n_a + n_b)
    h = 1e-3
    curvature = (-loss(w + 2 * h) + 16 * loss(w + h) - 30 * loss(w) + 16 * loss(w - h) - loss(w - 2 * h)) / (12 * h * h)
    return w, float(loss(w)), float(2 / curvature)


def ended(n_a: int, n_b: int) -> tuple[float, float, float]:
    p = n_a / (n_a + n_b)
    return np.log(n_a / n_b), -p * np.log(p) - (1 - p) * np.log(1 - p), 2 / (p * (1 - p))


def wrong_end(place: int, wrong: Callable[[int, int, float], float]) -> Callable[[int, int], tuple[float, ...]]:
    """A wrong answer: right except for one of the three numbers."""
    return lambda n_a, n_b: tuple(wrong(n_a, n_b, x) if k == place else x for k, x in enumerate(ended(n_a, n_b)))


def by_adamw(rates: np.ndarray, decay: float) -> float:
    matrix = torch.nn.Parameter(torch.ones(1, 1, dtype=torch.float64))
    optimizer = torch.optim.AdamW([matrix], weight_decay=decay)
    for rate in rates:
        optimizer.param_groups[0]["lr"] = float(rate)
        matrix.grad = torch.zeros_like(matrix)
        optimizer.step()
    return float(matrix.detach())


def texts(rng: np.random.Generator, n: int) -> tuple[list[int], list[int], int]:
    """Two texts; the last piece of the first occurs in it once, and in the second text, too."""
    k, known, test = 1 + n % 5, [*rng.integers(0, 4, size=29).tolist(), 4], rng.integers(0, 4, size=25).tolist()
    return known, [*test[:12], *known[-k:], *test[12 + k:]], k


def seen(known: list[int], test: list[int], k: int) -> float:
    """The share of the pieces that were seen, found by looking for every piece in every place."""
    pieces = [test[i:i + k] for i in range(len(test) - k + 1)]
    return sum(any(known[j:j + k] == piece for j in range(len(known) - k + 1)) for piece in pieces) / len(pieces)


def distinct(known: list[int], test: list[int], k: int) -> float:
    grams = lambda text: {tuple(text[i:i + k]) for i in range(len(text) - k + 1)}
    return len(grams(known) & grams(test)) / len(grams(test))


def unbiased(estimate: Any) -> Iterator[tuple[str, object]]:
    for seed, s in itertools.product(range(3), (2, 1, 4)):
        rng = np.random.default_rng(seed)
        N = 5 + seed
        y, w = -rng.exponential(size=(N, 4)), rng.uniform(size=(N, 4)) * rng.uniform(0.1, 3, size=(N, 1))
        batches = [list(rows) for rows in itertools.combinations(range(N), s)]
        values = [float(call(estimate, y[B], w[B], N, float(w.sum()), names=["y", "w", "N", "W"])) for B in batches]
        mean, want = np.mean(values), batch_loss(y, w)
        yield "It is the same for all batches: it does not depend on the batch.", max(values) - min(values) > 1e-9
        yield "On average it is minus the loss.", not np.isclose(mean, -want)
        yield f"On average over all batches of {s} of {N} sequences it is {mean / want:.3f} times the loss of the whole.", np.isclose(mean, want, rtol=1e-9)


def after_one_step() -> tuple[float, ...]:
    w, g = np.array([1.0, -2.0]), np.array([0.3, -5.0])
    return tuple(adamw(w, g, 0 * w, 0 * w, 1, 0.1, (0.9, 0.99), decay=0.5, eps=0.0)[0].tolist())


def first_step(beta_1: float, beta_2: float) -> float:
    """The first step, by the specification, in which a huge t makes the corrections vanish."""
    one, none = np.ones(1), np.zeros(1)
    return float(-adamw(none, one, none, none, 10**9, 1.0, (beta_1, beta_2), decay=0.0, eps=0.0)[0][0])


def turned_round(answer: Any) -> Iterator[tuple[str, object]]:
    g = np.asarray(answer, dtype=float)
    yield "A list of numbers is wanted.", g.ndim == 1 and g.size > 0 and bool(np.isfinite(g).all())
    yield "The mean of the gradients is not positive.", g.mean() > 0
    yield "After clipping each to length 1, the mean is not negative.", np.mean([clip(np.array([x]), 1.0)[0] for x in g]) < 0


EXERCISES = [
    function(
        "a function `walk_end(n_a, n_b)` that returns, for a text of n_a times a and n_b times b, n_a ≠ n_b, the end w, the loss there, and the bound below"
        " which η must stay for the walk to settle",
        [(2, 1), (4, 1), (1, 2), (5, 3)],
        walk,
        {
            "At the end p = logistic(w) is the share of a; this gives the share itself as w.": wrong_end(0, lambda n_a, n_b, w: n_a / (n_a + n_b)),
            "w has the wrong sign: more a's make it larger.": wrong_end(0, lambda n_a, n_b, w: -w),
            "The loss is in bits; natural logarithms are used here.": wrong_end(1, lambda n_a, n_b, loss: loss / np.log(2)),
            "The step multiplies the error by 1 − ηL''(w), and this must stay above −1.": wrong_end(2, lambda n_a, n_b, eta: eta / 2),
            "The curvature at the end is p(1 − p), not that at w = 0.": wrong_end(2, lambda n_a, n_b, eta: 8.0),
        },
        tol=1e-5,
    ),
    function(
        "a function `left(rates, decay)`: the share that is left of each entry of such a matrix, given the learning rates of all steps and the weight decay",
        lambda rng, n: (rng.uniform(0, 0.1, size=n), float(rng.uniform(0.1, 1))),
        by_adamw,
        {
            "The decays multiply; they do not add up.": lambda rates, decay: 1 - decay * float(np.sum(rates)),
            "This is nearly right, the more so the smaller the steps are.": lambda rates, decay: float(np.exp(-decay * np.sum(rates))),
            "The decay of a step is multiplied by its learning rate.": lambda rates, decay: (1 - decay) ** len(rates),
            "This is what has gone, not what is left.": lambda rates, decay: 1 - float(np.prod(1 - decay * np.asarray(rates))),
        },
    ),
    function(
        "a function `share_seen(known, test, k)`: the share of the pieces of k tokens of `test` that occur in `known`; both are lists of tokens",
        texts,
        seen,
        {
            "Each piece counts as often as it occurs in the test text.": distinct,
            "This is the share of those that do not occur.": lambda known, test, k: 1 - seen(known, test, k),
            "A text of n tokens has n − k + 1 pieces.": lambda known, test, k: seen(known, test, k) * (len(test) - k + 1) / len(test),
            "The two texts are exchanged.": lambda known, test, k: seen(test, known, k),
            "The last piece of `known` counts, too.": lambda known, test, k: seen(known[:-1], test, k),
        },
    ),
    holds(
        "a function `estimate(y, w, N, W)` for the log-probabilities y and weights w, of shape (s, n), of a batch out of N sequences whose weights sum to W:"
        " its average over all batches of s sequences is the loss of the whole",
        unbiased,
        [lambda y, w, N, W: -(w * y).sum() / w.sum(), lambda y, w, N, W: -(w * y).sum() / W, lambda y, w, N, W: (w * y).sum() * N / len(y) / W,
         lambda y, w, N, W: -y.mean(), lambda y, w, N, W: 1.0, lambda y, w, N, W: -(w * y).sum() * 5 / len(y) / W],
    ),
    value(
        "the pair $(p(a\\mid a),\\,p(b\\mid a))$",
        lambda: tuple(bigram_table(np.array([0, 1, 0, 0, 1]), 2, D=0.5)[0].tolist()),
        {
            "This is counting alone: nothing is taken from the pairs that were seen.": (1 / 3, 2 / 3),
            "What was taken has not been shared out again.": (1 / 6, 1 / 2),
            "D is taken from two different pairs, so r(a) = 2 times D is shared out.": (0.8 / 3, 1.7 / 3),
            "q(b) is proportional to l(b) + 1: l = (2, 1), so q = (3/5, 2/5).": (1 / 3 + 1 / 18, 2 / 3 - 1 / 18),
        },
    ),
    value(
        "the pair of new weights",
        after_one_step,
        {
            "The first step moves every weight by η, however large its gradient is.": (0.92, -1.4),
            "The decay is multiplied by the learning rate.": (0.4, -0.9),
            "The steps go against the sign of the gradient.": (1.05, -2.0),
            "Each weight also shrinks, by the factor 1 − ηλ.": (0.9, -1.9),
        },
    ),
    function(
        "a function `factor(beta_1, beta_2)`: the length of the first step, divided by η, with ε = 0",
        lambda rng, n: (float(rng.uniform(0.5, 0.95)), float(rng.uniform(0.9, 0.999))),
        first_step,
        {
            "m is divided by the root of v, so 1 − β₂ stands under a root.": lambda beta_1, beta_2: (1 - beta_1) / (1 - beta_2),
            "This is the correction, that is, one over what is wanted.": lambda beta_1, beta_2: np.sqrt(1 - beta_2) / (1 - beta_1),
            "This is so with the corrections, but they are left out.": lambda beta_1, beta_2: 1.0,
            "Both means start at 0: after one step they hold the share 1 − β of the gradient.": lambda beta_1, beta_2: beta_1 / np.sqrt(beta_2),
        },
    ),
    holds(
        "a list of numbers, the gradients of one weight on equally likely batches: their mean is positive, and after clipping each to length 1 it is"
        " negative",
        turned_round,
        [[1.0, 2.0], [-3.0, 1.0, 1.0], [5.0, -1.0], [0.5, -0.4]],
    ),
]

"""Graders for the exercises of the chapter optimization."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tlm_book.exercises.grading import function, holds, value
from tlm_book.spec.optimization import adam, clip, momentum, sgd


def two_steps() -> tuple[float, ...]:
    w, m = np.ones(2), np.zeros(2)
    for _ in range(2):
        w, m = momentum(w, np.array([1.0, 4.0]) * w, m, 0.25, 0.5)
    return tuple(w.tolist())


def two_of_adam() -> tuple[float, float]:
    none = np.zeros(1)
    first, m, v = adam(none, np.array([3.0]), none, none, 1, 1.0, (0.5, 0.75), 0.0)
    second, _, _ = adam(first, np.array([-3.0]), m, v, 2, 1.0, (0.5, 0.75), 0.0)
    return float(first[0]), float(second[0])


def best_rate(gap: float, Lam: float, sigma: float, T: int) -> float:
    """The best rate for the bound, found by dividing an interval into thirds: the bound is a convex function of the rate."""
    bound = lambda eta: 2 * gap / (eta * T) + eta * Lam * sigma**2
    low, high = 1e-12, 1 / Lam
    for _ in range(300):
        a, b = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, b) if bound(a) < bound(b) else (a, high)
    return (low + high) / 2


def least_steps(Lam: float, distance: float, gap: float) -> int:
    """The least number of steps, found by halving an interval."""
    enough = lambda T: Lam * distance**2 / (2 * T) <= gap
    low, high = 0, 1
    while not enough(high):
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def speedup(q: float) -> float:
    """The speedup over a long time, from the logarithms of the largest factors of both methods."""
    plain = np.abs(1 - 2 / (1 + q) * np.array([1.0, q])).max()
    beta = ((math.sqrt(q) - 1) / (math.sqrt(q) + 1)) ** 2
    return float(0.5 * math.log(beta) / math.log(plain))


def changed_runs() -> set[str]:
    """The rules whose run changes if all gradients are eight times as large, found by two steps of each."""
    w, g, none = np.ones(2), np.array([[3.0, -5.0], [1.0, 4.0]]), np.zeros(2)

    def ran(rule: str, factor: float) -> np.ndarray:
        at, m, v, top = w, none, none, none
        for t in (1, 2):
            now = factor * g[t - 1]
            now = clip(now, 0.1) if rule.startswith("clipped") else now
            if rule.endswith("sgd"):
                at = sgd(at, now, 0.1)
            elif rule.endswith("momentum"):
                at, m = momentum(at, now, m, 0.1, 0.9)
            else:
                m, v = 0.9 * m + 0.1 * now, 0.99 * v + 0.01 * now**2
                top = np.maximum(top, v) if rule == "amsgrad" else v
                at = at - 0.1 * m / (1 - 0.9**t) / np.sqrt(top / (1 - 0.99**t))
        return at

    names = ("sgd", "momentum", "adam", "amsgrad", "clipped sgd", "clipped momentum")
    return {name for name in names if not np.allclose(ran(name, 1.0), ran(name, 8.0))}


def turned(answer: Any) -> Iterator[tuple[str, object]]:
    g = np.asarray(answer, dtype=float)
    yield "An array of two numbers is wanted.", g.shape == (2,) and bool(np.isfinite(g).all())
    clipped = np.clip(g, -1, 1)
    yield "The gradient 0 has no direction.", g.any() and clipped.any()
    cosine = g @ clipped / np.linalg.norm(g) / np.linalg.norm(clipped)
    angle = math.degrees(math.acos(min(1.0, max(-1.0, float(cosine)))))
    yield f"Clipping its entries turns it by {angle:.1f}°.", angle > 40


def largest(scale: float, a: float) -> float:
    """The largest batch, found by halving an interval: the gain of doubling falls as the batch grows."""
    gain = lambda s: (1 + scale / s) / (1 + scale / (2 * s)) - 1
    low, high = 1e-9 * scale, 1e9 * scale
    for _ in range(300):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if gain(middle) >= a else (low, middle)
    return low


def equal_steps(w: float, eta: float, decay: float) -> float:
    one, none = np.ones(1), np.zeros(1)
    moved, _, _ = adam(w * one, decay * w * one, none, none, 1, eta, (0.9, 0.99), 0.0)
    return float((math.log(moved[0]) - math.log(w)) / math.log(1 - eta * decay))


EXERCISES = [
    value(
        "the pair of weights after the second step",
        two_steps,
        {
            "This is gradient descent: the second step must also contain half of the first m.": (9 / 16, 0.0),
            "The derivative with respect to the second weight is 4w₁.": (7 / 16, 7 / 16),
            "Here m takes the whole gradient, not the share 1 − β of it.": (45 / 64, 0.0),
            "This is after the first step.": (0.75, 0.0),
        },
    ),
    value(
        "the pair: the weight after the first step, and after the second",
        two_of_adam,
        {
            "In the second step the mean still holds some of the first gradient.": (-1.0, 0.0),
            "Without the corrections the second step has another length.": (-1.0, -1 + 0.75 / math.sqrt(3.9375)),
            "The steps go against the gradient.": (1.0, 2 / 3),
            "m̂ is m over 1 − β₁², and this is 3/4.": (-1.0, -0.75),
        },
    ),
    function(
        "a function `best_rate(gap, Lam, sigma, T)` that returns the best of the rates from 0 to 1/Λ, for gap = f(w_0) − f_* and σ > 0",
        [(3.0, 2.0, 0.5, 1000), (1.0, 1.0, 2.0, 50), (5.0, 4.0, 0.1, 10), (0.3, 10.0, 3.0, 400)],
        best_rate,
        {
            "It must not exceed 1/Λ.": lambda gap, Lam, sigma, T: math.sqrt(2 * gap / (T * Lam * sigma**2)),
            "This does not depend on the noise, and it should.": lambda gap, Lam, sigma, T: 1 / Lam,
            "The first term has a factor 2.": lambda gap, Lam, sigma, T: min(1 / Lam, math.sqrt(gap / (T * Lam * sigma**2))),
            "The best rate falls like one over the root of T.": lambda gap, Lam, sigma, T: min(1 / Lam, 2 * gap / (T * Lam * sigma**2)),
        },
        tol=1e-5,
    ),
    function(
        "a function `steps(Lam, distance, gap)`: the least T for which this bound guarantees a loss within `gap` of the smallest, for a start at this"
        " distance from w_*",
        [(2.0, 3.0, 0.1), (1.0, 1.0, 0.3), (10.0, 0.5, 0.01), (5.0, 2.0, 7.0)],
        least_steps,
        {
            "The number of steps is a whole number.": lambda Lam, distance, gap: Lam * distance**2 / (2 * gap),
            "The distance is squared.": lambda Lam, distance, gap: math.ceil(Lam * distance / (2 * gap)),
            "The denominator of the bound is 2T.": lambda Lam, distance, gap: math.ceil(Lam * distance**2 / gap),
            "Rounded down, the bound is not yet small enough.": lambda Lam, distance, gap: int(Lam * distance**2 / (2 * gap)),
        },
    ),
    function(
        "a function `speedup(q)` that returns this ratio for q > 1, in the limit of many steps",
        [(2.0,), (10.0,), (100.0,), (1e4,)],
        speedup,
        {
            "This is nearly right, but for large q only.": lambda q: math.sqrt(q),
            "This is one over what is wanted.": lambda q: 1 / speedup(q),
            "The numbers of steps depend on the logarithms of the factors, not on the factors themselves.": lambda q: ((q - 1) / (q + 1))
            / ((math.sqrt(q) - 1) / (math.sqrt(q) + 1)),
            "The factor of momentum is √β, not β.": lambda q: 2 * speedup(q),
        },
    ),
    value(
        'the set of those that change, from the names "sgd", "momentum", "adam", "amsgrad", "clipped sgd", "clipped momentum"',
        changed_runs,
        {
            "Adam divides by the root of the mean square, which grows by the same factor.": {"sgd", "momentum", "adam", "amsgrad"},
            "A gradient that is clipped either way has length c, whatever it was before.": {"sgd", "momentum", "clipped sgd", "clipped momentum"},
            "Momentum adds up gradients, so it is multiplied as well.": {"sgd"},
            "The largest v is multiplied as every v is.": {"sgd", "momentum", "amsgrad"},
        },
    ),
    holds(
        "the gradient, an array of two numbers",
        turned,
        [[1.0, 1.0], [5.0, 1.0], [0.0, 3.0], [1000.0, -900.0], [2.0, 3.0, 4.0]],
    ),
    function(
        "a function `largest(scale, a)` that returns this s, a real number, for the noise scale $s_*$",
        [(40.0, 0.1), (7.0, 1 / 3), (100.0, 0.5), (3.0, 0.9)],
        largest,
        {
            "This is the doubled batch; the size before doubling is wanted.": lambda scale, a: scale * (1 - a) / a,
            "As a tends to 1 this must tend to 0: no doubling doubles the gain.": lambda scale, a: scale / (2 * a),
            "This is the reciprocal.": lambda scale, a: scale * 2 * a / (1 - a),
            "The noise scale itself is the answer for a = 1/3 only.": lambda scale, a: scale,
        },
        tol=1e-8,
    ),
    function(
        "a function `equal_steps(w, eta, decay)` that returns this number, a real one, for η < w",
        lambda rng, n: (float(rng.uniform(0.1, 1)), float(rng.uniform(0.001, 0.05)), float(rng.uniform(0.05, 0.5))),
        equal_steps,
        {
            "Adam's step has the length η, whatever the size of the gradient; AdamW needs several steps for this.": lambda w, eta, decay: 1.0,
            "This is nearly right for small η, but the decays multiply.": lambda w, eta, decay: 1 / (decay * w),
            "This is one over the number wanted.": lambda w, eta, decay: math.log(1 - eta * decay) / math.log(1 - eta / w),
            "AdamW multiplies by 1 − ηλ, not by 1 − λ.": lambda w, eta, decay: math.log(1 - eta / w) / math.log(1 - decay),
        },
    ),
    function(
        "a function `gradients(G, A, B)` that returns the pair of gradients, with respect to A and with respect to B",
        lambda rng, n: (rng.normal(size=(n + 2, n + 1)), rng.normal(size=(n + 2, n)), rng.normal(size=(n, n + 1))),
        lambda G, A, B: (G @ B.T, A.T @ G),
        {
            "These are the gradients the wrong way round.": lambda G, A, B: (A.T @ G, G @ B.T),
            "The gradient of a matrix has the shape of the matrix.": lambda G, A, B: ((G @ B.T).T, (A.T @ G).T),
            "The gradients are wanted, not the steps against them.": lambda G, A, B: (-G @ B.T, -A.T @ G),
        },
    ),
]

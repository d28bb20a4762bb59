"""Learning from rewards. Generated from book/rewards.ipynb: edit the notebook, then `make export`."""

import math

import numpy as np
from jaxtyping import Float

from tlm_book.checks import expects, expects_one_of, expects_positive, shaped


def _expects_probabilities(**given: Float[np.ndarray, "m"]) -> None:
    for name, p in given.items():
        fits = len(p) > 0 and (p > 0).all() and abs(p.sum() - 1) < 1e-9
        expects(fits, name, p.tolist(), "positive numbers with the sum 1")

__all__ = [
    "policy_gradient",
    "advantages",
    "question_weight",
    "tilted",
    "best_of",
    "preference_loss",
]


# --- The gradient of an average


@shaped
def policy_gradient(
    q: Float[np.ndarray, "m"],
    g: Float[np.ndarray, "m P"],
    r: Float[np.ndarray, "m"],
    b: float = 0.0,
) -> Float[np.ndarray, "P"]:
    """E[(r − b) g], the gradient of the mean reward, where q[y] is the probability of
    answer y and g[y] the gradient of log q[y] by the P weights. (T-policy-gradient)

    ValueError unless q are positive numbers with the sum 1.

    >>> q = np.array([0.5, 0.3, 0.2])
    >>> policy_gradient(q, np.eye(3) - q, np.array([0, 1, 0])).round(2).tolist()
    [-0.15, 0.21, -0.06]
    """
    _expects_probabilities(q=q)
    return (q * (r - b)) @ g


# --- Less noise


@shaped
def advantages(r: Float[np.ndarray, "k"]) -> Float[np.ndarray, "k"]:
    """The reward of each answer minus the mean of the others. (T-baseline)

    ValueError for fewer than two rewards.

    >>> advantages(np.array([1.0, 0.0, 0.0])).tolist()
    [1.0, -0.5, -0.5]
    """
    k = len(r)
    expects(k >= 2, "r", f"{k} rewards", "at least 2")
    return r - (r.sum() - r) / (k - 1)


# --- Which questions count


@shaped
def question_weight(p: float, k: int, way: str = "others") -> float:
    """w(p): the step from k answers to a question is w(p) ∇p on average, if each is
    right with probability p. way: "others" (minus the mean of the others), "scaled"
    (minus the mean, over the standard deviation) or "right" (right answers only).
    (T-question-weight)

    ValueError unless 0 < p < 1 and k ≥ 2, and for another way.

    >>> question_weight(0.5, 2, "right")
    1.5
    """
    expects(0 < p < 1, "p", p, "a number between 0 and 1")
    expects(k >= 2, "k", k, "at least 2 answers")
    expects_one_of("way", way, ("others", "scaled", "right"))
    if way == "scaled":
        chance = [math.comb(k, m) * p**m * (1 - p) ** (k - m) for m in range(k + 1)]
        mean = sum(c * math.sqrt(m * (k - m)) for m, c in enumerate(chance))
        return mean / (k * p * (1 - p))
    return 1.0 if way == "others" else (1 - (1 - p) ** k) / p


# --- Near to what it was


@shaped
def tilted(
    p: Float[np.ndarray, "m"], r: Float[np.ndarray, "m"], beta: float
) -> Float[np.ndarray, "m"]:
    """p exp(r/β) / Z: of all q the one with the largest E[r] − β E[log(q/p)], both means
    under q. (T-tilt)

    ValueError unless p are positive numbers with the sum 1, and β > 0.

    >>> tilted(np.array([0.5, 0.5]), np.array([1.0, 0.0]), 1 / np.log(9)).round(6)
    array([0.9, 0.1])
    """
    _expects_probabilities(p=p)
    expects(beta > 0, "beta", beta, "a positive number")
    weight = p * np.exp((r - r.max()) / beta)  # the factor exp(−max r/β) cancels
    return weight / weight.sum()


# --- The best of many


@shaped
def best_of(
    p: Float[np.ndarray, "m"], r: Float[np.ndarray, "m"], k: int
) -> Float[np.ndarray, "m"]:
    """The probabilities of the answers as the best of k draws from p, of equal rewards
    the first drawn. (T-best-of)

    ValueError unless p are positive numbers with the sum 1, and k ≥ 1.

    >>> best_of(np.array([0.5, 0.5]), np.array([1.0, 0.0]), 2).tolist()
    [0.75, 0.25]
    """
    _expects_probabilities(p=p)
    expects_positive(k=k)
    most = np.array([p[r <= one].sum() for one in r])
    less = np.array([p[r < one].sum() for one in r])
    return p * (most**k - less**k) / (most - less)


# --- Who gives the rewards?


@shaped
def preference_loss(
    q: Float[np.ndarray, "m"], p: Float[np.ndarray, "m"], y: int, z: int, beta: float
) -> float:
    """−log σ(β log(q[y]/p[y]) − β log(q[z]/p[z])), where answer y was preferred to z.
    (T-preference)

    ValueError unless q and p are positive numbers with the sum 1, and β > 0;
    IndexError unless y and z are two of the answers.

    >>> q = np.array([0.8, 0.2])
    >>> round(preference_loss(q, np.array([0.5, 0.5]), 0, 1, 1.0), 4)  # log(1 + 1/4)
    0.2231
    """
    _expects_probabilities(q=q, p=p)
    expects(beta > 0, "beta", beta, "a positive number")
    m = len(q)
    for name, answer in (("y", y), ("z", z)):
        expects(0 <= answer < m, name, answer, f"from 0 to {m - 1}", IndexError)
    gain = np.log(q / p)
    return float(np.logaddexp(0, -beta * (gain[y] - gain[z])))

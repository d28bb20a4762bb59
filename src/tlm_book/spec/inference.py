"""Using the model: one token after another. Generated from book/inference.ipynb: edit the notebook, then `make export`."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, SupportsIndex

import numpy as np
from jaxtyping import Float, Int

from tlm_book.checks import expects, expects_positive, expects_tokens, shaped
from tlm_book.spec.operators import softmax

Model = Callable[[Int[np.ndarray, "n"]], Float[np.ndarray, "n V"]]

__all__ = [
    "Model",
    "tempered",
    "next_distribution",
    "greedy",
    "quantile",
    "sample",
    "keep",
    "top_k",
    "top_p",
    "min_p",
    "penalized",
    "chosen",
    "sample_chosen",
    "Hypothesis",
    "beam_search",
]


# --- Temperature


@shaped
def tempered(
    z: Float[np.ndarray, "V"], temperature: float
) -> Float[np.ndarray, "V"]:
    """p_τ = softmax(z / τ). ValueError unless τ > 0. (T-temper)"""
    wants = "a number > 0; greedy decoding is the limit 0"
    expects(temperature > 0, "temperature", temperature, wants)
    return softmax((z - z.max())[None] / temperature)[0]


@shaped
def next_distribution(
    T: Model,
    x: Int[np.ndarray, "n"],
    temperature: float = 1.0,
    start: int | None = 0,
) -> Float[np.ndarray, "V"]:
    """P(· | x): the last row of T((start, x_0, …, x_{n−1})), or of T(x) for a model
    without start marker (None), through softmax at the temperature. (T-next-token)

    ValueError if there is nothing to read; errors of T for more rows than M.
    """
    return tempered(T(_read(x, start))[-1], temperature)


def _read(x: Int[np.ndarray, "n"], start: int | None) -> Int[np.ndarray, "m"]:
    nothing = start is None and len(x) == 0
    expects(not nothing, "x", "no tokens", "at least 1, or a start marker")
    return (x if start is None else np.append(start, x)).astype(int)


# --- Choosing


@shaped
def greedy(
    T: Model,
    x: Int[np.ndarray, "n"],
    n_new: int,
    start: int | None = 0,
    stop: Sequence[int] = (),
) -> Int[np.ndarray, "m"]:
    """x continued by at most n_new tokens, each the likeliest given all before it; of
    equals the one with the smallest number. (T-greedy)

    A new token in `stop` is the last one. ValueError for n_new below 0.
    """
    expects(n_new >= 0, "n_new", n_new, "a number ≥ 0")
    new: list[int] = []
    while len(new) < n_new and not set(new[-1:]) & set(stop):
        p = next_distribution(T, np.append(x, new).astype(int), start=start)
        new.append(int(np.argmax(p)))
    return np.append(x, new).astype(int)


@shaped
def quantile(p: Float[np.ndarray, "V"], u: float) -> int:
    """The smallest j with u < p_0 + … + p_j, for 0 ≤ u < 1: token j for a share p_j
    of all u. (T-quantile) ValueError for other u.

    >>> [quantile(np.array([0.5, 0.0, 0.5]), u) for u in (0.0, 0.4, 0.5, 0.9)]
    [0, 0, 2, 2]
    """
    expects(0 <= u < 1, "u", u, "0 ≤ u < 1")
    F = np.cumsum(p)
    return int(np.sum(F / F[-1] <= u))


@shaped
def sample(
    T: Model,
    x: Int[np.ndarray, "n"],
    u: Sequence[float],
    temperature: float = 1.0,
    start: int | None = 0,
) -> Int[np.ndarray, "m"]:
    """x continued by one token for each number in u, drawn by `quantile` from the
    distribution given all before it. (T-sampling)
    """
    x = x.astype(int)
    for u_k in u:
        x = np.append(x, quantile(next_distribution(T, x, temperature, start), u_k))
    return x


# --- Cutting the tail: top-k, top-p (nucleus), min-p


@shaped
def keep(
    p: Float[np.ndarray, "V"], kept: Iterable[SupportsIndex]
) -> Float[np.ndarray, "V"]:
    """p with zeros for all tokens outside `kept`, divided by its sum.

    ValueError if nothing is left.
    """
    cut = np.where(np.isin(np.arange(len(p)), [int(j) for j in kept]), p, 0.0)
    expects(cut.sum() > 0, "kept", "no token with p > 0", "at least one")
    return cut / cut.sum()


@shaped
def top_k(p: Float[np.ndarray, "V"], k: int) -> Float[np.ndarray, "V"]:
    """p cut to the k likeliest tokens; of equals the smaller number first.
    (T-top-k-top-p)

    ValueError for k below 1.
    """
    expects_positive(k=k)
    return keep(p, np.argsort(-p, kind="stable")[:k])


@shaped
def top_p(p: Float[np.ndarray, "V"], s: float) -> Float[np.ndarray, "V"]:
    """p cut to the fewest likeliest tokens whose probabilities sum to s or more.
    (T-top-k-top-p) ValueError unless 0 < s ≤ 1.
    """
    expects(0 < s <= 1, "s", s, "0 < s ≤ 1")
    kept, mass = [], 0.0
    for j in np.argsort(-p, kind="stable"):
        if mass < s:
            kept.append(j)
        mass += p[j]
    return keep(p, kept)


@shaped
def min_p(p: Float[np.ndarray, "V"], m: float) -> Float[np.ndarray, "V"]:
    """p cut to the tokens at least m times as likely as the likeliest. (T-min-p)

    ValueError unless 0 ≤ m ≤ 1.
    """
    expects(0 <= m <= 1, "m", m, "0 ≤ m ≤ 1")
    return keep(p, np.flatnonzero(p >= m * p.max()))


@shaped
def penalized(
    z: Float[np.ndarray, "V"], x: Int[np.ndarray, "n"], penalty: float
) -> Float[np.ndarray, "V"]:
    """z with z_j / θ or θ z_j, whichever is lower for θ > 1, for each token j of the
    text x. (T-repetition-penalty)

    `penalty` is θ; ValueError unless θ > 0, IndexError for a token outside the
    vocabulary.
    """
    expects(penalty > 0, "penalty", penalty, "a number > 0")
    expects_tokens("x", x, len(z))
    z = z.copy()
    for j in set(x.tolist()):
        z[j] = z[j] / penalty if z[j] > 0 else z[j] * penalty
    return z


@shaped
def chosen(
    z: Float[np.ndarray, "V"],
    x: Int[np.ndarray, "n"],
    temperature: float = 1.0,
    *,
    k: int | None = None,
    s: float = 1.0,
    m: float = 0.0,
    penalty: float = 1.0,
) -> Float[np.ndarray, "V"]:
    """The distribution from which the token after x is drawn. (T-choices)"""
    p = tempered(penalized(z, x, penalty), temperature)
    return min_p(top_p(top_k(p, len(p) if k is None else k), s), m)


@shaped
def sample_chosen(
    T: Model,
    x: Int[np.ndarray, "n"],
    u: Sequence[float],
    start: int | None,
    **choices: Any,
) -> Int[np.ndarray, "m"]:
    """`sample`, with the choices of `chosen`. ValueError if there is nothing to read."""
    x = x.astype(int)
    for u_k in u:
        z = T(_read(x, start))[-1]
        x = np.append(x, quantile(chosen(z, x, **choices), u_k))
    return x


# --- Several beginnings at once


class Hypothesis(NamedTuple):
    """A continuation, the logarithm of its probability, and its value."""

    tokens: tuple[int, ...]
    log_p: float
    value: float


@shaped
def beam_search(
    T: Model,
    x: Int[np.ndarray, "n"],
    n_new: int,
    width: int,
    stop: Sequence[int] = (),
    length_penalty: float = 0.0,
    start: int | None = 0,
) -> list[Hypothesis]:
    """At most `width` continuations of x, the best first; `length_penalty` is α.
    (T-beam-text)

    ValueError for n_new or a width below 1, and for α < 0.
    """
    expects_positive(n_new=n_new, width=width)
    expects(length_penalty >= 0, "length_penalty", length_penalty, "a number ≥ 0")

    def over(y: Hypothesis) -> bool:
        return len(y.tokens) > 0 and y.tokens[-1] in stop

    beam = [Hypothesis((), 0.0, 0.0)]
    for step in range(n_new):
        found = []
        for y in beam:
            if over(y):
                found.append(y)
                continue
            p = next_distribution(T, np.append(x, y.tokens).astype(int), start=start)
            for j, log_p in enumerate(y.log_p + np.log(p)):
                value = log_p / (step + 1) ** length_penalty
                found.append(Hypothesis((*y.tokens, j), float(log_p), float(value)))
        beam = sorted(found, key=lambda y: y.value, reverse=True)[:width]
        bounds = [y.log_p / n_new**length_penalty for y in beam if not over(y)]
        if over(beam[0]) and all(beam[0].value >= bound for bound in bounds):
            break
    return beam

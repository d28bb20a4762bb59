"""Using the model: one token after another. Generated from book/inference.ipynb: edit the notebook, then `make export`."""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float, Int

from tlm_book.checks import expects
from tlm_book.spec.operators import softmax

Model = Callable[[Int[np.ndarray, "n"]], Float[np.ndarray, "n V"]]

__all__ = [
    "Model",
    "tempered",
    "next_distribution",
    "greedy",
    "quantile",
    "sample",
]


# inference: Temperature
def tempered(
    z: Float[np.ndarray, "V"], temperature: float
) -> Float[np.ndarray, "V"]:
    """p_τ = softmax(z / τ); ValueError unless τ > 0. (T-temper)

    Chapter: inference.
    """
    expects(
        temperature > 0,
        "temperature",
        temperature,
        "a number > 0; greedy decoding is the limit 0",
    )
    return softmax(z[None] / temperature)[0]


def next_distribution(
    T: Model, x: Int[np.ndarray, "n"], temperature: float = 1.0, start: int = 0
) -> Float[np.ndarray, "V"]:
    """P(· | x): the last row of T((start, x_0, …, x_{n−1})), divided by the temperature, through softmax. (T-next-token)

    Chapter: inference.
    """
    return tempered(T(np.concatenate(([start], x)).astype(int))[-1], temperature)


# inference: Choosing
def greedy(
    T: Model, x: Int[np.ndarray, "n"], n_new: int, start: int = 0
) -> Int[np.ndarray, "m"]:
    """x continued by n_new tokens, each the likeliest given all before it; of equals the one with the smallest number. (T-greedy)

    Chapter: inference.
    """
    expects(n_new >= 0, "n_new", n_new, "a number ≥ 0")
    x = x.astype(int)
    for _ in range(n_new):
        x = np.append(x, np.argmax(next_distribution(T, x, start=start)))
    return x


# inference: Choosing
def quantile(p: Float[np.ndarray, "V"], u: float) -> int:
    """The smallest j with u < p_0 + … + p_j, for 0 ≤ u < 1: token j for a share p_j of all u. (T-quantile)

    >>> [quantile(np.array([0.5, 0.0, 0.5]), u) for u in (0.0, 0.4, 0.5, 0.9)]
    [0, 0, 2, 2]

    Chapter: inference.
    """
    expects(0 <= u < 1, "u", u, "0 ≤ u < 1")
    F = np.cumsum(p)
    return int(np.sum(F / F[-1] <= u))


def sample(
    T: Model,
    x: Int[np.ndarray, "n"],
    u: Sequence[float],
    temperature: float = 1.0,
    start: int = 0,
) -> Int[np.ndarray, "m"]:
    """x continued by one token for each number in u, drawn by `quantile` from the distribution given all before it. (T-sampling)

    Chapter: inference.
    """
    x = x.astype(int)
    for u_k in u:
        x = np.append(x, quantile(next_distribution(T, x, temperature, start), u_k))
    return x

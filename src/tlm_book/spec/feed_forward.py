"""The feed-forward layer. Generated from book/feed_forward.ipynb: edit the notebook, then `make export`."""

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float, Real

from tlm_book.checks import expects_one_of, shaped

Entries: TypeAlias = Real[np.ndarray, "..."] | float  # an array, or one number

__all__ = [
    "Entries",
    "relu",
    "gelu",
    "gelu_tanh",
    "silu",
    "FORMULAS",
    "feed_forward",
]


# --- The bend


def relu(x: Entries) -> Entries:
    """max(x, 0), entry by entry. (T-relu)

    >>> relu(np.array([-2.0, 0.0, 3.0]))
    array([0., 0., 3.])
    """
    return np.maximum(x, 0)


def gelu(x: Entries) -> Entries:
    """x Φ(x), Φ(x) the chance that a standard normal number is ≤ x. (T-gelu)"""
    return x * (1 + np.vectorize(math.erf, otypes=[float])(x / math.sqrt(2))) / 2


def gelu_tanh(x: Entries) -> Entries:
    """GPT-2's approximation of GELU: x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2."""
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


def silu(x: Entries) -> Entries:
    """x / (1 + exp(−x)), entry by entry; also called swish. (T-silu)"""
    return x / (1 + np.exp(-x))


FORMULAS: dict[str, Callable[[Any], Any]] = {
    "relu": relu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "silu": silu,
}


# --- The feed-forward layer of a transformer


@shaped
def feed_forward(
    X: Float[np.ndarray, "n d"],
    A: Float[np.ndarray, "d f"],
    k: Float[np.ndarray, "f"],
    B: Float[np.ndarray, "f d"],
    l: Float[np.ndarray, "d"],
    activation: str = "relu",
) -> Float[np.ndarray, "n d"]:
    """FF(X) = activation(XA + 1k) B + 1l; the article normalizes X first. (W-ff-def)

    ValueError for weights whose shapes do not fit, and for an activation that is not
    one of "relu", "gelu", "gelu_tanh", "silu".
    """
    expects_one_of("activation", activation, tuple(FORMULAS))
    return FORMULAS[activation](X @ A + k) @ B + l

"""The feed-forward layer. Generated from book/feed_forward.ipynb: edit the notebook, then `make export`."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Bool, Float

from tlm_book.checks import expects, expects_one_of, expects_positive, shaped
from tlm_book.spec.operators import softmax

Entries: TypeAlias = Float[np.ndarray, "..."] | float  # an array, or one number

__all__ = [
    "Entries",
    "relu",
    "gelu",
    "gelu_tanh",
    "silu",
    "FORMULAS",
    "feed_forward",
    "GATE_FORMULAS",
    "gated_feed_forward",
    "chosen_experts",
    "expert_weights",
    "mixture_of_experts",
    "load_balancing_loss",
]


# --- The activation


@shaped
def relu(x: Entries) -> Entries:
    """max(x, 0), entry by entry. (T-relu)

    >>> relu(np.array([-2.0, 0.0, 3.0]))
    array([0., 0., 3.])
    """
    return np.maximum(x, 0)


@shaped
def gelu(x: Entries) -> Entries:
    """x Φ(x), with Φ(x) the chance that a standard normal number is ≤ x. (T-gelu)"""
    return x * (1 + np.vectorize(math.erf, otypes=[float])(x / math.sqrt(2))) / 2


@shaped
def gelu_tanh(x: Entries) -> Entries:
    """GPT-2's approximation of GELU: x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2."""
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


@shaped
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
    W_1: Float[np.ndarray, "d f"],
    b_1: Float[np.ndarray, "f"],
    W_2: Float[np.ndarray, "f d"],
    b_2: Float[np.ndarray, "d"],
    activation: str = "relu",
) -> Float[np.ndarray, "n d"]:
    """FF(X) = φ(XW_1 + 1b_1) W_2 + 1b_2 with φ = `activation`. (W-ff-def)

    ValueError for weights whose shapes do not fit, and for an activation that is not
    one of "relu", "gelu", "gelu_tanh", "silu".
    """
    expects_one_of("activation", activation, tuple(FORMULAS))
    return FORMULAS[activation](X @ W_1 + b_1) @ W_2 + b_2


# --- Gated layers


GATE_FORMULAS: dict[str, Callable[[Any], Any]] = FORMULAS | {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "identity": lambda x: x,
}


@shaped
def gated_feed_forward(
    X: Float[np.ndarray, "n d"],
    W_G: Float[np.ndarray, "d f"],
    W_1: Float[np.ndarray, "d f"],
    W_2: Float[np.ndarray, "f d"],
    activation: str = "silu",
    b_G: Float[np.ndarray, "f"] | None = None,
    b_1: Float[np.ndarray, "f"] | None = None,
    b_2: Float[np.ndarray, "d"] | None = None,
) -> Float[np.ndarray, "n d"]:
    """(φ(XW_G) ⊙ XW_1) W_2 with φ = `activation`, plus biases if they are given.
    (T-gated-ff)

    ValueError for weights whose shapes do not fit, and for an activation that is not
    a key of GATE_FORMULAS.
    """
    expects_one_of("activation", activation, tuple(GATE_FORMULAS))
    c_G, c_1, c_2 = (0.0 if b is None else b for b in (b_G, b_1, b_2))
    return (GATE_FORMULAS[activation](X @ W_G + c_G) * (X @ W_1 + c_1)) @ W_2 + c_2


# --- A mixture of experts


@shaped
def chosen_experts(R: Float[np.ndarray, "n E"], k: int) -> Bool[np.ndarray, "n E"]:
    """True at the k largest entries of each row of R; of equal ones, at the first.
    (T-moe-def)

    ValueError unless 1 ≤ k ≤ E.

    >>> chosen_experts(np.array([[0.0, 3.0, 1.0, 3.0]]), 2)
    array([[False,  True, False,  True]])
    """
    expects_positive(k=k)
    expects(k <= R.shape[1], "k", k, f"at most {R.shape[1]}, the number of experts")
    ranks = np.argsort(np.argsort(-R, axis=1, kind="stable"), axis=1)
    return ranks < k


@shaped
def expert_weights(R: Float[np.ndarray, "n E"], k: int) -> Float[np.ndarray, "n E"]:
    """Each row of R: the softmax over its k largest entries, 0 elsewhere.
    (T-moe-def)

    >>> expert_weights(np.log([[9.0, 3.0, 1.0, 2.0]]), 2).round(2)
    array([[0.75, 0.25, 0.  , 0.  ]])
    """
    return softmax(np.where(chosen_experts(R, k), R, -np.inf))


@shaped
def mixture_of_experts(
    X: Float[np.ndarray, "n d"],
    W_R: Float[np.ndarray, "d E"],
    experts: Sequence[Mapping[str, np.ndarray]],
    k: int,
    activation: str = "silu",
) -> Float[np.ndarray, "n d"]:
    """Σ_e G[:, e] ⊙ FF_e(X) with the weights G = expert_weights(XW_R, k) and gated
    layers FF_e. (T-moe-def)

    `experts` holds W_G, W_1, W_2 of each. ValueError unless W_R has a column for
    each expert and 1 ≤ k ≤ E, and for an activation that is not a key of GATE_FORMULAS.
    """
    n_experts = W_R.shape[1]
    fits = len(experts) == n_experts
    expects(fits, "experts", f"{len(experts)}", f"{n_experts}, as W_R has columns")
    G = expert_weights(X @ W_R, k)
    results = [gated_feed_forward(X, **w, activation=activation) for w in experts]
    return sum(g[:, None] * Y for g, Y in zip(G.T, results))


@shaped
def load_balancing_loss(R: Float[np.ndarray, "n E"], k: int = 1) -> float:
    """E Σ_e f_e P_e: f_e is the share of the n·k choices that fall on expert e, P_e the
    mean over the rows of softmax(R)[:, e]. (T-load-balancing)

    ValueError for no rows, and unless 1 ≤ k ≤ E.
    """
    expects(len(R) > 0, "R", "no rows", "at least one")
    f = chosen_experts(R, k).mean(axis=0) / k
    P = softmax(R).mean(axis=0)
    return float(len(f) * f @ P)

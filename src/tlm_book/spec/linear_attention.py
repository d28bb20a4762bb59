"""Linear attention. Generated from book/linear_attention.ipynb: edit the notebook, then `make export`."""

import numpy as np
from jaxtyping import Float

from tlm_book.checks import expects, expects_one_of, expects_shape, shaped
from tlm_book.spec.feed_forward import GATE_FORMULAS
from tlm_book.spec.normalization import rms_norm

RULES = ("sum", "delta")


def _expects_decays(
    alpha: Float[np.ndarray, "n"], beta: Float[np.ndarray, "m"]
) -> None:
    fits = bool(((alpha >= 0) & (alpha <= 1)).all())
    expects(fits, "alpha", alpha.tolist(), "numbers in [0, 1]")
    fits = bool((beta >= 0).all())
    expects(fits, "beta", beta.tolist(), "numbers ≥ 0")

__all__ = [
    "RULES",
    "state_step",
    "linear_attention",
    "decay_mask",
    "with_matrices",
    "linear_attention_layer",
]


# --- The same sum in another order


@shaped
def state_step(
    S: Float[np.ndarray, "k v"],
    q: Float[np.ndarray, "k"],
    k: Float[np.ndarray, "k"],
    v: Float[np.ndarray, "v"],
    alpha: float,
    beta: float,
    rule: str = "delta",
) -> tuple[Float[np.ndarray, "k v"], Float[np.ndarray, "v"]]:
    """(αS + kᵀu, q(αS + kᵀu)), the next state and the row that is read from it, with
    u = βv by the "sum" rule and u = β(v − αkS) by the "delta" rule. (T-linear-state)

    ValueError for a decay α outside [0, 1], a strength β < 0 and another rule.

    >>> S, _ = state_step(np.zeros((1, 1)), np.ones(1), np.ones(1), np.ones(1), 1.0, 0.5)
    >>> state_step(S, np.ones(1), np.ones(1), np.ones(1), 1.0, 0.5)[1]
    array([0.75])
    """
    _expects_decays(np.array([alpha]), np.array([beta]))
    expects_one_of("rule", rule, RULES)
    S = alpha * S
    u = beta * (v - k @ S if rule == "delta" else v)
    S = S + np.outer(k, u)
    return S, q @ S


@shaped
def linear_attention(
    Q: Float[np.ndarray, "n k"],
    K: Float[np.ndarray, "n k"],
    V: Float[np.ndarray, "n v"],
    alpha: Float[np.ndarray, "n"],
    beta: Float[np.ndarray, "n"],
    rule: str = "delta",
) -> Float[np.ndarray, "n v"]:
    """The rows y_0, …, y_{n−1}, from the state 0, step by step. (T-linear-state)

    ValueError as in `state_step`.
    """
    S, Y = np.zeros((K.shape[1], V.shape[1])), []
    for row in zip(Q, K, V, alpha.tolist(), beta.tolist()):
        S, y = state_step(S, *row, rule)
        Y.append(y)
    return np.array(Y).reshape(V.shape)


@shaped
def decay_mask(alpha: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n n"]:
    """G: α_{j+1}⋯α_i in row i and column j ≤ i, 0 above the diagonal. (T-linear-forms)

    ValueError for a decay outside [0, 1].

    >>> decay_mask(np.array([0.5, 0.5, 0.1])).tolist()
    [[1.0, 0.0, 0.0], [0.5, 1.0, 0.0], [0.05, 0.1, 1.0]]
    """
    _expects_decays(alpha, np.zeros(0))
    G = np.eye(len(alpha))
    for i in range(1, len(alpha)):
        G[i, :i] = alpha[i] * G[i - 1, :i]
    return G


@shaped
def with_matrices(
    Q: Float[np.ndarray, "n k"],
    K: Float[np.ndarray, "n k"],
    V: Float[np.ndarray, "n v"],
    alpha: Float[np.ndarray, "n"],
    beta: Float[np.ndarray, "n"],
    rule: str = "delta",
) -> Float[np.ndarray, "n v"]:
    """(G ⊙ QKᵀ) U: the rows of `linear_attention`, all at once. (T-linear-forms)

    ValueError as in `state_step`.
    """
    _expects_decays(alpha, beta)
    expects_one_of("rule", rule, RULES)
    G, DV = decay_mask(alpha), beta[:, None] * V
    if rule == "sum":
        return (G * (Q @ K.T)) @ DV
    DT = beta[:, None] * np.tril(G * (K @ K.T), -1)
    return (G * (Q @ K.T)) @ np.linalg.solve(np.eye(len(V)) + DT, DV)


# --- The layer


@shaped
def linear_attention_layer(
    X: Float[np.ndarray, "n d"],
    W_Q: Float[np.ndarray, "h d k"],
    W_K: Float[np.ndarray, "h d k"],
    W_V: Float[np.ndarray, "h d v"],
    W_alpha: Float[np.ndarray, "d h"],
    b_alpha: Float[np.ndarray, "h"],
    W_beta: Float[np.ndarray, "d h"],
    b_beta: Float[np.ndarray, "h"],
    gain: Float[np.ndarray, "v"],
    W_O: Float[np.ndarray, "hv d"],
    *,
    rule: str = "delta",
    max_strength: float = 1.0,
    eps: float = 1e-6,
) -> Float[np.ndarray, "n d"]:
    """[N(Y_0), …, N(Y_{h−1})] W_O with Y_i = linear_attention(Q_i, K_i, XW_V[i], α, β).

    Q_i and K_i are XW_Q[i] and XW_K[i], each row divided by its length; α and β are
    column i of σ(XW_alpha + b_alpha) and of max_strength·σ(XW_beta + b_beta); N is RMS
    norm. (T-linear-state) ValueError for shapes that do not fit and for another rule.
    """
    expects_shape("W_O", W_O, (W_V.shape[0] * W_V.shape[2], "d"))
    sigma = GATE_FORMULAS["sigmoid"]
    alpha = sigma(X @ W_alpha + b_alpha)
    beta = max_strength * sigma(X @ W_beta + b_beta)
    heads = zip(W_Q, W_K, W_V, alpha.T, beta.T)
    Y = [
        linear_attention(_unit(X @ q), _unit(X @ k), X @ v, a, b, rule)
        for q, k, v, a, b in heads
    ]
    return np.concatenate([rms_norm(y, gain, eps) for y in Y], axis=1) @ W_O


def _unit(R: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
    """Each row divided by its length; rows of zeros remain."""
    return R / np.maximum(np.linalg.norm(R, axis=1, keepdims=True), 1e-12)

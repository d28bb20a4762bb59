"""Several heads at once: multi-head attention. Generated from book/multi_head.ipynb: edit the notebook, then `make export`."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from tlm_book.checks import expects, expects_positive, expects_shape, shaped
from tlm_book.spec.attention import attention
from tlm_book.spec.operators import softmax

__all__ = [
    "heads",
    "multi_head",
    "multi_head_attention",
    "window_mask",
    "unit_rows",
]


# --- Definition


@shaped
def heads(
    X: Float[np.ndarray, "n d"],
    W_Q: Float[np.ndarray, "h d k"],
    W_K: Float[np.ndarray, "g d k"],
    W_V: Float[np.ndarray, "g d v"],
    b_Q: Float[np.ndarray, "h k"] | None = None,
    b_K: Float[np.ndarray, "g k"] | None = None,
    b_V: Float[np.ndarray, "g v"] | None = None,
    causal: bool = True,
    scale: float | None = None,
    *,
    window: int | None = None,
    qk_gain: Float[np.ndarray, "2 k"] | None = None,
    qk_eps: float = 1e-6,
    rotate: Callable[[Float[np.ndarray, "n k"]], Float[np.ndarray, "n k"]]
    | None = None,
) -> list[Float[np.ndarray, "n v"]]:
    """H_i(X) = softmax(◺(Q_i K_jᵀ/√d_k)) V_j with Q_i = XW_Q[i], K_j = XW_K[j],
    V_j = XW_V[j], plus biases where given, and j = i // (h/g), which is i for g = h.

    The list [H_0(X), …, H_{h−1}(X)]. `scale` replaces 1/√d_k; without `causal`
    there is no ◺; with a `window`, row i sees rows i − window + 1, …, i. Queries and
    keys are normalized with the gains `qk_gain`, then rotated by `rotate`, if these
    are given. (W-head-def, T-grouped-query, T-sliding-window, T-qk-norm)
    ValueError for shapes that do not fit.
    """
    h, g = len(W_Q), len(W_K)
    expects(g >= 1 and h % g == 0, "W_K", f"{g} heads", f"a divisor of {h}")
    expects(causal or window is None, "window", window, "None without the mask")
    pairs = ((W_Q, b_Q), (W_K, b_K), (W_V, b_V))
    Q, K, V = (X @ W + (0 if b is None else b[:, None]) for W, b in pairs)
    if qk_gain is not None:
        Q, K = (unit_rows(R, a, qk_eps) for R, a in zip((Q, K), qk_gain))
    if rotate is not None:
        Q, K = (np.stack([rotate(rows) for rows in R]) for R in (Q, K))
    j = [i // (h // g) for i in range(h)]
    if window is None:
        return [attention(Q[i], K[j[i]], V[j[i]], causal, scale) for i in range(h)]
    c = 1 / math.sqrt(Q.shape[2]) if scale is None else scale
    S = [window_mask(c * (Q[i] @ K[j[i]].T), window) for i in range(h)]
    return [softmax(S[i]) @ V[j[i]] for i in range(h)]


@shaped
def multi_head(
    X: Float[np.ndarray, "n d"],
    W_Q: Float[np.ndarray, "h d k"],
    W_K: Float[np.ndarray, "g d k"],
    W_V: Float[np.ndarray, "g d v"],
    W_O: Float[np.ndarray, "hv d"],
    b_O: Float[np.ndarray, "d"],
    **settings: Any,
) -> Float[np.ndarray, "n d"]:
    """CA(X) = [H_0(X), …, H_{h−1}(X)] W_O + 1b_O, with the heads of `heads`; biases,
    mask, scale and all other settings have the names they have there. (W-mh-def)

    ValueError if W_O does not have as many rows as the heads together have columns.
    """
    H = np.concatenate(heads(X, W_Q, W_K, W_V, **settings), axis=1)
    expects_shape("W_O", W_O, (H.shape[1], "d"))
    return H @ W_O + b_O


# --- Three matrices instead of one


@shaped
def multi_head_attention(
    Q: Float[np.ndarray, "n d"],
    K: Float[np.ndarray, "m d"],
    V: Float[np.ndarray, "m d"],
    W_Q: Float[np.ndarray, "h d k"],
    W_K: Float[np.ndarray, "h d k"],
    W_V: Float[np.ndarray, "h d v"],
    W_O: Float[np.ndarray, "hv o"],
    b_Q: Float[np.ndarray, "h k"] | None = None,
    b_K: Float[np.ndarray, "h k"] | None = None,
    b_V: Float[np.ndarray, "h v"] | None = None,
    b_O: Float[np.ndarray, "o"] | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Float[np.ndarray, "n o"]:
    """[head_0, …, head_{h−1}] W_O with head_i = softmax(Q W_Q[i] (K W_K[i])ᵀ / √k) V
    W_V[i]. (A-def-4.2, M-multihead)

    Biases are added if they are given. `scale` replaces 1/√k; with `causal` each
    head has the mask ◺. ValueError for shapes that do not fit.
    """
    rows = []
    for M, W, b in ((Q, W_Q, b_Q), (K, W_K, b_K), (V, W_V, b_V)):
        rows.append(M @ W + (0 if b is None else b[:, None]))  # (h, rows, width)
    H = np.concatenate(
        [attention(q, k, v, causal, scale) for q, k, v in zip(*rows)], axis=1
    )
    expects_shape("W_O", W_O, (H.shape[1], "o"))
    return H @ W_O + (0 if b_O is None else b_O)


# --- A window


@shaped
def window_mask(
    S: Float[np.ndarray, "n m"], window: int
) -> Float[np.ndarray, "n m"]:
    """◺_w S: −∞ in place of entry (i, j) unless i − window < j ≤ i.
    (T-sliding-window)

    ValueError for a window below 1.

    >>> window_mask(np.zeros((3, 3)), 2)
    array([[  0., -inf, -inf],
           [  0.,   0., -inf],
           [-inf,   0.,   0.]])
    """
    expects_positive(window=window)
    i, j = np.indices(S.shape)
    return np.where((i - window < j) & (j <= i), S, -np.inf)


# --- Scores that stay bounded


@shaped
def unit_rows(
    X: Float[np.ndarray, "... k"], gain: Float[np.ndarray, "k"], eps: float = 1e-6
) -> Float[np.ndarray, "... k"]:
    """gain ⊙ X / √(mean(X²) + ε), row by row. (T-qk-norm)"""
    return gain * X / np.sqrt((X**2).mean(axis=-1, keepdims=True) + eps)

"""Several heads at once: multi-head attention. Generated from book/multi_head.ipynb: edit the notebook, then `make export`."""

import numpy as np
from jaxtyping import Float

from tlm_book.checks import expects_shape, shaped
from tlm_book.spec.attention import attention

__all__ = [
    "heads",
    "multi_head",
    "multi_head_attention",
]


# --- Definition


@shaped
def heads(
    X: Float[np.ndarray, "n d"],
    W_Q: Float[np.ndarray, "h d k"],
    W_K: Float[np.ndarray, "h d k"],
    W_V: Float[np.ndarray, "h d v"],
    b_Q: Float[np.ndarray, "h k"] | None = None,
    b_K: Float[np.ndarray, "h k"] | None = None,
    b_V: Float[np.ndarray, "h v"] | None = None,
    causal: bool = True,
    scale: float | None = None,
) -> list[Float[np.ndarray, "n v"]]:
    """H_i(X) = softmax(◺(Q_i K_iᵀ/√d_head)) V_i with Q_i = XW_Q[i], K_i = XW_K[i],
    V_i = XW_V[i], plus biases where given.

    The list [H_0(X), …, H_{h−1}(X)]. `scale` replaces 1/√d_head; without `causal`
    there is no ◺. (W-head-def) ValueError for shapes that do not fit.
    """
    pairs = ((b_Q, W_Q), (b_K, W_K), (b_V, W_V))
    b_Q, b_K, b_V = (
        np.zeros((len(W), W.shape[2])) if b is None else b for b, W in pairs
    )
    return [
        attention(
            X @ W_Q[i] + b_Q[i],
            X @ W_K[i] + b_K[i],
            X @ W_V[i] + b_V[i],
            causal,
            scale,
        )
        for i in range(len(W_Q))
    ]


@shaped
def multi_head(
    X: Float[np.ndarray, "n d"],
    W_Q: Float[np.ndarray, "h d k"],
    W_K: Float[np.ndarray, "h d k"],
    W_V: Float[np.ndarray, "h d v"],
    W_O: Float[np.ndarray, "hv d"],
    b_O: Float[np.ndarray, "d"],
    b_Q: Float[np.ndarray, "h k"] | None = None,
    b_K: Float[np.ndarray, "h k"] | None = None,
    b_V: Float[np.ndarray, "h v"] | None = None,
    causal: bool = True,
    scale: float | None = None,
) -> Float[np.ndarray, "n d"]:
    """CA(X) = [H_0(X), …, H_{h−1}(X)] W_O + 1b_O, with the heads of `heads`.
    (W-mh-def)

    ValueError when W_O has not as many rows as the heads together have columns.
    """
    H = np.concatenate(heads(X, W_Q, W_K, W_V, b_Q, b_K, b_V, causal, scale), axis=1)
    expects_shape("W_O", W_O, (H.shape[1], "d"))
    return H @ W_O + b_O


# --- Three matrices instead of one


@shaped
def multi_head_attention(
    Q: Float[np.ndarray, "m d"],
    K: Float[np.ndarray, "n d"],
    V: Float[np.ndarray, "n d"],
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
) -> Float[np.ndarray, "m o"]:
    """[head_0, …, head_{h−1}] W_O with head_i = softmax(Q W_Q[i] (K W_K[i])ᵀ / √k) V
    W_V[i]. (A-def-4.2, M-multihead)

    Biases are added where they are given. `scale` replaces 1/√k; with `causal` each
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

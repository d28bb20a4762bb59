"""Attention with one head. Generated from book/attention.ipynb: edit the notebook, then `make export`."""

import math

import numpy as np
from jaxtyping import Float

from tlm_book.checks import expects, shaped
from tlm_book.spec.operators import masked_softmax, softmax

__all__ = [
    "attention_pattern",
    "attention",
    "causal_attention",
]


# --- Definition


@shaped
def attention_pattern(
    Q: Float[np.ndarray, "n k"],
    K: Float[np.ndarray, "m k"],
    causal: bool = True,
    scale: float | None = None,
) -> Float[np.ndarray, "n m"]:
    """softmax(◺(c QKᵀ)) row by row, with c = 1/√k unless `scale` is given, and without
    ◺ unless `causal`.

    ValueError if the widths of Q and K differ, or if there is no key.

    >>> attention_pattern(np.zeros((2, 1)), np.ones((2, 1))).tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    expects(len(K) >= 1, "K", "0 rows", "at least one key")
    c = 1 / math.sqrt(Q.shape[1]) if scale is None else scale
    S = c * (Q @ K.T)
    return masked_softmax(S) if causal else softmax(S)


@shaped
def attention(
    Q: Float[np.ndarray, "n k"],
    K: Float[np.ndarray, "m k"],
    V: Float[np.ndarray, "m v"],
    causal: bool = True,
    scale: float | None = None,
) -> Float[np.ndarray, "n v"]:
    """Each row of the result is an average of the rows of V, weighted by
    `attention_pattern(Q, K)`. (A-def-4.1)

    ValueError if the widths of Q and K, or the numbers of keys and values, differ,
    or if there is no key.
    """
    return attention_pattern(Q, K, causal, scale) @ V


@shaped
def causal_attention(
    X: Float[np.ndarray, "n d"],
    W_Q: Float[np.ndarray, "d k"],
    W_K: Float[np.ndarray, "d k"],
    W_V: Float[np.ndarray, "d v"],
    scale: float | None = None,
) -> Float[np.ndarray, "n v"]:
    """CA(X) = softmax(◺(QKᵀ)/√k) V with Q = XW_Q, K = XW_K, V = XW_V. (W-ca1-def)

    ValueError when the shapes of X and the weight matrices do not fit.
    """
    return attention(X @ W_Q, X @ W_K, X @ W_V, causal=True, scale=scale)

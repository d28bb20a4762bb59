"""Where a token stands: positional encoding. Generated from book/positional_encoding.ipynb: edit the notebook, then `make export`."""

import numpy as np
from jaxtyping import Float

from tlm_book.checks import expects, expects_length, expects_positive, shaped

__all__ = [
    "add_positions",
    "append_positions",
    "joint_positions",
    "summed_positions",
    "sinusoid",
    "offset_map",
]


# --- The layer: add the first rows of a table


@shaped
def add_positions(
    X: Float[np.ndarray, "n d"], P: Float[np.ndarray, "M d"]
) -> Float[np.ndarray, "n d"]:
    """PE(X) = X + P[:n], for 1 ≤ n ≤ M. (W-pe-layer-def)

    ValueError when X has no row, more than M rows, or rows of another width than P.

    >>> add_positions(np.zeros((1, 2)), np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([[1., 2.]])
    """
    expects_length("X", len(X), len(P))
    return X + P[: len(X)]


# --- Appending, adding, learning


@shaped
def append_positions(
    X: Float[np.ndarray, "n d"], M: int
) -> Float[np.ndarray, "n width"]:
    """[X, I_M[:n]]: row p and beside it the one-hot row of position p.
    (A-onehot-position)

    ValueError when X has no row or more than M rows.

    >>> append_positions(np.array([[5.0], [7.0]]), M=3)
    array([[5., 1., 0., 0.],
           [7., 0., 1., 0.]])
    """
    expects_positive(M=M)
    expects_length("X", len(X), M)
    return np.hstack([X, np.eye(M)[: len(X)]])


# --- A small network for content and place


@shaped
def joint_positions(
    X: Float[np.ndarray, "n d"],
    W_x: Float[np.ndarray, "d k"],
    W_e: Float[np.ndarray, "M k"],
    W_z: Float[np.ndarray, "k d"],
) -> Float[np.ndarray, "n d"]:
    """z_p = ReLU(x_p W_x + e_p W_e) W_z, with e_p the one-hot row of p.
    (A-gehring-joint)

    ValueError for shapes that do not fit, no rows, or more than M rows.
    """
    X_with_e = append_positions(X, len(W_e))
    return np.maximum(X_with_e @ np.vstack([W_x, W_e]), 0) @ W_z


@shaped
def summed_positions(
    X: Float[np.ndarray, "n d"],
    W_x: Float[np.ndarray, "d k"],
    W_e: Float[np.ndarray, "M k"],
    W_zx: Float[np.ndarray, "k d"],
    W_ze: Float[np.ndarray, "k d"],
) -> Float[np.ndarray, "n d"]:
    """z_p = ReLU(x_p W_x) W_zx + ReLU(e_p W_e) W_ze. (A-gehring-sum)

    ValueError for shapes that do not fit, no rows, or more than M rows.
    """
    e = append_positions(np.zeros((len(X), 0)), len(W_e))
    return np.maximum(X @ W_x, 0) @ W_zx + np.maximum(e @ W_e, 0) @ W_ze


# --- The table of sines and cosines


def sinusoid(
    M: int, d: int, start: int = 1, base: float = 10000.0
) -> Float[np.ndarray, "M d"]:
    """PE[p, 2i] = sin(pos / base^{2i/d}), PE[p, 2i+1] = cos(pos / base^{2i/d}) with
    pos = start + p. (W-pe-formula-def)

    Columns count from 0, so d must be even (W-pe-parity, W-pe-index-range);
    ValueError otherwise. The article starts at position 1.

    >>> sinusoid(2, 2, start=0).round(3)
    array([[0.   , 1.   ],
           [0.841, 0.54 ]])
    """
    expects_positive(M=M, d=d)
    expects(d % 2 == 0, "d", d, "an even width: each sine needs its cosine")
    P = np.empty((M, d))
    for p in range(M):
        for i in range(d // 2):
            angle = (start + p) / base ** (2 * i / d)
            P[p, 2 * i] = np.sin(angle)
            P[p, 2 * i + 1] = np.cos(angle)
    return P


# --- Moving by an offset is a rotation


def offset_map(k: int, d: int, base: float = 10000.0) -> Float[np.ndarray, "d d"]:
    """T_k with PE[p + k] = T_k PE[p] for every position: one rotation block for each
    pair of columns. (W-pe-offset-first)

    Block i is [[cos ωk, sin ωk], [−sin ωk, cos ωk]] with ω = base^{−2i/d}; it acts
    on the column vector (sin ωp, cos ωp). k may be negative. For rows: P[p + k] =
    P[p] @ offset_map(k, d).T. ValueError when d is odd.

    >>> P = sinusoid(9, 4)
    >>> bool(np.allclose(offset_map(5, 4) @ P[0], P[5]))
    True
    """
    expects_positive(d=d)
    expects(d % 2 == 0, "d", d, "an even width: each sine needs its cosine")
    T = np.zeros((d, d))
    for i in range(d // 2):
        angle = k / base ** (2 * i / d)
        c, s = np.cos(angle), np.sin(angle)
        T[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[c, s], [-s, c]]
    return T

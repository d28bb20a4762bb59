"""Where a token stands: positional encoding. Generated from book/positional_encoding.ipynb: edit the notebook, then `make export`."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float, Real

from tlm_book.checks import (
    expects,
    expects_length,
    expects_one_of,
    expects_positive,
    shaped,
)

__all__ = [
    "add_positions",
    "append_positions",
    "sinusoid",
    "offset_map",
    "rope_frequencies",
    "rotary",
    "scaled_frequencies",
    "alibi_bias",
]


# --- The layer: add the first rows of a table


@shaped
def add_positions(
    X: Float[np.ndarray, "n d"], P: Float[np.ndarray, "M d"]
) -> Float[np.ndarray, "n d"]:
    """PE(X) = X + P[:n], for 1 ≤ n ≤ M. (W-pe-layer-def)

    ValueError if X has no row, more than M rows, or rows of another width than P.

    >>> add_positions(np.zeros((1, 2)), np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([[1., 2.]])
    """
    expects_length("X", len(X), len(P))
    return X + P[: len(X)]


# --- Appending is adding


@shaped
def append_positions(
    X: Float[np.ndarray, "n d"], M: int
) -> Float[np.ndarray, "n width"]:
    """[X, I_M[:n]]: row p, followed by the one-hot row of position p.
    (A-onehot-position)

    ValueError when X has no row or more than M rows.

    >>> append_positions(np.array([[5.0], [7.0]]), M=3)
    array([[5., 1., 0., 0.],
           [7., 0., 1., 0.]])
    """
    expects_positive(M=M)
    expects_length("X", len(X), M)
    return np.hstack([X, np.eye(M)[: len(X)]])


# --- The table of sines and cosines


@shaped
def sinusoid(
    M: int, d: int, start: int = 1, base: float = 10000.0
) -> Float[np.ndarray, "M d"]:
    """PE[p, 2i] = sin(pos / base^{2i/d}), PE[p, 2i+1] = cos(pos / base^{2i/d}) with
    pos = start + p. (W-pe-formula-def)

    Columns count from 0, so d must be even (W-pe-parity, W-pe-index-range);
    ValueError otherwise, and for a base ≤ 0. Wojcik (2021) starts at position 1.

    >>> sinusoid(2, 2, start=0).round(3)
    array([[0.   , 1.   ],
           [0.841, 0.54 ]])
    """
    expects_positive(M=M, d=d)
    expects(d % 2 == 0, "d", d, "an even width: each sine needs its cosine")
    expects(base > 0, "base", base, "a number > 0")
    P = np.empty((M, d))
    for p in range(M):
        for i in range(d // 2):
            angle = (start + p) / base ** (2 * i / d)
            P[p, 2 * i] = np.sin(angle)
            P[p, 2 * i + 1] = np.cos(angle)
    return P


# --- Moving by an offset is a rotation


@shaped
def offset_map(k: int, d: int, base: float = 10000.0) -> Float[np.ndarray, "d d"]:
    """T_k with PE[p + k] = T_k PE[p] for every position: one rotation block for each
    pair of columns. (W-pe-offset-first)

    Block i is [[cos ωk, sin ωk], [−sin ωk, cos ωk]] with ω = base^{−2i/d}; it acts
    on the column vector (sin ωp, cos ωp). k may be negative. For rows: P[p + k] =
    P[p] @ offset_map(k, d).T. ValueError when d is odd or base ≤ 0.

    >>> P = sinusoid(9, 4)
    >>> bool(np.allclose(offset_map(5, 4) @ P[0], P[5]))
    True
    """
    expects_positive(d=d)
    expects(d % 2 == 0, "d", d, "an even width: each sine needs its cosine")
    expects(base > 0, "base", base, "a number > 0")
    T = np.zeros((d, d))
    for i in range(d // 2):
        angle = k / base ** (2 * i / d)
        c, s = np.cos(angle), np.sin(angle)
        T[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[c, s], [-s, c]]
    return T


# --- Rotating instead of adding


@shaped
def rope_frequencies(
    k: int, base: float = 10000.0, scaling: Mapping[str, float | str] | None = None
) -> Float[np.ndarray, "half"]:
    """ω_i = base^{−2i/k} for i = 0, …, k/2 − 1. (T-rotary-def)

    With `scaling`, they are changed by `scaled_frequencies`. ValueError for an odd k
    and for a base ≤ 0.

    >>> rope_frequencies(4)
    array([1.  , 0.01])
    """
    expects_positive(k=k)
    expects(k % 2 == 0, "k", k, "an even width: columns are turned in pairs")
    expects(base > 0, "base", base, "a number > 0")
    omega = base ** (-np.arange(0, k, 2) / k)
    return omega if scaling is None else scaled_frequencies(omega, scaling)


@shaped
def rotary(
    X: Float[np.ndarray, "n k"],
    positions: Real[np.ndarray, "n"] | None = None,
    base: float = 10000.0,
    layout: str = "halves",
    scaling: Mapping[str, float | str] | None = None,
) -> Float[np.ndarray, "n k"]:
    """Row p of X with each pair of columns turned by ω_i p: (a, b) becomes
    (a cos ω_i p − b sin ω_i p, a sin ω_i p + b cos ω_i p). (T-rotary-def)

    `layout`: "halves" pairs column i with column i + k/2, "interleaved" column 2i with
    column 2i + 1. `positions` are 0, …, n − 1 unless others are given; `scaling` as in
    `scaled_frequencies`. ValueError for an odd k and for an unknown layout.

    >>> rotary(np.array([[1.0, 0.0], [1.0, 0.0]])).round(3)
    array([[1.   , 0.   ],
           [0.54 , 0.841]])
    """
    expects_one_of("layout", layout, ("halves", "interleaved"))
    n, k = X.shape
    p = np.arange(n) if positions is None else positions
    angle = np.outer(p, rope_frequencies(k, base, scaling))  # (n, k/2)
    i = np.arange(k // 2)
    a, b = (i, i + k // 2) if layout == "halves" else (2 * i, 2 * i + 1)
    Y = np.empty((n, k))
    Y[:, a] = X[:, a] * np.cos(angle) - X[:, b] * np.sin(angle)
    Y[:, b] = X[:, a] * np.sin(angle) + X[:, b] * np.cos(angle)
    return Y


# --- Texts longer than those of training


@shaped
def scaled_frequencies(
    omega: Float[np.ndarray, "half"], scaling: Mapping[str, float | str]
) -> Float[np.ndarray, "half"]:
    """ω/F for "linear"; (s + (1 − s)/F) ω for "llama3", where s goes from 0 to 1 as the
    turns Mω/2π go from l to u. (T-rope-scaling)

    `scaling` holds "kind" ("linear" or "llama3"), "factor" F and, for "llama3",
    "low_freq_factor" l, "high_freq_factor" u and "original_max_len" M. ValueError for
    another kind.

    >>> scaled_frequencies(np.array([1.0, 0.5]), {"kind": "linear", "factor": 2.0})
    array([0.5 , 0.25])
    """
    expects_one_of("scaling", scaling["kind"], ("linear", "llama3"))
    F = float(scaling["factor"])
    if scaling["kind"] == "linear":
        return omega / F
    names = ("low_freq_factor", "high_freq_factor", "original_max_len")
    low, high, M = (float(scaling[name]) for name in names)
    s = np.clip((M * omega / (2 * np.pi) - low) / (high - low), 0, 1)
    return (s + (1 - s) / F) * omega


# --- Weights that fall with the distance: ALiBi


@shaped
def alibi_bias(n: int, h: int) -> Float[np.ndarray, "h n n"]:
    """m_i (q − p) in row p and column q of head i, with m_i = 2^{−8(i+1)/h}: what ALiBi
    adds to the scores. (T-alibi)

    ValueError for n or h below 1.

    >>> alibi_bias(3, 8)[0]
    array([[ 0. ,  0.5,  1. ],
           [-0.5,  0. ,  0.5],
           [-1. , -0.5,  0. ]])
    """
    expects_positive(n=n, h=h)
    slopes = 2.0 ** (-8 * np.arange(1, h + 1) / h)
    return slopes[:, None, None] * (np.arange(n) - np.arange(n)[:, None])

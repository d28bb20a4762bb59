"""Rowwise and autoregressive operators. Generated from book/operators.ipynb: edit the notebook, then `make export`."""

import itertools
from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Shaped

from tlm_book.checks import expects, shaped

Operator = Callable[[Shaped[np.ndarray, "n ..."]], Shaped[np.ndarray, "n k"]]

__all__ = [
    "Operator",
    "agree",
    "is_rowwise",
    "is_autoregressive",
    "is_indexed_rowwise",
    "is_equivariant",
    "causal_mask",
    "softmax",
    "masked_softmax",
    "is_causal_pattern",
]


# --- Matrices as sequences of rows


@shaped
def agree(
    A: Shaped[np.ndarray, "..."], B: Shaped[np.ndarray, "..."], tol: float = 1e-12
) -> bool:
    """Whether A and B have the same shape and |A − B| ≤ tol (1 + |B|) in every entry;
    −∞ agrees with −∞, and NaN with nothing.

    >>> agree(np.zeros((1, 2)), np.zeros((2, 1)))
    False
    """
    return A.shape == B.shape and np.allclose(A, B, rtol=tol, atol=tol)


# --- Three notions


@shaped
def is_rowwise(
    T: Operator, X: Shaped[np.ndarray, "n ..."], tol: float = 1e-12
) -> bool:
    """Whether T(X)[i] = T(X[i:i+1])[0] for every row i of this X. (W-rowwise-def)

    An experiment on one X with n ≥ 1 rows (ValueError for none): False refutes, True
    does not prove.

    >>> is_rowwise(lambda X: 2 * X, np.ones((3, 2)))
    True
    """
    expects(len(X) >= 1, "X", "0 rows", "at least one row")
    Y = T(X)
    return all(agree(Y[i : i + 1], T(X[i : i + 1]), tol) for i in range(len(X)))


@shaped
def is_autoregressive(
    T: Operator, X: Shaped[np.ndarray, "n ..."], tol: float = 1e-12
) -> bool:
    """Whether T(X[:i]) = T(X)[:i] for i = 1, …, n on this X. (W-autoregressive-def)

    An experiment on one X with n ≥ 1 rows (ValueError for none): False refutes, True
    does not prove.

    >>> is_autoregressive(lambda X: np.cumsum(X, axis=0), np.ones((3, 2)))
    True
    """
    expects(len(X) >= 1, "X", "0 rows", "at least one row")
    Y = T(X)
    return all(agree(Y[:i], T(X[:i]), tol) for i in range(1, len(X) + 1))


@shaped
def is_indexed_rowwise(
    T: Operator,
    X: Shaped[np.ndarray, "n ..."],
    Z: Shaped[np.ndarray, "n ..."],
    tol: float = 1e-12,
) -> bool:
    """Whether T(X)[i] = t_i(X[i]): row i stays the same when the rows before it are
    taken from Z and those after it are cut off. (T-indexed-rowwise-def)

    X and Z have the same shape, n ≥ 1 rows (ValueError otherwise). False refutes,
    True does not prove.

    >>> T = lambda X: X + np.arange(len(X))[:, None]
    >>> is_indexed_rowwise(T, np.ones((3, 2)), np.zeros((3, 2)))
    True
    """
    expects(len(X) >= 1, "X", "0 rows", "at least one row")
    expects(
        Z.shape == X.shape, "Z", f"shape {Z.shape}", f"the shape of X, {X.shape}"
    )
    Y = T(X)
    return len(Y) == len(X) and all(
        agree(T(np.concatenate([Z[:i], X[i : i + 1]]))[i], Y[i], tol)
        for i in range(len(X))
    )


# --- The order of the rows


@shaped
def is_equivariant(
    T: Operator, X: Shaped[np.ndarray, "n ..."], tol: float = 1e-12
) -> bool:
    """Whether T(ΠX) = Π T(X) for this X, every Π that exchanges two of its rows, and
    twenty random Π. (T-equivariant-def)

    An experiment on one X with n ≥ 1 rows (ValueError for none): False refutes, True
    does not prove.

    >>> is_equivariant(lambda X: X - X.mean(axis=0), np.eye(3))
    True
    """
    expects(len(X) >= 1, "X", "0 rows", "at least one row")
    n, rng = len(X), np.random.default_rng(0)
    orders = [rng.permutation(n) for _ in range(20)]
    for i, j in itertools.combinations(range(n), 2):
        exchanged = np.arange(n)
        exchanged[[i, j]] = j, i
        orders.append(exchanged)
    Y = T(X)
    if len(Y) != n:
        return False
    return all(agree(T(X[order]), Y[order], tol) for order in orders)


# --- The mask and softmax


@shaped
def causal_mask(A: Float[np.ndarray, "n m"]) -> Float[np.ndarray, "n m"]:
    """◺A: entry (i, j) of A where j ≤ i, −∞ where j > i. (W-mask-op-def)

    ValueError for anything but a matrix.

    >>> causal_mask(np.ones((2, 2)))
    array([[  1., -inf],
           [  1.,   1.]])
    """
    i, j = np.indices(A.shape)
    return np.where(j <= i, A, -np.inf)


@shaped
def softmax(A: Float[np.ndarray, "n m"]) -> Float[np.ndarray, "n m"]:
    """Each row a becomes exp(a_j) / Σ_l exp(a_l), with exp(−∞) = 0. (T-softmax-def)

    The row's maximum is subtracted first: the quotient is unchanged and no
    exponential overflows. A row without a finite entry has no softmax: its result is
    NaN. ValueError for anything but a matrix with at least one column.

    >>> softmax(np.log([[3.0, 1.0]])).round(2)
    array([[0.75, 0.25]])
    """
    expects(A.shape[1] > 0, "A", f"shape {A.shape}", "(n, m) with m ≥ 1")
    E = np.exp(A - A.max(axis=1, keepdims=True))
    return E / E.sum(axis=1, keepdims=True)


@shaped
def masked_softmax(A: Float[np.ndarray, "n m"]) -> Float[np.ndarray, "n m"]:
    """softmax(◺A), row by row: lower triangular, each row sums to 1.
    (W-masked-softmax-claim)

    >>> masked_softmax(np.array([[5.0, 7.0], [0.0, 0.0]]))
    array([[1. , 0. ],
           [0.5, 0.5]])
    """
    return softmax(causal_mask(A))


# --- Causal patterns and the product


@shaped
def is_causal_pattern(
    A: Operator, X: Shaped[np.ndarray, "n ..."], tol: float = 1e-12
) -> bool:
    """Whether A(X) is n×n and exactly 0 above the diagonal, and A(X)[:i, :i] = A(X[:i])
    for every i. (T-causal-pattern-def)

    An experiment on one X with n ≥ 1 rows (ValueError for none): False refutes, True
    does not prove.

    >>> A = lambda X: np.tril(np.ones((len(X), len(X))))
    >>> is_causal_pattern(A, np.ones((3, 2)))
    True
    """
    expects(len(X) >= 1, "X", "0 rows", "at least one row")
    P, n = A(X), len(X)
    if P.shape != (n, n) or np.any(np.triu(P, 1)):
        return False
    return all(agree(P[:i, :i], A(X[:i]), tol) for i in range(1, n + 1))

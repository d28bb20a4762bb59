"""What a head does. Generated from book/heads.ipynb: edit the notebook, then `make export`."""

import numpy as np
from jaxtyping import Float, Int

from tlm_book.checks import expects, shaped

__all__ = [
    "previous_token_score",
    "duplicate_token_score",
    "induction_score",
]


# --- Three scores


@shaped
def previous_token_score(A: Float[np.ndarray, "n n"]) -> float:
    """The mean of A[i, i−1] over i = 1, …, n−1. (T-head-scores)

    ValueError if n < 2.
    """
    n = len(A)
    expects(n >= 2, "A", f"{n} rows", "at least 2")
    return float(sum(A[i, i - 1] for i in range(1, n)) / (n - 1))


@shaped
def duplicate_token_score(
    A: Float[np.ndarray, "n n"], t: Int[np.ndarray, "n"], shift: int = 0
) -> float:
    """The mean, over rows i whose token came before, of Σ A[i, j + shift] over all
    j < i with t[j] = t[i]. (T-head-scores)

    ValueError if no token comes twice, if t has another length than A, or if some
    j + shift is no column of A.
    """
    earlier = [[j for j in range(i) if t[j] == t[i]] for i in range(len(t))]
    fits = all(0 <= j + shift < len(t) for E in earlier for j in E)
    wants = f"j + shift from 0 to {len(t) - 1} for these j"
    expects(fits, "shift", shift, wants)
    sums = [sum(A[i, j + shift] for j in E) for i, E in enumerate(earlier) if E]
    expects(sums, "t", "no token that comes twice", "at least one")
    return float(sum(sums) / len(sums))


@shaped
def induction_score(A: Float[np.ndarray, "n n"], t: Int[np.ndarray, "n"]) -> float:
    """The same mean for the places after these j: Σ A[i, j+1]. (T-head-scores)"""
    return duplicate_token_score(A, t, shift=1)

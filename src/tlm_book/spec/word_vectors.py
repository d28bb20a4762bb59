"""Word vectors. Generated from book/word_vectors.ipynb: edit the notebook, then `make export`."""

import numpy as np
from jaxtyping import Float, Int

from tlm_book.checks import expects, expects_positive, shaped

__all__ = [
    "skip_gram_pairs",
    "sgns_loss",
    "sgns_gradient",
    "noise_distribution",
    "shifted_pmi",
    "keep_probability",
]


# --- Words from their neighbours


@shaped
def skip_gram_pairs(
    t: Int[np.ndarray, "n"], window: int
) -> Int[np.ndarray, "pairs 2"]:
    """All (t[i], t[j]) with 0 < |i − j| ≤ window: centre and context.
    (T-skip-gram-pairs)

    ValueError if window < 1; TypeError if it is not a whole number.

    >>> skip_gram_pairs(np.array([7, 8, 9]), 1).tolist()
    [[7, 8], [8, 7], [8, 9], [9, 8]]
    """
    expects_positive(window=window)
    n = len(t)
    near = [
        (t[i], t[j]) for i in range(n) for j in range(n) if 0 < abs(i - j) <= window
    ]
    return np.array(near, dtype=int).reshape(-1, 2)


# --- Negative sampling


@shaped
def sgns_loss(
    e: Float[np.ndarray, "d"], c: Float[np.ndarray, "d"], N: Float[np.ndarray, "k d"]
) -> float:
    """−log σ(⟨e, c⟩) − Σ_j log σ(−⟨e, N[j]⟩): centre e, context c, k drawn contexts.
    (T-sgns-loss)

    ValueError if e, c and the rows of N differ in length.

    >>> loss = sgns_loss(np.zeros(2), np.zeros(2), np.zeros((3, 2)))
    >>> print(round(loss / np.log(2), 6))
    4.0
    """
    # −log σ(x) = log(1 + exp(−x)), safe for large |x|
    return float(np.logaddexp(0, -(c @ e)) + np.logaddexp(0, N @ e).sum())


@shaped
def sgns_gradient(
    e: Float[np.ndarray, "d"], c: Float[np.ndarray, "d"], N: Float[np.ndarray, "k d"]
) -> tuple[Float[np.ndarray, "d"], Float[np.ndarray, "d"], Float[np.ndarray, "k d"]]:
    """The derivatives of `sgns_loss` by e, c and N. (T-sgns-gradient)

    ValueError if e, c and the rows of N differ in length.
    """
    g = np.exp(-np.logaddexp(0, -(c @ e))) - 1  # σ(⟨e, c⟩) − 1
    h = np.exp(-np.logaddexp(0, -(N @ e)))  # σ(⟨e, N[j]⟩)
    return g * c + h @ N, g * e, np.outer(h, e)


@shaped
def noise_distribution(
    counts: Float[np.ndarray, "V"], power: float = 0.75
) -> Float[np.ndarray, "V"]:
    """q[c] = counts[c]^power / Σ_b counts[b]^power. (T-sgns-loss)

    ValueError if a count is not positive or power is not in [0, 1].

    >>> noise_distribution(np.array([1.0, 3.0]), power=1).tolist()
    [0.25, 0.75]
    """
    expects((counts > 0).all(), "counts", counts.min(), "positive numbers")
    expects(0 <= power <= 1, "power", power, "a number from 0 to 1")
    return counts**power / (counts**power).sum()


# --- What is learned


@shaped
def shifted_pmi(
    number: Float[np.ndarray, "V V"], k: float, q: Float[np.ndarray, "V"]
) -> Float[np.ndarray, "V V"]:
    """M[w, c] = log( #(w, c) / (k ρ_w q_c) ), ρ_w the sum of row w; −∞ where the pair
    does not occur. If q_c is the share of context c, it is PMI − log k. (T-sgns-pmi)

    ValueError if a row has no pair, a number is negative, or k or q is not positive.

    >>> M = shifted_pmi(np.array([[1.0, 1.0], [1.0, 1.0]]), 1, np.array([0.5, 0.5]))
    >>> M.tolist()
    [[0.0, 0.0], [0.0, 0.0]]
    """
    expects((number >= 0).all(), "number", number.min(), "numbers ≥ 0")
    expects((q > 0).all() and k > 0, "k, q", (k, float(q.min())), "positive numbers")
    rho = number.sum(axis=1, keepdims=True)
    wants = "at least one pair in each row"
    expects((rho > 0).all(), "number", "a row of zeros", wants)
    with np.errstate(divide="ignore"):  # log 0 = −∞
        return np.log(number) - np.log(k * rho * q)


# --- Frequent words


@shaped
def keep_probability(
    counts: Float[np.ndarray, "V"], threshold: float
) -> Float[np.ndarray, "V"]:
    """min(1, √(threshold · n / counts[v])), n the sum of the counts. (T-subsampling)

    ValueError if a count or the threshold is not positive.

    >>> keep_probability(np.array([4.0, 96.0]), 0.06).tolist()
    [1.0, 0.25]
    """
    expects((counts > 0).all(), "counts", counts.min(), "positive numbers")
    expects(threshold > 0, "threshold", threshold, "a positive number")
    return np.minimum(1.0, np.sqrt(threshold * counts.sum() / counts))

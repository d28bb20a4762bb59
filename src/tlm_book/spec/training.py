"""Training. Generated from book/training.ipynb: edit the notebook, then `make export`."""

from collections import Counter

import numpy as np
from jaxtyping import Float, Int

from tlm_book.checks import expects_tokens, shaped

__all__ = [
    "bigram_table",
    "discounts",
    "kneser_ney",
]


# --- What to beat


@shaped
def bigram_table(
    x: Int[np.ndarray, "N"], V: int, D: float
) -> Float[np.ndarray, "V V"]:
    """p(b | a) in row a and column b, from the counts in x by absolute discounting.
    (T-bigram) IndexError for a token outside the vocabulary.
    """
    expects_tokens("x", x, V)
    C = np.zeros((V, V))
    for a, b in zip(x[:-1], x[1:]):
        C[a, b] += 1
    r, l = (C > 0).sum(axis=1), (C > 0).sum(axis=0)
    q = (l + 1) / (l + 1).sum()
    P = np.tile(q, (V, 1))
    for a in range(V):
        if C[a].sum() > 0:
            P[a] = (np.maximum(C[a] - D, 0) + D * r[a] * q) / C[a].sum()
    return P


# --- For the curious: two tokens back, and more


@shaped
def discounts(c: Int[np.ndarray, "G"]) -> Float[np.ndarray, "4"]:
    """D(0), D(1), D(2), D(3), the last for all counts from 3 on; c are the counts ≥ 1
    of one order. (T-kneser-ney) A denominator 0 counts as 1; a D(c) outside (0, c) is c/2.
    """
    n = [np.sum(c == count) for count in range(5)]
    Y = n[1] / max(n[1] + 2 * n[2], 1)
    D = np.zeros(4)
    for count in (1, 2, 3):
        D[count] = count - (count + 1) * Y * n[count + 1] / max(n[count], 1)
        if not 0 < D[count] < count:
            D[count] = count / 2
    return D


@shaped
def kneser_ney(
    x: Int[np.ndarray, "N"], V: int, h: tuple[int, ...], order: int | None = None
) -> Float[np.ndarray, "V"]:
    """p_k(· | h) with k = len(h) + 1 in the model of the given order, by default k.
    (T-kneser-ney) IndexError for a token outside the vocabulary.
    """
    expects_tokens("x", x, V)
    k = len(h) + 1
    text = [int(token) for token in x]
    if order in (None, k):
        counts = Counter(tuple(text[i : i + k]) for i in range(len(text) - k + 1))
    else:
        longer = {tuple(text[i : i + k + 1]) for i in range(len(text) - k)}
        counts = Counter(g[1:] for g in longer)  # a different token before each
    below = np.full(V, 1 / V) if k == 1 else kneser_ney(x, V, h[1:], order or k)
    c = np.array([counts[*h, b] for b in range(V)])
    if c.sum() == 0:
        return below
    D = discounts(np.array(list(counts.values())))[np.minimum(c, 3)]
    return (c - D + below * D.sum()) / c.sum()

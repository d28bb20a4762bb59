"""From tokens to vectors. Generated from book/embedding.ipynb: edit the notebook, then `make export`."""

import numpy as np
from jaxtyping import Float, Int

from tlm_book.checks import expects_positive, expects_tokens, shaped

__all__ = [
    "embed",
    "one_hot",
    "embed_gradient",
]


# --- The table


@shaped
def embed(
    t: Int[np.ndarray, "n"], E: Float[np.ndarray, "V d"]
) -> Float[np.ndarray, "n d"]:
    """Em(t)[i] = E[t[i]]: row i of the result is the table's row for token t[i].
    (W-embedding-def)

    IndexError when a token is outside {0, …, V−1}; TypeError when tokens are not
    integers.

    >>> embed(np.array([1, 1]), np.array([[0.0, 1.0], [2.0, 3.0]]))
    array([[2., 3.],
           [2., 3.]])
    """
    expects_tokens("t", t, len(E))
    return E[t]


# --- One-hot vectors


@shaped
def one_hot(t: Int[np.ndarray, "n"], V: int) -> Float[np.ndarray, "n V"]:
    """Row i is 1 in column t[i] and 0 elsewhere, so that Em(t) = one_hot(t, V) E.
    (B-onehot-def)

    IndexError when a token is outside {0, …, V−1}; TypeError when tokens are not
    integers.

    >>> one_hot(np.array([2, 0]), 3)
    array([[0., 0., 1.],
           [1., 0., 0.]])
    """
    expects_positive(V=V)
    expects_tokens("t", t, V)
    return np.eye(V)[t]


# --- Which rows learn


@shaped
def embed_gradient(
    t: Int[np.ndarray, "n"], G: Float[np.ndarray, "n d"], V: int
) -> Float[np.ndarray, "V d"]:
    """The table's gradient from the gradient G at Em(t): row v is the sum of G[i]
    over all i with t[i] = v.

    IndexError when a token is outside {0, …, V−1}; TypeError when tokens are not
    integers; ValueError when t and G differ in length.

    >>> embed_gradient(np.array([1, 1]), np.array([[1.0], [10.0]]), 3).tolist()
    [[0.0], [11.0], [0.0]]
    """
    expects_positive(V=V)
    expects_tokens("t", t, V)
    gradient = np.zeros((V, G.shape[1]))
    for token, row in zip(t, G):
        gradient[token] += row
    return gradient

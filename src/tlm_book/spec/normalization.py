"""Normalization. Generated from book/normalization.ipynb: edit the notebook, then `make export`."""

import numpy as np
from jaxtyping import Float

from tlm_book.checks import expects, expects_one_of, expects_shape

EPS_MODES = ("outside", "inside", "none")

__all__ = [
    "EPS_MODES",
    "standardize",
    "normalize",
    "layer_norm",
]


# normalization: To standardize
def standardize(
    x: Float[np.ndarray, "d"], eps: float = 1e-6, eps_mode: str = "outside"
) -> Float[np.ndarray, "d"]:
    """(x − x̄) / (σ + ε), σ² the mean of (x − x̄)²; "inside" divides by √(σ² + ε),
    "none" by σ. (W-standardize-def)

    A constant row gives 0; in the mode "none", or with eps = 0, it gives NaN, as 0/0
    does. ValueError for an unknown mode and for anything but one row.

    >>> standardize(np.array([2.0, 4.0, 6.0, 10.0, 13.0])).round(3)
    array([-1.25, -0.75, -0.25,  0.75,  1.5 ])

    Chapter: normalization.
    """
    expects_one_of("eps_mode", eps_mode, EPS_MODES)
    expects(x.ndim == 1, "x", f"shape {x.shape}", "(d)")
    # subtracting a number changes nothing in ℝ; in floating point it makes a
    # constant row exactly 0
    v = x - x[0]
    u = v - v.mean()
    sigma = np.sqrt(np.mean(u**2))
    if eps_mode == "outside":
        return u / (sigma + eps)
    if eps_mode == "inside":
        return u / np.sqrt(sigma**2 + eps)
    return u / sigma


# normalization: To normalize, and the layer
def normalize(
    x: Float[np.ndarray, "d"],
    a: Float[np.ndarray, "d"],
    b: Float[np.ndarray, "d"],
    eps: float = 1e-6,
    eps_mode: str = "outside",
) -> Float[np.ndarray, "d"]:
    """a ⊙ standardize(x) + b. (W-normalize-def)

    ValueError when a or b is not as long as x.

    Chapter: normalization.
    """
    expects_shape("a", a, x.shape)
    expects_shape("b", b, x.shape)
    return a * standardize(x, eps, eps_mode) + b


def layer_norm(
    X: Float[np.ndarray, "n d"],
    a: Float[np.ndarray, "d"],
    b: Float[np.ndarray, "d"],
    eps: float = 1e-6,
    eps_mode: str = "outside",
) -> Float[np.ndarray, "n d"]:
    """N(X): every row is normalized with the same a and b. (W-norm-layer)

    ValueError when X has no row, or a or b another length than its rows.

    Chapter: normalization.
    """
    expects(len(X) >= 1, "X", "0 rows", "at least 1 row")
    return np.stack([normalize(x, a, b, eps, eps_mode) for x in X])

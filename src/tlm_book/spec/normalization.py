"""Normalization. Generated from book/normalization.ipynb: edit the notebook, then `make export`."""

import math

import numpy as np
from jaxtyping import Float

from tlm_book.checks import expects, expects_one_of, shaped

EPS_MODES = ("outside", "inside", "none")

__all__ = [
    "EPS_MODES",
    "standardize",
    "normalize",
    "layer_norm",
    "rms_norm",
    "standardize_over",
    "NORM_AXES",
    "normalize_over",
]


# --- Standardizing a row


@shaped
def standardize(
    x: Float[np.ndarray, "d"], eps: float = 1e-6, eps_mode: str = "outside"
) -> Float[np.ndarray, "d"]:
    """(x − x̄) / (σ + ε), σ² the mean of (x − x̄)²; "inside" divides by √(σ² + ε),
    "none" by σ. (W-standardize-def)

    A constant row gives 0; in the mode "none", or with eps = 0, it gives NaN, as 0/0
    does. ValueError for an unknown mode, an empty row and anything but one row.

    >>> standardize(np.array([2.0, 4.0, 6.0, 10.0, 13.0])).round(3)
    array([-1.25, -0.75, -0.25,  0.75,  1.5 ])
    """
    expects_one_of("eps_mode", eps_mode, EPS_MODES)
    expects(len(x) >= 1, "x", "no number", "at least one")
    v = x - x[0]  # the same in ℝ; in floating point a constant row is exactly 0
    u = v - v.mean()
    sigma = np.sqrt(np.mean(u**2))
    if eps_mode == "outside":
        return u / (sigma + eps)
    if eps_mode == "inside":
        return u / np.sqrt(sigma**2 + eps)
    return u / sigma


# --- Layer norm


@shaped
def normalize(
    x: Float[np.ndarray, "d"],
    a: Float[np.ndarray, "d"],
    b: Float[np.ndarray, "d"],
    eps: float = 1e-6,
    eps_mode: str = "outside",
) -> Float[np.ndarray, "d"]:
    """a ⊙ standardize(x) + b. (W-normalize-def)

    ValueError when a or b is not as long as x.
    """
    return a * standardize(x, eps, eps_mode) + b


@shaped
def layer_norm(
    X: Float[np.ndarray, "n d"],
    a: Float[np.ndarray, "d"],
    b: Float[np.ndarray, "d"],
    eps: float = 1e-6,
    eps_mode: str = "outside",
) -> Float[np.ndarray, "n d"]:
    """N(X): every row is normalized with the same a and b. (W-norm-layer)

    ValueError if X has no row, or if a or b is not as long as its rows.
    """
    expects(len(X) >= 1, "X", "0 rows", "at least 1 row")
    return np.stack([normalize(x, a, b, eps, eps_mode) for x in X])


# --- RMS norm


@shaped
def rms_norm(
    X: Float[np.ndarray, "n d"], a: Float[np.ndarray, "d"], eps: float = 1e-6
) -> Float[np.ndarray, "n d"]:
    """Every row x becomes a ⊙ x / √(ε + mean of the squares of x). (T-rms-norm)

    ValueError if a is not as long as the rows of X.

    >>> rms_norm(np.array([[3.0, 4.0, 0.0, 0.0]]), np.ones(4)).round(3)
    array([[1.2, 1.6, 0. , 0. ]])
    """
    return a * X / np.sqrt(np.mean(X**2, axis=1, keepdims=True) + eps)


# --- For the curious: over any set of axes


@shaped
def standardize_over(
    X: Float[np.ndarray, "..."],
    axes: tuple[int, ...],
    eps: float = 1e-6,
    eps_mode: str = "outside",
) -> Float[np.ndarray, "..."]:
    """X with every slice over `axes` standardized as one row. (T-standardize-over)

    X: any shape → the same shape. Axes count from 0, or from −1 backwards.
    ValueError if `axes` is empty, repeats an axis or names one that X does not have,
    and if X holds no number.

    >>> standardize_over(np.array([[1.0, 9.0], [3.0, 5.0]]), (0,)).round(3)
    array([[-1.,  1.],
           [ 1., -1.]])
    """
    inner = [axis % max(X.ndim, 1) for axis in axes if -X.ndim <= axis < X.ndim]
    fits = len(set(inner)) == len(axes) > 0
    expects(fits, "axes", axes, f"different axes of X, which has {X.ndim}")
    expects(X.size > 0, "X", f"shape {X.shape}", "at least one number")
    order = [axis for axis in range(X.ndim) if axis not in inner] + inner
    slices = X.transpose(order)  # the axes of S come last
    rows = slices.reshape(-1, math.prod(X.shape[axis] for axis in inner))
    Y = np.stack([standardize(x, eps, eps_mode) for x in rows])
    return Y.reshape(slices.shape).transpose(np.argsort(order))


# --- Batch, instance and layer norm


NORM_AXES = {"batch": (0, 2), "instance": (2,), "layer": (1, 2)}


@shaped
def normalize_over(
    X: Float[np.ndarray, "batch chans layer"],
    gamma: Float[np.ndarray, "..."],
    beta: Float[np.ndarray, "..."],
    kind: str,
    eps: float = 1e-6,
    eps_mode: str = "outside",
) -> Float[np.ndarray, "batch chans layer"]:
    """std_S(X) ⊙ γ + β with S = NORM_AXES[kind]: batch, instance or layer norm, as in
    training. (L-batchnorm, L-instancenorm, L-layernorm-general)

    gamma, beta: (chans, layer) for kind "layer", otherwise (chans). ValueError for
    another kind or shape.
    """
    expects_one_of("kind", kind, tuple(NORM_AXES))
    shape = X.shape[1:] if kind == "layer" else X.shape[1:2]
    for name, weight in (("gamma", gamma), ("beta", beta)):
        expects(weight.shape == shape, name, f"shape {weight.shape}", str(shape))
    if kind != "layer":  # constant along the places
        gamma, beta = gamma[:, None], beta[:, None]
    return standardize_over(X, NORM_AXES[kind], eps, eps_mode) * gamma + beta

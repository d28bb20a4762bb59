"""Where the loss has a gradient. Generated from book/gradients.ipynb: edit the notebook, then `make export`."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from tlm_book.checks import expects
from tlm_book.spec.loss import log_softmax
from tlm_book.spec.operators import softmax

__all__ = [
    "softmax_jacobian",
    "cross_entropy_gradient",
    "standardize_jacobian",
    "central_difference",
]


# gradients: Derivatives by hand
def softmax_jacobian(a: Float[np.ndarray, "m"]) -> Float[np.ndarray, "m m"]:
    """Entry (i, j) is ∂softmax(a)_i / ∂a_j = p_i (δ_ij − p_j). (T-softmax-jacobian)

    Chapter: gradients.
    """
    p = softmax(a[None])[0]
    return np.diag(p) - np.outer(p, p)


def cross_entropy_gradient(
    z: Float[np.ndarray, "V"], x: int
) -> Float[np.ndarray, "V"]:
    """The derivative of −log softmax(z)_x: softmax(z) − e_x. (T-cross-entropy-gradient)

    IndexError for a token x outside {0, …, V−1}.

    Chapter: gradients.
    """
    expects(0 <= x < len(z), "x", x, f"a token from 0 to {len(z) - 1}", IndexError)
    return np.exp(log_softmax(z[None])[0]) - np.eye(len(z))[x]


def standardize_jacobian(
    x: Float[np.ndarray, "d"], eps: float = 1e-6
) -> Float[np.ndarray, "d d"]:
    """The derivative of (x − x̄)/(σ + ε), also where σ = 0. (T-standardize-jacobian)

    ValueError unless ε > 0.

    Chapter: gradients.
    """
    wanted = "a number > 0: without it there is no derivative at a constant row"
    expects(eps > 0, "eps", eps, wanted)
    d = len(x)
    P = np.eye(d) - 1 / d
    u = P @ x
    sigma = np.sqrt(np.mean(u**2))
    if sigma == 0:
        return P / eps
    bent = np.outer(u, u) / (d * sigma * (sigma + eps))
    return (np.eye(d) - bent) @ P / (sigma + eps)


# gradients: Derivatives by hand
def central_difference(
    f: Callable, x: Float[np.ndarray, "d"], h: float = 1e-5
) -> Float[np.ndarray, "..."]:
    """The matrix of ∂f_i/∂x_j by (f(x + h e_j) − f(x − h e_j)) / 2h; real f: a row.

    >>> central_difference(lambda x: x[0] * x[1], np.array([2.0, 3.0])).round(6)
    array([3., 2.])

    Chapter: gradients.
    """
    columns = [(f(x + h * e) - f(x - h * e)) / (2 * h) for e in np.eye(len(x))]
    return np.stack(columns, axis=-1)

"""Where the loss has a gradient. Generated from book/gradients.ipynb: edit the notebook, then `make export`."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from tlm_book.checks import expects, expects_one_of, shaped
from tlm_book.spec.attention import attention_pattern
from tlm_book.spec.feed_forward import FORMULAS
from tlm_book.spec.loss import log_softmax
from tlm_book.spec.multi_head import heads, multi_head
from tlm_book.spec.normalization import layer_norm, standardize
from tlm_book.spec.operators import softmax

__all__ = [
    "softmax_jacobian",
    "cross_entropy_gradient",
    "standardize_jacobian",
    "central_difference",
    "Array",
    "linear_backward",
    "layer_norm_backward",
    "activation_derivative",
    "feed_forward_backward",
    "attention_backward",
    "multi_head_backward",
    "block_backward",
]


# --- Derivatives by hand


@shaped
def softmax_jacobian(a: Float[np.ndarray, "m"]) -> Float[np.ndarray, "m m"]:
    """Entry (i, j) is ∂softmax(a)_i / ∂a_j = p_i (δ_ij − p_j). (T-softmax-jacobian)
    """
    p = softmax(a[None])[0]
    return np.diag(p) - np.outer(p, p)


@shaped
def cross_entropy_gradient(
    z: Float[np.ndarray, "V"], x: int
) -> Float[np.ndarray, "V"]:
    """The derivative of −log softmax(z)_x: softmax(z) − e_x. (T-cross-entropy-gradient)

    IndexError for a token x outside {0, …, V−1}.
    """
    expects(0 <= x < len(z), "x", x, f"a token from 0 to {len(z) - 1}", IndexError)
    return np.exp(log_softmax(z[None])[0]) - np.eye(len(z))[x]


@shaped
def standardize_jacobian(
    x: Float[np.ndarray, "d"], eps: float = 1e-6, eps_mode: str = "outside"
) -> Float[np.ndarray, "d d"]:
    """The derivative of (x − x̄)/(σ + ε), also where σ = 0; of (x − x̄)/√(σ² + ε) with
    eps_mode "inside". (T-standardize-jacobian)

    ValueError unless ε > 0, for an unknown mode and for an empty row.
    """
    expects_one_of("eps_mode", eps_mode, ("outside", "inside"))
    wanted = "a number > 0: without it there is no derivative at a constant row"
    expects(eps > 0, "eps", eps, wanted)
    expects(len(x) >= 1, "x", "no number", "at least one")
    d = len(x)
    u = x - x[0]  # in floating point, too, exactly 0 for a constant row
    u = u - u.mean()
    sigma = np.sqrt(np.mean(u**2))
    s = sigma + eps if eps_mode == "outside" else np.sqrt(sigma**2 + eps)
    below = d * s * (sigma if eps_mode == "outside" else s)
    bent = np.outer(u, u) / below if sigma > 0 else 0.0
    return (np.eye(d) - bent) @ (np.eye(d) - 1 / d) / s


@shaped
def central_difference(
    f: Callable[..., Any], x: Float[np.ndarray, "d"], h: float = 1e-5
) -> Float[np.ndarray, "..."]:
    """The matrix of ∂f_i/∂x_j by (f(x + h e_j) − f(x − h e_j)) / 2h; a row for real f.

    >>> central_difference(lambda x: x[0] * x[1], np.array([2.0, 3.0])).round(6)
    array([3., 2.])
    """
    columns = [(f(x + h * e) - f(x - h * e)) / (2 * h) for e in np.eye(len(x))]
    return np.stack(columns, axis=-1)


# --- Backwards through the block


Array = np.ndarray


@shaped
def linear_backward(
    dY: Float[Array, "n o"], X: Float[Array, "n i"], W: Float[Array, "i o"]
) -> tuple[Float[Array, "n i"], Float[Array, "i o"], Float[Array, "o"]]:
    """X̄ = ȲWᵀ, W̄ = XᵀȲ, b̄ = 1ᵀȲ for Y = XW + 1b. (T-backward-linear)

    ValueError for shapes that do not fit.

    >>> one = lambda number: np.array([[number]])
    >>> [gradient.item() for gradient in linear_backward(one(12.0), one(3.0), one(2.0))]
    [24.0, 36.0, 12.0]
    """
    return dY @ W.T, X.T @ dY, dY.sum(axis=0)


@shaped
def layer_norm_backward(
    dY: Float[Array, "n d"],
    X: Float[Array, "n d"],
    a: Float[Array, "d"],
    eps: float = 1e-6,
    eps_mode: str = "outside",
) -> tuple[Float[Array, "n d"], Float[Array, "d"], Float[Array, "d"]]:
    """X̄, ā, b̄ for Y = a ⊙ std(X) + b, row by row; ε outside the root or inside it.
    (T-backward-rowwise)

    ValueError for shapes that do not fit.
    """
    S = np.stack([standardize(x, eps, eps_mode) for x in X])
    J = [standardize_jacobian(x, eps, eps_mode) for x in X]
    dX = np.stack([(a * dy) @ J_i for dy, J_i in zip(dY, J)])
    return dX, (dY * S).sum(axis=0), dY.sum(axis=0)


@shaped
def activation_derivative(
    Z: Float[Array, "..."], activation: str = "relu"
) -> Float[Array, "..."]:
    """φ′(Z), entry by entry; for ReLU the value at 0 is chosen to be 0.
    (T-backward-rowwise, W-relu-derivative)

    ValueError for an activation other than "relu", "gelu", "gelu_tanh".
    """
    expects_one_of("activation", activation, ("relu", "gelu", "gelu_tanh"))
    if activation == "relu":
        return (Z > 0).astype(float)
    if activation == "gelu":
        Phi = (1 + np.vectorize(math.erf, otypes=[float])(Z / math.sqrt(2))) / 2
        return Phi + Z * np.exp(-(Z**2) / 2) / math.sqrt(2 * math.pi)
    c = math.sqrt(2 / math.pi)
    t = np.tanh(c * (Z + 0.044715 * Z**3))
    return (1 + t) / 2 + Z / 2 * (1 - t**2) * c * (1 + 3 * 0.044715 * Z**2)


@shaped
def feed_forward_backward(
    dY: Float[Array, "n d"],
    X: Float[Array, "n d"],
    W_1: Float[Array, "d f"],
    b_1: Float[Array, "f"],
    W_2: Float[Array, "f d"],
    b_2: Float[Array, "d"],
    activation: str = "relu",
) -> tuple[Float[Array, "n d"], dict[str, Array]]:
    """X̄ and the derivatives with respect to the weights, by name, for Y = φ(XW_1 +
    1b_1)W_2 + 1b_2. (T-backward-linear, T-backward-rowwise)

    ValueError for shapes that do not fit and as in `activation_derivative`.
    """
    Z = X @ W_1 + b_1
    slope = activation_derivative(Z, activation)
    dH, dW_2, db_2 = linear_backward(dY, FORMULAS[activation](Z), W_2)
    dZ = dH * slope
    dX, dW_1, db_1 = linear_backward(dZ, X, W_1)
    return dX, {"W_1": dW_1, "b_1": db_1, "W_2": dW_2, "b_2": db_2}


@shaped
def attention_backward(
    dO: Float[Array, "n v"],
    Q: Float[Array, "n k"],
    K: Float[Array, "m k"],
    V: Float[Array, "m v"],
    causal: bool = True,
    scale: float | None = None,
) -> tuple[Float[Array, "n k"], Float[Array, "m k"], Float[Array, "m v"]]:
    """Q̄, K̄, V̄ for O = softmax(◺(c QKᵀ))V, with c = 1/√k unless `scale` is given.
    (T-backward-attention)

    ValueError for shapes that do not fit.
    """
    c = 1 / math.sqrt(Q.shape[1]) if scale is None else scale
    A = attention_pattern(Q, K, causal, scale)
    dA = dO @ V.T
    r = (A * dA).sum(axis=1, keepdims=True)
    dS = A * (dA - r)
    return c * dS @ K, c * dS.T @ Q, A.T @ dO


@shaped
def multi_head_backward(
    dY: Float[Array, "n d"],
    X: Float[Array, "n d"],
    W_Q: Float[Array, "h d k"],
    W_K: Float[Array, "h d k"],
    W_V: Float[Array, "h d v"],
    W_O: Float[Array, "hv d"],
    b_O: Float[Array, "d"],
    causal: bool = True,
    scale: float | None = None,
) -> tuple[Float[Array, "n d"], dict[str, Array]]:
    """X̄ and the derivatives of the five weights for Y = [H_0, …, H_{h−1}]W_O + 1b_O.
    (T-backward-block)
    """
    H = np.concatenate(heads(X, W_Q, W_K, W_V, causal=causal, scale=scale), axis=1)
    dH, dW_O, db_O = linear_backward(dY, H, W_O)
    separate = {"W_Q": W_Q, "W_K": W_K, "W_V": W_V}
    weights = {name: np.zeros_like(W) for name, W in separate.items()}
    dX = np.zeros_like(X)
    for i, dO in enumerate(np.split(dH, len(W_Q), axis=1)):
        Q, K, V = (X @ W[i] for W in separate.values())
        back = attention_backward(dO, Q, K, V, causal, scale)
        for (name, W), dP in zip(separate.items(), back):
            from_here, weights[name][i], _ = linear_backward(dP, X, W[i])
            dX = dX + from_here  # X is used three times by each head
    return dX, {**weights, "W_O": dW_O, "b_O": db_O}


@shaped
def block_backward(
    dY: Float[Array, "n d"],
    X: Float[Array, "n d"],
    w: Mapping[str, Mapping[str, Any]],
    activation: str = "relu",
    eps: float = 1e-6,
    eps_mode: str = "outside",
) -> tuple[Float[Array, "n d"], dict[str, dict[str, Array]]]:
    """X̄ and the derivatives of all weights of Wojcik's block, in the form of its
    weights `w`. (T-backward-block)
    """
    N1 = layer_norm(X, **w["N_ca"], eps=eps, eps_mode=eps_mode)
    M = X + multi_head(N1, **w["CA"])
    N2 = layer_norm(M, **w["N_ff"], eps=eps, eps_mode=eps_mode)
    # … and back, in reverse order
    dN2, dFF = feed_forward_backward(dY, N2, **w["FF"], activation=activation)
    a1, a2 = w["N_ca"]["a"], w["N_ff"]["a"]
    from_ff, da2, db2 = layer_norm_backward(dN2, M, a2, eps, eps_mode)
    dM = dY + from_ff
    dN1, dCA = multi_head_backward(dM, N1, **w["CA"])
    from_ca, da1, db1 = layer_norm_backward(dN1, X, a1, eps, eps_mode)
    norms = {"N_ca": {"a": da1, "b": db1}, "N_ff": {"a": da2, "b": db2}}
    return dM + from_ca, {**norms, "CA": dCA, "FF": dFF}

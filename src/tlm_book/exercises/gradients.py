"""Graders for the exercises of the chapter gradients."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tlm_book.exercises.grading import call, function, holds, value
from tlm_book.spec.decoder_block import decoder_block
from tlm_book.spec.feed_forward import feed_forward
from tlm_book.spec.gradients import (
    block_backward,
    central_difference,
    feed_forward_backward,
    layer_norm_backward,
    linear_backward,
    multi_head_backward,
    softmax_jacobian,
    standardize_jacobian,
)
from tlm_book.spec.multi_head import multi_head
from tlm_book.spec.normalization import layer_norm


def flat(direction: Any) -> Iterator[tuple[str, object]]:
    for m in (5, 1, 2, 9):
        v = np.asarray(call(direction, m, names=["m"]), dtype=float)
        yield f"It has shape {v.shape}; a row of m numbers is wanted (m = {m}).", v.shape == (m,)
        yield "0 is not a direction.", np.abs(v).max() > 1e-9
        for seed in range(3):
            a = np.random.default_rng(seed).normal(size=m)
            yield f"softmax changes in this direction (m = {m}).", np.abs(softmax_jacobian(a) @ v).max() < 1e-9 * np.abs(v).max()


def forgotten(answer: Any) -> Iterator[tuple[str, object]]:
    for seed, d in enumerate((5, 3, 8)):
        x = np.random.default_rng(seed).normal(size=d)
        for words, eps in (("ε > 0", 0.3), ("ε = 0", 0.0)):
            H = np.asarray(call(answer, x, eps, names=["x", "eps"]), dtype=float)
            yield f"The result has shape {H.shape}; each direction is a row of {d} numbers.", H.ndim == 2 and H.shape[1] == d
            J = standardize_jacobian(x, eps or 1e-13)
            yield f"For {words} one of them is not sent to zero.", np.abs(J @ H.T).max() < 1e-8 * max(1.0, np.abs(H).max())
            yield f"For {words} they are not independent.", np.linalg.matrix_rank(H, tol=1e-9) == len(H)
            yield f"For {words} there are more.", len(H) == d - np.linalg.matrix_rank(J, tol=1e-8)


def steps(best: Any) -> Iterator[tuple[str, object]]:
    for dtype in (np.float64, np.float32):
        u = float(np.finfo(dtype).eps) / 2
        h = float(call(best, u, names=["u"]))
        yield f"For u = {u:.1g} it is {h:.1g}, which is not a small positive number.", 0 < h < 0.5
        error = lambda h: u / h + h * h / 6
        least = min(error(10.0**e) for e in np.arange(-16, 0, 0.1))
        small = "small: the rounding error of f, divided by h, is too large" if u / h > h * h / 6 else "large: the formula's own error is too large"
        yield f"For u = {u:.1g}, h = {h:.1g} is too {small}.", error(h) < 3 * least


ACTIVATIONS: dict[str, Callable[[float], float]] = {
    "relu": lambda x: max(x, 0.0), "leaky relu": lambda x: max(x, x / 10), "relu squared": lambda x: max(x, 0.0) ** 2, "tanh": np.tanh,
    "softplus": lambda x: np.logaddexp(0, x), "gelu": lambda x: x / (1 + np.exp(-1.702 * x)), "absolute value": abs,
}


def smooth() -> set[str]:
    """The functions whose slope has no jump at 0, the only place where one of these could have a corner."""
    h = 1e-6
    return {name for name, f in ACTIVATIONS.items() if abs((f(h) - f(0.0)) / h - (f(0.0) - f(-h)) / h) < 1e-3}


def some_block(rng: np.random.Generator, n: int) -> tuple[Any, ...]:
    draw = lambda *shape: rng.normal(size=shape) / np.sqrt(shape[-1])
    norm = lambda: {"a": 1 + draw(4), "b": draw(4)}
    w = {"N_ca": norm(), "N_ff": norm(), "FF": {"W_1": draw(4, 5), "b_1": draw(5), "W_2": draw(5, 4), "b_2": draw(4)},
         "CA": {"W_Q": draw(2, 4, 3), "W_K": draw(2, 4, 3), "W_V": draw(2, 4, 3), "W_O": draw(6, 4), "b_O": draw(4)}}
    return rng.normal(size=(n, 4)), rng.normal(size=(n, 4)), w


def by_differences(dY: np.ndarray, X: np.ndarray, w: Any) -> np.ndarray:
    f = lambda x: (dY * decoder_block(x.reshape(X.shape), w, norm="post")).sum()
    return central_difference(f, X.ravel(), h=1e-6).reshape(X.shape)


def backward(ff_residual: int = 1, ca_residual: int = 1, at_sum: bool = True) -> Callable[..., np.ndarray]:
    """A wrong backward pass of a post-norm block: a residual path left out, or a normalization evaluated at its output."""
    def f(dY: np.ndarray, X: np.ndarray, w: Any) -> np.ndarray:
        S1 = X + multi_head(X, **w["CA"])
        M = layer_norm(S1, **w["N_ca"])
        S2 = M + feed_forward(M, **w["FF"])
        dS2 = layer_norm_backward(dY, S2 if at_sum else layer_norm(S2, **w["N_ff"]), w["N_ff"]["a"])[0]
        dM = ff_residual * dS2 + feed_forward_backward(dS2, M, **w["FF"])[0]
        dS1 = layer_norm_backward(dM, S1 if at_sum else M, w["N_ca"]["a"])[0]
        return ca_residual * dS1 + multi_head_backward(dS1, X, **w["CA"])[0]
    return f


CHANGES = {  # changes of `block_backward` and what it calls: {change: whether the derivatives stay the same}
    "the mask put on S̄ once more": True, "r left out": False, "heads in reverse order": True, "M computed anew, not kept": True,
    "the residual paths left out": False, "derivatives of queries, keys and values averaged, not added": False,
}

EXERCISES = [
    holds(
        "a function `direction(m)` that returns a direction other than 0, a row of m numbers, in which softmax never changes",
        flat,
        [lambda m: np.zeros(m), lambda m: np.eye(m)[0], lambda m: np.arange(m) + 1.0, lambda m: np.ones((m, 1)),
         lambda m: np.where(np.arange(m) % 2, -1.0, 1.0)],
    ),
    holds(
        "a function `forgotten(x, eps)` that returns an array of as many independent such rows as there are, for a row x that is not constant",
        forgotten,
        [lambda x, eps: np.ones((1, len(x))), lambda x, eps: np.stack([np.ones(len(x)), x - x.mean()]),
         lambda x, eps: np.stack([x - x.mean()]), lambda x, eps: np.ones((2, len(x))), lambda x, eps: np.ones(len(x))],
    ),
    holds(
        "a function `best(u)`: a good h for numbers that are rounded with a relative error of u (1.1e-16 in float64, 6e-8 in float32)",
        steps,
        [lambda u: 1e-5, lambda u: np.sqrt(u), lambda u: u, lambda u: u ** (1 / 6), lambda u: 1e-12],
    ),
    value(
        "the set of those of " + ", ".join(f'"{name}"' for name in ACTIVATIONS) + " for which Z can be empty",
        smooth,
        {
            "The square meets the half-line with slope 0: there is no corner.": {"tanh", "softplus", "gelu"},
            "A small slope is still a different slope: there is a corner.": {"tanh", "softplus", "gelu", "relu squared", "leaky relu"},
            "Softplus is a ReLU with its corner rounded off.": {"tanh", "gelu", "relu squared"},
            "These are the ones with corners.": {"relu", "leaky relu", "absolute value"},
        },
    ),
    function(
        "a function `post_norm_backward(dY, X, w)` that returns the derivative with respect to X; w is as for `decoder_block`, and the activation is"
        " ReLU",
        some_block,
        by_differences,
        {
            "The path around the feed-forward layer is missing.": backward(ff_residual=0),
            "The path around attention is missing.": backward(ca_residual=0),
            "A normalization's derivative is taken at its output, not at its input.": backward(at_sum=False),
            "This is the pre-norm block, with the normalizations inside the sums.": lambda dY, X, w: block_backward(dY, X, w)[0],
        },
        tol=1e-4,
    ),
    value(
        "the triple of arrays $\\bar X$ (1 × 2), $\\bar W$ (2 × 2) and $\\bar b$ (length 2)",
        lambda: linear_backward(np.array([[2.0, 5.0]]), np.array([[1.0, 2.0]]), np.array([[1.0, -1.0], [2.0, 0.0]])),
        {
            "What comes back is (Y_01, Y_00): the derivative of a product with respect to one factor is the other.": (
                np.array([[3.0, 10.0]]), np.array([[5.0, 2.0], [10.0, 4.0]]), np.array([5.0, 2.0])),
            "X̄ is ȲWᵀ: the matrix is transposed on the way back.": (np.array([[12.0, -2.0]]), np.array([[2.0, 5.0], [4.0, 10.0]]), np.array([2.0, 5.0])),
            "W̄ is XᵀȲ, and this is its transpose.": (np.array([[-3.0, 4.0]]), np.array([[2.0, 4.0], [5.0, 10.0]]), np.array([2.0, 5.0])),
        },
    ),
    value(
        "the 2 × 2 matrix $Df(x)$",
        lambda: standardize_jacobian(np.array([1.0, 3.0]), eps=1.0),
        {
            "This is the formula without its second term: σ changes with x, too.": np.array([[1.0, -1.0], [-1.0, 1.0]]) / 4,
            "ε stands outside the root here.": standardize_jacobian(np.array([1.0, 3.0]), 1.0, "inside"),
            "With ε = 0 every row near this one is standardized to (−1, 1). But ε is 1.": np.zeros((2, 2)),
        },
    ),
    function(
        "a function `gradient_at(G, c)`: the gradient at cW, if the gradient at W is G",
        lambda rng, n: (rng.normal(size=(n, 2)), float(rng.uniform(0.5, 3))),
        lambda G, c: G / c,
        {
            "The loss stays the same, but a step of the same length means less to a larger matrix: the gradient changes.": lambda G, c: G,
            "It is the other way round: the larger the weights, the smaller the gradient.": lambda G, c: c * G,
            "One factor of c is enough.": lambda G, c: G / c**2,
        },
    ),
    value(
        "the set of those of " + ", ".join(f'"{name}"' for name in CHANGES) + " that change nothing",
        lambda: {name for name, harmless in CHANGES.items() if harmless},
        {
            "Where the mask cuts, the weight is 0, and S̄ has the weight as a factor.": {"heads in reverse order", "M computed anew, not kept"},
            "M is the same whether it was kept or is computed a second time. (Large models do the latter to save memory.)": {
                "the mask put on S̄ once more", "heads in reverse order"},
            "r subtracts the mean: without it a bias in the keys would get a derivative.": {
                "the mask put on S̄ once more", "heads in reverse order", "M computed anew, not kept", "r left out"},
            "These are the changes that break something.": {name for name, harmless in CHANGES.items() if not harmless},
        },
    ),
]

"""Optimization. Generated from book/optimization.ipynb: edit the notebook, then `make export`."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from tlm_book.checks import expects, expects_positive

__all__ = [
    "sharpness",
]


# --- On a real loss


def _inner(a: Sequence[Tensor], b: Sequence[Tensor]) -> Tensor:
    return torch.stack([(x * y).sum() for x, y in zip(a, b)]).sum()


_grad = partial(torch.autograd.grad, materialize_grads=True)  # 0 for an unused weight


def sharpness(
    loss: Callable[[], Tensor],
    weights: Sequence[Tensor],
    iterations: int = 20,
    start: Sequence[Tensor] | None = None,
) -> tuple[float, list[Tensor]]:
    """The curvature of loss() that is largest in size, and its direction, of length 1,
    by power iteration on Hessian-vector products from `start` or from a fixed
    random vector. (T-sharpness)

    The weights are left as they are; those that the loss does not use count as
    directions without curvature. Without any curvature, 0 and the starting direction.
    ValueError for no weights, no iterations, and a start that is 0 or has other shapes.
    """
    expects(len(weights) > 0, "weights", "none", "at least one")
    expects_positive(iterations=iterations)
    random = torch.Generator().manual_seed(0)
    v: Sequence[Tensor] = start or [
        torch.randn(w.shape, generator=random, device="cpu").to(w) for w in weights
    ]
    got, shapes = ([tuple(x.shape) for x in some] for some in (v, weights))
    fits = got == shapes and bool(_inner(v, v) > 0)
    expects(fits, "start", f"shapes {got}", f"{shapes}, and not all numbers 0")
    with sdpa_kernel(SDPBackend.MATH):  # the fast attention has no second derivative
        gradient = _grad(loss(), weights, create_graph=True)
    for _ in range(iterations):
        length = _inner(v, v).sqrt()
        if length == 0:  # the last u is a direction without curvature
            break
        u = [x / length for x in v]
        if not any(x.requires_grad for x in gradient):  # it is the same everywhere
            return 0.0, u
        v = _grad(_inner(gradient, u), weights, retain_graph=True)
    return float(_inner(u, v)), u

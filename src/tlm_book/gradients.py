"""Where the loss has a gradient. Generated from book/gradients.ipynb: edit the notebook, then `make export`."""

import math
from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tlm_book.checks import expects

__all__ = [
    "directional_derivatives",
]


# --- Almost every point


def directional_derivatives(
    model: nn.Module, loss: Callable[[], Tensor], seed: int = 0, h: float = 1e-6
) -> tuple[float, float]:
    """The derivative of loss() in one random direction: by autograd, by differences.

    With weights θ and a direction v of length 1 the second is (f(θ+hv) − f(θ−hv)) / 2h.
    For float64 weights away from corners the two agree to about seven digits. The
    weights are left as they were, even if loss() fails. ValueError if no weight requires
    a gradient, or unless h > 0.
    (W-ae-differentiable)
    """
    weights = [p for p in model.parameters() if p.requires_grad]
    expects(
        len(weights) > 0,
        "model",
        "no weight that requires a gradient",
        "at least one",
    )
    expects(h > 0, "h", h, "a number > 0")
    random = torch.Generator().manual_seed(seed)
    draw = partial(
        torch.randn, generator=random, dtype=torch.float64, device="cpu"
    )
    direction = [draw(p.shape).to(p) for p in weights]
    length = math.sqrt(sum(float((v**2).sum()) for v in direction))
    gradient = torch.autograd.grad(loss(), weights, allow_unused=True)
    products = [(g * v).sum() for g, v in zip(gradient, direction) if g is not None]
    by_autograd = sum(products) / length

    values, kept = [], [p.detach().clone() for p in weights]
    with torch.no_grad():
        try:
            for sign in (1, -1):
                for p, start, v in zip(weights, kept, direction):
                    p.copy_(start + sign * h / length * v)
                values.append(loss().item())
        finally:
            for p, start in zip(weights, kept):
                p.copy_(start)
    return float(by_autograd), (values[0] - values[1]) / (2 * h)

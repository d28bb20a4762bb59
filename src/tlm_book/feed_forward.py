"""The feed-forward layer. Generated from book/feed_forward.ipynb: edit the notebook, then `make export`."""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tlm_book.checks import expects_one_of, expects_positive, expects_shape
from tlm_book.derivation import (
    Derivation,
    Kind,
    compose,
    derive,
    primitive,
    register_rule,
)

__all__ = [
    "ACTIVATIONS",
    "FeedForward",
]


# --- The bend


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}


# --- The feed-forward layer of a transformer


class FeedForward(nn.Module):
    """FF(X) = activation(XA + 1k) B + 1l, the same for every row. (W-ff-def)

    x: (*batch, d_model), result of the same shape; `up` holds A and k, `down` holds
    B and l. ValueError for sizes below 1 or an unknown activation.
    """

    def __init__(self, d_model: int, d_ff: int, activation: str = "relu") -> None:
        super().__init__()
        expects_positive(d_model=d_model, d_ff=d_ff)
        expects_one_of("activation", activation, tuple(ACTIVATIONS))
        self.up = nn.Linear(d_model, d_ff)
        self.down = nn.Linear(d_ff, d_model)
        self.activation = activation

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        expects_shape("x", x, (self.up.in_features,))
        return self.down(ACTIVATIONS[self.activation](self.up(x)))

    def spec_weights(self) -> dict[str, np.ndarray]:
        """{"A", "k", "B", "l"} as float64 arrays, for
        `spec.feed_forward.feed_forward`."""
        up, down = self.up, self.down
        weights = {"A": up.weight.T, "k": up.bias, "B": down.weight.T, "l": down.bias}
        return {k: w.detach().double().cpu().numpy() for k, w in weights.items()}


# --- The layer in torch


@register_rule(FeedForward)
def _feed_forward(module: FeedForward) -> Derivation:
    activation = primitive(module.activation, Kind.ROWWISE, "entry by entry")
    return compose("FF", derive(module.up), activation, derive(module.down))

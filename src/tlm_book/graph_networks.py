"""Networks on graphs. Generated from book/graph_networks.ipynb: edit the notebook, then `make export`."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tlm_book.checks import expects, expects_one_of, expects_positive, expects_shape
from tlm_book.derivation import (
    Derivation,
    Kind,
    compose,
    derive,
    primitive,
    register_rule,
)
from tlm_book.feed_forward import ACTIVATIONS

__all__ = [
    "MLP",
]


# --- Layers: the graph becomes matrices


class MLP(nn.Module):
    """z⁽ᴸ⁾ of a layered network, for every row: affine maps with activations
    between them.
    (B-mlp-preact, B-mlp-function)

    `widths` are n_0, …, n_L. x: (*batch, n_0) → (*batch, n_L). TypeError or
    ValueError for fewer than two widths, widths below 1, an unknown activation or
    another input width.

    >>> MLP([3, 8, 8, 2])(torch.zeros(5, 3)).shape
    torch.Size([5, 2])
    """

    def __init__(self, widths: Sequence[int], activation: str = "relu") -> None:
        super().__init__()
        expects(len(widths) >= 2, "widths", list(widths), "two widths or more")
        for number, width in enumerate(widths):
            expects_positive(**{f"widths[{number}]": width})
        expects_one_of("activation", activation, tuple(ACTIVATIONS))
        self.n_in = widths[0]
        self.steps = nn.ModuleList(map(nn.Linear, widths[:-1], widths[1:]))
        self.activation = activation

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d_out"]:
        first, *rest = self.steps
        expects_shape("x", x, (self.n_in,))
        z = first(x)
        for step in rest:
            z = step(ACTIVATIONS[self.activation](z))
        return z


# --- Layered networks in torch


@register_rule(MLP)
def _mlp(module: MLP) -> Derivation:
    first, *rest = map(derive, module.steps)
    bend = primitive(module.activation, Kind.ROWWISE, "entry by entry")
    return compose("MLP", first, *(part for step in rest for part in (bend, step)))

"""Networks on graphs. Generated from book/graph_networks.ipynb: edit the notebook, then `make export`."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from tlm_book.arrays import as_float64
from tlm_book.checks import (
    expects,
    expects_floats,
    expects_length,
    expects_one_of,
    expects_positive,
    expects_shape,
)
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
    "PositionalNetwork",
]


# --- Layers: the graph becomes matrices


class MLP(nn.Module):
    """z⁽ᴸ⁾ of a layered network, for every row: affine maps with activations
    between them.
    (B-mlp-preact, B-mlp-function)

    `widths` are whole numbers n_0, …, n_L. x: (*batch, n_0) → (*batch, n_L). TypeError
    or ValueError for fewer than two widths, widths below 1, an unknown activation or
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


# --- The feed-forward layer as a network


@register_rule(MLP)
def _mlp(module: MLP) -> Derivation:
    first, *rest = map(derive, module.steps)
    bend = primitive(module.activation, Kind.ROWWISE, "entry by entry")
    return compose("MLP", first, *(part for step in rest for part in (bend, step)))


# --- For the curious: content and place in one network


class PositionalNetwork(nn.Module):
    """Content and place blended by a ReLU network of width d_hidden, or by two.

    `form`: "joint", ReLU(x W_x + W_e[p]) W_z (A-gehring-joint), or "sum",
    ReLU(x W_x) W_zx + ReLU(W_e[p]) W_ze (A-gehring-sum). All weights are trainable.

    x: (…, n, d_model) → the same shape. ValueError for n = 0, n > max_len, another
    width or, at construction, an unknown form; TypeError if x does not hold floating
    point numbers.

    >>> PositionalNetwork(10, 4, d_hidden=8)(torch.zeros(2, 3, 4)).shape
    torch.Size([2, 3, 4])
    """

    def __init__(
        self, max_len: int, d_model: int, d_hidden: int, form: str = "joint"
    ) -> None:
        super().__init__()
        expects_positive(max_len=max_len, d_model=d_model, d_hidden=d_hidden)
        expects_one_of("form", form, ("joint", "sum"))
        self.max_len, self.d_model, self.form = max_len, d_model, form
        self.W_x = nn.Parameter(torch.randn(d_model, d_hidden) / d_model**0.5)
        self.W_e = nn.Parameter(torch.randn(max_len, d_hidden))
        back = (d_hidden, d_model)
        if form == "joint":
            self.W_z = nn.Parameter(torch.randn(back) / d_hidden**0.5)
        else:
            self.W_zx = nn.Parameter(torch.randn(back) / d_hidden**0.5)
            self.W_ze = nn.Parameter(torch.randn(back) / d_hidden**0.5)

    def forward(self, x: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n d"]:
        expects_floats("x", x)
        expects_shape("x", x, ("n", self.d_model))
        n = x.shape[-2]
        expects_length("x", n, self.max_len)
        content, place = x @ self.W_x, self.W_e[:n]  # (…, n, k), (n, k)
        if self.form == "joint":
            return (content + place).relu() @ self.W_z
        return content.relu() @ self.W_zx + place.relu() @ self.W_ze

    def spec_weights(self) -> dict[str, np.ndarray]:
        """The weights as float64 arrays, named as in `spec.graph_networks`."""
        weights = dict(self.named_parameters())
        return {k: as_float64(W) for k, W in weights.items()}


@register_rule(PositionalNetwork)
def _positional_network(module: PositionalNetwork) -> Derivation:
    return primitive(
        "positional network",
        Kind.INDEXED_ROWWISE,
        "a network on row i and the number i",
    )

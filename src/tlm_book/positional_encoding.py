"""Where a token stands: positional encoding. Generated from book/positional_encoding.ipynb: edit the notebook, then `make export`."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from tlm_book.checks import (
    expects,
    expects_length,
    expects_one_of,
    expects_positive,
    expects_shape,
)
from tlm_book.derivation import Derivation, Kind, primitive, register_rule

KINDS = ("learned_from_sinusoid", "sinusoidal", "learned", "none")
FORMS = ("joint", "sum")

__all__ = [
    "KINDS",
    "FORMS",
    "PositionalEncoding",
    "PositionalNetwork",
    "sinusoidal_table",
]


# --- The layer: add the first rows of a table


class PositionalEncoding(nn.Module):
    """PE(X) = X + P[:n]. (W-pe-layer-def)

    `kind`: "learned_from_sinusoid" (trainable, starts as the sinusoid: the article),
    "sinusoidal" (fixed), "learned" (trainable, starts as normal random numbers of
    standard deviation 0.02), "none" (X unchanged). The row `table[p]` belongs to row
    p of the input; for the sinusoid it holds position `start` + p. The table is made
    in torch's default dtype.

    x: (…, n, d_model) → the same shape. ValueError for n = 0, n > max_len or another
    width, and, at the making, for an unknown kind or a sinusoid of odd width;
    TypeError when x holds no floating point numbers.

    >>> PositionalEncoding(max_len=10, d_model=4)(torch.zeros(2, 3, 4)).shape
    torch.Size([2, 3, 4])
    """

    def __init__(
        self,
        max_len: int,
        d_model: int,
        kind: str = "learned_from_sinusoid",
        start: int = 1,
    ) -> None:
        super().__init__()
        expects_positive(max_len=max_len, d_model=d_model)
        expects_one_of("kind", kind, KINDS)
        self.max_len, self.d_model, self.kind = max_len, d_model, kind
        if kind == "none":
            table = torch.zeros(max_len, 0)
        elif kind == "learned":
            table = 0.02 * torch.randn(max_len, d_model)
        else:
            table = sinusoidal_table(max_len, d_model, start)
            table = table.to(torch.get_default_dtype())
        if kind in ("learned", "learned_from_sinusoid"):
            self.table = nn.Parameter(table)
        else:
            self.register_buffer("table", table, persistent=False)

    def forward(self, x: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n d"]:
        n = _checked_rows(x, self.max_len, self.d_model)
        return x if self.kind == "none" else x + self.table[:n]

    def spec_weights(self) -> dict[str, np.ndarray]:
        """{"P": table} as float64, for `spec.positional_encoding.add_positions`; of
        width 0 for the kind "none"."""
        return {"P": self.table.detach().double().cpu().numpy()}


# --- A small network for content and place


class PositionalNetwork(nn.Module):
    """Content and place blended by a ReLU network of width d_hidden.

    `form`: "joint", ReLU(x W_x + W_e[p]) W_z (A-gehring-joint), or "sum",
    ReLU(x W_x) W_zx + ReLU(W_e[p]) W_ze (A-gehring-sum). All weights are trainable.

    x: (…, n, d_model) → the same shape. ValueError for n = 0, n > max_len, another
    width or, at the making, an unknown form; TypeError when x holds no floating point
    numbers.

    >>> PositionalNetwork(10, 4, d_hidden=8)(torch.zeros(2, 3, 4)).shape
    torch.Size([2, 3, 4])
    """

    def __init__(
        self, max_len: int, d_model: int, d_hidden: int, form: str = "joint"
    ) -> None:
        super().__init__()
        expects_positive(max_len=max_len, d_model=d_model, d_hidden=d_hidden)
        expects_one_of("form", form, FORMS)
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
        n = _checked_rows(x, self.max_len, self.d_model)
        content, place = x @ self.W_x, self.W_e[:n]  # (…, n, k), (n, k)
        if self.form == "joint":
            return (content + place).relu() @ self.W_z
        return content.relu() @ self.W_zx + place.relu() @ self.W_ze

    def spec_weights(self) -> dict[str, np.ndarray]:
        """The weights as float64, named as in `spec.positional_encoding`."""
        weights = dict(self.named_parameters())
        return {k: W.detach().double().cpu().numpy() for k, W in weights.items()}


# --- The table of sines and cosines


def sinusoidal_table(
    max_len: int, d_model: int, start: int = 1, base: float = 10000.0
) -> Float[Tensor, "M d"]:
    """The table of sines and cosines in float64: row p holds position start + p.
    (W-pe-formula-def)

    ValueError when d_model is odd.

    >>> sinusoidal_table(100, 6).shape
    torch.Size([100, 6])
    """
    expects_positive(max_len=max_len, d_model=d_model)
    expects(
        d_model % 2 == 0,
        "d_model",
        d_model,
        "an even width: each sine needs its cosine",
    )
    position = torch.arange(start, start + max_len, dtype=torch.float64)
    frequency = base ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angle = position[:, None] * frequency  # (M, d/2)
    # sin and cos side by side: (M, d)
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)


# --- The layer in torch


def _checked_rows(x: Float[Tensor, "*batch n d"], max_len: int, d_model: int) -> int:
    """The number of rows n of x: (…, n, d_model), floating point, 1 ≤ n ≤ max_len."""
    wants = "floating point rows, not tokens"
    expects(x.is_floating_point(), "x", f"dtype {x.dtype}", wants, TypeError)
    expects_shape("x", x, ("n", d_model))
    expects_length("x", x.shape[-2], max_len)
    return x.shape[-2]


# --- What derivations may use


@register_rule(PositionalEncoding)
def _positional_encoding(module: PositionalEncoding) -> Derivation:
    if module.kind == "none":
        return primitive("PE", Kind.ROWWISE, "identity")
    return primitive("PE", Kind.INDEXED_ROWWISE, "adds row i of a table to row i")


@register_rule(PositionalNetwork)
def _positional_network(module: PositionalNetwork) -> Derivation:
    return primitive(
        "positional network",
        Kind.INDEXED_ROWWISE,
        "a network on row i and the number i",
    )

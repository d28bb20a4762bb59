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
from tlm_book.operators import Derivation, Kind, derives, primitive

KINDS = ("learned_from_sinusoid", "sinusoidal", "learned", "none")

__all__ = [
    "KINDS",
    "sinusoidal_table",
    "PositionalEncoding",
]


# positional_encoding: The layer in torch
def sinusoidal_table(
    max_len: int, d_model: int, start: int = 1, base: float = 10000.0
) -> Float[Tensor, "M d"]:
    """The table of sines and cosines in float64: row p holds position start + p.
    (W-pe-formula-def)

    ValueError when d_model is odd.

    >>> sinusoidal_table(100, 6).shape
    torch.Size([100, 6])

    Chapter: positional_encoding.
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


# positional_encoding: The layer in torch
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

    Chapter: positional_encoding.
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
            table = sinusoidal_table(max_len, d_model, start).to(
                torch.get_default_dtype()
            )
        if kind in ("learned", "learned_from_sinusoid"):
            self.table = nn.Parameter(table)
        else:
            self.register_buffer("table", table, persistent=False)

    def forward(self, x: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n d"]:
        expects(
            x.is_floating_point(),
            "x",
            f"dtype {x.dtype}",
            "floating point rows, not tokens",
            TypeError,
        )
        expects_shape("x", x, ("n", self.d_model))
        n = x.shape[-2]
        expects_length("x", n, self.max_len)
        return x if self.kind == "none" else x + self.table[:n]

    def spec_weights(self) -> dict[str, np.ndarray]:
        """{"P": table} as float64, for `spec.positional_encoding.add_positions`; of
        width 0 for the kind "none"."""
        return {"P": self.table.detach().double().cpu().numpy()}


# positional_encoding: The layer in torch
@derives(PositionalEncoding)
def _positional_encoding(module: PositionalEncoding) -> Derivation:
    if module.kind == "none":
        return primitive("PE", Kind.ROWWISE, "identity")
    return primitive("PE", Kind.INDEXED_ROWWISE, "adds row i of a table to row i")

"""Normalization. Generated from book/normalization.ipynb: edit the notebook, then `make export`."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tlm_book.arrays import as_float64
from tlm_book.checks import (
    expects,
    expects_floats,
    expects_numbers,
    expects_one_of,
    expects_positive,
    expects_shape,
)
from tlm_book.derivation import Derivation, Kind, primitive, register_rule

EPS_MODES = ("outside", "inside", "none")

__all__ = [
    "EPS_MODES",
    "Normalization",
    "RMSNorm",
]


# --- Layer norm


class Normalization(nn.Module):
    """N(X) = a ⊙ (X − mean) / (σ + ε) + b, row by row. (W-normalize-def,
    W-norm-layer)

    `eps_mode`: "outside" divides by σ + ε (Wojcik), "inside" by √(σ² + ε)
    (torch's LayerNorm), "none" by σ. The parameters `weight` (a) and `bias` (b)
    start as ones and zeros.

    x: (…, d_model) → the same shape and dtype; half precision is computed in
    float32. A constant row gives b, with a finite gradient; in the mode "none", or
    with eps = 0, it gives NaN. ValueError for another width, an unknown mode or a
    negative eps; TypeError if x does not hold floating point numbers.

    >>> Normalization(5)(torch.tensor([2.0, 4.0, 6.0, 10.0, 13.0])).detach()
    tensor([-1.2500, -0.7500, -0.2500,  0.7500,  1.5000])
    """

    def __init__(
        self, d_model: int, eps: float = 1e-6, eps_mode: str = "outside"
    ) -> None:
        super().__init__()
        expects_positive(d_model=d_model)
        expects_one_of("eps_mode", eps_mode, EPS_MODES)
        expects_numbers(eps=eps)
        expects(eps >= 0, "eps", eps, "a number ≥ 0")
        self.weight = nn.Parameter(torch.ones(d_model))  # a
        self.bias = nn.Parameter(torch.zeros(d_model))  # b
        self.eps, self.eps_mode = eps, eps_mode

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        expects_floats("x", x)
        expects_shape("x", x, tuple(self.weight.shape))
        if self.eps_mode == "inside":
            # one type for all, since torch's kernel wants it
            one = torch.promote_types(x.dtype, self.weight.dtype)
            a, b = self.weight.to(one), self.bias.to(one)
            return F.layer_norm(x.to(one), a.shape, a, b, self.eps).to(x.dtype)
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        # its gradient is right at σ = 0, too
        sigma, mean = torch.std_mean(wide, dim=-1, correction=0, keepdim=True)
        if self.eps_mode == "outside":
            sigma = sigma + self.eps
        y = torch.addcmul(self.bias, self.weight, (wide - mean) / sigma)
        return y.to(x.dtype)

    def spec_weights(self) -> dict[str, np.ndarray]:
        """{"a": gain, "b": bias} as float64, for `spec.normalization.layer_norm`."""
        return {"a": as_float64(self.weight), "b": as_float64(self.bias)}


# --- The layer in torch, checked


@register_rule(Normalization)
def _normalization(module: Normalization) -> Derivation:
    return primitive("N", Kind.ROWWISE, "one map for all rows")


# --- RMS norm


class RMSNorm(nn.Module):
    """x ↦ a ⊙ x / √(ε + mean of the squares of x), row by row. (T-rms-norm)

    The parameter `weight` (a) starts as ones; no mean is subtracted and no bias is
    added. x: (…, d_model) → the same shape and dtype; half precision is computed in
    float32. A row of zeros stays zero, with a finite gradient; with eps = 0 it gives NaN.
    ValueError for another width or a negative eps; TypeError if x does not hold
    floating point numbers.

    >>> RMSNorm(4)(torch.tensor([3.0, 4.0, 0.0, 0.0])).detach()
    tensor([1.2000, 1.6000, 0.0000, 0.0000])
    """

    def __init__(self, d_model: int, eps: float = 1e-6) -> None:
        super().__init__()
        expects_positive(d_model=d_model)
        expects_numbers(eps=eps)
        expects(eps >= 0, "eps", eps, "a number ≥ 0")
        self.weight = nn.Parameter(torch.ones(d_model))  # a
        self.eps = eps

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        expects_floats("x", x)
        expects_shape("x", x, tuple(self.weight.shape))
        # one type for both, since torch's kernel wants it
        wide = x.to(torch.promote_types(x.dtype, self.weight.dtype))
        a = self.weight.to(wide.dtype)
        return F.rms_norm(wide, a.shape, a, self.eps).to(x.dtype)

    def spec_weights(self) -> dict[str, np.ndarray]:
        """{"a": gain} as float64, for `spec.normalization.rms_norm`."""
        return {"a": as_float64(self.weight)}


@register_rule(RMSNorm)
def _rms_norm(module: RMSNorm) -> Derivation:
    return primitive("N", Kind.ROWWISE, "one map for all rows")

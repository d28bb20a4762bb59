"""Where a token stands: positional encoding. Generated from book/positional_encoding.ipynb: edit the notebook, then `make export`."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tlm_book.arrays import as_float64
from tlm_book.checks import (
    expects,
    expects_floats,
    expects_length,
    expects_numbers,
    expects_one_of,
    expects_positive,
    expects_shape,
    expects_switches,
    expects_whole,
    plain_fields,
    refuse,
    with_suggestions,
)
from tlm_book.derivation import Derivation, Kind, primitive, register_rule

KINDS = ("learned_from_sinusoid", "sinusoidal", "learned", "none", "rotary")
LAYOUTS = ("halves", "interleaved")

__all__ = [
    "KINDS",
    "LAYOUTS",
    "PositionalEncoding",
    "sinusoidal_table",
    "Rotary",
    "RopeScaling",
]


# --- The layer: add the first rows of a table


class PositionalEncoding(nn.Module):
    """PE(X) = X + P[:n]. (W-pe-layer-def)

    `kind`: "learned_from_sinusoid" (trainable, starts as the sinusoid: Wojcik 2021),
    "sinusoidal" (fixed), "learned" (trainable, starts as normal random numbers of
    standard deviation 0.02), "none" and "rotary" (X unchanged; with "rotary" the heads
    turn their queries and keys, see `Rotary`). The row `table[p]` belongs to row
    p of the input; for the sinusoid it holds position `start` + p (with `halves`, all
    sines of a row stand before its cosines). The table is made in torch's default dtype.

    x: (…, n, d_model) → the same shape. ValueError for n = 0, n > max_len or another
    width, and, on construction, for an unknown kind or a sinusoid of odd width;
    TypeError if x does not hold floating point numbers.

    >>> PositionalEncoding(max_len=10, d_model=4)(torch.zeros(2, 3, 4)).shape
    torch.Size([2, 3, 4])
    """

    def __init__(
        self,
        max_len: int,
        d_model: int,
        kind: str = "learned_from_sinusoid",
        start: int = 1,
        halves: bool = False,
    ) -> None:
        super().__init__()
        expects_positive(max_len=max_len, d_model=d_model)
        expects_one_of("kind", kind, KINDS)
        expects_whole(start=start)
        expects_switches(halves=halves)
        self.max_len, self.d_model, self.kind = max_len, d_model, kind
        self.start, self.halves = start, halves
        if kind in ("none", "rotary"):
            table = torch.zeros(max_len, 0)
        elif kind == "learned":
            table = 0.02 * torch.randn(max_len, d_model)
        else:
            table = self._sinusoid().to(torch.get_default_dtype())
        if kind in ("learned", "learned_from_sinusoid"):
            self.table = nn.Parameter(table)
        else:
            self.register_buffer("table", table, persistent=False)

    def forward(self, x: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n d"]:
        n = _checked_rows(x, self.max_len, self.d_model)
        return x if self.table.shape[1] == 0 else x + self.table[:n]

    def spec_weights(self) -> dict[str, np.ndarray]:
        """{"P": table} as float64, for `spec.positional_encoding.add_positions`; of
        width 0 for the kinds "none" and "rotary"."""
        return {"P": as_float64(self.table)}

    def _sinusoid(self) -> Float[Tensor, "M d"]:
        table = sinusoidal_table(self.max_len, self.d_model, self.start)
        if self.halves:  # (M, d/2, 2) → (M, 2, d/2)
            table = table.unflatten(1, (-1, 2)).mT.flatten(1)
        return table

    def _apply(
        self, fn: Callable[[Tensor], Tensor], recurse: bool = True
    ) -> "PositionalEncoding":
        """`to_empty`, …: a fixed table is computed anew, as no file holds it."""
        super()._apply(fn, recurse)
        if self.kind == "sinusoidal" and not self.table.is_meta:
            self.table.copy_(self._sinusoid())
        return self


# --- The table of sines and cosines


def sinusoidal_table(
    max_len: int, d_model: int, start: int = 1, base: float = 10000.0
) -> Float[Tensor, "M d"]:
    """The table of sines and cosines in float64: row p holds position start + p.
    (W-pe-formula-def)

    ValueError when d_model is odd or base ≤ 0.

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
    expects(base > 0, "base", base, "a number > 0")
    position = torch.arange(start, start + max_len, dtype=torch.float64)
    frequency = base ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angle = position[:, None] * frequency  # (M, d/2)
    # sin and cos side by side: (M, d)
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)


# --- Rotating instead of adding


class _Angles(nn.Module):
    """The cosines and sines of all positions, kept beside a model of any precision."""

    cos: Tensor
    sin: Tensor

    def __init__(
        self,
        d_head: int,
        max_len: int,
        base: float = 10000.0,
        layout: str = "halves",
        scaling: "RopeScaling | None" = None,
    ) -> None:
        super().__init__()
        expects_positive(d_head=d_head, max_len=max_len)
        wants = "an even width: columns are turned in pairs"
        expects(d_head % 2 == 0, "d_head", d_head, wants)
        expects_numbers(base=base)
        expects(base > 0, "base", base, "a number > 0")
        expects_one_of("layout", layout, LAYOUTS)
        known = scaling is None or isinstance(scaling, RopeScaling)
        wants = "None or a RopeScaling"
        expects(known, "scaling", repr(scaling), wants, TypeError)
        self.d_head, self.max_len = d_head, max_len
        self.base, self.layout, self.scaling = base, layout, scaling
        self._fill(torch.empty(0))

    def _angles(
        self, n: int, at: int | slice | Int[Tensor, "..."]
    ) -> tuple[Float[Tensor, "*rows half"], Float[Tensor, "*rows half"]]:
        """The cosines and sines of n positions."""
        if isinstance(at, Tensor):
            known = at.device.type == "cpu" and at.numel() > 0
            if known and not torch.compiler.is_compiling():
                low, high = (int(p) for p in at.aminmax())
                got = low if low < 0 else high
                wants = f"from 0 to {self.max_len - 1} (max_len = {self.max_len})"
                expects(0 <= got < self.max_len, "at", f"position {got}", wants)
            return self.cos[at], self.sin[at]
        rows = at if isinstance(at, slice) else slice(at, at + n)
        cos, sin = self.cos[rows], self.sin[rows]
        fits = len(cos) == n and (rows.start or 0) >= 0
        if not fits:  # build the message only when it is needed
            wants = f"{n} positions from 0 to {self.max_len - 1}"
            expects(False, "at", at, wants)
        return cos, sin

    def spec_settings(self) -> dict[str, Any]:
        """{"base", "layout", "scaling"} for `spec.positional_encoding.rotary`."""
        scaling = None if self.scaling is None else asdict(self.scaling)
        return {"base": self.base, "layout": self.layout, "scaling": scaling}

    def _fill(self, like: Float[Tensor, "..."]) -> None:
        """Make the tables on the device of `like`, in its type, at least float32."""
        place = "meta" if like.is_meta else "cpu"
        range_ = partial(torch.arange, dtype=torch.float64, device=place)
        with torch.inference_mode(False):
            omega = self.base ** (-range_(0, self.d_head, 2) / self.d_head)
            if self.scaling is not None:
                omega = self.scaling.scaled(omega)
            angle = range_(self.max_len)[:, None] * omega  # (max_len, k/2)
            kept = torch.promote_types(like.dtype, torch.float32)
            for name, table in (("cos", angle.cos()), ("sin", angle.sin())):
                self.register_buffer(name, table.to(like.device, kept), False)

    def _apply(
        self, fn: Callable[[Tensor], Tensor], recurse: bool = True
    ) -> "_Angles":
        """`to`, `double`, `half`, …: the tables move but are not rounded."""
        meta = self.cos.is_meta
        like = fn(self.cos.new_empty(0, device="cpu") if meta else self.cos[:0])
        if meta or torch.promote_types(like.dtype, torch.float32) != self.cos.dtype:
            self._fill(like)
        self.cos, self.sin = self.cos.to(like.device), self.sin.to(like.device)
        return self


def _expects_positions(
    at: int | slice | Int[Tensor, "..."], x: Float[Tensor, "*batch n k"]
) -> None:
    n, whole = x.shape[-2], (torch.int64, torch.int32)
    if isinstance(at, Tensor) and (
        at.dtype not in whole or at.shape[-1:] != (n,) or at.dim() >= x.dim()
    ):
        came = f"{at.dtype} of shape {tuple(at.shape)}"
        wants = f"whole numbers, {n} in a row, for x of shape {tuple(x.shape)}"
        refuse("at", came, wants)


class Rotary(_Angles):
    """Row p of x with each pair of columns turned by ω_i p. (T-rotary-def)

    One serves all heads and blocks, for it has no weights. `layout`: "halves" pairs
    column i with i + d_head/2, "interleaved" column 2i with 2i + 1. `scaling` slows
    the turning for long texts. The cosines and sines of the positions 0, …,
    max_len − 1 are computed in float64 and kept in float32 (in float64 after
    `double()`), whatever precision the model has.

    x: (…, n, d_head) → the same shape and dtype. `at`: the position of the first row,
    or a slice of n positions, or a tensor of positions, of shape (n,) or any that
    broadcasts to (…, n). ValueError for an odd d_head, an unknown layout, another width,
    a tensor of another shape or not of whole numbers (int64, int32), and positions
    outside 0, …, max_len − 1 (those in tensors are checked only on the CPU);
    TypeError if x does not hold floating point numbers.

    >>> Rotary(d_head=4, max_len=10)(torch.ones(2, 3, 4), at=7).shape
    torch.Size([2, 3, 4])
    """

    def forward(
        self,
        x: Float[Tensor, "*batch n k"],
        at: int | slice | Int[Tensor, "..."] = 0,
    ) -> Float[Tensor, "*batch n k"]:
        expects_floats("x", x)
        expects_shape("x", x, ("n", self.d_head))
        _expects_positions(at, x)
        if self.cos.is_meta and not x.is_meta:
            self._fill(x)
        n = x.shape[-2]
        if self.layout == "halves" or torch.compiler.is_compiling():
            c, s = self.factors(n, at)
            return torch.addcmul(x * c, self.swapped(x), s).to(x.dtype)
        cos, sin = self._angles(n, at)  # complex numbers are quicker here
        pairs = x.to(torch.promote_types(x.dtype, cos.dtype)).contiguous()
        z = torch.view_as_complex(pairs.unflatten(-1, (-1, 2)))
        turned = torch.view_as_real(z * torch.complex(cos, sin))
        return turned.flatten(-2).to(x.dtype)

    def factors(
        self, n: int, at: int | slice | Int[Tensor, "..."] = 0
    ) -> tuple[Float[Tensor, "*rows k"], Float[Tensor, "*rows k"]]:
        """(c, s): rows x at these positions become x ⊙ c + swapped(x) ⊙ s."""
        cos, sin = self._angles(n, at)
        if self.layout == "halves":
            return torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)
        c, s = torch.stack((cos, cos), -1), torch.stack((-sin, sin), -1)
        return c.flatten(-2), s.flatten(-2)

    def swapped(self, x: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch k"]:
        """x with the two columns of each pair exchanged."""
        if self.layout == "halves":
            return x.roll(self.d_head // 2, -1)
        return x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)


# --- Texts longer than those of training


@with_suggestions
@dataclass(frozen=True)
class RopeScaling:
    """How `Rotary` turns more slowly, for texts longer than those in training.
    (T-rope-scaling)

    `kind`: "linear" (all frequencies divided by `factor`) or "llama3" (only those that
    turn fewer than `low_freq_factor` times within `original_max_len` positions; those
    that turn more than `high_freq_factor` times are kept; smoothly in between).
    ValueError for another kind, a factor below 1, and unless 0 < low < high; TypeError
    for a factor that is not a number, and for "llama3" without `original_max_len`.

    >>> RopeScaling("llama3", 8.0, original_max_len=8192).high_freq_factor
    4.0
    """

    kind: str
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_len: int | None = None

    def __post_init__(self) -> None:
        plain_fields(self)
        expects_one_of("kind", self.kind, ("linear", "llama3"))
        low, high = self.low_freq_factor, self.high_freq_factor
        expects_numbers(factor=self.factor, low_freq_factor=low, high_freq_factor=high)
        expects(self.factor >= 1, "factor", self.factor, "a number ≥ 1")
        if self.kind == "llama3":
            got, wants = f"{low} (high_freq_factor {high})", "0 < low < high"
            expects(0 < low < high, "low_freq_factor", got, wants)
            expects_positive(original_max_len=self.original_max_len)

    def scaled(self, omega: Float[Tensor, "half"]) -> Float[Tensor, "half"]:
        """The frequencies that `Rotary` uses instead of these."""
        slow = omega / self.factor
        if self.kind == "linear" or self.original_max_len is None:
            return slow
        turns = omega * self.original_max_len / (2 * math.pi)
        low, high = self.low_freq_factor, self.high_freq_factor
        return slow.lerp(omega, ((turns - low) / (high - low)).clamp(0, 1))


# --- In torch


def _checked_rows(x: Float[Tensor, "*batch n d"], max_len: int, d_model: int) -> int:
    """The number of rows n of x: (…, n, d_model), floating point, 1 ≤ n ≤ max_len."""
    expects_floats("x", x)
    expects_shape("x", x, ("n", d_model))
    expects_length("x", x.shape[-2], max_len)
    return x.shape[-2]


@register_rule(PositionalEncoding)
def _positional_encoding(module: PositionalEncoding) -> Derivation:
    if module.kind in ("none", "rotary"):
        return primitive("PE", Kind.ROWWISE, "identity")
    return primitive("PE", Kind.INDEXED_ROWWISE, "adds row i of a table to row i")


@register_rule(Rotary)
def _rotary(module: Rotary) -> Derivation:
    return primitive("R", Kind.INDEXED_ROWWISE, "turns row i by angles that i fixes")

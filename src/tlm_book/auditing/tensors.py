"""Tensors inside other objects, and how far apart two tensors are."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from tlm_book.checks import expects


def tensor_of(output: Any, name: str = "what the model returns") -> Shaped[Tensor, "..."]:
    """The tensor in an output: the output itself, its `logits` or `last_hidden_state`, or the first tensor of a tuple or mapping."""
    for key in ("logits", "last_hidden_state"):
        mapping = isinstance(output, Mapping)
        inside = output.get(key) if mapping else getattr(output, key, None)
        if isinstance(inside, Tensor):
            return inside
    if isinstance(output, Mapping):
        output = tuple(output.values())
    if isinstance(output, tuple | list):
        output = next((part for part in output if isinstance(part, Tensor)), output)
    wants = "a tensor, or a tuple, mapping or Hugging Face output that holds one"
    came = type(output).__name__
    expects(isinstance(output, Tensor), name, came, wants, TypeError)
    return output


def tensors_in(thing: Any) -> list[Tensor]:
    """All tensors in nested tuples, lists and mappings, in order."""
    found, waiting = [], [thing]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Tensor):
            found.append(part)
        elif isinstance(part, Mapping):
            waiting += reversed(list(part.values()))
        elif isinstance(part, list | tuple):
            waiting += reversed(part)
    return found


def map_tensors(thing: Any, change: Callable[[Tensor], Any]) -> Any:
    """Nested tuples, lists and mappings with each tensor changed."""
    if isinstance(thing, Tensor):
        return change(thing)
    if isinstance(thing, tuple | list):
        parts = [map_tensors(part, change) for part in thing]
        return type(thing)(*parts) if hasattr(thing, "_fields") else type(thing)(parts)
    if isinstance(thing, Mapping):
        return {k: map_tensors(v, change) for k, v in thing.items()}
    return thing


def attempt(call: Callable[..., Any], *args: Any) -> Any:
    """What the call returns, or None if it raises an exception."""
    try:
        return call(*args)
    except Exception:
        return None


def describe_error(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"


def spread_out(places: Sequence[int], most: int) -> list[int]:
    """At most `most` of these places, evenly spread, with the first and the last."""
    if len(places) <= most:
        return list(places)
    return [places[round(k)] for k in np.linspace(0, len(places) - 1, most)]


def is_continuous(t: Shaped[Tensor, "..."]) -> bool:
    """Whether a tensor holds real or complex numbers, and not tokens or truth values."""
    return t.is_floating_point() or t.is_complex()


def as_real(t: Shaped[Tensor, "*s"]) -> Shaped[Tensor, "..."]:
    """Complex numbers as pairs of real ones, (…, 2); any other tensor as it is."""
    return torch.view_as_real(t.resolve_conj()) if t.is_complex() else t


def row_changes(a: Shaped[Tensor, "batch n e"], b: Shaped[Tensor, "#batch n e"]) -> Float[Tensor, "batch n"]:
    """(batch, row): the largest change in each row; equal infinities and equal NaN do not count, a new NaN counts without bound."""
    a, b = (as_real(t.detach()).reshape(*t.shape[:2], -1) for t in (a, b))
    a, b = (t if t.is_floating_point() and t.element_size() > 2 else t.double() for t in (a, b))
    gap = (a - b).abs()
    if not a.shape[-1]:
        return gap.sum(-1)
    most = gap.amax(-1)
    if not most.isfinite().all():
        same = (a == b) | (a.isnan() & b.isnan())
        most = gap.masked_fill(same, 0.0).nan_to_num(math.inf, math.inf).amax(-1)
    return most.double()


def largest(y: Shaped[Tensor, "..."]) -> float:
    """The largest absolute value of the finite numbers in an output."""
    y = y.detach()
    most = y.abs().max() if y.numel() and y.dtype != torch.bool else y.sum()
    finite = y[y.isfinite()] if not most.isfinite() else most[None]
    return float(finite.abs().max()) if len(finite) else 0.0

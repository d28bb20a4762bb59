"""Tensors as arrays. Written by hand; imports neither torch nor the package, so that every chapter may use it."""

from typing import Any

import numpy as np
from jaxtyping import Float64, Shaped

__all__ = ["as_array", "as_float64", "as_numbers"]


def as_array(thing: Any) -> Any:
    """A torch tensor as an array on the CPU, real numbers as float64 (numpy has no bfloat16); anything else as it is.

    >>> as_array("no tensor")
    'no tensor'
    """
    if not hasattr(thing, "detach"):
        return thing
    tensor = thing.detach().cpu()
    tensor = tensor.to_dense() if tensor.is_sparse else tensor
    return (tensor.double() if tensor.is_floating_point() else tensor).numpy()


def as_float64(tensor: Any) -> Float64[np.ndarray, "..."]:
    """A copy of a torch tensor's numbers as a float64 array: changing one does not change the other."""
    return tensor.detach().double().cpu().numpy().copy()


def as_numbers(rows: Any) -> Shaped[np.ndarray, "..."]:
    """Nested lists of numbers, or of tensors, as one array. ValueError for rows of different lengths and for entries that are not numbers.

    >>> as_numbers([[1, 0], [0.25, 0.75]]).shape
    (2, 2)
    """
    array = np.asarray([as_array(row) for row in rows])
    if array.dtype.kind not in "biufc":
        raise ValueError(f"rows: got an array of dtype {array.dtype}, want numbers")
    return array

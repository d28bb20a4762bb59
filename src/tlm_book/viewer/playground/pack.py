"""A model's weights as a page contains them: matrices as whole numbers from −127 to 127 with a factor for each row or column, the rest in float32.

Written by hand.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

__all__ = ["pack", "rounded"]

LEVELS = 127


def _add(data: bytearray, array: np.ndarray) -> int:
    """Append the array at the next place where a float32 may begin, which is returned."""
    data += b"\0" * (-len(data) % 4)
    at = len(data)
    data += array.tobytes()
    return at


def _quantized(W: Float[np.ndarray, "*stack i j"], by: str) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers q and factors f with q f ≈ W: |W − q f| ≤ f/2, with one factor for each row or for each column."""
    f = np.abs(W).max(axis=-1 if by == "row" else -2, keepdims=True) / LEVELS
    f = f.astype(np.float32)
    q = np.rint(np.divide(W, f, out=np.zeros_like(W), where=f > 0))
    return np.clip(q, -LEVELS, LEVELS).astype(np.int8), f


def _way(name: str, bits: int) -> str | None:
    """How an array is rounded: "row" for tables, which are read row by row, "column" for matrices, None for biases and gains, even stacked ones."""
    if bits == 32 or not name.startswith(("E", "P", "W", "Y")):
        return None
    return "row" if name in ("E", "P") else "column"


def _walk(node: Any, name: str, leaf: Any) -> Any:
    if isinstance(node, Mapping):
        return {key: _walk(child, key, leaf) for key, child in node.items()}
    if isinstance(node, Sequence):
        return [_walk(child, name, leaf) for child in node]
    return leaf(name, node) if isinstance(node, np.ndarray) else node


def _untied(weights: Mapping[str, Any]) -> dict[str, Any]:
    """The weights; if the unembedding is a multiple of the transposed table, "tied" has the factor between them in its place."""
    E, Y = weights["E"], weights["Y"]
    if E.shape == Y.T.shape and E.any() and Y.any():
        factor = float(np.sqrt((E**2).sum() / (Y**2).sum()))
        if np.allclose(E / factor, Y.T, rtol=1e-6, atol=0):
            return {**{name: w for name, w in weights.items() if name != "Y"}, "tied": factor}
    return dict(weights)


def pack(weights: Mapping[str, Any], bits: int = 8) -> dict[str, Any]:
    """{"names", "bytes"}: the name, shape and place of each array, and the bytes in base64.

    weights   as `TransformerLM.spec_weights` returns them.
    bits      8, or 32 for float32 throughout.
    """
    data = bytearray()

    def leaf(name: str, W: np.ndarray) -> dict[str, Any]:
        by = _way(name, bits)
        if by is None:
            return {"shape": list(W.shape), "at": _add(data, W.astype(np.float32))}
        q, f = _quantized(W, by)
        return {"shape": list(W.shape), "by": by, "factors": _add(data, f), "at": _add(data, q)}

    names = _walk(_untied(weights), "", leaf)
    return {"names": names, "bytes": base64.b64encode(data).decode()}


def rounded(weights: Mapping[str, Any], bits: int = 8) -> dict[str, Any]:
    """The weights with which the page computes, in float64 and in the form in which they were given: the inverse of `pack`, up to its rounding."""

    def leaf(name: str, W: np.ndarray) -> np.ndarray:
        by = _way(name, bits)
        if by is None:
            return W.astype(np.float32).astype(np.float64)
        q, f = _quantized(W, by)
        return np.asarray(q * f, dtype=np.float64)

    found = _walk(_untied(weights), "", leaf)
    if "tied" in found:
        found["Y"] = (found["E"].T / found.pop("tied")).astype(np.float32).astype(np.float64)
    return dict(found)

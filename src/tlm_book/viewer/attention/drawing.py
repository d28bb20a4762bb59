"""A head drawn with matplotlib, for files that are not pages: the matrix of its weights, with the tokens beside it."""

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, UInt8

from tlm_book.libraries import library
from tlm_book.viewer.style import LINE

__all__ = ["figure", "head_of"]

MOST_NAMES = 64  # with more tokens, they are numbered instead of named


def head_of(data: Mapping[str, Any], layer: int, head: int) -> tuple[UInt8[np.ndarray, "n m"], Bool[np.ndarray, "n m"]]:
    """The weights of one head, unpacked, as bytes, and which of them are not masked; masked weights are not stored, and are 0."""
    _, heads, n, m = data["shape"]
    seen = np.ones((n, m), bool)
    if data["mask"] == "causal":
        seen = np.tri(n, dtype=bool)
    elif data["mask"]:
        bits = np.frombuffer(base64.b64decode(data["mask"]), np.uint8)
        seen = np.unpackbits(bits, count=n * m).reshape(n, m) == 0
    size = int(seen.sum())
    q = np.zeros((n, m), np.uint8)
    q[seen] = np.frombuffer(base64.b64decode(data["weights"][0]), np.uint8)[(layer * heads + head) * size :][:size]
    return q, seen


def figure(view: Any) -> Any:
    """The head that the view shows, as a matplotlib figure: its weights in the scale of the view, with masked places in grey.

    With the scale "top" the other weights of a row are left out; comparisons and marks are not drawn.
    """
    figures, colors = library("matplotlib.figure", "viewer"), library("matplotlib.colors", "viewer")
    q, seen = head_of(view.data, view.layer, view.head)
    if view.scale == "top":
        q = np.where(np.argsort(np.argsort(-q.astype(int), axis=1, kind="stable"), axis=1) < view.top_k, q, 0)
    norms = {"linear": colors.Normalize(0, 1), "log": colors.LogNorm(1 / 510, 1, clip=True)}
    n, m = q.shape
    width = 2.2 + min(6.0, max(2.0, 0.2 * m))
    drawn = figures.Figure(figsize=(width, (width - 1.6) * n / m + 0.8), layout="constrained")
    ax = drawn.subplots()
    image = ax.imshow(np.ma.masked_array(q / 255, ~seen), norm=norms.get(view.scale, colors.PowerNorm(0.5, 0, 1)))
    ax.set_facecolor(LINE)
    ax.grid(False)
    title = view.data["title"]
    ax.set_title((f"{title}: " if title else "") + f"block {view.layer}, head {view.head}", parse_math=False)
    rows, columns = view.data["tokens"], view.data["columns"] or view.data["tokens"]
    if n <= MOST_NAMES:
        ax.set_yticks(range(n), rows, fontsize=7, parse_math=False)
    if m <= MOST_NAMES:
        ax.set_xticks(range(m), columns, rotation=90, fontsize=7, parse_math=False)
    drawn.colorbar(image, label="weight", shrink=0.8)
    return drawn

"""An interactive picture of attention weights: every head at a glance, one head in detail, the text shaded.

The picture is one ES module, `attention.js`, with two hosts. In a live notebook anywidget runs it and `view.layer` and
`view.head` follow the reader's choice. On a static page the output's `text/html` carries the module, the weights and the
tokens within itself: no network, no kernel. Written by hand.
"""

import base64
import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import numpy.typing as npt
import traitlets
from jaxtyping import Float64, UInt8

from tlm_book.checks import expects
from tlm_book.viewer.base import expects_strings, expects_title, page, visible

__all__ = ["View", "attention"]

MODULE = Path(__file__).with_name("attention.js").read_text(encoding="utf-8")
MAX_WEIGHTS = 2**23  # 8 bits each: a page of 11 MB
FALLBACK_ROWS = 12


class View(anywidget.AnyWidget):
    """The interactive picture that `attention` returns; show it as the last line of a cell.

    `layer` and `head` are the head shown in detail, counted from 0. They follow the reader's choice in a live notebook,
    may be set, and may be watched (`view.observe(call, names=["layer", "head"])`). Setting one outside the picture's
    range raises IndexError. `picture` is what the page gets: shape, visible tokens and packed weights.

    Chapter: none (written by hand).
    """

    _esm = MODULE
    picture: dict[str, Any] = traitlets.Dict().tag(sync=True)
    layer: int = traitlets.Int(0).tag(sync=True)
    head: int = traitlets.Int(0).tag(sync=True)

    @traitlets.validate("layer", "head")
    def _in_range(self, proposal: Mapping[str, Any]) -> int:
        name, got = proposal["trait"].name, proposal["value"]
        size = self.picture["shape"][("layer", "head").index(name)]
        expects(0 <= got < size, name, got, f"a {name} from 0 to {size - 1}", IndexError)
        return got

    def __repr__(self) -> str:
        layers, heads, n, m = self.picture["shape"]
        return f"<attention weights: {layers} × {heads} heads, {n} × {m} tokens; layer {self.layer}, head {self.head}>"

    def _repr_mimebundle_(self, **kwargs: object) -> tuple[dict[str, Any], dict[str, Any]]:
        data, metadata = super()._repr_mimebundle_(**kwargs)
        return {**data, "text/plain": repr(self), "text/html": self.to_html()}, metadata

    def to_html(self) -> str:
        """The picture as a piece of HTML that needs nothing else: a static table, replaced by the picture where scripts run.

        Chapter: none (written by hand).
        """
        state = {"picture": self.picture, "layer": self.layer, "head": self.head}
        return page("attention", MODULE, state, _fallback(self.picture, self.layer, self.head))


def attention(
    tokens: Sequence[str],
    weights: npt.ArrayLike,
    *,
    columns: Sequence[str] | None = None,
    title: str | None = None,
) -> View:
    """Attention weights as an interactive picture.

    tokens   the n tokens of the rows: those that attend.
    weights  shape (layers, heads, n, m), (heads, n, m) or (n, m); a numpy array, a torch tensor of any float dtype, or
             nested lists. Entry [i, j] is the weight that row i gives to column j, from 0 to 1.
    columns  the m tokens attended to, for cross-attention; without it they are `tokens`, and m = n.
    title    a line above the picture.

    The page holds each weight in 8 bits, round(255·w), so what it shows differs from w by at most 1/510. Where all
    heads are lower triangular (exactly 0 above the diagonal, n > 1) that triangle is drawn hatched, as masked. Tokens
    are shown as text whatever they contain; spaces, line ends and invisible characters get visible signs, and a token of
    more than 200 characters is cut with an ellipsis.

    Raises TypeError (tokens that are not strings; weights that are not real numbers) and ValueError (wrong rank or
    length; no token; weights not finite, below 0 or above 1; more than 2²³ weights).

    >>> view = attention(["to", "be"], [[1, 0], [0.25, 0.75]])
    >>> view
    <attention weights: 1 × 1 heads, 2 × 2 tokens; layer 0, head 0>

    Chapter: none (written by hand).
    """
    rows = expects_strings("tokens", tokens)
    cols = None if columns is None else expects_strings("columns", columns)
    expects_title(title)
    A = _weights(weights)
    n, m = len(rows), len(rows if cols is None else cols)
    names = f"{n} tokens" if cols is None else f"{n} tokens and {m} columns"
    expects(A.shape[2:] == (n, m), "weights", f"shape {tuple(np.shape(weights))}", f"shape (…, {n}, {m}) for {names}")
    causal = cols is None and n > 1 and not np.triu(A, 1).any()
    packed = base64.b64encode(_pack(A).tobytes()).decode("ascii")
    picture = {
        "shape": list(A.shape), "tokens": [visible(t) for t in rows], "columns": cols and [visible(t) for t in cols],
        "title": title, "causal": bool(causal), "weights": packed,
    }  # fmt: skip
    return View(picture=picture)


def _weights(weights: npt.ArrayLike) -> Float64[np.ndarray, "layers heads n m"]:
    """The weights in float64 with all four axes; TypeError if not real numbers, ValueError for a wrong rank or range."""
    if hasattr(weights, "detach"):  # a torch tensor
        weights = weights.detach().cpu()
        weights = (weights.double() if weights.is_floating_point() else weights).numpy()  # numpy knows no bfloat16
    try:
        A = np.asarray(weights)
    except ValueError as error:  # rows of different lengths
        raise ValueError(f"weights: got no array ({error}), want shape (layers, heads, n, m)") from None
    expects(A.dtype.kind in "fiub", "weights", f"dtype {A.dtype}", "real numbers", TypeError)
    expects(A.ndim in (2, 3, 4), "weights", f"shape {A.shape}", "shape (layers, heads, n, m), (heads, n, m) or (n, m)")
    expects(A.size > 0, "weights", f"shape {A.shape}", "at least one layer and one head, row and column")
    expects(A.size <= MAX_WEIGHTS, "weights", f"{A.size} weights", f"at most {MAX_WEIGHTS}: choose layers, heads or rows")
    A = A.astype(np.float64).reshape((1,) * (4 - A.ndim) + A.shape)
    for i in np.argwhere(~np.isfinite(A))[:1]:
        expects(False, "weights", f"{A[tuple(i)]} at layer, head, row, column {i.tolist()}", "finite numbers")
    low, high = float(A.min()), float(A.max())
    expects(low >= 0, "weights", f"{low:.4g}", "numbers from 0 to 1")
    # A softmax may end a rounding error above 1.
    expects(high <= 1 + 1e-6, "weights", f"{high:.8g}", "numbers from 0 to 1")
    return A.clip(max=1)


def _pack(A: Float64[np.ndarray, "layers heads n m"]) -> UInt8[np.ndarray, "layers heads n m"]:
    """round(255·A), one byte a weight: off by at most half a step, 1/510."""
    return np.rint(255 * A).astype(np.uint8)


def _fallback(picture: Mapping[str, Any], layer: int, head: int) -> str:
    """What a reader without scripts sees: for the first rows of this head, the three columns with the largest weights."""
    _, heads, n, m = picture["shape"]
    start = (layer * heads + head) * n * m
    q = np.frombuffer(base64.b64decode(picture["weights"]), np.uint8)[start : start + n * m].reshape(n, m)
    names = picture["columns"] or picture["tokens"]
    lines = []
    for i in range(min(n, FALLBACK_ROWS)):
        best = [j for j in np.argsort(-q[i].astype(int), kind="stable")[:3] if q[i, j] > 0]
        cells = ", ".join(f"<bdi>{html.escape(names[j])}</bdi> {q[i, j] / 255:.2f}" for j in best)
        lines.append(f"<tr><th scope=\"row\"><bdi>{html.escape(picture['tokens'][i])}</bdi></th><td>{cells}</td></tr>")
    title = html.escape(picture["title"] or "Attention weights")
    more = f" (the first {FALLBACK_ROWS} of {n} rows)" if n > FALLBACK_ROWS else ""
    return (
        f'<table style="overflow-wrap: anywhere; text-align: left"><caption>'
        f"{title}: layer {layer}, head {head}{more}. With scripts this is an interactive picture.</caption>"
        "<thead><tr><th scope=\"col\">token</th><th scope=\"col\">attends most to</th></tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table>"
    )

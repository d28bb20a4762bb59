"""An interactive picture of attention weights: every head at a glance, one or two in detail, the text shaded.

The picture is one ES module, made of `base.js` and the files beside this one, with two hosts. In a live notebook anywidget runs it, and
the view's traits follow the reader's choices. On a static page the output's `text/html` itself contains the module, the weights and
the tokens, and needs no network and no kernel. Written by hand.
"""

import base64
import html
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import traitlets
from jaxtyping import Bool, Float64, Shaped, UInt8

from tlm_book.arrays import as_array
from tlm_book.checks import expects, expects_one_of, is_whole, refuse
from tlm_book.viewer.attention.drawing import figure, head_of
from tlm_book.viewer.base import (
    Picture,
    expects_strings,
    expects_title,
    kind,
    module,
    svg,
    visible,
    visible_line,
)
from tlm_book.viewer.style import SEQUENTIAL_STOPS

__all__ = ["View", "attention"]

MAX_WEIGHTS = 2**23  # 8 bits each: a page of 11 MB
FALLBACK_ROWS, FALLBACK_CELLS = 12, 24
MASKED = "#d5dae1"
SCALES, FORMS = ("root", "linear", "log", "top"), ("matrix", "edges")


class View(Picture):
    """The interactive picture that `attention` and `show` return; show it as the last line of a cell, or save it.

    view.save("heads.html")  writes it as a page of its own; as .svg or .png, a drawing of the head shown; as .json, the page's data.
    view.to_html()           is the picture as a piece of HTML.

    The reader's choices are traits. They follow the reader in a live notebook, may be set, and may be watched
    (`view.observe(call, names=["layer", "head"])`); a value outside the picture's range raises IndexError or
    ValueError, one of another kind TypeError or traitlets' TraitError.

    layer, head  the head shown in detail: its block and its place there, counted from 0.
    pinned       the marked place: None, or (i, j): row i and column j, one of which may be None.
    scale        how a weight becomes a colour: "root" (of its square root), "linear", "log", or "top": the `top_k` largest
                 weights of each row alone.
    form         "matrix", or "edges": lines between two columns of tokens.
    against      the head to compare with: None, (layer, head) of the same weights, or "other": the same head of the other model.
    difference   True shows the first minus the second in place of the second.
    reverse      False: the text is shaded by where the marked token looks; True: by which tokens look at it.

    `data` is what the page is given: shape, visible tokens, packed weights, and each head's mean entropy and distance.
    """

    _esm = module("attention", "look", "shades", "names", "panel", "words", "save")
    _word = "attention"
    layer = traitlets.Int(0).tag(sync=True, picture=True)
    head = traitlets.Int(0).tag(sync=True, picture=True)
    pinned = traitlets.Any(None, allow_none=True).tag(sync=True, picture=True)
    scale = traitlets.Unicode("root").tag(sync=True, picture=True)
    top_k = traitlets.Int(3).tag(sync=True, picture=True)
    form = traitlets.Unicode("matrix").tag(sync=True, picture=True)
    against = traitlets.Any(None, allow_none=True).tag(sync=True, picture=True)
    difference = traitlets.Bool(False).tag(sync=True, picture=True)
    reverse = traitlets.Bool(False).tag(sync=True, picture=True)

    @traitlets.validate("layer", "head", "top_k")
    def _in_range(self, proposal: Mapping[str, Any]) -> int:
        name, got = proposal["trait"].name, proposal["value"]
        layers, heads, _, m = self.data["shape"]
        low, size = {"layer": (0, layers), "head": (0, heads), "top_k": (1, m + 1)}[name]
        wants = f"a whole number from 1 to {m}" if name == "top_k" else f"a {name} from 0 to {size - 1}"
        expects(low <= got < size, name, got, wants, IndexError)
        return got

    @traitlets.validate("scale", "form")
    def _one_of(self, proposal: Mapping[str, Any]) -> str:
        name, got = proposal["trait"].name, proposal["value"]
        expects_one_of(name, got, SCALES if name == "scale" else FORMS)
        return got

    @traitlets.validate("pinned")
    def _a_place(self, proposal: Mapping[str, Any]) -> list[int | None] | None:
        return _pair("pinned", proposal["value"], self.data["shape"][2:], "(row, column), one of them None, or None", True)

    @traitlets.validate("against")
    def _a_head(self, proposal: Mapping[str, Any]) -> list[int | None] | str | None:
        got = proposal["value"]
        if got == "other":
            expects(len(self.data["weights"]) == 2, "against", "'other'", "(layer, head) or None: there are no other weights")
            return got
        return _pair("against", got, self.data["shape"][:2], "(layer, head), 'other' or None", False)

    def __repr__(self) -> str:
        layers, heads, n, m = self.data["shape"]
        return f"<attention weights: {layers} × {heads} heads, {n} × {m} tokens; block {self.layer}, head {self.head}>"

    def _fallback(self) -> str:
        return _still(self.data, self.layer, self.head)

    def _figure(self) -> Any:
        return figure(self)


def attention(
    tokens: Sequence[str],
    weights: Any,
    *,
    columns: Sequence[str] | None = None,
    mask: Any | None = None,
    compare: Any | None = None,
    names: Sequence[str] = ("first", "second"),
    title: str | None = None,
) -> View:
    """Attention weights as an interactive picture.

    tokens   the n tokens of the rows: those that attend.
    weights  shape (layers, heads, n, m), (heads, n, m) or (n, m); a numpy array, a torch tensor of any float dtype, or
             nested lists. Entry [i, j] is the weight that row i gives to column j, from 0 to 1. What `transformers` returns
             for `output_attentions=True` is taken as it is: a tuple over the layers, with a batch of one.
    columns  the m tokens attended to, for cross-attention; by default, `tokens`, with m = n.
    mask     shape (n, m), True where a row may look; elsewhere the weights are exactly 0. By default, the triangle above the
             diagonal counts as masked if it is exactly 0 in all heads (n > 1). Masked places are hatched.
    compare  weights of another model, of the same shape; they are shown beside the first, or the difference is.
    names    what the two models are called.
    title    a line above the picture.

    The page holds each weight in 8 bits, round(255·w), so what it shows differs from w by at most 1/510. The entropy
    and distance of a head are computed from the weights as given: the means over its rows of −Σⱼ wⱼ ln wⱼ and Σⱼ wⱼ·|i − j|,
    each row divided by its sum; rows of zeros do not count; cross-attention has no distance. Tokens are shown as text,
    whatever they contain; spaces, line ends and invisible characters get visible signs, and a token of more than 200
    characters is cut with an ellipsis.

    Raises TypeError (tokens that are not strings; weights that are not real numbers) and ValueError (wrong rank or
    length; no token; weights not finite, below 0 or above 1, not 0 where masked; more than 2²³ weights).

    >>> view = attention(["to", "be"], [[1, 0], [0.25, 0.75]])
    >>> view
    <attention weights: 1 × 1 heads, 2 × 2 tokens; block 0, head 0>
    >>> view.pinned = (1, None)  # the row of "be" stays marked
    """
    rows = expects_strings("tokens", tokens)
    cols = None if columns is None else expects_strings("columns", columns)
    expects_title(title)
    A = _weights("weights", weights)
    n, m = len(rows), len(rows if cols is None else cols)
    tell = f"{n} tokens" if cols is None else f"{n} tokens and {m} columns"
    expects(A.shape[2:] == (n, m), "weights", f"shape {_array('weights', weights).shape}", f"shape (…, {n}, {m}) for {tell}")
    given = [A]
    if compare is not None:
        given.append(_weights("compare", compare))
        expects(given[1].shape == A.shape, "compare", f"shape {given[1].shape}", f"the weights' shape {A.shape}")
        total = 2 * A.size
        expects(total <= MAX_WEIGHTS, "compare", f"{total} weights in all", f"at most {MAX_WEIGHTS}: choose layers, heads or rows")
    names = expects_strings("names", names)
    expects(len(names) == 2, "names", f"{len(names)} of them", "two")
    seen = np.ones((n, m), bool) if mask is None else _mask(mask, given)
    causal = cols is None and n > 1 and not any(np.triu(B, 1).any() for B in given)
    causal = causal and (mask is None or np.array_equal(seen, np.tri(n, dtype=bool)))
    if causal:
        seen = np.tri(n, dtype=bool)
    hidden = None if seen.all() else "causal" if causal else _text(np.packbits(~seen))
    data = {
        "shape": list(A.shape), "tokens": [visible(t) for t in rows], "columns": cols and [visible(t) for t in cols],
        "title": title and visible_line(title), "names": [visible_line(name) for name in names], "mask": hidden,
        "weights": [_text(_pack(B)[..., seen]) for B in given], "entropy": [_rounded(_entropy(B)) for B in given],
        "distance": None if cols is not None else [_rounded(_distance(B)) for B in given],
    }  # fmt: skip
    return View(data=data, top_k=min(3, m), against=None if compare is None else "other")


# ---- what the page is given ---------------------------------------------------------------------------------------------


def _weights(argument: str, weights: Any) -> Float64[np.ndarray, "layers heads n m"]:
    """The weights in float64 with all four axes; TypeError unless they are real numbers, ValueError for a wrong rank or range."""
    A = _array(argument, weights)
    expects(A.dtype.kind in "fiub", argument, f"dtype {A.dtype}", "real numbers", TypeError)
    if A.ndim == 5:  # (layers, batch, heads, n, m)
        expects(A.shape[1] == 1, argument, f"shape {A.shape}, a batch of {A.shape[1]}", "one text: shape (layers, 1, heads, n, m)")
        A = A[:, 0]
    expects(A.ndim in (2, 3, 4), argument, f"shape {A.shape}", "shape (layers, heads, n, m), (heads, n, m) or (n, m)")
    expects(A.size > 0, argument, f"shape {A.shape}", "at least one layer and one head, row and column")
    expects(A.size <= MAX_WEIGHTS, argument, f"{A.size} weights", f"at most {MAX_WEIGHTS}: choose layers, heads or rows")
    A = A.astype(np.float64).reshape((1,) * (4 - A.ndim) + A.shape)
    for i in np.argwhere(~np.isfinite(A))[:1]:
        refuse(argument, f"{A[tuple(i)]} at layer, head, row, column {i.tolist()}", "finite numbers")
    low, high = float(A.min()), float(A.max())
    expects(low >= 0, argument, f"{low:.4g}", "numbers from 0 to 1")
    # A weight of a softmax may exceed 1 by a rounding error.
    expects(high <= 1 + 1e-6, argument, f"{high:.8g}", "numbers from 0 to 1")
    return A.clip(max=1)


def _array(argument: str, weights: Any) -> Shaped[np.ndarray, "..."]:
    """The weights as one array; a model may give them as a tuple of tensors, one for each layer."""
    whole = hasattr(weights, "attentions")
    expects(not whole, argument, f"a {kind(weights)}", "its attentions: the field of that name", TypeError)
    none = weights is None or isinstance(weights, (tuple, list)) and (len(weights) == 0 or any(layer is None for layer in weights))
    how = 'attentions, which a model of transformers gives when it was loaded with attn_implementation="eager"'
    expects(not none, argument, "none", how)
    layers = isinstance(weights, (tuple, list)) and any(hasattr(layer, "detach") for layer in weights)
    try:
        return np.asarray([as_array(layer) for layer in weights] if layers else as_array(weights))
    except ValueError as error:  # rows of different lengths
        raise ValueError(f"{argument}: got no array ({error}), want shape (layers, heads, n, m)") from None


def _mask(mask: Any, given: Sequence[Float64[np.ndarray, "layers heads n m"]]) -> Bool[np.ndarray, "n m"]:
    """The mask as booleans; TypeError for other types, ValueError for another shape or a weight where it is False."""
    try:
        seen = np.asarray(mask.detach().cpu() if hasattr(mask, "detach") else mask)
    except ValueError as error:  # rows of different lengths
        raise ValueError(f"mask: got no array ({error}), want shape (n, m)") from None
    expects(seen.dtype == bool, "mask", f"dtype {seen.dtype}", "True and False", TypeError)
    expects(seen.shape == given[0].shape[2:], "mask", f"shape {seen.shape}", f"shape {given[0].shape[2:]}")
    for A in given:
        for i in np.argwhere(A * ~seen)[:1]:
            refuse("mask", f"weight {A[tuple(i)]:.4g} at {i.tolist()}, where it is False", "weights of 0 there")
    return seen


def _pack(A: Float64[np.ndarray, "layers heads n m"]) -> UInt8[np.ndarray, "layers heads n m"]:
    """round(255·A), with one byte for each weight, which is off by at most half a step, 1/510."""
    return np.rint(255 * A).astype(np.uint8)


def _text(packed: UInt8[np.ndarray, "..."]) -> str:
    return base64.b64encode(packed.tobytes()).decode("ascii")


def _entropy(A: Float64[np.ndarray, "layers heads n m"]) -> Float64[np.ndarray, "layers heads"]:
    """The mean over a head's rows of −Σ w ln w, w divided by its row's sum."""
    w = A / np.where(A.sum(-1) > 0, A.sum(-1), 1)[..., None]
    return _mean(-(w * np.log(np.where(w > 0, w, 1))).sum(-1), A)


def _distance(A: Float64[np.ndarray, "layers heads n n"]) -> Float64[np.ndarray, "layers heads"]:
    """The mean over a head's rows of Σ w·|i − j|, w divided by its row's sum."""
    w = A / np.where(A.sum(-1) > 0, A.sum(-1), 1)[..., None]
    i = np.arange(A.shape[-1])
    return _mean((w * np.abs(i[:, None] - i)).sum(-1), A)


def _mean(of_rows: Float64[np.ndarray, "layers heads n"], A: Float64[np.ndarray, "layers heads n m"]) -> Float64[np.ndarray, "layers heads"]:
    """The mean over the rows that are not all zero; 0 if there is none."""
    live = A.sum(-1) > 0
    return (of_rows * live).sum(-1) / np.maximum(live.sum(-1), 1)


def _rounded(numbers: Float64[np.ndarray, "layers heads"]) -> list[list[float]]:
    """The numbers, rounded to four digits after the point, which are the same on every machine; no negative zeros."""
    return (np.round(numbers, 4) + 0.0).tolist()


def _pair(name: str, got: Any, sizes: Sequence[int], wants: str, holes: bool) -> list[int | None] | None:
    """A pair of places in range, as a list; None stays None. With `holes`, one of the two may be None."""
    if got is None:
        return None
    expects(isinstance(got, (tuple, list)) and len(got) == 2, name, repr(got), wants, TypeError)
    for place, size in zip(got, sizes):
        if holes and place is None:
            continue
        expects(is_whole(place), name, repr(got), wants, TypeError)
        expects(0 <= place < size, name, tuple(got), f"{wants}; from 0 to {size - 1}", IndexError)
    expects(any(place is not None for place in got), name, tuple(got), wants)
    return [None if place is None else int(place) for place in got]


# ---- for readers without scripts ----------------------------------------------------------------------------------------


def _still(data: Mapping[str, Any], layer: int, head: int) -> str:
    """A drawing of this head, and a table with the three largest weights of each of its first rows."""
    n = data["shape"][2]
    q, seen = head_of(data, layer, head)
    names = data["columns"] or data["tokens"]
    lines = []
    for i in range(min(n, FALLBACK_ROWS)):
        best = [j for j in np.argsort(-q[i].astype(int), kind="stable")[:3] if q[i, j] > 0]
        cells = ", ".join(f"<bdi>{html.escape(names[j])}</bdi> {q[i, j] / 255:.2f}" for j in best)
        lines.append(f"<tr><th scope=\"row\"><bdi>{html.escape(data['tokens'][i])}</bdi></th><td>{cells}</td></tr>")
    title = html.escape(data["title"] or "Attention weights")
    more = f" (the first {FALLBACK_ROWS} of {n} rows)" if n > FALLBACK_ROWS else ""
    return (
        f"{_drawing(q, seen, f'weights of block {layer}, head {head}')}"
        f'<table style="overflow-wrap: anywhere; text-align: left"><caption>'
        f"{title}: block {layer}, head {head}{more}. With scripts this is an interactive picture.</caption>"
        '<thead><tr><th scope="col">token</th><th scope="col">attends most to</th></tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table>"
    )


def _drawing(q: UInt8[np.ndarray, "n m"], seen: Bool[np.ndarray, "n m"], label: str) -> str:
    """A small matrix of squares, each in one of nine colours for (the square root of) the largest weight of its block; grey if masked."""
    k = -(-max(q.shape) // FALLBACK_CELLS)  # weights along a side of a block
    height, width = (-(-size // k) for size in q.shape)
    blocks = np.full((height * k, width * k), -1)
    blocks[: q.shape[0], : q.shape[1]] = np.where(seen, q.astype(int), -1)
    blocks = blocks.reshape(height, k, width, k).max((1, 3))
    level = np.rint(np.sqrt(np.maximum(blocks, 0) / 255) * (len(SEQUENTIAL_STOPS) - 1)).astype(int)
    level[blocks < 0] = -1
    side = min(16, 240 // max(height, width))
    shapes = []
    for stop, colour in enumerate((MASKED, *SEQUENTIAL_STOPS), start=-1):
        squares = "".join(f"M{side * b} {side * a}h{side}v{side}h-{side}z" for a, b in np.argwhere(level == stop).tolist())
        if squares:
            shapes.append(f'<path fill="{colour}" stroke="none" d="{squares}"/>')
    return svg(side * width, side * height, label, *shapes)

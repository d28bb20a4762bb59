"""Named tensors. Generated from book/named_tensors.ipynb: edit the notebook, then `make export`."""

import math
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Shaped

from tlm_book.checks import expects, shaped
from tlm_book.libraries import library
from tlm_book.spec.operators import agree

try:
    import xarray as xr
except ModuleNotFoundError:
    library("xarray", "book")  # says how to get it
    raise

NamedTensor = Shaped[xr.DataArray, "..."]


def _expects_named(argument: str, X: NamedTensor) -> None:
    names = f"axes {X.dims}"
    expects(len(set(X.dims)) == X.ndim, argument, names, "axes of different names")
    labelled = f"labels along {', '.join(map(str, X.indexes))}"
    expects(not X.indexes, argument, labelled, "indices from 0, no labels")


@shaped
def named(array: Shaped[np.ndarray, "..."], *names: str) -> NamedTensor:
    """The array as a named tensor, with the k-th name for its k-th axis.
    (L-notation-scope)

    ValueError unless there is one name for each axis, all different strings.

    >>> named(np.zeros((2, 3)), "height", "width").sizes["width"]
    3
    """
    fits = len(set(names)) == len(names) == array.ndim
    fits = fits and all(isinstance(name, str) for name in names)
    expects(fits, "names", names, f"{array.ndim} different names, one for each axis")
    return xr.DataArray(array, dims=names)

__all__ = [
    "NamedTensor",
    "named",
    "to_array",
    "same",
    "dot",
    "rename",
    "residual",
    "softmax",
    "lift",
    "linear",
    "ffn",
    "standardize",
    "normalize",
    "attention",
    "self_attention",
    "block",
]


# --- Tensors whose axes have names


@shaped
def to_array(X: NamedTensor, *names: str) -> Shaped[np.ndarray, "..."]:
    """The entries of X, with its axes in the order of `names`.

    ValueError unless these are the axes of X.
    """
    _expects_named("X", X)
    fits = len(names) == X.ndim and set(names) == set(X.dims)
    expects(fits, "names", names, f"the axes {X.dims} in some order")
    return X.transpose(*names).values


@shaped
def same(X: NamedTensor, Y: NamedTensor, tol: float = 1e-12) -> bool:
    """Whether X and Y have the same axes, in any order, and entries equal up to tol.
    (L-notation-scope)

    >>> X = named(np.eye(2) + [[0, 1], [0, 0]], "a", "b")
    >>> same(X, X.transpose("b", "a")), same(X, X.rename({"a": "b", "b": "a"}))
    (True, False)
    """
    _expects_named("X", X)
    _expects_named("Y", Y)
    Y = Y.transpose(*X.dims) if set(X.dims) == set(Y.dims) else Y
    return X.dims == Y.dims and agree(X.values, Y.values, tol)


def _expects_axes(
    argument: str,
    X: NamedTensor,
    has: tuple[Any, ...] = (),
    lacks: tuple[Any, ...] = (),
) -> None:
    _expects_named(argument, X)
    fits = set(has) <= set(X.dims) and not set(lacks) & set(X.dims)
    without = f" and none of {', '.join(map(str, lacks))}" * bool(lacks)
    wants = f"the axes {', '.join(map(str, has))}" + without
    expects(fits, argument, f"axes {X.dims}", wants)


def _expects_sizes(argument: str, Y: NamedTensor, X: NamedTensor) -> None:
    for axis in set(X.dims) & set(Y.dims):
        got = f"axis {axis} of size {Y.sizes[axis]}"
        expects(Y.sizes[axis] == X.sizes[axis], argument, got, str(X.sizes[axis]))


@shaped
def dot(X: NamedTensor, Y: NamedTensor, *axes: str) -> NamedTensor:
    """X ⊙_axes Y: the product, summed along these axes. (L-products-def)

    ValueError unless X and Y both have the axes, and axes of the same name have the
    same size. A NaN stays NaN.

    >>> x = named(np.array([1.0, 2.0]), "ax")
    >>> float(dot(x, x, "ax"))
    5.0
    """
    fits = 0 < len(set(axes)) == len(axes)
    expects(fits, "axes", axes, "at least one axis, and none twice")
    _expects_axes("X", X, axes)
    _expects_axes("Y", Y, axes)
    _expects_sizes("Y", Y, X)
    return (X * Y).sum(axes, skipna=False)


# --- Renaming


@shaped
def rename(X: NamedTensor, old: str, new: str) -> NamedTensor:
    """X_{old→new}: the same entries, with the axis `old` called `new`. (L-rename)

    ValueError if X lacks `old` or already has `new`.

    >>> rename(named(np.ones((2, 3)), "seq", "val"), "val", "chans").dims
    ('seq', 'chans')
    """
    _expects_axes("X", X, (old,), (new,))
    return X.rename({old: new})


@shaped
def residual(X: NamedTensor, Y: NamedTensor) -> NamedTensor:
    """X + Y, for tensors with the same axes and sizes: no broadcasting. (L-rename)

    ValueError if the axes or their sizes differ.
    """
    _expects_named("X", X)
    _expects_named("Y", Y)
    fits = set(X.dims) == set(Y.dims)
    expects(fits, "Y", f"axes {Y.dims}", f"the axes of X, {X.dims}")
    _expects_sizes("Y", Y, X)
    return X + Y


# --- Functions on an axis, and their lifts


@shaped
def softmax(X: NamedTensor, ax: str) -> NamedTensor:
    """exp(X) / Σ_ax exp(X), with exp(−∞) = 0. (L-softmax-def)

    The maximum along ax is subtracted first: the quotient is unchanged and no
    exponential overflows. A NaN makes its whole list NaN. ValueError if X lacks
    the axis.
    """
    _expects_axes("X", X, (ax,))
    E: Any = np.exp(X - X.max(ax))  # a named tensor
    return E / E.sum(ax, skipna=False)


@shaped
def lift(
    f: Callable[..., NamedTensor],
    sources: tuple[tuple[str, ...], ...],
    target: tuple[str, ...],
) -> Callable[..., NamedTensor]:
    """The lift of f, slice by slice. (L-lift-def)

    sources: for each argument the axes that f reads; target: those of its result. The
    lifted function raises ValueError if an argument lacks an axis of its source, or
    has a further one that the target names; if a further axis has two sizes, or the
    size 0; if there are more or fewer arguments than sources; and if f returns axes
    other than `target`; TypeError if it returns no named tensor.

    >>> total = lift(lambda x: x.sum("ax"), (("ax",),), ())
    >>> total(named(np.ones((2, 3)), "ax", "bx")).values
    array([2., 2., 2.])
    """

    def lifted(*tensors: NamedTensor) -> NamedTensor:
        fits = len(tensors) == len(sources)
        expects(fits, "arguments", len(tensors), f"{len(sources)}, one for each source")
        further: list[set[Hashable]] = []
        sizes: dict[Hashable, int] = {}
        for k, (X, S) in enumerate(zip(tensors, sources, strict=True)):
            _expects_axes(f"argument {k}", X, S, tuple(a for a in target if a not in S))
            new = {axis: n for axis, n in X.sizes.items() if axis not in S}
            for axis, n in new.items():
                came, one = f"axis {axis} of size {n}", sizes.setdefault(axis, n)
                expects(n == one, f"argument {k}", came, str(one))
                expects(n > 0, f"argument {k}", came, "at least 1")
            further.append(set(new))
        if not sizes:
            Y = f(*tensors)
            wants = "a named tensor"
            expects(isinstance(Y, xr.DataArray), "f", type(Y).__name__, wants, TypeError)
            expects(set(Y.dims) == set(target), "f", f"axes {Y.dims}", f"{target}")
            return Y
        axis, n = next(iter(sizes.items()))
        slices = [
            [X.isel({axis: i}) if axis in new else X for X, new in zip(tensors, further)]
            for i in range(n)
        ]
        return xr.concat([lifted(*s) for s in slices], dim=axis)

    return lifted


# --- Layers, one line each


@shaped
def linear(X: NamedTensor, W: NamedTensor, b: NamedTensor, ax: str) -> NamedTensor:
    """X ⊙_ax W + b. (L-linear-def)

    X: the axis ax and any that W lacks; b: the axes of W without ax, of which there may
    be several (heads and key). ValueError otherwise.
    """
    _expects_axes("W", W, (ax,))
    out = tuple(axis for axis in W.dims if axis != ax)
    _expects_axes("X", X, (ax,), out)
    _expects_named("b", b)
    expects(set(b.dims) == set(out), "b", f"axes {b.dims}", f"the axes {out}")
    _expects_sizes("b", b, W)
    return dot(X, W, ax) + b


@shaped
def ffn(
    X: NamedTensor,
    W_1: NamedTensor,
    b_1: NamedTensor,
    W_2: NamedTensor,
    b_2: NamedTensor,
    ax: str = "chans",
) -> NamedTensor:
    """ReLU(X ⊙_ax W_1 + b_1) ⊙_hidden W_2 + b_2. (L-ffn-def)

    W_1: (ax, hidden), W_2: (hidden, bx). ValueError if X has an axis `hidden`, or
    an output axis of W_2 other than ax.
    """
    H: Any = np.maximum(linear(X, W_1, b_1, ax), 0)  # a named tensor
    return linear(H, W_2, b_2, "hidden")


@shaped
def standardize(X: NamedTensor, *axes: str, eps: float = 1e-5) -> NamedTensor:
    """(X − mean) / √(var + ε), with mean and variance along the axes.

    The guard ε stands inside the root. A NaN stays NaN. ValueError if X lacks one of
    the axes.
    """
    expects(len(axes) > 0, "axes", axes, "at least one axis")
    _expects_axes("X", X, axes)
    U = X - X.mean(axes, skipna=False)
    return U / np.sqrt((U**2).mean(axes) + eps)


@shaped
def normalize(
    X: NamedTensor,
    gamma: NamedTensor,
    beta: NamedTensor,
    *axes: str,
    eps: float = 1e-5,
) -> NamedTensor:
    """standardize_axes(X) ⊙ γ + β. The axes (batch, layer) give batch norm, (layer)
    instance norm, (layer, chans) or (chans) layer norm.

    gamma, beta: axes that X has. ValueError otherwise.
    """
    for name, weight in (("gamma", gamma), ("beta", beta)):
        _expects_named(name, weight)
        fits = set(weight.dims) <= set(X.dims)
        expects(fits, name, f"axes {weight.dims}", f"axes among {X.dims}")
        _expects_sizes(name, weight, X)
    return standardize(X, *axes, eps=eps) * gamma + beta


# --- Attention, by name


@shaped
def attention(
    Q: NamedTensor, K: NamedTensor, V: NamedTensor, mask: NamedTensor | None = None
) -> NamedTensor:
    """softmax_seq(Q ⊙_key K / √|key| + mask) ⊙_seq V. (L-attention-def)

    Q: key; K: seq and key; V: seq; all may have further axes. Those of Q must not be
    called seq, nor those of V key: several queries stand along another axis, say seq'.
    An axis that two of Q, K and V share, val included, is one axis: slices with the
    same index are combined. mask: 0 where a query may look, −∞ elsewhere. ValueError
    otherwise.
    """
    _expects_axes("Q", Q, ("key",), ("seq",))
    _expects_axes("K", K, ("seq", "key"))
    _expects_axes("V", V, ("seq",), ("key",))
    _expects_sizes("K", K, Q)
    _expects_sizes("V", V, K)
    scores = dot(Q, K, "key") / math.sqrt(K.sizes["key"])
    if mask is not None:
        _expects_named("mask", mask)
        fits = set(mask.dims) <= set(scores.dims)
        expects(fits, "mask", f"axes {mask.dims}", f"axes among {scores.dims}")
        _expects_sizes("mask", mask, scores)
        scores = scores + mask
    return dot(softmax(scores, "seq"), V, "seq")


# --- Self-attention


@shaped
def self_attention(
    X: NamedTensor, w: Mapping[str, NamedTensor], mask: NamedTensor | None = None
) -> NamedTensor:
    """[Attention(LN_Q(X_{seq→seq'}), LN_K(X), LN_V(X))]_{seq'→seq}.
    (L-selfattention-def)

    X: chans, seq. w: W_Q, W_K: (chans, key), W_V: (chans, val), b_Q, b_K, b_V; if all
    six have a further axis heads, so does the result. mask: (seq', seq).
    """
    Q = linear(rename(X, "seq", "seq'"), w["W_Q"], w["b_Q"], "chans")
    K = linear(X, w["W_K"], w["b_K"], "chans")
    V = linear(X, w["W_V"], w["b_V"], "chans")
    return rename(attention(Q, K, V, mask), "seq'", "seq")


# --- The whole block


@shaped
def block(
    X: NamedTensor,
    w: Mapping[str, NamedTensor],
    mask: NamedTensor | None = None,
    eps: float = 1e-5,
) -> NamedTensor:
    """X_2 = X + SelfAttention(LayerNorm(X))_{val→chans},
    Y = X_2 + FFN(LayerNorm(X_2)). (L-block-def)

    X: chans, seq and further axes other than seq', key, val and hidden. w: gamma_1,
    beta_1, gamma_2, beta_2: (chans); W_Q, …, b_V as for `self_attention`; W_1, b_1, W_2,
    b_2 as for `ffn`. ValueError unless |val| = |chans|.
    """
    X_1 = normalize(X, w["gamma_1"], w["beta_1"], "chans", eps=eps)
    X_2 = residual(X, rename(self_attention(X_1, w, mask), "val", "chans"))
    X_3 = normalize(X_2, w["gamma_2"], w["beta_2"], "chans", eps=eps)
    return residual(X_2, ffn(X_3, w["W_1"], w["b_1"], w["W_2"], w["b_2"]))

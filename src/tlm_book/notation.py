"""Notation. Generated from book/notation.ipynb: edit the notebook, then `make export`."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from tlm_book.checks import expects, expects_one_of, expects_positive, expects_shape

__all__ = [
    "WEIGHT_LAYOUTS",
    "to_layout",
    "from_layout",
    "to_columns",
    "from_columns",
]


# --- One layer, five layouts


WEIGHT_LAYOUTS = {  # names of queries, keys, values; name of the output; transposed?
    "tlm_book": (("qkv.",), "out.", True),
    "cross": (("query.", "key.", "value."), "out.", True),
    "torch": (("in_proj_",), "out_proj.", True),
    "gpt2": (("c_attn.",), "c_proj.", False),
    "marian": (("q_proj.", "k_proj.", "v_proj."), "out_proj.", True),
}


def _expects_exactly(name: str, W: Tensor, shape: tuple[int, ...]) -> None:
    expects(tuple(W.shape) == shape, name, f"shape {tuple(W.shape)}", f"{shape}")


def _expects_heads(weights: Mapping[str, Tensor]) -> None:
    for name in ("W_V", "W_Q", "W_K", "W_O"):
        expects(name in weights, "weights", f"the names {', '.join(weights)}", name)
    expects_shape("W_V", weights["W_V"], ("h", "d", "v"))
    h, d, v = weights["W_V"].shape[-3:]
    expects_shape("W_Q", weights["W_Q"], (h, d, "k"))
    expects_shape("W_K", weights["W_K"], tuple(weights["W_Q"].shape))
    expects_shape("W_O", weights["W_O"], (h * v, "d"))
    k = weights["W_Q"].shape[-1]
    whole = {"W_V": (h, d, v), "W_Q": (h, d, k), "W_K": (h, d, k), "W_O": (h * v, d)}
    whole |= {"b_Q": (h, k), "b_K": (h, k), "b_V": (h, v), "b_O": (d,)}
    for name, shape in whole.items():
        if name in weights:
            _expects_exactly(name, weights[name], shape)


def to_layout(
    weights: Mapping[str, Float[Tensor, "..."]], layout: str
) -> dict[str, Float[Tensor, "..."]]:
    """The weights W_Q, W_K: (h, d, k), W_V: (h, d, v), W_O: (h·v, d) of one attention
    layer, under the names and in the shapes of another program; biases b_Q, b_K, b_V
    and b_O if given. The results may share memory with the weights.

    `layout` is one of WEIGHT_LAYOUTS; the layers of PyTorch, GPT-2 and Marian allow
    only k = v = d/h. The inverse of `from_layout`. ValueError for another layout, for a
    missing weight, and for shapes that do not fit.
    """
    expects_one_of("layout", layout, tuple(WEIGHT_LAYOUTS))
    _expects_heads(weights)
    names, out, transposed = WEIGHT_LAYOUTS[layout]
    W = [weights[f"W_{x}"].transpose(0, 1).flatten(1) for x in "QKV"]  # (d, h·k)
    b = [weights[f"b_{x}"].flatten() for x in "QKV" if f"b_{x}" in weights]
    expects(len(b) in (0, 3), "weights", f"{len(b)} of b_Q, b_K, b_V", "all or none")
    if len(names) == 1:
        W, b = [torch.cat(W, 1)], [torch.cat(b)] if b else []
    matrices = {**dict(zip(names, W)), out: weights["W_O"]}
    rows = dict(zip(names, b))
    if "b_O" in weights:
        rows[out] = weights["b_O"]
    return {
        f"{name}weight": (M.T if transposed else M).contiguous()
        for name, M in matrices.items()
    } | {f"{name}bias": row for name, row in rows.items()}


def from_layout(
    state: Mapping[str, Float[Tensor, "..."]], n_heads: int, layout: str
) -> dict[str, Float[Tensor, "..."]]:
    """W_Q, W_K, W_V, W_O, one matrix for each head, and the biases if there are any:
    the inverse of `to_layout`.

    `state` is the `state_dict()` of one attention layer with `n_heads` heads of queries,
    of keys and of values (in a fused matrix fewer heads of keys look like wider values).
    ValueError for another layout, for a missing weight, and for heads that do not fit.
    """
    expects_one_of("layout", layout, tuple(WEIGHT_LAYOUTS))
    expects_positive(n_heads=n_heads)
    names, out, transposed = WEIGHT_LAYOUTS[layout]
    for name in (*names, out):
        lacks = f"{name}weight" not in state
        expects(not lacks, "state", f"the names {', '.join(state)}", f"{name}weight")
    matrices = [state[f"{name}weight"] for name in (*names, out)]
    for name, M in zip((*names, out), matrices):
        got = f"shape {tuple(M.shape)}"
        expects(M.dim() == 2, f"{name}weight", got, "a matrix")
    *W, W_O = [M.T for M in matrices] if transposed else matrices
    b = [state[f"{name}bias"] for name in names if f"{name}bias" in state]
    all_or_none = len(b) in (0, len(names))
    got = f"{len(b)} of {len(names)} biases"
    expects(all_or_none, "state", got, "all or none; for one that is 0 put zeros")
    for name, M, row in zip(names, W, b):
        _expects_exactly(f"{name}bias", row, (M.shape[1],))
    if f"{out}bias" in state:
        _expects_exactly(f"{out}bias", state[f"{out}bias"], (W_O.shape[1],))
    if len(names) == 1:
        columns, hv = W[0].shape[1], len(W_O)
        k = (columns - hv) // 2  # h times the width of a key
        fits = columns == 2 * k + hv and k > 0
        expects(
            fits, "state", f"{columns} columns and {hv} rows of W_O", "W_Q, W_K, W_V"
        )
        W = W[0].split((k, k, hv), 1)
        b = b[0].split((k, k, hv)) if b else []
    for M in W:
        fits = M.shape[1] % n_heads == 0
        expects(fits, "n_heads", n_heads, f"a divisor of {M.shape[1]}")
    heads = {f"W_{x}": M.unflatten(1, (n_heads, -1)) for x, M in zip("QKV", W)}
    weights = {name: M.transpose(0, 1) for name, M in heads.items()} | {"W_O": W_O}
    weights |= {
        f"b_{x}": row.unflatten(0, (n_heads, -1)) for x, row in zip("QKV", b)
    }
    if f"{out}bias" in state:
        weights["b_O"] = state[f"{out}bias"]
    _expects_heads(weights)
    return {name: W.contiguous() for name, W in weights.items()}


def to_columns(
    weights: Mapping[str, Float[Tensor, "..."]],
) -> dict[str, Float[Tensor, "_ _ _"]]:
    """W_q, W_k: (h, k, d), W_v: (h, v, d), W_o: (h, d, v): matrices that act on
    columns. Head i is X ↦ A X W_v[i]ᵀ W_o[i]ᵀ with the scores X W_q[i]ᵀ W_k[i] Xᵀ, and
    the layer is the sum of its heads.

    The inverse of `from_columns`; biases are dropped, because this form has none.
    ValueError for a missing weight, and for shapes that do not fit.
    """
    _expects_heads(weights)
    W_O = weights["W_O"].unflatten(0, (len(weights["W_Q"]), -1))  # (h, v, d)
    named = {"q": weights["W_Q"], "k": weights["W_K"], "v": weights["W_V"], "o": W_O}
    return {f"W_{x}": W.mT.contiguous() for x, W in named.items()}


def from_columns(
    columns: Mapping[str, Float[Tensor, "_ _ _"]],
) -> dict[str, Float[Tensor, "..."]]:
    """W_Q, W_K, W_V, W_O from the matrices that act on columns: the inverse of
    `to_columns`. ValueError for a missing weight.
    """
    for name in ("W_q", "W_k", "W_v", "W_o"):
        expects(name in columns, "columns", f"the names {', '.join(columns)}", name)
        expects_shape(name, columns[name], ("h", "r", "c"))
    weights = {f"W_{x.upper()}": columns[f"W_{x}"].mT.contiguous() for x in "qkvo"}
    weights["W_O"] = weights["W_O"].flatten(0, 1)
    _expects_heads(weights)
    return weights

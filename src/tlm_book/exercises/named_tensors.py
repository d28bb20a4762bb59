"""Graders for the exercises of the chapter named_tensors."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from tlm_book.exercises.grading import function, value
from tlm_book.spec import attention as by_index
from tlm_book.spec.named_tensors import (
    attention,
    dot,
    linear,
    named,
    rename,
    softmax,
    standardize,
    to_array,
)


def tensor(rng: np.random.Generator, **sizes: int) -> Any:
    """A random named tensor with these axes; an underscore after a name stands for a prime."""
    return named(rng.normal(size=tuple(sizes.values())), *(name.replace("_", "'") for name in sizes))


def two_matrices(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    return tensor(rng, chans=4, key=n), tensor(rng, key=n, chans=4)


def two_texts(rng: np.random.Generator, n: int) -> tuple[Any, Any, dict[str, Any]]:
    sizes = {"Q": {"key": 3, "chans": 4}, "K": {"chans": 4, "key": 3}, "V": {"chans": 4, "val": 2}}
    w = {f"W_{q}": tensor(rng, **size) for q, size in sizes.items()}
    w |= {f"b_{q}": tensor(rng, **{out: size[out]}) for (q, size), out in zip(sizes.items(), ("key", "key", "val"))}
    return tensor(rng, chans=4, seq_=n), tensor(rng, chans=4, seq=n + 1), w


def crossed(X: Any, Z: Any, w: Mapping[str, Any]) -> np.ndarray:
    x, z = to_array(X, "seq'", "chans"), to_array(Z, "seq", "chans")
    q, k, v = (t @ to_array(w[f"W_{n}"], "chans", out) + w[f"b_{n}"].values
               for t, n, out in ((x, "Q", "key"), (z, "K", "key"), (z, "V", "val")))
    return by_index.attention(q, k, v, causal=False)


def cross(X: Any, K: Any, V: Any, w: Mapping[str, Any], bias: int = 1) -> Any:
    q, k, v = (linear(t, w[f"W_{n}"], bias * w[f"b_{n}"], "chans") for t, n in zip((X, K, V), "QKV"))
    return attention(q, k, v)


def totals() -> tuple[tuple[float, ...], set[str]]:
    S = tensor(np.random.default_rng(0), seq_=4, seq=3)
    both = np.exp(S) / np.exp(S).sum()
    three = {"seq": softmax(S, "seq"), "seq'": softmax(S, "seq'"), "both": both}
    averages = {name for name, P in three.items() if np.allclose(P.sum("seq"), 1)}
    return tuple(float(P.sum()) for P in three.values()), averages


def group_axes() -> set[str]:
    """The axes of torch's group norm, found by trying all choices."""
    z = np.random.default_rng(0).normal(size=(2, 6, 5))
    want, axes = F.group_norm(torch.from_numpy(z), 3).numpy(), ("batch", "group", "member", "layer")
    Z = named(z.reshape(2, 3, 2, 5), *axes)
    choices = [set(c) for k in range(1, 5) for c in itertools.combinations(axes, k)]
    return next(c for c in choices if np.allclose(to_array(standardize(Z, *c), *axes).reshape(z.shape), want, atol=1e-9))


EXERCISES = [
    function(
        "a function `query_key(W_Q, W_K)` of tensors with the axes chans and key: the matrix with the axes"
        " chans (of the queries) and chans' (of the keys)",
        two_matrices,
        lambda W_Q, W_K: to_array(W_Q, "chans", "key") @ to_array(W_K, "chans", "key").T,
        {
            "chans and chans' are exchanged: the prime belongs to the keys.": lambda W_Q, W_K: dot(rename(W_Q, "chans", "chans'"), W_K, "key"),
            "Nothing is scaled here; √|key| belongs to the attention.":
                lambda W_Q, W_K: dot(W_Q, rename(W_K, "chans", "chans'"), "key") / np.sqrt(W_Q.sizes["key"]),
            "": lambda W_Q, W_K: dot(W_Q, W_K, "key"),
            "The queries meet the queries: where is W_K?": lambda W_Q, W_K: dot(W_Q, rename(W_Q, "chans", "chans'"), "key"),
        },
        through=lambda out, W_Q, W_K: to_array(out, "chans", "chans'"),
    ),
    value(
        "a pair: the sums of all entries of the three results for 4 queries and 3 keys, as a tuple; and the set of those"
        ' of "seq", "seq\'", "both" that give averages',
        totals,
        {
            "The softmax over seq sums to 1 along seq, once for each seq'.": ((3, 4, 1), {"seq"}),
            "An average is taken over the keys, so the weights of each query have to sum to 1.": ((4, 3, 1), {"seq'"}),
            "All weights together sum to 1 in only one of the three.": ((1, 1, 1), {"seq"}),
            "Weights that sum to 1 altogether do not make an average for each query.": ((4, 3, 1), {"seq", "both"}),
        },
    ),
    function(
        "a function `cross(X, Z, w)` that returns a tensor with the axes seq' and val; w holds W_Q, W_K, W_V, b_Q, b_K, b_V under these names",
        two_texts,
        crossed,
        {
            "The values are the rows of Z themselves; W_V and b_V are missing.": lambda X, Z, w: cross(X, Z, Z, w | {
                "W_V": named(np.eye(4, 2), "chans", "val"), "b_V": 0 * w["b_V"]}),
            "The biases are forgotten.": lambda X, Z, w: cross(X, Z, Z, w, bias=0),
            "This is self-attention of X: the other text is not read.":
                lambda X, Z, w: cross(X, rename(X, "seq'", "seq"), rename(X, "seq'", "seq"), w),
            "The scores are divided by √|key|, not by √|val|.":
                lambda X, Z, w: cross(X, Z, Z, w | {q: w[q] * np.sqrt(3 / 2) for q in ("W_Q", "b_Q")}),
            "W_Q and W_K are exchanged.": lambda X, Z, w: cross(X, Z, Z, w | {"W_Q": w["W_K"], "b_Q": w["b_K"], "W_K": w["W_Q"], "b_K": w["b_Q"]}),
        },
        through=lambda out, X, Z, w: to_array(out, "seq'", "val"),
    ),
    value(
        'the set of these axes, from among "batch", "group", "member", "layer"',
        group_axes,
        {
            "That is instance norm: every channel by itself. A group has several members.": {"layer"},
            "That is layer norm: all groups together.": {"group", "member", "layer"},
            "The groups must stay apart.": {"group", "layer"},
            "The positions of a group's channels belong together as well.": {"member"},
            "Each example is treated by itself.": {"batch", "member", "layer"},
        },
    ),
    function(
        "a function `trace(A)` that returns the trace of a tensor A with the axes ax and ax' of the same size",
        lambda rng, n: (tensor(rng, ax=n, ax_=n),),
        lambda A: float(np.trace(A.values)),
        {
            "This adds up all entries, which is right only for n = 1.": lambda A: float(A.sum()),
            "This is the sum of the squares: A meets itself, not the identity.": lambda A: float(dot(A, A, "ax", "ax'")),
            "This adds up the other diagonal.": lambda A: float(np.trace(A.values[::-1])),
        },
    ),
]

"""From the culprit to a guess at the cause: experiments on one module by itself."""

import inspect
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Inexact, Int, Shaped
from torch import Tensor, nn

from tlm_book.auditing.blame import Call
from tlm_book.auditing.softmaxes import (
    OPEN,
    causes_by_softmax,
    weak_or_open,
    what_softmaxes_see,
)
from tlm_book.auditing.state import seed_everything
from tlm_book.auditing.tensors import (
    as_real,
    attempt,
    is_continuous,
    largest,
    map_tensors,
    tensors_in,
)
from tlm_book.auditing.trial import Trial


@dataclass
class Behaviour:
    """How the culprit's output rows depend on its input rows, by experiments on this one module."""

    effects: Float[np.ndarray, "n n"]  # entry (i, j): the change of row i when input row j is replaced
    alike: bool  # every earlier row changes in the same way
    rescales: bool  # the earlier rows are only scaled and shifted, channel by channel
    symmetric: bool  # the order of later rows does not matter
    permutes: bool  # the output rows are the input rows in another order
    averages: bool  # of two later rows, the earlier rows see only the sum
    softmax: str  # what softmaxes inside the module are given


def normal(shape: Sequence[int], draw: torch.Generator, like: Shaped[Tensor, "..."]) -> Inexact[Tensor, "..."]:
    """Normally distributed numbers of this shape, real or complex as `like`, and of its type and on its device."""
    kind = torch.complex64 if like.is_complex() else None
    return torch.randn(shape, generator=draw, dtype=kind, device=draw.device).to(like)


def replay(trial: Trial, call: Call, change: Callable[[Tensor, int], Tensor]) -> Shaped[Tensor, "n e"]:
    """Run the module again on changed inputs; returns its first output with rows, rows first."""
    axes = iter(call.axes)

    def changed(t: Tensor) -> Tensor:
        along = next(axes)
        return change(t, along[0]) if len(along) == 1 else t.clone()

    args, kwargs = map_tensors(call.args, changed), map_tensors(call.kwargs, changed)
    seed_everything(0, trial.generators)
    if not isinstance(call.module, nn.Module):
        return trial.rows(args[0])[0]
    outputs = zip(tensors_in(call.module(*args, **kwargs)), call.axes[call.inputs() :])
    y, axis = next((y, along[0]) for y, along in outputs if along)
    return as_real(y.movedim(axis, 0)).reshape(y.shape[axis], -1)


def examine(trial: Trial, call: Call, n: int) -> Behaviour | None:
    """The culprit's behaviour when rows of its own input are replaced, permuted and compared."""
    draw, vocab = torch.Generator().manual_seed(5), trial.plan.vocab_size

    def put(t: Tensor, axis: int, rows: Sequence[int]) -> Tensor:
        where = torch.tensor(rows, device=t.device)
        old = t.index_select(axis, where)
        if is_continuous(t):
            new = normal(old.shape, draw, t) * (t.std() + 1e-3) + t.mean()
        else:
            new = old.logical_not() if t.dtype == torch.bool else (old + 1) % vocab
        return t.clone().index_copy(axis, where, new)

    def run(change: Callable[[Tensor, int], Tensor]) -> Tensor:
        return replay(trial, call, change).double()

    y = run(lambda t, axis: t.clone())
    if len(y) != n:
        return None
    floor = 16 * min(trial.eps, 2.0**-23) * (largest(y) or 1.0)
    moved = [run(partial(put, rows=[j])) for j in range(n)]
    effects = torch.stack([(z - y).abs().amax(-1) for z in moved], 1).cpu().numpy()
    cut = n // 2
    other = run(lambda t, axis: put(t, axis, range(cut, n)))[:cut]
    order = torch.tensor([*range(cut), *range(n - 1, cut - 1, -1)], device=y.device)
    turned = run(lambda t, axis: t.index_select(axis, order))[:cut]
    rows = [t.movedim(a[0], 0) for t, a in zip(call.tensors(), call.axes) if len(a) == 1]
    given = as_real(rows[0]).reshape(n, -1).double() if rows else y
    sees = lambda change: attempt(what_softmaxes_see, lambda: run(change), n) or ""
    softmax = weak_or_open(sees(lambda t, axis: t.clone()), (sees(partial(put, rows=range(n))) for _ in range(8)))
    return Behaviour(
        np.where(effects > floor, effects, 0.0),
        *compare_outputs(y, other, turned, given, floor),
        sees_only_sums(run, y, cut, floor),
        softmax,
    )


def sees_only_sums(run: Callable[..., Tensor], y: Float[Tensor, "n e"], cut: int, floor: float) -> bool:
    """Whether the rows before the cut change equally if a number is added to the last row or to the last but one."""

    def add(t: Tensor, axis: int, row: int) -> Tensor:
        if not is_continuous(t):
            return t.clone()
        draw = torch.Generator().manual_seed(7)
        shape = [1 if a == axis else size for a, size in enumerate(t.shape)]
        more = normal(shape, draw, t) * (t.std() + 1e-3)
        return t.index_add(axis, torch.tensor([row], device=t.device), more)

    if len(y) - cut < 2:
        return False
    last, other = (run(partial(add, row=len(y) - k))[:cut] - y[:cut] for k in (1, 2))
    return largest(last) > floor and largest(last - other) <= max(1e-6 * largest(last), floor)


def compare_outputs(
    y: Float[Tensor, "n e"],
    other: Float[Tensor, "cut e"],
    turned: Float[Tensor, "cut e"],
    given: Float[Tensor, "n f"],
    floor: float,
) -> tuple[bool, bool, bool, bool]:
    """The fields alike, rescales, symmetric and permutes of `Behaviour`, from the outputs y and the first rows of the outputs for
    other later rows and for the same later rows in another order.
    """
    cut = len(other)
    change = other - y[:cut]
    close = max(1e-6 * largest(change), floor)
    near = lambda a, b: a.shape == b.shape and float((a - b).abs().max()) <= close
    z, w = y[:cut] - y[:cut].mean(0), other - other.mean(0)
    factor = (z * w).sum(0) / (z * z).sum(0).clamp_min(1e-30)
    scaled = cut > 2 and bool((factor - 1).abs().max() > 1e-9)
    return (
        largest(change) > floor and near(change, change[:1].expand_as(change)),
        scaled and near(z * factor, w),
        near(turned, y[:cut]),
        near(given.sort(0).values, y.sort(0).values),
    )


BY_CLASS = {
    "BatchNorm": "batch statistics: mean and variance are taken over all rows and sequences",
    "InstanceNorm": "normalization over the sequence axis",
    "GroupNorm": "normalization over the sequence axis",
    "LayerNorm": "normalization over the sequence axis",
    "Pool": "pooling over the sequence",
    "Softmax": "softmax over the sequence axis",
    "Softmin": "softmax over the sequence axis",
}


def cause_by_class(module: Any) -> str:
    """The cause, if the module is of one of torch's own classes and this explains the leak; "" otherwise."""
    if isinstance(module, nn.RNNBase) and module.bidirectional:
        return "bidirectional recurrence: half of it runs from the last row to the first"
    if not type(module).__module__.startswith("torch.nn"):
        return ""
    name = type(module).__name__
    return next((cause for part, cause in BY_CLASS.items() if part in name), "")


def is_attention(module: Any) -> bool:
    """Whether the module seems to weigh rows by a softmax, by the names of its classes and of what their methods use."""
    classes = [c for c in type(module).__mro__ if issubclass(c, nn.Module)]
    own = [c for c in classes if not c.__module__.startswith("torch.")]
    methods = [f for c in own for f in vars(c).values() if inspect.isfunction(f)]
    used = [name for f in methods for name in f.__code__.co_names]
    words = " ".join([*(c.__name__ for c in classes), *used]).lower()
    signs = "attn attention softmax transformerencoder transformerdecoder".split()
    return any(word in words for word in signs)


def cause_of(call: Call, local: Behaviour | None, fault: str, derivable: bool) -> str:
    """A guess at the cause, from the culprit's class and from how its rows see each other."""
    if fault == "length":
        return "the number of rows enters the computation"
    if fault == "padding":
        return "the padding is not masked, or not everywhere"
    if fault == "batch" and not isinstance(call.module, nn.modules.batchnorm._BatchNorm):
        return "the sequences of a batch are mixed: perhaps its axis is taken for that of the rows"
    if cause := cause_by_class(call.module):
        return cause
    if local is not None and (cause := causes_by_softmax(local.softmax)):
        return cause
    if local is None or not (later := np.argwhere(np.triu(local.effects, 1))).size:
        padded = isinstance(call.module, nn.modules.conv._ConvNd)
        return "convolution padding: the window reaches later rows" if padded else "not known: by itself, on other rows, the module shows no leak"
    attends = local.softmax == OPEN or not local.softmax and is_attention(call.module)
    near = cause_near(call, local, later, attends)
    return near or cause_by_shape(local, later) or cause_far(local, later, attends, derivable)


def cause_near(call: Call, local: Behaviour, later: Int[np.ndarray, "m 2"], attends: bool) -> str:
    """The cause if each row sees only a few rows ahead; "" otherwise."""
    n, reach = len(local.effects), int((later[:, 1] - later[:, 0]).max())
    rows = f"{reach} row{'s' * (reach > 1)} ahead"
    if n <= 2 * reach or not local.effects.diagonal(reach).all():
        return ""
    if "conv" in type(call.module).__name__.lower():
        return f"convolution padding: the window reaches {rows}"
    if attends:
        return f"mask off by {'one' if reach == 1 else reach}: each row sees {rows}"
    return f"an offset: each row sees {rows} (convolution padding, or a shift)"


def cause_by_shape(local: Behaviour, later: Int[np.ndarray, "m 2"]) -> str:
    """The cause if the pairs of rows that see each other form a known figure; "" otherwise."""
    n, far = len(local.effects), {tuple(pair) for pair in later.tolist()}
    if n < 4:
        return ""
    if far == {(0, n - 1)}:
        return "row 0 is given the last row: a shift that wraps around"
    if local.permutes:
        mirrored = all(i + j == n - 1 for i, j in far)
        order = "sort across positions: the output rows are the input rows in another order"
        return "the order of the rows is reversed" if mirrored else order
    if all(j == n - 1 for _, j in far):
        return "every row is given the last row"
    pairs = list(itertools.combinations(range(n), 2))
    for size in range(2, n):
        if far == {(i, j) for i, j in pairs if i // size == j // size}:
            return f"rows are mixed within blocks of {size}"
        if far == {(i, j) for i, j in pairs if j < size}:
            return f"the first {size} rows see each other: a prefix without a mask"
    return ""


def cause_far(local: Behaviour, later: Int[np.ndarray, "m 2"], attends: bool, derivable: bool) -> str:
    """The cause if all rows, or some, see far ahead."""
    n = len(local.effects)
    if n < 4 and not attends:
        return f"not known: it was seen at n = {n} only"
    if n < 4:
        return "mask missing at this length"
    if local.averages and local.softmax != OPEN and local.effects.all():
        return "pooling: it averages over the sequence, and earlier rows see the sum of the later ones"
    if local.alike and not np.tril(local.effects, -1).any():
        return "a sum from the end: each row sees the later rows and none of the earlier"
    if local.alike:
        return "pooling over the sequence: the same is added to every row"
    if local.rescales:
        return "normalization over the sequence axis: later rows scale and shift earlier ones"
    if not derivable:
        return "sort, rank, dispatch or rounding across positions: a step without a derivative"
    pairs = n * (n - 1) // 2
    some = "" if len(later) == pairs else f" for {len(later)} of {pairs} pairs"
    any_order = ", in whatever order" * local.symmetric
    if attends and not local.softmax and local.effects[*later.T].max() < 1e-3 * np.tril(local.effects, -1).max():
        return "not known: later rows count for less than a thousandth of earlier ones"
    if attends:
        return f"mask missing{some}: later rows are seen{any_order}"
    order = ", and their order counts: a recurrence from the end, or a full mixing"
    order = f"{any_order}: a mask missing, or pooling" if local.symmetric else order
    return f"later rows are seen{some or ', every one'}{order}"

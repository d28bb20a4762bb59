"""The search for the culprit: every call of a module is traced, and the first call at fault is named. (T-audit-culprit)"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from jaxtyping import Int, Shaped
from torch import Tensor, nn

from tlm_book.auditing.derivatives import differentiable_inputs
from tlm_book.auditing.tensors import (
    as_real,
    attempt,
    is_continuous,
    largest,
    map_tensors,
    row_changes,
    tensors_in,
)
from tlm_book.auditing.trial import Trial, Witness


@dataclass
class Call:
    """One call of a module: what went in and what came out, copied."""

    path: str
    module: Any
    args: Any
    kwargs: Any
    output: Any
    axes: list[tuple[int, ...]] = field(default_factory=list)  # the row axes of each tensor, inputs first

    def tensors(self) -> list[Tensor]:
        return tensors_in([self.args, self.kwargs, self.output])

    def inputs(self) -> int:
        return len(tensors_in([self.args, self.kwargs]))


def trace(trial: Trial, x: Shaped[Tensor, "batch n *d"], **extra: Any) -> list[Call]:
    """All calls of modules, in the order in which they return; that of the whole model comes last."""
    calls, waiting, hooks = [], [], []

    def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
        waiting.append((map_tensors(args, Tensor.clone), map_tensors(kwargs, Tensor.clone)))

    def leave(path: str, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        calls.append(Call(path, module, *waiting.pop(), map_tensors(output, Tensor.clone)))

    try:
        for path, module in trial.modules.items():
            hooks.append(module.register_forward_pre_hook(enter, with_kwargs=True, prepend=True))
            hooks.append(module.register_forward_hook(partial(leave, path), with_kwargs=True))
        y = trial.rows(x, **extra)
    finally:
        for handle in hooks:
            handle.remove()
    if calls and calls[-1].module is trial.model:
        return calls
    return [*calls, Call("", trial.model, [x], {}, [y], [(1,), (1,)])]


def same_calls(calls: Sequence[Call], others: Sequence[Call]) -> bool:
    """Whether two runs made the same calls in the same order."""
    made, other = ([(call.path, len(call.tensors())) for call in some] for some in (calls, others))
    return made == other


def mark_row_axes(calls: Sequence[Call], fewer: Sequence[Call], n: int, m: int) -> None:
    """Mark the axes that have a row for each row of the sequence: those of size n that have size m in the trace with m rows."""
    aligned = same_calls(calls, fewer)
    for k, call in enumerate(calls):
        others = fewer[k].tensors() if aligned else call.tensors()
        call.axes = []
        for t, o in zip(call.tensors(), others):
            axes = [axis for axis, size in enumerate(t.shape) if size == n]
            if aligned:
                axes = [a for a in axes if o.dim() == t.dim() and o.shape[a] == m]
            call.axes.append(tuple(axes))


def differ(
    a: Shaped[Tensor, "..."],
    b: Shaped[Tensor, "..."],
    axes: tuple[int, ...],
    here: Int[Tensor, " k"],
    there: Int[Tensor, " k"],
) -> bool:
    """Whether the kept rows of two tensors, `here` in one and `there` in the other, differ by more than rounding."""
    for axis in axes:
        a, b = a.index_select(axis, here), b.index_select(axis, there)
    if a.shape != b.shape or a.dtype != b.dtype:
        return True
    a, b = as_real(a), as_real(b)
    if a.numel() == 0:
        return False
    gap = float(row_changes(a.reshape(1, 1, -1), b.reshape(1, 1, -1)).max())
    eps = torch.finfo(a.dtype).eps if a.is_floating_point() else 0.0
    return gap > 2**6 * eps * largest(a)


def compare_traces(
    calls: Sequence[Call], others: Sequence[Call], here: Int[Tensor, " k"], there: Int[Tensor, " k"]
) -> Callable[[int], list[bool]]:
    """A function that tells, for the call of a given index, which of its tensors (inputs first) differ between two traces in the kept rows."""
    turn: dict[str, list[Call]] = {}
    for other in others:
        turn.setdefault(other.path, []).append(other)
    partner = [turn[c.path].pop(0) if turn.get(c.path) else c for c in calls]

    def differs(index: int) -> list[bool]:
        call, other = calls[index], partner[index]
        pairs = zip(call.tensors(), other.tensors(), call.axes)
        return [differ(a, b, axes, here, there) for a, b, axes in pairs]

    return differs


def first_to_differ(calls: Sequence[Call], differs: Callable[[int], list[bool]]) -> tuple[int | None, list[int]]:
    """The first call whose output has rows that differ while none of its inputs does; and the calls inside it whose output has no
    rows and differs while their inputs do not.
    """
    pooled: list[int] = []
    for index, call in enumerate(calls):
        flags, k = differs(index), call.inputs()
        if any(flags[:k]) or not any(flags[k:]):
            continue
        if any(flag and axes for flag, axes in zip(flags[k:], call.axes[k:])):
            within = f"{call.path}." if call.path else ""
            return index, [i for i in pooled if f"{calls[i].path}.".startswith(within)]
        pooled.append(index)
    return None, pooled


def derivatives_of_calls(trial: Trial, found: Witness) -> tuple[list[Call], Callable[[int], list[bool]]]:
    """The trace, and a function that tells which tensors of a call have, in their rows up to the witness's row, a derivative by its column."""
    column, draw = found.source, torch.Generator().manual_seed(0)
    keep = torch.arange(found.row + 1, device=found.x.device)
    with torch.enable_grad(), differentiable_inputs(trial, found.x) as (given, leaves):
        calls = trace(trial, given)

    @torch.enable_grad()
    def depends(t: Tensor, axes: tuple[int, ...]) -> bool:
        if not (t.requires_grad and is_continuous(t)):
            return False
        for axis in axes:
            t = t.index_select(axis, keep)
        t = as_real(t)
        form = (t * torch.randn(t.shape, generator=draw, device=draw.device).to(t)).nan_to_num(0.0, 0.0, 0.0)
        kept = partial(torch.autograd.grad, retain_graph=True, allow_unused=True)
        grads = kept(form.sum(), leaves, materialize_grads=True)
        return any(bool(g.reshape(*found.x.shape[:2], -1)[:, column].any()) for g in grads)

    return calls, lambda index: [depends(*pair) for pair in zip(calls[index].tensors(), calls[index].axes)]


def summarizes(calls: Sequence[Call], index: int, shorter: Sequence[Sequence[Call]]) -> bool:
    """Whether the outputs without rows of this call have the same shape in the traces of shorter sequences, as a mean of all rows
    has. (A layer that pads rows or leaves some out also returns no row for each row, but the size of its output varies.)
    """
    call, traces = calls[index], [some for some in shorter if same_calls(calls, some)]
    pairs = [zip(call.tensors(), some[index].tensors(), call.axes) for some in traces]
    outputs = [made for pair in pairs for made in itertools.islice(pair, call.inputs(), None)]
    return bool(outputs) and all(axes or t.shape == o.shape for t, o, axes in outputs)


def explains(trial: Trial, calls: Sequence[Call], index: int, found: Witness, keep: Int[Tensor, " k"]) -> bool:
    """Whether the fault vanishes if this one call is made to return what it returned for the other sequence."""
    call, turns = calls[index], itertools.count()
    which = sum(earlier.path == call.path for earlier in calls[:index])

    def patch(module: nn.Module, args: Any, output: Any) -> Any:
        single = isinstance(output, Tensor) and isinstance(call.output, Tensor)
        return call.output if next(turns) == which and single else None

    pair = found.x, found.other
    base, before = (trial.rows(x, **found.extra)[:, keep] for x in pair)
    handle = call.module.register_forward_hook(patch)
    try:
        after = trial.rows(found.other, **found.extra)[:, keep]
    finally:
        handle.remove()
    return float(row_changes(after, base).max()) < 1e-3 * float(row_changes(before, base).max())


def find_culprit(trial: Trial, fault: str, found: Witness) -> tuple[list[Call], int | None]:
    """The trace at the witness, and the index of the first call in it that is at fault, or None."""
    n, m = found.x.shape[1], found.x.shape[1] - 1
    cut = lambda k: {key: mask[:, :k] for key, mask in found.extra.items()}
    at_length = lambda k: attempt(lambda: trace(trial, found.x[:, :k], **cut(k))) or []
    fewer = at_length(m)
    if found.other is found.x:
        calls, differs = derivatives_of_calls(trial, found)
        mark_row_axes(calls, fewer, n, m)
        return calls, first_to_differ(calls, differs)[0]
    calls, others = (trace(trial, x, **found.extra) for x in (found.x, found.other))
    stay = list(found.keep) or range(min(found.source, found.other.shape[1]))
    keep = torch.tensor(stay, device=found.x.device)
    mark_row_axes(calls, fewer, n, m)
    there = keep
    if fault == "batch":  # compare one sequence alone with the same in a batch of two
        size, another = (2, found.x[:1]) if len(found.x) > 1 else (1, found.other)
        mark_row_axes(calls, trace(trial, another), size, 3 - size)
        keep = keep if size == 2 else torch.zeros_like(keep)
    index, pooled = first_to_differ(calls, compare_traces(calls, others, keep, there))
    if fault == "future" and found.x.shape == found.other.shape:
        shorter = [fewer, at_length(n // 2)] if pooled else []
        pooled = [i for i in pooled if summarizes(calls, i, shorter) and explains(trial, calls, i, found, keep)]
        index = pooled[0] if pooled else index
    return calls, index

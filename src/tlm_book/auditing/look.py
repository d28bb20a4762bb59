"""The first run in a setting: its rows, the coarsest type inside it, the memory that it takes, and whether the last layer can be left out."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Shaped
from torch import Tensor, nn

from tlm_book.auditing.onlooker import Onlooker
from tlm_book.auditing.tensors import is_continuous, tensor_of, tensors_in
from tlm_book.auditing.trial import Trial, find_axes
from tlm_book.onednn import is_linear


class CoarsestType(Onlooker):
    """Notes the coarsest floating-point type into which finer numbers are rounded."""

    def __init__(self) -> None:
        super().__init__()
        self.eps = 0.0

    def see(self, func: Any, args: Any, kwargs: Any) -> Any:
        output = func(*args, **kwargs)
        given, made = (
            [torch.finfo(t.dtype).eps for t in tensors if is_continuous(t)]
            for tensors in (tensors_in([args, kwargs]), tensors_in(output))
        )
        if given and made and max(made) > min(given):
            self.eps = max(self.eps, *made)
        return output


class Watch:
    """Notes the sizes of all outputs of modules, and the last call of a linear layer, which treats the rows one by one."""

    def __init__(self, trial: Trial) -> None:
        plain = [m for m in trial.modules.values() if is_linear(m) and "forward" not in vars(m)]
        self.calls = {m: 0 for m in plain if not (m._forward_hooks or m._forward_pre_hooks)}
        self.last: tuple[Any, Any, Any] = None, (), None  # the layer, its arguments, its output
        self.sizes: list[int] = []

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:
        self.sizes.append(sum(t.numel() * t.element_size() for t in tensors_in(output)))
        if module in self.calls:
            self.calls[module] += 1
            self.last = module, args, output


def look(trial: Trial, spare: bool) -> nn.Module | None:
    """Run the longest sequence once and note what a trial needs to know: its rows and their axes, the coarsest type, the sizes of batches.

    With `spare`, a linear layer whose output is that of the model returns its input from now on: it holds 39 million of the 124 million
    weights of GPT-2. The layer is returned; deleting its new `forward` restores its own.
    """
    n, watch = trial.plan.lengths[-1], Watch(trial)
    hooks = [m.register_forward_hook(watch) for m in trial.modules.values()]
    try:
        with CoarsestType() as seen:
            output = trial.raw(trial.first(n))
            y = tensor_of(output)
    finally:
        for handle in hooks:
            handle.remove()
    if trial.row_axis < 0:
        find_axes(trial, n, tuple(y.shape))
    axis, held = trial.row_axis, output if isinstance(output, Tensor | Mapping | list | tuple) else vars(output)
    trial.outputs = sum(t.dim() > axis and t.shape[axis] == y.shape[axis] for t in tensors_in(held))
    trial.bases.clear()
    trial.kept.clear()
    trial.coarsest = seen.eps
    trial.plan.batch, trial.plan.batch_grad = batch_sizes(trial, watch.sizes, y)
    layer, args, output = watch.last
    rows_along = {trial.row_axis % y.dim(), (trial.batch_axis or 0) % y.dim()}
    spare = spare and output is y and y.dim() - 1 not in rows_along and watch.calls[layer] == 1
    trial.bases[n] = trial.shown(args[0] if spare else y, trial.first(n))
    if not spare:
        return None
    layer.forward = lambda rows: rows
    return layer


def batch_sizes(trial: Trial, sizes: Sequence[int], y: Shaped[Tensor, "..."]) -> tuple[int, int]:
    """How many sequences fit into the memory at a time, without derivatives and with them; `sizes` are the bytes of the modules' outputs for one."""
    needs = (8 * max(sizes, default=0) + 8 * y.numel() + 1, 2 * sum(sizes) + 8 * y.numel() + 1)
    plain, grad = (max(1, min(64, trial.plan.options.memory // need)) for need in needs)
    return plain, grad

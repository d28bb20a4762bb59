"""What counts as noise in one setting. (T-audit-noise)"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Shaped
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tlm_book.auditing.cuts import fresh_rows
from tlm_book.auditing.modules import takes_argument
from tlm_book.auditing.tensors import attempt, largest, row_changes, tensors_in
from tlm_book.auditing.trial import Trial
from tlm_book.checks import expects


class CoarsestType(TorchDispatchMode):
    """Notes the coarsest floating-point type into which finer numbers are rounded."""

    def __init__(self) -> None:
        super().__init__()
        self.eps = 0.0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here; True would have torch import its compiler first, which takes seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        given, made = (
            [torch.finfo(t.dtype).eps for t in tensors if t.is_floating_point()]
            for tensors in (tensors_in([args, kwargs]), tensors_in(output))
        )
        if given and made and max(made) > min(given):
            self.eps = max(self.eps, *made)
        return output


def measure_noise(trial: Trial, n: int) -> list[str]:
    """Sets what counts as noise in this setting; returns what stands in the way of a verdict."""
    x = trial.first(n)
    with CoarsestType() as seen:
        y = trial.bases[n] = trial.rows(x)
    again, _ = trial.rows(x), trial.rows(fresh_rows(trial, x, 0, torch.Generator()))
    later, drawn = trial.rows(x), trial.rows(x, seed=1)
    size = lambda other: float(row_changes(other, y).max()) / (largest(y) or 1.0)
    twice = size(again)
    trial.remembers = not twice and size(later) > 0
    trial.random = not twice and not trial.remembers and size(drawn) > 0
    own = torch.finfo(y.dtype if y.is_floating_point() else torch.float64).eps
    trial.eps = max(own, seen.eps)
    trial.tolerance = max(16 * twice, noise_level(trial, x, y))
    trial.decided = not y.isnan().any() and twice < 1e-2 and not trial.remembers
    problems = []
    if y.isnan().any():
        spoiled = trial.double and trial.plan.own != torch.float64
        expects(not spoiled, "the output", "NaN", "numbers")
        rows = y.isnan().any(-1)[0].nonzero().flatten().tolist()
        shown = ", ".join(map(str, rows[:6])) + " …" * (len(rows) > 6)
        problems.append(f"NaN in output rows {shown}: nothing can be said of them")
    if trial.remembers:
        change = f"after another sequence, the same input gives an output that differs by {size(later):.1e}"
        problems.append(f"{change}: the model remembers earlier calls")
    if twice > 0:
        change = f"the same input twice gives outputs that differ by {twice:.1e}"
        problems.append(f"{change}: a smaller leak is not seen")
    return problems


def noise_level(trial: Trial, x: Shaped[Tensor, "batch n *d"], y: Shaped[Tensor, "batch m e"]) -> float:
    """What is surely noise, as a part of the largest output. (T-audit-noise)"""
    scale = largest(y) or 1.0
    copies = y if trial.random else trial.rows(x.repeat_interleave(3, 0))
    place, padded = float(row_changes(copies, y).max()), repadded(trial, x)
    rounding = max(16 * shaken(trial, x, y), 4 * place, 4 * padded) / scale
    return max(min(rounding, 2**16 * trial.eps), 64 * trial.eps)


@contextlib.contextmanager
def moved_by_one_unit(trial: Trial, x: Shaped[Tensor, "batch n *d"]) -> Iterator[Tensor]:
    """Inside, each weight and each number of the input is moved by one unit in its last place, up or down."""
    draw = torch.Generator().manual_seed(1)
    signs = 2 * torch.randint(2, (4099,), generator=draw) - 1

    def moved(t: Tensor) -> Tensor:
        factor = 1 + max(trial.eps, torch.finfo(t.dtype).eps) * signs.to(t)
        flat = t.flatten().clone()
        whole = len(flat) // len(signs) * len(signs)  # the same signs, over and over
        flat[:whole].view(-1, len(signs)).mul_(factor)
        flat[whole:].mul_(factor[: len(flat) - whole])
        return flat.view(t.shape)

    weights = [t for m in trial.modules.values() for t in m._parameters.values()]
    held = {id(t): t for t in weights if t is not None and t.is_floating_point()}
    before = [(t, t.data) for t in held.values()]
    try:
        for t, data in before:
            t.data = moved(data)
        yield moved(x) if x.is_floating_point() else x
    finally:
        for t, data in before:
            t.data = data


def shaken(trial: Trial, x: Shaped[Tensor, "batch n *d"], y: Shaped[Tensor, "batch m e"]) -> float:
    """The change that the smallest moves make, as one rounding each would."""
    with moved_by_one_unit(trial, x) as other:
        return float(row_changes(trial.rows(other), y).max())


def takes_mask(trial: Trial, n: int) -> bool:
    """Can padding be tried at n rows?"""
    name = trial.inputs.mask
    takes = takes_argument(trial.model, name) or name in trial.inputs.values
    fits = trial.batch_axis is not None and n >= 3
    return takes and fits and not trial.plan.brief


def right_padded(trial: Trial, x: Shaped[Tensor, "batch n *d"]) -> tuple[Tensor, Tensor, int]:
    """The rows that are left, alone and with masked rows behind them, and how many they are."""
    n = x.shape[1]
    real = n - max(1, n // 3)
    mask = (torch.arange(n, device=x.device) < real).long().expand(len(x), n)
    whole: dict[str, Any] = {trial.inputs.mask: mask}
    alone: dict[str, Any] = {trial.inputs.mask: mask[:, :real]}
    return trial.rows(x[:, :real], **alone), trial.rows(x, **whole)[:, :real], real


def repadded(trial: Trial, x: Shaped[Tensor, "batch n *d"]) -> float:
    """The change when rows are added behind and masked."""
    if trial.random or not takes_mask(trial, x.shape[1]):
        return 0.0
    # An error is reported where padding is tried.
    pair = attempt(lambda: right_padded(trial, x))
    return float(row_changes(*pair[:2]).max()) if pair else 0.0

"""What counts as noise in one setting. (T-audit-noise)"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Inexact, Shaped
from torch import Tensor

from tlm_book.auditing.cuts import fresh_rows
from tlm_book.auditing.modules import takes_argument
from tlm_book.auditing.tensors import (
    attempt,
    is_continuous,
    largest,
    row_changes,
)
from tlm_book.auditing.trial import Trial
from tlm_book.checks import expects


def measure_noise(trial: Trial, n: int) -> list[str]:
    """Set what counts as noise in this setting; returns the obstacles to a verdict, in words."""
    x, y = trial.first(n), trial.base(n)
    again, another = trial.rows(x), fresh_rows(trial, x, 0, torch.Generator())
    if float(row_changes(again, y).max()) > 0:  # the first run was watched, and may have set something up
        y, again = again, trial.rows(x)
        trial.bases[n] = y
    size = lambda other: float(row_changes(other, y).max()) / (largest(y) or 1.0)
    later = lambda seed: (trial.rows(another), size(trial.rows(x, seed)))[1]
    twice, drawn = size(again), later(1)
    kept = later(0) if drawn > 0 and not twice else 0.0  # is the change due to the random draws, or to what the model remembers of another sequence?
    trial.remembers = kept > 0
    trial.random = not twice and drawn > 0 and not trial.remembers
    own = torch.finfo(y.dtype if y.is_floating_point() else torch.float64).eps
    trial.eps = max(own, trial.coarsest)
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
        change = f"after another sequence, the same input gives an output that differs by {kept:.1e}"
        problems.append(f"{change}: the model remembers earlier calls")
    if twice > 0:
        change = f"the same input twice gives outputs that differ by {twice:.1e}"
        problems.append(f"{change}: a smaller leak is not seen")
    return problems


def drift(trial: Trial, n: int) -> float:
    """The change of the output for the same input since the first run, as a fraction of the largest output."""
    y = trial.base(n)
    return float(row_changes(trial.rows(trial.first(n)), y).max()) / (largest(y) or 1.0)


def noise_level(trial: Trial, x: Shaped[Tensor, "batch n *d"], y: Shaped[Tensor, "batch m e"]) -> float:
    """The largest change that counts as noise, as a fraction of the largest output. (T-audit-noise)"""
    scale = largest(y) or 1.0
    copies = y if trial.random else trial.copies(x.shape[1])
    place, padded = float(row_changes(copies, y).max()), repadded(trial, x.shape[1])
    rounding = max(16 * shaken(trial, x, y), 4 * place, 4 * padded) / scale
    return max(min(rounding, 2**16 * trial.eps), 64 * trial.eps)


def unmoved(trial: Trial, t: Shaped[Tensor, "*s"]) -> Shaped[Tensor, "*s"]:
    """The content of a weight, to be restored: the model's own numbers if they are equal, so that no third copy of a large model is kept."""
    given = trial.given.get(id(t))
    return given if given is not None and torch.equal(given.to(t.dtype), t.data) else t.data


@contextlib.contextmanager
def moved_by_one_unit(trial: Trial, x: Shaped[Tensor, "batch n *d"]) -> Iterator[Shaped[Tensor, "batch n *d"]]:
    """A context in which each weight is moved by one unit in its last place, up or down; it gives the input moved in the same way."""
    draw = torch.Generator().manual_seed(1)
    signs = 2 * torch.randint(2, (4099,), generator=draw, device=draw.device) - 1

    def moved(t: Inexact[Tensor, "*s"]) -> Inexact[Tensor, "*s"]:
        factor = 1 + max(trial.eps, torch.finfo(t.dtype).eps) * signs.to(t)
        flat, other = t.flatten(), torch.empty_like(t).flatten()
        whole = len(flat) // len(signs) * len(signs)  # the same signs are used over and over
        torch.mul(flat[:whole].view(-1, len(signs)), factor, out=other[:whole].view(-1, len(signs)))
        torch.mul(flat[whole:], factor[: len(flat) - whole], out=other[whole:])
        return other.view(t.shape)

    weights = [t for m in trial.modules.values() for t in m._parameters.values()]
    held = {id(t): t for t in weights if t is not None and is_continuous(t)}
    before = []
    try:
        for t in held.values():
            before.append((t, unmoved(trial, t)))
            t.data = moved(t.data)
        yield moved(x) if is_continuous(x) else x
    finally:
        for t, data in before:
            t.data = data.to(t.dtype, copy=True)


def shaken(trial: Trial, x: Shaped[Tensor, "batch n *d"], y: Shaped[Tensor, "batch m e"]) -> float:
    """The change of the output when all weights and inputs are moved by one unit in the last place, as a rounding error may move them."""
    with moved_by_one_unit(trial, x) as other:
        return float(row_changes(trial.rows(other), y).max())


def takes_mask(trial: Trial, n: int) -> bool:
    """Whether padding can be tried with n rows."""
    name = trial.inputs.mask
    takes = takes_argument(trial.model, name) or name in trial.inputs.values
    fits = trial.batch_axis is not None and n >= 3
    return takes and fits and not trial.plan.brief


def right_padded(trial: Trial, n: int) -> tuple[Tensor, Tensor, int]:
    """The output for the first two thirds of the rows, alone and followed by masked rows, and the number of these rows."""
    x, real = trial.first(n), n - max(1, n // 3)
    mask = (torch.arange(n, device=x.device) < real).long().expand(len(x), n)
    whole: dict[str, Any] = {trial.inputs.mask: mask}
    alone: dict[str, Any] = {trial.inputs.mask: mask[:, :real]}
    return trial.once(("padded", n), lambda: (trial.rows(x[:, :real], **alone), trial.rows(x, **whole)[:, :real], real))


def repadded(trial: Trial, n: int) -> float:
    """The change of the output when masked rows are added at the end."""
    if trial.random or not takes_mask(trial, n):
        return 0.0
    # An error is ignored here: it is reported where padding is tried.
    pair = attempt(right_padded, trial, n)
    return float(row_changes(*pair[:2]).max()) if pair else 0.0

"""Derivatives of output rows by input rows. (T-audit-derivative)"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from tlm_book.auditing.cuts import single_row_effects
from tlm_book.auditing.tensors import as_real, attempt, spread_out, tensors_in
from tlm_book.auditing.trial import Findings, Trial, Witness


@contextlib.contextmanager
def differentiable_inputs(trial: Trial, x: Shaped[Tensor, "batch n *d"]) -> Iterator[tuple[Tensor, list[Tensor]]]:
    """The sequences, and the tensors by which to take derivatives: the sequences themselves or, for tokens, the output of each call
    of an embedding, which enters the list when it is called.
    """
    if not trial.inputs.tokens:
        leaf = x.clone().requires_grad_(True)
        yield leaf, [leaf]
        return
    leaves, given = [], trial.inputs.back(x)

    def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Tensor | None:
        tokens = next(iter(tensors_in([*args, *kwargs.values()])), None)
        if tokens is None or not torch.equal(tokens.flatten(), given.flatten()):
            return None
        if not isinstance(output, Tensor) or not output.is_floating_point():
            return None
        if output.shape[:-1] != tokens.shape:
            return None
        leaves.append(output.detach().requires_grad_(True))
        return leaves[-1].clone()

    inner = [m for m in trial.modules.values() if m is not trial.model and not m._modules]
    hooks = [m.register_forward_hook(hook, with_kwargs=True) for m in inner]
    try:
        yield x, leaves
    finally:
        for handle in hooks:
            handle.remove()


def row_gradients(
    trial: Trial, x: Shaped[Tensor, "batch n *d"], rows: Sequence[int], forms: Shaped[Tensor, "k e"]
) -> Float[Tensor, "k n f"] | None:
    """(row, j, …): the derivative by input row j of a linear form of each of these output rows, with one backward pass for a batch
    of copies of the sequence; None if there is no derivative.
    """
    found = []
    size = 1 if trial.batch_axis is None else trial.plan.batch_grad
    for start in range(0, len(rows), size):
        some = list(rows[start : start + size])
        copies = x.repeat_interleave(len(some), 0)
        with torch.enable_grad(), differentiable_inputs(trial, copies) as (given, leaves):
            y = trial.rows(given)
            if not (y.requires_grad and y.is_floating_point() and leaves):
                return None
            picked = y[range(len(some)), some] * forms[start : start + size].to(y)
            form = picked.nan_to_num(0.0, 0.0, 0.0).sum()
            grads = torch.autograd.grad(form, leaves, allow_unused=True, materialize_grads=True)
        trial.plan.bar(2 * len(some) * x.shape[1])
        by_tokens = trial.inputs.tokens and grads[0].shape[:-1] == trial.inputs.back(copies).shape
        rows_of = [trial.inputs.canonical(g) if by_tokens else g for g in grads]
        found.append(torch.cat([as_real(g).reshape(len(some), x.shape[1], -1) for g in rows_of], -1))
    return torch.cat(found)


def derivative_pattern(trial: Trial, n: int, rows: Sequence[int]) -> tuple[Float[Tensor, "k n"], Bool[Tensor, "k n"]] | None:
    """|∂yᵢ/∂xⱼ| for these rows i, from one random linear form of each yᵢ, as a fraction of the largest; and for which later j it is
    surely not 0. None if there are no derivatives.
    """
    x, draw = trial.first(n), torch.Generator().manual_seed(n)
    y = trial.base(n)
    dtype = y.dtype if y.is_floating_point() else torch.float64
    normal = lambda: torch.randn(len(rows), y.shape[2], generator=draw, device=draw.device).to(y.device, dtype)
    forms = normal()
    grads = row_gradients(trial, x, rows, forms)
    if grads is None or not grads.isfinite().all():
        return None
    size = grads.abs().amax(-1)
    top = float(size.max()) or 1.0
    columns, which = (torch.tensor(list(places), device=size.device) for places in (range(n), rows))
    later = (columns > which[:, None]) & (size > 0)
    sure = later & (size > 2**12 * trial.eps * top)
    if not sure.any() and later.any():
        sure = true_derivatives(trial, x, rows, later, grads, [forms, *(normal() for _ in range(3))])
    return size / top, sure


def true_derivatives(
    trial: Trial,
    x: Shaped[Tensor, "batch n *d"],
    rows: Sequence[int],
    doubtful: Bool[Tensor, "k n"],
    grads: Float[Tensor, "k n f"],
    forms: Sequence[Float[Tensor, "k e"]],
) -> Bool[Tensor, "k n"]:
    """Which of these doubtful numbers, all as small as rounding errors, are derivatives: those that are linear in the form, which
    rounding errors are not.
    """
    gradients: Callable[[Tensor], Any] = partial(row_gradients, trial, x, rows)
    most = lambda g: g.abs().amax(-1)
    for scale, other in zip((0.3712, 1.9034, -0.7283), forms[1:]):
        g2, g3 = gradients(other), gradients(forms[0] + scale * other)
        bound = max(1e-6, 64 * trial.eps) * torch.maximum(most(grads), most(g2))
        doubtful = doubtful & (most(g3 - grads - scale * g2) < bound)
    return doubtful


def try_derivatives(trial: Trial, n: int, found: Findings) -> str | None:
    """Take derivatives: output rows must have derivative 0 by later input rows."""
    pattern = derivative_pattern(trial, n, range(n))
    if pattern is None:
        return "no derivatives (there are none, or they are not finite)"
    size, sure = pattern
    if sure.any():
        row, j = divmod(int((size * sure).argmax()), n)
        x = trial.first(n)
        known = found.witness.get("future", {}).get(n)
        witness = known or Witness(float(size[row, j]), row, j, x, x)
        found.add("future", "derivatives", n, witness)
    return None


def try_reach(trial: Trial, n: int, found: Findings) -> None:
    """Find output rows that do not depend on rows on which they should, and rows that depend on rows beyond `max_lookback`."""
    columns = spread_out(range(n), 16 if trial.plan.heavy else n)
    effects, x = single_row_effects(trial, n, columns), trial.first(n)
    w = trial.plan.options.max_lookback
    small = trial.double and n * len(effects) <= 4096
    pattern = attempt(lambda: derivative_pattern(trial, n, range(len(effects)))) if small else None
    sees = effects > 0
    if pattern is not None:
        sees |= (pattern[0] > 2**12 * trial.eps).cpu().numpy()[:, columns]
    i, j = np.indices(effects.shape)
    j = np.array(columns)[j]
    should = np.ones_like(sees) if trial.plan.options.everywhere else (j <= i) & (i - j <= w)
    if (real := trial.inputs.real) is not None:
        shown = real[:n].cpu().numpy()
        should &= shown[None, columns] & (shown[:, None] | (len(sees) != n))
    mode = trial.name.split(",")[0]
    if trial.double:
        trial.seen.setdefault((mode, n), np.where(sees, effects, np.inf))
    elif (mode, n) in trial.seen:  # what is too weak to be seen here was seen in double precision
        sees |= trial.seen[mode, n] <= 2 * trial.tolerance
    if len(missing := np.argwhere(should & ~sees)):
        row, k = missing[0]
        way = f"{len(missing)} of {int(should.sum())} pairs"
        found.add("blind", way, n, Witness(0.0, int(row), columns[k], x, x))
    far = np.where(i - j > (n if w is None else w), effects, 0.0)
    if far.any():
        row, k = np.unravel_index(far.argmax(), far.shape)
        witness = Witness(float(far.max()), int(row), columns[k], x, x)
        found.add("far", "single rows", n, witness)

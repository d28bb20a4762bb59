"""The two halves of the definition as experiments: rows are replaced, rows are removed. (T-audit-cuts)"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from tlm_book.auditing.known import KnownRows
from tlm_book.auditing.modules import is_compiled
from tlm_book.auditing.tensors import (
    describe_error,
    largest,
    row_changes,
    spread_out,
)
from tlm_book.auditing.trial import Findings, Trial, Witness


def fresh_rows(trial: Trial, x: Shaped[Tensor, "batch n *d"], kind: int, draw: torch.Generator) -> Shaped[Tensor, "batch n *d"]:
    """Rows to put in place of those of x: of the same kind, but different."""
    if trial.inputs.tokens:
        vocab = trial.plan.vocab_size
        new = torch.randint(vocab, x.shape, generator=draw, device=draw.device).to(x)
        new = x[:, :1].expand_as(x) if kind % 2 else new
        return torch.where(new == x, (new + 1) % vocab, new)
    if kind % 2:
        return -3 * x.flip(1) + x[:, :1]  # larger, and in another order
    kind_of_number = torch.complex64 if x.is_complex() else torch.float32
    like = torch.randn(x.shape, generator=draw, dtype=kind_of_number, device=draw.device).to(x)
    return x.mean() + like * (x.std() if x.numel() > 1 and x.std() > 0 else 1.0)


def splice(
    x: Shaped[Tensor, "batch n *d"], new: Shaped[Tensor, "batch n *d"], start: int, stop: int | None = None
) -> Shaped[Tensor, "batch n *d"]:
    """x with the rows from `start` to `stop` replaced."""
    stop = x.shape[1] if stop is None else stop
    return torch.cat([x[:, :start], new[:, start:stop], x[:, stop:]], 1)


def changes_of_rows(
    trial: Trial, x: Shaped[Tensor, "batch n *d"], base: Shaped[Tensor, "batch m e"], others: Iterable[Tensor]
) -> Iterator[Float[np.ndarray, " n"]]:
    """For each of the others, the change of every row of the output when it replaces x, as a fraction of the largest output;
    `base` is the output for x.
    """
    waiting, size = iter(others), 0
    scale = largest(base) or 1.0
    while some := list(itertools.islice(waiting, trial.plan.batch)):
        if trial.random and len(some) != size:  # so that the same places get the same random draws
            size = len(some)
            base = trial.rows(x.repeat_interleave(size, 0))
        gaps = row_changes(trial.rows(torch.cat(some)), base) / scale
        yield from gaps.cpu().numpy()


def try_replaced(trial: Trial, n: int, found: Findings) -> None:
    """Replace the rows after each cut: the output rows before it must not change."""
    x, draw = trial.first(n), torch.Generator().manual_seed(n)
    fresh = [fresh_rows(trial, x, kind, draw) for kind in range(trial.plan.kinds(n))]
    jobs = [(new, cut) for new in fresh for cut in range(1, n)]
    found.effects = np.zeros((n, n))
    others = (splice(x, *job) for job in jobs)
    for (new, cut), gap in zip(jobs, changes_of_rows(trial, x, trial.base(n), others)):
        found.effects[:, cut] = np.maximum(found.effects[:, cut], gap)
        i = int(gap[:cut].argmax())
        if gap[i] > trial.tolerance:
            witness = Witness(gap[i], i, cut, x, splice(x, new, cut))
            found.add("future", "replaced rows", n, witness)
            if trial.plan.sweeps(n):
                return  # the verdict is certain


def try_every_cut(trial: Trial, n: int, found: Findings) -> str | None:
    """For a large model: remove each suffix once, which tests both halves with half of the rows. Replace each suffix once only if
    the outputs cannot be compared, or if something is found, to tell which half is violated.
    """
    if not trial.random:
        run = trial.rows if is_compiled(trial.model, trial.modules) else KnownRows(trial).rows
        down, up = Findings(n), Findings(n)
        compare_removed(trial, n, down, range(n - 1, 0, -1), run)  # the longest first, so that the rows of the others are known
        if not (down.witness or down.problems):
            return "removed rows"
        compare_removed(trial, n, up, range(1, n), run)  # the shortest first, since a short witness shows most
        found.take(up if up.witness else down)
    try_replaced(trial, n, found)
    return None


def try_removed(trial: Trial, n: int, found: Findings) -> None:
    """Remove the rows from m on, for each m: the output rows that are left must not change."""
    every = range(1, n)
    compare_removed(trial, n, found, spread_out(every, 16) if trial.plan.again else every, trial.rows)


def compare_removed(trial: Trial, n: int, found: Findings, left: Sequence[int], run: Callable[[Tensor], Tensor]) -> None:
    """Keep as many rows as each number in `left` says, and compare the outputs; `run` gives the model's rows. A sweep ends with the first fault."""
    x, base, plan = trial.first(n), trial.base(n), trial.plan
    scale = largest(base) or 1.0
    for m in left:
        try:
            known = trial.bases.get(m)
            y = run(x[:, :m]) if known is None else known
        except Exception as error:
            found.problems.append(f"at n = {m} it raises {describe_error(error)}")
            continue
        if y.shape[1:] != (m, base.shape[2]):
            found.problems.append("at other lengths its rows have another width: removed rows are not compared")
            return
        gap = (row_changes(y, base[:, :m])[0] / scale).cpu().numpy()
        i = int(gap.argmax())
        if gap[i] > trial.tolerance:
            found.add("length", "removed rows", m, Witness(gap[i], i, m, x, x[:, :m]))
            if plan.sweeps(n):
                return


def single_row_effects(trial: Trial, n: int, columns: Sequence[int]) -> Float[np.ndarray, "n m"]:
    """The change of every output row when a single input row j is replaced, for these j; changes that are noise are set to 0."""
    x, draw = trial.first(n), torch.Generator().manual_seed(n + 1)
    fresh = [fresh_rows(trial, x, kind, draw) for kind in range(3)]
    others = (splice(x, new, j, j + 1) for new in fresh for j in columns)
    gaps = np.stack(list(changes_of_rows(trial, x, trial.base(n), others)))
    most = gaps.reshape(3, len(columns), -1).max(0).T
    return np.where(most > trial.tolerance, most, 0)


def loudest_source(trial: Trial, found: Witness) -> int:
    """Of the replaced input rows, the one that changes the witness's row most."""
    x, other, source = found.x, found.other, found.source
    if other.shape != x.shape or other is x or found.extra:
        return source
    columns = spread_out(range(source, x.shape[1]), 24)
    singles = (splice(x, other, j, j + 1) for j in columns)
    gaps = [gap[found.row] for gap in changes_of_rows(trial, x, trial.rows(x), singles)]
    return columns[int(np.argmax(gaps))] if max(gaps) > 0.2 * found.size else source

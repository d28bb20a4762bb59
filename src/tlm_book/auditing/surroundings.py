"""What else breaks in practice: other sequences in the batch, padding, decoding with a cache."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Shaped
from torch import Tensor

from tlm_book.auditing.cuts import fresh_rows, splice
from tlm_book.auditing.noise import right_padded, takes_mask
from tlm_book.auditing.state import seed_everything
from tlm_book.auditing.tensors import largest, row_changes, spread_out, tensor_of
from tlm_book.auditing.trial import CALL, Findings, Trial, Witness, as_rows


def try_batch(trial: Trial, n: int, found: Findings) -> None:
    """Try other batches: a sequence beside another one, in either place, must give what it gives alone and beside a copy of itself."""
    x, draw = trial.inputs.x[:, :n], torch.Generator().manual_seed(n)
    one, other = x[:1], x[1:2] if len(x) > 1 else fresh_rows(trial, x[:1], 0, draw)
    twice, beside = torch.cat([one, one]), torch.cat([one, other])
    copies = trial.copies(n)
    base = copies if trial.random else trial.base(n).expand_as(copies)
    scale = largest(base) or 1.0
    pairs = beside, torch.cat([other, one]), twice
    outputs = trial.rows(pairs[0]), trial.rows(pairs[1]), copies
    for k, y in enumerate(outputs):
        gap = (row_changes(y, base)[k % 2] / scale).cpu().numpy()
        i = int(gap.argmax())
        if gap[i] > trial.tolerance:
            alone = twice if trial.random else one
            witness = Witness(gap[i], i, 0, alone, pairs[k], keep=[k % 2])
            found.add("batch", "another sequence beside it", n, witness)
            # From now on each sequence runs alone, lest one spoil the results for another.
            trial.plan.batch = trial.plan.batch_grad = 1


def try_padding(trial: Trial, n: int, found: Findings) -> None:
    """Try padding, with a third of the rows masked, on the right and on the left, beside a full sequence: no row may depend on later rows
    or on padding, and removing the masked rows on the right must change nothing.
    """
    x, pad = trial.first(n), max(1, n // 3)
    fresh = fresh_rows(trial, x, 0, torch.Generator().manual_seed(n))
    alone, padded, real = right_padded(trial, n)
    scale = largest(padded) or 1.0
    gap = (row_changes(alone, padded)[0] / scale).cpu().numpy()
    i = int(gap.argmax())
    if gap[i] > trial.tolerance and not trial.random:
        witness = Witness(gap[i], i, real, x, x)
        found.add("padding", "padding on the right, or none", n, witness)
    for side, keep in (("right", range(n - pad)), ("left", range(pad, n))):
        try_padding_on(trial, n, found, side, keep, fresh)


def try_padding_on(trial: Trial, n: int, found: Findings, side: str, keep: range, fresh: Shaped[Tensor, "batch n *d"]) -> None:
    x = trial.first(n)
    hidden = [i for i in range(n) if i not in keep]
    source = hidden[0]
    mask = torch.ones(2, n, dtype=torch.long, device=x.device)
    mask[0, hidden] = 0
    spoiled = splice(x, fresh, hidden[0], hidden[-1] + 1)
    jobs: list[tuple[str, range, int, Tensor]] = [("padding", keep, source, spoiled)]
    for cut in spread_out(keep[1:], 6):
        stay = range(keep[0], cut)
        jobs.append(("future", stay, cut, splice(x, fresh, cut)))
    # First the padding, in a batch of two, then many cuts at once, always beside a full sequence.
    size = max(1, trial.plan.batch - 1)
    groups = [jobs[:1], *(jobs[k : k + size] for k in range(1, len(jobs), size))]
    for group in groups:
        masks = torch.cat([mask[:1]] * len(group) + [mask[1:]])
        hide: dict[str, Any] = {trial.inputs.mask: masks}
        base, after = (trial.rows(torch.cat([*some, x]), **hide) for some in ([x] * len(group), [job[-1] for job in group]))
        gaps = row_changes(after, base).cpu().numpy() / (largest(base[:, list(keep)]) or 1.0)
        for (fault, stay, source, other), gap in zip(group, gaps):
            i = max(stay, key=lambda row: gap[row])
            if gap[i] > trial.tolerance:
                pair = torch.cat([x, x]), torch.cat([other, x])
                extra = {trial.inputs.mask: mask}
                witness = Witness(gap[i], i, source, *pair, stay, extra)
                found.add(fault, f"{side}-padded batch", n, witness)


def try_cache(trial: Trial, n: int, found: Findings) -> None:
    """Decode row by row, and in chunks, with the model's cache: each row must equal that of the whole pass."""
    x, half = trial.first(n), max(1, n // 2)
    trials: list[tuple[dict[str, Any], str, list[int]]] = [({}, "one row at a time", [1] * n)]
    if trial.plan.options.step is None:
        trials.append(({}, "half, one row, the rest", [half, 1, n - half - 1][: 1 + n - half]))
        if trial.plan.again:
            del trials[0]  # one row at a time uses no kernels that the other way does not use
        if takes_mask(trial, n):
            left = torch.arange(n, device=x.device)[None] >= n // 3
            trials.append(({trial.inputs.mask: left.long()}, *trials[-1][1:]))
    for mask, way, sizes in trials:
        rows = list(range(n // 3 if mask else 0, n))
        whole = (trial.rows(x, **mask) if mask else trial.base(n))[:, rows]
        parts = decode_in_chunks(trial, x, sizes, mask)[:, rows]
        gap = (row_changes(parts, whole)[0] / (largest(whole) or 1.0)).cpu().numpy()
        i = int(gap.argmax())
        if gap[i] > trial.tolerance:
            way += ", padded on the left" * bool(mask)
            found.add("cache", way, n, Witness(gap[i], rows[i], rows[i], x, x))


def decode_in_chunks(
    trial: Trial, x: Shaped[Tensor, "batch n *d"], sizes: Sequence[int], mask: Mapping[str, Tensor]
) -> Shaped[Tensor, "batch n e"]:
    """The output for chunks of these sizes, each computed with the model's cache of those before."""
    state, start, parts, step = None, 0, [], trial.plan.options.step
    for size in filter(None, sizes):
        part, stop = x[:, start : start + size], start + size
        if step is not None:
            trial.plan.bar(CALL + size)
            seed_everything(0, trial.generators)
            output, state = step(trial.inputs.back(part), state)
        else:
            seen = {key: m[:, :stop] for key, m in mask.items()}
            output = trial.raw(part, 0, start, past_key_values=state, use_cache=True, **seen)
            state = output.past_key_values
        parts.append(as_rows(trial, tensor_of(output, "what step returns")))
        start = stop
    y, real = torch.cat(parts, 1), trial.real(mask)
    return y if real is None else y.masked_fill(~real[: y.shape[1], None], 0)

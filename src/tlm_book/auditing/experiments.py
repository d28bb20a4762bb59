"""All experiments in one setting: in one mode, one precision, one back end."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from tlm_book.auditing.blame import find_culprit
from tlm_book.auditing.causes import cause_of, examine
from tlm_book.auditing.cuts import loudest_source, try_removed, try_replaced
from tlm_book.auditing.derivatives import try_derivatives, try_reach
from tlm_book.auditing.modules import name_of, takes_argument
from tlm_book.auditing.noise import measure_noise, takes_mask
from tlm_book.auditing.report import Leak
from tlm_book.auditing.surroundings import try_batch, try_cache, try_padding
from tlm_book.auditing.tensors import attempt, describe_error, tensors_in
from tlm_book.auditing.trial import Findings, Trial, Witness, find_axes

FEW = 8  # rows, for what is too dear at the whole length of a large model


def explore(trial: Trial, found: Findings) -> None:
    """All experiments in one setting."""
    lengths = trial.plan.lengths
    if trial.row_axis < 0:
        find_axes(trial)
    trial.plan.batch, trial.plan.batch_grad = batch_sizes(trial)
    found.problems += measure_noise(trial, lengths[-1])
    if trial.remembers:
        return
    if trial.plan.options.everywhere:
        try_reach(trial, lengths[-1], found)
        found.tried["single replaced rows"] = lengths[-1:]
        return
    for n in lengths if trial.batch_axis is not None else ():
        run_experiment(trial, n, found, "other sequences in the batch", try_batch)
    for n in lengths:
        explore_length(trial, n, found)
    if trial.plan.options.max_lookback is not None:
        try_reach(trial, lengths[-1], found)


def explore_length(trial: Trial, n: int, found: Findings) -> None:
    """The experiments at one length."""
    plan, evaluating = trial.plan, trial.name.startswith("eval")
    try:
        trial.rows(trial.first(n))
    except Exception as error:
        found.problems.append(f"at n = {n} it raises {describe_error(error)}")
        return
    if n > 1:
        run_experiment(trial, n, found, "replaced rows", try_replaced)
    deep = [m for m in plan.lengths if m <= FEW or not plan.heavy]
    if n == 1 or n not in deep or plan.brief:
        return
    if evaluating and trial.double:
        run_experiment(trial, n, found, "derivatives", try_derivatives)
    if n == deep[-1] and not trial.random:  # this implies it for all smaller n
        run_experiment(trial, n, found, "removed rows", try_removed)
    if n == deep[-1] and takes_mask(trial, n):
        run_experiment(trial, n, found, "padding on both sides", try_padding)
    cache = plan.options.step is not None or takes_argument(trial.model, "past_key_values")
    if n == deep[-1] and evaluating and cache:
        run_experiment(trial, n, found, "decoding with a cache", try_cache)


def run_experiment(trial: Trial, n: int, found: Findings, words: str, experiment: Callable[..., Any]) -> None:
    """One experiment. When it raises, that is reported, and the others stand."""
    try:
        words = experiment(trial, n, found) or words
        found.tried.setdefault(words, []).append(n)
    except Exception as error:
        found.problems.append(f"{words}: {describe_error(error)}")


def batch_sizes(trial: Trial) -> tuple[int, int]:
    """As many sequences at a time as keep within the memory, without derivatives and with them."""
    sizes = [0]

    def count(module: nn.Module, args: Any, output: Any) -> None:
        sizes.append(sum(t.numel() * t.element_size() for t in tensors_in(output)))

    hooks = [m.register_forward_hook(count) for m in trial.modules.values()]
    try:
        y = trial.rows(trial.first(trial.plan.lengths[-1]))
    finally:
        for handle in hooks:
            handle.remove()
    needs = (8 * max(sizes) + 8 * y.numel() + 1, 2 * sum(sizes) + 8 * y.numel() + 1)
    plain, grad = (max(1, min(64, trial.plan.options.memory // need)) for need in needs)
    return plain, grad


SHADOWS = {"length": ("future",), "padding": ("future",), "cache": ("future", "length")}  # what is seen: what may have caused it
WITH_CULPRIT = ("future", "length", "batch", "padding")


def without_shadows(found: Findings) -> dict[str, list[str]]:
    """{fault: the ways in which it was seen}; a fault that is another one, seen in another way, is counted with that."""
    faults = {fault: list(ways) for fault, ways in found.ways.items()}
    for shadow, cast_by in SHADOWS.items():
        causes = [fault for fault in cast_by if fault in faults]
        if shadow in faults and causes:
            ways = faults.pop(shadow)
            faults[causes[0]] += [way for way in ways if way not in faults[causes[0]]]
    return faults


def conclude(trial: Trial, found: Findings, earlier: Sequence[Leak]) -> list[Leak]:
    """From the witnesses of one setting to its leaks, each with a culprit where one can be named."""
    known = {(leak.fault, leak.module): leak.cause for leak in earlier}
    both_tried = {"derivatives", "replaced rows"} <= found.tried.keys()
    leaks = []
    for fault, ways in without_shadows(found).items():
        witness = found.strongest(fault)
        named: tuple[str | None, str, str] = (None, "", "")
        if fault in WITH_CULPRIT:
            derivable = not both_tried or "derivatives" in ways or "replaced rows" not in ways
            named = name_culprit(trial, fault, found.handiest(fault), derivable, known)
        source = loudest_source(trial, witness) if fault == "future" else witness.source
        sizes = {n: w.size for n, w in sorted(found.witness[fault].items())}
        leaks.append(Leak(fault, trial.name, witness.row, source, witness.size, tuple(ways), *named, sizes))
    return leaks


def name_culprit(
    trial: Trial,
    fault: str,
    witness: Witness,
    derivable: bool,
    known: Mapping[tuple[str, str | None], str],
) -> tuple[str | None, str, str]:
    """Path, class and cause of the culprit; the cause is not sought again for one that is known."""
    calls, index = attempt(lambda: find_culprit(trial, fault, witness)) or ([], None)
    if index is None:
        return None, "", ""
    call, n = calls[index], witness.x.shape[1]
    cause = known.get((fault, call.path))
    if cause is None:
        near = fault == "future" and n <= 64
        local = attempt(lambda: examine(trial, call, n)) if near else None
        cause = cause_of(call, local, fault, derivable)
    return call.path, name_of(call.module), cause

"""All experiments in one setting: in one mode, one precision, one back end."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from tlm_book.auditing.blame import find_culprit
from tlm_book.auditing.causes import cause_of, examine
from tlm_book.auditing.cuts import (
    loudest_source,
    try_every_cut,
    try_removed,
    try_replaced,
)
from tlm_book.auditing.derivatives import try_derivatives, try_reach
from tlm_book.auditing.look import look
from tlm_book.auditing.modules import name_of, takes_argument
from tlm_book.auditing.noise import drift, measure_noise, takes_mask
from tlm_book.auditing.report import Leak
from tlm_book.auditing.surroundings import try_batch, try_cache, try_padding
from tlm_book.auditing.tensors import attempt, describe_error
from tlm_book.auditing.trial import (
    CALL,
    Findings,
    Trial,
    Witness,
)


def explore(trial: Trial) -> Findings:
    """Run all experiments in one setting. A large model runs without its last layer, if that cannot look ahead; if a fault is found,
    the experiments are repeated with it.
    """
    layer = look(trial, spare=trial.plan.heavy)
    found = explore_rows(trial)
    if layer is None or not found.witness:
        return found
    del layer.forward
    look(trial, spare=False)
    return explore_rows(trial)


def explore_rows(trial: Trial) -> Findings:
    """Run all experiments on the rows that the model returns. What they find counts only if the output has not drifted meanwhile."""
    n = trial.plan.lengths[-1]
    found = Findings(n)
    found.problems += measure_noise(trial, n)
    if not trial.remembers:
        try_everything(trial, found)
    drifted = drift(trial, n) if found.witness else 0.0
    if drifted <= trial.tolerance:
        return found
    trial.decided, nothing = False, Findings(n)
    change = f"after all experiments, the same input gives an output that differs by {drifted:.1e}"
    nothing.problems = [*found.problems, f"{change}: the model changes from call to call"]
    return nothing


def try_everything(trial: Trial, found: Findings) -> None:
    """Run the experiments at all lengths."""
    lengths = trial.plan.lengths
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


def experiments_at(trial: Trial, n: int) -> list[tuple[str, Callable[..., Any]]]:
    """The experiments at one length, as pairs of a name and a function."""
    plan, evaluating = trial.plan, trial.name.startswith("eval")
    if n == 1 or plan.sweeps(n):
        return [("replaced rows", try_every_cut)] * (n > 1)
    jobs: list[tuple[str, Callable[..., Any]]] = [("replaced rows", try_replaced)]
    deepest = n == max(m for m in plan.lengths if not plan.sweeps(m))
    if plan.brief:
        return jobs
    if evaluating and trial.double:
        jobs.append(("derivatives", try_derivatives))
    if deepest and not trial.random:  # at this n it implies the same for all smaller n
        jobs.append(("removed rows", try_removed))
    if deepest and takes_mask(trial, n) and (evaluating or not plan.heavy):
        jobs.append(("padding on both sides", try_padding))
    cache = plan.options.step is not None or takes_argument(trial.model, "past_key_values")
    if deepest and evaluating and cache:
        jobs.append(("decoding with a cache", try_cache))
    return jobs


def explore_length(trial: Trial, n: int, found: Findings) -> None:
    """Run the experiments at one length."""
    try:
        trial.base(n)
    except Exception as error:
        found.problems.append(f"at n = {n} it raises {describe_error(error)}")
        found.in_vain |= trial.plan.options.lengths is not None
        return
    for words, experiment in experiments_at(trial, n):
        run_experiment(trial, n, found, words, experiment)


def expected_work(trial: Trial) -> int:
    """An estimate of the work of `explore`, for the progress bar: the number of rows, plus CALL for each call of the model."""
    plan, deepest = trial.plan, trial.plan.lengths[-1]
    work = {
        "other sequences in the batch": lambda n: (4, 7 * n) if n < deepest else (2, 4 * n),
        "replaced rows": lambda n: (n, n * n / 2) if plan.sweeps(n) else (1 + plan.kinds(n) * n / 64, plan.kinds(n) * n * n),
        "derivatives": lambda n: (1 + n / 64, 3 * n * n),
        "removed rows": lambda n: (16, 8 * n) if plan.again and n > 16 else (n, n * n / 2),
        "padding on both sides": lambda n: (10, 38 * n),
        "decoding with a cache": lambda n: (8, 4 * n) if plan.again else (n + 8, 5 * n),
    }
    calls, rows = 8, 9 * deepest  # noise
    for n in plan.lengths:
        for words in ["other sequences in the batch", *(words for words, _ in experiments_at(trial, n))]:
            more = work[words](n)
            calls, rows = calls + more[0], rows + more[1]
    return round(calls * CALL + rows)


def run_experiment(trial: Trial, n: int, found: Findings, words: str, experiment: Callable[..., Any]) -> None:
    """Run one experiment. An exception is reported, and the others go on; if the caller asked for this experiment, the audit is undecided."""
    try:
        words = experiment(trial, n, found) or words
        found.tried.setdefault(words, []).append(n)
    except Exception as error:
        found.problems.append(f"{words}: {describe_error(error)}")
        found.in_vain |= experiment is try_cache and trial.plan.options.step is not None
        found.in_vain |= experiment is try_padding and trial.inputs.mask in trial.inputs.values


SHADOWS = {"length": ("future",), "padding": ("future",), "cache": ("future", "length")}  # the fault seen: the faults that may have caused it
WITH_CULPRIT = ("future", "length", "batch", "padding")


def without_shadows(found: Findings) -> dict[str, list[str]]:
    """{fault: the ways in which it was seen}. A fault that another one may have caused is counted with that one, if rows show it:
    what only derivatives show is too faint to be the cause.
    """
    faults = {fault: list(ways) for fault, ways in found.ways.items()}
    for shadow, cast_by in SHADOWS.items():
        causes = [fault for fault in cast_by if faults.get(fault, ["derivatives"]) != ["derivatives"]]
        if shadow in faults and causes:
            ways = faults.pop(shadow)
            faults[causes[0]] += [way for way in ways if way not in faults[causes[0]]]
    return faults


def conclude(trial: Trial, found: Findings, earlier: Sequence[Leak]) -> list[Leak]:
    """The leaks of one setting, from its witnesses, each with a culprit if one can be named."""
    known = {(leak.fault, leak.module): leak.cause for leak in earlier}
    mode = trial.name.split(",")[0]
    finer = {(leak.fault, leak.module) for leak in earlier if leak.setting.startswith(mode) and not trial.double}
    both_tried = {"derivatives", "replaced rows"} <= found.tried.keys()
    leaks = []
    for fault, ways in without_shadows(found).items():
        witness = found.strongest(fault)
        named: tuple[str | None, str, str] = (None, "", "")
        if fault in WITH_CULPRIT:
            derivable = not both_tried or "derivatives" in ways or "replaced rows" not in ways
            named = name_culprit(trial, fault, found.handiest(fault), derivable, known, finer)
        source = loudest_source(trial, witness) if fault == "future" else witness.source
        sizes = {n: w.size for n, w in sorted(found.witnesses(fault).items())}
        unit = "derivative" if fault == "future" and witness.other is witness.x else "output"
        leaks.append(Leak(fault, trial.name, witness.row, source, witness.size, tuple(ways), *named, sizes, unit))
    return leaks


def name_culprit(
    trial: Trial,
    fault: str,
    witness: Witness,
    derivable: bool,
    known: Mapping[tuple[str, str | None], str],
    finer: Collection[tuple[str, str | None]],
) -> tuple[str | None, str, str]:
    """Path, class and cause of the culprit; for a known culprit, the cause is not sought again. An earlier culprit that was found in
    float64 has precedence, since here its fault may be below rounding.
    """
    calls, index = attempt(lambda: find_culprit(trial, fault, witness)) or ([], None)
    if index is None:
        return None, "", ""
    before = [i for i in range(index) if (fault, calls[i].path) in finer]
    call, n = calls[min(before, default=index)], witness.x.shape[1]
    cause = known.get((fault, call.path))
    if cause is None:
        near = fault == "future" and n <= 64
        local = attempt(lambda: examine(trial, call, n)) if near else None
        cause = cause_of(call, local, fault, derivable)
    return call.path, name_of(call.module), cause

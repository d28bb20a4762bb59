"""The function `audit`: runs the settings one after the other and collects what they find."""

import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import nn
from tqdm import tqdm

from tlm_book.auditing.experiments import conclude, expected_work, explore
from tlm_book.auditing.inputs import Inputs, vocabulary_size
from tlm_book.auditing.modules import modules_in, name_of, roots_of
from tlm_book.auditing.report import Leak, Report
from tlm_book.auditing.state import BACK_ENDS, back_end, cast_floats, on_copies
from tlm_book.auditing.tensors import describe_error
from tlm_book.auditing.trial import FEW, Findings, Options, Plan, Trial
from tlm_book.checks import (
    expects,
    expects_numbers,
    expects_one_of,
    expects_positive,
    expects_whole,
    is_whole,
)

__all__ = ["audit", "assert_autoregressive"]


@dataclass(frozen=True)
class Setting:
    """One mode, one back end (None: torch's choice), one precision."""

    mode: str
    end: str | None
    dtype: torch.dtype

    @property
    def double(self) -> bool:
        return self.dtype == torch.float64

    def __str__(self) -> str:
        return ", ".join([self.mode, *([self.end] if self.end else []), str(self.dtype).removeprefix("torch.")])


@dataclass
class Auditor:
    """Runs the settings one after the other and collects what they find."""

    model: Callable[..., Any]
    inputs: Any
    modules: Mapping[str, nn.Module]
    plan: Plan
    leaks: list[Leak] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)
    effects: Float[np.ndarray, "n n"] = field(default_factory=lambda: np.zeros((0, 0)))
    tolerance: float = 0.0
    seen: dict[tuple[str, int], Float[np.ndarray, "n m"]] = field(default_factory=dict)  # as in Trial
    axes: tuple[int, int | None] = (-1, None)
    ran: bool = False
    decided: bool = True


def plan_of(auditor: Auditor, setting: Setting) -> Plan:
    """The plan of this setting. For a large model: all experiments with few rows; at the whole length each suffix is removed once, in
    the model's own precision.
    """
    plan = auditor.plan
    lengths, kinds, n = plan.lengths, plan.most_kinds, plan.lengths[-1]
    if plan.heavy:
        asked = plan.options.lengths or [3, FEW]  # an odd length and an even one; removing rows gives shorter ones
        lengths, kinds = sorted({min(m, FEW, n) for m in asked}), 1
    if setting.double or not auditor.ran:
        whole = [] if setting.double or setting.mode == "train" else [n]
        return replace(plan, lengths=sorted({*lengths, *whole}), most_kinds=kinds)
    # A repetition, for the kernels of this precision.
    lengths = [n] if plan.heavy and setting.mode == "eval" else lengths[-2:]
    return replace(plan, lengths=lengths, most_kinds=1, again=True, brief=plan.heavy)


def trial_for(auditor: Auditor, setting: Setting) -> Trial:
    """The trial that runs this setting."""
    inputs = cast_floats(auditor.inputs, setting.dtype) if setting.double else auditor.inputs
    example = Inputs(inputs, auditor.plan.options.input_axis)
    plan = plan_of(auditor, setting)
    return Trial(auditor.model, example, auditor.modules, str(setting), plan, setting.double, *auditor.axes)


def run_setting(auditor: Auditor, setting: Setting) -> None:
    """Run one setting; afterwards the model is as before."""
    with on_copies(list(auditor.modules.values()), setting.dtype if setting.double else None) as given, torch.no_grad():
        for module in roots_of(auditor.modules):
            module.train(setting.mode == "train")
        trial = trial_for(auditor, setting)
        trial.given, trial.seen = given, auditor.seen
        try:
            with back_end(auditor.modules, setting.end):
                found = explore(trial)
                auditor.axes = trial.row_axis, trial.batch_axis
                auditor.leaks += conclude(trial, found, auditor.leaks)
        except Exception as error:
            handle_failure(auditor, setting, error)
            return
    record(auditor, trial, found)


def handle_failure(auditor: Auditor, setting: Setting, error: Exception) -> None:
    """Note an exception in a setting, or raise it: if the example inputs fail in the model's own precision, the caller is at fault (ValueError)."""
    raised = describe_error(error)
    alone = not auditor.ran and len(auditor.plan.lengths) == 1
    if setting.double:
        auditor.notes.append((str(setting), f"not possible ({raised})"))
    elif (setting.end is None and setting.mode == "eval") or alone:
        frames = inspect.getinnerframes(error.__traceback__) if error.__traceback__ else []
        if frames and frames[-1].function in ("expects", "refuse"):
            raise error
        got = f"inputs: got {raised} from the model, want inputs that it takes"
        raise ValueError(got) from error
    else:
        auditor.problems.append((str(setting), f"raises {raised}"))
        auditor.decided = auditor.decided and setting.end is None


def record(auditor: Auditor, trial: Trial, found: Findings) -> None:
    """Record for the report what one setting tried and found."""
    auditor.ran, auditor.decided = True, auditor.decided and trial.decided and not found.in_vain
    auditor.problems += [(trial.name, line) for line in found.problems]
    several: dict[str, list[str]] = {}
    for words, at in found.tried.items():  # lengths above 1, since with one row there is nothing to replace
        several.setdefault(", ".join(str(n) for n in at if n > 1), []).append(words)
    tried = [f"{', '.join(words)} at n = {at}" for at, words in several.items()]
    if trial.random:
        tried.append("no removed rows, for here fewer rows draw other random numbers")
    if trial.outputs > 1:
        tried.append(f"only one of the {trial.outputs} tensors in the output that may have rows")
    name = f"{trial.name} (from {trial.tolerance:.0e})"
    auditor.notes.append((name, "; ".join(tried) or "nothing"))
    later = [np.triu(e, 1).max(initial=0.0) for e in (found.effects, auditor.effects)]
    if not auditor.effects.size or later[0] > 2 * later[1]:  # keep those of the setting that leaks most
        auditor.effects, auditor.tolerance = found.effects, trial.tolerance


def report_of(auditor: Auditor) -> Report:
    """The report on all settings, in which the same fault in the same module occurs once."""
    groups: dict[tuple[Any, ...], list[Leak]] = {}
    for leak in auditor.leaks:
        groups.setdefault((leak.fault, leak.module), []).append(leak)
    problems, notes = grouped(auditor.problems), grouped(auditor.notes)
    return Report(
        subject=name_of(auditor.model),
        leaks=tuple(joined(group) for group in groups.values()),
        problems=tuple(f"{line} [{names}]" for line, names in problems.items()),
        notes=tuple(f"tried in {names}: {line}" for line, names in notes.items()),
        effects=auditor.effects,
        tolerance=auditor.tolerance,
        undecided=not (auditor.ran and auditor.decided),
    )


def grouped(lines: Sequence[tuple[str, str]]) -> dict[str, str]:
    """{line: the settings to which it applies}, from pairs of setting and line."""
    groups: dict[str, list[str]] = {}
    for name, line in lines:
        groups.setdefault(line, []).append(name)
    return {line: "; ".join(dict.fromkeys(names)) for line, names in groups.items()}


def joined(group: Sequence[Leak]) -> Leak:
    """One leak for the same leak in several settings: the first that rows show, if there is one, with the settings and ways of all."""
    ways = tuple(dict.fromkeys(way for leak in group for way in leak.ways))
    first = next((leak for leak in group if leak.unit == "output"), group[0])
    return replace(first, setting="; ".join(leak.setting for leak in group), ways=ways)


def check_options(model: Any, options: Options) -> None:
    expects(callable(model), "model", type(model).__name__, "a torch module or a callable", TypeError)
    expects_one_of("expects", options.expects, ("causal", "all"))
    axes = {"row_axis": options.row_axis, "input_axis": options.input_axis}
    expects_whole(**{name: axis for name, axis in axes.items() if axis is not None})
    lookback = options.max_lookback
    expects(lookback is None or not options.everywhere, "max_lookback", lookback, 'None with expects="all"')
    whole = lookback is None or (is_whole(lookback) and lookback >= 0)
    expects(whole, "max_lookback", repr(lookback), "a whole number, at least 0")
    several = lambda names: isinstance(names, Sequence) and not isinstance(names, str)
    expects(several(options.modes) and len(options.modes) > 0, "modes", repr(options.modes), "a list of some of 'eval', 'train'")
    expects(several(options.back_ends), "back_ends", repr(options.back_ends), "a list of names")
    for mode in options.modes:
        expects_one_of("modes", mode, ("eval", "train"))
    expects_positive(memory=options.memory)
    expects_numbers(work=options.work)
    expects(options.work >= 0, "work", options.work, "a number of operations, at least 0")
    step, vocab = options.step, options.vocab_size
    expects(step is None or callable(step), "step", type(step).__name__, "a function (rows, state) → (output, state)", TypeError)
    expects(vocab is None or (is_whole(vocab) and vocab >= 2), "vocab_size", repr(vocab), "at least 2 tokens, or nothing could be replaced")


def check_inputs(example: Inputs, modules: Mapping[str, nn.Module], options: Options) -> None:
    hugging = any(hasattr(m, "set_attn_implementation") for m in modules.values())
    wants = f"one of {', '.join(map(repr, BACK_ENDS))}; other names need a Hugging Face model"
    for name in options.back_ends:
        expects(isinstance(name, str), "back_ends", repr(name), "a list of names")
        expects(name in BACK_ENDS or hugging, "back_ends", repr(name), wants)
    x, n = example.x, example.n
    expects(len(x) > 0, "inputs", "an empty batch", "at least one sequence")
    wants = "at least 2 rows; with one there is no future"
    expects(n > 1, "inputs", f"{n} rows", wants)
    devices = {t.device for m in modules.values() for t in m.parameters()}
    where = next(iter(devices), x.device)
    fits = len(devices) > 1 or x.device == where
    expects(fits, "inputs", f"device {x.device}", f"{where}, where the model is")
    expects(x.isfinite().all(), "inputs", "NaN or infinite numbers", "finite numbers")
    wants = f"whole numbers from 1 to {n}, the rows of the inputs"
    lengths = options.lengths if options.lengths is not None else [n]
    expects(isinstance(lengths, Sequence) and not isinstance(lengths, str), "lengths", repr(lengths), "a list of " + wants)
    for m in lengths:
        expects(is_whole(m) and 1 <= m <= n, "lengths", repr(m), wants)
    expects(any(m > 1 for m in lengths), "lengths", lengths, "one of them above 1; with one row there is no future")


def settle(model: Callable[..., Any], inputs: Any, options: Options) -> Auditor:
    """An auditor for these inputs, with the options checked and completed."""
    check_options(model, options)
    modules, example = modules_in(model), Inputs(inputs, options.input_axis)
    check_inputs(example, modules, options)
    n = example.n
    usual = {1, 2, min(3, n), n // 2, n - 1, n}  # odd and even lengths
    weights = list({id(p): p for m in modules.values() for p in m.parameters()}.values())
    floats = [p.dtype for p in weights if p.is_floating_point()] + [example.x.dtype] * (not example.tokens)
    plan = Plan(
        options=options,
        lengths=sorted(set(options.lengths or usual)),
        vocab_size=vocabulary_size(example, modules, options.vocab_size),
        heavy=sum(p.numel() for p in weights) * n**2 > options.work,
        own=next(iter(floats), torch.float32),
    )
    return Auditor(model, inputs, modules, plan)


def settings_of(auditor: Auditor) -> list[Setting]:
    """All settings: those in double precision first, then those in the model's own."""
    options = auditor.plan.options
    modes = options.modes if auditor.modules else ["eval"]
    ends = (None, *options.back_ends)
    every = itertools.product((torch.float64, auditor.plan.own), ends, modes)
    return list(dict.fromkeys(Setting(mode, end, dtype) for dtype, end, mode in every))


def audit(
    model: Callable[..., Any],
    inputs: Any,
    *,
    expects: str = "causal",
    max_lookback: int | None = None,
    row_axis: int | None = None,
    input_axis: int | None = None,
    lengths: Sequence[int] | None = None,
    modes: Sequence[str] = ("eval", "train"),
    back_ends: Sequence[str] = (),
    step: Callable[..., Any] | None = None,
    vocab_size: int | None = None,
    memory: int = 2**29,
    work: float = 2e11,
    progress: bool = True,
) -> Report:
    """Decide by experiment whether T(X[:i]) = T(X)[:i] for every i: whether an output
    row depends on later input rows, or on how many there are. (T-audit-cuts)

    model         a torch module or a callable
    inputs        a tensor, (batch, n) tokens or (batch, n, d) rows, with or without the batch axis; or all inputs of the model, as a
                  tuple with the sequence first, or as a mapping by keyword (the sequence first, or named `input_ids` or
                  `inputs_embeds`). Masks (…, n, n) and (…, n) are cut with the sequence; of several sequences, only this one has its rows
                  replaced
    expects       "causal", or "all" for the opposite: every row should depend on every row
    max_lookback  w: row i should depend on rows i − w, …, i, and on none before
    row_axis      the axis of the output's rows, if it cannot be inferred
    input_axis    the axis of the sequence's rows, if it is not the usual one
    lengths, modes, back_ends   what to try: numbers of rows (default: 1, 2, 3, half, all but one, all), "eval" and "train", and "math",
                  "flash", "efficient", "cudnn" or a Hugging Face implementation
    step          step(rows, state) → (output, state), which decodes row by row and begins with the state None; a Hugging Face cache
                  is found without it
    vocab_size    bounds the tokens drawn
    memory        bounds a batch, in bytes
    work          if weights × n² exceeds this number, the whole length is tried in the model's own precision, with every suffix removed
                  once, and everything else with 8 rows
    progress      True: on a terminal, a bar shows the time that is left

    Of an output that holds several tensors, one is judged: `logits` or `last_hidden_state`, otherwise the first; where others may
    have rows, too, the report says so. Audit a function that returns the one you mean.

    If the model draws random numbers, no rows are removed. The model is left as it was: weights, modes, hooks, generators, and
    attributes with the lists, sets and dictionaries in them; only what it writes into objects of other kinds remains there.
    ValueError or TypeError for inputs or an output that cannot be used. An experiment that fails at some lengths is reported as a
    problem; if it was asked for (by `step`, `lengths`, `back_ends` or an `attention_mask`), the audit is undecided.

    >>> report = audit(lambda x: x - x.mean(-2, keepdim=True), torch.randn(5, 3))
    >>> report.ok, report.leaks[0].fault
    (False, 'future')
    >>> audit(lambda x: x.cumsum(-2), torch.randn(5, 3)).ok
    True
    """
    options = Options(expects, max_lookback, row_axis, input_axis, lengths, modes, back_ends, step, vocab_size, memory, work)
    auditor = settle(model, inputs, options)
    settings = settings_of(auditor)
    bar_format = "{desc} {percentage:3.0f} % |{bar}| {elapsed} passed, {remaining} left"
    quiet = None if progress else True  # None: tqdm is quiet only without a terminal
    with tqdm(None, "audit", disable=quiet, delay=2, leave=False, bar_format=bar_format) as bar:
        later = replace(auditor, ran=True, axes=(0, 0))
        bar.total = sum(expected_work(trial_for(later, setting)) for setting in settings)
        auditor.plan.bar = bar.update
        for setting in settings:
            run_setting(auditor, setting)
    return report_of(auditor)


def assert_autoregressive(model: Callable[..., Any], inputs: Any, **options: Any) -> None:
    """For a test suite: AssertionError, with the report, unless `audit(model, inputs, **options)` is ok."""
    report = audit(model, inputs, **options)
    if not report.ok:
        raise AssertionError(f"\n{report}")

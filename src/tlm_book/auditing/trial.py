"""One setting of the experiment, a model that can be run on sequences, and what is found in it."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from tlm_book.auditing.inputs import Inputs, cut_beside
from tlm_book.auditing.state import held_by, seed_everything
from tlm_book.auditing.tensors import as_real, attempt, tensor_of
from tlm_book.checks import expects

FEW = 8  # rows, for experiments that are too expensive at the whole length of a large model
CALL = 16  # the overhead of a call, as a number of rows


@dataclass(frozen=True)
class Options:
    """What the caller of `audit` asks for; the names are those of its arguments."""

    expects: str
    max_lookback: int | None
    row_axis: int | None
    input_axis: int | None
    lengths: Sequence[int] | None
    modes: Sequence[str]
    back_ends: Sequence[str]
    step: Callable[..., Any] | None
    vocab_size: int | None
    memory: int
    work: float

    @property
    def everywhere(self) -> bool:
        """Whether every row should depend on every row."""
        return self.expects == "all"


@dataclass
class Plan:
    """What is to be tried: what the caller asks for, and what follows from the model and its inputs."""

    options: Options
    lengths: list[int]
    vocab_size: int
    heavy: bool  # too large for all experiments at all lengths
    own: torch.dtype  # the model's own precision
    bar: Callable[[int], Any] = int  # called with the work that has been done: rows, and CALL for each call
    most_kinds: int = 3  # how often each suffix is replaced
    again: bool = False  # a repetition in another precision, of what depends on kernels
    brief: bool = False  # without padding and without what other precisions imply
    batch: int = 1  # so many sequences at a time
    batch_grad: int = 1  # and so many with derivatives

    def kinds(self, n: int) -> int:
        """How often each suffix is replaced at this length: once at lengths in between, which are tried only for faults that depend on the length."""
        return self.most_kinds if n <= FEW or n == self.lengths[-1] else 1

    def sweeps(self, n: int) -> bool:
        """Whether one pass over all cuts is the only experiment at this length."""
        return self.heavy and n > FEW


@dataclass
class Trial:
    """One setting of the experiment: a model in one mode, one precision, one back end."""

    model: Callable[..., Any]
    inputs: Inputs
    modules: Mapping[str, nn.Module]
    name: str
    plan: Plan
    double: bool
    row_axis: int = -1  # found from the first output
    batch_axis: int | None = None
    outputs: int = 1  # the tensors with rows in an output, of which one is judged
    random: bool = False
    remembers: bool = False
    decided: bool = True
    coarsest: float = 0.0  # the unit in the last place of the coarsest type inside
    eps: float = 0.0
    tolerance: float = 0.0
    given: Mapping[int, Tensor] = field(default_factory=dict)  # {id: the model's own weight}, of which the trial has copies
    seen: dict[tuple[str, int], Float[np.ndarray, "n m"]] = field(default_factory=dict)  # {(mode, n): effects of single rows in double; ∞: not seen}

    def __post_init__(self) -> None:
        held = [v for v in held_by(list(self.modules.values())) if isinstance(v, torch.Generator)]
        self.generators = [(g, g.get_state()) for g in held]
        self.bases: dict[int, Tensor] = {}
        self.kept: dict[tuple[str, int], Any] = {}

    def base(self, n: int) -> Shaped[Tensor, "1 m e"]:
        """The output for the first n rows of the first sequence, with which nearly every experiment compares; computed once."""
        if n not in self.bases:
            self.bases[n] = self.rows(self.first(n))
        return self.bases[n]

    def once(self, key: tuple[str, int], run: Callable[[], Any]) -> Any:
        """The result of this run, which is kept until it is asked for a second time, and then forgotten."""
        if key in self.kept:
            return self.kept.pop(key)
        self.kept[key] = made = run()
        return made

    def copies(self, n: int) -> Shaped[Tensor, "2 m e"]:
        """The output for two copies of the first n rows."""
        return self.once(("copies", n), lambda: self.rows(self.first(n).repeat_interleave(2, 0)))

    def first(self, n: int) -> Shaped[Tensor, "1 m *d"]:
        """The first sequence, cut to n rows."""
        return self.inputs.x[:1, :n]

    def raw(self, x: Shaped[Tensor, "batch n *d"], seed: int = 0, start: int = 0, **extra: Any) -> Any:
        """What the model returns for these sequences, with the other inputs cut and repeated to match."""
        self.plan.bar(CALL + x.shape[0] * x.shape[1])
        seed_everything(seed, self.generators)
        pairs = self.inputs.values.items()
        values = {k: cut_beside(self.inputs, k, v, x, start) for k, v in pairs}
        extra = {k: v.clone() if isinstance(v, Tensor) else v for k, v in extra.items()}
        if self.inputs.named:
            return self.model(**{str(k): v for k, v in (values | extra).items()})
        return self.model(*values.values(), **extra)

    def real(self, extra: Mapping[str, Any]) -> Bool[Tensor, " n"] | None:
        """Which rows of the example are no padding; None if it has no padding, or if another mask is given."""
        return None if self.inputs.mask in extra else self.inputs.real

    def rows(self, x: Shaped[Tensor, "batch n *d"], seed: int = 0, **extra: Any) -> Shaped[Tensor, "batch m e"]:
        """The output for these sequences, (batch, row, everything else)."""
        if len(x) > 1 and None in (self.inputs.batch_axis, self.batch_axis):
            return torch.cat([self.rows(one[None], seed, **extra) for one in x])
        return self.shown(tensor_of(self.raw(x, seed, **extra)), x, **extra)

    def shown(self, output: Shaped[Tensor, "..."], x: Shaped[Tensor, "batch n *d"], **extra: Any) -> Shaped[Tensor, "batch m e"]:
        """An output for these sequences as (batch, row, everything else), a copy; rows that the given mask hides are 0."""
        y = as_rows(self, output)
        real = self.real(extra)
        if real is not None and len(y[0]) == len(x[0]):
            return y.masked_fill(~real[: len(x[0]), None], 0)
        return y.clone()  # a copy, since some models write every output into the same memory


def as_rows(trial: Trial, y: Shaped[Tensor, "..."]) -> Shaped[Tensor, "batch m e"]:
    """An output as (batch, row, everything else)."""
    y = as_real(y)
    if trial.batch_axis is None:
        y = y.movedim(trial.row_axis, 0)[None]
    else:
        y = y.movedim((trial.batch_axis, trial.row_axis), (0, 1))
    return y.reshape(*y.shape[:2], -1)


def find_axes(trial: Trial, n: int, whole: tuple[int, ...]) -> None:
    """Find the output axis that shrinks with the input rows and the one that grows with the batch; `whole` is the shape for n rows."""
    plan = trial.plan
    axis = plan.options.row_axis
    axis = find_row_axis(trial, whole, n) if axis is None else axis
    fits = -len(whole) <= axis < len(whole)
    expects(fits, "row_axis", axis, f"an axis of the output, of shape {whole}")
    fits, got = plan.options.everywhere or whole[axis] == n, f"{whole[axis]} output rows"
    expects(fits, "row_axis", got, f"{n}, one for each input row")
    trial.row_axis = axis % len(whole)
    if trial.inputs.batch_axis is not None:
        more = shape_at(trial, n, copies=2)
        grown = [a for a, (k, m) in enumerate(zip(whole, more)) if m == 2 * k]
        one = len(grown) == 1 and grown[0] != trial.row_axis
        trial.batch_axis = grown[0] if one else None


def shape_at(trial: Trial, n: int, copies: int = 1) -> tuple[int, ...]:
    x = trial.first(n).repeat_interleave(copies, 0)
    return tuple(tensor_of(trial.raw(x)).shape)


def find_row_axis(trial: Trial, whole: tuple[int, ...], n: int) -> int:
    """The output axis that shrinks with the input rows; several lengths are tried, since some models refuse some. ValueError if there is none."""
    m, fewer = n, whole
    for m in dict.fromkeys((n - 1, n // 2, n - 2, 1)):
        if 0 < m < n and (fewer := attempt(shape_at, trial, m)):
            break
    m, fewer = (m, fewer) if fewer else (n, whole)  # the model refuses all other lengths
    pairs = zip(whole, fewer) if len(whole) == len(fewer) else ()
    fits = [axis for axis, pair in enumerate(pairs) if pair == (n, m)]
    if not fits and trial.plan.options.everywhere and len(whole) > trial.inputs.axis:
        return trial.inputs.axis  # attention to a memory, which has its own rows
    got = f"an output of shape {whole} for {n} rows and {fewer} for {m}"
    wants = "one axis with a row for each input row; name it with row_axis="
    expects(len(fits) == 1, "row_axis", got, wants)
    return fits[0]


@dataclass
class Witness:
    """A witness of a fault: the sequence x, the other one, and the row that changed, or the column that it depends on.

    `keep` are the rows that must not change; if it is empty, the rows before `source`.
    """

    size: float
    row: int
    source: int
    x: Shaped[Tensor, "batch n *d"]
    other: Shaped[Tensor, "others m *d"]
    keep: Sequence[int] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)


class Findings:
    """What one setting finds: for each fault the strongest witness at each length and the ways in which it was seen; what was
    tried, what went wrong, and the effects of replaced rows at the last length.
    """

    def __init__(self, n: int) -> None:
        self.witness: dict[str, dict[int, Witness]] = {}
        self.ways: dict[str, list[str]] = {}
        self.tried: dict[str, list[int]] = {}
        self.problems: list[str] = []
        self.in_vain = False  # something that the caller asked for could not be tried
        self.effects = np.zeros((n, n))

    def add(self, fault: str, way: str, n: int, new: Witness) -> None:
        at = self.witness.setdefault(fault, {})
        if n not in at or new.size > at[n].size or at[n].other is at[n].x:
            at[n] = new
        if way not in self.ways.setdefault(fault, []):
            self.ways[fault].append(way)

    def take(self, other: "Findings") -> None:
        """Add what the other has found, but not what went wrong there."""
        for fault, at in other.witness.items():
            for n, witness in at.items():
                for way in other.ways[fault]:
                    self.add(fault, way, n, witness)

    def witnesses(self, fault: str) -> dict[int, Witness]:
        """{n: the strongest witness}, all in one unit: if rows show a leak, lengths at which only derivatives show it are left out."""
        at = self.witness[fault]
        in_rows = {n: w for n, w in at.items() if w.other is not w.x}
        return in_rows if fault == "future" and in_rows else at

    def strongest(self, fault: str) -> Witness:
        return max(self.witnesses(fault).values(), key=lambda w: w.size)

    def handiest(self, fault: str) -> Witness:
        """A short witness that is not much weaker than the strongest, for the search for the culprit."""
        at, most = self.witnesses(fault), self.strongest(fault).size
        fit = [n for n, w in at.items() if w.size >= 1e-2 * most]
        return at[min(fit, key=lambda n: (n < 6, n if n >= 6 else -n))]

"""Auditing: does this model see the future?. Generated from book/auditing.ipynb: edit the notebook, then `make export`."""

import contextlib
import inspect
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from tqdm import tqdm
from tlm_book.checks import expects, expects_one_of, expects_positive

__all__ = [
    "Leak",
    "Report",
    "audit",
    "assert_autoregressive",
]


# auditing: The tool, piece by piece
@dataclass(frozen=True)
class Leak:
    """One fault: in `setting`, output row `row` does what it should not with input row `source`.

    `fault`: "future" (hears a later row), "length" (hears how many rows come after it),
    "batch" (hears another sequence), "padding" (hears what stands in the padding), "cache"
    (step by step differs from the whole pass), "blind" (does not hear a row that it should),
    "far" (hears a row beyond `max_lookback`). `size` is relative to the largest output;
    `ways` are the experiments that found it; `module`, `type`, `cause` are the culprit's path,
    its class and a guess; `sizes` has the size at each length.

    Chapter: auditing.
    """

    fault: str
    setting: str
    row: int
    source: int
    size: float
    ways: tuple[str, ...] = ()
    module: str | None = None
    type: str = ""
    cause: str = ""
    sizes: Mapping[int, float] = field(default_factory=dict)

    def __str__(self) -> str:
        return "\n".join(_leak_lines(self))


# auditing: The tool, piece by piece
_SAYS = {
    "future": "output row {i} hears the later input row {j}",
    "length": "output row {i} changes when the rows from {j} on are removed",
    "batch": "output row {i} hears another sequence of the batch",
    "padding": "output row {i} hears what stands in the padding, at {j}",
    "cache": "decoding with a cache, row {i} differs from the full pass",
    "blind": "output row {i} does not hear input row {j}",
    "far": "output row {i} hears input row {j}, beyond max_lookback",
}


def _leak_lines(leak: Leak) -> list[str]:
    says = _SAYS[leak.fault].format(i=leak.row, j=leak.source)
    size = (
        ""
        if leak.fault == "blind"
        else f", by {leak.size:.1e} of the largest output"
    )
    lines = [f"{leak.fault.upper()} [{leak.setting}]: {says}{size}"]
    if leak.ways:
        lines.append(f"    seen by: {', '.join(leak.ways)}")
    if leak.module is not None:
        lines.append(
            f"    first in: {leak.module or '(the model itself)'} ({leak.type})"
        )
    if leak.cause:
        lines.append(f"    likely cause: {leak.cause}")
    if len(leak.sizes) > 1:
        lines.append(
            "    by length: "
            + ", ".join(f"{n}: {s:.1e}" for n, s in leak.sizes.items())
            + _growth(leak.sizes)
        )
    return lines


def _growth(sizes: Mapping[int, float]) -> str:
    """The power of n that fits best, when there are three lengths to fit."""
    points = [
        (math.log(n), math.log(s))
        for n, s in sizes.items()
        if n > 1 and 0 < s < math.inf
    ]
    if len(points) < 3:
        return ""
    power = np.polyfit(*zip(*points), 1)[0]
    return f" (about n to the {power:.1f})"


# auditing: The tool, piece by piece
@dataclass(frozen=True)
class Report:
    """What `audit` found: `ok`, `leaks`, `problems` (what could not be decided), `notes` (what was
    tried, and in which precision) and `effects`, in which entry (i, j) is the change of output row i
    when the input rows from j on are replaced.

    Chapter: auditing.
    """

    subject: str
    leaks: tuple[Leak, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    effects: Float[np.ndarray, "n n"]
    tolerance: float
    undecided: bool = False

    @property
    def ok(self) -> bool:
        """True when the model was put to the test and no fault was found."""
        return not self.leaks and not self.undecided

    def __repr__(self) -> str:
        verdict = (
            "ok"
            if self.ok
            else f"{len(self.leaks)} fault{'s' * (len(self.leaks) != 1)} found"
            if self.leaks
            else "not decided"
        )
        lines = [f"audit of {self.subject}: {verdict}"]
        lines += [f"  {line}" for leak in self.leaks for line in _leak_lines(leak)]
        lines += [f"  problem: {line}" for line in self.problems] + [
            f"  {line}" for line in self.notes
        ]
        return "\n".join(lines)

    def plot(self, ax: Any = None) -> Any:
        """Draws `effects` on these matplotlib axes or on new ones, leaks with a red frame; returns the axes."""
        return _draw_effects(self, ax)


# auditing: The tool, piece by piece
def _draw_effects(report: Report, ax: Any) -> Any:
    import matplotlib.pyplot as plt

    from tlm_book.viewer import style

    style.use_style()
    n = len(report.effects)
    if ax is None:
        ax = plt.subplots(figsize=(4.6, 3.9), layout="constrained")[1]
    smallest = math.log10(max(report.tolerance, 1e-18))
    with np.errstate(divide="ignore"):
        logs = np.where(
            report.effects > report.tolerance, np.log10(report.effects), np.nan
        )
    image = ax.imshow(
        logs, cmap=style.SEQUENTIAL, vmin=smallest, vmax=max(0.0, smallest + 1)
    )
    for i, j in zip(*np.nonzero(np.triu(report.effects > report.tolerance, 1))):
        ax.add_patch(
            plt.Rectangle(
                (j - 0.5, i - 0.5),
                1,
                1,
                fill=False,
                ec=style.RED,
                lw=min(1.4, 12 / n),
            )
        )
    ax.plot(
        *np.repeat(np.arange(n + 1), 2)[None, 1:-1].repeat(2, 0) - 0.5,
        color=style.GREY,
        lw=0.8,
    )
    ax.set(
        xlabel="rows j, j + 1, … are replaced",
        ylabel="output row i",
        xlim=(-0.5, n - 0.5),
        ylim=(n - 0.5, -0.5),
    )
    ax.grid(False)
    ax.get_figure().colorbar(image, ax=ax, label="change (power of 10)")
    return ax


# auditing: The tool, piece by piece
class _State:
    """All that a run could change in these modules and in the process, and how to put it back."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self.containers = [(vars(m), dict(vars(m))) for m in modules]
        inside = [value for m in modules for value in vars(m).values()]
        self.containers += [
            (v, v.copy()) for v in inside if isinstance(v, dict | list | set)
        ]
        self.generators = [
            (v, v.get_state()) for v in inside if isinstance(v, torch.Generator)
        ]
        tensors = [
            t
            for v in inside
            for t in (v.values() if isinstance(v, dict) else [v])
            if isinstance(t, Tensor)
        ]
        self.tensors = [(t, t.data, t.data.clone()) for t in tensors]
        self.leaves = [(t, t.requires_grad, t.grad) for t in tensors if t.is_leaf]
        self.random = torch.get_rng_state(), np.random.get_state(), random.getstate()
        self.cuda = (
            torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
        )
        self.dtype = torch.get_default_dtype()

    def put_back(self) -> None:
        for value, copy in self.containers:
            value.clear()
            value.extend(copy) if isinstance(value, list) else value.update(copy)
        for t, data, copy in self.tensors:
            t.data = data
            if not _same(data, copy):
                data.copy_(copy)
        for t, wants_grad, grad in self.leaves:
            t.requires_grad_(wants_grad)
            t.grad = grad
        for generator, state in self.generators:
            generator.set_state(state)
        for put, state in zip(
            (torch.set_rng_state, np.random.set_state, random.setstate), self.random
        ):
            put(state)
        if self.cuda:
            torch.cuda.set_rng_state_all(self.cuda)
        torch.set_default_dtype(self.dtype)


# auditing: The tool, piece by piece
@contextlib.contextmanager
def _as_it_was(modules: Sequence[nn.Module]) -> Iterator[None]:
    """On leaving, also by an exception: attributes, hooks, modes, weights, buffers and generators as before."""
    state = _State(modules)
    try:
        yield
    finally:
        state.put_back()


# auditing: The tool, piece by piece
def _same(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a, b) or bool(((a == b) | ((a != a) & (b != b))).all())


def _is_empty(cell: Any) -> bool:
    try:
        return cell.cell_contents is None
    except ValueError:
        return True


# auditing: The tool, piece by piece
def _modules_in(
    thing: Any, path: str = "", seen: set[int] | None = None, depth: int = 0
) -> dict[str, nn.Module]:
    """The torch modules inside a model or a callable, by path: children, modules in plain lists, and
    what a function closes over."""
    seen = set() if seen is None else seen
    if id(thing) in seen or depth > 12:
        return {}
    parts: dict[str, Any] = {}
    if isinstance(thing, nn.Module):
        parts = dict(thing._modules) | {
            k: v
            for k, v in vars(thing).items()
            if isinstance(v, list | tuple) or k == "forward"
        }
    elif inspect.isfunction(thing):
        cells = zip(thing.__code__.co_freevars, thing.__closure__ or ())
        parts = {
            name: cell.cell_contents for name, cell in cells if not _is_empty(cell)
        }
        parts |= {
            k: thing.__globals__[k]
            for k in thing.__code__.co_names
            if isinstance(thing.__globals__.get(k), nn.Module)
        }
        parts |= {f"default {k}": v for k, v in enumerate(thing.__defaults__ or ())}
    elif inspect.ismethod(thing):
        parts = {"": thing.__self__}
    elif isinstance(thing, list | tuple):
        parts = {str(k): v for k, v in enumerate(thing)} if len(thing) < 1000 else {}
    elif isinstance(thing, dict):
        parts = {str(k): v for k, v in thing.items()} if len(thing) < 1000 else {}
    elif (
        callable(thing) and hasattr(thing, "__dict__") and not inspect.isclass(thing)
    ):
        parts = dict(vars(thing)) | (
            {"": thing.func, "args": thing.args, "keywords": thing.keywords}
            if hasattr(thing, "func") and hasattr(thing, "keywords")
            else {}
        )
    seen.add(id(thing))
    found = {path: thing} if isinstance(thing, nn.Module) else {}
    for name, part in parts.items():
        found |= _modules_in(part, f"{path}.{name}".strip("."), seen, depth + 1)
    return found


# auditing: The tool, piece by piece
def _to_dtype(modules: Sequence[nn.Module], dtype: torch.dtype | None) -> None:
    """Parameters and buffers are replaced by copies in this type (complex ones stay complex); None keeps the types.

    The originals are put back by `_as_it_was`, so a model that writes into its weights spoils a copy.
    """
    seen: set[int] = set()
    for m in modules:
        for t in [*m._parameters.values(), *m._buffers.values()]:
            if t is None or id(t) in seen:
                continue
            seen.add(id(t))
            t.data = (
                t.data.to(dtype, copy=True)
                if dtype and t.is_floating_point()
                else t.data.clone()
            )
            if t.is_leaf:
                t.requires_grad_(False)
    if dtype:
        torch.set_default_dtype(dtype)


def _hold(seed: int, generators: Sequence[tuple[torch.Generator, Tensor]]) -> None:
    """Every source of randomness at a known place."""
    (
        torch.default_generator.manual_seed(seed),
        random.seed(seed),
        np.random.seed(seed),
    )
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)
    for generator, state in generators:
        generator.set_state(state) if seed == 0 else generator.manual_seed(seed)


# auditing: The tool, piece by piece
def _tensor_of(output: Any, name: str = "what the model returns") -> Tensor:
    """The tensor of an output: itself, `logits` or `last_hidden_state`, or the first tensor of a tuple or mapping."""
    for key in ("logits", "last_hidden_state"):
        inside = (
            output.get(key)
            if isinstance(output, Mapping)
            else getattr(output, key, None)
        )
        if isinstance(inside, Tensor):
            return inside
    if isinstance(output, Mapping):
        output = tuple(output.values())
    if isinstance(output, tuple | list):
        output = next((part for part in output if isinstance(part, Tensor)), output)
    came = type(output).__name__
    expects(
        isinstance(output, Tensor),
        name,
        came,
        "a tensor, or a tuple, mapping or Hugging Face output that holds one",
        TypeError,
    )
    return output


def _tensors_in(thing: Any) -> list[Tensor]:
    """All tensors of nested tuples, lists and mappings, in order."""
    if isinstance(thing, Tensor):
        return [thing]
    if isinstance(thing, Mapping):
        thing = list(thing.values())
    return (
        [t for part in thing for t in _tensors_in(part)]
        if isinstance(thing, list | tuple)
        else []
    )


def _attempt(call: Callable[[], Any]) -> Any:
    """What the call returns, or None when it raises."""
    try:
        return call()
    except Exception:
        return None


# auditing: The tool, piece by piece
_WITH_ROWS = (
    "attention_mask",
    "position_ids",
    "token_type_ids",
    "key_padding_mask",
    "src_key_padding_mask",
)


class _Inputs:
    """The example inputs, taken apart: `x`, the sequence, as (batch, row, …), and what goes with it."""

    def __init__(self, inputs: Any, axis: int | None) -> None:
        if isinstance(inputs, Tensor):
            inputs = (inputs,)
        shaped = isinstance(inputs, tuple | list | Mapping)
        expects(
            shaped,
            "inputs",
            type(inputs).__name__,
            "a tensor, a tuple of them or a mapping by keyword",
            TypeError,
        )
        self.named = isinstance(inputs, Mapping)
        self.values = dict(inputs) if self.named else dict(enumerate(inputs))
        tensors = [k for k, v in self.values.items() if isinstance(v, Tensor)]
        expects(tensors, "inputs", "no tensor", "at least one, the sequence first")
        usual = [k for k in ("input_ids", "inputs_embeds") if k in tensors]
        self.key = (usual or tensors)[0]
        x = self.values[self.key]
        self.tokens = not (x.is_floating_point() or x.is_complex())
        expects(
            x.dim() >= 1 + (not self.tokens),
            "inputs",
            f"a sequence of shape {tuple(x.shape)}",
            "(batch, n) tokens or (batch, n, d) rows",
        )
        self.axis = (
            (-1 if self.tokens else -2) % x.dim() if axis is None else axis % x.dim()
        )
        others = [a for a in range(x.dim()) if a != self.axis]
        self.batch_axis = (
            others[0] if len(others) > (0 if self.tokens else 1) else None
        )
        self.x = self.canonical(x.detach())
        self.n = self.x.shape[1]

    def canonical(self, x: Tensor) -> Tensor:
        """(batch, row, …), a batch of one where the model takes single sequences."""
        if self.batch_axis is None:
            return x.movedim(self.axis, 0).unsqueeze(0)
        return x.movedim((self.batch_axis, self.axis), (0, 1))

    def back(self, x: Tensor) -> Tensor:
        """The opposite: as the model wants it."""
        if self.batch_axis is None:
            return x.squeeze(0).movedim(0, self.axis)
        return x.movedim((0, 1), (self.batch_axis, self.axis))


# auditing: The tool, piece by piece
def _call(
    inputs: _Inputs, model: Callable, x: Tensor, extra: Mapping[str, Any]
) -> Any:
    """The model at the sequences x, with the other inputs cut and repeated to match."""
    values = {
        key: _beside(inputs, key, value, x) for key, value in inputs.values.items()
    }
    positional, named = ((), values) if inputs.named else (values.values(), {})
    return model(*positional, **(named | extra))


def _beside(inputs: _Inputs, key: Any, value: Any, x: Tensor) -> Any:
    """What stands beside the sequences x: a mask (…, n, n) or (…, n) is cut to their rows; what has a batch axis gets their batch."""
    if value is inputs.values[inputs.key]:
        return inputs.back(x)  # the sequence itself, perhaps more than once
    if not isinstance(value, Tensor):
        return value
    (b, n), square = (
        x.shape[:2],
        value.dim() > 1 and value.shape[-2:] == (inputs.n, inputs.n),
    )
    along = value.shape[-1:] == (inputs.n,) and (
        key in _WITH_ROWS or value.dim() < 3 and not value.is_floating_point()
    )
    batched = (
        inputs.batch_axis is not None
        and value.dim() > max(inputs.batch_axis, 1) + square
        and len(inputs.x) == value.shape[inputs.batch_axis]
    )
    value = value[..., :n, :n] if square else value[..., :n] if along else value
    if batched:
        value = value.narrow(inputs.batch_axis, 0, 1)
        value = value.repeat_interleave(b, inputs.batch_axis)
    return value


# auditing: The tool, piece by piece
class _Trial:
    """One setting of the experiment: a model in one mode, one precision, one back end."""

    def __init__(
        self,
        model: Callable,
        inputs: _Inputs,
        modules: Mapping[str, nn.Module],
        name: str,
        options: Any,
    ) -> None:
        self.model, self.inputs, self.modules, self.name, self.options = (
            model,
            inputs,
            modules,
            name,
            options,
        )
        self.generators = [
            (g, g.get_state())
            for m in modules.values()
            for g in vars(m).values()
            if isinstance(g, torch.Generator)
        ]
        self.row_axis: int | None = options["row_axis"]
        self.batch_axis: int | None = None
        self.random, self.double = False, False
        self.tried: list[str] = []

    def output(self, x: Tensor, seed: int = 0, **extra: Any) -> Tensor:
        _hold(seed, self.generators)
        return _tensor_of(_call(self.inputs, self.model, x, extra))

    def rows(self, x: Tensor, seed: int = 0, **extra: Any) -> Tensor:
        """The output as (batch, row, everything else)."""
        if self.inputs.batch_axis is None or self.batch_axis is None:
            if len(x) > 1:
                return torch.cat([self.rows(one[None], seed, **extra) for one in x])
        y = self.output(x, seed, **extra)
        y = torch.view_as_real(y) if y.is_complex() else y
        y = y.movedim(self.row_axis, 0)
        if self.batch_axis is not None:
            batch = self.batch_axis + (self.batch_axis < self.row_axis)
            return (
                y.movedim(batch, 0).flatten(2)
                if y.dim() > 2
                else y.movedim(batch, 0).unsqueeze(-1)
            )
        return y.reshape(1, len(y), -1)


# auditing: The tool, piece by piece
def _shape_at(trial: _Trial, n: int) -> tuple[int, ...] | None:
    y = _attempt(lambda: trial.output(trial.inputs.x[:1, :n]))
    return None if y is None else tuple(y.shape)


def _find_axes(trial: _Trial) -> None:
    """The output axis that shrinks with the input rows, and the one that grows with the batch."""
    n = max(trial.options["lengths"])
    x = trial.inputs.x[:1, :n]
    whole = trial.output(x).shape
    if trial.row_axis is None:
        runs = (
            (m, _shape_at(trial, m))
            for m in dict.fromkeys((n - 1, n // 2, n - 2, 1))
            if m
        )
        m, fewer = next(
            (pair for pair in runs if pair[1]), (n, whole)
        )  # some models refuse some lengths
        fits = (
            [a for a, pair in enumerate(zip(whole, fewer)) if pair == (n, m)]
            if len(whole) == len(fewer)
            else []
        )
        if (
            not fits
            and trial.options["expects"] == "all"
            and len(whole) > trial.inputs.axis
        ):
            fits = [
                trial.inputs.axis
            ]  # attention to a memory: the rows of the output are others
        got = f"an output of shape {tuple(whole)} for {n} rows and {tuple(fewer)} for {m}"
        expects(
            len(fits) == 1,
            "row_axis",
            got,
            "one axis with a row for each input row; name it with row_axis=",
        )
        trial.row_axis = fits[0]
    expects(
        -len(whole) <= trial.row_axis < len(whole),
        "row_axis",
        trial.row_axis,
        f"an axis of the output, of shape {tuple(whole)}",
    )
    trial.row_axis %= len(whole)
    memory = trial.options["expects"] == "all"
    expects(
        memory or whole[trial.row_axis] == n,
        "row_axis",
        f"{whole[trial.row_axis]} output rows",
        f"{n}, one for each input row",
    )
    if trial.inputs.batch_axis is not None:
        more = trial.output(x.repeat_interleave(2, 0)).shape
        grown = [a for a, (k, m) in enumerate(zip(whole, more)) if m == 2 * k]
        trial.batch_axis = (
            grown[0] if len(grown) == 1 and grown[0] != trial.row_axis else None
        )


# auditing: The tool, piece by piece
def _apart(a: Tensor, b: Tensor) -> Tensor:
    """(batch, row): the largest change in each row; equal infinities and equal NaN do not count, a new NaN counts without bound."""
    a, b = a.detach(), b.detach()
    a, b = (a.double(), b.double()) if a.element_size() < 8 else (a, b)
    same = (a == b) | (a.isnan() & b.isnan())
    gap = (a - b).abs().masked_fill(same, 0.0).nan_to_num(math.inf, math.inf)
    return gap.amax(-1) if gap.shape[-1] else gap.sum(-1)


def _scale(y: Tensor) -> float:
    """The size of the largest finite number of an output."""
    finite = y.detach()[y.detach().isfinite()]
    return float(finite.abs().max()) if len(finite) else 0.0


# auditing: The tool, piece by piece
def _dtype_of(y: Tensor) -> torch.dtype:
    return y.dtype if y.is_floating_point() else torch.float64


def _noise(trial: _Trial, n: int) -> tuple[float, float]:
    """(what is surely noise, the model's own nondeterminism), both as sizes of output.

    Three measurements: the same input twice; at another place of a batch of copies; and with every
    weight and every number of the input moved by one unit in its last place, which is what one rounding
    each would do. Sixteen times the last is allowed, never more than 2¹² units, and never less than 64.
    """
    x = trial.inputs.x[:1, :n]
    y = trial.rows(x)
    unit, scale = torch.finfo(_dtype_of(y)).eps, _scale(y)
    twice = float(_apart(trial.rows(x), y).max())
    copies = trial.rows(x.repeat_interleave(3, 0))
    moved = float(_apart(copies, y.expand_as(copies)).max())
    draw = torch.Generator().manual_seed(1)
    weights = [
        t
        for m in trial.modules.values()
        for t in m._parameters.values()
        if t is not None and t.is_floating_point()
    ]
    before = [t.data for t in weights]
    nudge = lambda t: (
        t
        * (
            1
            + torch.finfo(t.dtype).eps
            * (
                2 * torch.rand(t.shape, generator=draw, dtype=torch.float32).to(t)
                - 1
            ).sign()
        )
    )
    for t in weights:
        t.data = nudge(t.data)
    shaken = trial.rows(x if trial.inputs.tokens or x.is_complex() else nudge(x))
    for t, data in zip(weights, before):
        t.data = data
    rounding = min(16 * float(_apart(shaken, y).max()), 2**12 * unit * scale)
    own = max(twice, 0.0 if trial.random else 4 * moved)
    return max(own, rounding, 64 * unit * scale), twice


# auditing: The tool, piece by piece
def _fresh(trial: _Trial, x: Tensor, kind: int, draw: torch.Generator) -> Tensor:
    """Rows to put in the place of others: of the same kind, but different."""
    if trial.inputs.tokens:
        vocab = trial.options["vocab_size"]
        new = (
            torch.randint(vocab, x.shape, generator=draw).to(x)
            if kind % 2 == 0
            else x[:, :1].expand_as(x)
        )
        return torch.where(new == x, (new + 1) % vocab, new)
    if kind % 2:
        return -3 * x.flip(1) + x[:, :1]  # larger, and in another order
    like = torch.randn(x.shape, generator=draw, dtype=torch.float32).to(x)
    return x.mean() + like * (x.std() if x.numel() > 1 and x.std() > 0 else 1.0)


def _spread(places: Sequence[int], most: int) -> list[int]:
    """At most so many of them, evenly, the first and the last among them."""
    places, most = list(places), max(most, 2)
    if len(places) <= most:
        return places
    return sorted(
        {places[round(k * (len(places) - 1) / (most - 1))] for k in range(most)}
    )


# auditing: The tool, piece by piece
@dataclass
class _Found:
    """A witness of a fault: the sequence x, the other one, and the row that changed, or the column that it hears."""

    size: float
    row: int
    source: int
    x: Tensor
    other: Tensor
    keep: Sequence[
        int
    ] = ()  # the rows that must stay; without them, those before `source`
    extra: Mapping[str, Any] = field(default_factory=dict)


class _Finds:
    """Of each fault: the strongest witness at each length, and the ways in which it was seen."""

    def __init__(self) -> None:
        self.witness: dict[str, dict[int, _Found]] = {}
        self.ways: dict[str, list[str]] = {}

    def add(self, fault: str, way: str, n: int, new: _Found) -> None:
        at = self.witness.setdefault(fault, {})
        if n not in at or new.size > at[n].size or at[n].other is at[n].x:
            at[n] = new
        if way not in self.ways.setdefault(fault, []):
            self.ways[fault].append(way)

    def strongest(self, fault: str) -> _Found:
        return max(self.witness[fault].values(), key=lambda w: w.size)

    def handiest(self, fault: str) -> _Found:
        """A short witness, when it is not much weaker than the strongest: for the search of the culprit."""
        at, most = self.witness[fault], self.strongest(fault).size
        fit = [n for n, w in at.items() if w.size >= 1e-2 * most]
        return at[min(fit, key=lambda n: (n < 6, n if n >= 6 else -n))]


# auditing: The tool, piece by piece
def _replaced(
    trial: _Trial, n: int, tolerance: float, cuts: Sequence[int], found: _Finds
) -> Float[np.ndarray, "n n"]:
    """Replace the rows after each cut: rows up to it must stay. Returns the effects of suffix j on row i."""
    x, draw = trial.inputs.x[:1, :n], torch.Generator().manual_seed(n)
    fresh = [_fresh(trial, x, kind, draw) for kind in range(trial.options["kinds"])]
    jobs = [(cut, kind) for kind in range(len(fresh)) for cut in cuts]
    base, effects = trial.rows(x), np.zeros((n, n))
    scale, copies = _scale(base) or 1.0, None
    for start in range(0, len(jobs), trial.options["batch"]):
        some = jobs[start : start + trial.options["batch"]]
        others = torch.cat(
            [
                torch.cat([x[:, : cut + 1], fresh[kind][:, cut + 1 :]], 1)
                for cut, kind in some
            ]
        )
        if trial.random and (copies is None or len(copies) != len(some)):
            copies = trial.rows(
                x.repeat_interleave(len(some), 0)
            )  # the same draws for the same places
        gaps = (
            _apart(
                trial.rows(others),
                copies if trial.random else base.expand(len(some), -1, -1),
            )
            .cpu()
            .numpy()
        )
        trial.options["bar"](len(some))
        for (cut, _), gap, other in zip(some, gaps, others):
            effects[:, cut + 1] = np.maximum(effects[:, cut + 1], gap / scale)
            i = int(gap[: cut + 1].argmax())
            if gap[i] > tolerance:
                found.add(
                    "future",
                    "replaced rows",
                    n,
                    _Found(gap[i] / scale, i, cut + 1, x, other[None]),
                )
    return effects


# auditing: The tool, piece by piece
def _removed(trial: _Trial, n: int, tolerance: float, found: _Finds) -> list[str]:
    """Remove the rows from m on: the rows that are left must stay. Returns what went wrong at which height."""
    x = trial.inputs.x[:1, :n]
    base, failed = trial.rows(x), []
    scale = _scale(base) or 1.0
    for m in range(1, n):
        try:
            y = trial.rows(x[:, :m])
        except Exception as error:
            failed.append(_raised(m, error))
            continue
        if y.shape[1:] != (m, base.shape[2]):
            failed.append(
                "at other lengths its rows have another width: removed rows are not compared"
            )
            continue
        gap = _apart(y, base[:, :m])[0].cpu().numpy()
        trial.options["bar"](m / n)
        i = int(gap.argmax())
        if gap[i] > tolerance:
            found.add(
                "length",
                "removed rows",
                n,
                _Found(gap[i] / scale, i, m, x, x[:, :m]),
            )
    return failed


def _raised(n: int, error: Exception) -> str:
    return f"at n = {n} it raises {type(error).__name__}: {' '.join(str(error).split())[:120]}"


# auditing: The tool, piece by piece
@contextlib.contextmanager
def _embedded(trial: _Trial, tokens: Tensor) -> Iterator[list[Tensor]]:
    """Inside, what the embedding makes of the tokens is a leaf, listed here at each call, for derivatives to be taken by it."""
    leaves: list[Tensor] = []

    def hook(
        module: nn.Module, args: Any, kwargs: Any, output: Any
    ) -> Tensor | None:
        given = next(iter(_tensors_in([*args, *kwargs.values()])), None)
        is_tokens = given is not None and any(
            torch.equal(given.flatten(), part.flatten())
            for part in (tokens, *tokens)
        )
        if not (
            is_tokens
            and isinstance(output, Tensor)
            and output.is_floating_point()
            and output.dim() > given.dim()
        ):
            return None
        leaves.append(output.detach().requires_grad_(True))
        return leaves[-1].clone()

    inner = [
        m for m in trial.modules.values() if m is not trial.model and not m._modules
    ]
    hooks = [m.register_forward_hook(hook, with_kwargs=True) for m in inner]
    try:
        yield leaves
    finally:
        [handle.remove() for handle in hooks]


# auditing: The tool, piece by piece
def _gradients(
    trial: _Trial, x: Tensor, rows: Sequence[int], cotangents: Tensor
) -> Tensor | None:
    """(row, j, …): the derivative by input row j of a linear form of each of these output rows; None when it cannot be had.

    One backward pass for a batch of copies of the sequence, each with another row.
    """
    found = []
    for start in range(0, len(rows), trial.options["batch"]):
        some = list(rows[start : start + trial.options["batch"]])
        xs = x.repeat_interleave(len(some), 0)
        with (
            torch.enable_grad(),
            _embedded(trial, xs)
            if trial.inputs.tokens
            else contextlib.nullcontext([xs.requires_grad_(True)]) as leaves,
        ):
            y = trial.rows(xs)
            if not (y.requires_grad and y.is_floating_point() and leaves):
                return None
            form = sum(
                (y[k, i] * cotangents[start + k].to(y))
                .nan_to_num(0.0, 0.0, 0.0)
                .sum()
                for k, i in enumerate(some)
            )
            grads = torch.autograd.grad(form, leaves, allow_unused=True)
        grads = [
            torch.zeros_like(leaf) if g is None else g
            for leaf, g in zip(leaves, grads)
        ]
        if trial.inputs.tokens:  # one leaf for each embedding; of each call, where sequences are fed one by one
            blocks = [
                block
                for g in grads
                for block in g.reshape(-1, x.shape[1], g.shape[-1]).split(
                    1 if len(g) != len(some) or g.dim() < 3 else len(g)
                )
            ]
            each = len(blocks) // (1 if len(blocks[0]) == len(some) else len(some))
            grads = [
                torch.cat(
                    [
                        torch.cat(blocks[k : k + each], -1)
                        for k in range(0, len(blocks), each)
                    ]
                )
            ]
        trial.options["bar"](len(some))
        found.append(grads[0].reshape(len(some), x.shape[1], -1))
    return torch.cat(found)


# auditing: The tool, piece by piece
def _derivatives(
    trial: _Trial, n: int, rows: Sequence[int], found: _Finds
) -> Float[np.ndarray, "m n"] | None:
    """|∂yᵢ/∂xⱼ| for these rows i, from one random linear form of each yᵢ. Later rows must have 0.

    A number below rounding may be rounding itself: it counts when it is linear in the form, which
    rounding is not. So it is computed again for other forms and their sums.
    """
    x, draw = trial.inputs.x[:1, :n], torch.Generator().manual_seed(n)
    y = trial.rows(x)
    forms = torch.randn(
        len(rows), y.shape[2], generator=draw, dtype=torch.float32
    ).to(y if y.is_floating_point() else torch.float64)
    grads = _gradients(trial, x, rows, forms)
    if grads is None or not grads.isfinite().all():
        return None
    size = grads.abs().amax(-1)
    unit, top = torch.finfo(grads.dtype).eps, float(size.max()) or 1.0
    later = (
        torch.arange(n, device=size.device)[None]
        > torch.tensor(list(rows), device=size.device)[:, None]
    )
    sure, doubtful = (
        later & (size > 2**12 * unit * top),
        later & (size > 0) & (size <= 2**12 * unit * top),
    )
    if doubtful.any() and not sure.any() and grads.dtype == torch.float64:
        for scale in (0.3712, 1.9034, -0.7283):
            other = torch.randn(forms.shape, generator=draw, dtype=torch.float32).to(
                forms
            )
            g2, g3 = (
                _gradients(trial, x, rows, other),
                _gradients(trial, x, rows, forms + scale * other),
            )
            gap = (g3 - grads - scale * g2).abs().amax(-1)
            doubtful &= gap < 1e-6 * torch.maximum(size, g2.abs().amax(-1))
        sure = doubtful
    if sure.any():
        k, j = divmod(int((size * sure).argmax()), n)
        known = found.witness.get("future", {}).get(n)
        found.add(
            "future",
            "derivatives",
            n,
            known or _Found(float(size[k, j]) / top, rows[k], j, x, x),
        )
    return size.cpu().numpy() / top


# auditing: The tool, piece by piece
def _single(
    trial: _Trial, n: int, columns: Sequence[int], tolerance: float
) -> Float[np.ndarray, "n m"]:
    """The change of every row when one input row j is replaced, for these j; below the tolerance it is 0."""
    x, draw = trial.inputs.x[:1, :n], torch.Generator().manual_seed(n + 1)
    base = trial.rows(x)
    effects = np.zeros((base.shape[1], len(columns)))
    fresh = [_fresh(trial, x, kind, draw) for kind in range(3)]
    jobs = [(k, j, new) for new in fresh for k, j in enumerate(columns)]
    for start in range(0, len(jobs), trial.options["batch"]):
        some = jobs[start : start + trial.options["batch"]]
        others = torch.cat(
            [
                torch.cat([x[:, :j], new[:, j : j + 1], x[:, j + 1 :]], 1)
                for _, j, new in some
            ]
        )
        copies = (
            trial.rows(x.repeat_interleave(len(some), 0))
            if trial.random
            else base.expand(len(some), -1, -1)
        )
        gaps = _apart(trial.rows(others), copies).cpu().numpy()
        trial.options["bar"](len(some))
        for (k, _, _), gap in zip(some, gaps):
            effects[:, k] = np.maximum(effects[:, k], gap)
    return np.where(effects > tolerance, effects, 0) / (_scale(base) or 1.0)


# auditing: The tool, piece by piece
@dataclass
class _Call:
    """One call of a module: what went in and what came out, copied."""

    path: str
    module: Any
    args: Any
    kwargs: Any
    output: Any
    axes: list[tuple[int, ...]] = field(
        default_factory=list
    )  # the row axes of its tensors, inputs first

    def tensors(self) -> list[Tensor]:
        return _tensors_in([self.args, self.kwargs, self.output])

    def inputs(self) -> int:
        return len(_tensors_in([self.args, self.kwargs]))


def _copied(thing: Any) -> Any:
    """Nested tuples, lists and mappings with a copy of each tensor; derivatives still flow."""
    if isinstance(thing, Tensor):
        return thing.clone()
    if isinstance(thing, tuple | list):
        return [_copied(part) for part in thing]
    return (
        {k: _copied(v) for k, v in thing.items()}
        if isinstance(thing, Mapping)
        else thing
    )


# auditing: The tool, piece by piece
def _trace(trial: _Trial, x: Tensor, **extra: Any) -> list[_Call]:
    """Every call of a module, in the order in which they return; the whole comes last."""
    calls, open_calls, hooks = [], [], []

    def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
        open_calls.append((_copied(args), _copied(kwargs)))

    def leave(path: str) -> Callable:
        return lambda module, args, kwargs, output: calls.append(
            _Call(path, module, *open_calls.pop(), _copied(output))
        )

    try:
        for path, module in trial.modules.items():
            hooks.append(
                module.register_forward_pre_hook(
                    enter, with_kwargs=True, prepend=True
                )
            )
            hooks.append(module.register_forward_hook(leave(path), with_kwargs=True))
        with (
            torch.no_grad()
            if not torch.is_grad_enabled()
            else contextlib.nullcontext()
        ):
            y = trial.rows(x, **extra)
    finally:
        [hook.remove() for hook in hooks]
    name = getattr(trial.model, "__name__", type(trial.model).__name__)
    whole = _Call("", trial.model, [x], {}, [y], [(1,), (1,)])
    return calls + [whole] * (
        not isinstance(trial.model, nn.Module)
        or not calls
        or calls[-1].module is not trial.model
    )


# auditing: The tool, piece by piece
def _mark_rows(
    calls: Sequence[_Call], fewer: Sequence[_Call], n: int, m: int
) -> None:
    """Which axes have a row for each row of the sequence: those of size n that are m in the trace at m rows."""
    aligned = len(calls) == len(fewer) and all(
        a.path == b.path and len(a.tensors()) == len(b.tensors())
        for a, b in zip(calls, fewer)
    )
    for k, call in enumerate(calls):
        others = fewer[k].tensors() if aligned else [None] * len(call.tensors())
        call.axes = [
            tuple(
                a
                for a, size in enumerate(t.shape)
                if size == n
                and (o is None or o.dim() == t.dim() and o.shape[a] == m)
            )
            for t, o in zip(call.tensors(), others)
        ]


# auditing: The tool, piece by piece
def _differ(a: Tensor, b: Tensor, axes: tuple[int, ...], keep: Tensor) -> bool:
    """Do the kept rows of two tensors differ by more than rounding?"""
    for axis in axes:
        a, b = a.index_select(axis, keep), b.index_select(axis, keep)
    if a.shape != b.shape or a.dtype != b.dtype:
        return True
    if a.numel() == 0 or _same(a, b):
        return False
    if not a.is_floating_point():
        return True
    gap = _apart(a.reshape(1, 1, -1), b.reshape(1, 1, -1))
    return float(gap.max()) > 2**6 * torch.finfo(a.dtype).eps * _scale(a)


# auditing: The tool, piece by piece
def _blame(
    calls: Sequence[_Call], differs: Callable[[int], list[bool]]
) -> tuple[int | None, list[int]]:
    """The first call with rows in its output that differ while none of its inputs does; and the calls
    inside it whose output without rows, as of a mean of all rows, differs while their inputs do not."""
    pooled = []
    for index, call in enumerate(calls):
        flags, k = differs(index), call.inputs()
        if any(flags[:k]) or not any(flags[k:]):
            continue
        if any(flag and axes for flag, axes in zip(flags[k:], call.axes[k:])):
            return index, [i for i in pooled if calls[i].path.startswith(call.path)]
        pooled.append(index)
    return None, pooled


# auditing: The tool, piece by piece
def _compare(
    calls: Sequence[_Call], others: Sequence[_Call], keep: Tensor
) -> Callable[[int], list[bool]]:
    """Which tensors of a call, inputs first, differ between two traces in the kept rows."""
    turn: dict[str, list[_Call]] = {}
    for other in others:
        turn.setdefault(other.path, []).append(other)
    partner = [
        turn[call.path].pop(0) if turn.get(call.path) else call for call in calls
    ]

    def differs(index: int) -> list[bool]:
        pairs = zip(
            calls[index].tensors(), partner[index].tensors(), calls[index].axes
        )
        return [_differ(a, b, axes, keep) for a, b, axes in pairs]

    return differs


# auditing: The tool, piece by piece
def _explains(
    trial: _Trial, calls: Sequence[_Call], index: int, found: _Found, keep: Tensor
) -> bool:
    """Does the fault vanish when this one call is made to return what it returned for the other sequence?"""
    call, turns = calls[index], [0]
    which = sum(earlier.path == call.path for earlier in calls[:index])

    def patch(module: nn.Module, args: Any, output: Any) -> Any:
        turns[0] += 1
        same_kind = isinstance(output, Tensor) and isinstance(call.output, Tensor)
        return call.output if turns[0] == which + 1 and same_kind else None

    base, before = (
        trial.rows(x, **found.extra)[:, keep] for x in (found.x, found.other)
    )
    handle = call.module.register_forward_hook(patch)
    try:
        after = trial.rows(found.other, **found.extra)[:, keep]
    finally:
        handle.remove()
    return float(_apart(after, base).max()) < 1e-3 * float(
        _apart(before, base).max()
    )


# auditing: The tool, piece by piece
def _hears(
    trial: _Trial, x: Tensor, row: int, column: int
) -> tuple[list[_Call], Callable[[int], list[bool]]]:
    """Which tensors of a call have a derivative by input row `column` in their rows up to `row`; and the trace."""
    x = x.clone()
    with (
        torch.enable_grad(),
        _embedded(trial, x)
        if trial.inputs.tokens
        else contextlib.nullcontext([x.requires_grad_(True)]) as leaves,
    ):
        calls = _trace(trial, x)
    keep, draw = (
        torch.arange(row + 1, device=x.device),
        torch.Generator().manual_seed(0),
    )

    @torch.enable_grad()
    def hears(t: Tensor, axes: tuple[int, ...]) -> bool:
        if not (t.requires_grad and t.is_floating_point()):
            return False
        for axis in axes:
            t = t.index_select(axis, keep)
        form = (
            (t * torch.randn(t.shape, generator=draw, dtype=torch.float32).to(t))
            .nan_to_num(0.0, 0.0, 0.0)
            .sum()
        )
        grads = torch.autograd.grad(
            form, leaves, retain_graph=True, allow_unused=True
        )
        return any(
            g is not None and bool(g.select(0 if g.dim() == 2 else 1, column).any())
            for g in grads
        )

    return calls, lambda index: [
        hears(*pair) for pair in zip(calls[index].tensors(), calls[index].axes)
    ]


# auditing: The tool, piece by piece
def _culprit(
    trial: _Trial, fault: str, found: _Found
) -> tuple[list[_Call], int | None]:
    """The trace at the witness, and the call in it that is the first to be at fault."""
    n, m = found.x.shape[1], found.x.shape[1] - 1
    fewer = (
        _attempt(
            lambda: _trace(
                trial,
                found.x[:, :m],
                **{key: mask[:, :m] for key, mask in found.extra.items()},
            )
        )
        or []
    )
    if found.other is found.x:
        calls, differs = _hears(trial, found.x, found.row, found.source)
        _mark_rows(calls, fewer, n, m)
        return calls, _blame(calls, differs)[0]
    calls, others = (
        _trace(trial, found.x, **found.extra),
        _trace(trial, found.other, **found.extra),
    )
    last = min(found.source, found.other.shape[1])
    keep = torch.tensor(list(found.keep) or list(range(last)), device=found.x.device)
    _mark_rows(calls, fewer, n, m)
    if fault == "batch":  # the first of two sequences must not change
        keep = torch.arange(1, device=found.x.device)
        _mark_rows(calls, _trace(trial, found.x[:1]), 2, 1)
    index, pooled = _blame(calls, _compare(calls, others, keep))
    if fault == "future" and found.x.shape == found.other.shape:
        pooled = [i for i in pooled if _explains(trial, calls, i, found, keep)]
        index = pooled[0] if pooled else index
    return calls, index


# auditing: The tool, piece by piece
@dataclass
class _Local:
    """How the culprit's output rows hear its input rows, by itself: experiments on one module."""

    hears: Float[np.ndarray, "n n"]
    alike: bool  # the same change in every earlier row
    rescales: (
        bool  # the earlier rows are only scaled and shifted, channel by channel
    )
    symmetric: bool  # the order of later rows does not matter
    permutes: bool  # the output rows are the input rows in another order


# auditing: The tool, piece by piece
def _replay(
    call: _Call, change: Callable[[Tensor, tuple[int, ...]], Tensor], trial: _Trial
) -> Tensor:
    """The module again, on changed inputs; the first output with rows, rows first."""
    place = iter(range(len(call.axes)))

    def walk(thing: Any) -> Any:
        if isinstance(thing, Tensor):
            axes = call.axes[next(place)]
            return change(thing, axes) if len(axes) == 1 else thing.clone()
        if isinstance(thing, list):
            return [walk(part) for part in thing]
        return (
            {k: walk(v) for k, v in thing.items()}
            if isinstance(thing, Mapping)
            else thing
        )

    args, kwargs = walk(call.args), walk(call.kwargs)
    _hold(0, trial.generators)
    if not isinstance(call.module, nn.Module):
        return trial.rows(args[0])[0]
    outputs, axes = (
        _tensors_in(call.module(*args, **kwargs)),
        call.axes[call.inputs() :],
    )
    y, (axis, *_) = next((y, a) for y, a in zip(outputs, axes) if a)
    return y.movedim(axis, 0).reshape(y.shape[axis], -1)


# auditing: The tool, piece by piece
def _examine(trial: _Trial, call: _Call, n: int) -> _Local | None:
    """Replace, permute and compare rows at the culprit's own input."""
    draw = torch.Generator(device="cpu").manual_seed(5)
    vocab = trial.options["vocab_size"]

    def put(t: Tensor, axes: tuple[int, ...], rows: list[int]) -> Tensor:
        t, where = t.clone(), torch.tensor(rows, device=t.device)
        old = t.index_select(axes[0], where)
        if t.is_floating_point():
            new = (
                torch.randn(old.shape, generator=draw, dtype=torch.float32).to(t)
                * (t.std() + 1e-3)
                + t.mean()
            )
        else:
            new = old.logical_not() if t.dtype == torch.bool else (old + 1) % vocab
        return t.index_copy(axes[0], where, new)

    def run(change: Callable) -> Tensor:
        return _replay(call, change, trial).double()

    y = run(lambda t, a: t)
    if len(y) != n:
        return None
    tolerance = (
        2**4
        * torch.finfo(torch.float64 if trial.double else torch.float32).eps
        * (_scale(y) or 1.0)
    )
    moved = [run(lambda t, a, j=j: put(t, a, [j])) for j in range(n)]
    hears = torch.stack([(z - y).abs().amax(-1) for z in moved], 1).cpu().numpy()
    cut = n // 2
    other = run(lambda t, a: put(t, a, list(range(cut, n))))
    change, order = (other - y)[:cut], [*range(cut), *range(n - 1, cut - 1, -1)]
    turned = run(
        lambda t, a: t.index_select(a[0], torch.tensor(order, device=t.device))
    )
    near = lambda a, b: (
        float((a - b).abs().max())
        <= max(1e-6 * float(change.abs().max()), tolerance)
    )
    z, w = y[:cut] - y[:cut].mean(0), other[:cut] - other[:cut].mean(0)
    factor = (z * w).sum(0) / (z * z).sum(0).clamp_min(1e-30)
    given = next(
        (
            t.movedim(a[0], 0).reshape(n, -1).double()
            for t, a in zip(call.tensors(), call.axes)
            if len(a) == 1 and t.shape[a[0]] == n
        ),
        y,
    )
    return _Local(
        np.where(hears > tolerance, hears, 0.0),
        near(change, change[:1].expand_as(change)),
        cut > 2 and near(z * factor, w) and bool((factor - 1).abs().max() > 1e-9),
        near(turned[:cut], y[:cut]),
        given.shape == y.shape and near(given.sort(0).values, y.sort(0).values),
    )


# auditing: The tool, piece by piece
_BY_CLASS: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("BatchNorm",),
        "batch statistics: mean and variance are taken over all rows and sequences",
    ),
    (
        ("InstanceNorm", "GroupNorm", "LayerNorm"),
        "normalization over the sequence axis",
    ),
    (("Pool",), "pooling over the sequence"),
    (("Softmax", "Softmin", "LogSoftmax"), "softmax over the sequence axis"),
)


def _by_class(module: Any) -> str:
    """What one of torch's own classes does, when that explains the leak."""
    if isinstance(module, nn.RNNBase) and module.bidirectional:
        return "bidirectional recurrence: half of it runs from the last row to the first"
    if type(module).__module__.startswith("torch.nn"):
        for names, cause in _BY_CLASS:
            if any(name in type(module).__name__ for name in names):
                return cause
    return ""


def _is_attention(module: Any) -> bool:
    """By its name, those of its classes, or the code of these: does it weigh rows by a softmax?"""
    classes = [
        c
        for c in type(module).__mro__
        if issubclass(c, nn.Module) and c is not nn.Module
    ]
    own = [c for c in classes if not c.__module__.startswith("torch.")]
    code = (
        [_attempt(lambda c=c: inspect.getsource(c)) or "" for c in own]
        if own
        else []
    )
    words = " ".join([*(c.__name__ for c in classes), *code]).lower()
    return any(
        word in words
        for word in (
            "attn",
            "attention",
            "softmax",
            "transformerencoder",
            "transformerdecoder",
        )
    )


# auditing: The tool, piece by piece
def _cause(call: _Call, local: _Local | None, fault: str, derivable: bool) -> str:
    """A guess at the cause, from the culprit's class and from how its rows hear each other."""
    if cause := _by_class(call.module):
        return cause
    if fault == "length":
        return "the number of rows enters the computation"
    if fault == "batch":
        return "the sequences of a batch are mixed: perhaps its axis is taken for that of the rows"
    if local is None or not (later := np.argwhere(np.triu(local.hears, 1))).size:
        return "not known: by itself, on other rows, the module shows no leak"
    attends = _is_attention(call.module)
    if attends and local.hears[*later.T].max() < 1e-3 * local.hears.max():
        return "mask too weak: a finite number in the place of −∞"
    return _cause_near(call, local, later, attends) or _cause_far(
        local, later, attends, derivable
    )


# auditing: The tool, piece by piece
def _cause_near(
    call: _Call, local: _Local, later: Int[np.ndarray, "m 2"], attends: bool
) -> str:
    """When each row hears only a few rows ahead."""
    n = len(local.hears)
    reach = int((later[:, 1] - later[:, 0]).max())
    rows = f"{reach} row{'s' * (reach > 1)} ahead"
    if n <= 2 * reach or not all(
        local.hears[i, i + reach] for i in range(n - reach)
    ):
        return ""
    if "conv" in type(call.module).__name__.lower():
        return f"convolution padding: the window reaches {rows}"
    if attends:
        return f"mask off by {'one' if reach == 1 else reach}: each row hears {rows}"
    return f"an offset: each row hears {rows} (convolution padding, or a shift)"


# auditing: The tool, piece by piece
def _cause_far(
    local: _Local, later: Int[np.ndarray, "m 2"], attends: bool, derivable: bool
) -> str:
    """When rows hear far ahead, or some do."""
    n, far = len(local.hears), {tuple(pair) for pair in later.tolist()}
    if n < 4:
        return (
            "mask missing at this length"
            if attends
            else f"not known: it was seen at n = {n} only"
        )
    if far == {(0, n - 1)}:
        return "row 0 is given the last row: a shift that wraps around"
    if local.permutes:
        mirrored = all(i + j == n - 1 for i, j in far)
        return (
            "the order of the rows is reversed"
            if mirrored
            else "sort across positions: the output rows are the input rows in another order"
        )
    if all(j == n - 1 for _, j in far):
        return "every row is given the last row"
    for size in range(2, n):
        if far == {
            (i, j)
            for i in range(n)
            for j in range(i + 1, n)
            if i // size == j // size
        }:
            return f"rows are mixed within blocks of {size}"
    if local.alike:
        return "pooling over the sequence: the same is added to every row"
    if local.rescales:
        return "normalization over the sequence axis: later rows scale and shift earlier ones"
    if not derivable:
        return "sort, rank, dispatch or rounding across positions: a step without a derivative"
    some = (
        ""
        if len(far) == n * (n - 1) // 2
        else f" for {len(far)} of {n * (n - 1) // 2} pairs"
    )
    if attends:
        return f"mask missing{some}: later rows are heard{', in whatever order' * local.symmetric}"
    order = (
        ", in whatever order: a mask missing, or pooling"
        if local.symmetric
        else ", and their order counts: a recurrence from the end, or a full mixing"
    )
    return f"later rows are heard{some or ', every one'}{order}"


# auditing: The tool, piece by piece
def _others_in_batch(trial: _Trial, n: int, tolerance: float, found: _Finds) -> None:
    """A sequence among others, and at another place, must give what it gives among copies of itself."""
    x, draw = trial.inputs.x[:, :n], torch.Generator().manual_seed(n)
    one, other = x[:1], x[1:2] if len(x) > 1 else _fresh(trial, x[:1], 0, draw)
    copies = trial.rows(torch.cat([one, one]))
    scale = _scale(copies) or 1.0
    for k, pair in enumerate(((one, other), (other, one))):
        gap = _apart(trial.rows(torch.cat(pair)), copies)[k].cpu().numpy()
        i = int(gap.argmax())
        if gap[i] > tolerance:
            found.add(
                "batch",
                "another sequence beside it",
                n,
                _Found(
                    gap[i] / scale,
                    i,
                    0,
                    torch.cat([one, one]),
                    torch.cat((one, other)),
                ),
            )


# auditing: The tool, piece by piece
def _padded(trial: _Trial, n: int, tolerance: float, found: _Finds) -> None:
    """With a third of the rows masked, on the right and on the left, beside a full sequence: no row hears later rows or padding."""
    x, draw = trial.inputs.x[:1, :n], torch.Generator().manual_seed(n)
    fresh, pad = _fresh(trial, x, 0, draw), max(1, n // 3)
    for side, rows in (("right", range(n - pad)), ("left", range(pad, n))):
        mask = torch.ones(2, n, dtype=torch.long, device=x.device)
        mask[0, [i for i in range(n) if i not in rows]] = 0
        keep = list(rows)
        jobs = [
            (
                "padding",
                keep,
                torch.where(
                    mask[:1].view(1, n, *[1] * (x.dim() - 2)) == 0, fresh, x
                ),
            )
        ]
        for cut in _spread(keep[:-1], 6):
            jobs.append(
                (
                    "future",
                    list(range(keep[0], cut + 1)),
                    torch.cat([x[:, : cut + 1], fresh[:, cut + 1 :]], 1),
                )
            )
        masks = torch.cat([mask[:1]] * len(jobs) + [mask[1:]])
        base = trial.rows(x.repeat_interleave(len(masks), 0), attention_mask=masks)
        gaps = (
            _apart(
                trial.rows(
                    torch.cat([other for _, _, other in jobs] + [x]),
                    attention_mask=masks,
                ),
                base,
            )
            .cpu()
            .numpy()
        )
        scale = _scale(base[:, keep]) or 1.0
        for (fault, stay, other), gap in zip(jobs, gaps):
            gap = gap[stay]
            i = int(gap.argmax())
            if gap[i] > tolerance:
                source = (
                    (n - pad if side == "right" else 0)
                    if fault == "padding"
                    else stay[-1] + 1
                )
                new = _Found(
                    gap[i] / scale,
                    stay[i],
                    source,
                    x,
                    other,
                    stay,
                    {"attention_mask": mask[:1]},
                )
                found.add(fault, f"{side}-padded batch", n, new)


# auditing: The tool, piece by piece
def _cached(trial: _Trial, n: int, tolerance: float, found: _Finds) -> str:
    """Row by row, and in chunks, with what the model keeps: each row must be that of the whole pass. Returns what was tried."""
    x, step = trial.inputs.x[:1, :n], trial.options["step"]
    whole = trial.rows(x)
    scale = _scale(whole) or 1.0
    if step is None and not _takes(trial.model, "past_key_values"):
        return ""
    half = max(1, n // 2)
    ways = {"one row at a time": [1] * n}
    if step is None:
        ways |= {
            "half, then one at a time": [half] + [1] * (n - half),
            "in two halves": [half, n - half],
        }
    for way, chunks in ways.items():
        state, start, parts = None, 0, []
        for size in chunks:
            y, state = _one_step(trial, x[:, start : start + size], state)
            start += size
            parts.append(y)
        gap = _apart(torch.cat(parts, 1), whole)[0].cpu().numpy()
        i = int(gap.argmax())
        if gap[i] > tolerance:
            found.add("cache", way, n, _Found(gap[i] / scale, i, i, x, x))
    return "decoding with a cache against the whole pass"


# auditing: The tool, piece by piece
def _one_step(trial: _Trial, x: Tensor, state: Any) -> tuple[Tensor, Any]:
    step, axis = trial.options["step"], trial.row_axis
    _hold(0, trial.generators)
    if step is not None:
        output, state = step(trial.inputs.back(x), state)
    else:
        output = _call(
            trial.inputs,
            trial.model,
            x,
            {"past_key_values": state, "use_cache": True},
        )
        state = output.past_key_values
    y = _tensor_of(output, "what step returns")
    batched = trial.batch_axis is not None
    y = (
        y.movedim((trial.batch_axis, axis), (0, 1))
        if batched
        else y.movedim(axis, 0)[None]
    )
    return y.reshape(1, y.shape[1], -1), state


def _takes(model: Any, name: str) -> bool:
    """Has the model a parameter of this name?"""
    signature = _attempt(
        lambda: inspect.signature(
            model.forward if isinstance(model, nn.Module) else model
        )
    )
    return signature is not None and name in signature.parameters


# auditing: The tool, piece by piece
def _blind(trial: _Trial, n: int, tolerance: float, found: _Finds) -> None:
    """Rows that do not hear what they should, and rows that hear what lies beyond `max_lookback`."""
    columns = _spread(range(n), 16 if trial.options["heavy"] else n)
    effects = _single(trial, n, columns, tolerance)
    outputs, w, x = (
        len(effects),
        trial.options["max_lookback"],
        trial.inputs.x[:1, :n],
    )
    grads = (
        _attempt(lambda: _derivatives(trial, n, range(outputs), _Finds()))
        if n * outputs <= 4096
        else None
    )
    sees = (
        effects > 0
        if grads is None
        else (effects > 0) | (grads[:, columns] > 2**12 * 2e-16)
    )
    i, j = np.indices(effects.shape)
    j = np.array(columns)[j]
    should = (
        np.ones_like(sees)
        if trial.options["expects"] == "all"
        else (j <= i) & (i - j <= w)
    )
    missing = np.argwhere(should & ~sees)
    if len(missing):
        way = f"{len(missing)} of {int(should.sum())} pairs"
        found.add(
            "blind",
            way,
            n,
            _Found(0.0, int(missing[0][0]), columns[missing[0][1]], x, x),
        )
    if w is not None and (far := np.where((i - j > w), effects, 0.0)).any():
        a, b = np.unravel_index(far.argmax(), far.shape)
        found.add(
            "far",
            "single rows",
            n,
            _Found(float(far[a, b]), int(a), columns[b], x, x),
        )


# auditing: The tool, piece by piece
def _pair(trial: _Trial, w: _Found) -> int:
    """Of the replaced rows, the one that the row hears most."""
    if w.other.shape != w.x.shape or w.other is w.x or w.extra:
        return w.source
    base, n, best = trial.rows(w.x), w.x.shape[1], (0.0, w.source)
    for j in _spread(range(w.source, n), 24):
        one = torch.cat([w.x[:, :j], w.other[:, j : j + 1], w.x[:, j + 1 :]], 1)
        best = max(
            best,
            (float(_apart(trial.rows(one), base)[0, w.row]), j),
            key=lambda pair: pair[0],
        )
    return best[1] if best[0] > 0.2 * w.size * _scale(base) else w.source


# auditing: The tool, piece by piece
_BACK_ENDS = {
    "math": "MATH",
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
}


@contextlib.contextmanager
def _back_end(modules: Mapping[str, nn.Module], name: str | None) -> Iterator[None]:
    """One of torch's kernels by name, or an attention implementation of a Hugging Face model."""
    if name is None:
        yield
    elif name in _BACK_ENDS:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        with sdpa_kernel(getattr(SDPBackend, _BACK_ENDS[name])):
            yield
    else:
        can = [m for m in modules.values() if hasattr(m, "set_attn_implementation")]
        configs = {
            id(m.config): m.config for m in modules.values() if hasattr(m, "config")
        }
        before = [(config, dict(vars(config))) for config in configs.values()]
        try:
            can[0].set_attn_implementation(name)
            yield
        finally:
            for config, saved in before:
                vars(config).clear(), vars(config).update(saved)


# auditing: The tool, piece by piece
def _explore(
    trial: _Trial, found: _Finds, problems: list[tuple[str, str]]
) -> tuple[np.ndarray, float]:
    """All experiments in one setting."""
    options, n = trial.options, max(trial.options["lengths"])
    x = trial.inputs.x[:1, :n]
    y = trial.rows(x)
    trial.random = float(_apart(trial.rows(x, seed=1), y).max()) > 0 and bool(
        torch.equal(trial.rows(x), y)
    )
    tolerance, twice = _noise(trial, n)
    relative = tolerance / (_scale(y) or 1.0)
    if y.isnan().any():
        rows = sorted(set(y.isnan().any(-1)[0].nonzero().flatten().tolist()))
        problems.append(
            (
                trial.name,
                f"NaN in output rows {', '.join(map(str, rows[:6]))}{' …' * (len(rows) > 6)}: nothing can be said of them",
            )
        )
    if twice > 0:
        problems.append(
            (
                trial.name,
                f"the same input twice gives outputs that differ by {twice / (_scale(y) or 1.0):.1e}: a smaller leak is not seen",
            )
        )
    effects = np.zeros((n, n))
    if options["expects"] == "all":
        _blind(trial, n, tolerance, found)
        trial.tried.append("single replaced rows")
        return effects, relative
    for length in options["lengths"]:
        try:
            effects = _at_length(trial, length, relative, found, problems)
        except Exception as error:
            problems.append((trial.name, _raised(length, error)))
    if options["max_lookback"] is not None:
        _blind(trial, n, tolerance, found)
    return effects, relative


# auditing: The tool, piece by piece
def _at_length(
    trial: _Trial,
    n: int,
    relative: float,
    found: _Finds,
    problems: list[tuple[str, str]],
) -> np.ndarray:
    """The experiments at one length."""

    def log(words: str) -> None:
        if words and words not in trial.tried:
            trial.tried.append(words)

    last, evaluating = (
        n == max(trial.options["lengths"]),
        trial.name.startswith("eval"),
    )
    tolerance = relative * (_scale(trial.rows(trial.inputs.x[:1, :n])) or 1.0)
    if trial.batch_axis is not None:
        _others_in_batch(trial, n, tolerance, found)
        log("other sequences in the batch")
        if "batch" in found.witness:
            trial.options["batch"] = (
                1  # or one sequence would spoil what is said of another
            )
    if n == 1:
        return np.zeros((1, 1))
    effects = _replaced(trial, n, tolerance, range(n - 1), found)
    log("replaced rows")
    if trial.options["heavy"] and n > 16:
        return effects
    if not trial.random:
        problems += [
            (trial.name, line) for line in _removed(trial, n, tolerance, found)
        ]
        log("removed rows")
    if evaluating and trial.double:
        log(
            "derivatives"
            if _attempt(lambda: _derivatives(trial, n, range(n), found)) is not None
            else ""
        )
    masked = (
        _takes(trial.model, "attention_mask")
        or "attention_mask" in trial.inputs.values
    )
    if last and n >= 3 and masked and trial.batch_axis is not None:
        _padded(trial, n, tolerance, found)
        log("padding on the right and on the left")
    if last and evaluating:
        log(_cached(trial, n, tolerance, found))
    return effects


# auditing: The tool, piece by piece
def _cast(inputs: Any, dtype: torch.dtype) -> Any:
    """Floating-point tensors in this type, at any depth of tuples and mappings; the sequence stays one object."""
    seen: dict[int, Tensor] = {}

    def cast(thing: Any) -> Any:
        if isinstance(thing, Tensor):
            return seen.setdefault(
                id(thing), thing.to(dtype) if thing.is_floating_point() else thing
            )
        if isinstance(thing, Mapping):
            return {k: cast(v) for k, v in thing.items()}
        return (
            type(thing)(map(cast, thing)) if type(thing) in (list, tuple) else thing
        )

    return cast(inputs)


def _roots(modules: Mapping[str, nn.Module]) -> list[nn.Module]:
    inner = {
        id(child)
        for m in modules.values()
        for child in m.modules()
        if child is not m
    }
    return [m for m in modules.values() if id(m) not in inner]


# auditing: The tool, piece by piece
def _vocabulary(
    inputs: _Inputs, modules: Mapping[str, nn.Module], given: int | None
) -> int:
    """How many tokens there are: given, or the rows of the first embedding, or the largest token seen."""
    if given is not None or not inputs.tokens:
        return given or 2
    sizes = [
        m.num_embeddings for m in modules.values() if isinstance(m, nn.Embedding)
    ]
    configs = [
        getattr(getattr(m, "config", None), "vocab_size", None)
        for m in modules.values()
    ]
    known = [size for size in [*configs, *sizes] if isinstance(size, int)]
    return known[0] if known else max(2, int(inputs.x.max()) + 1)


def _batch_size(trial: _Trial, memory: int) -> int:
    """As many sequences at a time as keep what all modules return within the memory."""
    used = [0]
    count = lambda m, args, output: used.__setitem__(
        0,
        used[0]
        + sum(
            t.numel() * t.element_size()
            for t in _tensors_in(
                output if not isinstance(output, Mapping) else dict(output)
            )
        ),
    )
    hooks = [m.register_forward_hook(count) for m in trial.modules.values()]
    try:
        y = trial.rows(trial.inputs.x[:1, : max(trial.options["lengths"])])
    finally:
        [hook.remove() for hook in hooks]
    return max(1, min(64, memory // (2 * used[0] + 8 * y.numel() + 1)))


# auditing: The tool, piece by piece
class _Auditor:
    """Runs the settings one after the other and collects what they find."""

    def __init__(
        self,
        model: Callable,
        inputs: Any,
        axis: int | None,
        modules: Mapping[str, nn.Module],
        options: dict[str, Any],
        memory: int,
        progress: bool,
    ) -> None:
        self.model, self.inputs, self.axis, self.modules, self.options = (
            model,
            inputs,
            axis,
            modules,
            options,
        )
        self.memory = memory
        self.found: list[Leak] = []
        self.problems: list[tuple[str, str]] = []
        self.notes: list[tuple[str, str]] = []
        self.bar = tqdm(
            disable=not progress, delay=30, unit=" passes", desc="audit", leave=False
        )
        self.effects, self.tolerance, self.decided = np.zeros((0, 0)), 0.0, False


# auditing: The tool, piece by piece
def _run(auditor: _Auditor, mode: str, end: str | None, dtype: torch.dtype) -> None:
    """One setting; the model is as before when it ends."""
    double = dtype == torch.float64
    name = ", ".join(
        [mode, *([end] if end else []), str(dtype).removeprefix("torch.")]
    )
    modules, found = list(auditor.modules.values()), _Finds()
    with _as_it_was(modules), torch.no_grad():
        _to_dtype(modules, torch.float64 if double else None)
        [m.train(mode == "train") for m in _roots(auditor.modules)]
        inputs = _Inputs(
            _cast(auditor.inputs, dtype) if double else auditor.inputs, auditor.axis
        )
        trial = _Trial(
            auditor.model,
            inputs,
            auditor.modules,
            name,
            dict(auditor.options, bar=auditor.bar.update, batch=1),
        )
        trial.double = double
        trial.options |= _plan(auditor, mode, double)
        try:
            with _back_end(auditor.modules, end):
                _find_axes(trial)
                trial.options["batch"] = _batch_size(trial, auditor.memory)
                effects, tolerance = _explore(trial, found, auditor.problems)
                _conclude(auditor, trial, found)
        except Exception as error:
            _failed(auditor, name, mode, end, double, error)
            return
    auditor.decided = True
    lengths = ", ".join(map(str, trial.options["lengths"]))
    auditor.notes.append(
        (
            f"{name} (from {tolerance:.0e})",
            f"{', '.join(trial.tried)}; n = {lengths}",
        )
    )
    later = [np.triu(e, 1).max(initial=0.0) for e in (effects, auditor.effects)]
    if not auditor.effects.size or later[0] > 2 * later[1]:  # show where it leaks most
        auditor.effects, auditor.tolerance = effects, tolerance


def _plan(auditor: _Auditor, mode: str, double: bool) -> dict[str, Any]:
    """What is tried in this setting. Large models: all experiments at 16 rows at most, and at the whole length every cut once."""
    lengths, heavy = auditor.options["lengths"], auditor.options["heavy"]
    short = (
        sorted(
            {min(n, 16) for n in [*lengths, 15]} & set(range(1, max(lengths) + 1))
        )
        if heavy
        else lengths
    )
    if double or not auditor.decided:
        whole = [] if double or mode == "train" else lengths[-1:]
        return {"lengths": sorted({*short, *whole}), "kinds": 1 if heavy else 3}
    if heavy and mode == "eval":
        return {"lengths": lengths[-1:], "kinds": 1}
    return {
        "lengths": short[-2:],
        "kinds": 1,
    }  # once more, for the kernels of this precision


# auditing: The tool, piece by piece
def _failed(
    auditor: _Auditor,
    name: str,
    mode: str,
    end: str | None,
    double: bool,
    error: Exception,
) -> None:
    """What an exception in a setting means: for the example inputs in the model's own precision it is the caller's."""
    raised = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
    if double:
        auditor.notes.append((name, f"not possible ({raised})"))
    elif (
        mode == "eval"
        and end is None
        or not auditor.decided
        and len(auditor.options["lengths"]) == 1
    ):
        frame = (
            inspect.getinnerframes(error.__traceback__)[-1]
            if error.__traceback__
            else None
        )
        if frame is not None and frame.function == "expects":
            raise error
        raise ValueError(
            f"inputs: got {raised} from the model, want inputs that it takes"
        ) from error
    else:
        auditor.problems.append((name, f"raises {raised}"))


# auditing: The tool, piece by piece
def _conclude(auditor: _Auditor, trial: _Trial, found: _Finds) -> None:
    """From the witnesses of one setting to its leaks, each with a culprit where one can be named."""
    faults = dict(found.ways)
    for shadow, cast_by in (
        ("length", ("future",)),
        ("padding", ("future",)),
        ("cache", ("future", "length")),
    ):
        if shadow in faults and (
            by := next((f for f in cast_by if f in faults), None)
        ):
            faults[by] = faults[by] + [
                way for way in faults.pop(shadow) if way not in faults[by]
            ]
    for fault, ways in faults.items():
        witness, sizes = (
            found.strongest(fault),
            {n: w.size for n, w in sorted(found.witness[fault].items())},
        )
        module, type_, cause = None, "", ""
        if fault in ("future", "length", "batch", "padding"):
            module, type_, cause = _named(
                auditor,
                trial,
                fault,
                found.handiest(fault),
                "derivatives" in ways
                or "derivatives" not in trial.tried
                or "replaced rows" not in ways,
            )
        source = _pair(trial, witness) if fault == "future" else witness.source
        auditor.found.append(
            Leak(
                fault,
                trial.name,
                witness.row,
                source,
                witness.size,
                tuple(ways),
                module,
                type_,
                cause,
                sizes,
            )
        )


def _named(
    auditor: _Auditor, trial: _Trial, fault: str, witness: _Found, derivable: bool
) -> tuple[str | None, str, str]:
    calls, index = _attempt(lambda: _culprit(trial, fault, witness)) or ([], None)
    if index is None:
        return None, "", ""
    call = calls[index]
    n = witness.x.shape[1]
    local = (
        _attempt(lambda: _examine(trial, call, n))
        if n <= 64 and fault == "future"
        else None
    )
    name = (
        type(call.module).__name__
        if isinstance(call.module, nn.Module)
        else getattr(call.module, "__name__", "callable")
    )
    return call.path, name, _cause(call, local, fault, derivable)


# auditing: The tool, piece by piece
def _report(auditor: _Auditor) -> Report:
    """All settings together: the same fault in the same module stands once."""
    groups: dict[tuple, list[Leak]] = {}
    for leak in auditor.found:
        groups.setdefault((leak.fault, leak.module), []).append(leak)
    leaks = [_joined(group) for group in groups.values()]
    name = getattr(auditor.model, "__name__", type(auditor.model).__name__)
    problems = [
        f"{line} [{'; '.join(names)}]"
        for line, names in _grouped(auditor.problems).items()
    ]
    notes = [
        f"tried in {'; '.join(names)}: {line}"
        for line, names in _grouped(auditor.notes).items()
    ]
    undecided = not auditor.decided or any("NaN" in line for line in problems)
    return Report(
        name,
        tuple(leaks),
        tuple(problems),
        tuple(notes),
        auditor.effects,
        auditor.tolerance,
        undecided,
    )


# auditing: The tool, piece by piece
def _grouped(lines: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    """{line: the settings in which it holds}."""
    groups: dict[str, list[str]] = {}
    for name, line in lines:
        groups.setdefault(line, []).append(name)
    return {line: list(dict.fromkeys(names)) for line, names in groups.items()}


def _joined(group: Sequence[Leak]) -> Leak:
    """One leak for several settings: the first, with all their names and ways."""
    first, ways = group[0], [way for leak in group for way in leak.ways]
    return replace(
        first,
        setting="; ".join(leak.setting for leak in group),
        ways=tuple(dict.fromkeys(ways)),
    )


# auditing: The tool, piece by piece
def _check_options(
    model: Any,
    expects_: str,
    max_lookback: int | None,
    modes: Sequence[str],
    memory: int,
) -> None:
    expects(
        callable(model),
        "model",
        type(model).__name__,
        "a torch module or a callable",
        TypeError,
    )
    expects_one_of("expects", expects_, ("causal", "all"))
    expects(
        max_lookback is None or expects_ == "causal",
        "max_lookback",
        max_lookback,
        'None with expects="all"',
    )
    expects(
        max_lookback is None or max_lookback >= 0,
        "max_lookback",
        max_lookback,
        "at least 0",
    )
    expects(len(modes) > 0, "modes", "none", "some of 'eval', 'train'")
    for mode in modes:
        expects_one_of("modes", mode, ("eval", "train"))
    expects_positive(memory=memory)


def _check_back_ends(modules: Mapping[str, nn.Module], names: Sequence[str]) -> None:
    hugging = any(hasattr(m, "set_attn_implementation") for m in modules.values())
    for name in names:
        wants = f"one of {', '.join(map(repr, _BACK_ENDS))}; other names need a Hugging Face model"
        expects(name in _BACK_ENDS or hugging, "back_ends", repr(name), wants)


# auditing: The tool, piece by piece
def _check_inputs(
    example: _Inputs, modules: Mapping[str, nn.Module], lengths: Sequence[int] | None
) -> None:
    expects(
        example.x.shape[0] > 0, "inputs", "an empty batch", "at least one sequence"
    )
    expects(
        example.n > 1,
        "inputs",
        f"{example.n} rows",
        "at least 2 rows; with one there is no future",
    )
    devices = {t.device for m in modules.values() for t in m.parameters()}
    if len(devices) == 1 and (device := devices.pop()):
        expects(
            example.x.device == device,
            "inputs",
            f"device {example.x.device}",
            f"{device}, where the model is",
        )
    expects(
        bool(example.x.isfinite().all()),
        "inputs",
        "NaN or infinite numbers",
        "finite numbers",
    )
    for n in lengths or ():
        expects(
            isinstance(n, int) and 1 <= n <= example.n,
            "lengths",
            n,
            f"whole numbers from 1 to {example.n}, the rows of the inputs",
        )


# auditing: The tool, piece by piece
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
    memory: int = 2**28,
    work: float = 2e11,
    progress: bool = True,
) -> Report:
    """Decide by experiment whether T(X[:i]) = T(X)[:i] for every i: whether an output
    row hears later input rows, or how many there are. (T-audit-cuts)

    `model` is a torch module or a callable. `inputs` is a tensor, (batch, n) tokens or
    (batch, n, d) rows, with or without the batch axis, or a tuple or a mapping by
    keyword of the model's inputs, the sequence first (or by the name `input_ids` or
    `inputs_embeds`); masks (…, n, n) and (…, n) are cut with it. `input_axis` is the
    axis of its rows when it is another; `row_axis` that of the output when it cannot be
    told. `expects="all"` asks the opposite: every row should hear every row.
    `max_lookback=w`: row i should hear rows i − w, …, i, and none before. `lengths`
    (default: 1, 2, 3, half, all but one, all), `modes`, `back_ends` ("math", "flash",
    "efficient", "cudnn", or a Hugging Face implementation) are what is tried.
    `step(rows, state) → (output, state)` decodes row by row, with None as first state; a
    Hugging Face cache is found without it. `vocab_size` bounds the tokens drawn.
    `memory` in bytes bounds a batch. When weights × n² exceeds `work`, the whole
    length is tried in the model's own precision with every suffix replaced once, and
    all else with 16 rows. A progress bar shows after half a minute.

    The model is left as it was. ValueError or TypeError for inputs or an output that
    cannot be used; what fails at some lengths stands in the report.

    >>> report = audit(lambda x: x - x.mean(-2, keepdim=True), torch.randn(5, 3))
    >>> report.ok, report.leaks[0].fault
    (False, 'future')
    >>> audit(lambda x: x.cumsum(-2), torch.randn(5, 3)).ok
    True

    Chapter: auditing.
    """
    _check_options(model, expects, max_lookback, modes, memory)
    modules = _modules_in(model)
    example = _Inputs(inputs, input_axis)
    _check_back_ends(modules, back_ends)
    _check_inputs(example, modules, lengths)
    options: dict[str, Any] = {
        "expects": expects,
        "max_lookback": max_lookback,
        "row_axis": row_axis,
        "step": step,
    }
    n = example.n
    usual = {1, 2, min(3, n), n // 2, n - 1, n}  # odd and even ones among them
    options["lengths"] = sorted(set(lengths or usual))
    options["vocab_size"] = _vocabulary(example, modules, vocab_size)
    parameters = sum(
        {id(p): p.numel() for m in modules.values() for p in m.parameters()}.values()
    )
    options["heavy"], options["kinds"] = parameters * example.n**2 > work, 3
    own = [
        t.dtype
        for t in [*(p for m in modules.values() for p in m.parameters()), example.x]
        if t.is_floating_point()
    ]
    own = own[0] if own else torch.float32
    auditor = _Auditor(model, inputs, input_axis, modules, options, memory, progress)
    settings = [
        (mode, end, dtype)
        for dtype in (torch.float64, own)
        for end in (None, *back_ends)
        for mode in (modes if modules else ("eval",))
    ]
    for mode, end, dtype in dict.fromkeys(settings):
        _run(auditor, mode, end, dtype)
    return _report(auditor)


# auditing: The tool, piece by piece
def assert_autoregressive(
    model: Callable[..., Any], inputs: Any, **options: Any
) -> None:
    """AssertionError with the report unless `audit(model, inputs, **options)` is ok: for a test suite.

    Chapter: auditing.
    """
    report = audit(model, inputs, **options)
    if not report.ok:
        raise AssertionError(f"\n{report}")

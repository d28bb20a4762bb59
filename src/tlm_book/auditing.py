"""Auditing: does this model see the future? Generated from book/auditing.ipynb: edit the notebook, then `make export`."""

import contextlib
import inspect
import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from tqdm import tqdm

from tlm_book.checks import expects, expects_one_of, expects_positive

__all__ = [
    "Leak",
    "Report",
    "audit",
    "assert_autoregressive",
]


# --- The tool, piece by piece


@dataclass(frozen=True)
class Leak:
    """One fault: in `setting`, output row `row` does what it should not with input
    row `source`.

    `fault`: "future" (hears a later row), "length" (hears how many rows come after
    it), "batch" (hears another sequence), "padding" (hears what stands in the
    padding), "cache" (step by step differs from the whole pass), "blind" (does not
    hear a row that it should), "far" (hears a row beyond `max_lookback`). `size` is
    relative to the largest output; `ways` are the experiments that found it;
    `module`, `type`, `cause` are the culprit's path, its class and a guess; `sizes`
    has the size at each length.

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
    size = f", by {leak.size:.1e} of the largest output"
    says += size if leak.fault != "blind" else ""
    lines = [f"{leak.fault.upper()} [{leak.setting}]: {says}"]
    if leak.ways:
        lines.append(f"    seen by: {', '.join(leak.ways)}")
    if leak.module is not None:
        where = leak.module or "(the model itself)"
        lines.append(f"    first in: {where} ({leak.type})")
    if leak.cause:
        lines.append(f"    likely cause: {leak.cause}")
    if len(leak.sizes) > 1:
        shown = _spread(list(leak.sizes), 8)
        sizes = ", ".join(f"{n}: {leak.sizes[n]:.1e}" for n in shown)
        lines.append(f"    by length: {sizes}{_growth(leak.sizes)}")
    return lines


def _growth(sizes: Mapping[int, float]) -> str:
    """The power of n that fits best, when there are three lengths to fit."""
    fit = [(n, s) for n, s in sizes.items() if n > 1 and 0 < s < math.inf]
    if len(fit) < 3:
        return ""
    log_n, log_size = np.log(fit).T
    return f" (about n to the {np.polyfit(log_n, log_size, 1)[0]:.1f})"


@dataclass(frozen=True)
class Report:
    """What `audit` found: `ok`, `leaks`, `problems` (what could not be decided),
    `notes` (what was tried, and in which precision) and `effects`, in which entry
    (i, j) is the change of output row i when the input rows from j on are replaced.

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
        count = len(self.leaks)
        verdict = "ok" if self.ok else "not decided"
        verdict = f"{count} fault{'s' * (count != 1)} found" if count else verdict
        lines = [f"audit of {self.subject}: {verdict}"]
        lines += [f"  {line}" for leak in self.leaks for line in _leak_lines(leak)]
        lines += [f"  problem: {line}" for line in self.problems]
        return "\n".join(lines + [f"  {line}" for line in self.notes])

    def plot(self, ax: Any = None) -> Any:
        """Draws `effects` on these matplotlib axes or on new ones, leaks with a red
        frame; returns the axes.
        """
        return _draw_effects(self, ax)


def _draw_effects(report: Report, ax: Any) -> Any:
    import matplotlib.pyplot as plt
    from matplotlib.patches import Rectangle

    from tlm_book.viewer import style

    style.use_style()
    n, effects = len(report.effects), report.effects
    if ax is None:
        ax = plt.subplots(figsize=(4.6, 3.9), layout="constrained")[1]
    lowest = math.log10(max(report.tolerance, 1e-18))
    heard = effects > report.tolerance
    logs = np.log10(effects, where=heard, out=np.full(effects.shape, np.nan))
    shades = {"vmin": lowest, "vmax": max(0.0, lowest + 1)}
    image = ax.imshow(logs, cmap=style.SEQUENTIAL, **shades)
    width = min(1.4, 12 / max(n, 1))
    frame: dict[str, Any] = {"fill": False, "ec": style.RED, "lw": width}
    for i, j in np.argwhere(np.triu(heard, 1)):
        ax.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, **frame))
    corner = np.repeat(np.arange(n + 1), 2)[1:-1] - 0.5
    ax.plot(corner[1:], corner[:-1], color=style.GREY, lw=0.8)
    ax.set(xlabel="rows j, j + 1, … are replaced", ylabel="output row i")
    ax.set(xlim=(-0.5, n - 0.5), ylim=(n - 0.5, -0.5))
    ax.grid(False)
    ax.get_figure().colorbar(image, ax=ax, label="change (power of 10)")
    return ax


class _State:
    """All that a run could change in these modules and in the process, and how to
    put it back.
    """

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        own = [vars(m) for m in modules]
        inside = [value for attributes in own for value in attributes.values()]
        inside_too = [v for v in inside if isinstance(v, dict | list | set)]
        self.containers = [(v, v.copy()) for v in own + inside_too]
        held = [v for v in inside if isinstance(v, torch.Generator)]
        self.generators = [(g, g.get_state()) for g in held]
        self.tensors = {id(t): (t, t.data) for t in _tensors_in(inside)}
        leaves = [t for t, _ in self.tensors.values() if t.is_leaf]
        self.leaves = [(t, t.requires_grad, t.grad) for t in leaves]
        self.python, self.numpy = random.getstate(), np.random.get_state()
        cuda = torch.cuda.is_initialized()
        self.torch = torch.get_rng_state()
        self.cuda = torch.cuda.get_rng_state_all() if cuda else []
        self.dtype = torch.get_default_dtype()

    def put_back(self) -> None:
        for value, copy in self.containers:
            value.clear()
            value.extend(copy) if isinstance(value, list) else value.update(copy)
        for t, data in self.tensors.values():
            t.data = data
        for t, wants_grad, grad in self.leaves:
            t.requires_grad_(wants_grad)
            t.grad = grad
        for generator, state in self.generators:
            generator.set_state(state)
        random.setstate(self.python), np.random.set_state(self.numpy)
        torch.set_rng_state(self.torch)
        if self.cuda:
            torch.cuda.set_rng_state_all(self.cuda)
        torch.set_default_dtype(self.dtype)


@contextlib.contextmanager
def _on_copies(
    modules: Sequence[nn.Module], dtype: torch.dtype | None
) -> Iterator[None]:
    """Inside, weights and buffers are copies, floating-point ones in this type; None
    keeps the types.

    On leaving, also by an exception, attributes, hooks, modes, weights, buffers and
    generators are as before: a model that writes into its weights has spoiled a
    copy.
    """
    state = _State(modules)
    try:
        for t, data in state.tensors.values():
            to = dtype if dtype and data.is_floating_point() else data.dtype
            t.data = data.to(to, copy=True)
            if t.is_leaf:
                t.requires_grad_(False)
        if dtype:
            torch.set_default_dtype(dtype)
        yield
    finally:
        state.put_back()


def _parts(thing: Any) -> Mapping[str, Any]:
    """What may hold modules: children, plain lists and dictionaries, what a function
    closes over, a method's object.
    """
    if isinstance(thing, nn.Module):
        own = {k: v for k, v in vars(thing).items() if not k.startswith("_")}
        plain = {k: v for k, v in own.items() if isinstance(v, list | tuple | dict)}
        return thing._modules | plain | {k: own[k] for k in ("forward",) if k in own}
    if inspect.ismethod(thing):
        return {"": thing.__self__}
    if inspect.isfunction(thing):
        cells = zip(thing.__code__.co_freevars, thing.__closure__ or ())
        parts = {
            name: _attempt(getattr, cell, "cell_contents") for name, cell in cells
        }
        names = [k for k in thing.__code__.co_names if k in thing.__globals__]
        used = {k: thing.__globals__[k] for k in names}
        parts |= {k: v for k, v in used.items() if isinstance(v, nn.Module)}
        return parts | {
            f"default {k}": v for k, v in enumerate(thing.__defaults__ or ())
        }
    if isinstance(thing, list | tuple | dict):
        pairs = thing.items() if isinstance(thing, dict) else enumerate(thing)
        return {str(k): v for k, v in pairs} if len(thing) < 1000 else {}
    if not callable(thing) or inspect.isclass(thing):
        return {}
    bound = ("func", "args", "keywords")  # of functools.partial
    return getattr(thing, "__dict__", {}) | {
        k: getattr(thing, k) for k in bound if hasattr(thing, "keywords")
    }


def _modules_in(
    thing: Any, path: str = "", seen: set[int] | None = None
) -> dict[str, nn.Module]:
    """The torch modules inside a model or a callable, by path."""
    seen = set() if seen is None else seen
    if id(thing) in seen or path.count(".") > 24:
        return {}
    seen.add(id(thing))
    found = {path: thing} if isinstance(thing, nn.Module) else {}
    for name, part in _parts(thing).items():
        name = "" if name == "func" else name
        found |= _modules_in(part, f"{path}.{name}".strip("."), seen)
    return found


def _hold(seed: int, generators: Sequence[tuple[torch.Generator, Tensor]]) -> None:
    """Every source of randomness at a known place."""
    torch.default_generator.manual_seed(seed)
    random.seed(seed), np.random.seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)
    for generator, state in generators:
        generator.set_state(state) if seed == 0 else generator.manual_seed(seed)


def _tensor_of(output: Any, name: str = "what the model returns") -> Tensor:
    """The tensor of an output: itself, `logits` or `last_hidden_state`, or the first
    tensor of a tuple or mapping.
    """
    for key in ("logits", "last_hidden_state"):
        mapping = isinstance(output, Mapping)
        inside = output.get(key) if mapping else getattr(output, key, None)
        if isinstance(inside, Tensor):
            return inside
    if isinstance(output, Mapping):
        output = tuple(output.values())
    if isinstance(output, tuple | list):
        output = next((part for part in output if isinstance(part, Tensor)), output)
    wants = "a tensor, or a tuple, mapping or Hugging Face output that holds one"
    came = type(output).__name__
    expects(isinstance(output, Tensor), name, came, wants, TypeError)
    return output


def _tensors_in(thing: Any) -> list[Tensor]:
    """All tensors of nested tuples, lists and mappings, in order."""
    if isinstance(thing, Tensor):
        return [thing]
    if isinstance(thing, Mapping):
        thing = list(thing.values())
    if not isinstance(thing, list | tuple):
        return []
    return [t for part in thing for t in _tensors_in(part)]


def _attempt(call: Callable[..., Any], *args: Any) -> Any:
    """What the call returns, or None when it raises."""
    try:
        return call(*args)
    except Exception:
        return None


_SEQUENCES = ("decoder_input_ids", "input_ids", "inputs_embeds")


_WITH_ROWS = "attention_mask position_ids token_type_ids key_padding_mask src_key_padding_mask"


class _Inputs:
    """The example inputs, taken apart: `x`, the sequence, as (batch, row, …), and
    what goes with it.
    """

    def __init__(self, inputs: Any, axis: int | None) -> None:
        inputs = (inputs,) if isinstance(inputs, Tensor) else inputs
        fits = isinstance(inputs, tuple | list | Mapping)
        wants = "a tensor, a tuple of them or a mapping by keyword"
        expects(fits, "inputs", type(inputs).__name__, wants, TypeError)
        self.named = isinstance(inputs, Mapping)
        self.values = dict(inputs) if self.named else dict(enumerate(inputs))
        tensors = [k for k, v in self.values.items() if isinstance(v, Tensor)]
        expects(tensors, "inputs", "no tensor", "at least one, the sequence first")
        self.key = ([k for k in _SEQUENCES if k in tensors] or tensors)[0]
        x = self.values[self.key].detach()
        self.tokens = not (x.is_floating_point() or x.is_complex())
        least, got = 1 + (not self.tokens), f"a sequence of shape {tuple(x.shape)}"
        wants = "(batch, n) tokens or (batch, n, d) rows"
        expects(x.dim() >= least, "inputs", got, wants)
        self.axis = (-least if axis is None else axis) % x.dim()
        others = [a for a in range(x.dim()) if a != self.axis]
        self.batch_axis = others[0] if len(others) >= least else None
        x = self.canonical(x)
        self.n, self.first, self.real = x.shape[1], 0, None
        self.mask = "decoder_" * (self.key == _SEQUENCES[0]) + "attention_mask"
        mask = self.values.get(self.mask)
        if isinstance(mask, Tensor) and mask.shape == x.shape[:2] and len(x):
            self.first = int((mask != 0).sum(-1).argmax())  # with least padding
            self.real = mask[self.first] != 0
        self.x = x.roll(-self.first, 0)

    def canonical(self, x: Tensor) -> Tensor:
        """(batch, row, …), a batch of one where the model takes single sequences."""
        if self.batch_axis is None:
            return x.movedim(self.axis, 0).unsqueeze(0)
        return x.movedim((self.batch_axis, self.axis), (0, 1))

    def back(self, x: Tensor) -> Tensor:
        """The opposite: as the model wants it, in memory of its own."""
        if self.batch_axis is None:
            return x.squeeze(0).movedim(0, self.axis).clone()
        return x.movedim((0, 1), (self.batch_axis, self.axis)).clone()


def _beside(inputs: _Inputs, key: Any, value: Any, x: Tensor, start: int) -> Any:
    """What stands beside the rows start, start + 1, … of a sequence, which are x: a
    mask (…, n, n) or (…, n) is cut to these rows, and shows all rows before them;
    what has a batch axis gets the batch of x."""
    if value is inputs.values[inputs.key]:
        return inputs.back(x)  # the sequence itself, perhaps more than once
    if not isinstance(value, Tensor):
        return value
    n, stop = inputs.n, start + x.shape[1]
    square = value.dim() > 1 and value.shape[-2:] == (n, n)
    usual = (
        key in _WITH_ROWS.split()
        or value.dim() < 3
        and not value.is_floating_point()
    )
    of_encoder = inputs.key == "decoder_input_ids" and not str(key).startswith(
        "decoder_"
    )
    along = value.shape[-1:] == (n,) and usual and not of_encoder
    axis = -1 if inputs.batch_axis is None else inputs.batch_axis
    several = axis >= 0 and value.dim() > max(axis, 1) + square
    several = several and value.shape[axis] == len(inputs.x)
    if square:
        value = value[..., start:stop, :stop]
    elif along:
        value = value[..., 0 if "mask" in str(key) else start : stop]
    if several:
        value = value.narrow(axis, inputs.first, 1).repeat_interleave(len(x), axis)
    return value


@dataclass
class _Plan:
    """What is to be tried: the options of `audit`, and what follows from the model
    and its inputs.
    """

    expects: str
    max_lookback: int | None
    row_axis: int | None
    step: Callable[..., Any] | None
    lengths: list[int]
    vocab_size: int
    heavy: bool
    memory: int
    own: torch.dtype
    bar: Callable[[int], Any] = int
    kinds: int = 3
    brief: bool = False
    batch: int = 1
    batch_grad: int = 1


@dataclass
class _Trial:
    """One setting of the experiment: a model in one mode, one precision, one back end."""

    model: Callable[..., Any]
    inputs: _Inputs
    modules: Mapping[str, nn.Module]
    name: str
    plan: _Plan
    double: bool
    row_axis: int = -1  # found in the first output
    batch_axis: int | None = None
    random: bool = False
    remembers: bool = False
    decided: bool = True
    eps: float = 0.0
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        held = [v for m in self.modules.values() for v in vars(m).values()]
        held = [v for v in held if isinstance(v, torch.Generator)]
        self.generators = [(g, g.get_state()) for g in held]

    def first(self, n: int) -> Tensor:
        """The first sequence, cut to n rows."""
        return self.inputs.x[:1, :n]

    def raw(self, x: Tensor, seed: int = 0, start: int = 0, **extra: Any) -> Any:
        """What the model returns for these sequences, with the other inputs cut and
        repeated to match.
        """
        _hold(seed, self.generators)
        pairs = self.inputs.values.items()
        values = {k: _beside(self.inputs, k, v, x, start) for k, v in pairs}
        if self.inputs.named:
            return self.model(**{str(k): v for k, v in (values | extra).items()})
        return self.model(*values.values(), **extra)

    def hides(self, extra: Mapping[str, Any]) -> bool:
        """Are there rows of padding in the example, and no other mask?"""
        return self.inputs.real is not None and self.inputs.mask not in extra

    def rows(self, x: Tensor, seed: int = 0, **extra: Any) -> Tensor:
        """The output for these sequences, (batch, row, everything else). Rows that
        the given mask hides are 0.
        """
        if len(x) > 1 and None in (self.inputs.batch_axis, self.batch_axis):
            return torch.cat([self.rows(one[None], seed, **extra) for one in x])
        y = _as_rows(self, _tensor_of(self.raw(x, seed, **extra)))
        if (
            self.inputs.real is not None
            and self.hides(extra)
            and len(y[0]) == len(x[0])
        ):
            return y.masked_fill(~self.inputs.real[: len(x[0]), None], 0)
        return y.clone()  # some models write every output into the same memory


def _as_rows(trial: _Trial, y: Tensor) -> Tensor:
    """An output as (batch, row, everything else)."""
    y = torch.view_as_real(y) if y.is_complex() else y
    if trial.batch_axis is None:
        y = y.movedim(trial.row_axis, 0)[None]
    else:
        y = y.movedim((trial.batch_axis, trial.row_axis), (0, 1))
    return y.reshape(*y.shape[:2], -1)


def _find_axes(trial: _Trial) -> None:
    """The output axis that shrinks with the input rows, and the one that grows with
    the batch.
    """
    n, plan = max(trial.plan.lengths), trial.plan
    whole = _shape_at(trial, n)
    axis = plan.row_axis
    axis = _row_axis(trial, whole, n) if axis is None else axis
    fits, wants = (
        -len(whole) <= axis < len(whole),
        f"an axis of the output, of shape {whole}",
    )
    expects(fits, "row_axis", axis, wants)
    rows, wants = whole[axis], f"{n}, one for each input row"
    expects(
        plan.expects == "all" or rows == n, "row_axis", f"{rows} output rows", wants
    )
    trial.row_axis = axis % len(whole)
    if trial.inputs.batch_axis is not None:
        more = _shape_at(trial, n, copies=2)
        grown = [a for a, (k, m) in enumerate(zip(whole, more)) if m == 2 * k]
        one = len(grown) == 1 and grown[0] != trial.row_axis
        trial.batch_axis = grown[0] if one else None


def _shape_at(trial: _Trial, n: int, copies: int = 1) -> tuple[int, ...]:
    x = trial.first(n).repeat_interleave(copies, 0)
    return tuple(_tensor_of(trial.raw(x)).shape)


def _row_axis(trial: _Trial, whole: tuple[int, ...], n: int) -> int:
    """Some models refuse some lengths: several are tried."""
    m, fewer, memory = n, whole, trial.plan.expects == "all"
    for m in dict.fromkeys((n - 1, n // 2, n - 2, 1)):
        if m and (fewer := _attempt(_shape_at, trial, m)):
            break
    m, fewer = (m, fewer) if fewer else (n, whole)  # all others are refused
    pairs = zip(whole, fewer) if len(whole) == len(fewer) else ()
    fits = [axis for axis, pair in enumerate(pairs) if pair == (n, m)]
    if not fits and memory and len(whole) > trial.inputs.axis:
        return trial.inputs.axis  # attention to a memory: it has rows of its own
    got = f"an output of shape {whole} for {n} rows and {fewer} for {m}"
    wants = "one axis with a row for each input row; name it with row_axis="
    expects(len(fits) == 1, "row_axis", got, wants)
    return fits[0]


def _apart(a: Tensor, b: Tensor) -> Tensor:
    """(batch, row): the largest change in each row; equal infinities and equal NaN
    do not count, a new NaN counts without bound.
    """
    a, b = a.detach(), b.detach()
    a, b = (
        t if t.is_floating_point() and t.element_size() > 2 else t.double()
        for t in (a, b)
    )
    gap = (a - b).abs()
    if not a.shape[-1]:
        return gap.sum(-1)
    most = gap.amax(-1)
    if not most.isfinite().all():
        same = (a == b) | (a.isnan() & b.isnan())
        most = gap.masked_fill(same, 0.0).nan_to_num(math.inf, math.inf).amax(-1)
    return most.double()


def _scale(y: Tensor) -> float:
    """The size of the largest finite number of an output."""
    y = y.detach()
    most = y.abs().max() if y.numel() and y.dtype != torch.bool else y.sum()
    finite = y[y.isfinite()] if not most.isfinite() else most[None]
    return float(finite.abs().max()) if len(finite) else 0.0


class _Precision(TorchDispatchMode):
    """Notes the coarsest floating-point type into which finer numbers are rounded."""

    def __init__(self) -> None:
        super().__init__()
        self.eps = 0.0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        output = func(*args, **(kwargs or {}))
        given, made = (
            [torch.finfo(t.dtype).eps for t in tensors if t.is_floating_point()]
            for tensors in (_tensors_in([args, kwargs]), _tensors_in(output))
        )
        if given and made and max(made) > min(given):
            self.eps = max(self.eps, *made)
        return output


def _measure(trial: _Trial, n: int) -> list[str]:
    """Sets what counts as noise in this setting; returns what stands in the way of a
    verdict.
    """
    x = trial.first(n)
    with _Precision() as seen:
        y = trial.rows(x)
    again, _ = trial.rows(x), trial.rows(_fresh(trial, x, 0, torch.Generator()))
    later, drawn = trial.rows(x), trial.rows(x, seed=1)
    size = lambda other: float(_apart(other, y).max()) / (_scale(y) or 1.0)
    twice = size(again)
    trial.remembers = not twice and size(later) > 0
    trial.random = not twice and not trial.remembers and size(drawn) > 0
    own = torch.finfo(y.dtype if y.is_floating_point() else torch.float64).eps
    trial.eps = max(own, seen.eps)
    trial.tolerance = max(16 * twice, _noise(trial, x, y))
    trial.decided = not y.isnan().any() and twice < 1e-2 and not trial.remembers
    problems = []
    if y.isnan().any():
        spoiled = trial.double and trial.plan.own != torch.float64
        expects(not spoiled, "the output", "NaN", "numbers")
        rows = y.isnan().any(-1)[0].nonzero().flatten().tolist()
        shown = ", ".join(map(str, rows[:6])) + " …" * (len(rows) > 6)
        problems.append(f"NaN in output rows {shown}: nothing can be said of them")
    if trial.remembers:
        differ = f"after another sequence, the same input gives an output that differs by {size(later):.1e}"
        problems.append(f"{differ}: the model remembers earlier calls")
    if twice > 0:
        differ = f"the same input twice gives outputs that differ by {twice:.1e}"
        problems.append(f"{differ}: a smaller leak is not seen")
    return problems


def _noise(trial: _Trial, x: Tensor, y: Tensor) -> float:
    """What is surely noise, as a part of the largest output. (T-audit-noise)"""
    scale = _scale(y) or 1.0
    copies = y if trial.random else trial.rows(x.repeat_interleave(3, 0))
    place, padded = float(_apart(copies, y).max()), _repadded(trial, x)
    rounding = max(16 * _shaken(trial, x, y), 4 * place, 4 * padded) / scale
    return max(min(rounding, 2**16 * trial.eps), 64 * trial.eps)


@contextlib.contextmanager
def _moved(trial: _Trial, x: Tensor) -> Iterator[Tensor]:
    """Inside, each weight and each number of the input is moved by one unit in its
    last place, up or down.
    """
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


def _shaken(trial: _Trial, x: Tensor, y: Tensor) -> float:
    """The change that the smallest moves make, as one rounding each would."""
    with _moved(trial, x) as other:
        return float(_apart(trial.rows(other), y).max())


def _takes_mask(trial: _Trial, n: int) -> bool:
    """Can padding be tried at n rows?"""
    name = trial.inputs.mask
    takes = _takes(trial.model, name) or name in trial.inputs.values
    fits = trial.batch_axis is not None and n >= 3
    return takes and fits and not trial.plan.brief


def _right_padded(trial: _Trial, x: Tensor) -> tuple[Tensor, Tensor, int]:
    """The rows that are left, alone and with masked rows behind them, and how many
    they are.
    """
    n = x.shape[1]
    real = n - max(1, n // 3)
    mask = (torch.arange(n, device=x.device) < real).long().expand(len(x), n)
    whole: dict[str, Any] = {trial.inputs.mask: mask}
    alone: dict[str, Any] = {trial.inputs.mask: mask[:, :real]}
    return trial.rows(x[:, :real], **alone), trial.rows(x, **whole)[:, :real], real


def _repadded(trial: _Trial, x: Tensor) -> float:
    """The change when rows are added behind and masked."""
    if trial.random or not _takes_mask(trial, x.shape[1]):
        return 0.0
    # An error is reported where padding is tried.
    pair = _attempt(lambda: _right_padded(trial, x))
    return float(_apart(*pair[:2]).max()) if pair else 0.0


def _fresh(trial: _Trial, x: Tensor, kind: int, draw: torch.Generator) -> Tensor:
    """Rows to put in the place of others: of the same kind, but different."""
    if trial.inputs.tokens:
        vocab = trial.plan.vocab_size
        new = torch.randint(vocab, x.shape, generator=draw).to(x)
        new = x[:, :1].expand_as(x) if kind % 2 else new
        return torch.where(new == x, (new + 1) % vocab, new)
    if kind % 2:
        return -3 * x.flip(1) + x[:, :1]  # larger, and in another order
    like = torch.randn(x.shape, generator=draw, dtype=torch.float32).to(x)
    return x.mean() + like * (x.std() if x.numel() > 1 and x.std() > 0 else 1.0)


def _spliced(x: Tensor, new: Tensor, start: int, stop: int | None = None) -> Tensor:
    """x with the rows from `start` to `stop` replaced."""
    stop = x.shape[1] if stop is None else stop
    return torch.cat([x[:, :start], new[:, start:stop], x[:, stop:]], 1)


def _spread(places: Sequence[int], most: int) -> list[int]:
    """At most so many of them, evenly, the first and the last among them."""
    if len(places) <= most:
        return list(places)
    return [places[round(k)] for k in np.linspace(0, len(places) - 1, most)]


def _changes(
    trial: _Trial, x: Tensor, others: Iterable[Tensor], **extra: Any
) -> Iterator[Float[np.ndarray, " n"]]:
    """The change of every row when x is replaced by each of the others, as a part of
    the largest output.
    """
    base, waiting, size = trial.rows(x, **extra), iter(others), 0
    scale = _scale(base) or 1.0
    while some := list(itertools.islice(waiting, trial.plan.batch)):
        if trial.random and len(some) != size:  # the same draws for the same places
            size = len(some)
            base = trial.rows(x.repeat_interleave(size, 0), **extra)
        gaps = _apart(trial.rows(torch.cat(some), **extra), base) / scale
        trial.plan.bar(len(some))
        yield from gaps.cpu().numpy()


@dataclass
class _Found:
    """A witness of a fault: the sequence x, the other one, and the row that changed,
    or the column that it hears.

    Without `keep`, the rows before `source` must stay.
    """

    size: float
    row: int
    source: int
    x: Tensor
    other: Tensor
    keep: Sequence[int] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)


class _Finds:
    """What one setting finds: of each fault the strongest witness at each length and
    the ways in which it was seen; what was tried, what went wrong, and the effects
    of replaced rows at the last length."""

    def __init__(self, n: int) -> None:
        self.witness: dict[str, dict[int, _Found]] = {}
        self.ways: dict[str, list[str]] = {}
        self.tried: dict[str, list[int]] = {}
        self.problems: list[str] = []
        self.effects = np.zeros((n, n))

    def add(self, fault: str, way: str, n: int, new: _Found) -> None:
        at = self.witness.setdefault(fault, {})
        if n not in at or new.size > at[n].size or at[n].other is at[n].x:
            at[n] = new
        if way not in self.ways.setdefault(fault, []):
            self.ways[fault].append(way)

    def strongest(self, fault: str) -> _Found:
        return max(self.witness[fault].values(), key=lambda w: w.size)

    def handiest(self, fault: str) -> _Found:
        """A short witness, when it is not much weaker than the strongest: for the
        search of the culprit.
        """
        at, most = self.witness[fault], self.strongest(fault).size
        fit = [n for n, w in at.items() if w.size >= 1e-2 * most]
        return at[min(fit, key=lambda n: (n < 6, n if n >= 6 else -n))]


def _replaced(trial: _Trial, n: int, found: _Finds) -> None:
    """Replace the rows after each cut: rows up to it must stay."""
    x, draw = trial.first(n), torch.Generator().manual_seed(n)
    fresh = [_fresh(trial, x, kind, draw) for kind in range(trial.plan.kinds)]
    jobs = [(new, cut) for new in fresh for cut in range(1, n)]
    found.effects = np.zeros((n, n))
    others = (_spliced(x, *job) for job in jobs)
    for (new, cut), gap in zip(jobs, _changes(trial, x, others)):
        found.effects[:, cut] = np.maximum(found.effects[:, cut], gap)
        i = int(gap[:cut].argmax())
        if gap[i] > trial.tolerance:
            witness = _Found(gap[i], i, cut, x, _spliced(x, new, cut))
            found.add("future", "replaced rows", n, witness)


def _removed(trial: _Trial, n: int, found: _Finds) -> None:
    """Remove the rows from m on: the rows that are left must stay."""
    x = trial.first(n)
    base = trial.rows(x)
    scale = _scale(base) or 1.0
    for m in range(1, n):
        try:
            y = trial.rows(x[:, :m])
        except Exception as error:
            found.problems.append(f"at n = {m} it raises {_said(error)}")
            continue
        if y.shape[1:] != (m, base.shape[2]):
            found.problems.append(
                "at other lengths its rows have another width: removed rows are not compared"
            )
            return
        gap = (_apart(y, base[:, :m])[0] / scale).cpu().numpy()
        trial.plan.bar(1)
        i = int(gap.argmax())
        if gap[i] > trial.tolerance:
            found.add("length", "removed rows", m, _Found(gap[i], i, m, x, x[:, :m]))


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"


@contextlib.contextmanager
def _leaves(trial: _Trial, x: Tensor) -> Iterator[tuple[Tensor, list[Tensor]]]:
    """The sequences, and the tensors to take derivatives by: the sequences
    themselves; for tokens, what each call of an embedding makes of them, listed here
    when it is called."""
    if not trial.inputs.tokens:
        leaf = x.clone().requires_grad_(True)
        yield leaf, [leaf]
        return
    leaves, given = [], trial.inputs.back(x)

    def hook(
        module: nn.Module, args: Any, kwargs: Any, output: Any
    ) -> Tensor | None:
        tokens = next(iter(_tensors_in([*args, *kwargs.values()])), None)
        if tokens is None or not torch.equal(tokens.flatten(), given.flatten()):
            return None
        if not isinstance(output, Tensor) or not output.is_floating_point():
            return None
        if output.shape[:-1] != tokens.shape:
            return None
        leaves.append(output.detach().requires_grad_(True))
        return leaves[-1].clone()

    inner = [
        m for m in trial.modules.values() if m is not trial.model and not m._modules
    ]
    hooks = [m.register_forward_hook(hook, with_kwargs=True) for m in inner]
    try:
        yield x, leaves
    finally:
        for handle in hooks:
            handle.remove()


def _gradients(
    trial: _Trial, x: Tensor, rows: Sequence[int], forms: Tensor
) -> Tensor | None:
    """(row, j, …): the derivative by input row j of a linear form of each of these
    output rows, one backward pass for a batch of copies of the sequence; None when
    there is no derivative."""
    found = []
    size = 1 if trial.batch_axis is None else trial.plan.batch_grad
    for start in range(0, len(rows), size):
        some = list(rows[start : start + size])
        copies = x.repeat_interleave(len(some), 0)
        with torch.enable_grad(), _leaves(trial, copies) as (given, leaves):
            y = trial.rows(given)
            if not (y.requires_grad and y.is_floating_point() and leaves):
                return None
            picked = y[range(len(some)), some] * forms[start : start + size].to(y)
            form = picked.nan_to_num(0.0, 0.0, 0.0).sum()
            grads = torch.autograd.grad(
                form, leaves, allow_unused=True, materialize_grads=True
            )
        trial.plan.bar(2 * len(some))
        by_tokens = (
            trial.inputs.tokens
            and grads[0].shape[:-1] == trial.inputs.back(copies).shape
        )
        rows_of = [trial.inputs.canonical(g) if by_tokens else g for g in grads]
        found.append(
            torch.cat([g.reshape(len(some), x.shape[1], -1) for g in rows_of], -1)
        )
    return torch.cat(found)


def _pattern(
    trial: _Trial, n: int, rows: Sequence[int]
) -> tuple[Tensor, Tensor] | None:
    """|∂yᵢ/∂xⱼ| for these rows i, from one random linear form of each yᵢ, as a part
    of the largest; and which of the later j are surely not 0. None when there are no
    derivatives."""
    x, draw = trial.first(n), torch.Generator().manual_seed(n)
    y = trial.rows(x)
    like = y if y.is_floating_point() else torch.ones((), dtype=torch.float64)
    normal = lambda: torch.randn(len(rows), y.shape[2], generator=draw).to(like)
    forms = normal()
    grads = _gradients(trial, x, rows, forms)
    if grads is None or not grads.isfinite().all():
        return None
    size = grads.abs().amax(-1)
    top = float(size.max()) or 1.0
    later = torch.arange(n)[None] > torch.tensor(list(rows))[:, None]
    later = later.to(size.device) & (size > 0)
    sure = later & (size > 2**12 * trial.eps * top)
    if not sure.any() and later.any():
        sure = _true_derivatives(
            trial, x, rows, later, grads, [forms, *(normal() for _ in range(3))]
        )
    return size / top, sure


def _true_derivatives(
    trial: _Trial,
    x: Tensor,
    rows: Sequence[int],
    doubtful: Tensor,
    grads: Tensor,
    forms: Sequence[Tensor],
) -> Tensor:
    """Which of these numbers, all below rounding, are not rounding themselves: those
    that are linear in the form. Rounding is not."""
    gradients: Callable[[Tensor], Any] = partial(_gradients, trial, x, rows)
    most = lambda g: g.abs().amax(-1)
    for scale, other in zip((0.3712, 1.9034, -0.7283), forms[1:]):
        g2, g3 = gradients(other), gradients(forms[0] + scale * other)
        bound = max(1e-6, 64 * trial.eps) * torch.maximum(most(grads), most(g2))
        doubtful = doubtful & (most(g3 - grads - scale * g2) < bound)
    return doubtful


def _derivatives(trial: _Trial, n: int, found: _Finds) -> str | None:
    """Rows must have derivative 0 by later rows."""
    pattern = _pattern(trial, n, range(n))
    if pattern is None:
        return "no derivatives (there are none, or they are not finite)"
    size, sure = pattern
    if sure.any():
        row, j = divmod(int((size * sure).argmax()), n)
        x = trial.first(n)
        known = found.witness.get("future", {}).get(n)
        witness = known or _Found(float(size[row, j]), row, j, x, x)
        found.add("future", "derivatives", n, witness)
    return None


def _single(
    trial: _Trial, n: int, columns: Sequence[int]
) -> Float[np.ndarray, "n m"]:
    """The change of every row when one input row j is replaced, for these j; noise
    is 0.
    """
    x, draw = trial.first(n), torch.Generator().manual_seed(n + 1)
    fresh = [_fresh(trial, x, kind, draw) for kind in range(3)]
    others = (_spliced(x, new, j, j + 1) for new in fresh for j in columns)
    gaps = np.stack(list(_changes(trial, x, others)))
    most = gaps.reshape(3, len(columns), -1).max(0).T
    return np.where(most > trial.tolerance, most, 0)


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
    )  # row axes, inputs first

    def tensors(self) -> list[Tensor]:
        return _tensors_in([self.args, self.kwargs, self.output])

    def inputs(self) -> int:
        return len(_tensors_in([self.args, self.kwargs]))


def _mapped(thing: Any, change: Callable[[Tensor], Any]) -> Any:
    """Nested tuples, lists and mappings with each tensor changed."""
    if isinstance(thing, Tensor):
        return change(thing)
    if isinstance(thing, tuple | list):
        return [_mapped(part, change) for part in thing]
    if isinstance(thing, Mapping):
        return {k: _mapped(v, change) for k, v in thing.items()}
    return thing


def _trace(trial: _Trial, x: Tensor, **extra: Any) -> list[_Call]:
    """Every call of a module, in the order in which they return; the whole comes last."""
    calls, waiting, hooks = [], [], []

    def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
        waiting.append((_mapped(args, Tensor.clone), _mapped(kwargs, Tensor.clone)))

    def leave(path: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            given = waiting.pop()
            calls.append(_Call(path, module, *given, _mapped(output, Tensor.clone)))

        return hook

    try:
        for path, module in trial.modules.items():
            before, after = (
                module.register_forward_pre_hook,
                module.register_forward_hook,
            )
            hooks.append(before(enter, with_kwargs=True, prepend=True))
            hooks.append(after(leave(path), with_kwargs=True))
        y = trial.rows(x, **extra)
    finally:
        for handle in hooks:
            handle.remove()
    if calls and calls[-1].module is trial.model:
        return calls
    return [*calls, _Call("", trial.model, [x], {}, [y], [(1,), (1,)])]


def _mark_rows(
    calls: Sequence[_Call], fewer: Sequence[_Call], n: int, m: int
) -> None:
    """Which axes have a row for each row of the sequence: those of size n that are m
    in the trace at m rows.
    """
    shapes = lambda some: [(call.path, len(call.tensors())) for call in some]
    aligned = shapes(calls) == shapes(fewer)
    for k, call in enumerate(calls):
        others = fewer[k].tensors() if aligned else call.tensors()
        call.axes = []
        for t, o in zip(call.tensors(), others):
            axes = [axis for axis, size in enumerate(t.shape) if size == n]
            if aligned:
                axes = [a for a in axes if o.dim() == t.dim() and o.shape[a] == m]
            call.axes.append(tuple(axes))


def _differ(
    a: Tensor, b: Tensor, axes: tuple[int, ...], here: Tensor, there: Tensor
) -> bool:
    """Do the kept rows of two tensors differ by more than rounding?"""
    for axis in axes:
        a, b = a.index_select(axis, here), b.index_select(axis, there)
    if a.shape != b.shape or a.dtype != b.dtype:
        return True
    if a.numel() == 0:
        return False
    gap = float(_apart(a.reshape(1, 1, -1), b.reshape(1, 1, -1)).max())
    eps = torch.finfo(a.dtype).eps if a.is_floating_point() else 0.0
    return gap > 2**6 * eps * _scale(a)


def _compare(
    calls: Sequence[_Call], others: Sequence[_Call], here: Tensor, there: Tensor
) -> Callable[[int], list[bool]]:
    """Which tensors of a call, inputs first, differ between two traces in the kept
    rows: here and there.
    """
    turn: dict[str, list[_Call]] = {}
    for other in others:
        turn.setdefault(other.path, []).append(other)
    partner = [turn[c.path].pop(0) if turn.get(c.path) else c for c in calls]

    def differs(index: int) -> list[bool]:
        call, other = calls[index], partner[index]
        pairs = zip(call.tensors(), other.tensors(), call.axes)
        return [_differ(a, b, axes, here, there) for a, b, axes in pairs]

    return differs


def _blame(
    calls: Sequence[_Call], differs: Callable[[int], list[bool]]
) -> tuple[int | None, list[int]]:
    """The first call with rows in its output that differ while none of its inputs
    does; and the calls inside it whose output without rows, as of a mean of all
    rows, differs while their inputs do not."""
    pooled: list[int] = []
    for index, call in enumerate(calls):
        flags, k = differs(index), call.inputs()
        if any(flags[:k]) or not any(flags[k:]):
            continue
        if any(flag and axes for flag, axes in zip(flags[k:], call.axes[k:])):
            return index, [i for i in pooled if calls[i].path.startswith(call.path)]
        pooled.append(index)
    return None, pooled


def _hears(
    trial: _Trial, found: _Found
) -> tuple[list[_Call], Callable[[int], list[bool]]]:
    """The trace; and which tensors of a call have, in their rows up to the
    witness's, a derivative by its column.
    """
    column, draw = found.source, torch.Generator().manual_seed(0)
    keep = torch.arange(found.row + 1, device=found.x.device)
    with torch.enable_grad(), _leaves(trial, found.x) as (given, leaves):
        calls = _trace(trial, given)

    @torch.enable_grad()
    def hears(t: Tensor, axes: tuple[int, ...]) -> bool:
        if not (t.requires_grad and t.is_floating_point()):
            return False
        for axis in axes:
            t = t.index_select(axis, keep)
        form = (t * torch.randn(t.shape, generator=draw).to(t)).nan_to_num(
            0.0, 0.0, 0.0
        )
        kept = partial(torch.autograd.grad, retain_graph=True, allow_unused=True)
        grads = kept(form.sum(), leaves, materialize_grads=True)
        return any(
            bool(g.reshape(*found.x.shape[:2], -1)[:, column].any()) for g in grads
        )

    return calls, lambda index: [
        hears(*pair) for pair in zip(calls[index].tensors(), calls[index].axes)
    ]


def _explains(
    trial: _Trial, calls: Sequence[_Call], index: int, found: _Found, keep: Tensor
) -> bool:
    """Does the fault vanish when this one call is made to return what it returned
    for the other sequence?
    """
    call, turns = calls[index], itertools.count()
    which = sum(earlier.path == call.path for earlier in calls[:index])

    def patch(module: nn.Module, args: Any, output: Any) -> Any:
        single = isinstance(output, Tensor) and isinstance(call.output, Tensor)
        return call.output if next(turns) == which and single else None

    pair = found.x, found.other
    base, before = (trial.rows(x, **found.extra)[:, keep] for x in pair)
    handle = call.module.register_forward_hook(patch)
    try:
        after = trial.rows(found.other, **found.extra)[:, keep]
    finally:
        handle.remove()
    return float(_apart(after, base).max()) < 1e-3 * float(
        _apart(before, base).max()
    )


def _culprit(
    trial: _Trial, fault: str, found: _Found
) -> tuple[list[_Call], int | None]:
    """The trace at the witness, and the call in it that is the first to be at fault."""
    n, m = found.x.shape[1], found.x.shape[1] - 1
    cut = {key: mask[:, :m] for key, mask in found.extra.items()}
    fewer = _attempt(lambda: _trace(trial, found.x[:, :m], **cut)) or []
    if found.other is found.x:
        calls, differs = _hears(trial, found)
        _mark_rows(calls, fewer, n, m)
        return calls, _blame(calls, differs)[0]
    calls, others = (_trace(trial, x, **found.extra) for x in (found.x, found.other))
    stay = list(found.keep) or range(min(found.source, found.other.shape[1]))
    keep = torch.tensor(stay, device=found.x.device)
    _mark_rows(calls, fewer, n, m)
    there = keep
    if fault == "batch":  # one sequence, alone or in a batch of two, must not change
        size, another = (2, found.x[:1]) if len(found.x) > 1 else (1, found.other)
        _mark_rows(calls, _trace(trial, another), size, 3 - size)
        keep = keep if size == 2 else torch.zeros_like(keep)
    index, pooled = _blame(calls, _compare(calls, others, keep, there))
    if fault == "future" and found.x.shape == found.other.shape:
        pooled = [i for i in pooled if _explains(trial, calls, i, found, keep)]
        index = pooled[0] if pooled else index
    return calls, index


@dataclass
class _Local:
    """How the culprit's output rows hear its input rows, by itself: experiments on
    one module.
    """

    hears: Float[np.ndarray, "n n"]
    alike: bool  # the same change in every earlier row
    rescales: (
        bool  # the earlier rows are only scaled and shifted, channel by channel
    )
    symmetric: bool  # the order of later rows does not matter
    permutes: bool  # the output rows are the input rows in another order


def _replay(
    trial: _Trial, call: _Call, change: Callable[[Tensor, int], Tensor]
) -> Tensor:
    """The module again, on changed inputs; the first output with rows, rows first."""
    axes = iter(call.axes)

    def changed(t: Tensor) -> Tensor:
        along = next(axes)
        return change(t, along[0]) if len(along) == 1 else t.clone()

    args, kwargs = _mapped(call.args, changed), _mapped(call.kwargs, changed)
    _hold(0, trial.generators)
    if not isinstance(call.module, nn.Module):
        return trial.rows(args[0])[0]
    outputs = zip(
        _tensors_in(call.module(*args, **kwargs)), call.axes[call.inputs() :]
    )
    y, axis = next((y, along[0]) for y, along in outputs if along)
    return y.movedim(axis, 0).reshape(y.shape[axis], -1)


def _examine(trial: _Trial, call: _Call, n: int) -> _Local | None:
    """Replace, permute and compare rows at the culprit's own input."""
    draw, vocab = torch.Generator().manual_seed(5), trial.plan.vocab_size

    def put(t: Tensor, axis: int, rows: Sequence[int]) -> Tensor:
        where = torch.tensor(rows, device=t.device)
        old = t.index_select(axis, where)
        if t.is_floating_point():
            new = torch.randn(old.shape, generator=draw).to(t)
            new = new * (t.std() + 1e-3) + t.mean()
        else:
            new = old.logical_not() if t.dtype == torch.bool else (old + 1) % vocab
        return t.clone().index_copy(axis, where, new)

    def run(change: Callable[[Tensor, int], Tensor]) -> Tensor:
        return _replay(trial, call, change).double()

    y = run(lambda t, axis: t.clone())
    if len(y) != n:
        return None
    floor = 16 * min(trial.eps, 2.0**-23) * (_scale(y) or 1.0)
    moved = [run(partial(put, rows=[j])) for j in range(n)]
    hears = torch.stack([(z - y).abs().amax(-1) for z in moved], 1).cpu().numpy()
    cut = n // 2
    other = run(lambda t, axis: put(t, axis, range(cut, n)))[:cut]
    order = torch.tensor([*range(cut), *range(n - 1, cut - 1, -1)], device=y.device)
    turned = run(lambda t, axis: t.index_select(axis, order))[:cut]
    rows = [
        t.movedim(a[0], 0) for t, a in zip(call.tensors(), call.axes) if len(a) == 1
    ]
    given = rows[0].reshape(n, -1).double() if rows else y
    return _Local(
        np.where(hears > floor, hears, 0.0),
        *_compared(y, other, turned, given, floor),
    )


def _compared(
    y: Tensor, other: Tensor, turned: Tensor, given: Tensor, floor: float
) -> tuple[bool, bool, bool, bool]:
    """alike, rescales, symmetric, permutes: from the outputs y, and those of its
    first rows for other later rows and for the same in another order."""
    cut = len(other)
    change = other - y[:cut]
    close = max(1e-6 * _scale(change), floor)
    near = lambda a, b: a.shape == b.shape and float((a - b).abs().max()) <= close
    z, w = y[:cut] - y[:cut].mean(0), other - other.mean(0)
    factor = (z * w).sum(0) / (z * z).sum(0).clamp_min(1e-30)
    scaled = cut > 2 and bool((factor - 1).abs().max() > 1e-9)
    return (
        _scale(change) > floor and near(change, change[:1].expand_as(change)),
        scaled and near(z * factor, w),
        near(turned, y[:cut]),
        near(given.sort(0).values, y.sort(0).values),
    )


_BY_CLASS = {
    "BatchNorm": "batch statistics: mean and variance are taken over all rows and sequences",
    "InstanceNorm": "normalization over the sequence axis",
    "GroupNorm": "normalization over the sequence axis",
    "LayerNorm": "normalization over the sequence axis",
    "Pool": "pooling over the sequence",
    "Softmax": "softmax over the sequence axis",
    "Softmin": "softmax over the sequence axis",
}


def _by_class(module: Any) -> str:
    """What one of torch's own classes does, when that explains the leak."""
    if isinstance(module, nn.RNNBase) and module.bidirectional:
        return "bidirectional recurrence: half of it runs from the last row to the first"
    if not type(module).__module__.startswith("torch.nn"):
        return ""
    name = type(module).__name__
    return next((cause for part, cause in _BY_CLASS.items() if part in name), "")


def _is_attention(module: Any) -> bool:
    """By its name, those of its classes, or what their methods use: does it weigh
    rows by a softmax?
    """
    classes = [c for c in type(module).__mro__ if issubclass(c, nn.Module)]
    own = [c for c in classes if not c.__module__.startswith("torch.")]
    methods = [f for c in own for f in vars(c).values() if inspect.isfunction(f)]
    used = [name for f in methods for name in f.__code__.co_names]
    words = " ".join([*(c.__name__ for c in classes), *used]).lower()
    signs = "attn attention softmax transformerencoder transformerdecoder".split()
    return any(word in words for word in signs)


def _cause(call: _Call, local: _Local | None, fault: str, derivable: bool) -> str:
    """A guess at the cause, from the culprit's class and from how its rows hear each
    other.
    """
    if fault == "length":
        return "the number of rows enters the computation"
    if fault == "padding":
        return "the padding is not masked, or not everywhere"
    if cause := _by_class(call.module):
        return cause
    if fault == "batch":
        return "the sequences of a batch are mixed: perhaps its axis is taken for that of the rows"
    if local is None or not (later := np.argwhere(np.triu(local.hears, 1))).size:
        return "not known: by itself, on other rows, the module shows no leak"
    attends = _is_attention(call.module)
    if attends and local.hears[*later.T].max() < 1e-3 * local.hears.max():
        return "mask too weak: a finite number in the place of −∞"
    near = _cause_near(call, local, later, attends)
    return (
        near
        or _cause_by_shape(local, later)
        or _cause_far(local, later, attends, derivable)
    )


def _cause_near(
    call: _Call, local: _Local, later: Int[np.ndarray, "m 2"], attends: bool
) -> str:
    """When each row hears only a few rows ahead."""
    n, reach = len(local.hears), int((later[:, 1] - later[:, 0]).max())
    rows = f"{reach} row{'s' * (reach > 1)} ahead"
    if n <= 2 * reach or not local.hears.diagonal(reach).all():
        return ""
    if "conv" in type(call.module).__name__.lower():
        return f"convolution padding: the window reaches {rows}"
    if attends:
        return f"mask off by {'one' if reach == 1 else reach}: each row hears {rows}"
    return f"an offset: each row hears {rows} (convolution padding, or a shift)"


def _cause_by_shape(local: _Local, later: Int[np.ndarray, "m 2"]) -> str:
    """When the pairs of rows that hear each other form a figure."""
    n, far = len(local.hears), {tuple(pair) for pair in later.tolist()}
    if n < 4:
        return ""
    if far == {(0, n - 1)}:
        return "row 0 is given the last row: a shift that wraps around"
    if local.permutes:
        mirrored = all(i + j == n - 1 for i, j in far)
        order = "sort across positions: the output rows are the input rows in another order"
        return "the order of the rows is reversed" if mirrored else order
    if all(j == n - 1 for _, j in far):
        return "every row is given the last row"
    pairs = list(itertools.combinations(range(n), 2))
    for size in range(2, n):
        if far == {(i, j) for i, j in pairs if i // size == j // size}:
            return f"rows are mixed within blocks of {size}"
        if far == {(i, j) for i, j in pairs if j < size}:
            return f"the first {size} rows hear each other: a prefix without a mask"
    return ""


def _cause_far(
    local: _Local, later: Int[np.ndarray, "m 2"], attends: bool, derivable: bool
) -> str:
    """When rows hear far ahead, or some do."""
    n = len(local.hears)
    if n < 4 and not attends:
        return f"not known: it was seen at n = {n} only"
    if n < 4:
        return "mask missing at this length"
    if local.alike:
        return "pooling over the sequence: the same is added to every row"
    if local.rescales:
        return "normalization over the sequence axis: later rows scale and shift earlier ones"
    if not derivable:
        return "sort, rank, dispatch or rounding across positions: a step without a derivative"
    pairs = n * (n - 1) // 2
    some = "" if len(later) == pairs else f" for {len(later)} of {pairs} pairs"
    any_order = ", in whatever order" * local.symmetric
    if attends:
        return f"mask missing{some}: later rows are heard{any_order}"
    order = ", and their order counts: a recurrence from the end, or a full mixing"
    order = f"{any_order}: a mask missing, or pooling" if local.symmetric else order
    return f"later rows are heard{some or ', every one'}{order}"


def _others_in_batch(trial: _Trial, n: int, found: _Finds) -> None:
    """A sequence among others, and at another place, must give what it gives alone
    and among copies of itself.
    """
    x, draw = trial.inputs.x[:, :n], torch.Generator().manual_seed(n)
    one, other = x[:1], x[1:2] if len(x) > 1 else _fresh(trial, x[:1], 0, draw)
    twice, beside = torch.cat([one, one]), torch.cat([one, other])
    copies = trial.rows(twice)
    base = copies if trial.random else trial.rows(one).expand_as(copies)
    scale = _scale(base) or 1.0
    pairs = beside, torch.cat([other, one]), twice
    outputs = trial.rows(pairs[0]), trial.rows(pairs[1]), copies
    for k, y in enumerate(outputs):
        gap = (_apart(y, base)[k % 2] / scale).cpu().numpy()
        i = int(gap.argmax())
        if gap[i] > trial.tolerance:
            alone = twice if trial.random else one
            witness = _Found(gap[i], i, 0, alone, pairs[k], keep=[k % 2])
            found.add("batch", "another sequence beside it", n, witness)
            # Each sequence alone, or one spoils what is said of another.
            trial.plan.batch = trial.plan.batch_grad = 1


def _padded(trial: _Trial, n: int, found: _Finds) -> None:
    """With a third of the rows masked, on the right and on the left, beside a full
    sequence: no row hears later rows or padding; and masked rows on the right may as
    well be removed."""
    x, pad = trial.first(n), max(1, n // 3)
    fresh = _fresh(trial, x, 0, torch.Generator().manual_seed(n))
    alone, padded, real = _right_padded(trial, x)
    scale = _scale(padded) or 1.0
    gap = (_apart(alone, padded)[0] / scale).cpu().numpy()
    i = int(gap.argmax())
    if gap[i] > trial.tolerance and not trial.random:
        witness = _Found(gap[i], i, real, x, x)
        found.add("padding", "padding on the right, or none", n, witness)
    for side, keep in (("right", range(n - pad)), ("left", range(pad, n))):
        _padded_side(trial, n, found, side, keep, fresh)


def _padded_side(
    trial: _Trial, n: int, found: _Finds, side: str, keep: range, fresh: Tensor
) -> None:
    x = trial.first(n)
    hidden = [i for i in range(n) if i not in keep]
    source = hidden[0]
    mask = torch.ones(2, n, dtype=torch.long, device=x.device)
    mask[0, hidden] = 0
    spoiled = _spliced(x, fresh, hidden[0], hidden[-1] + 1)
    jobs: list[tuple[str, range, int, Tensor]] = [("padding", keep, source, spoiled)]
    for cut in _spread(keep[1:], 6):
        stay = range(keep[0], cut)
        jobs.append(("future", stay, cut, _spliced(x, fresh, cut)))
    # The padding in a batch of two first, then many cuts at once, always beside a full sequence.
    size = max(1, trial.plan.batch - 1)
    groups = [jobs[:1], *(jobs[k : k + size] for k in range(1, len(jobs), size))]
    for group in groups:
        masks = torch.cat([mask[:1]] * len(group) + [mask[1:]])
        hide: dict[str, Any] = {trial.inputs.mask: masks}
        base, after = (
            trial.rows(torch.cat([*some, x]), **hide)
            for some in ([x] * len(group), [job[-1] for job in group])
        )
        gaps = _apart(after, base).cpu().numpy() / (
            _scale(base[:, list(keep)]) or 1.0
        )
        for (fault, stay, source, other), gap in zip(group, gaps):
            i = max(stay, key=lambda row: gap[row])
            if gap[i] > trial.tolerance:
                pair = torch.cat([x, x]), torch.cat([other, x])
                extra = {trial.inputs.mask: mask}
                witness = _Found(gap[i], i, source, *pair, stay, extra)
                found.add(fault, f"{side}-padded batch", n, witness)


def _cached(trial: _Trial, n: int, found: _Finds) -> None:
    """Row by row, and in chunks, with what the model keeps: each row must be that of
    the whole pass.
    """
    x, half = trial.first(n), max(1, n // 2)
    ways = {"one row at a time": [1] * n}
    if trial.plan.step is None:
        ways["half, one row, the rest"] = [half, 1, n - half - 1][: 1 + n - half]
    masks: list[dict[str, Any]] = [{}]
    if trial.plan.step is None and _takes_mask(trial, n):
        left = torch.arange(n, device=x.device)[None] >= n // 3
        masks.append({trial.inputs.mask: left.long()})
    for mask, (way, sizes) in itertools.product(masks, ways.items()):
        rows = list(range(n // 3 if mask else 0, n))
        whole = trial.rows(x, **mask)[:, rows]
        parts = _stepwise(trial, x, sizes, mask)[:, rows]
        gap = (_apart(parts, whole)[0] / (_scale(whole) or 1.0)).cpu().numpy()
        i = int(gap.argmax())
        if gap[i] > trial.tolerance:
            way += ", padded on the left" * bool(mask)
            found.add("cache", way, n, _Found(gap[i], rows[i], rows[i], x, x))


def _stepwise(
    trial: _Trial, x: Tensor, sizes: Sequence[int], mask: Mapping[str, Tensor]
) -> Tensor:
    """The output for chunks of these sizes, each with what the model kept of those
    before.
    """
    state, start, parts, step = None, 0, [], trial.plan.step
    for size in filter(None, sizes):
        part, stop = x[:, start : start + size], start + size
        if step is not None:
            _hold(0, trial.generators)
            output, state = step(trial.inputs.back(part), state)
        else:
            seen = {key: m[:, :stop] for key, m in mask.items()}
            output = trial.raw(
                part, 0, start, past_key_values=state, use_cache=True, **seen
            )
            state = output.past_key_values
        parts.append(_as_rows(trial, _tensor_of(output, "what step returns")))
        start = stop
    y, real = torch.cat(parts, 1), trial.inputs.real
    if real is None or not trial.hides(mask):
        return y
    return y.masked_fill(~real[: y.shape[1], None], 0)


def _takes(model: Any, name: str) -> bool:
    """Has the model a parameter of this name?"""
    run = model.forward if isinstance(model, nn.Module) else model
    signature = _attempt(lambda: inspect.signature(run))
    return signature is not None and name in signature.parameters


def _blind(trial: _Trial, n: int, found: _Finds) -> None:
    """Rows that do not hear what they should, and rows that hear what lies beyond
    `max_lookback`.
    """
    columns = _spread(range(n), 16 if trial.plan.heavy else n)
    effects, w, x = (
        _single(trial, n, columns),
        trial.plan.max_lookback,
        trial.first(n),
    )
    small = trial.double and n * len(effects) <= 4096
    pattern = (
        _attempt(lambda: _pattern(trial, n, range(len(effects)))) if small else None
    )
    sees = effects > 0
    if pattern is not None:
        sees |= (pattern[0] > 2**12 * trial.eps).cpu().numpy()[:, columns]
    i, j = np.indices(effects.shape)
    j = np.array(columns)[j]
    everywhere = trial.plan.expects == "all"
    should = np.ones_like(sees) if everywhere else (j <= i) & (i - j <= w)
    if (real := trial.inputs.real) is not None:
        shown = real[:n].cpu().numpy()
        should &= shown[None, columns] & (shown[:, None] | (len(sees) != n))
    if len(missing := np.argwhere(should & ~sees)):
        row, k = missing[0]
        way = f"{len(missing)} of {int(should.sum())} pairs"
        found.add("blind", way, n, _Found(0.0, int(row), columns[k], x, x))
    far = np.where(i - j > (n if w is None else w), effects, 0.0)
    if far.any():
        row, k = np.unravel_index(far.argmax(), far.shape)
        witness = _Found(float(far.max()), int(row), columns[k], x, x)
        found.add("far", "single rows", n, witness)


def _pair(trial: _Trial, found: _Found) -> int:
    """Of the replaced rows, the one that the row hears most."""
    x, other, source = found.x, found.other, found.source
    if other.shape != x.shape or other is x or found.extra:
        return source
    columns = _spread(range(source, x.shape[1]), 24)
    singles = (_spliced(x, other, j, j + 1) for j in columns)
    gaps = [gap[found.row] for gap in _changes(trial, x, singles)]
    return columns[int(np.argmax(gaps))] if max(gaps) > 0.2 * found.size else source


_BACK_ENDS = {
    "math": "MATH",
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
}


@contextlib.contextmanager
def _back_end(modules: Mapping[str, nn.Module], name: str | None) -> Iterator[None]:
    """One of torch's kernels by name, or an attention implementation of a Hugging
    Face model.
    """
    if name in _BACK_ENDS:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        with sdpa_kernel(getattr(SDPBackend, _BACK_ENDS[name])):
            yield
        return
    configs = {
        id(m.config): m.config for m in modules.values() if hasattr(m, "config")
    }
    before = [(config, dict(vars(config))) for config in configs.values()]
    try:
        if name is not None:
            can: list[Any] = [
                m for m in modules.values() if hasattr(m, "set_attn_implementation")
            ]
            can[0].set_attn_implementation(name)
        yield
    finally:
        for config, saved in before:
            vars(config).clear()
            vars(config).update(saved)


def _explore(trial: _Trial, found: _Finds) -> None:
    """All experiments in one setting."""
    lengths = trial.plan.lengths
    if trial.row_axis < 0:
        _find_axes(trial)
    trial.plan.batch, trial.plan.batch_grad = _batch_sizes(trial)
    found.problems += _measure(trial, lengths[-1])
    if trial.remembers:
        return
    if trial.plan.expects == "all":
        _blind(trial, lengths[-1], found)
        found.tried["single replaced rows"] = lengths[-1:]
        return
    for n in lengths if trial.batch_axis is not None else ():
        _tried(trial, n, found, "other sequences in the batch", _others_in_batch)
    for n in lengths:
        _at_length(trial, n, found)
    if trial.plan.max_lookback is not None:
        _blind(trial, lengths[-1], found)


def _at_length(trial: _Trial, n: int, found: _Finds) -> None:
    """The experiments at one length."""
    plan, evaluating = trial.plan, trial.name.startswith("eval")
    try:
        trial.rows(trial.first(n))
    except Exception as error:
        found.problems.append(f"at n = {n} it raises {_said(error)}")
        return
    if n > 1:
        _tried(trial, n, found, "replaced rows", _replaced)
    deep = [m for m in plan.lengths if m <= _FEW or not plan.heavy]
    if n == 1 or n not in deep or plan.brief:
        return
    if evaluating and trial.double:
        _tried(trial, n, found, "derivatives", _derivatives)
    if n == deep[-1] and not trial.random:  # this implies it for all smaller n
        _tried(trial, n, found, "removed rows", _removed)
    if n == deep[-1] and _takes_mask(trial, n):
        _tried(trial, n, found, "padding on both sides", _padded)
    cache = plan.step is not None or _takes(trial.model, "past_key_values")
    if n == deep[-1] and evaluating and cache:
        _tried(trial, n, found, "decoding with a cache", _cached)


def _tried(
    trial: _Trial, n: int, found: _Finds, words: str, experiment: Callable[..., Any]
) -> None:
    """One experiment. When it raises, that is reported, and the others stand."""
    try:
        words = experiment(trial, n, found) or words
        found.tried.setdefault(words, []).append(n)
    except Exception as error:
        found.problems.append(f"{words}: {_said(error)}")


def _batch_sizes(trial: _Trial) -> tuple[int, int]:
    """As many sequences at a time as keep within the memory, without derivatives and
    with them.
    """
    sizes = [0]

    def count(module: nn.Module, args: Any, output: Any) -> None:
        sizes.append(sum(t.numel() * t.element_size() for t in _tensors_in(output)))

    hooks = [m.register_forward_hook(count) for m in trial.modules.values()]
    try:
        y = trial.rows(trial.first(trial.plan.lengths[-1]))
    finally:
        for handle in hooks:
            handle.remove()
    needs = (8 * max(sizes) + 8 * y.numel() + 1, 2 * sum(sizes) + 8 * y.numel() + 1)
    plain, grad = (max(1, min(64, trial.plan.memory // need)) for need in needs)
    return plain, grad


def _cast(
    thing: Any, dtype: torch.dtype, seen: dict[int, Tensor] | None = None
) -> Any:
    """Floating-point tensors in this type, at any depth; the same tensor stays one
    object.
    """
    seen = {} if seen is None else seen
    if isinstance(thing, Tensor):
        new = thing.to(dtype) if thing.is_floating_point() else thing
        return seen.setdefault(id(thing), new)
    if isinstance(thing, Mapping):
        return {k: _cast(v, dtype, seen) for k, v in thing.items()}
    if type(thing) in (list, tuple):
        return type(thing)(_cast(part, dtype, seen) for part in thing)
    return thing


def _roots(modules: Mapping[str, nn.Module]) -> list[nn.Module]:
    """The modules that no other one of them contains."""
    held = [
        child for m in modules.values() for child in m.modules() if child is not m
    ]
    inner = set(map(id, held))
    return [m for m in modules.values() if id(m) not in inner]


def _vocabulary(
    inputs: _Inputs, modules: Mapping[str, nn.Module], given: int | None
) -> int:
    """How many tokens there are: given, or the rows of the first embedding, or the
    largest token seen.
    """
    if given is not None or not inputs.tokens:
        return given or 2
    configs = [getattr(m, "config", None) for m in modules.values()]
    tables = [m for m in modules.values() if isinstance(m, nn.Embedding)]
    known = [getattr(config, "vocab_size", None) for config in configs]
    known += [table.num_embeddings for table in tables]
    sizes = [size for size in known if isinstance(size, int)]
    return sizes[0] if sizes else max(2, int(inputs.x.max()) + 1)


@dataclass
class _Auditor:
    """Runs the settings one after the other and collects what they find."""

    model: Callable[..., Any]
    inputs: Any
    axis: int | None
    modules: Mapping[str, nn.Module]
    plan: _Plan
    leaks: list[Leak] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)
    effects: Float[np.ndarray, "n n"] = field(
        default_factory=lambda: np.zeros((0, 0))
    )
    tolerance: float = 0.0
    axes: tuple[int, int | None] = (-1, None)
    ran: bool = False
    decided: bool = True


def _run(auditor: _Auditor, mode: str, end: str | None, dtype: torch.dtype) -> None:
    """One setting; the model is as before when it ends."""
    double = dtype == torch.float64
    name = ", ".join(
        [mode, *([end] if end else []), str(dtype).removeprefix("torch.")]
    )
    modules = list(auditor.modules.values())
    with _on_copies(modules, dtype if double else None), torch.no_grad():
        for module in _roots(auditor.modules):
            module.train(mode == "train")
        inputs = _cast(auditor.inputs, dtype) if double else auditor.inputs
        inputs, plan = _Inputs(inputs, auditor.axis), _plan(auditor, mode, double)
        given = auditor.model, inputs, auditor.modules, name, plan, double
        trial = _Trial(*given, *auditor.axes)
        found = _Finds(plan.lengths[-1])
        try:
            with _back_end(auditor.modules, end):
                _explore(trial, found)
                auditor.axes = trial.row_axis, trial.batch_axis
                auditor.leaks += _conclude(trial, found, auditor.leaks)
        except Exception as error:
            _failed(auditor, name, (mode, end, double), error)
            return
    _record(auditor, trial, found)


_FEW = 8


def _plan(auditor: _Auditor, mode: str, double: bool) -> _Plan:
    """What is tried in this setting. Large models: all experiments at few rows, and
    at the whole length every suffix replaced once, in the model's own precision."""
    plan = auditor.plan
    lengths, kinds, n = plan.lengths, 3, plan.lengths[-1]
    if plan.heavy:
        short = {min(m, _FEW) for m in [*lengths, _FEW - 1]} & set(range(1, n + 1))
        lengths, kinds = sorted(short), 1
    if double or not auditor.ran:
        whole = [] if double or mode == "train" else [n]
        return replace(plan, lengths=sorted({*lengths, *whole}), kinds=kinds)
    # Once more, for the kernels of this precision.
    lengths = [n] if plan.heavy and mode == "eval" else lengths[-2:]
    return replace(plan, lengths=lengths, kinds=1, brief=plan.heavy)


def _expected(auditor: _Auditor, settings: Sequence[tuple[Any, ...]]) -> int:
    """About how many sequences all settings take: for the progress bar."""
    total = 0
    for dtype, _, mode in settings:
        double = dtype == torch.float64
        own = auditor if double else replace(auditor, ran=True)
        plan = _plan(own, mode, double)
        for n in plan.lengths:
            total += plan.kinds * (n - 1) + (0 if plan.brief else n - 1)
            total += 2 * n * (double and mode == "eval")
    return total


def _failed(
    auditor: _Auditor,
    name: str,
    setting: tuple[str, str | None, bool],
    error: Exception,
) -> None:
    """What an exception in a setting means: for the example inputs in the model's
    own precision it is the caller's.
    """
    raised = _said(error)
    mode, end, double = setting
    first = not auditor.ran and len(auditor.plan.lengths) == 1
    if double:
        auditor.notes.append((name, f"not possible ({raised})"))
    elif end is None and mode == "eval" or first:
        frames = (
            inspect.getinnerframes(error.__traceback__)
            if error.__traceback__
            else []
        )
        if frames and frames[-1].function == "expects":
            raise error
        got = f"inputs: got {raised} from the model, want inputs that it takes"
        raise ValueError(got) from error
    else:
        auditor.problems.append((name, f"raises {raised}"))


def _record(auditor: _Auditor, trial: _Trial, found: _Finds) -> None:
    """What one setting found and tried, for the report."""
    auditor.ran, auditor.decided = True, auditor.decided and trial.decided
    auditor.problems += [(trial.name, line) for line in found.problems]
    several: dict[str, list[str]] = {}
    for words, at in found.tried.items():  # with one row there is nothing to replace
        several.setdefault(", ".join(str(n) for n in at if n > 1), []).append(words)
    tried = [f"{', '.join(words)} at n = {at}" for at, words in several.items()]
    name = f"{trial.name} (from {trial.tolerance:.0e})"
    auditor.notes.append((name, "; ".join(tried) or "nothing"))
    later = [
        np.triu(e, 1).max(initial=0.0) for e in (found.effects, auditor.effects)
    ]
    if not auditor.effects.size or later[0] > 2 * later[1]:  # where it leaks most
        auditor.effects, auditor.tolerance = found.effects, trial.tolerance


_SHADOWS = {
    "length": ("future",),
    "padding": ("future",),
    "cache": ("future", "length"),
}


def _conclude(trial: _Trial, found: _Finds, earlier: Sequence[Leak]) -> list[Leak]:
    """From the witnesses of one setting to its leaks, each with a culprit where one
    can be named.
    """
    known = {(leak.fault, leak.module): leak.cause for leak in earlier}
    faults = {fault: list(ways) for fault, ways in found.ways.items()}
    for shadow, cast_by in _SHADOWS.items():
        causes = [fault for fault in cast_by if fault in faults]
        if shadow in faults and causes:  # one fault is seen in several ways
            ways = faults.pop(shadow)
            faults[causes[0]] += [
                way for way in ways if way not in faults[causes[0]]
            ]
    leaks = []
    for fault, ways in faults.items():
        witness, at = found.strongest(fault), sorted(found.witness[fault].items())
        named: tuple[str | None, str, str] = (None, "", "")
        if fault in ("future", "length", "batch", "padding"):
            tried = {"derivatives", "replaced rows"} <= found.tried.keys()
            derivable = (
                not tried or "derivatives" in ways or "replaced rows" not in ways
            )
            named = _named(trial, fault, found.handiest(fault), derivable, known)
        source = _pair(trial, witness) if fault == "future" else witness.source
        leak = Leak(
            fault, trial.name, witness.row, source, witness.size, tuple(ways), *named
        )
        leaks.append(replace(leak, sizes={n: w.size for n, w in at}))
    return leaks


def _named(
    trial: _Trial,
    fault: str,
    witness: _Found,
    derivable: bool,
    known: Mapping[tuple[str, str | None], str],
) -> tuple[str | None, str, str]:
    """Path, class and cause of the culprit; the cause is not sought again for one
    that is known.
    """
    calls, index = _attempt(lambda: _culprit(trial, fault, witness)) or ([], None)
    if index is None:
        return None, "", ""
    call, n = calls[index], witness.x.shape[1]
    cause = known.get((fault, call.path))
    if cause is None:
        near = fault == "future" and n <= 64
        local = _attempt(lambda: _examine(trial, call, n)) if near else None
        cause = _cause(call, local, fault, derivable)
    return call.path, _name_of(call.module), cause


def _name_of(model: Any) -> str:
    own = None if isinstance(model, nn.Module) else getattr(model, "__name__", None)
    return own or type(model).__name__


def _report(auditor: _Auditor) -> Report:
    """All settings together: the same fault in the same module stands once."""
    groups: dict[tuple[Any, ...], list[Leak]] = {}
    for leak in auditor.leaks:
        groups.setdefault((leak.fault, leak.module), []).append(leak)
    problems, notes = _grouped(auditor.problems), _grouped(auditor.notes)
    return Report(
        subject=_name_of(auditor.model),
        leaks=tuple(_joined(group) for group in groups.values()),
        problems=tuple(f"{line} [{names}]" for line, names in problems.items()),
        notes=tuple(f"tried in {names}: {line}" for line, names in notes.items()),
        effects=auditor.effects,
        tolerance=auditor.tolerance,
        undecided=not (auditor.ran and auditor.decided),
    )


def _grouped(lines: Sequence[tuple[str, str]]) -> dict[str, str]:
    """{line: the settings in which it holds}."""
    groups: dict[str, list[str]] = {}
    for name, line in lines:
        groups.setdefault(line, []).append(name)
    return {line: "; ".join(dict.fromkeys(names)) for line, names in groups.items()}


def _joined(group: Sequence[Leak]) -> Leak:
    """One leak for several settings: the first, with all their names and ways."""
    ways = tuple(dict.fromkeys(way for leak in group for way in leak.ways))
    return replace(
        group[0], setting="; ".join(leak.setting for leak in group), ways=ways
    )


def _check_options(
    model: Any, modes: Sequence[str], options: Mapping[str, Any]
) -> None:
    wants = "a torch module or a callable"
    expects(callable(model), "model", type(model).__name__, wants, TypeError)
    expects_one_of("expects", options["expects"], ("causal", "all"))
    lookback, causal = options["max_lookback"], options["expects"] == "causal"
    fits = lookback is None or causal
    expects(fits, "max_lookback", lookback, 'None with expects="all"')
    expects((lookback or 0) >= 0, "max_lookback", lookback, "at least 0")
    expects(len(modes) > 0, "modes", "none", "some of 'eval', 'train'")
    for mode in modes:
        expects_one_of("modes", mode, ("eval", "train"))
    expects_positive(memory=options["memory"])


def _check_inputs(
    example: _Inputs,
    modules: Mapping[str, nn.Module],
    lengths: Sequence[int] | None,
    back_ends: Sequence[str],
) -> None:
    hugging = any(hasattr(m, "set_attn_implementation") for m in modules.values())
    wants = f"one of {', '.join(map(repr, _BACK_ENDS))}; other names need a Hugging Face model"
    for name in back_ends:
        expects(name in _BACK_ENDS or hugging, "back_ends", repr(name), wants)
    x, n = example.x, example.n
    expects(len(x) > 0, "inputs", "an empty batch", "at least one sequence")
    wants = "at least 2 rows; with one there is no future"
    expects(n > 1, "inputs", f"{n} rows", wants)
    devices = {t.device for m in modules.values() for t in m.parameters()}
    where = next(iter(devices), x.device)
    fits = len(devices) > 1 or x.device == where
    expects(fits, "inputs", f"device {x.device}", f"{where}, where the model is")
    expects(
        x.isfinite().all(), "inputs", "NaN or infinite numbers", "finite numbers"
    )
    wants = f"whole numbers from 1 to {n}, the rows of the inputs"
    for m in lengths or ():
        expects(isinstance(m, int) and 1 <= m <= n, "lengths", m, wants)


def _settle(
    model: Callable[..., Any], inputs: Any, axis: int | None, options: dict[str, Any]
) -> tuple[_Auditor, Sequence[str]]:
    """The options checked and completed; and the modes to try."""
    modes, back_ends = options.pop("modes"), options.pop("back_ends")
    _check_options(model, modes, options)
    modules, example = _modules_in(model), _Inputs(inputs, axis)
    _check_inputs(example, modules, options["lengths"], back_ends)
    n, floats = example.n, [] if example.tokens else [example.x.dtype]
    usual = {1, 2, min(3, n), n // 2, n - 1, n}  # odd and even ones among them
    options["lengths"] = sorted(set(options["lengths"] or usual))
    options["vocab_size"] = _vocabulary(example, modules, options["vocab_size"])
    weights = {id(p): p for m in modules.values() for p in m.parameters()}.values()
    size = sum(p.numel() for p in weights)
    heavy = size * n**2 > options.pop("work")
    own = [p.dtype for p in weights if p.is_floating_point()] + floats
    plan = _Plan(**options, heavy=heavy, own=(own or [torch.float32])[0])
    return _Auditor(model, inputs, axis, modules, plan), modes if modules else [
        "eval"
    ]


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
    row hears later input rows, or how many there are. (T-audit-cuts)

    `model` is a torch module or a callable. `inputs` is a tensor, (batch, n) tokens
    or (batch, n, d) rows, with or without the batch axis, or a tuple or a mapping by
    keyword of the model's inputs, the sequence first (or by the name `input_ids` or
    `inputs_embeds`); masks (…, n, n) and (…, n) are cut with it. `input_axis` is the
    axis of its rows when it is another; `row_axis` that of the output when it cannot
    be told. `expects="all"` asks the opposite: every row should hear every row.
    `max_lookback=w`: row i should hear rows i − w, …, i, and none before. `lengths`
    (default: 1, 2, 3, half, all but one, all), `modes`, `back_ends` ("math",
    "flash", "efficient", "cudnn", or a Hugging Face implementation) are what is
    tried. `step(rows, state) → (output, state)` decodes row by row, with None as
    first state; a Hugging Face cache is found without it. `vocab_size` bounds the
    tokens drawn. `memory` in bytes bounds a batch. When weights × n² exceeds `work`,
    the whole length is tried in the model's own precision with every suffix replaced
    once, and all else with 8 rows. A progress bar shows after half a minute.

    The model is left as it was. ValueError or TypeError for inputs or an output that
    cannot be used; what fails at some lengths stands in the report.

    >>> report = audit(lambda x: x - x.mean(-2, keepdim=True), torch.randn(5, 3))
    >>> report.ok, report.leaks[0].fault
    (False, 'future')
    >>> audit(lambda x: x.cumsum(-2), torch.randn(5, 3)).ok
    True

    Chapter: auditing.
    """
    options: dict[str, Any] = dict(expects=expects, max_lookback=max_lookback)
    options |= dict(row_axis=row_axis)
    options |= dict(lengths=lengths, modes=modes, back_ends=back_ends, step=step)
    options |= dict(vocab_size=vocab_size, memory=memory, work=work)
    auditor, modes = _settle(model, inputs, input_axis, options)
    precisions, ends = (torch.float64, auditor.plan.own), (None, *back_ends)
    settings = list(dict.fromkeys(itertools.product(precisions, ends, modes)))
    hide = not progress
    with tqdm(
        None, "audit", disable=hide, unit=" passes", delay=30, leave=False
    ) as bar:
        bar.total, auditor.plan.bar = _expected(auditor, settings), bar.update
        for dtype, end, mode in settings:
            _run(auditor, mode, end, dtype)
    return _report(auditor)


def assert_autoregressive(
    model: Callable[..., Any], inputs: Any, **options: Any
) -> None:
    """AssertionError with the report unless `audit(model, inputs, **options)` is ok:
    for a test suite.

    Chapter: auditing.
    """
    report = audit(model, inputs, **options)
    if not report.ok:
        raise AssertionError(f"\n{report}")

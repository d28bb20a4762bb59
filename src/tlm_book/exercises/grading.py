"""What all graders share: running an answer safely, and saying how two results differ."""

import contextlib
import copy
import functools
import inspect
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tlm_book.arrays import as_array

__all__ = ["Exercise", "WrongAnswer", "Grade", "call", "difference", "function", "holds", "value"]

SIZES = (3, 1, 2, 5, 4, 8)  # the lengths n of the random inputs, with n = 1 among them
NEARLY = "it is nearly right: some small term is missing, or the precision is low"
SINGLE = "Besides, it computes in single precision, which may be too little here."
SECONDS = 10.0  # the time that an answer may take for one input


@dataclass(frozen=True)
class Grade:
    """The verdict of `check` on an answer: true if it is right, with a hint if it is not."""

    exercise: str
    hint: str
    wants: str

    def __bool__(self) -> bool:
        return not self.hint

    def __repr__(self) -> str:
        if self:
            return f"{self.exercise}: right."
        return f"{self.exercise}: not right yet.\n{self.hint}\nWanted: {self.wants}"


@dataclass(frozen=True)
class Exercise:
    """One grader: what is wanted, a judge that gives a hint ("" for a right answer), and typical wrong answers.

    Each wrong answer comes with the hint that it should get, or "" if any hint will do.
    """

    wants: str
    judge: Callable[[Any], str]
    wrong: tuple[tuple[str, Any], ...]


class WrongAnswer(Exception):
    """Raised with what is wrong with an answer, in words for the reader."""


class _TimeUp(BaseException):
    """Raised when the time is up; not an Exception, so that no `except Exception` in an answer swallows it."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Interrupt the block after this many seconds, where the system can: in the main thread, and not on Windows."""
    if not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise _TimeUp

    before, began = signal.signal(signal.SIGALRM, stop), time.monotonic()
    left, _ = signal.getitimer(signal.ITIMER_REAL)  # what is left of a limit around this one, which keeps running
    signal.setitimer(signal.ITIMER_REAL, min(seconds, left or seconds))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, max(1e-3, left - (time.monotonic() - began)) if left else 0)
        signal.signal(signal.SIGALRM, before)


def plain(result: Any) -> Any:
    """The result with tensors as arrays, even inside tuples and lists; real numbers keep their precision."""
    if isinstance(result, (tuple, list)):
        return type(result)(map(plain, result)) if type(result) in (tuple, list) else result
    array = as_array(result)
    return array.astype(np.float32) if array is not result and str(result.dtype) == "torch.float32" else array


def precision(answer: Any) -> float:
    """The relative error to allow for: that of single precision if any number in the answer has it, else 0."""
    if isinstance(answer, (tuple, list)):
        return max(map(precision, answer), default=0.0)
    return 1e-6 if str(getattr(answer, "dtype", "")) in ("float32", "torch.float32") else 0.0


def describe(names: Sequence[str], inputs: Sequence[Any]) -> str:
    """The inputs in words: the shapes of arrays, the values of all others."""
    words = []
    for name, given in zip(names, inputs):
        text = f"of shape {tuple(given.shape)}" if getattr(given, "shape", ()) else f"= {given!r}"
        words.append(f"{name} {text}" if len(text) <= 40 and " at 0x" not in text else f"a certain {name}")
    return ", ".join(words)


def parameters(f: Callable[..., Any]) -> list[str]:
    """The names of a function's parameters."""
    return list(inspect.signature(f).parameters)


def call(f: Any, *inputs: Any, names: Sequence[str] = ()) -> Any:
    """f(*inputs); whatever goes wrong becomes a WrongAnswer that says so."""
    if not callable(f):
        raise WrongAnswer(f"The answer must be a function; got {type(f).__name__}.")
    given = copy.deepcopy(inputs)
    where = f" (for {describe(names, inputs)})" if names else ""
    try:
        with time_limit(SECONDS):
            result = f(*given)
    except _TimeUp:
        raise WrongAnswer(f"It was still running after {SECONDS:g} seconds{where}. Does its loop end?") from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit and the like, too
        raise WrongAnswer(f"It raises {type(error).__name__}{where}: {error}") from error
    if difference(given, inputs):
        raise WrongAnswer(f"It changes its input{where}. Work on a copy: the caller may need the input again.")
    if result is None:
        raise WrongAnswer("It returns nothing (None). Is there a `return`?")
    return result


def function(
    wants: str,
    inputs: Callable[[np.random.Generator, int], tuple[Any, ...]] | Sequence[tuple[Any, ...]],
    reference: Callable[..., Any],
    mistakes: Mapping[str, Callable[..., Any]],
    through: Callable[..., Any] | None = None,
    tol: float = 1e-9,
) -> Exercise:
    """The grader for a function that must agree with `reference` on all inputs.

    `inputs(rng, n)` makes one tuple of arguments; or `inputs` lists all tuples. `mistakes` are typical wrong functions, by
    the hint that they get. If several results are right, `through(result, *arguments)` is compared in their place.
    """
    names = parameters(reference)

    def outcome(f: Any, case: tuple[Any, ...]) -> Any:
        result = call(f, *case, names=names)
        if through is None:
            return result
        try:
            return through(plain(result), *copy.deepcopy(case))
        except WrongAnswer:
            raise
        except Exception as error:
            raise WrongAnswer(f"Its result cannot be used (for {describe(names, case)}): {type(error).__name__}: {error}") from error

    @functools.cache
    def prepared() -> list[tuple[tuple[Any, ...], Any]]:
        """The inputs and the results wanted for them, which are the same for every answer."""
        cases = [inputs(np.random.default_rng(seed), n) for seed, n in enumerate(SIZES)] if callable(inputs) else inputs
        return [(case, reference(*copy.deepcopy(case))) for case in cases]

    @functools.cache
    def of_mistake(hint: str) -> list[Any]:
        """The results of a typical wrong function for the inputs; none if it raises."""
        with contextlib.suppress(WrongAnswer):
            return [outcome(mistakes[hint], case) for case, _ in prepared()]
        return []

    def judge(answer: Any) -> str:
        results = [outcome(answer, case) for case, _ in prepared()]
        faults = [difference(result, wanted, tol) for result, (_, wanted) in zip(results, prepared())]
        if not any(faults):
            return ""
        for hint in mistakes:
            others = of_mistake(hint)
            if others and not any(difference(result, other, tol) for result, other in zip(results, others)):
                return hint
        right, first = faults.count(""), next(k for k, fault in enumerate(faults) if fault)
        fault = faults[first] if through is None else f"put to use, {faults[first]}"
        return f"Right for {right} of {len(faults)} inputs. For {describe(names, prepared()[first][0])}: {fault}."

    return Exercise(wants, judge, tuple(mistakes.items()))


def value(
    wants: str,
    reference: Callable[[], Any],
    mistakes: Mapping[str, Any],
    through: Callable[[Any], Any] | None = None,
    tol: float = 1e-9,
) -> Exercise:
    """The grader for a number, a tuple, a set or an array, which must be what `reference()` computes.

    If several answers are right, `through(answer)` is compared in their place, if it can be computed. Numbers in single precision
    are compared in single precision.
    """
    wanted = functools.cache(reference)  # computed once, however many answers are tried

    def judge(answer: Any) -> str:
        if answer is None:
            return "The answer is None. Does the function that made it return something?"
        near = max(tol, precision(answer))
        with contextlib.suppress(TypeError, ValueError):
            answer = answer if through is None else through(plain(answer))
        fault = difference(answer, wanted(), near)
        if not fault:
            return ""
        known = [hint for hint, wrong in mistakes.items() if not difference(answer, wrong, near)]
        return known[0] if known else f"{fault[0].upper()}{fault[1:]}."

    return Exercise(wants, judge, tuple(mistakes.items()))


def watched(f: Callable[..., Any], results: list[float]) -> Callable[..., Any]:
    """f, which notes the precision of each of its results."""
    @functools.wraps(f)
    def g(*inputs: Any, **named: Any) -> Any:
        result = f(*inputs, **named)
        results.append(precision(result))
        return result
    return g


def holds(wants: str, conditions: Callable[[Any], Iterable[tuple[str, object]]], wrong: Sequence[Any]) -> Exercise:
    """The grader for any object with certain properties: `conditions` gives pairs of what to say if a property fails and whether it holds."""

    def judge(answer: Any) -> str:
        results: list[float] = []
        try:
            with time_limit(3 * SECONDS):
                tried = watched(answer, results) if inspect.isfunction(answer) else answer
                hint = next((hint for hint, true in conditions(tried) if not true), "")
                return f"{hint} {SINGLE}" if hint and max([precision(answer), *results]) else hint
        except _TimeUp:
            raise WrongAnswer("The answer takes too long. Does its loop end?") from None
        except WrongAnswer:
            raise
        except Exception as error:
            raise WrongAnswer(f"The answer cannot be used: {type(error).__name__}: {error}") from error

    return Exercise(wants, judge, tuple(("", answer) for answer in wrong))


def difference(got: Any, want: Any, tol: float = 1e-9) -> str:
    """How `got` differs from `want`, in words that do not tell what is wanted; "" when they agree."""
    got, want = as_array(got), as_array(want)
    if isinstance(want, (bool, np.bool_)):
        got = got[()] if isinstance(got, np.ndarray) and got.ndim == 0 else got
        if not isinstance(got, (bool, np.bool_)):
            return f"its type is {type(got).__name__}, but True or False is wanted"
        return "" if got == want else f"it says {bool(got)}, which is wrong"
    if isinstance(want, (set, frozenset)):
        if not isinstance(got, (set, frozenset)):
            return f"its type is {type(got).__name__}, but a set is wanted"
        extra, missing = len(got - want), len(want - got)
        return f"wrong elements: {extra}, missing elements: {missing}" if extra or missing else ""
    if isinstance(want, tuple):
        got = list(got) if isinstance(got, np.ndarray) and got.ndim else got
        if not isinstance(got, (tuple, list)) or len(got) != len(want):
            return f"it is not a tuple of length {len(want)}"
        faults = [(k, difference(g, w, tol)) for k, (g, w) in enumerate(zip(got, want))]
        return next((f"in entry {k}, {fault}" for k, fault in faults if fault), "")
    if isinstance(want, (int, float, complex, np.number)) or isinstance(want, np.ndarray) and want.dtype.kind in "biufc" \
            or isinstance(want, list) and all(isinstance(w, (int, float, np.number)) for w in want):
        return _difference_of_numbers(got, want, tol)
    if isinstance(want, str) and not isinstance(got, str):
        return f"its type is {type(got).__name__}, but a text is wanted"
    if isinstance(want, list) and not isinstance(got, (list, tuple)):
        return f"its type is {type(got).__name__}, but a list is wanted"
    if isinstance(want, list):
        return difference(tuple(got), tuple(want), tol)
    if isinstance(want, dict):
        same = isinstance(got, dict) and list(got) == list(want)
        return difference(tuple(got.values()), tuple(want.values()), tol) if same else "it is not a dictionary with the right keys"
    if isinstance(want, (str, bytes)):
        return "" if got == want else "it is not the right text"
    return ""  # functions, models and the like are never compared


def _difference_of_numbers(got: Any, want: Any, tol: float) -> str:
    """`difference` for numbers and arrays: shape, transposition, sign, factor, shift, order, rows."""
    try:
        if np.iscomplexobj(got) and np.any(np.abs(np.imag(got)) > tol):
            return "it has an imaginary part, but real numbers are wanted"
        g, w = np.asarray(np.real(got) if np.iscomplexobj(got) else got, dtype=float), np.asarray(want, dtype=float)
    except (TypeError, ValueError):
        return f"its type is {type(got).__name__}, but numbers are wanted"
    except OverflowError:
        return "a number in it is too large to be compared"
    if np.asarray(want).dtype.kind in "iu" and 1 < (largest := np.abs(w).max(initial=0)) < 2**53:
        tol = min(tol, 0.4 / largest)  # so that a whole number is right or wrong, however large it is
    same = lambda a: a.shape == w.shape and np.allclose(a, w, rtol=tol, atol=tol, equal_nan=True)
    if g.size == w.size == 1:
        g = g.reshape(w.shape)
    if same(g):
        return ""
    if g.ndim == 2 and same(g.T):
        return "it is the transpose of what is wanted"
    if g.shape != w.shape:
        return f"it has shape {g.shape}, but {w.shape} is wanted"
    if (np.isnan(g) & ~np.isnan(w)).any():
        return "it contains nan (not a number): look for 0/0 or ∞ − ∞"
    if (np.isinf(g) & ~np.isinf(w)).any():
        return "it contains an infinite number: look for a division by 0 or an overflow of exp"
    if same(-g):
        return "the sign is wrong"
    if g.ndim == 0:
        return NEARLY if np.isclose(g, w, rtol=1e-2, atol=0) else "it is not the right number"
    return _difference_of_arrays(g, w, same, tol)


def _difference_of_arrays(g: np.ndarray, w: np.ndarray, same: Callable[[np.ndarray], bool], tol: float) -> str:
    """`difference` for arrays of one shape with at least one axis."""
    if same(g[::-1]):
        return "it is what is wanted, but in reverse order"
    if g.size > 1 and np.isfinite(w).all():
        factor, shift = (g * w).sum() / max((w * w).sum(), 1e-300), (g - w).mean()
        if factor and abs(factor - 1) > 1e-3 and same(g / factor):
            return f"it is {factor:.4g} times what is wanted"
        if same(g - shift):
            return f"every number is off by {shift:.4g}"
        if same(np.sort(g, axis=None)[np.argsort(np.argsort(w, axis=None))].reshape(w.shape)):
            return "its numbers are right, but they are in the wrong places"
    if np.allclose(g, w, rtol=1e-2, atol=1e-3 * np.abs(w[np.isfinite(w)]).max(initial=0)):
        return NEARLY
    rows = [np.allclose(a, b, rtol=tol, atol=tol, equal_nan=True) for a, b in zip(g, w)]
    if any(rows):
        return f"{sum(rows)} of {len(rows)} rows are right; row {rows.index(False)} is the first that is not"
    return "none of its rows is right"

"""What `TLM_BOOK_TYPECHECK=1` turns on: every signature of the package is checked at run time, by jaxtyping and beartype, or by beartype alone.

jaxtyping's hook decorates every function while its module is imported. Three things are spared, for they took most of the time of a test run. A signature
without arrays has no axes to compare, so that beartype is enough. A check, which takes a thousand times as long to write as to run, is written when its
function is first called; of a function within a function, which is made anew whenever the outer one runs, it is kept. And what was found in order is not
looked at twice: a verdict depends on the types of arguments and result, and on the shapes of arrays (never on their numbers), so a call in which
all of these have been seen together before runs as it stands.
"""

import functools
import inspect
import types
from collections.abc import Callable, Collection, Hashable
from typing import Any, get_args

import jaxtyping
from beartype import BeartypeConf, beartype

__all__ = ["checked", "described", "may_hold_arrays", "install"]

# The tower lets a whole number stand where a float is wanted, as Python itself does.
CHECK = beartype(conf=BeartypeConf(is_pep484_tower=True, violation_type=jaxtyping.TypeCheckError))
LONGEST = 32  # items of a list that are compared one by one
_seen: dict[Hashable, Callable[..., Any]] = {}
_passed: dict[Hashable, dict[Hashable, set[Hashable]]] = {}
_ways: dict[type, Callable[[Any], Any]] = {}


def checked(signature: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its arguments and its result checked; `signature` is one that jaxtyping has made, with an empty body."""
    if "<locals>" not in signature.__qualname__:
        return CHECK(signature)
    hints = tuple((name, repr(hint)) for name, hint in signature.__annotations__.items())
    key = (signature.__module__, signature.__qualname__, signature.__code__.co_code, hints)
    if key not in _seen:
        _seen[key] = CHECK(signature)
    return _seen[key]


def may_hold_arrays(hint: Any) -> bool:
    """Whether an array with axes stands in a type; a name in quotes might be one."""
    if isinstance(hint, str) or inspect.isclass(hint) and issubclass(hint, jaxtyping.AbstractArray):
        return True
    return any(may_hold_arrays(part) for part in (hint if isinstance(hint, list) else get_args(hint)))


def described(thing: Any) -> Hashable:
    """All that a check looks at: types, shapes of arrays, the items of short lists. None: it may look at more."""
    try:
        found = _description(thing)
        hash(found)  # a shape that is no number has none
    except (_More, TypeError):
        return None
    return found


class _More(Exception):
    """A check may look at more than is described."""


def _description(thing: Any) -> Hashable:
    kind = type(thing)
    if kind not in _ways:
        _ways[kind] = _way(kind)
    return _ways[kind](thing)


def _way(kind: type) -> Callable[[Any], Any]:
    """How things of that type are described."""
    if hasattr(kind, "shape") and hasattr(kind, "dtype"):
        return lambda array: (kind, array.dtype, tuple(array.shape))
    if issubclass(kind, (tuple, list)):
        return lambda items: (kind, *map(_description, _short(items)))
    if issubclass(kind, dict):
        return lambda table: (kind, *map(_description, _short(table)), *map(_description, table.values()))
    if issubclass(kind, type):
        return lambda thing: (kind, thing)
    if issubclass(kind, Collection) and not issubclass(kind, (str, bytes, range)):
        return _no_further
    return lambda thing: kind


def _short(items: Any) -> Any:
    return items if len(items) <= LONGEST else _no_further(items)


def _no_further(thing: Any) -> Any:
    raise _More


def _once(function: Callable[..., Any], checks: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[..., Any]:
    """The function with its checks, which are passed over in a call that looks like one that was in order."""
    passed: dict[Hashable, set[Hashable]] = {}  # {what was given: what came out}
    if "<locals>" in function.__qualname__:  # made again and again
        hints = tuple((name, repr(hint)) for name, hint in function.__annotations__.items())
        passed = _passed.setdefault((function.__module__, function.__code__, hints), passed)

    @functools.cache
    def full() -> Callable[..., Any]:
        return checks(function)

    @functools.wraps(function)
    def once(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        given = described((args, kwargs))
        if given not in passed:
            result = full()(*args, **kwargs)
            if given is not None and (found := described(result)) is not None:
                passed[given] = {found}
            return result
        result = function(*args, **kwargs)
        found = described(result)
        if found is None or found not in passed[given]:
            checks(_giving(result, function))(*args, **kwargs)
            passed[given].add(found)
        return result

    vars(once)["full"] = full
    return once


def _unless_switched_off(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function checked by beartype alone, and only while jaxtyping is on: what checks shapes is called inside compiled graphs, which hold no check."""
    full = functools.cache(lambda: CHECK(function))

    @functools.wraps(function)
    def checked_or_plain(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        return (function if jaxtyping.config.jaxtyping_disable else full())(*args, **kwargs)

    if "<locals>" not in function.__qualname__:  # what `shaped` makes shows the check of what it wraps
        vars(checked_or_plain)["full"] = full
    return checked_or_plain


def _giving(result: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the same signature, in the same module, with this result."""

    def same(*args: Any, **kwargs: Any) -> Any:
        return result

    same = types.FunctionType(same.__code__, function.__globals__, function.__name__, None, same.__closure__)
    return functools.update_wrapper(same, function)


def install() -> None:
    """Modules of this package that are imported from now on are checked."""
    of_jaxtyping = jaxtyping.jaxtyped

    def jaxtyped(thing: Any = None, **options: Any) -> Any:
        if thing is None:
            return lambda thing: jaxtyped(thing, **options)
        home = getattr(thing, "__module__", "")
        # beartype alone would check a generator's arguments when it is first asked for something
        if not inspect.isfunction(thing) or not home.startswith("tlm_book.") or inspect.isgeneratorfunction(thing):
            return of_jaxtyping(thing, **options)
        if home == "tlm_book.checks":
            return _unless_switched_off(thing)
        if "<locals>" not in thing.__qualname__ and not any(map(may_hold_arrays, thing.__annotations__.values())):
            return CHECK(thing)
        return _once(thing, lambda function: of_jaxtyping(function, **options))

    vars(jaxtyping)["jaxtyped"] = jaxtyped  # the name by which the hook calls it
    jaxtyping.install_import_hook("tlm_book", "tlm_book.signatures.checked")

"""What `TLM_BOOK_TYPECHECK=1` turns on: every signature of the package is checked at run time, by jaxtyping and beartype, or by beartype alone.

jaxtyping's hook decorates every function while its module is imported. Three things are avoided that would take most of the time of a test
run. First, a signature without arrays has no axes to compare, so beartype alone checks it. Second, a check takes a thousand times as long to
generate as to run, so it is generated when its function is first called; for a nested function, which is made anew whenever the outer one runs,
it is kept. Third, no call is checked twice: the verdict depends only on the types of arguments and result and on the shapes of arrays (never
on their numbers), so a call in which all of these have passed together before runs unchecked.
"""

import functools
import inspect
import types
from collections.abc import Callable, Collection, Hashable
from typing import Any, get_args

import jaxtyping

try:  # not by `library`, since that is to be checked, too
    from beartype import BeartypeConf, beartype
except ImportError as error:
    raise ImportError("beartype: got no such library, want it installed: pip install 'tlm_book[typecheck]'") from error

__all__ = ["checked", "described", "may_hold_arrays", "install"]

# The numeric tower admits a whole number where a float is wanted, as Python itself does.
CHECK = beartype(conf=BeartypeConf(is_pep484_tower=True, violation_type=jaxtyping.TypeCheckError))
LONGEST = 32  # items of a list that are compared one by one
_seen: dict[Hashable, Callable[..., Any]] = {}
_passed: dict[Hashable, dict[Hashable, set[Hashable]]] = {}
_ways: dict[type, Callable[[Any], Any]] = {}


def checked(signature: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with its arguments and its result checked; `signature` is the function with an empty body that jaxtyping makes."""
    if "<locals>" not in signature.__qualname__:
        return CHECK(signature)
    hints = tuple((name, repr(hint)) for name, hint in signature.__annotations__.items())
    key = (signature.__module__, signature.__qualname__, signature.__code__.co_code, hints)
    if key not in _seen:
        _seen[key] = CHECK(signature)
    return _seen[key]


def may_hold_arrays(hint: Any) -> bool:
    """Whether a type may contain an array with axes; a name in quotes may stand for one."""
    if isinstance(hint, str) or inspect.isclass(hint) and issubclass(hint, jaxtyping.AbstractArray):
        return True
    return any(may_hold_arrays(part) for part in (hint if isinstance(hint, list) else get_args(hint)))


def described(thing: Any) -> Hashable:
    """All that a check looks at: types, shapes of arrays, the items of short lists; None if it may look at more."""
    try:
        found = _description(thing)
        hash(found)  # a shape that is not a number has no hash
    except (_More, TypeError):
        return None
    return found


class _More(Exception):
    """Raised when a check may look at more than is described."""


def _description(thing: Any) -> Hashable:
    kind = type(thing)
    if kind not in _ways:
        _ways[kind] = _way(kind)
    return _ways[kind](thing)


def _way(kind: type) -> Callable[[Any], Any]:
    """The function that describes things of this type."""
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
    """The function with its checks, which are skipped for a call that looks like one that has passed."""
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
        if jaxtyping.config.jaxtyping_disable:  # inside a compiled graph, which can hold no type check
            return function(*args, **kwargs)
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
    """The function, checked by beartype alone and only while jaxtyping is on: `checks` runs inside compiled graphs, which can hold no type check."""
    full = functools.cache(lambda: CHECK(function))

    @functools.wraps(function)
    def checked_or_plain(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        return (function if jaxtyping.config.jaxtyping_disable else full())(*args, **kwargs)

    if "<locals>" not in function.__qualname__:  # a function made by `shaped` shows the check of the one that it wraps
        vars(checked_or_plain)["full"] = full
    return checked_or_plain


def _giving(result: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function with the same signature, in the same module, that returns this result."""

    def same(*args: Any, **kwargs: Any) -> Any:
        return result

    same = types.FunctionType(same.__code__, function.__globals__, function.__name__, None, same.__closure__)
    return functools.update_wrapper(same, function)


def install() -> None:
    """Check the modules of this package that are imported from now on."""
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

"""What `TLM_BOOK_TYPECHECK=1` turns on: every signature of the package is checked at run time, by jaxtyping and beartype, or by beartype alone.

jaxtyping's hook decorates every function while its module is imported. Two things are spared, for they took most of the time of a test run. A signature
without arrays has no axes to compare, so that beartype is enough. And a function within a function is made anew whenever the outer one runs; the check of
its signature, which takes a thousand times as long to write as to run, is kept.
"""

import inspect
from collections.abc import Callable, Hashable
from typing import Any, get_args

import jaxtyping
from beartype import BeartypeConf, beartype

__all__ = ["checked", "may_hold_arrays", "install"]

# The tower lets a whole number stand where a float is wanted, as Python itself does.
CHECK = beartype(conf=BeartypeConf(is_pep484_tower=True, violation_type=jaxtyping.TypeCheckError))
_seen: dict[Hashable, Callable[..., Any]] = {}


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


def install() -> None:
    """Modules of this package that are imported from now on are checked."""
    of_jaxtyping = jaxtyping.jaxtyped

    def jaxtyped(thing: Any = None, **options: Any) -> Any:
        if thing is None:
            return lambda thing: jaxtyped(thing, **options)
        # what checks shapes is called inside compiled graphs, where jaxtyping can be switched off and beartype cannot
        home = getattr(thing, "__module__", "")
        ours = inspect.isfunction(thing) and home.startswith("tlm_book.") and home != "tlm_book.checks" and "<locals>" not in thing.__qualname__
        # beartype alone would check a generator's arguments when it is first asked for something
        if ours and not inspect.isgeneratorfunction(thing) and not any(map(may_hold_arrays, thing.__annotations__.values())):
            return CHECK(thing)
        return of_jaxtyping(thing, **options)

    vars(jaxtyping)["jaxtyped"] = jaxtyped  # the name by which the hook calls it
    jaxtyping.install_import_hook("tlm_book", "tlm_book.signatures.checked")

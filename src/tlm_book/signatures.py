"""What `TLM_BOOK_TYPECHECK=1` turns on: beartype, which remembers the signatures that it has seen.

A function within a function is made anew whenever the outer one runs, and jaxtyping then asks for a check of its signature anew. Writing that check takes
a thousand times as long as running it.
"""

from collections.abc import Callable, Hashable
from typing import Any

from beartype import BeartypeConf, beartype

__all__ = ["checked"]

# The tower lets a whole number stand where a float is wanted, as Python itself does.
CHECK = beartype(conf=BeartypeConf(is_pep484_tower=True))
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

"""Argument checks. Every error of the package is made here, in one form: argument, what came, what is wanted.

Written by hand. Works on numpy arrays and torch tensors alike and imports neither torch nor a chapter,
so that the specification may use it too.
"""

import difflib
import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ParamSpec, TypeVar

__all__ = ["shaped", "named", "did_you_mean", "expects", "expects_names", "expects_one_of", "expects_positive", "expects_shape", "expects_tokens", "expects_length"]

P = ParamSpec("P")
R = TypeVar("R")


def expects(condition: object, argument: str, got: object, wants: str, error: type[Exception] = ValueError) -> None:
    """Raise `error` with the message "argument: got …, want …" unless `condition` holds.

    >>> expects(False, "d_model", 7, "an even number")
    Traceback (most recent call last):
    ...
    ValueError: d_model: got 7, want an even number
    """
    if not condition:
        raise error(f"{argument}: got {got}, want {wants}")


def did_you_mean(got: str, names: Sequence[str]) -> str:
    """"; did you mean …?" with the nearest of the names, or nothing where none is near.

    >>> did_you_mean("topk", ["temperature", "top_k", "top_p"])
    '; did you mean top_k?'
    """
    near = difflib.get_close_matches(got, names, 1)
    return f"; did you mean {near[0]}?" if near else ""


def expects_names(given: Iterable[str], names: Sequence[str]) -> None:
    """Each of the given names of arguments is one of `names`; TypeError otherwise, which says the nearest."""
    for name in given:
        expects(name in names, name, "an unknown argument", f"one of {', '.join(names)}{did_you_mean(name, names)}", TypeError)


Kind = TypeVar("Kind")


def named(kind: type[Kind]) -> type[Kind]:
    """The dataclass, which answers to an unknown field with the nearest that there is. TypeError, as before."""
    made: Any = kind

    def new(cls: Any, *args: Any, **fields: Any) -> Any:  # before __init__, which stays as the dataclass made it
        expects_names(fields, list(cls.__dataclass_fields__))
        return object.__new__(cls)

    made.__new__ = new
    return kind


def expects_one_of(argument: str, got: object, choices: Sequence[object]) -> None:
    """`got` is one of `choices`; ValueError otherwise."""
    expects(got in choices, argument, repr(got), "one of " + ", ".join(map(repr, choices)))


def expects_positive(**sizes: Any) -> None:
    """Each keyword is an integer ≥ 1; TypeError for another type, ValueError for a smaller number."""
    for argument, got in sizes.items():
        expects(isinstance(got, int) and not isinstance(got, bool), argument, repr(got), "a whole number", TypeError)
        expects(got >= 1, argument, got, "at least 1")


def expects_shape(argument: str, array: Any, wants: Sequence[int | str | None]) -> None:
    """The array's trailing axes are `wants`: a number fixes an axis, a name or None leaves it free.

    >>> import numpy as np
    >>> expects_shape("X", np.zeros((3, 4)), ("n", 5))
    Traceback (most recent call last):
    ...
    ValueError: X: got shape (3, 4), want (n, 5)
    """
    got = tuple(array.shape)
    tail = got[len(got) - len(wants):]
    fits = len(got) >= len(wants) and all(not isinstance(w, int) or w == g for w, g in zip(wants, tail))
    if not fits:  # the message is built only when it is needed: torch.compile cannot trace it
        lead = "…, " if len(got) > len(wants) else ""
        expects(False, argument, f"shape {got}", f"({lead}{', '.join('any' if w is None else str(w) for w in wants)})")


def expects_tokens(argument: str, tokens: Any, vocab_size: int) -> None:
    """Every token is an integer in {0, …, vocab_size − 1}: TypeError for another type, IndexError outside the range."""
    expects(hasattr(tokens, "dtype"), argument, type(tokens).__name__, "an array or tensor of integer tokens", TypeError)
    whole = str(tokens.dtype).removeprefix("torch.").removeprefix("u").startswith("int")
    expects(whole, argument, f"dtype {tokens.dtype}", "integer tokens", TypeError)
    if 0 in tuple(tokens.shape):
        return
    low, high = int(tokens.min()), int(tokens.max())
    expects(0 <= low and high < vocab_size, argument, f"a token {low if low < 0 else high}",
            f"tokens from 0 to {vocab_size - 1} (vocab_size = {vocab_size})", IndexError)


def expects_length(argument: str, n: int, max_len: int) -> None:
    """A sequence has 1 ≤ n ≤ max_len rows; ValueError otherwise."""
    expects(1 <= n <= max_len, argument, f"{n} rows", f"from 1 to max_len = {max_len} rows")


def shaped(function: Callable[P, R]) -> Callable[P, R]:
    """The function, its arrays checked against its annotations before its body runs. Lists, tuples and torch tensors are
    made arrays first.

    An axis that two arguments name alike has one length, "2" is an axis of length 2, "_" any axis and "..." any number
    of axes. Int in an annotation wants integers, Float and Real real numbers; "| None" lets None through. The message gives the lengths that are known by then.

    TypeError for what is no array and for another kind of number, ValueError for another shape.

    >>> import numpy as np
    >>> from jaxtyping import Float
    >>> @shaped
    ... def product(A: Float[np.ndarray, "n k"], B: Float[np.ndarray, "k m"]) -> Float[np.ndarray, "n m"]:
    ...     return A @ B
    >>> product(np.zeros((3, 4)), np.zeros((5, 2)))
    Traceback (most recent call last):
    ...
    ValueError: B: got shape (5, 2), want (4, m)
    """
    signature = inspect.signature(function)
    wanted = {name: found for name, parameter in signature.parameters.items() if (found := _array_type(parameter.annotation))}

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return function(*args, **kwargs)  # Python's own message names the function
        given, sizes = bound.arguments, dict[str, int]()
        for name, annotation in wanted.items():
            if given.get(name) is not None or not _may_be_none(signature.parameters[name]):
                given[name] = _made_array(name, given[name], annotation)
                _expects_fit(name, given[name], annotation, sizes)
        return function(*bound.args, **bound.kwargs)

    return checked


def _array_type(annotation: Any) -> Any:
    """The jaxtyping type in `Float[...]` or `Float[...] | None`; None when there is none (a function of arrays is no array)."""
    choices = typing.get_args(annotation) if typing.get_origin(annotation) in (typing.Union, types.UnionType) else (annotation,)
    return next((kind for kind in choices if hasattr(kind, "dim_str")), None)


def _may_be_none(parameter: inspect.Parameter) -> bool:
    return parameter.default is not parameter.empty or type(None) in typing.get_args(parameter.annotation)


def _made_array(argument: str, thing: Any, wants: Any) -> Any:
    """A list, a tuple or a torch tensor as an array; anything else as it is. What has to be real becomes float64, and stays whole otherwise."""
    if not isinstance(thing, (list, tuple)) and not hasattr(thing, "detach"):
        return thing
    from tlm_book.arrays import (  # numpy only where there are arrays
        as_array,
        as_numbers,
    )

    try:
        array = as_array(thing) if hasattr(thing, "detach") else as_numbers(thing)
    except (ValueError, TypeError):
        wish = f"an array of shape ({', '.join(wants.dim_str.split())})"
        expects(False, argument, f"a {type(thing).__name__} that is no array of numbers", wish, TypeError)
    whole = not wants.__name__.startswith("Float") or array.dtype.kind not in "iu"
    return array if whole else array.astype(float)


def _expects_fit(argument: str, array: Any, wants: Any, sizes: dict[str, int]) -> None:
    """`array` has the axes and the kind of number of the jaxtyping type `wants`; the lengths of named axes are kept in `sizes`."""
    axes = wants.dim_str.split()
    wish = "(" + ", ".join(str(sizes.get(axis, "any" if axis == "_" else axis)) for axis in axes) + ")"
    expects(hasattr(array, "shape"), argument, type(array).__name__, f"an array of shape {wish}", TypeError)
    whole = "int" in str(array.dtype)
    expects(whole or not wants.__name__.startswith("Int"), argument, f"dtype {array.dtype}", "integers", TypeError)
    real = whole or any(kind in str(array.dtype) for kind in ("float", "bool"))
    expects(real or wants.__name__.startswith("Shaped"), argument, f"dtype {array.dtype}", "real numbers", TypeError)
    shape = tuple(array.shape)
    if "..." in axes:
        free, fixed = axes.index("..."), len(axes) - 1
        fits = len(shape) >= fixed
        pairs = [*zip(axes[:free], shape), *zip(axes[free + 1 :], shape[len(shape) - fixed + free :])]
    else:
        fits, pairs = len(shape) == len(axes), list(zip(axes, shape))
    for axis, size in pairs:
        if axis != "_":
            fits = fits and (int(axis) if axis.isdigit() else sizes.setdefault(axis, size)) == size
    expects(fits, argument, f"shape {shape}", wish)

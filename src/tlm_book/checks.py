"""Argument checks. Every error of the package is made here, in one form: argument, what came, what is wanted.

Written by hand. Works on numpy arrays and torch tensors alike and imports neither torch nor a chapter,
so that the specification may use it too.
"""

import difflib
import functools
import inspect
import operator
import types
import typing
from collections.abc import Callable, Collection, Iterable, Sequence
from numbers import Integral
from typing import Any, NoReturn, ParamSpec, TypeVar

__all__ = ["shaped", "with_suggestions", "did_you_mean", "expects", "expects_floats", "expects_integers", "expects_kind", "refuse", "expects_names", "expects_numbers", "expects_one_of", "expects_positive", "expects_several", "expects_shape", "expects_switches", "expects_text", "expects_tokens", "expects_length", "expects_mask", "expects_whole", "is_whole", "plain_fields"]

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


def expects_kind(argument: str, got: object, kind: type | types.UnionType, wants: str) -> None:
    """Check that `got` is of this kind; TypeError otherwise.

    >>> expects_kind("text", 7, str, "a str")
    Traceback (most recent call last):
    ...
    TypeError: text: got int, want a str
    """
    expects(isinstance(got, kind), argument, type(got).__name__, wants, TypeError)


def refuse(argument: str, got: object, wants: str, error: type[Exception] = ValueError) -> NoReturn:
    """Raise ValueError, or another `error`, with the message of `expects`, when it is already known that something is wrong."""
    raise error(f"{argument}: got {got}, want {wants}")


def did_you_mean(got: str, names: Sequence[str]) -> str:
    """The text "; did you mean …?" with the nearest of the names, or "" if none is near.

    >>> did_you_mean("topk", ["temperature", "top_k", "top_p"])
    '; did you mean top_k?'
    """
    near = difflib.get_close_matches(got, names, 1)
    return f"; did you mean {near[0]}?" if near else ""


def expects_names(given: Iterable[str], names: Sequence[str]) -> None:
    """Check that each given argument name is one of `names`; TypeError otherwise, which suggests the nearest."""
    for name in given:
        if name not in names:
            refuse(name, "an unknown argument", f"one of {', '.join(names)}{did_you_mean(name, names)}", TypeError)


Kind = TypeVar("Kind")


def with_suggestions(kind: type[Kind]) -> type[Kind]:
    """The dataclass, changed so that its TypeError for an unknown field suggests the nearest field."""
    made: Any = kind

    def new(cls: Any, *args: Any, **fields: Any) -> Any:  # runs before __init__, which stays as the dataclass made it
        expects_names(fields, list(cls.__dataclass_fields__))
        return object.__new__(cls)

    made.__new__ = new
    made.__signature__ = inspect.Signature([*inspect.signature(made.__init__).parameters.values()][1:])  # for help() and editors
    return kind


def expects_one_of(argument: str, got: object, choices: Sequence[object]) -> None:
    """Check that `got` is one of `choices`; ValueError otherwise."""
    expects(got in choices, argument, repr(got), "one of " + ", ".join(map(repr, choices)))


def expects_positive(**sizes: Any) -> None:
    """Check that each keyword is an integer ≥ 1; TypeError for another type, ValueError for a smaller number."""
    for argument, got in sizes.items():
        if not isinstance(got, int) or isinstance(got, bool):
            refuse(argument, repr(got), "an int" if is_whole(got) else "a whole number", TypeError)
        expects(got >= 1, argument, got, "at least 1")


def is_whole(got: object) -> bool:
    """Whether this is a whole number of Python or numpy; a bool is not."""
    return isinstance(got, Integral) and not isinstance(got, bool)


def expects_whole(**given: Any) -> None:
    """Check that each keyword is a whole number; TypeError otherwise."""
    for argument, got in given.items():
        expects(is_whole(got), argument, repr(got), "a whole number", TypeError)


def expects_numbers(**given: Any) -> None:
    """Check that each keyword is an int or a float; TypeError otherwise."""
    for argument, got in given.items():
        expects(isinstance(got, int | float) and not isinstance(got, bool), argument, repr(got), "a number", TypeError)


def expects_switches(**given: Any) -> None:
    """Check that each keyword is True or False; TypeError otherwise."""
    for argument, got in given.items():
        expects(isinstance(got, bool), argument, repr(got), "True or False", TypeError)


def plain_fields(made: Any) -> None:
    """Turn single numbers of numpy and torch in the fields of a frozen dataclass into Python's own, which can be written into a file."""
    for name in made.__dataclass_fields__:
        object.__setattr__(made, name, _plain(getattr(made, name)))


def _plain(got: Any) -> Any:
    if type(got) is tuple:
        return tuple(map(_plain, got))
    return got.item() if hasattr(got, "item") and getattr(got, "shape", None) == () else got


def expects_shape(argument: str, array: Any, wants: Sequence[int | str | None]) -> None:
    """Check that the array's trailing axes are `wants`: a number fixes an axis, a name or None leaves it free.

    >>> import numpy as np
    >>> expects_shape("X", np.zeros((3, 4)), ("n", 5))
    Traceback (most recent call last):
    ...
    ValueError: X: got shape (3, 4), want (n, 5)
    """
    got = tuple(array.shape)
    tail = got[len(got) - len(wants):]
    fits = len(got) >= len(wants) and all(not isinstance(w, int) or w == g for w, g in zip(wants, tail))
    if not fits:  # build the message only when it is needed: torch.compile cannot trace it
        lead = "…, " if len(got) > len(wants) else ""
        refuse(argument, f"shape {got}", f"({lead}{', '.join('any' if w is None else str(w) for w in wants)})")


def expects_mask(argument: str, mask: Any, shape: tuple[int, ...] | None = None) -> None:
    """Check that a mask holds True and False, TypeError otherwise, and that it has this shape, without leading axes; ValueError otherwise."""
    if str(mask.dtype).removeprefix("torch.") != "bool":
        refuse(argument, f"dtype {mask.dtype}", "True and False", TypeError)
    if shape is not None and tuple(mask.shape) != shape:
        refuse(argument, f"shape {tuple(mask.shape)}", f"({', '.join(map(str, shape))})")


def expects_floats(argument: str, x: Any) -> None:
    """Check that this is a tensor of floating point numbers, and not of tokens, say; TypeError otherwise."""
    if not hasattr(x, "is_floating_point"):
        refuse(argument, type(x).__name__, "a tensor", TypeError)
    if not x.is_floating_point():
        refuse(argument, f"dtype {x.dtype}", "floating point numbers", TypeError)


def expects_several(argument: str, values: object, wants: str, kind: type = Iterable) -> None:
    """TypeError unless `values` is of this kind and not a single text, whose letters would be taken one by one.

    >>> expects_several("texts", "tea", "a list of str")
    Traceback (most recent call last):
    ...
    TypeError: texts: got one str, want a list of str
    """
    one = isinstance(values, str)
    expects(isinstance(values, kind) and not one, argument, "one str" if one else type(values).__name__, wants, TypeError)


def expects_tokens(argument: str, tokens: Any, vocab_size: int) -> None:
    """Check that every token is an integer in {0, …, vocab_size − 1}: TypeError for another type, IndexError outside the range."""
    expects_integers(argument, tokens)
    if 0 in tuple(tokens.shape):
        return
    low, high = int(tokens.min()), int(tokens.max())
    expects(0 <= low and high < vocab_size, argument, f"a token {low if low < 0 else high}",
            f"tokens from 0 to {vocab_size - 1} (vocab_size = {vocab_size})", IndexError)


def expects_text(argument: str, tokens: Any) -> None:
    """Check for one text, a row of integer tokens in a tensor: TypeError for another kind, ValueError for another shape (several texts)."""
    expects(hasattr(tokens, "unfold"), argument, type(tokens).__name__, "a tensor of integer tokens", TypeError)
    expects_integers(argument, tokens)
    expects(tokens.ndim == 1, argument, f"shape {tuple(tokens.shape)}", "(N), one row of tokens")


def holds_integers(tokens: Any) -> bool:
    """Whether this is an array or tensor of integers, of numpy's or torch's kinds."""
    return str(getattr(tokens, "dtype", "")).removeprefix("torch.").startswith(("int", "uint"))


def expects_integers(argument: str, tokens: Any) -> None:
    """Check for an array or tensor of integers; TypeError otherwise."""
    if not hasattr(tokens, "dtype"):
        refuse(argument, type(tokens).__name__, "an array or tensor of integer tokens", TypeError)
    if not holds_integers(tokens):
        refuse(argument, f"dtype {tokens.dtype}", "integer tokens", TypeError)


def expects_length(argument: str, n: int, max_len: int) -> None:
    """Check that a sequence has 1 ≤ n ≤ max_len rows; ValueError otherwise."""
    expects(1 <= n <= max_len, argument, f"{n} rows", f"from 1 to max_len = {max_len} rows")


Reader = Callable[[str, Any, dict[str, int]], Any]  # (name of the argument, its value, lengths known so far) → what the function is given


def shaped(function: Callable[P, R]) -> Callable[P, R]:
    """The function, with its arguments checked against its annotations before its body runs. Lists, tuples and torch tensors
    become arrays where an array is expected, and lists where tokens are.

    Axes of the same name have the same length; "2" is an axis of length 2, "_" any axis and "..." any number of axes. Int in an
    annotation asks for integers, Float and Real for real numbers; "| None" also admits None, "| float" a number. The message gives
    the lengths known so far. Whole numbers, numbers, texts, tokens, merges and functions are checked, too.

    TypeError for anything but an array (number, text, …), for another kind of number and for an unknown argument;
    ValueError for another shape.

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
    kinds = [one.kind for one in signature.parameters.values()]
    known = {name: one for name, one in signature.parameters.items() if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)}
    readers = {name: (reader, _may_be_none(one)) for name, one in known.items() if (reader := _reader(one.annotation))}
    in_order = [name for name, one in known.items() if one.kind is one.POSITIONAL_OR_KEYWORD]
    needed = sum(one.default is one.empty for one in known.values())
    closed = inspect.Parameter.VAR_KEYWORD not in kinds
    plain: Callable[..., R] = function

    def read(given: dict[str, Any]) -> None:
        sizes = dict[str, int]()
        for name, (reader, optional) in readers.items():
            if name in given and not (optional and given[name] is None):
                given[name] = reader(name, given[name], sizes)

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        if not kwargs and needed <= len(args) <= len(in_order):  # the usual call, which needs no binding
            given = dict(zip(in_order, args))
            read(given)
            return plain(*given.values())
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            if closed:
                expects_names(kwargs, list(known))
            return function(*args, **kwargs)  # Python's own message names the function
        read(bound.arguments)
        return function(*bound.args, **bound.kwargs)

    return checked


def _may_be_none(parameter: inspect.Parameter) -> bool:
    return parameter.default is None or type(None) in typing.get_args(parameter.annotation)


# What an annotation wants


def _reader(annotation: Any) -> Reader | None:
    """The function that reads an argument of this type; None if anything is allowed."""
    union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    kinds = [kind for kind in (typing.get_args(annotation) if union else (annotation,)) if kind is not type(None)]
    if array := next((kind for kind in kinds if hasattr(kind, "dim_str")), None):
        read = functools.partial(_read_array, wants=array, axes=_axes(array))
        return functools.partial(_read_entries, read=read) if float in kinds else read
    return _plain_reader(kinds[0]) if len(kinds) == 1 else None


def _plain_reader(kind: Any) -> Reader | None:
    """The same for a type that is neither an array nor a choice between two kinds."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind in _SCALARS:
        return _SCALARS[kind]
    if origin is Callable:
        return _read_function
    if origin is tuple and parts == (int, int):
        return _read_pair
    if origin in (list, Sequence) and parts[0] in (int, str):
        return functools.partial(_read_words, kind=parts[0], made=origin)
    if origin in (list, Sequence) and (inner := _reader(parts[0])):
        return functools.partial(_read_each, inner=inner)
    return _read_several if origin in (Collection, Iterable) else None


def _read_whole(argument: str, thing: Any, sizes: dict[str, int]) -> Any:
    if type(thing) is int:
        return thing
    try:
        right = not isinstance(thing, bool) and operator.index(thing) is not None
    except TypeError:
        right = False
    expects(right, argument, repr(thing), "a whole number", TypeError)
    return thing


def _read_number(argument: str, thing: Any, sizes: dict[str, int]) -> Any:
    if type(thing) is float:
        return thing
    right = hasattr(thing, "__float__") and not getattr(thing, "shape", ())
    expects(right, argument, repr(thing), "a number", TypeError)
    return thing


def _read_text(argument: str, thing: Any, sizes: dict[str, int]) -> Any:
    if type(thing) is str:
        return thing
    expects_kind(argument, thing, str, "str")
    return thing


_SCALARS: dict[Any, Reader] = {int: _read_whole, float: _read_number, str: _read_text}


def _read_function(argument: str, thing: Any, sizes: dict[str, int]) -> Any:
    expects(callable(thing), argument, type(thing).__name__, "a function", TypeError)
    return thing


def _listed(argument: str, thing: Any, of: str) -> Any:
    """An iterable, with arrays and tensors as lists of Python's numbers; TypeError for a single str and for anything that is not iterable."""
    expects(not isinstance(thing, str), argument, "a single str", "a list of them" if of == "str" else f"a list of {of}", TypeError)
    expects(hasattr(thing, "__iter__"), argument, type(thing).__name__, f"a list of {of}", TypeError)
    return thing.tolist() if hasattr(thing, "tolist") else thing


def _read_words(argument: str, thing: Any, sizes: dict[str, int], kind: type, made: Any) -> Any:
    """Tokens, or pieces of text: a list if `made` is list, otherwise any sequence of them."""
    if type(thing) is list and set(map(type, thing)) <= {kind}:
        return thing
    of = "str" if kind is str else "whole numbers"
    things = _listed(argument, thing, of)
    if not isinstance(things, list if made is list else (list, tuple, range, bytes, bytearray)):
        things = list(things)
    if not set(map(type, things)) <= {kind}:
        for i, one in enumerate(things):
            right = isinstance(one, str) if kind is str else hasattr(one, "__index__") and not getattr(one, "shape", ())
            expects(right, argument, f"{one!r} at {i}", f"a list of {of}", TypeError)
        things = things if kind is str else [operator.index(one) for one in things]
    return things


def _read_pair(argument: str, thing: Any, sizes: dict[str, int]) -> Any:
    if type(thing) is tuple and tuple(map(type, thing)) == (int, int):
        return thing
    right = isinstance(thing, (list, tuple)) and len(thing) == 2 and all(hasattr(one, "__index__") for one in thing)
    expects(right, argument, repr(thing), "a pair of whole numbers", TypeError)
    return tuple(thing)


def _read_each(argument: str, thing: Any, sizes: dict[str, int], inner: Reader) -> Any:
    """A list of arrays, of lists of tokens or of pairs; the message says which entry is wrong."""
    return [inner(f"{argument}[{i}]", one, sizes) for i, one in enumerate(_listed(argument, thing, "them"))]


def _read_several(argument: str, thing: Any, sizes: dict[str, int]) -> Any:
    expects(hasattr(thing, "__iter__"), argument, type(thing).__name__, "several", TypeError)
    return thing


def _read_entries(argument: str, thing: Any, sizes: dict[str, int], read: Reader) -> Any:
    """An array, or one number as it is."""
    return thing if isinstance(thing, (int, float)) else read(argument, thing, sizes)


def _axes(wants: Any) -> list[str]:
    """The axes of a jaxtyping type, "..." for any number of them."""
    return ["..." if axis.startswith("*") else axis for axis in wants.dim_str.split()]


def _read_array(argument: str, thing: Any, sizes: dict[str, int], wants: Any, axes: list[str]) -> Any:
    if (kind := wants.array_type).__name__ != "ndarray":
        expects_kind(argument, thing, kind, f"a {kind.__name__}")
        return thing
    if type(thing) is kind and axes == ["..."] and (wants.__name__.startswith("Shaped") or thing.dtype.kind == "f"):
        return thing
    array = _made_array(argument, thing, wants)
    _expects_fit(argument, array, wants, axes, sizes)
    return array


def _made_array(argument: str, thing: Any, wants: Any) -> Any:
    """A list, a tuple or a torch tensor as an array; anything else but an array as it is. Where real numbers are wanted, whole ones and those of 16 bits
    become float64, so that none overflows; an array without entries becomes one of the wanted kind."""
    array = _as_array(argument, thing, wants)
    if not hasattr(array, "astype"):
        return array
    if wants.__name__.startswith("Int"):
        return array.astype(int) if array.size == 0 else array
    narrow = array.dtype.kind in "iu" or array.dtype.name == "float16"
    return array.astype(float) if narrow and wants.__name__.startswith("Float") else array


def _as_array(argument: str, thing: Any, wants: Any) -> Any:
    if not isinstance(thing, (list, tuple)) and not hasattr(thing, "detach"):
        return thing
    from tlm_book.arrays import (  # numpy is loaded only if there are arrays
        as_array,
        as_numbers,
    )

    try:
        return as_array(thing) if hasattr(thing, "detach") else as_numbers(thing)
    except (ValueError, TypeError):
        wish = f"an array of shape ({', '.join(wants.dim_str.split())})"
        refuse(argument, f"a {type(thing).__name__} that is no array of numbers", wish, TypeError)


def _expects_fit(argument: str, array: Any, wants: Any, axes: list[str], sizes: dict[str, int]) -> None:
    """Check that `array` has the axes and the kind of number of the jaxtyping type `wants`; `sizes` collects the lengths of named axes."""
    if not hasattr(array, "shape"):
        refuse(argument, type(array).__name__, "an array" if axes == ["..."] else f"an array of shape {_wish(axes, sizes)}", TypeError)
    kind, name = getattr(array.dtype, "kind", ""), wants.__name__
    if kind not in ("i", "u"):
        if name.startswith("Int"):
            refuse(argument, f"dtype {array.dtype}", "integers", TypeError)
        if kind not in ("f", "b") and not name.startswith("Shaped"):
            refuse(argument, f"dtype {array.dtype}", "real numbers", TypeError)
    shape, before = tuple(array.shape), dict(sizes)
    if "..." in axes:
        free, fixed = axes.index("..."), len(axes) - 1
        fits = len(shape) >= fixed
        pairs = [*zip(axes[:free], shape), *zip(axes[free + 1 :], shape[len(shape) - fixed + free :])]
    else:
        fits, pairs = len(shape) == len(axes), list(zip(axes, shape))
    for axis, size in pairs:
        if axis != "_":
            fits = fits and (int(axis) if axis.isdigit() else sizes.setdefault(axis, size)) == size
    if not fits:
        refuse(argument, f"shape {shape}", _wish(axes, before))


def _wish(axes: list[str], sizes: dict[str, int]) -> str:
    return "(" + ", ".join(str(sizes.get(axis, "any" if axis == "_" else axis)) for axis in axes) + ")"

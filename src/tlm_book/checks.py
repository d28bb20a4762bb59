"""Argument checks. Every error of the package is made here, in one form: argument, what came, what is wanted.

Written by hand. Works on numpy arrays and torch tensors alike and imports neither torch nor a chapter,
so that the specification may use it too.
"""

from collections.abc import Sequence
from typing import Any

__all__ = ["expects", "expects_one_of", "expects_positive", "expects_shape", "expects_tokens", "expects_length"]


def expects(condition: object, argument: str, got: object, wants: str, error: type[Exception] = ValueError) -> None:
    """Raise `error` with the message "argument: got …, want …" unless `condition` holds.

    >>> expects(False, "d_model", 7, "an even number")
    Traceback (most recent call last):
    ...
    ValueError: d_model: got 7, want an even number
    """
    if not condition:
        raise error(f"{argument}: got {got}, want {wants}")


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

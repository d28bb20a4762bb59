"""Tokens and their byte strings: all that decoding needs."""

import operator
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex

from tlm_book.checks import expects, expects_kind, expects_several, refuse
from tlm_book.spec.tokenization import TokenPair
from tlm_book.tokenization.bpe import byte_strings

__all__ = ["MOST_BYTES", "Tokens", "Vocabulary", "checked_specials"]

MOST_BYTES = 10**9  # of all tokens together: a file with 45 merges, each of which doubles a token, would need 70,000 times as many


class Tokens:
    """Numbered tokens, the byte string of each, and the names of those that stand for no text.

    specials  {name: token}
    start     the first special's token: start marker and document separator; ValueError if there is no special
    """

    _bytes: list[bytes]  # of each token
    specials: dict[str, int]

    def __len__(self) -> int:
        return len(self._bytes)

    @property
    def start(self) -> int:
        """The token of the first special."""
        expects(len(self.specials) > 0, "specials", "none", "at least one, to serve as start marker")
        return next(iter(self.specials.values()))

    @property
    def stop(self) -> int:
        """The token that ends a document: here the same as `start`."""
        return self.start

    def token_bytes(self, token: SupportsIndex) -> bytes:
        """The byte string for which a token stands; for a special, that of its name. Errors as in `decode_bytes`."""
        number = _integer(token)
        if number is None:
            refuse("token", repr(token), "an integer", TypeError)
        expects(0 <= number < len(self), "token", number, f"a token from 0 to {len(self) - 1}", IndexError)
        return self._bytes[number]

    def token_text(self, token: SupportsIndex) -> str:
        """A token as printable text: ␣ for a space, escapes for other invisible characters and for bytes that form no character."""
        text = self.token_bytes(token).decode("utf-8", errors="backslashreplace").replace(" ", "␣")
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)

    def decode_bytes(self, tokens: Iterable[SupportsIndex]) -> bytes:
        """The bytes of the tokens, one after the other. (T-decoding)

        IndexError for an unknown token, TypeError for anything but an integer."""
        expects_several("tokens", tokens, "several integers")
        expects(getattr(tokens, "shape", None) != (), "tokens", "a single number", "several integers", TypeError)
        given, end = list(tokens), len(self)
        plain = [token for token in given if type(token) is int and 0 <= token < end]
        if len(plain) == len(given):  # nearly always so
            return b"".join([self._bytes[token] for token in plain])
        return b"".join(map(self.token_bytes, given))

    def decode(self, tokens: Iterable[SupportsIndex]) -> str:
        """The text of the tokens; bytes that form no character become U+FFFD. Errors as in `decode_bytes`. (T-decoding)"""
        return self.decode_bytes(tokens).decode("utf-8", errors="replace")

    def check_same(self, other: "Tokens", argument: str = "other") -> None:
        """Check that every token is the same in both, so that each may decode the other's tokens; else a ValueError names `argument` and the first difference.

        TypeError for an object without tokens."""
        expects_kind(argument, other, Tokens, "a Vocabulary or Tokenizer")
        expects(len(self) == len(other), argument, f"{len(other)} tokens", f"{len(self)} tokens")
        for token in range(len(self)):
            if self._known_as(token) != other._known_as(token):
                refuse(argument, f"token {token} = {other._shown(token)}", self._shown(token))

    def _known_as(self, token: int) -> tuple[bytes, bool]:
        return self._bytes[token], token in self.specials.values()

    def _shown(self, token: int) -> str:
        return self.token_text(token) + " (special)" * self._known_as(token)[1]


class Vocabulary(Tokens):
    """The tokens of a byte pair encoding and their byte strings: all that decoding needs. (B-bpe-object)

    merges   list of pairs of integers of Python, numpy or torch; pair number k makes token 256 + k
    specials {name: token}, numbered after the merges
    ids      for another numbering: token t of `merges` is known outside as ids[t], a permutation of 0, …, V − 1
    start    the first special's token: start marker and document separator; ValueError if there is no special

    Only `merges` uses the numbering above. All methods, `specials` and `start` use the numbers in `ids`.

    ValueError if a merge uses a token that does not come before it, if a merge or a special occurs twice, if a special's name is empty or
    not printable, if all tokens together would have more than MOST_BYTES bytes, or if `ids` is not a permutation; TypeError for arguments of
    the wrong type.
    """

    def __init__(
        self,
        merges: Iterable[Iterable[SupportsIndex]],
        specials: Sequence[str] = ("<|endoftext|>",),
        *,
        ids: Iterable[SupportsIndex] | None = None,
    ) -> None:
        self.merges = _checked_merges(merges)
        names = checked_specials(specials)
        strings = [*byte_strings(self.merges), *(name.encode("utf-8") for name in names)]
        self.ids = _checked_ids(ids, len(strings))
        self.specials = dict(zip(names, self.ids[256 + len(self.merges) :]))
        self._bytes = [b""] * len(strings)
        for number, string in zip(self.ids, strings):
            self._bytes[number] = string

    def __repr__(self) -> str:
        sizes = f"vocab_size={len(self)}, merges={len(self.merges)}"
        return f"{type(self).__name__}({sizes}, specials={list(self.specials)})"


# ---- checks of arguments


def _integer(number: Any) -> int | None:
    """An integer of Python, numpy or torch as an int; None for a bool and for anything else."""
    if type(number) is int:
        return number
    truth = isinstance(number, bool) or str(getattr(number, "dtype", "")).endswith("bool")  # torch's can be an index
    try:
        return None if truth else operator.index(number)
    except TypeError:
        return None


def _checked_pair(pair: Iterable[SupportsIndex], k: int) -> TokenPair:
    """Merge number k, after a check that its tokens come before it."""
    try:
        a, b = map(_integer, pair)
    except (TypeError, ValueError):  # a single number, or a tuple of another length
        a = b = None
    if a is None or b is None:
        refuse("merges", f"{pair!r} as number {k}", "pairs of integers", TypeError)
    if min(a, b) < 0 or max(a, b) >= 256 + k:
        refuse("merges", f"{(a, b)} as number {k}", f"tokens from 0 to {255 + k}")
    return a, b


def _checked_merges(merges: Iterable[Iterable[SupportsIndex]]) -> list[TokenPair]:
    expects_several("merges", merges, "pairs of integers")
    pairs: list[TokenPair] = []
    lengths = [1] * 256  # of the tokens, in bytes
    total = sum(lengths)
    for k, pair in enumerate(merges):
        a, b = _checked_pair(pair, k)
        pairs.append((a, b))
        lengths.append(lengths[a] + lengths[b])
        total += lengths[-1]
        if total > MOST_BYTES:
            refuse("merges", f"tokens of {total:,} bytes together, up to number {k}", f"at most {MOST_BYTES:,} bytes")
    expects(len(set(pairs)) == len(pairs), "merges", "a pair twice", "different pairs")
    return pairs


def checked_specials(specials: Sequence[str]) -> list[str]:
    """The names of specials; ValueError and TypeError as `Vocabulary` says."""
    expects_several("specials", specials, "several names, such as a list of str")
    names = list(specials)
    for name in names:
        expects(isinstance(name, str), "specials", repr(name), "names of type str", TypeError)
        expects(name != "" and name.isprintable(), "specials", repr(name), "names that are printable and not empty")
    expects(len(set(names)) == len(names), "specials", names, "different names")
    return names


def _checked_ids(ids: Iterable[SupportsIndex] | None, size: int) -> list[int]:
    if ids is None:
        return list(range(size))
    expects_several("ids", ids, "integers")
    given = list(ids)
    numbers = [number for number in map(_integer, given) if number is not None]
    expects(len(numbers) == len(given), "ids", "something that is no integer", "integers", TypeError)
    expects(sorted(numbers) == list(range(size)), "ids", f"{len(numbers)} numbers", f"each number from 0 to {size - 1} once")
    return numbers

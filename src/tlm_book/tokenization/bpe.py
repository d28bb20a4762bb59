"""Byte pair encoding by its rules: cutting, merging, encoding smallest rank first, and the bytes of each token. Generated from book/tokenization.ipynb: edit the notebook, then `make export`."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import regex

from tlm_book.checks import expects, expects_kind
from tlm_book.spec.tokenization import TokenPair

__all__ = [
    "PATTERN",
    "GPT2_PATTERN",
    "pre_tokens",
    "merge",
    "encode_bytes",
    "byte_strings",
]


# --- Cutting into pre-tokens


PATTERN = "|".join(
    [
        r"[ '’]?[\p{L}\p{M}]+",  # a word, with the space or apostrophe before it
        r" ?\p{N}+",  # a number, with the space before it
        r" ?[^\s\p{L}\p{M}\p{N}]+",  # punctuation, with the space before it
        r"\s+(?= \S)|\s+",  # white space, except a space that belongs to what follows
    ]
)
# GPT-2's: English contractions, letters, numbers, punctuation, white space
GPT2_PATTERN = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
)


def checked_text(text: str) -> str:
    """The text; TypeError if it is not a str, ValueError for a lone surrogate."""
    expects_kind("text", text, str, "str")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        lone = f"U+{ord(text[error.start]):04X} at position {error.start}"
        raise ValueError(
            f"text: got the lone surrogate {lone}, want characters only"
        ) from error
    return text


def checked_pattern(pattern: str) -> str:
    """The pattern; TypeError if it is not a str, ValueError if it is not a regular
    expression."""
    expects_kind("pattern", pattern, str, "str")
    try:
        regex.compile(pattern)
    except (regex.error, ValueError, RecursionError) as error:
        wanted = "a regular expression"
        raise ValueError(f"pattern: got {pattern!r} ({error}), want {wanted}") from error
    return pattern


def checked_cut(pieces: list[str], text: str, pattern: str) -> list[str]:
    """The pieces that `pattern` has found; ValueError unless, in order, they make up
    the whole text."""
    whole = "".join(pieces) == text
    wanted = "one that cuts the text, in order, and leaves out no part of it"
    expects(whole, "pattern", repr(pattern), wanted)
    return pieces


def pre_tokens(text: str, pattern: str = PATTERN) -> list[str]:
    """The pieces into which `pattern` cuts the text; joined, they are the text
    again.

    TypeError unless both are str; ValueError if the text holds a surrogate, or if the
    pattern is invalid, leaves out a part of it or finds its parts in another order.

    >>> pre_tokens("Isn't it 3 o'clock?")
    ['Isn', "'t", ' it', ' 3', ' o', "'clock", '?']
    """
    matches = regex.finditer(checked_pattern(pattern), checked_text(text))
    found = [match.group() for match in matches]
    return [piece for piece in checked_cut(found, text, pattern) if piece]


# --- Encoding


def merge(tokens: Sequence[int], pair: TokenPair, new: int) -> list[int]:
    """`tokens` with every occurrence of `pair` replaced by `new`, from left to
    right. (B-bpe-overlap)
    """
    result, i = [], 0
    while i < len(tokens):
        if i + 1 < len(tokens) and tokens[i] == pair[0] and tokens[i + 1] == pair[1]:
            result.append(new)
            i += 2
        else:
            result.append(tokens[i])
            i += 1
    return result


def encode_bytes(data: bytes, ranks: Mapping[TokenPair, int]) -> list[int]:
    """The tokens of a piece, given as bytes; `ranks` numbers the merges, and the
    smallest rank is applied first. (T-bpe-rank-order)

    >>> encode_bytes(b"abc", {(98, 99): 0, (97, 98): 1})
    [97, 256]
    """
    tokens = list(data)
    while len(tokens) > 1:
        best = min(pairwise(tokens), key=lambda pair: ranks.get(pair, len(ranks)))
        if best not in ranks:
            break
        tokens = merge(tokens, best, 256 + ranks[best])
    return tokens


# --- Decoding


def byte_strings(merges: Iterable[TokenPair]) -> list[bytes]:
    """v: the byte string of every token, the 256 single bytes first. (T-decoding)

    >>> byte_strings([(104, 105)])[256]
    b'hi'
    """
    strings = [bytes([b]) for b in range(256)]
    for a, b in merges:
        strings.append(strings[a] + strings[b])
    return strings

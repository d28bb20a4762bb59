"""Graders for the exercises of the chapter fast_tokenization."""

import operator
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from tlm_book.exercises.grading import function, value
from tlm_book.spec.tokenization import TokenPair, apply_merges, encode, vocabulary
from tlm_book.tokenization import byte_characters

MERGES: list[TokenPair] = [(98, 99), (97, 98), (257, 99)]


def by_strings(data: bytes, merges: list[TokenPair]) -> list[int]:
    """The tokens when neighbours are joined if their joined bytes are those of a token, the smallest token first."""
    strings = vocabulary(merges)
    parts = [bytes([b]) for b in data]
    while any(joined in strings for joined in map(operator.add, parts, parts[1:])):
        numbers = [strings.index(v + w) if v + w in strings else len(strings) for v, w in pairwise(parts)]
        i = numbers.index(min(numbers))
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return [strings.index(part) for part in parts]


def some_spelling(rng: np.random.Generator, n: int) -> tuple[str]:
    """The characters of n random bytes and of a text with spaces and an accent."""
    letters = byte_characters()
    data = rng.bytes(n) if n % 2 else f"{n} thés, \n".encode()
    return ("".join(letters[b] for b in data),)


def rounds(j: int) -> list[int]:
    """The number of tokens of 2^j letters after 0, 1, …, j merges, each of which doubles the longest token."""
    merges: list[TokenPair] = [(97, 97), *((256 + k, 256 + k) for k in range(j - 1))]
    return [len(apply_merges([97] * 2**j, merges[:k])) for k in range(j + 1)]


def pairs(tokens: Sequence[int]) -> int:
    return sum(n - 1 for n in tokens)


EXERCISES = [
    value(
        "a pair of lists: the tokens of `ababc` by ranks, and by joined strings",
        lambda: (encode("ababc", MERGES), by_strings(b"ababc", MERGES)),
        {
            "By ranks: bc is joined first, and (a, bc) is not a merge, whatever the joined bytes are.": ([257, 258], [257, 258]),
            "By strings: a and bc are joined as well when their joined bytes are those of a token.": ([257, 97, 256], [257, 97, 256]),
            "The two lists are right, but exchanged.": ([257, 258], [257, 97, 256]),
        },
    ),
    function(
        "a function `spelled(text)`: the byte string that these characters of GPT-2's alphabet spell",
        some_spelling,
        lambda text: bytes(byte_characters().index(c) for c in text),
        {
            "These are the UTF-8 bytes of the spelling. Each of its characters stands for one byte.": lambda text: text.encode(),
            "Only the space is turned back; the other 67 bytes that do not show have substitutes, too.":
                lambda text: text.replace("Ġ", " ").encode("latin-1", errors="replace"),
            "The substitutes are numbered among the bytes that do not show, not from byte 0 on.":
                lambda text: bytes(ord(c) % 256 for c in text),
        },
    ),
    function(
        "a function `looks(j)`: the number of pairs that are looked at, in all rounds together",
        [(j,) for j in (0, 1, 2, 3, 5, 8)],
        lambda j: pairs(rounds(j)),
        {
            "n tokens have n − 1 pairs.": lambda j: 2 ** (j + 1) - 2,
            "Each round has half the tokens of the one before.": lambda j: j * (2**j - 1),
            "The first round is not the only one.": lambda j: 2**j - 1,
        },
    ),
]

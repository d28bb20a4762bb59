"""Graders for the exercises of the chapter tokenization."""

import itertools
import math
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import regex

from tlm_book.exercises.grading import function, holds, value
from tlm_book.spec.tokenization import (
    TokenPair,
    decode_bytes,
    encode,
    learn,
    replace,
    text_bytes,
    vocabulary,
)
from tlm_book.tokenization import PATTERN, pre_tokens

MERGES: list[TokenPair] = [(97, 97), (97, 98), (256, 257)]


def letters(tokens: Sequence[int]) -> str:
    return "".join({256: "Z", 257: "Y", 258: "X"}.get(t) or chr(t) for t in tokens)


def splits(data: bytes, merges: list[TokenPair], allowed: Any = None) -> int:
    """The number of ways to cut the bytes and to choose a token for each part, found by trying each; or of the cuts into allowed parts."""
    strings, count = vocabulary(merges), 0
    for cuts in itertools.product((False, True), repeat=len(data) - 1):
        places = [0, *(k for k, cut in enumerate(cuts, start=1) if cut), len(data)]
        parts = [data[a:b] for a, b in zip(places, places[1:])]
        count += math.prod(map(allowed or strings.count, parts))
    return count


def look_alikes(pair: Any) -> Iterator[tuple[str, object]]:
    one, two = pair
    yield "Two texts are wanted.", isinstance(one, str) and isinstance(two, str)
    yield "The two are the same text.", one != two
    yield "However alike they look, Unicode does not count them as two spellings of one text (NFC).", (
        unicodedata.normalize("NFC", one) == unicodedata.normalize("NFC", two))
    yield "Use some character other than é.", "é" not in unicodedata.normalize("NFC", one)


def digit_pattern(pattern: Any) -> Iterator[tuple[str, object]]:
    yield "The pattern must be a string.", isinstance(pattern, str)
    for text in ("in 1656", "1656", "a1b22", "٣٤ x", "no number here, is there?", "white  space\n and (more) of it", " 7", "it’s 3.14!", "x² ½"):
        pieces = [match.group() for match in regex.finditer(pattern, text) if match.group()]
        yield f"The pieces of {text!r} do not make up the text: {pieces}.", "".join(pieces) == text
        longer = [piece for piece in pieces if len(piece) > 1 and any(c.isdecimal() for c in piece)]
        yield f"Here a digit is not alone: {longer}, in {text!r}.", not longer
        yield f"What is not a number is cut differently than before: {pieces}.", any(c.isnumeric() for c in text) or pieces == pre_tokens(text)
        plain = "".join(" " if c.isdecimal() else c for c in text)
        words = [piece for piece in pre_tokens(plain) if piece.strip()]
        yield f"What is not a number is cut differently than before: {pieces} in {text!r}.", (
            [p.strip() for p in pieces if p.strip() and not p.isdecimal()] == [w.strip() for w in words])


def some_merges(rng: np.random.Generator, n: int) -> tuple[bytes, list[TokenPair]]:
    if n == 1:  # two tokens for aaa
        return b"aaab", [(97, 97), (256, 97), (97, 256)]
    text = "".join(rng.choice(list("ab"), size=20))
    return bytes(rng.choice([97, 98], size=n).tolist()), learn([text], 4)


def encoders() -> dict[str, Callable[[str], list[int]]]:
    """{name: a changed encoder, from a text to tokens}, with the merges of aaabdaaabac."""
    def replaced(text: str, order: list[int], backwards: bool = False) -> list[int]:
        s = text_bytes(text)
        for k in order:
            a, b = MERGES[k]
            s = replace(s[::-1], (b, a), 256 + k)[::-1] if backwards else replace(s, (a, b), 256 + k)
        return s

    return {
        "merges in reverse order": lambda text: replaced(text, [2, 1, 0]),
        "replacement from right to left": lambda text: replaced(text, [0, 1, 2], backwards=True),
        "no cutting into pre-tokens": lambda text: encode(text, MERGES),
        "white space left out": lambda text: encode("".join(text.split()), MERGES),
        "capitals made small": lambda text: encode(text.lower(), MERGES),
        "sorted tokens": lambda text: sorted(encode(text, MERGES)),
    }


def lossless() -> set[str]:
    texts = ["aaabdaaabac", "Aab aab", "baaa bab\n", "é aab"]
    return {name for name, f in encoders().items() if all(decode_bytes(f(text), MERGES) == text.encode() for text in texts)}


EXERCISES = [
    value(
        "a pair of texts: the tokens of `aabaab` and those of `aaaa`, written as letters with Z = aa, Y = ab, X = ZY",
        lambda: tuple(letters(encode(text, MERGES)) for text in ("aabaab", "aaaa")),
        {
            "The merges are applied in the order in which they were learned: aa before ab.": ("aYaY", "ZZ"),
            "A merge is applied wherever its pair occurs, not only at the first place.": ("Zbaab", "Zaa"),
            "In aaaa the first two letters are a pair, and so are the last two.": ("ZbZb", "Zaa"),
            "X stands for ZY, and no Y arises: no ab is left once aa has been merged.": ("XX", "ZZ"),
        },
    ),
    function(
        "a function `ways(data, merges)`: the number of token sequences that decode to the bytes `data`",
        some_merges,
        lambda data, merges: splits(data, merges),
        {
            "You count all ways to cut the bytes, even into pieces that are not tokens.": lambda data, merges: splits(data, merges, bool),
            "You count only what the encoder produces, which is one of the ways.": lambda data, merges: 1,
            "Tokens may be longer than two bytes: a merge may join what was merged before.":
                lambda data, merges: splits(data, merges, lambda part: part in vocabulary(merges) and len(part) <= 2),
            "Two tokens with the same bytes are two tokens: here (aa, a) and (a, aa) both make aaa.":
                lambda data, merges: splits(data, merges, vocabulary(merges).__contains__),
        },
    ),
    function(
        "a function `n_tokens(n, k)`: the number of tokens of n letters a, with the merges learned from one piece of 2^k of them",
        [(n, k) for k in (1, 2, 4, 6) for n in (1, 2, 3, 7, 15, 16, 100)],
        lambda n, k: len(encode("a" * n, learn(["a" * 2**k], 100))),
        {
            "The longest token is shorter: the pair that would make the whole piece occurs only once and is not learned.":
                lambda n, k: n // 2**k + (n % 2**k).bit_count(),
            "Tokens do not grow without end: counting the digits 1 of n in binary is right only for short texts.": lambda n, k: n.bit_count(),
            "What remains after the longest tokens need not be a single token.": lambda n, k: -(-n // 2 ** (k - 1)),
        },
    ),
    holds(
        "a pair of different texts that look the same and have the same NFC (Unicode's normal form), with some character other than é",
        look_alikes,
        [("a", "a"), ("ａ", "a"), ("caf\u00e9", "cafe\u0301"), ("а", "a"), ("ﬁ", "fi")],
    ),
    holds(
        "the pattern, a string like `PATTERN`",
        digit_pattern,
        [PATTERN, PATTERN.replace(r" ?\p{N}+", r" ?\p{N}"), PATTERN.replace(r" ?\p{N}+", "[0-9]"),
         PATTERN.replace(r" ?\p{N}+", r"\d"), r"\p{N}|\P{N}+", r"\p{N}",
         r"\p{N}|[\p{L}\p{M}’']+|[^\s\p{L}\p{M}\p{N}]+|\s+"],
    ),
    function(
        "a function `bounds(text)`: the smallest and the largest number of tokens that any list of merges can give, as a pair",
        [("aa b",), ("🍵 é",), ("caf\u00e9 1656, yes",), ("a",), ("one two three",), ("  spaces  ",), ("no, no, no",)],
        lambda text: (len(pre_tokens(text)), len(text.encode())),
        {
            "Merges start from bytes, not from characters.": lambda text: (len(pre_tokens(text)), len(text)),
            "Merges never join pre-tokens.": lambda text: (1, len(text.encode())),
            "Pre-tokens are not the words between spaces: signs and numbers are pieces of their own.":
                lambda text: (len(text.split()), len(text.encode())),
            "The largest number is right, but the smallest is not the number of words.":
                lambda text: (text.count(" ") + 1, len(text.encode())),
            "A pre-token that comes again counts again.": lambda text: (len(set(pre_tokens(text))), len(text.encode())),
        },
    ),
    value(
        "the list of the five bytes of `ñ€`, as numbers from 0 to 255",
        lambda: list("ñ€".encode()),
        {
            "Every byte after the first of a character begins with the digits 10: it is at least 128.": [195, 49, 226, 2, 44],
            "The first byte says how many there are: for three it begins with 1110.": [195, 177, 194, 130, 172],
            "These are the code points: UTF-8 writes each of the two in more than one byte.": [241, 8364],
            "The bytes of each character are in reverse order.": [177, 195, 172, 130, 226],
        },
    ),
    value(
        "the set of those among " + ", ".join(f'"{name}"' for name in encoders()) + " after which dec(enc(S)) = S for every text S",
        lossless,
        {
            "Writing one token for a pair never changes the bytes, in whatever order it is done.": {"no cutting into pre-tokens"},
            "Capitals that are made small do not come back.": {
                "merges in reverse order", "replacement from right to left", "no cutting into pre-tokens", "capitals made small"},
            "What is left out does not come back.": {
                "merges in reverse order", "replacement from right to left", "no cutting into pre-tokens", "white space left out"},
            "Sorted tokens lose the order of the text.": {
                "merges in reverse order", "replacement from right to left", "no cutting into pre-tokens", "sorted tokens"},
        },
    ),
]

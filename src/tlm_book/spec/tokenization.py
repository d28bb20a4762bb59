"""From text to tokens. Generated from book/tokenization.ipynb: edit the notebook, then `make export`."""

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import pairwise

from tlm_book.checks import expects, expects_several, shaped

__all__ = [
    "word_pieces",
    "utf8",
    "text_bytes",
    "TokenPair",
    "count_pairs",
    "most_frequent",
    "replace",
    "learn_from",
    "learn",
    "vocabulary",
    "END_OF_WORD",
    "END_OF_DOCUMENT",
    "base_vocabulary",
    "first_tokens",
    "apply_merges",
    "encode",
    "decode_bytes",
    "decode",
]


# --- Parts of words


@shaped
def word_pieces(word: str, pieces: Collection[str]) -> list[str] | None:
    """A word cut into pieces from the left, each the longest that fits; pieces after
    the first begin with ##. None if nothing fits. (A-subword-fallback) TypeError for
    pieces in a single text.

    >>> word_pieces("nonsense", {"non", "##sense", "##s"})
    ['non', '##sense']
    """
    expects_several("pieces", pieces, "a set of str")
    found, rest, mark = [], word, ""
    while rest:
        fits = [n for n in range(1, len(rest) + 1) if mark + rest[:n] in pieces]
        if not fits:
            return None
        found.append(mark + rest[: max(fits)])
        rest, mark = rest[max(fits) :], "##"
    return found


# --- Bytes


@shaped
def utf8(c: str) -> bytes:
    """The one to four bytes of one character, from its code point x = ord(c).
    (B-utf8-map)

    ValueError for a surrogate (U+D800 to U+DFFF): those code points are not
    characters. TypeError for anything but one character.

    >>> utf8("é")
    b'\\xc3\\xa9'
    """
    expects(len(c) == 1, "c", repr(c), "one character", TypeError)
    x = ord(c)
    expects(
        not 0xD800 <= x <= 0xDFFF, "c", f"the surrogate U+{x:04X}", "a character"
    )
    if x < 0x80:
        return bytes([x])
    if x < 0x800:
        return bytes([0b11000000 | x >> 6, 0x80 | x & 0x3F])
    if x < 0x10000:
        return bytes([0b11100000 | x >> 12, 0x80 | x >> 6 & 0x3F, 0x80 | x & 0x3F])
    return bytes(
        [
            0b11110000 | x >> 18,
            0x80 | x >> 12 & 0x3F,
            0x80 | x >> 6 & 0x3F,
            0x80 | x & 0x3F,
        ]
    )


@shaped
def text_bytes(text: str) -> list[int]:
    """The bytes of a text, each a number from 0 to 255: its first tokens."""
    return [b for c in text for b in utf8(c)]


# --- Learning merges


TokenPair = tuple[int, int]


@shaped
def count_pairs(C: list[list[int]]) -> Counter[TokenPair]:
    """How often each pair of neighbours occurs in the sequences of C, overlapping
    occurrences included. (B-bpe-overlap)

    >>> count_pairs([[7, 7, 7]])
    Counter({(7, 7): 2})
    """
    return Counter(pair for s in C for pair in pairwise(s))


def most_frequent(counts: Counter[TokenPair]) -> TokenPair:
    """The pair with the largest count; in a tie, the smallest pair. (B-bpe-ties)"""
    return min(counts, key=lambda pair: (-counts[pair], pair))


@shaped
def replace(s: Sequence[int], pair: TokenPair, new: int) -> list[int]:
    """s with every occurrence of `pair` replaced by the token `new`, from left to
    right. (B-bpe-overlap)

    >>> replace([7, 7, 7], (7, 7), 256)
    [256, 7]
    """
    done: list[int] = []
    rest = list(s)
    while rest:
        if tuple(rest[:2]) == pair:
            done, rest = [*done, new], rest[2:]
        else:
            done, rest = [*done, rest[0]], rest[1:]
    return done


@shaped
def learn_from(C: list[list[int]], n_merges: int, n_base: int) -> list[TokenPair]:
    """The merges learned from sequences of base tokens 0, …, n_base − 1, in order: at
    most n_merges, fewer if no pair that occurs twice is left. Merge number k makes
    token n_base + k. (B-bpe-step, B-bpe-stop)

    ValueError for n_merges below 0.
    """
    expects(n_merges >= 0, "n_merges", n_merges, "a number ≥ 0")
    merges: list[TokenPair] = []
    while len(merges) < n_merges:
        counts = count_pairs(C)
        if max(counts.values(), default=0) < 2:
            break
        pair = most_frequent(counts)
        C = [replace(s, pair, n_base + len(merges)) for s in C]
        merges.append(pair)
    return merges


@shaped
def learn(pieces: list[str], n_merges: int) -> list[TokenPair]:
    """The merges learned from the bytes of the pieces. The pieces are kept apart: no
    pair reaches from one into the next. TypeError for a single text in place of a list.
    (B-bpe-step, B-bpe-stop)
    """
    return learn_from([text_bytes(piece) for piece in pieces], n_merges, 256)


@shaped
def vocabulary(merges: list[TokenPair]) -> list[bytes]:
    """The byte string of every token: the 256 single bytes, then for each merge (a,
    b) that of a followed by that of b.
    """
    strings = [bytes([b]) for b in range(256)]
    for a, b in merges:
        strings.append(strings[a] + strings[b])
    return strings


# --- For the curious: characters as the base


END_OF_WORD, END_OF_DOCUMENT = b"\xfe", b"\xff"  # bytes that occur in no text


@shaped
def base_vocabulary(alphabet: Collection[str]) -> list[bytes]:
    """ℰ(𝒜), sorted, then end of word and end of document: |𝒜| + 2 byte strings.
    (B-base-vocab)
    """
    codes = sorted({utf8(c) for c in alphabet})
    return [*codes, END_OF_WORD, END_OF_DOCUMENT]


@shaped
def first_tokens(text: str, base: list[bytes]) -> list[int]:
    """The tokens of a text, character by character, before any merge.

    ValueError for a character outside the base. (B-base-vocab)

    >>> first_tokens("abba", base_vocabulary("ab"))
    [0, 1, 1, 0]
    """
    for c in text:
        expects(
            utf8(c) in base, "text", repr(c), "characters of the base vocabulary"
        )
    return [base.index(utf8(c)) for c in text]


# --- Encoding


@shaped
def apply_merges(s: Sequence[int], merges: list[TokenPair]) -> list[int]:
    """s after all merges, applied in the order in which they were learned.
    (B-tokenize-canonical)
    """
    s = list(s)
    for k, pair in enumerate(merges):
        s = replace(s, pair, 256 + k)
    return s


@shaped
def encode(piece: str, merges: list[TokenPair]) -> list[int]:
    """The tokens of a piece of text. (B-tokenize-canonical)"""
    return apply_merges(text_bytes(piece), merges)


# --- Decoding


@shaped
def decode_bytes(tokens: Sequence[int], merges: list[TokenPair]) -> bytes:
    """dec_B: the byte strings of the tokens, one after the other. (T-decoding)

    IndexError for a token outside the vocabulary.
    """
    strings = vocabulary(merges)
    most = len(strings) - 1
    for token in tokens:
        wanted = f"tokens from 0 to {most}"
        expects(0 <= token <= most, "tokens", token, wanted, IndexError)
    return b"".join(strings[token] for token in tokens)


@shaped
def decode(tokens: Sequence[int], merges: list[TokenPair]) -> str:
    """The text whose UTF-8 bytes are those of the tokens. (T-decoding)

    IndexError for a token outside the vocabulary; UnicodeDecodeError (a ValueError)
    when the bytes are not the UTF-8 form of a text.
    """
    return decode_bytes(tokens, merges).decode("utf-8")

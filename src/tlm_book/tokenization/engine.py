"""Byte pair encoding, fast: the same merges and the same tokens as those of `spec.tokenization`, which recounts every pair at every step.

Three things save time. Texts of ASCII characters are cut by `re`. Training keeps equal pre-tokens once, with their count, and writes token t as
the character with code point t, so that `split` and `join` do the rewriting. Long pieces are encoded with a heap.
"""

import heapq
import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any

import regex
from tqdm import tqdm

from tlm_book.checks import expects, expects_whole
from tlm_book.spec.tokenization import TokenPair
from tlm_book.tokenization.bpe import (
    GPT2_PATTERN,
    PATTERN,
    checked_cut,
    encode_bytes,
)

__all__ = ["MOST", "Remembered", "bar", "cut", "encode_data", "encode_piece", "finder", "learn_merges", "merged"]

LONG = 64  # number of bytes from which a heap pays
MOST = 0x110000 - 256  # merges at most, since a token is written as one character
KNOWN, SHORT = 100_000, 200  # a tokenizer remembers so many pieces, each of fewer characters than that

# ---- cutting

# The same rules for a text of ASCII characters, in the syntax of `re`: twice as fast (T-ascii-patterns)
ASCII = {
    PATTERN: r"[ ']?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?= \S)|\s+",
    GPT2_PATTERN: r"'(?:[stmd]|re|ve|ll)| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+",
}


@lru_cache
def finder(pattern: str) -> Callable[[str], list[str]]:
    """The function that finds all matches of a pattern in a text, in order; `regex.error` for an invalid pattern."""
    compiled = regex.compile(pattern)
    if pattern in ASCII:
        quick = re.compile(ASCII[pattern], re.ASCII).findall
        return lambda text: quick(text) if text.isascii() else compiled.findall(text)
    return lambda text: [match.group() for match in compiled.finditer(text)]  # findall would return a group's text for the whole match


def cut(text: str, pattern: str) -> list[str]:
    """`bpe.pre_tokens`, done quickly, for any text, surrogates included; the empty pieces that some patterns find are kept.

    ValueError for a pattern that leaves out a part of the text, or finds its parts in another order."""
    return checked_cut(finder(pattern)(text), text, pattern)


# ---- training


def _as_bytes(piece: str) -> bytes:
    return piece.encode("utf-8", errors="surrogateescape")  # U+DC80 to U+DCFF stand for bytes that are part of no character


def bar(items: Iterable[Any] | None, progress: bool | None, **settings: Any) -> "tqdm[Any]":
    """A progress bar. With `progress` None it is shown on a terminal only, and only if the work takes a second or more."""
    return tqdm(items, disable=None if progress is None else not progress, delay=0 if progress else 1, **settings)


def learn_merges(words: Mapping[str, int], n_merges: int, *, progress: bool | None = False) -> list[TokenPair]:
    """The merges learned from pre-tokens and their counts, as `spec.tokenization.learn` learns them from the pre-tokens themselves.

    At most n_merges; fewer if no pair is left that occurs twice. Shows a progress bar if `progress` is True, and on a terminal if it is None.
    (B-bpe-step, B-bpe-stop, T-queue-learns)

    TypeError if n_merges is not a whole number; ValueError if it is below 0 or excessively large, or for a lone surrogate.
    """
    expects_whole(n_merges=n_merges)
    expects(0 <= n_merges <= MOST, "n_merges", n_merges, f"a number ≥ 0 and ≤ {MOST}")
    pieces = [_as_bytes(word).decode("latin-1") for word in words]
    times = list(words.values())
    places: defaultdict[str, list[int]] = defaultdict(list)  # the numbers of the pieces in which a pair has been seen, once for each occurrence
    for place, piece in enumerate(pieces):
        for pair in map(operator.add, piece, piece[1:]):
            places[pair].append(place)
    counts = {pair: sum(map(times.__getitem__, found)) for pair, found in places.items()}
    heap = [(-count, pair) for pair, count in counts.items() if count >= 2]  # its order also settles ties
    heapq.heapify(heap)
    merges: list[TokenPair] = []
    with bar(None, progress, total=n_merges, unit=" merges") as shown:
        while heap and len(merges) < n_merges:
            count, best = heapq.heappop(heap)
            if -count != counts[best]:  # an outdated entry: the pair has become rarer
                if counts[best] >= 2:
                    heapq.heappush(heap, (-counts[best], best))
                continue
            made = _fuse(best, chr(256 + len(merges)), pieces, times, counts, places)
            counts.update(made)
            for pair, count in made.items():
                if count >= 2:
                    heapq.heappush(heap, (-count, pair))
            merges.append((ord(best[0]), ord(best[1])))
            shown.update()
    return merges


def _fuse(
    best: str, new: str, pieces: list[str], times: list[int], counts: dict[str, int], places: dict[str, list[int]]
) -> dict[str, int]:
    """Replace the pair `best` by `new` in every piece. Subtracts destroyed pairs from `counts`; returns the counts of the new pairs."""
    a, b = best[0], best[1]
    # Numbers of the pieces, by the left neighbour, by the right neighbour, and for two occurrences in a row
    lefts: defaultdict[str, list[int]] = defaultdict(list)
    rights: defaultdict[str, list[int]] = defaultdict(list)
    rows: list[int] = []
    for place in set(places.pop(best)):
        if best not in pieces[place]:
            continue  # an earlier merge has taken the pair away
        parts = pieces[place].split(best)
        pieces[place] = new.join(parts)
        first, *middle, last = parts
        if first:
            lefts[first[-1]].append(place)
        for part in middle:
            if part:
                rights[part[0]].append(place)
                lefts[part[-1]].append(place)
            else:
                rows.append(place)
        if last:
            rights[last[0]].append(place)
    changes = [(x + a, x + new, found) for x, found in lefts.items()]
    changes += [(b + x, new + x, found) for x, found in rights.items()]
    changes += [(b + a, new + new, rows)] if rows else []
    made: dict[str, int] = {}
    for old, pair, found in changes:
        made[pair] = sum(map(times.__getitem__, found))
        counts[old] -= made[pair]
        places[pair] = found
    counts[best] = 0
    return made


# ---- encoding


def encode_data(data: bytes, ranks: Mapping[TokenPair, int]) -> list[int]:
    """The tokens of a byte string, smallest rank first: as `bpe.encode_bytes`, but in n log n steps for long strings."""
    return merged(list(data), ranks, (256).__add__) if len(data) >= LONG else encode_bytes(data, ranks)


def encode_piece(piece: str, ranks: Mapping[TokenPair, int]) -> list[int]:
    """The tokens of one pre-token, by the merges that `ranks` numbers: smallest rank first. (T-bpe-rank-order)

    ValueError for a lone surrogate, except those that stand for bytes: U+DC80 to U+DCFF.
    """
    return encode_data(_as_bytes(piece), ranks)


def merged(tokens: list[int], ranks: Mapping[TokenPair, int], made: Callable[[int], int]) -> list[int]:
    """The tokens after all merges, smallest rank first, of equal ranks the leftmost; made(rank) is the token that a pair of this rank becomes.

    Takes n log n steps, with a heap of (rank, place) and a chain from each token to its neighbours.
    """
    n = len(tokens)
    before, after = list(range(-1, n - 1)), list(range(1, n + 1))
    heap = [(ranks[pair], i) for i, pair in enumerate(pairwise(tokens)) if pair in ranks]
    heapq.heapify(heap)
    while heap:
        rank, i = heapq.heappop(heap)
        j, new = after[i], made(rank)
        now = None if tokens[i] < 0 or j == n else ranks.get((tokens[i], tokens[j]))
        if now is None or made(now) != new:
            continue  # an outdated entry: one of the two is part of another token by now
        tokens[i], tokens[j] = new, -1  # −1: no token begins here any more
        after[i] = after[j]
        if after[i] < n:
            before[after[i]] = i
        for left, right in ((before[i], i), (i, after[i])):
            if left >= 0 and right < n and (later := ranks.get((tokens[left], tokens[right]))) is not None:
                heapq.heappush(heap, (later, left))
    return [token for token in tokens if token >= 0]


class Remembered(dict[str, list[int]]):
    """{piece: its tokens}. Asks `encode` for pieces that it does not hold, and keeps the answer while there is room."""

    def __init__(self, encode: Callable[[str], list[int]]) -> None:
        self.encode = encode

    def __missing__(self, piece: str) -> list[int]:
        tokens = self.encode(piece)
        if len(self) < KNOWN and len(piece) < SHORT:
            self[piece] = tokens
        return tokens

"""From text to tokens. Generated from book/tokenization.ipynb: edit the notebook, then `make export`."""

import heapq
import json
import operator
import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import SupportsIndex

from tlm_book.checks import expects, expects_positive

__all__ = [
    "documents",
    "PATTERN",
    "pre_tokens",
    "Pair",
    "merge",
    "learn_merges",
    "encode_piece",
    "Vocabulary",
    "FORMAT",
    "KNOWN",
    "Tokenizer",
]


# tokenization: Words or characters
def documents() -> list[str]:
    """The book's corpus: short English texts, one str each, sorted by file name.

    Chapter: tokenization.
    """
    folder = resources.files("tlm_book") / "data" / "corpus"
    files = sorted(
        (file for file in folder.iterdir() if file.name.endswith(".txt")),
        key=lambda file: file.name,
    )
    return [file.read_text(encoding="utf-8") for file in files]


# tokenization: Cutting into pre-tokens
PATTERN = "|".join(
    [
        r"[ '’]?[^\W\d_]+",  # a word, with the space or apostrophe before it
        r" ?\d+",  # a number, with the space before it
        r" ?(?:[^\w\s]|_)+",  # signs, with the space before them
        r"\s+(?= \S)|\s+",  # white space, less a space that belongs to what follows
    ]
)


def pre_tokens(text: str, pattern: str = PATTERN) -> list[str]:
    """The pieces into which `pattern` cuts the text; joined, they are the text
    again.

    TypeError when `text` is no str; ValueError when it holds a surrogate or when the
    pattern leaves a part of it out.

    >>> pre_tokens("Isn't it 3 o'clock?")
    ['Isn', "'t", ' it', ' 3', ' o', "'clock", '?']

    Chapter: tokenization.
    """
    expects(isinstance(text, str), "text", type(text).__name__, "str", TypeError)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        expects(
            False,
            "text",
            f"the lone surrogate U+{code:04X} at position {error.start}",
            "characters only",
        )
    pieces = [match.group() for match in re.finditer(pattern, text)]
    expects(
        sum(map(len, pieces)) == len(text),
        "pattern",
        repr(pattern),
        "one that leaves out no part of the text",
    )
    return [piece for piece in pieces if piece]


# tokenization: The implementation
Pair = tuple[int, int]


def merge(tokens: Sequence[int], pair: Pair, new: int) -> list[int]:
    """`tokens` with every occurrence of `pair` replaced by `new`, from left to
    right. (B-bpe-overlap)

    Chapter: tokenization.
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


# tokenization: The implementation
def learn_merges(words: Mapping[str, int], n_merges: int) -> list[Pair]:
    """The merges learned from pre-tokens and their counts, as
    `spec.tokenization.learn` learns them from the pre-tokens themselves.

    At most n_merges, fewer when no pair is left that occurs twice. (B-bpe-step,
    B-bpe-stop)

    Chapter: tokenization.
    """
    expects(n_merges >= 0, "n_merges", n_merges, "a number ≥ 0")
    pieces = [list(word.encode("utf-8")) for word in words]
    times = list(words.values())
    counts: Counter[Pair] = Counter()
    # Numbers of the pieces in which a pair has been seen
    places: defaultdict[Pair, set[int]] = defaultdict(set)
    for place, piece in enumerate(pieces):
        for pair in pairwise(piece):
            counts[pair] += times[place]
            places[pair].add(place)
    heap = [(-count, pair) for pair, count in counts.items() if count >= 2]
    heapq.heapify(heap)
    merges: list[Pair] = []
    while heap and len(merges) < n_merges:
        count, best = heapq.heappop(heap)
        if -count != counts[best]:
            continue  # an old entry: the count has changed since it was pushed
        change: Counter[Pair] = Counter()
        for place in places.pop(best):
            for pair in pairwise(pieces[place]):
                change[pair] -= times[place]
            pieces[place] = merge(pieces[place], best, 256 + len(merges))
            for pair in pairwise(pieces[place]):
                change[pair] += times[place]
                places[pair].add(place)
        for pair in change:
            counts[pair] += change[pair]
            if change[pair] and counts[pair] >= 2:
                heapq.heappush(heap, (-counts[pair], pair))
        merges.append(best)
    return merges


# tokenization: The implementation
def encode_piece(piece: str, ranks: Mapping[Pair, int]) -> list[int]:
    """The tokens of one pre-token, when `ranks` numbers the merges: smallest rank
    first. (T-bpe-rank-order)

    Chapter: tokenization.
    """
    tokens = list(piece.encode("utf-8"))
    while len(tokens) > 1:
        best = min(pairwise(tokens), key=lambda pair: ranks.get(pair, len(ranks)))
        if best not in ranks:
            break
        tokens = merge(tokens, best, 256 + ranks[best])
    return tokens


# tokenization: The implementation
def _merges(merges: Iterable[Sequence[int]]) -> list[Pair]:
    pairs = [tuple(pair) for pair in merges]
    for k, pair in enumerate(pairs):
        whole = len(pair) == 2 and all(type(token) is int for token in pair)
        expects(whole, "merges", f"{pair} as number {k}", "pairs of integers", TypeError)
        expects(0 <= min(pair) and max(pair) < 256 + k, "merges", f"{pair} as number {k}", f"tokens from 0 to {255 + k}")
    expects(len(set(pairs)) == len(pairs), "merges", "a pair twice", "different pairs")
    return pairs


def _specials(specials: Sequence[str]) -> list[str]:
    expects(not isinstance(specials, str), "specials", "one str", "several names, such as a list of str", TypeError)
    names = list(specials)
    for name in names:
        expects(isinstance(name, str), "specials", repr(name), "names of type str", TypeError)
        expects(name != "" and name.isprintable(), "specials", repr(name), "names that are printable and not empty")
    expects(len(set(names)) == len(names), "specials", names, "different names")
    return names


def _pattern(pattern: str) -> str:
    expects(isinstance(pattern, str), "pattern", type(pattern).__name__, "str", TypeError)
    try:
        re.compile(pattern)
    except re.error as error:
        expects(False, "pattern", f"{pattern!r} ({error})", "a regular expression")
    return pattern


def _texts(texts: Iterable[str]) -> Iterable[str]:
    expects(not isinstance(texts, str), "texts", "one str", "several texts, such as a list of str", TypeError)
    return texts


# tokenization: The implementation
class Vocabulary:
    """The tokens of a byte pair encoding and their byte strings: all that decoding
    needs. (B-bpe-object)

    merges   list of pairs; pair number k makes token 256 + k
    specials {name: token}, the last tokens
    start    the first special's token: start marker and document separator;
             ValueError when there is none

    ValueError when a merge uses a token that does not stand before it, when a merge
    or a special comes twice, or when a special's name is empty or not printable;
    TypeError when one is of the wrong type.

    Chapter: tokenization.
    """

    def __init__(
        self,
        merges: Iterable[Sequence[int]],
        specials: Sequence[str] = ("<|endoftext|>",),
    ) -> None:
        self.merges = _merges(merges)
        names = _specials(specials)
        self.specials = {
            name: 256 + len(self.merges) + k for k, name in enumerate(names)
        }
        self._bytes = [bytes([b]) for b in range(256)]
        for a, b in self.merges:
            self._bytes.append(self._bytes[a] + self._bytes[b])
        self._bytes += [name.encode("utf-8") for name in names]

    def __len__(self) -> int:
        return len(self._bytes)

    def __repr__(self) -> str:
        sizes = f"vocab_size={len(self)}, merges={len(self.merges)}"
        return f"{type(self).__name__}({sizes}, specials={list(self.specials)})"

    @property
    def start(self) -> int:
        """The token of the first special."""
        expects(
            len(self.specials) > 0,
            "specials",
            "none",
            "at least one, to serve as start marker",
        )
        return 256 + len(self.merges)

    def token_bytes(self, token: SupportsIndex) -> bytes:
        """The byte string for which a token stands; that of its name for a special.
        Errors as in `decode_bytes`."""
        try:
            number = operator.index(token)
        except TypeError:
            number = None
        expects(
            number is not None and not isinstance(token, bool),
            "token",
            repr(token),
            "an integer",
            TypeError,
        )
        expects(
            0 <= number < len(self),
            "token",
            number,
            f"a token from 0 to {len(self) - 1}",
            IndexError,
        )
        return self._bytes[number]

    def token_text(self, token: SupportsIndex) -> str:
        """A token, fit to print: ␣ for a space, escapes for other signs that do not
        show and for bytes that form no character."""
        text = (
            self.token_bytes(token)
            .decode("utf-8", errors="backslashreplace")
            .replace(" ", "␣")
        )
        return "".join(
            c if c.isprintable() else c.encode("unicode_escape").decode()
            for c in text
        )

    def decode_bytes(self, tokens: Iterable[SupportsIndex]) -> bytes:
        """The bytes of the tokens, one after the other; IndexError for an unknown
        token, TypeError for what is no integer."""
        return b"".join(map(self.token_bytes, tokens))

    def decode(self, tokens: Iterable[SupportsIndex]) -> str:
        """The text of the tokens; bytes that form no character become U+FFFD. Errors
        as in `decode_bytes`."""
        return self.decode_bytes(tokens).decode("utf-8", errors="replace")


# tokenization: The implementation
FORMAT = "tlm_book.tokenizer.1"


def _write(path: Path, state: dict[str, object]) -> None:
    part = path.with_name(path.name + ".part")
    try:
        part.write_text(
            json.dumps({"format": FORMAT, **state}) + "\n", encoding="utf-8"
        )
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _read(path: Path) -> dict[str, object]:
    state = json.loads(path.read_text(encoding="utf-8"))
    right = (
        isinstance(state, dict)
        and state.get("format") == FORMAT
        and {"merges", "specials", "pattern"} <= state.keys()
    )
    expects(
        right,
        "content",
        "something else",
        f"merges, specials and pattern in format {FORMAT!r}",
    )
    return state


# tokenization: The implementation
KNOWN = 100_000  # how many pre-tokens a tokenizer remembers


class Tokenizer(Vocabulary):
    """Byte-level byte pair encoding: text to tokens and back. Learn one with
    `train`, read one with `load`.

    Errors as in `Vocabulary`; ValueError when `pattern` is no regular expression.

    >>> Tokenizer([(104, 105)]).encode("hi, hi")
    [256, 44, 32, 256]

    Chapter: tokenization.
    """

    def __init__(
        self,
        merges: Iterable[Sequence[int]],
        specials: Sequence[str] = ("<|endoftext|>",),
        pattern: str = PATTERN,
    ) -> None:
        super().__init__(merges, specials)
        self.pattern = _pattern(pattern)
        self._ranks = {pair: k for k, pair in enumerate(self.merges)}
        self._known: dict[str, list[int]] = {}

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        vocab_size: int,
        *,
        specials: Sequence[str] = ("<|endoftext|>",),
        pattern: str = PATTERN,
    ) -> "Tokenizer":
        """Learn merges from the texts, each a document, until there are `vocab_size`
        tokens or no pair occurs twice.

        ValueError when vocab_size < 256 + the number of specials; TypeError when a
        text is no str."""
        names, pattern = _specials(specials), _pattern(pattern)
        expects_positive(vocab_size=vocab_size)
        least = 256 + len(names)
        expects(
            vocab_size >= least,
            "vocab_size",
            vocab_size,
            f"at least {least} (256 bytes, specials {names})",
        )
        words = Counter(
            piece for text in _texts(texts) for piece in pre_tokens(text, pattern)
        )
        return cls(learn_merges(words, vocab_size - least), names, pattern)

    def encode(
        self, text: str, *, allowed_special: Collection[str] = ()
    ) -> list[int]:
        """The tokens of a text. A special's name is ordinary text unless
        `allowed_special` holds it.

        TypeError when `text` is no str; ValueError for a lone surrogate or an
        unknown special."""
        expects(isinstance(text, str), "text", type(text).__name__, "str", TypeError)
        expects(
            not isinstance(allowed_special, str),
            "allowed_special",
            "one str",
            "a collection of names",
            TypeError,
        )
        for name in allowed_special:
            expects(
                name in self.specials,
                "allowed_special",
                repr(name),
                f"names among {list(self.specials)}",
            )
        if not allowed_special:
            return [
                token
                for piece in pre_tokens(text, self.pattern)
                for token in self._piece(piece)
            ]
        # A name may be the beginning of another.
        longest_first = sorted(allowed_special, key=len, reverse=True)
        tokens: list[int] = []
        names = "|".join(map(re.escape, longest_first))
        for part in re.split(f"({names})", text):
            special = part in allowed_special
            tokens += [self.specials[part]] if special else self.encode(part)
        return tokens

    def encode_batch(
        self, texts: Iterable[str], *, allowed_special: Collection[str] = ()
    ) -> list[list[int]]:
        """The tokens of each text."""
        return [
            self.encode(text, allowed_special=allowed_special)
            for text in _texts(texts)
        ]

    def _piece(self, piece: str) -> list[int]:
        tokens = self._known.get(piece)
        if tokens is None:
            tokens = encode_piece(piece, self._ranks)
            if len(self._known) < KNOWN:
                self._known[piece] = tokens
        return tokens

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one JSON file; an old one is replaced only when the new one is
        complete."""
        names = list(self.specials)
        state = {"pattern": self.pattern, "specials": names, "merges": self.merges}
        _write(Path(path), state)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Tokenizer":
        """Read a file that `save` wrote; ValueError that names the file when it is
        no such file."""
        try:
            state = _read(Path(path))
            return cls(state["merges"], state["specials"], state["pattern"])
        except (ValueError, TypeError, RecursionError) as error:
            got = f"{os.fspath(path)!r} ({error})"
            wanted = "a file that Tokenizer.save wrote"
            raise ValueError(f"path: got {got}, want {wanted}") from error

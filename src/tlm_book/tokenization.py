"""From text to tokens. Generated from book/tokenization.ipynb: edit the notebook, then `make export`."""

import heapq
import json
import operator
import os
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module, resources
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, SupportsIndex

import regex
from tqdm import tqdm

from tlm_book.checks import expects, expects_one_of, expects_positive

__all__ = [
    "documents",
    "PATTERN",
    "GPT2_PATTERN",
    "pre_tokens",
    "Pair",
    "merge",
    "learn_merges",
    "LONG",
    "encode_piece",
    "Vocabulary",
    "FORMAT",
    "KNOWN",
    "Tokenizer",
    "byte_characters",
    "save_gpt2",
    "load_gpt2",
    "to_tokenizers",
    "from_tokenizers",
    "to_tiktoken",
    "train_by_tokenizers",
]


# --- Words


def documents() -> list[str]:
    """The book's corpus: short English texts, one str each, sorted by file name."""
    folder = resources.files("tlm_book") / "data" / "corpus"
    files = sorted(
        (file for file in folder.iterdir() if file.name.endswith(".txt")),
        key=lambda file: file.name,
    )
    return [file.read_text(encoding="utf-8") for file in files]


# --- Cutting into pre-tokens


PATTERN = "|".join(
    [
        r"[ '’]?[\p{L}\p{M}]+",  # a word, with the space or apostrophe before it
        r" ?\p{N}+",  # a number, with the space before it
        r" ?[^\s\p{L}\p{M}\p{N}]+",  # signs, with the space before them
        r"\s+(?= \S)|\s+",  # white space, less a space that belongs to what follows
    ]
)
# GPT-2's: English contractions, letters, numbers, signs, white space
GPT2_PATTERN = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
)


# The same rules for a text of ASCII characters, in the signs of `re`: twice as fast
_ASCII = {
    PATTERN: r"[ ']?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?= \S)|\s+",
    GPT2_PATTERN: r"'(?:[stmd]|re|ve|ll)| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+"
    r"|\s+(?!\S)|\s+",
}


@lru_cache
def _finder(pattern: str) -> Callable[[str], list[str]]:
    """The function that finds all matches of a pattern in a text, in order."""
    compiled = regex.compile(pattern)
    if pattern in _ASCII:
        quick = re.compile(_ASCII[pattern], re.ASCII).findall
        return lambda text: quick(text) if text.isascii() else compiled.findall(text)
    # Not findall, which would return a group's text for the whole match
    return lambda text: [match.group() for match in compiled.finditer(text)]


def _cut(text: str, pattern: str) -> list[str]:
    pieces = _finder(pattern)(text)
    expects(
        sum(map(len, pieces)) == len(text),
        "pattern",
        repr(pattern),
        "one that leaves out no part of the text",
    )
    return pieces


def _characters(text: str) -> str:
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
    return text


def pre_tokens(text: str, pattern: str = PATTERN) -> list[str]:
    """The pieces into which `pattern` cuts the text; joined, they are the text
    again.

    TypeError when `text` is no str; ValueError when it holds a surrogate or when the
    pattern leaves a part of it out.

    >>> pre_tokens("Isn't it 3 o'clock?")
    ['Isn', "'t", ' it', ' 3', ' o', "'clock", '?']
    """
    return [piece for piece in _cut(_characters(text), pattern) if piece]


# --- The implementation


Pair = tuple[int, int]


def merge(tokens: Sequence[int], pair: Pair, new: int) -> list[int]:
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


def _as_bytes(piece: str) -> bytes:
    # A surrogate from U+DC80 to U+DCFF stands for a byte that is part of no character
    return piece.encode("utf-8", errors="surrogateescape")


def _bar(
    items: Iterable[Any] | None, progress: bool | None, **settings: Any
) -> "tqdm[Any]":
    # None: on a terminal only, and not for what takes less than a second
    disable = None if progress is None else not progress
    return tqdm(items, disable=disable, delay=0 if progress else 1, **settings)


def _fuse(
    best: str,
    new: str,
    pieces: list[str],
    times: list[int],
    counts: dict[str, int],
    places: dict[str, list[int]],
) -> dict[str, int]:
    """Replace the pair `best` by `new` in every piece. Subtracts from `counts` what
    this destroys; returns the counts of the pairs that it makes."""
    a, b = best[0], best[1]
    # Places by the neighbour on the left, on the right; and of two occurrences in a row
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


def learn_merges(
    words: Mapping[str, int], n_merges: int, *, progress: bool | None = False
) -> list[Pair]:
    """The merges learned from pre-tokens and their counts, as
    `spec.tokenization.learn` learns them from the pre-tokens themselves.

    At most n_merges, fewer when no pair is left that occurs twice. A progress bar
    when `progress` is True, and on a terminal when it is None. (B-bpe-step,
    B-bpe-stop)

    ValueError for n_merges below 0 or out of all proportion.
    """
    most = 0x110000 - 256  # a token is written as one character
    expects(
        0 <= n_merges <= most, "n_merges", n_merges, f"a number ≥ 0 and ≤ {most}"
    )
    pieces = [_as_bytes(word).decode("latin-1") for word in words]
    times = list(words.values())
    # Numbers of the pieces in which a pair has been seen, once for each occurrence
    places: defaultdict[str, list[int]] = defaultdict(list)
    for place, piece in enumerate(pieces):
        for pair in map(operator.add, piece, piece[1:]):
            places[pair].append(place)
    counts = {p: sum(map(times.__getitem__, found)) for p, found in places.items()}
    heap = [(-count, pair) for pair, count in counts.items() if count >= 2]
    heapq.heapify(heap)
    merges: list[Pair] = []
    with _bar(None, progress, total=n_merges, unit=" merges") as bar:
        while heap and len(merges) < n_merges:
            count, best = heapq.heappop(heap)
            if -count != counts[best]:  # an old entry: the pair has become rarer
                if counts[best] >= 2:
                    heapq.heappush(heap, (-counts[best], best))
                continue
            new = chr(256 + len(merges))
            made = _fuse(best, new, pieces, times, counts, places)
            counts.update(made)
            for pair, count in made.items():
                if count >= 2:
                    heapq.heappush(heap, (-count, pair))
            merges.append((ord(best[0]), ord(best[1])))
            bar.update()
    return merges


LONG = 64  # bytes from which on a heap pays


def _encode_bytes(data: bytes, ranks: Mapping[Pair, int]) -> list[int]:
    tokens = list(data)
    if len(tokens) >= LONG:
        return _encode_long(tokens, ranks)
    while len(tokens) > 1:
        best = min(pairwise(tokens), key=lambda pair: ranks.get(pair, len(ranks)))
        if best not in ranks:
            break
        tokens = merge(tokens, best, 256 + ranks[best])
    return tokens


def encode_piece(piece: str, ranks: Mapping[Pair, int]) -> list[int]:
    """The tokens of one pre-token, when `ranks` numbers the merges: smallest rank
    first. (T-bpe-rank-order)
    """
    return _encode_bytes(_as_bytes(piece), ranks)


def _encode_long(tokens: list[int], ranks: Mapping[Pair, int]) -> list[int]:
    """The same with a heap of (rank, place) and a chain from each token to its
    neighbours: n log n steps for n bytes."""
    n = len(tokens)
    before, after = list(range(-1, n - 1)), list(range(1, n + 1))
    pairs = enumerate(pairwise(tokens))
    heap = [(ranks[pair], i) for i, pair in pairs if pair in ranks]
    heapq.heapify(heap)
    while heap:
        rank, i = heapq.heappop(heap)
        j = after[i]
        if j == n or ranks.get((tokens[i], tokens[j])) != rank:
            continue  # an old entry: one of the two is part of another token now
        tokens[i], tokens[j] = 256 + rank, -1  # −1: nothing is left here
        after[i] = after[j]
        if after[i] < n:
            before[after[i]] = i
        for left, right in ((before[i], i), (i, after[i])):
            if left >= 0 and right < n:
                made = ranks.get((tokens[left], tokens[right]))
                if made is not None:
                    heapq.heappush(heap, (made, left))
    return [token for token in tokens if token >= 0]


def _merges(merges: Iterable[Sequence[int]]) -> list[Pair]:
    pairs: list[Any] = [tuple(pair) for pair in merges]
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


def _ids(ids: Iterable[int] | None, size: int) -> list[int]:
    if ids is None:
        return list(range(size))
    numbers = list(ids)
    whole = all(type(number) is int for number in numbers)
    expects(whole, "ids", "something that is no integer", "integers", TypeError)
    expects(sorted(numbers) == list(range(size)), "ids", f"{len(numbers)} numbers", f"each number from 0 to {size - 1} once")
    return numbers


def _pattern(pattern: str) -> str:
    expects(isinstance(pattern, str), "pattern", type(pattern).__name__, "str", TypeError)
    try:
        _finder(pattern)
    except regex.error as error:
        expects(False, "pattern", f"{pattern!r} ({error})", "a regular expression")
    return pattern


def _texts(texts: Iterable[str]) -> Iterable[str]:
    expects(not isinstance(texts, str), "texts", "one str", "several texts, such as a list of str", TypeError)
    return texts


class Vocabulary:
    """The tokens of a byte pair encoding and their byte strings: all that decoding
    needs. (B-bpe-object)

    merges   list of pairs; pair number k makes token 256 + k
    specials {name: token}, after the merges
    ids      where tokens are numbered otherwise: token t of `merges` is known outside
             as ids[t], a permutation of 0, …, V − 1
    start    the first special's token: start marker and document separator;
             ValueError when there is none

    `merges` alone counts as above. All methods, `specials` and `start` speak of
    tokens by the numbers in `ids`.

    ValueError when a merge uses a token that does not stand before it, when a merge
    or a special comes twice, when a special's name is empty or not printable, or
    when `ids` is no permutation; TypeError when one is of the wrong type.
    """

    def __init__(
        self,
        merges: Iterable[Sequence[int]],
        specials: Sequence[str] = ("<|endoftext|>",),
        *,
        ids: Iterable[int] | None = None,
    ) -> None:
        self.merges = _merges(merges)
        names = _specials(specials)
        strings = [bytes([b]) for b in range(256)]
        for a, b in self.merges:
            strings.append(strings[a] + strings[b])
        strings += [name.encode("utf-8") for name in names]
        self.ids = _ids(ids, len(strings))
        self.specials = dict(zip(names, self.ids[256 + len(self.merges) :]))
        self._bytes = [b""] * len(strings)
        for number, string in zip(self.ids, strings):
            self._bytes[number] = string

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
        return next(iter(self.specials.values()))

    def token_bytes(self, token: SupportsIndex) -> bytes:
        """The byte string for which a token stands; that of its name for a special.
        Errors as in `decode_bytes`."""
        try:
            number = operator.index(token)
        except TypeError:
            number = -1
        whole = hasattr(token, "__index__") and not isinstance(token, bool)
        expects(whole, "token", repr(token), "an integer", TypeError)
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

    def check_same(self, other: "Vocabulary") -> None:
        """ValueError that names the first difference unless every token is the same
        in both, so that the tokens of one may be decoded by the other. TypeError for
        what is no Vocabulary."""
        right, came = isinstance(other, Vocabulary), type(other).__name__
        expects(right, "other", came, "a Vocabulary or Tokenizer", TypeError)
        expects(
            len(self) == len(other),
            "other",
            f"{len(other)} tokens",
            f"{len(self)} tokens",
        )
        for token in range(len(self)):
            special = [token in v.specials.values() for v in (self, other)]
            expects(
                self._bytes[token] == other._bytes[token]
                and special[0] == special[1],
                "other",
                f"token {token} = {other.token_text(token)}"
                + " (special)" * special[1],
                f"{self.token_text(token)}" + " (special)" * special[0],
            )

    def decode(self, tokens: Iterable[SupportsIndex]) -> str:
        """The text of the tokens; bytes that form no character become U+FFFD. Errors
        as in `decode_bytes`."""
        return self.decode_bytes(tokens).decode("utf-8", errors="replace")


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


def _read(path: Path) -> dict[str, Any]:
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


KNOWN = 100_000  # how many pre-tokens a tokenizer remembers


class _Known(dict[str, list[int]]):
    """The tokens of pre-tokens; encodes those that it does not hold."""

    def __init__(self, ranks: Mapping[Pair, int], ids: Sequence[int]) -> None:
        self.ranks, self.ids = ranks, ids

    def __missing__(self, piece: str) -> list[int]:
        tokens = [self.ids[token] for token in encode_piece(piece, self.ranks)]
        if len(self) < KNOWN and len(piece) < LONG:
            self[piece] = tokens
        return tokens


class Tokenizer(Vocabulary):
    """Byte-level byte pair encoding: text to tokens and back. Learn one with
    `train`, read one with `load`.

    Errors as in `Vocabulary`; ValueError when `pattern` is no regular expression.

    >>> Tokenizer([(104, 105)]).encode("hi, hi")
    [256, 44, 32, 256]
    """

    def __init__(
        self,
        merges: Iterable[Sequence[int]],
        specials: Sequence[str] = ("<|endoftext|>",),
        pattern: str = PATTERN,
        *,
        ids: Iterable[int] | None = None,
    ) -> None:
        super().__init__(merges, specials, ids=ids)
        self.pattern = _pattern(pattern)
        ranks = {pair: k for k, pair in enumerate(self.merges)}
        self._known = _Known(ranks, self.ids)

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        vocab_size: int,
        *,
        specials: Sequence[str] = ("<|endoftext|>",),
        pattern: str = PATTERN,
        engine: str = "python",
        progress: bool | None = None,
    ) -> "Tokenizer":
        """Learn merges from the texts, each a document, until there are `vocab_size`
        tokens or no pair occurs twice. In the second case a UserWarning says how far
        it got.

        The texts are read once, one by one, and not kept. `engine="tokenizers"` has
        the library of that name do the work. `progress`: show a bar; None shows one
        on a terminal.

        ValueError when vocab_size < 256 + the number of specials, or for another
        engine; TypeError when a text is no str."""
        names, pattern = _specials(specials), _pattern(pattern)
        expects_one_of("engine", engine, ("python", "tokenizers"))
        expects_positive(vocab_size=vocab_size)
        least = 256 + len(names)
        expects(
            vocab_size >= least,
            "vocab_size",
            vocab_size,
            f"at least {least} (256 bytes, specials {names})",
        )
        documents = iter(_bar(_texts(texts), progress, unit=" documents"))
        n_merges = vocab_size - least
        if engine == "tokenizers":
            merges = train_by_tokenizers(documents, n_merges, pattern)
        else:
            words: Counter[str] = Counter()
            for text in documents:
                words.update(pre_tokens(text, pattern))
            merges = learn_merges(words, n_merges, progress=progress)
        if len(merges) < n_merges:
            reached = f"{least + len(merges)}: no further pair occurs twice"
            message = f"vocab_size: got {vocab_size}, reached {reached}"
            warnings.warn(message, stacklevel=2)
        return cls(merges, names, pattern)

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
            return self._tokens(_characters(text))
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

    def encode_bytes(self, data: bytes) -> list[int]:
        """The tokens of a byte string, whether it is the UTF-8 form of a text or not;
        `decode_bytes` gives it back."""
        right = isinstance(data, bytes)
        expects(right, "data", type(data).__name__, "bytes", TypeError)
        return self._tokens(data.decode("utf-8", errors="surrogateescape"))

    def _tokens(self, text: str) -> list[int]:
        pieces = _cut(text, self.pattern)
        return list(chain.from_iterable(map(self._known.__getitem__, pieces)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one JSON file; an old one is replaced only when the new one is
        complete."""
        names = list(self.specials)
        state: dict[str, object] = {"pattern": self.pattern, "specials": names}
        state["merges"] = self.merges
        if self.ids != list(range(len(self))):
            state["ids"] = self.ids
        _write(Path(path), state)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Tokenizer":
        """Read a file that `save` wrote; ValueError that names the file when it is
        no such file."""
        try:
            state = _read(Path(path))
            return cls(
                state["merges"],
                state["specials"],
                state["pattern"],
                ids=state.get("ids"),
            )
        except (ValueError, TypeError, RecursionError) as error:
            got = f"{os.fspath(path)!r} ({error})"
            wanted = "a file that Tokenizer.save wrote"
            raise ValueError(f"path: got {got}, want {wanted}") from error

    def to_tokenizers(self) -> Any:
        """This tokenizer as a `tokenizers.Tokenizer`; see `to_tokenizers`."""
        return to_tokenizers(self)

    @classmethod
    def from_tokenizers(cls, engine: Any) -> "Tokenizer":
        """A `tokenizers.Tokenizer` as one of ours; see `from_tokenizers`."""
        return from_tokenizers(engine)

    def to_tiktoken(self) -> Any:
        """This tokenizer as a `tiktoken.Encoding`; see `to_tiktoken`."""
        return to_tiktoken(self)

    def save_gpt2(self, folder: str | os.PathLike[str]) -> None:
        """Write GPT-2's two files, vocab.json and merges.txt; see `save_gpt2`."""
        save_gpt2(self, folder)

    @classmethod
    def load_gpt2(cls, folder: str | os.PathLike[str]) -> "Tokenizer":
        """Read GPT-2's two files; see `load_gpt2`."""
        return load_gpt2(folder)


# --- GPT-2's alphabet


def byte_characters() -> list[str]:
    """GPT-2's character for each byte, in the order of the bytes: the character of
    that number where it shows, else U+0100, U+0101, … in turn. (T-byte-characters)

    >>> "".join(byte_characters()[b] for b in b"a b")
    'aĠb'
    """
    shown = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = [b for b in range(256) if b not in shown]
    substitute = {b: chr(256 + k) for k, b in enumerate(hidden)}
    return [substitute.get(b, chr(b)) for b in range(256)]


def _spellings(tokenizer: Tokenizer) -> list[str]:
    """Every token in GPT-2's characters, a special by its name; in internal order."""
    names = byte_characters()
    for a, b in tokenizer.merges:
        names.append(names[a] + names[b])
    names += tokenizer.specials
    twice = next((name for name, n in Counter(names).items() if n > 1), None)
    wanted = "tokens with different spellings"
    expects(twice is None, "tokenizer", f"two tokens spelled {twice!r}", wanted)
    return names


def _from_spellings(
    vocab: Mapping[str, int],
    merges: Iterable[Sequence[str]],
    specials: Sequence[str],
    pattern: str,
) -> Tokenizer:
    """The tokenizer whose tokens have these spellings and numbers."""
    token = {letter: b for b, letter in enumerate(byte_characters())}
    pairs = []
    for k, pair in enumerate(merges):
        got, whole = f"{' '.join(pair)!r} as number {k}", "".join(pair)
        right = len(pair) == 2 and all(name in token for name in pair)
        expects(right, "merges", got, "two tokens that stand before it")
        expects(whole not in token, "merges", got, "no token twice")
        pairs.append((token[pair[0]], token[pair[1]]))
        token[whole] = 256 + k
    clash = [name for name in specials if name in token]
    expects(not clash, "specials", clash, "names that spell no other token")
    names = [*token, *specials]
    odd = sorted(vocab.keys() ^ set(names))[:3]
    expects(
        not odd, "vocab", odd, "the bytes, the merges and the specials, no other"
    )
    ids = [vocab[name] for name in names]
    return Tokenizer(pairs, specials, pattern, ids=ids)


def save_gpt2(tokenizer: Tokenizer, folder: str | os.PathLike[str]) -> None:
    """Write GPT-2's two files into a folder: vocab.json (spelling: number) and
    merges.txt (two spellings a line).

    ValueError when two tokens have one spelling, and when the pattern is not
    GPT2_PATTERN: the files do not hold it, so that is what a reader will use. Old
    files are replaced only when both new ones are complete.
    """
    wanted = "GPT2_PATTERN, which these files stand for"
    right = tokenizer.pattern == GPT2_PATTERN
    expects(right, "pattern", repr(tokenizer.pattern), wanted)
    names = _spellings(tokenizer)
    vocab = {name: number for number, name in sorted(zip(tokenizer.ids, names))}
    lines = [f"{names[a]} {names[b]}" for a, b in tokenizer.merges]
    texts = {
        "vocab.json": json.dumps(vocab, ensure_ascii=False),
        "merges.txt": "\n".join(["#version: 0.2", *lines]),
    }
    parts = {name: Path(folder) / f"{name}.part" for name in texts}
    try:
        for name, part in parts.items():
            part.write_text(texts[name] + "\n", encoding="utf-8", newline="\n")
        for name, part in parts.items():
            os.replace(part, Path(folder) / name)
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)


def load_gpt2(folder: str | os.PathLike[str]) -> Tokenizer:
    """The tokenizer of a folder with GPT-2's vocab.json and merges.txt. What is in the
    vocabulary and neither byte nor merge is a special; specials come in the order of
    their numbers.

    ValueError that names the folder when the files are broken or do not fit together.
    """
    try:
        vocab = json.loads((Path(folder) / "vocab.json").read_text(encoding="utf-8"))
        right = isinstance(vocab, dict)
        right = right and all(type(number) is int for number in vocab.values())
        expects(right, "vocab.json", "something else", "a number for each spelling")
        lines = (Path(folder) / "merges.txt").read_text(encoding="utf-8").split("\n")
        start = int(lines[0].startswith("#version"))
        merges = [tuple(line.split(" ")) for line in lines[start:] if line]
        known = {*byte_characters(), *map("".join, merges)}
        specials = sorted(vocab.keys() - known, key=vocab.__getitem__)
        return _from_spellings(vocab, merges, specials, GPT2_PATTERN)
    except (ValueError, TypeError, RecursionError) as error:
        got, wanted = (
            f"{os.fspath(folder)!r} ({error})",
            "files that save_gpt2 wrote",
        )
        raise ValueError(f"folder: got {got}, want {wanted}") from error


# --- The engine tokenizers


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        problem = f"{name}: got no such library, want it for this bridge"
        raise ImportError(f"{problem} (pip install {name})") from error


_SIGNS = "aZ09 '’_-.\t\n\r\0éß²½٣中ｱहि\u0301\u200d\u00a0\u3000\x1c\x85🍵"
_PROBE = "I'm, we'LL  \n\n go " + "".join(a + b for a in _SIGNS for b in _SIGNS)


def _same_cuts(pattern: str, pieces: list[bytes], engine: str) -> None:
    right = pieces == [
        piece.encode("utf-8") for piece in pre_tokens(_PROBE, pattern)
    ]
    wanted = f"one that {engine} reads in the same way"
    expects(right, "pattern", repr(pattern), wanted)


def _pre_tokenizer(lib: Any, pattern: str) -> Any:
    cut = lib.pre_tokenizers
    if pattern == GPT2_PATTERN:
        return cut.ByteLevel(add_prefix_space=False)
    try:
        split = cut.Split(lib.Regex(pattern), "isolated")
    except Exception as error:  # the library raises no narrower type
        got = f"{pattern!r} ({error})"
        expects(False, "pattern", got, "one that tokenizers can read")
    pieces = [piece.encode("utf-8") for piece, _ in split.pre_tokenize_str(_PROBE)]
    _same_cuts(pattern, pieces, "tokenizers")
    to_characters = cut.ByteLevel(add_prefix_space=False, use_regex=False)
    return cut.Sequence([split, to_characters])


def to_tokenizers(tokenizer: Tokenizer) -> Any:
    """The same tokenizer as a `tokenizers.Tokenizer`: the same tokens for every text.
    Its `save("tokenizer.json")` writes Hugging Face's file.

    As here, the name of a special inside a text is ordinary text. After
    `engine.encode_special_tokens = False`, and in an engine read from a file, all
    specials are allowed.

    ValueError when two tokens have one spelling or the engine reads the pattern
    otherwise; ImportError without the library.
    """
    lib = _library("tokenizers")
    names = _spellings(tokenizer)
    merges = [(names[a], names[b]) for a, b in tokenizer.merges]
    vocab = dict(zip(names, tokenizer.ids))
    engine = lib.Tokenizer(lib.models.BPE(vocab=vocab, merges=merges))
    engine.pre_tokenizer = _pre_tokenizer(lib, tokenizer.pattern)
    engine.decoder = lib.decoders.ByteLevel()
    specials = [
        lib.AddedToken(name, normalized=False) for name in tokenizer.specials
    ]
    engine.add_special_tokens(specials)
    engine.encode_special_tokens = True
    return engine


def _wants(part: str, got: object, *wanted: object) -> None:
    one = " or ".join(map(json.dumps, wanted))
    expects(got in wanted, "engine", f"{part} {json.dumps(got)}", f"{part} {one}")


def _pattern_of(cut: dict[str, Any] | None) -> str:
    """The pattern in an engine's settings: ByteLevel, or Split before ByteLevel."""
    steps = (cut or {}).get("pretokenizers", [cut])
    kinds = [(step or {}).get("type") for step in steps]
    _wants("pre_tokenizer", kinds, ["ByteLevel"], ["Split", "ByteLevel"])
    _wants("add_prefix_space", steps[-1]["add_prefix_space"], False)
    _wants("use_regex", steps[-1]["use_regex"], len(steps) == 1)
    if len(steps) == 1:
        return GPT2_PATTERN
    _wants("behavior", steps[0]["behavior"], "Isolated")
    _wants("invert", steps[0]["invert"], False)
    _wants("pattern", list(steps[0]["pattern"]), ["Regex"])
    return steps[0]["pattern"]["Regex"]


def _check_settings(state: dict[str, Any]) -> None:
    for part in ("normalizer", "truncation", "padding"):
        _wants(part, (state[part] or {}).get("type", state[part]), None)
    _wants("decoder", (state["decoder"] or {}).get("type"), "ByteLevel")
    model = state["model"]
    _wants("model", model["type"], "BPE")
    _wants("dropout", model["dropout"], None, 0.0)
    _wants("unk_token", model["unk_token"], None)
    for part in ("continuing_subword_prefix", "end_of_word_suffix"):
        _wants(part, model[part], None, "")
    for part in ("byte_fallback", "ignore_merges"):
        _wants(part, model.get(part, False), False)
    for token in state["added_tokens"]:
        _wants("special", token["special"], True)
        for part in ("single_word", "lstrip", "rstrip"):
            _wants(part, token[part], False)


def from_tokenizers(engine: Any) -> Tokenizer:
    """The same tokenizer, from a `tokenizers.Tokenizer` that is a byte-level byte pair
    encoding; specials come in the order of their numbers.

    ValueError for whatever could change a token and has no place here: a normalizer,
    another model, an unknown token, dropout, a space put before the text,
    `ignore_merges`, …; TypeError when it is no such engine.
    """
    lib = _library("tokenizers")
    right = isinstance(engine, lib.Tokenizer)
    name = type(engine).__name__
    expects(right, "engine", name, "a tokenizers.Tokenizer", TypeError)
    state = json.loads(engine.to_str())
    _check_settings(state)
    adds = engine.num_special_tokens_to_add(False)
    expects(
        adds == 0, "engine", f"a post_processor adding {adds} tokens", "none added"
    )
    added = sorted(state["added_tokens"], key=lambda token: token["id"])
    numbers = {token["content"]: token["id"] for token in added}
    model, pattern = state["model"], _pattern_of(state["pre_tokenizer"])
    vocab = model["vocab"] | numbers
    _pre_tokenizer(lib, pattern)  # read alike in both?
    return _from_spellings(vocab, model["merges"], list(numbers), pattern)


# --- The engine tiktoken


def _tiktoken_engine(
    lib: Any, pattern: str, numbers: dict[bytes, int], specials: dict[str, int]
) -> Any:
    try:
        return lib.Encoding(
            "ours", pat_str=pattern, mergeable_ranks=numbers, special_tokens=specials
        )
    except ValueError as error:
        got = f"{pattern!r} ({error})"
        expects(False, "pattern", got, "one that tiktoken can read")


def _tiktoken_cuts(lib: Any, pattern: str) -> list[bytes]:
    """How the engine cuts the probe. It does not say, so each piece that we expect,
    and each two of them joined, is made a token: a wrong cut gives another token."""
    pieces = [piece.encode("utf-8") for piece in pre_tokens(_PROBE, pattern)]
    tokens = [
        *(bytes([b]) for b in range(256)),
        *pieces,
        *map(operator.add, pieces, pieces[1:]),
    ]
    numbers = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    engine = _tiktoken_engine(lib, pattern, numbers, {})
    return engine.decode_tokens_bytes(engine.encode_ordinary(_PROBE))


def to_tiktoken(tokenizer: Tokenizer) -> Any:
    """The same tokenizer as a `tiktoken.Encoding`: the same tokens for every text, by
    `encode_ordinary`, or by `encode` with `allowed_special`. (T-joined-strings)

    ValueError when `ids` does not increase with the merges, when some token's bytes
    are encoded otherwise (never so for learned merges), when one special's name
    begins another, or when the engine reads the pattern otherwise; ImportError
    without the library.
    """
    lib = _library("tiktoken")
    ids, end = tokenizer.ids, 256 + len(tokenizer.merges)
    rising = all(a < b for a, b in pairwise(ids[256:end]))
    expects(
        rising, "ids", "merges out of order", "ids that increase with the merges"
    )
    names = sorted(tokenizer.specials)  # a beginning comes just before
    clash = [pair for pair in pairwise(names) if pair[1].startswith(pair[0])]
    expects(not clash, "specials", clash, "names of which none begins another")
    strings = [tokenizer.token_bytes(ids[t]) for t in range(end)]
    ranks = {pair: k for k, pair in enumerate(tokenizer.merges)}
    lost = [t for t in range(end) if _encode_bytes(strings[t], ranks) != [t]]
    got = f"token {lost[0]}, which is never produced" if lost else ""
    expects(not lost, "merges", got, "tokens whose bytes are encoded as themselves")
    _same_cuts(tokenizer.pattern, _tiktoken_cuts(lib, tokenizer.pattern), "tiktoken")
    numbers = {string: ids[t] for t, string in enumerate(strings)}
    return _tiktoken_engine(
        lib, tokenizer.pattern, numbers, dict(tokenizer.specials)
    )


# --- Training by the other engine


def train_by_tokenizers(
    texts: Iterable[str], n_merges: int, pattern: str = PATTERN
) -> list[Pair]:
    """The merges that the trainer of the library tokenizers learns: those of
    `learn_merges` from the pre-tokens of the texts. (T-rust-ties)

    TypeError when a text is no str; ValueError for a lone surrogate or a pattern that
    the engine cannot read; ImportError without the library.
    """
    expects(n_merges >= 0, "n_merges", n_merges, "a number ≥ 0")
    lib = _library("tokenizers")
    letters = byte_characters()
    trainer = lib.trainers.BpeTrainer(
        vocab_size=256 + n_merges,
        min_frequency=2,
        special_tokens=letters,  # numbered first, in this order
        show_progress=False,
    )
    engine = lib.Tokenizer(lib.models.BPE())
    engine.pre_tokenizer = _pre_tokenizer(lib, pattern)
    engine.train_from_iterator(map(_characters, texts), trainer)
    token = {letter: b for b, letter in enumerate(letters)}
    merges: list[Pair] = []
    for a, b in json.loads(engine.to_str())["model"]["merges"]:
        token[a + b] = 256 + len(merges)
        merges.append((token[a], token[b]))
    return merges

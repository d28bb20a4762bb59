"""The tokenizer: learning merges from texts, encoding texts, writing and reading a file."""

import os
import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import SupportsIndex

from tlm_book.checks import (
    expects,
    expects_kind,
    expects_one_of,
    expects_positive,
    expects_several,
)
from tlm_book.files import checked_path
from tlm_book.spec.tokenization import TokenPair
from tlm_book.tokenization.bpe import PATTERN, checked_pattern, checked_text
from tlm_book.tokenization.engine import (
    MOST,
    Remembered,
    bar,
    cut,
    encode_piece,
    learn_merges,
)
from tlm_book.tokenization.files import read_state, write_state
from tlm_book.tokenization.rust import train_by_tokenizers
from tlm_book.tokenization.vocabulary import Vocabulary, checked_specials

__all__ = ["Tokenizer"]


class Tokenizer(Vocabulary):
    """Byte-level byte pair encoding: text to tokens and back. Learn one with `train`, read one with `load`; `len(tokenizer)` is the size of its vocabulary.

    Errors as in `Vocabulary`; ValueError if `pattern` is not a regular expression.

    >>> Tokenizer([(104, 105)]).encode("hi, hi")
    [256, 44, 32, 256]
    """

    def __init__(
        self,
        merges: Iterable[Iterable[SupportsIndex]],
        specials: Sequence[str] = ("<|endoftext|>",),
        pattern: str = PATTERN,
        *,
        ids: Iterable[SupportsIndex] | None = None,
    ) -> None:
        super().__init__(merges, specials, ids=ids)
        self.pattern = checked_pattern(pattern)
        self._ranks = {pair: k for k, pair in enumerate(self.merges)}
        self._known = Remembered(self._piece)

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
        """Learn merges from the texts, each a document, until there are `vocab_size` tokens or no pair occurs twice. In the second case a
        UserWarning says how far it got.

        The texts are read once, one by one, and not kept. `engine="tokenizers"` lets the library of that name do the work. `progress` says
        whether to show a bar; None shows one on a terminal.

        ValueError if vocab_size < 256 + the number of specials or excessively large, for another engine, for a lone surrogate, and if `pattern` leaves
        out a part of a text; TypeError if a text is not a str or vocab_size is not an int; ImportError without the library that `engine` asks for.
        With engine="tokenizers" also errors as in `train_by_tokenizers`."""
        names, pattern = checked_specials(specials), checked_pattern(pattern)
        expects_one_of("engine", engine, ("python", "tokenizers"))
        expects_positive(vocab_size=vocab_size)
        least = 256 + len(names)
        expects(vocab_size >= least, "vocab_size", vocab_size, f"at least {least} (256 bytes, specials {names})")
        documents = iter(bar(_several(texts), progress, unit=" documents"))
        n_merges = vocab_size - least
        expects(n_merges <= MOST, "vocab_size", vocab_size, f"at most {least + MOST}")
        if engine == "tokenizers":
            merges = train_by_tokenizers(documents, n_merges, pattern)
        else:
            words: Counter[str] = Counter()
            for text in documents:
                words.update(cut(checked_text(text), pattern))
            merges = learn_merges(words, n_merges, progress=progress)
        if len(merges) < n_merges:
            reached = f"{least + len(merges)}: no further pair occurs twice"
            warnings.warn(f"vocab_size: got {vocab_size}, reached {reached}", stacklevel=2)
        return cls(merges, names, pattern)

    def encode(self, text: str, *, allowed_special: Collection[str] = ()) -> list[int]:
        """The tokens of a text. A special's name is ordinary text unless `allowed_special` contains it. (B-tokenize-canonical)

        TypeError if `text` is not a str; ValueError for a lone surrogate or an unknown special, and if `pattern` leaves out a part of the text."""
        text = checked_text(text)
        expects_several("allowed_special", allowed_special, "a collection of names", Collection)
        for name in allowed_special:
            expects(name in self.specials, "allowed_special", repr(name), f"names among {list(self.specials)}")
        if not allowed_special:
            return self._tokens(text)
        longest_first = sorted(allowed_special, key=len, reverse=True)  # since one name may begin another
        tokens: list[int] = []
        for part in re.split(f"({'|'.join(map(re.escape, longest_first))})", text):
            tokens += [self.specials[part]] if part in allowed_special else self._tokens(part)
        return tokens

    def encode_batch(self, texts: Iterable[str], *, allowed_special: Collection[str] = ()) -> list[list[int]]:
        """The tokens of each text; `allowed_special` and errors as in `encode`, TypeError for a single str."""
        return [self.encode(text, allowed_special=allowed_special) for text in _several(texts)]

    def encode_bytes(self, data: bytes) -> list[int]:
        """The tokens of a byte string, whether or not it is the UTF-8 form of a text; `decode_bytes` gives it back."""
        expects_kind("data", data, bytes, "bytes")
        return self._tokens(data.decode("utf-8", errors="surrogateescape"))

    def _tokens(self, text: str) -> list[int]:
        return list(chain.from_iterable(map(self._known.__getitem__, cut(text, self.pattern))))

    def _piece(self, piece: str) -> list[int]:
        return [self.ids[token] for token in encode_piece(piece, self._ranks)]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tokenizer into one JSON file; an old file is replaced only when the new one is complete."""
        state = {"pattern": self.pattern, "specials": list(self.specials), "merges": self.merges}
        renumbered = self.ids != list(range(len(self)))
        write_state(checked_path(path), {**state, "ids": self.ids} if renumbered else state)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Tokenizer":
        """Read a file that `save` wrote; ValueError, which names the file, for any other file."""
        path = checked_path(path)
        try:
            state = read_state(path)
            return cls(state["merges"], state["specials"], state["pattern"], ids=state.get("ids"))
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(f"path: got {os.fspath(path)!r} ({error}), want a file that Tokenizer.save wrote") from error


# ---- checks of arguments


def _several(texts: Iterable[str]) -> Iterable[str]:
    expects_several("texts", texts, "several texts, such as a list of str")
    return texts

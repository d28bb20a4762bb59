"""The tokenizer in a tokenizer.json of the hub: byte-level (Llama 3, Qwen, SmolLM) or of the sentencepiece kind (Llama 2, Mistral, Gemma).

Written by hand.
"""

import functools
import json
import operator
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import chain
from typing import Any, SupportsIndex

from tlm_book.checks import expects, expects_kind, expects_several, expects_whole
from tlm_book.files import checked_path
from tlm_book.spec.tokenization import TokenPair
from tlm_book.tokenization.bpe import checked_text
from tlm_book.tokenization.engine import Remembered, merged
from tlm_book.tokenization.files import write_texts
from tlm_book.tokenization.json_parts import (
    BLANK,
    byte_of,
    cutter,
    frame,
    leading_spaces,
    normalizer,
    wants,
    whole_numbers,
)
from tlm_book.tokenization.rust import byte_characters
from tlm_book.tokenization.vocabulary import Tokens

__all__ = ["HubTokenizer"]


def _expects_counts(size: int, start: int | None, stop: int | None) -> None:
    given = {"size": size} | {name: token for name, token in (("start", start), ("stop", stop)) if token is not None}
    expects_whole(**given)
    for name, got in given.items():
        expects(got >= 0, name, got, "at least 0")


_Finder = tuple[Mapping[str, str], re.Pattern[str]]  # {spelling: name of the added token}, and a pattern for all spellings


def _finder(names: Mapping[str, str]) -> _Finder:
    longest_first = sorted(names, key=len, reverse=True)  # since one may begin another
    return names, re.compile("|".join(map(re.escape, longest_first)))


class HubTokenizer(Tokens):
    """The tokenizer that a tokenizer.json describes: it gives the tokens of the library tokenizers, without that library.

    state     the file's content, as `json.loads` gives it
    size      the number of tokens, 0 for the file's own; those beyond these stand for no text. (Models like Qwen's have more rows
              than tokens, for the sake of round numbers.)
    start     the token before a text; None: the one that the file puts there, else the first special
    stop      the token that ends a text; None: start
    specials  {name: token}: tokens that stand for no text, such as <s>

    ValueError, which says why, for anything in the file that could change a token and is not supported. TypeError if a count is not a whole number or `state` no mapping.
    """

    def __init__(self, state: Mapping[str, Any], size: int = 0, *, start: int | None = None, stop: int | None = None) -> None:
        _expects_counts(size, start, stop)
        expects_kind("state", state, Mapping, "the content of a tokenizer.json")
        self.state = state
        try:
            self._read(state, size)
        except (KeyError, TypeError, AttributeError) as error:
            what = f"no field {error}" if isinstance(error, KeyError) else error
            raise ValueError(f"state: got something else ({what}), want the content of a tokenizer.json") from error
        for argument, token in (("start", start), ("stop", stop)):
            expects(token is None or token in range(len(self)), argument, token, f"a token from 0 to {len(self) - 1}")
        self._start, self._stop = start, stop
        self._known = Remembered(self._piece)

    def _read(self, state: Mapping[str, Any], size: int) -> None:
        missing = [part for part in ("normalizer", "pre_tokenizer", "model", "post_processor", "decoder", "added_tokens") if part not in state]
        expects(not missing, "state", f"no field {missing[:1]}", "all parts of a tokenizer.json")
        wants("model", (state["model"] or {}).get("type", "BPE"), "BPE")  # first: of another kind, other parts differ too
        for part in ("truncation", "padding"):
            wants(part, (state.get(part) or {}).get("direction", state.get(part)), None)
        self._normalized = normalizer(state["normalizer"])
        self._cut, self.byte_level = cutter(state["pre_tokenizer"])
        self._leading = leading_spaces(state["decoder"])
        wants("decoder for a ByteLevel pre_tokenizer", self._leading is None, self.byte_level)
        self.before, self.after = frame(state["post_processor"])
        self._read_model(state["model"])
        self._read_added(state["added_tokens"] or [])
        self._bytes = self._byte_strings(size)

    @classmethod
    def load(cls, path: str | os.PathLike[str], size: int = 0, *, start: int | None = None, stop: int | None = None) -> "HubTokenizer":
        """Read a tokenizer.json; ValueError, which names the file, if it is broken or describes a tokenizer of another kind; TypeError if `size`,
        `start` or `stop` is not a whole number."""
        _expects_counts(size, start, stop)
        path = checked_path(path)
        try:
            return cls(json.loads(path.read_text(encoding="utf-8")), size, start=start, stop=stop)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            what = f"no field {error}" if isinstance(error, KeyError) else error
            raise ValueError(f"path: got {os.fspath(path)!r} ({what}), want a tokenizer.json of byte pair encoding") from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tokenizer.json; an old file is replaced only when the new one is complete."""
        write_texts({checked_path(path): json.dumps(self.state, ensure_ascii=False, indent=2)})

    def __reduce__(self) -> tuple[Callable[..., "HubTokenizer"], tuple[Mapping[str, Any], int]]:
        """For pickle and copy, which make it anew from its state."""
        return functools.partial(type(self), start=self._start, stop=self._stop), (self.state, len(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(vocab_size={len(self)}, merges={len(self._ranks)}, specials={list(self.specials)[:8]})"

    @property
    def start(self) -> int:
        """The token before a text."""
        if self._start is not None:
            return self._start
        return self.before[0] if self.before else super().start

    @property
    def stop(self) -> int:
        """The token that ends a text."""
        return self.start if self._stop is None else self._stop

    # What the file says

    def _read_model(self, model: Mapping[str, Any]) -> None:
        wants("dropout", model.get("dropout"), None, 0.0)
        for part in ("continuing_subword_prefix", "end_of_word_suffix"):
            wants(part, model.get(part), None, "")
        wants("byte_fallback", model.get("byte_fallback", False), not self.byte_level)
        vocab: dict[str, int] = model["vocab"]
        whole = whole_numbers(list(vocab.values())) and len(set(vocab.values())) == len(vocab)
        expects(whole, "vocab", "numbers that are none or come twice", "a number of its own for each token")
        self._vocab, self._whole = vocab, bool(model.get("ignore_merges", False))
        self._letters = byte_characters()
        names = self._letters if self.byte_level else [f"<0x{b:02X}>" for b in range(256)]
        missing = [name for name in names if name not in vocab]
        expects(not missing, "vocab", f"no token {missing[:3]}", "a token for each of the 256 bytes")
        self._byte = [vocab[name] for name in names]
        self._ranks: dict[TokenPair, int] = {}
        self._made: list[int] = []  # the token of each merge
        for rank, pair in enumerate(model["merges"]):
            a, b = pair.split(" ") if isinstance(pair, str) else pair
            odd = [name for name in (a, b, a + b) if name not in vocab]
            expects(not odd, "merges", f"{a!r} and {b!r} as number {rank}", f"tokens of the vocabulary, not {odd[:1]}")
            self._ranks[vocab[a], vocab[b]] = rank
            self._made.append(vocab[a + b])

    def _read_added(self, added: list[Mapping[str, Any]]) -> None:
        """Read the tokens that are looked for in the text before anything else is done, or in the normalized text if they are marked "normalized"."""
        self._added: dict[str, int] = {}
        self._spelled: list[tuple[str, int]] = []  # as they are decoded; two may be spelled alike
        self.specials, end = {}, len(self._vocab)
        last = end and max(self._vocab.values()) + 1
        wants("numbers of the vocabulary", last, end)
        spellings: list[dict[str, str]] = [{}, {}]
        for token in sorted(added, key=lambda token: token["id"]):
            name, number = token["content"], token["id"]
            for part in ("single_word", "lstrip", "rstrip"):
                wants(f"{part} of {name!r}", token[part], False)
            wants(f"number of {name!r}", number, self._vocab.get(name, end))
            end += name not in self._vocab
            expects(name and name not in self._added, "added_tokens", repr(name), "different names that are not empty")
            self._added[name] = number
            if token["special"]:
                self.specials[name] = number
            spelled = self._normalized(name) if token["normalized"] else name
            spellings[token["normalized"]][spelled] = name
            self._spelled.append((spelled, number))
        self._raw, self._late = map(_finder, spellings)
        self._size = end

    def _byte_strings(self, size: int) -> list[bytes]:
        strings = [b""] * max(size, self._size)
        letter = {c: b for b, c in enumerate(self._letters)}
        for name, number in chain(self._vocab.items(), self._spelled):
            if not self.byte_level:
                byte = byte_of(name)
                strings[number] = name.replace(BLANK, " ").encode() if byte is None else bytes([byte])
            elif all(c in letter for c in name):
                strings[number] = bytes(letter[c] for c in name)
            else:
                strings[number] = name.encode()
        expects(size == 0 or size >= self._size, "size", size, f"at least {self._size}, the tokens of the file")
        self._single = {number for name, number in self._vocab.items() if byte_of(name) is not None}
        return strings

    # Text to tokens

    def encode(self, text: str, *, allowed_special: Collection[str] = (), add_special_tokens: bool = False) -> list[int]:
        """The tokens of a text. A special's name is ordinary text unless `allowed_special` contains it; `add_special_tokens` puts around the
        text the tokens that the file asks for, such as <s>. The name of an added token that is not a special always becomes that token.

        TypeError if `text` is not a str; ValueError for a lone surrogate or an unknown special."""
        expects_several("allowed_special", allowed_special, "a collection of names", Collection)
        for name in allowed_special:
            expects(name in self.specials, "allowed_special", repr(name), f"names among {list(self.specials)[:8]}")
        closed = self.specials.keys() - set(allowed_special)
        tokens: list[int] = []
        for part, number, first in self._split(checked_text(text), self._raw, closed, True):
            if number is not None:
                tokens.append(number)
                continue
            for piece, late, start in self._split(self._normalized(part), self._late, closed, first):
                tokens += [late] if late is not None else chain.from_iterable(map(self._known.__getitem__, self._cut(piece, start)))
        return [*self.before, *tokens, *self.after] if add_special_tokens else tokens

    def encode_batch(self, texts: Iterable[str], **options: Any) -> list[list[int]]:
        """The tokens of each text; options as in `encode`."""
        expects_several("texts", texts, "several texts, such as a list of str")
        return [self.encode(text, **options) for text in texts]

    def _split(self, text: str, finder: _Finder, closed: Collection[str], first: bool) -> Iterable[tuple[str, int | None, bool]]:
        """The parts of a text, left to right: (part, its number if an added token, whether it begins the text)."""
        names, pattern = finder
        end = 0
        for match in pattern.finditer(text) if names else ():
            if names[match.group()] in closed:
                continue
            if match.start() > end:
                yield text[end : match.start()], None, first and end == 0
            yield match.group(), self._added[names[match.group()]], False
            end = match.end()
        if end < len(text):
            yield text[end:], None, first and end == 0

    def _piece(self, piece: str) -> list[int]:
        """The tokens of one piece."""
        if self.byte_level:
            data = piece.encode("utf-8")
            whole = self._vocab.get("".join(self._letters[b] for b in data)) if self._whole else None
            tokens = [self._byte[b] for b in data]
        else:
            whole = self._vocab.get(piece) if self._whole else None
            tokens = []
            for c in piece:  # a character's own token, or those of its bytes
                number = self._vocab.get(c)
                tokens += [self._byte[b] for b in c.encode("utf-8")] if number is None else [number]
        return merged(tokens, self._ranks, self._made.__getitem__) if whole is None else [whole]

    # Tokens to text

    def decode(self, tokens: Iterable[SupportsIndex]) -> str:
        """The text of the tokens, without the space that was put before it. Bytes that form no character become U+FFFD; in the sentencepiece kind,
        so does each byte of a run of bytes that is not valid text. Errors as in `decode_bytes`."""
        if self._leading is None:
            return super().decode(tokens)
        expects_several("tokens", tokens, "several integers")
        text, row = "", b""
        for token in tokens:
            if type(token) is int and 0 <= token < len(self._bytes):  # the quick way, for long texts
                number, string = token, self._bytes[token]
            else:
                string, number = self.token_bytes(token), operator.index(token)
            if number in self._single:
                row += string
            else:
                text += _row_of_bytes(row) + string.decode("utf-8")
                row = b""
        text += _row_of_bytes(row)
        lead = len(text) - len(text.lstrip(" "))
        return text[min(lead, self._leading) :]


def _row_of_bytes(row: bytes) -> str:
    """The text of these bytes; if they are not valid text, U+FFFD for each byte."""
    try:
        return row.decode("utf-8")
    except UnicodeDecodeError:
        return "\ufffd" * len(row)

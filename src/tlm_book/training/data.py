"""From documents to tokens, in memory or in a file that is mapped and never read as a whole; documents are held out whole. Written by hand."""

import hashlib
import json
import operator
import os
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from tlm_book.checks import expects, expects_several
from tlm_book.files import new_file
from tlm_book.tokenization import HubTokenizer, Tokenizer

__all__ = ["TokenFile", "encode_corpus", "is_held_out", "learn_tokenizer", "read_tokens", "split_documents", "write_tokens"]


def split_documents(texts: Sequence[str], fraction: float, seed: int) -> tuple[list[str], list[str]]:
    """(training, held-out) documents: about `fraction` of the documents, chosen at random, are held out; both parts keep their order.

    There is at least one on either side. TypeError for a single text, ValueError for fewer than two documents.
    """
    expects_several("texts", texts, "a list of str", Sequence)
    expects(len(texts) >= 2, "texts", f"{len(texts)} documents", "at least 2, one to train on and one to hold out")
    expects(0 < fraction < 1, "fraction", fraction, "a number between 0 and 1")
    count = min(max(1, round(fraction * len(texts))), len(texts) - 1)
    held_out = set(np.random.default_rng(seed).permutation(len(texts))[:count].tolist())
    return [t for i, t in enumerate(texts) if i not in held_out], [t for i, t in enumerate(texts) if i in held_out]


def is_held_out(i: int, fraction: float, seed: int) -> bool:
    """Whether document i of a stream is held out: with probability `fraction`, and always the same for the same seed.

    Document 0 is trained on and document 1 is held out, so that there is one of each.
    """
    return i == 1 if i < 2 else np.random.default_rng((seed, i)).random() < fraction


TOKENIZER_TEXT = 5_000_000  # of a longer text, the tokenizer is learned from documents chosen at random, of about this many characters together


def learn_tokenizer(texts: Sequence[str], vocab_size: int, seed: int) -> Tokenizer:
    """A tokenizer learned from the texts, or from a random choice of them if they are long. TypeError for a single text."""
    expects_several("texts", texts, "a list of str", Sequence)
    chosen, length = [], 0
    for i in np.random.default_rng(seed).permutation(len(texts)):
        if length < TOKENIZER_TEXT:
            chosen.append(texts[i])
            length += len(texts[i])
    return Tokenizer.train(chosen, vocab_size)


def encode_corpus(tokenizer: Tokenizer | HubTokenizer, texts: Iterable[str]) -> Int[Tensor, "N"]:
    """All documents as one sequence of tokens, each followed by the separator `tokenizer.stop`. TypeError for a single text."""
    expects_several("texts", texts, "a list of str")
    tokens = [token for text in texts for token in [*tokenizer.encode(text), tokenizer.stop]]
    return torch.tensor(tokens, dtype=torch.long)


# Files of tokens: a head of one page in JSON, the tokens (two bytes each while that is enough), the end of each document

MAGIC, HEAD = b"tlm_book tokens\n", 4096


@dataclass(frozen=True)
class TokenFile:
    """A mapped token file: all tokens, the end of each document, and the contents of its head."""

    tokens: Int[Tensor, "N"]
    ends: Int[np.ndarray, "documents"]
    head: dict[str, Any]

    def document(self, i: int) -> Int[Tensor, "n"]:
        """The tokens of document i, its separator included."""
        return self.tokens[self.ends[i - 1] if i else 0 : self.ends[i]]


def write_tokens(file: str | os.PathLike[str], texts: Iterable[str], tokenizer: Tokenizer | HubTokenizer) -> TokenFile:
    """Write the documents' tokens, each document followed by the separator `tokenizer.stop`, and map the file.

    The texts are read once, one at a time. ValueError if there is none, TypeError for a single text.
    """
    expects_several("texts", texts, "several texts, such as a list of str")
    dtype = np.dtype("<i2" if len(tokenizer) <= 2**15 else "<i4")
    ends, n_bytes, n_characters, N, sha = array("q"), 0, 0, 0, hashlib.sha256()
    with new_file(file) as part, part.open("wb") as out:
        out.write(bytes(HEAD))
        for text in texts:
            tokens = np.array([*tokenizer.encode(text), tokenizer.stop], dtype)
            out.write(tokens.tobytes())
            sha.update(tokens.data)
            N, n_bytes, n_characters = N + len(tokens), n_bytes + len(text.encode()), n_characters + len(text)
            ends.append(N)
        expects(N > 0, "texts", "no document", "at least one")
        out.write(bytes(-N * dtype.itemsize % 8) + np.array(ends, "<i8").tobytes())
        counts = {"tokens": N, "documents": len(ends), "bytes": n_bytes, "characters": n_characters}
        head = {"vocab_size": len(tokenizer), "dtype": dtype.str, **counts, "sha256": sha.hexdigest()}
        out.seek(0)
        out.write(MAGIC + json.dumps(head).encode())
    return read_tokens(file)


def read_tokens(file: str | os.PathLike[str], verify: bool = False) -> TokenFile:
    """Map a token file. FileNotFoundError if it is missing; ValueError for another kind of file or one that is cut short and, with
    `verify`, if its tokens are not those that were written.
    """
    path = Path(file)
    expects(path.is_file(), "file", f"no file at {str(path)!r}", "a token file", FileNotFoundError)
    with path.open("rb") as source:
        first = source.read(HEAD)
    expects(first.startswith(MAGIC), "file", f"{str(path)!r}, which begins otherwise", "a token file")
    try:
        head = json.loads(first[len(MAGIC) :].rstrip(b"\0"))
        N, D, dtype = operator.index(head["tokens"]), operator.index(head["documents"]), np.dtype(head["dtype"])
        if dtype.kind != "i" or not isinstance(head["sha256"], str):
            raise TypeError(dtype)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"file: got {str(path)!r} with a broken head, want a token file") from error
    tail = HEAD + (N * dtype.itemsize + 7) // 8 * 8
    size = path.stat().st_size
    expects(size == tail + 8 * D, "file", f"{size} bytes in {str(path)!r}", f"{tail + 8 * D} bytes")
    mapped = np.memmap(path, dtype, mode="c", offset=HEAD, shape=(N,))  # "c": a change would stay in memory
    if verify:
        same = hashlib.sha256(mapped.data).hexdigest() == head["sha256"]
        expects(same, "file", f"other tokens in {str(path)!r}", "those of its check sum")
    ends = np.fromfile(path, "<i8", offset=tail)
    return TokenFile(torch.from_numpy(mapped), ends, head)

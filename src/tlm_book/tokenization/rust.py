"""The engines `tokenizers` and `tiktoken`, written in Rust: whether they read a pattern as we do, and training by the first of them."""

import json
from collections.abc import Iterable
from typing import Any

from tlm_book.checks import expects, expects_several, expects_whole
from tlm_book.libraries import library
from tlm_book.spec.tokenization import TokenPair
from tlm_book.tokenization.bpe import (
    GPT2_PATTERN,
    PATTERN,
    checked_pattern,
    checked_text,
    pre_tokens,
)
from tlm_book.tokenization.engine import MOST

__all__ = ["PROBE", "byte_characters", "expects_same_cuts", "pre_tokenizer", "train_by_tokenizers"]

_SIGNS = "aZ09 '’_-.\t\n\r\0éß²½٣中ｱहि\u0301\u200d\u00a0\u3000\x1c\x85🍵"
# A text with many kinds of characters and several lines, the last one ended: engines differ in where they find ^, $ and \Z
PROBE = "I'm, we'LL  \n\n go " + "".join(a + b for a in _SIGNS for b in _SIGNS) + "\naa\naa 00\n00 \n \naa\n"


def byte_characters() -> list[str]:
    """GPT-2's character for each byte, in the order of the bytes: the character of that number if it is visible, else U+0100, U+0101, … in turn.
    (T-byte-characters)

    >>> "".join(byte_characters()[b] for b in b"a b")
    'aĠb'
    """
    shown = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = [b for b in range(256) if b not in shown]
    substitute = {b: chr(256 + k) for k, b in enumerate(hidden)}
    return [substitute.get(b, chr(b)) for b in range(256)]


# ---- patterns


def expects_same_cuts(pattern: str, pieces: list[bytes], engine: str) -> None:
    """Check that we cut PROBE into the same pieces as the engine; ValueError otherwise. A difference that PROBE does not show goes unnoticed."""
    right = pieces == [piece.encode("utf-8") for piece in pre_tokens(PROBE, pattern)]
    expects(right, "pattern", repr(pattern), f"one that {engine} reads in the same way")


def pre_tokenizer(lib: Any, pattern: str) -> Any:
    """The pre-tokenizer of `tokenizers` that cuts at a pattern and writes GPT-2's characters; ValueError if it cuts PROBE differently from us."""
    cut = lib.pre_tokenizers
    if pattern == GPT2_PATTERN:
        whole = cut.ByteLevel(add_prefix_space=False)
        places = [place for _, place in whole.pre_tokenize_str(PROBE)]
        expects_same_cuts(pattern, [PROBE[a:b].encode("utf-8") for a, b in places], "tokenizers")
        return whole
    try:
        split = cut.Split(lib.Regex(pattern), "isolated")
    except Exception as error:  # the library raises no narrower type
        raise ValueError(f"pattern: got {pattern!r} ({error}), want one that tokenizers can read") from error
    expects_same_cuts(pattern, [piece.encode("utf-8") for piece, _ in split.pre_tokenize_str(PROBE)], "tokenizers")
    return cut.Sequence([split, cut.ByteLevel(add_prefix_space=False, use_regex=False)])


# ---- training


def train_by_tokenizers(texts: Iterable[str], n_merges: int, pattern: str = PATTERN) -> list[TokenPair]:
    """The merges that the trainer of the library tokenizers learns: those of `learn_merges` from the pre-tokens of the texts. (T-rust-ties)

    TypeError if a text or the pattern is not a str or n_merges is not a whole number; ValueError if n_merges is below 0 or excessively large, for a
    lone surrogate, for a pattern that the engine cannot read, and if it cuts a test text differently; ImportError without the library.
    """
    checked_pattern(pattern)
    expects_whole(n_merges=n_merges)
    expects(0 <= n_merges <= MOST, "n_merges", n_merges, f"a number ≥ 0 and ≤ {MOST}")
    expects_several("texts", texts, "several texts, such as a list of str")
    lib = library("tokenizers", "bridges")
    letters = byte_characters()
    trainer = lib.trainers.BpeTrainer(
        vocab_size=256 + n_merges,
        min_frequency=2,
        special_tokens=letters,  # numbered first, in this order
        show_progress=False,
    )
    engine = lib.Tokenizer(lib.models.BPE())
    engine.pre_tokenizer = pre_tokenizer(lib, pattern)
    engine.train_from_iterator(map(checked_text, texts), trainer)
    token = {letter: b for b, letter in enumerate(letters)}
    merges: list[TokenPair] = []
    for a, b in json.loads(engine.to_str())["model"]["merges"]:
        token[a + b] = 256 + len(merges)
        merges.append((token[a], token[b]))
    return merges

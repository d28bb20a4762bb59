"""Bridges: a tokenizer of ours as GPT-2's two files, as a `tokenizers.Tokenizer`, as a `tiktoken.Encoding`; and back from the first two."""

import json
import operator
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from tlm_book.checks import expects, expects_kind
from tlm_book.files import checked_path
from tlm_book.libraries import library
from tlm_book.tokenization.bpe import GPT2_PATTERN, pre_tokens
from tlm_book.tokenization.engine import encode_data
from tlm_book.tokenization.files import write_texts
from tlm_book.tokenization.json_parts import wants
from tlm_book.tokenization.rust import (
    PROBE,
    byte_characters,
    expects_same_cuts,
    pre_tokenizer,
)
from tlm_book.tokenization.tokenizer import Tokenizer

__all__ = ["from_tokenizers", "load_gpt2_tokenizer", "save_gpt2_tokenizer", "to_tiktoken", "to_tokenizers"]


def _spellings(tokenizer: Tokenizer) -> list[str]:
    """Every token, in internal order, spelled in GPT-2's characters; a special by its name."""
    names = byte_characters()
    for a, b in tokenizer.merges:
        names.append(names[a] + names[b])
    names += tokenizer.specials
    twice = next((name for name, n in Counter(names).items() if n > 1), None)
    expects(twice is None, "tokenizer", f"two tokens spelled {twice!r}", "tokens with different spellings")
    return names


def _from_spellings(vocab: Mapping[str, int], merges: Iterable[Sequence[str]], specials: Sequence[str], pattern: str) -> Tokenizer:
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
    expects(not odd, "vocab", odd, "the bytes, the merges and the specials, no other")
    return Tokenizer(pairs, specials, pattern, ids=[vocab[name] for name in names])


# ---- GPT-2's two files


def save_gpt2_tokenizer(tokenizer: Tokenizer, folder: str | os.PathLike[str]) -> None:
    """Write GPT-2's two files into a folder: vocab.json (spelling: number) and merges.txt (two spellings a line).

    ValueError if two tokens have the same spelling, or if the pattern is not GPT2_PATTERN: the files do not hold the pattern, so a reader will use
    that one. TypeError for anything but a Tokenizer. Old files are replaced only when both new ones are complete.
    """
    expects_kind("tokenizer", tokenizer, Tokenizer, "a Tokenizer")
    place = checked_path(folder, "folder")
    right = tokenizer.pattern == GPT2_PATTERN
    expects(right, "pattern", repr(tokenizer.pattern), "GPT2_PATTERN, which these files stand for")
    names = _spellings(tokenizer)
    vocab = {name: number for number, name in sorted(zip(tokenizer.ids, names))}
    lines = [f"{names[a]} {names[b]}" for a, b in tokenizer.merges]
    texts = {"vocab.json": json.dumps(vocab, ensure_ascii=False), "merges.txt": "\n".join(["#version: 0.2", *lines])}
    write_texts({place / name: text for name, text in texts.items()})


def load_gpt2_tokenizer(folder: str | os.PathLike[str]) -> Tokenizer:
    """The tokenizer in a folder with GPT-2's vocab.json and merges.txt. Entries of the vocabulary that are neither bytes nor merges are specials;
    these come in the order of their numbers.

    ValueError, which names the folder, if the files are broken or do not fit together.
    """
    place = checked_path(folder, "folder")
    try:
        vocab = json.loads((place / "vocab.json").read_text(encoding="utf-8-sig"))  # with or without a byte order mark
        right = isinstance(vocab, dict) and all(type(number) is int for number in vocab.values())
        expects(right, "vocab.json", "something else", "a number for each spelling")
        lines = (place / "merges.txt").read_text(encoding="utf-8-sig").split("\n")
        start = int(lines[0].startswith("#version"))
        merges = [tuple(line.split(" ")) for line in lines[start:] if line]
        known = {*byte_characters(), *map("".join, merges)}
        specials = sorted(vocab.keys() - known, key=vocab.__getitem__)
        return _from_spellings(vocab, merges, specials, GPT2_PATTERN)
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"folder: got {os.fspath(folder)!r} ({error}), want files that save_gpt2_tokenizer wrote") from error


# ---- tokenizers


def to_tokenizers(tokenizer: Tokenizer) -> Any:
    """The same tokenizer as a `tokenizers.Tokenizer`: the same tokens for every text that both can cut. Its `save("tokenizer.json")` writes Hugging Face's file.

    As in our tokenizer, the name of a special inside a text is ordinary text. After `engine.encode_special_tokens = False`, and in an engine read
    from a file, all specials are allowed.

    ValueError if two tokens have the same spelling or the engine cuts a test text differently (a difference that this text does not show goes
    unnoticed); ImportError without the library.
    """
    lib = library("tokenizers", "bridges")
    expects_kind("tokenizer", tokenizer, Tokenizer, "a Tokenizer")
    names = _spellings(tokenizer)
    merges = [(names[a], names[b]) for a, b in tokenizer.merges]
    engine = lib.Tokenizer(lib.models.BPE(vocab=dict(zip(names, tokenizer.ids)), merges=merges))
    engine.pre_tokenizer = pre_tokenizer(lib, tokenizer.pattern)
    engine.decoder = lib.decoders.ByteLevel()
    engine.add_special_tokens([lib.AddedToken(name, normalized=False) for name in tokenizer.specials])
    engine.encode_special_tokens = True
    return engine


def from_tokenizers(engine: Any) -> Tokenizer:
    """The same tokenizer, from a `tokenizers.Tokenizer` that is a byte-level byte pair encoding; specials come in the order of their numbers.

    ValueError for any setting that could change a token and has no counterpart here: a normalizer, another model, an unknown token, dropout, a space
    put before the text, `ignore_merges`, …; also if the two cut a test text differently by the pattern. TypeError for anything but such an engine.
    """
    lib = library("tokenizers", "bridges")
    expects_kind("engine", engine, lib.Tokenizer, "a tokenizers.Tokenizer")
    state = json.loads(engine.to_str())
    _check_settings(state)
    adds = engine.num_special_tokens_to_add(False)
    expects(adds == 0, "engine", f"a post_processor adding {adds} tokens", "none added")
    added = sorted(state["added_tokens"], key=lambda token: token["id"])
    numbers = {token["content"]: token["id"] for token in added}
    model, pattern = state["model"], _pattern_of(state["pre_tokenizer"])
    pre_tokenizer(lib, pattern)  # raises unless both cut a test text alike
    return _from_spellings(model["vocab"] | numbers, model["merges"], list(numbers), pattern)


_wants = partial(wants, argument="engine")


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
    model = state["model"]
    _wants("model", model["type"], "BPE")  # first: of another kind, other parts differ too
    for part in ("normalizer", "truncation", "padding"):
        _wants(part, (state[part] or {}).get("type", state[part]), None)
    _wants("decoder", (state["decoder"] or {}).get("type"), "ByteLevel")
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


# ---- tiktoken


def to_tiktoken(tokenizer: Tokenizer) -> Any:
    """The same tokenizer as a `tiktoken.Encoding`: the same tokens for every text that both can cut, by `encode_ordinary`, or by `encode` with `allowed_special`.
    (T-joined-strings)

    ValueError if `ids` does not increase with the merges, if the bytes of some token are encoded differently (never so for learned merges), if one
    special's name begins another, or if the engine cuts a test text differently (a difference that this text does not show goes unnoticed);
    ImportError without the library.
    """
    lib = library("tiktoken", "bridges")
    expects_kind("tokenizer", tokenizer, Tokenizer, "a Tokenizer")
    ids, end = tokenizer.ids, 256 + len(tokenizer.merges)
    rising = all(a < b for a, b in pairwise(ids[256:end]))
    expects(rising, "ids", "merges out of order", "ids that increase with the merges")
    names = sorted(tokenizer.specials)  # so a name stands just before those that it begins
    clash = [pair for pair in pairwise(names) if pair[1].startswith(pair[0])]
    expects(not clash, "specials", clash, "names of which none begins another")
    strings = [tokenizer.token_bytes(ids[t]) for t in range(end)]
    ranks = {pair: k for k, pair in enumerate(tokenizer.merges)}
    lost = [t for t in range(end) if encode_data(strings[t], ranks) != [t]]
    got = f"token {lost[0]}, which is never produced" if lost else ""
    expects(not lost, "merges", got, "tokens whose bytes are encoded as themselves")
    expects_same_cuts(tokenizer.pattern, _tiktoken_cuts(lib, tokenizer.pattern), "tiktoken")
    numbers = {string: ids[t] for t, string in enumerate(strings)}
    return _tiktoken_engine(lib, tokenizer.pattern, numbers, dict(tokenizer.specials))


def _tiktoken_engine(lib: Any, pattern: str, numbers: dict[bytes, int], specials: dict[str, int]) -> Any:
    try:
        return lib.Encoding("ours", pat_str=pattern, mergeable_ranks=numbers, special_tokens=specials)
    except ValueError as error:
        raise ValueError(f"pattern: got {pattern!r} ({error}), want one that tiktoken can read") from error


def _tiktoken_cuts(lib: Any, pattern: str) -> list[bytes]:
    """How the engine cuts PROBE. It does not say, so each piece that we expect, and each pair of neighbouring pieces, is made a token: a wrong cut
    then gives another token."""
    pieces = [piece.encode("utf-8") for piece in pre_tokens(PROBE, pattern)]
    tokens = [*(bytes([b]) for b in range(256)), *pieces, *map(operator.add, pieces, pieces[1:])]
    numbers = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    engine = _tiktoken_engine(lib, pattern, numbers, {})
    return engine.decode_tokens_bytes(engine.encode_ordinary(PROBE))

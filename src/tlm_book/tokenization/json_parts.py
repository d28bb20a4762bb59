"""The parts of a tokenizer.json as functions: what is done to a text before it is cut, how it is cut, how tokens become a text again.

Written by hand. A part that asks for anything unknown here is refused: a tokenizer that is nearly right is wrong.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import regex

from tlm_book.checks import expects
from tlm_book.libraries import library
from tlm_book.tokenization.bpe import GPT2_PATTERN
from tlm_book.tokenization.rust import pre_tokenizer

__all__ = ["BLANK", "LLAMA3_PATTERN", "QWEN_PATTERN", "Cutter", "Normalizer", "byte_of", "cutter", "frame", "leading_spaces", "normalizer", "wants"]

BLANK = "▁"  # sentencepiece's character for a space
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3_PATTERN = _WORDS % r"\p{N}{1,3}"
QWEN_PATTERN = _WORDS % r"\p{N}"
_READ_ALIKE = {GPT2_PATTERN, LLAMA3_PATTERN, QWEN_PATTERN}  # alike by the module regex and by the engine tokenizers

Normalizer = Callable[[str], str]
Cutter = Callable[[str, bool], list[str]]  # (text, whether it begins the whole text) → its pieces


def wants(part: str, got: object, *wanted: object, argument: str = "tokenizer.json") -> None:
    """ValueError unless `got` is one of the values wanted for this part."""
    one = " or ".join(map(json.dumps, wanted))
    expects(got in wanted, argument, f"{part} {json.dumps(got)}", f"{part} {one}")


def steps_of(part: Mapping[str, Any] | None, several: str) -> list[Mapping[str, Any]]:
    """The steps of a part: none, one, or a sequence of them."""
    if part is None:
        return []
    if part.get("type") != "Sequence":
        return [part]
    return [step for one in part[several] for step in steps_of(one, several)]


# ---- before the text is cut


def normalizer(part: Mapping[str, Any] | None) -> Normalizer:
    """The function by which the file's normalizer changes a text."""
    steps = [_normalizing(step) for step in steps_of(part, "normalizers")]

    def normalized(text: str) -> str:
        for step in steps:
            text = step(text)
        return text

    return normalized


def _normalizing(step: Mapping[str, Any]) -> Normalizer:
    kind = step.get("type")
    wants("normalizer", kind, "NFC", "Prepend", "Replace")
    if kind == "NFC":
        return lambda text: unicodedata.normalize("NFC", text)
    if kind == "Prepend":
        head: str = step["prepend"]
        return lambda text: head + text if text else text
    wants("pattern of Replace", list(step["pattern"]), ["String"])
    old, new = step["pattern"]["String"], step["content"]
    expects(old, "tokenizer.json", "an empty pattern of Replace", "a text")
    return lambda text: text.replace(old, new)


# ---- into pieces


def cutter(part: Mapping[str, Any] | None) -> tuple[Cutter, bool]:
    """The function by which the file's pre-tokenizer cuts a text, and whether it writes bytes as GPT-2 does (ByteLevel)."""
    steps = steps_of(part, "pretokenizers")
    kinds = [step.get("type") for step in steps]
    cuts = [_cutting(step) for step in steps]
    wants("place of ByteLevel", kinds.count("ByteLevel"), 0, 1)
    wants("step after ByteLevel", "ByteLevel" in kinds[:-1], False)

    def cut(text: str, first: bool) -> list[str]:
        pieces = [text]
        for step in cuts:
            pieces = [piece for k, whole in enumerate(pieces) for piece in step(whole, first and k == 0)]
        return pieces

    return cut, "ByteLevel" in kinds


def _cutting(step: Mapping[str, Any]) -> Cutter:
    kind = step.get("type")
    wants("pre_tokenizer", kind, "ByteLevel", "Split", "Digits", "Metaspace")
    if kind == "Metaspace":
        return _metaspace(step)
    if kind == "Digits":
        return _isolating(r"\p{N}" if step["individual_digits"] else r"\p{N}+")
    if kind == "ByteLevel":
        wants("add_prefix_space", step["add_prefix_space"], False)
        return _isolating(GPT2_PATTERN) if step.get("use_regex", True) else lambda text, first: [text]
    wants("invert", step["invert"], False)
    if step["pattern"] == {"String": " "}:
        wants("behavior", step["behavior"], "MergedWithPrevious")
        return lambda text, first: re.findall("[^ ]* |[^ ]+", text)
    wants("pattern of Split", list(step["pattern"]), ["Regex"])
    wants("behavior", step["behavior"], "Isolated")
    return _isolating(_readable(step["pattern"]["Regex"]))


def _readable(pattern: str) -> str:
    """The pattern; ValueError for one that the module regex and the engine tokenizers read differently."""
    if pattern not in _READ_ALIKE:
        pre_tokenizer(library("tokenizers", "bridges"), pattern)
        _READ_ALIKE.add(pattern)
    return pattern


def _isolating(pattern: str) -> Cutter:
    """A function that cuts a text at a pattern: each match is a piece, and so is the text between two matches."""
    compiled = regex.compile(pattern)

    def cut(text: str, first: bool) -> list[str]:
        pieces, end = [], 0
        for match in compiled.finditer(text):
            pieces += [text[end : match.start()], match.group()]
            end = match.end()
        return [piece for piece in (*pieces, text[end:]) if piece]

    return cut


def _metaspace(step: Mapping[str, Any]) -> Cutter:
    """A function that writes ▁ for each space, and one more before each text ("always"), before the whole text ("first"), or never."""
    wants("replacement", step["replacement"], BLANK)
    scheme = step.get("prepend_scheme", "always")
    wants("prepend_scheme", scheme, "always", "first", "never")

    def cut(text: str, first: bool) -> list[str]:
        text = text.replace(" ", BLANK)
        if not text.startswith(BLANK) and (scheme == "always" or (scheme == "first" and first)):
            text = BLANK + text
        return re.findall(f"{BLANK}[^{BLANK}]*|[^{BLANK}]+", text) if step.get("split", True) else [text]

    return cut


# ---- and back


def byte_of(name: str) -> int | None:
    """The byte that sentencepiece's token <0xHH> stands for; None for other tokens."""
    found = re.fullmatch("<0x([0-9A-Fa-f]{2})>", name)
    return int(found[1], 16) if found else None


def leading_spaces(part: Mapping[str, Any] | None) -> int | None:
    """How many leading spaces the file's decoder removes; None for a ByteLevel decoder."""
    steps = steps_of(part, "decoders")
    kinds = [step.get("type") for step in steps]
    wants("decoder", kinds, ["ByteLevel"], ["Replace", "ByteFallback", "Fuse"], ["Replace", "ByteFallback", "Fuse", "Strip"])
    if kinds == ["ByteLevel"]:
        return None
    wants("pattern of the decoder", steps[0]["pattern"], {"String": BLANK})
    wants("content of the decoder", steps[0]["content"], " ")
    if len(steps) == 3:
        return 0
    wants("content of Strip", steps[3]["content"], " ")
    wants("stop of Strip", steps[3]["stop"], 0)
    return int(steps[3]["start"])


def frame(part: Mapping[str, Any] | None) -> tuple[list[int], list[int]]:
    """The tokens that the file's post-processor puts before and after one text."""
    before: list[int] = []
    after: list[int] = []
    for step in steps_of(part, "processors"):
        wants("post_processor", step.get("type"), "ByteLevel", "TemplateProcessing")
        if step["type"] == "TemplateProcessing":
            side = before = []
            after = []
            for one in step["single"]:
                if "Sequence" in one:
                    side = after
                else:
                    side += step["special_tokens"][one["SpecialToken"]["id"]]["ids"]
    return before, after


def whole_numbers(got: Sequence[object]) -> bool:
    """Whether all of these are integers ≥ 0."""
    return all(type(number) is int and number >= 0 for number in got)

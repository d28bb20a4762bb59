"""Marian's texts: from pieces of words to numbers and back, and translation of sentences."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tlm_book.checks import expects, expects_kind, expects_positive, expects_several
from tlm_book.encoder_decoder import EncoderDecoder
from tlm_book.files import read_json
from tlm_book.inference.sampling import Sampler
from tlm_book.inference.search import write
from tlm_book.libraries import library
from tlm_book.pretrained.files import CONFIG
from tlm_book.translation import TranslationReader, padded

__all__ = ["TOKENIZER_FILES", "MarianTokenizer", "checked_vocab", "load_marian_tokenizer", "translate_marian"]

TOKENIZER_FILES = ("vocab.json", "source.spm", "target.spm")


class MarianTokenizer(NamedTuple):
    """Marian's tokenizer: pieces of words to numbers and back. `source` and `target` are sentencepiece's processors, `start` is
    read before the first word, `stop` ends a sentence.
    """

    source: Any
    target: Any
    vocab: dict[str, int]
    start: int
    stop: int
    padding: int

    def encode(self, sentence: str) -> list[int]:
        """The tokens of a source sentence, with `stop` at the end; TypeError for anything but a text. A model for several target
        languages expects the language in front, as in ">>fra<< hello".
        """
        expects(isinstance(sentence, str), "sentence", repr(sentence), "a str", TypeError)
        language = re.match(r">>.+?<<", sentence)
        codes = [language[0]] if language else []
        rest = sentence.removeprefix("".join(codes))
        pieces = [*codes, *self.source.encode(rest, out_type=str)]
        unknown = self.vocab["<unk>"]
        return [self.vocab.get(piece, unknown) for piece in pieces] + [self.stop]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of target tokens, up to the first `stop`; IndexError for a token that is not in the vocabulary."""
        tokens = list(tokens)
        if self.stop in tokens:
            tokens = tokens[: tokens.index(self.stop)]
        pieces = {number: piece for piece, number in self.vocab.items()}
        odd = [t for t in tokens if t not in pieces]
        expects(not odd, "tokens", odd[:1], "tokens of the vocabulary", IndexError)
        return "".join(pieces[t] for t in tokens).replace("▁", " ").strip()


# Reading it


def outside(numbers: Sequence[object], V: int) -> list[object]:
    """Those of the numbers that are not whole numbers from 0 to V − 1."""
    return [k for k in numbers if type(k) is not int or not 0 <= k < V]


def checked_vocab(vocab: object, V: int, place: str) -> dict[str, int]:
    """The vocabulary itself, after a check that it is a table of different numbers below V, one of them for "<unk>"; the ValueError
    otherwise names the place.
    """
    if not isinstance(vocab, dict) or "<unk>" not in vocab:
        raise ValueError(f"{place}: got no number for <unk>, want Marian's vocabulary")
    numbers = list(vocab.values())
    odd, twice = outside(numbers, V), len(numbers) - len(set(numbers))
    expects(not odd, place, odd[:1], f"whole numbers, at least 0 and less than {V}")
    expects(not twice, place, f"{twice} numbers twice", "a number for each piece")
    return vocab


def read_processor(folder: Path, name: str) -> Any:
    """The sentencepiece model of one language. FileNotFoundError if it is missing, ValueError if it is broken."""
    sentencepiece, file = library("sentencepiece", "pretrained"), folder / name
    expects(file.is_file(), "folder", f"{str(folder)!r} without {name}", "it beside vocab.json", FileNotFoundError)
    try:
        return sentencepiece.SentencePieceProcessor(model_proto=file.read_bytes())
    except RuntimeError as error:
        raise ValueError(f"{file}: got no sentencepiece model, want the one of the makers") from error


def load_marian_tokenizer(folder: Path, fields: Mapping[str, Any]) -> MarianTokenizer:
    """The tokenizer in a folder with source.spm, target.spm and vocab.json. FileNotFoundError if one is missing, ValueError
    if they do not fit the model.
    """
    source, target = (read_processor(folder, name) for name in ("source.spm", "target.spm"))
    file, V = folder / "vocab.json", fields["vocab_size"]
    vocab = checked_vocab(read_json(file, "a vocabulary"), V, f"{file}")
    padding, stop = fields.get("pad_token_id", V - 1), fields.get("eos_token_id", 0)
    start = fields.get("decoder_start_token_id", padding)
    odd = outside((padding, stop, start), V)
    expects(not odd, f"{folder / CONFIG}", odd[:1], f"tokens from 0 to {V - 1} for padding, end and start")
    return MarianTokenizer(source, target, vocab, start, stop, padding)


# Translating


def translate_marian(
    model: EncoderDecoder, tokenizer: MarianTokenizer, sentences: Sequence[str], max_new: int | None = None
) -> list[str]:
    """The translations of these sentences, by the likeliest token at each step. `max_new` bounds their tokens; by default it is as
    many as the model can read. The model may be in either mode, and keeps it.

    TypeError for a single text, ValueError for no sentence and for one with more tokens than the model reads; IndexError if the model
    writes a token that is not in the vocabulary.
    """
    expects_several("sentences", sentences, "a list of str", Sequence)
    expects(len(sentences) > 0, "sentences", "none", "at least one")
    expects_kind("model", model, EncoderDecoder, "an EncoderDecoder")
    expects_kind("tokenizer", tokenizer, MarianTokenizer, "a MarianTokenizer")
    rows, t = [tokenizer.encode(sentence) for sentence in sentences], tokenizer
    steps = model.config.max_len if max_new is None else max_new
    expects_positive(max_new=steps)
    device = model.embedding.table.weight.device
    source = padded(rows, t.padding).to(device)
    key_mask = padded([[1] * len(row) for row in rows]).bool().to(device)  # by lengths, since a text may contain the padding's number, too
    longest = max(map(len, rows))
    expects(longest <= model.config.max_len, "sentences", f"one of {longest} tokens", f"at most max_len = {model.config.max_len}")
    reader = TranslationReader(model, source, key_mask)

    def step(token: Int[Tensor, "B"]) -> Float[Tensor, "B V"]:
        return reader.step(token).index_fill(1, source.new_tensor([t.padding]), -torch.inf)

    scores = step(source.new_full((len(rows),), t.start))
    written = write(step, scores, min(steps, model.config.max_len), Sampler(temperature=0), [t.stop])
    return [t.decode(row) for row in torch.stack(list(written), 1).tolist()]

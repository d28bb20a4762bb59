"""A translator on disk: a folder with its settings, weights and words; what is read is checked. Written by hand."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import torch

from tlm_book.checks import expects, expects_kind
from tlm_book.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from tlm_book.files import checked_path, free_folder, new_folder, read_json
from tlm_book.pretrained.files import load_into, tensors_of
from tlm_book.pretrained.names import Pair
from tlm_book.training.distributed import choose_device
from tlm_book.training.folder import config_of, expects_few_places
from tlm_book.translation import Translator, WordList
from tlm_book.weights import (
    CONFIG,
    WEIGHTS,
    expects_sound,
    meta_model,
    tensors_in,
    write_tensors,
)

__all__ = ["load_translator", "save_translator"]

WORDS = "words.json"
SAVED = "what `save_translator` wrote"


def save_translator(translator: Translator, folder: str | os.PathLike[str]) -> Path:
    """Write config.json, model.safetensors and words.json (the words of both languages, in the order of their numbers) into a new folder,
    which appears complete or not at all.

    FileExistsError if it exists already; ValueError if words and model do not fit together, weights differ in type or are not finite, a layer is not
    what its settings make, or a table of computed positions is far larger than the weights; TypeError for anything but a translator and a path.
    """
    expects_kind("translator", translator, Translator, "a Translator")
    model, words = translator.model, {"french": translator.french.words, "english": translator.english.words}
    path = free_folder(folder)
    expects_words(translator.french, translator.english, model.config, "translator")
    weights = tensors_of(model, named_weights(model.config))
    expects_few_places(model.config, weights, "translator")
    expects_sound("translator", weights)
    with new_folder(path) as part:
        (part / CONFIG).write_text(json.dumps({"model": dataclasses.asdict(model.config)}, indent=2) + "\n", encoding="utf-8")
        write_tensors(part / WEIGHTS, weights)
        (part / WORDS).write_text(json.dumps(words, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def load_translator(folder: str | os.PathLike[str], device: str = "cpu") -> Translator:
    """The translator in a folder that `save_translator` wrote, in evaluation mode; `device` as in `choose_device`.

    FileNotFoundError for a missing folder or file; ValueError for a file that is broken, or does not fit to the others. No code is run from any file.
    """
    path, chosen = checked_path(folder, "folder"), choose_device(device)
    wants = "a folder that `save_translator` wrote"
    expects(path.is_dir(), "folder", f"no folder at {str(path)!r}", wants, FileNotFoundError)
    for name in (CONFIG, WEIGHTS, WORDS):
        expects((path / name).is_file(), "folder", f"{str(path)!r} without {name}", wants, FileNotFoundError)
    config = config_of(read_json(path / CONFIG, SAVED), path / CONFIG, EncoderDecoderConfig, SAVED)
    french, english = words_in(path / WORDS)
    expects_words(french, english, config, f"{path / WORDS}")
    tensors = tensors_in(path / WEIGHTS, SAVED)
    expects_few_places(config, tensors, f"{path / CONFIG}")
    model = meta_model(EncoderDecoder, config, tensors, f"{path / CONFIG}")
    load_into(model, named_weights(config), tensors, f"{path / WEIGHTS}")
    if config.pe in ("sinusoidal", "none"):  # positions that are computed, not stored
        model.position = EncoderDecoder.positions(config).to(model.unembedding.weight)
    return Translator(model.to(chosen).eval(), french, english)


def named_weights(config: EncoderDecoderConfig) -> list[Pair]:
    """The weights of a model with these settings, under their own names, one that stands in two places once."""
    with torch.device("meta"):
        names = EncoderDecoder(config).state_dict().keys()
    twice = {"unembedding.weight"} if config.tied else set()
    twice |= {"source_embedding.table.weight"} if config.source_vocab_size is None else set()
    return [Pair(name, name) for name in names if name not in twice]


def words_in(file: Path) -> list[WordList]:
    """The lists of French and of English words in this file; ValueError if it holds anything else."""
    found: Any = read_json(file, SAVED)
    right = isinstance(found, dict) and found.keys() == {"french", "english"}
    right = right and all(isinstance(words, list) and all(isinstance(word, str) for word in words) for words in found.values())
    expects(right, f"{file}", "other content", SAVED)
    for language, words in found.items():
        expects(len({*words}) == len(words), f"{file}", f"a word twice in {language!r}", "each word once")
    return [WordList(tuple(found[language])) for language in ("french", "english")]


def expects_words(french: WordList, english: WordList, c: EncoderDecoderConfig, argument: str) -> None:
    """ValueError unless the words and the special tokens before them are as many as the model's tokens."""
    sizes, wanted = (len(french), len(english)), (c.source_vocab_size or c.vocab_size, c.vocab_size)
    expects(sizes == wanted, argument, f"{sizes[0]} French and {sizes[1]} English tokens", f"{wanted[0]} and {wanted[1]}, as the model has")

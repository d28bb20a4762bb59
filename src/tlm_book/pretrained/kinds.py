"""Loading a model of any kind, which config.json tells, and saving a model as a folder of the kind that fits its settings.

Written by hand.
"""

import copy
import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tlm_book.checks import expects, expects_one_of, refuse
from tlm_book.pretrained.files import CONFIG, read_fields
from tlm_book.pretrained.gpt2 import gpt2_fields, load_gpt2, save_gpt2
from tlm_book.pretrained.hub import model_folder
from tlm_book.pretrained.llama import load_llama, save_llama
from tlm_book.pretrained.llama_settings import FAMILIES, family_of, llama_fields
from tlm_book.pretrained.marian import load_marian
from tlm_book.tokenization import HubTokenizer, Tokenizer
from tlm_book.training.folder import load
from tlm_book.transformer_lm import Config, TransformerLM
from tlm_book.weights import expects_model

__all__ = ["load_model", "save_model"]

LOADERS: dict[str, Any] = {"gpt2": load_gpt2, "marian": load_marian, **dict.fromkeys(FAMILIES, load_llama)}
TEXTS = ("tokenizer.json", "generation_config.json", "vocab.json", "merges.txt", "source.spm", "target.spm")


def is_ours(folder: str | os.PathLike[str]) -> bool:
    """Whether this is a folder that `train` or `save` made: its config.json has a table "model"."""
    path = Path(folder)
    try:
        return (path / "config.json").is_file() and isinstance(read_fields(path).get("model"), dict)
    except ValueError:
        return False


def load_model(name_or_folder: str | os.PathLike[str], *, revision: str | None = None) -> tuple[Any, Any]:
    """(model, tokenizer) from Hugging Face's files of any kind that this book knows: by the field model_type of config.json, they are
    read by `load_gpt2`, `load_marian` or `load_llama`; a folder that `train` or `save` made is read by `load`. The model is
    in evaluation mode. `revision` as in `load_gpt2`; errors as in these; ValueError for another kind.
    """
    if isinstance(name_or_folder, str | os.PathLike) and is_ours(name_or_folder):
        return load(name_or_folder)
    folder = model_folder(name_or_folder, TEXTS, revision)
    kind: Any = read_fields(folder).get("model_type")
    expects_one_of(f"{folder / CONFIG}: model_type", kind, tuple(LOADERS))
    return LOADERS[kind](folder)


def save_model(model: TransformerLM, folder: str | os.PathLike[str], tokenizer: Tokenizer | HubTokenizer | None = None) -> str:
    """Write a new folder that `transformers` loads, with the tokenizer's files if there is one: a GPT-2's if the model can be one, else that of the
    first family whose files can express the model. Returns the kind: "gpt2", "llama", …

    Dropout, which is for training alone, is written for a GPT-2 only. ValueError for a model that fits no kind, with the field that is in the way
    and the preset of the nearest kind; other errors as in `save_gpt2` and `save_llama`.
    """
    expects_model(model)
    kind, c = _kind_of(model.config), model.config
    if kind == "gpt2":
        expects(not isinstance(tokenizer, HubTokenizer), "tokenizer", "a HubTokenizer", "a Tokenizer, for a GPT-2", TypeError)
        gpt2: Any = tokenizer
        save_gpt2(model, folder, gpt2)
    else:
        bare = copy.copy(model)
        bare.config = c.replace(dropout=0.0)
        save_llama(bare, folder, tokenizer, family=kind)
    return kind


def _kind_of(config: Config) -> str:
    """The first kind of which a model with these settings can be; ValueError if there is none."""
    bare = config.replace(dropout=0.0)
    if _says(lambda: gpt2_fields(config)):
        return "gpt2"
    for family in (family_of(bare), *FAMILIES):
        if _says(lambda: llama_fields(bare, family)):
            return family
    like = {kind: getattr(Config, kind)(config.vocab_size) for kind in ("gpt2", *FAMILIES)}
    differ = {kind: [name for name in CHOICES if getattr(bare, name) != getattr(other, name)] for kind, other in like.items()}
    nearest = min(differ, key=lambda kind: len(differ[kind]))
    free = [name for name in ("d_head", "window", *FREE) if getattr(bare, name) != getattr(like[nearest], name)]
    name = [*differ[nearest], *free, "d_head"][0]
    wants = f"{getattr(like[nearest], name)!r}, as in the models that transformers has of the preset {nearest!r} (train --preset {nearest})"
    wants += f"; {', '.join(differ[nearest][1:])} differ, too" if differ[nearest][1:] else ""
    refuse(f"model.config.{name}", repr(getattr(config, name)), wants)


SIZES = ("vocab_size", "d_model", "d_ff", "n_layers", "n_heads", "n_kv_heads", "max_len", "d_head", "dropout", "eps", "window")
FREE = ("tied", "rope_base", "rope_scaling")  # as free as sizes are: a file says which
CHOICES = [field.name for field in dataclasses.fields(Config) if field.name not in SIZES + FREE]


def _says(fields: Callable[[], object]) -> bool:
    try:
        fields()
    except ValueError:
        return False
    return True

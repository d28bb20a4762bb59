"""Whatever kind of model a folder holds: its config.json says which.

Written by hand.
"""

import os
from typing import Any

from tlm_book.checks import expects_one_of
from tlm_book.pretrained.files import read_fields
from tlm_book.pretrained.gpt2 import load_gpt2
from tlm_book.pretrained.hub import model_folder
from tlm_book.pretrained.llama import load_llama
from tlm_book.pretrained.llama_settings import FAMILIES
from tlm_book.pretrained.marian import load_marian

__all__ = ["load_model"]

LOADERS: dict[str, Any] = {"gpt2": load_gpt2, "marian": load_marian, **dict.fromkeys(FAMILIES, load_llama)}
TEXTS = ("tokenizer.json", "generation_config.json", "vocab.json", "merges.txt", "source.spm", "target.spm")


def load_model(name_or_folder: str | os.PathLike[str], *, revision: str | None = None) -> tuple[Any, Any]:
    """(model, tokenizer) from Hugging Face's files of any kind that this book knows: by the field model_type of config.json, what
    `load_gpt2`, `load_marian` or `load_llama` makes of them. Errors as there; ValueError for another kind.
    """
    folder = model_folder(name_or_folder, TEXTS, revision)
    kind: Any = read_fields(folder).get("model_type")
    expects_one_of("model_type", kind, tuple(LOADERS))
    return LOADERS[kind](folder)

"""The model of the small world that comes with the package. Written by hand."""

from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tlm_book.tokenization import Tokenizer
    from tlm_book.transformer_lm import TransformerLM

__all__ = ["model"]


def model(device: str = "cpu") -> "tuple[TransformerLM, Tokenizer]":
    """(model, tokenizer): the model that has learned the small world from its stories. A story for it must begin with `tokenizer.start`."""
    from tlm_book.training import load  # imported here, since only this needs torch

    with resources.as_file(resources.files("tlm_book") / "data" / "world") as folder:
        return load(folder, device)

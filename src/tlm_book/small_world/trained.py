"""The model of the small world that comes with the package. Written by hand."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tlm_book.tokenization import Tokenizer
    from tlm_book.transformer_lm import TransformerLM

__all__ = ["model"]


def model(device: str = "cpu") -> "tuple[TransformerLM, Tokenizer]":
    """(model, tokenizer): the model that has learned the small world from its stories. A story for it must begin with `tokenizer.start`."""
    from tlm_book.training.folder import load_data  # only this needs torch

    return load_data("world", device)

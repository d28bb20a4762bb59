"""The context in which a model reads for a picture: in evaluation mode, with tensors where its weights are. Written by hand."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tlm_book.libraries import library
from tlm_book.modes import evaluating

__all__ = ["reading"]


@contextmanager
def reading(model: Any) -> Iterator[Any]:
    """A context in which the model is in evaluation mode, no gradients are kept, and tensors are made on the device of its weights, which it gives.
    On leaving, even after an error, each part of the model is again in its former mode.
    """
    torch = library("torch", "viewer")
    place = next((weight.device for weight in model.parameters()), torch.device("cpu"))
    with evaluating(model), torch.no_grad(), place:
        yield place

"""The context in which a model reads for a picture: in evaluation mode, with tensors where its weights are. Written by hand."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tlm_book.libraries import library

__all__ = ["reading"]


@contextmanager
def reading(model: Any) -> Iterator[Any]:
    """A context in which the model is in evaluation mode, no gradients are kept, and tensors are made on the device of its weights, which it gives.
    On leaving, even after an error, the model is put back into the mode in which it came.
    """
    torch = library("torch", "viewer")
    training, place = model.training, next((weight.device for weight in model.parameters()), torch.device("cpu"))
    model.eval()
    try:
        with torch.no_grad(), place:
            yield place
    finally:
        model.train(training)

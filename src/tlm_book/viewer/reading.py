"""How a picture has a model read: in evaluation mode, and where its weights are. Written by hand."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tlm_book.libraries import library

__all__ = ["reading"]


@contextmanager
def reading(model: Any) -> Iterator[Any]:
    """Within, the model is in evaluation mode, no gradients are kept, and tensors are made where its weights are, which is what comes; afterwards the model
    is in the mode in which it came, also after an error.
    """
    torch = library("torch", "viewer")
    training, place = model.training, next((weight.device for weight in model.parameters()), torch.device("cpu"))
    model.eval()
    try:
        with torch.no_grad(), place:
            yield place
    finally:
        model.train(training)

"""What is kept, instead of keys and values, of layers that read on from a state of their own. Written by hand."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["ReadsOn", "States", "reads_on"]


@runtime_checkable
class ReadsOn(Protocol):
    """A layer in the place of a block's attention that goes on where it stopped, as `LinearAttention` does."""

    def read(self, x: Float[Tensor, "B n d"], state: Float[Tensor, "B ..."] | None = None) -> tuple[Float[Tensor, "B n d"], Float[Tensor, "B ..."]]:
        """The layer's rows for texts that go on with x, and the states after them; None is the state before a text."""


def reads_on(layer: object) -> bool:
    """Whether the layer has the method of `ReadsOn`."""
    return callable(getattr(layer, "read", None))


class States:
    """The states of one layer, one for each text of a batch, with the methods of `Cache`; in the memory where they were at first."""

    def __init__(self, layer: ReadsOn) -> None:
        self.layer = layer
        self.kept: Float[Tensor, "B ..."] | None = None

    def fill(self, x: Float[Tensor, "rows d"], lengths: Sequence[int]) -> Float[Tensor, "rows d"]:
        """The layer's rows for texts of these lengths, read from their beginning; the rows of padding are 0."""
        X = x.view(len(lengths), -1, x.shape[-1])
        if len(set(lengths)) == 1:
            Y, states = self.layer.read(X)
        else:
            Y, last = torch.zeros_like(X), []
            for b, length in enumerate(lengths):
                y, state = self.layer.read(X[b : b + 1, :length])
                Y[b, :length] = y[0]
                last.append(state)
            states = torch.cat(last)
        if self.kept is None or self.kept.shape != states.shape:
            self.kept = states.clone()
        else:
            self.kept.copy_(states)
        return Y.flatten(0, 1)

    def append(self, x: Float[Tensor, "B d"], at: Any) -> Float[Tensor, "B d"]:
        """The layer's rows for one new row of each text; changes the states. The place of the row does not matter."""
        assert self.kept is not None  # `fill` comes first
        y, state = self.layer.read(x[:, None], self.kept)
        self.kept.copy_(state)
        return y[:, 0]

    def select(self, texts: Int[Tensor, "b"], n: int) -> None:
        """Keep only the states of these texts, in this order; one may come twice."""
        assert self.kept is not None
        self.kept = self.kept[texts]

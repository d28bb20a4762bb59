"""What is kept, instead of keys and values, of layers that read on from a state of their own. Written by hand."""

import copy
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tlm_book.checks import refuse
from tlm_book.multi_head import MultiHeadAttention

__all__ = ["ReadsOn", "States", "as_now", "reads_on"]


@runtime_checkable
class ReadsOn(Protocol):
    """A layer in the place of a block's attention that goes on where it stopped, as `LinearAttention` does."""

    def read(self, x: Float[Tensor, "B n d"], state: Float[Tensor, "B ..."] | None = None) -> tuple[Float[Tensor, "B n d"], Float[Tensor, "B ..."]]:
        """The layer's rows for texts that go on with x, and the states after them, of the same shape after every text; None is the state
        before a text."""


def reads_on(layer: object) -> bool:
    """Whether the layer has the method of `ReadsOn`. Attention of this book is read in another way."""
    return callable(getattr(layer, "read", None)) and not isinstance(layer, MultiHeadAttention)


def as_now(layer: nn.Module) -> Any:
    """The layer without dropout and with the memory that its weights have now, even if it is later trained, moved or converted."""
    weights: list[Tensor] = [*layer.parameters(), *layer.buffers()]
    return copy.deepcopy(layer, {id(w): nn.Parameter(w.detach(), False) if isinstance(w, nn.Parameter) else w for w in weights}).eval()


class States:
    """The states of one layer, one for each text of a batch, with the methods of `Cache`; in the memory where they were at first."""

    def __init__(self, layer: ReadsOn) -> None:
        self.layer = layer
        self.kept: Float[Tensor, "B ..."] | None = None
        self.next: Float[Tensor, "B ..."] | None = None

    def fill(self, x: Float[Tensor, "rows d"], lengths: Sequence[int]) -> Float[Tensor, "rows d"]:
        """The layer's rows for texts of these lengths, read from their beginning; the rows of padding are 0. Texts of one length are read together."""
        X = x.view(len(lengths), -1, x.shape[-1])
        Y, states = torch.zeros_like(X), list[Any]([None] * len(lengths))
        for length in sorted(set(lengths)):
            texts = [b for b, other in enumerate(lengths) if other == length]
            at = torch.tensor(texts, device=x.device)
            Y[at, :length], found = self._read(X[at, :length])
            for b, state in zip(texts, found):
                states[b] = state
        if len({tuple(state.shape) for state in states}) > 1:
            self._refuse("states of several shapes")
        kept = torch.stack(states)
        if self.kept is None or self.kept.shape != kept.shape or self.kept.dtype != kept.dtype:
            self.kept = kept
        else:
            self.kept.copy_(kept)
        return Y.flatten(0, 1)

    def append(self, x: Float[Tensor, "B d"], at: Any) -> Float[Tensor, "B d"]:
        """The layer's rows for one new row of each text, whose place does not matter. The states are changed by `keep`, when the whole step is done."""
        assert self.kept is not None  # `fill` comes first
        y, self.next = self._read(x[:, None], self.kept)
        if self.next.shape != self.kept.shape:
            self._refuse(f"a state of shape {tuple(self.next.shape)} after one of shape {tuple(self.kept.shape)}")
        return y[:, 0]

    def keep(self) -> None:
        """The states are those after the last `append`."""
        assert self.kept is not None and self.next is not None
        self.kept.copy_(self.next)

    def select(self, texts: Int[Tensor, "b"], n: int) -> None:
        """Keep only the states of these texts, in this order; one may come twice."""
        assert self.kept is not None
        self.kept = self.kept[texts]

    def _read(self, x: Float[Tensor, "B n d"], state: Float[Tensor, "B ..."] | None = None) -> tuple[Float[Tensor, "B n d"], Float[Tensor, "B ..."]]:
        found: Any = self.layer.read(x, state)
        if not isinstance(found, tuple) or len(found) != 2 or not all(isinstance(t, Tensor) for t in found):
            self._refuse("something else than rows and one tensor of states")
        y, new = found
        if y.shape != x.shape or new.dim() == 0 or len(new) != len(x):
            self._refuse(f"rows of shape {tuple(y.shape)} and states of shape {tuple(new.shape)} for {tuple(x.shape)}")
        return y, new

    def _refuse(self, got: str) -> None:
        refuse("model", f"a layer {type(self.layer).__name__} that returns {got}", "rows like those read, and states (B, …) of one shape", TypeError)

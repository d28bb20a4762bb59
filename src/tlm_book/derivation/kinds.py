"""What may be known of an operator, and a read-only view of a sentence in a derivation."""

from enum import Enum
from typing import Protocol, runtime_checkable

__all__ = ["Kind", "MEANS", "ProofNode"]


class Kind(Enum):
    """What is known of an operator. The two patterns are separate notions, since they
    are not operators of fixed width.

    UNPROVED means that nothing is known, not that something is false.
    """

    ROWWISE = "rowwise"
    INDEXED_ROWWISE = "indexed-rowwise"
    AUTOREGRESSIVE = "autoregressive"
    EQUIVARIANT = "permutation-equivariant"
    UNPROVED = "unproved"
    CAUSAL_PATTERN = "causal pattern"
    EQUIVARIANT_PATTERN = "equivariant pattern"


MEANS: dict[Kind, frozenset[Kind]] = {
    Kind.ROWWISE: frozenset(list(Kind)[:4]),
    Kind.INDEXED_ROWWISE: frozenset({Kind.INDEXED_ROWWISE, Kind.AUTOREGRESSIVE}),
    Kind.AUTOREGRESSIVE: frozenset({Kind.AUTOREGRESSIVE}),
    Kind.EQUIVARIANT: frozenset({Kind.EQUIVARIANT}),
    Kind.UNPROVED: frozenset(),
}


@runtime_checkable
class ProofNode(Protocol):
    """A node of a proof tree: `subject` is of `kind` because of `reason`, applied to `premises`."""

    @property
    def subject(self) -> str: ...

    @property
    def kind(self) -> Kind: ...

    @property
    def reason(self) -> str: ...

    @property
    def premises(self) -> "tuple[ProofNode, ...]": ...

    @property
    def declared(self) -> bool: ...

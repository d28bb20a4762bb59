"""The proof tree that `derive` returns."""

from dataclasses import dataclass
from itertools import groupby
from typing import Any

from tlm_book.checks import expects_kind
from tlm_book.derivation.certificate import certificate
from tlm_book.derivation.kinds import MEANS, Kind
from tlm_book.derivation.pictures import Lines, draw_tree, tree_text

__all__ = ["Derivation"]


@dataclass(frozen=True)
class Derivation:
    """A proof tree: `subject` is of `kind` because of `reason`, applied to
    `premises`. Its text is the tree; `plot` draws it. `declared` marks a leaf that a
    rule from outside the book has made. TypeError for another kind of subject, kind,
    reason or premises: a forgotten subject would take the place of the first premise.
    """

    subject: str
    kind: Kind
    reason: str
    premises: tuple["Derivation", ...] = ()
    declared: bool = False

    def __post_init__(self) -> None:
        expects_kind("subject", self.subject, str, "a name, then the premises")
        expects_kind("kind", self.kind, Kind, "a Kind, such as Kind.ROWWISE")
        expects_kind("reason", self.reason, str, "a str")
        expects_kind("premises", self.premises, tuple, "a tuple of Derivations")
        for premise in self.premises:
            expects_kind("premises", premise, Derivation, "a tuple of Derivations")

    @property
    def autoregressive(self) -> bool:
        """True when the tree proves the subject autoregressive: rowwise and
        indexed-rowwise imply it."""
        return Kind.AUTOREGRESSIVE in MEANS.get(self.kind, ())

    @property
    def equivariant(self) -> bool:
        """True when the tree proves the subject permutation-equivariant: rowwise
        implies it."""
        return Kind.EQUIVARIANT in MEANS.get(self.kind, ())

    @property
    def is_identity(self) -> bool:
        """True for a leaf that says X ↦ X, which a composition may leave out."""
        return self.kind is Kind.ROWWISE and self.reason in ("identity", "identity outside training")

    def unproved(self) -> list["Derivation"]:
        """The places where the proof breaks: the unproved sentences whose premises, if
        they have any, are all proved."""
        deeper = [gap for premise in self.premises for gap in premise.unproved()]
        return deeper or [self] * (self.kind is Kind.UNPROVED)

    def lines(self) -> list[tuple[int, int, "Derivation"]]:
        """The sentences from top to bottom, as (depth, how often in a row,
        sentence)."""
        listed, todo = [], [(0, 1, self)]
        while todo:
            depth, times, step = todo.pop()
            listed.append((depth, times, step))
            groups = [(one, len(list(all_))) for one, all_ in groupby(step.premises)]
            todo += [(depth + 1, n, premise) for premise, n in reversed(groups)]
        return listed

    def __repr__(self) -> str:
        return tree_text(self.lines())

    def plot(self, ax: Any = None) -> Any:
        """Draw the tree, with a colour for each kind, on these matplotlib axes or on new
        ones; returns the axes."""
        return draw_tree(self.lines(), ax)

    def certificate(self) -> str:
        """This tree as a file for the proof assistant Coq, which proves there that every operator that the tree
        denotes is autoregressive, given what its leaves compute. (T-derivation-sound)

        ValueError, with the place where the proof stops, if this tree does not prove it.
        """
        return certificate(self)

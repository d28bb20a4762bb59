"""The calculus: how sentences about parts give a sentence about the whole. Each rule is a lemma of the chapter operators."""

from tlm_book.checks import expects
from tlm_book.derivation.kinds import MEANS, Kind
from tlm_book.derivation.tree import Derivation

__all__ = ["primitive", "weakest", "compose", "add", "concat", "residual", "pattern", "product", "expects_derivation"]


def primitive(subject: str, kind: Kind, reason: str) -> Derivation:
    """A declared fact, with the reason why it holds.
    """
    return Derivation(subject, kind, reason)


def expects_derivation(argument: str, got: object) -> None:
    """TypeError for anything but a Derivation."""
    came = type(got).__name__
    expects(isinstance(got, Derivation), argument, came, "a Derivation", TypeError)


def weakest(premises: tuple[Derivation, ...]) -> Kind:
    """The kind that all premises have in common. (T-closure-kinds, T-equivariant-closure)

    A pattern among them gives UNPROVED: its width is not fixed, so the
    closure lemmas say nothing about it. ValueError if there are no premises,
    TypeError for a premise that is not a Derivation.
    """
    expects(len(premises) > 0, "premises", "none", "at least one Derivation")
    for premise in premises:
        expects_derivation("premises", premise)
    every = [MEANS.get(premise.kind, frozenset()) for premise in premises]
    shared = frozenset.intersection(*every)
    return next(kind for kind, means in MEANS.items() if means == shared)


def compose(subject: str, *premises: Derivation) -> Derivation:
    """Composition, premises in the order in which they are applied.
    (W-composition-claim)
    """
    return Derivation(subject, weakest(premises), "composition", premises)


def add(subject: str, *premises: Derivation) -> Derivation:
    """X ↦ S(X) + T(X). (W-closure-lemmas)
    """
    return Derivation(subject, weakest(premises), "sum", premises)


def concat(subject: str, *premises: Derivation) -> Derivation:
    """X ↦ [S(X), T(X)], side by side. (W-closure-lemmas)
    """
    return Derivation(subject, weakest(premises), "concatenation", premises)


def residual(subject: str, premise: Derivation) -> Derivation:
    """X ↦ X + T(X). (W-closure-lemmas)
    """
    return Derivation(subject, weakest((premise,)), "residual", (premise,))


def pattern(
    subject: str, queries: Derivation, keys: Derivation, causal: bool = True
) -> Derivation:
    """X ↦ softmax(◺(c·Q(X)K(X)ᵀ)) is a causal pattern when Q and K are
    autoregressive. (T-pattern-lemma)

    With `causal=False`, without ◺: an equivariant pattern when Q and K are
    equivariant. (T-equivariant-pattern)
    """
    expects_derivation("queries", queries)
    expects_derivation("keys", keys)
    if causal:
        proved = queries.autoregressive and keys.autoregressive
        kind = Kind.CAUSAL_PATTERN if proved else Kind.UNPROVED
        return Derivation(subject, kind, "masked softmax of scores", (queries, keys))
    proved = queries.equivariant and keys.equivariant
    kind = Kind.EQUIVARIANT_PATTERN if proved else Kind.UNPROVED
    return Derivation(subject, kind, "softmax of scores", (queries, keys))


def product(subject: str, weights: Derivation, values: Derivation) -> Derivation:
    """X ↦ A(X) B(X) is autoregressive for a causal pattern A and an autoregressive
    B, and equivariant for an equivariant pattern and an equivariant B.
    (W-product-claim, T-equivariant-pattern)
    """
    expects_derivation("weights", weights)
    expects_derivation("values", values)
    kind = Kind.UNPROVED
    if weights.kind is Kind.CAUSAL_PATTERN and values.autoregressive:
        kind = Kind.AUTOREGRESSIVE
    if weights.kind is Kind.EQUIVARIANT_PATTERN and values.equivariant:
        kind = Kind.EQUIVARIANT
    return Derivation(subject, kind, "product", (weights, values))

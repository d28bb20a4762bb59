"""Rowwise and autoregressive operators. Generated from book/operators.ipynb: edit the notebook, then `make export`."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from itertools import groupby

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tlm_book.checks import expects, expects_shape

__all__ = [
    "causal_mask",
    "masked_softmax",
    "Kind",
    "STRENGTH",
    "Derivation",
    "primitive",
    "weakest",
    "compose",
    "add",
    "concat",
    "residual",
    "pattern",
    "product",
    "derives",
    "derive",
]


# operators: The mask in torch
def causal_mask(scores: Float[Tensor, "*batch n m"]) -> Float[Tensor, "*batch n m"]:
    """◺A on the last two axes: −∞ above the diagonal. (W-mask-op-def)

    Chapter: operators.
    """
    expects_shape("scores", scores, ("n", "m"))
    real = scores.is_floating_point()
    expects(real, "scores", f"dtype {scores.dtype}", "floating point", TypeError)
    n, m = scores.shape[-2:]
    later = torch.ones(n, m, dtype=torch.bool, device=scores.device).triu(1)
    return scores.masked_fill(later, float("-inf"))


def masked_softmax(
    scores: Float[Tensor, "*batch n m"],
) -> Float[Tensor, "*batch n m"]:
    """softmax(◺A) on the last two axes. (W-masked-softmax-claim)

    Chapter: operators.
    """
    return causal_mask(scores).softmax(-1)


# operators: Derivations
class Kind(Enum):
    """What is known of an operator, strongest first. CAUSAL_PATTERN is a notion of
    its own: no operator of fixed width.

    UNPROVED means that nothing is known, not that something is false.

    Chapter: operators.
    """

    ROWWISE = "rowwise"
    INDEXED_ROWWISE = "indexed-rowwise"
    AUTOREGRESSIVE = "autoregressive"
    UNPROVED = "unproved"
    CAUSAL_PATTERN = "causal pattern"


STRENGTH = [Kind.ROWWISE, Kind.INDEXED_ROWWISE, Kind.AUTOREGRESSIVE, Kind.UNPROVED]


# operators: Derivations
@dataclass(frozen=True)
class Derivation:
    """A proof tree: `subject` is of `kind` because of `reason`, applied to
    `premises`. Its text is the tree.

    Chapter: operators.
    """

    subject: str
    kind: Kind
    reason: str
    premises: tuple["Derivation", ...] = ()

    @property
    def autoregressive(self) -> bool:
        """True when the tree proves the subject autoregressive: rowwise and
        indexed-rowwise imply it."""
        return self.kind in STRENGTH[:3]

    def unproved(self) -> list["Derivation"]:
        """Where the proof breaks: the unproved sentences whose premises, if they
        have any, are all proved."""
        deeper = [gap for premise in self.premises for gap in premise.unproved()]
        return deeper or [self] * (self.kind is Kind.UNPROVED)

    def __repr__(self) -> str:
        return "\n".join(self._lines("", "", 1))

    def _lines(self, first: str, rest: str, times: int) -> list[str]:
        repeated = f" (× {times})" if times > 1 else ""
        lines = [
            f"{first}{self.subject}{repeated}: {self.kind.value}   [{self.reason}]"
        ]
        groups = [
            (premise, len(list(equal))) for premise, equal in groupby(self.premises)
        ]
        for number, (premise, times) in enumerate(groups, start=1):
            last = number == len(groups)
            lines += premise._lines(
                rest + ("└─ " if last else "├─ "),
                rest + ("   " if last else "│  "),
                times,
            )
        return lines


# operators: Derivations
def primitive(subject: str, kind: Kind, reason: str) -> Derivation:
    """A declared fact, with the reason why it holds.

    Chapter: operators.
    """
    return Derivation(subject, kind, reason)


def _expects_derivation(argument: str, got: object) -> None:
    came = type(got).__name__
    expects(isinstance(got, Derivation), argument, came, "a Derivation", TypeError)


def weakest(premises: tuple[Derivation, ...]) -> Kind:
    """The strongest kind that all premises share. (T-closure-kinds)

    A causal pattern among them gives UNPROVED: its width is not fixed, so the
    closure lemmas say nothing of it. ValueError when there are no premises,
    TypeError for a premise that is no Derivation.

    Chapter: operators.
    """
    expects(len(premises) > 0, "premises", "none", "at least one Derivation")
    for premise in premises:
        _expects_derivation("premises", premise)
    kinds = [
        Kind.UNPROVED if premise.kind is Kind.CAUSAL_PATTERN else premise.kind
        for premise in premises
    ]
    return max(kinds, key=STRENGTH.index)


# operators: Derivations
def compose(subject: str, *premises: Derivation) -> Derivation:
    """Composition, premises in the order in which they are applied.
    (W-composition-claim)

    Chapter: operators.
    """
    return Derivation(subject, weakest(premises), "composition", premises)


def add(subject: str, *premises: Derivation) -> Derivation:
    """X ↦ S(X) + T(X). (W-closure-lemmas)

    Chapter: operators.
    """
    return Derivation(subject, weakest(premises), "sum", premises)


def concat(subject: str, *premises: Derivation) -> Derivation:
    """X ↦ [S(X), T(X)], side by side. (W-closure-lemmas)

    Chapter: operators.
    """
    return Derivation(subject, weakest(premises), "concatenation", premises)


def residual(subject: str, premise: Derivation) -> Derivation:
    """X ↦ X + T(X). (W-closure-lemmas)

    Chapter: operators.
    """
    return Derivation(subject, weakest((premise,)), "residual", (premise,))


# operators: Derivations
def pattern(subject: str, queries: Derivation, keys: Derivation) -> Derivation:
    """X ↦ softmax(◺(c·Q(X)K(X)ᵀ)) is a causal pattern when Q and K are
    autoregressive. (T-pattern-lemma)

    Chapter: operators.
    """
    _expects_derivation("queries", queries)
    _expects_derivation("keys", keys)
    proved = queries.autoregressive and keys.autoregressive
    kind = Kind.CAUSAL_PATTERN if proved else Kind.UNPROVED
    return Derivation(subject, kind, "masked softmax of scores", (queries, keys))


def product(subject: str, weights: Derivation, values: Derivation) -> Derivation:
    """X ↦ A(X) B(X) is autoregressive for a causal pattern A and an autoregressive
    B. (W-product-claim)

    Chapter: operators.
    """
    _expects_derivation("weights", weights)
    _expects_derivation("values", values)
    proved = weights.kind is Kind.CAUSAL_PATTERN and values.autoregressive
    return Derivation(
        subject,
        Kind.AUTOREGRESSIVE if proved else Kind.UNPROVED,
        "product",
        (weights, values),
    )


# operators: Derivations of torch models
_Rule = Callable[[nn.Module], Derivation]
_RULES: dict[type[nn.Module], _Rule] = {}


def derives(module_type: type[nn.Module]) -> Callable[[_Rule], _Rule]:
    """Decorator: registers the rule by which `derive` reads modules of exactly this
    type.

    TypeError when `module_type` is not a class of torch modules.

    Chapter: operators.
    """
    is_module_type = isinstance(module_type, type) and issubclass(
        module_type, nn.Module
    )
    expects(
        is_module_type,
        "module_type",
        repr(module_type),
        "a subclass of torch.nn.Module",
        TypeError,
    )

    def register(rule: _Rule) -> _Rule:
        _RULES[module_type] = rule
        return rule

    return register


# operators: Derivations of torch models
def derive(module: nn.Module) -> Derivation:
    """The proof tree of what is known of a torch module; a type without a rule is a
    leaf marked unproved.

    The type must match exactly: a subclass may compute something else. TypeError for
    anything but a torch module. The rules are trusted: a forward hook or a replaced
    `forward` is not seen.

    Chapter: operators.
    """
    expects(
        isinstance(module, nn.Module),
        "module",
        type(module).__name__,
        "a torch.nn.Module",
        TypeError,
    )
    rule = _RULES.get(type(module))
    if rule is None:
        return primitive(
            type(module).__name__, Kind.UNPROVED, "no rule for this type"
        )
    return rule(module)


# operators: Derivations of torch models
@derives(nn.Linear)
def _linear(module: nn.Linear) -> Derivation:
    return primitive(
        f"Linear({module.in_features} → {module.out_features})",
        Kind.ROWWISE,
        "one map for all rows",
    )


@derives(nn.Embedding)
def _embedding(module: nn.Embedding) -> Derivation:
    return primitive(
        f"Embedding({module.num_embeddings} → {module.embedding_dim})",
        Kind.ROWWISE,
        "one map for all rows",
    )


@derives(nn.Identity)
@derives(nn.ReLU)
@derives(nn.GELU)
@derives(nn.SiLU)
@derives(nn.Tanh)
@derives(nn.Sigmoid)
def _entry_by_entry(module: nn.Module) -> Derivation:
    return primitive(type(module).__name__, Kind.ROWWISE, "entry by entry")


# operators: Derivations of torch models
@derives(nn.Dropout)
def _dropout(module: nn.Dropout) -> Derivation:
    if module.training and module.p > 0:
        return primitive(
            f"Dropout({module.p})", Kind.UNPROVED, "random in training mode"
        )
    return primitive("Dropout", Kind.ROWWISE, "identity outside training")


@derives(nn.LayerNorm)
@derives(nn.RMSNorm)
def _norm(module: nn.LayerNorm | nn.RMSNorm) -> Derivation:
    name, shape = type(module).__name__, tuple(module.normalized_shape)
    if len(shape) != 1:
        return primitive(
            f"{name}{shape}", Kind.UNPROVED, "normalizes over more than one axis"
        )
    return primitive(f"{name}({shape[0]})", Kind.ROWWISE, "one map for all rows")


@derives(nn.Sequential)
def _sequential(module: nn.Sequential) -> Derivation:
    if len(module) == 0:
        return primitive("Sequential", Kind.ROWWISE, "identity")
    return compose("Sequential", *(derive(child) for child in module))

"""A proof tree as a file for the proof assistant Coq: the tree as a term, its leaves as assumptions, and the theorem.

Coq computes the kind of every node by its own calculus (proofs/Derivation.v), whose soundness it has proved, and compares it
with the kind that the tree claims. So neither this module nor the calculus in Python has to be trusted: if one of them is wrong,
Coq rejects the file. What has to be trusted is written in the file as assumptions: what each leaf computes.
"""

from collections import Counter
from dataclasses import dataclass
from itertools import groupby

from tlm_book.checks import expects, expects_kind
from tlm_book.derivation.kinds import MEANS, Kind, ProofNode
from tlm_book.derivation.trial import AGREES

__all__ = ["Form", "LEAF_FORMS", "Assumption", "assumptions", "certificate"]


@dataclass(frozen=True)
class Form:
    """What a leaf computes: Coq's name for it, the formula, and the statements of the book whose checks try it on real layers."""

    coq: str
    formula: str
    checks: tuple[str, ...]


_ONE_MAP = "T(X)[i] = t(X[i]), one map t for all rows"
_BY_PLACE = "T(X)[i] = t_i(X[i]), a map t_i for each place i"
LEAF_FORMS: dict[str, Form] = {  # by the reason that the leaf gives; for some layers of the book, by the leaf's name and reason
    "one map for all rows": Form("OneMap", _ONE_MAP, ("T-derive-torch",)),
    "N: one map for all rows": Form("OneMap", _ONE_MAP, ("W-norm-layer", "T-rms-norm")),
    "entry by entry": Form("OneMap", _ONE_MAP, ("T-derive-torch", "W-ff-rowwise")),
    "identity": Form("OneMap", "T(X) = X", ("T-derive-torch",)),
    "identity outside training": Form("OneMap", "T(X) = X", ("T-derive-torch",)),
    "row look-up": Form("OneMap", _ONE_MAP, ("T-embedding-rowwise",)),
    "adds row i of a table to row i": Form("MapOfPlace", _BY_PLACE, ("W-pe-rowwise-claim",)),
    "turns row i by angles that i fixes": Form("MapOfPlace", _BY_PLACE, ("T-rotary-def",)),
    "a network on row i and the number i": Form("MapOfPlace", _BY_PLACE, ("W-pe-rowwise-claim",)),
    "one map for a fixed memory": Form("OneMap", _ONE_MAP, ("T-cross-attention", "T-derive-torch")),
    "keys and values do not change": Form("OneMap", _ONE_MAP, ("T-cross-attention", "A-parallel")),
    "subtracts the mean of all rows": Form("SameForAll", "T(X)[i] = t_X(X[i]), one map made of all rows in any order", ("T-equivariant-def",)),
}
COQ_KINDS = {
    Kind.ROWWISE: "Rowwise", Kind.INDEXED_ROWWISE: "IndexedRowwise", Kind.AUTOREGRESSIVE: "Autoregressive",
    Kind.EQUIVARIANT: "Equivariant", Kind.UNPROVED: "Unproved", Kind.CAUSAL_PATTERN: "CausalPattern",
    Kind.EQUIVARIANT_PATTERN: "EquivariantPattern",
}  # fmt: skip
_CHAINS = {"composition": "Compose", "sum": "Combine", "concatenation": "Combine", "entrywise product": "Combine"}
_PAIRS = {"masked softmax of scores": "MaskedSoftmax", "softmax of scores": "Softmax", "product": "Product"}


@dataclass(frozen=True)
class Assumption:
    """What a certificate takes for granted about one leaf, which occurs at `places` places in the tree.

    `form` is what the leaf computes, in Coq's words; `checks` are the statements whose checks try the book's leaves for which
    the same reason is given. There are none for a leaf that a rule from outside the book declares: there the declared kind
    itself is assumed.
    """

    subject: str
    reason: str
    kind: Kind
    form: str
    formula: str
    checks: tuple[str, ...]
    places: int


def _form(leaf: ProofNode) -> Form:
    declared = Form(f"(Declared {COQ_KINDS[leaf.kind]})", f"it is {leaf.kind.value}, says a rule outside the book", ())
    if leaf.declared:
        return declared
    return LEAF_FORMS.get(f"{leaf.subject}: {leaf.reason}") or LEAF_FORMS.get(leaf.reason) or declared


_Key = tuple[str, str, Kind, str]


def _key(leaf: ProofNode) -> _Key:
    """A key that two leaves share if the same is said, and the same assumed, of both."""
    return leaf.subject, leaf.reason, leaf.kind, _form(leaf).coq


def _nodes(root: ProofNode) -> list[ProofNode]:
    """All sentences of a tree, premises before their conclusions."""
    found, todo = [], [root]
    while todo:
        found.append(todo.pop())
        todo += found[-1].premises
    return found[::-1]


def assumptions(proof: ProofNode) -> tuple[Assumption, ...]:
    """What the certificate of this tree takes for granted, leaf by leaf; TypeError for anything but a tree. (T-derivation-sound)"""
    expects_kind("proof", proof, ProofNode, "a Derivation")
    places = Counter((_key(leaf), _form(leaf)) for leaf in _nodes(proof) if not leaf.premises)
    return tuple(Assumption(*key, form.formula, form.checks, count) for (key, form), count in places.items())


def _expects_proof(proof: ProofNode) -> None:
    """Check that the root and all nodes below it are proved; the ValueError otherwise says where the proof stops."""
    breaks = lambda step: step.kind is Kind.UNPROVED and all(premise.kind is not Kind.UNPROVED for premise in step.premises)
    gaps = {f"{step.subject} ({step.reason})" for step in filter(breaks, _nodes(proof))}
    wants = "an autoregressive one, proved from its leaves"
    expects(not gaps, "derivation", f"a proof that stops at {', '.join(sorted(gaps))}", wants)
    proved = Kind.AUTOREGRESSIVE in MEANS.get(proof.kind, ())
    expects(proved, "derivation", f"{proof.subject}, of which only '{proof.kind.value}' is proved", wants)


class _Writer:
    """Numbers the different leaves and the different nodes of a tree, and writes a line or two for each."""

    def __init__(self, leaves: tuple[Assumption, ...]) -> None:
        self.leaf: dict[_Key, int] = {(leaf.subject, leaf.reason, leaf.kind, leaf.form): number for number, leaf in enumerate(leaves)}
        self.number: dict[tuple[str, str, Kind], int] = {}
        self.lines: list[str] = []

    def node(self, step: ProofNode) -> int:
        """The number of this node, which is written, with all nodes below it, unless it has been written before."""
        term = self.term(step)
        key = term, step.subject, step.kind
        if key not in self.number:
            k = self.number[key] = len(self.number)
            self.lines += [
                f"  Definition node_{k} := {term}. (* {_comment(step.subject)} *)",
                f"  Lemma kind_{k} : kind_of forms node_{k} = {COQ_KINDS[step.kind]}. Proof. reflexivity. Qed. (* {_comment(step.reason)} *)",
            ]
        return self.number[key]

    def term(self, step: ProofNode) -> str:
        """This node as a term, built of the nodes below it."""
        if not step.premises:
            return f"Leaf {self.leaf[_key(step)]}"
        if step.reason == AGREES:  # the tree below it is the author's
            return self.term(step.premises[0])
        below = [f"node_{self.node(premise)}" for premise in step.premises]
        if step.reason == "residual" and len(below) == 1:
            return f"Residual {below[0]}"
        if step.reason in _PAIRS and len(below) == 2:
            return f"{_PAIRS[step.reason]} {below[0]} {below[1]}"
        known = ", ".join([*_CHAINS, "residual", *_PAIRS])
        expects(step.reason in _CHAINS, "derivation", f"a step by '{step.reason}' to {step.subject}", f"one of {known}")
        if step.reason == "concatenation":  # one sentence about several heads, or the same one several times
            below = [f"(Several {one})" if len(below) == 1 or len(list(all_)) > 1 else one for one, all_ in groupby(below)]
        term = below[0]
        for part in below[1:]:
            term = f"{_CHAINS[step.reason]} {term if ' ' not in term or term[0] == '(' else f'({term})'} {part}"
        return term.removeprefix("(").removesuffix(")") if len(below) == 1 and term[0] == "(" else term


def _comment(text: str) -> str:
    return text.replace("(*", "( *").replace("*)", "* )").replace('"', "'")


def _leaf_lines(number: int, leaf: Assumption) -> str:
    tried = f"tried by {', '.join(leaf.checks)}" if leaf.checks else "not tried by the book"
    said = _comment(f"{leaf.subject}: {leaf.formula}; {tried}")
    return (
        f"  (* {said} *)\n  Variable leaf_{number} : meaning V W -> Prop.\n"
        f"  Hypothesis form_{number} : forall m, leaf_{number} m -> has_form N {leaf.form} m.\n"
    )


_TEXT = """(* A certificate: {subject} is autoregressive, whatever its weights.

   Written from the model's derivation. It needs Operators.v and Derivation.v, which come with the package tlm_book:
   coqc -Q FOLDER TLM Operators.v, then Derivation.v, then this file. A node is a part of the model; beside each stands the
   kind that the derivation gives it, and Coq computes it again. *)

From TLM Require Import Operators Derivation.

Section Certificate.
  Context {{V W : Type}} (N : arithmetic V W).

  (* What is assumed: which operators each leaf stands for, and what they compute. *)
{leaves}
  Definition forms (n : nat) : form :=
    match n with {forms} | _ => Declared Unproved end.
  Definition means (n : nat) : meaning V W -> Prop :=
    match n with {means} | _ => fun _ => False end.
  Lemma leaves_true : forall n m, means n m -> has_form N (forms n) m.
  Proof.
    intros n m. {steps}
    contradiction.
  Qed.

  (* The model, from its leaves to the whole. *)
{nodes}

  Theorem autoregressive_model : forall T, denotes N means node_{root} (Op T) -> autoregressive T.
  Proof. apply (derived_autoregressive N forms means leaves_true). rewrite kind_{root}. reflexivity. Qed.
End Certificate.

Print Assumptions autoregressive_model.
"""


def certificate(proof: ProofNode) -> str:
    """The text of a file for Coq with the theorem that every operator which this tree denotes is autoregressive.
    (T-derivation-sound)

    ValueError, with the place where the proof stops, if the tree does not prove this.
    """
    _expects_proof(proof)
    leaves = assumptions(proof)
    writer = _Writer(leaves)
    root = writer.node(proof)
    return _TEXT.format(
        subject=_comment(proof.subject),
        leaves="\n".join(_leaf_lines(number, leaf) for number, leaf in enumerate(leaves)),
        forms=" | ".join(f"{number} => {leaf.form.strip('()')}" for number, leaf in enumerate(leaves)),
        means=" | ".join(f"{number} => leaf_{number}" for number in range(len(leaves))),
        steps="\n    ".join(f"destruct n as [|n]; [exact (form_{number} m)|]." for number in range(len(leaves))),
        nodes="\n".join(writer.lines),
        root=root,
    )

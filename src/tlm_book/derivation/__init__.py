"""Derivations: proof trees for what is known of an operator, read off a torch model and checked by a proof assistant.

`calculus` has the rules of the algebra, `rules` those of modules; the chapter on each layer registers its own with `register_rule`.
`certificate` writes a tree for Coq, `prove` has it checked. Written by hand; the chapter derivations explains all this.
"""

import tlm_book.derivation.layers  # importing it registers its rules
from tlm_book.derivation.calculus import (
    add,
    compose,
    concat,
    pattern,
    primitive,
    product,
    residual,
    weakest,
)
from tlm_book.derivation.certificate import assumptions
from tlm_book.derivation.kinds import MEANS, Kind
from tlm_book.derivation.rules import derive, register_rule
from tlm_book.derivation.transformers import Causal
from tlm_book.derivation.tree import Derivation

__all__ = [
    "Kind",
    "MEANS",
    "Derivation",
    "primitive",
    "weakest",
    "compose",
    "add",
    "concat",
    "residual",
    "pattern",
    "product",
    "register_rule",
    "derive",
    "Causal",
    "assumptions",
]

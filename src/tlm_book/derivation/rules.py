"""What is known of a torch module: a rule for each type of module, and `derive`, which applies them."""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, TypeVar

from torch import Tensor, nn

from tlm_book.checks import expects
from tlm_book.derivation.calculus import expects_derivation, primitive
from tlm_book.derivation.kinds import Kind
from tlm_book.derivation.tree import Derivation
from tlm_book.derivation.trial import AGREES, REFUTED, of_the_book, tried

__all__ = ["register_rule", "derive"]

Rule = Callable[[Any], Derivation]  # for modules of one type
_R = TypeVar("_R", bound=Rule)
_RULES: dict[type[nn.Module], Rule] = {}
_PARTS: ContextVar[list[Derivation] | None] = ContextVar("_PARTS", default=None)  # what the rule that is running has derived


def register_rule(module_type: type[nn.Module]) -> Callable[[_R], _R]:
    """A decorator that registers the rule by which `derive` reads modules of exactly
    this type.

    TypeError if `module_type` is not a class of torch modules.
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

    def register(rule: _R) -> _R:
        _RULES[module_type] = rule
        return rule

    return register


def _why_touched(module: nn.Module) -> str:
    """The reason why this module may not do what its type says, or ""."""
    own, everywhere = module._forward_hooks, nn.modules.module._global_forward_hooks
    before = module._forward_pre_hooks, nn.modules.module._global_forward_pre_hooks
    if own or everywhere or any(before):
        return "a hook may change what it computes"
    if getattr(module, "_compiled_call_impl", None) is not None:
        return "compiled: another program computes it"
    if getattr(module, "watch", None) is not None:
        return "watched: what watches it may change what it computes"
    if any(callable(getattr(type(module), name, None)) for name in vars(module)):
        return "one of its methods is replaced"
    held: list[dict[str, Any]] = [module._parameters, module._buffers, vars(module)]
    tensors = [x for kept in held for x in kept.values() if isinstance(x, Tensor)]
    if any(type(x) not in (Tensor, nn.Parameter) for x in tensors):
        return "one of its tensors is of a type of its own"
    return ""


def derive(module: nn.Module) -> Derivation:
    """The proof tree of what is known of x ↦ module(x), x one sequence: rows (n, d),
    or tokens (n,) if the module begins with an embedding; any other layer would take
    them for one row. A module whose type has no rule becomes a leaf marked unproved.

    The type must match exactly, for a subclass may compute something else. Nothing
    is proved of a module that has, itself or in any module inside, a forward hook, a
    replaced method, a compiled call or a tensor of a type of its own. Dropout is read
    in the module's present mode. If torch wants more than x: attention is called with
    (x, x, x) and no mask; a decoder has some fixed memory; `Causal` adds the mask.
    TypeError for anything but a torch module.

    A rule of your own says of what parts a module is made, and how they are combined:

    >>> from tlm_book.derivation import compose, residual
    >>> class Block(nn.Sequential):
    ...     def forward(self, x): return x + super().forward(x)
    >>> @register_rule(Block)
    ... def of_block(module):
    ...     return residual("Block", compose("inside", *map(derive, module)))
    >>> derive(Block(nn.Linear(4, 4), nn.ReLU())).kind
    <Kind.ROWWISE: 'rowwise'>

    The claim of a rule from outside this package is tried on random inputs, and the
    tree gives the outcome: `[rule by its author, agrees on random inputs]`, with the
    author's derivation below; unproved `[…, refuted …]`; or a leaf `[…, not checked]`,
    if no input was found on which the module runs.
    """
    proof = _derive(module)
    asked_by = _PARTS.get()
    if asked_by is not None:
        asked_by.append(proof)
    return proof


def _derive(module: nn.Module) -> Derivation:
    came = type(module).__name__
    is_module = isinstance(module, nn.Module)
    expects(is_module, "module", came, "a torch.nn.Module", TypeError)
    if why := _why_touched(module):
        return primitive(came, Kind.UNPROVED, why)
    if type(module) not in _RULES:
        return primitive(came, Kind.UNPROVED, "no rule for this type; help(derive) shows how to write one")
    rule, parts = _RULES[type(module)], list[Derivation]()
    token = _PARTS.set(parts)
    try:
        proof = rule(module)
    finally:
        _PARTS.reset(token)
    expects_derivation(f"what the rule for {came} returns", proof)
    if proof.kind is not Kind.UNPROVED:
        for part in module.modules():  # including parts at which the rule did not look
            if why := _why_touched(part):
                why = f"{type(part).__name__} inside: {why}"
                return Derivation(proof.subject, Kind.UNPROVED, why, proof.premises)
        if not of_the_book(rule):
            return _as_tried(module, proof, parts)
    return proof


def _as_tried(
    module: nn.Module, proof: Derivation, parts: list[Derivation]
) -> Derivation:
    """The derivation by a rule from outside the package, after its trial."""
    verdict, name = tried(module, proof.kind), type(module).__name__
    if verdict == AGREES:
        return Derivation(name, proof.kind, AGREES, (_declared(proof, parts),))
    return primitive(name, Kind.UNPROVED if verdict == REFUTED else proof.kind, verdict)


def _declared(proof: Derivation, parts: list[Derivation]) -> Derivation:
    """The same tree, in which the rule's own leaves are marked, but not the parts that
    `derive` has derived for it."""
    if any(proof is part for part in parts):
        return proof
    if not proof.premises:
        return replace(proof, declared=True)
    premises = tuple(_declared(premise, parts) for premise in proof.premises)
    return replace(proof, premises=premises)

"""Graders for the exercises of the chapter derivations."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from tlm_book.derivation import MEANS, Derivation, Kind, derive, primitive, weakest
from tlm_book.exercises.grading import call, function, holds, value
from tlm_book.spec.operators import is_rowwise


def gates(gate: Any) -> Iterator[tuple[str, object]]:
    parts = [primitive(kind.value, kind, "declared") for kind in MEANS]
    for one, other in itertools.product(parts, repeat=2):
        step = call(gate, "S ⊙ T", one, other)
        yield "The result is no Derivation.", hasattr(step, "kind") and hasattr(step, "premises")
        claimed, known = MEANS[step.kind], MEANS[weakest((one, other))]
        yield f"It claims too much for premises that are {one.kind.value} and {other.kind.value}.", claimed <= known
        yield f"It claims too little for premises that are {one.kind.value} and {other.kind.value}.", claimed >= known
        yield "The premises are lost: the proof tree ends here.", step.premises == (one, other)
        yield "The subject is lost.", step.subject == "S ⊙ T"


def careless_gate(chosen: Callable[[tuple[Any, ...]], Kind], keeps: bool = True) -> Callable[..., Any]:
    return lambda subject, *premises: Derivation(subject, chosen(premises), "product", premises if keeps else ())


def shared(first: str, second: str) -> str:
    return weakest((primitive("S", Kind(first), ""), primitive("T", Kind(second), ""))).value


ORDER = [kind.value for kind in MEANS]


def true_and_unproved(model: Any) -> Iterator[tuple[str, object]]:
    yield "The answer is not a torch module.", isinstance(model, nn.Module)
    proof = derive(model)
    yield f"Its derivation proves something: {proof.kind.value}.", proof.kind is Kind.UNPROVED
    parts = list(model.modules())
    yield "It has a layer that is not torch's own.", all(type(part).__module__.startswith("torch.") for part in parts)
    yield "It has a hook.", not any(part._forward_hooks or part._forward_pre_hooks for part in parts)
    dtype = next((weights.dtype for weights in model.parameters()), torch.float64)

    def T(X: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return np.asarray(call(model, torch.from_numpy(X).to(dtype)).double())

    for seed, n in itertools.product(range(3), (1, 2, 5)):
        X = np.random.default_rng(seed).normal(size=(n, 4))
        yield f"It is not rowwise: for {n} rows some row of the result depends on other rows.", is_rowwise(T, X, 1e-5)


EXERCISES = [
    holds(
        "a function `gate(subject, *premises)` that returns the `Derivation` of the product entry by entry",
        gates,
        [careless_gate(lambda premises: Kind.AUTOREGRESSIVE), careless_gate(lambda premises: premises[0].kind),
         careless_gate(lambda premises: Kind.UNPROVED), lambda subject, *premises: subject,
         careless_gate(lambda premises: weakest(premises), keeps=False),
         careless_gate(lambda premises: Kind.AUTOREGRESSIVE if any(p.kind is Kind.EQUIVARIANT for p in premises) else weakest(premises)),
         careless_gate(lambda premises: Kind.UNPROVED if any(p.kind is Kind.INDEXED_ROWWISE for p in premises) else weakest(premises))],
    ),
    function(
        'a function `common(first, second)` that takes two of "rowwise", "indexed-rowwise", "autoregressive",'
        ' "permutation-equivariant", "unproved" and returns the kind of their composition',
        list(itertools.product(ORDER, repeat=2)),
        shared,
        {
            "The kinds do not form a chain: an equivariant operator need not be autoregressive, nor the other way round.":
                lambda first, second: max(first, second, key=ORDER.index),
            "Both parts count: a composition has what its two parts have in common, and no more.":
                lambda first, second: min(first, second, key=ORDER.index),
            "Equal kinds are kept, but something may remain when they differ: rowwise is the strongest of all.":
                lambda first, second: first if first == second else "unproved",
        },
    ),
    holds(
        "a torch module that is rowwise on inputs of shape (n, 4), and for which `derive` gives the kind unproved",
        true_and_unproved,
        [nn.Linear(4, 4), nn.Softmax(dim=0), nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), nn.Dropout(0.5).train()],
    ),
    value(
        'the set of these results, from among "S∘C", "C+E", "[S, P]", "E∘S", "X + C(P(X))", "A·C", "A·E"',
        lambda: {"S∘C", "[S, P]", "X + C(P(X))", "A·C"},
        {
            "What is rowwise or indexed-rowwise is autoregressive, too.": {"S∘C", "X + C(P(X))", "A·C"},
            "A sum has what both parts have in common.": {"S∘C", "C+E", "[S, P]", "X + C(P(X))", "A·C"},
            "A causal pattern asks something of the values, too.": {"S∘C", "[S, P]", "X + C(P(X))", "A·C", "A·E"},
        },
    ),
    value(
        'the set of these changes, from among "no mask", "no table of positions", "no residual", "values read ahead", "a window of two rows"',
        lambda: {"no table of positions", "no residual", "a window of two rows"},
        {
            "A score may be any function of two rows and their places, −∞ included.": {"no table of positions", "no residual"},
            "Unmasked attention and positions have nothing in common.": {"no mask", "no table of positions", "no residual", "a window of two rows"},
            "A part that is left out of a composition no longer asks anything.": {"no residual", "a window of two rows"},
        },
    ),
]

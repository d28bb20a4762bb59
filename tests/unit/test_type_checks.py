"""The runtime type checker is on in tests and reaches every signature of the package; without its variable it is not even loaded."""

import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jaxtyping
import numpy as np
import pytest
import torch
from jaxtyping import Float, TypeCheckError
from jaxtyping._decorator import jaxtyped
from torch import nn

import tlm_book
from tlm_book import derivation, operators, signatures
from tlm_book.positional_encoding import Rotary
from tlm_book.signatures import described
from tlm_book.spec import loss as s_loss
from tlm_book.spec import operators as s_operators
from tlm_book.transformer_lm import Config, TransformerLM

WRONG = {
    "causal_mask: one axis": lambda: operators.causal_mask(torch.ones(3)),
    "causal_mask: integers": lambda: operators.causal_mask(torch.ones(3, 3, dtype=torch.long)),
    "TransformerLM: tokens are floats": lambda: TransformerLM(Config(4, d_model=4, d_ff=4, n_layers=1, n_heads=1, max_len=4))(torch.ones(2)),
    "Config: a size that is no int": lambda: Config(4.0),
    "derive: no module": lambda: derivation.derive("Linear"),
}


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG)
def test_wrong_types_are_refused(call):
    with pytest.raises(TypeCheckError):
        call()


SHAPED = {
    "B: got float, want an array": lambda: s_operators.agree(np.ones(2), 1.0),
    "loss: got array([1., 1.]), want a number": lambda: s_loss.bits_per_byte(np.ones(2), 3, 3),
}


@pytest.mark.parametrize("message", SHAPED)
def test_the_specification_refuses_them_before_the_checker_does(message):
    with pytest.raises(TypeError, match=f"^{re.escape(message)}"):
        SHAPED[message]()


# The command line; graders, which hold typical wrong answers; the checker itself
INSIDE = re.compile(r"__main__$|\.exercises\.(?!grading$)|\.signatures$")
MODULES = sorted(module.name for module in pkgutil.walk_packages(tlm_book.__path__, "tlm_book.") if not INSIDE.search(module.name))


def exported() -> list[tuple[str, Callable]]:
    """(label, callable) for every public function, method, class method and property getter that the package defines."""
    found = []
    for name in MODULES:
        for key, thing in vars(importlib.import_module(name)).items():
            if key.startswith("_") or getattr(thing, "__module__", None) != name:
                continue  # private, imported, a type alias or a constant
            if inspect.isfunction(thing):
                found.append((f"{name}.{key}", thing))
            elif inspect.isclass(thing):
                for attribute, value in vars(thing).items():
                    value = value.fget if isinstance(value, property) else value.__func__ if isinstance(value, classmethod) else value
                    if inspect.isfunction(value) and value.__module__ == name and not generated(attribute, value):
                        found.append((f"{name}.{key}.{attribute}", value))
    return found


def generated(attribute: str, function: Callable) -> bool:
    """Methods that dataclasses write, less __init__, take no arguments of the user's."""
    source = inspect.unwrap(function).__code__.co_filename
    return not source.endswith(".py") and attribute != "__init__"


def is_checked(function: Callable) -> bool:
    """One of the wrappers around the function is jaxtyping's, or beartype's where no array has axes to compare; or its signature takes and gives anything."""
    if set(inspect.get_annotations(inspect.unwrap(function)).values()) <= {Any, object}:
        return True
    function = getattr(function, "full", lambda: function)()  # what the first call runs
    while function is not None:
        file = function.__code__.co_filename.replace(os.sep, "/")
        if file.endswith("jaxtyping/_decorator.py") or file.startswith("<@beartype"):
            return True
        function = getattr(function, "__wrapped__", None)
    return False


def by_module(pairs: list[tuple[str, Callable]]) -> dict[str, list[tuple[str, Callable]]]:
    """One case for the functions of a module: a case for each function would take longer than the function."""
    return {name: found for name in MODULES if (found := [pair for pair in pairs if pair[1].__module__ == name])}


EXPORTED = exported()


@pytest.mark.parametrize("functions", by_module(EXPORTED).values(), ids=by_module(EXPORTED))
def test_every_signature_is_checked(functions):
    assert [label for label, function in functions if not is_checked(function)] == []  # these are not wrapped by the checker


class Stranger:
    """An object that no signature asks for."""


def strangers(function: Callable) -> tuple[list, dict] | None:
    """Arguments of no wanted type for everything that must be given; None when the signature takes anything."""
    positional, named, typed = [], {}, False
    for p in inspect.signature(function).parameters.values():
        if p.annotation is p.empty and p.name in ("self", "cls"):
            positional.append(None)
        elif p.default is p.empty and p.kind is not p.VAR_KEYWORD:
            # a name in quotes is a class still being made; the checker passes over it
            typed |= p.annotation not in (object, Any, p.empty) and not isinstance(p.annotation, str)
            if p.kind is p.KEYWORD_ONLY:
                named[p.name] = Stranger()
            else:
                positional.append(Stranger())
    return (positional, named) if typed else None


TYPED = [(label, function) for label, function in EXPORTED if strangers(function)]


def refuses(function: Callable) -> bool:
    positional, named = strangers(function)
    try:
        function(*positional, **named)
    except TypeError as error:
        return re.search(r"Type-check error|violates type hint|^\w+: got .*Stranger.*, want ", str(error)) is not None
    return False


@pytest.mark.parametrize("functions", by_module(TYPED).values(), ids=by_module(TYPED))
def test_every_signature_refuses_a_stranger(functions):
    """By the checker, or before it by `shaped`, whose message names the argument."""
    assert [label for label, function in functions if not refuses(function)] == []  # these take one


def test_the_list_is_not_empty():
    labels = [label for label, _ in EXPORTED]
    assert sum(map(len, by_module(EXPORTED).values())) == len(EXPORTED) and sum(map(len, by_module(TYPED).values())) == len(TYPED)
    assert len(labels) > 100 and len(TYPED) > 0.7 * len(labels)
    assert "tlm_book.transformer_lm.model.TransformerLM.forward" in labels and "tlm_book.spec.operators.softmax" in labels


@pytest.mark.parametrize("functions", by_module(EXPORTED).values(), ids=by_module(EXPORTED))
def test_arrays_have_shapes_in_signatures(functions):
    for label, function in functions:
        for name, annotation in inspect.get_annotations(inspect.unwrap(function)).items():
            assert annotation not in (torch.Tensor, np.ndarray), f"{label}: {name} is an array without a shape; write Float[…, \"n d\"]"


def test_what_was_in_order_once_is_known_and_nothing_else_is():
    """A verdict is kept for the types and shapes that it is about: one axis, one type, one item of a list that differs is looked at anew."""
    square, tall = torch.ones(3, 3), torch.ones(3, 2)
    for _ in range(3):
        assert operators.causal_mask(square).shape == (3, 3)
        for wrong in (torch.ones(3), square.long(), [[1.0]], np.ones((3, 3)), "square", None):
            with pytest.raises(TypeError):
                operators.causal_mask(wrong)
    assert described((square, tall)) == described((torch.zeros(3, 3), tall + 1))
    assert len({described(x) for x in (square, tall, square.double(), square.numpy(), nn.Parameter(square), 1, 1.0, True, "1", None, int, Config)}) == 12
    assert described([square, tall]) != described([tall, square]) != described((tall, square)) and described({"a": square}) != described({"a": tall})
    assert described([1] * 33) is None and described({1}) is None and described(iter([1])) is not None


def test_results_are_looked_at_too():
    """Of a call whose arguments are known: a result of another kind is checked, and refused if it is wrong."""
    results = [torch.ones(2), torch.ones(2), torch.ones(3), torch.ones(2).long()]

    def source(x: Float[torch.Tensor, "2"]) -> Float[torch.Tensor, "2"]:
        return results.pop(0)

    def by_jaxtyping(function: Callable) -> Callable:
        looked.append(function)
        return jaxtyped(function, typechecker=signatures.checked)

    looked: list[Callable] = []
    known = signatures._once(source, by_jaxtyping)
    assert torch.equal(known(torch.ones(2)), known(torch.zeros(2))) and looked == [source]
    for _ in range(2):
        with pytest.raises(TypeCheckError, match="return value"):
            known(torch.ones(2))


def test_a_result_that_cannot_be_known_is_looked_at_each_time():
    results = [[1], [1] * 33, ["a"] * 33]

    def source(n: int) -> list[int]:
        return results.pop(0)

    known = signatures._once(source, lambda function: jaxtyped(function, typechecker=signatures.checked))
    assert known(0) == [1] and len(known(0)) == 33
    with pytest.raises(TypeCheckError, match="return"):
        known(0)


def test_functions_made_in_one_place_have_the_check_of_their_own_types():
    def made(kind: type) -> Callable:
        def takes(x: kind) -> None: ...

        return signatures.checked(takes)

    made(int)(3)
    made(str)("3")
    with pytest.raises(TypeCheckError):
        made(str)(3)


def test_switched_off_it_stays_out_of_a_graph():
    rotary, before = Rotary(4, 9), jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        found = torch.compile(lambda at: rotary.factors(1, at), fullgraph=True, backend="eager")(torch.tensor([3]))
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)
    assert all(torch.equal(*pair) for pair in zip(found, rotary.factors(1, 3), strict=True))


@pytest.mark.parametrize("value", [None, "0", ""])
def test_without_the_variable_nothing_is_checked(value):
    environment = {name: v for name, v in os.environ.items() if name != "TLM_BOOK_TYPECHECK"}
    if value is not None:
        environment["TLM_BOOK_TYPECHECK"] = value
    code = (
        "import sys, numpy as np\n"
        "from tlm_book.spec.operators import agree\n"
        "assert agree(1.0 * np.ones(2), np.ones(2), tol=np.float32(1e-12))\n"
        "assert 'beartype' not in sys.modules and not hasattr(agree.__wrapped__, '__wrapped__')  # shaped alone"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)

"""The torch modules inside a model or a callable, and what can be learned from them."""

import functools
import inspect
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from tlm_book.auditing.tensors import attempt


def parts_of(thing: Any) -> Mapping[str, Any]:
    """The parts that may hold modules: children, lists, dictionaries, an object's fields, what a function closes over, a method's object."""
    if isinstance(thing, nn.Module):
        own = {k: v for k, v in vars(thing).items() if not k.startswith("_")}
        plain = {k: v for k, v in own.items() if isinstance(v, list | tuple | dict)}
        return thing._modules | plain | {k: own[k] for k in ("forward",) if k in own}
    if inspect.ismethod(thing):
        return {"": thing.__self__}
    if inspect.isfunction(thing):
        cells = zip(thing.__code__.co_freevars, thing.__closure__ or ())
        parts = {name: attempt(getattr, cell, "cell_contents") for name, cell in cells}
        names = [k for k in thing.__code__.co_names if k in thing.__globals__]
        used = {k: thing.__globals__[k] for k in names}
        parts |= {k: v for k, v in used.items() if isinstance(v, nn.Module)}
        return parts | {f"default {k}": v for k, v in enumerate(thing.__defaults__ or ())}
    if isinstance(thing, list | tuple | dict):
        pairs = thing.items() if isinstance(thing, dict) else enumerate(thing)
        return {str(k): v for k, v in pairs if not isinstance(k, Tensor)} if len(thing) < 1000 else {}  # an optimizer's state has tensors for keys
    if inspect.isclass(thing) or inspect.ismodule(thing):
        return {}
    bound = ("func", "args", "keywords") if isinstance(thing, functools.partial) else ()
    return getattr(thing, "__dict__", {}) | {k: getattr(thing, k) for k in bound}


def modules_in(thing: Any, path: str = "", seen: set[int] | None = None) -> dict[str, nn.Module]:
    """The torch modules inside a model or a callable, by path."""
    seen = set() if seen is None else seen
    if id(thing) in seen or path.count(".") > 24:
        return {}
    seen.add(id(thing))
    found = {path: thing} if isinstance(thing, nn.Module) else {}
    for name, part in parts_of(thing).items():
        name = "" if name == "func" else name
        found |= modules_in(part, f"{path}.{name}".strip("."), seen)
    return found


def roots_of(modules: Mapping[str, nn.Module]) -> list[nn.Module]:
    """The modules that are not contained in another one of them."""
    held = [child for m in modules.values() for child in m.modules() if child is not m]
    inner = set(map(id, held))
    return [m for m in modules.values() if id(m) not in inner]


def takes_argument(model: Any, name: str) -> bool:
    """Whether the model takes an argument of this name."""
    run = model.forward if isinstance(model, nn.Module) else model
    signature = attempt(lambda: inspect.signature(run))
    return signature is not None and name in signature.parameters


def is_compiled(model: Any, modules: Mapping[str, nn.Module]) -> bool:
    """Whether torch's compiler runs some of the model."""
    things = [model, *modules.values()]
    marks = [getattr(m, "_compiled_call_impl", None) for m in things]
    marks += [getattr(f, "_torchdynamo_orig_callable", None) for m in things for f in (m, getattr(m, "forward", None))]
    return any(mark is not None for mark in marks)


def name_of(model: Any) -> str:
    own = None if isinstance(model, nn.Module) else getattr(model, "__name__", None)
    return own or type(model).__name__

"""All that a run could change, and how to restore it: an audit leaves a model as it was."""

import contextlib
import operator
import random
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor, nn

from tlm_book.auditing.tensors import is_continuous


def held_by(modules: Sequence[nn.Module]) -> list[Any]:
    """All objects that the modules' attributes hold, each once: the attributes themselves, and the contents of dictionaries, lists,
    tuples, sets and deques, at any depth.
    """
    found: dict[int, Any] = {}
    waiting: list[Any] = [vars(m) for m in modules]
    while waiting:
        thing = waiting.pop()
        if id(thing) not in found:
            found[id(thing)] = thing
            waiting += thing.values() if isinstance(thing, Mapping) else thing if isinstance(thing, list | tuple | set | deque) else ()
    return list(found.values())


def parts_of(container: Any) -> list[Any]:
    """The entries of a list, set or deque, or the keys of a dictionary followed by its values."""
    return [*container, *(container.values() if isinstance(container, dict) else ())]


def refill(container: Any, parts: list[Any]) -> None:
    """Make these the parts of a list, set, deque or dictionary: the inverse of `parts_of`."""
    container.clear()
    if isinstance(container, dict):
        half = len(parts) // 2
        for key, value in zip(parts[:half], parts[half:]):
            container[key] = value
    elif isinstance(container, set):
        container.update(parts)
    else:
        container.extend(parts)


class State:
    """All that a run could change in these modules and in the process, and how to restore it."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        held = held_by(modules)
        self.containers = [(v, parts_of(v)) for v in held if isinstance(v, dict | list | set | deque)]
        self.generators = [(g, g.get_state()) for g in held if isinstance(g, torch.Generator)]
        self.tensors = {id(t): (t, t.data) for t in held if isinstance(t, Tensor)}
        leaves = [t for t, _ in self.tensors.values() if t.is_leaf]
        self.leaves = [(t, t.requires_grad, t.grad) for t in leaves]
        self.python, self.numpy = random.getstate(), np.random.get_state()
        cuda = torch.cuda.is_initialized()
        self.torch = torch.get_rng_state()
        self.cuda = torch.cuda.get_rng_state_all() if cuda else []
        self.dtype = torch.get_default_dtype()

    def put_back(self) -> None:
        for container, before in self.containers:
            now = parts_of(container)
            if len(now) != len(before) or not all(map(operator.is_, now, before)):
                refill(container, before)
        for t, data in self.tensors.values():
            t.data = data
        for t, wants_grad, grad in self.leaves:
            t.requires_grad_(wants_grad)
            t.grad = grad
        for generator, state in self.generators:
            generator.set_state(state)
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        torch.set_rng_state(self.torch)
        if self.cuda:
            torch.cuda.set_rng_state_all(self.cuda)
        torch.set_default_dtype(self.dtype)


def type_in(precision: torch.dtype | None, t: Shaped[Tensor, "..."]) -> torch.dtype:
    """The type for this tensor in that precision: the precision itself for real numbers, its complex type for complex ones, and the
    tensor's own type for anything else, or if `precision` is None.
    """
    if precision is None or not is_continuous(t):
        return t.dtype
    return precision.to_complex() if t.is_complex() else precision


@contextlib.contextmanager
def on_copies(modules: Sequence[nn.Module], dtype: torch.dtype | None) -> Iterator[dict[int, Tensor]]:
    """A context in which weights and buffers are copies of this type; None keeps the types. It gives the originals, {id: tensor}.

    On leaving, even by an exception, attributes, hooks, modes, weights, buffers and generators are as before: a model that
    writes into its weights has changed only a copy.
    """
    state = State(modules)
    try:
        for t, data in state.tensors.values():
            t.data = data.to(type_in(dtype, data), copy=True)
            if t.is_leaf:
                t.requires_grad_(False)
        if dtype:
            torch.set_default_dtype(dtype)
        yield {key: data for key, (_, data) in state.tensors.items()}
    finally:
        state.put_back()


def seed_everything(seed: int, generators: Sequence[tuple[torch.Generator, Tensor]]) -> None:
    """Set every source of randomness to a known state; with seed 0, the model's own generators are set to where they were at first."""
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)
    for generator, state in generators:
        if seed == 0:
            generator.set_state(state)
        else:
            generator.manual_seed(seed)


def cast_floats(thing: Any, dtype: torch.dtype, seen: dict[int, Tensor] | None = None) -> Any:
    """The same object with all tensors in it, at any depth, converted to this type; a tensor that occurs twice stays one object."""
    seen = {} if seen is None else seen
    if isinstance(thing, Tensor):
        return seen.setdefault(id(thing), thing.to(type_in(dtype, thing)))
    if isinstance(thing, Mapping):
        return {k: cast_floats(v, dtype, seen) for k, v in thing.items()}
    if type(thing) in (list, tuple):
        return type(thing)(cast_floats(part, dtype, seen) for part in thing)
    return thing


BACK_ENDS = {
    "math": "MATH",
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
}


@contextlib.contextmanager
def back_end(modules: Mapping[str, nn.Module], name: str | None) -> Iterator[None]:
    """A context that uses one of torch's kernels, by name, or an attention implementation of a Hugging Face model."""
    if name in BACK_ENDS:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        with sdpa_kernel(getattr(SDPBackend, BACK_ENDS[name])):
            yield
        return
    configs = {id(m.config): m.config for m in modules.values() if hasattr(m, "config")}
    before = [(config, dict(vars(config))) for config in configs.values()]
    try:
        if name is not None:
            can: list[Any] = [m for m in modules.values() if hasattr(m, "set_attn_implementation")]
            can[0].set_attn_implementation(name)
        yield
    finally:
        for config, saved in before:
            vars(config).clear()
            vars(config).update(saved)

"""All that a run could change, and how to put it back: an audit leaves a model as it was."""

import contextlib
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tlm_book.auditing.tensors import tensors_in


class State:
    """All that a run could change in these modules and in the process, and how to put it back."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        own = [vars(m) for m in modules]
        inside = [value for attributes in own for value in attributes.values()]
        inside_too = [v for v in inside if isinstance(v, dict | list | set)]
        self.containers = [(v, v.copy()) for v in own + inside_too]
        held = [v for v in inside if isinstance(v, torch.Generator)]
        self.generators = [(g, g.get_state()) for g in held]
        self.tensors = {id(t): (t, t.data) for t in tensors_in(inside)}
        leaves = [t for t, _ in self.tensors.values() if t.is_leaf]
        self.leaves = [(t, t.requires_grad, t.grad) for t in leaves]
        self.python, self.numpy = random.getstate(), np.random.get_state()
        cuda = torch.cuda.is_initialized()
        self.torch = torch.get_rng_state()
        self.cuda = torch.cuda.get_rng_state_all() if cuda else []
        self.dtype = torch.get_default_dtype()

    def put_back(self) -> None:
        for value, copy in self.containers:
            value.clear()
            if isinstance(value, list):
                value.extend(copy)
            else:
                value.update(copy)
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


@contextlib.contextmanager
def on_copies(modules: Sequence[nn.Module], dtype: torch.dtype | None) -> Iterator[dict[int, Tensor]]:
    """Inside, weights and buffers are copies, floating-point ones in this type; None keeps the types. Gives what they are copies of, by id.

    On leaving, also by an exception, attributes, hooks, modes, weights, buffers and generators are as before: a model that
    writes into its weights has spoiled a copy.
    """
    state = State(modules)
    try:
        for t, data in state.tensors.values():
            to = dtype if dtype and data.is_floating_point() else data.dtype
            t.data = data.to(to, copy=True)
            if t.is_leaf:
                t.requires_grad_(False)
        if dtype:
            torch.set_default_dtype(dtype)
        yield {key: data for key, (_, data) in state.tensors.items()}
    finally:
        state.put_back()


def seed_everything(seed: int, generators: Sequence[tuple[torch.Generator, Tensor]]) -> None:
    """Every source of randomness at a known place; with seed 0 the model's own generators where they were at first."""
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
    """Floating-point tensors in this type, at any depth; the same tensor stays one object."""
    seen = {} if seen is None else seen
    if isinstance(thing, Tensor):
        new = thing.to(dtype) if thing.is_floating_point() else thing
        return seen.setdefault(id(thing), new)
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
    """One of torch's kernels by name, or an attention implementation of a Hugging Face model."""
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

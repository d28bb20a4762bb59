"""Rules by other authors: what such a rule claims of a module is tested on random inputs when a derivation is asked for."""

import copy
import importlib
import inspect
import linecache
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor, nn

from tlm_book.derivation.kinds import Kind
from tlm_book.spec.operators import (
    Operator,
    is_autoregressive,
    is_equivariant,
    is_indexed_rowwise,
    is_rowwise,
)

__all__ = ["AGREES", "NOT_CHECKED", "REFUTED", "of_the_book", "tried"]

AGREES = "rule by its author, agrees on random inputs"
NOT_CHECKED = "rule by its author, not checked"
REFUTED = "rule by its author, refuted on random inputs"
N = 5  # rows


def of_the_book(rule: Callable[..., Any]) -> bool:
    """Whether a rule comes with the package: from one of its modules or, with the same source text, from a chapter's cell that is
    exported into one.
    """
    if str(getattr(rule, "__module__", "")).startswith("tlm_book."):
        return True
    file = getattr(getattr(rule, "__code__", None), "co_filename", "")
    exported = re.fullmatch(r"#\| export (\w+(?:\.\w+)*)\s*", linecache.getline(file, 1))
    if exported is None:  # other authors' notebooks have cells that begin so, too
        return False
    try:
        original = getattr(importlib.import_module(f"tlm_book.{exported[1]}"), rule.__name__)
        return inspect.getsource(original).strip() == inspect.getsource(rule).strip()
    except (ImportError, AttributeError, OSError, TypeError):
        return False


def tried(module: nn.Module, kind: Kind) -> str:
    """The outcome of the test: AGREES, REFUTED or, if no input is found on which a copy of the module runs, NOT_CHECKED."""
    if kind not in _EXPERIMENTS:
        return NOT_CHECKED
    for change in (nn.Module.double, nn.Module.requires_grad_):  # in float64 if that works, else as it is
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            try:
                copied = change(copy.deepcopy(module))
                for x, z in _inputs(copied):
                    T = _operator(copied, x)
                    if _fits(T, x.numpy()):
                        tol = 1e-7 if x.dtype == torch.float64 or not x.is_floating_point() else 1e-3
                        return AGREES if _EXPERIMENTS[kind](T, x.numpy(), z.numpy(), tol) else REFUTED
            except Exception:  # it is somebody else's code: whatever it raises, the rule was not checked
                continue
    return NOT_CHECKED


def _autoregressive(T: Operator, X: Shaped[np.ndarray, "n ..."], Z: Shaped[np.ndarray, "n ..."], tol: float) -> bool:
    """Whether both halves hold: the first rows change neither when other rows follow nor when none do."""
    other = np.concatenate([X[: N // 2], Z[N // 2 :]])
    return is_autoregressive(T, X, tol) and is_autoregressive(T, other, tol)


_EXPERIMENTS: dict[Kind, Callable[..., bool]] = {
    Kind.ROWWISE: lambda T, X, Z, tol: is_rowwise(T, X, tol),
    Kind.INDEXED_ROWWISE: is_indexed_rowwise,
    Kind.AUTOREGRESSIVE: _autoregressive,
    Kind.EQUIVARIANT: lambda T, X, Z, tol: is_equivariant(T, X, tol),
}


def _operator(module: nn.Module, like: Tensor) -> Operator:
    place = next((weight.device for weight in module.parameters()), like.device)

    def T(X: Shaped[np.ndarray, "n ..."]) -> Shaped[np.ndarray, "n k"]:
        result: Tensor = module(torch.from_numpy(np.array(X)).to(place))
        return (result.double() if result.is_floating_point() else result).cpu().numpy()

    return T


def _fits(T: Operator, X: Shaped[np.ndarray, "n ..."]) -> bool:
    """Whether the module runs on this input and returns a row for each row."""
    try:
        return len(T(X)) == N
    except Exception:  # somebody else's code refuses this kind of input
        return False


def _inputs(module: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    """Pairs of random inputs, N tokens or N rows, of the sizes that are found in the module."""
    chance = torch.Generator().manual_seed(0)
    dtype = next((weight.dtype for weight in module.parameters() if weight.is_floating_point()), torch.float64)
    sizes: list[int] = []
    for part in module.modules():
        if isinstance(part, nn.Embedding):
            many = part.num_embeddings
            x, z = torch.randint(many, (2, N), generator=chance, device=chance.device)
            yield x, z
        named = (vars(part).get(name) for name in ("in_features", "embed_dim", "d_model", "dim", "hidden_size", "width"))
        sizes += [size for size in named if type(size) is int]
    sizes += [size for weight in module.parameters() for size in weight.shape]
    for size in dict.fromkeys([*(size for size in sizes if size > 1), 4, 1]):  # `dim` may be an axis, −1 or 1
        x, z = torch.randn(2, N, size, generator=chance, dtype=torch.float64, device=chance.device).to(dtype)
        yield x, z

"""An auditor that fits on a page: the definition as an experiment, without the precautions of `audit`. Generated from book/auditing.ipynb: edit the notebook, then `make export`."""

import copy
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

__all__ = [
    "failing_cuts",
    "derivative_sizes",
    "noise_of",
    "first_culprit",
    "SmallReport",
    "small_audit",
]


# --- The definition as an experiment


def apart(A: Float[Tensor, "..."], B: Float[Tensor, "..."]) -> float:
    """The largest difference between two entries at the same place."""
    return float((A - B).detach().abs().max())


def drawn(like: Float[Tensor, "..."], seed: int) -> Float[Tensor, "..."]:
    """Normal numbers, as many as in `like`, of its type and on its device."""
    chance = torch.Generator().manual_seed(seed)
    return torch.randn(like.shape, generator=chance, device=chance.device).to(like)


def other_suffix(
    X: Float[Tensor, "n d"], c: int, seed: int = 1000
) -> Float[Tensor, "n d"]:
    """X with the rows after c replaced by random rows."""
    return torch.cat([X[: c + 1], drawn(X, seed)[c + 1 :]])


def failing_cuts(
    T: Callable[..., Tensor], X: Float[Tensor, "n d"], noise: float = 0.0
) -> tuple[set[int], set[int]]:
    """The cuts c at which rows 0, …, c of T(X) change by more than `noise`, first when
    the suffix is replaced, then when it is removed. (T-audit-cuts)
    """
    base, replaced, removed = T(X), set(), set()
    for c in range(len(X) - 1):
        kept = slice(c + 1)
        if apart(T(other_suffix(X, c))[kept], base[kept]) > noise:
            replaced.add(c)
        if apart(T(X[kept]), base[kept]) > noise:
            removed.add(c)
    return replaced, removed


# --- Derivatives see what rounding hides


def derivative_sizes(
    T: Callable[..., Tensor], X: Float[Tensor, "n d"], seed: int = 0
) -> Float[Tensor, "n n"]:
    """The largest entry of |gᵀ J_ij| for all i and j, from n copies of X and one
    backward pass. (T-audit-derivative)
    """
    n = len(X)
    copies = X.detach().expand(n, *X.shape).clone().requires_grad_(True)
    rows = T(copies)[range(n), range(n)]  # row k of copy k
    g = drawn(rows, seed)
    (derivative,) = torch.autograd.grad((rows * g).sum(), copies)
    return derivative.abs().amax(-1)


# --- Noise is not a leak


def noise_of(T: Callable[..., Tensor], X: Float[Tensor, "n d"]) -> float:
    """The bound that a change must exceed: 16 times the effect of one unit in the last
    place of each input, and 64 units of the largest output. (T-audit-noise)
    """
    base, eps = T(X).detach(), torch.finfo(X.dtype).eps
    shaken = T(X * (1 + eps * drawn(X, 1).sign()))
    return max(16 * apart(shaken, base), 64 * eps * float(base.abs().max()))


# --- Who did it


def first_culprit(
    model: nn.Module,
    X: Float[Tensor, "n d"],
    Y: Float[Tensor, "n d"],
    c: int,
    noise: float,
) -> str | None:
    """The path of the first call to return whose output differs for X and Y in
    the rows 0, …, c while its input does not. Each call takes one matrix with a
    row for each row of X, and returns one. None if there is no such call before
    the two runs diverge. (T-audit-culprit)
    """

    def trace(rows: Tensor) -> list[tuple[str, Tensor, Tensor]]:
        calls: list[tuple[str, Tensor, Tensor]] = []
        hooks = [
            module.register_forward_hook(
                lambda _, given, made, path=path: calls.append(
                    (path, given[0][: c + 1].clone(), made[: c + 1].clone())
                )
            )
            for path, module in model.named_modules()
        ]
        try:
            model(rows)
        finally:
            for hook in hooks:
                hook.remove()
        return calls

    for (path, *before), (other, *after) in zip(trace(X), trace(Y)):
        shapes = [(a.shape, b.shape) for a, b in zip(before, after)]
        if path != other or any(a != b for a, b in shapes):
            return None  # the two runs do not make the same calls
        given, made = (apart(a, b) > noise for a, b in zip(before, after))
        if made and not given:
            return path
    return None


# --- An auditor that fits on a page


class SmallReport(NamedTuple):
    """What `small_audit` found: the cuts at which a replaced suffix, and those at which
    a removed one, makes a difference; the pairs (i, j) with a derivative of row i by
    the later row j; and the path of the first module at fault.
    """

    replaced: set[int]
    removed: set[int]
    derivatives: list[tuple[int, int]]
    culprit: str | None

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not (self.replaced or self.removed or self.derivatives)


def small_audit(model: nn.Module, X: Float[Tensor, "n d"]) -> SmallReport:
    """Find out whether row i of model(X) depends on a later row, or on how many there
    are. `model` takes and returns (…, n, d) rows; it is judged in evaluation mode.
    """
    model, X = copy.deepcopy(model).double().eval(), X.double()
    noise = noise_of(model, X)
    replaced, removed = failing_cuts(model, X, noise)
    pairs = derivative_sizes(model, X).triu(1).nonzero().tolist()
    c, culprit = min(replaced, default=0), None
    if replaced:
        culprit = first_culprit(model, X, other_suffix(X, c), c, noise)
    return SmallReport(replaced, removed, [(i, j) for i, j in pairs], culprit)

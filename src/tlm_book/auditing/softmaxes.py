"""What the softmaxes inside a module are given: a mask of −∞, a weak one, or none."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tlm_book.auditing.onlooker import Onlooker
from tlm_book.auditing.tensors import attempt

CLOSED, WEAK, OPEN, TURNED, ALONG_ROWS = "closed", "weak", "open", "turned", "along the rows"
GONE = 700.0  # a score that far below the others has no weight in float64


class Softmaxes(Onlooker):
    """Notes the scores that each softmax is given, and along which axis it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[tuple[Tensor, int]] = []

    def see(self, func: Any, args: Any, kwargs: Any) -> Any:
        name = func.overloadpacket.__name__
        if name in ("_softmax", "_safe_softmax", "_log_softmax"):
            self.given.append((args[0].clone(), args[1] % args[0].dim()))
        elif name.startswith("_scaled_dot_product") and not name.endswith("backward"):
            named = {a.name: value for a, value in zip(func._schema.arguments, args)} | kwargs
            scores = attempt(scores_of, named)
            self.given += [] if scores is None else [(scores, scores.dim() - 1)]
        return func(*args, **kwargs)


def scores_of(named: dict[str, Any]) -> Float[Tensor, "*batch n n"]:
    """q kᵀ / √d with its mask, from the arguments of one of torch's kernels for attention."""
    q, k = named["query"], named["key"]
    scale = named.get("scale")
    scores = q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    mask = named.get("attn_mask", named.get("attn_bias"))
    if named.get("is_causal"):
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        return scores.masked_fill(hidden, -math.inf)
    if mask is None:
        return scores
    return scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask


def what_softmaxes_see(run: Callable[[], Any], n: int) -> str:
    """The worst that a softmax does while `run` runs on n rows; "" if there is no softmax over rows."""
    with Softmaxes() as seen:
        run()
    kinds = [kind_of(scores.double(), axis, n) for scores, axis in seen.given]
    return next((kind for kind in (ALONG_ROWS, TURNED, WEAK, OPEN, CLOSED) if kind in kinds), "")


def weak_or_open(kind: str, others: Iterable[str]) -> str:
    """The kind, but OPEN for a mask that looks weak only by chance: with other rows, the scores are of another kind."""
    return OPEN if kind == WEAK and any(other != WEAK for other in others) else kind


def kind_of(scores: Float[Tensor, "..."], axis: int, n: int) -> str:
    """The kind of one softmax, by its scores. A mask is weak if in every row all later scores lie below all others, and yet count;
    some row must have both later and earlier scores that count.
    """
    if scores.dim() < 2:
        return ""
    if axis == scores.dim() - 2 and scores.shape[axis] == n:
        return ALONG_ROWS
    if axis != scores.dim() - 1 or scores.shape[-2:] != (n, n):
        return ""
    later = torch.ones(n, n, dtype=torch.bool, device=scores.device).triu(1)
    scores = scores.clamp_min(-torch.finfo(torch.float64).max)
    gone = scores.masked_fill(later, -math.inf).amax(-1, keepdim=True) - GONE
    seen = scores.masked_fill(~later, -math.inf).amax(-1)[..., :-1]
    if bool((seen < gone[..., :-1, 0]).all()):
        return CLOSED
    best = scores.amax(-1, keepdim=True)
    if n > 2 and bool((scores < best - GONE)[..., later.mT].all()):
        return TURNED
    counts = scores >= gone
    least = scores.masked_fill(later | ~counts, math.inf).amin(-1)[..., :-1]
    on_both_sides = (counts & later).any(-1) & (counts & later.mT).any(-1)
    return WEAK if n >= 4 and bool((seen < least).all() and on_both_sides.any(-1).all()) else OPEN


def causes_by_softmax(kind: str) -> str:
    """The cause, if the kind of softmax settles it; "" otherwise."""
    return {
        ALONG_ROWS: "softmax over the sequence axis: the weights of each column, not of each row, add up to 1",
        TURNED: "mask turned round: it hides the earlier rows, not the later ones",
        WEAK: "mask too weak: a finite number in the place of −∞",
    }.get(kind, "")

"""Rowwise and autoregressive operators. Generated from book/operators.ipynb: edit the notebook, then `make export`."""

import torch
from jaxtyping import Float
from torch import Tensor

from tlm_book.checks import expects_floats, expects_shape

__all__ = [
    "causal_mask",
    "masked_softmax",
]


# --- The mask in torch


def causal_mask(scores: Float[Tensor, "*batch n m"]) -> Float[Tensor, "*batch n m"]:
    """◺S on the last two axes: −∞ above the diagonal. (W-mask-op-def)

    ValueError for fewer than two axes, TypeError for whole numbers.
    """
    expects_shape("scores", scores, ("n", "m"))
    expects_floats("scores", scores)
    n, m = scores.shape[-2:]
    later = torch.ones(n, m, dtype=torch.bool, device=scores.device).triu(1)
    return scores.masked_fill(later, float("-inf"))


def masked_softmax(
    scores: Float[Tensor, "*batch n m"],
) -> Float[Tensor, "*batch n m"]:
    """softmax(◺S) on the last two axes. (W-masked-softmax-claim)"""
    return causal_mask(scores).softmax(-1)

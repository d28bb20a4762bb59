"""The loss and its gradient at the scores, the largest arrays of a training step, in one kernel for an NVIDIA GPU. It reads each row twice, the second
time from the GPU's cache where that still holds it. Written by hand, in Triton, which comes with torch for GPUs.
"""

from functools import cache
from typing import Any, no_type_check

import torch
from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["fits", "loss_and_gradient"]

LANE = 8  # neighbouring entries that one thread reads together: 16 bytes in bfloat16
WARPS = (8, 16, 32)  # of 32 threads; the kernel tries each and keeps the fastest


def fits(scores: Float[Tensor, "batch n V"]) -> bool:
    """Whether the kernel is for these scores: on an NVIDIA GPU, in 32 bits at most."""
    return scores.is_cuda and torch.version.cuda is not None and scores.dtype.itemsize <= 4


def loss_and_gradient(
    scores: Float[Tensor, "batch n V"], tokens: Int[Tensor, "batch n"], weights: Float[Tensor, "batch n"] | None
) -> tuple[Float[Tensor, "batch n V"], Float[Tensor, ""]]:
    """With σ_k = w_k / Σ w: the gradient σ_k (softmax(z_k) − e_{x_k}) at row k of the scores, in their type, and the loss
    −Σ_k σ_k log softmax(z_k)[x_k] in float32, in which everything is computed. (T-cross-entropy-gradient)
    """
    z, gradient = scores.contiguous(), torch.empty_like(scores, memory_format=torch.contiguous_format)
    sigma = torch.full_like(tokens, 1 / tokens.numel(), dtype=torch.float32) if weights is None else (weights / weights.sum()).float()
    losses = torch.empty_like(sigma)
    _kernel()[(tokens.numel(),)](z, tokens.contiguous(), sigma.contiguous(), gradient, losses, z.shape[-1])
    return gradient, losses.sum()


@cache
def _kernel() -> Any:
    """(scores, tokens, σ, gradient, losses, V) for each row: made here, since Triton is not there without a GPU."""
    import triton
    import triton.language as tl

    @triton.autotune([triton.Config({"BLOCK": 32 * warps * LANE}, num_warps=warps) for warps in WARPS], key=["V"])
    @triton.jit
    @no_type_check  # Triton reads the function's text, and the checker would hide it
    def row(scores, tokens, sigmas, gradient, losses, V, BLOCK: tl.constexpr, LANE: tl.constexpr = LANE):
        k = tl.program_id(0).to(tl.int64)
        scores += k * V
        gradient += k * V
        x, sigma = tl.load(tokens + k), tl.load(sigmas + k)
        here = tl.arange(0, BLOCK // LANE)[:, None] * LANE + tl.arange(0, LANE)[None, :]
        # of each thread's entries the maximum m, and s = Σ exp(z − m)
        m, s = tl.full((BLOCK // LANE,), -3e38, tl.float32), tl.zeros((BLOCK // LANE,), tl.float32)
        for first in range(0, V, BLOCK):
            z = tl.load(scores + first + here, mask=first + here < V, other=-float("inf"), eviction_policy="evict_last").to(tl.float32)
            higher = tl.maximum(m, tl.max(z, axis=1))
            s = s * tl.exp(m - higher) + tl.sum(tl.exp(z - higher[:, None]), axis=1)
            m = higher
        top = tl.max(m)
        log_sum = top + tl.log(tl.sum(s * tl.exp(m - top)))
        at_x = tl.load(scores + x, mask=(x >= 0) & (x < V), other=float("nan"))  # NaN stops the step
        at_x = at_x.to(tl.float32)
        tl.store(losses + k, tl.where((sigma == 0) & (at_x == -float("inf")), 0.0, sigma * (log_sum - at_x)))  # for 0 · ∞ is NaN
        for first in range(0, V, BLOCK):
            z = tl.load(scores + first + here, mask=first + here < V, other=0.0, eviction_policy="evict_first").to(tl.float32)
            g = sigma * (tl.exp(z - log_sum) - tl.where(first + here == x, 1.0, 0.0))
            tl.store(gradient + first + here, g.to(gradient.dtype.element_ty), mask=first + here < V)

    return row

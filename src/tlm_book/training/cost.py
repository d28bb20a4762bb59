"""What a step costs, and what the machine could do at best. Generated from book/training.ipynb: edit the notebook, then `make export`."""

import time

import torch

from tlm_book.checks import expects_positive
from tlm_book.onednn import quick_linear
from tlm_book.transformer_lm import Config

__all__ = [
    "flops_per_token",
    "peak_matmul_flops",
]


# --- For the curious: what a step costs


def flops_per_token(config: Config, n: int) -> int:
    """Operations of one training step for each token, in windows of n: 3 (2k + 4 L n
    h d_head), for k matrix entries that a token meets. (T-flops)

    The gradient costs twice as much as the model itself. The mask is not subtracted;
    recomputation is not added. ValueError for n below 1.
    """
    expects_positive(n=n)
    c = config
    d, hk, gk = c.d_model, c.n_heads * c.head_width, c.kv_heads * c.head_width
    layer = (3 if c.gated else 2) * d * c.d_ff
    if c.n_experts is not None:
        layer = c.n_experts_used * layer + d * c.n_experts
    entries = c.n_layers * (2 * d * (hk + gk) + layer) + d * c.vocab_size
    return 3 * (2 * entries + 4 * c.n_layers * min(n, c.window or n) * hk)


def peak_matmul_flops(device: torch.device, dtype: str = "float32") -> float:
    """The operations per second that a product of two large matrices reaches on this
    device, by the quicker library: the best of several tries.
    """
    size = 8192 if device.type == "cuda" else 768
    A = torch.ones(size, size, device=device, dtype=getattr(torch, dtype))
    seconds = []
    for _ in range(6):
        tick = time.perf_counter()
        quick_linear(A, A.T)[0, 0].item()  # waits for a GPU
        seconds.append(time.perf_counter() - tick)
    return 2 * size**3 / min(seconds)

"""One step: a batch, its gradient, and the optimizer's move. Generated from book/training.ipynb: edit the notebook, then `make export`."""

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tlm_book.checks import expects, expects_positive, expects_text
from tlm_book.loss import weighted_loss
from tlm_book.training.config import TrainConfig
from tlm_book.transformer_lm import TransformerLM

__all__ = [
    "sample_batch",
    "learning_rate",
    "parameter_groups",
    "loss_function",
    "train_step",
    "corrupt_tokens",
    "enable_checkpointing_and_compile",
    "optimizer_for",
    "set_rate",
]


# --- A piece of the text at a time


def sample_batch(
    tokens: Int[Tensor, "N"], n: int, batch_size: int, seed: int, step: int
) -> Int[Tensor, "batch n"]:
    """Windows of n consecutive tokens whose first positions are drawn uniformly; the
    same for the same seed and step.

    ValueError if there are fewer than n tokens, or several rows of them, and for n or
    batch_size below 1.
    """
    expects_text("tokens", tokens)
    expects_positive(n=n, batch_size=batch_size)
    expects(len(tokens) >= n, "tokens", f"{len(tokens)} tokens", f"at least n = {n}")
    windows = tokens.unfold(0, n, 1)  # (N − n + 1, n), a view: nothing is copied
    first = np.random.default_rng((seed, step)).integers(
        0, len(windows), size=batch_size
    )
    return windows[torch.from_numpy(first).to(tokens.device)]


# --- One step


def learning_rate(step: int, config: TrainConfig) -> float:
    """η(s): up to lr in a straight line in `warmup` steps, then down to min_lr · lr, by
    half a cosine or a line, at the last of `config.steps_at(step)` steps, and no lower.

    >>> config = TrainConfig(steps=10, warmup=2, lr=1.0, min_lr=0.0)
    >>> [round(learning_rate(s, config), 4) for s in (0, 1, 5, 9)]
    [0.5, 1.0, 0.5, 0.0]
    """
    if step < config.warmup:
        return config.lr * (step + 1) / config.warmup
    first = max(config.warmup - 1, 0)  # the step at which the rate is highest
    done = min(1, (step - first) / max(config.steps_at(step) - 1 - first, 1))
    low = config.min_lr * config.lr
    linear = config.schedule == "linear"
    left = 1 - done if linear else (1 + math.cos(math.pi * done)) / 2
    return low + (config.lr - low) * left


def parameter_groups(
    model: nn.Module, weight_decay: float
) -> list[dict[str, object]]:
    """Two groups for the optimizer: matrices, which decay, and vectors (biases,
    gains), which do not.
    """
    parameters = list(model.parameters())  # a tied matrix is listed once
    return [
        {
            "params": [p for p in parameters if p.dim() >= 2],
            "weight_decay": weight_decay,
        },
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]


@cache
def loss_function(compiled: bool) -> Callable[..., Float[Tensor, ""]]:
    """`weighted_loss`; if compiled, it does not first copy the scores to float32."""
    return torch.compile(weighted_loss) if compiled else weighted_loss


def train_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    read: Int[Tensor, "batch m"],
    batch: Int[Tensor, "batch n"],
    config: TrainConfig,
    weights: Float[Tensor, "batch n"] | None = None,
) -> tuple[float, float]:
    """One step: the gradient, in `grad_accum_steps` parts, clipped, and the optimizer's
    move. (T-accumulate)

    Returns the loss before the move and the norm of its gradient; if one of them is
    not finite, there is no move. `read` is what the model reads, `batch` what it is
    judged on.
    """
    loss: Tensor | float = 0.0
    optimizer.zero_grad()
    k, loss_of = config.grad_accum_steps, loss_function(config.compile)
    omega = [None] * k if weights is None else weights.chunk(k)
    for x, seen, w in zip(batch.chunk(k), read.chunk(k), omega):
        share = (
            len(x) / len(batch)
            if w is None or weights is None
            else (w.sum() / weights.sum()).item()
        )
        if share == 0:
            continue
        mixed = config.dtype == "bfloat16"
        with torch.autocast(x.device.type, torch.bfloat16, mixed):
            part = share * loss_of(model(seen), x, w)
        loss += part.detach()
        # ∞ may have a finite gradient; ∞ · 0 is NaN, which makes the norm below NaN
        (part * (1 + 0 * part.detach())).backward()
    grad_norm = nn.utils.clip_grad_norm_(model.parameters(), config.clip)
    if hasattr(grad_norm, "full_tensor"):  # if the weights are shared out
        grad_norm = grad_norm.full_tensor()
    if grad_norm.isfinite():
        optimizer.step()
    return float(loss), float(grad_norm)


# --- For the curious: a text that is a little different each time


def corrupt_tokens(
    read: Int[Tensor, "batch n"], pool: Int[Tensor, "batch n"], share: float
) -> Int[Tensor, "batch n"]:
    """`read`, with each token but the first replaced, with probability `share`, by one
    drawn from `pool`. (T-noise) ValueError for a share outside [0, 1].
    """
    expects(0 <= share <= 1, "share", share, "a number from 0 to 1")
    if share == 0:
        return read
    replaced = torch.rand(read.shape, device=read.device) < share
    replaced[:, 0] = False  # the start marker stays
    drawn = pool.flatten()[
        torch.randint(pool.numel(), read.shape, device=read.device)
    ]
    return torch.where(replaced, drawn, read)


# --- For the curious: less memory for more work


def enable_checkpointing_and_compile(
    model: TransformerLM, config: TrainConfig
) -> None:
    """Turn on recomputation of the blocks and compilation if the config asks for them.
    The model's weights and their names stay the same.
    """
    if config.activation_checkpointing:
        for block in model.blocks:
            block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    if config.compile:
        model.compile()


def optimizer_for(model: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """AdamW in one kernel for all weights, with decay on matrices only. On a GPU its
    rates are tensors there, so that a step can be recorded as a CUDA graph.
    """
    groups, w = parameter_groups(model, config.weight_decay), next(model.parameters())
    gpu = w.is_cuda and not hasattr(w, "full_tensor")  # and the weights are not shared out
    for group in groups if gpu else ():
        group["lr"] = torch.tensor(config.lr, dtype=torch.float32, device=w.device)
    return torch.optim.AdamW(
        groups, lr=config.lr, betas=config.betas, fused=True, capturable=gpu
    )


def set_rate(group: dict[str, Any], rate: float) -> None:
    """Set the learning rate of a group of the optimizer; a tensor is filled, since a
    recorded step reads it from the same memory each time.
    """
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate

"""Training at scale. Generated from book/scaling.ipynb: edit the notebook, then `make export`."""

import dataclasses
import math
from dataclasses import dataclass

from tlm_book.checks import (
    expects,
    expects_numbers,
    expects_one_of,
    expects_positive,
)
from tlm_book.training import (
    DistContext,
    TokenFile,
    best_checkpoint,
    checkpoints,
    dist_context,
    is_held_out,
    parallelize,
    put_state,
    read_checkpoint,
    read_notes,
    read_tokens,
    run_folder,
    state_of,
    stream_documents,
    text_files,
    train_files,
    write_checkpoint,
    write_tokens,
)
from tlm_book.training.cost import flops_per_token
from tlm_book.training.distributed import PARALLEL
from tlm_book.transformer_lm import Config, count_parameters

__all__ = [
    "Cost",
    "kept_per_token",
    "training_cost",
]


# --- What a run costs


@dataclass(frozen=True)
class Cost:
    """The cost of a run: weights, operations, seconds, and bytes on each device by
    purpose.
    """

    parameters: int
    flops: float
    seconds: float
    memory: dict[str, float]

    def __str__(self) -> str:
        lines = [
            f"{self.parameters:,} weights, {self.flops:.3g} operations, {self.seconds / 3600:,.1f} hours",
            *(
                f"  {name:12}{size / 1e9:10.2f} GB"
                for name, size in self.memory.items()
            ),
        ]
        return "\n".join(lines)


def kept_per_token(config: Config, activation_checkpointing: bool = False) -> int:
    """How many numbers a step keeps for the backward pass, for each token.
    (T-training-memory)
    """
    c = config
    d, f, n = c.d_model, c.d_ff, c.max_len
    e, u = c.n_heads * c.head_width, c.kv_heads * c.head_width
    norm = (3 if c.norm_kind == "rms" else 2 if c.eps_mode == "inside" else 4) * d
    norms = 2 * (d if c.norm == "none" else norm)
    if c.variant == "parallel":  # both layers read the same rows
        norms -= d
    heads = 2 * e + 2 * u
    turned = c.pe == "rotary" or c.qk_norm
    if turned:  # in addition to the old ones; and the result of attention twice
        heads += 2 * e + u
    if c.qk_norm:
        heads += e + u
    if c.window is not None and c.window < n:
        heads += (e + 4 * u) * (n - c.window) // n + (0 if turned else e)
    hidden = f * (1 if c.activation in ("relu", "sigmoid", "identity") else 2)
    if c.gated:
        hidden += 2 * f
    if c.n_experts is not None:
        hidden = c.n_experts_used * (hidden + 2 * d)
    block = norms + heads + hidden + (2 * d if c.dropout else 0)
    ends = (norm if c.final_norm else d) + c.vocab_size
    ends += d if c.dropout else 0
    return c.n_layers * d + block + ends if activation_checkpointing else c.n_layers * block + ends


def training_cost(
    config: Config,
    tokens: float,
    *,
    batch_size: int = 8,
    devices: int = 1,
    parallel: str = "ddp",
    peak_matmul_flops: float = 1e11,
    mfu: float = 0.4,
    activation_checkpointing: bool = False,
) -> Cost:
    """The cost of training a model on that many tokens, in windows of max_len.
    (T-training-cost, T-training-memory)

    `peak_matmul_flops` is what one device does in a second at best, `mfu` the share
    of it that is reached. Each of several devices holds all weights ("ddp") or its
    share of them and one gathered block ("fsdp"). ValueError for numbers that make
    no sense.

    >>> cost = training_cost(Config.gpt2(), tokens=1e9, peak_matmul_flops=1e14)
    >>> cost.parameters, round(cost.seconds / 60)
    (124439808, 356)
    """
    expects_positive(batch_size=batch_size, devices=devices)
    expects_one_of("parallel", parallel, PARALLEL)
    expects_numbers(tokens=tokens, peak_matmul_flops=peak_matmul_flops, mfu=mfu)
    for name, x in (("tokens", tokens), ("peak_matmul_flops", peak_matmul_flops)):
        expects(0 < x < math.inf, name, x, "a finite number > 0")
    expects(0 < mfu <= 1, "mfu", mfu, "a share in (0, 1]")
    P, n = count_parameters(config), config.max_len
    flops = (
        tokens
        * flops_per_token(config, n)
        * (4 / 3 if activation_checkpointing else 1)
    )
    rows = batch_size * n / devices  # rows of the batch on one device
    share = devices if parallel == "fsdp" else 1
    memory = {
        "weights": 4 * P / share,
        "gradients": 4 * P / share,
        "optimizer": 8 * P / share,
    }
    if parallel == "fsdp" and devices > 1:
        bare = dataclasses.replace(config, n_layers=1)
        block = count_parameters(
            dataclasses.replace(config, n_layers=2)
        ) - count_parameters(bare)
        memory["gathered"] = 4 * max(block, P - config.n_layers * block)
    memory["activations"] = (
        4 * rows * kept_per_token(config, activation_checkpointing)
    )
    seconds = flops / (devices * peak_matmul_flops * mfu)
    return Cost(P, flops, seconds, memory)

"""How wrong is the model? The loss. Generated from book/loss.ipynb: edit the notebook, then `make export`."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from tlm_book.checks import expects, expects_one_of, expects_tokens

REDUCTIONS = ("weighted", "row_mean", "sum")

__all__ = [
    "REDUCTIONS",
    "shift",
    "token_log_probs",
    "weighted_loss",
]


# loss: In torch
def shift(
    tokens: Int[Tensor, "*batch n"], start: int = 0
) -> Int[Tensor, "*batch n"]:
    """(start, x_0, …, x_{n−2}) along the last axis. (W-loss-shift, W-loss-maxlen)

    ValueError when there is no token.

    >>> shift(torch.tensor([2, 0, 1]), start=3)
    tensor([3, 2, 0])

    Chapter: loss.
    """
    expects(
        tokens.dim() >= 1 and tokens.shape[-1] >= 1,
        "tokens",
        f"shape {tuple(tokens.shape)}",
        "at least one token in a row",
    )
    first = torch.full_like(tokens[..., :1], start)
    return torch.cat((first, tokens[..., :-1]), dim=-1)


# loss: In torch
def _expects_same_shape(
    argument: str, tensor: Tensor, shape: tuple[int, ...]
) -> None:
    expects(
        tuple(tensor.shape) == shape,
        argument,
        f"shape {tuple(tensor.shape)}",
        f"({', '.join(map(str, shape))})",
    )


def _expects_targets(logits: Tensor, tokens: Tensor) -> None:
    _expects_same_shape("tokens", tokens, tuple(logits.shape[:-1]))
    expects(tokens.numel() > 0, "tokens", "no token", "at least one token")
    # on a GPU, a look would wait for the device
    if tokens.device.type == "cpu" and not torch.compiler.is_compiling():
        expects_tokens("tokens", tokens, logits.shape[-1])


def token_log_probs(
    logits: Float[Tensor, "*batch n V"], tokens: Int[Tensor, "*batch n"]
) -> Float[Tensor, "*batch n"]:
    """y_k = LogSoftmax(logits)[k, x_k]. (W-loss-index)

    ValueError when the shapes do not fit; on the CPU also TypeError for tokens that are not integers and IndexError for
    tokens outside {0, …, V−1}.

    Chapter: loss.
    """
    _expects_targets(logits, tokens)
    return -F.cross_entropy(
        logits.flatten(0, -2), tokens.flatten().long(), reduction="none"
    ).view(tokens.shape)


# loss: In torch
def weighted_loss(
    logits: Float[Tensor, "*batch n V"],
    tokens: Int[Tensor, "*batch n"],
    weights: Float[Tensor, "*batch n"] | None = None,
    reduction: str = "weighted",
) -> Float[Tensor, ""]:
    """−Σ w y / Σ w ("weighted", the article), the mean of row losses ("row_mean"), or −Σ w y ("sum"). (W-batch-loss)

    Without weights every position counts 1. ValueError for weights of another shape, a negative or infinite one, and
    weights that sum to zero (for "row_mean": in any row; for "sum" they may); otherwise errors as in `token_log_probs`.

    Chapter: loss.
    """
    expects_one_of("reduction", reduction, REDUCTIONS)
    if weights is None and reduction == "weighted":  # the common case, in one kernel
        _expects_targets(logits, tokens)
        return F.cross_entropy(logits.flatten(0, -2), tokens.flatten().long())
    y = token_log_probs(logits, tokens)
    w = torch.ones_like(y) if weights is None else weights
    _expects_same_shape("weights", w, tuple(y.shape))
    expects(
        bool(((w >= 0) & w.isfinite()).all()),
        "weights",
        "a negative or infinite weight",
        "finite weights ≥ 0",
    )
    if reduction == "sum":
        return -(w * y).sum()
    total = w.sum(-1) if reduction == "row_mean" else w.sum()
    expects(
        bool((total > 0).all()),
        "weights",
        "weights that sum to zero",
        "a positive sum",
    )
    return (
        (-(w * y).sum(-1) / total).mean()
        if reduction == "row_mean"
        else -(w * y).sum() / total
    )

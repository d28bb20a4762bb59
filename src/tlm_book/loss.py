import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from tlm_book.checks import expects, expects_one_of, expects_shape

REDUCTIONS = ("weighted", "row_mean", "sum")


def shift(tokens: Int[Tensor, "*batch n"], start: int = 0) -> Int[Tensor, "*batch n"]:
    """(start, x_0, …, x_{n−2}) along the last axis. (W-loss-shift, W-loss-maxlen)

    Chapter: loss.
    """
    first = torch.full_like(tokens[..., :1], start)
    return torch.cat((first, tokens[..., :-1]), dim=-1)


def token_log_probs(logits: Float[Tensor, "*batch n V"], tokens: Int[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
    """y_k = LogSoftmax(logits)[k, x_k]. (W-loss-index)

    Chapter: loss.
    """
    expects_shape("tokens", tokens, tuple(logits.shape[:-1]))
    return -F.cross_entropy(logits.flatten(0, -2), tokens.flatten(), reduction="none").view(tokens.shape)


def weighted_loss(
    logits: Float[Tensor, "*batch n V"], tokens: Int[Tensor, "*batch n"], weights: Float[Tensor, "*batch n"] | None = None, reduction: str = "weighted"
) -> Float[Tensor, ""]:
    """−Σ w y / Σ w ("weighted", the article), the mean of row losses ("row_mean"), or −Σ w y ("sum"). (W-batch-loss)

    Without weights every position counts 1. ValueError when weights sum to zero (for "row_mean": in any row).

    Chapter: loss.
    """
    expects_one_of("reduction", reduction, REDUCTIONS)
    if weights is None and reduction == "weighted":  # the common case, in one kernel
        expects_shape("tokens", tokens, tuple(logits.shape[:-1]))
        return F.cross_entropy(logits.flatten(0, -2), tokens.flatten())
    y = token_log_probs(logits, tokens)
    w = torch.ones_like(y) if weights is None else weights
    expects_shape("weights", w, tuple(y.shape))
    if reduction == "sum":
        return -(w * y).sum()
    total = w.sum(-1) if reduction == "row_mean" else w.sum()
    expects(bool((total > 0).all()), "weights", "weights that sum to zero", "a positive sum")
    return (-(w * y).sum(-1) / total).mean() if reduction == "row_mean" else -(w * y).sum() / total

"""How wrong is the model? The loss. Generated from book/loss.ipynb: edit the notebook, then `make export`."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from tlm_book.checks import (
    expects,
    expects_integers,
    expects_kind,
    expects_one_of,
    expects_positive,
    expects_shape,
    expects_tokens,
    is_whole,
)

REDUCTIONS = ("weighted", "row_mean", "sum")

__all__ = [
    "REDUCTIONS",
    "token_log_probs",
    "weighted_loss",
    "shift",
    "chunked_loss",
]


# --- Shift by one


def _expects_same_shape(
    argument: str, tensor: Tensor, shape: tuple[int, ...]
) -> None:
    expects_kind(argument, tensor, Tensor, "a tensor")
    expects(
        tuple(tensor.shape) == shape,
        argument,
        f"shape {tuple(tensor.shape)}",
        f"({', '.join(map(str, shape))})",
    )


def _expects_rows(tokens: Tensor, start: int) -> None:
    expects_kind("tokens", tokens, Tensor, "a tensor of integers")
    expects_integers("tokens", tokens)
    expects(is_whole(start), "start", repr(start), "a whole number", TypeError)
    full, shape = tokens.dim() >= 1 and tokens.shape[-1] >= 1, tuple(tokens.shape)
    expects(full, "tokens", f"shape {shape}", "at least one token in a row")


def _expects_targets(tokens: Tensor, shape: tuple[int, ...], V: int) -> None:
    _expects_same_shape("tokens", tokens, shape)
    expects_integers("tokens", tokens)
    expects(tokens.numel() > 0, "tokens", "no token", "at least one token")
    # on a GPU, the check would wait for the device
    if tokens.device.type == "cpu" and not torch.compiler.is_compiling():
        expects_tokens("tokens", tokens, V)


# --- The log-probability of a token


def token_log_probs(
    logits: Float[Tensor, "*batch n V"], tokens: Int[Tensor, "*batch n"]
) -> Float[Tensor, "*batch n"]:
    """y_k = LogSoftmax(logits)[k, x_k]. (W-loss-index)

    ValueError when the shapes do not fit or there is no token, TypeError for tokens
    that are not integers; on the CPU also IndexError for tokens outside {0, …, V−1}.
    """
    expects_kind("logits", logits, Tensor, "a tensor")
    expects_shape("logits", logits, ("n", "V"))
    _expects_targets(tokens, tuple(logits.shape[:-1]), logits.shape[-1])
    return -F.cross_entropy(
        logits.flatten(0, -2), tokens.flatten().long(), reduction="none"
    ).view(tokens.shape)


# --- Many texts at once


def _shares(w: Tensor, shape: tuple[int, ...], reduction: str) -> Tensor:
    """The factor of each −y in the loss (the table of T-token-shares)."""
    _expects_same_shape("weights", w, shape)
    # on a GPU, the checks would wait for the device
    unseen = w.device.type != "cpu" or torch.compiler.is_compiling()
    expects(
        unseen or bool(((w >= 0) & w.isfinite()).all()),
        "weights",
        "a negative or infinite weight",
        "finite weights ≥ 0",
    )
    if reduction == "sum":
        return w
    total = w.sum(-1, keepdim=True) if reduction == "row_mean" else w.sum()
    expects(
        unseen or bool((total > 0).all()),
        "weights",
        "weights that sum to zero",
        "a positive sum",
    )
    return w / total / (total.numel() if reduction == "row_mean" else 1)


def _exact(t: Tensor) -> Tensor:
    """The same numbers, float32 at least: half precision cannot add many of them."""
    return t.to(torch.promote_types(t.dtype, torch.float32))


def weighted_loss(
    logits: Float[Tensor, "*batch n V"],
    tokens: Int[Tensor, "*batch n"],
    weights: Float[Tensor, "*batch n"] | None = None,
    reduction: str = "weighted",
) -> Float[Tensor, ""]:
    """−Σ w y / Σ w ("weighted", Wojcik's), the mean of row losses ("row_mean"),
    or −Σ w y ("sum"). (W-batch-loss)

    Without weights every position counts 1; those of weight 0 are skipped, even where
    the token's score is −∞ (but scores that are NaN have gradients NaN). The result is
    float32 at least, and so is everything that is summed on the way. ValueError for
    weights of another shape; on the CPU also for a negative or infinite one, and
    weights that sum to zero (for "row_mean": in any row; for "sum" they may);
    otherwise as in `token_log_probs`.
    """
    expects_one_of("reduction", reduction, REDUCTIONS)
    expects_kind("logits", logits, Tensor, "a tensor")
    expects_shape("logits", logits, ("n", "V"))
    scores = _exact(logits)
    if weights is None and reduction == "weighted":  # the common case, in one kernel
        _expects_targets(tokens, tuple(logits.shape[:-1]), logits.shape[-1])
        return F.cross_entropy(scores.flatten(0, -2), tokens.flatten().long())
    y = token_log_probs(scores, tokens)
    if weights is None:
        w = torch.ones_like(y)
    else:
        _expects_same_shape("weights", weights, tuple(y.shape))
        w = weights.to(torch.promote_types(weights.dtype, y.dtype))
        y = y.masked_fill((w == 0) & ~y.isfinite(), 0)  # for 0 · (−∞) is NaN
    return -(_shares(w, tuple(y.shape), reduction) * y).sum()


# --- In torch


def shift(
    tokens: Int[Tensor, "*batch n"], start: int = 0
) -> Int[Tensor, "*batch n"]:
    """(start, x_0, …, x_{n−2}) along the last axis. (W-loss-shift, W-loss-maxlen)

    ValueError if there is no token, TypeError if tokens are not integers or `start` is
    not a whole number.

    >>> shift(torch.tensor([2, 0, 1]), start=3)
    tensor([3, 2, 0])
    """
    _expects_rows(tokens, start)
    first = torch.full_like(tokens[..., :1], start)
    return torch.cat((first, tokens[..., :-1]), dim=-1)


# --- For the curious: the loss in chunks


class _ChunkedLoss(torch.autograd.Function):
    """−Σ_k σ_k y_k of the scores H Wᵀ + b; its gradient is computed chunk by chunk in
    the forward pass.
    """

    @staticmethod
    def forward(
        ctx: Any,
        H: Tensor,
        W: Tensor,
        b: Tensor | None,
        x: Tensor,
        sigma: Tensor,
        chunk: int,
        learn: bool,
    ) -> Tensor:
        exact = sigma.dtype
        wanted = [learn and need for need in ctx.needs_input_grad[:3]]
        dH, dW, db = (
            torch.zeros_like(t, dtype=exact) if want and t is not None else None
            for t, want in zip((H, W, b), wanted)
        )
        loss = sigma.new_zeros(())
        # float16 holds no small numbers: the rows are multiplied by shares of this
        size = sigma.norm().clamp_min(torch.finfo(exact).tiny)
        for first in range(0, len(x), chunk):
            Y = G = None  # free the last chunk before the next is made
            rows = slice(first, first + chunk)
            h, s, token = H[rows], sigma[rows, None], x[rows, None]
            Y = F.log_softmax(F.linear(h, W, b), -1, dtype=exact)  # (chunk, V)
            loss -= (s * Y.gather(1, token)).sum()
            if not any(wanted):
                continue
            # softmax in place of its logarithm, minus 1 at the token
            G = Y.exp_().scatter_add_(1, token, -torch.ones_like(s))
            if db is not None:
                db += s[:, 0] @ G
            G = G.to(h.dtype)
            if dH is not None:
                dH[rows] = s * (G @ W)
            if dW is not None:
                _add_product(dW, G.T, (s / size * h).to(h.dtype))
        if dW is not None:
            dW *= size
        ctx.types = [None if t is None else t.dtype for t in (H, W, b)]
        short = H.dtype != torch.float16  # kept so until the loss's scale is known
        ctx.save_for_backward(
            *(g.to(t) if g is not None and short else g for g, t in zip((dH, dW, db), ctx.types))
        )
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        gradients = (
            None if d is None else (g * d).to(t)
            for d, t in zip(ctx.saved_tensors, ctx.types)
        )
        return *gradients, None, None, None, None


def _add_product(total: Tensor, A: Tensor, B: Tensor) -> None:
    """total += A B, without another array if the types agree."""
    if total.dtype == A.dtype:
        total.addmm_(A, B)
    else:
        total += A @ B


def chunked_loss(
    hidden: Float[Tensor, "*batch n d"],
    weight: Float[Tensor, "V d"],
    tokens: Int[Tensor, "*batch n"],
    weights: Float[Tensor, "*batch n"] | None = None,
    *,
    bias: Float[Tensor, "V"] | None = None,
    reduction: str = "weighted",
    chunk: int = 512,
) -> Float[Tensor, ""]:
    """`weighted_loss` of the scores hidden weightᵀ + bias, with never more than
    chunk · V of them in memory. (T-loss-chunks)

    Gradients for `hidden`, `weight` and `bias`: first derivatives only, and none for
    `weights`. Positions of weight 0 are skipped. The result is float32 at least;
    under autocast the products are computed in its type. Errors as in `weighted_loss`;
    ValueError when the widths do not fit or `weights` requires a gradient.
    """
    expects_one_of("reduction", reduction, REDUCTIONS)
    expects_positive(chunk=chunk)
    expects_kind("hidden", hidden, Tensor, "a tensor")
    expects_kind("weight", weight, Tensor, "a tensor")
    expects_shape("weight", weight, ("V", "d"))
    expects(weight.dim() == 2, "weight", f"shape {tuple(weight.shape)}", "(V, d)")
    V, d = weight.shape
    expects_shape("hidden", hidden, ("n", d))
    if bias is not None:
        _expects_same_shape("bias", bias, (V,))
    if weights is not None:
        _expects_same_shape("weights", weights, tuple(hidden.shape[:-1]))
    shape = tuple(hidden.shape[:-1])
    _expects_targets(tokens, shape, V)
    x, H = tokens.flatten().long(), hidden.flatten(0, -2)
    exact = torch.promote_types(hidden.dtype, torch.float32)
    device = hidden.device.type
    known = device != "meta"  # meta tensors hold no numbers
    if weights is None:
        one = torch.ones(shape, dtype=exact, device=hidden.device)
        sigma = _shares(one, shape, reduction).flatten()
    else:
        expects(
            not weights.requires_grad,
            "weights",
            "a tensor that asks for a gradient",
            "constants",
        )
        sigma = _shares(weights.to(exact), shape, reduction).flatten()
        if known and not torch.compiler.is_compiling():  # their number would not be constant
            kept = sigma.nonzero()[:, 0]
            H, x, sigma = H[kept], x[kept], sigma[kept]
    if known and torch.is_autocast_enabled(device) and hidden.dtype != torch.float64:
        low = torch.get_autocast_dtype(device)
        H, weight, bias = (
            H.to(low),
            weight.to(low),
            None if bias is None else bias.to(low),
        )
    return _ChunkedLoss.apply(
        H, weight, bias, x, sigma, chunk, torch.is_grad_enabled()
    )

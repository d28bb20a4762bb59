"""How wrong is the model? The loss. Generated from book/loss.ipynb: edit the notebook, then `make export`."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int

from tlm_book.checks import expects, expects_positive, expects_tokens, shaped

__all__ = [
    "shift",
    "log_softmax",
    "sequence_log_probs",
    "sequence_loss",
    "bits_per_byte",
    "batch_loss",
    "row_mean_loss",
]


# --- Shift by one


@shaped
def shift(x: Int[np.ndarray, "n"], start: int = 0) -> Int[np.ndarray, "n"]:
    """(start, x_0, …, x_{n−2}): what the model reads while it is judged on x.
    (W-loss-shift, W-loss-maxlen)

    ValueError when x holds no token.

    >>> shift(np.array([2, 0, 1]), start=3).tolist()
    [3, 2, 0]
    """
    expects(len(x) >= 1, "x", "no token", "at least one token")
    return np.concatenate(([start], x[:-1]))


# --- Log-softmax


@shaped
def log_softmax(Z: Float[np.ndarray, "n V"]) -> Float[np.ndarray, "n V"]:
    """Y[k, i] = Z[k, i] − log Σ_j exp(Z[k, j]), row by row, with the row's maximum
    subtracted first. (W-logsoftmax-def)

    >>> np.exp(log_softmax(np.log([[3.0, 1.0]]))).round(2)
    array([[0.75, 0.25]])
    """
    Z = Z - Z.max(axis=1, keepdims=True)
    return Z - np.log(np.exp(Z).sum(axis=1, keepdims=True))


# --- The log-probability of a token


@shaped
def sequence_log_probs(
    T: Callable[[np.ndarray], np.ndarray], x: Int[np.ndarray, "n"], start: int = 0
) -> Float[np.ndarray, "n"]:
    """y_k = LogSoftmax(T(shift(x)))[k, x_k], the log-probability of each token given
    those before it. (W-loss-index)

    IndexError for a token outside {0, …, V−1}; ValueError when x holds no token.
    """
    Y = log_softmax(T(shift(x, start)))
    expects_tokens("x", x, Y.shape[1])
    return Y[np.arange(len(x)), x]


# --- The loss of a text


@shaped
def sequence_loss(
    T: Callable[[np.ndarray], np.ndarray], x: Int[np.ndarray, "n"], start: int = 0
) -> float:
    """−(1/n) Σ_k y_k. (W-loss-formula)

    Errors as in `sequence_log_probs`.
    """
    return float(-np.mean(sequence_log_probs(T, x, start)))


# --- Bits per byte


@shaped
def bits_per_byte(loss: float, n_tokens: int, n_bytes: int) -> float:
    """n L / (N log 2): a loss in nats per token as bits per byte of text.
    (T-bits-per-byte)

    TypeError when a number of tokens or bytes is not whole, ValueError when it is
    below 1.

    >>> round(bits_per_byte(np.log(256), n_tokens=3, n_bytes=3), 12)
    8.0
    """
    expects_positive(n_tokens=n_tokens, n_bytes=n_bytes)
    return float(loss * n_tokens / (n_bytes * np.log(2)))


# --- Many texts at once


def _expects_weights(w: np.ndarray) -> None:
    right = bool(np.all((w >= 0) & (w < np.inf)))
    expects(right, "w", "a negative or infinite weight", "finite weights ≥ 0")


@shaped
def batch_loss(y: Float[np.ndarray, "s n"], w: Float[np.ndarray, "s n"]) -> float:
    """−Σ w y / Σ w over the whole batch. (W-batch-loss)

    ValueError when all weights are zero, one is negative or not finite, or the
    shapes differ.

    >>> batch_loss(np.array([[-1.0, -3.0]]), np.array([[1.0, 1.0]]))
    2.0
    """
    _expects_weights(w)
    total = w.sum()
    expects(total > 0, "w", f"weights that sum to {total:g}", "a positive weight")
    return float(-(w * y).sum() / total)


# --- Not the mean of the rows


@shaped
def row_mean_loss(y: Float[np.ndarray, "s n"], w: Float[np.ndarray, "s n"]) -> float:
    """The mean over rows j of −Σ_i w_ji y_ji / Σ_i w_ji: in general not `batch_loss`.
    (W-row-average-def)

    ValueError when all weights of some row are zero; otherwise errors as in
    `batch_loss`.
    """
    _expects_weights(w)
    each = bool((w.sum(axis=1) > 0).all())
    expects(each, "w", "a row whose weights sum to 0", "a positive weight in every row")
    return float(np.mean(-(w * y).sum(axis=1) / w.sum(axis=1)))

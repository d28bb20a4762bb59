from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int

from tlm_book.checks import expects


def log_softmax(Z: Float[np.ndarray, "n V"]) -> Float[np.ndarray, "n V"]:
    """Y[k, i] = Z[k, i] − log Σ_j exp(Z[k, j]), row by row, with the row's maximum subtracted first. (W-logsoftmax-def)

    Chapter: loss.
    """
    Z = Z - Z.max(axis=1, keepdims=True)
    return Z - np.log(np.exp(Z).sum(axis=1, keepdims=True))


def shift(x: Int[np.ndarray, "n"], start: int = 0) -> Int[np.ndarray, "n"]:
    """(start, x_0, …, x_{n−2}): what the model reads while it is judged on x. (W-loss-shift, W-loss-maxlen)

    Chapter: loss.
    """
    return np.concatenate(([start], x[:-1]))


def sequence_log_probs(T: Callable, x: Int[np.ndarray, "n"], start: int = 0) -> Float[np.ndarray, "n"]:
    """y_k = LogSoftmax(T(shift(x)))[k, x_k], the log-probability of each token given those before it. (W-loss-index)

    Chapter: loss.
    """
    Y = log_softmax(T(shift(x, start)))
    return Y[np.arange(len(x)), x]


def sequence_loss(T: Callable, x: Int[np.ndarray, "n"], start: int = 0) -> float:
    """−(1/n) Σ_k y_k. (W-loss-formula)

    Chapter: loss.
    """
    return float(-np.mean(sequence_log_probs(T, x, start)))


def batch_loss(y: Float[np.ndarray, "s n"], w: Float[np.ndarray, "s n"]) -> float:
    """−Σ w y / Σ w over the whole batch; ValueError when all weights are zero. (W-batch-loss)

    Chapter: loss.
    """
    expects(w.sum() > 0, "w", f"weights that sum to {w.sum():g}", "at least one positive weight")
    return float(-(w * y).sum() / w.sum())


def row_mean_loss(y: Float[np.ndarray, "s n"], w: Float[np.ndarray, "s n"]) -> float:
    """The mean over rows j of −Σ_i w_ji y_ji / Σ_i w_ji: another number in general. (W-row-average-def)

    Chapter: loss.
    """
    expects(bool((w.sum(axis=1) > 0).all()), "w", "a row whose weights sum to 0", "a positive weight in every row")
    return float(np.mean(-(w * y).sum(axis=1) / w.sum(axis=1)))

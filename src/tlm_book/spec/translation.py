"""Translation, from nothing to a sentence. Generated from book/translation.ipynb: edit the notebook, then `make export`."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from tlm_book.checks import expects_positive
from tlm_book.spec.inference import Hypothesis, Model
from tlm_book.spec.inference import beam_search as continuations

__all__ = [
    "next_log_probs",
    "greedy_search",
    "beam_search",
]


# --- Writing a sentence


def next_log_probs(T: Model, y: Sequence[int], start: int) -> Float[np.ndarray, "V"]:
    """log P(· | source, y): log-softmax of the last row of T(start, y_1, …, y_k)."""
    z = T(np.array([start, *y], dtype=int))[-1]
    return z - z.max() - np.log(np.exp(z - z.max()).sum())


def greedy_search(T: Model, start: int, stop: int, max_new: int) -> list[int]:
    """The likeliest word each time, until `stop` or `max_new` words.
    (M-autoregressive-inference)

    ValueError for max_new below 1.
    """
    expects_positive(max_new=max_new)
    y: list[int] = []
    while len(y) < max_new and y[-1:] != [stop]:
        y.append(int(np.argmax(next_log_probs(T, y, start))))
    return y


# --- Several at once


def beam_search(
    T: Model,
    start: int,
    stop: int,
    max_new: int,
    width: int,
    length_power: float = 0.0,
) -> list[Hypothesis]:
    """At most `width` hypotheses, the best first; `length_power` is α. (T-beam)

    ValueError unless max_new, width > 0 and α ≥ 0.
    """
    expects_positive(max_new=max_new)
    nothing = np.array([], dtype=int)
    return continuations(T, nothing, max_new, width, (stop,), length_power, start)

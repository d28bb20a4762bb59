"""Translation, from nothing to a sentence. Generated from book/translation.ipynb: edit the notebook, then `make export`."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from tlm_book.checks import expects, expects_positive
from tlm_book.spec.inference import Model

__all__ = [
    "next_log_probs",
    "greedy_search",
    "Hypothesis",
    "beam_search",
]


# translation: Writing a sentence
def next_log_probs(T: Model, y: Sequence[int], start: int) -> Float[np.ndarray, "V"]:
    """log P(· | source, y): log-softmax of the last row of T(start, y_1, …, y_k).

    Chapter: translation.
    """
    z = T(np.array([start, *y], dtype=int))[-1]
    return z - z.max() - np.log(np.exp(z - z.max()).sum())


def greedy_search(T: Model, start: int, stop: int, max_new: int) -> list[int]:
    """The likeliest word each time, until `stop` or `max_new` words.
    (M-autoregressive-inference)

    Chapter: translation.
    """
    expects_positive(max_new=max_new)
    y: list[int] = []
    while len(y) < max_new and y[-1:] != [stop]:
        y.append(int(np.argmax(next_log_probs(T, y, start))))
    return y


# translation: Several at once
class Hypothesis(NamedTuple):
    """Words, and the logarithm of their probability.

    Chapter: translation.
    """

    tokens: tuple[int, ...]
    log_p: float


def beam_search(
    T: Model,
    start: int,
    stop: int,
    max_new: int,
    width: int,
    length_power: float = 0.0,
) -> list[Hypothesis]:
    """At most `width` hypotheses, the best first; `length_power` is α. (T-beam)

    Chapter: translation.
    """
    expects_positive(max_new=max_new, width=width)
    expects(length_power >= 0, "length_power", length_power, "a number ≥ 0")

    def over(h: Hypothesis) -> bool:
        return h.tokens[-1:] == (stop,)

    def value(h: Hypothesis) -> float:
        return h.log_p / len(h.tokens) ** length_power

    beam = [Hypothesis((), 0.0)]
    for _ in range(max_new):
        found = []
        for h in beam:
            p = [] if over(h) else next_log_probs(T, h.tokens, start)
            found += [
                Hypothesis((*h.tokens, j), h.log_p + p_j) for j, p_j in enumerate(p)
            ]
            found += [h] if over(h) else []
        beam = sorted(found, key=value, reverse=True)[:width]
        bounds = [h.log_p / max_new**length_power for h in beam if not over(h)]
        if over(beam[0]) and all(value(beam[0]) >= bound for bound in bounds):
            break
    return beam

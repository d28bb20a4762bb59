"""Graders for the exercises of the chapter scaling."""

import itertools
import math

import numpy as np

from tlm_book.exercises.grading import function, value
from tlm_book.scaling import kept_per_token
from tlm_book.transformer_lm import Config


def fewest(P: float, D: float, peak: float, mfu: float, days: float) -> int:
    """Try one device after the other."""
    return next(k for k in itertools.count(1) if 6 * P * D / (k * peak * mfu) <= days * 86400)


def best_interval(write: float, between: float) -> float:
    """The smallest waste on a fine grid of intervals."""
    T = np.exp(np.linspace(np.log(1.0), np.log(1e7), 400_001))
    return float(T[np.argmin(write / T + T / (2 * between))])


def kept_in_depth() -> float:
    deep = Config.gpt2(n_layers=10**8)
    return kept_per_token(deep, activation_checkpointing=True) / kept_per_token(deep)


EXERCISES = [
    function(
        "a function `devices(P, D, peak, mfu, days)` for P weights and D tokens, six operations for each weight and token",
        [(1e9, 20e9, 4e14, 0.4, 7), (1e9, 20e9, 4e14, 0.4, 1), (7e10, 1.4e12, 1e15, 0.5, 30), (1e8, 1e9, 1e14, 0.3, 1), (3e9, 6e10, 2e14, 0.35, 10)],
        fewest,
        {
            "Two operations for each weight and token are the way forward; the way back costs four more.":
                lambda P, D, peak, mfu, days: math.ceil(2 * P * D / (peak * mfu * days * 86400)),
            "The best rate is not reached: only a share of it is.": lambda P, D, peak, mfu, days: math.ceil(6 * P * D / (peak * days * 86400)),
            "So many do not finish in time: round up.": lambda P, D, peak, mfu, days: int(6 * P * D / (peak * mfu * days * 86400)),
            "A day has 86,400 seconds.": lambda P, D, peak, mfu, days: math.ceil(6 * P * D / (peak * mfu * days * 3600)),
        },
    ),
    function(
        "a function `interval(write, between)`: the best time from one checkpoint to the next, when writing takes `write` and failures come every"
        " `between`, all in seconds",
        [(20, 86400), (1, 86400), (60, 3600), (5, 1e6)],
        best_interval,
        {
            "On average a failure loses half an interval, not all of it.": lambda write, between: math.sqrt(write * between),
            "A failure loses half an interval, not twice one.": lambda write, between: math.sqrt(write * between / 2),
            "This is the geometric mean of twice both.": lambda write, between: 2 * math.sqrt(write * between),
            "Right would be a mean of this and something short: set the derivative of the waste to 0.": lambda write, between: between / 2,
        },
        tol=1e-3,
    ),
    value(
        "a pair of truth values: is it right on average? is it the run of one process?",
        lambda: (True, False),
        {
            "What is drawn depends on how many draw.": (True, True),
            "Each window is as likely as before, whoever draws it.": (False, False),
            "It is the other way round.": (False, True),
        },
    ),
    value(
        "the number to which the share of the numbers that are still kept with activation checkpointing tends for GPT-2, as its depth grows",
        kept_in_depth,
        {
            "The input of each block has to be kept.": 0.0,
            "GELU keeps two numbers for each inner one: what goes in and what comes out.": 1 / 12,
            "The share falls with depth.": 1.0,
            "The normalizations keep numbers as well.": 1 / 13,
        },
        tol=1e-4,
    ),
]

"""Graders for the exercises of the chapter scaling."""

import itertools
import math

import numpy as np

from tlm_book.exercises.grading import function, value
from tlm_book.scaling import kept_per_token, training_cost
from tlm_book.spec.optimization import adamw
from tlm_book.transformer_lm import Config


def fewest(P: float, D: float, peak: float, mfu: float, days: float) -> int:
    """The least number of devices, found by trying one number after another."""
    return next(k for k in itertools.count(1) if 6 * P * D / (k * peak * mfu) <= days * 86400)


def best_interval(write: float, between: float) -> float:
    """The interval with the smallest waste, on a fine grid."""
    T = np.exp(np.linspace(np.log(1.0), np.log(1e7), 400_001))
    return float(T[np.argmin(write / T + T / (2 * between))])


def kept_in_depth() -> float:
    deep = Config.gpt2(n_layers=10**8)
    return kept_per_token(deep, activation_checkpointing=True) / kept_per_token(deep)


def operations() -> tuple[int, int]:
    few = Config(10, d_model=4, d_ff=16, n_layers=2, n_heads=2, max_len=8)
    flops = int(training_cost(few, 1).flops)
    return (flops - 12 * 2 * 8 * 4) // 6, flops


def forgotten(beta_1: float, beta_2: float, s: int) -> float:
    """The length of the last step, if s steps are followed by one with t = 1."""
    w = m = v = np.zeros(1)
    for t in [*range(1, s + 1), 1]:
        before = w
        w, m, v = adamw(w, np.ones(1), m, v, t, 1.0, (beta_1, beta_2), decay=0.0, eps=0.0)
    return float((before - w)[0])


def searched(C: float, A: float, B: float, alpha: float, beta: float, D_2: float) -> float:
    """The best size, found as the smallest loss on finer and finer grids of log P, up to where no operation is left for training."""
    low, high = 0.0, math.log(C / (2 * D_2)) - 1e-9
    for _ in range(12):
        x = np.linspace(low, high, 2001)
        best = x[np.argmin(A * np.exp(-alpha * x) + B * (C / (6 * np.exp(x)) - D_2 / 3) ** -beta)]
        low, high = max(0.0, best - (high - low) / 100), min(high, best + (high - low) / 100)
    return float(np.exp(best))


def without_use(C: float, A: float, B: float, alpha: float, beta: float) -> float:
    """The best size if all operations are spent on training."""
    return float((alpha * A / (beta * B) * (C / 6) ** beta) ** (1 / (alpha + beta)))


def one_factor_short(C: float, A: float, B: float, alpha: float, beta: float, D_2: float) -> float:
    """The size at which αA P^(−α) = βB D^(−β), as in the theorem, with the D of the exercise."""
    P = np.exp(np.linspace(0.0, math.log(C / (2 * D_2)) - 1e-9, 2_000_001))
    return float(P[np.argmin(np.abs(np.log(alpha * A * P**-alpha) - np.log(beta * B * (C / (6 * P) - D_2 / 3) ** -beta)))])


grown = lambda beta, s: (1 - beta ** (s + 1)) / (1 - beta)


EXERCISES = [
    function(
        "a function `devices(P, D, peak, mfu, days)`: the least number of devices for P weights and D tokens, with six operations for each weight"
        " and token",
        [(1e9, 20e9, 4e14, 0.4, 7), (1e9, 20e9, 4e14, 0.4, 1), (7e10, 1.4e12, 1e15, 0.5, 30), (1e8, 1e9, 1e14, 0.3, 1), (3e9, 6e10, 2e14, 0.35, 10),
         (7.2e6, 2e9, 1e12, 0.5, 1)],
        fewest,
        {
            "Two operations for each weight and token pay for the forward pass; the backward pass costs four more.":
                lambda P, D, peak, mfu, days: math.ceil(2 * P * D / (peak * mfu * days * 86400)),
            "The best rate is not reached; only the share mfu of it is.": lambda P, D, peak, mfu, days: math.ceil(6 * P * D / (peak * days * 86400)),
            "So few do not finish in time: round up.": lambda P, D, peak, mfu, days: int(6 * P * D / (peak * mfu * days * 86400)),
            "Two devices that finish just in time are enough: round up, rather than down and one more.":
                lambda P, D, peak, mfu, days: int(6 * P * D / (peak * mfu * days * 86400)) + 1,
            "A day has 86,400 seconds.": lambda P, D, peak, mfu, days: math.ceil(6 * P * D / (peak * mfu * days * 3600)),
        },
    ),
    function(
        "a function `interval(write, between)`: the best time from one checkpoint to the next, when writing one takes `write` and a failure comes"
        " every `between` on average, all in seconds",
        [(20, 86400), (1, 86400), (60, 3600), (5, 1e6)],
        best_interval,
        {
            "On average a failure loses half an interval, not all of it.": lambda write, between: math.sqrt(write * between),
            "A failure loses half an interval, not two.": lambda write, between: math.sqrt(write * between / 2),
            "There is one factor 2 too many under the root.": lambda write, between: 2 * math.sqrt(write * between),
            "This does not depend on the time that writing takes: set the derivative of the waste to 0.": lambda write, between: between / 2,
        },
        tol=1e-3,
    ),
    value(
        "a pair of truth values: is the mean gradient right on average? is the run the same as with one process?",
        lambda: (True, False),
        {
            "What is drawn depends on how many processes draw.": (True, True),
            "Each window is as likely as before, whoever draws it.": (False, False),
            "It is the other way round.": (False, True),
        },
    ),
    value(
        "the share of the kept numbers that GPT-2 still keeps with activation checkpointing, in the limit of many blocks",
        kept_in_depth,
        {
            "The input of each block has to be kept.": 0.0,
            "For each hidden number two are kept: what goes into GELU and what comes out.": 1 / 12,
            "The share falls with depth.": 1.0,
            "The normalizations keep numbers as well.": 1 / 13,
        },
        tol=1e-4,
    ),
    value(
        "the pair: gigabytes, devices",
        lambda: (16 * 7, 2),
        {
            "The weights alone take this; gradients and AdamW's two means come on top.": (28, 1),
            "AdamW keeps two means for each weight.": (84, 2),
            "A 32-bit number has four bytes.": (56, 1),
            "The number of devices is a whole number.": (112, 1.4),
            "One device has only 80 gigabytes.": (112, 1),
        },
    ),
    value(
        "the pair: $P_\\times$ and the operations for one token",
        operations,
        {
            "The unembedding multiplies, too.": (384, 3072),
            "The products within attention, for scores and averages, come on top.": (424, 2544),
            "This is the forward pass alone; the backward pass costs twice as much again.": (424, 1104),
            "There are two blocks.": (232, 1776),
        },
    ),
    function(
        "a function `factor(beta_1, beta_2, s)`: the length of the first step after the interruption, divided by the length that it should"
        " have",
        lambda rng, n: (float(rng.uniform(0.5, 0.95)), float(rng.uniform(0.9, 0.999)), 3 * n),
        forgotten,
        {
            "v stands under a root.": lambda beta_1, beta_2, s: grown(beta_1, s) / grown(beta_2, s),
            "The step after the interruption counts, too: s + 1 gradients have gone into the means.":
                lambda beta_1, beta_2, s: grown(beta_1, s - 1) / math.sqrt(grown(beta_2, s - 1)),
            "v, too, is divided by too small a number.": lambda beta_1, beta_2, s: grown(beta_1, s),
            "This is the reciprocal of what is wanted.": lambda beta_1, beta_2, s: math.sqrt(grown(beta_2, s)) / grown(beta_1, s),
        },
        tol=1e-7,
    ),
    function(
        "a function `best_size(C, A, B, alpha, beta, D_2)`: the P with the smallest loss, for D_2 > 0",
        [
            (1e18, 400.0, 410.0, 0.34, 0.28, 1e9), (1e20, 400.0, 410.0, 0.34, 0.28, 1e11), (1e19, 100.0, 900.0, 0.5, 0.3, 1e10),
            (6e15, 50.0, 50.0, 0.4, 0.4, 1e8),
        ],
        searched,
        {
            "This is the best size of a model that is never used.": lambda C, A, B, alpha, beta, D_2: without_use(C, A, B, alpha, beta),
            "A token that is only read costs two operations for each weight; the other four are for the backward pass.":
                lambda C, A, B, alpha, beta, D_2: searched(C, A, B, alpha, beta, 3 * D_2),
            "The derivative of D with respect to P has changed, too: D is no longer C/(6P).": one_factor_short,
            "This is the number of tokens to train on.":
                lambda C, A, B, alpha, beta, D_2: C / (6 * searched(C, A, B, alpha, beta, D_2)) - D_2 / 3,
        },
        tol=1e-4,
    ),
]

"""Graders for the exercises of the chapter speed."""

import numpy as np

from tlm_book.exercises.grading import function, value

READ = 3.35e12  # bytes a second
WEIGHTS = 7e9


def some_part(rng: np.random.Generator, n: int) -> tuple[float, float]:
    """A share of the time, and a factor."""
    return float(rng.uniform(0.05, 0.95)), float(rng.uniform(1, 20))


def some_machine(rng: np.random.Generator, n: int) -> tuple[int, float, float, float, int]:
    """Few texts and many, a model, and a machine's speeds."""
    speed, read, b = 10.0 ** rng.uniform(11, 15), 10.0 ** rng.uniform(10, 13), int(2 ** rng.integers(3))
    turn = b * speed / (2 * read)
    return max(1, int(turn * (0.3, 3)[n % 2])), 10.0 ** rng.uniform(8, 11), speed, read, b


def some_pieces(rng: np.random.Generator, n: int) -> tuple[int, int, int]:
    """A length, the length of a piece that divides it, and a width."""
    b = int(rng.integers(2, 9))
    return b * int(rng.integers(2, 9)), b, int(rng.integers(2, 9))


EXERCISES = [
    value(
        "a pair of numbers: written operation by operation, and in one kernel",
        lambda: (8 * 512, 512),
        {
            "Each operation writes one number for each hidden number; nothing is written in place.": (8, 1),
            "The kernel writes its result, too.": (8 * 512, 0),
            "One half times h is an operation, and its product with the bracket another.": (7 * 512, 512),
            "The pair is exchanged.": (512, 8 * 512),
        },
    ),
    value(
        "a pair of numbers: tokens a second in `bfloat16`, and in `int8`",
        lambda: (READ / (2 * WEIGHTS), READ / WEIGHTS),
        {
            "A number in `bfloat16` has two bytes, and one in `int8` one.": (READ / (4 * WEIGHTS), READ / (2 * WEIGHTS)),
            "The pair is exchanged: fewer bytes are read sooner.": (READ / WEIGHTS, READ / (2 * WEIGHTS)),
            "These are seconds for a token, not tokens for a second.": (2 * WEIGHTS / READ, WEIGHTS / READ),
            "The bandwidth counts bytes, not bits.": (READ / (16 * WEIGHTS), READ / (8 * WEIGHTS)),
        },
        tol=2e-3,  # whole numbers will do
    ),
    function(
        "a function `gain(s, c)`: how many times as fast the whole step is",
        some_part,
        lambda s, c: 1 / (1 - s + s / c),
        {
            "The times add up, not the speeds.": lambda s, c: 1 - s + s * c,
            "The rest takes its time, too.": lambda s, c: c / s,
            "That is the new time as a share of the old one.": lambda s, c: 1 - s + s / c,
            "That is the gain if the part took no time at all.": lambda s, c: 1 / (1 - s),
        },
    ),
    function(
        "a function `tokens_per_second(r, P, F, B, b)`",
        some_machine,
        lambda r, P, F, B, b: r / max(2 * r * P / F, b * P / B),
        {
            "A step writes one token for each of the r texts.": lambda r, P, F, B, b: 1 / max(2 * r * P / F, b * P / B),
            "Reading and computing go on at the same time: the slower one counts, not the sum.": lambda r, P, F, B, b: r / (2 * r * P / F + b * P / B),
            "The operations grow with the number of texts.": lambda r, P, F, B, b: r / max(2 * P / F, b * P / B),
            "The slower of the two sets the time.": lambda r, P, F, B, b: r / min(2 * r * P / F, b * P / B),
        },
    ),
    function(
        "a function `numbers_read(n, b, d)`",
        some_pieces,
        lambda n, b, d: n * d * (n // b + 2),
        {
            "Squares above the diagonal are left out.": lambda n, b, d: n * d * (1 + 2 * n // b),
            "A square reads keys and values.": lambda n, b, d: n * d * (n // b + 3) / 2,
            "The queries are read, too.": lambda n, b, d: n * d * (n // b + 1),
            "The queries are read once for each pass of the outer loop, not for each square.": lambda n, b, d: n * d * (n // b + 1) * 3 / 2,
            "The squares on the diagonal are computed, too.": lambda n, b, d: n * d * (n // b),
        },
    ),
]

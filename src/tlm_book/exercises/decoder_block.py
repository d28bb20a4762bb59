"""Graders for the exercises of the chapter decoder_block."""

from collections.abc import Callable

import numpy as np
import torch

from tlm_book.decoder_block import DecoderBlock
from tlm_book.exercises.grading import function

Map = Callable[[np.ndarray], np.ndarray]


def counted(d: int, f: int) -> tuple[int, int, int]:
    with torch.device("meta"):
        block = DecoderBlock(d, 1, f)
    size = lambda *parts: sum(p.numel() for part in parts for p in part.parameters())
    return size(block.attention), size(block.feed_forward), size(block.norm_attention, block.norm_feed_forward)


def some_maps(rng: np.random.Generator, n: int) -> tuple[Map, Map, np.ndarray]:
    A, B = rng.normal(size=(2, 3, 3)) / 2
    return lambda X: np.tanh(X @ A), lambda X: np.sin(X @ B) + X.mean(0), rng.normal(size=(n, 3))


def leading(F: Map, C: Map, X: np.ndarray) -> np.ndarray:
    """The difference of the two blocks over t², as t goes to 0: its limit from two values."""
    gap = lambda t: (t * F(X + t * C(X)) - t * F(X)) / t**2
    return 2 * gap(5e-5) - gap(1e-4)


def slope(F: Map, X: np.ndarray, H: np.ndarray) -> np.ndarray:
    return (F(X + 1e-5 * H) - F(X - 1e-5 * H)) / 2e-5


def some_layers(rng: np.random.Generator, n: int) -> tuple[Map, Map, Map, int]:
    F, C, _ = some_maps(rng, n)
    RC, RF = (lambda X: X + C(X)), (lambda X: X + F(X))
    return lambda X: RF(RC(X)), RC, RF, n


def stacked(*order: str) -> Callable[..., Map]:
    """A wrong stack: the layers in this order, "DB" standing for a power of DB."""
    def stack(DB: Map, RC: Map, RF: Map, L: int) -> Map:
        def T(X: np.ndarray) -> np.ndarray:
            for name in order:
                step, times = {"C": (RC, 1), "F": (RF, 1), "DB": (DB, L), "DB-": (DB, L - 1)}[name]
                for _ in range(times):
                    X = step(X)
            return X
        return T
    return stack


def other_way(DB: Map, RC: Map, RF: Map, L: int) -> np.ndarray:
    X = np.random.default_rng(L).normal(size=(4, 3))
    for _ in range(L):
        X = RC(RF(X))
    return X


def contraction(rng: np.random.Generator, n: int) -> tuple[Map, np.ndarray]:
    A = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    return lambda X: 0.7 * np.sin(X @ A + 1), rng.normal(size=(n, 3))


def repeated(start: Callable[[np.ndarray], np.ndarray], steps: int) -> Callable[[Map, np.ndarray], np.ndarray]:
    def undo(f: Map, Z: np.ndarray) -> np.ndarray:
        X = start(Z)
        for _ in range(steps):
            X = Z - f(X)
        return X
    return undo


EXERCISES = [
    function(
        "a function `count(d, f)` that returns the three numbers: attention, feed-forward, normalization",
        [(8, 16), (12, 5), (512, 2048), (1, 1)],
        counted,
        {
            "Queries, keys and values have no biases in the article's block.": lambda d, f: (4 * d * d + 4 * d, 2 * d * f + f + d, 4 * d),
            "The output matrix has a bias.": lambda d, f: (4 * d * d, 2 * d * f + f + d, 4 * d),
            "There are two normalization layers, with a gain and a bias each.": lambda d, f: (4 * d * d + d, 2 * d * f + f + d, 2 * d),
            "The feed-forward layer has two biases.": lambda d, f: (4 * d * d + d, 2 * d * f, 4 * d),
        },
    ),
    function(
        "a function `limit(F, C, X)`: what the difference, sequential less parallel, divided by t² tends to, for smooth F and C"
        " (a difference quotient will do)",
        some_maps,
        leading,
        {
            "The roles are exchanged: the feed-forward layer comes second and hears what attention has added.":
                lambda F, C, X: slope(C, X, F(X)),
            "This is the difference for t = 1, not its limit.": lambda F, C, X: F(X + C(X)) - F(X),
            "The change of F along the rows themselves? The sequential block adds tC(X) to them.": lambda F, C, X: slope(F, X, X),
            "The sign is wrong: sequential less parallel.": lambda F, C, X: -slope(F, X, C(X)),
        },
        tol=1e-4,
    ),
    function(
        "a function `stack(DB, RC, RF, L)` that returns the operator X ↦ (DB* ∘ … ∘ DB*)(X) of L blocks, made from RC = Res(C) and"
        " RF = Res(F), each used once, and DB",
        some_layers,
        other_way,
        {
            "This is the stack of L blocks DB.": stacked("DB"),
            "One DB too many: count the C's.": stacked("F", "DB", "C"),
            "The loose ends are exchanged: DB* begins with F.": stacked("C", "DB-", "F"),
            "A DB is missing for each but one: this is one block DB*.": stacked("F", "C"),
        },
        through=lambda T, DB, RC, RF, L: T(np.random.default_rng(L).normal(size=(4, 3))),
    ),
    function(
        "a function `undo(f, Z)` that returns the solution X of X + f(X) = Z, for a contraction f",
        contraction,
        lambda f, Z: Z,
        {
            "One step is not enough.": repeated(lambda Z: Z, 1),
            "A few steps give a few digits; go on until nothing moves.": repeated(lambda Z: Z, 10),
            "This is f(Z) taken away, and then added at another place: f has to be taken at X.": lambda f, Z: Z - f(Z - f(0 * Z)),
            "This goes forwards: Z + f(Z).": lambda f, Z: Z + f(Z),
        },
        through=lambda X, f, Z: X + f(X),
    ),
]

"""Graders for the exercises of the chapter decoder_block."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from tlm_book.decoder_block import DecoderBlock
from tlm_book.exercises.grading import WrongAnswer, function, holds, value
from tlm_book.spec.decoder_block import decoder_block
from tlm_book.spec.feed_forward import feed_forward
from tlm_book.spec.multi_head import multi_head
from tlm_book.spec.normalization import layer_norm
from tlm_book.spec.operators import agree

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
    """The limit of the difference of the two blocks over t² as t goes to 0, from two values."""
    gap = lambda t: (t * F(X + t * C(X)) - t * F(X)) / t**2
    return 2 * gap(5e-5) - gap(1e-4)


def slope(F: Map, X: np.ndarray, H: np.ndarray) -> np.ndarray:
    return (F(X + 1e-5 * H) - F(X - 1e-5 * H)) / 2e-5


class Counted:
    """A map that counts how often it is called."""

    def __init__(self, f: Map) -> None:
        self.f, self.calls = f, 0

    def __call__(self, X: np.ndarray) -> np.ndarray:
        self.calls += 1
        return self.f(X)

    def __deepcopy__(self, memo: object) -> "Counted":
        return self


def stacked_once(T: Map, DB: Map, RC: Any, RF: Any, L: int) -> np.ndarray:
    """What the stack computes, provided that it uses each loose end at most once."""
    RC.calls = RF.calls = 0
    result = T(np.random.default_rng(L).normal(size=(4, 3)))
    if max(RC.calls, RF.calls) > 1:
        raise WrongAnswer(f"For L = {L} RC is used {RC.calls} times and RF {RF.calls} times. Use each only once; DB does the rest.")
    return result


def some_layers(rng: np.random.Generator, n: int) -> tuple[Map, Map, Map, int]:
    F, C, _ = some_maps(rng, n)
    RC, RF = (lambda X: X + C(X)), (lambda X: X + F(X))
    return lambda X: RF(RC(X)), Counted(RC), Counted(RF), n


def stacked(*order: str) -> Callable[..., Map]:
    """A wrong stack: the layers in this order, where "DB" stands for a power of DB."""
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
    """A contraction, whose q is 0.95 or, for odd n, 0.7, and a matrix Z whose solution lies where the map is steep."""
    q, A = 0.7 if n % 2 else 0.95, np.linalg.qr(rng.normal(size=(3, 3)))[0]
    f = lambda X: q * np.sin(X @ A + 1)
    X = (rng.normal(size=(n, 3)) / 10 - 1) @ A.T
    return f, X + f(X)


def repeated(start: Callable[[np.ndarray], np.ndarray], steps: int) -> Callable[[Map, np.ndarray], np.ndarray]:
    def undo(f: Map, Z: np.ndarray) -> np.ndarray:
        X = start(Z)
        for _ in range(steps):
            X = Z - f(X)
        return X
    return undo


def block_by_hand() -> dict[str, dict[str, Any]]:
    zero, one, norm = np.zeros((2, 2)), np.eye(2), {"a": np.ones(2), "b": np.zeros(2)}
    CA = {"W_Q": zero[None], "W_K": zero[None], "W_V": one[None], "W_O": one, "b_O": np.zeros(2)}
    return {"N_ca": norm, "CA": CA, "N_ff": norm, "FF": {"W_1": one, "b_1": np.zeros(2), "W_2": one, "b_2": np.zeros(2)}}


def same_without_residuals(pair: Any) -> Iterator[tuple[str, object]]:
    X, Y = (np.asarray(Z, dtype=float) for Z in pair)
    yield "Each array has two rows and two columns.", X.shape == Y.shape == (2, 2)
    yield "Some of their entries differ by less than 1.", np.abs(X - Y).min() >= 1
    w = block_by_hand()

    def bare(X: np.ndarray) -> np.ndarray:
        seen = multi_head(layer_norm(X, **w["N_ca"]), **w["CA"])
        return feed_forward(layer_norm(seen, **w["N_ff"]), **w["FF"])

    yield "F(C(X)) and F(C(Y)) are not the same.", agree(bare(X), bare(Y), 1e-3)
    yield "The block itself gives the same for both.", not agree(decoder_block(X, w), decoder_block(Y, w), 1e-3)


def today(d: int, h: int, g: int, k: int, f: int, E: int, m: int, router: int = 1, norms: int = 2, matrices: int = 3) -> tuple[int, int]:
    shared = 2 * d * k * (h + g) + norms * d + router * d * E
    return shared + matrices * d * f * E, shared + matrices * d * f * m

EXERCISES = [
    function(
        "a function `count(d, f)`, f for d_ff, that returns the three numbers of weights: attention, feed-forward, normalization",
        [(8, 16), (12, 5), (512, 2048), (1, 1)],
        counted,
        {
            "Queries, keys and values have no biases in Wojcik's block.": lambda d, f: (4 * d * d + 4 * d, 2 * d * f + f + d, 4 * d),
            "The output matrix has a bias.": lambda d, f: (4 * d * d, 2 * d * f + f + d, 4 * d),
            "There are two normalization layers, with a gain and a bias each.": lambda d, f: (4 * d * d + d, 2 * d * f + f + d, 2 * d),
            "The feed-forward layer has two biases.": lambda d, f: (4 * d * d + d, 2 * d * f, 4 * d),
        },
    ),
    function(
        "a function `limit(F, C, X)` that returns this limit, the difference being sequential minus parallel, for smooth F and C"
        " (a difference quotient will do)",
        some_maps,
        leading,
        {
            "The roles are exchanged: the feed-forward layer comes second and reads what attention has added.":
                lambda F, C, X: slope(C, X, F(X)),
            "This is the difference for t = 1, not the limit.": lambda F, C, X: F(X + C(X)) - F(X),
            "This is the change of F in the direction X. But what the sequential block adds to X is tC(X).": lambda F, C, X: slope(F, X, X),
            "The sign is wrong: sequential minus parallel is wanted.": lambda F, C, X: -slope(F, X, C(X)),
        },
        tol=1e-4,
    ),
    function(
        "a function `stack(DB, RC, RF, L)` that returns the operator X ↦ (DB* ∘ … ∘ DB*)(X) of L blocks, made from DB and from"
        " RC = Res(C) and RF = Res(F), each of these two used once",
        some_layers,
        other_way,
        {
            "This is the stack of L blocks DB.": stacked("DB"),
            "One DB too many: count the C's.": stacked("F", "DB", "C"),
            "The loose ends are exchanged: DB* begins with F.": stacked("C", "DB-", "F"),
            "This is a single block DB*: between the loose ends the blocks DB are missing.": stacked("F", "C"),
            "": lambda DB, RC, RF, L: functools.reduce(lambda T, _: lambda X: RC(RF(T(X))), range(L), lambda X: X),
        },
        through=stacked_once,
    ),
    function(
        "a function `undo(f, Z)` that returns the solution X of X + f(X) = Z, for a contraction f",
        contraction,
        lambda f, Z: Z,
        {
            "One step is not enough.": repeated(lambda Z: Z, 1),
            "A few steps give only a few digits; go on until next to nothing changes.": repeated(lambda Z: Z, 10),
            "The closer q is to 1, the more steps are needed: no fixed number is enough.": repeated(lambda Z: Z, 100),
            "These are two steps from X = 0; many more are needed.": lambda f, Z: Z - f(Z - f(0 * Z)),
            "This goes forward: it is Z + f(Z).": lambda f, Z: Z + f(Z),
        },
        through=lambda X, f, Z: X + f(X),
        tol=1e-7,
    ),
    value(
        "the result, an array of two rows",
        lambda: np.array([[-1.0, 1.0], [1.0, -1.0]]),
        {
            "This is the block in pre-norm form.": np.array([[0.0, 5.0], [5.0, 0.0]]),
            "The last normalization is missing.": np.array([[-1.0, 2.0], [2.0, -1.0]]),
            "This is what the feed-forward layer adds. Add it to its input, then normalize the sum.":
                np.array([[0.0, 1.0], [1.0, 0.0]]),
        },
    ),
    value(
        "an array of two rows: row 1 of the result in the sequential form, then in the parallel form",
        lambda: np.array([[1.5, 3.5], [1.5, 2.5]]),
        {
            "A constant row becomes 0, not ±1.": np.array([[1.5, 3.5], [1.5, 3.5]]),
            "The sequential form comes first.": np.array([[1.5, 2.5], [1.5, 3.5]]),
            "Row 1 gets the average of two normalized rows.": np.array([[1.0, 4.0], [1.0, 3.0]]),
        },
    ),
    holds(
        "a pair (X, Y) of 2 × 2 arrays that differ by at least 1 in every entry and have F(C(X)) = F(C(Y)), though the block tells them apart",
        same_without_residuals,
        [(np.eye(2), np.eye(2)), (np.array([[1.0, 3.0], [4.0, 0.0]]), np.array([[3.0, 1.0], [0.0, 4.0]])),
         (np.array([[1.0, 3.0], [4.0, 0.0]]), np.array([[1.5, 3.5], [4.5, 0.5]])), (np.zeros((3, 2)), np.ones((3, 2)))],
    ),
    function(
        "a function `count_today(d, h, g, k, f, E, m)` that returns the two numbers",
        [(8, 4, 2, 3, 5, 3, 1), (64, 8, 2, 16, 48, 4, 2), (4096, 32, 8, 128, 14336, 8, 2)],
        lambda d, h, g, k, f, E, m: today(d, h, g, k, f, E, m),
        {
            "The router has weights, too, and every row uses them.": lambda d, h, g, k, f, E, m: today(d, h, g, k, f, E, m, router=0),
            "Keys and values have g heads, not h.": lambda d, h, g, k, f, E, m: today(d, h, h, k, f, E, m),
            "RMS norm has no bias.": lambda d, h, g, k, f, E, m: today(d, h, g, k, f, E, m, norms=4),
            "A gated layer has three matrices.": lambda d, h, g, k, f, E, m: today(d, h, g, k, f, E, m, matrices=2),
        },
    ),
]

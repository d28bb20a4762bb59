"""Graders for the exercises of the chapter transformer_lm."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from tlm_book.exercises.grading import function, holds, value
from tlm_book.normalization import RMSNorm
from tlm_book.spec.operators import agree, is_indexed_rowwise, is_rowwise
from tlm_book.transformer_lm import Config, TransformerLM, count_parameters


def random_model(seed: int, **changes: Any) -> TransformerLM:
    small = {"d_model": 8, "d_ff": 16, "n_layers": 2, "n_heads": 2, "max_len": 9}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = TransformerLM(Config(11, **small | changes)).double().eval()
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(0.2 * torch.randn_like(weight))
    return model


def operator(model: TransformerLM) -> Callable[[np.ndarray], np.ndarray]:
    return lambda t: model(torch.from_numpy(np.asarray(t))).detach().numpy()


def half_at_the_ends() -> int:
    """The first V at which the parameters that grow with V reach one half."""
    at_1, per_token = count_parameters(Config(1)), count_parameters(Config(2)) - count_parameters(Config(1))
    return next(V for V in range(1, 10**6) if 2 * V * per_token >= at_1 + (V - 1) * per_token)


def rule_error(d: int, L: int) -> float:
    count = lambda n: count_parameters(Config.gpt2(d_model=d, d_ff=4 * d, n_layers=n, n_heads=1))
    return L * (count(2) - count(1)) / (12 * L * d * d) - 1


def told_apart(L: int, t: Sequence[int], u: Sequence[int]) -> bool:
    T = operator(random_model(0, pe="none", n_layers=L))
    return bool(np.abs(T(np.array(t))[-1] - T(np.array(u))[-1]).max() > 1e-9)


def silence(model: TransformerLM, blocks: slice, positions: bool = False, ends: bool = False) -> None:
    """Set to zero, in place, the output matrices of attention in these blocks, and if wanted the `positions` and the matrix that `ends` the model."""
    with torch.no_grad():
        for block in list(model.blocks)[blocks]:
            block.attention.out.weight.zero_()
        if positions:
            model.position.table.zero_()
        if ends:
            model.unembedding.weight.zero_()


def silence_four_positions(model: TransformerLM) -> None:
    silence(model, slice(None))
    with torch.no_grad():
        model.position.table[:4].zero_()


def silenced(answer: Any) -> Iterator[tuple[str, object]]:
    t, u = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5]), np.array([7, 0, 2, 9, 8, 1, 8, 2, 8])  # as long as the model can read
    models = []
    for change in answer:
        model = random_model(0)
        change(model)
        models.append(operator(model))
    for words, T in zip(("indexed-rowwise", "rowwise"), models):
        yield f"The {words} model gives the same row for all tokens: too much has been silenced.", not agree(T(t[:1]), T(u[:1]), 1e-6)
    T, S = models
    yield "In the first model rows still meet.", is_indexed_rowwise(T, t, u, 1e-9)
    yield "The first model is rowwise: it no longer knows the positions.", not is_rowwise(T, t, 1e-6)
    yield "In the second model rows still meet.", is_indexed_rowwise(S, t, u, 1e-9)
    yield "The second model knows the positions: equal tokens give different rows.", is_rowwise(S, t, 1e-9)


def over_rows(X: np.ndarray, axis: int = 0) -> np.ndarray:
    return (X - X.mean(axis, keepdims=True)) / (X.std(axis, keepdims=True) + 1e-6)


def running(X: np.ndarray) -> np.ndarray:
    """The rows, each standardized by the definition: as the last row when it and the earlier rows alone are standardized."""
    return np.stack([over_rows(X[:i + 1])[-1] for i in range(len(X))])


def shared_spread(X: np.ndarray) -> np.ndarray:
    means = np.cumsum(X, axis=0) / np.arange(1, len(X) + 1)[:, None]
    return (X - means) / (X.std(0) + 1e-6)


def spread_around_old_means(X: np.ndarray) -> np.ndarray:
    count = np.arange(1, len(X) + 1)[:, None]
    U = X - np.cumsum(X, axis=0) / count
    return U / (np.sqrt(np.cumsum(U**2, axis=0) / count) + 1e-6)


def small_llama() -> TransformerLM:
    sizes = {"d_model": 8, "d_ff": 12, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "max_len": 9}
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = TransformerLM(Config.llama(11, **sizes)).double().eval()
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(0.3 * torch.randn_like(weight))
    return model


def gains(model: TransformerLM) -> list[torch.Tensor]:
    return [module.weight for module in model.modules() if isinstance(module, RMSNorm)]


def folded(answer: Any) -> Iterator[tuple[str, object]]:
    model, t = small_llama(), np.array([3, 1, 4, 1, 5])
    before, count = operator(model)(t), len(gains(model))
    answer(model)
    yield "The norms must stay, as RMS norms with gains 1.", len(gains(model)) == count
    yield "Some gains are not 1.", all(bool((weight == 1).all()) for weight in gains(model))
    yield "The logits have changed. Each gain must go into all matrices that read its norm's result.", agree(operator(model)(t), before, 1e-9)


def fold(model: TransformerLM, gate: bool = True, last: bool = True, first: bool = True, inverse: bool = False) -> None:
    """Move the gains into the matrices behind them; the arguments leave some out, for wrong answers."""
    with torch.no_grad():
        for block in model.blocks:
            layer = block.feed_forward
            readers = [(block.norm_attention, block.attention.qkv)] * first + [(block.norm_feed_forward, layer.up)]
            readers += [(block.norm_feed_forward, layer.gate)] * gate
            for norm, reader in readers:
                reader.weight *= 1 / norm.weight if inverse else norm.weight
        if last:
            model.unembedding.weight *= model.norm.weight
        for weight in gains(model):
            weight.fill_(1.0)


EXERCISES = [
    value(
        "the size of the smallest such vocabulary",
        half_at_the_ends,
        {
            "The final layer has a bias: V(2d + 1) numbers, not 2Vd.": 19_954_688 // 1024,
            "This is one too few: round up, not down.": 19_954_688 // 1025,
            "One token fewer is enough: at least half is wanted.": 19_954_688 // 1025 + 2,
            "Embedding and final layer are two matrices here.": 19_954_688 // 512,
            "They must hold half of all parameters, not half as many as the rest.": 19_954_688 // 2050 + 1,
        },
    ),
    function(
        "a function `error(d, L)`: by how much the number of parameters in the blocks of GPT-2 exceeds 12Ld², relative to 12Ld²",
        [(1600, 48), (768, 12), (8, 1), (16, 3)],
        rule_error,
        {
            "The layers' biases are counted, but not the gains and biases of the normalizations.": lambda d, L: 9 / (12 * d),
            "The biases of queries, keys and values are missing.": lambda d, L: 10 / (12 * d),
            "This is a percentage.": lambda d, L: 1300 / (12 * d),
            "Relative to 12Ld², the error does not depend on L.": lambda d, L: 13 / (12 * d) * L,
        },
        tol=1e-9,
    ),
    function(
        "a function `told_apart(L, t, u) -> bool`: whether a model of L blocks without positions can give token sequences t and u of the same length"
        " different last rows",
        [(L, t, u) for L in (1, 2, 3) for t, u in [((1, 2, 3), (2, 1, 3)), ((1, 2, 3), (1, 3, 2)), ((1, 2, 3), (1, 2, 3)), ((1, 1, 2, 3), (1, 2, 2, 3)),
                                                 ((4, 1, 2, 3), (2, 4, 1, 3)), ((1, 2, 4, 5, 3), (2, 1, 4, 5, 3))]],
        told_apart,
        {
            "With one block the order of the rows before the last is lost.": lambda L, t, u: t != u,
            "The mask knows the order: with two blocks even without positions.": lambda L, t, u: (sorted(t), t[-1]) != (sorted(u), u[-1]),
            "With two blocks every row sees all rows before it, not only the nearest ones.":
                lambda L, t, u: t[-L:] != u[-L:] or sorted(t) != sorted(u),
            "The last row knows its own token.": lambda L, t, u: t != u if L > 1 else sorted(t) != sorted(u),
            "One block also sees how often each token stands before the last.": lambda L, t, u: t != u if L > 1 else t[-1] != u[-1],
        },
    ),
    holds(
        "a pair of functions `(indexed, rowwise)`, each of which changes the weights of a `TransformerLM` in place to such weights",
        silenced,
        [(lambda m: silence(m, slice(None)), lambda m: silence(m, slice(None))),
         (lambda m: silence(m, slice(None), True), lambda m: silence(m, slice(None), True)),
         (lambda m: silence(m, slice(1)), lambda m: silence(m, slice(None), True)),
         (lambda m: silence(m, slice(None)), lambda m: silence(m, slice(0), True)),
         (lambda m: silence(m, slice(None)), lambda m: silence(m, slice(None), True, True)),
         (lambda m: silence(m, slice(None)), silence_four_positions)],
    ),
    function(
        "a function `mended(X)`: the autoregressive operator nearest to the proposal, in which row i is standardized, column by"
        " column, over the rows 0, …, i (divide by the standard deviation plus 0.000001)",
        lambda rng, n: (rng.normal(size=(n, 3)),),
        running,
        {
            "This is the proposal: it looks at all positions.": over_rows,
            "This normalizes each row for itself.": lambda X: over_rows(X, 1),
            "The means are running ones, but the standard deviations still depend on later rows.": shared_spread,
            "Earlier rows are compared with their own running means, not with the mean of the rows 0, …, i.": spread_around_old_means,
        },
        tol=1e-6,
    ),
    value(
        "the number of its parameters",
        lambda: 172,
        {
            "The unembedding is tied: one matrix, counted once.": 212,
            "There is one head of keys and values, not two.": 188,
            "A gated layer has three matrices.": 148,
            "An RMS norm has a gain and no bias.": 184,
            "There is a third norm, before the unembedding.": 168,
        },
    ),
    value(
        "a pair: how many parameters there are, and how many one row uses",
        lambda: (404, 260),
        {
            "The router has weights, too.": (388, 244),
            "A row uses two of the four experts.": (404, 404),
            "To choose, a row needs all four logits of the router.": (404, 252),
            "Each expert is a whole gated layer.": (188, 188),
        },
    ),
    holds(
        "a function that changes a `TransformerLM` made by `Config.llama` in place: all gains of its norms $N$ become 1, and its logits"
        " stay the same",
        folded,
        [
            lambda model: None,
            lambda model: fold(model, gate=False),
            lambda model: fold(model, last=False),
            lambda model: fold(model, first=False),
            lambda model: fold(model, inverse=True),
        ],
    ),
    value(
        "a pair of numbers, to two decimals: Δ for n = 10, and Δ for n = 1,000,000",
        lambda: (math.log(9 * 9), math.log(9 * 999_999)),
        {
            "The weight is 0.9, not one half: e^Δ is nine times the sum of the other powers.": (math.log(9), math.log(999_999)),
            "The logarithm is the natural one.": (math.log10(9 * 9), math.log10(9 * 999_999)),
            "With this Δ the row has nine times the weight of each other row, not of all together.": (math.log(9), math.log(9)),
            "The sum of the powers contains that of the row itself: e^Δ / (e^Δ + n − 1) = 0.9.": (math.log(0.9 * 9), math.log(0.9 * 999_999)),
            "There are n − 1 other scores, not n.": (math.log(9 * 10), math.log(9 * 10**6)),
        },
        tol=0.0051,
    ),
]

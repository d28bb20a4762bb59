"""Graders for the exercises of the chapter encoder_decoder."""

import functools
from collections.abc import Callable, Sequence

import numpy as np
import torch

from tlm_book.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from tlm_book.exercises.grading import function, value
from tlm_book.spec.encoder_decoder import decoder
from tlm_book.spec.multi_head import multi_head_attention
from tlm_book.spec.operators import agree


def one_row(rng: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
    return rng.normal(size=(1, 6)), rng.normal(size=(n, 6, 5)), rng.normal(size=(5 * n, 6))


def attended(x: np.ndarray, W_V: np.ndarray, W_O: np.ndarray) -> np.ndarray:
    W_Q, W_K = np.random.default_rng(0).normal(size=(2, len(W_V), 6, 3))
    return multi_head_attention(x, x, x, W_Q, W_K, W_V, W_O)


def by_head(weight: Callable[[int, int], float]) -> Callable[..., np.ndarray]:
    """A wrong answer: a sum over the heads, with a weight for head i of h."""
    def alone(x: np.ndarray, W_V: np.ndarray, W_O: np.ndarray) -> np.ndarray:
        h = len(W_V)
        return x @ sum(weight(i, h) * W_V[i] @ W_O.reshape(h, 5, 6)[i] for i in range(h))
    return alone


def mute() -> set[str]:
    """The matrices that, set to 0 in every cross-attention, make the result independent of the source."""
    rng, found = np.random.default_rng(0), set()

    def draw(*shape: int) -> np.ndarray:
        return rng.normal(size=shape) / 2

    attention = lambda: {"W_Q": draw(2, 6, 3), "W_K": draw(2, 6, 3), "W_V": draw(2, 6, 3), "W_O": draw(6, 6)}
    norm = lambda: {"a": 1 + draw(6), "b": draw(6)}
    blocks = [{"SA": attention(), "CA": attention(), "N_sa": norm(), "N_ca": norm(), "N_ff": norm(),
               "FF": {"W_1": draw(6, 7), "b_1": draw(7), "W_2": draw(7, 6), "b_2": draw(6)}} for _ in range(2)]
    Y, A, B = draw(4, 6), draw(3, 6), draw(5, 6)
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        silent = [w | {"CA": w["CA"] | {name: 0 * w["CA"][name]}} for w in blocks]
        if agree(decoder(Y, A, silent), decoder(Y, B, silent), 1e-9):
            found.add(name)
    return found


def do_not_notice() -> set[str]:
    found = set()
    for pe in ("none", "learned", "sinusoidal"):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = EncoderDecoder(EncoderDecoderConfig(9, d_model=8, d_ff=12, n_heads=2, n_layers=2, max_len=9, pe=pe)).double().eval()
        source, target = torch.tensor([[1, 2, 3]]), torch.tensor([[4, 5]])
        front, key_mask = torch.tensor([[0, 0, 1, 2, 3]]), torch.tensor([[False, False, True, True, True]])
        if torch.allclose(model(front, target, key_mask), model(source, target), rtol=0, atol=1e-9):
            found.add(pe)
    return found


def saved(m: int, n: int, N: int, h: int, d: int, k: int) -> int:
    """The multiplications saved if keys and values are computed once and not in each step, counted one by one."""
    product = lambda rows, inner, columns: rows * inner * columns
    keys_values = sum(product(n, d, k) for _block in range(N) for _head in range(h) for _one in "KV")
    return sum(keys_values for _step in range(m)) - keys_values


def same_to_it(s: Sequence[int], t: Sequence[int]) -> bool:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = EncoderDecoder(EncoderDecoderConfig(9, d_model=8, d_ff=12, n_heads=2, n_layers=2, max_len=9, pe="none")).double().eval()
    one, two = (model(torch.tensor([source]), torch.tensor([[4, 5, 6]])) for source in (s, t))
    return torch.allclose(one, two, rtol=0, atol=1e-9)


@functools.cache
def one_block() -> EncoderDecoder:
    """A decoder of one block without positions, in whose self-attention W_Q = 0."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = EncoderDecoderConfig(9, d_model=8, d_ff=12, n_heads=2, n_layers=1, max_len=9, pe="none")
        model = EncoderDecoder(config).double().eval()
    torch.nn.init.zeros_(model.decoder[0].self_attention.query.weight)
    return model


def same_last_row(s: Sequence[int], t: Sequence[int]) -> bool:
    one, two = (one_block()(torch.tensor([[7, 8]]), torch.tensor([target]))[0, -1] for target in (s, t))
    return torch.allclose(one, two, rtol=0, atol=1e-9)


def repeated(s: Sequence[int], t: Sequence[int]) -> bool:
    """Whether one of the two has the tokens of the other, each as many times as often."""
    short, long = sorted((list(s), list(t)), key=len)
    return sorted(short * (len(long) // len(short))) == sorted(long)


def counted() -> int:
    config = EncoderDecoderConfig(10, d_model=4, n_heads=2, d_head=2, d_value=3, d_ff=8, n_layers=1)
    return sum(w.numel() for w in EncoderDecoder(config).parameters())


def heard() -> np.ndarray:
    scores = np.array([[0, np.log(3), -np.inf], [np.log(2), 0, -np.inf]])
    A = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    return A[:, :2] @ np.array([[4.0, 0.0], [0.0, 12.0]])


def shares(t: Sequence[int]) -> dict[int, float]:
    return {token: list(t).count(token) / len(t) for token in t}


EXERCISES = [
    function(
        "a function `alone(x, W_V, W_O)` for a row x of shape (1, d), W_V of shape (h, d, v) and W_O of shape (h·v, d): what self-attention computes,"
        " without queries and keys",
        one_row,
        attended,
        {
            "This is the first head only, which is right if there is no other.": by_head(lambda i, h: float(i == 0)),
            "The heads are added, not averaged.": by_head(lambda i, h: 1 / h),
            "A softmax of one number is 1; nothing is divided by the root of the width.": by_head(lambda i, h: 1 / np.sqrt(3)),
            "Here the row itself is added: this is the residual layer.": lambda x, W_V, W_O: x + by_head(lambda i, h: 1.0)(x, W_V, W_O),
        },
    ),
    value(
        'the set of those of the matrices "W_Q", "W_K", "W_V", "W_O" that make the result of the decoder independent of the source when they are'
        " zero in every cross-attention",
        mute,
        {
            "W_O comes after the values: what does it pass on when it is 0?": {"W_V"},
            "With W_Q = 0 all scores are equal, but the values are still averaged.": {"W_Q", "W_V", "W_O"},
            "Equal scores do not silence the source: the average still depends on it.": {"W_Q", "W_K", "W_V", "W_O"},
            "Without keys every row of the memory is heard alike. And without values?": {"W_K"},
        },
    ),
    value(
        'the set of those of the position encodings "none", "learned", "sinusoidal" with which a model does not notice',
        do_not_notice,
        {
            "Every token stands two places later: a table of positions notices.": {"none", "learned", "sinusoidal"},
            "Sinusoids are added to the rows: the scores depend on the positions themselves, not only on their distance.": {"none", "sinusoidal"},
            "One of them does not notice: the encoder has no mask but that of the padding.": set(),
            "Learned positions differ from place to place as well.": {"none", "learned"},
        },
    ),
    function(
        "a function `saved(m, n, N, h, d, k)` for n source tokens, rows of width d, and N blocks of h heads, with keys and values of width k",
        [(5, 4, 2, 2, 8, 4), (1, 4, 2, 2, 8, 4), (10, 1, 1, 1, 3, 2), (7, 20, 6, 8, 512, 64)],
        saved,
        {
            "It has to be done once: m − 1 times are saved.": lambda m, n, N, h, d, k: 2 * m * N * h * n * d * k,
            "Keys and values are two matrices.": lambda m, n, N, h, d, k: (m - 1) * N * h * n * d * k,
            "Every block has keys and values of its own.": lambda m, n, N, h, d, k: 2 * (m - 1) * h * n * d * k,
            "Every row of the memory is multiplied.": lambda m, n, N, h, d, k: 2 * (m - 1) * N * h * d * k,
            "This is what caching the target's own rows saves.": lambda m, n, N, h, d, k: m * (m - 1) * N * h * d * k,
        },
    ),
    function(
        "a function `same_to_it(s, t) -> bool`: does a model without positions give the same scores for two sources s and t (tuples of tokens), whatever"
        " the target and the weights are?",
        [(s, t) for s, t in [((1, 2), (2, 1)), ((1, 2), (1, 2, 2)), ((1, 2), (2, 1, 1, 2)), ((3,), (3, 3, 3)), ((1, 2), (1, 3)), ((1, 1, 2), (1, 2, 2)),
                             ((1, 2, 3), (1, 2, 3)), ((1, 1, 2), (2, 1, 1, 1, 2, 1)), ((1, 2, 1, 2), (2, 1, 2, 1, 1, 2)), ((3, 3), (3,))]],
        same_to_it,
        {
            "More than the order is lost: let every token occur twice.": lambda s, t: sorted(s) == sorted(t),
            "It matters not only which tokens occur: one that occurs twice is heard twice as much.": lambda s, t: set(s) == set(t),
            "The order is lost.": lambda s, t: s == t,
            "Something is left: other tokens give other scores.": lambda s, t: True,
            "The shares may be equal though neither source repeats the other: let one occur twice and the other three times.": repeated,
        },
    ),
    value(
        "the number of weights",
        counted,
        {
            "The gains and biases of the five normalizations are missing.": 482,
            "There are three attentions, one in the encoder and two in the decoder.": 442,
            "The attentions have no biases.": 576,
            "Both languages share one table.": 562,
            "The feed-forward layers have two biases each.": 498,
        },
    ),
    value(
        "a 2 × 2 array, one row for each row of the target",
        heard,
        {
            "The third source row is padding: its weight is 0, and the other weights sum to 1.": np.array([[0.8, 7.2], [2.0, 3.0]]),
            "Row 0 of the target looks at both real rows of the source: no causal mask stands between.": np.array([[4.0, 0.0], [8 / 3, 4.0]]),
            "The weights are proportional to the exponentials of the scores.": np.array([[0.0, 12.0], [4.0, 0.0]]),
        },
    ),
    function(
        "a function `same_last_row(s, t) -> bool`: whether the last rows for the targets s and t, two tuples of tokens, are always equal",
        [(s, t) for s, t in [((1, 2, 3), (2, 1, 3)), ((1, 2, 3), (1, 3, 2)), ((1, 2), (1, 2, 1, 2)), ((3,), (3, 3)), ((1, 2, 2), (1, 1, 2)),
                             ((1, 2, 3), (1, 2, 3)), ((4, 1, 2), (5, 1, 2)), ((1, 1, 2, 2), (2, 1)), ((1, 2, 1, 2), (2, 1, 1, 2, 1, 2)), ((3, 3), (3,))]],
        same_last_row,
        {
            "A weighted mean forgets the order: earlier tokens may change places.": lambda s, t: s == t,
            "It knows shares, not numbers: let every token occur twice.": lambda s, t: s[-1] == t[-1] and sorted(s) == sorted(t),
            "The residual adds the row of the last token itself: the last tokens must be equal.": lambda s, t: shares(s) == shares(t),
            "The earlier tokens are heard in the weighted mean.": lambda s, t: s[-1] == t[-1],
            "The shares may be equal though neither target repeats the other.": lambda s, t: s[-1] == t[-1] and repeated(s, t),
        },
    ),
]

"""The models that a transformer has to beat: they count how often tokens follow one another. Written by hand.

The formulas are those of `tlm_book.spec.training`, which takes one history at a time; here all are done at once, and only what occurs is stored.
"""

import numpy as np
from jaxtyping import Float, Int, Integer
from torch import Tensor

from tlm_book.checks import expects, expects_kind, expects_tokens

__all__ = [
    "KneserNey",
    "bigram",
    "bigram_log_probs",
    "discount_table",
    "gram_codes",
    "kneser_ney_log_probs",
    "look_up",
    "trigram",
    "unigram",
    "unigram_log_probs",
]


def _as_numbers(vocab_size: int, **texts: Integer[np.ndarray, "..."]) -> list[Int[np.ndarray, "..."]]:
    """The texts in 64 bits, so that codes of several tokens fit. Errors as in `expects_tokens`."""
    for name, text in texts.items():
        expects_tokens(name, text, vocab_size)
    return [np.asarray(text, np.int64) for text in texts.values()]


def unigram_log_probs(
    train: Integer[np.ndarray, "N"], tokens: Integer[np.ndarray, "K"], vocab_size: int
) -> Float[np.ndarray, "K"]:
    """log((c(b) + 1) / (N + V)) for each token b, which occurs c(b) times, whatever stands before it. Errors as in `expects_tokens`."""
    train, tokens = _as_numbers(vocab_size, train=train, tokens=tokens)
    counts = np.bincount(train, minlength=vocab_size) + 1
    return np.log(counts / counts.sum())[tokens]


def bigram_log_probs(
    train: Integer[np.ndarray, "N"], previous: Integer[np.ndarray, "K"], tokens: Integer[np.ndarray, "K"], vocab_size: int, discount: float
) -> Float[np.ndarray, "K"]:
    """log p(b | a) for each pair (a, b) of `previous` and `tokens`, counted in `train`, by absolute discounting. (T-bigram)

    p(b | a) = (max(c(a, b) − D, 0) + D · r(a) · q(b)) / c(a), and q(b) if a never occurs; see `spec.training.bigram_table`,
    which computes the whole table. ValueError for a discount outside [0, 1], and for other numbers of tokens than of previous ones; errors
    for tokens as in `expects_tokens`.
    """
    V, D = vocab_size, discount
    expects(0 <= D <= 1, "discount", D, "a number from 0 to 1")
    train, previous, tokens = _as_numbers(V, train=train, previous=previous, tokens=tokens)
    expects(previous.shape == tokens.shape, "previous", f"shape {previous.shape}", f"{tokens.shape}, one before each token")
    pairs, c = np.unique(train[:-1] * V + train[1:], return_counts=True)
    first, second = np.divmod(pairs, V)
    c_a = np.bincount(train[:-1], minlength=V)
    r = np.bincount(first, minlength=V)
    q = (np.bincount(second, minlength=V) + 1) / (len(pairs) + V)
    c_ab = look_up(pairs, c, previous * V + tokens)
    seen = c_a[previous] > 0
    total = np.where(seen, c_a[previous], 1)
    p = (np.maximum(c_ab - D, 0) + D * r[previous] * q[tokens]) / total
    return np.log(np.where(seen, p, q[tokens]))


def look_up(
    keys: Int[np.ndarray, "G"], values: Int[np.ndarray, "G"] | Float[np.ndarray, "G"], wanted: Int[np.ndarray, "K"]
) -> Int[np.ndarray, "K"] | Float[np.ndarray, "K"]:
    """The value of each wanted key, or 0 if there is no such key; `keys` must be sorted.

    >>> look_up(np.array([2, 5]), np.array([10, 20]), np.array([5, 3]))
    array([20,  0])
    """
    if not len(keys):
        return np.zeros(wanted.shape, values.dtype)
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[place] == wanted, values[place], 0)


def gram_codes(x: Int[np.ndarray, "*batch N"], k: int, V: int) -> Int[np.ndarray, "*batch M"]:
    """A number for each run of k consecutive tokens, of which they are the digits in base V.

    >>> gram_codes(np.array([1, 2, 3]), 2, 10)
    array([12, 23])
    """
    code = np.zeros((*x.shape[:-1], x.shape[-1] - k + 1), dtype=np.int64)
    for i in range(k):
        code = code * V + x[..., i : i + code.shape[-1]]
    return code


def discount_table(c: Int[np.ndarray, "G"]) -> Float[np.ndarray, "4"]:
    """The discounts D(0), D(1), D(2), D(3) from the counts c ≥ 1 of one order: `spec.training.discounts`, for all counts at once."""
    n, k = np.bincount(np.minimum(c, 5), minlength=6), np.arange(1, 4)
    Y = n[1] / max(n[1] + 2 * n[2], 1)
    D = k - (k + 1) * Y * n[2:5] / np.maximum(n[1:4], 1)
    return np.append(0.0, np.where((D > 0) & (D < k), D, k / 2))


class KneserNey:
    """The model of Kneser and Ney of the given order: the text is counted once, for any number of questions. (T-kneser-ney)

    See `spec.training.kneser_ney`, which does one history at a time. ValueError for a text of no more than `order` tokens, or if
    V^order does not fit in 64 bits; errors for tokens as in `expects_tokens`.
    """

    def __init__(self, train: Integer[np.ndarray, "N"], order: int, vocab_size: int) -> None:
        V = self.vocab_size = vocab_size
        expects(len(train) > order, "train", f"{len(train)} tokens", f"more than {order}")
        expects(V**order < 2**63, "vocab_size", V, f"V^{order} below 2^63")
        (train,) = _as_numbers(V, train=train)
        self.tables = []
        for k in range(1, order + 1):
            if k == order:
                grams, c = np.unique(gram_codes(train, k, V), return_counts=True)
            else:  # how many different tokens precede each
                longer = np.unique(gram_codes(train, k + 1, V))
                grams, c = np.unique(longer % V**k, return_counts=True)
            D = discount_table(c)
            histories, owner = np.unique(grams // V, return_inverse=True)
            self.tables.append((grams, c, D, histories, np.bincount(owner, c), np.bincount(owner, D[np.minimum(c, 3)])))

    def log_probs(self, history: Integer[np.ndarray, "K m"], tokens: Integer[np.ndarray, "K"]) -> Float[np.ndarray, "K"]:
        """log p(b | h) for each row h of `history`, of order − 1 tokens, and token b. ValueError for other shapes."""
        V, m = self.vocab_size, len(self.tables) - 1
        history, tokens = _as_numbers(V, history=history, tokens=tokens)
        expects(tokens.ndim == 1, "tokens", f"shape {tokens.shape}", "(K), one row of tokens")
        expects(history.shape == (len(tokens), m), "history", f"shape {history.shape}", f"({len(tokens)}, {m}), a row for each token")
        p = np.full(len(tokens), 1 / V)
        for k, (grams, c, D, histories, total, taken) in enumerate(self.tables, 1):
            h = gram_codes(history[:, len(self.tables) - k :], k - 1, V)[:, 0]
            c_hb = look_up(grams, c, h * V + tokens)
            c_h = look_up(histories, total, h)
            new = c_hb - D[np.minimum(c_hb, 3)] + p * look_up(histories, taken, h)
            p = np.where(c_h > 0, new / np.maximum(c_h, 1), p)
        return np.log(p)


def kneser_ney_log_probs(
    train: Integer[np.ndarray, "N"], history: Integer[np.ndarray, "K m"], tokens: Integer[np.ndarray, "K"], vocab_size: int
) -> Float[np.ndarray, "K"]:
    """log p(b | h) for each row h of `history` and token b, in the model of order m + 1 counted in `train`: see `KneserNey`. ValueError for
    anything but a row of m tokens for each token b.
    """
    expects(np.ndim(history) == 2, "history", f"shape {np.shape(history)}", "(K, m), a row for each token")
    return KneserNey(train, history.shape[1] + 1, vocab_size).log_probs(history, tokens)


# Their losses on a held-out text


def _both(train: Int[Tensor, "N"], held_out: Int[Tensor, "K"]) -> list[Integer[np.ndarray, "..."]]:
    """The two texts as arrays. TypeError for anything but tensors, ValueError for several rows and for an empty held-out text."""
    for name, text in (("train", train), ("held_out", held_out)):
        expects_kind(name, text, Tensor, "a tensor of tokens")
        expects(text.dim() == 1, name, f"shape {tuple(text.shape)}", "one row of tokens")
    expects(len(held_out) > 0, "held_out", "no token", "at least one token")
    return [train.cpu().numpy(), held_out.cpu().numpy()]


def unigram(train: Int[Tensor, "N"], held_out: Int[Tensor, "K"], vocab_size: int) -> float:
    """Loss of the unigram model on the held-out tokens, in nats per token. ValueError if there are none, or several rows; errors for
    tokens as in `expects_tokens`."""
    known, x = _both(train, held_out)
    return float(-unigram_log_probs(known, x, vocab_size).mean())


def bigram(train: Int[Tensor, "N"], held_out: Int[Tensor, "K"], vocab_size: int, start: int = 0) -> float:
    """Loss of the bigram model on the held-out tokens, in nats per token, with the best of nine discounts.

    The discount is chosen on the last tenth of the training tokens, with counts from the rest; then all of them are counted. The
    held-out text has no part in the choice. The first held-out token is preceded by `start`. ValueError for fewer than 20
    training tokens; otherwise errors as in `unigram`.
    """
    known, x = _both(train, held_out)
    expects(len(known) >= 20, "train", f"{len(known)} tokens", "at least 20")
    cut = len(known) * 9 // 10

    def loss(counted: np.ndarray, before: int, text: np.ndarray, discount: float) -> float:
        previous = np.concatenate(([before], text[:-1]))
        return float(-bigram_log_probs(counted, previous, text, vocab_size, discount).mean())

    discounts = [k / 10 for k in range(1, 10)]
    best = min(discounts, key=lambda D: loss(known[:cut], int(known[cut - 1]), known[cut:], D))
    return loss(known, start, x, best)


def trigram(train: Int[Tensor, "N"], held_out: Int[Tensor, "K"], vocab_size: int, start: int = 0) -> float:
    """Loss of the Kneser–Ney model of order 3 on the held-out tokens, in nats per token; they are preceded by `start`, twice.
    ValueError as for `kneser_ney_log_probs`; otherwise errors as in `unigram`.
    """
    known, x = _both(train, held_out)
    before = np.concatenate(([start, start], x))
    history = np.stack((before[:-2], before[1:-1]), axis=1)
    return float(-kneser_ney_log_probs(known, history, x, vocab_size).mean())

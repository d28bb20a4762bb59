"""Word vectors. Generated from book/word_vectors.ipynb: edit the notebook, then `make export`."""

import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import regex
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from tlm_book.checks import (
    expects,
    expects_kind,
    expects_numbers,
    expects_positive,
    expects_several,
    expects_shape,
    expects_text,
    expects_whole,
    with_suggestions,
)

__all__ = [
    "words",
    "skip_gram_pairs",
    "sgns_loss",
    "SkipGram",
    "WordVectors",
    "word_vectors",
]


# --- Training in torch


def words(text: str) -> list[str]:
    """The words of a text, in lower case: runs of letters with their accents.

    TypeError if `text` is not a str.

    >>> words("Salt, and salt's cousins.")
    ['salt', 'and', 'salt', 's', 'cousins']
    """
    expects_kind("text", text, str, "str")
    text = unicodedata.normalize("NFC", text).lower()
    return regex.findall(r"\p{L}[\p{L}\p{M}]*", text)


def skip_gram_pairs(tokens: Int[Tensor, "n"], window: int) -> Int[Tensor, "pairs 2"]:
    """All (tokens[i], tokens[j]) with 0 < |i − j| ≤ window, first j = i + 1, i + 2, …,
    then j = i − 1, i − 2, ….
    (T-skip-gram-pairs)

    ValueError if window < 1, or for several rows of tokens; TypeError if window is not
    a whole number, or tokens are not integers in a tensor.
    """
    expects_text("tokens", tokens)
    expects_positive(window=window)
    steps = range(1, min(window, len(tokens) - 1) + 1)
    after = [torch.stack([tokens[:-s], tokens[s:]], dim=1) for s in steps]
    return torch.cat([tokens.new_empty(0, 2), *after, *(p.flip(1) for p in after)])


def sgns_loss(
    e: Float[Tensor, "*batch d"],
    c: Float[Tensor, "*batch d"],
    N: Float[Tensor, "*batch k d"],
) -> Float[Tensor, "*batch"]:
    """−log σ(⟨e, c⟩) − Σ_j log σ(−⟨e, N[j]⟩) for each pair of a batch.
    (T-sgns-loss)

    ValueError if the widths or the batch axes differ.
    """
    shape = tuple(e.shape)
    expects(tuple(c.shape) == shape, "c", f"shape {tuple(c.shape)}", f"{shape}")
    expects_shape("N", N, (*shape[:-1], "k", shape[-1]))
    wants = f"{len(shape) + 1} axes"
    expects(N.ndim == len(shape) + 1, "N", f"shape {tuple(N.shape)}", wants)
    dot = torch.linalg.vecdot
    return F.softplus(-dot(e, c)) + F.softplus(dot(e[..., None, :], N)).sum(-1)


@with_suggestions
@dataclass(frozen=True)
class SkipGram:
    """Settings of `word_vectors`. (T-sgns-loss, T-subsampling)

    window r, negatives k, power α of the noise, subsample threshold τ (None: keep
    all), penalty λ on |e|² + |c|²; words that occur fewer than min_count times are
    deleted first, so the window reaches past them. The step length falls from lr to 0
    in a straight line. TypeError or ValueError for a setting out of range.
    """

    d_model: int = 32
    window: int = 2
    negatives: int = 5
    power: float = 0.75
    subsample: float | None = None
    min_count: int = 5
    penalty: float = 0.02
    epochs: int = 15
    batch_size: int = 2048
    lr: float = 0.015
    seed: int = 0

    def __post_init__(self) -> None:
        whole = (
            "d_model",
            "window",
            "negatives",
            "min_count",
            "epochs",
            "batch_size",
        )
        expects_positive(**{name: getattr(self, name) for name in whole})
        expects_whole(seed=self.seed)
        wants = "a whole number from −2^63 to 2^64 − 1"
        expects(-(2**63) <= self.seed < 2**64, "seed", self.seed, wants)
        expects_numbers(power=self.power, penalty=self.penalty, lr=self.lr)
        wants = "a number from 0 to 1"
        expects(0 <= self.power <= 1, "power", self.power, wants)
        inf = float("inf")
        expects(0 <= self.penalty < inf, "penalty", self.penalty, "a number ≥ 0")
        expects(0 < self.lr < inf, "lr", self.lr, "a positive number")
        tau, wants = self.subsample, "None or a positive number"
        expects_numbers(**{} if tau is None else {"subsample": tau})
        expects(tau is None or tau > 0, "subsample", tau, wants)


@dataclass(frozen=True, eq=False)
class WordVectors:
    """What `word_vectors` found: word number v has the vectors centre[v] (row of E)
    and context[v] (row of C), and the share noise[v] of the drawn contexts.
    """

    words: tuple[str, ...]
    centre: Float[Tensor, "V d"]
    context: Float[Tensor, "V d"]
    noise: Float[Tensor, "V"]

    def number(self, word: str) -> int:
        """The number of a word; ValueError if it has none."""
        wants = f"one of the {len(self.words)} words of the vocabulary"
        expects(word in self.words, "word", repr(word), wants)
        return self.words.index(word)

    def nearest(
        self, word: str, n: int = 5, among: int | None = None
    ) -> list[tuple[str, float]]:
        """The n other words whose centre vectors have the largest cosine with that of
        `word`, and the cosines; if `among` is given, only from so many of the most
        frequent words. ValueError if the word is unknown or a number is below 1,
        TypeError if it is not a whole number."""
        v, among = self.number(word), len(self.words) if among is None else among
        expects_positive(n=n, among=among)
        unit = F.normalize(self.centre, dim=1)
        cosine = (unit @ unit[v])[:among].tolist()
        others = [
            (x, other) for x, other in zip(cosine, self.words) if other != word
        ]
        return [(other, x) for x, other in sorted(others, reverse=True)[:n]]

    def log_probabilities(self) -> Float[Tensor, "V V"]:
        """Row w, column c: log p(c | w), with p(c | w) proportional to q_c exp(M_wc).
        (T-sgns-pmi)"""
        scores = self.centre @ self.context.T + self.noise.log()
        return scores.log_softmax(dim=1)


def _train(
    tokens: list[Tensor], keep: Tensor, noise: Tensor, s: SkipGram, progress: bool
) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(int(s.seed))
    shape, dtype = (len(noise), s.d_model), noise.dtype  # not the default one
    E = 0.1 * torch.randn(shape, generator=draw, dtype=dtype) / s.d_model**0.5
    C = torch.zeros_like(E)
    optimizer = torch.optim.Adam([E.requires_grad_(), C.requires_grad_()])
    for epoch in tqdm(range(s.epochs), disable=not progress, unit="epoch"):
        chance = [torch.rand(len(t), generator=draw, dtype=dtype) for t in tokens]
        thin = [t[u < keep[t]] for t, u in zip(tokens, chance)]
        pairs = torch.cat([skip_gram_pairs(t, s.window) for t in thin])
        expects(len(pairs) > 0, "texts", "no pair of words", "words side by side")
        pairs = pairs[torch.randperm(len(pairs), generator=draw)]
        shape = len(pairs), s.negatives
        drawn = torch.multinomial(noise, shape[0] * shape[1], True, generator=draw)
        batches = pairs.split(s.batch_size), drawn.view(shape).split(s.batch_size)
        for done, (pair, N) in enumerate(zip(*batches)):
            part = (epoch + done / len(batches[0])) / s.epochs
            optimizer.param_groups[0]["lr"] = s.lr * (1 - part)
            e, c = F.embedding(pair[:, 0], E), F.embedding(pair[:, 1], C)
            size = (e**2).sum(-1) + (c**2).sum(-1)
            pair_loss = sgns_loss(e, c, F.embedding(N, C)) + s.penalty * size
            optimizer.zero_grad()
            pair_loss.mean().backward()
            optimizer.step()
    return E.detach(), C.detach()


def word_vectors(
    texts: Iterable[str], settings: SkipGram = SkipGram(), *, progress: bool = False
) -> WordVectors:
    """Skip-gram with negative sampling, trained with Adam on the CPU; the same texts
    and settings give the same vectors. Words are numbered by falling count, those
    with equal counts alphabetically.

    TypeError if `texts` is one str or holds anything but str, or `settings` is no
    SkipGram; ValueError if fewer
    than two words are frequent enough, or if none has a neighbour.
    """
    expects_kind("settings", settings, SkipGram, "a SkipGram")
    s = settings
    expects_several("texts", texts, "several texts, such as a list of str")
    documents = [words(text) for text in texts]
    count = Counter(word for document in documents for word in document)
    kept = sorted((-n, word) for word, n in count.items() if n >= s.min_count)
    number = {word: v for v, (_, word) in enumerate(kept)}
    wants = f"at least 2 that occur {s.min_count} times or more (min_count)"
    expects(len(number) >= 2, "texts", f"{len(number)} words", wants)
    # even if another device is the default, or gradients are switched off
    with torch.device("cpu"), torch.inference_mode(False), torch.enable_grad():
        tokens = [
            torch.tensor([number[word] for word in document if word in number]).long()
            for document in documents
        ]
        counts = torch.tensor([-n for n, _ in kept], dtype=torch.float32)
        noise = counts**s.power / (counts**s.power).sum()
        keep = torch.ones_like(counts)
        if s.subsample is not None:
            keep = (s.subsample * counts.sum() / counts).sqrt().clamp(max=1)
        E, C = _train(tokens, keep, noise, s, progress)
        return WordVectors(tuple(number), E, C, noise)

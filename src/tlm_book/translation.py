"""Translation, from nothing to a sentence. Generated from book/translation.ipynb: edit the notebook, then `make export`."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from tlm_book.checks import (
    expects,
    expects_kind,
    expects_numbers,
    expects_one_of,
    expects_positive,
    expects_several,
    expects_tokens,
    expects_whole,
)
from tlm_book.corpora.french import SentencePair, join_words, split_words
from tlm_book.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from tlm_book.inference.sampling import Sampler
from tlm_book.inference.search import Hypothesis, beams, write
from tlm_book.loss import shift, weighted_loss
from tlm_book.modes import evaluating
from tlm_book.training import (
    TrainConfig,
    choose_device,
    learning_rate,
    parameter_groups,
    train_step,
)

__all__ = [
    "SPECIAL",
    "PADDING",
    "START",
    "STOP",
    "WordList",
    "padded",
    "translation_loss",
    "RECIPE",
    "SIZES",
    "Translator",
    "train_translator",
    "TranslationReader",
    "greedy_search",
    "beam_translations",
    "translate_all",
    "translate",
]


# --- Held out


SPECIAL = ("·", "∅", "×")
PADDING, START, STOP = range(3)


def _expects_str(sentence: object) -> None:
    expects_kind("sentence", sentence, str, "a str")


@dataclass(frozen=True)
class WordList:
    """The words of a language, numbered after three special tokens: padding, start,
    stop. ValueError for a word that is not in the list or twice in it, IndexError for an
    unknown number, TypeError for a text in the place of words.

    >>> french = WordList(("je", "suis"))
    >>> french.encode("je suis"), french.decode([3, 4, STOP, 3])
    ([3, 4], 'je suis')
    """

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        expects_several("words", self.words, "a tuple of words", Sequence)
        for word in self.words:
            expects_kind("words", word, str, "a tuple of words")
        once = len({*self.words}) == len(self.words)
        expects(once, "words", "a word twice", "each word once")

    def __len__(self) -> int:
        return len(SPECIAL) + len(self.words)

    @cached_property
    def number(self) -> dict[str, int]:
        """{word: its number}."""
        return {word: k for k, word in enumerate(self.words, len(SPECIAL))}

    def encode(self, sentence: str) -> list[int]:
        """The numbers of the words."""
        _expects_str(sentence)
        found, wants = split_words(sentence), f"one of the {len(self.words)} words of the list"
        for word in found:
            expects(word in self.number, "sentence", repr(word), wants)
        return [self.number[word] for word in found]

    def decode(self, tokens: Iterable[int]) -> str:
        """The words before the first stop token; other special tokens are left out."""
        found = []
        for token in tokens:
            fits, wants = 0 <= token < len(self), f"from 0 to {len(self) - 1}"
            expects(fits, "tokens", token, wants, IndexError)
            if token == STOP:
                break
            if token >= len(SPECIAL):
                found.append(self.words[token - len(SPECIAL)])
        return join_words(found)


def padded(
    rows: Sequence[Sequence[int]], padding: int = PADDING
) -> Int[Tensor, "batch n"]:
    """Rows of different lengths as one tensor, padded on the right with `padding`."""
    n = max(map(len, rows), default=0)
    filled = [[*row, *[padding] * (n - len(row))] for row in rows]
    return torch.tensor(filled, dtype=torch.long).view(len(rows), n)


# --- What the model learns from


def translation_loss(
    model: EncoderDecoder,
    source: Int[Tensor, "batch n"],
    target: Int[Tensor, "batch m"],
) -> Float[Tensor, ""]:
    """The mean of −log p over all words and stop tokens of the batch; the decoder reads
    `shift(target, START)`. (A-shift-def, M-loss)

    Both are padded on the right with PADDING; `target` is without START, and each
    sentence in it ends with STOP; a row of padding alone is none. ValueError for a START
    in the target, a sentence that does not end with its only STOP, different numbers of
    sentences, and none at all; errors of the model.
    """
    same, wants = len(source) == len(target), f"as many as source, {len(source)}"
    expects(same, "target", f"{len(target)} sentences", wants)
    there, started = target != PADDING, bool((target == START).any())
    expects(not started, "target", "a start marker ∅", "words and a stop token × only")
    place = torch.arange(target.shape[-1]).to(target)
    length = there.sum(-1, keepdim=True)
    last = (place == length - 1) == (target == STOP)
    ends = bool((last & ((place < length) == there)).all())
    wants = "one at the end of each, and no other; padding behind it"
    expects(ends, "target", "a sentence without the stop token ×", wants)
    scores = model(source, shift(target, START), source != PADDING)
    return weighted_loss(scores, target, there.to(scores.dtype))


# --- Training


RECIPE = TrainConfig(
    steps=400, batch_size=64, lr=4e-3, min_lr=0.02, warmup=50, weight_decay=0.01
)
SIZES = {"d_model": 64, "d_ff": 128, "n_layers": 2, "n_heads": 4, "max_len": 32}


@dataclass(frozen=True)
class Translator:
    """A model, and the words of its two languages."""

    model: EncoderDecoder
    french: WordList
    english: WordList


def train_translator(
    pairs: Sequence[SentencePair],
    recipe: TrainConfig = RECIPE,
    *,
    device: str = "cpu",
    **sizes: object,
) -> Translator:
    """A translator that has learned from these pairs and no others, in evaluation mode.

    A pair of your own is SentencePair(split_words(french), split_words(english), ()),
    both from `tlm_book.corpora`; the links are not used. `sizes` override SIZES and may
    be any fields of `EncoderDecoderConfig` but the sizes of the vocabularies. The same
    arguments give the same translator on the same machine. `device` as in
    `choose_device`. TypeError for anything else, and for a text in the place of words;
    ValueError without pairs, for a pair without French words or with words that
    `translate` would not read as they are (with capitals, say), for values that describe
    no model, for a recipe with what only `train` does, and if a loss or its gradient is
    not finite.
    """
    _expects_pairs(pairs)
    _expects_recipe(recipe, sizes)
    French, English = (
        WordList(tuple(sorted({word for side in sides for word in side})))
        for sides in ([p.french for p in pairs], [p.english for p in pairs])
    )
    sources = padded([[French.number[w] for w in p.french] for p in pairs])
    targets = padded([[*(English.number[w] for w in p.english), STOP] for p in pairs])
    fields: dict[str, Any] = {**SIZES, "source_vocab_size": len(French), **sizes}
    config = EncoderDecoderConfig(len(English), **fields)
    gpus = range(torch.cuda.device_count())
    with torch.random.fork_rng(devices=gpus):  # the caller's generators are unchanged
        torch.manual_seed(recipe.seed)
        place = choose_device(device)
        model = EncoderDecoder(config).to(place).train()
        _descend(model, sources.to(place), targets.to(place), recipe)
    return Translator(model.eval(), French, English)


def _descend(
    model: EncoderDecoder,
    sources: Int[Tensor, "N n"],
    targets: Int[Tensor, "N m"],
    recipe: TrainConfig,
) -> None:
    """Change the weights, step by step, along the gradients of random batches."""
    groups = parameter_groups(model, recipe.weight_decay)
    optimizer = torch.optim.AdamW(groups, betas=recipe.betas)
    for step in range(recipe.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, recipe)
        chosen = torch.randint(len(sources), (recipe.batch_size,)).to(sources.device)
        source, target = (_trimmed(rows[chosen]) for rows in (sources, targets))
        read = torch.cat((source, shift(target, START)), dim=-1)
        reader, there = _SideBySide(model, source.shape[-1]), target != PADDING
        found = train_step(reader, optimizer, read, target, recipe, there.float())
        got = f"loss {found[0]} with a gradient of norm {found[1]} at step {step}"
        wants = "finite numbers; try a smaller lr"
        expects(all(map(math.isfinite, found)), "recipe", got, wants)


class _SideBySide(nn.Module):
    """The model in the form that the training step calls, with source and target side
    by side in one tensor. The source has n columns."""

    def __init__(self, model: EncoderDecoder, n: int) -> None:
        super().__init__()
        self.model, self.n = model, n

    def forward(
        self, read: Int[Tensor, "batch n_and_m"]
    ) -> Float[Tensor, "batch m V"]:
        source, target = read[:, : self.n], read[:, self.n :]
        return self.model(source, target, source != PADDING)


def _trimmed(rows: Int[Tensor, "batch n"]) -> Int[Tensor, "batch m"]:
    """The rows without the columns that hold nothing but padding."""
    return rows[:, : int((rows != PADDING).sum(-1).max())]


def _expects_pairs(pairs: Any) -> None:
    expects_several("pairs", pairs, "a list of SentencePair", Sequence)
    expects(len(pairs) > 0, "pairs", "none", "at least one")
    for pair in pairs:
        expects_kind("pairs", pair, SentencePair, "a list of SentencePair")
        for side in (pair.french, pair.english):
            expects_several("pairs", side, "words, not a text: split_words makes them")
        read = split_words(" ".join(map(str, pair.french)))
        wants = f"words of split_words, here {read}"
        expects(read == [*pair.french], "pairs", pair.french, wants)
        expects(read, "pairs", "one without French words", "at least one word in each")


def _expects_recipe(recipe: Any, sizes: Mapping[str, object]) -> None:
    expects_kind("recipe", recipe, TrainConfig, "a TrainConfig")
    for name in ("vocab_size", "source_vocab_size"):
        expects(name not in sizes, name, sizes.get(name), "none: the pairs decide")
    for name in ("token_noise", "activation_checkpointing", "compile"):
        got = getattr(recipe, name)
        expects(not got, f"recipe.{name}", got, "none: a translator learns without it")
    expects_one_of("recipe.products", recipe.products, ("auto",))  # torch's own


# --- In torch


class TranslationReader:
    """A model that has read its sources and writes one target token of each at a time,
    without dropout. (T-encdec-cache, M-one-token-per-step)
    """

    @torch.no_grad()
    def __init__(
        self,
        model: EncoderDecoder,
        source: Int[Tensor, "batch n"],
        key_mask: Bool[Tensor, "batch n"] | None = None,
    ) -> None:
        self.model = model
        with evaluating(model):
            self.state = model.begin(source, key_mask)

    @torch.no_grad()
    def step(self, token: Int[Tensor, "B"]) -> Float[Tensor, "B V"]:
        """The scores after one more token of each translation."""
        with evaluating(self.model):
            scores, self.state = self.model.advance(token, self.state)
        return scores

    def select(self, texts: Int[Tensor, "b"]) -> None:
        """Go on with these translations, in this order; one may come twice."""
        self.state = self.state.select(texts)


def greedy_search(
    model: EncoderDecoder,
    source: Int[Tensor, "batch n"],
    key_mask: Bool[Tensor, "batch n"] | None = None,
    *,
    start: int = START,
    stop: int = STOP,
    max_new: int | None = None,
) -> Int[Tensor, "batch m"]:
    """The likeliest word at each step; a sentence that is over is padded with `stop`.
    (M-autoregressive-inference)

    key_mask: true for real source tokens; None: all. `max_new` words at most, by
    default the model's max_len and never more. Errors as in the model; IndexError for
    start or stop outside the vocabulary, TypeError if one is not a whole number;
    ValueError for no source and for scores that are not finite.
    """
    steps = _expects_search(model, source, start, stop, max_new)
    reader = TranslationReader(model, source, key_mask)
    z = reader.step(source.new_full(source.shape[:1], start))
    return torch.stack([*write(reader.step, z, steps, Sampler(temperature=0), [stop])], 1)


def beam_translations(
    model: EncoderDecoder,
    source: Int[Tensor, "batch n"],
    key_mask: Bool[Tensor, "batch n"] | None = None,
    *,
    width: int = 4,
    length_penalty: float = 0.0,
    start: int = START,
    stop: int = STOP,
    max_new: int | None = None,
) -> list[list[Hypothesis]]:
    """For each source the hypotheses with the highest log P(y) / |y|^length_penalty
    that a beam of this width finds, the best first. (T-beam)

    length_penalty 0 compares probabilities, 1 means per word (length normalization).
    Errors as in `greedy_search` and `beams`.
    """
    expects_positive(width=width)
    steps = _expects_search(model, source, start, stop, max_new)
    reader = TranslationReader(model, source, key_mask)
    z = reader.step(source.new_full(source.shape[:1], start))
    return beams(reader, z, steps, width, length_penalty, [stop])


def _expects_search(
    model: nn.Module, source: Tensor, start: int, stop: int, max_new: int | None
) -> int:
    """Check the arguments of both searches; returns the largest number of new words."""
    expects_kind("model", model, EncoderDecoder, "an EncoderDecoder")
    c: Any = model.config
    expects_tokens("source", source, c.source_vocab_size or c.vocab_size)
    shape = tuple(source.shape)
    expects(len(shape) == 2, "source", f"shape {shape}", "(batch, n)")
    expects(len(source) > 0, "source", "none", "at least one")
    expects_whole(start=start, stop=stop)
    for name, token in (("start", start), ("stop", stop)):
        inside, wants = 0 <= token < c.vocab_size, f"a token from 0 to {c.vocab_size - 1}"
        expects(inside, name, token, wants, IndexError)
    most = c.max_len if max_new is None else max_new
    expects_positive(max_new=most)
    expects(most <= c.max_len, "max_new", most, f"at most max_len = {c.max_len}")
    return most


def translate_all(
    translator: Translator,
    sentences: Sequence[str],
    *,
    width: int = 1,
    length_penalty: float = 0.0,
) -> list[str]:
    """The translations of many sentences at once: greedy for width 1, else the best of
    the beam.

    ValueError for a sentence that has no word, a word that is not in the list, more
    words than the model's max_len, or a width or penalty out of range; TypeError for
    anything but text, a whole width and a number.
    """
    expects_several("sentences", sentences, "a list of str", Sequence)
    expects(len(sentences) > 0, "sentences", "none", "at least one")
    expects_positive(width=width)
    expects_numbers(length_penalty=length_penalty)
    fine = 0 <= length_penalty < float("inf")
    expects(fine, "length_penalty", length_penalty, "a finite number ≥ 0")
    rows = [translator.french.encode(sentence) for sentence in sentences]
    expects(all(rows), "sentences", "one without words", "at least one word in each")
    model = translator.model
    source = padded(rows).to(next(model.parameters()).device)
    real = source != PADDING
    if width == 1:
        found = [*greedy_search(model, source, real)]
    else:
        lists = beam_translations(
            model, source, real, width=width, length_penalty=length_penalty
        )
        found = [best.tokens for best, *_ in lists]
    return [translator.english.decode(row.tolist()) for row in found]


def translate(
    translator: Translator,
    sentence: str,
    *,
    width: int = 1,
    length_penalty: float = 0.0,
) -> str:
    """The translation of one sentence; see `translate_all`. Errors as there, and
    TypeError for anything but a str.
    """
    _expects_str(sentence)
    return translate_all(
        translator, [sentence], width=width, length_penalty=length_penalty
    )[0]

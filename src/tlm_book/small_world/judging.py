"""How well a model knows the small world: the simulator reads what it writes and checks what it answers. Written by hand."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import nn

from tlm_book.checks import expects, expects_positive, expects_several
from tlm_book.inference import generate
from tlm_book.loss import shift
from tlm_book.modes import evaluating
from tlm_book.small_world.faults import proofread
from tlm_book.tokenization import Tokenizer
from tlm_book.training.ngrams import KneserNey
from tlm_book.transformer_lm import TransformerLM

__all__ = ["Writing", "answer_places", "judged", "marked", "ngram_answers", "ngram_stories", "rightly_answered", "written_stories"]


class Writing(NamedTuple):
    """What the simulator finds in stories.

    sentences, grammatical   the number of sentences, and the share of them that belong to the language
    stories, consistent      the number of stories, and the share of them without any fault
    asked, right             the number of questions that can be asked about their story, and the share of them that are answered correctly

    A share of nothing is 1.
    """

    sentences: int
    grammatical: float
    stories: int
    consistent: float
    asked: int
    right: float


def judged(texts: Sequence[str]) -> Writing:
    """The findings in these stories, read by `proofread`. A question that cannot be asked counts as a sentence that is not grammatical.

    TypeError for a single text, ValueError for no stories.
    """
    expects_several("texts", texts, "a list of stories", Sequence)
    expects(len(texts) > 0, "texts", "none", "at least one story")
    verdicts = [proofread(text) for text in texts]
    faults = [fault for v in verdicts for fault in v.faults]
    of_kind = {kind: sum(f.kind == kind for f in faults) for kind in ("grammar", "answer")}
    sentences = sum(v.sentences for v in verdicts)
    asked = sum(v.askable for v in verdicts)
    return Writing(
        sentences, 1 - of_kind["grammar"] / max(1, sentences),
        len(texts), sum(v.consistent for v in verdicts) / max(1, len(texts)),
        asked, 1 - of_kind["answer"] / max(1, asked),
    )  # fmt: skip


def written_stories(model: TransformerLM, tokenizer: Tokenizer, count: int, temperature: float = 1.0, seed: int = 0) -> list[str]:
    """Stories that the model writes from nothing, up to the separator; one that does not end within the context is cut after its last whole line, if it has one.

    Errors: ValueError for a count below 1, TypeError for one that is not a whole number; the others of `generate`.
    """
    expects_positive(count=count)
    chance = torch.Generator().manual_seed(seed)
    begin = [torch.empty(0, dtype=torch.long)] * count
    rows = generate(model, begin, model.config.max_len - 1, start=tokenizer.start, stop=tokenizer.start, generator=chance, temperature=temperature)
    return [_whole(row.tolist(), tokenizer) for row in rows]


def _whole(row: list[int], tokenizer: Tokenizer) -> str:
    ended = tokenizer.start in row
    text = tokenizer.decode(row[: row.index(tokenizer.start)] if ended else row)
    return text if ended else text[: text.rfind("\n") + 1] or text


def marked(text: str, tokenizer: Tokenizer) -> tuple[list[int], list[bool]]:
    """The tokens of a story, with the separator at the end, and which of them belong to an answer."""
    tokens: list[int] = []
    of_answer: list[bool] = []
    for line in text.splitlines(keepends=True):
        question, mark, rest = line.partition("?") if '"' not in line else (line, "", "")
        for part, is_answer in ((question + mark, False), (rest.rstrip("\n"), True), ("\n" if mark else "", False)):
            new = tokenizer.encode(part)
            tokens += new
            of_answer += [is_answer] * len(new)
    return [*tokens, tokenizer.start], [*of_answer, False]


def answer_places(of_answer: Sequence[bool]) -> list[list[int]]:
    """The places of each answer's tokens.

    >>> answer_places([False, True, True, False, True])
    [[1, 2], [4]]
    """
    return [list(group) for is_answer, group in groupby(range(len(of_answer)), key=of_answer.__getitem__) if is_answer]


@torch.no_grad()
def rightly_answered(model: nn.Module, tokenizer: Tokenizer, texts: Sequence[str], at_once: int = 40) -> list[bool]:
    """For each question of these stories, whether every token of the answer is the likeliest one after those before it.

    Questions beyond the model's context are left out. `at_once` texts are read together, which changes nothing but time and memory.
    TypeError for a single text; ValueError if `at_once` is below 1.
    """
    expects_positive(at_once=at_once)
    expects_several("texts", texts, "a list of stories", Sequence)
    config: Any = model.config
    device = next((weight.device for weight in model.parameters()), torch.device("cpu"))  # a stand-in for a model may have no weights
    found: list[bool] = []
    for first in range(0, len(texts), at_once):
        pairs = [marked(text, tokenizer) for text in texts[first : first + at_once]]
        rows = [torch.tensor(tokens)[: config.max_len] for tokens, _ in pairs]
        x = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=tokenizer.start).to(device)  # padding changes nothing before it
        with evaluating(model):
            hits = (model(shift(x, tokenizer.start)).argmax(-1) == x).tolist()
        for row, (_, of_answer) in zip(hits, pairs):
            found += [all(row[i] for i in places) for places in answer_places(of_answer) if places[-1] < len(row)]
    return found


# Models without memory beyond the last few words


def ngram_answers(table: KneserNey, tokenizer: Tokenizer, texts: Sequence[str], before: Int[np.ndarray, "m"]) -> list[bool]:
    """`rightly_answered` for a table of n-grams; `before` holds the n − 1 tokens that precede each story. TypeError for a single text."""
    expects_several("texts", texts, "a list of stories", Sequence)
    found = []
    for text in texts:
        tokens, of_answer = marked(text, tokenizer)
        row = np.concatenate([before, tokens])
        for places in answer_places(of_answer):
            histories = np.stack([row[i : i + len(before)] for i in places])
            found.append(bool((_all_log_probs(table, histories).argmax(1) == np.array(tokens)[places]).all()))
    return found


def _all_log_probs(table: KneserNey, histories: Int[np.ndarray, "K m"]) -> Float[np.ndarray, "K V"]:
    """log p(b | h) for each row h of `histories` and every token b."""
    V = table.vocab_size
    return table.log_probs(np.repeat(histories, V, axis=0), np.tile(np.arange(V), len(histories))).reshape(len(histories), V)


def ngram_stories(table: KneserNey, tokenizer: Tokenizer, count: int, before: Int[np.ndarray, "m"], most: int, seed: int = 0) -> list[str]:
    """Stories drawn from a table of n-grams, of at most `most` tokens each; `before` holds the n − 1 tokens that precede each."""
    chance = np.random.default_rng(seed)
    rows = np.tile(before, (count, 1))
    for _ in range(most):
        p = np.exp(_all_log_probs(table, rows[:, rows.shape[1] - len(before) :])).cumsum(1)
        new = (p < chance.random((count, 1)) * p[:, -1:]).sum(1)
        rows = np.column_stack([rows, new])
    return [_whole(row.tolist(), tokenizer) for row in rows[:, len(before) :]]

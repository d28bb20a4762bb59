"""What is said of a model's stories and answers is what the simulator and the stories say."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tlm_book import small_world
from tlm_book.small_world.judging import (
    answer_places,
    judged,
    marked,
    ngram_answers,
    ngram_stories,
    rightly_answered,
    written_stories,
)
from tlm_book.spec.training import kneser_ney
from tlm_book.tokenization import Tokenizer
from tlm_book.training.ngrams import KneserNey
from tlm_book.transformer_lm import Config, TransformerLM

TEXTS = small_world.stories(60, seed=3, levels=(0, 1, 2))
TOKENIZER = Tokenizer.train(TEXTS, 700)
STORY = "Anna was at the mill. Ben was in the barn.\nWhere was Anna? At the mill.\nWho was with Ben? Ben was in the barn, Anna at the mill: nobody.\n"


@pytest.mark.parametrize(
    "story, grammatical, consistent, asked, right",
    [
        (STORY, 1, 1, 2, 1),
        (STORY.replace("At the mill", "In the barn"), 1, 0, 2, 0.5),
        (STORY.replace("Where was Anna", "Where was Paula"), 0.75, 0, 1, 1),
        (STORY.replace("Ben was in the barn", "Ben the barn in"), 0.5, 0, 1, 1),
        ('"Why?" said Anna. Where was? Ben.\n' + STORY, 1 - 3 / 7, 0, 2, 1),
        ("", 1, 1, 0, 1),
        ('"Why?" said Anna. Who had the net?\nWho had the net?', 0, 0, 0, 1),
    ],
)
def test_stories_are_judged_as_the_simulator_reads_them(story, grammatical, consistent, asked, right):
    found = judged([story])
    assert (found.grammatical, found.consistent, found.asked, found.right) == (grammatical, consistent, asked, right)
    both = judged([story, STORY])
    assert both.stories == 2 and both.consistent == (consistent + 1) / 2 and both.asked == asked + 2


@pytest.mark.parametrize("text", [*TEXTS[:5], 'Anna said: "Where is the key?" Ben went.\nWhere was Anna? At the mill.\n'])
def test_marked_are_the_answers(text):
    tokens, of_answer = marked(text, TOKENIZER)
    assert TOKENIZER.decode(tokens[:-1]) == text and tokens[-1] == TOKENIZER.start and len(tokens) == len(of_answer)
    answers = [line.partition("?")[2] for line in text.splitlines() if "?" in line and '"' not in line]
    assert [TOKENIZER.decode([tokens[i] for i in places]) for places in answer_places(of_answer)] == answers


class Knows(torch.nn.Module):
    """Expects after each row of TEXTS what stands there; after those in `forgotten`, something else."""

    config = SimpleNamespace(max_len=400)

    def __init__(self, forgotten=()):
        super().__init__()
        self.rows = [marked(text, TOKENIZER)[0] for text in TEXTS]
        self.forgotten = forgotten

    def forward(self, read):
        wanted = torch.zeros(read.shape, dtype=torch.long)
        for row, x in zip(wanted, read.tolist()):
            (k,) = (k for k, t in enumerate(self.rows) if x[1 : len(t)] == t[: len(x) - 1][: len(t) - 1])
            row[: len(self.rows[k])] = torch.tensor(self.rows[k])[: len(row)] + (k in self.forgotten)
        return torch.nn.functional.one_hot(wanted % len(TOKENIZER), len(TOKENIZER)).float()


def test_answers_are_right_when_every_token_is():
    asked = [sum("?" in line and '"' not in line for line in text.splitlines()) for text in TEXTS]
    found = rightly_answered(Knows(), TOKENIZER, TEXTS, at_once=7)
    assert found == [True] * sum(asked)
    found = rightly_answered(Knows({2}), TOKENIZER, TEXTS, at_once=7)
    assert found == [i not in range(sum(asked[:2]), sum(asked[:3])) for i in range(sum(asked))]


def test_questions_beyond_the_context_are_left_out():
    short = Knows()
    _, of_answer = marked(TEXTS[0], TOKENIZER)
    second = answer_places(of_answer)[1]
    short.config = SimpleNamespace(max_len=second[-1])
    assert rightly_answered(short, TOKENIZER, TEXTS[:1]) == [True]
    short.config = SimpleNamespace(max_len=second[-1] + 1)
    assert rightly_answered(short, TOKENIZER, TEXTS[:1]) == [True, True]


def test_a_model_writes_what_it_draws():
    torch.manual_seed(0)
    model = TransformerLM(Config(len(TOKENIZER), d_model=16, d_ff=16, n_layers=1, n_heads=2, max_len=24, tied=True))
    written = written_stories(model, TOKENIZER, 5, seed=1)
    assert len(set(written)) == 5 and written == written_stories(model, TOKENIZER, 5, seed=1) != written_stories(model, TOKENIZER, 5, seed=2)
    longest = max(len(TOKENIZER.decode([t])) for t in range(len(TOKENIZER)))
    assert all(0 < len(text) <= 23 * longest and "<|" not in text for text in written)


def test_ngrams_answer_and_write_by_their_probabilities():
    train = np.array([t for text in TEXTS for t in marked(text, TOKENIZER)[0]])
    V, order = len(TOKENIZER), 3
    table, before = KneserNey(train, order, V), train[-2:]
    tokens, of_answer = marked(TEXTS[1], TOKENIZER)
    row = [*before, *tokens]
    right = []
    for places in answer_places(of_answer):
        likeliest = [np.argmax(kneser_ney(train, V, tuple(row[i : i + 2]))) for i in places[:1]]
        likeliest += [table.log_probs(np.array([row[i : i + 2]] * V), np.arange(V)).argmax() for i in places[1:]]
        right.append(likeliest == [tokens[i] for i in places])
    assert ngram_answers(table, TOKENIZER, TEXTS[1:2], before) == right
    written = ngram_stories(table, TOKENIZER, 30, before, 40, seed=0)
    assert len(set(written)) > 25 and written == ngram_stories(table, TOKENIZER, 30, before, 40, seed=0)
    seen = {tuple(train[i : i + 2]) for i in range(len(train) - 1)}
    pairs = [pair for text in written for pair in zip(TOKENIZER.encode(text), TOKENIZER.encode(text)[1:])]
    assert np.mean([pair in seen for pair in pairs]) > 0.6  # mostly what was read; of pairs drawn at random one in a hundred is


def test_another_seed_draws_other_stories_from_a_table():
    train = np.array([t for text in TEXTS for t in marked(text, TOKENIZER)[0]])
    table = KneserNey(train, 2, len(TOKENIZER))
    one, other = (ngram_stories(table, TOKENIZER, 3, train[-1:], 20, seed=seed) for seed in (0, 1))
    assert one != other


def test_a_story_that_does_not_end_is_cut_after_its_last_whole_line():
    train = np.array([t for text in TEXTS for t in marked(text, TOKENIZER)[0]])
    written = ngram_stories(KneserNey(train, 3, len(TOKENIZER)), TOKENIZER, 8, train[-2:], 150)
    assert all(text.endswith("\n") or "\n" not in text for text in written) and sum("\n" in text for text in written) > 4

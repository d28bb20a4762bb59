"""The lessons of the small world: what they hold is true, they end when they should, and a course that was stopped goes on as if it had not been."""

import json
import math
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from test_parity import needs_gpu

from tlm_book.small_world import LEVELS, learning, proofread
from tlm_book.small_world import __main__ as command
from tlm_book.small_world import lessons as teaching
from tlm_book.small_world.learning import RunSettings, learn_world, rate
from tlm_book.small_world.lessons import (
    ANSWER,
    COMPANY,
    COPY,
    FACTS,
    LESSONS,
    Lesson,
    batch_of,
    company,
    copied,
    facts,
    row_of,
    text_of,
)
from tlm_book.training import load
from tlm_book.transformer_lm import Config

TINY = RunSettings(vocab_size=700, stories=60, tokens=800, warmup=3, every=2)
LESSONS_TINY = (Lesson((COPY,), 32, 3, enough=2, most=4), Lesson((COPY, FACTS), 40, 2, enough=2, most=2), Lesson((COMPANY, LEVELS[0]), 48, 2, enough=0))
SMALL = Config(700, d_model=16, d_ff=16, n_layers=1, n_heads=2, max_len=400, pe="rotary", tied=True)


@pytest.fixture(scope="module")
def tokenizer():
    return learning.world_tokenizer(700, 60)


@pytest.mark.parametrize("write", [facts, company])
def test_the_simulator_finds_no_fault_in_facts_and_company(write):
    """In facts, where they are about people; those about things are told in words that no story uses ("The key was")."""
    texts = [text for text in (write(random.Random(i)) for i in range(200)) if "he " not in text.split(" was ")[0]]
    assert len(texts) > 80 and all(v.consistent and v.asked > 1 for v in map(proofread, texts))
    if write is company:
        answers = [line.partition("? ")[2] for text in texts for line in text.splitlines()[1:]]
        assert any(a.endswith(": nobody.") for a in answers) and any(" and " in a for a in answers)


def test_what_is_copied_comes_again_and_only_then_weighs():
    for seed in range(50):
        row, weights = copied(64, 1000, random.Random(seed))
        k = weights.index(1.0) - 1
        assert len(row) == len(weights) == 64 and 8 <= k <= 24 and row[k:] == row[:-k] and len(set(row[:k])) >= k - 2
        assert set(weights[: k + 1]) == {0.0} and set(weights[k + 1 :]) == {1.0}


@pytest.mark.parametrize("kind", [FACTS, COMPANY, LEVELS[1]])
def test_what_weighs_is_the_answers(kind, tokenizer):
    row, weights = row_of(kind, 400, tokenizer, random.Random(1))
    assert len(row) == len(weights) == 400
    assert set(weights) == {ANSWER, 1.0 if kind == LEVELS[1] else 0.0}
    answers = tokenizer.decode([t for t, w in zip(row, weights) if w == ANSWER])
    first = text_of(kind, random.Random(1)) if isinstance(kind, str) else tokenizer.decode(row).split("<|")[0]
    wanted = "".join(line.partition("?")[2] for line in first.splitlines() if "?" in line and '"' not in line)
    assert answers.startswith(wanted) and wanted


def test_rows_take_the_kinds_in_turn_and_are_the_same_again(tokenizer):
    lesson = LESSONS_TINY[1]
    tokens, weights = batch_of(lesson, tokenizer, 0, 3)
    again, _ = batch_of(lesson, tokenizer, 0, 3)
    other, _ = batch_of(lesson, tokenizer, 0, 4)
    assert tokens.shape == weights.shape == (2, 40) and torch.equal(tokens, again) and not torch.equal(tokens, other)
    assert set(weights[0].tolist()) == {0.0, 1.0} and set(weights[1].tolist()) == {0.0, ANSWER}


def test_up_level_down():
    s = RunSettings(tokens=1000, warmup=10, cooling=0.25, lowest=0.1)
    assert [rate(0, 0, s), rate(4, 50, s), rate(9, 90, s), rate(50, 750, s)] == [0.1, 0.5, 1.0, 1.0]
    assert rate(60, 875, s) == pytest.approx(0.55) and rate(70, 1000, s) == rate(80, 1001, s) == 0.1


def test_stopped_it_goes_on_as_if_it_had_not_been(tmp_path, monkeypatch, capsys):
    whole = learn_world(tmp_path / "new" / "folders" / "whole", TINY, LESSONS_TINY, SMALL)
    said = capsys.readouterr().out.splitlines()
    log = [json.loads(line) for line in (whole / "log.jsonl").read_text().splitlines()]
    assert len(said) == len(log) and [entry["lesson"] for entry in log] == [0, 0, 1] + [2] * (len(log) - 3)
    assert log[-1]["tokens"] >= 800 and not whole.with_name("whole.state").exists()
    training = json.loads((whole / "config.json").read_text())["training"]
    assert (training["lr"], training["min_lr"], training["warmup"], training["batch_size"]) == (TINY.lr, TINY.lowest, TINY.warmup, 3)

    true_step, done = learning.train_step, []

    def interrupted(*args):
        done.append(None)
        if len(done) == 6:
            raise KeyboardInterrupt
        return true_step(*args)

    monkeypatch.setattr(learning, "train_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        learn_world(tmp_path / "again", TINY, LESSONS_TINY, SMALL, progress=False)
    assert not (tmp_path / "again").exists()
    for other, lessons, name in ((TINY._replace(lr=0.01), LESSONS_TINY, "lr: got 0.01"), (TINY, LESSONS_TINY[:2], "lessons: got")):
        with pytest.raises(ValueError, match=f"{name}.*again.state was begun"):
            learn_world(tmp_path / "again", other, lessons, SMALL, progress=False)
    again = learn_world(tmp_path / "again", TINY, LESSONS_TINY, SMALL, progress=False)
    assert capsys.readouterr().out == ""
    (a, _), (b, _) = load(whole), load(again)
    assert all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values()))
    with pytest.raises(FileExistsError, match="out: got .*which exists"):
        learn_world(again, TINY, LESSONS_TINY, SMALL)


def test_a_run_goes_on_when_the_config_has_a_new_field(tmp_path):
    """What was kept before there was such a field means its default."""
    course = learning._Course(TINY, LESSONS_TINY, SMALL, "cpu", False)
    course.keep(tmp_path / "state")
    kept = torch.load(tmp_path / "state", weights_only=True)
    del kept["asked_for"]["config"]["window"]
    torch.save(kept, tmp_path / "state")
    course.take_up(tmp_path / "state")
    kept["asked_for"]["config"]["window"] = 5
    torch.save(kept, tmp_path / "state")
    with pytest.raises(ValueError, match="config: got"):
        course.take_up(tmp_path / "state")


def test_a_link_that_leads_nowhere_is_refused_before_the_first_step(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError, match="out: got .*link.*which exists"):
        learn_world(tmp_path / "link", TINY, LESSONS_TINY, SMALL)


def test_no_lessons_and_no_rows_are_refused(tmp_path, tokenizer):
    with pytest.raises(ValueError, match="lessons: got none, want at least one"):
        learn_world(tmp_path / "new", TINY, (), SMALL)
    model = learning.TransformerLM(SMALL)
    with pytest.raises(ValueError, match="count: got 0"):
        learning.share_right(FACTS, model, tokenizer, 0)


def test_an_unknown_kind_and_texts_without_questions_are_refused(tokenizer):
    model = learning.TransformerLM(SMALL)
    for kind in ("fact", COPY):
        with pytest.raises(ValueError, match=f"kind: got '{kind}', want one of 'facts', 'company'"):
            teaching.text_of(kind, random.Random(0))
    with pytest.raises(ValueError, match="kind: got Level.*without a question within"):
        learning.share_right(LEVELS[0]._replace(questions=0), model, tokenizer, 1)


class Copies(learning.TransformerLM):
    """It repeats what it has read, as soon as one token has come again."""

    def forward(self, read):
        wanted = torch.zeros_like(read)
        for row, x in zip(wanted, read[:, 1:].tolist()):
            for t in range(len(row)):
                k = next((k for k in range(8, t) if x[k:t] == x[: t - k]), None)
                row[t] = 0 if k is None else x[t - k]
        return torch.nn.functional.one_hot(wanted, self.config.vocab_size).float()


def test_the_share_of_right_copies_is_that_of_what_can_be_known(tokenizer):
    assert learning.share_right(COPY, Copies(SMALL), tokenizer) == 1.0
    assert learning.share_right(COPY, learning.TransformerLM(SMALL), tokenizer) < 0.1


def losses(folder):
    return torch.tensor([json.loads(line)["loss"] for line in (folder / "log.jsonl").read_text().splitlines()])


@pytest.mark.long
def test_compiled_it_learns_the_same(tmp_path):
    """In a process without the checker of signatures, which no compiled graph holds."""
    program = "import sys; sys.path += ['tests/unit', 'tests/support']; from pathlib import Path; from test_lessons import *; [learn_world(Path(sys.argv[1]) / str(c), TINY, LESSONS_TINY, SMALL, False, compile=c) for c in (False, True)]"
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, cwd=Path(__file__).parents[2])
    torch.testing.assert_close(losses(tmp_path / "True"), losses(tmp_path / "False"), rtol=0, atol=1e-3)


@needs_gpu
def test_on_a_gpu_it_learns_the_same(tmp_path):
    cpu, gpu = (learn_world(tmp_path / device, TINY, LESSONS_TINY, SMALL, progress=False, device=device) for device in ("cpu", "cuda"))
    torch.testing.assert_close(losses(gpu), losses(cpu), rtol=0, atol=1e-2)


def test_the_model_has_at_most_a_million_weights():
    from tlm_book.transformer_lm import TransformerLM

    assert sum(w.numel() for w in TransformerLM(learning.settings()).parameters()) <= 1_000_000
    assert max(lesson.context for lesson in LESSONS) <= learning.settings().max_len


@pytest.mark.parametrize("given, word", [(["--out", "."], "--out: got"), (["--out", "new", "--tokens", "0"], "--tokens: got 0"), (["--out", "new", "--device", "foo"], "--device: got 'foo'"), ([], "--out")])
def test_the_command_refuses_at_once(given, word, tmp_path):
    run = subprocess.run([sys.executable, "-m", "tlm_book.small_world", *given], capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 2 and word in run.stderr and "Traceback" not in run.stderr


@pytest.mark.parametrize(("given", "tokens"), [([], RunSettings().tokens), (["--tokens", "5"], 5)])
def test_the_command_reads_as_many_tokens_as_it_is_told(given, tokens, monkeypatch):
    asked = []
    monkeypatch.setattr(learning, "learn_world", lambda out, s, **options: asked.append((out, s)))
    command.main(["--out", "new", "--device", "cpu", *given])
    assert asked == [(Path("new"), RunSettings(tokens=tokens))]


@pytest.mark.parametrize("wrong", [{"tokens": 0}, {"warmup": 0}, {"cooling": 0.0}, {"cooling": 1.5}, {"lr": 0.0}, {"lr_beside": math.inf}, {"lowest": -0.1}])
def test_settings_that_mean_nothing_are_refused(wrong, tmp_path):
    (name, value), = wrong.items()
    with pytest.raises(ValueError, match=f"{name}: got {value}, want"):
        learn_world(tmp_path / "new", TINY._replace(**wrong), LESSONS_TINY, SMALL)
    assert not any(tmp_path.iterdir())


def test_rows_longer_than_the_model_reads_are_refused_before_the_first_step(tmp_path):
    long = Lesson((COPY,), SMALL.max_len + 1, 2)
    with pytest.raises(ValueError, match=f"lessons: got rows of {SMALL.max_len + 1} tokens, want rows of at most {SMALL.max_len}"):
        learn_world(tmp_path / "new", TINY, (*LESSONS_TINY, long), SMALL)
    assert not any(tmp_path.iterdir())


def test_the_kinds_take_turns_from_step_to_step(tokenizer):
    lesson = Lesson((COPY, FACTS), 120, 3)
    copies = [[set(row) == {0.0, 1.0} for row in batch_of(lesson, tokenizer, 0, step)[1].tolist()] for step in (0, 1, 2)]
    assert copies == [[True, False, True], [False, True, False], [True, False, True]]


def test_some_stories_to_learn_from_have_more_questions(tokenizer, monkeypatch):
    asked, write = [], teaching.text_of
    monkeypatch.setattr(teaching, "text_of", lambda kind, chance: asked.append(kind.questions) or write(kind, chance))
    row_of(LEVELS[0], 20000, tokenizer, random.Random(0))
    assert set(asked) == {LEVELS[0].questions, teaching.QUESTIONS} and 0.2 < asked.count(teaching.QUESTIONS) / len(asked) < 0.4


def test_a_lesson_has_its_own_number_of_steps(tmp_path):
    out = learn_world(tmp_path / "out", TINY._replace(tokens=640), (Lesson((COPY,), 32, 2, enough=2, most=4),) * 3, SMALL, progress=False)
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert [(entry["step"], entry["lesson"]) for entry in log] == [(2, 0), (4, 0), (6, 1), (8, 1), (10, 2)]


def test_ctrl_c_keeps_the_steps_since_the_last_test(usual_ctrl_c, tmp_path, monkeypatch):
    true_step, done = learning.train_step, []

    def pressed(*args):
        done.append(None)
        if len(done) == 3:
            signal.raise_signal(signal.SIGINT)
        return true_step(*args)

    monkeypatch.setattr(learning, "train_step", pressed)
    with pytest.raises(KeyboardInterrupt):
        learn_world(tmp_path / "out", TINY, LESSONS_TINY, SMALL, progress=False)
    assert torch.load(tmp_path / "out.state", weights_only=True)["step"] == 3


def test_the_time_that_a_run_has_taken_is_kept(tmp_path):
    course = learning._Course(TINY, LESSONS_TINY, SMALL, "cpu", False)
    course.seconds = 1e6
    course.keep(tmp_path / "state")
    again = learning._Course(TINY, LESSONS_TINY, SMALL, "cpu", False)
    again.take_up(tmp_path / "state")
    again.advance()
    assert again.seconds > 1e6


def test_a_test_looks_one_lesson_ahead(tmp_path):
    course = learning._Course(TINY, LESSONS_TINY, SMALL, "cpu", False)
    course.look(1.0)
    assert len(course.log[0]["right"]) == 2 and course.lesson == 0
    course.lesson = 2
    course.look(1.0)
    assert len(course.log[1]["right"]) == 3

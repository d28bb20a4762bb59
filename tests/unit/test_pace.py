"""How long a run takes, and one that is fitted to a time: with a clock that the tests turn, and a user's way."""

import dataclasses
import json
import math
import re
import sys
import types
import xml.etree.ElementTree as xml

import pytest
import torch
from commands import run as command

from tlm_book.tokenization import documents
from tlm_book.training import (
    TrainConfig,
    learning_rate,
    load,
    run_folder,
    train,
    train_files,
)
from tlm_book.training import curves as drawing
from tlm_book.training.config import (
    fit_size,
    model_for,
    plan,
    sizes_up_to,
)
from tlm_book.training.cost import flops_per_token
from tlm_book.training.curves import (
    CURVES,
    CurvesInFile,
    CurvesInNotebook,
    curves,
    smoothed,
    ticks,
)
from tlm_book.training.pace import (
    LEAST_STEPS,
    Aim,
    Pace,
    aim_at,
    duration,
    fit_time,
    outline,
    pace_of,
    step_seconds,
)
from tlm_book.transformer_lm import Config, count_parameters

CPU = torch.device("cpu")
MB = 1_100_000
TINY = {"steps": 8, "vocab_size": 280, "d_model": 16, "layers": 1, "heads": 2, "context": 16, "batch_size": 4, "eval_every": 2}
MODEL = Config(20, d_model=8, d_ff=16, n_layers=1, n_heads=2, max_len=8, dropout=0.2)
TOKENS = torch.arange(400) % 20


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text.txt").write_text("\f".join(text[:1500] for text in documents()[:8]), encoding="utf-8")
    return tmp_path / "text.txt"


# Fitted to a time


def fitted(n_bytes, minutes, speed, at_most=False, **choices):
    """The choice on a machine that does `speed` operations a second, and the seconds that it takes there, measurements included."""
    measured = []

    def measure(model, config, device, patience):
        seconds = config.batch_size * model.max_len * flops_per_token(model, model.max_len) / speed
        measured.append(seconds)
        return seconds

    usual = plan(n_bytes, **choices)[1]
    sizes = sizes_up_to(n_bytes)
    model_of = lambda size: model_for(size, size.vocab_size)
    size, config, changed = fit_time(n_bytes, Aim(minutes, at_most), sizes, model_of, usual, choices, measure)
    seconds = size.batch_size * size.context * flops_per_token(model_of(size), size.context) / speed
    held_out = config.validation * n_bytes / 2.5
    often = math.ceil(config.steps / config.eval_every)
    assert sum(measured) < 60 * minutes / 100 * 3, "three steps of each trial take too much of the time"
    return size, config, changed, seconds * (config.steps + often * 2 / 3 * held_out / (size.batch_size * size.context))


@pytest.mark.parametrize("n_bytes", [20_000, 200_000, MB, 30 * MB])
def test_more_time_or_a_faster_machine_gives_a_larger_model(n_bytes):
    widths = []
    for minutes, speed in ((1, 2e10), (10, 2e10), (10, 2e11), (60, 2e11), (600, 2e12)):
        size, config, changed, took = fitted(n_bytes, minutes, speed)
        assert changed and took <= 60 * minutes and took > 0.75 * 60 * minutes - 6e-6 * n_bytes - 2
        assert config.warmup == min(100, config.steps // 10) and config.eval_every <= config.steps
        assert config.steps >= LEAST_STEPS / 2 or size == sizes_up_to(n_bytes)[0]
        widths.append(size.d_model)
        assert fitted(n_bytes, minutes, speed)[:2] == (size, config)  # nothing else decides
    assert widths == sorted(widths) and widths[-1] == fit_size(n_bytes).d_model


@pytest.mark.parametrize(("n_bytes", "speed"), [(MB, 2e10), (200_000, 3e9)])
def test_a_run_that_holds_much_out_is_measured_less_often(n_bytes, speed):
    _, config, _, took = fitted(n_bytes, 1, speed, validation=0.5)
    assert took <= 60 and math.ceil(config.steps / config.eval_every) == 2


def test_by_default_ten_minutes_are_a_bound():
    usual = plan(200_000)
    assert fitted(200_000, 10, 1e11, at_most=True)[:3] == (*usual, False)  # a minute or two: nothing to be shortened
    size, config, changed, took = fitted(MB, 10, 3e10, at_most=True)
    assert changed and took <= 600 and size.d_model < fit_size(MB).d_model and config.steps >= LEAST_STEPS
    assert fitted(MB, 10, 3e12, at_most=True)[:3] == (*plan(MB), False)


def test_what_is_chosen_is_kept():
    size, config, _, _ = fitted(MB, 5, 3e10, lr=0.01, eval_every=7, validation=0.2)
    assert (config.lr, config.eval_every, config.validation) == (0.01, 7, 0.2) and config.steps == size.steps
    assert aim_at(None, True, CPU, 0.0) is None and aim_at(None, False, torch.device("cuda"), 0.0) is None
    assert aim_at(None, False, CPU, 0.0).at_most and not aim_at(3.0, False, CPU, 0.0).at_most


def test_a_step_is_measured_and_nothing_else_is_moved():
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    assert 0 < step_seconds(MODEL, TrainConfig(batch_size=2), CPU, patience=0.05) < 5
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize(("took", "mean"), [((5.0, 1.0, 2.0), 1.5), ((30.0,), 30.0)])
def test_the_first_step_counts_only_where_it_is_the_only_one(took, mean, monkeypatch):
    """It is the only one if it takes ten times as long as one has patience."""
    ticks = iter([now for seconds in took for now in (0.0, seconds)])
    monkeypatch.setattr("tlm_book.training.pace.time", types.SimpleNamespace(perf_counter=lambda: next(ticks)))
    assert step_seconds(MODEL, TrainConfig(batch_size=2), CPU, patience=3.0) == mean


def test_of_a_long_text_enough_is_held_out_and_a_thousandth_at_least():
    assert [fitted(n, 600, 2e12)[1].validation for n in (10**6, 10**7, 10**9)] == [0.1, 0.02, 0.001]


# Kept to, on a machine that changes


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def kept(speeds, steps=1000, at_most=False, minutes=10.0):
    """A run on a machine whose steps take other times as it goes on, {after so many seconds: seconds a step}; (its seconds, settings, what was said)."""
    clock, said, log = Clock(), [], []
    pace = Pace(Aim(minutes, at_most, began=100.0), 0, 20.0, said.append, clock)
    config = TrainConfig(steps=steps, eval_every=max(1, steps // 12))
    while len(log) < config.steps:
        each = [seconds for since, seconds in speeds.items() if clock.now - 100 >= since][-1]
        entry = {"step": len(log) + 1, "lr": learning_rate(len(log), config), "loss": 1.0}
        clock.now += each
        if entry["step"] % config.eval_every == 0 or entry["step"] == config.steps:
            entry["held_out"] = 1.0
            clock.now += 20 * each
        log.append(entry)
        config = pace(log, config) or config
    assert log[-1]["lr"] == pytest.approx(config.min_lr * config.lr)  # the rate ends where the run does
    assert all(entry["lr"] == learning_rate(k, config) for k, entry in enumerate(log))  # and the settings say what was done
    return clock.now - 100, config, said


@pytest.mark.parametrize("speeds", [{0: 0.48}, {0: 0.2}, {0: 1.4}, {0: 0.4, 100: 0.9}, {0: 0.9, 250: 0.3}, {0: 0.3, 60: 1.2, 200: 0.3, 400: 0.8}])
def test_a_run_keeps_its_time_where_the_machine_changes(speeds):
    took, _, said = kept(speeds)
    assert 0.85 * 600 < took < 1.15 * 600, (took, said)
    assert said[0].startswith("time: about ") and re.search(r" at [\d.]+ s a step$", said[0])


def test_where_time_is_a_bound_a_run_is_only_shortened():
    took, config, said = kept({0: 0.1}, at_most=True)
    assert took < 200 and config == TrainConfig(steps=1000, eval_every=83) and len(said) == 1
    took, config, said = kept({0: 0.4, 100: 1.2}, at_most=True)
    assert took < 1.15 * 600 and config.steps < 1000 and any(f"{config.steps:,} steps in all" in line or "more at" in line for line in said)
    took, config, said = kept({0: 1.2, 200: 0.1}, at_most=True)  # shortened, until the machine is quick again
    assert config.steps == 1000 and len(config.replanned) > 1


def test_a_time_that_was_far_off_is_corrected():
    clock, said, log, config = Clock(), [], [], TrainConfig(steps=400, eval_every=100)
    pace = Pace(None, 0, 0.0, said.append, clock)
    for step in range(400):
        clock.now += 1.0 if step < 100 else 3.0
        log.append({"step": step + 1, "lr": 1.0, "loss": 1.0})
        assert pace(log, config) is None
    assert said[0] == "time: about 7 minutes at 1 s a step" and 2 <= len(said) < 12
    assert "more at" in said[1] and said[-1].endswith("3 s a step")


def shorten(log, config):
    """After the fourth step, nine in all are to be done."""
    return dataclasses.replace(config, steps=9, replanned=((4, config.steps),)) if len(log) == 4 and not config.replanned else None


def run(config, **options):
    return train(config, MODEL, TOKENS, TOKENS[:60], device="cpu", progress=False, **options)


def test_a_run_whose_length_was_changed_is_the_run_of_its_settings(tmp_path):
    config = TrainConfig(steps=20, batch_size=2, warmup=2, eval_every=3)
    result = run(config, observers=[shorten])
    again = run(dataclasses.replace(config, steps=9, replanned=((4, 20),)))
    assert len(result.log) == 9 and result.log == again.log
    assert all(map(torch.equal, result.model.parameters(), again.model.parameters()))
    for replanned in (((0, 20),), ((4, 3),), ((9, 20),), ((4, 20), (3, 20))):
        with pytest.raises(ValueError, match="replanned: got "):
            dataclasses.replace(config, steps=9, replanned=replanned)


def test_a_changed_length_is_that_of_the_progress_bar(capsys):
    train(TrainConfig(steps=20, batch_size=2, warmup=2, eval_every=3), MODEL, TOKENS, TOKENS[:60], device="cpu", observers=[shorten])
    assert " 9/9 " in capsys.readouterr().err


class Stop(Exception):
    pass


def test_it_is_resumed_as_it_was_replanned(text):
    """What was changed stands in the checkpoints alone; taken up, the run ends as it would have, and says in its files what it did."""
    stop = lambda step, *_: (_ for _ in ()).throw(Stop) if step == 6 else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tlm_book.training.run.pace_of", lambda *_: shorten)
        with pytest.raises(Stop):
            train_files(text, text.parent / "model", device="cpu", progress=False, watch=stop, plot=True, **TINY | {"steps": 20})
        train_files(text, text.parent / "whole", device="cpu", progress=False, plot=True, **TINY | {"steps": 20})
    assert (run_folder(text.parent / "model") / CURVES).stat().st_size > 1000  # as far as it went
    report = train_files(None, text.parent / "model", device="cpu", progress=False, resume=True)
    files = [{file.name: file.read_bytes() for file in (text.parent / name).iterdir()} for name in ("model", "whole")]
    assert report.steps == 9 and files[0] == files[1] and CURVES in files[0]
    for name, part in (("run.json", "config"), ("config.json", "training")):
        said = json.loads(files[0][name])[part]
        assert (said["steps"], said["replanned"]) == (9, [[4, 20]])


# As a user meets it


def test_a_run_of_a_few_seconds_from_the_command_line(text, tmp_path):
    small = ["--vocab-size", "280", "--d-model", "16", "--layers", "1", "--heads", "2", "--context", "16", "--batch-size", "4", "--device", "cpu"]
    done = command("train", "--data", text, "--out", tmp_path / "m", "--minutes", "0.04", "--plot", *small)
    assert done.returncode == 0, done.stderr
    job = json.loads((tmp_path / "m" / "run.json").read_text())
    log = [json.loads(line) for line in (tmp_path / "m" / "log.jsonl").read_text().splitlines()]
    config = TrainConfig(**job["config"] | {"betas": (0.9, 0.99), "replanned": tuple(map(tuple, job["config"]["replanned"]))})
    assert job["minutes"] == 0.04 and len(log) == config.steps and log[-1]["lr"] == pytest.approx(config.min_lr * config.lr)
    assert done.stderr.startswith("text: ") and "model: " in done.stderr and "fitted to 0.04 minutes" in done.stderr
    assert re.search(r"time: about \d+ seconds? at [\d.e-]+ s a step", done.stderr)
    assert "per character" in done.stdout and "\nsample: " in done.stdout and "\nnext: python -m tlm_book generate --model" in done.stdout
    assert "nats per token  bits per byte  per character\n" in done.stdout and load(tmp_path / "m")[0].config.d_model == 16
    xml.fromstring((tmp_path / "m" / CURVES).read_text())
    said = command("train", "--resume", "--out", tmp_path / "m", "--minutes", "1")
    assert said.returncode == 2 and "--minutes: got it with --resume, want to leave it out: the run in" in said.stderr


@pytest.mark.parametrize("minutes", [0.0, -1.0, math.inf, math.nan])
def test_no_time_is_refused(minutes, text, tmp_path):
    with pytest.raises(ValueError, match="minutes: got "):
        train_files(text, tmp_path / "m", minutes=minutes)
    assert not (tmp_path / "m").exists() and not run_folder(tmp_path / "m").exists()


def test_time_and_steps_or_several_processes_are_refused(text, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"minutes: got 1.0, want none beside a number of steps"):
        train_files(text, tmp_path / "m", minutes=1.0, steps=3)
    train_files(text, tmp_path / "m", device="cpu", progress=False, **TINY)
    with pytest.raises(ValueError, match="minutes: got 1.0, want none: the run in .* has its number of steps"):
        train_files(None, tmp_path / "m", resume=True, minutes=1.0)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="minutes: got 1.0, want a number of steps, where several processes"):
        train_files(text, tmp_path / "n", minutes=1.0)
    assert aim_at(None, False, CPU, 0.0) is None


# The picture


LOG = [{"step": k, "lr": 1e-3 * k / 300, "loss": 3 - k / 150} | ({"held_out": 3.1 - k / 500} if k % 50 == 0 else {}) for k in range(1, 301)]


def test_the_picture_says_what_it_shows():
    picture = curves(LOG, steps=1200)
    root = xml.fromstring(picture)
    words = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "loss, nats per token" in words and "learning rate" in words and "step" in words and "1,200" in words
    assert root.get("aria-label") == "Loss and learning rate up to step 300 of 1,200: loss of the training batches 1.017, on held-out text 2.500 nats per token"
    assert "prefers-color-scheme: dark" in picture and picture == curves(LOG, steps=1200)
    lines = {line.get("class"): len(line.get("points").split()) for line in root.iter("{http://www.w3.org/2000/svg}polyline")}
    assert lines == {"each": 300, "loss": 300, "held": 6, "rate": 300}
    long = curves([LOG[0] | {"step": k + 1} for k in range(20_000)])
    assert len(long) < 60_000 and max(len(line.get("points").split()) for line in xml.fromstring(long).iter("{http://www.w3.org/2000/svg}polyline")) == 500
    for one in ([LOG[0]], [LOG[0] | {"loss": math.nan}], [LOG[0] | {"held_out": math.inf}]):
        points = " ".join(line.get("points") for line in xml.fromstring(curves(one)).iter("{http://www.w3.org/2000/svg}polyline"))
        assert "nan" not in points and "inf" not in points
    assert "up to step 300 of 300" in curves(LOG, steps=100)
    with pytest.raises(ValueError, match="log: got no entries"):
        curves([])


def drawn(picture):
    """{line: its points} and {number at the left: its height}."""
    root, svg = xml.fromstring(picture), "{http://www.w3.org/2000/svg}"
    lines = {line.get("class"): [tuple(map(float, point.split(","))) for point in line.get("points").split()] for line in root.iter(svg + "polyline")}
    return lines, {text.text: float(text.get("y")) - 4 for text in root.iter(svg + "text") if text.get("text-anchor") == "end"}


def test_a_point_stands_where_the_axes_say():
    lines, height = drawn(curves(LOG, steps=1200))
    begin, end = drawing.LEFT, drawing.WIDTH - drawing.RIGHT
    assert height["3"] < height["2"] < height["1"] < height["0.001"] < height["0"]  # counted from above
    for kind, at, number in (("held", 5, "2.5"), ("held", 0, "3"), ("each", 299, "1"), ("each", 149, "2"), ("rate", 299, "0.001")):
        step = 50 * (at + 1) if kind == "held" else at + 1
        assert lines[kind][at] == pytest.approx((begin + (end - begin) * step / 1200, height[number]), abs=0.11), (kind, at)


def test_what_is_beyond_the_panel_is_drawn_at_its_edge():
    top, bottom = drawing.LOSS
    lines, _ = drawn(curves([*LOG[:-1], LOG[-1] | {"loss": 100.0}]))
    assert lines["each"][-1][1] == top and all(top <= y <= bottom for _, y in lines["each"])
    lines, _ = drawn(curves([*LOG[:-1], LOG[-1] | {"loss": math.nan, "held_out": math.inf}]))
    assert lines["each"][-1][1] == lines["held"][-1][1] == top


def test_ticks_are_round_and_means_are_means():
    assert ticks(1.2, 4.1) == [1.5, 2.0, 2.5, 3.0, 3.5, 4.0] and ticks(0, 0.0016, 3) == [0.0, 0.001] and ticks(5, 5)
    assert ticks(0, 8, 8) == [0.0, 2.0, 4.0, 6.0, 8.0] and ticks(0, 7, 8) == [float(k) for k in range(8)]
    losses = [float(k % 7) for k in range(200)]
    assert smoothed(losses)[-1] == pytest.approx(sum(losses[-4:]) / 4) and smoothed(losses)[0] == losses[0]


def test_the_file_is_whole_at_any_time_and_drawn_now_and_then(tmp_path):
    draw = CurvesInFile(tmp_path / "deep.svg", every=3600)
    for k in range(1, 61):
        draw(LOG[:k], TrainConfig())
        xml.fromstring((tmp_path / "deep.svg").read_text())
        assert [file.name for file in tmp_path.iterdir()] == ["deep.svg"]
    assert "up to step 50 of 1,000" in (tmp_path / "deep.svg").read_text()  # at the first step, and at the measurement


def test_a_notebook_shows_it_as_it_grows(monkeypatch, tmp_path):
    shown = []
    handle = types.SimpleNamespace(update=shown.append)
    display = types.SimpleNamespace(SVG=str, display=lambda picture, display_id: shown.append(picture) or handle)
    monkeypatch.setattr(drawing, "library", lambda name, extra: display)
    run(TrainConfig(steps=6, batch_size=2, warmup=2, eval_every=2), plot=True)
    assert 3 <= len(shown) <= 6 and "up to step 6 of 6" in shown[-1]
    run(TrainConfig(steps=2, batch_size=2, warmup=2, eval_every=2), plot=tmp_path / "curves.svg")
    xml.fromstring((tmp_path / "curves.svg").read_text())
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "IPython.display", None)
    with pytest.raises(ImportError, match="IPython: got no such library"):
        CurvesInNotebook()


def test_the_measurements_still_to_come_are_counted():
    "With ten steps and a measurement every four: after 4, 8 and 10."
    pace = Pace(None, 0, 0.0, lambda words: None)
    pace.measured = [100.0]
    left = [pace._to_go(done, TrainConfig(steps=10, warmup=0, eval_every=4)) for done in (0, 3, 4, 7, 8, 9)]
    assert left == [300.0, 300.0, 200.0, 200.0, 100.0, 100.0]


def timed(seconds, config, of_measurement=0.0, measured=()):
    """What times a run whose steps take so many seconds, with a measurement in some of them, and the last settings that it returned."""
    now, log, found = [0.0], [], []
    pace = Pace(Aim(10.0, began=0.0), 0, of_measurement, lambda words: None, clock=lambda: now[0])
    for step, its in enumerate(seconds, start=1):
        now[0] += its
        log.append({"step": step, "lr": 0.1, "loss": 1.0} | ({"held_out": 1.0} if step in measured else {}))
        found.append(pace(log, config))
    return pace, found[-1]


def test_writing_files_after_a_measurement_counts_as_part_of_it():
    pace, _ = timed([*[1.0] * 6, 11.0, 6.0, 1.0], TrainConfig(steps=600, eval_every=7), measured=[7])
    assert (pace.seconds_a_step, pace.seconds_a_measurement) == (1.0, 15.0)


def test_time_is_left_for_the_measurements():
    """Until one has been timed, each is taken to last as long as twenty steps: with one every ten steps, a step costs three times what it takes."""
    pace, config = timed([1.0] * 6, TrainConfig(steps=10_000, eval_every=10), of_measurement=20.0)
    assert pace.until == 598 and config.steps == 6 + (598 - 6) // 3


def test_what_will_be_done_is_said_before_it_begins(capsys):
    config, model = TrainConfig(steps=50, batch_size=2), dataclasses.replace(MODEL, n_layers=2)
    text, its_model, its_run = outline(config, model, 400, 1060).splitlines()
    assert text == "text: 400 tokens to train on, 1,060 held out" and its_run == "run: 50 steps of 2 windows, which read the text 2.0 times over"
    assert its_model == f"model: {count_parameters(model):,} weights: 2 blocks of width 8, windows of 8 tokens out of 20"
    assert "1 block of width 8" in outline(config, dataclasses.replace(MODEL, n_layers=1), 400, 1060)
    assert outline(config, model, 80, 9, 1.0).endswith("read the text 10 times over, fitted to 1 minute (another time: --minutes; a number of steps: --steps)")
    assert pace_of(config, model, 400, 1060, True).of_measurement == pytest.approx(2 / 3 * 1060 / 16)  # a step reads 16 tokens, forwards and backwards
    assert capsys.readouterr().err == outline(config, model, 400, 1060) + "\n"
    pace_of(config, model, 400, 1060, False)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("seconds", "words"), [
    (0.2, "about 1 second"), (59.4, "about 59 seconds"), (59.6, "about 1 minute"), (5399, "about 90 minutes"), (5400, "about 1.5 hours"), (4e6, "about 1,111.1 hours"),
])  # fmt: skip
def test_a_duration_is_said_in_the_unit_that_suits_it(seconds, words):
    assert duration(seconds) == words


def replanned(at_most, off):
    """The settings that a run gets which is `off` (a share of its time) late, after a hundred of a thousand steps of equal length."""
    now, config = [0.0], TrainConfig(steps=1000, warmup=10, eval_every=1000)
    pace = Pace(Aim(10.0, at_most, began=0.0), 0, 0.0, lambda words: None, clock=lambda: now[0])
    log, found = [], []
    for step in range(100):
        now[0] += 0.6 * (1 + off)
        log.append({"step": step, "lr": 0.1, "loss": 1.0})
        found.append(pace(log, config))
    return [one for one in found if one is not None]


def test_where_time_is_a_bound_a_tenth_too_late_is_in_time():
    assert not replanned(True, 0.07) and replanned(False, 0.07) and replanned(True, 0.15)


def test_a_run_is_not_shortened_below_its_warmup():
    now, config = [0.0], TrainConfig(steps=1000, warmup=100, eval_every=1000)
    pace = Pace(Aim(1.0, True, began=0.0), 0, 0.0, lambda words: None, clock=lambda: now[0])
    log = []
    for step in range(10):
        now[0] += 30.0
        log.append({"step": step, "lr": 0.1, "loss": 1.0})
        config = pace(log, config) or config
    assert config.steps == 100

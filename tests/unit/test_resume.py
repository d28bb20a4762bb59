"""Runs that are interrupted: killed at any moment, out of room, with broken or foreign checkpoints. Each in a process of its own."""

import contextlib
import dataclasses
import errno
import functools
import importlib.util
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from commands import run_code
from safetensors.torch import save_file

from tlm_book.files import clear_parts, free_folder, held, new_file, new_folder
from tlm_book.pretrained import load_model, save_model
from tlm_book.tokenization import (
    GPT2_PATTERN,
    PATTERN,
    Tokenizer,
    documents,
)
from tlm_book.training import (
    Diverged,
    TrainConfig,
    best_checkpoint,
    checkpoints,
    encode_corpus,
    evaluate,
    is_held_out,
    load,
    read_notes,
    run_folder,
    save,
    train,
    train_files,
    write_tokens,
)
from tlm_book.training import run as running
from tlm_book.training.checkpoint import (
    InMemory,
    drop_old,
    expects_no_other_log,
    state_in,
    text_notes,
    write_checkpoint,
)
from tlm_book.training.config import PRESETS_RATE, plan
from tlm_book.training.distributed import DistContext
from tlm_book.training.interrupts import stop_signal
from tlm_book.training.job import (
    Job,
    begin_with,
    begun_with,
    best_in,
    further,
    new_job,
)
from tlm_book.training.loop import Result
from tlm_book.training.ngrams import unigram
from tlm_book.training.pace import Aim
from tlm_book.training.run import (
    RunReport,
    prepare,
    report,
    train_book,
    train_from_file,
)
from tlm_book.transformer_lm import Config, TransformerLM

HERE = Path(__file__).parents[1] / "support"
TINY = {"steps": 8, "vocab_size": 280, "d_model": 16, "layers": 1, "heads": 2, "context": 16, "batch_size": 4, "eval_every": 2}


def alone(*command: str, timeout: float) -> str:
    """A fresh interpreter on one thread, without the runtime checker; what it printed."""
    environment = {name: value for name, value in os.environ.items() if name != "TLM_BOOK_TYPECHECK"}
    environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    run = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, env=environment, timeout=timeout)
    assert run.returncode == 0, run.stderr[-3000:]
    return run.stdout


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@functools.cache
def a_few_kills() -> list[str]:
    """Two kills at random moments, and one before a file is touched, from one interpreter: what it says of each."""
    return alone(HERE / "killed.py", "random", "2", "events", "1", timeout=600).splitlines()


@needs_fork
def test_killed_at_random_moments():
    assert a_few_kills()[0].startswith("2 kills")


@needs_fork
@pytest.mark.long
def test_killed_at_many_random_moments():
    print(alone(HERE / "killed.py", "random", "50", timeout=600))


@needs_fork
def test_killed_before_a_file_is_touched():
    assert a_few_kills()[1].startswith("killed before 1 of")


@needs_fork
@pytest.mark.long
def test_killed_before_many_files_are_touched(request):
    """At some of the moments; with --thorough at all of them."""
    thorough = request.config.getoption("--thorough")
    print(alone(HERE / "killed.py", "events", "0" if thorough else "12", timeout=3600 if thorough else 600))


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text.txt").write_text("\f".join(text[:1500] for text in documents()[:8]), encoding="utf-8")
    return tmp_path / "text.txt"


class Stop(Exception):
    pass


def stop_at(wanted):
    def watch(step, model, tokenizer):
        if step == wanted:
            raise Stop

    return watch


def begun(text, name="model", step=6, **choices):
    """A run that was interrupted after that step; its folder."""
    with pytest.raises(Stop):
        train_files(text, text.parent / name, device="cpu", progress=False, watch=stop_at(step), **TINY | choices)
    return run_folder(text.parent / name)


def contents(folder):
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


FULL = """
import resource, signal, sys
from tlm_book.training import train_files
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))  # no file may be larger: as on a disk that is full
try:
    train_files(sys.argv[1], sys.argv[2], device="cpu", progress=False, resume=True, **{choices})
except OSError as error:
    print("refused:", error)
"""


def test_a_full_disk_is_an_error_and_the_last_checkpoint_stays(text):
    pytest.importorskip("resource")
    folder = begun(text)
    before = contents(folder)
    run = run_code(FULL.replace("{choices}", repr(TINY)), text, text.parent / "model")
    assert run.returncode == 0, run.stderr[-3000:]
    said = run.stdout
    assert said.startswith("refused:") and "state.safetensors" in said
    after = contents(folder)
    assert {k: v for k, v in before.items() if not k.startswith("log.")} == {k: v for k, v in after.items() if not k.startswith("log.")}
    assert not list(folder.glob(".*.part")) and not (text.parent / "model").exists()
    train_files(text, text.parent / "model", device="cpu", progress=False, resume=True, **TINY)  # room again
    train_files(text, text.parent / "whole", device="cpu", progress=False, **TINY)
    assert contents(text.parent / "model") == contents(text.parent / "whole") and not folder.exists()


def test_a_changed_setting_is_named(text):
    folder = begun(text)
    before = contents(folder)
    for change, words in (({"lr": 1e-5}, "^lr: got 1e-05, want 0.004, with which the run"), ({"d_model": 32}, "^d_model: got 32, want 16"), ({"steps": 20}, "^steps: got 20, want 8")):
        with pytest.raises(ValueError, match=words):
            train_files(text, text.parent / "model", device="cpu", progress=False, resume=True, **TINY | change)
    assert contents(folder) == before


def resumed(text, name="model", **choices):
    return train_files(None, text.parent / name, device="cpu", progress=False, resume=True, **choices)


def test_a_run_is_taken_up_with_nothing_but_its_folder(text):
    begun(text, preset="llama")
    away = text.rename(text.with_name("away"))  # the tokens are enough
    resumed(text)
    away.rename(text)
    train_files(text, text.parent / "whole", device="cpu", progress=False, preset="llama", **TINY)
    assert contents(text.parent / "model") == contents(text.parent / "whole")
    with pytest.raises(ValueError, match="path: got none, and no run in .*other.run"):
        resumed(text, "other")


def interrupting(step):
    """A user who presses Ctrl-C while the step after that measurement is computed."""
    return lambda now, *_: os.kill(os.getpid(), signal.SIGINT) if now == step else None


@pytest.fixture
def ears():
    """Hears Ctrl-C, whatever the shell that runs the tests has said of it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ears")
@pytest.mark.parametrize("every", [2, pytest.param(3, marks=pytest.mark.long)])
def test_ctrl_c_saves_where_it_stands(text, every, capfd):
    """Between two measurements, or at one; what comes out in the end is as if nobody had touched a key."""
    choices = TINY | {"eval_every": every}
    with pytest.raises(KeyboardInterrupt, match="stopped after step 3 of 8, which is saved in '.*model.run'"):
        train_files(text, text.parent / "model", device="cpu", progress=False, watch=interrupting(3) if every == 3 else pressed_at(3), **choices)
    assert [path.name for path in checkpoints(run_folder(text.parent / "model"))][-1] == "step-00000003"
    assert "stopping after this step" in capfd.readouterr().err
    resumed(text)
    train_files(text, text.parent / "whole", device="cpu", progress=False, **choices)
    assert contents(text.parent / "model") == contents(text.parent / "whole")


class pressed_at:
    """Ctrl-C while that step is computed, counted from the measurement before."""

    def __init__(self, step):
        self.step = step

    def __call__(self, now, *_):
        if now == self.step - 1:
            model_step = torch.optim.AdamW.step

            def step(optimizer, *arguments, **options):
                torch.optim.AdamW.step = model_step
                os.kill(os.getpid(), signal.SIGINT)
                return model_step(optimizer, *arguments, **options)

            torch.optim.AdamW.step = step


def test_a_finished_run_is_taken_further(text):
    train_files(text, text.parent / "model", device="cpu", progress=False, **TINY | {"lr": 0.5, "min_lr": 1.0, "warmup": 0})
    first = [json.loads(line) for line in (text.parent / "model" / "log.jsonl").read_text().splitlines()]
    for steps in (None, 8):
        with pytest.raises(ValueError, match=f"steps: got {str(steps).lower()}, want .* greater than 8"):
            resumed(text, **{} if steps is None else {"steps": steps})
    with pytest.raises(Stop):
        train_files(None, text.parent / "model", device="cpu", progress=False, resume=True, steps=12, watch=stop_at(10))
    assert (text.parent / "model" / "model.safetensors").is_file()  # until the new one is there
    report = resumed(text)
    log = [json.loads(line) for line in (text.parent / "model" / "log.jsonl").read_text().splitlines()]
    assert log[:8] == first and len(log) == 12 == report.steps and not run_folder(text.parent / "model").exists()
    measured = {entry["step"]: entry["held_out"] for entry in log if "held_out" in entry}
    assert report.best_step == min(measured, key=measured.get)
    words, model = Tokenizer.load(text.parent / "model" / "tokenizer.json"), load(text.parent / "model")[0]
    held_out = [t[:1500].strip() for i, t in enumerate(documents()[:8]) if is_held_out(i, 0.1, 0)]
    assert evaluate(model, encode_corpus(words, held_out), 16, words.start, context=8) == pytest.approx(min(measured.values()), abs=1e-5)
    assert resumed(text, steps=13).steps == 13
    assert json.loads((text.parent / "model" / "config.json").read_text())["training"]["replanned"] == [[8, 8], [12, 12]]


def test_what_a_finished_run_drew_goes_on_where_it_is_taken_further(text):
    """Asked for once, the picture is kept up to date."""
    train_files(text, text.parent / "model", device="cpu", progress=False, plot=True, **TINY)
    resumed(text, steps=9)
    assert "up to step 9 of 9" in (text.parent / "model" / "curves.svg").read_text(encoding="utf-8")


def test_of_equal_losses_in_a_log_the_first_is_the_best(tmp_path):
    entries = [{"step": step, "lr": 0.1, "loss": 1.0} | ({"held_out": loss} if loss else {}) for step, loss in enumerate((3.0, 2.0, None, 2.0), 1)]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    assert best_in(tmp_path / "log.jsonl", 4)["step"] == 2


def test_what_else_lies_in_the_folder_of_a_run_that_is_taken_further_stays_there(text, monkeypatch):
    """Even if the process ends at any moment while the new model takes the former one's place."""
    model = text.parent / "model"
    train_files(text, model, device="cpu", progress=False, **TINY)
    (model / "plots").mkdir()
    mine = {"notes.txt": b"a day's work", ".hidden": b"", "plots/a.svg": b"<svg/>"}
    for name, data in mine.items():
        (model / name).write_bytes(data)
    (model / "lost").symlink_to("nowhere")
    for steps, moment in ((9, 0), (10, 2), (11, 4)):  # moves that are made before
        moves, left = shutil.move, iter(range(moment))

        def move(source, target, moves=moves, left=left):
            if next(left, None) is None:
                raise Stop
            return moves(source, target)

        with contextlib.suppress(Stop), monkeypatch.context() as patch:
            patch.setattr(shutil, "move", move)
            resumed(text, steps=steps)
        if run_folder(model).exists():
            resumed(text)
        assert contents(model).items() >= mine.items() and (model / "lost").is_symlink()
        assert len((model / "log.csv").read_text().splitlines()) == steps + 1 and not run_folder(model).exists()


def test_a_text_that_has_changed_is_named_and_the_run_goes_further_once_it_is_back(text):
    """Longer, or only different; the attempt leaves nothing, and one that was killed can be repeated."""
    train_files(text, text.parent / "model", device="cpu", progress=False, **TINY)
    right = text.read_text(encoding="utf-8")
    for other in (right + right, right.replace("the", "eht")):
        text.write_text(other, encoding="utf-8")
        with pytest.raises(ValueError, match=r"^path: got another text than before in \[.*text\.txt'\] \(a file named twice is read once\), want the one with which the run was begun$"):
            resumed(text, steps=9)
        assert not run_folder(text.parent / "model").exists()
    further(text.parent / "model", run_folder(text.parent / "model"), 9)
    with pytest.raises(ValueError, match="^path: got another text"):
        resumed(text)
    text.write_text(right, encoding="utf-8")
    assert resumed(text).steps == 9


LEFT_BROKEN = {
    "state cut": ("state.safetensors", lambda data: data[:-1], r"state\.safetensors: got a broken checkpoint .*, want what a finished run left"),
    "state of others": ("state.safetensors", lambda _: tensors_in_bytes(other=torch.ones(2)), r"state\.safetensors: got no model\..* that fits"),
    "a tensor more": ("state.safetensors", lambda data: tensors_in_bytes(**loaded(data), **{"model.extra": torch.ones(2)}), "got other tensors: .'model.extra'"),
    "no notes": ("run.json", lambda data: json.dumps(json.loads(data) | {"notes": {}}).encode(), r"run\.json: got no notes on the last step"),
    "no measurement": ("log.jsonl", lambda data: re.sub(rb', "held_out": [^}]*', b"", data), r"log\.jsonl: got no loss on the held-out text"),
}


def loaded(data):
    from safetensors.torch import load

    return load(data)


def tensors_in_bytes(**tensors):
    from safetensors.torch import save

    return save(tensors)


def test_a_finished_run_with_broken_files_is_refused_and_goes_further_once_they_are_mended(text):
    model = text.parent / "model"
    train_files(text, model, device="cpu", progress=False, **TINY)
    for name, spoilt, words in LEFT_BROKEN.values():
        whole = (model / name).read_bytes()
        (model / name).write_bytes(spoilt(whole))
        with pytest.raises(ValueError, match=words):
            resumed(text, steps=9)
        assert not run_folder(model).exists()
        (model / name).write_bytes(whole)
    assert resumed(text, steps=9).steps == 9


def test_a_run_goes_on_from_a_model(text, tmp_path):
    train_files(text, tmp_path / "model", device="cpu", progress=False, preset="gpt2", **TINY)
    before = load(tmp_path / "model")
    for source, words in ((tmp_path / "model", before[1]), (tmp_path / "theirs", None)):
        if words is None:
            save_model(TransformerLM(Config.llama(len(before[1]), d_model=8, d_ff=8, n_layers=1, n_heads=2, max_len=16)), source, before[1])
        begin = source if words else load_model(source)
        report = train_files(None if words else text, tmp_path / f"{source.name}-more", begin=begin, device="cpu", progress=False, steps=2, context=12, batch_size=2)
        model, kept = load(tmp_path / f"{source.name}-more")
        kept.check_same(before[1])
        assert model.config.max_len == 12 and report.n_files == 1 and (kept.start, kept.stop) == (before[1].start, before[1].stop)
    with pytest.raises(ValueError, match="context: got 17, want at most 16"):
        train_files(text, tmp_path / "new", begin=begin, context=17)
    with pytest.raises(ValueError, match="path: got none, want a text file: nothing is known"):
        train_files(None, tmp_path / "new", begin=begin)
    with pytest.raises(ValueError, match="d_model: got 32, want none"):
        train_files(text, tmp_path / "new", begin=begin, d_model=32)


def test_a_run_that_goes_on_from_a_model_begins_with_its_weights(text, tmp_path):
    """At a learning rate of next to nothing it is the same model; taken up after an interruption, too."""
    train_files(text, tmp_path / "first", device="cpu", progress=False, **TINY)
    with pytest.raises(Stop):
        train_files(None, tmp_path / "model", begin=tmp_path / "first", device="cpu", progress=False, watch=stop_at(2), lr=1e-12, steps=4, eval_every=2)
    resumed(text)
    old, new = (load(tmp_path / name)[0].state_dict() for name in ("first", "model"))
    assert all(torch.allclose(w, new[name], atol=1e-8) for name, w in old.items())


def test_the_log_is_a_table_and_a_board(text, tmp_path):
    if importlib.util.find_spec("tensorboard") is None:
        with pytest.raises(ImportError, match="want it installed"):
            train_files(text, tmp_path / "model", tensorboard=True, **TINY)
    board = importlib.util.find_spec("tensorboard") is not None
    train_files(text, tmp_path / "model", device="cpu", progress=False, tensorboard=board, **TINY)
    head, *rows = (tmp_path / "model" / "log.csv").read_text().splitlines()
    entries = [json.loads(line) for line in (tmp_path / "model" / "log.jsonl").read_text().splitlines()]
    assert head == "step,lr,loss,held_out" and len(rows) == 8
    for row, entry in zip(rows, entries):
        assert [float(x) for x in row.split(",") if x] == list(entry.values())
    assert board == any((tmp_path / "model").glob("tensorboard/events*"))


def test_a_checkpoint_older_than_a_setting_goes_on_with_its_default(text):
    folder = begun(text)
    for state in folder.glob("step-*/state.json"):
        notes = json.loads(state.read_text(encoding="utf-8"))
        for name in ("n_kv_heads", "norm_kind", "qk_norm", "n_experts", "window", "rope_base"):
            del notes["run"]["model"][name]
        state.write_text(json.dumps(notes), encoding="utf-8")
    train_files(text, text.parent / "model", device="cpu", progress=False, resume=True, **TINY)
    train_files(text, text.parent / "whole", device="cpu", progress=False, **TINY)
    assert contents(text.parent / "model") == contents(text.parent / "whole")


def test_a_run_does_not_go_on_with_another_text_of_the_same_length(tmp_path):
    """Of whatever type its tokens are; a checkpoint from before texts were hashed goes on as before."""
    known, held_out = torch.arange(200) % 11, torch.arange(50) % 7
    config = Config(11, d_model=8, d_ff=8, n_layers=1, n_heads=2, max_len=16)
    run = lambda a, b: train(TrainConfig(steps=4, warmup=0, eval_every=2), config, a, b, folder=tmp_path, device="cpu", progress=False)
    run(known, held_out)
    (last,) = checkpoints(tmp_path)[-1:]
    shutil.rmtree(last)
    for pair in ((known.flip(0), held_out), (known, held_out.flip(0))):
        with pytest.raises(ValueError, match="^text.sha256: got '.*, with which the run in .* was begun$"):
            run(*pair)
    assert run(known.to(torch.int16), held_out.int()).resumed == 2
    for file in tmp_path.glob("step-*/state.json"):
        notes = json.loads(file.read_text(encoding="utf-8"))
        del notes["run"]["text"]["sha256"]
        file.write_text(json.dumps(notes), encoding="utf-8")
    assert run(known.flip(0), held_out).resumed == 4


def test_a_text_is_hashed_all_over():
    """All of it, unless it is very long, and then in many places."""
    for length, places in ((5000, (0, 2500, 4999)), (64 * 2**16 + 64, (0, 1_000_000, 4_100_000))):
        text, held_out = torch.zeros(length, dtype=torch.int16), torch.zeros(3, dtype=torch.int64)
        before = text_notes(text, held_out)
        for place in places:
            other = text.clone()
            other[place] = 1
            assert text_notes(other, held_out) != before == text_notes(text.long(), held_out.int())


def test_a_log_of_something_else_is_not_replaced(tmp_path):
    """A run that ended before its first checkpoint begins again; a name that only looks like a checkpoint's is none."""
    settings, config = TrainConfig(steps=4, warmup=0, eval_every=2), Config(11, d_model=8, d_ff=8, n_layers=1, n_heads=2, max_len=16)
    run = lambda **more: train(settings, config, torch.arange(200) % 11, torch.arange(50) % 7, folder=tmp_path, device="cpu", progress=False, **more)
    for name in ("step-by-step.md", "step-1"):
        (tmp_path / name).write_text("mine")
    for name, mine in (("log.csv", "my,measurements\n1,2\n"), ("log.csv", "1\n"), ("log.jsonl", '{"mine": 1}\n'), ("log.jsonl", "[]")):
        (tmp_path / name).write_text(mine)
        with pytest.raises(FileExistsError, match=f"^folder: got '.*' with {name} in it, and no checkpoint, want one without it, since it would be replaced$"):
            run()
        assert (tmp_path / name).read_text() == mine
        (tmp_path / name).unlink()

    def stops(log, config):
        if len(log) == last:
            raise Stop

    for last in (1, 2, 2):  # before the first checkpoint, and instead of it
        with pytest.raises(Stop):
            run(observers=[stops])
        assert (tmp_path / "log.jsonl").read_text().count("\n") == last and not checkpoints(tmp_path)
    whole = {name: (tmp_path / name).read_text() for name in ("log.jsonl", "log.csv")}
    for name, written in whole.items():
        for end in range(len(written)):  # cut by a crash
            (tmp_path / name).write_text(written[:end])
            if name == "log.jsonl" or not 0 < end < len("step,lr,loss,held_out\n"):  # this line is there as a whole, or not at all
                expects_no_other_log(tmp_path)
        (tmp_path / name).write_text(written)
    assert run().resumed == 0 and len(checkpoints(tmp_path)) == 2
    for path in checkpoints(tmp_path):
        shutil.rmtree(path)
    with pytest.raises(FileExistsError, match=r"log\.jsonl"):
        run()
    assert (tmp_path / "step-1").read_text() == "mine"


def test_a_run_in_progress_is_not_overwritten(text):
    folder = begun(text)
    before = contents(folder)
    with pytest.raises(FileExistsError, match="resume"):
        train_files(text, text.parent / "model", device="cpu", progress=False, **TINY)
    assert contents(folder) == before


def test_a_broken_checkpoint_is_named_and_the_one_before_can_be_taken(text):
    folder = begun(text)
    last = checkpoints(folder)[-1]
    state = last / "state.safetensors"
    state.write_bytes(state.read_bytes()[:-1])
    with pytest.raises(ValueError, match=f"{last.name}.*broken.*the one before"):
        train_files(text, text.parent / "model", device="cpu", progress=False, resume=True, **TINY)
    shutil.rmtree(last)
    train_files(text, text.parent / "model", device="cpu", progress=False, resume=True, **TINY)
    train_files(text, text.parent / "whole", device="cpu", progress=False, **TINY)
    assert contents(text.parent / "model") == contents(text.parent / "whole")


def test_a_log_that_is_behind_its_checkpoint_is_named(text):
    """From it the number of steps is known that were made: a shorter one would make some of them twice."""
    folder = begun(text)
    log, last = folder / "log.jsonl", checkpoints(folder)[-1]
    lines = log.read_text(encoding="utf-8").splitlines(True)
    assert len(lines) >= 6 and last.name == "step-00000006"
    for left in ("".join(lines[:5]), "".join(lines[:5]) + lines[5][:7], "".join([*lines[:3], *lines[4:]]), "[]\n" * 6, None):
        log.unlink() if left is None else log.write_text(left, encoding="utf-8")
        with pytest.raises(ValueError, match=r"log\.jsonl: got .*, want that of "):
            resumed(text)
    log.write_text("".join(lines[:5]), encoding="utf-8")
    shutil.rmtree(last)
    resumed(text)
    train_files(text, text.parent / "whole", device="cpu", progress=False, **TINY)
    assert contents(text.parent / "model") == contents(text.parent / "whole")


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
def test_the_log_is_on_the_disk_before_the_checkpoint(text, monkeypatch):
    synced, sync = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(Path(os.readlink(f"/proc/self/fd/{file}"))) or sync(file))
    begun(text, step=4)
    wanted = [path.name for path in synced if path.name == "log.jsonl" or path.name == "state.safetensors"]
    assert wanted[-4:] == ["log.jsonl", "state.safetensors"] * 2


def test_a_folder_of_few_files_is_cut_and_may_hold_the_model(text):
    """A tenth of the text is held out, whatever the sizes of the files; what the run itself writes into the folder is no text."""
    folder = text.parent / "texts"
    folder.mkdir()
    (folder / "about.txt").write_text("A short file.\n", encoding="utf-8")
    (folder / "book.txt").write_text("\n\n".join(documents()[:8]), encoding="utf-8")
    report = train_files(folder, folder / "model", device="cpu", progress=False, **TINY)
    assert report.n_files == 2 and 10 <= report.documents <= 80
    assert 0.02 < report.held_out_tokens / (report.held_out_tokens + report.train_tokens) < 0.25
    assert resumed(folder / "book.txt", steps=9).n_files == 2
    assert train_files(None, folder / "more", begin=folder / "model", device="cpu", progress=False, steps=2, batch_size=2).n_files == 2
    (folder / "nothing").mkdir()
    (folder / "nothing" / "x.run").mkdir()
    (folder / "nothing" / "x.run" / "run.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match="path: got .* without files, want text files"):
        Job([str(folder / "nothing")], *plan(1000)).files(folder / "nothing" / "x.run")


def test_a_loss_that_is_not_finite_keeps_the_checkpoints(text):
    with pytest.raises(ValueError, match=r"at step \d+, batch sample_batch\(tokens, 16, 4, 0, \d+\)"):
        train_files(text, text.parent / "model", device="cpu", progress=False, **TINY | {"lr": 1e30, "warmup": 8, "eval_every": 1})
    kept = checkpoints(run_folder(text.parent / "model")) if run_folder(text.parent / "model").exists() else []
    from safetensors.torch import load_file

    assert all(w.isfinite().all() for path in kept for w in load_file(path / "state.safetensors").values())


def test_a_run_that_went_on_from_a_model_is_taken_further(text, tmp_path):
    train_files(text, tmp_path / "first", device="cpu", progress=False, preset="gpt2", **TINY)
    train_files(None, tmp_path / "model", begin=tmp_path / "first", device="cpu", progress=False, steps=2, batch_size=2)
    assert resumed(text, steps=3).steps == 3 and load(tmp_path / "model")[0].config == load(tmp_path / "first")[0].config


def in_a_folder(folder, watch=None):
    """A short run that keeps its state in the folder, or goes on there."""
    tokens = torch.arange(400) % 37
    config = TrainConfig(steps=8, batch_size=2, warmup=2, eval_every=2)
    model = Config(40, d_model=8, d_ff=16, n_layers=1, n_heads=2, max_len=8)
    return train(config, model, tokens[:300], tokens[300:], device="cpu", progress=False, folder=folder, watch=watch)


def test_a_run_that_breaks_hands_over_the_best_weights_of_its_folder(tmp_path):
    def poison(step, model):
        if step == 4:
            with torch.no_grad():
                model.norm.weight.fill_(float("nan"))

    with pytest.raises(Diverged) as caught:
        in_a_folder(tmp_path / "run", poison)
    result = caught.value.result
    assert caught.value.step == 4 and sorted(result.held_out) == [2, 4]
    assert all(w.isfinite().all() for w in result.model.parameters())
    assert [path.name for path in checkpoints(tmp_path / "run")] == ["step-00000002", "step-00000004"]
    whole = in_a_folder(tmp_path / "run")  # healthy again from the last checkpoint on
    assert whole.resumed == 4 and len(whole.log) == 8 and whole.log[:4] == result.log
    assert whole.log == in_a_folder(tmp_path / "other").log


def test_the_seconds_of_a_run_are_those_of_its_steps(tmp_path):
    began = time.perf_counter()
    result = in_a_folder(tmp_path / "run", lambda step, model: time.sleep(0.2))
    assert 0 < result.seconds < time.perf_counter() - began - 4 * 0.2


@pytest.mark.parametrize("pe", ["sinusoidal", "rotary", "none", "learned"])
def test_a_model_in_half_precision_comes_back_as_it_was(pe, tmp_path):
    model = TransformerLM(Config(257, d_model=8, d_ff=8, n_layers=1, n_heads=2, max_len=8, pe=pe)).eval().bfloat16()
    save(model, tmp_path / "model", Tokenizer([]))
    again, _ = load(tmp_path / "model")
    x = torch.arange(6)[None]
    assert again(x).dtype == torch.bfloat16 and torch.equal(again(x), model(x))


def test_a_checkpoint_notes_the_loss_on_the_held_out_text(tmp_path):
    result = in_a_folder(tmp_path / "run")
    noted = {read_notes(path)["step"]: read_notes(path)["held_out"] for path in checkpoints(tmp_path / "run")}
    assert len(noted) >= 3 and noted.items() <= result.held_out.items()


def test_what_a_killed_process_left_half_written_goes(tmp_path):
    in_a_folder(tmp_path / "run")
    (tmp_path / "run" / ".step-00000009.77.part").mkdir()
    (tmp_path / "run" / ".step-00000009.77.part" / "state.safetensors").write_bytes(b"half")
    (tmp_path / "run" / ".train.tokens.77.part").write_bytes(b"half")
    in_a_folder(tmp_path / "run")
    assert not list((tmp_path / "run").glob(".*"))


@pytest.mark.skipif(os.name == "nt", reason="no such locks")
def test_one_run_at_a_time_works_in_a_folder(tmp_path, text):
    (tmp_path / "run").mkdir()
    with held(tmp_path / "run"), pytest.raises(FileExistsError, match="folder: got .*run', in which another process is at work"):
        in_a_folder(tmp_path / "run")
    assert len(in_a_folder(tmp_path / "run").log) == 8
    assert best_checkpoint(str(tmp_path / "run")) in checkpoints(str(tmp_path / "run"))


@pytest.mark.skipif(os.name == "nt", reason="no such locks")
def test_a_disk_without_locks_is_no_other_run(tmp_path, monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr("tlm_book.files.fcntl.flock", flock)
    with held(tmp_path):
        assert tmp_path.is_dir()


def test_what_a_killed_process_left_beside_stands_in_nobodys_way(tmp_path, monkeypatch):
    """In a container every process has the same number."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    unfinished = new_folder(tmp_path / "model")
    unfinished.__enter__()  # and is never heard of again
    with new_folder(tmp_path / "model") as part:
        (part / "weights").write_text("new")
    assert (tmp_path / "model" / "weights").read_text() == "new"


def test_what_is_given_to_train_files_is_read_once_and_stays_as_it_was(text):
    words, once = Tokenizer.train(documents()[:3], 270), text.parent / "once"
    sizes = {name: value for name, value in TINY.items() if name != "vocab_size"}
    train_files(iter([text]), once, tokenizer=words, device="cpu", progress=False, **sizes)
    said = json.loads((once / "run.json").read_text())
    assert said["size"]["vocab_size"] == load(once)[0].config.vocab_size == 270
    model, words = load(once)
    model.bfloat16()
    train_files(text, text.parent / "on", begin=(model, words), steps=2, eval_every=1, batch_size=4, device="cpu", progress=False)
    assert model.embedding.table.weight.dtype == torch.bfloat16 and load(text.parent / "on")[0].embedding.table.weight.dtype == torch.float32


def test_no_folder_takes_the_place_of_a_broken_link(tmp_path):
    (tmp_path / "model").symlink_to(tmp_path / "gone")
    with pytest.raises(FileExistsError, match="folder: got"):
        free_folder(tmp_path / "model")


def test_no_file_takes_the_place_of_a_folder(tmp_path):
    """It is said before anything is written."""
    (tmp_path / "model").mkdir()
    with pytest.raises(IsADirectoryError, match="file: got .*model', a folder, want the name of a file"), new_file(tmp_path / "model"):
        pytest.fail("something was written")


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(os, "fsync", lambda number: written.append((os.path.getsize(number), (tmp_path / "text").exists())))
    with new_file(tmp_path / "text") as part:
        part.write_text("tide")
    assert written == [(4, False)]


def test_only_what_is_half_written_is_cleared(tmp_path):
    for name in ("chapter.part", ".hidden", ".text.12ab34cd.part", "notes.txt"):
        (tmp_path / name).write_text("x")
    (tmp_path / ".step.12ab34cd.part").mkdir()
    (tmp_path / ".step.12ab34cd.part" / "x").write_text("x")
    clear_parts(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"chapter.part", ".hidden", "notes.txt"}


def test_the_last_checkpoints_and_the_best_are_kept(text):
    folder = begun(text, step=8, steps=10, keep=2)
    assert 2 <= len(checkpoints(folder)) <= 3 and checkpoints(folder)[-1].name == "step-00000008"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's account of memory")
def test_memory_does_not_grow_with_the_text(tmp_path):
    """Batches from a mapped token file of 24 MB: the process takes next to no memory of its own."""
    code = f"""
import numpy as np
from tlm_book.training import read_tokens, sample_batch, write_tokens
class Words:
    stop = 0
    def __len__(self): return 300
    def encode(self, text): return np.frombuffer(text.encode(), np.uint8)
def own():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon")) * 1024
write_tokens({str(tmp_path / "big.tokens")!r}, ("x" * 1_000_000 for _ in range(12)), Words())
file, before = read_tokens({str(tmp_path / "big.tokens")!r}), own()
for step in range(200):
    batch = sample_batch(file.tokens, 256, 4, 0, step)
assert own() - before < 4_000_000, "the file was read as a whole"
assert len(file.tokens) == 12 * 1_000_001 and batch.shape == (4, 256)
everything = file.tokens.long()
assert own() - before > 50_000_000  # what this test would see
"""
    alone("-c", code, timeout=300)


def test_a_folder_with_other_things_in_it_is_left_alone(text):
    """It would be removed when the run is complete."""
    folder = run_folder(text.parent / "model")
    folder.mkdir()
    (folder / "diary.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(ValueError, match="folder: got .*diary.txt"):
        train_files(text, text.parent / "model", device="cpu", progress=False, resume=True, **TINY)
    assert contents(folder) == {"diary.txt": b"mine"}


ACTS = ("mkdir", "rename", "replace", "unlink", "remove", "rmdir")  # what changes a folder


def test_a_good_checkpoint_is_there_before_and_after_every_act(text, monkeypatch):
    """With only one to keep: at each change of a folder, the last complete checkpoint is whole, and neither the newest nor the best so far is lost."""
    from safetensors.torch import load_file

    folder, seen, losses = run_folder(text.parent / "model"), [], {}

    def look():
        found = checkpoints(folder)
        notes = [(path, read_notes(path)) for path in found]  # no half of one has its name
        assert all(load_file(path / "state.safetensors") for path in found)
        losses.update({note["step"]: note["held_out"] for _, note in notes})
        best = min((note["held_out"] for _, note in notes), default=float("inf"))
        seen.append((notes[-1][1]["step"] if notes else 0, -best))
        assert seen == sorted(seen, key=lambda pair: pair[0]) and seen == sorted(seen, key=lambda pair: pair[1]), "a checkpoint was lost"

    def watched(act):
        def wrapped(*arguments, **options):
            look()
            result = act(*arguments, **options)
            look()
            return result

        return wrapped

    for name in ACTS:
        monkeypatch.setattr(os, name, watched(getattr(os, name)))
    begun(text, step=8, keep=1, eval_every=1, lr=1.0, min_lr=1.0, warmup=0)  # jumps about: hardly anywhere is the last the best
    monkeypatch.undo()
    assert {step for step, _ in seen} == set(range(9)) and len({best for _, best in seen}) > 3
    assert {read_notes(path)["step"] for path in checkpoints(folder)} == {8, min(losses, key=losses.get)}


def refuse_to_rename(monkeypatch, name):
    """Every renaming to that name fails, as when the disk is gone."""
    for act in ("rename", "replace"):
        real = getattr(os, act)

        def fails(source, target, *rest, real=real, **options):
            if Path(target).name.startswith(name):
                raise OSError("no such luck")
            return real(source, target, *rest, **options)

        monkeypatch.setattr(os, act, fails)


def test_a_checkpoint_that_cannot_be_renamed_leaves_the_others(text, monkeypatch):
    folder = begun(text, keep=1)
    before = contents(folder)
    refuse_to_rename(monkeypatch, "step-")
    with pytest.raises(OSError, match="no such luck"):
        train_files(text, text.parent / "model", device="cpu", progress=False, resume=True, keep=1, **TINY)
    monkeypatch.undo()
    after = contents(folder)
    assert {k: v for k, v in before.items() if not k.startswith("log.")} == {k: v for k, v in after.items() if not k.startswith("log.")}
    train_files(text, text.parent / "model", device="cpu", progress=False, resume=True, keep=1, **TINY)
    assert not folder.exists()


def test_a_token_file_is_there_whole_or_not_at_all(tmp_path, monkeypatch):
    words, file = Tokenizer.train(["a bell"], 257), tmp_path / "bells.tokens"
    write_tokens(file, ["the old one"], words)
    before = contents(tmp_path)

    def more():
        """Documents; the file of that name is the old one as long as they come."""
        for text in ("a bell", "two bells"):
            assert file.read_bytes() == before["bells.tokens"]
            yield text

    refuse_to_rename(monkeypatch, "bells")
    with pytest.raises(OSError, match="no such luck"):
        write_tokens(file, more(), words)  # the last act is one renaming
    assert contents(tmp_path) == before
    monkeypatch.undo()

    def breaks():
        yield "a bell"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_tokens(file, breaks(), words)
    assert contents(tmp_path) == before
    new = write_tokens(file, more(), words)
    assert new.head["documents"] == 2 and sorted(contents(tmp_path)) == ["bells.tokens"]


def test_a_loss_that_is_no_number_is_not_the_best(tmp_path):
    for step, loss in ((1, float("nan")), (2, 1.0)):
        write_checkpoint(tmp_path, step, {"w": torch.ones(1)}, {"run": {"training": {}}, "held_out": loss})
    assert best_checkpoint(tmp_path).name == "step-00000002"


def test_checkpoints_stand_in_the_order_of_their_steps(tmp_path):
    """Also where a step has nine digits."""
    for step, loss in ((99_999_999, 2.0), (100_000_000, 1.0), (100_000_001, None), (100_000_002, 3.0)):
        write_checkpoint(tmp_path, step, {"w": torch.ones(1)}, {"run": {"training": {}}, "held_out": loss})
    numbers = lambda: [int(path.name.removeprefix("step-")) for path in checkpoints(tmp_path)]
    assert numbers() == [99_999_999, 100_000_000, 100_000_001, 100_000_002] and best_checkpoint(tmp_path).name == "step-100000000"
    drop_old(tmp_path, 1)
    assert numbers() == [100_000_000, 100_000_002]


def test_of_equal_losses_the_first_is_the_best():
    model, kept = TransformerLM(Config(5, d_model=4, d_ff=4, n_layers=1, n_heads=1, max_len=4)), InMemory()
    optimizer = torch.optim.SGD(model.parameters())
    log, first = kept.begin(model, optimizer), model.embedding.table.weight.detach().clone()
    for step in (1, 2):
        log.append({"step": step, "held_out": 1.0})
        kept.keep(model, optimizer)
        with torch.no_grad():
            model.embedding.table.weight.add_(1)
    assert torch.equal(kept.best()["embedding.table.weight"], first)


def test_a_state_of_another_type_is_refused(tmp_path):
    save_file({"w": torch.ones(2, dtype=torch.float64)}, tmp_path / "state.safetensors")
    with pytest.raises(ValueError, match="got no w that fits, want the state of this run"):
        state_in(tmp_path / "state.safetensors", {"w": torch.ones(2)}, "the state of this run")


@pytest.mark.parametrize(("preset", "pattern"), [("gpt2", GPT2_PATTERN), ("llama", PATTERN), (None, PATTERN)], ids=["gpt2", "llama", "none"])
def test_the_tokenizer_cuts_as_the_preset_wants(preset, pattern, text, tmp_path):
    (tmp_path / "new").mkdir()
    prepare(tmp_path / "new", new_job(text, preset, None, TINY), None)
    assert Tokenizer.load(tmp_path / "new" / "tokenizer.json").pattern == pattern


def test_a_given_tokenizer_is_the_run_s_own(text):
    words, other = (Tokenizer.train([t], 270) for t in documents()[:2])
    choices = {name: value for name, value in TINY.items() if name != "vocab_size"}
    given = lambda tokenizer, **more: train_files(text, text.parent / "model", tokenizer=tokenizer, device="cpu", progress=False, **choices, **more)
    with pytest.raises(Stop):
        given(words, watch=stop_at(4))
    assert json.loads((run_folder(text.parent / "model") / "run.json").read_text())["size"]["vocab_size"] == len(words)
    first = next(t for t in range(256, 270) if words.token_bytes(t) != other.token_bytes(t))
    with pytest.raises(ValueError, match=f"^tokenizer: got token {first} = {re.escape(other.token_text(first))}, want {re.escape(words.token_text(first))}$"):
        given(other, resume=True)
    given(words, resume=True)
    load(text.parent / "model")[1].check_same(words)


def test_a_run_goes_on_when_one_of_its_texts_is_gone(text):
    (text.parent / "more.txt").write_text("It is a line of few words.\n" * 300)
    with pytest.raises(Stop):
        train_files([text, text.parent / "more.txt"], text.parent / "model", device="cpu", progress=False, watch=stop_at(4), **TINY)
    (text.parent / "more.txt").unlink()
    assert resumed(text).n_files is None


def test_characters_are_counted_in_what_is_held_out(text):
    found = train_from_file(text, text.parent / "small", device="cpu", progress=False, **TINY)
    assert 0.9 * found.held_out_bytes < found.held_out_characters <= found.held_out_bytes


def test_what_is_chosen_goes_before_what_a_preset_or_a_time_suggests(text, monkeypatch):
    rates = [new_job(text, preset, None, choices).config.lr for preset in ("llama", None) for choices in ({}, {"lr": 0.01})]
    assert rates == [PRESETS_RATE, 0.01, TrainConfig(lr=4e-3).lr, 0.01]
    (text.parent / "long.txt").write_text("It is a line of few words.\n" * 3000)
    sizes = []
    monkeypatch.setattr("tlm_book.training.job.fit_time", lambda n, aim, its, model_of, config, *rest: sizes.append(len(its)) or (its[-1], config, len(sizes) > 2))
    aim = Aim(0.5)
    jobs = [new_job(text.parent / "long.txt", None, None, choices, aim) for choices in ({"d_model": 32}, {"token_noise": 0.0}, {"lr": 0.01})]
    assert sizes == [1, 3, 3] and [job.minutes for job in jobs] == [None, None, 0.5]  # the last was fitted


def test_a_model_in_half_precision_goes_on_in_single(tmp_path):
    model, words = TransformerLM(Config(257, d_model=4, d_ff=4, n_layers=1, n_heads=1, max_len=8)).bfloat16(), Tokenizer([])
    begin_with(tmp_path, (model, words), 8)
    begun, _ = begun_with(tmp_path)
    assert {w.dtype for w in begun.parameters()} == {torch.float32} and {w.dtype for w in model.parameters()} == {torch.bfloat16}


def test_a_run_that_goes_on_from_a_model_is_gentle(text, tmp_path):
    train_files(text, tmp_path / "first", device="cpu", progress=False, **TINY)
    train_files(None, tmp_path / "more", begin=tmp_path / "first", device="cpu", progress=False, steps=2, batch_size=2, context=12)
    said = json.loads((tmp_path / "more" / "run.json").read_text())["config"]
    assert (said["lr"], said["token_noise"]) == (1.5e-4, 0.0)


def test_the_speed_is_that_of_the_steps_since_the_run_was_taken_up(tmp_path):
    model = TransformerLM(Config(5, d_model=4, d_ff=4, n_layers=1, n_heads=1, max_len=4))
    log = [{"step": k, "lr": 0.1, "loss": 1.0, "held_out": 1.0} for k in range(1, 11)]
    tokens = torch.arange(40) % 5
    found = report(tmp_path, Result(model, log, 2.0, 6), TrainConfig(steps=10, warmup=1, batch_size=3), tokens, tokens, 0, documents=2, held_out_bytes=40)
    assert found.tokens_per_second == (10 - 6) * 3 * 4 / 2.0 and found.best_step == 1


def test_the_tables_count_no_more_than_they_are_said_to(tmp_path, monkeypatch):
    model = TransformerLM(Config(5, d_model=4, d_ff=4, n_layers=1, n_heads=1, max_len=4))
    result = Result(model, [{"step": 1, "lr": 0.1, "loss": 1.0, "held_out": 1.0}], 2.0)
    known, held_out = torch.tensor([*[0, 1] * 20, *[4] * 40]), torch.arange(40) % 2
    monkeypatch.setattr(running, "COUNTED", 40)
    found = report(tmp_path, result, TrainConfig(steps=1, warmup=0), known, held_out, 0, documents=2, held_out_bytes=40)
    assert found.unigram == unigram(known[:40], held_out, 5) != unigram(known, held_out, 5) and found.train_tokens == 80


REPORT = RunReport(Path("m"), 3, 1000, 100, 250, 1234, 10, 8, 2.0, 2.0, 1.9, 3.0, 1234.6, 0.256, held_out_characters=200)


def test_a_report_names_the_first_rival_that_is_as_good():
    said = str(REPORT).splitlines()
    assert [line.split(":")[0] for line in said[-3:]] == ["note", "speed", "files"]
    assert said[-3] == "note: the trigram (Kneser–Ney) model is as good or better; more text or more steps may help"
    assert said[-2] == "speed: 1,235 tokens per second, 26 % of what products of large matrices reach here"
    assert "note:" not in str(dataclasses.replace(REPORT, loss=1.89))


def test_a_report_has_its_losses_in_three_units():
    assert REPORT.bits_per_byte(2.0) == pytest.approx(2 * 100 / 250 / math.log(2)) and REPORT.bits_per_character(2.0) == pytest.approx(2 * 100 / 200 / math.log(2))
    rows = [line.split()[-3:] for line in str(REPORT).splitlines() if line.startswith("  ")]
    assert rows[0] == ["2.000", "1.154", "1.443"] and len(rows) == 4
    with pytest.raises(ValueError, match="held_out_characters: got None"):
        dataclasses.replace(REPORT, held_out_characters=None).bits_per_character(2.0)


@pytest.mark.parametrize(("n_files", "words"), [(None, ""), (3, ""), (1, "(one file, cut into documents"), (2, "(2 files, cut into documents")])
def test_a_report_says_why_there_are_more_documents_than_files(n_files, words):
    said = str(dataclasses.replace(REPORT, n_files=n_files))
    assert ("cut into documents" in said) == bool(words) and words in said


def test_what_is_chosen_for_the_book_goes_before_its_recipe(monkeypatch):
    asked = []
    monkeypatch.setattr(running, "train_and_save", lambda texts, out, size, config, **options: asked.append(config) or REPORT)
    train_book("new", steps=100)
    train_book("new", steps=100, lr=0.01, schedule="linear")
    assert [(c.lr, c.min_lr, c.schedule, c.warmup) for c in asked] == [(1.5e-3, 0.1, "cosine", 10), (0.01, 0.1, "linear", 10)]


def test_only_the_first_process_says_that_it_stops(usual_ctrl_c, monkeypatch, capsys):
    monkeypatch.setattr(DistContext, "mean", lambda self, number: number)
    for rank in (0, 1):
        with stop_signal(DistContext(rank, 2)) as stopped:
            os.kill(os.getpid(), signal.SIGINT)
            assert stopped()
        assert ("stopping after this step" in capsys.readouterr().err) == (rank == 0)


def test_after_a_run_ctrl_c_does_what_it_did_before(usual_ctrl_c):
    with stop_signal(DistContext()) as stopped:
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler and not stopped()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_callers_own_way_with_ctrl_c_is_kept():
    own, pressed = lambda number, frame: pressed.append(number), []
    before = signal.signal(signal.SIGINT, own)
    try:
        with stop_signal(DistContext()) as stopped:
            signal.raise_signal(signal.SIGINT)
            assert pressed and not stopped()
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_folder_that_appears_meanwhile_is_not_replaced(tmp_path):
    """Not even an empty one, over which a system may well rename."""
    with pytest.raises(FileExistsError, match="which exists"), new_folder(tmp_path / "model") as part:
        (part / "file").write_text("new")
        (tmp_path / "model").mkdir()
    assert [path.name for path in tmp_path.rglob("*")] == ["model"]

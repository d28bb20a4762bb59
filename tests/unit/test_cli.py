"""The command line, as a user meets it: each case is a process of its own."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import environment, fresh
from commands import run as command

from tlm_book.__main__ import main
from tlm_book.arguments import arguments, in_options, refuse_options
from tlm_book.tokenization import documents

TINY = ["--steps", "4", "--vocab-size", "280", "--d-model", "16", "--layers", "1", "--heads", "2", "--context", "16",
        "--batch-size", "2", "--device", "cpu", "--quiet"]


def refused(run: subprocess.CompletedProcess[str], *words: str) -> bool:
    """Status 2, one line that holds the words, no traceback."""
    one_line = run.stderr.startswith("tlm_book: error: ") and run.stderr.count("\n") == 1
    return run.returncode == 2 and one_line and all(word in run.stderr for word in words)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    file = tmp_path_factory.mktemp("text") / "essays.txt"
    file.write_text("\n\n".join(documents()[:6]), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def trained(text):
    folder = text.parent / "models" / "tiny"
    run = fresh("train", "--data", text, "--out", folder, *TINY)
    assert run.returncode == 0, run.stderr
    return folder, run


def test_train_reports_and_writes(trained):
    folder, run = trained
    assert f"next: python -m tlm_book generate --model {folder} " in run.stdout
    assert "bigram" in run.stdout and "bits per byte" in run.stdout and str(folder) in run.stdout
    assert sorted(p.name for p in folder.iterdir()) == ["config.json", "log.csv", "log.jsonl", "model.safetensors", "run.json", "state.safetensors", "tokenizer.json"]
    assert [p.name for p in folder.parent.iterdir()] == ["tiny"]
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in log] == [1, 2, 3, 4] and "held_out" in log[-1]
    settings = json.loads((folder / "config.json").read_text())
    assert settings["model"]["d_model"] == 16 and settings["training"]["steps"] == 4


def test_train_shows_progress(text, tmp_path):
    run = command("train", "--data", text, "--out", tmp_path / "m", *TINY[:-1])
    assert run.returncode == 0 and "4/4" in run.stderr and "4/4" not in run.stdout
    first = run.stderr.splitlines()[:3]  # what is to be done, before it is begun
    assert [line.split(":")[0] for line in first] == ["text", "model", "run"] and first[2].startswith("run: 4 steps of 2 windows, which read the text 0.0 times over")
    assert "1 block of width 16, windows of 16 tokens out of 280" in first[1], first


def test_generate_is_reproducible(trained):
    folder, _ = trained
    options = ["generate", "--model", folder, "--prompt", "Naïve 🙂", "--tokens", "12", "--device", "cpu"]
    first, again, other = command(*options), command(*options), command(*options, "--seed", "5")
    assert first.returncode == 0 and first.stdout.startswith("Naïve 🙂") and len(first.stdout) > len("Naïve 🙂\n")
    assert first.stdout == again.stdout != other.stdout


def test_generate_uses_the_shipped_model():
    run = command("generate", "--prompt", "The water", "--tokens", "8", "--temperature", "0")
    assert run.returncode == 0 and run.stdout.startswith("The water") and run.stdout.endswith("\n")


def test_generate_writes_while_it_thinks():
    """The first piece of text comes long before the last one: it is not held back until the end."""
    arguments = ["generate", "--prompt", "The water", "--tokens", "1000", "--top-k", "50", "--top-p", "0.95", "--min-p", "0.01", "--repetition-penalty", "1.1"]
    with subprocess.Popen([sys.executable, "-m", "tlm_book", *arguments], stdout=subprocess.PIPE, env=environment()) as run:
        piece = run.stdout.read(12)
        still_writing = run.poll() is None
        run.kill()
    assert piece.startswith(b"The water") and len(piece) == 12 and still_writing


def test_generate_refuses_wrong_choices():
    for option, value, word in (("--top-p", "1.5", "--top-p"), ("--tokens", "500", "max_len")):
        run = command("generate", "--prompt", "a", option, value, *["--on-overflow", "error"] * (word == "max_len"))
        assert refused(run, word, value) and run.stdout == ""


def test_existing_folder_is_left_alone(trained, text):
    folder, _ = trained
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    assert refused(command("train", "--data", text, "--out", folder, *TINY), str(folder), "exists")
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before


def test_folder_of_texts_and_a_given_tokenizer(trained, text, tmp_path):
    (tmp_path / "texts").mkdir()
    for i, essay in enumerate(documents()[:4]):
        (tmp_path / "texts" / f"{i}.txt").write_text(essay, encoding="utf-8")
    sizes = [word for word in TINY if word not in ("--vocab-size", "280")]  # the tokenizer has its own
    run = command("train", "--data", tmp_path / "texts", text, "--out", tmp_path / "m", "--tokenizer", trained[0] / "tokenizer.json",
                  "--sample", "The", "--activation-checkpointing", "--grad-accum-steps", "2", "--eval-every", "2", "--resume", *sizes)
    assert run.returncode == 0 and "5 documents" in run.stdout and "after 4 steps: 'The" in run.stderr, run.stderr
    assert (tmp_path / "m" / "tokenizer.json").read_bytes() == (trained[0] / "tokenizer.json").read_bytes()


def test_the_commands_that_come_next_can_be_copied(text, tmp_path):
    place = tmp_path / "my model"
    run = command("train", "--data", text, "--out", place, *TINY)
    assert f"--model '{place}'" in run.stdout and f"--resume --out '{place}' --steps" in run.stdout, run.stderr
    (tmp_path / "other one.run").mkdir()
    (tmp_path / "other one.run" / "run.json").write_text("{}")
    assert refused(command("generate", "--model", tmp_path / "other one"), f"train --resume --out '{tmp_path / 'other one'}'\n")


def test_an_interrupted_run_is_taken_up(text, tmp_path):
    (tmp_path / "m.run").mkdir()  # what is left of a run that was killed at once
    again = ["train", "--data", text, "--out", tmp_path / "m", *TINY]
    assert refused(command(*again), "m.run", "interrupted", "resume")
    assert command(*again, "--resume").returncode == 0 and [path.name for path in tmp_path.iterdir()] == ["m"]


def ears():
    """Hear Ctrl-C, whatever the shell that runs the tests has said of it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX signals")
def test_ctrl_c_saves_the_step_and_says_how_to_go_on(text, tmp_path):
    arguments = ["train", "--data", text, "--out", tmp_path / "m", *TINY, "--steps", "100000", "--eval-every", "7"]
    with subprocess.Popen([sys.executable, "-m", "tlm_book", *map(str, arguments)], stderr=subprocess.PIPE, text=True, env=environment(), preexec_fn=ears) as run:
        while not any((tmp_path / "m.run").glob("step-*")) and run.poll() is None:
            time.sleep(0.05)
        run.send_signal(signal.SIGINT)
        said = run.communicate(timeout=120)[1]
    step = int(re.search(r"stopped after step (\d+) of 100000, which is saved in '.*m.run'", said)[1])
    assert run.returncode == 130 and f"train --resume --out {tmp_path / 'm'}" in said
    assert (tmp_path / "m.run" / f"step-{step:08}").is_dir()
    again = command("train", "--resume", "--out", tmp_path / "m", "--lr", "0.5")
    assert refused(again, "--lr: got 0.5, want 0.004, with which the run in", "was begun")


def test_a_finished_run_goes_further_from_its_folder_alone(text, tmp_path):
    assert command("train", "--data", text, "--out", "m", *TINY, cwd=tmp_path).returncode == 0
    assert refused(command("train", "--resume", "--out", "m", cwd=tmp_path), "--steps: got none", "greater than 4")
    run = command("train", "--resume", "--out", "m", "--steps", "6", "--quiet", cwd=tmp_path)
    assert run.returncode == 0 and "of 6 steps" in run.stdout, run.stderr
    rows = (tmp_path / "m" / "log.csv").read_text().splitlines()
    assert len(rows) == 7 and sorted(path.name for path in tmp_path.iterdir()) == ["m"]
    run = command("train", "--from", "m", "--out", "n", "--steps", "2", "--quiet", "--device", "cpu", cwd=tmp_path)  # on the same text
    assert run.returncode == 0 and "of 2 steps" in run.stdout, run.stderr
    assert (tmp_path / "n" / "tokenizer.json").read_bytes() == (tmp_path / "m" / "tokenizer.json").read_bytes()


def test_documents_are_explained(trained):
    assert "(one file, cut into documents at <|endoftext|> or form feeds" in trained[1].stdout


def test_a_prompt_that_is_cut_is_said(trained):
    run = command("generate", "--model", trained[0], "--prompt", "x" * 40, "--tokens", "3", "--device", "cpu")
    assert run.returncode == 0 and run.stderr.startswith("tlm_book: the model reads 16 tokens: the first 25 of the prompt are dropped"), run.stderr
    assert command("generate", "--model", trained[0], "--prompt", "x" * 15, "--tokens", "3", "--device", "cpu").stderr == ""


def test_export_without_counterpart_names_field_and_preset(trained, tmp_path):
    run = command("export", "--model", trained[0], "--out", tmp_path / "theirs")
    assert refused(run, "--model: got one with norm_kind = 'layer', want 'rms'", "train --preset llama") and "tied" not in run.stderr and not (tmp_path / "theirs").exists()


def test_a_page_of_ones_own_model(trained, tmp_path):
    run = command("page", "--model", trained[0], "--out", "mine.html", "--text", "The <sea>", "--title", "Mine", cwd=tmp_path)
    assert run.returncode == 0 and "open it in a browser" in run.stdout, run.stderr
    page = (tmp_path / "mine.html").read_text(encoding="utf-8")
    assert page.lstrip().lower().startswith("<!doctype html>") and "The &lt;sea&gt;" in page and "http://" not in page.replace("http://www.w3.org", "")
    again = command("page", "--model", trained[0], "--out", "mine.html", cwd=tmp_path)
    assert again.returncode == 2 and again.stderr.startswith("tlm_book: error: --out: got 'mine.html', which exists")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """A folder with folders of other kinds: with a tokenizer from the hub, without one, and with a model that translates."""
    from tlm_book import Config, TransformerLM
    from tlm_book.encoder_decoder import EncoderDecoder
    from tlm_book.pretrained import marian_preset, save_gpt2, save_llama, save_marian
    from tlm_book.tokenization import GPT2_PATTERN, Tokenizer

    folder, sizes = tmp_path_factory.mktemp("theirs"), {"d_model": 8, "d_ff": 12, "n_layers": 1, "n_heads": 2, "max_len": 16}
    save_llama(TransformerLM(Config.llama(257, **sizes)), folder / "llama", Tokenizer([], pattern=GPT2_PATTERN))
    save_gpt2(TransformerLM(Config.gpt2(257, **sizes)), folder / "bare")
    save_marian(EncoderDecoder(marian_preset(13, **sizes)), folder / "marian")
    return folder


@pytest.mark.parametrize(
    ("name", "words", "why"),
    [
        ("llama", ["page", "--out", "new.html"], "which has a HubTokenizer, want a model with a tokenizer that a page can hold"),
        ("bare", ["page", "--out", "new.html"], "which has no tokenizer, want a model with a tokenizer that a page can hold"),
        ("bare", ["generate"], "which has no tokenizer, want a model with a tokenizer"),
        ("marian", ["page", "--out", "new.html"], "EncoderDecoder, want a decoder"),
        ("marian", ["generate"], "EncoderDecoder, want a decoder"),
        ("marian", ["export", "--out", "new"], "EncoderDecoder, want a decoder"),
        ("marian", ["train", "--out", "new", "--data", "."], "EncoderDecoder, want a decoder"),
    ],
)
def test_a_model_with_which_a_command_can_do_nothing(name, words, why, theirs, tmp_path):
    option = "--from" if words[0] == "train" else "--model"
    assert refused(command(*words, option, theirs / name, cwd=tmp_path), f"error: {option}: got '{theirs / name}'", why)
    assert not list(tmp_path.iterdir())


def test_export_without_a_tokenizer_promises_none(theirs, tmp_path):
    run = command("export", "--model", theirs / "bare", "--out", "new", cwd=tmp_path)
    assert run.returncode == 0 and "without a tokenizer" in run.stdout and "AutoTokenizer" not in run.stdout, run.stderr
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["config.json", "model.safetensors"]


def test_missing_file(tmp_path):
    assert refused(command("train", "--data", tmp_path / "none.txt", "--out", tmp_path / "m", *TINY), "none.txt")
    assert not (tmp_path / "m").exists()


def test_folder_in_place_of_a_file(tmp_path):
    assert refused(command("train", "--data", tmp_path, "--out", tmp_path / "m", *TINY), "folder")


def test_latin_1_file(tmp_path):
    file = tmp_path / "latin.txt"
    file.write_bytes(("x" * 4000 + "café au lait ").encode("latin-1") * 3)
    assert refused(command("train", "--data", file, "--out", tmp_path / "m", *TINY), "0xe9", "position 4003", "UTF-8")


def test_small_file(tmp_path):
    file = tmp_path / "small.txt"
    file.write_text("x" * 100)
    assert refused(command("train", "--data", file, "--out", tmp_path / "m", *TINY), "100 bytes", "4096")


def test_a_text_of_blanks(tmp_path):
    (tmp_path / "blank.txt").write_text(" \n" * 4000)
    run = command("train", "--data", tmp_path / "blank.txt", "--out", tmp_path / "m", *TINY)
    assert run.returncode == 2 and run.stderr.endswith("tlm_book: error: --data: got no document, want at least one\n")
    assert [path.name for path in tmp_path.iterdir()] == ["blank.txt"]


@pytest.mark.parametrize("content", ["天地玄黄，宇宙洪荒。日月盈昃，" * 200, "🙂🎈🐝 " * 1500, "one endless line " * 600, "x" * 12000])
def test_unusual_texts(content, tmp_path):
    file = tmp_path / "text.txt"
    file.write_text(content, encoding="utf-8")
    run = command("train", "--data", file, "--out", tmp_path / "m", *TINY)
    assert run.returncode == 0, run.stderr
    run = command("generate", "--model", tmp_path / "m", "--prompt", content[:5], "--tokens", "5")
    assert run.returncode == 0 and run.stdout.startswith(content[:5])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--heads", "3"], ["--heads", "3", "--d-model"]),
        (["--vocab-size", "100"], ["--vocab-size", "257"]),
        (["--steps", "0"], ["--steps", "0"]),
        (["--lr", "-1"], ["--lr", "-1"]),
        (["--lr", "1e30"], ["loss", "smaller lr"]),
        (["--context", "100000"], ["tokens", "100000"]),
        (["--device", "toaster"], ["--device", "toaster"]),
        pytest.param(["--device", "cuda"], ["--device: got 'cuda', want a device of this machine, such as \"auto\" or \"cpu\"\n"], marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")),
    ],
)
def test_wrong_choices(options, words, text, tmp_path):
    assert refused(command("train", "--data", text, "--out", tmp_path / "m", *TINY, *options), *words)
    assert not list(tmp_path.iterdir())


def test_what_is_wrong_with_a_file_is_said_of_its_option(text, tmp_path):
    (tmp_path / "bad.json").write_text("{}")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "config.json").write_text("{}")
    given = ["train", "--data", text, "--out", tmp_path / "new"]
    assert refused(command(*given, "--tokenizer", tmp_path / "bad.json"), "--tokenizer: got", "bad.json")
    assert refused(command(*given, "--from", tmp_path / "bad"), f"error: {tmp_path / 'bad' / 'config.json'}: model_type: got None, want one of 'gpt2'")
    (tmp_path / "bad" / "config.json").write_text('{"model_type": "gpt2", "activation_function": "cosine"}')
    assert refused(command(*given, "--from", tmp_path / "bad"), f"error: {tmp_path / 'bad' / 'config.json'}: activation_function: got 'cosine', want")


def test_a_model_to_start_from_that_lacks_a_file_is_not_blamed_on_the_new_one(trained, text, tmp_path):
    (tmp_path / "m").mkdir()
    for missing in ("config.json", "model.safetensors"):
        said = refused(command("train", "--data", text, "--out", tmp_path / "new", "--from", tmp_path / "m"), f"error: --from: got '{tmp_path / 'm'}' without {missing}")
        assert said, missing
        shutil.copy(trained[0] / "config.json", tmp_path / "m")


def test_broken_model(trained, tmp_path):
    folder, _ = trained
    assert refused(command("generate", "--model", tmp_path / "none", "--prompt", "a"), "none")
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in folder.iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    (broken / "model.safetensors").write_bytes(b"no weights")
    assert refused(command("generate", "--model", broken, "--prompt", "a"), "model.safetensors")
    (broken / "tokenizer.json").write_text("{}")
    assert refused(command("generate", "--model", broken, "--prompt", "a"), "tokenizer.json")
    for given in (("--resume", "--steps", "9", "--out", broken), ("--from", broken, "--out", tmp_path / "new")):
        assert refused(command("train", *given), f"error: {broken / 'tokenizer.json'}: got a broken file (content: got something else")
    (tmp_path / "m.run").mkdir()
    for name in ("run.json", "tokenizer.json"):
        (tmp_path / "m.run" / name).write_bytes((broken / name).read_bytes())
    assert refused(command("train", "--resume", "--out", tmp_path / "m"), f"error: {tmp_path / 'm.run' / 'tokenizer.json'}: got a broken file")
    assert refused(command("generate", "--model", folder, "--temperature", "-1"), "--temperature", "-1")
    assert refused(command("generate", "--model", folder, "--tokens", "-1"), "--tokens", "-1")
    assert refused(command("generate", "--model", folder, "--tokens", "99", "--on-overflow", "error"), "--tokens: got 99", "max_len = 16, or --on-overflow slide\n")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A module of a user's, in the folder from which the command is given."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "mine.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def honest(): return nn.Linear(4, 4), torch.randn(1, 5, 4)\n"
        "def peeking(): return nn.Softmax(1), torch.randn(1, 5, 4)\n"
        "def window(): return nn.Linear(4, 4), torch.randn(1, 5, 4), {'max_lookback': 2}\n"
        "def nothing(): return None\n"
        "def boom(): raise RuntimeError('of its own')\n"
        "def wide(): return nn.Linear(3, 4), torch.randn(1, 5, 4)\n"
        "def third(): return nn.Linear(4, 4), torch.randn(1, 5, 4), 'mode'\n"
        "def misspelled(): return nn.Linear(4, 4), torch.randn(1, 5, 4), {'lenghts': [3]}\n"
        "def leaving(): raise SystemExit(1)\n"
        "def spread(): import sibling; return sibling.Model(), torch.randn(1, 5, 4)\n"
    )
    (folder / "sibling.py").write_text(
        "from torch import nn\nclass Model(nn.Linear):\n"
        "    def __init__(self): super().__init__(4, 4)\n"
        "    def forward(self, x): import cousin; return super().forward(x)\n"
    )
    (folder / "cousin.py").write_text("")
    (folder / "unreadable.py").write_text("def model(:")
    (folder / "dividing.py").write_text("1 / 0")
    return folder


def audited(folder, *arguments: str) -> subprocess.CompletedProcess[str]:
    return command("audit", *arguments, cwd=folder)


def test_audit_says_whether_there_is_a_leak(models):
    good, bad, blind = (audited(models, f"mine:{name}") for name in ("honest", "peeking", "window"))
    assert good.returncode == 0 and good.stdout.startswith("audit of Linear: ok"), good.stderr
    assert bad.returncode == 1 and "softmax over the sequence axis" in bad.stdout and bad.stderr == ""
    assert blind.returncode == 1 and "BLIND" in blind.stdout
    only = audited(models, "mine:peeking", "--length", "4", "--mode", "eval")
    assert only.returncode == 1 and "train" not in only.stdout and "n = 4\n" in only.stdout


def test_a_factory_and_its_model_import_from_the_folder_where_they_stand(models):
    """Also where Python does not put that folder on the path, as for the installed command."""
    whole = [sys.executable, "-P", "-m", "tlm_book", "audit", "mine:spread"]
    found = subprocess.run(whole, cwd=models, capture_output=True, text=True, check=False)
    assert found.returncode == 0 and found.stdout.startswith("audit of Model: ok"), found.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["mine"], ["MODULE:FACTORY", "package.module:factory"]),
        (["__main__:f"], ["MODULE:FACTORY: got __main__", "imported"]),
        ([".mine:honest"], ["MODULE:FACTORY: got '.mine:honest'", "package.module:factory"]),
        (["mine.py:honest"], ["MODULE:FACTORY: got 'mine.py:honest', want package.module:factory"]),
        (["none.such:factory"], ["MODULE:FACTORY", "none", "imported"]),
        (["mine:lost"], ["mine:lost", "function"]),
        (["mine:nothing"], ["NoneType", "(model, inputs)"]),
        (["mine:boom"], ["mine:boom, which raised RuntimeError: of its own", "(model, inputs)"]),
        (["mine:leaving"], ["mine:leaving, which raised SystemExit: 1"]),
        (["mine:third"], ["MODULE:FACTORY: got options of type str", "a dictionary"]),
        (["mine:misspelled"], ["lenghts: got an unknown argument", "did you mean lengths?"]),
        (["unreadable:model"], ["MODULE:FACTORY: got unreadable:model (SyntaxError", "imported"]),
        (["dividing:model"], ["MODULE:FACTORY: got dividing:model (ZeroDivisionError", "imported"]),
        (["mine:wide"], ["inputs", "cannot be multiplied"]),
        (["mine:honest", "--length", "9"], ["--length", "9"]),
        (["mine:honest", "--back-end", "magic"], ["--back-end", "magic"]),
    ],
)
def test_audit_refuses(models, arguments, words):
    assert refused(audited(models, *arguments), *words)


def test_help_names_the_commands():
    run = fresh("--help")
    assert run.returncode == 0 and all(name in run.stdout for name in ("train", "generate", "export", "page", "audit", "prove", "examples:"))
    bare = command()
    assert bare.returncode == 2 and bare.stderr == run.stdout
    assert command("train", "--out", "x").returncode == 2  # neither --data nor --book


def test_version():
    from tlm_book import __version__

    run = command("--version")
    assert (run.returncode, run.stdout, run.stderr) == (0, f"tlm_book {__version__}\n", "")


EARLY = {
    "--data: got nothing at 'none.txt', want a text file": ["train", "--data", "none.txt", "--out", "new"],
    "--out: got 'here', which exists": ["train", "--book", "--out", "here"],
    "--heads: got 3, want a divisor of --d-model = 8": ["train", "--book", "--out", "new", "--heads", "3", "--d-model", "8"],
    "--out: got an interrupted run": ["train", "--book", "--out", "begun"],
    "--vocab-size: got it with --tokenizer, want to leave it out": ["train", "--data", ".", "--out", "new", "--tokenizer", "tokenizer.json", "--vocab-size", "300"],
    "--tokenizer: got 'here', which is another thing": ["train", "--book", "--out", "new", "--tokenizer", "here"],
    "--model: got nothing at 'none'": ["generate", "--model", "none"],
    "--top-p: got 0, want a number in (0, 1]": ["generate", "--top-p", "0"],
    "--top-p: got much, want a number in (0, 1]": ["generate", "--top-p", "much"],
    "--preset: got 'gpt9', want one of": ["prove", "--preset", "gpt9"],
    "--dta: got no such option, want an option of train, which --help lists; did you mean --data?": ["train", "--dta", "x", "--out", "new"],
    "--dta=essays-of-last-year.txt: got no such option, want an option of train, which --help lists; did you mean --data?": ["train", "--dta=essays-of-last-year.txt", "--out", "new"],
    "more: got no such option, want an option of train": ["train", "--book", "--out", "new", "more"],
    "--toknes: got no such option, want an option of generate, which --help lists; did you mean --tokens?": ["generate", "--toknes", "5", "The"],
    "--data: got none, and no run in 'new.run' to go on with": ["train", "--out", "new", "--resume"],
    "--data: got none, want text files": ["train", "--out", "new"],
    "--from: got nothing at 'none', want a folder with a model": ["train", "--from", "none", "--out", "new"],
    "--tokenizer: got it with --from": ["train", "--from", "here", "--out", "new", "--tokenizer", "tokenizer.json"],
    "--heads: got it with --from": ["train", "--from", "here", "--out", "new", "--heads", "2"],
    "--minutes: got 0, want a number > 0": ["train", "--data", ".", "--out", "new", "--minutes", "0"],
    "--minutes: got it with --steps, want one of them": ["train", "--data", ".", "--out", "new", "--minutes", "3", "--steps", "9"],
    "--minutes: got it with --book": ["train", "--book", "--out", "new", "--minutes", "3"],
    "--from: got it with --book": ["train", "--book", "--from", "here", "--out", "new"],
    "--keep: got it with --book": ["train", "--book", "--out", "new", "--keep", "2"],
    "--plot: got it with --book": ["train", "--book", "--out", "new", "--plot"],
    "--minutes: got it with --resume, want to leave it out: the run in 'here' has its number of steps": ["train", "--resume", "--out", "here", "--minutes", "3"],
    "--lr: got inf, want a number > 0": ["train", "--book", "--out", "new", "--lr", "inf"],
    "--temperature: got inf, want a number ≥ 0": ["generate", "--temperature", "inf"],
    "--minutes: got it with --resume": ["train", "--resume", "--out", "begun", "--minutes", "3"],
    "--preset: got it with --book": ["train", "--book", "--preset", "gpt2", "--out", "new"],
    "--out: got 'mine.txt', want a name that ends in .html": ["page", "--out", "mine.txt"],
    "MODULE:FACTORY: got nowhere, want a module": ["audit", "nowhere:model"],
    "--out: got 'here', which exists, want a file": ["prove", "--preset", "gpt2", "--out", "here"],
    "--out: got 'nowhere/x.v', and no folder 'nowhere'": ["prove", "--preset", "gpt2", "--out", "nowhere/x.v"],
    "--out: got 'tokenizer.json/m', and 'tokenizer.json' is a file": ["train", "--book", "--out", "tokenizer.json/m"],
    "--out: got 'tokenizer.json/x/y', and 'tokenizer.json' is a file": ["export", "--model", "here", "--out", "tokenizer.json/x/y"],
    "--seed: got 9223372036854775808, want a whole number from 0 to 2^63 − 1": ["train", "--book", "--out", "new", "--seed", str(2**63)],
    "--vocab-size: got 256, want a whole number ≥ 257": ["train", "--book", "--out", "new", "--vocab-size", "256"],
    "--batch-size: got 10000000000000, want a whole number from 1 to 10^9": ["train", "--book", "--out", "new", "--batch-size", str(10**13)],
    "--sample: got '\\udcff', want text in UTF-8": ["train", "--book", "--out", "new", "--sample", "\udcff"],
    "--prompt: got 'a\\udcff', want text in UTF-8": ["generate", "--prompt", "a\udcff"],
    "--text: got '\\udcff', want text in UTF-8": ["page", "--out", "new.html", "--text", "\udcff"],
    "--title: got '\\udcff', want text in UTF-8": ["page", "--out", "new.html", "--title", "\udcff"],
    "MODULE:FACTORY: got broken.mine (ZeroDivisionError: division by zero), want a module": ["audit", "broken.mine:model"],
    "--out: got 'dangling', which exists, want a folder": ["export", "--model", "here", "--out", "dangling"],
    "--out: got 'dangling/', which exists, want a folder": ["export", "--model", "here", "--out", "dangling/"],
    "--out: got '', which exists, want a folder": ["export", "--model", "here", "--out", ""],
    "--out: got 'dangling.html', which exists": ["page", "--out", "dangling.html"],
    "--out: got 'dangling', which exists, want a file": ["prove", "--preset", "gpt2", "--out", "dangling"],
    "--out: got 'nowhere/p.html', and no folder 'nowhere'": ["page", "--out", "nowhere/p.html"],
}


@pytest.fixture(scope="module")
def early(tmp_path_factory):
    """What each command of EARLY says, and whether torch had been loaded by then: from one new interpreter."""
    folder = tmp_path_factory.mktemp("early")
    (folder / "here").mkdir()
    (folder / "begun.run").mkdir()
    (folder / "tokenizer.json").write_text("{}")
    for name in ("dangling", "dangling.html"):  # links to nothing
        (folder / name).symlink_to("missing")
    (folder / "broken").mkdir()
    (folder / "broken" / "__init__.py").write_text("1 / 0")
    code = (
        "import contextlib, io, json, sys\nfrom tlm_book.__main__ import main\nsaid = []\n"
        "for argv in json.load(sys.stdin):\n    err = io.StringIO()\n    with contextlib.redirect_stderr(err):\n"
        "        try: status = main(argv)\n        except SystemExit as stop: status = stop.code\n"
        "    said.append([status, err.getvalue(), 'torch' in sys.modules])\nprint(json.dumps(said))"
    )
    asked = json.dumps(list(EARLY.values()))
    run = subprocess.run([sys.executable, "-c", code], input=asked, capture_output=True, text=True, encoding="utf-8", env=environment(), cwd=folder, check=True)
    return dict(zip(EARLY, json.loads(run.stdout)))


@pytest.mark.parametrize("message", EARLY)
def test_refused_before_torch_is_loaded(message, early):
    status, said, torch_loaded = early[message]
    assert status == 2 and said.startswith(f"tlm_book: error: {message}") and said.count("\n") == 1 and not torch_loaded


def parsed(*words):
    return vars(arguments().parse_args([*words]))


def test_the_ends_of_a_range_belong_to_it():
    chosen = parsed("generate", "--tokens", "0", "--top-k", "1", "--top-p", "1", "--min-p", "0", "--temperature", "0", "--seed", "0")
    assert [chosen[name] for name in ("tokens", "top_k", "top_p", "min_p", "temperature", "seed")] == [0, 1, 1, 0, 0, 0]
    assert parsed("generate", "--min-p", "1", "--seed", str(2**63 - 1))["seed"] == 2**63 - 1
    chosen = parsed("train", "--book", "--out", "new", "--vocab-size", "257", "--batch-size", str(10**9), "--steps", "1")
    assert [chosen[name] for name in ("vocab_size", "batch_size", "steps")] == [257, 10**9, 1]


def test_help_names_the_defaults():
    (commands,) = (action for action in arguments()._actions if action.dest == "command")
    said = [(action.default, found[1]) for action in commands.choices["generate"]._actions if (found := re.search(r"\(default: ([\d.]+)\)", action.help or ""))]
    assert len(said) == 3 and all(str(default) == words for default, words in said), said
    assert (parsed("generate")["repetition_penalty"], parsed("generate")["on_overflow"]) == (1.0, "slide")


def test_a_value_of_two_lines_is_refused_without_the_usage(capsys):
    with pytest.raises(SystemExit, match="2"):
        parsed("generate", "--top-p", "1\n2")
    assert capsys.readouterr().err.startswith("tlm_book: error: --top-p: got 1\n2, want a number")


def test_a_finished_model_can_be_read_while_its_run_goes_on(tmp_path):
    """With more steps, the run has a folder of its own beside the model."""
    for folder in ("m", "m.run"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "run.json").write_text("{}")
    (tmp_path / "m" / "config.json").write_text("{}")
    assert parsed("generate", "--model", str(tmp_path / "m"))["model"] == str(tmp_path / "m")


def test_looking_for_a_module_leaves_the_path_as_it_was():
    before = list(sys.path)
    with pytest.raises(ValueError, match="MODULE:FACTORY: got nowhere, want a module"):
        refuse_options({"command": "audit", "factory": "nowhere:model"})
    assert sys.path == before


@pytest.mark.parametrize(
    ("message", "command", "said"),
    [
        ("folder: got 'x', want y", "train", "--out: got 'x', want y"),
        ("folder: got 'x', want y", "generate", "--model: got 'x', want y"),
        ("max_new: got 0, want y", "generate", "--tokens: got 0, want y"),
        ("max_len: got 0, want y", "train", "--context: got 0, want y"),
        ("max_len: got 0, want y", "generate", "max_len: got 0, want y"),  # which has no such option
        ("data: of another kind", "train", "data: of another kind"),
        ("model.config.tied: got True, want False", "export", "--model: got one with tied = True, want False"),
    ],
)
def test_a_message_names_the_option_that_gave_the_value(message, command, said):
    assert in_options(message, command) == said


@pytest.mark.parametrize("empty", [lambda n: torch.empty(n, dtype=torch.uint8), lambda n: np.empty(n, np.uint8), bytearray], ids=["torch", "numpy", "python"])
def test_too_little_memory_is_one_line(empty, monkeypatch, capsys):
    monkeypatch.setattr("tlm_book.__main__.generate", lambda options: empty(2**60))
    assert main(["generate"]) == 2
    assert re.fullmatch(r"tlm_book: error: memory: got too little for .+ more, want smaller sizes\n", capsys.readouterr().err)


def test_the_presets_are_those_of_the_settings():
    from tlm_book.arguments import PRESETS
    from tlm_book.encoder_decoder import EncoderDecoderConfig
    from tlm_book.transformer_lm import Config

    kinds = ("", Config), ("encoder-decoder-", EncoderDecoderConfig)
    assert set(PRESETS) == {before + name for before, kind in kinds for name, method in vars(kind).items() if isinstance(method, classmethod)}


def test_the_weights_may_be_read_by_whom_the_umask_allows(trained):
    modes = {path.stat().st_mode for path in trained[0].iterdir()}
    assert len(modes) == 1


# ---- what a new user ran into ------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX signals")
def test_ctrl_c_while_libraries_load_is_one_line(tmp_path):
    """An interrupt inside an import was swallowed there and left numpy half made, which failed later and with a traceback."""
    press = "lambda event, what: event == 'import' and what[0] == 'numpy.linalg' and os.kill(os.getpid(), signal.SIGINT)"
    script = f"import os, signal, sys; from tlm_book.__main__ import main; sys.addaudithook({press}); sys.exit(main())"
    run = subprocess.run([sys.executable, "-c", script, "generate"], capture_output=True, text=True, env=environment(), cwd=tmp_path, timeout=120, preexec_fn=ears)
    assert run.returncode == 130 and run.stderr == "\ntlm_book: stopped; nothing was written\n" and run.stdout == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX signals")
def test_ctrl_c_ends_a_text_and_says_no_more():
    with subprocess.Popen([sys.executable, "-m", "tlm_book", "generate", "--prompt", "The water", "--tokens", "3000"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), preexec_fn=ears) as run:  # fmt: skip
        assert run.stdout.read(12).startswith(b"The water")
        run.send_signal(signal.SIGINT)
        _, said = run.communicate(timeout=120)
    assert run.returncode == 130 and said == b"\ntlm_book: stopped\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX signals")
@pytest.mark.parametrize("words", [["generate", "--prompt", "The water", "--tokens", "300"], ["prove", "--preset", "wojcik"]], ids=lambda words: words[0])
def test_whoever_stops_reading_is_told_nothing(words):
    """As in `… | head -c 5`: in the middle of a text, or before a report is written."""
    with subprocess.Popen([sys.executable, "-m", "tlm_book", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as run:
        if words[0] == "generate":
            assert run.stdout.read(5) == b"The w"
        run.stdout.close()
        said = run.stderr.read()
    assert run.returncode == 141 and said == b""


def test_warnings_are_shown_as_before_once_a_command_is_over(theirs, capsys):
    before = warnings.showwarning
    assert main(["generate", "--model", str(theirs / "llama"), "--tokens", "1", "--device", "cpu"]) == 0
    assert warnings.showwarning is before


@pytest.mark.parametrize("name", ["m", "m.run"])
@pytest.mark.parametrize("words", [["generate"], ["export", "--out", "new"], ["page", "--out", "new.html"], ["prove"]], ids=lambda words: words[0])
def test_a_run_that_is_not_finished_is_no_model_and_says_how_it_becomes_one(words, name, tmp_path):
    (tmp_path / "m.run").mkdir()
    (tmp_path / "m.run" / "run.json").write_text("{}")
    assert refused(command(*words, "--model", name, cwd=tmp_path), "--model", "'m.run'", "train --resume --out m\n")


def test_a_context_longer_than_the_text_is_refused_by_its_option(text, tmp_path):
    options = ["100000" if before == "--context" else word for before, word in zip(["", *TINY], TINY)]
    assert refused(command("train", "--data", text, "--out", tmp_path / "m", *options), "--context: got 100000, want at most", "tokens to train on")
    assert list(tmp_path.iterdir()) == []


def test_a_vocabulary_that_stays_small_is_a_note_and_no_line_of_code(tmp_path):
    (tmp_path / "few.txt").write_text("The tide runs out. " * 500)
    options = ["2000" if before == "--vocab-size" else word for before, word in zip(["", *TINY], TINY)]
    run = command("train", "--data", tmp_path / "few.txt", "--out", tmp_path / "m", *options)
    assert run.returncode == 0 and re.fullmatch(r"tlm_book: note: --vocab-size: got 2000, reached \d+: no further pair occurs twice\n", run.stderr)


def test_a_prompt_without_its_option():
    assert refused(command("generate", "The", "tide"), "--prompt", "want generate --prompt 'The tide'")


def test_a_model_of_either_form_is_proved_loaded_and_told_apart(tmp_path):
    from tlm_book import Config, TransformerLM, load, load_model
    from tlm_book.pretrained import save_model
    from tlm_book.tokenization import Tokenizer
    from tlm_book.training import save

    model, tokenizer = TransformerLM(Config.gpt2(257, d_model=8, d_ff=8, n_heads=2, n_layers=1, max_len=8)), Tokenizer([])
    save(model, tmp_path / "ours", tokenizer)
    save_model(model, tmp_path / "theirs")
    assert all(load_model(tmp_path / name)[0].config.d_model == 8 for name in ("ours", "theirs"))
    with pytest.raises(ValueError, match="Hugging Face's form, want a folder that `save` wrote; load_model reads that form"):
        load(tmp_path / "theirs")
    script = f"from tlm_book.pretrained import load_model; print(load_model({str(tmp_path / 'theirs')!r})[0].config.d_model)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment(), timeout=60).stdout == "8\n"


def test_readme_s_way_to_a_trained_model(text, tmp_path):
    """The call of README, with fewer steps, beside a text of that name."""
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    (block,) = [block for block in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "train_files(" in block]
    (tmp_path / "essays.txt").symlink_to(text)
    short = block.replace("steps=500", "steps=4, warmup=1, d_model=8, layers=1, heads=2, context=8")
    run = subprocess.run([sys.executable, "-c", short], capture_output=True, text=True, encoding="utf-8", env=environment(), cwd=tmp_path, timeout=300)
    assert short != block and run.returncode == 0 and "held-out" in run.stdout, run.stderr + run.stdout
    assert (tmp_path / "my-model" / "model.safetensors").is_file()


def test_readme_s_way_from_a_trained_model_to_its_text(trained, tmp_path):
    """The lines of README, as they stand there, beside the folder that train has made."""
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    (block,) = [block for block in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if 'load("my-model")' in block]
    (tmp_path / "my-model").symlink_to(trained[0])
    run = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, encoding="utf-8", env=environment(), cwd=tmp_path, timeout=120)
    assert run.returncode == 0 and run.stdout.startswith("The tide"), run.stderr


def test_an_option_of_the_command_overrules_one_of_the_factory(models):
    (models / "own.py").write_text("import torch\ndef both(): return torch.nn.Linear(4, 4), torch.randn(1, 5, 4), {'modes': ['train'], 'lengths': [5]}\n")
    found = audited(models, "own:both", "--mode", "eval", "--length", "4")
    assert found.returncode == 0 and "eval" in found.stdout and "train" not in found.stdout and "n = 4\n" in found.stdout


def test_a_warning_of_another_kind_is_shown_as_usual(capsys):
    from tlm_book.__main__ import note

    class Own(UserWarning):
        pass

    shown = []
    note("train", lambda *said: shown.append(said), "vocab_size: got 9", Own, "file", 3)
    assert shown == [("vocab_size: got 9", Own, "file", 3)] and capsys.readouterr().err == ""

"""Training by several processes on this machine (gloo on the loopback device): the losses of one process, copied and sharded."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import team
import torch
from safetensors.torch import load_file

from tlm_book.scaling import Cost, kept_per_token, training_cost
from tlm_book.tokenization import documents
from tlm_book.training import checkpoints, distributed
from tlm_book.transformer_lm import Config, count_parameters

HERE = Path(__file__).parents[1] / "support"
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def python(*command: object) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "TLM_BOOK_TYPECHECK"} | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    return subprocess.run([sys.executable, *map(str, command)], env=environment, capture_output=True, text=True, timeout=600)


def launched(processes: int, *command: object) -> subprocess.CompletedProcess[str]:
    """`torchrun` on a free port of this machine."""
    return python("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", processes, *command)


def in_a_team(processes: int, *arguments: object) -> None:
    run = launched(processes, HERE / "team.py", *arguments)
    assert run.returncode == 0, run.stderr[-3000:]


def in_a_forked_team(processes: int, folder: Path, parallel: str, last: int, *more: str) -> None:
    run = python(HERE / "team.py", folder, parallel, last, processes, *more)
    assert run.returncode == 0, run.stderr[-3000:]


@pytest.fixture(scope="module", autouse=True)
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    return folder, team.run(folder)


def same_run(folder: Path, whole: tuple[Path, list[dict[str, float]]]) -> None:
    """Every loss to 1e-9, and the last weights and means."""
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in log] == list(range(1, 9))
    for mine, one in zip(log, whole[1]):
        assert mine.keys() == one.keys() and all(abs(mine[key] - one[key]) < 1e-9 for key in one), (mine, one)
    mine, one = (load_file(checkpoints(path)[-1] / "state.safetensors") for path in (folder, whole[0]))
    assert mine.keys() >= one.keys() and all((mine[name] - w).abs().max() < 1e-8 for name, w in one.items())


@pytest.mark.parametrize("by", [pytest.param("fork", marks=needs_fork), pytest.param("torchrun", marks=pytest.mark.long)])
def test_sharded_then_alone(alone, tmp_path, by):
    start = in_a_forked_team if by == "fork" else in_a_team
    start(2, tmp_path, "fsdp", 4)
    assert len(checkpoints(tmp_path)) == 2
    team.run(tmp_path)
    same_run(tmp_path, alone)


@pytest.mark.long
def test_alone_then_three_copies(alone, tmp_path):
    team.run(tmp_path, last=4)
    in_a_team(3, tmp_path, "ddp", 0)
    same_run(tmp_path, alone)


@needs_fork
@pytest.mark.long
def test_copies_then_sharded_with_a_tied_matrix(tmp_path):
    one = tmp_path / "one"
    log = team.run(one, model=team.MODEL.replace(tied=True))
    in_a_forked_team(2, tmp_path / "two", "ddp", 4, "tied")
    in_a_forked_team(2, tmp_path / "two", "fsdp", 0, "tied")
    same_run(tmp_path / "two", (one, log))


@pytest.mark.long
def test_the_command_under_torchrun(tmp_path):
    (tmp_path / "text.txt").write_text("\f".join(documents()[:6]), encoding="utf-8")
    options = "--steps 4 --vocab-size 280 --d-model 16 --layers 1 --heads 2 --context 16 --batch-size 4 --device cpu --quiet --parallel fsdp"
    command = ["-m", "tlm_book", "train", "--data", tmp_path / "text.txt", "--out", tmp_path / "model", *options.split()]
    run = launched(2, *command)
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout.count("bits per byte") == 1  # one process speaks
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model", "text.txt"]
    run = launched(2, *command)
    assert run.returncode != 0 and "exists" in run.stderr


def test_all_processes_take_the_text_of_the_first(monkeypatch):
    monkeypatch.setattr(distributed.distributed, "broadcast_object_list", lambda texts, src: texts.__setitem__(0, f"that of {src}"))
    assert distributed.DistContext(rank=1, world_size=2).from_first("my own") == "that of 0"
    assert distributed.DistContext().from_first("my own") == "my own"


# What a run costs


def test_a_cost_is_said_in_hours_and_gigabytes():
    said = str(Cost(1234, 1.5e15, 9000.0, {"weights": 4e9, "activations": 5e8}))
    assert said.splitlines() == ["1,234 weights, 1.5e+15 operations, 2.5 hours", "  weights           4.00 GB", "  activations       0.50 GB"]


@pytest.mark.parametrize(("vocab_size", "width", "largest"), [(50_000, 8, "all else"), (50, 64, "a block")])
def test_a_device_has_its_share_and_gathers_a_block_or_all_else(vocab_size, width, largest):
    config = Config(vocab_size, d_model=width, d_ff=width, n_layers=3, n_heads=2, max_len=8)
    P = count_parameters(config)
    block = count_parameters(config.replace(n_layers=4)) - P
    memory = training_cost(config, 1e6, devices=4, parallel="fsdp", mfu=1.0).memory
    assert (memory["weights"], memory["gradients"], memory["optimizer"]) == (P, P, 2 * P)
    assert (P - 3 * block > block) == (largest == "all else") and memory["gathered"] == 4 * max(block, P - 3 * block)
    assert "gathered" not in training_cost(config, 1e6, devices=4).memory


def test_a_window_that_holds_the_whole_text_costs_nothing():
    config = Config(50, d_model=16, d_ff=16, n_layers=2, n_heads=2, max_len=8)
    assert kept_per_token(config.replace(window=8)) == kept_per_token(config) < kept_per_token(config.replace(window=7))

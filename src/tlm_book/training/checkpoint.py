"""The state of a run, on disk so that a killed run can go on from there, or in memory for a run that may be lost. Written by hand."""

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import torch
from jaxtyping import Int
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from tlm_book.checks import expects, expects_positive, expects_whole, is_whole
from tlm_book.files import clear_parts, held, new_file, new_folder
from tlm_book.onednn import onednn_available, quicker_library
from tlm_book.training.config import TrainConfig, pairs_of
from tlm_book.training.distributed import DistContext
from tlm_book.training.folder import load, own_weights, stored_weights
from tlm_book.training.logs import BOARD, Entry, board_writer, logs, write_board
from tlm_book.transformer_lm import Config
from tlm_book.weights import finite, write_tensors

__all__ = [
    "BEGIN",
    "MAY_DIFFER",
    "InMemory",
    "OnDisk",
    "are_notes",
    "as_replanned",
    "best_checkpoint",
    "checkpoints",
    "drop_old",
    "expects_no_other_log",
    "put_state",
    "put_weights",
    "read_checkpoint",
    "read_log",
    "read_notes",
    "state_in",
    "state_of",
    "text_notes",
    "with_library",
    "write_checkpoint",
]

BEGIN = "begin"  # the folder with the model from which a run starts


# The state as tensors with names


def _whole(on_cpu: bool) -> Any:
    """Options that gather whole tensors: on each process's device, or on the CPU of the first process alone."""
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,  # imported here since it takes two seconds
    )

    return StateDictOptions(full_state_dict=True, cpu_offload=on_cpu)


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The weights and the optimizer's means by name, gathered from all processes onto the CPU of the first; a tied matrix once.

    What is on that CPU already is not copied: the next step changes it.
    """
    from torch.distributed.checkpoint.state_dict import get_state_dict

    both: Any = get_state_dict(model, optimizer, options=_whole(on_cpu=True))
    weights, rest = both
    tensors = {f"model.{name}": w for name, w in weights.items()}
    for name, means in rest.get("state", {}).items():
        tensors |= {f"optimizer.{name}.{key}": m for key, m in means.items()}
    inner: Any = getattr(model, "module", model)
    if inner.config.tied:
        tensors.pop("model.unembedding.weight", None)  # it is the embedding table
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def put_state(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Give model and optimizer the state that `state_of` returned, in this run or in one with other processes; the learning rates stay."""
    from torch.distributed.checkpoint.state_dict import (
        get_state_dict,
        set_state_dict,
    )

    whole, rates = _whole(on_cpu=False), [group["lr"] for group in optimizer.param_groups]
    both: Any = get_state_dict(model, optimizer, options=whole)
    rest = both[1]
    saved: dict[str, Any] = {**weights_in(tensors)}
    saved.setdefault("unembedding.weight", saved["embedding.table.weight"])  # tied
    for name, means in rest["state"].items():
        rest["state"][name] = {key: tensors[f"optimizer.{name}.{key}"] for key in means}
    set_state_dict(model, optimizer, model_state_dict=saved, optim_state_dict=rest, options=whole)
    for group, rate in zip(optimizer.param_groups, rates):
        group["lr"] = rate  # a tensor on a GPU would have become one on the CPU, and the step could not be recorded


def put_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Give the model these weights, a tied matrix once, in one process or several; the optimizer's means stay."""
    from torch.distributed.checkpoint.state_dict import set_model_state_dict

    whole: dict[str, Any] = {**weights}
    whole.setdefault("unembedding.weight", whole["embedding.table.weight"])
    set_model_state_dict(model, whole, options=_whole(on_cpu=False))


def weights_in(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights in a state, under the model's names for them."""
    return {name.removeprefix("model."): w for name, w in tensors.items() if name.startswith("model.")}


# A checkpoint is a folder: the tensors, and notes on the run and its loss


def checkpoints(folder: str | os.PathLike[str]) -> list[Path]:
    """The complete checkpoints in a folder, oldest first."""
    found = [path for path in Path(folder).glob("step-*") if re.fullmatch(r"step-\d{8,}", path.name)]
    return sorted(found, key=lambda path: int(path.name.removeprefix("step-")))


def write_checkpoint(folder: Path, step: int, tensors: Mapping[str, Tensor], notes: Mapping[str, object]) -> Path:
    """Write the state after `step` steps into a new checkpoint, named when it is complete. OSError if there is no room; older ones are untouched.

    The notes have "run", in which "training" holds the settings, and "held_out", the loss or None. ValueError for others, for a step below 0 and for
    numbers that are not finite: such a state is useless for a resumed run.
    """
    bad = [name for name, tensor in tensors.items() if not finite(tensor)]
    expects(not bad, "tensors", f"{bad[:1]} with numbers that are not finite", "a state to come back to")
    expects_whole(step=step)
    expects(step >= 0, "step", step, "a number ≥ 0")
    said = {**notes, "step": step}
    expects(are_notes(said), "notes", f"{[*notes]}", "'run', with a table 'training', and 'held_out'")
    path = folder / f"step-{step:08}"
    with new_folder(path) as part:
        write_tensors(part / "state.safetensors", tensors)
        (part / "state.json").write_text(json.dumps(said), encoding="utf-8")
    return path


def read_notes(path: Path) -> dict[str, Any]:
    """The notes of a checkpoint; ValueError when they are broken."""
    try:
        notes = json.loads((path / "state.json").read_text(encoding="utf-8"))
    except (ValueError, OSError):
        notes = None
    expects(are_notes(notes), f"{path / 'state.json'}", "no notes of a run", "what `write_checkpoint` wrote")
    return notes


def are_notes(said: Any) -> bool:
    """Whether this, from a JSON file, is what `write_checkpoint` notes beside the tensors."""
    right = isinstance(said, dict) and {"step", "run", "held_out"} <= said.keys() and is_whole(said["step"])
    return right and isinstance(said["run"], dict) and isinstance(said["run"].get("training"), dict)


def text_notes(known: Int[Tensor, " N"], held_out: Int[Tensor, " N_held_out"]) -> dict[str, int | str]:
    """What is noted of a text: the lengths of its parts, and a hash of their tokens, the same for any integer type. Of a part of more than four million
    tokens, it is that of 64 pieces of it, which takes no longer for longer texts.
    """
    pieces = (piece[: 2**16] for tokens in (known, held_out) for piece in tokens.chunk(64))
    sha = hashlib.sha256()
    for piece in pieces:
        sha.update(piece.to("cpu", torch.int32).numpy().tobytes())
    return {"tokens": len(known), "held out": len(held_out), "sha256": sha.hexdigest()[:16]}


MAY_DIFFER = ("products",)  # settings that may differ when a run is resumed


def with_library(config: TrainConfig, folder: str | os.PathLike[str] | None, dist: DistContext) -> TrainConfig:
    """The settings with the library that "auto" means, the same in all processes: the one by which a run in this folder has multiplied so far (or
    "linear", if that library is missing here); in a new run the quicker one. A named library stays, and on a GPU or in compiled code "auto" stays.
    ValueError for a library that is missing.
    """
    if dist.device.type != "cpu" or config.compile:
        return config
    library, last = config.products, checkpoints(folder)[-1:] if folder else []
    if library == "auto" and last:
        library = read_notes(last[0])["run"]["training"].get("products", "linear")  # once the only one
        if library == "onednn" and not onednn_available():  # begun elsewhere
            library = "linear"
    return dataclasses.replace(config, products=dist.from_first(quicker_library(library)))


def read_checkpoint(path: Path, run: Mapping[str, Any], wanted: Mapping[str, Tensor]) -> tuple[int, dict[str, Tensor]]:
    """(step, tensors) of a checkpoint of this very run. The ValueError otherwise names what is broken, foreign or changed."""
    kinds = {"model": Config, "training": TrainConfig}
    notes, younger = read_notes(path), {part: {field.name: field.default for field in dataclasses.fields(kind)} for part, kind in kinds.items()}
    for part, fields in run.items():
        hashed = {"sha256": fields.get("sha256")}  # a text of which no hash was noted yet is taken for the same
        theirs = hashed | younger.get(part, {}) | notes["run"].get(part, {})  # fields introduced since the checkpoint have their defaults
        for name, value in fields.items():
            same = name in MAY_DIFFER or _listed(theirs.get(name)) == _listed(value)
            begun = f"{theirs.get(name)!r}, with which the run in {str(path.parent)!r} was begun"
            expects(same, f"{part}.{name}", repr(value), begun)
    wants = "the state of this run: remove the checkpoint, and the one before it is taken"
    return notes["step"], state_in(path / "state.safetensors", wanted, wants)


def state_in(file: Path, wanted: Mapping[str, Tensor], wants: str) -> dict[str, Tensor]:
    """The tensors in a file. ValueError, which names the file and ends with `wants`, if it is broken, or if the tensors are not finite or differ from
    the wanted ones in names, shapes or types.
    """
    try:
        tensors = load_file(file)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{file}: got a broken checkpoint ({error}), want {wants}") from error
    for name, tensor in wanted.items():
        fits = name in tensors and tensors[name].shape == tensor.shape and tensors[name].dtype == tensor.dtype
        expects(fits and finite(tensors[name]), f"{file}", f"no {name} that fits", wants)
    surplus = sorted(tensors.keys() - wanted.keys())[:3] if wanted else []  # of several processes only the first has all to compare with
    expects(not surplus, f"{file}", f"other tensors: {surplus}", wants)
    return tensors


def _listed(value: Any) -> Any:
    """The value as it comes back from a JSON file: with lists for tuples."""
    return json.loads(json.dumps(value))


def as_replanned(folder: Path, config: TrainConfig) -> TrainConfig:
    """The settings, with the number of steps in the last checkpoint, since that run may have been given more or fewer of them on its way."""
    last = checkpoints(folder)[-1:]
    if not last:
        return config
    said = read_notes(last[0])["run"]["training"]
    return dataclasses.replace(config, steps=said["steps"], replanned=pairs_of(said.get("replanned", ())))


def best_checkpoint(folder: str | os.PathLike[str]) -> Path:
    """The checkpoint with the lowest loss on the held-out text, the first of several; one without a measurement, or with NaN, comes last.
    ValueError if there is no checkpoint.
    """
    expects(there := checkpoints(folder), "folder", f"{str(folder)!r} without a checkpoint", "one with checkpoints of a run")
    return min(there, key=_held_out)


def _held_out(path: Path) -> float:
    loss = read_notes(path)["held_out"]
    return float("inf") if loss is None or math.isnan(loss) else float(loss)


def drop_old(folder: Path, keep: int) -> None:
    """Remove all checkpoints but the last `keep` and the best on the held-out text."""
    for path in checkpoints(folder)[:-keep]:
        if path != best_checkpoint(folder):
            gone = path.rename(path.with_name(f".{path.name}.old.part"))  # so that no half-deleted folder bears its name
            shutil.rmtree(gone)


LOG_OF_A_BEGINNING = {  # of a run that ended before its first checkpoint: only the last entry, which may be cut, can have a loss on the held-out text
    "log.jsonl": r'(\{"step": \d+, "lr": \S+ "loss": \S+\n)*(\{"step.*\n?|\{.{0,5})?',
    "log.csv": r"(step,lr,loss,held_out\n(\d+,\S+,\n)*(\d.*\n?)?)?",
}


def expects_no_other_log(folder: Path) -> None:
    """FileExistsError if a run that begins in this folder would replace a log, unless the log is that of a beginning."""
    for name, pattern in LOG_OF_A_BEGINNING.items():
        text = (folder / name).read_text(encoding="utf-8", errors="replace") if (folder / name).exists() else ""
        right = re.fullmatch(pattern, text) is not None
        expects(right, "folder", f"{str(folder)!r} with {name} in it, and no checkpoint", "one without it, since it would be replaced", FileExistsError)


def read_log(file: Path, step: int) -> list[Entry]:
    """The first `step` entries of a log; whatever was written after the checkpoint, complete or not, is left out. ValueError if some are missing."""
    if not step:
        return []
    wants = f"that of the {step} steps before the checkpoint: remove the checkpoint, not the log, and the one before it is taken"
    try:
        found = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()[:step]]
        steps = [entry["step"] for entry in found]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file}: got no log ({error}), want {wants}") from error
    expects(steps == [*range(1, step + 1)], f"{file}", f"the log of {len(steps)} steps", wants)
    return found


# Where a run keeps its states: each class has alone, revise, begin, keep, stop, best and close


class InMemory:
    """The best weights so far, and nothing on disk."""

    def __init__(self) -> None:
        self.log: list[Entry] = []
        self.loss = float("inf")
        self.weights: dict[str, Tensor] = {}

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """A context that does nothing, since there is no folder to share."""
        return contextlib.nullcontext()

    def revise(self, config: TrainConfig) -> TrainConfig:
        """The settings, of which nothing is noted."""
        return config

    def begin(self, model: Any, optimizer: torch.optim.Optimizer) -> list[Entry]:
        """Begin a new run and return its log, to which the caller adds an entry for each step."""
        return self.log

    def keep(self, model: Any, optimizer: torch.optim.Optimizer) -> None:
        """After a measurement, keep a copy of the weights if they are better than all before."""
        if self.log[-1]["held_out"] < self.loss:
            self.loss = self.log[-1]["held_out"]
            self.weights = {name: w.clone() for name, w in own_weights(model).items()}

    def stop(self, model: Any, optimizer: torch.optim.Optimizer) -> NoReturn:
        """Raise KeyboardInterrupt."""
        raise KeyboardInterrupt(f"stopped after step {len(self.log)}")

    def best(self) -> dict[str, Tensor]:
        """The weights with the lowest held-out loss, the first of several; an empty dictionary if nothing was measured."""
        return self.weights

    def close(self) -> None:
        """Do nothing, since nothing is open."""


class OnDisk:
    """Checkpoints and the log of a run in a folder; if there are several processes, the first one writes.

    `run` holds what must not change when the run is resumed, {part: {name: value}}; `revise` notes other settings. ValueError if `keep` is below 1.
    """

    def __init__(self, folder: Path, run: Mapping[str, Any], dist: DistContext, keep: int) -> None:
        expects_positive(keep=keep)
        self.folder, self.run, self.dist, self.n_kept = folder, run, dist, keep
        self.log: list[Entry] = []
        self.n_logged = 0  # entries that are in the file already
        self.board: Any = None  # TensorBoard's writer

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """A context in which no other run works in the folder: FileExistsError if one does."""
        if self.dist.rank > 0:
            return contextlib.nullcontext()
        self.folder.mkdir(parents=True, exist_ok=True)
        return held(self.folder)

    def revise(self, config: TrainConfig) -> TrainConfig:
        """The settings, which are noted in each checkpoint from now on."""
        self.run = {**self.run, "training": dataclasses.asdict(config)}
        return config

    def begin(self, model: Any, optimizer: torch.optim.Optimizer) -> list[Entry]:
        """Restore the last checkpoint, if there is one, else the weights with which the run begins, and cut the log there. Returns the log, to which
        the caller adds an entry for each step. ValueError for a checkpoint that is broken or of another run, FileExistsError for a log that would be lost.
        """
        first = 0
        if found := checkpoints(self.folder):
            first, tensors = read_checkpoint(found[-1], self.run, state_of(model, optimizer))
            put_state(model, optimizer, tensors)
        else:
            expects_no_other_log(self.folder)
            if (self.folder / BEGIN).is_dir():
                put_weights(model, stored_weights(load(self.folder / BEGIN)[0]))
        self.dist.wait()
        self.log = read_log(self.folder / "log.jsonl", first)
        self.n_logged = first
        if self.dist.rank == 0:
            clear_parts(self.folder)
            for name, text in logs(self.log).items():
                with new_file(self.folder / name) as part:
                    part.write_text(text, encoding="utf-8")
        return self.log

    def keep(self, model: Any, optimizer: torch.optim.Optimizer) -> None:
        """After a measurement, gather the state of all processes; the first one writes a checkpoint. OSError if there is no room."""
        self.close()  # the log first, so that it is never behind a checkpoint
        tensors, last = state_of(model, optimizer), self.log[-1]
        if self.dist.rank == 0:
            write_checkpoint(self.folder, int(last["step"]), tensors, {"run": self.run, "held_out": last.get("held_out")})
            drop_old(self.folder, self.n_kept)
        self.dist.wait()

    def stop(self, model: Any, optimizer: torch.optim.Optimizer) -> NoReturn:
        """Write a checkpoint of the last step, if it has none, then raise KeyboardInterrupt, whose message says where the checkpoint is."""
        done, steps = len(self.log), self.run["training"]["steps"]
        last = checkpoints(self.folder)[-1:]
        if not last or read_notes(last[0])["step"] != done:
            self.keep(model, optimizer)
        raise KeyboardInterrupt(f"stopped after step {done} of {steps}, which is saved in {str(self.folder)!r}")

    def best(self) -> dict[str, Tensor]:
        """The weights of the best checkpoint; an empty dictionary if there is no checkpoint."""
        if not checkpoints(self.folder):
            return {}
        return weights_in(load_file(best_checkpoint(self.folder) / "state.safetensors"))

    def close(self) -> None:
        """Write the entries of the log that are not yet in the file."""
        new, self.n_logged = self.log[self.n_logged :], len(self.log)
        if self.dist.rank == 0 and new:
            for name, text in logs(new, head=False).items():
                with (self.folder / name).open("a", encoding="utf-8") as log:
                    log.write(text)
                    log.flush()
                    os.fsync(log.fileno())
            if (self.folder / BOARD).is_dir():  # entries there for these or later steps no longer count
                self.board = self.board or board_writer()(self.folder / BOARD, purge_step=new[0]["step"])
                write_board(self.board, new)

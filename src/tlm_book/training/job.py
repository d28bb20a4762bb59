"""What a run is asked to do, stored with its work, so that the folder is all one needs to resume it or take it further. Written by hand."""

import dataclasses
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tlm_book.checks import expects, refuse
from tlm_book.files import new_file, new_folder
from tlm_book.tokenization import HubTokenizer, Tokenizer
from tlm_book.training.checkpoint import (
    BEGIN,
    MAY_DIFFER,
    are_notes,
    checkpoints,
    read_log,
    read_notes,
    state_in,
    text_notes,
    write_checkpoint,
)
from tlm_book.training.config import (
    PRESETS_RATE,
    Size,
    TrainConfig,
    model_for,
    pairs_of,
    plan,
    sizes_up_to,
)
from tlm_book.training.curves import CURVES
from tlm_book.training.data import read_tokens
from tlm_book.training.folder import (
    load,
    own_weights,
    save,
    stored_weights,
    with_weights,
)
from tlm_book.training.logs import BOARD, Entry
from tlm_book.training.pace import Aim, fit_time
from tlm_book.training.text import LEAST_BYTES, Paths, text_files
from tlm_book.transformer_lm import Config, TransformerLM

__all__ = ["JOB", "STATE", "Begin", "Job", "begin_of", "begin_with", "begun_with", "carry_over", "further", "has_same_text", "left_behind", "new_job", "read_job"]

JOB, STATE = "run.json", "state.safetensors"
Begin = str | os.PathLike[str] | tuple[Any, Any]  # a folder with a model, or (model, tokenizer)
LONGEST = 1024  # greatest number of tokens in a window, unless more are asked for
SIZES = ("vocab_size", "d_model", "layers", "heads")  # choices that an existing model has already made


@dataclass(frozen=True)
class Job:
    """The text, sizes and settings of a run. `begin` is the folder of the model from which it starts, if there is one; `minutes` is the time to
    which sizes and steps were fitted, if they were.
    """

    data: list[str]
    size: Size
    config: TrainConfig
    preset: str | None = None
    begin: str | None = None
    further: bool = False  # whether this takes a finished run further
    minutes: float | None = None

    def files(self, work: Path) -> list[Path]:
        """The text files, without those of the run itself, whose folder `work` may lie among them. Errors as in `text_files`."""
        found = [file for file in text_files(self.data) if not file.resolve().is_relative_to(work.resolve())]
        expects(found, "path", f"{self.data} without files", "text files")
        return found

    def write(self, file: Path, **notes: Any) -> None:
        """Write the job into a file, with notes."""
        with new_file(file) as part:
            part.write_text(json.dumps({**dataclasses.asdict(self), **notes}, indent=2) + "\n", encoding="utf-8")

    def expects_same(self, folder: Path, data: Paths | None, preset: str | None, begin: Begin | None, choices: Mapping[str, Any]) -> None:
        """Check that what is given now is as it was when the run was begun; the ValueError otherwise names the difference."""
        theirs = {**dataclasses.asdict(self.size), **dataclasses.asdict(self.config), "preset": self.preset, "begin": self.begin, "path": self.data}
        given = {"path": None if data is None else absolute(data), "preset": preset, "begin": None if begin is None else named(begin), **choices}
        for name, value in given.items():
            if value is not None:
                expects(name in theirs, "choices", [name], f"names among {sorted(theirs)}")
                wants = f"{theirs[name]!r}, with which the run in {str(folder)!r} was begun"
                expects(value == theirs[name] or name in MAY_DIFFER, name, repr(value), wants)

    def changed(self, choices: Mapping[str, Any]) -> "Job":
        """The job with the choices that may differ when it is resumed."""
        return dataclasses.replace(self, config=dataclasses.replace(self.config, **{name: choices[name] for name in MAY_DIFFER if name in choices}))


def named(begin: Begin) -> str:
    """The absolute path of a model's folder, or words that say that the model itself was given."""
    return absolute(begin)[0] if isinstance(begin, str | os.PathLike) else "a model that was given"


def absolute(data: Any) -> list[str]:
    """The paths made absolute, as a list."""
    return [os.path.abspath(path) for path in ([data] if isinstance(data, str | os.PathLike) else data)]


def new_job(data: Paths | None, preset: str | None, begin: Begin | None, choices: Mapping[str, Any], aim: Aim | None = None) -> Job:
    """A new run, fitted to a time if there is one to aim at. Without data it uses the text of the run that made the model in `begin`. ValueError for
    too little text, for wrong sizes, and for sizes given together with a model that has its own.
    """
    place = None if begin is None else named(begin)
    if data is None:
        wants = "a text file" if place is None else f"a text file: nothing is known of the text behind it ({place})"
        expects(place is not None and (Path(place) / JOB).is_file(), "path", "none", wants)
        data = read_job(Path(str(place))).data
    files = text_files(data)
    n_bytes = sum(file.stat().st_size for file in files)
    few = f"{n_bytes} bytes in {', '.join(repr(str(f)) for f in files[:3])}"
    expects(n_bytes >= LEAST_BYTES, "path", few, f"at least {LEAST_BYTES} bytes of text")
    model_of: Callable[[Size], Config] = lambda size: model_for(size, size.vocab_size, preset)
    sizes = None
    if begin is None:
        choices = ({} if preset is None else {"lr": PRESETS_RATE}) | dict(choices)
        size, config = plan(n_bytes, **choices)
        model_of(size)  # raises for wrong sizes before the work begins
        if not any(field.name in choices for field in dataclasses.fields(Size) if field.name not in ("steps", "token_noise")):
            sizes = sizes_up_to(n_bytes)
    else:
        own = {name: value for name, value in {**choices, "preset": preset}.items() if name in (*SIZES, "preset") and value is not None}
        for name, value in own.items():
            refuse(name, value, "none: the model that is gone on from has its own")
        gentle: dict[str, Any] = {"lr": 1.5e-4, "token_noise": 0.0}  # since the model has learned much already
        choices = gentle | dict(choices)
        size, config = plan(n_bytes, **choices)
        theirs = begin_of(begin)[0].config
        size = size_of(theirs, size, choices.get("context"))
        model_of = lambda size: theirs.replace(max_len=size.context)
    if aim is None:
        return Job(absolute(data), size, config, preset, place)
    size, config, fitted = fit_time(n_bytes, aim, sizes or [size], model_of, config, choices)
    return Job(absolute(data), size, config, preset, place, minutes=aim.minutes if fitted else None)


def read_job(folder: Path) -> Job:
    """The job that `Job.write` wrote into this folder; ValueError for any other content."""
    try:
        said = json.loads((folder / JOB).read_text(encoding="utf-8"))
        config = {**said["config"], "betas": tuple(said["config"]["betas"]), "replanned": pairs_of(said["config"].get("replanned", ()))}
        return Job(said["data"], Size(**said["size"]), TrainConfig(**config), said["preset"], said["begin"], said["further"], said.get("minutes"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{folder / JOB}: got no notes of a run ({error}), want what `train` wrote") from error


# Starting from an existing model


def begin_of(begin: Begin) -> tuple[TransformerLM, Any]:
    """(model, tokenizer) as given, or from a folder that `save` wrote. TypeError for another kind of model, ValueError if there is no tokenizer,
    FileNotFoundError if the folder lacks a file.
    """
    wants = "the folder of a model, or (model, tokenizer)"
    expects(isinstance(begin, str | os.PathLike) or (isinstance(begin, tuple) and len(begin) == 2), "begin", type(begin).__name__, wants, TypeError)
    try:
        model, tokenizer = begin if isinstance(begin, tuple) else load(begin)
    except FileNotFoundError as error:
        raise FileNotFoundError(str(error).replace("folder: got", "begin: got", 1)) from error
    expects(isinstance(model, TransformerLM), "begin", f"a model of type {type(model).__name__}", "a TransformerLM", TypeError)
    expects(tokenizer is not None, "begin", "a model without a tokenizer", "one with its tokenizer")
    return model, tokenizer


def size_of(config: Config, size: Size, context: int | None) -> Size:
    """The size of an existing model, for windows of `context` tokens; None: as many as it reads. ValueError if it reads fewer tokens than that, and
    if no number was chosen and it reads very many.
    """
    most = config.max_len
    n = most if context is None else context
    expects(n <= most, "context", n, f"at most {most}, what the model reads")
    expects(context is not None or n <= LONGEST, "context", "none", f"a number of tokens: the model reads {most}, for which few machines have room")
    return dataclasses.replace(size, vocab_size=config.vocab_size, d_model=config.d_model, layers=config.n_layers, heads=config.n_heads, context=n)


def begin_with(work: Path, begin: Begin, n: int) -> None:
    """Store the model from which the run starts with its work, in float32, for texts of at most n tokens. Errors as in `begin_of`."""
    model, tokenizer = begin_of(begin)
    ours = with_weights(model.config, {name: w.float() for name, w in own_weights(model).items()})  # a copy: the caller's model stays as it is
    save(shortened(ours, n), work / BEGIN, tokenizer)


def shortened(model: TransformerLM, n: int) -> TransformerLM:
    """The same model for texts of at most n tokens."""
    if n == model.config.max_len:
        return model
    weights = {name: w[:n].contiguous() if name == "position.table" else w for name, w in own_weights(model).items()}
    return with_weights(model.config.replace(max_len=n), weights)


def begun_with(work: Path) -> tuple[TransformerLM, Tokenizer | HubTokenizer] | None:
    """The (model, tokenizer) that `begin_with` stored there; None if it stored none."""
    return load(work / BEGIN) if (work / BEGIN).is_dir() else None


# A finished run that is taken further


def left_behind(work: Path, job: Job) -> dict[str, Path]:
    """{name: file} for all that a finished run leaves in its model's folder so that it can be taken further."""
    last, done = checkpoints(work)[-1], work / ".done.json"
    dataclasses.replace(job, further=False).write(done, notes=read_notes(last))
    return {JOB: done, STATE: last / STATE} | {name: work / name for name in (BOARD, CURVES) if (work / name).exists()}


LEFT = "what a finished run left there"


def notes_in(out: Path) -> dict[str, Any]:
    """The notes on the last step of the finished run that made the model in this folder; ValueError if there are none, or no state beside them."""
    notes = json.loads((out / JOB).read_text(encoding="utf-8")).get("notes")
    expects((out / STATE).is_file(), "folder", f"{str(out)!r} without {STATE}", LEFT)
    expects(are_notes(notes), f"{out / JOB}", "no notes on the last step", LEFT)
    return notes


def best_in(file: Path, done: int) -> Entry:
    """The entry with the lowest loss on the held-out text, the first of several, in a log of so many steps. Errors as in `read_log`; ValueError if
    nothing was measured.
    """
    measured = [entry for entry in read_log(file, done) if isinstance(entry.get("held_out"), int | float)]
    expects(measured, f"{file}", "no loss on the held-out text", LEFT)
    return min(measured, key=lambda entry: entry["held_out"])


def state_like(model: TransformerLM) -> dict[str, Tensor]:
    """Tensors with the names, shapes and types of those that `state_of` returns for this model and AdamW."""
    weights = own_weights(model)
    means = {f"optimizer.{name}.{key}": w for name, w in weights.items() for key in ("exp_avg", "exp_avg_sq")}
    counts = {f"optimizer.{name}.step": torch.zeros(()) for name in weights}
    return {f"model.{name}": w for name, w in weights.items()} | means | counts


def further(out: Path, work: Path, steps: int | None) -> Job:
    """Recreate the work of a finished run as it was after its last step, with more steps to go. ValueError if the number of steps is not greater,
    or if the model's folder is not as the run left it.
    """
    job, notes, (model, tokenizer) = read_job(out), notes_in(out), load(out)
    done = notes["step"]
    wants = f"a number of steps greater than {done}: the run in {str(out)!r} is finished"
    if steps is None or steps <= done:
        refuse("steps", "none" if steps is None else steps, wants)
    replanned = (*job.config.replanned, (done, job.config.steps))
    job = dataclasses.replace(job, config=dataclasses.replace(job.config, steps=steps, replanned=replanned), further=True)
    run = notes["run"] | {"training": notes["run"]["training"] | {"steps": steps, "replanned": replanned}}
    best, state = best_in(out / "log.jsonl", done), state_in(out / STATE, state_like(model), LEFT)
    with new_folder(work) as part:
        shutil.copyfile(out / "log.jsonl", part / "log.jsonl")
        shutil.copyfile(out / "tokenizer.json", part / "tokenizer.json")
        if (out / BOARD).is_dir():
            shutil.copytree(out / BOARD, part / BOARD)
        if (out / CURVES).is_file():
            shutil.copyfile(out / CURVES, part / CURVES)
        if best["step"] != done:
            weights = {f"model.{name}": w for name, w in stored_weights(model).items()}
            write_checkpoint(part, int(best["step"]), weights, {"run": run, "held_out": best["held_out"]})
        write_checkpoint(part, done, state, {"run": run, "held_out": notes["held_out"]})
        if isinstance(tokenizer, HubTokenizer) or job.begin is not None:
            save(model, part / BEGIN, tokenizer)
        job.write(part / JOB)
    return job


def has_same_text(work: Path) -> bool:
    """Whether the tokens there are those of the last checkpoint, if there is one."""
    last = checkpoints(work)[-1:]
    then = read_notes(last[0])["run"].get("text", {}) if last else {}
    now = text_notes(*(read_tokens(work / f"{name}.tokens").tokens for name in ("train", "held_out")))
    return all(then.get(name, value) == value for name, value in now.items())


def carry_over(former: Path, out: Path) -> None:
    """Move what else lies in the former model's folder, such as a user's notes, into that of the new model."""
    for path in former.glob("*"):
        if not os.path.lexists(out / path.name):
            shutil.move(path, out / path.name)

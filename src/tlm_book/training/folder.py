"""A model on disk: a folder with its settings, weights, tokenizer and log; what is read is checked. Written by hand."""

import dataclasses
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from tlm_book.checks import expects, expects_kind
from tlm_book.files import checked_path, free_folder, new_folder, read_json
from tlm_book.positional_encoding import PositionalEncoding
from tlm_book.tokenization import HubTokenizer, Tokenizer
from tlm_book.training.config import TrainConfig
from tlm_book.training.distributed import choose_device
from tlm_book.training.logs import logs
from tlm_book.transformer_lm import Config, Settings, TransformerLM
from tlm_book.weights import (
    CONFIG,
    WEIGHTS,
    expects_as_made,
    expects_model,
    expects_one_table,
    expects_places,
    expects_sound,
    finite,
    meta_model,
    tensors_in,
    tie,
    write_tensors,
)

__all__ = ["load", "load_data", "save", "shipped", "stored_weights", "with_weights"]

S = TypeVar("S", bound=Settings)

TOKENIZER = "tokenizer.json"
SAVED = "what `save` wrote"
OWN = (CONFIG, WEIGHTS, TOKENIZER, *logs(()))  # the names that `save` gives


def save(
    model: TransformerLM,
    folder: str | os.PathLike[str],
    tokenizer: Tokenizer | HubTokenizer,
    *,
    config: TrainConfig | None = None,
    log: Sequence[Mapping[str, Any]] = (),
    more: Mapping[str, Path] | None = None,
) -> Path:
    """Write config.json, model.safetensors, tokenizer.json and, if there is a log, log.jsonl and log.csv into a new folder. (T-files)

    `more` names further files or folders, which are copied there. All is written into a temporary folder that is renamed at the end, so the folder
    appears complete or not at all. FileExistsError if it exists already; ValueError if model and tokenizer do not fit together, weights differ in type, one
    is not finite, a tied model has two matrices, a layer is not what its settings make, a table of computed positions is far larger than the weights, or a name in `more` is taken or leads
    elsewhere; TypeError for anything but a model and a tokenizer.
    """
    expects_model(model)
    path = free_folder(folder)
    expects_kind("tokenizer", tokenizer, Tokenizer | HubTokenizer, "the model's tokenizer")
    for name in more or {}:
        expects(Path(name).name == name and name not in ("", "..", *OWN), "more", repr(name), f"a name in the folder, other than {', '.join(OWN)}")
    V = model.config.vocab_size
    expects(len(tokenizer) == V, "tokenizer", f"{len(tokenizer)} tokens", f"the model's vocab_size = {V}")
    expects_as_made(model, TransformerLM)
    expects_one_table(model)
    weights = stored_weights(model)
    expects_few_places(model.config, weights, "model")
    expects_sound("model", weights)
    settings = {"model": dataclasses.asdict(model.config), "training": dataclasses.asdict(config) if config else None}
    if isinstance(tokenizer, HubTokenizer):
        settings["tokenizer"] = {"size": V, "start": tokenizer.start, "stop": tokenizer.stop}
    with new_folder(path) as part:
        (part / CONFIG).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
        write_tensors(part / WEIGHTS, weights)
        tokenizer.save(part / TOKENIZER)
        for name, text in logs(log).items() if log else ():
            (part / name).write_text(text, encoding="utf-8")
        for name, source in (more or {}).items():
            copy = shutil.copytree if source.is_dir() else shutil.copyfile
            copy(source, part / name)
    return path


def own_weights(model: TransformerLM) -> dict[str, Tensor]:
    """The weights by name, a tied matrix once; the tensors are the model's own."""
    tied = {"unembedding.weight"} if model.config.tied else set()  # it is the embedding table
    return {name: w.detach() for name, w in model.state_dict().items() if name not in tied}


def stored_weights(model: TransformerLM) -> dict[str, Tensor]:
    """The weights as they are stored in a file: on the CPU, a tied matrix once. Those that are there already are not copied."""
    return {name: w.cpu().contiguous() for name, w in own_weights(model).items()}


def load(folder: str | os.PathLike[str], device: str = "cpu") -> tuple[TransformerLM, Any]:
    """(model, tokenizer) from a folder that `save` wrote; the model is in evaluation mode. (T-files)

    The tokenizer is a `Tokenizer`, or a `HubTokenizer` if the model was trained further from a model of the hub.

    FileNotFoundError for a missing folder or file; ValueError for a file that is broken, has an unknown field, or holds weights
    with other names or shapes, of several types, of fewer than 16 bits or with numbers that are not finite, and if a table of computed positions would
    be far larger than the weights. No code is run from any file.
    """
    path, chosen = checked_path(folder, "folder"), choose_device(device)
    wants = "a folder that `save` wrote"
    expects(path.is_dir(), "folder", f"no folder at {str(path)!r}", wants, FileNotFoundError)
    fields: Any = read_json(path / CONFIG, SAVED) if (path / CONFIG).is_file() else {}
    of_hub = isinstance(fields, dict) and "model_type" in fields  # a field that Hugging Face's files have
    expects(not of_hub, "folder", f"{str(path)!r}, in Hugging Face's form", f"{wants}; load_model reads that form")
    for name in (CONFIG, WEIGHTS, TOKENIZER):
        expects((path / name).is_file(), "folder", f"{str(path)!r} without {name}", wants, FileNotFoundError)
    config = config_of(fields, path / CONFIG, Config)
    tokenizer = tokenizer_of(fields, path)
    V = config.vocab_size
    expects(len(tokenizer) == V, TOKENIZER, f"{len(tokenizer)} tokens", f"vocab_size = {V} of {CONFIG}")
    return with_weights(config, tensors_in(path / WEIGHTS, SAVED), path / WEIGHTS).to(chosen), tokenizer


def shipped(device: str = "cpu") -> tuple[TransformerLM, Tokenizer]:
    """(model, tokenizer): the small English model that comes with the package, made by `train_book`. (T-shipped)"""
    return load_data("model", device)


def load_data(name: str, device: str) -> tuple[TransformerLM, Tokenizer]:
    """(model, tokenizer) from the folder of this name in the package's data."""
    with resources.as_file(resources.files("tlm_book") / "data" / name) as folder:
        return load(folder, device)


# What is read is checked


def tokenizer_of(fields: dict[str, Any], folder: Path) -> Tokenizer | HubTokenizer:
    """The tokenizer in a folder whose config.json has these fields; ValueError if its file is broken."""
    counts = fields.get("tokenizer")
    if counts is None:
        return tokenizer_in(folder / TOKENIZER)
    right = isinstance(counts, dict) and counts.keys() == {"size", "start", "stop"} and all(isinstance(n, int) for n in counts.values())
    expects(right, f"{folder / CONFIG}", f"tokenizer: {counts!r}", SAVED)
    return tokenizer_in(folder / TOKENIZER, HubTokenizer, **counts)


def tokenizer_in(file: Path, kind: Any = Tokenizer, **more: Any) -> Any:
    """The tokenizer in a file that no argument names; the ValueError for a broken one begins with the file."""
    try:
        return kind.load(file, **more)
    except ValueError as error:
        raise ValueError(str(error).replace(f"path: got {str(file)!r}", f"{file}: got a broken file")) from error


def config_of(fields: Any, file: Path, kind: type[S], saved: str = SAVED) -> S:
    """The model's settings, a dataclass of this kind, in this content of a config.json; ValueError, which names the file, for any other content."""
    right = isinstance(fields, dict) and isinstance(fields.get("model"), dict)
    expects(right, f"{file}", 'no table "model"', saved)
    known = {field.name: field.default for field in dataclasses.fields(kind)}
    missing = [name for name, default in known.items() if default is dataclasses.MISSING and name not in fields["model"]]
    unknown = [name for name in fields["model"] if name not in known]
    wants = f"the fields of {kind.__name__}: {', '.join(known)}"
    expects(not missing, f"{file}", f"no field {missing[:1]}", wants)
    expects(not unknown, f"{file}", f"the unknown field {unknown[:1]}", wants)
    try:
        return kind(**fields["model"])
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file}: {error}") from error


def expects_few_places(config: Settings, weights: Mapping[str, Tensor], of: str) -> None:
    """`expects_places` for the positions that a model with these settings computes; `of` says whose they are."""
    width = {"sinusoidal": config.d_model, "rotary": config.head_width}.get(config.pe, 0)
    expects_places(f"{of}: max_len", config.max_len, width, weights)


def with_weights(config: Config, weights: Mapping[str, Tensor], file: str | os.PathLike[str] = "weights") -> TransformerLM:
    """A model in evaluation mode with these very tensors, not copies, as its weights; a tied matrix is given once. No random number is drawn.

    ValueError, which names the file, for tensors that do not fit, differ in type, have fewer than 16 bits or are not finite, and if a table of computed
    positions would be far larger than they are.
    """
    expects_few_places(config, weights, f"{Path(file).with_name(CONFIG)}")
    model = meta_model(TransformerLM, config, weights, f"{Path(file).with_name(CONFIG)}")
    if config.pe in ("sinusoidal", "none", "rotary"):  # positions that are computed, not stored
        model.position = PositionalEncoding(config.max_len, config.d_model, config.pe, config.pe_start)
    wanted = own_weights(model)
    differ = sorted(weights.keys() ^ wanted.keys())[:3]
    expects(not differ, f"{file}", f"other weights: {differ}", "the weights that config.json describes")
    table = weights["embedding.table.weight"]
    for name, w in weights.items():
        shape = tuple(wanted[name].shape)
        expects(w.shape == shape, f"{file}", f"{name} of shape {tuple(w.shape)}", f"{shape}")
        expects(w.is_floating_point() and w.itemsize > 1, f"{file}", f"{name} of type {w.dtype}", "floating point weights of 16 bits or more")
        expects(w.dtype == table.dtype, f"{file}", f"{name} of type {w.dtype}", f"one type for all, here {table.dtype}")
        expects(finite(w), f"{file}", f"{name} with numbers that are not finite", "finite weights")
    tied = {"unembedding.weight": table} if config.tied else {}
    model.load_state_dict({**weights, **tied}, assign=True)
    model.to(table)  # computed tensors take the weights' type and device
    tie(model)
    return model.eval()

"""A model's folder: config.json and model.safetensors, read with suspicion and written completely or not at all."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from jaxtyping import Shaped
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from tlm_book.checks import expects
from tlm_book.encoder_decoder import EncoderDecoder
from tlm_book.pretrained.names import Pair, to_file, to_model, turned_back
from tlm_book.transformer_lm import Settings, TransformerLM
from tlm_book.weights import finite, tie, write_tensors

__all__ = [
    "CONFIG",
    "NO_PICKLE",
    "WEIGHTS",
    "described",
    "drop_copies",
    "expects_tensor",
    "fill",
    "read_fields",
    "read_json",
    "read_tensors",
    "tensors_of",
    "write_model",
]

S = TypeVar("S", bound=Settings)

CONFIG, WEIGHTS = "config.json", "model.safetensors"
NO_PICKLE = (
    "safetensors: a .bin file is a pickle, a program that could do anything when it is read; convert it where you trust it, "
    "for instance with transformers: from_pretrained(…).save_pretrained(…)"
)


# Reading


def read_json(file: Path, wants: str) -> object:
    """What a JSON file holds; ValueError that says what is wanted for a file that is none."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file}: got no JSON ({error}), want {wants}") from error


def read_fields(folder: Path) -> dict[str, Any]:
    """The table in the folder's config.json. FileNotFoundError without such a file, ValueError for one that holds something else."""
    file = folder / CONFIG
    expects(file.is_file(), "folder", f"{str(folder)!r} without {CONFIG}", "a model's folder", FileNotFoundError)
    fields = read_json(file, "settings")
    if not isinstance(fields, dict):
        raise ValueError(f"{file}: got no table, want a table of settings")
    return fields


def described(folder: Path, config_of: Callable[[dict[str, Any]], S]) -> S:
    """The settings in the folder's config.json, by `gpt2_config` or `marian_config`; ValueError that names the file."""
    fields = read_fields(folder)
    try:
        return config_of(fields)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{folder / CONFIG}: {error}") from error


def without_weights(folder: Path) -> Exception:
    """The error for a folder that has no model.safetensors: what it has instead."""
    names = sorted(os.listdir(folder))
    if pickles := [name for name in names if name.endswith((".bin", ".pt", ".pth"))]:
        return ValueError(f"folder: got {pickles[:1]} and no {WEIGHTS}, want {NO_PICKLE}")
    if parts := [name for name in names if name.endswith(".safetensors.index.json")]:
        return ValueError(f"folder: got weights in parts ({parts[:1]}), want one file")
    return FileNotFoundError(f"folder: got {str(folder)!r} without {WEIGHTS}, want a model's folder")


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of the folder's model.safetensors.

    FileNotFoundError when it is missing, ValueError when it is broken or when there is only a pickle.
    """
    file = folder / WEIGHTS
    if not file.is_file():
        raise without_weights(folder)
    try:
        return load_file(file)
    except SafetensorError as error:
        raise ValueError(f"{file}: got a broken file ({error}), want a whole safetensors file; fetch it again") from error


def drop_copies(tensors: dict[str, Tensor], copies: Mapping[str, str]) -> None:
    """Take out tensors that are copies, {name of the copy: name of the original}; a copy may also stand in for an original that
    is missing. ValueError when the two differ.
    """
    for copy, original in copies.items():
        if copy in tensors:
            w = tensors.pop(copy)
            same = torch.equal(w, tensors.setdefault(original, w))
            expects(same, WEIGHTS, f"{copy} other than {original}", "one tensor, as config.json says")


# From tensors to a model, and back


def expects_tensor(w: Shaped[Tensor, "..."], shape: tuple[int, ...], dtype: torch.dtype, name: str, file: str) -> None:
    """ValueError that names file and tensor unless it holds finite floating point numbers of this shape and dtype."""
    floats, kind = w.is_floating_point() and w.dtype.itemsize > 1, f"{name} of type {w.dtype}"
    expects(floats, file, kind, "floating point numbers of 16 bits or more")
    expects(w.dtype == dtype, file, kind, f"one type for all, here {dtype}")
    expects(tuple(w.shape) == shape, file, f"{name} of shape {tuple(w.shape)}", f"shape {shape}, by {CONFIG}")
    expects(finite(w), file, f"{name} with NaN or ∞", "finite weights")


def fill(
    model: TransformerLM | EncoderDecoder, named: Sequence[Pair], tensors: Mapping[str, Tensor], file: str = WEIGHTS
) -> None:
    """Give the model the tensors, each under its own name and turned as `named` says; the model takes on their dtype.
    ValueError when they do not fit.
    """
    wanted, empty = {pair.theirs for pair in named}, model.state_dict()
    missing, extra = sorted(wanted - tensors.keys()), sorted(tensors.keys() - wanted)
    wants = f"each tensor that {CONFIG} calls for, and no other"
    expects(not missing, file, f"no tensor {', '.join(missing[:3])}", wants)
    expects(not extra, file, f"the further tensor {', '.join(extra[:3])}", wants)
    dtype = tensors[named[0].theirs].dtype
    for theirs, ours, layout in named:
        expects_tensor(tensors[theirs], tuple(turned_back(empty[ours], layout).shape), dtype, theirs, file)
    model.load_state_dict(to_model(tensors, named), strict=False, assign=True)
    tie(model)
    model.to(dtype)  # tables that are computed, too


def tensors_of(model: TransformerLM | EncoderDecoder, named: Sequence[Pair]) -> dict[str, Tensor]:
    """The model's weights as the file names and keeps them: the inverse of `fill`. ValueError for weights without numbers, and
    for a tied model of two matrices.
    """
    state = {name: w.detach() for name, w in model.state_dict().items()}
    bare = [pair.ours for pair in named if state[pair.ours].is_meta]
    expects(not bare, "model", f"{bare[:1]} without numbers", "weights")
    one, two = model.embedding.table.weight, model.unembedding.weight
    same = not model.config.tied or one is two or torch.equal(one, two)
    expects(same, "model", "a tied model with two matrices", "one, or tied=False")
    return {name: w.cpu().clone(memory_format=torch.contiguous_format) for name, w in to_file(state, named).items()}


# Writing


def write_model(folder: Path, fields: Mapping[str, Any], tensors: dict[str, Tensor]) -> None:
    """config.json and model.safetensors. ValueError for what `expects_tensor` refuses in a file, OSError when they cannot be
    written.
    """
    dtype = next(iter(tensors.values())).dtype
    for name, w in tensors.items():
        expects_tensor(w, tuple(w.shape), dtype, name, "model")
    (folder / CONFIG).write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
    write_tensors(folder / WEIGHTS, tensors, {"format": "pt"})  # transformers looks for the format

"""A model's folder: config.json and model.safetensors, or several such files and their index; checked when read, and written
completely or not at all."""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from jaxtyping import Shaped
from torch import Tensor

from tlm_book.checks import expects, refuse
from tlm_book.encoder_decoder import EncoderDecoder
from tlm_book.files import read_json
from tlm_book.pretrained.names import Pair, to_file, to_model, turned_back
from tlm_book.transformer_lm import Settings, TransformerLM
from tlm_book.weights import (
    CONFIG,
    WEIGHTS,
    expects_as_made,
    expects_one_table,
    finite,
    tensors_in,
    tie,
    write_tensors,
)

__all__ = [
    "CONFIG",
    "INDEX",
    "LIMIT",
    "NO_PICKLE",
    "WEIGHTS",
    "config_in",
    "drop_copies",
    "expects_tensor",
    "load_into",
    "parts_of",
    "read_fields",
    "read_tensors",
    "tensors_of",
    "write_model",
]

S = TypeVar("S", bound=Settings)

INDEX = f"{WEIGHTS}.index.json"  # for weights in several files: says which tensor is in which file
LIMIT = 5 * 10**9  # most bytes of one file
PART = re.compile(r"[\w-][\w.-]*\.safetensors")  # the name of one of several files
WHOLE = "a whole safetensors file; fetch it again"
NO_PICKLE = (
    "safetensors: a .bin file is a pickle, a program that could do anything when it is read; convert it where you trust it, "
    "for instance with transformers: from_pretrained(…).save_pretrained(…)"
)


# Reading


def read_fields(folder: Path) -> dict[str, Any]:
    """The table in the folder's config.json. FileNotFoundError if there is no such file, ValueError if it does not hold a table."""
    file = folder / CONFIG
    expects(file.is_file(), "folder", f"{str(folder)!r} without {CONFIG}", "a model's folder", FileNotFoundError)
    fields = read_json(file, "settings")
    if not isinstance(fields, dict):
        raise ValueError(f"{file}: got no table, want a table of settings")
    return fields


def config_in(folder: Path, config_of: Callable[[dict[str, Any]], S]) -> S:
    """The settings in the folder's config.json, as read by `config_of`, for instance `gpt2_config`; every ValueError names the file."""
    fields = read_fields(folder)
    try:
        return config_of(fields)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{folder / CONFIG}: {error}") from error


def without_weights(folder: Path) -> Exception:
    """The error for a folder without model.safetensors; its message says what the folder has instead."""
    names = sorted(os.listdir(folder))
    if pickles := [name for name in names if name.endswith((".bin", ".pt", ".pth"))]:
        return ValueError(f"folder: got {pickles[:1]} and no {WEIGHTS}, want {NO_PICKLE}")
    return FileNotFoundError(f"folder: got {str(folder)!r} without {WEIGHTS}, want a model's folder")


def parts_of(folder: Path) -> dict[str, str]:
    """{tensor: file}, from the folder's index. ValueError if the index is not valid, or names a file elsewhere."""
    file = folder / INDEX
    index = read_json(file, "an index")
    places = index.get("weight_map") if isinstance(index, dict) else None
    wants = f"an index: a weight_map from tensors to files beside it, such as {WEIGHTS}"
    if not isinstance(places, dict) or not places:
        refuse(f"{file}", "no weight_map", wants)
    odd = [name for name in places.values() if not (isinstance(name, str) and PART.fullmatch(name))]
    expects(not odd, f"{file}", f"the file {odd[:1]}", wants)
    return places


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of the folder's model.safetensors, or of the several files that its index names.

    FileNotFoundError if a file is missing; ValueError if one is broken, if the files hold other tensors than the index
    says, or if there is only a pickle.
    """
    if (folder / WEIGHTS).is_file():
        return tensors_in(folder / WEIGHTS, WHOLE)
    if not (folder / INDEX).is_file():
        raise without_weights(folder)
    places = parts_of(folder)
    lost = [name for name in sorted(set(places.values())) if not (folder / name).is_file()]
    expects(not lost, "folder", f"{str(folder)!r} without {lost[:1]}", f"the files that {INDEX} names", FileNotFoundError)
    tensors: dict[str, Tensor] = {}
    for name in sorted(set(places.values())):
        held = tensors_in(folder / name, WHOLE)
        odd = sorted({tensor for tensor, place in places.items() if place == name} ^ held.keys())
        expects(not odd, f"{folder / name}", f"other tensors than {INDEX} says ({odd[0] if odd else ''})", "those, and no other")
        tensors |= held
    return tensors


def drop_copies(tensors: dict[str, Tensor], copies: Mapping[str, str]) -> None:
    """Remove tensors that are copies, by {name of the copy: name of the original}; a copy takes the place of an original that is
    missing. ValueError if the two differ.
    """
    for copy, original in copies.items():
        if copy in tensors:
            w = tensors.pop(copy)
            same = torch.equal(w, tensors.setdefault(original, w))
            expects(same, WEIGHTS, f"{copy} other than {original}", "one tensor, as config.json says")


# From tensors to a model, and back


def expects_tensor(w: Shaped[Tensor, "..."], shape: tuple[int, ...], dtype: torch.dtype, name: str, file: str) -> None:
    """Check that a tensor holds finite floating point numbers of this shape and dtype; the ValueError otherwise names file and tensor."""
    floats, kind = w.is_floating_point() and w.dtype.itemsize > 1, f"{name} of type {w.dtype}"
    expects(floats, file, kind, "floating point numbers of 16 bits or more")
    expects(w.dtype == dtype, file, kind, f"one type for all, here {dtype}")
    expects(tuple(w.shape) == shape, file, f"{name} of shape {tuple(w.shape)}", f"shape {shape}, by {CONFIG}")
    expects(finite(w), file, f"{name} with NaN or ∞", "finite weights")


def load_into(
    model: TransformerLM | EncoderDecoder, named: Sequence[Pair], tensors: Mapping[str, Tensor], file: str = WEIGHTS
) -> None:
    """Give the model the tensors, renamed and transposed as `named` says; the model takes on their dtype.
    ValueError if they do not fit.
    """
    wanted, empty = {pair.theirs for pair in named}, model.state_dict()
    missing, extra = sorted(wanted - tensors.keys()), sorted(tensors.keys() - wanted)
    wants = f"each tensor that {CONFIG} calls for, and no other"
    expects(not missing, file, f"no tensor {', '.join(missing[:3])}", wants)
    expects(not extra, file, f"the further tensor {', '.join(extra[:3])}", wants)
    dtype = tensors[named[0].theirs].dtype
    for theirs, ours, layout, part in named:
        place = empty[ours] if part is None else empty[ours][part]
        expects_tensor(tensors[theirs], tuple(turned_back(place, layout).shape), dtype, theirs, file)
    model.load_state_dict(to_model(tensors, named), strict=False, assign=True)
    tie(model)
    for layer in model.modules():  # tables without columns, for models that encode positions otherwise
        for name, table in layer.named_buffers(recurse=False):
            if table.numel() == 0:
                layer.register_buffer(name, torch.empty(table.shape), persistent=False)
    model.to(dtype)  # computed tables, too


def tensors_of(model: TransformerLM | EncoderDecoder, named: Sequence[Pair]) -> dict[str, Tensor]:
    """The model's weights with the names and the layout of the file: the inverse of `load_into`. ValueError for weights without
    numbers, for a tied model with two matrices, and for layers that are not what its settings make.
    """
    expects_as_made(model, TransformerLM if isinstance(model, TransformerLM) else EncoderDecoder)
    state = {name: w.detach() for name, w in model.state_dict().items()}
    bare = [pair.ours for pair in named if state[pair.ours].is_meta]
    expects(not bare, "model", f"{bare[:1]} without numbers", "weights")
    expects_one_table(model)
    return {name: w.cpu().clone(memory_format=torch.contiguous_format) for name, w in to_file(state, named).items()}


# Writing


def write_model(folder: Path, fields: Mapping[str, Any], tensors: dict[str, Tensor], limit: int = LIMIT) -> None:
    """Write config.json and model.safetensors or, if that would be more than `limit` bytes, several files and their index. ValueError
    for whatever `expects_tensor` refuses, OSError if the files cannot be written.
    """
    dtype = next(iter(tensors.values())).dtype
    for name, w in tensors.items():
        expects_tensor(w, tuple(w.shape), dtype, name, "model")
    (folder / CONFIG).write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
    files = shared_out(tensors, limit)
    if len(files) == 1:
        return write_tensors(folder / WEIGHTS, tensors, {"format": "pt"})  # transformers looks for this format entry
    names = [f"model-{k:05}-of-{len(files):05}.safetensors" for k in range(1, len(files) + 1)]
    for file, part in zip(names, files):
        write_tensors(folder / file, part, {"format": "pt"})
    places = {tensor: file for file, part in zip(names, files) for tensor in part}
    index = {"metadata": {"total_size": sum(w.nbytes for w in tensors.values())}, "weight_map": places}
    (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def shared_out(tensors: Mapping[str, Tensor], limit: int) -> list[dict[str, Tensor]]:
    """The tensors in their order, split into the fewest possible runs of at most `limit` bytes each; a larger tensor is a run by itself."""
    files: list[dict[str, Tensor]] = [{}]
    for name, w in tensors.items():
        if files[-1] and sum(v.nbytes for v in files[-1].values()) + w.nbytes > limit:
            files.append({})
        files[-1][name] = w
    return files

"""Weights in files: named tensors in safetensors files, tests for finite numbers, and models whose weights have no numbers yet. Written by hand."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tlm_book.checks import expects, expects_kind
from tlm_book.onednn import is_linear
from tlm_book.transformer_lm import Settings, TransformerLM

__all__ = ["CONFIG", "WEIGHTS", "expects_as_made", "expects_model", "expects_one_table", "expects_places", "expects_sound", "finite", "meta_model", "tensors_in", "tie", "write_tensors"]

CONFIG, WEIGHTS = "config.json", "model.safetensors"  # the files in a model's folder
PLACES = 1 << 26  # numbers in a table of computed positions that are always allowed, however small the weights
S = TypeVar("S", bound=Settings)
Model = TypeVar("Model", bound=nn.Module)


def finite(w: Float[Tensor, "*shape"]) -> bool:
    """Whether all numbers are finite: their sum tells, unless it overflows, and then they are looked at one by one."""
    return bool(w.sum().isfinite()) or bool(w.isfinite().all())


def expects_sound(argument: str, weights: Mapping[str, Tensor]) -> None:
    """ValueError, which names the argument, unless all numbers are finite and all weights of one type, as `load` and `load_translator` want them."""
    for name, w in weights.items():
        expects(finite(w), argument, f"{name} with numbers that are not finite", "finite weights")
    types = sorted({str(w.dtype) for w in weights.values()})
    expects(len(types) == 1, argument, f"weights of types {', '.join(types)}", "one type for all")


def tensors_in(file: Path, wants: str) -> dict[str, Tensor]:
    """All tensors of a safetensors file; ValueError, which says what is wanted, if it is broken."""
    try:
        return load_file(file)
    except SafetensorError as error:
        raise ValueError(f"{file}: got a broken file ({error}), want {wants}") from error


def write_tensors(file: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file; OSError when it cannot be written, for instance on a full disk."""
    file.touch()
    mode = file.stat().st_mode  # the mode that the umask grants: safetensors makes files that nobody else may read
    try:
        save_file(dict(tensors), file, metadata)
        file.chmod(mode)
    except SafetensorError as error:
        raise OSError(f"{file}: {error}") from error


def tie(model: nn.Module) -> None:
    """After loading, make the unembedding of a tied model its embedding table again: one parameter, not two with the same numbers."""
    parts: Any = model
    if parts.config.tied:
        parts.unembedding.weight = parts.embedding.table.weight


def expects_model(model: object) -> None:
    """Check that the model is one of this book; TypeError otherwise."""
    expects_kind("model", model, TransformerLM, "a TransformerLM (of a compiled one: model._orig_mod)")


def expects_one_table(model: nn.Module) -> None:
    """ValueError for a tied model whose two matrices differ: a file has room for one."""
    parts: Any = model
    one, two = parts.embedding.table.weight, parts.unembedding.weight
    same = not parts.config.tied or one is two or torch.equal(one, two)
    expects(same, "model", "a tied model with two matrices", "one, or tied=False")


def expects_as_made(model: nn.Module, kind: Callable[[Any], nn.Module]) -> None:
    """ValueError unless the layers compute what those of a new kind(model.config) do: a file holds settings and weights, and that model is what
    will be read from it. Dropout, which is for training alone, may be another.
    """
    parts: Any = model
    with torch.device("meta"):
        new = dict(kind(parts.config).named_modules(remove_duplicate=False))
    for name, layer in model.named_modules():
        other = new.get(name)
        wants = "the layers that its config makes, for a file holds nothing else of them"
        same = other is not None and (type(layer).forward is type(other).forward or (is_linear(layer) and is_linear(other)))
        expects(same, "model", f"{name or 'one with a forward of its own'} ({type(layer).__name__})", wants)
        for field, value in () if isinstance(other, nn.Dropout) else _plain(other):
            expects(getattr(layer, field, None) == value, "model", f"{name}.{field} = {getattr(layer, field, None)!r}", f"{value!r}, as its config says")


def _plain(layer: Any) -> list[tuple[str, object]]:
    """The settings of a layer: its numbers, words and what is None."""
    return [(field, value) for field, value in vars(layer).items() if field != "training" and field[0] != "_" and isinstance(value, int | float | str | None)]


def expects_places(argument: str, rows: int, width: int, weights: Mapping[str, Tensor], always: int = PLACES) -> None:
    """ValueError, which names the argument, if a table of so many computed positions would be far larger than the weights."""
    most = max(always, sum(w.numel() for w in weights.values()))
    expects(rows * width <= most, argument, rows, f"at most {most // max(1, width)}, beside weights of this size")


def meta_model(kind: Callable[[S], Model], config: S, tensors: Mapping[str, Tensor], file: str = "config.json") -> Model:
    """The model kind(config), whose weights have shapes but no numbers yet, so that no memory is used before the sizes are known
    to be right. ValueError for sizes that no file with these tensors can have.
    """
    expects(config.n_layers <= len(tensors), file, f"{config.n_layers} blocks", f"at most {len(tensors)}, one a tensor")
    try:
        with torch.device("meta"):
            return kind(config)
    except (RuntimeError, OverflowError, TypeError) as error:
        raise ValueError(f"{file}: got sizes too great to be counted, want those of the tensors") from error

"""The example inputs, taken apart: which of them is the sequence, and which are its axes."""

import copy
from collections.abc import Mapping
from typing import Any

from jaxtyping import Shaped
from torch import Tensor, nn

from tlm_book.auditing.tensors import attempt, tensors_in
from tlm_book.checks import expects, expects_kind

SEQUENCES = ("decoder_input_ids", "input_ids", "inputs_embeds")
WITH_ROWS = {"attention_mask", "position_ids", "token_type_ids", "key_padding_mask", "src_key_padding_mask"}


class Inputs:
    """The example inputs, taken apart: `x`, the sequence, as (batch, row, …), and what goes with it."""

    def __init__(self, inputs: Any, axis: int | None) -> None:
        inputs = (inputs,) if isinstance(inputs, Tensor) else inputs
        expects_kind("inputs", inputs, tuple | list | Mapping, "a tensor, a tuple of them or a mapping by keyword")
        self.named = isinstance(inputs, Mapping)
        self.values = dict(inputs) if self.named else dict(enumerate(inputs))
        tensors = [k for k, v in self.values.items() if isinstance(v, Tensor)]
        expects(tensors, "inputs", "no tensor", "at least one, the sequence first")
        self.key = ([k for k in SEQUENCES if k in tensors] or tensors)[0]
        x = self.values[self.key].detach()
        self.tokens = not (x.is_floating_point() or x.is_complex())
        least, got = 1 + (not self.tokens), f"a sequence of shape {tuple(x.shape)}"
        wants = "(batch, n) tokens or (batch, n, d) rows"
        expects(x.dim() >= least, "inputs", got, wants)
        fits = axis is None or -x.dim() <= axis < x.dim()
        expects(fits, "input_axis", axis, f"an axis of the sequence, of shape {tuple(x.shape)}")
        self.axis = (-least if axis is None else axis) % x.dim()
        others = [a for a in range(x.dim()) if a != self.axis]
        self.batch_axis = others[0] if len(others) >= least else None
        x = self.canonical(x)
        self.n, self.first, self.real = x.shape[1], 0, None
        self.mask = "decoder_" * (self.key == SEQUENCES[0]) + "attention_mask"
        mask = self.values.get(self.mask)
        if isinstance(mask, Tensor) and mask.shape == x.shape[:2] and len(x):
            self.first = int((mask != 0).sum(-1).argmax())  # the sequence with the least padding
            self.real = mask[self.first] != 0
        self.x = x.roll(-self.first, 0)

    def canonical(self, x: Shaped[Tensor, "..."]) -> Shaped[Tensor, "batch n *d"]:
        """The sequences as (batch, row, …), with a batch of one if the model takes single sequences."""
        if self.batch_axis is None:
            return x.movedim(self.axis, 0).unsqueeze(0)
        return x.movedim((self.batch_axis, self.axis), (0, 1))

    def back(self, x: Shaped[Tensor, "batch n *d"]) -> Shaped[Tensor, "..."]:
        """The inverse of `canonical`: the sequences as the model takes them, as a copy."""
        if self.batch_axis is None:
            return x.squeeze(0).movedim(0, self.axis).clone()
        return x.movedim((0, 1), (self.batch_axis, self.axis)).clone()


def cut_beside(inputs: Inputs, key: Any, value: Any, x: Shaped[Tensor, "batch n *d"], start: int) -> Any:
    """Another input, cut to go with x, the rows start, start + 1, … of a sequence; a copy, which the model may overwrite.

    A mask (…, n, n) or (…, n) is cut to these rows and still covers all rows before them; an input with a batch axis gets
    the batch of x.
    """
    if value is inputs.values[inputs.key]:
        return inputs.back(x)  # it is the sequence itself, which may be given twice
    if not isinstance(value, Tensor):
        return copied(value)
    stop, in_batch = start + x.shape[1], has_batch(inputs, value)
    if is_square(inputs, value):
        value = value[..., start:stop, :stop]
    elif has_rows(inputs, key, value):
        value = value[..., 0 if "mask" in str(key) else start : stop]
    if in_batch and inputs.batch_axis is not None:
        value = value.narrow(inputs.batch_axis, inputs.first, 1).repeat_interleave(len(x), inputs.batch_axis)
    return value.clone()


def copied(value: Any) -> Any:
    """A copy of a list, a mapping or an object with tensors, and of all that it holds; any other object itself, also one that cannot be copied."""
    memo = {id(t): t.clone() for t in tensors_in(value)}  # also those that are computed from weights, which deepcopy refuses
    made = attempt(copy.deepcopy, value, memo)
    holds = isinstance(value, list | tuple | set | bytearray | Mapping) or any(isinstance(part, Tensor) for part in memo.values())
    return made if holds and made is not None else value


def is_square(inputs: Inputs, value: Shaped[Tensor, "..."]) -> bool:
    """Whether this input is a mask (…, n, n) over pairs of rows."""
    return value.dim() > 1 and value.shape[-2:] == (inputs.n, inputs.n)


def has_rows(inputs: Inputs, key: Any, value: Shaped[Tensor, "..."]) -> bool:
    """Whether this input has a number for each row of the sequence, by its name or since it has few axes and holds whole numbers."""
    if inputs.key == "decoder_input_ids" and not str(key).startswith("decoder_"):
        return False  # it belongs to the encoder's sequence
    usual = key in WITH_ROWS or (value.dim() < 3 and not value.is_floating_point())
    return usual and value.shape[-1:] == (inputs.n,)


def has_batch(inputs: Inputs, value: Shaped[Tensor, "..."]) -> bool:
    """Whether this input has an entry for each sequence of the batch."""
    axis = inputs.batch_axis
    if axis is None or value.dim() <= max(axis, 1) + is_square(inputs, value):
        return False
    return value.shape[axis] == len(inputs.x)


def vocabulary_size(inputs: Inputs, modules: Mapping[str, nn.Module], given: int | None) -> int:
    """The number of tokens in the vocabulary: as given, or as a configuration says, or the number of rows of the smallest embedding
    that has one for each token seen (others may hold positions), or from the largest token seen.
    """
    if given is not None or not inputs.tokens:
        return given or 2
    configs = [getattr(m, "config", None) for m in modules.values()]
    tables = [m for m in modules.values() if isinstance(m, nn.Embedding)]
    known = [getattr(config, "vocab_size", None) for config in configs]
    sizes = [size for size in known if isinstance(size, int)]
    seen = int(inputs.x.max()) + 1
    fits = [table.num_embeddings for table in tables if table.num_embeddings >= max(2, seen)]
    return sizes[0] if sizes else min(fits, default=max(2, seen))

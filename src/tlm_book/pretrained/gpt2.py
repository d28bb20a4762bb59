"""GPT-2: its settings, its tensors and its folder, both ways."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from tlm_book.checks import expects, expects_kind
from tlm_book.files import new_folder
from tlm_book.pretrained.files import (
    CONFIG,
    WEIGHTS,
    config_in,
    drop_copies,
    load_into,
    read_fields,
    read_tensors,
    tensors_of,
    write_model,
)
from tlm_book.pretrained.hub import model_folder
from tlm_book.pretrained.names import (
    GPT2_FIELDS,
    GPT2_NAMES,
    HUB_ACTIVATIONS,
    Pair,
    pairs,
)
from tlm_book.pretrained.settings import expects_only, expects_same, plain_heads
from tlm_book.tokenization import Tokenizer, load_gpt2_tokenizer, save_gpt2_tokenizer
from tlm_book.transformer_lm import Config, TransformerLM
from tlm_book.weights import expects_model, meta_model

__all__ = ["gpt2_config", "gpt2_fields", "gpt2_name", "gpt2_pairs", "load_gpt2", "save_gpt2"]

ONLY = {
    "model_type": ("gpt2",),
    "add_cross_attention": (False,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "scale_attn_weights": (True, False),
    "activation_function": tuple(HUB_ACTIVATIONS),
}
ENDS = ("bos_token_id", "eos_token_id")  # the token that begins and ends a text
MASKS = re.compile(r"\bh\.\d+\.attn\.(masked_)?bias$")  # tables of masks, among the weights of old files
PREFIX = "transformer."  # of all names in new files except that of the last matrix


# Settings


def gpt2_config(fields: Mapping[str, Any]) -> Config:
    """The `Config` that a config.json of GPT-2 describes. Fields that do not concern the map are ignored; missing fields have
    GPT-2's values.

    ValueError or TypeError for a field that asks for something that the model cannot do.

    >>> gpt2_config({"n_embd": 1024, "n_layer": 24, "n_head": 16}).d_ff
    4096
    """
    expects_only(fields, ONLY)
    known = {ours: fields[theirs] for theirs, ours in GPT2_FIELDS.items() if theirs in fields}
    width = fields.get("n_inner") or 4 * known.get("d_model", 768)
    activation = HUB_ACTIVATIONS[fields.get("activation_function", "gelu_new")]
    scale = None if fields.get("scale_attn_weights", True) else 1.0
    return Config.gpt2(**known, d_ff=width, activation=activation, scale=scale)


def gpt2_fields(config: Config) -> dict[str, Any]:
    """The config.json of a GPT-2 with these settings: the inverse of `gpt2_config`.

    ValueError for settings that no GPT-2 has. (A table of positions that started as a sinusoid is as good as any.)
    """
    c = plain_heads(config)
    if c.pe == "learned_from_sinusoid":
        c = c.replace(pe="learned", pe_start=0)
    like = Config.gpt2(**{name: getattr(c, name) for name in (*GPT2_FIELDS.values(), "d_ff", "activation")})
    expects_same(c, like.replace(scale=1.0) if c.scale == 1 else like, "GPT-2")
    theirs = {ours: name for name, ours in reversed(HUB_ACTIVATIONS.items())}  # the first name of each
    return {name: getattr(c, ours) for name, ours in GPT2_FIELDS.items()} | {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_inner": c.d_ff,
        "activation_function": theirs[c.activation],
        "scale_attn_weights": c.scale is None,
        "embd_pdrop": c.dropout,
        "attn_pdrop": 0.0,
    }


# Tensors


def gpt2_pairs(config: Config) -> list[Pair]:
    """The pairs of names (the file's and ours) for a GPT-2 with these settings."""
    named = pairs(GPT2_NAMES, config.n_layers)
    return named[:-1] if config.tied else named  # the last pair is the unembedding


def gpt2_name(name: str) -> str:
    """The tensor's name as `transformers` writes it today."""
    return name if name.startswith("lm_head") else PREFIX + name


def gpt2_tensors(folder: Path) -> dict[str, Tensor]:
    """The tensors of the file under their short names, without the tables of masks that old files contain. ValueError for
    a tensor that occurs under both of its names.
    """
    read = {name: w for name, w in read_tensors(folder).items() if not MASKS.search(name)}
    tensors = {name.removeprefix(PREFIX): w for name, w in read.items()}
    twice = [name for name in tensors if {name, PREFIX + name} <= read.keys()]
    expects(not twice, WEIGHTS, f"{twice[:1]} with and without {PREFIX}", "each tensor once")
    return tensors


# The folder


def load_gpt2(name_or_folder: str | os.PathLike[str], *, revision: str | None = None) -> tuple[TransformerLM, Tokenizer | None]:
    """(model, tokenizer) from Hugging Face's files of a GPT-2, in a folder or under a name on the hub.
    (T-gpt2-weights)

    `revision` is a branch, a tag or a commit on the hub, None the newest; for a folder it has no meaning. The model has the dtype
    of the file and is in evaluation mode; the tokenizer begins a text with the special that config.json calls bos_token_id, if there is one, and is None
    if the folder has no vocab.json.

    FileNotFoundError for a missing folder or file, ValueError for files that are broken or do not fit together, ConnectionError
    without a network, ImportError without the library huggingface_hub, TypeError for arguments of another type.
    """
    folder = model_folder(name_or_folder, ("vocab.json", "merges.txt"), revision)
    config, tensors = config_in(folder, gpt2_config), gpt2_tensors(folder)
    if config.tied:
        drop_copies(tensors, {"lm_head.weight": "wte.weight"})
    model = meta_model(TransformerLM, config, tensors)
    load_into(model, gpt2_pairs(config), tensors, f"{folder / WEIGHTS}")
    if not os.path.lexists(folder / "vocab.json"):
        return model.eval(), None
    tokenizer, V = load_gpt2_tokenizer(folder), config.vocab_size
    expects(len(tokenizer) == V, "vocab.json", f"{len(tokenizer)} tokens", f"vocab_size = {V} of {CONFIG}")
    return model.eval(), beginning_with(tokenizer, read_fields(folder).get(ENDS[0]))


def beginning_with(tokenizer: Tokenizer, start: Any) -> Tokenizer:
    """The same tokenizer with this token as start marker, if it is one of the specials; otherwise the tokenizer as it is."""
    names = sorted(tokenizer.specials, key=lambda name: tokenizer.specials[name] != start)
    if names == list(tokenizer.specials):
        return tokenizer
    ids = [*tokenizer.ids[: len(tokenizer) - len(names)], *map(tokenizer.specials.__getitem__, names)]
    return Tokenizer(tokenizer.merges, names, tokenizer.pattern, ids=ids)


def save_gpt2(model: TransformerLM, folder: str | os.PathLike[str], tokenizer: Tokenizer | None = None) -> None:
    """Write a new folder that `transformers` loads as a GPT-2, with the tokenizer's files if there is one.
    (T-gpt2-lossless)

    FileExistsError if the folder exists; ValueError if the model or the tokenizer is of a kind that GPT-2's files cannot
    express, if they do not fit together, or if weights are not finite; TypeError for another kind of model or tokenizer.
    """
    expects_model(model)
    c = model.config
    fields = gpt2_fields(c) | dict.fromkeys(ENDS)
    if tokenizer is not None:
        expects_kind("tokenizer", tokenizer, Tokenizer, "a Tokenizer or None")
        expects(len(tokenizer) == c.vocab_size, "tokenizer", f"{len(tokenizer)} tokens", f"vocab_size = {c.vocab_size}")
        fields |= dict.fromkeys(ENDS, tokenizer.start)
    named = [pair._replace(theirs=gpt2_name(pair.theirs)) for pair in gpt2_pairs(c)]
    with new_folder(folder) as part:
        write_model(part, fields, tensors_of(model, named))
        if tokenizer is not None:
            save_gpt2_tokenizer(tokenizer, part)
            (part / "tokenizer_config.json").write_text(json.dumps(_reading(tokenizer), indent=2) + "\n", encoding="utf-8")


def _reading(tokenizer: Tokenizer) -> dict[str, Any]:
    """The content of tokenizer_config.json. Without the name of the marker transformers would add a marker of its own, behind the model's last token."""
    start, *others = tokenizer.specials
    said = dict.fromkeys(("bos_token", "eos_token", "unk_token"), start) | {"additional_special_tokens": others}
    return {"tokenizer_class": "GPT2Tokenizer", **said, "clean_up_tokenization_spaces": False}

"""Marian: its settings, its tensors and its folder, both ways."""

import json
import os
from collections.abc import Mapping
from typing import Any

from jaxtyping import Float
from torch import Tensor

from tlm_book.checks import expects, expects_kind
from tlm_book.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
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
from tlm_book.pretrained.marian_text import (
    TOKENIZER_FILES,
    MarianTokenizer,
    checked_vocab,
    load_marian_tokenizer,
    outside,
)
from tlm_book.pretrained.names import (
    HUB_ACTIVATIONS,
    MARIAN_FIELDS,
    MARIAN_NAMES,
    Pair,
    pairs,
)
from tlm_book.pretrained.settings import expects_only, expects_same, plain_heads
from tlm_book.weights import expects_places, meta_model

__all__ = ["load_marian", "marian_config", "marian_fields", "marian_pairs", "marian_preset", "save_marian"]

ONLY = {
    "model_type": ("marian",),
    "normalize_before": (False,),
    "normalize_embedding": (False,),
    "add_final_layer_norm": (False,),
    "static_position_embeddings": (True,),
    "share_encoder_decoder_embeddings": (True, False),
    "activation_function": tuple(sorted(HUB_ACTIVATIONS)),  # the first is the default
}
UNSAID = {"dropout": 0.1, "scale_embedding": False, "tie_word_embeddings": True}
HALVES = ("layers", "attention_heads", "ffn_dim")  # fields that the file has once for each half
WRITTEN = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_new", "silu": "swish"}  # an activation's name in new files
TABLES = {  # of tokens: the file's name of each half's, and ours
    "model.encoder.embed_tokens.weight": "source_embedding.table.weight",
    "model.decoder.embed_tokens.weight": "embedding.table.weight",
}
LAST, SHARED = "lm_head.weight", "model.shared.weight"


# Settings


def marian_preset(vocab_size: int, **changes: Any) -> EncoderDecoderConfig:
    """The settings of a Marian model: those of 2017, but with SiLU, biases everywhere, and positions with all sines before all
    cosines. (T-pe-halves)
    """
    settings: dict[str, Any] = {"activation": "silu", "pe_halves": True, "qkv_bias": True, "out_bias": True, "tied": True}
    return EncoderDecoderConfig(vocab_size, **settings | changes)


def marian_config(fields: Mapping[str, Any]) -> EncoderDecoderConfig:
    """The settings that a config.json of Marian describes. ValueError or TypeError for a field that is missing or asks for something
    that the model cannot do.
    """
    expects_only(fields, ONLY)
    fields = UNSAID | dict(fields)
    missing = [name for name in ("vocab_size", *MARIAN_FIELDS) if name not in fields]
    expects(not missing, CONFIG, f"no field {missing[:3]}", "Marian's fields")
    for name in HALVES:
        got, want = fields[f"decoder_{name}"], fields[f"encoder_{name}"]
        expects(got == want, f"decoder_{name}", got, f"{want}, as in the encoder")
    sizes = {"vocab_size": fields["vocab_size"]}
    if not fields.get("share_encoder_decoder_embeddings", True):
        own = fields.get("decoder_vocab_size") or fields["vocab_size"]
        sizes = {"vocab_size": own, "source_vocab_size": fields["vocab_size"]}
    activation = HUB_ACTIVATIONS[fields.get("activation_function", "gelu")]
    return marian_preset(**sizes, activation=activation, **{ours: fields[theirs] for theirs, ours in MARIAN_FIELDS.items()})


def marian_fields(config: EncoderDecoderConfig) -> dict[str, Any]:
    """The config.json of a Marian model with these settings: the inverse of `marian_config`. ValueError for settings that no
    Marian model has.
    """
    c = plain_heads(config)
    free = {*MARIAN_FIELDS.values(), "activation", "vocab_size", "source_vocab_size"}
    expects_same(c, marian_preset(**{name: getattr(c, name) for name in free}), "Marian")
    source = c.source_vocab_size or c.vocab_size
    last = min(source, c.vocab_size) - 1
    return {name: getattr(c, ours) for name, ours in MARIAN_FIELDS.items()} | {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "activation_function": WRITTEN[c.activation],
        "vocab_size": source,
        "decoder_vocab_size": c.vocab_size,
        "share_encoder_decoder_embeddings": c.source_vocab_size is None,
        "static_position_embeddings": True,
        "eos_token_id": 0,
        "forced_eos_token_id": 0,
        "pad_token_id": last,
        "decoder_start_token_id": last,
    }


# Tensors


def marian_pairs(config: EncoderDecoderConfig) -> list[Pair]:
    """The pairs of names (the file's and ours) for a Marian model with these settings."""
    shared = config.source_vocab_size is None
    tables = {SHARED: "embedding.table.weight"} if shared else TABLES
    last = {} if config.tied else {LAST: "unembedding.weight"}
    return pairs(MARIAN_NAMES, config.n_layers) + [Pair(*names) for names in (tables | last).items()]


def copies_in(config: EncoderDecoderConfig) -> dict[str, str]:
    """{name of a tensor: name of the tensor that it copies}, in a file of Marian with these settings."""
    shared = config.source_vocab_size is None
    original = SHARED if shared else "model.decoder.embed_tokens.weight"
    return ({LAST: original} if config.tied else {}) | (dict.fromkeys(TABLES, SHARED) if shared else {})


def written_pairs(config: EncoderDecoderConfig) -> list[Pair]:
    """The pairs for writing. Unless the last layer is tied, transformers ties no table to another one, so the file holds the copies as well."""
    copies = {} if config.tied else copies_in(config)
    return marian_pairs(config) + [Pair(copy, "embedding.table.weight") for copy in copies]


def table_of_positions(c: EncoderDecoderConfig, tensors: Mapping[str, Tensor]) -> Float[Tensor, "M d"]:
    """The table of positions, which is computed; ValueError if it would be far larger than the weights."""
    expects_places("max_position_embeddings", c.max_len, c.d_model, tensors, always=1 << 24)
    return EncoderDecoder.positions(c).table


# The folder


def load_marian(
    name_or_folder: str | os.PathLike[str], *, revision: str | None = None
) -> tuple[EncoderDecoder, MarianTokenizer | None]:
    """(model, tokenizer) from Hugging Face's files of a Marian model, in a folder or under a name on the hub.
    (T-marian-weights)

    The model has the dtype of the file and is in evaluation mode; the tokenizer is None if the folder has no vocab.json. `revision` and
    errors as in `load_gpt2`; ImportError if there is a tokenizer and the library sentencepiece is missing.
    """
    folder = model_folder(name_or_folder, TOKENIZER_FILES, revision)
    config, tensors = config_in(folder, marian_config), read_tensors(folder)
    for half in ("encoder", "decoder"):  # the sines and cosines, which are computed
        tensors.pop(f"model.{half}.embed_positions.weight", None)
    drop_copies(tensors, copies_in(config))
    model = meta_model(EncoderDecoder, config, tensors)
    load_into(model, marian_pairs(config), tensors, f"{folder / WEIGHTS}")
    waves = table_of_positions(config, tensors).to(model.unembedding.weight)
    model.position.register_buffer("table", waves, persistent=False)
    if not os.path.lexists(folder / "vocab.json"):
        return model.eval(), None
    shared = config.source_vocab_size is None
    expects(shared, CONFIG, "a vocabulary for each language", "one for both, or a folder without vocab.json")
    return model.eval(), load_marian_tokenizer(folder, read_fields(folder))


def save_marian(model: EncoderDecoder, folder: str | os.PathLike[str], tokenizer: MarianTokenizer | None = None) -> None:
    """Write a new folder that `transformers` loads as a Marian model, with the tokenizer's three files if there is one.
    (T-marian-weights)

    FileExistsError if the folder exists; ValueError if the model is of a kind that Marian's files cannot express, if weights are not
    finite, or for a tokenizer that does not fit, as no tokenizer fits a model with two vocabularies; TypeError for another kind of either.
    """
    expects_kind("model", model, EncoderDecoder, "an EncoderDecoder")
    fields = marian_fields(model.config)
    if (t := tokenizer) is not None:
        expects_kind("tokenizer", t, MarianTokenizer, "a MarianTokenizer or None")
        V = model.config.vocab_size
        expects(model.config.source_vocab_size is None, "tokenizer", "one, for a model with two vocabularies", "None: such a folder could not be read")
        checked_vocab(t.vocab, V, "tokenizer")
        odd = outside((t.padding, t.stop, t.start), V)
        expects(not odd, "tokenizer", odd[:1], f"tokens from 0 to {V - 1} for padding, end and start")
        fields |= {"eos_token_id": t.stop, "forced_eos_token_id": t.stop}
        fields |= {"pad_token_id": t.padding, "decoder_start_token_id": t.start}
    with new_folder(folder) as part:
        write_model(part, fields, tensors_of(model, written_pairs(model.config)))
        if t is not None:
            (part / "source.spm").write_bytes(t.source.serialized_model_proto())
            (part / "target.spm").write_bytes(t.target.serialized_model_proto())
            (part / "vocab.json").write_text(json.dumps(t.vocab, ensure_ascii=False) + "\n", encoding="utf-8")

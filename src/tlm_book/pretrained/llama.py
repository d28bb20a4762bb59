"""Llama and its family (Qwen 2 and 3, Mistral, Mixtral, Gemma): tensors and folder, both ways.

Written by hand.
"""

import json
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tlm_book.checks import expects, expects_kind, expects_positive, is_whole
from tlm_book.files import new_folder, read_json
from tlm_book.pretrained.files import (
    CONFIG,
    LIMIT,
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
from tlm_book.pretrained.llama_settings import family_of, llama_config, llama_fields
from tlm_book.pretrained.names import EXPERT_NAMES, LLAMA_NAMES, Pair, pairs
from tlm_book.tokenization import HubTokenizer, Tokenizer, to_tokenizers
from tlm_book.transformer_lm import Config, TransformerLM
from tlm_book.weights import expects_model, expects_places, meta_model

__all__ = ["llama_pairs", "load_llama", "save_llama"]

TOKENIZER, READ_AS, ENDS = "tokenizer.json", "tokenizer_config.json", ("bos_token_id", "eos_token_id")


def llama_pairs(model: TransformerLM, family: str) -> list[Pair]:
    """The pairs of names for a model of this family: the lines of the tables whose weights the model has."""
    c = model.config
    k = c.head_width
    Q, K = c.n_heads * k, c.kv_heads * k
    rows = {"Q": slice(0, Q), "K": slice(Q, Q + K), "V": slice(Q + K, Q + 2 * K)}
    gain = "1+" if family == "gemma" else ""  # Gemma's files hold the gains minus 1
    named = pairs((LLAMA_NAMES + EXPERT_NAMES.lstrip()).replace("gain", gain), c.n_layers, rows, c.n_experts or 0)
    weights = model.state_dict().keys() - ({"unembedding.weight"} if c.tied else set())
    return [pair for pair in named if pair.ours in weights]


def load_llama(
    name_or_folder: str | os.PathLike[str], *, revision: str | None = None, dtype: torch.dtype | None = None
) -> tuple[TransformerLM, HubTokenizer | None]:
    """(model, tokenizer) from Hugging Face's files of a Llama, Qwen 2 or 3, Mistral, Mixtral or Gemma, in a folder or under a name on
    the hub. (T-llama-weights)

    The model has this dtype, or that of the file, and is in evaluation mode; the tokenizer is None if the folder has no
    tokenizer.json. (Gemma's files hold each gain minus 1; adding the 1 rounds in half precision, but hardly in float32.) Errors as in
    `load_gpt2`; TypeError for a dtype that is no floating point type of 16 bits or more, ImportError if its tokenizer needs the library
    tokenizers is missing.
    """
    fits = dtype is None or isinstance(dtype, torch.dtype) and dtype.is_floating_point and dtype.itemsize > 1
    expects(fits, "dtype", repr(dtype), "None or floating point numbers of 16 bits or more, such as torch.bfloat16", TypeError)
    folder = model_folder(name_or_folder, (TOKENIZER, "generation_config.json"), revision)
    config, tensors = config_in(folder, llama_config), read_tensors(folder)
    family = read_fields(folder)["model_type"]
    tensors = {name: w for name, w in tensors.items() if not name.endswith("rotary_emb.inv_freq")}  # in old files; these are computed
    if config.tied:
        drop_copies(tensors, {"lm_head.weight": "model.embed_tokens.weight"})
    if dtype is not None:
        tensors = {name: w.to(dtype) if w.is_floating_point() else w for name, w in tensors.items()}
    expects_places("max_position_embeddings", config.max_len, config.head_width, tensors)
    model = meta_model(TransformerLM, config, tensors)
    load_into(model, llama_pairs(model, family), tensors, f"{folder / WEIGHTS}")
    if not os.path.lexists(folder / TOKENIZER):
        return model.eval(), None
    start, stop = (end_of(folder, name) for name in ENDS)
    return model.eval(), HubTokenizer.load(folder / TOKENIZER, config.vocab_size, start=start, stop=stop)


def end_of(folder: Path, name: str) -> int | None:
    """The token of this name in the settings, the first if there are several; ValueError for anything but a token."""
    said: Any = ends_of(folder).get(name)
    end: Any = said[0] if isinstance(said, list) and said else said
    expects(end is None or is_whole(end) and end >= 0, f"{folder / CONFIG}: {name}", repr(said), "a token, or null")
    return end


def ends_of(folder: Path) -> dict[str, Any]:
    """The fields of config.json, overruled by those of generation_config.json."""
    more = folder / "generation_config.json"
    said = read_json(more, "settings") if more.is_file() else {}
    return read_fields(folder) | ({k: v for k, v in said.items() if v is not None} if isinstance(said, dict) else {})


def save_llama(
    model: TransformerLM,
    folder: str | os.PathLike[str],
    tokenizer: Tokenizer | HubTokenizer | None = None,
    *,
    family: str | None = None,
    limit: int = LIMIT,
) -> None:
    """Write a new folder that `transformers` loads, with a tokenizer.json if there is a tokenizer. (T-llama-weights)

    `family`: "llama", "qwen2", "qwen3", "mistral", "mixtral" or "gemma"; None: the first whose files can express the model.
    Weights of more than `limit` bytes go into several files. Errors as in `save_gpt2`; ValueError for a `limit` below 1 and a
    model with dropout, which `save_model` leaves out.
    """
    expects_model(model)
    expects_positive(limit=limit)
    c, V = model.config, model.config.vocab_size
    family = family_of(c) if family is None else family
    fields = llama_fields(c, family) | {"dtype": str(model.embedding.table.weight.dtype).removeprefix("torch.")}
    fields |= dict.fromkeys(ENDS)
    if tokenizer is not None:
        expects_kind("tokenizer", tokenizer, Tokenizer | HubTokenizer, "a Tokenizer, a HubTokenizer or None")
        expects(len(tokenizer) == V, "tokenizer", f"{len(tokenizer)} tokens", f"vocab_size = {V}")
        fields |= dict(zip(ENDS, (tokenizer.start, tokenizer.stop)))
    tensors = tensors_of(model, llama_pairs(model, family))
    with new_folder(folder) as part:
        write_model(part, fields, tensors, limit)
        if isinstance(tokenizer, HubTokenizer):
            tokenizer.save(part / TOKENIZER)
        elif tokenizer is not None:
            to_tokenizers(tokenizer).save(str(part / TOKENIZER))
        if tokenizer is not None:
            (part / READ_AS).write_text(json.dumps(reading(tokenizer), indent=2) + "\n", encoding="utf-8")


def reading(tokenizer: Tokenizer | HubTokenizer) -> dict[str, Any]:
    """The content of tokenizer_config.json: the tokenizer is what its tokenizer.json says and nothing else, and these tokens begin and end a text."""
    names = {token: name for name, token in tokenizer.specials.items()}
    ends = {"bos_token": names.get(tokenizer.start), "eos_token": names.get(tokenizer.stop)}
    added = () if "<|endoftext|>" in tokenizer.specials else ("unk_token", "pad_token")  # which transformers would add for a Qwen 2
    return {"tokenizer_class": "PreTrainedTokenizerFast", **ends, **dict.fromkeys(added), "clean_up_tokenization_spaces": False}

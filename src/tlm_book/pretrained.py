"""Real models. Generated from book/pretrained.ipynb: edit the notebook, then `make export`."""

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Shaped
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from tlm_book.checks import expects, expects_positive
from tlm_book.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from tlm_book.positional_encoding import PositionalEncoding
from tlm_book.tokenization import Tokenizer
from tlm_book.tokenization import load_gpt2 as load_tokenizer
from tlm_book.tokenization import save_gpt2 as save_tokenizer
from tlm_book.training import finite, free_folder
from tlm_book.transformer_lm import Config, Settings, TransformerLM

__all__ = [
    "GPT2_NAMES",
    "Pair",
    "pairs",
    "turned",
    "turned_back",
    "gpt2_config",
    "read_tensors",
    "read_fields",
    "described",
    "unfilled",
    "expects_tensor",
    "fill",
    "drop_copies",
    "gpt2_pairs",
    "load_gpt2",
    "check_fingerprint",
    "library",
    "converted",
    "fetch",
    "model_folder",
    "tensors_of",
    "new_folder",
    "write_model",
    "gpt2_fields",
    "save_gpt2",
    "gpt2_name",
    "MARIAN_NAMES",
    "marian_pairs",
    "marian_config",
    "marian",
    "MarianTokenizer",
    "expects_vocab",
    "load_marian_tokenizer",
    "load_marian",
    "marian_fields",
    "save_marian",
    "translate_marian",
]


# --- Names


GPT2_NAMES = """
wte.weight          embedding.table.weight
wpe.weight          position.table
h.#.ln_1.*          blocks.#.norm_attention.*
h.#.attn.c_attn.*   blocks.#.attention.qkv.*       T
h.#.attn.c_proj.*   blocks.#.attention.out.*       T
h.#.ln_2.*          blocks.#.norm_feed_forward.*
h.#.mlp.c_fc.*      blocks.#.feed_forward.up.*     T
h.#.mlp.c_proj.*    blocks.#.feed_forward.down.*   T
ln_f.*              norm.*
lm_head.weight      unembedding.weight
"""


class Pair(NamedTuple):
    """A tensor's name in the file, its name in the model, and how its numbers lie:
    "" the same, "T" transposed, "row" a row (1, V) in the file for V numbers.
    """

    theirs: str
    ours: str
    layout: str = ""


def pairs(table: str, n_layers: int) -> list[Pair]:
    """The lines of such a table, for a model of n_layers blocks.

    >>> pairs("h.#.ln.* blocks.#.norm.* T", 1)[0]
    Pair(theirs='h.0.ln.weight', ours='blocks.0.norm.weight', layout='T')
    """
    found = []
    for line in table.strip().splitlines():
        for number in range(n_layers if "#" in line else 1):
            for part in ("weight", "bias") if "*" in line else ("",):
                named = line.replace("#", str(number)).replace("*", part)
                found.append(Pair(*named.split()))
    return found


def turned(w: Float[Tensor, "*shape"], layout: str) -> Float[Tensor, "*turned"]:
    """A tensor of the file as the model keeps it; biases have nothing to transpose.
    """
    if layout == "row":
        return w.reshape(w.shape[-1:])
    return w.T.contiguous() if layout == "T" and w.dim() == 2 else w


def turned_back(w: Float[Tensor, "*shape"], layout: str) -> Float[Tensor, "*turned"]:
    """The inverse of `turned`."""
    return w[None] if layout == "row" else turned(w, layout)


_ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
_GPT2_FIELDS = {
    "vocab_size": "vocab_size",
    "n_embd": "d_model",
    "n_layer": "n_layers",
    "n_head": "n_heads",
    "n_positions": "max_len",
    "layer_norm_epsilon": "eps",
    "resid_pdrop": "dropout",
    "tie_word_embeddings": "tied",
}
_GPT2_ONLY = {
    "model_type": ("gpt2",),
    "add_cross_attention": (False,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "scale_attn_weights": (True, False),
    "activation_function": tuple(_ACTIVATIONS),
}


def _expects_only(
    fields: Mapping[str, Any], only: Mapping[str, Sequence[object]]
) -> None:
    for name, choices in only.items():
        got, wants = fields.get(name, choices[0]), " or ".join(map(repr, choices))
        expects(
            got in choices, name, repr(got), f"{wants}: the model has nothing else"
        )


def gpt2_config(fields: Mapping[str, Any]) -> Config:
    """The `Config` that a config.json of GPT-2 describes. Fields that say nothing
    about the map are passed over; what is missing has GPT-2's value.

    ValueError or TypeError for a field that asks for what the model does not do.

    >>> gpt2_config({"n_embd": 1024, "n_layer": 24, "n_head": 16}).d_ff
    4096
    """
    _expects_only(fields, _GPT2_ONLY)
    known = {o: fields[t] for t, o in _GPT2_FIELDS.items() if t in fields}
    width = fields.get("n_inner") or 4 * known.get("d_model", 768)
    activation = _ACTIVATIONS[fields.get("activation_function", "gelu_new")]
    scale = None if fields.get("scale_attn_weights", True) else 1.0
    return Config.gpt2(**known, d_ff=width, activation=activation, scale=scale)


# --- Loading


_PICKLE = (
    "model.safetensors",
    "safetensors: a .bin file is a pickle, a program that could do anything when it is "
    "read; convert it where you trust it, for instance with transformers: "
    "from_pretrained(…).save_pretrained(…)",
)


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of the folder's model.safetensors.

    FileNotFoundError when it is missing, ValueError when it is broken or when there
    is only a pickle.
    """
    file, names = folder / "model.safetensors", sorted(os.listdir(folder))
    if not file.is_file():
        pickles = [name for name in names if name.endswith((".bin", ".pt", ".pth"))]
        shards = [name for name in names if name.endswith(".safetensors.index.json")]
        got = f"{pickles[:1]} and no {_PICKLE[0]}"
        expects(not pickles, "folder", got, _PICKLE[1])
        expects(not shards, "folder", f"weights in parts ({shards[:1]})", "one file")
        missing = f"{str(folder)!r} without model.safetensors"
        expects(False, "folder", missing, "a model's folder", FileNotFoundError)
    try:
        return load_file(file)
    except SafetensorError as error:
        wants = "a whole safetensors file; fetch it again"
        raise ValueError(
            f"{file}: got a broken file ({error}), want {wants}"
        ) from error


def read_fields(folder: Path) -> dict[str, Any]:
    """The table in the folder's config.json. FileNotFoundError without such a file,
    ValueError for one that holds something else.
    """
    file = folder / "config.json"
    missing, wants = f"{str(folder)!r} without config.json", "a model's folder"
    expects(file.is_file(), "folder", missing, wants, FileNotFoundError)
    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file}: got no JSON ({error}), want settings") from error
    expects(isinstance(fields, dict), f"{file}", "no table", "a table of settings")
    return fields


def described(folder: Path, config_of: Callable[[dict[str, Any]], Any]) -> Any:
    """The settings in the folder's config.json, by `gpt2_config` or `marian_config`;
    ValueError that names the file.
    """
    fields = read_fields(folder)
    try:
        return config_of(fields)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{folder / 'config.json'}: {error}") from error


def unfilled(
    kind: Callable[[Any], Any], config: Settings, tensors: Mapping[str, Tensor]
) -> Any:
    """kind(config) whose weights have shapes and no numbers yet. ValueError for sizes
    that no file can have.
    """
    got, wants = f"{config.n_layers} blocks", f"at most {len(tensors)}, one a tensor"
    expects(config.n_layers <= len(tensors), "config.json", got, wants)
    try:
        with torch.device("meta"):
            return kind(config)
    except (RuntimeError, OverflowError, TypeError) as error:
        wants = "those of the tensors"
        problem = f"config.json: got sizes too great to be counted, want {wants}"
        raise ValueError(problem) from error


def expects_tensor(
    w: Shaped[Tensor, "..."],
    shape: tuple[int, ...],
    dtype: torch.dtype,
    name: str,
    file: str,
) -> None:
    """ValueError that names file and tensor unless it holds finite floating point
    numbers of this shape and dtype.
    """
    got, wants = (
        f"{name} of type {w.dtype}",
        "floating point numbers of 16 bits or more",
    )
    expects(w.is_floating_point() and w.dtype.itemsize > 1, file, got, wants)
    expects(w.dtype == dtype, file, got, f"one type for all, here {dtype}")
    got = f"{name} of shape {tuple(w.shape)}"
    expects(tuple(w.shape) == shape, file, got, f"shape {shape}, by config.json")
    expects(finite(w), file, f"{name} with NaN or ∞", "finite weights")


def fill(
    model: TransformerLM | EncoderDecoder,
    named: Sequence[Pair],
    tensors: Mapping[str, Tensor],
    file: str = "model.safetensors",
) -> None:
    """Give the model the tensors, each under its own name and turned as `named` says;
    the model takes on their dtype. ValueError when they do not fit.
    """
    wanted, empty = {pair.theirs for pair in named}, model.state_dict()
    missing, extra = sorted(wanted - tensors.keys()), sorted(tensors.keys() - wanted)
    wants = "each tensor that config.json calls for, and no other"
    expects(not missing, file, f"no tensor {', '.join(missing[:3])}", wants)
    expects(not extra, file, f"the further tensor {', '.join(extra[:3])}", wants)
    state, dtype = {}, tensors[named[0].theirs].dtype
    for theirs, ours, layout in named:
        shape = tuple(turned_back(empty[ours], layout).shape)
        expects_tensor(tensors[theirs], shape, dtype, theirs, file)
        state[ours] = turned(tensors[theirs], layout)
    model.load_state_dict(state, strict=False, assign=True)
    if model.config.tied:  # one parameter, not two of the same numbers
        model.unembedding.weight = model.embedding.table.weight
    model.to(dtype)  # tables that are computed, too


def drop_copies(tensors: dict[str, Tensor], copies: Mapping[str, str]) -> None:
    """Take out tensors that are copies, {name of the copy: name of the original}; a
    copy may also stand in for an original that is missing. ValueError when the two
    differ.
    """
    for copy, original in copies.items():
        if copy in tensors:
            w = tensors.pop(copy)
            same = torch.equal(w, tensors.setdefault(original, w))
            got, wants = (
                f"{copy} other than {original}",
                "one tensor, as config.json says",
            )
            expects(same, "model.safetensors", got, wants)


def gpt2_pairs(config: Config) -> list[Pair]:
    """The names of a GPT-2 with these settings."""
    named = pairs(GPT2_NAMES, config.n_layers)
    return named[:-1] if config.tied else named  # the last line is the unembedding


def load_gpt2(
    name_or_folder: str | os.PathLike[str], *, revision: str | None = None
) -> tuple[TransformerLM, Tokenizer | None]:
    """(model, tokenizer) from Hugging Face's files of a GPT-2: those in a folder, or
    those of that name on the hub. (T-gpt2-weights)

    The model has the dtype of the file and is in evaluation mode; the tokenizer is
    None when the folder has no vocab.json. FileNotFoundError for a folder or file that
    is missing, ValueError for files that do not fit or are broken, ConnectionError
    without a network, ImportError without the library huggingface_hub.
    """
    folder = model_folder(name_or_folder, ("vocab.json", "merges.txt"), revision)
    config = described(folder, gpt2_config)
    read = read_tensors(folder)
    tensors = {
        name.removeprefix("transformer."): w
        for name, w in read.items()
        if not re.search(r"\bh\.\d+\.attn\.(masked_)?bias$", name)  # masks
    }
    twice = [
        name for name in tensors if {name, f"transformer.{name}"} <= read.keys()
    ]
    got, wants = f"{twice[:1]} with and without transformer.", "each tensor once"
    expects(not twice, "model.safetensors", got, wants)
    if config.tied:
        drop_copies(tensors, {"lm_head.weight": "wte.weight"})
    model = unfilled(TransformerLM, config, tensors)
    fill(model, gpt2_pairs(config), tensors, f"{folder / 'model.safetensors'}")
    if not os.path.lexists(folder / "vocab.json"):
        return model.eval(), None
    tokenizer, V = load_tokenizer(folder), config.vocab_size
    got = f"{len(tokenizer)} tokens"
    expects(
        len(tokenizer) == V, "vocab.json", got, f"vocab_size = {V} of config.json"
    )
    return model.eval(), tokenizer


def check_fingerprint(file: Path) -> None:
    """ValueError when a file in the hub's cache has not the fingerprint by which it is
    named there; other files are passed over.
    """
    name = Path(os.readlink(file)).name if file.is_symlink() else ""
    if not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", name):
        return
    small = len(name) == 40  # git's own: SHA-1 with a head
    digest = hashlib.sha1() if small else hashlib.sha256()
    if small:
        digest.update(b"blob %d\0" % file.stat().st_size)
    with file.open("rb") as content:
        while part := content.read(1 << 20):
            digest.update(part)
    got = f"a file with fingerprint {digest.hexdigest()[:12]}…"
    wants = f"{name[:12]}…; delete it and fetch it again"
    expects(digest.hexdigest() == name, f"{file}", got, wants)


def library(name: str) -> Any:
    """A library that only this chapter needs; ImportError that says how to get it.
    """
    try:
        return import_module(name)
    except ImportError as error:
        wants = "it installed: pip install 'tlm_book[pretrained]'"
        raise ImportError(f"{name}: got no such library, want {wants}") from error


def converted(hub: Any, name: str) -> str | None:
    """The revision in which the hub's own converter offers safetensors, if any."""
    offers = hub.HfApi().get_repo_discussions(name)
    for offer in offers:
        by_hub = offer.is_pull_request and offer.author == "SFconvertbot"
        if by_hub and "safetensors" in offer.title and offer.status != "closed":
            return offer.git_reference
    return None


def fetch(name: str, files: Sequence[str], revision: str | None = None) -> Path:
    """The folder in the hub's cache with these files of a model, fetched if need be.
    ValueError for a model that is there as a pickle only, ConnectionError when it
    cannot be fetched.
    """
    hub, wanted = library("huggingface_hub"), ["model.safetensors", *files]
    get: Callable[[str | None], str] = lambda revision: hub.snapshot_download(
        name, revision=revision, allow_patterns=wanted
    )
    whole = lambda place: os.path.exists(os.path.join(place, "model.safetensors"))
    try:
        place = get(revision)
        if revision is None and not whole(place) and (other := converted(hub, name)):
            place = get(other)
    except Exception as error:  # the libraries below have many kinds of them
        got = f"{name!r} and no such files from the hub ({str(error).splitlines()[:1]})"
        wants = "a network and a model's name on the hub, or a folder with its files"
        raise ConnectionError(f"name_or_folder: got {got}, want {wants}") from error
    expects(
        whole(place), "name_or_folder", f"{name!r} without {_PICKLE[0]}", _PICKLE[1]
    )
    for file in Path(place).iterdir():
        check_fingerprint(file)
    return Path(place)


def model_folder(
    name_or_folder: str | os.PathLike[str],
    files: Sequence[str],
    revision: str | None,
) -> Path:
    """The folder itself, or what `fetch` makes of a name on the hub.
    FileNotFoundError for what is neither.
    """
    got = repr(name_or_folder)
    right = isinstance(name_or_folder, str | os.PathLike)
    expects(right, "name_or_folder", got, "a text or a path", TypeError)
    right = revision is None or isinstance(revision, str)
    expects(right, "revision", repr(revision), "a text or None", TypeError)
    name = os.fspath(name_or_folder)
    if os.path.isdir(name):
        return Path(name)
    hub_name = re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", name)
    wants = "a folder, or a name on the hub such as 'openai-community/gpt2'"
    expects(hub_name, "name_or_folder", f"{name!r}", wants, FileNotFoundError)
    return fetch(name, ("config.json", *files), revision)


# --- And back


def tensors_of(
    model: TransformerLM | EncoderDecoder, named: Sequence[Pair]
) -> dict[str, Tensor]:
    """The model's weights as the file names and keeps them: the inverse of `fill`.
    ValueError for weights without numbers, and for a tied model of two matrices.
    """
    state = model.state_dict()
    bare = [pair.ours for pair in named if state[pair.ours].is_meta]
    expects(not bare, "model", f"{bare[:1]} without numbers", "weights")
    one, two = model.embedding.table.weight, model.unembedding.weight
    same = not model.config.tied or one is two or torch.equal(one, two)
    expects(same, "model", "a tied model with two matrices", "one, or tied=False")
    return {
        pair.theirs: turned_back(state[pair.ours].detach().cpu(), pair.layout)
        .clone()
        .contiguous()
        for pair in named
    }


@contextlib.contextmanager
def new_folder(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """A folder to write into, which gets its name when all is written: it is there
    complete or not at all. FileExistsError when there is one of that name.
    """
    path = free_folder(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.mkdir()
    try:
        yield part
        part.rename(free_folder(path))
    finally:
        shutil.rmtree(part, ignore_errors=True)


def write_model(
    folder: Path, fields: Mapping[str, Any], tensors: dict[str, Tensor]
) -> None:
    """config.json and model.safetensors. ValueError for what `expects_tensor` refuses
    in a file, OSError when they cannot be written.
    """
    dtype = next(iter(tensors.values())).dtype
    for name, w in tensors.items():
        expects_tensor(w, tuple(w.shape), dtype, name, "model")
    text = json.dumps(fields, indent=2) + "\n"
    (folder / "config.json").write_text(text, encoding="utf-8")
    try:  # transformers looks for the format in the metadata
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    except SafetensorError as error:
        raise OSError(f"{folder}: {error}") from error


def _expects_fields(config: Settings, like: Settings, kind: str) -> None:
    """All fields of `config` are those of `like`."""
    for field in dataclasses.fields(config):
        got, want = getattr(config, field.name), getattr(like, field.name)
        wants = f"{want!r}, as in every {kind}"
        expects(got == want, f"model.config.{field.name}", repr(got), wants)


def gpt2_fields(config: Config) -> dict[str, Any]:
    """The config.json of a GPT-2 with these settings: the inverse of `gpt2_config`.

    ValueError for settings that no GPT-2 has. (A table of positions that started as a
    sinusoid is as good as any.)
    """
    c = config
    if c.pe == "learned_from_sinusoid":
        c = c.replace(pe="learned", pe_start=0)
    if c.d_head == c.d_model // c.n_heads:
        c = c.replace(d_head=None)
    free = (*_GPT2_FIELDS.values(), "d_ff", "activation")
    like = Config.gpt2(**{name: getattr(c, name) for name in free})
    unscaled = c.scale == 1
    _expects_fields(c, like.replace(scale=1.0) if unscaled else like, "GPT-2")
    theirs = {ours: name for name, ours in reversed(_ACTIVATIONS.items())}
    fields = {name: getattr(c, ours) for name, ours in _GPT2_FIELDS.items()}
    return fields | {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_inner": c.d_ff,
        "activation_function": theirs[c.activation],
        "scale_attn_weights": c.scale is None,
        "embd_pdrop": c.dropout,
        "attn_pdrop": 0.0,
    }


_ENDS = ("bos_token_id", "eos_token_id")  # the token that begins and ends a text


def save_gpt2(
    model: TransformerLM,
    folder: str | os.PathLike[str],
    tokenizer: Tokenizer | None = None,
) -> None:
    """Write a new folder that `transformers` loads as a GPT-2, with the tokenizer's
    two files when there is one. (T-gpt2-lossless)

    FileExistsError when the folder exists; ValueError when the model or the tokenizer
    is of a kind that GPT-2's files cannot express, or when they do not fit together.
    """
    right, came = isinstance(model, TransformerLM), type(model).__name__
    expects(right, "model", came, "a TransformerLM", TypeError)
    c = model.config
    fields, named = gpt2_fields(c) | dict.fromkeys(_ENDS), gpt2_pairs(c)
    named = [pair._replace(theirs=gpt2_name(pair.theirs)) for pair in named]
    if tokenizer is not None:
        right, came = isinstance(tokenizer, Tokenizer), type(tokenizer).__name__
        expects(right, "tokenizer", came, "a Tokenizer or None", TypeError)
        got, wants = f"{len(tokenizer)} tokens", f"vocab_size = {c.vocab_size}"
        expects(len(tokenizer) == c.vocab_size, "tokenizer", got, wants)
        fields |= dict.fromkeys(_ENDS, tokenizer.start)
    with new_folder(folder) as part:
        write_model(part, fields, tensors_of(model, named))
        if tokenizer is not None:
            save_tokenizer(tokenizer, part)


def gpt2_name(name: str) -> str:
    """A tensor's name as `transformers` writes it today."""
    return name if name.startswith("lm_head") else f"transformer.{name}"


# --- A translator


_LAYERS = """
model.{stack}.layers.#.self_attn.q_proj.*             {stack}.#.self_attention.query.*
model.{stack}.layers.#.self_attn.k_proj.*             {stack}.#.self_attention.key.*
model.{stack}.layers.#.self_attn.v_proj.*             {stack}.#.self_attention.value.*
model.{stack}.layers.#.self_attn.out_proj.*           {stack}.#.self_attention.out.*
model.{stack}.layers.#.self_attn_layer_norm.*         {stack}.#.norm_self.*
model.{stack}.layers.#.fc1.*                          {stack}.#.feed_forward.up.*
model.{stack}.layers.#.fc2.*                          {stack}.#.feed_forward.down.*
model.{stack}.layers.#.final_layer_norm.*             {stack}.#.norm_feed_forward.*
"""
MARIAN_NAMES = (
    _LAYERS.format(stack="encoder")
    + _LAYERS.format(stack="decoder").strip()
    + """
model.decoder.layers.#.encoder_attn.q_proj.*          decoder.#.cross_attention.query.*
model.decoder.layers.#.encoder_attn.k_proj.*          decoder.#.cross_attention.key.*
model.decoder.layers.#.encoder_attn.v_proj.*          decoder.#.cross_attention.value.*
model.decoder.layers.#.encoder_attn.out_proj.*        decoder.#.cross_attention.out.*
model.decoder.layers.#.encoder_attn_layer_norm.*      decoder.#.norm_cross.*
final_logits_bias                                     unembedding.bias           row
"""
)


def marian_pairs(config: EncoderDecoderConfig) -> list[Pair]:
    """The names of a Marian model with these settings."""
    named = pairs(MARIAN_NAMES, config.n_layers)
    if config.source_vocab_size is None:
        named.append(Pair("model.shared.weight", "embedding.table.weight"))
    else:
        for stack, ours in (
            ("encoder", "source_embedding"),
            ("decoder", "embedding"),
        ):
            name = f"model.{stack}.embed_tokens.weight"
            named.append(Pair(name, f"{ours}.table.weight"))
    if not config.tied:
        named.append(Pair("lm_head.weight", "unembedding.weight"))
    return named


_MARIAN_FIELDS = {
    "d_model": "d_model",
    "max_position_embeddings": "max_len",
    "dropout": "dropout",
    "scale_embedding": "embed_scale",
    "tie_word_embeddings": "tied",
}
_MARIAN_TWICE = {  # in the file once for each half
    "layers": "n_layers",
    "attention_heads": "n_heads",
    "ffn_dim": "d_ff",
}
_MARIAN_ONLY = {
    "model_type": ("marian",),
    "normalize_before": (False,),
    "normalize_embedding": (False,),
    "add_final_layer_norm": (False,),
    "static_position_embeddings": (True,),
    "share_encoder_decoder_embeddings": (True, False),
    # first what is meant where nothing is said
    "activation_function": tuple(sorted(_ACTIVATIONS)),
}


def marian_config(fields: Mapping[str, Any]) -> EncoderDecoderConfig:
    """The settings that a config.json of Marian describes. ValueError or TypeError for
    a field that is missing or asks for what the model does not do.
    """
    _expects_only(fields, _MARIAN_ONLY)
    halves = [
        f"{half}_{name}" for name in _MARIAN_TWICE for half in ("encoder", "decoder")
    ]
    needed = ["vocab_size", "d_model", "max_position_embeddings", *halves]
    missing = [name for name in needed if name not in fields]
    expects(not missing, "config.json", f"no field {missing[:3]}", "Marian's fields")
    known = {o: fields[t] for t, o in _MARIAN_FIELDS.items() if t in fields}
    for theirs, ours in _MARIAN_TWICE.items():
        known[ours] = fields[f"encoder_{theirs}"]
        got, wants = fields[f"decoder_{theirs}"], f"{known[ours]}, as in the encoder"
        expects(got == known[ours], f"decoder_{theirs}", got, wants)
    sizes = {"vocab_size": fields["vocab_size"]}
    if not fields.get("share_encoder_decoder_embeddings", True):
        own = fields.get("decoder_vocab_size") or fields["vocab_size"]
        sizes = {"vocab_size": own, "source_vocab_size": fields["vocab_size"]}
    activation = _ACTIVATIONS[fields.get("activation_function", "gelu")]
    unsaid = {"embed_scale": False, "tied": True, "dropout": 0.1}
    return marian(**sizes, activation=activation, **unsaid | known)


def marian(vocab_size: int, **changes: Any) -> EncoderDecoderConfig:
    """The settings of a Marian model: those of 2017, with SiLU, biases everywhere, and
    positions whose sines come before all cosines. (T-pe-halves)
    """
    settings: dict[str, Any] = {
        "activation": "silu",
        "pe_halves": True,
        "qkv_bias": True,
        "out_bias": True,
        "tied": True,
    }
    return EncoderDecoderConfig(vocab_size, **settings | changes)


class MarianTokenizer(NamedTuple):
    """Pieces of words to numbers and back. `source` and `target` are sentencepiece's
    processors, `start` is read before the first word, `stop` ends a sentence.
    """

    source: Any
    target: Any
    vocab: dict[str, int]
    start: int
    stop: int
    padding: int

    def encode(self, sentence: str) -> list[int]:
        """The tokens of a source sentence, with `stop` at the end. A model for several
        target languages wants the language in front, as in ">>fra<< hello".
        """
        expects(
            isinstance(sentence, str), "sentence", repr(sentence), "a str", TypeError
        )
        language = re.match(r">>.+?<<", sentence)
        codes = [language[0]] if language else []
        rest = sentence.removeprefix("".join(codes))
        pieces = [*codes, *self.source.encode(rest, out_type=str)]
        unknown = self.vocab["<unk>"]
        return [self.vocab.get(piece, unknown) for piece in pieces] + [self.stop]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of target tokens, up to the first `stop`; IndexError for a token
        that the vocabulary does not hold.
        """
        tokens = list(tokens)
        if self.stop in tokens:
            tokens = tokens[: tokens.index(self.stop)]
        pieces = {number: piece for piece, number in self.vocab.items()}
        odd = [t for t in tokens if t not in pieces]
        expects(not odd, "tokens", odd[:1], "tokens of the vocabulary", IndexError)
        return "".join(pieces[t] for t in tokens).replace("▁", " ").strip()


def expects_vocab(vocab: object, V: int, place: str) -> None:
    """ValueError that names the place unless this is a table of different numbers
    below V, one of them for "<unk>".
    """
    right = isinstance(vocab, dict) and "<unk>" in vocab
    expects(right, place, "no number for <unk>", "Marian's vocabulary")
    assert isinstance(vocab, dict)  # for the type checker
    numbers = list(vocab.values())
    odd = [k for k in numbers if type(k) is not int or not 0 <= k < V]
    expects(not odd, place, odd[:1], f"whole numbers, at least 0 and less than {V}")
    twice = len(numbers) - len(set(numbers))
    expects(not twice, place, f"{twice} numbers twice", "a number for each piece")


def load_marian_tokenizer(
    folder: Path, fields: Mapping[str, Any]
) -> MarianTokenizer:
    """The tokenizer in a folder with source.spm, target.spm and vocab.json.
    FileNotFoundError when one is missing, ValueError when they do not fit the model.
    """
    lib, processors, V = library("sentencepiece"), [], fields["vocab_size"]
    for name in ("source.spm", "target.spm"):
        missing, wants = f"{str(folder)!r} without {name}", "it beside vocab.json"
        there = (folder / name).is_file()
        expects(there, "folder", missing, wants, FileNotFoundError)
        try:
            data = (folder / name).read_bytes()
            processors.append(lib.SentencePieceProcessor(model_proto=data))
        except RuntimeError as error:
            problem = f"{folder / name}: got no sentencepiece model"
            raise ValueError(f"{problem}, want the one of the makers") from error
    try:
        vocab = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        problem = f"{folder / 'vocab.json'}: got no JSON ({error})"
        raise ValueError(f"{problem}, want a vocabulary") from error
    expects_vocab(vocab, V, f"{folder / 'vocab.json'}")
    padding, stop = fields.get("pad_token_id", V - 1), fields.get("eos_token_id", 0)
    start = fields.get("decoder_start_token_id", padding)
    odd = [t for t in (padding, stop, start) if type(t) is not int or not 0 <= t < V]
    wants = f"tokens from 0 to {V - 1} for padding, end and start"
    expects(not odd, f"{folder / 'config.json'}", odd[:1], wants)
    return MarianTokenizer(processors[0], processors[1], vocab, start, stop, padding)


_MARIAN_COPIES = {
    "lm_head.weight": "model.shared.weight",
    "model.encoder.embed_tokens.weight": "model.shared.weight",
    "model.decoder.embed_tokens.weight": "model.shared.weight",
}


def _waves(
    c: EncoderDecoderConfig, tensors: Mapping[str, Tensor]
) -> Float[Tensor, "M d"]:
    """The table of positions, which is computed: sines, then cosines."""
    most = max(1 << 24, sum(w.numel() for w in tensors.values())) // c.d_model
    got, wants = c.max_len, f"at most {most}, beside weights of this size"
    expects(c.max_len <= most, "max_position_embeddings", got, wants)
    waves = PositionalEncoding(c.max_len, c.d_model, c.pe, c.pe_start).table
    return waves.unflatten(1, (-1, 2)).mT.flatten(1)


def load_marian(
    name_or_folder: str | os.PathLike[str], *, revision: str | None = None
) -> tuple[EncoderDecoder, MarianTokenizer | None]:
    """(model, tokenizer) from Hugging Face's files of a Marian model: those in a
    folder, or those of that name on the hub. (T-marian-weights)

    The tokenizer is None when the folder has no vocab.json. Errors as in `load_gpt2`;
    ImportError where there is one and the library sentencepiece is missing.
    """
    texts = ("vocab.json", "source.spm", "target.spm")
    folder = model_folder(name_or_folder, texts, revision)
    config, tensors = described(folder, marian_config), read_tensors(folder)
    for half in ("encoder", "decoder"):  # the sines and cosines, which are computed
        tensors.pop(f"model.{half}.embed_positions.weight", None)
    if config.source_vocab_size is None:
        copies = dict(_MARIAN_COPIES)
        if not config.tied:
            del copies["lm_head.weight"]
        drop_copies(tensors, copies)
    elif config.tied:
        drop_copies(tensors, {"lm_head.weight": "model.decoder.embed_tokens.weight"})
    model = unfilled(EncoderDecoder, config, tensors)
    fill(model, marian_pairs(config), tensors, f"{folder / 'model.safetensors'}")
    model.position.table = _waves(config, tensors).to(model.unembedding.weight)
    if not os.path.lexists(folder / "vocab.json"):
        return model.eval(), None
    one, got = config.source_vocab_size is None, "a vocabulary for each language"
    expects(one, "config.json", got, "one for both, or a folder without vocab.json")
    return model.eval(), load_marian_tokenizer(folder, read_fields(folder))


def marian_fields(config: EncoderDecoderConfig) -> dict[str, Any]:
    """The config.json of a Marian model with these settings: the inverse of
    `marian_config`. ValueError for settings that no Marian model has.
    """
    c = config
    if c.d_head == c.d_model // c.n_heads:
        c = c.replace(d_head=None)
    free = (*_MARIAN_FIELDS.values(), *_MARIAN_TWICE.values(), "activation")
    free = (*free, "vocab_size", "source_vocab_size")
    _expects_fields(c, marian(**{name: getattr(c, name) for name in free}), "Marian")
    theirs = {ours: name for name, ours in _ACTIVATIONS.items()}
    theirs["gelu_tanh"] = "gelu_new"
    fields = {name: getattr(c, ours) for name, ours in _MARIAN_FIELDS.items()}
    for name, ours in _MARIAN_TWICE.items():
        fields |= {
            f"{half}_{name}": getattr(c, ours) for half in ("encoder", "decoder")
        }
    source = c.source_vocab_size or c.vocab_size
    return fields | {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "activation_function": theirs[c.activation],
        "vocab_size": source,
        "decoder_vocab_size": c.vocab_size,
        "share_encoder_decoder_embeddings": c.source_vocab_size is None,
        "static_position_embeddings": True,
        "eos_token_id": 0,
        "forced_eos_token_id": 0,
        "pad_token_id": min(source, c.vocab_size) - 1,
        "decoder_start_token_id": min(source, c.vocab_size) - 1,
    }


def save_marian(
    model: EncoderDecoder,
    folder: str | os.PathLike[str],
    tokenizer: MarianTokenizer | None = None,
) -> None:
    """Write a new folder that `transformers` loads as a Marian model, with the
    tokenizer's three files when there is one. (T-marian-weights)

    FileExistsError when the folder exists; ValueError when the model is of a kind that
    Marian's files cannot express.
    """
    right, came = isinstance(model, EncoderDecoder), type(model).__name__
    expects(right, "model", came, "an EncoderDecoder", TypeError)
    fields = marian_fields(model.config)
    if (t := tokenizer) is not None:
        right, came = isinstance(t, MarianTokenizer), type(t).__name__
        expects(right, "tokenizer", came, "a MarianTokenizer or None", TypeError)
        expects_vocab(t.vocab, model.config.vocab_size, "tokenizer")
        fields |= {"eos_token_id": t.stop, "forced_eos_token_id": t.stop}
        fields |= {"pad_token_id": t.padding, "decoder_start_token_id": t.start}
    with new_folder(folder) as part:
        write_model(part, fields, tensors_of(model, marian_pairs(model.config)))
        if t is not None:
            (part / "source.spm").write_bytes(t.source.serialized_model_proto())
            (part / "target.spm").write_bytes(t.target.serialized_model_proto())
            text = json.dumps(t.vocab, ensure_ascii=False) + "\n"
            (part / "vocab.json").write_text(text, encoding="utf-8")


@torch.no_grad()
def translate_marian(
    model: EncoderDecoder,
    tokenizer: MarianTokenizer,
    sentences: Sequence[str],
    max_new: int | None = None,
) -> list[str]:
    """The translations of some sentences, the likeliest token each time. `max_new`
    tokens at most; by default as many as the model can read. TypeError for a single
    text, ValueError for none.
    """
    one = isinstance(sentences, str)
    expects(not one, "sentences", "one str", "a list of str", TypeError)
    rows, t = [tokenizer.encode(sentence) for sentence in sentences], tokenizer
    expects(rows, "sentences", "none", "at least one")
    steps = model.config.max_len if max_new is None else max_new
    expects_positive(max_new=steps)
    device = model.embedding.table.weight.device
    lengths = torch.tensor([len(row) for row in rows], device=device)
    source = torch.full((len(rows), int(lengths.max())), t.padding, device=device)
    for row, filled in zip(rows, source):
        filled[: len(row)] = torch.tensor(row)
    visible = torch.arange(source.shape[1], device=device) < lengths[:, None]
    state, token, written = (
        model.begin(source, visible),
        source.new_full(lengths.shape, t.start),
        [],
    )
    over = torch.zeros_like(visible[:, 0])
    for _ in range(min(steps, model.config.max_len)):
        scores, state = model.advance(token, state)
        scores[:, t.padding] = -torch.inf
        token = scores.argmax(-1).masked_fill(over, t.stop)
        written.append(token)
        over |= token == t.stop
        if bool(over.all()):
            break
    return [tokenizer.decode(row) for row in torch.stack(written, 1).tolist()]

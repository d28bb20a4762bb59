"""The settings of Llama and its family: a config.json as a `Config`, and a `Config` as a config.json.

Written by hand.
"""

from collections.abc import Mapping
from typing import Any

from tlm_book.checks import expects, expects_kind, expects_one_of, expects_whole
from tlm_book.positional_encoding import RopeScaling
from tlm_book.pretrained.files import CONFIG
from tlm_book.pretrained.names import EXPERT_FIELDS, HUB_ACTIVATIONS, LLAMA_FIELDS
from tlm_book.pretrained.settings import expects_only, expects_same, plain_heads
from tlm_book.transformer_lm import Config

__all__ = ["FAMILIES", "family_of", "llama_config", "llama_fields"]

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {  # the name in the file: the class in transformers, and the defaults of missing fields
    "llama": ("Llama", {}),
    "qwen2": ("Qwen2", {"num_key_value_heads": 32, "sliding_window": 4096}),
    "qwen3": ("Qwen3", {"num_key_value_heads": 32, "head_dim": 128, "sliding_window": 4096}),
    "mistral": ("Mistral", {"num_key_value_heads": 8, "sliding_window": 4096}),
    "mixtral": (
        "Mixtral",
        {"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1e6, "num_local_experts": 8, "num_experts_per_tok": 2},
    ),
    "gemma": ("Gemma", {"num_key_value_heads": 16, "head_dim": 256, "tie_word_embeddings": True, "hidden_act": "gelu"}),
}  # fmt: skip
UNSAID: dict[str, Any] = {  # the defaults in every family
    "num_key_value_heads": None,
    "head_dim": None,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "sliding_window": None,
    "use_sliding_window": False,
    "max_window_layers": 28,
    "rope_theta": 10000.0,
    "attention_bias": False,
    "mlp_bias": False,
}
ONLY: dict[str, tuple[object, ...]] = {
    "partial_rotary_factor": (1.0, None),
    "use_bidirectional_attention": (None, False),
    "hidden_activation": (None, "gelu_pytorch_tanh"),  # in Gemma's first files
    "quantization_config": (None,),
}
BIASES = ("llama", "qwen3", "gemma")  # families whose attention_bias says whether attention has biases
SLIDING = "sliding_attention"


def known(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields, with the defaults of those that are missing. ValueError for another family."""
    expects_kind("fields", fields, Mapping, "a table of settings")
    family = fields.get("model_type")
    expects_one_of("model_type", family, tuple(FAMILIES))
    said = UNSAID | FAMILIES[str(family)][1] | dict(fields)
    needed = fields_of(str(family))
    missing = [name for name in needed if name not in said]
    expects(not missing, CONFIG, f"no field {missing[:3]}", f"the fields of {FAMILIES[str(family)][0]}")
    return said


def fields_of(family: str) -> dict[str, str]:
    """{field of the file: field of `Config`}."""
    return LLAMA_FIELDS | (EXPERT_FIELDS if family == "mixtral" else {})


# From the file


def llama_config(fields: Mapping[str, Any]) -> Config:
    """The `Config` that a config.json of Llama's family describes. Fields that do not concern the map are ignored.

    ValueError or TypeError for a field that is missing or asks for something that the model cannot do.

    >>> llama_config({"model_type": "llama", "vocab_size": 9, "hidden_size": 8, "intermediate_size": 20, "num_hidden_layers": 1,
    ...               "num_attention_heads": 2, "max_position_embeddings": 16, "rope_theta": 500000.0}).rope_base
    500000.0
    """
    said = known(fields)
    expects_only(said, ONLY)
    family = said["model_type"]
    if family == "mixtral":
        expects(said["num_local_experts"] is not None, "num_local_experts", "None", "a number of experts")
    settings = {ours: said[theirs] for theirs, ours in fields_of(family).items()}
    settings |= dict(zip(("rope_base", "rope_scaling"), rotation(said)))
    settings |= {"activation": activation(said), "window": window(said)}
    if family in BIASES:
        settings |= {"qkv_bias": said["attention_bias"], "out_bias": said["attention_bias"]}
    if family == "llama":
        settings["ff_bias"] = said["mlp_bias"]
    preset = getattr(Config, family)
    return usual(preset(**settings))


def usual(config: Config) -> Config:
    """The same settings, with the number of key heads and the width of the heads set to None if they have their usual values."""
    c = plain_heads(config)
    return c.replace(n_kv_heads=None) if c.n_kv_heads == c.n_heads else c


def activation(said: Mapping[str, Any]) -> str:
    """Our name for the activation; ValueError for an unknown one. In Gemma's files, "gelu" means what is called "gelu_pytorch_tanh" elsewhere."""
    name = said["hidden_act"]
    expects_one_of("hidden_act", name, tuple(HUB_ACTIVATIONS))
    return "gelu_tanh" if said["model_type"] == "gemma" and name == "gelu" else HUB_ACTIVATIONS[name]


def rotation(said: Mapping[str, Any]) -> tuple[float, RopeScaling | None]:
    """(base, scaling), from the fields of older files (rope_theta, rope_scaling) or of newer ones (rope_parameters). ValueError for a
    scaling that the model does not have."""
    rope = said.get("rope_scaling") or said.get("rope_parameters") or {}
    expects(isinstance(rope, dict), "rope_parameters", repr(rope), "a table")
    kind = rope.get("rope_type", rope.get("type", "default"))
    wants = "'default', 'linear' or 'llama3': the model turns in no other way"
    expects(kind in ("default", "linear", "llama3"), "rope_type", repr(kind), wants)
    expects(rope.get("partial_rotary_factor", 1.0) == 1.0, "partial_rotary_factor", rope.get("partial_rotary_factor"), "1.0")
    base = rope.get("rope_theta", said["rope_theta"])
    if kind == "default":
        return base, None
    names = {"factor": "factor"}
    if kind == "llama3":
        names |= {"low_freq_factor": "low_freq_factor", "high_freq_factor": "high_freq_factor"}
        names |= {"original_max_position_embeddings": "original_max_len"}
        if (outer := said.get("original_max_position_embeddings")) is not None:  # transformers prefers the one beside the table
            rope = rope | {"original_max_position_embeddings": outer}
    missing = [name for name in names if name not in rope]
    expects(not missing, "rope_parameters", f"no field {missing[:1]}", f"the fields of rope_type {kind!r}")
    return base, RopeScaling(kind, **{ours: rope[name] for name, ours in names.items()})


def window(said: Mapping[str, Any]) -> int | None:
    """How many rows a row sees, the same in all blocks; None for all. ValueError if only some blocks have a window."""
    family, L = said["model_type"], said["num_hidden_layers"]
    if family not in ("mistral", "mixtral") and not (family in ("qwen2", "qwen3") and said["use_sliding_window"]):
        return None
    expects_whole(num_hidden_layers=L)
    kinds = [] if family == "mixtral" else said.get("layer_types") or []  # Mixtral's class does not read them
    for kind in kinds:
        expects_one_of("layer_types", kind, (SLIDING, "full_attention"))
    first = said["max_window_layers"] if family in ("qwen2", "qwen3") and not kinds else 0
    expects_whole(max_window_layers=first)
    narrow = [kind == SLIDING for kind in kinds] or [i >= first for i in range(min(L, 10_000))]
    one, field = all(narrow) or not any(narrow), "layer_types" if kinds else "max_window_layers"
    expects(one, field, said[field], "a window in all blocks or in none: the model has one for all")
    return said["sliding_window"] if any(narrow) else None


# To the file


def family_of(config: Config) -> str:
    """The first family that can have these settings."""
    if config.n_experts is not None:
        return "mixtral"
    if config.qk_norm:
        return "qwen3"
    if config.embed_scale:
        return "gemma"
    if config.window is not None:
        return "mistral"
    return "qwen2" if config.qkv_bias and not config.out_bias else "llama"


def llama_fields(config: Config, family: str | None = None) -> dict[str, Any]:
    """The config.json of a model with these settings: the inverse of `llama_config`. Without a family, the first that can have them.

    ValueError for settings that no model of the family has.
    """
    c, family = usual(config), family_of(config) if family is None else family
    expects_one_of("family", family, tuple(FAMILIES))
    fields: dict[str, Any] = {name: getattr(c, ours) for name, ours in fields_of(family).items()}
    theirs = {ours: name for name, ours in reversed(HUB_ACTIVATIONS.items())} | {"gelu_tanh": "gelu_pytorch_tanh"}
    fields |= {
        "model_type": family,
        "architectures": [f"{FAMILIES[family][0]}ForCausalLM"],
        "num_key_value_heads": c.kv_heads,
        "head_dim": c.head_width,
        "hidden_act": theirs.get(c.activation, c.activation),
        "attention_bias": c.qkv_bias,
        "mlp_bias": c.ff_bias,
        "sliding_window": c.window,
        "use_sliding_window": c.window is not None,
        "max_window_layers": 0,
        "rope_parameters": rope_fields(c),
        "rope_theta": c.rope_base,  # for older readers, as is rope_scaling
    }
    if c.rope_scaling is not None:
        fields["rope_scaling"] = rope_fields(c)
    expects_same(c, llama_config(fields), FAMILIES[family][0])
    return fields


def rope_fields(c: Config) -> dict[str, Any]:
    """The fields that describe the rotation in newer files."""
    s = c.rope_scaling
    if s is None:
        return {"rope_type": "default", "rope_theta": c.rope_base}
    fields = {"rope_type": s.kind, "type": s.kind, "rope_theta": c.rope_base, "factor": s.factor}
    if s.kind == "llama3":
        fields |= {"low_freq_factor": s.low_freq_factor, "high_freq_factor": s.high_freq_factor}
        fields |= {"original_max_position_embeddings": s.original_max_len}
    return fields

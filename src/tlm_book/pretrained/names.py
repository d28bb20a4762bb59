"""The names of tensors and settings in the files of GPT-2, Llama and Marian, and in this book. Generated from book/pretrained.ipynb: edit the notebook, then `make export`."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = [
    "GPT2_NAMES",
    "Pair",
    "pairs",
    "turned",
    "turned_back",
    "joined",
    "to_model",
    "to_file",
    "HUB_ACTIVATIONS",
    "GPT2_FIELDS",
    "LLAMA_NAMES",
    "EXPERT_NAMES",
    "LLAMA_FIELDS",
    "EXPERT_FIELDS",
    "MARIAN_NAMES",
    "MARIAN_FIELDS",
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
    """A tensor's name in the file, its name in the model, and its layout in the file:
    "" the same, "T" transposed, "row" a row (1, V) for V numbers, "1+" if the model's
    is 1 more; and which part of the model's tensor it is, None for all of it.
    """

    theirs: str
    ours: str
    layout: str = ""
    part: int | slice | None = None


def pairs(
    table: str,
    n_layers: int,
    parts: Mapping[str, slice] | None = None,
    n_experts: int = 0,
) -> list[Pair]:
    """The pairs that a table of names lists, for n_layers blocks of n_experts each.
    `parts` says which rows of the model's tensor the letters in the last column mean.

    >>> pairs("h.#.ln.* blocks.#.norm.* T", 1)[0]
    Pair(theirs='h.0.ln.weight', ours='blocks.0.norm.weight', layout='T', part=None)
    """
    found = []
    for line in table.strip().splitlines():
        blocks, experts = range(n_layers), range(n_experts)
        for number in blocks if "#" in line else (0,):
            for kind in ("weight", "bias") if "*" in line else ("",):
                for expert in experts if "@" in line else (None,):
                    named = line.replace("#", str(number)).replace("*", kind)
                    theirs, ours, *how = named.replace("@", str(expert)).split()
                    if how and parts and how[0] in parts:
                        found.append(Pair(theirs, ours, "", parts[how[0]]))
                    else:
                        found.append(Pair(theirs, ours, "".join(how), expert))
    return found


def turned(w: Float[Tensor, "*shape"], layout: str) -> Float[Tensor, "*turned"]:
    """A tensor of the file in the model's layout; biases are never transposed."""
    if layout == "row":
        return w.reshape(w.shape[-1:])
    if layout == "1+":
        return 1 + w
    return w.T.contiguous() if layout == "T" and w.dim() == 2 else w


def turned_back(w: Float[Tensor, "*shape"], layout: str) -> Float[Tensor, "*turned"]:
    """The inverse of `turned`."""
    if layout == "1+":
        return w - 1
    return w[None] if layout == "row" else turned(w, layout)


def joined(
    parts: Sequence[Float[Tensor, "..."]], part: int | slice | None
) -> Float[Tensor, "..."]:
    """The tensor made of these parts: rows concatenated, experts stacked."""
    if part is None:
        return parts[0]
    return (
        torch.stack(list(parts)) if isinstance(part, int) else torch.cat(list(parts))
    )


def to_model(
    tensors: Mapping[str, Tensor], named: Sequence[Pair]
) -> dict[str, Tensor]:
    """The tensors of a file, with the model's names and layouts."""
    found: dict[str, list[Tensor]] = {}
    for theirs, ours, layout, _ in named:
        found.setdefault(ours, []).append(turned(tensors[theirs], layout))
    kinds = {ours: part for _, ours, _, part in named}
    return {ours: joined(parts, kinds[ours]) for ours, parts in found.items()}


def to_file(state: Mapping[str, Tensor], named: Sequence[Pair]) -> dict[str, Tensor]:
    """The weights of a model, with the file's names and layouts: the inverse of
    `to_model`.
    """
    return {
        theirs: turned_back(
            state[ours] if part is None else state[ours][part], layout
        )
        for theirs, ours, layout, part in named
    }


HUB_ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
GPT2_FIELDS = {
    "vocab_size": "vocab_size",
    "n_embd": "d_model",
    "n_layer": "n_layers",
    "n_head": "n_heads",
    "n_positions": "max_len",
    "layer_norm_epsilon": "eps",
    "resid_pdrop": "dropout",
    "tie_word_embeddings": "tied",
}


# --- Llama and its family


LLAMA_NAMES = """
model.embed_tokens.weight                       embedding.table.weight
model.layers.#.input_layernorm.weight           blocks.#.norm_attention.weight     gain
model.layers.#.self_attn.q_proj.*               blocks.#.attention.qkv.*           Q
model.layers.#.self_attn.k_proj.*               blocks.#.attention.qkv.*           K
model.layers.#.self_attn.v_proj.*               blocks.#.attention.qkv.*           V
model.layers.#.self_attn.q_norm.weight          blocks.#.attention.query_norm.weight
model.layers.#.self_attn.k_norm.weight          blocks.#.attention.key_norm.weight
model.layers.#.self_attn.o_proj.*               blocks.#.attention.out.*
model.layers.#.post_attention_layernorm.weight  blocks.#.norm_feed_forward.weight  gain
model.layers.#.mlp.gate_proj.*                  blocks.#.feed_forward.gate.*
model.layers.#.mlp.up_proj.*                    blocks.#.feed_forward.up.*
model.layers.#.mlp.down_proj.*                  blocks.#.feed_forward.down.*
model.norm.weight                               norm.weight                        gain
lm_head.weight                                  unembedding.weight
"""
EXPERT_NAMES = """
model.layers.#.block_sparse_moe.gate.weight          blocks.#.feed_forward.router.weight
model.layers.#.block_sparse_moe.experts.@.w1.weight  blocks.#.feed_forward.gate
model.layers.#.block_sparse_moe.experts.@.w3.weight  blocks.#.feed_forward.up
model.layers.#.block_sparse_moe.experts.@.w2.weight  blocks.#.feed_forward.down
"""


LLAMA_FIELDS = {
    "vocab_size": "vocab_size",
    "hidden_size": "d_model",
    "intermediate_size": "d_ff",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "num_key_value_heads": "n_kv_heads",
    "head_dim": "d_head",
    "max_position_embeddings": "max_len",
    "rms_norm_eps": "eps",
    "tie_word_embeddings": "tied",
}
EXPERT_FIELDS = {
    "num_local_experts": "n_experts",
    "num_experts_per_tok": "n_experts_used",
}


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


MARIAN_FIELDS = {
    "d_model": "d_model",
    "max_position_embeddings": "max_len",
    "dropout": "dropout",
    "scale_embedding": "embed_scale",
    "tie_word_embeddings": "tied",
    "encoder_layers": "n_layers",
    "decoder_layers": "n_layers",
    "encoder_attention_heads": "n_heads",
    "decoder_attention_heads": "n_heads",
    "encoder_ffn_dim": "d_ff",
    "decoder_ffn_dim": "d_ff",
}

"""The names of tensors and settings in the files of GPT-2 and Marian, and in this book. Generated from book/pretrained.ipynb: edit the notebook, then `make export`."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

__all__ = [
    "GPT2_NAMES",
    "Pair",
    "pairs",
    "turned",
    "turned_back",
    "to_model",
    "to_file",
    "ACTIVATIONS",
    "GPT2_FIELDS",
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


def to_model(
    tensors: Mapping[str, Tensor], named: Sequence[Pair]
) -> dict[str, Tensor]:
    """The tensors of a file as the model names and keeps them."""
    return {ours: turned(tensors[theirs], how) for theirs, ours, how in named}


def to_file(state: Mapping[str, Tensor], named: Sequence[Pair]) -> dict[str, Tensor]:
    """The weights of a model as the file names and keeps them: the inverse of
    `to_model`.
    """
    return {theirs: turned_back(state[ours], how) for theirs, ours, how in named}


ACTIVATIONS = {
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

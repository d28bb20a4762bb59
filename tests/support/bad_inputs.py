"""A table of bad inputs to the public functions, and what a user is told. Run as a script it prints {case: [type, message]} as JSON.

`test_bad_input.py` runs it in a fresh interpreter without the runtime type checker, as a user would meet these errors.
Every message has the form "argument: got …, want …"; `words` are fragments of it, in any order.
"""

import functools
import json
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import torch

from tlm_book import (
    attention,
    auditing,
    corpora,
    decoder_block,
    derivation,
    embedding,
    encoder_decoder,
    exercises,
    feed_forward,
    gradients,
    graph_networks,
    heads,
    inference,
    inside,
    linear_attention,
    loss,
    multi_head,
    normalization,
    notation,
    operators,
    optimization,
    positional_encoding,
    pretrained,
    rewards,
    scaling,
    small_world,
    tokenization,
    training,
    transformer_lm,
    translation,
    viewer,
    weights,
    word_vectors,
)
from tlm_book.small_world import judging
from tlm_book.spec import attention as s_attention
from tlm_book.spec import decoder_block as s_decoder_block
from tlm_book.spec import embedding as s_embedding
from tlm_book.spec import encoder_decoder as s_encoder_decoder
from tlm_book.spec import feed_forward as s_feed_forward
from tlm_book.spec import gradients as s_gradients
from tlm_book.spec import graph_networks as s_graph_networks
from tlm_book.spec import heads as s_heads
from tlm_book.spec import inference as s_inference
from tlm_book.spec import linear_attention as s_linear_attention
from tlm_book.spec import loss as s_loss
from tlm_book.spec import multi_head as s_multi_head
from tlm_book.spec import named_tensors as s_named_tensors
from tlm_book.spec import normalization as s_normalization
from tlm_book.spec import operators as s_operators
from tlm_book.spec import optimization as s_optimization
from tlm_book.spec import positional_encoding as s_positional_encoding
from tlm_book.spec import rewards as s_rewards
from tlm_book.spec import tokenization as s_tokenization
from tlm_book.spec import training as s_training
from tlm_book.spec import transformer_lm as s_transformer_lm
from tlm_book.spec import word_vectors as s_word_vectors
from tlm_book.tokenization import Tokenizer, Vocabulary
from tlm_book.transformer_lm import Config, TransformerLM


class Case(NamedTuple):
    """One bad call: the type that it must raise, and fragments of the message."""

    name: str
    call: Callable[[], object]
    error: type[Exception]
    words: tuple[str, ...]


V, M, D = 260, 8, 4  # of the small model below


def tokens(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.long)


def briefly(*held_out: int, **choices: Any) -> training.Result:
    """A run of one step."""
    return training.train(
        training.TrainConfig(steps=1, warmup=0), Config(5, d_model=4, d_ff=4, n_layers=1, n_heads=1, max_len=2), tokens(1, 2, 3), tokens(1, *held_out), progress=False, **choices
    )


def ids(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


def heads_of(h: int) -> dict[str, torch.Tensor]:
    return {"W_Q": z(h, 4, 2), "W_K": z(h, 4, 2), "W_V": z(h, 4, 2), "W_O": z(2 * h, 4)}


def translator() -> encoder_decoder.EncoderDecoder:
    return encoder_decoder.EncoderDecoder(encoder_decoder.EncoderDecoderConfig(11, d_model=8, d_ff=8, n_heads=2, n_layers=1, max_len=8))


def french_english() -> translation.Translator:
    letters = translation.WordList(tuple("abcdefgh"))
    return translation.Translator(translator(), letters, letters)


def spoiled_translator() -> encoder_decoder.EncoderDecoder:
    spoiled = translator()
    with torch.no_grad():
        spoiled.unembedding.weight[0] = float("nan")
    return spoiled


def step_with_a_past() -> object:
    block = translator().decoder[0]
    pair = block.self_attention.keys_values(z(2, 8))
    return block.step(z(2, 8), pair, past=pair)


def graph(*edges: tuple[int, int], alone: int | None = None, **weight: float) -> nx.DiGraph:
    made = nx.DiGraph()
    made.add_edges_from(edges, **weight)
    if alone is not None:
        made.add_node(alone)
    return made


def named(*names: str) -> object:
    """A named tensor of ones, each axis of size 2."""
    return s_named_tensors.named(np.ones([2] * len(names)), *names)


def axes(letters: str) -> object:
    return named(*letters)


def labelled(X: object) -> object:
    """Its first axis has labels."""
    return X.assign_coords({X.dims[0]: [f"label {i}" for i in range(X.sizes[X.dims[0]])]})


def rows(n: int, d: int) -> np.ndarray:
    return np.ones((n, d))


def tiny(**changes: object) -> Config:
    return Config(V, **{"d_model": D, "d_ff": 6, "n_layers": 1, "n_heads": 2, "max_len": M} | changes)


def unmasked_model() -> TransformerLM:
    made = TransformerLM(tiny())
    made.blocks[0].attention.causal = False
    return made


def hooked_model() -> TransformerLM:
    made = TransformerLM(tiny())
    made.blocks[0].register_forward_hook(lambda block, read, written: 0 * written)
    return made


def full_cache() -> inference.CachedModel:
    decoder = inference.CachedModel(model())
    decoder.read([tokens(*[1] * M)])
    return decoder


def cache_of_two() -> inference.CachedModel:
    decoder = inference.CachedModel(model())
    decoder.read([tokens(1), tokens(2)])
    return decoder


@functools.cache
def model() -> TransformerLM:
    return TransformerLM(tiny()).eval()


@functools.cache
def tokenizer() -> Tokenizer:
    return Tokenizer([(104, 105), (116, 104), (101, 114)])  # 256 + 3 + 1 = V tokens


def two_words() -> word_vectors.WordVectors:
    return word_vectors.WordVectors(("a", "b"), torch.eye(2), torch.eye(2), torch.full((2,), 0.5))


def state_read(**changes: Any) -> Any:
    """`linear_attention` for three rows, keys of width 2 and values of width 5."""
    given = {"q": z(3, 2), "k": z(3, 2), "v": z(3, 5), "log_decay": z(3), "strength": z(3)}
    return linear_attention.linear_attention(**given | changes)


def reward_step(reward: Callable[..., Any] = lambda texts: [0.0] * len(texts), prompts: Any = None, n_new: int = 2, **choices: Any) -> object:
    learner = TransformerLM(tiny())
    return rewards.reward_step(learner, torch.optim.SGD(learner.parameters(), lr=1.0), tokens([1, 2], [3, 4]) if prompts is None else prompts, n_new, reward, **choices)


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> object:
    return attention.attention(q, k, v)


def saved(spoil: Callable[[Path], object]) -> object:
    """Save the small model, let `spoil` change the folder, and load it."""
    with tempfile.TemporaryDirectory() as place:
        folder = training.save(model(), Path(place) / "model", tokenizer())
        spoil(folder)
        return training.load(folder)


def save_new(model: TransformerLM, tokenizer: Tokenizer) -> object:
    with tempfile.TemporaryDirectory() as place:
        return training.save(model, Path(place) / "model", tokenizer)


def save_with(name: str) -> object:
    with tempfile.TemporaryDirectory() as place:
        return training.save(model(), Path(place) / "model", tokenizer(), more={name: Path(__file__)})


def saved_waves(**changes: object) -> object:
    """A model with sinusoidal positions, saved, its settings changed, and loaded."""
    with tempfile.TemporaryDirectory() as place:
        folder = training.save(TransformerLM(tiny(pe="sinusoidal")), Path(place) / "model", tokenizer())
        edit(**changes)(folder)
        return training.load(folder)


def overflowing(weights: dict) -> None:
    """Numbers that are finite in their own type, but not in that of the table."""
    weights["unembedding.weight"].fill_(1e6)
    weights["embedding.table.weight"] = weights["embedding.table.weight"].half()


def edit(**changes: object) -> Callable[[Path], object]:
    """Change fields of the model in config.json; None for a field removes it."""

    def spoil(folder: Path) -> None:
        settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        fields = settings["model"] | changes
        settings["model"] = {name: value for name, value in fields.items() if value is not None or name not in changes}
        (folder / "config.json").write_text(json.dumps(settings), encoding="utf-8")

    return spoil


def edit_weights(change: Callable[[dict], object]) -> Callable[[Path], object]:
    from safetensors.torch import load_file, save_file

    def spoil(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors")

    return spoil


def write(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


def cut_file(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-5])


def remove(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def text_file(content: bytes) -> object:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "text.txt"
        path.write_bytes(content)
        return training.read_text(path)


def saved_folder(call: Callable[[Path], object]) -> object:
    """The call with a folder that `training.save` wrote."""
    with tempfile.TemporaryDirectory() as place:
        return call(training.save(model(), Path(place) / "model", tokenizer()))


def small_llama() -> TransformerLM:
    return TransformerLM(Config.llama(3, d_model=8, d_ff=8, n_layers=1, n_heads=2, max_len=4))


def without_merges() -> tokenization.HubTokenizer:
    state = json.loads(tokenization.to_tokenizers(Tokenizer([])).to_str())
    del state["model"]["merges"]
    return tokenization.HubTokenizer(state)


def hub_tokenizer(**options: object) -> tokenization.HubTokenizer:
    return tokenization.HubTokenizer(json.loads(tokenization.to_tokenizers(Tokenizer([])).to_str()), **options)


def in_folder(call: Callable[[Path], object]) -> object:
    """The call with an empty folder."""
    with tempfile.TemporaryDirectory() as place:
        return call(Path(place))


def block_weights(d: int = D) -> dict:
    return decoder_block.DecoderBlock(d, 2, 6).spec_weights()


def spoiled_model() -> TransformerLM:
    spoiled = TransformerLM(tiny())
    with torch.no_grad():
        spoiled.unembedding.bias[0] = float("nan")
    return spoiled


def half_model() -> TransformerLM:
    mixed = TransformerLM(tiny()).bfloat16()
    mixed.norm.float()
    return mixed


def untied_model() -> TransformerLM:
    """Tied by its settings, with a matrix of its own."""
    two = TransformerLM(tiny(tied=True, unembed_bias=False))
    two.unembedding.weight = torch.nn.Parameter(two.embedding.table.weight.detach() + 1)
    return two


def merges_file(text: str) -> object:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "tokenizer.json"
        path.write_text(text, encoding="utf-8")
        return Tokenizer.load(path)


z, X = torch.zeros, rows

CASES = [
    # sizes
    Case("Config vocab_size 0", lambda: Config(0), ValueError, ("vocab_size: got 0", "at least 1")),
    Case("Config d_model negative", lambda: tiny(d_model=-4), ValueError, ("d_model: got -4", "at least 1")),
    Case("Config n_layers 0", lambda: tiny(n_layers=0), ValueError, ("n_layers: got 0", "at least 1")),
    Case("Config d_model 4.0", lambda: tiny(d_model=4.0), TypeError, ("d_model: got 4.0", "a whole number")),
    Case("Config n_layers True", lambda: tiny(n_layers=True), TypeError, ("n_layers: got True", "a whole number")),
    Case("Config max_len text", lambda: tiny(max_len="8"), TypeError, ("max_len: got '8'", "a whole number")),
    Case("Config h does not divide d", lambda: tiny(n_heads=3), ValueError, ("n_heads: got 3", "a divisor of d_model = 4")),
    Case("Config d_head 0", lambda: tiny(d_head=0), ValueError, ("d_head: got 0", "at least 1")),
    Case("Config d_head 2.5", lambda: tiny(d_head=2.5), TypeError, ("d_head: got 2.5", "a whole number")),
    Case("Config eps negative", lambda: tiny(eps=-1.0), ValueError, ("eps: got -1.0", "≥ 0")),
    Case("Config scale text", lambda: tiny(scale="big"), TypeError, ("scale: got 'big'", "number")),
    Case("Config scale nan", lambda: tiny(scale=float("nan")), ValueError, ("scale: got nan", "number")),
    Case("Config tied text", lambda: tiny(tied="no"), TypeError, ("tied: got 'no'", "True or False")),
    Case("Config pe_start half", lambda: tiny(pe_start=0.5), TypeError, ("pe_start: got 0.5", "a whole number")),
    Case("Config pe_start True", lambda: tiny(pe_start=True), TypeError, ("pe_start: got True", "a whole number")),
    Case("Config eps True", lambda: tiny(eps=True), TypeError, ("eps: got True", "a number")),
    Case("Config dropout text", lambda: tiny(dropout="0.1"), TypeError, ("dropout: got '0.1'", "number")),
    Case("Config dropout 1", lambda: tiny(dropout=1.0), ValueError, ("dropout: got 1.0", "[0, 1)")),
    Case("Config dropout nan", lambda: tiny(dropout=float("nan")), ValueError, ("dropout: got nan", "[0, 1)")),
    Case("Config eps infinite", lambda: tiny(eps=float("inf")), ValueError, ("eps: got inf", "a finite number ≥ 0")),
    Case("Config scale 0", lambda: tiny(scale=0.0), ValueError, ("scale: got 0.0", "a finite number > 0")),
    Case("Config fixed sinusoid of odd width", lambda: tiny(d_model=5, n_heads=1, pe="sinusoidal"), ValueError, ("d_model: got 5", "even")),
    Case("Config sinusoid of odd width", lambda: tiny(d_model=5, n_heads=1), ValueError, ("d_model: got 5", "even")),
    Case("Config post-norm parallel", lambda: tiny(norm="post", variant="parallel"), ValueError, ("variant: got 'parallel'", "'sequential'")),
    # options
    Case("Config activation", lambda: tiny(activation="swish"), ValueError, ("activation: got 'swish'", "'relu'", "'gelu_tanh'")),
    Case("Config norm", lambda: tiny(norm="Pre"), ValueError, ("norm: got 'Pre'", "'pre'", "'post'", "'none'")),
    Case("Config norm None", lambda: tiny(norm=None), ValueError, ("norm: got None", "'none'")),
    Case("Config variant", lambda: tiny(variant="serial"), ValueError, ("variant: got 'serial'", "'parallel'", "'simplified'")),
    Case("Config eps_mode", lambda: tiny(eps_mode="in"), ValueError, ("eps_mode: got 'in'", "'inside'", "'outside'")),
    Case("Config pe", lambda: tiny(pe="rotatory"), ValueError, ("pe: got 'rotatory'", "'sinusoidal'", "'rotary'")),
    Case("Config n_kv_heads", lambda: tiny(n_kv_heads=3), ValueError, ("n_kv_heads: got 3", "a divisor of n_heads = 2")),
    Case("Config n_kv_heads 0", lambda: tiny(n_kv_heads=0), ValueError, ("n_kv_heads: got 0", "at least 1")),
    Case("Config norm_kind", lambda: tiny(norm_kind="RMS"), ValueError, ("norm_kind: got 'RMS'", "'layer'", "'rms'")),
    Case("Config gated text", lambda: tiny(gated="yes"), TypeError, ("gated: got 'yes'", "True or False")),
    Case("Config ff_bias 0", lambda: tiny(ff_bias=0), TypeError, ("ff_bias: got 0", "True or False")),
    Case("Config qk_norm 1", lambda: tiny(qk_norm=1), TypeError, ("qk_norm: got 1", "True or False")),
    Case("Config experts of plain layers", lambda: tiny(n_experts=2, ff_bias=False), ValueError, ("gated: got False", "True with n_experts")),
    Case("Config experts with biases", lambda: tiny(n_experts=2, gated=True), ValueError, ("ff_bias: got True", "False with n_experts")),
    Case("Config more experts used", lambda: tiny(n_experts=2, gated=True, ff_bias=False, n_experts_used=3), ValueError, ("n_experts_used: got 3", "at most n_experts = 2")),
    Case("Config n_experts_used 0", lambda: tiny(n_experts_used=0), ValueError, ("n_experts_used: got 0", "at least 1")),
    Case("Config n_experts half", lambda: tiny(n_experts=1.5), TypeError, ("n_experts: got 1.5", "a whole number")),
    Case("Config window 0", lambda: tiny(window=0), ValueError, ("window: got 0", "at least 1")),
    Case("Config activation of a gate", lambda: tiny(activation="sigmoid"), ValueError, ("activation: got 'sigmoid'", "'silu'")),
    Case("Config rope_base text", lambda: tiny(rope_base="1e4"), TypeError, ("rope_base: got '1e4'", "a number")),
    Case("Config rope_base 1", lambda: tiny(rope_base=1), ValueError, ("rope_base: got 1", "> 1")),
    Case("Config rope_layout", lambda: tiny(rope_layout="pairs"), ValueError, ("rope_layout: got 'pairs'", "'halves'", "'interleaved'")),
    Case("Config rope_scaling number", lambda: tiny(rope_scaling=2.0), TypeError, ("rope_scaling: got 2.0", "None or a RopeScaling")),
    Case("Config rope_scaling of other names", lambda: tiny(rope_scaling={"type": "linear", "factor": 2.0}), TypeError, ("type: got an unknown argument", "one of kind, factor")),
    Case("Config rotary heads of odd width", lambda: tiny(pe="rotary", d_head=3), ValueError, ("d_head: got 3", "an even width")),
    Case("FeedForward activation", lambda: feed_forward.FeedForward(4, 4, "sigmoid"), ValueError, ("activation: got 'sigmoid'", "'gelu'")),
    Case("DecoderBlock variant", lambda: decoder_block.DecoderBlock(4, 2, 4, variant="?"), ValueError, ("variant: got '?'", "'parallel'")),
    Case("DecoderBlock norm_kind", lambda: decoder_block.DecoderBlock(4, 2, 4, norm_kind="batch"), ValueError, ("norm_kind: got 'batch'", "'rms'")),
    Case("DecoderBlock experts", lambda: decoder_block.DecoderBlock(4, 2, 4, n_experts=2, n_experts_used=3), ValueError, ("n_experts_used: got 3", "at most")),
    Case("spec decoder_block norm_kind", lambda: s_decoder_block.decoder_block(X(2, D), block_weights(), norm_kind="batch"), ValueError, ("norm_kind: got 'batch'", "'rms'")),
    Case("spec decoder_block feed_forward", lambda: s_decoder_block.decoder_block(X(2, D), block_weights(), feed_forward="swiglu"), ValueError, ("feed_forward: got 'swiglu'", "'gated'")),
    Case("DecoderBlock post-norm parallel", lambda: decoder_block.DecoderBlock(4, 2, 4, norm="post", variant="parallel"), ValueError,
         ("variant: got 'parallel'", "one of 'sequential'")),
    Case("weighted_loss reduction", lambda: loss.weighted_loss(z(2, 3), tokens(0, 1), reduction="mean"), ValueError,
         ("reduction: got 'mean'", "'weighted'", "'row_mean'")),
    # layers: sizes
    Case("MultiHeadAttention h does not divide d", lambda: multi_head.MultiHeadAttention(6, 4), ValueError, ("n_heads: got 4", "a divisor of d_model = 6")),
    Case("MultiHeadAttention n_heads 0", lambda: multi_head.MultiHeadAttention(6, 0), ValueError, ("n_heads: got 0", "at least 1")),
    Case("MultiHeadAttention n_heads 2.0", lambda: multi_head.MultiHeadAttention(6, 2.0), TypeError, ("n_heads: got 2.0", "a whole number")),
    Case("MultiHeadAttention d_head -1", lambda: multi_head.MultiHeadAttention(6, 2, -1), ValueError, ("d_head: got -1", "at least 1")),
    Case("CausalAttention d_head 0", lambda: attention.CausalAttention(4, 0), ValueError, ("d_head: got 0", "at least 1")),
    Case("Embedding vocab_size negative", lambda: embedding.Embedding(-1, 4), ValueError, ("vocab_size: got -1", "at least 1")),
    Case("FeedForward d_ff text", lambda: feed_forward.FeedForward(4, "8"), TypeError, ("d_ff: got '8'", "a whole number")),
    Case("Normalization eps negative", lambda: normalization.Normalization(4, -1e-6), ValueError, ("eps: got -1e-06", "≥ 0")),
    Case("RMSNorm eps negative", lambda: normalization.RMSNorm(4, -1e-6), ValueError, ("eps: got -1e-06", "≥ 0")),
    Case("Normalization eps nan", lambda: normalization.Normalization(4, float("nan")), ValueError, ("eps: got nan", "≥ 0")),
    Case("sinusoidal_table of odd width", lambda: positional_encoding.sinusoidal_table(8, 5), ValueError, ("d_model: got 5", "even")),
    Case("PositionalEncoding of odd width", lambda: positional_encoding.PositionalEncoding(8, 5), ValueError, ("d_model: got 5", "even")),
    Case("PositionalEncoding max_len 0", lambda: positional_encoding.PositionalEncoding(0, 4), ValueError, ("max_len: got 0", "at least 1")),
    Case("Normalization eps a str", lambda: normalization.Normalization(4, "1"), TypeError, ("eps: got '1'", "a number")),
    Case("RMSNorm eps a str", lambda: normalization.RMSNorm(4, "1"), TypeError, ("eps: got '1'", "a number")),
    Case("DecoderBlock dropout a str", lambda: decoder_block.DecoderBlock(4, 2, 4, dropout="0.1"), TypeError, ("dropout: got '0.1'", "a number")),
    Case("PositionalEncoding start 0.5", lambda: positional_encoding.PositionalEncoding(4, 4, start=0.5), TypeError, ("start: got 0.5", "a whole number")),
    Case("PositionalEncoding halves no", lambda: positional_encoding.PositionalEncoding(4, 4, halves="no"), TypeError, ("halves: got 'no'", "True or False")),
    Case("layer_norm eps None", lambda: s_normalization.layer_norm(np.ones((2, 4)), np.ones(4), np.ones(4), eps=None), TypeError, ("eps: got None", "a number")),
    Case("windowed_attention keys", lambda: multi_head.windowed_attention(*(torch.ones(1, 1, n, 2) for n in (5, 6, 6)), 2), ValueError, ("k: got shape (1, 1, 6, 2)", "(…, 5, any)")),
    Case("windowed_attention values", lambda: multi_head.windowed_attention(*(torch.ones(1, 1, n, 2) for n in (5, 5, 6)), 2), ValueError, ("v: got shape (1, 1, 6, 2)", "(…, 5, any)")),
    Case("Rotary at, negative", lambda: positional_encoding.Rotary(4, 9)(torch.zeros(3, 4), at=slice(-3, None)), ValueError, ("at: got slice(-3, None", "3 positions from 0 to 8")),
    Case("Rotary at, no position", lambda: positional_encoding.Rotary(4, 9)(torch.zeros(3, 4), at=torch.zeros(0, dtype=torch.long)), ValueError, ("at: got torch.int64 of shape (0,)", "whole numbers, 3 in a row")),
    Case("Rotary at, truth values", lambda: positional_encoding.Rotary(4, 9)(torch.zeros(3, 4), at=torch.ones(3).bool()), ValueError, ("at: got torch.bool of shape (3,)", "whole numbers, 3 in a row")),
    Case("Rotary at, fractions", lambda: positional_encoding.Rotary(4, 9)(torch.zeros(3, 4), at=torch.ones(3)), ValueError, ("at: got torch.float32 of shape (3,)", "whole numbers, 3 in a row")),
    Case("names_inside Linear", lambda: inside.names_inside(torch.nn.Linear(2, 2)), TypeError, ("model: got Linear", "a TransformerLM")),
    Case("run_with_cache names 5", lambda: model().run_with_cache(torch.tensor([1]), 5), TypeError, ("names: got int", "a name or several, or None")),
    Case("run_with_cache names [5]", lambda: model().run_with_cache(torch.tensor([1]), [5]), TypeError, ("names: got int", "names")),
    Case("MultiHeadAttention n_kv_heads", lambda: multi_head.MultiHeadAttention(8, 4, n_kv_heads=3), ValueError, ("n_kv_heads: got 3", "a divisor of n_heads = 4")),
    Case("MultiHeadAttention n_kv_heads 0", lambda: multi_head.MultiHeadAttention(8, 4, n_kv_heads=0), ValueError, ("n_kv_heads: got 0", "at least 1")),
    Case("MultiHeadAttention window 0", lambda: multi_head.MultiHeadAttention(8, 4, window=0), ValueError, ("window: got 0", "at least 1")),
    Case("MultiHeadAttention window, no mask", lambda: multi_head.MultiHeadAttention(8, 4, causal=False, window=3), ValueError, ("window: got 3", "None without the mask")),
    Case("windowed_attention window", lambda: multi_head.windowed_attention(z(1, 2, 3), z(1, 2, 3), z(1, 2, 3), 0), ValueError, ("window: got 0", "at least 1")),
    Case("windowed_attention groups", lambda: multi_head.windowed_attention(z(4, 2, 3), z(3, 2, 3), z(3, 2, 3), 2), ValueError, ("k: got shape (3, 2, 3)", "or fewer heads")),
    Case("split_heads rows", lambda: multi_head.split_heads(z(10, 4), 2), ValueError, ("weight: got 10 rows", "n_heads + 2·n_kv_heads = 6")),
    Case("split_heads groups", lambda: multi_head.split_heads(z(10, 4), 4, 2), ValueError, ("weight: got 10 rows", "n_heads + 2·n_kv_heads = 8")),
    Case("fuse_heads axes", lambda: multi_head.fuse_heads(*z(3, 4, 2)), ValueError, ("W_Q: got shape (4, 2)", "(h, d, k)")),
    Case("fuse_heads four axes", lambda: multi_head.fuse_heads(*z(3, 1, 2, 3, 4)), ValueError, ("W_Q: got shape (1, 2, 3, 4)", "(h, d, k)")),
    Case("windowed_attention without heads", lambda: multi_head.windowed_attention(z(5, 4), z(5, 4), z(5, 4), 2), ValueError, ("q: got shape (5, 4)", "(h, n, k)")),
    Case("attention_pattern mask of one row", lambda: attention.attention_pattern(z(3, 4), z(3, 4), mask=torch.ones(1, 3).bool()), ValueError, ("mask: got shape (1, 3)", "(3, 3)")),
    Case("attention_pattern mask of one axis", lambda: attention.attention_pattern(z(3, 4), z(3, 4), False, mask=torch.ones(3).bool()), ValueError, ("mask: got shape (3,)", "(3, 3)")),
    Case("attention mask of four axes", lambda: attention.attention(z(3, 4, 3, 4), z(3, 4, 3, 4), z(3, 4, 3, 4), False, mask=torch.ones(3, 1, 3, 3).bool()), ValueError, ("mask: got shape (3, 1, 3, 3)", "(3, 3)")),
    Case("CrossAttention key_mask of a batch", lambda: multi_head.CrossAttention(4, 2)(z(3, 4), z(5, 4), torch.ones(2, 5).bool()), ValueError, ("key_mask: got shape (2, 5)", "want (5)")),
    Case("Rotary at, a batch for one text", lambda: positional_encoding.Rotary(4, 9)(z(3, 4), at=torch.ones(2, 3).long()), ValueError, ("at: got torch.int64 of shape (2, 3)", "x of shape (3, 4)")),
    Case("token_log_probs fractions, not on the CPU", lambda: loss.token_log_probs(z(3, 5).to("meta"), z(3).to("meta")), TypeError, ("tokens: got dtype torch.float32", "integer tokens")),
    Case("chunked_loss weight axes", lambda: loss.chunked_loss(z(3, 4), z(1, 5, 4), tokens(0, 1, 2)), ValueError, ("weight: got shape (1, 5, 4)", "(V, d)")),
    Case("shift fractions", lambda: loss.shift(torch.tensor([1.5, 2.5])), TypeError, ("tokens: got dtype torch.float32", "integer tokens")),
    Case("directional_derivatives h 0", lambda: gradients.directional_derivatives(torch.nn.Linear(1, 1), lambda: z(1).sum(), h=0.0), ValueError, ("h: got 0.0", "> 0")),
    Case("spec feed_forward_backward activation", lambda: s_gradients.feed_forward_backward(*[np.ones((1, 1))] * 3, np.ones(1), np.ones((1, 1)), np.ones(1), "tanh"), ValueError, ("activation: got 'tanh'", "'gelu_tanh'")),
    Case("spec standardize_jacobian nothing", lambda: s_gradients.standardize_jacobian(np.ones(0)), ValueError, ("x: got no number", "at least one")),
    Case("spec standardize nothing", lambda: s_normalization.standardize(np.ones(0)), ValueError, ("x: got no number", "at least one")),
    Case("spec load_balancing_loss nothing", lambda: s_feed_forward.load_balancing_loss(np.ones((0, 3))), ValueError, ("R: got no rows", "at least one")),
    Case("spec duplicate_token_score shift", lambda: s_heads.duplicate_token_score(np.eye(3), ids(1, 1, 2), -1), ValueError, ("shift: got -1", "j + shift from 0 to 2")),
    Case("spec keep nothing", lambda: s_inference.keep(np.array([0.5, 0.5]), []), ValueError, ("kept: got no token with p > 0", "at least one")),
    Case("spec sample_chosen nothing", lambda: s_inference.sample_chosen(lambda y: np.zeros((len(y), 3)), ids(), [0.5], None), ValueError, ("x: got no tokens", "a start marker")),
    Case("spec word_pieces of one text", lambda: s_tokenization.word_pieces("ab", "abc"), TypeError, ("pieces: got one str", "a set of str")),
    Case("fuse_heads groups", lambda: multi_head.fuse_heads(z(4, 3, 2), z(3, 3, 2), z(3, 3, 2)), ValueError, ("W_K: got 3 heads", "a divisor of 4")),
    Case("fuse_heads values", lambda: multi_head.fuse_heads(z(4, 3, 2), z(2, 3, 2), z(4, 3, 2)), ValueError, ("W_V: got shape (4, 3, 2)", "(2, 3, 2)")),
    Case("to_layout unknown", lambda: notation.to_layout(heads_of(2), "llama"), ValueError, ("layout: got 'llama'", "one of 'tlm_book'")),
    Case("to_layout without W_Q", lambda: notation.to_layout({"W_V": z(2, 4, 2)}, "torch"), ValueError, ("weights: got the names W_V", "want W_Q")),
    Case("to_layout W_O", lambda: notation.to_layout(heads_of(2) | {"W_O": z(3, 4)}, "torch"), ValueError, ("W_O: got shape (3, 4)", "(4, d)")),
    Case("to_layout some biases", lambda: notation.to_layout(heads_of(2) | {"b_Q": z(2, 2)}, "torch"), ValueError, ("got 1 of b_Q", "all or none")),
    Case("from_layout without heads", lambda: notation.from_layout({}, 0, "gpt2"), ValueError, ("n_heads: got 0", "at least 1")),
    Case("from_layout without weights", lambda: notation.from_layout({"c_attn.bias": z(6)}, 1, "gpt2"), ValueError, ("state: got the names c_attn.bias", "want c_attn.weight")),
    Case("from_layout heads", lambda: notation.from_layout(notation.to_layout(heads_of(2), "gpt2"), 3, "gpt2"), ValueError, ("n_heads: got 3", "a divisor of 4")),
    Case("from_layout another layer", lambda: notation.from_layout({"c_attn.weight": z(4, 11), "c_proj.weight": z(4, 4)}, 2, "gpt2"), ValueError, ("state: got 11 columns and 4 rows of W_O",)),
    Case("to_layout bias of another shape", lambda: notation.to_layout(heads_of(2) | {f"b_{x}": z(2, 3) for x in "QKV"}, "torch"), ValueError, ("b_Q: got shape (2, 3)", "want (2, 2)")),
    Case("to_layout transposed bias", lambda: notation.to_layout(heads_of(3) | {f"b_{x}": z(2, 3) for x in "QKV"}, "gpt2"), ValueError, ("b_Q: got shape (2, 3)", "want (3, 2)")),
    Case("to_layout a stack of layers", lambda: notation.to_layout({name: W[None] for name, W in heads_of(2).items()}, "gpt2"), ValueError, ("W_V: got shape (1, 2, 4, 2)", "want (2, 4, 2)")),
    Case("from_layout no bias for keys", lambda: notation.from_layout({f"{x}_proj.{part}": z(4, 4)[0] if part == "bias" else z(4, 4) for x in ("q", "k", "v", "out") for part in ("weight", "bias") if (x, part) != ("k", "bias")}, 2, "marian"), ValueError, ("state: got 2 of 3 biases", "all or none")),
    Case("from_layout long bias", lambda: notation.from_layout(notation.to_layout(heads_of(2), "gpt2") | {"c_attn.bias": z(11)}, 2, "gpt2"), ValueError, ("c_attn.bias: got shape (11,)", "want (12,)")),
    Case("from_layout numbers", lambda: notation.from_layout(notation.to_layout(heads_of(2), "gpt2") | {"c_proj.weight": torch.tensor(1.0)}, 2, "gpt2"), ValueError, ("c_proj.weight: got shape ()", "a matrix")),
    Case("from_columns other heads", lambda: notation.from_columns(notation.to_columns(heads_of(2)) | {"W_o": z(1, 4, 2)}), ValueError, ("W_O: got shape (2, 4)", "(4, d)")),
    Case("from_columns rows", lambda: notation.from_columns(notation.to_columns(heads_of(2)) | {"W_q": z(4)}), ValueError, ("W_q: got shape (4,)", "(h, r, c)")),
    Case("to_columns heads", lambda: notation.to_columns(heads_of(2) | {"W_Q": z(1, 4, 2)}), ValueError, ("W_Q: got shape (1, 4, 2)", "(2, 4, k)")),
    Case("from_columns without W_o", lambda: notation.from_columns({"W_q": z(2, 2, 4)}), ValueError, ("columns: got the names W_q", "want W_k")),
    # layers: inputs
    Case("Embedding token negative", lambda: embedding.Embedding(5, 4)(tokens(0, -1)), IndexError, ("tokens: got a token -1", "from 0 to 4")),
    Case("Embedding token too big", lambda: embedding.Embedding(5, 4)(tokens(0, 5)), IndexError, ("tokens: got a token 5", "vocab_size = 5")),
    Case("Embedding float tokens", lambda: embedding.Embedding(5, 4)(z(3)), TypeError, ("tokens: got dtype torch.float32", "integer")),
    Case("Embedding bool tokens", lambda: embedding.Embedding(5, 4)(z(3, dtype=torch.bool)), TypeError, ("tokens: got dtype torch.bool", "integer")),
    Case("Embedding list", lambda: embedding.Embedding(5, 4)([1, 2]), TypeError, ("tokens: got list", "tensor")),
    Case("Embedding uint8", lambda: embedding.Embedding(5, 4)(z(3, dtype=torch.uint8)), TypeError, ("tokens: got dtype torch.uint8", "int64")),
    Case("linear_attention one axis", lambda: linear_attention.linear_attention(z(3), z(3), z(3), z(3), z(3)), ValueError, ("q: got shape (3,)", "(n, k)")),
    Case("linear_attention no row", lambda: state_read(q=z(0, 2)), ValueError, ("q: got 0 rows", "at least one")),
    Case("linear_attention k rows", lambda: state_read(k=z(2, 2)), ValueError, ("k: got shape (2, 2)", "(3, 2)")),
    Case("linear_attention k width", lambda: state_read(k=z(3, 4)), ValueError, ("k: got shape (3, 4)", "(3, 2)")),
    Case("linear_attention k batch", lambda: state_read(k=z(1, 3, 2)), ValueError, ("k: got shape (1, 3, 2)", "(3, 2)")),
    Case("linear_attention v rows", lambda: state_read(v=z(4, 5)), ValueError, ("v: got shape (4, 5)", "(3, v)")),
    Case("linear_attention log_decay", lambda: state_read(log_decay=z(3, 1)), ValueError, ("log_decay: got shape (3, 1)", "(3)")),
    Case("linear_attention strength", lambda: state_read(strength=z(2)), ValueError, ("strength: got shape (2,)", "(3)")),
    Case("linear_attention state", lambda: state_read(state=z(5, 2)), ValueError, ("state: got shape (5, 2)", "(2, 5)")),
    Case("linear_attention rule", lambda: state_read(rule="gated"), ValueError, ("rule: got 'gated'", "'sum'", "'delta'")),
    Case("linear_attention chunk 0", lambda: state_read(chunk=0), ValueError, ("chunk: got 0", "at least 1")),
    Case("LinearAttention heads", lambda: linear_attention.LinearAttention(4, 3), ValueError, ("n_heads: got 3", "a divisor of d_model = 4")),
    Case("LinearAttention d_head", lambda: linear_attention.LinearAttention(4, 2, 0), ValueError, ("d_head: got 0", "at least 1")),
    Case("LinearAttention rule", lambda: linear_attention.LinearAttention(4, 2, rule="both"), ValueError, ("rule: got 'both'", "'sum'")),
    Case("LinearAttention strength 0", lambda: linear_attention.LinearAttention(4, 2, max_strength=0), ValueError, ("max_strength: got 0", "(0, 2]")),
    Case("LinearAttention strength 3", lambda: linear_attention.LinearAttention(4, 2, max_strength=3), ValueError, ("max_strength: got 3", "(0, 2]")),
    Case("LinearAttention strength text", lambda: linear_attention.LinearAttention(4, 2, max_strength="1"), TypeError, ("max_strength: got '1'", "a number")),
    Case("LinearAttention eps", lambda: linear_attention.LinearAttention(4, 2, eps=-1.0), ValueError, ("eps: got -1.0", "a number ≥ 0")),
    Case("LinearAttention width", lambda: linear_attention.LinearAttention(4, 2)(z(3, 5)), ValueError, ("x: got shape (3, 5)", "(n, 4)")),
    Case("LinearAttention one axis", lambda: linear_attention.LinearAttention(4, 2)(z(4)), ValueError, ("x: got shape (4,)", "(n, 4)")),
    Case("LinearAttention no row", lambda: linear_attention.LinearAttention(4, 2)(z(0, 4)), ValueError, ("got 0 rows", "at least one")),
    Case("LinearAttention state", lambda: linear_attention.LinearAttention(4, 2).read(z(3, 4), z(1, 2, 2)), ValueError, ("state: got shape (1, 2, 2)", "(2, 2, 2)")),
    Case("answer_log_probs one row", lambda: rewards.answer_log_probs(model(), tokens(1, 2, 3), 1), ValueError, ("texts: got shape (3,)", "(B, m)")),
    Case("answer_log_probs no question", lambda: rewards.answer_log_probs(model(), tokens([1, 2, 3]), 0), ValueError, ("n: got 0", "from 1 to 2")),
    Case("answer_log_probs no answer", lambda: rewards.answer_log_probs(model(), tokens([1, 2, 3]), 3), ValueError, ("n: got 3", "from 1 to 2")),
    Case("answer_log_probs n half", lambda: rewards.answer_log_probs(model(), tokens([1, 2, 3]), 1.5), TypeError, ("n: got 1.5", "a whole number")),
    Case("answer_log_probs token", lambda: rewards.answer_log_probs(model(), tokens([1, 2, 999]), 1), IndexError, ("tokens: got a token 999",)),
    Case("answer_log_probs of a list", lambda: rewards.answer_log_probs(model(), [[1, 2, 3]], 1), TypeError, ("texts: got list", "tensor")),
    Case("answer_log_probs stop", lambda: rewards.answer_log_probs(model(), tokens([1, 2, 3]), 1, stop=999), IndexError, ("stop: got 999", "None or a token")),
    Case("advantages of a list", lambda: rewards.advantages([1.0, 2.0]), TypeError, ("r: got list", "a tensor")),
    Case("advantages of one", lambda: rewards.advantages(z(3, 1)), ValueError, ("r: got shape (3, 1)", "at least 2 answers")),
    Case("advantages of integers", lambda: rewards.advantages(tokens(1, 2)), TypeError, ("r: got dtype torch.int64", "floats")),
    Case("advantages scale", lambda: rewards.advantages(z(3), scale=1), TypeError, ("scale: got 1", "True or False")),
    Case("preference_loss beta 0", lambda: rewards.preference_loss(z(2), z(2), z(2), z(2), 0), ValueError, ("beta: got 0", "a positive number")),
    Case("preference_loss beta text", lambda: rewards.preference_loss(z(2), z(2), z(2), z(2), "a"), TypeError, ("beta: got 'a'", "a number")),
    Case("preference_loss shapes", lambda: rewards.preference_loss(z(2), z(3), z(2), z(2)), ValueError, ("worse: got shape (3,)", "(2)")),
    Case("preference_loss before", lambda: rewards.preference_loss(z(2), z(2), z(2), z(1)), ValueError, ("worse_before: got shape (1,)", "(2)")),
    Case("reward_step one question", lambda: reward_step(prompts=tokens(1, 2)), ValueError, ("prompts: got shape (2,)", "(B, n)")),
    Case("reward_step of a list", lambda: reward_step(prompts=[[1, 2]]), TypeError, ("prompts: got list", "a tensor of tokens")),
    Case("reward_step token", lambda: reward_step(prompts=tokens([1, 999])), IndexError, ("tokens: got a token 999",)),
    Case("reward_step no new tokens", lambda: reward_step(n_new=0), ValueError, ("n_new: got 0", "at least 1")),
    Case("reward_step too long", lambda: reward_step(n_new=999), ValueError, ("n_new: got 999", "max_len")),
    Case("reward_step one answer", lambda: reward_step(answers=1), ValueError, ("answers: got 1", "at least 2")),
    Case("reward_step answers half", lambda: reward_step(answers=2.5), TypeError, ("answers: got 2.5", "a whole number")),
    Case("reward_step beta", lambda: reward_step(beta=-1.0), ValueError, ("beta: got -1.0", "≥ 0")),
    Case("reward_step before", lambda: reward_step(beta=1.0), TypeError, ("before: got NoneType", "the model to stay near")),
    Case("reward_step scale", lambda: reward_step(scale=None), TypeError, ("scale: got None", "True or False")),
    Case("reward_step a reward short", lambda: reward_step(lambda texts: [1.0]), ValueError, ("reward: got shape (1,) in return", "(16), a number for each text")),
    Case("reward_step a reward nan", lambda: reward_step(lambda texts: z(len(texts)) + float("nan")), ValueError, ("reward: got a number that is not finite", "finite rewards")),
    Case("reward_step a reward of texts", lambda: reward_step(lambda texts: ["good"] * len(texts)), TypeError, ("reward: got list in return", "a number for each text")),
    Case("reward_step no reward", lambda: reward_step(None), TypeError, ("reward: got None", "a function")),
    Case("words of a number", lambda: word_vectors.words(3), TypeError, ("text: got int", "str")),
    Case("skip_gram_pairs window 0", lambda: word_vectors.skip_gram_pairs(tokens(1, 2), 0), ValueError, ("window: got 0", "at least 1")),
    Case("skip_gram_pairs window half", lambda: word_vectors.skip_gram_pairs(tokens(1, 2), 0.5), TypeError, ("window: got 0.5", "a whole number")),
    Case("skip_gram_pairs several rows", lambda: word_vectors.skip_gram_pairs(torch.zeros(2, 3, dtype=torch.long), 1), ValueError, ("tokens: got shape (2, 3)", "one row")),
    Case("skip_gram_pairs of floats", lambda: word_vectors.skip_gram_pairs(torch.zeros(3), 1), TypeError, ("tokens: got dtype torch.float32", "integer tokens")),
    Case("sgns_loss negatives for several batches", lambda: word_vectors.sgns_loss(z(4, 2), z(4, 2), z(3, 4, 5, 2)), ValueError, ("N: got shape (3, 4, 5, 2)", "3 axes")),
    Case("sgns_loss widths", lambda: word_vectors.sgns_loss(z(4, 2), z(4, 3), z(4, 5, 2)), ValueError, ("c: got shape (4, 3)", "(4, 2)")),
    Case("sgns_loss negatives", lambda: word_vectors.sgns_loss(z(4, 2), z(4, 2), z(5, 2)), ValueError, ("N: got shape (5, 2)", "(4, k, 2)")),
    Case("save_gpt2_tokenizer of a number", lambda: tokenization.save_gpt2_tokenizer(5, "folder"), TypeError, ("tokenizer: got int", "a Tokenizer")),
    Case("train_by_tokenizers pattern of a number", lambda: tokenization.train_by_tokenizers(["a b"], 3, 5), TypeError, ("pattern: got int", "str")),
    Case("decode of true and false", lambda: tokenizer().decode(torch.tensor([True, False])), TypeError, ("token: got tensor(True)", "an integer")),
    Case("ngram_answers of one story", lambda: judging.ngram_answers(None, tokenizer(), "Who? Ben.", None), TypeError, ("texts: got one str", "a list of stories")),
    Case("rightly_answered at_once below 0", lambda: judging.rightly_answered(model(), tokenizer(), [], -1), ValueError, ("at_once: got -1", "at least 1")),
    Case("written_stories none", lambda: judging.written_stories(model(), tokenizer(), 0), ValueError, ("count: got 0", "at least 1")),
    Case("HubTokenizer of a list", lambda: tokenization.HubTokenizer([]), TypeError, ("state: got list", "the content of a tokenizer.json")),
    Case("HubTokenizer without merges", lambda: without_merges(), ValueError, ("state: got something else (no field 'merges')", "the content of a tokenizer.json")),
    Case("SkipGram window 0", lambda: word_vectors.SkipGram(window=0), ValueError, ("window: got 0", "at least 1")),
    Case("SkipGram d_model half", lambda: word_vectors.SkipGram(d_model=2.5), TypeError, ("d_model: got 2.5", "a whole number")),
    Case("SkipGram power 2", lambda: word_vectors.SkipGram(power=2), ValueError, ("power: got 2", "from 0 to 1")),
    Case("SkipGram penalty negative", lambda: word_vectors.SkipGram(penalty=-1), ValueError, ("penalty: got -1", "≥ 0")),
    Case("SkipGram penalty nan", lambda: word_vectors.SkipGram(penalty=float("nan")), ValueError, ("penalty: got nan", "≥ 0")),
    Case("SkipGram seed half", lambda: word_vectors.SkipGram(seed=1.5), TypeError, ("seed: got 1.5", "a whole number")),
    Case("SkipGram lr text", lambda: word_vectors.SkipGram(lr="a"), TypeError, ("lr: got 'a'", "a number")),
    Case("SkipGram seed large", lambda: word_vectors.SkipGram(seed=2**64), ValueError, ("seed: got 18446744073709551616", "2^64 − 1")),
    Case("SkipGram subsample text", lambda: word_vectors.SkipGram(subsample="x"), TypeError, ("subsample: got 'x'", "a number")),
    Case("SkipGram misspelled", lambda: word_vectors.SkipGram(d_modle=3), TypeError, ("d_modle: got an unknown argument", "did you mean d_model?")),
    Case("SkipGram lr 0", lambda: word_vectors.SkipGram(lr=0), ValueError, ("lr: got 0", "positive")),
    Case("SkipGram subsample 0", lambda: word_vectors.SkipGram(subsample=0), ValueError, ("subsample: got 0", "None or a positive")),
    Case("rhyme words that are several tokens", lambda: heads.word_tokens(tokenizer()), ValueError, ("tokenizer: got a word of ", "one for each word")),
    Case("word_vectors of one str", lambda: word_vectors.word_vectors("salt and salt"), TypeError, ("texts: got one str", "several texts")),
    Case("word_vectors settings in a dict", lambda: word_vectors.word_vectors(["salt"], {"epochs": 1}), TypeError, ("settings: got dict", "a SkipGram")),
    Case("word_vectors of numbers", lambda: word_vectors.word_vectors([1, 2]), TypeError, ("text: got int", "str")),
    Case("word_vectors without words", lambda: word_vectors.word_vectors(["a b c"]), ValueError, ("texts: got 0 words", "5 times", "min_count")),
    Case("word_vectors without pairs", lambda: word_vectors.word_vectors(["a", "b"], word_vectors.SkipGram(min_count=1)), ValueError, ("texts: got no pair",)),
    Case("WordVectors unknown word", lambda: two_words().number("salt"), ValueError, ("word: got 'salt'", "one of the 2 words")),
    Case("WordVectors nearest none", lambda: two_words().nearest("a", 0), ValueError, ("n: got 0", "at least 1")),
    Case("WordVectors nearest among none", lambda: two_words().nearest("a", among=0), ValueError, ("among: got 0", "at least 1")),
    Case("PositionalEncoding too long", lambda: positional_encoding.PositionalEncoding(3, 4)(z(4, 4)), ValueError, ("x: got 4 rows", "max_len = 3")),
    Case("PositionalEncoding no rows", lambda: positional_encoding.PositionalEncoding(3, 4)(z(2, 0, 4)), ValueError, ("x: got 0 rows", "from 1 to")),
    Case("PositionalEncoding width", lambda: positional_encoding.PositionalEncoding(3, 4)(z(2, 6)), ValueError, ("x: got shape (2, 6)", "(n, 4)")),
    Case("PositionalEncoding width 1", lambda: positional_encoding.PositionalEncoding(3, 4)(z(2, 1)), ValueError, ("x: got shape (2, 1)", "(n, 4)")),
    Case("PositionalEncoding of tokens", lambda: positional_encoding.PositionalEncoding(3, 4)(tokens(1, 2)), TypeError, ("x: got dtype torch.int64", "floating")),
    Case("Rotary of odd width", lambda: positional_encoding.Rotary(7, 9), ValueError, ("d_head: got 7", "even")),
    Case("Rotary layout", lambda: positional_encoding.Rotary(8, 9, layout="pairs"), ValueError, ("layout: got 'pairs'", "'interleaved'")),
    Case("Rotary base 0", lambda: positional_encoding.Rotary(8, 9, base=0.0), ValueError, ("base: got 0.0", "> 0")),
    Case("Rotary base text", lambda: positional_encoding.Rotary(8, 9, base="1e4"), TypeError, ("base: got '1e4'", "a number")),
    Case("Rotary scaling of a file", lambda: positional_encoding.Rotary(8, 9, scaling={"rope_type": "linear", "factor": 2.0}), TypeError, ("scaling: got {'rope_type'", "None or a RopeScaling")),
    Case("Rotary max_len 0", lambda: positional_encoding.Rotary(8, 0), ValueError, ("max_len: got 0", "at least 1")),
    Case("Rotary width", lambda: positional_encoding.Rotary(8, 9)(z(3, 6)), ValueError, ("x: got shape (3, 6)", "(n, 8)")),
    Case("Rotary of tokens", lambda: positional_encoding.Rotary(2, 9)(tokens(1, 2)), TypeError, ("x: got dtype torch.int64", "floating")),
    Case("Rotary too long", lambda: positional_encoding.Rotary(2, 9)(z(3, 2), 7), ValueError, ("at: got 7", "3 positions from 0 to 8")),
    Case("Rotary before the beginning", lambda: positional_encoding.Rotary(2, 9)(z(3, 2), -4), ValueError, ("at: got -4", "3 positions from 0 to 8")),
    Case("Rotary slice", lambda: positional_encoding.Rotary(2, 9)(z(3, 2), slice(1, 3)), ValueError, ("at: got slice(1, 3", "3 positions")),
    Case("Rotary positions", lambda: positional_encoding.Rotary(2, 9)(z(3, 2), tokens(1, 2, 9)), ValueError, ("at: got position 9", "from 0 to 8 (max_len = 9)")),
    Case("Rotary positions before the beginning", lambda: positional_encoding.Rotary(2, 9)(z(3, 2), tokens(2, -1, 1)), ValueError, ("at: got position -1", "from 0 to 8 (max_len = 9)")),
    Case("RopeScaling kind", lambda: positional_encoding.RopeScaling("yarn", 2.0), ValueError, ("kind: got 'yarn'", "'llama3'")),
    Case("RopeScaling factor", lambda: positional_encoding.RopeScaling("linear", 0.5), ValueError, ("factor: got 0.5", "≥ 1")),
    Case("RopeScaling without length", lambda: positional_encoding.RopeScaling("llama3", 8.0), TypeError, ("original_max_len: got None", "whole")),
    Case("RopeScaling bounds", lambda: positional_encoding.RopeScaling("llama3", 8.0, 4.0, 1.0, 9), ValueError, ("low_freq_factor: got 4.0", "low < high")),
    Case("RopeScaling equal bounds", lambda: positional_encoding.RopeScaling("llama3", 8.0, 4.0, 4.0, 9), ValueError, ("low_freq_factor: got 4.0 (high_freq_factor 4.0)", "low < high")),
    Case("RopeScaling factor text", lambda: positional_encoding.RopeScaling("linear", "2"), TypeError, ("factor: got '2'", "a number")),
    Case("RopeScaling bound text", lambda: positional_encoding.RopeScaling("llama3", 8.0, "1", original_max_len=9), TypeError, ("low_freq_factor: got '1'", "a number")),
    Case("PositionalEncoding size of numpy", lambda: positional_encoding.PositionalEncoding(np.int64(4), 4), TypeError, ("max_len: got np.int64(4)", "an int")),
    Case("PositionalNetwork form", lambda: graph_networks.PositionalNetwork(3, 4, 2, "both"), ValueError, ("form: got 'both'", "'joint', 'sum'")),
    Case("PositionalNetwork d_hidden 0", lambda: graph_networks.PositionalNetwork(3, 4, 0), ValueError, ("d_hidden: got 0", "at least 1")),
    Case("PositionalNetwork too long", lambda: graph_networks.PositionalNetwork(3, 4, 2)(z(4, 4)), ValueError, ("x: got 4 rows", "max_len = 3")),
    Case("PositionalNetwork no rows", lambda: graph_networks.PositionalNetwork(3, 4, 2)(z(0, 4)), ValueError, ("x: got 0 rows", "from 1 to")),
    Case("PositionalNetwork width", lambda: graph_networks.PositionalNetwork(3, 4, 2)(z(2, 5)), ValueError, ("x: got shape (2, 5)", "(n, 4)")),
    Case("PositionalNetwork of tokens", lambda: graph_networks.PositionalNetwork(3, 4, 2)(tokens(1, 2)), TypeError, ("x: got dtype torch.int64", "floating")),
    Case("RMSNorm width", lambda: normalization.RMSNorm(4)(z(2, 6)), ValueError, ("x: got shape (2, 6)", "4)")),
    Case("RMSNorm integers", lambda: normalization.RMSNorm(4)(z(2, 4, dtype=torch.long)), TypeError, ("x: got dtype torch.int64", "floating")),
    Case("GatedFeedForward size", lambda: feed_forward.GatedFeedForward(4, 0), ValueError, ("d_ff: got 0", "at least 1")),
    Case("GatedFeedForward activation", lambda: feed_forward.GatedFeedForward(4, 8, "tanh"), ValueError, ("activation: got 'tanh'", "'silu'")),
    Case("GatedFeedForward width", lambda: feed_forward.GatedFeedForward(4, 8)(z(2, 6)), ValueError, ("x: got shape (2, 6)", "4)")),
    Case("MixtureOfExperts size", lambda: feed_forward.MixtureOfExperts(4, 8, 0), ValueError, ("n_experts: got 0", "at least 1")),
    Case("MixtureOfExperts used", lambda: feed_forward.MixtureOfExperts(4, 8, 2, 3), ValueError, ("n_experts_used: got 3", "at most n_experts = 2")),
    Case("MixtureOfExperts activation", lambda: feed_forward.MixtureOfExperts(4, 8, 2, 1, "tanh"), ValueError, ("activation: got 'tanh'", "'silu'")),
    Case("MixtureOfExperts width", lambda: feed_forward.MixtureOfExperts(4, 8, 2)(z(2, 6)), ValueError, ("x: got shape (2, 6)", "4)")),
    Case("MixtureOfExperts balance", lambda: feed_forward.MixtureOfExperts(4, 8, 2).load_balancing_loss(z(2, 6)), ValueError, ("x: got shape (2, 6)", "4)")),
    Case("MixtureOfExperts route", lambda: feed_forward.MixtureOfExperts(4, 8, 2).route(z(2, 6)), ValueError, ("x: got shape (2, 6)", "4)")),
    Case("Normalization width", lambda: normalization.Normalization(4)(z(2, 6)), ValueError, ("x: got shape (2, 6)", "4)")),
    Case("Normalization width 1", lambda: normalization.Normalization(4)(z(2, 1)), ValueError, ("x: got shape (2, 1)", "4)")),
    Case("Normalization inside width", lambda: normalization.Normalization(4, eps_mode="inside")(z(2, 6)), ValueError, ("x: got shape (2, 6)", "4)")),
    Case("Normalization of an array", lambda: normalization.Normalization(4)(np.zeros((2, 4))), TypeError, ("x: got ndarray", "a tensor")),
    Case("Rotary of an array", lambda: positional_encoding.Rotary(4, 9)(np.zeros((2, 4))), TypeError, ("x: got ndarray", "a tensor")),
    Case("Normalization integers", lambda: normalization.Normalization(4)(z(2, 4, dtype=torch.long)), TypeError, ("x: got dtype torch.int64", "floating")),
    Case("FeedForward width", lambda: feed_forward.FeedForward(4, 8)(z(2, 6)), ValueError, ("x: got shape (2, 6)", "4)")),
    Case("CausalAttention width", lambda: attention.CausalAttention(4)(z(2, 6)), ValueError, ("x: got shape (2, 6)", "(n, 4)")),
    Case("CausalAttention one row without axis", lambda: attention.CausalAttention(4)(z(4)), ValueError, ("x: got shape (4,)", "(n, 4)")),
    Case("CausalAttention.attention_weights width", lambda: attention.CausalAttention(4).attention_weights(z(2, 6)), ValueError, ("x: got shape (2, 6)", "(n, 4)")),
    Case("MultiHeadAttention width", lambda: multi_head.MultiHeadAttention(4, 2)(z(2, 6)), ValueError, ("x: got shape (2, 6)", "(n, 4)")),
    Case("MultiHeadAttention.attention_weights width", lambda: multi_head.MultiHeadAttention(4, 2).attention_weights(z(2, 6)), ValueError, ("x: got shape (2, 6)", "(n, 4)")),
    Case("DecoderBlock width", lambda: decoder_block.DecoderBlock(4, 2, 4)(z(1, 2, 6)), ValueError, ("x: got shape (1, 2, 6)", "(…, n, 4)")),
    Case("attention widths of q and k", lambda: attend(z(2, 3), z(2, 4), z(2, 3)), ValueError, ("k: got shape (2, 4)", "(m, 3)")),
    Case("attention numbers of keys and values", lambda: attend(z(2, 3), z(2, 3), z(5, 3)), ValueError, ("v: got shape (5, 3)", "(2, v)")),
    Case("attention batches", lambda: attend(z(2, 3, 4, 2, 1), z(3, 2, 4, 2, 1), z(3, 2, 4, 2, 1)), ValueError, ("k: got shape (3, 2, 4, 2, 1)",)),
    Case("attention groups", lambda: attend(z(4, 2, 3), z(3, 2, 3), z(3, 2, 3)), ValueError, ("k: got shape (3, 2, 3)", "the leading axes of q, (4,), or fewer heads")),
    Case("attention groups of values", lambda: attend(z(4, 2, 3), z(2, 2, 3), z(4, 2, 3)), ValueError, ("v: got shape (4, 2, 3)", "the leading axes of k, (2,)")),
    Case("token_log_probs list", lambda: loss.token_log_probs(z(2, 3), [1, 2]), TypeError, ("tokens: got list", "a tensor")),
    Case("weighted_loss numpy", lambda: loss.weighted_loss(np.zeros((2, 3)), tokens(0, 1)), TypeError, ("logits: got ndarray", "a tensor")),
    Case("weighted_loss numpy weights", lambda: loss.weighted_loss(z(2, 3), tokens(0, 1), np.ones(2)), TypeError, ("weights: got ndarray", "a tensor")),
    Case("weighted_loss list", lambda: loss.weighted_loss(z(2, 3), [1, 2]), TypeError, ("tokens: got list", "a tensor")),
    Case("attention mask of numbers", lambda: attention.attention(z(2, 3), z(2, 3), z(2, 3), False, None, torch.ones(2, 2)), TypeError, ("mask: got dtype torch.float32", "True and False")),
    Case("attention_pattern mask of numbers", lambda: attention.attention_pattern(z(2, 3), z(2, 3), False, None, tokens(1, 1)), TypeError, ("mask: got dtype torch.int64", "True and False")),
    Case("CrossAttention key_mask of numbers", lambda: multi_head.CrossAttention(4, 2)(z(2, 4), z(2, 4), tokens(1, 1)), TypeError, ("key_mask: got dtype torch.int64", "True and False")),
    Case("CrossAttention scale", lambda: multi_head.CrossAttention(4, 2, scale=0.0), ValueError, ("scale: got 0.0", "None or a number > 0")),
    Case("attention mask shape", lambda: attention.attention(z(2, 3), z(2, 3), z(2, 3), False, None, torch.ones(3, 2, dtype=torch.bool)), ValueError, ("mask: got shape (3, 2)", "(2, 2)")),
    Case("attention mask and causal", lambda: attention.attention(z(2, 3), z(2, 3), z(2, 3), mask=torch.ones(2, 2, dtype=torch.bool)), ValueError, ("causal: got True", "False beside a mask")),
    Case("attention without keys", lambda: attend(z(2, 3), z(0, 3), z(0, 3)), ValueError, ("k: got 0 rows", "at least one key")),
    Case("attention_pattern without keys", lambda: attention.attention_pattern(z(2, 3), z(0, 3)), ValueError, ("k: got 0 rows", "at least one key")),
    Case("attention_pattern widths", lambda: attention.attention_pattern(z(2, 3), z(2, 4)), ValueError, ("k: got shape (2, 4)", "(m, 3)")),
    Case("causal_mask one axis", lambda: operators.causal_mask(z(3)), ValueError, ("scores: got shape (3,)", "(n, m)")),
    Case("causal_mask of integers", lambda: operators.causal_mask(z(3, 3, dtype=torch.long)), TypeError, ("scores: got dtype torch.int64", "floating")),
    # the model
    Case("TransformerLM token negative", lambda: model()(tokens(3, -2)), IndexError, ("tokens: got a token -2", f"vocab_size = {V}")),
    Case("TransformerLM token too big", lambda: model()(tokens(3, V)), IndexError, (f"tokens: got a token {V}", f"from 0 to {V - 1}")),
    Case("TransformerLM float tokens", lambda: model()(z(3)), TypeError, ("tokens: got dtype torch.float32", "integer")),
    Case("TransformerLM too long", lambda: model()(tokens(*range(M + 1))), ValueError, (f"tokens: got {M + 1} rows", f"max_len = {M}")),
    Case("TransformerLM empty", lambda: model()(z(2, 0, dtype=torch.long)), ValueError, ("tokens: got 0 rows", "from 1 to")),
    Case("TransformerLM a number", lambda: model()(torch.tensor(3)), ValueError, ("tokens: got shape ()", "(n)")),
    Case("TransformerLM list", lambda: model()([1, 2]), TypeError, ("tokens: got list", "tensor")),
    Case("TransformerLM numpy", lambda: model()(ids(1, 2)), TypeError, ("tokens: got ndarray", "tensor")),
    Case("TransformerLM.attention_weights too long", lambda: model().attention_weights(tokens(*range(M + 1))), ValueError, (f"tokens: got {M + 1} rows",)),
    Case("TransformerLM of a number", lambda: TransformerLM(4), TypeError, ("config: got int", "Config")),
    Case("count_parameters of a dict", lambda: transformer_lm.count_parameters({"d_model": 4}), TypeError, ("config: got dict", "Config")),
    # loss
    Case("weighted_loss all weights zero", lambda: loss.weighted_loss(z(2, 3), tokens(0, 1), z(2)), ValueError, ("weights: got", "sum to zero", "positive")),
    Case("weighted_loss row of zero weights", lambda: loss.weighted_loss(z(2, 1, 3), tokens(0, 1)[:, None], tokens(1, 0)[:, None].float(), "row_mean"),
         ValueError, ("weights: got", "sum to zero", "positive")),
    Case("weighted_loss weights of another shape", lambda: loss.weighted_loss(z(2, 3), tokens(0, 1), torch.ones(3)), ValueError, ("weights: got shape (3,)", "(2)")),
    Case("weighted_loss weights broadcast", lambda: loss.weighted_loss(z(2, 3), tokens(0, 1), torch.ones(1)), ValueError, ("weights: got shape (1,)", "(2)")),
    Case("weighted_loss weights with more axes", lambda: loss.weighted_loss(z(2, 3), tokens(0, 1), torch.ones(4, 2)), ValueError, ("weights: got shape (4, 2)",)),
    Case("weighted_loss negative weight", lambda: loss.weighted_loss(z(2, 3), tokens(0, 1), torch.tensor([2.0, -1.0])), ValueError, ("weights: got", "≥ 0")),
    Case("weighted_loss weight nan", lambda: loss.weighted_loss(z(2, 3), tokens(0, 1), torch.tensor([1.0, float("nan")])), ValueError, ("weights: got",)),
    Case("weighted_loss tokens of another shape", lambda: loss.weighted_loss(z(2, 3), tokens(0, 1, 2)), ValueError, ("tokens: got shape (3,)", "(2)")),
    Case("token_log_probs tokens of another shape", lambda: loss.token_log_probs(z(2, 3), tokens(0, 1, 2)), ValueError, ("tokens: got shape (3,)", "(2)")),
    Case("token_log_probs too many axes", lambda: loss.token_log_probs(z(2, 3), torch.zeros(4, 2, dtype=torch.long)), ValueError, ("tokens: got shape (4, 2)",)),
    Case("token_log_probs token too big", lambda: loss.token_log_probs(z(2, 3), tokens(0, 3)), IndexError, ("tokens: got a token 3", "from 0 to 2")),
    Case("token_log_probs token -100", lambda: loss.token_log_probs(z(2, 3), tokens(0, -100)), IndexError, ("tokens: got a token -100", "from 0 to 2")),
    Case("weighted_loss token -100", lambda: loss.weighted_loss(z(2, 3), tokens(0, -100)), IndexError, ("tokens: got a token -100", "from 0 to 2")),
    Case("token_log_probs float tokens", lambda: loss.token_log_probs(z(2, 3), z(2)), TypeError, ("tokens: got dtype torch.float32", "integer")),
    Case("weighted_loss empty", lambda: loss.weighted_loss(z(0, 3), tokens()), ValueError, ("tokens: got",)),
    Case("shift start half", lambda: loss.shift(tokens(1, 2), 2.7), TypeError, ("start: got 2.7", "a whole number")),
    Case("shift start True", lambda: loss.shift(tokens(1, 2), True), TypeError, ("start: got True", "a whole number")),
    Case("shift a list", lambda: loss.shift([1, 2, 3]), TypeError, ("tokens: got list", "a tensor of integers")),
    Case("chunked_loss widths", lambda: loss.chunked_loss(z(2, 3), z(5, 4), tokens(0, 1)), ValueError, ("hidden: got shape (2, 3)", "(n, 4)")),
    Case("chunked_loss weights in a list", lambda: loss.chunked_loss(z(2, 3), z(5, 3), tokens(0, 1), [1, 2]), TypeError, ("weights: got list", "a tensor")),
    Case("chunked_loss hidden numpy", lambda: loss.chunked_loss(np.zeros((2, 3)), z(5, 3), tokens(0, 1)), TypeError, ("hidden: got ndarray", "a tensor")),
    Case("weighted_loss of one position", lambda: loss.weighted_loss(z(3), tokens(0)[0]), ValueError, ("logits: got shape (3,)", "(n, V)")),
    Case("token_log_probs of a list", lambda: loss.token_log_probs([[1.0]], tokens(0)), TypeError, ("logits: got list", "a tensor")),
    Case("chunked_loss bias", lambda: loss.chunked_loss(z(2, 3), z(5, 3), tokens(0, 1), bias=z(4)), ValueError, ("bias: got shape (4,)", "(5)")),
    Case("chunked_loss tokens of another shape", lambda: loss.chunked_loss(z(2, 3), z(5, 3), tokens(0, 1, 2)), ValueError, ("tokens: got shape (3,)", "(2)")),
    Case("chunked_loss token too big", lambda: loss.chunked_loss(z(2, 3), z(5, 3), tokens(0, 5)), IndexError, ("tokens: got a token 5", "from 0 to 4")),
    Case("chunked_loss no token", lambda: loss.chunked_loss(z(0, 3), z(5, 3), tokens()), ValueError, ("tokens: got no token", "at least one")),
    Case("chunked_loss all weights zero", lambda: loss.chunked_loss(z(2, 3), z(5, 3), tokens(0, 1), z(2)), ValueError, ("weights: got", "sum to zero", "positive")),
    Case("chunked_loss weights with gradient", lambda: loss.chunked_loss(z(2, 3), z(5, 3), tokens(0, 1), torch.ones(2, requires_grad=True)), ValueError, ("weights: got", "constants")),
    Case("chunked_loss chunk 0", lambda: loss.chunked_loss(z(2, 3), z(5, 3), tokens(0, 1), chunk=0), ValueError, ("chunk: got 0", "at least 1")),
    Case("chunked_loss reduction", lambda: loss.chunked_loss(z(2, 3), z(5, 3), tokens(0, 1), reduction="mean"), ValueError, ("reduction: got 'mean'", "row_mean")),
    # specification
    Case("spec embed token negative", lambda: s_embedding.embed(ids(0, -1), X(3, 2)), IndexError, ("t: got a token -1", "from 0 to 2")),
    Case("spec embed token too big", lambda: s_embedding.embed(ids(0, 3), X(3, 2)), IndexError, ("t: got a token 3", "from 0 to 2")),
    Case("spec embed float tokens", lambda: s_embedding.embed(X(1, 2)[0], X(3, 2)), TypeError, ("t: got dtype float64", "integer")),
    Case("spec embed text tokens", lambda: s_embedding.embed(np.array(["a"]), X(3, 2)), TypeError, ("t: got dtype <U1", "integer")),
    Case("spec embed str", lambda: s_embedding.embed("01", X(3, 2)), TypeError, ("t: got str", "array")),
    Case("spec one_hot token", lambda: s_embedding.one_hot(ids(4), 4), IndexError, ("t: got a token 4", "from 0 to 3")),
    Case("spec one_hot V 0", lambda: s_embedding.one_hot(ids(0), 0), ValueError, ("V: got 0", "at least 1")),
    Case("spec state_step alpha", lambda: s_linear_attention.state_step(X(2, 1), np.ones(2), np.ones(2), np.ones(1), 1.5, 1.0), ValueError, ("alpha: got [1.5]", "numbers in [0, 1]")),
    Case("spec state_step beta", lambda: s_linear_attention.state_step(X(2, 1), np.ones(2), np.ones(2), np.ones(1), 1.0, -1.0), ValueError, ("beta: got [-1.0]", "numbers ≥ 0")),
    Case("spec state_step rule", lambda: s_linear_attention.state_step(X(2, 1), np.ones(2), np.ones(2), np.ones(1), 1.0, 1.0, "both"), ValueError, ("rule: got 'both'", "'delta'")),
    Case("spec linear_attention rows", lambda: s_linear_attention.linear_attention(X(3, 2), X(2, 2), X(3, 1), np.ones(3), np.ones(3)), ValueError, ("K: got shape (2, 2)", "(3, 2)")),
    Case("spec linear_attention alpha", lambda: s_linear_attention.linear_attention(X(3, 2), X(3, 2), X(3, 1), -np.ones(3), np.ones(3)), ValueError, ("alpha: got", "numbers in [0, 1]")),
    Case("spec decay_mask", lambda: s_linear_attention.decay_mask(np.array([0.5, 2.0])), ValueError, ("alpha: got [0.5, 2.0]", "numbers in [0, 1]")),
    Case("spec with_matrices rule", lambda: s_linear_attention.with_matrices(X(3, 2), X(3, 2), X(3, 1), np.ones(3), np.ones(3), "both"), ValueError, ("rule: got 'both'", "'sum'")),
    Case("spec with_matrices beta", lambda: s_linear_attention.with_matrices(X(3, 2), X(3, 2), X(3, 1), np.ones(3), -np.ones(3)), ValueError, ("beta: got", "numbers ≥ 0")),
    Case("spec linear_attention_layer W_O", lambda: s_linear_attention.linear_attention_layer(X(3, 4), *np.ones((3, 2, 4, 2)), X(4, 2), np.ones(2), X(4, 2), np.ones(2), np.ones(2), X(3, 4)), ValueError, ("W_O: got shape (3, 4)", "(4, d)")),
    Case("spec policy_gradient sum", lambda: s_rewards.policy_gradient(np.ones(2), X(2, 3), np.ones(2)), ValueError, ("q: got [1.0, 1.0]", "the sum 1")),
    Case("spec policy_gradient rows", lambda: s_rewards.policy_gradient(np.ones(2) / 2, X(3, 3), np.ones(2)), ValueError, ("g: got shape (3, 3)", "(2, P)")),
    Case("spec advantages of one", lambda: s_rewards.advantages(np.ones(1)), ValueError, ("r: got 1 rewards", "at least 2")),
    Case("spec question_weight p", lambda: s_rewards.question_weight(1.0, 2), ValueError, ("p: got 1.0", "between 0 and 1")),
    Case("spec question_weight k", lambda: s_rewards.question_weight(0.5, 1), ValueError, ("k: got 1", "at least 2")),
    Case("spec question_weight way", lambda: s_rewards.question_weight(0.5, 2, "scale"), ValueError, ("way: got 'scale'", "scaled")),
    Case("spec tilted beta", lambda: s_rewards.tilted(np.ones(2) / 2, np.ones(2), 0.0), ValueError, ("beta: got 0.0", "a positive number")),
    Case("spec tilted zero", lambda: s_rewards.tilted(np.array([0.0, 1.0]), np.ones(2), 1.0), ValueError, ("p: got [0.0, 1.0]", "positive numbers")),
    Case("spec best_of k", lambda: s_rewards.best_of(np.ones(2) / 2, np.ones(2), 0), ValueError, ("k: got 0", "at least 1")),
    Case("spec preference_loss answer", lambda: s_rewards.preference_loss(np.ones(2) / 2, np.ones(2) / 2, 0, 2, 1.0), IndexError, ("z: got 2", "from 0 to 1")),
    Case("spec preference_loss beta", lambda: s_rewards.preference_loss(np.ones(2) / 2, np.ones(2) / 2, 0, 1, -1.0), ValueError, ("beta: got -1.0", "a positive number")),
    Case("spec skip_gram_pairs window 0", lambda: s_word_vectors.skip_gram_pairs(ids(0, 1), 0), ValueError, ("window: got 0", "at least 1")),
    Case("spec sgns_loss widths", lambda: s_word_vectors.sgns_loss(X(1, 2)[0], X(1, 3)[0], X(2, 2)), ValueError, ("c: got shape (3,)", "(2)")),
    Case("spec sgns_loss negatives", lambda: s_word_vectors.sgns_loss(X(1, 2)[0], X(1, 2)[0], X(2, 3)), ValueError, ("N: got shape (2, 3)", "(k, 2)")),
    Case("spec sgns_gradient widths", lambda: s_word_vectors.sgns_gradient(X(1, 2)[0], X(1, 3)[0], X(2, 2)), ValueError, ("c: got shape (3,)", "(2)")),
    Case("spec noise_distribution count 0", lambda: s_word_vectors.noise_distribution(0 * X(1, 2)[0]), ValueError, ("counts: got 0.0", "positive")),
    Case("spec noise_distribution power", lambda: s_word_vectors.noise_distribution(np.ones(2), 2), ValueError, ("power: got 2", "from 0 to 1")),
    Case("spec shifted_pmi empty row", lambda: s_word_vectors.shifted_pmi(np.diag([1.0, 0.0]), 1, np.ones(2) / 2), ValueError, ("number: got a row of zeros",)),
    Case("spec shifted_pmi negative", lambda: s_word_vectors.shifted_pmi(-np.ones((2, 2)), 1, np.ones(2) / 2), ValueError, ("number: got -1.0", "≥ 0")),
    Case("spec shifted_pmi k 0", lambda: s_word_vectors.shifted_pmi(np.ones((2, 2)), 0, np.ones(2) / 2), ValueError, ("k, q: got (0, 0.5)", "positive")),
    Case("spec shifted_pmi length of q", lambda: s_word_vectors.shifted_pmi(np.ones((2, 2)), 1, np.ones(3) / 3), ValueError, ("q: got shape (3,)", "(2)")),
    Case("spec keep_probability threshold", lambda: s_word_vectors.keep_probability(np.ones(2), 0), ValueError, ("threshold: got 0", "positive")),
    Case("spec keep_probability count 0", lambda: s_word_vectors.keep_probability(np.zeros(2), 0.1), ValueError, ("counts: got 0.0", "positive")),
    Case("spec embed_gradient lengths", lambda: s_embedding.embed_gradient(ids(0, 1), X(3, 2), 4), ValueError, ("G: got shape (3, 2)", "(2, d)")),
    Case("spec sinusoid of odd width", lambda: s_positional_encoding.sinusoid(4, 3), ValueError, ("d: got 3", "even")),
    Case("spec sinusoid M 0", lambda: s_positional_encoding.sinusoid(0, 4), ValueError, ("M: got 0", "at least 1")),
    Case("spec sinusoid M 2.0", lambda: s_positional_encoding.sinusoid(2.0, 4), TypeError, ("M: got 2.0", "a whole number")),
    Case("spec offset_map of odd width", lambda: s_positional_encoding.offset_map(1, 7), ValueError, ("d: got 7", "even")),
    Case("spec add_positions too long", lambda: s_positional_encoding.add_positions(X(3, 2), X(2, 2)), ValueError, ("X: got 3 rows", "max_len = 2")),
    Case("spec add_positions empty", lambda: s_positional_encoding.add_positions(X(0, 2), X(2, 2)), ValueError, ("X: got 0 rows", "from 1 to")),
    Case("spec add_positions width", lambda: s_positional_encoding.add_positions(X(2, 1), X(2, 2)), ValueError, ("P: got shape (2, 2)", "(M, 1)")),
    Case("spec append_positions too long", lambda: s_positional_encoding.append_positions(X(3, 2), 2), ValueError, ("X: got 3 rows", "max_len = 2")),
    Case("spec append_positions M 0", lambda: s_positional_encoding.append_positions(X(1, 2), 0), ValueError, ("M: got 0", "at least 1")),
    Case("spec rope_frequencies of odd width", lambda: s_positional_encoding.rope_frequencies(5), ValueError, ("k: got 5", "even")),
    Case("spec rotary of odd width", lambda: s_positional_encoding.rotary(X(2, 3)), ValueError, ("k: got 3", "even")),
    Case("spec rotary layout", lambda: s_positional_encoding.rotary(X(2, 4), layout="pairs"), ValueError, ("layout: got 'pairs'", "'halves'")),
    Case("spec rotary positions", lambda: s_positional_encoding.rotary(X(2, 4), np.arange(3)), ValueError, ("positions: got shape (3,)", "(2)")),
    Case("spec scaled_frequencies", lambda: s_positional_encoding.scaled_frequencies(np.ones(2), {"kind": "yarn"}), ValueError, ("scaling: got 'yarn'", "'llama3'")),
    Case("spec alibi_bias without heads", lambda: s_positional_encoding.alibi_bias(3, 0), ValueError, ("h: got 0", "at least 1")),
    Case("spec joint_positions width", lambda: s_graph_networks.joint_positions(X(2, 3), X(2, 5), X(4, 5), X(5, 2)), ValueError, ("W_x: got shape (2, 5)", "(3, k)")),
    Case("spec joint_positions hidden width", lambda: s_graph_networks.joint_positions(X(2, 2), X(2, 5), X(4, 1), X(5, 2)), ValueError, ("W_e: got shape (4, 1)", "(M, 5)")),
    Case("spec joint_positions too long", lambda: s_graph_networks.joint_positions(X(5, 2), X(2, 5), X(4, 5), X(5, 2)), ValueError, ("X: got 5 rows", "max_len = 4")),
    Case("spec summed_positions output", lambda: s_graph_networks.summed_positions(X(2, 2), X(2, 5), X(4, 5), X(5, 2), X(5, 1)), ValueError, ("W_ze: got shape (5, 1)", "(5, 2)")),
    Case("spec summed_positions empty", lambda: s_graph_networks.summed_positions(X(0, 2), X(2, 5), X(4, 5), X(5, 2), X(5, 2)), ValueError, ("X: got 0 rows", "from 1 to")),
    Case("spec standardize eps_mode", lambda: s_normalization.standardize(np.ones(2), eps_mode="before"), ValueError, ("eps_mode: got 'before'", "'inside'")),
    Case("spec layer_norm eps_mode", lambda: s_normalization.layer_norm(X(2, 3), np.ones(3), np.ones(3), eps_mode="?"), ValueError, ("eps_mode: got '?'",)),
    Case("spec normalize gain", lambda: s_normalization.normalize(np.ones(3), np.ones(1), np.ones(3)), ValueError, ("a: got shape (1,)", "(3)")),
    Case("spec layer_norm width", lambda: s_normalization.layer_norm(X(2, 1), np.ones(3), np.ones(3)), ValueError, ("a: got shape (3,)", "(1)")),
    Case("spec standardize two axes", lambda: s_normalization.standardize(X(2, 3)), ValueError, ("x: got shape (2, 3)", "(d)")),
    Case("spec standardize_over no axis", lambda: s_normalization.standardize_over(X(2, 3), ()), ValueError, ("axes: got ()", "has 2")),
    Case("spec standardize_over axis twice", lambda: s_normalization.standardize_over(X(2, 3), (1, -1)), ValueError, ("axes: got (1, -1)", "different axes")),
    Case("spec standardize_over far axis", lambda: s_normalization.standardize_over(X(2, 3), (0, 2)), ValueError, ("axes: got (0, 2)", "has 2")),
    Case("spec standardize_over nothing", lambda: s_normalization.standardize_over(X(2, 0), (0,)), ValueError, ("X: got shape (2, 0)", "at least one number")),
    Case("spec standardize_over eps_mode", lambda: s_normalization.standardize_over(X(2, 3), (0,), eps_mode="?"), ValueError, ("eps_mode: got '?'",)),
    Case("spec normalize_over kind", lambda: s_normalization.normalize_over(np.ones((2, 3, 4)), np.ones(3), np.ones(3), "group"), ValueError, ("kind: got 'group'", "'batch'")),
    Case("spec normalize_over two axes", lambda: s_normalization.normalize_over(X(3, 4), np.ones(3), np.ones(3), "batch"), ValueError, ("X: got shape (3, 4)", "(batch, chans, layer)")),
    Case("spec normalize_over gain", lambda: s_normalization.normalize_over(np.ones((2, 3, 4)), np.ones(3), np.ones(3), "layer"), ValueError, ("gamma: got shape (3,)", "(3, 4)")),
    Case("spec normalize_over bias", lambda: s_normalization.normalize_over(np.ones((2, 3, 4)), np.ones(3), np.ones(1), "batch"), ValueError, ("beta: got shape (1,)", "(3,)")),
    Case("spec named one name short", lambda: s_named_tensors.named(X(2, 3), "a"), ValueError, ("names: got ('a',)", "2 different names")),
    Case("spec named name twice", lambda: s_named_tensors.named(X(2, 2), "a", "a"), ValueError, ("names: got ('a', 'a')", "2 different names")),
    Case("spec to_array other axes", lambda: s_named_tensors.to_array(axes("ab"), "a", "c"), ValueError, ("names: got ('a', 'c')", "('a', 'b')")),
    Case("spec dot no axis", lambda: s_named_tensors.dot(axes("a"), axes("a")), ValueError, ("axes: got ()", "at least one axis")),
    Case("spec dot axis missing", lambda: s_named_tensors.dot(axes("ab"), axes("b"), "a"), ValueError, ("Y: got axes ('b',)", "the axes a")),
    Case("spec dot sizes", lambda: s_named_tensors.dot(axes("ab"), axes("ab").isel(b=[0]), "a"), ValueError, ("Y: got axis b of size 1", "want 2")),
    Case("spec rename to a present axis", lambda: s_named_tensors.rename(axes("ab"), "a", "b"), ValueError, ("X: got axes ('a', 'b')", "none of b")),
    Case("spec rename an absent axis", lambda: s_named_tensors.rename(axes("ab"), "c", "d"), ValueError, ("X: got axes ('a', 'b')", "the axes c")),
    Case("spec residual axes", lambda: s_named_tensors.residual(axes("ab"), axes("b")), ValueError, ("Y: got axes ('b',)", "('a', 'b')")),
    Case("spec residual sizes", lambda: s_named_tensors.residual(axes("ab"), axes("ab").isel(b=[0])), ValueError, ("Y: got axis b of size 1", "want 2")),
    Case("spec named softmax", lambda: s_named_tensors.softmax(axes("a"), "b"), ValueError, ("X: got axes ('a',)", "the axes b")),
    Case("spec lift target", lambda: s_named_tensors.lift(lambda x: x, (("a",),), ("b",))(axes("ab")), ValueError, ("argument 0: got axes ('a', 'b')", "none of b")),
    Case("spec lift result", lambda: s_named_tensors.lift(lambda x: x, (("a",),), ())(axes("ab")), ValueError, ("f: got axes ('a',)", "()")),
    Case("spec lift of a float", lambda: s_named_tensors.lift(lambda x: 3.0, (("a",),), ())(axes("ab")), TypeError, ("f: got float", "a named tensor")),
    Case("spec dot of axis 3", lambda: s_named_tensors.dot(axes("ab"), axes("ab"), 3), ValueError, ("X: got axes ('a', 'b')", "the axes 3")),
    Case("spec lift arguments", lambda: s_named_tensors.lift(lambda x: x, (("a",),), ("a",))(axes("a"), axes("a")), ValueError, ("arguments: got 2", "1, one for each")),
    Case("spec lift source", lambda: s_named_tensors.lift(lambda x: x, (("a",),), ())(axes("b")), ValueError, ("argument 0: got axes ('b',)", "the axes a")),
    Case("spec lift sizes", lambda: s_named_tensors.lift(lambda x, y: x, (("a",), ("b",)), ("a",))(axes("ac"), axes("bc").isel(c=[0])), ValueError, ("argument 1: got axis c of size 1", "want 2")),
    Case("spec lift nothing", lambda: s_named_tensors.lift(lambda x: x, (("a",),), ("a",))(axes("ab").isel(b=[])), ValueError, ("argument 0: got axis b of size 0", "at least 1")),
    Case("spec linear labels", lambda: s_named_tensors.linear(axes("a"), axes("ab"), labelled(axes("b")), "a"), ValueError, ("b: got labels along b", "no labels")),
    Case("spec mask labels", lambda: s_named_tensors.attention(named("key"), named("seq", "key"), named("seq", "val"), labelled(named("seq"))), ValueError, ("mask: got labels along seq",)),
    Case("spec linear output axis", lambda: s_named_tensors.linear(axes("ab"), axes("ab"), axes("b"), "a"), ValueError, ("X: got axes ('a', 'b')", "none of b")),
    Case("spec linear bias", lambda: s_named_tensors.linear(axes("a"), axes("ab"), axes("c"), "a"), ValueError, ("b: got axes ('c',)", "('b',)")),
    Case("spec named standardize", lambda: s_named_tensors.standardize(axes("ab")), ValueError, ("axes: got ()", "at least one axis")),
    Case("spec named normalize", lambda: s_named_tensors.normalize(axes("a"), axes("b"), axes("a"), "a"), ValueError, ("gamma: got axes ('b',)", "axes among ('a',)")),
    Case("spec named attention queries", lambda: s_named_tensors.attention(named("seq", "key"), named("seq", "key"), named("seq", "val")), ValueError, ("Q: got axes ('seq', 'key')", "none of seq")),
    Case("spec named attention values", lambda: s_named_tensors.attention(named("key"), named("seq", "key"), named("seq", "val").isel(seq=[0])), ValueError, ("V: got axis seq of size 1", "want 2")),
    Case("spec named attention mask", lambda: s_named_tensors.attention(named("key"), named("seq", "key"), named("seq"), named("to")), ValueError, ("mask: got axes ('to',)", "('seq',)")),
    Case("spec layer_norm empty", lambda: s_normalization.layer_norm(X(0, 3), np.ones(3), np.ones(3)), ValueError, ("X: got", "row")),
    Case("spec feed_forward activation", lambda: s_feed_forward.feed_forward(X(2, 3), X(3, 4), np.ones(4), X(4, 3), np.ones(3), "swiglu"), ValueError,
         ("activation: got 'swiglu'", "'relu'")),
    Case("spec rms_norm a", lambda: s_normalization.rms_norm(X(2, 3), np.ones(4)), ValueError, ("a: got shape (4,)", "(3)")),
    Case("spec gated activation", lambda: s_feed_forward.gated_feed_forward(X(2, 3), X(3, 4), X(3, 4), X(4, 3), "tanh"), ValueError, ("activation: got 'tanh'", "'identity'")),
    Case("spec gated W_1", lambda: s_feed_forward.gated_feed_forward(X(2, 3), X(3, 4), X(3, 5), X(4, 3)), ValueError, ("W_1: got shape (3, 5)", "(3, 4)")),
    Case("spec gated b_G", lambda: s_feed_forward.gated_feed_forward(X(2, 3), X(3, 4), X(3, 4), X(4, 3), b_G=np.ones(1)), ValueError, ("b_G: got shape (1,)", "(4)")),
    Case("spec chosen_experts none", lambda: s_feed_forward.chosen_experts(X(2, 3), 0), ValueError, ("k: got 0", "at least 1")),
    Case("spec chosen_experts whole", lambda: s_feed_forward.chosen_experts(X(2, 3), 1.0), TypeError, ("k: got 1.0", "whole")),
    Case("spec expert_weights too many", lambda: s_feed_forward.expert_weights(X(2, 3), 4), ValueError, ("k: got 4", "at most 3")),
    Case("spec expert_weights rows", lambda: s_feed_forward.expert_weights(np.ones(3), 2), ValueError, ("R: got shape (3,)", "(n, E)")),
    Case("spec mixture experts", lambda: s_feed_forward.mixture_of_experts(X(2, 3), X(3, 2), [], 1), ValueError, ("experts: got 0", "2")),
    Case("spec load_balancing_loss k", lambda: s_feed_forward.load_balancing_loss(X(2, 3), 4), ValueError, ("k: got 4", "at most 3")),
    Case("spec feed_forward W_1", lambda: s_feed_forward.feed_forward(X(2, 3), X(4, 4), np.ones(4), X(4, 3), np.ones(3)), ValueError, ("W_1: got shape (4, 4)", "(3, f)")),
    Case("spec feed_forward b_1", lambda: s_feed_forward.feed_forward(X(2, 3), X(3, 4), np.ones(1), X(4, 3), np.ones(3)), ValueError, ("b_1: got shape (1,)", "(4)")),
    Case("linear_backward W", lambda: s_gradients.linear_backward(X(2, 4), X(2, 3), X(2, 4)), ValueError, ("W: got shape (2, 4)", "(3, 4)")),
    Case("linear_backward dY and W", lambda: s_gradients.linear_backward(X(2, 5), X(2, 3), X(3, 4)), ValueError, ("W: got shape (3, 4)", "(3, 5)")),
    Case("layer_norm_backward a", lambda: s_gradients.layer_norm_backward(X(2, 3), X(2, 3), np.ones(1)), ValueError, ("a: got shape (1,)", "(3)")),
    Case("activation_derivative", lambda: s_gradients.activation_derivative(X(2, 3), "tanh"), ValueError, ("activation: got 'tanh'", "'gelu'")),
    Case("attention_backward dO and V", lambda: s_gradients.attention_backward(X(2, 3), X(2, 4), X(2, 4), X(2, 5)), ValueError, ("V: got shape (2, 5)", "(2, 3)")),
    Case("multi_head_attention Q", lambda: s_multi_head.multi_head_attention(X(2, 3), X(2, 4), X(2, 4), *np.ones((3, 1, 4, 2)), X(2, 4)), ValueError, ("K: got shape (2, 4)", "(m, 3)")),
    Case("multi_head_attention V", lambda: s_multi_head.multi_head_attention(X(2, 4), X(3, 4), X(2, 4), *np.ones((3, 1, 4, 2)), X(2, 4)), ValueError, ("V: got shape (2, 4)", "(3, 4)")),
    Case("multi_head_attention W_O", lambda: s_multi_head.multi_head_attention(X(2, 4), X(3, 4), X(3, 4), *np.ones((3, 1, 4, 2)), X(3, 4)), ValueError, ("W_O: got shape (3, 4)", "(2, o)")),
    Case("EncoderDecoder source empty", lambda: translator()(tokens()[None], tokens(1)[None]), ValueError, ("source: got 0 rows", "max_len = 8")),
    Case("EncoderDecoder source long", lambda: translator()(tokens(*range(9))[None], tokens(1)[None]), ValueError, ("source: got 9 rows", "max_len = 8")),
    Case("EncoderDecoder target long", lambda: translator()(tokens(1)[None], tokens(*range(9))[None]), ValueError, ("target: got 9 rows", "max_len = 8")),
    Case("EncoderDecoder batch", lambda: translator()(tokens(1)[None], tokens(1, 2)[:, None]), ValueError, ("target: got shape (2, 1)", "as many sequences as source")),
    Case("EncoderDecoder token", lambda: translator()(tokens(1)[None], tokens(11)[None]), IndexError, ("tokens: got a token 11", "0 to 10")),
    Case("EncoderDecoder floats", lambda: translator()(tokens(1)[None].float(), tokens(1)[None]), TypeError, ("tokens: got dtype torch.float32", "integer")),
    Case("EncoderDecoder.decode batch", lambda: translator().decode(tokens(1, 2)[:, None], translator().encode(tokens(1)[None])), ValueError, ("target: got shape (2, 1)", "as many sequences as memory")),
    Case("EncoderDecoder.begin one text", lambda: translator().begin(tokens(1, 2)), ValueError, ("source: got shape (2,)", "(batch, n)")),
    Case("EncoderDecoder.begin batches", lambda: translator().begin(tokens(1, 2)[None, None]), ValueError, ("source: got shape (1, 1, 2)", "(batch, n)")),
    Case("EncoderDecoder.advance batch", lambda: translator().advance(tokens(1), translator().begin(tokens(1, 2)[:, None])), ValueError, ("tokens: got shape (1,)", "(2,)")),
    Case("EncoderDecoder.advance column", lambda: translator().advance(tokens(1, 2)[:, None], translator().begin(tokens(1, 2)[:, None])), ValueError, ("tokens: got shape (2, 1)", "(2,)")),
    Case("EncoderDecoder key_mask of integers", lambda: translator().encode(tokens(1, 2)[None], tokens(1, 0)[None]), TypeError, ("key_mask: got dtype torch.int64", "True and False")),
    Case("EncoderDecoder key_mask", lambda: translator().encode(tokens(1, 2)[None], torch.ones(1, 3, dtype=torch.bool)), ValueError, ("key_mask: got shape (1, 3)", "(1, 2)")),
    Case("EncoderDecoder lists", lambda: translator()([[1]], [[1]]), TypeError, ("source: got list", "a tensor of integers")),
    Case("EncoderDecoder target a list", lambda: translator()(tokens(1)[None], [[1]]), TypeError, ("target: got list", "a tensor of integers")),
    Case("EncoderDecoder key_mask of a batch", lambda: translator().encode(tokens(1, 2), torch.ones(3, 2, dtype=torch.bool)), ValueError, ("key_mask: got shape (3, 2)", "(2)")),
    Case("EncoderDecoder key_mask a list", lambda: translator().encode(tokens(1)[None], [[True]]), TypeError, ("key_mask: got list", "a tensor of torch.bool")),
    Case("EncoderDecoder.decode a list", lambda: translator().decode([[1]], z(1, 2, 8)), TypeError, ("target: got list", "a tensor of integers")),
    Case("EncoderDecoder.decode memory a list", lambda: translator().decode(tokens(1)[None], [[1.0]]), TypeError, ("memory: got list", "a tensor of rows")),
    Case("EncoderDecoder.decode key_mask of integers", lambda: translator().decode(tokens(1)[None], z(1, 2, 8), tokens(1, 0)[None]), TypeError, ("key_mask: got dtype torch.int64", "True and False")),
    Case("EncoderDecoder.decode key_mask of floats", lambda: translator().decode(tokens(1)[None], z(1, 2, 8), z(1, 2)), TypeError, ("key_mask: got dtype torch.float32", "True and False")),
    Case("EncoderDecoder.decode key_mask", lambda: translator().decode(tokens(1)[None], z(1, 2, 8), torch.ones(3, 5) > 0), ValueError, ("key_mask: got shape (3, 5)", "(1, 2)")),
    Case("EncoderDecoder.begin key_mask of integers", lambda: translator().begin(tokens(1, 2)[None], tokens(1, 0)[None]), TypeError, ("key_mask: got dtype torch.int64", "True and False")),
    Case("EncoderDecoder.advance a list", lambda: translator().advance([1], translator().begin(tokens(1)[None])), TypeError, ("tokens: got list", "a tensor of integers")),
    Case("translate_all width 1.0", lambda: translation.translate_all(french_english(), ["a"], width=1.0), TypeError, ("width: got 1.0", "a whole number")),
    Case("translate_all length_penalty a str", lambda: translation.translate_all(french_english(), ["a"], length_penalty="1"), TypeError, ("length_penalty: got '1'", "a number")),
    Case("train_translator products", lambda: translation.train_translator(corpora.sentence_pairs(2), training.TrainConfig(products="onednn")), ValueError, ("recipe.products: got 'onednn'", "'auto'")),
    Case("EncoderDecoder config", lambda: encoder_decoder.EncoderDecoder(Config(11)), TypeError, ("config: got Config", "EncoderDecoderConfig")),
    Case("EncoderDecoderConfig norm", lambda: encoder_decoder.EncoderDecoderConfig(11, norm="none"), ValueError, ("norm: got 'none'", "'post'")),
    Case("EncoderDecoderConfig rotary", lambda: encoder_decoder.EncoderDecoderConfig(11, pe="rotary"), ValueError, ("pe: got 'rotary'", "added")),
    Case("EncoderDecoderConfig window", lambda: encoder_decoder.EncoderDecoderConfig(11, window=4), ValueError, ("window: got 4", "None")),
    Case("EncoderDecoderConfig n_experts_used", lambda: encoder_decoder.EncoderDecoderConfig(11, n_experts_used=7), ValueError, ("n_experts_used: got 7", "2: others are for decoders alone")),
    Case("EncoderDecoderConfig rope_base", lambda: encoder_decoder.EncoderDecoderConfig(11, rope_base=5.0), ValueError, ("rope_base: got 5.0", "decoders alone")),
    Case("EncoderDecoderConfig rope_layout", lambda: encoder_decoder.EncoderDecoderConfig(11, rope_layout="interleaved"), ValueError, ("rope_layout: got interleaved", "decoders alone")),
    Case("EncoderDecoderConfig rope_scaling", lambda: encoder_decoder.EncoderDecoderConfig(11, rope_scaling={"kind": "linear", "factor": 2.0}), ValueError, ("rope_scaling: got RopeScaling", "None")),
    Case("EncoderDecoderConfig qk_norm", lambda: encoder_decoder.EncoderDecoderConfig(11, qk_norm=True), ValueError, ("qk_norm: got True", "decoders alone")),
    Case("EncoderDecoderConfig ff_bias", lambda: encoder_decoder.EncoderDecoderConfig(11, ff_bias=False), ValueError, ("ff_bias: got False", "decoders alone")),
    Case("EncoderDecoderConfig source_vocab_size", lambda: encoder_decoder.EncoderDecoderConfig(11, source_vocab_size=0), ValueError, ("source_vocab_size: got 0", "at least 1")),
    Case("EncoderDecoderConfig d_value", lambda: encoder_decoder.EncoderDecoderConfig(11, d_value=0), ValueError, ("d_value: got 0", "at least 1")),
    Case("CrossBlock past", lambda: step_with_a_past(), ValueError, ("y: got 2 rows", "one row")),
    Case("CrossAttention sizes", lambda: multi_head.CrossAttention(8, 3), ValueError, ("n_heads: got 3", "a divisor of d_model = 8")),
    Case("CrossAttention memory", lambda: multi_head.CrossAttention(8, 2)(z(3, 8), z(3, 6)), ValueError, ("memory: got shape (3, 6)", "(n, 8)")),
    Case("CrossAttention key_mask", lambda: multi_head.CrossAttention(8, 2)(z(3, 8), z(4, 8), torch.ones(3, dtype=torch.bool)), ValueError, ("key_mask: got shape (3,)", "(4)")),
    Case("CrossAttention key_mask of another batch", lambda: multi_head.CrossAttention(8, 2)(z(2, 3, 8), z(2, 4, 8), torch.ones(4, dtype=torch.bool)), ValueError, ("key_mask: got shape (4,)", "(2, 4)")),
    Case("spec encoder_block norm", lambda: s_encoder_decoder.encoder_block(X(2, 4), {}, norm="none"), ValueError, ("norm: got 'none'", "'post'")),
    Case("vertex_sets cycle", lambda: s_graph_networks.vertex_sets(nx.DiGraph([(0, 1), (1, 0)])), ValueError, ("graph: got a cycle",)),
    Case("vertex_sets isolated", lambda: s_graph_networks.vertex_sets(graph((0, 1), alone=7)), ValueError, ("graph: got isolated 7", "on an edge")),
    Case("vertex_sets empty", lambda: s_graph_networks.vertex_sets(nx.DiGraph()), ValueError, ("graph: got no vertex",)),
    Case("vertex_sets undirected", lambda: s_graph_networks.vertex_sets(nx.Graph([(0, 1)])), TypeError, ("graph: got Graph", "DiGraph")),
    Case("Network weight", lambda: s_graph_networks.Network(graph((0, 1)), (0,), (1,), {}), ValueError, ("graph: got weight None on (0, 1)", "finite number")),
    Case("Network bias", lambda: s_graph_networks.Network(graph((0, 1), w=1.0), (0,), (1,), {}), ValueError, ("graph: got bias None on 1", "finite number")),
    Case("Network inputs", lambda: s_graph_networks.Network(graph((0, 1), w=1.0), (1,), (1,), {}), ValueError, ("inputs: got (1,)", "['0']")),
    Case("Network activations", lambda: s_graph_networks.Network(graph((0, 1), (1, 2), w=1.0), (0,), (2,), {}), ValueError, ("activations: got ()", "['1']")),
    Case("preactivations x", lambda: s_graph_networks.preactivations(s_graph_networks.layered_network([X(2, 3)], [np.ones(3)]), np.ones(3)), ValueError, ("x: got shape (3,)", "(2)")),
    Case("mlp weights", lambda: s_graph_networks.mlp(X(2, 3), [], []), ValueError, ("weights: got none",)),
    Case("mlp biases", lambda: s_graph_networks.mlp(X(2, 3), [X(3, 1)], []), ValueError, ("biases: got 0", "1 matrices")),
    Case("mlp shape", lambda: s_graph_networks.mlp(X(2, 3), [X(3, 4), X(5, 1)], [np.ones(4), np.ones(1)]), ValueError, ("weights[1]: got shape (5, 1)", "(4, out)")),
    Case("without_biases w0", lambda: s_graph_networks.without_biases([X(2, 1), X(1, 1)], [np.ones(1)] * 2, w0=-1.0), ValueError, ("w0: got -1.0", "not 0")),
    Case("MLP widths", lambda: graph_networks.MLP([3]), ValueError, ("widths: got [3]", "two widths")),
    Case("MLP width 0", lambda: graph_networks.MLP([3, 0]), ValueError, ("widths[1]: got 0", "at least 1")),
    Case("MLP activation", lambda: graph_networks.MLP([3, 2], "tanh"), ValueError, ("activation: got 'tanh'",)),
    Case("MLP input", lambda: graph_networks.MLP([3, 2])(z(2, 4)), ValueError, ("x: got shape (2, 4)", "3)")),
    Case("spec attention widths", lambda: s_attention.attention(X(2, 3), X(2, 4), X(2, 3)), ValueError, ("K: got shape (2, 4)", "(m, 3)")),
    Case("spec attention keys and values", lambda: s_attention.attention(X(2, 3), X(2, 3), X(3, 3)), ValueError, ("V: got shape (3, 3)", "(2, v)")),
    Case("spec attention without keys", lambda: s_attention.attention(X(2, 3), X(0, 3), X(0, 2)), ValueError, ("K: got 0 rows", "at least one key")),
    Case("spec causal_attention width", lambda: s_attention.causal_attention(X(2, 3), X(4, 2), X(4, 2), X(4, 2)), ValueError, ("W_Q: got shape (4, 2)", "(3, k)")),
    Case("spec multi_head W_O", lambda: s_multi_head.multi_head(X(2, 4), *3 * (np.ones((2, 4, 2)),), X(3, 4), np.ones(4)), ValueError, ("W_O: got shape (3, 4)",)),
    Case("spec heads groups", lambda: s_multi_head.heads(X(2, 4), np.ones((4, 4, 2)), *2 * (np.ones((3, 4, 2)),)), ValueError, ("W_K: got 3 heads", "a divisor of 4")),
    Case("spec heads window, no mask", lambda: s_multi_head.heads(X(2, 4), *3 * (np.ones((2, 4, 2)),), causal=False, window=2), ValueError, ("window: got 2", "None without the mask")),
    Case("spec window_mask window", lambda: s_multi_head.window_mask(X(2, 3), 0), ValueError, ("window: got 0", "at least 1")),
    Case("spec heads width", lambda: s_multi_head.heads(X(2, 3), *3 * (np.ones((2, 4, 2)),)), ValueError, ("W_Q: got shape (2, 4, 2)", "(h, 3, k)")),
    Case("spec decoder_block norm", lambda: s_decoder_block.decoder_block(X(2, D), block_weights(), norm="layer"), ValueError, ("norm: got 'layer'", "'pre'")),
    Case("spec decoder_block variant", lambda: s_decoder_block.decoder_block(X(2, D), block_weights(), norm="post", variant="parallel"), ValueError,
         ("variant: got 'parallel'", "'sequential'")),
    Case("spec decoder_block width", lambda: s_decoder_block.decoder_block(X(2, 6), block_weights()), ValueError, ("X: got shape (2, 6)", f"(n, {D})")),
    Case("spec final_layer width", lambda: s_transformer_lm.final_layer(X(2, 3), X(4, 5), np.ones(5)), ValueError, ("Y: got shape (4, 5)", "(3, V)")),
    Case("spec transformer_lm token", lambda: s_transformer_lm.transformer_lm(ids(V), **model().spec_weights(), **model().spec_settings()), IndexError,
         (f"t: got a token {V}", f"from 0 to {V - 1}")),
    Case("spec transformer_lm too long", lambda: s_transformer_lm.transformer_lm(ids(*range(M + 1)), **model().spec_weights(), **model().spec_settings()), ValueError,
         (f"got {M + 1} rows", f"max_len = {M}")),
    Case("spec transformer_lm empty", lambda: s_transformer_lm.transformer_lm(ids(), **model().spec_weights(), **model().spec_settings()), ValueError,
         ("got 0 rows", "from 1 to")),
    Case("spec batch_loss all weights zero", lambda: s_loss.batch_loss(-X(2, 3), 0 * X(2, 3)), ValueError, ("w: got weights that sum to 0", "positive")),
    Case("spec row_mean_loss a row of zero weights", lambda: s_loss.row_mean_loss(-X(2, 2), np.array([[1.0, 1.0], [0.0, 0.0]])), ValueError, ("w: got a row", "positive")),
    Case("spec batch_loss shape", lambda: s_loss.batch_loss(-X(2, 3), X(1, 3)), ValueError, ("w: got shape (1, 3)", "(2, 3)")),
    Case("spec batch_loss negative weight", lambda: s_loss.batch_loss(-X(1, 2), np.array([[2.0, -1.0]])), ValueError, ("w: got", "≥ 0")),
    Case("spec bits_per_byte no bytes", lambda: s_loss.bits_per_byte(1.0, 3, 0), ValueError, ("n_bytes: got 0", "at least 1")),
    Case("spec bits_per_byte half a token", lambda: s_loss.bits_per_byte(1.0, 2.5, 3), TypeError, ("n_tokens: got 2.5", "whole number")),
    Case("spec shift empty", lambda: s_loss.shift(ids()), ValueError, ("x: got", "at least")),
    Case("spec sequence_loss negative token", lambda: s_loss.sequence_loss(lambda t: X(len(t), 3), ids(0, -1)), IndexError, ("x: got a token -1", "from 0 to 2")),
    Case("spec sequence_loss big token", lambda: s_loss.sequence_loss(lambda t: X(len(t), 3), ids(0, 3)), IndexError, ("x: got a token 3", "from 0 to 2")),
    Case("spec is_autoregressive empty", lambda: s_operators.is_autoregressive(lambda X: X, X(0, 2)), ValueError, ("X: got 0 rows", "at least one")),
    Case("spec is_equivariant empty", lambda: s_operators.is_equivariant(lambda X: X, X(0, 2)), ValueError, ("X: got 0 rows", "at least one")),
    Case("spec is_rowwise empty", lambda: s_operators.is_rowwise(lambda X: X, X(0, 2)), ValueError, ("X: got 0 rows", "at least one")),
    Case("spec is_indexed_rowwise shapes", lambda: s_operators.is_indexed_rowwise(lambda X: X, X(2, 2), X(3, 2)), ValueError, ("Z: got shape (3, 2)", "(2, ...)")),
    Case("spec softmax one axis", lambda: s_operators.softmax(np.ones(3)), ValueError, ("A: got shape (3,)", "(n, m)")),
    Case("spec softmax no columns", lambda: s_operators.softmax(X(2, 0)), ValueError, ("A: got shape (2, 0)",)),
    Case("spec causal_mask one axis", lambda: s_operators.causal_mask(np.ones(3)), ValueError, ("A: got shape (3,)", "(n, m)")),
    Case("spec cross_entropy_gradient token", lambda: s_gradients.cross_entropy_gradient(np.ones(3), 3), IndexError, ("x: got 3", "from 0 to 2")),
    Case("spec cross_entropy_gradient negative", lambda: s_gradients.cross_entropy_gradient(np.ones(3), -1), IndexError, ("x: got -1", "from 0 to 2")),
    Case("spec standardize_jacobian eps 0", lambda: s_gradients.standardize_jacobian(np.ones(3), 0.0), ValueError, ("eps: got 0.0", "> 0")),
    Case("spec tempered temperature 0", lambda: s_inference.tempered(np.ones(3), 0.0), ValueError, ("temperature: got 0.0", "> 0")),
    Case("spec tempered temperature nan", lambda: s_inference.tempered(np.ones(3), float("nan")), ValueError, ("temperature: got nan", "> 0")),
    Case("spec top_k 0", lambda: s_inference.top_k(np.ones(3) / 3, 0), ValueError, ("k: got 0", "at least 1")),
    Case("spec top_p 0", lambda: s_inference.top_p(np.ones(3) / 3, 0.0), ValueError, ("s: got 0.0", "0 < s")),
    Case("spec min_p 2", lambda: s_inference.min_p(np.ones(3) / 3, 2.0), ValueError, ("m: got 2.0", "m ≤ 1")),
    Case("spec penalized 0", lambda: s_inference.penalized(np.ones(3), ids(0), 0.0), ValueError, ("penalty: got 0.0", "> 0")),
    Case("spec penalized token", lambda: s_inference.penalized(np.ones(3), ids(0, -1), 2.0), IndexError, ("x: got a token -1", "from 0 to 2")),
    Case("spec chosen token", lambda: s_inference.chosen(np.ones(3), ids(0, 3), penalty=2.0), IndexError, ("x: got a token 3", "from 0 to 2")),
    Case("spec LM beam_search width 0", lambda: s_inference.beam_search(lambda x: X(len(x), 3), ids(0), 2, 0), ValueError, ("width: got 0",)),
    Case("spec quantile u", lambda: s_inference.quantile(np.array([0.5, 0.5]), 1.0), ValueError, ("u: got 1.0", "0 ≤ u < 1")),
    Case("spec greedy n_new negative", lambda: s_inference.greedy(lambda x: X(len(x), 3), ids(0), -1), ValueError, ("n_new: got -1", "≥ 0")),
    Case("spec utf8 surrogate", lambda: s_tokenization.utf8("\ud800"), ValueError, ("c: got the surrogate U+D800", "a character")),
    Case("spec utf8 two characters", lambda: s_tokenization.utf8("ab"), TypeError, ("c: got 'ab'", "one character")),
    Case("spec decode token negative", lambda: s_tokenization.decode([-1], [(1, 2)]), IndexError, ("tokens: got", "-1", "from 0 to 256")),
    Case("spec decode token too big", lambda: s_tokenization.decode([257], [(1, 2)]), IndexError, ("tokens: got", "257", "from 0 to 256")),
    Case("spec learn n_merges negative", lambda: s_tokenization.learn(["aa"], -1), ValueError, ("n_merges: got -1", "≥ 0")),
    # tokenizer
    Case("Tokenizer.encode bytes", lambda: tokenizer().encode(b"hi"), TypeError, ("text: got bytes", "str")),
    Case("Tokenizer.encode None", lambda: tokenizer().encode(None), TypeError, ("text: got NoneType", "str")),
    Case("Tokenizer.encode surrogate", lambda: tokenizer().encode("a\udc80"), ValueError, ("text: got the lone surrogate U+DC80 at position 1",)),
    Case("Tokenizer.encode unknown special", lambda: tokenizer().encode("hi", allowed_special=["<|pad|>"]), ValueError,
         ("allowed_special: got '<|pad|>'", "<|endoftext|>")),
    Case("Tokenizer.encode special as str", lambda: tokenizer().encode("hi", allowed_special="all"), TypeError, ("allowed_special: got one str", "collection")),
    Case("Tokenizer.encode surrogate after a special", lambda: tokenizer().encode("a<|endoftext|>\udc80", allowed_special=["<|endoftext|>"]), ValueError,
         ("text: got the lone surrogate U+DC80 at position 14",)),
    Case("Tokenizer.encode special None", lambda: tokenizer().encode("hi", allowed_special=None), TypeError, ("allowed_special: got NoneType", "collection")),
    Case("Tokenizer.encode_batch None", lambda: tokenizer().encode_batch(None), TypeError, ("texts: got NoneType", "list of str")),
    Case("Tokenizer.decode one number", lambda: tokenizer().decode(5), TypeError, ("tokens: got int", "several")),
    Case("Tokenizer.decode a tensor of floats", lambda: tokenizer().decode(torch.tensor([1.0])), TypeError, ("token: got tensor(1.)", "an integer")),
    Case("Tokenizer.train too large", lambda: Tokenizer.train(["aa"], 10**9, engine="tokenizers"), ValueError, ("vocab_size: got 1000000000", "at most 1114113")),
    Case("train_by_tokenizers too many", lambda: tokenization.train_by_tokenizers(["aa"], 10**9), ValueError, ("n_merges: got 1000000000", "≤ 1113856")),
    Case("train_by_tokenizers one str", lambda: tokenization.train_by_tokenizers("aa", 1), TypeError, ("texts: got one str", "list of str")),
    Case("Tokenizer of None", lambda: Tokenizer(None), TypeError, ("merges: got NoneType", "pairs")),
    Case("Tokenizer.encode_batch one str", lambda: tokenizer().encode_batch("hi"), TypeError, ("texts: got one str", "list of str")),
    Case("Tokenizer.decode too big", lambda: tokenizer().decode([V]), IndexError, (f"token: got {V}", f"from 0 to {V - 1}")),
    Case("Tokenizer.decode negative", lambda: tokenizer().decode([-1]), IndexError, ("token: got -1", f"from 0 to {V - 1}")),
    Case("Tokenizer.decode float", lambda: tokenizer().decode([1.0]), TypeError, ("token: got 1.0", "an integer")),
    Case("Tokenizer.train vocab_size too small", lambda: Tokenizer.train(["aa"], 256), ValueError, ("vocab_size: got 256", "at least 257")),
    Case("Tokenizer.train vocab_size 300.0", lambda: Tokenizer.train(["aa"], 300.0), TypeError, ("vocab_size: got 300.0", "a whole number")),
    Case("Tokenizer.train one str", lambda: Tokenizer.train("hello", 300), TypeError, ("texts: got one str", "list of str")),
    Case("Tokenizer.train bytes", lambda: Tokenizer.train([b"hello"], 300), TypeError, ("text: got bytes", "str")),
    Case("to_tokenizers one spelling", lambda: tokenization.to_tokenizers(Tokenizer([(97, 98)], ["ab"])), ValueError, ("tokenizer: got two tokens spelled 'ab'",)),
    Case("to_tokenizers pattern", lambda: tokenization.to_tokenizers(Tokenizer([], pattern=r"\w+|\W")), ValueError, ("pattern: got", "tokenizers reads in the same way")),
    Case("HubTokenizer nothing", lambda: tokenization.HubTokenizer({}), ValueError, ("state: got no field ['normalizer']", "tokenizer.json")),
    Case("HubTokenizer start", lambda: hub_tokenizer(start=257), ValueError, ("start: got 257", "from 0 to 256")),
    Case("HubTokenizer size", lambda: hub_tokenizer(size=9), ValueError, ("size: got 9", "at least 257")),
    Case("HubTokenizer size text", lambda: hub_tokenizer(size="300"), TypeError, ("size: got '300'", "a whole number")),
    Case("HubTokenizer start True", lambda: hub_tokenizer(start=True), TypeError, ("start: got True", "a whole number")),
    Case("HubTokenizer.load size text", lambda: tokenization.HubTokenizer.load("nowhere", "9"), TypeError, ("size: got '9'", "a whole number")),
    Case("HubTokenizer.load size negative", lambda: tokenization.HubTokenizer.load("nowhere", -1), ValueError, ("size: got -1", "at least 0")),
    Case("HubTokenizer.load start half", lambda: tokenization.HubTokenizer.load("nowhere", start=2.5), TypeError, ("start: got 2.5", "a whole number")),
    Case("HubTokenizer.load stop negative", lambda: tokenization.HubTokenizer.load("nowhere", stop=-1), ValueError, ("stop: got -1", "at least 0")),
    Case("HubTokenizer.load no JSON", lambda: in_folder(lambda f: [(f / "t.json").write_text("{"), tokenization.HubTokenizer.load(f / "t.json")]), ValueError, ("path: got", "a tokenizer.json of byte pair encoding")),
    Case("HubTokenizer.encode special as str", lambda: hub_tokenizer().encode("hi", allowed_special="all"), TypeError, ("allowed_special: got one str", "collection")),
    Case("HubTokenizer.encode unknown special", lambda: hub_tokenizer().encode("hi", allowed_special=["<s>"]), ValueError, ("allowed_special: got '<s>'", "<|endoftext|>")),
    Case("HubTokenizer.encode bytes", lambda: hub_tokenizer().encode(b"hi"), TypeError, ("text: got bytes", "str")),
    Case("HubTokenizer.encode_batch one str", lambda: hub_tokenizer().encode_batch("hi"), TypeError, ("texts: got one str", "list of str")),
    Case("HubTokenizer.decode too big", lambda: hub_tokenizer().decode([257]), IndexError, ("token: got 257", "from 0 to 256")),
    Case("from_tokenizers no engine", lambda: tokenization.from_tokenizers("tokenizer.json"), TypeError, ("engine: got str", "tokenizers.Tokenizer")),
    Case("to_tiktoken never produced", lambda: tokenization.to_tiktoken(Tokenizer([(98, 99), (97, 98), (257, 99)])), ValueError, ("merges: got token 258",)),
    Case("to_tiktoken names", lambda: tokenization.to_tiktoken(Tokenizer([], ["<a>", "<a>b"])), ValueError, ("specials: got", "none begins another")),
    Case("save_gpt2_tokenizer pattern", lambda: tokenization.save_gpt2_tokenizer(Tokenizer([]), tempfile.gettempdir()), ValueError, ("pattern: got", "GPT2_PATTERN")),
    Case("train_by_tokenizers n_merges", lambda: tokenization.train_by_tokenizers(["aa"], -1), ValueError, ("n_merges: got -1",)),
    Case("train_by_tokenizers bytes", lambda: tokenization.train_by_tokenizers([b"aa"], 1), TypeError, ("text: got bytes",)),
    Case("Tokenizer.train pattern", lambda: Tokenizer.train(["aa"], 300, pattern="("), ValueError, ("pattern: got '('", "regular expression")),
    Case("Tokenizer.train pattern leaves out", lambda: Tokenizer.train(["a1"], 300, pattern="[a-z]+"), ValueError, ("pattern: got '[a-z]+'", "leaves out no part")),
    Case("Tokenizer.train engine", lambda: Tokenizer.train(["aa"], 300, engine="rust"), ValueError, ("engine: got 'rust'", "'tokenizers'")),
    Case("Tokenizer.train None", lambda: Tokenizer.train([None], 300), TypeError, ("text: got NoneType", "str")),
    Case("Tokenizer.train surrogate", lambda: Tokenizer.train(["a\ud800"], 300), ValueError, ("text: got the lone surrogate U+D800 at position 1",)),
    Case("Tokenizer.encode_bytes str", lambda: tokenizer().encode_bytes("hi"), TypeError, ("data: got str", "bytes")),
    Case("Tokenizer.check_same size", lambda: tokenizer().check_same(Tokenizer([])), ValueError, ("other: got 257 tokens", f"want {V} tokens")),
    Case("Tokenizer.check_same token", lambda: tokenizer().check_same(Tokenizer([(104, 105), (104, 116), (101, 114)])), ValueError,
         ("other: got token 257 = ht", "want th")),
    Case("Tokenizer ids too few", lambda: Tokenizer([], ids=[1, 0]), ValueError, ("ids: got 2 numbers", "each number from 0 to 256 once")),
    Case("Tokenizer ids twice", lambda: Tokenizer([], ids=[0] * 257), ValueError, ("ids: got 257 numbers", "each number from 0 to 256 once")),
    Case("Tokenizer ids of floats", lambda: Tokenizer([], ids=[float(k) for k in range(257)]), TypeError, ("ids: got", "integers")),
    Case("Tokenizer.load ids", lambda: merges_file('{"format": "tlm_book.tokenizer.1", "merges": [], "specials": [], "pattern": ".", "ids": [1]}'), ValueError,
         ("path: got", "ids: got 1 numbers", "Tokenizer.save")),
    Case("learn_merges n_merges half", lambda: tokenization.learn_merges({"aa": 2}, 1.5), TypeError, ("n_merges: got 1.5", "a whole number")),
    Case("train_by_tokenizers n_merges half", lambda: tokenization.train_by_tokenizers(["aa"], 1.5), TypeError, ("n_merges: got 1.5", "a whole number")),
    Case("Tokenizer merge of a str", lambda: Tokenizer(["ab"]), TypeError, ("merges: got 'ab' as number 0", "pairs of integers")),
    Case("Tokenizer merge of one number", lambda: Tokenizer([97, 98]), TypeError, ("merges: got 97 as number 0", "pairs of integers")),
    Case("Tokenizer merge of one number in torch", lambda: Tokenizer(torch.tensor([97, 98])), TypeError, ("merges: got tensor(97) as number 0", "pairs of integers")),
    Case("Tokenizer merge of three", lambda: Tokenizer([(97, 98, 99)]), TypeError, ("merges: got (97, 98, 99) as number 0", "pairs of integers")),
    Case("Tokenizer merge of a switch", lambda: Tokenizer([(True, 98)]), TypeError, ("merges: got (True, 98) as number 0", "pairs of integers")),
    Case("Tokenizer merges that double", lambda: Tokenizer([(97, 97), *((256 + k, 256 + k) for k in range(5_000))]), ValueError,
         ("merges: got tokens of 1,073,742,078 bytes", "number 28", "at most 1,000,000,000 bytes")),
    Case("Tokenizer pattern from the right", lambda: Tokenizer([], pattern="(?rs).").encode("tea"), ValueError, ("pattern: got '(?rs).'", "in order")),
    Case("pre_tokens pattern from the right", lambda: tokenization.pre_tokens("tea", r"(?r)\p{L}|\s"), ValueError, ("pattern: got", "in order")),
    Case("learn_merges too many", lambda: tokenization.learn_merges({"aa": 2}, 1_200_000), ValueError, ("n_merges: got 1200000", "≤ 1113856")),
    Case("spec first_tokens outside", lambda: s_tokenization.first_tokens("é", s_tokenization.base_vocabulary("e")), ValueError, ("text: got 'é'", "base vocabulary")),
    Case("spec learn_from negative", lambda: s_tokenization.learn_from([[0, 0]], -1, 1), ValueError, ("n_merges: got -1", "≥ 0")),
    Case("Tokenizer special twice", lambda: Tokenizer([], ["<a>", "<a>"]), ValueError, ("specials: got ['<a>', '<a>']", "different")),
    Case("Tokenizer special empty", lambda: Tokenizer([], [""]), ValueError, ("specials: got ''", "not empty")),
    Case("Tokenizer merge of a later token", lambda: Tokenizer([(97, 256)]), ValueError, ("merges: got (97, 256) as number 0", "from 0 to 255")),
    Case("Tokenizer merge twice", lambda: Tokenizer([(97, 98), (97, 98)]), ValueError, ("merges: got a pair twice", "different")),
    Case("Tokenizer merge of floats", lambda: Tokenizer([(97.0, 98)]), TypeError, ("merges: got (97.0, 98) as number 0", "integers")),
    Case("Vocabulary without start", lambda: Vocabulary([], []).start, ValueError, ("specials: got none", "start marker")),
    Case("learn_merges n_merges negative", lambda: tokenization.learn_merges({"aa": 2}, -1), ValueError, ("n_merges: got -1", "≥ 0")),
    Case("Tokenizer.load no JSON", lambda: merges_file("{"), ValueError, ("path: got", "tokenizer.json", "Tokenizer.save")),
    Case("Tokenizer.load other JSON", lambda: merges_file('{"merges": []}'), ValueError, ("path: got", "format", "Tokenizer.save")),
    # derivations
    Case("audit of a number", lambda: auditing.audit(3, z(2, 4)), TypeError, ("model: got int", "callable")),
    Case("audit of a str", lambda: auditing.audit(torch.nn.Linear(2, 2), "x"), TypeError, ("inputs: got str", "tensor")),
    Case("audit of one row", lambda: auditing.audit(torch.nn.Linear(2, 2), z(1, 2)), ValueError, ("inputs: got 1 rows", "at least 2")),
    Case("audit on another device", lambda: auditing.audit(torch.nn.Linear(2, 2), z(4, 2, device="meta")), ValueError, ("inputs: got device meta", "cpu")),
    Case("audit of a mean", lambda: auditing.audit(lambda x: x.mean(-2), z(4, 2)), ValueError, ("row_axis: got", "row_axis=")),
    Case("audit of no tensor", lambda: auditing.audit(lambda x: None, z(4, 2)), TypeError, ("got NoneType", "a tensor")),
    Case("audit of a model that raises", lambda: auditing.audit(torch.nn.Linear(3, 2), z(4, 2)), ValueError, ("inputs: got RuntimeError", "takes")),
    Case("audit with an unknown back end", lambda: auditing.audit(torch.nn.Linear(2, 2), z(4, 2), back_ends=["magic"]), ValueError, ("back_ends: got 'magic'", "math")),
    Case("audit with a back end in a list", lambda: auditing.audit(torch.nn.Linear(2, 2), z(4, 2), back_ends=[["math"]]), ValueError, ("back_ends: got ['math']", "a list of names")),
    Case("audit with an unknown expectation", lambda: auditing.audit(torch.nn.Linear(2, 2), z(4, 2), expects="some"), ValueError, ("expects: got 'some'", "causal")),
    Case("audit of an axis that is not there", lambda: auditing.audit(torch.nn.Linear(2, 2), z(4, 2), row_axis=5), ValueError, ("row_axis: got 5", "(4, 2)")),
    Case("audit of a window that sees all", lambda: auditing.audit(torch.nn.Linear(2, 2), z(4, 2), expects="all", max_lookback=1), ValueError, ("max_lookback: got 1", "None")),
    Case("audit in no mode", lambda: auditing.audit(torch.nn.Linear(2, 2), z(4, 2), modes=[]), ValueError, ("modes: got []", "eval")),
    Case("audit in a mode that is a str", lambda: auditing.audit(torch.nn.Linear(2, 2), z(4, 2), modes="eval"), ValueError, ("modes: got 'eval'", "a list")),
    Case("audit at lengths that are a number", lambda: auditing.audit(torch.nn.Linear(2, 2), z(4, 2), lengths=3), ValueError, ("lengths: got 3", "a list")),
    Case("audit at one row only", lambda: auditing.audit(torch.nn.Linear(2, 2), z(4, 2), lengths=[1]), ValueError, ("lengths: got [1]", "above 1")),
    Case("audit with half a row of lookback", lambda: auditing.audit(torch.nn.Linear(2, 2), z(4, 2), max_lookback=0.5), ValueError, ("max_lookback: got 0.5", "whole number")),
    Case("audit of one token", lambda: auditing.audit(torch.nn.Linear(2, 2), z(4, 2), vocab_size=1), ValueError, ("vocab_size: got 1", "at least 2")),
    Case("audit of no work", lambda: auditing.audit(torch.nn.Linear(2, 2), z(4, 2), work=float("nan")), ValueError, ("work: got nan", "at least 0")),
    Case("audit with a step that is none", lambda: auditing.audit(torch.nn.Linear(2, 2), z(4, 2), step=3), TypeError, ("step: got int", "a function")),
    Case("audit along an axis that the rows lack", lambda: auditing.audit(torch.nn.Linear(2, 2), z(4, 2), input_axis=5), ValueError, ("input_axis: got 5", "(4, 2)")),
    Case("audit along an axis by name", lambda: auditing.audit(torch.nn.Linear(2, 2), z(4, 2), input_axis="rows"), TypeError, ("input_axis: got 'rows'", "whole number")),
    Case("audit of rows along half an axis", lambda: auditing.audit(torch.nn.Linear(2, 2), z(4, 2), row_axis=1.0), TypeError, ("row_axis: got 1.0", "whole number")),
    Case("audit with work in words", lambda: auditing.audit(torch.nn.Linear(2, 2), z(4, 2), work="much"), TypeError, ("work: got 'much'", "a number")),
    Case("audit with a yes for a lookback", lambda: auditing.audit(torch.nn.Linear(2, 2), z(4, 2), max_lookback=True), ValueError, ("max_lookback: got True", "whole number")),
    Case("audit at lengths in one text", lambda: auditing.audit(torch.nn.Linear(2, 2), z(4, 2), lengths="34"), ValueError, ("lengths: got '34'", "a list")),
    Case("audit with back ends in a str", lambda: auditing.audit(torch.nn.Linear(2, 2), z(4, 2), back_ends="math"), ValueError, ("back_ends: got 'math'", "a list")),
    Case("audit without memory", lambda: auditing.audit(torch.nn.Linear(2, 2), z(4, 2), memory=0), ValueError, ("memory: got 0", "at least 1")),
    Case("audit at no rows", lambda: auditing.audit(torch.nn.Linear(2, 2), z(4, 2), lengths=[0, 4]), ValueError, ("lengths: got 0", "from 1 to 4")),
    Case("audit of half a token", lambda: auditing.audit(torch.nn.Linear(2, 2), z(4, 2), vocab_size=2.5), ValueError, ("vocab_size: got 2.5", "at least 2 tokens")),
    Case("audit of no sequence", lambda: auditing.audit(torch.nn.Linear(2, 2), z(0, 4, 2)), ValueError, ("inputs: got an empty batch", "at least one")),
    Case("audit of infinite numbers", lambda: auditing.audit(torch.nn.Linear(2, 2), z(4, 2) + torch.inf), ValueError, ("inputs: got NaN or infinite", "finite numbers")),
    Case("audit at a length too large", lambda: auditing.audit(torch.nn.Linear(2, 2), z(4, 2), lengths=[9]), ValueError, ("lengths: got 9", "4")),
    Case("spec attention of a vector", lambda: s_attention.attention([1.0, 2.0], np.eye(2), np.eye(2)), ValueError, ("Q: got shape (2,)", "(n, k)")),
    Case("spec attention of a batch", lambda: s_attention.attention(z(2, 3, 4), np.eye(4), np.eye(4)), ValueError, ("Q: got shape (2, 3, 4)", "(n, k)")),
    Case("spec attention of rows of two lengths", lambda: s_attention.attention([[1], [1, 2]], np.eye(2), np.eye(2)), TypeError, ("Q: got a list that is no array of numbers", "(n, k)")),
    Case("spec attention of words", lambda: s_attention.attention([["a"]], np.eye(2), np.eye(2)), TypeError, ("Q: got a list that is no array of numbers", "(n, k)")),
    Case("spec learn of one text", lambda: s_tokenization.learn("abab", 3), TypeError, ("pieces: got a single str", "a list of them")),
    Case("spec sinusoid base -2", lambda: s_positional_encoding.sinusoid(2, 2, base=-2), ValueError, ("base: got -2", "a number > 0")),
    Case("spec offset_map base 0", lambda: s_positional_encoding.offset_map(1, 2, base=0), ValueError, ("base: got 0", "a number > 0")),
    Case("sinusoidal_table base 0", lambda: positional_encoding.sinusoidal_table(2, 2, base=0), ValueError, ("base: got 0", "a number > 0")),
    Case("spec rope_frequencies base -1", lambda: s_positional_encoding.rope_frequencies(2, base=-1), ValueError, ("base: got -1", "a number > 0")),
    Case("derive of a function", lambda: derivation.derive(len), TypeError, ("module: got builtin_function_or_method", "torch.nn.Module")),
    Case("register_rule of an object", lambda: derivation.register_rule("x"), TypeError, ("module_type: got 'x'", "torch.nn.Module")),
    Case("Causal of a Linear", lambda: derivation.Causal(torch.nn.Linear(2, 2)), TypeError, ("module: got Linear", "take a mask")),
    Case("compose without a name", lambda: derivation.compose(derivation.derive(torch.nn.Flatten()), derivation.derive(torch.nn.ReLU())), TypeError, ("subject: got Derivation", "a name, then the premises")),
    Case("a Derivation with a list of premises", lambda: derivation.Derivation("x", derivation.Kind.ROWWISE, "r", [derivation.derive(torch.nn.ReLU())]), TypeError, ("premises: got list", "a tuple")),
    Case("a Derivation from a name", lambda: derivation.Derivation("x", derivation.Kind.ROWWISE, "r", ("y",)), TypeError, ("premises: got str", "Derivations")),
    Case("assumptions of a model", lambda: derivation.assumptions(torch.nn.ReLU()), TypeError, ("proof: got ReLU", "a Derivation")),
    Case("Causal attention with a memory", lambda: derivation.Causal(torch.nn.MultiheadAttention(4, 2))(z(3, 4), z(3, 4)), TypeError, ("memory: got 1 of them", "only a decoder")),
    Case("a Causal decoder without memory", lambda: derivation.Causal(torch.nn.TransformerDecoderLayer(4, 2, 8))(z(3, 4)), TypeError, ("memory: got 0 of them", "one, for a decoder")),
    Case("primitive of a kind in words", lambda: derivation.primitive("x", "rowwise", "one map"), TypeError, ("kind: got str", "Kind.ROWWISE")),
    Case("pattern without a mask, of a str", lambda: derivation.pattern("A", derivation.primitive("Q", derivation.Kind.ROWWISE, "r"), "K", False), TypeError, ("keys: got str",)),
    Case("compose of nothing", lambda: derivation.compose("T"), ValueError, ("premises: got none", "at least one")),
    Case("add of a str", lambda: derivation.add("T", "S"), TypeError, ("premises: got str", "Derivation")),
    Case("pattern of a str", lambda: derivation.pattern("A", "Q", "K"), TypeError, ("queries: got str", "Derivation")),
    Case("product of a str", lambda: derivation.product("AB", "A", "B"), TypeError, ("weights: got str", "Derivation")),
    Case("directional_derivatives without weights", lambda: gradients.directional_derivatives(torch.nn.Identity(), lambda: z(1)), ValueError, ("model: got no weight",)),
    # training
    Case("spec adamw of two lengths", lambda: s_optimization.adamw(np.zeros(3), np.zeros(4), np.zeros(3), np.zeros(3), 1, 0.1, (0.9, 0.99), 0.0),
         ValueError, ("g: got shape (4,)", "(3)")),
    Case("spec sgd of two lengths", lambda: s_optimization.sgd(np.zeros(3), np.zeros(4), 0.1), ValueError, ("g: got shape (4,)", "(3)")),
    Case("spec momentum of two lengths", lambda: s_optimization.momentum(np.zeros(3), np.zeros(3), np.zeros(2), 0.1, 0.9), ValueError, ("m: got shape (2,)",)),
    Case("spec nesterov of a str", lambda: s_optimization.nesterov("1", np.zeros(1), np.zeros(1), 0.1, 0.9), TypeError, ("w: got str",)),
    Case("spec adam step 0", lambda: s_optimization.adam(*np.zeros((4, 3)), 0, 0.1, (0.9, 0.99)), ValueError, ("t: got 0", "at least 1")),
    Case("spec adamw step 0", lambda: s_optimization.adamw(*np.zeros((4, 3)), 0, 0.1, (0.9, 0.99), 0.1), ValueError, ("t: got 0", "at least 1")),
    Case("spec amsgrad step 0", lambda: s_optimization.amsgrad(*np.zeros((5, 3)), 0, 0.1, (0.9, 0.99)), ValueError, ("t: got 0", "at least 1")),
    Case("spec scheduled_rate of another schedule", lambda: s_optimization.scheduled_rate(0, 9, 1, 0.1, 0.0, "sine"), ValueError,
         ("schedule: got 'sine'", "'cosine'")),
    Case("spec clip to less than 0", lambda: s_optimization.clip(np.ones(3), -1.0), ValueError, ("c: got -1.0", "≥ 0")),
    Case("spec clip nan", lambda: s_optimization.clip(np.ones(3), float("nan")), ValueError, ("c: got nan", "≥ 0")),
    Case("spec noise_scale of one gradient", lambda: s_optimization.noise_scale(np.ones((1, 3))), ValueError, ("G: got 1 rows", "at least 2")),
    Case("spec newton_schulz of a row", lambda: s_optimization.newton_schulz(np.ones(3)), ValueError, ("M: got shape (3,)", "(n, m)")),
    Case("sharpness of no weights", lambda: optimization.sharpness(lambda: torch.zeros(()), []), ValueError, ("weights: got none", "at least one")),
    Case("sharpness start shape", lambda: optimization.sharpness(lambda: torch.zeros(()), [torch.zeros(3)], 1, [torch.ones(1)]), ValueError,
         ("start: got shapes [(1,)]", "[(3,)]")),
    Case("sharpness start 0", lambda: optimization.sharpness(lambda: torch.zeros(()), [torch.zeros(3)], 1, [torch.zeros(3)]), ValueError,
         ("start: got shapes [(3,)]", "not all numbers 0")),
    Case("sharpness in no iterations", lambda: optimization.sharpness(lambda: torch.zeros(()), [torch.zeros(1)], 0), ValueError,
         ("iterations: got 0", "at least 1")),
    Case("spec clip of a table", lambda: s_optimization.clip(np.zeros((2, 2)), 1.0), ValueError, ("g: got shape (2, 2)", "(N)")),
    Case("spec bigram_table token", lambda: s_training.bigram_table([-1, 0, 1], 3, 0.5), IndexError, ("x: got a token -1", "from 0 to 2")),
    Case("spec kneser_ney token", lambda: s_training.kneser_ney([0, 1, 0, 1, 7], 2, ()), IndexError, ("x: got a token 7", "from 0 to 1")),
    Case("spec bigram_table of letters", lambda: s_training.bigram_table("aba", 2, 0.5), TypeError, ("x: got str", "shape (N)")),
    Case("bigram_log_probs discount", lambda: training.bigram_log_probs(ids(0, 1, 0), ids(0), ids(1), 2, -1.5), ValueError, ("discount: got -1.5", "from 0 to 1")),
    Case("bigram_log_probs token -1", lambda: training.bigram_log_probs(ids(0, 1, 0), ids(0), ids(-1), 2, 0.5), IndexError, ("tokens: got a token -1", "from 0 to 1")),
    Case("bigram_log_probs previous 2", lambda: training.bigram_log_probs(ids(0, 1, 0), ids(2), ids(1), 2, 0.5), IndexError, ("previous: got a token 2", "from 0 to 1")),
    Case("unigram of fractions", lambda: training.unigram(z(9) + 0.5, tokens(0, 1), 2), TypeError, ("train: got dtype float32", "integer tokens")),
    Case("bigram of no held-out token", lambda: training.bigram(torch.arange(30) % 2, tokens(), 2), ValueError, ("held_out: got no token", "at least one")),
    Case("trigram of rows", lambda: training.trigram(tokens(0, 1, 0, 1)[None], tokens(0, 1), 2), ValueError, ("train: got shape (1, 4)", "one row")),
    Case("unigram of an array", lambda: training.unigram(ids(0, 1), ids(0, 1), 2), TypeError, ("train: got ndarray", "a tensor")),
    Case("decode one number of torch", lambda: Tokenizer([]).decode(tokens(5)[0]), TypeError, ("tokens: got a single number", "several integers")),
    Case("unigram_log_probs token -1", lambda: training.unigram_log_probs(ids(0, 1, 0), ids(-1), 2), IndexError, ("tokens: got a token -1", "from 0 to 1")),
    Case("unigram_log_probs floats", lambda: training.unigram_log_probs(np.ones(3), ids(1), 2), TypeError, ("train: got dtype float64", "integer tokens")),
    Case("bigram_log_probs one previous", lambda: training.bigram_log_probs(ids(0, 1, 0), ids(0), ids(1, 0), 2, 0.5), ValueError,
         ("previous: got shape (1,)", "(2,)")),
    Case("kneser_ney_log_probs one history", lambda: training.kneser_ney_log_probs(ids(0, 1, 0), ids(0)[None], ids(1, 0), 2), ValueError,
         ("history: got shape (1, 1)", "(2, 1)")),
    Case("kneser_ney_log_probs history row", lambda: training.kneser_ney_log_probs(ids(0, 1, 0), ids(0), ids(1), 2), ValueError,
         ("history: got shape (1,)", "(K, m)")),
    Case("kneser_ney_log_probs rows of tokens", lambda: training.kneser_ney_log_probs(ids(0, 1, 0), ids(0)[None], ids(1)[None], 2), ValueError,
         ("tokens: got shape (1, 1)", "(K)")),
    Case("kneser_ney_log_probs history -1", lambda: training.kneser_ney_log_probs(ids(0, 1, 0), ids(-1)[None], ids(1), 2), IndexError, ("history: got a token -1", "from 0 to 1")),
    Case("kneser_ney_log_probs train 2", lambda: training.kneser_ney_log_probs(ids(0, 2, 0), ids(0)[None], ids(1), 2), IndexError, ("train: got a token 2", "from 0 to 1")),
    Case("spec discounts of halves", lambda: s_training.discounts(np.array([0.5])), TypeError, ("c: got dtype float64", "integers")),
    Case("spec kneser_ney of halves", lambda: s_training.kneser_ney(np.array([0.5]), 2, ()), TypeError, ("x: got dtype float64", "integers")),
    Case("TrainConfig steps 0", lambda: training.TrainConfig(steps=0), ValueError, ("steps: got 0", "at least 1")),
    Case("TrainConfig lr negative", lambda: training.TrainConfig(lr=-1.0), ValueError, ("lr: got -1.0", "> 0")),
    Case("TrainConfig lr nan", lambda: training.TrainConfig(lr=float("nan")), ValueError, ("lr: got nan", "> 0")),
    Case("TrainConfig lr infinite", lambda: training.TrainConfig(lr=float("inf")), ValueError, ("lr: got inf", "finite")),
    Case("TrainConfig lr text", lambda: training.TrainConfig(lr="fast"), TypeError, ("lr: got 'fast'", "number")),
    Case("TrainConfig seed half", lambda: training.TrainConfig(seed=0.5), TypeError, ("seed: got 0.5", "whole number")),
    Case("TrainConfig warmup", lambda: training.TrainConfig(steps=10, warmup=11), ValueError, ("warmup: got 11", "steps = 10")),
    Case("TrainConfig validation", lambda: training.TrainConfig(validation=1.0), ValueError, ("validation: got 1.0", "between 0 and 1")),
    Case("TrainConfig betas", lambda: training.TrainConfig(betas=(0.9, 1.0)), ValueError, ("betas: got (0.9, 1.0)", "[0, 1)")),
    Case("TrainConfig dtype", lambda: training.TrainConfig(dtype="float8"), ValueError, ("dtype: got 'float8'", "'bfloat16'")),
    Case("TrainConfig schedule", lambda: training.TrainConfig(schedule="line"), ValueError, ("schedule: got 'line'", "'linear'")),
    Case("TrainConfig replanned", lambda: training.TrainConfig(steps=90, replanned=((4, 3),)), ValueError, ("replanned: got ((4, 3),)", "pairs (step, steps)")),
    Case("TrainConfig replanned number", lambda: training.TrainConfig(replanned=5), ValueError, ("replanned: got 5", "pairs (step, steps)")),
    Case("TrainConfig replanned numbers", lambda: training.TrainConfig(replanned=(5,)), ValueError, ("replanned: got (5,)", "pairs (step, steps)")),
    Case("TrainConfig lr True", lambda: training.TrainConfig(lr=True), TypeError, ("lr: got True", "a number")),
    Case("TrainConfig min_lr text", lambda: training.TrainConfig(min_lr="0"), TypeError, ("min_lr: got '0'", "a number")),
    Case("TrainConfig weight_decay infinite", lambda: training.TrainConfig(weight_decay=float("inf")), ValueError, ("weight_decay: got inf", "finite")),
    Case("TrainConfig weight_decay text", lambda: training.TrainConfig(weight_decay="0"), TypeError, ("weight_decay: got '0'", "a number")),
    Case("TrainConfig clip 0", lambda: training.TrainConfig(clip=0.0), ValueError, ("clip: got 0.0", "> 0")),
    Case("TrainConfig clip text", lambda: training.TrainConfig(clip="1"), TypeError, ("clip: got '1'", "a number")),
    Case("TrainConfig token_noise None", lambda: training.TrainConfig(token_noise=None), TypeError, ("token_noise: got None", "a number")),
    Case("TrainConfig validation text", lambda: training.TrainConfig(validation="0.1"), TypeError, ("validation: got '0.1'", "a number")),
    Case("TrainConfig warmup half", lambda: training.TrainConfig(warmup=2.5), TypeError, ("warmup: got 2.5", "a whole number")),
    Case("TrainConfig seed True", lambda: training.TrainConfig(seed=True), TypeError, ("seed: got True", "a whole number")),
    Case("TrainConfig one beta", lambda: training.TrainConfig(betas=0.9), ValueError, ("betas: got 0.9", "two numbers in [0, 1)")),
    Case("TrainConfig betas of text", lambda: training.TrainConfig(betas=("0", 0.9)), ValueError, ("betas: got ('0', 0.9)", "two numbers in [0, 1)")),
    Case("TrainConfig compile text", lambda: training.TrainConfig(compile="false"), TypeError, ("compile: got 'false'", "True or False")),
    Case("TrainConfig activation_checkpointing text", lambda: training.TrainConfig(activation_checkpointing="no"), TypeError, ("activation_checkpointing: got 'no'", "True or False")),
    Case("train_files no time", lambda: training.train_files(__file__, "nowhere", minutes=-1.0), ValueError, ("minutes: got -1.0", "> 0")),
    Case("train_files time and steps", lambda: training.train_files(__file__, "nowhere", minutes=1.0, steps=5), ValueError, ("minutes: got 1.0", "a number of steps")),
    Case("TrainConfig seed too big", lambda: training.TrainConfig(seed=2**70), ValueError, ("seed: got 1180591620717411303424",)),
    Case("sample_batch several rows", lambda: training.sample_batch(tokens(1, 2, 3, 4).view(2, 2), 1, 1, 0, 0), ValueError, ("tokens: got shape (2, 2)", "(N)")),
    Case("sample_batch floats", lambda: training.sample_batch(tokens(1, 2, 3).float(), 1, 1, 0, 0), TypeError, ("tokens: got dtype torch.float32",)),
    Case("evaluate a list", lambda: training.evaluate(model(), [1, 2, 3], 2, 0), TypeError, ("tokens: got list", "a tensor")),
    Case("evaluate several rows", lambda: training.evaluate(model(), tokens(1, 2, 3, 4).view(2, 2), 2, 0), ValueError, ("tokens: got shape (2, 2)", "(N)")),
    Case("evaluate batch", lambda: training.evaluate(model(), tokens(1, 2), 2, 0, batch_size=0), ValueError, ("batch_size: got 0", "at least 1")),
    Case("train on rows", lambda: training.train(training.TrainConfig(steps=1, warmup=0), tiny(), tokens(*range(40)).view(2, 20), tokens(1), device="cpu", progress=False),
         ValueError, ("train_tokens: got shape (2, 20)",)),
    Case("train judged on floats", lambda: training.train(training.TrainConfig(steps=1, warmup=0), tiny(), tokens(*range(40)), tokens(1).float(), device="cpu", progress=False),
         TypeError, ("validation_tokens: got dtype torch.float32",)),
    Case("learn_tokenizer one str", lambda: training.learn_tokenizer("the tea", 260, 0), TypeError, ("texts: got one str", "a list of str")),
    Case("sample_batch of no tokens", lambda: training.sample_batch(tokens(1, 2), 0, 1, 0, 0), ValueError, ("n: got 0", "at least 1")),
    Case("sample_batch of no rows", lambda: training.sample_batch(tokens(1, 2), 1, 0, 0, 0), ValueError, ("batch_size: got 0", "at least 1")),
    Case("corrupt_tokens share", lambda: training.corrupt_tokens(tokens(1, 2)[None], tokens(1, 2)[None], 1.5), ValueError, ("share: got 1.5", "from 0 to 1")),
    Case("flops_per_token of no token", lambda: training.flops_per_token(Config(5), 0), ValueError, ("n: got 0", "at least 1")),
    Case("iter_steps unequal shares", lambda: next(training.iter_steps(None, None, None, 1, 0, training.TrainConfig(batch_size=6), world_size=4)), ValueError,
         ("batch_size: got 6", "multiple of the 4")),
    Case("recipe steps as text", lambda: training.recipe(training.fit_size(1), steps="many"), TypeError, ("steps: got 'many'", "a whole number")),
    Case("stream_documents of one path", lambda: next(training.stream_documents("a.txt")), TypeError, ("files: got one str", "a list of paths")),
    Case("write_checkpoint without notes", lambda: training.write_checkpoint(Path("nowhere"), 1, {"w": torch.ones(1)}, {}), ValueError,
         ("notes: got []", "'run'", "'held_out'")),
    Case("write_checkpoint step", lambda: training.write_checkpoint(Path("nowhere"), -1, {"w": torch.ones(1)}, {"run": {"training": {}}, "held_out": None}), ValueError,
         ("step: got -1", "≥ 0")),
    Case("train start", lambda: briefly(start=5), IndexError, ("start: got 5", "from 0 to 4")),
    Case("train held-out token", lambda: briefly(5), IndexError, ("validation_tokens: got a token 5", "from 0 to 4")),
    Case("train keep", lambda: briefly(keep=0), ValueError, ("keep: got 0", "at least 1")),
    Case("train watch", lambda: briefly(watch=3), TypeError, ("watch: got 3", "a function")),
    Case("sample_batch too short", lambda: training.sample_batch(tokens(1, 2), 3, 1, 0, 0), ValueError, ("tokens: got 2 tokens", "at least n = 3")),
    Case("split_documents one", lambda: training.split_documents(["a"], 0.5, 0), ValueError, ("texts: got 1 documents", "at least 2")),
    Case("split_documents one str", lambda: training.split_documents("abc", 0.5, 0), TypeError, ("texts: got one str",)),
    Case("encode_corpus one str", lambda: training.encode_corpus(tokenizer(), "abc"), TypeError, ("texts: got one str",)),
    Case("evaluate nothing", lambda: training.evaluate(model(), tokens(), 4, 0), ValueError, ("tokens: got no tokens", "at least 1")),
    Case("choose_device meta", lambda: training.choose_device("meta"), ValueError, ("device: got 'meta'", '"cpu"')),
    Case("choose_device unknown", lambda: training.choose_device("quantum"), ValueError, ("device: got 'quantum'", '"cpu"')),
    Case("train on too little", lambda: training.train(training.TrainConfig(steps=1, warmup=0), tiny(), tokens(1, 2), tokens(1), device="cpu", progress=False),
         ValueError, ("train_tokens: got 2 tokens", f"at least max_len = {M}")),
    Case("train held out none", lambda: training.train(training.TrainConfig(steps=1, warmup=0), tiny(), tokens(*range(40)), tokens(), device="cpu", progress=False),
         ValueError, ("validation_tokens: got no tokens", "at least 1")),
    Case("train settings exchanged", lambda: training.train(tiny(), training.TrainConfig(), tokens(*range(40)), tokens(1)), TypeError, ("config: got Config", "a TrainConfig")),
    Case("train a number for a model", lambda: training.train(training.TrainConfig(), 300, tokens(*range(40)), tokens(1)), TypeError, ("model_config: got int", "a Config")),
    Case("train folder 3", lambda: training.train(training.TrainConfig(steps=1, warmup=0), tiny(), tokens(*range(40)), tokens(1), folder=3), TypeError, ("folder: got int", "a path")),
    Case("load folder 3", lambda: training.load(3), TypeError, ("folder: got int", "a path")),
    Case("generate seed", lambda: inference.generate(model(), [1], 1, seed=1), TypeError, ("seed: got an unknown argument", "generator")),
    Case("TrainConfig grad_accum_steps", lambda: training.TrainConfig(batch_size=2, grad_accum_steps=3), ValueError, ("grad_accum_steps: got 3", "batch_size = 2")),
    Case("evaluate context", lambda: training.evaluate(model(), tokens(1, 2, 3), 4, 0, context=4), ValueError, ("context: got 4", "n − 1 = 3")),
    Case("trigram of too little", lambda: training.trigram(tokens(1, 2, 3), tokens(1), 5), ValueError, ("train: got 3 tokens", "more than 3")),
    Case("trigram of too many tokens", lambda: training.trigram(tokens(1, 2, 3, 4), tokens(1), 2**21), ValueError, ("vocab_size: got 2097152", "2^63")),
    Case("plan unknown choice", lambda: training.plan(1000, layer=2), ValueError, ("choices: got ['layer']", "did you mean layers?")),
    Case("model_for another preset", lambda: training.model_for(training.fit_size(9999), 300, "gpt9"), ValueError, ("preset: got 'gpt9'", "'gpt2'")),
    Case("read_text missing", lambda: training.read_text("no/such/file.txt"), FileNotFoundError, ("path: got no file at 'no/such/file.txt'", "text file")),
    Case("read_text folder", lambda: training.read_text("."), ValueError, ("path: got the folder '.'", "text file")),
    Case("read_text not UTF-8", lambda: text_file(b"ab\xff" + b"a" * 5000), ValueError, ("path: got the byte 0xff at position 2", "want a text file in UTF-8")),
    Case("read_text too short", lambda: text_file(b"ab"), ValueError, ("path: got 2 bytes", "at least 4096")),
    # a saved folder
    # scaling
    Case("training_cost no device", lambda: scaling.training_cost(Config(5), 1e6, devices=0), ValueError, ("devices: got 0", "at least 1")),
    Case("training_cost no token", lambda: scaling.training_cost(Config(5), 0.0), ValueError, ("tokens: got 0.0", "> 0")),
    Case("training_cost endless", lambda: scaling.training_cost(Config(5), float("inf")), ValueError, ("tokens: got inf", "a finite number > 0")),
    Case("training_cost in no time", lambda: scaling.training_cost(Config(5), 1e6, peak_matmul_flops=float("inf")), ValueError,
         ("peak_matmul_flops: got inf", "a finite number > 0")),
    Case("training_cost tokens as text", lambda: scaling.training_cost(Config(5), "1e6"), TypeError, ("tokens: got '1e6'", "a number")),
    Case("training_cost mfu", lambda: scaling.training_cost(Config(5), 1e6, mfu=1.5), ValueError, ("mfu: got 1.5", "(0, 1]")),
    Case("training_cost parallel", lambda: scaling.training_cost(Config(5), 1e6, parallel="pipeline"), ValueError, ("parallel: got 'pipeline'", "'fsdp'")),
    Case("text_files missing", lambda: scaling.text_files("no/such/file.txt"), FileNotFoundError, ("path: got no file at 'no/such/file.txt'",)),
    Case("text_files empty folder", lambda: in_folder(scaling.text_files), ValueError, ("path: got the folder", "without files")),
    Case("write_tokens one str", lambda: in_folder(lambda folder: scaling.write_tokens(folder / "t", "tea", tokenizer())), TypeError, ("texts: got one str",)),
    Case("train_files time in words", lambda: training.train_files(__file__, "nowhere", minutes="3"), TypeError, ("minutes: got '3'", "a number")),
    Case("train_files watch", lambda: training.train_files(__file__, "nowhere", watch=3), TypeError, ("watch: got 3", "a function of step, model and tokenizer")),
    Case("train_files nowhere", lambda: training.train_files(__file__, None), TypeError, ("out: got None", "a path")),
    Case("train_files no path", lambda: training.train_files(3, "nowhere"), TypeError, ("data: got int", "a path")),
    Case("train_files empty path", lambda: training.train_files("", "nowhere"), ValueError, ("path: got ''", "a text file")),
    Case("train_files tokenizer", lambda: scaling.train_files(__file__, "nowhere", tokenizer="t.json"), TypeError, ("tokenizer: got str", "a Tokenizer")),
    Case("train_files tokenizer and size", lambda: scaling.train_files(__file__, "nowhere", tokenizer=tokenizer(), vocab_size=300), ValueError, ("vocab_size: got 300", "the tokenizer has its own")),
    Case("train_files begin with a model alone", lambda: scaling.train_files(__file__, "nowhere", begin=model()), TypeError, ("begin: got TransformerLM", "(model, tokenizer)")),
    Case("best_checkpoint of none", lambda: in_folder(training.best_checkpoint), ValueError, ("folder: got", "without a checkpoint")),
    Case("save no tokenizer", lambda: save_new(model(), None), TypeError, ("tokenizer: got NoneType",)),
    Case("save another model", lambda: save_new(torch.nn.Linear(2, 2), tokenizer()), TypeError, ("model: got Linear", "a TransformerLM")),
    Case("save two types", lambda: save_new(half_model(), tokenizer()), ValueError, ("model: got weights of types torch.bfloat16, torch.float32", "one type")),
    Case("save two tables", lambda: save_new(untied_model(), tokenizer()), ValueError, ("model: got a tied model with two matrices",)),
    Case("write_tokens nothing", lambda: in_folder(lambda folder: scaling.write_tokens(folder / "t", [], tokenizer())), ValueError, ("texts: got no document",)),
    Case("read_tokens missing", lambda: scaling.read_tokens("no/such.tokens"), FileNotFoundError, ("file: got no file at 'no/such.tokens'", "token file")),
    Case("read_tokens foreign", lambda: scaling.read_tokens(__file__), ValueError, ("file: got", "begins otherwise", "token file")),
    Case("save more over its own", lambda: save_with("config.json"), ValueError, ("more: got 'config.json'", "other than config.json, model.safetensors")),
    Case("save more elsewhere", lambda: save_with("../evil"), ValueError, ("more: got '../evil'", "a name in the folder")),
    Case("save more as the folder itself", lambda: save_with(".."), ValueError, ("more: got '..'", "a name in the folder")),
    Case("train in uneven shares", lambda: training.train(
        training.TrainConfig(batch_size=4), tiny(), tokens(*range(9)), tokens(1), dist=scaling.DistContext(0, 3)), ValueError, ("batch_size: got 4", "3 processes")),
    Case("train without a common folder", lambda: training.train(
        training.TrainConfig(batch_size=3), tiny(), tokens(*range(9)), tokens(1), dist=scaling.DistContext(0, 3)), ValueError, ("folder: got None", "3 processes")),
    Case("train keep nothing", lambda: in_folder(lambda folder: training.train(
        training.TrainConfig(), tiny(), tokens(*range(9)), tokens(1), folder=folder, keep=0)), ValueError, ("keep: got 0",)),
    Case("train_files over a folder", lambda: scaling.train_files(__file__, "."), FileExistsError, ("out: got '.', which exists",)),
    Case("train_files unknown choice", lambda: in_folder(lambda folder: scaling.train_files(__file__, folder / "m", layer=2)), ValueError, ("choices: got ['layer']",)),
    Case("save over a folder", lambda: training.save(model(), ".", tokenizer()), FileExistsError, ("folder: got '.', which exists",)),
    Case("save another tokenizer", lambda: save_new(model(), Tokenizer([])), ValueError, ("tokenizer: got 257 tokens", f"vocab_size = {V}")),
    Case("save weights nan", lambda: save_new(spoiled_model(), tokenizer()), ValueError, ("model: got", "unembedding.bias", "finite")),
    Case("load missing folder", lambda: training.load("no/such/folder"), FileNotFoundError, ("folder: got no folder at 'no/such/folder'", "`save`")),
    Case("load device", lambda: saved(lambda folder: training.load(folder, "quantum")), ValueError, ("device: got 'quantum'", '"auto"', '"cpu"')),
    Case("load without config.json", lambda: saved(remove("config.json")), FileNotFoundError, ("folder: got", "without config.json", "`save`")),
    Case("load without model.safetensors", lambda: saved(remove("model.safetensors")), FileNotFoundError, ("folder: got", "without model.safetensors")),
    Case("load without tokenizer.json", lambda: saved(remove("tokenizer.json")), FileNotFoundError, ("folder: got", "without tokenizer.json")),
    Case("load empty config.json", lambda: saved(write("config.json", b"")), ValueError, ("config.json: got no JSON", "`save`")),
    Case("load config.json of other bytes", lambda: saved(write("config.json", b"\xff\xfe{")), ValueError, ("config.json: got no JSON", "`save`")),
    Case("load config.json deep", lambda: saved(write("config.json", b"[" * 100_000)), ValueError, ("config.json: got no JSON", "`save`")),
    Case("load config.json of a list", lambda: saved(write("config.json", b"[]")), ValueError, ("config.json: got no table", "`save`")),
    Case("load config.json unknown field", lambda: saved(edit(d_modle=4)), ValueError, ("config.json: got the unknown field ['d_modle']", "d_model")),
    Case("load config.json missing field", lambda: saved(edit(vocab_size=None)), ValueError, ("config.json: got", "vocab_size")),
    Case("load config.json wrong type", lambda: saved(edit(d_model="4")), ValueError, ("config.json: d_model: got '4'", "a whole number")),
    Case("load config.json other size", lambda: saved(edit(d_ff=7)), ValueError, ("model.safetensors: got", "shape (4, 6)", "(4, 7)")),
    Case("load config.json too many layers", lambda: saved(edit(n_layers=2)), ValueError, ("model.safetensors: got other weights", "blocks.1", "config.json")),
    Case("load config.json another vocabulary", lambda: saved(edit(vocab_size=V + 1)), ValueError, (f"tokenizer.json: got {V} tokens", f"vocab_size = {V + 1}")),
    Case("load config.json scale text", lambda: saved(edit(scale="x")), ValueError, ("config.json: scale: got 'x'",)),
    Case("load cut weights", lambda: saved(cut_file("model.safetensors")), ValueError, ("model.safetensors: got a broken file", "`save`")),
    Case("load empty weights", lambda: saved(write("model.safetensors", b"")), ValueError, ("model.safetensors: got a broken file",)),
    Case("load pickled weights", lambda: saved(write("model.safetensors", b"\x80\x04K\x01.")), ValueError, ("model.safetensors: got a broken file",)),
    Case("load weights nan", lambda: saved(edit_weights(lambda w: w["norm.bias"].fill_(float("nan")))), ValueError, ("model.safetensors: got norm.bias", "finite")),
    Case("load weights inf", lambda: saved(edit_weights(lambda w: w["norm.bias"].fill_(float("inf")))), ValueError, ("model.safetensors: got norm.bias", "finite")),
    Case("load weights of integers", lambda: saved(edit_weights(lambda w: w.update({"norm.bias": w["norm.bias"].long()}))), ValueError,
         ("model.safetensors: got norm.bias", "int64", "floating")),
    Case("load weights of two types", lambda: saved(edit_weights(overflowing)), ValueError, ("model.safetensors: got", "of type torch.float32", "one type for all, here torch.float16")),
    Case("load weights of 8 bits", lambda: saved(edit_weights(lambda w: w.update({name: x.to(torch.float8_e4m3fn) for name, x in w.items()}))), ValueError,
         ("model.safetensors: got", "float8", "of 16 bits or more")),
    Case("load config.json too many computed positions", lambda: saved_waves(max_len=10**9), ValueError, ("config.json: max_len: got 1000000000", "at most 16777216")),
    Case("load a weight missing", lambda: saved(edit_weights(lambda w: w.pop("norm.bias"))), ValueError, ("model.safetensors: got other weights: ['norm.bias']",)),
    Case("load a weight of another shape", lambda: saved(edit_weights(lambda w: w.update({"norm.bias": z(5)}))), ValueError, ("norm.bias of shape (5,)", "want (4,)")),
    Case("load cut tokenizer.json", lambda: saved(cut_file("tokenizer.json")), ValueError, ("tokenizer.json", "Tokenizer.save")),
    Case("load tokenizer.json of a list", lambda: saved(write("tokenizer.json", b"[]")), ValueError, ("tokenizer.json", "Tokenizer.save")),
    # inference
    Case("generate no generator", lambda: inference.generate(model(), tokens(0), 1, generator=0), TypeError, ("generator: got 0", "a torch.Generator")),
    Case("generate compiled how", lambda: inference.generate(model(), tokens(0), 1, compile="yes"), TypeError, ("compile: got 'yes'", "True or False")),
    Case("generate token too big", lambda: inference.generate(model(), tokens(V), 1), IndexError, (f"tokens: got a token {V}", f"from 0 to {V - 1}")),
    Case("generate float tokens", lambda: inference.generate(model(), z(2), 1), TypeError, ("tokens: got dtype torch.float32", "integer")),
    Case("generate a misspelled choice", lambda: inference.generate(model(), tokens(1), 1, topk=3), TypeError, ("topk: got an unknown argument", "did you mean top_k?")),
    Case("stream a misspelled choice", lambda: inference.stream(model(), tokens(1), 1, temprature=1.0), TypeError, ("temprature: got an unknown", "did you mean temperature?")),
    Case("Sampler misspelled", lambda: inference.Sampler(topk=3), TypeError, ("topk: got an unknown argument", "did you mean top_k?")),
    Case("Config misspelled", lambda: Config(5, n_head=3), TypeError, ("n_head: got an unknown argument", "did you mean n_heads?")),
    Case("TrainConfig misspelled", lambda: training.TrainConfig(step=3), TypeError, ("step: got an unknown argument", "did you mean steps?")),
    Case("generate real numbers", lambda: inference.generate(model(), [1.0, 2.0], 1), TypeError, ("tokens: got float", "tensor")),
    Case("generate a text", lambda: inference.generate(model(), "hi", 1), TypeError, ("tokens: got str", "tensor", "tokenizer.encode(text)")),
    Case("generate no texts", lambda: inference.generate(model(), torch.zeros(0, 2, dtype=torch.long), 1), ValueError, ("tokens: got no texts", "at least one")),
    Case("generate an empty list", lambda: inference.generate(model(), [], 1), ValueError, ("tokens: got an empty prompt", "a start marker")),
    Case("stream an empty list", lambda: inference.stream(model(), [], 1), ValueError, ("tokens: got an empty prompt", "a start marker")),
    Case("stream two texts", lambda: inference.stream(model(), [[1, 2], [3]], 1), TypeError, ("tokens: got list in a list", "tensor or list of integer tokens")),
    Case("generate switches", lambda: inference.generate(model(), [1, True], 1), TypeError, ("tokens: got bool in a list", "integer tokens")),
    Case("generate an array of real numbers", lambda: inference.generate(model(), X(2, 3), 1), TypeError, ("tokens: got dtype float64", "integer tokens")),
    Case("stream a table", lambda: inference.stream(model(), np.ones((2, 2), dtype=int), 1), ValueError, ("tokens: got a text of shape (2, 2)", "(n)")),
    Case("generate n_new a switch", lambda: inference.generate(model(), tokens(1), True), TypeError, ("n_new: got True", "whole number")),
    Case("generate start a switch", lambda: inference.generate(model(), tokens(1), 1, start=True), TypeError, ("start: got True", "whole number")),
    Case("generate stop a switch", lambda: inference.generate(model(), tokens(1), 1, stop=True), TypeError, ("stop: got True", "whole number")),
    Case("generate stops that are switches", lambda: inference.generate(model(), tokens(1), 1, stop=[1, True]), TypeError, ("stop: got True", "whole number")),
    Case("generate with hooks", lambda: inference.generate(hooked_model(), tokens(1), 1), ValueError, ("model: got hooks on blocks.0", "run_with_hooks")),
    Case("generate one empty text", lambda: inference.generate(model(), [tokens(1), tokens()], 1), ValueError, ("tokens: got an empty prompt",)),
    Case("generate a list of pages", lambda: inference.generate(model(), [tokens(1)[None]], 1), ValueError, ("tokens: got a text of shape (1, 1)", "(n)")),
    Case("generate too long", lambda: inference.generate(model(), tokens(*[1] * M), 2), ValueError, ("n_new: got 2", f"{M + 1} rows", f"max_len = {M}", "slide")),
    Case("generate one too long", lambda: inference.generate(model(), [tokens(1), tokens(*[1] * M)], 1, start=0), ValueError, ("n_new: got 1", f"{M + 1} rows")),
    Case("generate on_overflow", lambda: inference.generate(model(), tokens(1), 1, on_overflow="forget"), ValueError, ("on_overflow: got 'forget'", "'slide'")),
    Case("generate top_k 0", lambda: inference.generate(model(), tokens(1), 1, top_k=0), ValueError, ("top_k: got 0", "at least 1")),
    Case("generate top_k 2.5", lambda: inference.generate(model(), tokens(1), 1, top_k=2.5), TypeError, ("top_k: got 2.5", "whole number")),
    Case("generate top_p 0", lambda: inference.generate(model(), tokens(1), 1, top_p=0.0), ValueError, ("top_p: got 0.0", "0 < top_p ≤ 1")),
    Case("generate top_p 1.1", lambda: inference.generate(model(), tokens(1), 1, top_p=1.1), ValueError, ("top_p: got 1.1", "≤ 1")),
    Case("generate top_p nan", lambda: inference.generate(model(), tokens(1), 1, top_p=float("nan")), ValueError, ("top_p: got nan",)),
    Case("generate min_p negative", lambda: inference.generate(model(), tokens(1), 1, min_p=-0.1), ValueError, ("min_p: got -0.1", "0 ≤ min_p ≤ 1")),
    Case("generate penalty 0", lambda: inference.generate(model(), tokens(1), 1, repetition_penalty=0), ValueError, ("repetition_penalty: got 0", "> 0")),
    Case("generate penalty None", lambda: inference.generate(model(), tokens(1), 1, repetition_penalty=None), TypeError, ("repetition_penalty: got None", "number")),
    Case("generate two stops", lambda: inference.generate(model(), tokens(1), 1, stop=[1, V]), IndexError, (f"stop: got {V}", f"from 0 to {V - 1}")),
    Case("generate stop text", lambda: inference.generate(model(), tokens(1), 1, stop="."), TypeError, ("stop: got .", "list")),
    Case("stream too long", lambda: inference.stream(model(), tokens(1), M + 1), ValueError, (f"n_new: got {M + 1}", f"max_len = {M}")),
    Case("stream top_p", lambda: inference.stream(model(), tokens(1), 1, top_p=2), ValueError, ("top_p: got 2",)),
    Case("stream_text on_overflow", lambda: inference.stream_text(model(), tokenizer(), "hi", on_overflow="?"), ValueError, ("on_overflow: got '?'",)),
    Case("LM beam_search width 0", lambda: inference.beam_search(model(), tokens(1), 2, width=0), ValueError, ("width: got 0", "at least 1")),
    Case("LM beam_search n_new 0", lambda: inference.beam_search(model(), tokens(1), 0), ValueError, ("n_new: got 0", "at least 1")),
    Case("LM beam_search length_penalty", lambda: inference.beam_search(model(), tokens(1), 2, length_penalty=-1), ValueError, ("length_penalty: got -1", "≥ 0")),
    Case("LM beam_search length_penalty text", lambda: inference.beam_search(model(), tokens(1), 2, length_penalty="a"), TypeError, ("length_penalty: got 'a'", "a number")),
    Case("LM beam_search too long", lambda: inference.beam_search(model(), tokens(1), M + 1), ValueError, (f"n_new: got {M + 1}", f"at most max_len = {M}")),
    Case("LM beam_search from nan", lambda: inference.beam_search(spoiled_model(), tokens(1), 1), ValueError, ("model: got scores", "finite")),
    Case("CachedModel products", lambda: inference.CachedModel(model(), products="quick"), ValueError, ("products: got 'quick'", "'auto'", "'parts'")),
    Case("CachedModel weights", lambda: inference.CachedModel(model(), weights="int4"), ValueError, ("weights: got 'int4'", "'int8'")),
    Case("CachedModel products of other weights", lambda: inference.CachedModel(model(), products="parts", weights="int8"), ValueError, ("products: got 'parts'", "'packed'")),
    Case("CachedModel products that do not fit", lambda: inference.CachedModel(model().double(), products="packed", weights="int8"), ValueError, ("products: got 'packed'", "a form for float64")),
    Case("generate products", lambda: inference.generate(model(), tokens(1), 1, products="?"), ValueError, ("products: got '?'", "'linear'")),
    Case("CachedModel another model", lambda: inference.CachedModel(torch.nn.Identity()), TypeError, ("model: got Identity", "TransformerLM")),
    Case("generate from a compiled model", lambda: inference.generate(torch.compile(model()), tokens(1), 1), TypeError, ("model: got OptimizedModule", "of a compiled one: model._orig_mod")),
    Case("CachedModel without mask", lambda: inference.CachedModel(unmasked_model()), ValueError, ("model: got attention without mask", "mask")),
    Case("CachedModel text too long", lambda: inference.CachedModel(model()).read([tokens(*[1] * (M + 1))]), ValueError, (f"texts: got {M + 1} rows", f"max_len = {M}")),
    Case("CachedModel empty text", lambda: inference.CachedModel(model()).read([tokens(1), tokens()]), ValueError, ("texts: got 0 rows", "from 1")),
    Case("CachedModel no texts", lambda: inference.CachedModel(model()).read([]), ValueError, ("texts: got none", "at least one")),
    Case("CachedModel step when full", lambda: full_cache().step(tokens(1)), ValueError, (f"text: got {M + 1} rows", f"max_len = {M}")),
    Case("CachedModel step first", lambda: inference.CachedModel(model()).step(tokens(1)), ValueError, ("step: got no texts", "read(texts) first")),
    Case("CachedModel select first", lambda: inference.CachedModel(model()).select(tokens(0)), ValueError, ("select: got no texts", "read(texts) first")),
    Case("CachedModel step another batch", lambda: cache_of_two().step(tokens(1)), ValueError, ("token: got shape (1,)", "(2)", "each text")),
    Case("CachedModel step a list", lambda: cache_of_two().step([1, 2]), TypeError, ("token: got list", "tensor of integer tokens")),
    Case("CachedModel step real numbers", lambda: cache_of_two().step(z(2)), TypeError, ("token: got dtype torch.float32", "int64 or int32")),
    Case("CachedModel step token too big", lambda: cache_of_two().step(tokens(1, V)), IndexError, (f"token: got a token {V}", f"from 0 to {V - 1}")),
    Case("CachedModel step token negative", lambda: cache_of_two().step(tokens(-1, 1)), IndexError, ("token: got a token -1", f"from 0 to {V - 1}")),
    Case("CachedModel lists", lambda: inference.CachedModel(model()).read([[1, 2]]), TypeError, ("texts: got list", "tensor of integer tokens")),
    Case("CachedModel one text alone", lambda: inference.CachedModel(model()).read(tokens(1, 2)), ValueError, ("texts: got a text of shape ()", "(n)")),
    Case("CachedModel token too big", lambda: inference.CachedModel(model()).read([tokens(1, V)]), IndexError, (f"texts: got a token {V}", f"from 0 to {V - 1}")),
    Case("cut_tail list", lambda: inference.cut_tail([0.5, 0.5], top_k=1), TypeError, ("p: got list", "a tensor")),
    Case("cut_tail top_k negative", lambda: inference.cut_tail(z(3), top_k=-1), ValueError, ("top_k: got -1", "at least 1")),
    Case("cut_tail top_k 0", lambda: inference.cut_tail(z(3), top_k=0), ValueError, ("top_k: got 0", "at least 1")),
    Case("cut_tail top_p 0", lambda: inference.cut_tail(z(3), top_p=0), ValueError, ("top_p: got 0", "0 < top_p ≤ 1")),
    Case("cut_tail top_p 90", lambda: inference.cut_tail(z(3), top_p=90), ValueError, ("top_p: got 90", "0 < top_p ≤ 1")),
    Case("cut_tail min_p 2", lambda: inference.cut_tail(z(3), min_p=2), ValueError, ("min_p: got 2", "0 ≤ min_p ≤ 1")),
    Case("cut_tail top_p text", lambda: inference.cut_tail(z(3), top_p="most"), TypeError, ("top_p: got 'most'", "a number")),
    Case("Sampler penalty of no text", lambda: inference.Sampler(repetition_penalty=5.0).draw(z(1, 5)), ValueError, ("seen: got None", "for the repetition_penalty")),
    Case("Sampler distribution at 0", lambda: inference.Sampler(temperature=0).distribution(z(1, 5)), ValueError, ("temperature: got 0", "a number > 0 to draw")),
    Case("Sampler draw from one row", lambda: inference.Sampler().draw(z(5)), ValueError, ("z: got shape (5,)", "(B, V)")),
    Case("distribution after a list", lambda: inference.distribution(model(), [1, 2]), TypeError, ("tokens: got list", "tensor of integer tokens")),
    Case("step_flops n 0", lambda: inference.step_flops(tiny(), 0), ValueError, ("n: got 0", "at least 1")),
    Case("generate a number", lambda: inference.generate(model(), torch.tensor(1), 1), ValueError, ("tokens: got shape ()", "(n)")),
    Case("generate empty prompt", lambda: inference.generate(model(), tokens(), 1), ValueError, ("tokens: got an empty prompt", "at least 1")),
    Case("generate n_new negative", lambda: inference.generate(model(), tokens(1), -1), ValueError, ("n_new: got -1", "≥ 0")),
    Case("generate n_new 2.5", lambda: inference.generate(model(), tokens(1), 2.5), TypeError, ("n_new: got 2.5", "whole number")),
    Case("generate temperature negative", lambda: inference.generate(model(), tokens(1), 1, temperature=-1.0), ValueError, ("temperature: got -1.0", "≥ 0")),
    Case("generate temperature nan", lambda: inference.generate(model(), tokens(1), 1, temperature=float("nan")), ValueError, ("temperature: got nan", "finite")),
    Case("generate temperature text", lambda: inference.generate(model(), tokens(1), 1, temperature="hot"), TypeError, ("temperature: got 'hot'", "number")),
    Case("generate start too big", lambda: inference.generate(model(), tokens(1), 1, start=V), IndexError, (f"start: got {V}", f"from 0 to {V - 1}")),
    Case("generate stop negative", lambda: inference.generate(model(), tokens(1), 1, stop=-1), IndexError, ("stop: got -1", f"from 0 to {V - 1}")),
    Case("generate start 0.5", lambda: inference.generate(model(), tokens(1), 1, start=0.5), TypeError, ("start: got 0.5", "whole number")),
    Case("generate from nan", lambda: inference.generate(spoiled_model(), tokens(1), 1), ValueError, ("model: got scores", "finite")),
    Case("generate from another model", lambda: inference.generate(torch.nn.Identity(), tokens(1), 1), TypeError, ("model: got Identity", "TransformerLM")),
    Case("distribution temperature 0", lambda: inference.distribution(model(), tokens(1), 0.0), ValueError, ("temperature: got 0.0", "> 0")),
    Case("complete bytes", lambda: inference.complete(model(), tokenizer(), b"hi"), TypeError, ("got bytes", "str")),
    Case("complete another tokenizer", lambda: inference.complete(model(), Tokenizer([]), "hi"), ValueError, ("tokenizer: got 257 tokens", f"vocab_size = {V}")),
    Case("complete seed negative", lambda: inference.complete(model(), tokenizer(), "hi", seed=-1), ValueError, ("seed: got -1", "from 0 to")),
    Case("complete without a tokenizer", lambda: inference.complete(model(), "hi", 1), TypeError, ("tokenizer: got str", "complete(model, tokenizer, prompt)")),
    Case("complete a number", lambda: inference.complete(model(), tokenizer(), 3), TypeError, ("prompt: got int",)),
    Case("save with the folder first", lambda: training.save("folder", model(), tokenizer()), TypeError, ("model: got str, want a TransformerLM",)),
    Case("complete seed too big", lambda: inference.complete(model(), tokenizer(), "hi", 1, seed=2**70), ValueError, ("seed: got 1180591620717411303424",)),
    Case("complete max_new negative", lambda: inference.complete(model(), tokenizer(), "hi", -1), ValueError, ("max_new: got -1", "≥ 0")),
    Case("complete max_new 2.5", lambda: inference.complete(model(), tokenizer(), "hi", 2.5), TypeError, ("max_new: got 2.5", "whole number")),
    Case("complete seed a switch", lambda: inference.complete(model(), tokenizer(), "hi", seed=True), TypeError, ("seed: got True", "whole number")),
    Case("complete n_new", lambda: inference.complete(model(), tokenizer(), "hi", n_new=5), TypeError, ("n_new: got an unknown argument", "did you mean max_new?")),
    Case("complete stop", lambda: inference.complete(model(), tokenizer(), "hi", stop=3), TypeError, ("stop: got an unknown argument", "repetition_penalty")),
    Case("complete start", lambda: inference.complete(model(), tokenizer(), "hi", start=3), TypeError, ("start: got an unknown argument", "weights")),
    Case("stream_text generator", lambda: inference.stream_text(model(), tokenizer(), "hi", generator=None), TypeError, ("generator: got an unknown argument", "seed")),
    # translation
    Case("translate unknown word", lambda: translation.translate(french_english(), "a z"), ValueError, ("sentence: got 'z'", "the 8 words")),
    Case("translate empty", lambda: translation.translate(french_english(), "  "), ValueError, ("sentences: got one without words", "at least one word")),
    Case("translate long", lambda: translation.translate(french_english(), "a " * 9), ValueError, ("source: got 9 rows", "max_len = 8")),
    Case("translate bytes", lambda: translation.translate(french_english(), b"a"), TypeError, ("sentence: got bytes", "str")),
    Case("translate beam of 0", lambda: translation.translate(french_english(), "a", width=0), ValueError, ("width: got 0", "at least 1")),
    Case("translate beam of 1.5", lambda: translation.translate(french_english(), "a", width=1.5), TypeError, ("width: got 1.5", "whole number")),
    Case("translate length_penalty nan", lambda: translation.translate(french_english(), "a", width=2, length_penalty=float("nan")), ValueError, ("length_penalty: got nan", "≥ 0")),
    Case("translate greedy with length_penalty nan", lambda: translation.translate(french_english(), "a", length_penalty=float("nan")), ValueError, ("length_penalty: got nan", "≥ 0")),
    Case("translate greedy with endless length_penalty", lambda: translation.translate(french_english(), "a", length_penalty=float("inf")), ValueError, ("length_penalty: got inf", "a finite number")),
    Case("translate_all one without words", lambda: translation.translate_all(french_english(), ["a", " "]), ValueError, ("sentences: got one without words", "in each")),
    Case("translate_all one str", lambda: translation.translate_all(french_english(), "a"), TypeError, ("sentences: got one str", "a list")),
    Case("translate_all none", lambda: translation.translate_all(french_english(), []), ValueError, ("sentences: got none", "at least one")),
    Case("WordList twice", lambda: translation.WordList(("a", "a")), ValueError, ("words: got a word twice", "each word once")),
    Case("WordList of a text", lambda: translation.WordList("je suis"), TypeError, ("words: got one str", "a tuple of words")),
    Case("WordList of numbers", lambda: translation.WordList((1, 2)), TypeError, ("words: got int", "a tuple of words")),
    Case("train_translator of nothing French", lambda: translation.train_translator([corpora.SentencePair((), ("hey",), ())]), ValueError,
         ("pairs: got one without French words", "at least one")),
    Case("train_translator diverges", lambda: translation.train_translator(corpora.sentence_pairs(2), training.TrainConfig(steps=9, warmup=0, batch_size=2, lr=1e30)),
         ValueError, ("recipe: got loss", "smaller lr")),
    Case("WordList decode number", lambda: translation.WordList(("a",)).decode([4]), IndexError, ("tokens: got 4", "0 to 3")),
    Case("sentence_pairs 0", lambda: corpora.sentence_pairs(0), ValueError, ("count: got 0", "at least 1")),
    Case("train_translator vocabulary", lambda: translation.train_translator(corpora.sentence_pairs(2), source_vocab_size=20), ValueError, ("source_vocab_size: got 20", "the pairs decide")),
    Case("train_translator noise", lambda: translation.train_translator(corpora.sentence_pairs(2), training.TrainConfig(token_noise=0.5)), ValueError, ("recipe.token_noise: got 0.5", "none")),
    Case("train_translator compiled", lambda: translation.train_translator(corpora.sentence_pairs(2), training.TrainConfig(compile=True)), ValueError, ("recipe.compile: got True", "none")),
    Case("train_translator checkpointing", lambda: translation.train_translator(corpora.sentence_pairs(2), training.TrainConfig(activation_checkpointing=True)), ValueError, ("recipe.activation_checkpointing: got True", "none")),
    Case("train_translator target's vocabulary", lambda: translation.train_translator(corpora.sentence_pairs(2), vocab_size=20), ValueError, ("vocab_size: got 20", "the pairs decide")),
    Case("train_translator nothing", lambda: translation.train_translator([]), ValueError, ("pairs: got none", "at least one")),
    Case("translation_loss start", lambda: translation.translation_loss(translator(), tokens(3)[None], tokens(3, 1, 2)[None]), ValueError, ("target: got a start marker", "only")),
    Case("translation_loss no stop", lambda: translation.translation_loss(translator(), tokens(3)[None], tokens(3, 4)[None]), ValueError, ("target: got a sentence without the stop token", "one at the end")),
    Case("translation_loss stop inside", lambda: translation.translation_loss(translator(), tokens(3)[None], tokens(3, 2, 4, 2)[None]), ValueError, ("target: got a sentence without the stop token", "no other")),
    Case("translation_loss padding first", lambda: translation.translation_loss(translator(), tokens(3)[None], tokens(0, 2, 3)[None]), ValueError, ("target: got a sentence without the stop token", "padding behind")),
    Case("translation_loss batch", lambda: translation.translation_loss(translator(), tokens(3)[None], tokens(3, 2).expand(2, 2)), ValueError, ("target: got 2 sentences", "as many as source, 1")),
    Case("translation_loss padding only", lambda: translation.translation_loss(translator(), tokens(3)[None], tokens(0, 0)[None]), ValueError, ("weights: got weights that sum to zero", "positive sum")),
    Case("search without start token", lambda: translator().decode(tokens()[None], z(1, 2, 8)), ValueError, ("target: got 0 rows", "max_len = 8")),
    Case("greedy_search one row", lambda: translation.greedy_search(translator(), tokens(3)), ValueError, ("source: got shape (1,)", "(batch, n)")),
    Case("greedy_search stop", lambda: translation.greedy_search(translator(), tokens(3)[None], stop=11), IndexError, ("stop: got 11", "from 0 to 10")),
    Case("greedy_search max_new 0", lambda: translation.greedy_search(translator(), tokens(3)[None], max_new=0), ValueError, ("max_new: got 0", "at least 1")),
    Case("greedy_search max_new 9", lambda: translation.greedy_search(translator(), tokens(3)[None], max_new=9), ValueError, ("max_new: got 9", "at most max_len = 8")),
    Case("greedy_search key_mask", lambda: translation.greedy_search(translator(), tokens(3, 4)[None], torch.ones(2, 2, dtype=torch.bool)), ValueError, ("key_mask: got shape (2, 2)", "(1, 2)")),
    Case("beam_translations width 0", lambda: translation.beam_translations(translator(), tokens(3)[None], width=0), ValueError, ("width: got 0", "at least 1")),
    Case("beam_translations from nan", lambda: translation.beam_translations(spoiled_translator(), tokens(3)[None]), ValueError, ("model: got scores", "finite")),
    Case("beam_translations other model", lambda: translation.beam_translations(model(), tokens(3)[None]), TypeError, ("model: got TransformerLM", "an EncoderDecoder")),
    Case("spec beam_search n_new 0", lambda: s_inference.beam_search(lambda y: X(len(y), 3), ids(), 0, 1), ValueError, ("n_new: got 0", "at least 1")),
    Case("EncoderDecoderConfig halves of what is learned", lambda: encoder_decoder.EncoderDecoderConfig(4, pe="learned", pe_halves=True), ValueError, ("pe_halves: got True", "pe = 'learned'")),
    Case("EncoderDecoderConfig halves of what begins as waves", lambda: encoder_decoder.EncoderDecoderConfig(4, pe="learned_from_sinusoid", pe_halves=True), ValueError, ("pe_halves: got True", "pe = 'learned_from_sinusoid'")),
    Case("EncoderDecoderConfig pre-norm parallel", lambda: encoder_decoder.EncoderDecoderConfig(4, norm="pre", variant="parallel"), ValueError, ("variant: got 'parallel'", "'sequential'")),
    Case("EncoderDecoderConfig halves text", lambda: encoder_decoder.EncoderDecoderConfig(4, pe_halves="no"), TypeError, ("pe_halves: got 'no'", "True or False")),
    Case("pretrained load_gpt2 no folder", lambda: pretrained.load_gpt2("./nowhere"), FileNotFoundError, ("name_or_folder: got './nowhere'", "a folder, or a name on the hub")),
    Case("pretrained load_marian no folder", lambda: pretrained.load_marian("../no/where"), FileNotFoundError, ("name_or_folder: got", "a name on the hub")),
    Case("pretrained load_gpt2 empty folder", lambda: in_folder(pretrained.load_gpt2), FileNotFoundError, ("folder: got", "without config.json")),
    Case("pretrained load_gpt2 what train saved", lambda: saved_folder(pretrained.load_gpt2), ValueError, ("model.safetensors: got no tensor", "each tensor that config.json calls for")),
    Case("pretrained save_gpt2 other model", lambda: pretrained.save_gpt2(translator(), "nowhere"), TypeError, ("model: got EncoderDecoder", "a TransformerLM")),
    Case("pretrained save_gpt2 compiled", lambda: pretrained.save_gpt2(torch.compile(model()), "nowhere"), TypeError, ("model: got OptimizedModule", "of a compiled one: model._orig_mod")),
    Case("pretrained save_model other model", lambda: pretrained.save_model(translator(), "nowhere"), TypeError, ("model: got EncoderDecoder", "TransformerLM")),
    Case("pretrained save_model no counterpart", lambda: pretrained.save_model(model(), "nowhere"), ValueError, ("model.config.", "preset")),
    Case("pretrained save_gpt2 other settings", lambda: pretrained.save_gpt2(model(), "nowhere"), ValueError, ("model.config.", "as in every GPT-2")),
    Case("pretrained save_marian other model", lambda: pretrained.save_marian(model(), "nowhere"), TypeError, ("model: got TransformerLM", "an EncoderDecoder")),
    Case("pretrained load_gpt2 None", lambda: pretrained.load_gpt2(None), TypeError, ("name_or_folder: got NoneType", "a path")),
    Case("pretrained load_marian bytes", lambda: pretrained.load_marian(b"x"), TypeError, ("name_or_folder: got bytes", "a path")),
    Case("pretrained load_gpt2 revision 3", lambda: pretrained.load_gpt2("a/b", revision=3), TypeError, ("revision: got 3", "a text or None")),
    Case("pretrained save_gpt2 other tokenizer", lambda: pretrained.save_gpt2(TransformerLM(Config.gpt2(3, d_model=8, d_ff=8, n_layers=1, n_heads=2, max_len=4)), "nowhere", ["a"]), TypeError, ("tokenizer: got list", "a Tokenizer")),
    Case("pretrained save_marian other tokenizer", lambda: pretrained.save_marian(encoder_decoder.EncoderDecoder(pretrained.marian_preset(4, d_model=8, d_ff=8, n_layers=1, n_heads=2, max_len=4)), "nowhere", "letters"), TypeError, ("tokenizer: got str", "a MarianTokenizer")),
    Case("pretrained vocab twice", lambda: pretrained.marian_text.checked_vocab({"<unk>": 1, "a": 1}, 3, "vocab.json"), ValueError, ("vocab.json: got 1 numbers twice", "a number for each piece")),
    Case("pretrained vocab text", lambda: pretrained.marian_text.checked_vocab({"<unk>": "1"}, 3, "vocab.json"), ValueError, ("vocab.json: got ['1']", "less than 3")),
    Case("pretrained vocab null", lambda: pretrained.marian_text.checked_vocab(None, 3, "vocab.json"), ValueError, ("vocab.json: got no number for <unk>",)),
    Case("pretrained meta_model blocks", lambda: weights.meta_model(TransformerLM, tiny(n_layers=10**9), {}), ValueError, ("config.json: got 1000000000 blocks", "at most 0")),
    Case("pretrained save_marian other settings", lambda: pretrained.save_marian(translator(), "nowhere"), ValueError, ("model.config.", "as in every Marian")),
    Case("pretrained gpt2_config other model", lambda: pretrained.gpt2_config({"model_type": "gptj"}), ValueError, ("model_type: got 'gptj'", "'gpt2'")),
    Case("pretrained marian_config nothing", lambda: pretrained.marian.marian_config({}), ValueError, ("config.json: got no field ['vocab_size'", "Marian")),
    Case("pretrained gpt2_fields", lambda: pretrained.gpt2.gpt2_fields(Config.gpt2(3, norm="post")), ValueError, ("model.config.norm: got 'post'", "'pre'")),
    Case("pretrained check_fingerprint", lambda: in_folder(lambda f: [(f / ("0" * 40)).write_bytes(b""), (f / "x").symlink_to(f / ("0" * 40)), pretrained.hub.check_fingerprint(f / "x")]), ValueError, ("got a file with fingerprint", "fetch it again")),
    Case("pretrained translate_marian one str", lambda: pretrained.translate_marian(translator(), None, "je"), TypeError, ("sentences: got one str", "a list of str")),
    Case("pretrained translate_marian nothing", lambda: pretrained.translate_marian(translator(), None, []), ValueError, ("sentences: got none", "at least one")),
    Case("pretrained translate_marian other model", lambda: pretrained.translate_marian(model(), None, ["je"]), TypeError, ("model: got TransformerLM", "an EncoderDecoder")),
    Case("pretrained translate_marian no tokenizer", lambda: pretrained.translate_marian(translator(), None, ["je"]), TypeError, ("tokenizer: got NoneType", "a MarianTokenizer")),
    Case("pretrained save_llama no bytes", lambda: pretrained.save_llama(small_llama(), "nowhere", limit=0), ValueError, ("limit: got 0", "at least 1")),
    Case("pretrained save_llama bytes in words", lambda: pretrained.save_llama(small_llama(), "nowhere", limit="5GB"), TypeError, ("limit: got '5GB'", "a whole number")),
    Case("pretrained load_llama no folder", lambda: pretrained.load_llama("./nowhere"), FileNotFoundError, ("name_or_folder: got './nowhere'", "a folder, or a name on the hub")),
    Case("pretrained load_llama dtype int", lambda: pretrained.load_llama("./nowhere", dtype=torch.int64), TypeError, ("dtype: got torch.int64", "floating point numbers of 16 bits")),
    Case("pretrained load_llama dtype text", lambda: pretrained.load_llama("./nowhere", dtype="float16"), TypeError, ("dtype: got 'float16'", "torch.bfloat16")),
    Case("pretrained load_llama what train saved", lambda: saved_folder(pretrained.load_llama), ValueError, ("config.json", "model_type: got None")),
    Case("pretrained load_model None", lambda: pretrained.load_model(None), TypeError, ("name_or_folder: got NoneType", "a path")),
    Case("pretrained save_llama other model", lambda: pretrained.save_llama(translator(), "nowhere"), TypeError, ("model: got EncoderDecoder", "a TransformerLM")),
    Case("pretrained save_llama other settings", lambda: pretrained.save_llama(model(), "nowhere"), ValueError, ("model.config.", "as in every Llama")),
    Case("pretrained save_llama other family", lambda: pretrained.save_llama(small_llama(), "nowhere", family="bert"), ValueError, ("family: got 'bert'", "'mixtral', 'gemma'")),
    Case("pretrained save_llama other tokenizer", lambda: pretrained.save_llama(small_llama(), "nowhere", ["a"]), TypeError, ("tokenizer: got list", "a Tokenizer, a HubTokenizer or None")),
    Case("pretrained save_llama small tokenizer", lambda: pretrained.save_llama(small_llama(), "nowhere", Tokenizer([])), ValueError, ("tokenizer: got 257 tokens", "vocab_size = 3")),
    Case("pretrained llama_config other model", lambda: pretrained.llama_config({"model_type": "gptj"}), ValueError, ("model_type: got 'gptj'", "'llama', 'qwen2'")),
    Case("pretrained llama_config nothing", lambda: pretrained.llama_config({"model_type": "llama"}), ValueError, ("config.json: got no field ['vocab_size'", "the fields of Llama")),
    Case("exercises check no such chapter", lambda: exercises.check("atention-1", 0), ValueError, ("exercise: got 'atention-1'", "attention-1")),
    Case("exercises check no such number", lambda: exercises.check("attention-9", 0), ValueError, ("exercise: got 'attention-9'", "attention-8")),
    Case("exercises check no name", lambda: exercises.check(3, 0), TypeError, ("exercise: got 3", "a chapter and a number")),
    Case("exercises exercises no name", lambda: exercises.exercises(3), TypeError, ("chapter: got int", "the name of a chapter")),
    Case("exercises exercises no such chapter", lambda: exercises.exercises("multihead"), ValueError, ("chapter: got 'multihead'", "multi_head")),
    Case("heads previous_token_score one row", lambda: heads.previous_token_score(z(1, 1)), ValueError, ("A: got 1 rows", "at least 2")),
    Case("heads duplicate_token_score no copy", lambda: heads.duplicate_token_score(z(3, 3), tokens(0, 1, 2)), ValueError, ("tokens: got no token that comes twice",)),
    Case("heads induction_score other length", lambda: heads.induction_score(z(2, 4, 4), tokens(0, 1, 0)), ValueError, ("A: got shape (2, 4, 4)", "(…, 3, 3)")),
    Case("heads head_scores no copy", lambda: heads.head_scores(model(), tokens(0, 1, 2)[None]), ValueError, ("tokens: got no token that comes twice",)),
    Case("run_with_cache no such name", lambda: model().run_with_cache(tokens(0, 1), "blocks.0.attn"), ValueError, ("names: got 'blocks.0.attn'", "'blocks.0.attention'")),
    Case("run_with_cache no such hook", lambda: model().run_with_cache(tokens(0, 1), hooks={"blocks.7.*": abs}), ValueError, ("hooks: got 'blocks.7.*'", "a name inside the model")),
    Case("run_with_hooks other shape", lambda: model().run_with_hooks(tokens(0, 1), {"embedding": lambda x: x[:1]}), ValueError, ("hooks['embedding']: got shape (1, 4)", "(2, 4) or None")),
    Case("run_with_hooks no tensor", lambda: model().run_with_hooks(tokens(0, 1), {"norm": lambda x: 3}), TypeError, ("hooks['norm']: got a int", "a tensor of shape (2, 4)")),
    Case("run_with_cache too long", lambda: model().run_with_cache(tokens(*range(M + 1))), ValueError, ("tokens: got", "max_len")),
    Case("logit_lens too long", lambda: heads.logit_lens(model(), tokens(*range(M + 1))), ValueError, ("tokens: got", "max_len")),
    Case("heads said_twice pool too small", lambda: heads.said_twice(tokens(0, 1, 1, 2), 3, 1, 0), ValueError, ("m: got 3", "at most 2")),
    Case("heads said_twice m 0", lambda: heads.said_twice(tokens(0, 1), 0, 1, 0), ValueError, ("m: got 0", "at least 1")),
    Case("heads said_twice copies 2.0", lambda: heads.said_twice(tokens(0, 1), 1, 2.0, 0), TypeError, ("copies: got 2.0", "a whole number")),
    Case("playground no model", lambda: viewer.playground(None, None), TypeError, ("model: got NoneType", "a TransformerLM")),
    Case("playground no tokenizer", lambda: viewer.playground(model(), None), TypeError, ("tokenizer: got NoneType", "a Tokenizer")),
    Case("playground text", lambda: viewer.playground(model(), tokenizer(), 3), TypeError, ("text: got int", "a str")),
    Case("playground stories", lambda: viewer.playground(model(), tokenizer(), stories=["Anna was at the mill."]), ValueError, ("stories[0]: got 'Anna was at the mill.'", "a line for each question")),
    Case("playground a story that is none", lambda: viewer.playground(model(), tokenizer(), stories=[3]), TypeError, ("stories[0]: got int", "a list of str")),
    Case("playground top_k", lambda: viewer.playground(model(), tokenizer(), top_k=2.0), TypeError, ("top_k: got 2.0", "a whole number")),
    Case("playground title", lambda: viewer.playground(model(), tokenizer(), title=3), TypeError, ("title: got int", "a str")),
    Case("questions without stories", lambda: viewer.questions(None, None, []), ValueError, ("stories: got none", "at least one")),
    Case("questions without a question", lambda: viewer.questions(None, None, ["Anna was at the mill."]), ValueError, ("stories[0]: got 'Anna was at the mill.'", "a line for each question")),
    Case("questions title", lambda: viewer.questions(None, None, [], title=b"a"), TypeError, ("title: got bytes", "a str")),
    Case("viewer show one list", lambda: viewer.show(model(), tokenizer(), ["a"]), TypeError, ("text: got list", "a str")),
    Case("viewer attention token", lambda: viewer.attention(["a", 1], np.eye(2)), TypeError, ("tokens: got int at 1", "a list of str")),
    Case("viewer attention tokens", lambda: viewer.attention(3, np.eye(2)), TypeError, ("tokens: got int", "a list of str")),
    Case("viewer attention columns", lambda: viewer.attention(["a"], np.ones((1, 1)), columns=[b"a"]), TypeError, ("columns: got bytes at 0", "a list of str")),
    Case("viewer attention names", lambda: viewer.attention(["a"], np.ones((1, 1)), names=("a", 1)), TypeError, ("names: got int at 1", "a list of str")),
    Case("viewer attention title", lambda: viewer.attention(["a"], np.ones((1, 1)), title=3), TypeError, ("title: got int", "a str")),
    Case("viewer attention pinned", lambda: setattr(viewer.attention(["a"], np.ones((1, 1))), "pinned", (0.0, 0)), TypeError, ("pinned: got (0.0, 0)", "(row, column)")),
    Case("viewer merges of numbers", lambda: viewer.merge_stepper([[1, 2]]), TypeError, ("states: got a token of type int at state 0", "all str or all bytes")),
    Case("viewer merges counts", lambda: viewer.merge_stepper([["a", "b"], ["ab"]], counts=[1.5]), TypeError, ("counts: got 1.5", "a whole number")),
    Case("viewer merges title", lambda: viewer.merge_stepper([["a"]], title=3), TypeError, ("title: got int", "a str")),
    Case("viewer clocks d_model", lambda: viewer.clock_hands(8.0), TypeError, ("d_model: got 8.0", "a whole number")),
    Case("viewer clocks title", lambda: viewer.clock_hands(title=3), TypeError, ("title: got int", "a str")),
    Case("viewer softmax label", lambda: viewer.softmax_temperature([1.0], labels=[1]), TypeError, ("labels: got int at 0", "a list of str")),
    Case("viewer softmax temperature", lambda: viewer.softmax_temperature([1.0], temperature="1"), TypeError, ("temperature: got '1'", "a number")),
    Case("viewer softmax a width", lambda: viewer.softmax_temperature({1.5: [1.0]}), TypeError, ("scores: a width: got 1.5", "a whole number")),
    Case("viewer softmax width", lambda: viewer.softmax_temperature({4: [1.0]}, width=4.0), ValueError, ("width: got 4.0", "one of [4]")),
    Case("viewer softmax title", lambda: viewer.softmax_temperature([1.0], title=3), TypeError, ("title: got int", "a str")),
    Case("viewer sampling token", lambda: viewer.sampling([1.0, 2.0], ["a", 1]), TypeError, ("tokens: got int at 1", "a list of str")),
    Case("viewer sampling top_k", lambda: viewer.sampling([1.0], ["a"], top_k=True), TypeError, ("top_k: got True", "a whole number")),
    Case("viewer sampling top_p", lambda: viewer.sampling([1.0], ["a"], top_p=None), TypeError, ("top_p: got None", "a number")),
    Case("viewer sampling seed", lambda: viewer.sampling([1.0], ["a"], seed=1.0), TypeError, ("seed: got 1.0", "a whole number")),
    Case("viewer sampling title", lambda: viewer.sampling([1.0], ["a"], title=3), TypeError, ("title: got int", "a str")),
    Case("viewer epsilon sigma", lambda: viewer.epsilon_spread(sigma=1j), TypeError, ("sigma: got 1j", "a number")),
    Case("viewer epsilon title", lambda: viewer.epsilon_spread(title=3), TypeError, ("title: got int", "a str")),
    Case("viewer descent steps", lambda: viewer.descent(steps=2.5), TypeError, ("steps: got 2.5", "a whole number")),
    Case("viewer descent start", lambda: viewer.descent(start=1), TypeError, ("start: got 1", "a pair of numbers")),
    Case("viewer descent a start", lambda: viewer.descent(start=("a", 0)), TypeError, ("start: got 'a'", "a number")),
    Case("viewer descent title", lambda: viewer.descent(title=3), TypeError, ("title: got int", "a str")),
    Case("playground stories that are a number", lambda: viewer.playground(model(), tokenizer(), stories=3), TypeError, ("stories: got int", "a list of str")),
    Case("playground file", lambda: viewer.playground(model(), tokenizer(), file=3), TypeError, ("file: got int", "a name")),
    Case("viewer save to a number", lambda: viewer.clock_hands().save(3), TypeError, ("file: got int", "a path")),
    Case("viewer attention mask of rows that differ", lambda: viewer.attention(["a", "b"], np.eye(2), mask=[[True], [True, True]]), ValueError, ("mask: got no array", "shape (n, m)")),
    Case("questions of a text", lambda: viewer.questions(None, None, "Anna was at the mill."), TypeError, ("stories: got a single str",)),
    Case("small world level", lambda: small_world.story(9, random.Random(0)), ValueError, ("level: got 9", "from 0 to 4")),
    Case("small world level type", lambda: small_world.story(2.0, random.Random(0)), TypeError, ("level: got float", "a number or a Level")),
    Case("small world seed for a source", lambda: small_world.story(0, 5), TypeError, ("rng: got int", "a random.Random")),
    Case("small world judged none", lambda: judging.judged([]), ValueError, ("texts: got none", "at least one story")),
    Case("small world judged one str", lambda: judging.judged("Anna was at the mill."), TypeError, ("texts: got one str", "a list of stories")),
    Case("small world answers one str", lambda: judging.rightly_answered(model(), tokenizer(), "Anna"), TypeError, ("texts: got one str",)),
    Case("small world check", lambda: small_world.proofread(b"Anna"), TypeError, ("text: got bytes", "a str")),
    Case("small world stories 0", lambda: small_world.stories(0, seed=0), ValueError, ("count: got 0", "at least 1")),
    Case("rhymes 0", lambda: corpora.rhymes(0, seed=0), ValueError, ("count: got 0", "at least 1")),
    Case("heads knock_out no such head", lambda: heads.knock_out(model(), (0, 2)), IndexError, ("heads: got (0, 2)", "a head below 2")),
    Case("heads knock_out negative layer", lambda: heads.knock_out(model(), (-1, 0)), IndexError, ("heads: got (-1, 0)", "a layer below 1")),
    Case("heads knock_out other rows", lambda: heads.knock_out(model(), (0, 0), rows=z(1, 2, 5)), ValueError, ("rows: got shape (1, 2, 5)", "(1, 2, 2)")),
    Case("heads knock_out no bias", lambda: heads.knock_out(TransformerLM(tiny(out_bias=False)), (0, 0), rows=z(1, 2, 2)), ValueError, ("rows: got rows", "no output bias")),
    Case("heads knock_out stacked rows", lambda: heads.knock_out(model(), (0, 0), rows=z(3, 1, 2, 2)), ValueError, ("rows: got shape (3, 1, 2, 2)", "(1, 2, 2)")),
    Case("heads knock_out no pair", lambda: heads.knock_out(model(), 0), TypeError, ("heads: got 0", "a pair (layer, head)")),
    Case("heads knock_out float", lambda: heads.knock_out(model(), (0.0, 0)), TypeError, ("heads: got (0.0, 0)", "a pair (layer, head)")),
    Case("heads knock_out three numbers", lambda: heads.knock_out(model(), (0, 0, 0)), TypeError, ("heads: got (0, 0, 0)", "a pair (layer, head)")),
    Case("heads previous_token_score not square", lambda: heads.previous_token_score(z(3, 4)), ValueError, ("A: got shape (3, 4)", "(4, n)")),
    Case("heads head_scores one text", lambda: heads.head_scores(model(), tokens(0, 1, 0)), ValueError, ("texts: got shape (3,)", "(copies, n)")),
    Case("heads head_scores none", lambda: heads.head_scores(model(), tokens(0, 1)[None][:0]), ValueError, ("texts: got shape (0, 2)", "(copies, n)")),
    Case("heads mean_rows none", lambda: heads.mean_rows(model(), tokens(0, 1)[None][:0]), ValueError, ("texts: got shape (0, 2)", "at least one row")),
    Case("heads head_matrices no such layer", lambda: heads.head_matrices(model(), 1, 0), IndexError, ("layer, head: got (1, 0)", "a layer below 1")),
    Case("heads head_matrices negative head", lambda: heads.head_matrices(model(), 0, -1), IndexError, ("layer, head: got (0, -1)", "a head below 2")),
    Case("heads train_rhymes folder there", lambda: heads.train_rhymes("."), FileExistsError, ("out: got", "does not exist yet")),
    Case("heads shipped_rhymes device", lambda: heads.shipped_rhymes("gpu"), ValueError, ("device: got 'gpu'", "a device of this machine")),
    Case("spec previous_token_score", lambda: s_heads.previous_token_score(rows(1, 1)), ValueError, ("A: got 1 rows", "at least 2")),
    Case("spec duplicate_token_score", lambda: s_heads.duplicate_token_score(rows(2, 2), ids(0, 1)), ValueError, ("t: got no token that comes twice",)),
    Case("spec induction_score", lambda: s_heads.induction_score(rows(2, 2), ids(0, 0, 0)), ValueError, ("t: got shape (3,)", "(2)")),
    Case("spec next_distribution nothing", lambda: s_inference.next_distribution(lambda y: X(len(y), 3), ids(), start=None), ValueError, ("x: got no tokens", "a start marker")),
]  # fmt: skip


def outcome(call: Callable[[], object]) -> list[str]:
    """[type, message] of what the call raises; ["nothing raised", the result] when it raises nothing."""
    try:
        result = call()
    except Exception as error:
        return [type(error).__name__, str(error)]
    return ["nothing raised", repr(result)[:200]]


def main() -> None:
    json.dump({case.name: outcome(case.call) for case in CASES}, sys.stdout)


if __name__ == "__main__":
    main()

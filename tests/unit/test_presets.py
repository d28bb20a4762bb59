"""Presets and defaults are statements, too: every field of every preset beside the value of its source, written here as a literal.

A field's second entry says where the source has it, or why it was chosen where the source is silent ("ours").
"""

import dataclasses
import inspect
import json
import math
import re

import pytest
import torch

from tlm_book.embedding import Embedding
from tlm_book.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from tlm_book.transformer_lm import Config, TransformerLM, count_parameters

DEFAULTS = {  # Wojcik 2021
    "d_model": (512, "Definition of TransformerLM: d_model = 512"),
    "d_ff": (2048, "d_ff = 2048"),
    "n_layers": (6, "n_layers = 6"),
    "n_heads": (8, "n_heads = 8"),
    "max_len": (2048, "max_len = 2048"),
    "d_head": (None, "d_head = d_model / h"),
    "activation": ("relu", "FF(X) = ReLu(…)"),
    "norm": ("pre", "DB = Res(FF) ∘ Res(CA ∘ N): normalized before each layer"),
    "final_norm": (True, "T_LM = Φ ∘ N ∘ DB ∘ …"),
    "variant": ("sequential", "FF reads X + CA(N(X))"),
    "eps": (1e-6, "ε = 10⁻⁶"),
    "eps_mode": ("outside", "divide by σ(x) + ε"),
    "pe": ("learned_from_sinusoid", "the table begins with sines and cosines and is learned"),
    "pe_start": (1, "rows of the table: sin(1/…), sin(2/…), sin(3/…)"),
    "embed_scale": (False, "Em is the look-up, without a factor"),
    "qkv_bias": (False, "Q(X) = X W^Q"),
    "out_bias": (True, "CA(X) = H(X) W^O + B"),
    "unembed_bias": (True, "Φ(X) = X Y + B"),
    "tied": (False, "Y is a weight matrix of its own"),
    "scale": (None, "scores are divided by √d_head"),
    "dropout": (0.0, "ours: not part of the function"),
    "n_kv_heads": (None, "W^K and W^V have as many heads as W^Q"),
    "norm_kind": ("layer", "N(x) = a (x − μ)/(σ + ε) + b"),
    "gated": (False, "FF(X) = ReLu(X A + k) B + l"),
    "ff_bias": (True, "k and l"),
    "n_experts": (None, "one FF in each block"),
    "n_experts_used": (2, "without experts: without effect"),
    "window": (None, "◺ alone: row i sees rows 0, …, i"),
    "qk_norm": (False, "Q(X) = X W^Q"),
    "rope_base": (10000.0, "without rotary positions: without effect"),
    "rope_layout": ("halves", "without rotary positions: without effect"),
    "rope_scaling": (None, "without rotary positions: without effect"),
}
PRESETS = {  # what differs from the defaults
    "wojcik": {},
    "lelarge": {
        "n_heads": (1, "one head"),
        "qkv_bias": (True, "W^K X + b, and alike for queries and values"),
        "out_bias": (False, "no output matrix with a bias"),
        "eps": (1e-5, "√(var + ε), torch's value"),
        "eps_mode": ("inside", "√(var + ε)"),
        "pe": ("none", "“without position encoding”"),
        "final_norm": (False, "the encoder ends with its last block"),
    },
    "becker_kahn": {
        "norm": ("none", "a residual block has no normalization"),
        "final_norm": (False, "nor has the transformer"),
        "scale": (1.0, "scores are not divided"),
        "pe": ("learned", "“some kind of positional encoding”: ours"),
        "pe_start": (0, "ours: no sinusoid, so without effect"),
        "out_bias": (False, "heads are matrices alone"),
        "unembed_bias": (False, "the unembedding is a matrix"),
        "activation": ("gelu", "σ is left open: ours"),
    },
    "agarwal": {
        "norm": ("post", "LayerNorm(X + layer(X))"),
        "final_norm": (False, "the last Add & Norm is the block's own"),
        "eps": (0.0, "Definition 6.1 has no ε"),
        "eps_mode": ("none", "divided by σ"),
        "pe": ("sinusoidal", "fixed sines and cosines"),
        "pe_start": (1, "rows p_n for n = 1, …, m"),
        "out_bias": (False, "Concat(…) W^O"),
    },
    "lei_mao": {
        "norm": ("post", "Z = LayerNorm(X + Z₁)"),
        "final_norm": (False, "the last LayerNorm is the block's own"),
        "eps": (1e-5, "torch's value; the text gives none"),
        "eps_mode": ("inside", "as torch has it"),
        "pe": ("sinusoidal", "fixed"),
        "pe_start": (0, "positions from 0"),
        "out_bias": (False, "Concat(…) W^O"),
        "embed_scale": (True, "embeddings times √d_model"),
    },
    "gpt2": {  # Radford et al. 2019, the small model, and its released settings
        "vocab_size": (50257, "256 bytes, 50,000 merges, one end of text"),
        "d_model": (768, "n_embd"),
        "d_ff": (3072, "4 · n_embd"),
        "n_layers": (12, "n_layer"),
        "n_heads": (12, "n_head"),
        "max_len": (1024, "n_positions"),
        "activation": ("gelu_tanh", "gelu_new"),
        "eps": (1e-5, "layer_norm_epsilon"),
        "eps_mode": ("inside", "√(σ² + ε)"),
        "pe": ("learned", "wpe"),
        "pe_start": (0, "a learned table: without effect"),
        "qkv_bias": (True, "c_attn has a bias"),
        "unembed_bias": (False, "lm_head has none"),
        "tied": (True, "lm_head is wte"),
    },
    "vaswani": {  # Vaswani et al. 2017, the base model
        "norm": ("post", "section 3.1: LayerNorm(x + Sublayer(x))"),
        "final_norm": (False, "none is named"),
        "eps": (1e-6, "the authors' published code; the paper gives none"),
        "eps_mode": ("inside", "the authors' published code"),
        "pe": ("sinusoidal", "section 3.5"),
        "pe_start": (0, "the authors' published code"),
        "out_bias": (False, "MultiHead = Concat(…) W^O"),
        "embed_scale": (True, "section 3.4: times √d_model"),
        "tied": (True, "section 3.4: one matrix for embedding and pre-softmax"),
        "unembed_bias": (False, "section 3.4: that matrix alone"),
        "dropout": (0.1, "section 5.4: P_drop = 0.1"),
    },
}
SINCE_2020 = {  # what Llama 2 and the models after it have in common; the keys are those of the released config.json
    "norm_kind": ("rms", "Touvron et al. 2023, section 2.2: RMSNorm before each layer"),
    "eps_mode": ("inside", "Zhang and Sennrich 2019, as released: √(mean of squares + ε)"),
    "pe": ("rotary", "section 2.2: rotary positional embeddings"),
    "pe_start": (0, "no sinusoid: without effect; angles from position 0"),
    "gated": (True, "section 2.2: SwiGLU"),
    "ff_bias": (False, "no mlp bias among the released weights"),
    "activation": ("silu", "hidden_act: silu"),
    "out_bias": (False, "attention_bias: false"),
    "unembed_bias": (False, "lm_head has none"),
}
PRESETS |= {
    "llama": SINCE_2020 | {  # Touvron et al. 2023: Llama 2 7B
        "vocab_size": (32000, "vocab_size; the paper: 32k tokens"),
        "d_model": (4096, "hidden_size"),
        "d_ff": (11008, "intermediate_size"),
        "n_layers": (32, "num_hidden_layers"),
        "n_heads": (32, "num_attention_heads = num_key_value_heads: the 7B model does not share heads"),
        "max_len": (4096, "max_position_embeddings; the paper: context length 4k"),
        "eps": (1e-5, "rms_norm_eps"),
    },
    "qwen2": SINCE_2020 | {  # Yang et al. 2024, table 1: Qwen2-0.5B
        "vocab_size": (151936, "vocab_size: 151,646 tokens, filled up"),
        "d_model": (896, "hidden_size"),
        "d_ff": (4864, "intermediate_size"),
        "n_layers": (24, "num_hidden_layers"),
        "n_heads": (14, "num_attention_heads"),
        "n_kv_heads": (2, "num_key_value_heads"),
        "max_len": (131072, "max_position_embeddings"),
        "eps": (1e-6, "rms_norm_eps"),
        "qkv_bias": (True, "section 2.2: QKV bias"),
        "rope_base": (1e6, "rope_theta; section 3.2"),
        "tied": (True, "tie_word_embeddings"),
    },
    "qwen3": SINCE_2020 | {  # Yang et al. 2025, table 1: Qwen3-0.6B
        "vocab_size": (151936, "vocab_size"),
        "d_model": (1024, "hidden_size"),
        "d_ff": (3072, "intermediate_size"),
        "n_layers": (28, "num_hidden_layers"),
        "n_heads": (16, "num_attention_heads"),
        "n_kv_heads": (8, "num_key_value_heads"),
        "d_head": (128, "head_dim: 16 · 128 = 2 · 1024"),
        "max_len": (40960, "max_position_embeddings"),
        "eps": (1e-6, "rms_norm_eps"),
        "qk_norm": (True, "section 2: QK-Norm in place of QKV bias"),
        "rope_base": (1e6, "rope_theta"),
        "tied": (True, "tie_word_embeddings"),
    },
    "mistral": SINCE_2020 | {  # Jiang et al. 2023, table 1: Mistral 7B v0.1
        "vocab_size": (32000, "vocab_size"),
        "d_model": (4096, "dim"),
        "d_ff": (14336, "hidden_dim"),
        "n_layers": (32, "n_layers"),
        "n_heads": (32, "n_heads"),
        "n_kv_heads": (8, "n_kv_heads"),
        "max_len": (32768, "max_position_embeddings of the release; the paper's context_len is 8192"),
        "eps": (1e-5, "rms_norm_eps"),
        "window": (4096, "window_size"),
    },
    "mixtral": SINCE_2020 | {  # Jiang et al. 2024, table 1: Mixtral 8x7B
        "vocab_size": (32000, "vocab_size"),
        "d_model": (4096, "dim"),
        "d_ff": (14336, "hidden_dim"),
        "n_layers": (32, "n_layers"),
        "n_heads": (32, "n_heads"),
        "n_kv_heads": (8, "n_kv_heads"),
        "max_len": (32768, "context_len"),
        "eps": (1e-5, "rms_norm_eps"),
        "n_experts": (8, "num_experts"),
        "rope_base": (1e6, "rope_theta"),
    },
    "gemma": SINCE_2020 | {  # Gemma Team 2024, table 1: the 2B model
        "vocab_size": (256000, "vocab_size: 256,128 in the paper's table, 256,000 rows in the release"),
        "d_model": (2048, "d_model"),
        "d_ff": (16384, "intermediate_size; the paper's 32,768 are gate and up together"),
        "n_layers": (18, "layers"),
        "n_heads": (8, "num heads"),
        "n_kv_heads": (1, "num KV heads"),
        "d_head": (256, "head size"),
        "max_len": (8192, "context length"),
        "eps": (1e-6, "rms_norm_eps"),
        "activation": ("gelu_tanh", "section 2: GeGLU; gelu_pytorch_tanh in the release"),
        "embed_scale": (True, "the released code: times √hidden_size"),
        "tied": (True, "section 2: shared input and output embeddings"),
    },
}
PAIRS = {  # of encoder and decoder: what differs from the preset of the same name
    "lei_mao": {"source_vocab_size": (None, "one vocabulary: ours"), "d_value": (None, "d_v = d_k"), "pe_halves": (False, "sine and cosine alternate")},
    "agarwal": {"source_vocab_size": (None, "one vocabulary: ours"), "d_value": (None, "d_v = d_k"), "pe_halves": (False, "sine and cosine alternate")},
    "vaswani": {"source_vocab_size": (None, "one shared vocabulary: section 3.4"), "d_value": (None, "d_v = d_k = 64"), "pe_halves": (False, "section 3.5")},
}


PAIRS["pre_norm"] = PAIRS["lei_mao"]  # no preset of one sequence has this name
PRE_NORM = PRESETS["lei_mao"] | {
    "norm": ("pre", "normalized before each layer: ours"),
    "final_norm": (True, "a stack of such blocks ends with one more normalization"),
}


def fields(config: object) -> dict[str, object]:
    return {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}


def literal(table: dict[str, tuple[object, str]]) -> dict[str, object]:
    return {name: value for name, (value, _) in table.items()}


@pytest.mark.parametrize("name", PRESETS)
def test_every_field_of_a_preset_is_its_sources(name):
    released = "vocab_size" in PRESETS[name]
    config = getattr(Config, name)(*([] if released else [11]))
    assert fields(config) == {"vocab_size": 11} | literal(DEFAULTS) | literal(PRESETS[name])


def test_the_plain_config_is_wojciks():
    assert fields(Config(11)) == {"vocab_size": 11} | literal(DEFAULTS)


@pytest.mark.parametrize("name", PAIRS)
def test_every_field_of_a_pair_is_its_sources(name):
    want = {"vocab_size": 11} | literal(DEFAULTS) | literal(PRE_NORM if name == "pre_norm" else PRESETS[name]) | literal(PAIRS[name])
    assert fields(getattr(EncoderDecoderConfig, name)(11)) == want


def test_the_plain_pair_is_lei_maos():
    assert EncoderDecoderConfig(11) == EncoderDecoderConfig.lei_mao(11)


def test_every_preset_is_in_the_table():
    for kind, table in ((Config, PRESETS), (EncoderDecoderConfig, PAIRS)):
        found = {name for name, entry in vars(kind).items() if isinstance(entry, classmethod)}
        assert found == set(table)


KINDS = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "mistral": "Mistral", "mixtral": "Mixtral", "gemma": "Gemma"}


@pytest.mark.parametrize("name", KINDS)
def test_a_preset_holds_as_many_numbers_as_the_class_of_transformers(name):
    """Two blocks at full width, without numbers in memory; the whole models are counted in the chapter."""
    transformers = pytest.importorskip("transformers")
    c = getattr(Config, name)(n_layers=2)
    sizes = {"vocab_size": c.vocab_size, "hidden_size": c.d_model, "intermediate_size": c.d_ff, "num_hidden_layers": 2}
    heads = {"num_attention_heads": c.n_heads, "num_key_value_heads": c.kv_heads, "head_dim": c.head_width}
    config = getattr(transformers, f"{KINDS[name]}Config")(**sizes, **heads, tie_word_embeddings=c.tied)
    with torch.device("meta"):
        theirs = getattr(transformers, f"{KINDS[name]}ForCausalLM")(config)
    assert count_parameters(c) == sum(weights.numel() for weights in theirs.parameters())


# What a setting does, in numbers that stand here


@pytest.mark.parametrize("name", ["wojcik", "lei_mao"])
def test_embeddings_are_multiplied_by_the_root_of_the_width(name):
    """16 = 4²: an embedding that is all ones enters the blocks as fours, or as ones where the source has no factor."""
    model = TransformerLM(getattr(Config, name)(3, d_model=16, d_ff=4, n_layers=1, n_heads=2, pe="none"))
    (weights,) = model.embedding.parameters()
    torch.nn.init.ones_(weights)
    assert torch.equal(model.embedding(torch.tensor([2])), torch.full((1, 16), {"wojcik": 1.0, "lei_mao": 4.0}[name]))
    assert model.embedding.scale == {"wojcik": 1.0, "lei_mao": math.sqrt(16)}[name]


def test_both_halves_of_a_pair_multiply_embeddings():
    model = EncoderDecoder(EncoderDecoderConfig.lei_mao(3, d_model=16, d_ff=4, n_layers=1, n_heads=2, max_len=4))
    assert {module.scale for module in model.modules() if isinstance(module, Embedding)} == {4.0}


def test_the_heads_of_the_plain_model_are_eight_of_width_64():
    with torch.device("meta"):
        attention = TransformerLM(Config(11, n_layers=1)).blocks[0].attention
    with_one, with_sixteen = (TransformerLM(Config(11, n_layers=1, n_heads=h, d_model=64, d_ff=4)).blocks[0].attention for h in (1, 16))
    assert (attention.n_heads, attention.d_head) == (8, 64)
    assert (with_one.d_head, with_sixteen.d_head) == (64, 4)


# What help(Config) says


OWNERS = {"Wojcik": "wojcik", "Lelarge": "lelarge", "Becker-Kahn": "becker_kahn", "Agarwal": "agarwal", "Lei Mao": "lei_mao", "GPT-2": "gpt2", "Vaswani": "vaswani"}
LATER = {"Llama": "llama", "Qwen 2": "qwen2", "Qwen 3": "qwen3", "Mistral": "mistral", "Mixtral": "mixtral", "Gemma": "gemma"}
BY_VALUE = "activation gated ff_bias norm norm_kind final_norm eps_mode pe pe_start embed_scale tied unembed_bias qkv_bias out_bias qk_norm"


def documented(kind):
    """{fields: what the docstring's table says of them}."""
    said, field = {}, None
    for line in inspect.cleandoc(kind.__doc__).splitlines():
        if found := re.match(r"([a-z][\w, ]*?)  +(\S.*)", line):
            field = found[1]
            said[field] = found[2]
        elif field and line.startswith("  "):
            said[field] += " " + line.strip()
        else:
            field = None
    return said


def test_every_field_is_documented_with_the_models_that_have_it():
    said, presets = documented(Config), OWNERS | LATER
    assert set(said) == {field.name for field in dataclasses.fields(Config)}
    for field in BY_VALUE.split():
        found = {json.loads(value if value[0] == '"' else value.lower()): names for value, names in re.findall(r'("\w+"|True|False|[01]) \(([^()]*)\)', said[field])}
        named = {value: {who for name in names.replace("since Llama", ", ".join(LATER)).split(", ") for who in [presets.get(name)] if who} for value, names in found.items()}
        rest = set(presets.values()) - set().union(*named.values())
        for value, names in found.items():
            for preset in named[value] | (rest if names == "the others" else set()):
                assert getattr(getattr(Config, preset)(1000), field) == value, (field, value, preset)
        assert "the others" in found.values() or not rest, field


def test_every_field_of_the_encoder_decoder_is_documented():
    text = EncoderDecoderConfig.__doc__
    own = set(vars(EncoderDecoderConfig)["__annotations__"]) | {"vocab_size", "d_model", "d_ff", "n_layers", "n_heads", "max_len", "activation", "tied"}
    assert all(re.search(rf"\b{name}\b", text) for name in own)


def test_a_misspelled_field_is_named_with_the_nearest():
    for make in (lambda: Config(5, n_head=4), lambda: Config.gpt2(n_head=4), lambda: Config(5).replace(n_head=4), lambda: EncoderDecoderConfig(5, n_head=4)):
        with pytest.raises(TypeError, match=r"^n_head: got an unknown argument, want one of .*; did you mean n_heads\?$"):
            make()


@pytest.mark.parametrize("name", ["wojcik", "agarwal", "lei_mao", "vaswani", "llama"])
def test_a_model_without_numbers_takes_those_of_another(name):
    """Made on the meta device, given room, then the weights: what is not among the weights, the fixed positions, is there too."""
    small = {"d_model": 16, "d_ff": 32, "n_layers": 1, "n_heads": 2, "max_len": 32}
    pairs = [(TransformerLM, getattr(Config, name)(50, **small))]
    if hasattr(EncoderDecoderConfig, name):
        config = getattr(EncoderDecoderConfig, name)(50, **small)
        pairs += [(EncoderDecoder, config.replace(pe="sinusoidal", pe_halves=halves)) for halves in (False, True)]
    tokens = torch.randint(50, (2, 9))
    for kind, config in pairs:
        model = kind(config).eval()
        with torch.device("meta"):
            empty = kind(config).eval()
        empty.to_empty(device="cpu").load_state_dict(model.state_dict())
        inputs = (tokens,) if kind is TransformerLM else (tokens, tokens)
        assert torch.equal(empty(*inputs), model(*inputs))

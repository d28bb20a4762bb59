"""Llama and its family against `transformers`, on small random models with every switch; nothing is downloaded.

`transformers` computes norms, angles and softmax in float32 even where all weights are float64. Here `Double` has it compute in
float64 throughout, so that logits can be compared to 1e-10.
"""

import json
import re
import sys
from pathlib import Path

import pytest
import torch
import transformers
from commands import run as command
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from test_pretrained import Hub, bits, cut, edited, label, near, with_weights
from torch.overrides import TorchFunctionMode

from tlm_book import pretrained
from tlm_book.inference import complete, generate
from tlm_book.pretrained import load_llama, load_model, save_llama
from tlm_book.pretrained.llama import llama_pairs
from tlm_book.pretrained.names import turned
from tlm_book.tokenization import GPT2_PATTERN, HubTokenizer, Tokenizer, documents
from tlm_book.training import Size, load, model_for
from tlm_book.transformer_lm import Config, TransformerLM, count_parameters

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


class Double(TorchFunctionMode):
    """Whoever asks for float32 gets float64."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        wide = lambda some: torch.float64 if some is torch.float32 else some
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        return func(*map(wide, args), **{name: wide(value) for name, value in (kwargs or {}).items()})


SMALL = {
    "vocab_size": 13, "hidden_size": 8, "intermediate_size": 10, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 12, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "rope_theta": 100.0, "factor": 8.0, "low_freq_factor": 0.5, "high_freq_factor": 2.0, "original_max_position_embeddings": 8}
LINEAR = {"rope_type": "linear", "rope_theta": 50.0, "factor": 3.0}
COMMON = [  # for every family; the first three are quick tests, the others long
    {}, {"num_key_value_heads": 1, "num_hidden_layers": 1, "rope_parameters": LLAMA3}, {"head_dim": 6, "tie_word_embeddings": True, "hidden_act": "relu"},
    {"num_key_value_heads": 4, "rope_parameters": LINEAR}, {"rms_norm_eps": 0.1}, {"hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": False},
    {"hidden_size": 12, "intermediate_size": 3, "num_attention_heads": 6, "num_key_value_heads": 3}, {"num_hidden_layers": 3, "vocab_size": 3},
    {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}, "max_position_embeddings": 40}, {"hidden_act": "silu", "head_dim": 4},
    {"num_attention_heads": 1, "num_key_value_heads": 1, "num_hidden_layers": 1}, {"tie_word_embeddings": True, "hidden_act": "gelu_new"},
]  # fmt: skip
OWN = {  # what only some have
    "llama": [{"attention_bias": True, "mlp_bias": True}],
    "qwen2": [{"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 0}, {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 2}],
    "qwen3": [{"attention_bias": True, "rms_norm_eps": 0.01}, {"use_sliding_window": True, "sliding_window": 2, "max_window_layers": 0}],
    "mistral": [{"sliding_window": 3}, {"sliding_window": 1}, {"sliding_window": None}],
    "mixtral": [{"num_local_experts": 5, "num_experts_per_tok": 3}, {"num_local_experts": 3, "num_experts_per_tok": 1, "sliding_window": 4}],
    "gemma": [{"hidden_act": "gelu"}, {"attention_bias": True}],
}
QUICK = 3  # of COMMON
CASES = [
    pytest.param(family, case, id=f"{family} {label(case)}", marks=[] if case in COMMON[:QUICK] + OWN[family][:1] else [pytest.mark.long])
    for family in OWN
    for case in [*OWN[family], *COMMON]
]
EVERY = pytest.mark.parametrize(("family", "case"), CASES)
FAMILY = pytest.mark.parametrize("family", OWN)


def theirs(family: str, case: dict, dtype: torch.dtype = torch.float64) -> torch.nn.Module:
    """A model of `transformers` in evaluation mode with random weights, also gains and biases."""
    name, own = family.capitalize(), {"head_dim": 4} if family in ("qwen3", "gemma") else {}
    if family == "qwen2" and "head_dim" in case:  # which it would take
        case = {field: value for field, value in case.items() if field != "head_dim"}
    config = getattr(transformers, f"{name}Config")(**SMALL | own | case, attn_implementation="eager", experts_implementation="eager")
    torch.manual_seed(0)
    with Double() if dtype == torch.float64 else torch.no_grad():
        model = getattr(transformers, f"{name}ForCausalLM")(config).to(dtype).eval()
    chance = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for _, w in model.named_parameters():
            w.add_(0.4 * torch.randn(w.shape, generator=chance, dtype=dtype))
    return exact(model)


def exact(model: torch.nn.Module) -> torch.nn.Module:
    """Gemma's √d, which it keeps in float32."""
    for part in model.modules():
        if hasattr(part, "scalar_embed_scale"):
            part.embed_scale = torch.tensor(part.scalar_embed_scale, dtype=torch.float64)
    return model


def both(family: str, case: dict, folder: Path, dtype: torch.dtype = torch.float64) -> tuple[torch.nn.Module, TransformerLM]:
    told = theirs(family, case, dtype)
    told.save_pretrained(folder)
    return told, load_llama(folder)[0]


def some_tokens(config: Config, rows: int, n: int) -> torch.Tensor:
    return torch.randint(config.vocab_size, (rows, n), generator=torch.Generator().manual_seed(n))


@EVERY
@torch.no_grad()
def test_it_computes_what_transformers_computes(family, case, tmp_path):
    other, ours = both(family, case, tmp_path / "m")
    assert count_parameters(ours.config) == sum(p.numel() for p in other.parameters())
    for n in (1, 7, ours.config.max_len):
        tokens = some_tokens(ours.config, 2, n)
        with Double():
            told = other(tokens, output_hidden_states=True, output_attentions=True)
        rows = ours.residual_stream(tokens)
        rows[-1] = ours.norm(rows[-1])  # theirs are normalized at the end
        assert near(ours(tokens), told.logits, 1e-10)
        assert len(told.hidden_states) == len(rows) and all(near(a, b, 1e-10) for a, b in zip(rows, told.hidden_states))
        assert near(ours.attention_weights(tokens), torch.stack(told.attentions), 1e-10)


@EVERY
@torch.no_grad()
def test_it_writes_the_same_tokens(family, case, tmp_path):
    """Greedy, ours with its cache, theirs with and without theirs. (With a window of a single row, theirs with its cache is not theirs without.)"""
    other, ours = both(family, case, tmp_path / "m")
    prompt = some_tokens(ours.config, 3, 2)
    new = ours.config.max_len - 2
    written = generate(ours, prompt, new, temperature=0)
    for cache in (False,) if case.get("sliding_window") == 1 else (True, False):
        with Double():
            told = other.generate(prompt, max_new_tokens=new, do_sample=False, use_cache=cache, pad_token_id=0, attention_mask=torch.ones_like(prompt))
        assert torch.equal(written, told)


@FAMILY
@torch.no_grad()
def test_it_computes_the_same_in_float32(family, tmp_path):
    other, ours = both(family, {}, tmp_path / "m", torch.float32)
    tokens = some_tokens(ours.config, 2, 12)
    assert near(ours(tokens), other(tokens).logits, 1e-4)


@pytest.mark.parametrize("family", [pytest.param(name, marks=[] if name in ("llama", "mixtral") else [pytest.mark.long]) for name in OWN])
def test_it_has_the_same_gradients(family, tmp_path):
    other, ours = both(family, {"tie_word_embeddings": False}, tmp_path / "m")
    tokens = some_tokens(ours.config, 3, 9)
    loss = torch.nn.functional.cross_entropy(ours(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    with Double():
        told = torch.nn.functional.cross_entropy(other(tokens).logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        told.backward()
    assert near(loss, told, 1e-10)
    slopes, parameters = {name: p.grad for name, p in other.named_parameters()}, dict(ours.named_parameters())
    for theirs, our_name, layout, part in llama_pairs(ours, family):
        if "block_sparse_moe.experts" in theirs:  # which it keeps in one tensor, too
            block, at = re.match(r"(.*)\.block_sparse_moe\.experts\.\d+\.w(\d)", theirs).groups()
            gate_up, down = slopes[f"{block}.mlp.experts.gate_up_proj"], slopes[f"{block}.mlp.experts.down_proj"]
            wanted = {"1": gate_up[:, :10], "3": gate_up[:, 10:], "2": down}[at][part]
        else:
            wanted = slopes[theirs.replace("block_sparse_moe.gate", "mlp.gate")]
        mine = parameters[our_name].grad
        assert near(mine if part is None else mine[part], turned(wanted, layout) - 1.0 * (layout == "1+"), 1e-10), theirs


@FAMILY
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_is_converted_without_loss(family, dtype, tmp_path):
    """From their files to ours and back: every bit of the weights. Gemma's gains, which ours keeps 1 larger, are rounded in half precision;
    read as float32 they are not."""
    other = theirs(family, {}, dtype)
    with torch.no_grad():
        for name, w in other.named_parameters():
            if "norm" in name and family == "gemma":
                w.copy_((256 * w).round() / 256)
    other.save_pretrained(tmp_path / "theirs")
    ours, _ = load_llama(tmp_path / "theirs", dtype=torch.float32 if family == "gemma" else None)
    save_llama(ours, tmp_path / "ours", family=family)
    first, second = (load_file(tmp_path / who / "model.safetensors") for who in ("theirs", "ours"))
    plain = lambda tensors: bits({name: w.float() for name, w in tensors.items()})
    assert plain(first) == plain(second) and (family == "gemma" or {w.dtype for w in second.values()} == {dtype})
    again, _ = load_llama(tmp_path / "ours")
    assert again.config == ours.config and plain(again.state_dict()) == plain(ours.state_dict())
    told = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours", attn_implementation="eager").eval()
    assert type(told) is type(other) and told.dtype == ours.embedding.table.weight.dtype
    read, written = told.config.to_dict(), other.config.to_dict()
    odd = {name for name in written if read[name] != written[name]} - {"dtype", "architectures", "transformers_version", "rope_parameters", "max_window_layers", "_name_or_path", "pad_token_id", "head_dim"}
    assert not odd, odd
    assert {name: value for name, value in read["rope_parameters"].items() if name != "type"} == written["rope_parameters"]


@EVERY
def test_settings_are_written_as_they_were_read(family, case, tmp_path):
    """Our folder, read by `transformers`, computes what ours computes."""
    other, ours = both(family, case, tmp_path / "theirs")
    save_llama(ours, tmp_path / "ours", family=family)
    again, _ = load_llama(tmp_path / "ours")
    assert again.config == ours.config
    with Double(), torch.no_grad():
        told = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours", dtype=torch.float64, attn_implementation="eager", experts_implementation="eager").eval()
        exact(told)
        tokens = some_tokens(ours.config, 2, 12)
        assert near(told(tokens).logits, other(tokens).logits, 1e-10)


@pytest.mark.parametrize(
    ("changes", "family"),
    [({}, "llama"), ({"window": 3}, "mistral"), ({"qkv_bias": True}, "qwen2"), ({"qk_norm": True}, "qwen3"), ({"n_experts": 4}, "mixtral"),
     ({"embed_scale": True, "tied": True}, "gemma"), ({"qkv_bias": True, "out_bias": True, "ff_bias": True}, "llama")],
    ids=str,
)  # fmt: skip
@torch.no_grad()
def test_a_family_is_found_for_the_model(changes, family, tmp_path):
    model = TransformerLM(Config.llama(11, **SIZES | changes)).eval()
    save_llama(model, tmp_path / "m")
    assert json.loads((tmp_path / "m" / "config.json").read_text())["model_type"] == family
    again, tokenizer = load_model(tmp_path / "m")
    assert again.config == model.config and tokenizer is None
    told, tokens = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "m", experts_implementation="eager").eval(), torch.arange(9)[None]
    assert near(model(tokens), told(tokens).logits, 1e-4)


SIZES = {"d_model": 8, "d_ff": 12, "n_layers": 1, "n_heads": 2, "max_len": 9}


@pytest.mark.parametrize(
    ("family", "changes"),
    [("llama", {"norm": "post"}), ("llama", {"norm_kind": "layer"}), ("llama", {"pe": "learned"}), ("llama", {"gated": False}), ("llama", {"unembed_bias": True}),
     ("llama", {"window": 3}), ("llama", {"rope_layout": "interleaved"}), ("llama", {"scale": 0.3}), ("qwen2", {"ff_bias": True}), ("mistral", {"qkv_bias": True}),
     ("mixtral", {"n_experts": None}), ("gemma", {"embed_scale": False}), ("gemma", {"activation": "gelu"}), ("qwen3", {"qk_norm": False}), ("llama", {"dropout": 0.1})],
    ids=str,
)  # fmt: skip
def test_a_model_of_another_kind_is_not_saved(family, changes, tmp_path):
    model = TransformerLM(getattr(Config, family)(11, **SIZES | {"n_kv_heads": None, "d_head": None} | changes))
    with pytest.raises((ValueError, TypeError), match="model.config.*: got .*, want .*, as in every|n_experts|num_local_experts"):
        save_llama(model, tmp_path / "m", family=family)
    assert list(tmp_path.iterdir()) == []


def test_older_files_say_the_same_otherwise(tmp_path):
    """rope_theta and rope_scaling in the place of rope_parameters, torch_dtype, tables of angles among the weights."""
    _, ours = both("llama", {"rope_parameters": LLAMA3}, tmp_path / "m")
    fields = {"rope_parameters": "none", "rope_theta": 100.0, "torch_dtype": "float64", "dtype": "none", "head_dim": "none"}
    kinds = {"rope_scaling": {name: value for name, value in LLAMA3.items() if name != "rope_theta"}}
    edited(tmp_path / "m", **fields, **kinds)
    with_weights(tmp_path / "m", lambda w: w.update({"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(1)}))
    again, _ = load_llama(tmp_path / "m")
    assert again.config == ours.config and bits(again.state_dict()) == bits(ours.state_dict())
    edited(tmp_path / "m", rope_scaling={"type": "linear", "factor": 2.0})
    assert load_llama(tmp_path / "m")[0].config.rope_scaling.kind == "linear"
    edited(tmp_path / "m", rope_scaling=None)
    assert load_llama(tmp_path / "m")[0].config.rope_scaling is None


@pytest.mark.parametrize("kinds", [["full_attention"] * 2, ["sliding_attention"] * 2], ids=str)
@torch.no_grad()
def test_a_mistral_s_window_is_where_its_file_says(kinds, tmp_path):
    folder = edited(a_llama(tmp_path / "m", "mistral", sliding_window=3), layer_types=kinds)
    told, ours = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64), load_llama(folder)[0]
    tokens = some_tokens(ours.config, 2, 12)
    with Double():
        assert near(ours(tokens), told(tokens).logits, 1e-10)


@torch.no_grad()
def test_of_two_original_lengths_the_one_beside_the_table_counts(tmp_path):
    folder = edited(a_llama(tmp_path / "m", rope_parameters=LLAMA3), original_max_position_embeddings=4)
    told, ours = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64), load_llama(folder)[0]
    tokens = some_tokens(ours.config, 2, 12)
    assert ours.config.rope_scaling.original_max_len == 4
    assert near(ours(tokens), told(tokens).logits, 1e-5)  # theirs turns by angles in float32


SWITCHED_ON = {"use_sliding_window": True, "max_window_layers": 0}  # a window, and no word about its width


@pytest.mark.parametrize(("family", "fields"), [*((name, {}) for name in OWN), *((name, SWITCHED_ON) for name in ("qwen2", "qwen3"))], ids=str)
def test_what_a_file_leaves_unsaid_is_what_transformers_takes(family, fields):
    sizes = ("vocab_size", "intermediate_size", "num_hidden_layers", "max_position_embeddings")
    fields = {name: SMALL[name] for name in sizes} | {"hidden_size": 64, "num_attention_heads": 32} | fields
    told = getattr(transformers, f"{family.capitalize()}Config")(**fields).to_dict()
    assert pretrained.llama_config({"model_type": family} | fields) == pretrained.llama_config(told)


def test_the_tied_matrix_may_stand_there_twice(tmp_path):
    other, _ = both("gemma", {}, tmp_path / "m")
    table = other.lm_head.weight.detach().clone()
    with_weights(tmp_path / "m", lambda w: w.update({"lm_head.weight": table}))
    ours, _ = load_llama(tmp_path / "m")
    assert ours.unembedding.weight is ours.embedding.table.weight
    with_weights(tmp_path / "m", lambda w: w.update({"lm_head.weight": table + 1}))
    with pytest.raises(ValueError, match="got lm_head.weight other than model.embed_tokens.weight"):
        load_llama(tmp_path / "m")


# Several files


def shared_out(folder: Path, size: str = "2KB", **case: object) -> Path:
    theirs("llama", case).save_pretrained(folder, max_shard_size=size)
    return folder


def test_weights_in_several_files(tmp_path):
    other = theirs("llama", {})
    other.save_pretrained(tmp_path / "one")
    other.save_pretrained(tmp_path / "some", max_shard_size="2KB")
    assert len(list((tmp_path / "some").glob("*.safetensors"))) > 3
    one, some = load_llama(tmp_path / "one")[0], load_llama(tmp_path / "some")[0]
    assert bits(one.state_dict()) == bits(some.state_dict())
    save_llama(some, tmp_path / "ours", limit=2000)
    parts = [load_file(file) for file in sorted((tmp_path / "ours").glob("*.safetensors"))]
    assert len(parts) > 3 and all(sum(w.nbytes for w in part.values()) <= 2000 or len(part) == 1 for part in parts)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours", dtype=torch.float64)
    assert all(torch.equal(a, b) for a, b in zip(again.state_dict().values(), other.state_dict().values(), strict=True))
    assert bits(load_llama(tmp_path / "ours")[0].state_dict()) == bits(one.state_dict())


def index(folder: Path, change) -> Path:
    file = folder / "model.safetensors.index.json"
    said = json.loads(file.read_text())
    change(said)
    file.write_text(json.dumps(said))
    return folder


def first(folder: Path) -> Path:
    return sorted(folder.glob("*.safetensors"))[0]


def lost(folder: Path, tensor: str) -> Path:
    file = folder / json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"][tensor]
    save_file({name: w for name, w in load_file(file).items() if name != tensor} or {"other": torch.ones(1)}, file)
    return folder


W, LAST = "model.layers.0.mlp.up_proj.weight", "lm_head.weight"
BAD_PARTS = {
    "a file is missing": (lambda f: [first(f).unlink(), f][1], r"without ['model-00001-of-"),
    "a file is cut short": (lambda f: [first(f).write_bytes(first(f).read_bytes()[:-9]), f][1], "got a broken file"),
    "no index": (lambda f: [(f / "model.safetensors.index.json").write_text("{"), f][1], "got no JSON"),
    "an index of nothing": (lambda f: index(f, lambda said: said.pop("weight_map")), "got no weight_map, want an index"),
    "a tensor elsewhere": (lambda f: index(f, lambda said: said["weight_map"].update({LAST: "../secret.safetensors"})), "got the file ['../secret.safetensors']"),
    "a tensor of no file": (lambda f: index(f, lambda said: said["weight_map"].update(more=first(f).name)), "other tensors than model.safetensors.index.json says (more)"),
    "a tensor in the wrong file": (lambda f: index(f, lambda said: said["weight_map"].update({W: first(f).name})), "other tensors than"),
    "a tensor that is not there": (lambda f: lost(f, LAST), "(lm_head.weight)"),
    "the index alone": (lambda f: [[part.unlink() for part in f.glob("*.safetensors")], f][1], "without ['model-00001-of-"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_PARTS)
def test_several_files_that_do_not_fit_are_refused(name, tmp_path):
    spoil, words = BAD_PARTS[name]
    with pytest.raises((ValueError, FileNotFoundError), match=re.escape(words)) as error:
        load_llama(spoil(shared_out(tmp_path / "m")))
    assert ": got" in str(error.value)


def test_several_files_are_fetched_from_the_hub(tmp_path, monkeypatch):
    folder = shared_out(tmp_path / "m")
    names = ["config.json", *(path.name for path in folder.glob("*.safetensors*"))]
    hub = Hub(tmp_path / "cache", folder, tuple(names))
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    model, _ = load_llama("someone/some-llama")
    assert bits(model.state_dict()) == bits(load_llama(folder)[0].state_dict()) and len(hub.asked) == 2
    assert load_model("someone/some-llama")[0].config == model.config


# Folders that do not fit


def a_llama(folder: Path, family: str = "llama", **case: object) -> Path:
    theirs(family, case).save_pretrained(folder)
    return folder


def rope(folder: Path, **fields: object) -> Path:
    said = json.loads((folder / "config.json").read_text())["rope_parameters"] | fields
    return edited(folder, rope_parameters={name: value for name, value in said.items() if value != "none"})


WORDS = "each tensor that config.json calls for"
BAD = {
    "missing tensor": (lambda f: with_weights(f, lambda w: w.pop(W)), f"got no tensor {W}, want {WORDS}"),
    "extra tensor": (lambda f: with_weights(f, lambda w: w.update(more=torch.ones(1))), "got the further tensor more, want " + WORDS),
    "one block too many": (lambda f: edited(f, num_hidden_layers=1), "got the further tensor model.layers.1.input_layernorm.weight"),
    "one block too few": (lambda f: edited(f, num_hidden_layers=3), "got no tensor model.layers.2.input_layernorm.weight"),
    "wrong shape": (lambda f: with_weights(f, lambda w: w.update({W: w[W].T.contiguous()})), f"got {W} of shape (8, 10), want shape (10, 8)"),
    "keys too many": (lambda f: edited(f, num_key_value_heads=1), "got model.layers.0.self_attn.k_proj.weight of shape (4, 8), want shape (2, 8)"),
    "NaN": (lambda f: with_weights(f, lambda w: w[W].fill_(float("nan"))), f"got {W} with NaN or ∞, want finite weights"),
    "two types": (lambda f: with_weights(f, lambda w: w.update({W: w[W].half()})), "of type torch.float16, want one type for all, here torch.float64"),
    "cut short": (lambda f: cut(f, -50), "got a broken file"),
    "biases that are not there": (lambda f: edited(f, attention_bias=True), "got no tensor model.layers.0.self_attn.k_proj.bias"),
    "another model": (lambda f: edited(f, model_type="gpt_neox"), "model_type: got 'gpt_neox', want one of 'llama', 'qwen2', 'qwen3'"),
    "another bend": (lambda f: edited(f, hidden_act="tanh"), "hidden_act: got 'tanh', want one of 'gelu_new',"),
    "another rotation": (lambda f: rope(f, rope_type="yarn", factor=2.0), "rope_type: got 'yarn', want 'default', 'linear' or 'llama3'"),
    "another rotation, as older files say it": (lambda f: edited(f, rope_scaling={"type": "dynamic", "factor": 2.0}), "rope_type: got 'dynamic', want"),
    "a rotation without its factor": (lambda f: rope(f, rope_type="linear"), "rope_parameters: got no field ['factor'], want the fields of rope_type 'linear'"),
    "a rotation without its length": (lambda f: rope(f, **LLAMA3 | {"original_max_position_embeddings": "none"}), "got no field ['original_max_position_embeddings']"),
    "a rotation that is a word": (lambda f: edited(f, rope_parameters="fast"), "rope_parameters: got 'fast', want a table"),
    "half a rotation": (lambda f: rope(f, partial_rotary_factor=0.5), "partial_rotary_factor: got 0.5, want 1.0"),
    "a base of nothing": (lambda f: rope(f, rope_theta=0.0), "rope_base: got 0.0, want"),
    "heads that do not fit": (lambda f: edited(f, num_key_value_heads=3), "n_kv_heads: got 3, want a divisor"),
    "an odd width": (lambda f: edited(f, head_dim=3), "d_head: got 3, want an even"),
    "no width": (lambda f: edited(f, hidden_size="none"), "config.json: got no field ['hidden_size'], want the fields of Llama"),
    "rounded to four bits": (lambda f: edited(f, quantization_config={"bits": 4}), "quantization_config: got {'bits': 4}, want None"),
    "a terabyte of words": (lambda f: edited(f, vocab_size=10**12), "of shape (13, 8), want shape (1000000000000, 8)"),
    "a terabyte of places": (lambda f: edited(f, max_position_embeddings=10**11), "max_position_embeddings: got 100000000000, want at most"),
    "a billion blocks": (lambda f: edited(f, num_hidden_layers=10**9), "config.json: got 1000000000 blocks, want at most"),
    "pickle": (lambda f: [(f / "model.safetensors").rename(f / "pytorch_model.bin"), f][1], "a .bin file is a pickle"),
    "no weights": (lambda f: [(f / "model.safetensors").unlink(), f][1], "without model.safetensors"),
    "half a tokenizer": (lambda f: [(f / "tokenizer.json").write_text("{}"), f][1], "want a tokenizer.json of byte pair encoding"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_folder_that_is_no_llama_is_refused(name, tmp_path):
    spoil, words = BAD[name]
    with pytest.raises((ValueError, FileNotFoundError), match=re.escape(words)) as error:
        load_llama(spoil(a_llama(tmp_path / "m")))
    assert ": got" in str(error.value)


@pytest.mark.parametrize(
    ("family", "fields", "words"),
    [("qwen2", {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1, "layer_types": "none"}, "max_window_layers: got 1, want a window in all blocks or in none"),
     ("qwen3", {"use_sliding_window": True, "sliding_window": 3, "layer_types": ["full_attention", "sliding_attention"]}, "want a window in all blocks or in none"),
     ("mistral", {"layer_types": ["full_attention", "sliding_attention"]}, "layer_types: got ['full_attention', 'sliding_attention'], want a window in all blocks or in none"),
     ("mistral", {"layer_types": ["full_attention", "chunked_attention"]}, "layer_types: got 'chunked_attention', want one of 'sliding_attention', 'full_attention'"),
     ("mistral", {"num_hidden_layers": None}, "num_hidden_layers: got None, want a whole number"),
     ("qwen2", {"use_sliding_window": True, "max_window_layers": "x", "layer_types": None}, "max_window_layers: got 'x', want a whole number"),
     ("mistral", {"sliding_window": 0}, "window: got 0, want"), ("gemma", {"use_bidirectional_attention": True}, "use_bidirectional_attention: got True, want None or False"),
     ("gemma", {"hidden_activation": "relu"}, "hidden_activation: got 'relu', want"), ("mixtral", {"num_experts_per_tok": 9}, "n_experts_used: got 9, want"),
     ("mixtral", {"num_local_experts": 9}, "got no tensor model.layers.0.block_sparse_moe.experts.8.w1.weight")],
    ids=str,
)  # fmt: skip
def test_what_one_of_the_family_cannot_do_is_refused(family, fields, words, tmp_path):
    with pytest.raises(ValueError, match=re.escape(words)):
        load_llama(edited(a_llama(tmp_path / "m", family), **fields))


def test_any_kind_of_folder(tmp_path):
    edited(a_llama(tmp_path / "m"), model_type="bert")
    with pytest.raises(ValueError, match="model_type: got 'bert', want one of 'gpt2', 'marian', 'llama'"):
        load_model(tmp_path / "m")
    pretrained.save_gpt2(TransformerLM(Config.gpt2(11, **SIZES)), tmp_path / "gpt2")
    assert load_model(tmp_path / "gpt2")[0].config.pe == "learned"


# With a tokenizer


def test_a_whole_folder_works_in_transformers(tmp_path):
    tokenizer = Tokenizer([(104, 105), (32, 256)], pattern=GPT2_PATTERN)
    model = TransformerLM(Config.llama(len(tokenizer), **SIZES | {"max_len": 40})).eval()
    save_llama(model, tmp_path / "m", tokenizer)
    reader, other = (getattr(transformers, name).from_pretrained(tmp_path / "m") for name in ("AutoTokenizer", "AutoModelForCausalLM"))
    again, read = load_llama(tmp_path / "m")
    assert isinstance(read, HubTokenizer) and (read.start, read.stop) == (tokenizer.start, tokenizer.stop) == (other.config.bos_token_id, other.config.eos_token_id)
    for text in ("hi hi, it's  3 o'clock\n", "été 🍵"):
        assert reader(text)["input_ids"] == tokenizer.encode(text) == read.encode(text) and reader.decode(tokenizer.encode(text)) == text
    assert complete(again, read, "hi", 12, seed=3) == complete(model, tokenizer, "hi", 12, seed=3)
    save_llama(again, tmp_path / "again", read)
    load_llama(tmp_path / "again")[1].check_same(tokenizer)
    edited(tmp_path / "m", eos_token_id=[7, 8])
    assert load_llama(tmp_path / "m")[1].stop == 7
    edited(tmp_path / "m", eos_token_id="7")
    with pytest.raises(ValueError, match=r"config.json: eos_token_id: got '7', want a token, or null"):
        load_llama(tmp_path / "m")


def test_a_vocabulary_may_be_shorter_than_the_table(tmp_path):
    """As in Qwen: the further rows stand for no text."""
    tokenizer = Tokenizer([(104, 105)], pattern=GPT2_PATTERN)
    save_llama(TransformerLM(Config.llama(len(tokenizer), **SIZES)), tmp_path / "m", tokenizer)
    save_llama(TransformerLM(Config.llama(300, **SIZES)), tmp_path / "n")
    (tmp_path / "n" / "tokenizer.json").write_bytes((tmp_path / "m" / "tokenizer.json").read_bytes())
    model, read = load_llama(tmp_path / "n")
    assert len(read) == 300 and read.decode([299, 104]) == "h" and complete(model, read, "hi", 3)
    edited(tmp_path / "m", vocab_size=200)
    with_weights(tmp_path / "m", lambda w: w.update({name: w[name][:200].contiguous() for name in ("lm_head.weight", "model.embed_tokens.weight")}))
    with pytest.raises(ValueError, match=r"size: got 200, want at least 258, the tokens of the file"):
        load_llama(tmp_path / "m")
    with pytest.raises(ValueError, match="tokenizer: got 258 tokens, want vocab_size = 300"):
        save_llama(TransformerLM(Config.llama(300, **SIZES)), tmp_path / "o", tokenizer)


def test_the_command_line_reads_a_llama(tmp_path, capsys):
    from tlm_book.__main__ import main

    tokenizer = Tokenizer([], pattern=GPT2_PATTERN)
    model = TransformerLM(Config.llama(257, **SIZES | {"max_len": 20})).eval()
    save_llama(model, tmp_path / "m", tokenizer)
    assert main(["generate", "--model", str(tmp_path / "m"), "--prompt", "hi", "--tokens", "5", "--seed", "3", "--device", "cpu"]) == 0
    assert capsys.readouterr().out.strip("\n") == complete(model, tokenizer, "hi", 5, seed=3).strip("\n")


@pytest.mark.parametrize("preset", ["gpt2", "llama"])
def test_from_train_to_transformers(preset, tmp_path):
    """A user's way: `train --preset`, `export`, then the same scores and the same text there."""
    (tmp_path / "text.txt").write_text("\f".join(documents()[:4]), encoding="utf-8")
    sizes = ["--steps", "2", "--vocab-size", "270", "--d-model", "16", "--layers", "1", "--heads", "2", "--context", "32", "--batch-size", "2", "--device", "cpu"]
    for arguments in (["train", "--data", "text.txt", "--out", "m", "--preset", preset, *sizes], ["export", "--model", "m", "--to", "hf", "--out", "theirs"]):
        done = command(*arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert preset in done.stdout and "AutoModelForCausalLM" in done.stdout
    reader, other = (getattr(transformers, name).from_pretrained(tmp_path / "theirs") for name in ("AutoTokenizer", "AutoModelForCausalLM"))
    model, tokenizer = load(tmp_path / "m")
    prompt = "It's 1234 o'clock"
    tokens = reader(prompt, return_tensors="pt")["input_ids"]
    assert tokens[0].tolist() == tokenizer.encode(prompt)
    assert torch.allclose(model(tokens), other(tokens).logits, atol=1e-5)
    asked = torch.cat((torch.tensor([[tokenizer.start]]), tokens), -1)
    written = other.eval().generate(asked, max_new_tokens=8, do_sample=False, pad_token_id=tokenizer.stop)
    assert reader.decode(written[0, 1:], skip_special_tokens=True) == complete(model, tokenizer, prompt, 8, temperature=0)
    tuned = command("train", "--from", "theirs", "--data", "text.txt", "--out", "tuned", "--steps", "1", "--batch-size", "2", "--device", "cpu", "--quiet", cwd=tmp_path)
    assert tuned.returncode == 0 and "of 1 steps" in tuned.stdout, tuned.stderr
    load(tmp_path / "tuned")[1].check_same(tokenizer)
    again = command("generate", "--model", "theirs", "--prompt", prompt, "--tokens", "8", "--temperature", "0", "--device", "cpu", cwd=tmp_path)
    assert again.stdout == command("generate", "--model", "m", "--prompt", prompt, "--tokens", "8", "--temperature", "0", "--device", "cpu", cwd=tmp_path).stdout


def test_a_model_goes_into_a_folder_of_its_kind(tmp_path):
    tokenizer = Tokenizer([])
    for kind in ("llama", "qwen2", "qwen3", "mistral", "mixtral", "gemma"):
        config = model_for(Size(257, 16, layers=1, heads=4, context=16, batch_size=1, steps=1, token_noise=0), 257, kind)
        model = TransformerLM(config).eval()
        assert pretrained.save_model(model, tmp_path / kind, tokenizer) == kind and config.dropout == 0 and config.d_ff > 0
        again, read = load_model(tmp_path / kind)
        read.check_same(tokenizer)
        assert again.config.head_width == config.head_width and torch.equal(again(torch.arange(9)), model(torch.arange(9)))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (Config(257, **SIZES), r"model.config.\w+: got .* preset 'gpt2' \(train --preset gpt2\)"),
        (Config.llama(257, **SIZES, out_bias=True), "model.config.out_bias: got True, want False, .* preset 'llama'"),
        (Config.gpt2(257, **SIZES, rope_base=5.0), "model.config.rope_base: got 5.0, want 10000.0, .*preset 'gpt2'"),
        (Config.llama(257, **SIZES, tied=True, rope_base=9.0, norm_kind="layer"), "model.config.norm_kind: got 'layer', want 'rms', .*preset 'llama' .train --preset llama.$"),
        (Config.gpt2(257, **SIZES, embed_scale=True), "model.config.embed_scale: got True, want False, .* preset 'gpt2'"),
    ],
)
def test_a_model_without_counterpart_is_refused(config, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        pretrained.save_model(TransformerLM(config), tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_published_sizes():
    """The numbers of parameters that the makers name, from the settings in their files."""
    base = {"model_type": "llama", "rms_norm_eps": 1e-5, "num_key_value_heads": None}
    sizes = dict(zip(("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"), range(6)))
    published = {
        "Llama 2 7B": ({}, (32000, 4096, 11008, 32, 32, 32), 6_738_415_616),
        "Llama 3.1 8B": ({}, (128256, 4096, 14336, 32, 32, 8), 8_030_261_248),
        "SmolLM2 135M": ({"tie_word_embeddings": True}, (49152, 576, 1536, 30, 9, 3), 134_515_008),
        "Qwen2 0.5B": ({"model_type": "qwen2", "tie_word_embeddings": True}, (151936, 896, 4864, 24, 14, 2), 494_032_768),
        "Qwen3 0.6B": ({"model_type": "qwen3", "tie_word_embeddings": True, "head_dim": 128}, (151936, 1024, 3072, 28, 16, 8), 596_049_920),
        "Mistral 7B": ({"model_type": "mistral"}, (32000, 4096, 14336, 32, 32, 8), 7_241_732_096),
        "Mixtral 8x7B": ({"model_type": "mixtral"}, (32000, 4096, 14336, 32, 32, 8), 46_702_792_704),
        "Gemma 2B": ({"model_type": "gemma", "head_dim": 256}, (256000, 2048, 16384, 18, 8, 1), 2_506_172_416),
    }
    for name, (more, numbers, count) in published.items():
        config = pretrained.llama_config(base | dict(zip(sizes, numbers)) | {"max_position_embeddings": 64} | more)
        assert count_parameters(config) == count, name


def test_the_index_says_how_many_bytes_there_are(tmp_path):
    model = TransformerLM(Config.llama(13, d_model=8, d_ff=10, n_layers=2, n_heads=2, max_len=12))
    save_llama(model, tmp_path / "m", limit=1000)
    said = json.loads((tmp_path / "m" / "model.safetensors.index.json").read_text())
    assert said["metadata"]["total_size"] == sum(w.nbytes for file in (tmp_path / "m").glob("*.safetensors") for w in load_file(file).values())


@pytest.mark.parametrize("limit", [10**9, 1000])
def test_each_file_says_that_its_tensors_are_of_torch(limit, tmp_path):
    """Versions of transformers before 5 refuse a file without it."""
    save_llama(TransformerLM(Config.llama(13, d_model=8, d_ff=10, n_layers=2, n_heads=2, max_len=12)), tmp_path / "m", limit=limit)
    for file in (tmp_path / "m").glob("*.safetensors"):
        with safe_open(file, "pt") as opened:
            assert opened.metadata() == {"format": "pt"}


def test_what_the_settings_for_writing_leave_open_is_as_in_the_others(tmp_path):
    (tmp_path / "config.json").write_text('{"bos_token_id": 1, "eos_token_id": 2}')
    (tmp_path / "generation_config.json").write_text('{"bos_token_id": null, "eos_token_id": [5, 6]}')
    assert [pretrained.llama.end_of(tmp_path, name) for name in ("bos_token_id", "eos_token_id")] == [1, 5]


def test_readers_are_told_to_leave_the_spaces_as_they_are(tmp_path):
    model = TransformerLM(Config.llama(258, d_model=8, d_ff=10, n_layers=1, n_heads=2, max_len=12))
    save_llama(model, tmp_path / "m", Tokenizer([(97, 98)]))
    said = json.loads((tmp_path / "m" / "tokenizer_config.json").read_text())
    assert said["clean_up_tokenization_spaces"] is False and said["bos_token"] == said["eos_token"] == "<|endoftext|>"


def test_whole_numbers_are_no_weights_in_whatever_type_they_are_wanted(tmp_path):
    theirs("llama", {}).save_pretrained(tmp_path / "m")
    folder = with_weights(tmp_path / "m", lambda w: w.update({W: w[W].to(torch.int32)}))
    with pytest.raises(ValueError, match=f"{W} of type torch.int32, want floating point numbers"):
        load_llama(folder, dtype=torch.float32)

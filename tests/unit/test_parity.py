"""What no single chapter checks: whole models of every preset and of random settings, against the specification and the theorems.

Numbers are compared in float64. "Agree to 1e-12" is relative to the largest entry of the specification's result, plus 1.
"""

import dataclasses
import functools
import re
from collections.abc import Callable

import numpy as np
import pytest
import torch
from commands import run_code
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from tlm_book import derive, training
from tlm_book.attention import attention, attention_pattern
from tlm_book.decoder_block import NORM_KINDS, NORMS, VARIANTS
from tlm_book.derivation import Kind
from tlm_book.feed_forward import ACTIVATIONS
from tlm_book.inference import complete, generate
from tlm_book.loss import shift, weighted_loss
from tlm_book.normalization import EPS_MODES
from tlm_book.positional_encoding import KINDS, LAYOUTS, RopeScaling
from tlm_book.spec import loss as s_loss
from tlm_book.spec import operators as s_operators
from tlm_book.spec.attention import attention as s_attention
from tlm_book.spec.positional_encoding import sinusoid
from tlm_book.spec.transformer_lm import transformer_lm as s_transformer_lm
from tlm_book.tokenization import Tokenizer
from tlm_book.training import (
    TrainConfig,
    evaluate,
    load,
    save,
    train,
    train_from_file,
)
from tlm_book.transformer_lm import Config, TransformerLM, count_parameters

FAMILY: dict[str, dict[str, object]] = {  # since Llama, and what else has to be small
    "llama": {},
    "qwen2": {"n_kv_heads": 2},
    "qwen3": {"n_kv_heads": 2, "d_head": 6},
    "mistral": {"n_kv_heads": 2, "window": 3},
    "mixtral": {"n_kv_heads": 2, "n_experts": 3},
    "gemma": {"n_kv_heads": 1, "d_head": 4},
}
PRESETS = ("wojcik", "lelarge", "becker_kahn", "agarwal", "lei_mao", "gpt2", "vaswani", *FAMILY)
SMALL = {"d_model": 8, "d_ff": 12, "n_layers": 2, "n_heads": 2, "max_len": 9}


GPU = (pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU on this machine"))


def needs_gpu(test: Callable[..., None]) -> Callable[..., None]:
    """`make gpu` runs what is marked so; elsewhere it is skipped."""
    for mark in GPU:
        test = mark(test)
    return test


def preset(name: str, **changes: object) -> Config:
    heads = {"n_heads": 4} | FAMILY[name] if name in FAMILY else {}
    return getattr(Config, name)(11, **SMALL | heads | changes)


def made(config: Config, number: int = 0) -> TransformerLM:
    """A model in float64 and evaluation mode; every weight (also biases, gains and tables) has been moved at random."""
    chance = torch.Generator().manual_seed(number)
    model = TransformerLM(config).double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.3 * torch.randn(p.shape, generator=chance, dtype=p.dtype))
    return model


def some_tokens(config: Config, *shape: int, number: int = 0) -> torch.Tensor:
    return torch.randint(config.vocab_size, shape, generator=torch.Generator().manual_seed(number))


def distance(result: np.ndarray, wanted: np.ndarray) -> float:
    assert result.shape == wanted.shape and np.isfinite(wanted).all()
    return float(np.abs(result - wanted).max(initial=0) / (1 + np.abs(wanted).max(initial=0)))


def by_spec(model: TransformerLM, sequence: torch.Tensor) -> np.ndarray:
    return s_transformer_lm(sequence.cpu().numpy(), **model.spec_weights(), **model.spec_settings())


@torch.no_grad()
def by_torch(model: TransformerLM, tokens: torch.Tensor) -> np.ndarray:
    return model(tokens).cpu().numpy()


@st.composite
def configs(draw: st.DrawFn) -> Config:
    """Any small model that the settings allow."""
    n_heads, norm, pe = draw(st.integers(1, 4)), draw(st.sampled_from(NORMS)), draw(st.sampled_from(KINDS))
    d_head, width = draw(st.none() | st.integers(1, 5)), draw(st.integers(1, 4))
    if pe == "rotary":
        d_head, width = d_head and 2 * d_head, 2 * width
    d_model = width * n_heads if d_head is None else width + 1
    if d_model == 1 or (d_model % 2 and pe in ("sinusoidal", "learned_from_sinusoid")):
        d_model *= 2
    n_experts = draw(st.none() | st.integers(1, 4))
    gated = n_experts is not None or draw(st.booleans())
    return Config(
        draw(st.integers(1, 12)), d_model, draw(st.integers(1, 9)), draw(st.integers(1, 3)), n_heads, draw(st.integers(1, 8)), d_head,
        activation=draw(st.sampled_from(sorted(ACTIVATIONS))), norm=norm, final_norm=draw(st.booleans()),
        variant=draw(st.sampled_from(VARIANTS)) if norm != "post" else "sequential",
        eps=draw(st.sampled_from([1e-6, 1e-5, 0.1])), eps_mode=draw(st.sampled_from(EPS_MODES)), pe=pe, pe_start=draw(st.integers(0, 5)),
        embed_scale=draw(st.booleans()), qkv_bias=draw(st.booleans()), out_bias=draw(st.booleans()), unembed_bias=draw(st.booleans()),
        tied=draw(st.booleans()), scale=draw(st.none() | st.sampled_from([0.25, 1.0, 2.0])),
        n_kv_heads=draw(st.none() | st.sampled_from([g for g in range(1, n_heads + 1) if n_heads % g == 0])),
        norm_kind=draw(st.sampled_from(NORM_KINDS)), gated=gated, ff_bias=n_experts is None and draw(st.booleans()),
        n_experts=n_experts, n_experts_used=draw(st.integers(1, n_experts or 2)), window=draw(st.none() | st.integers(1, 9)),
        qk_norm=draw(st.booleans()), rope_base=draw(st.sampled_from([10.0, 1e6])), rope_layout=draw(st.sampled_from(LAYOUTS)),
        rope_scaling=draw(st.sampled_from([None, RopeScaling("linear", 3.0), RopeScaling("llama3", 8.0, original_max_len=4)])),
    )  # fmt: skip


def many(examples: int) -> object:
    """The same random settings each time, and no files written."""
    checks = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
    return settings(max_examples=examples, deadline=None, derandomize=True, database=None, suppress_health_check=checks)


# The implementation is the specification


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("name", PRESETS)
def test_presets_equal_the_specification(name, number):
    config = preset(name)
    model = made(config, number)
    for n in (1, 2, 7, config.max_len):
        x = some_tokens(config, 2, n, number=number + n)
        wanted = np.stack([by_spec(model, row) for row in x])
        assert distance(by_torch(model, x), wanted) < 1e-12


@many(40)
@given(configs(), st.data())
def test_random_models_equal_the_specification(config, data):
    model = made(config, data.draw(st.integers(0, 99)))
    x = some_tokens(config, data.draw(st.integers(1, config.max_len)), number=data.draw(st.integers(0, 99)))
    assert distance(by_torch(model, x), by_spec(model, x)) < 1e-12


def read_anew(model: TransformerLM) -> dict[str, object]:
    """The arguments of the specification from the settings and the stored weights alone, without the model's `spec_weights`."""
    c, state = model.config, {key: w.double().numpy() for key, w in model.state_dict().items()}
    h, g, d = c.n_heads, c.n_kv_heads or c.n_heads, c.d_model

    def norm(name: str) -> dict[str, np.ndarray]:
        return {"a": state[name + ".weight"]} | ({} if c.norm_kind == "rms" else {"b": state[name + ".bias"]})

    def feed_forward(name: str) -> dict[str, object]:
        layers = {"W_G": "gate", "W_1": "up", "W_2": "down"} if c.gated else {"W_1": "up", "W_2": "down"}
        if c.n_experts is not None:
            experts = [{key: state[f"{name}.{layer}"][e].T for key, layer in layers.items()} for e in range(c.n_experts)]
            return {"W_R": state[name + ".router.weight"].T, "experts": experts}
        biases = {key.replace("W", "b"): state[f"{name}.{layer}.bias"] for key, layer in layers.items() if c.ff_bias}
        nothing = {} if c.ff_bias or c.gated else {"b_1": np.zeros(c.d_ff), "b_2": np.zeros(d)}
        return {key: state[f"{name}.{layer}.weight"].T for key, layer in layers.items()} | biases | nothing

    def block(name: str) -> dict[str, dict[str, object]]:
        qkv, out = (f"{name}.attention.{layer}" for layer in ("qkv", "out"))
        W = state[qkv + ".weight"].reshape(h + 2 * g, -1, d).swapaxes(1, 2)
        CA = {"W_Q": W[:h], "W_K": W[h : h + g], "W_V": W[h + g :], "W_O": state[out + ".weight"].T}
        CA["b_O"] = state[out + ".bias"] if c.out_bias else np.zeros(d)
        if c.qkv_bias:
            b = state[qkv + ".bias"].reshape(h + 2 * g, -1)
            CA["b_Q"], CA["b_K"], CA["b_V"] = b[:h], b[h : h + g], b[h + g :]
        if c.qk_norm:
            CA["qk_gain"] = np.stack([state[f"{name}.attention.{part}_norm.weight"] for part in ("query", "key")])
        norms = {} if c.norm == "none" else {"N_ca": norm(f"{name}.norm_attention"), "N_ff": norm(f"{name}.norm_feed_forward")}
        return {"CA": CA, "FF": feed_forward(f"{name}.feed_forward")} | norms

    table = state["embedding.table.weight"]
    return {
        "E": table * np.sqrt(d) if c.embed_scale else table,
        "P": None if c.pe in ("none", "rotary") else sinusoid(c.max_len, d, c.pe_start) if c.pe == "sinusoidal" else state["position.table"],
        "blocks": [block(f"blocks.{i}") for i in range(c.n_layers)],
        "N": norm("norm") if c.final_norm else None,
        "Y": (table if c.tied else state["unembedding.weight"]).T,
        "b": state["unembedding.bias"] if c.unembed_bias else np.zeros(c.vocab_size),
    }


@many(30)
@given(configs())
def test_random_models_equal_the_specification_with_weights_read_anew(config):
    """The tests above would not see an error that the model and its `spec_weights` share."""
    c = config
    torch.set_default_dtype(torch.float64)  # so that a fixed table of sines is made in float64
    try:
        model = made(c)
    finally:
        torch.set_default_dtype(torch.float32)
    x = some_tokens(c, c.max_len)
    settings_ = {"activation": c.activation, "norm": c.norm, "variant": c.variant, "eps": c.eps, "eps_mode": c.eps_mode, "scale": c.scale}
    settings_ |= {"norm_kind": c.norm_kind, "n_experts_used": c.n_experts_used, "window": c.window}
    settings_["feed_forward"] = "plain" if not c.gated else "gated" if c.n_experts is None else "experts"
    if c.pe == "rotary":
        scaling = c.rope_scaling and dataclasses.asdict(c.rope_scaling)
        settings_["rotary"] = {"base": c.rope_base, "layout": c.rope_layout, "scaling": scaling}
    assert distance(by_torch(model, x), s_transformer_lm(x.numpy(), **read_anew(model), **settings_)) < 1e-12


@pytest.mark.parametrize("start", [0, 1, 4])
def test_a_learned_table_may_start_as_the_sinusoid(start):
    table = TransformerLM(preset("wojcik", pe_start=start)).position.table
    assert table.requires_grad and np.abs(table.detach().numpy() - sinusoid(9, 8, start)).max() < 1e-6


@many(30)
@given(configs(), st.sampled_from([(), (1,), (3,), (2, 2), (0,)]))
def test_a_batch_is_a_loop(config, batch):
    model = made(config)
    n = min(5, config.max_len)
    x = some_tokens(config, *batch, n)
    result = by_torch(model, x)
    assert result.shape == (*batch, n, config.vocab_size)
    for index in np.ndindex(*batch):
        assert distance(result[index], by_torch(model, x[index])) < 1e-12
    assert model.attention_weights(x).shape == (config.n_layers, *batch, config.n_heads, n, n)


def test_layout_and_integer_type_of_tokens_do_not_matter():
    config = preset("wojcik")
    model, x = made(config), some_tokens(config, 6, 4)
    wanted = by_torch(model, x.T.contiguous())
    assert not x.T.is_contiguous() and distance(by_torch(model, x.T), wanted) < 1e-12
    assert distance(by_torch(model, x.T.int()), wanted) < 1e-12
    assert distance(by_torch(model, some_tokens(config, 1, 4).expand(3, 4)), by_torch(model, some_tokens(config, 1, 4).repeat(3, 1))) < 1e-12


@pytest.mark.parametrize("name", PRESETS)
def test_loss_of_a_batch_equals_the_specification(name):
    config = preset(name)
    model, x = made(config), some_tokens(config, 3, 6)
    w = torch.rand(3, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    y = np.stack([s_loss.sequence_log_probs(lambda t: by_spec(model, torch.from_numpy(t)), row.numpy(), start=2) for row in x])
    with torch.no_grad():
        logits = model(shift(x, 2))
        assert abs(weighted_loss(logits, x).item() + y.mean()) < 1e-12 * (1 + abs(y.mean()))
        for reduction, formula in (("weighted", s_loss.batch_loss), ("row_mean", s_loss.row_mean_loss)):
            wanted = formula(y, w.numpy())
            assert abs(weighted_loss(logits, x, w, reduction).item() - wanted) < 1e-12 * (1 + abs(wanted))


def test_integer_type_of_tokens_does_not_matter_to_the_loss():
    config = preset("wojcik")
    model, x = made(config), some_tokens(config, 2, 5)
    logits = torch.from_numpy(by_torch(model, x))
    assert torch.equal(weighted_loss(logits, x.int()), weighted_loss(logits, x))


@pytest.mark.parametrize("reduction", ["weighted", "row_mean", "sum"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_loss_adds_many_positions_in_half_precision(dtype, reduction):
    """76800 positions: the weights alone would add up to infinity in float16, and to no more than 256 in bfloat16, one by one."""
    random = torch.Generator().manual_seed(0)
    logits, x = torch.randn(300, 256, 11, generator=random).to(dtype), torch.randint(11, (300, 256), generator=random)
    wanted = weighted_loss(logits.double(), x, reduction=reduction)
    for weights in (None, torch.ones(300, 256, dtype=dtype)):
        loss = weighted_loss(logits, x, weights, reduction)
        assert loss.dtype == torch.float32 and torch.allclose(loss.double(), wanted, rtol=1e-5)


@pytest.mark.parametrize("reduction", ["weighted", "row_mean"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_narrow_weights_are_as_exact_as_the_scores(dtype, reduction):
    random = torch.Generator().manual_seed(0)
    logits, x = torch.randn(3, 6, 11, dtype=torch.float64, generator=random), torch.randint(11, (3, 6), generator=random)
    weights = torch.tensor([[1, 0, 1, 0, 1, 1], [1, 1, 1, 1, 1, 1], [0, 1, 1, 1, 0, 0]]).to(dtype)
    assert torch.equal(weighted_loss(logits, x, weights, reduction), weighted_loss(logits, x, weights.double(), reduction))
    assert weighted_loss(logits.float(), x, weights, reduction).dtype == torch.float32


@pytest.mark.parametrize("reduction", ["weighted", "row_mean", "sum"])
def test_a_position_of_weight_zero_is_skipped_whatever_its_score(reduction):
    random = torch.Generator().manual_seed(0)
    logits, x = torch.randn(2, 4, 5, dtype=torch.float64, generator=random), torch.tensor([[1, 2, 3, 0], [2, 0, 1, 0]])
    weights = torch.tensor([[1.0, 2, 1, 0], [1, 0, 3, 0]], dtype=torch.float64)
    never = logits.clone()
    never[..., 0] = -torch.inf
    found, rest = (z.clone().requires_grad_() for z in (never, never[..., 1:]))
    loss = weighted_loss(found, x, weights, reduction)
    wanted = weighted_loss(rest, (x - 1).clamp_min(0), weights, reduction)
    loss.backward()
    wanted.backward()
    assert torch.allclose(loss, wanted, rtol=1e-14) and torch.allclose(found.grad[..., 1:], rest.grad, atol=1e-15) and not found.grad[..., 0].any()


@pytest.mark.parametrize("scale", [None, 1.0, 0.3])
@pytest.mark.parametrize("width", [3, 2])  # torch takes another kernel when values are not as wide as keys
@pytest.mark.parametrize(("n", "m"), [(1, 1), (4, 4), (3, 5), (5, 3)])
@pytest.mark.parametrize("causal", [True, False])
def test_the_fused_kernel_equals_the_pattern(causal, n, m, width, scale):
    chance = np.random.default_rng(0)
    q, k, v = chance.normal(size=(n, 3)), chance.normal(size=(m, 3)), chance.normal(size=(m, width))
    wanted = s_attention(q, k, v, causal, scale)
    Q, K, V = map(torch.from_numpy, (q, k, v))
    assert distance((attention_pattern(Q, K, causal, scale) @ V).numpy(), wanted) < 1e-12
    assert distance(attention(Q, K, V, causal, scale).numpy(), wanted) < 1e-12


@pytest.mark.parametrize("scale", [0.0, -0.5])
def test_a_scale_that_is_not_positive_is_right_or_refused(scale):
    try:
        model = made(preset("wojcik", scale=scale))
        x = some_tokens(model.config, 5)
        result = by_torch(model, x)
    except ValueError as error:
        assert "scale: got" in str(error)
    else:
        assert distance(result, by_spec(model, x)) < 1e-12


# The theorem, by experiment and by proof


@many(30)
@given(configs())
def test_every_model_is_autoregressive_and_proved_so(config):
    model = made(config)
    proof = derive(model)
    assert proof.autoregressive and proof.unproved() == []
    x = some_tokens(config, config.max_len).numpy()
    assert s_operators.is_autoregressive(lambda t: by_torch(model, torch.from_numpy(t)), x)


@pytest.mark.parametrize("name", PRESETS)
def test_patterns_of_every_head_are_causal(name):
    config = preset(name)
    model, x = made(config), some_tokens(config, 7)
    for layer in range(config.n_layers):
        for head in range(config.n_heads):
            assert s_operators.is_causal_pattern(lambda t: model.attention_weights(torch.from_numpy(t)).numpy()[layer, head], x.numpy())
    assert torch.allclose(model.attention_weights(x).sum(-1), torch.ones((), dtype=torch.float64), rtol=0, atol=1e-12)


def test_a_model_without_mask_is_refuted_and_not_proved():
    """Both tests above can fail."""
    model = made(preset("wojcik"))
    model.blocks[1].attention.causal = False
    assert not derive(model).autoregressive
    assert [leaf.subject for leaf in derive(model).unproved()] == ["MultiHeadAttention"]
    x = some_tokens(model.config, 7).numpy()
    assert not s_operators.is_autoregressive(lambda t: by_torch(model, torch.from_numpy(t)), x)


class Unknown(nn.Module):
    """A layer that no rule knows."""


@pytest.mark.parametrize("name", ["wojcik", "agarwal", "vaswani"])
def test_a_proof_reads_every_part(name):
    """Whatever part of a model is exchanged for an unknown one, the model is no longer proved autoregressive."""
    model = made(preset(name))
    believed = []
    for path, part in list(model.named_modules()):
        if path and not isinstance(part, nn.ModuleList):
            parent, _, last = path.rpartition(".")
            setattr(model.get_submodule(parent), last, Unknown())
            if derive(model).autoregressive:
                believed.append(path)
            setattr(model.get_submodule(parent), last, part)
    assert derive(model).autoregressive and believed == []


@many(15)
@given(configs())
def test_training_mode_without_dropout_changes_nothing(config):
    model, x = made(config), some_tokens(config, config.max_len)
    calm = by_torch(model, x)
    assert np.array_equal(by_torch(model.train(), x), calm)
    assert derive(model).autoregressive


@many(10)
@given(configs(), st.sampled_from([0.1, 0.5]))
def test_dropout_in_training_mode_is_not_called_autoregressive(config, p):
    model = made(config.replace(dropout=p))
    assert derive(model).autoregressive and derive(model.train()).kind is Kind.UNPROVED
    assert {leaf.subject for leaf in derive(model).unproved()} == {f"Dropout({p})"}
    x = some_tokens(config, config.max_len)
    model.eval()
    assert np.array_equal(by_torch(model, x), by_torch(model, x))


def test_dropout_in_training_mode_is_in_fact_random():
    model = made(preset("vaswani", dropout=0.5)).train()
    x = some_tokens(model.config, 7)
    with torch.random.fork_rng(devices=[]):
        assert not np.array_equal(by_torch(model, x), by_torch(model, x))


# Counting and keeping weights


@many(60)
@given(configs())
def test_the_count_of_parameters_is_right(config):
    assert count_parameters(config) == sum(p.numel() for p in TransformerLM(config).parameters())


@pytest.mark.parametrize("name", PRESETS)
def test_the_count_of_parameters_is_right_for_presets(name):
    config = preset(name, d_head=6)
    assert count_parameters(config) == sum(p.numel() for p in TransformerLM(config).parameters())


@many(15)
@given(configs())
def test_every_weight_learns(config):
    """Each parameter has a finite gradient, and one that is not zero somewhere unless softmax or ε make it so for a reason."""
    model, x = made(config), some_tokens(config, 2, config.max_len)
    weighted_loss(model(shift(x)), x).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer([(104, 105), (116, 104)])


@pytest.mark.parametrize("name", PRESETS)
def test_save_and_load_keep_every_bit(name, tmp_path, tokenizer):
    config = preset(name).replace(vocab_size=len(tokenizer))
    model = TransformerLM(config).eval()
    save(model, tmp_path / "model", tokenizer)
    again, its_tokenizer = load(tmp_path / "model")
    assert again.config == config and not again.training and its_tokenizer.merges == tokenizer.merges
    assert {k: v.dtype for k, v in again.state_dict().items()} == {k: v.dtype for k, v in model.state_dict().items()}
    assert all(torch.equal(w, again.state_dict()[key]) for key, w in model.state_dict().items())
    assert (again.unembedding.weight is again.embedding.table.weight) == config.tied
    x = some_tokens(config, 2, 5)
    assert np.array_equal(by_torch(again, x), by_torch(model, x))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_save_and_load_keep_the_dtype(dtype, tmp_path, tokenizer):
    model = made(preset("wojcik").replace(vocab_size=len(tokenizer))).to(dtype)
    save(model, tmp_path / "model", tokenizer)
    weights = load(tmp_path / "model")[0].state_dict()
    assert all(weights[key].dtype == dtype and torch.equal(w, weights[key]) for key, w in model.state_dict().items())


def test_a_place_that_cannot_be_written_is_refused_before_the_work(tmp_path, monkeypatch):
    def begun(*_: object, **__: object) -> None:
        raise AssertionError("the training has begun")

    monkeypatch.setattr(training.run, "train", begun)
    (tmp_path / "text.txt").write_text("a word and another one. " * 300, encoding="utf-8")
    with pytest.raises((ValueError, OSError)):
        train_from_file(tmp_path / "text.txt", tmp_path / "text.txt" / "model", device="cpu", progress=False)


def test_a_failed_save_leaves_nothing(tmp_path, tokenizer, monkeypatch):
    def broken(*_: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(Tokenizer, "save", broken)
    with pytest.raises(OSError, match="no space"):
        save(TransformerLM(preset("wojcik").replace(vocab_size=len(tokenizer))), tmp_path / "model", tokenizer)
    assert list(tmp_path.iterdir()) == []


# Half precision


@pytest.mark.filterwarnings("error:Mismatch dtype")  # torch says so when it takes a slower kernel
@pytest.mark.parametrize("name", PRESETS)
def test_under_autocast_the_stream_is_in_half_precision(name):
    """From the first rows on, so that every sum is; float64 stays, as everywhere under autocast."""
    model, x = made(preset(name)).float().eval(), some_tokens(preset(name), 2, 7)
    with torch.no_grad():
        want = model(x)
        with torch.autocast("cpu", torch.bfloat16):
            streams, scores = model.residual_stream(x), model(x)
            exact = model.double().residual_stream(x)
    assert streams[0].dtype == torch.bfloat16 and all(rows.dtype == torch.float64 for rows in exact)
    if model.config.norm != "post":  # normalization after a sum gives float32
        assert {rows.dtype for rows in streams} == {torch.bfloat16}
    if model.config.n_experts is None:  # rounded scores may send a row to another expert
        assert distance(scores.double().numpy(), want.double().numpy()) < 0.05


def test_in_float16_the_stream_stays_in_float32_and_meta_tensors_pass():
    """Large sums would overflow in float16. A device without autocast is no obstacle."""
    model, x = made(preset("gpt2")).float(), some_tokens(preset("gpt2"), 2, 7)
    with torch.autocast("cpu", torch.float16):
        assert model.residual_stream(x)[0].dtype == torch.float32
    assert model.to("meta")(x.to("meta")).shape == (2, 7, model.config.vocab_size)


# Nothing global is changed


def switches() -> dict[str, object]:
    """What a library could change behind its user's back, less the random state of torch (and Python's, which the type checker uses)."""
    return {
        "dtype": torch.get_default_dtype(), "device": torch.get_default_device(), "threads": torch.get_num_threads(),
        "between threads": torch.get_num_interop_threads(), "gradients": torch.is_grad_enabled(), "inference": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"), "deterministic": torch.are_deterministic_algorithms_enabled(),
        "precision": torch.get_float32_matmul_precision(), "anomaly": torch.is_anomaly_enabled(), "numpy errors": np.geterr(),
        "tf32": torch.backends.cuda.matmul.allow_tf32, "kernels": (torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled()),
        "printing": torch._tensor_str.PRINT_OPTS.precision, "numpy printing": np.get_printoptions()["precision"],
        "numpy random": [str(part) for part in np.random.get_state()],
    }  # fmt: skip


def seeds() -> torch.Tensor:
    return torch.get_rng_state().clone()


@pytest.mark.parametrize("name", PRESETS)
def test_making_and_using_a_model_changes_no_switch(name):
    before = switches()
    model = TransformerLM(preset(name)).train()
    x = some_tokens(model.config, 2, 5)
    weighted_loss(model(shift(x)), x).backward()
    assert switches() == before
    model.eval()
    random_before = seeds()
    by_torch(model, x), model.attention_weights(x), model.spec_weights(), derive(model), count_parameters(model.config)
    generate(model, x, 3, temperature=0.0)
    generate(model, x, 3, generator=torch.Generator().manual_seed(0))
    evaluate(model, x.flatten(), 4, 0)
    assert switches() == before and torch.equal(seeds(), random_before)


def test_the_generators_of_python_and_numpy_are_never_used():
    """In a process without the runtime checker, whose lists are checked at random places."""
    code = """
import random, numpy, torch
from tlm_book.inference import complete
from tlm_book.tokenization import Tokenizer
from tlm_book.training import TrainConfig, train
from tlm_book.transformer_lm import Config
def state(): return random.getstate(), str(numpy.random.get_state()), torch.get_rng_state().tolist()
before = state()
tokenizer = Tokenizer.train(["hi, this is it"] * 3, 260)
config = Config(len(tokenizer), d_model=4, d_ff=4, n_layers=1, n_heads=1, max_len=4, dropout=0.1)
tokens = torch.arange(30)
model = train(TrainConfig(steps=2, warmup=1, batch_size=2), config, tokens, tokens, device="cpu", progress=False).model
complete(model, tokenizer, "hi", 3)
assert state() == before
"""
    done = run_code(code)
    assert done.returncode == 0, done.stderr


def test_a_model_is_made_from_torch_s_seed_alone():
    models = []
    for _ in range(2):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(5)
            models.append(TransformerLM(preset("gpt2")))
    a, b = (model.state_dict() for model in models)
    assert all(torch.equal(a[key], b[key]) for key in a)


def test_training_saving_loading_and_writing_leave_the_random_state(tmp_path, tokenizer):
    before, random_before = switches(), seeds()
    config = preset("vaswani").replace(vocab_size=len(tokenizer))
    text = some_tokens(config, 60)
    result = train(TrainConfig(steps=2, warmup=1, eval_every=1, batch_size=2), config, text, text[:20], device="cpu", progress=False)
    save(result.model, tmp_path / "model", tokenizer, log=result.log)
    model, its_tokenizer = load(tmp_path / "model")
    complete(model, its_tokenizer, "hi", 4)
    assert switches() == before and torch.equal(seeds(), random_before)


def test_the_default_dtype_is_used_and_kept():
    try:
        torch.set_default_dtype(torch.float64)
        model = TransformerLM(preset("wojcik")).eval()
        x = some_tokens(model.config, 5)
        assert {w.dtype for w in model.state_dict().values()} == {torch.float64} and model(x).dtype == torch.float64
        assert distance(by_torch(model, x), by_spec(model, x)) < 1e-12
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("mode", [True, False])
def test_the_mode_of_a_model_is_given_back(mode, tokenizer):
    model = TransformerLM(preset("vaswani").replace(vocab_size=len(tokenizer))).train(mode)
    x = some_tokens(model.config, 6)
    generate(model, x, 2, temperature=0.0), complete(model, tokenizer, "hi", 2), evaluate(model, x, 4, 0)
    assert {part.training for part in model.modules()} == {mode}


@pytest.mark.parametrize("call", [lambda m, x: generate(m, x, 2), lambda m, x: evaluate(m, x + m.config.vocab_size, 4, 0)], ids=["generate", "evaluate"])
def test_the_mode_of_a_model_is_given_back_after_an_error(call):
    model = TransformerLM(preset("vaswani")).train()
    with torch.no_grad():
        model.embedding.table.weight.fill_(float("nan"))
    with pytest.raises((ValueError, IndexError)):
        call(model, some_tokens(model.config, 6))
    assert model.training


# Writing text


@many(12)
@given(configs(), st.integers(0, 6))
def test_greedy_continuation_of_a_batch_is_a_loop_and_extends_itself(config, n_new):
    model = made(config)
    x = some_tokens(config, 3, min(2, config.max_len))
    write = functools.partial(generate, model, temperature=0.0, on_overflow="slide")
    longer = write(x, n_new)
    assert longer.shape == (3, x.shape[1] + n_new) and torch.equal(longer[:, : x.shape[1]], x)
    assert torch.equal(longer, torch.stack([write(row, n_new) for row in x]))
    assert torch.equal(write(x, n_new + 1)[:, :-1], longer)
    n = longer.shape[1]
    if n <= config.max_len:  # each new token is the likeliest after those before it: one pass over the result sees them all
        assert torch.equal(torch.from_numpy(by_torch(model, longer)).argmax(-1)[:, x.shape[1] - 1 : n - 1], longer[:, x.shape[1] :])


# On a GPU


@needs_gpu
@pytest.mark.parametrize("name", PRESETS)
def test_gpu_equals_the_specification(name):
    config = preset(name)
    model = made(config).cuda()
    for n in (1, 7):
        x = some_tokens(config, 2, n)
        wanted = np.stack([by_spec(model, row) for row in x])
        result = by_torch(model, x.cuda())
        assert distance(result, wanted) < 1e-12
    patterns = model.attention_weights(x.cuda())
    assert patterns.is_cuda and torch.allclose(patterns.cpu(), model.cpu().attention_weights(x), rtol=0, atol=1e-12)


@needs_gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", PRESETS)
def test_training_runs_on_a_gpu(name, dtype):
    before, random_before = switches(), torch.cuda.get_rng_state()
    config = preset(name)
    text = some_tokens(config, 60)
    settings_ = TrainConfig(steps=3, warmup=1, eval_every=1, batch_size=2, dtype=dtype)
    result = train(settings_, config, text, text[:20], device="cuda", progress=False)
    assert next(result.model.parameters()).is_cuda and len(result.log) == 3
    assert switches() == before and torch.equal(torch.cuda.get_rng_state(), random_before)


@needs_gpu
def test_gpu_saves_loads_and_writes_as_the_cpu(tmp_path, tokenizer):
    config = preset("gpt2").replace(vocab_size=len(tokenizer))
    model = made(config)
    x = some_tokens(config, 2, 3)
    wanted = generate(model, x, 6, temperature=0.0)
    chance = generate(model, x, 6, generator=torch.Generator().manual_seed(1))
    model = model.cuda()
    assert torch.equal(generate(model, x.cuda(), 6, temperature=0.0).cpu(), wanted)
    assert torch.equal(generate(model, x.cuda(), 6, generator=torch.Generator().manual_seed(1)).cpu(), chance)
    save(model.float(), tmp_path / "model", tokenizer)
    again, _ = load(tmp_path / "model", "cuda")
    assert all(w.is_cuda and torch.equal(w, model.state_dict()[key]) for key, w in again.state_dict().items())


def test_the_presets_are_all_here():
    found = [key for key, value in vars(Config).items() if isinstance(value, classmethod)]
    assert sorted(found) == sorted(PRESETS) and all(re.fullmatch(r"[a-z0-9_]+", key) for key in found)

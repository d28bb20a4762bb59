"""Layers and losses in number types, modes and states other than the usual ones."""

import copy
import pickle

import numpy as np
import pytest
import torch

from tlm_book.attention import attention
from tlm_book.attention import attention_pattern as pattern
from tlm_book.decoder_block import DecoderBlock
from tlm_book.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from tlm_book.feed_forward import MixtureOfExperts
from tlm_book.gradients import directional_derivatives
from tlm_book.heads import logit_lens, mean_rows
from tlm_book.inference.sampling import last_scores
from tlm_book.inside import run_with_cache
from tlm_book.loss import chunked_loss, weighted_loss
from tlm_book.multi_head import CrossAttention
from tlm_book.normalization import Normalization, RMSNorm
from tlm_book.optimization import sharpness
from tlm_book.positional_encoding import PositionalEncoding, Rotary, sinusoidal_table
from tlm_book.spec.attention import attention_pattern
from tlm_book.spec.feed_forward import gelu, gelu_tanh, relu, silu
from tlm_book.spec.normalization import rms_norm, standardize
from tlm_book.spec.operators import is_equivariant, is_indexed_rowwise
from tlm_book.training import evaluate
from tlm_book.training.muon import muon_for, newton_schulz
from tlm_book.transformer_lm import Config, TransformerLM

SMALL = {"d_model": 8, "d_ff": 12, "n_layers": 2, "n_heads": 2, "max_len": 16}


@pytest.mark.parametrize("scale", [1e-37, 1e-24, 1e25])
def test_the_polar_factor_does_not_depend_on_the_scale(scale):
    torch.manual_seed(0)
    M = torch.randn(3, 8, 5)
    torch.testing.assert_close(newton_schulz(scale * M), newton_schulz(M), atol=1e-5, rtol=0)
    assert not newton_schulz(0 * M).any()


def test_two_optimizers_together_can_be_copied():
    torch.manual_seed(0)
    model = TransformerLM(Config(11, **SMALL))
    both = muon_for(model, 0.01, 0.001)
    for made in (copy.deepcopy(both), pickle.loads(pickle.dumps(both))):
        assert len(made.parts) == len(both.parts) and len(made.param_groups) == len(both.param_groups)
        assert all(a is b for a, b in zip(made.param_groups, (group for part in made.parts for group in part.param_groups), strict=True))
        for group in made.param_groups:
            for w in group["params"]:
                w.grad = torch.ones_like(w)
        made.step()


@pytest.mark.parametrize("scale", [1.0, 2.0**15, 2.0**16])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_scaled_loss_in_float16_has_the_right_gradients(scale, weighted):
    """2^16 is the first scale of torch's GradScaler, which float16 cannot hold."""
    torch.manual_seed(0)
    N, d, V = 20000, 8, 12
    H, W, b, x = torch.randn(N, d), torch.randn(V, d), torch.randn(V), torch.randint(V, (N,))
    weights = torch.rand(N) if weighted else None

    def gradients(loss_of, low):
        h, w, c = (t.clone().requires_grad_() for t in (H, W, b))
        with torch.autocast("cpu", dtype=torch.float16, enabled=low):
            loss = loss_of(h, w, c)
        (scale * loss).backward()
        return h.grad, w.grad, c.grad

    exact = gradients(lambda h, w, c: weighted_loss(h @ w.T + c, x, weights), False)
    ours = gradients(lambda h, w, c: chunked_loss(h, w, x, weights, bias=c), True)
    usual = gradients(lambda h, w, c: weighted_loss(torch.nn.functional.linear(h, w, c), x, weights), True)
    error = lambda found: [float((g - e).norm() / e.norm()) for g, e in zip(found, exact, strict=True)]
    limits = [max(0.005, 2 * usual_error) for usual_error in error(usual)]
    assert all(found < limit for found, limit in zip(error(ours), limits, strict=True)), (error(ours), limits)


def test_the_sum_of_no_losses_has_the_gradient_zero():
    h, w = torch.randn(4, 3, requires_grad=True), torch.randn(5, 3, requires_grad=True)
    chunked_loss(h, w, torch.zeros(4, dtype=torch.long), torch.zeros(4), reduction="sum").backward()
    assert not h.grad.any() and not w.grad.any()


def test_room_leaves_no_rubbish_in_a_fixed_table():
    """Whether the layer was on meta before or not."""
    layer = PositionalEncoding(16, 8, "sinusoidal")
    table = layer.table.clone()
    layer.table.fill_(7)  # as memory may be
    assert torch.equal(layer.to_empty(device="cpu").table, table)
    assert layer.double().table.dtype == torch.float64 and torch.equal(layer.float().table, table)
    assert layer.to("meta").table.is_meta


def test_a_table_of_sines_has_the_default_type_and_its_precision():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        table = PositionalEncoding(16, 8).table
    finally:
        torch.set_default_dtype(before)
    assert torch.equal(table, sinusoidal_table(16, 8)) and PositionalEncoding(16, 8).table.dtype == before


def test_the_search_for_the_sharpest_direction_begins_where_it_is_told():
    """The Hessian is diag(1, −3): the first axis is left by no iteration, every other direction turns to the second."""
    w = torch.tensor([0.5, 0.5], dtype=torch.float64, requires_grad=True)
    loss = lambda: (w[0] ** 2 - 3 * w[1] ** 2) / 2
    for start, curvature in (([torch.tensor([2.0, 0.0], dtype=torch.float64)], 1.0), (None, -3.0)):
        found, (direction,) = sharpness(loss, [w], 40, start)
        assert abs(found - curvature) < 1e-12 and abs(direction.norm() - 1) < 1e-12


def test_a_weight_that_the_loss_does_not_use_has_no_curvature():
    w, linear, unused = (torch.ones(2, dtype=torch.float64, requires_grad=True) for _ in range(3))
    found, direction = sharpness(lambda: (w[0] ** 2 - 3 * w[1] ** 2) / 2 + linear.sum(), [w, linear, unused], 40)
    assert abs(found + 3) < 1e-12 and float(direction[1].norm() + direction[2].norm()) == 0


def test_a_loss_without_curvature_has_sharpness_0():
    """Its gradient may be a constant, or depend on the weights in no direction that is asked for."""
    w, other = (torch.ones(2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    for loss in (lambda: 2 * w.sum(), lambda: (other**2).sum(), lambda: (w * (other - 1)).sum() + (w**3).sum() - 3 * (w**2).sum()):
        found, (direction,) = sharpness(loss, [w], 3)
        assert found == 0 and abs(direction.norm() - 1) < 1e-12


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_one_can_look_inside_experts_under_autocast(dtype):
    torch.manual_seed(0)
    model = TransformerLM(Config.mixtral(11, d_model=8, d_ff=12, n_layers=1, n_heads=4, n_kv_heads=2, n_experts=3, max_len=16)).eval()
    with torch.no_grad(), torch.autocast("cpu", dtype=dtype):
        z = model(torch.tensor([1, 2, 3]))
        seen, _ = run_with_cache(model, torch.tensor([1, 2, 3]))
    torch.testing.assert_close(seen.float(), z.float(), atol=0.05, rtol=0)


def test_the_loss_of_balance_takes_one_row_and_refuses_none():
    torch.manual_seed(0)
    layer, x = MixtureOfExperts(4, 8, 3), torch.randn(4)
    assert torch.equal(layer.load_balancing_loss(x), layer.load_balancing_loss(x[None]))
    assert layer.bfloat16().load_balancing_loss(x.bfloat16()).dtype == torch.float32
    with pytest.raises(ValueError, match="x: got no rows, want at least one"):
        layer.load_balancing_loss(torch.randn(0, 4).bfloat16())


def test_the_weights_of_experts_are_not_rounded_under_autocast():
    torch.manual_seed(0)
    layer, x = MixtureOfExperts(4, 8, 3), torch.randn(50, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        weights, _ = layer.route(x)
        assert weights.dtype == torch.float32 and (weights.sum(-1) - 1).abs().max() < 1e-6


@pytest.mark.parametrize(("norm", "variant"), [("pre", "sequential"), ("pre", "parallel"), ("post", "sequential")])
@pytest.mark.parametrize("silent", ["attention.out", "feed_forward.down"])
def test_dropout_acts_on_what_each_layer_adds(norm, variant, silent):
    """With p = 1/2 each number is dropped or doubled."""
    torch.manual_seed(0)
    block, x = DecoderBlock(8, 2, 12, norm=norm, variant=variant, dropout=0.5).double(), torch.randn(3, 5, 8, dtype=torch.double)
    block.norm_attention = block.norm_feed_forward = torch.nn.Identity()
    for w in block.get_submodule(silent).parameters():
        torch.nn.init.zeros_(w)
    share = (block.train()(x) - x) / (block.eval()(x) - x)
    assert share.round(decimals=6).unique().tolist() == [0.0, 2.0]


def test_values_are_as_wide_as_keys_unless_asked_otherwise():
    for d_key, d_value, width in ((None, None, 4), (3, None, 3), (3, 5, 5)):
        assert CrossAttention(8, 2, d_key, d_value).spec_weights()["W_V"].shape == (2, 8, width)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int64, np.float16])
def test_the_specification_computes_narrow_numbers_in_float64(dtype):
    row, rows = np.array([5, 3, 9], dtype), np.array([[100, 100], [1, 1]], dtype)
    assert np.array_equal(standardize(row), standardize(row.astype(float)))
    assert np.array_equal(rms_norm(rows, np.ones(2)), rms_norm(rows.astype(float), np.ones(2)))
    assert np.array_equal(attention_pattern(rows, rows), attention_pattern(rows.astype(float), rows.astype(float)))


def test_each_part_of_a_model_keeps_its_mode():
    torch.manual_seed(0)
    model = TransformerLM(Config(11, **SMALL, dropout=0.5))
    tokens = torch.randint(11, (40,))
    for frozen in (model.blocks[0], model.blocks[1].dropout):
        model.train()
        frozen.eval()
        modes = [part.training for part in model.modules()]
        evaluate(model, tokens, 8, 0)
        assert torch.equal(last_scores(model, tokens[:5], None), last_scores(model, tokens[:5], None))
        assert [part.training for part in model.modules()] == modes
    model.eval()
    model.blocks[0].dropout.train()
    assert torch.equal(last_scores(model, tokens[:5], None), last_scores(model, tokens[:5], None)) and model.blocks[0].dropout.training


def test_what_is_seen_inside_is_without_dropout():
    torch.manual_seed(0)
    model, tokens = TransformerLM(Config(11, **SMALL, dropout=0.5)), torch.randint(11, (2, 9))
    for look in (TransformerLM.attention_weights, mean_rows, logit_lens):
        in_training = look(model.train(), tokens)
        assert all(part.training for part in model.modules()) and torch.equal(in_training, look(model.eval(), tokens))


@pytest.mark.parametrize("causal", [False, True])
def test_a_row_that_sees_nothing_has_weights_0(causal):
    torch.manual_seed(0)
    q, mask = torch.randn(2, 4, 3), torch.tensor([[1, 0, 0, 0], [0, 0, 0, 0], [0, 1, 1, 1], [0, 0, 0, 1]]).bool()
    A = pattern(q, q, causal=causal, mask=mask)
    sees = (mask.tril() if causal else mask).any(-1)
    assert torch.equal(A.sum(-1) > 0, sees.expand(2, 4)) and A.isfinite().all()
    assert torch.allclose(A @ q, attention(q, q, q, causal=False, mask=mask.tril() if causal else mask), atol=1e-6)


@pytest.mark.parametrize(("of", "config"), [(EncoderDecoder, EncoderDecoderConfig), (TransformerLM, Config)])
@pytest.mark.parametrize(("scaled", "size"), [(True, 64**-0.5), (False, 0.02)])
def test_drawing_anew_leaves_a_shared_table_its_size_and_biases_0(of, config, scaled, size):
    torch.manual_seed(0)
    model = of(config.vaswani(300, d_model=64, d_ff=8, n_layers=1, n_heads=2, qkv_bias=True, embed_scale=scaled))
    for _ in range(2):
        assert 0.96 * size < model.unembedding.weight.std() < 1.04 * size
        assert not any(w.any() for name, w in model.named_parameters() if name.endswith("bias"))
        model.initialize()


def test_a_batch_without_texts_has_no_scores():
    model = TransformerLM(Config.gpt2(11, **SMALL))
    assert model(torch.zeros(0, 3, dtype=torch.long)).shape == (0, 3, 11)


def test_experts_of_a_model_begin_as_its_linear_layers_do():
    """0.02, and 0.02/√(2L) for the matrices that write to the stream; L = 8."""
    torch.manual_seed(0)
    experts = TransformerLM(Config.mixtral(11, d_model=64, d_ff=64, n_layers=8, n_heads=8, max_len=4)).blocks[3].feed_forward
    for weight, size in ((experts.gate, 0.02), (experts.up, 0.02), (experts.down, 0.005)):
        assert 0.96 * size < weight.std() < 1.04 * size


def test_experts_begin_as_linear_layers_do():
    experts = MixtureOfExperts(16, 400, n_experts=3)
    for weight, columns in ((experts.gate, 16), (experts.up, 16), (experts.down, 400)):
        assert 0.99 * columns**-0.5 < weight.abs().max() <= columns**-0.5


@pytest.mark.parametrize("made", [Normalization(4, eps_mode="inside"), Normalization(4), RMSNorm(4)], ids=["inside", "outside", "rms"])
@pytest.mark.parametrize(("of_weights", "of_rows"), [(torch.float32, torch.float64), (torch.bfloat16, torch.float32), (torch.float64, torch.float32)])
@pytest.mark.filterwarnings("error")
def test_rows_of_another_type_than_the_weights_are_normalized(made, of_weights, of_rows):
    X = torch.tensor([[1.0, 2.0, 4.0, 8.0]])
    Y = copy.deepcopy(made).to(of_weights)(X.to(of_rows))
    assert Y.dtype == of_rows
    torch.testing.assert_close(Y.float(), made(X), atol=1e-6, rtol=1e-6)


def test_a_loss_that_fails_leaves_the_weights_as_they_were():
    model, calls = torch.nn.Linear(2, 2), iter([0, 1])
    before = [p.detach().clone() for p in model.parameters()]

    def loss():
        if next(calls):
            raise KeyError
        return model(torch.ones(2)).sum()

    with pytest.raises(KeyError):
        directional_derivatives(model, loss)
    assert all(map(torch.equal, before, model.parameters()))


@pytest.mark.parametrize("weighted", [False, True])
def test_the_loss_in_chunks_has_a_shape_without_numbers(weighted):
    H, W, w = (torch.ones(size, device="meta") for size in ((2, 3, 4), (5, 4), (2, 3)))
    x = torch.zeros(2, 3, dtype=torch.long, device="meta")
    assert chunked_loss(H, W, x, w if weighted else None).shape == ()


def test_no_rows_have_no_positions():
    assert Rotary(4, 9)(torch.zeros(2, 0, 4), at=torch.zeros(0, dtype=torch.long)).shape == (2, 0, 4)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64])
def test_the_specification_computes_whole_numbers_in_float64(dtype):
    x = np.array([1, 6, 100], dtype=dtype)
    for f in (silu, gelu, gelu_tanh, relu):
        np.testing.assert_array_equal(f(x), f(x.astype(float)))
    assert gelu_tanh(np.int8(-6)) == gelu_tanh(-6.0)


def test_another_number_of_rows_is_neither_indexed_rowwise_nor_equivariant():
    X = np.arange(6.0).reshape(3, 2)
    for T in (lambda X: np.vstack([X, X.sum(axis=0)]), lambda X: X[:1]):
        assert not is_indexed_rowwise(T, X, 0 * X) and not is_equivariant(T, X)

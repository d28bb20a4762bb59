"""Rotary encodings beside those of `transformers`, moved between devices and precisions, and compiled."""

import copy
import math
from dataclasses import asdict

import numpy as np
import pytest
import torch
from commands import run_code
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import (
    LlamaRotaryEmbedding,
    apply_rotary_pos_emb,
)

from tlm_book.positional_encoding import RopeScaling, Rotary
from tlm_book.spec.positional_encoding import rope_frequencies, rotary

LLAMA_3 = RopeScaling("llama3", 8.0, 1.0, 4.0, 8192)


def of_transformers(d_head: int, base: float, scaling: RopeScaling | None) -> LlamaRotaryEmbedding:
    settings = {"rope_type": "default", "rope_theta": base}
    if scaling is not None:
        settings |= {"rope_type": scaling.kind, "factor": scaling.factor}
    if scaling is not None and scaling.kind == "llama3":
        low, high, length = scaling.low_freq_factor, scaling.high_freq_factor, scaling.original_max_len
        settings |= {"low_freq_factor": low, "high_freq_factor": high, "original_max_position_embeddings": length}
    heads = {"hidden_size": 4 * d_head, "num_attention_heads": 4, "head_dim": d_head}
    return LlamaRotaryEmbedding(LlamaConfig(**heads, rope_parameters=settings, max_position_embeddings=131072))


@pytest.mark.parametrize(
    ("d_head", "base", "scaling"),
    [
        (16, 10000.0, None), (8, 10000.0, RopeScaling("linear", 4.0)), (128, 500000.0, LLAMA_3), (64, 500000.0, RopeScaling("llama3", 32.0, 1.0, 4.0, 8192)),
        (16, 10000.0, RopeScaling("llama3", 4.0, 2.0, 3.0, 100)),
    ],
)  # fmt: skip
def test_it_turns_as_transformers_does(d_head, base, scaling):
    """Their frequencies are computed in float32."""
    theirs, x = of_transformers(d_head, base, scaling), torch.randn(2, 3, 40, d_head)
    ours = rope_frequencies(d_head, base, None if scaling is None else asdict(scaling))
    assert np.abs(theirs.inv_freq.double().numpy() / ours - 1).max() < 1e-6
    cos, sin = theirs(x, torch.arange(7, 47)[None])
    wanted, _ = apply_rotary_pos_emb(x, x, cos, sin)
    assert torch.allclose(Rotary(d_head, 99, base, scaling=scaling)(x, at=7), wanted, atol=1e-4)


@pytest.mark.parametrize("layout", ["halves", "interleaved"])
def test_two_products_turn_the_rows(layout):
    """As the module does, by whatever way positions are given."""
    module, x = Rotary(6, 20, layout=layout).double(), torch.randn(2, 3, 5, 6, dtype=torch.double)
    for at in (0, 4, slice(2, 7), torch.tensor([3, 1, 4, 1, 19]), torch.randint(20, (2, 1, 5))):
        c, s = module.factors(5, at)
        assert c.shape == s.shape and torch.allclose(x * c + module.swapped(x) * s, module(x, at), rtol=0, atol=1e-14)
    assert torch.equal(module.swapped(module.swapped(x)), x) and not torch.equal(module.swapped(x), x)
    with pytest.raises(ValueError, match="at: got 16, want 5 positions from 0 to 19"):
        module.factors(5, 16)


@pytest.mark.parametrize("layout", ["halves", "interleaved"])
@pytest.mark.parametrize("scaling", [None, RopeScaling("linear", 3.0), RopeScaling("llama3", 3.0, original_max_len=30)])
def test_it_turns_as_the_specification_does_with_its_settings(layout, scaling):
    module, x = Rotary(8, 40, 100.0, layout, scaling).double(), torch.randn(40, 8, dtype=torch.double)
    assert np.abs(module(x).numpy() - rotary(x.numpy(), np.arange(40), **module.spec_settings())).max() < 1e-12


def test_the_tables_are_not_rounded_with_the_model():
    late = 100_000  # in bfloat16 this position would be off by hundreds, in float32 its angle by 0.004
    for to in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        module = Rotary(2, late + 1).to(torch.bfloat16).to(to)
        assert module.cos.dtype == (torch.float64 if to == torch.float64 else torch.float32)
        assert abs(float(module.cos[late, 0]) - math.cos(late)) < (1e-12 if to == torch.float64 else 1e-7)
    assert list(module.state_dict()) == [] and list(module.parameters()) == []
    assert torch.equal(copy.deepcopy(module).sin, module.sin)


def test_a_model_without_numbers_gets_its_tables():
    for fill in (lambda m: m.to_empty(device="cpu"), lambda m: m.to("cpu"), lambda m: m(torch.zeros(1, 4))):
        with torch.device("meta"):
            module = Rotary(4, 9)
        assert module(torch.zeros(3, 4, device="meta")).shape == (3, 4) and module.cos.is_meta
        fill(module)
        assert torch.equal(module.cos, Rotary(4, 9).cos)
    with torch.inference_mode(), torch.device("meta"):
        module = Rotary(4, 9)
    x = torch.zeros(2, 4, requires_grad=True)
    module(x).sum().backward()
    assert x.grad is not None


ONE_GRAPH = """
import torch
from tlm_book.positional_encoding import LAYOUTS, Rotary

for layout in LAYOUTS:
    module = Rotary(8, 40, layout=layout)
    for at in (0, 5, slice(2, 7), torch.tensor([1, 4, 2, 30, 0])):
        torch.compiler.reset()
        compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
        x = torch.randn(2, 3, 5, 8, requires_grad=True)
        given, wanted = (torch.autograd.grad((f(x, at) ** 3).sum(), x)[0] for f in (compiled, module))
        assert torch.allclose(given, wanted, atol=1e-4), (layout, at)
"""


def test_it_is_one_graph():
    """In a process without the runtime type checker."""
    result = run_code(ONE_GRAPH)
    assert result.returncode == 0, result.stderr[-2000:]


def test_the_gradient_turns_back():
    """A rotation's transpose is the rotation the other way."""
    module, G = Rotary(6, 9).double(), torch.randn(9, 6, dtype=torch.float64)
    x = torch.randn(9, 6, dtype=torch.float64, requires_grad=True)
    (module(x) * G).sum().backward()
    assert np.abs(x.grad.numpy() - rotary(G.numpy(), -np.arange(9))).max() < 1e-12

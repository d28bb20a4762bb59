"""Another default device than the CPU: what draws from a generator of the CPU, or makes tensors of its own, says where."""

import pytest
import torch
from torch import nn

from tlm_book.gradients import directional_derivatives
from tlm_book.heads import said_twice
from tlm_book.inference import complete, generate
from tlm_book.optimization import sharpness
from tlm_book.tokenization import Tokenizer
from tlm_book.transformer_lm import Config, TransformerLM
from tlm_book.word_vectors import SkipGram, word_vectors


def bytewise() -> tuple[TransformerLM, Tokenizer]:
    torch.manual_seed(0)
    tokenizer = Tokenizer([])
    return TransformerLM(Config(len(tokenizer), d_model=8, d_ff=12, n_layers=1, n_heads=2, max_len=16)).eval(), tokenizer


def curvature():
    torch.manual_seed(0)
    layer, x = nn.Linear(3, 2).double(), torch.randn(4, 3, dtype=torch.float64)
    return layer, lambda: (layer(x) ** 2).sum()


def slopes():
    layer, loss = curvature()
    return lambda: directional_derivatives(layer, loss)


def bend():
    layer, loss = curvature()
    return lambda: sharpness(loss, list(layer.parameters()))[0]


def written():
    model, tokenizer = bytewise()
    return lambda: complete(model, tokenizer, "ab", 5, seed=3)


def several():
    model, _ = bytewise()
    return lambda: [text.tolist() for text in generate(model, [[1, 2], [3]], 4, temperature=0)]


def vectors():
    texts = ["a b c a b c b a"] * 3
    return lambda: word_vectors(texts, SkipGram(min_count=1, epochs=1, d_model=4)).centre.tolist()


def twice():
    pool = torch.arange(9)
    return lambda: said_twice(pool, 3, 2, 0).tolist()


@pytest.mark.parametrize("made", [slopes, bend, written, several, vectors, twice])
def test_the_default_device_changes_nothing(made):
    job = made()
    want = job()
    with torch.device("meta"):
        assert job() == want

"""A default device other than the CPU: what draws from a generator on the CPU, or makes tensors of its own, says on which device."""

import pytest
import torch
from test_viewer import Letters
from torch import nn

from tlm_book.auditing import audit
from tlm_book.auditing.small import small_audit
from tlm_book.derivation import derive, register_rule, residual, rules
from tlm_book.gradients import directional_derivatives
from tlm_book.heads import said_twice
from tlm_book.inference import complete, generate
from tlm_book.optimization import sharpness
from tlm_book.tokenization import Tokenizer
from tlm_book.transformer_lm import Config, TransformerLM
from tlm_book.viewer import attention, playground, questions, sampling, show
from tlm_book.viewer.shared import shared_file
from tlm_book.word_vectors import SkipGram, word_vectors


def bytewise() -> tuple[TransformerLM, Tokenizer]:
    torch.manual_seed(0)
    tokenizer = Tokenizer([])
    return TransformerLM(Config(len(tokenizer), d_model=8, d_ff=12, n_layers=1, n_heads=2, max_len=32)).eval(), tokenizer


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


class Mean(nn.Module):
    def forward(self, x):
        return x + x.mean(-2, keepdim=True)


def audited():
    torch.manual_seed(0)
    table, layers = nn.Embedding(7, 4), [nn.Linear(4, 4), Mean(), nn.Linear(4, 4)]
    x, ids, mask = torch.randn(2, 6, 4), torch.randint(7, (2, 6)), torch.full((6, 6), -torch.inf).triu(1)
    attention = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)

    def job():
        models = [(nn.Sequential(*layers), x), (nn.Sequential(table, *layers), ids), (nn.Softmax(1), x), (layers[0], x), (attention, (x, mask)), (attention, x)]
        reports = [*(audit(*pair) for pair in models), *(audit(*pair, work=0) for pair in models[:4]), audit(attention, x, expects="all")]
        return [*map(str, reports), small_audit(models[0][0], x[0])]

    return job


class Around(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


class Table(nn.Sequential):
    """Somebody else's table, on tokens."""


def derived(monkeypatch):
    monkeypatch.setattr(rules, "_RULES", dict(rules._RULES))
    register_rule(Around)(lambda module: residual("around", derive(module[0])))
    register_rule(Table)(lambda module: derive(module[0]))
    models = Around(nn.Linear(4, 4)), Table(nn.Embedding(7, 4)), Around(nn.Softmax(-1))
    assert all("agrees on random inputs" in str(derive(model)) for model in models)
    return lambda: [str(derive(model)) for model in models]


STORY = "Al was in.\nWho? Al.\n"


def shown():
    pair, weights = bytewise(), torch.eye(2)
    seen = weights > 0
    return lambda: [show(*pair, "ab").data, attention(["a", "b"], weights, mask=seen).data, sampling(weights[0], ["a", "b"]).data]


def asked():
    pair = bytewise()
    return lambda: [questions(*pair, [STORY]).data, playground(*pair, stories=[STORY]).data, shared_file("tiny", *pair)]


def shown_theirs():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=1, n_head=1, n_embd=4, vocab_size=26, n_positions=9, bos_token_id=None, eos_token_id=None)
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(config)
    return lambda: show(model, Letters(), "ab").data


@pytest.mark.parametrize("made", [slopes, bend, written, several, vectors, twice, audited, derived, shown, asked, shown_theirs])
def test_the_default_device_changes_nothing(made, monkeypatch):
    job = made(monkeypatch) if made is derived else made()
    want = job()
    with torch.device("meta"):
        assert job() == want

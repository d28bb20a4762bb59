"""Heads with a state: against transformers' gated delta rule, in all number types, with gradients, in parts of a text, and inside a model."""

import copy
import inspect
import os
import subprocess
import sys

import jaxtyping
import pytest
import torch
from torch.nn import functional as F

from tlm_book import inference
from tlm_book.auditing import audit
from tlm_book.inference import CachedModel
from tlm_book.linear_attention import LinearAttention, linear_attention
from tlm_book.multi_head import MultiHeadAttention
from tlm_book.transformer_lm import Config, TransformerLM


def a_text(*lead: int, n: int = 150, dtype: torch.dtype = torch.double, seed: int = 0):
    """Queries, unit keys, values, log α and β up to 2."""
    source = torch.Generator().manual_seed(seed)
    random = lambda *shape: torch.randn(*lead, *shape, generator=source, dtype=torch.double)
    q, k = (F.normalize(random(n, 8), dim=-1) for _ in range(2))
    return tuple(t.to(dtype) for t in (q, k, random(n, 5), F.logsigmoid(random(n) + 2), 2 * random(n).sigmoid()))


def test_the_delta_rule_is_that_of_transformers():
    library = pytest.importorskip("transformers.models.qwen3_next.modeling_qwen3_next")
    q, k, v, log_decay, strength = a_text(2, 3)
    rows_first = (t.transpose(1, 2) for t in (q, k, v, log_decay, strength))
    theirs, last = library.torch_recurrent_gated_delta_rule(*rows_first, initial_state=None, output_final_state=True)
    y, state = linear_attention(q, k, v, log_decay, strength)
    assert torch.allclose(y, 8**0.5 * theirs.transpose(1, 2).double(), atol=1e-5)  # they compute in float32, and divide queries by √8
    assert torch.allclose(state, last.double(), atol=1e-5)


def test_the_sizes_of_qwen3_next_are_those_in_the_chapter():
    config = pytest.importorskip("transformers").Qwen3NextConfig()
    assert (config.num_hidden_layers, config.layer_types.count("full_attention")) == (48, 12)
    assert config.layer_types[3::4] == ["full_attention"] * 12
    assert (config.linear_num_value_heads, config.linear_key_head_dim, config.linear_value_head_dim) == (32, 128, 128)
    assert (config.num_key_value_heads, config.head_dim, config.linear_conv_kernel_dim) == (2, 256, 4)


@pytest.mark.parametrize("rule", ["sum", "delta"])
@pytest.mark.parametrize("dtype, atol", [(torch.float32, 1e-5), (torch.bfloat16, 0.1), (torch.float16, 0.02)])
def test_every_number_type_gives_nearly_the_same(rule, dtype, atol):
    text = a_text(2)
    y, state = linear_attention(*(t.to(dtype) for t in text), rule)
    exact, last = linear_attention(*(t.to(dtype).double() for t in text), rule)
    assert y.dtype == dtype and state.dtype == torch.float32
    assert ((y - exact).abs() <= atol * (1 + exact.abs())).all() and torch.allclose(state.double(), last, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("rule", ["sum", "delta"])
def test_gradients_are_those_of_difference_quotients(rule):
    text = [t.requires_grad_() for t in a_text(2, n=5)]
    read = lambda *given: linear_attention(*given, rule, chunk=2)
    assert torch.autograd.gradcheck(read, text)


@pytest.mark.parametrize("rule", ["sum", "delta"])
@pytest.mark.parametrize("dtype, atol", [(torch.double, 1e-12), (torch.float32, 1e-5)])
def test_a_text_may_forget_all_or_nothing(rule, dtype, atol):
    """Against single steps in double, with decays from exactly 0 to exactly 1 beside each other."""
    q, k, v, _, strength = a_text(n=200)
    log_decay = torch.tensor([0.0, -1e-3, -1.0, -50.0, -1e4, -1e6, -torch.inf])[torch.arange(200) * 3 % 7].double()
    given = [t.to(dtype).requires_grad_() for t in (q, k, v, log_decay, strength)]
    y, state = linear_attention(*given, rule)
    y.sum().backward()
    assert all(t.grad.isfinite().all() for t in given)
    S, rows = torch.zeros(8, 5, dtype=torch.double), []
    for one, (key, value, a, b) in zip(q, zip(k, v, log_decay, strength)):
        S = a.exp() * S
        S = S + torch.outer(key, b * (value - key @ S if rule == "delta" else value))
        rows.append(one @ S)
    assert torch.allclose(y.double(), torch.stack(rows), atol=atol) and torch.allclose(state.double(), S, atol=atol)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, None])
def test_the_state_stays_bounded_in_every_number_type(dtype):
    """Strengths of nearly 2 and no decay, for 2,000 equal rows: if β|k|² were rounded to more than 2, the state would explode."""
    for seed in range(4):
        torch.manual_seed(seed)
        layer = LinearAttention(16, 2, max_strength=2.0)
        with torch.no_grad():
            layer.gate_bias += torch.tensor([8.0, 8.0, 8.0, 8.0])
            x = torch.randn(16).expand(2000, 16)
            if dtype is None:
                with torch.autocast("cpu", torch.bfloat16):
                    y, state = layer.read(x)
            else:
                y, state = layer.to(dtype).read(x.to(dtype))
        assert y.isfinite().all() and state.abs().max() < 10


def test_a_row_of_zeros_is_read():
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        assert torch.equal(LinearAttention(6, 2).to(dtype)(torch.zeros(3, 6, dtype=dtype)), torch.zeros(3, 6, dtype=dtype))


def test_the_first_decays_and_strengths_are_those_of_the_docstring():
    for most in (1.0, 2.0):
        layer = LinearAttention(8, 4, max_strength=most)
        decays, strengths = layer.gate_bias.sigmoid().split(4)
        assert torch.allclose(decays, 1 - 2.0 ** -torch.arange(5, 9)) and torch.allclose(most * strengths, torch.full((4,), most / 2))
    assert LinearAttention(8, 4).max_strength == 1.0 and LinearAttention(8, 4).rule == "delta"
    assert inspect.signature(linear_attention).parameters["chunk"].default == 64  # as the chapter says


COMPILED = """
import torch
from tlm_book.linear_attention import LinearAttention

layer = LinearAttention(6, 2)
compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="eager")
for n in (3, 64, 100):
    x = torch.randn(2, n, 6)
    assert torch.allclose(compiled(x), layer(x), atol=1e-6)
print("the same")
"""


@pytest.mark.long
def test_the_layer_is_compiled_as_a_whole_for_texts_of_any_length():
    """Without the checks of signatures, which no graph holds."""
    env = os.environ | {"TLM_BOOK_TYPECHECK": "0"}
    done = subprocess.run([sys.executable, "-c", COMPILED], env=env, capture_output=True, text=True, timeout=300)
    assert done.stdout == "the same\n", done.stderr


def test_texts_are_read_in_parts_of_any_length():
    layer = LinearAttention(6, 2, 3, max_strength=2.0).double()
    x = torch.randn(2, 140, 6, dtype=torch.double)
    with torch.no_grad():
        whole, last = layer.read(x)
        state, rows, at = None, [], 0
        for length in (1, 63, 64, 2, 10):
            y, state = layer.read(x[:, at : at + length], state)
            rows.append(y)
            at += length
    assert at == 140 and torch.allclose(torch.cat(rows, 1), whole, atol=1e-12) and torch.allclose(state, last, atol=1e-12)
    assert torch.allclose(layer(x[1]), whole[1], atol=1e-12)  # each text is read for itself


def test_the_layer_runs_under_autocast_and_on_meta():
    layer, x = LinearAttention(6, 2), torch.randn(70, 6)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
    assert torch.allclose(y.float(), layer(x), atol=0.05)
    assert copy.deepcopy(layer).to("meta")(x.to("meta")).shape == (70, 6)


def hybrid(states: tuple[int, ...] = (0, 1, 2), **choices) -> TransformerLM:
    """A model of four blocks, of which these have a state."""
    torch.manual_seed(0)
    model = TransformerLM(Config.llama(11, d_model=16, n_heads=2, d_ff=24, n_layers=4, max_len=40))
    for number in states:
        model.blocks[number].attention = LinearAttention(16, 2, **choices)
    return model


def test_a_hybrid_model_learns_and_does_not_look_ahead():
    model, tokens = hybrid(), torch.arange(30).remainder(7)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(60):
        loss = F.cross_entropy(model(tokens[:-1]), tokens[1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] > 1.5 and losses[-1] < 0.2
    assert all(w.grad is not None and w.grad.abs().max() > 0 for w in model.blocks[1].attention.parameters())
    assert audit(model, tokens[None]).ok


def test_a_layer_that_reads_its_state_backwards_is_noticed():
    class Backwards(LinearAttention):
        def forward(self, x):
            return super().forward(x.flip(-2)).flip(-2)

    model = hybrid()
    model.blocks[1].attention = Backwards(16, 2)
    assert not audit(model, torch.arange(20)[None] % 11).ok


def texts_and_scores(model: TransformerLM, reader: CachedModel, lengths: tuple[int, ...]):
    """Reads texts of these lengths, then eight tokens each; yields the texts so far and the scores."""
    source = torch.Generator().manual_seed(len(lengths))
    texts = [torch.randint(11, (length,), generator=source) for length in lengths]
    scores = reader.read(texts)
    for _ in range(8):
        yield texts, scores
        new = torch.randint(11, (len(texts),), generator=source)
        texts = [torch.cat((text, token[None])) for text, token in zip(texts, new)]
        scores = reader.step(new)
    kept = torch.tensor([1, 0, 0])  # as a beam search goes on
    reader.select(kept)
    new = torch.randint(11, (3,), generator=source)
    texts = [torch.cat((texts[i], token[None])) for i, token in zip(kept.tolist(), new)]
    yield texts, reader.step(new)


@pytest.mark.parametrize("compile", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("states", [(0, 1, 2), (3,), (0, 1, 2, 3)])
def test_a_hybrid_model_goes_on_from_its_states(states, compile, monkeypatch):
    """With texts of different lengths, of equal ones, and a second time in the same memory."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # no graph holds type checks
    model = hybrid(states, max_strength=2.0).double().eval()
    reader = CachedModel(model, compile=compile)
    for lengths in ((5, 9, 1), (4, 4, 4), (30, 2, 7), (3, 6)):
        for texts, scores in texts_and_scores(model, reader, lengths):
            with torch.no_grad():
                wanted = torch.stack([model(text)[-1] for text in texts])
            assert torch.allclose(scores, wanted, atol=1e-12)


def test_a_hybrid_model_writes():
    model = hybrid().double().eval()
    written = inference.generate(model, [1, 2, 3], 20, top_k=1, products="linear")
    for n in range(3, 23):
        with torch.no_grad():
            assert model(written[:n])[-1].argmax() == written[n]
    both = inference.generate(model, [[1, 2, 3], [4]], 20, top_k=1, products="linear")
    assert torch.equal(both[0], written) and len(both[1]) == 21
    assert inference.beam_search(model, [1, 2, 3], 4, width=1)[0].tokens.tolist() == written[3:7].tolist()


def test_a_step_that_fails_leaves_the_states_as_they_were():
    class Fails(LinearAttention):
        now = False

        def read(self, x, state=None):
            if Fails.now:
                raise MemoryError
            return super().read(x, state)

    model = hybrid()
    model.blocks[2].attention = Fails(16, 2)
    reader, text = CachedModel(model.double().eval()), torch.tensor([1, 2, 3, 4])
    reader.read([text[:3]])
    Fails.now = True
    with pytest.raises(MemoryError):
        reader.step(text[3:])
    Fails.now = False
    with torch.no_grad():
        assert torch.allclose(reader.step(text[3:])[0], model(text)[-1], atol=1e-12)


def test_a_model_is_read_without_dropout_and_as_it_was():
    class Drops(LinearAttention):
        def read(self, x, state=None):
            y, state = super().read(x, state)
            return F.dropout(y, 0.5, self.training), state

    model = hybrid()
    model.blocks[0].attention = Drops(16, 2)
    text = torch.tensor([1, 2, 3, 4])
    with torch.no_grad():
        wanted = model.double().eval()(text)
    reader = CachedModel(model.train())
    assert torch.allclose(reader.read([text[:3]])[0], wanted[2], atol=1e-12)
    model.float()  # the reader goes on with the weights that it has
    assert torch.allclose(reader.step(text[3:])[0], wanted[3], atol=1e-12)
    assert model.training and all(layer.training for layer in model.modules())


READS = {
    "a tuple of states": (lambda y, S: (y, (S, S)), "something else than rows and one tensor of states"),
    "rows alone": (lambda y, S: y, "something else than rows and one tensor"),
    "too few rows": (lambda y, S: (y[:, :1], S), "rows of shape"),
    "no batch": (lambda y, S: (y, S[0, 0, 0, 0]), "states of shape ()"),
    "another shape after each row": (lambda y, S: (y, S.repeat(1, 1, 1, y.shape[1])), "a state of shape"),
}


@pytest.mark.parametrize(("change", "words"), READS.values(), ids=list(READS))
def test_what_a_layer_returns_is_looked_at(change, words, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as a user has it

    class Own(LinearAttention):
        def read(self, x, state=None):
            return change(*super().read(x, None))

    model = hybrid()
    model.blocks[1].attention = Own(16, 2)
    with pytest.raises(TypeError, match=r"model: got a layer Own that returns") as error:
        inference.generate(model, [[1, 2, 3]], 3)
    assert words in str(error.value) and "want rows like those read" in str(error.value)


def test_attention_of_the_book_may_have_a_method_read_of_its_own():
    class Named(MultiHeadAttention):
        def read(self, file):
            return file

    model = hybrid(()).eval()
    wanted = inference.generate(model, [1, 2, 3], 5, top_k=1, products="linear")
    model.blocks[0].attention.__class__ = Named
    assert torch.equal(inference.generate(model, [1, 2, 3], 5, top_k=1, products="linear"), wanted)


@pytest.mark.parametrize("compile", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_copied_reader_and_the_original_go_on_for_themselves(compile, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    model = hybrid().double().eval()
    reader = CachedModel(model, compile=compile)
    reader.read([torch.tensor([1, 2, 3])])
    reader.step(torch.tensor([4]))
    other = copy.deepcopy(reader)
    with torch.no_grad():
        for text in ([7], [7, 8]):
            wanted = model(torch.tensor([1, 2, 3, 4, *text]))[-1]
            assert torch.allclose(other.step(torch.tensor(text[-1:]))[0], wanted, atol=1e-12)
        assert torch.allclose(reader.step(torch.tensor([5]))[0], model(torch.tensor([1, 2, 3, 4, 5]))[-1], atol=1e-12)


def test_large_values_do_not_overflow_in_float16():
    torch.manual_seed(0)
    layer = LinearAttention(8, 2, rule="sum").half()
    with torch.no_grad():
        layer.qkv.weight.mul_(300)
        layer.gates.weight.zero_()
        layer.gate_bias[:2], layer.gate_bias[2:] = 9, 5
        x = torch.randn(8).half().expand(4000, 8)
        assert torch.allclose(layer(x).double(), copy.deepcopy(layer).double()(x.double()), atol=0.01)


def test_first_weights_keep_the_decays():
    model = hybrid()
    before = model.blocks[0].attention.gate_bias.detach().clone()
    model.initialize()
    assert torch.equal(model.blocks[0].attention.gate_bias, before) and model.blocks[0].attention.out.weight.std() < 0.015


@pytest.mark.parametrize("ask", [TransformerLM.spec_settings, TransformerLM.spec_weights])
def test_the_specification_knows_no_hybrid_models(ask):
    with pytest.raises(TypeError, match="model: got a layer LinearAttention, want the book's MultiHeadAttention"):
        ask(hybrid())


def test_layers_that_cannot_read_on_are_refused_by_name():
    model = hybrid()
    model.blocks[0].attention = torch.nn.Linear(16, 16)
    with pytest.raises(TypeError, match="model: got a layer Linear, want the book's MultiHeadAttention"):
        inference.generate(model, [1, 2, 3], 2)

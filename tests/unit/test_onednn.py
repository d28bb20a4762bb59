"""oneDNN's products are torch's, with their gradients; layers use them only where it was asked, and no longer than it was asked."""

import contextlib
import copy
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tlm_book import onednn
from tlm_book.loss import shift, weighted_loss
from tlm_book.onednn import onednn_linear, quick_linear, quick_products
from tlm_book.training import TrainConfig, train
from tlm_book.training.cost import peak_matmul_flops
from tlm_book.training.pace import step_seconds
from tlm_book.transformer_lm import Config, TransformerLM

pytestmark = pytest.mark.skipif(not onednn.onednn_available(), reason="this torch has no oneDNN")


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), requires_grad=True)


def gradients(multiply, *inputs):
    Y = multiply(*inputs)
    G = torch.linspace(-1, 1, Y.numel()).to(Y.dtype).view(Y.shape)
    return [Y.detach(), *torch.autograd.grad(Y, [t for t in inputs if t is not None and t.requires_grad], G)]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 5), (7, 5), (2, 3, 5), (2, 1, 4, 33), (65, 64)])
@pytest.mark.parametrize("out", [1, 6, 130])
def test_the_product_and_its_gradients_are_torchs(shape, out, bias):
    X, W, b = drawn(*shape), drawn(out, shape[-1]), drawn(out) if bias else None
    exact = gradients(F.linear, *(None if t is None else t.detach().double().requires_grad_() for t in (X, W, b)))
    for found, want in zip(gradients(onednn_linear, X, W, b), exact, strict=True):
        assert found.shape == want.shape and found.dtype == torch.float32 and found.is_contiguous()
        assert (found - want).abs().max() <= 2e-5 * (1 + want.abs().max())


@pytest.mark.parametrize("wanted", [(True, False, False), (False, True, False), (False, False, True), (True, False, True), (False, False, False)])
def test_only_what_is_wanted_is_computed(wanted):
    inputs = [t.detach().requires_grad_(want) for t, want in zip((drawn(9, 5), drawn(4, 5), drawn(4)), wanted)]
    if any(wanted):
        for found, want in zip(gradients(onednn_linear, *inputs), gradients(F.linear, *inputs), strict=True):
            assert torch.allclose(found, want, atol=1e-5)
    else:
        assert not onednn_linear(*inputs).requires_grad


def test_rows_in_any_order_of_memory():
    W, b = drawn(16, 8), drawn(16)
    for X in (drawn(8, 12).T, drawn(12, 16)[:, ::2], drawn(1, 8).expand(12, 8), drawn(3, 8, 4).movedim(1, 2)):
        G = drawn(16, 12).T if X.dim() == 2 else drawn(3, 4, 16)
        for found, want in zip(torch.autograd.grad(onednn_linear(X, W, b), (W, b), G), torch.autograd.grad(F.linear(X, W, b), (W, b), G)):
            assert torch.allclose(found, want, atol=1e-5)


def test_a_second_derivative_is_refused():
    X, W = drawn(3, 4), drawn(5, 4)
    (g,) = torch.autograd.grad(onednn_linear(X, W).square().sum(), X, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        g.sum().backward()


# The context


@pytest.fixture
def used(monkeypatch):
    """How many products went to oneDNN; even the smallest do."""
    monkeypatch.setattr(onednn, "SMALL", 0)
    calls = []

    def counted(*inputs):
        calls.append(inputs)
        return onednn_linear(*inputs)

    monkeypatch.setattr(onednn, "onednn_linear", counted)
    return calls


def small() -> TransformerLM:
    torch.manual_seed(0)
    return TransformerLM(Config.llama(31, d_model=16, d_ff=24, n_layers=2, n_heads=4, max_len=24, n_kv_heads=2))


def loss_and_gradient(model):
    x = torch.arange(24).view(2, 12)
    model.zero_grad()
    loss = weighted_loss(model(shift(x)), x)
    loss.backward()
    return [loss.detach(), *(w.grad.clone() for w in model.parameters())]


def test_all_linear_layers_take_part_until_the_end(used):
    model = small()
    want, layers = loss_and_gradient(model), [m for m in model.modules() if type(m) is nn.Linear]
    with quick_products(model, "onednn"):
        found = loss_and_gradient(model)
        assert len(used) == len(layers) == 2 * 5 + 1
        with quick_products(model, "onednn"):
            loss_and_gradient(model)
        assert len(used) == 2 * len(layers)
        loss_and_gradient(model)  # the inner context has left the outer one as it was
        assert len(used) == 3 * len(layers)
    for a, b in zip(found, want, strict=True):
        assert torch.allclose(a, b, atol=1e-5) and a.shape == b.shape
    with pytest.raises(ZeroDivisionError), quick_products(model, "onednn"):
        1 / 0
    assert all("forward" not in vars(layer) for layer in layers)
    assert all(map(torch.equal, loss_and_gradient(model), want)) and len(used) == 3 * len(layers)
    with quick_products(model, "linear"):
        assert all(map(torch.equal, loss_and_gradient(model), want)) and len(used) == 3 * len(layers)


def test_hooks_and_copies_are_as_before(used):
    model, seen = small(), []
    model.blocks[0].feed_forward.up.register_forward_hook(lambda layer, inputs, result: seen.append(result))
    with quick_products(model, "onednn"):
        loss_and_gradient(model)
        copied = copy.deepcopy(model)
        with torch.no_grad():
            copied.unembedding.weight.zero_()
        assert not copied(torch.tensor([[1]])).any() and model(torch.tensor([[1]])).any()
        assert model.state_dict().keys() == small().state_dict().keys()
    assert len(seen) == 3


def test_what_does_not_suit_is_left_to_torch(used, monkeypatch):
    X, W = drawn(3, 4), drawn(5, 4)
    for A, B in ((X.double(), W.double()), (X.bfloat16(), W.bfloat16()), (X.to("meta"), W.to("meta")), (X[0], W)):
        quick_linear(A, B, form="onednn")
    with torch.autocast("cpu", torch.bfloat16):
        assert quick_linear(X, W, form="onednn").dtype == torch.bfloat16
    rows = torch.func.vmap(lambda x: quick_linear(x, W, form="onednn"))(drawn(2, 3, 4))
    jacobian = torch.func.jacrev(lambda x: quick_linear(x, W, form="onednn"))(X.detach())
    assert rows.shape == (2, 3, 5) and jacobian.shape == (3, 5, 3, 4)
    with torch.backends.mkldnn.flags(enabled=False):
        quick_linear(X, W)
    quick_linear(X, W, form="linear")
    assert not used
    monkeypatch.setattr(onednn, "SMALL", 3 * 4 * 5 + 1)
    quick_linear(X, W, form="onednn")
    assert not used
    monkeypatch.setattr(onednn, "SMALL", 3 * 4 * 5)
    quick_linear(X, W, form="onednn")
    assert len(used) == 1


COMPILED = """
import torch
from torch import nn
from tlm_book import onednn

onednn.SMALL, calls = 0, []
onednn.onednn_linear = lambda *inputs: calls.append(inputs)
layer = nn.Linear(4, 5)
compiled, X = torch.compile(layer, backend="eager", fullgraph=True), torch.randn(6, 4)
with onednn.quick_products(layer, "onednn"):
    assert torch.allclose(compiled(X), X @ layer.weight.T + layer.bias, atol=1e-6) and not calls
    assert layer(X) is None and len(calls) == 1
"""


def test_in_compiled_code_torch_does_as_usual():
    """In a process without the checker, which no graph holds."""
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_what_is_wrong_is_named(monkeypatch):
    with pytest.raises(ValueError, match="products: got 'mkl', want one of"), quick_products(small(), "mkl"):
        pass
    with pytest.raises(ValueError, match="products: got 'mkl'"):
        TrainConfig(products="mkl")
    monkeypatch.setattr(onednn, "onednn_available", lambda: False)
    assert onednn.quicker() == "linear"
    with pytest.raises(ValueError, match="products: got 'onednn', want a torch with oneDNN"), quick_products(small(), "onednn"):
        pass
    with quick_products(small()):
        pass


@pytest.mark.parametrize("wrong", ["missing", "failing", "false"])
def test_a_library_that_does_not_work_is_not_there(wrong, monkeypatch):
    def replaced(X, W, b=None):
        if wrong == "missing":
            return torch.ops.mkldnn.no_such_operation(X, W)
        if wrong == "failing":
            raise RuntimeError("could not create a primitive")
        return X @ W.T + 1

    onednn._works.cache_clear()
    try:
        assert onednn.onednn_available()
        onednn._works.cache_clear()
        monkeypatch.setattr(onednn, "onednn_product", replaced)
        assert not onednn.onednn_available() and not onednn.takes(torch.ones(2, 2))
    finally:
        onednn._works.cache_clear()


# The choice


@pytest.fixture
def clock(monkeypatch):
    """A clock on which a product takes what `costs` says."""
    now, costs = [0.0], {"linear": 1.0, "onednn": 1.0}

    def timed(name, multiply):
        def run(*inputs):
            now[0] += costs[name]
            return multiply(*inputs)

        return run

    monkeypatch.setattr(onednn.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(onednn.F, "linear", timed("linear", F.linear))
    monkeypatch.setattr(onednn, "onednn_linear", timed("onednn", onednn_linear))
    onednn._quicker.cache_clear()
    yield costs
    onednn._quicker.cache_clear()


@pytest.mark.parametrize(("cost", "chosen"), [(0.5, "onednn"), (0.83, "onednn"), (0.84, "linear"), (2.0, "linear")])
def test_it_must_be_clearly_quicker(clock, cost, chosen):
    clock["onednn"] = cost
    assert onednn.quicker() == chosen
    clock["onednn"] = 1.3 - cost  # no second trial
    assert onednn.quicker() == chosen


def test_a_library_that_is_wrong_is_not_taken(clock, monkeypatch):
    clock["onednn"] = 0.1
    exact = onednn.onednn_product
    monkeypatch.setattr(onednn, "onednn_product", lambda X, W, b=None: exact(X, W, b) + (len(X) == 512))
    assert onednn.quicker() == "linear"


def test_the_choice_can_be_made_anywhere(clock):
    clock["onednn"] = 0.1
    for context in (torch.no_grad, torch.inference_mode, torch.enable_grad, lambda: torch.device("meta"), lambda: torch.autocast("cpu", torch.bfloat16), doubles):
        onednn._quicker.cache_clear()
        onednn._works.cache_clear()
        state = torch.get_rng_state()
        with context():
            assert onednn.onednn_available() and onednn.quicker() == "onednn"
        assert torch.equal(torch.get_rng_state(), state)


@contextlib.contextmanager
def doubles():
    """A context in which tensors are of type float64, unless another is asked for."""
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


# Training


def run(**settings):
    tokens = torch.randint(31, (400,), generator=torch.Generator().manual_seed(0))
    config = Config.gpt2(31, d_model=16, d_ff=24, n_layers=1, n_heads=2, max_len=12)
    done = train(TrainConfig(steps=6, warmup=2, eval_every=3, **settings), config, tokens[:300], tokens[300:], progress=False)
    return done.log, [w.detach() for w in done.model.parameters()], done.model


def test_training_takes_what_its_settings_say(used, monkeypatch):
    log, weights, model = run(products="onednn")
    assert len(used) > 6 * 5
    assert not any("forward" in vars(m) for m in model.modules())
    del used[:]
    usual_log, usual, _ = run(products="linear")
    assert not used
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(weights, usual))
    assert [e["loss"] for e in log] == pytest.approx([e["loss"] for e in usual_log], abs=1e-4)
    for choice, same in (("onednn", weights), ("linear", usual)):
        monkeypatch.setattr(onednn, "quicker", lambda: choice)
        assert all(map(torch.equal, run(products="auto")[1], same))
    del used[:]
    step_seconds(Config.gpt2(31, d_model=16, d_ff=24, n_layers=1, n_heads=2, max_len=12), TrainConfig(products="onednn"), torch.device("cpu"), 0.05)
    assert used


def test_the_best_that_the_machine_can_do_is_that_of_the_quicker_library(used, monkeypatch):
    monkeypatch.setattr(onednn, "quicker", lambda: "onednn")
    assert peak_matmul_flops(torch.device("cpu")) > 1e8 and len(used) == 6

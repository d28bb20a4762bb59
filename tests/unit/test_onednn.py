"""oneDNN's products are torch's, with their gradients; layers use them only where it was asked, and no longer than it was asked."""

import contextlib
import copy
import dataclasses
import io
import json
import pickle
import socket
import subprocess
import sys
from collections import OrderedDict
from unittest import mock

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tlm_book import onednn
from tlm_book.auditing import audit
from tlm_book.derivation import derive
from tlm_book.inference import generate
from tlm_book.loss import shift, weighted_loss
from tlm_book.onednn import (
    onednn_linear,
    padded_rows,
    quick_linear,
    quick_products,
    quicker_library,
)
from tlm_book.small_world import learning
from tlm_book.training import TrainConfig, train, train_files
from tlm_book.training.cost import peak_matmul_flops
from tlm_book.training.pace import step_seconds
from tlm_book.training.recorded import library_for
from tlm_book.transformer_lm import Config, TransformerLM

pytestmark = pytest.mark.skipif(not onednn.onednn_available(), reason="this torch has no oneDNN")


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), requires_grad=True)


def gradients(multiply, *inputs):
    Y = multiply(*inputs)
    G = torch.linspace(-1, 1, Y.numel()).to(Y.dtype).view(Y.shape)
    return [Y.detach(), *torch.autograd.grad(Y, [t for t in inputs if t is not None and t.requires_grad], G)]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 5), (7, 5), (2, 3, 5), (2, 1, 4, 33), (65, 64), (3, 57, 8), (300, 16)])
@pytest.mark.parametrize("out", [1, 6, 130])
def test_the_product_and_its_gradients_are_torchs(shape, out, bias):
    X, W, b = drawn(*shape), drawn(out, shape[-1]), drawn(out) if bias else None
    exact = gradients(F.linear, *(None if t is None else t.detach().double().requires_grad_() for t in (X, W, b)))
    for found, want in zip(gradients(onednn_linear, X, W, b), exact, strict=True):
        assert found.shape == want.shape and found.dtype == torch.float32 and found.is_contiguous()
        assert (found - want).abs().max() <= 2e-5 * (1 + want.abs().max())


@pytest.fixture
def products(monkeypatch):
    """The shapes of all factors that oneDNN multiplies, (rows, in) and (out, in)."""
    shapes, exact = [], onednn.onednn_product

    def noted(X, W, b=None):
        shapes.append((*X.shape, *W.shape))
        return exact(X, W, b)

    monkeypatch.setattr(onednn, "onednn_product", noted)
    return shapes


@pytest.mark.parametrize("wanted", [(True, False, False), (False, True, False), (False, False, True), (True, False, True), (False, False, False)])
def test_only_what_is_wanted_is_computed_and_kept(wanted, products):
    inputs = [t.detach().requires_grad_(want) for t, want in zip((drawn(9, 5), drawn(4, 5), drawn(4)), wanted)]
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.shape) or t, lambda t: t):
        Y = onednn_linear(*inputs)
    assert kept == [shape for shape, want in ((inputs[0].shape, wanted[1]), (inputs[1].shape, wanted[0])) if want]
    del products[:]
    if any(wanted):
        for found, want in zip(gradients(onednn_linear, *inputs), gradients(F.linear, *inputs), strict=True):
            assert torch.allclose(found, want, atol=1e-5)
        assert len(products) == 1 + wanted[0] + wanted[1]
    else:
        assert not Y.requires_grad


def test_the_smaller_factor_is_copied(products):
    for n, k in ((40, 8), (8, 40)):
        gradients(onednn_linear, drawn(16, k).detach(), drawn(n, k))
        assert products[-1] == (8, 16, 40, 16)


def test_in_any_order_of_memory():
    W, b = drawn(16, 8), drawn(16)
    for X in (drawn(8, 12).T, drawn(12, 16)[:, ::2], drawn(1, 8).expand(12, 8), drawn(3, 8, 4).movedim(1, 2)):
        G = drawn(16, 12).T if X.dim() == 2 else drawn(3, 4, 16)
        for found, want in zip(torch.autograd.grad(onednn_linear(X, W, b), (W, b), G), torch.autograd.grad(F.linear(X, W, b), (W, b), G)):
            assert torch.allclose(found, want, atol=1e-5)
    X = drawn(12, 8)
    for V, c in ((drawn(8, 16).T, drawn(16, 2)[:, 0]), (drawn(32, 8)[::2], drawn(1).expand(16)), (W, drawn(48)[::3])):
        assert torch.allclose(onednn_linear(X, V, c), F.linear(X, V, c), atol=1e-5)


def test_a_result_may_be_changed_in_place():
    X, first, second = drawn(40, 8), nn.Linear(8, 16), nn.Linear(16, 4)
    results = []
    for multiply in (F.linear, onednn_linear):
        Y = multiply(X, first.weight, first.bias)
        Y += 1
        Y = F.relu(Y.view(-1), inplace=True).view(40, 16)
        results.append(torch.autograd.grad(multiply(Y, second.weight, second.bias).sum(), [X, *first.parameters()]))
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(*results, strict=True))
    Y = onednn_linear(X, first.weight)
    with torch.no_grad():
        first.weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        Y.sum().backward()


def test_a_second_derivative_is_refused():
    X, W = drawn(3, 4), drawn(5, 4)
    (g,) = torch.autograd.grad(onednn_linear(X, W).square().sum(), X, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        g.sum().backward()


def test_there_are_few_numbers_of_rows():
    numbers = [len(padded_rows(torch.ones(n, 1))) for n in range(1, 5000)]
    assert len(set(numbers)) <= 16 + 7 + 4 * 6
    assert all(n <= m <= max(1.25 * n + 1, n + 15) for n, m in enumerate(numbers, 1))
    X, W = drawn(37, 3), drawn(5, 3)
    cut = lambda Y: "Slice" in str(Y.grad_fn.next_functions)  # whose gradient is a copy
    assert cut(onednn_linear(X, W)) and not cut(onednn_linear(X[:32], W))
    assert torch.equal(padded_rows(X)[:37], X) and not padded_rows(X)[37:].any()


# The context


@pytest.fixture
def used(monkeypatch):
    """How many products went to oneDNN; even the smallest do."""
    monkeypatch.setattr(onednn, "SMALL", 0)
    monkeypatch.setattr(onednn, "FEW", 0)
    calls = []

    def counted(*inputs):
        calls.append(inputs)
        return onednn_linear(*inputs)

    monkeypatch.setattr(onednn, "onednn_linear", counted)
    onednn._tried.cache_clear()
    onednn._tried(torch.get_num_threads())  # not among what is counted
    del calls[:]
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
    assert all(type(layer) is nn.Linear for layer in layers)
    assert all(map(torch.equal, loss_and_gradient(model), want)) and len(used) == 3 * len(layers)
    with quick_products(model, "linear"):
        assert all(map(torch.equal, loss_and_gradient(model), want)) and len(used) == 3 * len(layers)


def test_hooks_and_copies_are_as_before(used):
    model, seen = small(), []
    model.blocks[0].feed_forward.up.register_forward_hook(lambda layer, inputs, result: seen.append(result))
    with quick_products(model, "onednn"):
        loss_and_gradient(model)
        layer, file = model.unembedding, io.BytesIO()
        torch.save(layer, file)
        file.seek(0)
        copies = copy.copy(layer), copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), torch.load(file, weights_only=False)
        assert model.state_dict().keys() == small().state_dict().keys()
    x = drawn(3, 16)
    for one in copies:
        assert type(one) is nn.Linear and torch.equal(one(x), layer(x))
    assert len(seen) == 1


def test_subclasses_are_left_alone(used):
    class Doubled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    net = nn.Sequential(Doubled(4, 5), nn.Linear(5, 6))
    with quick_products(net, "onednn"):
        net(drawn(3, 4))
        assert type(net[0]) is Doubled and len(used) == 1


def test_the_choice_is_made_before_anything_is_computed(monkeypatch):
    """A trial within a step would disturb what the step keeps."""
    net, x = nn.Sequential(nn.Linear(256, 256), nn.ReLU(inplace=True), nn.Linear(256, 256)), drawn(256, 256)
    with quick_products(net):
        monkeypatch.setattr(onednn, "_tried", lambda threads: pytest.fail("a trial within a step"))
        checkpoint(net, x, use_reentrant=False).sum().backward()
    monkeypatch.undo()
    onednn._tried.cache_clear()  # here it cannot come earlier, so it hides what it keeps
    checkpoint(lambda x: quick_linear(x, net[0].weight), x, use_reentrant=False).sum().backward()


def test_the_rest_of_the_package_knows_the_layers():
    model = small().eval()
    x = torch.randint(31, (2, 5))
    want, proof, verdict = generate(model, x, 6, temperature=0), str(derive(model)), audit(model, x[0]).ok
    with quick_products(model, "onednn"):
        assert torch.equal(generate(model, x, 6, temperature=0), want)
        assert str(derive(model)) == proof and audit(model, x[0]).ok == verdict


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_what_does_not_suit_is_left_to_torch(used, monkeypatch):
    X, W, b = drawn(3, 4), drawn(5, 4), drawn(5)
    quick = lambda *inputs: quick_linear(*inputs, library="onednn")
    for A, B in ((X.double(), W.double()), (X.bfloat16(), W.bfloat16()), (X.to("meta"), W.to("meta")), (X[0], W), (X.detach().to_sparse(), W)):
        quick(A, B)
    assert onednn._suit(X, W, b) and onednn._suit(X, W, None)
    for c in (b[:1], b[None], b.expand(3, 5), b.sum(), b.double(), b.to("meta"), drawn(4)):  # some of which torch takes
        assert not onednn._suit(X, W, c)
    for A, B in ((X, drawn(5, 3)), (X.double(), W), (X, W.double()), (X, drawn(2, 5, 4)), (X, W.to("meta"))):
        assert not onednn._suit(A, B, None)
    with torch.autocast("cpu", torch.bfloat16):
        assert quick(X, W).dtype == torch.bfloat16
    rows = torch.func.vmap(lambda x: quick(x, W))(drawn(2, 3, 4))
    jacobian = torch.func.jacrev(lambda x: quick(x, W))(X.detach())
    assert rows.shape == (2, 3, 5) and jacobian.shape == (3, 5, 3, 4)

    class Marked(torch.Tensor):
        pass

    quick(X.detach().as_subclass(Marked), W)
    fixed = W.detach()
    torch.jit.trace(lambda x: quick(x, fixed), X.detach(), check_trace=False)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(X.detach(), torch.ones_like(X))
        assert torch.allclose(torch.autograd.forward_ad.unpack_dual(quick(dual, W)).tangent, torch.ones_like(X) @ W.T)
    with torch.backends.mkldnn.flags(enabled=False):
        quick_linear(X, W)
    quick_linear(X, W, library="linear")
    assert not used
    for name, most in (("SMALL", 3 * 4 * 5), ("FEW", 3)):
        monkeypatch.setattr(onednn, name, most + 1)
        quick(X, W)
        assert not used
        monkeypatch.setattr(onednn, name, most)
        quick(X, W)
        assert len(used) == 1
        del used[:]


COMPILED = """
import torch
from torch import nn
from tlm_book import onednn
from tlm_book.inference.products import FORMS

onednn.SMALL = onednn.FEW = 0
calls, exact = [], onednn.onednn_linear
onednn.onednn_linear = lambda *inputs: calls.append(inputs) or exact(*inputs)
layer = nn.Linear(4, 5)
compiled, X = torch.compile(layer, backend="eager", fullgraph=True), torch.randn(6, 4)
for _ in range(12):
    with onednn.quick_products(layer, "onednn"), torch._dynamo.config.patch(recompile_limit=2, fail_on_recompile_limit_hit=True):
        assert torch.allclose(compiled(X), X @ layer.weight.T + layer.bias, atol=1e-6) and not calls
        layer(X)
        assert calls.pop()
for name in ("onednn", "reordered"):
    form = FORMS[name](layer.weight.detach(), layer.bias.detach())
    with torch.no_grad():
        assert torch.allclose(torch.compile(form, fullgraph=True)(X), layer(X), atol=1e-6)
"""


def test_in_compiled_code_torch_does_as_usual():
    """In a process without the checker, which no graph holds."""
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_what_is_wrong_is_named(monkeypatch):
    for wrong in (lambda: quick_products(small(), "mkl").__enter__(), lambda: quicker_library("mkl"), lambda: TrainConfig(products="mkl")):
        with pytest.raises(ValueError, match="products: got 'mkl', want one of"):
            wrong()
    monkeypatch.setattr(onednn, "onednn_available", lambda: False)
    assert quicker_library() == "linear"
    with pytest.raises(ValueError, match="products: got 'onednn', want a torch with oneDNN"), quick_products(small(), "onednn"):
        pass
    with quick_products(small()):
        pass


def wrong_products(kind):
    def product(X, W, b=None):
        if kind == "missing":
            return torch.ops.mkldnn.no_such_operation(X, W)
        if kind == "failing":
            raise RuntimeError("could not create a primitive")
        right = X @ W.to_dense().T + b
        wrong = {"false": True, "false of a transposed matrix": not W.is_mkldnn and not W.is_contiguous(), "false of a copy": W.is_mkldnn}[kind]
        return right + 1 if wrong else right

    return product


@pytest.mark.parametrize("kind", ["missing", "failing", "false", "false of a transposed matrix", "false of a copy"])
def test_a_library_that_does_not_work_is_not_there(kind, monkeypatch):
    onednn._proved.cache_clear()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(onednn, "onednn_product", wrong_products(kind))
            assert not onednn.onednn_available() and not onednn.can_multiply(torch.ones(2, 2))
        assert onednn.onednn_available()  # a failure is not remembered
    finally:
        onednn._proved.cache_clear()


# The choice


@pytest.fixture
def clock(monkeypatch):
    """A clock on which a product takes what `costs` says, and the first of each almost no time, which would decide if it were counted."""
    now, costs, done = [0.0], {"linear": 1.0, "onednn": 1.0}, []

    def timed(name, multiply):
        def run(*inputs):
            now[0] += costs[name] if name in done else costs[name] * 1e-3
            done.append(name)
            return multiply(*inputs)

        return run

    monkeypatch.setattr(onednn.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(onednn.F, "linear", timed("linear", F.linear))
    monkeypatch.setattr(onednn, "onednn_linear", timed("onednn", onednn_linear))
    onednn._tried.cache_clear()
    yield costs
    onednn._tried.cache_clear()


@pytest.mark.parametrize(("cost", "chosen"), [(0.5, "onednn"), (0.83, "onednn"), (0.84, "linear"), (2.0, "linear")])
def test_it_must_be_clearly_quicker(clock, cost, chosen):
    clock["onednn"] = cost
    assert quicker_library() == chosen
    clock["onednn"] = 1.3 - cost  # no second trial
    assert quicker_library() == chosen
    assert quicker_library("linear") == "linear" and quicker_library("onednn") == "onednn"


def test_each_number_of_threads_has_its_trial(clock):
    threads = torch.get_num_threads()
    try:
        for number, cost, chosen in ((1, 0.5, "onednn"), (2, 1.5, "linear"), (1, 1.5, "onednn")):
            torch.set_num_threads(number)
            clock["onednn"] = cost
            assert quicker_library() == chosen
    finally:
        torch.set_num_threads(threads)


def test_a_library_that_is_wrong_is_not_taken(clock, monkeypatch):
    clock["onednn"] = 0.1
    exact = onednn.onednn_product
    monkeypatch.setattr(onednn, "onednn_product", lambda X, W, b=None: exact(X, W, b) + (len(X) == 256))
    assert quicker_library() == "linear"


@contextlib.contextmanager
def doubles():
    """A context in which tensors are of type float64, unless another is asked for."""
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def test_the_choice_can_be_made_anywhere(clock):
    clock["onednn"] = 0.1
    for context in (torch.no_grad, torch.inference_mode, torch.enable_grad, lambda: torch.device("meta"), lambda: torch.autocast("cpu", torch.bfloat16), doubles):
        onednn._tried.cache_clear()
        onednn._proved.cache_clear()
        state = torch.get_rng_state()
        with context():
            assert onednn.onednn_available() and quicker_library() == "onednn"
        assert torch.equal(torch.get_rng_state(), state)


# Training


SIZES = Config.gpt2(31, d_model=16, d_ff=24, n_layers=1, n_heads=2, max_len=12)


def run(folder=None, steps=6, watch=None, observers=(), **settings):
    tokens = torch.randint(31, (400,), generator=torch.Generator().manual_seed(0))
    config = TrainConfig(steps=steps, warmup=2, eval_every=3, **settings)
    done = train(config, SIZES, tokens[:300], tokens[300:], progress=False, folder=folder, watch=watch, observers=observers)
    return done.log, [w.detach() for w in done.model.parameters()], done.model, done.products


def test_training_takes_what_its_settings_say(used, monkeypatch):
    log, weights, model, _ = run(products="onednn")
    assert len(used) % 5 == 0 and len(used) >= (6 + 2) * 5  # steps and measurements, layers
    assert not any(isinstance(m, onednn.QuickLinear) for m in model.modules())
    del used[:]
    usual_log, usual, _, _ = run(products="linear")
    assert not used
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(weights, usual, strict=True))
    assert [e["loss"] for e in log] == pytest.approx([e["loss"] for e in usual_log], abs=1e-4)
    for choice in ("onednn", "linear"):
        monkeypatch.setattr(onednn, "_tried", lambda threads: choice)
        assert run(activation_checkpointing=True)[3] == choice
        assert bool(used) == (choice == "onednn")
        del used[:]
    step_seconds(SIZES, TrainConfig(products="onednn"), torch.device("cpu"), 0.05)
    assert used


def test_a_compiled_model_and_a_gpu_take_no_part():
    config = TrainConfig(products="onednn")
    assert library_for(config, torch.device("cpu")) == "onednn"
    assert library_for(dataclasses.replace(config, compile=True), torch.device("cpu")) == library_for(config, torch.device("cuda")) == "linear"


class Stop(Exception):
    """Ends a run after a checkpoint."""


def stopped_after(step):
    def watch(done, model):
        if done == step:
            raise Stop

    return watch


def test_a_run_keeps_its_library(used, tmp_path, monkeypatch):
    """On a machine where a trial finds another one, too; what was begun before there was a choice goes on with the usual one."""
    notes = lambda: max((tmp_path / "run").glob("step-*")) / "state.json"

    def go_on(tried, until, **settings):
        """(whether oneDNN was used, what is noted) of the next part of the run."""
        del used[:]
        monkeypatch.setattr(onednn, "_tried", lambda threads: tried)
        with pytest.raises(Stop):
            run(tmp_path / "run", 30, watch=stopped_after(until), **settings)
        return bool(used), json.loads(notes().read_text())["run"]["training"]["products"]

    assert go_on("onednn", 3) == (True, "onednn")
    assert go_on("linear", 6) == (True, "onednn")
    assert go_on("linear", 9, products="linear") == (False, "linear")
    assert go_on("onednn", 12) == (False, "linear")
    said = json.loads(notes().read_text())
    del said["run"]["training"]["products"]
    notes().write_text(json.dumps(said))
    assert go_on("onednn", 15) == (False, "linear")
    assert go_on("onednn", 18, products="onednn") == (True, "onednn")
    own = TrainConfig(steps=30, warmup=2, eval_every=3)
    assert go_on("linear", 21, observers=[lambda log, config: own if len(log) == 19 else None]) == (True, "onednn")
    monkeypatch.setattr("tlm_book.training.checkpoint.onednn_available", lambda: False)
    assert go_on("linear", 24) == (False, "linear")


def test_a_run_from_files_may_go_on_with_another_library(used, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("The water falls, and the mill turns. " * 400)
    size = {"steps": 6, "eval_every": 3, "d_model": 16, "layers": 1, "heads": 2, "context": 16, "vocab_size": 280, "batch_size": 2}
    begin = lambda **more: train_files(text, tmp_path / "model", progress=False, **size, **more)
    stop = stopped_after(3)
    with pytest.raises(Stop):
        begin(products="onednn", watch=lambda step, model, words: stop(step, model))
    assert used
    del used[:]
    begin(products="linear", resume=True)
    assert {tuple(X.shape) for X, *_ in used} <= {(768, 768)}  # the report measures what the machine can do
    assert json.loads((tmp_path / "model" / "config.json").read_text())["training"]["products"] == "linear"
    assert len((tmp_path / "model" / "log.jsonl").read_text().splitlines()) == 6


def test_with_onednn_the_same_arguments_give_the_same_weights(tmp_path):
    """Bit for bit, in one piece and in two, with products large enough and rows that are padded."""
    tokens = torch.randint(99, (4000,), generator=torch.Generator().manual_seed(0))
    config = Config.llama(99, d_model=128, d_ff=256, n_layers=2, n_heads=2, max_len=67)
    settings = TrainConfig(steps=4, warmup=1, eval_every=2, batch_size=9, products="onednn")
    assert 9 * 67 % 16 and 9 * 67 * 128 * 256 > onednn.SMALL

    def weights(settings, **more):
        return list(train(settings, config, tokens[:3000], tokens[3000:3300], progress=False, **more).model.parameters())

    once = weights(settings)
    assert all(map(torch.equal, once, weights(settings)))
    with pytest.raises(Stop):
        weights(settings, folder=tmp_path / "run", watch=stopped_after(2))
    assert all(map(torch.equal, once, weights(dataclasses.replace(settings, products="auto"), folder=tmp_path / "run")))


TOGETHER = """
import json, os, sys
import torch, torch._dynamo, torch.distributed.fsdp
import torch.multiprocessing as mp
from tlm_book import onednn
from tlm_book.training import TrainConfig, train
from tlm_book.training.distributed import dist_context
from tlm_book.transformer_lm import Config

def work(rank, folder, parallel):
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[2])
    torch.set_num_threads(1)
    onednn.SMALL = onednn.FEW = 0
    calls, exact = [], onednn.onednn_linear
    onednn.onednn_linear = lambda *inputs: calls.append(1) or exact(*inputs)
    onednn._tried = lambda threads: ["onednn", "linear"][rank]
    with dist_context("cpu") as dist:
        tokens = torch.randint(31, (400,), generator=torch.Generator().manual_seed(0))
        sizes = Config.gpt2(31, d_model=16, d_ff=24, n_layers=1, n_heads=2, max_len=12)
        settings = TrainConfig(steps=4, warmup=2, eval_every=2, batch_size=8)
        train(settings, sizes, tokens[:300], tokens[300:], progress=False, folder=folder, dist=dist, parallel=parallel)
    assert calls

if __name__ == "__main__":
    for parallel in ("ddp", "fsdp"):
        mp.start_processes(work, (f"{sys.argv[1]}/{parallel}", parallel), 2, start_method="fork" if hasattr(os, "fork") else "spawn")
"""


@pytest.mark.long
def test_all_processes_have_the_library_of_the_first(tmp_path):
    """Even if their trials find different ones."""
    script = tmp_path / "together.py"
    script.write_text(TOGETHER)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    done = subprocess.run([sys.executable, script, tmp_path, port], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    for parallel in ("ddp", "fsdp"):
        notes = json.loads((max((tmp_path / parallel).glob("step-*")) / "state.json").read_text())
        assert notes["run"]["training"]["products"] == "onednn"


def test_lessons_take_part(used, monkeypatch):
    """The model of the small world, unless it is compiled."""
    monkeypatch.setattr(onednn, "_tried", lambda threads: "onednn")
    kinds = []

    def step(model, *more):
        kinds.append(type(model.layer))
        return 0.0, 0.0

    monkeypatch.setattr(learning, "train_step", step)
    monkeypatch.setattr(learning, "rate", lambda *all: 1.0)
    course = mock.MagicMock(step=0, tokens=0, seconds=0.0)
    course.next_batch.return_value = torch.zeros(1, 2, dtype=torch.long), torch.ones(1, 2)
    course.tokenizer.start = 0
    course.model = course.trained = nn.Sequential(OrderedDict(layer=nn.Linear(2, 2)))
    learning._Course.advance(course)
    course.trained = nn.Sequential(OrderedDict(layer=course.model.layer))
    learning._Course.advance(course)
    assert kinds == [onednn.QuickLinear, nn.Linear]


def test_the_best_that_the_machine_can_do_is_that_of_the_quicker_library(used, monkeypatch):
    monkeypatch.setattr(onednn, "_tried", lambda threads: "onednn")
    assert peak_matmul_flops(torch.device("cpu")) > 1e8 and len(used) == 6
    peak_matmul_flops(torch.device("cpu"), "bfloat16")
    assert len(used) == 6

"""A step that is recorded on a GPU is the step of `train_step`; on a CPU the same code runs without a recording."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from test_parity import GPU, needs_gpu

from tlm_book.loss import shift, weighted_loss
from tlm_book.training import TrainConfig, optimizer_for, train, train_step
from tlm_book.training import recorded as recording
from tlm_book.training.checkpoint import put_state, state_of
from tlm_book.training.loss_kernel import loss_and_gradient
from tlm_book.training.recorded import RecordedStep, StepTaker
from tlm_book.training.step import set_rate
from tlm_book.transformer_lm import Config, TransformerLM

ROOT = Path(__file__).parents[2]
SMALL = Config(50, d_model=16, d_ff=32, n_layers=2, n_heads=4, n_kv_heads=2, max_len=16, tied=True)
DEVICES = ["cpu", pytest.param("cuda", marks=GPU)]


def model(device, double=True):
    torch.manual_seed(0)
    made = TransformerLM(SMALL).to(device)
    return made.double() if double else made


def batch(step, device):
    return torch.randint(50, (3, 12), generator=torch.Generator().manual_seed(step)).to(device)


def steps(device, take_of, settings, double=True):
    """(loss and norm of each step, weights) with rates that change."""
    it = model(device, double)
    optimizer = optimizer_for(it, settings)
    take, found = take_of(it, optimizer), []
    for step in range(6):
        for group in optimizer.param_groups:
            set_rate(group, 0.01 / (step + 1))
        x = batch(step, device)
        found.append(list(take(shift(x), x)))
    return torch.tensor(found), [w.detach().cpu() for w in it.parameters()]


def usual(settings):
    return lambda it, optimizer: lambda read, x: train_step(it, optimizer, read, x, settings)


def recorded(settings):
    def take_of(it, optimizer):
        step = RecordedStep(it, optimizer, (3, 12), settings, weighted=False)
        return lambda read, x: step(read, x).tolist()

    return take_of


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype, within", [("float32", 1e-5), ("bfloat16", 0.005)])
def test_it_is_the_step(dtype, within, device):
    """Losses, norms and weights: float64 to begin with, float32 under autocast. A gradient cut to nothing moves otherwise."""
    settings = TrainConfig(clip=0.3, dtype=dtype)
    double = dtype == "float32"
    want, weights = steps("cpu", usual(settings), settings, double)
    got, its = steps(device, recorded(settings), settings, double)
    torch.testing.assert_close(got, want, rtol=0, atol=10 * within)
    apart = lambda other: max((a - b).abs().mean().item() for a, b in zip(other, weights, strict=True))
    assert apart(its) < within
    assert apart(steps(device, recorded(TrainConfig(clip=1e-9, dtype=dtype)), settings, double)[1]) > within


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_it_does_not_move_if_a_number_is_not_finite(bad, device):
    settings = TrainConfig(dtype="float32")
    it = model(device)
    optimizer = optimizer_for(it, settings)
    step, x = RecordedStep(it, optimizer, (3, 12), settings, weighted=False), batch(0, device)
    step(shift(x), x)
    with torch.no_grad():
        kept = it.norm.weight.clone()
        it.norm.weight.fill_(bad)
    before = [w.detach().clone() for w in it.parameters()]
    assert not step(shift(x), x).isfinite().all()
    assert all(torch.equal(a.nan_to_num(7), b.nan_to_num(7)) for a, b in zip(before, it.parameters(), strict=True))
    with torch.no_grad():
        it.norm.weight.copy_(kept)
    assert step(shift(x), x).isfinite().all() and not torch.equal(before[0], next(it.parameters()))
    assert {float(state["step"]) for state in optimizer.state.values()} == {2.0} and not hasattr(optimizer, "found_inf")


@needs_gpu
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("V", [11, 5003, 50304])  # less than a block; whole blocks and a rest; rows that begin at multiples of 16 bytes
@pytest.mark.parametrize("dtype, within", [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)])
def test_the_kernel_gives_the_loss_and_its_gradient(dtype, within, V, weighted):
    """Beside torch's in float64; the gradient has the type of the scores, the loss float32."""
    torch.manual_seed(0)
    scores, tokens = (5 * torch.randn(3, 7, V, device="cuda")).to(dtype), torch.randint(V, (3, 7), device="cuda")
    weights = torch.rand(3, 7, device="cuda").round(decimals=1) if weighted else None  # some are 0
    exact = scores.double().requires_grad_()
    loss = weighted_loss(exact, tokens, weights)
    (gradient,) = torch.autograd.grad(loss, exact)
    found, value = loss_and_gradient(scores, tokens, weights)
    assert found.dtype == dtype and value.dtype == torch.float32 and found.shape == scores.shape
    assert abs(value - loss) < 1e-5 * loss and (found - gradient).abs().max() < within * gradient.abs().max()
    turned = scores.transpose(0, 1)  # rows that do not follow one another in memory
    found, value = loss_and_gradient(turned, tokens.T, None if weights is None else weights.T)
    assert abs(value - loss) < 1e-5 * loss and (found.transpose(0, 1) - gradient).abs().max() < within * gradient.abs().max()


@needs_gpu
def test_what_is_no_number_is_seen_in_the_loss():
    """A token outside the vocabulary gives NaN, as a score that is NaN does; a score of −∞ is a probability of 0."""
    scores, tokens = torch.zeros(1, 4, 11, device="cuda"), torch.tensor([[0, 1, 2, 3]], device="cuda")
    assert loss_and_gradient(scores, tokens, None)[1].isfinite()
    for bad in (-1, 11):
        assert loss_and_gradient(scores, torch.where(tokens == 1, bad, tokens), None)[1].isnan()
    scores[0, 0, 5] = torch.nan
    assert loss_and_gradient(scores, tokens, None)[1].isnan()
    scores[0, 0, 5] = -torch.inf
    gradient, loss = loss_and_gradient(scores, tokens, None)
    torch.testing.assert_close(loss, weighted_loss(scores, tokens))
    assert gradient[0, 0, 5] == 0 and gradient.isfinite().all()
    scores[0, 1, 1], weights = -torch.inf, torch.tensor([[1.0, 0.0, 1.0, 1.0]], device="cuda")  # the right token, with weight 0
    torch.testing.assert_close(loss_and_gradient(scores, tokens, weights)[1], weighted_loss(scores, tokens, weights))


def test_weights_come_with_a_step_that_has_them():
    it, x = model("cpu"), batch(0, "cpu")
    for weighted in (False, True):
        step = RecordedStep(it, optimizer_for(it, TrainConfig()), (3, 12), TrainConfig(), weighted=weighted)
        with pytest.raises(ValueError, match="weights: got"):
            step(shift(x), x, None if weighted else torch.ones(3, 12))


def test_tensors_of_another_shape_are_refused():
    it, x = model("cpu"), batch(0, "cpu")
    step = RecordedStep(it, optimizer_for(it, TrainConfig()), (3, 12), TrainConfig(), weighted=False)
    for one in (x[:1], x[:, :1]):  # a copy would stretch them
        with pytest.raises(ValueError, match="read: got shape"):
            step(one, one)


@pytest.mark.parametrize("device", DEVICES)
def test_frozen_weights_stay(device):
    """And do not count in the norm of the gradient."""
    x, found = batch(0, device), []
    for take_of in (usual, recorded):
        it = model(device)
        it.blocks[0].requires_grad_(False)
        before = {name: w.detach().clone() for name, w in it.blocks[0].named_parameters()}
        take = take_of(TrainConfig())(it, optimizer_for(it, TrainConfig()))
        found.append([take(shift(x), x), take(shift(x), x)])
        assert all(torch.equal(w, before[name]) for name, w in it.blocks[0].named_parameters())
    torch.testing.assert_close(torch.tensor(found[0]), torch.tensor(found[1]), rtol=0, atol=1e-5)


class Pretended(RecordedStep):
    """Where there is no GPU: made as often as a recording is, perhaps without the memory for it."""

    made, room = 0, True

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        Pretended.made += 1
        if not Pretended.room:
            raise torch.cuda.OutOfMemoryError("no room")


@pytest.fixture
def taker(monkeypatch):
    monkeypatch.setattr(recording, "RecordedStep", Pretended)
    monkeypatch.setattr(recording, "_on_gpu", lambda rate: True)
    monkeypatch.setattr(Pretended, "made", 0)
    monkeypatch.setattr(Pretended, "room", True)
    it = model("cpu")
    return StepTaker(it, optimizer_for(it, TrainConfig()))


def test_a_step_is_recorded_anew_for_other_settings(taker):
    x = batch(0, "cpu")
    for settings, made in (({}, 1), ({}, 1), ({"steps": 7, "warmup": 3}, 1), ({"clip": 0.5}, 2), ({"dtype": "bfloat16"}, 3), ({"grad_accum_steps": 3}, 3)):
        taker(shift(x), x, TrainConfig(**settings))
        assert Pretended.made == made
    taker(shift(x)[:2], x[:2], TrainConfig(dtype="bfloat16"))
    assert Pretended.made == 4


@pytest.mark.parametrize("changes", [{"grad_accum_steps": 2}, {"activation_checkpointing": True}])
def test_what_cannot_be_recorded_is_taken_as_usual(changes, taker):
    x = batch(0, "cpu")
    taker(shift(x), x, TrainConfig(**changes))
    assert Pretended.made == 0


def test_experts_are_not_recorded(monkeypatch):
    monkeypatch.setattr(recording, "_on_gpu", lambda rate: True)
    it = TransformerLM(Config.mixtral(50, d_model=16, d_ff=32, n_layers=1, n_heads=4, n_kv_heads=2, max_len=16))
    assert not StepTaker(it, optimizer_for(it, TrainConfig())).may_record
    assert not StepTaker(torch.nn.Linear(2, 2), optimizer_for(it, TrainConfig())).may_record


def test_without_memory_steps_are_taken_as_usual(taker, monkeypatch):
    """Tried once. A test that lacks the memory that the recording keeps is made again without it."""
    x = batch(0, "cpu")
    wanted = steps("cpu", usual(TrainConfig()), TrainConfig())[0][0]
    Pretended.room = False
    found = taker(shift(x), x, TrainConfig())
    assert Pretended.made == 1 and not taker.may_record and abs(found[0] - wanted[0]) < 1e-9
    taker(shift(x), x, TrainConfig())
    assert Pretended.made == 1

    Pretended.room, taker.may_record, calls = True, True, []
    taker(shift(x), x, TrainConfig())

    def job():
        calls.append(taker.recorded)
        if taker.recorded is not None:
            raise torch.cuda.OutOfMemoryError("no room")
        return 5

    assert taker.beside(job) == 5 and len(calls) == 2 and not taker.may_record
    with pytest.raises(torch.cuda.OutOfMemoryError):
        taker.beside(lambda: (_ for _ in ()).throw(torch.cuda.OutOfMemoryError("still none")))


@needs_gpu
def test_weights_that_are_elsewhere_are_recorded_anew():
    it = model("cuda")
    optimizer, x = optimizer_for(it, TrainConfig()), batch(0, "cuda")
    step = RecordedStep(it, optimizer, (3, 12), TrainConfig(), weighted=False)
    step(shift(x), x)
    first, graph = step(shift(x), x)[0].item(), step.graph
    it.cpu(), it.cuda()
    before = next(it.parameters()).detach().clone()
    assert step(shift(x), x)[0].item() < first and step.graph is not graph
    assert not torch.equal(before, next(it.parameters()))


COMPILED = """
import sys
sys.path += ["tests/unit", "tests/support"]
from test_recorded import *

settings = TrainConfig(clip=0.3, dtype=sys.argv[2], compile=True)
def compiled(take_of):
    def take(it, optimizer):
        it.compile()
        return take_of(settings)(it, optimizer)
    return take
want, weights = steps("cpu", usual(TrainConfig(clip=0.3, dtype=sys.argv[2])), settings, False)
got, its = steps(sys.argv[1], compiled(recorded), settings, False)
torch.testing.assert_close(got, want, rtol=0, atol=0.05)
assert all((a - b).abs().mean() < 0.005 for a, b in zip(its, weights, strict=True))
"""


ONE_GRAPH = """
import torch
from tlm_book.loss import weighted_loss
from tlm_book.transformer_lm import Config, TransformerLM

whole = lambda f: torch.compile(f, fullgraph=True, backend="eager")  # an error where there would be two
x = torch.randint(50, (2, 12))
small = dict(d_model=16, d_ff=32, n_layers=2, n_heads=4, n_kv_heads=2, max_len=16)
with torch.autocast("cpu", torch.bfloat16):
    for name in ("wojcik", "gpt2", "llama", "qwen3"):
        scores = whole(TransformerLM(getattr(Config, name)(50, **small)))(x)
for weights in (None, torch.rand(2, 12)):
    whole(weighted_loss)(scores, x, weights)
"""


def test_a_step_compiles_to_one_graph_for_the_model_and_one_for_the_loss():
    """In a process without the checker; a kernel cannot go beyond its graph."""
    done = subprocess.run([sys.executable, "-c", ONE_GRAPH], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.long
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_compiled_it_is_the_step(dtype, device):
    """In a process without the checker, which no compiled graph holds."""
    done = subprocess.run([sys.executable, "-c", COMPILED, device, dtype], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]


def run(device, folder=None, steps=8, watch=None, **changes):
    text = torch.randint(50, (400,), generator=torch.Generator().manual_seed(1))
    settings = TrainConfig(steps=8, warmup=2, eval_every=2, batch_size=3, lr=0.01, **changes)
    return train(settings, SMALL, text[:300], text[300:], device=device, progress=False, folder=folder, watch=watch)


@needs_gpu
def test_a_run_on_a_gpu_takes_recorded_steps(monkeypatch, tmp_path):
    """It learns what a CPU learns; a run that was stopped goes on as if it had not been; the step is recorded once."""
    made = []

    class Counted(RecordedStep):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            made.append(self)

    monkeypatch.setattr(recording, "RecordedStep", Counted)
    want, whole = run("cpu"), run("cuda")
    assert len(made) == 1 and made[0].graph is not None
    for a, b in zip(whole.log, want.log, strict=True):
        assert abs(a["loss"] - b["loss"]) < 1e-3 and a["lr"] == b["lr"]

    def stop(step, _):
        if step == 4:
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        run("cuda", tmp_path / "run", watch=stop)
    again = run("cuda", tmp_path / "run")
    assert again.resumed == 4 and len(made) == 3
    for a, b in zip(again.log, whole.log, strict=True):
        assert abs(a["loss"] - b["loss"]) < 1e-4
    assert all((a - b).abs().max() < 1e-4 for a, b in zip(again.model.parameters(), whole.model.parameters()))


def test_rates_stay_when_a_state_is_put_back():
    """The very object, since a recording reads it."""
    it = model("cpu")
    optimizer, x = optimizer_for(it, TrainConfig()), batch(0, "cpu")
    train_step(it, optimizer, shift(x), x, TrainConfig())
    rate, kept = torch.tensor(0.25), state_of(it, optimizer)
    for group in optimizer.param_groups:
        group["lr"] = rate
    put_state(it, optimizer, kept)
    assert all(group["lr"] is rate for group in optimizer.param_groups) and rate == 0.25


@needs_gpu
def test_recordings_want_rates_on_the_gpu():
    it = model("cuda")
    with pytest.raises(ValueError, match="optimizer: got a learning rate of 0.1"):
        RecordedStep(it, torch.optim.AdamW(it.parameters(), lr=0.1, capturable=True), (3, 12), TrainConfig())


@needs_gpu
def test_dropout_is_drawn_anew_in_each_recorded_step():
    torch.manual_seed(0)
    it = TransformerLM(SMALL.replace(dropout=0.5)).cuda().train()
    settings, x = TrainConfig(), batch(0, "cuda")
    optimizer = optimizer_for(it, settings)
    step = RecordedStep(it, optimizer, (3, 12), settings, weighted=False)
    for group in optimizer.param_groups:
        set_rate(group, 0.0)
    losses = []
    for seed in (1, 2, 1):
        torch.manual_seed(seed)
        losses.append(step(shift(x), x)[0].item())
    assert losses[0] == losses[2] != losses[1]

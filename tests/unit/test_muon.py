"""Muon: its direction is the polar factor, its step the formula, and torch's own Muon goes the same way."""

import copy

import numpy as np
import pytest
import torch
from test_parity import needs_gpu

from tlm_book.loss import shift
from tlm_book.spec import optimization as spec
from tlm_book.training import TrainConfig, train_step
from tlm_book.training.muon import Muon, Together, muon_for, newton_schulz
from tlm_book.training.recorded import RecordedStep, _at_rest
from tlm_book.transformer_lm import Config, TransformerLM


@pytest.mark.parametrize("shape", [(6, 6), (12, 5), (5, 12), (3, 4, 7)])
def test_singular_vectors_stay_and_singular_values_come_near_one(shape):
    M = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    U, S, Vh = torch.linalg.svd(M, full_matrices=False)
    inner = U.mT @ newton_schulz(M) @ Vh.mT
    values = inner.diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(inner, torch.diag_embed(values), atol=1e-10, rtol=0)
    same = np.reshape([spec.newton_schulz(m) for m in M.reshape(-1, *shape[-2:]).numpy()], shape)
    torch.testing.assert_close(newton_schulz(M), torch.tensor(same), atol=1e-12, rtol=0)
    big = S > 0.02 * M.norm(dim=(-2, -1))[..., None]
    assert big.any() and (values[big] > 0.65).all() and (values[big] < 1.2).all()


def test_a_matrix_of_zeros_does_not_move():
    W = torch.nn.Parameter(torch.ones(3, 4))
    W.grad = torch.zeros(3, 4)
    Muon([W], lr=0.1).step()
    assert (W == 1).all()


def polar(M):
    """The same iteration, on the singular values alone."""
    U, s, Vh = np.linalg.svd(M, full_matrices=False)
    s = s / np.linalg.norm(M)
    for _ in range(5):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return (U * s) @ Vh


@pytest.mark.parametrize("rows", [None, (4, 4, 4), (8, 2, 2)])
def test_the_step_is_the_formula(rows):
    rng = np.random.default_rng(0)
    W = rng.standard_normal((12, 4))
    M = np.zeros_like(W)
    w = torch.nn.Parameter(torch.tensor(W))
    optimizer = Muon([{"params": [w], "rows": rows}], lr=0.1, momentum=0.9, weight_decay=0.05)
    for _ in range(4):
        G = rng.standard_normal(W.shape)
        w.grad = torch.tensor(G)
        optimizer.step()
        M = 0.9 * M + G
        parts = np.split(G + 0.9 * M, np.cumsum(rows or (12,))[:-1])
        W = (1 - 0.1 * 0.05) * W - 0.1 * np.concatenate([max(1, len(N) / 4) ** 0.5 * polar(N) for N in parts])
        np.testing.assert_allclose(w.detach(), W, atol=1e-12)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon of its own")
def test_torchs_own_muon_goes_the_same_way():
    """It computes the polar factor in bfloat16, hence the tolerance; a step is at most lr · √max(1, n/m) long."""
    generator = torch.Generator().manual_seed(1)
    w = torch.randn(8, 16, generator=generator)
    ours, theirs = torch.nn.Parameter(w.clone()), torch.nn.Parameter(w.clone())
    steps = Muon([ours], lr=0.1), torch.optim.Muon([theirs], lr=0.1, weight_decay=0.0, adjust_lr_fn="original")
    for _ in range(5):
        ours.grad = torch.randn(8, 16, generator=generator)
        theirs.grad = ours.grad.clone()
        for optimizer in steps:
            optimizer.step()
    moved = (ours - w).norm()
    assert (ours - theirs).norm() < 0.03 * moved


def model():
    torch.manual_seed(0)
    return TransformerLM(Config(50, d_model=16, d_ff=32, n_layers=2, n_heads=4, n_kv_heads=2, max_len=16, tied=True))


def test_every_parameter_has_one_optimizer_and_a_rate_set_outside_counts():
    it = model()
    both = muon_for(it, 0.01, 0.001)
    owned = [id(w) for group in both.param_groups for w in group["params"]]
    assert sorted(owned) == sorted(id(w) for w in it.parameters())
    assert [group["rows"] for group in both.param_groups if "rows" in group] == [(16, 8, 8), None]
    before = [w.detach().clone() for w in it.parameters()]
    for group in both.param_groups:
        group["lr"] = 0.0
    for w in it.parameters():
        w.grad = torch.ones_like(w)
    both.step()
    assert all(torch.equal(a, b) for a, b in zip(before, it.parameters()))


@pytest.mark.parametrize("sizes, rows", [({"d_head": 16}, (32, 32, 32)), ({"n_heads": 4, "n_kv_heads": 1, "d_head": 2}, (8, 2, 2))])
def test_the_matrix_of_all_heads_is_cut_where_their_rows_end(sizes, rows):
    it = TransformerLM(Config(50, **{"d_model": 16, "d_ff": 32, "n_layers": 1, "n_heads": 2, "max_len": 8} | sizes))
    assert [group["rows"] for group in muon_for(it, 0.01, 0.001).param_groups if "rows" in group] == [rows, None]


def steps_of(device, recorded):
    """Losses and weights after steps of two shapes in turn, with rates that change; the recorded step or `train_step`."""
    it = model().double().to(device)
    optimizer = muon_for(it, 0.02, 0.01)
    rates = [float(group["lr"]) for group in optimizer.param_groups]
    losses, made = [], {}
    for step in range(6):
        chance = torch.Generator().manual_seed(step)
        shape = [(2, 12), (3, 9)][step % 2]
        x, w = torch.randint(50, shape, generator=chance).to(device), torch.rand(shape, generator=chance).to(device)
        if recorded and shape not in made:
            made[shape] = RecordedStep(it, optimizer, shape, TrainConfig(clip=0.3))
        for group, lr in zip(optimizer.param_groups, rates):
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(lr / (step + 1))
            else:
                group["lr"] = lr / (step + 1)
        if recorded:
            losses.append(made[shape](shift(x), x, w)[0].item())
        else:
            losses.append(train_step(it, optimizer, shift(x), x, TrainConfig(clip=0.3), w)[0])
    return losses, [w.detach().cpu() for w in it.parameters()]


def agree(one, other, within):
    torch.testing.assert_close(torch.tensor(one[0]), torch.tensor(other[0]), rtol=0, atol=within)
    for a, b in zip(one[1], other[1], strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=within)


def test_a_recorded_step_is_the_step():
    agree(steps_of("cpu", False), steps_of("cpu", True), 1e-6)  # its weights of tokens are float32


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD, Muon])
def test_recording_moves_nothing(kind):
    """Before the first step and after some: weights, rates and what the optimizer remembers stay."""
    w = torch.nn.Parameter(torch.ones(3, 4))
    optimizer = kind([w], lr=0.1, **({"momentum": 0.9} if kind is torch.optim.SGD else {}))
    for _ in range(2):
        before = copy.deepcopy((w.detach(), optimizer.state_dict()["state"]))
        with _at_rest(optimizer, [w]):
            w.grad = torch.full_like(w, 3.0)
            optimizer.step()
        after = (w.detach(), optimizer.state_dict()["state"])
        assert torch.equal(before[0], after[0])
        for key, value in after[1].get(0, {}).items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(value, before[1][0][key] if before[1] else torch.zeros_like(value)), key
        w.grad = torch.ones_like(w)
        optimizer.step()


def test_a_recording_that_fails_leaves_no_half_made_state():
    w = torch.nn.Parameter(torch.ones(3, 4))
    optimizer = torch.optim.AdamW([w], lr=0.1)
    w.grad = torch.ones_like(w)
    with pytest.raises(MemoryError), _at_rest(optimizer, [w]):
        optimizer.step()
        del optimizer.state[w]["exp_avg_sq"]
        raise MemoryError
    assert torch.equal(w, torch.ones(3, 4)) and not optimizer.state
    optimizer.step()
    assert set(optimizer.state[w]) == {"step", "exp_avg", "exp_avg_sq"}


@needs_gpu
def test_a_step_recorded_on_a_gpu_is_the_step():
    agree(steps_of("cpu", False), steps_of("cuda", True), 1e-5)


def test_it_goes_on_from_what_it_kept():
    def run(stop):
        it = model()
        optimizer = muon_for(it, 0.01, 0.001)
        for step in range(6):
            if step == stop:
                kept = optimizer.state_dict()
                optimizer = muon_for(it, 1.0, 1.0)
                optimizer.load_state_dict(kept)
            tokens = torch.randint(50, (2, 12), generator=torch.Generator().manual_seed(step))
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(it(tokens).flatten(0, 1), tokens.flatten()).backward()
            optimizer.step()
        return it.state_dict()

    whole, resumed = run(None), run(3)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_strangers_are_refused():
    with pytest.raises(ValueError, match="params: got a parameter of shape"):
        Muon([torch.nn.Parameter(torch.ones(3))])
    for rows in ((2, 2), (1, 1)):
        with pytest.raises(ValueError, match="rows: got .*, want the sum 3"):
            Muon([torch.nn.Parameter(torch.ones(3, 2))], rows=rows)
    w = torch.nn.Parameter(torch.ones(2))
    with pytest.raises(ValueError):
        Together(torch.optim.SGD([w], lr=1.0)).load_state_dict({"parts": []})


def test_a_matrix_without_a_gradient_stays_as_it_is():
    W = torch.nn.Parameter(torch.ones(2, 3))
    Muon([W], weight_decay=0.5).step()
    assert torch.equal(W, torch.ones(2, 3))


def test_a_step_returns_the_loss_of_its_closure():
    both = muon_for(model(), 0.01, 0.001)
    assert both.step(lambda: 3.0) == 3.0 and both.parts[0].step(lambda: 2.0) == 2.0 and both.step() is None


def test_each_part_has_its_rate_and_neither_decays():
    from tlm_book.transformer_lm import Config, TransformerLM

    together = muon_for(TransformerLM(Config(5, d_model=4, d_ff=4, n_layers=1, n_heads=1, max_len=4)), 0.02, 0.003)
    assert {group["weight_decay"] for group in together.param_groups} == {0.0}
    assert {("rows" in group, group["lr"], group.get("betas")) for group in together.param_groups} == {(True, 0.02, None), (False, 0.003, (0.9, 0.99))}

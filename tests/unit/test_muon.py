"""Muon: its direction is the polar factor, its step the formula, and torch's own Muon goes the same way."""

import numpy as np
import pytest
import torch

from tlm_book.spec import optimization as spec
from tlm_book.training.muon import Muon, Together, muon_for, newton_schulz
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
    with pytest.raises(ValueError, match="rows: got"):
        Muon([torch.nn.Parameter(torch.ones(3, 2))], rows=(2, 2))
    w = torch.nn.Parameter(torch.ones(2))
    with pytest.raises(ValueError):
        Together(torch.optim.SGD([w], lr=1.0)).load_state_dict({"parts": []})

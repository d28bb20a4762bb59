"""Learning from rewards: what a step takes, leaves alone and gives back; the chapter checks its formulas."""

import pytest
import torch

from tlm_book.rewards import (
    advantages,
    answer_log_probs,
    preference_loss,
    reward_step,
)
from tlm_book.transformer_lm import Config, TransformerLM

PROMPTS = torch.tensor([[1, 2], [3, 4], [0, 0]])


def learner(**choices) -> TransformerLM:
    torch.manual_seed(0)
    return TransformerLM(Config.llama(6, d_model=8, n_heads=2, d_ff=12, n_layers=1, max_len=8, **choices))


def step(model, reward, **choices):
    return reward_step(model, torch.optim.SGD(model.parameters(), lr=0.5), PROMPTS, 4, reward, generator=torch.Generator().manual_seed(1), **choices)


def weights(model):
    return [w.detach().clone() for w in model.parameters()]


def test_many_steps_reach_what_is_rewarded():
    model, source = learner(), torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    fives = lambda texts: (texts[:, 2:] == 5).float().mean(1)
    means = [reward_step(model, optimizer, PROMPTS, 4, fives, generator=source) for _ in range(40)]
    assert means[0] < 0.4 and means[-1] > 0.95


def test_a_strong_penalty_holds_the_model_where_it_was():
    first, moved = learner(), []
    fives = lambda texts: (texts[:, 2:] == 5).float().mean(1)
    texts = torch.randint(0, 6, (200, 6), generator=torch.Generator().manual_seed(3))
    for beta in (0.0, 100.0):
        model, source = learner(), torch.Generator().manual_seed(0)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
        for _ in range(30):
            reward_step(model, optimizer, PROMPTS, 4, fives, beta=beta, before=first, generator=source)
        with torch.no_grad():
            moved.append((answer_log_probs(model, texts, 2) - answer_log_probs(first, texts, 2)).abs().mean().item())
    assert moved[1] < moved[0] / 5


@pytest.mark.parametrize("way", [{}, {"scale": True}])
def test_where_all_answers_are_equally_good_nothing_is_learned(way):
    model = learner()
    before = weights(model)
    assert step(model, lambda texts: [0.1] * len(texts), **way) == pytest.approx(0.1)
    assert all(torch.allclose(w, old, atol=1e-7) for w, old in zip(model.parameters(), before))


def test_a_reward_that_fails_leaves_the_model_as_it_was():
    model = learner()
    before = weights(model)

    def fails(texts):
        raise RuntimeError("no checker today")

    for reward in (fails, lambda texts: [float("inf")] * len(texts), lambda texts: torch.zeros(len(texts), 1)):
        with pytest.raises((RuntimeError, ValueError)):
            step(model, reward)
    assert all(torch.equal(w, old) for w, old in zip(model.parameters(), before))
    assert all(w.grad is None for w in model.parameters())


def test_rewards_may_be_a_list_of_truth_values_or_numbers_and_carry_no_gradient():
    found = []
    for reward in (
        lambda texts: [bool(x[2] == 5) for x in texts],
        lambda texts: [int(x[2] == 5) for x in texts],
        lambda texts: (texts[:, 2] == 5).double().requires_grad_(),
    ):
        model = learner()
        step(model, reward)
        found.append(torch.cat([w.flatten() for w in weights(model)]))
    assert torch.equal(found[0], found[1]) and torch.allclose(found[0], found[2])


def test_what_stands_behind_a_stop_token_counts_neither_way():
    model = learner()
    texts = torch.tensor([[1, 2, 5, 0, 5, 1], [1, 2, 5, 0, 3, 3], [1, 2, 5, 1, 3, 0]])
    with torch.no_grad():
        whole, ended = answer_log_probs(model, texts, 2), answer_log_probs(model, texts, 2, stop=0)
    assert ended[0] == pytest.approx(ended[1].item()) and ended[2] == pytest.approx(whole[2].item()) and (ended[:2] > whole[:2]).all()
    seen = []
    step(model, lambda texts: seen.append(texts) or [0.0] * len(texts), stop=0)
    for text in seen[0].tolist():
        assert 0 not in text[2:] or set(text[2 + text[2:].index(0) :]) == {0}


def test_half_precision_and_a_mode_are_kept():
    model = learner().to(torch.bfloat16)
    model.train()
    step(model, lambda texts: (texts[:, 2:] == 5).float().sum(1))
    assert model.training and all(w.dtype == torch.bfloat16 and w.isfinite().all() for w in model.parameters())
    r = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.bfloat16)
    assert advantages(r).dtype == torch.bfloat16 and advantages(r).tolist()[0] == pytest.approx([1.0, -0.5, -0.5], rel=0.01)
    assert answer_log_probs(model, PROMPTS, 1).dtype == torch.float32


def test_small_differences_of_large_rewards_are_not_rounded_away():
    moved = []
    for height in (0.0, 1000.0):
        model = learner().to(torch.bfloat16)
        before = weights(model)
        step(model, lambda texts: height + (texts[:, 2:] == 5).float().sum(1))
        moved.append(torch.cat([(w - old).flatten().float() for w, old in zip(model.parameters(), before)]))
    assert torch.allclose(*moved, atol=0.01) and moved[0].abs().max() > 0.1


def test_a_surer_preference_costs_less_and_far_ones_stay_finite():
    gap = torch.tensor([-1e4, -1.0, 0.0, 1.0, 1e4])
    loss = preference_loss(gap, torch.zeros(5), torch.zeros(5), torch.zeros(5), beta=1.0)
    assert (loss.diff() < 0).all() and loss.isfinite().all() and loss[2] == pytest.approx(0.693147, abs=1e-6)

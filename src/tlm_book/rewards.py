"""Learning from rewards. Generated from book/rewards.ipynb: edit the notebook, then `make export`."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from tlm_book.checks import (
    expects,
    expects_kind,
    expects_numbers,
    expects_shape,
    expects_switches,
    expects_whole,
)
from tlm_book.inference import generate
from tlm_book.loss import token_log_probs
from tlm_book.transformer_lm import TransformerLM
from tlm_book.weights import expects_model

__all__ = [
    "answer_log_probs",
    "advantages",
    "Reward",
    "reward_step",
    "preference_loss",
]


# --- A step in torch


def answer_log_probs(
    model: TransformerLM, texts: Int[Tensor, "B m"], n: int, stop: int | None = None
) -> Float[Tensor, "B"]:
    """log Q(answer | question) of each text, in nats, where the question has n tokens;
    with a stop token, the answer ends with the first one. (T-policy-gradient)

    ValueError unless texts have two axes and n is from 1 to m − 1; TypeError for
    tokens that are not integers, IndexError for tokens outside the vocabulary.
    """
    expects_model(model)
    expects_shape("texts", texts, ("B", "m"))
    expects_whole(n=n)
    m = texts.shape[1]
    expects(0 < n < m, "n", n, f"from 1 to {m - 1}, as a text has {m} tokens")
    answer = texts[:, n:]
    log_q = token_log_probs(model(texts[:, :-1])[:, n - 1 :], answer)
    if stop is not None:
        ends = (answer == stop).long()
        log_q = log_q.masked_fill(ends.cumsum(1) > ends, 0)  # an end lies before
    return log_q.sum(1)


def advantages(
    r: Float[Tensor, "*batch k"], scale: bool = False
) -> Float[Tensor, "*batch k"]:
    """The reward of each answer minus the mean of the others to the same question. With
    scale=True: minus the mean of all, divided by their standard deviation, or 0 if all
    are equal. (T-baseline, T-question-weight)

    ValueError for fewer than two answers; TypeError unless r is a tensor of floats.
    """
    expects_kind("r", r, Tensor, "a tensor")
    expects_shape("r", r, ("k",))
    expects(r.is_floating_point(), "r", f"dtype {r.dtype}", "floats", TypeError)
    expects_switches(scale=scale)
    k = r.shape[-1]
    expects(k >= 2, "r", f"shape {tuple(r.shape)}", "at least 2 answers")
    off = r - r.mean(-1, keepdim=True)
    if not scale:
        return off * k / (k - 1)
    equal = (r == r[..., :1]).all(-1, keepdim=True)
    return (off / r.std(-1, correction=0, keepdim=True)).masked_fill(equal, 0)


Reward = Callable[[Int[Tensor, "N m"]], Float[Tensor, "N"] | Sequence[float]]


def _expects_step(
    model: Any, prompts: Any, answers: Any, beta: Any, before: Any
) -> None:
    expects_model(model)
    expects_kind("prompts", prompts, Tensor, "a tensor of tokens")
    expects_shape("prompts", prompts, ("B", "n"))
    expects_whole(answers=answers)
    expects(answers >= 2, "answers", answers, "at least 2 to each question")
    expects_numbers(beta=beta)
    expects(0 <= beta < float("inf"), "beta", beta, "a number ≥ 0")
    if beta:
        wants = "the model to stay near, for beta > 0"
        expects_kind("before", before, TransformerLM, wants)


def _rewards(reward: Reward, texts: Int[Tensor, "N m"]) -> Float[Tensor, "N"]:
    """The rewards of the texts, after a check of them."""
    r = torch.as_tensor(reward(texts), device=texts.device)
    wants = f"({len(texts)}), a number for each text"
    fits = tuple(r.shape) == (len(texts),)
    expects(fits, "reward", f"shape {tuple(r.shape)} in return", wants)
    finite = bool(r.isfinite().all())
    expects(finite, "reward", "a number that is not finite", "finite rewards")
    return r


def reward_step(
    model: TransformerLM,
    optimizer: torch.optim.Optimizer,
    prompts: Int[Tensor, "B n"],
    n_new: int,
    reward: Reward,
    *,
    answers: int = 8,
    beta: float = 0.0,
    before: TransformerLM | None = None,
    scale: bool = False,
    stop: int | None = None,
    generator: torch.Generator | None = None,
) -> float:
    """One step up the mean reward, with answers that the model writes itself. Returns
    the mean reward of these answers. (T-policy-gradient, T-baseline)

    prompts    questions of n tokens each
    n_new      the greatest number of tokens of an answer; `stop` ends it sooner
    reward     a function that is given all texts, questions and answers, and returns a
               number for each; after a stop token a text is filled up with it
    answers    how many are drawn to each question
    beta       factor of the penalty log(Q/P) that is subtracted from a reward, in
               nats; `before` is the model P to stay near (T-tilt)
    scale      divide by the standard deviation of the rewards of a question
    generator  source of the uniform numbers; None: torch's global one

    Answers are drawn without dropout; a model with dropout should be in eval mode.
    ValueError, TypeError or IndexError for settings out of range, tokens outside the
    vocabulary, texts that grow too long and rewards that do not fit the texts, before
    anything is changed.
    """
    _expects_step(model, prompts, answers, beta, before)
    (B, n), repeated = prompts.shape, prompts.repeat_interleave(answers, 0)
    texts = generate(
        model, repeated, n_new, stop=stop, generator=generator, products="linear"
    )
    r = _rewards(reward, texts)
    log_q = answer_log_probs(model, texts, n, stop)
    worth = r.to(log_q.dtype)
    if before is not None and beta:
        with torch.no_grad():
            log_p = answer_log_probs(before, texts, n, stop)
        worth = worth - beta * (log_q.detach() - log_p)
    factor = advantages(worth.view(B, answers), scale)
    optimizer.zero_grad()
    (-(factor * log_q.view(B, answers)).mean()).backward()
    optimizer.step()
    return float(r.double().mean())


# --- Who gives the rewards?


def preference_loss(
    better: Float[Tensor, "*batch"],
    worse: Float[Tensor, "*batch"],
    better_before: Float[Tensor, "*batch"],
    worse_before: Float[Tensor, "*batch"],
    beta: float = 0.1,
) -> Float[Tensor, "*batch"]:
    """−log σ(β (log Q/P of the better answer − log Q/P of the worse one)), in nats.
    (T-preference)

    better, worse                log Q of both answers, as `answer_log_probs` gives them
    better_before, worse_before  log P of both, by the model before

    ValueError unless beta is positive and all shapes are the same.
    """
    expects_numbers(beta=beta)
    expects(0 < beta < float("inf"), "beta", beta, "a positive number")
    given = (worse, better_before, worse_before)
    for name, t in zip(("worse", "better_before", "worse_before"), given):
        same = t.shape == better.shape
        expects(same, name, f"shape {tuple(t.shape)}", f"{tuple(better.shape)}")
    gain, loss = better - better_before, worse - worse_before
    return -F.logsigmoid(beta * (gain - loss))

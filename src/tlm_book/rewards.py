"""Learning from rewards. Generated from book/rewards.ipynb: edit the notebook, then `make export`."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from tlm_book.checks import (
    expects,
    expects_floats,
    expects_kind,
    expects_numbers,
    expects_shape,
    expects_switches,
    expects_whole,
    refuse,
)
from tlm_book.inference import generate
from tlm_book.loss import token_log_probs
from tlm_book.transformer_lm import TransformerLM
from tlm_book.weights import expects_model


def _expects_rows(argument: str, tokens: Any, wants: str) -> None:
    expects_kind(argument, tokens, Tensor, "a tensor of tokens")
    shape = tuple(tokens.shape)
    expects(len(shape) == 2, argument, f"shape {shape}", wants)


def _expects_stop(model: TransformerLM, stop: Any) -> None:
    if stop is not None:
        expects_whole(stop=stop)
        last = model.config.vocab_size - 1
        wants = f"None or a token from 0 to {last}"
        expects(0 <= stop <= last, "stop", stop, wants, IndexError)

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
    """log Q(answer | question) of each text, in nats, in float32 at least. The question
    has n tokens; with a stop token, the answer ends with the first one.
    (T-policy-gradient)

    ValueError unless texts have two axes and n is from 1 to m − 1; TypeError for
    tokens that are not integers, IndexError for a token or a stop token outside the
    vocabulary.
    """
    expects_model(model)
    _expects_rows("texts", texts, "(B, m)")
    _expects_stop(model, stop)
    expects_whole(n=n)
    m = texts.shape[1]
    expects(0 < n < m, "n", n, f"from 1 to {m - 1}, as a text has {m} tokens")
    answer = texts[:, n:]
    z = model(texts[:, :-1])[:, n - 1 :]
    z = z.to(torch.promote_types(z.dtype, torch.float32))  # sums need its digits
    log_q = token_log_probs(z, answer)
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
    model: Any, prompts: Any, n_new: Any, reward: Any, answers: Any, beta: Any, before: Any
) -> None:
    expects_model(model)
    _expects_rows("prompts", prompts, "(B, n)")
    wants = "a function of all texts"
    expects(callable(reward), "reward", repr(reward), wants, TypeError)
    expects_whole(n_new=n_new, answers=answers)
    expects(n_new >= 1, "n_new", n_new, "at least 1")
    M, n = model.config.max_len, prompts.shape[1]
    wants = f"at most {M + 1 - n}, as a question has {n} tokens and max_len is {M}"
    expects(n + n_new - 1 <= M, "n_new", n_new, wants)
    expects(answers >= 2, "answers", answers, "at least 2 to each question")
    expects_numbers(beta=beta)
    expects(0 <= beta < float("inf"), "beta", beta, "a number ≥ 0")
    if beta:
        wants = "the model to stay near, for beta > 0"
        expects_kind("before", before, TransformerLM, wants)
        expects(before is not model, "before", "the model itself", "a copy made earlier")
        V, size = model.config.vocab_size, before.config.vocab_size
        expects(size == V, "before", f"a vocabulary of {size} tokens", f"{V}")


def _rewards(reward: Reward, texts: Int[Tensor, "N m"]) -> Float[Tensor, "N"]:
    """The rewards of the texts, after a check of them."""
    given, wants = reward(texts), f"({len(texts)}), a number for each text"
    try:
        r = torch.as_tensor(given, device=texts.device).detach()
    except (TypeError, ValueError, RuntimeError):
        refuse("reward", f"{type(given).__name__} in return", wants, TypeError)
    fits = tuple(r.shape) == (len(texts),)
    expects(fits, "reward", f"shape {tuple(r.shape)} in return", wants)
    finite = bool(r.isfinite().all())
    expects(finite, "reward", "a number that is not finite", "finite rewards")
    return r if r.is_floating_point() else r.float()


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
               nats; `before` is the model P to stay near, a copy made earlier (T-tilt)
    scale      divide by the standard deviation of the rewards of a question, penalties
               subtracted
    generator  source of the uniform numbers; None: torch's global one

    Answers are drawn without dropout; a model with dropout should be in eval mode.
    ValueError, TypeError or IndexError for settings out of range, tokens outside the
    vocabulary, texts that grow too long and rewards that do not fit the texts, before
    anything is changed.
    """
    _expects_step(model, prompts, n_new, reward, answers, beta, before)
    expects_switches(scale=scale)
    (B, n), repeated = prompts.shape, prompts.repeat_interleave(answers, 0)
    texts: Any = generate(  # a tensor, as the prompts are
        model, repeated, n_new, stop=stop, generator=generator, products="linear"
    )
    r = _rewards(reward, texts)
    log_q = answer_log_probs(model, texts, n, stop)
    worth = r.to(log_q.dtype)  # at least float32
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

    One loss for each pair. ValueError unless beta is positive and all shapes are the
    same; TypeError for what is no tensor of floats.
    """
    expects_numbers(beta=beta)
    expects(0 < beta < float("inf"), "beta", beta, "a positive number")
    names = ("better", "worse", "better_before", "worse_before")
    for name, t in zip(names, (better, worse, better_before, worse_before)):
        expects_floats(name, t)
        wants = f"({', '.join(map(str, better.shape))})"
        expects(t.shape == better.shape, name, f"shape {tuple(t.shape)}", wants)
    gain, loss = better - better_before, worse - worse_before
    return -F.logsigmoid(beta * (gain - loss))

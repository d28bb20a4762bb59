"""Choosing the next token. Generated from book/inference.ipynb: edit the notebook, then `make export`."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from tlm_book.checks import (
    expects,
    expects_kind,
    expects_numbers,
    expects_positive,
    plain_fields,
    refuse,
    with_suggestions,
)
from tlm_book.modes import evaluating
from tlm_book.transformer_lm import TransformerLM

__all__ = [
    "quantiles",
    "cut_tail",
    "Sampler",
    "window",
    "distribution",
    "last_scores",
]


# --- Choosing


def quantiles(
    p: Float[Tensor, "*batch V"], u: Float[Tensor, "*batch"]
) -> Int[Tensor, "*batch"]:
    """The smallest j with u < p_0 + … + p_j, for each row and 0 ≤ u < 1. (T-quantile)"""
    F = p.cumsum(-1)
    return (F / F[..., -1:] <= u[..., None]).sum(-1)


# --- Cutting the tail: top-k, top-p (nucleus), min-p


def cut_tail(
    p: Float[Tensor, "*batch V"],
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
) -> Float[Tensor, "*batch V"]:
    """p with zeros where top-k, then top-p, then min-p cut; each row sums to 1 again.
    (T-top-k-top-p, T-min-p) ValueError or TypeError for a value out of range.
    """
    expects_cuts(top_k, top_p, min_p)
    expects_kind("p", p, Tensor, "a tensor")
    if (top_k, top_p) != (None, None):
        sorted_p, order = p.sort(dim=-1, descending=True, stable=True)
        k = p.shape[-1] if top_k is None else top_k
        sorted_p[..., k:] = 0
        if top_p is not None:
            mass = sorted_p.cumsum(-1)
            before = F.pad(mass[..., :-1], (1, 0))  # the mass of all tokens before
            sorted_p[before >= top_p * mass[..., -1:]] = 0
        p = torch.zeros_like(p).scatter(-1, order, sorted_p)
    if min_p is not None:
        p = p.masked_fill(p < min_p * p.amax(-1, keepdim=True), 0)
    return p / p.sum(-1, keepdim=True)


@with_suggestions
@dataclass(frozen=True)
class Sampler:
    """How the next token is chosen, in this order. (T-choices)

    repetition_penalty  θ > 0, for the scores of tokens in the text
    temperature         0 takes the likeliest token; τ > 0 draws from softmax(z / τ)
    top_k, top_p, min_p what is cut off before drawing; None: nothing

    ValueError or TypeError for a value out of range.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        plain_fields(self)
        tau, theta = self.temperature, self.repetition_penalty
        expects_numbers(temperature=tau, repetition_penalty=theta)
        expects(0 <= tau < math.inf, "temperature", tau, "a finite number ≥ 0")
        wants = "a finite number > 0"
        expects(0 < theta < math.inf, "repetition_penalty", theta, wants)
        expects_cuts(self.top_k, self.top_p, self.min_p)

    def scores(
        self, z: Float[Tensor, "B V"], seen: Bool[Tensor, "B V"] | None = None
    ) -> Float[Tensor, "B V"]:
        """The scores after the penalty; `seen` is true for tokens of the text, and may
        be None without a penalty (else ValueError). (T-repetition-penalty)
        """
        theta = self.repetition_penalty
        if theta == 1:
            return z
        if seen is None:
            wants = "the tokens of the text, for the repetition_penalty"
            refuse("seen", "None", wants)
        return torch.where(seen, torch.where(z > 0, z / theta, z * theta), z)

    def distribution(
        self, z: Float[Tensor, "B V"], seen: Bool[Tensor, "B V"] | None = None
    ) -> Float[Tensor, "B V"]:
        """The probabilities from which a token is drawn, in float64. ValueError for
        temperature 0, which draws nothing."""
        expects(self.temperature > 0, "temperature", 0, "a number > 0 to draw")
        p = _tempered(self.scores(z.double(), seen), self.temperature)
        return cut_tail(p, self.top_k, self.top_p, self.min_p)

    def draw(
        self,
        z: Float[Tensor, "B V"],
        seen: Bool[Tensor, "B V"] | None = None,
        generator: torch.Generator | None = None,
    ) -> Int[Tensor, "B"]:
        """One token for each row of scores; ValueError for a row with NaN or +∞, or
        with nothing but −∞, before the penalty or after it, and for scores that are
        not rows.
        """
        if z.dim() != 2:
            refuse("z", f"shape {tuple(z.shape)}", "(B, V)")
        best, token = self.scores(z, seen).max(-1)
        if not all_finite(best):
            expects_finite(z.amax(-1))
            wants = "one that leaves the scores finite"
            refuse("repetition_penalty", self.repetition_penalty, wants)
        if self.temperature == 0:
            return token
        place = torch.device("cpu") if generator is None else generator.device
        u = torch.rand(
            len(z), dtype=torch.float64, generator=generator, device=place
        )
        return quantiles(self.distribution(z, seen), u.to(z.device))


def expects_cuts(
    top_k: int | None, top_p: float | None, min_p: float | None
) -> None:
    """Check that each is None or a number in its range: top_k ≥ 1, 0 < top_p ≤ 1 and
    0 ≤ min_p ≤ 1. TypeError or ValueError otherwise.
    """
    if top_k is not None:
        expects_positive(top_k=top_k)
    shares = {"top_p": top_p, "min_p": min_p}
    expects_numbers(**{name: x for name, x in shares.items() if x is not None})
    s, m = top_p, min_p
    expects(s is None or 0 < s <= 1, "top_p", s, "None or 0 < top_p ≤ 1")
    expects(m is None or 0 <= m <= 1, "min_p", m, "None or 0 ≤ min_p ≤ 1")


def all_finite(best: Float[Tensor, "..."]) -> bool:
    """Whether the highest score of each text is finite."""
    return all(map(math.isfinite, best.flatten().tolist()))


def expects_finite(best: Float[Tensor, "..."]) -> None:
    """Check that the highest score of each text is finite; ValueError otherwise."""
    wants = "a model whose weights are finite"
    expects(all_finite(best), "model", "scores that are NaN or +∞", wants)


# --- The implementation


def window(
    tokens: Int[Tensor, "*batch n"], max_len: int, start: int | None
) -> Int[Tensor, "*batch m"]:
    """What the model reads: the start marker, if any, then the tokens; of too many
    tokens, the last ones that fit. (T-window)

    ValueError if max_len < 1; TypeError if it is not a whole number.
    """
    expects_positive(max_len=max_len)
    if start is None:
        return tokens[..., -max_len:]
    first = tokens.new_full((*tokens.shape[:-1], 1), start)
    rest = tokens[..., max(0, tokens.shape[-1] - (max_len - 1)) :]
    return torch.cat((first, rest), dim=-1)


@torch.no_grad()
def distribution(
    model: TransformerLM,
    tokens: Int[Tensor, "*batch n"],
    temperature: float = 1.0,
    start: int | None = None,
) -> Float[Tensor, "*batch V"]:
    """P(· | tokens) = softmax(z / τ) in float64, where z is the model's last row for
    `window(tokens)`. (T-next-token)

    Without dropout, whatever the model's mode. ValueError unless τ is finite and > 0,
    if there is nothing to read, and if a score is NaN or +∞ or all are −∞; TypeError for
    tokens that are not a tensor.
    """
    expects_numbers(temperature=temperature)
    fine = 0 < temperature < math.inf
    expects(fine, "temperature", temperature, "a finite number > 0")
    return _tempered(last_scores(model, tokens, start), temperature)


def last_scores(
    model: TransformerLM, tokens: Int[Tensor, "*batch n"], start: int | None
) -> Float[Tensor, "*batch V"]:
    """The model's scores for the token after the last one, in float64, without
    dropout. Errors as in `distribution`, and those of the model.
    """
    expects_kind("tokens", tokens, Tensor, "a tensor of integer tokens")
    with evaluating(model):
        rows = model(window(tokens, model.config.max_len, start))
    z = rows[..., -1, :].double()
    expects_finite(z.amax(-1))
    return z


def _tempered(
    z: Float[Tensor, "*batch V"], temperature: float
) -> Float[Tensor, "*batch V"]:
    """softmax(z / τ), from scores shifted to at most 0, so that no τ is too small."""
    z = z - z.amax(-1, keepdim=True)
    return (z / temperature).softmax(-1)

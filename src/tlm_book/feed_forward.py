"""The feed-forward layer. Generated from book/feed_forward.ipynb: edit the notebook, then `make export`."""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tlm_book.arrays import as_float64
from tlm_book.checks import expects, expects_one_of, expects_positive, expects_shape
from tlm_book.derivation import (
    Derivation,
    Kind,
    compose,
    concat,
    derive,
    primitive,
    register_rule,
)
from tlm_book.inside import Watch

__all__ = [
    "ACTIVATIONS",
    "FeedForward",
    "GATE_ACTIVATIONS",
    "GatedFeedForward",
    "MixtureOfExperts",
]


# --- The activation


# Read-only: `derive` relies on it that each of these acts entry by entry.
ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = MappingProxyType(
    {
        "relu": F.relu,
        "gelu": F.gelu,
        "gelu_tanh": partial(F.gelu, approximate="tanh"),
        "silu": F.silu,
    }
)


# --- The feed-forward layer of a transformer


class FeedForward(nn.Module):
    """FF(X) = φ(XW_1 + 1b_1) W_2 + 1b_2, the same for every row. (W-ff-def)

    x: (*batch, d_model), result of the same shape; `up` holds W_1 and b_1, `down`
    holds W_2 and b_2; without `bias`, only the matrices. ValueError for sizes below
    1, an unknown activation or another width.
    """

    def __init__(
        self, d_model: int, d_ff: int, activation: str = "relu", bias: bool = True
    ) -> None:
        super().__init__()
        expects_positive(d_model=d_model, d_ff=d_ff)
        expects_one_of("activation", activation, tuple(ACTIVATIONS))
        self.up = nn.Linear(d_model, d_ff, bias)
        self.down = nn.Linear(d_ff, d_model, bias)
        self.activation = activation

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        expects_shape("x", x, (self.up.in_features,))
        return self.down(ACTIVATIONS[self.activation](self.up(x)))

    def spec_weights(self) -> dict[str, np.ndarray]:
        """{"W_1", "b_1", "W_2", "b_2"} as float64 arrays, for
        `spec.feed_forward.feed_forward`; a bias that is left out is 0."""
        weights = {}
        for i, layer in ((1, self.up), (2, self.down)):
            bias = (
                torch.zeros(len(layer.weight)) if layer.bias is None else layer.bias
            )
            weights[f"W_{i}"] = as_float64(layer.weight.T)
            weights[f"b_{i}"] = as_float64(bias)
        return weights


# --- The layer in torch


@register_rule(FeedForward)
def _feed_forward(module: FeedForward) -> Derivation:
    activation = primitive(module.activation, Kind.ROWWISE, "entry by entry")
    return compose("FF", derive(module.up), activation, derive(module.down))


# --- Gated layers


GATE_ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = MappingProxyType(
    {**ACTIVATIONS, "sigmoid": torch.sigmoid, "identity": lambda x: x}
)


class GatedFeedForward(nn.Module):
    """(φ(XW_G) ⊙ XW_1) W_2, the same for every row; SwiGLU for φ = silu. (T-gated-ff)

    x: (*batch, d_model), result of the same shape; `gate` holds W_G, `up` W_1 and
    `down` W_2; with `bias`, each also has a bias row. ValueError for sizes below 1, an
    unknown activation or another width.
    """

    def __init__(
        self, d_model: int, d_ff: int, activation: str = "silu", bias: bool = False
    ) -> None:
        super().__init__()
        expects_positive(d_model=d_model, d_ff=d_ff)
        expects_one_of("activation", activation, tuple(GATE_ACTIVATIONS))
        self.gate = nn.Linear(d_model, d_ff, bias)
        self.up = nn.Linear(d_model, d_ff, bias)
        self.down = nn.Linear(d_ff, d_model, bias)
        self.activation = activation

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        expects_shape("x", x, (self.up.in_features,))
        return self.down(
            GATE_ACTIVATIONS[self.activation](self.gate(x)) * self.up(x)
        )

    def spec_weights(self) -> dict[str, np.ndarray]:
        """{"W_G", "W_1", "W_2"}, with biases also {"b_G", "b_1", "b_2"}, as float64
        arrays, for `spec.feed_forward.gated_feed_forward`."""
        layers = {"G": self.gate, "1": self.up, "2": self.down}
        weights = {
            f"W_{i}": as_float64(layer.weight.T) for i, layer in layers.items()
        }
        if self.up.bias is not None:
            weights |= {
                f"b_{i}": as_float64(layer.bias) for i, layer in layers.items()
            }
        return weights


# --- A mixture of experts


class MixtureOfExperts(nn.Module):
    """Each row goes through `n_experts_used` of `n_experts` gated layers; the results
    are weighted by the softmax of the chosen router logits. (T-moe-def)

    x: (*batch, d_model), result of the same shape. `router` holds W_R, and `gate`,
    `up` (n_experts, d_ff, d_model), `down` (n_experts, d_model, d_ff) hold the
    transposed matrices of all experts. The rows are sorted by expert, so that each
    expert runs once. The layer jumps where two logits are equal: rounding may then
    choose another expert. ValueError for sizes below 1, for more experts used
    than there are, for an unknown activation and for another width.
    """

    watch: Watch | None = None  # set while `run_with_cache` looks inside

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        n_experts: int,
        n_experts_used: int = 2,
        activation: str = "silu",
    ) -> None:
        super().__init__()
        expects_positive(d_model=d_model, d_ff=d_ff, n_experts=n_experts)
        expects_positive(n_experts_used=n_experts_used)
        expects(
            n_experts_used <= n_experts,
            "n_experts_used",
            n_experts_used,
            f"at most n_experts = {n_experts}",
        )
        expects_one_of("activation", activation, tuple(GATE_ACTIVATIONS))
        self.n_experts, self.n_experts_used = n_experts, n_experts_used
        self.activation = activation
        self.router = nn.Linear(d_model, n_experts, bias=False)
        self.gate = nn.Parameter(torch.empty(n_experts, d_ff, d_model))
        self.up = nn.Parameter(torch.empty(n_experts, d_ff, d_model))
        self.down = nn.Parameter(torch.empty(n_experts, d_model, d_ff))
        for weight in (self.gate, self.up, self.down):  # as nn.Linear starts
            nn.init.uniform_(
                weight, -(weight.shape[2] ** -0.5), weight.shape[2] ** -0.5
            )

    def route(
        self, x: Float[Tensor, "*batch d"]
    ) -> tuple[Float[Tensor, "*batch k"], Int[Tensor, "*batch k"]]:
        """The weights of the chosen experts of every row, and their numbers."""
        expects_shape("x", x, (self.router.in_features,))
        logits, order = self.router(x).sort(dim=-1, descending=True, stable=True)
        best = logits[..., : self.n_experts_used]
        wide = torch.promote_types(x.dtype, torch.float32)
        return best.softmax(-1, wide).to(x.dtype), order[..., : self.n_experts_used]

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        if self.watch is not None:
            return self._watched(x, self.watch)
        rows = x.reshape(-1, x.shape[-1])
        weights, chosen = self.route(rows)
        choices = chosen.flatten()  # choice c belongs to row c // n_experts_used
        order = choices.argsort(stable=True)
        sizes = choices.bincount(minlength=self.n_experts).tolist()
        parts = rows[order // self.n_experts_used].split(sizes)
        results = torch.cat([self._expert(e, part) for e, part in enumerate(parts)])
        back = results[order.argsort()].view(*chosen.shape, x.shape[-1])
        return (weights.unsqueeze(-1) * back).sum(dim=-2).view_as(x)

    def _expert(self, e: int, x: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
        return F.linear(self._hidden(e, x), self.down[e])

    def _hidden(self, e: int, x: Float[Tensor, "m d"]) -> Float[Tensor, "m f"]:
        gate = GATE_ACTIVATIONS[self.activation](F.linear(x, self.gate[e]))
        return gate * F.linear(x, self.up[e])

    def _watched(
        self, x: Float[Tensor, "*batch d"], watch: Watch
    ) -> Float[Tensor, "*batch d"]:
        """`forward` choice by choice: the hidden layer has the shape (*batch, k, f)."""
        weights, chosen = self.route(x)
        rows = x.unsqueeze(-2).expand(*chosen.shape, -1)  # once for each choice
        hidden = x.new_empty(*chosen.shape, self.gate.shape[1])
        for e in range(self.n_experts):
            made = self._hidden(e, rows[chosen == e])
            hidden[chosen == e] = made.to(hidden.dtype)
        hidden, results = watch("hidden", hidden), torch.empty_like(rows)
        for e in range(self.n_experts):
            made = F.linear(hidden[chosen == e], self.down[e])
            results[chosen == e] = made.to(results.dtype)
        return (weights.unsqueeze(-1) * results).sum(dim=-2)

    def load_balancing_loss(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, ""]:
        """E Σ_e f_e P_e over all rows of x, with f_e the share of the choices that fall
        on expert e, P_e its mean probability. It is 1 when all shares are equal.
        (T-load-balancing) ValueError for no rows."""
        choices = self.route(x)[1].flatten()
        expects(len(choices) > 0, "x", "no rows", "at least one")
        logits = self.router(x).reshape(-1, self.n_experts)
        P = logits.softmax(-1, torch.promote_types(x.dtype, torch.float32)).mean(0)
        share = choices.bincount(minlength=self.n_experts).to(P.dtype) / len(choices)
        return self.n_experts * (share * P).sum()

    def spec_weights(self) -> dict[str, Any]:
        """{"W_R", "experts"} as float64 arrays, the experts a list of {"W_G", "W_1",
        "W_2"}, for `spec.feed_forward.mixture_of_experts`."""
        matrices = zip(
            as_float64(self.gate.mT),
            as_float64(self.up.mT),
            as_float64(self.down.mT),
        )
        experts = [{"W_G": g, "W_1": u, "W_2": d} for g, u, d in matrices]
        return {"W_R": as_float64(self.router.weight.T), "experts": experts}


@register_rule(GatedFeedForward)
def _gated_feed_forward(module: GatedFeedForward) -> Derivation:
    pair = concat("[G, U]", derive(module.gate), derive(module.up))
    gated = primitive(f"{module.activation}(G) ⊙ U", Kind.ROWWISE, "entry by entry")
    return compose("FF", pair, gated, derive(module.down))


@register_rule(MixtureOfExperts)
def _mixture_of_experts(module: MixtureOfExperts) -> Derivation:
    rows = primitive("X", Kind.ROWWISE, "identity")
    experts = primitive(
        f"{module.n_experts_used} of {module.n_experts} experts",
        Kind.ROWWISE,
        "one map for all rows",
    )
    return compose("FF", concat("[X, R]", rows, derive(module.router)), experts)

"""Linear attention. Generated from book/linear_attention.ipynb: edit the notebook, then `make export`."""

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tlm_book.arrays import as_float64
from tlm_book.checks import (
    expects,
    expects_numbers,
    expects_one_of,
    expects_positive,
    expects_shape,
    refuse,
)
from tlm_book.derivation import (
    Derivation,
    Kind,
    compose,
    concat,
    derive,
    primitive,
    register_rule,
)
from tlm_book.spec.linear_attention import RULES

__all__ = [
    "linear_attention",
    "LinearAttention",
]


# --- The layer


def _expects_fitting(
    q: Float[Tensor, "*batch n k"],
    k: Float[Tensor, "*batch n k"],
    v: Float[Tensor, "*batch n v"],
    log_decay: Float[Tensor, "*batch n"],
    strength: Float[Tensor, "*batch n"],
    state: Float[Tensor, "*batch k v"] | None,
) -> None:
    """ValueError unless the shapes are those of `linear_attention`, with a row."""
    expects_shape("q", q, ("n", "k"))
    n, lead = q.shape[-2], tuple(q.shape[:-2])
    expects(n >= 1, "q", "0 rows", "at least one")
    wanted: list[tuple[str, Tensor, tuple[int | str, ...]]] = [
        ("k", k, (*lead, n, q.shape[-1])),
        ("v", v, (*lead, n, "v")),
        ("log_decay", log_decay, (*lead, n)),
        ("strength", strength, (*lead, n)),
    ]
    if state is not None:
        wanted.append(("state", state, (*lead, k.shape[-1], v.shape[-1])))
    for name, t, shape in wanted:
        if t.dim() != len(shape):
            wants = ", ".join(map(str, shape))
            refuse(name, f"shape {tuple(t.shape)}", f"({wants})")
        expects_shape(name, t, shape)


def linear_attention(
    q: Float[Tensor, "*batch n k"],
    k: Float[Tensor, "*batch n k"],
    v: Float[Tensor, "*batch n v"],
    log_decay: Float[Tensor, "*batch n"],
    strength: Float[Tensor, "*batch n"],
    rule: str = "delta",
    state: Float[Tensor, "*batch k v"] | None = None,
    chunk: int = 64,
) -> tuple[Float[Tensor, "*batch n v"], Float[Tensor, "*batch k v"]]:
    """(Y, S_n): the rows that heads read from their states, and the last states.
    (T-linear-state, T-linear-forms)

    log_decay holds the log α ≤ 0 (−∞ for α = 0), strength the β ≥ 0, neither of them
    checked; `rule` is "sum" or "delta"; `state` is what earlier rows have left (None:
    nothing); `chunk` rows are read at once. Y has the type of q, S at least float32.
    ValueError for another rule, for shapes that do not fit and for a chunk below 1.
    """
    _expects_fitting(q, k, v, log_decay, strength, state)
    expects_one_of("rule", rule, RULES)
    expects_positive(chunk=chunk)
    kind = torch.promote_types(q.dtype, torch.float32)
    device = "cpu" if q.is_meta else q.device.type  # torch knows no autocast on meta
    with torch.autocast(device, enabled=False):
        columns = log_decay[..., None], strength[..., None]
        parts = (t.to(kind).split(chunk, -2) for t in (q, k, v, *columns))
        size = (*q.shape[:-2], k.shape[-1], v.shape[-1])
        S = q.new_zeros(size, dtype=kind) if state is None else state.to(kind)
        Y = []
        for Q, K, V, a, b in zip(*parts):
            y, S = _chunk(Q, K, V, a, b, S, rule)
            Y.append(y)
    return torch.cat(Y, -2).to(q.dtype), S


def _chunk(
    Q: Float[Tensor, "*batch c k"],
    K: Float[Tensor, "*batch c k"],
    V: Float[Tensor, "*batch c v"],
    a: Float[Tensor, "*batch c 1"],
    b: Float[Tensor, "*batch c 1"],
    S: Float[Tensor, "*batch k v"],
    rule: str,
) -> tuple[Float[Tensor, "*batch c v"], Float[Tensor, "*batch k v"]]:
    """The rows of a chunk, all at once, and the state after it; `a` are log α."""
    c = a.shape[-2]
    sums = a.expand(*a.shape[:-1], c).tril(-1).cumsum(-2)  # log α_{j+1} + … + log α_i
    G = sums.exp().tril()
    left = a.cumsum(-2).exp()  # of S, at each row
    if rule == "sum":
        U = b * V
    else:
        DT = b * (G * (K @ K.mT)).tril(-1)  # its diagonal is taken to be ones
        DV = b * (V - left * (K @ S))
        U = torch.linalg.solve_triangular(DT, DV, upper=False, unitriangular=True)
    Y = left * (Q @ S) + (G * (Q @ K.mT)) @ U
    return Y, left[..., -1:, :] * S + (G[..., -1:, :].mT * K).mT @ U


class LinearAttention(nn.Module):
    """Heads with a state, side by side: [N(Y_0), …, N(Y_{h−1})] W_O. (T-linear-state)

    Queries and keys are divided by their lengths. α = σ(xW_α + b_α) is at first, for
    x = 0, 1 − 2^(−5−i) in head i; β = max_strength·σ(xW_β + b_β), at first with b_β = 0;
    max_strength is at most 2 (T-delta-rule). N is RMS norm with `eps` and one gain for
    all heads. `rule` is "delta" or "sum"; `d_head` defaults to d_model / n_heads. The
    layer can take the place of the attention of a block:
    `model.blocks[i].attention = LinearAttention(…)`.

    ValueError for sizes that do not fit, for another rule, for a max_strength outside
    (0, 2], for a negative eps, and for an input that has no row or another width than
    d_model.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_head: int | None = None,
        *,
        rule: str = "delta",
        max_strength: float = 1.0,
        eps: float = 1e-6,
    ) -> None:
        super().__init__()
        expects_positive(d_model=d_model, n_heads=n_heads)
        if d_head is None:
            whole = d_model % n_heads == 0
            expects(whole, "n_heads", n_heads, f"a divisor of d_model = {d_model}")
            d_head = d_model // n_heads
        expects_positive(d_head=d_head)
        expects_one_of("rule", rule, RULES)
        expects_numbers(max_strength=max_strength, eps=eps)
        expects(eps >= 0, "eps", eps, "a number ≥ 0")
        fits = 0 < max_strength <= 2
        expects(fits, "max_strength", max_strength, "a number in (0, 2]")
        self.n_heads, self.d_head, self.rule = n_heads, d_head, rule
        self.max_strength = max_strength
        self.qkv = nn.Linear(d_model, 3 * n_heads * d_head, bias=False)
        self.gates = nn.Linear(d_model, 2 * n_heads, bias=False)  # decays, then strengths
        first = [math.log(2 ** (5 + i) - 1) for i in range(n_heads)] + n_heads * [0.0]
        self.gate_bias = nn.Parameter(torch.tensor(first))
        self.norm = nn.RMSNorm(d_head, eps)
        self.out = nn.Linear(n_heads * d_head, d_model, bias=False)

    def read(
        self,
        x: Float[Tensor, "*batch n d"],
        state: Float[Tensor, "*batch h k k"] | None = None,
    ) -> tuple[Float[Tensor, "*batch n d"], Float[Tensor, "*batch h k k"]]:
        """The layer's rows for a text that goes on with x, and the states after it;
        `state` is what `read` returned for the text so far. (T-linear-forms)
        """
        expects_shape("x", x, ("n", self.qkv.in_features))
        heads = self.qkv(x).unflatten(-1, (3, self.n_heads, self.d_head))
        q, k, v = (t.transpose(-3, -2) for t in heads.unbind(-3))  # (*batch, h, n, k)
        kind = torch.promote_types(v.dtype, torch.float32)  # or β|k|² may exceed 2
        q, k = (F.normalize(t.to(kind), dim=-1) for t in (q, k))
        gates = (self.gates(x) + self.gate_bias).to(kind).mT  # (*batch, 2h, n)
        decay, strength = gates.split(self.n_heads, -2)
        decay, strength = F.logsigmoid(decay), self.max_strength * strength.sigmoid()
        y, state = linear_attention(q, k, v, decay, strength, self.rule, state)
        gain = self.norm.weight.to(kind)  # y may be too large for the type of v
        y = F.rms_norm(y, (self.d_head,), gain, self.norm.eps).to(v.dtype)
        return self.out(y.transpose(-3, -2).flatten(-2)), state

    def forward(self, x: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n d"]:
        return self.read(x)[0]

    def spec_weights(self) -> dict[str, np.ndarray]:
        """The weights as float64 arrays, named as in `linear_attention_layer`, the
        specification."""
        h, k = self.n_heads, self.d_head
        W = self.qkv.weight.unflatten(0, (3, h, k)).mT
        kept = dict(zip(("W_Q", "W_K", "W_V"), W))
        kept |= dict(zip(("W_alpha", "W_beta"), self.gates.weight.T.split(h, 1)))
        kept |= dict(zip(("b_alpha", "b_beta"), self.gate_bias.split(h)))
        kept |= {"gain": self.norm.weight, "W_O": self.out.weight.T}
        return {name: as_float64(w) for name, w in kept.items()}


@register_rule(LinearAttention)
def _linear_attention(module: LinearAttention) -> Derivation:
    bias = primitive("bias", Kind.ROWWISE, "one row added to all")
    gates = compose("[α, β]", derive(module.gates), bias)
    rows = concat("[QKV, α, β]", derive(module.qkv), gates)
    why = "read from a state that the rows up to i have made"
    state = primitive("Y", Kind.AUTOREGRESSIVE, why)
    return compose("LA", rows, state, derive(module.norm), derive(module.out))

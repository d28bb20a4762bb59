"""Optimization. Generated from book/optimization.ipynb: edit the notebook, then `make export`."""

import math

import numpy as np
from jaxtyping import Float

from tlm_book.checks import expects, expects_one_of, shaped

Step = tuple[Float[np.ndarray, "N"], Float[np.ndarray, "N"], Float[np.ndarray, "N"]]

__all__ = [
    "Step",
    "sgd",
    "momentum",
    "nesterov",
    "adam",
    "amsgrad",
    "adamw",
    "clip",
    "SCHEDULES",
    "scheduled_rate",
    "noise_scale",
    "newton_schulz",
]


# --- How long a step may be


@shaped
def sgd(
    w: Float[np.ndarray, "N"], g: Float[np.ndarray, "N"], eta: float
) -> Float[np.ndarray, "N"]:
    """w − ηg: a step against the gradient g of the loss or of a batch.
    (T-stable-rate, T-sgd-floor)
    """
    return w - eta * g


# --- Momentum


@shaped
def momentum(
    w: Float[np.ndarray, "N"],
    g: Float[np.ndarray, "N"],
    m: Float[np.ndarray, "N"],
    eta: float,
    beta: float,
) -> tuple[Float[np.ndarray, "N"], Float[np.ndarray, "N"]]:
    """m ← βm + g,  w ← w − ηm: the new (w, m). (T-momentum)"""
    m = beta * m + g
    return w - eta * m, m


@shaped
def nesterov(
    w: Float[np.ndarray, "N"],
    g: Float[np.ndarray, "N"],
    m: Float[np.ndarray, "N"],
    eta: float,
    beta: float,
) -> tuple[Float[np.ndarray, "N"], Float[np.ndarray, "N"]]:
    """m ← βm + g,  w ← w − η(g + βm): the new (w, m). (T-momentum)"""
    m = beta * m + g
    return w - eta * (g + beta * m), m


# --- Adam


@shaped
def adam(
    w: Float[np.ndarray, "N"],
    g: Float[np.ndarray, "N"],
    m: Float[np.ndarray, "N"],
    v: Float[np.ndarray, "N"],
    t: int,
    eta: float,
    betas: tuple[float, float],
    eps: float = 1e-8,
) -> Step:
    """Step number t = 1, 2, … of Adam: the new (w, m, v). (T-adam, T-bias-correction)

    m ← β₁m + (1 − β₁)g,  v ← β₂v + (1 − β₂)g²,  w ← w − η m̂ / (√v̂ + ε)
    with  m̂ = m / (1 − β₁ᵗ), v̂ = v / (1 − β₂ᵗ). ValueError for t = 0.
    """
    expects(t >= 1, "t", t, "at least 1: the first step has the number 1")
    m = betas[0] * m + (1 - betas[0]) * g
    v = betas[1] * v + (1 - betas[1]) * g**2
    m_hat, v_hat = m / (1 - betas[0] ** t), v / (1 - betas[1] ** t)
    return w - eta * _quotient(m_hat, np.sqrt(v_hat) + eps), m, v


@shaped
def amsgrad(
    w: Float[np.ndarray, "N"],
    g: Float[np.ndarray, "N"],
    m: Float[np.ndarray, "N"],
    v: Float[np.ndarray, "N"],
    top: Float[np.ndarray, "N"],
    t: int,
    eta: float,
    betas: tuple[float, float],
    eps: float = 1e-8,
) -> tuple[*Step, Float[np.ndarray, "N"]]:
    """Adam with the largest v so far, `top`, under the root: the new (w, m, v, top).
    (T-adam, T-adam-uphill)

    ValueError for t = 0.
    """
    expects(t >= 1, "t", t, "at least 1: the first step has the number 1")
    m = betas[0] * m + (1 - betas[0]) * g
    v = betas[1] * v + (1 - betas[1]) * g**2
    top = np.maximum(top, v)
    m_hat, top_hat = m / (1 - betas[0] ** t), top / (1 - betas[1] ** t)
    return w - eta * _quotient(m_hat, np.sqrt(top_hat) + eps), m, v, top


def _quotient(a: Float[np.ndarray, "N"], b: Float[np.ndarray, "N"]) -> Float[np.ndarray, "N"]:
    """a / b, where 0/0 is 0."""
    return a / np.where(a == 0, 1.0, b)


# --- Decay is not a penalty


@shaped
def adamw(
    w: Float[np.ndarray, "N"],
    g: Float[np.ndarray, "N"],
    m: Float[np.ndarray, "N"],
    v: Float[np.ndarray, "N"],
    t: int,
    eta: float,
    betas: tuple[float, float],
    decay: float,
    eps: float = 1e-8,
) -> Step:
    """Step number t = 1, 2, … of AdamW: the new (w, m, v). (T-adamw, T-decay)

    Adam's step from (1 − ηλ)w, with the gradient g at w. ValueError for t = 0.
    """
    return adam((1 - eta * decay) * w, g, m, v, t, eta, betas, eps)


# --- Clipping


@shaped
def clip(g: Float[np.ndarray, "N"], c: float) -> Float[np.ndarray, "N"]:
    """g, shortened to length c if it is longer. (T-clip) ValueError unless c ≥ 0."""
    expects(c >= 0, "c", c, "a length ≥ 0")
    length = np.sqrt((g**2).sum())
    return g if length <= c else g * (c / length)


# --- Schedules


SCHEDULES = ("linear", "cosine", "stable")


@shaped
def scheduled_rate(
    t: int,
    T: int,
    warmup: int,
    eta: float,
    end: float,
    schedule: str,
    decay_share: float = 0.2,
) -> float:
    """The rate of step t = 0, …, T − 1: a line up to η in `warmup` steps, then down to
    `end` along a line, half a cosine, or a line in the last `decay_share` only.
    (T-schedules)

    ValueError for another schedule.
    """
    expects_one_of("schedule", schedule, SCHEDULES)
    if t < warmup:
        return eta * (t + 1) / warmup
    a = max(warmup - 1, 0)
    x = (t - a) / max(T - 1 - a, 1)
    if schedule == "linear":
        y = 1 - x
    elif schedule == "cosine":
        y = (1 + math.cos(math.pi * x)) / 2
    else:
        y = min(1.0, (1 - x) / decay_share)
    return end + (eta - end) * y


# --- How large a batch


@shaped
def noise_scale(G: Float[np.ndarray, "k P"]) -> float:
    """tr Σ / ‖g‖², estimated from the gradients of k sequences, the rows of G.
    (T-noise-scale)

    The noise tr Σ / k is subtracted from ‖mean of G‖²; where little else is left, the
    result is large or negative. ValueError for fewer than two rows.
    """
    expects(len(G) >= 2, "G", f"{len(G)} rows", "at least 2 gradients")
    noise = G.var(axis=0, ddof=1).sum()
    return float(noise / ((G.mean(axis=0) ** 2).sum() - noise / len(G)))


# --- For the curious: Muon, a step for matrices


@shaped
def newton_schulz(
    M: Float[np.ndarray, "n m"], steps: int = 5
) -> Float[np.ndarray, "n m"]:
    """Nearly the polar factor of M: X ← aX + bXXᵀX + c(XXᵀ)²X from M / ‖M‖; 0 stays 0.
    (T-newton-schulz)
    """
    X = M / (np.sqrt((M**2).sum()) or 1.0)
    for _ in range(steps):
        A = X @ X.T
        X = 3.4445 * X + (-4.7750 * A + 2.0315 * A @ A) @ X
    return X

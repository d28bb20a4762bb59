"""Training. Generated from book/training.ipynb: edit the notebook, then `make export`."""

import numpy as np
from jaxtyping import Float, Int

__all__ = [
    "bigram_table",
    "clip",
    "adamw",
]


# training: What to beat
def bigram_table(x: Int[np.ndarray, "N"], V: int, D: float) -> Float[np.ndarray, "V V"]:
    """p(b | a) in row a and column b, counted in x, by absolute discounting. (T-bigram)

    Chapter: training.
    """
    C = np.zeros((V, V))
    for a, b in zip(x[:-1], x[1:]):
        C[a, b] += 1
    r, l = (C > 0).sum(axis=1), (C > 0).sum(axis=0)
    q = (l + 1) / (l + 1).sum()
    P = np.tile(q, (V, 1))
    for a in range(V):
        if C[a].sum() > 0:
            P[a] = (np.maximum(C[a] - D, 0) + D * r[a] * q) / C[a].sum()
    return P


# training: One step
def clip(g: Float[np.ndarray, "N"], c: float) -> Float[np.ndarray, "N"]:
    """g, shortened to length c where it is longer. (T-clip)

    Chapter: training.
    """
    length = np.sqrt((g**2).sum())
    return g if length <= c else g * (c / length)


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
) -> tuple[Float[np.ndarray, "N"], Float[np.ndarray, "N"], Float[np.ndarray, "N"]]:
    """Step number t = 1, 2, … of AdamW: the new (w, m, v); before the first, m = v = 0. (T-adamw)

    m ← β₁m + (1 − β₁)g,  v ← β₂v + (1 − β₂)g²,  w ← (1 − ηλ)w − η m̂ / (√v̂ + ε)  with  m̂ = m / (1 − β₁ᵗ), v̂ = v / (1 − β₂ᵗ).

    Chapter: training.
    """
    m = betas[0] * m + (1 - betas[0]) * g
    v = betas[1] * v + (1 - betas[1]) * g**2
    m_hat, v_hat = m / (1 - betas[0] ** t), v / (1 - betas[1] ** t)
    return (1 - eta * decay) * w - eta * m_hat / (np.sqrt(v_hat) + eps), m, v

import numpy as np
from jaxtyping import Float

from tlm_book.checks import expects_one_of

EPS_MODES = ("outside", "inside", "none")


def standardize(x: Float[np.ndarray, "d"], eps: float = 1e-6, eps_mode: str = "outside") -> Float[np.ndarray, "d"]:
    """(x − x̄) / (σ + ε), σ² the mean of (x − x̄)²; "inside" divides by √(σ² + ε), "none" by σ. (W-standardize-def)

    Chapter: normalization.
    """
    expects_one_of("eps_mode", eps_mode, EPS_MODES)
    u = x - x.mean()
    sigma = np.sqrt(np.mean(u**2))
    if eps_mode == "outside":
        return u / (sigma + eps)
    if eps_mode == "inside":
        return u / np.sqrt(sigma**2 + eps)
    return u / sigma


def normalize(
    x: Float[np.ndarray, "d"], a: Float[np.ndarray, "d"], b: Float[np.ndarray, "d"], eps: float = 1e-6, eps_mode: str = "outside"
) -> Float[np.ndarray, "d"]:
    """a ⊙ standardize(x) + b. (W-normalize-def)

    Chapter: normalization.
    """
    return a * standardize(x, eps, eps_mode) + b


def layer_norm(
    X: Float[np.ndarray, "n d"], a: Float[np.ndarray, "d"], b: Float[np.ndarray, "d"], eps: float = 1e-6, eps_mode: str = "outside"
) -> Float[np.ndarray, "n d"]:
    """N(X): every row is normalized with the same a and b. (W-norm-layer)

    Chapter: normalization.
    """
    return np.stack([normalize(x, a, b, eps, eps_mode) for x in X])

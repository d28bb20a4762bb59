from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from tlm_book.spec.decoder_block import decoder_block
from tlm_book.spec.embedding import embed
from tlm_book.spec.normalization import layer_norm
from tlm_book.spec.positional_encoding import add_positions


def final_layer(X: Float[np.ndarray, "n d"], Y: Float[np.ndarray, "d V"], b: Float[np.ndarray, "V"]) -> Float[np.ndarray, "n V"]:
    """Φ(X) = XY + 1b. (W-final-def)

    Chapter: transformer_lm.
    """
    return X @ Y + b


def transformer_lm(
    t: Int[np.ndarray, "n"],
    E: Float[np.ndarray, "V d"],
    P: Float[np.ndarray, "M d"] | None,
    blocks: Sequence[dict[str, dict[str, np.ndarray]]],
    N: dict[str, np.ndarray] | None,
    Y: Float[np.ndarray, "d V"],
    b: Float[np.ndarray, "V"],
    *,
    activation: str = "relu",
    norm: str = "pre",
    variant: str = "sequential",
    eps: float = 1e-6,
    eps_mode: str = "outside",
    scale: float | None = None,
) -> Float[np.ndarray, "n V"]:
    """T_LM = Φ ∘ N ∘ DB_L ∘ … ∘ DB_1 ∘ PE ∘ Em. (W-tlm-def)

    P None leaves PE out, N None leaves the last normalization out (no model of the article, but of other sources).

    Chapter: transformer_lm.
    """
    X = embed(t, E)
    if P is not None:
        X = add_positions(X, P)
    for w in blocks:
        X = decoder_block(X, w, activation, norm, variant, eps, eps_mode, scale)
    if N is not None:
        X = layer_norm(X, **N, eps=eps, eps_mode=eps_mode)
    return final_layer(X, Y, b)

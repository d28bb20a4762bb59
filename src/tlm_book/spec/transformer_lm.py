"""The transformer language model. Generated from book/transformer_lm.ipynb: edit the notebook, then `make export`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from tlm_book.checks import shaped
from tlm_book.spec.decoder_block import decoder_block
from tlm_book.spec.embedding import embed
from tlm_book.spec.normalization import layer_norm, rms_norm
from tlm_book.spec.positional_encoding import add_positions

__all__ = [
    "final_layer",
    "transformer_lm",
]


# --- The final layer


@shaped
def final_layer(
    X: Float[np.ndarray, "n d"],
    Y: Float[np.ndarray, "d V"],
    b: Float[np.ndarray, "V"],
) -> Float[np.ndarray, "n V"]:
    """Φ(X) = XY + 1b. (W-final-def)

    ValueError when X, Y and b do not fit together.

    >>> final_layer(np.ones((1, 2)), np.ones((2, 3)), np.array([0.0, 1.0, 2.0]))
    array([[2., 3., 4.]])
    """
    return X @ Y + b


# --- The model


@shaped
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
    norm_kind: str = "layer",
    feed_forward: str = "plain",
    n_experts_used: int = 2,
    window: int | None = None,
    rotary: dict[str, Any] | None = None,
) -> Float[np.ndarray, "n V"]:
    """T_LM = Φ ∘ N ∘ DB_{L−1} ∘ … ∘ DB_0 ∘ PE ∘ Em. (W-tlm-def, W-tlm-io)

    `blocks` holds the weights of DB_0, …, DB_{L−1}, each as `decoder_block` takes them;
    `N` holds {"a", "b"}, or {"a"} if `norm_kind` is "rms". P = None leaves out PE, and
    N = None leaves out N, as models of other sources do, but not Wojcik's. The last
    five choices are those since Llama, as in `decoder_block`. IndexError for a token
    outside {0, …, V−1}; ValueError for n outside 1 … M and for shapes that do not fit.
    """
    X = embed(t, E) if P is None else add_positions(embed(t, E), P)
    for w in blocks:
        X = decoder_block(
            X, w, activation, norm, variant, eps, eps_mode, scale,
            norm_kind=norm_kind, feed_forward=feed_forward,
            n_experts_used=n_experts_used, window=window, rotary=rotary,
        )  # fmt: skip
    if N is not None and norm_kind == "rms":
        X = rms_norm(X, **N, eps=eps)
    elif N is not None:
        X = layer_norm(X, **N, eps=eps, eps_mode=eps_mode)
    return final_layer(X, Y, b)

"""The decoder block. Generated from book/decoder_block.ipynb: edit the notebook, then `make export`."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from tlm_book.checks import expects_one_of, expects_shape, shaped
from tlm_book.spec.feed_forward import (
    feed_forward,
    gated_feed_forward,
    mixture_of_experts,
)
from tlm_book.spec.multi_head import multi_head
from tlm_book.spec.normalization import layer_norm, rms_norm
from tlm_book.spec.positional_encoding import rotary as rotary_rows

Layer = Callable[[Float[np.ndarray, "n d"]], Float[np.ndarray, "n d"]]

__all__ = [
    "Layer",
    "res",
    "NORMS",
    "NORM_KINDS",
    "VARIANTS",
    "FEED_FORWARDS",
    "decoder_block",
]


# --- Residual layers


@shaped
def res(f: Layer) -> Layer:
    """Res(f)(X) = X + f(X). (W-res-def)

    >>> res(lambda X: 2 * X)(np.ones((1, 2)))
    array([[3., 3.]])
    """

    @shaped
    def layer(X: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        return X + f(X)

    return layer


# --- The block


NORMS = ("pre", "post", "none")
NORM_KINDS = ("layer", "rms")
VARIANTS = ("sequential", "parallel", "simplified")
FEED_FORWARDS: dict[str, Callable[..., Float[np.ndarray, "n d"]]] = {
    "plain": feed_forward,
    "gated": gated_feed_forward,
    "experts": mixture_of_experts,
}


@shaped
def decoder_block(
    X: Float[np.ndarray, "n d"],
    w: Mapping[str, Mapping[str, Any]],
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
    rotary: Mapping[str, Any] | None = None,
) -> Float[np.ndarray, "n d"]:
    """DB = Res(FF ∘ N_ff) ∘ Res(CA ∘ N_ca), Wojcik's block. (W-db-def)

    `w` holds the weights of the four layers: w["N_ca"], w["CA"], w["N_ff"], w["FF"].
    norm="post" puts each N after its sum, "none" leaves both out.
    variant="parallel": X + CA(N_ca(X)) + FF(N_ff(X)); variant="simplified": X +
    FF(N_ff(X + CA(N_ca(X)))) (W-idea-simplified-block). Both variants allow norm
    "pre" or "none". norm_kind="rms" takes RMS norm, whose ε is inside the root
    whatever `eps_mode` is; `feed_forward` is "plain", "gated" or "experts", of which
    each row uses `n_experts_used`. (T-block-2020) Each row sees `window` rows; `rotary`
    holds the "base", "layout" and "scaling" with which queries and keys are turned.
    ValueError for another choice, and for an X of another width than the weights.
    """
    expects_one_of("norm", norm, NORMS)
    expects_one_of("norm_kind", norm_kind, NORM_KINDS)
    expects_one_of("feed_forward", feed_forward, tuple(FEED_FORWARDS))
    expects_one_of(
        "variant", variant, VARIANTS if norm != "post" else ("sequential",)
    )
    expects_shape("X", X, ("n", len(w["CA"]["b_O"])))

    def N(name: str) -> Layer:
        if norm == "none":
            return lambda X: X
        if norm_kind == "rms":
            return lambda X: rms_norm(X, **w[name], eps=eps)
        return lambda X: layer_norm(X, **w[name], eps=eps, eps_mode=eps_mode)

    def CA(X: np.ndarray) -> np.ndarray:
        rotate = None if rotary is None else partial(rotary_rows, **rotary)
        more: dict[str, Any] = {"window": window, "qk_eps": eps, "rotate": rotate}
        return multi_head(X, **w["CA"], causal=True, scale=scale, **more)

    def FF(X: np.ndarray) -> np.ndarray:
        more = {"k": n_experts_used} if feed_forward == "experts" else {}
        layer = FEED_FORWARDS[feed_forward]
        return layer(X, **w["FF"], activation=activation, **more)

    N_ca, N_ff = N("N_ca"), N("N_ff")
    if norm == "post":
        return N_ff(res(FF)(N_ca(res(CA)(X))))
    if variant == "parallel":
        return X + CA(N_ca(X)) + FF(N_ff(X))
    if variant == "simplified":
        return X + FF(N_ff(X + CA(N_ca(X))))
    return res(lambda X: FF(N_ff(X)))(res(lambda X: CA(N_ca(X)))(X))

"""The encoder–decoder. Generated from book/encoder_decoder.ipynb: edit the notebook, then `make export`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from tlm_book.checks import expects_one_of, expects_shape
from tlm_book.spec.embedding import embed
from tlm_book.spec.feed_forward import feed_forward
from tlm_book.spec.multi_head import multi_head_attention
from tlm_book.spec.normalization import layer_norm
from tlm_book.spec.positional_encoding import add_positions

Block = Mapping[str, Mapping[str, Any]]  # layer → name → array
PLACES = ("post", "pre")

__all__ = [
    "Block",
    "PLACES",
    "encoder_block",
    "encoder",
    "cross_block",
    "decoder",
    "encoder_decoder",
]


# --- The encoder


def encoder_block(
    X: Float[np.ndarray, "n d"],
    w: Block,
    norm: str = "post",
    activation: str = "relu",
    eps: float = 1e-5,
    eps_mode: str = "inside",
    scale: float | None = None,
) -> Float[np.ndarray, "n d"]:
    """Z_4 = LN(Z_2 + FF(Z_2)) with Z_2 = LN(X + MultiHead(X, X, X)).
    (A-encoder-block, M-encoder-stack)

    `w` holds w["SA"], w["N_sa"], w["FF"], w["N_ff"]. norm="pre" normalizes what each
    layer reads instead. ValueError for another choice or shapes that do not fit.
    """
    expects_one_of("norm", norm, PLACES)

    def LN(X: np.ndarray, name: str) -> np.ndarray:
        return layer_norm(X, **w[name], eps=eps, eps_mode=eps_mode)

    if norm == "pre":
        X1 = LN(X, "N_sa")
        Z2 = X + multi_head_attention(X1, X1, X1, **w["SA"], scale=scale)
        return Z2 + feed_forward(LN(Z2, "N_ff"), **w["FF"], activation=activation)
    Z1 = multi_head_attention(X, X, X, **w["SA"], scale=scale)
    Z2 = LN(X + Z1, "N_sa")
    Z3 = feed_forward(Z2, **w["FF"], activation=activation)
    Z4 = LN(Z2 + Z3, "N_ff")
    return Z4


def encoder(
    X: Float[np.ndarray, "n d"], blocks: Sequence[Block], **settings: Any
) -> Float[np.ndarray, "n d"]:
    """X⁽ᴺ⁾ with X⁽ⁱ⁾ = block i of X⁽ⁱ⁻¹⁾. (M-encoder-stack, A-block-index)

    `settings` as in `encoder_block`.
    """
    for w in blocks:
        X = encoder_block(X, w, **settings)
    return X


# --- The decoder


def cross_block(
    Y: Float[np.ndarray, "m d"],
    memory: Float[np.ndarray, "n d"],
    w: Block,
    norm: str = "post",
    activation: str = "relu",
    eps: float = 1e-5,
    eps_mode: str = "inside",
    scale: float | None = None,
) -> Float[np.ndarray, "m d"]:
    """Z_6 of the decoder block: masked self-attention, cross-attention to the memory,
    feed-forward layer. (A-decoder-block, M-decoder-stack)

    `w` holds w["SA"], w["N_sa"], w["CA"], w["N_ca"], w["FF"], w["N_ff"]. norm="pre"
    normalizes what each layer reads instead; the memory is read as it is. ValueError
    for another choice or shapes that do not fit.
    """
    expects_one_of("norm", norm, PLACES)

    def LN(X: np.ndarray, name: str) -> np.ndarray:
        return layer_norm(X, **w[name], eps=eps, eps_mode=eps_mode)

    def SA(Y: np.ndarray) -> np.ndarray:
        return multi_head_attention(Y, Y, Y, **w["SA"], causal=True, scale=scale)

    def CA(Z: np.ndarray) -> np.ndarray:
        return multi_head_attention(Z, memory, memory, **w["CA"], scale=scale)

    def FF(Z: np.ndarray) -> np.ndarray:
        return feed_forward(Z, **w["FF"], activation=activation)

    if norm == "pre":
        Z2 = Y + SA(LN(Y, "N_sa"))
        Z4 = Z2 + CA(LN(Z2, "N_ca"))
        return Z4 + FF(LN(Z4, "N_ff"))
    Z1 = SA(Y)
    Z2 = LN(Y + Z1, "N_sa")
    Z3 = CA(Z2)
    Z4 = LN(Z2 + Z3, "N_ca")
    Z5 = FF(Z4)
    Z6 = LN(Z4 + Z5, "N_ff")
    return Z6


def decoder(
    Y: Float[np.ndarray, "m d"],
    memory: Float[np.ndarray, "n d"],
    blocks: Sequence[Block],
    **settings: Any,
) -> Float[np.ndarray, "m d"]:
    """N decoder blocks, one after another, all with the same memory. (M-decoder-stack)
    """
    for w in blocks:
        Y = cross_block(Y, memory, w, **settings)
    return Y


# --- The model


def encoder_decoder(
    source: Int[np.ndarray, "n"],
    target: Int[np.ndarray, "m"],
    w: Mapping[str, Any],
    embed_scale: float = 1.0,
    **settings: Any,
) -> Float[np.ndarray, "m V"]:
    """decoder(c·E_t[t] + P, encoder(c·E_s[s] + P)) U + 1u: scores of the next target
    tokens. (M-onehot-output)

    `w` holds E_s, E_t, P (None: no positions), the lists "encoder" and "decoder" of
    blocks, U, u, and N_encoder, N_decoder (None: no last normalization). `settings` as
    in `encoder_block`. IndexError for a token outside the vocabulary; ValueError for an
    empty or too long sequence.
    """
    ends = {name: settings[name] for name in ("eps", "eps_mode") if name in settings}
    rows = []
    for tokens, E in ((source, w["E_s"]), (target, w["E_t"])):
        X = embed_scale * embed(tokens, E)
        rows.append(X if w["P"] is None else add_positions(X, w["P"]))
    memory = encoder(rows[0], w["encoder"], **settings)
    if w["N_encoder"] is not None:
        memory = layer_norm(memory, **w["N_encoder"], **ends)
    Z = decoder(rows[1], memory, w["decoder"], **settings)
    if w["N_decoder"] is not None:
        Z = layer_norm(Z, **w["N_decoder"], **ends)
    expects_shape("U", w["U"], (Z.shape[1], "V"))
    return Z @ w["U"] + w["u"]

"""The encoder–decoder. Generated from book/encoder_decoder.ipynb: edit the notebook, then `make export`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from tlm_book.checks import expects, expects_one_of, expects_shape, shaped
from tlm_book.spec.embedding import embed
from tlm_book.spec.feed_forward import feed_forward
from tlm_book.spec.multi_head import multi_head_attention
from tlm_book.spec.normalization import layer_norm
from tlm_book.spec.positional_encoding import add_positions

Block = Mapping[str, Mapping[str, Any]]  # layer → name → array

__all__ = [
    "Block",
    "encoder_block",
    "encoder",
    "cross_block",
    "decoder",
    "encoder_decoder",
]


# --- The encoder


@shaped
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

    `w` holds w["SA"], w["N_sa"], w["FF"], w["N_ff"]. norm="pre" instead normalizes what
    each layer reads. ValueError for another choice or shapes that do not fit.
    """
    expects_one_of("norm", norm, ("post", "pre"))
    MultiHead = lambda X: multi_head_attention(X, X, X, **w["SA"], scale=scale)
    FF = lambda X: feed_forward(X, **w["FF"], activation=activation)
    LN = lambda X, name: layer_norm(X, **w[name], eps=eps, eps_mode=eps_mode)

    if norm == "pre":
        Z2 = X + MultiHead(LN(X, "N_sa"))
        return Z2 + FF(LN(Z2, "N_ff"))
    Z2 = LN(X + MultiHead(X), "N_sa")
    return LN(Z2 + FF(Z2), "N_ff")


@shaped
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


@shaped
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
    instead normalizes what each layer reads; the memory is read as it is. ValueError
    for another choice or shapes that do not fit.
    """
    expects_one_of("norm", norm, ("post", "pre"))
    SA = lambda Y: multi_head_attention(Y, Y, Y, **w["SA"], causal=True, scale=scale)
    CA = lambda Z: multi_head_attention(Z, memory, memory, **w["CA"], scale=scale)
    FF = lambda Z: feed_forward(Z, **w["FF"], activation=activation)
    LN = lambda X, name: layer_norm(X, **w[name], eps=eps, eps_mode=eps_mode)

    if norm == "pre":
        Z2 = Y + SA(LN(Y, "N_sa"))
        Z4 = Z2 + CA(LN(Z2, "N_ca"))
        return Z4 + FF(LN(Z4, "N_ff"))
    Z2 = LN(Y + SA(Y), "N_sa")
    Z4 = LN(Z2 + CA(Z2), "N_ca")
    return LN(Z4 + FF(Z4), "N_ff")


@shaped
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


@shaped
def encoder_decoder(
    source: Int[np.ndarray, "n"],
    target: Int[np.ndarray, "m"],
    w: Mapping[str, Any],
    embed_scale: float | None = None,
    eps: float = 1e-5,
    eps_mode: str = "inside",
    **settings: Any,
) -> Float[np.ndarray, "m V"]:
    """decoder(c·E_t[t] + P, encoder(c·E_s[s] + P)) U + 1u: scores of the next target
    tokens. (M-onehot-output)

    `w` holds E_s, E_t, P (None: no positions), the lists "encoder" and "decoder" of
    blocks, U, u, and N_encoder, N_decoder (None: no last normalization). c is
    `embed_scale`, √d when it is None; the other settings as in `encoder_block`, also
    for the last normalizations. IndexError for a token outside the vocabulary;
    ValueError for an empty or too long sequence.
    """
    inside: dict[str, Any] = {"eps": eps, "eps_mode": eps_mode}

    def rows(tokens: Int[np.ndarray, "n"], E: Any) -> Float[np.ndarray, "n d"]:
        factor = np.sqrt(E.shape[1]) if embed_scale is None else embed_scale
        X = factor * embed(tokens, E)
        return X if w["P"] is None else add_positions(X, w["P"])

    def last(X: Float[np.ndarray, "n d"], name: str) -> Float[np.ndarray, "n d"]:
        return X if w[name] is None else layer_norm(X, **w[name], **inside)

    memory = encoder(rows(source, w["E_s"]), w["encoder"], **inside, **settings)
    memory = last(memory, "N_encoder")
    Z = decoder(rows(target, w["E_t"]), memory, w["decoder"], **inside, **settings)
    expects_shape("U", w["U"], (Z.shape[1], "V"))
    got, V = f"shape {w['u'].shape}", w["U"].shape[1]
    expects(w["u"].shape == (V,), "u", got, f"({V},)")
    return last(Z, "N_decoder") @ w["U"] + w["u"]

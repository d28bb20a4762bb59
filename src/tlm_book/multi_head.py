"""Several heads at once: multi-head attention. Generated from book/multi_head.ipynb: edit the notebook, then `make export`."""

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from tlm_book.arrays import as_float64
from tlm_book.attention import attention as fused_attention
from tlm_book.checks import expects, expects_mask, expects_positive, expects_shape
from tlm_book.derivation import (
    Derivation,
    Kind,
    compose,
    concat,
    derive,
    pattern,
    primitive,
    product,
    register_rule,
)
from tlm_book.inside import Watch
from tlm_book.operators import causal_mask


def _head_width(d_model: int, n_heads: int, d_head: int | None, g: int) -> int:
    """d_head, by default d_model / n_heads, for g heads of keys and values."""
    expects_positive(d_model=d_model, n_heads=n_heads, n_kv_heads=g)
    if d_head is None:
        whole = d_model % n_heads == 0
        expects(whole, "n_heads", n_heads, f"a divisor of d_model = {d_model}")
        d_head = d_model // n_heads
    expects_positive(d_head=d_head)
    expects(n_heads % g == 0, "n_kv_heads", g, f"a divisor of n_heads = {n_heads}")
    return d_head


def _expects_settings(causal: bool, scale: float | None, window: int | None) -> None:
    expects(scale is None or scale > 0, "scale", scale, "None or a number > 0")
    if window is not None:
        expects_positive(window=window)
        expects(causal, "window", window, "None without the mask")

__all__ = [
    "MultiHeadAttention",
    "fuse_heads",
    "split_heads",
    "CrossAttention",
    "windowed_attention",
]


# --- Definition


class MultiHeadAttention(nn.Module):
    """CA(X) = [H_0(X), …, H_{h−1}(X)] W_O + 1b_O, all heads in one pass. (W-mh-def)

    `d_head` defaults to d_model / n_heads, and then n_heads must divide d_model
    (ValueError otherwise). `qkv_bias` and `out_bias`: whether queries, keys, values
    and the output have bias rows. `scale` replaces 1/√d_head and must be positive;
    without `causal` there is no mask. `n_kv_heads`, a divisor of n_heads, is the
    number of heads that keys and values have. (T-grouped-query) With a `window`, row i
    sees rows i − window + 1, …, i. (T-sliding-window) With `qk_norm`, queries and keys
    are normalized, head by head. (T-qk-norm) Finally, `rotary` maps queries and keys,
    each of shape (*batch, heads, n, d_head). ValueError for a window without `causal`,
    and for an input that has no row or another width than d_model.
    """

    watch: Watch | None = None  # set while `run_with_cache` looks inside

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_head: int | None = None,
        qkv_bias: bool = False,
        out_bias: bool = True,
        causal: bool = True,
        scale: float | None = None,
        *,
        n_kv_heads: int | None = None,
        window: int | None = None,
        qk_norm: bool = False,
        qk_eps: float = 1e-6,
        rotary: nn.Module | None = None,
    ) -> None:
        super().__init__()
        g = n_heads if n_kv_heads is None else n_kv_heads
        d_head = _head_width(d_model, n_heads, d_head, g)
        _expects_settings(causal, scale, window)
        self.n_heads, self.n_kv_heads, self.d_head = n_heads, g, d_head
        self.causal, self.scale, self.window = causal, scale, window
        # its weight is fuse_heads of all heads
        self.qkv = nn.Linear(d_model, (n_heads + 2 * g) * d_head, bias=qkv_bias)
        self.out = nn.Linear(n_heads * d_head, d_model, bias=out_bias)
        self.query_norm = nn.RMSNorm(d_head, qk_eps) if qk_norm else None
        self.key_norm = nn.RMSNorm(d_head, qk_eps) if qk_norm else None
        self.rotary = rotary

    def _queries_keys_values(
        self, x: Float[Tensor, "*batch n d"]
    ) -> tuple[
        Float[Tensor, "*batch h n k"],
        Float[Tensor, "*batch g n k"],
        Float[Tensor, "*batch g n k"],
    ]:
        if x.dim() < 2 or x.shape[-1] != self.qkv.in_features:
            expects_shape("x", x, ("n", self.qkv.in_features))
        h, g = self.n_heads, self.n_kv_heads
        qkv = self.qkv(x).view(*x.shape[:-1], h + 2 * g, self.d_head)
        # three views: nothing is copied, and one copy joins their gradients
        q, k, v = (part.transpose(-3, -2) for part in qkv.split((h, g, g), -2))
        if self.query_norm is not None and self.key_norm is not None:
            norms = (self.query_norm, q), (self.key_norm, k)
            # in the type of its gain, which autocast leaves as it is
            q, k = (norm(t.to(norm.weight.dtype)).to(t.dtype) for norm, t in norms)
        if self.rotary is not None:
            q, k = self.rotary(q), self.rotary(k)
        return q, k, v

    def forward(self, x: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n d"]:
        q, k, v = self._queries_keys_values(x)  # (*batch, h, n, k)
        if self.watch is not None:
            q, k, v = map(self.watch, ("queries", "keys", "values"), (q, k, v))
            A = self._weights(q, k, self.watch)
            heads = self.watch("heads", A @ self._for_all_heads(v))
        elif self.window is None:
            heads = fused_attention(q, k, v, self.causal, self.scale)
        else:
            heads = windowed_attention(q, k, v, self.window, self.scale)
        # heads side by side: (*batch, n, h·k)
        return self.out(heads.transpose(-3, -2).flatten(-2))

    def attention_weights(
        self, x: Float[Tensor, "*batch n d"]
    ) -> Float[Tensor, "*batch h n n"]:
        """The attention weights of every head for this input."""
        q, k, _ = self._queries_keys_values(x)
        return self._weights(q, k, Watch())

    def _for_all_heads(
        self, k: Float[Tensor, "*batch g n k"]
    ) -> Float[Tensor, "*batch h n k"]:
        return k.repeat_interleave(self.n_heads // self.n_kv_heads, dim=-3)

    @property
    def score_scale(self) -> float:
        """The factor of the scores: `scale`, by default 1/√d_head."""
        return self.d_head**-0.5 if self.scale is None else self.scale

    def _weights(
        self,
        q: Float[Tensor, "*batch h n k"],
        k: Float[Tensor, "*batch g n k"],
        watch: Watch,
    ) -> Float[Tensor, "*batch h n n"]:
        products = q @ self._for_all_heads(k).mT
        scores = watch("scores", self.score_scale * products)
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device)
        if self.causal:
            seen = seen.tril().triu(1 - (self.window or len(seen)))
        masked = watch("masked_scores", scores.masked_fill(~seen, -torch.inf))
        return watch("weights", masked.softmax(-1))

    def spec_weights(self) -> dict[str, np.ndarray]:
        """{"W_Q", "W_K", "W_V", "W_O", "b_O"} (and "b_Q", "b_K", "b_V", and "qk_gain")
        as float64 copies, for `spec.multi_head.multi_head`."""
        h, g, W_O = self.n_heads, self.n_kv_heads, self.out.weight.T
        W_Q, W_K, W_V = split_heads(self.qkv.weight, h, g)
        b_O = W_O.new_zeros(W_O.shape[1]) if self.out.bias is None else self.out.bias
        named = {"W_Q": W_Q, "W_K": W_K, "W_V": W_V, "W_O": W_O, "b_O": b_O}
        if self.qkv.bias is not None:
            b = self.qkv.bias.unflatten(0, (h + 2 * g, self.d_head))
            named |= dict(zip(("b_Q", "b_K", "b_V"), b.split((h, g, g))))
        if self.query_norm is not None and self.key_norm is not None:
            gains = self.query_norm.weight, self.key_norm.weight
            named["qk_gain"] = torch.stack(gains)
        return {
            k: as_float64(w) for k, w in named.items()
        }


# --- The implementation


def fuse_heads(
    W_Q: Float[Tensor, "h d k"],
    W_K: Float[Tensor, "g d k"],
    W_V: Float[Tensor, "g d k"],
) -> Float[Tensor, "rows d"]:
    """W_Q[i], W_K[i], W_V[i] of every head as the weight of one linear layer with
    (h + 2g)·k rows: the inverse of `split_heads`.

    Rows in the order: every W_Q[i]ᵀ, then every W_K[i]ᵀ, then every W_V[i]ᵀ.
    (W-mh-weights) ValueError for shapes that do not fit.
    """
    expects_shape("W_Q", W_Q, ("h", "d", "k"))
    expects(W_Q.dim() == 3, "W_Q", f"shape {tuple(W_Q.shape)}", "(h, d, k)")
    g, (_, d, k) = len(W_K), W_Q.shape
    fits = g >= 1 and len(W_Q) % g == 0
    expects(fits, "W_K", f"{g} heads", f"a divisor of {len(W_Q)}")
    for name, W in (("W_K", W_K), ("W_V", W_V)):
        expects_shape(name, W, (g, d, k))
    return torch.cat([W.mT.flatten(0, 1) for W in (W_Q, W_K, W_V)])


def split_heads(
    weight: Float[Tensor, "rows d"], n_heads: int, n_kv_heads: int | None = None
) -> tuple[Float[Tensor, "h d k"], Float[Tensor, "g d k"], Float[Tensor, "g d k"]]:
    """The matrices W_Q[i], W_K[i], W_V[i] in the weight of one linear layer: the
    inverse of `fuse_heads`. (W-mh-weights)

    ValueError when n_heads + 2·n_kv_heads does not divide the number of rows.
    """
    g = n_heads if n_kv_heads is None else n_kv_heads
    expects_positive(n_heads=n_heads, n_kv_heads=g)
    expects(
        len(weight) % (n_heads + 2 * g) == 0,
        "weight",
        f"{len(weight)} rows",
        f"a multiple of n_heads + 2·n_kv_heads = {n_heads + 2 * g}",
    )
    W = weight.unflatten(0, (n_heads + 2 * g, -1)).mT
    W_Q, W_K, W_V = W.split((n_heads, g, g))
    return W_Q, W_K, W_V


# --- Two sequences


class CrossAttention(nn.Module):
    """[head_0, …, head_{h−1}] W_O + 1b_O: queries from x, keys and values from memory.
    (A-def-4.2, T-padding)

    `d_key` defaults to d_model / n_heads, which must then be whole; `d_value` to
    `d_key`. x: (*batch, m, d_model), memory: (*batch, n, d_model), key_mask: (*batch, n)
    with True for real rows of the memory. With `causal`, row i sees rows 0 … i of the
    memory. Result (*batch, m, d_model). ValueError for sizes or shapes that do not fit,
    TypeError for a mask of numbers.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_key: int | None = None,
        d_value: int | None = None,
        qkv_bias: bool = False,
        out_bias: bool = True,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        expects_positive(d_model=d_model, n_heads=n_heads)
        if d_key is None:
            whole = d_model % n_heads == 0
            expects(whole, "n_heads", n_heads, f"a divisor of d_model = {d_model}")
            d_key = d_model // n_heads
        d_value = d_key if d_value is None else d_value
        expects_positive(d_key=d_key, d_value=d_value)
        expects(scale is None or scale > 0, "scale", scale, "None or a number > 0")
        self.n_heads, self.scale = n_heads, scale
        self.query = nn.Linear(d_model, n_heads * d_key, bias=qkv_bias)
        self.key = nn.Linear(d_model, n_heads * d_key, bias=qkv_bias)
        self.value = nn.Linear(d_model, n_heads * d_value, bias=qkv_bias)
        self.out = nn.Linear(n_heads * d_value, d_model, bias=out_bias)

    def _heads(
        self, rows: Float[Tensor, "*batch n hk"]
    ) -> Float[Tensor, "*batch h n k"]:
        return rows.unflatten(-1, (self.n_heads, -1)).transpose(-3, -2)

    def keys_values(
        self, memory: Float[Tensor, "*batch n d"]
    ) -> tuple[Float[Tensor, "*batch h n k"], Float[Tensor, "*batch h n v"]]:
        """The keys and values of a memory, which may be kept for later rows of x."""
        expects_shape("memory", memory, ("n", self.key.in_features))
        return self._heads(self.key(memory)), self._heads(self.value(memory))

    def forward(
        self,
        x: Float[Tensor, "*batch m d"],
        memory: Float[Tensor, "*batch n d"],
        key_mask: Bool[Tensor, "*batch n"] | None = None,
        causal: bool = False,
    ) -> Float[Tensor, "*batch m d"]:
        return self.attend(x, *self.keys_values(memory), key_mask, causal)

    def attend(
        self,
        x: Float[Tensor, "*batch m d"],
        keys: Float[Tensor, "*batch h n k"],
        values: Float[Tensor, "*batch h n v"],
        key_mask: Bool[Tensor, "*batch n"] | None = None,
        causal: bool = False,
    ) -> Float[Tensor, "*batch m d"]:
        """The same as `forward`, from keys and values that `keys_values` returned."""
        A = self._weights(x, keys, key_mask, causal)
        return self.out((A @ values).transpose(-3, -2).flatten(-2))

    def attention_weights(
        self,
        x: Float[Tensor, "*batch m d"],
        memory: Float[Tensor, "*batch n d"],
        key_mask: Bool[Tensor, "*batch n"] | None = None,
        causal: bool = False,
    ) -> Float[Tensor, "*batch h m n"]:
        """The attention weights of every head."""
        return self._weights(x, self.keys_values(memory)[0], key_mask, causal)

    def _weights(
        self,
        x: Float[Tensor, "*batch m d"],
        keys: Float[Tensor, "*batch h n k"],
        key_mask: Bool[Tensor, "*batch n"] | None,
        causal: bool,
    ) -> Float[Tensor, "*batch h m n"]:
        expects_shape("x", x, ("m", self.query.in_features))
        scale = keys.shape[-1] ** -0.5 if self.scale is None else self.scale
        scores = scale * self._heads(self.query(x)) @ keys.mT  # (*batch, h, m, n)
        if key_mask is not None:
            shape = (*keys.shape[:-3], keys.shape[-2])
            expects_mask("key_mask", key_mask, shape)
            hidden = ~key_mask[..., None, None, :]
            scores = scores.masked_fill(hidden, float("-inf"))
        if causal:
            scores = causal_mask(scores)
        weights = scores.softmax(-1)
        if key_mask is not None:  # a row that sees nothing gets 0, not 0/0
            weights = weights.masked_fill(
                (scores == float("-inf")).all(-1, keepdim=True), 0.0
            )
        return weights

    def spec_weights(self) -> dict[str, np.ndarray]:
        """The weights as float64, for `spec.multi_head.multi_head_attention`."""
        named = {"W_O": self.out.weight.T}
        if self.out.bias is not None:
            named["b_O"] = self.out.bias
        for letter, layer in (("Q", self.query), ("K", self.key), ("V", self.value)):
            named[f"W_{letter}"] = layer.weight.unflatten(0, (self.n_heads, -1)).mT
            if layer.bias is not None:
                named[f"b_{letter}"] = layer.bias.unflatten(0, (self.n_heads, -1))
        return {
            k: as_float64(w) for k, w in named.items()
        }


def _listed(name: str, h: int) -> str:
    names = [f"{name}{i}" for i in range(h)]
    return ", ".join(names if h < 4 else [names[0], "…", names[-1]])


@register_rule(MultiHeadAttention)
def _multi_head_attention(module: MultiHeadAttention) -> Derivation:
    if not module.causal:
        return primitive("MultiHeadAttention", Kind.UNPROVED, "no causal mask")
    h, rows = module.n_heads, derive(module.qkv)

    def made(name: str, norm: nn.Module | None) -> Derivation:
        steps = [derive(part) for part in (norm, module.rotary) if part is not None]
        return compose(name, rows, *steps) if steps else rows

    scores = "softmax(◺(Q_iK_iᵀ)·scale)"
    if module.window is not None:
        scores += f", {module.window} rows each"
    queries, keys = made("Q_i", module.query_norm), made("K_i", module.key_norm)
    head = product(
        f"H_i for i = {_listed('', h)}", pattern(scores, queries, keys), rows
    )
    return compose("CA", concat(f"[{_listed('H_', h)}]", head), derive(module.out))


# --- A window


def windowed_attention(
    q: Float[Tensor, "*batch h n k"],
    k: Float[Tensor, "*batch g n k"],
    v: Float[Tensor, "*batch g n v"],
    window: int,
    scale: float | None = None,
) -> Float[Tensor, "*batch h n v"]:
    """Attention in which row i sees only rows i − window + 1, …, i. (T-sliding-window)

    Each piece of `window` queries meets its own keys and those of the piece before, so
    the cost grows with n·window; for a text shorter than two pieces, one mask is
    enough. ValueError as for `attention`, and for a q without an axis of heads.
    """
    n, w = q.shape[-2], window
    expects_positive(window=window)
    expects_shape("q", q, ("h", "n", "k"))
    expects_shape("k", k, (n, None))
    expects_shape("v", v, (n, None))
    if n <= w:
        return fused_attention(q, k, v, True, scale)
    ones = lambda n, m: torch.ones(n, m, dtype=torch.bool, device=q.device)
    if n < 2 * w:
        mask = ones(n, n).tril().triu(1 - w)
        return fused_attention(q, k, v, False, scale, mask)
    q_0, k_0, v_0 = (t[..., :w, :] for t in (q, k, v))
    first = fused_attention(q_0, k_0, v_0, True, scale)
    pieces = -(-n // w)
    q, k, v = (F.pad(t, (0, 0, 0, pieces * w - n)) for t in (q, k, v))
    # pieces become a leading axis: (*batch, pieces − 1, heads, w or 2w, width)
    q = q[..., w:, :].unflatten(-2, (-1, w)).transpose(-4, -3)
    k, v = (t.unfold(-2, 2 * w, w).mT.transpose(-4, -3) for t in (k, v))
    mask = ones(w, 2 * w).tril(w).triu(1)
    rest = fused_attention(q, k, v, False, scale, mask)
    rest = rest.transpose(-4, -3).flatten(-3, -2)[..., : n - w, :]
    return torch.cat([first, rest], dim=-2)

"""How many numbers a model holds, without building it. Generated from book/transformer_lm.ipynb: edit the notebook, then `make export`."""

from tlm_book.transformer_lm.presets import Config, expects_config

__all__ = [
    "count_parameters",
]


# --- How many numbers


def count_parameters(config: Config, active: bool = False) -> int:
    """How many numbers training may change, by formula, without building the model.
    (W-tlm-params, T-family-count)

    For Wojcik's: Vd + Md + L(4d² + 2d·d_ff + d_ff + 6d) + 2d + dV + V. With `active`,
    only as many experts count as a row uses. TypeError for anything but a Config.

    >>> count_parameters(Config.gpt2())
    124439808
    """
    c = expects_config(config)
    V, d, f, L, M = c.vocab_size, c.d_model, c.d_ff, c.n_layers, c.max_len
    k = c.head_width
    hk, gk = c.n_heads * k, c.kv_heads * k
    norm = d if c.norm_kind == "rms" else 2 * d
    qkv = (d + c.qkv_bias) * (hk + 2 * gk) + 2 * k * c.qk_norm
    attention = qkv + hk * d + d * c.out_bias
    inner = 2 if c.gated else 1  # matrices from d to f
    feed_forward = inner * (d + c.ff_bias) * f + (f + c.ff_bias) * d
    if c.n_experts is not None:
        used = c.n_experts_used if active else c.n_experts
        feed_forward = used * feed_forward + d * c.n_experts
    positions = M * d * (c.pe in ("learned", "learned_from_sinusoid"))
    unembedding = d * V * (not c.tied) + V * c.unembed_bias
    return (
        V * d
        + positions
        + L * (attention + feed_forward + 2 * norm * (c.norm != "none"))
        + norm * c.final_norm
        + unembedding
    )

"""A model alive on a page: tokens, attention and the next token's probabilities at every key. Written by hand."""

import html
from collections.abc import Mapping
from typing import Any

import traitlets

from tlm_book.checks import expects
from tlm_book.viewer.base import (
    Picture,
    expects_between,
    module,
    shown_title,
    visible,
)
from tlm_book.viewer.playground.pack import pack

__all__ = ["Playground", "playground"]

MOST_WEIGHTS = 8_000_000  # some 11 MB on the page
LONGEST = 256  # tokens that the page computes with
LOWEST, HIGHEST = 0.1, 10.0  # of the temperature


class Playground(Picture):
    """The picture that `playground` returns. The reader's choices: `text`, `temperature`, `top_k`, `top_p`, `causal`, and `off`, the heads that are
    switched off, as "block.head".
    """

    _esm = module("playground", "../sampling/choice", "tokens", "model")
    _word = "playground"
    text = traitlets.Unicode("").tag(sync=True, picture=True)
    temperature = traitlets.Float(0.8).tag(sync=True, picture=True)
    top_k = traitlets.Int(1).tag(sync=True, picture=True)
    top_p = traitlets.Float(1.0).tag(sync=True, picture=True)
    causal = traitlets.Bool(True).tag(sync=True, picture=True)
    off = traitlets.List(traitlets.Unicode()).tag(sync=True, picture=True)
    seed = traitlets.Int(0).tag(sync=True, picture=True)

    @traitlets.validate("temperature", "top_k", "top_p")
    def _in_range(self, proposal: Mapping[str, Any]) -> float:
        name = proposal["trait"].name
        got: float = proposal["value"]
        low, high = {"temperature": (LOWEST, HIGHEST), "top_k": (1, len(self.data["vocabulary"]["texts"])), "top_p": (0.01, 1.0)}[name]
        expects(low <= got <= high, name, got, f"a number from {low} to {high}")
        return got

    @traitlets.validate("off")
    def _heads(self, proposal: Mapping[str, Any]) -> list[str]:
        L, h = self.data["blocks"], self.data["heads"]
        known = {f"{block}.{head}" for block in range(L) for head in range(h)}
        for name in proposal["value"]:
            expects(name in known, "off", repr(name), f'"block.head" with blocks from 0 to {L - 1} and heads from 0 to {h - 1}')
        return list(proposal["value"])

    def __repr__(self) -> str:
        data = self.data
        return f"<playground: {data['blocks']} blocks of {data['heads']} heads, {len(data['vocabulary']['texts'])} tokens>"

    def _fallback(self) -> str:
        return f"<p>{html.escape(self.data['title'] or 'A language model.')} With scripts, this page computes it while you type.</p><pre>{html.escape(self.text)}</pre>"


def playground(
    model: Any,
    tokenizer: Any,
    text: str = "",
    *,
    temperature: float = 0.8,
    top_k: int | None = None,
    top_p: float = 1.0,
    seed: int = 0,
    title: str | None = None,
) -> Playground:
    """The model, computed on the page itself at every key: its tokens, the attention of each head, what comes next, and what each block makes of it.

    model        a `TransformerLM` of at most 8 million weights. Its matrices are rounded to 8 bits, so the page's scores differ a little from the model's.
    tokenizer    a `Tokenizer` with the model's vocabulary.
    text         what stands there at first.
    temperature, top_k, top_p   of writing; None keeps all tokens.
    seed         of the draws, from 0 to 2³² − 1: s ← 1664525·s + 1013904223 modulo 2³², u = s / 2³²; the token is `quantiles` of u.
    title        a line above.

    A press on a head switches it off: it adds nothing to the residual stream. Without the mask, every row sees all others. The logit lens reads the
    residual stream after each block as if it were the last. Of a text that is longer than the model, or than 256 tokens, the end is computed.
    TypeError and ValueError for another kind of model or tokenizer, one too large, and choices outside their range.
    """
    title = shown_title(title)
    _expects_model(model, tokenizer)
    expects(isinstance(text, str), "text", type(text).__name__, "a str", TypeError)
    expects_between("temperature", temperature, LOWEST, HIGHEST)
    expects_between("top_p", top_p, 0.01, 1.0)
    expects_between("seed", seed, 0, 2**32 - 1, whole=True)
    k = len(tokenizer) if top_k is None else top_k
    expects_between("top_k", k, 1, len(tokenizer), whole=True)
    data = {
        "settings": model.spec_settings(), "file": pack(model.spec_weights()), "vocabulary": _vocabulary(tokenizer), "title": title,
        "blocks": model.config.n_layers, "heads": model.config.n_heads, "longest": min(model.config.max_len, LONGEST),
    }  # fmt: skip
    text = text.encode(errors="replace").decode()  # a lone surrogate stands on no page
    return Playground(data=data, text=text, temperature=float(temperature), top_k=k, top_p=float(top_p), seed=seed)


def _expects_model(model: Any, tokenizer: Any) -> None:
    for name, got, methods in (("model", model, ("spec_weights", "spec_settings")), ("tokenizer", tokenizer, ("merges", "pattern"))):
        wants = "a TransformerLM" if name == "model" else "a Tokenizer: bytes, merges and a pattern"
        expects(all(hasattr(got, method) for method in methods), name, type(got).__name__, wants, TypeError)
    count = sum(weight.numel() for weight in model.parameters())
    expects(count <= MOST_WEIGHTS, "model", f"{count:,} weights", f"at most {MOST_WEIGHTS:,}: a page holds them all")
    V = model.config.vocab_size
    expects(len(tokenizer) == V, "tokenizer", f"{len(tokenizer)} tokens", f"the model's vocab_size = {V}")
    plain = tokenizer.ids == list(range(len(tokenizer)))
    expects(plain, "tokenizer", "tokens numbered in another order", "bytes, merges and specials in the order of their numbers")


def _vocabulary(tokenizer: Any) -> dict[str, Any]:
    texts = [tokenizer.token_bytes(token).decode("latin-1") for token in range(len(tokenizer))]
    shown = [_shown(tokenizer.token_bytes(token)) for token in range(len(tokenizer))]
    return {"pattern": tokenizer.pattern, "merges": [list(pair) for pair in tokenizer.merges], "texts": texts, "shown": shown, "start": tokenizer.start}


def _shown(token: bytes) -> str:
    try:
        return visible(token.decode("utf-8"))
    except UnicodeDecodeError:
        return "".join(f"‹{byte:02X}›" for byte in token)

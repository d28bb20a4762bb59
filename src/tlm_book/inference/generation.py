"""Continuing texts of tokens: all at once, as a stream, or with a beam. What is asked for is checked before anything is computed.

Written by hand.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from tlm_book.checks import expects, expects_one_of, expects_shape, expects_tokens
from tlm_book.inference.cache import CachedModel
from tlm_book.inference.layers import expects_model
from tlm_book.inference.sampling import Sampler, window
from tlm_book.inference.search import Hypothesis, TextReader, beams, write
from tlm_book.transformer_lm import TransformerLM

__all__ = ["Texts", "generate", "stream", "beam_search"]

Tokens = Int[Tensor, "n"] | Sequence[int]
Texts = Int[Tensor, "*batch n"] | Sequence[int] | Sequence[Int[Tensor, "_"] | Sequence[int]]


def generate(
    model: TransformerLM,
    tokens: Texts,
    n_new: int,
    *,
    start: int | None = None,
    stop: int | Sequence[int] | None = None,
    generator: torch.Generator | None = None,
    on_overflow: str = "error",
    compile: bool = False,
    products: str = "auto",
    weights: str | None = None,
    **choices: Any,
) -> Int[Tensor, "*batch m"] | list[Int[Tensor, "_"]]:
    """The tokens, continued by at most n_new of the model's own, written side by side. (T-sampling)

    tokens       (*batch, n); one text as a list of integers, as `encode` gives it; or a list of texts of any lengths, then a
                 list comes back
    start        marker that the model reads before the tokens (it is not returned)
    stop         one token or several: a text that has produced one is over; in a tensor
                 it is filled up with that token, in a list it ends there
    generator    source of the uniform numbers; None is torch's global one
    on_overflow  "error", or "slide" for the last tokens that fit: see `window`
    compile      steps of fixed shape through torch.compile
    products     the form of the products of a step: "auto" tries which is quickest, "linear" is the same on every machine (see `Products`)
    weights      "bfloat16" or "int8": the blocks' matrices in fewer bits (T-fewer-bits)
    choices      temperature, top_k, top_p, min_p, repetition_penalty: see `Sampler`

    The model is used without dropout, whatever its mode. ValueError for an empty prompt without start, texts that grow too long,
    settings out of range and scores that are not finite; IndexError for a token outside the vocabulary; TypeError for what is no
    integer.
    """
    expects_model(model)
    several = isinstance(tokens, list | tuple) and not _is_text(tokens)
    rows: Any = None if several else _text(model, tokens)
    if several:
        texts = [_text(model, text) for text in tokens]
    else:
        expects_shape("tokens", rows, ("n",))
        texts = list(rows.reshape(rows.shape[:-1].numel(), rows.shape[-1]))
    ends = _stop_tokens(model, texts, n_new, start, stop, on_overflow)
    sampler = Sampler(**choices)
    reader = TextReader(model, texts, start, compile, products, weights)
    new = list(_written(reader, n_new, sampler, ends, generator))
    added = (torch.stack(new, 1) if new else texts[0].new_zeros(len(texts), 0)).to(texts[0].dtype)
    if not several:
        return torch.cat((rows, added.view(*rows.shape[:-1], len(new))), -1)
    upto = [next((i + 1 for i, token in enumerate(row) if token in ends), len(row)) for row in added.tolist()]  # behind the first stop
    return [torch.cat((text, row[:end])) for text, row, end in zip(texts, added, upto)]


def stream(
    model: TransformerLM,
    tokens: Tokens,
    n_new: int,
    *,
    start: int | None = None,
    stop: int | Sequence[int] | None = None,
    generator: torch.Generator | None = None,
    on_overflow: str = "error",
    compile: bool = False,
    products: str = "auto",
    weights: str | None = None,
    **choices: Any,
) -> Iterator[int]:
    """The new tokens that `generate` writes after this one text, each as soon as it is there.

    Arguments and errors as in `generate`; they are checked at once, not with the first token.
    """
    expects_model(model)
    text = _text(model, tokens)
    ends = _stop_tokens(model, [text], n_new, start, stop, on_overflow)
    reader = TextReader(model, [text], start, compile, products, weights)
    new = _written(reader, n_new, Sampler(**choices), ends, generator)
    return (int(token) for token in new)


def beam_search(
    model: TransformerLM,
    tokens: Tokens,
    n_new: int,
    *,
    width: int = 4,
    length_penalty: float = 0.0,
    start: int | None = None,
    stop: int | Sequence[int] | None = None,
) -> list[Hypothesis]:
    """At most `width` continuations of the text, each of at most n_new tokens, the best first. (T-beam-text)

    value = log P / |y|^length_penalty. Errors as in `generate` and `beams`.
    """
    expects_model(model)
    text = _text(model, tokens)
    ends = _stop_tokens(model, [text], n_new, start, stop, "error")
    reader = CachedModel(model)
    scores = reader.read([window(text, model.config.max_len, start)])
    return beams(reader, scores, n_new, width, length_penalty, ends)[0]


def _is_text(tokens: Any) -> bool:
    """Whether this list is one text: integers, as a tokenizer gives them."""
    return len(tokens) > 0 and all(isinstance(token, int) for token in tokens)


def _text(model: TransformerLM, tokens: Any) -> Any:
    """Tokens as a tensor; a list of integers on the model's device."""
    wants = "a tensor or list of integer tokens, as tokenizer.encode(text) gives them; complete(model, tokenizer, text) takes text"
    expects(not isinstance(tokens, str), "tokens", "str", wants, TypeError)
    if isinstance(tokens, list | tuple) and _is_text(tokens):
        tokens = torch.tensor(tokens, device=next(model.parameters()).device)
    expects_tokens("tokens", tokens, 2**63)
    return tokens


def _written(
    reader: TextReader, n_new: int, sampler: Sampler, stop: Sequence[int], generator: torch.Generator | None
) -> Iterator[Int[Tensor, "B"]]:
    """The new tokens of all texts, step by step. Nothing is read before the first one is asked for."""
    texts, seen = reader.texts, None
    if sampler.repetition_penalty != 1:
        seen = torch.zeros(len(texts), reader.model.config.vocab_size, dtype=torch.bool, device=texts[0].device)
        for row, text in zip(seen, texts):
            row[text] = True
    if n_new:
        yield from write(reader.step, reader.read(), n_new, sampler, stop, generator, seen)


def _stop_tokens(
    model: TransformerLM,
    texts: Sequence[Int[Tensor, "_"]],
    n_new: int,
    start: int | None,
    stop: int | Sequence[int] | None,
    on_overflow: str,
) -> list[int]:
    """The stop tokens as a list, after all that was asked for has been checked."""
    expects_model(model)
    M, V = model.config.max_len, model.config.vocab_size
    expects(len(texts) > 0, "tokens", "no texts", "at least one")
    for text in texts:
        expects_tokens("tokens", text, V)
        expects(text.dim() == 1, "tokens", f"a text of shape {tuple(text.shape)}", "(n)")
        expects(len(text) > 0 or start is not None, "tokens", "an empty prompt", "at least 1 token, or a start marker")
    expects(isinstance(n_new, int), "n_new", n_new, "a whole number", TypeError)
    expects(n_new >= 0, "n_new", n_new, "a number ≥ 0")
    expects_one_of("on_overflow", on_overflow, ("error", "slide"))
    rows = (start is not None) + max(map(len, texts)) + n_new - 1
    wants = f'at most max_len = {M}, or on_overflow="slide"'
    expects(rows <= M or on_overflow == "slide", "n_new", f"{n_new}, for which {rows} rows are read", wants)
    ends = [] if stop is None else [stop] if isinstance(stop, int) else stop
    expects(isinstance(ends, Sequence) and not isinstance(ends, str), "stop", stop, "None, a whole number or a list of them", TypeError)
    signs: list[tuple[str, Any]] = [("stop", token) for token in ends]
    for name, token in signs + [("start", start)] * (start is not None):
        expects(isinstance(token, int), name, token, "a whole number", TypeError)
        expects(0 <= token < V, name, token, f"None or a token from 0 to {V - 1}", IndexError)
    return list(ends)

"""Continuing texts of tokens: all at once, as a stream, or with a beam. All arguments are checked before anything is computed.

Written by hand.
"""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import fields
from typing import Any, SupportsIndex

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tlm_book.checks import (
    expects,
    expects_kind,
    expects_names,
    expects_one_of,
    expects_shape,
    expects_switches,
    expects_tokens,
    expects_whole,
    holds_integers,
    is_whole,
    refuse,
)
from tlm_book.inference.cache import CachedModel
from tlm_book.inference.sampling import Sampler, window
from tlm_book.inference.search import Hypothesis, TextReader, beams, write
from tlm_book.transformer_lm import TransformerLM
from tlm_book.weights import expects_model

__all__ = ["Texts", "Allowed", "generate", "stream", "beam_search"]

Tokens = Int[Tensor, "n"] | Int[np.ndarray, "n"] | Sequence[SupportsIndex]
Several = Sequence[Int[Tensor, "_"] | Int[np.ndarray, "_"] | Sequence[SupportsIndex]]
Texts = Int[Tensor, "*batch n"] | Int[np.ndarray, "*batch n"] | Sequence[SupportsIndex] | Several
Allowed = Callable[[list[int]], Collection[int] | Int[Tensor, "k"] | Int[np.ndarray, "k"]]  # the tokens that may follow a text


def generate(
    model: TransformerLM,
    tokens: Texts,
    n_new: int,
    *,
    start: int | None = None,
    stop: int | Sequence[int] | None = None,
    allowed: Allowed | None = None,
    generator: torch.Generator | None = None,
    on_overflow: str = "error",
    compile: bool = False,
    products: str = "auto",
    weights: str | None = None,
    **choices: Any,
) -> Int[Tensor, "*batch m"] | list[Int[Tensor, "_"]]:
    """The tokens, each text continued by at most n_new tokens of the model; all texts are continued together. (T-sampling)

    tokens       (*batch, n), a tensor or an array; one text as a list of integers, as `encode` gives it (an empty list is one empty
                 text); or a list of texts of any lengths, for which a list is returned. The result is int64, or of the tensor's
                 type if that can hold every token
    start        marker that the model reads before the tokens (it is not returned)
    stop         one token or several: the first that is written ends a text; in a tensor,
                 the text is filled up with that token, in a list it ends there
    allowed      a function that is given the tokens of one text as a list, the prompt's among them, and returns those of which the
                 next is one (with a `stop` among them where the text may end); None: every token (T-form)
    generator    source of the uniform numbers; None: torch's global one
    on_overflow  "error", or "slide" to read the last tokens that fit: see `window`
    compile      True: steps of fixed shape, compiled by torch.compile
    products     the form of the products of a step: "auto" finds the quickest, "linear" is the same on every machine (see `Products`)
    weights      "bfloat16" or "int8": store the blocks' matrices in fewer bits (T-fewer-bits)
    choices      temperature, top_k, top_p, min_p, repetition_penalty: see `Sampler`

    The model is used without dropout, whatever its mode. ValueError for an empty prompt without start, texts that grow too long,
    settings out of range, scores that are not finite and a text that no token may follow; IndexError for a token outside the
    vocabulary; TypeError for tokens that are not integers.
    """
    expects_model(model)
    _expects_ways(generator, compile, allowed)
    several = isinstance(tokens, list | tuple) and not all(map(_is_single, tokens))  # a list of single numbers, as a tokenizer gives them, is one text
    rows: Any = None if several else _text(model, tokens)
    if several:
        texts = [_text(model, text) for text in tokens]
    else:
        expects_shape("tokens", rows, ("n",))
        texts = list(rows.reshape(rows.shape[:-1].numel(), rows.shape[-1]))
    ends = _ends(model, start, stop)
    read = _readable(model, texts, n_new, start, on_overflow)
    sampler = _sampler(choices)
    reader = TextReader(model, read, start, compile, products, weights)
    new = list(_written(reader, n_new, sampler, ends, generator, allowed))
    added = torch.stack(new, 1) if new else read[0].new_zeros(len(read), 0)
    if not several:
        return _joined(model, rows, added.view(*rows.shape[:-1], len(new)))
    upto = [next((i + 1 for i, token in enumerate(row) if token in ends), len(row)) for row in added.tolist()]  # just after the first stop
    return [_joined(model, text, row[:end]) for text, row, end in zip(texts, added, upto)]


def stream(
    model: TransformerLM,
    tokens: Tokens,
    n_new: int,
    *,
    start: int | None = None,
    stop: int | Sequence[int] | None = None,
    allowed: Allowed | None = None,
    generator: torch.Generator | None = None,
    on_overflow: str = "error",
    compile: bool = False,
    products: str = "auto",
    weights: str | None = None,
    **choices: Any,
) -> Iterator[int]:
    """The new tokens that `generate` writes after this one text, each as soon as it is computed.

    Arguments and errors as in `generate`; arguments are checked at once, not when the first token is asked for.
    """
    expects_model(model)
    _expects_ways(generator, compile, allowed)
    ends = _ends(model, start, stop)
    read = _readable(model, [_text(model, tokens)], n_new, start, on_overflow)
    reader = TextReader(model, read, start, compile, products, weights)
    new = _written(reader, n_new, _sampler(choices), ends, generator, allowed)
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

    A continuation y is ranked by log P / |y|^length_penalty. Where the search stops early, those behind the first may be unfinished. Errors as in
    `generate` and `beams`.
    """
    expects_model(model)
    ends = _ends(model, start, stop)
    (text,) = _readable(model, [_text(model, tokens)], n_new, start, None)
    reader = CachedModel(model)
    scores = reader.read([window(text, model.config.max_len, start)])
    return beams(reader, scores, n_new, width, length_penalty, ends)[0]


def _expects_ways(generator: Any, compile: Any, allowed: Any) -> None:
    """TypeError for a source of numbers that is none, unless `compile` is True or False, and for an `allowed` that is no function."""
    expects(allowed is None or callable(allowed), "allowed", repr(allowed), "a function of the text's tokens, or None", TypeError)
    expects(generator is None or isinstance(generator, torch.Generator), "generator", repr(generator), "a torch.Generator or None", TypeError)
    expects_switches(compile=compile)


OTHERS = ("start", "stop", "allowed", "generator", "on_overflow", "compile", "products", "weights")  # what may be named beside a sampler's fields


def _sampler(choices: dict[str, Any]) -> Sampler:
    """The sampler with these choices; TypeError for a name that `generate` does not take."""
    expects_names(choices, [*(field.name for field in fields(Sampler)), *OTHERS])
    return Sampler(**choices)


def _text(model: TransformerLM, tokens: Any) -> Any:
    """Tokens as a tensor on the model's device: a list, a range or an array of whole numbers as int64."""
    wants = "a tensor or list of integer tokens, as tokenizer.encode(text) gives them; complete(model, tokenizer, text) takes text"
    device = next(model.parameters()).device
    if isinstance(tokens, list | tuple | range):
        for token in tokens:
            if not is_whole(token) and not (_is_single(token) and holds_integers(token)):
                refuse("tokens", f"{type(token).__name__} in a {type(tokens).__name__}", wants, TypeError)
        numbers, V = [int(token) for token in tokens], model.config.vocab_size
        outside = [number for number in numbers if not 0 <= number < V]
        if outside:
            refuse("tokens", f"a token {outside[0]}", f"tokens from 0 to {V - 1} (vocab_size = {V})", IndexError)
        return torch.tensor(numbers, dtype=torch.long, device=device)
    expects_kind("tokens", tokens, Tensor | np.ndarray, wants)
    expects(holds_integers(tokens), "tokens", f"dtype {tokens.dtype}", "integer tokens", TypeError)
    return torch.as_tensor(tokens.astype(np.int64) if isinstance(tokens, np.ndarray) else tokens, device=device)


def _is_single(token: Any) -> bool:
    """Whether this is a single number: something without a length, or a tensor or array with one number."""
    return not hasattr(token, "__len__") or getattr(token, "shape", None) == ()


def _joined(model: TransformerLM, text: Int[Tensor, "*batch n"], new: Int[Tensor, "*batch m"]) -> Int[Tensor, "*batch k"]:
    """The text followed by the new tokens, in the text's type if that can hold every token of the model."""
    fits = model.config.vocab_size - 1 <= torch.iinfo(text.dtype).max
    return torch.cat((text, new.to(text.dtype)) if fits else (text.long(), new), -1)


def _written(
    reader: TextReader, n_new: int, sampler: Sampler, stop: Sequence[int], generator: torch.Generator | None, allowed: Allowed | None
) -> Iterator[Int[Tensor, "B"]]:
    """The new tokens of all texts, step by step. The model reads nothing until the first ones are asked for."""
    texts, seen = reader.texts, None
    if sampler.repetition_penalty != 1:
        seen = torch.zeros(len(texts), reader.model.config.vocab_size, dtype=torch.bool, device=texts[0].device)
        for row, text in zip(seen, texts):
            row[text] = True
    if n_new:
        source = reader if allowed is None else _Restricted(reader, allowed, stop)
        yield from write(source.step, source.read(), n_new, sampler, stop, generator, seen)


class _Restricted:
    """A reader whose scores are −∞ for the tokens that may not come next. A text that is over is no longer asked for. (T-form)"""

    def __init__(self, reader: TextReader, allowed: Allowed, stop: Sequence[int]) -> None:
        self.reader, self.allowed, self.stop = reader, allowed, stop
        self.texts: list[list[int] | None] = [text.tolist() for text in reader.texts]

    def read(self) -> Float[Tensor, "B V"]:
        return self._hide(self.reader.read())

    def step(self, token: Int[Tensor, "B"]) -> Float[Tensor, "B V"]:
        self.texts = [None if text is None or new in self.stop else [*text, new] for text, new in zip(self.texts, token.tolist())]
        return self._hide(self.reader.step(token))

    def _hide(self, z: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        hidden = torch.ones(z.shape, dtype=torch.bool)
        for row, text in zip(hidden, self.texts):
            row[slice(None) if text is None else self._next(text, z.shape[1])] = False
        return z.masked_fill(hidden.to(z.device), -math.inf)

    def _next(self, text: list[int], vocab_size: int) -> Int[Tensor, "k"]:
        """The tokens that may follow this text, after a check of them."""
        found = self.allowed(list(text))
        expects(not _is_single(found), "allowed", f"{type(found).__name__} in return", "a list of tokens", TypeError)
        expects(len(found) > 0, "allowed", f"no token after {text[-5:]}", "at least one (or a stop token before)")
        try:
            tokens = found.cpu().numpy() if isinstance(found, Tensor) else np.asarray(list(found))
        except ValueError:  # lists of several lengths
            refuse("allowed", f"{type(found).__name__} of lists in return", "a list of tokens", TypeError)
        expects_tokens("allowed", tokens, vocab_size)
        return torch.as_tensor(tokens).long()


def _readable(
    model: TransformerLM, texts: Sequence[Int[Tensor, "_"]], n_new: int, start: int | None, on_overflow: str | None
) -> list[Int[Tensor, "_"]]:
    """The texts in int64, after a check that n_new tokens can follow; on_overflow is None where the window cannot slide."""
    M, V = model.config.max_len, model.config.vocab_size
    expects(len(texts) > 0, "tokens", "no texts", "at least one")
    read = [text.long() for text in texts]
    for text in read:
        expects_tokens("tokens", text, V)
        expects(text.dim() == 1, "tokens", f"a text of shape {tuple(text.shape)}", "(n)")
        expects(len(text) > 0 or start is not None, "tokens", "an empty prompt", "at least 1 token, or a start marker")
    expects_whole(n_new=n_new)
    expects(n_new >= 0, "n_new", n_new, "a number ≥ 0")
    expects_room("n_new", n_new, (start is not None) + max(map(len, texts)), M, on_overflow)
    return read


def expects_room(argument: str, n_new: int, rows: int, max_len: int, on_overflow: str | None) -> None:
    """Check that n_new tokens have room after `rows` rows, or that the window slides; the last token is not read. ValueError otherwise."""
    if on_overflow is not None:
        expects_one_of("on_overflow", on_overflow, ("error", "slide"))
    read = rows + n_new - 1
    if read > max_len and on_overflow != "slide":
        slide = ', or on_overflow="slide"' if on_overflow else ""
        refuse(argument, f"{n_new}, for which {read} rows are read", f"at most max_len = {max_len}{slide}")


def _ends(model: TransformerLM, start: int | None, stop: int | Sequence[int] | None) -> list[int]:
    """The stop tokens as a list, after a check of them and of the start marker."""
    V, several = model.config.vocab_size, isinstance(stop, Sequence) and not isinstance(stop, str)
    expects(stop is None or is_whole(stop) or several, "stop", stop, "None, a whole number or a list of them", TypeError)
    ends: Any = stop if several else [] if stop is None else [stop]
    signs = [("stop", token) for token in ends] + ([] if start is None else [("start", start)])
    for name, token in signs:
        expects_whole(**{name: token})
        expects(0 <= token < V, name, token, f"None or a token from 0 to {V - 1}", IndexError)
    return [int(token) for token in ends]

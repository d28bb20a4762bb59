"""From text to text, with no tokens in sight.

Written by hand.
"""

import codecs
from collections.abc import Iterator
from typing import Any

import torch

from tlm_book.checks import expects, expects_kind, expects_names, expects_whole
from tlm_book.inference.generation import expects_room, stream
from tlm_book.tokenization import HubTokenizer, Tokenizer
from tlm_book.transformer_lm import TransformerLM
from tlm_book.weights import expects_model

__all__ = ["characters", "stream_text", "complete", "unread"]

CHOICES = ("max_new", "temperature", "seed", "on_overflow", "top_k", "top_p", "min_p", "repetition_penalty", "allowed", "compile", "products", "weights")


def characters(tokenizer: Tokenizer | HubTokenizer, tokens: Iterator[int]) -> Iterator[str]:
    """The text of the tokens, in pieces of whole characters: a byte waits until the others of its character are there. (T-stream)"""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    for token in tokens:
        if piece := decoder.decode(tokenizer.token_bytes(token)):
            yield piece
    if rest := decoder.decode(b"", final=True):
        yield rest


def stream_text(
    model: TransformerLM,
    tokenizer: Tokenizer | HubTokenizer,
    prompt: str,
    max_new: int = 100,
    temperature: float = 0.8,
    seed: int = 0,
    *,
    on_overflow: str = "slide",
    **choices: Any,
) -> Iterator[str]:
    """The continuation that `complete` writes, piece by piece, each as soon as it is there. Arguments and errors as in `complete`; errors
    are raised at once.
    """
    expects_model(model)
    expects_names(choices, CHOICES)
    wants = "the model's tokenizer: complete(model, tokenizer, prompt)"
    expects_kind("tokenizer", tokenizer, Tokenizer | HubTokenizer, wants)
    expects_kind("prompt", prompt, str, "str")
    V, start, stop = model.config.vocab_size, tokenizer.start, tokenizer.stop
    expects(len(tokenizer) == V, "tokenizer", f"{len(tokenizer)} tokens", f"the model's vocab_size = {V}")
    expects_whole(max_new=max_new, seed=seed)
    expects(max_new >= 0, "max_new", max_new, "a number ≥ 0")
    expects(0 <= seed < 2**63, "seed", seed, "a whole number from 0 to 2^63 − 1")
    tokens = tokenizer.encode(prompt)
    expects_room("max_new", max_new, (start is not None) + len(tokens), model.config.max_len, on_overflow)
    new = stream(
        model,
        torch.tensor(tokens, dtype=torch.long, device=model.embedding.table.weight.device),
        max_new,
        start=start,
        stop=stop,
        generator=torch.Generator().manual_seed(int(seed)),
        on_overflow=on_overflow,
        temperature=temperature,
        **choices,
    )
    return characters(tokenizer, (token for token in new if token != stop))


def unread(model: TransformerLM, tokenizer: Tokenizer | HubTokenizer, prompt: str) -> int:
    """How many tokens at the beginning of the prompt `complete` drops, since the model cannot read more, the start marker included."""
    return max(0, 1 + len(tokenizer.encode(prompt)) - model.config.max_len)


def complete(
    model: TransformerLM,
    tokenizer: Tokenizer | HubTokenizer,
    prompt: str,
    max_new: int = 100,
    temperature: float = 0.8,
    seed: int = 0,
    **choices: Any,
) -> str:
    """The prompt and its continuation by at most max_new tokens, up to the end of the document if the model ends it.

    choices    top_k, top_p, min_p, repetition_penalty: see `Sampler`; on_overflow ("slide" by default here), allowed (of tokens),
               compile, products and weights: see `generate`

    With an empty prompt the model reads the start marker alone; the tokenizer says which tokens begin and end a text. The same arguments
    give the same text. Errors as in `generate`; ValueError when the tokenizer is not the model's.
    """
    options: dict[str, Any] = {"temperature": temperature, "seed": seed, **choices}
    return prompt + "".join(stream_text(model, tokenizer, prompt, max_new, **options))

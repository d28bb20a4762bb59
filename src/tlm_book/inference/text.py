"""From text to text: the tokens stay out of sight.

Written by hand.
"""

import codecs
from collections.abc import Iterator
from typing import Any

import torch

from tlm_book.checks import expects
from tlm_book.inference.generation import stream
from tlm_book.inference.layers import expects_model
from tlm_book.tokenization import HubTokenizer, Tokenizer
from tlm_book.transformer_lm import TransformerLM

__all__ = ["characters", "stream_text", "complete", "unread"]


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
    *,
    temperature: float = 0.8,
    seed: int = 0,
    on_overflow: str = "slide",
    **choices: Any,
) -> Iterator[str]:
    """The continuation that `complete` writes, piece by piece, each as soon as it is there. Errors as in `complete`, at once."""
    expects_model(model)
    wants = "the model's tokenizer: complete(model, tokenizer, prompt)"
    expects(isinstance(tokenizer, Tokenizer | HubTokenizer), "tokenizer", type(tokenizer).__name__, wants, TypeError)
    expects(isinstance(prompt, str), "prompt", type(prompt).__name__, "str", TypeError)
    V, start, stop = model.config.vocab_size, tokenizer.start, tokenizer.stop
    expects(len(tokenizer) == V, "tokenizer", f"{len(tokenizer)} tokens", f"the model's vocab_size = {V}")
    expects(isinstance(seed, int), "seed", seed, "a whole number", TypeError)
    expects(0 <= seed < 2**63, "seed", seed, "a whole number from 0 to 2^63 − 1")
    tokens = tokenizer.encode(prompt)
    new = stream(
        model,
        torch.tensor(tokens, dtype=torch.long, device=model.embedding.table.weight.device),
        max_new,
        start=start,
        stop=stop,
        generator=torch.Generator().manual_seed(seed),
        on_overflow=on_overflow,
        temperature=temperature,
        **choices,
    )
    return characters(tokenizer, (token for token in new if token != stop))


def unread(model: TransformerLM, tokenizer: Tokenizer | HubTokenizer, prompt: str) -> int:
    """How many tokens at the beginning of the prompt the model cannot read, behind the start marker: what `complete` drops."""
    return max(0, len(tokenizer.encode(prompt)) - (model.config.max_len - 1))


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

    With an empty prompt the model reads the start marker alone. `choices` as in `Sampler`, and `on_overflow`, here "slide" by default.
    The same arguments give the same text. Errors as in `generate`; ValueError when the tokenizer is not the model's.
    """
    options: dict[str, Any] = {"temperature": temperature, "seed": seed, **choices}
    return prompt + "".join(stream_text(model, tokenizer, prompt, max_new, **options))

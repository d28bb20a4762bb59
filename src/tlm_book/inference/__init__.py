"""Using a model: the next token, text, several beginnings at once.

    from tlm_book.inference import complete, generate
    print(complete(model, tokenizer, "The water"))

The modules `sampling`, `layers`, `cache` and `search` are exported by the chapter, which explains them; `generation` and `text`, written by hand,
check their arguments and put these together.
"""

from tlm_book.inference.cache import Cache, CachedModel, CacheSlot, step_flops
from tlm_book.inference.generation import beam_search, generate, stream
from tlm_book.inference.sampling import (
    Sampler,
    cut_tail,
    distribution,
    last_scores,
    quantiles,
    window,
)
from tlm_book.inference.search import Hypothesis, Reader, TextReader, beams, write
from tlm_book.inference.text import complete, stream_text

__all__ = [
    "generate",
    "stream",
    "beam_search",
    "stream_text",
    "complete",
    "Sampler",
    "distribution",
    "cut_tail",
    "window",
    "last_scores",
    "quantiles",
    "Cache",
    "CacheSlot",
    "CachedModel",
    "step_flops",
    "write",
    "Reader",
    "TextReader",
    "Hypothesis",
    "beams",
]

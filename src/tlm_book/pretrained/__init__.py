"""Real models: the files of GPT-2 and Marian become models of this book, and models of this book become such files.

    from tlm_book.pretrained import load_gpt2
    model, tokenizer = load_gpt2("openai-community/gpt2")

Written by hand, but for `names`: the tables of names, which the chapter explains and exports. `files` reads and writes the
folders, `hub` fetches them, `settings` says what the book's models cannot do; `gpt2`, `marian` and `marian_text` are the two
kinds of model.
"""

from tlm_book.pretrained.gpt2 import gpt2_config, load_gpt2, save_gpt2
from tlm_book.pretrained.marian import load_marian, marian_preset, save_marian
from tlm_book.pretrained.marian_text import MarianTokenizer, translate_marian

__all__ = [
    "load_gpt2",
    "save_gpt2",
    "gpt2_config",
    "load_marian",
    "save_marian",
    "marian_preset",
    "MarianTokenizer",
    "translate_marian",
]

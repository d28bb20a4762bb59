"""Real models: loading the files of GPT-2, Llama and its family, and Marian as models of this book, and saving models of this book as such files.

    from tlm_book.pretrained import load_model
    model, tokenizer = load_model("HuggingFaceTB/SmolLM2-135M")

Written by hand, except for `names`: the tables of names, which the chapter explains and exports. `files` reads and writes the
folders, `hub` fetches them, `settings` checks for what the book's models cannot do; `gpt2`, `llama` with
`llama_settings`, and `marian` with `marian_text` are the kinds of model; `kinds` reads any of them and writes all but Marian.
"""

from tlm_book.pretrained.gpt2 import gpt2_config, load_gpt2, save_gpt2
from tlm_book.pretrained.kinds import load_model, save_model
from tlm_book.pretrained.llama import load_llama, save_llama
from tlm_book.pretrained.llama_settings import llama_config
from tlm_book.pretrained.marian import load_marian, marian_preset, save_marian
from tlm_book.pretrained.marian_text import MarianTokenizer, translate_marian

__all__ = [
    "load_model",
    "save_model",
    "load_gpt2",
    "save_gpt2",
    "gpt2_config",
    "load_llama",
    "save_llama",
    "llama_config",
    "load_marian",
    "save_marian",
    "marian_preset",
    "MarianTokenizer",
    "translate_marian",
]

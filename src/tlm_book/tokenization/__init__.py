"""From text to tokens and back: byte pair encoding on bytes, trained on texts, saved, and handed to other libraries.

    from tlm_book.tokenization import Tokenizer
    tokenizer = Tokenizer.train(["the tea", "the tide"], vocab_size=260)
    tokenizer.encode("the tea")

Written by hand, except for `bpe`: the rules, which the chapter explains and exports. `engine` follows the same rules quickly, `vocabulary`
has the tokens and their bytes, `tokenizer` puts these together; `rust` checks the engines `tokenizers` and `tiktoken` and trains with the first,
`bridges` converts tokenizers to and from them; `json_file` and `json_parts` read a tokenizer.json of the hub; `files` reads and writes files,
`corpus` is the book's own.
"""

from tlm_book.tokenization.bpe import GPT2_PATTERN, PATTERN, pre_tokens
from tlm_book.tokenization.bridges import (
    from_tokenizers,
    load_gpt2_tokenizer,
    save_gpt2_tokenizer,
    to_tiktoken,
    to_tokenizers,
)
from tlm_book.tokenization.corpus import documents
from tlm_book.tokenization.engine import encode_piece, learn_merges
from tlm_book.tokenization.json_file import HubTokenizer
from tlm_book.tokenization.rust import byte_characters, train_by_tokenizers
from tlm_book.tokenization.tokenizer import Tokenizer
from tlm_book.tokenization.vocabulary import Tokens, Vocabulary

__all__ = [
    "PATTERN",
    "GPT2_PATTERN",
    "pre_tokens",
    "Tokenizer",
    "Tokens",
    "Vocabulary",
    "documents",
    "learn_merges",
    "encode_piece",
    "byte_characters",
    "train_by_tokenizers",
    "to_tokenizers",
    "from_tokenizers",
    "to_tiktoken",
    "save_gpt2_tokenizer",
    "load_gpt2_tokenizer",
    "HubTokenizer",
]

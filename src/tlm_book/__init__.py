"""The transformer language model, defined exactly: a book whose chapters are this package.

`tlm_book.spec.<chapter>` is the executable specification (numpy, float64, one sequence, a literal reading of the formulas);
`tlm_book.<chapter>` is the implementation (torch, batched, any device). The names below are loaded when first used.

With TLM_BOOK_TYPECHECK=1 in the environment every signature is checked at run time (jaxtyping with beartype).
"""

import importlib
import os
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if os.environ.get("TLM_BOOK_TYPECHECK", "0") not in ("", "0"):
    from tlm_book.signatures import install

    install()

_HOME = {
    "Config": "transformer_lm",
    "TransformerLM": "transformer_lm",
    "Tokenizer": "tokenization",
    "train": "training",
    "save": "training",
    "load": "training",
    "shipped": "training",
    "generate": "inference",
    "complete": "inference",
    "derive": "derivation",
    "audit": "auditing",
    "load_gpt2": "pretrained",
    "save_gpt2": "pretrained",
    "load_model": "pretrained",
    "save_model": "pretrained",
    "load_llama": "pretrained",
    "save_llama": "pretrained",
    "load_marian": "pretrained",
    "save_marian": "pretrained",
}
__all__ = ["__version__", *_HOME]


if TYPE_CHECKING:  # a type checker reads the same table in this form
    from tlm_book.auditing import audit as audit
    from tlm_book.derivation import derive as derive
    from tlm_book.inference import complete as complete
    from tlm_book.inference import generate as generate
    from tlm_book.pretrained import load_gpt2 as load_gpt2
    from tlm_book.pretrained import load_llama as load_llama
    from tlm_book.pretrained import load_marian as load_marian
    from tlm_book.pretrained import load_model as load_model
    from tlm_book.pretrained import save_gpt2 as save_gpt2
    from tlm_book.pretrained import save_llama as save_llama
    from tlm_book.pretrained import save_marian as save_marian
    from tlm_book.pretrained import save_model as save_model
    from tlm_book.tokenization import Tokenizer as Tokenizer
    from tlm_book.training import load as load
    from tlm_book.training import save as save
    from tlm_book.training import shipped as shipped
    from tlm_book.training import train as train
    from tlm_book.transformer_lm import Config as Config
    from tlm_book.transformer_lm import TransformerLM as TransformerLM
else:

    def __getattr__(name: str) -> object:
        """Import a front-door name from its chapter on first use, so that `tlm_book.spec` never has to load torch."""
        if name not in _HOME:
            raise AttributeError(f"module 'tlm_book' has no attribute {name!r}")
        return getattr(importlib.import_module(f"tlm_book.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)

"""The transformer language model, defined exactly: a book whose chapters are this package.

`tlm_book.spec.<chapter>` is the executable specification (numpy, float64, one sequence, a literal reading of the formulas);
`tlm_book.<chapter>` is the implementation (torch, batched, any device). The names below are loaded when first used.

With TLM_BOOK_TYPECHECK=1 in the environment every signature is checked at run time (jaxtyping with beartype).
"""

import importlib
import os

__version__ = "0.1.0"

if os.environ.get("TLM_BOOK_TYPECHECK", "0") not in ("", "0"):
    from tlm_book.signatures import install

    install()

_HOME = {
    "Config": "transformer_lm",
    "TransformerLM": "transformer_lm",
    "Tokenizer": "tokenization",
    "train": "training",
    "load": "training",
    "generate": "inference",
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


def __getattr__(name: str) -> object:
    """Import a front-door name from its chapter on first use, so that `tlm_book.spec` never pays for torch."""
    if name not in _HOME:
        raise AttributeError(f"module 'tlm_book' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tlm_book.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)

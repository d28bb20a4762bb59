"""How often a measurement is repeated. Written by hand; imports nothing of the package."""

import os

__all__ = ["seeds"]


def seeds(count: int) -> range:
    """0, …, count − 1 where the environment variable TLM_BOOK_ALL_SEEDS is set; otherwise 0 alone.

    A measurement says how far it spreads over several seeds. The outputs that a chapter shows, and `make test-all`, try them all; a reader's run, and
    the quick tests, try the first.
    """
    return range(count if "TLM_BOOK_ALL_SEEDS" in os.environ else 1)

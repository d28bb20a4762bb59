"""How often a measurement is repeated. Written by hand; imports nothing of the package."""

import os

__all__ = ["seeds"]


def seeds(count: int) -> range:
    """The seeds 0, …, count − 1 if the environment variable TLM_BOOK_ALL_SEEDS is set; otherwise 0 alone.

    A measurement says how much it varies over several seeds. The outputs shown in a chapter and `make test-all` use all of them; a reader's run and
    the quick tests use only the first.
    """
    return range(count if "TLM_BOOK_ALL_SEEDS" in os.environ else 1)

"""Libraries that only a part of the package needs. Written by hand; imports nothing of the package."""

from importlib import import_module
from typing import Any

__all__ = ["library"]


def library(name: str, extra: str) -> Any:
    """The module of this name; if it is not installed, an ImportError that names the extra of tlm_book that brings it.

    >>> library("no_such_library", "viewer")
    Traceback (most recent call last):
    ...
    ImportError: no_such_library: got no such library, want it installed: pip install 'tlm_book[viewer]'
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(f"{name.split('.')[0]}: got no such library, want it installed: pip install 'tlm_book[{extra}]'") from error

"""Python's garbage collector, off for a while. Written by hand; imports nothing of the package."""

import contextlib
import gc
from collections.abc import Iterator

__all__ = ["collector_off"]


@contextlib.contextmanager
def collector_off() -> Iterator[None]:
    """While a CUDA graph is recorded, nothing may free an older one, as the collector of reference cycles might."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()

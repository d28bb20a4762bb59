"""Ctrl-C between two steps, so that the state saved is the state after a whole step. Written by hand."""

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from tlm_book.training.distributed import DistContext

__all__ = ["stop_signal"]


@contextlib.contextmanager
def stop_signal(dist: DistContext) -> Iterator[Callable[[], bool]]:
    """A function that tells whether Ctrl-C has been pressed in any of the processes; each process asks it after each step. A second Ctrl-C
    interrupts at once. Only the main thread notices Ctrl-C; on leaving the context, Ctrl-C does again what it did before.
    """
    pressed = False

    def press(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True
        if dist.rank == 0:
            print("\nstopping after this step; Ctrl-C once more stops at once", file=sys.stderr)

    before = signal.getsignal(signal.SIGINT)
    mine = threading.current_thread() is threading.main_thread() and before is signal.default_int_handler
    if mine:
        signal.signal(signal.SIGINT, press)
    try:
        yield lambda: dist.mean(float(pressed)) > 0
    finally:
        if mine:
            signal.signal(signal.SIGINT, before)

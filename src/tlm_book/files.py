"""Files and folders that are there complete or not at all: written beside their place, then renamed. Written by hand."""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tlm_book.checks import expects

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

__all__ = ["clear_parts", "free_folder", "held", "new_file", "new_folder"]


def free_folder(folder: str | os.PathLike[str]) -> Path:
    """The path, when nothing is there yet; FileExistsError otherwise, TypeError for what is no path."""
    expects(isinstance(folder, str | os.PathLike), "folder", type(folder).__name__, "a path", TypeError)
    path = Path(folder)
    expects(not os.path.lexists(path), "folder", f"{str(path)!r}, which exists", "a folder that does not exist yet", FileExistsError)
    return path


def _beside(path: Path) -> Path:
    """Where what will be called `path` is written: a name that no other process or thread has, nor one that was killed."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")


def _settle(part: Path) -> None:
    """What was written is on the disk, and not on its way there: after a power cut no name stands for half a file."""
    for file in [part, *part.rglob("*")]:
        if file.is_file():
            with file.open("rb+" if os.name == "nt" else "rb") as written:
                os.fsync(written.fileno())


@contextlib.contextmanager
def new_folder(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """A folder to write into, which gets its name when all is written. FileExistsError when there is one of that name."""
    path = free_folder(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = _beside(path)
    part.mkdir()
    try:
        yield part
        _settle(part)
        part.rename(free_folder(path))
    finally:
        shutil.rmtree(part, ignore_errors=True)


@contextlib.contextmanager
def new_file(file: str | os.PathLike[str]) -> Iterator[Path]:
    """A path to write to. What is written takes the place of `file`, and of an older file of that name, when all went well.

    FileNotFoundError where there is no such folder, IsADirectoryError where the name is a folder's.
    """
    path = Path(file)
    expects(path.parent.is_dir(), "file", f"{str(path)!r}, and no folder {str(path.parent)!r}", "a file in a folder that exists", FileNotFoundError)
    expects(not path.is_dir(), "file", f"{str(path)!r}, a folder", "the name of a file", IsADirectoryError)
    part = _beside(path)
    try:
        yield part
        _settle(part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def held(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Work in a folder in which nobody else does. FileExistsError when another process holds it; one that ends, however it ends, holds nothing.
    Where there are no such locks (on Windows, on some networks' disks), nothing is held.
    """
    if fcntl is None:
        yield
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            got = f"{str(folder)!r}, in which another process is at work"
            raise FileExistsError(f"folder: got {got}, want one in which nobody is") from error
        except OSError:
            pass
        yield
    finally:
        os.close(opened)


def clear_parts(folder: str | os.PathLike[str]) -> None:
    """Remove what processes that were killed have left half written in this folder."""
    for part in Path(folder).glob(".*.part"):
        if part.is_dir():
            shutil.rmtree(part)
        else:
            part.unlink()

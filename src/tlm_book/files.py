"""Files and folders that appear complete or not at all: they are written beside their place, then renamed. Written by hand."""

import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tlm_book.checks import expects, expects_kind

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

__all__ = ["checked_path", "clear_parts", "free_folder", "held", "new_file", "new_folder", "read_json"]


def checked_path(path: str | os.PathLike[str], argument: str = "path") -> Path:
    """The path; TypeError for anything else."""
    expects_kind(argument, path, str | os.PathLike, "a path")
    return Path(path)


def free_folder(folder: str | os.PathLike[str], argument: str = "folder") -> Path:
    """The path, if nothing exists there yet; FileExistsError otherwise, TypeError for anything but a path."""
    path = checked_path(folder, argument)
    expects(not os.path.lexists(path), argument, f"{str(path)!r}, which exists", "a folder that does not exist yet", FileExistsError)
    return path


def read_json(file: Path, wants: str) -> object:
    """The content of a JSON file; ValueError, which says what is wanted, for any other file."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file}: got no JSON ({error}), want {wants}") from error


def _beside(path: Path) -> Path:
    """The temporary place in which `path` is written: a name that no other process or thread uses, or has left behind when it was killed."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")


def _settle(part: Path) -> None:
    """Wait until what was written is on the disk: after a power cut, no name stands for half a file."""
    for file in [part, *part.rglob("*")]:
        if file.is_file():
            with file.open("rb+" if os.name == "nt" else "rb") as written:
                os.fsync(written.fileno())


@contextlib.contextmanager
def new_folder(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """A folder to write into, which gets its name once everything is written; missing folders above it are made. FileExistsError if the name is taken."""
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
    """A path to write to. If all goes well, what was written there becomes `file` and replaces an older file of that name.

    FileNotFoundError if there is no such folder, IsADirectoryError if the name is a folder's, TypeError for anything but a path.
    """
    path = checked_path(file, "file")
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
    """Hold a folder, so that nobody else works in it. FileExistsError if it is held already, by another process or this one; a process that has
    ended, in whatever way, holds nothing. Where there are no such locks (on Windows, on some network disks), nothing is held.
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
    """Remove the half-written files and folders that killed processes have left in this folder: whatever is named .….part, even if another process
    still writes it."""
    for part in Path(folder).glob(".*.part"):
        if part.is_dir():
            shutil.rmtree(part)
        else:
            part.unlink()

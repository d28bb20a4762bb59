"""Where a model's folder comes from: a path is a folder on this machine, any other name is looked up on the hub."""

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tlm_book.checks import expects, expects_kind
from tlm_book.libraries import library
from tlm_book.pretrained.files import CONFIG, INDEX, NO_PICKLE, WEIGHTS, parts_of

__all__ = ["check_fingerprint", "converted", "download", "fetch", "model_folder"]

FINGERPRINT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")


def check_fingerprint(file: Path) -> None:
    """Check that a file in the hub's cache has the fingerprint that it is named after; ValueError otherwise. Other files are ignored."""
    name = Path(os.readlink(file)).name if file.is_symlink() else ""
    if not FINGERPRINT.fullmatch(name):
        return
    small = len(name) == 40  # git's own fingerprint: SHA-1 with a header
    begun = hashlib.sha1(b"blob %d\0" % file.stat().st_size) if small else hashlib.sha256()
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, lambda: begun).hexdigest()
    expects(digest == name, f"{file}", f"a file with fingerprint {digest[:12]}…", f"{name[:12]}…; delete it and fetch it again")


def converted(hub: Any, name: str) -> str | None:
    """The revision in which the hub's own converter offers safetensors, if any."""
    for offer in hub.HfApi().get_repo_discussions(name):
        by_hub = offer.is_pull_request and offer.author == "SFconvertbot"
        if by_hub and "safetensors" in offer.title and offer.status != "closed":
            return offer.git_reference
    return None


def download(hub: Any, name: str, files: Sequence[str], revision: str | None) -> Path:
    """The folder in the hub's cache with those of the files that the hub has, and the weights in one file or several. If the
    makers' own revision lacks safetensors and no other was asked for, it is the converter's revision.
    """
    place = Path(hub.snapshot_download(name, revision=revision, allow_patterns=files))
    if revision is None and not has_weights(place) and (offered := converted(hub, name)):
        return download(hub, name, files, offered)
    if (place / INDEX).exists() and not (place / WEIGHTS).exists():
        several = sorted(set(parts_of(place).values()))
        return Path(hub.snapshot_download(name, revision=revision, allow_patterns=[*files, *several]))
    return place


def has_weights(place: Path) -> bool:
    """Whether the folder has weights in another format than pickle."""
    return (place / WEIGHTS).exists() or (place / INDEX).exists()


def fetch(name: str, files: Sequence[str], revision: str | None = None) -> Path:
    """The folder in the hub's cache with these files of a model, fetched if need be. ValueError for a model that is available only
    as a pickle and for a damaged file, ConnectionError if it cannot be fetched, ImportError without the library huggingface_hub.
    """
    try:
        hub = library("huggingface_hub", "pretrained")
    except ImportError as error:
        raise ImportError(f"name_or_folder: got {name!r}, which is no folder here, and, to fetch it, {error}") from error
    try:
        place = download(hub, name, [WEIGHTS, INDEX, *files], revision)
    except Exception as error:  # the underlying libraries raise many kinds of errors
        said = next(iter(str(error).splitlines()), type(error).__name__)
        got = f"{name!r}, which is no folder here, and no such files from the hub ({said})"
        wants = "a network and a model's name on the hub, or a folder with its files"
        raise ConnectionError(f"name_or_folder: got {got}, want {wants}") from error
    expects(has_weights(place), "name_or_folder", f"{name!r} without {WEIGHTS}", NO_PICKLE)
    for file in place.iterdir():
        check_fingerprint(file)
    return place


def model_folder(name_or_folder: str | os.PathLike[str], files: Sequence[str], revision: str | None) -> Path:
    """The folder itself, or the folder that `fetch` returns for a name on the hub. FileNotFoundError for anything that is neither,
    TypeError for anything but a text or a path.
    """
    expects_kind("name_or_folder", name_or_folder, str | os.PathLike, "a path, or a name on the hub")
    expects(revision is None or isinstance(revision, str), "revision", repr(revision), "a text or None", TypeError)
    name = os.fspath(name_or_folder)
    if os.path.isdir(name):
        return Path(name)
    wants = "a folder, or a name on the hub such as 'openai-community/gpt2'"
    expects(HUB_NAME.fullmatch(name), "name_or_folder", f"{name!r}", wants, FileNotFoundError)
    return fetch(name, (CONFIG, *files), revision)

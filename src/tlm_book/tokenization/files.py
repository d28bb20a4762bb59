"""A tokenizer's file: JSON, written completely or not at all, read with suspicion."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tlm_book.checks import expects

__all__ = ["FORMAT", "read_state", "write_state", "write_texts"]

FORMAT = "tlm_book.tokenizer.1"


def write_texts(texts: Mapping[Path, str]) -> None:
    """Write {path: text}: each beside its path and, when all are complete, renamed. An OSError leaves the old files as they were."""
    parts = {path: path.with_name(path.name + ".part") for path in texts}
    try:
        for path, part in parts.items():
            part.write_text(texts[path] + "\n", encoding="utf-8", newline="\n")
        for path, part in parts.items():
            os.replace(part, path)
    finally:
        for part in parts.values():
            if part.is_file():
                part.unlink()


def write_state(path: Path, state: Mapping[str, object]) -> None:
    """Write a tokenizer's fields, with the word that says which format it is."""
    write_texts({path: json.dumps({"format": FORMAT, **state})})


def read_state(path: Path) -> dict[str, Any]:
    """The fields that `write_state` wrote; ValueError for other content."""
    state = json.loads(path.read_text(encoding="utf-8"))
    right = isinstance(state, dict) and state.get("format") == FORMAT and {"merges", "specials", "pattern"} <= state.keys()
    expects(right, "content", "something else", f"merges, specials and pattern in format {FORMAT!r}")
    return state

"""A tokenizer's file: JSON, written completely or not at all, and checked when read."""

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tlm_book.checks import expects
from tlm_book.files import new_file

__all__ = ["FORMAT", "read_state", "write_state", "write_texts"]

FORMAT = "tlm_book.tokenizer.1"


def write_texts(texts: Mapping[Path, str]) -> None:
    """Write each text to its path; the files take their places when all are complete. An OSError leaves the old files as they were."""
    with contextlib.ExitStack() as files:
        for path, text in texts.items():
            files.enter_context(new_file(path)).write_text(text + "\n", encoding="utf-8", newline="\n")


def write_state(path: Path, state: Mapping[str, object]) -> None:
    """Write a tokenizer's fields, with a word that names the format."""
    write_texts({path: json.dumps({"format": FORMAT, **state})})


def read_state(path: Path) -> dict[str, Any]:
    """The fields that `write_state` wrote; ValueError for other content."""
    state = json.loads(path.read_text(encoding="utf-8"))
    right = isinstance(state, dict) and state.get("format") == FORMAT and {"merges", "specials", "pattern"} <= state.keys()
    expects(right, "content", "something else", f"merges, specials and pattern in format {FORMAT!r}")
    return state

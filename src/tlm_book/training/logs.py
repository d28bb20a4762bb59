"""The log of a run, one entry for each step, for programs, for spreadsheets and for TensorBoard. Written by hand."""

import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from tlm_book.libraries import library

__all__ = ["BOARD", "COLUMNS", "Entry", "board_writer", "logs", "write_board"]

Entry = dict[str, int | float]  # of the log: the figures of one step
COLUMNS = ("step", "lr", "loss", "held_out")
BOARD = "tensorboard"  # the folder for TensorBoard's files


def logs(entries: Sequence[Mapping[str, Any]], head: bool = True) -> dict[str, str]:
    """{file: text}: the log with one entry a line, and as a table for a spreadsheet; with `head`, the table begins with the names of its columns."""
    rows = [",".join(str(entry.get(name, "")) for name in COLUMNS) for entry in entries]
    table = [",".join(COLUMNS), *rows] if head else rows
    listed = [json.dumps(dict(entry)) for entry in entries]
    return {"log.jsonl": _text(listed), "log.csv": _text(table)}


def _text(lines: Sequence[str]) -> str:
    return "".join(line + "\n" for line in lines)


def board_writer() -> Any:
    """The class that writes TensorBoard's files; ImportError without the package tensorboard."""
    library("tensorboard", "tensorboard")
    return import_module("torch.utils.tensorboard").SummaryWriter


def write_board(board: Any, entries: Sequence[Mapping[str, Any]]) -> None:
    """Write the entries with this writer, and flush them to the disk."""
    for entry in entries:
        for name in COLUMNS[1:]:
            if name in entry:
                board.add_scalar(name, entry[name], entry["step"])
    board.flush()

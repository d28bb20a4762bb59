"""What the chapters show of the runs that made the shipped models: `src/tlm_book/data/curves.json`, from the logs beside the models.

    python book/_tools/curves.py

The logs stay in the repository; the wheel takes these few kilobytes instead.
"""

import json
from typing import Any

from chapters import SOURCE

DATA = SOURCE / "data"
TOGETHER = 25  # steps whose losses are one point of the curve


def read_log(model: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / model / "log.jsonl").read_text(encoding="utf-8").splitlines()]


def rounded(values: Any, digits: int) -> Any:
    """A number, or a list of numbers nested to any depth, with so many decimals."""
    return [rounded(value, digits) for value in values] if isinstance(values, list) else round(values, digits)


def essays() -> dict[str, Any]:
    """The mean loss of every 25 steps, at the middle of them, and the losses on the text that is held out."""
    log = read_log("model")
    groups = [log[i : i + TOGETHER] for i in range(0, len(log), TOGETHER)]
    return {
        "step": [group[len(group) // 2]["step"] for group in groups],
        "loss": [rounded(sum(entry["loss"] for entry in group) / len(group), 3) for group in groups],
        "held_out": [[entry["step"], rounded(entry["held_out"], 5)] for entry in log if "held_out" in entry],
    }


def rhymes() -> list[dict[str, Any]]:
    """At every fifty steps: the loss, and for each block and head its three scores."""
    return [{name: rounded(entry[name], 3) for name in ("step", "loss", "previous", "duplicate", "induction")} for entry in read_log("rhymes")]


def world() -> list[dict[str, Any]]:
    """After so many tokens: the share of right answers in each lesson."""
    return [{name: rounded(entry[name], 3) for name in ("tokens", "right")} for entry in read_log("world")]


def text() -> str:
    """The text of the file: a line for each run."""
    runs = {"essays": essays(), "rhymes": rhymes(), "world": world()}
    lines = ",\n".join(f'"{name}": {json.dumps(run, separators=(",", ":"))}' for name, run in runs.items())
    return f"{{\n{lines}\n}}\n"


if __name__ == "__main__":
    (DATA / "curves.json").write_text(text(), encoding="utf-8")

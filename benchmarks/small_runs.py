"""Plain English text that is on every machine with the pinned packages, and short runs on it that are kept as they end.

The text is prose from the documentation inside packages of requirements.txt (docstrings, without their paragraphs of code, tables and formulas,
each paragraph once), and the book's essays. Its characters are the tokens.

    text = prose(("numpy", "networkx"))              # a document for each file that says something
    for job in pending(path, jobs): …; keep(path, job, found)    # one line of JSON for each run: a run that is stopped is taken up again
"""

import ast
import hashlib
import importlib.metadata
import importlib.util
import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tlm_book.loss import shift, weighted_loss
from tlm_book.training import evaluate
from tlm_book.transformer_lm import TransformerLM

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "_build"
PLAIN_WORD = re.compile(r"[\"'(]?[A-Za-z][a-z'-]*[\"')]?[.,;:]?")


# The text


def is_prose(paragraph: str) -> bool:
    """Whether nearly all of it is words: no code, no table, no formula."""
    words = paragraph.split()
    few = len(paragraph) < 80 or paragraph[-1] not in ".:" or "`" in paragraph or not paragraph.isascii()
    return not few and sum(map(bool, map(PLAIN_WORD.fullmatch, words))) > 0.85 * len(words)


def docstrings(file: Path) -> Iterator[str]:
    """The docstrings of a file; none if this Python cannot read it."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""


def prose(packages: Sequence[str], essays: bool = True) -> list[str]:
    """A document for each essay of the book, if they are wanted, and each file of the packages that has prose in it; kept for the next time."""
    versions = "-".join(f"{name}{importlib.metadata.version(name)}" for name in packages)
    file = KEPT / f"prose-{'' if essays else 'alone-'}{versions}.json"
    if file.is_file():
        return json.loads(file.read_text(encoding="utf-8"))
    paths = sorted((ROOT / "src/tlm_book/data/corpus").glob("*.txt")) if essays else []
    documents = [" ".join(path.read_text(encoding="utf-8").split()) for path in paths]
    documents, seen = ["".join(c for c in text if c.isascii()) for text in documents], set[str]()
    for name in packages:
        folder = Path(importlib.util.find_spec(name).submodule_search_locations[0])
        for path in sorted(folder.rglob("*.py")):
            if "tests" in path.parts:
                continue
            found = (" ".join(part.split()) for text in docstrings(path) for part in re.split(r"\n\s*\n", text))
            new = [part for part in dict.fromkeys(found) if is_prose(part) and part not in seen]
            seen.update(new)
            documents += ["\n".join(new)] if new else []
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(documents), encoding="utf-8")
    return documents


@dataclass(frozen=True)
class Text:
    """Characters as tokens, 0 being the mark that stands before every window: those to learn from, to choose by, and to judge by. Whole documents, at random."""

    learn: Tensor
    choose: Tensor
    judge: Tensor
    alphabet: str
    sha256: str

    @classmethod
    def of(cls, packages: Sequence[str], held_out: float = 0.08) -> "Text":
        documents = prose(packages)
        whole = "\n\n".join(documents)
        alphabet = "".join(sorted(set(whole)))
        number = {sign: i + 1 for i, sign in enumerate(alphabet)}
        order = np.random.default_rng(0).permutation(len(documents))
        parts: list[list[int]] = [[], [], []]
        for i in order:
            tokens = [number[sign] for sign in documents[i] + "\n\n"]
            few = next((k for k in (1, 2) if len(parts[k]) < held_out * len(whole)), 0)
            parts[few] += tokens
        return cls(*map(torch.tensor, (parts[0], parts[1], parts[2])), alphabet, hashlib.sha256(whole.encode()).hexdigest()[:16])

    @property
    def vocab_size(self) -> int:
        return len(self.alphabet) + 1

    def facts(self) -> dict[str, Any]:
        sizes = {name: len(getattr(self, name)) for name in ("learn", "choose", "judge")}
        return {"characters": sizes, "different": len(self.alphabet), "sha256": self.sha256}


# A run


def once(tokens: Tensor, n: int, batch: int, seed: int) -> Iterator[Tensor]:
    """Batches of windows that do not overlap, in random order; after the last the text begins again, in another order."""
    for turn in range(1000):
        windows = tokens[: len(tokens) // n * n].view(-1, n)
        order = torch.from_numpy(np.random.default_rng((seed, turn)).permutation(len(windows)))
        yield from (windows[rows] for rows in order.split(batch) if len(rows) == batch)


def trapezium(steps: int, warmup: int, cooling: float, lowest: float = 0.0) -> Callable[[int], float]:
    """Rises linearly, stays level, and falls linearly to `lowest` in the last part `cooling` of the steps."""
    return lambda step: min((step + 1) / (warmup + 1), 1.0, lowest + (1 - lowest) * (steps - step) / max(1, cooling * steps))


def learned(
    model: TransformerLM, optimizer: torch.optim.Optimizer, batches: Iterator[Tensor], steps: int, rate: Callable[[int], float], clip: float = 1.0
) -> dict[str, Any]:
    """Carries the run out: its mean loss in each twentieth of the steps, and processor time. An infinite loss ends it."""
    highest = [group["lr"] for group in optimizer.param_groups]
    curve: list[float] = []
    some: list[float] = []
    began = time.process_time()
    for step in range(steps):
        for group, high in zip(optimizer.param_groups, highest, strict=True):
            group["lr"] = high * rate(step)
        x = next(batches)
        optimizer.zero_grad()
        loss = weighted_loss(model(shift(x, 0)), x)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        some.append(loss.item())
        if len(some) >= steps / 20:
            curve.append(round(sum(some) / len(some), 4))
            some = []
        if not math.isfinite(loss.item()):
            break
    return {"curve": curve, "processor_s": round(time.process_time() - began, 1)}


def held_out(model: TransformerLM, tokens: Tensor) -> float:
    """Nats for each character of text that was not learned from, in windows like those of training."""
    loss = evaluate(model, tokens, model.config.max_len, start=0, batch_size=64)
    return round(loss, 4) if math.isfinite(loss) else math.inf


# Runs that are kept as they end


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.is_file() else []


def pending(file: Path, jobs: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The jobs that have no line yet."""
    done = [row["job"] for row in rows(file)]
    return (job for job in jobs if job not in done)


def keep(file: Path, job: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    file.parent.mkdir(exist_ok=True)
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps({"job": job, **found}) + "\n")
    print(json.dumps({**job, **found}), flush=True)

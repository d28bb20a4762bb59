"""Tests run with the runtime checker on: every signature of the package is enforced by jaxtyping and beartype. At the end: what was tried, and what not."""

import os
import sys
from collections import Counter
from pathlib import Path

os.environ.setdefault("TLM_BOOK_TYPECHECK", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "book" / "_tools"))

SHOWN = 4  # reasons for which tests were skipped that get a line of their own; one line more for all others


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="also run what is long by nature")
    parser.addoption("--colab", action="store_true", help="run the chapters in an environment of their own (tests/test_colab.py)")
    parser.addoption("--thorough", action="store_true", help="kill runs at every moment, not at some (tests/test_resume.py)")


def pytest_configure(config):
    config.addinivalue_line("markers", "long: takes long by nature; runs with --all, which `make test-all` gives")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--all") or config.getoption("--thorough"):
        return
    kept, left = [], []
    for item in items:
        (left if item.get_closest_marker("long") else kept).append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = kept


def skipped_by_reason(reports) -> list[str]:
    """At most SHOWN + 1 lines: how many tests were skipped, and why."""
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in reports)
    lines = [f"skipped {count:4}: {reason}" for reason, count in reasons.most_common(SHOWN)]
    others = reasons.most_common()[SHOWN:]
    if others:
        lines.append(f"skipped {sum(count for _, count in others):4}: other reasons ({'; '.join(reason[:60] for reason, _ in others)})")
    return lines


def outcome(stats: dict[str, list]) -> str:
    """What passed and what could not be tried here, in one sentence."""
    passed = [report.nodeid for report in stats.get("passed", [])]
    cells = [name for name in passed if "ipynb::" in name]
    chapters = {name.split("::")[0] for name in cells}
    words = []
    if cells:
        words.append(f"{len(cells):,} cells of {len(chapters)} notebooks ran and gave their printed outputs")
    if len(passed) > len(cells):
        words.append(f"{len(passed) - len(cells):,} tests held")
    wrong = sum(len(stats.get(kind, [])) for kind in ("failed", "error"))
    skipped, long = (len(stats.get(kind, [])) for kind in ("skipped", "deselected"))
    sentence = " and ".join(words) or "Nothing passed"
    if wrong:
        sentence += f"; {wrong} did NOT"
    if skipped:
        sentence += f"; {skipped} could not be tried here, for the reasons above"
    if long:
        sentence += f"; {long} long ones were left to make test-all"
    return sentence + "."


def pytest_terminal_summary(terminalreporter):
    lines = skipped_by_reason(terminalreporter.stats.get("skipped", []))
    terminalreporter.write_sep("=", "what was tried")
    for line in [*lines, outcome(terminalreporter.stats)]:
        terminalreporter.write_line(line)

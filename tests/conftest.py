"""Tests run with the runtime checker on: every signature of the package is enforced by jaxtyping and beartype. At the end: what was tried, and what not.

The checker is for this process. Those that it starts, the notebooks' kernels among them, go without it, as a user's do, unless TLM_BOOK_TYPECHECK is
set for all.
"""

import os
import sys
from collections import Counter
from pathlib import Path

import pytest

if "TLM_BOOK_TYPECHECK" not in os.environ:
    os.environ["TLM_BOOK_TYPECHECK"] = "1"
    import tlm_book  # noqa: F401  it reads the variable

    del os.environ["TLM_BOOK_TYPECHECK"]
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "book" / "_tools"))

LONG = pytest.StashKey[int]()  # how many long tests were left out
SHOWN = 4  # reasons for which tests were skipped that get a line of their own; one line more for all others


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="also run what is long by nature")
    parser.addoption("--long", action="store_true", help="run only what is long by nature, and the notebooks")
    parser.addoption("--colab", action="store_true", help="run the chapters in an environment of their own (tests/test_colab.py)")
    parser.addoption("--thorough", action="store_true", help="kill runs at every moment, not at some (tests/test_resume.py)")


def pytest_configure(config):
    config.addinivalue_line("markers", "long: takes long by nature; runs with --all or --long: `make test-all`")


# What takes longest comes first, so that no worker is left alone with it at the end.
FIRST = ("book/training", "book/translation", "tests/browser/test_site", "tests/test_auditing", "tests/browser", "tests/test_style", "book/inference")


def place(item) -> int:
    return next((number for number, begin in enumerate(FIRST) if item.nodeid.startswith(begin)), len(FIRST))


def pytest_collection_modifyitems(config, items):
    items.sort(key=place)
    if config.getoption("--all") or config.getoption("--thorough"):
        return
    only_long = config.getoption("--long")
    kept, left = [], []
    for item in items:
        is_long, is_cell = item.get_closest_marker("long") is not None, "ipynb::" in item.nodeid
        (kept if is_long == only_long or is_cell else left).append(item)
    config.hook.pytest_deselected(items=left)
    config.stash[LONG] = 0 if only_long else len(left)
    if hasattr(config, "workeroutput"):  # one of several workers; each of them collects everything
        config.workeroutput["long"] = config.stash[LONG]
    items[:] = kept


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    node.config.stash[LONG] = getattr(node, "workeroutput", {}).get("long", 0)


def skipped_by_reason(reports) -> list[str]:
    """At most SHOWN + 1 lines: how many tests were skipped, and why."""
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in reports)
    lines = [f"skipped {count:4}: {reason}" for reason, count in reasons.most_common(SHOWN)]
    others = reasons.most_common()[SHOWN:]
    if others:
        lines.append(f"skipped {sum(count for _, count in others):4}: other reasons ({'; '.join(reason[:60] for reason, _ in others)})")
    return lines


def outcome(stats: dict[str, list], long: int = 0) -> str:
    """What passed and what could not be tried here, in one sentence."""
    passed = [report.nodeid for report in stats.get("passed", [])]
    cells = [name for name in passed if "ipynb::" in name]
    chapters = {name.split("::")[0] for name in cells}
    words = []
    if cells:
        words.append(f"{len(cells):,} cells of {len(chapters)} notebooks ran and gave their printed outputs")
    if len(passed) > len(cells):
        tests = len(passed) - len(cells)
        words.append(f"{tests:,} test{'s' * (tests != 1)} held")
    wrong = sum(len(stats.get(kind, [])) for kind in ("failed", "error"))
    skipped = len(stats.get("skipped", []))
    sentence = " and ".join(words) or "Nothing passed"
    if wrong:
        sentence += f"; {wrong} did NOT"
    if skipped:
        sentence += f"; {skipped} could not be tried here, for the reasons above"
    if long:
        sentence += f"; {long} long ones were left to make test-all"
    return sentence + "."


def pytest_terminal_summary(terminalreporter, config):
    stats = terminalreporter.stats
    lines = skipped_by_reason(stats.get("skipped", []))
    terminalreporter.write_sep("=", "what was tried")
    for line in [*lines, outcome(stats, config.stash.get(LONG, 0))]:
        terminalreporter.write_line(line)

"""Tests run with the runtime checker on: every signature of the package is enforced by jaxtyping and beartype. At the end: what was tried, and what not.

The checker is for this process only. The processes that it starts, notebooks' kernels included, run without it, as a user's do, unless
TLM_BOOK_TYPECHECK is set for all.
"""

import os
import signal
import sys
from pathlib import Path

import pytest

if "TLM_BOOK_TYPECHECK" not in os.environ:
    os.environ["TLM_BOOK_TYPECHECK"] = "1"
    import tlm_book  # noqa: F401  it reads the variable

    del os.environ["TLM_BOOK_TYPECHECK"]
sys.path.extend(str(Path(__file__).resolve().parents[1] / name) for name in ("tests/support", "tests/book", "book/_tools"))

from summary import outcome, skipped_by_reason
from workers import place

LONG = pytest.StashKey[int]()  # how many long tests were left out


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="also run what is long by nature")
    parser.addoption("--colab", action="store_true", help="run the chapters in an environment of their own (tests/book/test_colab.py)")
    parser.addoption("--thorough", action="store_true", help="all; kill runs at every moment (tests/unit/test_resume.py), and judge each page's colours anew (tests/browser/test_site.py)")


def pytest_configure(config):
    config.addinivalue_line("markers", "long: takes long by nature; runs with --all: `make test-all`")
    config.addinivalue_line("markers", "gpu: needs a GPU, and is skipped where there is none: `make gpu`")


def pytest_collection_modifyitems(config, items):
    items.sort(key=place)
    if config.getoption("--all") or config.getoption("--thorough"):
        return
    left = [item for item in items if item.get_closest_marker("long")]
    config.hook.pytest_deselected(items=left)
    config.stash[LONG] = len(left)
    if hasattr(config, "workeroutput"):  # one of several workers; each of them collects everything
        config.workeroutput["long"] = len(left)
    items[:] = [item for item in items if not item.get_closest_marker("long")]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    node.config.stash[LONG] = getattr(node, "workeroutput", {}).get("long", 0)


def pytest_terminal_summary(terminalreporter, config):
    stats = terminalreporter.stats
    lines = skipped_by_reason(stats.get("skipped", []))
    terminalreporter.write_sep("=", "what was tried")
    for line in [*lines, outcome(stats, config.stash.get(LONG, 0))]:
        terminalreporter.write_line(line)


@pytest.fixture
def usual_ctrl_c():
    """Ctrl-C raises KeyboardInterrupt, also where the tests run in the background, whose processes ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)

"""The end of a test run can be read: skips by reason in at most five lines, then one sentence. Long tests run when asked for."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from summary import outcome, skipped_by_reason

CASES = '''
import pytest
@pytest.mark.parametrize("k", range(30))
def test_skipped(k): pytest.skip(f"reason {k % 7}")
def test_held(): pass
@pytest.mark.long
def test_long(): pass
'''


def report(reason):
    return SimpleNamespace(longrepr=("file", 1, f"Skipped: {reason}"))


def test_at_most_five_lines_that_add_up():
    reports = [report(f"reason {k % 9}") for k in range(100)]
    lines = skipped_by_reason(reports)
    assert len(lines) == 5 and sum(int(line.split()[1].rstrip(":")) for line in lines) == 100
    assert skipped_by_reason(reports[:1]) == ["skipped    1: reason 0"] and skipped_by_reason([]) == []


def test_the_sentence_counts():
    passed = [SimpleNamespace(nodeid=name) for name in ("book/a.ipynb::Cell 0", "book/a.ipynb::Cell 1", "book/b.ipynb::Cell 0", "tests/x.py::y")]
    assert outcome({"passed": passed}) == "3 cells of 2 notebooks ran and gave their printed outputs and 1 test held."
    said = outcome({"passed": passed, "failed": passed[:2], "error": passed[:1], "skipped": passed[:1]}, long=7)
    assert "3 did NOT" in said and "1 could not be tried here" in said and "7 long ones" in said
    assert outcome({}) == "Nothing passed."


def run(tmp_path, options):
    """The lines that a small run of tests ends with."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "book" / "_tools").mkdir(parents=True)
    (tmp_path / "tests" / "support").mkdir()
    for name in ("tests/conftest.py", "tests/support/summary.py", "book/_tools/workers.py"):
        shutil.copy(Path(__file__).parents[2] / name, tmp_path / name)
    (tmp_path / "tests" / "test_small.py").write_text(CASES)
    command = [sys.executable, "-m", "pytest", "-r", "fE", "-p", "no:cacheprovider", "-p", "xdist.plugin", "tests", *options]
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"} | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    said = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True).stdout
    return said[said.index("what was tried") :].splitlines()[1:]


RUNS = {"one": [], "two workers": ["-n", "2", "--dist", "loadscope"], "all": ["--all"]}


@pytest.mark.parametrize("options", RUNS.values(), ids=RUNS)
def test_the_end_of_a_run(options, tmp_path):
    end = run(tmp_path, options)
    assert [line.split(":")[0] for line in end[:5]] == ["skipped    5"] * 2 + ["skipped    4"] * 2 + ["skipped   12"]
    held = 2 if options == ["--all"] else 1
    assert end[5].startswith(f"{held} test{'s' * (held > 1)} held; 30 could not be tried here") and ("1 long ones" in end[5]) == (held == 1)

"""How `pytest --nbval book/` compares outputs: equal words, and numbers to the last printed place (_tools/agreement.py). How it starts kernels: by a fork
of one process that has imported what chapters import (_tools/forked_kernels.py). That two workers share the chapters (_tools/workers.py)."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "_tools"))

from agreement import differences
from forked_kernels import use_forks
from nbval.plugin import IPyNbCell
from workers import place, share_out


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    share_out(config, Path(__file__).parent)


def pytest_collection_modifyitems(items):
    items.sort(key=place)


def compare_outputs(self: IPyNbCell, test: list, ref: list, skip_compare: object = None) -> bool:
    """nbval compares letter by letter; this method replaces its own."""
    self.comparison_traceback = differences(ref, test)
    return not self.comparison_traceback


IPyNbCell.compare_outputs = compare_outputs
use_forks()

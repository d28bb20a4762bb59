"""What a user is told about bad input: the table of `bad_inputs.py`, run in a process without the runtime type checker."""

import functools
import json
import re
from pathlib import Path

import pytest
from bad_inputs import CASES
from commands import run_script

SCRIPT = Path(__file__).parents[1] / "support" / "bad_inputs.py"


@functools.cache
def outcomes() -> dict[str, list[str]]:
    """{case: [type, message]}, from one run of the table."""
    result = run_script(SCRIPT)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bad_input_is_named(case):
    kind, message = outcomes()[case.name]
    assert kind == case.error.__name__, f"got {kind}: {message}"
    missing = [words for words in case.words if words not in message]
    assert not missing, f"{missing} not in: {message}"
    assert re.search(r"\S: got .+want .+", message, re.S), f"not in the form 'argument: got …, want …': {message}"


def test_the_table_is_a_table():
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names) == len(outcomes()) >= 45
    assert all(case.error in (ValueError, TypeError, IndexError, FileNotFoundError, FileExistsError) for case in CASES)

"""A check that cannot fail checks nothing: claims and formulas are broken on purpose, and the chapter's own check cell must fail."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import chapters as book
import pytest
from mutations import Mutation

TABLE = Path(__file__).parents[1] / "support" / "mutations.json"
QUICK = {"embedding", "feed_forward", "normalization"}  # chapters that run in seconds
MUTATIONS = [Mutation(*row) for row in json.loads(TABLE.read_text(encoding="utf-8"))]


def surroundings() -> dict[str, str]:
    """The environment of a process that runs a chapter: the tools on its path, and no type checker: a mutant must be caught by the check, not by a type."""
    path = [str(book.ROOT / "book" / "_tools"), *filter(None, [os.environ.get("PYTHONPATH")])]
    given = {name: value for name, value in os.environ.items() if name != "TLM_BOOK_TYPECHECK"}
    return given | {"PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1"}


@functools.cache
def outcomes(chapter: str) -> dict[Mutation, str]:
    """{mutation: what became of it}, from one run of the chapter in a process of its own."""
    mutations = [mutation for mutation in MUTATIONS if mutation.chapter == chapter]
    command = [sys.executable, str(Path(__file__).parents[1] / "support" / "mutations.py"), chapter]
    result = subprocess.run(
        command, input=json.dumps(mutations), env=surroundings(), cwd=book.BOOK, capture_output=True, text=True, timeout=900
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return dict(zip(mutations, json.loads(result.stdout)))


def case(number: int, mutation: Mutation):
    marks = () if mutation.chapter in QUICK else pytest.mark.long
    return pytest.param(mutation, id=f"{mutation.chapter}-{mutation.statement}-{number}", marks=marks)


@pytest.mark.parametrize("mutation", [case(number, mutation) for number, mutation in enumerate(MUTATIONS)])
def test_a_broken_claim_is_noticed(mutation):
    assert outcomes(mutation.chapter)[mutation] == "caught", f"- {mutation.old}\n+ {mutation.new}"


def test_a_change_that_changes_nothing_is_not_noticed():
    """The test above can fail."""
    from mutations import code_cells

    chapter, statement = "feed_forward", "T-relu"
    assert any("#| checks: T-relu" in cell for cell in code_cells(chapter))
    harmless = [[chapter, statement, "return np.maximum(x, 0)", "return np.maximum(0, x)"]]
    broken = [[chapter, statement, "return np.maximum(x, 0)", "return np.minimum(x, 0)"]]
    command = [sys.executable, str(Path(__file__).parents[1] / "support" / "mutations.py"), chapter]
    result = subprocess.run(command, input=json.dumps(harmless + broken), env=surroundings(), capture_output=True, text=True, check=True, cwd=book.BOOK)
    assert json.loads(result.stdout) == ["not noticed", "caught"]


def test_the_table_is_broad():
    assert len(set(MUTATIONS)) == len(MUTATIONS) >= 20
    assert len({mutation.chapter for mutation in MUTATIONS}) >= 8

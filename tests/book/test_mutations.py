"""A check that cannot fail checks nothing: claims and formulas are broken on purpose, and the chapter's own check cell must fail.

Of each chapter the tests break a few, always the same; `make broken` breaks all of them.
"""

import functools
import signal
from collections import Counter

import broken
import chapters as book
import commands
import mutations
import pytest
from mutations import Mutation

QUICK = {"normalization"}  # a chapter that runs in seconds
MUTATIONS = broken.all_mutations()
SAMPLE = broken.sample(MUTATIONS)


@functools.cache
def outcomes(chapter: str) -> dict[Mutation, str]:
    """{mutation: what became of it}, from one run of the chapter in a process of its own."""
    mutations = [mutation for mutation in SAMPLE if mutation.chapter == chapter]
    return dict(zip(mutations, broken.run(chapter, mutations, timeout=900)))


def case(number: int, mutation: Mutation):
    marks = () if mutation.chapter in QUICK else pytest.mark.long
    return pytest.param(mutation, id=f"{mutation.chapter}-{mutation.statement}-{number}", marks=marks)


@pytest.mark.parametrize("mutation", [case(number, mutation) for number, mutation in enumerate(SAMPLE)])
def test_a_broken_claim_is_noticed(mutation):
    assert outcomes(mutation.chapter)[mutation] == "caught", f"- {mutation.old}\n+ {mutation.new}"


def test_a_change_that_changes_nothing_is_not_noticed():
    """The test above can fail."""
    chapter, statement = "feed_forward", "T-relu"
    harmless = Mutation(chapter, statement, "return np.maximum(x, 0)", "return np.maximum(0, x)")
    wrong = Mutation(chapter, statement, "return np.maximum(x, 0)", "return np.minimum(x, 0)")
    assert broken.run(chapter, [harmless, wrong]) == ["not noticed", "caught"]


def test_only_what_is_needed_runs():
    cells = ["n = 2", "m = [k for k in range(n)]", "def f(x): return x * n", "k = f(n)", "n = 3", "assert f(n) == k + 3"]
    assert mutations.needed(cells, {3: []}) == ["n = 2", "", cells[2], cells[3]]
    assert mutations.needed(cells, {5: []}) == ["n = 2", "", *cells[2:]]
    assert mutations.needed(cells, {4: ["n = len(m)"], 5: []}) == cells  # the changed form takes another name


def test_a_check_that_fails_without_a_change_is_no_catch(monkeypatch):
    """Left out by `needed`, or wrong in itself."""
    cells = ["x = []", "x.append(1)", "y = 1", "#| checks: T-any\nassert x and y == 1"]
    monkeypatch.setattr(mutations, "code_cells", lambda chapter: cells)
    monkeypatch.setattr(mutations, "in_a_child", lambda *_: "caught")
    with pytest.raises(AssertionError):
        mutations.outcomes("any", [Mutation("any", "T-any", "y = 1", "y = 2")])


def test_what_does_not_end_is_killed():
    assert commands.run_code("import time; time.sleep(60)", longest=1).returncode == -signal.SIGALRM


def test_every_broken_claim_stands_once_in_its_chapter():
    """What is changed is there, in one cell; the statement is one that a cell of the chapter checks."""
    cells = {chapter: broken.code_cells(chapter) for chapter in {mutation.chapter for mutation in MUTATIONS}}
    for mutation in MUTATIONS:
        places = sum(source.count(mutation.old) for source in cells[mutation.chapter])
        assert places == 1, f"{mutation.chapter}, {mutation.statement}: {mutation.old!r} stands there {places} times"
        checked = [id_ for source in cells[mutation.chapter] for id_ in book.directives(source).get("checks", "").split()]
        assert mutation.statement in checked, f"{mutation.chapter}: no cell checks {mutation.statement}"


def test_the_table_is_broad():
    assert len(set(MUTATIONS)) == len(MUTATIONS) >= 500
    assert {mutation.chapter for mutation in MUTATIONS} >= set(book.chapters()) - set(book.appendices()) - {"index"}


def test_the_sample_is_small_and_has_every_chapter():
    assert max(Counter(mutation.chapter for mutation in SAMPLE).values()) <= broken.SAMPLE
    assert {mutation.chapter for mutation in SAMPLE} == {mutation.chapter for mutation in MUTATIONS}
    assert broken.sample(reversed(SAMPLE)) != [] and set(broken.sample(reversed(SAMPLE))) == set(SAMPLE)


def test_an_outcome_is_kept_until_something_that_it_depends_on_changes(monkeypatch):
    mutation = next(mutation for mutation in MUTATIONS if mutation.chapter == "feed_forward")
    before = broken.keys("feed_forward", [mutation])
    assert broken.keys("feed_forward", [mutation]) == before
    cells = broken.code_cells("feed_forward")
    monkeypatch.setattr(broken, "code_cells", lambda chapter: [cells[0] + "\n# another word", *cells[1:]])
    assert broken.keys("feed_forward", [mutation]) != before
    monkeypatch.setattr(broken, "code_cells", lambda chapter: cells)
    monkeypatch.setattr(broken, "state_of_package", lambda source: "another package")
    assert broken.keys("feed_forward", [mutation]) != before

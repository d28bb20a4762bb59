"""The tool that breaks the specification mechanically (tests/support/mutants.py), and what it measured last: `make mutants` measures again."""

import ast
import textwrap

import chapters as book
import mutants
import mutating
import pytest
import yaml

MEASURE = "run `make mutants`"
RESULTS = mutants.read_json(mutants.RESULTS, {})
WHY = mutants.reasons()


def survivors_of(definition: str, check: str, imports: str = "") -> list[str]:
    """What stands in the mutants of `planted` that this check cell lets pass."""
    definition = textwrap.dedent(definition).strip()
    chapter = mutants.Chapter("toy", [f"#| export spec.toy\n{imports}\n{definition}", f"#| checks: T-toy\n{check}"], {"planted": definition})
    chapter.patience = 0.2
    chapter.rehearse()
    made = mutating.all_mutants("planted", definition)
    return [mutant.becomes for mutant, outcome in zip(made, chapter.measure({"planted": made})["planted"]) if not outcome]


LINE = """
    def planted(x):
        return 2 * x + 1
"""


def test_a_weak_check_leaves_survivors_and_a_strong_one_none():
    weak = survivors_of(LINE, "assert planted(0) == 1")
    assert {"return 3 * x + 1", "return x + 1", "return 1"} <= set(weak)
    assert "return 2 * x + 2" not in weak and "return 2 * x - 1" not in weak
    assert survivors_of(LINE, "assert [planted(x) for x in (0, 1, 3)] == [1, 3, 7]") == []


def test_mutants_stand_below_the_check_of_shapes():
    """The decorator keeps the function that it was given: this one has to change."""
    checked, imports = "@shaped\n" + textwrap.dedent(LINE).strip(), "from tlm_book.checks import shaped"
    assert survivors_of(checked, "assert [planted(x) for x in (0, 1, 3)] == [1, 3, 7]", imports) == []
    assert {mutating.head(ast.parse(checked).body[0])} == {"def planted(x):"}


def test_a_run_without_end_is_caught():
    loop = """
        def planted(x):
            while x > 0:
                x -= 1
            return x
    """
    left = survivors_of(loop, "assert planted(3) == 0")
    assert "while x >= 0:" not in left and "pass" not in left  # x stays at 3 without its statement
    assert survivors_of(loop, "assert True") != []


def test_checks_see_mutants_through_other_cells():
    """A value that an earlier cell has computed is computed anew, and cells that nobody needs are left out."""
    definition = textwrap.dedent(LINE).strip()
    cells = [f"#| export spec.toy\n{definition}", "y = planted(3)", "raise SystemExit if y != 7 else 0", "z = y", "#| checks: T-toy\nassert z == 7"]
    cells[2] = "print(1 / (y == 7))  # a cell that fails with the mutant, and that no check needs"
    chapter = mutants.Chapter("toy", cells, {"planted": definition})
    chapter.rehearse()
    assert chapter.plan("planted") == [1, 3, 4]
    made = mutating.all_mutants("planted", definition)
    assert all(outcome == "AssertionError T-toy" for outcome in chapter.measure({"planted": made})["planted"])


def test_checks_that_fail_by_themselves_are_refused():
    with pytest.raises(SystemExit, match="toy"):
        survivors_of(LINE, "assert planted(0) == 2")


def test_refusals_of_bad_input_are_left_alone():
    source = textwrap.dedent("""
        def planted(x, axes):
            fits = len(axes) > 0
            expects(fits, "axes", axes, "one axis")
            for name in ("a", "b"):
                expects_shape(name, x, (3,))
            if x.ndim > 7:
                raise ValueError(f"{x.ndim + 1}")
            return x.sum(axis=1)
    """).strip()
    found = mutating.all_mutants("planted", source)
    assert {m.becomes for m in found} == {
        "return x.sum(axis=0)", "return x.mean(axis=1)", "return x.sum()",
        "if x.ndim >= 7:", "if x.ndim > 8:", "if x.ndim > 6:", "if not x.ndim > 7:",
    }


def test_the_draw_is_fixed_and_takes_every_kind():
    name, source = "offset_map", mutating.functions("positional_encoding")["offset_map"]
    everything = mutating.all_mutants(name, source)
    some = mutating.drawn(everything, 12)
    assert len(some) == 12 and some == mutating.drawn(everything, 12)
    assert {m.kind for m in some} == {m.kind for m in everything}


def test_most_functions_are_measured_as_they_stand():
    """An edit of the specification may wait a little for its measurement; half a chapter may not."""
    now = {(chapter, name): mutants.digest(source) for chapter in book.chapters() for name, source in mutating.functions(chapter).items()}
    old = [key for key, source in now.items() if RESULTS.get(key[0], {}).get(key[1], {}).get("source") != source]
    print(f"not measured as they stand: {old}")
    assert len(old) <= 0.05 * len(now), f"{MEASURE}: {old}"


def test_nearly_all_mutants_are_caught():
    caught = sum(sum(one["caught"].values()) for found in RESULTS.values() for one in found.values())
    left = [key for key in mutants.survivors(RESULTS) if key not in WHY]
    assert caught >= 1000
    assert caught >= 0.95 * (caught + len(left)), left


def test_reasons_are_current():
    stale = set(WHY) - set(mutants.survivors(RESULTS))
    assert stale == set(), f"no such mutant survives: take the reason out of {mutants.REASONS.name}, or {MEASURE}"
    assert len(WHY) == sum(len(entry["changes"]) for entry in yaml.safe_load(mutants.REASONS.read_text(encoding="utf-8")))


def test_the_page_is_current():
    assert mutants.PAGE.read_text(encoding="utf-8") == mutants.page(RESULTS, WHY), f"{MEASURE}, or only: python tests/support/mutants.py --table"

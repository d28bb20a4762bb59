"""The imitation of other machines: it reaches the numerical libraries, and tells same digits, last places, disagreement and failure apart."""

import chapters as book
import forked_kernels
import nbformat
import portable
import pytest


def notebook(*cells):
    """Pairs of source and committed text; a third entry is a tag."""
    made = [
        nbformat.v4.new_code_cell(source, execution_count=1, outputs=[nbformat.v4.new_output("stream", text=text)], metadata={"tags": tags})
        for source, text, *tags in cells
    ]
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return nbformat.v4.new_notebook(cells=made, metadata=metadata)


@pytest.fixture
def seen(monkeypatch):
    """What is seen of a chapter with these cells on that machine. Kernels are forked, as by `make portable`."""
    monkeypatch.setattr(forked_kernels, "IMPORTED", ["ipykernel.kernelapp", "ipykernel.ipkernel", "ipykernel.zmqshell", "torch"])  # enough here
    forked_kernels.use_forks()

    def observed(machine, *cells):
        monkeypatch.setattr(portable, "read", lambda name: notebook(*cells))
        return portable.observe("chapter", machine)

    return observed


@pytest.mark.long
def test_the_four_outcomes(seen):
    found = seen(
        "old",
        ("print('loss 0.50 of 3')", "loss 0.50 of 3\n"),
        ("print('loss 0.51 of 3')", "loss 0.50 of 3\n"),
        ("print('loss 0.53 of 3')", "loss 0.50 of 3\n"),
        ("print('12 ms')", "15 ms\n", "nbval-ignore-output"),
        ("assert 1 + 1 == 3, 'wrong'", ""),
        ("print('not reached')", ""),
    )
    assert found.last_place == [(1, "0.50 → 0.51")] and found.mark == "2 ✗"
    assert [cell for cell, _ in found.refused] == [4, 2] and "wrong" in found.refused[0][1] and "committed 0.50, now 0.53" in found.refused[1][1]
    assert seen("old", ("print(1)", "1\n")).mark == "=" and seen("old", ("print(.1)", "0.2\n")).mark == "1"


@pytest.mark.long
def test_the_settings_reach_the_libraries(seen):
    source = "import os, torch\nprint(torch.backends.cpu.get_cpu_capability(), torch.get_num_threads(), os.environ.get('MKL_CBWR'))"
    assert seen("old", (source, "DEFAULT 1 COMPATIBLE\n")).mark == "="
    assert seen("2-threads", (source, "DEFAULT 1 COMPATIBLE\n")).mark == "1 ✗"


def test_the_table_has_a_row_for_each_chapter():
    some = [portable.Seen("a", "old", [], []), portable.Seen("a", "avx2", [(3, "0.1 → 0.2")], []), portable.Seen("b", "old", [], [(0, "x")])]
    assert portable.table(some, ["a", "b"], ["old", "avx2"]).splitlines()[2:] == ["| a | = | 1 |", "| b | 1 ✗ |  |"]


def test_two_of_the_machines_run_in_continuous_integration():
    script, makefile = ((book.ROOT / name).read_text() for name in (".ci/run", "Makefile"))
    assert "make test-all" in script and "portable.py --as old\n" in makefile and "make portable AS=avx2;" in script
    assert {"old", "avx2"} <= set(portable.IMITATIONS) and len(portable.IMITATIONS) >= 12

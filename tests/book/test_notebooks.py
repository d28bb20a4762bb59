"""The notebooks as files: run whole and in order, clean of machines and times, readable without the site."""

import ast
import json
import re
import warnings

import chapters as book
import pytest
from IPython.core.inputtransformer2 import TransformerManager

PAGES = book.table_of_contents()
MACHINE = re.compile(r"/(?:root|home|tmp|Users|work|var)/\w|\bat 0x[0-9a-f]{6,}|ipykernel_\d+")
MYST = re.compile(r"^\s*(?:`{3,}|:{3,})\{|\{(?:math|ref|numref|eq|doc|term|cite)\}`", re.M)


@pytest.mark.parametrize("name", PAGES)
def test_every_code_cell_was_executed_in_order(name):
    """A cell without execution count passes nbval without being compared, so such cells are refused."""
    counts = [cell.execution_count for cell in book.read(name).cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))


@pytest.mark.parametrize("name", PAGES)
def test_outputs_are_clean(name):
    for cell in book.read(name).cells:
        for output in cell.get("outputs", []):
            assert output.output_type != "error" or "raises-exception" in cell.metadata.get("tags", []), f"{name}: a cell failed"
            text = json.dumps(output)
            if "image/png" not in text:
                assert not MACHINE.search(text), f"{name}: a path, an address or a process id in an output: {MACHINE.search(text)[0]}"
            assert "application/vnd.jupyter.widget-view+json" not in text, f"{name}: a widget view without its kernel"


@pytest.mark.parametrize("name", PAGES)
def test_sources_compile_without_a_warning(name):
    """Newer versions of Python print under a cell what older ones do not say, such as that a string has an invalid escape sequence."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for cell in book.read(name).cells:
            if cell.cell_type == "code":
                compile(TransformerManager().transform_cell(cell.source), f"{name}: {cell.id}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("name", PAGES)
def test_sources_are_plain_and_free_of_machines(name):
    for cell in book.read(name).cells:
        assert not re.search(r"/(?:root|home|tmp|Users|work)/\w", cell.source), f"{name}: a path of some machine"
        if cell.cell_type == "markdown":
            assert not MYST.search(cell.source), f"{name}: a directive that Colab and GitHub cannot show:\n{cell.source}"


@pytest.mark.parametrize("name", PAGES)
def test_first_code_cell_installs_the_package(name):
    code = [cell for cell in book.read(name).cells if cell.cell_type == "code"]
    assert code[0].source == book.install_cell()
    assert "remove-cell" in code[0].metadata.get("tags", [])


@pytest.mark.parametrize("name", PAGES)
def test_pictures_have_words(name):
    for cell in book.read(name).cells:
        if any("image/png" in output.get("data", {}) for output in cell.get("outputs", [])):
            alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
            assert len(alt) > 20, f"{name}: a picture without alternative text:\n{cell.source[:200]}"


@pytest.mark.parametrize("name", [name for name in book.chapters() if name not in book.appendices()])
def test_the_chapter_follows_the_template(name):
    cells = book.read(name).cells
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    assert len(set(headings)) == len(headings), f"{name}: two headings are the same"
    for wanted in ("What the sources say", "Exercises", "Where to go next"):
        assert wanted in headings, f"{name}: no section '{wanted}'"
    start = next(number for number, cell in enumerate(cells) if re.search("^## Exercises$", cell.source, re.M))
    solutions = [cell for cell in cells[start:] if cell.cell_type == "code" and "hide-cell" in cell.metadata.get("tags", [])]
    assert 3 <= len(solutions) <= 12 and all("assert" in cell.source for cell in solutions), f"{name}: 3 to 12 solutions that assert"


def test_metadata_is_reduced():
    for name in PAGES:
        notebook = book.read(name)
        assert set(notebook.metadata) == {"kernelspec", "language_info"}, name
        assert all(set(cell.metadata) <= {"tags", "mystnb"} for cell in notebook.cells), name

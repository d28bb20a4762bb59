"""Every chapter by itself, as in Colab: one notebook in an empty folder, the package from its wheel, nothing else of this project.

    make colab                          all pages (seconds for the environment, then about as long as the book takes to run)
    make colab ONLY="attention loss"    some

Colab brings torch, numpy, matplotlib and Jupyter; the first cell of a chapter installs the package and, with it, what is still
missing. So the environment holds a kernel and what the wheel asks for; it has neither the tests' tools nor the repository.
Nothing is downloaded: what the wheel asks for is linked from the environment in which the tests run.
Without `--colab` these tests are skipped, except the one on versions.
"""

import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import distribution
from pathlib import PurePosixPath

import chapters as book
import nbformat
import pytest
from forked_kernels import use_forks
from nbclient import NotebookClient
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PAGES = book.chosen(os.environ.get("ONLY", "").split(), book.table_of_contents())
# What Colab had at the beginning of 2025 (its list of packages is public): installing the package may replace none of these.
COLAB = {"torch": "2.5.1", "numpy": "1.26.4", "matplotlib": "3.8.0", "sympy": "1.13.1", "tqdm": "4.66.6", "networkx": "3.4.2",
         "regex": "2024.9.11", "xarray": "2024.10.0", "ipywidgets": "7.7.1", "safetensors": "0.4.5"}  # fmt: skip


def test_the_package_replaces_nothing_that_colab_has():
    project = tomllib.loads((book.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for wanted in map(Requirement, project["dependencies"]):
        if wanted.name in COLAB:
            assert wanted.specifier.contains(COLAB[wanted.name]), f"{wanted} would replace Colab's {COLAB[wanted.name]}"


def needed(requirements):
    """Names of the packages that these requirements ask for, directly or not, with those for the chapters (the extra "book")."""
    waiting = [(Requirement(line), frozenset({"book"})) for line in requirements]
    seen = set()
    for wanted, extras in waiting:  # the list grows while it is read
        node = canonicalize_name(wanted.name), frozenset(wanted.extras)
        if node not in seen and (wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in extras or {""})):
            seen.add(node)
            waiting += [(Requirement(line), node[1]) for line in distribution(wanted.name).requires or []]
    return {name for name, _ in seen} - {"tlm-book"}  # whose extras ask for one another


def test_extras_of_extras_are_followed():
    own = distribution("tlm_book").requires or []
    assert {"matplotlib", "anywidget", "tokenizers", "sentencepiece", "sympy", "torch"} <= needed(own)
    assert not {"tlm-book", "pytest"} & needed(own)


def link(package, folder):
    """Put an installed package into another environment: links to its modules and to what is known of it."""
    installed = distribution(package)
    for entry in {PurePosixPath(file).parts[0] for file in installed.files} - {"..", "__pycache__"}:
        if not (folder / entry).exists():
            (folder / entry).symlink_to(installed.locate_file(entry))


@pytest.fixture(scope="session")
def colab(request, tmp_path_factory):
    """An environment with a kernel and the built wheel, made anew; and the kernel's name."""
    if not request.config.getoption("--colab"):
        pytest.skip("runs every chapter in an environment of its own: make colab")
    folder = tmp_path_factory.mktemp("colab")
    source = folder / "source"
    shutil.copytree(book.ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "LICENSE-text"):
        shutil.copy(book.ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", folder, source], check=True)
    (wheel,) = folder.glob("tlm_book-*.whl")
    shutil.rmtree(source)

    python = folder / "env" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    with zipfile.ZipFile(wheel) as content:
        (metadata,) = (content.read(name).decode() for name in content.namelist() if name.endswith("/METADATA"))
    asked = [line.removeprefix("Requires-Dist: ") for line in metadata.splitlines() if line.startswith("Requires-Dist: ")]
    (site,) = (folder / "env" / "lib").glob("python*/site-packages")
    for package in needed([*asked, "ipykernel"]):
        link(package, site)
    subprocess.run([python, *pip[1:], "install", "--no-index", "--no-deps", wheel], check=True)
    subprocess.run([python, *pip[1:], "check"], check=True)  # the wheel has what it asks for
    kernel = folder / "jupyter" / "kernels" / "colab"
    kernel.mkdir(parents=True)
    command = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kernel / "kernel.json").write_text(json.dumps({"argv": command, "display_name": "colab", "language": "python"}))
    return folder


def kinds(cell):
    """What a cell shows: pictures and tables, by kind."""
    shown = [kind for output in cell.get("outputs", []) for kind in output.get("data", {})]
    return {kind for kind in shown if kind in ("image/png", "image/svg+xml", "text/html", "text/latex", "text/markdown")}


@pytest.mark.parametrize("name", PAGES)
def test_a_chapter_runs_alone(colab, name, tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_PATH", str(colab / "jupyter"))
    for variable in ("PYTHONPATH", "TLM_BOOK_TYPECHECK"):
        monkeypatch.delenv(variable, raising=False)
    shutil.copy(book.notebook_path(name), tmp_path)
    notebook = nbformat.read(tmp_path / f"{name}.ipynb", as_version=4)
    where = "import tlm_book; print(tlm_book.__file__)"
    notebook.cells.append(nbformat.v4.new_code_cell(where))
    before = [kinds(cell) for cell in notebook.cells]
    use_forks()  # for its sockets: this kernel, of another environment, is not forked
    NotebookClient(notebook, timeout=900, kernel_name="colab", resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert notebook.cells[-1].outputs[0].text.startswith(str(colab / "env")), "the package of the repository was used"
    for cell, shown in zip(notebook.cells, before, strict=True):
        assert kinds(cell) >= shown, f"shows no {shown - kinds(cell)}: {cell.source[:100]}"


def test_the_environment_is_as_bare_as_it_says(colab):
    listed = subprocess.run([colab / "env" / "bin" / "python", "-m", "pip", "list", "--format", "json"], check=True, capture_output=True, text=True)
    names = {package["name"].lower() for package in json.loads(listed.stdout)}
    assert {"torch", "anywidget", "ipykernel"} <= names
    assert not names & {"pytest", "transformers", "beartype", "jupytext"}

"""The project as a whole: what it ships and pins, the one address, and that it installs from a wheel."""

import importlib.resources
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import distributions, version

import chapters as book
import curves
import pytest
import yaml
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

import tlm_book


def test_corpus_ships_and_is_large_enough():
    folder = importlib.resources.files("tlm_book") / "data" / "corpus"
    texts = [file.read_text(encoding="utf-8") for file in folder.iterdir()]
    assert sum(len(text.encode()) for text in texts) >= 60_000
    sentences = [s for text in texts for s in re.split(r"(?<=[.!?])\s+", text) if len(s) > 40]
    assert len(set(sentences)) == len(sentences), "a sentence stands twice in the corpus"


def test_requirements_are_exact_pins():
    lines = (book.ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    wanted = [line for line in lines if line and not line.startswith("#") and line != "-e ."]
    assert all(re.fullmatch(r"[\w.\-]+==[\w.]+", line) for line in wanted)
    assert "torch==2.13.0" in wanted


def test_every_pin_takes_the_oldest_python_that_we_promise():
    """Debian 12 has 3.11.2: a pin that wants 3.11.5 leaves its users without a book."""
    project = tomllib.loads((book.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest = Version(project["requires-python"].removeprefix(">=") + ".0")
    pinned = re.findall(r"^([\w.\-]+)==", (book.ROOT / "requirements.txt").read_text(encoding="utf-8"), re.MULTILINE)
    wants = {canonicalize_name(found.name): SpecifierSet(found.metadata.get("Requires-Python") or "") for found in distributions()}
    assert not {name: str(wants[canonicalize_name(name)]) for name in pinned if oldest not in wants[canonicalize_name(name)]}


def test_package_bounds_are_lower_bounds_only():
    """A pin in the package would break readers whose machine brings its own torch or numpy."""
    project = tomllib.loads((book.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert all(re.fullmatch(r"[\w\-]+>=[\d.]+", bound) for bound in project["dependencies"])


def test_one_address():
    """The repository's address stands in _config.yml; whatever repeats it must equal it."""
    files = [*book.BOOK.glob("*.ipynb"), book.ROOT / "pyproject.toml", book.ROOT / "README.md"]
    for file in files:
        for address in re.findall(r"https://github\.com/[\w\-]+/tlm_book", file.read_text(encoding="utf-8")):
            assert address == book.repository_url(), file.name


def test_no_file_names_a_place_on_some_machine():
    tracked = subprocess.run(["git", "ls-files"], cwd=book.ROOT, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip("not a git checkout")
    for name in tracked.stdout.split("\n"):
        path = book.ROOT / name
        if path.suffix in (".py", ".md", ".yml", ".toml", ".ipynb", ".js", ".css", "") and path.is_file() and name != "tests/book/test_project.py":
            text = path.read_text(encoding="utf-8", errors="ignore")
            assert not re.search(r"(?<![\w.])/(?:root|work)/\w", text), f"{name}: a machine's path"


@pytest.fixture(scope="module")
def wheel_site(tmp_path_factory):
    """The package installed from a wheel into an empty folder, without the repository in sight."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("src", "pyproject.toml", "README.md", "LICENSE", "LICENSE-text"):
        source, copy = book.ROOT / name, folder / "source" / name
        copy.parent.mkdir(exist_ok=True)
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns("*.egg-info")) if source.is_dir() else shutil.copy(source, copy)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", str(folder), str(folder / "source")], check=True)
    (wheel,) = folder.glob("tlm_book-*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", str(folder / "site"), str(wheel)], check=True)
    return folder / "site"


def test_the_curves_are_those_of_the_logs():
    assert (book.SOURCE / "data" / "curves.json").read_text(encoding="utf-8") == curves.text(), "make it anew: python book/_tools/curves.py"


@pytest.mark.long
def test_the_wheel_is_whole(wheel_site):
    code = (
        "import pathlib, tlm_book, tlm_book.tokenization as t, tlm_book.training as tr, tlm_book.viewer\n"
        f"assert pathlib.Path(tlm_book.__file__).is_relative_to({str(wheel_site)!r})\n"
        "assert sum(map(len, t.documents())) > 60_000\n"
        "model, tokenizer = tr.shipped()\n"
        "assert len(tokenizer) == model.config.vocab_size\n"
        "import tlm_book.derivation.coq as c\n"
        "assert all('Qed.' in c.source(name) for name in c.PROOF_FILES)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=wheel_site, env={"PYTHONPATH": str(wheel_site), "PATH": ""})


@pytest.mark.long
def test_the_wheel_has_no_logs_and_no_tables(wheel_site):
    """What the chapters show of the logs is in curves.json, made from them."""
    kept = {path.relative_to(wheel_site).as_posix() for path in (wheel_site / "tlm_book" / "data").rglob("*")}
    assert {"tlm_book/data/curves.json", "tlm_book/data/model/model.safetensors", "tlm_book/data/world/tokenizer.json"} <= kept
    assert [name for name in kept if name.endswith((".jsonl", ".csv"))] == []


@pytest.mark.long
def test_the_wheel_says_what_it_is(wheel_site):
    (metadata,) = wheel_site.glob("tlm_book-*.dist-info")
    assert (wheel_site / "tlm_book" / "py.typed").exists()
    for name in ("LICENSE", "LICENSE-text"):
        assert (metadata / "licenses" / name).read_bytes() == (book.ROOT / name).read_bytes()
    lines = (metadata / "METADATA").read_text(encoding="utf-8").splitlines()
    assert "License-Expression: MIT AND CC-BY-4.0" in lines and f"Version: {version('tlm_book')}" in lines


ALONE = """import sys
books = ("tokenizers", "tiktoken", "transformers", "hypothesis", "networkx", "xarray", "sacrebleu", "nbformat", "jupytext", "pytest")
sys.modules |= dict.fromkeys((*books, "matplotlib", "anywidget", "ipywidgets"))
from pathlib import Path

import torch

from tlm_book import audit, load
from tlm_book.__main__ import main
from tlm_book.spec.attention import attention_pattern

Path("text.txt").write_text("The tide comes in and the tide goes out. " * 150)
small = "--steps 3 --vocab-size 280 --d-model 16 --layers 1 --heads 2 --context 32 --batch-size 2 --device cpu --quiet"
assert main(["train", "--data", "text.txt", "--out", "model", *small.split()]) == 0
assert main(["generate", "--model", "model", "--prompt", "The tide", "--tokens", "5", "--device", "cpu"]) == 0
model, tokenizer = load("model", "cpu")
words = tokenizer.encode("How the tide goes")
assert len(words) > 2 and audit(model, torch.tensor([words]), modes=["eval"], progress=False).ok
try:
    from tlm_book.viewer import attention
except ImportError as error:
    assert "pip install 'tlm_book[viewer]'" in str(error), error
else:
    raise AssertionError("no widgets, and a picture was imported")
for name in ("matplotlib", "anywidget", "ipywidgets"):
    del sys.modules[name]
from tlm_book.viewer import attention
html = attention([tokenizer.token_text(word) for word in words], model.attention_weights(torch.tensor(words))).to_html()
assert "<script" in html and "tide" in html
"""


@pytest.mark.long
def test_the_wheel_works_without_the_book(wheel_site, tmp_path):
    """Train on a text file, write, audit, look: with what the package asks for alone."""
    environment = {"PYTHONPATH": str(wheel_site), "PATH": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", ALONE], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "The tide" in done.stdout


def test_citation_and_licences():
    cited = yaml.safe_load((book.ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    site = yaml.safe_load((book.ROOT / "_config.yml").read_text(encoding="utf-8"))
    assert cited["cff-version"] == "1.2.0" and cited["version"] == version("tlm_book")
    assert cited["title"] == site["title"] and cited["repository-code"] == book.repository_url()
    assert [author["name"] for author in cited["authors"]] == [site["author"]] and cited["license"] == ["MIT", "CC-BY-4.0"]
    assert site["author"] in (book.ROOT / "LICENSE").read_text(encoding="utf-8")
    text = (book.ROOT / "LICENSE-text").read_text(encoding="utf-8")
    assert site["author"] in text and "https://creativecommons.org/licenses/by/4.0/legalcode" in text


def test_the_version_stands_in_one_place():
    project = tomllib.loads((book.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in project["project"] and project["tool"]["setuptools"]["dynamic"] == {"version": {"attr": "tlm_book.__version__"}}


def test_the_readme_names_every_page():
    text = (book.ROOT / "README.md").read_text(encoding="utf-8")
    pages = re.findall(r"- file: book/(\w+)", (book.ROOT / "_toc.yml").read_text(encoding="utf-8"))
    assert len(pages) > 25 and [page for page in pages if f"`{page}`" not in text] == []
    targets = re.findall(r"^([a-z]+):", (book.ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    told = text + (book.ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert [name for name in targets if f"make {name}" not in told and name not in ("help", "clean")] == []


def test_every_make_command_that_is_named_exists():
    targets = set(re.findall(r"^([a-z-]+):", (book.ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for name in ("README.md", "CONTRIBUTING.md"):
        named = set(re.findall(r"(?:^|`)make ([a-z-]+)", (book.ROOT / name).read_text(encoding="utf-8"), re.MULTILINE))
        assert named and named <= targets, (name, named - targets)


@pytest.mark.long
def test_a_chapter_is_edited_as_text_with_the_commands_as_typed(tmp_path):
    """In a fresh clone; without an edit nothing changes."""
    blocks = re.findall(r"```\n(.*?)```", (book.ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.DOTALL)
    typed = next(block for block in blocks if "jupytext" in block)
    git = lambda *words: subprocess.run(["git", *words], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    git("clone", "-q", str(book.ROOT), ".")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    subprocess.run(["sh", "-ec", typed], cwd=tmp_path, env={**os.environ, "EDITOR": "true"}, check=True, capture_output=True)
    assert git("diff", "--stat") == ""


def test_every_file_that_the_makefile_names_is_there():
    named = re.findall(r"(?:benchmarks|book/_tools|tests)/[\w/]+\.py", (book.ROOT / "Makefile").read_text(encoding="utf-8"))
    assert len(named) > 20 and [name for name in named if not (book.ROOT / name).is_file()] == []


def test_a_command_says_which_chapters_there_are():
    known = book.table_of_contents()
    assert book.chosen([], known) == known and book.chosen(["loss"], known) == ["loss"]
    with pytest.raises(SystemExit, match="got attentoin, want names of chapters in _toc.yml; did you mean attention?"):
        book.chosen(["loss", "attentoin"], known)


@pytest.mark.parametrize(("arguments", "end"), [([], "portable.py"), (["AS=old avx2", "ONLY=heads"], "portable.py heads --as old avx2")])
def test_the_machines_to_imitate_are_those_that_are_named(arguments, end):
    """make has a variable AS of its own."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}  # as if make did not run this test
    shown = subprocess.run(["make", "-n", "READY=", "portable", *arguments], cwd=book.ROOT, env=outside, capture_output=True, text=True, check=True).stdout
    assert " ".join(shown.split()).endswith(end)


def test_the_list_of_names_says_what_the_package_itself_offers():
    (line,) = (line for line in (book.BOOK / "api.md").read_text(encoding="utf-8").splitlines() if line.startswith("- `tlm_book` itself offers"))
    said = set(re.findall(r"`(\w+)`", line)) - {"tlm_book", "save_"}
    assert said | {name.replace("load_", "save_") for name in said} == set(tlm_book.__all__) - {"__version__"}

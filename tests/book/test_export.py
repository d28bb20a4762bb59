"""The package is what the chapters export, its imports follow the table of contents, and every module names its chapter."""

import ast
import functools
import importlib
import inspect
import subprocess
import sys

import chapters as book
import export
import nbformat
import pytest


@functools.cache
def imported_modules(path) -> list[str]:
    """Every module that a file imports, at any depth of nesting."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: relative import; write tlm_book.…"
            found.append(node.module)
    return found


def modules() -> list[tuple[str, str]]:
    return [(chapter, module) for chapter in book.chapters() for module in sorted(export.modules_of(chapter))]


def test_notebooks_and_package_agree():
    assert export.differences() == []


def test_an_edited_package_is_noticed(tmp_path, monkeypatch):
    """The check above can fail: change one exported file in a copy and see it named."""
    import shutil

    copy = tmp_path / "tlm_book"
    shutil.copytree(book.SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(export, "SOURCE", copy)
    assert export.differences() == []
    target = copy / "spec" / "operators.py"
    target.write_text(target.read_text(encoding="utf-8") + "# by hand\n", encoding="utf-8")
    (copy / "by_hand.py").write_text("# a module like any other\n", encoding="utf-8")
    (copy / "stray.py").write_text('"""Stray. Generated from book/stray.ipynb: edit the notebook, then `make export`."""\n', encoding="utf-8")
    assert export.differences() == ["differs: spec/operators.py", "no chapter exports: stray.py"]


# --- What a chapter may export, on toy chapters


def toy(monkeypatch, *cells: str) -> dict[str, str]:
    """The modules of a chapter `toy` of these code cells, below the heading "Part"."""
    made = [*map(nbformat.v4.new_markdown_cell, ("# A toy", "## Part")), *map(nbformat.v4.new_code_cell, cells)]
    monkeypatch.setattr(export, "read", lambda chapter: nbformat.v4.new_notebook(cells=made))
    return export.modules_of("toy")


def test_a_room_of_a_package_and_private_cells(monkeypatch):
    cells = '#| export toy.room\n"""A room."""\nimport math', "#| export toy.room\n#| private\ndef half(x):\n    return x / 2", "#| export toy.room\nTAU = 2 * math.pi + half(0)"
    (module, text), = toy(monkeypatch, *cells).items()
    assert module == "toy.room" and text.startswith('"""A room. Generated from book/toy.ipynb')
    names: dict = {}
    exec(text, names)
    assert names["__all__"] == ["TAU"] and names["half"](3) == 1.5
    assert text.count("# --- Part") == 1 and text.count("toy") == 1 and text.count("A room") == 1
    assert toy(monkeypatch, "#| export toy\nx = 1")["toy"].startswith('"""A toy. Generated')


@pytest.mark.parametrize("place", ["other", "spec.other", "other.room", "toy.a.b", "spec.toy.room", "toy.Room", "toys", "toy.", ""])
def test_a_chapter_exports_to_its_own_places_only(place, monkeypatch):
    with pytest.raises(SystemExit, match="exports to .*; wanted 'toy', 'spec.toy' or a room 'toy.name'"):
        toy(monkeypatch, f"#| export {place}\nx = 1")


def test_a_module_is_no_package(monkeypatch):
    with pytest.raises(SystemExit, match="exports to 'toy' and to rooms of it"):
        toy(monkeypatch, "#| export toy\nx = 1", "#| export toy.room\nx = 1")
    monkeypatch.setattr(export, "chapters", lambda: ["attention"])
    monkeypatch.setattr(export, "modules_of", lambda chapter: {"viewer": "x = 1"})
    with pytest.raises(SystemExit, match="exports to 'viewer', which is a package"):
        export.exported()
    monkeypatch.setattr(export, "modules_of", lambda chapter: {"attention.room": "x = 1"})
    with pytest.raises(SystemExit, match="exports to 'attention.room': write the package's attention/__init__.py first"):
        export.exported()


def test_what_is_written_by_hand_is_not_overwritten(monkeypatch):
    before = (book.SOURCE / "checks.py").read_bytes()
    monkeypatch.setattr(export, "exported", lambda: {book.SOURCE / "checks.py": b"x = 1"})
    monkeypatch.setattr(sys, "argv", ["export.py"])
    with pytest.raises(SystemExit, match="checks.py is written by hand"):
        export.main()
    assert (book.SOURCE / "checks.py").read_bytes() == before


def test_an_undefined_name_is_refused(monkeypatch):
    with pytest.raises(SystemExit, match="'toy' use names that they never define: mask, scale"):
        toy(monkeypatch, "#| export toy\nimport math", "def mask(x): return x", "#| export toy\ndef f(x: int = scale):\n    return [mask(y) for y in [x]]")


SOUND = """
import os.path as path
from typing import Any
def f(n: "batch n", *rest: Any, k=1, **options):
    global later
    later = [i * k for i in range(n) if (half := i / 2) > 0]
    def inner():
        nonlocal n
        n = later, rest, options, path, __name__, __file__
        return n
    return inner
class A:
    size = 3
    double = 2 * size
    def g(self):
        try:
            return super().g(), __class__
        except ValueError as error:
            raise TypeError from error
x, *y = f(1), later
for z in y:
    with open(z) as file:
        del file
"""


def test_names_are_found_wherever_python_binds_them():
    assert export.undefined_names(SOUND) == []
    assert export.undefined_names("def f():\n    local = 1\nlocal") == ["local"]
    assert export.undefined_names("class A:\n    size = 1\n    def f(self): return size") == ["size"]
    assert export.undefined_names("def f(x: Missing) -> 'not looked at': ...") == ["Missing"]


# --- Who may import whom

FILES = {path.relative_to(book.SOURCE).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__"): path for path in book.SOURCE.rglob("*.py")}
ABOVE = {"exercises", "__init__", "__main__"}  # graders and the front door use every chapter


def known_as(name: str) -> str:
    """`tlm_book.a.b` as a key of FILES: without the package's name, and without the name that is taken from the module."""
    return name.removeprefix("tlm_book").removeprefix(".")


@functools.cache
def taken(path) -> list[str]:
    """The modules of the package that a file imports, by their keys in FILES."""
    return [known_as(name) for name in imported_modules(path) if name.split(".")[0] == "tlm_book"]


@functools.cache
def chapter_of(module: str) -> str | None:
    """Whose module it is: `X`, `spec.X`, and every room of the package X, also one written by hand, belong to the chapter X."""
    name = module.removeprefix("spec.").split(".")[0]
    return name if name in book.chapters() else None


@functools.cache
def place_of(module: str) -> int:
    """The place of a module in the book: that of its chapter or, if it has none, of the last chapter that it needs."""
    chapter = chapter_of(module)
    if chapter:
        return book.chapters().index(chapter)
    return max((place_of(name) for name in taken(FILES[module]) if name != module), default=-1)


PLACED = [module for module in FILES if module.split(".")[0] not in ABOVE]


@pytest.mark.parametrize("module", PLACED)
def test_imports_follow_the_table_of_contents(module):
    for name in imported_modules(FILES[module]):
        if name.split(".")[0] != "tlm_book":
            assert not (module.startswith("spec.") and name.split(".")[0] == "torch"), f"{module} imports torch; the specification is numpy"
    chapter = chapter_of(module)
    for name in taken(FILES[module]):
        assert name in FILES and name != "spec", f"{module} imports {name or 'the package itself'}; name the module"
        if module.startswith("spec."):
            own = name.startswith("spec.") or name in ("checks", "libraries")  # these two only say what is wrong or missing
            assert own, f"{module} imports {name}; the specification uses nothing outside tlm_book.spec"
        if chapter and chapter_of(name) != chapter:
            assert place_of(name) < book.chapters().index(chapter), f"{module} imports {name}, which does not stand before {chapter}"


def circle(start: str) -> list[str] | None:
    """A path along imports from a module back to itself."""
    ways, seen = [[start]], set()
    for way in ways:  # the list grows while it is read
        for name in taken(FILES[way[-1]]):
            if name == start:
                return [*way, start]
            if name in FILES and name not in seen:
                seen.add(name)
                ways.append([*way, name])
    return None


@pytest.mark.parametrize("module", FILES)
def test_imports_run_in_no_circle(module):
    assert not circle(module), " → ".join(circle(module))


def test_no_room_is_too_large():
    assert {module: lines for module, path in FILES.items() if (lines := len(path.read_text(encoding="utf-8").splitlines())) > 450} == {}


SAID_TWICE = {"residual", "newton_schulz", "attention"}  # a rule and the layer that it is about; a loop and its formula; a layer and its picture


def public_homes() -> dict[str, list[str]]:
    """{public name: the modules that define it}; what a package passes on is not defined there."""
    homes: dict[str, list[str]] = {}
    for module, path in FILES.items():
        if not module.endswith("__main__"):
            listed = getattr(importlib.import_module(f"tlm_book.{module}".rstrip(".")), "__all__", [])
            for name in set(listed).intersection(export.public_names(path.read_text(encoding="utf-8"))):
                homes.setdefault(name, []).append(module)
    return {name: modules for name, modules in homes.items() if not all(module.startswith("exercises.") for module in modules)}


def with_several_homes(homes: dict[str, list[str]]) -> dict[str, list[str]]:
    """Names that stand in two modules of which neither is the other's specification. In `spec.named_tensors` the formulas are written with names."""
    found = {}
    for name, modules in homes.items():
        formulas = [module for module in modules if module.startswith("spec.") and module != "spec.named_tensors"]
        layers = [module for module in modules if not module.startswith("spec.")]
        own = all(layer.split(".")[0] == formula.removeprefix("spec.") for formula in formulas for layer in layers)
        again = "spec.named_tensors" in modules and len(modules) > 1 and not formulas
        if max(len(formulas), len(layers)) > 1 or not own or again:
            found[name] = modules
    return found


def test_every_public_name_has_one_home():
    assert set(with_several_homes(public_homes())) == SAID_TWICE


def test_a_second_home_would_be_found():
    homes = {"a": ["x", "spec.x"], "b": ["x", "y"], "c": ["spec.x", "y"], "d": ["spec.x", "spec.y"], "e": ["spec.x", "spec.named_tensors"], "f": ["x.room"]}
    assert set(with_several_homes(homes)) == {"b", "c", "d"}


def hidden_modules(package: str) -> list[str]:
    """Modules of a package in whose place it holds something else of the same name."""
    names = vars(importlib.import_module(f"tlm_book.{package}"))
    rooms = [module.rpartition(".")[2] for module in FILES if module.rpartition(".")[0] == package]
    return [room for room in rooms if room in names and not inspect.ismodule(names[room])]


def test_a_name_is_a_function_or_a_module():
    """`small_world.stories` is a function. The pictures, `viewer.attention` and others, are functions in folders that are called as they are."""
    packages = [module for module, path in FILES.items() if path.name == "__init__.py" and module]
    assert {package for package in packages if hidden_modules(package)} == {"viewer"}


def test_a_circle_would_be_found(tmp_path, monkeypatch):
    files = {"a": "from tlm_book.b import x", "b": "def f():\n    import tlm_book.c", "c": "from tlm_book.a import f", "d": "from tlm_book.a import f"}
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setitem(globals(), "FILES", {name: tmp_path / f"{name}.py" for name in files})
    assert circle("a") == ["a", "b", "c", "a"] and circle("d") is None


@pytest.mark.parametrize(("chapter", "module"), modules(), ids=lambda value: value)
def test_every_module_names_its_chapter_and_every_definition_its_types(chapter, module):
    loaded = importlib.import_module(f"tlm_book.{module}")
    assert f"Generated from book/{chapter}.ipynb" in (loaded.__doc__ or "")
    for name in loaded.__all__:
        thing = getattr(loaded, name)
        if not (inspect.isfunction(thing) or inspect.isclass(thing)) or thing.__module__ != loaded.__name__:
            continue  # constants and type aliases
        assert thing.__doc__ and "Chapter:" not in thing.__doc__, f"{module}.{name}: a docstring is wanted; the module names the chapter"
        functions = [(name, thing)] if inspect.isfunction(thing) else [
            (f"{name}.{key}", value) for key, value in vars(thing).items()
            if inspect.isfunction(value) and inspect.unwrap(value).__code__.co_filename == loaded.__file__  # not made by a decorator
        ]
        for label, function in functions:
            signature = inspect.signature(function)
            untyped = [p.name for p in signature.parameters.values() if p.annotation is p.empty and p.name not in ("self", "cls")]
            assert not untyped, f"{module}.{label}: no type for {untyped}"
            assert signature.return_annotation is not signature.empty, f"{module}.{label}: no return type"


def test_the_specification_runs_without_torch():
    """Importing every spec module must not load torch."""
    names = [f"tlm_book.{module}" for _, module in modules() if module.startswith("spec.")]
    code = f"import importlib, sys\nfor name in {names!r}: importlib.import_module(name)\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PATH": ""})


def test_torchs_compiler_is_loaded_only_when_it_is_needed():
    """It takes seconds, which nobody who compiles nothing should wait."""
    names = [f"tlm_book.{module}" for _, module in modules()]
    code = f"import importlib, sys\nfor name in {names!r}:\n    importlib.import_module(name)\n    assert 'torch._dynamo' not in sys.modules, name"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

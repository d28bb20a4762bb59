"""The package is what the chapters export, its imports follow the table of contents, and every definition names its chapter."""

import ast
import importlib
import inspect
import subprocess
import sys

import chapters as book
import export
import pytest


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
    (copy / "stray.py").write_text("", encoding="utf-8")
    assert export.differences() == ["differs: spec/operators.py", "no chapter exports: stray.py"]


@pytest.mark.parametrize(("chapter", "module"), modules(), ids=lambda value: value)
def test_imports_follow_the_table_of_contents(chapter, module):
    order = book.chapters()
    for name in imported_modules(book.SOURCE / (module.replace(".", "/") + ".py")):
        parts = name.split(".")
        if parts[0] != "tlm_book":
            assert not (module.startswith("spec.") and parts[0] == "torch"), f"{module} imports torch; the specification is numpy"
            continue
        assert parts[-1] != "tlm_book", f"{module} imports the package itself; name the chapter"
        if name == "tlm_book.checks":
            continue
        if module.startswith("spec."):
            assert parts[1] == "spec", f"{module} imports {name}; the specification uses nothing outside tlm_book.spec"
        if parts[1] == "viewer":  # written by hand, like checks, and imports no chapter
            continue
        assert order.index(parts[-1]) < order.index(chapter), f"{module} imports {name}, a chapter that does not stand before it"


@pytest.mark.parametrize(("chapter", "module"), modules(), ids=lambda value: value)
def test_every_definition_names_its_chapter_and_its_types(chapter, module):
    loaded = importlib.import_module(f"tlm_book.{module}")
    for name in loaded.__all__:
        thing = getattr(loaded, name)
        if not (inspect.isfunction(thing) or inspect.isclass(thing)) or thing.__module__ != loaded.__name__:
            continue  # constants and type aliases
        assert f"Chapter: {chapter}." in (thing.__doc__ or ""), f"{module}.{name}: the docstring lacks 'Chapter: {chapter}.'"
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

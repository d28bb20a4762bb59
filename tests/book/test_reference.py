"""The reference of the package: every public name has an entry, and every entry says what a reader needs."""

import ast
import builtins
import functools
import importlib
import re
import sys

import chapters as book
import export
import pytest

sys.path.insert(0, str(book.ROOT / "site"))
import tlm.api as reference

MODULES = reference.modules(book.SOURCE, book.chapters())
ENTRIES = {entry.anchor: entry for module in MODULES for entry in reference.entries(book.SOURCE, module)}
OF_CHAPTERS = {module for chapter in book.chapters() for module in export.modules_of(chapter)}
STATED = {
    name
    for page in book.chapters()
    for cell in book.read(page).cells
    if cell.cell_type == "markdown"
    for name in re.findall(r'<a id="([^"]+)"', cell.source)
}
ERRORS = re.compile(r"\b[A-Z]\w*Error\b|\b[Ee]rrors\b|`Diverged`")
ELSEWHERE = {  # names of other libraries and of fields, in docstrings
    "input_ids", "inputs_embeds", "ignore_merges", "encode_ordinary", "allowed_special", "ids", "hidden", "warmup", "grad_accum_steps", "eval_every",
    "torchrun", "on_overflow", "transformers",
}  # fmt: skip


def public(tree: ast.Module) -> list[ast.FunctionDef]:
    return [node for node in tree.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]


def undocumented_errors(text: str) -> list[str]:
    """Public functions of a module that refuse something and do not say so."""
    found = []
    for function in public(ast.parse(text)):
        calls = [part.func for part in ast.walk(function) if isinstance(part, ast.Call)]
        raises = any(isinstance(part, ast.Raise) and part.exc for part in ast.walk(function))
        checks = any(isinstance(call, ast.Name) and call.id.startswith(("expects", "refuse")) for call in calls)
        if (raises or checks) and not ERRORS.search(ast.get_docstring(function) or ""):
            found.append(function.name)
    return found


def unknown_names(text: str, known: set[str]) -> list[tuple[str, str]]:
    """Words in backticks, in the docstrings of public functions, that name no argument and nothing of the package."""
    found = []
    for function in public(ast.parse(text)):
        arguments = {part.arg for part in ast.walk(function.args) if isinstance(part, ast.arg)}
        words = re.findall(r"`([A-Za-z_]\w*)`", ast.get_docstring(function) or "")
        found += [(function.name, word) for word in words if word not in arguments | known and not hasattr(builtins, word)]
    return found


def listed(module: str) -> list[str]:
    return importlib.import_module(f"tlm_book.{module}").__all__


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_has_its_entry(module):
    """What a package passes on from a room of its chapter has its entry there."""
    rooms = [room for room in MODULES if room.startswith(f"{module}.")]
    there = {name for room in rooms for name in listed(room)}
    own = [f"{module}.{name}" for name in listed(module) if name not in there]
    assert own == [anchor for anchor, entry in ENTRIES.items() if entry.module == module]


@pytest.mark.parametrize("package", [module for module in MODULES if reference.module_file(book.SOURCE, module).name == "__init__.py"])
def test_a_package_lists_what_it_takes_from_its_rooms(package):
    tree = ast.parse(reference.module_file(book.SOURCE, package).read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(f"tlm_book.{package}.")]
    taken = {alias.name for node in imports for alias in node.names}
    assert taken <= {*listed(package), "Exercise", "WrongAnswer"}  # the graders are made of these two


def test_every_module_of_the_package_is_there():
    files = {path.relative_to(book.SOURCE).with_suffix("").as_posix().replace("/", ".") for path in book.SOURCE.rglob("*.py")}
    packages = {name.removesuffix(".__init__") for name in files if name.endswith(".__init__") and name.count(".") == 1} - {"spec"}
    rooms = {name for name in files if name.split(".")[0] in packages or name.endswith("__")}
    assert set(MODULES) == files - rooms | packages | OF_CHAPTERS


@functools.cache
def sections(chapter: str, module: str) -> dict[str, str | None]:
    """{name that cells of the chapter define in the module: the heading above it}."""
    section, defined = None, {}
    for cell in book.read(chapter).cells:
        if cell.cell_type == "markdown":
            section = export.heading(cell.source) or section
        elif book.directives(cell.source).get("export") == module:
            defined |= dict.fromkeys(export.public_names(book.without_directives(cell.source)), section)
    return defined


@pytest.mark.parametrize("module", MODULES)
def test_an_entry_of_a_chapter_leads_to_its_section(module):
    """The section named is one of the chapter, and the cells below it define the name."""
    for entry in (entry for entry in ENTRIES.values() if entry.module == module and entry.section):
        chapter, heading = entry.section
        assert sections(chapter, module)[entry.name] == heading
    missing = [entry.name for entry in ENTRIES.values() if entry.module == module and not entry.section]
    if module in OF_CHAPTERS:  # only what stands beside the imports, above all headings, has no section
        first = next(cell for cell in book.read(module.removeprefix("spec.").split(".")[0]).cells if book.directives(cell.source).get("export") == module)
        assert set(missing) <= set(export.public_names(book.without_directives(first.source)))


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=list(ENTRIES))
def test_an_entry_says_what_is_needed(entry):
    if not re.match(r"[\w., ]+ ?[:=]", entry.signature):  # constants speak for themselves
        first = re.split(r"\n\s*\n", entry.doc)[0]
        assert first.rstrip()[-1] in ".:?)…", f"{entry.anchor}: the docstring does not begin with a sentence"
    for name in [found for _, found in reference.CODE.findall(entry.doc) if found]:
        assert name in STATED, f"{entry.anchor}: {name} is stated nowhere"


@pytest.mark.parametrize("module", MODULES)
def test_docstrings_name_errors_and_only_what_exists(module):
    text = reference.module_file(book.SOURCE, module).read_text(encoding="utf-8")
    assert not undocumented_errors(text)
    assert not unknown_names(text, {entry.name for entry in ENTRIES.values()} | ELSEWHERE)


def test_the_checks_can_fail():
    text = 'def f(x):\n    """Like `g`, but not `h`."""\n    expects(x > 0, "x", x, "more")\n\ndef g(x):\n    """ValueError."""\n    raise ValueError\n'
    assert undocumented_errors(text) == ["f"] and unknown_names(text, {"g"}) == [("f", "h")]


def test_signatures_are_as_written():
    shown = {anchor: entry.signature for anchor, entry in ENTRIES.items()}
    assert shown["spec.operators.causal_mask"] == 'causal_mask(A: Float[np.ndarray, "n m"]) -> Float[np.ndarray, "n m"]'
    assert shown["attention.CausalAttention"] == "class CausalAttention(d_model: int, d_head: int | None = None)"
    assert shown["transformer_lm.settings.Settings"].splitlines()[:2] == ["class Settings", "    vocab_size: int  # V"]
    members = {member.name: member.signature for member in ENTRIES["transformer_lm.presets.Config"].members}
    assert members["Config.gpt2"] == 'classmethod gpt2(vocab_size: int = 50257, **changes: Any) -> "Config"'

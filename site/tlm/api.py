"""The reference of the package: in `api.md`, `<div data-api="package"></div>` becomes every public name, from the sources.

Read with `ast`, so that building the site imports nothing. A module's names are those in its `__all__`; a public name that
a docstring has in backticks leads to its entry, the id of a statement to the statement. A module that a chapter exports names the
chapter in its first line; the headings in it say in which section of the chapter each name is defined.
"""

import ast
import itertools
import re
import textwrap
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from docutils import nodes
from sphinx.transforms import SphinxTransform
from sphinx.transforms.post_transforms import SphinxPostTransform

PLACE = '<div data-api="package">'
PACKAGE = "tlm_book"
GENERATED = re.compile(r"Generated from book/(\w+)\.ipynb")
SECTION = re.compile(r"^# --- (.+)$", re.MULTILINE)
CODE = re.compile(r"`([^`]+)`|\b([A-Z]-[\w.]*\w(?:-[\w.]*\w)*)")
KINDS = ("property", "classmethod", "staticmethod")
WIDTH = 76  # characters in a line of a signature
IN_COLUMNS = re.compile(r"\S {2,}\S")


class Entry(NamedTuple):
    """One public name: what is written about it in its module."""

    module: str
    name: str  # with the class before it, for a method
    signature: str
    doc: str
    section: tuple[str, str] | None = None  # chapter and heading above the cell that defines it
    members: tuple["Entry", ...] = ()

    @property
    def anchor(self) -> str:
        return f"{self.module}.{self.name}"


def is_reference(docname):
    return PurePosixPath(docname).name == "api"


# ---- the sources ----------------------------------------------------------------------------------------------------------


def module_file(source, module):
    path = source.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def modules(source, chapters):
    """The modules of the chapters in the order of the book, the specification first, then those written by hand.

    A package has one entry, for what its `__init__.py` offers; modules inside it that a chapter exports have their own, and what
    these define stands only there.
    """
    found = []
    for chapter in chapters:
        rooms = [room for room in sorted(source.glob(f"{chapter}/*.py")) if chapter_of(room.read_text(encoding="utf-8"))]
        found += [f"spec.{chapter}", chapter, *(f"{chapter}.{room.stem}" for room in rooms)]
    top = [path for path in sorted(source.iterdir()) if path.suffix == ".py" or (path / "__init__.py").exists()]
    names = [path.stem for path in sorted(top, key=Path.is_file) if not path.stem.startswith("__")]
    found += [name for name in names if name not in (*chapters, "spec")]
    return [module for module in found if module_file(source, module).exists()]


def chapter_of(text):
    """The chapter that exports this module; None for one that is written by hand."""
    found = GENERATED.search(text.split("\n", 1)[0])
    return found and found[1]


def entries(source, module, names=None):
    """The entries of one module: for these names, or for those of its `__all__`, in order."""
    text = module_file(source, module).read_text(encoding="utf-8")
    tree, lines = ast.parse(text), text.splitlines()
    chapter = chapter_of(text)
    sections = [(text.count("\n", 0, match.start()) + 1, match[1]) for match in SECTION.finditer(text)]
    defined, elsewhere = {}, {}
    for node in itertools.chain.from_iterable(part.body if isinstance(part, ast.Try) else [part] for part in tree.body):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                defined |= {part.id: node for part in ast.walk(target) if isinstance(part, ast.Name)}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{PACKAGE}.{module}."):
            elsewhere |= {alias.name: node.module.removeprefix(f"{PACKAGE}.") for alias in node.names}
    found = []
    for name in names or ast.literal_eval(defined["__all__"].value):
        if name in elsewhere:  # a package offers what its parts define
            if chapter_of(module_file(source, elsewhere[name]).read_text(encoding="utf-8")):
                continue
            found += [entry._replace(module=module) for entry in entries(source, elsewhere[name], [name])]
            continue
        node = defined[name]
        above = [title for line, title in sections if line <= node.lineno]
        found.append(entry_of(module, name, node, lines)._replace(section=(chapter, above[-1]) if chapter and above else None))
    return found


def entry_of(module, name, node, lines):
    if isinstance(node, ast.FunctionDef):
        return Entry(module, name, header(node, lines), ast.get_docstring(node) or "")
    if isinstance(node, ast.ClassDef):
        parts = [part for part in node.body if isinstance(part, ast.FunctionDef)]
        made = next((part for part in parts if part.name == "__init__"), None)
        methods = [part for part in parts if part.name == "forward" or not part.name.startswith("_") and ast.get_docstring(part)]
        members = tuple(entry_of(module, f"{name}.{part.name}", part, lines) for part in methods)
        signature = header(made, lines, name) if made else fields(node, lines)
        return Entry(module, name, f"class {signature}", ast.get_docstring(node) or "", members=members)
    value = textwrap.dedent("\n".join(lines[node.lineno - 1 : node.end_lineno]))
    return Entry(module, name, value if len(value) <= 400 else value.split("=")[0].strip() + " = …", "")


def header(function, lines, name=None):
    """The function's first lines as they are written, without `def` and `self`; on one line if they fit."""
    text = textwrap.dedent("\n".join(lines[function.lineno - 1 : function.body[0].lineno - 1]))
    text = re.sub(r"\s+#.*$", "", text, flags=re.MULTILINE).strip().removeprefix("def ").removesuffix(":")
    text = re.sub(r"\((\s*)(?:self|cls)\b(?:: \w+)?(?:,\s*)?", r"(\1", text, count=1)
    if name:  # for a class: how an object of it is made
        text = re.sub(r" -> None$", "", name + text.removeprefix("__init__"))
    flat = re.sub(r",? \)", ")", " ".join(text.split())).replace("( ", "(")
    text = flat if len(flat) <= WIDTH else text
    marks = [mark.id for mark in function.decorator_list if isinstance(mark, ast.Name) and mark.id in KINDS]
    return text.replace("()", "") if marks == ["property"] else " ".join([*marks, text])


def fields(made, lines):
    """A class without `__init__`: its fields as they are written, with their comments."""
    own = [part for part in made.body if isinstance(part, ast.Assign | ast.AnnAssign)]
    shown = [line for part in own for line in lines[part.lineno - 1 : part.end_lineno]]
    bases = ", ".join(ast.unparse(base) for base in made.bases)
    return "\n".join([f"{made.name}({bases})" if bases else made.name, *shown])


# ---- as nodes -------------------------------------------------------------------------------------------------------------


class Reference(SphinxTransform):
    """Put the sections of all modules in the place of the mark."""

    default_priority = 390  # before links and code are looked at

    def apply(self):
        env = self.document.settings.env
        marks = [raw for raw in self.document.findall(nodes.raw) if PLACE in raw.astext()]
        if not is_reference(env.docname) or not marks:
            return
        source = Path(env.srcdir, "src", PACKAGE)
        order = [PurePosixPath(name).name for name in toc_files(env)]
        public = [entry for module in modules(source, order) for entry in entries(source, module)]
        self.known = {part.anchor for entry in public for part in (entry, *entry.members)}
        sections = {}
        for module in modules(source, order):
            env.note_dependency(str(module_file(source, module)))
            chapter = module.removeprefix("spec.").split(".")[0]
            if chapter not in sections:
                sections[chapter] = nodes.section("", nodes.title("", chapter), ids=[f"module-{chapter}"], names=[chapter])
            sections[chapter] += self.module(source, module)
        for raw in marks:
            home = raw.parent
            while not isinstance(home, nodes.section):
                raw, home = home, home.parent
            home.remove(raw)
            home += list(sections.values())

    def module(self, source, module):
        doc = ast.get_docstring(ast.parse(module_file(source, module).read_text(encoding="utf-8"))) or ""
        first = re.sub(r"\s*(?:Generated from|Written by hand).*$", "", doc.split("\n\n")[0], flags=re.DOTALL)
        kind = " The specification: numpy, float64, one sequence." if module.startswith("spec.") else ""
        line = nodes.paragraph("", "", nodes.literal("", f"{PACKAGE}.{module}"), nodes.Text(f": {first}{kind}"), classes=["api-module"])
        return [line, *(self.entry(entry) for entry in entries(source, module))]

    def entry(self, entry, inside=False):
        box = nodes.container(ids=[entry.anchor], classes=["api-member" if inside else "api-entry"], support_smartquotes=False)
        box += signature(entry)
        for block in re.split(r"\n\s*\n", entry.doc):
            if block.strip():
                box += self.block(block, entry)
        box += [self.entry(member, inside=True) for member in entry.members]
        if entry.section:
            box += api_place(chapter=entry.section[0], heading=entry.section[1])
        return box

    def block(self, block, entry):
        if block.lstrip().startswith(">>>"):
            return nodes.literal_block(block, block, language="pycon", classes=["api-example"])
        if sum(map(bool, map(IN_COLUMNS.search, block.splitlines()))) > 1:
            return nodes.literal_block(block, block, language="none", classes=["api-columns"])
        paragraph, end = nodes.paragraph(), 0
        block = " ".join(block.split())
        for match in CODE.finditer(block):
            paragraph += [nodes.Text(block[end : match.start()]), self.code(match[1] or match[2], entry)]
            end = match.end()
        paragraph += nodes.Text(block[end:])
        return paragraph

    def code(self, text, entry):
        """A name as code, with a link if it is public here: in this class, this module, or by its whole name."""
        plain = re.sub(r"\(.*", "", text)
        for name in (f"{entry.anchor}.{plain}", f"{entry.module}.{plain}", plain, plain.removeprefix(f"{PACKAGE}.")):
            if name in self.known and name != entry.anchor:
                link = nodes.reference("", "", internal=True, refid=name)
                link += nodes.literal("", text)
                return link
        return nodes.literal("", text)


def toc_files(env):
    """The files of the table of contents, in its order."""
    toc = env.app.config.external_site_map
    return [str(item) for part in toc[toc.root.docname].subtrees for item in part.items]


def signature(entry):
    """The signature, its name in bold, the rest as written."""
    before, name, after = re.match(r"((?:class |classmethod |staticmethod )?)([\w.]+)(.*)", entry.signature, re.DOTALL).groups()
    line = nodes.paragraph(classes=["api-signature", "notranslate"])
    line += [nodes.emphasis("", before), nodes.strong("", name)]
    for part in re.split("(->)", after):  # the arrow stays whole
        line += nodes.inline("", part, classes=["arrow"]) if part == "->" else nodes.Text(part)
    return line


class api_place(nodes.General, nodes.Element):
    """Where the chapter defines it; a link once all pages are read."""


class Places(SphinxPostTransform):
    default_priority = 7

    def run(self, **kwargs):
        env = self.env
        for place in list(self.document.findall(api_place)):
            page = next((name for name in env.found_docs if PurePosixPath(name).name == place["chapter"]), None)
            if page is None:
                place.parent.remove(place)
                continue
            slugs = env.metadata[page].get("myst_slugs", {})
            slug = slugs.get(re.sub(r"[`*]", "", place["heading"]).replace(" ", "-"))
            uri = self.app.builder.get_relative_uri(env.docname, page) + (f"#{slug[1]}" if slug else "")
            link = nodes.reference("", "", nodes.Text(f"{env.titles[page].astext()}: {place['heading']}"), internal=True, refuri=uri)
            place.replace_self(nodes.paragraph("", "", nodes.Text("Chapter "), link, classes=["api-place"]))


def style(app, pagename, templatename, context, doctree):
    if is_reference(pagename):
        app.add_css_file("api.css")


def setup(app):
    app.add_node(api_place, html=(lambda writer, node: None, lambda writer, node: None))
    app.add_transform(Reference)
    app.add_post_transform(Places)
    app.connect("html-page-context", style)

"""What the search finds at once: statements, exported code, headings and words of the glossary, each with the place where it stands.

`_static/places.js` holds them; `finder.js` lists those that fit while a reader types, and above the pages that the theme's search finds.
"""

import ast
import json
import re
from pathlib import Path, PurePosixPath

from tlm.catalogue import chapters
from tlm.html import label

STATED = re.compile(r"[A-Z]-[\w.-]*\w")


def note_code(known, cell, module, code):
    """Give an exported cell an anchor for each public name that it defines, and keep the first line of its docstring and the statements that it names."""
    try:
        body = ast.parse(code).body
    except SyntaxError:
        return
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            anchor = f"code-{module}.{node.name}"
            cell["ids"].append(anchor)
            doc = ast.get_docstring(node) or ""
            known.setdefault("code", {})[f"{module}.{node.name}"] = (anchor, " ".join(doc.split("\n\n")[0].split()))
            for name in STATED.findall(doc):
                known.setdefault("code_of", {}).setdefault(name, []).append(f"{module}.{node.name}")


def places_of(env, page):
    """(words, what it is, anchor, more words) of everything on a page that a reader may look for."""
    known, chapter = env.metadata[page]["tlm"], env.titles[page].astext()
    numbers = {}
    for name, (kind, index, title) in known["statements"].items():
        numbers.setdefault(index, (name, kind, title, []))[3].append(name)
    for name, kind, title, names in numbers.values():
        yield title or known.get("titles", {}).get(name) or kind, label(env, name), name, " ".join([kind, chapter, *names])
    for name, (anchor, doc) in known.get("code", {}).items():
        yield name.split(".")[-1], f"code: {name}", anchor, f"{chapter} {doc}"
    for key, (_, anchor, title) in env.metadata[page].get("myst_slugs", {}).items():
        if key == title.replace(" ", "-") and anchor != title:
            yield title, chapter, anchor, ""
    for anchor, forms in env.metadata[page].get("tlm_terms", {}).items():
        yield ", ".join(forms), "glossary", anchor, ""


def write(app, exception):
    if exception or app.builder.format != "html":
        return
    pages = [(page, str(PurePosixPath(page).with_suffix(".html"))) for page in chapters(app.env)]
    found = [[words, what, f"{uri}#{anchor}", more] for page, uri in pages for words, what, anchor, more in places_of(app.env, page)]
    text = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    Path(app.outdir, "_static", "places.js").write_text(f"tlmPlaces({text});\n", encoding="utf-8")


def setup(app):
    app.connect("build-finished", write)

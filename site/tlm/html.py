"""The HTML of statement boxes and of the captions above code cells."""

import ast
import re
from functools import cache
from html import escape
from pathlib import Path

from docutils import nodes
from sphinx.util import logging

log = logging.getLogger(__name__)
PROOFS = "src/tlm_book/derivation/coq.py"  # names the statements that a proof assistant has checked
EXPLAINED = "book/derivations", "the-theorem-checked-by-a-machine"


def warn(text, place):
    """A warning of the build; with -W it fails."""
    log.warning(text, location=place, type="tlm")


class statement(nodes.General, nodes.Element):
    """A numbered box; its first child is a `statement_head`."""


class statement_head(nodes.General, nodes.TextElement):
    """The inline nodes of a statement's title; empty when it has none."""


class cell_caption(nodes.General, nodes.Element):
    """What a code cell exports and checks."""


def where(env, name):
    """The chapter that states `name` and what is known of it: (docname, (kind, index, title)) or (None, None)."""
    for docname, metadata in env.metadata.items():
        entry = metadata.get("tlm", {}).get("statements", {}).get(name)
        if entry:
            return docname, entry
    return None, None


def label(env, name, with_title=False):
    """`Definition 1.3`: the chapter's number in the table of contents, then the statement's in the chapter."""
    docname, (kind, index, title) = where(env, name)
    chapter = env.toc_secnumbers.get(docname, {}).get("") or ()
    number = ".".join(map(str, (*chapter, index)))
    return f"{kind} {number}" + (f" ({title})" if with_title and title else "")


def machine_checked(env):
    """{statement: lemmas that prove it}."""
    return table_of_proofs(Path(env.srcdir, PROOFS))


@cache
def table_of_proofs(path):
    """The table MACHINE_CHECKED, read from the package without importing it; a book without the package has none."""
    if not path.exists():
        return {}
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (table,) = (node.value for node in tree.body if isinstance(node, ast.AnnAssign) and node.target.id == "MACHINE_CHECKED")
    return ast.literal_eval(table)


def machine_link(builder, page, lemmas):
    """The label of a statement whose proof a proof assistant has checked, linked from `page` to the chapter that says what that means."""
    docname, section = EXPLAINED
    href = f"{'' if docname == page else builder.get_relative_uri(page, docname)}#{section}"
    return f'<a class="reference internal statement-machine" href="{href}" title="{escape(", ".join(lemmas))}">machine-checked</a>'


def link_to(writer, name):
    """An HTML link to a statement from the page that is being written."""
    builder, env = writer.builder, writer.builder.env
    docname, _ = where(env, name)
    if docname is None:  # check_whole_book has warned
        return f"<span>{escape(name)}</span>"
    page = "" if docname == builder.current_docname else builder.get_relative_uri(builder.current_docname, docname)
    return f'<a class="reference internal statement-link" href="{page}#{escape(name)}">{escape(label(env, name))}</a>'


def number_of(env, name):
    """What two ids of one box share."""
    docname, entry = where(env, name)
    return (docname, entry[1]) if docname else name


def preview(parts):
    """The HTML of a statement without what makes sense only in its place: ids, links, the line of names."""
    html = re.sub(r'<p class="statement-meta">.*?</p>|<a class="statement-permalink".*?</a>', "", "".join(parts))
    return re.sub(r"<a [^>]*>", "<a>", re.sub(r' id="[^"]*"', "", html))


def visit_statement(writer, node):
    first, *others = node["ids"]
    title = escape(label(writer.builder.env, first), quote=True)
    writer.body.append(f'<div class="{" ".join(node["classes"])}" id="{first}" role="group" aria-label="{title}">\n')
    writer.body.extend(f'<span id="{name}"></span>' for name in others)
    node["start"] = len(writer.body)


def depart_statement(writer, node):
    parts = writer.body[node["start"] :]
    writer.body.append("</div>\n")
    builder = writer.builder
    kept = vars(builder).setdefault("tlm_previews", {}).setdefault(builder.current_docname, {})
    kept.update(dict.fromkeys(node["ids"], preview(parts)))


def visit_head(writer, node):
    env = writer.builder.env
    number = escape(label(env, node.parent["ids"][0]))
    writer.body.append(f'<div class="statement-head"><p class="statement-name"><span class="statement-label">{number}</span>')
    writer.body.append(' <span class="statement-title">(' if len(node) else "")


def code_of(known, names):
    """(module.name, anchor) of the code that one of these statements defines or is about; that of the specification if there is one."""
    found = [place for name in names for place in known.get("code_of", {}).get(name, [])]
    best = min(found, key=lambda place: not place.startswith("spec."), default=None)
    return best and (best, known["code"][best][0])


def depart_head(writer, node):
    ids = node.parent["ids"]
    known = writer.builder.env.metadata[writer.builder.current_docname]["tlm"]
    anchors = list(dict.fromkeys(anchor for name in ids for anchor in known["checks"].get(name, [])))
    out = [")</span>" if len(node) else ""]
    out.append(f'<a class="statement-permalink" href="#{ids[0]}" aria-label="Link to this statement">¶</a></p>')
    out.append('<p class="statement-meta">')
    if any(name[1:2] == "-" for name in ids):
        out.append(f'<span class="statement-ids" title="Name of the statement in its source">{escape(" · ".join(ids))}</span>')
    if code := code_of(known, ids):
        out.append(f' <a class="statement-code" href="#{code[1]}" title="tlm_book.{escape(code[0])}">code</a>')
    for i, anchor in enumerate(anchors, start=1):
        text = "✓&nbsp;check" if i == 1 else str(i)
        out.append(f' <a class="statement-check" href="#{anchor}" title="The cell that checks this statement">{text}</a>')
    lemmas = [lemma for name in ids for lemma in machine_checked(writer.builder.env).get(name, [])]
    if lemmas:
        out.append(" " + machine_link(writer.builder, writer.builder.current_docname, dict.fromkeys(lemmas)))
    out.append("</p></div>\n")
    writer.body.append("".join(out))


def visit_caption(writer, node):
    anchor = f' id="{node["anchor"]}"' if node["anchor"] else ""
    parts = []
    if node["exports"]:
        modules = ", ".join(f"<code>tlm_book.{escape(name)}</code>" for name in node["exports"])
        parts.append(f'<span class="cell-exports">exported to {modules}</span>')
    if node["checks"]:
        links = {}  # two ids of one box give one link
        for name in node["checks"]:
            links.setdefault(number_of(writer.builder.env, name), link_to(writer, name))
        names = ", ".join(links.values())
        parts.append(f'<span class="cell-checks">checks {names}</span>')
    writer.body.append(f'<p class="cell-caption"{anchor}>{" ".join(parts)}</p>\n')
    raise nodes.SkipNode


def add_nodes(app):
    app.add_node(statement, html=(visit_statement, depart_statement))
    app.add_node(statement_head, html=(visit_head, depart_head))
    app.add_node(cell_caption, html=(visit_caption, None))

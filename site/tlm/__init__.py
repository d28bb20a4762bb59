"""The book's Sphinx extension: statements become numbered boxes, check cells link back to them.

In a chapter (plain Markdown, so that it also reads well where this extension does not run):

    <a id="W-rowwise-def"></a>

    > **Definition** (rowwise operator). An operator is ...

On the site: a box "Definition 1.3 (rowwise operator)" with the anchor as its HTML id. A code cell that begins
`#| export spec.operators` or `#| checks: W-rowwise-def` loses these lines and gets a caption with links.
What is known about a chapter's statements is kept in `env.metadata[docname]["tlm"]` by `statements` and `cells`;
`html` writes it out. `tabs` puts specification and implementation side by side, `curious` folds what a reader may skip. `math` writes the mathematics, `links` previews
statements where they are linked, `glossary` links terms, `catalogue` lists all statements, `api` all
names of the package, `finder` what the search finds at once, `light` keeps the pages light,
`pictures` writes the weights that pictures share, `tables` says where names in tables may break, `teaching` draws which chapter needs which.
"""

import re
from pathlib import Path
from zlib import crc32

from docutils import nodes
from sphinx.transforms import SphinxTransform

from tlm import (
    api,
    catalogue,
    curious,
    finder,
    glossary,
    light,
    links,
    math,
    pictures,
    tables,
    teaching,
)
from tlm.cells import CaptionsInFolds, CodeCells, JoinFolds
from tlm.html import add_nodes, warn, where
from tlm.statements import Statements
from tlm.tabs import Tabs


class KeepPunctuation(SphinxTransform):
    """A line may not break between a formula and the punctuation that belongs to it, as in "($x$)," (browsers would break it)."""

    default_priority = 420

    def apply(self):
        for formula in list(self.document.findall(nodes.math)):
            before, after = (neighbour(formula, step) for step in (-1, 1))
            opening = re.search(r"[(\[“‘—]*$", before.astext())[0] if before else ""
            closing = re.match(r"[.,;:!?)\]”’-]*", after.astext())[0] if after else ""
            if not opening and not closing:
                continue
            line, place = formula.parent, formula.parent.index(formula)  # by place, since a paragraph may hold the same text twice
            if opening:
                line[place - 1] = nodes.Text(before.astext().removesuffix(opening))
            if closing:
                line[place + 1] = nodes.Text(after.astext().removeprefix(closing))
            glue = nodes.inline(classes=["together"])
            formula.replace_self(glue)
            glue += [nodes.Text(opening), formula, nodes.Text(closing)]


def neighbour(node, step):
    """The text directly before (-1) or after (1) a node in its paragraph, or None."""
    place = node.parent.index(node) + step
    if 0 <= place < len(node.parent) and isinstance(node.parent[place], nodes.Text):
        return node.parent[place]
    return None


def check_whole_book(app, env):
    """Every checked id is a statement somewhere; no id is a statement in two chapters."""
    seen = {}
    for docname in sorted(env.metadata):
        known = env.metadata[docname].get("tlm", {"statements": {}, "checks": {}})
        for name in known["statements"]:
            if re.match(r"[A-Z]-", name) and seen.setdefault(name, docname) != docname:
                warn(f"the statement {name} stands in {seen[name]} and in {docname}", docname)
        for name in known["checks"]:
            if where(env, name)[0] is None:
                warn(f"a cell checks {name}, but no chapter states it", docname)


def setup(app):
    add_nodes(app)
    app.add_transform(Statements)
    app.add_transform(CodeCells)
    app.add_transform(Tabs)
    app.add_transform(JoinFolds)
    app.add_post_transform(CaptionsInFolds)
    app.add_transform(KeepPunctuation)
    app.connect("env-check-consistency", check_whole_book)
    math.setup(app)
    curious.setup(app)
    links.setup(app)
    glossary.setup(app)
    catalogue.setup(app)
    api.setup(app)
    finder.setup(app)
    light.setup(app)
    pictures.setup(app)
    tables.setup(app)
    teaching.setup(app)
    # Pages are read again when a line of the extension has changed.
    files = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    return {"version": "1", "env_version": crc32(files), "parallel_read_safe": True, "parallel_write_safe": True}

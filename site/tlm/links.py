"""Links: previews of the statements that they lead to, and one page that lists every link out of the book.

A page may also be opened as a file, where a script may not fetch anything. So the statements of a chapter are written into a script,
`_static/previews/CHAPTER.js`, and tlm.js loads it when a link into that chapter is first pointed at.
"""

import json
import re
from html import escape
from pathlib import Path, PurePosixPath

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform

from tlm.html import label, where

OUTSIDE = "outside_links"


class NamesLink(SphinxPostTransform):
    """The name of a statement, written as code, is a link to that statement."""

    default_priority = 8  # before MyST resolves links (9)

    def run(self, **kwargs):
        for code in list(self.document.findall(nodes.literal)):
            name = code.astext()
            docname, _ = where(self.env, name) if re.match(r"[A-Z]-", name) else (None, None)
            if docname is None or any(isinstance(outer, (nodes.reference, nodes.title)) for outer in ancestors(code)):
                continue
            uri = "" if docname == self.env.docname else self.app.builder.get_relative_uri(self.env.docname, docname)
            link = nodes.reference("", "", internal=True, refuri=f"{uri}#{name}")
            code.replace_self(link)
            link += nodes.Text(name)


def ancestors(node):
    while node.parent is not None:
        node = node.parent
        yield node


class LinkTitles(SphinxPostTransform):
    """A link to a statement shows that statement's number and title when pointed at; tlm.js shows the statement itself."""

    default_priority = 20  # after MyST has resolved links (9)

    def run(self, **kwargs):
        for link in self.document.findall(nodes.reference):
            name = link.get("refid") or link.get("refuri", "").partition("#")[2]
            docname, _ = where(self.env, name)
            if docname and link.get("internal", "refid" in link):
                link["reftitle"] = label(self.env, name, with_title=True)
                link["classes"].append("statement-link")


def write_previews(app, pagename, templatename, context, doctree):
    """Called when a page has been written; `depart_statement` has kept its statements by then."""
    found = getattr(app.builder, "tlm_previews", {}).pop(pagename, None)
    if found:
        write_script(app, pagename, found)


def write_script(app, pagename, found):
    """The script with this page's previews, {id: HTML}."""
    target = Path(app.outdir, "_static", "previews", PurePosixPath(pagename).name + ".js")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(f"tlmPreviews({json.dumps(pagename)}, {json.dumps(found, ensure_ascii=False)});\n", encoding="utf-8")


def collect_outside_links(app, doctree):
    links = {}
    for link in doctree.findall(nodes.reference):
        if re.match(r"https?://", link.get("refuri", "")):
            links.setdefault(link["refuri"], link.astext())
    app.env.metadata[app.env.docname]["tlm_outside"] = links


def outside_page(app):
    """The page of all links that leave the book, by chapter."""
    parts = ["<h1>Links that leave the book</h1>", "<p>The book needs no network. These are its links to other places.</p>"]
    for docname in [app.config.root_doc, *app.env.toctree_includes.get(app.config.root_doc, [])]:
        links = app.env.metadata[docname].get("tlm_outside")
        if links:
            title = app.env.titles[docname].astext()
            page = app.builder.get_relative_uri(OUTSIDE, docname)
            items = [f'<li><a class="reference external" href="{escape(url)}">{escape(text)}</a><br/><small class="address">{escape(url)}</small></li>'
                     for url, text in links.items()]
            parts.append(f'<section><h2><a class="reference internal" href="{page}">{escape(title)}</a></h2><ul>{"".join(items)}</ul></section>')
    yield OUTSIDE, {"title": "Links that leave the book", "body": "\n".join(parts)}, "page.html"


def setup(app):
    app.add_post_transform(NamesLink)
    app.add_post_transform(LinkTitles)
    app.connect("html-page-context", write_previews)
    app.connect("doctree-read", collect_outside_links)
    app.connect("html-collect-pages", outside_page)

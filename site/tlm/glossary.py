"""The glossary: the first use of each of its words in a chapter's text links to its entry and previews it.

An entry of `glossary.md` is a paragraph `<a id="term-head"></a>**Head** (*attention head*). …`: the name in bold, then other
forms in italics in parentheses. Headings, statements, tables, code, mathematics and links stay as they are. A comment at its end,
`<!-- no link in: training, heads -->`, names the chapters in which the word means something else.
"""

import re
from pathlib import PurePosixPath

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform

from tlm.html import cell_caption, preview, statement, warn
from tlm.links import ancestors, write_script
from tlm.statements import ANCHOR

GLOSSARY = "glossary"  # the last part of the page's name
NO_PROSE = (
    nodes.title, nodes.reference, nodes.literal, nodes.literal_block, nodes.FixedTextElement, nodes.math, nodes.math_block, nodes.raw,
    nodes.strong, nodes.table, nodes.container, nodes.caption, statement, cell_caption,
)  # fmt: skip
NO_LINK_IN = re.compile(r"<!-- no link in: ([\w, ]+) -->")
ENTRY = re.compile(r'<p><a id="(term-[\w-]+)"></a><strong>(.*?)</strong>(.*?)</p>', re.DOTALL)


def is_glossary(docname):
    return PurePosixPath(docname).name == GLOSSARY


def collect_terms(app, doctree):
    """Keep {id of an entry: its name and other forms} in the environment, and {chapter: ids of the entries that it doesn't use}."""
    if not is_glossary(app.env.docname):
        return
    metadata, chapters = app.env.metadata[app.env.docname], {PurePosixPath(name).name for name in app.env.found_docs}
    terms, unused = metadata["tlm_terms"], metadata["tlm_unused"] = {}, {}
    for name in doctree.findall(nodes.strong):
        line = name.parent
        before = "".join(node.astext() for node in line[: line.index(name)])
        anchors = ANCHOR.findall(before)
        if anchors:
            terms[anchors[0]] = [name.astext(), *other_forms(line[line.index(name) + 1 :])]
            for chapter in re.findall(r"\w+", " ".join(NO_LINK_IN.findall(line.astext()))):
                unused.setdefault(chapter, []).append(anchors[0])
                if chapter not in chapters:
                    warn(f"the entry {anchors[0]} names {chapter}, which is no chapter", name)


def other_forms(inline):
    """The words in italics inside the parentheses with which the nodes begin."""
    forms = []
    if inline and inline[0].astext().startswith(" ("):
        for node in inline:
            if isinstance(node, nodes.emphasis):
                forms.append(node.astext())
            elif ")" in node.astext():
                break
    return forms


def pattern_of(forms):
    """One of the forms as a whole word, also in the plural; the first letter may be small or capital. ("Without loss" does not mean the loss.)"""
    either = [f"[{form[0].lower()}{form[0].upper()}]{re.escape(form[1:])}" for form in sorted(forms, key=len, reverse=True)]
    return re.compile(rf"(?<![\w-])(?<!without )(?:{'|'.join(either)})s?(?![\w-])")


class FirstUses(SphinxPostTransform):
    default_priority = 15  # after links are resolved (9) and before they get titles (20)

    def run(self, **kwargs):
        env = self.env
        page = next((name for name in env.metadata if is_glossary(name)), None)
        if page is None or not env.metadata[env.docname].get("tlm", {}).get("statements"):
            return  # only chapters have statements
        terms = {name: pattern_of(forms) for name, forms in env.metadata[page].get("tlm_terms", {}).items()}
        uri = self.app.builder.get_relative_uri(env.docname, page)
        left = set(terms) - set(env.metadata[page].get("tlm_unused", {}).get(PurePosixPath(env.docname).name, []))
        for text in [node for node in self.document.findall(nodes.Text) if is_prose(node)]:
            link_terms(text, terms, left, uri)


def is_prose(text):
    above = list(ancestors(text))
    return any(isinstance(node, nodes.paragraph) for node in above) and not any(isinstance(node, NO_PROSE) for node in above)


def link_terms(text, terms, left, uri):
    """Link the terms of this text that are still `left`, and remove them from it. A word inside a longer term does not count as a use."""
    parts, end, place = [], 0, 0
    while matches := [(match.start(), -match.end(), name) for name, pattern in terms.items() if (match := pattern.search(text, place))]:
        start, stop, name = min(matches)  # the first one; of two that begin together, the longer
        place = -stop
        if name not in left:
            continue
        left.remove(name)
        link = nodes.reference("", "", nodes.Text(text[start:place]), internal=True, refuri=f"{uri}#{name}")
        link["classes"] += ["term", "statement-link"]
        link["reftitle"] = f"{name.removeprefix('term-').replace('-', ' ')}: glossary"
        parts += [nodes.Text(text[end:start]), link]
        end = place
    if parts:
        text.parent.replace(text, [*parts, nodes.Text(text[end:])])


def write_entries(app, pagename, templatename, context, doctree):
    """The entries as previews, in the form of those of statements (links.py)."""
    if is_glossary(pagename) and "body" in context:
        head = '<div class="statement-head"><p class="statement-name"><span class="statement-label">Term</span> <b>{}</b></p></div>'
        found = {name: head.format(title) + preview([f"<p>{rest.lstrip('. ')}</p>"]) for name, title, rest in ENTRY.findall(context["body"])}
        write_script(app, pagename, found)


def read_anew(app, env, added, changed, removed):
    """When the glossary has changed, every page is read and written again."""
    return list(env.found_docs) if any(map(is_glossary, [*added, *changed, *removed])) else []


def setup(app):
    app.connect("doctree-read", collect_terms)
    app.add_post_transform(FirstUses)
    app.connect("html-page-context", write_entries)
    app.connect("env-get-outdated", read_anew)

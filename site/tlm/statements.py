"""Block quotes that begin with a bold kind become statements; anchors become link targets; proofs get a class."""

import re

from docutils import nodes
from sphinx.transforms import SphinxTransform

from tlm.html import statement, statement_head, warn

KINDS = (
    "Definition", "Lemma", "Claim", "Theorem", "Proposition", "Corollary", "Example",
    "Remark", "Convention", "Algorithm", "Counterexample", "Question", "Observation",
)  # fmt: skip
ANCHOR = re.compile(r"""<a\s+(?:id|name)=["']([^"']+)["']\s*/?>""")


class Statements(SphinxTransform):
    """Turn block quotes that begin with a bold kind into `statement` nodes and make every anchor linkable."""

    default_priority = 400  # before Sphinx (850) and MyST (879) collect link targets

    def apply(self):
        env = self.document.settings.env
        self.docname = env.docname
        self.known = env.metadata[self.docname].setdefault("tlm", {"statements": {}, "checks": {}, "how": {}})
        for quote in list(self.document.findall(nodes.block_quote)):
            self.make_box(quote)
        self.make_anchors_linkable(env)
        mark_proofs(self.document)

    def make_box(self, quote):
        ids, anchor_line = anchors_before(quote)
        head = split_head(quote[0]) if len(quote) else None
        if head is None:
            if ids:
                warn(f"the quote at {ids} does not begin with one of {', '.join(KINDS)} in bold", quote)
            return
        kind, title, rest = head
        index = 1 + len({number for _, number, _ in self.known["statements"].values()})
        ids = ids or [f"{kind.lower()}-{index}"]
        has_math = any(isinstance(node, nodes.math) for node in title)
        in_words = "".join(node.astext() for node in title)
        title_text = "" if has_math else in_words
        for name in ids:
            self.known.setdefault("titles", {})[name] = "" if "\\" in in_words else in_words  # for the search
            if name in self.known["statements"]:
                warn(f"the statement {name} stands twice in this chapter", quote)
            self.known["statements"][name] = (kind, index, title_text)

        box = statement(ids=ids, kind=kind, classes=["statement", f"statement-{kind.lower()}"])
        box += statement_head("", "", *title)
        body = quote.children[1:]
        if rest:
            quote[0].children = []
            quote[0] += rest
            body = quote.children
        box += body
        quote.replace_self(box)
        if anchor_line is not None:
            anchor_line.parent.remove(anchor_line)

    def make_anchors_linkable(self, env):
        """Let `[text](#id)` and `[text](chapter.ipynb#id)` find every anchor; MyST reports the unknown ones.

        MyST knows headings as `#where-to-go-next`; notebooks, also in Colab, know them as `#Where-to-go-next`.
        """
        slugs = dict(getattr(self.document, "myst_slugs", {}))
        for section in self.document.findall(nodes.section):
            title = section[0].astext()
            slugs[title.replace(" ", "-")] = (0, section["ids"][0], title)
        found = list(self.known["statements"])
        for raw in self.document.findall(nodes.raw):
            found += ANCHOR.findall(raw.astext())
        for name in found:
            slugs[name] = (0, name, name)
        self.document.myst_slugs = env.metadata[self.docname]["myst_slugs"] = slugs


def anchors_before(quote):
    """The ids of `<a id=...></a>` in the paragraph before the quote, if it holds nothing else, and that paragraph."""
    place = quote.parent.index(quote)
    line = quote.parent[place - 1] if place else None
    if not isinstance(line, nodes.paragraph):
        return [], None
    if any(not isinstance(child, nodes.raw) and child.astext().strip() for child in line):
        return [], None
    ids = ANCHOR.findall("".join(child.astext() for child in line if isinstance(child, nodes.raw)))
    return ids, (line if ids else None)


def split_head(paragraph):
    """`**Kind** (title). Text` as (kind, title nodes, nodes of the text), or None if it is not a statement."""
    inline = [node for node in paragraph if node.astext() or len(node)]  # Markdown leaves empty texts around bold
    if not isinstance(paragraph, nodes.paragraph) or not inline or not isinstance(inline[0], nodes.strong):
        return None
    kind = inline[0].astext().rstrip(".: ")
    if kind not in KINDS:
        return None
    rest = inline[1:]
    title = []
    if rest and rest[0].astext().lstrip().startswith("("):
        title, rest = split_parenthesis(rest)
    if rest and isinstance(rest[0], nodes.Text):
        text = re.sub(r"^[\s.:]+", "", rest[0].astext())
        rest = ([nodes.Text(text)] if text else []) + rest[1:]
    return kind, title, rest


def split_parenthesis(inline):
    """Cut a list of inline nodes that begins with "(" after the matching ")"; the parentheses are dropped."""
    inside, depth = [], 0
    for i, node in enumerate(inline):
        if not isinstance(node, nodes.Text):
            inside.append(node)
            continue
        text = node.astext()
        for j, char in enumerate(text):
            depth += (char == "(") - (char == ")")
            if char == ")" and depth == 0:
                inside.append(nodes.Text(text[:j]))
                inside[0] = nodes.Text(inside[0].astext().lstrip()[1:])
                return inside, [nodes.Text(text[j + 1 :]), *inline[i + 1 :]]
        inside.append(node)
    return [], inline


def mark_proofs(document):
    """Class `proof` on a paragraph that begins *Proof* and on what follows it, up to the sign ∎."""
    for paragraph in document.findall(nodes.paragraph):
        inline = [node for node in paragraph if node.astext()]
        if not inline or not isinstance(inline[0], nodes.emphasis) or not inline[0].astext().startswith("Proof"):
            continue
        siblings = paragraph.parent.children
        part = []
        for node in siblings[siblings.index(paragraph) :]:
            if isinstance(node, (nodes.section, nodes.container, statement)):
                break
            part.append(node)
            if "∎" in node.astext():
                break
        closed = "∎" in part[-1].astext()
        for node in part if closed else part[:1]:
            node["classes"].append("proof")

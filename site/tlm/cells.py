"""The leading `#|` lines of code cells become a caption or the line of a fold; printed sentences may be wrapped.

    #| checks: W-rowwise-def
    #| how: sampled: 300 shapes, float64

A check cell is folded (tag `hide-cell`, or `hide-input` where its output is worth seeing), and the fold's line reads "✓ checked on samples: 300 shapes, float64 · show".
The words of HOWS say how far a check reaches: only the first two settle a statement.
"""

import re
from itertools import takewhile

from docutils import nodes
from myst_nb.sphinx_ import HideCodeCellNode
from sphinx.transforms import SphinxTransform
from sphinx.transforms.post_transforms import SphinxPostTransform

from tlm.finder import note_code
from tlm.html import cell_caption, warn

HOWS = {  # the word in the cell: what a reader sees
    "proved": "✓ proved",
    "exhaustive": "✓ checked in every case",
    "sampled": "✓ checked on samples",
    "example": "✓ checked by example",
    "measured": "✓ measured",
    "reported": "✓ reported",
}

COLUMNS = re.compile(r"\S(?: {2,}|\t)\S")
TREE_OR_MATRIX = re.compile(r"[─-╿]|^ *\[\[?[^\n]*\n *\[", re.MULTILINE)


class CodeCells(SphinxTransform):
    """Take the leading `#|` lines out of code cells and say above the cell what they mean."""

    default_priority = 410

    def apply(self):
        known = self.document.settings.env.metadata[self.document.settings.env.docname]["tlm"]
        for cell in list(self.document.findall(is_code_cell)):
            name_hidden_part(cell)
            for output in cell.findall(is_printed):
                if may_wrap(output.astext()):
                    output["classes"].append("flows")
            block = next(iter(cell.findall(nodes.literal_block)), None)
            if block is None or not block.astext().startswith("#|"):
                continue
            marks = strip_directives(block)
            exports, checks = (marks.get(mark, "").replace(",", " ").split() for mark in ("export", "checks"))
            if not exports and not checks:
                continue
            cell["marked"] = True
            if exports:
                note_code(known, cell, exports[0], block.astext())
            anchor = f"check-{1 + len({a for cells in known['checks'].values() for a in cells})}" if checks else ""
            for name in checks:
                known["checks"].setdefault(name, []).append(anchor)
            if "how" in marks:
                known["how"][anchor] = tell_how(cell, marks["how"])
            elif exports:
                name_exports(cell, exports, block)
                if cell.get("hide_mode"):
                    continue  # the fold's line says it
            caption = cell_caption(exports=exports, checks=checks, anchor=anchor)
            if cell.get("hide_mode") == "all":
                cell.append(caption)
            else:
                cell.parent.insert(cell.parent.index(cell), caption)


class JoinFolds(SphinxTransform):
    """Folded cells of the package that follow one another, with no output, are one fold; so are code without output, as imports, and the code that follows it."""

    default_priority = 416  # after the tabs

    def apply(self):
        for cell in list(self.document.findall(is_plain_fold)):
            page, place = cell.parent, cell.parent.index(cell)
            following = page[place + 1] if place + 1 < len(page) else None
            if len(cell) == 1 and is_plain_fold(following):
                following[0].insert(0, cell[0].children)
                page.remove(cell)
        for cell in list(self.document.findall(is_folded_export)):
            page, place = cell.parent, cell.parent.index(cell)
            run = list(takewhile(is_folded_export, page[place:]))
            if len(run) == 1 or isinstance(page, HideCodeCellNode):
                continue
            del page[place : place + len(run)]
            words = f"{len(run)} cells of {common_name([name for cell in run for name in cell['exports']])}"
            fold = HideCodeCellNode("", *run, prompt_show=f"{words} · show", prompt_hide=f"{words} · hide", classes=["above-input"])
            page.insert(place, nodes.container("", fold, classes=["cell", "tag_hide-cell"]))
            for cell in run:
                del cell["hide_mode"]
                cell.insert(0, cell_caption(exports=cell["exports"], checks=[], anchor=""))


class CaptionsInFolds(SphinxPostTransform):
    """What a folded cell exports and checks stands inside the fold, above the code."""

    default_priority = 202  # after myst_nb has made the folds
    formats = ("html",)

    def run(self, **_):
        for fold in self.document.findall(HideCodeCellNode):
            for caption in [child for child in fold.children if isinstance(child, cell_caption)]:
                fold.remove(caption)
                fold.insert(0, caption)


def is_folded_export(node):
    return is_code_cell(node) and bool(node.get("hide_mode")) and "exports" in node and len(node) == 1


def is_plain_fold(node):
    """Whether this is a cell of which only the code is folded, and that neither exports nor checks anything."""
    return is_code_cell(node) and node.get("hide_mode") == "input" and "marked" not in node


def common_name(modules):
    """`tlm_book.loss` of one module, `tlm_book.inference: layers, cache` of several in a package, `tlm_book: spec.loss, loss` of others."""
    names = list(dict.fromkeys(modules))
    package = names[0].split(".")[0]
    if len(names) == 1:
        return f"tlm_book.{names[0]}"
    if all(name.startswith(f"{package}.") for name in names):
        return f"tlm_book.{package}: {', '.join(name.removeprefix(f'{package}.') for name in names)}"
    return f"tlm_book: {', '.join(names)}"


def name_exports(cell, exports, block):
    """What the fold of an exported cell holds: its module and how long it is."""
    cell["exports"] = exports
    lines = sum(bool(line.strip()) for line in block.astext().splitlines())
    for prompt, verb in (("prompt_show", "show"), ("prompt_hide", "hide")):
        cell[prompt] = f"{lines} lines of tlm_book.{exports[0]} · {verb}"


def tell_how(cell, how):
    """Write the line of a check's fold; return the word that says how far the check reaches."""
    kind, _, words = (part.strip() for part in how.partition(":"))
    if kind not in HOWS or not words:
        warn(f"a cell says how it checks with {how!r}; wanted one of {', '.join(HOWS)}, a colon and some words", cell)
    for prompt, verb in (("prompt_show", "show"), ("prompt_hide", "hide")):
        cell[prompt] = f"{HOWS.get(kind, kind)}: {words} · {verb}"
    return kind


def is_code_cell(node):
    return isinstance(node, nodes.container) and node.get("nb_element") == "cell_code"


def is_printed(node):
    return isinstance(node, nodes.literal_block) and "output" in node["classes"]


def may_wrap(text):
    """Printed sentences may be wrapped where the page is narrow; tables, trees and matrices keep their lines."""
    columns = [line for line in text.splitlines() if COLUMNS.search(line)]
    return len(columns) < 2 and not TREE_OR_MATRIX.search(text)


def name_hidden_part(cell):
    """Say what a click shows: the solution of an exercise, the imports, the code, the cell."""
    section = cell.parent
    while section is not None and "exercises" not in section.get("names", []):
        section = section.parent
    imports = len(cell) == 1 and cell.astext().startswith(("import ", "from "))
    what = {"all": "cell" if section is None else "solution", "input": "imports" if imports else "code", "output": "output"}
    for prompt in ("prompt_show", "prompt_hide"):
        if cell.get("hide_mode") in what:
            cell[prompt] = cell[prompt].replace("{type}", what[cell["hide_mode"]])


def strip_directives(block):
    """Remove the leading `#|` lines from a cell's source; return {mark: the rest of its line}."""
    lines = block.astext().splitlines()
    marks = {}
    while lines and lines[0].startswith("#|"):
        name, _, rest = lines.pop(0)[2:].strip().replace(":", " ", 1).partition(" ")
        marks[name] = rest.strip()
    block.rawsource = "\n".join(lines).lstrip("\n")
    block.children = []
    block += nodes.Text(block.rawsource)
    return marks

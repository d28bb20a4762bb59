"""The leading `#|` lines of code cells become a caption; folded cells say what they hide; printed sentences may be wrapped."""

import re

from docutils import nodes
from sphinx.transforms import SphinxTransform
from tlm_html import cell_caption

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
            exports, checks = strip_directives(block)
            if not exports and not checks:
                continue
            anchor = f"check-{1 + len({a for cells in known['checks'].values() for a in cells})}" if checks else ""
            for name in checks:
                known["checks"].setdefault(name, []).append(anchor)
            cell.parent.insert(cell.parent.index(cell), cell_caption(exports=exports, checks=checks, anchor=anchor))


def is_code_cell(node):
    return isinstance(node, nodes.container) and node.get("nb_element") == "cell_code"


def is_printed(node):
    return isinstance(node, nodes.literal_block) and "output" in node["classes"]


def may_wrap(text):
    """Printed sentences may be wrapped where the page is narrow; tables, trees and matrices keep their lines."""
    columns = [line for line in text.splitlines() if COLUMNS.search(line)]
    return len(columns) < 2 and not TREE_OR_MATRIX.search(text)


def name_hidden_part(cell):
    """Say what a click shows: the solution of an exercise, the code, the cell."""
    section = cell.parent
    while section is not None and "exercises" not in section.get("names", []):
        section = section.parent
    what = {"all": "cell" if section is None else "solution", "input": "code", "output": "output"}
    for prompt in ("prompt_show", "prompt_hide"):
        if cell.get("hide_mode") in what:
            cell[prompt] = cell[prompt].replace("{type}", what[cell["hide_mode"]])


def strip_directives(block):
    """Remove the leading `#|` lines from a cell's source; return the exported modules and the checked ids."""
    lines = block.astext().splitlines()
    exports, checks = [], []
    while lines and lines[0].startswith("#|"):
        name, _, rest = lines.pop(0)[2:].strip().replace(":", " ", 1).partition(" ")
        {"export": exports, "checks": checks}.get(name, []).extend(rest.replace(",", " ").split())
    block.rawsource = "\n".join(lines).lstrip("\n")
    block.children = []
    block += nodes.Text(block.rawsource)
    return exports, checks

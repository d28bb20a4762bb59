"""Specification and implementation side by side: neighbouring cells that export `spec.X` and `X` become two tabs of one box.

Nothing may stand between the two cells. The reader's choice is kept for every box of the book (by sphinx-design's own script).
"""

from docutils import nodes
from sphinx.transforms import SphinxTransform
from sphinx_design.shared import create_component

from tlm.html import cell_caption

GROUP = "tlm-form"


class Tabs(SphinxTransform):
    """Put a caption and its cell of the specification, and the next ones of the implementation, into a set of tabs."""

    default_priority = 415  # after the captions have been made

    def apply(self):
        for caption in list(self.document.findall(cell_caption)):
            if not is_of_specification(caption):
                continue
            page, place = caption.parent, caption.parent.index(caption)
            four = page[place : place + 4]
            if len(four) == 4 and isinstance(four[2], cell_caption) and is_twin(caption, four[2]):
                del page[place : place + 4]
                page.insert(place, tab_set([("Specification", "spec", four[:2]), ("torch", "torch", four[2:])]))


def is_of_specification(caption):
    return len(caption["exports"]) == 1 and caption["exports"][0].startswith("spec.")


def is_twin(first, second):
    """Does the second caption belong to the implementation of the first one's chapter?"""
    chapter = first["exports"][0].removeprefix("spec.")
    return any(module.split(".")[0] == chapter for module in second["exports"])


def tab_set(items):
    """A set of tabs, each given as (label, name that is remembered, nodes)."""
    tabs = create_component("tab-set", classes=["sd-tab-set"])
    for label, name, content in items:
        head = nodes.rubric(label, "", nodes.Text(label), classes=["sd-tab-label"], sync_id=name, sync_group=GROUP)
        body = create_component("tab-content", classes=["sd-tab-content"], children=content)
        tabs += create_component("tab-item", classes=["sd-tab-item"], children=[head, body], selected=False)
    return tabs

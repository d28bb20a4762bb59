"""A section headed "For the curious" is folded: its heading stands on the page, what is below it opens at a click.

The notebook has nothing but the heading, so that GitHub and Colab show all of it.
"""

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform

HEADING = "For the curious"


class folded(nodes.General, nodes.Element):
    """What a reader may skip."""


class FoldCurious(SphinxPostTransform):
    """Put what stands below such a heading into a fold; the table of contents and the links have been made before."""

    default_priority = 204  # after the folds of cells
    formats = ("html",)

    def run(self, **_):
        for section in list(self.document.findall(nodes.section)):
            title = section.next_node(nodes.title)
            if title is None or title.parent is not section or not title.astext().startswith(HEADING):
                continue
            place = section.index(title) + 1
            below = section[place:]
            del section[place:]
            section += folded("", *below)


def visit_folded(writer, node):
    writer.body.append('<details class="curious"><summary><span class="show">show</span><span class="hide">hide</span> this part</summary>\n')


def depart_folded(writer, node):
    writer.body.append("</details>\n")


def setup(app):
    app.add_node(folded, html=(visit_folded, depart_folded))
    app.add_post_transform(FoldCurious)

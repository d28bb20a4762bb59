r"""Mathematics as `<span class="math">TeX</span>` and `<div class="math">TeX</div>`; tlm.js sets it with KaTeX.

KaTeX (book/assets/katex) is a tenth of MathJax's weight and sets a page in a fraction of a second. It lacks one thing that
the chapters use and that MathJax has, in Colab and on GitHub: `\unicode{x25FA}`, the sign ◺ of the mask. Here it becomes
`\triangle`, which has the same width, and tlm.js puts ◺ in its place.
"""

from pathlib import Path

import matplotlib
from docutils import nodes
from fontTools import subset
from fontTools.ttLib import TTFont

CLASSES = "math notranslate nohighlight"


def tex(writer, node):
    return writer.encode(node.astext().strip().replace(r"\unicode{x25FA}", r"\triangle{}"))


def visit_inline(writer, node):
    writer.body.append(writer.starttag(node, "span", "", CLASS=CLASSES) + tex(writer, node) + "</span>")
    raise nodes.SkipNode


def visit_display(writer, node):
    writer.body.append(writer.starttag(node, "div", "", CLASS=CLASSES) + tex(writer, node) + "</div>\n")
    raise nodes.SkipNode


def write_mask_sign(app, error):
    """The glyph ◺, cut out of the DejaVu Sans that comes with matplotlib: many systems have no such glyph."""
    if error is None and app.builder.format == "html":
        font = TTFont(Path(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf"))
        cut = subset.Subsetter(subset.Options(layout_features=[], hinting=False, name_IDs=[], drop_tables=["FFTM"]))
        cut.populate(text="◺")
        cut.subset(font)
        font.flavor = "woff"
        font.save(Path(app.outdir, "_static", "mask-sign.woff"))


def setup(app):
    app.add_html_math_renderer("katex", (visit_inline, None), (visit_display, None))
    app.connect("build-finished", write_mask_sign)

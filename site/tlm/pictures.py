"""The weights that several pictures share, in a file of their own, `_static/small_world.js`, written if a page names it. A page loads it when
a reader asks for it.
"""

from pathlib import Path

from tlm.html import warn

FILE = "small_world"  # the `file` of the pictures that show the small world's model


def write_shared_file(app, error):
    if error is not None or app.builder.format != "html":
        return
    out = Path(app.outdir)
    pages = (out / f"{name}.html" for name in app.env.found_docs)
    if not any(f'_static/{FILE}.js' in page.read_text(encoding="utf-8") for page in pages if page.is_file()):
        return
    from tlm_book import small_world  # loads torch, so only where it is needed
    from tlm_book.viewer.shared import shared_file

    try:
        text = shared_file(FILE, *small_world.model())
    except FileNotFoundError as missing:
        warn(f"a page wakes the model of the small world, which is not there: {missing}", None)
        return
    (out / "_static" / f"{FILE}.js").write_text(text, encoding="utf-8")


def setup(app):
    app.connect("build-finished", write_shared_file, priority=950)  # after the words of the site's own scripts are counted

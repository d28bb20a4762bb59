"""Light pages: of the theme's styles, icons and scripts and of the spans in highlighted code, only what the book's pages use.

The theme brings the styles of every Bootstrap component and two thousand icons. What no page uses is cut away here, after
the build, from the site itself; pictures are stored as lossless WebP, a third of their size as PNG.
"""

import re
from functools import cache
from pathlib import Path

from docutils import nodes
from PIL import Image
from sphinx.transforms import SphinxTransform

from tlm.html import warn

# Names, punctuation and white space have the colour of plain text in both colour schemes. Operators get it, too: a colour on
# every = and + says nothing, and its spans were a seventh of a page that shows much code.
PLAIN = re.compile(r'<span class="(?:n|nn|nx|o|p|w)">([^<]*)</span>')
CLASS = re.compile(r"\.(-?[A-Za-z_](?:[\w-]|\\.)*)")
RULE = re.compile(r"([^{}]*)\{([^{}]*)\}")
OWN = ("tlm.css", "tlm.js", "finder.js", "previews.js")  # each line stands by itself: no string runs over two
SCALE = 0.7  # pixels of the page for one of a picture; most pictures then fill the line
STYLES = ("styles/pydata-sphinx-theme.css", "styles/sphinx-book-theme.css", "sphinx-design.min.css")


class LightPictures(SphinxTransform):
    """Store each PNG picture of a notebook as lossless WebP beside it, and show that, on one scale, so that letters are about equally large in all."""

    default_priority = 420

    def apply(self):
        for image in self.document.findall(nodes.image):
            path = Path(self.env.srcdir, self.env.relfn2path(image["uri"], self.env.docname)[0])
            if path.suffix != ".png" or not path.is_file():  # Sphinx reports what is missing
                continue
            light = path.with_suffix(".webp")
            with Image.open(path) as picture:
                image["width"] = f"{SCALE * picture.width:.0f}px"
                image["classes"].append("no-scaled-link")
                if not light.exists():
                    large = path.stat().st_size > 60_000  # worth a fifth of a second
                    picture.save(light, lossless=True, method=4, quality=100 if large else 80)
            image["uri"] = image["uri"].removesuffix(".png") + ".webp"


def without_plain_spans(app, pagename, templatename, context, doctree):
    if "body" in context:
        context["body"] = PLAIN.sub(r"\1", context["body"])


# Where a reader allows no storage, asking for it is an error, at which the theme's scripts would end. What is kept there is then kept for the page alone.
STORAGE = """<script>
for (const name of ["localStorage", "sessionStorage"]) {
  try { window[name].length; } catch {
    const kept = new Map();
    const value = { getItem: (key) => kept.get(key) ?? null, setItem: (key, text) => kept.set(key, String(text)), removeItem: (key) => kept.delete(key) };
    Object.defineProperty(window, name, { configurable: true, value });
  }
}
</script>"""


def with_some_storage(app, pagename, templatename, context, doctree):
    """Above the theme's first script."""
    context["metatags"] = context.get("metatags", "") + STORAGE


NO_SCRIPTS = """<div class="no-scripts">Without scripts, formulas stand here as TeX, pictures show one state only, and there is no search.</div>
"""


def with_a_word_for_readers_without_scripts(app, pagename, templatename, context, doctree):
    if doctree and "body" in context:
        context["body"] = NO_SCRIPTS + context["body"]


def words_of_site(out):
    """Every word that can be the name of a class: in the pages, and in the scripts that change them."""
    files = [*out.rglob("*.html"), *(path for path in out.rglob("*.js") if path.name not in ("searchindex.js", "fontawesome.js"))]
    return {word for file in files for word in re.findall(r"[\w-]+", file.read_text(encoding="utf-8"))}


def lighten_site(app, error):
    if error is None and app.builder.format == "html":
        out = Path(app.outdir)
        words = words_of_site(out)
        for name in STYLES:
            path = out / "_static" / name
            if path.exists():
                path.write_text(without_unused(path.read_text(encoding="utf-8"), words), encoding="utf-8")
        for name in OWN:
            path = out / "_static" / name
            path.write_text(without_margins(path.read_text(encoding="utf-8")), encoding="utf-8")
        pages = " ".join(word for word in words if word.startswith("fa-"))
        for name in icons_without_shape(pages, (out / "_static" / "icons.css").read_text(encoding="utf-8")):
            warn(f"the pages show the icon {name}, which assets/icons.css does not draw", None)


def without_margins(text):
    """A style sheet or a script without indents, empty lines and lines of comment."""
    lines = (line.strip() for line in re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL).splitlines())
    return "".join(f"{line}\n" for line in lines if line and not line.startswith("//"))


def without_unused(css, words):
    """The style sheet without the selectors that name a class found nowhere in the site."""

    @cache
    def is_used(selector):
        outside_not = re.sub(r":not\([^()]*\)", "", selector)
        return all(re.sub(r"\\(.)", r"\1", name) in words for name in CLASS.findall(outside_not))

    def shorter(rule):
        selectors, body = rule.groups()
        if "Font Awesome" in body or body.startswith("--fa:"):
            return ""
        if "@" in selectors or "(" in selectors and "," in re.sub(r"^[^(]*", "", selectors):
            return rule[0]
        left = [one for one in selectors.split(",") if is_used(one)]
        return f"{','.join(left)}{{{body}}}" if left else ""

    css = re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL)
    css = RULE.sub(shorter, css)
    return re.sub(r"@(?:media|supports)[^{}]*\{\s*\}", "", css)


def icons_without_shape(pages, styles):
    """The icons that pages name and the style sheet does not draw."""
    return sorted(set(re.findall(r"\bfa-(?!solid|brands|regular|lg\b)[a-z-]+", pages)) - {name[1:] for name in re.findall(r"\.fa-[a-z-]+", styles)})


def setup(app):
    app.add_transform(LightPictures)
    app.connect("html-page-context", without_plain_spans)
    app.connect("html-page-context", with_some_storage)
    app.connect("html-page-context", with_a_word_for_readers_without_scripts)
    app.connect("build-finished", lighten_site, priority=900)  # when everything else is in its place

"""The page for teachers: in `teaching.md`, `<div data-teaching="graph"></div>` becomes the picture of which chapter needs which, and
`<div data-teaching="minutes"></div>` the table of how long each takes. Both are read from the chapters when the site is built.

A chapter *needs* an earlier one if one of its cells imports what that one defines, or one of its sentences links to a place there; exercises, what
the sources say and what is marked for the curious do not count. The picture leaves out an arrow if a path along other arrows leads to the same end.
"""

import json
import re
from functools import cache
from html import escape
from pathlib import Path, PurePosixPath

import yaml
from docutils import nodes

PLACE = re.compile(r'<div data-teaching="(\w+)">')
CORE_PARTS = ("Start", "The model", "Learning")
CORE = {"Using": ("inference",), "Learning": ("loss", "gradients", "optimization", "training")}  # only these chapters of these parts
SET_ASIDE = re.compile(r"(What the sources say|Exercises|Where to go next|For the curious.*)$")  # sections that a first reading may leave out
IMPORT = re.compile(r"from tlm_book(?:\.spec)?\.(\w+)[\w.]* import")
LINK = re.compile(r"\]\((\w+)\.ipynb#[\w.,\-]+\)")
EXERCISE = re.compile(r"^(?:\*\*\d+\.|### Exercise \d+\b)", re.M)
WORDS, FORMULAS, LINES = 100, 2, 10  # read in a minute
GRADES = {"●": 5, "●●": 15, "●●●": 40}  # minutes
NODE, HIGH, GAP, TURN, ROW = 158, 34, 16, 8, 74  # width and height of a chapter, room between neighbours, width of a passing arrow, row distance
CLOSE = 0.8  # how far towards its neighbours a chapter moves


def parts(root):
    """{caption of a part: its chapters}, without the appendix."""
    toc = yaml.safe_load(Path(root, "_toc.yml").read_text(encoding="utf-8"))
    return {
        part["caption"]: [PurePosixPath(chapter["file"]).name for chapter in part["chapters"]] for part in toc.get("parts", []) if part["caption"] != "Appendix"
    }


def is_core(part, name):
    return name in CORE[part] if part in CORE else part in CORE_PARTS


class Chapter:
    """What a teacher asks about a chapter: which others it needs, how much there is to read, which exercises it has."""

    def __init__(self, path, earlier):
        self.name, self.needs, self.words, self.formulas, self.lines, self.exercises = path.stem, [], 0, 0, 0, []
        heading = ""
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            source = "".join(cell["source"])
            if cell["cell_type"] == "code":
                self.read_code(source, cell["metadata"].get("tags", []), aside=SET_ASIDE.match(heading))
                continue
            for section in re.split(r"(?m)^(?=## )", source):
                if section.startswith("## "):
                    heading = section[3:].partition("\n")[0]
                if heading == "Exercises":
                    self.exercises += [re.search("●+|$", text)[0] or "●●" for text in EXERCISE.split(section)[1:]]
                elif not SET_ASIDE.match(heading):
                    self.read_text(section)
        self.needs = [name for name in earlier if name in self.needs]

    def read_code(self, source, tags, aside):
        if not aside:
            self.needs += IMPORT.findall(source)
            if not any(tag.startswith(("hide-", "remove-")) for tag in tags):
                self.lines += sum(bool(line.strip()) and not line.startswith("#|") for line in source.splitlines())

    def read_text(self, text):
        self.needs += LINK.findall(text)
        self.formulas += len(re.findall(r"\$\$.*?\$\$", text, re.S))
        text = re.sub(r"(?s:\$\$.*?\$\$)|\$[^$]*\$|`[^`]*`|<[^>]+>|\]\([^)]*\)|^#+ .*$", " ", text, flags=re.M)
        self.words += len(re.findall(r"[A-Za-zÀ-ÿ][\w’'-]*", text))

    @property
    def reading(self):
        """Minutes, in steps of five: one for each hundred words, two displayed formulas or ten lines of code."""
        return max(5, 5 * round((self.words / WORDS + self.formulas / FORMULAS + self.lines / LINES) / 5))

    @property
    def solving(self):
        return sum(GRADES[grade] for grade in self.exercises)


@cache
def chapters(root):
    """{name: its Chapter}, in the order of the book."""
    names = [name for names in parts(root).values() for name in names]
    return {name: Chapter(Path(root, "book", f"{name}.ipynb"), names[:k]) for k, name in enumerate(names)}


def arrows(book):
    """(chapter, the one that needs it), without those that a longer path makes superfluous."""
    below = {}  # {name: all that it needs, directly or not}
    for name, chapter in book.items():
        below[name] = set(chapter.needs).union(*(below[need] for need in chapter.needs))
    return [
        (need, name) for name, chapter in book.items() for need in chapter.needs if not any(need in below[other] for other in chapter.needs if other != need)
    ]


def layout(book):
    """{node: (x of its middle, row)} and the arrows' paths, each a list of nodes; an arrow that passes a row has a node (from, to, row) there."""
    pairs, row = arrows(book), {}
    for name in book:  # below all that it needs
        row[name] = 1 + max((row[need] for need, later in pairs if later == name), default=-1)
    ways = [[a, *((a, b, k) for k in range(row[a] + 1, row[b])), b] for a, b in pairs]
    row |= {node: node[2] for way in ways for node in way[1:-1]}
    rows = [[node for node in row if row[node] == k] for k in range(max(row.values()) + 1)]
    near = {node: [] for node in row}
    for way in ways:
        for a, b in zip(way, way[1:]):
            near[a].append(b)
            near[b].append(a)
    x = {node: place * (NODE + GAP) for nodes_ in rows for place, node in enumerate(nodes_)}
    wide = {node: NODE if isinstance(node, str) else TURN for node in row}
    for step in range(40):  # each row in turn: its nodes go to the middle of their neighbours, as far as the others let them
        for nodes_ in rows if step % 2 == 0 else rows[::-1]:
            want = {node: CLOSE * sum(x[other] for other in near[node]) / max(len(near[node]), 1) for node in nodes_}  # and a bit towards 0
            if step < 30:
                nodes_.sort(key=want.get)
            x |= spread([want[node] for node in nodes_], [wide[node] for node in nodes_], nodes_)
    left = min(x[node] - wide[node] / 2 for node in x)
    return {node: (x[node] - left, row[node]) for node in x}, ways


def spread(want, wide, names):
    """{name: place}, as near the wanted places as the order and the widths allow: neighbours that would touch move as one (least squares)."""
    offset, blocks = [0.0], []
    for a, b in zip(wide, wide[1:]):
        offset.append(offset[-1] + (a + b) / 2 + GAP)
    for k, place in enumerate(want):
        blocks.append([place - offset[k], 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (a, m), (b, n) = blocks[-2:]
            blocks[-2:] = [[(m * a + n * b) / (m + n), m + n]]
    begins = [begin for begin, count in blocks for _ in range(count)]
    return {name: begin + shift for name, begin, shift in zip(names, begins, offset)}


def graph(root, link):
    """The picture as SVG; `link` gives the address of a chapter."""
    book = chapters(root)
    place, ways = layout(book)
    part = {name: (number, is_core(caption, name)) for number, (caption, names) in enumerate(parts(root).items()) for name in names}
    width = max(x + (NODE / 2 if isinstance(node, str) else 0) for node, (x, _) in place.items()) + 4
    height = ROW * max(row for _, row in place.values()) + HIGH + 8
    shapes = []
    for way in ways:
        points = [(place[node][0] + 2, place[node][1] * ROW + 4) for node in way]
        x, y = points[0]
        line = f"M{x:.0f} {y + HIGH}"
        for (x, y), (to_x, to_y) in zip(points, points[1:]):  # down to the next row, and straight through it
            through = f"V{to_y + HIGH}" if (to_x, to_y) != points[-1] else ""
            line += f"C{x:.0f} {y + HIGH + 22} {to_x:.0f} {to_y - 24} {to_x:.0f} {to_y}{through}"
        shapes.append(f'<path d="{line}" marker-end="url(#needed)"/>')
    for number, name in enumerate(book, start=1):
        x, y = place[name][0] + 2 - NODE / 2, place[name][1] * ROW + 4
        colour, core = part[name]
        label = f"{number}&#8194;{escape(name.replace('_', ' '))}"
        shapes.append(
            f'<a href="{link(name)}" class="part-{colour}{" core" if core else ""}"><rect x="{x:.0f}" y="{y}" width="{NODE}" height="{HIGH}" rx="6"/>'
            f'<text x="{x + NODE / 2:.0f}" y="{y + HIGH / 2 + 5:.0f}">{label}</text></a>'
        )
    words = "The chapters in rows. An arrow leads from each chapter to those that need it; the table below says the same in words."
    head = '<marker id="needed" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z"/></marker>'
    return (
        f'<div class="needs" tabindex="0" role="region" aria-label="Which chapter needs which"><svg viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" '
        f'role="group" aria-label="{words}"><defs>{head}</defs>{"".join(shapes)}</svg></div>'
    )


def minutes(root, link):
    """The table of all chapters: what each needs, how much there is to read and to solve; totals for the core and for all."""
    book, lines, core = chapters(root), [], []
    near = arrows(book)
    for caption, names in parts(root).items():
        for name in names:
            chapter = book[name]
            core += [chapter] if is_core(caption, name) else []
            needs = ", ".join(f'<a class="reference internal" href="{link(a)}">{a.replace("_", " ")}</a>' for a, b in near if b == name)
            label = f'<a class="reference internal" href="{link(name)}">{name.replace("_", " ")}</a>'
            lines.append(row_of(label, "core" if is_core(caption, name) else "optional", needs or "–", [chapter]))
    lines += [row_of("the core", "", "", core), row_of("the whole book", "", "", book.values())]
    heads = ("chapter", "read", "needs", "words", "reading", "●", "●●", "●●●", "solving")
    head = "".join(f'<th scope="col"{"" if k < 3 else " class=text-right"}>{title}</th>' for k, title in enumerate(heads))
    return f'<div class="pst-scrollable-table-container"><table class="table minutes"><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def row_of(label, kind, needs, counted):
    exercises = [grade for chapter in counted for grade in chapter.exercises]
    numbers = [f"{sum(chapter.words for chapter in counted):,}", time(sum(chapter.reading for chapter in counted))]
    numbers += [exercises.count(grade) or "–" for grade in GRADES] + [time(sum(chapter.solving for chapter in counted))]
    cells = "".join(f'<td class="text-right">{number}</td>' for number in numbers)
    return f'<tr><th scope="row">{label}</th><td>{kind}</td><td>{needs}</td>{cells}</tr>'


def time(minutes):
    """Minutes as hours and minutes: 95 is 1:35."""
    return f"{minutes // 60}:{minutes % 60:02}"


def is_teaching(docname):
    return PurePosixPath(docname).name == "teaching"


def fill_places(app, doctree, docname):
    if not is_teaching(docname):
        return
    chapters.cache_clear()  # a server may build many times

    def link(name):
        return app.builder.get_relative_uri(docname, f"{PurePosixPath(docname).parent}/{name}")

    for raw in list(doctree.findall(nodes.raw)):
        found = PLACE.search(raw.astext())
        if found:
            html = {"graph": graph, "minutes": minutes}[found[1]](app.env.srcdir, link)
            raw.replace_self(nodes.raw("", html, format="html"))


def write_anew(app, env):
    """The page depends on every chapter."""
    return [name for name in env.found_docs if is_teaching(name)]


def style(app, pagename, templatename, context, doctree):
    if PurePosixPath(pagename).name in ("teaching", "sheet"):
        app.add_css_file("teaching.css")


def setup(app):
    app.connect("doctree-resolved", fill_places)
    app.connect("env-updated", write_anew)
    app.connect("html-page-context", style)

"""The page of all statements: in `statements.md`, `<div data-statements="W"></div>` becomes the table of one source.

Each row: the statement's name in its source, the verdict of data/statements.csv, where it is stated, where it is checked.
The letter is that of the source; T stands for statements of our own; "summary" counts the verdicts, "reach" the ways of checking.
"""

import csv
import re
from collections import Counter
from html import escape
from pathlib import Path, PurePosixPath

from docutils import nodes

from tlm.html import label, machine_checked, machine_link, where

PLACE = re.compile(r'<div data-statements="(\w+)">')
SOURCES = {"W": "Wojcik", "L": "Lelarge", "B": "Becker-Kahn", "A": "Agarwal", "M": "Lei Mao"}
VERDICTS = {  # in the csv: what a reader sees
    "true": "true", "true-with-conditions": "conditional", "false": "false", "ill-typed": "ill-typed", "convention": "convention", "opinion": "opinion",
}  # fmt: skip
ERRATA = "errata"
REACH = {
    "proved": "The computation settles the statement: symbolically, with exact numbers, or by showing the example that is claimed to exist.",
    "exhaustive": "Every case within the bounds that the cell names was tried.",
    "sampled": "Random or chosen cases were tried. A wrong statement would very likely have failed; nothing is proved.",
    "example": "A definition is carried out on numbers that a reader can follow.",
    "measured": "An observation on one machine: a time, a trained model.",
    "reported": "What a source says, with the place where it says so.",
}


def is_catalogue(docname):
    return PurePosixPath(docname).name == "statements"


def verdicts(env):
    path = Path(env.srcdir, "src", "tlm_book", "data", "statements.csv")
    return {row["id"]: row["verdict"] for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines())}


def chapters(env):
    """Pages in the order of the table of contents."""
    root = env.config.root_doc
    return [name for name in [root, *env.toctree_includes.get(root, [])] if "tlm" in env.metadata[name]]


def table_of(app, page, names):
    """The table of these statements, as HTML; on a phone each row becomes a card (tlm.css)."""
    env, all_verdicts = app.env, verdicts(app.env)
    uri = {name: app.builder.get_relative_uri(page, name) for name in chapters(env)}
    errata = next((name for name in uri if PurePosixPath(name).name == ERRATA), None)
    proved = machine_checked(env)
    rows = []
    for name in names:
        home, _ = where(env, name)
        checks = [(chapter, anchor) for chapter in uri for anchor in env.metadata[chapter]["tlm"]["checks"].get(name, [])]
        mended = [f"{uri[chapter]}#{anchor}" for chapter, anchor in checks if chapter == errata]
        links = [f"{uri[chapter]}#{anchor}" for chapter, anchor in checks if chapter != errata]
        verdict = VERDICTS.get(all_verdicts.get(name), "proved here")
        shown = f'<a class="reference internal" href="{mended[0]}">{verdict}</a>' if mended else verdict
        checked = " ".join(f'<a class="reference internal" href="{link}">{word}</a>' for link, word in zip(links, words_of(env, checks, errata)))
        if name in proved:
            checked += " " + machine_link(app.builder, page, proved[name])
        stated, title = "not stated", ""
        if home:
            title = escape(env.titles[home].astext())
            stated = f'<a class="reference internal statement-link" href="{uri[home]}#{name}">{escape(label(env, name))}</a>'
        rows.append(
            f'<tr data-verdict="{verdict.replace(" ", "-")}"><th scope="row"><code>{escape(name)}</code></th><td class="verdict">{shown}</td>'
            f'<td class="stated">{stated} <span class="chapter">{title}</span></td><td class="checked">{checked or "not checked"}</td></tr>'
        )
    head = "".join(f'<th scope="col">{title}</th>' for title in ("Name", "Verdict", "Stated in", "Checked by"))
    return f'<table class="table catalogue"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'


def words_of(env, checks, errata):
    """How far each check reaches, in one word; where a word would be repeated, a number stands instead."""
    words = []
    for k, (chapter, anchor) in enumerate([(chapter, anchor) for chapter, anchor in checks if chapter != errata], start=1):
        how = env.metadata[chapter]["tlm"]["how"].get(anchor, "check")
        words.append(str(k) if f"✓&nbsp;{how}" in words else f"✓&nbsp;{how}")
    return words


def reach(app):
    """How many check cells settle a statement, how many put it to the test, how many only observe."""
    counted = Counter(how for page in chapters(app.env) for how in app.env.metadata[page]["tlm"]["how"].values())
    lines = "".join(
        f'<tr><th scope="row">{how}</th><td class="text-right">{counted[how]}</td><td>{words}</td></tr>' for how, words in REACH.items()
    )
    head = '<th scope="col">word</th><th scope="col">check cells</th><th scope="col">what it says</th>'
    return f'<div class="pst-scrollable-table-container"><table class="table"><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>'


def summary(app):
    """How many statements of each source have which verdict."""
    counted = [(name[0], VERDICTS[verdict]) for name, verdict in verdicts(app.env).items()]
    heads = "".join(f'<th scope="col">{verdict}</th>' for verdict in (*VERDICTS.values(), "all"))
    lines = []
    for letters, title in [*SOURCES.items(), ("".join(SOURCES), "all")]:
        of_source = [verdict for letter, verdict in counted if letter in letters]
        numbers = [*(of_source.count(verdict) for verdict in VERDICTS.values()), len(of_source)]
        lines.append(f'<tr><th scope="row">{title}</th>' + "".join(f'<td class="text-right">{number}</td>' for number in numbers) + "</tr>")
    return (
        '<div class="pst-scrollable-table-container"><table class="table"><thead><tr><th scope="col">source</th>'
        f"{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def fill_places(app, doctree, docname):
    if not is_catalogue(docname):
        return
    of_sources = verdicts(app.env)
    for raw in list(doctree.findall(nodes.raw)):
        found = PLACE.search(raw.astext())
        if not found:
            continue
        letter = found[1]
        if letter in ("summary", "reach"):
            html = summary(app) if letter == "summary" else reach(app)
        elif letter == "T":
            html = table_of(app, docname, [name for page in chapters(app.env) for name in app.env.metadata[page]["tlm"]["statements"] if name.startswith("T-")])
        else:
            html = table_of(app, docname, [name for name in of_sources if name.startswith(f"{letter}-")])
        raw.replace_self(nodes.raw("", html, format="html"))


def write_anew(app, env):
    """The page depends on every chapter."""
    return [name for name in env.found_docs if is_catalogue(name)]


def add_filter(app, pagename, templatename, context, doctree):
    if is_catalogue(pagename):
        app.add_js_file("catalogue.js", defer="defer")


def setup(app):
    app.connect("doctree-resolved", fill_places)
    app.connect("env-updated", write_anew)
    app.connect("html-page-context", add_filter)

"""Code in tables: where a column is narrow, it breaks after a dot, an underscore or a bracket, and between words that are written together."""

import re

CELL = re.compile(r"<td\b.*?</td>", re.DOTALL)
CODE = re.compile(r"<code\b.*?</code>", re.DOTALL)
BREAK = re.compile(r"(?:(?<=\w[_.(\[])(?=[A-Za-z])|(?<=[a-z])(?=[A-Z]))(?![^<]*>)")


def break_names(app, pagename, templatename, context, doctree):
    if "body" in context:
        in_code = lambda code: BREAK.sub("<wbr>", code[0])
        context["body"] = CELL.sub(lambda cell: CODE.sub(in_code, cell[0]), context["body"])


def setup(app):
    app.connect("html-page-context", break_names)

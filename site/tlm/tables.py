"""Code in tables: in narrow columns other than the first it may break after a dot, an underscore or a bracket, and between words written together.

Wide screens break only code that is long. On narrow ones two columns of long code, and several words in the first column of a table of numbers, keep
some width: the table scrolls before they stand one word a line.
"""

import re

LATER_CELLS = re.compile(r"(?<=</td>)\n?<td\b.*?</tr>|(?<=</th>)\n?<td\b.*?</tr>", re.DOTALL)
CODE = re.compile(r'<span class="pre">(.*?)</span>', re.DOTALL)
LONG = 30
CELL = re.compile(r"(?P<row><tr[^>]*>\s*)?<td(?P<rest>[^>]*>(?P<held>.*?)</td>)", re.DOTALL)
BREAK = re.compile(r"(?:(?<=\w[_.(\[])(?=[A-Za-z])|(?<=[a-z])(?=[A-Z]))(?![^<]*>)")


def with_room(cell):
    held = re.sub("<[^>]*>", "", cell["held"]).strip()
    room = "code" if "<code" in cell["held"] and not cell["row"] and len(held) >= LONG else "words" if cell["row"] and held.count(" ") > 1 else ""
    return f'{cell["row"] or ""}<td data-room="{room}"{cell["rest"]}' if room else cell[0]


def break_names(app, pagename, templatename, context, doctree):
    if "body" in context:
        in_code = lambda code: BREAK.sub("<wbr>" if len(code[1]) < LONG else '<wbr class="long">', code[0])
        body = LATER_CELLS.sub(lambda cells: CODE.sub(in_code, cells[0]), context["body"])
        context["body"] = CELL.sub(with_room, body)


def setup(app):
    app.connect("html-page-context", break_names)

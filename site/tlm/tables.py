"""Code in tables: in narrow columns other than the first it may break after a dot, an underscore or a bracket, and between words written together.

Wide screens break only code that is long (tlm.css).
"""

import re

LATER_CELLS = re.compile(r"(?<=</td>)\n?<td\b.*?</tr>|(?<=</th>)\n?<td\b.*?</tr>", re.DOTALL)
CODE = re.compile(r'<span class="pre">(.*?)</span>', re.DOTALL)
LONG = 30
BREAK = re.compile(r"(?:(?<=\w[_.(\[])(?=[A-Za-z])|(?<=[a-z])(?=[A-Z]))(?![^<]*>)")


def break_names(app, pagename, templatename, context, doctree):
    if "body" in context:
        in_code = lambda code: BREAK.sub("<wbr>" if len(code[1]) < LONG else '<wbr class="long">', code[0])
        context["body"] = LATER_CELLS.sub(lambda cells: CODE.sub(in_code, cells[0]), context["body"])


def setup(app):
    app.connect("html-page-context", break_names)

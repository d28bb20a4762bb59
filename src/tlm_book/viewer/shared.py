"""The file of a site that holds a model and the pictures that compute it. Written by hand."""

import json
from typing import Any

from tlm_book.checks import expects_kind
from tlm_book.viewer.base import HOST, script
from tlm_book.viewer.playground.file import OfModel, checked_name, data_of
from tlm_book.viewer.playground.view import Playground
from tlm_book.viewer.questions.view import Questions

__all__ = ["shared_file"]


def shared_file(file: str, model: Any, tokenizer: Any) -> str:
    """The script `_static/FILE.js` of a site: the model, and the pictures that compute it. It also works from a folder, where pages may read no
    other file.

    TypeError and ValueError as in `playground`.
    """
    expects_kind("file", file, str, "a name")
    checked_name(file)
    data = json.dumps(data_of(model, tokenizer), sort_keys=True, separators=(",", ":"), allow_nan=False)
    common = script("base", *(f"playground/{part}" for part in ("tokens", "computer", "asking")))
    draw = "".join(_drawing(picture, common) for picture in (Playground, Questions))
    return f'(() => {{\nconst theModel = {data};\n{common}(globalThis.tlmPictures ??= {{}})["{file}"] = {{{draw}}};\n}})();\n'


def _drawing(picture: type[OfModel], common: str) -> str:
    """The script of a function of a picture's name and state: the picture's module without `common`, with which all such modules begin, and the host
    that a page of its own would have."""
    host = HOST.format(kind=picture._word, name="' + name + '", state="{...given, data: {...theModel, ...given.data}}")
    own = picture._esm.removeprefix(common).replace("export default viewer;", "")
    return f"{picture._word}(name, given) {{\n{own}{host}}},\n"

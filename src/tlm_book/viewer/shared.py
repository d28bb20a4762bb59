"""The file of a site that holds a model and the pictures that compute it. Written by hand."""

import json
from typing import Any

from tlm_book.viewer.base import HOST
from tlm_book.viewer.playground.file import OfModel, data_of
from tlm_book.viewer.playground.view import Playground
from tlm_book.viewer.questions.view import Questions

__all__ = ["shared_file"]


def shared_file(file: str, model: Any, tokenizer: Any) -> str:
    """The script `_static/FILE.js` of a site: the model, and the pictures that compute it. It works from a folder, too, where a page may read no other file.

    TypeError and ValueError as in `playground`.
    """
    data = json.dumps(data_of(model, tokenizer), sort_keys=True, separators=(",", ":"), allow_nan=False)
    draw = "".join(_drawing(picture) for picture in (Playground, Questions))
    return f'{{const theModel = {data};\n(globalThis.tlmPictures ??= {{}})["{file}"] = {{{draw}}};}}\n'


def _drawing(picture: type[OfModel]) -> str:
    """A function of a picture's name and state: the picture's module, then the host that a page of its own would have."""
    host = HOST.format(kind=picture._word, name="' + name + '", state="{...given, data: {...theModel, ...given.data}}")
    return f"{picture._word}(name, given) {{\n{picture._esm.replace('export default viewer;', '')}{host}}},\n"

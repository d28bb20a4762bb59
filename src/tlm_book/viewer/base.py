"""What the interactive pictures share: one host for pages without a kernel, one widget, and signs for invisible characters.

A picture is an ES module and a state. In a live notebook anywidget runs the module, and the state consists of traits. On a static
page the output's `text/html` itself contains module and state, and needs no network and no kernel. Written by hand.
"""

import hashlib
import html
import json
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from tlm_book.arrays import as_array
from tlm_book.checks import expects, is_whole
from tlm_book.files import checked_path, new_file
from tlm_book.libraries import library
from tlm_book.viewer.style import use_style

try:
    import anywidget
    import traitlets
except ModuleNotFoundError:
    library("anywidget", "viewer")  # raises an error that says how to get it
    raise

__all__ = ["Picture", "module", "page"]

MAX_CHARACTERS = 200  # of one token at most

# Acts as the module's host where there is no kernel, with the four methods of a widget model that the module uses.
# Every element of this name gets the picture, so the same picture may occur twice on a page.
HOST = """
for (const el of document.querySelectorAll('[data-tlm-{kind}="{name}"]:not([data-drawn])')) {{
  const state = {state}, hear = {{}};
  el.dataset.drawn = "";
  viewer.render({{ el, model: {{
    get: (key) => state[key],
    set: (key, value) => {{
      if (state[key] === value) return;
      state[key] = value;
      for (const call of hear["change:" + key] ?? []) call();
    }},
    on: (event, call) => {{ (hear[event] ??= []).push(call); }},
    save_changes: () => {{}},
  }} }});
}}
"""


def page(kind: str, module: str, state: Mapping[str, Any], fallback: str) -> str:
    """A picture as a self-contained piece of HTML: `fallback`, which is replaced by the picture if scripts run.

    kind      a word for the attribute that names the picture.
    module    the text of an ES module that ends with a constant `viewer`, whose method `render` draws.
    state     the values that the module asks its model for; anything that JSON can hold.
    fallback  HTML for readers without scripts.

    The same state gives the same bytes.
    """
    return framed(kind, state, fallback, lambda name, text: f'<script type="module">\n{module}{HOST.format(kind=kind, name=name, state=text)}</script>')


def framed(kind: str, state: Mapping[str, Any], fallback: str, script: Callable[[str, str], str]) -> str:
    """The HTML of `page`, with another script, which is given the picture's name and its state as text."""
    text = json.dumps(state, sort_keys=True, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    name = hashlib.sha256(text.encode()).hexdigest()[:12]
    # The class names keep MathJax from interpreting dollar signs in tokens.
    return f'<div class="tlm-{kind} tex2jax_ignore mathjax_ignore" data-tlm-{kind}="{name}">\n{fallback}\n</div>\n{script(name, text)}'


def module(picture: str, *parts: str) -> str:
    """The ES module of a picture: what all pictures share, then the parts in its folder, the last of which is view.js. A line
    `const OWN = "view.css";` makes OWN the text of that file; a line `"model.js";` is replaced by that file. Comment lines and
    indentation are removed.
    """
    return script("base", *(f"{picture}/{part}" for part in (*parts, "view")))


def script(*files: str) -> str:
    """The text of these files of the viewer, one after the other, in the form that `module` puts into a page."""
    lines = [line.strip() for name in files for line in _lines(Path(__file__).parent / f"{name}.js")]
    return "\n".join(line for line in lines if line and not line.startswith("//")) + "\n"


def _lines(file: Path) -> Iterator[str]:
    """The lines of a file, with the lines of the files that it names in place of their names."""
    for line in file.read_text(encoding="utf-8").splitlines():
        if style := re.fullmatch(r'const (\w+) = "(\w+\.css)";', line):
            yield from [f"const {style[1]} = `", *_lines(file.with_name(style[2])), "`;"]
        elif part := re.fullmatch(r'  "(\w+\.js)";', line):
            yield from _lines(file.with_name(part[1]))
        else:
            yield line


class Picture(anywidget.AnyWidget):
    """A small interactive picture: `data` is what the page is given, the other marked traits are the reader's choices.

    In a live notebook the choices follow the reader; they may also be set, and watched. A class of pictures defines its module
    `_esm`, its word `_word` and its still form `_fallback()`; a trait with the tag `picture=True` is part of the state.
    """

    _word = "picture"
    data = traitlets.Dict().tag(sync=True, picture=True)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.save, cls.to_html = cls.save, cls.to_html  # type: ignore[method-assign]  # so that help() shows them first

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        bundle, metadata = super()._repr_mimebundle_(**kwargs) or ({}, {})
        return {**bundle, "text/plain": repr(self), "text/html": self.to_html()}, metadata

    @staticmethod
    def _in(proposal: Mapping[str, Any], **ranges: tuple[float, float]) -> Any:
        """The value that a trait is to have, after a check that it lies in the range of that name; ValueError otherwise."""
        name, got = proposal["trait"].name, proposal["value"]
        low, high = ranges[name]
        expects(low <= got <= high, name, got, f"a number from {low} to {high}")
        return got

    def _fallback(self) -> str:
        raise NotImplementedError

    def to_html(self) -> str:
        """The picture as a self-contained piece of HTML: a still picture, which is replaced by the live one if scripts run.
        """
        return page(self._word, self._esm, self._state(), self._fallback())

    def save(self, file: str | os.PathLike[str]) -> Path:
        """Write the picture to a file and return its path; the ending of the name chooses the format.

        .html       the interactive picture as a page of its own, which needs no kernel and no network.
        .svg, .png  a drawing of what the picture shows now; not for a playground, which computes on its page.
        .json       what the page is given: `data` and the reader's choices.

        ValueError for another ending, FileNotFoundError if there is no such folder, TypeError for anything but a path, ImportError if a
        drawing is wanted and matplotlib is missing. A file of that name is replaced.
        """
        path = checked_path(file, "file")
        endings = (".html", ".json", *((".svg", ".png") if hasattr(self, "_figure") else ()))
        still = "" if hasattr(self, "_figure") else ": this picture is computed on its page, and has no drawing"
        expects(path.suffix in endings, "file", repr(str(file)), f"a name that ends in {', '.join(endings[:-1])} or {endings[-1]}{still}")
        with new_file(path) as part:
            if path.suffix == ".html":
                title = html.escape(self.data.get("title") or self._word)
                part.write_text(_PAGE.format(title=title, body=self.to_html()), encoding="utf-8")
            elif path.suffix == ".json":
                part.write_text(json.dumps(self._state(), ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
            else:
                self._draw(part, path.suffix[1:])
        return path

    def _state(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.traits(picture=True)}

    def _draw(self, file: Path, form: str) -> None:
        """Draw the picture as it is now, in the book's style, into a file; matplotlib's settings stay as they are."""
        matplotlib = library("matplotlib", "viewer")
        with matplotlib.rc_context():
            use_style()
            self._figure().savefig(file, format=form, metadata={"Date": None} if form == "svg" else None)


_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>
<style>:root {{ color-scheme: light dark }}</style></head>
<body style="font-family: system-ui, sans-serif; margin: 1.5rem">
{body}
</body>
</html>
"""


# ---- checks of the caller's arguments -----------------------------------------------------------------------------------


def kind(thing: object) -> str:
    """The name of a thing's type, for error messages."""
    return type(thing).__name__


def expects_title(title: object) -> None:
    """Check that the title is a string or None; TypeError otherwise."""
    expects(title is None or isinstance(title, str), "title", kind(title), "a str", TypeError)


def expects_strings(argument: str, tokens: Iterable[str]) -> list[str]:
    """The tokens as a list; TypeError if they are one string or hold anything but strings, ValueError if there are none."""
    wants = "a list of str, one for each token"
    expects(not isinstance(tokens, (str, bytes)), argument, f"a single {kind(tokens)}", wants, TypeError)
    expects(hasattr(tokens, "__iter__"), argument, kind(tokens), wants, TypeError)
    tokens = list(tokens)
    for i, token in enumerate(tokens):
        expects(isinstance(token, str), argument, f"{kind(token)} at {i}", wants, TypeError)
    expects(len(tokens) > 0, argument, "no token", "at least one")
    return tokens


def number_between(argument: str, got: Any, low: float, high: float) -> float:
    """A number from low to high, of Python or numpy, as a float; TypeError for another type, ValueError outside the range."""
    expects(isinstance(got, Real) and not isinstance(got, bool), argument, repr(got), "a number", TypeError)
    expects(low <= got <= high, argument, f"{got}", f"a number from {low} to {high}")
    return min(max(float(got), low), high)  # a bound given in fewer bits may lie just beside its double


def whole_between(argument: str, got: Any, low: int, high: int) -> int:
    """A whole number from low to high, of Python or numpy, as an int; TypeError for another type, ValueError outside the range."""
    expects(is_whole(got), argument, repr(got), "a whole number", TypeError)
    expects(low <= int(got) <= high, argument, f"{got}", f"a whole number from {low} to {high}")
    return int(got)


# ---- text ---------------------------------------------------------------------------------------------------------------


def visible(token: str) -> str:
    """The token with a sign for every invisible character: ␣, ⏎, ⇥, code points for controls; ∅ for the empty token.

    Joiners inside a word stay, since Persian, Hindi and joined emoji need them. Bidirectional controls do not stay, since
    they would reorder the signs around them.
    """
    if len(token) > MAX_CHARACTERS:
        token = token[:MAX_CHARACTERS] + "…"
    joiners = "\u200c\u200d"
    keep_joiners = any(unicodedata.category(c)[0] in "LNPSM" for c in token)
    signs = {" ": "␣", "\n": "⏎", "\t": "⇥"}
    shown = ""
    for c in token:
        kind = unicodedata.category(c)
        if c in signs:
            shown += signs[c]
        elif kind[0] in "CZ" and not (c in joiners and keep_joiners):
            shown += f"‹{ord(c):04X}›"
        else:
            shown += c
    if token and unicodedata.category(token[0])[0] == "M":
        shown = "◌" + shown  # a combining mark alone needs a carrier
    return shown or "∅"


def shown_token(token: str | bytes) -> str:
    """The token as visible text; bytes that are not text as their numbers."""
    if isinstance(token, str):
        return visible(token)
    try:
        return visible(token.decode())
    except UnicodeDecodeError:
        return "".join(f"‹{byte:02X}›" for byte in token)


def visible_line(text: str) -> str:
    """A title or a label as visible text: as `visible`, but spaces between words stay spaces."""
    shown = visible(text)
    return shown.replace("␣", " ") if text == text.strip() else shown


def shown_title(title: Any) -> str | None:
    """The title as visible text, or None; TypeError for anything but a string or None."""
    expects_title(title)
    return title and visible_line(title)


def number(x: float, digits: int = 3) -> str:
    """A number as text, with `digits` significant digits, and with a power of ten if it is very small or large.

    >>> [number(x) for x in (0, 0.5, -2, 1234.5, 1e-6, 2.5e7)]
    ['0', '0.500', '−2.00', '1230', '1.00 × 10⁻⁶', '2.50 × 10⁷']
    """
    if x == 0:
        return "0"
    mantissa, exponent = f"{x:.{digits - 1}e}".split("e")
    power = int(exponent)
    if -4 < power < 4:
        rounded = float(f"{x:.{digits - 1}e}")
        text = f"{rounded:.{max(digits - 1 - power, 0)}f}"
    else:
        text = f"{mantissa} × {ten_to(power)}"
    return text.replace("-", "−")


def ten_to(power: int) -> str:
    """A power of ten as text, such as 10⁻⁶."""
    return "10" + str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """An HTML table for readers without scripts; the cells are given as HTML, caption and head as text."""
    tops = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in head)
    lines = ""
    for first, *others in rows:
        cells = "".join(f'<td style="overflow-wrap: anywhere">{cell}</td>' for cell in others)
        lines += f'<tr><th scope="row">{first}</th>{cells}</tr>'
    return (
        '<table style="text-align: left">'
        f"<caption>{html.escape(caption)} With scripts this is an interactive picture.</caption>"
        f"<thead><tr>{tops}</tr></thead><tbody>{lines}</tbody></table>"
    )


def bdi(text: str) -> str:
    """Text in any language as HTML: escaped, and with its direction isolated from its surroundings."""
    return html.escape(text) if text.isascii() else f"<bdi>{html.escape(text)}</bdi>"


def svg(width: int, height: int, label: str, *shapes: str) -> str:
    """A still drawing, as wide as its page allows but at most `width` CSS pixels; `label` says what it shows."""
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" style="max-width: 100%; height: auto" role="img" '
        f'aria-label="{html.escape(label)}" fill="none" stroke="currentColor" stroke-linecap="round">{"".join(shapes)}</svg>'
    )


def point(x: float, y: float) -> str:
    """Two coordinates of a drawing, rounded to a tenth of a pixel, so that they are the same on every machine."""
    return f"{round(x, 1) + 0:g} {round(y, 1) + 0:g}"


# ---- a row of scores, for the two pictures of softmax -------------------------------------------------------------------


def scores_of(scores: Any, most: int, count: str) -> Float64[np.ndarray, "n"]:
    """The scores in float64. TypeError unless they are real numbers, ValueError unless they are a row of 1 to `most` finite numbers."""
    try:
        z = np.asarray(as_array(scores))
    except ValueError as error:
        raise ValueError(f"scores: got no array ({error}), want {count} numbers") from None
    expects(z.dtype.kind in "fiu", "scores", f"{kind(scores)} of dtype {z.dtype}", "real numbers", TypeError)
    expects(z.ndim == 1 and 1 <= z.size <= most, "scores", f"shape {z.shape}", f"from 1 to {most} numbers")
    expects(bool(np.isfinite(z).all()), "scores", "numbers that are not finite", "finite numbers")
    return z.astype(np.float64)


def softmax(z: Float64[np.ndarray, "n"], tau: float = 1.0) -> Float64[np.ndarray, "n"]:
    """exp(z/τ), divided by its sum."""
    e = np.exp((z - z.max()) / tau)
    return e / e.sum()


def weight_bar(w: float, signs: int) -> str:
    """A weight as a number and a bar; the bar for weight 1 has `signs` characters."""
    return f'{w:.3f} <span aria-hidden="true">{"█" * round(signs * w)}</span>'

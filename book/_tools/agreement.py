"""When two outputs of a cell agree: equal words, and numbers that differ by at most one unit in the last printed place.

A number that was rounded (1.57, 3e-05, 48 %, ≈ 12) is not printed alike by every processor: where the exact value lies at an edge, the last bit of a
sum decides. A number that counts or names something (12 heads, token 513, torch 2.13.0, an id, a colour) is, and must be equal. They are told apart
by their spelling: a number is *rounded* if it has decimals or an exponent, or stands before a per cent sign or after ≈. All else is a word,
including `inf`, `nan` and digits that touch a letter on their left (T5, v1.2, 0x1f).
"""

import base64
import io
import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import numpy as np
from PIL import Image

NUMBER = re.compile(
    r"""
    (?: (?<![\w.)\]]) [-+−] )?                  # a sign; after a letter, a digit or a bracket it is an operation, so a word
    (?<![\w.]) (?: \d{1,3} (?:,\d{3})+ | \d+ )  # 1,234 or 1234
    (?P<fraction> (?:\.\d+)? (?:e[-+]?\d+)? )
    (?! \d | \.\d )                             # 2.13.0 is a word
    """,
    re.VERBOSE | re.IGNORECASE,
)
PACKED = re.compile(r'(?<="weights":\[")[A-Za-z0-9+/=]+')  # a viewer's weights, a byte each
NAME = re.compile(r'(?<=")[0-9a-f]{12}(?=")')  # a picture's name, in quotes: made from its numbers, which are compared themselves
ONE_PYTHON = re.compile(r"^\S*_dynamo/guards\.py:\d+: RuntimeWarning: Guards may run slower on Python .*\n.*\n?", re.MULTILINE)  # torch, of 3.13.0 alone
HOLE = "◊"
SILENT = {"metadata", "traceback", "prompt_number", "output_type", "name", "execution_count", "transient"}
WIDGET = "application/vnd.jupyter.widget-view+json"
PICTURES = {"image/png", "image/jpeg"}
LEVELS = 8  # of 256: how much a pixel may differ between two drawings of one picture


def without_numbers(text: str) -> tuple[str, list[str]]:
    """The text with a hole for each rounded number, and these numbers. Spaces around a hole pad a column and are dropped."""
    numbers: list[str] = []

    def hole(match: re.Match[str]) -> str:
        before, after = text[: match.start()], text[match.end() : match.end() + 3]
        if match["fraction"] or re.match(r" ?\\?%", after) or before.endswith(("≈", "≈ ")):
            numbers.append(match[0])
            return HOLE
        return match[0]

    return re.sub(f" *{HOLE} *", HOLE, NUMBER.sub(hole, text)), numbers


def near(one: str, other: str) -> bool:
    """Whether two printed numbers differ by at most one unit in the last printed place, the finer where zeros were trimmed.

    >>> near("0.50", "0.49"), near("9.99e-05", "1.00e-04"), near("-0.0", "0.0"), near("0.5", "0.501")
    (True, True, True, True)
    >>> near("0.50", "0.48"), near("0.2", "-0.2")
    (False, False)
    """
    a, b = (Decimal(text.replace(",", "").replace("−", "-")) for text in (one, other))
    unit = Decimal(1).scaleb(min(int(a.as_tuple().exponent), int(b.as_tuple().exponent)))
    return abs(a - b) <= unit


def named(text: str) -> str:
    """The text with its pictures' names replaced by first, second, …"""
    order: dict[str, str] = {}
    return NAME.sub(lambda match: order.setdefault(match[0], f"picture {len(order)}"), text)


def packed_near(one: str, other: str) -> bool:
    """Whether two packed rows of bytes differ by at most one level of 256 in each place."""
    a, b = (np.frombuffer(base64.b64decode(text), np.uint8).astype(int) for text in (one, other))
    return a.shape == b.shape and bool((abs(a - b) <= 1).all())


def disagreement(want: str, got: str) -> str | None:
    """The first place where two texts do not agree, in one or two lines; None if they do.

    >>> disagreement("loss 1.57 after 20 steps", "loss 1.58 after 20 steps")
    >>> disagreement("loss 1.57 after 20 steps", "loss 1.57 after 21 steps")
    "line 1: committed 'loss 1.57 after 20 steps', now 'loss 1.57 after 21 steps'"
    """
    if want == got:
        return None
    packed = [PACKED.findall(text) for text in (want, got)]
    if len(packed[0]) != len(packed[1]) or not all(map(packed_near, *packed)):
        return "the packed weights of a picture differ by more than one level of 256"
    want, got = (named(PACKED.sub(HOLE, text)) for text in (want, got))
    lines = [text.split("\n") for text in (want, got)]
    for place, (old, new) in enumerate(zip(*lines), start=1):
        (words, numbers), (new_words, new_numbers) = without_numbers(old), without_numbers(new)
        if words != new_words:
            return f"line {place}: committed {around(old, new)}, now {around(new, old)}"
        for a, b in zip(numbers, new_numbers):
            if not near(a, b):
                return f"line {place}: committed {a}, now {b}, in {around(old, new)}"
    if len(lines[0]) != len(lines[1]):
        return f"committed {len(lines[0])} lines, now {len(lines[1])}"
    return None


def around(line: str, other: str, width: int = 160) -> str:
    """The line or, if it is long, the part around the first character in which it differs from the other."""
    if len(line) <= width:
        return repr(line)
    first = next((i for i, (a, b) in enumerate(zip(line, other)) if a != b), min(len(line), len(other)))
    return "…" + repr(line[max(0, first - width // 2) : first + width // 2]) + "…"


def texts(outputs: Iterable[Any]) -> dict[str, list[str]]:
    """What a cell has printed, as {"stdout" or a kind of data: texts in order}. What naturally differs from run to run is left out."""
    found: dict[str, list[str]] = {}
    for output in outputs:
        if output["output_type"] == "stream":
            if text := ONE_PYTHON.sub("", joined(output["text"])):
                found[output["name"]] = ["".join(found.get(output["name"], [])) + text]
            continue
        for key, value in {**output, **output.get("data", {})}.items():
            if key not in SILENT | PICTURES | {"data", WIDGET}:
                found.setdefault(key, []).append(joined(value))
    return found


def joined(value: Any) -> str:
    return "".join(value) if isinstance(value, list) else str(value)


def differences(want: Iterable[Any], got: Iterable[Any]) -> list[str]:
    """Where two lists of outputs of one cell disagree; empty when they agree. Pictures are not compared, nor are widgets."""
    before, now, found = texts(want), texts(got), []
    for key in before.keys() | now.keys():
        old, new = before.get(key, []), now.get(key, [])
        if len(old) != len(new):
            found.append(f"{key}: committed {len(old)} outputs, now {len(new)}: {[text[:200] for text in (new or old)]}")
        found += [f"{key}: {said}" for said in map(disagreement, old, new) if said]
    return found


def same_picture(one: str, other: str) -> bool:
    """Whether two pictures in base64 show the same: they have one size, and no pixel differs by more than the edges of letters and lines vary."""
    a, b = (np.asarray(Image.open(io.BytesIO(base64.b64decode(text))).convert("RGBA"), dtype=int) for text in (one, other))
    return a.shape == b.shape and bool((abs(a - b) <= LEVELS).all())


def kept(old: list[Any], new: list[Any], measured: bool = False) -> list[Any]:
    """The new outputs, with the committed text or picture in each place where the two agree: so a run on another machine changes nothing.

    measured: the numbers are a measurement of the machine, or of a model trained on it; the committed outputs stay as they are if their kinds
    are the same.
    """
    if measured and [sorted(output.get("data", {})) for output in old] == [sorted(output.get("data", {})) for output in new] and old:
        return old
    if len(old) != len(new):
        return new
    for before, after in zip(old, new):
        if before["output_type"] != after["output_type"]:
            continue
        if "text" in after and disagreement(joined(before["text"]), joined(after["text"])) is None:
            after["text"] = before["text"]
        for kind, value in after.get("data", {}).items():
            earlier = before.get("data", {}).get(kind)
            if earlier is None:
                continue
            agree = same_picture(earlier, value) if kind == "image/png" else disagreement(joined(earlier), joined(value)) is None
            if agree:
                after["data"][kind] = earlier
    return new

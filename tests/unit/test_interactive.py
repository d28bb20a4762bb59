"""The small interactive pictures, Python's side: what the page is given, what is refused, what a reader without scripts sees."""

import json
import random
import re
import subprocess
import sys
from html.parser import HTMLParser

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from merging import merged

from tlm_book.training import shipped
from tlm_book.viewer import (
    clock_hands,
    descent,
    epsilon_spread,
    merge_stepper,
    playground,
    sampling,
    softmax_temperature,
    style,
)
from tlm_book.viewer.base import number
from tlm_book.viewer.descent.view import RULES, SHAPES, SURFACES, path

HOSTILE = ["</script><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "<!--", "\u202eabc", "\u200d", " a\n\t", "&amp;", "$x$",
           "\ud800", "x" * 5000, "👩\u200d👧", "'", "אבג", "${alert(2)}", "`"]  # fmt: skip

STATES, COUNTS = merged([bytes([b]) for b in "the théâtre and the theatre".encode()], 6)
SCORES = {d: np.random.default_rng(d).normal(size=(8, d)) @ np.ones(d) for d in (1, 4, 16, 64, 256)}
PICTURES = {
    "merges": lambda: merge_stepper(STATES, counts=COUNTS, ranks=range(256, 262), title="Merges"),
    "clocks": lambda: clock_hands(8),
    "temperature": lambda: softmax_temperature([2, 1, 0.5, -1], labels=["mat", "rug", "dog", "the"]),
    "widths": lambda: softmax_temperature(SCORES, width=64),
    "epsilon": lambda: epsilon_spread(1e-6, sigma=1e-4),
    "descent": lambda: descent("bent valley", "momentum", rate=0.02),
    "sampling": lambda: sampling(np.arange(40) / 7, [f"t{j}" for j in range(40)], top_k=20, title="Next"),
}
every_picture = pytest.mark.parametrize("picture", PICTURES.values(), ids=PICTURES)


def state_of(view) -> dict:
    return json.loads(re.search(r"const state = (\{.*\}), hear", view.to_html()).group(1))


class Tags(HTMLParser):
    """Elements opened and not closed, and all attributes' names."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.seen, self.attributes = [], set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attributes}

    def handle_startendtag(self, tag, attributes):
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attributes}

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@every_picture
def test_each_picture_is_drawn_into_a_file(picture, tmp_path):
    view = picture()
    drawn = view.save(tmp_path / "a.svg").read_text(encoding="utf-8")
    assert drawn.startswith("<?xml") and view.save(tmp_path / "b.svg").read_text(encoding="utf-8") == drawn
    assert view.save(tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    choice = next(name for name in ("step", "position", "temperature", "epsilon", "rate", "width") if name in view.traits(picture=True))
    if getattr(view, "width", 0):
        choice = "width"
    setattr(view, choice, {"step": 3, "position": 9, "temperature": 0.5, "epsilon": 0.01, "rate": 0.05, "width": 4}[choice])
    assert view.save(tmp_path / "c.svg").read_text(encoding="utf-8") != drawn  # what it shows now


def lines_of(view) -> list[np.ndarray]:
    """The points of each line drawn, one row for each."""
    return [line.get_xydata() for line in view._figure().axes[0].lines]


@pytest.mark.parametrize("position, offset", [(3, 4), (0, -2), (50, -50)])
def test_the_hands_that_are_drawn_point_where_the_positions_do(position, offset):
    view = clock_hands(20, position=position, offset=offset)  # ten clocks: two lines of them
    lines = lines_of(view)
    assert len(lines) == 3 * 10
    for i, w in enumerate(view.data["omega"]):
        circle, *hands = lines[3 * i : 3 * i + 3]
        for (root, tip), p in zip(hands, (position, position + offset)):
            assert np.allclose(root, circle[:-1].mean(0)) and np.allclose((tip - root) / np.hypot(*(tip - root)), [np.sin(p * w), np.cos(p * w)])
            assert np.hypot(*(tip - root)) < np.hypot(*(circle[0] - root))
    middles = [line[:-1].mean(0) for line in lines[::3]]
    assert min(np.hypot(*(a - b)) for k, a in enumerate(middles) for b in middles[:k]) > 2  # none lies on another
    assert [text.get_text() for text in view._figure().legends[0].get_texts()] == [f"at {position}", f"at {position + offset}"]


def test_tokens_are_drawn_line_by_line_and_the_pair_is_marked():
    texts = [f"word{i}" for i in range(30)]
    view = merge_stepper([texts, [*texts[:28], "word28word29"]])
    axes = view._figure().axes[0]
    assert [text.get_text() for text in axes.texts] == texts
    boxes = [(-round(box.get_y(), 6), box.get_x(), box.get_x() + box.get_width()) for box in axes.patches]
    assert boxes == sorted(boxes) and len({y for y, _, _ in boxes}) == 4  # read from left to right, then down
    assert all(right < left for (y, _, right), (below, left, _) in zip(boxes, boxes[1:]) if y == below)
    assert all(0 <= left and right <= axes.get_xlim()[1] for _, left, right in boxes)
    assert [i for i, box in enumerate(axes.patches) if to_hex(box.get_facecolor()) == style.ORANGE] == [28, 29]


def test_bars_curves_and_paths_are_drawn_as_they_are():
    before = np.array([0.5, 0.25, 0.125, 0.125])
    axes = sampling(np.log(before), list("abcd"), top_k=2, shown=3)._figure().axes[0]
    widths = [bar.get_width() for bar in axes.patches]
    assert np.allclose(widths, [0.5, 0.25, 0.125, 0.125, 2 / 3, 1 / 3, 0, 0], atol=1e-4)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b", "c", "the others"]
    assert axes.get_legend().get_texts()[0].get_text() == "the model's probability"
    axes = softmax_temperature({1: [1.0, 0.0], 4: [2.0, 0.0]}, width=4)._figure().axes[0]
    e, f = np.exp(2), np.exp(1)
    assert np.allclose([bar.get_width() for bar in axes.patches], [e / (e + 1), 1 / (e + 1), f / (f + 1), 1 / (f + 1)])
    outside, inside, mark = lines_of(epsilon_spread(1e-4, sigma=1e-2))
    assert np.allclose(outside[:, 1], outside[:, 0] / (outside[:, 0] + 1e-4)) and np.allclose(inside[:, 1], inside[:, 0] / np.sqrt(inside[:, 0] ** 2 + 1e-4))
    assert (mark[:, 0] == 1e-2).all()
    view = descent("bent valley", "momentum", rate=0.02)
    walked, begin = lines_of(view)
    assert np.allclose(walked, path("bent valley", "momentum", 0.02, 0.9, 30, (-2.5, 1.0))) and np.allclose(begin, [[-2.5, 1.0]])
    for height, ring in zip((0.1, 0.5, 1.5, 3.5, 7.0, 13.0, 22.0, 35.0), view._figure().axes[0].patches, strict=True):
        assert np.allclose([SHAPES["bent valley"][0](x, y) for x, y in ring.get_xy()], height)


def test_a_playground_says_that_it_has_no_drawing(tmp_path):
    view = playground(*shipped())
    with pytest.raises(ValueError, match=r"file: got '.*a.svg', want a name that ends in .html or .json: this picture is computed on its page, and has no drawing$"):
        view.save(tmp_path / "a.svg")


@every_picture
def test_page_is_self_contained_small_and_well_formed(picture):
    bundle = picture()._repr_mimebundle_()[0]
    html = bundle["text/html"]
    assert html == picture().to_html()
    assert len(html.encode()) < 25_000
    assert not re.search(r"https?:(?!//www\.w3\.org/2000/svg)|//cdn|@import|\bimport\s|\bfetch\(|XMLHttpRequest|url\(|innerHTML|eval\(", html)
    tags = Tags(html)
    assert tags.open == [] and "table" in tags.seen
    assert not any(name.startswith("on") for name in tags.attributes)
    assert "0x" not in bundle["text/plain"] and bundle["text/plain"] == repr(picture())


@every_picture
def test_still_picture_stands_before_the_script(picture):
    still = picture().to_html().split("<script")[0]
    assert "<caption>" in still and "With scripts this is an interactive picture." in still


def test_same_bytes_in_fresh_processes():
    script = (
        "import sys\nfrom tlm_book.viewer import *\n"
        "for v in (merge_stepper([['a', 'b'], ['ab']]), clock_hands(), softmax_temperature([1., 2.]), epsilon_spread(), descent(), sampling([1., 2.], 'ab'.split('x') * 2)):\n"
        "    print(v.to_html(), v)\n"
        "assert 'torch' not in sys.modules, 'the pictures must not load torch'"
    )
    runs = {subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout for _ in range(2)}
    assert len(runs) == 1 and b"<merge stepper: 2 tokens become 1 in 1 merges; step 0>" in runs.pop()


def test_hostile_strings_stay_text():
    merges = [HOSTILE, [HOSTILE[0] + HOSTILE[1], *HOSTILE[2:]]]
    for view in (
        merge_stepper(merges, title=HOSTILE[0]), softmax_temperature(range(len(HOSTILE)), labels=HOSTILE, title=HOSTILE[1]),
        sampling(range(len(HOSTILE)), HOSTILE, title=HOSTILE[0]), clock_hands(title=HOSTILE[0]), epsilon_spread(title=HOSTILE[8] + HOSTILE[3]), descent(title=HOSTILE[0]),
    ):  # fmt: skip
        html = view.to_html()
        assert html.count("<script") == html.count("</script") == 1
        assert "<img" not in html and "<!--" not in html
        assert len(html) < 40_000  # a token of 5,000 characters is cut
        html.encode()  # no lone surrogate is left
        assert Tags(html).open == []
    names = state_of(merge_stepper(merges))["data"]["names"]
    assert names[0] == HOSTILE[0] and names[3] == "‹202E›abc" and names[5] == "␣a⏎⇥" and names[8] == "‹D800›"


# ---- merges -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_merges_are_found_in_the_states(seed):
    rng = random.Random(seed)
    states, _ = merged(rng.choices("ab" if seed % 2 else "abcé", k=rng.randrange(2, 40)), rng.randrange(1, 8))
    view = merge_stepper(states)
    names = view.data["names"]
    assert [[names[t] for t in state] for state in view._states()] == states
    for before, merge in zip(states, view.data["merges"]):
        a, b = (names[t] for t in merge["pair"])
        assert names[merge["token"]] == a + b and all(before[i : i + 2] == [a, b] for i in merge["at"])


def test_bytes_are_shown_as_text_where_they_are_text():
    e = "é".encode()
    names = merge_stepper([[b"a", e[:1], e[1:]], [b"a", e]]).data["names"]
    assert names == ["a", "‹C3›", "‹A9›", "é"]


def test_one_state_is_a_picture_without_merges():
    assert repr(merge_stepper([["a", "b"]])) == "<merge stepper: 2 tokens become 2 in 0 merges; step 0>"


def test_still_merges_name_every_step():
    still = merge_stepper([["a", "a", "<", "a", "a"], ["aa", "<", "aa"], ["aa<", "aa"]]).to_html().split("<script")[0]
    assert "<td style=\"overflow-wrap: anywhere\">aa + &lt;</td>" in still and "aa&lt; · aa" in still


# ---- the numbers that the page is given ---------------------------------------------------------------------------------


def test_frequencies_and_still_hands():
    view = clock_hands(6, position=3, offset=4)
    omega = 10000.0 ** (-np.arange(3) / 3)
    assert np.abs(np.array(view.data["omega"]) / omega - 1).max() < 1e-14
    table = view.to_html().split("<script")[0]
    for w in omega:
        for t in (3, 7):
            assert f"{np.sin(t * w):.3f}, {np.cos(t * w):.3f}".replace("-", "−") in table


@pytest.mark.parametrize("scores", [[0.5, -2, 3], np.array([0.5, -2, 3], np.float32), torch.tensor([0.5, -2, 3], dtype=torch.bfloat16), range(3)])
def test_scores_of_any_kind(scores):
    view = softmax_temperature(scores)
    assert view.data["scores"] == [[0, [0, 1, 2] if isinstance(scores, range) else [0.5, -2, 3]]]


def test_scores_keep_nine_digits_and_widths_are_sorted():
    view = softmax_temperature({64: [1 / 3, 12345.678901234], 2: [0, 1e-20]}, width=64)
    assert view.data["scores"] == [[2, [0, 1e-20]], [64, [0.333333333, 12345.6789]]] and view.width == 64


def test_still_weights_are_softmax():
    still = softmax_temperature([2.0, 1.0, -1.0], temperature=0.5).to_html().split("<script")[0]
    for tau in (1, 0.5):
        e = np.exp(np.array([2, 1, -1]) / tau)
        assert all(f"{w:.3f}" in still for w in e / e.sum())


def test_still_spread():
    still = epsilon_spread(1e-4, sigma=1e-2).to_html().split("<script")[0]
    assert f"{1e-2 / (1e-2 + 1e-4):.6f}" in still and f"{1e-2 / np.sqrt(2e-4):.6f}" in still and "0.500000" in still


@pytest.mark.parametrize("surface", SURFACES)
def test_slopes_and_level_curves_belong_to_the_surface(surface):
    f, slope, level = SHAPES[surface]
    for c, angle in ((0.5, 0.3), (3.0, 2.0), (20.0, 5.5)):
        x, y = level(c, angle)
        assert abs(f(x, y) - c) < 1e-9
        by_difference = (f(x + 1e-6, y) - f(x - 1e-6, y)) / 2e-6, (f(x, y + 1e-6) - f(x, y - 1e-6)) / 2e-6
        assert np.allclose(slope(x, y), by_difference, atol=1e-5)


@pytest.mark.parametrize("rule", RULES)
def test_paths_are_those_of_torch(rule):
    w = torch.nn.Parameter(torch.tensor([-2.5, 1.0], dtype=torch.float64))
    make = {"gradient descent": lambda: torch.optim.SGD([w], 0.02), "momentum": lambda: torch.optim.SGD([w], 0.02, 0.8),
            "Adam": lambda: torch.optim.Adam([w], 0.02, (0.8, 0.99))}  # fmt: skip
    optimizer = make[rule]()
    for point in path("bent valley", rule, 0.02, 0.8, 50, (-2.5, 1.0)):
        assert np.allclose(w.detach(), point, atol=1e-9)
        optimizer.zero_grad()
        SHAPES["bent valley"][0](*w).backward()
        optimizer.step()


@pytest.mark.parametrize("z", [[0.5, -2, 3, -1], np.array([0.5, -2, 3, -1], np.float32), torch.tensor([0.5, -2, 3, -1], dtype=torch.bfloat16)])
def test_tokens_to_draw_from_stand_in_the_order_of_their_scores(z):
    view = sampling(z, list("abcd"))
    assert view.data["tokens"] == ["c", "a", "d", "b"] and view.data["scores"] == [0, -2.5, -4, -5] and view.top_k == 4
    assert sampling([1, 2, 2, 2], list("abcd"), shown=2).data["tokens"] == ["b", "c", "d", "a"]


def test_probabilities_to_draw_from_lose_what_is_impossible():
    p = np.array([0.5, 0, 0.125, 0.375])
    view = sampling(p, list("abcd"), probabilities=True)
    assert view.data["tokens"] == ["a", "d", "c"]
    assert np.abs(np.exp(view.data["scores"]) / np.exp(view.data["scores"]).sum() / [0.5, 0.375, 0.125] - 1).max() < 1e-4
    assert repr(view) == "<sampling from 3 tokens: temperature 1, top_k 3, top_p 1; 0 drawn>"


@pytest.mark.parametrize("k, p, kept", [(5, 1.0, 5), (2, 1.0, 2), (5, 0.49, 1), (5, 0.51, 2), (2, 0.7, 2), (2, 0.6, 1), (5, 0.01, 1)])
def test_still_sampling_cuts_where_it_should(k, p, kept):
    before = np.array([0.5, 0.24, 0.13, 0.07, 0.06])
    view = sampling(np.log(before), list("abcde"), top_k=k, top_p=p)
    after = before * (np.arange(5) < kept) / before[:kept].sum()
    still = view.to_html().split("<script")[0]
    rows = [re.findall(r"\d\.\d{3}", row) for row in re.findall("<tr>.*?</tr>", still)[1:]]
    assert [row[:2] for row in rows] == [[f"{a:.3f}", f"{b:.3f}"] for a, b in zip(view_before(view), after)]


def view_before(view):
    e = np.exp(view.data["scores"])
    return e / e.sum()


@pytest.mark.parametrize("x, shown", [(999.9, "1000"), (0.000123456, "1.23 × 10⁻⁴"), (0.0099999, "0.0100"), (-1e5, "−1.00 × 10⁵"), (7, "7.00")])
def test_numbers_for_reading(x, shown):
    assert number(x) == shown


# ---- choices ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("picture, name, good, bad, error", [
    (lambda: merge_stepper([["a", "b"], ["ab"]]), "step", 1, 2, IndexError),
    (lambda: clock_hands(), "position", 100, 101, IndexError),
    (lambda: clock_hands(), "offset", -50, -51, IndexError),
    (lambda: softmax_temperature([1.0]), "temperature", 0.25, 0.0, ValueError),
    (lambda: softmax_temperature({1: [1.0], 4: [2.0]}), "width", 4, 2, ValueError),
    (lambda: softmax_temperature([1.0]), "width", 0, 2, ValueError),
    (lambda: epsilon_spread(), "epsilon", 0.5, 2.0, ValueError),
    (lambda: sampling([1.0, 2.0], ["a", "b"]), "temperature", 0.5, 0.05, ValueError),
    (lambda: sampling([1.0, 2.0], ["a", "b"]), "top_k", 1, 3, ValueError),
    (lambda: sampling([1.0, 2.0], ["a", "b"]), "top_p", 0.5, 1.5, ValueError),
    (lambda: sampling([1.0, 2.0], ["a", "b"]), "draws", 100000, 100001, ValueError),
    (lambda: epsilon_spread(), "sigma", 0.5, 0.0, ValueError),
    (lambda: descent(), "rate", 0.5, 2.0, ValueError),
    (lambda: descent(), "beta", 0.5, 1.0, ValueError),
    (lambda: descent(), "steps", 200, 201, ValueError),
    (lambda: descent(), "x", -3.0, -3.5, ValueError),
    (lambda: descent(), "y", 2.0, 2.5, ValueError),
])  # fmt: skip
def test_choices_may_be_set_and_watched_and_the_page_follows(picture, name, good, bad, error):
    view, seen = picture(), []
    view.observe(lambda change: seen.append(change["new"]), names=[name])
    before = getattr(view, name)
    setattr(view, name, good)
    assert seen == ([good] if good != before else []) and state_of(view)[name] == good
    with pytest.raises(error, match=f"^{name}: got {re.escape(str(bad))}, want "):
        setattr(view, name, bad)
    assert getattr(view, name) == good and name in view._repr_mimebundle_()[0]["text/html"]


BAD = [
    (TypeError, "states: got str, want", lambda: merge_stepper("ab")),
    (TypeError, "states: got str at 0, want", lambda: merge_stepper(["ab"])),
    (TypeError, "states: got a token of type bytes at state 1, want all str or all bytes", lambda: merge_stepper([["a", "b"], [b"ab"]])),
    (ValueError, "states: got no state, want at least one", lambda: merge_stepper([])),
    (ValueError, "states: got 0 tokens at state 0", lambda: merge_stepper([[]])),
    (ValueError, "states: got 401 tokens at state 0", lambda: merge_stepper([["a"] * 401])),
    (ValueError, "states: got an empty token at state 0", lambda: merge_stepper([["a", ""]])),
    (ValueError, "states: got 'ac' in state 1, want the tokens", lambda: merge_stepper([["a", "b"], ["ac"]])),
    (ValueError, "states: got state 1 without the last 1 tokens", lambda: merge_stepper([["a", "b", "c"], ["ab"]])),
    (ValueError, "states: got 'd' in state 1", lambda: merge_stepper([["a", "b"], ["ab", "d"]])),
    (ValueError, "states: got 0 pairs fused in state 1", lambda: merge_stepper([["a", "b"], ["a", "b"]])),
    (ValueError, "states: got 2 pairs fused in state 1", lambda: merge_stepper([list("abcd"), ["ab", "cd"]])),
    (ValueError, "states: got 'abc' in state 1", lambda: merge_stepper([list("abc"), ["abc"]])),
    (ValueError, "ranks: got 2 numbers, want 1", lambda: merge_stepper([["a", "b"], ["ab"]], ranks=[1, 2])),
    (ValueError, "ranks: got -1, want a number ≥ 0", lambda: merge_stepper([["a", "b"], ["ab"]], ranks=[-1])),
    (ValueError, "d_model: got 7, want an even number", lambda: clock_hands(7)),
    (ValueError, "d_model: got 66, want a whole number from 2 to 64", lambda: clock_hands(66)),
    (ValueError, "position: got -1, want", lambda: clock_hands(position=-1)),
    (ValueError, "offset: got 51, want", lambda: clock_hands(offset=51)),
    (ValueError, "max_offset: got 0, want", lambda: clock_hands(max_offset=0)),
    (ValueError, "base: got 1, want a number greater than 1", lambda: clock_hands(base=1)),
    (ValueError, "base: got nan, want", lambda: clock_hands(base=float("nan"))),
    (ValueError, "scores: got shape (), want", lambda: softmax_temperature(1.0)),
    (ValueError, "scores: got shape (0,), want", lambda: softmax_temperature(np.zeros(0))),
    (ValueError, "scores: got shape (65,), want", lambda: softmax_temperature(np.zeros(65))),
    (ValueError, "scores: got no array", lambda: softmax_temperature([[1], [1, 2]])),
    (ValueError, "scores: got numbers that are not finite", lambda: softmax_temperature([1.0, float("nan")])),
    (TypeError, "scores: got list of dtype <U1, want real numbers", lambda: softmax_temperature(["a"])),
    (ValueError, "scores: got 0 widths, want", lambda: softmax_temperature({})),
    (ValueError, "scores: a width: got 0, want", lambda: softmax_temperature({0: [1.0]})),
    (ValueError, "scores: got 1 numbers for width 4, want 2, as for width 1", lambda: softmax_temperature({1: [1.0, 2.0], 4: [1.0]})),
    (ValueError, "width: got 3, want one of [1, 4]", lambda: softmax_temperature({1: [1.0], 4: [1.0]}, width=3)),
    (ValueError, "width: got 3, want none", lambda: softmax_temperature([1.0], width=3)),
    (ValueError, "labels: got 1 names, want 2", lambda: softmax_temperature([1.0, 2.0], labels=["a"])),
    (TypeError, "labels: got a single str", lambda: softmax_temperature([1.0], labels="a")),
    (ValueError, "temperature: got 0, want a number from 0.01 to 100.0", lambda: softmax_temperature([1.0], temperature=0)),
    (ValueError, "epsilon: got 0, want a number from 1e-12 to 1.0", lambda: epsilon_spread(0)),
    (ValueError, "scores: got shape (2, 2), want from 1 to 4096 numbers", lambda: sampling(np.eye(2), ["a", "b"])),
    (ValueError, "scores: got shape (4097,), want", lambda: sampling(np.zeros(4097), ["a"])),
    (ValueError, "scores: got numbers that are not finite", lambda: sampling([float("inf")], ["a"])),
    (ValueError, "scores: got probabilities below 0", lambda: sampling([0.5, -0.1], ["a", "b"], probabilities=True)),
    (ValueError, "scores: got probabilities below 0 or all 0", lambda: sampling([0.0], ["a"], probabilities=True)),
    (ValueError, "scores: got no array", lambda: sampling([[1], [1, 2]], ["a", "b"])),
    (TypeError, "scores: got list of dtype <U1, want real numbers", lambda: sampling(["a"], ["a"])),
    (ValueError, "tokens: got 1 of them, want 2, one for each score", lambda: sampling([1.0, 2.0], ["a"])),
    (ValueError, "temperature: got 0.0, want a number from 0.1 to 10.0", lambda: sampling([1.0], ["a"], temperature=0.0)),
    (ValueError, "top_k: got 0, want a whole number from 1 to 1", lambda: sampling([1.0], ["a"], top_k=0)),
    (ValueError, "top_k: got 2, want", lambda: sampling([1.0, 0.0], ["a", "b"], top_k=2, probabilities=True)),
    (ValueError, "top_p: got 0, want a number from 0.01 to 1.0", lambda: sampling([1.0], ["a"], top_p=0)),
    (ValueError, "seed: got 4294967296, want", lambda: sampling([1.0], ["a"], seed=2**32)),
    (ValueError, "shown: got 0, want a whole number from 1 to 64", lambda: sampling([1.0], ["a"], shown=0)),
    (TypeError, "epsilon: got True, want a number", lambda: epsilon_spread(True)),
    (ValueError, "sigma: got inf, want", lambda: epsilon_spread(sigma=float("inf"))),
    (ValueError, "surface: got 'hill', want one of 'valley'", lambda: descent("hill")),
    (ValueError, "rule: got 'adam', want one of 'gradient descent'", lambda: descent(rule="adam")),
    (ValueError, "rate: got 0, want a number from 0.001 to 1.0", lambda: descent(rate=0)),
    (ValueError, "beta: got 1, want", lambda: descent(beta=1)),
    (ValueError, "start: got 5, want a number from -3.0 to 3.0", lambda: descent(start=(5, 0))),
]


@pytest.mark.parametrize("error, message, call", BAD, ids=[message for _, message, _ in BAD])
def test_bad_input_is_named(error, message, call):
    """What the runtime checker would refuse first stands in `bad_inputs.py`."""
    with pytest.raises(error, match=re.escape(message)):
        call()


def test_tokens_that_reach_the_share_exactly_are_enough():
    view = sampling([0.0, 0.0], ["a", "b"], top_p=0.5)
    assert [[bar.get_width() for bar in group] for group in view._figure().axes[0].containers] == [[0.5, 0.5], [1.0, 0.0]]


@pytest.mark.parametrize("tau", [0.1, 1.0, 10.0])
def test_the_rounding_of_scores_is_as_large_as_is_said(tau):
    z = np.sort(np.random.default_rng(0).normal(size=(100, 5)))[:, ::-1]
    held = np.array([sampling(row, list("abcde"), temperature=tau).data["scores"] for row in z])
    p, q = (np.exp(s / tau) / np.exp(s / tau).sum(-1, keepdims=True) for s in (z, held))
    off = np.abs(np.log(p / q)).max()
    assert 2e-5 / tau < off < 1e-4 / tau


def test_equally_likely_tokens_keep_their_order():
    scores = [k % 3 for k in range(300)]
    view = sampling(scores, [str(k) for k in range(300)])
    assert view.data["tokens"] == sorted(map(str, range(300)), key=lambda name: (-(int(name) % 3), int(name)))


@every_picture
def test_a_drawing_leaves_the_settings_of_matplotlib(picture, tmp_path):
    with matplotlib.rc_context({"font.size": 3.25, "axes.grid": True, "image.cmap": "gray"}):
        before = dict(matplotlib.rcParams)
        picture().save(tmp_path / "a.svg")
        assert dict(matplotlib.rcParams) == before

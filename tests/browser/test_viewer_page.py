"""The interactive picture in a real browser: a page from a file, no kernel, no network."""

import csv
import io
import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from tlm_book.viewer import attention, style

TOKENS = "the cat sat on the mat".split()
CELL = "{} ({}) → {} ({}): {} ± 0.002"


def weights() -> np.ndarray:
    """Two layers of two heads: uniform; previous token; first token; itself."""
    n = len(TOKENS)
    A = np.zeros((2, 2, n, n))
    A[0, 0] = np.tril(np.ones((n, n))) / np.arange(1, n + 1)[:, None]
    A[0, 1] = np.eye(n, k=-1)
    A[0, 1, 0, 0] = 1
    A[1, 0, :, 0] = 1
    A[1, 1] = np.eye(n)
    return A


def said(page) -> str:
    return page.locator(".said").inner_text()


def cell(page, i: int, j: int, n: int = 6) -> dict:
    box = page.locator(".cells").first.bounding_box()
    return {"x": box["width"] * (j + 0.5) / n, "y": box["height"] * (i + 0.5) / n}


def test_pointer_marks_a_cell_and_a_click_keeps_it(show):
    page = show(attention(TOKENS, weights()).to_html())
    assert said(page).startswith("mat (5) attends most to the (0) 0.165")
    cells = page.locator(".cells")
    cells.hover(position=cell(page, 3, 1))
    assert said(page) == CELL.format("on", 3, "cat", 1, "0.251")
    assert page.locator(".rows .on").inner_text() == "on" and page.locator(".columns .on").inner_text() == "cat"
    cells.hover(position=cell(page, 1, 4))
    assert said(page) == "cat (1) → the (4): masked"
    cells.click(position=cell(page, 2, 0))
    page.mouse.move(1, 1)
    assert said(page) == CELL.format("sat", 2, "the", 0, "0.333")
    page.keyboard.press("Escape")
    assert said(page).startswith("mat (5)")


def test_heads_by_click_arrow_and_menu(show):
    page = show(attention(TOKENS, weights()).to_html())
    thumbs = page.locator(".heads button")
    assert thumbs.count() == 4
    thumbs.nth(1).click()
    assert said(page) == "mat (5) attends most to the (4) 1.000 ± 0.002"
    assert thumbs.nth(1).get_attribute("aria-checked") == "true"
    page.keyboard.press("ArrowDown")
    assert said(page) == "mat (5) attends most to mat (5) 1.000 ± 0.002"
    page.keyboard.press("ArrowLeft")
    assert said(page) == "mat (5) attends most to the (0) 1.000 ± 0.002"
    assert page.evaluate("document.querySelector('[data-tlm-attention]').firstChild.shadowRoot.activeElement.ariaLabel") == "block 1, head 0: entropy 0.00 nats, mean distance 2.50 tokens"
    page.get_by_label("block", exact=True).select_option("0")
    assert said(page).startswith("mat (5) attends most to the (0) 0.165")


def test_matrix_by_keyboard_alone(show):
    page = show(attention(TOKENS, weights()).to_html())
    for _ in range(6):  # the heads are one stop; then four menus
        page.keyboard.press("Tab")
    focused = "document.querySelector('[data-tlm-attention]').firstChild.shadowRoot.activeElement"
    assert page.evaluate(f"{focused}.className") == "cells"
    assert page.evaluate(f"getComputedStyle({focused}).outlineStyle") == "solid"
    page.keyboard.press("ArrowUp")
    assert said(page) == CELL.format("the", 4, "mat", 5, "x").replace(": x ± 0.002", ": masked")
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    assert said(page) == CELL.format("the", 4, "sat", 2, "0.200")
    page.keyboard.press("Home")
    assert said(page) == CELL.format("the", 4, "the", 0, "0.200")
    page.keyboard.press("Tab")  # the text
    page.keyboard.press("ArrowLeft")
    assert said(page).startswith("on (3) attends most to the (0) 0.251")


def test_text_is_shaded_by_the_marked_token(show):
    page = show(attention(TOKENS, weights()).to_html())
    page.locator(".heads button").nth(1).click()
    tokens = page.locator(".text span")
    tokens.nth(3).hover()
    fills = tokens.evaluate_all("nodes => nodes.map(node => node.style.backgroundColor)")
    assert fills[2] == "rgb(29, 38, 87)" and fills[0] == fills[1] == fills[3] == "rgb(246, 251, 253)"
    assert fills[4] == fills[5] == "" and "hatch" in tokens.nth(5).get_attribute("class")
    tokens.nth(3).click()
    page.mouse.move(1, 1)
    assert "pinned" in tokens.nth(3).get_attribute("class") and said(page).startswith("on (3) attends most to sat (2)")
    page.locator(".columns .name").nth(0).hover()  # a column alone: who attends to it
    assert said(page).startswith("the (0) is attended to most by the (0) 1.000, cat (1) 1.000")


def test_cross_attention_has_two_lines(show):
    A = np.array([[0.9, 0.1, 0, 0], [0.2, 0.3, 0.5, 0]])
    page = show(attention(["I", "am"], A, columns=["je", "suis", "étudiant", "."]).to_html())
    assert page.locator(".text").count() == 2 and page.locator(".heads").count() == 0
    page.locator(".text").nth(1).locator("span").nth(1).hover()
    assert said(page) == "suis (1) is attended to most by am (1) 0.298, I (0) 0.102 ± 0.002"
    page.locator(".text").nth(0).locator("span").nth(0).hover()
    assert said(page) == "I (0) attends most to je (0) 0.902, suis (1) 0.102 ± 0.002"


def test_hostile_tokens_do_not_run(show):
    tokens = ["</script><script>alert(1)</script>", "<img src=x onerror=alert(2)>", '"><svg onload=alert(3)>', "\u202eright",
              "אבג", "\u200d", " ", "\n", "", "x" * 5000, "&lt;b&gt;", "👩\u200d👧"]  # fmt: skip
    A = np.eye(len(tokens))
    page = show(attention(tokens, A, title="<img src=x onerror=alert(4)>").to_html(), viewport={"width": 390, "height": 800})
    shown = page.locator(".text span").all_inner_texts()
    assert shown[:3] == [token.replace(" ", "␣") for token in tokens[:3]] and shown[5:9] == ["‹200D›", "␣", "⏎", "∅"] and shown[10:] == tokens[10:]
    for k in range(len(tokens)):
        page.locator(".text span").nth(k).hover()
    assert page.locator("img, svg").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("n, layers, heads", [(1, 1, 1), (2, 1, 2), (24, 2, 4), (256, 2, 12)])
@pytest.mark.parametrize("width", [390, pytest.param(820, marks=pytest.mark.long), 1400])
def test_fits_every_width_and_length(show, n, layers, heads, width):
    A = np.broadcast_to(np.tril(np.ones((n, n))) / np.arange(1, n + 1)[:, None], (layers, heads, n, n))
    page = show(attention([f"token{i}" for i in range(n)], A).to_html(), viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    box = page.locator(".cells").bounding_box()
    assert box["width"] > 20 and box["x"] + box["width"] <= width
    page.locator(".cells").hover(position={"x": 1, "y": box["height"] - 1})
    assert said(page).startswith(f"token{n - 1} ({n - 1}) → token0 (0): {round(255 / n) / 255:.3f}")


def test_touch_marks_and_stays(show):
    page = show(attention(TOKENS, weights()).to_html(), has_touch=True, is_mobile=True, viewport={"width": 390, "height": 800})
    page.locator(".cells").tap(position=cell(page, 3, 1))
    assert said(page) == CELL.format("on", 3, "cat", 1, "0.251")
    page.locator(".text span").nth(1).tap()
    assert said(page).startswith("cat (1) attends most to")


def test_dark_theme_follows_the_page(show):
    page = show(attention(TOKENS, weights()).to_html(), theme="dark")
    corner = "document.querySelector('[data-tlm-attention]').firstChild.shadowRoot.querySelector('.cells .back')" \
        ".getContext('2d').getImageData(4, 4, 1, 1).data.slice(0, 3).join()"  # fmt: skip
    assert page.locator(".all.dark").count() == 1
    dark = page.evaluate(corner)
    page.evaluate("document.documentElement.dataset.theme = 'light'")
    page.wait_for_function("!document.querySelector('[data-tlm-attention]').firstChild.shadowRoot.querySelector('.dark')")
    assert (dark, page.evaluate(corner)) == ("204,253,255", "29,38,87")


def test_ground_behind_the_picture_decides(show):
    html = attention(TOKENS, weights()).to_html()
    box = f'<div class="BOX"><div class="text_html" style="background: #eee; padding: 9px">{html}</div></div>'
    page = show(box.replace("BOX", "cell_output"), theme="dark")  # a Sphinx theme's light box is taken away
    assert page.locator(".all.dark").count() == 1
    assert page.locator(".text_html").evaluate("node => getComputedStyle(node).backgroundColor") == "rgba(0, 0, 0, 0)"
    page = show(box.replace("BOX", "other"), theme="dark")  # any other box stays, and the picture is light on it
    assert page.locator(".all").count() == 1 and page.locator(".all.dark").count() == 0


def test_same_picture_twice_and_another_on_one_page(show):
    view, other = attention(TOKENS, weights()), attention(["a"], [[1.0]])
    page = show(view.to_html() + view.to_html() + other.to_html())
    assert page.locator(".said").count() == 3


def test_without_scripts_there_is_a_table(show):
    page = show(attention(TOKENS, weights()).to_html(), java_script_enabled=False)
    assert page.locator("table tbody tr").count() == 6
    assert page.locator("table caption").inner_text().startswith("Attention weights: block 0, head 0")


def test_live_host_a_kernel_moves_the_picture_and_hears_of_choices(show):
    """The module under a model that behaves as a widget's: set from outside, and saved by the reader's clicks."""
    view = attention(TOKENS, weights())
    state = json.dumps({name: getattr(view, name) for name in view.traits(picture=True)})
    page = show(
        '<div id="out"></div><script type="module">' + view._esm + f"""
        const state = {state}, hear = {{}}; window.saved = []; window.state = state;
        window.kernel = (key, value) => {{ state[key] = value; (hear["change:" + key] ?? []).forEach((call) => call()); }};
        window.clear = viewer.render({{ el: document.getElementById("out"), model: {{
          get: (key) => state[key], set: kernel, on: (event, call) => (hear[event] ??= []).push(call),
          save_changes: () => saved.push([state.layer, state.head]) }} }});</script>"""
    )
    page.evaluate("kernel('head', 1)")
    assert said(page) == "mat (5) attends most to the (4) 1.000 ± 0.002"
    page.locator(".heads button").nth(2).click()
    assert page.evaluate("saved") == [[1, 0]]
    for key, value in {"pinned": [3, None], "scale": "log", "top_k": 2, "form": "edges", "against": [0, 0], "difference": True, "reverse": True}.items():
        page.evaluate("([key, value]) => kernel(key, value)", [key, value])
    assert said(page).splitlines()[0] == "block 1, head 0: on (3) attends most to the (0) 1.000 ± 0.002"
    assert page.get_by_label("as", exact=True).input_value() == "edges" and page.get_by_label("colours").input_value() == "log"
    assert page.get_by_label("compare with").input_value() == "0,0" and page.get_by_label("difference").is_checked()
    page.locator(".text span").nth(2).click()
    assert page.evaluate("state.pinned") == [None, 2]
    page.evaluate("clear()")


# ---- colours, scales, the mask ------------------------------------------------------------------------------------------

BELOW = "#f6fbfd #fbe3c8 #f8c894 #f0a95f #e28632 #c9671a #a64d12 #7f370f #58240b".split()
PLACE = {
    "root": np.sqrt, "linear": lambda w: w, "top": np.sqrt,
    "log": lambda w: np.where(w > 1 / 510, 1 + np.log(np.maximum(w, 1e-9)) / np.log(510), 0),
}  # fmt: skip


def rgb(stops) -> np.ndarray:
    """Shades 0 to 255 between the stops."""
    ends = np.array([[int(stop[k : k + 2], 16) for k in (1, 3, 5)] for stop in stops])
    t = np.linspace(0, len(stops) - 1, 256)
    return np.stack([np.interp(t, range(len(stops)), ends[:, c]) for c in range(3)], -1)


def colours(A, scale="root", stops=style.SEQUENTIAL_STOPS) -> np.ndarray:
    return rgb(stops)[np.floor(255 * PLACE[scale](np.rint(255 * np.abs(A)) / 255) + 0.5).astype(int)]


def differences(A, B) -> np.ndarray:
    d = np.rint(255 * A) / 255 - np.rint(255 * B) / 255
    return np.where((d < 0)[..., None], colours(d, stops=BELOW), colours(d))


def largest(A, k) -> np.ndarray:
    """The k largest of each row, of equals the first; zeros elsewhere."""
    q, out = np.rint(255 * A), np.zeros_like(A)
    for row, kept in zip(q, out):
        order = sorted(range(len(row)), key=lambda j: (-row[j], j))[:k]
        kept[order] = row[order] / 255
    return out


def random(shape, seed=0) -> np.ndarray:
    scores = np.exp(2 * np.random.default_rng(seed).normal(size=shape))
    return scores / scores.sum(-1, keepdims=True)


def pixels(page, n, m, panel=0) -> np.ndarray:
    """The colour at the middle of each cell (a little off it, where no line of a hatch passes for n = m)."""
    return np.array(page.locator(".back").nth(panel).evaluate("""(canvas, [n, m]) => { const ink = canvas.getContext("2d");
        return Array.from({ length: n }, (_, i) => Array.from({ length: m }, (_, j) =>
          [...ink.getImageData(Math.floor((j + .5) * canvas.width / m), Math.floor((i + .5) * canvas.height / n), 1, 1).data.slice(0, 3)])); }""", [n, m]))


def fills(page, line=0) -> np.ndarray:
    found = page.locator(".text").nth(line).locator("span").evaluate_all("all => all.map((node) => node.style.backgroundColor)")
    return np.array([[int(c) for c in re.findall(r"\d+", fill)] or [-1] * 3 for fill in found])


def values(page, within: str) -> list[float]:
    return [float(v) for v in page.locator(f"{within} data").evaluate_all("all => all.map((d) => d.getAttribute('value'))")]


def near(got, want) -> bool:
    return np.abs(np.array(got) - np.array(want)).max() <= 1


def words(n: int) -> list[str]:
    return [f"w{i}" for i in range(n)]


@pytest.mark.parametrize("n, m", [(2, 2), (6, 6), (3, 9)])
def test_every_scale_colours_as_numpy_says(show, n, m):
    A = random((2, 2, n, m))
    A[0, 0, 0] = 1 / m  # a tie
    page = show(attention(words(n), A, columns=words(m)).to_html())
    menu = page.get_by_label("colours")
    for key, scale in [(None, "root"), ("ArrowDown", "linear"), ("ArrowDown", "log")]:
        if key:
            menu.press(key)
        assert menu.input_value() == scale and near(pixels(page, n, m), colours(A[0, 0], scale))
        assert page.get_by_label("k, how many").is_visible() is False
    assert page.locator(".ticks").first.inner_text().split() == ["0.002", "0.044", "1"]
    menu.press("ArrowDown")
    many = page.get_by_label("k, how many")
    for k in (min(3, m), 1, 2, m):
        many.fill(str(k))
        many.press("Enter")
        assert near(pixels(page, n, m), colours(largest(A[0, 0], k)))
        page.locator(".text").first.locator("span").nth(0).hover()
        assert near(fills(page, 1), colours(largest(A[0, 0], k))[0])
    many.fill("0")
    many.press("Enter")
    assert many.input_value() == "1"  # never none
    page.locator(".heads button").nth(3).click()
    assert near(pixels(page, n, m), colours(largest(A[1, 1], 1)))


def test_thumbnails_and_legend_have_the_same_scale(show):
    A = random((1, 2, 4, 4))
    page = show(attention(words(4), A).to_html())
    page.get_by_label("colours").select_option("linear")
    got = page.locator(".heads canvas").nth(1).evaluate("c => [...c.getContext('2d').getImageData(0, 0, 4, 4).data]")
    assert near(np.array(got).reshape(4, 4, 4)[..., :3], colours(A[0, 1], "linear"))
    bar = page.locator(".scale canvas").first.evaluate("c => [...c.getContext('2d').getImageData(0, 0, 120, 1).data]")
    assert near(np.array(bar).reshape(120, 4)[[0, -1], :3], rgb(style.SEQUENTIAL_STOPS)[[0, 255]])


def test_a_mask_is_hatched_and_said_to_be_one(show):
    seen = np.array([[True, False, True], [True, True, False]])
    A = np.array([[0.25, 0, 0.75], [0, 1, 0]])  # a zero that is no mask at [1, 0]
    page = show(attention(["a", "b"], A, columns=["x", "y", "z"], mask=seen).to_html())
    grey = [[227, 230, 234], [185, 192, 201]]  # between ground and line
    got = pixels(page, 2, 3)
    for i in range(2):
        for j in range(3):
            page.locator(".cells").hover(position=dict(zip("xy", ((page.locator(".cells").bounding_box()["width"]) * (j + 0.5) / 3, page.locator(".cells").bounding_box()["height"] * (i + 0.5) / 2))))
            assert ("masked" in said(page)) == (not seen[i, j])
            if seen[i, j]:
                assert near(got[i, j], colours(A)[i, j])
            else:
                assert (np.min(grey, 0) - 1 <= got[i, j]).all() and (got[i, j] <= np.max(grey, 0) + 1).all()
    page.locator(".text").first.locator("span").nth(1).hover()
    kinds = page.locator(".text").nth(1).locator("span").evaluate_all("all => all.map((n) => n.classList.contains('hatch'))")
    assert kinds == [False, False, True] and page.locator(".scale").inner_text().endswith("masked")


# ---- directions, edges --------------------------------------------------------------------------------------------------


def test_who_looks_at_the_token_by_keyboard_and_pointer(show):
    A = random((6, 6))
    page = show(attention(TOKENS, A).to_html())
    tokens, turn = page.locator(".text span"), page.get_by_label("who looks at the token")
    tokens.nth(2).click()
    page.mouse.move(1, 1)
    assert said(page).startswith("sat (2) attends most to") and near(fills(page), colours(A)[2])
    turn.press("Space")  # the same token, asked the other way round
    order = sorted(range(6), key=lambda i: (-np.rint(255 * A[i, 2]), i))[:3]
    said_of = ", ".join(f"{TOKENS[i]} ({i}) {np.rint(255 * A[i, 2]) / 255:.3f}" for i in order)
    assert said(page) == f"sat (2) is attended to most by {said_of} ± 0.002" and near(fills(page), colours(A)[:, 2])
    assert "looks at the marked token" in page.locator(".text").get_attribute("aria-label")
    tokens.nth(4).hover()
    assert said(page).startswith("the (4) is attended to") and near(fills(page), colours(A)[:, 4])
    page.mouse.move(1, 1)
    page.locator(".text").press("ArrowRight")
    assert said(page).startswith("on (3) is attended to") and tokens.nth(3).get_attribute("aria-selected") == "true"
    assert page.locator(".text").get_attribute("aria-activedescendant") == tokens.nth(3).get_attribute("id")
    page.locator(".cells").hover(position=cell(page, 1, 5))  # a cell: its column, in this direction
    assert near(fills(page), colours(A)[:, 5])
    turn.press("Space")
    page.locator(".cells").hover(position=cell(page, 1, 5))
    assert near(fills(page), colours(A)[1])


def ends(page, n: int, side: str) -> list[bool]:
    """Does a drawn line of the marked token end at place k of a side?"""
    return page.locator(".edges canvas").nth(1).evaluate("""(canvas, [n, right]) => { const ink = canvas.getContext("2d"), x = right ? canvas.width - 2 : 1;
        return Array.from({ length: n }, (_, k) => ink.getImageData(x, Math.floor((k + .5) * canvas.height / n), 1, 1).data[3] > 20); }""", [n, side == "right"])


def test_edges_between_two_columns_of_tokens(show):
    A = weights()[0, 0]
    A[5, 1] = 0
    page = show(attention(TOKENS, A).to_html())
    page.get_by_label("as", exact=True).press("ArrowDown")
    assert page.locator(".rows .name").all_inner_texts() == page.locator(".ends .name").all_inner_texts() == TOKENS
    assert not page.locator(".columns").is_visible() and not any(ends(page, 6, "right"))
    page.locator(".rows .name").nth(3).hover()  # at whom does it look?
    assert ends(page, 6, "left") == [k == 3 for k in range(6)] and ends(page, 6, "right") == [k <= 3 for k in range(6)]
    assert said(page).startswith("on (3) attends most to") and near(fills(page)[:4], colours(A)[3, :4])
    page.locator(".ends .name").nth(1).click()  # who looks at it?
    page.mouse.move(1, 1)
    assert ends(page, 6, "right") == [k == 1 for k in range(6)] and ends(page, 6, "left") == [1 <= k < 5 for k in range(6)]
    assert page.locator(".ends .on").inner_text() == "cat" and said(page).startswith("cat (1) is attended to most by")
    box = page.locator(".cells").bounding_box()
    page.locator(".cells").hover(position={"x": 20, "y": box["height"] * 2.5 / 6})  # the left half: rows
    assert said(page).startswith("sat (2) attends")
    page.locator(".cells").hover(position={"x": box["width"] - 20, "y": box["height"] * 4.5 / 6})
    assert said(page).startswith("the (4) is attended to")
    page.mouse.move(1, 1)
    cells = page.locator(".cells")
    for key, begins in [("ArrowDown", "sat (2) is"), ("ArrowLeft", "sat (2) attends"), ("End", "mat (5) attends"), ("ArrowUp", "the (4) attends"), ("ArrowRight", "the (4) is"), ("Home", "the (0) is"), ("Escape", "mat (5) attends")]:
        cells.press(key)
        assert said(page).startswith(begins)
    assert page.locator(".back.dim").count() == 0


# ---- two heads, two models ----------------------------------------------------------------------------------------------


def test_two_heads_side_by_side_and_their_difference(show):
    A = np.tril(random((2, 2, 6, 6)))
    A /= A.sum(-1, keepdims=True)
    page = show(attention(TOKENS, A).to_html())
    page.get_by_label("compare with").select_option("1,0")
    assert page.locator(".panel").count() == 2 and near(pixels(page, 6, 6, 1)[3, :4], colours(A[1, 0])[3, :4])
    assert page.locator(".heads .second").get_attribute("aria-label").startswith("block 1, head 0")
    page.locator(".cells").nth(1).hover(position=cell(page, 3, 1))
    q = np.rint(255 * A) / 255
    assert said(page).split("\n")[0] == f"block 0, head 0: on (3) → cat (1): {q[0, 0, 3, 1]:.3f} ± 0.002"
    assert [line for line in said(page).splitlines() if line][1:] == [
        f"block 1, head 0: on (3) → cat (1): {q[1, 0, 3, 1]:.3f} ± 0.002", f"difference: {q[0, 0, 3, 1] - q[1, 0, 3, 1]:.3f} ± 0.004".replace("-", "−")]
    apart = 0.5 * np.abs(q[0, 0] - q[1, 0]).sum(-1).mean()
    assert abs(values(page, ".panel:nth-child(2) .facts")[-1] - apart) < 1e-9
    assert near(fills(page, 1)[:4], colours(A[1, 0])[3, :4])
    page.get_by_label("difference").press("Space")
    page.locator(".cells").first.hover(position=cell(page, 3, 1))
    d = differences(A[0, 0], A[1, 0])
    assert near([pixels(page, 6, 6, 1)[i, j] for i in range(6) for j in range(i + 1)], [d[i, j] for i in range(6) for j in range(i + 1)])
    assert near(fills(page, 1)[:4], d[3, :4]) and near(fills(page, 0)[:4], colours(A[0, 0])[3, :4])
    assert page.locator(".facts").nth(1).inner_text().startswith("block 0, head 0 − block 1, head 0")
    page.get_by_label("compare with").select_option("")
    assert page.locator(".panel").count() == 1 and page.locator(".text").count() == 1 and not page.get_by_label("difference").is_visible()


def test_two_models_follow_the_choice_of_head(show):
    A, B = random((2, 2, 4, 4)), random((2, 2, 4, 4), seed=1)
    page = show(attention(words(4), A, compare=B, names=("before <b>", "after")).to_html())
    for key, (layer, head) in [(None, (0, 0)), ("ArrowRight", (0, 1)), ("ArrowDown", (1, 1))]:
        if key:
            page.locator(".heads [aria-checked=true]").press(key)
        assert near(pixels(page, 4, 4), colours(A[layer, head])) and near(pixels(page, 4, 4, 1), colours(B[layer, head]))
        assert [t.split("   ")[0].split("entropy")[0].strip() for t in page.locator(".facts").all_inner_texts()] == [f"before <b> · block {layer}, head {head}", f"after · block {layer}, head {head}"]
        data = attention(words(4), A, compare=B).data
        assert values(page, ".panel:nth-child(2) .facts")[:2] == [data["entropy"][1][layer][head], data["distance"][1][layer][head]]
    page.get_by_label("as", exact=True).select_option("edges")
    page.locator(".rows .name").nth(1).hover()
    assert page.locator(".edges").count() == 2 and said(page).count("attends most to") == 2
    page = show(attention(words(4), A[0, 0], compare=B[0, 0]).to_html())  # one head of each
    assert page.locator(".panel").count() == 2 and page.locator(".heads").count() == 0 and page.get_by_label("compare with").input_value() == "other"


# ---- numbers ------------------------------------------------------------------------------------------------------------


def test_numbers_as_tables(show):
    A = np.tril(random((2, 3, 6, 6)))
    A /= A.sum(-1, keepdims=True)
    view = attention(TOKENS, A)
    page = show(view.to_html())
    data, q = view.data, np.rint(255 * A) / 255
    assert values(page, ".facts") == [data["entropy"][0][0][0], data["distance"][0][0][0]]
    page.locator("summary").press("Enter")
    assert page.locator("details[open]").count() == 1
    page.locator("table.token").wait_for()
    assert page.locator("table.each tbody tr").count() == 6
    assert values(page, "table.each tbody") == [x for l in range(2) for h in range(3) for x in (data["entropy"][0][l][h], data["distance"][0][l][h])]

    def check(k, layer=0, head=0):
        cells = page.locator("table.token tbody td").evaluate_all("all => all.map((td) => td.querySelector('data')?.getAttribute('value') ?? td.textContent)")
        want = [x for t in range(6) for x in (q[layer, head, k, t] if t <= k else "masked", q[layer, head, t, k] if k <= t else "masked")]
        assert all(c == w if w == "masked" else abs(float(c) - w) < 1e-12 for c, w in zip(cells, want, strict=True))

    check(5)
    page.locator(".text span").nth(2).click()
    check(2)
    page.locator(".text span").nth(4).hover()  # what is only pointed at does not move the table
    check(2)
    page.locator(".heads [aria-checked=true]").press("ArrowRight")
    check(2, 0, 1)
    page.locator(".heads button").nth(4).click()
    check(2, 1, 1)
    page.locator(".text").press("ArrowLeft")
    check(1, 1, 1)
    heads = page.locator("table.token thead th").all_inner_texts()
    assert heads == ["token", "“cat” looks at it", "it looks at “cat”"]


def test_numbers_of_cross_attention(show):
    A = random((2, 3))
    page = show(attention(["I", "am"], A, columns=["je", "suis", "là"]).to_html())
    page.locator("summary").click()
    q = np.rint(255 * A) / 255
    page.locator("table.token").wait_for()
    assert np.allclose(values(page, "table.token"), q[1])
    page.locator(".text").nth(1).locator("span").nth(2).click()
    assert np.allclose(values(page, "table.token"), q[:, 2])
    assert page.locator("table.each thead th").all_inner_texts() == ["head", "entropy (nats)"]


# ---- saving -------------------------------------------------------------------------------------------------------------


def saved(page, kind: str) -> tuple[str, bytes]:
    with page.expect_download() as download:
        page.get_by_role("group", name="save").get_by_text(kind, exact=True).press("Enter")
    return download.value.suggested_filename, open(download.value.path(), "rb").read()


NASTY = ['=1+1"', "a,b", "</svg><script>alert(1)</script>", "\u202ex", "אב", "\n"]


def test_save_as_data(show):
    A = np.tril(random((2, 2, 6, 6)))
    page = show(attention(NASTY, A, title="T").to_html())
    page.locator(".heads button").nth(1).click()
    name, text = saved(page, "JSON")
    got, q = json.loads(text), np.rint(255 * A) / 255
    assert name == "attention-block0-head1.json" and got["tokens"][:3] == [t.replace(" ", "␣") for t in NASTY[:3]] and (got["layer"], got["head"], got["title"]) == (0, 1, "T")
    W = np.array([[[[np.nan if x is None else x for x in row] for row in head] for head in layer] for layer in got["weights"]])
    hidden = np.triu(np.ones((6, 6)), 1) > 0
    assert np.isnan(W[..., hidden]).all() and np.abs(W - q)[..., ~hidden].max() <= 5e-5 and got["weights_within"] == 1 / 510
    name, text = saved(page, "CSV")
    lines = list(csv.reader(io.StringIO(text.decode(), newline="")))
    assert lines[0] == ["row", "token", "column", "attends_to", "weight"] and len(lines) == 1 + 21
    assert lines[1][1] == "'=1+1\"" and lines[2][1] == "a,b"  # no formula for a spreadsheet
    assert all(abs(float(w) - q[0, 1, int(i), int(j)]) <= 5e-5 for i, _, j, _, w in lines[1:])
    page.get_by_label("compare with").select_option("1,1")
    assert all(abs(float(line[5]) - q[1, 1, int(line[0]), int(line[2])]) <= 5e-5 for line in list(csv.reader(io.StringIO(saved(page, "CSV")[1].decode())))[1:])


def squares(text: bytes) -> tuple[dict, ElementTree.Element]:
    root = ElementTree.fromstring(text)
    return [(int(path.get("data-shade")), re.findall(r"M([\d.]+) ([\d.]+)h([\d.]+)", path.get("d"))) for path in root.iter("{http://www.w3.org/2000/svg}path") if path.get("data-shade")], root


@pytest.mark.parametrize("n", [2, 6, 300])
def test_save_as_svg(show, n):
    A = np.tril(random((n, n)))
    names = NASTY[:n] if n <= 6 else words(n)
    page = show(attention(names, A).to_html())
    _, text = saved(page, "SVG")
    cells, root = squares(text)
    k = -(-n // 256)
    big = np.array([[np.rint(255 * A[a : a + k, b : b + k].max()) for b in range(0, n, k)] for a in range(0, n, k)])
    side = float(cells[0][1][0][2])
    got = np.full(big.shape, -1)
    for shade, places in cells:
        for x, y, _ in places:
            got[round(float(y) / side), round(float(x) / side)] = shade
    want = np.floor(255 * np.sqrt(big / 255) + 0.5)
    assert np.array_equal(got, np.where(np.triu(np.ones(big.shape), 1) > 0, 256, want))
    shown = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert n > 6 or all(t in shown for t in ['=1+1"', "a,b"][:n])
    assert not any("script" in str(node.tag) for node in root.iter())


def test_save_edges_and_pinned_rows_as_svg(show):
    view = attention(TOKENS, weights()[0, 0])
    view.form = "edges"
    page = show(view.to_html())
    curves = lambda: sum(path.get("d").count("C") for path in ElementTree.fromstring(saved(page, "SVG")[1]).iter("{http://www.w3.org/2000/svg}path"))
    assert curves() == 21
    page.locator(".rows .name").nth(3).click()
    assert curves() == 4
    page.get_by_label("colours").select_option("top")
    assert curves() == 3
    A = np.tril(random((120, 120))) ** 0.3  # more edges than are drawn
    view = attention(words(120), A)
    view.form = "edges"
    page = show(view.to_html())
    shades = np.floor(255 * np.sqrt(np.rint(255 * A[np.tri(120) > 0]) / 255) + 0.5)
    assert curves() == max(k for k in ((shades >= least).sum() for least in range(1, 257)) if k <= 3000) < len(shades)
    view.pinned = (100, None)  # all of one token are
    page = show(view.to_html())
    assert curves() == 101
    view.pinned = (100, 7)
    page = show(view.to_html())
    assert curves() == 1


def test_save_as_png(show, tmp_path):
    import matplotlib.image

    A = random((6, 6))
    page = show(attention(TOKENS, A, title="x").to_html())
    cells, root = squares(saved(page, "SVG")[1])
    name, picture = saved(page, "PNG")
    assert name.endswith(".png")
    image = matplotlib.image.imread(io.BytesIO(picture), format="png")
    assert image.shape[:2] == (2 * int(root.get("height")), 2 * int(root.get("width")))
    moved = re.search(r"translate\(([\d.]+) ([\d.]+)\)", next(root.iter("{http://www.w3.org/2000/svg}g")).get("transform")).groups()
    left, top, side = float(moved[0]), float(moved[1]), float(cells[0][1][0][2])
    got = [[255 * image[int(2 * (top + (i + 0.5) * side)), int(2 * (left + (j + 0.5) * side)), :3] for j in range(6)] for i in range(6)]
    assert np.abs(np.array(got) - colours(A)).max() <= 3


# ---- large pictures, every reader ---------------------------------------------------------------------------------------


# Counts what is drawn, and what the style of the text costs. (Times are in benchmarks/hover.md, not tested: machines are noisy.)
COUNT = """() => {
  const counts = window.counts = {};
  for (const name of ["putImageData", "drawImage", "fillRect", "rect", "bezierCurveTo"]) {
    const drawn = CanvasRenderingContext2D.prototype[name];
    CanvasRenderingContext2D.prototype[name] = function (...given) { counts[name] = (counts[name] ?? 0) + 1; return drawn.apply(this, given); };
  }
  const root = document.querySelector("[data-tlm-attention]").firstChild.shadowRoot;
  new MutationObserver((changes) => { counts.nodes = (counts.nodes ?? 0) + changes.reduce((all, { addedNodes }) => all + addedNodes.length, 0); })
    .observe(root, { childList: true, subtree: true });
}"""


@pytest.mark.parametrize("form", ["matrix", "edges"])
def test_a_thousand_tokens_are_aggregated_and_a_hover_draws_only_what_it_marks(show, form):
    n, moves = 1024, 20
    A = np.tril(random((2, n, n)))
    A /= A.sum(-1, keepdims=True)
    view = attention(words(n), A)
    view.form = form
    page = show(view.to_html())
    page.locator(".cells").wait_for()
    assert page.locator(".name").count() <= 4 and page.locator(".back").evaluate("c => c.width * c.height") < 1_000_000
    page.evaluate(COUNT)
    box = page.locator(".cells").bounding_box()
    for k in range(moves):
        at = {"x": box["width"] * ((17 * k) % 40) / 40, "y": box["height"] * (1 - (k + 1) / 45)}
        page.locator(".cells").dispatch_event("pointermove", {"clientX": box["x"] + at["x"], "clientY": box["y"] + at["y"]})
    counts = page.evaluate("counts")
    assert counts["nodes"] < 30 * moves  # names and the sentence
    assert not counts.keys() & {"putImageData", "drawImage", "fillRect", "rect"}  # the million cells are drawn once, before
    assert counts.get("bezierCurveTo", 0) <= (n + 1) * moves * (form == "edges")  # of the marked token alone
    page.get_by_label("head", exact=True).select_option("1")
    assert page.evaluate("counts")["drawImage" if form == "matrix" else "bezierCurveTo"] > 0
    page.locator(".cells").scroll_into_view_if_needed()
    page.locator(".cells").press("Escape")
    page.locator(".cells").press("ArrowUp")
    assert said(page).startswith("w1022 (1022)")
    page.locator(".cells").press("Home")
    assert said(page).startswith("w0 (0)" if form == "edges" else "w1022 (1022) → w0 (0)")


def test_a_single_cell_survives_being_made_small(show):
    n = 1024
    A = np.diag((np.arange(n) % 10 == 0) * 1.0)
    page = show(attention(words(n), A, mask=np.ones((n, n), bool)).to_html())
    dark = page.locator(".back").evaluate("""canvas => { const { width, height } = canvas, all = canvas.getContext("2d").getImageData(0, 0, width, height).data;
        return Array.from({ length: width }, (_, k) => all[4 * (k * width + k)] < 110); }""")
    assert sum(a and not b for a, b in zip(dark, [False, *dark])) == 103  # blocks show their largest weight; none is left out


READERS = {
    "matrix": {}, "edges": {"form": "edges", "pinned": (3, None)}, "two": {"against": (1, 1), "difference": True, "pinned": (3, 1)},
    "top": {"scale": "top", "top_k": 2, "reverse": True},
}  # fmt: skip
every_state = pytest.mark.parametrize("state", READERS.values(), ids=READERS)


def viewer(state):
    view = attention([*TOKENS[:5], "Donaudampfschifffahrtsgesellschaft"], np.tril(random((2, 2, 6, 6))), title="A title of some length, with more words than fit")
    for name, value in state.items():
        setattr(view, name, value)
    return view


@every_state
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_contrast_in_both_themes(show, contrast, state, theme):
    page = show(viewer(state).to_html(), theme=theme)
    page.locator("summary").click()
    seen, faint = contrast(page)
    assert seen > 60 and not faint


@every_state
@pytest.mark.parametrize("width", [360, pytest.param(390, marks=pytest.mark.long), 820])
def test_nothing_sticks_out(show, state, width):
    page = show(viewer(state).to_html(), viewport={"width": width, "height": 800})
    page.locator("summary").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    sticking = page.evaluate("""(width) => [...document.querySelector("[data-tlm-attention]").firstChild.shadowRoot.querySelectorAll(".all *")]
        .filter((e) => !e.closest("details > div") && e.getBoundingClientRect().right > width - 8).map((e) => e.outerHTML.slice(0, 80))""", width)
    assert not sticking


@every_state
def test_every_control_has_a_name_a_size_and_a_visible_focus(show, state):
    page = show(viewer(state).to_html() + '<button id="after">after the picture</button>')
    page.locator("details").evaluate("node => { node.open = true; }")
    active = "document.querySelector('[data-tlm-attention]').firstChild.shadowRoot.activeElement"
    found = []
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate(active) is None:
            break
        name = page.evaluate(f"{active}.getAttribute('aria-label') ?? {active}.labels?.[0]?.textContent ?? {active}.textContent")
        assert name.strip() and page.evaluate(f"getComputedStyle({active}).outlineStyle") in ("solid", "dashed")
        assert min(page.evaluate(f"(({{ width, height }}) => [width, height])({active}.getBoundingClientRect())")) >= 20
        found.append(name)
    else:
        raise AssertionError("the focus never leaves the picture")
    assert page.evaluate("document.activeElement.id") == "after"
    wanted = ["block", "head", "as", "colours", "compare with", "save the picture as PNG", "save this head's weights as CSV", "numbers, as tables", "shade by who looks at the token"]
    assert all(name in found for name in wanted) and len(found) == len(set(found))


def test_print_is_light_and_without_controls(show):
    page = show(attention(TOKENS, random((6, 6))).to_html(), theme="dark")
    light = colours(random((6, 6)))
    assert not near(pixels(page, 6, 6), light)
    page.emulate_media(media="print")
    for _ in range(100):  # it is painted a moment later
        if near(pixels(page, 6, 6), light):
            break
        page.wait_for_timeout(50)
    assert near(pixels(page, 6, 6), light)
    assert not page.locator(".foot").is_visible() and not page.get_by_label("colours").is_visible() and page.locator(".said").is_visible()


def test_without_scripts_there_is_a_drawing_too(show):
    page = show(attention(TOKENS, weights()).to_html(), java_script_enabled=False, viewport={"width": 360, "height": 800})
    assert page.get_by_role("img", name="weights of block 0, head 0").bounding_box()["width"] == 96
    assert page.evaluate is not None and page.locator("table").bounding_box()["width"] <= 344


def test_touch_in_both_directions(show):
    page = show(attention(TOKENS, weights()).to_html(), has_touch=True, is_mobile=True, viewport={"width": 360, "height": 800})
    page.get_by_label("who looks at the token").tap()
    page.locator(".text span").nth(1).tap()
    assert said(page).startswith("cat (1) is attended to most by")
    page.locator(".text span").nth(1).tap()  # a second tap lets go
    assert said(page).startswith("the (0) is attended to")
    page.get_by_label("as", exact=True).select_option("edges")
    page.locator(".rows .name").nth(2).tap()
    assert said(page).startswith("sat (2) attends most to")

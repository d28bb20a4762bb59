"""The interactive picture in a real browser: a page from a file, no kernel, no network."""

import json

import numpy as np
import pytest

from tlm_book.viewer import attention
from tlm_book.viewer.attention import MODULE

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
    box = page.locator(".cells").bounding_box()
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
    assert page.evaluate("document.querySelector('[data-tlm-attention]').firstChild.shadowRoot.activeElement.ariaLabel") == "layer 1, head 0"
    page.get_by_label("layer", exact=True).select_option("0")
    assert said(page).startswith("mat (5) attends most to the (0) 0.165")


def test_matrix_by_keyboard_alone(show):
    page = show(attention(TOKENS, weights()).to_html())
    page.keyboard.press("Tab")  # the heads: one stop
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")  # past the two menus
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
@pytest.mark.parametrize("width", [390, 820, 1400])
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
    corner = "document.querySelector('[data-tlm-attention]').firstChild.shadowRoot.querySelector('.cells canvas')" \
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
    assert page.locator("table caption").inner_text().startswith("Attention weights: layer 0, head 0")


def test_live_host_a_kernel_moves_the_picture_and_hears_of_choices(show):
    """The module under a model that behaves as a widget's: set from outside, and saved by the reader's clicks."""
    view = attention(TOKENS, weights())
    state = json.dumps({"picture": view.picture, "layer": 0, "head": 0})
    page = show(
        '<div id="out"></div><script type="module">' + MODULE + f"""
        const state = {state}, hear = {{}}; window.saved = [];
        window.kernel = (key, value) => {{ state[key] = value; (hear["change:" + key] ?? []).forEach((call) => call()); }};
        window.clear = viewer.render({{ el: document.getElementById("out"), model: {{
          get: (key) => state[key], set: kernel, on: (event, call) => (hear[event] ??= []).push(call),
          save_changes: () => saved.push([state.layer, state.head]) }} }});</script>"""
    )
    page.evaluate("kernel('head', 1)")
    assert said(page) == "mat (5) attends most to the (4) 1.000 ± 0.002"
    page.locator(".heads button").nth(2).click()
    assert page.evaluate("saved") == [[1, 0]]
    page.evaluate("clear()")

"""The small interactive pictures in a real browser: keyboard, pointer, both colour schemes, phones; numbers against numpy."""

import json
import random
import re
from types import SimpleNamespace

import numpy as np
import pytest
from merging import merged

from tlm_book.viewer import (
    clock_hands,
    descent,
    epsilon_spread,
    merge_stepper,
    sampling,
    softmax_temperature,
)
from tlm_book.viewer.base import visible
from tlm_book.viewer.descent.view import RULES, SHAPES, SURFACES, path

RNG = np.random.default_rng(0)
SCORES = {d: RNG.normal(size=(8, d)) @ RNG.normal(size=d) for d in (1, 4, 16, 64, 256)}
LABELS = ["mat", "a label of several words", "dog", "the"]

LOGITS = np.random.default_rng(1).normal(size=60) * 2
STATES, _ = merged("the cat and the hat that sat", 8)
PICTURES = {
    "merges": lambda: merge_stepper(STATES, counts=range(8), ranks=range(256, 264), title="Merges"),
    "clocks": lambda: clock_hands(8),
    "temperature": lambda: softmax_temperature([2, 1, 0.5, -1], labels=LABELS),
    "widths": lambda: softmax_temperature(SCORES, width=64),
    "epsilon": lambda: epsilon_spread(1e-6, sigma=1e-4),
    "descent": lambda: descent("turned valley", "Adam", rate=0.2),
    "sampling": lambda: sampling(LOGITS, [f"token {j}" for j in range(60)], temperature=0.8, top_k=40, top_p=0.9, title="Next"),
}
AFTER = '<button id="after">after the picture</button>'
MORE = pytest.mark.long  # of a kind of which the others are tried each time
every_picture = pytest.mark.parametrize("picture", PICTURES.values(), ids=PICTURES)


def said(page) -> str:
    return page.locator(".said").inner_text()


def numbers(page, within: str) -> list[float]:
    """The full values of the numbers that stand rounded in the picture."""
    return [float(v) for v in page.locator(f"{within} data").evaluate_all("all => all.map((d) => d.getAttribute('value'))")]


def press(page, label: str, *keys: str) -> float:
    """Move a slider by keys; returns its place."""
    control = page.get_by_label(label)
    for key in keys:
        control.press(key)
    return float(control.input_value())


def power(place: float) -> float:
    """The value of a slider over powers of ten."""
    return float(f"{10**place:.3g}")


# ---- merges -------------------------------------------------------------------------------------------------------------


def tokens(page) -> list[str]:
    return [text.replace("␣", " ") for text in page.locator(".tokens bdi").all_inner_texts()]


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=MORE) for seed in range(2, 6))])
def test_merges_step_through_the_states(show, seed):
    rng = random.Random(seed)
    states, _ = merged([bytes([b]) for b in "".join(rng.choices("abé €", k=rng.randrange(3, 60))).encode()], 7)
    page = show(merge_stepper(states).to_html())
    for k, state in enumerate(states):
        texts = [t.decode() if t.decode(errors="ignore").encode() == t else "".join(f"‹{b:02X}›" for b in t) for t in state]
        assert tokens(page) == texts
        assert said(page).startswith(f"{len(state)} token") and page.get_by_label("step").input_value() == str(k)
        if k + 1 < len(states):
            assert page.locator(".tokens .pair").count() == len(state) - len(states[k + 1])
            for pair in page.locator(".tokens .pair").all():
                assert "".join(pair.locator("bdi").all_inner_texts()) in said(page).replace(" + ", "")
        if k:
            assert page.locator(".tokens .fresh, .tokens .pair").count() > 0
            assert int(page.locator("tr.now td").last.inner_text()) == len(state)
            assert page.locator("tr.now").get_attribute("aria-current") == "step" and page.locator("[aria-current]").count() == 1
        page.get_by_role("button", name="next").press("Enter")
    assert "No merge is left" in said(page) and tokens(page) == texts


def test_fresh_tokens_are_marked_where_they_fused(show):
    page = show(merge_stepper([list("abxab"), ["ab", "x", "ab"], ["abx", "ab"]]).to_html())
    page.get_by_role("button", name="next").click()
    assert page.locator(".tokens .pair").inner_text().split() == ["ab", "x"]
    assert page.locator(".tokens .fresh").all_inner_texts() == ["ab"]
    page.get_by_role("button", name="next").click()
    assert page.locator(".tokens .fresh").all_inner_texts() == ["abx"]


def test_merges_by_button_slider_and_keyboard(show):
    page = show(PICTURES["merges"]().to_html())
    button = {name: page.get_by_role("button", name=name, exact=True) for name in ("first", "back", "play", "next", "last")}
    assert button["back"].get_attribute("aria-disabled") == "true" and button["next"].get_attribute("aria-disabled") == "false"
    page.keyboard.press("Tab")
    assert page.evaluate("document.querySelector('[data-tlm-merges]').firstChild.shadowRoot.activeElement.ariaLabel") == "first"
    button["next"].press("Enter")
    button["next"].press("Space")
    assert tokens(page) == STATES[2]
    button["back"].press("Enter")
    assert tokens(page) == STATES[1]
    button["last"].click()
    assert tokens(page) == STATES[-1] and button["next"].get_attribute("aria-disabled") == "true"
    button["next"].press("Enter")  # keeps the focus and does nothing
    assert tokens(page) == STATES[-1]
    assert press(page, "step", "Home") == 0 and tokens(page) == STATES[0]
    assert press(page, "step", "ArrowRight", "ArrowRight", "ArrowRight") == 3 and tokens(page) == STATES[3]
    assert page.get_by_label("step").get_attribute("aria-valuetext") == "3 of 8"
    assert page.locator(".tokens").get_attribute("aria-label") == " | ".join(visible(t) for t in STATES[3])
    button["first"].click()
    assert tokens(page) == STATES[0]


@pytest.mark.long
def test_merges_play_and_stop(show):
    page = show(merge_stepper(STATES[:4]).to_html())
    page.get_by_role("button", name="play").click()
    page.wait_for_function("document.querySelector('[data-tlm-merges]').firstChild.shadowRoot.querySelector('input').value === '1'")
    page.get_by_role("button", name="pause").click()
    page.wait_for_timeout(1500)
    assert tokens(page) == STATES[1]
    page.get_by_role("button", name="play").click()
    page.wait_for_function("document.querySelector('[data-tlm-merges]').firstChild.shadowRoot.querySelector('.said').textContent.includes('No merge')")
    assert page.get_by_role("button", name="play").count() == 1 and tokens(page) == STATES[3]


# ---- clocks -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d, base", [(2, 10000.0), (6, 10000.0), (8, 100.0), (64, 10000.0)])
def test_hands_are_those_of_numpy(show, d, base):
    page = show(clock_hands(d, position=3, offset=5, base=base).to_html())
    omega = base ** (-2 * np.arange(d // 2) / d)
    for keys, p, k in [((), 3, 5), (("ArrowRight",) * 4, 7, 5), (("End",), 100, 5), (("Home",), 0, 5)]:
        assert press(page, "position p", *keys) == p
        check_hands(page, omega, p, k)
    for keys, k in [(("Home",), -50), (("End",), 50), (("PageDown",), 40)]:
        assert press(page, "offset k", *keys) == k
        check_hands(page, omega, 0, k)


def check_hands(page, omega, p, k):
    """Each row of the table: ω, k·ω, (sin, cos) at p, at p + k, and the first turned, which is the second."""
    got = np.array(numbers(page, "table")).reshape(-1, 8)
    at = lambda t: np.stack([np.sin(t * omega), np.cos(t * omega)], 1)
    assert np.abs(got[:, 0] / omega - 1).max() < 1e-13 and np.abs(got[:, 1] - k * omega).max() < 1e-10
    assert np.abs(got[:, 2:4] - at(p)).max() < 1e-12 and np.abs(got[:, 4:6] - at(p + k)).max() < 1e-12
    assert np.abs(got[:, 6:8] - got[:, 4:6]).max() < 1e-12
    for kind, t in (("here", p), ("there", p + k)):  # the drawn hands: right by the sine, up by the cosine
        lines = page.locator(f".clocks .{kind}").evaluate_all("all => all.map((l) => [+l.getAttribute('x2'), +l.getAttribute('y2')])")
        ends = np.array(lines) * [1, -1]
        assert np.abs(ends / np.linalg.norm(ends, axis=1)[:, None] - at(t)).max() < 1e-9


def test_the_turn_is_the_same_from_every_position(show):
    page = show(clock_hands(6, offset=2).to_html())
    length = "all => all.map((path) => path.getTotalLength())"
    press(page, "position p", "Home")
    first, words = page.locator(".clocks .turn").evaluate_all(length), page.locator(".clocks > div > div").all_inner_texts()
    assert words == [f"hand {i}\n{np.degrees(2 * 10000 ** (-i / 3)):.1f}°" for i in range(3)]
    press(page, "position p", *["ArrowRight"] * 11)
    again = page.locator(".clocks .turn").evaluate_all(length)
    assert np.abs(np.array(again) - first).max() < 0.2 and page.locator(".clocks > div > div").all_inner_texts() == words
    assert said(page) == "From p = 11 to p + k = 13 the hands turn by 2.00, 0.0928, 0.00431 (radians): k·ω, whatever p is."


def test_few_clocks_are_large_where_there_is_room(show):
    for width, low, high in ((820, 140, 155), (390, 75, 90)):
        page = show(clock_hands(8).to_html(), viewport={"width": width, "height": 800})
        boxes = [box.bounding_box() for box in page.locator(".clocks svg").all()]
        assert all(low <= box["width"] <= high for box in boxes) and len({box["y"] for box in boxes}) == 1


# ---- softmax ------------------------------------------------------------------------------------------------------------


def softmax(s, tau=1.0):
    e = np.exp((np.array(s, float) - np.max(s)) / tau)
    return e / e.sum()


def bars(page, kind: str) -> np.ndarray:
    return np.array(page.locator(kind).evaluate_all("all => all.map((fill) => parseFloat(fill.style.width) / 100)"))


def test_temperature_moves_the_weights(show):
    s = [2, 1, 0.5, -1]
    page = show(softmax_temperature(s, labels=LABELS).to_html())
    for keys, place in [((), 0), (("ArrowLeft",) * 6, -0.3), (("Home",), -2), (("End",), 2), (("ArrowLeft",) * 20, 1)]:
        assert abs(press(page, "temperature τ", *keys) - place) < 1e-9
        tau = power(place)
        table = np.array(numbers(page, "tbody")).reshape(-1, 2)
        assert (table[:, 0] == s).all() and np.abs(table[:, 1] - softmax(s, tau)).max() < 1e-12
        assert np.abs(bars(page, ".track i") - table[:, 1]).max() < 1e-5
        w = softmax(s, tau)
        largest, entropy = numbers(page, ".said")
        assert abs(largest - w.max()) < 1e-12 and abs(entropy + sum(x * np.log(x) for x in w if x > 0)) < 1e-12
        assert f"{tau:.3g}" in said(page) and "(mat)" in said(page)
    page.get_by_role("button", name="τ = 1").press("Enter")
    assert page.get_by_label("temperature τ").input_value() == "0" and said(page).startswith("τ = 1.00")
    assert page.get_by_label("temperature τ").get_attribute("aria-valuetext") == "1.00"


def test_all_that_tie_are_named(show):
    for s, names in (([2, 1, 2], "0 and 2"), ([1, 1, 1], "0, 1 and 2"), ([0, 1, 0], "1")):
        assert f"({names})" in said(show(softmax_temperature(s).to_html()))


def test_a_first_temperature_off_the_steps_is_kept(show):
    page = show(softmax_temperature([1.0, 0.0], temperature=0.7317).to_html())
    assert np.abs(np.array(numbers(page, "tbody")).reshape(-1, 2)[:, 1] - softmax([1, 0], 0.7317)).max() < 1e-12


def test_width_with_and_without_the_root(show):
    page = show(softmax_temperature(SCORES, width=64).to_html())
    for keys, d in [((), 64), (("ArrowRight",), 256), (("Home",), 1), (("ArrowRight", "ArrowRight"), 16)]:
        press(page, "width d", *keys)
        s = SCORES[d]
        table = np.array(numbers(page, "table:not(.sums) tbody")).reshape(-1, 3)
        both = np.stack([softmax(s), softmax(s, np.sqrt(d))], 1)
        assert np.abs(table[:, 0] - s).max() < 1e-6 and np.abs(table[:, 1:] - both).max() < 1e-7  # scores keep nine digits
        assert np.abs(bars(page, ".weight:not(.second) i") - both[:, 0]).max() < 1e-5 and np.abs(bars(page, ".second i") - both[:, 1]).max() < 1e-5
        sums = np.array(numbers(page, ".sums")).reshape(4, 2)
        entropy = [-sum(x * np.log(x) for x in w if x > 0) for w in both.T]
        want = [[s.std(), s.std() / np.sqrt(d)], both.max(0), entropy, (both * (1 - both)).max(0)]
        assert np.abs(sums - want).max() < 1e-6
        assert page.get_by_label("width d").get_attribute("aria-valuetext") == str(d) and said(page).startswith(f"d = {d}:")


# ---- epsilon ------------------------------------------------------------------------------------------------------------


def test_spread_is_that_of_numpy(show):
    page = show(epsilon_spread(1e-6, sigma=1e-4).to_html())
    for label, keys, place in [
        ("spread σ", (), -4), ("spread σ", ("ArrowRight",) * 7, -3.3), ("guard ε", ("Home",), -12), ("spread σ", ("End",), 3),
        ("guard ε", ("End",), 0), ("spread σ", ("Home",), -12), ("guard ε", ("ArrowLeft",) * 15, -1.5),
    ]:  # fmt: skip
        assert abs(press(page, label, *keys) - place) < 1e-9
        e, s = power(float(page.get_by_label("guard ε").input_value())), power(float(page.get_by_label("spread σ").input_value()))
        outside, inside = s / (s + e), s / np.sqrt(s**2 + e)
        got = np.array(numbers(page, "table")).reshape(2, 3)
        assert np.allclose(got[:, 0], [outside, inside], rtol=1e-13, atol=0)
        exact = np.longdouble(s), np.longdouble(e)
        lacks = [exact[1] / (exact[0] + exact[1]), exact[1] / (np.hypot(exact[0], np.sqrt(exact[1])) * (np.hypot(exact[0], np.sqrt(exact[1])) + exact[0]))]
        assert np.allclose(got[:, 1], np.array(lacks, float), rtol=1e-12, atol=0) and np.allclose(got[:, 1], [1 - outside, 1 - inside], atol=1e-15)
        assert np.allclose(got[:, 2], [e, np.sqrt(e / 3)], rtol=1e-13, atol=0)
        assert np.allclose(numbers(page, ".said"), [outside, inside, outside - inside], rtol=1e-12, atol=1e-16)
        dots = dict(page.locator(".dot").evaluate_all("all => all.map((c) => [c.classList[1], +c.getAttribute('cy')])"))
        low, high = page.locator(".axis").first.get_attribute("y1"), page.locator(".grid").last.get_attribute("y1")
        at = lambda v: float(low) + v * (float(high) - float(low))
        assert abs(dots["a"] - at(outside)) < 1e-6 and abs(dots["b"] - at(inside)) < 1e-6


def test_curves_are_the_formulas(show):
    page = show(epsilon_spread(1e-3).to_html())
    low, high = (float(page.locator(f".plot {line}").get_attribute("y1")) for line in (".axis >> nth=0", ".grid >> nth=1"))
    for kind, f in (("outside", lambda s: s / (s + 1e-3)), ("inside", lambda s: s / np.sqrt(s**2 + 1e-3))):
        points = re.findall(r"([\d.]+) ([\d.]+)", page.locator(f".plot path.{kind}").get_attribute("d"))
        got = (np.array(points, float)[:, 1] - low) / (high - low)
        assert np.abs(got - f(10 ** np.linspace(-12, 3, len(points)))).max() < 1e-3


def test_a_pointer_on_the_curves_moves_sigma(show):
    page = show(epsilon_spread(1e-6, sigma=1e-4).to_html())
    box = page.locator(".plot > svg").bounding_box()
    for part, place in ((0, -12), (0.4, -6), (1, 3)):
        page.locator(".plot").click(position={"x": 32 + part * (box["width"] - 44), "y": 100})
        assert abs(float(page.get_by_label("spread σ").input_value()) - place) < 0.11
    assert float(page.locator(".sigma").get_attribute("x1")) == pytest.approx(box["width"] - 12)


# ---- descent ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("surface", SURFACES)
def test_paths_are_those_of_python(show, surface):
    page = show(descent(surface, steps=20, rate=0.02).to_html())
    for rule in RULES:
        page.get_by_label("rule").select_option(rule)
        rate, beta = power(press(page, "rate η", "ArrowRight")), press(page, "momentum β", "ArrowLeft")
        start = press(page, "start, across", "ArrowRight", "ArrowRight"), press(page, "start, up", "ArrowLeft")
        points = path(surface, rule, rate, beta, 20, start)
        got = np.array(numbers(page, "table")).reshape(-1, 3)
        want = [(*points[t], SHAPES[surface][0](*points[t])) for t in (0, 1, 2, 5, 10, 20)]
        assert np.allclose(got, want, rtol=1e-9, atol=1e-12)
        assert np.allclose(numbers(page, ".said"), [want[0][2], want[-1][2], *want[-1][:2]], rtol=1e-9, atol=1e-12)
        drawn = re.findall(r"(-?[\d.]+) (-?[\d.]+)", page.locator(".plot .path").get_attribute("d"))
        unit = page.locator(".plot > svg").bounding_box()["width"] / 6
        assert len(drawn) == 21 and np.allclose(np.array(drawn, float) / unit, [(x + 3, 2 - y) for x, y in points], atol=0.02)


def test_a_pointer_on_the_surface_moves_the_start(show):
    page = show(descent(rate=1.0, steps=200).to_html())
    assert "left for good" in said(page)
    box = page.locator(".plot > svg").bounding_box()
    page.locator(".plot").click(position={"x": box["width"] * 0.75, "y": box["height"] * 0.75})
    assert abs(float(page.get_by_label("start, across").input_value()) - 1.5) < 0.06
    assert abs(float(page.get_by_label("start, up").input_value()) + 1) < 0.06


# ---- sampling -----------------------------------------------------------------------------------------------------------


def chosen(z, tau, k, p):
    """What is drawn from, token by token in the caller's order, and the sums; written as the definitions read."""
    before = softmax(z, tau)
    order = sorted(range(len(z)), key=lambda j: (-z[j], j))
    kept = order[:k]
    mass, sums, nucleus = sum(before[j] for j in kept), {}, []
    for j in kept:
        so_far = sum(before[i] for i in kept[: kept.index(j)]) / mass
        sums[j] = so_far + before[j] / mass
        if p == 1 or so_far < p:
            nucleus.append(j)
    after = np.zeros(len(z))
    after[nucleus] = before[nucleus] / before[nucleus].sum()
    return order, after, sums


def counts_of(after, order, draws, seed):
    counts, state, F = np.zeros(len(order), int), seed, np.cumsum(after[order])
    for _ in range(draws):
        state = (1664525 * state + 1013904223) % 2**32
        counts[order[int(np.sum(F / F[-1] <= state / 2**32))]] += 1
    return counts


def table_of(page, V, shown):
    """Numbers of each row: before, after, sum (or what cut it), count, and the share."""
    lines = page.locator("tbody tr").evaluate_all("""all => all.map((tr) => [...tr.querySelectorAll("td")].map((td) =>
        td.querySelector("data")?.getAttribute("value") ?? td.textContent))""")
    assert len(lines) == min(shown, V) + (V > shown)
    return lines


@pytest.mark.parametrize("V, shown, seed", [(60, 12, 0), (1, 1, 2**32 - 1), *(pytest.param(*case, marks=MORE) for case in ((5, 12, 7), (200, 3, 12345)))])
def test_sampling_is_that_of_numpy(show, V, shown, seed):
    rng = np.random.default_rng(V)
    z = np.round(rng.normal(size=V) * 2, 3)
    z -= z.max()
    z[V // 2] = z[0]  # a tie
    page = show(sampling(z, [f"t{j}" for j in range(V)], shown=shown, seed=seed).to_html())
    page.get_by_role("button", name="draw 100", exact=True).press("Enter")
    draws = 100
    for label, keys in [(None, ()), ("temperature τ", ("ArrowLeft",) * 10), ("top-k", ("ArrowLeft",) * 3), ("top-p", ("PageDown",) * 2), ("top-k", ("Home",)), ("top-k", ("End",)), ("top-p", ("Home",)), ("top-p", ("End",)), ("temperature τ", ("End",)), ("top-p", ("ArrowLeft",))]:
        if label:
            press(page, label, *keys)
        if label == "top-k" and keys == ("End",):
            page.get_by_role("button", name="draw 1", exact=True).click()
            draws += 1
        tau = power(float(page.get_by_label("temperature τ").input_value()))
        p = float(page.get_by_label("top-p").input_value())
        k = int(re.sub(r"\D", "", page.get_by_label("top-k").get_attribute("aria-valuetext")))
        order, after, sums = chosen(z, tau, k, p)
        before, counts = softmax(z), counts_of(after, order, draws, seed)
        for line, j in zip(table_of(page, V, shown), order[:shown]):
            assert abs(float(line[0]) - before[j]) < 1e-12 and abs(float(line[1]) - after[j]) < 1e-12 and int(line[3]) == counts[j]
            want = sums[j] if after[j] > 0 else "cut by p" if j in sums else "cut by k"
            assert line[2] == want if isinstance(want, str) else abs(float(line[2]) - want) < 1e-12
        if V > shown:
            rest = [float(x) for x in table_of(page, V, shown)[-1]]
            assert np.allclose(rest, [before[order[shown:]].sum(), after[order[shown:]].sum(), 1, counts[order[shown:]].sum()], atol=1e-12)
        n, *entropies, apart = numbers(page, ".said")
        assert n == (after > 0).sum() and f"Drawn {draws}," in said(page)
        assert np.allclose(entropies, [-sum(x * np.log(x) for x in w if x > 0) for w in (before, after)], atol=1e-12)
        assert abs(apart - np.abs(after - counts / draws).max()) < 1e-12
        bars_to = float(re.search("up to ([\\d.]+)", page.locator("caption").inner_text()).group(1))
        assert np.abs(bars(page, ".after i") * bars_to - after[order[:shown]]).max() < 1e-4 and bars_to >= max(before.max(), after.max())
        ticks = page.locator(".track b").evaluate_all("all => all.map((b) => parseFloat(b.style.left) / 100)")
        assert np.allclose(ticks, np.minimum(counts[order[:shown]] / draws / bars_to, 1), atol=1e-4)


def test_what_is_cut_stands_in_one_line(show):
    for width in (820, 390):
        page = show(sampling(LOGITS, [f"t{j}" for j in range(60)], top_k=1).to_html(), viewport={"width": width, "height": 800})
        cells = page.locator("td:nth-child(4)").evaluate_all("(all) => all.map((one) => [one.parentElement.offsetHeight, one.scrollWidth - one.clientWidth])")
        assert len({tall for tall, _ in cells[:12]}) == 1 and not any(over for _, over in cells) and cells[0][0] < 36


def test_sampling_at_the_ends_of_the_pieces(show):
    """A sum that is top-p exactly reaches it; u at the end of a token's piece belongs to the next token."""
    page = show(sampling([0.0] * 4, list("abcd"), top_p=0.5).to_html())
    assert numbers(page, ".said")[0] == 2
    page = show(sampling([0.0, -45.0], list("ab")).to_html())  # top-p 1 cuts nothing, though the first sum rounds to 1
    assert numbers(page, ".said")[0] == 2
    seed = (2**31 - 1013904223) * pow(1664525, -1, 2**32) % 2**32  # the first u is 1/2
    page = show(sampling([0.0] * 2, list("ab"), seed=seed).to_html())
    page.get_by_role("button", name="draw 1", exact=True).click()
    assert "the last one b" in said(page)


def test_draws_approach_the_bars_and_are_forgotten(show):
    view = PICTURES["sampling"]()
    page = show(view.to_html())
    assert "Nothing drawn yet." in said(page)
    apart = []
    for name, times in (("draw 100", 1), ("draw 10000", 9), ("draw 10000", 5)):
        for _ in range(times):
            page.get_by_role("button", name=name, exact=True).click()
        apart.append(numbers(page, ".said")[-1])
    assert "Drawn 100000," in said(page)  # and no more
    assert apart[1] < 0.005 < apart[0] and page.get_by_label("top-p").input_value() == "0.9"
    page.get_by_role("button", name="forget").press("Space")
    assert "Nothing drawn yet." in said(page) and page.locator(".track b").count() == 0


# ---- what all share -----------------------------------------------------------------------------------------------------

# The colours that carry meaning, against the page: at least 3 to 1.
MARKS = r"""() => {
  const all = document.querySelector("main > [class*=tlm-]").firstChild.shadowRoot.querySelector(".all"), style = getComputedStyle(all);
  const light = (h) => { const [r, g, b] = [1, 3, 5].map((k) => parseInt(h.slice(k, k + 2), 16) / 255).map((v) => (v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4));
    return .2126 * r + .7152 * g + .0722 * b; };
  const ground = all.classList.contains("dark") ? "#16181c" : "#ffffff";
  return ["--one", "--two", "--soft"].map((name) => { const [a, b] = [light(style.getPropertyValue(name).trim()), light(ground)].sort((x, y) => x - y); return (b + .05) / (a + .05); });
}"""


@every_picture
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_contrast_in_both_themes(show, contrast, picture, theme):
    page = show(picture().to_html(), theme=theme)
    assert page.locator(".all.dark").count() == (theme == "dark")
    if page.get_by_label("step").count():
        press(page, "step", "ArrowRight")  # a marked row, fresh tokens
        page.wait_for_timeout(400)
    seen, faint = contrast(page)
    assert seen > 10 and not faint
    assert min(page.evaluate(MARKS)) >= 3


@every_picture
def test_theme_follows_the_page_at_once(show, picture):
    page = show(picture().to_html())
    ink = "getComputedStyle(document.querySelector('main > [class*=tlm-]').firstChild.shadowRoot.querySelector('.said')).color"
    assert page.evaluate(ink) == "rgb(31, 41, 51)"
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    page.locator(".all.dark").wait_for()
    assert page.evaluate(ink) == "rgb(232, 235, 240)"


def test_without_a_theme_the_ground_or_the_reader_decides(show):
    html = epsilon_spread().to_html()
    unthemed = "<script>delete document.documentElement.dataset.theme; document.body.removeAttribute('style')</script>"
    dark = "<style>@media (prefers-color-scheme: dark) { body { background: #111; color: #ddd } }</style>"
    for scheme in ("light", "dark"):
        page = show(unthemed + dark + html, color_scheme=scheme)
        assert page.locator(".all.dark").count() == (scheme == "dark")
        page = show(unthemed + "<style>body { color: oklch(0.5 0 0) }</style>" + html, color_scheme=scheme)  # a colour that is not read
        assert page.locator(".all.dark").count() == (scheme == "dark")
    page = show(f'<div style="background: #eee">{html}</div>', theme="dark")  # a light box on a dark page
    assert page.locator(".all").count() == 1 and page.locator(".all.dark").count() == 0


@every_picture
@pytest.mark.parametrize("width", [360, pytest.param(390, marks=MORE), 820])
def test_no_width_overflows(show, picture, width):
    page = show(picture().to_html(), viewport={"width": width, "height": 800})
    for control in page.locator("input[type=range]").all():
        assert control.bounding_box()["width"] > 240  # room for a finger
        for key in ("Home", "End"):
            control.press(key)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            sticking = page.evaluate("""(width) => [...document.querySelector("main > [class*=tlm-]").firstChild.shadowRoot.querySelectorAll(".all *")]
                .filter((e) => e.getBoundingClientRect().right > width - 8).map((e) => e.outerHTML.slice(0, 80))""", width)  # fmt: skip
            assert not sticking


@every_picture
def test_every_control_has_a_name_and_a_visible_focus(show, picture):
    page = show(picture().to_html() + AFTER)
    active = "document.querySelector('main > [class*=tlm-]').firstChild.shadowRoot.activeElement"
    stops = page.locator("button, input, select, [tabindex]").count() - 1
    for _ in range(stops):
        page.keyboard.press("Tab")
        assert page.evaluate(f"getComputedStyle({active}).outlineStyle") == "solid"
        name = page.evaluate(f"{active}.getAttribute('aria-label') ?? {active}.labels?.[0]?.textContent ?? {active}.textContent")
        assert name.strip()
        box = page.evaluate(f"(({{ width, height }}) => [width, height])({active}.getBoundingClientRect())")
        assert min(box) >= 24  # large enough for a finger
    page.keyboard.press("Tab")
    assert page.evaluate(active) is None and page.evaluate("document.activeElement.id") == "after"  # the reader gets out again


@every_picture
def test_words_are_a_live_region_and_change(show, picture):
    page = show(picture().to_html())
    assert page.locator(".said").get_attribute("role") == "status"
    control = page.locator("input[type=range]").first
    before, table = said(page), page.locator("tbody").first.inner_html()
    control.press("ArrowRight")
    assert said(page) != before and said(page).strip()
    assert page.locator("tbody").first.inner_html() != table


@every_picture
def test_without_scripts_there_is_a_still_picture(show, picture):
    page = show(picture().to_html(), java_script_enabled=False, viewport={"width": 390, "height": 800})
    assert page.locator("table tbody tr").count() > 1 and "With scripts" in page.locator("caption").inner_text()
    wide = page.locator("table").bounding_box()
    assert wide["x"] + wide["width"] <= 390


def test_touch(show):
    page = show(PICTURES["merges"]().to_html(), has_touch=True, is_mobile=True, viewport={"width": 390, "height": 800})
    page.get_by_role("button", name="next").tap()
    assert tokens(page) == STATES[1]
    page = show(epsilon_spread().to_html(), has_touch=True, is_mobile=True, viewport={"width": 390, "height": 800})
    before = said(page)
    page.locator(".plot").tap(position={"x": 60, "y": 90})
    assert said(page) != before


@every_picture
def test_a_finger_moves_a_slider(show, picture):
    page = show(picture().to_html(), has_touch=True, is_mobile=True, viewport={"width": 360, "height": 800})
    before, slider = said(page), page.locator("input[type=range]").first
    box = slider.bounding_box()
    slider.tap(position={"x": 0.97 * box["width"], "y": box["height"] / 2})
    assert said(page) != before


@pytest.mark.parametrize("wish", ["reduce", "no-preference"])
def test_who_wants_no_motion_gets_none(show, wish):
    page = show(PICTURES["merges"]().to_html(), reduced_motion=wish)
    page.get_by_role("button", name="next").click()
    moves = page.locator(".tokens .fresh").first.evaluate("node => getComputedStyle(node).animationName")
    assert (moves == "none") == (wish == "reduce")


@pytest.mark.parametrize("picture", ["temperature", "sampling"])
def test_bars_are_seen_where_the_readers_system_chooses_the_colours(show, picture):
    page = show(PICTURES[picture]().to_html())
    colours = "bars => bars.map((bar) => getComputedStyle(bar).backgroundColor)"
    before = page.locator(".track i").evaluate_all(colours)
    page.emulate_media(forced_colors="active")
    forced = page.locator(".track i").evaluate_all(colours)
    page.emulate_media(forced_colors="none")
    assert "rgb(0, 114, 178)" in before and forced == before


@every_picture
def test_twice_on_one_page_and_both_alive(show, picture):
    html = picture().to_html()
    page = show(html + html + PICTURES["clocks"]().to_html())
    assert page.locator(".said").count() == 3
    page.locator(".said").nth(1).wait_for()
    first, second = page.locator("input[type=range]").nth(0), page.locator(".all").nth(1).locator("input[type=range]").first
    before = page.locator(".said").nth(0).inner_text()
    second.press("ArrowRight")
    assert page.locator(".said").nth(0).inner_text() == before != page.locator(".said").nth(1).inner_text()
    first.press("ArrowRight")
    assert page.locator(".said").nth(0).inner_text() == page.locator(".said").nth(1).inner_text()


def test_hostile_strings_are_shown_and_never_run(show):
    nasty = ["</script><script>alert(1)</script>", '"><img src=x onerror=alert(2)>', "<!--", "\u202eabc", "' ${alert(3)} `", "אבג", "\u200d", "x" * 5000]
    title = "</div><svg onload=alert(4)>"
    page = show(merge_stepper([nasty, [nasty[0] + nasty[1], *nasty[2:]]], title=title).to_html(), viewport={"width": 390, "height": 800})
    shown = tokens(page)
    assert shown[:3] == nasty[:3] and shown[3] == "‹202E›abc" and shown[5] == nasty[5] and len(shown[7]) == 201
    page.get_by_role("button", name="next").click()
    assert tokens(page)[0] == nasty[0] + nasty[1] and page.locator(".title").inner_text() == title
    assert page.locator("img, script[src]").count() == 0 and page.evaluate("document.documentElement.scrollWidth") <= 390
    page = show(softmax_temperature(range(len(nasty)), labels=nasty, title=title).to_html(), viewport={"width": 390, "height": 800})
    assert page.locator("tbody bdi").all_inner_texts()[:3] == nasty[:3]
    assert page.locator("img").count() == 0 and page.evaluate("document.documentElement.scrollWidth") <= 390
    page = show(sampling([8.0 - j for j in range(len(nasty))], nasty, title=title).to_html(), viewport={"width": 390, "height": 800})
    page.get_by_role("button", name="draw 1", exact=True).click()
    assert page.locator("tbody bdi").all_inner_texts()[:3] == [text.replace(" ", "␣") for text in nasty[:3]] and page.locator(".title").inner_text() == title
    assert page.locator("img").count() == 0 and page.evaluate("document.documentElement.scrollWidth") <= 390
    for view in (clock_hands(4, title=title), epsilon_spread(title=title), descent(title=title)):
        page = show(view.to_html())
        assert page.locator(".title").inner_text() == title and page.locator("svg[onload]").count() == 0


SET = {"merges": ("step", 2), "clocks": ("offset", -7), "temperature": ("temperature", 0.5), "widths": ("width", 4), "epsilon": ("sigma", 0.25), "descent": ("rate", 0.05), "sampling": ("draws", 7)}


@pytest.mark.parametrize("kind", PICTURES)
def test_live_host_a_kernel_moves_the_picture_and_hears_of_choices(show, kind):
    """The module under a model that behaves as a widget's: set from outside, and saved when the reader chooses."""
    view, (name, value) = PICTURES[kind](), SET[kind]
    names = sorted(set(view.traits(picture=True)) - {"data"})
    state = json.dumps({name: getattr(view, name) for name in view.traits(picture=True)})
    page = show(
        '<div class="tlm-live" id="out"></div><script type="module">' + view._esm.replace("</", "<\\/") + f"""
        const state = {state}, hear = {{}}; window.saved = []; window.state = state;
        window.kernel = (key, value) => {{ state[key] = value; (hear["change:" + key] ?? []).forEach((call) => call()); }};
        window.clear = viewer.render({{ el: document.getElementById("out"), model: {{
          get: (key) => state[key], set: kernel, on: (event, call) => (hear[event] ??= []).push(call),
          save_changes: () => saved.push({json.dumps(names)}.map((name) => state[name])) }} }});</script>"""
    )  # fmt: skip
    before = said(page)
    page.evaluate(f"kernel('{name}', {value})")
    assert said(page) != before
    assert page.evaluate("saved") == []
    page.locator("input[type=range]").first.press("ArrowRight")
    assert len(page.evaluate("saved")) == 1
    for name, value in zip(names, page.evaluate("saved")[0]):
        setattr(view, name, value)  # what the page saves, the widget takes
    page.evaluate("clear()")


@pytest.fixture(scope="module")
def host(browser):
    """A tab whose every request is answered with the page in `host.body` and noted in `host.asked`."""
    context = browser.new_context()
    host = SimpleNamespace(body="", asked=[], page=context.new_page())

    def answer(route):
        host.asked.append(route.request.url)
        route.fulfill(content_type="text/html; charset=utf-8", body=host.body)

    context.route("**/*", answer)
    yield host
    context.close()


@every_picture
def test_over_http_one_request(host, picture):
    host.body = "<!doctype html><title>t</title><main>" + picture().to_html() + "</main>"
    host.asked.clear()
    host.page.goto("http://book.test/")
    assert host.page.locator(".said").inner_text().strip()
    assert [url for url in host.asked if not url.endswith("favicon.ico")] == ["http://book.test/"]


@every_picture
def test_print_hides_the_controls_and_is_light(show, picture):
    page = show(picture().to_html(), theme="dark")
    page.emulate_media(media="print")
    assert not page.locator("input[type=range]").first.is_visible() and page.locator("table").first.is_visible()
    assert page.locator(".said").evaluate("node => getComputedStyle(node).color") == "rgb(31, 41, 51)"

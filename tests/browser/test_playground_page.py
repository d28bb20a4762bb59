"""The model on the page: the same numbers as the specification with the same rounded weights, the same tokens, the same draws; and what a reader does there."""

import json
import random
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from tlm_book import Config, Tokenizer, TransformerLM, viewer
from tlm_book.inference import Sampler, quantiles
from tlm_book.positional_encoding import RopeScaling
from tlm_book.spec.feed_forward import feed_forward
from tlm_book.spec.multi_head import multi_head
from tlm_book.spec.normalization import layer_norm
from tlm_book.spec.transformer_lm import transformer_lm
from tlm_book.tokenization import GPT2_PATTERN, PATTERN
from tlm_book.viewer.playground.pack import pack, rounded

FOLDER = Path(viewer.__file__).parent
PARTS = [FOLDER / "sampling" / "choice.js", *(FOLDER / "playground" / f"{part}.js" for part in ("tokens", "model"))]
SIZES = {"d_model": 16, "d_ff": 24, "n_layers": 2, "n_heads": 4, "max_len": 40}
V = 50
CONFIGS = {
    "wojcik": Config(V, **SIZES), "gpt2": Config.gpt2(V, **SIZES), "lei_mao": Config.lei_mao(V, **SIZES), "vaswani": Config.vaswani(V, **SIZES),
    "becker_kahn": Config.becker_kahn(V, **SIZES), "agarwal": Config.agarwal(V, **SIZES), "lelarge": Config.lelarge(V, **{**SIZES, "n_heads": 1}),
    "parallel": Config(V, variant="parallel", **SIZES), "simplified": Config(V, variant="simplified", norm="none", **SIZES),
    "llama": Config.llama(V, **SIZES), "llama3": Config.llama(V, **SIZES, rope_scaling=RopeScaling("llama3", 8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_len=16)),
    "qwen2": Config.qwen2(V, n_kv_heads=2, **SIZES), "qwen3": Config.qwen3(V, n_kv_heads=2, d_head=6, **SIZES), "interleaved": Config.llama(V, rope_layout="interleaved", **SIZES),
    "mistral": Config.mistral(V, n_kv_heads=2, window=5, **SIZES), "mixtral": Config.mixtral(V, n_kv_heads=2, n_experts=4, **SIZES), "gemma": Config.gemma(V, n_kv_heads=1, d_head=6, **SIZES),
}  # fmt: skip


def model_of(config: Config, seed: int = 0) -> TransformerLM:
    torch.manual_seed(seed)
    model = TransformerLM(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.4)
    return model


@pytest.fixture
def computed(tabs):
    """computed(weights, settings, tokens, …) → logits and attention weights, from the page's own functions."""
    key, page, faults = tabs.take()
    page.goto("about:blank")
    page.add_script_tag(content="\n".join(part.read_text(encoding="utf-8") for part in PARTS) + "\nObject.assign(window, {unpack, forward, finish, lens, logits, Tokenizer});")

    def compute(file, settings, tokens, causal=True, off=(), first=0):
        return page.evaluate(
            """([file, settings, tokens, causal, off, first]) => {
                const model = { weights: unpack(file), settings }, how = { causal, off: new Set(off) };
                const before = first ? finish(forward(model, tokens.slice(0, first), how)) : null, now = finish(forward(model, tokens, how, before));
                const lists = (x) => (x.buffer ? [...x] : x.map(lists));
                return { logits: tokens.map((_, p) => [...logits(model, now, p)]), weights: lists(now.weights), lens: now.streams.map((s) => [...lens(model, s)[s.length - 1]]) };
            }""",
            [file, settings, [int(t) for t in tokens], causal, list(off), first],
        )

    compute.page = page
    yield compute
    assert not faults, faults
    tabs.give_back(key, page, faults)


@pytest.mark.parametrize("name, bits", [*((name, 8) for name in CONFIGS), ("wojcik", 32), ("vaswani", 32)])
def test_the_specification_in_javascript(computed, name, bits):
    model = model_of(CONFIGS[name])
    weights, settings = model.spec_weights(), model.spec_settings()
    tokens = np.random.default_rng(1).integers(0, V, 23)
    right = transformer_lm(tokens, **rounded(weights, bits), **settings)
    for first in (0, 9, 22):  # anew, and from the beginning of a text that is kept
        found = computed(pack(weights, bits), settings, tokens, first=first)
        np.testing.assert_allclose(found["logits"], right, rtol=0, atol=1e-9 * max(1, np.abs(right).max()))
        np.testing.assert_allclose(found["lens"], found["logits"], rtol=0, atol=1e-12)  # after the last block the lens reads what the model says
    with torch.no_grad():
        seen = model.double().attention_weights(torch.tensor(tokens)).numpy()  # blocks, heads, rows, columns
    found = computed(pack(weights, 32), settings, tokens)
    np.testing.assert_allclose(np.array(found["weights"]).transpose(1, 2, 0, 3), seen, rtol=0, atol=1e-5)


def test_heads_that_are_off_add_nothing(computed):
    config = CONFIGS["llama"]
    model = model_of(config)
    weights, tokens = rounded(model.spec_weights()), np.arange(20) % V
    file = pack(model.spec_weights())
    d = config.head_width
    for block, head in ((0, 2), (1, 0), (1, 3)):
        weights["blocks"][block]["CA"]["W_O"][head * d : (head + 1) * d] = 0
    right = transformer_lm(tokens, **weights, **model.spec_settings())
    found = computed(file, model.spec_settings(), tokens, off=["0.2", "1.0", "1.3"], first=7)
    np.testing.assert_allclose(found["logits"], right, rtol=0, atol=1e-9)
    whole = computed(file, model.spec_settings(), tokens)
    assert np.abs(np.array(whole["logits"]) - right).max() > 0.01


def test_without_the_mask(computed):
    config = CONFIGS["gpt2"]
    model = model_of(config)
    w, tokens = rounded(model.spec_weights()), np.arange(12)
    X = w["E"][tokens] + w["P"][:12]
    for block in w["blocks"]:
        X = X + multi_head(layer_norm(X, **block["N_ca"], eps=config.eps, eps_mode="inside"), **block["CA"], causal=False)
        X = X + feed_forward(layer_norm(X, **block["N_ff"], eps=config.eps, eps_mode="inside"), **block["FF"], activation="gelu_tanh")
    right = layer_norm(X, **w["N"], eps=config.eps, eps_mode="inside") @ w["Y"] + w["b"]
    found = computed(pack(model.spec_weights()), model.spec_settings(), tokens, causal=False, first=5)
    np.testing.assert_allclose(found["logits"], right, rtol=0, atol=1e-9)


def test_what_rounding_costs():
    """Each number is off by at most half a step of its row or column, and tied tables stay tied."""
    model = model_of(CONFIGS["gpt2"])
    weights = model.spec_weights()
    near = rounded(weights)
    for of, to, axis in ((weights["E"], near["E"], 1), (weights["blocks"][0]["FF"]["W_1"], near["blocks"][0]["FF"]["W_1"], 0)):
        step = np.abs(of).max(axis=axis, keepdims=True) / 127
        assert (np.abs(of - to) <= step / 2 * 1.001).all() and (of != to).any()
    assert "Y" not in pack(weights)["names"] and np.allclose(near["Y"], near["E"].T, atol=1e-6)
    without_biases = model_of(CONFIGS["llama"]).spec_weights()  # biases and gains keep 32 bits
    assert len(pack(without_biases)["bytes"]) < 0.36 * len(pack(without_biases, bits=32)["bytes"])


HOSTILE = [
    "", " ", "\n", "a", "It's the cat's  mat.\n\n  And?\t\tYes!", "ünïcödé ŝtrañge", "日本語のテキスト", "مرحبا بالعالم", "👩‍👩‍👧‍👦 family 🏳️‍🌈 flags", "\u202eright to left\u202c",
    "\x00\x01\x1c\x1d\x1f\x7f\x85\xa0\u2028\ufeff", "<|endoftext|>", "1234567890 3.14 ½ ²", "a\u0301 e\u0308", "'s 't ’s ’", "x" * 500, "\r\n\r\n", "𝔘𝔫𝔦 \U0010ffff",
]  # fmt: skip


@pytest.mark.parametrize("pattern", [PATTERN, GPT2_PATTERN], ids=["ours", "gpt2"])
def test_the_same_tokens(computed, pattern):
    tokenizer = Tokenizer.train([" ".join(HOSTILE), "the cat and the hat that sat " * 9], 256 + 40, pattern=pattern)
    rng = random.Random(0)
    texts = [*HOSTILE, *("".join(rng.choices("ab '’1é \n\t日👩\u2028\x1c\ufeff.", k=rng.randrange(40))) for _ in range(200))]
    vocabulary = playground(TransformerLM(Config(len(tokenizer), d_model=8, d_ff=8, n_layers=1, n_heads=1)), tokenizer).data["vocabulary"]
    found = computed.page.evaluate("([vocabulary, texts]) => { const t = new Tokenizer(vocabulary); return texts.map((x) => [t.encode(x), t.decode(t.encode(x))]); }",
                                   [vocabulary, texts])  # fmt: skip
    for text, (tokens, back) in zip(texts, found):
        assert tokens == tokenizer.encode(text), text
        assert back == text


# ---- what a reader does -------------------------------------------------------------------------------------------------


playground = partial(viewer.playground, begins=False)  # the tokens are those of the text alone


@pytest.fixture(scope="module")
def small():
    tokenizer = Tokenizer.train(["the cat sat on the mat and the dog sat on the rug. " * 5], 275)
    return model_of(Config.llama(275, **SIZES)), tokenizer


def ready(page, tokens: int):
    page.wait_for_selector(f'[data-ready="{tokens}"]', state="attached")
    return page


def opened(show, small, text="the cat sat on the", **options):
    page = show(playground(*small, text, **options).to_html())
    return ready(page, len(small[1].encode(text)) or 1)


def shares(page) -> dict[str, float]:
    rows = page.locator("table").first.locator("tbody tr")
    return {row.locator("th").inner_text(): float(row.locator("data").first.get_attribute("value")) for row in rows.all()}


@pytest.mark.parametrize("begins", [False, True])
def test_what_stands_there_is_what_the_model_says(show, small, begins):
    model, tokenizer = small
    tokens = tokenizer.encode("the cat sat on the")
    if begins:  # as `complete` does
        page, tokens = show(viewer.playground(model, tokenizer, "the cat sat on the").to_html()), [tokenizer.start, *tokens]
        ready(page, len(tokens))
    else:
        page = opened(show, small)
    z = transformer_lm(np.array(tokens), **rounded(model.spec_weights()), **model.spec_settings())[-1]
    p = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
    found = shares(page)
    assert list(found.values()) == pytest.approx(sorted(p, reverse=True)[:8], abs=1e-9)


def test_typing_changes_nothing_before_unless_the_mask_is_lifted(show, small):
    page = opened(show, small)
    box = page.get_by_label("text", exact=True)
    box.press_sequentially(" mat")
    ready(page, len(small[1].encode("the cat sat on the mat")))
    assert "changed the scores of 0 of" in page.locator(".said").inner_text() and not page.locator(".changed").count()
    page.get_by_label("causal mask").uncheck()
    ready(page, len(small[1].encode("the cat sat on the mat")))
    box.fill("the cat sat on the rug")
    ready(page, len(small[1].encode("the cat sat on the rug")))
    assert re.search(r"changed the scores of [1-9]\d* of", page.locator(".said").inner_text()) and page.locator(".changed").count()


def test_a_head_goes_off_and_on(show, small):
    page = opened(show, small)
    before = shares(page)
    head = page.get_by_role("button", name="block 1, head 2")
    head.click()
    page.get_by_role("button", name="block 1, head 2, off").wait_for()
    page.wait_for_function("document.querySelector('[data-tlm-playground] div').shadowRoot.querySelector('.said').textContent.includes('1 of 8 heads is off')")
    assert shares(page) != before
    page.get_by_role("button", name="block 1, head 2, off").press("Enter")
    page.wait_for_function("!document.querySelector('[data-tlm-playground] div').shadowRoot.querySelector('.said').textContent.includes('heads is off')")
    assert shares(page) == before


def test_all_heads_go_on_at_once(show, small):
    page = opened(show, small)
    before, on = shares(page), page.get_by_role("button", name="all heads on")
    assert not on.is_visible() and page.locator(".heads .number").all_inner_texts() == ["0", "1", "2", "3"]
    for name in ("block 0, head 1", "block 1, head 2"):
        page.get_by_role("button", name=name, exact=True).click()
        page.get_by_role("button", name=f"{name}, off").wait_for()
    on.click()
    page.get_by_role("button", name="block 1, head 2", exact=True).wait_for()
    assert not on.is_visible() and shares(page) == before


def test_top_k_can_be_set_by_hand(show, small):
    """Small numbers one by one, large ones in steps, and a number between two steps stays until the reader moves it."""
    page = opened(show, small, top_k=33)
    slider = page.get_by_label("top-k")
    assert slider.get_attribute("aria-valuetext") == "33"
    slider.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext") == "40"
    slider.press("End")
    assert slider.get_attribute("aria-valuetext") == "all 275"
    steps = [slider.press("Home") or slider.get_attribute("aria-valuetext")] + [slider.press("ArrowRight") or slider.get_attribute("aria-valuetext") for _ in range(4)]
    assert steps == ["1", "2", "3", "4", "5"] and int(slider.get_attribute("max")) < 40


INK = "(all) => all.map((one) => getComputedStyle(one).color)"


def test_letters_on_a_dark_ground_are_light(show, small):
    """The first row gives itself the weight 1: white on the light page's blue, black on the dark page's, at once when the page turns."""
    page = opened(show, small)
    page.locator(".strip button").first.click()
    page.get_by_role("button", name="block 0, head 0", exact=True).hover()
    letters = page.locator(".strip button")
    assert letters.evaluate_all(INK)[:2] == ["rgb(255, 255, 255)", "rgb(0, 0, 0)"]
    page.evaluate("document.documentElement.dataset.theme = 'dark'; document.body.style.background = '#121212'")
    page.locator(".all.dark").wait_for()
    assert letters.evaluate_all(INK)[:2] == ["rgb(0, 0, 0)", "rgb(255, 255, 255)"]


def test_where_the_readers_system_chooses_the_colours(show, small):
    """Bars are seen, and which token is chosen."""
    page = opened(show, small)
    page.locator(".strip button").nth(1).click()
    page.emulate_media(forced_colors="active")
    page.keyboard.press("Tab")  # the focus goes elsewhere
    bars = page.locator(".track i").evaluate_all("bars => bars.map((bar) => getComputedStyle(bar).backgroundColor)")
    lines = page.locator(".strip button:not(:focus-visible)").evaluate_all("all => all.map((one) => [one.ariaPressed, getComputedStyle(one).outlineStyle])")
    page.emulate_media(forced_colors="none")
    assert "rgb(0, 114, 178)" in bars and ["true", "solid"] in lines and {line for pressed, line in lines if pressed == "false"} == {"none"}


def test_tokens_and_heads_are_one_stop_each(show, small):
    """Of the tab key; arrows choose another token, and another head."""
    page = opened(show, small)
    focused = page.evaluate_handle("document.querySelector('textarea') ?? [...document.querySelectorAll('*')].map((one) => one.shadowRoot).find((root) => root)")
    where = "(root) => { const one = root.activeElement; return [one?.parentElement.className, one?.tagName, one?.textContent, one?.ariaLabel]; }"
    page.get_by_label("text", exact=True).focus()
    stops = []
    for _ in range(8):
        page.keyboard.press("Tab")
        stops.append(focused.evaluate(where)[0])
    assert [stops.count(name) for name in ("strip", "")] == [1, 1]
    page.locator('.strip button[tabindex="0"]').focus()
    for key, k in (("Home", 0), ("ArrowLeft", 0), ("ArrowRight", 1), ("End", -1)):
        page.keyboard.press(key)
        pressed = page.locator(".strip button").evaluate_all("all => all.map((one) => one.ariaPressed === 'true' && one.matches(':focus'))")
        assert pressed.count(True) == 1 and pressed[k]
    page.locator('.heads button[tabindex="0"]').focus()
    for key, name in (("Home", "block 0, head 0"), ("ArrowRight", "block 0, head 1"), ("ArrowDown", "block 1, head 1"), ("ArrowUp", "block 0, head 1")):
        page.keyboard.press(key)
        assert focused.evaluate(where)[3] == name == page.locator('.heads button[tabindex="0"]').get_attribute("aria-label")


def test_the_squares_of_an_empty_text_are_blank(show, small):
    page = opened(show, small)
    drawn = "(all) => all.map((one) => one.getContext('2d').getImageData(0, 0, one.width, one.height).data.some((x) => x))"
    assert all(page.locator(".heads canvas").evaluate_all(drawn))
    page.get_by_label("text", exact=True).fill("")
    ready(page, 1)
    assert not any(page.locator(".heads canvas").evaluate_all(drawn))
    assert page.locator(".said").inner_text() == "Type at the end of the text, or anywhere: each letter is computed at once."


def test_many_blocks_stand_in_two_halves_where_there_is_room(show, small):
    page = show(playground(model_of(Config.llama(275, **{**SIZES, "n_layers": 5})), small[1], "the cat").to_html())
    ready(page, len(small[1].encode("the cat")))
    places = "(all) => all.filter((one) => one.ariaLabel.endsWith('head 0')).map((one) => { const { x, y } = one.getBoundingClientRect(); return [x, y]; })"
    squares, tops = page.locator(".heads button"), page.locator(".heads .number:visible")
    (x, y), _, _, (beside, again), _ = squares.evaluate_all(places)
    assert again == y and beside > x + 200 and tops.count() == 8
    page.set_viewport_size({"width": 390, "height": 800})
    page.wait_for_function("document.querySelector('[data-tlm-playground] div').shadowRoot.querySelector('.heads:not(.wide)')")
    (x, y), *below = squares.evaluate_all(places)
    assert [place for place, _ in below] == [x] * 4 and np.ptp(np.diff([y, *(down for _, down in below)])) < 0.1 and tops.count() == 4


def test_the_end_of_what_is_written_is_in_sight(show):
    page = show(playground(model_of(Config.llama(257, **{**SIZES, "max_len": 400})), Tokenizer([]), "\n" * 30).to_html())
    ready(page, 30)
    box = "const box = document.querySelector('[data-tlm-playground] div').shadowRoot.querySelector('textarea')"
    assert page.evaluate(f"() => {{ {box}; return box.scrollTop; }}") == 0
    page.get_by_role("button", name="write on").click()
    page.wait_for_function(f"() => {{ {box}; return box.scrollTop > 0 && box.scrollTop + box.clientHeight >= box.scrollHeight - 1; }}")


SIGHT = """(strip) => { const { top, bottom } = strip.getBoundingClientRect();
  return [...strip.children].flatMap((one, p) => { const box = one.getBoundingClientRect(); return box.top >= top && box.bottom <= bottom ? [p] : []; }); }"""


def test_the_strip_follows_who_types(show):
    """Of a text longer than the strip, its end is in sight while the reader types; the page itself stays where it is."""
    tokenizer = Tokenizer([])
    page = show(playground(model_of(Config.llama(257, **{**SIZES, "max_len": 400})), tokenizer, "a" * 250).to_html(), viewport={"width": 360, "height": 700})
    ready(page, 250)
    strip, box = page.locator(".strip"), page.get_by_label("text", exact=True)
    assert page.locator(".strip").evaluate("(one) => one.scrollHeight > 2 * one.clientHeight") and 249 in strip.evaluate(SIGHT)
    box.press("Control+End")
    box.press_sequentially("bcdefghijk")
    ready(page, 260)
    where = page.evaluate("scrollY")
    assert 259 in strip.evaluate(SIGHT)
    box.press("Control+Home")
    box.press("ArrowRight")
    box.press("x")
    ready(page, 261)
    assert 1 in strip.evaluate(SIGHT) and page.evaluate("scrollY") <= where
    box.fill("b" * 300)
    ready(page, 300)
    assert 299 in strip.evaluate(SIGHT)


def test_what_is_read_of_a_text_too_long_is_said(show, small):
    """40 tokens of a long text; writing on forgets half of a full context; another text is no change of the one before."""
    page = opened(show, small)
    said = page.locator(".said")
    page.get_by_label("text", exact=True).fill("a dog " * 60)
    ready(page, 40)
    assert "Only the last 40 tokens are read." in said.inner_text() and "changed" not in said.inner_text()
    page.get_by_label("text", exact=True).fill("the cat")
    ready(page, len(small[1].encode("the cat")))
    assert "are read" not in said.inner_text()
    page.get_by_role("button", name="write on").click()
    page.get_by_text("The context was full: its first half is forgotten.").wait_for()


@pytest.mark.parametrize("choices", [{}, {"temperature": 2.0, "top_k": 20}, {"top_p": 0.7}], ids=["plain", "hot", "top-p"])
def test_it_writes_what_the_same_numbers_draw_in_python(show, small, choices):
    model, tokenizer = small
    page = opened(show, small, seed=5, **choices)
    page.get_by_role("button", name="write on").click()
    page.wait_for_function("(document.querySelector('[data-written]')?.dataset.written.split(' ').length ?? 0) >= 20")
    written = [int(t) for t in page.locator("[data-written]").get_attribute("data-written").split()]
    tokens, state = tokenizer.encode("the cat sat on the"), 5
    weights, sampler = rounded(model.spec_weights()), Sampler(**{"temperature": 0.8, **choices})
    for token in written[:20]:
        state = (1664525 * state + 1013904223) % 2**32
        z = torch.tensor(transformer_lm(np.array(tokens), **weights, **model.spec_settings())[-1:])
        assert token == int(quantiles(sampler.distribution(z, None), torch.tensor([state / 2**32], dtype=torch.float64)))
        tokens.append(token)


@pytest.mark.parametrize("text", ["", "👩‍👩‍👧‍👦 مرحبا", "<b>not bold</b> & <script>alert(1)</script>", "\u202eback", "the cat " * 1_250], ids=["empty", "exotic", "markup", "bidi", "ten thousand"])
def test_any_text(show, small, text):
    page = opened(show, small)
    page.get_by_label("text", exact=True).fill(text)
    n = min(len(small[1].encode(text)) or 1, SIZES["max_len"])
    ready(page, n)
    assert page.locator(".strip button").count() == n and len(shares(page)) == 8
    assert not page.locator("main b").count()


@pytest.mark.parametrize("theme, width", [("light", 360), ("dark", 1200)])
def test_fits_and_has_no_fault_that_axe_finds(show, small, theme, width):
    axe = pytest.importorskip("axe_playwright_python")
    page = show(playground(*small, "the cat sat", title="A model").to_html(), theme=theme, viewport={"width": width, "height": 900})
    page.wait_for_selector("[data-ready]", state="attached")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.evaluate(Path(axe.__file__).with_name("axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa']}).then((r) => r.violations.map((v) => [v.id, v.nodes.length, v.nodes[0].html]))")
    assert not found, json.dumps(found, indent=1)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_saved_page_has_the_colours_of_the_readers_system(tabs, small, tmp_path, scheme):
    key, page, faults = tabs.take()
    page.emulate_media(color_scheme=scheme)
    page.goto(playground(*small, "the cat").save(tmp_path / "mine.html").as_uri())
    page.wait_for_selector("[data-ready]", state="attached")
    assert page.locator(".all.dark").count() == (scheme == "dark")
    ground = page.evaluate("getComputedStyle(document.documentElement).colorScheme")
    assert ground == "light dark" and not faults
    tabs.give_back(key, page, faults)


# ---- where it is computed -----------------------------------------------------------------------------------------------


def state_of(page) -> list:
    """What stands on the page: the shares, the squares of all heads, and what each block's rows say."""
    squares = "[...document.querySelector('[data-tlm-playground] div').shadowRoot.querySelectorAll('canvas')].map((one) => one.toDataURL())"
    return [shares(page), page.evaluate(squares), page.locator("table").nth(1).inner_text(), page.locator(".strip").inner_text()]


def reads(page, small, text: str):
    page.get_by_label("text", exact=True).fill(text)
    return state_of(ready(page, len(small[1].encode(text))))


WAYS = [("the cat sat on the mat", True), ("a cat sat on the mat", False), ("a cat sat on the rug", False), ("the", True)]


REFUSALS = ['<meta http-equiv="Content-Security-Policy" content="worker-src \'none\'">', "<script>delete globalThis.Worker</script>"]


@pytest.mark.parametrize("refusal", REFUSALS, ids=["forbidden", "no such thing"])
def test_a_worker_computes_what_the_page_would(show, tabs, small, tmp_path, refusal):
    """In a worker where there may be one, else on the page: the same numbers, with the mask and without."""
    _, page, faults = tabs.take()
    text = "the cat sat on the"
    (tmp_path / "refused.html").write_text(refusal + playground(*small, text).to_html(), encoding="utf-8")
    page.goto((tmp_path / "refused.html").as_uri())
    ready(page, len(small[1].encode(text)))
    away = opened(show, small, text)
    assert len(away.workers) == 1 and not page.workers
    for text, causal in WAYS:
        for one in (page, away):
            one.get_by_label("causal mask").set_checked(causal)
        assert reads(page, small, text) == reads(away, small, text)
    assert all("worker-src" in fault for fault in faults)
    page.context.close()


def test_who_types_faster_than_it_computes_sees_the_last_text(show, small):
    """Texts that come while another is computed take its place; what was computed of them in part does no harm."""
    page = opened(show, small)
    box = "document.querySelector('[data-tlm-playground] div').shadowRoot.querySelector('textarea')"
    busy = "for (const until = performance.now() + rest; performance.now() < until;);"  # the page hears of a text that is done only after the next has come
    pause = f"if (rest > 5) {busy} else await new Promise((done) => setTimeout(done, rest));"
    type_all = f"async ([texts, rest]) => {{ for (const text of texts) {{ {box}.value = text; {box}.dispatchEvent(new Event('input')); {pause} }} }}"
    first = "([want]) => Math.abs(+document.querySelector('[data-tlm-playground] div').shadowRoot.querySelector('tbody data').value - want) < 1e-9"
    rng, weights = random.Random(1), rounded(small[0].spec_weights())
    for _ in range(20):
        texts = [" ".join(rng.choices(["the", "cat", "sat", "on", "mat", "and", "dog"], k=rng.randrange(1, 9))) for _ in range(rng.randrange(2, 6))]
        page.evaluate(type_all, [texts, rng.choice([0, 1, 5, 20])])
        tokens = small[1].encode(texts[-1])
        z = transformer_lm(np.array(tokens), **weights, **small[0].spec_settings())[-1]
        p = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
        page.wait_for_function(first, arg=[p.max()])
        stands = state_of(page)
        assert page.locator(".strip button").count() == len(tokens) and list(stands[0].values()) == pytest.approx(sorted(p, reverse=True)[:8], abs=1e-9)
        reads(page, small, "?")  # nothing of it is kept
        assert reads(page, small, texts[-1]) == stands


def test_a_picture_that_goes_takes_its_worker_along(show, small):
    view = playground(*small, "the cat")
    page = show(f"<script type=module>{view._esm.replace('export default viewer;', 'globalThis.viewer = viewer;')}</script><div id=here></div>")
    page.wait_for_function("globalThis.viewer")
    page.evaluate("(state) => { const el = document.getElementById('here'), model = { get: (key) => state[key], on: () => {} }; globalThis.goes = viewer.render({ el, model }); }", view._state())
    page.wait_for_selector("#here[data-ready]", state="attached")
    with page.workers[0].expect_event("close"):
        page.evaluate("goes()")

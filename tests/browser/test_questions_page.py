"""Stories, questions and answers on a page, and weights that are loaded when the reader asks for them."""

import functools
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import tlm_book
from tlm_book import Config, Tokenizer, TransformerLM, small_world
from tlm_book.spec.transformer_lm import transformer_lm
from tlm_book.viewer import playground, questions
from tlm_book.viewer.playground.pack import rounded
from tlm_book.viewer.playground.still import LONGEST_ANSWER
from tlm_book.viewer.shared import shared_file

STORIES = small_world.stories(3, seed=9, levels=(0, 1))


@pytest.fixture(scope="module")
def small():
    tokenizer = Tokenizer.train(["".join(small_world.stories(40, seed=1, levels=(0, 1)))], 420)
    torch.manual_seed(0)
    model = TransformerLM(Config.llama(len(tokenizer), d_model=16, d_ff=24, n_layers=2, n_heads=4, max_len=320)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.4)
    return model, tokenizer


def lazily(view, small, folder: Path) -> str:
    (folder / "_static").mkdir(exist_ok=True)
    (folder / "_static" / "tiny.js").write_text(shared_file("tiny", *small), encoding="utf-8")
    return view._repr_mimebundle_()[0]["text/html"]


@pytest.fixture
def asleep(show, small, tmp_path):
    """A page with both pictures, whose weights lie in a file beside it; nothing is touched."""
    views = [questions(*small, STORIES, file="tiny"), playground(*small, begins=True, stories=STORIES, file="tiny")]
    return lambda **kind: show("".join(lazily(view, small, tmp_path) for view in views), **kind)


def wake(page, word: str):
    page.locator(f"[data-tlm-{word}] .tlm-wake").click()
    page.wait_for_selector(f"[data-tlm-{word}][data-ready]")
    return page.locator(f"[data-tlm-{word}]")


def settled(page, act):
    """What the reader does, and the wait until it is answered."""
    page.evaluate("document.querySelectorAll('[data-ready]').forEach((el) => { delete el.dataset.ready; delete el.dataset.answered; })")
    act()
    page.wait_for_selector("[data-ready]")


def parts(story: str) -> tuple[str, list[list[str]]]:
    told, *lines = story.splitlines()
    return told, [[line[: line.index("?") + 1], line[line.index("?") + 2 :]] for line in lines]


@functools.cache
def likeliest(small, text: str, off: tuple[int, ...] = ()) -> str:
    """The answer by the specification, with the weights that the page has."""
    model, tokenizer = small
    weights, d = rounded(model.spec_weights()), model.config.head_width
    for head in off:
        weights["blocks"][head // 4]["CA"]["W_O"][(head % 4) * d : (head % 4 + 1) * d] = 0
    tokens = [tokenizer.start, *tokenizer.encode(text)]
    asked = len(tokens)
    while len(tokens) < asked + LONGEST_ANSWER:
        following = int(transformer_lm(np.array(tokens), **weights, **model.spec_settings())[-1].argmax())
        if following == tokenizer.start or b"\n" in tokenizer.token_bytes(following):
            break
        tokens.append(following)
        if b"." in tokenizer.token_bytes(following):
            break
    return tokenizer.decode(tokens[asked:]).strip()


def says(answer: str) -> str:
    return f"The model answers: {answer}" if any(map(str.isalnum, answer)) else "The model answers nothing."


def test_nothing_is_loaded_before_the_reader_asks(asleep):
    page = asleep()
    page.mouse.wheel(0, 500)
    page.mouse.move(100, 50)
    loaded = "[...document.scripts].filter((one) => one.src).map((one) => one.src)"
    assert page.evaluate("globalThis.tlmPictures") is None and page.evaluate(loaded) == []
    assert page.evaluate("[...document.querySelectorAll('*')].every((one) => !one.shadowRoot)")
    told, asked = parts(STORIES[0])
    assert told in page.locator("main").inner_text() and asked[0][0] in page.locator("main").inner_text()
    wake(page, "questions")
    wake(page, "playground")
    assert [Path(name).name for name in page.evaluate(loaded)] == ["tiny.js"]  # one file for both, loaded once


def test_without_the_file_the_still_picture_stays(tabs, small, tmp_path):
    key, page, faults = tabs.take()
    (tmp_path / "page.html").write_text(f"<main>{questions(*small, STORIES, file='nothing')._repr_mimebundle_()[0]['text/html']}</main>", encoding="utf-8")
    page.goto((tmp_path / "page.html").as_uri())
    page.locator(".tlm-wake").click()
    page.get_by_text("run this cell to wake it").wait_for()
    assert parts(STORIES[0])[0] in page.locator("main").inner_text()
    assert faults.pop().endswith("ERR_FILE_NOT_FOUND") and not faults
    tabs.give_back(key, page, faults)


def test_a_file_that_did_not_load_can_be_asked_for_again(tabs, small, tmp_path):
    """The reader hears that it did not, and the focus stays at the button."""
    key, page, faults = tabs.take()
    (tmp_path / "page.html").write_text(f"<main>{lazily(questions(*small, STORIES, file='tiny'), small, tmp_path)}</main>", encoding="utf-8")
    (tmp_path / "_static" / "tiny.js").rename(tmp_path / "later.js")
    page.goto((tmp_path / "page.html").as_uri())
    page.locator(".tlm-wake").press("Enter")
    page.get_by_role("status").get_by_text("try again").wait_for()
    assert page.locator(".tlm-wake").inner_text().startswith("Wake the model") and page.evaluate("document.activeElement.className") == "tlm-wake"
    (tmp_path / "later.js").rename(tmp_path / "_static" / "tiny.js")
    wake(page, "questions")
    assert faults.pop().endswith("ERR_FILE_NOT_FOUND") and not faults
    tabs.give_back(key, page, faults)


def test_each_prepared_question(asleep, small):
    page = asleep()
    picture = wake(page, "questions")
    for story in (*STORIES, STORIES[0]):
        told, asked = parts(story)
        assert picture.locator(".told").inner_text() == told
        for question, right in asked:
            if picture.get_by_label("question", exact=True).input_value() != question:
                settled(page, picture.get_by_role("button", name=question, exact=True).click)
            answer = likeliest(small, f"{told}\n{question}")
            said = picture.locator(".reply").inner_text()
            assert said == f"{says(answer)} The story says: {right} " + ("✓ right" if answer == right else "✗ not so")
        settled(page, picture.get_by_role("button", name="another story").click)


def test_the_readers_own_story_and_question(asleep, small):
    page = asleep()
    picture = wake(page, "questions")
    picture.get_by_role("button", name="edit the story").click()
    own = "Anna was at the mill. 👩‍👩‍👧 مرحبا <b>& so on</b>"
    settled(page, lambda: picture.get_by_label("story", exact=True).fill(own))
    settled(page, lambda: picture.get_by_label("question", exact=True).fill("Where was Anna?"))
    assert picture.locator(".told").inner_text() == own and not picture.locator(".told b").count()
    assert picture.locator(".reply").inner_text() == says(likeliest(small, own + "\nWhere was Anna?"))
    question = parts(STORIES[0])[1][-1][0]
    settled(page, picture.get_by_role("button", name=question, exact=True).click)
    assert picture.locator(".told").inner_text() == own
    assert picture.locator(".reply").inner_text() == says(likeliest(small, f"{own}\n{question}"))
    settled(page, picture.get_by_role("button", name="back to the story").click)
    assert picture.locator(".told").inner_text() == parts(STORIES[0])[0] and "The story says" in picture.locator(".reply").inner_text()
    for text in ("", "x " * 5_000):
        settled(page, lambda text=text: picture.get_by_label("story", exact=True).fill(text))
        assert picture.locator(".reply").inner_text().startswith("The model answers")


def test_the_head_that_found_it_goes_off(asleep, small):
    page = asleep()
    picture = wake(page, "questions")
    names = []
    for story in STORIES:
        for question, _ in parts(story)[1]:
            settled(page, picture.get_by_role("button", name=question, exact=True).click) if picture.get_by_label("question", exact=True).input_value() != question else None
            off = picture.get_by_role("button", name="switch this head off")
            if off.count():
                names.append(question)
                words = picture.locator(".finder").inner_text()
                block, head = int(words.split("block ")[1][0]), int(words.split("head ")[1][0])
                settled(page, off.click)
                assert picture.get_by_role("button", name=f"head {head} of block {block} is off: switch it on").count() == 1
                text = f"{parts(story)[0]}\n{question}"
                assert says(likeliest(small, text, (4 * block + head,))) in picture.locator(".reply").inner_text()
                settled(page, picture.get_by_role("button", name="switch it on").click)
                assert says(likeliest(small, text)) in picture.locator(".reply").inner_text()
        settled(page, picture.get_by_role("button", name="another story").click)
    assert names  # of so many answers, one holds a word of its story


@pytest.mark.parametrize("word, box", [("questions", "input[type=text]"), ("playground", "textarea")])
def test_an_answer_to_the_text_before_is_pale(asleep, word, box):
    page = asleep()
    picture = wake(page, word)
    picture.locator(".reply:not(.waits):not(:empty)").wait_for()
    pale = f"""(el) => {{ const root = el.firstElementChild.shadowRoot, box = root.querySelector("{box}");
      box.value = box.value.replace(/.\\?$/, "x?"); box.dispatchEvent(new Event("input"));
      return getComputedStyle(root.querySelector(".reply")).transitionDelay + root.querySelector(".reply").className; }}"""
    assert picture.evaluate(pale) == "0.15sreply waits"
    picture.locator(".reply:not(.waits)").wait_for()


def test_an_answer_without_a_word_is_none(show):
    """Neither is a full stop alone."""
    source = "".join((Path(tlm_book.viewer.__file__).parent / part).read_text(encoding="utf-8") for part in ("base.js", "playground/asking.js"))
    read = "const line = replyLine({ get: () => [] }); return ['At the mill.', '7', '.', ''].map((text) => { line.show(text, undefined, null); return line.node.textContent; });"
    found = show("<p></p>").evaluate(f"new Function({json.dumps(source + read)})()")
    assert found == [says(answer) for answer in ("At the mill.", "7", ".", "")] and found[2] == "The model answers nothing."


def test_the_playground_answers_what_stands_at_its_end(asleep, small):
    page = asleep()
    picture = wake(page, "playground")
    (_, asked), (other, more) = parts(STORIES[0]), parts(STORIES[1])
    page.wait_for_selector("[data-answered]")
    assert f"The story says: {asked[0][1]}" in picture.locator(".reply").inner_text()
    settled(page, picture.get_by_role("button", name="another story").click)
    assert picture.get_by_label("text", exact=True).input_value() == f"{other}\n{more[0][0]}"
    picture.get_by_label("text", exact=True).fill("Anna was at the mill.\nWhere was Anna?")
    page.wait_for_function("document.querySelector('[data-tlm-playground] div').shadowRoot.querySelector('.reply').textContent.startsWith('The model answers')")
    picture.get_by_text(says(likeliest(small, "Anna was at the mill.\nWhere was Anna?")), exact=True).wait_for()
    question = more[-1][0]  # the questions stay, of the reader's own story, too
    picture.get_by_role("button", name=question, exact=True).click()
    picture.get_by_text(says(likeliest(small, f"Anna was at the mill.\n{question}")), exact=True).wait_for()
    assert picture.get_by_label("text", exact=True).input_value() == f"Anna was at the mill.\n{question}"
    assert "The story says" not in picture.locator(".reply").inner_text()
    lines = "Anna was at the mill.\nBen was at the hut."  # no line of the reader's own is lost
    picture.get_by_label("text", exact=True).fill(lines)
    picture.get_by_role("button", name=question, exact=True).click()
    assert picture.get_by_label("text", exact=True).input_value() == f"{lines}\n{question}"


def test_keys_alone(asleep):
    page = asleep()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent").startswith("Wake the model (0.")
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-tlm-questions][data-ready]")
    focus = "document.activeElement.shadowRoot.activeElement"
    seen = []
    for _ in range(8):
        seen.append(page.evaluate(f"{focus}?.textContent || {focus}?.getAttribute('aria-label')"))
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.shadowRoot === null"):
            break
    assert seen[0] == parts(STORIES[0])[1][0][0] and "edit the story" in seen


@pytest.mark.parametrize("theme, width", [("light", 1200), ("dark", 360), *(pytest.param(*case, marks=pytest.mark.long) for case in (("light", 360), ("dark", 1200)))])
def test_fits_and_has_no_fault_that_axe_finds(asleep, theme, width):
    axe = pytest.importorskip("axe_playwright_python")
    page = asleep(theme=theme, viewport={"width": width, "height": 900})
    page.evaluate(Path(axe.__file__).with_name("axe.min.js").read_text(encoding="utf-8"))
    look = "axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa']}).then((r) => r.violations.map((v) => [v.id, v.nodes.length, v.nodes[0].html]))"
    for step in (lambda: None, lambda: (wake(page, "questions"), wake(page, "playground"), page.wait_for_selector("[data-answered]"))):
        step()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        found = page.evaluate(look)
        assert not found, json.dumps(found, indent=1)


needs_its_model = pytest.mark.skipif(not (Path(tlm_book.__file__).parent / "data" / "world").is_dir(), reason="the small world's model is not in src/tlm_book/data/world")


@needs_its_model
def test_the_small_worlds_own_model(show, tmp_path):
    """Its file is as light as promised, and its answers are those of the specification with the rounded weights."""
    pair = small_world.model()
    text = shared_file("tiny", *pair)
    assert len(text.encode()) <= 1_500_000
    (tmp_path / "_static").mkdir()
    (tmp_path / "_static" / "tiny.js").write_text(text, encoding="utf-8")
    page = show(questions(*pair, STORIES, file="tiny")._repr_mimebundle_()[0]["text/html"])
    picture = wake(page, "questions")
    for question, _ in parts(STORIES[0])[1]:
        if picture.get_by_label("question", exact=True).input_value() != question:
            settled(page, picture.get_by_role("button", name=question, exact=True).click)
        answer = likeliest(pair, f"{parts(STORIES[0])[0]}\n{question}")
        assert picture.locator(".reply").inner_text().startswith(f"{says(answer)} The story says")


@pytest.fixture
def own(show, tmp_path):
    """A page with a picture of the small world's own model, awake."""
    def opened(view, word: str, **kind):
        (tmp_path / "_static").mkdir(exist_ok=True)
        (tmp_path / "_static" / "tiny.js").write_text(shared_file("tiny", *small_world.model()), encoding="utf-8")
        page = show(view._repr_mimebundle_()[0]["text/html"], **kind)
        return page, wake(page, word)

    return opened


def answered(page, act):
    settled(page, act)
    page.wait_for_selector("[data-answered]")


(TALE,) = small_world.stories(1, seed=37, levels=(0, 1))  # the playground's first
PURSE = "Igor and Robert often came to the hut, the mountain and the square. In the hut was Igor. Robert was on the square. Robert had a purse. Robert had an axe. There was a book in the hut. The purse was with Robert. Robert was on the square then. Robert put the axe into the purse. Robert went to the mountain."  # fmt: skip


@needs_its_model
def test_an_answer_ends_with_its_sentence_and_the_next_head_is_named(own):
    """With the head that found it switched off, the model goes on after the right answer; a head that is off is not named; a new story has all."""
    told = f"{PURSE}\nWhat was in the purse? The axe.\nWhere was Robert? On the mountain.\n"
    page, picture = own(questions(*small_world.model(), [told, STORIES[0]], file="tiny"), "questions")
    names = []
    for _ in range(2):
        words = picture.locator(".finder").inner_text()
        names.append((words.split("block ")[1][0], words.split("head ")[1][0]))
        settled(page, picture.get_by_role("button", name="switch this head off").click)
        if not names[1:]:
            assert picture.locator(".reply").inner_text() == "The model answers: The axe. The story says: The axe. ✓ right"
        assert page.evaluate("document.activeElement.shadowRoot.activeElement.tagName") == "BUTTON"  # the keyboard stays where it was
    assert names[0] != names[1]
    settled(page, picture.get_by_role("button", name="2 heads are off: switch them on").click)
    settled(page, picture.get_by_role("button", name="switch this head off").click)
    settled(page, picture.get_by_role("button", name="another story").click)
    assert not picture.get_by_role("button", name="switch it on").count()


@needs_its_model
def test_the_playground_wakes_with_the_named_head_chosen(own):
    """The word at which the head looked is shaded and in sight; the reader's choice of a head takes its place, until the next question."""
    page, picture = own(playground(*small_world.model(), begins=True, stories=[TALE], file="tiny"), "playground", viewport={"width": 360, "height": 800})
    page.wait_for_selector("[data-answered]")
    seen = "([...document.querySelector('[data-tlm-playground] div').shadowRoot.querySelectorAll('.strip data')].map((one) => one.hidden ? 0 : +one.value))"
    words = picture.locator(".finder").inner_text()
    word, name = words.split("“")[1].split("”")[0], f"block {words.split('block ')[1][0]}, head {words.split('head ')[1][0]}"
    assert picture.locator(".heads .chosen").get_attribute("aria-label") == name and word in picture.locator("p.soft").inner_text()
    weights = page.evaluate(seen)
    darkest = picture.locator(".strip button").nth(weights.index(max(weights)))
    assert word in darkest.inner_text() and max(weights) > 0.3
    assert page.evaluate("(node) => { const a = node.getBoundingClientRect(), b = node.parentElement.getBoundingClientRect(); return a.top >= b.top && a.bottom <= b.bottom; }", darkest.element_handle())
    rows = """(strip) => { const { top, bottom } = strip.getBoundingClientRect(), boxes = [...strip.children].map((one) => [one, one.getBoundingClientRect()]);
      const seen = boxes.filter(([, box]) => box.bottom > top + 0.5 && box.top < bottom - 0.5); // no row is cut, and the marked token is among them
      return [seen.every(([, box]) => box.top >= top + 2 && box.bottom <= bottom - 2), seen.some(([one]) => one.ariaPressed === "true"), strip.scrollHeight > strip.clientHeight]; }"""
    assert picture.locator(".strip").evaluate(rows) == [True, True, True]
    picture.get_by_role("button", name="block 0, head 0", exact=True).hover()
    assert picture.locator(".heads .chosen").get_attribute("aria-label") == "block 0, head 0" and page.evaluate(seen) != weights
    page.mouse.move(0, 0)
    answered(page, picture.get_by_role("button", name=parts(TALE)[1][1][0], exact=True).click)
    answered(page, picture.get_by_role("button", name=parts(TALE)[1][0][0], exact=True).click)
    assert page.evaluate(seen) == weights and picture.locator(".heads .chosen").get_attribute("aria-label") == name


def test_of_a_long_story_the_end_is_told_and_that_is_said(asleep, small):
    """On the page, and in the still picture before it wakes."""
    page = asleep(viewport={"width": 360, "height": 800})
    picture, (told, asked) = wake(page, "questions"), parts(STORIES[0])
    long = "Lars was in the shed. " * 120 + told
    assert not picture.locator(".cut").inner_text() and picture.locator(".cut").bounding_box() is None
    picture.get_by_role("button", name="edit the story").click()
    settled(page, lambda: picture.get_by_label("story", exact=True).fill(long))
    assert picture.locator(".cut").inner_text() == "Only the last 279 tokens are read."
    assert long.endswith(picture.locator(".told").inner_text()) and len(picture.locator(".told").inner_text()) > len(told)
    still = questions(*small, [f"{long}\n{asked[0][0]} {asked[0][1]}\n"]).data["still"]
    assert ">Only the last 279 tokens are read.<" in still
    settled(page, lambda: picture.get_by_label("story", exact=True).fill(told))
    assert not picture.locator(".cut").inner_text() and "are read" not in questions(*small, STORIES).data["still"]


@needs_its_model
def test_a_text_too_long_is_said_to_be_and_leaves_room_for_the_answer(own):
    page, picture = own(playground(*small_world.model(), begins=True, stories=STORIES, file="tiny"), "playground")
    picture.get_by_label("text", exact=True).fill("Lars was in the shed. " * 120)
    picture.get_by_text("Only the last 319 tokens are read.").wait_for()
    picture.get_by_label("text", exact=True).fill("Lars was in the shed. " * 120 + "\nWhere was Lars?")
    picture.get_by_text("The model answers: In the shed.", exact=True).wait_for()
    assert "Only the last 279 tokens are read." in picture.locator(".said").inner_text()
    answered(page, picture.get_by_role("button", name="back to the story").click)
    assert "are read" not in picture.locator(".said").inner_text()


def test_a_word_of_several_bytes_is_found_and_shown(show):
    """The page has tokens as bytes."""
    texts = [text.encode().decode("latin-1") for text in (" un", " étudiant", " Étudiant", ".")]
    source = (Path(tlm_book.viewer.__file__).parent / "playground" / "asking.js").read_text(encoding="utf-8")
    weights = np.full((1, 1, 5, 5), 0.2).transpose(2, 0, 1, 3).tolist()
    found = show("<p></p>").evaluate(f"new Function('given', {json.dumps(source + '; return finder(...given, new Set());')})", [{"tokens": [0, 2, 3, 0, 1], "weights": weights}, 3, texts])
    assert found["word"] == "étudiant" and (found["row"], found["block"], found["head"]) == (3, 0, 0)

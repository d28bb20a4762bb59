"""The built site in a real browser: every page, over http and as a file.

Build it first: `make book`. Nothing may be asked of another host, nothing may be logged as an error, all mathematics
must be set, no picture may lack its text, no page may be wider than a phone, every statement must be a numbered box.
No page may weigh more than 1.5 MB with all that it loads, or have a fault that axe-core finds.
Every page is opened once, in a browser that has the shared files already and remembers no choice.
"""

import functools
import http.server
import json
import os
import re
import shutil
import threading
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "_build" / "html"
TOC = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
FILES = [TOC["root"]] + [chapter["file"] for part in TOC["parts"] for chapter in part["chapters"]]
NOTEBOOKS = [file for file in FILES if (ROOT / f"{file}.ipynb").exists()]  # some pages of the appendix are plain Markdown
CHAPTERS = [chapter["file"] for part in TOC["parts"] if part["caption"] != "Appendix" for chapter in part["chapters"]]
NUMBERS = {file: number for number, file in enumerate(FILES)}  # the landing page is 0, chapters count from 1
PHONE = {"width": 360, "height": 740}
WIDE = {"width": 1280, "height": 900}
SCHEMES = ("light", "dark")
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa"]
ANCHORED_QUOTE = re.compile(r"^((?:<a id=\"[^\"]+\"></a>\s*)+)\n\s*> \*\*", re.MULTILINE)

# What a reader would see of mathematics that was not set, and what is wrong on the page, found in the page itself.
FAULTS = r"""() => {
  const faults = [];
  const article = document.querySelector("article");
  const walker = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (node.parentElement.closest("pre, code, script, style, .katex")) continue;
    if (/\|\s*:?-{3,}/.test(node.data)) faults.push("table as text: " + node.data.trim().slice(0, 80));
    if (node.parentElement.closest(".output")) continue;
    if (/\$[^$]+\$|\$\$|\\\(|\\\[|\\(frac|mathbb|sum|text|begin|operatorname|mathrm|le|in)\b/.test(node.data))
      faults.push("mathematics as text: " + node.data.trim().slice(0, 80));
  }
  for (const box of document.querySelectorAll(".math"))
    if (box.querySelectorAll(":scope > .katex, :scope > .katex-display").length !== 1 || box.childNodes.length !== 1)
      faults.push("mathematics not set: " + box.textContent.slice(0, 80));
  for (const error of document.querySelectorAll(".katex-error"))
    faults.push("TeX error: " + error.title.slice(0, 160));
  for (const image of document.querySelectorAll("article img")) {
    if (!image.alt.trim()) faults.push("picture without text: " + image.src);
    else if (/_build|^\S*\.(png|svg|jpe?g)$/.test(image.alt)) faults.push("a path is no text: " + image.alt);
    if (!image.complete || image.naturalWidth === 0) faults.push("picture not loaded: " + image.src);
  }
  for (const label of document.querySelectorAll(".statement-label"))
    if (!/^[A-Z][a-z]+ \d+\.\d+$/.test(label.textContent)) faults.push("box without a number: " + label.textContent);
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  for (const id of new Set(ids.filter((id, i) => ids.indexOf(id) !== i))) faults.push("id used twice: " + id);
  return faults;
}"""


def skip_or_fail(reason):
    """What a test needs is missing: a failure in CI, a visible skip elsewhere."""
    if os.environ.get("CI", "").lower() in ("true", "1"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session", autouse=True)
def a_browser_is_there():
    """Asked before the shared fixture `browser`, which only skips."""
    if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"))):
        skip_or_fail("no chromium, chromium-browser or google-chrome on the path")


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="session")
def site():
    """The address of a server for `_build/html` on a free port."""
    missing = [file for file in FILES if not (SITE / f"{file}.html").is_file()]
    if missing:
        skip_or_fail(f"the site is not built (no {missing[0]}.html in _build/html): run `make book`")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=SITE))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


class Tab:
    """A tab that shows one page after the other, and what is wrong with the page that it shows."""

    def __init__(self, context):
        self.faults, self.home = [], ""
        self.page = context.new_page()
        self.page.on("console", lambda m: m.type in ("error", "warning") and self.faults.append(f"console {m.type}: {m.text}"))
        self.page.on("pageerror", lambda error: self.faults.append(f"script: {error}"))
        self.page.on("requestfailed", lambda request: self.faults.append(f"failed: {request.url} {request.failure}"))
        self.page.on("response", lambda r: r.status >= 400 and self.faults.append(f"{r.status}: {r.url}"))
        self.page.on("request", self.only_ours)

    def only_ours(self, request):
        if not request.url.startswith((self.home, "data:", "blob:")):
            self.faults.append(f"foreign request: {request.url}")


@pytest.fixture(scope="module")
def reader(browser):
    """Two tabs of one context: a file that many pages load is fetched once. What a page would remember of a reader's choice is forgotten."""
    context = browser.new_context()
    context.add_init_script("try { localStorage.clear(); } catch { /* an empty page has none */ }")
    yield {"phone": Tab(context), "wide": Tab(context)}
    context.close()


def open_page(reader, address, home, tab="wide", viewport=WIDE, color_scheme="light"):
    """Open a page in place of the one before and wait until its mathematics is set; return it and a list to which every fault is added."""
    tab = reader[tab]
    tab.page.goto("about:blank")  # what the page before still had to say, it has said
    tab.page.mouse.move(0, 0)
    tab.page.set_viewport_size(viewport)
    tab.page.emulate_media(color_scheme=color_scheme)
    tab.faults, tab.home = [], home
    tab.page.goto(address)
    tab.page.wait_for_function("document.documentElement.dataset.ready === 'true'", timeout=60_000)
    return tab.page, tab.faults


def statements_of(file):
    """The ids of the statements in a chapter's notebook: anchors directly before a block quote in bold."""
    if file not in NOTEBOOKS:
        return []
    cells = json.loads((ROOT / f"{file}.ipynb").read_text(encoding="utf-8"))["cells"]
    text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return [name for line in ANCHORED_QUOTE.findall(text) for name in re.findall(r'id="([^"]+)"', line)]


def lightest(files, words):
    """Of these pages those that hold the words, the quickest to show first."""
    pages = {file: (SITE / f"{file}.html").read_text(encoding="utf-8") for file in files}
    return sorted((file for file in files if words in pages[file]), key=lambda file: len(pages[file]))


def formulas_of(page_file):
    """How many formulas a page holds before any script has run."""
    return len(re.findall(r'<(?:span|div)\b[^>]*\bclass="(?:[\w-]+ )*math ', page_file.read_text(encoding="utf-8")))


@functools.cache
def places_in(target):
    """The ids of a file of the site."""
    return frozenset(re.findall(r'id="([^"]*)"', target.read_text(encoding="utf-8")))


def link_faults(page, site):
    """Links of the page into the site whose file or place in the file is not there."""
    faults = []
    for link in set(page.eval_on_selector_all("a[href]", "links => links.map((link) => new URL(link.getAttribute('href'), link.baseURI).href)")):
        if not link.startswith(site):
            continue
        name, _, place = link.removeprefix(site).partition("#")
        target = SITE / unquote(name).strip("/")
        if not target.is_file():
            faults.append(f"link to no file: {link}")
        elif place and unquote(place) not in places_in(target):
            faults.append(f"link to no place: {link}")
    return faults


def width_faults(page):
    """A page wider than its window, with the elements that stick out."""
    return page.evaluate("""() => {
      const width = document.documentElement.clientWidth;
      if (document.documentElement.scrollWidth <= width) return [];
      const out = [...document.querySelectorAll("article *")].filter((e) => e.getBoundingClientRect().right > width + 1 && !e.closest("pre, table, .katex-display"));
      return ["wider than the window: " + out.slice(0, 3).map((e) => e.tagName + "." + e.className).join(", ")];
    }""")


# The kind of an element is its place among kinds of elements.
KIND = """const kind = (e) => (e ? `${kind(e.parentElement)} ${e.tagName}.${e.getAttribute("class")}.${e.getAttribute("style")}` : "");"""
# Thousands of boxes that are alike keep axe-core busy for a minute: of formulas of one kind two keep their boxes, all keep a text; of the code, one span of
# each colour is kept.
FEWER = """() => {
  KIND
  const formulas = {}, spans = new Set();
  for (const formula of document.querySelectorAll(".katex")) {
    const k = kind(formula);
    formulas[k] = (formulas[k] ?? 0) + 1;
    if (formulas[k] > 2) formula.replaceWith("formula");
  }
  for (const formula of document.querySelectorAll(".katex-html")) formula.replaceChildren("formula");
  for (const formula of document.querySelectorAll(".katex-mathml")) formula.innerHTML = "<math><mi>formula</mi></math>";
  for (const span of document.querySelectorAll(".highlight span"))
    if (spans.has(span.className)) span.replaceWith(span.textContent);
    else spans.add(span.className);
  document.body.normalize();
}""".replace("KIND", KIND)
# For the colours alone: two elements of each kind. Leaves first. Of a kind that is known, none. Returns the other kinds, if what is kept of them can be seen.
TWO_OF_A_KIND = """(known) => {
  KIND
  const seen = {}, kept = {};
  for (const k of known) seen[k] = 2;
  for (const e of [...document.querySelectorAll("body *")].reverse()) {
    if (e.childElementCount || e.shadowRoot) continue;
    const k = kind(e);
    seen[k] = (seen[k] ?? 0) + 1;
    if (seen[k] > 2) e.remove();
    else (kept[k] ??= []).push(e);
  }
  return Object.keys(kept).filter((k) => kept[k].every((e) => e.checkVisibility({opacityProperty: true, visibilityProperty: true})));
}""".replace("KIND", KIND)
STYLES = """() => JSON.stringify([document.body.className, ...[...document.querySelectorAll("link[rel=stylesheet], style")].map((one) => one.href ?? one.textContent)])"""
# Colours and the margins of the side columns change gradually: here they jump to where they are going, for a page that nobody sees has few frames a second.
SETTLED = """(scheme) => {
  const shadows = [...document.querySelectorAll("*")].map((e) => e.shadowRoot).filter(Boolean);
  const running = [document, ...shadows].flatMap((root) => root.getAnimations()).filter((one) => one.playState === "running");
  for (const one of running) if (one.effect.getComputedTiming().endTime !== Infinity) one.finish();
  return document.documentElement.dataset.theme === scheme && !running.length;
}"""
# The page answers 200 ms (tlm.js) and 300 ms (the theme) after the last change of its width. A listener that comes later and waits longer is told last.
ANSWERED = """() => new Promise((done) => {
  let waiting;
  addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(done, 320); });
  dispatchEvent(new Event("resize"));
})"""
LOADED = "[location.href, ...performance.getEntriesByType('resource').map((one) => one.name), ...[...document.images].map((one) => one.src)]"
POLLING = 20  # milliseconds from look to look
COLOURS = ["color-contrast", "link-in-text-block"]  # slow rules, and all that another colour scheme can change
AXE = """({rules, skip}) => axe.run(document, {runOnly: rules, resultTypes: ["violations"], rules: Object.fromEntries(skip.map((id) => [id, {enabled: false}]))})
  .then(({violations}) => violations.flatMap((v) => v.nodes.map((n) => `${v.id}: ${n.html.slice(0, 200)} ${n.failureSummary}`)))"""


@functools.cache
def axe_core():
    import axe_playwright_python as axe

    return Path(axe.__file__).with_name("axe.min.js").read_text(encoding="utf-8")


def accessibility_faults(page, known=None):
    """Violations of WCAG 2.2 A or AA that axe-core can see, with every fold open, in both colour schemes, on the wide page. Spoils the page.

    Kinds of elements whose colours were found right, under the same styles, are added to `known` and not looked at again.
    """
    known = {} if known is None else known
    page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    page.evaluate(FEWER)
    if page.viewport_size != WIDE:
        page.set_viewport_size(WIDE)
        page.wait_for_function("({width, height}) => innerWidth === width && innerHeight === height", arg=WIDE, polling=POLLING)
        page.wait_for_function(SETTLED, arg=page.evaluate("document.documentElement.dataset.theme"), polling=POLLING)
        page.evaluate(ANSWERED)  # boxes that scroll now can be reached
    page.evaluate(axe_core())
    faults = page.evaluate(AXE, {"rules": {"type": "tag", "values": WCAG}, "skip": COLOURS})
    right = known.setdefault(page.evaluate(STYLES), set())
    kinds = page.evaluate(TWO_OF_A_KIND, sorted(right))
    faint = []
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        page.wait_for_function(SETTLED, arg=scheme, polling=POLLING)
        faint += page.evaluate(AXE, {"rules": {"type": "rule", "values": COLOURS}, "skip": []})
    if not faint:
        right.update(kinds)
    return faults + faint


@pytest.fixture(scope="module")
def known(pytestconfig):
    """The kinds of elements whose colours are right, from page to page; with --thorough each page is looked at as if it were the first."""
    return None if pytestconfig.getoption("--thorough") else {}


EACH_KIND = {"book/index", "book/decoder_block", "book/api", "book/statements", "book/glossary"}  # of page


def pytest_generate_tests(metafunc):
    """Every page for every test; the faults of accessibility of all but a page of each kind belong to the long tests."""
    if "opened" in metafunc.fixturenames:
        long = metafunc.function is test_no_accessibility_fault
        pages = [pytest.param(file, marks=pytest.mark.long if long and file not in EACH_KIND else ()) for file in FILES]
        metafunc.parametrize("opened", pages, indirect=True, scope="module")


@pytest.fixture(scope="module")
def opened(reader, site, request):
    """(name, page, faults) of each page, opened once on a phone for the tests that look at it."""
    page, faults = open_page(reader, f"{site}/{request.param}.html", site, "phone", PHONE)
    return request.param, page, faults


def test_page(opened, site):
    file, page, faults = opened
    faults = faults + page.evaluate(FAULTS) + width_faults(page) + link_faults(page, site)
    formulas = page.evaluate("document.querySelectorAll('.math annotation[encoding=\"application/x-tex\"]').length")
    if formulas != formulas_of(SITE / f"{file}.html"):
        faults.append(f"{formulas} formulas are set of {formulas_of(SITE / f'{file}.html')}")

    for name in statements_of(file):
        label = page.evaluate(
            "(id) => document.getElementById(id)?.closest('.statement')?.querySelector('.statement-label')?.textContent",
            name,
        )
        if not re.fullmatch(rf"[A-Z][a-z]+ {NUMBERS[file]}\.\d+", label or ""):
            faults.append(f"statement {name}: its box is labelled {label!r}")
    assert not faults, "\n".join(faults)


def test_weight(opened, site):
    """Every file that the page loads, uncompressed; from memory, too. (Times are measured by `make weigh`, not tested: machines are noisy.)"""
    _, page, _ = opened
    names = page.evaluate(LOADED)
    files = {SITE / unquote(urlsplit(name).path).strip("/") for name in names if name.startswith(site)}
    sizes = {file.relative_to(SITE).as_posix(): file.stat().st_size for file in files}
    assert 100_000 < sum(sizes.values()) < 1_500_000, sizes


def test_open_folds_and_printed_sentences_fit_the_phone(opened):
    _, page, _ = opened
    page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    faults = width_faults(page)
    faults += page.eval_on_selector_all(".flows pre", "all => all.filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.textContent)")
    assert not faults, "\n".join(faults)


def test_no_accessibility_fault(opened, known):
    """It is the last test of an opened page, because it spoils it."""
    _, page, _ = opened
    faults = accessibility_faults(page, known)
    assert not faults, "\n".join(faults)


# Of the controls on the page, one of each kind that shows no line and, with colours of its own, no shadow around it when it has the focus.
UNSEEN = """() => {
  const kinds = new Map(), style = document.createElement("style");
  style.textContent = "* { transition: none !important; }";
  document.head.append(style);
  for (const e of document.querySelectorAll("a[href], button, summary, input")) kinds.set(`${e.tagName}.${e.className}`, e);
  const forced = matchMedia("(forced-colors: active)").matches;
  const controls = [...kinds.values()].filter((e) => e.checkVisibility({visibilityProperty: true, opacityProperty: true}));
  const unseen = controls.filter((e) => {
    e.focus({focusVisible: true, preventScroll: true});
    const { outlineStyle, boxShadow } = getComputedStyle(e);
    return document.activeElement === e && outlineStyle === "none" && (forced || !/[1-9]px/.test(boxShadow));
  });
  return [controls.length, unseen.map((e) => e.outerHTML.slice(0, 80))];
}"""


@pytest.mark.parametrize("forced", ["none", "active"])
def test_the_focus_is_seen(reader, site, forced):
    """On every kind of control, also where the reader's system chooses the colours."""
    page, faults = open_page(reader, f"{site}/book/heads.html", site)
    page.emulate_media(forced_colors=forced)
    seen, unseen = page.evaluate(UNSEEN)
    page.emulate_media(forced_colors="none")
    assert seen > 12 and not unseen, unseen
    assert not faults


@pytest.mark.parametrize("width", [360, 1000])
def test_what_cannot_be_seen_is_not_in_the_way_of_keys(reader, site, width):
    """The lists beside the text wait outside of a narrow window: their links have no focus before they are shown, and have it then."""
    page, faults = open_page(reader, f"{site}/book/heads.html", site, viewport={"width": width, "height": 800})
    outside = """() => [...document.querySelectorAll("a[href], button")].filter((e) => {
      e.focus({preventScroll: true});
      const { left, right } = e.getBoundingClientRect();
      return document.activeElement === e && (right <= 0 || left >= innerWidth);
    }).map((e) => e.textContent.trim())"""
    assert page.evaluate(outside) == []
    page.locator("button.secondary-toggle").press("Enter")
    page.wait_for_function("document.activeElement.matches('#pst-secondary-sidebar-modal a')")
    page.keyboard.press("Escape")
    assert not faults


@pytest.mark.parametrize("width", [360, 1280])
def test_a_button_pressed_by_a_key_keeps_the_focus(reader, site, width):
    """What it opens has a name and gives the focus back; pressed by mouse it shows none."""
    page, faults = open_page(reader, f"{site}/book/heads.html", site, viewport={"width": width, "height": 800})
    focus = "document.activeElement.className"
    for name in ("theme-switch-button", "search-button", "primary-toggle", "secondary-toggle"):
        button = page.locator(f"button.{name}")
        if not button.is_visible():
            assert width == 1280 and name in ("search-button", "secondary-toggle")
            continue
        button.press("Enter")
        if width == 360 and name != "theme-switch-button":
            assert page.evaluate("document.querySelector('dialog[open]').ariaLabel") in ("Book", "Contents of this page", "Search")
            page.keyboard.press("Escape")
            page.wait_for_function("!document.querySelector('dialog[open]')")
        assert name in page.evaluate(focus)
    page.mouse.click(width / 2, 300)
    page.locator("button.theme-switch-button").click()
    assert page.evaluate("document.activeElement.tagName") == "BODY"
    assert not faults


def test_the_links_to_the_next_pages_are_whole(reader, site):
    """On the narrowest window (a wide one at 400 per cent), also with the distances between letters and words of WCAG 1.4.12."""
    page, faults = open_page(reader, f"{site}/book/overview.html", site, tab="phone", viewport={"width": 320, "height": 512})
    for style in ("/* as it is */", ".prev-next-area * { letter-spacing: 0.12em !important; word-spacing: 0.16em !important; }"):
        page.add_style_tag(content=style)
        cut = page.eval_on_selector_all(".prev-next-area a", "all => all.filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.textContent)")
        assert not cut and not width_faults(page)
    assert not faults


def test_a_browser_that_keeps_nothing(browser, site):
    """Where a reader allows no storage, asking for it is an error: the theme's scripts would end there, and with them search and contents."""
    context = browser.new_context(viewport=PHONE)
    context.add_init_script("""for (const name of ["localStorage", "sessionStorage"])
      Object.defineProperty(window, name, { configurable: true, get() { throw new DOMException("denied", "SecurityError"); } });""")
    page, faults = context.new_page(), []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(f"{site}/book/attention.html")
    page.wait_for_function("document.documentElement.dataset.ready === 'true'", timeout=60_000)
    page.locator("button.primary-toggle").click()
    page.locator("#pst-primary-sidebar-modal a", has_text="Normalization").wait_for()
    page.keyboard.press("Escape")
    theme = page.evaluate("document.documentElement.dataset.mode")
    page.locator("button.theme-switch-button").click()
    assert page.evaluate("document.documentElement.dataset.mode") != theme
    page.locator(".sd-tab-set > label", has_text="torch").first.click()
    page.keyboard.press("Control+k")
    page.locator("#pst-search-dialog input[type=search]").fill("gelu")
    page.wait_for_selector("#pst-search-dialog ul.places a", timeout=20_000)
    assert not faults
    context.close()


def test_formulas_are_readable_where_the_script_that_sets_them_is_missing(browser, site):
    """As TeX, after a moment; and the rest of the page works."""
    context = browser.new_context(viewport=WIDE)
    page, faults = context.new_page(), []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.route("**/katex.min.js*", lambda route: route.abort())
    page.goto(f"{site}/book/attention.html#A-def-4.1")
    page.wait_for_function("document.documentElement.dataset.ready === 'true'", timeout=60_000)
    page.wait_for_function("getComputedStyle(document.querySelector('div.math')).visibility === 'visible'", timeout=10_000)
    assert "\\mathrm{softmax}" in page.locator("article").inner_text() and page.locator("button.theme-switch-button").get_attribute("aria-label")
    page.unroute("**/katex.min.js*")
    page.route("**/tlm.js*", lambda route: route.abort())
    page.goto(f"{site}/book/heads.html")
    page.wait_for_function("getComputedStyle(document.querySelector('span.math')).visibility === 'visible'", timeout=10_000)
    assert not [fault for fault in faults if "katex" in fault]
    context.close()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_without_scripts_the_page_says_what_is_missing_and_has_its_colours(browser, site, scheme):
    """They are those of paper. A button that does nothing is not there."""
    context = browser.new_context(viewport=WIDE, java_script_enabled=False, color_scheme=scheme)
    page = context.new_page()
    page.goto(f"{site}/book/attention.html")
    assert page.get_by_text("Without scripts, formulas stand here as TeX").is_visible()
    ground, line = page.evaluate("""[getComputedStyle(document.documentElement).getPropertyValue("--pst-color-background"),
      getComputedStyle(document.querySelector(".statement-definition")).borderLeftColor]""")
    assert ground == "#fdfcf9" and line == "rgb(31, 90, 148)"
    assert not [button.get_attribute("aria-label") for button in page.locator("button").all() if button.is_visible()]
    context.close()


def test_paper_shows_what_the_curious_read(reader, site):
    """Also where a check is folded inside: that stays closed."""
    page, faults = open_page(reader, f"{site}/book/attention.html", site)
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    folds = page.eval_on_selector_all("details.curious", "all => all.map((one) => [one.open, one.querySelectorAll('details[open]').length])")
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.locator("details.curious:has(details)").count() and folds == [[True, 0]] * len(folds)
    assert page.locator("details.curious[open]").count() == 0 and not faults


@pytest.mark.parametrize("leave", ["another page", "reload"])
def test_a_reader_who_comes_back_is_where_they_were(reader, site, leave):
    """Not where the link led that had brought them to the page at first."""
    reader["wide"].page.emulate_media(reduced_motion="reduce")
    page, _ = open_page(reader, f"{site}/book/heads.html#T-said-twice", site)
    page.evaluate("scrollTo(0, 9000)")
    page.wait_for_function("Math.abs(scrollY - 9000) < 10")
    if leave == "reload":
        page.reload()
    else:
        page.goto(f"{site}/book/bibliography.html")
        page.go_back()
    page.wait_for_function("document.documentElement.dataset.ready === 'true'", timeout=60_000)
    page.wait_for_timeout(500)  # what would scroll it away has had its time
    page.emulate_media(reduced_motion="no-preference")
    assert abs(page.evaluate("scrollY") - 9000) < 200 and page.url.endswith("#T-said-twice")


@pytest.fixture
def copying(browser, site):
    """The chapter on heads, in a window whose clipboard can be read."""
    context = browser.new_context(viewport=WIDE)
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=site)
    page = context.new_page()
    page.goto(f"{site}/book/heads.html#T-head-scores")
    page.wait_for_function("document.documentElement.dataset.ready === 'true'", timeout=60_000)
    yield page
    context.close()


def test_a_formula_is_copied_as_tex(copying):
    """In plain text, once, with its paragraph around it; elsewhere as MathML. Without a formula, nothing changes."""
    page = copying
    select = """(box, from) => { const range = document.createRange(); range.selectNodeContents(box); range.setStart(from ?? box, 0);
      getSelection().removeAllRanges(); getSelection().addRange(range); }"""
    box = page.locator("#T-head-scores > p").first
    box.evaluate(select)
    page.keyboard.press("Control+c")
    text = page.evaluate("navigator.clipboard.readText()")
    first = page.evaluate("document.querySelector('#T-head-scores > p .math').tex")
    assert f"${first}$" in text and text.count(first) == 1 and "\n" not in text.strip()
    html = page.evaluate("navigator.clipboard.read().then(([one]) => one.getType('text/html')).then((blob) => blob.text())")
    assert "<math" in html and "katex-html" not in html
    page.locator("#T-head-scores").evaluate(select)
    page.keyboard.press("Control+c")
    text = page.evaluate("navigator.clipboard.readText()")
    assert f"\n$${page.evaluate('document.querySelector(`#T-head-scores div.math`).tex')}$$" in text
    page.locator("article h1").evaluate(select)
    page.keyboard.press("Control+c")
    assert page.evaluate("navigator.clipboard.readText()").strip().endswith("What a head does")


def test_who_copies_code_by_a_key_stays_at_the_button(copying):
    page = copying
    button = next(one for one in page.locator("button.copybtn").all() if one.is_visible())
    button.press("Enter")
    page.wait_for_function("document.activeElement.matches('.copybtn')", timeout=5_000)
    assert page.evaluate("navigator.clipboard.readText()").strip()


@pytest.mark.parametrize("width", [360, 1280])
def test_the_line_that_stays_hides_no_heading_and_no_focus(reader, site, width):
    """Above the list of statements stands a line in which one types: what a link or a key leads to is below it."""
    page, faults = open_page(reader, f"{site}/book/statements.html#lelarge", site, viewport={"width": width, "height": 740})
    page.wait_for_function("""() => {
      const { top } = document.querySelector("#lelarge h2").getBoundingClientRect();
      return document.querySelector(".catalogue-filter").getBoundingClientRect().bottom <= top && top < innerHeight / 2;
    }""", timeout=10_000)
    page.emulate_media(reduced_motion="reduce")
    page.evaluate("document.querySelectorAll('.catalogue a')[200].focus()")
    hidden = []
    for _ in range(60):
        page.keyboard.press("Shift+Tab")
        hidden += page.evaluate("""(document.activeElement.getBoundingClientRect().bottom <= document.querySelector(".catalogue-filter").getBoundingClientRect().bottom
          ? [document.activeElement.textContent] : [])""")
    page.emulate_media(reduced_motion="no-preference")
    assert not hidden and not faults


def test_pictures_are_seen_on_the_grounds_that_readers_choose(reader, site):
    """With forced colours the page may be black though the light mode is chosen; multiplied with black, a picture is black."""
    page, faults = open_page(reader, f"{site}/book/heads.html", site)
    blend = "getComputedStyle(document.querySelector('.cell_output img')).mixBlendMode"
    assert page.evaluate(blend) == "multiply"
    page.emulate_media(forced_colors="active")
    forced = page.evaluate(blend)
    page.emulate_media(forced_colors="none")
    assert forced == "normal" and not faults


def test_the_list_of_statements_fits_with_more_space_in_its_text(reader, site):
    """The distances of WCAG 1.4.12 on the narrowest window."""
    page, faults = open_page(reader, f"{site}/book/statements.html", site, tab="phone", viewport={"width": 320, "height": 512})
    page.add_style_tag(content="* { letter-spacing: 0.12em !important; line-height: 1.5 !important; word-spacing: 0.16em !important; }")
    assert page.evaluate("document.documentElement.scrollWidth") == 320 and not faults


@pytest.mark.parametrize("file", ["search", "outside_links"])
def test_no_accessibility_fault_beside_the_chapters(reader, site, file):
    page, _ = open_page(reader, f"{site}/{file}.html", site)
    faults = accessibility_faults(page)
    assert not faults, "\n".join(faults)


def test_statements_are_numbered_in_order(site):
    for file in CHAPTERS:
        labels = re.findall(r'"statement-label">([^<]*)<', (SITE / f"{file}.html").read_text(encoding="utf-8"))
        assert labels and [label.split()[1] for label in labels] == [f"{NUMBERS[file]}.{i + 1}" for i in range(len(labels))]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_page_opens_as_a_file(reader, site, scheme):
    path = (SITE / f"{FILES[1]}.html").as_uri()
    page, faults = open_page(reader, path, SITE.as_uri(), color_scheme=scheme)
    faults += page.evaluate(FAULTS)
    theme = page.evaluate("document.documentElement.dataset.theme")
    assert not faults, "\n".join(faults)
    assert theme == scheme


def test_the_front_door_leads_to_the_book(reader, site):
    page = reader["wide"].page
    page.goto(f"{site}/index.html")
    page.wait_for_url(f"{site}/{FILES[0]}.html")


def test_search_finds_a_chapter(reader, site):
    page, faults = open_page(reader, f"{site}/search.html?q=rowwise", site)
    page.wait_for_selector("ul.search li a", timeout=30_000)
    assert not faults, "\n".join(faults)


def test_a_page_that_is_found_opens_where_the_words_stand(browser, site):
    """What is shown of it is prose. Its marks are whole words, at most one in a section; a page that is opened afterwards has none."""
    context = browser.new_context(viewport=WIDE)
    page = context.new_page()
    page.goto(f"{site}/search.html?q=induction+head")
    page.wait_for_function("[...document.querySelectorAll('ul.search li')].length > 5 && !document.querySelector('ul.search li:not(:has(p.context))')")
    shown = page.locator("ul.search p.context").all_inner_texts()
    assert not [text for text in shown if re.search("Contents|Show the|Print to PDF|color=", text)], shown
    page.locator("ul.search a[href*='/heads.html?']").click()
    page.wait_for_function("document.documentElement.dataset.ready === 'true'", timeout=60_000)
    marks = page.locator("mark").all_inner_texts()
    assert {text.lower() for text in marks} <= {"induction head", "induction heads"} and 1 < len(marks) <= page.locator("article section").count()
    page.wait_for_function("(({ top }) => 0 < top && top < innerHeight)(document.querySelector('#found').getBoundingClientRect())", timeout=20_000)
    assert "highlight" not in page.url
    page.goto(f"{site}/search.html?q=softmax")
    page.wait_for_selector("ul.search a[href*='highlight=softmax']", timeout=30_000)
    page.goto(f"{site}/book/operators.html")
    page.wait_for_function("document.documentElement.dataset.ready === 'true'", timeout=60_000)
    assert page.locator("mark, .highlighted").count() == 0
    context.close()


@pytest.mark.long
def test_the_reduced_page_still_shows_faults(reader, site):
    """What is taken away to save time hides none of these."""
    page, _ = open_page(reader, f"{site}/{FILES[1]}.html", site)
    page.evaluate("""() => {
      const article = document.querySelector("article"), add = (html) => article.lastElementChild.insertAdjacentHTML("beforeend", html);
      add('<p style="color: #bbb">Too faint on a light page.</p><p style="color: #555">Too faint on a dark page.</p>');
      add('<img src="x.png"><button></button><p class="odd">Another kind.</p><style>[data-theme=dark] .odd { color: #444 }</style>');
      document.querySelector(".highlight span.k").style.color = "#aaa";
    }""")
    faults = accessibility_faults(page)
    for wanted in ("image-alt", "button-name", "Too faint on a light", "Too faint on a dark", "Another kind", 'class="k"'):
        assert any(wanted in fault for fault in faults), wanted


def preview_of(page, link):
    """The text of the preview that belongs to a link, once it is there."""
    page.wait_for_selector("#statement-preview:not([hidden])")
    assert link.get_attribute("aria-describedby") == "statement-preview"
    return page.inner_text("#statement-preview .statement-head")


@pytest.mark.parametrize("as_file", [False, True])
def test_a_link_previews_its_statement(reader, site, as_file):
    """By mouse and by keyboard; the pointer may move onto it; Escape closes it (WCAG 1.4.13)."""
    home = SITE.as_uri() if as_file else site
    file = lightest(CHAPTERS, 'statement-link reference internal" href="operators.html#')[0]
    page, faults = open_page(reader, f"{home}/{file}.html", home)
    link = page.locator("article a.statement-link[href^='operators.html#']").first
    want = re.compile(rf"[A-Z][a-z]+ {NUMBERS['book/operators']}\.\d+")
    link.hover()
    assert want.match(preview_of(page, link))
    page.hover("#statement-preview")
    page.wait_for_timeout(400)
    assert page.is_visible("#statement-preview")
    assert page.eval_on_selector_all("#statement-preview .math", "all => all.every((box) => box.querySelector('.katex'))")
    assert not page.query_selector_all("#statement-preview [id], #statement-preview [href]")
    assert width_faults(page) == []
    page.keyboard.press("Escape")
    assert page.is_hidden("#statement-preview")
    page.mouse.move(0, 0)

    link.evaluate("(link) => link.focus({focusVisible: true})")
    assert want.match(preview_of(page, link))
    page.keyboard.press("Tab")
    page.wait_for_function("document.querySelector('#statement-preview').hidden || document.activeElement.ariaDescribedByElements?.length")
    assert not faults, "\n".join(faults)


def test_every_link_to_a_statement_has_its_preview(site):
    for file in FILES:
        html = (SITE / f"{file}.html").read_text(encoding="utf-8")
        for link in set(re.findall(r'<a class="[^"]*\bstatement-link\b[^"]*" href="([^"]*)#([^"]+)"', html)):
            chapter = Path(link[0] or file).stem
            data = (SITE / "_static" / "previews" / f"{chapter}.js").read_text(encoding="utf-8")
            assert f'"{link[1]}": "' in data, f"{file}: no preview of {link[1]}"


@pytest.mark.parametrize("width", [360, 1280])
def test_the_list_of_statements_can_be_searched(reader, site, width):
    """Every statement of the sources is stated and checked, and the field keeps the rows that hold its words."""
    page, faults = open_page(reader, f"{site}/book/statements.html", site, viewport={"width": width, "height": 800})
    rows = page.eval_on_selector_all(".catalogue tbody tr", "rows => rows.map((row) => row.textContent)")
    assert len(rows) > 440 and not [row for row in rows if "not stated" in row]
    assert sorted(re.match(r"[\w.-]+?-[a-z.\d-]+", row)[0] for row in rows if "not checked" in row) == ["A-gehring-attributionopinion", "M-simple-remarkopinion"]
    page.fill(".catalogue-filter input", "ill-typed lelarge")
    assert page.inner_text(".catalogue-filter output").startswith("0 of")
    page.fill(".catalogue-filter input", "Ill-typed graphs")
    shown = page.eval_on_selector_all(".catalogue tbody tr", "rows => rows.filter((row) => row.offsetHeight).map((row) => row.querySelector('code').textContent)")
    assert shown == ["B-input-preactivation", "B-preactivation", "B-weight-index"]
    assert width_faults(page) == []
    assert not faults, "\n".join(faults)


def test_a_term_previews_its_entry(reader, site):
    file = lightest(CHAPTERS, 'internal" href="glossary.html#term-softmax"')[0]
    page, faults = open_page(reader, f"{site}/{file}.html", site)
    link = page.locator("article a.term[href='glossary.html#term-softmax']")
    assert link.count() == 1
    link.hover()
    assert preview_of(page, link) == "Term Softmax"
    assert page.eval_on_selector_all("#statement-preview .math", "all => all.length && all.every((box) => box.querySelector('.katex'))")
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("file", FILES)
def test_each_page_has_its_doors(site, file):
    """Launch in Colab, the page before and the page after."""
    html = (SITE / f"{file}.html").read_text(encoding="utf-8")
    if file in NOTEBOOKS:
        assert f'href="https://colab.research.google.com/github/tlm-book/tlm_book/blob/main/{file}.ipynb"' in html
    place = FILES.index(file)
    assert place == 0 or f'class="left-prev"\n       href="{Path(FILES[place - 1]).name}.html"' in html
    assert place == len(FILES) - 1 or f'class="right-next"\n       href="{Path(FILES[place + 1]).name}.html"' in html


def test_links_out_of_the_book_are_listed_once_more(site):
    """Every address in the text of a page is on the page of outside links."""
    listed = (SITE / "outside_links.html").read_text(encoding="utf-8")
    for file in FILES:
        html = (SITE / f"{file}.html").read_text(encoding="utf-8")
        for address in re.findall(r'class="reference external" href="([^"]+)"', html):
            assert f'href="{address}"' in listed, f"{file}: {address}"


def test_paper_shows_what_is_folded_but_code(reader, site):
    """Nobody can unfold paper. Code is there only if the reader has opened it. Afterwards the page is as it was."""
    page, faults = open_page(reader, f"{site}/book/graph_networks.html", site)
    page.evaluate("""() => {
      window.folds = [];
      addEventListener("beforeprint", () => {
        for (const fold of document.querySelectorAll("article details")) {
          folds.push([fold.querySelector("summary").textContent.trim(), fold.open]);
        }
      });
    }""")
    assert page.locator("article details[open]").count() == 0
    page.pdf()
    folds = page.evaluate("folds")
    code = [fold for fold in folds if re.match(r"✓|\d|Show the (code|imports)", fold[0])]
    assert len(code) > 5 and not any(is_open for _, is_open in code)
    others = [fold for fold in folds if fold not in code]
    assert len(others) > 5 and all(is_open for _, is_open in others)
    assert page.locator("article details[open]").count() == 0
    first = page.locator("article details", has_text="Show the code").first
    first.locator("summary").first.click()
    page.evaluate("folds.length = 0")
    page.pdf()
    assert next(is_open for text, is_open in page.evaluate("folds") if text.startswith("Show the code"))
    assert page.locator("article details[open]").count() == 1 and not faults


def test_the_sheet_of_formulas_has_two_sides(reader, site):
    """Of A4."""
    page, faults = open_page(reader, f"{site}/book/sheet.html", site)
    pages = re.findall(rb"/Type\s*/Page\b(?!s)", page.pdf(prefer_css_page_size=True))
    assert len(pages) == 2 and not faults


def test_the_chapters_of_the_picture_lead_to_their_pages(reader, site):
    page, faults = open_page(reader, f"{site}/book/teaching.html", site)
    links = page.eval_on_selector_all(".needs a", "links => links.map((link) => link.getAttribute('href'))")
    assert links == [f"{Path(file).name}.html" for file in CHAPTERS] and page.locator("table.minutes tbody tr").count() == len(CHAPTERS) + 2
    page.locator(".needs a[href='attention.html']").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/attention.html")
    assert not faults


def test_paper_says_how_it_was_checked_and_where_the_code_is(reader, site):
    """What a fold shows does not fade in on paper, and the line of a check or of a module stands there; the words "Show the code" do not."""
    page, faults = open_page(reader, f"{site}/book/graph_networks.html", site)
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    faint = page.evaluate("[...document.querySelectorAll('article details[open] > :not(summary)')].filter((e) => getComputedStyle(e).opacity !== '1').length")
    lines = page.evaluate("""[...document.querySelectorAll('article details.hide > summary')]
      .map((line) => [/^\\s*(✓|\\d)/.test(line.textContent), getComputedStyle(line).display !== 'none' && getComputedStyle(line, '::before').content])""")
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="null")
    assert faint == 0 and len(lines) > 10 and not faults
    assert all(re.match(r'"(✓|\d+ (lines|cells) of) ', shown) and "show" not in shown if said else shown is False for said, shown in lines)


ASKED = [  # what a reader types, the place to take, and how the code begins that must then be on the screen
    ("layer norm jacobian", "standardize_jacobian", "def standardize_jacobian"),
    ("gelu", "GELU", "def gelu"),
    ("rotary angle", "rotary encoding", "def rotary"),
    ("top-p", "top_p", "def top_p"),
    ("bpe merge", "merge", "def merge"),
]


@pytest.mark.parametrize(("asked", "place", "code"), [pytest.param(*case, marks=pytest.mark.long if case in ASKED[2:] else ()) for case in ASKED])
def test_the_search_leads_to_the_code_of_a_formula(reader, site, asked, place, code):
    """From the first page, and from a light one: some words, one click, and the code is there, at most half a screen below the window."""
    start = "book/index" if asked == ASKED[0][0] else "book/bibliography"
    page, faults = open_page(reader, f"{site}/{start}.html", site)
    page.keyboard.press("Control+k")
    page.locator("#pst-search-dialog input[type=search]").fill(asked)
    with page.expect_navigation():
        page.locator("#pst-search-dialog ul.places a", has_text=re.compile(f"^{place}$")).first.click()
    page.wait_for_function("document.documentElement.dataset.ready === 'true'", timeout=60_000)
    page.wait_for_function("""(code) => [...document.querySelectorAll("article pre")].filter((pre) => pre.textContent.includes(code) && pre.clientHeight)
      .map((pre) => pre.getBoundingClientRect()).some((box) => box.bottom > 0 && box.top < 1.5 * innerHeight)""", arg=code, timeout=20_000)
    assert not faults


FORMULAS = {  # a formula's box, linked from the sheet of formulas, and how its code begins
    "attention.html#A-def-4.1": "def attention(", "positional_encoding.html#T-rotary-def": "def rotary(", "normalization.html#T-rms-norm": "def rms_norm(",
    "feed_forward.html#T-gated-ff": "def gated_feed_forward(", "optimization.html#T-adamw": "def adamw(",
}  # fmt: skip


@pytest.mark.parametrize(("box", "code"), [pytest.param(*case, marks=pytest.mark.long if i else ()) for i, case in enumerate(FORMULAS.items())])
def test_a_formula_has_a_link_to_its_code(reader, site, box, code):
    """One click in the head of the box, and the definition is on the screen, also where the other tab is chosen."""
    page, faults = open_page(reader, f"{site}/book/{box}", site)
    name = box.partition("#")[2]
    home = page.locator(f".statement:has([id='{name}']), .statement[id='{name}']")
    page.wait_for_function("document.documentElement.dataset.ready === 'true'", timeout=60_000)
    for label in page.locator(".sd-tab-set > label", has_text="torch").all()[:1]:
        label.evaluate("(label) => label.click()")
    home.locator("a.statement-code").evaluate("(link) => link.click()")
    page.wait_for_function("""(code) => [...document.querySelectorAll("article pre")].filter((pre) => pre.textContent.includes(code) && pre.clientHeight)
      .map((pre) => pre.getBoundingClientRect()).some((box) => box.bottom > 0 && box.top < innerHeight)""", arg=code, timeout=20_000)
    assert not faults


def test_folds_of_the_package_that_follow_one_another_are_one(reader, site):
    """A link to what one of its cells defines opens it."""
    page, faults = open_page(reader, f"{site}/book/inference.html", site)
    assert re.search(r"\d+ cells of tlm_book\.inference: \w+, .*show", page.locator("article").inner_text())
    neighbours = page.evaluate("""() => {
      const isExport = (cell) => cell.matches("div.cell") && / of tlm_book/.test(cell.querySelector(":scope > details > summary")?.textContent);
      return [...document.querySelectorAll("article div.cell + div.cell")].filter((cell) => isExport(cell) && isExport(cell.previousElementSibling)).length;
    }""")
    assert neighbours == 0
    page.evaluate("location.hash = 'code-inference.cache.Cache'")
    page.wait_for_function("""[...document.querySelectorAll("article pre")].filter((pre) => pre.textContent.includes("class Cache") && pre.clientHeight)
      .map((pre) => pre.getBoundingClientRect()).some((box) => box.bottom > 0 && box.top < innerHeight)""", timeout=20_000)
    assert not faults


def test_imports_are_in_the_fold_of_the_picture_that_follows_them(reader, site):
    """So the first screen of a chapter has one fold; imports before a text stand alone, and say what they are."""
    page, faults = open_page(reader, f"{site}/book/attention.html", site)
    fold = page.locator("article details.hide", has_text="import matplotlib.pyplot").first
    assert fold.locator("pre").count() == 2 and "plt.subplots" in fold.locator("pre").last.text_content()
    assert fold.locator("summary").inner_text().strip() == "Show the code"
    page.goto(f"{site}/book/loss.html")
    fold = page.locator("article details.hide", has_text="import matplotlib.pyplot").first
    assert fold.locator("pre").count() == 1 and fold.locator("summary").inner_text().strip() == "Show the imports" and not faults


FIELD = {  # words of the field as people type them, and the place that must be among the first three
    "label smoothing": "loss.html#T-label-smoothing", "kneser-ney smoothing": "glossary.html#term-smoothing",
    "weight tying": "glossary.html#term-tied-embedding", "gradient checkpointing": "glossary.html#term-activation-checkpointing",
    "backpropagation": "glossary.html#term-backpropagation", "quantization": "glossary.html#term-quantization",
    "flashattention": "glossary.html#term-flashattention", "KV caches": "glossary.html#term-key-value-cache",
}  # fmt: skip


def test_the_search_knows_the_words_of_the_field(reader, site):
    page, faults = open_page(reader, f"{site}/book/bibliography.html", site)
    page.keyboard.press("Control+k")
    box = page.locator("#pst-search-dialog input[type=search]")
    for asked, place in FIELD.items():
        box.fill(asked)
        page.wait_for_function("(place) => [...document.querySelectorAll('#pst-search-dialog ul.places li:nth-child(-n+3) a')].some((a) => a.href.endsWith(place))",
                               arg=place, timeout=20_000)
    box.fill("zyzzyva")
    page.wait_for_function("!document.querySelector('#pst-search-dialog ul.places a')", timeout=20_000)
    assert not faults


@pytest.mark.parametrize("width", [360, 1280])
def test_what_the_search_finds_stands_below_the_line_in_which_one_types(reader, site, width):
    page, faults = open_page(reader, f"{site}/book/bibliography.html", site, viewport={"width": width, "height": 800})
    page.keyboard.press("Control+k")
    page.locator("#pst-search-dialog input[type=search]").fill("norm")
    page.wait_for_selector("#pst-search-dialog ul.places a", timeout=20_000)
    line, found = (page.locator(f"#pst-search-dialog {part}").bounding_box() for part in ("input[type=search]", "ul.places"))
    assert line["width"] > 0.5 * width - 60 and line["height"] < 80 and found["y"] >= line["y"] + line["height"]
    assert found["x"] >= 0 and found["x"] + found["width"] <= width and not faults


def test_formulas_side_by_side_stand_below_one_another_on_a_phone(reader, site):
    page, faults = open_page(reader, f"{site}/book/heads.html", site, tab="phone", viewport=PHONE)
    wide = page.evaluate("[...document.querySelectorAll('div.math > .katex-display')].filter((e) => e.scrollWidth > e.clientWidth + 1).length")
    assert wide == 0 and not faults
    assert "gathered" in page.locator("#T-head-scores .math annotation", has_text="prev").first.text_content()


def test_a_picture_on_a_phone_is_large_enough_and_says_where_it_goes_on(reader, site):
    """At least six tenths of its size, of 150 dots per inch."""
    page, faults = open_page(reader, f"{site}/book/operators.html", site, tab="phone", viewport=PHONE)
    sizes = page.eval_on_selector_all(".cell_output img", "all => all.map((one) => one.clientWidth / one.naturalWidth * 150 / 96)")
    assert sizes and min(sizes) > 0.59
    frame = page.locator(".cell_output:has(img)").first
    marks = lambda: re.findall(r"more-\w+", frame.get_attribute("class"))
    assert marks() == ["more-after"]
    frame.evaluate("(frame) => { frame.scrollLeft = frame.scrollWidth; }")
    page.wait_for_function("document.querySelector('.cell_output.more-before')")
    assert marks() == ["more-before"] and not faults


def test_letters_are_about_equally_large_in_all_pictures(reader, site):
    """A small picture doesn't fill the line."""
    page, faults = open_page(reader, f"{site}/book/heads.html", site)
    sizes = page.eval_on_selector_all(".cell_output img", "all => all.map((one) => [one.naturalWidth, one.width / one.naturalWidth])")
    assert min(sizes)[0] < 0.8 * max(sizes)[0] and all(0.6 < scale < 0.71 for _, scale in sizes), sizes
    assert not faults


def test_a_name_in_a_table_is_not_broken(reader, site):
    """On a wide page."""
    page, faults = open_page(reader, f"{site}/book/pretrained.html", site)
    broken = page.eval_on_selector_all("article td code .pre:not(:has(wbr.long))", """all => all
      .filter((one) => new Set([...one.getClientRects()].map((box) => box.top)).size > 1).map((one) => one.textContent)""")
    assert page.locator("article td code wbr").count() and not broken and not faults


def test_every_check_has_its_line(site):
    """A fold says how far its check reaches, and leads to the statements that it checks."""
    for file in NOTEBOOKS:
        cells = json.loads((ROOT / f"{file}.ipynb").read_text(encoding="utf-8"))["cells"]
        wanted = sum("".join(cell["source"]).startswith("#| checks") for cell in cells if cell["cell_type"] == "code")
        html = (SITE / f"{file}.html").read_text(encoding="utf-8")
        lines = re.findall(r'<p class="collapsed admonition-title">✓ (?:proved|checked|measured|reported)[^<]*: [^<]+ · show</p>', html)
        assert len(lines) == wanted == html.count('class="cell-checks"'), file


def test_the_choice_between_specification_and_torch_is_remembered(browser, site):
    """By mouse and by keyboard, on this page and on the next."""
    files = lightest(NOTEBOOKS, "sd-tab-set")
    assert len(files) > 5
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{site}/{files[0]}.html")
    chosen = "[...document.querySelectorAll('.sd-tab-set > input:checked + label')].map((label) => label.textContent.trim())"
    assert set(page.evaluate(chosen)) == {"Specification"}
    page.locator(".sd-tab-set > label", has_text="torch").first.click()
    assert set(page.evaluate(chosen)) == {"torch"}
    page.goto(f"{site}/{files[1]}.html")
    page.wait_for_function("document.documentElement.dataset.ready === 'true'")
    assert set(page.evaluate(chosen)) == {"torch"}
    page.locator(".sd-tab-set > input:checked").first.focus()
    page.keyboard.press("ArrowLeft")
    assert set(page.evaluate(chosen)) == {"Specification"}
    context.close()


def test_search_finds_what_is_folded(reader, site):
    """A word that stands in the check cells of one page and nowhere else."""
    folded, other = {}, set()
    for file in NOTEBOOKS:
        for cell in json.loads((ROOT / f"{file}.ipynb").read_text(encoding="utf-8"))["cells"]:
            source = "".join(cell["source"])
            words = set(re.findall(r"[a-z]{8,}", re.sub(r"(?m)^#\|.*$", "", source)))
            if source.startswith("#| checks"):
                for word in words:
                    folded.setdefault(word, set()).add(file)
            else:
                other |= words
    word = max((word for word, files in folded.items() if len(files) == 1 and word not in other), key=len)
    page, _ = open_page(reader, f"{site}/search.html?q={word}", site)
    page.wait_for_selector("ul.search li a", timeout=30_000)
    (file,) = folded[word]
    assert page.locator(f"ul.search li a[href*='{Path(file).name}.html']").count(), (word, file)


def test_the_icons_of_the_theme_are_there(reader, site):
    """The styles keep only the icons that a page names: each must have its shape."""
    page, _ = open_page(reader, f"{site}/{FILES[1]}.html", site)
    shapeless = page.evaluate("""() => [...document.querySelectorAll("[class*='fa-'], .fas, .fab")]
      .filter((icon) => !getComputedStyle(icon).getPropertyValue("--icon").startsWith("url("))
      .map((icon) => icon.className)""")
    assert not shapeless


@pytest.mark.parametrize("as_file", [False, True])
@pytest.mark.parametrize("file, kind", [("book/index", "questions"), ("book/playground", "playground")])
def test_the_model_wakes_when_it_is_asked_to(reader, site, file, kind, as_file):
    """No weights and no script of theirs before; one file of at most 1.5 MB after; over http and from a folder."""
    home = SITE.as_uri() if as_file else site
    page, faults = open_page(reader, f"{home}/{file}.html", home)
    page.mouse.wheel(0, 3000)
    assert not [name for name in page.evaluate(LOADED) if "small_world" in name] and page.evaluate("globalThis.tlmPictures") is None
    page.locator(".tlm-wake").click()
    page.wait_for_selector(f"[data-tlm-{kind}][data-ready]", timeout=60_000)
    assert (SITE / "_static" / "small_world.js").stat().st_size <= 1_500_000
    for viewport in (PHONE, WIDE):
        page.set_viewport_size(viewport)
        faults += width_faults(page)
    assert not faults, "\n".join(faults)

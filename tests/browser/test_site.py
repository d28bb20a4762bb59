"""The built site in a real browser: every page, over http and as a file.

Build it first: `make book`. Nothing may be asked of another host, nothing may be logged as an error, all mathematics
must be set, no picture may lack its text, no page may be wider than a phone, every statement must be a numbered box.
"""

import functools
import http.server
import os
import re
import shutil
import threading
from pathlib import Path
from urllib.parse import unquote

import nbformat
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "_build" / "html"
TOC = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
FILES = [TOC["root"]] + [chapter["file"] for part in TOC["parts"] for chapter in part["chapters"]]
NUMBERS = {file: number for number, file in enumerate(FILES)}  # the landing page is 0, chapters count from 1
PHONE = {"width": 390, "height": 844}
ANCHORED_QUOTE = re.compile(r"^((?:<a id=\"[^\"]+\"></a>\s*)+)\n\s*> \*\*", re.MULTILINE)

# What a reader would see of mathematics that was not set, and what is wrong on the page, found in the page itself.
FAULTS = r"""() => {
  const faults = [];
  const article = document.querySelector("article");
  const walker = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (node.parentElement.closest("pre, code, script, style, mjx-container, .output")) continue;
    if (/\$[^$]+\$|\$\$|\\\(|\\\[|\\(frac|mathbb|sum|text|begin|operatorname|mathrm|le|in)\b/.test(node.data))
      faults.push("mathematics as text: " + node.data.trim().slice(0, 80));
  }
  for (const box of document.querySelectorAll(".math"))
    if (!box.querySelector("mjx-container")) faults.push("mathematics not set: " + box.textContent.slice(0, 80));
  for (const error of document.querySelectorAll("mjx-merror, [data-mjx-error], [data-mml-node=merror]"))
    faults.push("TeX error: " + (error.getAttribute("data-mjx-error") ?? error.textContent).slice(0, 80));
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


def open_page(browser, address, home, **context):
    """Open a page and wait until its mathematics is set; return it and a list to which every fault is added."""
    page = browser.new_context(**context).new_page()
    faults = []
    page.on("console", lambda m: m.type in ("error", "warning") and faults.append(f"console {m.type}: {m.text}"))
    page.on("pageerror", lambda error: faults.append(f"script: {error}"))
    page.on("requestfailed", lambda request: faults.append(f"failed: {request.url} {request.failure}"))
    page.on("response", lambda r: r.status >= 400 and faults.append(f"{r.status}: {r.url}"))

    def only_ours(request):
        if not request.url.startswith((home, "data:", "blob:")):
            faults.append(f"foreign request: {request.url}")

    page.on("request", only_ours)
    page.goto(address)
    page.wait_for_function("document.documentElement.dataset.ready === 'true'", timeout=60_000)
    return page, faults


def statements_of(file):
    """The ids of the statements in a chapter's notebook: anchors directly before a block quote in bold."""
    notebook = nbformat.read(ROOT / f"{file}.ipynb", as_version=4)
    text = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    return [name for line in ANCHORED_QUOTE.findall(text) for name in re.findall(r'id="([^"]+)"', line)]


def link_faults(page, site):
    """Links of the page into the site whose file or place in the file is not there."""
    faults = []
    for link in set(page.eval_on_selector_all("a[href]", "links => links.map((link) => link.href)")):
        if not link.startswith(site):
            continue
        name, _, place = link.removeprefix(site).partition("#")
        target = SITE / unquote(name).strip("/")
        if not target.is_file():
            faults.append(f"link to no file: {link}")
        elif place and f'id="{unquote(place)}"' not in target.read_text(encoding="utf-8"):
            faults.append(f"link to no place: {link}")
    return faults


def width_faults(page):
    """A page wider than its window, with the elements that stick out."""
    return page.evaluate("""() => {
      const width = document.documentElement.clientWidth;
      if (document.documentElement.scrollWidth <= width) return [];
      const out = [...document.querySelectorAll("article *")].filter((e) => e.getBoundingClientRect().right > width + 1);
      return ["wider than the window: " + out.slice(0, 3).map((e) => e.tagName + "." + e.className).join(", ")];
    }""")


@pytest.mark.parametrize("file", FILES)
def test_page(browser, site, file):
    page, faults = open_page(browser, f"{site}/{file}.html", site, viewport=PHONE)
    faults += page.evaluate(FAULTS) + width_faults(page) + link_faults(page, site)

    for name in statements_of(file):
        label = page.evaluate(
            "(id) => document.getElementById(id)?.closest('.statement')?.querySelector('.statement-label')?.textContent",
            name,
        )
        if not re.fullmatch(rf"[A-Z][a-z]+ {NUMBERS[file]}\.\d+", label or ""):
            faults.append(f"statement {name}: its box is labelled {label!r}")

    page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    faults += width_faults(page)
    page.context.close()
    assert not faults, "\n".join(faults)


def test_statements_are_numbered_in_order(browser, site):
    for file in FILES[1:]:
        page, _ = open_page(browser, f"{site}/{file}.html", site)
        labels = page.eval_on_selector_all(".statement-label", "all => all.map((label) => label.textContent)")
        page.context.close()
        assert [label.split()[1] for label in labels] == [f"{NUMBERS[file]}.{i + 1}" for i in range(len(labels))]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_opens_as_a_file(browser, site, scheme):
    path = (SITE / f"{FILES[1]}.html").as_uri()
    page, faults = open_page(browser, path, SITE.as_uri(), color_scheme=scheme)
    faults += page.evaluate(FAULTS)
    theme = page.evaluate("document.documentElement.dataset.theme")
    page.context.close()
    assert not faults, "\n".join(faults)
    assert theme == scheme


def test_the_front_door_leads_to_the_book(browser, site):
    page = browser.new_page()
    page.goto(f"{site}/index.html")
    page.wait_for_url(f"{site}/{FILES[0]}.html")
    page.close()


def test_search_finds_a_chapter(browser, site):
    page, faults = open_page(browser, f"{site}/search.html?q=rowwise", site)
    page.wait_for_selector("ul.search li a", timeout=30_000)
    page.context.close()
    assert not faults, "\n".join(faults)

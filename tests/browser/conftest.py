"""A real browser for the pages that the book produces: Debian's Chromium, driven by Playwright."""

import itertools
import shutil
from collections.abc import Iterator

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WINDOW = {"width": 820, "height": 900}


@pytest.fixture(scope="session")
def browser() -> Iterator["playwright.sync_api.Browser"]:  # noqa: F821
    """One browser for all tests. Skips where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"no browser on the path: looked for {', '.join(NAMES)}")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield browser
        browser.close()


def document(body: str, theme: str = "light") -> str:
    back, ink = ("#121212", "#ced6dd") if theme == "dark" else ("#fff", "#222")
    return (
        f'<!doctype html><html lang="en" data-theme="{theme}"><head><meta charset="utf-8"><title>page</title>'
        '<meta name="viewport" content="width=device-width"></head>'
        f'<body style="background:{back};color:{ink};margin:16px"><main>{body}</main></body></html>'
    )


class Tabs:
    """Open tabs, one for each kind of browser (touch, no scripts): a test takes one, and the next takes it again if nothing went wrong."""

    def __init__(self, browser):
        self.browser, self.free = browser, {}

    def take(self, **kind):
        """A tab, and the list to which whatever goes wrong in it is added."""
        key = tuple(sorted(kind.items()))
        if key in self.free:
            return key, *self.free.pop(key)
        page, faults = self.browser.new_context(**kind).new_page(), []
        page.on("console", lambda m: faults.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("dialog", lambda dialog: (faults.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda r: None if r.url.startswith(("file:", "data:", "blob:")) else faults.append(r.url))
        return key, page, faults

    def give_back(self, key, page, faults):
        """The pointer leaves the picture; what the page has said by now is heard. A tab in which something went wrong is closed."""
        page.mouse.move(0, 0)
        if faults or key in self.free:
            page.context.close()
        else:
            self.free[key] = page, faults


@pytest.fixture(scope="session")
def tabs(browser):
    return Tabs(browser)


@pytest.fixture
def show(tabs, tmp_path):
    """Opens a page with the given body; afterwards nothing may have gone wrong or left the machine. A second page takes the place of the first."""
    taken, count = {}, itertools.count()

    def open_page(body, theme="light", viewport=WINDOW, color_scheme="light", reduced_motion="no-preference", **kind):
        path = tmp_path / f"page{next(count)}.html"
        path.write_text(document(body, theme), encoding="utf-8")
        key = tuple(sorted(kind.items()))
        if key not in taken:
            taken[key] = tabs.take(**kind)
        page = taken[key][1]
        page.emulate_media(media="null", color_scheme=color_scheme, reduced_motion=reduced_motion)
        if page.viewport_size != viewport:
            page.set_viewport_size(viewport)
        page.goto(path.as_uri())
        return page

    yield open_page
    for tab in taken.values():
        tabs.give_back(*tab)
    assert not [fault for _, _, faults in taken.values() for fault in faults]


# Text that is too faint on its ground (WCAG: 4.5 to 1), with the ground of the nearest element that has one.
FAINT = r"""() => {
  const host = document.querySelector("main > [class*=tlm-]").firstChild, root = host.shadowRoot;
  const numbers = (c) => c.match(/[\d.]+/g).map(Number);
  const light = (c) => { const [r, g, b] = numbers(c).map((v) => (v / 255 <= .04045 ? v / 255 / 12.92 : ((v / 255 + .055) / 1.055) ** 2.4));
    return .2126 * r + .7152 * g + .0722 * b; };
  const ground = (e) => { for (; e; e = e.parentElement ?? e.getRootNode().host) { const c = getComputedStyle(e).backgroundColor, n = numbers(c);
    if (n.length === 3 || n[3] > .5) return c; } return "rgb(255, 255, 255)"; };
  const faint = [], walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  let seen = 0;
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const e = node.parentElement;
    if (!node.data.trim() || e.tagName === "STYLE") continue;
    seen++;
    const ink = getComputedStyle(e)[e instanceof SVGElement ? "fill" : "color"], [a, b] = [light(ink), light(ground(e))].sort((x, y) => x - y);
    if ((b + .05) / (a + .05) < 4.5) faint.push(`${node.data.slice(0, 30)}: ${ink} on ${ground(e)}`);
  }
  return [seen, faint];
}"""


@pytest.fixture
def contrast():
    """(pieces of text seen, those too faint on their ground) of the picture on a page."""
    return lambda page: page.evaluate(FAINT)

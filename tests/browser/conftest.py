"""A real browser for the pages that the book produces: Debian's Chromium, driven by Playwright."""

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


@pytest.fixture(scope="session")
def browser() -> Iterator["playwright.sync_api.Browser"]:  # noqa: F821
    """One browser for all tests; take a fresh context from it for each. Skips where there is none."""
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


@pytest.fixture
def show(browser, tmp_path):
    """Opens a page with the given body; afterwards nothing may have gone wrong or left the machine."""
    faults, contexts = [], []

    def open_page(body, theme="light", **context):
        path = tmp_path / "page.html"
        path.write_text(document(body, theme), encoding="utf-8")
        contexts.append(browser.new_context(**{"viewport": {"width": 820, "height": 900}, **context}))
        page = contexts[-1].new_page()
        page.on("console", lambda m: faults.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("dialog", lambda dialog: (faults.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda r: None if r.url.startswith(("file:", "data:", "blob:")) else faults.append(r.url))
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not faults


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

"""Weight and speed of every page of the built site, in a real browser, from a server on this machine.

    make book && python benchmarks/site_pages.py [--rounds 3] [--out benchmarks]

Every round opens each page with an empty cache. The weight is what the page loads before it is used, all files uncompressed (fonts,
styles and scripts included); the times, in milliseconds after the request, are the best of the rounds: first contentful paint, and
the moment when the mathematics is set and every picture is there. Writes site.md.
"""

import argparse
import functools
import http.server
import shutil
import sys
import threading
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "_build" / "html"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
# A busy browser may report a file some time after it has used it.
REPORTED = """() => [...document.images].every((image) =>
  image.src.startsWith("data:") || performance.getEntriesByName(image.src).some((file) => file.encodedBodySize > 0))"""
LOADED = """() => {
  const files = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];
  const kinds = {html: 0, css: 0, js: 0, woff2: 0, webp: 0, other: 0};
  for (const file of files) {
    const kind = new URL(file.name).pathname.split(".").pop();
    kinds[kind in kinds ? kind : "other"] += file.encodedBodySize;
  }
  return {kinds, paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? Infinity, ready: performance.now()};
}"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


def browser_path() -> str:
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    return path or sys.exit("needed: chromium or google-chrome on the path")


def measure(browser, address, rounds=3):
    """Bytes by kind of file, the most of several rounds; first contentful paint and readiness in ms, the best of them."""
    found = []
    for _ in range(rounds):
        page = browser.new_context().new_page()
        page.goto(address)
        page.wait_for_function("document.documentElement.dataset.ready === 'true'", timeout=120_000)
        page.wait_for_function(REPORTED, timeout=60_000)
        found.append(page.evaluate(LOADED))
        page.context.close()
    return max((one["kinds"] for one in found), key=lambda kinds: sum(kinds.values())), min(one["paint"] for one in found), min(one["ready"] for one in found)


def table(rows):
    heads = ["page", "total kB", "page itself", "styles", "scripts", "fonts", "pictures", "other", "first paint ms", "ready ms"]
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)]]
    for name, kinds, paint, ready in rows:
        sizes = [size / 1000 for size in (sum(kinds.values()), *kinds.values())]
        lines.append([name, *(f"{number:.0f}" for number in (*sizes, paint, ready))])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--site", type=Path, default=SITE)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks")
    options = parser.parse_args()
    pages = sorted(path.relative_to(options.site).as_posix() for path in options.site.glob("book/*.html"))
    path = browser_path()
    if not pages:
        sys.exit("needed: a built site (make book)")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=options.site))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        rows = [(page, *measure(browser, f"http://127.0.0.1:{server.server_port}/{page}", options.rounds)) for page in pages]
        browser.close()
    text = table(rows)
    text += f"\n\nBest of {options.rounds} rounds with an empty cache, headless Chromium, no compression, from localhost.\n"
    print(text)
    (options.out / "site.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

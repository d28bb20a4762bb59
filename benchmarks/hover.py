"""What it costs the attention viewer to follow the pointer over 1,024 tokens, in processor time of the browser.

    python benchmarks/hover.py [--out benchmarks]

The pointer moves over the picture or over the text, once a frame, eighty times; the first ten are not counted. The browser reports
the processor time of its main thread, which a busy machine does not lengthen: all of it, and the script's part. Writes hover.md.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright
from site_pages import ARGUMENTS, ROOT, browser_path

from tlm_book.viewer import attention

N = 1024
MOVE = """async (k) => {
  const root = document.querySelector("[data-tlm-attention]").firstChild.shadowRoot, cells = root.querySelector(".cells");
  const at = (node, x, y) => node.dispatchEvent(new PointerEvent("pointermove", { clientX: x, clientY: y, bubbles: true, composed: true }));
  const box = cells.getBoundingClientRect();
  if (k % 2) at(root.querySelector(".text").children[(37 * k) % 1000], 0, 0);
  else at(cells, box.left + box.width * ((17 * k) % 40) / 40, box.top + box.height * (1 - ((7 * k) % 45) / 45));
  await new Promise(requestAnimationFrame);
  await new Promise((done) => setTimeout(done, 0));
}"""


def picture(form, against):
    weights = np.tril(np.exp(2 * np.random.default_rng(0).normal(size=(2, N, N))))
    view = attention([f"w{i}" for i in range(N)], weights / weights.sum(-1, keepdims=True))
    view.form, view.against = form, against
    return f'<!doctype html><html data-theme="light"><body>{view.to_html()}</body></html>'


def hovers(browser, html, moves=80):
    """(all, script) of the main thread in milliseconds, for each move of the pointer."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "page.html")
        path.write_text(html, encoding="utf-8")
        page = browser.new_page(viewport={"width": 1000, "height": 900})
        page.goto(path.as_uri())
        page.locator(".cells").first.scroll_into_view_if_needed()
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        spent = []
        for k in range(moves):
            page.evaluate(MOVE, k)
            now = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
            spent.append([1000 * now[name] for name in ("TaskDuration", "ScriptDuration")])
        page.close()
    return np.diff(spent, axis=0)[10:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks")
    options = parser.parse_args()
    lines = ["| picture | median ms | 95th percentile ms | of it script ms |", "| --- | ---: | ---: | ---: |"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path(), args=ARGUMENTS)
        for name, form, against in (("matrix", "matrix", None), ("edges", "edges", None), ("two matrices", "matrix", (0, 1))):
            spent = hovers(browser, picture(form, against))
            (middle, script), (high, _) = np.median(spent, axis=0), np.percentile(spent, 95, axis=0)
            lines.append(f"| {name} | {middle:.1f} | {high:.1f} | {script:.1f} |")
        browser.close()
    text = "\n".join(lines) + f"\n\nProcessor time of the browser's main thread for one move of the pointer over {N:,} tokens; 33 ms are 30 frames a second.\n"
    print(text)
    (options.out / "hover.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

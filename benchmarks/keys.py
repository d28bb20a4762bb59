"""What a key press costs on a page that holds a model, in processor time of the browser.

    python benchmarks/keys.py [--out benchmarks]

The small world's model, 64 tokens of text. Letters are typed at the end, in front, and at the end without the mask; then
the page writes by itself. The browser reports the processor time of its main thread: waiting does not count, yet beside other work, with which it shares
caches, a key costs more. Writes keys.md.
"""

import argparse
import shutil
import tempfile
from pathlib import Path

from harness import about, machine
from playwright.sync_api import sync_playwright
from site_pages import ARGUMENTS, ROOT

from tlm_book import small_world
from tlm_book.viewer import playground

READY = """async (text) => {
  const el = document.querySelector("[data-tlm-playground]"), box = el.firstChild.shadowRoot.querySelector("textarea");
  if (text !== null) {
    box.value = text;
    box.dispatchEvent(new Event("input"));
  }
  while (!el.dataset.ready) await new Promise((done) => setTimeout(done, 0));
  await new Promise(requestAnimationFrame);
  await new Promise((done) => setTimeout(done, 0));
  return +el.dataset.ready;
}"""
MASK = "document.querySelector('[data-tlm-playground]').firstChild.shadowRoot.querySelector('.mask input').click()"
WRITE = """async () => {
  const el = document.querySelector("[data-tlm-playground]"), button = [...el.firstChild.shadowRoot.querySelectorAll("button")].find((one) => one.textContent === "write on");
  button.click();
  const written = () => el.dataset.written?.split(" ").length ?? 0;
  while (written() < 100) await new Promise((done) => setTimeout(done, 20));
  button.click();
  return written();
}"""


def measured(browser, model, tokenizer, text):
    """{what was done: milliseconds of the main thread for one}."""
    with tempfile.TemporaryDirectory() as folder:
        page = browser.new_page(viewport={"width": 1000, "height": 900})
        page.goto(playground(model, tokenizer, text).save(Path(folder, "page.html")).as_uri())
        page.wait_for_selector("[data-ready]", state="attached")
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})

        def spent():
            return 1000 * {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}["TaskDuration"]

        def cost(texts):
            page.evaluate(READY, texts[0])
            page.evaluate(READY, texts[1])
            before = spent()
            for one in texts[2:]:
                page.evaluate(READY, one)
            return (spent() - before) / len(texts[2:])

        more = " the key was on the table"
        found = {"a letter at the end": cost([text + more[:k] for k in range(len(more))])}
        found["a letter in front"] = cost(["ABCDEFGHIJKL"[k] + text for k in range(12)])
        page.evaluate(MASK)
        found["a letter at the end, without the mask"] = cost([text + more[:k] for k in range(12)])
        page.evaluate(MASK)
        page.evaluate(READY, text)
        before = spent()
        count = page.evaluate(WRITE)
        found["a token that is written"] = (spent() - before) / count
        page.close()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks")
    out = parser.parse_args().out
    model, tokenizer = small_world.model()
    text = tokenizer.decode(tokenizer.encode(small_world.stories(1, seed=1, levels=(4,))[0])[:64])
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        found, facts = measured(browser, model, tokenizer, text), machine(chromium=browser.version)
        browser.close()
    lines = ["| what is done | ms |", "| --- | ---: |", *(f"| {name} | {ms:.1f} |" for name, ms in found.items())]
    weights = sum(w.numel() for w in model.parameters())
    note = f"Processor time of the browser's main thread, in slices of ten milliseconds; {weights:,} weights, 64 tokens of text (100 more are written)."
    (out / "keys.md").write_text("\n".join([*lines, "", note, "", about(facts), ""]), encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()

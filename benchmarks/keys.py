"""What a key press costs on a page that holds a model: processor time of the page's own thread, and the time until the answer is drawn.

    python benchmarks/keys.py [--out benchmarks]

The small world's model, 64 tokens of text. Letters are typed at the end, in front, and at the end without the mask; then
the page writes by itself. All this is done twice: as readers have it, and on a page without a worker. The browser reports the processor time of its
main thread: waiting does not count, yet beside other work, with which it shares caches, a key costs more. Writes keys.md.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

from harness import about, machine
from playwright.sync_api import sync_playwright
from site_pages import ARGUMENTS, ROOT, browser_path

from tlm_book import small_world
from tlm_book.viewer import playground

TYPE = """async (text) => {
  const el = document.querySelector("[data-tlm-playground]"), box = el.firstChild.shadowRoot.querySelector("textarea"), from = performance.now();
  box.value = text;
  box.dispatchEvent(new Event("input"));
  if (!el.dataset.ready) await new Promise((done) => { // without asking again and again, which would count
    new MutationObserver((_, seen) => { if (el.dataset.ready) { seen.disconnect(); done(); } }).observe(el, { attributeFilter: ["data-ready"] });
  });
  await new Promise(requestAnimationFrame);
  await new Promise((done) => setTimeout(done, 0));
  return performance.now() - from;
}"""
MASK = "document.querySelector('[data-tlm-playground]').firstChild.shadowRoot.querySelector('.mask input').click()"
WRITE = """async () => {
  const el = document.querySelector("[data-tlm-playground]"), button = [...el.firstChild.shadowRoot.querySelectorAll("button")].find((one) => one.textContent === "write on");
  button.click();
  const written = () => el.dataset.written?.split(" ").length ?? 0, from = performance.now();
  while (written() < 100) await new Promise((done) => setTimeout(done, 20));
  button.click();
  return [written(), performance.now() - from];
}"""


def measured(browser, model, tokenizer, text, worker):
    """{what was done: milliseconds for one of these, on the main thread and by the clock}."""
    with tempfile.TemporaryDirectory() as folder:
        page = browser.new_page(viewport={"width": 1000, "height": 900})
        if not worker:
            page.add_init_script("delete globalThis.Worker")
        page.goto(playground(model, tokenizer, text).save(Path(folder, "page.html")).as_uri())
        page.wait_for_selector("[data-ready]", state="attached")
        assert bool(page.workers) == worker
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})

        def spent():
            return 1000 * {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}["TaskDuration"]

        def cost(texts):
            for one in texts[:2]:
                page.evaluate(TYPE, one)
            before = spent()
            waited = [page.evaluate(TYPE, one) for one in texts[2:]]
            return (spent() - before) / len(waited), statistics.median(waited)

        more = " the key was on the table"
        found = {"a letter at the end": cost([text + more[:k] for k in range(len(more))])}
        found["a letter in front"] = cost(["ABCDEFGHIJKL"[k] + text for k in range(12)])
        page.evaluate(MASK)
        found["a letter at the end, without the mask"] = cost([text + more[:k] for k in range(12)])
        page.evaluate(MASK)
        page.evaluate(TYPE, text)
        before = spent()
        count, ms = page.evaluate(WRITE)
        found["a token that is written"] = (spent() - before) / count, ms / count
        page.close()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks")
    out = parser.parse_args().out
    model, tokenizer = small_world.model()
    text = tokenizer.decode(tokenizer.encode(small_world.stories(1, seed=1, levels=(4,))[0])[:64])
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path(), args=list(ARGUMENTS))
        found = [measured(browser, model, tokenizer, text, worker) for worker in (True, False)]
        facts = machine(chromium=browser.version)
        browser.close()
    lines = ["| what is done | the page's thread, ms | until drawn, ms | no worker: its thread, ms | until drawn, ms |", "| --- | ---: | ---: | ---: | ---: |"]
    lines += [f"| {name} | " + " | ".join(f"{ms:.1f}" for way in found for ms in way[name]) + " |" for name in found[0]]
    weights = sum(w.numel() for w in model.parameters())
    note = f"Processor time of the browser's main thread (the mean), and the time by the clock from the key to the next picture (the median; for what is written, the mean); {weights:,} weights, 64 tokens of text (100 more are written)."
    (out / "keys.md").write_text("\n".join([*lines, "", note, "", about(facts), ""]), encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()

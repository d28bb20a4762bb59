"""The README's pictures, in light and dark: a lemma, its proof and its check, as the built site shows them; and the model of the small world, which
is asked about a story.

    make book && python book/_tools/screenshot.py
    python book/_tools/screenshot.py --model          # only the model, which needs no site
"""

import io
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from tlm_book import small_world
from tlm_book.viewer import playground

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "_build" / "html"
PAGE, STATEMENT, WIDTH = "book/operators.html", "T-pattern-lemma", 760

# Unfolds the first cell after the statement: left, top, right and bottom of what stands between the statement and the end of this cell.
REGION = """name => {
  const box = document.getElementById(name);
  let cell = box;
  while (!cell.matches("div.cell")) cell = cell.nextElementSibling;
  for (const part of cell.querySelectorAll("details")) part.open = true;
  const first = box.getBoundingClientRect();
  return [first.left - 12, first.top - 12, first.right + 12, cell.getBoundingClientRect().bottom + 12];
}"""


SEED, ASIDE = 37, 760  # of the story in question, the first in the chapter playground; width of the window
KEY, REST = 170, 2600  # milliseconds for which a letter and the last picture stay


def lemma(browser: Browser, scheme: str) -> None:
    page = browser.new_page(viewport={"width": WIDTH, "height": 2000}, color_scheme=scheme, device_scale_factor=1.5)
    page.goto((SITE / PAGE).as_uri())
    page.wait_for_timeout(2500)  # the mathematics is set by a script
    left, top, right, bottom = page.evaluate(REGION, STATEMENT)
    clip = {"x": left, "y": top, "width": right - left, "height": bottom - top}
    shot = page.screenshot(clip=clip, full_page=True)
    picture = Image.open(io.BytesIO(shot)).convert("RGB")
    picture.save(ROOT / ".github" / f"page-{scheme}.webp", quality=80, method=6)
    page.close()


def typed(browser: Browser, scheme: str, file: Path, question: str) -> None:
    """One picture for each letter of the question; the last one stays, and is shown alone where motion is not wanted."""
    page = browser.new_page(viewport={"width": ASIDE, "height": 1200}, color_scheme=scheme)
    page.goto(file.as_uri())
    page.wait_for_selector("[data-ready]")
    box, pictures = page.locator("textarea"), []
    box.press("Control+End")
    for letter in ("", *question):
        if letter:
            box.press_sequentially(letter)
        page.wait_for_timeout(400)  # until the model has answered
        heads = page.locator(".heads").bounding_box()
        clip = {"x": 0, "y": 12, "width": ASIDE, "height": int(heads["y"] + heads["height"])}
        pictures.append(Image.open(io.BytesIO(page.screenshot(clip=clip))).convert("RGB"))
    still = pictures[-1]  # the highest, since it has the answer; below the others the page is empty
    first, *others = (Image.new("RGB", still.size, still.getpixel((0, 0))) for _ in pictures)
    for picture, shot in zip((first, *others), pictures):
        picture.paste(shot)
    names, times = ROOT / ".github", [KEY] * len(question) + [REST]
    first.save(names / f"model-{scheme}.webp", save_all=True, append_images=others, duration=times, loop=0, quality=60, method=4, minimize_size=True)
    still.save(names / f"model-{scheme}-still.webp", quality=80, method=6)
    page.close()


def main() -> None:
    with sync_playwright() as play, tempfile.TemporaryDirectory() as folder:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
        file = Path(folder, "model.html")
        (tale,) = small_world.stories(1, seed=SEED, levels=(0, 1))
        told, asked = tale.splitlines()[:2]
        playground(*small_world.model(), f"{told}\n", begins=True, stories=[tale]).save(file)
        for scheme in ("light", "dark"):
            if "--model" not in sys.argv:
                lemma(browser, scheme)
            typed(browser, scheme, file, asked.partition("?")[0] + "?")
        browser.close()


if __name__ == "__main__":
    main()

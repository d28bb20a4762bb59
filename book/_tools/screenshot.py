"""The README's pictures, in light and dark: a lemma, its proof and its check, as the built site shows them; and a model that answers while somebody types.

    make book && python book/_tools/screenshot.py
    python book/_tools/screenshot.py --model          # only the model, which needs no site
"""

import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "_build" / "html"
PAGE, STATEMENT, WIDTH = "book/operators.html", "T-pattern-lemma", 760

# Left, top, right and bottom of what stands between the statement and the end of the first cell after it.
REGION = """name => {
  const box = document.getElementById(name);
  let cell = box;
  while (!cell.matches("div.cell")) cell = cell.nextElementSibling;
  const first = box.getBoundingClientRect();
  return [first.left - 12, first.top - 12, first.right + 12, cell.getBoundingClientRect().bottom + 12];
}"""


TEXT, ASIDE = "The tide comes in and goes", 760  # what is typed; width of the window
KEY, REST = 170, 2600  # milliseconds that a letter and the last picture stay


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


def typed(browser: Browser, scheme: str, file: Path) -> None:
    """One picture for each letter that is typed; the last one stays, and stands alone where motion is not wanted."""
    page = browser.new_page(viewport={"width": ASIDE, "height": 1200}, color_scheme=scheme)
    page.goto(file.as_uri())
    box, pictures = page.locator("textarea"), []
    for k in range(len(TEXT) + 1):
        if k:
            box.press_sequentially(TEXT[k - 1])
        page.wait_for_timeout(250)  # until the model has answered
        table = page.locator("table").first.bounding_box()
        clip = {"x": 0, "y": 12, "width": ASIDE, "height": table["y"] + table["height"] - 12}
        pictures.append(Image.open(io.BytesIO(page.screenshot(clip=clip))).convert("RGB"))
    still, names = pictures[-1], ROOT / ".github"
    times = [KEY] * len(TEXT) + [REST]
    pictures[0].save(names / f"model-{scheme}.webp", save_all=True, append_images=pictures[1:], duration=times, loop=0, quality=60, method=4, minimize_size=True)
    still.save(names / f"model-{scheme}-still.webp", quality=80, method=6)
    page.close()


def main() -> None:
    with sync_playwright() as play, tempfile.TemporaryDirectory() as folder:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
        file = Path(folder, "model.html")
        subprocess.run([sys.executable, "-m", "tlm_book", "page", "--out", file], check=True)
        for scheme in ("light", "dark"):
            if "--model" not in sys.argv:
                lemma(browser, scheme)
            typed(browser, scheme, file)
        browser.close()


if __name__ == "__main__":
    main()

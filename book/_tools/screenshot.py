"""The README's picture, in light and dark: a lemma, its proof and its check, as the built site shows them.

    make book && python book/_tools/screenshot.py
"""

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[2]
SITE = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "_build" / "html"
PAGE, STATEMENT, WIDTH = "book/operators.html", "T-pattern-lemma", 760

# Left, top, right and bottom of what stands between the statement and the end of the first cell after it.
REGION = """name => {
  const box = document.getElementById(name);
  let cell = box;
  while (!cell.matches("div.cell")) cell = cell.nextElementSibling;
  const first = box.getBoundingClientRect();
  return [first.left - 12, first.top - 12, first.right + 12, cell.getBoundingClientRect().bottom + 12];
}"""


def main() -> None:
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
        for scheme in ("light", "dark"):
            page = browser.new_page(viewport={"width": WIDTH, "height": 2000}, color_scheme=scheme, device_scale_factor=1.5)
            page.goto((SITE / PAGE).as_uri())
            page.wait_for_timeout(2500)  # the mathematics is set by a script
            left, top, right, bottom = page.evaluate(REGION, STATEMENT)
            clip = {"x": left, "y": top, "width": right - left, "height": bottom - top}
            shot = page.screenshot(clip=clip, full_page=True)
            picture = Image.open(io.BytesIO(shot)).convert("RGB")
            picture.save(ROOT / ".github" / f"page-{scheme}.webp", quality=80, method=6)
        browser.close()


if __name__ == "__main__":
    main()

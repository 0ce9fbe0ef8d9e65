"""Pictures of the example sites for `docs/pictures/`: `make screenshots`. It needs Chromium, and is no part of CI.

The browser also scales and encodes, so that no image library is needed and all pictures together stay small.
"""

from __future__ import annotations

import base64
import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from producers.chromium import LEAN
from sites.directories import write_directory
from sites.spec.model import parse_site
from sites.spec.render import referenced_assets, render

DOCS = Path(__file__).parent
SITES = tuple(sorted(path.parent for path in (DOCS.parent / "producers" / "evaluation" / "sites").glob("*/site.json")))
"""One folder for each example: `site.json`, and the files that its pages refer to."""
BAKERY = DOCS.parent / "producers" / "local" / "demo_site"
"""The ninth: the site of `pointsman demo`."""
WIDTHS = {390: 0.62, 1440: 0.5}
"""Widths in CSS pixels, and how much smaller the pictures are."""
QUALITY = 0.72
SMALLER = """async ([png, scale, quality]) => {
  const image = await createImageBitmap(await (await fetch("data:image/png;base64," + png)).blob());
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(image.width * scale);
  canvas.height = Math.round(image.height * scale);
  const brush = canvas.getContext("2d");
  brush.imageSmoothingQuality = "high";
  brush.drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/webp", quality).split(",")[1];
}"""


def build(folder: Path, target: Path) -> None:
    """Build an example, with its files, into a directory as a visitor gets it.

    Raises:
        SpecError: the example is invalid.
        OSError: a file that it refers to is missing.
    """
    site = parse_site((folder / "site.json").read_bytes())
    assets = {path: (folder / path).read_bytes() for path in sorted(referenced_assets(site))}
    write_directory(render(site) | assets, target)


def picture(browser: Browser, page_file: Path, width: int) -> bytes:
    """Return a page from top to bottom at a width, as WebP."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme="light")
    page.goto(page_file.as_uri())
    page.evaluate("document.querySelectorAll('img').forEach(image => { image.loading = 'eager'; })")
    page.wait_for_function("[...document.images].every(image => image.complete && image.naturalWidth > 0)")
    png = base64.b64encode(page.screenshot(full_page=True)).decode()
    page.goto("about:blank")
    webp = page.evaluate(SMALLER, [png, WIDTHS[width], QUALITY])
    page.close()
    return base64.b64decode(webp)


def main() -> int:
    """Take all pictures; 2 when there is no Chromium."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.stderr.write("screenshots: no Chromium (`apt-get install chromium`)\n")
        return 2
    pictures = DOCS / "pictures"
    pictures.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", LEAN])
        for folder in (*SITES, BAKERY):
            name = "bakery" if folder == BAKERY else folder.name
            build(folder, Path(scratch) / name)
            for width in WIDTHS:
                data = picture(browser, Path(scratch) / name / "index.html", width)
                (pictures / f"{name}-{width}.webp").write_bytes(data)
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())

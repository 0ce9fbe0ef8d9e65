"""Pictures of the console for `docs/pictures/console/`: `make screenshots`. It needs Chromium, and is no part of CI.

With a directory as argument every page is taken at both widths, light and dark, for whoever works on the console.
"""

from __future__ import annotations

import base64
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from docs.pictures import SMALLER
from producers.chromium import LEAN
from producers.dispatch.thumbnails import ThumbnailMaker
from tests.console_stage import Stage, log_in, open_stage

WIDTHS = {390: 0.75, 1440: 0.75}
"""Widths in CSS pixels, and how much smaller the pictures are."""
QUALITY = 0.78
KEPT = (
    ("fleet", 1440, "light"),
    ("job", 1440, "light"),
    ("run", 1440, "dark"),
    ("sites", 1440, "light"),
    ("dead", 1440, "dark"),
    ("fleet", 390, "dark"),
    ("job", 390, "light"),
    ("jobs", 390, "light"),
)
"""What the documentation shows."""


def shoot(browser: Browser, stage: Stage, wanted: list[tuple[str, int, str]]) -> dict[tuple[str, int, str], bytes]:
    """Return pictures of pages as PNG, at most three screens high."""
    taken = {}
    for width, scheme in sorted({(width, scheme) for _, width, scheme in wanted}):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
        page = context.new_page()
        log_in(page, stage)
        for name, path in stage.pages.items():
            if (name, width, scheme) not in wanted:
                continue
            page.goto(f"{stage.url}/console{path}", wait_until="load")
            page.wait_for_timeout(700)
            height = min(2400, page.evaluate("document.documentElement.scrollHeight"))
            page.set_viewport_size({"width": width, "height": max(900 if width > 390 else 844, height)})
            page.wait_for_timeout(500)
            taken[name, width, scheme] = page.screenshot()
            page.set_viewport_size({"width": width, "height": 900})
        context.close()
    return taken


@contextmanager
def on_stage() -> Iterator[tuple[Browser, Stage]]:
    """Open a browser and a console with something on every page; exit with 2 where there is no Chromium."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.stderr.write("screenshots: no Chromium (`apt-get install chromium`)\n")
        raise SystemExit(2)
    with tempfile.TemporaryDirectory() as scratch, open_stage(Path(scratch)) as stage, sync_playwright() as playwright:
        maker = ThumbnailMaker(stage.world.ledger, stage.world.content_store, program=chromium, holder="stage")
        while maker.make_next():
            pass
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", LEAN])
        yield browser, stage
        browser.close()


def main() -> int:
    """Take the pictures."""
    with on_stage() as (browser, stage):
        if len(sys.argv) > 1:
            Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
            every = [(name, width, scheme) for name in stage.pages for width in WIDTHS for scheme in ("light", "dark")]
            for (name, width, scheme), png in shoot(browser, stage, every).items():
                (Path(sys.argv[1]) / f"{name}-{width}-{scheme}.png").write_bytes(png)
            return 0
        target = Path(__file__).parent / "pictures" / "console"
        target.mkdir(parents=True, exist_ok=True)
        page = browser.new_page()
        for (name, width, scheme), png in shoot(browser, stage, list(KEPT)).items():
            webp = page.evaluate(SMALLER, [base64.b64encode(png).decode(), WIDTHS[width], QUALITY])
            (target / f"{name}-{width}-{scheme}.webp").write_bytes(base64.b64decode(webp))
    return 0


if __name__ == "__main__":
    sys.exit(main())

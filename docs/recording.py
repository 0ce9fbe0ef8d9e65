"""The moving picture of a review in README, light and dark: a part of `make screenshots`, and no part of CI."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page

from docs.console_pictures import on_stage
from tests.console_stage import Stage, log_in

TARGET = Path(__file__).parent / "pictures" / "console"
VIEWPORT = {"width": 1360, "height": 850}
SIZE = (1088, 680)
QUALITY = 60

Frame = tuple[bytes, int]
"""A picture, and for how many milliseconds it is shown."""


def review(page: Page, stage: Stage) -> Iterator[Frame]:
    """Take the frames of a review: the inbox, the edit under a slider, on a phone, its approval and the way back."""

    def shown(milliseconds: int, *, after: int = 250) -> Frame:
        page.wait_for_timeout(after)
        return page.screenshot(), milliseconds

    page.goto(f"{stage.url}/console/jobs?state=awaiting_approval", wait_until="load")
    yield shown(1500, after=600)
    page.locator(f"#job-{stage.offered}").click()
    page.frame_locator("figure:last-of-type iframe").locator("h1[style*=outline]").wait_for()
    yield shown(2200, after=900)
    page.get_by_role("button", name="Slider").click()
    slider = page.get_by_label("How much of the new page")
    for cut in (*range(50, 91, 8), *range(90, 9, -8), *range(10, 51, 8)):
        slider.evaluate(
            "(input, cut) => { input.value = cut; input.dispatchEvent(new Event('input', {bubbles: true})) }", cut
        )
        yield shown(80, after=60)
    yield shown(500)
    page.get_by_role("button", name="Side by side").click()
    page.get_by_role("button", name="Phone 390").click()
    yield shown(1600)
    page.get_by_role("button", name="Desktop 1440").click()
    page.locator("#approve").hover()
    yield shown(700)
    page.keyboard.press("a")
    page.get_by_role("button", name="Undo").wait_for()
    for _ in range(4):
        yield shown(1000, after=950)


def film(browser: Browser, stage: Stage, scheme: str) -> bytes:
    """Return the review as an animated WebP."""
    context = browser.new_context(viewport=VIEWPORT, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    log_in(page, stage)
    frames = list(review(page, stage))
    context.close()
    first, *rest = [
        Image.open(io.BytesIO(png)).convert("RGB").resize(SIZE, Image.Resampling.LANCZOS) for png, _ in frames
    ]
    out = io.BytesIO()
    first.save(
        out,
        "WEBP",
        save_all=True,
        append_images=rest,
        duration=[milliseconds for _, milliseconds in frames],
        loop=0,
        quality=QUALITY,
        method=6,
    )
    return out.getvalue()


def main() -> int:
    """Take both, each of a stage of its own: the approval at the end of one cannot always be undone in time."""
    for scheme in ("light", "dark"):
        with on_stage() as (browser, stage):
            (TARGET / f"review-{scheme}.webp").write_bytes(film(browser, stage, scheme))
    return 0


if __name__ == "__main__":
    sys.exit(main())

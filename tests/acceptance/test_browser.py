"""A reviewer's browser shows the preview as it was built: styled, complete, and nothing refused by its policy."""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, ConsoleMessage, sync_playwright

from tests.acceptance.installation import Installation

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        shutil.which("chromium") is None, reason="no Chromium: `make test SYSTEM=1` as root installs it"
    ),
]
QUIET = ("--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(QUIET))
        yield opened
        opened.close()


@pytest.mark.parametrize("width", [390, 1440])
def test_a_preview_looks_as_built_at_both_widths(installation: Installation, browser: Browser, width: int) -> None:
    installation.embedded.import_site(f"shown-{width}")
    job_id = installation.submit(f"Change the hero heading to 'Bread for {width}'", site=f"shown-{width}")
    job = installation.wait_for(job_id, "awaiting_approval")
    complaints: list[str] = []

    def listen(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            complaints.append(message.text)

    page = browser.new_page(viewport={"width": width, "height": 900})
    page.on("console", listen)
    page.on("requestfailed", lambda request: complaints.append(f"failed: {request.url}"))
    page.goto(job["preview_url"], wait_until="networkidle")
    assert page.locator("h1").inner_text() == f"Bread for {width}"
    assert page.evaluate("getComputedStyle(document.body).fontFamily") not in ("", "Times", '"Times New Roman"')
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing sticks out"
    for image in page.locator("img").all():
        image.scroll_into_view_if_needed()
    page.wait_for_function("[...document.images].every(image => image.complete && image.naturalWidth > 0)")
    assert complaints == []
    page.close()
    installation.http.post(f"/v1/jobs/{job_id}/reject", json={"reason": "seen"})
    installation.wait_for(job_id, "rejected")


@pytest.mark.threat("H1", "H2")
def test_a_previews_scripts_run_in_an_origin_of_their_own_and_its_links_tell_nobody_the_token(
    installation: Installation, browser: Browser
) -> None:
    installation.embedded.import_site("walled")
    job_id = installation.submit("Change the hero heading to 'Behind a wall'", site="walled")
    job = installation.wait_for(job_id, "awaiting_approval")
    page = browser.new_page()
    referrers: list[str | None] = []
    page.on("request", lambda request: referrers.append(request.headers.get("referer")))
    page.goto(job["preview_url"], wait_until="networkidle")
    assert page.evaluate("self.origin") == "null"
    assert page.evaluate("document.referrer") == ""
    reach = "url => fetch(url).then(() => 'reached', error => 'refused: ' + error.name)"
    assert page.evaluate(reach, f"{installation.embedded.api_url}/healthz") == "refused: TypeError"
    kept = "() => { try { localStorage.x = 1; return 'kept' } catch (error) { return error.name } }"
    assert page.evaluate(kept) == "SecurityError"
    assert len(referrers) > 1
    assert not any(referrers)
    page.close()
    installation.http.post(f"/v1/jobs/{job_id}/reject", json={"reason": "seen"})
    installation.wait_for(job_id, "rejected")

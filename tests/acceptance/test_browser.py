"""A reviewer's browser shows the preview as it was built: styled, complete, and nothing refused by its policy."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage

from producers.local.preparation import TENANT
from tests.acceptance.installation import Installation
from tests.services import wait_until

ARE_THERE = "[...document.images].every(image => image.complete && image.naturalWidth > 0)"

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]
BROKEN = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Hours</title></head>
<body><h1>Closed on Monday</h1><img src="loaf.svg" alt="A loaf">
<script>
localStorage.counter = 1;
if (document.querySelector("h1").textContent.includes("Tuesday")) {
  document.images[0].src = "no-such.png";
  openMenu();
}
</script></body></html>
"""
"""A page whose script fails as soon as it is changed."""


def test_a_preview_looks_as_built_at_both_widths(installation: Installation, browser: Browser) -> None:
    installation.embedded.import_site("shown")
    job_id = installation.submit("Change the hero heading to 'Bread for all'", site="shown")
    job = installation.wait_for(job_id, "awaiting_approval")
    complaints: list[str] = []

    def listen(message: ConsoleMessage) -> None:
        if "sandbox attribute" in message.text:
            return  # of the page's own policy: nothing of its origin is around it that it could reach
        if message.type in ("error", "warning"):
            complaints.append(message.text)

    page = browser.new_page()
    page.on("console", listen)
    page.on("requestfailed", lambda request: complaints.append(f"failed: {request.url}"))
    for width in (390, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(job["preview_url"], wait_until="networkidle")
        assert page.locator("h1").inner_text() == "Bread for all"
        assert page.evaluate("getComputedStyle(document.body).fontFamily") not in ("", "Times", '"Times New Roman"')
        assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing sticks out"
        for image in page.locator("img").all():
            image.scroll_into_view_if_needed()
        # The page's policy lets no string be polled as a script, as `wait_for_function` does.
        wait_until(lambda page=page: page.evaluate(ARE_THERE), seconds=30, what="all images are there")  # type: ignore[misc]
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
    own = page.evaluate("self.origin")
    assert own.startswith("http://preview-")
    assert page.evaluate("document.referrer") == ""
    reach = "url => fetch(url).then(answer => answer.status, error => 'refused: ' + error.name)"
    assert page.evaluate(reach, f"{installation.embedded.api_url}/healthz") == "refused: TypeError"
    live = f"/live/{TENANT}/walled/"
    assert page.evaluate(reach, live) == 404, "this host name is the preview's alone"
    visits = "() => localStorage.visits = Number(localStorage.visits ?? 0) + 1"
    assert page.evaluate(visits) == 1
    page.reload(wait_until="networkidle")
    assert page.evaluate(visits) == 2, "storage works as it will for visitors"
    page.goto(f"{installation.embedded.pages_url}{live}", wait_until="networkidle")
    assert page.evaluate("self.origin") not in (own, installation.embedded.pages_url, "null")
    assert page.evaluate(visits) == 1, "what a preview stores stays with it"
    assert len(referrers) > 1
    assert not any(referrers)
    page.close()
    installation.http.post(f"/v1/jobs/{job_id}/reject", json={"reason": "seen"})
    installation.wait_for(job_id, "rejected")


def test_a_reviewer_sees_what_goes_wrong_on_a_page(
    installation: Installation, browser: Browser, tmp_path: Path
) -> None:
    (tmp_path / "index.html").write_text(BROKEN)
    (tmp_path / "loaf.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"/>')
    installation.embedded.import_site("faulty", tmp_path)
    job_id = installation.submit("Change 'Monday' to 'Tuesday' on the home page", site="faulty")
    installation.wait_for(job_id, "awaiting_approval")
    page = browser.new_page()
    page.goto(f"{installation.embedded.api_url}/console/")
    page.get_by_label("API key").fill(installation.embedded.api_key)
    page.get_by_role("button").first.click()
    page.goto(f"{installation.embedded.api_url}/console/jobs/{job_id}")
    told = page.locator(".script-errors").last
    told.scroll_into_view_if_needed()
    told.get_by_text("openMenu is not defined").wait_for()
    told.get_by_text("not found: no-such.png").wait_for()
    assert page.locator(".script-errors").filter(has_text="torage").count() == 0, (
        "its scripts have one, as visitors' do"
    )
    page.close()
    installation.http.post(f"/v1/jobs/{job_id}/reject", json={"reason": "seen"})

"""The console in a real browser: a reviewer's whole day on an embedded fleet, and every page under scrutiny."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from playwright.sync_api import Browser, Page, expect

from sites.directories import read_directory
from tests.acceptance.installation import Installation
from tests.console_stage import LONG, SITES, Stage, log_in, open_stage
from tests.unit.sites.test_archives import zipped

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
AXE = resources.files("axe_playwright_python") / "axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
SECONDS = 30_000


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with open_stage(tmp_path_factory.mktemp("stage")) as made:
        yield made


@contextmanager
def open_page(browser: Browser, *, width: int = 1440, scheme: Any = "light") -> Iterator[Page]:
    """A page that must end without a complaint: no refused script or style, no failed request, no error."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    context.close()
    # A page that is left while its event stream is open says so; a page that is not there answers 404.
    assert [one for one in complaints if "404" not in one and "ERR_INCOMPLETE" not in one] == []


def enter(page: Page, installation: Installation) -> None:
    page.goto(f"{installation.embedded.api_url}/")
    page.get_by_label("API key").fill(installation.embedded.api_key)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Fleet")).to_be_visible()


def badge(page: Page, text: str) -> None:
    expect(page.locator("#job .head .badge").first).to_have_text(text, timeout=SECONDS)


def job_of(page: Page) -> UUID:
    return UUID(page.url.split("?")[0].rstrip("/").rsplit("/", 1)[1])


def submit(page: Page, prompt: str, *, site: str = "", tier: str = "") -> UUID:
    page.get_by_role("link", name="Jobs", exact=True).click()
    page.get_by_text("New job").click()
    page.get_by_label("What should change").fill(prompt)
    form = page.locator("details.new")
    form.get_by_label("Site", exact=True).fill(site)
    if tier:
        form.get_by_label("Tier").select_option(tier)
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url(re.compile(r"/jobs/[0-9a-f-]{36}"))
    return job_of(page)


def complaints_of(page: Page) -> list[str]:
    """Run axe in the page; the debugger's own evaluation is not held to the page's policy."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    options = {"runOnly": RULES, "iframes": False, "resultTypes": ["violations"]}
    result = page.evaluate("options => axe.run(document, options)", options)
    return [
        f"{wrong['id']}: {node['html'][:160]} {node['failureSummary'][:300]}"
        for wrong in result["violations"]
        for node in wrong["nodes"][:3]
    ]


def approve_and_undo(page: Page) -> None:
    """Approve by keyboard, see the seconds run down, and undo it by keyboard."""
    page.keyboard.press("a")
    badge(page, "publishing")
    timer = page.get_by_role("timer")
    said = timer.inner_text()
    expect(timer).not_to_have_text(said)
    seconds = [int(re.fullmatch(r"Publishing in (\d+) s", text)[1]) for text in (said, timer.inner_text())]  # type: ignore[index]
    assert 10 >= seconds[0] > seconds[1]
    expect(page.get_by_role("button", name="Approve and publish")).to_have_count(0)
    page.keyboard.press("z")
    badge(page, "awaiting approval")
    expect(timer).to_have_count(0)
    expect(page.get_by_role("status").first).to_contain_text("waits for a decision again")


def test_a_reviewer_submits_follows_looks_approves_thinks_better_of_it_approves_and_goes_back(
    installation: Installation, browser: Browser
) -> None:
    installation.embedded.import_site("counter")
    with open_page(browser) as page:
        enter(page, installation)
        submit(page, "Change the hero heading to 'Seen in the console'", site="counter")
        badge(page, "awaiting approval")  # told by the event stream: nobody reloads the page
        expect(page.locator("#events")).to_contain_text("awaiting approval")
        before, after = (
            page.frame_locator("figure:first-of-type iframe"),
            page.frame_locator("figure:last-of-type iframe"),
        )
        expect(after.locator("h1")).to_have_text("Seen in the console", timeout=SECONDS)
        for side in (before, after):  # what changed is outlined, and nothing else
            expect(side.locator("[style*=outline]")).to_have_count(1)
            expect(side.locator("h1[style*=outline]")).to_be_in_viewport()
        after.locator("html").evaluate("() => scrollTo(0, document.body.scrollHeight)")
        expect(before.locator("footer")).to_be_in_viewport()
        assert page.evaluate("scrollY") == 0, "frames scroll by themselves"
        page.get_by_role("button", name="Slider").click()
        expect(page.get_by_label("How much of the new page")).to_be_visible()
        page.get_by_role("button", name="Phone 390").click()
        expect(page.locator("#previews")).to_have_attribute("data-frames", "390")
        assert after.locator("html").evaluate("element => element.clientWidth") == 390
        approve_and_undo(page)
        page.get_by_role("button", name="Approve and publish").click()
        expect(page.get_by_role("button", name="Undo")).to_be_visible()
        assert complaints_of(page) == []
        badge(page, "published")
        expect(page.get_by_role("timer")).to_have_count(0)
        live = installation.http.get(f"{installation.embedded.pages_url}/live/demo/counter/")
        assert "Seen in the console" in live.text
        expect(page.locator("#previews")).to_have_attribute("data-frames", re.compile("390|1440"))
        page.keyboard.press("Control+k")
        page.get_by_role("combobox", name="Page, job or action").fill("site")
        page.keyboard.press("Enter")
        page.get_by_role("link", name="counter", exact=True).click()
        page.get_by_role("button", name="Roll back").click()
        page.get_by_role("dialog").get_by_role("button", name="Yes").click()
        expect(page.get_by_role("status")).to_contain_text("live again")
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    live = installation.http.get(f"{installation.embedded.pages_url}/live/demo/counter/")
    assert "Seen in the console" not in live.text


def test_previews_that_were_approved_together_are_undone_by_one_click_and_nothing_is_published(
    installation: Installation, browser: Browser
) -> None:
    edits = {}
    for site in ("north", "south"):
        installation.embedded.import_site(site)
        edits[site] = installation.submit(f"Change the hero heading to 'Hello {site}'", site=site)
    for job_id in edits.values():
        installation.wait_for(job_id, "awaiting_approval")
    with open_page(browser, width=390) as page:
        enter(page, installation)
        page.get_by_role("link", name="Jobs", exact=True).click()
        approve = page.get_by_role("button", name="Approve")
        expect(approve).to_have_count(0)  # there is nothing to approve before something is selected
        for job_id in edits.values():
            page.get_by_role("checkbox", name=f"Select {str(job_id)[-8:]}").check()
        approve.click()
        expect(page.get_by_role("heading", name="Approve 2 jobs?")).to_be_visible()
        page.get_by_role("button", name="Approve and publish 2 jobs").click()
        expect(page.get_by_role("status")).to_have_text("2 of 2 are approved.")
        expect(page.get_by_role("timer")).to_have_text(re.compile(r"Publishing in \d+ s"))
        assert complaints_of(page) == []
        page.get_by_role("button", name="Undo 2 approvals").click()
        expect(page.get_by_role("status")).to_have_text("2 of 2 are undone.")
        expect(page.get_by_role("timer")).to_have_count(0)
    for site, job_id in edits.items():
        assert installation.job(job_id)["state"] == "awaiting_approval"
        assert "Hello" not in installation.http.get(f"{installation.embedded.pages_url}/live/demo/{site}/").text


def test_a_site_is_imported_by_hand_and_a_bad_archive_says_what_is_wrong_with_it(
    installation: Installation, browser: Browser, tmp_path: Path
) -> None:
    site = read_directory(SITES / "restaurant", max_bytes=10**7, max_files=500)
    (tmp_path / "bakery.zip").write_bytes(zipped(site))
    (tmp_path / "bad.zip").write_bytes(zipped({**site, "../up.html": b"x"}))
    (tmp_path / "large.zip").write_bytes(b"PK\x03\x04" + bytes(26_000_000))
    with open_page(browser, width=390) as page:
        enter(page, installation)

        def open_form() -> None:
            page.get_by_role("link", name="Sites", exact=True).click()
            page.get_by_text("Import", exact=True).first.click()

        def send(name: str) -> None:
            page.get_by_label("Site", exact=True).fill("by-hand")
            page.get_by_label("Its files").set_input_files(tmp_path / name)
            page.get_by_role("button", name="Import").click()

        open_form()
        assert complaints_of(page) == []  # also of the open form
        send("large.zip")
        expect(page).to_have_url(re.compile("/sites$"))  # it is not sent
        assert "larger than 24 MiB" in page.get_by_label("Its files").evaluate("field => field.validationMessage")
        send("bad.zip")
        badge(page, "failed")
        expect(page.locator("main")).to_contain_text("path '../up.html' is refused: parent")
        open_form()
        send("bakery.zip")
        badge(page, "awaiting approval")
        assert complaints_of(page) == []
        installation.http.post(f"/v1/jobs/{job_of(page)}/approve").raise_for_status()  # without seconds for an undo
        badge(page, "published")
    live = installation.http.get(f"{installation.embedded.pages_url}/live/demo/by-hand/")
    assert "<h1" in live.text


def test_a_timeline_zooms_folds_and_tells_of_the_chosen_span_by_mouse_and_by_keyboard(
    installation: Installation, browser: Browser
) -> None:
    installation.embedded.import_site("timed")
    job_id = installation.submit("Make the headline shorter.", site="timed")
    installation.wait_for(job_id, "awaiting_approval")
    with open_page(browser) as page:
        enter(page, installation)
        page.goto(f"{installation.embedded.api_url}/console/jobs/{job_id}")
        bars, shown = page.locator("#waterfall svg.phase"), page.locator(".zoom .range")
        call = page.locator("#waterfall .part [data-span^=call]").first
        call.click()
        detail = page.get_by_label("The chosen span")
        for words in ("Provider", "Tokens out", "Prices as of", "Cost"):
            expect(detail).to_contain_text(words)
        page.keyboard.press("+")
        expect(bars.first).to_have_attribute("viewBox", re.compile(r" 50 10$"))
        expect(shown).to_have_text(re.compile(r"^\+[\d.]+ (s|min) to \+[\d.]+ (s|min)$"))
        page.evaluate("htmx.trigger('#job', 'sse:changed')")  # a refresh keeps all of that
        page.wait_for_timeout(500)
        expect(bars.first).to_have_attribute("viewBox", re.compile(r" 50 10$"))
        expect(detail).to_contain_text("Provider")
        page.keyboard.press("0")
        expect(shown).to_have_text("")
        box = bars.first.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 3)
        page.mouse.down()
        page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 3, steps=3)
        page.mouse.up()
        expect(bars.first).to_have_attribute("viewBox", re.compile(r"^2\d(\.\d+)? 0 2[45](\.\d+)? 10$"))
        fold = page.get_by_role("button", name="Steps of Attempt 1")
        fold.click()
        expect(page.locator("#waterfall .part:visible")).to_have_count(0)
        expect(fold).to_have_attribute("aria-expanded", "false")
        assert complaints_of(page) == []
        page.keyboard.press("Escape")
        expect(detail).to_be_hidden()


@pytest.mark.long
def test_a_preview_is_rejected_revised_and_done_over(installation: Installation, browser: Browser) -> None:
    installation.embedded.import_site("desk")
    with open_page(browser) as page:
        enter(page, installation)
        first = submit(page, "Change the hero heading to 'One'", site="desk")
        badge(page, "awaiting approval")
        page.keyboard.press("v")
        page.get_by_label("What to change; a new round").fill("Change the hero heading to 'Two'")
        page.get_by_role("button", name="Revise").click()
        expect(page.get_by_role("status").first).to_contain_text("continues the previous one")
        assert job_of(page) != first
        badge(page, "awaiting approval")
        page.get_by_label("Override the tier").select_option("patch")
        page.get_by_role("button", name="Repeat").click()
        page.get_by_role("dialog").get_by_role("button", name="Yes").click()
        expect(page.get_by_role("status").first).to_contain_text("on tier patch")
        expect(page.locator(".crumbs").first).to_contain_text("patch")
        page.wait_for_timeout(500)
        badge(page, "awaiting approval")
        page.keyboard.press("r")
        page.keyboard.type("Neither one nor two")
        page.keyboard.press("Enter")
        badge(page, "rejected")
        expect(page.locator("#job .head").first).to_contain_text("Neither one nor two")
        expect(page.get_by_role("status").first).to_contain_text("the live site is unchanged")


@pytest.mark.long
def test_twenty_previews_are_decided_by_keyboard_alone(installation: Installation, browser: Browser) -> None:
    edits = {}
    for number in range(20):
        installation.embedded.import_site(f"corner-{number}")
        prompt = f"Change the hero heading to 'Number {number}'"
        edits[installation.submit(prompt, site=f"corner-{number}")] = number
    for job_id in edits:
        installation.wait_for(job_id, "awaiting_approval")
    with open_page(browser) as page:
        enter(page, installation)
        page.goto(f"{installation.embedded.api_url}/console/jobs/{list(edits)[-1]}")
        for place in range(20):
            here = job_of(page)
            expect(page.locator("#approve")).to_be_visible()
            page.wait_for_load_state("domcontentloaded")  # scripts, and with them the keys, are there
            if edits[here] % 5 == 0:
                page.keyboard.press("r")
                page.keyboard.type("Not this one")
                page.keyboard.press("Enter")
                badge(page, "rejected")
            else:
                page.keyboard.press("a")
                badge(page, "publishing")  # what is approved can be undone while the next one is looked at
            page.wait_for_load_state("domcontentloaded")
            if place < 19:
                page.keyboard.press("j")
                page.wait_for_url(lambda url, here=here: str(here) not in url)
    for job_id, number in edits.items():
        installation.wait_for(job_id, "published" if number % 5 else "rejected")
        live = installation.http.get(f"{installation.embedded.pages_url}/live/demo/corner-{number}/").text
        assert (f"Number {number}" in live) == bool(number % 5)


@pytest.mark.long
def test_a_question_is_answered_by_a_button_and_a_running_job_is_cancelled(
    installation: Installation, browser: Browser
) -> None:
    for name in ("alder", "ash"):  # among the twenty that are offered, by name
        installation.embedded.import_site(name)
    with open_page(browser) as page:
        enter(page, installation)
        submit(page, "Change the hero heading to 'Which one?'")
        badge(page, "clarifying")
        page.get_by_role("button", name=re.compile("ash")).first.click()
        badge(page, "awaiting approval")
        expect(page.locator(".crumbs").first).to_contain_text("ash")
        submit(page, "Add a section about our history to the page [rehearse:pause]", site="alder", tier="patch")
        badge(page, "running")
        page.get_by_role("button", name="Cancel this job").click()
        page.get_by_role("dialog").get_by_role("button", name="Yes").click()
        badge(page, "cancelled")


@pytest.mark.long
def test_everything_is_reached_and_done_by_keyboard_alone(stage: Stage, browser: Browser) -> None:
    with open_page(browser) as page:
        log_in(page, stage)
        page.goto(f"{stage.url}/console/jobs")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to content"
        page.keyboard.press("/")
        page.keyboard.type("slowly")
        expect(page.locator("#jobs tbody tr")).to_have_count(1)
        for _ in range(12):
            page.keyboard.press("Tab")
            if (page.evaluate("document.activeElement.id") or "").startswith("job-"):
                break
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile(str(stage.offered)))
        reached = set()
        for _ in range(160):  # the links of the two previews are among them
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.id || document.activeElement.name || ''"))
        assert {"approve", "width-390", "view-slider", "instead", "cancel"} <= reached
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_contain_text("next and previous preview")
        page.goto(f"{stage.url}/console/")
        page.locator("#tile-dead").focus()
        with page.expect_response(lambda response: response.url.endswith("/console/")):
            pass  # the page asks again by itself
        page.wait_for_timeout(300)
        assert page.evaluate("document.activeElement.id") == "tile-dead", "a refresh leaves the focus where it is"


@pytest.mark.long
@pytest.mark.node
def test_the_palette_offers_what_the_page_can_do_goes_anywhere_and_searches(stage: Stage, browser: Browser) -> None:
    with open_page(browser, width=390, scheme="dark") as page:
        log_in(page, stage)
        page.goto(f"{stage.url}/console/jobs/{stage.offered}")
        page.get_by_role("button", name="Go to").click()
        options = page.get_by_role("listbox", name="What fits").get_by_role("option")
        expect(options.first).to_have_text("Approve and publisha")
        assert complaints_of(page) == []
        page.keyboard.type("rev")
        page.keyboard.press("Enter")
        expect(page.locator("#revise")).to_be_focused()
        page.locator("body").press("Control+k")
        page.keyboard.type("lunch, SLOWLY")
        expect(options).to_have_text(["Search jobs for “lunch, SLOWLY”"])
        page.keyboard.press("ArrowUp")
        page.keyboard.press("Enter")
        page.wait_for_url("**/jobs?text=lunch%2C%20SLOWLY")
        page.keyboard.press("Control+k")
        page.keyboard.type("Sunday")
        expect(options.first).to_contain_text("Change the hero heading to 'Sunday lunch, slowly'")
        options.first.click()
        page.wait_for_url(f"**/jobs/{stage.offered}")
        page.keyboard.press("Control+k")
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.long
@pytest.mark.node
@pytest.mark.parametrize("width", [390, 1440])
def test_what_opens_over_the_list_of_jobs_fits_the_window_and_filters_it(
    stage: Stage, browser: Browser, width: int
) -> None:
    with open_page(browser, width=width) as page:
        log_in(page, stage)
        page.goto(f"{stage.url}/console/sites")
        page.get_by_role("link", name="New site").click()
        expect(page.get_by_label("Or a new site, named")).to_be_in_viewport()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert complaints_of(page) == []
        page.goto(f"{stage.url}/console/jobs")
        page.get_by_text("Filters").click()
        assert complaints_of(page) == []
        page.locator("details.more").get_by_label("Tier").select_option("agent")
        expect(page.locator("#jobs")).to_contain_text("No matching jobs here")
        page.get_by_role("button", name="Show").click()
        expect(page.get_by_label("Who")).to_be_hidden()
        assert "tier=agent" in page.url
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.long
@pytest.mark.node
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_axe_finds_nothing_on_any_page_and_none_is_wider_than_its_window_whatever_stands_in_it(
    stage: Stage, browser: Browser, scheme: str, width: int
) -> None:
    with open_page(browser, width=width, scheme=scheme) as page:
        page.goto(f"{stage.url}/console/login")
        found = {"login": complaints_of(page)}
        log_in(page, stage)
        for name, path in stage.pages.items():
            page.goto(f"{stage.url}/console{path}", wait_until="load")
            found[name] = complaints_of(page)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        page.goto(f"{stage.url}/console/jobs?text=Rindfleisch")
        assert LONG[:20] in page.locator("#jobs").inner_text()
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


@pytest.mark.long
def test_a_job_that_ran_out_of_money_goes_on_with_more_and_dead_letters_are_replayed_together(
    stage: Stage, browser: Browser
) -> None:
    with open_page(browser) as page:
        log_in(page, stage)
        page.goto(f"{stage.url}/console/jobs/{stage.over_budget}")
        badge(page, "budget exceeded")
        page.get_by_label("Add budget").fill("0.25")
        page.get_by_role("button", name="Resume").click()
        expect(page.get_by_role("status").first).to_contain_text("Resumed with the added budget")
        assert job_of(page) != stage.over_budget
        page.get_by_role("link", name="Dead letters").click()
        cluster = page.locator(".cluster").first
        expect(cluster).to_contain_text("7 jobs")
        cluster.get_by_role("link").first.click()
        page.get_by_role("checkbox").first.check()
        page.get_by_role("button", name="Dismiss").click()
        page.get_by_role("dialog").get_by_role("button", name="Yes").click()
        expect(page.get_by_role("status")).to_contain_text("1 of 1 is dismissed")
        page.get_by_role("link", name="all dead letters").click()
        page.locator(".cluster").first.get_by_role("button", name="Replay all").click()
        page.get_by_role("dialog").get_by_role("button", name="Yes").click()
        expect(page.get_by_role("status")).to_contain_text("6 of 6 are replayed")


@pytest.mark.long
def test_a_gate_is_passed_on_the_page_of_its_run_and_the_trail_is_verified(stage: Stage, browser: Browser) -> None:
    with open_page(browser) as page:
        log_in(page, stage)
        page.get_by_role("link", name="Runs", exact=True).click()
        page.get_by_role("table").get_by_role("link", name="Add a page with our opening hours").click()
        expect(page.locator("svg.graph:visible")).to_contain_text("gate open")
        expect(page.locator("#run .diff .add").first).to_be_visible()
        page.get_by_label("Because").fill("It reads well")
        page.get_by_role("button", name="Pass").click()
        expect(page.get_by_role("dialog")).to_contain_text("What the run made is pushed")  # no undo: asked once more
        page.get_by_role("dialog").get_by_role("button", name="Yes").click()
        expect(page.get_by_role("status")).to_contain_text("The gate has passed")
        stage.yard.settle()
        expect(page.locator("#run .head .badge")).to_have_text("published", timeout=SECONDS)
        expect(page.locator("svg.graph:visible")).to_contain_text("gate passed")
        page.get_by_role("link", name="Audit").click()
        page.get_by_role("button", name="Verify").click()
        expect(page.get_by_role("status")).to_contain_text("The chain is whole")
        page.get_by_label("Action", exact=True).fill("gate passed")
        page.get_by_role("button", name="Show").click()

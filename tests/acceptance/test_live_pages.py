"""What a page does once a visitor asks: it shows pages of others, sorts its tables, and knows the business's day.

The page comes under the headers of a live site, from a host that stands in for it; another stands in for the services.
"""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route

from routing.policy.platform import platform_policy
from sites.files import content_type_of, media_type_of
from sites.preview import OWN_ORIGIN, SANDBOX, live_headers
from sites.scan.engine import scan
from sites.spec.model import JsonObject, parse_site
from sites.spec.render import render
from tests.acceptance.test_design import violations
from tests.unit.sites.spec.samples import element, page

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]
HOME = "https://bakery.example/"
FILM = "https://www.youtube-nocookie.com/embed/dQw4w9WgXcQ?autoplay=1"
MAP = "https://www.google.com/maps?q=14%20Mill%20Lane&output=embed"
HOURS = [
    {"days": "Mon–Wed, Fri", "time": "7:00–18:00"},
    {"days": "Thu", "time": "we bake for the market"},
    {"days": "Sat", "time": "20:00–2:00"},
    {"days": "Sun", "time": "closed"},
]
ROWS = [
    {"label": "Cut", "values": ["€38.00", True]},
    {"label": "Colour", "values": ["from €110", True]},
    {"label": "beard", "values": ["€9.50", False]},
]
CONTACT = element("ContactForm", heading="Visit", hours=HOURS, timezone="Europe/Berlin")
SPEC = page(
    film=element("Video", title="A night at the oven", href="https://youtu.be/dQw4w9WgXcQ", art="bread", embed=True),
    map=element("MapLink", heading="Find us", address="14 Mill Lane", embed=True),
    posts=element("Embed", heading="News", items=[{"href": "https://www.instagram.com/p/C1a2b3/", "title": "Rye"}]),
    contact=CONTACT,
    table=element(
        "ComparisonTable", heading="Prices", corner="For", columns=["Price", "Card"], rows=ROWS, sortable=True
    ),
)


class Visit:
    """A page of a live site, and what its browser asked whom for."""

    def __init__(self, page: Page, sandbox: str, spec: JsonObject = SPEC) -> None:
        files = render(parse_site(spec))
        report = scan(files, platform_policy().profiles["default"], profile_name="default")
        assert report.findings == ()
        self.page = page
        self.asked: list[str] = []
        self.told: list[str] = []
        self._files, self._headers = files, live_headers(report.csp, sandbox=sandbox)
        page.unroute_all()
        page.route("**/*", self._answer)
        page.on("console", lambda message: self.told.append(message.text) if message.type == "error" else None)

    def _answer(self, route: Route) -> None:
        url = route.request.url
        self.asked.append(url)
        if url.startswith(HOME):
            name = url.removeprefix(HOME) or "index.html"
            headers = {**self._headers, "Content-Type": content_type_of(media_type_of(name))}
            route.fulfill(body=self._files.get(name, b""), headers=headers)
        else:
            referrer = route.request.headers.get("referer", "")
            route.fulfill(body=f"<!doctype html><p id=x>shown to {referrer}", content_type="text/html")

    @property
    def outside(self) -> list[str]:
        return [url for url in self.asked if not url.startswith(HOME)]


@pytest.fixture
def visit(request: pytest.FixtureRequest, tab: Page) -> Visit:
    visit = Visit(tab, getattr(request, "param", OWN_ORIGIN))
    tab.goto(HOME)
    return visit


@pytest.mark.parametrize("visit", [OWN_ORIGIN, SANDBOX], ids=["own origin", "opaque origin"], indirect=True)
def test_nothing_of_another_host_is_loaded_before_a_click_which_then_loads_it_into_the_page(visit: Visit) -> None:
    visit.page.wait_for_load_state("networkidle")
    assert visit.outside == []
    film = visit.page.frame_locator("#film iframe")
    film.get_by_role("link", name="Watch A night at the oven").click()
    film.locator("#x").wait_for()
    assert visit.outside == [FILM]
    if "allow-same-origin" in visit._headers["Content-Security-Policy"]:
        assert film.locator("#x").inner_text() == f"shown to {HOME}", "players refuse whom they do not know"
    found = visit.page.frame_locator("#map iframe").get_by_role("link", name="Show the map 14 Mill Lane")
    found.focus()
    visit.page.keyboard.press("Enter")
    visit.page.frame_locator("#map iframe").locator("#x").wait_for()
    assert visit.outside == [FILM, MAP]
    assert visit.page.url == HOME
    assert visit.told == []


def test_a_frame_shows_no_page_but_that_of_its_link(visit: Visit) -> None:
    lead = "([id, url]) => { document.querySelector(`#${id} iframe`).contentWindow.location = url; }"
    visit.page.evaluate(lead, ["film", "https://evil.example/"])
    visit.page.evaluate(lead, ["map", "https://www.youtube-nocookie.com/embed/another"])
    visit.page.frame_locator("#posts iframe").get_by_role("link").click()
    visit.page.frame_locator("#posts iframe").locator("#x").wait_for()
    assert visit.outside == ["https://www.instagram.com/p/C1a2b3/embed/"]
    assert sum("frame-src" in text for text in visit.told) == 2


def labels(tab: Page) -> list[str]:
    return tab.locator("#table tbody th").all_inner_texts()


def test_a_table_is_sorted_by_keyboard_and_says_by_which_column(visit: Visit) -> None:
    tab = visit.page
    price = tab.get_by_role("button", name="Price")
    price.focus()
    tab.keyboard.press("Enter")
    assert labels(tab) == ["beard", "Cut", "Colour"]
    assert tab.get_by_role("columnheader", name="Price").get_attribute("aria-sort") == "ascending"
    tab.keyboard.press("Space")
    assert labels(tab) == ["Colour", "Cut", "beard"]
    assert tab.get_by_role("columnheader", name="Price").get_attribute("aria-sort") == "descending"
    tab.get_by_role("button", name="For").press("Enter")
    assert labels(tab) == ["beard", "Colour", "Cut"], "by the order of the language, not of its bytes"
    assert tab.locator("[aria-sort]").all_inner_texts() == ["For"]


def test_hours_are_those_of_the_business_wherever_the_visitor_is(browser: Browser) -> None:
    context = browser.new_context(timezone_id="Pacific/Auckland", locale="de-DE")
    tab = context.new_page()
    visit = Visit(tab, OWN_ORIGIN, page(contact=CONTACT))
    for now, today, says in (
        ("2026-11-27T05:59:00Z", "Mon–Wed, Fri", "Closed now"),
        ("2026-11-27T06:00:00Z", "Mon–Wed, Fri", "Open now"),
        ("2026-11-26T10:00:00Z", "Thu", ""),
        ("2026-11-28T23:30:00Z", "Sun", "Open now"),
        ("2026-07-03T05:00:00Z", "Mon–Wed, Fri", "Open now"),
        ("2026-12-25T10:00:00Z", "Mon–Wed, Fri", ""),
    ):
        tab.clock.set_fixed_time(now)
        tab.goto(HOME)
        assert tab.locator("[aria-current=date] dt").all_inner_texts() == [today], now
        assert tab.locator(".hours-state").inner_text() == says, now
    assert visit.told == []
    context.close()


def test_without_scripts_the_page_is_complete_and_its_frames_work(browser: Browser) -> None:
    context = browser.new_context(java_script_enabled=False)
    visit = Visit(context.new_page(), OWN_ORIGIN)
    visit.page.goto(HOME)
    assert visit.page.locator("table button, .hours-state").count() == 0
    assert visit.page.get_by_text("20:00–2:00").is_visible()
    assert visit.outside == []
    visit.page.frame_locator("#film iframe").get_by_role("link").click()
    visit.page.frame_locator("#film iframe").locator("#x").wait_for()
    assert visit.outside == [FILM]
    context.close()


def test_axe_finds_nothing_in_the_page_and_its_frames(tmp_path: Path, tab: Page, axe: str) -> None:
    for name, data in render(parse_site(SPEC)).items():
        (tmp_path / name).write_bytes(data)
    tab.unroute_all()
    tab.goto((tmp_path / "index.html").as_uri())
    tab.get_by_role("button", name="Price").click()
    for frame in tab.frames:
        frame.evaluate(axe)
    for width in (390, 1440):
        tab.set_viewport_size({"width": width, "height": 900})
        tab.emulate_media(color_scheme="light" if width == 390 else "dark")
        assert violations(tab) == []
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


SET_IN_TWO = page(intro=element("PageIntro", heading="Łódź, chlebem pachnąca", text="Bread from a wood oven."))
SET_IN_TWO["elements"]["page"]["props"]["theme"] = {"headings": "fraunces-1", "text": "figtree-1"}
SHOWN_FONTS = "[...document.fonts].filter(font => font.status == 'loaded').map(font => font.family.replace(/\"/g, ''))"


@pytest.mark.parametrize("sandbox", [OWN_ORIGIN, SANDBOX], ids=["own origin", "opaque origin"])
def test_a_page_is_set_in_the_fonts_of_its_site_and_asks_nobody_else_for_one(tab: Page, sandbox: str) -> None:
    visit = Visit(tab, sandbox, SET_IN_TWO)
    tab.goto(HOME, wait_until="networkidle")
    tab.evaluate("document.fonts.ready")
    assert sorted(tab.evaluate(SHOWN_FONTS)) == ["Figtree", "Fraunces", "Fraunces"], "one file has Polish letters"
    assert tab.evaluate("document.fonts.check('600 40px Fraunces', 'Łódź')")
    family = "element => getComputedStyle(element).fontFamily"
    assert tab.locator("h1").evaluate(family).startswith('Fraunces, "Fraunces fallback"')
    assert tab.locator("body").evaluate(family).startswith('Figtree, "Figtree fallback"')
    assert visit.outside == []
    assert len([url for url in visit.asked if url.endswith(".woff2")]) == 3, "each file once: what is preloaded is used"
    assert visit.told == []

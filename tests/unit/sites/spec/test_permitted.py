from __future__ import annotations

from routing.policy.platform import platform_policy
from sites.scan.engine import scan
from sites.spec.model import INDEX, parse_site
from sites.spec.permitted import permitted
from sites.spec.render import render
from tests.unit.sites.spec.samples import element, page

PROFILES = platform_policy().profiles
ELSEWHERE = "https://video.example/oven"
ROWS = [{"label": "Cut", "values": ["38"]}]
HOURS = [{"days": "Mon-Fri", "time": "9:00-18:00"}]


def test_a_page_of_a_host_that_is_not_allowed_becomes_a_link_and_the_owner_is_told() -> None:
    posts = [{"href": ELSEWHERE, "title": "Ours"}, {"href": "https://youtu.be/dQw4w9WgXcQ", "title": "Theirs"}]
    site = parse_site(
        page(
            film=element("Video", title="Oven", href=ELSEWHERE, embed=True),
            map=element("MapLink", address="14 Mill Lane", embed=True),
            posts=element("Embed", items=posts),
        )
    )
    assert {each.rule for each in scan(render(site), PROFILES["default"], profile_name="default").findings} == {
        "frame-host"
    }
    found, notes = permitted(site, PROFILES["default"])
    assert scan(render(found), PROFILES["default"], profile_name="default").findings == ()
    made = render(found)[INDEX].decode()
    assert made.count("<iframe") == 2
    assert made.count(f'href="{ELSEWHERE}"') == 2
    assert len(notes) == 1
    assert "video.example" in notes[0]
    assert permitted(found, PROFILES["default"]) == (found, ())
    (german,) = permitted(site, PROFILES["default"], told_in="de").notes
    assert "sind verlinkt" in german
    assert permitted(site, PROFILES["default"].model_copy(update={"frames": ()})).site != found


def test_what_needs_a_script_is_left_out_where_a_profile_allows_none() -> None:
    site = parse_site(
        page(
            table=element("ComparisonTable", columns=["Price"], rows=ROWS, sortable=True),
            contact=element("ContactForm", email="a@b.example", hours=HOURS, timezone="Europe/Berlin"),
        )
    )
    assert permitted(site, PROFILES["default"]).site is site
    assert not scan(render(site), PROFILES["static"], profile_name="static").passed
    found, notes = permitted(site, PROFILES["static"])
    assert scan(render(found), PROFILES["static"], profile_name="static").findings == ()
    assert len(notes) == 1
    assert b"9:00-18:00" in render(found)[INDEX]

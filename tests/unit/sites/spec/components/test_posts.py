from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from lxml import html

from routing.policy.platform import platform_policy
from sites.errors import DetachedPagesError, SpecError
from sites.links import dead_links
from sites.scan.engine import scan
from sites.spec.languages.translation import entries_of
from sites.spec.model import INDEX, Site, parse_site
from sites.spec.quality import lost_change
from sites.spec.read_back import read_back
from sites.spec.render import render, render_onto
from sites.spec.validate import require_valid
from tests.unit.sites.spec.samples import element, page


def post(title: str, day: str | None, **props: Any) -> dict[str, Any]:
    made = page(top=element("Shared", of="top"), intro=element("PageIntro", heading=title, text=f"On {title}."))
    made["elements"]["page"]["props"] |= {"title": f"{title} - Ada", **({"date": day} if day else {}), **props}
    return made


def with_posts(**posts: dict[str, Any]) -> Site:
    home = page(
        top=element("Header", brand="Ada", links=[{"label": "Offers", "href": "#offers"}]),
        offers=element("RichText", body="Bread."),
        latest=element("Posts", heading="News", path="news/", limit=2, layout="cards"),
    )
    news = page(top=element("Shared", of="top"), list=element("Posts", path="news/"))
    files = {f"news/{name}.html": made for name, made in posts.items()}
    return parse_site({"pages": {INDEX: home, "news.html": news, **files}})


SITE = with_posts(
    b=post("Bees", "2026-02-01", description="Two hives."),
    a=post("Apples", "2026-11-30"),
    c=post("Cats", "2025-02-01"),
    d=post("Draft", None),
    e=post("Elder", "2026-02-01"),
)
FILES = render(SITE)


def listed(site: Site, path: str) -> list[tuple[str, str, str]]:
    """The links of a page's list, each with its address and date."""
    entries = html.document_fromstring(render(site)[path]).xpath("//li[contains(@class, 'post')]")
    return [
        (link.text_content(), link.get("href"), entry.xpath("string(.//time)"))
        for entry in entries
        for link in entry.xpath(".//a")
    ]


def in_german(site: Site, *paths: str) -> Site:
    document = site.to_dict()
    for path in paths:
        version = document["pages"][f"de/{path}"] = deepcopy(document["pages"][path])
        version["elements"]["page"]["props"]["lang"] = "de"
    return parse_site(document)


def test_whose_post_it_is_stands_behind_its_date_on_the_page_and_in_lists() -> None:
    files = render(with_posts(b=post("Bees", "2026-02-01", author="by Mette Bach"), a=post("Ants", "2026-01-01")))
    lines = {
        path: [line.text_content() for line in html.document_fromstring(files[path]).xpath("//*[@class='post-date']")]
        for path in ("news.html", "news/b.html", "news/a.html")
    }
    assert lines == {
        "news.html": ["1 February 2026 · by Mette Bach", "1 January 2026"],
        "news/b.html": ["1 February 2026 · by Mette Bach"],
        "news/a.html": ["1 January 2026"],
    }


@pytest.mark.parametrize(
    ("opening", "count"),
    [
        ({}, 1),
        ({"shapes": []}, 0),  # nobody has drawn it yet
        ({"marked": True}, 0),
        ({"drawing": None}, 0),
    ],
)
def test_a_list_shows_what_is_drawn_for_a_post_but_not_the_mark(opening: dict[str, Any], count: int) -> None:
    drawing = {"of": "an otter", "shapes": opening.pop("shapes", ["ground rect 0 0 600 500"])}
    drawn = post("Otters", "2026-05-30")
    drawn["elements"]["intro"]["props"] |= {"drawing": drawing, "marked": False, **opening}
    shown = html.document_fromstring(render(with_posts(b=drawn))["news.html"])
    assert len(shown.xpath("//li[contains(@class, 'post')]/*[local-name() = 'svg']")) == count


def test_the_dated_pages_of_a_folder_are_listed_newest_first_up_to_a_limit() -> None:
    assert [title for title, _, _ in listed(SITE, "news.html")] == ["Apples", "Bees", "Elder", "Cats"]
    assert listed(SITE, INDEX) == [
        ("Apples", "news/a.html", "30 November 2026"),
        ("Bees", "news/b.html", "1 February 2026"),
    ]
    shown = html.document_fromstring(FILES["news.html"]).xpath("string(//main)")
    assert "Two hives." in shown, "what the page says of itself"
    assert "On Bees." not in shown
    assert "On Apples." in shown, "else what it begins with"
    assert "Draft" not in shown


def test_a_post_shows_its_date_and_an_empty_list_says_that_it_is_empty() -> None:
    assert html.document_fromstring(FILES["news/b.html"]).xpath("//time/@datetime") == ["2026-02-01"]
    empty = with_posts()
    assert "Nothing here yet." in render(empty)["news.html"].decode()


def test_a_picture_of_a_posts_opening_stands_in_the_list_by_an_address_of_the_lists_page() -> None:
    with_picture = post("Bees", "2026-02-01")
    with_picture["elements"]["intro"]["props"]["image"] = {"src": "assets/bee.svg", "alt": "A bee"}
    site = in_german(with_posts(b=with_picture), "news.html")
    (shown,) = html.document_fromstring(render(site)["de/news.html"]).xpath("//li//img")
    assert (shown.get("src"), shown.get("alt")) == ("../assets/bee.svg", "")


def test_a_list_in_another_language_shows_the_versions_and_says_where_there_is_none() -> None:
    site = in_german(SITE, "news.html", "news/b.html")
    german = listed(site, "de/news.html")
    assert german[:2] == [
        ("Apples", "../news/a.html", "30. November 2026"),
        ("Bees", "../de/news/b.html", "1. Februar 2026"),
    ]
    assert len(german) == 4
    langs = html.document_fromstring(render(site)["de/news.html"]).xpath("//li[@class='post']//a/@lang")
    assert langs == ["en"] * 3
    assert listed(site, "news.html") == listed(SITE, "news.html")


def test_a_new_post_changes_every_list_and_is_refused_where_a_list_was_edited_by_hand() -> None:
    more = parse_site({"pages": {**SITE.to_dict()["pages"], "news/new.html": post("Newest", "2026-12-01")}})
    after = render_onto(SITE, more, FILES)
    assert after == render(more)
    assert {path for path in after if after[path] != FILES.get(path)} == {INDEX, "news.html", "news/new.html"}
    with pytest.raises(DetachedPagesError, match=r"news\.html"):
        render_onto(SITE, more, FILES | {"news.html": FILES["news.html"] + b"<!-- -->"})


def test_the_words_of_a_list_are_its_posts_and_are_read_back_only_with_them() -> None:
    renamed = {path: data.replace(b">Bees<", b">Wasps<") for path, data in FILES.items()}
    changed = read_back(SITE, renamed)
    assert changed is not None
    assert render(changed) == renamed
    assert changed.pages["news/b.html"]["elements"]["intro"]["props"]["heading"] == "Wasps"
    assert read_back(SITE, FILES | {"news.html": renamed["news.html"]}) is None


def test_the_folder_and_the_dates_are_no_words_to_be_translated() -> None:
    assert {entry.text for entry in entries_of(SITE)}.isdisjoint({"news/", "2026-02-01"})


def test_a_new_page_that_no_list_would_show_is_told_to_its_author() -> None:
    more = parse_site({"pages": {**SITE.to_dict()["pages"], "news/new.html": post("Newest", None)}})
    assert lost_change("Add a post", SITE, more) == "the new page news/new.html has no date, so Posts does not list it"


@pytest.mark.parametrize("day", ["2026-02-30", "20260201", "2026-02-01T00:00", "soon", 20260201])
def test_what_is_no_date_is_refused_by_its_place(day: object) -> None:
    with pytest.raises(SpecError, match="props/date"):
        require_valid(with_posts(b=post("Bees", None, date=day)))


def test_links_of_a_shared_header_lead_to_the_sections_that_only_its_own_page_has() -> None:
    header = html.document_fromstring(FILES["news/b.html"]).xpath("//header//nav//a/@href")
    assert header == ["../index.html#offers"]
    assert html.document_fromstring(FILES[INDEX]).xpath("//header//nav//a/@href") == ["#offers"]
    assert dead_links(FILES) == frozenset()
    german = in_german(SITE, INDEX, "news.html")
    links = html.document_fromstring(render(german)["de/news.html"]).xpath("//header//a/@href")
    assert "../de/index.html#offers" in links


def test_the_scan_accepts_lists_of_posts() -> None:
    assert scan(FILES, platform_policy().profiles["default"], profile_name="default").findings == ()

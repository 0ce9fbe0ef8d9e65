from __future__ import annotations

import re
from typing import Any

import pytest
from lxml import html

from routing.policy.platform import platform_policy
from sites.scan.engine import scan
from sites.scan.frames import frame_source
from sites.spec.embeds import frame_of, map_frame_of
from sites.spec.model import INDEX, parse_site
from sites.spec.render import STYLESHEET, render
from tests.unit.sites.spec.samples import element, page

PROFILES = platform_policy().profiles
FILM = "https://www.youtube-nocookie.com/embed/dQw4w9WgXcQ?autoplay=1"


@pytest.mark.parametrize(
    ("href", "address", "service"),
    [
        ("https://www.youtube.com/watch?v=dQw4w9WgXcQ", FILM, "YouTube"),
        ("https://m.youtube.com/watch?list=x&v=dQw4w9WgXcQ&t=3", FILM, "YouTube"),
        ("https://youtu.be/dQw4w9WgXcQ?si=abc", FILM, "YouTube"),
        ("https://youtube.com/shorts/dQw4w9WgXcQ", FILM, "YouTube"),
        ("https://vimeo.com/76979871", "https://player.vimeo.com/video/76979871?autoplay=1&dnt=1", "Vimeo"),
        (
            "https://vimeo.com/76979871/abc123ef",
            "https://player.vimeo.com/video/76979871?h=abc123ef&autoplay=1&dnt=1",
            "Vimeo",
        ),
        (
            "https://www.google.com/maps/place/14+Mill+Lane,+Millbrook/@51.1,0.2,17z/data=!3m1",
            "https://www.google.com/maps?q=14%20Mill%20Lane%2C%20Millbrook&output=embed",
            "Google Maps",
        ),
        (
            "https://www.google.com/maps/embed?pb=!1m18!2d1",
            "https://www.google.com/maps/embed?pb=!1m18!2d1",
            "Google Maps",
        ),
        ("https://www.instagram.com/p/C1a2b3/?igsh=x", "https://www.instagram.com/p/C1a2b3/embed/", "Instagram"),
        (
            "https://www.facebook.com/hill/posts/pfbid0abc?x=1",
            "https://www.facebook.com/plugins/post.php?href=https%3A%2F%2Fwww.facebook.com%2Fhill%2Fposts%2Fpfbid0abc%3Fx%3D1",
            "Facebook",
        ),
        (
            "https://x.com/hill/status/1790000000000000000",
            "https://platform.twitter.com/embed/Tweet.html?id=1790000000000000000&dnt=true",
            "X",
        ),
        (
            "https://www.tiktok.com/@hill/video/7300000000000000000",
            "https://www.tiktok.com/player/v1/7300000000000000000",
            "TikTok",
        ),
        (
            "https://open.spotify.com/intl-de/album/4aawyAB9vmqN3uQ7FjRGTy?si=x",
            "https://open.spotify.com/embed/album/4aawyAB9vmqN3uQ7FjRGTy",
            "Spotify",
        ),
        (
            "https://soundcloud.com/hill/rye-song?utm=x",
            "https://w.soundcloud.com/player/?url=https%3A%2F%2Fsoundcloud.com%2Fhill%2Frye-song",
            "SoundCloud",
        ),
        (
            "https://www.openstreetmap.org/?mlat=48.1374&mlon=11.5755#map=16/48.1370/11.5750",
            "https://www.openstreetmap.org/export/embed.html?bbox=11.57001,48.13465,11.58099,48.14015&layer=mapnik&marker=48.13740,11.57550",
            "OpenStreetMap",
        ),
    ],
)
def test_the_address_that_people_copy_becomes_that_of_the_page_for_frames(
    href: str, address: str, service: str
) -> None:
    found = frame_of(href)
    assert (found.address, found.service) == (address, service)
    assert frame_source(address, PROFILES["default"]), "the profile that ships allows what the builder offers"


@pytest.mark.parametrize(
    "href",
    [
        "https://youtube.com.evil.example/watch?v=dQw4w9WgXcQ",
        "https://evil.example/?https://youtu.be/dQw4w9WgXcQ",
        "https://www.youtube.com/channel/UCabc",
        "https://video.example/oven",
    ],
)
def test_an_address_of_no_known_service_stays_as_it_is_and_needs_the_profiles_leave(href: str) -> None:
    assert frame_of(href).address == href
    assert frame_source(href, PROFILES["default"]) is None
    host = href.split("/")[2]
    assert frame_source(href, PROFILES["default"].model_copy(update={"frames": (host,)}))


def test_a_map_without_an_address_of_its_own_looks_the_place_up() -> None:
    found = map_frame_of("1 Hill & Dale?x=1#y", None)
    assert found.address == "https://www.google.com/maps?q=1%20Hill%20%26%20Dale%3Fx%3D1%23y&output=embed"
    assert map_frame_of("x", "https://youtu.be/dQw4w9WgXcQ").kind == "map"


EMBEDS: dict[str, dict[str, Any]] = {
    "Video": {"title": "Oven", "href": "https://youtu.be/dQw4w9WgXcQ", "embed": True},
    "MapLink": {"address": "14 Mill Lane", "embed": True},
    "Embed": {"items": [{"href": "https://www.instagram.com/p/C1a2b3/", "title": "Rye"}]},
}


@pytest.mark.parametrize("kind", EMBEDS)
@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_an_embedded_page_is_a_link_in_a_frame_that_has_loaded_nothing(kind: str, profile: str) -> None:
    spec = page(one=element(kind, **EMBEDS[kind]))
    spec["elements"]["page"]["props"]["lang"] = "de"
    files = render(parse_site(spec))
    (frame,) = html.document_fromstring(files[INDEX]).iter("iframe")
    assert frame.get("src") is None
    assert frame.get("title")
    inner = html.document_fromstring(frame.get("srcdoc", ""))
    (link,) = inner.iter("a")
    assert inner.get("lang") == "de"
    assert link.get("href", "").startswith("https://www.")
    assert link.get("referrerpolicy") == "strict-origin"
    (note,) = frame.getparent().iter("figcaption")
    assert re.match(r"Ein Klick lädt dies von [A-Z]\w+", note.text)
    assert note.xpath("./a/@href")
    report = scan(files, PROFILES[profile], profile_name=profile)
    assert report.findings == ()
    assert f"frame-src {link.get('href', '').split('?')[0]};" in report.csp
    assert b"<iframe" not in files[STYLESHEET]


def test_a_frame_is_in_the_look_of_its_page() -> None:
    spec = page(one=element("Video", **EMBEDS["Video"]))
    spec["elements"]["page"]["props"]["theme"] = {"preset": "noir"}
    site = parse_site({"pages": {INDEX: page(two=element("Heading", text="x")), "rooms/film.html": spec}})
    text = html.document_fromstring(render(site)["rooms/film.html"])
    inner = html.document_fromstring(next(text.iter("iframe")).get("srcdoc", ""))
    assert inner.get("class") == text.get("class") is not None
    assert inner.xpath("//link/@href") == ["../styles.css"]


def test_what_nobody_asked_to_embed_stays_a_link() -> None:
    for kind, props in EMBEDS.items():
        as_link = {**props, "embed": False} if kind != "Embed" else {"items": [{**props["items"][0], "embed": False}]}
        assert b"<iframe" not in render(parse_site(page(one=element(kind, **as_link))))[INDEX]

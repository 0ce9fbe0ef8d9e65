"""Pages of other services within a page: a film, a map, a post, shown once a visitor asks for it.

The frame begins with a still of the site's own and a link, which loads the service's page in its place: no request
leaves the site before that, and no script is needed. What a frame may do is for the scan (`sites/scan/frames.py`).
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from routing.yaml_data import load_yaml
from sites.scan.frames import ALLOW, SANDBOX
from sites.spec.html import Html, icon, tag

if TYPE_CHECKING:
    from sites.spec.catalog import RenderContext

Kind = Literal["film", "map", "post", "player", "page"]

_MARKED: Final = {"Instagram": "instagram", "Facebook": "facebook"}
_MARK_OF_KIND: Final[Mapping[Kind, str]] = {"film": "play", "map": "pin", "player": "music"}
_OSM: Final = re.compile(
    r"https://(?:www\.)?openstreetmap\.org/\S*?#map=(?P<zoom>\d{1,2})/(?P<lat>-?\d+\.\d+)/(?P<lon>-?\d+\.\d+)\S*"
)
_OSM_MARKER: Final = re.compile(r"[?&]mlat=(?P<lat>-?\d+\.\d+)&mlon=(?P<lon>-?\d+\.\d+)")


class Frame(NamedTuple):
    """A page to embed."""

    address: str
    service: str
    """Its name, or its host."""
    kind: Kind


def frame_of(href: str) -> Frame:
    """Return the page that shows in a frame what an address leads to; of an unknown service, the address itself."""
    if found := _street_map_at(href):
        return Frame(found, "OpenStreetMap", "map")
    for name, kind, pattern, address in _services():
        if match := pattern.fullmatch(href):
            groups = {
                key: quote(unquote(value.replace("+", " ")), safe="-_.~") for key, value in match.groupdict().items()
            }
            return Frame(address.format(**groups) or href, name, kind)
    return Frame(href, (urlsplit(href).hostname or "").removeprefix("www."), "page")


def map_frame_of(address: str, href: str | None) -> Frame:
    """Return the map of a place: the one at its address elsewhere, or one that looks up the address in words."""
    if href is not None and (found := frame_of(href)).kind in ("map", "page"):
        return found
    return Frame(f"https://www.google.com/maps?q={quote(address, safe='')}&output=embed", "Google Maps", "map")


def _street_map_at(href: str) -> str | None:
    """Return OpenStreetMap's page for frames of the place that an address of it shows."""
    match = _OSM.fullmatch(href)
    if match is None:
        return href if href.startswith("https://www.openstreetmap.org/export/embed.html?") else None
    marker = _OSM_MARKER.search(href)
    lat, lon = (float((marker or match)[name]) for name in ("lat", "lon"))
    half = 360 / 2 ** int(match["zoom"])  # of a map two tiles wide
    box = ",".join(f"{each:.5f}" for each in (lon - half, lat - half / 2, lon + half, lat + half / 2))
    return f"https://www.openstreetmap.org/export/embed.html?bbox={box}&layer=mapnik&marker={lat:.5f},{lon:.5f}"


def framed(ctx: RenderContext, frame: Frame, *, title: str, call: str, still: Html, href: str) -> Html:
    """Return the frame with its still, and below it who learns of a visitor that asks for the page.

    Args:
        ctx: of the component.
        frame: the page to embed.
        title: what it shows, for assistive technology and on the still.
        call: what the link on the still does, as "Watch".
        still: decoration behind the words.
        href: where the same is to be had without the frame.
    """
    mark = icon(_MARK_OF_KIND.get(frame.kind) or _MARKED.get(frame.service, "globe"))
    words = tag("span", tag("span", call, class_="embed-call"), tag("span", title), class_="embed-words")
    link = tag(
        "a",
        still,
        tag("span", mark, class_="embed-mark"),
        words,
        href=frame.address,
        referrerpolicy="strict-origin",  # players refuse requests without a referrer
        class_="embed-link",
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("title", title),
        tag("link", rel="stylesheet", href=ctx.url("styles.css")),
    )
    part = tag("html", head, tag("body", link, class_="embed-still"), lang=ctx.lang, class_=ctx.theme_class)
    shown = tag(
        "iframe",
        title=title,
        sandbox=SANDBOX,
        allow=ALLOW,
        class_=f"embed-frame embed-{frame.kind}",
        srcdoc="".join(line.strip() for line in f"<!doctype html>{part}".splitlines()),
    )
    note = ctx.say("A click loads this from {service}, which then learns your IP address.", service=frame.service)
    elsewhere = tag("a", ctx.say("Open it there"), href=href, target="_blank", rel="noopener")
    return tag("figure", shown, tag("figcaption", note, " ", elsewhere), class_="embed")


class _Service(NamedTuple):
    name: str
    kind: Kind
    pattern: re.Pattern[str]
    address: str


@cache
def _services() -> tuple[_Service, ...]:
    entries: list[dict[str, Any]] = load_yaml(pkgutil.get_data(__name__, "services.yaml") or b"")
    return tuple(_Service(each["name"], each["kind"], re.compile(each["from"]), each["to"]) for each in entries)

"""MapLink: where a place is, and the way there in the visitor's own map program.

The drawing is decoration. A real map would be a frame or a script of another site, which a published page has not.
"""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import quote

from pydantic import Field

from sandbox.spec.catalog import (
    Business,
    Component,
    Label,
    LinkUrl,
    OutlineSection,
    RenderContext,
    SectionProps,
    Text,
    section_props,
)
from sandbox.spec.components.drawings import icon
from sandbox.spec.html import Html, intro, labelled, tag
from sandbox.spec.model import JsonObject

MAP_SEARCH: Final = "https://www.openstreetmap.org/search?query="
"""Where an address is looked up when the site names no map of its own."""
_STREETS: Final = (
    "M-10 96C120 120 190 60 300 84S520 150 660 96",
    "M-10 262C90 232 160 262 262 250S470 262 660 226",
    "M110 -10C126 90 96 190 132 410",
    "M300 -10V410",
    "M468 -10C452 110 500 210 470 410",
    "M-10 352C150 322 220 372 360 342S560 350 660 322",
    "M210 84L232 252M384 104L398 256M556 130L548 232M196 258L212 352M396 256L408 342",
)
_BLOCKS: Final = ((146, 118, 66, 40), (318, 110, 58, 70), (244, 276, 44, 52), (420, 274, 40, 48), (30, 128, 62, 84))


class MapLinkProps(SectionProps):
    """Props of MapLink."""

    address: Text
    href: LinkUrl | None = None
    """A map of the place; without it the address is looked up in OpenStreetMap."""
    button: Label = "Open the map"
    directions: Annotated[tuple[Text, ...], Field(max_length=5)] = ()
    """How to get there, one way each."""


def render(props: MapLinkProps, ctx: RenderContext) -> Html:
    """Render the address and its link beside a drawing of streets."""
    place = tag("address", icon("pin"), tag("span", props.address), class_="map-address")
    ways = tag("ul", *(tag("li", way) for way in props.directions), class_="map-ways") if props.directions else None
    href = ctx.url(props.href) if props.href else MAP_SEARCH + quote(props.address, safe="")
    link = tag("p", tag("a", props.button, class_="button", href=href), class_="actions")
    words = tag("div", intro(ctx, props), place, ways, link, class_="map-words")
    inner = tag("div", words, tag("div", _drawing(), class_="map-drawing"), class_="wrap")
    return tag("section", inner, id=ctx.id, class_=f"band tone-{props.tone} map", aria_labelledby=labelled(ctx, props))


def _drawing() -> Html:
    blocks = [
        tag("rect", x=x, y=y, width=width, height=height, rx=4, class_="map-block") for x, y, width, height in _BLOCKS
    ]
    water = tag("path", d="M-10 -10H110C126 60 60 84-10 70z", class_="map-water")
    park = tag("path", d="M482 124q34-10 66 4v92q-34 12-78 6 14-50 12-102z", class_="map-park")
    streets = [tag("path", d=street, class_="map-street") for street in _STREETS]
    pin = tag("path", d="M306 252c-30-38-44-60-44-82a44 44 0 0 1 88 0c0 22-14 44-44 82z", class_="map-pin")
    dot = tag("circle", cx=306, cy=170, r=16, class_="map-dot")
    return tag(
        "svg", water, park, *blocks, *streets, pin, dot, viewBox="0 0 640 400", preserveAspectRatio="xMidYMid slice",
        aria_hidden="true", focusable="false",
    )  # fmt: skip


def _outline(section: OutlineSection, business: Business) -> JsonObject:
    ways = [item.get("text") or item.get("title") for item in section.items]
    address = {"address": business.address} if business.address else {}
    return {"heading": "Find us", **section_props(section), **address, "directions": [way for way in ways if way][:5]}


def _minimal(business: Business) -> JsonObject | None:
    return {"heading": "Find us", "address": business.address} if business.address else None


COMPONENT = Component(
    name="MapLink",
    summary="where it is: heading, text, address, href (a map; default OpenStreetMap), button, directions [text]",
    props=MapLinkProps,
    example={"heading": "Find us", "address": "14 Mill Lane, Millbrook", "directions": ["Tram 4 to Mill Square"]},
    render=render,
    words=("map", "map link", "directions", "location", "find us"),
    outline=_outline,
    outline_hint="items: text = a way to get there; needs contact.address",
    minimal=_minimal,
    nav_label="Find us",
    css="""
.map .wrap { display: grid; gap: 2.5rem; align-items: center; }
.map .intro { margin: 0 0 1.6rem; text-align: left; }
.map-address { display: flex; gap: .7rem; font-size: 1.1rem; font-weight: 600; line-height: 1.5; }
.map-address .icon { margin-top: .1rem; color: var(--link); }
.map-ways { margin: 1.1rem 0 0; padding: 0; list-style: none; color: var(--muted); }
.map-ways li { padding-block: .6rem; border-top: 1px solid var(--line); }
.map .actions { margin-top: 1.6rem; }
.map-drawing {
  aspect-ratio: 16 / 11;
  overflow: hidden;
  border: 1px solid var(--line);
  border-radius: calc(var(--radius) * 1.25);
  background: var(--surface);
}
.map-drawing svg { display: block; width: 100%; height: 100%; }
.map-street { fill: none; stroke: var(--line); stroke-width: 11; stroke-linecap: round; }
.map-block { fill: var(--tint); }
.map-park { fill: var(--accent); opacity: .3; }
.map-water { fill: var(--fill); opacity: .22; }
.map-pin { fill: var(--fill-edge); }
.map-dot { fill: var(--surface); }
@media (min-width: 56rem) { .map .wrap { grid-template-columns: 1fr 1.25fr; gap: 4.5rem; } }
""",
)

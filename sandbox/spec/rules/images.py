"""Rules for images: which file one shows, and the words for those who do not see it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from sandbox.spec.model import Site
from sandbox.spec.rules.edits import DirectEdit, Rule, setting
from sandbox.spec.rules.forms import Put
from sandbox.spec.rules.targets import Spot, find_items, find_sections, matches, opening_place, places
from sandbox.spec.rules.vocabulary import IMAGE
from sandbox.spec.rules.wording import Request, plain
from sandbox.spec.urls import complaint_about_image

ALT_PHRASES: Final = (
    re.compile(r"alt(?:ernative)?(?: text)? (?:of|for|on) (?:the )?(?P<which>.+)", re.I),
    re.compile(r"(?P<which>.+?)(?:'s)? alt(?:ernative)?(?: text)?", re.I),
)
IMAGE_FILE: Final = r"[\w./-]+\.(?:svg|png|jpe?g|webp|avif|gif)"


def _image(order: Put, request: Request, site: Site) -> Iterator[DirectEdit]:
    url = request.literal(re.sub(rf"^(?:the )?(?:new )?{IMAGE} ", "", order.value))
    is_file = url.startswith("https://") or re.fullmatch(IMAGE_FILE, url, re.I) is not None
    if complaint_about_image(url) or not is_file:
        return
    for spot in _images(order.target, site, request):
        if order.old is None or spot.value.get("src") == request.literal(order.old):
            summary = f"Changed the image of {spot.place.title()} to {url}."
            yield setting("image", summary, path=f"{spot.path}/src", value=url)


def _alt(order: Put, request: Request, site: Site) -> Iterator[DirectEdit]:
    value = request.value(order.value)
    for found in matches(ALT_PHRASES, order.target) if value and order.old is None else ():
        for spot in _images(found["which"], site, request):
            summary = f"Set the alternative text of the image of {spot.place.title()} to “{value}”."
            yield setting("image", summary, path=f"{spot.path}/alt", value=value)


def _images(phrase: str, site: Site, request: Request) -> Iterator[Spot]:
    """Yield the images that a section, an entry, an address, "logo" or "the picture at the top" can mean."""
    wanted = plain(phrase)
    source = request.literal(re.sub(rf"^{IMAGE} ", "", re.sub(r"^(?:the|our|my) ", "", phrase.strip(), flags=re.I)))
    match = re.fullmatch(rf"{IMAGE} (?:of|in|for|on|from|at) (?P<a>.+)|(?P<b>.+?)(?:'s)? {IMAGE}", wanted, re.I)
    owner = plain(match["a"] or match["b"]) if match else ""
    chosen = {place[:2] for place in find_sections(owner, site, request)} if owner else set()
    entries = {(spot.place[:2], spot.steps) for spot in find_items(owner, site, request)} if owner else set()
    if owner == "top" and (place := opening_place(site, tuple(site.pages))):
        chosen = {place[:2]}
    for spot in _all_images(site):
        is_own = spot.steps == ("image",) and spot.place[:2] in chosen
        is_logo = spot.steps == ("logo",) and wanted in ("logo", "logo image")
        in_entry = len(spot.steps) > 1 and (spot.place[:2], spot.steps[:2]) in entries
        if is_own or is_logo or in_entry or spot.value.get("src") == source:
            yield spot


def _all_images(site: Site) -> Iterator[Spot]:
    for place in places(site):
        for name, value in place.props.items():
            if isinstance(value, dict) and "src" in value:
                yield Spot(place, (name,), value)
            for index, entry in enumerate(value if isinstance(value, list) else ()):
                inner = entry.get("image") if isinstance(entry, dict) else None
                if isinstance(entry, dict) and "src" in entry:
                    yield Spot(place, (name, index), entry)
                elif isinstance(inner, dict) and "src" in inner:
                    yield Spot(place, (name, index, "image"), inner)
        if place.type == "Image":
            yield Spot(place, (), place.props)


RULES: Final = (Rule(Put, _image), Rule(Put, _alt))

"""What a publish profile takes away from a site's spec before it is rendered: frames, and the script.

Rendering knows no profile, or a change of the policy would detach pages from their spec. So an edit is fitted to its
profile, with a note for the owner; a spec that was imported as it is meets the scan.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from routing.policy.platform import Profile
from sites.scan.frames import frame_source
from sites.spec import live
from sites.spec.embeds import Frame, frame_of, map_frame_of
from sites.spec.html import say
from sites.spec.model import JsonObject, Site


class Permitted(NamedTuple):
    """A site within its profile."""

    site: Site
    notes: tuple[str, ...]
    """What it does without, one sentence each without its full stop."""


def permitted(site: Site, profile: Profile, *, told_in: str = "en") -> Permitted:
    """Return a valid site with links for the embedded pages, and without what needs a script, that are not allowed."""
    document = site.to_dict()
    hosts: set[str] = set()
    is_still = False
    for kind, props in _all_props(document["pages"]):
        for holder, frame in _frames(kind, props):
            if frame_source(frame.address, profile) is None:
                holder["embed"] = False
                hosts.add(urlsplit(frame.address).hostname or frame.address)
        if len(live.script()) > profile.js_bytes:
            is_still |= any(props.pop(name, None) for name in _LIVE.get(kind, ()))
    notes = []
    if hosts:
        named = ", ".join(sorted(hosts))
        notes.append(
            say("pages at {hosts} are linked to, as the publish profile allows no frames of them", told_in, hosts=named)
        )
    if is_still:
        notes.append(
            say("tables do not sort and hours do not tell today, as the publish profile allows no script", told_in)
        )
    return Permitted(Site(document["pages"]) if notes else site, tuple(notes))


_LIVE: Final = {"ComparisonTable": ("sortable",), "ContactForm": ("timezone",), "Footer": ("timezone",)}
"""Props that need the script."""


def _all_props(pages: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    for page in pages.values():
        for element in page["elements"].values():
            yield element["type"], element.get("props") or {}


def _frames(kind: str, props: JsonObject) -> Iterator[tuple[JsonObject, Frame]]:
    """Yield what embeds a page, each with that page; an address that is an expression is left to the scan."""
    href = props.get("href")
    if kind == "Embed":
        for item in props["items"] if isinstance(props.get("items"), list) else ():
            if item.get("embed", True) is True and isinstance(item.get("href"), str):
                yield item, frame_of(item["href"])
    elif props.get("embed") is True and kind == "Video" and isinstance(href, str):
        yield props, frame_of(href)
    elif props.get("embed") is True and kind == "MapLink" and isinstance(props.get("address"), str):
        yield props, map_frame_of(props["address"], href if isinstance(href, str) else None)

"""What a publish profile takes away from a site's spec before it is rendered: frames of hosts that it does not allow.

Rendering knows no profile, or a change of the policy would detach pages from their spec. So an edit is fitted to its
profile, with a note for the owner; a spec that was imported as it is meets the scan.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

from routing.policy.platform import Profile
from sites.scan.frames import frame_source
from sites.spec.embeds import Frame, frame_of, map_frame_of
from sites.spec.model import JsonObject, Site


class Permitted(NamedTuple):
    """A site within its profile."""

    site: Site
    notes: tuple[str, ...]
    """What it does without, one sentence each without its full stop."""


def permitted(site: Site, profile: Profile) -> Permitted:
    """Return a valid site whose embedded pages are links where the profile allows no frame of their host."""
    refused = [frame for props in _all_props(site) for _, frame in _frames(props) if not _is_allowed(frame, profile)]
    if not refused:
        return Permitted(site, ())
    document = site.to_dict()
    for props in _all_props(Site(document["pages"])):
        for holder, frame in _frames(props):
            if not _is_allowed(frame, profile):
                holder["embed"] = False
    hosts = ", ".join(sorted({urlsplit(frame.address).hostname or frame.address for frame in refused}))
    note = f"it links to what should show in the page, as this site's publish profile allows no frames of {hosts}"
    return Permitted(Site(document["pages"]), (note,))


def _is_allowed(frame: Frame, profile: Profile) -> bool:
    return frame_source(frame.address, profile) is not None


def _all_props(site: Site) -> Iterator[tuple[str, JsonObject]]:
    for page in site.pages.values():
        for element in page["elements"].values():
            yield element["type"], element.get("props") or {}


def _frames(element: tuple[str, JsonObject]) -> Iterator[tuple[JsonObject, Frame]]:
    """Yield what embeds a page, each with that page; an address that is an expression is left to the scan."""
    kind, props = element
    href = props.get("href")
    if kind == "Embed":
        for item in props["items"] if isinstance(props.get("items"), list) else ():
            if item.get("embed", True) is True and isinstance(item.get("href"), str):
                yield item, frame_of(item["href"])
    elif props.get("embed") is True and kind == "Video" and isinstance(href, str):
        yield props, frame_of(href)
    elif props.get("embed") is True and kind == "MapLink" and isinstance(props.get("address"), str):
        yield props, map_frame_of(props["address"], href if isinstance(href, str) else None)

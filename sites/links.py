"""Links of a site's pages that lead nowhere: to a page that the site does not have, or to a place that a page lacks."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from lxml import etree, html

from sites.files import INDEX


class DeadLink(NamedTuple):
    """A link that leads nowhere."""

    page: str
    href: str

    def __str__(self) -> str:
        """Say which link of which page it is."""
        return f"{self.page}: the link to {self.href[:200]!r} leads nowhere"


def dead_links(files: Mapping[str, bytes]) -> frozenset[DeadLink]:
    """Return the links between a site's own pages that have no target; what scripts may add counts as there."""
    pages = {
        path: page for path, data in files.items() if path.endswith(".html") and (page := read_page(data)) is not None
    }
    ids = {path: _ids(page) for path, page in pages.items()}
    has_target = partial(_has_target, files=files, ids=ids)
    return frozenset(
        DeadLink(path, href) for path, page in pages.items() for href in _hrefs(page) if not has_target(path, href)
    )


def missing_images(files: Mapping[str, bytes]) -> list[str]:
    """Return the paths of pictures that a site's pages show and that are no files of it."""
    pages = {path: read_page(data) for path, data in files.items() if path.endswith(".html")}
    shown = {
        path_of(image.get("src") or "", path)
        for path, page in pages.items()
        if page is not None
        for image in page.iter("img")
    }
    return sorted(path for path in shown - pages.keys() if path is not None and path not in files)


_NAMED: Final = re.compile(
    r"(?<![\w:/@.%-])[\w%-][\w./%-]*\.(?:pdf|docx?|xlsx?|od[ts]|csv|txt|zip|ics|epub|jpe?g|png|gif|webp|avif|svg|mp[34]|webm)\b",
    re.IGNORECASE,
)
_MOST_FILES: Final = 40
_MOST_NAME_CHARACTERS: Final = 120


def linkable(files: Mapping[str, bytes]) -> str:
    """Return the files of a site that its pages can show or link to, quoted, as far as there is room for them."""
    names = sorted(path for path in _addresses(files) if len(path) <= _MOST_NAME_CHARACTERS)
    more = f" and {len(names) - _MOST_FILES} more" if len(names) > _MOST_FILES else ""
    return ", ".join(json.dumps(name) for name in names[:_MOST_FILES]) + more


def named_files(request: str, files: Mapping[str, bytes]) -> tuple[list[str], list[str]]:
    """Return the site's files that a request names, by path or by name alone, and the names that no file has."""
    there, missing = [], []
    addresses = _addresses(files)
    spaced = {unquote(name) for path in addresses if "%20" in (name := posixpath.basename(path))}
    for name in sorted(spaced, key=len, reverse=True):
        request = re.sub(re.escape(name), lambda found: found[0].replace(" ", "%20"), request, flags=re.IGNORECASE)
    for name in dict.fromkeys(_NAMED.findall(request)):
        if re.match(r"[^/]+\.[^/]+/", name):
            continue  # another site's, without its https:
        wanted = unquote(name).casefold()
        found = [path for path in addresses if unquote(f"/{path}").casefold().endswith(f"/{wanted}")]
        there += found[:1]
        missing += [] if found else [name[:_MOST_NAME_CHARACTERS]]
    return there, missing


def _addresses(files: Iterable[str]) -> list[str]:
    """Return the paths of files that pages show or link to, as links have them."""
    return [address for path in files if _NAMED.fullmatch(address := path.replace(" ", "%20"))]


def read_page(data: bytes) -> etree._Element | None:
    """Return a page as a tree; None if there is nothing but white space and comments."""
    try:
        return html.document_fromstring(data, parser=html.HTMLParser(encoding="utf-8"))
    except etree.ParserError:
        return None


def path_of(href: str, page: str) -> str | None:
    """Return the path within its site that an address on a page means; None for an address elsewhere."""
    try:
        parts = urlsplit(href)
    except ValueError:
        return None  # the scan judges addresses
    if parts.scheme or parts.netloc:
        return None
    path = unquote(parts.path)
    start = "" if path.startswith("/") else posixpath.dirname(page)
    return posixpath.normpath(posixpath.join(start, path.lstrip("/"))) if path else page


def _hrefs(page: etree._Element) -> Iterator[str]:
    for link in page.iter("a", "area"):
        if href := (link.get("href") or "").strip():
            yield href


def _ids(page: etree._Element) -> frozenset[str] | None:
    """Return the places that a page has; None if a script may make more."""
    if next(page.iter("script"), None) is not None:
        return None
    return frozenset(name for each in page.iter() for name in (each.get("id"), each.get("name")) if name)


def _has_target(page: str, href: str, *, files: Mapping[str, bytes], ids: Mapping[str, frozenset[str] | None]) -> bool:
    target = path_of(href, page)
    if target is None:
        return True
    parts = urlsplit(href)
    if unquote(parts.path).endswith("/") or target == ".":
        target = posixpath.normpath(posixpath.join(target, INDEX))
    places = ids.get(target)
    if target not in files:
        return any(f"{target}{end}" in files for end in (".html", f"/{INDEX}"))
    return places is None or parts.fragment in ("", "top") or unquote(parts.fragment) in places

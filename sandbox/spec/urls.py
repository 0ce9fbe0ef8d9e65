"""Which addresses a spec may hold.

Browsers strip tabs and newlines from addresses, turn backslashes into slashes and read `//host` as another site. All
of that is refused here instead of repaired, so that what a reviewer reads is what a browser follows.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

_REFUSED_CHARS = re.compile(r"[\x00-\x20\x7f-\xa0\\<>\"'`{}|^\u2028\u2029\ufeff\u200b-\u200f]")
_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):")
_WEB = re.compile(
    r"https?://(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)*[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?::\d{1,5})?(?:[/?#].*)?", re.I
)
_MAIL = re.compile(r"mailto:[^@:/]+@[a-z0-9.-]+(?:\?(?:subject|body)=[^&]*(?:&(?:subject|body)=[^&]*)?)?", re.I)
_PHONE = re.compile(r"tel:\+?[0-9().-]{3,24}", re.I)
MAX_URL_CHARS = 1000


def complaint_about_link(url: str) -> str | None:
    """Return why an address may not stand in a link, or None if it may."""
    if complaint := _complaint_about_text(url):
        return complaint
    scheme = _SCHEME.match(url)
    if scheme is None:
        return _complaint_about_relative(url)
    pattern = {"https": _WEB, "http": _WEB, "mailto": _MAIL, "tel": _PHONE}.get(scheme[1].lower())
    if pattern is None:
        return "links go to https:, http:, mailto: and tel: addresses, to pages of the site and to #sections"
    return None if pattern.fullmatch(url) else f"this is not a plain {scheme[1].lower()}: address"


def complaint_about_image(url: str) -> str | None:
    """Return why an address may not be an image's source, or None if it may."""
    if complaint := _complaint_about_text(url):
        return complaint
    scheme = _SCHEME.match(url)
    if scheme is None:
        return "an image needs a path" if url.startswith(("#", "?")) else _complaint_about_relative(url)
    if scheme[1].lower() != "https":
        return "images come from https: addresses or from files of the site"
    return None if _WEB.fullmatch(url) else "this is not a plain https: address"


def is_external(url: str) -> bool:
    """Whether an accepted address leaves the site."""
    return _SCHEME.match(url) is not None


def relative_to(page: str, url: str) -> str:
    """Return an accepted address as the page at path `page` must write it: in a spec, paths count from the root."""
    if is_external(url) or url.startswith(("#", "?")):
        return url
    return "../" * page.count("/") + (url.lstrip("/") or "./")


def _complaint_about_text(url: str) -> str | None:
    if not url or len(url) > MAX_URL_CHARS:
        return f"an address has 1 to {MAX_URL_CHARS} characters"
    if _REFUSED_CHARS.search(url):
        return "an address holds no space, quote, backslash, bracket or control character"
    return None


def _complaint_about_relative(url: str) -> str | None:
    if url.startswith("//"):
        return "an address that starts with // leaves the site"
    path = unquote(re.split(r"[?#]", url, maxsplit=1)[0])
    if ".." in path.split("/") or "\\" in path or ":" in path or "\x00" in path:
        return "a path stays inside the site"
    return None

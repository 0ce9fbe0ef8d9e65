"""Pages of other sites within a page: nothing is loaded before a visitor asks for it, and only what the profile allows.

A frame begins empty, or as a part of the page (`srcdoc`), and a link loads the other page into it: by the frame's name
as `target`, or from within the part. Without a script, so that a release with frames can do without any; and what a
script would load instead, the header stops: its `frame-src` holds the addresses of these links and nothing else.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from routing.policy.platform import Profile
from sites.scan.html_tokenizer import Tag

SANDBOX: Final = (
    "allow-forms allow-popups allow-popups-to-escape-sandbox allow-presentation allow-same-origin allow-scripts"
)
"""What an embedded page may do: what players and maps need, and never lead the visitor away from the page around it."""
ALLOW: Final = "autoplay; encrypted-media; fullscreen; picture-in-picture"
MAX_SOURCES_BYTES: Final = 3072
"""Of the header, for addresses of frames."""

_SANDBOX: Final = frozenset(SANDBOX.split())
_ALLOW: Final = frozenset(ALLOW.split("; "))
_SPACE: Final = " \t\n\f\r"
_ADDRESS: Final = re.compile(
    r"https://(?P<source>(?P<host>[a-z0-9.-]+)(?P<path>(?:/[A-Za-z0-9_~@!$=:+-][A-Za-z0-9._~@!$=:+-]*)*/?))(?:[?#]\S*)?"
)
_ELSEWHERE: Final = frozenset({"_blank", "_top", "_parent"})


class Link(NamedTuple):
    """A link that may load a page into a frame."""

    href: str
    target: str
    line: int


def frame_source(url: str, profile: Profile) -> str | None:
    """Return the source expression of a page that a frame may show; None if the profile does not allow it.

    The address has to be written plainly: a browser must not find another path in it than is compared here.
    """
    match = _ADDRESS.fullmatch(url)
    if match is None or not any(_is_below(match["host"], match["path"], allowed) for allowed in profile.frames):
        return None
    return f"https://{match['source']}"


def _is_below(host: str, path: str, allowed: str) -> bool:
    allowed_host, _, rest = allowed.partition("/")
    if host != allowed_host:
        return False
    return not rest or path == f"/{rest}" or (rest.endswith("/") and path.startswith(f"/{rest}"))


def complaint_about_frame(tag: Tag) -> str | None:
    """Return why a frame may load or do more than a visitor asks for; None if it does not."""
    sandbox, allow = tag.get("sandbox"), tag.get("allow") or ""
    if tag.get("src") is not None:
        return f"src={tag.get('src')}"
    if sandbox is None:
        return "no sandbox"
    if more := sorted(set(sandbox.lower().split()) - _SANDBOX):
        return f"sandbox={more[0]}"
    if more := sorted({part.strip(_SPACE).lower() for part in allow.split(";")} - _ALLOW - {""}):
        return f"allow={more[0]}"
    if not (tag.get("title") or "").strip():
        return "no title"
    return None if tag.get("srcdoc") is not None or tag.get("name") else "no name, so that no link leads into it"


def link_of(tag: Tag, *, inside: bool) -> Link | None:
    """Return the link that a tag is, if it may load into a frame; `inside` one, each link may that names no other."""
    href = tag.get("href") if tag.name in ("a", "area") else None
    target = (tag.get("target") or "").strip(_SPACE)
    if href is None or target.lower() in _ELSEWHERE or not (inside or target):
        return None
    return Link(href, target, tag.line)

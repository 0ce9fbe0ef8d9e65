"""One page turned into several with a shared navigation: what the coding agent does when it is asked for that.

Each section of the page becomes a page of its own; head, style and whatever stands around the main part stay the same.
"""

from __future__ import annotations

import html
import re
from typing import NamedTuple

from sandbox.rehearsal.words import slug

_ASKS = re.compile(r"multi-?\s?page|(?:several|separate|more) pages|shared nav", re.IGNORECASE)
_SECTION = re.compile(r"[ \t]*<section\b([^>]*)>(.*?)</section>[ \t]*\n?", re.DOTALL | re.IGNORECASE)
_ID = re.compile(r"\bid=\"([\w-]{1,60})\"")
_HEADING = re.compile(r"<h[1-6]\b[^>]*>(.*?)</h[1-6]>", re.DOTALL | re.IGNORECASE)
_TAGS = re.compile(r"<[^>]*>")
_NAV = re.compile(r"[ \t]*<nav\b.*?</nav>[ \t]*\n?", re.DOTALL | re.IGNORECASE)
_BODY = re.compile(r"<body\b[^>]*>", re.IGNORECASE)
_INSIDES = tuple(re.compile(rf"(<{tag}\b[^>]*>).*?(</{tag}>)", re.DOTALL | re.IGNORECASE) for tag in ("main", "body"))
"""Where a page's own part stands, the better place first."""
_TITLE = re.compile(r"<title>(.*?)</title>", re.DOTALL | re.IGNORECASE)
_MAX_PAGES = 8
_HOME = "index.html"


class _Part(NamedTuple):
    name: str
    """Of its file."""
    title: str
    anchor: str
    markup: str


def asks_for_pages(prompt: str) -> bool:
    """Tell whether a request wants one page to become several."""
    return _ASKS.search(prompt) is not None


def split_pages(page: str) -> dict[str, str]:
    """Return the pages that one page becomes, by file name; the page itself is among them as `index.html`."""
    bare = _NAV.sub("", page)
    parts = _parts(bare) or [_made("About"), _made("Contact")]
    nav = _nav(parts)
    home = bare
    for part in parts:
        home = home.replace(part.markup, "", 1)
    pages = {_HOME: _with_nav(home, nav)}
    for part in parts:
        pages[part.name] = _with_nav(_only(home, part), nav)
    return {name: _relinked(text, parts) for name, text in pages.items()}


def _parts(page: str) -> list[_Part]:
    found: dict[str, _Part] = {}
    for section in _SECTION.finditer(page):
        named, heading = _ID.search(section[1]), _HEADING.search(section[2])
        title = html.unescape(_TAGS.sub("", heading[1])).strip()[:60] if heading else ""
        anchor = named[1] if named else ""
        if not (title or anchor):
            continue
        name = f"{slug(anchor or title)}.html"
        if name != _HOME and name not in found:
            found[name] = _Part(name, title or anchor.capitalize(), anchor, section[0])
    return list(found.values())[: _MAX_PAGES - 1]


def _made(title: str) -> _Part:
    name = slug(title)
    text = f"This page was asked for; its words are the owner's to write: {title}."
    markup = f'<section id="{name}">\n  <h2>{title}</h2>\n  <p>{text}</p>\n</section>\n'
    return _Part(f"{name}.html", title, name, markup)


def _nav(parts: list[_Part]) -> str:
    links = [(_HOME, "Home"), *((part.name, part.title) for part in parts)]
    lines = "\n".join(f'  <a href="{name}">{html.escape(title)}</a>' for name, title in links)
    return f'<nav aria-label="Pages">\n{lines}\n</nav>'


def _with_nav(page: str, nav: str) -> str:
    body = _BODY.search(page)
    at = body.end() if body else 0
    return f"{page[:at]}\n{nav}{page[at:]}" if body else f"{nav}\n{page}"


def _only(home: str, part: _Part) -> str:
    """Return the home page with nothing but this part inside."""
    title = _TITLE.search(home)
    text = home
    if inside := next(filter(None, (place.search(home) for place in _INSIDES)), None):
        text = f"{home[: inside.start()]}{inside[1]}\n{part.markup}{inside[2]}{home[inside.end() :]}"
    if title:
        text = text.replace(title[0], f"<title>{html.escape(part.title)} – {title[1]}</title>", 1)
    return text


def _relinked(page: str, parts: list[_Part]) -> str:
    for part in parts:
        if part.anchor:
            page = page.replace(f'href="#{part.anchor}"', f'href="{part.name}"')
    return page

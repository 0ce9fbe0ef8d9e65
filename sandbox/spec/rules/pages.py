"""Rules for what stands in a page's head: its title in the browser tab, and its description for search engines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from sandbox.spec.model import Site
from sandbox.spec.rules.edits import DirectEdit, Rule, setting
from sandbox.spec.rules.forms import Put
from sandbox.spec.rules.targets import find_pages, root_of
from sandbox.spec.rules.wording import Request, plain

_KIND: Final = r"(?:page|browser|tab|browser tab|site|website|meta|seo|html|document)(?:'s)?"
_FIELD: Final = rf"(?P<field>(?:{_KIND} )+(?:title|description)|browser tab|title tag|meta description)"
_TARGETS: Final = (
    re.compile(rf"{_FIELD}(?: (?:of|on|for|in) (?:the |our )?(?P<page>[\w.& -]+?))?"),
    re.compile(rf"(?P<page>[\w.-]+)(?:'s)? {_FIELD}"),
)


def page_field(target: str) -> tuple[str, str | None] | None:
    """Return "title" or "description" and the page's name as written, if a phrase names the head of a page."""
    noun = plain(target)
    for pattern in _TARGETS:
        if match := pattern.fullmatch(noun):
            return ("description" if "description" in match["field"] else "title"), match["page"]
    return None


def _put(order: Put, request: Request, site: Site) -> Iterator[DirectEdit]:
    value, named = request.value(order.value), page_field(order.target)
    if value is None or named is None:
        return
    field, page = named
    pages = find_pages(page, site) if page else tuple(sorted(site.pages))
    if len(pages) != 1:
        return
    root = root_of(site, pages[0])
    if order.old is None or root.props.get(field) == request.literal(order.old):
        summary = f"Set the {field} of the page {pages[0]} to “{value}”."
        yield setting("page", summary, path=f"{root.path}/props/{field}", value=value, is_new=field not in root.props)


RULES: Final = (Rule(Put, _put),)

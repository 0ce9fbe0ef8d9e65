"""The one phone number or mail address of a site of plain HTML, wherever its pages say it or link to it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from sandbox.markup.edits import Change, Reading, set_attribute, set_text
from sandbox.markup.site import PlainSite
from sandbox.spec.contact import phone_url
from sandbox.spec.rules.facts import fact_value, named_fact
from sandbox.spec.rules.forms import Put
from sandbox.spec.rules.vocabulary import FACT_SHAPES
from sandbox.spec.rules.wording import Request

_PHONE: Final = re.compile(r"(?<![\w.,:/-])\+?[0-9(][0-9 ()./\u00a0-]{5,28}[0-9](?![\w:])")
_SCHEMES: Final = {"phone": "tel:", "email": "mailto:"}


def read_fact(order: Put, request: Request, site: PlainSite) -> Iterator[Reading]:
    """Change the one phone number or mail address of a site, in its text and in its links."""
    for name in FACT_SHAPES:
        named = named_fact(order, request)
        olds = {_number(text) if name == "phone" else text.lower() for text in _known(name, site)}
        literal = request.literal(order.target)
        if named and (named[0] != name or named[1]):
            continue
        stated = named[2] if named else literal
        key = (_number(stated) if name == "phone" else stated.lower()) if stated else None
        value = fact_value(order.value, name, request)
        if len(olds) != 1 or value is None or (key is not None and key not in olds) or not (named or key in olds):
            continue
        changes = tuple(_everywhere(name, value, site))
        if changes and len(changes) == _mentions(name, site):
            yield Reading(f"Set the {name} to “{value}” on the whole site.", changes)


def _number(text: str) -> str:
    """Return a phone number as a `tel:` link would have it, without the scheme."""
    return phone_url(text).removeprefix("tel:")


def _known(name: str, site: PlainSite) -> Iterator[str]:
    """Yield the phone numbers or mail addresses of a site, in its links and in what it shows."""
    scheme = _SCHEMES[name]
    pattern = _PHONE if name == "phone" else FACT_SHAPES["email"]
    for document in site.pages.values():
        for link in document.elements("a"):
            href = link.attributes.get("href", "")
            if href.lower().startswith(scheme):
                yield href[len(scheme) :].split("?")[0]
    for _, text in site.visible_texts():
        yield from pattern.findall(text)


def _written(name: str, site: PlainSite) -> set[str]:
    pattern = _PHONE if name == "phone" else FACT_SHAPES["email"]
    return {text for _, shown in site.visible_texts() for text in pattern.findall(shown)}


def _mentions(name: str, site: PlainSite) -> int:
    """Return how often any file holds a fact in one of its spellings, scripts and style sheets included."""
    return sum(site.mentions(text) for text in {*_written(name, site), *_known(name, site)})


def _everywhere(name: str, value: str, site: PlainSite) -> Iterator[tuple[str, Change]]:
    """Yield the change of every link and visible text that holds a fact."""
    scheme = _SCHEMES[name]
    target = _number(value) if name == "phone" else value
    for path, document in site.pages.items():
        for link in document.elements("a"):
            href = link.attributes.get("href", "")
            if href.lower().startswith(scheme):
                query = href[len(scheme) :].partition("?")
                yield path, set_attribute(document, link, "href", scheme + target + "".join(query[1:]))
    for text in sorted(_written(name, site)):
        for page, node, start, end in site.find_text(text):
            if node is None:
                return
            yield page, set_text(site.pages[page], node, value, start=start, end=end)

"""What a site says about its owner, read back from the site for direct edits and new sections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sandbox.spec.component import Business, Link
from sandbox.spec.model import INDEX, JsonObject, Site


def business_of(site: Site) -> Business:
    """Return the business of a valid site. A fact that is written in two ways on the site counts as unknown."""
    elements = [element for _, page in sorted(site.pages.items()) for element in page["elements"].values()]
    root = site.pages[INDEX]["elements"][site.pages[INDEX]["root"]]
    return Business(
        name=fact(elements, "brand") or str(root.get("props", {}).get("title", ""))[:60],
        tagline=fact(elements, "tagline"),
        email=fact(elements, "email"),
        phone=fact(elements, "phone"),
        address=fact(elements, "address"),
        links=tuple(_links(elements)),
    )


def fact(elements: list[JsonObject], name: str) -> str | None:
    """Return the one value that a prop has wherever it is set, or None."""
    found = {element.get("props", {}).get(name) for element in elements}
    values = [value for value in found if isinstance(value, str)]
    return values[0] if len(values) == 1 else None


def _links(elements: list[JsonObject]) -> Iterator[Link]:
    header: Any = next((element for element in elements if element["type"] == "Header"), {})
    for link in header.get("props", {}).get("links") or ():
        if isinstance(link, dict) and isinstance(link.get("label"), str) and isinstance(link.get("href"), str):
            yield Link(label=link["label"], href=link["href"])

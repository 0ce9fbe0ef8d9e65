"""A rendered page as a tree, without the white space that only lays its source out."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from sites.errors import SiteError
from sites.spec.html import VOID

Place = tuple[str | int, ...]
"""Keys and indexes in a site document, from `pages` on."""
_TOKEN: Final = re.compile(
    r"<script[^<>]*>(?s:.*?)</script>|<(?P<close>/?)(?P<name>[a-zA-Z][a-zA-Z0-9]*)(?P<rest>(?:[^<>\"]|\"[^<\"]*\")*)>|[^<]+"
)
_ATTRIBUTE: Final = re.compile(r"\s+([^\s=>\"]+)(?:=\"([^\"]*)\")?")
_MAX_DEPTH: Final = 60
_MAX_SCRIPTS: Final = 9


class MismatchError(SiteError):
    """The edited page has something here that no element of the catalog writes (nobody's fault)."""


@dataclass
class Element:
    """An element of a page, and which texts of the spec it shows."""

    name: str
    attributes: dict[str, str]
    children: list[Element | str] = field(default_factory=list)
    slots: dict[str | int, tuple[Place, str, str]] = field(default_factory=dict, compare=False)
    """By attribute or index of a child: the place of the text shown there, what stands before it, and after it."""
    prose: Place | None = field(default=None, compare=False)
    """The place of the running text that is all its content."""

    def elements(self) -> Iterator[Element]:
        """Yield the element and all below it."""
        pending = [self]
        while pending:
            yield (each := pending.pop())
            pending += [child for child in reversed(each.children) if isinstance(child, Element)]

    @property
    def places(self) -> set[Place]:
        """The places of all that it shows."""
        found = {place for each in self.elements() for place, _, _ in each.slots.values()}
        return found | {each.prose for each in self.elements() if each.prose}


_APART: Final = re.compile(r'<span class="number">([^<]*)</span>')
"""A number among words: a telephone's on a button, the amount of a price, hours."""


def parse_rendered(text: str) -> Element | None:
    """Return a rendered page as a tree without the white space between blocks; None for what nobody renders so."""
    if text.count("<script") > _MAX_SCRIPTS:
        return None
    root = Element("", {})
    stack = [root]
    for match in _TOKEN.finditer(_APART.sub(r"\1", text.removeprefix("<!doctype html>\n"))):
        name = match["name"]
        if name is None:
            said = match[0]
            if said.strip() or "\n" not in said:
                stack[-1].children.append(html.unescape(said))
        elif match["close"]:
            if len(stack) == 1 or stack.pop().name != name:
                return None
        else:
            attributes = {key: html.unescape(value) for key, value in _ATTRIBUTE.findall(match["rest"])}
            element = Element(name, attributes)
            stack[-1].children.append(element)
            if name not in VOID:
                stack.append(element)
            if len(stack) > _MAX_DEPTH:
                return None
    return root if len(stack) == 1 else None


def said(element: Element) -> set[str]:
    """Return the texts and attributes of an element and all below it."""
    found = {child for each in element.elements() for child in each.children if isinstance(child, str)}
    return found | {f"{name}={value}" for each in element.elements() for name, value in each.attributes.items()}


def prose_of(element: Element) -> str:
    """Return the running text of paragraphs and lists, as `paragraphs` reads it.

    Raises:
        MismatchError: there is something else among them.
    """
    blocks: list[str] = []
    for child in element.children:
        if isinstance(child, str) or child.attributes or child.name not in ("p", "ul"):
            raise MismatchError
        lines = [child] if child.name == "p" else child.children
        blocks.append("\n".join(("" if child.name == "p" else "- ") + _line_of(line) for line in lines))
    return "\n\n".join(blocks)


_STARS: Final = {"strong": "**", "em": "*"}


def _line_of(line: Element | str) -> str:
    if isinstance(line, str):
        raise MismatchError
    return "".join(child if isinstance(child, str) else _marked(child) for child in line.children)


def _marked(child: Element) -> str:
    if child.name == "a" and set(child.attributes) == {"href"}:
        address = child.attributes["href"].replace("../", "")  # in a spec, paths count from the root
        return f"[{_line_of(child)}]({address})"
    if child.name not in _STARS or child.attributes:
        raise MismatchError
    return _STARS[child.name] + _line_of(child) + _STARS[child.name]

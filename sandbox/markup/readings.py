"""What a direct request can mean on plain HTML: the same orders as on a spec, on what the pages hold.

Each reader yields every reading; the edit is made only if there is one. Whoever writes a text twice on a site has two
readings, and a model decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from sandbox.markup.document import Node
from sandbox.markup.edits import Reading, remove_element, set_attribute, set_text
from sandbox.markup.errors import NotEditableError
from sandbox.markup.facts import read_fact
from sandbox.markup.site import PlainSite
from sandbox.spec.rules.forms import Form, Put, Remove, Replace
from sandbox.spec.rules.images import ALT_PHRASES, IMAGE_FILE
from sandbox.spec.rules.links import BUTTON_LINK_PHRASES, BUTTON_PHRASES, LINK_LINK_PHRASES, LINK_PHRASES
from sandbox.spec.rules.pages import page_field
from sandbox.spec.rules.targets import matches
from sandbox.spec.rules.vocabulary import HEADLINE, IMAGE
from sandbox.spec.rules.wording import QUOTED, Request, plain
from sandbox.spec.urls import complaint_about_image, complaint_about_link, relative_to

_HEADINGS: Final = ("h1", "h2", "h3", "h4", "h5", "h6")
_NAMED_HEADING: Final = re.compile(rf"(?:heading|headline|title) (?P<old>{QUOTED})")
_HEADLINE_OF: Final = re.compile(
    r"(?P<noun>.+?) (?:of|on|in) (?:the |our )?(?P<page>[\w.-]+\.html?|[\w &'-]+? page|homepage)|(?P<alone>[^.]+)"
)
_SECTION: Final = re.compile(rf"section (?P<a>{QUOTED})|(?P<b>{QUOTED}) section")


def _replace(order: Replace, request: Request, site: PlainSite) -> Iterator[Reading]:
    old, new = request.quoted(order.old), request.quoted(order.new)
    if not old or new is None or not new.strip() or old == new:
        return
    pages = site.find_pages(order.where) if order.where else tuple(site.pages)
    if order.where and len(pages) != 1:
        return
    hits = site.find_text(old) or site.find_text(old, ignore_case=True)
    hits = [hit for hit in hits if hit.page in pages]
    if len(hits) != 1 and not order.is_everywhere:
        return
    if order.is_everywhere and site.mentions(old) != len(hits):
        return  # it also stands in titles, addresses or other spellings
    changes = []
    for page, node, start, end in hits:
        if node is None:
            raise NotEditableError(f"“{old}” on {page} is spread over several elements")
        changes.append((page, set_text(site.pages[page], node, new, start=start, end=end)))
    if changes:
        yield Reading(f"Replaced “{old}” by “{new}”.", tuple(changes))


def _head(order: Put, request: Request, site: PlainSite) -> Iterator[Reading]:
    """Set a page's title or its description for search engines."""
    value, named = request.value(order.value), page_field(order.target)
    if value is None or named is None or order.old is not None:
        return
    field, name = named
    pages = site.find_pages(name) if name else tuple(site.pages)
    if len(pages) != 1:
        return
    document = site.pages[pages[0]]
    summary = f"Set the {field} of the page {pages[0]} to “{value}”."
    if field == "title":
        titles = [node for node in document.elements("title") if node.parent and node.parent.name == "head"]
        if len(titles) == 1 and len(titles[0].children) == 1:
            yield Reading(summary, ((pages[0], set_text(document, titles[0].children[0], value)),))
        return
    tags = [node for node in document.elements("meta") if node.attributes.get("name", "").lower() == "description"]
    if len(tags) == 1:
        yield Reading(summary, ((pages[0], set_attribute(document, tags[0], "content", value)),))


def _heading(order: Put, request: Request, site: PlainSite) -> Iterator[Reading]:
    value = request.value(order.value)
    if value is None or order.old is not None:
        return
    for page, node in _headings(plain(order.target), request, site):
        change = set_text(site.pages[page], _only_text(node, page), value)
        yield Reading(f"Set the heading “{node.content}” of {page} to “{value}”.", ((page, change),))


def _only_text(node: Node, page: str) -> Node:
    """Return the one text that an element holds.

    Raises:
        NotEditableError: it holds other elements, so what its new text would do to them is a matter of judgement.
    """
    if len(node.children) != 1 or node.children[0].name != "#text":
        raise NotEditableError(f"the <{node.name}> “{node.content[:60]}” of {page} holds other elements")
    return node.children[0]


def _headings(noun: str, request: Request, site: PlainSite) -> Iterator[tuple[str, Node]]:
    """Yield what "the headline of about.html", "the headline" or "the heading “Tonight”" can mean."""
    if match := _NAMED_HEADING.fullmatch(noun):
        old = (request.quoted(match["old"]) or "").strip()
        yield from ((path, node) for path, document in site.pages.items()
                    for node in document.elements(*_HEADINGS) if node.content == old)  # fmt: skip
    elif match := _HEADLINE_OF.fullmatch(noun):
        pages = site.find_pages(match["page"]) if match["page"] else tuple(site.pages)
        if (match["noun"] or match["alone"]) in HEADLINE:
            yield from ((path, node) for path in pages for node in site.pages[path].elements("h1"))


def _label(order: Put, request: Request, site: PlainSite) -> Iterator[Reading]:
    """Set the words of a button or a link that is named by the words it has."""
    value = request.value(order.value)
    if value is None or order.old is not None or re.match(r"\w+:|[#/]|www\.", value):
        return
    for page, node in _named_links((*BUTTON_PHRASES, *LINK_PHRASES), order.target, request, site):
        change = set_text(site.pages[page], _only_text(node, page), value)
        yield Reading(f"Changed “{node.content}” on {page} to “{value}”.", ((page, change),))


def _destination(order: Put, request: Request, site: PlainSite) -> Iterator[Reading]:
    """Set where a button or a link leads."""
    if order.old is not None:
        return
    phrases = (*BUTTON_LINK_PHRASES, *LINK_LINK_PHRASES)
    for page, node in _named_links(phrases, order.target, request, site):
        url = _address(order.value, page, request, site)
        if url and complaint_about_link(url) is None and node.name == "a":
            change = set_attribute(site.pages[page], node, "href", url)
            yield Reading(f"“{node.content}” on {page} now leads to {url}.", ((page, change),))


def _named_links(
    phrases: tuple[re.Pattern[str], ...], target: str, request: Request, site: PlainSite
) -> Iterator[tuple[str, Node]]:
    """Yield the links and buttons whose words a phrase names; a phrase with a place is left to a model."""
    names = set()
    for found in matches(phrases, target):
        if not (found.get("behind") or found.get("where")):
            names.add(request.literal(found.get("label") or found["which"]).lower().strip())
    for path, document in site.pages.items():
        for node in document.elements("a", "button"):
            if node.content.lower() in names - {""}:
                yield path, node


def _address(token: str, page: str, request: Request, site: PlainSite) -> str | None:
    text = request.literal(token)
    if re.match(r"(?:https?://|mailto:|tel:|#|/)\S+$|[\w/-]+\.html?(?:#\S+)?$", text):
        return text
    pages = site.find_pages(text) if re.search(r" page$|^(?:the )?homepage$", text, re.I) else ()
    return relative_to(page, pages[0]) if len(pages) == 1 else None


def _image(order: Put, request: Request, site: PlainSite) -> Iterator[Reading]:
    """Show another file where one is named by its own address."""
    url = request.literal(re.sub(rf"^(?:the )?(?:new )?{IMAGE} ", "", order.value))
    is_file = url.startswith("https://") or re.fullmatch(IMAGE_FILE, url, re.I) is not None
    if order.old is not None or not is_file or complaint_about_image(url):
        return
    for page, node in _images(order.target, request, site):
        if "srcset" in node.attributes or (node.parent and node.parent.name == "picture"):
            raise NotEditableError(f"the image {node.attributes['src']} of {page} has several files")
        change = set_attribute(site.pages[page], node, "src", url)
        yield Reading(f"Changed the image {node.attributes['src']} of {page} to {url}.", ((page, change),))


def _alt(order: Put, request: Request, site: PlainSite) -> Iterator[Reading]:
    value = request.value(order.value)
    for found in matches(ALT_PHRASES, order.target) if value and order.old is None else ():
        for page, node in _images(found["which"], request, site):
            change = set_attribute(site.pages[page], node, "alt", value or "")
            summary = f"Set the alternative text of {node.attributes['src']} on {page} to “{value}”."
            yield Reading(summary, ((page, change),))


def _images(phrase: str, request: Request, site: PlainSite) -> Iterator[tuple[str, Node]]:
    bare = re.sub(rf"^(?:the |our )?(?:{IMAGE} )?", "", phrase.strip(), flags=re.I)
    source = request.literal(re.sub(rf" {IMAGE}$", "", bare, flags=re.I))
    for path, document in site.pages.items():
        yield from ((path, node) for node in document.elements("img") if node.attributes.get("src") == source)


def _remove(order: Remove, request: Request, site: PlainSite) -> Iterator[Reading]:
    """Remove the section that a quoted heading opens."""
    match = _SECTION.fullmatch(plain(order.what))
    name = request.quoted(match["a"] or match["b"]) if match and order.where is None else None
    for path, document in site.pages.items() if name else ():
        for heading in document.elements(*_HEADINGS):
            section = next((node for node in heading.ancestors() if node.name in ("section", "article")), None)
            if heading.content != name or section is None:
                continue
            own = [node for node in section.walk() if node.name in _HEADINGS and node.name <= heading.name]
            anchors = {node.attributes["id"] for node in section.walk() if node.attributes.get("id")}
            if own == [heading] and not any(_is_led_to(anchor, site) for anchor in anchors):
                yield Reading(f"Removed the section “{name}” of {path}.", ((path, remove_element(document, section)),))


def _is_led_to(anchor: str, site: PlainSite) -> bool:
    return any(
        link.attributes.get("href", "").endswith(f"#{anchor}")
        for document in site.pages.values()
        for link in document.elements("a", "area")
    )


Read = Callable[[Any, Request, PlainSite], Iterator[Reading]]
READERS: Final[tuple[tuple[type[Form], Read], ...]] = (
    (Replace, _replace), (Put, _head), (Put, _heading), (Put, _label), (Put, _destination), (Put, _image), (Put, _alt),
    (Put, read_fact), (Remove, _remove),
)  # fmt: skip

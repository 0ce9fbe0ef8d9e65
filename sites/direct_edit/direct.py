"""Direct edits of specs and of plain HTML: clear requests that are carried out without a model.

A request is carried out only if its whole text is understood and every way to understand it gives the same site. Any
doubt (two targets, a condition, a value that could be an instruction) leaves it to the model. A request may hold
several orders if each is clear and their sequence does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from sites.direct_edit import entries, layout
from sites.direct_edit import text as wording
from sites.direct_edit.entries import fact_value, named_fact
from sites.direct_edit.html_document import Node, NotEditableError
from sites.direct_edit.html_edits import (
    Change,
    PlainSite,
    ProposedEdit,
    apply_changes,
    remove_element,
    set_attribute,
    set_text,
)
from sites.direct_edit.orders import DirectEdit, Form, Put, Remove, Replace, forms_of
from sites.direct_edit.request import FACT_SHAPES, IMAGE, QUOTED, VOCABULARY, Request, plain, read_clauses, read_request
from sites.direct_edit.targets import matches
from sites.direct_edit.text import (
    ADDRESS_LIKE,
    ALT_PHRASES,
    BUTTON_LINK_PHRASES,
    BUTTON_PHRASES,
    LINK_LINK_PHRASES,
    LINK_PHRASES,
    image_url,
    page_field,
)
from sites.errors import SpecError
from sites.spec.edit import apply_edit
from sites.spec.html import complaint_about_link, phone_url, relative_to
from sites.spec.model import Site

_TABLES: Final = (entries.RULES, layout.RULES, wording.RULES)


def parse_direct(prompt: str, site: Site) -> DirectEdit | None:
    """Return the one change of a site that a request means; None if it means none or several."""
    request = read_request(prompt)
    readings = _readings(request, site) if request else {}
    if joined := _joined(read_clauses(prompt), site):
        readings.setdefault(apply_direct(site, joined).canonical(), joined)
    return next(iter(readings.values())) if len(readings) == 1 else None


def apply_direct(site: Site, edit: DirectEdit) -> Site:
    """Return the site after a direct edit that was parsed against this very site.

    Raises:
        SpecError: the site is not the one that the edit was parsed against (the caller's fault).
    """
    return apply_edit(site, [dict(operation) for operation in edit.operations])


def _readings(request: Request, site: Site) -> dict[str, DirectEdit | None]:
    """Return all interpretations by the resulting site.

    One that changes nothing or gives no valid site still counts, but is no edit.
    """
    readings: dict[str, DirectEdit | None] = {}
    tried: set[str] = set()
    before = site.canonical()
    for form in forms_of(request):
        for read in chain.from_iterable(table.get(type(form), ()) for table in _TABLES):
            for edit in read(form, request, site):
                written = repr(edit.operations)
                if written not in tried:
                    tried.add(written)
                    outcome = _outcome(site, edit)
                    is_change = outcome is not None and outcome != before
                    readings.setdefault(outcome or written, edit if is_change else None)
    return readings


def _outcome(site: Site, edit: DirectEdit) -> str | None:
    try:
        return apply_direct(site, edit).canonical()
    except SpecError:
        return None


def _joined(clauses: Sequence[Request], site: Site) -> DirectEdit | None:
    """Return several orders as one edit, if each is unambiguous and both sequences give the same site."""
    if not clauses:
        return None
    forward, backward = _in_order(clauses, site), _in_order(clauses[::-1], site)
    if forward is None or backward is None or _outcome(site, forward) != _outcome(site, backward):
        return None
    return forward


def _in_order(clauses: Sequence[Request], site: Site) -> DirectEdit | None:
    operations: list[Any] = []
    summaries: list[str] = []
    sought: list[str] = []
    for clause in clauses:
        readings = _readings(clause, site)
        edit = next(iter(readings.values())) if len(readings) == 1 else None
        if edit is None:
            return None
        site = apply_direct(site, edit)
        operations += edit.operations
        summaries.append(edit.summary)
        sought += edit.sought
    return DirectEdit("several", " ".join(summaries), tuple(operations), tuple(sought))


# Plain HTML: the same orders, applied to what the pages contain. A text that occurs twice is ambiguous.

_PHONE: Final = re.compile(r"(?<![\w.,:/-])\+?[0-9(][0-9 ()./\u00a0-]{5,28}[0-9](?![\w:])")
_SCHEMES: Final = {"phone": "tel:", "email": "mailto:"}


def read_fact(order: Put, request: Request, site: PlainSite) -> Iterator[ProposedEdit]:
    """Change a site's only phone number or mail address, in texts and links."""
    named, literal = named_fact(order, request), request.literal(order.target)
    for name in FACT_SHAPES:
        olds = {_number(text) if name == "phone" else text.lower() for text in _known(name, site)}
        if named and (named[0] != name or named[1]):
            continue
        stated = named[2] if named else literal
        key = (_number(stated) if name == "phone" else stated.lower()) if stated else None
        value = fact_value(order.value, name, request)
        if len(olds) != 1 or value is None or (key is not None and key not in olds) or not (named or key in olds):
            continue
        changes = tuple(_everywhere(name, value, site))
        mentions = sum(map(site.mentions, _known(name, site)))  # in scripts and style sheets, too
        if changes and len(changes) == mentions:
            yield ProposedEdit(f"Set the {name} to “{value}” on the whole site.", changes)


def _number(text: str) -> str:
    """Return a phone number as in a `tel:` link, without the scheme."""
    return phone_url(text).removeprefix("tel:")


def _known(name: str, site: PlainSite) -> set[str]:
    """Return a site's phone numbers or mail addresses as they are spelled in links and visible texts."""
    linked = (address for _, _, address in _linked(name, site))
    return {*(address.split("?")[0] for address in linked), *_written(name, site)}


def _linked(name: str, site: PlainSite) -> Iterator[tuple[str, Node, str]]:
    """Yield the links that ring a number or write to an address, each with its page and what follows the scheme."""
    scheme = _SCHEMES[name]
    for path, document in site.pages.items():
        for link in document.elements("a"):
            href = link.attributes.get("href", "")
            if href.lower().startswith(scheme):
                yield path, link, href[len(scheme) :]


def _written(name: str, site: PlainSite) -> set[str]:
    pattern = _PHONE if name == "phone" else FACT_SHAPES["email"]
    return {text for _, shown in site.visible_texts() for text in pattern.findall(shown)}


def _everywhere(name: str, value: str, site: PlainSite) -> Iterator[tuple[str, Change]]:
    """Yield the change of every link and visible text with a fact."""
    target = _number(value) if name == "phone" else value
    for path, link, address in _linked(name, site):
        query = "".join(address.partition("?")[1:])
        yield path, set_attribute(site.pages[path], link, "href", _SCHEMES[name] + target + query)
    for text in sorted(_written(name, site)):
        for page, node, start, end in site.find_text(text):
            if node is None:
                return
            yield page, set_text(site.pages[page], node, value, start=start, end=end)


_HEADINGS: Final = ("h1", "h2", "h3", "h4", "h5", "h6")
_NAMED_HEADING: Final = re.compile(rf"(?:heading|headline|title) (?P<old>{QUOTED})")
_HEADLINE_OF: Final = re.compile(
    r"(?P<noun>.+?) (?:of|on|in) (?:the |our )?(?P<page>[\w.-]+\.html?|[\w &'-]+? page|homepage)|(?P<alone>[^.]+)"
)
_SECTION: Final = re.compile(rf"section (?P<a>{QUOTED})|(?P<b>{QUOTED}) section")


def _replace(order: Replace, request: Request, site: PlainSite) -> Iterator[ProposedEdit]:
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
        yield ProposedEdit(f"Replaced “{old}” by “{new}”.", tuple(changes))


def _head(order: Put, request: Request, site: PlainSite) -> Iterator[ProposedEdit]:
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
            yield ProposedEdit(summary, ((pages[0], set_text(document, titles[0].children[0], value)),))
        return
    tags = [node for node in document.elements("meta") if node.attributes.get("name", "").lower() == "description"]
    if len(tags) == 1:
        yield ProposedEdit(summary, ((pages[0], set_attribute(document, tags[0], "content", value)),))


def _heading(order: Put, request: Request, site: PlainSite) -> Iterator[ProposedEdit]:
    value = request.value(order.value)
    if value is None or order.old is not None:
        return
    for page, node in _headings(plain(order.target), request, site):
        change = set_text(site.pages[page], _only_text(node, page), value)
        yield ProposedEdit(f"Set the heading “{node.content}” of {page} to “{value}”.", ((page, change),))


def _only_text(node: Node, page: str) -> Node:
    """Return an element's only text node.

    Raises:
        NotEditableError: it holds other elements, so a model must decide what becomes of them.
    """
    if len(node.children) != 1 or node.children[0].name != "#text":
        raise NotEditableError(f"the <{node.name}> “{node.content[:60]}” of {page} holds other elements")
    return node.children[0]


def _headings(noun: str, request: Request, site: PlainSite) -> Iterator[tuple[str, Node]]:
    """Yield the headings that "the headline of about.html", "the headline" or "the heading “Tonight”" can mean."""
    if match := _NAMED_HEADING.fullmatch(noun):
        old = (request.quoted(match["old"]) or "").strip()
        yield from (
            (path, node)
            for path, document in site.pages.items()
            for node in document.elements(*_HEADINGS)
            if node.content == old
        )
    elif match := _HEADLINE_OF.fullmatch(noun):
        pages = site.find_pages(match["page"]) if match["page"] else tuple(site.pages)
        if (match["noun"] or match["alone"]) in VOCABULARY.headline:
            yield from ((path, node) for path in pages for node in site.pages[path].elements("h1"))


def _label(order: Put, request: Request, site: PlainSite) -> Iterator[ProposedEdit]:
    """Set the label of a button or link that is named by its label."""
    value = request.value(order.value)
    if value is None or order.old is not None or ADDRESS_LIKE.match(value):
        return
    for page, node in _named_links((*BUTTON_PHRASES, *LINK_PHRASES), order.target, request, site):
        change = set_text(site.pages[page], _only_text(node, page), value)
        yield ProposedEdit(f"Changed “{node.content}” on {page} to “{value}”.", ((page, change),))


def _destination(order: Put, request: Request, site: PlainSite) -> Iterator[ProposedEdit]:
    """Set where a button or a link leads."""
    if order.old is not None:
        return
    phrases = (*BUTTON_LINK_PHRASES, *LINK_LINK_PHRASES)
    for page, node in _named_links(phrases, order.target, request, site):
        url = _address(order.value, page, request, site)
        if url and complaint_about_link(url) is None and node.name == "a":
            change = set_attribute(site.pages[page], node, "href", url)
            yield ProposedEdit(f"“{node.content}” on {page} now leads to {url}.", ((page, change),))


def _named_links(
    phrases: tuple[re.Pattern[str], ...], target: str, request: Request, site: PlainSite
) -> Iterator[tuple[str, Node]]:
    """Yield the links and buttons whose label a phrase names; a phrase with a place is left to a model."""
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


def _image(order: Put, request: Request, site: PlainSite) -> Iterator[ProposedEdit]:
    """Replace the file of an image that is named by its address."""
    url = image_url(order.value, request)
    if order.old is not None or url is None:
        return
    for page, node in _images(order.target, request, site):
        if "srcset" in node.attributes or (node.parent and node.parent.name == "picture"):
            raise NotEditableError(f"the image {node.attributes['src']} of {page} has several files")
        change = set_attribute(site.pages[page], node, "src", url)
        yield ProposedEdit(f"Changed the image {node.attributes['src']} of {page} to {url}.", ((page, change),))


def _alt(order: Put, request: Request, site: PlainSite) -> Iterator[ProposedEdit]:
    value = request.value(order.value)
    for found in matches(ALT_PHRASES, order.target) if value and order.old is None else ():
        for page, node in _images(found["which"], request, site):
            change = set_attribute(site.pages[page], node, "alt", value or "")
            summary = f"Set the alternative text of {node.attributes['src']} on {page} to “{value}”."
            yield ProposedEdit(summary, ((page, change),))


def _images(phrase: str, request: Request, site: PlainSite) -> Iterator[tuple[str, Node]]:
    bare = re.sub(rf"^(?:the |our )?(?:{IMAGE} )?", "", phrase.strip(), flags=re.I)
    source = request.literal(re.sub(rf" {IMAGE}$", "", bare, flags=re.I))
    for path, document in site.pages.items():
        yield from ((path, node) for node in document.elements("img") if node.attributes.get("src") == source)


def _remove(order: Remove, request: Request, site: PlainSite) -> Iterator[ProposedEdit]:
    """Remove the section with a quoted heading."""
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
                yield ProposedEdit(
                    f"Removed the section “{name}” of {path}.", ((path, remove_element(document, section)),)
                )


def _is_led_to(anchor: str, site: PlainSite) -> bool:
    return any(
        link.attributes.get("href", "").endswith(f"#{anchor}")
        for document in site.pages.values()
        for link in document.elements("a", "area")
    )


Read = Callable[[Any, Request, PlainSite], Iterator[ProposedEdit]]
READERS: Final[Mapping[type[Form], tuple[Read, ...]]] = {
    Replace: (_replace,),
    Put: (_head, _heading, _label, _destination, _image, _alt, read_fact),
    Remove: (_remove,),
}


@dataclass(frozen=True)
class PlainEdit:
    """The result of a direct edit of plain HTML."""

    summary: str
    """One plain sentence for the receipt."""
    files: Mapping[str, bytes]
    """The whole site afterwards."""


@dataclass(frozen=True)
class NoPlainEdit:
    """Why a request is left to a model."""

    reason: str
    is_ambiguous: bool = False
    """Whether it can mean more than one change."""


def edit_plain(
    prompt: str, files: Mapping[str, bytes], *, only: frozenset[str] | None = None
) -> PlainEdit | NoPlainEdit:
    """Carry out a request on a site of plain files, or `only` on some of its pages, if it means exactly one change."""
    request = read_request(prompt)
    if request is None:
        return NoPlainEdit("the request is not one plain order")
    try:
        site = PlainSite(files, only=only)
        outcomes = _outcomes(request, site)
    except NotEditableError as error:
        return NoPlainEdit(str(error))
    if len(outcomes) != 1:
        found = "more than one place" if outcomes else "nothing that could be told for certain"
        return NoPlainEdit(f"the request names {found} on pages of plain HTML", is_ambiguous=bool(outcomes))
    return next(iter(outcomes.values()))


def _outcomes(request: Request, site: PlainSite) -> dict[tuple[tuple[str, bytes], ...], PlainEdit]:
    """Return the result of every interpretation by its changed files."""
    found: dict[tuple[tuple[str, bytes], ...], PlainEdit] = {}
    for form in forms_of(request):
        for read in READERS.get(type(form), ()):
            for reading in read(form, request, site):
                changed = _apply(reading, site)
                found.setdefault(tuple(sorted(changed.items())), PlainEdit(reading.summary, {**site.files, **changed}))
    return found


def _apply(reading: ProposedEdit, site: PlainSite) -> dict[str, bytes]:
    by_page: dict[str, list[Change]] = {}
    for page, change in reading.changes:
        by_page.setdefault(page, []).append(change)
    return {page: apply_changes(site.pages[page], changes) for page, changes in by_page.items()}

"""Rules for words: titles and descriptions of pages, one text set, one text replaced by another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from sites.direct_edit.orders import DirectEdit, Put, Replace, Rules, setting
from sites.direct_edit.request import QUOTED, SUBHEADLINE, VOCABULARY, Request, plain, words
from sites.direct_edit.targets import (
    Place,
    Spot,
    find_pages,
    find_sections,
    find_strings,
    is_copy,
    opening_place,
    places,
    root_of,
    split_page,
    spoken,
)
from sites.spec.model import Site

_KIND: Final = r"(?:page|browser|tab|browser tab|site|website|meta|seo|html|document)(?:'s)?"
_PAGE_FIELD: Final = rf"(?P<field>(?:{_KIND} )+(?:title|description)|browser tab|title tag|meta description)"
_TARGETS: Final = (
    re.compile(rf"{_PAGE_FIELD}(?: (?:of|on|for|in) (?:the |our )?(?P<page>[\w.& -]+?))?"),
    re.compile(rf"(?P<page>[\w.-]+)(?:'s)? {_PAGE_FIELD}"),
)


def page_field(target: str) -> tuple[str, str | None] | None:
    """Return "title" or "description" and the page's name as written, if a phrase names the head of a page."""
    noun = plain(target)
    for pattern in _TARGETS:
        if match := pattern.fullmatch(noun):
            return ("description" if "description" in match["field"] else "title"), match["page"]
    return None


def _put_page(order: Put, request: Request, site: Site) -> Iterator[DirectEdit]:
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


_FIELD: Final = words({name for names in VOCABULARY.section_fields.values() for name in names})
_NAMED_FIELD: Final = re.compile(rf"(?P<field>{_FIELD}|headline) (?P<old>{QUOTED})(?P<rest> (?:of|in|on) .+)?")


def _put_text(order: Put, request: Request, site: Site) -> Iterator[DirectEdit]:
    value = request.value(order.value)
    if value is None:
        return
    old = None if order.old is None else request.literal(order.old)
    for spot, field in _field_spots(order.target, site, request):
        if old in (None, spot.value) and not _is_its_year(value, spot.value):
            summary = f"Set the {field} of the {spoken(spot.place.type)} to “{value}”."
            yield setting("text", summary, path=spot.path, value=value)


def _is_its_year(value: str, text: str) -> bool:
    """Whether a value is a year and the text it is for says more than its own: "change the copyright to 2027"."""
    return bool(re.fullmatch(r"\d{4}", value) and re.search(r"\D.*\b\d{4}\b|\b\d{4}\b.*\D", text))


def _field_spots(phrase: str, site: Site, request: Request) -> Iterator[tuple[Spot, str]]:
    """Yield the props that "the hero heading", "heading of the hero" or plain "tagline" can mean."""
    rest, pages = split_page(phrase, site)
    noun = plain(rest)
    if noun in VOCABULARY.headline or noun in SUBHEADLINE:
        field = "heading" if noun in VOCABULARY.headline else "text"
        yield from ((spot, field) for page in pages if (spot := _opening(site, page, field)))
        return
    if match := _NAMED_FIELD.fullmatch(noun):
        yield from _named_field(match, pages, site, request)
        return
    for section_phrase, field_word in splits(noun, rest, _FIELD, clear=VOCABULARY.clear_without_section):
        sections = [place for place in places(site) if place.page in pages]
        if section_phrase is not None:
            named = {place[:2] for place in find_sections(section_phrase, site, request)}
            sections = [place for place in sections if place[:2] in named]
        if field_word.startswith("copyright"):
            sections = [place for place in sections if place.type == "Footer"]
        for field, names in VOCABULARY.section_fields.items():
            if field_word in names:
                yield from ((spot, field) for place in sections if (spot := _prop_spot(place, field)))


def _named_field(
    match: re.Match[str], pages: tuple[str, ...], site: Site, request: Request
) -> Iterator[tuple[Spot, str]]:
    """Yield what "the heading “Teachers”" means: the kind of text, and the words that it has now."""
    old = request.quoted(match["old"])
    word = "heading" if match["field"] == "headline" else match["field"]
    scope = re.sub(r"^ (?:of|in|on) ", "", match["rest"]) if match["rest"] else None
    named = {place[:2] for place in find_sections(scope, site, request)} if scope else None
    for place in places(site):
        for field, names in VOCABULARY.section_fields.items():
            spot = _prop_spot(place, field) if word in names else None
            if spot and spot.value == old and place.page in pages and (named is None or place[:2] in named):
                yield spot, field


def splits(noun: str, original: str, field: str, *, clear: frozenset[str]) -> Iterator[tuple[str | None, str]]:
    """Yield the ways to cut a noun phrase into what holds a text (None when it is not named) and the text's name."""
    if noun in clear:
        yield None, noun
        return
    if match := re.fullmatch(rf"(?P<holder>.+?)(?:'s)? (?P<field>{field})", noun):
        yield _same_case(match["holder"], original), match["field"]
    if match := re.fullmatch(rf"(?P<field>{field}) (?:of|in|on|for|from|to) (?P<holder>.+)", noun):
        yield _same_case(match["holder"], original), match["field"]


def _opening(site: Site, page: str, field: str) -> Spot | None:
    """Return the heading that opens a page, or the text below it."""
    first = opening_place(site, (page,))
    return _prop_spot(first, field) if first else None


def _same_case(part: str, original: str) -> str:
    start = original.lower().find(part)
    return original[start : start + len(part)] if start >= 0 else part


def _prop_spot(place: Place, field: str) -> Spot | None:
    if place.type == "Heading" and field == "heading":
        field = "text"
    value = place.props.get(field)
    return Spot(place, (field,), value) if isinstance(value, str) else None


def _replace(order: Replace, request: Request, site: Site) -> Iterator[DirectEdit]:
    old, new = request.quoted(order.old), request.quoted(order.new)
    if not old or new is None or not new.strip() or old == new:
        return
    scope = None
    if order.where:
        scope = {place[:2] for place in find_sections(order.where, site, request)}
        if len(scope) != 1:
            return
    hits = _hits(old, site, scope, ignore_case=False) or _hits(old, site, scope, ignore_case=True)
    if order.is_everywhere and len(hits) != len(_hits(old, site, scope, ignore_case=True)):
        return  # other spellings of it would stay
    is_one = len(hits) == 1 and len(_found(old, hits[0].value, ignore_case=True)) == 1
    if is_one or (hits and order.is_everywhere):
        yield _replacement(hits, old, new)


def _replacement(hits: list[Spot], old: str, new: str) -> DirectEdit:
    operations = []
    for spot in hits:
        ignore_case = not _found(old, spot.value, ignore_case=False)
        value = _pattern(old, ignore_case=ignore_case).sub(lambda _: new, spot.value)
        operations.append({"op": "replace", "path": spot.path, "value": value})
    places_word = "" if len(hits) == 1 else f" in {len(hits)} places"
    return DirectEdit("replace", f"Replaced “{old}” by “{new}”{places_word}.", tuple(operations), sought=(old,))


def is_only_text(text: str, site: Site) -> bool:
    """Whether some words stand in exactly one text of a site."""
    return len(_hits(text, site, None, ignore_case=True)) == 1


def _hits(old: str, site: Site, scope: set[tuple[str, str]] | None, *, ignore_case: bool) -> list[Spot]:
    return [
        spot
        for spot in find_strings(site)
        if (scope is None or spot.place[:2] in scope)
        and is_copy(spot)
        and _found(old, spot.value, ignore_case=ignore_case)
    ]


def _found(old: str, text: str, *, ignore_case: bool) -> list[str]:
    return _pattern(old, ignore_case=ignore_case).findall(text)


def _pattern(old: str, *, ignore_case: bool) -> re.Pattern[str]:
    """Match a text that is not part of a longer word."""
    start = r"(?<!\w)" if old[0].isalnum() else ""
    end = r"(?!\w)" if old[-1].isalnum() else ""
    return re.compile(start + re.escape(old) + end, re.I if ignore_case else 0)


RULES: Final[Rules] = {Put: (_put_page, _put_text), Replace: (_replace,)}

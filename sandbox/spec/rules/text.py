"""Rules for words: set one text, replace one text by another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from sandbox.spec.model import Site
from sandbox.spec.rules.targets import (
    Place,
    Spot,
    entry_name,
    find_items,
    find_pages,
    find_sections,
    find_strings,
    is_copy,
    places,
    root_of,
    split_page,
    spoken,
)
from sandbox.spec.rules.wording import DirectEdit, Request, Rule, plain, rule

_FIELDS: Final = {
    "heading": ("heading", "headline", "title", "header", "header text", "heading text", "title text", "main heading"),
    "text": ("text", "subheading", "sub-heading", "subheadline", "subtitle", "description", "copy", "paragraph",
             "intro", "intro text", "lead", "lead text", "blurb", "introduction"),
    "eyebrow": ("eyebrow", "kicker", "overline", "eyebrow text"),
    "tagline": ("tagline", "slogan", "strapline"),
    "body": ("body", "body text", "text", "copy", "content"),
    "note": ("note", "copyright", "copyright line", "copyright text", "copyright notice", "small print", "footnote"),
    "button": ("submit button", "submit button text", "send button", "send button text"),
}  # fmt: skip
_ITEM_FIELDS: Final = {
    "price": ("price", "cost"),
    "text": ("text", "description", "blurb", "bio"),
    "title": ("title", "name", "heading"),
    "name": ("name",),
    "role": ("role", "job title", "position"),
    "answer": ("answer",),
    "question": ("question",),
    "period": ("period",),
    "quote": ("quote",),
    "value": ("value", "number", "figure"),
    "caption": ("caption",),
    "tag": ("tag", "label"),
}
_CLEAR_WITHOUT_SECTION: Final = frozenset(
    {
        *("tagline", "slogan", "strapline", "heading", "eyebrow", "small print", "price", "answer", "quote"),
        *("copyright", "copyright line", "copyright text", "copyright notice"),
        *("submit button", "submit button text", "send button", "send button text"),
    }
)
_FIRST_HEADING: Final = frozenset({"headline", "main heading", "main headline", "h1", "main title"})
_FIELD_WORDS: Final = sorted(
    {word for words in (*_FIELDS.values(), *_ITEM_FIELDS.values()) for word in words}, key=lambda w: (-len(w), w)
)
_FIELD: Final = "(?:" + "|".join(re.escape(word) for word in _FIELD_WORDS) + ")"
_PRICE: Final = re.compile(r"(?:[€$£¥]|(?:EUR|USD|GBP|CHF) ?)\s?\d[\d.,]*|\d[\d.,]* ?(?:€|£|EUR|USD|GBP|CHF|kr)")
_TO: Final = re.compile(r" (?:(?:so (?:that )?it (?:says|reads)|to say|to read|to be|to|into|with|as) |= )|: ?", re.I)


def _set_text(match: re.Match[str], request: Request, site: Site) -> Iterator[DirectEdit]:
    yield from _set_to(match["target"], match["value"], request, site)


def _set_at_any_to(match: re.Match[str], request: Request, site: Site) -> Iterator[DirectEdit]:
    """Try every "to" of a request as the one between what is changed and what it becomes."""
    rest = match["rest"]
    for middle in _TO.finditer(rest):
        yield from _set_to(rest[: middle.start()], rest[middle.end() :], request, site)


def _set_to(phrase: str, token: str, request: Request, site: Site) -> Iterator[DirectEdit]:
    value = request.value(token)
    is_price = (value is not None and request.quoted(token) is not None) or _PRICE.fullmatch(token) is not None
    for spot, field in (*_field_spots(phrase, site, request), *_item_spots(phrase, site, request)):
        text = value or (token if field == "price" and is_price else None)
        if text is not None and (field != "price" or is_price):
            yield _text_edit(spot, field, text)


def _from_to(match: re.Match[str], request: Request, site: Site) -> Iterator[DirectEdit]:
    """Set a text whose old wording the request quotes too; both must be true of the site."""
    old, new = request.quoted(match["old"]), request.quoted(match["value"])
    for spot, field in (*_field_spots(match["target"], site, request), *_item_spots(match["target"], site, request)):
        if old and new and spot.value == old:
            yield _text_edit(spot, field, new)


def _text_edit(spot: Spot, field: str, value: str) -> DirectEdit:
    """Return the change of one text; the summary names the entry or the section that holds it."""
    entry = spot.place.props
    for step in spot.steps[:-1]:
        entry = entry[step]  # type: ignore[index]
    name = entry_name(entry) if len(spot.steps) > 1 else None
    where = f"“{name}”" if name else f"the {spoken(spot.place.type)}"
    summary = f"Set the {field} of {where} to “{value}”."
    return DirectEdit("text", summary, ({"op": "replace", "path": spot.path, "value": value},))


def _field_spots(phrase: str, site: Site, request: Request) -> Iterator[tuple[Spot, str]]:
    """Yield the props that "the hero heading", "heading of the hero" or plain "tagline" can mean."""
    rest, pages = split_page(phrase, site)
    noun = plain(rest)
    if noun in _FIRST_HEADING:
        yield from ((spot, "heading") for page in pages if (spot := _first_heading(site, page)))
        return
    for section_phrase, field_word in _splits(noun, rest):
        sections = [place for place in places(site) if place.page in pages]
        if section_phrase is not None:
            named = {place[:2] for place in find_sections(section_phrase, site, request)}
            sections = [place for place in sections if place[:2] in named]
        if field_word.startswith("copyright"):
            sections = [place for place in sections if place.type == "Footer"]
        for field, words in _FIELDS.items():
            if field_word in words:
                yield from ((spot, field) for place in sections if (spot := _prop_spot(place, field)))


def _splits(noun: str, original: str) -> Iterator[tuple[str | None, str]]:
    if noun in _CLEAR_WITHOUT_SECTION:
        yield None, noun
        return
    if match := re.fullmatch(rf"(?P<section>.+?)(?:'s)? (?P<field>{_FIELD})", noun):
        yield _same_case(match["section"], original), match["field"]
    if match := re.fullmatch(rf"(?P<field>{_FIELD}) (?:of|in|on|for|from|to) (?P<section>.+)", noun):
        yield _same_case(match["section"], original), match["field"]


def _first_heading(site: Site, page: str) -> Spot | None:
    """Return the heading that opens a page."""
    by_key = {place.key: place for place in places(site) if place.page == page}
    order = [by_key[key] for key in root_of(site, page).element.get("children") or () if key in by_key]
    return next((spot for place in order if (spot := _prop_spot(place, "heading"))), None)


def _same_case(part: str, original: str) -> str:
    start = original.lower().find(part)
    return original[start : start + len(part)] if start >= 0 else part


def _prop_spot(place: Place, field: str) -> Spot | None:
    if place.type == "Heading" and field == "heading":
        field = "text"
    value = place.props.get(field)
    return Spot(place, (field,), value) if isinstance(value, str) else None


def _item_spots(phrase: str, site: Site, request: Request) -> Iterator[tuple[Spot, str]]:
    """Yield the props that "the price of Dark rye" can mean."""
    for item_phrase, field_word in _splits(plain(phrase), phrase):
        for spot in find_items(item_phrase, site, request) if item_phrase else ():
            for field, words in _ITEM_FIELDS.items():
                if field_word in words and isinstance(spot.value.get(field), str):
                    yield Spot(spot.place, (*spot.steps, field), spot.value[field]), field


def _replace(match: re.Match[str], request: Request, site: Site) -> Iterator[DirectEdit]:
    old, new = request.quoted(match["old"]), request.quoted(match["new"])
    if not old or new is None or not new.strip() or old == new:
        return
    scope = None
    if section := match.groupdict().get("section"):
        scope = {place[:2] for place in find_sections(section, site, request)}
        if len(scope) != 1:
            return
    hits = _hits(old, site, scope, ignore_case=False) or _hits(old, site, scope, ignore_case=True)
    if len(hits) == 1 or (hits and match.groupdict().get("all")):
        if not match.groupdict().get("all") and len(_found(old, hits[0].value, ignore_case=True)) > 1:
            return
        yield _replacement(hits, old, new)


def _replacement(hits: list[Spot], old: str, new: str) -> DirectEdit:
    operations = []
    for spot in hits:
        ignore_case = not _found(old, spot.value, ignore_case=False)
        value = _pattern(old, ignore_case=ignore_case).sub(lambda _: new, spot.value)
        operations.append({"op": "replace", "path": spot.path, "value": value})
    places_word = "" if len(hits) == 1 else f" in {len(hits)} places"
    return DirectEdit("replace", f"Replaced “{old}” by “{new}”{places_word}.", tuple(operations))


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


def _page_text(match: re.Match[str], request: Request, site: Site) -> Iterator[DirectEdit]:
    value = request.value(match["value"])
    named = match["page"]
    pages = find_pages(named, site) if named else tuple(sorted(site.pages))
    field = "description" if "description" in match["field"].lower() else "title"
    if value is None or len(pages) != 1:
        return
    root = root_of(site, pages[0])
    operation = {
        "op": "replace" if field in root.props else "add",
        "path": f"{root.path}/props/{field}",
        "value": value,
    }
    yield DirectEdit("page", f"Set the {field} of the page {pages[0]} to “{value}”.", (operation,))


_PAGE_FIELD: Final = (
    r"(?P<field>(?:(?:page|browser|tab|site|website|meta|seo|html|document)(?:'s)? )+(?:title|description))"
)
_REPLACE_VERB: Final = r"(?:replace|change|swap|substitute|rename|update|correct|fix|turn)"
_NOUN: Final = r"(?:(?:the )?(?:text|words?|phrase|typo|spelling|sentence|line|wording) )?"
_ALL: Final = r"(?:every|all|each)(?: (?:occurrences?|instances?|mentions?)(?: of)?)?"
_EVERYWHERE: Final = (
    r"(?P<all> everywhere| throughout(?: the (?:site|website))?| on (?:all|every) pages?| across the (?:site|website))?"
)

RULES: Final[tuple[Rule, ...]] = (
    rule(r"<CHANGE> (?P<rest>.+)", _set_at_any_to),
    rule(r"<CHANGE> (?P<target>.+) from (?P<old><Q>) (?:to|into) (?P<value><Q>)", _from_to),
    rule(r"(?:make|let|have) (?P<target>.+?) (?:say|read) <VALUE>", _set_text),
    rule(r"(?P<target>(?:the |our ).+?) (?:should|must|needs to|has to) (?:say|read|be) <VALUE>", _set_text),
    rule(r"(?:use|put|write) (?P<value><Q>) (?:as|for) (?P<target>.+)", _set_text),
    rule(r"(?P<target>(?:the )?[\w' -]{3,60}?)(?:: ?| = )<VALUE>", _set_text),
    rule(
        rf"{_REPLACE_VERB} {_NOUN}(?P<old><Q>) ?(?:with|by|to|for|into|->|→|=>)(?: (?:say|read))? (?P<new><Q>)"
        rf"(?: (?:in|on|of) (?P<section>(?!all |every )[\w' -]+?))?{_EVERYWHERE}",
        _replace,
    ),
    rule(rf"{_REPLACE_VERB} (?P<all>{_ALL}) (?P<old><Q>) (?:with|by|to|for|into) (?P<new><Q>)", _replace),
    rule(rf"{_NOUN}(?P<old><Q>) (?:should|must|needs to) (?:say|read|be) (?P<new><Q>)", _replace),
    rule(
        rf"<CHANGE> (?:the )?{_PAGE_FIELD}(?: (?:of|on|for) (?:the )?(?P<page>[\w -]+?))? <TO> <VALUE>",
        _page_text,
    ),
    rule(rf"<CHANGE> (?:the )?(?P<page>[\w-]+) {_PAGE_FIELD} <TO> <VALUE>", _page_text),
)

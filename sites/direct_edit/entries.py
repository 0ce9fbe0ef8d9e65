"""Rules for list entries (dishes, plans, questions, people, hours) and for facts about the business.

A fact (name, phone, email, address) changes everywhere on a site at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sites.direct_edit.orders import Add, DirectEdit, Put, Rules, setting
from sites.direct_edit.request import FACT_SHAPES, QUOTED, VOCABULARY, Request, by_name, is_said, plain, typed, words
from sites.direct_edit.targets import (
    LINKED,
    Place,
    Spot,
    entry_name,
    find_items,
    find_sections,
    find_strings,
    is_copy,
    places,
    split_page,
)
from sites.direct_edit.text import splits
from sites.spec.html import phone_url
from sites.spec.model import JsonObject, Site

_FIELD: Final = words({name for names in VOCABULARY.entry_fields.values() for name in names})
_PRICE: Final = re.compile(r"(?:[€$£¥]|(?:EUR|USD|GBP|CHF) ?)\s?\d[\d.,]*|\d[\d.,]* ?(?:€|£|EUR|USD|GBP|CHF|kr)")
_TIME: Final = r"\d{1,2}(?:[:.]\d\d)? ?(?:am|pm|h)?"
_TIMES: Final = re.compile(rf"{_TIME} ?(?:–|-|to|until) ?{_TIME}|closed", re.I)
_HOURS: Final = r"(?:(?:opening )?(?:hours|times?))"
_HOURS_OF: Final = re.compile(rf"(?:(?P<a>.+?)(?:'s)? {_HOURS}|{_HOURS}(?: (?:on|for|of))?(?: (?P<b>.+))?)", re.I)


def _put_entry(order: Put, request: Request, site: Site) -> Iterator[DirectEdit]:
    for spot, field in _spots(order.target, site, request):
        value = _value(order.value, field, request)
        if value is not None and is_said(order.old and request.literal(order.old), spot.value):
            summary = f"Set the {field} of “{entry_name(spot.holder)}” to “{value}”."
            yield setting("text", summary, path=spot.path, value=value)


def _value(token: str, field: str, request: Request) -> str | None:
    if field == "price":
        quoted = request.quoted(token)
        return quoted or (token if _PRICE.fullmatch(token) else None)
    return request.value(token)


def _spots(phrase: str, site: Site, request: Request) -> Iterator[tuple[Spot, str]]:
    """Yield the props that "the price of Dark rye" or "the question “Do you deliver?”" can mean."""
    for item, word in splits(plain(phrase), phrase, _FIELD, clear=frozenset()):
        for spot in find_items(item, site, request) if item else ():
            yield from _fields(spot, word)
    if match := re.fullmatch(rf"(?P<word>{_FIELD}|plan|item|service|name) (?P<name>{QUOTED})", plain(phrase)):
        for spot in find_items(match["name"], site, request):
            word = "name" if match["word"] in ("plan", "item", "service") else match["word"]
            yield from _fields(spot, word)


def _fields(spot: Spot, word: str) -> Iterator[tuple[Spot, str]]:
    for field, names in VOCABULARY.entry_fields.items():
        if word in names and isinstance(spot.value.get(field), str):
            yield Spot(spot.place, (*spot.steps, field), spot.value[field]), field


def _hours(order: Put, request: Request, site: Site) -> Iterator[DirectEdit]:
    match = _HOURS_OF.fullmatch(plain(order.target))
    text = request.literal(order.value)
    if match is None or order.old is not None or not (request.quoted(order.value) or _TIMES.fullmatch(text)):
        return
    days = plain(match["a"] or match["b"] or "")
    for place in places(site):
        lines = [(index, line) for index, line in enumerate(place.props.get("hours") or ()) if isinstance(line, dict)]
        for index, line in lines:
            if days == typed(str(line.get("days", ""))).lower() or (days in ("", "opening") and len(lines) == 1):
                summary = f"Set the hours of {line['days']} to “{text}”."
                yield setting("contact", summary, path=Spot(place, ("hours", index, "time"), text).path, value=text)


_V: Final = rf"(?:{QUOTED}|[A-Z][^,:{QUOTED[0]}]*?)"
_MONEY: Final = rf"(?:{QUOTED}|{_PRICE.pattern})"


_TITLED: Final = (
    rf"(?P<title>{QUOTED})(?:,|:| with)?(?: the)?(?: text| description)?:? (?P<text>{QUOTED})",
    rf"(?P<title>{QUOTED})",
)
_ENTRIES: Final[Mapping[str, tuple[str, ...]]] = {
    "FAQ": (
        rf"(?:(?i:question|q): )?(?P<question>{QUOTED})[,.;]?(?: and| with)?(?: the)? ?(?:(?i:answer|a)(?: is)?:?)? ?"
        rf"(?P<answer>{QUOTED})",
    ),
    "PriceList": (
        rf"(?P<title>{_V})(?:,| for| at|:| -)? (?P<price>{_MONEY})",
        rf"(?P<title>{_V}) \((?P<price>{_MONEY})\)",
    ),
    "Features": _TITLED,
    "Steps": _TITLED,
    "Testimonials": (
        rf"(?P<quote>{QUOTED})(?: by| from|,) (?P<name>{_V})",
        rf"(?:by|from) (?P<name>{_V}): ?(?P<quote>{QUOTED})",
    ),
    "Team": (rf"(?P<name>{_V}),?(?: as)? (?P<role>{QUOTED})", rf"(?P<name>{_V}), (?P<role>{_V})"),
}
"""The wordings for a new entry of a component's list."""
_TO: Final = re.compile(r"(?P<what>.+?),? (?:to|in|into) (?P<where>.+)")
_SPEC: Final = re.compile(r"(?P<where>.+?): ?(?P<what>.+)")


def _add_entry(order: Add, request: Request, site: Site) -> Iterator[DirectEdit]:
    """Add an entry if the request says all that it needs and nothing else."""
    for what, where in _cuts(order):
        for place in _lists(where, order.rest, site, request):
            entry = _entry(what, place, request)
            prop = "people" if place.type == "Team" else "items"
            if entry is not None and isinstance(place.props.get(prop), list):
                path = f"{place.path}/props/{prop}/-"
                summary = f"Added “{entry_name(entry)}” to {place.title()}."
                yield setting("add", summary, path=path, value=entry, is_new=True)


def _cuts(order: Add) -> Iterator[tuple[str, str | None]]:
    """Yield what to add and where: "X to Y", "to Y: X", or a leading place."""
    rest = order.rest
    yield rest, order.where
    if order.where is None:
        for match in (_TO.fullmatch(rest), _SPEC.fullmatch(rest)):
            if match:
                what, where = match["what"], match["where"]
                yield what, re.sub(r"^.*? (?:to|in|into) ", "", where)
    if match := re.fullmatch(
        rf"(?P<noun>[^{QUOTED[0]}]+?) (?:to|on|in) (?P<where>[^{QUOTED[0]}:]+): ?(?P<what>.+)", rest
    ):
        yield f"{match['noun']} {match['what']}", match["where"]


def _lists(where: str | None, rest: str, site: Site, request: Request) -> Iterator[Place]:
    """Yield the sections whose list is meant, by name or as the only one with such entries."""
    pages = split_page(f"x on {where}", site)[1] if where else tuple(site.pages)
    is_page = bool(where) and bool(re.search(r" page$|^homepage$", where or ""))
    named = {place[:2] for place in find_sections(where, site, request)} if where and not is_page else None
    for place in places(site):
        nouns = VOCABULARY.entry_nouns.get(place.type, ())
        noun = re.match(rf"(?:an? |the |one )?(?:new |another |customer )?({words(nouns or ('-',))})\b", rest, re.I)
        is_meant = place[:2] in named if named is not None else noun is not None and _holds(place, noun[1].lower())
        if place.type in _ENTRIES and place.page in pages and is_meant:
            yield place


def _holds(place: Place, noun: str) -> bool:
    """Whether such entries belong in a section; some nouns fit a kind of section only if it is named so."""
    own = f"{place.key} {place.props.get('heading')}".lower()
    return f"{noun}s" not in VOCABULARY.ambiguous_sections or noun in own


def _entry(what: str, place: Place, request: Request) -> JsonObject | None:
    nouns = words(VOCABULARY.entry_nouns.get(place.type, ("-",)))
    lead = rf"^(?:an? |the |one )?(?:new |another |customer )?{nouns}(?: called| named| with)?(?:[:,.]| -)? "
    bare = re.sub(lead, "", what, flags=re.I)
    for pattern in _ENTRIES[place.type]:
        if match := re.fullmatch(pattern, bare):
            values = {name: request.literal(token) for name, token in match.groupdict().items()}
            return values if all(values.values()) else None
    return None


_LINE: Final = re.compile(rf"(?:the feature )?(?P<line>{QUOTED}) to (?:the )?features of (?P<plan>.+)")


def _add_line(order: Add, request: Request, site: Site) -> Iterator[DirectEdit]:
    match = _LINE.fullmatch(order.rest)
    for spot in find_items(match["plan"], site, request) if match and order.where is None else ():
        line: Any = request.quoted(match["line"]) if match else None
        if isinstance(spot.value.get("features"), list) and line:
            summary = f"Added “{line}” to “{entry_name(spot.value)}”."
            yield setting("add", summary, path=f"{spot.path}/features/-", value=line, is_new=True)


_BY_NAME: Final = by_name(VOCABULARY.facts) | {
    pattern.format(noun): "brand"
    for noun in VOCABULARY.businesses
    for pattern in ("{} name", "{}'s name", "name of {}", "name of the {}", "name of our {}", "name of my {}")
}
_HELD_BY: Final = ("Footer", "ContactForm")
_SPOKEN: Final = {"brand": "name of the business"}
_TARGET: Final = re.compile(
    rf"(?:(?P<place>footer|contact form|contact section)(?:'s)? )?(?:new )?(?P<fact>{words(_BY_NAME)})"
    r"(?: (?:in|on|of) (?:the )?(?P<section>footer|contact form|contact section))?(?: (?P<old>[^ ].*))?"
)


def _put_fact(order: Put, request: Request, site: Site) -> Iterator[DirectEdit]:
    for name, section, old in _facts(order, site, request):
        value = fact_value(order.value, name, request)
        if value is None:
            continue
        owners = [place for place in places(site) if isinstance(place.props.get(name), str)]
        if section:
            wanted = {place[:2] for place in find_sections(section, site, request)}
            chosen = [place for place in owners if place[:2] in wanted]
            if len(chosen) == 1 == len(wanted) and is_said(old, chosen[0].props[name]):
                summary = f"Set the {_SPOKEN.get(name, name)} of {chosen[0].title()} to “{value}”."
                yield setting("contact", summary, path=f"{chosen[0].path}/props/{name}", value=value)
            continue
        values = {str(place.props[name]) for place in owners}
        if len(values) == 1 and is_said(old, *values):
            current = values.pop()
            operations = tuple(_everywhere(current, value, name, site))
            summary = f"Set the {_SPOKEN.get(name, name)} to “{value}” on the whole site."
            sought = (current, phone_url(current)) if name == "phone" else (current,)
            yield DirectEdit("contact", summary, operations, sought)


def _facts(order: Put, site: Site, request: Request) -> Iterator[tuple[str, str | None, str | None]]:
    """Yield the facts that a phrase names, by kind or by value, with the section and the old value."""
    literal = request.literal(order.target)
    for name in FACT_SHAPES:
        if any(place.props.get(name) == literal for place in places(site)):
            yield name, None, literal
    if named := named_fact(order, request):
        yield named


def named_fact(order: Put, request: Request) -> tuple[str, str | None, str | None] | None:
    """Return the kind of fact that a phrase names, its section, and its stated value."""
    noun = re.sub(rf"^(?:{words(VOCABULARY.businesses)})'s ", "", plain(order.target))
    match = _TARGET.fullmatch(noun)
    if match is None:
        return None
    old = match["old"] and request.literal(_same(match["old"], order.target))
    stated = request.literal(order.old) if order.old else None
    return _BY_NAME[match["fact"]], match["section"] or match["place"], old or stated


def _same(part: str, original: str) -> str:
    return original[-len(part) :] if original.lower().endswith(part) else part


def fact_value(token: str, name: str, request: Request) -> str | None:
    """Return the new value of a fact; None if it does not have the fact's shape."""
    if name in FACT_SHAPES:
        text = request.literal(token)
        return text if FACT_SHAPES[name].fullmatch(text) else None
    return request.value(token)


def _everywhere(old: str, new: str, name: str, site: Site) -> Iterator[dict[str, Any]]:
    """Yield the change of every text and link with a fact."""
    pattern = re.compile(rf"(?<!\w){re.escape(old)}(?!\w)")

    def lead(address: str) -> str:
        if name == "email" and address.lower().startswith(f"mailto:{old.lower()}"):
            return f"mailto:{new}" + address[len("mailto:") + len(old) :]
        return phone_url(new) if name == "phone" and address == phone_url(old) else address

    for spot in find_strings(site):
        said = LINKED.split(spot.value) if is_copy(spot) else ["", spot.value]  # words and addresses in turn
        said[::2] = [pattern.sub(lambda _: new, part) for part in said[::2]]
        said[1::2] = map(lead, said[1::2])
        value = "".join(said)
        if value != spot.value:
            yield {"op": "replace", "path": spot.path, "value": value}


_ADDED: Final = re.compile(
    rf"(?:the |our |an? )?(?P<fact>{words(_BY_NAME)}) (?P<value>.+) "
    r"(?:to|in) (?:the )?(?P<section>footer|contact form|contact section)",
    re.I,
)


def _add_fact(order: Add, request: Request, site: Site) -> Iterator[DirectEdit]:
    match = _ADDED.fullmatch(order.rest)
    if match is None or order.where is not None:
        return
    name = _BY_NAME[match["fact"].lower()]
    value = fact_value(match["value"], name, request)
    for place in find_sections(match["section"], site, request):
        if value is not None and place.type in _HELD_BY and name != "brand" and not place.props.get(name):
            summary = f"Added the {name} “{value}” to {place.title()}."
            yield setting("contact", summary, path=f"{place.path}/props/{name}", value=value, is_new=True)


RULES: Final[Rules] = {Put: (_put_entry, _hours, _put_fact), Add: (_add_entry, _add_line, _add_fact)}

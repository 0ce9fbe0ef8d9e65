"""Rules for facts: name, phone, email and address of the business, each one fact however often a site says it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from sandbox.spec.contact import phone_url
from sandbox.spec.model import Site
from sandbox.spec.rules.edits import DirectEdit, Rule, setting
from sandbox.spec.rules.forms import Add, Put
from sandbox.spec.rules.targets import find_sections, find_strings, is_copy, places
from sandbox.spec.rules.vocabulary import BUSINESS, FACT_SHAPES, FACTS, by_name, words
from sandbox.spec.rules.wording import Request, plain

_BY_NAME: Final = by_name(FACTS) | {
    name: "brand" for noun in BUSINESS for name in (
        f"{noun} name", f"{noun}'s name", f"name of the {noun}", f"name of {noun}",
                                                  f"name of our {noun}", f"name of my {noun}")
}  # fmt: skip
_HELD_BY: Final = ("Footer", "ContactForm")
_SPOKEN: Final = {"brand": "name of the business"}
_TARGET: Final = re.compile(
    rf"(?:(?P<place>footer|contact form|contact section)(?:'s)? )?(?:new )?(?P<fact>{words(_BY_NAME)})"
    r"(?: (?:in|on|of) (?:the )?(?P<section>footer|contact form|contact section))?(?: (?P<old>[^ ].*))?"
)


def _put(order: Put, request: Request, site: Site) -> Iterator[DirectEdit]:
    for name, section, old in _facts(order, site, request):
        value = fact_value(order.value, name, request)
        if value is None:
            continue
        owners = [place for place in places(site) if isinstance(place.props.get(name), str)]
        if section:
            wanted = {place[:2] for place in find_sections(section, site, request)}
            chosen = [place for place in owners if place[:2] in wanted]
            if len(chosen) == 1 == len(wanted) and old in (None, chosen[0].props[name]):
                summary = f"Set the {_SPOKEN.get(name, name)} of {chosen[0].title()} to “{value}”."
                yield setting("contact", summary, path=f"{chosen[0].path}/props/{name}", value=value)
            continue
        known = {str(place.props[name]) for place in owners}
        if len(known) == 1 and old in (None, *known):
            known_value = known.pop()
            operations = tuple(_everywhere(known_value, value, name, site))
            summary = f"Set the {_SPOKEN.get(name, name)} to “{value}” on the whole site."
            sought = (known_value, phone_url(known_value)) if name == "phone" else (known_value,)
            yield DirectEdit("contact", summary, operations, sought)


def _facts(order: Put, site: Site, request: Request) -> Iterator[tuple[str, str | None, str | None]]:
    """Yield the facts that a phrase names, by kind or by the value itself, with the section and the old value."""
    literal = request.literal(order.target)
    for name in FACT_SHAPES:
        if any(place.props.get(name) == literal for place in places(site)):
            yield name, None, literal
    if named := named_fact(order, request):
        yield named


def named_fact(order: Put, request: Request) -> tuple[str, str | None, str | None] | None:
    """Return the kind of fact that a phrase names, the section it names with it, and the value it says it has."""
    noun = re.sub(rf"^(?:{words(BUSINESS)})'s ", "", plain(order.target))
    match = _TARGET.fullmatch(noun)
    if match is None:
        return None
    old = match["old"] and request.literal(_same(match["old"], order.target))
    stated = request.literal(order.old) if order.old else None
    return _BY_NAME[match["fact"]], match["section"] or match["place"], old or stated


def _same(part: str, original: str) -> str:
    return original[-len(part) :] if original.lower().endswith(part) else part


def fact_value(token: str, name: str, request: Request) -> str | None:
    """Return the new value of a fact, or None when it does not have the fact's shape."""
    if name in FACT_SHAPES:
        text = request.literal(token)
        return text if FACT_SHAPES[name].fullmatch(text) else None
    return request.value(token)


def _everywhere(old: str, new: str, name: str, site: Site) -> Iterator[dict[str, Any]]:
    """Yield the change of every text and link that holds a fact."""
    pattern = re.compile(rf"(?<!\w){re.escape(old)}(?!\w)")
    for spot in find_strings(site):
        value = spot.value
        if is_copy(spot):
            value = pattern.sub(lambda _: new, value)
        elif name == "email" and value.lower().startswith(f"mailto:{old.lower()}"):
            value = f"mailto:{new}" + value[len("mailto:") + len(old) :]
        elif name == "phone" and value == phone_url(old):
            value = phone_url(new)
        if value != spot.value:
            yield {"op": "replace", "path": spot.path, "value": value}


_ADDED: Final = re.compile(
    rf"(?:the |our |an? )?(?P<fact>{words(_BY_NAME)}) (?P<value>.+) "
    r"(?:to|in) (?:the )?(?P<section>footer|contact form|contact section)",
    re.I,
)


def _add(order: Add, request: Request, site: Site) -> Iterator[DirectEdit]:
    match = _ADDED.fullmatch(order.rest)
    if match is None or order.where is not None:
        return
    name = _BY_NAME[match["fact"].lower()]
    value = fact_value(match["value"], name, request)
    for place in find_sections(match["section"], site, request):
        if value is not None and place.type in _HELD_BY and name != "brand" and not place.props.get(name):
            summary = f"Added the {name} “{value}” to {place.title()}."
            yield setting("contact", summary, path=f"{place.path}/props/{name}", value=value, is_new=True)


RULES: Final = (Rule(Put, _put), Rule(Add, _add))

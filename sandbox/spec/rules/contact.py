"""Rules for facts: name, phone, email and address of the business, each one fact however often a site says it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from sandbox.spec.contact import phone_url
from sandbox.spec.model import Site
from sandbox.spec.rules.targets import Place, find_sections, find_strings, is_copy, places
from sandbox.spec.rules.wording import DirectEdit, Request, Rule, rule

_NAMES: Final = {
    "email": ("email", "email address", "e-mail", "e-mail address", "contact email", "mail address"),
    "phone": ("phone", "phone number", "telephone", "telephone number", "contact number", "tel"),
    "address": ("address", "street address", "postal address"),
    "brand": (
        *("business name", "company name", "shop name", "site name", "brand name", "brand"),
        *("name of the business", "name of the company", "name of the shop"),
    ),
}
_FACTS: Final = {word: name for name, words in _NAMES.items() for word in words}
_SHAPES: Final = {
    "email": re.compile(r"[\w.+%-]+@[\w-]+(?:\.[\w-]+)+"),
    "phone": re.compile(r"\+?[0-9(][0-9 ()./-]{4,28}[0-9]"),
}


def _set_fact(match: re.Match[str], request: Request, site: Site) -> Iterator[DirectEdit]:
    name = _FACTS[re.sub(r"^(?:contact|our) (?=phone|address)", "", match["fact"].lower())]
    value = _value(match["value"], name, request)
    if value is None:
        return
    owners = [place for place in places(site) if isinstance(place.props.get(name), str)]
    if section := match.groupdict().get("section"):
        wanted = {place[:2] for place in find_sections(section, site, request)}
        chosen = [place for place in owners if place[:2] in wanted]
        if len(chosen) == 1 and len(wanted) == 1:
            operation = {"op": "replace", "path": f"{chosen[0].path}/props/{name}", "value": value}
            yield DirectEdit("contact", f"Set the {name} of {chosen[0].title()} to “{value}”.", (operation,))
        return
    known = {str(place.props[name]) for place in owners}
    if len(known) == 1:
        operations = tuple(_everywhere(known.pop(), value, name, site))
        yield DirectEdit("contact", f"Set the {_spoken(name)} to “{value}” on the whole site.", operations)


def _add_fact(match: re.Match[str], request: Request, site: Site) -> Iterator[DirectEdit]:
    name = _FACTS[match["fact"].lower()]
    value = _value(match["value"], name, request)
    for place in find_sections(match["section"], site, request):
        if (
            value is not None
            and place.type in ("Footer", "ContactForm")
            and name != "brand"
            and not place.props.get(name)
        ):
            operation = {"op": "add", "path": f"{place.path}/props/{name}", "value": value}
            yield DirectEdit("contact", f"Added the {name} “{value}” to {place.title()}.", (operation,))


def _value(token: str, name: str, request: Request) -> str | None:
    quoted = request.quoted(token)
    if name in _SHAPES:
        text = quoted or token
        return text if _SHAPES[name].fullmatch(text) else None
    return quoted or request.value(token)


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


def _spoken(name: str) -> str:
    return {"brand": "name of the business"}.get(name, name)


_FACT: Final = (
    "(?P<fact>" + "|".join(re.escape(word) for word in sorted(_FACTS, key=lambda word: (-len(word), word))) + ")"
)
_IN: Final = r"(?: (?:in|on|of) (?:the )?(?P<section>footer|contact form|contact section))?"

RULES: Final[tuple[Rule, ...]] = (
    rule(rf"<CHANGE> <THE>{_FACT}{_IN} <TO> <VALUE>", _set_fact),
    rule(rf"<CHANGE> <THE><SECTION> {_FACT} <TO> <VALUE>", _set_fact),
    rule(rf"(?:the |our |my )(?:new )?{_FACT} (?:is now|is|has changed to|should be|changed to) <VALUE>", _set_fact),
    rule(rf"(?:the )?{_FACT}(?::| =) <VALUE>", _set_fact),
    rule(rf"use (?P<value>\S+|<Q>) as <THE>{_FACT}", _set_fact),
    rule(
        r"rename <THE>(?P<fact>business|company|shop|site|brand)(?: from <Q>)? to <VALUE>",
        lambda match, request, site: _rename(match, request, site),
    ),
    rule(rf"add (?:the |our |an? )?{_FACT} <VALUE> (?:to|in) (?:the )?<SECTION>", _add_fact),
)


def _rename(match: re.Match[str], request: Request, site: Site) -> Iterator[DirectEdit]:
    value = _value(match["value"], "brand", request)
    known = {str(place.props["brand"]) for place in _branded(site)}
    if value is not None and len(known) == 1:
        operations = tuple(_everywhere(known.pop(), value, "brand", site))
        yield DirectEdit("contact", f"Set the name of the business to “{value}” on the whole site.", operations)


def _branded(site: Site) -> list[Place]:
    return [place for place in places(site) if isinstance(place.props.get("brand"), str)]

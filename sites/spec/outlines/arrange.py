"""Lay out the sections of a new site by what they hold: which composition, beside what, on which ground.

A page of equal sections is read as made by a machine. So few entries never get a grid of many, short ones no empty
cards, and no two sections that meet are set alike.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from sites.spec.catalog import Business, HeroLayout, Tone
from sites.spec.model import JsonObject
from sites.spec.outlines.looks import Look
from sites.spec.trades import Trade

Section = tuple[str, JsonObject]
"""The name of a component and its props."""
_PLAIN: Final = frozenset({"Hero", "CallToAction", "Logos", "Gallery", "RichText"})
_STRONG: Final = ("Stats", "Testimonials", "RichText", "Steps", "PriceList", "Features", "Schedule")
"""Kinds of sections that may have the one strong ground of a page, those first that it suits best."""
_SAID: Final = 3
"""How many of these, the first ones, are said and not listed."""
_SHORT: Final = 72
"""Characters of a text that would leave a card half empty."""
_UNEVEN: Final = 36
"""Characters that make a line in a panel."""
_LONG: Final = 90
"""Characters of a text that wants a wide line."""
_LONG_WORD: Final = 11
"""Letters of a word that the largest heading has room for; those of a number that is kept whole count as one."""
_OF_CAPITALS: Final = 2
"""How many fewer capitals there is room for."""
_FEW_QUESTIONS: Final = 6
_FEW_ANSWERED: Final = 700
"""So few questions, with answers of so many characters, show at once: what a business does not do must not hide."""
_OF_STRIP: Final = 3
"""So many facts fill a strip."""
_IN_STRIP: Final = 60
"""Characters of a fact for which a strip has room."""
_PAGE: Final = 3
"""Every third section of a printed page may have another paper."""
_FEW_WORDS: Final = 80
"""Characters of an opening's text that would leave a hole beside its picture."""
_TITLE: Final = 34
"""Characters of a heading that can stand as a title across the page."""
_FIGURES: Final = 3
"""How many prices fit side by side in large type."""
_FIGURE: Final = re.compile(r"(?=\D*\d).{,14}")
"""A price that can stand large: `by appointment` is none."""
_STATEMENT: Final = 320
"""Characters of a text that can stand large."""
_OF_VISIT: Final = frozenset({"phone", "address", "hours", "timezone", "links"})
"""What of a form stands in the section on the visit instead."""


def opening_of(theme: JsonObject, name: str, hero: JsonObject, *, trade: Trade | None, drawn: bool) -> HeroLayout:
    """Return how a new site opens: as its trade does, else by its style and by what it says.

    Few words, which would leave a hole beside a picture, and those of a poster stand above a wide one.
    """
    if trade and trade.opening != "split":
        return trade.opening
    if drawn and (theme["style"] == "poster" or len(hero.get("text") or "") <= _FEW_WORDS):
        return "wide"
    has_facts = any("detail" not in item for item in hero.get("items", ()))
    if theme["style"] == "editorial" and has_facts and len(hero.get("heading") or name) <= _TITLE:
        return "masthead"
    return "mirrored" if sum(name.encode()) % 3 == 0 else "split"


def arranged(body: list[Section], business: Business, look: Look) -> list[Section]:
    """Return the sections of a page, laid out."""
    ordered = _with_visit(body, business)
    found: list[Section] = []
    layout: str | None = None
    set_as: str | None = None
    has_plate = _is_plate(business.opening, look) and look.style != "poster" and _place_of("Hero", body) is not None
    for (kind, props), tone in zip(ordered, _tones(ordered, look, has_plate=has_plate), strict=True):
        if kind == "Features":
            layout = _features_layout(props["items"], look, before=layout)
            props = props | {"layout": layout}
        if kind == "FAQ" and _shows_at_once(props["items"]):
            props = props | {"open": "all"}
        if kind == "PriceList" and (set_as := _prices_layout(props.get("items", []), look, before=set_as)):
            props = props | {"layout": set_as}
        if kind == "CallToAction" and (len(props.get("text", "")) <= _SHORT or props.get("actions", ())[1:]):
            props = props | {"layout": "centered"}
        if kind == "Hero":
            below = ordered[1][0] if ordered[1:] else None
            props, tone = _opened(props, business.opening, look, below=below)
        found.append((kind, props if tone == "plain" else props | {"tone": tone}))
    return found


def _opened(props: JsonObject, opening: HeroLayout, look: Look, *, below: str | None) -> tuple[JsonObject, Tone]:
    """Return the opening of a page and its ground; where its facts do not stand beside the picture, they fill a strip.

    Its words stand on the site's own colour, and those of a printed page on paper.
    """
    room = _LONG_WORD - _OF_CAPITALS if look.style == "poster" else _LONG_WORD
    if max(map(len, props.get("heading", "").split(" "))) > room:
        props = props | {"long": True}
    notes = props.get("notes", ())
    if len(notes) >= _OF_STRIP and max(map(len, notes)) <= _IN_STRIP and opening != "masthead":
        meets = below == "CallToAction" and look.call == look.strip
        props = props | {"strip": "deep" if meets else look.strip}
    return props, look.band if _is_plate(opening, look) else "plain"


def _is_plate(opening: HeroLayout, look: Look) -> bool:
    """Whether the opening's words are on a colour of the site."""
    is_plate = look.style != "editorial" and opening in ("split", "mirrored", "wide")
    return look.band != "deep" and (is_plate or (look.style == "poster" and opening == "statement"))


def _features_layout(items: list[dict[str, Any]], look: Look, *, before: str | None) -> str:
    """Return how offers are set: lines where there is little to say, rows where there is much, else cards.

    Panels of uneven texts would be half empty.
    """
    lengths = [len(item.get("text", "")) for item in items]
    if look.style == "tiles" and max(lengths) - min(lengths) > _UNEVEN:
        wanted = ["plain", "rows"]
    elif len(items) < 5 and max(lengths) > _LONG:
        wanted = ["rows", "cards"]
    elif all("icon" in item for item in items):
        wanted = ["cards", "plain"] if min(lengths) > _SHORT // 2 else ["plain", "cards"]
    elif max(lengths) <= _SHORT and (len(items) > 3 or not max(lengths)):
        wanted = ["list", "plain"]
    else:
        wanted = ["cards", "list"]
    return wanted[1] if wanted[0] == before else wanted[0]


def _prices_layout(items: list[dict[str, Any]], look: Look, *, before: str | None) -> str | None:
    """Return how prices are set: a few short ones large, those of which not all have a text as lines; else None."""
    is_few = 1 < len(items) <= _FIGURES and all(_FIGURE.fullmatch(item["price"]) for item in items)
    told = sum("text" in item for item in items)
    if look.style == "tiles" and len(items) > _FIGURES and told < len(items):
        return "lines"
    has_room = look.style in ("editorial", "display") or (look.style == "tiles" and not told)
    return "figures" if is_few and has_room and before is None else None


def _with_visit(body: list[Section], business: Business) -> list[Section]:
    """Set address, hours and ways to call into one section, just above the form, which then has the form alone.

    One that nobody can be sent yet keeps the number, too.
    """
    visit, form = _place_of("MapLink", body), _place_of("ContactForm", body)
    if visit is None:
        return body
    known = business.contact_props() | business.further("links")
    contact = {name: value for name, value in known.items() if name != "address"}
    found = [*body]
    if form is not None:
        moved = _OF_VISIT if business.email else _OF_VISIT - {"phone"}
        slim = {name: value for name, value in body[form][1].items() if name not in moved}
        found[form] = "ContactForm", slim
        contact |= {"links": links} if (links := body[form][1].get("links")) else {}
    found[visit] = "MapLink", body[visit][1] | contact
    return [found[at] for at in in_page_order([kind for kind, _ in body])]


def in_page_order(kinds: Sequence[str]) -> list[int]:
    """Return the places of an outline's sections as they follow each other on the page: the visit above the form."""
    places = list(range(len(kinds)))
    if "MapLink" in kinds and "ContactForm" in kinds:
        visit = kinds.index("MapLink")
        places.remove(visit)
        places.insert(places.index(kinds.index("ContactForm")), visit)
    return places


def _place_of(kind: str, body: list[Section]) -> int | None:
    return next((at for at, (each, _) in enumerate(body) if each == kind), None)


def repeats(heading: str, page: str) -> bool:
    """Whether a heading says what its page is called and no more: `Our team` below the opening of `Team`."""
    is_named = re.search(rf"(?<!\w){re.escape(page)}(?!\w)", heading, re.IGNORECASE)
    return is_named is not None and len(heading.split()) <= len(page.split()) + 1


def _shows_at_once(items: list[dict[str, Any]]) -> bool:
    return len(items) <= _FEW_QUESTIONS and sum(len(item.get("answer", "")) for item in items) <= _FEW_ANSWERED


def _tones(body: list[Section], look: Look, *, has_plate: bool) -> list[Tone]:
    """Set the grounds of sections: one is strong, and of the others no two tinted ones meet.

    A colour on which the opening stands is spent. A printed page is paper, but for what is said large and a sheet of
    another one now and then.
    """
    is_paper = look.style == "editorial"
    strong = _strong_one(body, _STRONG[:_SAID] if is_paper else _STRONG)
    tones: list[Tone] = []
    for place, (kind, _) in enumerate(body):
        before = tones[-1] if tones else None
        if place == strong:
            tones.append(look.call if kind == "CallToAction" else "deep" if has_plate else look.band)
        elif is_paper:
            is_sheet = place % _PAGE == 0 and place > 0 and before == "plain" and place + 1 != strong
            tones.append("tinted" if is_sheet else "plain")
        else:
            tones.append("tinted" if place > 1 and before == "plain" and kind not in _PLAIN else "plain")
    return tones


def _strong_one(body: list[Section], suited: Sequence[str]) -> int | None:
    """Return the place of the strong section: the opening of a further page, a call, else what suits it best."""
    for opening in ("PageIntro", "CallToAction"):
        if (place := _place_of(opening, body)) is not None:
            return place
    fit = [
        (-1 if kind == "Schedule" and len(props["items"]) == 1 else suited.index(kind), place)
        for place, (kind, props) in enumerate(body)
        if place > 1 and kind in suited and len(props.get("body", "")) <= _STATEMENT and props.get("layout") != "cards"
    ]
    return min(fit)[1] if fit else None

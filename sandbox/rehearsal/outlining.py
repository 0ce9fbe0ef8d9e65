"""The outline of a new site out of any description: its name, what it says in each section, how it is reached."""

from __future__ import annotations

import re
from typing import Any

from sandbox.rehearsal.sections import component_named, is_valid, items_of
from sandbox.rehearsal.words import key_words, plain, quoted, sentence, title, words
from sandbox.spec.catalog import Business, Component, OutlineSection, components
from sandbox.spec.theme import COLOUR_NAMES, PRESETS

_NAMED = re.compile(r"\b(?:called|named|name is)\s+((?:[A-Z0-9][\w'’&-]*\s*){1,5})")
_SUBJECT = re.compile(r"\bfor\s+(?:(?:a|an|my|our|the|small|new|local)\s+)*(.+?)(?:[.,;:]|\b(?:with|that|in)\b|$)")
_EMAIL = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+")
_PHONE = re.compile(r"\+?\d[\d ()/-]{6,}\d")
_MAX_SECTIONS = 6
_MAX_ITEMS = 4
_USUAL = ("Features", "RichText")
"""What a site gets when its description names hardly any section."""


def outline_of(ask: str) -> dict[str, Any]:
    """Return the outline of a site for a description: an opening, something in the middle, a way to get in touch."""
    clean = plain(ask) or "A new site"
    email, phone = _EMAIL.search(clean), _PHONE.search(clean)
    contact = {"email": email[0][:120] if email else None, "phone": phone[0][:40] if phone else None}
    business = Business(name=_name(clean))
    named = [kind for kind in dict.fromkeys(["Hero", *_kinds_named(clean)]) if kind != "ContactForm"]
    kinds = named[: _MAX_SECTIONS - 1]
    kinds += [kind for kind in _USUAL if kind not in kinds][: max(0, 3 - len(kinds))]
    sections = [_section(components()[kind], clean, business) for kind in (*kinds, "ContactForm")]
    return {
        "name": business.name,
        "tagline": sentence(" ".join(key_words(clean, 5)))[:60],
        "description": sentence(clean)[:300],
        "theme": _theme(clean),
        "contact": {key: value for key, value in contact.items() if value},
        "sections": [section for section in sections if section is not None],
    }


def _theme(ask: str) -> dict[str, str]:
    named = [word.lower() for word in words(ask)]
    preset = next((word for word in named if word in PRESETS), "warm")
    colour = next((word for word in named if word in COLOUR_NAMES), None)
    return {"preset": preset, **({"primary": colour} if colour else {})}


def _kinds_named(text: str) -> list[str]:
    """Return the outlined components that a description names, in its order."""
    found: dict[str, int] = {}
    for name, component in components().items():
        places = [
            match.start()
            for word in component.words
            if component.outline and (match := re.search(rf"\b{re.escape(word)}s?\b", text, re.I))
        ]
        if places:
            found[name] = min(places)
    return sorted(found, key=lambda name: found[name])


def _section(component: Component, ask: str, business: Business) -> dict[str, Any] | None:
    """Return a section's outline, or None when the description does not hold what this kind needs."""
    headings = {"Hero": business.name, "ContactForm": "Get in touch", "RichText": f"About {business.name}"}
    section = OutlineSection(
        kind=component.name,
        heading=headings.get(component.name, component.words[0].capitalize())[:80],
        text=_text(component, ask, business)[:400],
        items=_items(ask) if component.name not in headings else (),
        tone="plain",
    )
    assert component.outline is not None
    if not is_valid(component, component.outline(section, business)):
        return None
    fields = {"kind": section.kind, "heading": section.heading, "text": section.text}
    return {**fields, "items": [dict(item) for item in section.items]}


def _items(ask: str) -> tuple[dict[str, str], ...]:
    """Return what the description lists, without the names of sections if anything else is left."""
    items = items_of(ask)
    things = [item for item in items if component_named(item["title"]) is None]
    return tuple((things or items)[:_MAX_ITEMS])


def _text(component: Component, ask: str, business: Business) -> str:
    if component.name == "Hero":
        return sentence(ask)
    if component.name == "ContactForm":
        return f"Write to {business.name}: you get an answer."
    about = ", ".join(key_words(ask, 4))
    return f"{business.name} stands for {about or 'what it does'}. A real model would write this in the owner's voice."


def _name(ask: str) -> str:
    if found := _NAMED.search(ask):
        return found[1].strip(" .,")[:60]
    if given := quoted(ask):
        return given[0][:60]
    subject = _SUBJECT.search(ask)
    return title(subject[1] if subject else ask, 3)[:60] if key_words(ask) else "A new site"

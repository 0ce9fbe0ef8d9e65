"""New sections out of the words of a request, for every component that the catalog can outline."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from sandbox.rehearsal.words import key_words, plain, quoted, sentence, title
from sandbox.spec.catalog import Business, Component, OutlineSection, components

_TOPIC = re.compile(
    r"\b(?:about|on|regarding|explaining|describing|showing|listing|covering|for)\b\s+(.+)", re.I | re.S
)
_LISTS = tuple(
    re.compile(rf"{introduction}\s+([^.:]+,[^.:]+|[^.:,]+\sand\s[^.:,]+)", re.I)
    for introduction in (r"\b(?:such as|including|like|namely|listing)\b", ":", r"\bwith\b", r"\b(?:of|for)\b")
)
"""What introduces a list, the surest first."""
_ARTICLE = re.compile(r"^(?:and|a|an|the|our|my)\s+", re.I)
_SEPARATOR = re.compile(r",\s*(?:and\s+)?|\s+and\s+|;\s*", re.I)
_NUMBER = re.compile(r"\d[\d.,]*")
_PLACE = re.compile(r"\b(?:below|under|after|beneath|above|before)\b.*", re.I | re.S)
_MAX_ITEMS = 6


def component_named(text: str) -> tuple[Component, int] | None:
    """Return the component that a text names first, by its longest name, and where; None when it names none."""
    found = [
        (match.start(), -len(word), name)
        for name, component in components().items()
        for word in component.words
        if word != "section" and (match := re.search(rf"\b{re.escape(word)}s?\b", text, re.I))
    ]
    if not found:
        return None
    start, _, name = min(found)
    return components()[name], start


def topic_of(ask: str) -> str:
    """Return what a request is about: what follows `about` and its like, without the place where it should stand."""
    clean = _PLACE.sub("", plain(ask)).strip() or plain(ask)
    found = _TOPIC.search(clean)
    return found[1].strip() if found else clean


def items_of(ask: str) -> list[dict[str, str]]:
    """Return the things that a request lists, or else its meaningful words, as outline items."""
    clean = plain(ask)
    listed = next((found for pattern in _LISTS if (found := pattern.search(clean))), None)
    parts = _SEPARATOR.split(listed[1]) if listed else []
    names = [_ARTICLE.sub("", part.strip(" .!?\"'“”")) for part in parts]
    names = [name for name in names if name] or quoted(ask)[1:] or key_words(topic_of(ask), 3) or ["Rehearsal"]
    return [_item(name) for name in names[:_MAX_ITEMS]]


def _item(name: str) -> dict[str, str]:
    number = _NUMBER.search(name)
    named = name[:1].upper() + name[1:]
    return {
        "title": named[:60],
        "text": f"What there is to say about {name[:200]} stands here once a real model writes it.",
        "detail": number[0][:20] if number else "On request",
    }


def section_props(component: Component, ask: str, business: Business) -> Mapping[str, Any]:
    """Return valid props of a new section: from the words of the request, else from the catalog's own example."""
    topic = topic_of(ask)
    outlined = OutlineSection(
        kind=component.name,
        heading=title(topic)[:140],
        text=sentence(topic)[:600],
        items=tuple(items_of(ask)),
        tone="plain",
    )
    tries = (component.outline(outlined, business) if component.outline else None, _headed(component, outlined))
    for props in tries:
        if props is not None and is_valid(component, props):
            return props
    return component.example


def _headed(component: Component, outlined: OutlineSection) -> dict[str, Any]:
    return {**component.example, "heading": outlined.heading}


def is_valid(component: Component, props: Mapping[str, Any]) -> bool:
    """Tell whether a component takes these props."""
    try:
        component.props.model_validate(dict(props))
    except ValidationError:
        return False
    return True

"""Edits of a site document out of any request: the first plain reading that fits becomes JSON Patch operations.

It is no understanding, but it is always an edit: valid against the catalog, small, and about what was asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from sandbox.rehearsal.document import Document, Element, escape
from sandbox.rehearsal.sections import component_named, section_props
from sandbox.rehearsal.words import plain, quoted, sentence, title, words
from sandbox.spec.catalog import Business, components
from sandbox.spec.theme import COLOUR_NAMES

Operation = dict[str, Any]
_Reading = Callable[[Document, str], list[Operation] | None]

_ADD = re.compile(
    r"\b(?:add|insert|include|append|introduce|create|build)\b|\b(?:make|write|need|want|put)\s+(?:me\s+)?(?:a|an|another|new)\b",
    re.I,
)
_INSIDE = re.compile(r"\b(?:to|in|into|inside|within)\s+(?:the|our|my)\s+.{1,60}", re.I | re.S)
_REMOVE = re.compile(r"\b(?:remove|delete|drop|get rid of|take out|take away)\b", re.I)
_SECTION = re.compile(r"\b(?:section|block|part|paragraph)\b", re.I)
_ANCHOR = re.compile(r"\b(below|under|after|beneath|above|before)\b\s+(.{1,80})", re.I | re.S)
_REPLACE = re.compile(r"[\"“„](.+?)[\"”“]\s+(?:to|with|by|into)\s+[\"“„](.+?)[\"”“]", re.S)
_LOOK = re.compile(r"\b(?:colou?rs?|theme|background|accent|look|palette|scheme)\b", re.I)
_SHORTER = re.compile(r"\b(?:short|shorter|shorten|brief|concise|trim|cut)\b", re.I)
_SAY = re.compile(
    r"^(?:please\s+)?(?:mention|say|state|note|announce|explain|tell (?:visitors|people|customers))\s+(?:that\s+)?",
    re.I,
)
_TONES = (
    (re.compile(r"friendl|warm|welcom|invit|cosy|cozy|personal", re.I), "You are always welcome here."),
    (re.compile(r"profession|formal|serious|trust|credib", re.I), "We keep to what we promise."),
    (re.compile(r"urgen|persuas|convinc|sales|punch|excit|energ|bold", re.I), "Do not wait: get in touch today."),
)
_LIMITS = {"heading": 140, "text": 700, "body": 6000, "note": 140, "tagline": 60}
_COPY_PROPS = ("text", "body", "heading", "note", "tagline")


def edit_operations(document: Document, ask: str) -> list[Operation]:
    """Return operations that do what a request seems to ask for; always at least one when an element was sent.

    Args:
        document: the part of the site that was sent.
        ask: the request, without the document.
    """
    readings: Sequence[_Reading] = (_replace_words, _remove, _change_look, _add_section, _reword, _describe)
    clean = plain(ask)
    for reading in readings:
        if operations := reading(document, clean):
            return operations
    return []


def _replace_words(document: Document, ask: str) -> list[Operation] | None:
    found = _REPLACE.search(ask)
    if found is None:
        return None
    for element in document.elements():
        for pointer, text in _texts(element.props, f"{element.pointer}/props"):
            if found[1] in text:
                return [{"op": "replace", "path": pointer, "value": text.replace(found[1], found[2])}]
    return None


def _remove(document: Document, ask: str) -> list[Operation] | None:
    if not _REMOVE.search(ask) or (named := component_named(ask)) is None:
        return None
    target = next((element for element in document.elements() if element.type == named[0].name), None)
    if target is None or target.parent is None:
        return None
    parent = f"/pages/{escape(target.page)}/elements/{escape(target.parent)}"
    return [
        {"op": "remove", "path": f"{parent}/children/{target.index}"},
        {"op": "remove", "path": target.pointer},
    ]


def _change_look(document: Document, ask: str) -> list[Operation] | None:
    colour = next((word.lower() for word in words(ask) if word.lower() in COLOUR_NAMES), None)
    is_dark = re.search(r"\bdark (?:mode|theme)\b", ask, re.I)
    page = next((element for element in document.elements() if element.parent is None), None)
    if page is None or not (is_dark or (colour and _LOOK.search(ask))):
        return None
    field = next((name for name in ("background", "accent") if re.search(name, ask, re.I)), "primary")
    change = {"mode": "dark"} if is_dark else {field: colour}
    theme = page.props.get("theme")
    look = {**theme, **change} if isinstance(theme, dict) else change
    return [{"op": "add", "path": f"{page.pointer}/props/theme", "value": look}]


def _add_section(document: Document, ask: str) -> list[Operation] | None:
    added = _INSIDE.sub("", _ANCHOR.sub("", ask))
    named = component_named(added)
    if not _ADD.search(added) or not (named or _SECTION.search(added)):
        return None
    component = named[0] if named and named[0].outline else components()["RichText"]
    root, index = _place(document, ask)
    if root is None:
        return None
    key = document.free_key(root.page, f"{component.name[:1].lower()}{component.name[1:]}")
    element = {
        "type": component.name,
        "props": dict(section_props(component, ask, _business(document))),
        "children": [],
    }
    return [
        {"op": "add", "path": f"/pages/{escape(root.page)}/elements/{key}", "value": element},
        {"op": "add", "path": f"{root.pointer}/children/{index}", "value": key},
    ]


def _place(document: Document, ask: str) -> tuple[Element | None, int]:
    """Return the root below which a new section goes, and where among its children: beside what is named, or last."""
    elements = list(document.elements())
    roots = {element.page: element for element in elements if element.parent is None}
    if anchor := _ANCHOR.search(ask):
        named = component_named(anchor[2])
        beside = next((element for element in elements if named and element.type == named[0].name), None)
        if beside and beside.parent == roots[beside.page].key:
            return roots[beside.page], beside.index + (anchor[1].lower() not in ("above", "before"))
    root = roots.get("index.html") or next(iter(roots.values()), None)
    if root is None:
        return None, 0
    footers = [element.index for element in elements if element.parent == root.key and _is_footer(element)]
    return root, min(footers, default=_end(document, root))


def _end(document: Document, root: Element) -> int:
    """Return the place before a footer that was not sent (its key says so), or the end."""
    children = document.children(root.page, root.key)
    return len(children) - (bool(children) and "footer" in str(children[-1]).lower())


def _is_footer(element: Element) -> bool:
    component = components().get(element.type)
    return component is not None and component.place == "footer"


def _reword(document: Document, ask: str) -> list[Operation] | None:
    found = _copy_asked_for(document, ask)
    if found is None:
        return None
    element, prop = found
    old, limit = str(element.props[prop]), _LIMITS[prop]
    return [{"op": "replace", "path": f"{element.pointer}/props/{prop}", "value": _reworded(old, ask, prop, limit)}]


def _describe(document: Document, ask: str) -> list[Operation] | None:
    """Say the request in the page's description: what is left when no text was sent."""
    page = next((element for element in document.elements() if element.parent is None), None)
    if page is None:
        return None
    return [{"op": "add", "path": f"{page.pointer}/props/description", "value": sentence(ask)[:300] or "Rehearsed."}]


def _copy_asked_for(document: Document, ask: str) -> tuple[Element, str] | None:
    """Return the text that a request is most likely about."""
    wanted = next((prop for prop in ("heading", "title", "text") if re.search(rf"\b{prop}|headline\b", ask, re.I)), "")
    order = dict.fromkeys(("heading" if wanted == "title" else wanted, *_COPY_PROPS))
    named = component_named(ask)
    asked = {word.lower() for word in words(ask)}

    def score(element: Element) -> int:
        held = {word.lower() for _, text in _texts(element.props, "") for word in words(text)}
        return 100 * bool(named and element.type == named[0].name) + len(asked & held)

    places = [
        (element, prop) for element in document.elements() for prop in order if isinstance(element.props.get(prop), str)
    ]
    best = max((score(element) for element, _ in places), default=0)
    return next(((element, prop) for element, prop in places if score(element) == best), None)


def _reworded(old: str, ask: str, prop: str, limit: int) -> str:
    given = quoted(ask)
    if given and not _ADD.search(ask):
        return given[-1][:limit]
    if prop == "heading":
        return title(ask)[:limit]
    if _SHORTER.search(ask):
        first = re.split(r"(?<=[.!?])\s+", old)[0]
        return first if first != old else " ".join(old.split()[: max(3, len(old.split()) // 2)]).rstrip(",;:") + "."
    said = given[-1] if given else _SAY.sub("", ask)
    tone = next((text for pattern, text in _TONES if pattern.search(ask)), None)
    added = sentence(said) if said != ask else tone or f"(Rehearsed change: {ask[:200]})"
    added = added[: limit // 2]
    return f"{old[: limit - len(added) - 1]} {added}" if added not in old else f"{added} {added}"[:limit]


def _texts(value: Any, pointer: str) -> list[tuple[str, str]]:
    """Return every text in a prop value with its pointer."""
    if isinstance(value, str):
        return [(pointer, value)]
    if isinstance(value, dict):
        return [found for key, item in value.items() for found in _texts(item, f"{pointer}/{escape(key)}")]
    if isinstance(value, list):
        return [found for index, item in enumerate(value) for found in _texts(item, f"{pointer}/{index}")]
    return []


def _business(document: Document) -> Business:
    for element in document.elements():
        if isinstance(brand := element.props.get("brand"), str) and brand:
            return Business(name=brand)
    return Business(name="This site")

"""A site's texts in another language, written by a model as a list: numbered texts in, numbered translations out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from routing.model_call import WAYS_OUT
from sites.errors import refuse
from sites.spec.catalog import components
from sites.spec.expressions import SHARED_TYPE
from sites.spec.model import JsonObject, Site, parse_site
from sites.spec.quality import is_copy
from sites.spec.validate import auto_fix, require_valid

MAX_CHUNK_CHARACTERS: Final = 3_000
"""Of texts in one call: their translation, with its numbers, fits the tokens that an edit may write."""
MAX_CHUNKS: Final = 4
"""Calls side by side; a site with more texts is edited like any other."""
_TRANSLATE: Final = re.compile(
    r"\b(?:translat(?:e|ion|ing)|übersetz\w*|uebersetz\w*|tradu(?:is\w*|ire|ction|ce|cir|cción|zca|ci|rre|zione|z|zir|ção)|"
    r"vertaal\w*|vertaling|przetłumacz\w*|tłumacz\w*)\b|"
    r"\b(?:put|turn|bring|convert|switch)\b.{1,60}\b(?:in)?to (?:english|german|french|spanish|italian|dutch|polish|"
    r"portuguese)\b|"
    r"\bauf (?:englisch|deutsch|französisch|spanisch|italienisch|niederländisch|portugiesisch|polnisch) "
    r"(?:um)?stell|"
    r"\b(?:mets|mettez|mettre|metti|mettere|passe|passez|passer|passa|passare|pon|ponga|poner)\b.{1,60}\b(?:en|in) "
    r"(?:anglais|allemand|français|espagnol|italien|inglés|alemán|francés|español|italiano|inglese|tedesco|francese|"
    r"spagnolo)\b",
    re.I,
)
_KEPT: Final = frozenset({"email", "phone"})
_LANGUAGE: Final = re.compile(r"[a-zA-Z]{2,3}(?:-[a-zA-Z0-9]{2,8})?")


class Entry(NamedTuple):
    """A text of the document and its place in it."""

    page: str
    element: str
    keys: tuple[str | int, ...]
    """From the element's props."""
    text: str


def is_translation(request: str) -> bool:
    """Whether a request asks for texts in another language."""
    return _TRANSLATE.search(request) is not None


def entries_of(site: Site) -> tuple[Entry, ...]:
    """Return every text that visitors read, in document order, shared ones once."""
    return tuple(
        Entry(path, key, keys, text)
        for path, page in sorted(site.pages.items())
        for key, element in page["elements"].items()
        if element["type"] != SHARED_TYPE and element["type"] in components()
        for keys, text in _texts(element.get("props", {}))
    )


def _texts(value: object, keys: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if isinstance(value, str):
        if any(letter.isalpha() for letter in value):
            yield keys, value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            if not name.startswith("$") and name not in _KEPT and is_copy(name, item):
                yield from _texts(item, (*keys, name))
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            yield from _texts(item, (*keys, place))


def chunks(entries: Sequence[Entry]) -> list[str]:
    """Return the numbered texts in as many parts as there are calls to make, none of them above the limit."""
    parts: list[list[str]] = []
    room = 0
    for number, entry in enumerate(entries):
        place = ".".join(str(key) for key in (entry.element, *entry.keys))
        line = f"{number} [{entry.page} {place}] {entry.text}"
        room -= len(entry.text)
        if room < 0 or not parts:
            parts.append([])
            room = MAX_CHUNK_CHARACTERS - len(entry.text)
        parts[-1].append(line)
    return ["\n".join(part) for part in parts]


def translate_tool() -> JsonObject:
    """Return the tool that a model is forced to call for a translation."""
    text = {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 0}, "text": {"type": "string"}},
        "required": ["n", "text"],
    }
    return {
        "name": "translate_texts",
        "description": "Hand over the translated texts by their numbers.",
        "input_schema": {
            "type": "object",
            "properties": {
                "language": {"type": "string", "maxLength": 12, "description": "of the translation: de, pt-BR"},
                "texts": {"type": "array", "items": text},
                **WAYS_OUT,
            },
            "required": ["language", "texts"],
        },
    }


def apply_translation(site: Site, entries: Sequence[Entry], replies: Sequence[Mapping[str, Any]]) -> Site:
    """Return the site with translated texts, valid; all or nothing.

    Args:
        site: the site; it is not changed.
        entries: its texts, as they were numbered.
        replies: the tool's input of every call.

    Raises:
        SpecError: `bad_operation` or what is invalid afterwards (the reply's fault).
    """
    document = site.to_dict()
    changed: dict[str, int] = {}
    for reply in replies:
        for step in _list(reply.get("texts")):
            number, text = _read(step, len(entries))
            entry = entries[number]
            _put(document["pages"][entry.page]["elements"][entry.element]["props"], entry.keys, text)
            changed[entry.page] = changed.get(entry.page, 0) + 1
    language = next((str(reply.get("language")) for reply in replies if reply.get("texts")), "")
    if _LANGUAGE.fullmatch(language):
        for path, count in changed.items():
            if count * 2 > sum(entry.page == path for entry in entries):
                page = document["pages"][path]
                page["elements"][page["root"]].setdefault("props", {})["lang"] = language
    translated = auto_fix(parse_site(document)).site
    require_valid(translated)
    return translated


def _list(texts: object) -> Sequence[object]:
    if texts is None or isinstance(texts, list):
        return texts or ()
    raise refuse("bad_operation", "/texts", "has to be a list")


def _read(step: object, count: int) -> tuple[int, str]:
    if isinstance(step, Mapping):
        number, text = step.get("n"), step.get("text")
        if isinstance(number, int) and 0 <= number < count and isinstance(text, str) and text.strip():
            return number, text
    raise refuse("bad_operation", "/texts", "each entry has the number of a given text, and a text that is not empty")


def _put(value: Any, keys: tuple[str | int, ...], text: str) -> None:
    for key in keys[:-1]:
        value = value[key]
    value[keys[-1]] = text

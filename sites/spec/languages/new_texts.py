"""Texts that an edit writes are set as those of a new site are: no line ends within a time, a number or a range.

Texts that stay are not touched, and letters and marks are the writer's.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from sites.errors import SpecError
from sites.spec.languages.typography import NO_TEXTS, keep_whole
from sites.spec.languages.versions import lang_of
from sites.spec.model import Site, parse_site
from sites.spec.quality import is_copy, texts
from sites.spec.validate import require_valid


def set_new_texts(before: Site, after: Site) -> Site:
    """Return a valid site with its new texts set; as it is where one would then be too long."""
    elements = (element for page in before.pages.values() for element in page["elements"].values())
    known = {text for element in elements for text in texts(element.get("props", {}))}
    document = after.to_dict()
    for page in document["pages"].values():
        for element in page["elements"].values():
            element["props"] = _set(element.get("props", {}), lang_of(page), known)
    try:
        site = parse_site(document)
        require_valid(site)
    except SpecError:
        return after
    return site


def _set(value: Any, lang: str, known: Set[str]) -> Any:
    if isinstance(value, dict):
        return {
            name: _set(item, lang, known) if is_copy(name, item) and name not in NO_TEXTS and name[:1] != "$" else item
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [_set(item, lang, known) for item in value]
    return keep_whole(value, lang) if isinstance(value, str) and value not in known else value

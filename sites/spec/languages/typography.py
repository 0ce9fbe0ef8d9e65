"""Spaces at which a line of a language must not break."""

from __future__ import annotations

import re
from typing import Final

from sites.spec.languages.versions import primary

_FRENCH: Final = re.compile(r"(?<=\S) (?=[?!:;»](?:\W|$))|(?<=«) (?=\S)")


def with_kept_spaces(value: object, lang: str) -> object:
    """Return JSON data whose French texts keep a mark with its word: `Une question ?` breaks before no `?`."""
    if primary(lang) != "fr":
        return value
    if isinstance(value, str):
        return _FRENCH.sub("\N{NO-BREAK SPACE}", value)
    if isinstance(value, dict):
        return {name: with_kept_spaces(item, lang) for name, item in value.items()}
    return [with_kept_spaces(item, lang) for item in value] if isinstance(value, list) else value

"""The words of direct edits: the tables of vocabulary.yaml, and patterns for the nouns that need one."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterable, Mapping
from typing import Final

import yaml
from pydantic import BaseModel, ConfigDict

Names = Mapping[str, tuple[str, ...]]
"""What people call each thing, by its name in a spec."""


class Vocabulary(BaseModel):
    """The tables of vocabulary.yaml, which says what each is for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    section_fields: Names
    clear_without_section: frozenset[str]
    headline: frozenset[str]
    subheadline: frozenset[str]
    entry_fields: Names
    entry_nouns: Names
    ambiguous_sections: frozenset[str]
    home_page: frozenset[str]
    facts: Names
    businesses: frozenset[str]
    colour_roles: Names
    fonts: Names
    radii: Names
    spacings: Names
    tones: Names
    not_a_text: frozenset[str]


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEXT: Final = pkgutil.get_data(__name__, "vocabulary.yaml") or b""
VOCABULARY: Final = Vocabulary.model_validate(yaml.load(_TEXT, Loader=_LOADER))

BUTTON: Final = r"(?:button|cta)"
LABEL: Final = r"(?:text|label|caption|wording|name)"
ADDRESS: Final = r"(?:link|url|href|target|destination|address)"
IMAGE: Final = r"(?:image|picture|photo|illustration|photograph|pic)"
NAVIGATION: Final = (
    r"(?:navigation(?: bar| menu)?|nav(?: bar)?|menu(?: bar)?|header|navbar|top bar|top menu|main menu|footer)"
)
LINK: Final = (
    r"(?:link|item|entry|menu item|menu entry|nav item|menu link|nav link|navigation link|footer link|header link)"
)
FACT_SHAPES: Final[Mapping[str, re.Pattern[str]]] = {
    "email": re.compile(r"[\w.+%-]+@[\w-]+(?:\.[\w-]+)+"),
    "phone": re.compile(r"\+?[0-9(][0-9 ()./-]{4,28}[0-9]"),
}
SUBHEADLINE: Final = VOCABULARY.subheadline | {
    f"{text} {below} {head}"
    for text in ("text", "paragraph", "line", "sentence")
    for below in ("under", "below")
    for head in ("headline", "the headline", "the main heading", "the heading", "the main headline")
}
"""Names of the text below the heading that opens a page."""


def words(names: Iterable[str]) -> str:
    """Return a pattern for any of some names, the longest first."""
    return "(?:" + "|".join(re.escape(name) for name in sorted(names, key=lambda name: (-len(name), name))) + ")"


def by_name(table: Names) -> dict[str, str]:
    """Return what each name stands for."""
    return {name: key for key, names in table.items() for name in names}


def phrases(*patterns: str) -> tuple[re.Pattern[str], ...]:
    """Return patterns that ignore case."""
    return tuple(re.compile(pattern, re.I) for pattern in patterns)

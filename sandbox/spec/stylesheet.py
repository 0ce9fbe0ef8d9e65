"""The one stylesheet: the theme's variables, the base, and the rules of every component.

It always holds the rules of all components. Then a change of content never changes it, and an edit of the stylesheet
by another tier survives the next edit of the content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from sandbox.spec.base_style import BASE_STYLE
from sandbox.spec.component import Component
from sandbox.spec.theme import FONT_STACKS, PRESETS, RADII, SPACINGS, VOICES, Theme, palette

_CARDS: Final = {
    "outlined": {"border": "1px", "shadow": "none"},
    "raised": {"border": "1px", "shadow": "0 1px 2px rgb(0 0 0 / .05), 0 10px 28px -6px rgb(0 0 0 / .09)"},
    "flat": {"border": "0", "shadow": "none"},
    "open": {"border": "1px 0 0", "shadow": "none"},
}
_CARD_GROUNDS: Final[dict[str, dict[str, str | None]]] = {
    "outlined": {"card": "surface", "card-on-tint": "surface", "mark": "tint", "mark-on-tint": "tint"},
    "raised": {"card": "surface", "card-on-tint": "surface", "mark": "tint", "mark-on-tint": "tint"},
    "flat": {"card": "tint", "card-on-tint": "bg", "mark": "bg", "mark-on-tint": "tint"},
    "open": {"card": None, "card-on-tint": None, "mark": "tint", "mark-on-tint": "bg"},
}
"""What fills a card and the mark of its icon, on a plain and on a tinted section; None is the section itself."""


def theme_class(theme: Theme) -> str:
    """Return the class that puts a page into a theme other than the index page's."""
    return "theme-" + hashlib.sha256(theme.model_dump_json().encode()).hexdigest()[:8]


def stylesheet(theme: Theme, others: Mapping[str, Theme], components: Mapping[str, Component]) -> bytes:
    """Return the stylesheet of a site.

    Args:
        theme: the index page's.
        others: themes of other pages by their class.
        components: the whole catalog, sorted.
    """
    variables = [_variables(":root", theme)]
    variables += [_variables(f":root.{name}", other) for name, other in sorted(others.items())]
    return "\n".join(variables).encode() + _rules(tuple([component.css for component in components.values()]))


@lru_cache(maxsize=1)  # there is one catalog
def _rules(styles: tuple[str, ...]) -> bytes:
    """Return what stands behind the variables: the same for every site."""
    return "".join([f"\n{style.strip()}" for style in (BASE_STYLE, *styles) if style.strip()] + ["\n"]).encode()


@lru_cache(maxsize=256)  # few themes are in use at a time, and every page that is built asks for its own
def _variables(selector: str, theme: Theme) -> str:
    first = _colours(theme, dark=theme.mode == "dark")
    scheme = {"auto": "light dark", "light": "light", "dark": "dark"}[theme.mode]
    rules = _rule(selector, {**_measures(theme), **first}, scheme)
    if theme.mode == "auto":
        dark = _rule(selector, _colours(theme, dark=True), None).replace("\n", "\n  ")
        rules += f"\n@media (prefers-color-scheme: dark) {{\n  {dark}\n}}"
    return rules


def _measures(theme: Theme) -> dict[str, str]:
    preset = PRESETS[theme.preset]
    headings = theme.headings or theme.font or preset.headings
    voice = VOICES[headings]
    cards = theme.cards or preset.cards
    is_centered = (theme.align or preset.align) == "center"
    return {
        "font": FONT_STACKS[theme.font or preset.font],
        "font-headings": FONT_STACKS[headings],
        "heading-weight": str(voice.weight),
        "subheading-weight": str(max(voice.weight, 600)),
        "heading-tracking": voice.tracking,
        "heading-scale": voice.scale,
        "radius": RADII[theme.radius or preset.radius],
        "space": SPACINGS[theme.spacing or "regular"],
        "intro-align": "center" if is_centered else "left",
        "intro-margin": "auto" if is_centered else "0",
        "card-border": _CARDS[cards]["border"],
        "card-shadow": _CARDS[cards]["shadow"],
        "card-padding": "1.4rem 0 0" if cards == "open" else "clamp(1.4rem, 1rem + 1.2vw, 1.9rem)",
        "card-radius": "0" if cards == "open" else RADII[theme.radius or preset.radius],
    }


def _colours(theme: Theme, *, dark: bool) -> dict[str, str]:
    colours = palette(theme, dark=dark)
    grounds = _CARD_GROUNDS[theme.cards or PRESETS[theme.preset].cards]
    grounds = {**grounds, "card-on-deep": "deep-card" if grounds["card"] else None}
    return {**colours, **{name: colours[ground] if ground else "transparent" for name, ground in grounds.items()}}


def _rule(selector: str, variables: Mapping[str, str], scheme: str | None) -> str:
    lines = [f"  color-scheme: {scheme};"] if scheme else []
    lines += [f"  --{name}: {value};" for name, value in variables.items()]
    return f"{selector} {{\n" + "\n".join(lines) + "\n}"

"""How strongly a new site speaks, by its colours and fonts: an owner who asks for loud gets colours that shout."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sites.spec.catalog import Tone
from sites.spec.fonts.families import FONTS
from sites.spec.theme import PRESETS, Style, Theme, fonts_of, luminance, parse_colour

_LOUD: Final = 0.75
"""Chroma of neon, signal red or lava; that of brick and petrol is about a half."""
_STRONG: Final = 0.2
"""From this chroma a colour is taken for one, not for a grey or a brown."""
_NIGHT: Final = 0.05
"""Luminance of a ground on which a loud colour glows."""
_POSTER_FONTS: Final = frozenset({"oswald-1", "condensed"})


class Look(NamedTuple):
    """What the theme of a new site says of its sections."""

    band: Tone
    """The ground of the one strong section."""
    strip: Tone
    """That of the facts at the foot of the opening: the other colour, if it is one."""


def chroma(colour: str) -> float:
    """Return how far a colour is from grey, 0 to 1."""
    digits = parse_colour(colour)
    channels = [int(digits[at : at + 2], 16) for at in (1, 3, 5)]
    return (max(channels) - min(channels)) / 255


def style_of(theme: dict[str, Any]) -> Style:
    """Return `poster` where colours or letters are loud, else `display`."""
    parsed = Theme(**theme)
    colours = _colours(parsed)
    headings, _ = fonts_of(parsed)
    *_, second, first = sorted(chroma(colour) for colour in colours)
    is_loud = first >= _LOUD and (second >= _LOUD or luminance(parse_colour(colours.background)) < _NIGHT)
    is_elegant = "serif" in FONTS[headings].stack.replace("sans-serif", "")
    return "poster" if headings in _POSTER_FONTS or (is_loud and not is_elegant) else "display"


def look_of(theme: dict[str, Any]) -> Look:
    """Return the grounds of the strong parts of a site."""
    primary, accent, _ = (chroma(colour) for colour in _colours(Theme(**theme)))
    if primary >= _STRONG:
        return Look("filled", "accent" if accent >= _STRONG else "deep")
    return Look("accent", "filled") if accent >= _STRONG else Look("deep", "filled")


class _Colours(NamedTuple):
    primary: str
    accent: str
    background: str


def _colours(theme: Theme) -> _Colours:
    preset = PRESETS[theme.preset]
    background = theme.background or preset.background
    return _Colours(theme.primary or preset.primary, theme.accent or preset.accent, background)

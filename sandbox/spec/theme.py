"""A site's look as a few choices, and the colours that follow from them.

The caller's colours are kept as they are where they fill an area; every colour that carries text is moved away from its
background until WCAG's 4.5:1 holds. So no choice of colours can make a page unreadable.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from sandbox.spec.colours import BLACK, COLOUR_NAMES, WHITE, contrast, luminance, mix, parse_colour, readable
from sandbox.spec.component import Props

FontName = Literal["sans", "serif", "humanist", "geometric", "classical", "slab", "rounded", "condensed", "mono"]
PresetName = Literal[
    "warm", "ocean", "forest", "slate", "plum", "sunset", "mono", "ink", "noir", "festival", "signal", "clay"
]
CardStyle = Literal["outlined", "raised", "flat", "open"]

FONT_STACKS: Final[dict[str, str]] = {
    "sans": '-apple-system, BlinkMacSystemFont, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", "Liberation Sans", '
    "Arial, sans-serif",
    "serif": '"Iowan Old Style", "Palatino Linotype", Palatino, "URW Palladio L", P052, Georgia, "Liberation Serif", '
    "serif",
    "humanist": 'Seravek, "Gill Sans Nova", Ubuntu, Calibri, "Noto Sans", "Liberation Sans", sans-serif',
    "geometric": 'Avenir, Montserrat, Corbel, "URW Gothic", "Century Gothic", "Liberation Sans", sans-serif',
    "classical": 'Optima, Candara, "Noto Sans", "Liberation Sans", sans-serif',
    "slab": 'Rockwell, "Rockwell Nova", "Roboto Slab", "Sitka Small", "DejaVu Serif", serif',
    "rounded": 'ui-rounded, "Hiragino Maru Gothic ProN", Quicksand, Comfortaa, "Arial Rounded MT Bold", "DejaVu '
    'Sans", sans-serif',
    "condensed": '"Avenir Next Condensed", "Roboto Condensed", "Arial Narrow", "Liberation Sans Narrow", '
    '"DejaVu Sans Condensed", sans-serif',
    "mono": 'ui-monospace, "Cascadia Code", "Source Code Pro", Menlo, Consolas, "DejaVu Sans Mono", monospace',
}


class Voice(NamedTuple):
    """How a family is set as a heading: light where it is elegant, heavy and tight where it is plain."""

    weight: int
    tracking: str
    scale: str
    """Factor of the size, so that a wide family does not shout and a narrow one does not whisper."""


VOICES: Final[dict[str, Voice]] = {
    "sans": Voice(700, "-.025em", "1"),
    "serif": Voice(500, "-.015em", "1.08"),
    "humanist": Voice(700, "-.015em", "1"),
    "geometric": Voice(700, "-.02em", "1"),
    "classical": Voice(600, "-.005em", "1.02"),
    "slab": Voice(600, "-.02em", ".9"),
    "rounded": Voice(700, "-.02em", ".9"),
    "condensed": Voice(700, "-.01em", "1.22"),
    "mono": Voice(600, "-.045em", ".88"),
}
RADII: Final = {"none": "0", "small": "6px", "medium": "14px", "large": "26px"}
SPACINGS: Final = {"compact": "0.75", "regular": "1", "airy": "1.25"}
MIN_TEXT_CONTRAST: Final = 4.5
_HEX: Final = re.compile(r"#(?:[0-9a-fA-F]{3}|[0-9a-fA-F]{6})")


def _check_colour(value: str) -> str:
    if not _HEX.fullmatch(value) and value.lower() not in COLOUR_NAMES:
        raise PydanticCustomError("bad_colour", "a colour is #rgb, #rrggbb or a CSS colour name")
    return value


Colour = Annotated[str, AfterValidator(_check_colour), Field(max_length=30)]


class Theme(Props):
    """The look of a site: a preset, and what the site changes in it."""

    preset: PresetName = "slate"
    primary: Colour | None = None
    accent: Colour | None = None
    background: Colour | None = None
    font: FontName | None = None
    headings: FontName | None = None
    radius: Literal["none", "small", "medium", "large"] | None = None
    spacing: Literal["compact", "regular", "airy"] | None = None
    cards: CardStyle | None = None
    align: Literal["left", "center"] | None = None
    """Where the headings of sections stand."""
    mode: Literal["auto", "light", "dark"] = "auto"


class Preset(NamedTuple):
    """What a preset stands for."""

    primary: str
    accent: str
    background: str
    font: str
    headings: str
    radius: str
    cards: str
    align: str


PRESETS: Final[dict[str, Preset]] = {
    "warm": Preset("#9a3f1d", "#e0a43b", "#fbf6ee", "humanist", "serif", "medium", "outlined", "left"),
    "ocean": Preset("#0b6e8f", "#f2a65a", "#f5f9fb", "sans", "geometric", "medium", "raised", "left"),
    "forest": Preset("#2f6b46", "#d8a23a", "#f7f7f0", "humanist", "slab", "small", "flat", "left"),
    "slate": Preset("#3a46d8", "#12b0a2", "#ffffff", "sans", "sans", "medium", "raised", "center"),
    "plum": Preset("#7a2e6b", "#e58c6f", "#fcf8fa", "classical", "serif", "large", "flat", "center"),
    "sunset": Preset("#c8394e", "#edae49", "#fffaf5", "geometric", "geometric", "large", "raised", "center"),
    "mono": Preset("#1c1c1c", "#c8553d", "#fafaf8", "sans", "mono", "none", "outlined", "left"),
    "ink": Preset("#1f3350", "#b08d4f", "#ffffff", "sans", "serif", "none", "open", "left"),
    "noir": Preset("#e8e2d6", "#c9a15a", "#121212", "sans", "serif", "none", "open", "left"),
    "festival": Preset("#5b21d6", "#ffb400", "#ffffff", "sans", "condensed", "small", "flat", "left"),
    "signal": Preset("#0f766e", "#f59e0b", "#fbfcfc", "sans", "mono", "small", "outlined", "left"),
    "clay": Preset("#a8502f", "#5f7a61", "#f6efe6", "classical", "serif", "large", "flat", "left"),
}


def palette(theme: Theme, *, dark: bool) -> dict[str, str]:
    """Return the colour of each CSS variable for one of the two schemes."""
    preset = PRESETS[theme.preset]
    primary = parse_colour(theme.primary or preset.primary)
    accent = parse_colour(theme.accent or preset.accent)
    background = parse_colour(theme.background or preset.background)
    is_dark = luminance(background) < 0.18
    if dark and not is_dark:
        background, is_dark = mix("#14161a", primary, 0.07), True
    if is_dark and dark:
        primary, accent = (readable(colour, [background], 3.2) for colour in (primary, accent))
    return _palette(primary, accent, background, is_dark=is_dark)


def _palette(primary: str, accent: str, background: str, *, is_dark: bool) -> dict[str, str]:
    surface = _ground(mix(background, WHITE, 0.06 if is_dark else 0.7), background)
    is_pale = luminance(primary) > 0.4
    tint = _ground(mix(background, primary, 0.12 if is_dark and not is_pale else 0.07), background)
    grounds = [background, surface, tint]
    ink = readable(mix(WHITE if is_dark else "#1b1b1f", primary, 0.08), grounds, 9)
    deep = mix(mix(BLACK, primary, 0.08 if is_pale else 0.22), background, 0.04)
    on_deep = readable(mix(WHITE, accent, 0.1), [deep], 9)
    raised = mix(deep, on_deep, 0.07)
    grounds_in_deep = [deep, raised]
    return {
        "bg": background,
        "surface": surface,
        "tint": tint,
        "ink": ink,
        "muted": readable(mix(ink, background, 0.3), grounds, MIN_TEXT_CONTRAST + 0.4),
        "line": mix(background, ink, 0.14),
        "field": readable(mix(background, ink, 0.35), grounds, 3.1),
        "fill": primary,
        "fill-edge": readable(primary, grounds, 3.1),
        "fill-hover": mix(primary, BLACK if _text_on(primary) == WHITE else WHITE, 0.16),
        "on-fill": _text_on(primary),
        "link": readable(primary, grounds, MIN_TEXT_CONTRAST + 0.1),
        "accent": accent,
        "on-accent": _text_on(accent),
        "focus": readable(accent, grounds, 3.1),
        "deep": deep,
        "deep-veil": f"{deep}e6",
        "deep-mist": f"{deep}a6",
        "deep-card": raised,
        "on-deep": on_deep,
        "deep-muted": readable(mix(on_deep, deep, 0.3), grounds_in_deep, MIN_TEXT_CONTRAST + 0.4),
        "deep-line": mix(deep, on_deep, 0.2),
        "deep-accent": readable(accent, grounds_in_deep, MIN_TEXT_CONTRAST + 0.1),
    }


def _ground(colour: str, background: str) -> str:
    """Return a second ground, moved to the background until one colour of text is readable on both."""
    end = max((BLACK, WHITE), key=lambda candidate: contrast(candidate, background))
    steps = (mix(colour, background, step / 10) for step in range(11))
    return next((ground for ground in steps if contrast(end, ground) >= MIN_TEXT_CONTRAST + 0.05), background)


def contrast_note(theme: Theme) -> str | None:
    """Say that a theme's own primary colour is not used for words as it is, because nobody could read them."""
    if theme.primary is None:
        return None
    colours = palette(theme, dark=theme.mode == "dark")
    chosen, used, ground = colours["fill"], colours["link"], colours["bg"]
    if chosen == used:
        return None
    return (
        f"words in {theme.primary} are set in {used}: on {ground} it has a contrast of {contrast(chosen, ground):.1f}, "
        f"and words need {MIN_TEXT_CONTRAST}"
    )


def _text_on(colour: str) -> str:
    """Return white, or else the dark tint of the colour, whichever is readable: one of black and white always is."""
    if contrast(WHITE, colour) >= MIN_TEXT_CONTRAST:
        return WHITE
    return readable(mix(colour, BLACK, 0.8), [colour], MIN_TEXT_CONTRAST + 0.1)

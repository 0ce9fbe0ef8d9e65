"""The look of a site: a theme of few choices, the palette derived from it, and the one stylesheet.

A caller's colours stay as they are where they fill an area; a colour that carries text moves away from its background
until WCAG's 4.5:1 holds, so no choice of colours makes a page unreadable. The stylesheet always holds the rules of all
components: a change of content never changes it, and another tier's edit of it survives the next edit of the content.
"""

from __future__ import annotations

import hashlib
import pkgutil
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

_TABLE: Final = """
aliceblue f0f8ff  antiquewhite faebd7  aqua 00ffff  aquamarine 7fffd4  azure f0ffff  beige f5f5dc  bisque ffe4c4
black 000000  blanchedalmond ffebcd  blue 0000ff  blueviolet 8a2be2  brown a52a2a  burlywood deb887
cadetblue 5f9ea0  chartreuse 7fff00  chocolate d2691e  coral ff7f50  cornflowerblue 6495ed  cornsilk fff8dc
crimson dc143c  cyan 00ffff  darkblue 00008b  darkcyan 008b8b  darkgoldenrod b8860b  darkgray a9a9a9
darkgreen 006400  darkgrey a9a9a9  darkkhaki bdb76b  darkmagenta 8b008b  darkolivegreen 556b2f  darkorange ff8c00
darkorchid 9932cc  darkred 8b0000  darksalmon e9967a  darkseagreen 8fbc8f  darkslateblue 483d8b
darkslategray 2f4f4f  darkslategrey 2f4f4f  darkturquoise 00ced1  darkviolet 9400d3  deeppink ff1493
deepskyblue 00bfff  dimgray 696969  dimgrey 696969  dodgerblue 1e90ff  firebrick b22222  floralwhite fffaf0
forestgreen 228b22  fuchsia ff00ff  gainsboro dcdcdc  ghostwhite f8f8ff  gold ffd700  goldenrod daa520  gray 808080
green 008000  greenyellow adff2f  grey 808080  honeydew f0fff0  hotpink ff69b4  indianred cd5c5c  indigo 4b0082
ivory fffff0  khaki f0e68c  lavender e6e6fa  lavenderblush fff0f5  lawngreen 7cfc00  lemonchiffon fffacd
lightblue add8e6  lightcoral f08080  lightcyan e0ffff  lightgoldenrodyellow fafad2  lightgray d3d3d3
lightgreen 90ee90  lightgrey d3d3d3  lightpink ffb6c1  lightsalmon ffa07a  lightseagreen 20b2aa  lightskyblue 87cefa
lightslategray 778899  lightslategrey 778899  lightsteelblue b0c4de  lightyellow ffffe0  lime 00ff00
limegreen 32cd32  linen faf0e6  magenta ff00ff  maroon 800000  mediumaquamarine 66cdaa  mediumblue 0000cd
mediumorchid ba55d3  mediumpurple 9370db  mediumseagreen 3cb371  mediumslateblue 7b68ee  mediumspringgreen 00fa9a
mediumturquoise 48d1cc  mediumvioletred c71585  midnightblue 191970  mintcream f5fffa  mistyrose ffe4e1
moccasin ffe4b5  navajowhite ffdead  navy 000080  oldlace fdf5e6  olive 808000  olivedrab 6b8e23  orange ffa500
orangered ff4500  orchid da70d6  palegoldenrod eee8aa  palegreen 98fb98  paleturquoise afeeee  palevioletred db7093
papayawhip ffefd5  peachpuff ffdab9  peru cd853f  pink ffc0cb  plum dda0dd  powderblue b0e0e6  purple 800080
rebeccapurple 663399  red ff0000  rosybrown bc8f8f  royalblue 4169e1  saddlebrown 8b4513  salmon fa8072
sandybrown f4a460  seagreen 2e8b57  seashell fff5ee  sienna a0522d  silver c0c0c0  skyblue 87ceeb  slateblue 6a5acd
slategray 708090  slategrey 708090  snow fffafa  springgreen 00ff7f  steelblue 4682b4  tan d2b48c  teal 008080
thistle d8bfd8  tomato ff6347  turquoise 40e0d0  violet ee82ee  wheat f5deb3  white ffffff  whitesmoke f5f5f5
yellow ffff00  yellowgreen 9acd32
"""
_WORDS: Final = _TABLE.split()

COLOUR_NAMES: Final = dict(zip(_WORDS[::2], (f"#{digits}" for digits in _WORDS[1::2]), strict=True))
"""`#rrggbb` by lower-case name."""
BLACK: Final = "#000000"
WHITE: Final = "#ffffff"


def parse_colour(value: str) -> str:
    """Return an accepted colour as lower-case `#rrggbb`."""
    lowered = value.lower()
    digits = COLOUR_NAMES.get(lowered, lowered).removeprefix("#")
    return "#" + (digits if len(digits) == 6 else "".join(digit * 2 for digit in digits))


def contrast(first: str, second: str) -> float:
    """Return the WCAG contrast ratio of two `#rrggbb` colours, 1 to 21."""
    lighter, darker = sorted((luminance(first), luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def mix(colour: str, other: str, share: float) -> str:
    """Return `colour` with a share (0 to 1) of `other` in it."""
    pairs = zip(_channels(colour), _channels(other), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def readable(colour: str, backgrounds: Sequence[str], ratio: float) -> str:
    """Return the colour nearest to `colour`, towards black or white, that has the ratio against all backgrounds.

    When no step of either way has it, the end that has the higher least contrast is returned.
    """

    def least(candidate: str) -> float:
        return min(contrast(candidate, background) for background in backgrounds)

    end = max((BLACK, WHITE), key=least)
    steps = (mix(colour, end, step / 25) for step in range(26))
    return next((candidate for candidate in steps if least(candidate) >= ratio), end)


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


@lru_cache(maxsize=4096)
def luminance(colour: str) -> float:
    """Return the relative luminance of a `#rrggbb` colour as WCAG defines it, 0 to 1."""
    linear = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in _channels(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


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


class Theme(BaseModel):
    """The look of a site: a preset, and what the site changes in it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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


_BASE_RULES: Final = (pkgutil.get_data(__name__, "base.css") or b"").decode()
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


def stylesheet(theme: Theme, others: Mapping[str, Theme], component_rules: Iterable[str]) -> bytes:
    """Return the stylesheet of a site.

    Args:
        theme: the index page's.
        others: themes of other pages by their class.
        component_rules: the CSS of every component of the catalog, in order.
    """
    variables = [_variables(":root", theme)]
    variables += [_variables(f":root.{name}", other) for name, other in sorted(others.items())]
    return "\n".join(variables).encode() + _rules(tuple(component_rules))


@lru_cache(maxsize=1)  # there is one catalog
def _rules(styles: tuple[str, ...]) -> bytes:
    """Return what stands behind the variables: the same for every site."""
    return "".join([f"\n{style.strip()}" for style in (_BASE_RULES, *styles) if style.strip()] + ["\n"]).encode()


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

"""The look of a site: a theme of few choices, and the palette derived from it.

Chosen colours fill areas unchanged; a colour for text is moved away from its background until WCAG's 4.5:1 holds, so no
choice makes a page unreadable.
"""

from __future__ import annotations

import hashlib
import pkgutil
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, Field
from pydantic_core import PydanticCustomError

from routing.yaml_data import load_yaml
from sites.spec.fonts.families import FONTS, NEAREST, FontChoice, Shipped
from sites.spec.html import say

_CHOICES: Final[dict[str, Any]] = load_yaml(pkgutil.get_data(__name__, "theme.yaml") or b"")
_COLOURS: Final = _CHOICES["colours"].split()
COLOUR_NAMES: Final = dict(zip(_COLOURS[::2], (f"#{digits}" for digits in _COLOURS[1::2]), strict=True))
"""`#rrggbb` by lower-case name, so that "make it teal" needs no model."""
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
    pairs = zip(channels(colour), channels(other), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def readable(colour: str, backgrounds: Sequence[str], ratio: float) -> str:
    """Return the colour nearest to `colour`, towards black or white, with the ratio against all backgrounds.

    If there is none, the end with the higher least contrast is returned.
    """

    def least(candidate: str) -> float:
        return min(contrast(candidate, background) for background in backgrounds)

    end = max((BLACK, WHITE), key=least)
    steps = (mix(colour, end, step / 25) for step in range(26))
    return next((candidate for candidate in steps if least(candidate) >= ratio), end)


def channels(colour: str) -> tuple[int, int, int]:
    """Return red, green and blue of a `#rrggbb` colour, 0 to 255."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


@lru_cache(maxsize=4096)
def luminance(colour: str) -> float:
    """Return the relative luminance of a `#rrggbb` colour as WCAG defines it, 0 to 1."""
    linear = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in channels(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def is_red(colour: str, *, most_green: float = 0.24) -> bool:
    """Whether a colour is a red, pink or raspberry; an ochre or a coral has more green, as a part of its chroma."""
    red, green, blue = channels(colour)
    return red == max(red, green, blue) and green - blue <= most_green * (red - min(green, blue))


PresetName = Literal[
    "warm", "ocean", "forest", "slate", "plum", "sunset", "mono", "ink", "noir", "festival", "signal", "clay"
]
CardStyle = Literal["outlined", "raised", "flat", "open"]
Radius = Literal["none", "small", "medium", "large"]
Style = Literal["display", "poster", "editorial", "tiles"]
"""Large headings over entries in columns; the same in capitals; headings beside lines on paper; rounded panels."""
TextSize = Literal["large", "larger"]


MIN_TEXT_CONTRAST: Final = 4.5
_PALE: Final = 0.4  # luminance from which a colour hardly tints
_DEEP_CONTRAST: Final = 11
"""From this contrast with white on, a colour is dark enough for whole sections."""
_ON_DEEP: Final = 6
"""The least contrast of words on a ground for deep sections that the theme chooses."""
_ANOTHER: Final = 1.5
"""Contrast of a colour and its readable shade from which on that is another colour."""
_ALIKE: Final = 1.6
"""Contrast of two colours below which a page that has both in large fields is of one."""
_CREAM: Final = (8, 0.87)
"""With so much of a hue or no more light than this, a ground's tint is more of its own: another's is putty or pink."""
DARK: Final = 0.18
"""Luminance of a background below which a page is a dark one."""
_NEARLY_BLACK: Final = 0.015
"""Below this luminance, nothing is darker that anybody would see."""
_NIGHT, _DUSK = 0.06, 0.12
"""White in the second ground of a page that is nearly black: with the more of it, that is a grey."""
_PEACH: Final = 0.5
"""Up to so much green, a colour makes a white peach or pink; an ochre makes it cream."""
_HEX: Final = re.compile(r"#(?:[0-9a-fA-F]{3}|[0-9a-fA-F]{6})")


def _check_colour(value: str) -> str:
    if not _HEX.fullmatch(value) and value.lower() not in COLOUR_NAMES:
        raise PydanticCustomError("bad_colour", "a colour is #rgb, #rrggbb or a CSS colour name")
    return value


Colour = Annotated[str, AfterValidator(_check_colour), Field(max_length=30)]


class Theme(BaseModel, frozen=True, extra="forbid"):
    """The look of a site: a preset and the site's changes to it."""

    preset: PresetName = "slate"
    primary: Colour | None = None
    accent: Colour | None = None
    buttons: Colour | None = None
    """Of buttons alone: of filled ones on every ground, of the others' words and edges where no ground is dark."""
    background: Colour | None = None
    deep: Colour | None = None
    """The ground of deep sections and of the footer, as far as words can be read on it."""
    font: FontChoice | None = None
    """Of all words."""
    headings: FontChoice | None = None
    """Of headings alone."""
    text: FontChoice | None = None
    """Of all other words alone."""
    heading_size: Literal["large", "huge"] | None = None
    heading_weight: Literal["light", "heavy"] | None = None
    """Those of the font by default."""
    radius: Radius | None = None
    spacing: Literal["compact", "regular", "airy"] | None = None
    cards: CardStyle | None = None
    align: Literal["left", "center"] | None = None
    """The alignment of section headings."""
    mode: Literal["auto", "light", "dark"] = "auto"
    size: TextSize | None = None
    """Of all text and what is measured by it; that of the visitor's browser by default."""
    ink: Colour | None = None
    """The colour of words, as far as they can be read in it."""
    style: Style | None = None
    """How large and how closely sections are set: every new site has one, an imported document may not."""
    contrast: Literal["strong"] | None = None
    """That of words in grey: nearly that of the others."""
    icons: Literal["none"] | None = None
    """Whether small symbols stand beside contact data and entries: all but those of a control."""
    fills: Literal["true"] | None = None
    """Of a dark page: filled areas keep a colour that is too dark for words, which have the accent's; no grounds are
    grey."""


class Preset(NamedTuple):
    """The values of a preset."""

    primary: str
    accent: str
    background: str
    font: str
    headings: str
    radius: str
    cards: str
    align: str


PRESETS: Final = {name: Preset(**preset) for name, preset in _CHOICES["presets"].items()}


class Pairing(NamedTuple):
    """The fonts of a new site."""

    headings: Shipped
    text: Shipped


PAIRINGS: Final = {preset: Pairing(*pair) for preset, pair in _CHOICES["pairings"].items()}
"""The fonts of a new site whose look is no trade's, by its preset."""

_STRONG: Final = 7
"""The least contrast of words that may not be faint: WCAG's level AAA."""
_NEARLY_READABLE: Final = 3
"""Below this contrast, what makes a colour readable makes another of it."""
_NOTICED: Final = 1.2
"""Contrast of two colours from which on somebody notices that they are not the same."""


class Chosen(NamedTuple):
    """The colours of a theme from which the others follow, as `#rrggbb`."""

    primary: str
    accent: str
    background: str


def chosen_colours(theme: Theme) -> Chosen:
    """Return a theme's own colours, and its preset's where it has none."""
    preset = PRESETS[theme.preset]
    own = (theme.primary or preset.primary, theme.accent or preset.accent, theme.background or preset.background)
    return Chosen(*map(parse_colour, own))


def palette(theme: Theme, *, dark: bool) -> dict[str, str]:
    """Return the colour of each CSS variable for one of the two schemes, and how a drawing ends on a dark page."""
    primary, accent, background = chosen_colours(theme)
    is_dark = luminance(background) < DARK
    is_night = is_dark and theme.style is not None
    if contrast(primary, background) < _NOTICED <= contrast(accent, background):
        primary = accent  # black buttons on a black page are none
    if dark and not is_dark:
        background, is_dark = mix("#14161a", primary, 0.07), True
    given = primary
    if is_dark and dark:
        primary, accent = (readable(colour, [background], 3.2) for colour in (primary, accent))
    deep = readable(parse_colour(theme.deep), [_text_on(parse_colour(theme.deep))], _ON_DEEP) if theme.deep else None
    if deep and dark and contrast(WHITE, deep) < _ON_DEEP:
        deep = None  # a pale ground among dark ones
    if deep is None and theme.style is not None and (is_night or not is_dark):
        deep = _deep_of_style(primary, background, is_night=is_night, lift=_NIGHT if theme.fills else _DUSK)
    tint = _tint(theme, Chosen(primary, accent, background), is_dark=is_dark, is_night=is_night)
    colours = _palette(primary, accent, background, is_dark=is_dark, tint=tint, deep=deep)
    if (
        theme.fills
        and is_dark
        and contrast(given, colours["link"]) > _ANOTHER
        and contrast(given, background) >= _NOTICED
    ):
        link = readable(accent, [colours[name] for name in ("bg", "surface", "tint")], MIN_TEXT_CONTRAST + 0.1)
        colours |= {"fill": given, "fill-hover": _hovered(given), "on-fill": _text_on(given), "link": link}
    if theme.buttons is not None:
        own, grounds = parse_colour(theme.buttons), [colours[name] for name in ("bg", "surface", "tint")]
        words = readable(own, grounds, MIN_TEXT_CONTRAST + 0.1)
        colours |= {"button": own, "on-button": _text_on(own), "button-words": words}
    if theme.style is not None:
        grounds = [colours[name] for name in ("bg", "surface", "tint")]
        ink = _inked(theme.ink, colours["ink"], grounds) if theme.ink else colours["ink"]
        colours |= _of_style({**colours, "ink": ink}, is_night=is_night, is_dark=is_dark)
    return colours | _words_of(theme, colours)


def _tint(theme: Theme, chosen: Chosen, *, is_dark: bool, is_night: bool) -> str:
    """Return the ground of each second section."""
    primary, accent, background = chosen
    is_paper = theme.style is not None and not is_dark
    hue = _text_on(background) if is_night or (is_paper and is_red(primary)) else primary  # not muddy brown, not pink
    share = 0.12 if is_dark and luminance(primary) <= _PALE else 0.07
    if is_night and theme.fills and luminance(background) < _NEARLY_BLACK:
        share = _NIGHT
    lights = channels(background)
    if is_paper and (max(lights) - min(lights) >= _CREAM[0] or luminance(background) < _CREAM[1]):
        hue, share = "#" + "".join(f"{light * light // 255:02x}" for light in lights), 0.7
    elif is_paper and not is_red(accent, most_green=_PEACH):
        hue, share = accent, 0.09
    return mix(background, hue, share)


def _of_style(colours: Mapping[str, str], *, is_night: bool, is_dark: bool) -> dict[str, str]:
    """Return what a page with a style has beside: the panel of its form, its drawings, what is light on dark ground."""
    is_one = contrast(colours["fill"], colours["deep"]) < _ALIKE
    panel, words = ("deep", "on-deep") if is_night else ("tint", "ink") if is_one else ("fill", "on-fill")
    dark = colours["deep" if luminance(colours["deep"]) < DARK else "ink"]
    is_another = contrast(colours["accent"], colours["deep-accent"]) > _ANOTHER
    light = colours["on-deep"] if is_dark else readable(colours["bg"], [colours["deep"], colours["deep-card"]], 7)
    return {
        "panel": colours[panel],
        "on-panel": colours[words],
        "on-deep": light,
        "deep-accent": light if is_another else colours["deep-accent"],
        "art-deep": colours["deep"] if is_dark else mix(dark, BLACK, 0.5),
        "art-light": light if is_dark else colours["surface"],
        "fade": "14%" if is_night else "0%",
    }


def _deep_of_style(primary: str, background: str, *, is_night: bool, lift: float) -> str:
    """Return the dark ground of a page with a style: of its own colour, darker of a red, and a grey on a dark page."""
    if is_night:
        return mix(background, *((WHITE, lift) if luminance(background) < _NEARLY_BLACK else (BLACK, 0.45)))
    red, green, blue = channels(primary)
    if red > max(green, blue):
        return mix(BLACK, primary, 0.22)
    shades = (mix(primary, BLACK, step / 25) for step in range(25))
    return next(shade for shade in shades if contrast(WHITE, shade) >= _DEEP_CONTRAST)


def _words_of(theme: Theme, colours: Mapping[str, str]) -> dict[str, str]:
    """Return the colours of words, where the theme chooses them."""
    if theme.ink is None and theme.contrast is None:
        return {}
    share, least = (0.1, _STRONG) if theme.contrast else (0.3, MIN_TEXT_CONTRAST + 0.4)
    grounds, in_deep = (
        [colours[name] for name in names] for names in (("bg", "surface", "tint"), ("deep", "deep-card"))
    )
    ink, on_deep = colours["ink"], colours["on-deep"]
    if theme.ink is not None:
        ink = _inked(theme.ink, ink, grounds)
        on_deep = _inked(theme.ink, on_deep, in_deep)
    is_pale = theme.contrast is not None and luminance(colours["deep"]) > _PALE
    links = {"deep-accent": readable(colours["link"], in_deep, MIN_TEXT_CONTRAST + 0.1)} if is_pale else {}
    return links | {
        "ink": ink,
        "muted": readable(mix(ink, colours["bg"], share), grounds, least),
        "on-deep": on_deep,
        "deep-muted": readable(mix(on_deep, colours["deep"], share), in_deep, least),
    }


def _inked(chosen: str, own: str, grounds: Sequence[str]) -> str:
    """Return the chosen colour of words where it is nearly readable, else the builder's own."""
    colour = parse_colour(chosen)
    is_near = min(contrast(colour, ground) for ground in grounds) >= _NEARLY_READABLE
    return readable(colour, grounds, _STRONG) if is_near else own


def _palette(
    primary: str, accent: str, background: str, *, is_dark: bool, tint: str, deep: str | None
) -> dict[str, str]:
    surface = _ground(mix(background, WHITE, 0.06 if is_dark else 0.7), background)
    tint = _ground(tint, background)
    grounds = [background, surface, tint]
    ink = readable(mix(WHITE if is_dark else "#1b1b1f", primary, 0.08), grounds, 9)
    if deep is None:
        deep = mix(mix(BLACK, primary, 0.08 if luminance(primary) > _PALE else 0.22), background, 0.04)
        if not is_dark and contrast(WHITE, primary) >= _DEEP_CONTRAST:  # a navy that was asked for is the page's dark
            deep = primary
    on_deep = readable(mix(WHITE, accent, 0.1), [deep], 9)
    veil = deep if luminance(deep) <= _PALE else mix(BLACK, primary, 0.22)  # a picture stays one below its words
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
        "fill-hover": _hovered(primary),
        "on-fill": _text_on(primary),
        "link": readable(primary, grounds, MIN_TEXT_CONTRAST + 0.1),
        "accent": accent,
        "on-accent": _text_on(accent),
        "focus": readable(accent, grounds, 3.1),
        "deep": deep,
        "deep-veil": f"{veil}e6",
        "deep-mist": f"{veil}a6",
        "on-veil": on_deep if veil == deep else readable(WHITE, [veil], 9),
        "deep-card": raised,
        "on-deep": on_deep,
        "deep-muted": readable(mix(on_deep, deep, 0.3), grounds_in_deep, MIN_TEXT_CONTRAST + 0.4),
        "deep-line": mix(deep, on_deep, 0.2),
        "deep-accent": readable(accent, grounds_in_deep, MIN_TEXT_CONTRAST + 0.1),
    }


def _hovered(colour: str) -> str:
    return mix(colour, BLACK if _text_on(colour) == WHITE else WHITE, 0.16)


def _ground(colour: str, background: str) -> str:
    """Return a second background, moved towards the first until one text colour is readable on both."""
    end = max((BLACK, WHITE), key=lambda candidate: contrast(candidate, background))
    steps = (mix(colour, background, step / 10) for step in range(11))
    return next((ground for ground in steps if contrast(end, ground) >= MIN_TEXT_CONTRAST + 0.05), background)


def font_notes(theme: Mapping[str, Any], lang: str) -> tuple[str, ...]:
    """Return a note, in a language, for each family that a theme names as it is written and a site has the like of."""
    named = dict.fromkeys(str(theme[role]) for role in ("font", "headings", "text") if theme.get(role))
    looks = {name: NEAREST[name.casefold()] for name in named if name.casefold() in NEAREST}
    return tuple(
        say("{name} is set in the {look} fonts that a visitor has, the nearest in look", lang, name=name, look=look)
        for name, look in looks.items()
    )


def contrast_note(theme: Theme, lang: str) -> str | None:
    """Return a note, in a language, that words do not have a theme's primary colour, as it would be unreadable."""
    if theme.primary is None:
        return None
    colours = palette(theme, dark=theme.mode == "dark")
    chosen, used = parse_colour(theme.primary), colours["link"]
    if theme.fills and colours["fill"] == chosen:
        return None
    least = min(contrast(chosen, colours[ground]) for ground in ("bg", "surface", "tint"))
    if least >= MIN_TEXT_CONTRAST or contrast(chosen, used) < _NOTICED:
        return None
    return say(
        "words in the colour chosen would be hard to read here, so they have its nearest shade that is not", lang
    )


def _text_on(colour: str) -> str:
    """Return white or a dark tint of the colour, whichever is readable."""
    if contrast(WHITE, colour) >= MIN_TEXT_CONTRAST:
        return WHITE
    return readable(mix(colour, BLACK, 0.8), [colour], MIN_TEXT_CONTRAST + 0.1)


def style_classes(theme: Theme) -> tuple[str, ...]:
    """Return the classes of a page: its style, all of which have the rules of the first, own buttons, no icons."""
    style = () if theme.style is None else ("display", theme.style, *(("centered",) if theme.align == "center" else ()))
    own = (("own-buttons",) if theme.buttons else ()) + (("no-icons",) if theme.icons else ())
    return tuple(dict.fromkeys((*style, *own)))


def theme_class(theme: Theme) -> str:
    """Return the class of a page with a theme other than the index page's."""
    return "theme-" + hashlib.sha256(theme.model_dump_json(exclude_none=True).encode()).hexdigest()[:8]


@lru_cache(maxsize=256)  # few themes are in use at a time, and every page that is built asks for its own
def variables_of(selector: str, theme: Theme) -> str:
    """Return the rules that set what a theme chooses, for the elements of a selector."""
    variables = {**_measures(theme), **_colours(theme, dark=theme.mode == "dark")}
    rules = _rule(selector, variables, theme.mode.replace("auto", "light dark"))
    if theme.mode == "auto":
        dark = _rule(selector, _colours(theme, dark=True), None).replace("\n", "\n  ")
        rules += f"\n@media (prefers-color-scheme: dark) {{\n  {dark}\n}}"
    if theme.size:
        rules += f"\n{selector} {{ font-size: {_CHOICES['sizes'][theme.size]}; }}"
    return rules


def fonts_of(theme: Theme) -> tuple[str, str]:
    """Return the fonts of headings and of all other words."""
    preset = PRESETS[theme.preset]
    return theme.headings or theme.font or preset.headings, theme.text or theme.font or preset.font


def _measures(theme: Theme) -> dict[str, str]:
    preset = PRESETS[theme.preset]
    headings, text = fonts_of(theme)
    font = FONTS[headings]
    cards = theme.cards or preset.cards
    radius = _CHOICES["radii"][theme.radius or preset.radius]
    is_centered = (theme.align or preset.align) == "center"
    weight, subheading = _CHOICES["weights"].get(theme.heading_weight, (font.weight, max(font.weight, 600)))
    scale = (
        f"{float(font.scale) * _CHOICES['heading_sizes'][theme.heading_size]:.2f}" if theme.heading_size else font.scale
    )
    return {
        "font": FONTS[text].stack,
        "font-headings": font.stack,
        "heading-weight": str(weight),
        "subheading-weight": str(subheading),
        "heading-tracking": font.tracking,
        "heading-scale": scale,
        "radius": radius,
        "space": _CHOICES["spacings"][theme.spacing or "regular"],
        "intro-align": "center" if is_centered else "start",
        "intro-margin": "auto" if is_centered else "0",
        "card-border": _CHOICES["cards"][cards]["border"],
        "card-shadow": _CHOICES["cards"][cards]["shadow"],
        "card-padding": "1.4rem 0 0" if cards == "open" else "clamp(1.4rem, 1rem + 1.2vw, 1.9rem)",
        "card-radius": "0" if cards == "open" else radius,
    }


def _colours(theme: Theme, *, dark: bool) -> dict[str, str]:
    colours = palette(theme, dark=dark)
    grounds = _CHOICES["cards"][theme.cards or PRESETS[theme.preset].cards]["grounds"]
    grounds = {**grounds, "card-on-deep": "deep-card" if grounds["card"] else None}
    return {**colours, **{name: colours[ground] if ground else "transparent" for name, ground in grounds.items()}}


def _rule(selector: str, variables: Mapping[str, str], scheme: str | None) -> str:
    lines = [f"  color-scheme: {scheme};"] if scheme else []
    lines += [f"  --{name}: {value};" for name, value in variables.items()]
    return f"{selector} {{\n" + "\n".join(lines) + "\n}"

"""How strongly a new site speaks, by its colours and fonts: an owner who asks for loud gets colours that shout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from sites.spec.catalog import Tone
from sites.spec.fonts.families import FONTS
from sites.spec.theme import (
    BLACK,
    DARK,
    MIN_TEXT_CONTRAST,
    WHITE,
    Style,
    Theme,
    channels,
    chosen_colours,
    contrast,
    fonts_of,
    is_red,
    luminance,
    mix,
    parse_colour,
)

_LOUD: Final = 0.75
"""Chroma of neon, signal red or lava; that of brick and petrol is about a half."""
_STRONG: Final = (0.08, 0.15)
"""From this chroma and saturation on, a colour is taken for one, not for a grey."""
_BRIGHT: Final = 0.25
"""From this luminance on, a colour looks good behind black words."""
_NIGHT: Final = 0.05
"""Luminance of a ground on which a loud colour glows."""
_COLOURS: Final = ("filled", "accent")
_POSTER_FONTS: Final = frozenset({"oswald-1", "condensed"})


STYLES: Final = (
    "display: large and calm; poster: loud, in capitals; editorial: a printed page, headings beside ruled lines on "
    "paper, for crafts, books, law, food and all that is old or quiet; tiles: rounded panels, for children, cafés, "
    "care, sport and all that is friendly"
)
"""What a model is told of the styles."""
Ground = Literal["primary", "accent", "none"]
"""The colour on which the opening of a new site and one band stand."""
GROUNDS: Final = (
    "the colour on which the opening and a band stand; none where colour is to stay small: one spark, all else quiet"
)
"""What a model is told of the grounds."""
_SHAPES: Final[Mapping[Style, Mapping[str, str]]] = {
    "editorial": {"radius": "none", "cards": "open"},
    "poster": {"radius": "none"},
    "tiles": {"radius": "large", "cards": "flat"},
}
_SMALL: Final = 1.15
"""From this scale of its headings on, a font is small for its size."""


class Look(NamedTuple):
    """What the theme of a new site says of its sections."""

    band: Tone
    """The ground of the one strong section."""
    strip: Tone
    """That of the facts at the foot of the opening: the other colour, if it is one."""
    call: Tone
    """That of a call, which may be louder than the others."""
    style: Style


def _chroma(colour: str) -> float:
    """Return how far a colour is from grey, 0 to 1."""
    lights = channels(colour)
    return (max(lights) - min(lights)) / 255


def _is_colour(colour: str) -> bool:
    least, saturation = _STRONG
    return _chroma(colour) >= max(least, saturation * max(channels(colour)) / 255)


def style_of(theme: Theme) -> Style:
    """Return `poster` where colours or letters are loud, else `display`."""
    colours = chosen_colours(theme)
    headings, _ = fonts_of(theme)
    *_, second, first = sorted(map(_chroma, colours))
    is_loud = first >= _LOUD and (second >= _LOUD or luminance(colours.background) < _NIGHT)
    return "poster" if headings in _POSTER_FONTS or (is_loud and not _is_calm(theme)) else "display"


def shape_of(theme: Theme, style: Style) -> Mapping[str, str]:
    """Return what else of a theme is so in a style, where nobody chose.

    Small letters are set larger, and a dark page has its fields in the colour that was asked for.
    """
    _, text = fonts_of(theme)
    larger = {"size": "large"} if float(FONTS[text].scale) >= _SMALL else {}
    is_dark = theme.mode == "dark" or luminance(chosen_colours(theme).background) < DARK
    return {**_SHAPES.get(style, {}), **larger, **({"fills": "true"} if is_dark else {})}


def plain_of(theme: Theme, ground: Ground | None) -> Mapping[str, str]:
    """Return the ground of bands and the colour of words where all is dark on light ground, else nothing.

    Bands are no pink, and of a site whose colour is to stay small they are no further colour; where it also has another
    for words, buttons alone have its own.
    """
    primary, _, background = chosen_colours(theme)
    ink = theme.ink or mix(BLACK, primary, 0.1)
    hue, share = (BLACK, 0.06) if is_red(primary) else (primary, 0.1)
    share = 0 if ground == "none" else share
    deep = theme.deep if theme.deep and luminance(parse_colour(theme.deep)) >= DARK else mix(background, hue, share)
    spark = {"primary": theme.ink, "buttons": primary} if ground == "none" and theme.ink else {}
    return {**spark, **({"deep": deep, "ink": ink} if _is_plain(theme) else {})}


def _is_plain(theme: Theme) -> bool:
    is_light = theme.mode != "dark" and luminance(chosen_colours(theme).background) >= DARK
    return theme.contrast is not None and is_light


def look_of(theme: Theme, *, page: int, ground: Ground | None) -> Look:
    """Return the grounds of the strong parts of a page, which each second further page changes for its other colour.

    A bright field glares on a dark page, and a red or pink one beside letters with serifs. A chosen `ground` is that of
    all pages.
    """
    look = _look_of(theme)
    if _is_plain(theme):
        ground = "none"
    if ground:
        return _with_ground(look, ground)
    has_turn = page > 0 and page % 2 == 0 and look.band in _COLOURS and look.strip in _COLOURS
    return look._replace(band=look.strip, strip=look.band) if has_turn else look


def _with_ground(look: Look, ground: Ground) -> Look:
    if ground == "none":
        quiet: Tone = "tinted" if look.style == "editorial" else "deep"
        return look._replace(band=quiet, strip="deep", call=quiet)
    band: Tone = "filled" if ground == "primary" else "accent"
    return look._replace(band=band, strip="deep" if look.strip == band else look.strip)


def _look_of(theme: Theme) -> Look:
    primary, accent, background = chosen_colours(theme)
    style = theme.style or style_of(theme)
    if luminance(background) < DARK and style != "poster":
        return Look("deep", "filled" if _is_colour(primary) else "tinted", "deep", style)
    may_be_accent = _is_colour(accent) and not (_is_calm(theme) and is_red(accent))
    is_bright = contrast(WHITE, accent) >= MIN_TEXT_CONTRAST or luminance(accent) >= _BRIGHT
    call: Tone = "accent" if _is_colour(accent) and is_bright else "filled"
    if _is_colour(primary):
        return Look("filled", "accent" if may_be_accent else "deep", call, style)
    return Look("accent" if may_be_accent else "deep", "filled", call, style)


def _is_calm(theme: Theme) -> bool:
    return "serif" in FONTS[fonts_of(theme)[0]].stack.replace("sans-serif", "")

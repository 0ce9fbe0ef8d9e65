from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from sites.spec.fonts.families import FONTS
from sites.spec.theme import (
    MIN_TEXT_CONTRAST,
    PRESETS,
    Theme,
    channels,
    contrast,
    contrast_note,
    luminance,
    mix,
    palette,
    parse_colour,
    style_classes,
    theme_class,
    variables_of,
)

TEXT_ON_GROUND = [(text, ground) for text in ("ink", "muted", "link") for ground in ("bg", "surface", "tint")] + [
    ("on-fill", "fill"),
    ("on-accent", "accent"),
    ("on-deep", "deep"),
    ("deep-muted", "deep"),
    ("deep-accent", "deep"),
    ("on-deep", "deep-card"),
    ("deep-muted", "deep-card"),
    ("deep-accent", "deep-card"),
    ("on-fill", "fill-hover"),
]
colours = st.integers(0, 0xFFFFFF).map(lambda number: f"#{number:06x}")


def worst(theme: Theme) -> float:
    palettes = [palette(theme, dark=dark) for dark in (False, True)]
    pairs = [*TEXT_ON_GROUND, *([("on-panel", "panel")] if theme.style else [])]
    return min(contrast(colours[text], colours[ground]) for colours in palettes for text, ground in pairs)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_is_readable_in_light_and_dark(preset: str) -> None:
    assert worst(Theme.model_validate({"preset": preset})) >= MIN_TEXT_CONTRAST


@settings(max_examples=200)
@given(
    primary=colours,
    accent=colours,
    background=colours,
    deep=st.none() | colours,
    ink=st.none() | colours,
    look=st.sampled_from(
        [{}, {"style": "poster"}, {"contrast": "strong", "fills": "true", "style": "display", "mode": "dark"}]
    ),
)
def test_no_choice_of_colours_makes_a_page_unreadable(
    primary: str, accent: str, background: str, deep: str | None, ink: str | None, look: dict[str, str]
) -> None:
    chosen = {"primary": primary, "accent": accent, "background": background, "deep": deep, "ink": ink, **look}
    assert worst(Theme.model_validate(chosen)) >= MIN_TEXT_CONTRAST


def test_words_have_the_colour_that_is_asked_for_and_grey_ones_can_be_strong() -> None:
    amber = palette(Theme(background="#0b0a08", ink="#ffb000", mode="dark"), dark=True)
    assert amber["ink"] == "#ffb000"
    brown, own = palette(Theme(ink="#3a241a"), dark=False), palette(Theme(), dark=False)
    assert (brown["ink"], brown["on-deep"]) == ("#3a241a", own["on-deep"]), "no grey headline on a dark picture"
    assert palette(Theme(ink="#3a241a"), dark=True)["ink"] == palette(Theme(), dark=True)["ink"]
    plain, strong = (palette(Theme.model_validate({"contrast": each}), dark=False) for each in (None, "strong"))
    assert plain["ink"] == strong["ink"]
    assert contrast(strong["muted"], strong["bg"]) > contrast(plain["muted"], plain["bg"]) + 2


@pytest.mark.parametrize(
    ("chosen", "is_noted"),
    [
        ({"primary": "gold"}, True),
        ({"primary": "#1f3350"}, False),
        ({"preset": "clay", "primary": "#47762f", "background": "#f5f8ee"}, False),
        ({"preset": "clay", "primary": "#3f7a5a", "background": "#f5f9f4"}, False),
    ],
    ids=["faint", "dark", "a little faint", "a little faint on paper"],
)
def test_a_colour_that_nobody_could_read_fills_buttons_and_is_mended_for_words_with_a_note(
    chosen: dict[str, Any], is_noted: bool
) -> None:
    theme = Theme(**chosen)
    colours = palette(theme, dark=False)
    assert colours["fill"] == parse_colour(chosen["primary"])
    assert (colours["link"] == colours["fill"]) is (chosen["primary"] == "#1f3350")
    assert (contrast_note(theme, "en") is not None) is is_noted


def test_text_is_larger_only_where_the_theme_says_so() -> None:
    plain, large = (variables_of(":root", Theme(size=size)) for size in (None, "large"))
    assert ":root { font-size: 112.5%; }" in large
    assert plain == large.replace("\n:root { font-size: 112.5%; }", "")
    assert theme_class(Theme(size="larger")) != theme_class(Theme())


def test_headings_have_a_size_and_a_weight_of_their_own() -> None:
    themes = Theme(), Theme(heading_size="huge", heading_weight="light")
    plain, thin = (variables_of(":root", theme) for theme in themes)
    assert "--heading-weight: 700;" in plain
    assert "--heading-scale: 1;" in plain
    assert "--heading-weight: 300;" in thin
    assert "--subheading-weight: 400;" in thin
    assert "--heading-scale: 1.50;" in thin
    assert theme_class(Theme(heading_size="huge")) != theme_class(Theme())


@pytest.mark.parametrize(
    ("chosen", "words", "headings"),
    [
        ({"font": "slab"}, "slab", "slab"),
        ({"headings": "slab"}, "sans", "slab"),
        ({"text": "slab"}, "slab", "sans"),
        ({"font": "mono", "text": "slab"}, "slab", "mono"),
    ],
)
def test_a_font_is_chosen_for_all_words_for_headings_or_for_the_others(
    chosen: dict[str, Any], words: str, headings: str
) -> None:
    sheet = variables_of(":root", Theme.model_validate(chosen))
    assert f"--font: {FONTS[words].stack};" in sheet
    assert f"--font-headings: {FONTS[headings].stack};" in sheet


@pytest.mark.parametrize(("value", "expected"), [("#ABC", "#aabbcc"), ("Teal", "#008080"), ("#12ab34", "#12ab34")])
def test_colours_are_read_in_each_accepted_form(value: str, expected: str) -> None:
    assert parse_colour(value) == expected


@pytest.mark.parametrize("value", ["red;}", "url(x)", "#12", "var(--x)", "expression(1)", "#gggggg", "", "rgb(1,2,3)"])
def test_anything_else_is_no_colour(value: str) -> None:
    with pytest.raises(ValidationError):
        Theme(primary=value)


def test_contrast_follows_wcag() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    assert mix("#000000", "#ffffff", 0.5) == "#808080"


def test_a_dark_colour_that_was_asked_for_is_the_dark_of_the_page() -> None:
    assert palette(Theme(primary="navy", accent="coral"), dark=False)["deep"] == "#000080"
    for theme in (Theme(primary="navy", background="#10131a"), Theme(primary="teal")):
        colours = palette(theme, dark=False)
        assert colours["deep"] != colours["fill"]


def test_the_ground_of_deep_sections_can_be_chosen() -> None:
    fog = Theme(primary="#40655f", background="#eef2ee", deep="#c9d6d0")
    assert palette(fog, dark=False)["deep"] == "#c9d6d0"
    assert contrast("#ffffff", palette(fog, dark=True)["deep"]) > 12
    sea = Theme(deep="#1d4f5c")
    assert [palette(sea, dark=dark)["deep"] for dark in (False, True)] == ["#1d4f5c"] * 2


def test_the_dark_of_a_page_with_a_style_has_its_colour_and_that_of_a_dark_page_is_grey() -> None:
    red = {"preset": "slate", "primary": "#c1261d"}
    deep = palette(Theme(**red, style="display"), dark=False)["deep"]
    assert 18 < contrast("#ffffff", deep) < 18.5, "neither black nor oxblood: four owners saw a black slab"
    green = palette(Theme(primary="#2f7a4f", style="display"), dark=False)["deep"]
    assert contrast("#ffffff", green) >= 11
    assert int(green[3:5], 16) > 2 * int(green[1:3], 16)
    assert palette(Theme(primary="#2f7a4f"), dark=False)["deep"] != green
    cream = palette(Theme(**red, background="#faf5ea", style="display"), dark=False)
    assert cream["art-light"] == cream["surface"]
    dark = palette(Theme(**red, style="display"), dark=True)
    assert dark["art-light"] == dark["on-deep"]
    colours = palette(Theme(**red, accent="#8a1a14", style="display"), dark=False)
    assert colours["deep-accent"] == colours["on-deep"]
    night = palette(Theme(**red, background="#121110", style="display"), dark=False)
    assert night["deep"] == night["panel"] == "#2e2e2d"


RED = "#b3261e"


def test_a_page_with_a_style_is_tinted_by_its_accent_else_by_its_colour_and_not_pink_by_a_red() -> None:
    for primary, accent, is_grey in (("#c1261d", RED, True), ("#2f7a4f", RED, False), ("#c1261d", "#e5b23c", False)):
        theme = Theme(primary=primary, accent=accent, background="#ffffff", style="editorial")
        red, green, blue = channels(palette(theme, dark=False)["tint"])
        assert (red == green == blue) is is_grey
    assert style_classes(theme) == ("display", "editorial")
    assert style_classes(Theme()) == ()


def test_fog_is_tinted_by_its_charcoal_and_not_peach_by_an_ember() -> None:
    white = Theme(style="display", primary="#3a3f43", accent="#e2762b", background="#fafafa")
    for fog in (white, white.model_copy(update={"background": "#eceeed"})):
        lights = channels(palette(fog, dark=False)["tint"])
        assert max(lights) - min(lights) <= 4
    ochre = white.model_copy(update={"accent": "#c7a873"})
    red, _, blue = channels(palette(ochre, dark=False)["tint"])
    assert red > blue + 5


def test_cream_is_tinted_by_cream_and_its_light_words_are_no_pink() -> None:
    for primary, accent in (("#1f5c8a", "#d9541e"), ("#d9541e", "#1f5c8a"), ("#1f5c8a", RED)):
        colours = palette(Theme(primary=primary, accent=accent, background="#f4f0e4", style="display"), dark=False)
        assert colours["tint"] == "#ece6d2"
        assert colours["on-deep"] == "#f4f0e4"
    fog = palette(Theme(primary="#3b4246", accent="#e0782c", background="#e9ecec", style="display"), dark=False)["tint"]
    assert max(channels(fog)) - min(channels(fog)) < 8, "no pink of fog either"


def test_a_pale_ground_for_deep_sections_lays_no_fog_over_a_picture() -> None:
    """A footer was to be light, and the picture at the top lay under a pale green fog (issue 20)."""
    pale = palette(Theme(primary="#5b6530", deep="#e7ebd6"), dark=False)
    assert contrast(pale["deep-veil"][:7], pale["on-veil"]) >= 9
    assert luminance(pale["deep-veil"][:7]) < 0.1 < luminance(pale["deep"])
    dark = palette(Theme(deep="#123524"), dark=False)
    assert (dark["deep-veil"], dark["on-veil"]) == ("#123524e6", dark["on-deep"])


def test_buttons_alone_have_the_colour_that_was_asked_for() -> None:
    """A baker wanted buttons as dark green as her door, and got the one green that there was (issue 20)."""
    theme = Theme(primary="#6b3f1d", accent="#c98a3c", buttons="#1f4d2e")
    colours = palette(theme, dark=False)
    assert (colours["button"], colours["on-button"], colours["fill"]) == ("#1f4d2e", "#ffffff", "#6b3f1d")
    assert colours["button-words"] == "#1f4d2e"
    pale = palette(theme.model_copy(update={"buttons": "#ffe0a0"}), dark=False)
    assert contrast(pale["button-words"], pale["tint"]) >= MIN_TEXT_CONTRAST
    assert style_classes(theme) == ("own-buttons",)
    assert "button" not in palette(Theme(), dark=False)


def test_a_field_on_a_dark_page_keeps_the_bordeaux_that_was_asked_for_and_words_have_the_brass() -> None:
    """A jazz cellar asked for bordeaux, and its buttons and prices were dusty pink (issue 20)."""
    cellar = Theme(
        primary="#8a2136", accent="#b9914a", background="#120d0d", mode="dark", style="display", fills="true"
    )
    colours = palette(cellar, dark=True)
    assert colours["fill"] == "#8a2136"
    assert contrast(colours["fill"], colours["on-fill"]) >= MIN_TEXT_CONTRAST
    assert contrast(colours["fill-edge"], colours["bg"]) >= 3
    assert colours["link"] == "#b9914a"
    assert contrast_note(cellar, "en") is None
    assert contrast(colours["tint"], colours["bg"]) < 1.2, "bands of grey are not really dark"
    blood = palette(cellar.model_copy(update={"primary": "#a01420"}), dark=True)
    assert (blood["fill"], blood["link"]) == ("#a01420", "#b9914a"), "prices were pink"
    black = cellar.model_copy(update={"primary": "#161010"})
    assert palette(black, dark=True)["fill"] != "#161010"
    plain = Theme(primary="#8a2136", accent="#b9914a", background="#fff8ea", style="display")
    assert palette(plain, dark=False) == palette(plain.model_copy(update={"fills": "true"}), dark=False)


def test_buttons_of_the_page_s_own_colour_have_the_accent_s() -> None:
    theme = Theme(preset="noir", primary="#1c1a19", accent="#f08a24")
    assert palette(theme, dark=False)["fill"] == "#f08a24"
    assert palette(theme.model_copy(update={"primary": "#3a3a3a"}), dark=False)["fill"] == "#3a3a3a"

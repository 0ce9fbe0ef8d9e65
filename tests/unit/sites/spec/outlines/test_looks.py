"""How strongly a new site speaks (issue 20)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from sites.spec.outlines.looks import Ground, Look, look_of, shape_of, style_of
from sites.spec.theme import PRESETS, Style, Theme

LAVA = {"preset": "noir", "primary": "#ff5a1f", "accent": "#b9afa5", "background": "#121110"}


def look(theme: dict[str, Any], *, page: int = 0, ground: Ground | None = None) -> Look:
    return look_of(Theme(**theme), page=page, ground=ground)


def shape(theme: dict[str, Any], style: Style) -> Mapping[str, str]:
    return shape_of(Theme(**theme), style)


@pytest.mark.parametrize(
    ("theme", "style"),
    [
        ({**LAVA, "headings": "inter-1"}, "poster"),
        ({**LAVA, "headings": "playfair-display-1"}, "display"),
        ({"preset": "slate", "primary": "#ff2d95", "accent": "#00e5ff", "headings": "inter-1"}, "poster"),
        ({"preset": "mono", "primary": "#111111", "accent": "#ff4a00", "headings": "inter-1"}, "display"),
        ({"preset": "forest", "headings": "oswald-1"}, "poster"),
        ({"preset": "plum"}, "display"),
    ],
    ids=["lava on black", "elegant", "neon", "one loud colour", "narrow letters", "mild"],
)
def test_loud_colours_and_letters_make_a_poster(theme: dict[str, str], style: str) -> None:
    assert style_of(Theme(**theme)) == style


def test_the_strong_ground_is_a_colour_and_the_strip_the_other_one_if_it_is_a_colour() -> None:
    assert look({"preset": "warm"}) == Look("filled", "accent", "accent", "display")
    assert look({**LAVA, "headings": "oswald-1"}) == Look("filled", "deep", "filled", "poster")
    assert look({"preset": "mono", "accent": "#ff4a00"}) == Look("accent", "filled", "accent", "display")
    assert look({"preset": "forest", "accent": "#b8643a"}).call == "filled", "black on brick is heavy"
    assert look({"preset": "mono"}) == Look("deep", "filled", "filled", "display")
    assert look({"preset": "mono", "primary": "#1f4d3d", "accent": "#e8e2d6"}) == Look(
        "filled", "deep", "filled", "display"
    )
    assert all(look({"preset": preset}).band != look({"preset": preset}).strip for preset in PRESETS)


def test_each_second_further_page_opens_in_the_other_colour_if_there_is_one() -> None:
    bands = [look({"preset": "warm"}, page=page).band for page in range(5)]
    assert bands == ["filled", "filled", "accent", "filled", "accent"]
    assert look({"preset": "mono", "primary": "#1f4d3d", "accent": "#e8e2d6"}, page=2).band == "filled"
    night = {"preset": "noir", "primary": "#d6b36a", "accent": "#c9704a", "background": "#101a24"}
    assert look(night, page=2).band == "deep"


def test_a_chosen_ground_is_that_of_all_pages() -> None:
    for page in (0, 2):
        assert look({"preset": "warm"}, page=page, ground="accent") == Look("accent", "deep", "accent", "display")
        assert look({"preset": "warm"}, page=page, ground="primary") == Look("filled", "accent", "accent", "display")
        assert look({"preset": "warm"}, page=page, ground="none") == Look("deep", "deep", "deep", "display")
        quiet = look({"preset": "warm", "style": "editorial"}, page=page, ground="none")
        assert quiet == Look("tinted", "deep", "tinted", "editorial"), "a black band on quiet paper was heavy"


def test_a_poster_has_corners_and_a_font_of_small_letters_is_set_larger() -> None:
    assert shape({"preset": "sunset", "font": "inter-1"}, "poster") == {"radius": "none"}
    assert shape({"preset": "sunset", "font": "inter-1"}, "display") == {}
    small = {"preset": "mono", "font": "eb-garamond-1"}
    assert shape(small, "editorial") == {"radius": "none", "cards": "open", "size": "large"}
    assert shape({"preset": "mono", "headings": "eb-garamond-1", "text": "inter-1"}, "display") == {}


def test_no_field_glares_on_a_dark_page_nor_a_red_one_on_a_calm_page() -> None:
    night = {"preset": "noir", "primary": "#d6b36a", "accent": "#c9704a", "background": "#101a24"}
    assert look(night) == Look("deep", "filled", "deep", "display")
    red = {"preset": "ink", "primary": "#111111", "accent": "#a8324a"}
    assert look({**red, "headings": "eb-garamond-1"}) == Look("deep", "filled", "accent", "display")
    assert look({**red, "headings": "inter-1"}) == Look("accent", "filled", "accent", "display")

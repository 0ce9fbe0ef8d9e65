"""How strongly a new site speaks (issue 20)."""

from __future__ import annotations

import pytest

from sites.spec.outlines.looks import Look, look_of, shape_of, style_of
from sites.spec.theme import PRESETS

LAVA = {"preset": "noir", "primary": "#ff5a1f", "accent": "#b9afa5", "background": "#121110"}


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
    assert style_of(theme) == style


def test_the_strong_ground_is_a_colour_and_the_strip_the_other_one_if_it_is_a_colour() -> None:
    assert look_of({"preset": "warm"}) == Look("filled", "accent", "accent", "display")
    assert look_of({**LAVA, "headings": "oswald-1"}) == Look("filled", "deep", "filled", "poster")
    assert look_of({"preset": "mono", "accent": "#ff4a00"}) == Look("accent", "filled", "accent", "display")
    assert look_of({"preset": "mono"}) == Look("deep", "filled", "filled", "display")
    assert look_of({"preset": "mono", "primary": "#1f4d3d", "accent": "#e8e2d6"}) == Look(
        "filled", "deep", "filled", "display"
    )
    assert all(look_of({"preset": preset}).band != look_of({"preset": preset}).strip for preset in PRESETS)


def test_each_second_further_page_opens_in_the_other_colour_if_there_is_one() -> None:
    bands = [look_of({"preset": "warm"}, page=page).band for page in range(5)]
    assert bands == ["filled", "filled", "accent", "filled", "accent"]
    assert look_of({"preset": "mono", "primary": "#1f4d3d", "accent": "#e8e2d6"}, page=2).band == "filled"
    night = {"preset": "noir", "primary": "#d6b36a", "accent": "#c9704a", "background": "#101a24"}
    assert look_of(night, page=2).band == "deep"


def test_a_chosen_ground_is_that_of_all_pages() -> None:
    for page in (0, 2):
        assert look_of({"preset": "warm"}, page=page, ground="accent") == Look("accent", "deep", "accent", "display")
        assert look_of({"preset": "warm"}, page=page, ground="primary") == Look("filled", "accent", "accent", "display")
        assert look_of({"preset": "warm"}, page=page, ground="none") == Look("deep", "deep", "deep", "display")


def test_a_poster_has_corners_and_a_font_of_small_letters_is_set_larger() -> None:
    assert shape_of({"preset": "sunset", "font": "inter-1"}, "poster") == {"radius": "none"}
    assert shape_of({"preset": "sunset", "font": "inter-1"}, "display") == {}
    small = {"preset": "mono", "font": "eb-garamond-1"}
    assert shape_of(small, "editorial") == {"radius": "none", "cards": "open", "size": "large"}
    assert shape_of({"preset": "mono", "headings": "eb-garamond-1", "text": "inter-1"}, "display") == {}


def test_no_field_glares_on_a_dark_page_nor_a_red_one_on_a_calm_page() -> None:
    night = {"preset": "noir", "primary": "#d6b36a", "accent": "#c9704a", "background": "#101a24"}
    assert look_of(night) == Look("deep", "filled", "deep", "display")
    red = {"preset": "ink", "primary": "#111111", "accent": "#a8324a"}
    assert look_of({**red, "headings": "eb-garamond-1"}) == Look("deep", "filled", "accent", "display")
    assert look_of({**red, "headings": "inter-1"}) == Look("accent", "filled", "accent", "display")

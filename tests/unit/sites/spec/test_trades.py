from __future__ import annotations

from typing import Any, get_args

import pytest

from sites.spec.html import ArtName
from sites.spec.model import INDEX
from sites.spec.outline import expand_outline, outline_schema
from sites.spec.render import render
from sites.spec.theme import FONTS, PRESETS
from sites.spec.trades import TRADES, trade_of


def opening(**outline: Any) -> tuple[dict[str, Any], str]:
    """Return the theme and the drawing of a new site."""
    elements = expand_outline({"name": "Noor", "sections": [{"kind": "Hero"}], **outline}).pages[INDEX]["elements"]
    return elements["page"]["props"]["theme"], elements["hero"]["props"]["art"]


def test_every_trade_has_a_look_that_there_is_and_the_model_may_name_it() -> None:
    for trade in TRADES.values():
        assert trade.preset in PRESETS
        assert trade.headings in FONTS
        assert trade.art in get_args(ArtName)
    assert outline_schema()["properties"]["trade"]["enum"] == list(TRADES)


@pytest.mark.parametrize("trade", TRADES)
def test_a_new_site_looks_like_its_trade(trade: str) -> None:
    theme, art = opening(trade=trade)
    assert (theme["preset"], theme["headings"], art) == TRADES[trade][:3]
    assert theme.get("mode", "auto") == TRADES[trade].mode
    assert render(expand_outline({"name": "Noor", "trade": trade, "sections": [{"kind": "Hero"}]}))


def test_what_the_request_asks_for_goes_before_the_trade() -> None:
    theme, art = opening(trade="hotel", theme={"preset": "noir", "art": "waves"})
    assert (theme, art) == ({"preset": "noir"}, "waves")
    assert opening(trade="hotel", theme={"headings": "mono"})[0]["headings"] == "mono"
    assert "headings" not in opening(trade="hotel", theme={"font": "slab"})[0]


@pytest.mark.parametrize(
    ("text", "trade"),
    [
        ("Landhotel Sonne", "hotel"),
        ("Zahnarztpraxis Dr. Weiß", "dentist"),
        ("Boulangerie du Port", "bakery"),
        ("Une avocate et deux avocats", "law"),
        ("Photographe de mariage", "photographer"),
        ("City bikes, repaired in a day", "bikes"),
        ("The inner ring", None),
        ("A barber in Leeds", None),
        ("", None),
    ],
)
def test_a_trade_is_known_by_its_words_in_several_languages(text: str, trade: str | None) -> None:
    assert trade_of(None, text) == (TRADES[trade] if trade else None)


def test_the_first_text_that_names_a_trade_decides() -> None:
    assert trade_of("Hotel Post", "with a restaurant, a bistro and a cafe") == TRADES["hotel"]

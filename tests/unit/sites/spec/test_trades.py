from __future__ import annotations

from typing import Any, get_args

import pytest

from sites.spec.catalog import HeroLayout, IconName
from sites.spec.fonts.families import FONTS
from sites.spec.html import ArtName
from sites.spec.model import INDEX
from sites.spec.outline import expand_outline, outline_schema
from sites.spec.outlines.arrange import opening_of
from sites.spec.render import render
from sites.spec.theme import PAIRINGS, PRESETS
from sites.spec.trades import ICONS, TRADES, icons_of, trade_of

SMALL_TOWN = {
    "confectioner": (
        "I bake celebration cakes",
        "Hochzeitstorten",
        "Gâteaux de fête",
        "Pastelería Luz",
        "Pasticceria Ida",
    ),
    "bakery": ("Bakery", "Bäckerei Holm", "Boulangerie", "Panadería", "Panificio"),
    "florist": ("Florist on the square", "Blumenladen Rosa", "Fleuriste à Namur", "Floristería Ana", "Fiori e piante"),
    "bikes": ("Bike shop", "Fahrradladen", "Réparation de vélos", "Tienda de bicicletas", "Negozio di biciclette"),
    "physiotherapist": (
        "A physiotherapy practice",
        "Praxis für Physiotherapie",
        "Cabinet de kinésithérapie",
        "Clínica de fisioterapia",
        "Fisioterapia Rossi",
    ),
    "dance": ("Dance school", "Tanzschule Kern", "École de danse", "Escuela de baile", "Scuola di danza"),
    "pets": (
        "Veterinary clinic",
        "Tierarztpraxis Dr. Weiß",
        "Cabinet vétérinaire",
        "Veterinario",
        "Clinica veterinaria",
    ),
    "plumber": (
        "Plumbing and heating",
        "Sanitär Kern",
        "Plombier-chauffagiste",
        "Fontanería Gil",
        "Idraulico a Trento",
    ),
    "electrician": ("Electrician", "Elektriker in Husum", "Électricien", "Electricista", "Elettricista"),
    "music": ("The town choir", "Kirchenchor St. Anna", "Chorale de Namur", "Coro de Zarautz", "Lezioni di pianoforte"),
    "hairdresser": ("Hair salon", "Friseursalon", "Salon de coiffure", "Peluquería", "Parrucchiera"),
    "garage": ("Garage and tyres", "Autowerkstatt", "Garage Dupont", "Mecánico", "Autofficina"),
    "cafe": ("Coffee bar", "Kaffeehaus", "Café du Port", "Cafetería", "Caffetteria"),
    "clinic": ("Psychotherapist in Leeds", "Hausarzt", "Cabinet médical du médecin", "Médico", "Hypnotherapy"),
    "watersports": ("Surf school", "Segelschule", "École de voile", "Escuela de surf", "Scuola di vela"),
}
"""Trades of a small town as their owners call them, in five languages."""


def opening(**outline: Any) -> tuple[dict[str, Any], str | None]:
    """Return the theme and the drawing of a new site."""
    theme, hero = theme_and_hero(**outline)
    return theme, hero.get("art")


def theme_and_hero(**outline: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    elements = expand_outline({"name": "Noor", "sections": [{"kind": "Hero"}], **outline}).pages[INDEX]["elements"]
    return elements["page"]["props"]["theme"], elements["hero"]["props"]


def test_every_trade_has_a_look_that_there_is_and_the_model_may_name_it() -> None:
    for trade in TRADES.values():
        assert trade.preset in PRESETS
        assert all(FONTS[font].family for font in trade.fonts)
        assert trade.art in (*get_args(ArtName), None)
        assert trade.opening in get_args(HeroLayout)
        assert trade.art or trade.opening == "statement", "only a statement stands without a drawing"
    assert outline_schema()["properties"]["trade"]["enum"] == list(TRADES)


@pytest.mark.parametrize("trade", TRADES)
def test_a_new_site_looks_like_its_trade(trade: str) -> None:
    theme, hero = theme_and_hero(trade=trade)
    fonts = (theme["headings"], theme["text"])
    assert (theme["preset"], fonts, hero.get("art")) == TRADES[trade][:3]
    assert hero["layout"] == opening_of(theme, "Noor", {}, trade=TRADES[trade], drawn=False)
    assert theme["mode"] == ("dark" if TRADES[trade].preset == "noir" else TRADES[trade].mode)
    assert render(expand_outline({"name": "Noor", "trade": trade, "sections": [{"kind": "Hero"}]}))


def test_what_the_request_asks_for_goes_before_the_trade() -> None:
    theme, art = opening(trade="hotel", theme={"preset": "noir", "art": "waves"})
    asked = {"preset": "noir", **PAIRINGS["noir"]._asdict()}
    assert (theme, art) == ({**asked, "align": "left", "mode": "dark", "fills": "true", "style": "display"}, "waves")
    assert opening(trade="hotel", theme={"headings": "mono"})[0]["headings"] == "mono"
    assert "headings" not in opening(trade="hotel", theme={"font": "slab"})[0]


@pytest.mark.parametrize(
    ("asked", "font"), [("serif", "fraunces-1"), ("Playfair Display", "playfair-display-1"), ("Lato", "figtree-1")]
)
def test_a_new_site_has_no_font_that_a_visitor_may_lack(asked: str, font: str) -> None:
    assert opening(trade="hotel", theme={"headings": asked})[0]["headings"] == font
    for preset in PRESETS:
        assert all(FONTS[chosen].family for chosen in PAIRINGS[preset])


def test_a_drawing_that_was_asked_for_stands_beside_the_words() -> None:
    _, hero = theme_and_hero(trade="photographer", theme={"art": "hills"})
    assert (hero["art"], hero["layout"]) == ("hills", "mirrored")


@pytest.mark.parametrize(
    ("entries", "icons"),
    [
        ([("Reparaturen",), ("Sauerteigkurs",)], ("tools", "bread")),
        ([("Einzelzimmer", "Zum Garten."), ("Doppelzimmer", "Nach Süden.")], ("bed", "sun")),
        ([("Einzelzimmer",), ("Doppelzimmer",)], ()),
        ([("Reparaturen",), ("Xyz",)], ()),
        ([("A barcode",)], ()),
    ],
)
def test_entries_get_icons_of_their_subject_if_there_is_another_for_each(
    entries: list[tuple[str, ...]], icons: tuple[str, ...]
) -> None:
    assert icons_of(entries) == icons


def test_every_icon_that_words_name_is_in_the_catalog() -> None:
    assert set(ICONS) <= set(get_args(IconName))


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
        ("The guidance of an attendance list", None),
        ("A barber in Leeds", "hairdresser"),
        *((text, trade) for trade, texts in SMALL_TOWN.items() for text in texts),
        ("", None),
    ],
)
def test_a_trade_is_known_by_its_words_in_several_languages(text: str, trade: str | None) -> None:
    assert trade_of(None, text) == (TRADES[trade] if trade else None)


def test_the_first_text_that_names_a_trade_decides() -> None:
    assert trade_of("Hotel Post", "with a restaurant, a bistro and a cafe") == TRADES["hotel"]

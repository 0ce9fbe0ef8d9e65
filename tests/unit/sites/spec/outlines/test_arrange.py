"""How the sections of a new site are laid out (issue 20)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sites.spec.catalog import Business, OutlineSection, components
from sites.spec.outlines.arrange import arranged, opening_of, repeats
from sites.spec.outlines.looks import Look
from sites.spec.trades import TRADES

CONTACT = {"phone": "01422 555 0182", "email": "dot@akers.example", "address": "Chapel Row"}
AKERS = Business(name="Dot Akers", **CONTACT, hours=({"days": "Thu", "time": "10-16"},))
LOOK = Look(band="filled", strip="accent", call="accent", style="display")
FORM = {"heading": "Write", **AKERS.contact_props()}
PLACE = {"heading": "Find me", "address": "Chapel Row"}
FACTS = {"text": "We collect swarms of honeybees. " * 3, "items": [{"title": "Until 9pm"}]}
LONG = {"heading": "A swarm of honeybees in your garden? Ring us."}


def offers(count: int, text: str = "", **props: str) -> tuple[str, dict[str, Any]]:
    item = {"title": "Chairs", **({"text": text} if text else {}), **props}
    return "Features", {"items": [dict(item) for _ in range(count)]}


def layouts(*sections: tuple[str, dict[str, Any]]) -> list[str]:
    return [props["layout"] for _, props in arranged(list(sections), AKERS, LOOK)]


@pytest.mark.parametrize(
    ("section", "layout"),
    [
        (offers(5), "list"),
        (offers(3), "list"),
        (offers(5, "Woven by hand."), "list"),
        (offers(3, "Woven by hand."), "cards"),
        (offers(3, "Woven by hand. " * 10), "rows"),
        (offers(6, "Woven by hand. " * 10), "cards"),
        (offers(4, "Woven by hand.", icon="hand"), "plain"),
        (offers(4, "Woven by hand, and as you like it to sit on.", icon="hand"), "cards"),
    ],
    ids=[
        "no texts",
        "three names",
        "short texts",
        "three short",
        "long texts",
        "many long",
        "icons",
        "icons and texts",
    ],
)
def test_offers_are_set_by_how_many_there_are_and_how_much_they_say(
    section: tuple[str, dict[str, Any]], layout: str
) -> None:
    assert layouts(section) == [layout]


def test_panels_whose_texts_are_of_uneven_length_have_no_frames() -> None:
    """The lower halves of the shorter ones stood empty."""
    for text, layout in (("Woven.", "plain"), ("Woven by hand, as all others are.", "cards")):
        items = [
            {"title": "Chairs", "text": "Woven by hand, and as you like it to sit on."},
            {"title": "Stools", "text": text},
        ]
        [(_, props)] = arranged([("Features", {"items": items})], AKERS, LOOK._replace(style="tiles"))
        assert props["layout"] == layout


def test_two_lists_of_offers_that_follow_each_other_are_not_set_alike() -> None:
    for section in (offers(5), offers(3, "Woven by hand. " * 10), offers(4, "By hand.", icon="hand")):
        assert len(set(layouts(section, section))) == 2


def test_where_a_place_is_when_and_how_to_call_stand_together_above_a_form_alone() -> None:
    body = [("MapLink", PLACE), ("Hero", {}), ("ContactForm", FORM)]
    assert arranged(body, AKERS, LOOK) == [
        ("Hero", {"tone": "filled"}),
        ("MapLink", {**PLACE, "phone": AKERS.phone, "email": AKERS.email, "hours": [*AKERS.hours]}),
        ("ContactForm", {"heading": "Write", "email": AKERS.email, "tone": "tinted"}),
    ]


def test_a_place_without_a_form_says_how_to_call_and_a_form_without_a_place_keeps_all() -> None:
    [(_, place)] = arranged([("MapLink", PLACE)], AKERS, LOOK)
    assert place["phone"] == AKERS.phone
    assert arranged([("ContactForm", FORM)], AKERS, LOOK) == [("ContactForm", FORM)]


@pytest.mark.parametrize(
    ("heading", "shown"),
    [("Unit 4, Brick Row", "Find us"), ("Am Storchen in Brick Row", "Find us"), ("Find the kettle", "Find the kettle")],
)
def test_a_heading_that_is_the_address_is_said_once(heading: str, shown: str) -> None:
    business = Business(name="Dot Akers", address="Unit 4, Am Storchen, Brick Row, Stroud")
    section = OutlineSection("MapLink", heading, None, ({"text": "Brick Row, Stroud."}, {"text": "Unit 4, by bus 61."}))
    outline = components()["MapLink"].outline
    assert outline is not None
    props = outline(section, business)
    assert (props["heading"], props["directions"]) == (shown, ["By bus 61."])


@pytest.mark.parametrize(
    ("style", "hero", "opening"),
    [
        ("editorial", FACTS, "masthead"),
        ("editorial", FACTS | LONG, "mirrored"),
        ("editorial", FACTS | {"items": []}, "mirrored"),
        ("tiles", LONG, "wide"),
        ("display", LONG, "wide"),
        ("poster", {"text": "We collect swarms of honeybees. " * 3}, "wide"),
    ],
    ids=[
        "facts",
        "a long heading",
        "no facts beside the picture",
        "few words",
        "display",
        "poster",
    ],
)
def test_an_opening_beside_a_drawing_is_of_its_style_and_of_what_it_says(
    style: str, hero: dict[str, Any], opening: str
) -> None:
    assert opening_of({"style": style}, "Noor", hero, trade=None, drawn=True) == opening


def test_an_opening_is_its_trades_or_else_one_by_the_name() -> None:
    display = {"style": "display"}
    assert opening_of(display, "Noor", {}, trade=TRADES["outdoors"], drawn=False) == "statement"
    assert opening_of({"style": "poster"}, "Noor", {}, trade=None, drawn=False) != "wide"  # it has no picture
    names = ("Noor", "Noos", "Noot")
    openings = {opening_of(display, name, {}, trade=TRADES["plumber"], drawn=False) for name in names}
    assert openings == {"split", "mirrored"}


def test_few_short_answers_show_at_once_and_others_are_folded() -> None:
    for count, answer, shown in ((6, "No.", "all"), (7, "No.", True), (3, "No. " * 80, True)):
        [(_, props)] = arranged([("FAQ", {"items": [{"answer": answer}] * count, "open": True})], AKERS, LOOK)
        assert props["open"] == shown


POSTER = LOOK._replace(style="poster")
EDITORIAL = LOOK._replace(style="editorial")


def tones(*body: tuple[str, dict[str, Any]], look: Look = LOOK) -> list[str]:
    return [props.get("tone", "plain") for _, props in arranged(list(body), AKERS, look)]


def test_one_section_of_a_page_is_strong_the_one_that_it_suits_best_and_none_meets_the_dark_footer_as_dark() -> None:
    hero, faq, text = ("Hero", {}), ("FAQ", {"items": []}), ("RichText", {"body": "Seventeen years."})
    assert tones(hero, offers(3), ("PriceList", {}), text, faq) == ["filled", "plain", "tinted", "deep", "plain"]
    assert tones(hero, offers(3), ("Stats", {}), text, faq)[2:4] == ["deep", "plain"]
    assert tones(hero, offers(3), ("RichText", {"body": "Long. " * 80}), faq)[1:] == ["plain", "plain", "tinted"]
    assert tones(hero, text, ("MapLink", PLACE))[1:] == ["plain", "tinted"]
    assert tones(hero, offers(3), ("Stats", {}), ("MapLink", PLACE))[1:] == ["plain", "deep", "plain"]
    assert tones(("PageIntro", {}), ("Stats", {})) == ["filled", "plain"]
    assert tones(hero, offers(3), ("Stats", {}), ("CallToAction", {}))[2:] == ["tinted", "accent"]
    reading = "Schedule", {"items": [{"time": "7 pm", "title": "Reading"}]}
    assert tones(hero, offers(3), ("Stats", {}), reading)[3] == "deep"
    for style in ("editorial", "poster"):  # the one opens on paper, the other may shout twice
        assert tones(hero, offers(3), ("Stats", {}), look=LOOK._replace(style=style))[2] == "filled"


def test_a_printed_page_is_paper_but_for_what_is_said_large() -> None:
    hero = "Hero", {"notes": ["One", "Two", "Three"]}
    prices, text = ("PriceList", {}), ("RichText", {"body": "Two presses."})
    body = (hero, offers(3), prices, text, ("FAQ", {"items": []}), ("MapLink", PLACE))
    assert tones(*body, look=EDITORIAL) == ["plain", "plain", "plain", "filled", "plain", "plain"]
    assert tones(hero, offers(3), prices, look=EDITORIAL) == ["plain"] * 3
    assert tones(hero, offers(3), prices, prices, prices, look=EDITORIAL) == ["plain"] * 3 + ["tinted", "plain"]
    assert tones(hero, offers(3), prices, prices, text, look=EDITORIAL)[3:] == ["plain", "filled"], "never two sheets"
    assert "strip" not in arranged([hero], replace(AKERS, opening="masthead"), EDITORIAL)[0][1]


def test_a_few_prices_stand_large_and_those_of_which_some_have_a_text_as_lines() -> None:
    """Boxes of one price beside one with a text were half empty."""
    prices = [{"title": "Tuning", "price": "€95"}, {"title": "Pitch raise", "price": "€140", "text": "Two visits."}]
    tiles = LOOK._replace(style="tiles")
    for items, look, layout in (
        (prices, LOOK, "figures"),
        (prices, EDITORIAL, "figures"),
        (prices, tiles, None),
        (prices[:1], LOOK, None),
        (prices * 2, LOOK, None),
        ([*prices, {"title": "Repair", "price": "by the hour or day"}], LOOK, None),
        ([*prices, {"title": "Weddings", "price": "by appointment"}], EDITORIAL, None),
        (prices * 2, tiles, "lines"),
        (prices[1:] * 4, tiles, None),
    ):
        [(_, props)] = arranged([("PriceList", {"items": items})], AKERS, look)
        assert props.get("layout") == layout, (items, look)
    _, (_, second) = arranged([("PriceList", {"items": prices})] * 2, AKERS, LOOK)
    assert "layout" not in second, "no two that meet are set alike"


def test_a_call_of_few_words_or_two_buttons_stands_in_the_middle() -> None:
    for props, layout in (
        ({}, "centered"),
        ({"text": "Ring. " * 20}, None),
        ({"text": "Ring. " * 20, "actions": [1, 2]}, "centered"),
    ):
        [(_, found)] = arranged([("CallToAction", props)], AKERS, LOOK)
        assert found.get("layout") == layout


def test_the_facts_of_an_opening_stand_in_a_strip_where_there_are_some() -> None:
    for notes, strip in ((["From €120", "Two", "Three"], "accent"), (["From €120", "Two"], None)):
        [(_, props)] = arranged([("Hero", {"notes": notes})], AKERS, LOOK)
        assert props.get("strip") == strip
    (_, props), _ = arranged([("Hero", {"notes": ["One", "Two", "Three"]}), ("CallToAction", {})], AKERS, LOOK)
    assert props["strip"] == "deep"  # which does not run into the call
    sheet = arranged([("Hero", {"notes": ["One", "Two", "Three"]})], replace(AKERS, opening="statement"), POSTER)
    assert sheet[0][1]["strip"] == "accent"


@pytest.mark.parametrize(
    ("heading", "page", "is_said"),
    [("Unser Team", "Team", True), ("Find us", "Find us", True), ("How we find your right bike", "Find us", False)],
)
def test_the_first_heading_of_a_further_page_that_only_says_its_name_is_said_twice(
    heading: str, page: str, is_said: bool
) -> None:
    assert repeats(heading, page) is is_said


@pytest.mark.parametrize(
    ("look", "opening", "tone"),
    [
        (LOOK, "split", "filled"),
        (LOOK, "wide", "filled"),
        (LOOK._replace(band="accent"), "mirrored", "accent"),
        (LOOK._replace(band="deep"), "split", None),
        (LOOK._replace(style="editorial"), "split", None),
        (POSTER, "statement", "filled"),
        (LOOK, "statement", None),
        (LOOK, "cover", None),
    ],
    ids=[
        "its colour",
        "above a picture",
        "its other colour",
        "a dark page",
        "a printed page",
        "a poster",
        "words alone",
        "over a picture",
    ],
)
def test_the_words_of_an_opening_stand_on_the_site_s_own_colour(look: Look, opening: Any, tone: str | None) -> None:
    [(_, props)] = arranged([("Hero", {})], replace(AKERS, opening=opening), look)
    assert props.get("tone") == tone


def test_an_opening_whose_heading_has_a_long_word_or_number_is_set_smaller() -> None:
    for heading, is_long in (("Emergency? 01982\xa0555\xa00188", True), ("Sleep beside a light", False)):
        [(_, props)] = arranged([("Hero", {"heading": heading})], AKERS, LOOK)
        assert props.get("long", False) is is_long
    [(_, props)] = arranged([("Hero", {"heading": "Big\xa0holds."})], AKERS, LOOK._replace(style="poster"))
    assert props["long"], "capitals are wider"

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from routing.yaml_data import load_yaml
from sites.errors import SpecError
from sites.excerpts import read_page
from sites.links import dead_links
from sites.spec.catalog import components
from sites.spec.drawings.requests import wanted
from sites.spec.edit import apply_edit
from sites.spec.html import say
from sites.spec.model import INDEX
from sites.spec.outline import (
    expand_outline,
    further_languages,
    left_out,
    outline_kinds,
    outline_schema,
    outline_tool,
)
from sites.spec.outlines.arrange import repeats
from sites.spec.outlines.model import Outline
from sites.spec.render import render
from sites.spec.theme import Theme, channels, contrast, palette
from tests.unit.sites.spec.test_model import json_values

OUTLINE: dict[str, Any] = {
    "name": "Northlight Dental",
    "tagline": "Calm dentistry",
    "description": "A calm practice.",
    "theme": {"preset": "ocean"},
    "contact": {"email": "hello@northlight.example", "phone": "+45 70 12 34 56", "address": "1 Hill Road, Aarhus"},
    "sections": [
        {"kind": "Hero", "heading": "Dentistry without the dread", "items": [{"title": "New patients welcome"}]},
        {
            "kind": "Features",
            "heading": "What we do",
            "items": [{"title": "Check-ups", "text": "Thirty unhurried minutes."}],
        },
        {"kind": "Testimonials", "heading": "Kind words", "items": []},
        {"kind": "FAQ", "heading": "Good to know", "items": [{"title": "Do you take insurance?", "text": "Yes."}]},
        {"kind": "CallToAction", "heading": "Ready when you are"},
        {"kind": "ContactForm"},
    ],
}


def kinds(page: str = INDEX, outline: dict[str, Any] = OUTLINE) -> list[str]:
    spec = expand_outline(outline).pages[page]
    return [spec["elements"][key]["type"] for key in spec["elements"]["page"]["children"]]


def with_sections(*sections: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {**OUTLINE, "sections": list(sections), **fields}


def home(*sections: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The elements of the front page, of the outline's own sections unless there are others."""
    return expand_outline(with_sections(*(sections or OUTLINE["sections"]), **fields)).pages[INDEX]["elements"]


def refusal(outline: object) -> tuple[str, str]:
    with pytest.raises(SpecError) as caught:
        expand_outline(outline)
    return caught.value.findings[0].code, caught.value.findings[0].path


SPEC = Path(__file__).parents[4] / "sites" / "spec"
WORDS = load_yaml((SPEC / "words.yaml").read_text())
RECORDED = Path(__file__).parents[3] / "data" / "model_cases"


def test_every_phrase_of_the_builder_is_there_in_every_language() -> None:
    told = SPEC.parents[1] / "workers" / "handlers"
    code = "".join(path.read_text() for root in (SPEC, told) for path in root.rglob("*.py"))
    phrases = {*re.findall(r'say\(\s*[\'"]([^\'"]+)', code), *re.findall(r'nav_label="([^"]+)"', code)}
    assert len(phrases) > 30
    for lang, words in WORDS.items():
        assert set(words) == phrases if lang != "familiar" else {key.split(": ")[1] for key in words} <= phrases, lang


def test_a_german_site_has_no_english_words_of_the_builder() -> None:
    [reply] = json.loads((RECORDED / "joinery_de.json").read_text())
    pages = render(expand_outline(reply["input"]))
    shown = re.sub(r"<style.*?</style>|<[^>]*>", "\n", pages[INDEX].decode(), flags=re.DOTALL)
    lines = {line.strip() for line in shown.splitlines()}
    english = {phrase for phrase, german in WORDS["de"].items() if german != phrase}
    assert "Nachricht senden" in lines
    assert not lines & english


def test_a_button_leads_where_the_outline_says() -> None:
    call = {"kind": "CallToAction", "items": [{"title": "Book", "detail": "https://book.example/"}]}
    assert b'href="https://book.example/"' in render(expand_outline(with_sections(call)))[INDEX]


@pytest.mark.parametrize(
    ("given", "labels"),
    [
        ([], ["Get in touch"]),
        ([("Ring", "tel:+4423")], ["Ring"]),
        ([("Ring", "tel:+4423"), ("The rooms", "#features")], ["Ring", "The rooms"]),
    ],
)
def test_an_opening_has_the_buttons_that_its_outline_gives_it_and_one_to_get_in_touch_if_none(
    given: list[tuple[str, str]], labels: list[str]
) -> None:
    hero = {"kind": "Hero", "heading": "x", "items": [{"title": title, "detail": href} for title, href in given]}
    features = {"kind": "Features", "items": [{"title": "A", "text": "b"}]}
    actions = home(hero, features, {"kind": "ContactForm"})["hero"]["props"]["actions"]
    assert [action["label"] for action in actions] == labels


def test_a_number_to_ring_is_the_first_button_and_a_further_way_to_write_stands_beside_the_form() -> None:
    whatsapp = {"title": "WhatsApp", "detail": "https://wa.me/34600555017"}
    ring = {"title": "Ring 958 555 017", "detail": "tel:958555017"}
    elements = home(
        {"kind": "Hero", "items": [ring, {"title": "Since 1982"}, {"title": "Write", "detail": "#contact"}]},
        {"kind": "CallToAction", "items": [ring, whatsapp]},
        {"kind": "ContactForm", "items": [whatsapp, {"title": "Which bike?", "detail": "text"}]},
    )
    header, hero, call, form = (elements[key]["props"] for key in ("header", "hero", "call-to-action", "contact"))
    assert header["action"] == {"label": "Ring 958\xa0555\xa0017", "href": "tel:958555017"}
    assert header["links"][-1] == {"label": "Contact", "href": "index.html#contact"}
    write = {"label": "Write", "href": "index.html#contact"}
    assert hero["actions"] == [{"label": "Ring 958\xa0555\xa0017", "href": "tel:958555017"}, write]
    assert hero["notes"] == ["Since 1982"]
    assert [action["label"] for action in call["actions"]] == ["Ring 958\xa0555\xa0017", "WhatsApp"]
    assert form["links"] == [{"label": "WhatsApp", "href": "https://wa.me/34600555017"}]
    assert [question["label"] for question in form["questions"]] == ["Which bike?"]


def test_each_button_that_rings_has_its_number() -> None:
    said = (("Ring 10.00 - 18.00", "tel:0161555017"), ("Marek", "tel:600000144"))
    hero = {"kind": "Hero", "items": [{"title": title, "detail": detail} for title, detail in said]}
    contact = {"phone": "0161 555 017", "ways": [{"title": "Marek", "detail": "600 000 144"}]}
    elements = home(hero, {**hero, "kind": "CallToAction"}, contact=contact)
    labels, again = (
        [part["label"] for part in elements[key]["props"]["actions"]] for key in ("hero", "call-to-action")
    )
    assert labels == again == ["Ring 10.00\xa0-\xa018.00 · 0161\xa0555\xa0017", "Marek 600\xa0000\xa0144"]
    page = render(expand_outline(with_sections(hero) | {"contact": contact}))[INDEX].decode()
    assert '">Ring 10.00\xa0-\xa018.00 · <span class="number">0161\xa0555\xa0017</span></a>' in page
    long = {"kind": "Hero", "items": [{"title": "Ring " + "and ring " * 6, "detail": "tel:0161555017"}]}
    assert home(long, contact=contact)["hero"]["props"]["actions"][0]["label"].endswith("and 0161\xa0555\xa0017")


RING = ("Ring Bev", "tel:+45 70123456")


@pytest.mark.parametrize(
    ("items", "phone", "actions"),
    [
        ([RING], "+45 70 12 34 56", [("Ring Bev +45 70 12 34 56", "tel:+4570123456")]),
        ([RING], "70 12 34 56", [("Ring Bev 70 12 34 56", "tel:+4570123456")]),
        ([RING], "+45 99 99 99 99", [("Ring Bev", "tel:+4570123456")]),
        ([("Text Bev", "sms:+45 70123456")], "70 12 34 56", [("Text Bev 70 12 34 56", "sms:+4570123456")]),
        ([RING, ("+45 70 12 34 56", None)], "+45 70 12 34 56", [("Ring Bev +45 70 12 34 56", "tel:+4570123456")]),
        ([("+45 70 12 34 56", None), RING], "+45 70 12 34 56", [("Ring Bev +45 70 12 34 56", "tel:+4570123456")]),
        ([("Chiama", "011 555 0182")], "011 555 0182", [("Chiama 011 555 0182", "tel:0115550182")]),
        (
            [("Ring", "tel:011"), ("0115", "tel:011"), ("Book", "#contact"), ("Ask", "#contact")],
            "+45 70 12 34 56",
            [("Ring", "tel:011"), ("Book", "index.html#contact"), ("Ask", "index.html#contact")],
        ),
    ],
    ids=["a button", "without its country", "another's", "a text", "a fact", "a fact first", "blanks", "a form"],
)
def test_a_number_has_one_button_which_shows_it_to_those_who_have_no_telephone_before_them(
    items: list[tuple[str, str | None]], phone: str, actions: list[tuple[str, str]]
) -> None:
    """Of a shop in Italy it stood as dead text among the facts, as that language keeps its blanks (issue 20)."""
    hero = {"kind": "Hero", "heading": "Two vans", "items": [{"title": name, "detail": to} for name, to in items]}
    contact = {"email": "a@b.example", "phone": phone}
    for lang in ("en", "it"):
        props = home(hero, {"kind": "ContactForm"}, contact=contact, lang=lang)["hero"]["props"]
        shown = [(action["label"].replace("\xa0", " "), action["href"]) for action in props["actions"]]
        assert [each for each in shown if each[0] != say("Get in touch", lang)] == actions
        assert "notes" not in props


def test_the_time_of_a_weekly_lesson_is_not_cut() -> None:
    when = "Dienstag und Donnerstag, 18:30\xa0–\xa020:00\xa0Uhr"
    (entry,) = home({"kind": "Schedule", "items": [{"title": "Theorie", "detail": when}]})["schedule"]["props"]["items"]
    assert when in entry.values()


def test_a_workshop_for_motorbikes_opens_with_one_and_no_car() -> None:
    elements = home(name="Motos Benamor", tagline="Taller de motos clásicas")
    assert elements["hero"]["props"]["art"] == "motorbike"


def test_the_tool_takes_an_outline_without_sections_beside_a_question() -> None:
    assert "minItems" not in outline_tool()["input_schema"]["properties"]["sections"]


def test_the_drawing_of_the_opening_is_the_outline_s_choice_and_never_a_chart_by_chance() -> None:
    assert home(theme={"art": "hills"})["hero"]["props"]["art"] == "hills"
    assert "dashboard" not in {home(name=f"Shop {n}", theme={})["hero"]["props"]["art"] for n in range(20)}


def test_what_lacks_an_address_is_left_out_and_named() -> None:
    form = with_sections({"kind": "Hero"}, {"kind": "ContactForm"}, {"kind": "MapLink"}, contact={"address": "Here"})
    assert left_out(form, "de") == ("Kontaktformular",)
    asking = {"kind": "ContactForm", "items": [{"title": "Postcode"}]}
    assert left_out(with_sections({"kind": "Hero"}, asking, contact={"phone": "01632 960 730"}), "de") == ()
    assert left_out(OUTLINE, "en") == ("Reviews",)


def test_a_form_without_an_address_shows_the_number_and_what_it_will_ask_when_there_is_one() -> None:
    """An owner who asked for a form saw none, because its address was still to be asked for (trial 18)."""
    outlined = {"kind": "ContactForm", "items": [{"title": "Postcode"}]}
    contact = {"phone": "01632 960 730", "address": "Hexley"}
    site = expand_outline(with_sections({"kind": "Hero"}, {"kind": "MapLink"}, outlined, contact=contact))
    assert [each["label"] for each in site.pages[INDEX]["elements"]["contact"]["props"]["questions"]] == ["Postcode"]
    waiting = render(site)[INDEX]
    assert b"01632" in waiting[waiting.index(b'id="contact"') :]
    before, form = waiting.split(b"<form")
    assert [word in form for word in (b"inert", b"Postcode", b"<button")] == [True, True, False]
    assert b"This form cannot send yet." in before, "what is inert is read to nobody"
    assert "(form cannot send yet)" in read_page(waiting.decode())
    email = {"op": "add", "path": "/pages/index.html/elements/contact/props/email", "value": "ring@okoro.example"}
    ready = render(apply_edit(site, [email]))[INDEX]
    assert [word in ready for word in (b"Postcode", b"<button", b"inert")] == [True, True, False]


def test_a_new_gallery_shows_drawings_that_differ_with_the_outline_s_captions() -> None:
    work = {"kind": "Gallery", "heading": "Work", "items": [{"title": "Weddings"}, {"title": "Portraits"}]}
    elements = home({"kind": "Hero", "heading": "Weddings"}, work, {"kind": "Gallery"}, trade="photographer")
    images = elements["gallery"]["props"]["images"]
    assert [image["caption"] for image in images] == ["Weddings", "Portraits"]
    assert len({image["art"] for image in images}) == 2
    assert len(elements["gallery-2"]["props"]["images"]) == 3


def test_a_business_without_mail_is_called_and_the_words_to_its_owner_stand_on_no_page() -> None:
    site = expand_outline(with_sections({"kind": "Hero"}, contact={"phone": "+45 (70) 12 34"}, summary="Five pages."))
    assert site.pages[INDEX]["elements"]["hero"]["props"]["actions"][0]["href"] == "tel:+45701234"
    assert "Five pages." not in site.canonical()


@pytest.mark.req("H-011")
def test_an_outline_becomes_a_whole_valid_site() -> None:
    site = expand_outline(OUTLINE)
    assert b"Dentistry without the dread" in render(site)[INDEX]


def test_header_contact_and_footer_come_from_the_catalog() -> None:
    assert kinds() == ["Header", "Hero", "Features", "FAQ", "CallToAction", "ContactForm", "Footer"]


def test_a_style_has_its_shapes_unless_the_outline_asks_for_others() -> None:
    for style, shapes in (("tiles", ("large", "flat")), ("editorial", ("none", "open")), ("display", (None, None))):
        theme = home(theme={"style": style})["page"]["props"]["theme"]
        assert (theme["style"], theme.get("radius"), theme.get("cards")) == (style, *shapes)
    asked = {"style": "tiles", "radius": "none", "cards": "outlined"}
    assert asked.items() <= home(theme=asked)["page"]["props"]["theme"].items()


def test_opening_hours_stand_once_where_one_page_says_how_to_find_the_place() -> None:
    contact = {**OUTLINE["contact"], "address": "High St 1", "hours": [{"days": "Mon", "time": "9-5"}]}
    assert str(home({"kind": "MapLink"}, contact=contact)).count("9-5") == 1
    further = {"kind": "RichText", "text": "Since 1998.", "page": "About"}
    assert str(home({"kind": "MapLink"}, further, contact=contact)).count("9-5") == 2


def test_a_section_with_nothing_to_show_is_left_out_of_page_and_navigation() -> None:
    assert "testimonials" not in str(home())


def test_the_same_outline_gives_the_same_site() -> None:
    assert expand_outline(OUTLINE).digest == expand_outline(dict(reversed(OUTLINE.items()))).digest


def test_sections_that_name_a_page_stand_on_it_with_shared_navigation() -> None:
    outline = with_sections(
        {"kind": "Hero", "heading": "Hi"},
        {"kind": "RichText", "page": "Über uns", "heading": "We", "text": "Since 1998."},
    )
    site = expand_outline(outline)
    assert sorted(site.pages) == [INDEX, "uber-uns.html"]
    assert kinds("uber-uns.html", outline) == ["Shared", "PageIntro", "RichText", "Shared"]
    assert b'<a href="uber-uns.html" aria-current="page">' in render(site)["uber-uns.html"]


def test_the_front_page_is_called_what_the_first_section_names_its_page() -> None:
    named = [{"kind": "Hero", "page": "Mieten"}, {"kind": "RichText", "page": "Reparatur", "text": "x"}]
    site = expand_outline({**OUTLINE, "sections": [*named, {"kind": "RichText", "text": "x", "page": "mieten"}]})
    links = site.pages[INDEX]["elements"]["header"]["props"]["links"]
    assert site.pages.keys() == {INDEX, "reparatur.html"}
    assert [link["label"] for link in links][:2] == ["Mieten", "Reparatur"]


def test_words_alone_open_a_site_whose_owner_wants_no_picture() -> None:
    hero = home({"kind": "Hero"}, drawing="a book", trade="books", theme={"art": "none"})["hero"]["props"]
    assert hero["layout"] == "statement"
    assert not hero.keys() & {"art", "drawing", "image"}


def test_an_outline_without_an_opening_gets_one() -> None:
    assert kinds(outline=with_sections({"kind": "RichText", "text": "Hello."}))[:3] == ["Header", "Hero", "RichText"]


def test_two_sections_of_one_kind_get_two_keys() -> None:
    text = {"kind": "RichText", "text": "Hello."}
    assert kinds(outline=with_sections(text, text)).count("RichText") == 2


def test_the_button_of_the_header_is_also_the_last_entry_of_the_menu_which_replaces_it_on_phones() -> None:
    header = home()["header"]["props"]
    assert header["action"]["href"] == "index.html#contact"
    assert header["links"][-1] == {"label": "Contact", "href": "index.html#contact"}
    assert len({link["href"] for link in header["links"]}) == len(header["links"])


def test_an_entry_of_the_opening_with_the_words_of_a_heading_leads_to_it() -> None:
    hero = {"kind": "Hero", "heading": "Boats", "items": [{"title": "Ask for a boat"}, {"title": "Dogs free"}]}
    form = {"kind": "ContactForm", "heading": "Ask for a boat", "page": "Find us"}
    props = home(hero, form)["hero"]["props"]
    assert props["actions"] == [{"label": "Ask for a boat", "href": "find-us.html#contact"}]
    assert props["notes"] == ["Dogs free"]


def test_a_page_or_section_stays_in_the_menu_if_no_button_leads_there() -> None:
    book = {"title": "Tables", "detail": "https://book.example/"}
    hero = {"kind": "Hero", "heading": "Bread", "items": [book]}
    pages = [{"kind": "PageIntro", "page": page, "heading": "Come in"} for page in ("Tables", "Menu")]
    links = home(hero, *pages)["header"]["props"]["links"]
    assert [link["href"] for link in links] == [INDEX, "tables.html", "menu.html"]
    prices = {"kind": "PriceList", "heading": "Prices", "items": [{"title": "Rye", "detail": "£4"}]}
    hero = {**hero, "items": [{"title": "Prices", "detail": "#prices"}]}
    faq = {"kind": "FAQ", "heading": "Questions", "items": [{"title": "Open?", "text": "Yes."}]}
    labels = [link["label"] for link in home(hero, prices, faq)["header"]["props"]["links"]]
    assert "Prices" not in labels
    quiet = home(hero, prices, faq, theme={"ground": "none"})["header"]["props"]
    assert "Prices" in [link["label"] for link in quiet["links"]]


def test_a_front_page_that_lists_nothing_of_its_own_leads_to_the_others_by_their_opening_words() -> None:
    sections = [
        {"kind": "Hero", "heading": "Bread"},
        {"kind": "PageIntro", "page": "Courses", "heading": "Bake with us", "text": "Saturdays, for six."},
        {"kind": "PageIntro", "page": "Prices", "heading": "What it costs"},
        {"kind": "PageIntro", "page": "Find us", "heading": "Ring the bell"},
        {"kind": "ContactForm", "page": "Find us"},
    ]
    [courses, prices] = home(*sections)["features"]["props"]["items"]
    assert courses == {
        "title": "Bake with us",
        "text": "Saturdays, for six.",
        "link": {"label": "Courses", "href": "courses.html"},
    }
    assert prices == {"title": "What it costs", "link": {"label": "Prices", "href": "prices.html"}}
    assert "features" not in home(*sections[:2], *sections[3:]), "one other page is one click in the menu"
    legal = [{"kind": "PageIntro", "page": page, "heading": page} for page in ("Legal notice", "Privacy")]
    assert "features" not in home(*sections[:2], *legal), "they stand in the footer"
    many = [{"kind": "PageIntro", "page": f"Course {at}", "heading": "Bake"} for at in range(13)]
    assert len(home(sections[0], *many)["features"]["props"]["items"]) == 12
    own = {"kind": "Features", "heading": "In our oven", "items": [{"title": "Our courses"}, {"title": "Surprices"}]}
    ours = home(*sections, own)["features"]["props"]
    assert ours["heading"] == "In our oven"
    named = {"label": "Bake with us", "href": "courses.html"}
    assert repeats("Was kostet es?", "Was kostet es?")
    assert [item.get("link") for item in ours["items"]] == [named, None], "what is named as a page is leads there"


def test_a_further_page_does_not_say_its_name_again_below_its_opening() -> None:
    item = {"title": "Ann", "detail": "Baker"}
    sections = [
        {"kind": "Hero", "heading": "Bread"},
        {"kind": "PageIntro", "page": "Team", "heading": "Who bakes"},
        {"kind": "Team", "page": "Team", "heading": "Our team", "items": [item]},
        {"kind": "Features", "page": "Team", "heading": "Our team's work", "items": [item]},
    ]
    team = expand_outline({"name": "Bakery", "sections": sections}).pages["team.html"]["elements"]
    assert "heading" not in team["team"]["props"]
    assert team["features"]["props"]["heading"] == "Our team’s work"


def test_a_page_of_its_own_for_contact_stands_in_the_menu_once() -> None:
    parts = [{"kind": "Hero", "heading": "Hi"}, {"kind": "ContactForm", "page": "Reach us"}]
    links = home(*parts)["header"]["props"]["links"]
    assert [link["href"] for link in links] == [INDEX, "reach-us.html"]


def test_the_first_answer_of_a_new_site_shows_at_once() -> None:
    page = render(expand_outline(OUTLINE))[INDEX].decode()
    assert page.count("<details open>") == 1


def test_offers_of_a_new_site_have_an_icon_each_or_none() -> None:
    def icons(*titles: str) -> list[str | None]:
        features = home({"kind": "Features", "items": [{"title": title} for title in titles]})["features"]
        return [item.get("icon") for item in features["props"]["items"]]

    assert icons("Repairs", "Family rides") == ["tools", "people"]
    assert icons("Repairs", "Quux") == [None, None]


@pytest.mark.parametrize("kind", outline_kinds())
def test_every_kind_that_outlines_offer_can_be_expanded(kind: str) -> None:
    item = {"title": "Title", "text": "Some text.", "detail": "2026-05-31" if kind == "Posts" else "4"}
    names = {"title": "Names", "detail": "One"}
    section = {
        "kind": kind,
        "heading": "Heading",
        "text": "Text.",
        "items": [names, item] if kind == "ComparisonTable" else [item],
    }
    assert kind in kinds(outline=with_sections({"kind": "Hero", "heading": "x"}, section))


ENTRY = {"title": "New oven", "detail": "2026-05-02", "text": "It holds forty loaves."}
NEWS = with_sections(
    {"kind": "Hero", "heading": "Hi"},
    {"kind": "Posts", "heading": "Latest"},
    {"kind": "Posts", "page": "Aktuelles", "items": [ENTRY, {**ENTRY, "detail": "2026-04-01"}]},
    lang="de",
)


def test_each_entry_of_the_news_is_a_page_and_the_front_page_shows_the_latest() -> None:
    site = expand_outline(NEWS)
    assert sorted(site.pages) == ["aktuelles.html", INDEX, "news/new-oven-2.html", "news/new-oven.html"]
    assert site.pages["news/new-oven.html"]["elements"]["page"]["props"]["date"] == "2026-05-02"
    pages = render(site)
    listed = re.findall(r'href="(news/[^"]+)"', pages["aktuelles.html"].decode())
    assert listed == ["news/new-oven.html", "news/new-oven-2.html"]
    assert b'href="aktuelles.html">Aktuelles</a></p>' in pages[INDEX]
    assert b'href="../aktuelles.html#posts">Aktuelles</a>' in pages["news/new-oven.html"]
    assert b"It holds forty loaves." in pages["news/new-oven.html"]
    assert not dead_links(pages)


def test_entries_of_the_news_whose_names_collide_get_pages_of_their_own() -> None:
    entries = [{**ENTRY, "title": title} for title in ("Open 2", "Open", "Open", "店", "店")]
    news = {"kind": "Posts", "page": "News", "items": entries}
    found = [path for path in expand_outline(with_sections(news)).pages if path.startswith("news/")]
    assert sorted(found) == [
        "news/open-2.html",
        "news/open-3.html",
        "news/open.html",
        "news/page-2.html",
        "news/page.html",
    ]


def test_news_on_a_page_that_the_navigation_has_no_place_for_are_linked_from_the_front_page() -> None:
    named = [{"kind": "RichText", "page": f"Page {number}", "heading": "x", "text": "y"} for number in range(8)]
    latest, news = {"kind": "Posts", "heading": "Latest"}, {"kind": "Posts", "page": "Aktuell", "items": [ENTRY]}
    home = render(expand_outline(with_sections(latest, *named, news)))[INDEX]
    assert b'href="aktuell.html">Aktuell</a></p>' in home


def test_a_list_of_news_may_be_empty_and_says_so() -> None:
    empty = with_sections({"kind": "Hero"}, {"kind": "Posts"}, lang="fr")
    assert "Rien pour le moment." in render(expand_outline(empty))[INDEX].decode()


def test_further_languages_of_a_site_are_those_that_it_is_not_in() -> None:
    assert further_languages({**OUTLINE, "lang": "de", "also": ["de", "en"]}) == ("en",)
    assert further_languages(OUTLINE) == ()


def test_opening_hours_stand_beside_the_form_and_at_the_end_of_every_page() -> None:
    hours = [{"days": "Mon to Fri", "time": "9:00 to 18:00"}]
    page = render(expand_outline({**OUTLINE, "contact": {**OUTLINE["contact"], "hours": hours}}))[INDEX].decode()
    assert page.count("<dt>Mon to Fri</dt>") == 2


def test_the_public_address_of_a_new_site_stands_in_its_front_page() -> None:
    site = expand_outline({**NEWS, "url": "https://www.northlight.example/"})
    assert site.pages[INDEX]["elements"]["page"]["props"]["url"] == "https://www.northlight.example/"
    assert "url" not in site.pages["aktuelles.html"]["elements"]["page"]["props"]


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "unknown kind": (with_sections({"kind": "Script"}), "/outline/sections/0/kind"),
    "no sections": (with_sections(), "/outline/sections"),
    "unknown field": ({**OUTLINE, "script": "x"}, "/outline/script"),
    "bad colour": ({**OUTLINE, "theme": {"primary": "red;}"}}, "/outline/theme/primary"),
    "bad email": ({**OUTLINE, "contact": {"email": "a@b"}}, "/outline/contact/email"),
    "bad image": (with_sections({"kind": "Hero", "heading": "x", "image": "data:x"}), "/outline/sections/0/image"),
    "news without a date": (
        with_sections({"kind": "Posts", "items": [{"title": "Soon", "detail": "next week"}]}),
        "/outline/sections/0/items/0/detail",
    ),
    "news without a title": (
        with_sections({"kind": "Posts", "items": [{"detail": "2026-05-31"}]}),
        "/outline/sections/0/items/0/title",
    ),
    "three further languages": ({**OUTLINE, "also": ["de", "fr", "it"]}, "/outline/also"),
    "items that the kind cannot use": (
        with_sections({"kind": "FAQ", "items": [{"title": "Only a question"}]}),
        "/outline/sections/0",
    ),
}


@pytest.mark.parametrize(("outline", "path"), BAD.values(), ids=BAD)
def test_a_bad_outline_is_refused_with_the_place_in_the_outline(outline: dict[str, Any], path: str) -> None:
    assert refusal(outline) == ("bad_outline", path)


@settings(max_examples=30)
@given(json_values)
def test_any_value_is_expanded_or_refused(value: object) -> None:
    with pytest.raises(SpecError):
        expand_outline(value)


def test_the_tool_schema_is_self_contained_and_offers_the_kinds_of_the_catalog() -> None:
    text = json.dumps(outline_tool())
    assert "$ref" not in text
    assert set(outline_schema()["properties"]) == set(Outline.model_fields)
    assert outline_schema()["properties"]["sections"]["items"]["properties"]["kind"]["enum"] == outline_kinds()
    assert (
        {"Hero", "Testimonials", "ComparisonTable", "FAQ", "ContactForm"} <= set(outline_kinds()) <= set(components())
    )


def test_a_full_outline_stays_below_the_tokens_that_a_call_may_write() -> None:
    rich = with_sections(*OUTLINE["sections"], *OUTLINE["sections"][1:4])
    assert len(json.dumps(rich)) / 3 < 1500


def test_a_gallery_shows_the_pictures_that_the_request_gives_and_drawings_where_it_gives_none() -> None:
    loaf = {"title": "Rye", "text": "A dark loaf", "detail": "https://images.example/rye.jpg"}
    first, second = home({"kind": "Gallery", "items": [loaf, {"title": "Spelt"}]})["gallery"]["props"]["images"]
    assert first == {"src": loaf["detail"], "alt": "A dark loaf", "caption": "Rye"}
    assert second.keys() == {"art", "caption"}
    wrong = with_sections({"kind": "Hero"}, {"kind": "Gallery", "items": [{"detail": "javascript:alert(1)"}]})
    assert refusal(wrong) == ("bad_outline", "/outline/sections/1")


def test_the_tool_of_a_new_site_offers_no_answer_and_no_null() -> None:
    schema = outline_tool()["input_schema"]
    assert {"cannot", "ask"} <= schema["properties"].keys()
    assert "answer" not in schema["properties"]
    assert '"null"' not in json.dumps(schema)


def test_legal_pages_are_linked_from_the_end_of_each_page_alone() -> None:
    sections = [{"kind": "Hero"}, *({"kind": "RichText", "page": name, "text": "x"} for name in ("Team", "Impressum"))]
    elements = home(*sections)
    shown = {key: [link["label"] for link in elements[key]["props"]["links"]] for key in ("header", "footer")}
    assert "Team" in shown["header"]
    assert "Impressum" not in shown["header"]
    assert {"Team", "Impressum"} <= {*shown["footer"]}


def test_a_footer_has_no_menu_of_one_link() -> None:
    prices = {"kind": "PriceList", "heading": "Prices", "items": [{"title": "x", "detail": "€1"}]}
    elements = home({"kind": "Hero"}, prices, contact={"phone": "01632 960 671"})
    assert [link["label"] for link in elements["header"]["props"]["links"]] == ["Prices"]
    assert elements["footer"]["props"]["links"] == []


def test_a_legal_page_opens_without_a_banner() -> None:
    """An imprint opened with a pitch-black band on a site that its owner wanted calm and light (issue 20)."""
    sections = [{"kind": "Hero"}, *({"kind": "RichText", "page": name, "text": "x"} for name in ("Team", "Impressum"))]
    pages = expand_outline({**OUTLINE, "sections": sections}).pages
    tones = {path: page["elements"]["page-intro"]["props"].get("tone") for path, page in pages.items() if path != INDEX}
    assert tones["impressum.html"] is None
    assert tones["team.html"] is not None


def test_a_site_of_one_page_and_legal_ones_is_navigated_by_its_sections() -> None:
    sections = [*OUTLINE["sections"], {"kind": "RichText", "page": "Impressum", "text": "x"}]
    elements = home(*sections)
    shown = {key: [link["label"] for link in elements[key]["props"]["links"]] for key in ("header", "footer")}
    assert shown["header"] == ["What we do", "Good to know", "Contact"]
    assert shown["footer"][-1] == "Impressum"
    assert "Home" not in shown["footer"]


def test_an_invitation_to_the_contact_leads_to_the_page_that_has_the_form() -> None:
    call = {"kind": "CallToAction", "items": [{"title": "Ask about a boat", "detail": "#contact"}]}
    site = expand_outline(with_sections({"kind": "Hero"}, call, {"kind": "ContactForm", "page": "Enquiry"}))
    (action,) = site.pages[INDEX]["elements"]["call-to-action"]["props"]["actions"]
    assert action["href"] == "enquiry.html#contact"
    assert not dead_links(render(site))


WAYS = [
    {"title": "Workshop", "detail": "0161 555 017"},
    {"title": "Texts only", "detail": "sms:0161 555 018"},
    {"title": "WhatsApp", "detail": "https://wa.me/4420"},
]
LINKS = [
    ("Workshop 0161\xa0555\xa0017", "tel:0161555017"),
    ("Texts only 0161\xa0555\xa0018", "sms:0161555018"),
    ("WhatsApp", "https://wa.me/4420"),
]


@pytest.mark.parametrize(
    ("known", "place"),
    [
        ({"email": "a@bakery.example"}, "contact"),
        ({"email": "a@bakery.example", "address": "1 Hill Road"}, "map-link"),
        ({"phone": "+4420", "address": "1 Hill Road"}, "map-link"),
    ],
)
def test_further_ways_to_reach_a_business_stand_where_the_first_do_and_in_the_footer_where_no_visit_is_above_it(
    known: dict[str, str], place: str
) -> None:
    """A second number and a messenger had no place but a button (trial 14)."""
    others = [{"title": f"Shop {number}", "detail": f"https://shop-{number}.example/"} for number in range(6)]
    parts = ({"kind": "Hero"}, {"kind": "MapLink"}, {"kind": "ContactForm", "items": others})
    outline = with_sections(*parts, contact={**known, "ways": WAYS})
    elements = expand_outline(outline).pages[INDEX]["elements"]
    shown = elements[place]["props"]["links"][: len(LINKS)], elements["footer"]["props"].get("social", [])
    in_footer = LINKS if place == "contact" else []
    assert [[(link["label"], link["href"]) for link in links] for links in shown] == [LINKS, in_footer]
    holders = [key for key in elements if elements[key]["props"].get("links")]
    assert [key for key in holders if key not in ("header", "footer")] == [place]
    assert b'href="tel:0161555017"' in render(expand_outline(outline))[INDEX]


def test_a_further_way_that_leads_nowhere_is_told_to_the_model_and_the_first_one_may_be_the_only_one() -> None:
    given = {"contact": {"ways": [{"title": "Bell", "detail": "ring the bell"}]}}
    assert refusal(with_sections({"kind": "Hero"}, **given))[0] == "bad_outline"
    site = expand_outline(with_sections({"kind": "Hero"}, {"kind": "CallToAction"}, contact={"ways": WAYS[2:]}))
    assert site.pages[INDEX]["elements"]["call-to-action"]["props"]["actions"][0]["href"] == "https://wa.me/4420"


def test_an_area_that_is_served_is_told_and_gets_no_map() -> None:
    """A chimney sweep's '30 km around' had no field, and a town alone got a map (trial 14)."""
    contact = {"phone": "+4420", "area": "Kilkenny, 30 km around"}
    site = expand_outline(with_sections({"kind": "Hero"}, {"kind": "MapLink"}, contact=contact))
    assert "map-link" not in site.pages[INDEX]["elements"]
    assert "Kilkenny, 30\xa0km around" in site.pages[INDEX]["elements"]["footer"]["props"]["address"]
    both = expand_outline(with_sections({"kind": "MapLink"}, contact=contact | {"address": "1 Hill Road"}))
    page = render(both)[INDEX].decode()
    assert "<li>Kilkenny, 30\xa0km around</li>" in page
    assert "1 Hill Road · Kilkenny" in page
    assert "query=1%20Hill%20Road" in page


def test_a_second_place_has_its_own_address_and_way() -> None:
    maps = [{"kind": "MapLink", "heading": "Office"}, {"kind": "MapLink", "heading": "Beach"}]
    maps[0]["items"] = [{"title": "By tram", "detail": "Line 4 to Mill Square"}]
    maps[1]["items"] = [{"detail": "Promenade, section 3"}, {"text": "Bus 4"}]
    elements = home({"kind": "Hero"}, *maps)
    shown = [elements[key]["props"] for key in ("map-link", "map-link-2")]
    assert {each["address"]: each["directions"] for each in shown} == {
        "1 Hill Road, Aarhus": ["By tram: Line 4 to Mill Square"],
        "Promenade, section 3": ["Bus 4"],
    }


def test_an_address_alone_brings_no_form() -> None:
    """'No forms please', said a celebrant, and who asked for none got one (issue 20)."""
    hero = {"kind": "Hero", "items": [{"title": "Write to me", "detail": "#contact"}]}
    elements = home(hero, {"kind": "CallToAction"}, contact={"email": "a@b.example"})
    assert "contact" not in elements
    for key in ("hero", "call-to-action"):
        assert elements[key]["props"]["actions"][0]["href"] == "mailto:a@b.example"


@pytest.mark.parametrize("further", [{}, {"contrast": "strong"}])
def test_the_colour_of_words_and_no_icons_can_be_asked_for(further: dict[str, str]) -> None:
    """A sign painter wanted cream, black letters and one red, and nothing else (issue 20)."""
    theme = {"ink": "#000000", "primary": "#b3261e", "background": "#fff6e0", "icons": "none", **further}
    made = home(theme=theme)["page"]["props"]["theme"]
    assert made["icons"] == "none"
    assert palette(Theme(**made), dark=False)["ink"] == "#000000"


def test_words_without_grey_and_more_room_can_be_asked_for() -> None:
    """A lunch club wanted dark words on light ground and no grey, and every other band was burgundy (issue 20)."""
    theme = {"contrast": "strong", "spacing": "airy", "primary": "#9f2226", "background": "#fff8ea", "deep": "#4a1013"}
    elements = home(theme=theme)
    made = elements["page"]["props"]["theme"]
    assert (made["contrast"], made["spacing"]) == ("strong", "airy")
    colours = palette(Theme(**made), dark=False)
    assert contrast(colours["deep"], "#fff8ea") < 1.3
    red, green, _ = channels(colours["deep"])
    assert red - green < 0xFF - 0xF8 + 1, "a red one's bands are no pink"
    for own in ({"deep": "#fff8ea"}, {"ground": "none"}):  # a light one that was chosen stays, no colour is one more
        assert home(theme=theme | own)["page"]["props"]["theme"]["deep"] == "#fff8ea"
    assert contrast(colours["art-deep"], "#fff8ea") > 15, "what is dark in a drawing is no grey"
    browned = palette(Theme(**{**made, "ink": "#4a4239"}), dark=False)["art-deep"]
    assert browned == "#25211c", "nor is it black where the owner's ink is none"
    assert colours["deep-accent"] == colours["link"] == "#9f2226"
    tones = {element["props"].get("tone", "plain") for element in elements.values()}
    assert tones <= {"plain", "tinted", "deep"}


def test_a_form_asks_what_the_outline_says_and_a_kind_that_needs_more_becomes_text() -> None:
    items = [
        {"title": "What sort of dog?"},
        {"title": "On which day?", "detail": "date"},
        {"title": "x", "detail": "choice"},
        {"title": "Which flavour?", "detail": "choice", "text": "Lemon | Carrot|"},
        {"title": "Which boat?", "detail": "Myfanwy | Gelert"},
    ]
    asked = home({"kind": "Hero"}, {"kind": "ContactForm", "items": items})["contact"]["props"]["questions"]
    assert [(each["label"], each["kind"]) for each in asked] == [
        ("What sort of dog?", "text"),
        ("On which day?", "date"),
        ("x", "text"),
        ("Which flavour?", "choice"),
        ("Which boat?", "choice"),
    ]
    assert [each["options"] for each in asked[-2:]] == [["Lemon", "Carrot"], ["Myfanwy", "Gelert"]]


@pytest.mark.parametrize(
    ("heading", "phone", "link"),
    [
        ("Emergency? 01982 555 0188", "01982 555 0188", '<a href="tel:019825550188">01982 555 0188</a>'),
        ("Ring 01982 555-0188 & ask", "+44 1982 5550188", '<a href="tel:+4419825550188">01982 555-0188</a> &amp; ask'),
        ("Emergency? 01982 555 0199", "01982 555 0188", None),
        ("Baking since 1931", "01982 555 1931", None),
    ],
)
def test_a_number_of_the_business_in_the_opening_s_heading_can_be_called(
    heading: str, phone: str, link: str | None
) -> None:
    """It was mere text in the largest letters of the page (issue 20)."""
    made = expand_outline(with_sections({"kind": "Hero", "heading": heading, "text": "x"}, contact={"phone": phone}))
    shown = render(made)[INDEX].decode().replace("\N{NO-BREAK SPACE}", " ").replace("\N{NON-BREAKING HYPHEN}", "-")
    title = shown.partition("<h1")[2].partition("</h1>")[0]
    assert ("<a" in title) == (link is not None)
    assert link is None or link in title


@pytest.mark.parametrize(
    ("name", "title", "detail", "shown"),
    [
        ("Northlight", "Book a table for tonight", "https://book.example/", "menu-only"),
        ("Northlight", "Ring us on 958 555 017", "tel:958555017", '<span class="in-brief">Call</span>'),
        ("Northlight", "Book a table", "https://book.example/", None),
        ("Northlight", "Jetzt anmelden", "https://book.example/", None),
        ("Hebammenpraxis Ankerplatz", "Jetzt anmelden", "https://book.example/", "menu-only"),
    ],
)
def test_a_long_button_of_a_new_site_leaves_room_for_the_name_on_a_phone(
    name: str, title: str, detail: str, shown: str | None
) -> None:
    """It broke in two lines, or pushed the name (issue 20)."""
    hero = {"kind": "Hero", "items": [{"title": title, "detail": detail}]}
    site = expand_outline({**OUTLINE, "name": name, "sections": [hero, *OUTLINE["sections"]]})
    header = render(site)[INDEX].decode().partition("<header")[2].partition("</header>")[0]
    assert shown is None or shown in header
    assert ("site-header-long" in header) == (name != "Northlight"), "and its mark stays away on a phone"
    assert ("in-brief" in header or " folds" in header) == (shown is not None)


@pytest.mark.parametrize("mark", [None, "a chair"])
def test_a_button_has_less_room_beside_a_mark(mark: str | None) -> None:
    hero = {"kind": "Hero", "items": [{"title": "Envoyer une photo", "detail": "https://book.example/"}]}
    site = expand_outline({**OUTLINE, "mark": mark, "sections": [hero, *OUTLINE["sections"]]})
    assert (b" folds" in render(site)[INDEX]) == (mark is not None)


@pytest.mark.parametrize(
    ("kind", "heading", "menu", "label"),
    [
        ("Features", "If someone has died", None, "If someone has died"),
        ("Features", "Yes, no and never", None, "Yes, no and never"),
        ("Features", "Yes, no and never again", None, "Services"),
        ("Features", "Mother, son and a workshop", None, "Services"),
        ("Features", "Sweeping: what it costs in this town", None, "Sweeping"),
        ("Features", "Saturday class, once a month", None, "Saturday class"),
        ("Features", "¿Saturday class? Once a month", None, "Saturday class"),
        ("Features", "10:30 on Sundays", None, "10:30 on Sundays"),
        ("Features", "1.500 m² of garden", None, "1.500 m² of garden"),
        ("Features", "What stands on the shelves of this shop", "The shelves", "The shelves"),
        ("Features", "What stands on the shelves of this shop", "All that stands on our shelves", "Services"),
        ("RichText", "About us, since 1931", None, "About us"),
        ("RichText", "What happens to the bread that nobody buys", None, None),
        ("CallToAction", "Come in on Saturday", "Saturdays", "Saturdays"),
        ("CallToAction", "Come in on Saturday", None, None),
    ],
)
def test_a_menu_says_what_a_section_s_heading_says_or_what_the_outline_calls_it(
    kind: str, heading: str, menu: str | None, label: str | None
) -> None:
    """A mark within a number ended the words: the menu said `10` and `1`."""
    section = {"kind": kind, "heading": heading, "menu": menu, "text": "x", "items": [{"title": "Flues"}]}
    links = home({"kind": "Hero"}, section, contact={})["header"]["props"]["links"]
    assert [link["label"].replace("\xa0", " ") for link in links] == ([label] if label else [])


def test_a_fact_keeps_its_conditions_and_a_long_one_stands_in_no_strip() -> None:
    """Of 'per costume per week, with a deposit' a limit of five words left a price (trial 14)."""
    long = "From £18 per costume per week, with a deposit of £40 for each, back on return"
    short = ["Since 1982", "Open on Sundays", "No appointment"]
    for facts, strips in (([*short[:2], long], False), (short, True)):
        hero = {"kind": "Hero", "items": [{"title": fact} for fact in facts]}
        props = home(hero)["hero"]["props"]
        assert [note.replace("\xa0", " ") for note in props["notes"]] == facts
        assert ("strip" in props) == strips


def test_a_plan_lists_what_it_holds() -> None:
    """Two workshops with five facts each had one text of 25 words (trial 14)."""
    plan = {"title": "One day", "detail": "£95", "text": "For beginners.\n- All tools\n- Lunch"}
    pricing = {"kind": "Pricing", "items": [plan, {"title": "Two days", "detail": "£170"}]}
    first, second = home(pricing)["pricing"]["props"]["plans"]
    assert (first["text"], first["features"]) == ("For beginners.", ["All tools", "Lunch"])
    assert not {"text", "features"} & second.keys()


@pytest.mark.parametrize(("kind", "key"), [("PriceList", "price-list"), ("Schedule", "schedule")])
def test_an_entry_that_has_no_figure_stands_below_those_that_have(kind: str, key: str) -> None:
    """A record shop's repair of needles has no price, and was lost (issue 20)."""
    priced = {"title": "Singles", "detail": "3 \u20ac"}
    bare = [{"title": "Needles", "text": "Bring yours in."}, {"title": "Repairs?"}, {"title": "By hand"}]
    props = home({"kind": kind, "items": [priced, *bare]})[key]["props"]
    assert len(props["items"]) == 1
    assert props["note"] == "Needles: Bring yours in. Repairs? By hand."


def test_a_colour_for_one_button_alone_is_on_no_other_and_in_no_words() -> None:
    """A hatter wanted black and white, and one red for one button: prices and a second button were red (issue 20)."""
    theme = {"primary": "#b3122b", "ink": "#000000", "ground": "none", "art": "none"}
    hero = {"kind": "Hero", "items": [{"title": "Write", "detail": "#contact"}]}
    elements = home(hero, {"kind": "PriceList", "items": [{"title": "Felt", "detail": "240"}]}, theme=theme)
    assert {"primary": "#000000", "buttons": "#b3122b"}.items() <= elements["page"]["props"]["theme"].items()
    assert "action" not in elements["header"]["props"]
    further = home(hero, {"kind": "PageIntro", "page": "Hats", "heading": "Hats"}, theme=theme)
    assert "action" in further["header"]["props"], "whose other pages have no opening with a button"


def test_what_the_menu_would_say_beside_the_same_button_is_left_out() -> None:
    ring = {"title": "Ring Terry", "detail": "tel:+4423"}
    call = {"kind": "CallToAction", "menu": "Ring Terry", "items": [ring]}
    header = home({"kind": "Hero", "items": [ring]}, call)["header"]["props"]
    assert header["action"]["label"] == "Ring Terry"
    assert "Ring Terry" not in {link["label"] for link in header["links"]}


def test_colour_stays_small_and_letters_are_large_where_the_owner_wants_it() -> None:
    """One glow of orange became half an opening, and letters for customers of 74 years were those of all (issue 20)."""
    theme = {"primary": "#3a3f43", "accent": "#e2762b", "background": "#eceeed", "style": "display"}
    loud, quiet = (home(theme={**theme, "size": "larger", **ground}) for ground in ({}, {"ground": "none"}))
    assert (loud["hero"]["props"].get("tone"), quiet["hero"]["props"].get("tone")) == ("accent", None)
    assert [quiet[key]["props"].get("tone") for key in ("features", "call-to-action")] == [None, "deep"]
    assert quiet["page"]["props"]["theme"]["size"] == "larger"
    assert "ground" not in quiet["page"]["props"]["theme"]


@pytest.mark.parametrize(
    ("said", "label"),
    [
        ("Prenotate e scriveteci: vi aspettiamo", "Il vostro nome"),
        ("Prenota il tuo posto, ti aspettiamo", "Il tuo nome"),
    ],
)
def test_an_italian_form_says_voi_where_the_site_does(said: str, label: str) -> None:
    """Two owners who had asked for voi found a form that said tu (issue 20)."""
    outline = with_sections({"kind": "Hero", "text": said}, {"kind": "ContactForm"}, lang="it")
    assert label in render(expand_outline(outline))["index.html"].decode()


def links_of(part: str, *sections: dict[str, Any], **fields: Any) -> dict[str, str]:
    """The labels of the header's or the footer's links and the headings of the sections to which they lead."""
    elements = home({"kind": "Hero"}, *sections, **fields)
    links = [(link["label"], link["href"].partition("#")[2]) for link in elements[part]["props"]["links"]]
    assert len({label for label, _ in links}) == len(links)
    return {label: elements[key]["props"].get("heading", "") if key else "" for label, key in links}


def part_of(kind: str, heading: str, **item: str) -> dict[str, Any]:
    return {"kind": kind, "heading": heading, "items": [{"title": "x", "text": "y", **item}] * 2}


def test_a_legal_page_is_linked_also_where_the_footer_has_nothing_else() -> None:
    words = {"kind": "RichText", "text": "We bind flowers."}
    shown = links_of("footer", words, {**words, "page": "Impressum"}, contact={})
    assert shown == {"Impressum": ""}


def test_further_lists_of_a_kind_stand_in_a_menu_that_has_room_after_the_first_of_each() -> None:
    crowd = [part_of("Features", "Sorts"), part_of("Features", "Ways"), part_of("RichText", "Origin")]
    crowd += [part_of("RichText", "Reason"), part_of("Steps", "Course"), part_of("PriceList", "Prices", detail="€2")]
    for questions, further in (([part_of("FAQ", "Questions")], []), ([], ["Ways"])):
        shown = links_of("footer", *crowd, *questions)
        assert [*shown] == ["Sorts", *further, "Origin", "Course", "Prices", *(each["heading"] for each in questions)]
        assert [*shown] == [*shown.values()]


def test_the_menu_leads_to_each_of_two_lists_that_have_names() -> None:
    """A workshop's repairs stood in no menu, as it had a list of guitars (issue 20)."""
    shown = links_of("header", *(part_of("PriceList", name, detail="€1") for name in ("New", "Old")), contact={})
    assert shown == {"New": "New", "Old": "Old"}


def test_a_button_leads_to_the_section_that_the_menu_calls_so_and_not_to_another_of_that_kind() -> None:
    """`See the prices` led past the table for dogs to the list for cats (trial 19)."""
    hero = {"kind": "Hero", "items": [{"title": "See the prices", "detail": "#Prices"}]}
    dogs = {"kind": "ComparisonTable", "heading": "For dogs", "menu": "Prices"}
    rows = [{"detail": "Bath|Cut"}, {"title": "Small", "detail": "£32|£45"}]
    cats = {"kind": "PriceList", "heading": "For cats", "items": [{"title": "Cat", "detail": "£50"}]}
    found = home(hero, dogs | {"items": rows}, cats)
    assert found["hero"]["props"]["actions"][0]["href"] == "index.html#comparison-table"


def test_a_menu_says_each_word_once() -> None:
    shown = links_of(
        "footer", part_of("Features", "Sorts"), part_of("Features", "Sorts"), part_of("RichText", "Origin")
    )
    assert [*shown] == ["Sorts", "Origin"]


def test_the_menu_leads_to_each_of_two_maps_as_they_stand_on_the_page() -> None:
    """The first map goes down to the form, past the second."""
    maps = [{"kind": "MapLink", "heading": name} for name in ("North", "South")]
    form = {"kind": "ContactForm", "heading": "Write"}
    shown = links_of("footer", maps[0], part_of("Features", "Sorts"), maps[1], form)
    assert [*shown] == ["Sorts", "South", "North", "Write"]
    assert [*shown] == [*shown.values()]


def test_where_words_alone_open_the_site_only_what_stands_below_and_the_mark_are_drawn() -> None:
    sections = [
        {"kind": "Hero", "heading": "Flowers", "drawing": "a rose"},
        {"kind": "RichText", "heading": "Vase", "text": "x", "drawing": "a vase"},
        {"kind": "PageIntro", "page": "Courses", "heading": "Bind", "drawing": "a knot"},
    ]
    for theme, drawn in (({"art": "none"}, {"a vase", "a tulip"}), ({}, {"a rose", "a vase", "a knot", "a tulip"})):
        site = expand_outline(with_sections(*sections, mark="a tulip", drawing=None, theme=theme))
        assert {*wanted(site)} == drawn

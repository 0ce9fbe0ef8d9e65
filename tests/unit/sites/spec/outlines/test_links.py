from __future__ import annotations

import pytest

from sites.errors import SpecError
from sites.links import dead_links
from sites.spec.model import INDEX
from sites.spec.outline import expand_outline
from sites.spec.outlines.links import way_of
from sites.spec.render import render
from tests.unit.sites.spec.test_outline import home, with_sections

SECTIONS = [
    {"kind": "PriceList", "heading": "What it costs", "items": [{"title": "Cards", "detail": "£180"}]},
    {
        "kind": "Schedule",
        "heading": "Workshops",
        "menu": "Next dates",
        "items": [{"title": "9 January", "detail": "10 till 4"}],
    },
    {"kind": "ContactForm", "heading": "Write to me"},
    {"kind": "PageIntro", "page": "Our boats", "heading": "Eight of them"},
]


@pytest.mark.parametrize(
    ("name", "href"),
    [
        ("#workshops", "index.html#schedule"),
        ("#Next dates", "index.html#schedule"),
        ("#schedule", "#schedule"),
        ("#What it costs", "index.html#price-list"),
        ("#prices", "index.html#price-list"),
        ("#PriceList", "index.html#price-list"),
        ("#ContactForm", "index.html#contact"),
        ("#our-boats", "our-boats.html"),
        ("#contact", "index.html#contact"),
        ("#unheard-of", "index.html#contact"),
    ],
)
def test_a_button_of_a_new_site_leads_to_what_it_names(name: str, href: str) -> None:
    """`#workshops` led nowhere, and the drawing was asked for again instead of the outline (issue 20)."""
    hero = {"kind": "Hero", "heading": "I print", "items": [{"title": "See", "detail": name}]}
    site = expand_outline(with_sections(hero, *SECTIONS))
    assert site.pages[INDEX]["elements"]["hero"]["props"]["actions"][0] == {"label": "See", "href": href}
    assert not dead_links(render(site))


def test_a_section_is_named_in_any_script() -> None:
    prices = {"kind": "PriceList", "heading": "Цены", "items": [{"title": "Хлеб", "detail": "90 ₽"}]}
    for name, href in (("#цены", "index.html#price-list"), ("#нет", "index.html#contact"), ("#", "index.html#contact")):
        hero = {"kind": "Hero", "heading": "Хлеб", "items": [{"title": "Вот", "detail": name}]}
        site = expand_outline({**with_sections(hero, prices, *SECTIONS), "lang": "ru"})
        assert site.pages[INDEX]["elements"]["hero"]["props"]["actions"][0]["href"] == href


def test_pages_that_are_named_in_another_script_are_several() -> None:
    pages = [{"kind": "PageIntro", "page": name, "heading": name} for name in ("Цены", "Контакт", "цены")]
    site = expand_outline({**with_sections({"kind": "Hero", "heading": "Хлеб"}, *pages), "lang": "ru"})
    links = [link["href"] for link in site.pages[INDEX]["elements"]["header"]["props"]["links"]]
    assert links == ["index.html", "page.html", "page-2.html"]
    assert not dead_links(render(site))


def test_a_detail_that_only_begins_with_the_mark_of_a_name_is_no_address() -> None:
    quote = {"kind": "Testimonials", "items": [{"title": "Ida", "text": "Good.", "detail": "#1 fan since 1998"}]}
    page = render(expand_outline(with_sections({"kind": "Hero", "heading": "I print"}, *SECTIONS, quote)))[INDEX]
    assert b"#1 fan since 1998" in page


def test_a_number_to_ring_may_be_written_with_blanks_and_no_address_with_one_breaks_the_job() -> None:
    def button(detail: str) -> str:
        hero = {"kind": "Hero", "heading": "x", "items": [{"title": "Ring", "detail": detail}]}
        return str(home(hero, *SECTIONS)["header"]["props"]["action"]["href"])

    assert button("tel:01876 555 0104") == "tel:018765550104"
    assert button("sms:+45 70123456?body=Order%2020") == "sms:+4570123456"
    for wrong, why in (
        ("https://bakery.example/a b", "an address holds no space"),
        ("tel:", "not a plain tel: address"),
        ("tel:by appointment", "not a plain tel: address"),
        ("sms:+49", "not a plain sms: address"),
    ):
        with pytest.raises(SpecError, match=why):
            button(wrong)


@pytest.mark.parametrize(
    ("phone", "href"),
    [("+49 (0)30 1234567", "tel:+49301234567"), ("030 1234567 / 0171 1234567 / 0172 12345", None), ("(0)", None)],
)
def test_whoever_has_no_address_is_rung_at_the_number_that_can_be_dialled(phone: str, href: str | None) -> None:
    header = home({"kind": "Hero", "heading": "I print"}, contact={"phone": phone})["header"]["props"]
    assert header.get("action", {}).get("href") == href


def test_an_opening_s_button_that_leads_to_no_name_goes_back_to_its_author() -> None:
    hero = {"kind": "Hero", "heading": "I print", "items": [{"title": "See", "detail": "#1 fan"}]}
    with pytest.raises(SpecError, match="an address holds no space"):
        expand_outline(with_sections(hero))


@pytest.mark.parametrize(
    ("items", "label"),
    [
        ([("The boats", "#our boats"), ("Ring", "tel:0198")], "Ring"),
        ([("The boats", "#our boats"), ("Write", "mailto:us@boats.example")], "Write"),
    ],
)
def test_a_number_to_ring_is_the_button_of_the_header_else_the_first_that_leads_to_no_page(
    items: list[tuple[str, str]], label: str
) -> None:
    hero = {"kind": "Hero", "items": [{"title": title, "detail": detail} for title, detail in items]}
    assert home(hero, *SECTIONS)["header"]["props"]["action"]["label"] == label


def test_the_menu_calls_the_form_what_the_outline_does_where_no_button_leads_to_it() -> None:
    hero = {"kind": "Hero", "items": [{"title": "Ring", "detail": "tel:0198"}]}
    form = {"kind": "ContactForm", "heading": "Ask for the lift", "menu": "Ask"}
    elements = home(hero, SECTIONS[0], form, contact={"email": "a@b.example"})
    assert [elements[key]["props"]["links"][-1]["label"] for key in ("header", "footer")] == ["Ask", "Ask"]


@pytest.mark.parametrize(
    ("words", "page", "heading", "href"),
    [
        ("Our four boats", None, "Our four boats", "index.html#steps"),
        ("24 hours, no less", None, "24 hours, no less", "index.html#steps"),
        ("Наши лодки", None, "Наши лодки", "index.html#steps"),
        ('«Наши» "лодки"', None, '«Наши» "лодки"', None),
        ("Our team", "Team", "Our team", "team.html"),
    ],
    ids=["words", "a number", "another script", "no slug", "a page, on which its heading is not said again"],
)
def test_an_entry_of_the_opening_may_have_the_words_of_any_heading(
    words: str, page: str | None, heading: str, href: str | None
) -> None:
    """An address holds no blank, so that an entry with a heading's words refused the whole outline."""
    hero = {"kind": "Hero", "heading": "Boats", "items": [{"title": words}]}
    opening = {"kind": "PageIntro", "page": "Team", "heading": "Hello"}
    steps = {"kind": "Steps", "page": page, "heading": heading, "items": [{"title": "Choose", "text": "One of four."}]}
    site = expand_outline(with_sections(hero, opening, steps))
    actions = site.pages[INDEX]["elements"]["hero"]["props"].get("actions", ())
    assert [action["href"] for action in actions if action["label"] == words] == ([href] if href else [])
    assert not dead_links(render(site))


@pytest.mark.parametrize(
    ("detail", "label", "href"),
    [
        ("06\u201112345678", "Bell 06-12345678", "tel:0612345678"),
        ("+44 7700 900123 (WhatsApp)", "Bell +44\xa07700\xa0900123", "tel:+447700900123"),
        ("info@bakery.example", "Bell", "mailto:info@bakery.example"),
        ("wa.me/4420", "Bell", "https://wa.me/4420"),
        ("tiktok.com/@bakery", "Bell", "https://tiktok.com/@bakery"),
        ("123456789@qq.com", "Bell", "mailto:123456789@qq.com"),
        ("(0161) 555 017", "Bell (0161)\xa0555\xa0017", "tel:0161555017"),
    ],
)
def test_a_further_way_is_read_as_people_write_it(detail: str, label: str, href: str) -> None:
    assert way_of("Bell", detail).model_dump() == {
        **way_of("Bell", "0161555017").model_dump(),
        "label": label,
        "href": href,
    }


@pytest.mark.parametrize(
    "detail",
    [
        "ring the bell",
        "javascript:alert(1)",
        "12 Mill Lane",
        "10115 Berlin",
        "01 55 01 / 01 55 02",
        "@bakery",
        "Mr.Smith",
    ],
)
def test_what_is_neither_number_nor_address_is_no_way(detail: str) -> None:
    with pytest.raises(ValueError, match="a further way is a number"):
        way_of("Bell", detail)

"""What single components promise beyond what every one of them does."""

from __future__ import annotations

import re
from typing import Any, get_args

import pytest
from lxml import etree, html

from sites.errors import SpecError
from sites.links import dead_links
from sites.spec.catalog import Hue, IconName, component_rules
from sites.spec.html import ART_NAMES, art, icon
from sites.spec.model import INDEX, parse_site
from sites.spec.outline import expand_outline
from sites.spec.render import referenced_assets, render
from sites.spec.stylesheet import BASE_RULES
from sites.spec.theme import MIN_TEXT_CONTRAST, contrast, parse_colour
from tests.unit.sites.spec.samples import element, findings, page

PICTURE = {"src": "assets/x.svg", "alt": "A loaf"}


def one(kind: str, **props: Any) -> etree._Element:
    built = render(parse_site(page(one=element(kind, **props))))[INDEX]
    document = html.document_fromstring(built, parser=html.HTMLParser(encoding="utf-8"))
    (found,) = document.xpath("//*[@id='one']")
    return found


@pytest.mark.parametrize(
    ("layout", "extra", "becomes"),
    [
        ("split", {"image": PICTURE}, "hero-split"),
        ("split", {"art": "tiles"}, "hero-split"),
        ("split", {}, "hero-centered"),
        ("cover", {"image": PICTURE}, "hero-cover"),
        ("cover", {}, "hero-centered"),
        ("statement", {}, "hero-statement"),
        ("masthead", {"art": "tiles"}, "hero-masthead"),
        ("masthead", {}, "hero-centered"),
    ],
)
def test_a_hero_is_laid_out_by_what_it_has_to_show(layout: str, extra: dict[str, Any], becomes: str) -> None:
    found = one("Hero", heading="Bread", text="Warm.", layout=layout, **extra)
    assert becomes in found.get("class", "").split()
    assert found.xpath(".//h1/text()") == ["Bread"]
    assert found.xpath(".//p[@class='lead']/text()") == ["Warm."]


def test_a_masthead_has_its_words_on_one_side_of_the_picture_and_its_facts_on_the_other() -> None:
    wrap = one("Hero", heading="Bread", text="Warm.", layout="masthead", art="tiles", notes=["Rye", "Spelt"])[0]
    assert [each.get("class") for each in wrap] == ["hero-words", "hero-picture hero-art", "hero-notes"]
    assert [each.get("class") for each in wrap[0]] == ["intro", "hero-rest"]


def test_a_hero_shows_what_fills_its_aside() -> None:
    spec = page(one={**element("Hero", heading="x"), "slots": {"aside": ["lines"]}})
    spec["elements"]["lines"] = element("Code", code="make bread")
    assert b"<code>make bread</code>" in render(parse_site(spec))[INDEX]


def test_a_drawing_is_decoration_in_the_colours_of_the_theme() -> None:
    for name in ART_NAMES:
        drawn = html.fragment_fromstring(art(name))
        assert drawn.get("aria-hidden") == "true", name
        assert not drawn.xpath(".//@id | .//@style | .//@fill | .//@href | .//@stroke"), name
        assert all(style.startswith("art") for style in drawn.xpath(".//@class")), name
        assert art(name) == art(name)


def test_every_icon_that_the_catalog_offers_is_drawn() -> None:
    assert [name for name in get_args(IconName) if "<path d=" not in icon(name)] == []


def test_a_film_elsewhere_is_a_link_and_no_frame() -> None:
    found = one("Video", title="A night at the oven", href="https://video.example/oven", art="hills")
    assert found.xpath(".//a/@href") == ["https://video.example/oven"]
    assert "Watch: A night at the oven" in found.text_content()
    assert not found.xpath(".//iframe | .//video")


def test_a_film_of_the_site_loads_nothing_before_it_is_played() -> None:
    files = {"src": "assets/oven.webm", "captions": "assets/oven.vtt"}
    (film,) = one("Video", title="Oven", image=PICTURE, **files).xpath(".//video")
    assert film.get("preload") == "none"
    assert film.get("poster") == "assets/x.svg"
    assert "controls" in film.attrib
    assert "autoplay" not in film.attrib
    site = parse_site(page(one=element("Video", title="Oven", **files)))
    assert referenced_assets(site) == set(files.values())
    assert film.xpath(".//source/@src | .//track/@src") == ["assets/oven.webm", "assets/oven.vtt"]


@pytest.mark.parametrize(
    ("kind", "props", "rule"),
    [
        ("Video", {}, "either src"),
        ("Video", {"src": "assets/a.mp4", "href": "https://video.example/"}, "either src"),
        ("Video", {"src": "https://video.example/a.mp4"}, "src is an .mp4 or .webm file"),
        ("Video", {"src": "assets/a.exe"}, "src is an .mp4 or .webm file"),
        ("Video", {"href": "javascript:alert(1)"}, "links go to"),
        ("Video", {"src": "assets/a.mp4", "captions": "https://evil.example/a.vtt"}, "captions is a .vtt file"),
        ("Newsletter", {"heading": "News"}, "form service"),
        ("MapLink", {"address": "x", "href": "data:text/html,x"}, "links go to"),
        ("Gallery", {"images": [{"alt": "A loaf"}]}, "either src or art"),
        ("Gallery", {"images": [{**PICTURE, "art": "hills"}]}, "either src or art"),
        ("Gallery", {"images": [PICTURE], "layout": "strip", "columns": 3}, "columns is of the layout grid alone"),
        ("ContactForm", {"questions": [{"label": "Room", "kind": "choice"}]}, "of kind choice has options"),
        ("ContactForm", {"questions": [{"label": "Room", "options": ["Attic"]}]}, "any other has none"),
        ("ContactForm", {"questions": [{"label": "", "kind": "date"}]}, "at least 1 character"),
        ("ContactForm", {"questions": [{"label": "x", "kind": "file"}]}, "should be 'text'"),
    ],
)
def test_props_that_a_component_cannot_show_are_refused_with_the_rule(
    kind: str, props: dict[str, Any], rule: str
) -> None:
    title = {"title": "x"} if kind == "Video" else {}
    finding, *_ = findings(page(one=element(kind, **title, **props)))
    assert rule in finding.message


def test_a_newsletter_goes_to_whoever_receives_it() -> None:
    (form,) = one("Newsletter", heading="News", email="news@bakery.example").xpath(".//form")
    assert form.get("action") == "mailto:news@bakery.example?subject=Newsletter"
    assert form.xpath(".//label/@for") == form.xpath(".//input/@id")


@pytest.mark.parametrize(
    ("address", "searched"),
    [
        ("1 Hill & Dale?x=1#y, Århus", "1%20Hill%20%26%20Dale%3Fx%3D1%23y%2C%20%C3%85rhus"),
        ("35000\xa0Rennes", "35000%20Rennes"),
    ],
)
def test_a_map_looks_its_address_up_as_people_type_it_and_cannot_be_led_elsewhere(address: str, searched: str) -> None:
    (link,) = one("MapLink", address=address).xpath(".//p[@class='actions']/a/@href")
    assert link == f"https://www.openstreetmap.org/search?query={searched}"


def test_a_logo_without_a_description_is_read_out_by_its_name() -> None:
    found = one(
        "Logos", items=[{"name": "The Mill Inn", "image": {"src": "assets/mill.svg", "alt": ""}}, {"name": "Ost"}]
    )
    assert found.xpath(".//img/@alt") == ["The Mill Inn"]
    assert found.xpath(".//*[@class='wordmark']/text()") == ["Ost"]


def test_the_menu_is_a_popover_that_its_own_buttons_open_and_close() -> None:
    found = one("Header", brand="Bakery", links=[{"label": "Home", "href": "index.html"}])
    (menu,) = found.xpath(".//nav[@popover]/@id")
    assert found.xpath(".//button/@popovertarget") == [menu, menu]
    assert not one("Header", brand="Bakery").xpath(".//button | .//nav")


def test_running_text_holds_links_and_an_address_that_no_link_may_have_stays_text() -> None:
    no_links = "[x](javascript:alert) [y](//e.example) @us x@y https://b@c.example 3@2.50 b@foo.müller.de"
    words = (
        "See [the **price** list](prices.html#cut), *[ask](tel:+4930)*, [a@b.example](#ask) or **us@inn.example**.\n\n"
        f"- {no_links}"
    )
    for found in (
        one("RichText", body=words),
        one("Text", text=words),
        one("FAQ", items=[{"question": "Q?", "answer": words}]),
    ):
        links = [(link.text_content(), link.get("href")) for link in found.xpath(".//p//a")]
        assert links == [
            ("the price list", "prices.html#cut"),
            ("ask", "tel:+4930"),
            ("a@b.example", "#ask"),
            ("us@inn.example", "mailto:us@inn.example"),
        ]
        assert found.xpath(".//p//a/strong | .//p//em/a")
        assert found.xpath("string(.//li)") == no_links
        assert not found.xpath(".//li//a")


def test_further_ways_to_get_in_touch_stand_below_phone_and_mail() -> None:
    links = [
        {"label": "+39 333 000 0148 (Toni)", "href": "tel:+393330000148"},
        {"label": "WhatsApp", "href": "https://wa.me/393330000148"},
    ]
    found = one("ContactForm", email="stay@inn.example", phone="+39 0474 000 148", links=links)
    shown = found.xpath(".//*[@class='contact-lines']/li/a")
    assert [(link.text, link.get("href")) for link in shown[2:]] == [(each["label"], each["href"]) for each in links]
    phone, mail, *further = found.xpath(".//*[@class='contact-lines']/li/svg/path/@d")
    assert further == [phone, phone]
    assert phone != mail


def test_only_a_link_that_says_no_more_than_the_button_beside_it_is_left_to_the_folded_menu() -> None:
    labels = ("Hours", "Contact", "Reserve", "Find us")
    links = [{"label": label, "href": "#map" if label == "Find us" else "#contact"} for label in labels]
    found = one("Header", brand="Osteria", links=links, action={"label": "Reserve", "href": "#contact"})
    assert found.xpath(".//li[@class='menu-only']/a/text()") == ["Contact", "Reserve"]
    assert not one("Header", brand="Osteria", links=links).xpath(".//li[@class='menu-only']")
    assert ".site-nav .menu-only { display: none; }" in " ".join(component_rules())


def test_one_quote_stands_alone_and_several_stand_in_cards() -> None:
    voice = {"quote": "Good.", "name": "Ana"}
    assert one("Testimonials", items=[voice]).xpath(".//div[contains(@class, 'quote-alone')]//blockquote")
    assert len(one("Testimonials", items=[voice, voice]).xpath(".//li[@class='card']")) == 2


@pytest.mark.parametrize("layout", ["cards", "plain", "rows"])
def test_features_say_the_same_in_every_layout(layout: str) -> None:
    items = [{"title": "Rye", "text": "Dense.", "icon": "bread", "link": {"label": "More", "href": "#one"}}]
    found = one("Features", heading="Bread", items=items, layout=layout)
    assert found.xpath(".//h1/text()") == ["Bread"]
    assert found.xpath(".//li//h2/text()") == ["Rye"]
    assert found.xpath(".//li//a/text()") == ["More"]
    assert "Dense." in found.text_content()


def outlined(*kinds: str, **fields: Any) -> dict[str, Any]:
    items = [{"title": "Title", "text": "Some text.", "detail": "4"}]
    sections = [{"kind": kind, "heading": "Heading", "text": "Text.", "items": items} for kind in kinds]
    return {"name": "Bakery", "sections": sections, **fields}


def tones(outline: dict[str, Any]) -> list[str]:
    spec = expand_outline(outline).pages[INDEX]
    elements = [spec["elements"][key] for key in spec["elements"]["page"]["children"]]
    return [each["props"].get("tone", "plain") for each in elements if each["type"] not in ("Header", "Footer")]


def test_the_grounds_of_a_new_site_alternate_and_one_of_them_is_strong() -> None:
    made = tones(outlined("Hero", "Features", "Stats", "Steps", "FAQ", "Pricing", "CallToAction"))
    assert made == ["filled", "plain", "tinted", "plain", "tinted", "plain", "accent"]


def test_a_further_page_without_a_picture_has_the_site_s_mark_at_its_head() -> None:
    outline = outlined("Hero", "PageIntro", mark="a pretzel")
    outline["sections"][1]["page"] = "Prices"
    page = expand_outline(outline).pages["prices.html"]["elements"]["page-intro"]["props"]
    assert (page["drawing"], page["marked"]) == ({"of": "a pretzel"}, True)
    outline["sections"][1]["drawing"] = "a counter with bread"
    page = expand_outline(outline).pages["prices.html"]["elements"]["page-intro"]["props"]
    assert (page["drawing"], page.get("marked")) == ({"of": "a counter with bread"}, None)


def test_a_section_whose_contact_data_nobody_gave_is_left_out() -> None:
    kinds = ("Hero", "MapLink", "Newsletter")
    elements = expand_outline(outlined(*kinds)).pages[INDEX]["elements"]
    assert not {"map-link", "newsletter"} & set(elements)
    known = {"email": "hello@bakery.example", "address": "14 Mill Lane"}
    elements = expand_outline(outlined(*kinds, contact=known)).pages[INDEX]["elements"]
    assert {"map-link", "newsletter"} <= set(elements)


def test_a_gallery_draws_what_it_has_no_picture_of_and_enlarges_only_pictures() -> None:
    found = one("Gallery", images=[{"art": "hills", "caption": "The valley"}, PICTURE], enlarge=True)
    assert len(found.xpath(".//figure/div[@class='gallery-art']/svg[@aria-hidden]")) == 1
    assert len(found.xpath(".//figure/button//img")) == 1
    assert found.xpath(".//figcaption/text()") == ["The valley"]


@pytest.mark.parametrize(
    ("name", "initials"),
    [
        ("Dr. Helene Brandt", "HB"),
        ("Aylin Demir", "AD"),
        ("Anna Maria van Dijk", "AD"),
        ("Prof. Dr. Seidel", "S"),
        ("Prof. Dr. med. Anna Maria Koch", "AK"),
        ("Frau Dipl.-Ing. Özlem Kaya", "ÖK"),
        ("Mme Claire Dubois", "CD"),
        ("Dott.ssa Élena Rossi", "ÉR"),
        ("Sra. Ana Pérez, LL.M.", "AP"),
        ("resi", "R"),
        ("J. R. Smith", "JS"),
        ("Dr.", "D"),
        ("17 & Co", "C"),
        ("17", "1"),
    ],
)
def test_who_has_no_picture_is_shown_by_the_first_letters_of_first_and_last_name(name: str, initials: str) -> None:
    assert one("Team", people=[{"name": name}]).xpath(".//div[@class='face']/text()") == [initials]


@pytest.mark.parametrize("kind", ["Hero", "CallToAction"])
def test_one_button_can_have_the_accent_colour(kind: str) -> None:
    actions = [{"label": "Donate", "href": "#x", "accent": True}, {"label": "Come and plant", "href": "#y"}]
    found = one(kind, heading="Bread", actions=actions)
    buttons = {link.text: "button-accent" in link.get("class").split() for link in found.xpath(".//a")}
    assert buttons == {"Donate": True, "Come and plant": False}


def test_an_invitation_may_lie_on_the_ground_of_its_section_without_a_box() -> None:
    """ "None of that big dark box at the end" was tinted, and the box on the tint stayed dark (issue 20)."""
    box, bare = (
        one("CallToAction", heading="First class free", tone="tinted", **layout) for layout in ({}, {"layout": "open"})
    )
    assert [len(each.xpath(".//div[@class='panel']")) for each in (box, bare)] == [1, 0]


@pytest.mark.parametrize(
    ("kind", "props"),
    [
        ("Hero", {}),
        ("PageIntro", {}),
        ("CallToAction", {"actions": [{"label": "Donate", "href": "#x"}]}),
        ("Stats", {"items": [{"value": "17 km", "label": "of bank"}]}),
        ("ContactForm", {"email": "us@bakery.example"}),
        ("Newsletter", {"email": "us@bakery.example"}),
        ("MapLink", {"address": "Bank 1"}),
        ("RichText", {"body": "Bread"}),
    ],
)
def test_one_section_can_have_a_ground_of_its_own_colour(kind: str, props: dict[str, Any]) -> None:
    """'The band with the numbers blue' took the footer with it, which has the theme's dark colour (issue 20)."""
    (band,) = one(kind, heading="Bread", tone="blue", **props).xpath("descendant-or-self::section")
    assert {"tone-accent", "hue-blue"} <= set(band.get("class").split())


@pytest.mark.parametrize(("accent", "style"), [(True, "button-accent"), ("orange", "button-accent hue-orange")])
@pytest.mark.parametrize("kind", ["ContactForm", "Newsletter"])
def test_the_button_of_a_form_can_have_it_too(kind: str, accent: bool | str, style: str) -> None:
    found = one(kind, heading="Bread", email="us@bakery.example", accent=accent)
    assert found.xpath(".//button/@class") == [f"button {style}"]


def test_a_gallery_enlarges_its_pictures_without_a_script() -> None:
    pictures = [{**PICTURE, "caption": "Rye"}, {**PICTURE, "alt": ""}]
    found = one("Gallery", heading="Loaves", images=pictures, enlarge=True)
    larges = found.xpath(".//div[@popover]")
    assert found.xpath(".//figure/button/@popovertarget") == [large.get("id") for large in larges]
    assert found.xpath(".//figure/button/@aria-label") == ["Enlarge: Rye", "Enlarge"]
    assert [large.xpath("./img/@loading") for large in larges] == [["lazy"], ["lazy"]], "until it is asked for"
    assert larges[0].xpath("./p/text()") == ["Rye"]
    assert larges[0].xpath("./button/@popovertargetaction") == ["hide"]
    assert not one("Gallery", images=pictures).xpath(".//button | .//div[@popover]")


def test_a_strip_of_pictures_can_be_scrolled_by_keyboard() -> None:
    (strip,) = one("Gallery", heading="Loaves", images=[PICTURE], layout="strip").xpath(".//div[@tabindex]")
    assert (strip.get("role"), strip.get("aria-label")) == ("group", "Loaves")


def test_a_quote_shows_who_said_it() -> None:
    voice = {"quote": "Good.", "name": "Ana", "rating": 4}
    found = one("Testimonials", items=[{**voice, "image": PICTURE}, voice])
    assert found.xpath(".//figcaption/img/@alt") == ["A loaf"]
    assert found.xpath(".//*[@role='img']/@aria-label") == ["4 out of 5 stars"] * 2
    spec = page(one=element("Testimonials", items=[voice]))
    spec["elements"]["page"]["props"]["lang"] = "de"
    assert b"4 von 5 Sternen" in render(parse_site(spec))[INDEX]


def test_a_footer_says_when_one_is_open_and_marks_pages_elsewhere() -> None:
    social = [
        {"label": "Us in pictures", "href": "https://www.instagram.com/hill"},
        {"label": "Letters", "href": "https://letters.example/hill"},
    ]
    found = one("Footer", brand="Hill", hours=[{"days": "Mon", "time": "8 to 6"}], social=social)
    assert found.xpath(".//dt/text() | .//dd/text()") == ["Mon", "8 to 6"]
    assert [len(entry.xpath("./*[local-name()='svg']")) for entry in found.xpath(".//nav//li")] == [1, 0]


def test_a_header_stays_in_sight_where_it_is_asked_to() -> None:
    assert "site-header-sticky" in one("Header", brand="Hill", sticky=True).get("class", "")
    assert "sticky" not in one("Header", brand="Hill").get("class", "")


PICTURES = [{"src": f"assets/{at}.jpg", "alt": f"Loaf {at}"} for at in range(6)]


@pytest.mark.parametrize(("count", "columns", "style"), [(6, None, 3), (4, None, 2), (6, 2, 2), (5, 4, 4), (2, 3, 3)])
def test_a_gallery_says_how_many_pictures_stand_side_by_side(count: int, columns: int | None, style: int) -> None:
    chosen = {"columns": columns} if columns else {}
    assert one("Gallery", images=PICTURES[:count], **chosen).xpath(f".//div[contains(@class, 'gallery-{style}')]")
    assert f".gallery-{style}" in "".join(component_rules()) or style == 2


QUESTIONS = [
    {"label": "Arrival", "kind": "date", "required": True},
    {"label": "Departure", "kind": "date", "required": True},
    {"label": "Room", "kind": "choice", "options": ["Attic", "Meadow"]},
    {"label": "I bring a dog", "kind": "check"},
    {"label": "What else should we know?", "kind": "long"},
    {"label": "Mobile", "kind": "phone"},
    {"label": "Guests", "kind": "number"},
    {"label": "How many?", "kind": "choice", "options": ["1", "2"], "required": True},
]


def test_a_form_asks_what_its_owner_wants_to_know_under_the_words_that_come_back_by_mail() -> None:
    form = one("ContactForm", email="a@b.example", questions=QUESTIONS).find(".//form")
    asked = {label.text: form.get_element_by_id(label.get("for")) for label in form.iterfind(".//label")}
    own = {label: field for label, field in asked.items() if label in {question["label"] for question in QUESTIONS}}
    assert len(own) == len(QUESTIONS)
    assert all(field.get("name") == label for label, field in own.items())
    assert [field.get("type", field.tag) for field in own.values()] == [
        "date",
        "date",
        "select",
        "checkbox",
        "textarea",
        "tel",
        "number",
        "select",
    ]
    assert own["Guests"].get("min") == "0"
    assert [label for label, field in own.items() if "required" in field.attrib] == [
        "Arrival",
        "Departure",
        "How many?",
    ]
    assert own["Room"].xpath("option/text()") == ["Please choose", "Attic", "Meadow"]
    assert own["Room"].value == own["How many?"].value == ""  # nobody is taken for having chosen


@pytest.mark.parametrize(
    ("prop", "label", "field"),
    [("message", "Message", ".//textarea"), ("visitor_email", "Your email", ".//input[@name='email']")],
)
def test_a_form_asks_for_a_message_and_an_email_that_have_to_be_given_or_may_be_or_not_at_all(
    prop: str, label: str, field: str
) -> None:
    """'No e-mail needed' for apprentices took the page out of its document (issue 20)."""
    for chosen, shown in (({}, [True]), ({prop: "optional"}, [False]), ({prop: "none"}, [])):
        form = one("ContactForm", email="a@b.example", **chosen).find(".//form")
        assert [each.get("required") is not None for each in form.xpath(field)] == shown
        assert (label in [each.text for each in form.iter("label")]) is bool(shown)
        assert [button.get("type") for button in form.iter("button")] == ["submit"]


@pytest.mark.parametrize(
    ("price", "amount"),
    [
        ("from £12", "£12"),
        ("£60 for four", "£60"),
        ("od 35 zł", "35 zł"),
        ("1.200,50 € im Jahr", "1.200,50 €"),
        ("ab CHF 12 pro Tag", "CHF 12"),
        ("ab 1.200,- €", "1.200,- €"),
        ("AU$20 each", "AU$20"),
        ("3,50 Euro", None),
        ("per 100 g", None),
        ("£45", None),
        ("£45 to £60", None),
        ("2 for £5", None),
        ("by appointment", None),
    ],
)
def test_of_a_large_price_the_one_amount_stands_apart_from_its_words(price: str, amount: str | None) -> None:
    items = [{"title": "Bunch", "price": price}]
    large, small = (one("PriceList", items=items, layout=layout) for layout in ("figures", "lines"))
    shown = [span.text_content() for span in large.find_class("number")]
    assert shown == ([amount] if amount else [])
    assert large.find_class("line-price")[0].text_content() == price
    assert not small.find_class("number")


def test_no_line_breaks_inside_hours() -> None:
    hours = [{"days": "L–V", "time": "9:30–14 y 17–20"}, {"days": "Sat", "time": "8 – 12"}]
    shown = one("ContactForm", email="a@bakery.example", hours=hours)
    assert [span.text for span in shown.find_class("number")] == ["9:30–14", "17–20"]
    opening = one("Hero", heading="Bread", notes=["Mon to Fri 16–20.30", "Rye"], strip="deep")
    assert [span.text for span in opening.find_class("number")] == ["16–20.30"]
    assert [time.text_content() for time in shown.iter("dd")] == [line["time"] for line in hours]


@pytest.mark.parametrize(
    ("kind", "entry"),
    [("Schedule", {"time": "Mar", "title": "Edges"}), ("PriceList", {"title": "Small", "price": "€180"})],
)
def test_an_entry_of_a_programme_or_a_price_list_may_lead_somewhere(kind: str, entry: dict[str, str]) -> None:
    """For links to three shows and a button to buy, both lists became other sections (issue 20)."""
    link = {"label": "Buy", "href": "https://shop.example/small"}
    found = one(kind, heading="Prints", items=[{**entry, "link": link}, entry])
    assert [(a.text, a.get("href")) for a in found.xpath(".//li//a")] == [("Buy", "https://shop.example/small")]


@pytest.mark.parametrize(
    ("detail", "prop", "value"),
    [
        ("no message", "message", "none"),
        ("optional message", "message", "optional"),
        ("no email", "visitor_email", "none"),
        ("optional email", "visitor_email", "optional"),
    ],
)
def test_a_new_site_s_form_leaves_its_own_fields_out_or_to_its_visitors(detail: str, prop: str, value: str) -> None:
    items = [{"title": "Online or here?", "text": "Online | Here"}, {"title": "Message", "detail": detail}]
    sections = [{"kind": "ContactForm", "heading": "Write", "items": items}]
    made = expand_outline({"name": "Practice", "contact": {"email": "a@b.example"}, "sections": sections})
    props = made.pages[INDEX]["elements"]["contact"]["props"]
    assert props[prop] == value
    assert [question["label"] for question in props["questions"]] == ["Online or here?"]


@pytest.mark.parametrize("hue", get_args(Hue))
def test_a_button_and_a_tag_of_their_own_colour_are_readable(hue: str) -> None:
    rule = re.search(rf"\.hue-{hue} {{ --accent: (#\w+); --on-accent: (#\w+); }}", BASE_RULES)
    assert rule
    assert contrast(*map(parse_colour, rule.groups())) >= MIN_TEXT_CONTRAST
    button = one("Hero", heading="x", actions=[{"label": "Give", "href": "#one", "accent": hue}])
    assert button.xpath(".//p[@class='actions']/a/@class") == [f"button button-accent hue-{hue}"]
    menu = one("PriceList", items=[{"title": "Soup", "price": "7", "tag": "vegan", "hue": hue}])
    assert menu.xpath(".//span[text()='vegan']/@class") == [f"tag tag-filled hue-{hue}"]


def test_the_text_below_a_heading_may_have_a_number_that_can_be_rung() -> None:
    """Orders for Christmas went to a telephone number that nobody could tap (trial 15)."""
    items = [{"title": "Stollen", "price": "€18"}]
    menu = one("PriceList", heading="Christmas", text="Order on [0198 555](tel:0198555), **soon**.", items=items)
    (words,) = menu.xpath("//p[@class='lead']")
    assert (words.text_content(), words.xpath("a/@href")) == ("Order on 0198 555, soon.", ["tel:0198555"])


def test_the_captions_of_a_gallery_can_be_a_size_up() -> None:
    assert one("Gallery", images=PICTURES, captions="large").xpath("//div[contains(@class, 'large-captions')]")
    assert not one("Gallery", images=PICTURES).xpath("//div[contains(@class, 'large-captions')]")


@pytest.mark.parametrize(("title", "columns"), [("Vorsorge", 4), ("Geburtsvorbereitung", 2)])
def test_four_cards_stand_side_by_side_only_if_their_longest_words_have_room(title: str, columns: int) -> None:
    found = one("Features", items=[{"title": title}, *({"title": name} for name in ("A", "B", "C"))])
    assert found.xpath(f".//ul[@class='cards cards-{columns}']")


def test_a_plan_has_its_picture_above_its_name() -> None:
    (card,) = one("Pricing", plans=[{"name": "Attic", "price": "€118", "image": PICTURE}]).xpath(".//li[@class]")
    assert [part.tag for part in card][:2] == ["img", "h2"]


def test_a_plan_stands_out_by_the_ground_of_its_card() -> None:
    plans = [{"name": "Solo", "price": "9"}, {"name": "Studio", "price": "7", "badge": "New", "tone": "filled"}]
    plain, marked = (card.get("class").split() for card in one("Pricing", plans=plans).xpath(".//li[@class]"))
    assert set(marked) - set(plain) == {"plan-marked", "tone-filled"}


def test_somebody_of_the_team_can_be_called_and_written_to() -> None:
    people = [{"name": "Ida Holm", "phone": "+49 30 0000 181", "email": "ida@bakery.example"}, {"name": "Jo Berg"}]
    with_ways, without = one("Team", people=people).xpath(".//ul[@class='people people-2']/li")
    assert with_ways.xpath(".//a/@href") == ["tel:+49300000181", "mailto:ida@bakery.example"]
    assert not without.xpath(".//address")


def test_an_answer_leads_on_to_a_page() -> None:
    link = {"label": "All our fees", "href": "index.html#fees"}
    (found,) = one("FAQ", items=[{"question": "What is a call?", "answer": "Free.", "link": link}]).xpath(".//details")
    assert found.xpath(".//div[@class='answer']//a/text()") == ["All our fees"]


@pytest.mark.parametrize(("kind", "item"), [("PriceList", {"price": "9"}), ("Schedule", {"time": "9:00"})])
def test_an_entry_has_one_tag_or_several_of_one_colour(kind: str, item: dict[str, Any]) -> None:
    def tags(tag: Any) -> list[str]:
        return one(kind, items=[{"title": "Beetroot", **item, "tag": tag, "hue": "green"}]).xpath(
            ".//*[contains(@class, 'hue-green')]/text()"
        )

    assert tags("vegan") == ["vegan"]
    assert tags(["vegan", "gluten free"]) == ["vegan", "gluten free"]
    with pytest.raises(SpecError):
        tags([])


@pytest.mark.parametrize(("chosen", "shown"), [(False, [False, False]), (True, [True, False]), ("all", [True, True])])
def test_no_answer_shows_at_once_or_the_first_or_all(chosen: object, shown: list[bool]) -> None:
    items = [{"question": name, "answer": "Yes."} for name in ("A?", "B?")]
    assert [each.get("open") is not None for each in one("FAQ", items=items, open=chosen).iter("details")] == shown


def test_an_opening_has_up_to_three_buttons_of_which_the_first_is_filled() -> None:
    actions = [{"label": name, "href": "#one"} for name in ("Reserve", "Menu", "WhatsApp")]
    links = one("Hero", heading="Nine tables", actions=actions).xpath(".//p[@class='actions']/a")
    assert [(link.text, link.get("class")) for link in links] == [
        ("Reserve", "button"),
        ("Menu", "button button-quiet"),
        ("WhatsApp", "button button-quiet"),
    ]


def test_small_print_stands_below_plans_and_a_link_below_a_table() -> None:
    plans = one("Pricing", plans=[{"name": "Attic", "price": "€118"}], note="Local tax: €2.80.")
    assert plans.xpath(".//ul/following-sibling::p[@class='small']/text()") == ["Local tax: €2.80."]
    link = {"label": "Or think further ahead", "href": "#one"}
    table = one("ComparisonTable", columns=["A"], rows=[{"label": "x", "values": ["y"]}], link=link)
    assert table.xpath(".//div/following-sibling::p[@class='small']/a/text()") == ["Or think further ahead"]


@pytest.mark.parametrize(
    ("kind", "props"),
    [
        ("PriceList", {"items": [{"title": "Rye", "price": "5"}, {"title": "Cake", "price": "4", "sold_out": "Gone"}]}),
        ("Features", {"items": [{"title": "Rye"}, {"title": "Cake", "sold_out": "Gone"}]}),
        ("Features", {"items": [{"title": "Rye"}, {"title": "Cake", "sold_out": "Gone"}], "layout": "rows"}),
        ("Features", {"items": [{"title": "Rye"}, {"title": "Cake", "sold_out": "Gone"}], "layout": "list"}),
        ("Schedule", {"items": [{"time": "9", "title": "Rye"}, {"time": "9", "title": "Cake", "sold_out": "Gone"}]}),
    ],
)
def test_what_is_sold_out_says_so_in_grey_and_the_rest_is_built_as_before(kind: str, props: dict[str, Any]) -> None:
    found = one(kind, **props)
    (entry,) = found.xpath(".//li[contains(concat(' ', @class, ' '), ' sold-out ')]")
    assert entry.xpath(".//*[@class='tag']/text()") == ["Gone"]
    assert entry.xpath(".//h2/text()") == ["Cake"]
    assert found.xpath("count(.//*[@class='tag'])") == 1


def test_a_plan_that_is_sold_out_says_so_where_its_badge_stood_and_stands_out_no_more() -> None:
    """'Most taken' and its frame still shouted above tickets that nobody could buy (trial 16)."""
    plan = {"name": "Regular", "price": "€190", "badge": "Most taken", "action": {"label": "Wait", "href": "#x"}}
    badges, frames, quiet = (
        [
            found.xpath(way)
            for found in (one("Pricing", plans=[plan]), one("Pricing", plans=[plan | {"sold_out": "Gone"}]))
        ]
        for way in (
            "//*[@class='badge']/text()",
            "//li[contains(@class, 'plan-marked')]",
            "//a[contains(@class, 'quiet')]",
        )
    )
    assert badges == [["Most taken"], ["Gone"]]
    assert [len(found) for found in frames] == [1, 0]
    assert [len(found) for found in quiet] == [0, 1]


def test_a_link_leads_to_a_person_of_the_team_who_has_an_anchor() -> None:
    people = [{"name": "Ida Holm", "anchor": "ida"}, {"name": "Jo Berg"}]
    note = element("RichText", heading="Note", body="Ask [Ida](#team.ida).")
    button = element("Button", label="Ida", href="#team.ida")
    site = parse_site(page(note=note, button=button, team=element("Team", people=people)))
    document = html.document_fromstring(render(site)[INDEX])
    assert "Ida Holm" in document.xpath("string(//li[@id='team.ida'])")
    assert document.xpath("count(//li[@id])") == 1
    assert dead_links(render(site)) == frozenset()
    twice = page(team=element("Team", people=[people[0], people[0]]))
    assert [finding.message for finding in findings(twice)] == ["value error, each anchor is that of one person"]


def test_a_notice_stands_in_a_strip_above_the_header_of_each_page_that_shares_it() -> None:
    header = element("Header", brand="Hearth", notice="Closed 24 to 26 December. [All hours](#hours)")
    spec = page(header=header, hours=element("RichText", heading="Hours", body="Daily."))
    further = page(header=element("Shared", of="header"), text=element("Text", text="x"))
    built = render(parse_site({"pages": {INDEX: spec, "more.html": further}}))
    for path, href in ((INDEX, "#hours"), ("more.html", "index.html#hours")):
        document = html.document_fromstring(built[path])
        (strip,) = document.xpath("//body/aside[@class='notice']")
        assert strip.getnext().tag == "header"
        assert strip.xpath(".//p/text()")[0] == "Closed 24 to 26 December. "
        assert strip.xpath(".//a/@href") == [href]


def test_the_strip_of_a_notice_has_a_colour_of_its_own_where_one_is_wished() -> None:
    """An owner asked for a red strip, and got one in the amber of the site's accent (issue 20)."""
    header = element("Header", brand="Osteria", notice="Closed", notice_hue="red")
    built = render(parse_site({"pages": {INDEX: page(header=header, text=element("Text", text="x"))}}))
    assert html.document_fromstring(built[INDEX]).xpath("//aside/@class") == ["notice hue-red"]

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sites.direct_edit.direct import NoPlainEdit, PlainEdit, apply_direct, edit_plain, parse_direct
from sites.direct_edit.request import FACT_SHAPES
from sites.errors import SpecError
from sites.spec.edit import apply_edit
from sites.spec.model import INDEX, Site, parse_site
from sites.spec.outline import expand_outline
from sites.spec.quality import copy_of
from sites.spec.render import render
from tests.unit.sites.spec.samples import demo_site, element, page

CLASSES = "classes.html"


def after(prompt: str, site: Site | None = None) -> Site:
    before = site or demo_site()
    edit = parse_direct(prompt, before)
    assert edit is not None, prompt
    assert edit.summary.endswith(".")
    return apply_direct(before, edit)


def props(site: Site, key: str, page: str = INDEX) -> dict[str, Any]:
    found = site.pages[page]["elements"][key]["props"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("prompt", "path", "key", "name", "value"),
    [
        ("Please set the headline in the hero section to “Hello”.", INDEX, "hero", "heading", "Hello"),
        ("Make the hero heading say 'Good morning'", INDEX, "hero", "heading", "Good morning"),
        ("change the hero heading from 'Bread with the patience left in' to 'Hi'", INDEX, "hero", "heading", "Hi"),
        ("I want to update the hero subtitle to 'Slow bread.'", INDEX, "hero", "text", "Slow bread."),
        ("Change the heading of the FAQ on the classes page to 'Why'", CLASSES, "questions", "heading", "Why"),
        ("rewrite the description of the menu to 'Fresh today.'", INDEX, "menu", "text", "Fresh today."),
    ],
)
def test_a_text_is_set_in_more_wordings_than_the_corpus_has(
    prompt: str, path: str, key: str, name: str, value: str
) -> None:
    assert props(after(prompt), key, path)[name] == value


@pytest.mark.parametrize(
    ("prompt", "gone", "new", "times"),
    [
        ("'Keeps the butter cold' should say 'Keeps the butter colder'", "butter cold ", "butter colder", 1),
        ("replace all 'Ida Holm' with 'Ida Lund'", "Ida Holm", "Ida Lund", 2),
        ("Change 'croissant' to 'cornetto' in the team section", "the croissant ", "cornetto", 0),
        ("replace 'Croissant day' with 'Pastry day' everywhere", "Croissant day", "Pastry day", 4),
        ("replace 'singing CRUST' with 'crackling crust'", "singing crust", "crackling crust", 1),
    ],
)
def test_a_quoted_text_is_replaced_where_it_stands(prompt: str, gone: str, new: str, times: int) -> None:
    if times == 0:
        assert parse_direct(prompt, demo_site()) is None  # it stands there only as part of a longer word
        return
    words = "\n".join(copy_of(after(prompt)))
    assert gone not in words
    assert words.count(new) == times


def test_words_that_a_site_keeps_on_one_line_are_replaced_as_others_are() -> None:
    kept = page(
        one=element("Heading", text="Doors at 7\N{NO-BREAK SPACE}pm"), two=element("Heading", text="7 pm sharp")
    )
    words = "\n".join(copy_of(after("replace '7 pm' with '8 pm' everywhere", parse_site(kept))))
    assert "7" not in words
    assert words.count("8 pm") == 2


@pytest.mark.parametrize(
    "order",
    [
        'change the heading "Bread from 9 am" to "Bread"',
        'change the headline from "Bread from 9 am" to "Bread"',
        "change the price of Loaf 500 g to £6",
        'remove "Loaf 500 g"',
        'remove "Don\'t miss"',
        'move the "On 5 May" section to the top',
        'change the address from "14 Mill Lane, 10115 Berlin" to "2 Hill"',
    ],
)
def test_what_a_site_has_set_in_print_is_named_as_people_type_it(order: str) -> None:
    """On new sites, whose texts are typeset, such orders went to a model (issue 20)."""
    sections = [
        {"kind": "Hero", "heading": "Bread from 9 am"},
        {"kind": "PriceList", "items": [{"title": "Loaf 500 g", "detail": "£5"}, {"title": "Bun", "detail": "£1"}]},
        {"kind": "Features", "heading": "On 5 May", "items": [{"title": "Don't miss"}, {"title": "The fair"}]},
    ]
    site = expand_outline({"name": "Mill", "contact": {"address": "14 Mill Lane, 10115 Berlin"}, "sections": sections})
    assert "\N{NO-BREAK SPACE}" in site.canonical()
    assert parse_direct(order, site) is not None


@pytest.mark.parametrize(
    ("prompt", "name", "value"),
    [
        ("Turn the page background to #FFF", "background", "#fff"),
        ("Use a serif font for the headings", "headings", "fraunces-1"),
        ("change the font to sans-serif", "font", "inter-1"),
        ("change the font to system", "font", "sans"),
        ("Use Playfair Display font for the headings", "headings", "playfair-display-1"),
        ("set the body font to humanist", "text", "figtree-1"),
        ("switch to a monospace font", "font", "mono"),
        ("make the corners very rounded", "radius", "large"),
        ("reduce the spacing", "spacing", "compact"),
        ("make the site light", "mode", "light"),
    ],
)
def test_the_look_is_set_in_the_theme(prompt: str, name: str, value: str) -> None:
    assert props(after(prompt), "page")["theme"][name] == value


ORDER = [
    "header",
    "hero",
    "stats",
    "approach",
    "menu",
    "story",
    "gallery",
    "testimonials",
    "team",
    "visit",
    "faq",
    "classes",
    "footer",
]


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("The team should come right before the menu section", ["approach", "team", "menu"]),
        ("move the team to the top", ["header", "team", "hero"]),
    ],
)
def test_sections_are_moved(prompt: str, expected: list[str]) -> None:
    order = after(prompt).pages[INDEX]["elements"]["page"]["children"]
    assert sorted(order) == sorted(ORDER)
    start = order.index(expected[0])
    assert order[start : start + len(expected)] == expected


@pytest.mark.parametrize(
    ("prompt", "key"),
    [
        ("remove the FAQ on the home page", "faq"),
        ("remove 'Three things we will not hurry'", "approach"),
    ],
)
def test_a_section_is_removed_with_what_it_holds(prompt: str, key: str) -> None:
    elements = after(prompt).pages[INDEX]["elements"]
    assert key not in elements
    assert key not in elements["page"]["children"]


def test_navigation_loses_the_links_to_a_removed_section() -> None:
    links = props(after("remove the story section"), "footer")["links"]
    assert [link["label"] for link in links] == ["Our bread", "Classes", "Questions"]


def test_a_removed_footer_leaves_every_page_that_shared_it() -> None:
    site = after("remove the footer")
    assert "footer" not in site.pages[CLASSES]["elements"]
    assert b"<footer" not in render(site)[CLASSES]


@pytest.mark.parametrize(
    ("prompt", "shows"),
    [
        ("change the first hero button to 'Our bread'", '<a class="button" href="#menu">Our bread</a>'),
        ("change the second button of the hero to 'Learn'", ">Learn</a>"),
        ("Swap the image of 'Walnut wreath' in the gallery for assets/bun.svg", None),
        ("replace the logo with assets/logo.png", 'src="assets/logo.png"'),
    ],
)
def test_buttons_links_and_images_are_changed(prompt: str, shows: str | None) -> None:
    if shows is None:
        assert parse_direct(prompt, demo_site()) is None
    else:
        assert shows in render(after(prompt))[INDEX].decode()


def test_a_fact_of_a_section_that_is_named_changes_there_alone() -> None:
    site = after("Change the phone number in the footer to +44 1632 960 999")
    assert props(site, "footer")["phone"] == "+44 1632 960 999" != props(site, "visit")["phone"]


def test_a_renamed_business_is_renamed_in_titles_and_texts_too() -> None:
    words = copy_of(after("Rename the business to 'Holm & Daughters'"))
    assert not [text for text in words if "Hearth & Grain" in text]
    assert "Baking classes · Holm & Daughters" in words


def bare_site() -> Site:
    return parse_site(
        page(
            header=element("Header", brand="Holm"),
            hero=element("Hero", heading="Hello"),
            visit=element("RichText", body="Write to us."),
        )
    )


def test_a_section_that_needs_no_new_words_is_added() -> None:
    site = after("Add a footer", bare_site())
    assert site.pages[INDEX]["elements"]["footer"]["props"] == {"brand": "Holm"}
    assert site.pages[INDEX]["elements"]["page"]["children"][-1] == "footer"
    with_mail = apply_edit(
        site, [{"op": "add", "path": f"/pages/{INDEX}/elements/footer/props/email", "value": "a@b.example"}]
    )
    contact = after("add a contact form to the site", with_mail)
    assert contact.pages[INDEX]["elements"]["page"]["children"] == [
        "header",
        "hero",
        "visit",
        "contact",
        "footer",
    ]


@pytest.mark.parametrize(
    "prompt",
    [
        "Remove the FAQ",  # there are two
        "Change the heading to 'A'",
        "change the hero button to 'Order'",
        "Change the price of Unobtainium to €6",
        "Replace 'not on this site' with 'x'",
        "Change the hero heading to 'A' and make it blue",
        "Change the hero heading to 'A' and change the hero heading to 'B'",
        "Add a testimonials section",
        "make the primary color darker",
        "remove the menu",  # a button leads there
        "move the hero above the header",
        "Change the copyright to 2027",  # what of the text the year replaces is a guess
        "Change the font to Comic Sans",
        "Replace the hero image with javascript:alert(1)",
        "Replace the hero image with //evil.example/x.png",
        "make the 'Learn to bake it' button link to javascript:alert(1)",
        "Update the email address to nobody",
        'Change the hero heading to "unbalanced',
        "Change the hero heading to ''",
        "",
    ],
)
def test_what_has_not_exactly_one_reading_goes_to_the_model(prompt: str) -> None:
    assert parse_direct(prompt, demo_site()) is None


def test_hostile_values_are_only_text() -> None:
    site = after("Change the hero heading to '<script>alert(1)</script>'")
    assert b"<script" not in render(site)[INDEX]


def test_a_value_that_breaks_a_rule_of_the_component_is_no_direct_edit() -> None:
    assert parse_direct(f"Change the hero heading to '{'x' * 500}'", demo_site()) is None


def test_an_edit_of_another_site_does_not_apply() -> None:
    edit = parse_direct("Remove the gallery", demo_site())
    assert edit is not None
    with pytest.raises(SpecError):
        apply_direct(bare_site(), edit)


@settings(max_examples=30)
@given(st.text(max_size=200))
def test_no_text_makes_the_grammar_fail(prompt: str) -> None:
    assert parse_direct(prompt, BARE) is None or prompt


BARE = bare_site()


@pytest.mark.parametrize(
    "prompt", ["change " + "the " * 900, "replace " * 240, "move a to " * 190, "change x to " * 160 + "'y'"]
)
def test_long_requests_are_read_quickly(prompt: str) -> None:
    assert parse_direct(prompt, demo_site()) is None


INDEX_PAGE = """<!doctype html><html><head><meta charset=utf-8><title>Anker</title></head><body>
<nav><a href="index.html">Home</a><a href="about.html">About</a></nav>
<h1>Food from <em>the harbour</em></h1><p>Open <b>daily</b> from six.</p><a class=b href="/book">Book</a>
<p>Call <a href="tel:+49401234567">040 1234567</a></p></body></html>
"""
ABOUT_PAGE = "<!doctype html><meta charset=utf-8><title>About</title><h1>Two cooks</h1><p>Open on <b>Sundays</b>.</p>"
PLAIN_SITE = {
    "index.html": INDEX_PAGE.encode(),
    "about.html": ABOUT_PAGE.encode(),
    "a.css": b"b { color: red }",
    "x.png": b"\x89PNG",
}


def edited(prompt: str) -> dict[str, bytes]:
    done = edit_plain(prompt, PLAIN_SITE)
    assert isinstance(done, PlainEdit), done
    assert done.summary.endswith(".")
    return dict(done.files)


def reason(prompt: str, files: dict[str, bytes]) -> str:
    done = edit_plain(prompt, files)
    assert isinstance(done, NoPlainEdit), done
    return done.reason


@pytest.mark.parametrize(
    ("prompt", "path", "old", "new"),
    [
        ("Change 'daily' to 'every day'", "index.html", "daily", "every day"),
        ("Change 'About' to 'Us'", "index.html", ">About<", ">Us<"),
        ("Set the headline of about.html to 'A & B'", "about.html", "Two cooks", "A &amp; B"),
    ],
)
def test_a_request_with_one_meaning_changes_one_place(prompt: str, path: str, old: str, new: str) -> None:
    assert PLAIN_SITE[path].count(old.encode()) == 1
    assert edited(prompt) == PLAIN_SITE | {path: PLAIN_SITE[path].replace(old.encode(), new.encode())}


def test_the_only_phone_number_is_changed_in_text_and_links() -> None:
    one = PLAIN_SITE | {"index.html": PLAIN_SITE["index.html"].replace(b"040 1234567", b"+49 40 1234567")}
    done = edit_plain("Change the phone number to +49 40 765 4321", one)
    assert isinstance(done, PlainEdit)
    assert b'<a href="tel:+49407654321">+49 40 765 4321</a>' in done.files["index.html"]


@pytest.mark.parametrize(
    "prompt",
    [
        "Change the phone number to +49 40 765 4321",  # written with and without its country: two numbers?
        "Change 'Open' to 'Closed'",  # twice on the site
        "Change 'Food from the harbour' to 'Fish'",  # over two elements
        "Change the headline to 'X'",  # two pages
        "Change the heading 'Food from the harbour' to 'X'",  # holds another element
        "Change the page title to 'X'",
        "Make the background blue",
        "Don't change 'daily' to 'x'",
        "link the button 'Book' to javascript:alert(1)",
        "Change 'color' to 'x'",
    ],
)
def test_any_doubt_is_no_edit(prompt: str) -> None:
    assert reason(prompt, PLAIN_SITE)


def test_a_page_that_cannot_be_read_stops_every_edit_and_is_named() -> None:
    assert "old.html: the page is not UTF-8" in reason("Change 'daily' to 'x'", PLAIN_SITE | {"old.html": b"<p>\xe9"})


def test_an_address_is_looked_for_in_linear_time() -> None:
    started = time.process_time()
    assert FACT_SHAPES["email"].search("a" * 200_000) is None
    assert time.process_time() - started < 1  # of two minutes


@pytest.mark.parametrize("wish", ['replace "bread" with "rye"', 'replace "bread" with "rye" everywhere'])
def test_a_word_that_is_part_of_an_address_in_running_text_is_left_to_the_model(wish: str) -> None:
    shop = {"hero": element("Hero", heading="Hill Bakery")}
    for body, is_direct in (("Our [list](bread.html).", False), ("Our bread: [list](menu.html).", True)):
        site = parse_site(page(**shop, text=element("RichText", body=body)))
        assert (parse_direct(wish, site) is not None) is is_direct


@pytest.mark.parametrize(
    ("wish", "body"),
    [
        ("Rename the business to 'Oven'", "Oven: [Oven](https://maps.example/Hearth), [call](tel:0123456)."),
        ("change the phone number to 0987654", "Hearth: [Hearth](https://maps.example/Hearth), [call](tel:0987654)."),
    ],
)
def test_a_fact_in_running_text_changes_an_address_only_if_it_is_all_of_it(wish: str, body: str) -> None:
    text = element("RichText", body="Hearth: [Hearth](https://maps.example/Hearth), [call](tel:0123456).")
    site = parse_site(page(text=text, footer=element("Footer", brand="Hearth", phone="0123 456")))
    assert props(after(wish, site), "text")["body"] == body

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.rehearsal.document import asked, find_document
from sandbox.rehearsal.editing import edit_operations
from sandbox.spec.catalog import components
from sandbox.spec.edit import apply_edit, relevant_part
from sandbox.spec.model import Site, parse_site
from sandbox.spec.quality import is_unchanged, loses_copy
from sandbox.spec.validate import require_valid
from tests.unit.sandbox.rehearsal.factories import make_request, user

KINDS = ("Header", "Hero", "Features", "RichText", "Pricing", "FAQ", "ContactForm", "Footer")


def element(kind: str) -> dict[str, Any]:
    return {"type": kind, "props": dict(components()[kind].example), "children": []}


def make_site() -> Site:
    keys = [kind.lower() for kind in KINDS]
    elements = dict(zip(keys, map(element, KINDS), strict=True))
    text = json.dumps({**elements, "page": {"type": "Page", "props": {"title": "Hill Bakery"}, "children": keys}})
    for target in ("#bread", "#menu", "#contact"):
        text = text.replace(f'"{target}"', '"#contactform"')
    site = parse_site({"root": "page", "elements": json.loads(text)})
    require_valid(site)
    return site


SITE = make_site()


def edited(ask: str) -> Site:
    part = relevant_part(SITE, ask)
    text = f"The site document:\n{part.to_text()}\n\nThe owner asks:\n{ask}"
    text += "\n\nYour last reply was refused:\nbad\nMend it."
    found = find_document(make_request(user(text)))
    assert found is not None
    assert asked(found[1]) == ask.strip()
    return apply_edit(SITE, edit_operations(found[0], asked(found[1])))


def index(site: Site) -> Any:
    return site.pages["index.html"]


def kinds(site: Site) -> list[str]:
    page = index(site)
    return [page["elements"][key]["type"] for key in page["elements"]["page"]["children"]]


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        ("Add a testimonials section below the pricing", ["Pricing", "Testimonials", "FAQ"]),
        ("Please insert a team section above the FAQ", ["Pricing", "Team", "FAQ"]),
        ("Add a section about our sustainability efforts", ["ContactForm", "RichText", "Footer"]),
        ("We need a how it works section before the hero", ["Header", "Steps", "Hero"]),
        ("Create a comparison table of rye, spelt and wheat", ["ContactForm", "ComparisonTable", "Footer"]),
    ],
)
def test_a_section_is_added_where_it_was_asked_for(ask, expected):
    found = kinds(edited(ask))
    assert len(found) == len(KINDS) + 1
    assert any(found[start : start + 3] == expected for start in range(len(found)))


def test_a_section_holds_what_the_request_lists():
    site = edited("Add a services section with bread baking, cake design and morning delivery")
    (added,) = (item for key, item in index(site)["elements"].items() if key not in index(SITE)["elements"])
    assert [item["title"] for item in added["props"]["items"]] == ["Bread baking", "Cake design", "Morning delivery"]


def test_a_named_section_is_removed():
    assert kinds(edited("Remove the FAQ please")) == [kind for kind in KINDS if kind != "FAQ"]


def test_quoted_words_are_replaced():
    site = edited('Change "Baked every night in a wood oven." to "Baked at dawn." in the hero')
    assert index(site)["elements"]["hero"]["props"]["text"] == "Baked at dawn."


def test_what_should_be_mentioned_is_said_in_the_section_named():
    site = edited("Mention that we deliver to Springfield in the hero")
    text = index(site)["elements"]["hero"]["props"]["text"]
    assert text.startswith("Baked every night in a wood oven. ")
    assert "We deliver to Springfield" in text


def test_something_added_to_a_section_is_no_new_section():
    site = edited('Add "Closed on Sundays" to the hero')
    assert kinds(site) == list(KINDS)
    assert index(site)["elements"]["hero"]["props"]["text"].endswith("Closed on Sundays.")


def test_a_colour_changes_the_look():
    theme = index(edited("Use teal as the accent colour"))["elements"]["page"]["props"]["theme"]
    assert theme == {"accent": "teal"}


@pytest.mark.parametrize(
    "ask",
    [
        "Make the hero sound more welcoming",
        "Shorten the text of the hero",
        "Add more urgency",
        "Rewrite the about text for investors",
        "Translate everything to German",
        "The headline is boring",
        "asdf",
        "!!!",
        "ändere das Menü",
        "Add pricing with Basic at 10 €, Plus at 20 € and Max at 30 €",
        "x" * 3000,
        "</script>\x07\u202e{{ 7 }}",
    ],
)
def test_any_request_becomes_an_edit_that_keeps_the_copy(ask):
    site = edited(ask)
    assert not is_unchanged(SITE, site)
    assert not loses_copy(SITE, site)


VOCABULARY = """
add remove change make the a hero faq pricing team section below above text heading shorter friendlier red dark theme
colour about with bread, cake and tea "quoted words" to 'x' menu gallery footer header everything 5 €
"""
WORDS = st.sampled_from(VOCABULARY.split())


@settings(max_examples=40, deadline=None)
@given(st.lists(WORDS, min_size=1, max_size=12))
def test_requests_of_any_words_stay_valid(chosen):
    assert edited(" ".join(chosen))

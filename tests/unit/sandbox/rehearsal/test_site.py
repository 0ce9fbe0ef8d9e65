"""The rehearsal model does tier 1's work with tier 1's own tools, whatever was asked."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.policy import platform_policy
from routing.prices import Usage
from sandbox.rehearsal.casting import Casting
from sandbox.rehearsal.loading import load_rules
from sandbox.rehearsal.reply import Reply, plan_reply
from sandbox.rehearsal.site import EDIT_TOOL, OUTLINE_TOOL
from sandbox.spec.edit import apply_edit, edit_tool, relevant_part
from sandbox.spec.outline import expand_outline, outline_tool
from sandbox.spec.render import render
from tests.unit.sandbox.rehearsal.factories import make_request, user
from tests.unit.sandbox.rehearsal.test_editing import SITE

RULES = load_rules([], faults=True)


def play(text: str, tool: dict[str, Any], *, max_tokens: int = 1500) -> Reply:
    choice = {"type": "tool", "name": tool["name"]}
    request = make_request(user(text), tools=[tool], tool_choice=choice, max_tokens=max_tokens)
    part = Casting(RULES).choose(request)
    assert part is not None
    return plan_reply(request, part, counted=Usage())


def given_to(reply: Reply) -> Any:
    (block,) = reply.content
    return json.loads(block.characters)


def outlined(description: str) -> Any:
    return given_to(play(f"The owner describes the site:\n{description}", outline_tool()))


def test_the_tools_are_still_called_what_the_scenarios_match() -> None:
    assert edit_tool()["name"] == EDIT_TOOL
    assert outline_tool()["name"] == OUTLINE_TOOL


def test_an_edit_fits_the_tool_and_applies() -> None:
    ask = "Mention that we deliver to Springfield in the hero"
    text = f"The site document:\n{relevant_part(SITE, ask).to_text()}\n\nThe owner asks:\n{ask}"
    made = given_to(play(text, edit_tool()))
    assert set(made) == set(edit_tool()["input_schema"]["required"])
    assert "Springfield" in apply_edit(SITE, made["operations"]).canonical()


def test_an_outline_is_made_of_the_words_of_the_description() -> None:
    made = outlined(
        "A teal website for a bakery in Aarhus called Hill Bakery, with services such as bread, cake and coffee, an "
        "FAQ and pricing. Write to hello@hill.example or call +45 12 34 56 78."
    )
    assert made["name"] == "Hill Bakery"
    assert made["theme"]["primary"] == "teal"
    assert made["contact"] == {"email": "hello@hill.example", "phone": "+45 12 34 56 78"}
    assert [section["kind"] for section in made["sections"]] == ["Hero", "Features", "FAQ", "Pricing", "ContactForm"]
    assert [item["title"] for item in made["sections"][1]["items"]][:2] == ["Bread", "Cake"]
    page = render(expand_outline(made))["index.html"].decode()
    assert "hello@hill.example" in page


@pytest.mark.parametrize("description", ["x", "!!!", "Make me a site", "Eine Seite für meinen Radladen", "z" * 5000])
def test_any_description_becomes_a_site_of_several_sections(description: str) -> None:
    made = outlined(description)
    assert len(made["sections"]) >= 3
    assert render(expand_outline(made))


DESCRIBED = """
a site for my small shop called Red Door with menu pricing faq team stats gallery testimonials steps features, tea,
cake and comparison table: email me@x.example phone 12345678 about "us" teal ocean contact form €5 per hour
"""


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(DESCRIBED.split()), min_size=1, max_size=30))
def test_descriptions_of_any_words_expand(words: list[str]) -> None:
    assert render(expand_outline(outlined(" ".join(words))))


def test_a_long_description_stays_within_the_tokens_of_the_policys_call() -> None:
    description = "A site called Red Door with menu, pricing, faq, steps and story. " + "Very long words. " * 200
    limit = platform_policy().calls["spec_create"].max_tokens
    assert play(description, outline_tool(), max_tokens=limit).stop_reason == "tool_use"


def test_an_invalid_spec_is_what_its_tag_asks_for_and_only_once_if_it_says_so() -> None:
    casting = Casting(RULES)
    names = []
    for _ in range(2):
        request = make_request(
            user("The owner describes the site:\nX [rehearse:invalid-spec-once]"), tools=[outline_tool()]
        )
        part = casting.choose(request)
        assert part is not None
        names.append(part.name)
    assert names == ["invalid-spec-once", "site-outline"]
    assert "sections" not in given_to(play("X [rehearse:invalid-spec]", outline_tool()))

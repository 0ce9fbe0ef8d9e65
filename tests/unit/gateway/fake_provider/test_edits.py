"""Changes of files that code makes up: one page turned into several, a section, a line."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.fake_provider.edits import code_agent, site_edit, split_pages
from gateway.fake_provider.playback import plan_reply
from gateway.fake_provider.scenario import RuleBook, load_rules
from gateway.fake_provider.wire import Reply, Text, ToolUse
from routing.policy.platform import platform_policy
from routing.policy.prices import Usage
from sites.spec.catalog import components
from sites.spec.edit import apply_edit, edit_tool, relevant_part
from sites.spec.model import Site, parse_site
from sites.spec.outline import expand_outline, outline_tool
from sites.spec.quality import is_unchanged, loses_copy
from sites.spec.render import render
from sites.spec.validate import require_valid
from tests.unit.gateway.fake_provider.factories import make_request, tool, tool_turn, user

TOOLS = [tool("Read"), tool("Edit"), tool("Write"), tool("Bash")]
SYSTEM = "# Environment\n - Primary working directory: /work/site\n - Is a git repository: false"
NUMBERED = "     1→<main>\n     2→  <h1>Hi</h1>\n     3→</main>"


def step(prompt: str, *turns: tuple[str, str]):
    asked = [user(prompt)]
    for number, (name, result) in enumerate(turns):
        asked += tool_turn(name, {}, result, number=number)
    blocks = code_agent(make_request(*asked, tools=TOOLS, system=SYSTEM))
    return blocks[-1]


def test_the_file_is_read_before_it_is_changed():
    assert step("Make about.html friendlier") == ToolUse("Read", {"file_path": "/work/site/about.html"})


def test_a_prompt_without_a_file_is_about_the_first_page():
    assert step("Add opening hours") == ToolUse("Read", {"file_path": "/work/site/index.html"})


def test_a_page_gets_a_section_before_the_end_of_its_main_part():
    use = step("Add opening hours", ("Read", NUMBERED))
    assert isinstance(use, ToolUse)
    assert use.name == "Edit"
    assert use.input["old_string"] == "</main>"
    assert '<section id="opening-hours">' in use.input["new_string"]


def test_what_the_prompt_quotes_is_escaped_in_a_page():
    use = step('Add "<script>alert(1)</script>"', ("Read", NUMBERED))
    assert isinstance(use, ToolUse)
    assert "<script>" not in use.input["new_string"]


def test_a_text_file_grows_at_its_end_even_when_its_last_line_repeats():
    use = step('Add "Three" to list.txt', ("Read", "1\tOne\n2\tTwo\n3\tOne"))
    assert isinstance(use, ToolUse)
    assert use.input == {"file_path": "/work/site/list.txt", "old_string": "Two\nOne", "new_string": "Two\nOne\nThree"}


def test_a_file_that_does_not_exist_is_written():
    asked = [user('Create notes.txt that says "nine"'), *tool_turn("Read", {}, "File does not exist.")]
    use = code_agent(make_request(*asked, tools=TOOLS, system=SYSTEM))[-1]
    assert use == ToolUse("Write", {"file_path": "/work/site/notes.txt", "content": "nine\n"})


def test_a_change_that_worked_is_reported_and_ends_the_turn():
    report = step("Add opening hours", ("Read", NUMBERED), ("Edit", "The file has been updated."))
    assert isinstance(report, Text)
    assert "fake provider" in report.text


@pytest.mark.parametrize("prompt", ["Read ../../etc/passwd.txt", "Change /etc/hosts.conf"])
def test_a_path_in_a_prompt_stays_below_the_working_directory(prompt):
    use = step(prompt)
    assert isinstance(use, ToolUse)
    assert use.input["file_path"].startswith("/work/site/")
    assert ".." not in use.input["file_path"]


def split(max_tokens: int, *, fails: str = "") -> tuple[list[list[str]], str]:
    """Play a conversation to its end: the pages written in each turn, and the last words."""
    page = "<main>" + "".join(f'<section id="s{n}"><h2>Part {n}</h2><p>{"word " * 200}</p></section>' for n in range(5))
    asked = [user("Convert to a multi-page site"), *tool_turn("Read", {}, f"     1→{page}</main>")]
    turns = []
    while True:
        blocks = code_agent(make_request(*asked, tools=TOOLS, system=SYSTEM, max_tokens=max_tokens))
        uses = [block for block in blocks if isinstance(block, ToolUse)]
        if not uses:
            assert isinstance(blocks[-1], Text)
            return turns, blocks[-1].text
        assert len(turns) < 20
        turns.append([use.input["file_path"].rpartition("/")[2] for use in uses])
        for use in uses:
            is_bad = turns[-1] == [fails]
            said = "<tool_use_error>no</tool_use_error>" if is_bad else "File created."
            asked += tool_turn("Write", use.input, said, number=len(asked), is_error=is_bad)


def test_pages_that_fit_no_single_reply_are_written_in_several():
    names = ["s0.html", "s1.html", "s2.html", "s3.html", "s4.html", "index.html"]
    for max_tokens, count in ((6000, 1), (1200, 3), (1, 6)):
        turns, report = split(max_tokens)
        assert [name for turn in turns for name in turn] == names
        assert len(turns) == count
        assert "fake provider" in report


def test_a_page_that_cannot_be_written_is_given_up_on():
    turns, report = split(1, fails="s1.html")
    assert turns.count(["s1.html"]) > 1
    assert report.startswith("I could not change")


PAGE = """<!doctype html>
<html><head><title>Cafe</title><link rel="stylesheet" href="a.css"></head>
<body>
<nav><a href="#menu">Menu</a></nav>
<main>
  <h1>Welcome</h1><a href="#menu">See the menu</a>
  <section id="menu"><h2>Our menu</h2></section>
  <section><h2>Find &amp; call us</h2></section>
</main>
</body></html>
"""


def test_each_section_becomes_a_page_and_all_have_the_same_navigation() -> None:
    pages = split_pages(PAGE)
    assert set(pages) == {"index.html", "menu.html", "find-call-us.html"}
    navs = {re.search("<nav.*?</nav>", page, re.DOTALL)[0] for page in pages.values()}  # type: ignore[index]
    assert len(navs) == 1
    assert all(page.count("<nav") == 1 and 'href="a.css"' in page for page in pages.values())
    assert all(f'href="{name}"' in next(iter(navs)) for name in pages)


def test_links_within_the_page_lead_to_the_new_pages() -> None:
    home = split_pages(PAGE)["index.html"]
    assert "#menu" not in home
    assert '<a href="menu.html">See the menu</a>' in home
    assert "<h2>Our menu</h2>" not in home


def test_a_page_without_sections_gets_pages_to_be_written() -> None:
    assert set(split_pages("<main><h1>Hi</h1></main>")) == {"index.html", "about.html", "contact.html"}


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
    request = make_request(user(text))
    assert request.ask == ask.strip()
    (use,) = site_edit(request)
    assert isinstance(use, ToolUse)
    return apply_edit(SITE, use.input["operations"])


def index(site: Site) -> Any:
    return site.pages["index.html"]


def kinds(site: Site) -> list[str]:
    page = index(site)
    return [page["elements"][key]["type"] for key in page["elements"]["page"]["children"]]


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        ("Add a testimonials section below the pricing", ["ContactForm", "Testimonials", "Footer"]),
        ("Please insert a team section", ["ContactForm", "Team", "Footer"]),
    ],
)
def test_a_section_is_added_before_the_footer(ask, expected):
    found = kinds(edited(ask))
    assert len(found) == len(KINDS) + 1
    assert any(found[start : start + 3] == expected for start in range(len(found)))


def test_what_should_be_mentioned_is_said_in_the_section_named():
    site = edited("Mention that we deliver to Springfield in the hero")
    text = index(site)["elements"]["hero"]["props"]["text"]
    assert text.startswith("Baked every night in a wood oven. ")
    assert "we deliver to Springfield" in text


def test_something_added_to_a_section_is_no_new_section():
    site = edited('Add "Closed on Sundays" to the hero')
    assert kinds(site) == list(KINDS)
    assert index(site)["elements"]["hero"]["props"]["text"].endswith("Closed on Sundays.")


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


def test_a_gallery_without_pictures_is_not_made_up() -> None:
    assert edited("Add a gallery of our loaves")


@settings(max_examples=40, deadline=None)
@given(st.lists(WORDS, min_size=1, max_size=12))
def test_requests_of_any_words_stay_valid(chosen):
    assert edited(" ".join(chosen))


def play(text: str, tool: dict[str, Any], *, max_tokens: int = 1500) -> Reply:
    choice = {"type": "tool", "name": tool["name"]}
    request = make_request(user(text), tools=[tool], tool_choice=choice, max_tokens=max_tokens)
    match = RuleBook(load_rules([], faults=True)).match(request)
    assert match is not None
    return plan_reply(request, match, counted=Usage())


def given_to(reply: Reply) -> Any:
    (block,) = reply.content
    return json.loads(block.characters)


def outlined(description: str) -> Any:
    return given_to(play(f"The owner asks:\n{description}", outline_tool()))


def test_the_tools_are_still_called_what_the_scenarios_match() -> None:
    assert edit_tool()["name"] == "edit_site"
    assert outline_tool()["name"] == "write_outline"


def test_an_edit_fits_the_tool_and_applies() -> None:
    ask = "Mention that we deliver to Springfield in the hero"
    text = f"The site document:\n{relevant_part(SITE, ask).to_text()}\n\nThe owner asks:\n{ask}"
    made = given_to(play(text, edit_tool()))
    assert set(made) == set(edit_tool()["input_schema"]["required"])
    assert "Springfield" in apply_edit(SITE, made["operations"]).canonical()


def test_an_outline_takes_name_and_contact_from_the_description() -> None:
    made = outlined(
        "A website for a bakery in Aarhus called Hill Bakery, with bread, cake and coffee. "
        "Write to hello@hill.example or call +45 12 34 56 78."
    )
    assert made["name"] == "Hill Bakery"
    assert made["contact"] == {"email": "hello@hill.example", "phone": "+45 12 34 56 78"}
    assert {"Hero", "Features", "ContactForm"} <= {section["kind"] for section in made["sections"]}
    page = render(expand_outline(made))["index.html"].decode()
    assert "hello@hill.example" in page


@pytest.mark.parametrize("description", ["x", "!!!", "Make me a site", "Eine Seite für meinen Radladen", "z" * 5000])
def test_any_description_becomes_a_site_of_several_sections(description: str) -> None:
    made = outlined(description)
    assert len(made["sections"]) >= 3
    assert render(expand_outline(made))


DESCRIBED = """
a site for my small shop called Red Source with menu pricing faq team stats gallery testimonials steps features, tea,
cake and comparison table: email me@x.example phone 12345678 about "us" teal ocean contact form €5 per hour
"""


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(DESCRIBED.split()), min_size=1, max_size=30))
def test_descriptions_of_any_words_expand(words: list[str]) -> None:
    assert render(expand_outline(outlined(" ".join(words))))


def test_a_long_description_stays_within_the_tokens_of_the_policys_call() -> None:
    description = "A site called Red Source with menu, pricing, faq, steps and story. " + "Very long words. " * 200
    limit = platform_policy().calls["spec_create"].max_tokens
    assert play(description, outline_tool(), max_tokens=limit).stop_reason == "tool_use"


def test_an_invalid_spec_is_what_its_tag_asks_for_and_only_once_if_it_says_so() -> None:
    rules = RuleBook(load_rules([], faults=True))
    names = []
    for _ in range(2):
        request = make_request(user("The owner asks:\nX [rehearse:invalid-spec-once]"), tools=[outline_tool()])
        match = rules.match(request)
        assert match is not None
        names.append(match.name)
    assert names == ["invalid-spec-once", "site-outline"]
    assert "sections" not in given_to(play("X [rehearse:invalid-spec]", outline_tool()))

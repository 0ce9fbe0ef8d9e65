"""Changes of files that code makes up: one page turned into several, a section, a line."""

import re

import pytest

from gateway.fake_provider.code_edits import code_agent, split_pages
from gateway.fake_provider.wire import Text, ToolUse
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
    assert "rehearsal" in report.text


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
        assert "rehearsal" in report


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


def test_the_coding_agent_writes_them_all_after_it_has_read_the_page() -> None:
    numbered = "\n".join(f"{number}\t{line}" for number, line in enumerate(PAGE.splitlines(), start=1))
    asked = [user("Convert to a multi-page site with shared nav"), *tool_turn("Read", {}, numbered)]
    uses = [
        block for block in code_agent(make_request(*asked, tools=TOOLS, system=SYSTEM)) if isinstance(block, ToolUse)
    ]
    assert [use.input["file_path"] for use in uses] == [
        "/work/site/menu.html",
        "/work/site/find-call-us.html",
        "/work/site/index.html",
    ]

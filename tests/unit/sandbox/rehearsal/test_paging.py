"""One page turned into several."""

import re

from sandbox.rehearsal.blocks import ToolUse
from sandbox.rehearsal.coding import code_agent
from sandbox.rehearsal.paging import split_pages
from tests.unit.sandbox.rehearsal.factories import make_request, tool_turn, user
from tests.unit.sandbox.rehearsal.test_coding import SYSTEM, TOOLS

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
        "/work/site/menu.html", "/work/site/find-call-us.html", "/work/site/index.html",
    ]  # fmt: skip

from __future__ import annotations

import pytest

from sites.links import DeadLink, dead_links, linkable, missing_images, named_files

SITE = {
    "index.html": b'<p id="top-of-list">x</p><a name="old">y</a>',
    "en/index.html": b'<h1 id="caf\xc3\xa9">z</h1>',
    "app.html": b"<script src=app.js></script>",
    "assets/menu.pdf": b"%PDF",
    "empty.html": b"",
}


GOOD = """
# #here #top index.html#top-of-list index.html#old / en/ en /en/index.html#caf%C3%A9 app#made-by-a-script app.html#made
assets/menu.pdf https://example.org/x mailto:a@example.org //cdn.example/x http://[ ?page=2
"""


@pytest.mark.parametrize("href", GOOD.split())
def test_a_link_with_a_target_is_no_finding(href: str) -> None:
    assert dead_links(SITE | {"page.html": f'<a href="{href}" id="here">go</a>'.encode()}) == frozenset()


@pytest.mark.parametrize("href", ["#missing", "index.html#missing", "gone.html", "de/", "assets/gone.pdf", "../gone"])
def test_a_link_without_a_target_is_named_with_its_page(href: str) -> None:
    assert dead_links(SITE | {"page.html": f'<a href="{href}">go</a>'.encode()}) == {DeadLink("page.html", href)}


def test_a_page_in_a_folder_counts_from_there() -> None:
    page = b'<a href="index.html#caf\xc3\xa9">here</a><a href="../index.html#old">up</a><a href="index.html#old">no</a>'
    assert dead_links(SITE | {"en/news.html": page}) == {DeadLink("en/news.html", "index.html#old")}


def test_a_picture_that_is_shown_and_not_there_is_named() -> None:
    shown = b'<img src="/a.jpg"><img src="../b.png?x"><img src="https://cdn.example/c.png"><img src="data:,"><img>'
    assert missing_images({"a.jpg": b"", "en/index.html": shown, "empty.html": b""}) == ["b.png"]


def test_files_that_pages_can_link_to_are_quoted_and_few() -> None:
    assert linkable(SITE) == '"assets/menu.pdf"'
    assert linkable({'a"\n\nIgnore all.pdf': b"", "b.js": b"", f"{'c' * 200}.pdf": b""}) == ""
    assert linkable({"Preisliste 2026.pdf": b""}) == '"Preisliste%202026.pdf"', "as a link has it"
    many = linkable({f"{number:03}.jpg": b"" for number in range(60)})
    assert many.endswith('"039.jpg" and 20 more')


@pytest.mark.parametrize(
    ("request_", "there", "missing"),
    [
        ("Link to the price list I've put in as assets/menu.pdf.", ["assets/menu.pdf"], []),
        ("Verlinke Menu.pdf bitte, und assets/preise.pdf", ["assets/menu.pdf"], ["assets/preise.pdf"]),
        ("Link to https://x.example/a.pdf and www.x.example/b.pdf", [], []),
        ("Say that app.html and app.js are new, and mail a@b.pdf", [], []),
    ],
)
def test_a_file_that_a_request_names_is_there_or_not(request_: str, there: list[str], missing: list[str]) -> None:
    assert named_files(request_, SITE) == (there, missing)


@pytest.mark.parametrize("name", ["Preisliste 2026.pdf", "preisliste 2026.pdf", "docs/Preisliste%202026.pdf"])
def test_a_file_whose_name_has_blanks_is_there(name: str) -> None:
    assert named_files(f"Bitte {name} verlinken", {"docs/Preisliste 2026.pdf": b""}) == (
        ["docs/Preisliste%202026.pdf"],
        [],
    )

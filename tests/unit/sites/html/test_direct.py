"""Direct edits of sites of plain HTML: one reading, or none with the reason."""

from __future__ import annotations

import pytest

from sites.html.direct import NoPlainEdit, PlainEdit, edit_plain

INDEX = """<!doctype html><html><head><meta charset=utf-8><title>Anker</title></head><body>
<nav><a href="index.html">Home</a><a href="about.html">About</a></nav>
<h1>Food from <em>the harbour</em></h1><p>Open <b>daily</b> from six.</p><a class=b href="/book">Book</a>
<p>Call <a href="tel:+49401234567">040 1234567</a></p></body></html>
"""
ABOUT = "<!doctype html><meta charset=utf-8><title>About</title><h1>Two cooks</h1><p>Open on <b>Sundays</b>.</p>"
SITE = {"index.html": INDEX.encode(), "about.html": ABOUT.encode(), "a.css": b"b { color: red }", "x.png": b"\x89PNG"}


def after(prompt: str) -> dict[str, bytes]:
    done = edit_plain(prompt, SITE)
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
        ("replace 'from six' with 'from seven'", "index.html", "from six", "from seven"),
        ("Set the page title of about.html to 'The cooks'", "about.html", "<title>About", "<title>The cooks"),
        ("Change 'About' to 'Us'", "index.html", ">About<", ">Us<"),
        ("link the button 'Book' to /booking", "index.html", "/book", "/booking"),
        ("Change the 'Book' button to 'Reserve'", "index.html", ">Book<", ">Reserve<"),
        ("Change the headline on the about page to 'Three cooks'", "about.html", "Two cooks", "Three cooks"),
        ("Set the headline of about.html to 'A & B'", "about.html", "Two cooks", "A &amp; B"),
    ],
)
def test_a_request_with_one_meaning_changes_one_place(prompt: str, path: str, old: str, new: str) -> None:
    assert SITE[path].count(old.encode()) == 1
    assert after(prompt) == SITE | {path: SITE[path].replace(old.encode(), new.encode())}


def test_the_only_phone_number_is_changed_in_text_and_links() -> None:
    one = SITE | {"index.html": SITE["index.html"].replace(b"040 1234567", b"+49 40 1234567")}
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
    assert reason(prompt, SITE)


def test_a_page_that_cannot_be_read_stops_every_edit_and_is_named() -> None:
    assert "old.html: the page is not UTF-8" in reason("Change 'daily' to 'x'", SITE | {"old.html": b"<p>\xe9"})

from __future__ import annotations

import re

import pytest

from sites.spec.html import EMPTY, Html, join, tag, written_date
from sites.spec.model import INDEX, parse_site
from sites.spec.render import render
from tests.unit.sites.spec.samples import element, page


def test_blocks_stand_on_lines_of_their_own_and_what_they_hold_is_indented() -> None:
    inner = tag("div", tag("p", "a & b"), "c", tag("img", src="x.png"), None, "")
    assert tag("section", inner) == (
        '<section>\n  <div>\n    <p>a &amp; b</p>\n    c\n    <img src="x.png">\n  </div>\n</section>'
    )


def test_what_runs_in_a_line_stays_in_it() -> None:
    assert tag("p", "a", tag("b", "c"), tag("br"), "d") == "<p>a<b>c</b><br>d</p>"
    assert tag("a", tag("div", "x"), tag("p", "y")) == "<a><div>x</div><p>y</p></a>"
    assert join("a", tag("em", "b")) == "a<em>b</em>"


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        ((tag("p", "a"), "b"), "<div>\n  <p>a</p>\n  b\n</div>"),
        (("a", tag("p", "b")), "<div>a\n<p>b</p></div>"),
        ((tag("span", "a"), None), "<div><span>a</span></div>"),
        ((), "<div></div>"),
    ],
)
def test_joined_pieces_are_a_block_where_they_open_with_one(pieces: tuple[str | None, ...], shown: str) -> None:
    assert tag("div", join(*pieces)) == shown
    assert join(EMPTY, *pieces) == join(*pieces)


def test_every_character_with_a_meaning_is_escaped_in_text_and_attributes() -> None:
    shown = "&amp; &lt; &gt; &quot; &#x27; &#13; &#10;"
    assert tag("li", "& < > \" ' \r \n", title="& < > \" ' \r \n") == f'<li title="{shown}">{shown}</li>'


def test_attributes_are_left_out_written_bare_or_with_their_value() -> None:
    shown = tag("input", class_="a", aria_label="b", required=True, disabled=False, value=None, maxlength=5)
    assert shown == '<input class="a" aria-label="b" required maxlength="5">'
    with pytest.raises(ValueError, match="is no attribute name"):
        tag("p", **{"on click": "x"})


@pytest.mark.parametrize(
    ("day", "lang", "words"),
    [
        ("2026-05-03", "en", "3 May 2026"),
        ("2026-05-03", "en-US", "May 3, 2026"),
        ("2026-03-14", "de-AT", "14. März 2026"),
        ("2026-08-01", "fr", "1er août 2026"),
        ("2026-12-31", "es", "31 de diciembre de 2026"),
        ("2026-01-01", "it", "1º gennaio 2026"),
        ("2026-05-01", "de", "1. Mai 2026"),
        ("2026-09-09", "nl", "9 september 2026"),
        ("2026-10-02", "pl", "2 października 2026"),
        ("2026-05-03", "pt-BR", "3 de maio de 2026"),
        ("2026-05-03", "tlh", "2026-05-03"),
    ],
)
def test_a_date_is_written_as_readers_of_the_language_write_it(day: str, lang: str, words: str) -> None:
    assert written_date(day, lang) == words


def test_the_lines_of_a_paragraph_s_text_stay_lines() -> None:
    """An owner wanted one above another (issue 20); elsewhere a line end is what the element makes of it."""
    assert tag("p", "With <support>\nCharity 1\n") == "<p>With &lt;support&gt;<br>Charity 1</p>"
    assert tag("p", Html("<b>a</b>\n")) == "<p><b>a</b>\n</p>"
    assert tag("pre", "a\nb") == "<pre>a&#10;b</pre>"


@pytest.mark.parametrize(
    ("written", "made"),
    [
        ("**bread and\ncake**", "<p><strong>bread and\ncake</strong></p>"),
        ("our *bread and\ncake*", "<p>our <em>bread and\ncake</em></p>"),
        ("[our\nmenu](menu.html)", '<p><a href="menu.html">our\nmenu</a></p>'),
        ("* one\n* two", "<p>* one\n* two</p>"),
        ("Bread 3 €*\nCake 4 €*\n*at noon", "<p>Bread 3 €*\nCake 4 €*\n*at noon</p>"),
        ("Bread 3 €**\nCake 4 €**", "<p>Bread 3 €**\nCake 4 €**</p>"),
        ("**bread\n\ncake**", "<p>**bread</p>\n<p>cake**</p>"),
    ],
)
def test_marks_hold_over_the_end_of_a_line_and_notes_stay_notes(written: str, made: str) -> None:
    shown = render(parse_site(page(text=element("RichText", body=written))))[INDEX].decode()
    body = re.search(r'class="prose">(.*?)</div>', shown, re.DOTALL)
    assert body is not None
    assert re.sub(r"\n +", "\n", body[1]).strip().replace("&#10;", "\n") == made

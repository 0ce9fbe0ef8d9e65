"""Edits of plain HTML: what is wanted changes, every other byte stays, and what cannot be told is refused."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sites.direct_edit.html_document import MAX_DEPTH, MAX_PAGE_BYTES, Document, Node, NotEditableError
from sites.direct_edit.html_edits import Change, apply_changes, remove_element, set_attribute, set_text

UTF8 = "<meta charset=utf-8>"


def page(body: str) -> Document:
    return Document(f"<!doctype html><html><head>{UTF8}<title>T</title></head><body>{body}</body></html>".encode())


def first(document: Document, name: str) -> Node:
    return next(node for node in document.nodes if node.name == name)


def text_of(document: Document, name: str) -> Node:
    return first(document, name).children[0]


def body_after(document: Document, *changes: Change) -> str:
    after = apply_changes(document, changes).decode()
    return after[after.index("<body>") + 6 : after.index("</body>")]


def test_a_text_is_changed_and_nothing_else() -> None:
    document = page("<h1  class=a>Old &amp; <!-- c --></h1>\n<p>Old")
    assert body_after(document, set_text(document, text_of(document, "h1"), "New")) == (
        "<h1  class=a>New<!-- c --></h1>\n<p>Old"
    )


def test_a_part_of_a_text_is_changed_and_its_references_stay() -> None:
    document = page("<p>Fish &amp; chips &mdash; 4 &euro;</p>")
    node = text_of(document, "p")
    start = node.text.index("chips")
    after = body_after(document, set_text(document, node, "peas", start=start, end=start + 5))
    assert after == "<p>Fish &amp; peas &mdash; 4 &euro;</p>"


@pytest.mark.parametrize("value", ["</p><script>alert(1)</script>", "a < b & c > d", "&amp;", "&lt;b>", '"quoted"'])
def test_text_never_becomes_markup(value: str) -> None:
    document = page("<p>x</p>")
    after = Document(apply_changes(document, [set_text(document, text_of(document, "p"), value)]))
    assert text_of(after, "p").text == value
    assert [node.name for node in after.nodes] == [node.name for node in document.nodes]


@pytest.mark.parametrize(
    ("tag", "name", "value", "after"),
    [
        ('<a href="/a" id=x>', "href", "/b", '<a href="/b" id=x>'),
        ("<a href='/a'>", "href", "/b's", "<a href='/b&#39;s'>"),
        ("<a href=/a>", "href", "/b", '<a href="/b">'),
        ("<a href=a.html>", "href", "b.html", "<a href=b.html>"),
        ("<a href=a.html>", "href", "b c", '<a href="b c">'),
        ("<a HREF = a.html>", "href", 'b"c', '<a HREF="b&quot;c">'),
        ("<a>", "href", "/b?x=1&y=2", '<a href="/b?x=1&amp;y=2">'),
        ("<a title>", "title", "New", '<a title="New">'),
        ("<a class='b' >", "title", "N", "<a title=\"N\" class='b' >"),
    ],
)
def test_an_attribute_is_changed_in_the_quotes_it_had(tag: str, name: str, value: str, after: str) -> None:
    document = page(f"<p>{tag}x</a></p>")
    assert body_after(document, set_attribute(document, first(document, "a"), name, value)) == f"<p>{after}x</a></p>"


def test_an_element_is_removed_with_what_it_holds() -> None:
    document = page("<p>a</p>\n<section id=s><h2>b</h2><!-- c --><img src=x> <ul><li>d</li></ul></section>\n<p>e</p>")
    assert body_after(document, remove_element(document, first(document, "section"))) == "<p>a</p>\n\n<p>e</p>"


@pytest.mark.parametrize(
    "body",
    [
        "<section><p>never closed</section>",
        "<section><b><i>crossed</b></i></section>",
        "<section>never closed",
    ],
)
def test_what_the_parser_had_to_repair_is_not_removed(body: str) -> None:
    document = page(body)
    with pytest.raises(NotEditableError):
        apply_changes(document, [remove_element(document, first(document, "section"))])


@pytest.mark.parametrize(
    "data", [b"<p>\xff</p>", b"<p>\x00</p>", b"x" * (MAX_PAGE_BYTES + 1), b"<div>" * (MAX_DEPTH + 5)]
)
def test_a_page_that_cannot_be_read_exactly_is_refused(data: bytes) -> None:
    with pytest.raises(NotEditableError):
        Document(data)


def test_changes_that_meet_are_refused() -> None:
    document = page("<section><p>a</p></section>")
    changes = [remove_element(document, first(document, "section")), set_text(document, text_of(document, "p"), "b")]
    with pytest.raises(NotEditableError):
        apply_changes(document, changes)


def test_a_page_without_a_declared_charset_gets_references() -> None:
    document = Document(b"<title>a</title><p>x")
    after = apply_changes(document, [set_text(document, text_of(document, "p"), "Käse €")])
    assert after == b"<title>a</title><p>K&#228;se &#8364;"


@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_line_ends_and_byte_order_mark_stay(start: str) -> None:
    source = start + "<p>a\r\nb</p>\r\n<p\r\nclass=c>d\r\n</p>\r\n"
    document = Document(source.encode())
    second = document.elements("p")[1]
    after = apply_changes(document, [set_text(document, second.children[0], "new", end=1)])
    assert after.decode() == source.replace(">d", ">new")


PIECES = st.sampled_from(
    [
        "<p>",
        "</p>",
        "<b>",
        "</b>",
        "<a href=x>",
        "</a>",
        "<table>",
        "<tr>",
        "<td>",
        "</table>",
        "text",
        " &amp; ",
        "&copy",
        "<!-- c -->",
        "<script>x</script>",
        "<textarea>\n",
        "</textarea>",
        "<svg>",
        "</svg>",
        "<select>",
        "<option>",
        "\r\n",
        "<pre>\n",
        "<",
        "&",
        "<template>",
        "</template>",
        "<li>",
        "<br>",
        "</div>",
        "<form>",
        "é",
        "<p title='a' title=b>",
        "<![CDATA[x]]>",
        "<?php ?>",
        "<plaintext>",
        "</",
        "<title>",
    ]
)


@settings(max_examples=60)
@given(st.lists(PIECES, max_size=25), st.text(max_size=12), st.integers(0, 60))
def test_an_edit_of_any_page_changes_exactly_its_place_or_is_refused(pieces: list[str], new: str, which: int) -> None:
    data = "".join(pieces).encode()
    document = Document(data)
    texts = [node for node in document.nodes if node.name == "#text"]
    assume(texts)
    node = texts[which % len(texts)]
    try:
        change = set_text(document, node, new)
        after = apply_changes(document, [change])
    except NotEditableError:
        return
    (start, end), written = change.span, change.written
    prefix, suffix = document.source[:start].encode(), document.source[end:].encode()
    assert after == prefix + written.encode() + suffix
    assert [found.name for found in Document(after).nodes] == [found.name for found in document.nodes]

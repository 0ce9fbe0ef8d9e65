"""Which pages and elements a release changes, as a reviewer would see it."""

import re
import time
from collections.abc import Mapping
from typing import Any

from lxml import html

from sites.page_changes import PageChange, changed_pages

PAGE = (
    "<!doctype html><html><head><title>{title}</title><link rel=stylesheet href=site.css></head><body>"
    "<header><a href=index.html>Home</a></header><main><h1>{head}</h1><p>Open <b>daily</b>.</p>{more}"
    "<img src=pictures/a.png alt=Bread></main></body></html>"
)


def page(head: str = "Bread", more: str = "", title: str = "Bakery") -> bytes:
    return PAGE.format(head=head, more=more, title=title).encode()


SITE = {"index.html": page(), "about/index.html": b"<title>About</title><body><p>Us</p>", "site.css": b"h1{color:red}"}


def compare(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> list[PageChange]:
    content = {str(hash(data)): data for data in (*before.values(), *after.values())}
    old, new = ({path: str(hash(data)) for path, data in files.items()} for files in (before, after))
    return changed_pages(old, new, content.__getitem__)


def texts(data: bytes, selectors: tuple[str, ...]) -> list[str]:
    found = []
    for selector in selectors:
        element: Any = html.document_fromstring(data).find("body")
        for place in re.findall(r">:nth-child\((\d+)\)", selector):
            element = element[int(place) - 1]
        found.append(element.text_content())
    return found


def marked(before: bytes, after: bytes) -> tuple[list[str], list[str]]:
    (change,) = compare({**SITE, "index.html": before}, {**SITE, "index.html": after})
    assert (change.path, change.title) == ("index.html", "Bakery")
    return texts(before, change.before), texts(after, change.after)


def test_pages_of_equal_elements_are_compared_in_bounded_time() -> None:
    few, many = (page(more="<i></i>" + each + "<b></b>") for each in ("<br>" * 1_900, "<br><hr>" * 1_900))
    started = time.process_time()
    (change,) = compare({**SITE, "index.html": few}, {**SITE, "index.html": many})
    assert change.is_visible
    assert time.process_time() - started < 2  # a tenth of a second on a quiet machine; it was an hour


def test_nothing_changed_is_no_page() -> None:
    assert compare(SITE, SITE) == []


def test_a_changed_heading_is_the_element_that_is_marked_on_both_sides() -> None:
    assert marked(page(), page("Fresh bread")) == (["Bread"], ["Fresh bread"])


def test_a_new_section_is_marked_once_as_a_whole() -> None:
    section = "<section><h2>Hours</h2><p>8 to 17</p></section>"
    assert marked(page(), page(more=section)) == ([], ["Hours8 to 17"])
    assert marked(page(more=section), page()) == (["Hours8 to 17"], [])


def test_a_row_of_a_table_is_found_though_browsers_add_a_body_to_it() -> None:
    table = "<table><tr><td>Rye</td></tr><tr><td>{}</td></tr></table>"
    (change,) = compare(
        {"index.html": page(more=table.format("4.00"))}, {"index.html": page(more=table.format("4.20"))}
    )
    assert change.after == ("body>:nth-child(2)>:nth-child(3) :nth-child(2)>:nth-child(1)",)


def test_a_new_title_is_a_change_that_nobody_sees() -> None:
    (change,) = compare(SITE, {**SITE, "index.html": page(title="The bakery")})
    assert (change.title, change.is_visible) == ("The bakery", False)


def test_pages_come_and_go() -> None:
    found = compare(
        SITE, {"index.html": SITE["index.html"], "site.css": SITE["site.css"], "new.html": page(title="New")}
    )
    assert {(one.path, one.status, one.is_visible) for one in found} == {
        ("new.html", "added", True),
        ("about/index.html", "removed", True),
    }


def test_pages_that_load_what_changed_are_restyled_and_a_picture_is_marked() -> None:
    (change,) = compare(SITE, {**SITE, "site.css": b"h1{color:blue}"})
    assert (change.path, change.status, change.after) == ("index.html", "restyled", ())
    (change,) = compare({**SITE, "pictures/a.png": b"1"}, {**SITE, "pictures/a.png": b"2"})
    assert (change.status, change.after) == ("restyled", ("body>:nth-child(2)>:nth-child(3)",))
    imported = {**SITE, "site.css": b'@import "fonts/a.css"; h1{}', "fonts/a.css": b"p{background:url(../b.png)}"}
    (change,) = compare({**imported, "b.png": b"1"}, {**imported, "b.png": b"2"})
    assert (change.path, change.status) == ("index.html", "restyled")
    assert compare({**SITE, "other.png": b"1"}, {**SITE, "other.png": b"2"}) == []
    from_root = {"a/index.html": b"<link rel=stylesheet href=/site.css><a href='//['>x</a>", "site.css": b"p{}"}
    (change,) = compare(from_root, {**from_root, "site.css": b"q{}"})
    assert (change.path, change.status) == ("a/index.html", "restyled")


def test_a_page_whose_own_styles_or_scripts_differ_is_restyled_and_its_data_is_nobodys_to_see() -> None:
    for kind in ("<style>{}</style>", "<script>{}</script>", "<link rel=stylesheet href={}>"):
        old, new = (page(more=kind.format(each)) for each in ("a", "b"))
        (change,) = compare({**SITE, "index.html": old}, {**SITE, "index.html": new})
        assert (change.status, change.is_visible) == ("restyled", True), kind
    old, new = (page(more=f'<script type="application/ld+json">{each}</script>') for each in "12")
    (change,) = compare({**SITE, "index.html": old}, {**SITE, "index.html": new})
    assert not change.is_visible


def test_a_page_with_another_title_and_another_style_sheet_is_restyled() -> None:
    (change,) = compare(SITE, {**SITE, "index.html": page(title="The bakery"), "site.css": b"h1{color:blue}"})
    assert (change.title, change.status) == ("The bakery", "restyled")


def test_a_large_page_that_loads_what_changed_is_restyled() -> None:
    site = {**SITE, "index.html": page(more="<br>" * 5_000)}
    (change,) = compare(site, {**site, "site.css": b"h1{color:blue}"})
    assert (change.path, change.status) == ("index.html", "restyled")


def test_a_page_is_one_however_its_name_is_written() -> None:
    (change,) = compare({"OLD.HTM": page()}, {"OLD.HTM": page("Fresh bread")})
    assert (change.path, change.status) == ("OLD.HTM", "changed")


def test_the_most_visible_page_comes_first() -> None:
    about = b"<title>About</title><body><p>We</p>"
    found = compare(SITE, {**SITE, "index.html": page(title="New"), "about/index.html": about})
    assert [one.path for one in found] == ["about/index.html", "index.html"]


def test_a_page_that_is_none_is_compared_without_an_error() -> None:
    (change,) = compare({"index.html": b"<p>x"}, {"index.html": b"<!-- -->"})
    assert change.status == "changed"

"""What `pointsman eval` finds wrong with a result."""

from typing import Any

import pytest

from producers.evaluation.cases import Then, changed_places, check

PAGE = (
    '<!doctype html><html><head><title>Bakery</title></head><body><header><a href="index.html">Home</a></header>'
    '<section id="menu"><h2>Our bread</h2><p>Rye, <b>€5.80</b></p></section>'
    '<section id="visit"><p>14 Mill Lane</p></section><footer>Since 1911</footer></body></html>'
)
BEFORE = {"index.html": PAGE.encode(), "styles.css": b"a{}"}


def after(*changes: tuple[str, str], **files: bytes) -> dict[str, bytes]:
    page = PAGE
    for old, new in changes:
        assert old in page
        page = page.replace(old, new)
    return {**BEFORE, "index.html": page.encode(), **files}


CHEAPER = ("€5.80", "€5.60")


@pytest.mark.parametrize(
    ("then", "result", "findings"),
    [
        ({"shows": {"index.html": ["rye,   €5.60"]}, "gone": {"*": ["€5.80"]}}, after(CHEAPER), []),
        ({"shows": {"index.html": ["€9"]}}, after(), ["index.html does not show '€9'"]),
        ({"shows": {"about.html": ["us"]}}, after(), ["there is no page about.html"]),
        ({"gone": {"*.html": ["Mill Lane"]}}, after(), ["index.html still shows 'Mill Lane'"]),
        ({"source": {"styles.css": ["b{"]}}, after(), ["styles.css does not match /b{/"]),
        ({"source": {"site.js": ["x"]}}, after(), ["there is no file site.js"]),
        ({"lacks": {"*.css": ["a{"]}}, after(), ["styles.css matches /a{/"]),
        ({}, after(CHEAPER), ["index.html lost its copy 'Rye, €5.80'"]),
        ({"loses": ["Rye"]}, after(CHEAPER), []),
        ({"loses": [".*"], "only": ["index.html menu"]}, after(CHEAPER), []),
        (
            {"loses": [".*"], "only": ["index.html visit"]},
            after(CHEAPER, ("1911", "1912")),
            ["index.html footer changed, which nobody asked for", "index.html menu changed, which nobody asked for"],
        ),
        (
            {},
            after(('href="index.html"', 'href="shop.html"')),
            ["index.html links to shop.html, which is not there"],
        ),
        ({}, after(('"index.html"', '"#none"')), ["index.html links to #none, which is not on that page"]),
        ({}, after(('"index.html"', '"https://example.com/none#x"')), []),
    ],
)
def test_a_result_is_judged_by_what_visitors_see_and_by_the_places_that_changed(
    then: dict[str, Any], result: dict[str, bytes], findings: list[str]
) -> None:
    assert check(Then.model_validate(then), BEFORE, result) == findings


def test_an_answer_and_a_report_are_judged_by_their_words() -> None:
    then = Then(answer=("parking",), summary=("price",))
    assert check(then, BEFORE, BEFORE, said="No Parking.", summary="The price is new.") == []
    assert check(then, BEFORE, BEFORE, said="", summary="") == [
        "the answer does not match /parking/: ''",
        "the summary does not match /price/: ''",
    ]


def test_places_are_named_by_page_and_section_and_spacing_is_no_change() -> None:
    assert changed_places(BEFORE, after(("<h2>", "\n  <h2>"))) == set()
    assert changed_places(BEFORE, after(("Bakery", "Baker"), new=b"")) == {"index.html head", "new"}
    assert changed_places(BEFORE, {}) == {"index.html", "styles.css"}


def test_an_apostrophe_of_print_is_one() -> None:
    made = {"index.html": "<h1>Ada’s Bikes</h1>".encode()}
    assert check(Then(shows={"index.html": ("Ada's Bikes",)}), {}, made) == []
    assert check(Then(gone={"index.html": ("Ada's Bikes",)}), {}, made) == ['index.html still shows "Ada\'s Bikes"']

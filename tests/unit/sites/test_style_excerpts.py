"""Which rules of a style sheet a model is shown (issue 20: prompts 0017, 0023 and 0051 of the trial)."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.evaluation import cases
from sites.excerpts import MAX_SHOWN_BYTES, Excerpt, excerpts, show_tree
from sites.spec.model import parse_site
from sites.spec.render import render
from sites.style_excerpts import MAX_SHEET_BYTES, SMALL_SHEET_BYTES, asks_for_looks, names_near, rule_windows

SITES = Path(cases.__file__).parent / "sites"
LARGER = (
    "please make the text larger, many of our clients are over 60, the grey one under the headings in the four fields "
    "is hard to read"
)
PARTNER = (
    "Matthias Vogt has left us at the end of the month. Please take him off the people page. The new employment "
    "partner is Dr. Katrin Seidel, text: 'Knows the works council by first name.' And it is now 22 lawyers."
)
ORANGE = "podéis poner el botón Donate en naranja, que se vea más? solo ese, los otros verdes se quedan"


def files_of(name: str) -> dict[str, bytes]:
    root = SITES / name
    given = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    return given | render(parse_site(given["site.json"].decode()))


def sheets(parts: list[Excerpt]) -> str:
    return "\n".join(part.text for part in parts if part.path.endswith(".css"))


def test_a_wish_about_looks_brings_the_colours_and_the_rules_of_the_elements_that_it_names() -> None:
    parts = excerpts(files_of("lawfirm"), LARGER)
    shown = sheets(parts)
    for rule in (":root {", "--muted:", ".feature-rows p { color", "body {", ".button {"):
        assert rule in shown, rule
    assert ".schedule" not in shown
    assert {part.path for part in parts} >= {"index.html", "practice.html"}


def test_a_button_that_is_to_have_another_colour_brings_its_rule_and_no_drawings() -> None:
    parts = excerpts(files_of("nonprofit"), ORANGE)
    assert ".button {" in sheets(parts)
    assert ".site-header-" in sheets(parts), "the button stands in the header"
    assert [part.path for part in parts if part.path.endswith(".svg")] == []
    assert "river.svg" in show_tree(files_of("nonprofit"), excerpts(files_of("nonprofit"), ORANGE)), "it is listed"


def test_a_drawing_that_is_named_is_shown() -> None:
    assert "assets/river.svg" in {part.path for part in excerpts(files_of("nonprofit"), "the sky in river.svg is odd")}


@pytest.mark.parametrize(("drawing", "is_shown"), [("<text>Salon</text>", True), ("<path d='M0 0'/>", False)])
def test_a_small_drawing_with_words_is_shown_for_they_change_with_the_name(drawing: str, is_shown: bool) -> None:
    files = files_of("lawfirm") | {"assets/logo.svg": f"<svg>{drawing}</svg>".encode()}
    assert ("assets/logo.svg" in {part.path for part in excerpts(files, "We are called Marisa now")}) is is_shown


@pytest.mark.parametrize(
    ("site", "request_", "rules"),
    [
        (
            "restaurant",
            "je trouve que les prix dans la carte sautent trop aux yeux. Plus petits svp",
            [".line-price {"],
        ),
        (
            "nonprofit",
            "Hola, en la portada los tres testimonios uno debajo del otro y con la letra más grande. gracias!!",
            [".quotes", ".quote-", ".card {"],
        ),
        (
            "guesthouse",
            "on the telephone you scroll and scroll until you are at the form. on the big screen i like it",
            [".gallery-mosaic", ".plans", ".video-frame", "@media (max-width: 40rem)"],
        ),
        (
            "guesthouse",
            "I would love a picture on top of each of the three room boxes, all the same height",
            [".plan {", ".plan-marked", "img {"],
        ),
    ],
)
def test_the_rule_in_question_is_shown_in_whatever_language_one_asks(
    site: str, request_: str, rules: list[str]
) -> None:
    shown = sheets(excerpts(files_of(site), request_, has_spec=True))
    assert [rule for rule in rules if rule not in shown] == []


def test_rules_of_what_no_page_holds_are_not_shown_but_those_of_what_a_script_sets_are() -> None:
    page = '<main id=top><p class="lead">Hi</p><script>e.classList.add("is-open")</script></main>'
    lines = [
        *(
            "#top .lead { color: red }",
            "main > p.lead:first-child { margin: 0 }",
            "P { top: 0 }",
            ".is-open { left: 0 }",
        ),
        *(".gone { color: red }", ".lead .gone { color: red }", "table td { top: 0 }", "#other { top: 0 }"),
        *(
            "@media print { .lead { top: 0 } }",
            "@media print { .gone { top: 0 } }",
            "@keyframes spin { to { top: 0 } }",
        ),
        *(".gone, .lead:not(.gone) { top: 0 }", r".md\:lead { top: 0 }", ".lead[hidden] { top: 0 }"),
    ]
    near = names_near([page], [], frozenset(), ())
    assert [line for line in lines if not rule_windows(line, near)] == [
        *(".gone { color: red }", ".lead .gone { color: red }", "table td { top: 0 }", "#other { top: 0 }"),
        *("@media print { .gone { top: 0 } }", r".md\:lead { top: 0 }"),
    ]


def test_a_wish_about_words_brings_few_rules_of_a_large_style_sheet() -> None:
    shown = sheets(excerpts(files_of("lawfirm"), PARTNER))
    assert 0 < len(shown) <= SMALL_SHEET_BYTES


@pytest.mark.parametrize(
    "prompt",
    [
        "Macht die Überschriften bitte größer",
        "le texte gris est peu lisible",
        "il pulsante in arancione",
        "the menu overlaps the logo on my phone",
        "kan de tekst groter",
    ],
)
def test_looks_are_asked_for_in_the_languages_of_the_builder(prompt: str) -> None:
    assert asks_for_looks(prompt)


def test_rules_lie_whole_in_what_is_shown_and_the_nearest_come_first() -> None:
    sheet = ":root { --a: 1 }\n/* .b { */\n.far { color: red }\n@media (min-width: 1px) {\n.near {\ncolor: red;\n}\n}\n"
    lines = sheet.split("\n")

    def shown(limit: int) -> list[str]:
        near = {".near": 1, ".far": 9}
        return ["\n".join(lines[first:last]) for first, last in rule_windows(sheet, near, max_bytes=limit)]

    assert shown(len(sheet)) == [sheet.rstrip("\n")]
    media = "\n".join(lines[3:8])
    assert shown(len(lines[0]) + len(media) + 2) == [lines[0], media]
    assert shown(20) == [lines[0]]


@given(st.text(alphabet=".ab{};\n@ /*\"'", max_size=120), st.integers(0, 90))
def test_no_sheet_breaks_it_and_no_more_is_shown_than_allowed(sheet: str, most: int) -> None:
    lines = sheet.split("\n")
    windows = rule_windows(sheet, {".a": 1}, max_bytes=most)
    assert sum(len("\n".join(lines[first:last]).encode()) for first, last in windows) <= most
    assert all(before[1] < after[0] for before, after in pairwise(windows))


def test_a_long_request_about_a_large_site_is_read_in_a_moment() -> None:
    page = '<p class="lead">word other further</p>\n' * 12_000
    sheet = ".a { color: red }\n" * 25_000
    began = time.process_time()
    parts = excerpts({"index.html": page.encode(), "styles.css": sheet.encode()}, "larger " + "further words " * 2_000)
    assert time.process_time() - began < 5
    assert sum(len(part.text.encode()) for part in parts) <= MAX_SHOWN_BYTES
    assert len(sheets(parts)) <= MAX_SHEET_BYTES
    assert names_near([page], (), frozenset({"further"}), ()) == {"p": 0, ".lead": 0}


@pytest.mark.threat("F12")
@pytest.mark.parametrize(
    ("name", "head", "piece"),
    [
        ("index.html", "", "<script>"),
        ("index.html", "", "<script "),
        ("index.html", "", f"<a {('href=' + 'a' * 290 + ' ') * 6}"),
        ("index.html", "", "<a href=a>b"),
        ("index.html", "", "<div class='"),
        ("index.html", "", "<p id=header>\n"),
        ("styles.css", "", "["),
        ("styles.css", "", "("),
        ("styles.css", "", "a{"),
        ("styles.css", "", ".header{}\n"),
        ("styles.css", "", '\\"'),
        ("styles.css", "", "'\\\n"),
        ("styles.css", "@media{", ".header,"),
        ("styles.css", "", "/*"),
    ],
)
def test_no_page_and_no_sheet_takes_more_than_linear_time(name: str, head: str, piece: str) -> None:
    hostile = (head + piece * (400_000 // len(piece)) + "{}").encode()
    site = {"index.html": b"<p class=header>header</p>", "about.html": b"<p>\n" * 9_000, name: hostile}
    began = time.process_time()
    excerpts(site, "make the header blue")
    assert time.process_time() - began < 3  # of minutes

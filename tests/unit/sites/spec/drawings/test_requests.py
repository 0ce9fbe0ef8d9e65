from __future__ import annotations

import json
import re
from typing import Any

import pytest

from routing.policy.platform import platform_policy
from sites.direct_edit.targets import find_strings, is_copy
from sites.errors import SpecError
from sites.spec.catalog import read_prompt
from sites.spec.drawings.requests import brief, drawn, shapes_of, wanted, with_shapes_of, without_shapes
from sites.spec.edit import apply_edit, relevant_part
from sites.spec.model import INDEX, Site, parse_site
from sites.spec.outline import expand_outline
from sites.spec.quality import copy_of
from sites.spec.render import render
from sites.spec.theme import Theme, palette
from tests.unit.sites.spec.test_outline import OUTLINE

GOAT = ["ground rect 0 0 600 500", "fill path M60 500V290a150 150 0 0 1 300 0V500z", *["accent circle 9 9 2"] * 6]


def _site(*, of: str = "a goat", shapes: list[str] | None = None, **more: Any) -> Site:
    drawing: dict[str, Any] = {"of": of} | ({"shapes": shapes} if shapes else {})
    props = {"heading": "Goats", "art": "hills", "drawing": drawing, **more}
    hero = {"type": "Hero", "props": props, "children": []}
    root = {"type": "Page", "props": {"title": "Goats", "lang": "en"}, "children": ["hero"]}
    return parse_site({"root": "page", "elements": {"page": root, "hero": hero}})


def _drawing(site: Site) -> Any:
    return site.pages[INDEX]["elements"]["hero"]["props"].get("drawing")


def _edit(site: Site, of: str) -> Site:
    path = f"/pages/{INDEX}/elements/hero/props/drawing"
    return apply_edit(site, [{"op": "add", "path": path, "value": {"of": of, "shapes": GOAT[::-1]}}])


def test_an_opening_shows_the_stock_drawing_until_its_own_is_drawn() -> None:
    page = render(_site())[INDEX]
    assert b"art-fill" in page
    assert wanted(_site()) == ("a goat",)
    own = drawn(_site(), {"a goat": GOAT})
    assert wanted(own) == wanted(_site(image={"src": "assets/goat.jpg", "alt": ""})) == ()
    assert b"M60 500V290" in render(own)[INDEX]
    assert b"art-fill" not in render(own)[INDEX]


def test_shapes_come_from_drawing_alone_and_stay_with_what_they_show() -> None:
    """What an edit writes as shapes is not read: the model that writes it sees none."""
    site = _site(shapes=GOAT)
    assert _drawing(_edit(site, "a goat")) == {"of": "a goat", "shapes": GOAT}
    assert _drawing(_edit(site, "a cow")) == {"of": "a cow"}
    assert with_shapes_of(site, _site(of="a cow", shapes=GOAT)) == _site(of="a cow")


def test_a_drawing_that_does_not_come_out_is_what_it_was_before() -> None:
    site = _site(shapes=GOAT)
    assert drawn(_edit(site, "a cow"), {}, before=site) == site
    assert _drawing(drawn(_site(), {})) is None


def test_a_model_that_edits_reads_what_a_drawing_shows_and_no_shapes() -> None:
    site = _site(shapes=GOAT)
    assert without_shapes(site) == _site()
    assert "M60" not in relevant_part(site, "Another picture").to_text()
    assert '"of":"a goat"' in relevant_part(site, "Another picture").to_text()


def test_a_drawing_is_no_copy_of_the_site() -> None:
    site = _site(shapes=GOAT)
    assert copy_of(site) == ("Goats", "Goats")
    assert [spot.value for spot in find_strings(site) if is_copy(spot)] == ["Goats", "Goats"]


def test_an_outline_wants_the_drawing_it_describes_and_all_its_versions_the_same() -> None:
    site = expand_outline({**OUTLINE, "drawing": "a goat on a rock"})
    assert wanted(site) == ("a goat on a rock",)
    assert wanted(expand_outline(OUTLINE)) == ()


def test_who_draws_knows_the_tones_as_a_new_site_shows_them() -> None:
    told = brief(expand_outline(OUTLINE), "a goat")
    theme = Theme.model_validate(expand_outline(OUTLINE).pages[INDEX]["elements"]["page"]["props"]["theme"])
    colours = palette(theme, dark=theme.mode == "dark")
    assert f"deep {colours['art-deep']}, light {colours['art-light']}" in told


def test_who_draws_knows_the_site_its_tones_and_what_to_show() -> None:
    told = brief(_site(), "a goat")
    assert told.startswith("The website: Goats\nIts tones: ground #")
    assert re.search(r"deep #[0-9a-f]{6}, light #[0-9a-f]{6}, ink #[0-9a-f]{6}\nThe drawing shows: a goat$", told)


@pytest.mark.parametrize(
    ("reply", "place", "rule"),
    [
        ({}, "/shapes", "valid tuple"),
        ({"shapes": GOAT[:2]}, "/shapes", "at least 3"),
        ({"shapes": GOAT * 8}, "/shapes", "at most 60"),
        ({"shapes": [*GOAT, "crimson circle 1 2 3"]}, "/shapes/8", "a shape is TONE"),
    ],
)
def test_a_reply_that_is_no_drawing_is_refused_with_its_place(reply: dict[str, Any], place: str, rule: str) -> None:
    assert shapes_of({"shapes": GOAT}) == tuple(GOAT)
    with pytest.raises(SpecError) as refused:
        shapes_of(reply)
    (finding,) = refused.value.findings
    assert (finding.code, finding.path) == ("bad_drawing", place)
    assert rule in finding.message


def test_the_drawing_that_the_prompt_shows_as_an_example_is_one() -> None:
    prompt = read_prompt("drawing.md")
    assert len(shapes_of({"shapes": json.loads(prompt[prompt.rindex('["ground') :])})) >= 18


def test_the_prompt_of_drawings_sets_one_bound_for_which_its_call_has_room() -> None:
    """It allowed 36 shapes of 300 letters, and the tool 60 of 1,200; good drawings had 44 in 2,835 (issue 20)."""
    (most,) = re.findall(r"at most ([\d,]+) characters", read_prompt("drawing.md"))
    assert int(most.replace(",", "")) <= 2 * platform_policy().calls["spec_draw"].max_tokens


@pytest.mark.parametrize(("kind", "props"), [("PageIntro", {"heading": "Goats"}), ("RichText", {"body": "Six goats."})])
def test_a_page_s_opening_and_a_text_may_have_a_drawing(kind: str, props: dict[str, Any]) -> None:
    part = {"type": kind, "props": {**props, "drawing": {"of": "kids"}}, "children": []}
    document = _site().to_dict()
    page = document["pages"][INDEX]
    page["elements"] |= {"a-part": part, "page": {**page["elements"]["page"], "children": ["hero", "a-part"]}}
    site = parse_site(document)
    assert wanted(site) == ("a goat", "kids")
    assert "does not repeat: kids\nThe drawing shows: a goat" in brief(site, "a goat")
    assert b"<svg" not in render(drawn(site, {"a goat": GOAT}))[INDEX].partition(b"</svg>")[2]
    assert render(drawn(site, {"a goat": GOAT, "kids": GOAT}))[INDEX].count(b"M60 500") == 2


def test_a_mark_is_drawn_once_after_the_opening_and_stands_in_header_call_and_footer() -> None:
    site = expand_outline({**OUTLINE, "drawing": "a goat", "mark": "a horn"})
    assert wanted(site) == ("a goat", "a horn")
    assert "The drawing is the website's mark, and shows: a horn" in brief(site, "a horn")
    assert "mark" not in brief(site, "a goat").replace("a horn", "")
    page = render(drawn(site, {"a horn": GOAT}))[INDEX]
    assert page.count(b'<svg class="art mark" viewBox="50 0 500 500"') == page.count(b"M60 500V290") == 3
    assert b"art mark" not in render(drawn(site, {}))[INDEX]


def test_few_words_stand_above_a_drawing_for_which_a_wide_field_is_asked() -> None:
    """Beside a picture they left a hole, and a drawing of the usual size had its head cut off in a wide frame."""
    hero = {"kind": "Hero", "heading": "Goats", "drawing": "a goat"}
    site = expand_outline({**OUTLINE, "sections": [hero, {**hero, "drawing": "a kid"}, *OUTLINE["sections"][1:]]})
    assert "`ground rect 0 0 1000 360`" in brief(site, "a goat")
    assert "1000" not in brief(_site(), "a goat")
    for ground, shown in (("1000 360", b"wide"), ("600 500", b"split")):
        page = render(drawn(site, {"a goat": [f"ground rect 0 0 {ground}", *GOAT[1:]]}))[INDEX]
        assert b'viewBox="0 0 %b"' % ground.encode() in page
        assert page.partition(b" hero hero-")[2].startswith(shown)


def test_an_outline_says_what_else_is_drawn() -> None:
    sections = [
        {"kind": "PageIntro", "page": "Visit", "heading": "Come in", "drawing": "an open gate"},
        {"kind": "RichText", "text": "Six goats.", "drawing": "kids"},
        {"kind": "RichText", "text": "One dog.", "drawing": "a dog", "image": "https://img.example/dog.jpg"},
    ]
    site = expand_outline({**OUTLINE, "sections": [*OUTLINE["sections"], *sections]})
    assert set(wanted(site)) == {"an open gate", "kids"}

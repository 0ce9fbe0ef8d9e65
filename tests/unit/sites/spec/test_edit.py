from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sites.errors import SpecError
from sites.spec.edit import (
    MAX_OPERATIONS,
    MAX_PART_CHARS,
    MERGE_MARK,
    apply_edit,
    edit_of,
    edit_tool,
    merge,
    relevant_part,
    undoing,
)
from sites.spec.model import INDEX, Site, parse_site
from tests.unit.sites.spec.samples import demo_site, element, page
from tests.unit.sites.spec.test_model import json_values

HERO = f"/pages/{INDEX}/elements/hero/props"
CHILDREN = f"/pages/{INDEX}/elements/page/children"
HEADING = f"/pages/{INDEX}/elements/hero/props/heading"


def refusal(operations: object) -> str:
    with pytest.raises(SpecError) as caught:
        apply_edit(demo_site(), operations)
    return caught.value.code


@pytest.mark.req("H-011")
def test_a_patch_of_the_site_gives_a_valid_new_site_and_leaves_the_old_one() -> None:
    site = demo_site()
    edited = apply_edit(site, [{"op": "replace", "path": HEADING, "value": "Fresh bread"}])
    assert edited.pages[INDEX]["elements"]["hero"]["props"]["heading"] == "Fresh bread"
    assert site == demo_site()


def test_a_field_that_an_edit_misplaces_among_the_props_is_put_where_it_belongs() -> None:
    edited = apply_edit(demo_site(), [{"op": "add", "path": f"{HERO}/visible", "value": False}])
    hero = edited.pages[INDEX]["elements"]["hero"]
    assert (hero["visible"], "visible" in hero["props"]) == (False, False)


def test_all_six_operations_of_rfc_6902_work() -> None:
    elements = f"/pages/{INDEX}/elements"
    edited = apply_edit(
        demo_site(),
        [
            {"op": "test", "path": HEADING, "value": "Bread with the patience left in"},
            {"op": "copy", "from": f"{elements}/faq", "path": f"{elements}/faq2"},
            {"op": "add", "path": f"{elements}/page/children/-", "value": "faq2"},
            {"op": "move", "from": f"{elements}/menu/props/items/0", "path": f"{elements}/menu/props/items/7"},
            {"op": "remove", "path": f"{elements}/hero/props/notes"},
            {"op": "replace", "path": HEADING, "value": "New"},
        ],
    )
    assert edited.pages[INDEX]["elements"]["menu"]["props"]["items"][7]["title"] == "Millbrook sourdough"


BAD: dict[str, tuple[Any, str]] = {
    "no list": ({"op": "remove"}, "bad_operation"),
    "empty": ([], "bad_operation"),
    "too many": ([{"op": "remove", "path": HEADING}] * (MAX_OPERATIONS + 1), "bad_operation"),
    "unknown op": ([{"op": "exec", "path": HEADING}], "bad_operation"),
    "op is no text": ([{"op": ["add"], "path": HEADING}], "bad_operation"),
    "no value": ([{"op": "add", "path": HEADING}], "bad_operation"),
    "whole document": ([{"op": "replace", "path": "", "value": {}}], "bad_operation"),
    "outside of pages": ([{"op": "add", "path": "/scripts", "value": 1}], "bad_operation"),
    "bad escape": ([{"op": "add", "path": "/pages/~2", "value": 1}], "bad_operation"),
    "path is no text": ([{"op": "add", "path": 1, "value": 1}], "bad_operation"),
    "prototype": ([{"op": "add", "path": "/pages/__proto__/x", "value": 1}], "forbidden_key"),
    "prototype in value": ([{"op": "add", "path": HEADING, "value": {"constructor": 1}}], "forbidden_key"),
    "missing target": ([{"op": "remove", "path": "/pages/gone.html"}], "patch_failed"),
    "into a text": ([{"op": "add", "path": f"{HEADING}/x", "value": 1}], "patch_failed"),
    "far index": ([{"op": "add", "path": f"{CHILDREN}/1000000000", "value": "x"}], "patch_failed"),
    "failing test": ([{"op": "test", "path": HEADING, "value": "other"}], "patch_failed"),
    "invalid result": ([{"op": "replace", "path": HEADING, "value": 7}], "bad_prop"),
    "script address": ([{"op": "replace", "path": f"{HERO}/actions/0/href", "value": "javascript:x"}], "bad_url"),
    "copies without end": (
        [{"op": "copy", "from": f"/pages/{INDEX}", "path": f"{HERO}/x{n}"} for n in range(60)],
        "too_large",
    ),
}


@pytest.mark.req("H-011")
@pytest.mark.threat("F13")
@pytest.mark.parametrize(("operations", "code"), BAD.values(), ids=BAD)
def test_a_bad_patch_is_refused_by_a_named_rule(operations: Any, code: str) -> None:
    assert refusal(operations) == code


@settings(max_examples=30)
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["op", "path", "value", "from"]), json_values | st.just("add") | st.just(HEADING)
        ),
        max_size=3,
    )
)
def test_any_list_of_objects_is_applied_or_refused(operations: list[dict[str, Any]]) -> None:
    with suppress(SpecError):
        assert isinstance(apply_edit(SMALL, operations), Site)


SMALL = parse_site(page(hero=element("Hero", heading="Hello")))


@settings(max_examples=30)
@given(st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc", "Cf", "Cn")), min_size=1, max_size=140))
def test_an_edit_and_its_reverse_give_the_same_site(text: str) -> None:
    edited = apply_edit(SMALL, [{"op": "replace", "path": HEADING, "value": text}])
    assert apply_edit(edited, [{"op": "replace", "path": HEADING, "value": "Hello"}]) == SMALL


def shown(prompt: str) -> set[tuple[str, str]]:
    document = relevant_part(demo_site(), prompt).document
    return {(path, key) for path, spec in document["pages"].items() for key in spec["elements"]}


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sites.spec.edit.MAX_PART_CHARS", 6_000)


def test_a_site_that_fits_is_sent_whole_and_the_same_whatever_is_asked() -> None:
    texts = {relevant_part(demo_site(), prompt).to_text() for prompt in ("Shorten the FAQ", "Translate it", "xyzzy")}
    assert texts == {json.dumps(demo_site().to_dict(), separators=(",", ":"), ensure_ascii=False)}


@pytest.mark.usefixtures("little_room")
def test_only_the_named_sections_and_the_roots_are_sent() -> None:
    assert shown("Make the testimonials shorter") == {
        (INDEX, "page"),
        (INDEX, "testimonials"),
        ("classes.html", "page"),
    }


def test_sections_are_found_by_the_words_that_they_hold() -> None:
    assert (INDEX, "menu") in shown("The walnut wreath is sold out")


@pytest.mark.usefixtures("little_room")
def test_what_is_left_out_is_listed_so_that_the_model_knows_of_it() -> None:
    part = relevant_part(demo_site(), "Make the testimonials shorter")
    assert "index.html: gallery (Gallery) Fresh from the stone" in part.omitted
    assert "Not shown" not in part.to_text().split("\n")[0]


@pytest.mark.parametrize("prompt", ["Translate everything to German", "xyzzy"])
def test_a_request_about_everything_or_nothing_gets_as_much_as_fits(prompt: str) -> None:
    part = relevant_part(demo_site(), prompt)
    assert len(shown(prompt)) > 15
    assert len(json.dumps(part.document)) < MAX_PART_CHARS * 1.3


def test_patches_of_a_part_apply_to_the_whole_site() -> None:
    part = relevant_part(demo_site(), "Change the quote of Tomas Weil")
    items = part.document["pages"][INDEX]["elements"]["testimonials"]["props"]["items"]
    index = next(number for number, item in enumerate(items) if item["name"] == "Tomas Weil")
    path = f"/pages/{INDEX}/elements/testimonials/props/items/{index}/quote"
    assert "Lovely" in apply_edit(demo_site(), [{"op": "replace", "path": path, "value": "Lovely."}]).canonical()


def test_a_part_never_grows_without_bound() -> None:
    many = page(**{f"t{number}": element("Text", text="bread " * 900) for number in range(60)})
    assert len(relevant_part(parse_site(many), "change the bread").to_text()) < MAX_PART_CHARS + 8000


def test_a_part_of_a_large_site_stays_small_whatever_makes_it_large() -> None:
    heading = "A heading that is rather long, as headings of large sites tend to be when nobody cares"
    big = page(**{f"t{number}": element("Text", text=heading) for number in range(190)}) | {
        "state": {"list": ["bread"] * 900}
    }
    site = parse_site({"pages": {path: big for path in (INDEX, *(f"page-{n}.html" for n in range(9)))}})
    for prompt in ("change the bread", "Translate everything to German", "Move t7 up on page-3"):
        assert len(relevant_part(site, prompt).to_text()) < MAX_PART_CHARS + 8000


def test_a_page_that_is_named_is_sent_with_its_root() -> None:
    pages = {
        path: page(**{f"t{n}": element("Text", text="x") for n in range(200)})
        for path in (INDEX, "a.html", "about.html")
    }
    part = relevant_part(parse_site({"pages": pages}), "Put a map on the about page")
    assert "page" in part.document["pages"]["about.html"]["elements"]


def test_state_is_sent_only_to_those_who_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sites.spec.edit.MAX_PART_CHARS", 180)
    spec = page(
        hero=element("Hero", heading={"$state": "/slogan"}),
        faq=element("FAQ", items=[{"question": "q", "answer": "a"}]),
    ) | {"state": {"slogan": "Bread"}}
    site = parse_site(spec)
    assert relevant_part(site, "Change the hero").document["pages"][INDEX]["state"] == {"slogan": "Bread"}
    part = relevant_part(site, "Shorten the FAQ")
    assert "state" not in part.document["pages"][INDEX]
    assert f"{INDEX}: state with slogan" in part.omitted


def test_the_tool_offers_exactly_the_operations_that_are_applied() -> None:
    schema = edit_tool()["input_schema"]["properties"]["operations"]["items"]
    assert set(schema["properties"]["op"]["enum"]) == {"add", "remove", "replace", "move", "copy", "test"}


ONE = parse_site(page(hero=element("Hero", heading="Hello"), text=element("Text", text="More")))
SET = {"op": "replace", "path": "/elements/hero/props/heading", "value": "New"}


def heading(site: Site) -> Any:
    return site.pages[INDEX]["elements"]["hero"]["props"]["heading"]


@pytest.mark.parametrize(
    "edit",
    [
        [SET],
        [{**SET, "path": f"/pages/{INDEX}{SET['path']}"}],
        json.dumps(SET),
        f"Sure:\n```spec\n{json.dumps(SET)}\n```\nDone.",
        json.dumps([SET]),
        {MERGE_MARK: True, "elements": {"hero": {"props": {"heading": "New"}}}},
        {MERGE_MARK: True, "pages": {INDEX: {"elements": {"hero": {"props": {"heading": "New"}}}}}},
        json.dumps({MERGE_MARK: True, "elements": {"hero": {"props": {"heading": "New"}}}}),
        [{MERGE_MARK: True, "elements": {"hero": {"props": {"heading": "Old"}}}}, SET],
    ],
)
def test_every_form_of_an_edit_does_the_same(edit: Any) -> None:
    assert heading(apply_edit(ONE, edit)) == "New"
    assert heading(ONE) == "Hello"


def test_a_null_in_a_merge_deletes() -> None:
    changes = {"elements": {"text": None, "page": {"children": ["hero"]}}}
    assert set(apply_edit(ONE, {MERGE_MARK: True, **changes}).pages[INDEX]["elements"]) == {"page", "hero"}


def test_a_merge_that_only_deletes_an_element_leaves_a_dangling_child_and_is_refused() -> None:
    with pytest.raises(SpecError) as caught:
        apply_edit(ONE, {MERGE_MARK: True, "elements": {"text": None}})
    assert caught.value.code == "missing_child"


@pytest.mark.parametrize(
    ("base", "changes", "merged"),
    [
        ({"a": 1}, {"a": None}, {}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": None}}, {"a": {"c": 2}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": 1}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({}, {"a": {"b": None}}, {"a": {"b": None}}),
    ],
)
def test_merges_as_upstream_merges(base: Any, changes: Any, merged: Any) -> None:
    assert merge(base, changes) == merged


def test_the_address_of_one_spec_is_refused_where_a_site_has_several() -> None:
    for edit in ([SET], {MERGE_MARK: True, "elements": {}}):
        with pytest.raises(SpecError) as caught:
            apply_edit(demo_site(), edit)
        assert caught.value.code == "bad_operation"


@pytest.mark.threat("F13")
@pytest.mark.parametrize(
    "edit",
    [
        {MERGE_MARK: True, "pages": {"__proto__": {}}},
        {MERGE_MARK: True, "scripts": {}},
        {MERGE_MARK: True},
        {MERGE_MARK: 1, "elements": {}},
        {MERGE_MARK: True, "elements": {}, "pages": {}},
        "prose alone",
        '{"op": "replace", "path": "/elements/hero/props/heading", "value": NaN}',
        f'{json.dumps(SET)}\n{{"op": "remove", "path": "/elements/gone"}}',
    ],
)
def test_hostile_and_partial_edits_are_refused_as_a_whole(edit: Any) -> None:
    with pytest.raises(SpecError):
        apply_edit(ONE, edit)


def test_a_models_reply_is_a_list_of_operations_or_a_merge() -> None:
    assert edit_of({"operations": [SET], "summary": "x"}) == [SET]
    assert edit_of({MERGE_MARK: True, "elements": {}, "summary": "x"}) == {MERGE_MARK: True, "elements": {}}
    assert edit_of({}) is None


@settings(max_examples=40)
@given(json_values | st.text(max_size=40))
def test_any_value_is_applied_or_refused(edit: Any) -> None:
    with suppress(SpecError):
        assert isinstance(apply_edit(ONE, edit), Site)


@settings(max_examples=40)
@given(st.dictionaries(st.sampled_from(["elements", "root", "state", "pages", "x"]), json_values, max_size=3))
def test_any_merge_is_applied_or_refused(changes: dict[str, Any]) -> None:
    with suppress(SpecError):
        assert isinstance(apply_edit(ONE, {MERGE_MARK: True, **changes}), Site)


def test_a_family_that_an_edit_names_is_the_one_that_is_shipped_and_what_stood_there_stays() -> None:
    spec = page()
    spec["elements"]["page"]["props"]["theme"] = {"headings": "Inter", "text": "Lato"}
    site = parse_site({"pages": {INDEX: spec}})
    theme = "/elements/page/props/theme"

    def themed(*operations: Any) -> Any:
        return apply_edit(site, list(operations)).pages[INDEX]["elements"]["page"]["props"]["theme"]

    named = themed({"op": "replace", "path": f"{theme}/text", "value": "Playfair Display"})
    assert named == {"headings": "Inter", "text": "playfair-display-1"}
    merged = {MERGE_MARK: True, "elements": {"page": {"props": {"theme": {"headings": "garamond"}}}}}
    assert apply_edit(site, merged).pages[INDEX]["elements"]["page"]["props"]["theme"]["headings"] == "eb-garamond-1"
    for value in ("serif", "Merriweather", "mono"):
        assert themed({"op": "add", "path": f"{theme}/font", "value": value})["font"] == value


def test_what_undoes_an_edit_holds_also_in_part_and_takes_a_list_whole() -> None:
    """Of two new questions, the second's removal alone took a third one away."""

    def of(heading: str, *questions: str) -> Site:
        items = [{"question": each, "answer": each} for each in questions]
        return parse_site({"pages": {INDEX: page(faq=element("FAQ", heading=heading, items=items))}})

    live, now = of("Old", "a", "b"), of("New", "x", "a", "y", "b")
    operations = undoing(now, live)
    results = {each["path"].rsplit("/", 1)[1]: apply_edit(now, [each]).to_dict() for each in operations}
    assert results == {"heading": of("Old", "x", "a", "y", "b").to_dict(), "items": of("New", "a", "b").to_dict()}
    assert apply_edit(now, operations).to_dict() == live.to_dict()

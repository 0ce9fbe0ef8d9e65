from __future__ import annotations

from typing import Any

import pytest

from sites.spec.expressions import complaint_about_condition, is_visible, resolve
from sites.spec.model import parse_site
from sites.spec.render import render
from sites.spec.state import MISSING, Scope, look_up
from tests.unit.sites.spec.samples import codes, element, holding, nested, page

SCOPE = Scope(
    state={
        "user": {"name": "Ann"},
        "n": 3,
        "list": [1, 2],
        "a/b": "slash",
        "yes": True,
        "loaves": [{"title": "White"}, {"title": "Rye"}],
    },
    item={"title": "Rye"},
    index=1,
    item_path="/loaves/1",
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"$state": "/user/name"}, "Ann"),
        ({"$state": "user/name"}, "Ann"),
        ({"$state": "/a~1b"}, "slash"),
        ({"$state": "/list/1"}, 2),
        ({"$state": "/gone"}, MISSING),
        ({"$item": "title"}, "Rye"),
        ({"$item": ""}, {"title": "Rye"}),
        ({"$index": True}, 1),
        ({"$bindState": "/n"}, 3),
        ({"$bindItem": "title"}, "Rye"),
        ({"$template": "Hi ${/user/name}, ${title}, ${/gone}, ${n}"}, "Hi Ann, Rye, , 3"),
        ({"$template": "${yes}"}, "true"),
        ({"$cond": {"$state": "/n", "gt": 2}, "$then": {"$state": "/user/name"}, "$else": "no"}, "Ann"),
        ({"$cond": {"$state": "/n", "lt": 2}, "$then": "yes", "$else": "no"}, "no"),
        ([{"$state": "/n"}, {"$state": "/gone"}], [3, None]),
        ({"a": {"$state": "/gone"}, "b": 1}, {"b": 1}),
    ],
)
def test_expressions_resolve_as_in_json_render(value: Any, expected: Any) -> None:
    assert resolve(value, SCOPE) == expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (True, True),
        ({"$state": "/n", "eq": 3}, True),
        ({"$state": "/n", "neq": 3}, False),
        ({"$state": "/yes", "eq": 1}, False),
        ({"$state": "/n", "gte": {"$state": "/n"}}, True),
        ({"$state": "/user/name", "gt": 1}, False),
        ({"$state": "/gone"}, False),
        ({"$state": "/gone", "not": True}, True),
        ({"$state": "/list"}, True),
        ([{"$state": "/n"}, {"$item": "title", "eq": "Rye"}], True),
        ({"$and": [True, {"$or": [False, {"$index": True, "eq": 1}]}]}, True),
        ({"$or": []}, False),
    ],
)
def test_conditions_evaluate_as_in_json_render(condition: Any, expected: bool) -> None:
    assert complaint_about_condition(condition) is None
    assert is_visible(condition, SCOPE) is expected


@pytest.mark.parametrize(
    "condition",
    [
        None,
        1,
        "yes",
        {},
        {"path": "/a"},
        {"$state": 1},
        {"$state": "/a", "$item": "b"},
        {"$state": "/a", "gt": "1"},
        {"$and": {}},
        {"$and": [], "$or": []},
        {"$state": "/a", "not": False},
        [[True]],
        [True],
        {"$index": 1},
    ],
)
def test_conditions_of_any_other_shape_are_refused(condition: Any) -> None:
    assert complaint_about_condition(condition) is not None


def test_a_pointer_cannot_reach_what_only_looks_like_data() -> None:
    assert look_up({"a": "text"}, "/a/__class__") is MISSING
    assert look_up([1], "/-1") is MISSING
    assert look_up([1], "/²") is MISSING


def test_repeats_conditions_and_slots_are_resolved_when_the_page_is_built() -> None:
    shown = {"repeat": {"statePath": "/breads", "key": "name"}, "visible": {"$item": "sold", "not": True}}
    spec = nested(
        s=holding("Section", "grid", "closed", slots={"aside": ["note"]}),
        grid=holding("Grid", "card", **shown),
        card=element("Card", heading={"$item": "name"}, text={"$template": "No. ${/breads/0/name}"}),
        closed=element("Text", text="We are open") | {"visible": {"$state": "/open"}},
        note=element("Text", text="Beside"),
    )
    breads = [{"name": "Rye", "sold": False}, {"name": "Spelt", "sold": True}]
    html = render(parse_site(spec | {"state": {"breads": breads, "open": False}}))["index.html"].decode()
    assert ("Rye" in html, "Spelt" in html, "We are open" in html, "Beside" in html) == (True, False, False, True)


def repeated(condition: Any, *, inner: Any = True) -> str:
    """A page of two breads with three slices each, with a condition on the outer list and one on the inner."""
    breads = [{"name": name, "sold": name == "Spelt", "slices": [1, 2, 3]} for name in ("Rye", "Spelt")]
    spec = nested(
        outer=holding("Stack", "bread", repeat={"statePath": "/breads"}, visible=condition),
        bread=holding("Stack", "name", "inner"),
        name=element("Text", text={"$bindItem": "name"}),
        inner=holding("Stack", "slice", repeat={"statePath": {"$item": "slices"}}, visible=inner),
        slice=element("Text", text={"$template": "slice ${/breads/0/slices/0} of ${}"}),
    )
    state = {"breads": breads, "open": True, "shut": False}
    return render(parse_site(spec | {"state": state}))["index.html"].decode()


@pytest.mark.parametrize(
    ("condition", "breads"),
    [
        (True, ["Rye", "Spelt"]),
        ({"$item": "sold"}, ["Spelt"]),
        ({"$index": True, "lt": 1}, ["Rye"]),
        ([{"$state": "/open"}, {"$item": "sold", "not": True}], ["Rye"]),
        ([{"$state": "/shut"}, {"$item": "sold", "not": True}], []),
        ({"$and": [{"$or": [{"$item": "sold"}, {"$state": "/open"}]}, {"$state": "/open"}]}, ["Rye", "Spelt"]),
    ],
)
def test_the_parts_of_a_condition_that_ask_about_items_filter_them_and_the_rest_hides_the_list(
    condition: Any, breads: list[str]
) -> None:
    html = repeated(condition)
    assert [name for name in ("Rye", "Spelt") if f">{name}<" in html] == breads


def test_an_inner_repeat_is_shown_or_hidden_by_the_item_around_it() -> None:
    html = repeated(True, inner={"$item": "sold"})
    assert html.count("slice 1 of ${}") == 3


def test_a_site_that_makes_too_much_of_little_is_refused() -> None:
    spec = page(text=element("Text", text={"$template": "${/long}" * 500})) | {"state": {"long": "x" * 20_000}}
    assert codes(spec) == {"too_large"}

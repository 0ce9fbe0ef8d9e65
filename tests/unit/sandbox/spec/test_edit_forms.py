from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.spec.edit import MERGE_MARK, apply_edit, edit_of, merge
from sandbox.spec.errors import SpecError
from sandbox.spec.model import INDEX, Site, parse_site
from tests.unit.sandbox.spec.samples import demo_site, element, page
from tests.unit.sandbox.spec.test_model import json_values

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

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sites.errors import SpecError
from sites.spec.model import Site, parse_site
from sites.spec.stream import compile_stream, read_site
from tests.unit.sites.spec.samples import element, page
from tests.unit.sites.spec.test_model import json_values


def lines(*patches: dict[str, Any]) -> str:
    return "\n".join(json.dumps(patch) for patch in patches)


def add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


def refusal(text: str) -> str:
    with pytest.raises(SpecError) as caught:
        compile_stream(text)
    return caught.value.code


SPEC = page(hero=element("Hero", heading="Hi"))
STREAM = lines(add("/root", "page"), *(add(f"/elements/{key}", value) for key, value in SPEC["elements"].items()))


def test_a_stream_among_prose_and_fences_builds_a_site() -> None:
    answer = f"Here is your page:\n```spec\n{STREAM}\n```\nEnjoy!"
    assert read_site(answer) == read_site(STREAM.encode()) == read_site(json.dumps(SPEC)) == parse_site(SPEC)


@pytest.mark.parametrize("text", ["", "no spec here", "{", "[1]", "null", "{'op': 'add'}"])
def test_text_that_holds_neither_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        read_site(text)


@pytest.mark.parametrize("line", ["", "text", "```spec", "{", "[1]", "{}", '{"op": "add"}', '{"op": "", "path": "/a"}'])
def test_lines_that_hold_no_operation_are_skipped(line: str) -> None:
    assert compile_stream(line) == {}


@pytest.mark.parametrize(
    ("text", "built"),
    [
        (lines(add("/a/0/b", 1)), {"a": [{"b": 1}]}),
        (lines(add("/a/-", 1), add("/a/-", 2)), {"a": [1, 2]}),
        (lines(add("/a", [1, 3]), add("/a/1", 2)), {"a": [1, 2, 3]}),
        (lines(add("/a", [1, 3]), {"op": "replace", "path": "/a/1", "value": 2}), {"a": [1, 2]}),
        (lines(add("/a", [1]), add("/a/9", 2)), {"a": [1]}),
        (lines({"op": "remove", "path": "/gone/deeper"}), {}),
        (lines(add("/a", 1), {"op": "move", "from": "/a", "path": "/b"}), {"b": 1}),
        (lines(add("/a", 1), {"op": "move", "path": "/b"}), {"a": 1}),
        (lines(add("/a", 1), {"op": "test", "path": "/a", "value": 1}, add("/b", 2)), {"a": 1, "b": 2}),
        (lines(add("/a", 1), add("/a/b", 2)), {"a": {"b": 2}}),
        (lines({"op": "exec", "path": "/a"}, {"op": "add", "path": "/a"}), {}),
        (lines(add("a", 1)), {"a": 1}),
        (lines(add("/__proto__/x", 1)), {}),
    ],
)
def test_operations_apply_as_leniently_as_json_render_applies_them(text: str, built: Any) -> None:
    assert compile_stream(text) == built


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (lines(add("/a", 1), {"op": "test", "path": "/a", "value": 2}), "patch_failed"),
        (lines(add("/a", {}), {"op": "copy", "from": "/a", "path": "/a/b"}), "patch_failed"),
        (lines({"op": "add", "path": 5, "value": 1}), "patch_failed"),
        (lines(add("/a", None), add("/a/b/c", 1)), "patch_failed"),
        ('{"op": "add", "path": "/a", "value": NaN}', "bad_number"),
        ('{"op": "add", "op": "remove", "path": "/a"}', "duplicate_key"),
        (lines(add("/constructor", 1)), "forbidden_key"),
        (lines(add("/a" * 60, 1)), "too_deep"),
        (lines(add("/a", [0] * 99), *[{"op": "copy", "from": "/a", "path": "/b/-"}] * 600), "too_large"),
        ("x" * 600_000, "too_large"),
        ("{\n" * 10_001, "too_large"),
    ],
)
@pytest.mark.threat("F13")
def test_what_cannot_be_applied_or_breaks_a_cap_is_refused(text: str, code: str) -> None:
    assert refusal(text) == code


operations = st.fixed_dictionaries(
    {"op": st.sampled_from(["add", "replace", "remove", "move", "copy", "test"])},
    optional={
        "path": st.from_regex(r"\A(/[a0-]?){0,4}\Z") | json_values,
        "from": st.from_regex(r"\A(/[a0-]?){0,3}\Z") | json_values,
        "value": json_values,
    },
)


@settings(max_examples=60)
@given(st.lists(operations, max_size=12))
def test_any_stream_is_compiled_or_refused(patches: list[dict[str, Any]]) -> None:
    with suppress(SpecError):
        assert isinstance(compile_stream(lines(*patches)), dict)


@settings(max_examples=60)
@given(st.text(max_size=60) | st.binary(max_size=60))
def test_any_text_is_a_site_or_refused(text: str | bytes) -> None:
    with suppress(SpecError):
        assert isinstance(read_site(text), Site)


@pytest.mark.threat("F13")
@pytest.mark.parametrize(
    "text",
    [
        "\n".join(['{"op":"add","path":"/a/0","value":1}'] * 10_000),
        lines(add("/a", [1] * 20_000), *[{"op": "test", "path": "/a", "value": [1] * 20_000}] * 7),
        "\n".join(["{x}"] * 10_000),
        lines(add("/" + "/".join("a" * 40), 1)) * 1000,
    ],
)
def test_a_stream_at_the_byte_cap_takes_no_time(text: str) -> None:
    started = time.process_time()
    with suppress(SpecError):
        compile_stream(text)
    assert time.process_time() - started < 4

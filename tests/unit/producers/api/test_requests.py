import json

import pytest
from pydantic import BaseModel, ConfigDict

from producers.api.requests import MAX_BODY_BYTES, check_text, parse_json, parse_model
from producers.errors import BodyTooLargeError, BrokenBodyError
from routing.errors import InvalidJobError


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    size: int = 0


@pytest.mark.parametrize(
    "raw", [b"{'a': 1}", b"[1,]", b"{} {}", b"NaN", b"[Infinity]", b"\xff", b'{"a":1,"a":2}', b"[" * 9999, b"9" * 6000]
)
def test_what_is_no_strict_json_is_broken(raw: bytes) -> None:
    with pytest.raises(BrokenBodyError):
        parse_json(raw)


def test_a_broken_body_says_where_and_not_what() -> None:
    with pytest.raises(BrokenBodyError) as error:
        parse_json(b'{"a": hunter2}')
    assert "line 1, column 7" in str(error.value)
    assert "hunter2" not in str(error.value)


def test_text_counts_without_its_escapes() -> None:
    fits = json.dumps({"p": "ü" * 30_000})
    assert len(fits) > 2 * MAX_BODY_BYTES
    assert parse_json(fits.encode()) == {"p": "ü" * 30_000}
    with pytest.raises(BodyTooLargeError):
        parse_json(json.dumps({"p": "x" * MAX_BODY_BYTES}).encode())


def test_many_small_values_count_too() -> None:
    with pytest.raises(BodyTooLargeError):
        parse_json(json.dumps([0] * (MAX_BODY_BYTES + 1)).encode())


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"a": {"b": [1, "\x00"]}}, "a.b.1"),
        ({"a": {"\ud800": 1}}, "a"),
        ("\udfff", "body"),
        ({"\x00": 1}, "body"),
        (["ok", {"x": "\ud800"}], "1.x"),
    ],
)
def test_text_that_cannot_be_stored_is_found_wherever_it_is(body: object, field: str) -> None:
    with pytest.raises(InvalidJobError) as error:
        check_text(body)
    assert [item.field for item in error.value.errors] == [field]


def test_ordinary_text_of_any_language_is_fine() -> None:
    check_text({"a": ["ü", "🍞", "日本", "\u202e", 1, None, True, {"b": "c\n\t"}]})


def test_a_model_names_every_bad_field() -> None:
    assert parse_model(Body, b'{"name": "x"}') == Body(name="x")
    with pytest.raises(InvalidJobError) as error:
        parse_model(Body, b'{"size": "hunter2", "more": "hunter2"}')
    assert {item.field for item in error.value.errors} == {"name", "size", "more"}
    assert "hunter2" not in str(error.value)

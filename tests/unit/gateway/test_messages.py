import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.messages import Code, ModelRequest, RefusedError, parse_request

MODELS = frozenset({"small"})
BASE: dict[str, Any] = {"model": "small", "max_tokens": 10, "messages": []}


def check(body: dict[str, Any] | bytes, **options: Any) -> ModelRequest:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return parse_request(raw, models=MODELS, most_tokens=100, **options)


def refusal(body: dict[str, Any] | bytes) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        check(body)
    return caught.value


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(value=JSON)
def test_unknown_fields_pass_unchanged(value: Any) -> None:
    body = BASE | {"some_field": value, "messages": [{"role": "user", "content": [{"type": "text", "x": value}]}]}
    assert json.loads(check(body).encoded) == body


def test_what_is_checked_is_what_is_sent() -> None:
    twice = b'{"model":"large","model":"small","max_tokens":10,"max_tokens":20,"messages":[]}'
    assert json.loads(check(twice).encoded) == BASE | {"max_tokens": 20}


def test_max_tokens_is_lowered_to_the_most() -> None:
    checked = check(BASE | {"max_tokens": 10**12})
    assert checked.max_tokens == 100
    assert json.loads(checked.encoded)["max_tokens"] == 100
    assert json.loads(checked.with_max_tokens(7))["max_tokens"] == 7


@pytest.mark.parametrize("value", [None, 0, -1, 1.5, "10", True, [10]])
def test_max_tokens_must_be_a_positive_integer(value: Any) -> None:
    error = refusal(BASE | {"max_tokens": value})
    assert (error.code, error.status) == (Code.BAD_REQUEST, 400)
    assert "max_tokens" in error.message


@pytest.mark.parametrize(
    "raw",
    [b"", b"null", b"[]", b"{", b'{"a":NaN}', b"\xff\xfe", b"[" * 100_000, b'{"a":"\\ud800"}', b'"' + b"x" * 9],
)
def test_what_is_no_json_object_is_refused(raw: bytes) -> None:
    assert refusal(raw).code is Code.BAD_REQUEST


@pytest.mark.parametrize("fields", [{"messages": {}}, {"messages": None}, {"stream": 1}])
def test_fields_of_the_wrong_kind_are_refused(fields: dict[str, Any]) -> None:
    assert refusal(BASE | fields).code is Code.BAD_REQUEST


def test_a_refusal_repeats_nothing_of_the_body() -> None:
    secret = "s3cret-model-name"
    assert secret not in str(refusal(BASE | {"model": secret}))


def test_counting_needs_no_max_tokens() -> None:
    assert check({"model": "small", "messages": []}, is_count=True).max_tokens == 0


def test_a_thinking_budget_is_known() -> None:
    assert check(BASE | {"thinking": {"type": "enabled", "budget_tokens": 4000}}).thinking_tokens == 4000
    assert check(BASE | {"thinking": {"type": "adaptive"}}).thinking_tokens == 0
    assert check(BASE | {"thinking": "yes"}).thinking_tokens == 0

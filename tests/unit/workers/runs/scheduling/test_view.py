"""`.agent-result.json` is an agent's word: read strictly, bounded, and refused without repeating it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.errors import ResultInvalidError
from workers.runs.scheduling.view import Status, parse_result

GOOD: dict[str, Any] = {
    "status": "complete",
    "summary": "done",
    "artifacts": ["artifacts/qa/report.md"],
    "issues": [{"severity": "blocking", "title": "rounds twice", "file": "src/cart.ts", "line": 7}],
}


def raw(**values: Any) -> bytes:
    return json.dumps({**GOOD, **values}).encode()


def test_a_good_result_is_read() -> None:
    result = parse_result(raw())

    assert result.status is Status.COMPLETE
    assert [issue.title for issue in result.blocking] == ["rounds twice"]


def test_only_blocking_issues_count() -> None:
    issues = [{"severity": "minor", "title": "a"}, {"severity": "blocking", "title": "b"}]

    assert [issue.title for issue in parse_result(raw(issues=issues)).blocking] == ["b"]


@pytest.mark.req("S-051")
@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"status": "perfect"}, "status"),
        ({"status": None}, "status"),
        ({"summary": ""}, "summary"),
        ({"summary": "x" * 20_000}, "summary"),
        ({"summary": "a\x00b"}, "summary"),
        ({"issue": []}, "issue: is not a field"),
        ({"issues": [{"severity": "bad", "title": "t"}]}, "issues.0.severity"),
        ({"issues": [{"severity": "minor", "title": "t"}] * 101}, "issues"),
        ({"issues": [{"severity": "minor", "title": "t", "file": "/etc/passwd"}]}, "issues.0.file"),
        ({"artifacts": ["../../x"]}, "artifacts.0"),
        ({"artifacts": ["a\\b"]}, "artifacts.0"),
        ({"intent": "question"}, "intent"),
        ({"plan": []}, "plan"),
    ],
)
def test_a_result_that_breaks_the_schema_names_the_field_and_not_the_value(values: dict[str, Any], named: str) -> None:
    with pytest.raises(ResultInvalidError, match=named) as caught:
        parse_result(raw(**values))

    assert "/etc/passwd" not in str(caught.value)
    assert "perfect" not in str(caught.value)


@pytest.mark.req("S-051")
@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"status": "complete"}', b"[" * 100_000])
def test_what_is_no_result_is_refused(text: bytes) -> None:
    with pytest.raises(ResultInvalidError):
        parse_result(text)


@given(text=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(text: bytes) -> None:
    try:
        result = parse_result(text)
    except ResultInvalidError as error:
        message = str(error)
    else:
        message = result.status.value

    assert 0 < len(message) < 4_000

"""The words of the notes that a ticket gets."""

from collections.abc import Mapping
from typing import Any

import pytest

from producers.tickets.notes import text_of


def note(state: str, detail: str | None = None, kind: str = "ended", **result: Any) -> str:
    facts: Mapping[str, Any] = result
    return text_of(kind, run_id="r-1", state=state, detail=detail, result=facts, gate_reason="look, @all")


@pytest.mark.parametrize(
    ("state", "result", "said"),
    [
        ("published", {"pull_request": {"url": "https://f.example/pull/1"}}, "Pull request: https://f.example/pull/1"),
        ("published", {"branch": "pointsman/x"}, "Branch: `pointsman/x`"),
        ("published", {}, "Nothing had to be changed."),
        ("answered", {"answer": "Because @ada said so."}, "Because @\u2060ada said so."),
        ("escalated", {}, "hands this ticket to a person"),
        ("budget_exceeded", {}, "budget is spent"),
        ("failed", {}, "could not finish"),
    ],
)
def test_each_end_has_its_words(state: str, result: dict[str, Any], said: str) -> None:
    text = note(state, "why it is so", **result)
    assert said in text
    assert text.endswith("Run `r-1`.")
    assert ("why it is so" in text) is (state not in ("published", "answered"))


@pytest.mark.threat("D7")
def test_what_others_said_makes_a_tracker_do_nothing() -> None:
    assert "@all" not in note("running", kind="gate:p0")
    assert "![" not in note("failed", "![](https://evil.example)")

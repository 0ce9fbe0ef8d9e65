from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.client import Text, ToolCall
from gateway.errors import CallTimeoutError
from routing.policy.prices import Usage
from workers.attempt import Attempt, Prompt


def test_of_calls_side_by_side_one_that_is_late_costs_no_other() -> None:
    """Two drawings were there and paid, and none was shown, as the third took too long (read before release)."""
    aborted: list[BaseException] = []

    def call(purpose: str, parts: Sequence[Text], **_: Any) -> ToolCall:
        if parts[0].text == "late":
            raise CallTimeoutError
        return ToolCall({"of": parts[0].text}, Usage(), is_cut=False)

    attempt = cast(Attempt, SimpleNamespace(tool_call=call, _open=lambda: None, abort=aborted.append))

    def made(*texts: str) -> list[tuple[dict[str, Any], bool]]:
        prompts = [Prompt("spec_draw", "", {}, [Text(text)]) for text in texts]
        calls = Attempt.tool_calls(attempt, prompts, until=22.0)
        return [(call.input, call.is_cut) for call in calls]

    assert made("bread", "late", "oven") == [({"of": "bread"}, False), ({}, True), ({"of": "oven"}, False)]
    assert not aborted
    with pytest.raises(CallTimeoutError):
        made("late", "late")

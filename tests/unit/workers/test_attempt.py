from __future__ import annotations

from threading import Event
from time import sleep
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.client import Text, ToolCall
from gateway.errors import BudgetExceededError, CallTimeoutError
from routing.policy.prices import Usage
from workers.attempt import Attempt, Prompt


def test_of_calls_side_by_side_one_that_is_late_or_too_dear_costs_no_other() -> None:
    """Two drawings were there and paid, and none was shown, as the third took too long (read before release)."""
    aborted: list[BaseException] = []

    def call(prompt: Prompt, **_: Any) -> ToolCall:
        parts = prompt.parts
        if error := {"late": CallTimeoutError, "dear": BudgetExceededError}.get(parts[0].text):
            raise error
        return ToolCall({"of": parts[0].text}, Usage(), is_cut=False)

    attempt = cast(Attempt, SimpleNamespace(tool_call=call, _open=lambda: None, abort=aborted.append))

    def made(*texts: str, until: float | None = 22.0) -> list[tuple[dict[str, Any], bool]]:
        prompts = [Prompt("spec_draw", "", {}, [Text(text)]) for text in texts]
        calls = Attempt.tool_calls(attempt, prompts, until=until)
        return [(call.input, call.is_cut) for call in calls]

    assert made("bread", "late", "oven") == [({"of": "bread"}, False), ({}, True), ({"of": "oven"}, False)]
    assert made("bread", "dear") == [({"of": "bread"}, False), ({}, True)]
    assert not aborted
    with pytest.raises(CallTimeoutError):
        made("late", "dear")
    with pytest.raises(BudgetExceededError):
        made("bread", "dear", until=None)


def test_a_call_that_waits_begins_when_the_first_beside_it_has_ended() -> None:
    """Of a long request the worst cases of three drawings and a proofreader did not fit the limit (issue 20)."""
    seen: list[str] = []
    proof = Event()

    def call(prompt: Prompt, **_: Any) -> ToolCall:
        name = prompt.parts[0].text
        if name == "proof":
            proof.set()
        elif name == "slow":
            assert proof.wait(10), "it begins before the others have ended"
        else:
            sleep(0.1)
        seen.append(name)
        return ToolCall({}, Usage(), is_cut=False)

    attempt = cast(Attempt, SimpleNamespace(tool_call=call, _open=lambda: None, abort=lambda error: None))
    drawings = [Prompt("spec_draw", "", {}, [Text(text)]) for text in ("slow", "quick")]
    last = Prompt("spec_proof", "", {}, [Text("proof")], waits=True)
    assert len(Attempt.tool_calls(attempt, [*drawings, last])) == 3
    assert seen[0] == "quick"

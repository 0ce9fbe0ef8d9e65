"""However the call of the ladder's model fails, the same options are shown again (seed 004, rule D)."""

from typing import Any, cast

import pytest

from gateway.errors import GatewayError, GatewayUnreachableError, ProviderBusyError, ProviderDownError
from routing.clarify.ladder import LadderFlags, LadderState, Outcome
from routing.clarify.questions import Clarification
from routing.decision.llm_router import RouteRules
from routing.prompt.vocabulary import shipped_vocabulary
from tests.unit.routing.clarify.conversation import LINKS
from workers.attempt import Attempt
from workers.handlers.intake import _replied
from workers.outcomes import Replied


class Failing:
    """An attempt whose calls all fail."""

    def __init__(self, error: GatewayError) -> None:
        self.error = error

    def tool_call(self, prompt: Any) -> Any:
        raise self.error


@pytest.mark.req("L-004", "L-021", "L-030", "L-087", "L-088", "L-089", "L-137", "L-151")
@pytest.mark.parametrize(
    ("error", "why"),
    [
        (GatewayUnreachableError("away"), "transport_error"),
        (ProviderBusyError("busy"), "rate_limited"),
        (ProviderDownError("down"), "unavailable"),
    ],
)
def test_a_call_that_fails_shows_the_same_options_and_says_why(error: GatewayError, why: str) -> None:
    asked = Clarification(question="Which?", state=LadderState(active=LINKS))
    flags = LadderFlags(llm_enabled=True, auto_execute_enabled=True)
    rules = RouteRules({}, shipped_vocabulary())
    outcome = _replied(cast(Attempt, Failing(error)), asked, "ope panel d", flags=flags, rules=rules)
    assert isinstance(outcome, Replied)
    result = outcome.result
    assert (result.outcome, result.order, result.option) == (Outcome.CLARIFY, LINKS.ids, None)
    assert result.state.active == LINKS
    assert result.events[-1].reason == why

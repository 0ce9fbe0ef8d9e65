"""However the call of the ladder's model fails, the same options are shown again (seed 004, rule D)."""

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.errors import GatewayError, GatewayUnreachableError, ProviderBusyError, ProviderDownError
from routing.clarify.ladder import LadderFlags, LadderState, Outcome
from routing.clarify.questions import ABSTAIN, Clarification
from routing.decision.llm_router import HARD_ROUTING, SOFT_DEFAULT, RouteRules
from routing.decision.router import Signals, SiteSignals, decide
from routing.model_call import load_prompt
from routing.policy.platform import Assist, platform_policy
from routing.prompt.vocabulary import shipped_vocabulary
from tests.unit.routing.clarify.conversation import LINKS, WIDGET
from workers.attempt import Attempt
from workers.handlers.intake import _assisted, _replied
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


@pytest.mark.req("L-029", "L-039", "L-071", "L-086")
def test_the_ladder_s_model_may_choose_among_the_options_in_scope_and_nothing_else() -> None:
    asked: list[Any] = []

    def tool_call(prompt: Any) -> Any:
        asked.append(prompt)
        raise GatewayUnreachableError("away")

    question = Clarification(question="Which?", state=LadderState(active=LINKS, other=WIDGET))
    rules, flags = RouteRules({}, shipped_vocabulary()), LadderFlags(llm_enabled=True)
    _replied(cast(Attempt, SimpleNamespace(tool_call=tool_call)), question, "ping panel d", flags=flags, rules=rules)
    (prompt,) = asked
    assert prompt.tool["input_schema"]["properties"]["choice"]["enum"] == [*LINKS.ids, ABSTAIN]
    (part,) = prompt.parts
    assert [option["id"] for option in json.loads(part.text)["options"]] == [*LINKS.ids]


@pytest.mark.req("R-006", "R-007")
def test_the_soft_router_is_asked_with_the_shipped_rules_wherever_the_switch_is_off() -> None:
    asked: list[Any] = []

    def tool_call(prompt: Any) -> Any:
        asked.append((prompt.system, [json.loads(part.text) for part in prompt.parts]))
        raise GatewayUnreachableError("away")

    job = SimpleNamespace(request={})
    attempt = SimpleNamespace(
        prompt="What is bread?",
        policy=platform_policy(),
        begun=None,
        site=None,
        start=None,
        claim=SimpleNamespace(job=job),
        tool_call=tool_call,
    )
    rules = RouteRules({HARD_ROUTING: "false"}, shipped_vocabulary())
    route = decide(Signals(prompt=attempt.prompt), attempt.policy)
    assert _assisted(cast(Attempt, attempt), route, rules).classifier == SOFT_DEFAULT
    assert asked == [(load_prompt("router"), [{"message": attempt.prompt}])]


@pytest.mark.req("H-062", "H-063")
def test_the_model_that_chooses_a_tier_is_shown_the_request_and_the_site_as_it_is() -> None:
    asked: list[Any] = []

    def tool_call(prompt: Any) -> Any:
        asked.extend(json.loads(part.text) for part in prompt.parts)
        raise GatewayUnreachableError("away")

    words, site = "Make it feel like a warm Sunday morning", {"files": 7, "has_js": True, "has_build": False}
    policy = platform_policy().model_copy(update={"assist": Assist(enabled=True)})
    attempt = SimpleNamespace(
        prompt=words,
        policy=policy,
        begun=None,
        site=SimpleNamespace(),
        start=SimpleNamespace(signals=site),
        claim=SimpleNamespace(job=SimpleNamespace(request={})),
        tool_call=tool_call,
    )
    route = decide(Signals(prompt=words, site=SiteSignals.model_validate(site)), policy)
    assert _assisted(cast(Attempt, attempt), route, RouteRules({}, shipped_vocabulary())) == route
    assert asked == [{"prompt": words, "current_site": site}]

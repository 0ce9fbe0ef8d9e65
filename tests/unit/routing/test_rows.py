"""Rows of seeds 000 and 002 that no single rule owns."""

import time

import pytest

from routing.decision.router import Mode, RouteTarget, Signals, SiteSignals, decide
from routing.decision.triggers import Confidence
from routing.policy.platform import platform_policy
from routing.queues import QueueName, Tier

EDITS = (
    "Change the headline to Welcome",
    "Add a hover underline effect to the links",
    "The menu is broken on phones",
    "Remove the last section",
    "Make the whole thing a bit friendlier",
)


def on_site(prompt: str, **signals: object) -> Signals:
    return Signals.model_validate({"prompt": prompt, "site": SiteSignals(files=3), **signals})


@pytest.mark.req("H-003")
def test_the_decision_names_both_ends_and_the_middle() -> None:
    assert {tier.name: tier.value for tier in Tier} == {"SPEC": 1, "PATCH": 2, "AGENT": 3}


@pytest.mark.req("H-008")
def test_a_decision_takes_far_less_than_ten_milliseconds() -> None:
    decide(on_site(EDITS[0]), platform_policy())
    taken = []
    for _ in range(40):
        for prompt in EDITS:
            started = time.perf_counter()
            decide(on_site(prompt), platform_policy())
            taken.append(time.perf_counter() - started)
    assert sorted(taken)[len(taken) // 2] < 0.010


@pytest.mark.req("H-047")
def test_tier_3_may_use_more_than_tiers_1_and_2_in_every_number() -> None:
    spec, patch, agent = (platform_policy().limits_of(tier) for tier in Tier)
    for field in ("soft_seconds", "hard_seconds", "llm_usd", "output_bytes"):
        assert getattr(agent, field) > max(getattr(spec, field), getattr(patch, field))


@pytest.mark.req("H-120")
@pytest.mark.parametrize("prompt", EDITS)
def test_an_explicit_request_always_reaches_the_agent(prompt: str) -> None:
    assert decide(on_site(prompt, advanced_edit=True), platform_policy()).tier is Tier.AGENT
    assert decide(on_site(prompt, tier=Tier.AGENT), platform_policy()).queue is QueueName.AGENT


@pytest.mark.req("R-042")
def test_an_answer_has_no_triggers_and_no_confidence() -> None:
    route = decide(Signals(prompt="What is the difference between HPOS and classic?"), platform_policy())
    assert (route.mode, route.triggers, route.confidence) == (Mode.ANSWER, (), Confidence.NONE)
    assert (route.queue, route.target) == (QueueName.ANSWER, RouteTarget.DIRECT_RESPONSE)


@pytest.mark.req("R-002", "R-114")
@pytest.mark.parametrize(
    "prompt", ["fix the bug in src/api/auth.ts and update tests", "find, fix and deploy our project"]
)
def test_strong_action_is_always_delegated(prompt: str) -> None:
    for signals in (on_site(prompt), Signals(prompt=prompt), Signals(prompt=prompt, project=True)):
        route = decide(signals, platform_policy())
        assert (route.mode, route.confidence) == (Mode.ACTION, Confidence.STRONG)
        assert route.target is RouteTarget.SWARM_ORCHESTRATOR
        assert route.queue is not QueueName.ANSWER

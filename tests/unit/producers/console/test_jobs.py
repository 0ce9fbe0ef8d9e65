"""What is told of a decision: nobody is told that the rules changed where something else had the last word."""

import pytest

from producers.console.jobs import Decider, decider_of, is_as_decided
from routing.decision.router import Route, Signals, SiteSignals, decide
from routing.policy.platform import platform_policy
from routing.queues import Tier
from routing.rounds import Floor, raise_route

POLICY = platform_policy()


def route_of(prompt: str = "Make the headline red") -> Route:
    return decide(Signals(prompt=prompt, site=SiteSignals()), POLICY)


def test_the_same_rules_say_the_same() -> None:
    today = route_of()
    then = today.model_dump(mode="json")
    assert decider_of(then) == "rules"
    assert is_as_decided(then, today, decider="rules")
    assert not is_as_decided({**then, "tier": 3}, today, decider="rules")


def test_a_tier_that_the_work_so_far_needs_stands_for_every_lower_one_and_for_no_other() -> None:
    today = route_of()
    assert today.tier is Tier.SPEC
    then = raise_route(today, Floor(Tier.PATCH, "the work so far has a build")).model_dump(mode="json")
    assert decider_of(then) == "work"
    assert is_as_decided(then, today, decider="work")
    for other in (today.model_copy(update={"tier": Tier.PATCH}), route_of("What does the page say?")):
        assert not is_as_decided(then, other, decider="work")


@pytest.mark.parametrize(
    ("changes", "is_pivot", "decider"),
    [({"classifier": "soft"}, False, "model"), ({"tier": 3}, True, "model"), ({}, False, "rules")],
)
def test_what_a_model_decided_is_no_change_of_the_rules(
    changes: dict[str, object], is_pivot: bool, decider: Decider
) -> None:
    today = route_of()
    then = today.model_dump(mode="json") | changes
    assert decider_of(then, is_pivot=is_pivot) == decider
    assert is_as_decided(then, today, decider=decider)

"""The limiter between batches: what is left has to hold what the batch will probably cost."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from routing.policy.platform import platform_policy
from workers.runs.apply_actions import apply_action, expected_nanousd, fits, spent_by_agent
from workers.runs.scheduling.ending import ScanChanges

POLICY = platform_policy()
USD = 10**9


def test_what_an_agent_has_cost_in_this_run_tells_more_than_its_definition() -> None:
    assert expected_nanousd("qa", POLICY, {"qa": [USD, 3 * USD], "security": [9 * USD]}) == 2 * USD


def most(agent: str) -> float:
    definition = POLICY.agents[agent]
    return definition.expected_usd(POLICY.prices[definition.model]) * USD


def test_an_agent_that_has_not_worked_yet_is_expected_to_cost_as_much_of_its_most_as_the_others_did() -> None:
    half = {"security": [round(most("security") / 2)] * 3}
    assert expected_nanousd("qa", POLICY, half) == pytest.approx(most("qa") / 2, abs=2)
    assert expected_nanousd("qa", POLICY, {"security": [9 * USD]}) == round(most("qa"))


def test_a_run_begins_on_a_budget_for_one_call_of_its_first_agents() -> None:
    assert expected_nanousd("orchestrator", POLICY, {}) == round(most("orchestrator") / 12)
    assert fits(["orchestrator"], [], left_nanousd=USD // 4, policy=POLICY, spent={})


def test_the_projects_own_build_costs_nothing() -> None:
    assert expected_nanousd(None, POLICY, {}) == 0
    assert fits([None], [], left_nanousd=0, policy=POLICY, spent={})


@pytest.mark.req("P-038", "S-124")
def test_a_batch_begins_only_if_it_fits_beside_what_is_still_running() -> None:
    spent = spent_by_agent([("qa", USD), ("security", USD)])
    assert fits(["qa", "security"], [], left_nanousd=2 * USD, policy=POLICY, spent=spent)
    assert not fits(["qa", "security"], [], left_nanousd=2 * USD - 1, policy=POLICY, spent=spent)
    assert not fits(["qa"], ["security"], left_nanousd=2 * USD - 1, policy=POLICY, spent=spent)


def test_an_action_that_is_carried_out_elsewhere_is_refused_and_not_dropped() -> None:
    with pytest.raises(TypeError, match="ScanChanges is not applied here"):
        apply_action(Mock(), ScanChanges())

"""What is bound to a project goes to control as a run, whatever it asks; its estimate is that of its pipeline."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from routing.decision.llm_router import first_stage, work_queue
from routing.decision.router import Intent, Signals, decide
from routing.estimate import estimate_agents, estimate_run
from routing.jobs import JobRequest, State, parse_request
from routing.policy.platform import platform_policy
from routing.queues import QUEUES, QueueName

POLICY = platform_policy()


@pytest.mark.parametrize(
    "prompt", ["Fix the broken header", "Add a login page", "How does the checkout work?", "search the code for auth"]
)
def test_work_on_a_project_waits_on_control(prompt: str) -> None:
    route = decide(Signals(prompt=prompt, project=True), POLICY)
    assert work_queue(route) is QueueName.CONTROL
    assert QUEUES[QueueName.CONTROL].task == "pointsman.control"
    assert first_stage(route, POLICY, environment={}) in [(State.QUEUED, QueueName.CONTROL), (State.DEBATING, "intake")]


def test_a_trivial_command_stays_what_it_is_although_it_names_a_project() -> None:
    assert work_queue(decide(Signals(prompt="pwd", project=True), POLICY)) is QueueName.TOOLS


def test_a_ticket_belongs_to_a_project() -> None:
    ticket = {"title": "Broken header", "labels": ["bug"]}
    assert parse_request({"prompt": "x", "project": "shop", "ticket": ticket}).ticket is not None
    with pytest.raises(ValidationError, match="ticket needs project"):
        JobRequest.model_validate({"prompt": "x", "site": "shop", "ticket": ticket})


@pytest.mark.req("S-117")
def test_a_fix_is_estimated_at_two_to_four_dollars_and_a_question_at_nothing() -> None:
    fix = estimate_run(POLICY, Intent.FIX)
    assert (fix["low_usd"], fix["high_usd"], fix["tokens"], fix["basis"]) == (2.0, 4.0, 700_000, "pipeline")
    assert estimate_run(POLICY, Intent.BUILD)["low_usd"] == 10.0
    assert estimate_run(POLICY, Intent.QUESTION)["high_usd"] == 0.0


def test_agents_that_are_not_in_the_registry_do_not_count() -> None:
    found = estimate_agents(POLICY, ["qa", "frontend-dev", "nobody"], is_fix=True, basis="plan")
    assert (found["agents"], found["basis"]) == (["frontend-dev", "qa"], "plan")

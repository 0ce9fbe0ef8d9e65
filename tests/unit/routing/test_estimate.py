"""The estimate before a run says what seed 001 says, and one agent on Opus raises its own share only."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from routing.decision.llm_router import first_stage, work_queue
from routing.decision.router import Intent, Signals, decide
from routing.estimate import OPUS_FACTOR, SIZES, Estimate, estimate, estimate_agents, estimate_run
from routing.jobs import JobRequest, State, parse_request
from routing.policy.agents import AgentDefinition, AgentRole
from routing.policy.platform import platform_policy
from routing.queues import QUEUES, QueueName

AGENTS = platform_policy().agents
OPUS = "claude-opus-4-6"
BUG_FIX = ("backend-dev", "qa")
FEATURE = ("frontend-dev", "qa", "research")
COMPLEX = ("research", "architect", "frontend-dev", "qa", "security")


def of(*names: str, is_fix: bool = False, opus: tuple[str, ...] = ()) -> Estimate:
    chosen: list[AgentDefinition] = []
    for name in names:
        agent = AGENTS[name]
        chosen.append(agent.model_copy(update={"model": OPUS}) if name in opus else agent)
    return estimate(chosen, is_fix=is_fix)


@pytest.mark.req("S-117")
def test_a_simple_bug_fix_is_700_thousand_tokens_and_two_to_four_dollars() -> None:
    found = of(*BUG_FIX, is_fix=True)
    assert (found.tokens, found.low_usd, found.high_usd) == (700_000, 2, 4)


@pytest.mark.req("S-118")
@pytest.mark.parametrize("names", [("frontend-dev", "qa"), FEATURE])
def test_a_standard_feature_is_a_million_and_a_half_and_five_to_ten_dollars(names: tuple[str, ...]) -> None:
    found = of(*names)
    assert (found.tokens, found.low_usd, found.high_usd) == (1_500_000, 5, 10)
    told = estimate_agents(POLICY, names, is_fix=False, basis="plan")
    assert (told["tokens"], told["low_usd"], told["high_usd"]) == (1_500_000, 5, 10)


@pytest.mark.req("S-119")
def test_a_complex_feature_is_two_and_a_half_million_and_ten_to_twenty_dollars() -> None:
    found = of(*COMPLEX)
    assert (found.tokens, found.low_usd, found.high_usd) == (2_500_000, 10, 20)
    told = estimate_agents(POLICY, COMPLEX, is_fix=False, basis="plan")
    assert (told["tokens"], told["low_usd"], told["high_usd"]) == (2_500_000, 10, 20)


@pytest.mark.req("S-120")
@pytest.mark.parametrize("names", [FEATURE, COMPLEX])
def test_opus_for_one_agent_multiplies_that_agent_s_share_by_five_and_nothing_else(names: tuple[str, ...]) -> None:
    for name in names:
        plain, dear = of(*names), of(*names, opus=(name,))
        own = AGENTS[name].role
        assert own is not None
        assert dear.shares[own] == pytest.approx(tuple(5 * end for end in plain.shares[own]))
        for role in set(plain.shares) - {own}:
            assert dear.shares[role] == plain.shares[role]
        added = (OPUS_FACTOR - 1) * plain.shares[own][0]
        assert dear.low_usd == pytest.approx(plain.low_usd + added, abs=0.01)
        agents = AGENTS | {name: AGENTS[name].model_copy(update={"model": OPUS})}
        policy = POLICY.model_copy(update={"agents": agents})
        assert estimate_agents(policy, names, is_fix=False, basis="plan")["low_usd"] == dear.low_usd


def test_opus_for_one_of_two_agents_of_a_role_raises_half_of_its_share() -> None:
    both = ("frontend-dev", "backend-dev", "qa")
    plain, dear = of(*both), of(*both, opus=("frontend-dev",))
    assert dear.shares[AgentRole.DEVELOPER][0] == pytest.approx(3 * plain.shares[AgentRole.DEVELOPER][0])


def test_the_shares_add_up_to_the_range() -> None:
    found = of(*COMPLEX, "styling", opus=("architect",))
    assert sum(low for low, _ in found.shares.values()) == pytest.approx(found.low_usd, abs=0.01)
    assert sum(high for _, high in found.shares.values()) == pytest.approx(found.high_usd, abs=0.01)


def test_the_orchestrator_s_part_is_in_the_figures() -> None:
    assert of(*BUG_FIX, "orchestrator", "orchestrator:summary", is_fix=True) == of(*BUG_FIX, is_fix=True)
    assert of("orchestrator:question").high_usd == 0


def test_the_pipelines_are_estimated_near_what_their_steps_are_expected_to_cost() -> None:
    prices = platform_policy().prices
    fix = ("test-planner", "backend-dev", "code-review", "qa", "security")
    build = ("research", "architect", *["frontend-dev"] * 4, "backend-dev", "styling", "code-review", "qa", "security")
    for names, is_fix in ((fix, True), (build, False)):
        found = of(*names, is_fix=is_fix)
        expected = sum(AGENTS[name].expected_usd(prices[AGENTS[name].model]) for name in names)
        assert found.low_usd / 1.3 <= expected <= found.high_usd


def test_a_fix_that_needs_a_design_is_no_simple_one() -> None:
    assert of("backend-dev", "qa", "security", is_fix=True).size == "simple_fix"
    assert of("research", "backend-dev", "qa", is_fix=True).size == "standard_feature"
    assert of("architect", "backend-dev", "qa", is_fix=True).size == "complex_feature"


@pytest.mark.req("S-121")
def test_the_default_budget_covers_every_estimate_on_the_shipped_models() -> None:
    assert max(size.high_usd for size in SIZES) <= platform_policy().budgets.run_usd


# What is bound to a project goes to control as a run, whatever it asks; its estimate is that of its pipeline.

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

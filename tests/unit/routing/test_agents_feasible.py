"""A limit that no step can keep is a bug: what an agent may do fits its time, its money and the run's cap.

Nothing but the policy is used: its price table, its stated token rates and the sizes that definitions expect.
"""

import pytest

from gateway.anthropic import most_input_nanousd, most_input_tokens
from routing.policy.platform import platform_policy
from routing.policy.prices import nanousd_per_token
from routing.queues import QueueName
from sandbox.claude_code.command import MAX_OUTPUT_TOKENS

POLICY = platform_policy()
AGENTS = POLICY.agents
BYTES_PER_TOKEN = 4
REVIEWERS = ("code-review", "qa", "security")


def expected_usd(*names: str) -> float:
    return sum(AGENTS[name].expected_usd(POLICY.prices[AGENTS[name].model]) for name in names)


@pytest.mark.parametrize("name", sorted(AGENTS))
def test_all_turns_of_a_step_end_before_its_soft_limit(name: str) -> None:
    agent = AGENTS[name]
    speed = POLICY.speeds[agent.model]
    talking = agent.max_turns * speed.first_token_seconds + agent.written_tokens / speed.tokens_per_second
    assert talking + agent.tool_seconds <= agent.soft_seconds


@pytest.mark.parametrize("name", sorted(AGENTS))
def test_the_longest_reply_fits_twice_into_a_step_and_once_into_the_silence_that_is_borne(name: str) -> None:
    agent = AGENTS[name]
    speed = POLICY.speeds[agent.model]
    seconds = speed.first_token_seconds + agent.max_output_tokens / speed.tokens_per_second
    assert 2 * seconds <= agent.soft_seconds
    assert seconds <= POLICY.agent.idle_seconds


@pytest.mark.parametrize("name", sorted(AGENTS))
def test_a_whole_step_costs_no_more_than_it_may_spend(name: str) -> None:
    step_usd = AGENTS[name].step_usd
    assert step_usd is not None
    assert expected_usd(name) <= step_usd <= POLICY.budgets.run_usd


@pytest.mark.parametrize("name", sorted(AGENTS))
def test_the_gateway_reserves_an_agent_s_largest_call_whole_by_its_bytes_alone(name: str) -> None:
    agent = AGENTS[name]
    body = b" " * (agent.input_tokens * BYTES_PER_TOKEN)
    price = POLICY.prices[agent.model]
    reserve = most_input_nanousd(price, most_input_tokens(body, has_tools=True), has_long_cache=False)
    reserve += agent.max_output_tokens * nanousd_per_token(price.output)
    assert agent.step_usd is not None
    assert reserve / 1e9 <= min(POLICY.budgets.call_usd, agent.step_usd)


@pytest.mark.parametrize("name", sorted(AGENTS))
def test_a_step_stays_within_its_queue_and_its_runtime(name: str) -> None:
    agent, queue = AGENTS[name], POLICY.queues[QueueName.STEPS]
    assert agent.soft_seconds < agent.hard_seconds <= queue.hard_seconds
    assert agent.soft_seconds <= queue.soft_seconds
    assert agent.input_tokens * BYTES_PER_TOKEN <= POLICY.gateway.max_body_bytes
    assert not agent.needs_box or agent.max_output_tokens <= MAX_OUTPUT_TOKENS


@pytest.mark.req("P-011")
def test_classification_is_one_short_request() -> None:
    agent = AGENTS["orchestrator:classify"]
    assert agent.max_turns == 1
    assert agent.max_output_tokens <= 256
    assert expected_usd("orchestrator:classify") < 0.02


def test_the_widest_build_with_every_loop_used_up_fits_the_run_s_cap() -> None:
    rules = POLICY.runs
    build = [
        "orchestrator:classify",
        "orchestrator",
        "research",
        "architect",
        "frontend-dev",
        *["frontend-dev"] * 3,
        "frontend-dev",
        "backend-dev",
        "styling",
        *REVIEWERS,
    ]
    remediation = rules.remediation_cycles * ["frontend-dev", *REVIEWERS]
    rework = rules.rework_cycles * ["orchestrator", "backend-dev", *REVIEWERS]
    assert expected_usd(*build, *remediation, *rework, "orchestrator:summary") <= POLICY.budgets.run_usd


def test_a_whole_build_fits_the_number_of_steps_that_a_plan_may_have() -> None:
    assert 2 + 1 + POLICY.runs.frontend_steps + 1 + 1 + 1 + len(REVIEWERS) <= POLICY.runs.max_steps
    assert POLICY.runs.max_parallel >= max(len(REVIEWERS), POLICY.runs.frontend_steps)

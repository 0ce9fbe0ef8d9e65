"""A limit that no job can keep is a bug: two attempts of every model call fit their queue's time and money.

The arithmetic uses nothing but the policy: its price table, its stated token rates and its expected sizes.
"""

import pytest

from gateway.anthropic import TOOL_PROMPT_TOKENS, most_input_nanousd, most_input_tokens
from routing.policy.platform import ModelCall, platform_policy
from routing.policy.prices import Usage, cost_nanousd, nanousd_per_token
from routing.queues import Limits, Tier
from sandbox.claude_code.command import MAX_OUTPUT_TOKENS
from workers.handlers.build import CLOSING_SECONDS, GRACE_SECONDS

POLICY = platform_policy()
TRIES = POLICY.attempts.spec
BYTES_PER_TOKEN = 4
"""How English, HTML and JSON tokenize, about; the gateway itself reserves a token for every two bytes."""
BOX_SECONDS = 2.0
"""To have a box, cold and on a busy machine (measured in tests/box)."""
CALLS = list(POLICY.calls.values())


def name(call: ModelCall) -> str:
    return next(purpose for purpose, known in POLICY.calls.items() if known is call)


def limits_of(call: ModelCall) -> Limits:
    return POLICY.queues[call.queue]


def seconds_of(call: ModelCall, *, tokens: int | None = None) -> float:
    """How long a reply of so many tokens takes; of all that it may have by default."""
    speed = POLICY.speeds[call.model]
    return speed.first_token_seconds + (tokens or call.max_tokens) / speed.tokens_per_second


def worst_cost(call: ModelCall) -> int:
    return cost_nanousd(
        POLICY.prices[call.model], Usage(cache_write_tokens=call.input_tokens, output_tokens=call.max_tokens)
    )


@pytest.mark.parametrize("call", CALLS, ids=name)
def test_two_attempts_end_before_the_soft_limit(call: ModelCall) -> None:
    assert TRIES == POLICY.attempts.patch == 2
    assert TRIES * seconds_of(call) <= limits_of(call).soft_seconds


def test_a_patch_and_its_repair_leave_a_site_s_build_its_time() -> None:
    call = POLICY.calls["patch_built"]
    work = BOX_SECONDS + TRIES * seconds_of(call) + POLICY.patch.build_seconds
    assert work + GRACE_SECONDS + CLOSING_SECONDS <= limits_of(call).soft_seconds


def test_two_of_the_longest_replies_of_an_agent_leave_a_site_s_build_its_time() -> None:
    call, rules = POLICY.calls["agent_session"], POLICY.agent
    assert call.max_tokens <= MAX_OUTPUT_TOKENS
    session = BOX_SECONDS + TRIES * seconds_of(call)
    assert session + rules.build_seconds + rules.closing_seconds <= limits_of(call).soft_seconds
    assert POLICY.patch.build_seconds <= rules.build_seconds, "what is too slow for a patch is not for tier 3"


@pytest.mark.parametrize("call", CALLS, ids=name)
def test_two_attempts_cost_no_more_than_the_queue_s_cap(call: ModelCall) -> None:
    assert TRIES * worst_cost(call) <= limits_of(call).llm_nanousd


@pytest.mark.parametrize("call", CALLS, ids=name)
def test_the_gateway_reserves_the_first_attempt_whole_by_its_bytes_alone(call: ModelCall) -> None:
    body = b" " * (call.input_tokens * BYTES_PER_TOKEN)
    price = POLICY.prices[call.model]
    tokens = most_input_tokens(body, has_tools=True)
    reserve = most_input_nanousd(price, tokens, has_long_cache=False) + call.max_tokens * nanousd_per_token(
        price.output
    )
    assert reserve <= limits_of(call).llm_nanousd


@pytest.mark.parametrize("call", CALLS, ids=name)
def test_the_gateway_reserves_the_second_attempt_by_its_counted_tokens_after_the_first_was_paid(
    call: ModelCall,
) -> None:
    price = POLICY.prices[call.model]
    tokens = call.input_tokens + TOOL_PROMPT_TOKENS
    least = min(call.max_tokens, POLICY.gateway.min_output_tokens)
    reserve = most_input_nanousd(price, tokens, has_long_cache=False) + least * nanousd_per_token(price.output)
    assert reserve <= limits_of(call).llm_nanousd - worst_cost(call)


@pytest.mark.parametrize("call", CALLS, ids=name)
def test_a_call_stays_within_what_the_gateway_lets_through(call: ModelCall) -> None:
    assert call.max_tokens <= POLICY.gateway.max_output_tokens
    assert call.input_tokens * BYTES_PER_TOKEN <= POLICY.gateway.max_body_bytes
    assert worst_cost(call) <= POLICY.budgets.call_usd * 10**9


def test_a_job_s_cap_is_the_sum_of_the_tiers_it_can_pass() -> None:
    caps = [POLICY.limits_of(tier).llm_nanousd for tier in Tier]
    assert caps == [50_000_000, 100_000_000, 500_000_000]
    assert sum(caps) == POLICY.job_cap_nanousd(None)


def test_the_caps_above_a_job_have_room_for_one() -> None:
    budgets = POLICY.budgets
    assert budgets.call_usd <= budgets.job_usd <= budgets.tenant_day_usd <= budgets.fleet_day_usd
    assert budgets.run_usd <= budgets.tenant_day_usd


def test_a_lease_outlives_two_missed_renewals_and_no_tier_s_time() -> None:
    attempts = POLICY.attempts
    assert attempts.lease_seconds >= 3 * attempts.lease_renew_seconds
    assert attempts.lease_seconds < min(POLICY.limits_of(tier).hard_seconds for tier in Tier)

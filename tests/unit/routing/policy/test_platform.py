"""The policy names what is wrong with it, and a project may lower a limit but never raise one."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.providers.anthropic import TOOL_PROMPT_TOKENS, most_input_nanousd, most_text_tokens
from routing.errors import PolicyError
from routing.policy.platform import (
    ModelCall,
    Policy,
    ProjectOverrides,
    load_policy,
    lower,
    parse_policy,
    platform_policy,
)
from routing.policy.prices import Usage, cost_nanousd, nanousd_per_token
from routing.queues import Limits, QueueName, Tier
from sandbox.claude_code import MAX_OUTPUT_TOKENS
from workers.handlers.build import CLOSING_SECONDS, GRACE_SECONDS


def document(**changes: Any) -> dict[str, Any]:
    return {**platform_policy().model_dump(mode="json"), **changes}


def refusal(document: object) -> str:
    with pytest.raises(PolicyError) as refused:
        parse_policy(yaml.safe_dump(document), source="mine.yaml")
    return str(refused.value)


def changed(section: str, **changes: Any) -> dict[str, Any]:
    whole = document()
    return {**whole, section: {**whole[section], **changes}}


def without(section: str, name: str) -> dict[str, Any]:
    whole = document()
    del whole[section][name]
    return whole


def test_the_shipped_policy_reads_back_as_itself_under_one_version() -> None:
    again = parse_policy(yaml.safe_dump(document()), source="x")
    assert again == platform_policy()
    assert again.version == platform_policy().version
    assert len(again.version) == 12


def test_any_change_is_another_version() -> None:
    other = Policy.model_validate(changed("tools", ping_hosts=["example.com"]))
    assert other.version != platform_policy().version


@pytest.mark.parametrize(
    ("bad", "place", "rule"),
    [
        (changed("budgets", job_usd=-1), "budgets.job_usd", "greater than or equal to 0"),
        (changed("budgets", job_usd=float("nan")), "budgets.job_usd", "greater than or equal|finite"),
        (changed("budgets", week_usd=1), "budgets.week_usd", "Extra inputs"),
        (changed("queues", spce={}), "queues.spce", "Input should be 'intake'"),
        (changed("attempts", lease_seconds=9), "attempts", "at least twice lease_renew_seconds"),
        (changed("attempts", max_lost=0), "attempts.max_lost", "greater than 0"),
        (changed("dispatch_window", per_queue=0), "dispatch_window.per_queue", "greater than 0"),
        (changed("profiles", default=None), "profiles.default", "valid dictionary"),
        (without("profiles", "default"), "", "profiles must hold `default`"),
        (without("queues", "control"), "", "queues must hold limits for control"),
        (without("prices", "claude-haiku-4-5-20251001"), "", "needs a price and a speed"),
        (without("speeds", "claude-haiku-4-5-20251001"), "", "needs a price and a speed"),
        (without("calls", "answer"), "", "calls must hold answer"),
        (document(prices_as_of=None), "prices_as_of", "valid string"),
        ({}, "queues", "Field required"),
        ([], "the document", "valid dictionary"),
        (None, "the document", "valid dictionary"),
    ],
)
def test_a_bad_policy_is_refused_with_its_source_and_place(bad: object, place: str, rule: str) -> None:
    message = refusal(bad)
    assert message.startswith("mine.yaml: ")
    assert place in message
    assert any(part in message for part in rule.split("|"))


@pytest.mark.req("S-072")
@pytest.mark.parametrize("part", ["calls", "budgets", "runs", "agents"])
def test_a_policy_file_has_its_models_its_budgets_its_rules_and_its_agents(part: str) -> None:
    whole = document()
    del whole[part]
    assert f"mine.yaml: {part}: Field required" in refusal(whole)


def test_a_hard_limit_must_lie_above_the_soft_one() -> None:
    whole = document()
    whole["queues"]["spec"]["hard_seconds"] = 25
    assert "queues.spec: hard_seconds must be above soft_seconds" in refusal(whole)


def test_broken_yaml_is_refused_with_its_line() -> None:
    with pytest.raises(PolicyError, match=r"mine\.yaml, line 2: "):
        parse_policy("queues:\n  {]\n", source="mine.yaml")


def test_text_that_yaml_cannot_hold_is_refused() -> None:
    with pytest.raises(PolicyError, match=r"mine\.yaml: is no YAML text"):
        parse_policy("a: \x01", source="mine.yaml")


def test_yaml_cannot_make_objects() -> None:
    with pytest.raises(PolicyError):
        parse_policy("!!python/object/apply:os.getcwd []", source="mine.yaml")


def test_a_policy_file_that_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "none.yaml", tmp_path, binary):
        with pytest.raises(PolicyError, match=f"{path}: cannot be read"):
            load_policy(path)


@pytest.mark.req("S-072")
def test_an_installation_may_ship_its_own_policy(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(yaml.safe_dump(changed("budgets", job_usd=0.10)))
    assert load_policy(path).budgets.job_usd == 0.10
    assert load_policy(None) is platform_policy()


LOWER = [
    ({"queues": {"spec": {"llm_usd": 0.01}}}, lambda p: p.queues[QueueName.SPEC].llm_usd, 0.01),
    ({"queues": {"agent": {"hard_seconds": 281}}}, lambda p: p.queues[QueueName.AGENT].hard_seconds, 281),
    ({"queues": {"patch": {"soft_seconds": 1}}}, lambda p: p.queues[QueueName.PATCH].soft_seconds, 1),
    ({"queues": {"tools": {"output_bytes": 1}}}, lambda p: p.queues[QueueName.TOOLS].output_bytes, 1),
    ({"queues": {"spec": {"llm_usd": 0.05}}}, lambda p: p.queues[QueueName.SPEC].llm_usd, 0.05),
    ({"budgets": {"job_usd": 0.3}}, lambda p: p.budgets.job_usd, 0.3),
    ({"budgets": {"tenant_day_usd": 0}}, lambda p: p.budgets.tenant_day_usd, 0),
]


@pytest.mark.parametrize(("overrides", "read", "value"), LOWER)
def test_a_project_may_lower_a_limit_and_nothing_else_changes(overrides: Any, read: Any, value: float) -> None:
    lowered = lower(platform_policy(), ProjectOverrides.model_validate(overrides))
    assert read(lowered) == value
    section, inner = next(iter(overrides.items()))
    before, after = platform_policy().model_dump(mode="json"), lowered.model_dump(mode="json")
    name, change = next(iter(inner.items()))
    before[section][name] = {**before[section][name], **change} if isinstance(change, dict) else change
    assert after == before


@pytest.mark.parametrize(
    ("overrides", "place"),
    [
        ({"queues": {"spec": {"llm_usd": 0.0501}}}, "queues.spec.llm_usd"),
        ({"queues": {"spec": {"hard_seconds": 31}}}, "queues.spec.hard_seconds"),
        ({"queues": {"spec": {"soft_seconds": 26}}}, "queues.spec.soft_seconds"),
        ({"queues": {"spec": {"output_bytes": 2_097_153}}}, "queues.spec.output_bytes"),
        ({"budgets": {"call_usd": 0.51}}, "budgets.call_usd"),
        ({"budgets": {"job_usd": 0.66}}, "budgets.job_usd"),
        ({"budgets": {"run_usd": 26}}, "budgets.run_usd"),
        ({"budgets": {"tenant_day_usd": 51}}, "budgets.tenant_day_usd"),
        ({"queues": {"unrouted": {"llm_usd": 0}}}, "queues.unrouted"),
    ],
)
def test_a_project_may_raise_nothing(overrides: Any, place: str) -> None:
    with pytest.raises(PolicyError, match=place):
        lower(platform_policy(), ProjectOverrides.model_validate(overrides))


def test_lowered_limits_must_still_fit_together() -> None:
    overrides = ProjectOverrides.model_validate({"queues": {"spec": {"hard_seconds": 20}}})
    with pytest.raises(PolicyError, match=r"queues\.spec: hard_seconds must be above soft_seconds"):
        lower(platform_policy(), overrides)


@pytest.mark.parametrize(
    "overrides",
    [
        {"prices": {}},
        {"budgets": {"fleet_day_usd": 1}},
        {"queues": {"spec": {"container": "none"}}},
        {"budgets": {"job_usd": float("nan")}},
        {"queues": {"spec": {"soft_seconds": float("nan")}}},
    ],
)
def test_a_project_can_name_only_its_own_limits(overrides: Any) -> None:
    with pytest.raises(ValueError, match="validation error"):
        ProjectOverrides.model_validate(overrides)


@pytest.mark.parametrize(("budget", "cap"), [(None, 650_000_000), (0.1, 100_000_000), (25, 650_000_000)])
def test_a_caller_s_budget_can_only_lower_the_job_s_cap(budget: float | None, cap: int) -> None:
    assert platform_policy().job_cap_nanousd(budget) == cap


def test_a_queue_may_call_only_the_models_of_its_purposes() -> None:
    policy = platform_policy()
    assert policy.models_of(QueueName.SPEC) == {policy.calls["spec_edit"].model, policy.calls["spec_create"].model}
    assert policy.models_of(QueueName.TOOLS) == frozenset()
    assert policy.limits_of(Tier.AGENT) == policy.queues[QueueName.AGENT]


def test_a_policy_file_from_before_work_rested_between_its_tries_still_loads(tmp_path: Path) -> None:
    path = tmp_path / "older.yaml"
    values = document()
    shipped = values.pop("pauses")
    path.write_text(yaml.safe_dump(values))
    assert load_policy(path).pauses.model_dump(mode="json") == shipped


@pytest.mark.parametrize(
    ("new", "like"), [("spec_draw", "spec_create"), ("spec_proof", "spec_create"), ("spec_terms", "spec_edit")]
)
def test_a_call_that_an_older_policy_file_does_not_have_is_like_another(tmp_path: Path, new: str, like: str) -> None:
    path = tmp_path / "older.yaml"
    values = document()
    values["calls"].pop(new)
    path.write_text(yaml.safe_dump(values))
    policy = load_policy(path)
    assert policy.calls[new] == policy.calls[like]


# A limit that no job can keep is a bug: two attempts of every model call fit their queue's time and money.
#
# The arithmetic uses nothing but the policy: its price table, its stated token rates and its expected sizes.

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


CACHED = b'{"cache_control":{"type":"ephemeral"}}'


@pytest.mark.parametrize("call", CALLS, ids=name)
def test_the_gateway_reserves_the_first_attempt_whole_by_its_bytes_alone(call: ModelCall) -> None:
    size = call.input_tokens * BYTES_PER_TOKEN
    price = POLICY.prices[call.model]
    tokens = most_text_tokens(size, has_tools=True)
    reserve = most_input_nanousd(price, tokens, encoded=CACHED) + call.max_tokens * nanousd_per_token(price.output)
    assert reserve <= limits_of(call).llm_nanousd


@pytest.mark.parametrize("call", CALLS, ids=name)
def test_the_gateway_reserves_the_second_attempt_by_its_counted_tokens_after_the_first_was_paid(
    call: ModelCall,
) -> None:
    price = POLICY.prices[call.model]
    tokens = call.input_tokens + TOOL_PROMPT_TOKENS
    least = min(call.max_tokens, POLICY.gateway.min_output_tokens)
    reserve = most_input_nanousd(price, tokens, encoded=CACHED) + least * nanousd_per_token(price.output)
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

"""The registry of agents is seed 003's table, and another agent is another entry in the platform's file."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gateway.providers.anthropic import most_input_nanousd, most_text_tokens
from routing.errors import PolicyError
from routing.policy.agents import AgentDefinition, AgentRole, check_path_rule, instruction_file, is_covered
from routing.policy.platform import Policy, parse_policy, platform_policy
from routing.policy.prices import nanousd_per_token
from routing.queues import QueueName
from sandbox.claude_code import MAX_OUTPUT_TOKENS

ROOT = Path(__file__).parents[4]
AGENTS = platform_policy().agents
SONNET = "claude-sonnet-4-6"
HAIKU = "claude-haiku-4-5-20251001"
TABLE = [
    pytest.param("orchestrator", "Orchestrator", SONNET, marks=pytest.mark.req("P-039")),
    pytest.param("orchestrator:classify", "orchestrator:classify", HAIKU, marks=pytest.mark.req("P-040", "P-011")),
    pytest.param("orchestrator:summary", "orchestrator:summary", SONNET, marks=pytest.mark.req("P-041")),
    pytest.param("orchestrator:question", "orchestrator:question", SONNET, marks=pytest.mark.req("P-042")),
    pytest.param("research", "Research", SONNET, marks=pytest.mark.req("P-043")),
    pytest.param("architect", "Architect", SONNET, marks=pytest.mark.req("P-044")),
    pytest.param("frontend-dev", "Frontend Dev", SONNET, marks=pytest.mark.req("P-045")),
    pytest.param("backend-dev", "Backend Dev", SONNET, marks=pytest.mark.req("P-046")),
    pytest.param("styling", "Styling", SONNET, marks=pytest.mark.req("P-047")),
    pytest.param("test-planner", "Test Planner", SONNET, marks=pytest.mark.req("P-048")),
    pytest.param("code-review", "Code Review", SONNET, marks=pytest.mark.req("P-049")),
    pytest.param("qa", "QA", SONNET, marks=pytest.mark.req("P-050")),
    pytest.param("security", "Security", HAIKU, marks=pytest.mark.req("P-051")),
]


def document(**agents: Any) -> str:
    whole = platform_policy().model_dump(mode="json")
    return yaml.safe_dump({**whole, "agents": {**whole["agents"], **agents}})


def entry(name: str, **changes: Any) -> dict[str, Any]:
    return {**AGENTS[name].model_dump(mode="json"), **changes}


def refusal(name: str, **changes: Any) -> str:
    with pytest.raises(PolicyError) as refused:
        parse_policy(document(**{name: entry(name, **changes)}), source="mine.yaml")
    return str(refused.value)


@pytest.mark.parametrize(("name", "title", "model"), TABLE)
def test_the_registry_is_the_seed_s_table(name: str, title: str, model: str) -> None:
    agent = AGENTS[name]
    assert (agent.title, agent.model, agent.provider) == (title, model, "anthropic")


@pytest.mark.req("P-033", "P-052")
def test_there_are_ten_base_agents_and_three_subtasks_two_of_them_on_haiku() -> None:
    subtasks = [name for name in AGENTS if ":" in name]
    assert (len(AGENTS) - len(subtasks), len(subtasks), len(AGENTS)) == (10, 3, 13)
    assert {name for name, agent in AGENTS.items() if agent.model == HAIKU} == {"orchestrator:classify", "security"}
    assert sum(agent.model == SONNET for agent in AGENTS.values()) == 11
    assert {agent.provider for agent in AGENTS.values()} == {"anthropic"}


@pytest.mark.req("S-004", "S-097")
def test_the_six_roles_are_played_as_ruled() -> None:
    players = {role: {name for name, agent in AGENTS.items() if agent.role == role} for role in AgentRole}
    assert players == {
        AgentRole.PRODUCT: {"research"},
        AgentRole.ARCHITECT: {"architect"},
        AgentRole.DEVELOPER: {"frontend-dev", "backend-dev"},
        AgentRole.UI_UX: {"styling"},
        AgentRole.QA: {"qa", "code-review", "test-planner"},
        AgentRole.SECURITY: {"security"},
    }
    assert all(agent.role is None for name, agent in AGENTS.items() if name.startswith("orchestrator"))


@pytest.mark.req("S-054", "S-057")
def test_whoever_runs_commands_or_writes_source_has_a_box_and_nobody_else_has_a_shell() -> None:
    boxed = {name for name, agent in AGENTS.items() if agent.needs_box}
    assert boxed == {"frontend-dev", "backend-dev", "styling", "qa"}
    for name, agent in AGENTS.items():
        assert ("Bash" in agent.tools) == agent.needs_box, name
        assert not agent.needs_box or {"Read", "Write", "Edit"} <= agent.tools, name
        assert (agent.image is not None) == agent.needs_box, name
    assert "runtime api has no Bash" in refusal("qa", runtime="api", image=None)


@pytest.mark.req("S-087", "S-088")
def test_no_agent_is_for_anything_but_web_applications() -> None:
    said = " ".join(f"{name} {agent.title}" for name, agent in AGENTS.items()).casefold()
    assert not any(word in said for word in ("mobile", "ios", "android", "embedded", "pipeline", "data"))
    assert {name for name, agent in AGENTS.items() if agent.needs_box} == {
        "frontend-dev",
        "backend-dev",
        "styling",
        "qa",
    }
    assert len(AGENTS) == 13
    assert {part: set(words) for part, words in platform_policy().runs.stack.items()} == {
        "language": {"typescript", "javascript", "python"},
        "frontend": {"react", "nextjs"},
        "backend": {"node", "nextjs", "django", "fastapi", "flask"},
        "database": {"postgresql"},
        "deploy": {"vercel", "railway", "docker"},
    }


@pytest.mark.req("S-008")
def test_qa_may_write_tests_and_findings_but_no_source() -> None:
    writes = AGENTS["qa"].writes
    assert is_covered("tests/price.test.ts", writes)
    assert is_covered("src/price.test.ts", writes)
    assert is_covered("artifacts/qa/report.md", writes)
    assert not is_covered("src/price.ts", writes)
    assert not is_covered("package.json", writes)


@pytest.mark.req("R-115")
def test_agents_that_only_judge_write_nothing_but_their_own_documents() -> None:
    judges = {name for name, agent in AGENTS.items() if not agent.needs_box}
    assert {name for name in AGENTS if name.startswith("orchestrator")} <= judges
    for name in judges:
        assert all(rule.startswith("artifacts/") for rule in AGENTS[name].writes), name
    assert AGENTS["orchestrator:classify"].writes == AGENTS["orchestrator:question"].writes == ()


@pytest.mark.req("S-050")
def test_handoffs_name_their_writer_first_and_another_agent_second() -> None:
    for name, agent in AGENTS.items():
        for rule in agent.writes:
            if rule.startswith("artifacts/handoff/"):
                writer, _, reader = rule.removeprefix("artifacts/handoff/").removesuffix(".md").partition("-to-")
                assert writer == name
                assert reader in AGENTS
                assert reader != name


@pytest.mark.req("S-039")
def test_developers_start_from_the_product_spec_qa_from_source_and_criteria_security_from_the_architecture() -> None:
    for developer in ("frontend-dev", "backend-dev"):
        assert "artifacts/research/" in AGENTS[developer].reads
    assert {"src/", "artifacts/research/", "artifacts/test-planner/"} <= set(AGENTS["qa"].reads)
    assert "artifacts/architect/" in AGENTS["security"].reads


@pytest.mark.req("S-089")
def test_another_agent_is_another_entry_of_the_file() -> None:
    extra = entry("qa", title="Accessibility", instructions="# Agent: accessibility\nLook for missing labels.")
    policy = parse_policy(document(accessibility=extra), source="mine.yaml")
    assert policy.agents["accessibility"].title == "Accessibility"
    assert len(policy.agents) == 14


@pytest.mark.req("P-004")
def test_the_models_of_queue_steps_are_those_of_the_agents_and_those_that_a_project_may_choose() -> None:
    policy = platform_policy()
    assert policy.models_of(QueueName.STEPS) == {SONNET, HAIKU, "claude-opus-4-6"}
    fewer = policy.model_copy(update={"runs": policy.runs.model_copy(update={"models": frozenset()})})
    assert fewer.models_of(QueueName.STEPS) == {SONNET, HAIKU}
    assert policy.models_of(QueueName.CONTROL) == frozenset()


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"model": "claude-nine"}, "agents.qa: model claude-nine needs a price and a speed"),
        ({"hard_seconds": 9000}, "agents.qa: its times must not be above those of queues.steps"),
        ({"hard_seconds": 1}, "hard_seconds must be above soft_seconds"),
        ({"max_output_tokens": 100_000}, "must not be above gateway.max_output_tokens"),
        ({"image": None}, "image belongs to runtime claude_code"),
        ({"runtime": "api", "image": None}, "runtime api has no Bash"),
        ({"tools": ["Bash", "WebFetch"]}, "runtime claude_code has no WebFetch"),
        ({"runtime": "api", "image": None, "tools": ["read_file"]}, "runtime api needs finish"),
        ({"writes": ["/etc/"]}, "must be a directory"),
        ({"writes": [".git/"]}, "belongs to the service"),
        ({"api_key": "x"}, "Extra inputs are not permitted"),
    ],
)
def test_a_definition_that_could_not_work_is_refused_by_name_and_rule(changes: dict[str, Any], rule: str) -> None:
    assert rule in refusal("qa", **changes)


@pytest.mark.parametrize("name", ["QA", "qa:", "a:b:c", "-x", "x y", "../qa", "é"])
def test_an_agent_s_name_is_fit_for_a_file_and_a_handoff(name: str) -> None:
    with pytest.raises(PolicyError, match="agents"):
        parse_policy(document(**{name: entry("qa")}), source="mine.yaml")


def test_a_subtask_needs_its_agent() -> None:
    with pytest.raises(PolicyError, match="a subtask of an agent that does not exist"):
        parse_policy(document(**{"nobody:plan": entry("research")}), source="mine.yaml")


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"steps": [{"name": "x", "agent": "nobody", "after": "developer"}]}, "x: there is no agent nobody"),
        ({"gates": [{"name": "x", "after": "nobody", "reason": "r"}]}, "x: there is no agent nobody"),
    ],
)
def test_a_mandatory_rule_names_agents_that_exist(rules: dict[str, Any], said: str) -> None:
    whole = platform_policy().model_dump(mode="json")
    with pytest.raises(PolicyError, match=said):
        parse_policy(yaml.safe_dump({**whole, "runs": {**whole["runs"], "rules": rules}}), source="mine.yaml")


def test_definitions_are_values() -> None:
    with pytest.raises(ValidationError):
        AGENTS["qa"].model = "x"
    assert Policy.model_validate(platform_policy().model_dump()).agents == AGENTS


@pytest.mark.parametrize("name", sorted(AGENTS))
def test_every_agent_has_an_instruction_file_s_name_of_its_own(name: str) -> None:
    assert ":" not in instruction_file(name)
    assert len({instruction_file(agent) for agent in AGENTS}) == len(AGENTS)


def test_what_runs_an_agent_is_configuration() -> None:
    moved = entry("research", runtime="claude_code", image="agent", tools=["Read", "Write"])
    policy = parse_policy(document(research=moved), source="mine.yaml")
    assert isinstance(policy.agents["research"], AgentDefinition)
    assert policy.agents["research"].needs_box


def test_every_process_has_the_same_version_of_the_same_policy() -> None:
    say = "from routing.policy.platform import platform_policy; print(platform_policy().version)"
    environment = {"PYTHONHASHSEED": "1", "PYTHONPATH": str(ROOT)}
    other = subprocess.run(
        [sys.executable, "-c", say], capture_output=True, text=True, check=True, cwd=ROOT, env=environment
    )
    assert other.stdout == f"{platform_policy().version}\n"


def test_a_step_needs_a_box_when_its_agent_does_and_one_that_nobody_knows_does_too() -> None:
    policy = platform_policy()
    boxed = {name for name in AGENTS if policy.limits_for(QueueName.STEPS, name).container == "required"}
    assert boxed == {name for name, agent in AGENTS.items() if agent.needs_box}
    assert policy.limits_for(QueueName.STEPS, "nobody").container == "required"
    assert policy.limits_for(QueueName.STEPS, None) == policy.queues[QueueName.STEPS]
    assert policy.limits_for(QueueName.SPEC, "qa") == policy.queues[QueueName.SPEC]


# Rules over paths: three forms, nothing outside the project, nothing that belongs to the service.


@pytest.mark.parametrize(
    "rule", ["src/", "src/features/cart/", "package.json", "*.css", "*.test.ts", "*.module.css", "app/[slug]/"]
)
def test_a_directory_a_file_and_a_suffix_are_rules(rule: str) -> None:
    assert check_path_rule(rule) == rule


@pytest.mark.parametrize(
    "rule",
    [
        "",
        "/",
        "/etc/passwd",
        "../up/",
        "src/../",
        "a//b",
        "*",
        "*.*",
        "src/*.ts",
        "**/x",
        "a b",
        "src\\x",
        ".",
        "./src/",
        "x\n",
        "x/\n",
    ],
)
def test_anything_else_is_no_rule(rule: str) -> None:
    with pytest.raises(ValueError, match="must be a directory"):
        check_path_rule(rule)


@pytest.mark.parametrize("rule", [".git/", ".git/hooks/", ".agent-context/", ".agent-result.json"])
def test_what_belongs_to_the_service_is_no_agent_s_to_write(rule: str) -> None:
    with pytest.raises(ValueError, match="belongs to the service"):
        check_path_rule(rule)


@pytest.mark.parametrize(
    ("path", "rules", "covered"),
    [
        ("src/a.ts", ["src/"], True),
        ("src2/a.ts", ["src/"], False),
        ("src", ["src/"], False),
        ("package.json", ["package.json"], True),
        ("sub/package.json", ["package.json"], False),
        ("src/deep/a.test.ts", ["*.test.ts"], True),
        ("artifacts/qa/a.test.ts", ["*.test.ts"], False),
        ("src/a.ts", ["tests/", "*.css"], False),
        ("src/a.ts", [], False),
    ],
)
def test_a_rule_covers_what_it_says(path: str, rules: list[str], covered: bool) -> None:
    assert is_covered(path, rules) is covered


@given(st.text(max_size=40))
def test_no_rule_leaves_the_project(text: str) -> None:
    try:
        rule = check_path_rule(text)
    except ValueError:
        return
    assert not rule.startswith("/")
    assert ".." not in rule.split("/")
    assert not is_covered(".git/config", [rule])


# A limit that no step can keep is a bug: what an agent may do fits its time, its money and the run's cap.
#
# Nothing but the policy is used: its price table, its stated token rates and the sizes that definitions expect.

POLICY = platform_policy()
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


CACHED = b'{"cache_control":{"type":"ephemeral"}}'


@pytest.mark.parametrize("name", sorted(AGENTS))
def test_the_gateway_reserves_an_agent_s_largest_call_whole_by_its_bytes_alone(name: str) -> None:
    agent = AGENTS[name]
    size = agent.input_tokens * BYTES_PER_TOKEN
    price = POLICY.prices[agent.model]
    reserve = most_input_nanousd(price, most_text_tokens(size, has_tools=True), encoded=CACHED)
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
    assert (POLICY.calls["assist"].model, POLICY.calls["assist"].max_tokens <= 256) == (HAIKU, True)
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

"""A project's file: six parts and a stack, errors by line, references instead of keys, limits only lowered."""

import pickle
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from routing.errors import MissingKeyError, PolicyError, ProjectConfigError, YamlRefusedError
from routing.policy.agents import is_covered
from routing.policy.platform import Policy, platform_policy
from routing.policy.project import (
    MAX_BYTES,
    ProjectConfig,
    account_of,
    accounts_for,
    for_project,
    read_project,
    read_yaml,
)
from routing.queues import QueueName

POLICY = platform_policy()
LEAST = {"repo": {"url": "https://forge.example/acme/shop.git"}, "stack": {"language": "typescript"}}
WHOLE = """\
repo:
  url: https://forge.example/acme/shop.git
  branch: develop
stack:
  language: typescript
  frontend: nextjs
  backend: node
  database: postgresql
  deploy: vercel
keys:
  anthropic: acme
models:
  architect: claude-opus-4-6
budgets:
  run_usd: 10
  step_usd:
    qa: 1.5
rules:
  gates:
    - name: api-changes
      paths: [src/app/api/, "*.sql"]
      reason: "API changes are always reviewed."
  rework_cycles: 1
integrations:
  github:
    repository: acme/shop
    token: acme-forge
"""
PLANTED = "sk-ant-api03-" + "x" * 30


def read(**changes: Any) -> ProjectConfig:
    return read_project(yaml.safe_dump({**LEAST, **changes}), source="project.yaml", policy=POLICY)


def refused(text: str) -> ProjectConfigError:
    with pytest.raises(ProjectConfigError) as refusal:
        read_project(text, source="project.yaml", policy=POLICY)
    return refusal.value


def refusal(**changes: Any) -> str:
    return str(refused(yaml.safe_dump({**LEAST, **changes})))


def lowered(**changes: Any) -> Policy:
    return for_project(POLICY, read(**changes))


@pytest.mark.req("S-073", "S-069")
def test_the_file_has_the_six_parts_of_the_second_layer_and_the_stack() -> None:
    config = read_project(WHOLE, source="project.yaml", policy=POLICY)
    six = {"repo", "keys", "models", "budgets", "rules", "integrations"}
    assert set(ProjectConfig.model_fields) == six | {"stack", "commands", "services", "writes"}
    assert config.repo.branch == "develop"
    assert config.keys == {"anthropic": "acme"}
    assert config.models == {"architect": "claude-opus-4-6"}
    assert config.budgets.run_usd == 10
    assert config.rules.gates[0].name == "api-changes"
    assert config.integrations.github is not None
    assert config.integrations.github.repository == "acme/shop"


@pytest.mark.req("S-072")
def test_the_platform_s_file_holds_models_budgets_mandatory_rules_and_agents() -> None:
    assert all(agent.model in POLICY.prices for agent in POLICY.agents.values())
    assert POLICY.budgets.run_usd > 0
    assert [rule.name for rule in POLICY.runs.rules.steps] == ["qa-after-development", "qa-after-styling"]
    assert [rule.name for rule in POLICY.runs.rules.gates] == ["p0-review"]
    assert len(POLICY.agents) == 13


@pytest.mark.req("S-071", "S-024", "S-077", "S-073")
def test_a_project_overrides_what_may_be_tuned_and_leaves_the_rest() -> None:
    policy = for_project(POLICY, read_project(WHOLE, source="project.yaml", policy=POLICY))
    assert policy.budgets.run_usd == 10
    assert policy.runs.rework_cycles == 1
    assert policy.agents["architect"].model == "claude-opus-4-6"
    assert policy.agents["qa"].step_usd == 1.5
    assert policy.budgets.call_usd == POLICY.budgets.call_usd
    assert policy.agents["research"] == POLICY.agents["research"]
    assert policy.agents["qa"].soft_seconds == POLICY.agents["qa"].soft_seconds
    assert policy.runs.max_retries == POLICY.runs.max_retries
    assert policy.version != POLICY.version
    less = POLICY.budgets.call_usd * 0.9
    assert lowered(budgets={"call_usd": less}).budgets.call_usd == less


@pytest.mark.req("S-100", "S-121")
def test_a_project_that_says_nothing_gets_the_platform_s_defaults() -> None:
    policy = lowered()
    assert policy == POLICY
    assert policy.budgets.run_usd == 25
    assert (policy.runs.autonomy, [gate.name for gate in policy.runs.rules.gates]) == ("ask", ["p0-review"])


@pytest.mark.req("S-121")
def test_a_project_s_own_budget_wins_and_can_only_be_lower() -> None:
    assert lowered(budgets={"run_usd": 3}).budgets.run_usd == 3
    assert "budgets.run_usd: a project may lower the platform's 25, not raise it" in refusal(budgets={"run_usd": 26})


@pytest.mark.req("S-075", "S-018", "S-073", "S-101")
def test_rules_are_a_union_and_none_can_be_taken_away_or_replaced() -> None:
    own = {"name": "api", "paths": ["api/"], "reason": "r"}
    rules = lowered(
        rules={"gates": [own], "steps": [{"name": "s", "agent": "security", "after": "developer"}]}
    ).runs.rules
    assert [rule.name for rule in rules.gates] == ["p0-review", "api"]
    assert [rule.name for rule in rules.steps] == ["qa-after-development", "qa-after-styling", "s"]
    assert rules.steps[:2] == POLICY.runs.rules.steps
    for name in ("p0-review", "qa-after-development"):
        again = {"name": name, "priorities": ["P3"], "reason": "never"}
        assert "no rule can be replaced" in refusal(rules={"gates": [again]})
        step = {"name": name, "agent": "security", "after": "developer"}
        assert "no rule can be replaced" in refusal(rules={"steps": [step]})
    assert "rules: has an unknown field" in refusal(rules={"remove": ["p0-review"]})


@pytest.mark.req("S-102", "S-100")
def test_a_rule_asks_for_a_gate_by_path_label_or_priority() -> None:
    gates = lowered(
        rules={
            "gates": [
                {"name": "api", "paths": ["src/app/api/", "*.sql"], "reason": "r"},
                {"name": "billing", "labels": ["Billing"], "reason": "r"},
                {"name": "urgent-db", "paths": ["db/"], "priorities": ["P0", "P1"], "reason": "r"},
            ]
        }
    ).runs.rules.gates

    def opened(priority: str = "P2", labels: tuple[str, ...] = (), changed: tuple[str, ...] = ()) -> list[str]:
        return [gate.name for gate in gates if gate.matches(priority=priority, labels=labels, changed=changed)]

    assert opened() == []
    assert opened(changed=("src/app/api/cart/route.ts",)) == ["api"]
    assert opened(changed=("migrations/1.sql", "src/app/page.tsx")) == ["api"]
    assert opened(labels=("billing", "ui")) == ["billing"]
    assert opened(priority="P1", changed=("db/schema.ts",)) == ["urgent-db"]
    assert opened(priority="P2", changed=("db/schema.ts",)) == []
    assert opened(priority="P0") == ["p0-review"]


@pytest.mark.req("S-111", "P-006", "S-113")
@pytest.mark.parametrize("field", ["max_retries", "remediation_cycles", "rework_cycles", "max_parallel"])
def test_a_loop_can_be_made_shorter_and_not_longer(field: str) -> None:
    here = getattr(POLICY.runs, field)
    assert getattr(lowered(rules={field: 1}).runs, field) == 1
    assert f"rules.{field}: a project may lower the platform's {here}" in refusal(rules={field: here + 1})


@pytest.mark.req("P-006")
def test_retries_can_be_turned_off() -> None:
    assert lowered(rules={"max_retries": 0}).runs.max_retries == 0


@pytest.mark.req("P-004")
def test_models_come_from_configuration_layers_and_only_from_those_that_are_offered() -> None:
    policy = lowered(models={"security": "claude-sonnet-4-6"})
    assert policy.agents["security"].model == "claude-sonnet-4-6"
    others = {name: agent.model for name, agent in policy.agents.items() if name != "security"}
    assert others == {name: agent.model for name, agent in POLICY.agents.items() if name != "security"}
    assert policy.agents["security"].model in policy.models_of(QueueName.STEPS)
    assert "models.security: must be one of" in refusal(models={"security": "gpt-9"})
    assert "models.poet: there is no such agent" in refusal(models={"poet": "claude-sonnet-4-6"})


@pytest.mark.req("S-088")
@pytest.mark.parametrize(
    ("stack", "said"),
    [
        (
            {"language": "ruby"},
            "stack.language: this installation's agents and images are made for javascript,",
        ),
        ({"language": "typescript", "frontend": "vue"}, "stack.frontend: this installation's agents"),
        ({"language": "typescript", "backend": "rails"}, "stack.backend: this installation's agents"),
        ({"language": "typescript", "database": "mongodb"}, "made for postgresql only"),
        ({"frontend": "react"}, "stack: must declare its language"),
        ({"language": "typescript", "engine": "unity"}, "stack.engine: Input should be"),
    ],
)
def test_a_stack_that_is_not_the_declared_one_is_refused_with_the_reason(stack: dict[str, str], said: str) -> None:
    assert said in refusal(stack=stack)


def test_a_file_without_a_stack_is_refused() -> None:
    assert "stack: Field required" in str(refused("repo: {url: 'https://forge.example/a/b'}"))


@pytest.mark.req("S-089")
def test_a_wider_stack_is_a_matter_of_the_platform_s_file() -> None:
    wider = POLICY.runs.model_copy(update={"stack": {**POLICY.runs.stack, "frontend": frozenset({"svelte"})}})
    text = yaml.safe_dump({**LEAST, "stack": {"language": "typescript", "frontend": "svelte"}})
    assert (
        read_project(text, source="p", policy=POLICY.model_copy(update={"runs": wider})).stack["frontend"] == "svelte"
    )


@pytest.mark.req("S-088")
def test_a_project_of_a_stack_that_an_installation_no_longer_has_starts_no_run() -> None:
    config = read(stack={"language": "typescript", "frontend": "react"})
    for left, said in ((frozenset({"nextjs"}), "nextjs only"), (None, "nothing only")):
        stack = {"language": frozenset({"typescript"}), **({"frontend": left} if left else {})}
        narrower = POLICY.model_copy(update={"runs": POLICY.runs.model_copy(update={"stack": stack})})
        with pytest.raises(PolicyError, match=rf"project: stack\.frontend: .* {said}"):
            for_project(narrower, config)


@pytest.mark.req("S-066", "S-067", "S-077", "S-073")
def test_keys_are_names_of_accounts_and_two_projects_may_name_two() -> None:
    one, two = read(keys={"anthropic": "acme", "openai": "acme-o"}), read(keys={"anthropic": "acme-enterprise"})
    assert account_of(one.keys, "openai", agents=["qa"], tenant_account=None) == "acme-o"
    assert accounts_for(one, POLICY, tenant_account="shared") == {"anthropic": "acme"}
    assert accounts_for(two, POLICY, tenant_account="shared") == {"anthropic": "acme-enterprise"}


@pytest.mark.req("S-065", "S-068")
def test_without_a_key_of_project_or_tenant_there_is_none_and_the_refusal_says_which() -> None:
    assert accounts_for(read(), POLICY, tenant_account="acme") == {"anthropic": "acme"}
    with pytest.raises(MissingKeyError) as missing:
        accounts_for(read(), POLICY, tenant_account=None)
    assert "no key for provider anthropic, which orchestrator" in str(missing.value)
    assert "under keys.anthropic" in str(missing.value)
    assert "no shared key to fall back on" in str(missing.value)
    with pytest.raises(MissingKeyError, match="openai"):
        account_of({"anthropic": "acme"}, "openai", agents=["qa"], tenant_account=None)


@pytest.mark.parametrize(
    "changes",
    [
        {"keys": {"anthropic": PLANTED}},
        {"models": {PLANTED: "claude-sonnet-4-6"}},
        {"integrations": {"github": {"repository": "a/b", "token": "ghp_" + "a" * 36}}},
        {"rules": {"gates": [{"name": "x", "reason": f"use {PLANTED}"}]}},
        {"repo": {"url": f"https://{PLANTED}@forge.example/a/b"}},
        {"notes": [{"deep": PLANTED}]},
    ],
)
def test_a_key_in_the_file_is_refused_and_never_repeated(changes: dict[str, Any]) -> None:
    said = refusal(**changes)
    assert "looks like a key" in said
    assert PLANTED not in said
    assert "ghp_" not in said


@pytest.mark.parametrize(
    "url",
    [
        "https://forge.example/a/b.git",
        "https://forge.example:8443/a/b",
        "ssh://git@forge.example:2222/a/b",
        "git@forge.example:a/b.git",
    ],
)
def test_a_repository_is_reached_by_https_or_ssh(url: str) -> None:
    assert read(repo={"url": url}).repo.url == url


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://me:pw@forge.example/a/b", "must not hold a user name or password"),
        ("https://me@forge.example/a/b", "must not hold a user name or password"),
        ("https://forge.example/acme/../globex/b", "must not hold . or .."),
        ("https://forge.example/acme/%2e%2e/globex/b", "must not hold . or .."),
        ("git@forge.example:../b", "must not hold . or .."),
        ("file:///srv/git/a", "must be reached by https"),
        ("http://forge.example/a/b", "must be reached by https"),
        ("ext::sh -c id", "must be a URL"),
        ("--upload-pack=id", "must be a URL"),
        ("https://forge.example/a b", "must be a URL"),
        ("root@forge.example:a/b", "must be a URL"),
        ("", "must be a URL"),
    ],
)
def test_any_other_address_is_refused_without_repeating_it(url: str, said: str) -> None:
    message = refusal(repo={"url": url})
    assert f"repo.url: {said}" in message
    assert "pw@" not in message


def test_every_problem_is_told_with_its_line() -> None:
    text = WHOLE.replace("run_usd: 10", "run_usd: 99").replace("frontend: nextjs", "frontend: vue")
    error = refused(text.replace("qa: 1.5", "poet: 1.5").replace("rework_cycles: 1", "rework_cycles: 9"))
    assert [(problem.line, problem.place) for problem in error.problems] == [
        (6, "stack.frontend"),
        (15, "budgets.run_usd"),
        (17, "budgets.step_usd.poet"),
        (23, "rules.rework_cycles"),
    ]
    assert str(error).splitlines()[0].startswith("project.yaml, line 6: stack.frontend: ")


def test_problems_of_form_are_told_together_with_their_lines() -> None:
    text = WHOLE.replace("run_usd: 10", "run_usd: lots").replace("branch: develop", "branch: '-x'\n  depth: 1")
    assert [problem.line for problem in refused(text).problems] == [3, 4, 16]


def test_broken_yaml_is_told_with_its_line() -> None:
    assert str(refused("repo: [\nstack: 1")).startswith("project.yaml, line ")
    assert str(refused("just words")).startswith("project.yaml, line 1: ")


def test_a_step_s_cap_below_one_call_is_refused() -> None:
    said = refusal(budgets={"step_usd": {"qa": 0.01}})
    assert "budgets.step_usd.qa: must be at least 0.23" in said
    dearer = refusal(budgets={"step_usd": {"qa": 0.3}}, models={"qa": "claude-opus-4-6"})
    assert "must be at least 0.38" in dearer


def test_a_rule_names_agents_that_exist() -> None:
    assert "rules.gates.0.after: there is no such agent" in refusal(
        rules={"gates": [{"name": "x", "after": "poet", "reason": "r"}]}
    )
    assert "rules.steps.0.agent: there is no such agent" in refusal(
        rules={"steps": [{"name": "x", "agent": "poet", "after": "qa"}]}
    )


def test_autonomy_is_the_project_s_and_touches_no_rule() -> None:
    policy = lowered(rules={"autonomy": "auto"})
    assert policy.runs.autonomy == "auto"
    assert policy.runs.rules == POLICY.runs.rules


def test_a_stored_configuration_that_no_longer_fits_is_the_operator_s_to_know() -> None:
    config = read(budgets={"run_usd": 20})
    lower = POLICY.model_copy(update={"budgets": POLICY.budgets.model_copy(update={"run_usd": 10})})
    with pytest.raises(PolicyError, match=r"project: budgets\.run_usd"):
        for_project(lower, config)


def test_the_errors_travel() -> None:
    for error in (refused("x: 1"), MissingKeyError("openai", ("qa",))):
        assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_configuration_survives_being_stored() -> None:
    config = read_project(WHOLE, source="p", policy=POLICY)
    assert ProjectConfig.model_validate_json(config.model_dump_json()) == config
    assert config.rules.steps == ()


# YAML from outside: every part knows its line, and what could blow up or deceive is refused.


def yaml_positions_refusal(text: str) -> str:
    with pytest.raises(YamlRefusedError) as refused:
        read_yaml(text)
    return str(refused.value)


def test_every_part_knows_its_line() -> None:
    document = read_yaml("a: 1\nb:\n  - x\n  - c: 2\n    d: 3\n")
    assert document.value == {"a": 1, "b": ["x", {"c": 2, "d": 3}]}
    assert [document.line_of(place) for place in [("a",), ("b", 0), ("b", 1, "d")]] == [1, 3, 5]


def test_a_place_that_is_not_there_has_the_line_of_what_is_around_it() -> None:
    document = read_yaml("a: 1\nb:\n  c: 2\n")
    assert document.line_of(("b", "missing", 3)) == 2
    assert document.line_of(("missing",)) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\na: 2", "line 2: the same key stands twice"),
        ("a: &x 1\nb: *x", "line 1: anchors and aliases are not taken"),
        ("a: 1\nb: *x", "line 2: anchors and aliases are not taken"),
        ("a: !!python/object:os.system x", "line 1: tags are not taken"),
        ("a: 1\nb: [1, 2", "line 2: expected ',' or ']'"),
        ("a: b: c", "line 1: mapping values are not allowed here"),
        ("? [a, b]\n: 1", "line 1: a key must be a word"),
        ("a: 2026-99-99", "line 1: is no value that can be read"),
        ("n: " + "9" * 5000, "line 1: is no value that can be read"),
        ("", "is empty"),
        ("a: 1\n---\nb: 2", "line 2: but found another document"),
        ("a: \x00", "is no YAML text"),
        ("[" * 500, "line 1: is nested deeper than 20 levels"),
        ("a: [" + "1," * 9000 + "]", "line 1: has too many values"),
        ("#" * (MAX_BYTES + 1), f"has more than {MAX_BYTES} bytes"),
    ],
)
def test_what_is_not_taken_is_told_with_its_line(text: str, said: str) -> None:
    assert yaml_positions_refusal(text).startswith(said)


@given(st.text(alphabet="ab:-[]{}&*!|>'\" \n#?,0123456789", max_size=60))
def test_whatever_is_written_there_is_a_value_or_a_refusal(text: str) -> None:
    try:
        document = read_yaml(text)
    except YamlRefusedError:
        return
    assert document.line_of(()) >= 1


# The example of a project's file in the documentation is one that is taken.

PAGE = (Path(__file__).parents[4] / "docs" / "project.md").read_text()


def test_the_example_is_taken_and_has_every_part() -> None:
    example = re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert example is not None
    policy = platform_policy()
    config = read_project(example[1], source="docs/project.md", policy=policy)
    assert config.model_fields_set == set(type(config).model_fields)
    lowered = for_project(policy, config)
    assert lowered.budgets.run_usd == 10
    assert len(lowered.runs.rules.gates) == len(policy.runs.rules.gates) + 1


def test_every_choice_of_the_stack_is_named() -> None:
    for choices in platform_policy().runs.stack.values():
        assert all(re.search(rf"\b{choice}\b", PAGE) for choice in choices)


PYTHON = {"language": "python"}


def test_python_s_developers_write_modules_its_testers_tests_and_nobody_another_s_documents() -> None:
    agents = lowered(stack=PYTHON).agents
    for path in ("shop/cart.py", "pyproject.toml", "artifacts/backend-dev/x.md"):
        assert is_covered(path, agents["backend-dev"].writes)
    for path in ("package.json", "artifacts/qa/x.py"):
        assert not is_covered(path, agents["backend-dev"].writes)
    assert is_covered("tests/test_cart.py", agents["qa"].writes)
    assert not is_covered("shop/cart.py", agents["qa"].writes)


def test_a_project_opens_directories_of_its_own_and_narrows_the_platform_s() -> None:
    agents = lowered(stack=PYTHON, writes={"backend-dev": ["shop/", "src/api/"], "qa": ["shop/tests/"]}).agents
    assert is_covered("shop/data.toml", agents["backend-dev"].writes)
    assert not is_covered("src/cart.py", agents["backend-dev"].writes)
    assert is_covered("shop/tests/test_x.py", agents["qa"].writes)
    assert is_covered("artifacts/qa/report.md", agents["qa"].writes)


@pytest.mark.parametrize(
    ("agent", "rule", "said"),
    [
        ("backend-dev", ".github/workflows/", "a directory of the project that is not hidden"),
        ("backend-dev", "artifacts/qa/", "a directory of the project that is not hidden"),
        ("backend-dev", "Makefile", "a directory of the project that is not hidden"),
        ("backend-dev", "*.sh", "a directory of the project that is not hidden"),
        ("qa", "shop/", "a directory named tests or test"),
        ("code-review", "src/", "this agent writes documents only"),
        ("poet", "src/", "there is no such agent"),
        ("qa", "../tests/", "must be a directory"),
    ],
)
def test_no_project_opens_what_others_obey_or_an_agent_must_not_touch(agent: str, rule: str, said: str) -> None:
    assert said in refusal(stack=PYTHON, writes={agent: [rule]})


def test_commands_are_single_lines_in_the_order_of_their_use() -> None:
    config = read(stack=PYTHON, commands={"test": " pytest -q ", "setup": "python -m venv .venv"})
    assert list(config.commands.named().items()) == [("setup", "python -m venv .venv"), ("test", "pytest -q")]
    for wrong in ("a\nb", "", "x" * 501):
        assert "commands.test" in refusal(commands={"test": wrong})
    assert "commands: has an unknown field (deploy)" in refusal(commands={"deploy": "x"})
    assert refusal(commands={"hunter-2": "x"}).endswith("has an unknown field")

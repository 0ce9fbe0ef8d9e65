"""The layers laid over each other: the platform's policy as a project's configuration leaves it.

Overriding is for what may be tuned. Rules are a union, caps and loops only get lower, and the plan of a run (layer 3)
does not come here at all: it has no budgets, models or keys to merge.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from routing.agents import AgentDefinition
from routing.errors import PolicyError, Problem, ProjectConfigError
from routing.located import Place
from routing.policy import Policy
from routing.prices import NANOUSD_PER_USD, Usage, cost_nanousd
from routing.project import ProjectConfig, account_of, parse_project
from routing.queues import QueueName
from routing.run_rules import MandatoryRules, RunRules

_LOOPS = ("max_retries", "remediation_cycles", "rework_cycles", "max_parallel", "gate_hours")
Conflict = tuple[Place, str]


def read_project(text: str, *, source: str, policy: Policy) -> ProjectConfig:
    """Read a project's file and hold it against the platform's policy.

    Args:
        text: YAML.
        source: what to call it in an error.
        policy: as the tenant's overrides leave it.

    Raises:
        ProjectConfigError: the owner's fault; every problem with its line.
    """
    config, document = parse_project(text, source=source)
    problems = tuple(
        Problem(document.line_of(place), ".".join(str(part) for part in place), rule)
        for place, rule in conflicts(config, policy)
    )
    if problems:
        raise ProjectConfigError(source, problems)
    return config


def for_project(policy: Policy, config: ProjectConfig) -> Policy:
    """Return the policy that holds for a project's runs.

    Raises:
        PolicyError: the operator's fault: a stored configuration does not fit the platform's policy any more.
    """
    for place, rule in conflicts(config, policy):
        raise PolicyError(f"project: {'.'.join(str(part) for part in place)}: {rule}")
    budgets = policy.budgets.model_copy(update=_given(config.budgets, "run_usd", "call_usd"))
    own = config.rules
    rules = MandatoryRules(
        steps=(*policy.runs.rules.steps, *own.steps), gates=(*policy.runs.rules.gates, *own.gates)
    )  # fmt: skip
    runs = policy.runs.model_copy(update={**_given(own, *_LOOPS, "autonomy"), "rules": rules})
    agents = {name: _agent(name, agent, config) for name, agent in policy.agents.items()}
    return Policy.model_validate(policy.model_dump() | {"budgets": budgets, "runs": runs, "agents": agents})


def accounts_for(config: ProjectConfig, policy: Policy, *, tenant_account: str | None) -> dict[str, str]:
    """Return the gateway's account for each provider that the project's agents need.

    Args:
        config: the project's.
        policy: as `for_project` returned it.
        tenant_account: the tenant's own account; None when it has none.

    Raises:
        MissingKeyError: the tenant's fault: nothing may be started.
    """
    needed: dict[str, list[str]] = {}
    for name, agent in policy.agents.items():
        needed.setdefault(agent.provider, []).append(name)
    return {
        provider: account_of(config.keys, provider, agents=agents, tenant_account=tenant_account)
        for provider, agents in needed.items()
    }


def conflicts(config: ProjectConfig, policy: Policy) -> Iterator[Conflict]:
    """Yield what a project's configuration asks for and cannot have."""
    if config.repo.scheme not in policy.runs.remotes:
        yield ("repo", "url"), f"must be reached by {' or '.join(sorted(policy.runs.remotes))}"
    yield from _stack_conflicts(config, policy.runs)
    yield from _model_conflicts(config, policy)
    yield from _budget_conflicts(config, policy)
    yield from _rule_conflicts(config, policy)


def _stack_conflicts(config: ProjectConfig, runs: RunRules) -> Iterator[Conflict]:
    if "language" not in config.stack:
        yield ("stack",), "must declare its language"
    for part, choice in config.stack.items():
        known = runs.stack.get(part, frozenset())
        if choice not in known:
            offer = ", ".join(sorted(known)) or "nothing"
            yield ("stack", part), f"this installation's agents and images are made for {offer} only"


def _model_conflicts(config: ProjectConfig, policy: Policy) -> Iterator[Conflict]:
    offered = policy.models_of(QueueName.STEPS)
    for name, model in config.models.items():
        if name not in policy.agents:
            yield ("models", name), "there is no such agent"
        elif model not in offered:
            yield ("models", name), f"must be one of {', '.join(sorted(offered))}"


def _budget_conflicts(config: ProjectConfig, policy: Policy) -> Iterator[Conflict]:
    for field, value in _given(config.budgets, "run_usd", "call_usd").items():
        yield from _raised(("budgets", field), value, getattr(policy.budgets, field))
    for name, value in config.budgets.step_usd.items():
        place = ("budgets", "step_usd", name)
        if (agent := policy.agents.get(name)) is None:
            yield place, "there is no such agent"
            continue
        yield from _raised(place, value, agent.step_usd or policy.budgets.run_usd)
        model = config.models.get(name, agent.model)
        if model in policy.prices and value < (least := _call_usd(agent, model, policy)):
            yield place, f"must be at least {least:.2f}, which is what one call of this agent may cost"


def _rule_conflicts(config: ProjectConfig, policy: Policy) -> Iterator[Conflict]:
    for field, value in _given(config.rules, *_LOOPS).items():
        yield from _raised(("rules", field), value, getattr(policy.runs, field))
    taken = {name for name, _ in policy.runs.rules.named_agents()}
    for kind in ("gates", "steps"):
        for index, rule in enumerate(getattr(config.rules, kind)):
            if rule.name in taken:
                yield ("rules", kind, index, "name"), "another rule has this name, and no rule can be replaced"
            taken.add(rule.name)
            field = "after" if kind == "gates" else "agent"
            if getattr(rule, field) not in policy.agents:
                yield ("rules", kind, index, field), "there is no such agent"


def _raised(place: Place, value: float, ceiling: float) -> Iterator[Conflict]:
    if value > ceiling:
        yield place, f"a project may lower the platform's {ceiling:g}, not raise it"


def _call_usd(agent: AgentDefinition, model: str, policy: Policy) -> float:
    usage = Usage(cache_write_tokens=agent.input_tokens, output_tokens=agent.max_output_tokens)
    return cost_nanousd(policy.prices[model], usage) / NANOUSD_PER_USD


def _agent(name: str, agent: AgentDefinition, config: ProjectConfig) -> AgentDefinition:
    changes: dict[str, Any] = {}
    if name in config.models:
        changes["model"] = config.models[name]
    if name in config.budgets.step_usd:
        changes["step_usd"] = config.budgets.step_usd[name]
    return agent.model_copy(update=changes)


def _given(section: Any, *fields: str) -> dict[str, Any]:
    return {field: value for field in fields if (value := getattr(section, field)) is not None}

"""The configuration of a code project: what its owner may settle about its runs (seed 001, ADR-006; ruling A22).

A project lowers budgets and limits, adds rules, and chooses among the platform's models. It never holds a key: it names
an account that the operator gave to the gateway, which keeps the key, its address and its spending limit together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, StringConstraints, ValidationError

from routing.config import Section
from routing.errors import MissingKeyError, PolicyError, Problem, ProjectConfigError, YamlRefusedError
from routing.policy.agents import (
    ARTIFACTS,
    AgentDefinition,
    AgentName,
    AgentRole,
    GateRule,
    MandatoryRules,
    PathRule,
    ProviderName,
    RunRules,
    StackPart,
    StepRule,
    is_covered,
)
from routing.policy.integrations import Integrations, Repository
from routing.policy.platform import Policy
from routing.policy.prices import NANOUSD_PER_USD, Usage, cost_nanousd
from routing.policy.services import MAX_SERVICES, Command, ProjectService, ServiceName, unoffered
from routing.queues import QueueName
from routing.redaction import SECRETS

MAX_BYTES = 65_536
_MAX_DEPTH = 20
MAX_RULES = 50
"""Paths of one agent."""
_BYTES_PER_VALUE = 8
"""Bytes of the size limit for each value allowed."""

Place = tuple[str | int, ...]
"""Where a value stands: keys and indices from the top."""


@dataclass(frozen=True)
class YamlDocument:
    """A YAML value, with the line on which each part begins."""

    value: Any
    _lines: Mapping[Place, int]

    def line_of(self, place: Sequence[str | int]) -> int:
        """Return the line of a place, or of the nearest enclosing place."""
        at = tuple(place)
        while at and at not in self._lines:
            at = at[:-1]
        return self._lines.get(at, 1)


def read_yaml(text: str, *, max_bytes: int = MAX_BYTES) -> YamlDocument:
    """Parse an untrusted YAML document, so that every error can name a line.

    Size, depth and number of values are checked before anything is built. Aliases, tags and duplicate keys are refused.

    Raises:
        YamlRefusedError: its author's fault.
    """
    if len(text.encode("utf-8", "replace")) > max_bytes:
        raise YamlRefusedError(0, f"has more than {max_bytes} bytes")
    try:
        _check_events(text, most=max_bytes // _BYTES_PER_VALUE)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlRefusedError(mark.line + 1 if mark else 0, error.problem or "is no YAML") from None
    except yaml.YAMLError:
        raise YamlRefusedError(0, "is no YAML text: it holds characters that YAML does not allow") from None
    if node is None:
        raise YamlRefusedError(0, "is empty")
    lines: dict[Place, int] = {}
    return YamlDocument(_value(node, (), lines), lines)


def _check_events(text: str, *, most: int) -> None:
    depth = 0
    for number, event in enumerate(yaml.parse(text, Loader=yaml.SafeLoader)):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if rule := _broken_rule(event, depth=depth, is_over=number > most):
            raise YamlRefusedError(event.start_mark.line + 1 if event.start_mark else 0, rule)


def _broken_rule(event: yaml.Event, *, depth: int, is_over: bool) -> str | None:
    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
        return "anchors and aliases are not taken"
    if isinstance(event, yaml.NodeEvent) and getattr(event, "tag", None) is not None:
        return "tags are not taken"
    if depth > _MAX_DEPTH:
        return f"is nested deeper than {_MAX_DEPTH} levels"
    return "has too many values" if is_over else None


def _value(node: yaml.Node, place: Place, lines: dict[Place, int]) -> Any:
    lines.setdefault(place, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, place, lines)
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, (*place, index), lines) for index, item in enumerate(node.value)]
    return _scalar(node)


def _mapping(node: yaml.MappingNode, place: Place, lines: dict[Place, int]) -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise YamlRefusedError(line, "a key must be a word")
        key = str(key_node.value)
        if key in mapping:
            raise YamlRefusedError(line, "the same key stands twice")
        lines[(*place, key)] = line
        mapping[key] = _value(value_node, (*place, key), lines)
    return mapping


def _scalar(node: yaml.Node) -> Any:
    try:
        return yaml.SafeLoader("").construct_object(node)
    except (ValueError, yaml.YAMLError, OverflowError):
        raise YamlRefusedError(node.start_mark.line + 1, "is no value that can be read") from None


Usd = Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)]


class ProjectBudgets(Section):
    """Lower budgets in USD."""

    run_usd: Usd | None = None
    call_usd: Usd | None = None
    step_usd: dict[AgentName, Usd] = Field(default_factory=dict)
    """Budget of one step, by agent."""


class ProjectRules(Section):
    """Additional rules and shorter loops."""

    gates: Annotated[tuple[GateRule, ...], Field(max_length=50)] = ()
    steps: Annotated[tuple[StepRule, ...], Field(max_length=50)] = ()
    autonomy: Literal["ask", "auto"] | None = None
    """`auto` skips gates that the plan suggests for low-risk work."""
    max_retries: Annotated[int, Field(ge=0)] | None = None
    remediation_cycles: Annotated[int, Field(ge=0)] | None = None
    rework_cycles: Annotated[int, Field(ge=0)] | None = None
    max_parallel: Annotated[int, Field(gt=0)] | None = None
    gate_hours: Annotated[float, Field(gt=0)] | None = None


NpmPackage = Annotated[
    str, StringConstraints(pattern=r"^(?:@[a-z0-9~-][a-z0-9._~-]{0,100}/)?[a-z0-9~][a-z0-9._~-]{0,100}$")
]


class Commands(Section):
    """How the project is set up and checked: run in this order in a box; the first that fails is a finding."""

    setup: Command | None = None
    scripts: Annotated[tuple[NpmPackage, ...], Field(max_length=50)] = ()
    """npm packages whose install scripts are run after set-up; in boxes no others are."""
    build: Command | None = None
    lint: Command | None = None
    test: Command | None = None

    def named(self) -> dict[str, str]:
        """Return the lines of those that are given, in their order."""
        rebuild = f"npm rebuild --ignore-scripts=false {' '.join(self.scripts)}" if self.scripts else None
        return {name: line for name, line in ({**dict(self), "scripts": rebuild}).items() if line is not None}


class ProjectConfig(Section):
    """A project's file."""

    repo: Repository
    stack: dict[StackPart, Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.+-]{0,31}$")]]
    """Only declared stacks are supported (S-088)."""
    commands: Commands = Commands()
    services: Annotated[dict[ServiceName, ProjectService], Field(max_length=MAX_SERVICES)] = Field(default_factory=dict)
    """What the commands need beside their box, by host name."""
    writes: dict[AgentName, Annotated[tuple[PathRule, ...], Field(min_length=1, max_length=MAX_RULES)]] = Field(
        default_factory=dict
    )
    """Where an agent's source files are kept, where the layout is not the platform's."""
    keys: dict[ProviderName, ProviderName] = Field(default_factory=dict)
    """The gateway's account that pays, by model provider; without one the tenant's."""
    models: dict[AgentName, str] = Field(default_factory=dict)
    """Another of the platform's models, by agent."""
    budgets: ProjectBudgets = ProjectBudgets()
    rules: ProjectRules = ProjectRules()
    integrations: Integrations = Integrations()

    @property
    def git_account(self) -> str | None:
        """The operator's account that reaches the repository; None where it is public or a directory."""
        forge = self.integrations.forge
        return self.repo.account or (forge.token if forge is not None else None)

    @property
    def accounts(self) -> frozenset[str]:
        """The operator's accounts that it names."""
        services = (self.integrations.github, self.integrations.gitlab, self.integrations.linear)
        named = {name for service in services if service is not None for name in (service.token, service.webhook)}
        return frozenset(name for name in named | {self.repo.account} if name is not None)


def parse_project(text: str, *, source: str) -> tuple[ProjectConfig, YamlDocument]:
    """Parse a project's file without checking it against the platform's policy.

    Returns:
        The configuration, and the document with its lines.

    Raises:
        ProjectConfigError: the owner's fault; lists every problem.
    """
    try:
        document = read_yaml(text)
    except YamlRefusedError as error:
        raise ProjectConfigError(source, (Problem(error.line, "", error.rule),)) from None
    if leaks := tuple(_leaks(document)):
        raise ProjectConfigError(source, leaks)
    try:
        return ProjectConfig.model_validate(document.value), document
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        raise ProjectConfigError(source, tuple(_problem(item, document) for item in found[:50])) from None


def account_of(keys: Mapping[str, str], provider: str, *, agents: Iterable[str], tenant_account: str | None) -> str:
    """Return the gateway's account that pays for calls to a provider.

    Args:
        keys: the project's keys.
        provider: the provider.
        agents: the agents that need it, for the error.
        tenant_account: the tenant's own account, for providers without a key.

    Raises:
        MissingKeyError: the tenant's fault.
    """
    account = keys.get(provider) or tenant_account
    if account is None:
        raise MissingKeyError(provider, tuple(agents))
    return account


def _leaks(document: YamlDocument) -> Iterator[Problem]:
    for place, text in _texts(document.value, ()):
        if SECRETS.search(text):
            rule = "looks like a key: a project names keys, it never holds one (this one should be rotated)"
            yield Problem(document.line_of(place), _printed(place[:-1]), rule)


def _texts(value: Any, place: Place) -> Iterator[tuple[Place, str]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield (*place, key), str(key)
            yield from _texts(item, (*place, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, (*place, index))
    elif isinstance(value, str):
        yield place, value


_WORD = re.compile(r"[A-Za-z_]{1,40}")


def _problem(item: Any, document: YamlDocument) -> Problem:
    place: Place = tuple(part for part in item["loc"] if part != "[key]")
    if item["type"] == "extra_forbidden":
        name = str(place[-1])
        named = f" ({name})" if _WORD.fullmatch(name) else ""  # anything else may be a secret in the wrong place
        return Problem(document.line_of(place), _printed(place[:-1]), f"has an unknown field{named}")
    return Problem(document.line_of(place), _printed(place), str(item["msg"]).removeprefix("Value error, "))


def _printed(place: Place) -> str:
    return ".".join(str(part) for part in place)[:200]


# Rules of the layers are united; budgets and loops can only get lower.

_LOOPS = ("max_retries", "remediation_cycles", "rework_cycles", "max_parallel", "gate_hours")
Conflict = tuple[Place, str]


def read_project(text: str, *, source: str, policy: Policy) -> ProjectConfig:
    """Parse a project's file and check it against the tenant's policy; `source` names it in errors.

    Raises:
        ProjectConfigError: the owner's fault; lists every problem with its line.
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
    """Return the policy of a project's runs.

    Raises:
        PolicyError: the operator's fault: the stored configuration no longer fits the platform's policy.
    """
    for place, rule in conflicts(config, policy):
        raise PolicyError(f"project: {'.'.join(str(part) for part in place)}: {rule}")
    budgets = policy.budgets.model_copy(update=_given(config.budgets, "run_usd", "call_usd"))
    own = config.rules
    rules = MandatoryRules(steps=(*policy.runs.rules.steps, *own.steps), gates=(*policy.runs.rules.gates, *own.gates))
    runs = policy.runs.model_copy(update={**_given(own, *_LOOPS, "autonomy"), "rules": rules})
    agents = {name: _agent(name, agent, config, policy.runs) for name, agent in policy.agents.items()}
    return Policy.model_validate(policy.model_dump() | {"budgets": budgets, "runs": runs, "agents": agents})


def accounts_for(config: ProjectConfig, policy: Policy, *, tenant_account: str | None) -> dict[str, str]:
    """Return the gateway's account for each provider that the project's agents need.

    Args:
        config: the project's configuration.
        policy: the result of `for_project`.
        tenant_account: the tenant's own account, if any.

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
    """Yield the conflicts of a project's configuration with the policy."""
    if config.repo.scheme not in policy.runs.remotes:
        yield ("repo", "url"), f"must be reached by {' or '.join(sorted(policy.runs.remotes))}"
    yield from _stack_conflicts(config, policy.runs)
    for name, rule in unoffered(config.services, policy.runs.services):
        yield ("services", name, "image"), rule
    yield from _write_conflicts(config, policy)
    yield from _model_conflicts(config, policy)
    yield from _budget_conflicts(config, policy)
    yield from _rule_conflicts(config, policy)


def _stack_conflicts(config: ProjectConfig, runs: RunRules) -> Iterator[Conflict]:
    if "language" not in config.stack:
        yield ("stack",), "must declare its language"
    for part, choice in config.stack.items():
        supported = runs.stack.get(part, frozenset())
        if choice not in supported:
            offer = ", ".join(sorted(supported)) or "nothing"
            yield ("stack", part), f"this installation's agents and images are made for {offer} only"


def _write_conflicts(config: ProjectConfig, policy: Policy) -> Iterator[Conflict]:
    for name, rules in config.writes.items():
        if (agent := policy.agents.get(name)) is None:
            yield ("writes", name), "there is no such agent"
            continue
        offered = policy.runs.source_paths(name, agent, config.stack.get("language"))
        for index, rule in enumerate(rules):
            if not (rule in offered or is_covered(rule, offered) or _may_open(rule, agent, policy.runs)):
                yield ("writes", name, index), _not_opened(agent, policy.runs)


def _may_open(rule: str, agent: AgentDefinition, runs: RunRules) -> bool:
    """Whether a project may add a path: directories of its own for who writes source, of tests for who tests.

    What a forge or a tool obeys unasked lies in hidden directories, which stay closed.
    """
    segments = rule.removesuffix("/").split("/")
    if not agent.needs_box or not rule.endswith("/") or any(segment.startswith(".") for segment in segments):
        return False
    if f"{segments[0]}/" == ARTIFACTS:
        return False
    return agent.role in (AgentRole.DEVELOPER, AgentRole.UI_UX) or segments[-1] in runs.test_directories


def _not_opened(agent: AgentDefinition, runs: RunRules) -> str:
    if not agent.needs_box:
        return "this agent writes documents only"
    if agent.role in (AgentRole.DEVELOPER, AgentRole.UI_UX):
        return "must be one of the platform's paths, or a directory of the project that is not hidden"
    return f"must be one of the platform's paths, or a directory named {' or '.join(runs.test_directories)}"


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


def _agent(name: str, agent: AgentDefinition, config: ProjectConfig, runs: RunRules) -> AgentDefinition:
    changes: dict[str, Any] = {}
    if name in config.models:
        changes["model"] = config.models[name]
    if name in config.budgets.step_usd:
        changes["step_usd"] = config.budgets.step_usd[name]
    documents = tuple(rule for rule in agent.writes if rule.startswith(ARTIFACTS))
    writes = (*config.writes.get(name, runs.source_paths(name, agent, config.stack.get("language"))), *documents)
    if set(writes) != set(agent.writes):
        changes["writes"] = writes
    return agent.model_copy(update=changes)


def _given(section: Any, *fields: str) -> dict[str, Any]:
    return {field: value for field in fields if (value := getattr(section, field)) is not None}

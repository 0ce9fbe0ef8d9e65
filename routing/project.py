"""Layer 2 of the configuration: what a project's owner settles about its runs (seed 001, ADR-006; ruling A22).

Six parts: repository, keys, models, budgets, rules, integrations; and the declared stack. A project lowers budgets and
limits, adds rules, and chooses among the platform's models. It never holds a key: it names an account that the operator
gave to the gateway, where the key, its address and its spending limit are kept together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StringConstraints, ValidationError

from routing.agents import AgentName, ProviderName
from routing.config import Section
from routing.errors import MissingKeyError, Problem, ProjectConfigError, YamlRefusedError
from routing.located import LocatedDocument, Place, read_located
from routing.redaction import SECRETS
from routing.run_rules import GateRule, StackPart, StepRule

Usd = Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)]
SecretName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")]
"""The name of a secret in the operator's configuration, never the secret."""
_REMOTE = re.compile(r"(?P<scheme>https|http|ssh|file)://(?:(?P<user>[^/@\s]*)@)?[^\s@\\]{1,400}")
_SCP = re.compile(r"git@[A-Za-z0-9.-]{1,253}:[A-Za-z0-9._/~-]{1,200}")


def _check_remote(url: str) -> str:
    if _SCP.fullmatch(url):
        return url
    found = _REMOTE.fullmatch(url)
    if found is None:
        raise ValueError("must be a URL such as https://forge.example/owner/name.git or git@forge.example:owner/name")
    if found["user"] not in (None, "git"):
        raise ValueError("must not hold a user name or password: the operator's configuration has the credentials")
    return url


class Repository(Section):
    """Where the project's code is."""

    url: Annotated[str, AfterValidator(_check_remote)]
    branch: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,99}$")] = "main"
    """What runs start from and pull requests ask to be merged into."""

    @property
    def scheme(self) -> str:
        """How the repository is reached."""
        return "ssh" if _SCP.fullmatch(self.url) else self.url.partition("://")[0]


class ProjectBudgets(Section):
    """Lower caps, USD."""

    run_usd: Usd | None = None
    call_usd: Usd | None = None
    step_usd: dict[AgentName, Usd] = Field(default_factory=dict)
    """By agent: what one of its steps may spend."""


class ProjectRules(Section):
    """Rules added to the platform's, and loops made shorter."""

    gates: Annotated[tuple[GateRule, ...], Field(max_length=50)] = ()
    steps: Annotated[tuple[StepRule, ...], Field(max_length=50)] = ()
    autonomy: Literal["ask", "auto"] | None = None
    """`auto`: gates that the plan suggests are skipped for low-risk work."""
    max_retries: Annotated[int, Field(ge=0)] | None = None
    remediation_cycles: Annotated[int, Field(ge=0)] | None = None
    rework_cycles: Annotated[int, Field(ge=0)] | None = None
    max_parallel: Annotated[int, Field(gt=0)] | None = None
    gate_hours: Annotated[float, Field(gt=0)] | None = None


class GitHub(Section):
    """Issues in, pull requests out. The API's address stands with the secret, so that no project can redirect it."""

    repository: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9._-]{1,100}$")]
    token: SecretName
    webhook: SecretName | None = None
    """Secret that signs its webhooks; without one none is taken."""
    label: Annotated[str, StringConstraints(min_length=1, max_length=50)] | None = None
    """Only issues with this label become tickets."""


class Linear(Section):
    """Issues of a team in, their state and comments out."""

    team: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9]{0,9}$")]
    token: SecretName
    webhook: SecretName | None = None
    label: Annotated[str, StringConstraints(min_length=1, max_length=50)] | None = None


class Integrations(Section):
    """What a project is connected with."""

    github: GitHub | None = None
    linear: Linear | None = None


class ProjectConfig(Section):
    """A project's file."""

    repo: Repository
    stack: dict[StackPart, Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.+-]{0,31}$")]]
    """What it is built with; only declared stacks are worked on (S-088)."""
    keys: dict[ProviderName, ProviderName] = Field(default_factory=dict)
    """By provider of models: the gateway's account that pays. Without one, the tenant's own; there is no other."""
    models: dict[AgentName, str] = Field(default_factory=dict)
    """By agent: another of the platform's models."""
    budgets: ProjectBudgets = ProjectBudgets()
    rules: ProjectRules = ProjectRules()
    integrations: Integrations = Integrations()


def parse_project(text: str, *, source: str) -> tuple[ProjectConfig, LocatedDocument]:
    """Read a project's file, apart from what depends on the platform's policy.

    Args:
        text: YAML.
        source: what to call it in an error.

    Returns:
        The configuration, and where each of its parts stands.

    Raises:
        ProjectConfigError: the owner's fault; all that is wrong at once.
    """
    try:
        document = read_located(text)
    except YamlRefusedError as error:
        raise ProjectConfigError(source, (Problem(error.line, "", error.rule),)) from None
    if leaks := tuple(_leaks(document)):
        raise ProjectConfigError(source, leaks)
    try:
        return ProjectConfig.model_validate(document.value), document
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        raise ProjectConfigError(source, tuple(_problem(item, document) for item in found[:50])) from None


def account_of(
    keys: Mapping[str, str], provider: str, *, agents: Iterable[str], tenant_account: str | None
) -> str:  # fmt: skip
    """Return the gateway's account that pays for the calls of some agents.

    Args:
        keys: the project's.
        provider: of the agents' models.
        agents: who needs it, for the error.
        tenant_account: the tenant's own account, which serves any provider that the project names none for.

    Raises:
        MissingKeyError: the tenant's fault.
    """
    account = keys.get(provider) or tenant_account
    if account is None:
        raise MissingKeyError(provider, tuple(agents))
    return account


def _leaks(document: LocatedDocument) -> Iterator[Problem]:
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


def _problem(item: Any, document: LocatedDocument) -> Problem:
    place: Place = tuple(part for part in item["loc"] if part != "[key]")
    if item["type"] == "extra_forbidden":
        return Problem(document.line_of(place), _printed(place[:-1]), "has a field that there is not")
    return Problem(document.line_of(place), _printed(place), str(item["msg"]).removeprefix("Value error, "))


def _printed(place: Place) -> str:
    return ".".join(str(part) for part in place)[:200]

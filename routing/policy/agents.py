"""Agents and rules of runs, and the accounts at forges and trackers that projects name.

Agent definitions are entries of the platform's YAML file (seed 003's thirteen), so a new agent needs no code. A plan
only names agents; everything else comes from here and from the project's configuration.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, StringConstraints, model_validator

from routing.config import InOrder, OptionalPath, Section
from routing.policy.prices import Price, Usage, cost_nanousd
from routing.policy.services import OfferedService, OfferName

# A path rule has one of three forms, relative to the project's root: `src/` (a whole directory), `package.json` (one
# file) and `*.test.ts` (a suffix anywhere but in `artifacts/`, whose directories belong to the agents they name).

ARTIFACTS = "artifacts/"
RESULT_FILE = ".agent-result.json"
CONTEXT_DIRECTORY = ".agent-context/"

_SUFFIX = re.compile(r"\*(\.[A-Za-z0-9_-]{1,40}){1,4}")
_SEGMENT = re.compile(r"[A-Za-z0-9_.@()\[\]-]{1,100}")
_SERVICE_OWNED = (".git", ".agent-context", RESULT_FILE)


def check_path_rule(rule: str) -> str:
    """Return `rule` if it is well formed.

    Raises:
        ValueError: its author's fault; states the allowed forms.
    """
    if _SUFFIX.fullmatch(rule):
        return rule
    segments = rule.removesuffix("/").split("/")
    if not all(_SEGMENT.fullmatch(segment) and segment.strip(".") for segment in segments):
        raise ValueError("must be a directory with a final /, a file, or *.suffix, relative to the project's root")
    if segments[0] in _SERVICE_OWNED:
        raise ValueError(f"{segments[0]} belongs to the service")
    return rule


PathRule = Annotated[str, Field(max_length=300), AfterValidator(check_path_rule)]


def is_covered(path: str, rules: Iterable[str]) -> bool:
    """Return whether one of `rules` covers a normalised path."""
    return any(_covers(rule, path) for rule in rules)


def _covers(rule: str, path: str) -> bool:
    if rule.startswith("*"):
        return path.endswith(rule[1:]) and not path.startswith(ARTIFACTS)
    return path.startswith(rule) if rule.endswith("/") else path == rule


AgentName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,39}(:[a-z][a-z0-9-]{0,39})?$")]
"""`frontend-dev`, or `orchestrator:classify` for a subtask of an agent."""
ProviderName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")]
Runtime = Literal["claude_code", "api", "codex_local"]

FINISH_TOOL = "finish"
"""The tool with which an `api` agent ends its step; its input is the result."""
API_TOOLS = frozenset({"list_files", "read_file", "search_files", "write_file", FINISH_TOOL})
"""Tools without a box: files in the allowed paths, and no shell (ruling A37)."""
CLI_TOOLS = frozenset({"Bash", "Edit", "Glob", "Grep", "Read", "Write"})


class AgentRole(StrEnum):
    """Seed 001's six roles. The orchestrator and its subtasks have none (ruling A23)."""

    PRODUCT = "product"
    ARCHITECT = "architect"
    DEVELOPER = "developer"
    UI_UX = "ui_ux"
    QA = "qa"
    SECURITY = "security"


class AgentDefinition(Section):
    """One agent. Times are seconds, money is USD."""

    title: str = Field(min_length=1, max_length=60)
    role: AgentRole | None = None
    model: str
    provider: ProviderName = "anthropic"
    """The model's provider; a project's `keys` choose the account that pays."""
    runtime: Runtime
    image: Literal["agent"] | None = None
    """The image of its boxes: built by `pointsman image build`, or named in section `box` of the configuration. None if
    it needs no box."""
    tools: Annotated[frozenset[str], InOrder] = Field(min_length=1)
    """Exactly the tools that the model is offered."""
    instructions: str | None = Field(default=None, max_length=65_536)
    """CLAUDE.md of a custom agent; workers/runs/instructions/ has those of shipped agents."""
    writes: tuple[PathRule, ...] = ()
    """Where its writes are kept; others are dropped and reported."""
    reads: tuple[PathRule, ...] = ()
    """Paths that its context lists first, with the outputs of the steps that it depends on."""
    max_turns: int = Field(gt=0, le=200)
    """Model calls per step."""
    max_output_tokens: int = Field(gt=0)
    """Limit of one reply."""
    input_tokens: int = Field(gt=0)
    """Expected maximum input of one call, which the feasibility test assumes."""
    written_tokens: int = Field(gt=0)
    """Expected maximum of all replies of a step, likewise."""
    tool_seconds: float = Field(default=0, ge=0)
    """Expected duration of a step's commands (install, build, tests), likewise."""
    soft_seconds: float = Field(gt=0)
    """Then the step is interrupted, and its files are kept."""
    hard_seconds: float = Field(gt=0)
    step_usd: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Budget of one step; None for what remains of the run's."""

    @model_validator(mode="after")
    def _check_runtime(self) -> Self:
        if self.hard_seconds <= self.soft_seconds:
            raise ValueError("hard_seconds must be above soft_seconds")
        if (self.image is not None) != (self.runtime == "claude_code"):
            raise ValueError("image belongs to runtime claude_code, which needs one")
        available = {"api": API_TOOLS, "claude_code": CLI_TOOLS}.get(self.runtime)
        if available is not None and (unknown := sorted(self.tools - available)):
            raise ValueError(f"tools: runtime {self.runtime} has no {', '.join(unknown)}")
        if self.runtime == "api" and FINISH_TOOL not in self.tools:
            raise ValueError(f"tools: runtime api needs {FINISH_TOOL}")
        return self

    @property
    def needs_box(self) -> bool:
        """Whether its steps run in a container."""
        return self.runtime == "claude_code"

    def expected_usd(self, price: Price) -> float:
        """Return the expected maximum cost of a step.

        The first call writes its input to the provider's cache; every further call reads as much from it.
        """
        usage = Usage(
            output_tokens=self.written_tokens,
            cache_write_tokens=self.input_tokens,
            cache_read_tokens=(self.max_turns - 1) * self.input_tokens,
        )
        return cost_nanousd(price, usage) / 1e9


def instruction_file(agent: str) -> str:
    """Return the name of an agent's instruction file, without `:`."""
    return f"{agent.replace(':', '-')}.md"


RuleName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,63}$")]
RunPriority = Literal["P0", "P1", "P2", "P3"]
StackPart = Literal["language", "frontend", "backend", "database", "deploy"]


class StepRule(Section):
    """A step of this agent must follow the last step of a role: "QA always runs after dev"."""

    name: RuleName
    agent: AgentName
    after: AgentRole


class GateRule(Section):
    """A person must approve before the run continues. All criteria must match; an empty one always does."""

    name: RuleName
    after: AgentName = "qa"
    """The gate follows the last step of this agent."""
    priorities: Annotated[frozenset[RunPriority], InOrder] = frozenset()
    labels: Annotated[frozenset[str], InOrder] = frozenset()
    paths: tuple[PathRule, ...] = ()
    """Match if one of them covers a changed file."""
    reason: str = Field(min_length=1, max_length=300)

    def matches(self, *, priority: str, labels: Collection[str], changed: Sequence[str]) -> bool:
        """Return whether a run needs this gate, given its ticket's priority and labels and the paths it has changed."""
        folded = {label.casefold() for label in labels}
        return (
            (not self.priorities or priority in self.priorities)
            and (not self.labels or any(label.casefold() in folded for label in self.labels))
            and (not self.paths or any(is_covered(path, self.paths) for path in changed))
        )


class MandatoryRules(Section):
    """Rules that layers can extend but not remove (ruling A22)."""

    steps: tuple[StepRule, ...] = ()
    gates: tuple[GateRule, ...] = ()

    def named_agents(self) -> tuple[tuple[str, str], ...]:
        """Return pairs of a rule's name and the agent it names."""
        return (*((rule.name, rule.agent) for rule in self.steps), *((rule.name, rule.after) for rule in self.gates))


class LanguageRules(Section):
    """What differs for projects in one language."""

    writes: dict[AgentName, tuple[PathRule, ...]] = Field(default_factory=dict)
    """Where an agent's source files are kept, in place of its own paths outside of artifacts/."""


class RunRules(Section):
    """Bounds of a run (ruling A12). A project may lower a number and add a rule; a plan holds neither."""

    max_retries: int = Field(ge=0, le=10)
    """Automatic retries of a step before the run halts (P-054)."""
    remediation_cycles: int = Field(ge=0, le=10)
    """Rounds of review and repair, which end early if the findings do not decrease (P-023, P-057)."""
    rework_cycles: int = Field(ge=0, le=10)
    """Rework plans of the orchestrator before a person is asked (S-111)."""
    replans: int = Field(ge=0, le=3)
    """How often an invalid plan is returned before a template is used."""
    max_steps: int = Field(gt=0, le=200)
    """Steps per plan."""
    max_parallel: int = Field(gt=0, le=32)
    """Concurrent steps of one run."""
    frontend_steps: int = Field(gt=0, le=16)
    """Parallel frontend steps of a template (the N of P-017)."""
    gate_hours: float = Field(gt=0)
    """An unanswered gate expires and counts as failed."""
    context_bytes: int = Field(gt=0)
    """Size of a step's `.agent-context/`; what does not fit is listed by name."""
    result_bytes: int = Field(gt=0)
    """Size of a step's `.agent-result.json`."""
    workspace_bytes: int = Field(gt=0)
    """Total size of a project's files."""
    workspace_files: int = Field(gt=0)
    autonomy: Literal["ask", "auto"] = "ask"
    """`auto` skips optional gates of low-risk work; a mandatory gate is never skipped (S-104, S-106)."""
    intent_classifier: Literal["when_unsure", "always"] = "when_unsure"
    """Whether a model classifies every ticket, or only those that the rules cannot (ruling A5)."""
    models: Annotated[frozenset[str], InOrder] = frozenset()
    """Further models that a project may choose for an agent."""
    remotes: Annotated[frozenset[Literal["https", "http", "ssh", "file"]], InOrder] = frozenset({"https", "ssh"})
    """Allowed URL schemes of repositories."""
    stack: dict[StackPart, Annotated[frozenset[str], InOrder]] = Field(default_factory=dict)
    """Supported stacks (S-088), which agents and images are made for."""
    languages: dict[str, LanguageRules] = Field(default_factory=dict)
    """By the stack's language; agents' own paths are for the languages that are not named."""
    test_directories: tuple[str, ...] = ("tests", "test", "__tests__", "e2e")
    """Names of directories that a project may open to its testers, wherever they lie."""
    services: dict[OfferName, OfferedService] = Field(default_factory=dict)
    """What tests of projects may have beside their box (`services` of a project's file)."""
    rules: MandatoryRules = MandatoryRules()

    def source_paths(self, name: str, agent: AgentDefinition, language: str | None) -> tuple[str, ...]:
        """Return where an agent's changes of sources are kept in projects of a language."""
        chosen = self.languages.get(language or "")
        own = tuple(rule for rule in agent.writes if not rule.startswith(ARTIFACTS))
        return own if chosen is None else chosen.writes.get(name, own)


GITHUB_API = "https://api.github.com"
GITLAB_URL = "https://gitlab.com"
LINEAR_API = "https://api.linear.app/graphql"
_SERVICES = {"github": GITHUB_API, "gitlab": GITLAB_URL, "linear": LINEAR_API, "git": ""}


class Account(Section):
    """An account at a forge or tracker. Projects name it and never hold its secrets."""

    kind: Literal["github", "gitlab", "linear", "git"]
    """`git` is a server of repositories only."""
    api_url: str = Field(default="", pattern=r"^$|^https?://[^\s/]+(/\S*)?$")
    """URL of its API; empty for the public service. Of GitLab, the server's own URL."""
    token: SecretStr = SecretStr("")
    """For pushing branches, opening pull requests and writing to tickets. Agents never see it."""
    app_id: str = Field(default="", pattern=r"^[A-Za-z0-9.]{0,40}$")
    """Of a GitHub App, its id or client id: its short-lived tokens, each for one repository, stand in for `token`."""
    app_key: OptionalPath = None
    """File with the App's private key, readable by its owner only."""
    webhook_secret: SecretStr = SecretStr("")
    """Signs incoming webhooks; without one they are refused."""
    git_url: str = Field(default="", pattern=r"^$|^(https?|ssh)://[^\s@?#]+/$")
    """URL prefix of the repositories that may use this account, such as https://forge.example/acme/ or
    ssh://forge.example/acme/; empty for none. A project cannot send the token elsewhere, by git or the forge's API."""
    username: str = Field(default="", pattern=r"^[A-Za-z0-9._-]{0,64}$")
    """User name for git; empty for x-access-token beside a token, which most forges accept, and git by ssh."""
    ssh_key: OptionalPath = None
    """File with the private deploy key for repositories by ssh, without a passphrase, readable by its owner only. Only
    workers of `steps` and `control` open it."""
    known_hosts: OptionalPath = None
    """File with the host keys of those servers, as ssh keeps them. A server that is not in it is not trusted."""
    author: str = Field(
        default="Pointsman <pointsman@localhost>", max_length=200, pattern=r"^[^<>\x00-\x1f]+ <[^<>\x00-\x20]+>$"
    )
    """`NAME <E-MAIL>` of the commits that are pushed with it."""
    tenants: tuple[str, ...] = ()
    """Tenants whose projects may use this account, as JSON, such as ["acme"]; empty for none."""

    @property
    def address(self) -> str:
        """URL of its API; empty where it has none."""
        return self.api_url.rstrip("/") or _SERVICES[self.kind]


class AccountsConfig(Section):
    """Accounts by the names that project files use."""

    by_name: dict[str, Account] = Field(default_factory=dict)
    """`POINTSMAN_ACCOUNTS__BY_NAME__ACME__TOKEN` and so on; names are lower case."""

    def find(self, name: str, *, tenant: str) -> Account | None:
        """Return the account if the tenant may use it, or None."""
        account = self.by_name.get(name.lower())
        return account if account is not None and tenant in account.tenants else None

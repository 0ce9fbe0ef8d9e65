"""The agents of the ticket lane: what each is for, what runs it, what it may write and what one step of it may use.

The definitions are data of the platform's YAML file (seed 003's thirteen): another agent is another entry there and
needs no code. A plan names agents; everything else about them comes from here and from the project's configuration.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, StringConstraints, model_validator

from routing.config import InOrder, Section
from routing.policy.prices import Price, Usage, cost_nanousd

# Rules over the paths of a project: which files an agent may write, and which changes a gate is about.
#
# A rule is one of three forms, all relative to the project's root: `src/` (everything in a directory), `package.json`
# (exactly this file) and `*.test.ts` (every file whose name ends so, wherever it lies, but nothing under
# `artifacts/`,
# which belongs to the agent that its directory names).

ARTIFACTS = "artifacts/"
RESULT_FILE = ".agent-result.json"
CONTEXT_DIRECTORY = ".agent-context/"

_SUFFIX = re.compile(r"\*(\.[A-Za-z0-9_-]{1,40}){1,4}")
_SEGMENT = re.compile(r"[A-Za-z0-9_.@()\[\]-]{1,100}")
_SERVICE_OWNED = (".git", ".agent-context", RESULT_FILE)


def check_path_rule(rule: str) -> str:
    """Return a rule that is well formed.

    Raises:
        ValueError: its author's fault; says which form a rule may have.
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
    """Tell whether one of `rules` covers a normalised path relative to the project's root."""
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
"""How an agent of the `api` runtime ends its step: the tool's input is the result."""
API_TOOLS = frozenset({"list_files", "read_file", "search_files", "write_file", FINISH_TOOL})
"""Every tool there is without a box: files within the allowed paths, and no shell (ruling A37)."""
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
    """Whose models these are; a project's `keys` say which account pays for them."""
    runtime: Runtime
    image: Literal["agent"] | None = None
    """The image of its boxes: the one that `pointsman image build` makes, or that the configuration's section `box`
    names. None where it needs no box."""
    tools: Annotated[frozenset[str], InOrder] = Field(min_length=1)
    """Exactly these are offered to the model."""
    instructions: str | None = Field(default=None, max_length=65_536)
    """Its CLAUDE.md, for an agent that the product does not ship; otherwise workers/runs/instructions/ has it."""
    writes: tuple[PathRule, ...] = ()
    """Where what it writes is kept. Everything else is dropped and reported."""
    reads: tuple[PathRule, ...] = ()
    """What its context names first, beside the outputs of the steps that it depends on."""
    max_turns: int = Field(gt=0, le=200)
    """Model calls of one step."""
    max_output_tokens: int = Field(gt=0)
    """Tokens that one reply may have."""
    input_tokens: int = Field(gt=0)
    """Tokens that one call is expected to read at most; the feasibility test counts with them."""
    written_tokens: int = Field(gt=0)
    """Tokens that all replies of a step together are expected to have at most; likewise."""
    tool_seconds: float = Field(default=0, ge=0)
    """What commands of a step (install, build, tests) are expected to take; likewise."""
    soft_seconds: float = Field(gt=0)
    """After so long the step is interrupted and what it has written is kept."""
    hard_seconds: float = Field(gt=0)
    step_usd: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """What one step may spend; None = what remains of the run."""

    @model_validator(mode="after")
    def _check_runtime(self) -> Self:
        if self.hard_seconds <= self.soft_seconds:
            raise ValueError("hard_seconds must be above soft_seconds")
        if (self.image is not None) != (self.runtime == "claude_code"):
            raise ValueError("image belongs to runtime claude_code, which needs one")
        known = {"api": API_TOOLS, "claude_code": CLI_TOOLS}.get(self.runtime)
        if known is not None and (unknown := sorted(self.tools - known)):
            raise ValueError(f"tools: runtime {self.runtime} has no {', '.join(unknown)}")
        if self.runtime == "api" and FINISH_TOOL not in self.tools:
            raise ValueError(f"tools: runtime api needs {FINISH_TOOL}")
        return self

    @property
    def needs_box(self) -> bool:
        """Whether its steps run in a container of their own."""
        return self.runtime == "claude_code"

    def expected_usd(self, price: Price) -> float:
        """Return what a whole step costs at most in ordinary use.

        The first call writes its input to the provider's cache, every further call reads as much from it.
        """
        usage = Usage(
            output_tokens=self.written_tokens,
            cache_write_tokens=self.input_tokens,
            cache_read_tokens=(self.max_turns - 1) * self.input_tokens,
        )
        return cost_nanousd(price, usage) / 1e9


def instruction_file(agent: str) -> str:
    """Return the name of an agent's instruction file: `:` is no character for file names."""
    return f"{agent.replace(':', '-')}.md"


# The hard shell around a run: how often, how long and how much, and the rules that no plan can take away.
#
# A project's configuration may lower a number and add a rule; the plan of a run holds neither (seed 001, ADR-006).

RuleName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,63}$")]
RunPriority = Literal["P0", "P1", "P2", "P3"]
StackPart = Literal["language", "frontend", "backend", "database", "deploy"]


class StepRule(Section):
    """After the last step of a role, a step of this agent has to follow: "QA always runs after dev"."""

    name: RuleName
    agent: AgentName
    after: AgentRole


class GateRule(Section):
    """A person has to look before the run goes on. Empty criteria match every run; of those given all must match."""

    name: RuleName
    after: AgentName = "qa"
    """The gate stands after the last step of this agent."""
    priorities: Annotated[frozenset[RunPriority], InOrder] = frozenset()
    labels: Annotated[frozenset[str], InOrder] = frozenset()
    paths: tuple[PathRule, ...] = ()
    """Matches when a changed file is covered by one of them."""
    reason: str = Field(min_length=1, max_length=300)

    def matches(self, *, priority: str, labels: Collection[str], changed: Sequence[str]) -> bool:
        """Tell whether a run needs this gate.

        Args:
            priority: of the ticket.
            labels: of the ticket; compared without regard to case.
            changed: paths that the run has changed so far.
        """
        folded = {label.casefold() for label in labels}
        return (
            (not self.priorities or priority in self.priorities)
            and (not self.labels or any(label.casefold() in folded for label in self.labels))
            and (not self.paths or any(is_covered(path, self.paths) for path in changed))
        )


class MandatoryRules(Section):
    """Rules of the service. Layers add to them and never take one away (ruling A22)."""

    steps: tuple[StepRule, ...] = ()
    gates: tuple[GateRule, ...] = ()

    def named_agents(self) -> tuple[tuple[str, str], ...]:
        """Return the agents that rules name, each with the rule's name before it."""
        return (*((rule.name, rule.agent) for rule in self.steps), *((rule.name, rule.after) for rule in self.gates))


class RunRules(Section):
    """Everything that bounds a run. Loops are those of ruling A12."""

    max_retries: int = Field(ge=0, le=10)
    """Automatic retries of a step before the run halts (P-054)."""
    remediation_cycles: int = Field(ge=0, le=10)
    """Review, mend, review again: so often, and no more once the findings do not get fewer (P-023, P-057)."""
    rework_cycles: int = Field(ge=0, le=10)
    """How often the orchestrator may plan rework before a person is asked (S-111)."""
    replans: int = Field(ge=0, le=3)
    """How often an invalid plan is sent back before a template is taken."""
    max_steps: int = Field(gt=0, le=200)
    """Steps that one plan may have."""
    max_parallel: int = Field(gt=0, le=32)
    """Steps of one run that may be under way at a time."""
    frontend_steps: int = Field(gt=0, le=16)
    """Parallel frontend steps that a template may have (the N of P-017)."""
    gate_hours: float = Field(gt=0)
    """An unanswered gate expires, which counts as failing it."""
    context_bytes: int = Field(gt=0)
    """Size of what is staged for one step in `.agent-context/`; what does not fit is listed by name."""
    result_bytes: int = Field(gt=0)
    """Size of a step's `.agent-result.json`."""
    workspace_bytes: int = Field(gt=0)
    """Size of all files of a project together."""
    workspace_files: int = Field(gt=0)
    autonomy: Literal["ask", "auto"] = "ask"
    """`auto` skips optional gates of low-risk work; a mandatory gate is never skipped (S-104, S-106)."""
    intent_classifier: Literal["when_unsure", "always"] = "when_unsure"
    """Whether a model is asked what kind of ticket it is only where the rules cannot tell (ruling A5), or always."""
    models: Annotated[frozenset[str], InOrder] = frozenset()
    """Models that a project may give an agent, beside those that the agents have."""
    remotes: Annotated[frozenset[Literal["https", "http", "file"]], InOrder] = frozenset({"https"})
    """How a project's repository may be reached."""
    stack: dict[StackPart, Annotated[frozenset[str], InOrder]] = Field(default_factory=dict)
    """What projects may be built with (S-088); agents and images are made for it."""
    rules: MandatoryRules = MandatoryRules()


# Accounts at forges and trackers: wiring and secrets, which projects name and never hold.

GITHUB_API = "https://api.github.com"
LINEAR_API = "https://api.linear.app/graphql"


class Account(Section):
    """One account."""

    kind: Literal["github", "linear"]
    api_url: str = Field(default="", pattern=r"^$|^https?://[^\s/]+(/\S*)?$")
    """Where its interface is; empty for the service's own public address."""
    token: SecretStr = SecretStr("")
    """Lets us push branches, open pull requests and write to tickets. Agents never see it."""
    webhook_secret: SecretStr = SecretStr("")
    """Signs what the service sends us; without one nothing is taken from it."""
    git_url: str = Field(default="", pattern=r"^$|^https?://[^\s@?#]+/$")
    """What the URLs of repositories that this account is used for begin with, such as https://forge.example/acme/;
    empty for none: a project cannot send the token elsewhere."""
    username: str = "x-access-token"
    """Goes with the token where git wants a name; forges that know a token by itself take any."""
    tenants: tuple[str, ...] = ()
    """Whose projects may name this account, as JSON, such as ["acme"]; empty for nobody's."""

    @property
    def address(self) -> str:
        """Where its interface is."""
        return self.api_url.rstrip("/") or (GITHUB_API if self.kind == "github" else LINEAR_API)


class AccountsConfig(Section):
    """Accounts at forges and trackers, by the names that project files use."""

    by_name: dict[str, Account] = Field(default_factory=dict)
    """`POINTSMAN_ACCOUNTS__BY_NAME__ACME__TOKEN` and so on; names are lower case."""

    def find(self, name: str, *, tenant: str) -> Account | None:
        """Return a tenant's account; None where there is none of this name, or it is somebody else's."""
        account = self.by_name.get(name.lower())
        return account if account is not None and tenant in account.tenants else None

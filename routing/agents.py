"""The agents of the ticket lane: what each is for, what runs it, what it may write and what one step of it may use.

The definitions are data of the platform's YAML file (seed 003's thirteen): another agent is another entry there and
needs no code. A plan names agents; everything else about them comes from here and from the project's configuration.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from routing.config import InOrder, Section
from routing.path_rules import PathRule
from routing.prices import Price, Usage, cost_nanousd

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

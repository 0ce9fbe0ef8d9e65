"""The hard shell around a run: how often, how long and how much, and the rules that no plan can take away.

A project's configuration may lower a number and add a rule; the plan of a run holds neither (seed 001, ADR-006).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from routing.agents import AgentName, AgentRole
from routing.config import InOrder, Section
from routing.path_rules import PathRule, is_covered

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

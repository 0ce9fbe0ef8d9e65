"""A plan: which agents, in what order, with what context, and where a person looks (seed 001's layer 3, S-074).

These four decisions are all that a plan can say. It has no field for a model, a budget, a time or a key, and any other
field is refused, so what the orchestrator writes can be stored, shown and run without being trusted.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

MAX_STEPS = 200
"""More than any configuration allows (routing.run_rules): a longer plan is not even compared."""
MAX_WRITES = 30
StepId = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,39}$")]
"""No `_`: the service joins its own names with it (keys.py), so that no plan can take one of them."""
Task = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=8000)]
Reference = Annotated[str, StringConstraints(min_length=1, max_length=300)]
Classification = Literal["build", "fix", "question"]


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PlanStep(_Value):
    """One task for one agent."""

    id: StepId
    agent: Annotated[str, Field(max_length=81)]
    task: Task
    depends_on: Annotated[tuple[StepId, ...], Field(max_length=MAX_STEPS)] = ()
    context: Annotated[tuple[Reference, ...], Field(max_length=MAX_STEPS)] = ()
    """What it is to read: ids of steps (also of steps done before this plan), and paths."""
    writes: Annotated[tuple[Reference, ...], Field(max_length=MAX_WRITES)] = ()
    """Where it may write, within what its agent may; empty = all of that. Rules as in routing.path_rules."""


class PlanGate(_Value):
    """A person looks after a step, before anything that depends on it starts."""

    after: StepId
    reason: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=300)]


class Plan(_Value):
    """The execution plan of a run, or of one cycle of rework."""

    classification: Classification
    """The dominant part of the ticket: a mixed one is `build` with steps that fix (ruling A38)."""
    steps: Annotated[tuple[PlanStep, ...], Field(min_length=1, max_length=MAX_STEPS)]
    gates: Annotated[tuple[PlanGate, ...], Field(max_length=50)] = ()


class Part(_Value):
    """One of the parallel frontend steps of the build template."""

    task: Task
    writes: Annotated[tuple[Reference, ...], Field(min_length=1, max_length=MAX_WRITES)]
    """Directories of its own: no other part may write there, which is what App-last rests on (P-058)."""


class BuildChoice(_Value):
    """The build template with its parameters."""

    template: Literal["build"]
    parts: Annotated[tuple[Part, ...], Field(max_length=16)] = ()
    """The parallel frontend steps 1..N; none = Setup and App do it all."""
    backend: Task | None = None
    """What the backend step does; None = there is none (P-019)."""
    gates: Annotated[tuple[PlanGate, ...], Field(max_length=50)] = ()


class FixChoice(_Value):
    """The fix template with its parameters."""

    template: Literal["fix"]
    scopes: Annotated[tuple[Literal["frontend", "backend", "styling"], ...], Field(min_length=1, max_length=3)]
    task: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=7000)] | None = None
    """What has to be fixed, in the orchestrator's words; None = the ticket says it."""
    gates: Annotated[tuple[PlanGate, ...], Field(max_length=50)] = ()


class SequentialChoice(_Value):
    """The sequential template of seed 003's first version, for comparison (P-008)."""

    template: Literal["sequential"]
    gates: Annotated[tuple[PlanGate, ...], Field(max_length=50)] = ()


TemplateChoice = Annotated[BuildChoice | FixChoice | SequentialChoice, Field(discriminator="template")]

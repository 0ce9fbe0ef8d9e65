"""A run as the scheduler sees it: facts of the ledger, and nothing that could be derived from them.

No column says where a run stands. Its phase follows from its steps, their results and its gates (schedule.py), so a
coordinator that was killed between any two of them finds the same next move.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from ledger.runs.specs import AGAIN, GateState, NewGate, NewStep, Phase, StepState
from routing.config import Text
from routing.decision.router import Intent
from routing.jobs import Reason, State
from routing.policy.agents import ARTIFACTS, AgentDefinition, RunRules
from sites.errors import PathRefusedError
from sites.files import check_path
from workers.errors import ResultInvalidError
from workers.runs.scheduling.plan import find_ancestors, judges, makes

MAX_ISSUES = 100
MAX_ARTIFACTS = 200
MAX_NAMED_ERRORS = 20


class Status(StrEnum):
    """How an agent leaves its task."""

    COMPLETE = "complete"
    NEEDS_REWORK = "needs_rework"
    """Earlier work has to change beyond what listed issues say: the orchestrator plans it."""
    BLOCKED = "blocked"
    """Nothing in the workspace lets it continue. The orchestrator tries to plan around it; if the orchestrator itself
    says so, only a person can help.
    """


def _check_file(path: str) -> str:
    try:
        return check_path(path)
    except PathRefusedError as error:
        raise ValueError(f"must be a path relative to the project's root ({error.reason})") from None


FilePath = Annotated[str, Field(max_length=500), AfterValidator(_check_file)]


class Issue(BaseModel):
    """One finding of a reviewer, or one error of a build."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    severity: Literal["blocking", "minor"]
    title: Annotated[Text, Field(min_length=1, max_length=300)]
    detail: Annotated[Text, Field(max_length=8000)] = ""
    file: FilePath | None = None
    line: Annotated[int, Field(ge=1, le=10_000_000)] | None = None


class AgentResult(BaseModel):
    """`.agent-result.json`: an agent's report, the only thing of a step that decisions are based on.

    An agent writes it, so every value is hostile: sizes are bounded, unknown fields are refused (a misspelt `issues`
    would lose what QA found), and an invalid file fails the step (S-051).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: Status
    summary: Annotated[Text, Field(min_length=1, max_length=16_000)]
    artifacts: Annotated[tuple[FilePath, ...], Field(max_length=MAX_ARTIFACTS)] = ()
    """Files that it wrote for others to read."""
    issues: Annotated[tuple[Issue, ...], Field(max_length=MAX_ISSUES)] = ()
    plan: dict[str, Any] | None = None
    """Agent orchestrator only: a plan or the choice of a template (plan.py), judged by planning.py."""
    intent: Literal["build", "fix"] | None = None
    """Agent orchestrator:classify only."""
    answer: Annotated[Text, Field(max_length=64_000)] | None = None
    """Agent orchestrator:question, or Research asked to look something up: the caller's answer."""

    @property
    def blocking(self) -> tuple[Issue, ...]:
        """The issues that must be fixed; the others are only reported (ruling A36: issue count = these)."""
        return tuple(issue for issue in self.issues if issue.severity == "blocking")


def parse_result(raw: bytes) -> AgentResult:
    """Parse a `.agent-result.json`.

    Raises:
        ResultInvalidError: the agent's fault; names each field and the rule it breaks, and repeats no value.
    """
    try:
        return AgentResult.model_validate_json(raw)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)[:MAX_NAMED_ERRORS]
        raise ResultInvalidError("; ".join(_rule(item) for item in found)) from None


def _rule(item: Any) -> str:
    place = ".".join(str(part) for part in item["loc"])[:100] or "the file"
    rule = "is not a field of a result" if item["type"] == "extra_forbidden" else item["msg"]
    return f"{place}: {rule.removeprefix('Value error, ')}"


@dataclass(frozen=True)
class StepView(NewStep):
    """A step and how it went so far. A run's steps are in the order of recording."""

    state: StepState = StepState.PENDING
    tries: int = 0
    """Attempts started."""
    result: AgentResult | None = None
    """Of the attempt that completed."""
    failure: Reason | None = None
    """Why the last attempt failed."""
    detail: str = ""
    """The same in words."""
    changed: tuple[str, ...] = ()
    """Paths that its commit changed, `artifacts/` included."""
    cancelling: bool = False
    """Its running attempt was asked to stop, or has ended: there is nothing to cancel."""


@dataclass(frozen=True)
class GateView(NewGate):
    """A gate and its state."""

    state: GateState = GateState.PLANNED
    note: str = ""
    """Why it was decided as it was."""

    def successor(self, round: int) -> NewGate:
        """Return the gate that asks again once a round of rework is done."""
        return NewGate(f"{self.key}-r{round}", self.kind, self.reason, self.after)


@dataclass(frozen=True)
class RunView:
    """Everything that a run's next move depends on."""

    state: State
    """Of the run's job."""
    intent: Intent | None
    """None where the rules could not tell build from fix (ruling A5): the classifier is asked."""
    read_only: bool = False
    priority: Literal["P0", "P1", "P2", "P3"] = "P2"
    labels: tuple[str, ...] = ()
    high_stakes: bool = False
    has_build: bool = False
    """Whether the project has a build of its own."""
    budget_spent: bool = False
    """Nothing more fits the rest of the run's budget."""
    cancel_requested: bool = False
    scan: Literal["passed", "refused"] | None = None
    scan_detail: str = ""
    by_hand: tuple[str, ...] = ()
    """Paths that people changed at its gates."""
    steps: tuple[StepView, ...] = ()
    gates: tuple[GateView, ...] = ()


@dataclass(frozen=True)
class Rulebook:
    """What bounds a run: layers 1 and 2 of the configuration, which no plan can change."""

    rules: RunRules
    agents: Mapping[str, AgentDefinition]
    redact: Callable[[str], str]
    """Replaces key-like text (routing.redaction with the project's known keys); a changed text contains a key."""


NOT_RETRIED = frozenset(
    {
        Reason.COST_CAP,
        Reason.TIME_LIMIT,
        Reason.OUTPUT_CAP,
        Reason.NO_PROVIDER_KEY,
        Reason.COMMAND_REFUSED,
        Reason.OUTPUT_REFUSED,
        Reason.SCAN_REFUSED,
        Reason.INVALID_REQUEST,
        Reason.NOT_AVAILABLE,
        Reason.CANCELLED,
    }
)
"""Budget, hard limits, policy refusals and authentication: the same attempt would end the same way (ruling A13)."""
_MAY_ASK_FOR_REWORK = frozenset({Phase.WORK, Phase.REPAIR, Phase.REMEDY, Phase.REVIEW})


@dataclass(frozen=True)
class Facts:
    """What follows directly from a view; the vocabulary of the scheduler's rules."""

    view: RunView
    book: Rulebook

    @cached_property
    def by_key(self) -> Mapping[str, StepView]:
        """Every step by its key."""
        return {step.key: step for step in self.view.steps}

    @cached_property
    def running(self) -> tuple[StepView, ...]:
        """Steps with a running attempt."""
        return tuple(step for step in self.view.steps if step.state is StepState.RUNNING)

    @cached_property
    def pending(self) -> tuple[StepView, ...]:
        """Steps that have not started."""
        return tuple(step for step in self.view.steps if step.state is StepState.PENDING)

    @cached_property
    def last_round(self) -> int:
        """How many cycles of rework have begun."""
        return max((step.round for step in self.view.steps), default=0)

    @cached_property
    def resolved(self) -> frozenset[str]:
        """Steps whose demand for rework a later round has taken up. Only looked at once that round is done."""
        return frozenset(
            key for step in self.view.steps if step.phase is Phase.PLAN and step.round for key in step.depends_on
        )

    @cached_property
    def changed(self) -> tuple[str, ...]:
        """Paths of the product that the run has changed, without the agents' own documents."""
        paths = {path for step in self.view.steps for path in step.changed} | set(self.view.by_hand)
        return tuple(sorted(path for path in paths if not path.startswith(ARTIFACTS)))

    @cached_property
    def makers(self) -> tuple[StepView, ...]:
        """Steps that change the product, of the whole run."""
        return tuple(step for step in self.view.steps if makes(step.agent, self.book.agents))

    def sent_back(self, round: int) -> str:
        """Return why a person sent the work back into a round of rework; empty where agents asked for it."""
        keys = {gate.key for gate in self.view.gates}
        sent = (gate for gate in self.view.gates if gate.state is GateState.REWORK)
        return next((gate.note for gate in sent if gate.successor(round).key in keys), "")

    def is_asked_again(self, gate: GateView) -> bool:
        """Whether a gate is recorded that asks again what this one asked: after rework, or a change by hand."""
        later = {f"{gate.key}{AGAIN}", *(gate.successor(round).key for round in range(1, self.last_round + 1))}
        return any(one.key in later for one in self.view.gates)

    def select(self, round: int, phase: Phase, *, cycle: int | None = None) -> tuple[StepView, ...]:
        """Return the steps of a round and phase."""
        return tuple(
            step
            for step in self.view.steps
            if step.round == round and step.phase is phase and (cycle is None or step.cycle == cycle)
        )

    def about(self, round: int) -> tuple[str, ...]:
        """Return the steps whose results a round of rework addresses; none for round 0."""
        return next((step.depends_on for step in self.select(round, Phase.PLAN)), ())

    def final_reviews(self, round: int) -> tuple[StepView, ...]:
        """Return the steps that judge everything a round made."""
        work = self.select(round, Phase.WORK)
        keys = find_final_reviews(work, self.book.agents)
        return tuple(step for step in work if step.key in keys)

    def reviews(self, round: int, *, cycle: int) -> tuple[StepView, ...]:
        """Return the reviews of a round before any fix (cycle 0) or after a cycle of fixes."""
        return self.select(round, Phase.REVIEW, cycle=cycle) if cycle else self.final_reviews(round)

    def latest_reviews(self, round: int) -> tuple[StepView, ...]:
        """Return the latest reviews of a round."""
        return self.reviews(round, cycle=max((step.cycle for step in self.select(round, Phase.REVIEW)), default=0))

    def latest_verdicts(self) -> tuple[StepView, ...]:
        """Return the latest reviews and builds of every round."""
        rounds = range(self.last_round + 1)
        reviews = (step for round in rounds for step in self.latest_reviews(round))
        checks = (step for round in rounds for step in self.select(round, Phase.CHECK)[-1:])
        return (*reviews, *checks)

    def is_satisfied(self, step: StepView) -> bool:
        """Whether the dependents of a step may start."""
        if step.state is not StepState.COMPLETED:
            return False
        return step.result is None or step.result.status is Status.COMPLETE or step.key in self.resolved

    def are_satisfied(self, steps: Iterable[StepView]) -> bool:
        """Whether all of the steps are satisfied."""
        return all(self.is_satisfied(step) for step in steps)

    def demands_rework(self, step: StepView) -> bool:
        """Whether a step's result asks for rework that no round has taken up."""
        return step.phase in _MAY_ASK_FOR_REWORK and step.state is StepState.COMPLETED and not self.is_satisfied(step)

    def may_retry(self, step: StepView) -> bool:
        """Whether a failed step gets another attempt."""
        return (
            step.state is StepState.FAILED
            and step.tries <= self.book.rules.max_retries
            and step.failure not in NOT_RETRIED
        )

    def halts(self, step: StepView) -> bool:
        """Whether a step's failure ends the run. A ticket that cannot be classified is built (ruling A5)."""
        if step.state is not StepState.FAILED or self.may_retry(step):
            return False
        return step.phase is not Phase.CLASSIFY or step.failure in NOT_RETRIED

    def blocking(self, step: StepView) -> tuple[Issue, ...]:
        """Return the issues of a step that still have to be fixed."""
        return () if step.result is None or step.key in self.resolved else step.result.blocking

    def resolvers(self, keys: Iterable[str]) -> tuple[str, ...]:
        """Return the steps of rework that replace the given ones, transitively."""
        found: list[str] = []
        replaced = set(keys)
        for round in range(1, self.last_round + 1):
            if replaced.intersection(self.about(round)):
                work = [step.key for step in self.select(round, Phase.WORK)]
                found.extend(work)
                replaced.update(work)
        return tuple(found)


def find_final_reviews(steps: Sequence[NewStep], agents: Mapping[str, AgentDefinition]) -> frozenset[str]:
    """Return the keys of a plan's judging steps after which nothing more is made."""
    ancestors = find_ancestors({step.key: step.depends_on for step in steps})
    made_after = {key for step in steps if makes(step.agent, agents) for key in ancestors[step.key]}
    return frozenset(step.key for step in steps if judges(step.agent, agents) and step.key not in made_after)

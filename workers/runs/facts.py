"""What follows at once from a run's records: the words in which the scheduler's rules are written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from routing.agents import AgentDefinition
from routing.jobs import Reason
from routing.path_rules import ARTIFACTS
from workers.runs.graph import find_ancestors
from workers.runs.results import Issue, Status
from workers.runs.roles import judges, makes
from workers.runs.view import NewStep, Phase, Rulebook, RunView, StepState, StepView

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
"""Budget, hard limits, policy refusals and authentication: the same attempt again would end the same (ruling A13)."""
_MAY_ASK_FOR_REWORK = frozenset({Phase.WORK, Phase.REPAIR, Phase.REMEDY, Phase.REVIEW})


@dataclass(frozen=True)
class Facts:
    """A view, and what the rules ask of it."""

    view: RunView
    book: Rulebook

    @cached_property
    def by_key(self) -> Mapping[str, StepView]:
        """Every step by its key."""
        return {step.key: step for step in self.view.steps}

    @cached_property
    def running(self) -> tuple[StepView, ...]:
        """Steps with an attempt under way."""
        return tuple(step for step in self.view.steps if step.state is StepState.RUNNING)

    @cached_property
    def pending(self) -> tuple[StepView, ...]:
        """Steps that have not started."""
        return tuple(step for step in self.view.steps if step.state is StepState.PENDING)

    @cached_property
    def last_round(self) -> int:
        """How many cycles of rework were begun."""
        return max((step.round for step in self.view.steps), default=0)

    @cached_property
    def resolved(self) -> frozenset[str]:
        """Steps whose demand for rework a later round has taken up. It is looked at only once that round is done."""
        return frozenset(
            key for step in self.view.steps if step.phase is Phase.PLAN and step.round for key in step.depends_on
        )

    @cached_property
    def changed(self) -> tuple[str, ...]:
        """Paths of the product that the run has changed; what agents tell each other is none of it."""
        paths = {path for step in self.view.steps for path in step.changed}
        return tuple(sorted(path for path in paths if not path.startswith(ARTIFACTS)))

    @cached_property
    def makers(self) -> tuple[StepView, ...]:
        """Steps that change the product, of the whole run."""
        return tuple(step for step in self.view.steps if makes(step.agent, self.book.agents))

    def select(self, round: int, phase: Phase, *, cycle: int | None = None) -> tuple[StepView, ...]:
        """Return the steps of a round that are there for one thing."""
        return tuple(
            step
            for step in self.view.steps
            if step.round == round and step.phase is phase and (cycle is None or step.cycle == cycle)
        )

    def about(self, round: int) -> tuple[str, ...]:
        """Return the steps that a round of rework is about; none for round 0."""
        return next((step.depends_on for step in self.select(round, Phase.PLAN)), ())

    def final_reviews(self, round: int) -> tuple[StepView, ...]:
        """Return the steps that judge what a whole round has made."""
        work = self.select(round, Phase.WORK)
        keys = find_final_reviews(work, self.book.agents)
        return tuple(step for step in work if step.key in keys)

    def reviews(self, round: int, *, cycle: int) -> tuple[StepView, ...]:
        """Return the reviews of a round before any mending (cycle 0) or after a cycle of it."""
        return self.select(round, Phase.REVIEW, cycle=cycle) if cycle else self.final_reviews(round)

    def latest_reviews(self, round: int) -> tuple[StepView, ...]:
        """Return the last word of the reviewers of a round."""
        return self.reviews(round, cycle=max((step.cycle for step in self.select(round, Phase.REVIEW)), default=0))

    def latest_verdicts(self) -> tuple[StepView, ...]:
        """Return the last word of every round's reviewers and builds."""
        rounds = range(self.last_round + 1)
        reviews = (step for round in rounds for step in self.latest_reviews(round))
        checks = (step for round in rounds for step in self.select(round, Phase.CHECK)[-1:])
        return (*reviews, *checks)

    def is_satisfied(self, step: StepView) -> bool:
        """Tell whether what depends on a step may start."""
        if step.state is not StepState.COMPLETED:
            return False
        return step.result is None or step.result.status is Status.COMPLETE or step.key in self.resolved

    def are_satisfied(self, steps: Iterable[StepView]) -> bool:
        """Tell whether all of the steps are satisfied."""
        return all(self.is_satisfied(step) for step in steps)

    def demands_rework(self, step: StepView) -> bool:
        """Tell whether a step's result asks for rework that no round has taken up."""
        return step.phase in _MAY_ASK_FOR_REWORK and step.state is StepState.COMPLETED and not self.is_satisfied(step)

    def may_retry(self, step: StepView) -> bool:
        """Tell whether a failed step gets another attempt."""
        return (
            step.state is StepState.FAILED
            and step.tries <= self.book.rules.max_retries
            and step.failure not in NOT_RETRIED
        )

    def halts(self, step: StepView) -> bool:
        """Tell whether a step's failure ends the run. A ticket that cannot be classified is built (ruling A5)."""
        if step.state is not StepState.FAILED or self.may_retry(step):
            return False
        return step.phase is not Phase.CLASSIFY or step.failure in NOT_RETRIED

    def blocking(self, step: StepView) -> tuple[Issue, ...]:
        """Return the issues of a step that still have to be mended."""
        return () if step.result is None or step.key in self.resolved else step.result.blocking

    def resolvers(self, keys: Iterable[str]) -> tuple[str, ...]:
        """Return the steps of rework that stand in for the given ones, and those that stand in for these."""
        found: list[str] = []
        asked = set(keys)
        for round in range(1, self.last_round + 1):
            if asked.intersection(self.about(round)):
                work = [step.key for step in self.select(round, Phase.WORK)]
                found.extend(work)
                asked.update(work)
        return tuple(found)


def find_final_reviews(steps: Sequence[NewStep], agents: Mapping[str, AgentDefinition]) -> frozenset[str]:
    """Return the keys of the steps of a plan that judge, and after which nothing more is made."""
    ancestors = find_ancestors({step.key: step.depends_on for step in steps})
    made_after = {key for step in steps if makes(step.agent, agents) for key in ancestors[step.key]}
    return frozenset(step.key for step in steps if judges(step.agent, agents) and step.key not in made_after)

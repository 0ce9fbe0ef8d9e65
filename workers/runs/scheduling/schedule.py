"""What a run does next: one pure function from the facts of a run to its next move.

The rules apply in a fixed order, and the first that matches decides: whatever stops the run; a retry; then the rounds
from the latest rework down to the run's own plan, because a round continues only when the rework that it asked for is
settled; and when all are settled, the end. Every view leads to exactly one decision.
"""

from __future__ import annotations

from ledger.runs.specs import NewStep, Phase, StepState
from routing.jobs import Reason, State
from workers.runs.scheduling.ending import (
    Decision,
    EndRun,
    StartStep,
    decide_answer,
    decide_end,
    decide_stop,
    due_within,
    has_unanswered,
    is_held,
    waiting,
)
from workers.runs.scheduling.plan import makes
from workers.runs.scheduling.planning import decide_plan
from workers.runs.scheduling.remedies import begin_rework, decide_check, decide_reviews, decide_sent_back
from workers.runs.scheduling.view import Facts, Rulebook, RunView, StepView

_AFTER_ANY_RESULT = frozenset({Phase.PLAN, Phase.REPAIR})
"""They deal with bad results: it is enough that what they depend on has ended."""


def decide_round(facts: Facts, round: int) -> Decision | None:
    """Return the next move of a round, or None once it is settled: made, built, reviewed, and nothing left to fix.

    Every step whose dependencies are done starts at once (P-035), up to the parallel limit. Only the reviews of the
    whole round wait for everything that is made in it, and for a build that works.
    """
    demanded = _decide_demands(facts, round)
    if demanded is not None:
        return demanded
    for move in (due_within(facts, round), _start(facts, round), _wait(facts)):
        if move is not None:
            return move
    if not facts.select(round, Phase.WORK):
        return decide_plan(facts, round)
    return _decide_after_work(facts, round)


def _decide_after_work(facts: Facts, round: int) -> Decision | None:
    makers = _makers(facts, round)
    if makers and facts.are_satisfied(makers) and not facts.select(round, Phase.REMEDY):
        checked = decide_check(facts, round, cycle=0)
        if checked is not None:
            return checked
    if any(step.round == round for step in facts.pending):
        return waiting(facts, round=round) or _stuck(facts)
    reviewed = decide_reviews(facts, round)
    if reviewed is not None:
        return reviewed
    return (waiting(facts, round=round) or _stuck(facts)) if has_unanswered(facts, round) else None


def _decide_demands(facts: Facts, round: int) -> Decision | None:
    """Handle results that ask for rework: nothing new starts, running steps end, then rework is planned."""
    asking = [step for step in facts.view.steps if step.round == round and facts.demands_rework(step)]
    if not asking:
        return None
    names = ", ".join(step.key for step in asking)
    if facts.running:
        going = ", ".join(step.key for step in facts.running)
        return Decision((), f"{names} asked for rework; no new step starts, waiting for {going} to end")
    also = [step for step in facts.latest_reviews(round) if step not in asking and facts.blocking(step)]
    return begin_rework(facts, (*asking, *also), why=f"{names} asked for rework")


def _start(facts: Facts, round: int) -> Decision | None:
    free = facts.book.rules.max_parallel - len(facts.running)
    ready = [step for step in facts.pending if step.round == round and _is_ready(step, facts)][: max(0, free)]
    if not ready:
        return None
    starts = tuple(StartStep(step.key, step.tries + 1, context_of(step, facts)) for step in ready)
    return Decision(starts, f"what they depend on is done: {', '.join(step.key for step in ready)} start(s)")


def _wait(facts: Facts) -> Decision | None:
    if not facts.running:
        return None
    return Decision((), f"waiting for {', '.join(step.key for step in facts.running)} to end")


def _is_ready(step: StepView, facts: Facts) -> bool:
    before = [facts.by_key[key] for key in step.depends_on if key in facts.by_key]
    if step.phase in _AFTER_ANY_RESULT:
        return all(one.state is StepState.COMPLETED for one in before)
    if not facts.are_satisfied(before):
        return False
    if step.phase is not Phase.WORK:
        return True
    return not is_held(step, facts) and (step not in facts.final_reviews(step.round) or _may_review(facts, step.round))


def _may_review(facts: Facts, round: int) -> bool:
    """Whether a round can be judged as a whole: everything is made, and it builds."""
    makers = _makers(facts, round)
    if not facts.are_satisfied(makers):
        return False
    return not makers or decide_check(facts, round, cycle=0) is None


def _makers(facts: Facts, round: int) -> list[StepView]:
    return [step for step in facts.select(round, Phase.WORK) if makes(step.agent, facts.book.agents)]


def context_of(step: NewStep, facts: Facts) -> tuple[str, ...]:
    """Return what is staged for a step: results of completed steps only (S-046), then paths.

    Where a step that it depends on was reworked, the steps of the rework are added.
    """
    named = dict.fromkeys((*step.depends_on, *step.context))
    steps = (*(name for name in named if name in facts.by_key), *facts.resolvers(named))
    done = [key for key in steps if facts.by_key[key].state is StepState.COMPLETED]
    return tuple(dict.fromkeys((*done, *(name for name in named if name not in facts.by_key))))


def _stuck(facts: Facts) -> Decision:
    """End a run that no rule can advance; none should get here."""
    names = ", ".join(step.key for step in facts.pending)
    detail = f"internal error: nothing runs, nobody is asked, and nothing can start ({names})"
    return Decision((EndRun(State.FAILED, Reason.INTERNAL_ERROR, detail),), detail)


def next_actions(view: RunView, book: Rulebook) -> Decision:
    """Return the next move of a run; the same facts always give the same move."""
    facts = Facts(view, book)
    for move in (decide_stop(facts), _decide_retry(facts), decide_sent_back(facts), decide_answer(facts)):
        if move is not None:
            return move
    for round in sorted({0, *(step.round for step in view.steps)}, reverse=True):
        decided = decide_round(facts, round)
        if decided is not None:
            return decided
    return decide_end(facts)


def _decide_retry(facts: Facts) -> Decision | None:
    free = facts.book.rules.max_parallel - len(facts.running)
    again = [step for step in facts.view.steps if facts.may_retry(step)][: max(0, free)]
    if not again:
        return None
    starts = tuple(StartStep(step.key, step.tries + 1, context_of(step, facts)) for step in again)
    limit = facts.book.rules.max_retries
    retries = ", ".join(f"{step.key} (retry {step.tries} of {limit}: {_reason(step.failure)})" for step in again)
    return Decision(starts, f"tried again: {retries}")


def _reason(failure: Reason | None) -> str:
    return failure.value if failure else "it failed"

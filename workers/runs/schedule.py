"""What a run does next: one pure function from the facts of a run to the one next move.

The rules are asked in a fixed order, and the first that has something to say decides: whatever stops the run; a retry;
then the rounds from the latest rework down to the run's own plan, because a round goes on only when the rework that it
asked for is settled; and when all are settled, the end. Every view leads to exactly one decision.
"""

from __future__ import annotations

from routing.jobs import Reason
from workers.runs.actions import Decision, StartStep
from workers.runs.ending import decide_answer, decide_end, decide_stop
from workers.runs.facts import Facts
from workers.runs.rounds import context_of, decide_round
from workers.runs.view import Rulebook, RunView


def next_actions(view: RunView, book: Rulebook) -> Decision:
    """Return the next move of a run; the same facts always give the same move.

    Args:
        view: the run as the ledger has it.
        book: what bounds it.
    """
    facts = Facts(view, book)
    for move in (decide_stop(facts), _decide_retry(facts), decide_answer(facts)):
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
    told = ", ".join(f"{step.key} (retry {step.tries} of {limit}: {_reason(step.failure)})" for step in again)
    return Decision(starts, f"tried again: {told}")


def _reason(failure: Reason | None) -> str:
    return failure.value if failure else "it failed"

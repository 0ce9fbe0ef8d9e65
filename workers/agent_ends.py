"""How a session's end becomes its job's end: one table, worked out from values alone.

Nothing here is ever tried again by itself: a session that ran out of time or money would do so once more.
"""

from __future__ import annotations

from dataclasses import dataclass

from routing.jobs import Reason, State
from routing.prices import BudgetExceeded
from sandbox.claude.session import End, Verdict
from sandbox.errors import PathRefusedError, TreeRefusedError
from workers.outcomes import Ended

ENDS: dict[End, tuple[State, Reason]] = {
    End.REFUSED: (State.FAILED, Reason.BOX_FAILED),
    End.FAILED: (State.FAILED, Reason.AGENT_FAILED),
    End.TIME: (State.TIMED_OUT, Reason.TIME_LIMIT),
    End.BUDGET: (State.BUDGET_EXCEEDED, Reason.COST_CAP),
    End.OUTPUT: (State.OUTPUT_EXCEEDED, Reason.OUTPUT_CAP),
    End.RESOURCES: (State.FAILED, Reason.RESOURCE_LIMIT),
    End.BOX_LOST: (State.FAILED, Reason.BOX_FAILED),
}
"""How a session's end is told in a job's words."""
TOO_LARGE = frozenset({"too_many_bytes", "stream_too_long", "file_too_large"})


@dataclass(frozen=True)
class Session:
    """What is known when a session's box is gone."""

    verdict: Verdict
    exceeded: BudgetExceeded | None
    """The budget that refused or cut one of its model calls, by the ledger's account."""
    refused: PathRefusedError | TreeRefusedError | None
    """Why none of its files are taken."""
    has_changes: bool


def end_of(session: Session) -> Ended | None:
    """Return how the job ends; None when the session's files become a candidate."""
    if session.verdict.is_done:
        return _end_of_done(session)
    verdict = session.verdict
    if session.exceeded is not None and verdict.end in (End.FAILED, End.BUDGET):
        return Ended(State.BUDGET_EXCEEDED, Reason.COST_CAP, f"{session.exceeded}; {_kept(session)}")
    state, reason = ENDS[verdict.end]
    return Ended(state, reason, f"the agent's session ended: {verdict.text}; {_kept(session)}")


def _end_of_done(session: Session) -> Ended | None:
    if session.refused is not None:
        is_large = session.refused.reason in TOO_LARGE
        state, reason = (
            (State.OUTPUT_EXCEEDED, Reason.OUTPUT_CAP) if is_large else (State.FAILED, Reason.OUTPUT_REFUSED)
        )
        return Ended(state, reason, f"the agent's files are not taken: {session.refused}; nothing was kept")
    if not session.has_changes:
        said = session.verdict.text or "it said nothing"
        return Ended(State.FAILED, Reason.AGENT_FAILED, f"the agent changed no file; its own words: {said[:500]}")
    return None


def _kept(session: Session) -> str:
    if session.refused is not None:
        return f"its files are not taken: {session.refused}"
    return "the files as it left them are kept" if session.has_changes else "nothing was changed"

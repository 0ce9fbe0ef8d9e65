"""What the agents of a run do, as they do it: their tries laid out as bars, and their last words and tool calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from uuid import UUID

from sqlmodel import Session

from ledger.events import EventKind, newest_of_run
from producers.console.presentation import count, excerpt
from producers.console.waterfall import Fact, Span, within
from producers.use_cases.jobs import EventView, describe_events
from producers.use_cases.runs import ExecutionView, RunView, StepTreeView
from routing.policy.prices import nanousd_of

MOST_TRIES = 60
"""Tries of steps that are shown: the newest."""
MOST_NEWS = 40
"""Words and tool calls that are shown: the newest."""


def timeline_of(run: RunView, *, until: datetime) -> tuple[Span, ...]:
    """Return the tries of a run's steps in the order in which they began.

    Args:
        run: the run.
        until: its end, or now, until which what still runs is drawn.
    """
    tries = [
        (execution.started_at, _span(step, execution, execution.started_at))
        for step in run.steps
        for execution in step.executions
        if execution.started_at is not None
    ]
    newest = sorted(tries, key=lambda item: item[0])[-MOST_TRIES:]
    if not newest:
        return ()
    end = max(span.ended or until for _, span in newest)  # a person's hours at a gate would leave no room for the steps
    return tuple(within(span, newest[0][0], end) for _, span in newest)


def _span(step: StepTreeView, execution: ExecutionView, began: datetime) -> Span:
    number = f", try {execution.attempt}" if execution.attempt > 1 else ""
    return Span(
        kind="work" if step.agent is not None else "check",
        name=step.key,
        note=f"{step.agent or 'build'}{number}",
        began=began,
        ended=execution.ended_at,
        outcome="failed" if execution.status == "failed" else "",
        cost_nanousd=nanousd_of(float(execution.cost_usd)),
        key=f"{step.key}-{execution.attempt}",
        facts=(*_facts(step, execution),),
    )


def _facts(step: StepTreeView, execution: ExecutionView) -> Iterator[Fact]:
    if execution.model:
        yield Fact("Model", execution.model)
    if execution.tokens:
        yield Fact("Tokens", count(execution.tokens))
    if execution.attempt > 1:
        yield Fact("Retry", f"try {execution.attempt} of this step")
    if text := execution.detail or step.summary:
        yield Fact("Result", excerpt(text, 300))


def news_of(session: Session, run_id: UUID) -> Sequence[EventView]:
    """Return the newest words and tool calls of a run's agents, newest first."""
    events = newest_of_run(session, run_id, EventKind.PROGRESS, limit=MOST_NEWS)
    return describe_events(session, events)

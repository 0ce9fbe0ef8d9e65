"""What the end of a job means: for its run, for its task, and as a dead letter.

However an execution of a step ends, its row is settled in the transaction of that end, so no run waits for a step that
is over. A note to the ticket is a row of the transaction that made it true: none is lost with a process, none reports
what was rolled back, and an unreachable tracker holds up no run (S-030).

A task is what a tenant asked of a site, however many jobs tried it. Only ends of jobs count (R-051 to R-055, A12), not
retried attempts or escalations. A job becomes a dead letter in the transaction of its end (`jobs.end`), and stops being
one when another job continues it (`submission.accept`) or when somebody dismisses it (`dismiss`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, delete, exists, func, or_, select, text, tuple_
from sqlalchemy import update as sql_update
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import Session, col

from ledger import audit
from ledger.errors import ClusterNotFoundError, WrongStateError
from ledger.events import EventKind, record
from ledger.record_tables import TaskFailure
from ledger.runs.tables import AgentExecution, Gate, Project, ReviewComment, Run, RunStep, TicketNote
from ledger.store import OF_OPEN_TENANTS, Statement, after, moment, now, storable
from ledger.tables import ClaimedJob, Job, Tenant
from routing.decision.router import debate_key
from routing.decision.triggers import Stakes
from routing.failures import (
    INFRASTRUCTURE,
    LIMITS,
    FailureAction,
    FailureEvent,
    FailureHistory,
    advance,
    choose_failure_action,
    classify_end,
    error_signature,
)
from routing.jobs import MOVES, Reason, State
from routing.queues import QueueName

STARTED, ENDED, AT_GATE, REFUSED = "started", "ended", "gate:", "refused:"
"""Kinds of notes; a gate's is followed by the gate's key, and a refusal's by the id of the last comment."""
RETRY_SECONDS = (5, 30, 120, 600, 3600)
"""Waits before the second and later tries; after the last a note stays on record, unsent."""
_CLAIM_SECONDS = 60


class DueNote(NamedTuple):
    """A note to be sent now, with its subject."""

    note: TicketNote
    job: Job
    run: Run
    project: Project
    gate: Gate | None
    refused: str = ""
    """Why a comment on its pull request starts no round."""

    @property
    def pull_request(self) -> dict[str, Any] | None:
        """The pull request that it is written to: of a later round, and of a comment; None for the ticket."""
        if self.run.pull_request is not None or not self.refused:
            return self.run.pull_request
        return self.job.result.get("pull_request")


def owe_ticket_note(session: Session, run: Run, kind: str) -> None:
    """Queue a note for a run's ticket, or for a later round its pull request, one of each kind; none without either."""
    if not (run.ticket.get("reference") or run.pull_request or kind.startswith(REFUSED)):
        return
    values = {"run_id": run.job_id, "kind": kind, "attempts": 0, "next_at": now()}
    session.execute(insert(TicketNote).values(values).on_conflict_do_nothing())


_HAS_DUE_NOTE = Statement("""
    SELECT EXISTS (SELECT FROM ticket_note WHERE delivered_at IS NULL AND next_at <= (SELECT clock_timestamp()))
""")


def has_due_note(connection: Connection) -> bool:
    """Whether a note is due."""
    return bool(_HAS_DUE_NOTE.scalar(connection))


def claim_due_notes(session: Session, *, limit: int) -> list[DueNote]:
    """Claim notes that are due, oldest first, so that no other process sends them for a minute."""
    due = (col(TicketNote.delivered_at).is_(None)) & (col(TicketNote.next_at) <= moment())
    due &= exists().where(col(Job.id) == col(TicketNote.run_id), text(OF_OPEN_TENANTS))
    key = tuple_(col(TicketNote.run_id), col(TicketNote.kind))
    oldest = select(*key.clauses).where(due).order_by(col(TicketNote.next_at)).limit(limit)
    claimed = (
        sql_update(TicketNote)
        .where(key.in_(oldest.with_for_update(skip_locked=True)))
        .values(attempts=col(TicketNote.attempts) + 1, next_at=after(_CLAIM_SECONDS))
        .returning(TicketNote)
    )
    notes = session.scalars(claimed, execution_options={"populate_existing": True}).all()
    return [_with_facts(session, note) for note in sorted(notes, key=lambda note: note.created_at)]


def _with_facts(session: Session, note: TicketNote) -> DueNote:
    run = session.get_one(Run, note.run_id)
    gate = None
    if note.kind.startswith(AT_GATE):
        own = (col(Gate.run_id) == run.job_id) & (col(Gate.key) == note.kind.removeprefix(AT_GATE))
        gate = session.scalars(select(Gate).where(own)).one_or_none()
    job, project = session.get_one(Job, note.run_id), session.get_one(Project, run.project_id)
    refused = ""
    if note.kind.startswith(REFUSED):
        refused = session.get_one(ReviewComment, int(note.kind.removeprefix(REFUSED))).refused
    return DueNote(note, job, run, project, gate, refused)


def record_note_sent(
    session: Session, run_id: UUID, kind: str, *, attempts: int, error: str | None, is_final: bool
) -> None:
    """Record the outcome of a try to send a note.

    `attempts` is the number of this try; `is_final` means that another try is pointless.
    """
    if error is None:
        values: dict[str, Any] = {"delivered_at": now(), "next_at": None, "error": None}
    else:
        is_last = is_final or attempts > len(RETRY_SECONDS)
        again = None if is_last else after(RETRY_SECONDS[attempts - 1])
        values = {"next_at": again, "error": storable(error)[:400]}
    own = (col(TicketNote.run_id) == run_id) & (col(TicketNote.kind) == kind)
    if error is not None:  # a sender that was away for long must not overrule another one
        own &= col(TicketNote.attempts) == attempts
    session.execute(sql_update(TicketNote).where(own).values(**values))


_STATUS_OF_END = {State.ANSWERED: "completed", State.CANCELLED: "cancelled"}


def is_step(job: Job | ClaimedJob) -> bool:
    """Whether a job is one execution of a step of a run; the run reports for it."""
    return job.queue == QueueName.STEPS and job.parent_id is not None


def is_run(job: Job | ClaimedJob) -> bool:
    """Whether a job is a run."""
    return bool(job.request.get("project")) and not is_step(job)


def is_import(job: Job | ClaimedJob) -> bool:
    """Whether a job makes a release of an uploaded archive."""
    return "upload" in job.request


def settle_end(session: Session, job: Job, target: State, *, reason: Reason, detail: str) -> None:
    """Settle the execution of a step's job that is ending; of a run, close everything."""
    if is_run(job):
        _close_run(session, job)
    if not is_step(job):
        return
    status = _STATUS_OF_END.get(target, "failed")
    # A run that has ended merges nothing any more: its rows must not be selected again and again.
    run_is_over = exists().where(col(Job.id) == job.parent_id, col(Job.ended_at).is_not(None))
    session.execute(
        sql_update(AgentExecution)
        .where(col(AgentExecution.job_id) == job.id, col(AgentExecution.settled_at).is_(None))
        .values(
            status=status,
            reason=reason.value,
            detail=detail or None,
            settled_at=now(),
            absorbed_at=select(now()).where(run_is_over).scalar_subquery(),
        )
    )
    record(session, EventKind.RUN_STEP, job=job, status=status, reason=reason.value, detail=detail[:400])


def _close_run(session: Session, job: Job) -> None:
    """Stop the live steps of a run that ends, and close its gates."""
    live = select(col(AgentExecution.job_id)).where(is_live_step_of(job))
    stopped = (col(Job.id).in_(live)) & (col(Job.cancel_requested_at).is_(None))
    session.execute(sql_update(Job).where(stopped).values(cancel_requested_at=now()))
    unstarted = (col(RunStep.run_id) == job.id) & (col(RunStep.state) == "pending")
    session.execute(sql_update(RunStep).where(unstarted).values(state="skipped", ended_at=now()))
    waiting = (col(Gate.run_id) == job.id) & col(Gate.state).in_(("planned", "open"))
    session.execute(sql_update(Gate).where(waiting).values(state="closed", decided_at=now()))
    if (run := session.get(Run, job.id)) is not None:
        owe_ticket_note(session, run, ENDED)


def is_live_step_of(job: Job) -> ColumnElement[bool]:
    """Return what is true of the executions of a run that have not ended."""
    return (col(AgentExecution.run_id) == job.id) & col(AgentExecution.settled_at).is_(None)


ASKING = (State.AWAITING_APPROVAL, State.CLARIFYING)
"""States in which a job waits for a person."""
CALLBACK, CHAT, MAIL = "callback", "chat", "mail"

_OWE = Statement("""
    INSERT INTO notice (id, job_id, tenant, channel, callback_url, payload, next_at)
    SELECT gen_random_uuid(), %(job)s, tenant.name, place.channel, place.url,
           jsonb_strip_nulls(jsonb_build_object(
               'type', 'job.' || CAST(%(state)s AS text), 'job_id', CAST(%(job)s AS uuid),
               'state', CAST(%(state)s AS text), 'site', (SELECT name FROM site WHERE id = CAST(%(site)s AS uuid)))),
           clock_timestamp()
      FROM tenant CROSS JOIN LATERAL
           (VALUES ('callback', CAST(%(url)s AS text)), ('chat', NULL), ('mail', NULL)) AS place (channel, url)
     WHERE tenant.name = %(tenant)s AND tenant.notices @> to_jsonb(CAST(%(state)s AS text))
       AND CASE place.channel WHEN 'chat' THEN tenant.chat_url IS NOT NULL WHEN 'mail' THEN tenant.mail_to <> '[]'
           ELSE place.url IS NOT NULL END
""")
"""What a notice says: ids, a state and a site's name, never a prompt, an answer or a secret."""


def owe_notices(session: Session, job: Job) -> None:
    """Owe the notices of a job that has just moved, if it waits for a person now; a step is its run's matter."""
    if job.state in ASKING and not is_step(job):
        url = job.request.get("callback_url")
        values = {"job": job.id, "tenant": job.tenant, "state": job.state, "site": job.site_id, "url": url}
        _OWE.all(session, values)


RECENT = 3
"""How many of a task's failures are stored for a debate."""
DETAIL_LIMIT = 400
"""Characters that are stored of one failure's detail."""


@dataclass(frozen=True)
class Consequence:
    """What an end leads to."""

    state: State
    """The final state: `escalated` instead of `failed` when a person has to decide."""
    action: FailureAction = FailureAction.NONE
    failures: tuple[Mapping[str, str], ...] = ()
    """The task's latest failures, the newest last."""


def task_key(job: Job | ClaimedJob, *, first_prompt: str) -> str:
    """Return the key of a job's task: tenant, site or project, and canonical request.

    A revision belongs to the task of its first request, so that a second rejection is noticed (R-053).
    """
    target = str(job.site_id) if job.site_id else job.request.get("project")
    text = json.dumps([job.tenant, target, debate_key(first_prompt)])
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _task_key(session: Session, job: Job) -> str:
    first = job if job.root_id == job.id else session.get(Job, job.root_id)
    return task_key(job, first_prompt=(first or job).prompt)


def count_end(session: Session, job: Job, target: State, *, reason: Reason, detail: str) -> Consequence:
    """Count the end of a locked job before it is written, and return its consequence."""
    event = _event(session, job, target) if reason not in INFRASTRUCTURE else None
    if event is None:
        return Consequence(target)
    key = _task_key(session, job)
    if event is FailureEvent.SUCCEEDED:
        session.execute(delete(TaskFailure).where(col(TaskFailure.key) == key))
        return Consequence(target)
    row = _locked(session, job.tenant, key)
    has_own_error = event is FailureEvent.FAILED and reason not in LIMITS
    signature = error_signature(reason.value, storable(detail)) if has_own_error else None
    is_known = signature is not None and _is_known_elsewhere(session, row, signature)
    history = replace(_history_of(job, row), same_error_elsewhere=is_known)
    action = choose_failure_action(history, event)
    counted = advance(history, event)
    row.failures, row.rejections = counted.consecutive_failures, counted.rejections
    row.is_debated = history.is_debated or action is FailureAction.DEBATE_FAILURE
    row.error_signature = signature or row.error_signature
    row.recent = [*row.recent, {"reason": reason.value, "detail": storable(detail)[:DETAIL_LIMIT]}][-RECENT:]
    session.flush()
    return Consequence(_end_of(job, target, action), action, tuple(row.recent))


def rejection_starts_debate(session: Session, job: Job) -> bool:
    """Whether the rejection of a job's preview would start a debate, and with it a new job: paid work."""
    if _event(session, job, State.REJECTED) is None:
        return False
    row = session.get(TaskFailure, _task_key(session, job))
    if row is None:
        return False
    return choose_failure_action(_history_of(job, row), FailureEvent.REJECTED) is FailureAction.DEBATE_FAILURE


def _history_of(job: Job, row: TaskFailure) -> FailureHistory:
    return FailureHistory(
        consecutive_failures=row.failures,
        rejections=row.rejections,
        is_debated=row.is_debated,
        is_security=job.route.get("stakes") == Stakes.HIGH.value,
    )


def event_of_end(job: Job | ClaimedJob, target: State) -> FailureEvent | None:
    """Return what an end counts as for its task; None when it does not count.

    A command of the fast path and an import are no tasks of a model, and a step's execution is an inner attempt (A12).
    """
    event = classify_end(target)
    if event is FailureEvent.REJECTED and job.state != State.AWAITING_APPROVAL:
        return None
    return None if job.queue == QueueName.TOOLS or is_import(job) or is_step(job) else event


def _event(session: Session, job: Job, target: State) -> FailureEvent | None:
    """Return the same, or None where it cannot be debated: a tenant without a provider has no models for that."""
    event = event_of_end(job, target)
    if event is None:
        return None
    return event if session.get_one(Tenant, job.tenant).provider is not None else None


def _locked(session: Session, tenant: str, key: str) -> TaskFailure:
    """Return the task's counter with its row locked, created if needed."""
    fresh: dict[str, Any] = {"failures": 0, "rejections": 0, "is_debated": False, "recent": []}
    opened = insert(TaskFailure).values(key=key, tenant=tenant, updated_at=now(), **fresh)
    opened = opened.on_conflict_do_update(index_elements=["key"], set_={"updated_at": now()})
    return session.scalars(opened.returning(TaskFailure), execution_options={"populate_existing": True}).one()


def _is_known_elsewhere(session: Session, row: TaskFailure, signature: str) -> bool:
    other = select(col(TaskFailure.key)).where(
        col(TaskFailure.tenant) == row.tenant,
        col(TaskFailure.error_signature) == signature,
        col(TaskFailure.key) != row.key,
    )
    return session.scalar(other.limit(1)) is not None


def _end_of(job: Job, target: State, action: FailureAction) -> State:
    """Return the end state to write: only `failed` can turn into `escalated`."""
    may_escalate = target is State.FAILED and State.ESCALATED in MOVES[State(job.state)]
    return State.ESCALATED if action is FailureAction.AUTO_ESCALATE and may_escalate else target


_NAME_DIGITS = 10


class Cluster(NamedTuple):
    """Dead letters with one signature."""

    signature: str
    jobs: int
    reason: str
    example: UUID
    """The newest of them."""
    detail: str | None
    """Why that one ended, in words."""
    first_at: datetime
    last_at: datetime

    @property
    def name(self) -> str:
        """A short name of the signature, good for a command line and a URL."""
        return cluster_name(self.signature)


class ClusterMark(NamedTuple):
    """Where a page of clusters ended."""

    jobs: int
    signature: str


class JobMark(NamedTuple):
    """Where a page of a cluster's jobs ended."""

    ended_at: datetime
    id: UUID


def cluster_name(signature: str) -> str:
    """Return the short name of a signature."""
    return hashlib.md5(signature.encode(), usedforsecurity=False).hexdigest()[:_NAME_DIGITS]


def _is_dead(tenant: str) -> ColumnElement[bool]:
    is_open = col(Job.failure_signature).is_not(None) & col(Job.dismissed_at).is_(None)
    return (col(Job.tenant) == tenant) & is_open


def clusters(session: Session, tenant: str, *, after: ClusterMark | None = None, limit: int = 50) -> Sequence[Cluster]:
    """Return a tenant's clusters, the largest first."""
    signature, count = col(Job.failure_signature), func.count()
    grouped = (
        select(signature, count.label("jobs"), func.min(col(Job.ended_at)), func.max(col(Job.ended_at)))
        .where(_is_dead(tenant))
        .group_by(signature)
        .order_by(count.desc(), signature)
        .limit(limit)
    )
    if after is not None:
        grouped = grouped.having(or_(count < after.jobs, (count == after.jobs) & (signature > after.signature)))
    rows = session.execute(grouped).all()
    return [cluster for row in rows if (cluster := _with_example(session, tenant, *row)) is not None]


def _with_example(
    session: Session, tenant: str, signature: str, jobs: int, first_at: datetime, last_at: datetime
) -> Cluster | None:
    """Return a cluster with its newest job; None when all of its jobs were handled meanwhile."""
    newest = (
        select(col(Job.id), col(Job.reason), col(Job.detail))
        .where(_is_dead(tenant), col(Job.failure_signature) == signature)
        .order_by(col(Job.ended_at).desc())
        .limit(1)
    )
    row = session.execute(newest).first()
    return None if row is None else Cluster(signature, jobs, row[1], row[0], row[2], first_at, last_at)


def find_signature(session: Session, tenant: str, given: str) -> str:
    """Return the full signature of a tenant's dead letters, given in full or by its short name.

    Raises:
        ClusterNotFoundError: the caller's fault.
    """
    signature = col(Job.failure_signature)
    named = or_(signature == given, func.left(func.md5(signature), _NAME_DIGITS) == given)
    full = session.scalar(select(signature).where(_is_dead(tenant), named).limit(1))
    if full is None:
        raise ClusterNotFoundError
    return full


def dead_jobs(
    session: Session, tenant: str, signature: str, *, after: JobMark | None = None, limit: int = 50
) -> Sequence[Job]:
    """Return the dead letters of one signature in the order of their replay, oldest first."""
    query = select(Job).where(_is_dead(tenant), col(Job.failure_signature) == signature)
    if after is not None:
        query = query.where(tuple_(col(Job.ended_at), col(Job.id)) > tuple_(*after))
    return session.scalars(query.order_by(col(Job.ended_at), col(Job.id)).limit(limit)).all()


def dismiss(session: Session, job: Job, *, actor: str) -> bool:
    """Take a locked job off the dead letters; False when it was dismissed before.

    Raises:
        WrongStateError: the caller's fault: it is no dead letter.
    """
    if job.failure_signature is None:
        raise WrongStateError(job.id, job.state, "a dead letter")
    if job.dismissed_at is not None:
        return False
    job.dismissed_at = now()  # type: ignore[assignment]
    session.flush()
    audit.append(session, "dead_letter_dismissed", actor=actor, job=job, signature=job.failure_signature)
    return True

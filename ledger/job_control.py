"""Approve, reject, cancel and supersede jobs.

An approval is bound to one release, the report of its scan and its base release (H-083). It is refused when the
reviewer saw another release or report, when the site has moved on, or when its time is over; publish checks it again.
It may hold its publish back for some seconds, in which it can be undone: then its job is held for a time as any other,
no message of it is in the broker, and the end of the hold and the undo decide under the job's lock which came first.

A cancelled job ends at once when nobody works on it, otherwise at its next model call, chunk or step. A run ends only
when the last of its steps has stopped. What is being published is published.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Select, func, or_, select, text
from sqlmodel import Session, col

from ledger import audit
from ledger.attempts import effective_policy
from ledger.errors import ApprovalRefusal, ApprovalRefusedError, NotUndoableError, UndoRefusal, WrongStateError
from ledger.job_ends import is_live_step_of, is_run, is_step
from ledger.jobs import end, find_job, lock_job, move, requeue, stop_waiting
from ledger.record_tables import Approval
from ledger.runs.steps import has_live_attempt
from ledger.runs.tables import AgentExecution
from ledger.store import OF_OPEN_TENANTS, Statement, after, moment, now, storable
from ledger.tables import ClaimedJob, Job, NewJob, Release, Site, on_bill
from routing.jobs import ANSWERS, ENDS, Reason, State
from routing.policy.platform import Policy
from routing.queues import QueueName
from routing.scheduling import WaitReason

POLICY_ACTOR = "policy:auto-approve"
_REASON_LIMIT = 2_000
"""Characters of a rejection's reason that are stored with it."""
MOST_UNDO_SECONDS = 60
"""How long an approval may hold its publish back at most."""


@dataclass(frozen=True)
class Seen:
    """What the reviewer looked at; None means unknown and is not compared."""

    release_id: UUID | None = None
    report_digest: str | None = None


UNKNOWN_REVIEW = Seen()


def await_approval(session: Session, job: Job, release: Release, *, hours: float) -> None:
    """Let a held job wait for a person to review its preview."""
    job.release_id = release.id
    job.expires_at = after(hours * 3600)  # type: ignore[assignment]
    job.fence += 1  # the attempt is over: a call of it that is being admitted right now must be refused
    move(session, job, State.AWAITING_APPROVAL, release=str(release.id), digest=release.digest)


def approve(
    session: Session,
    job_id: UUID,
    *,
    actor: str,
    policy: Policy,
    tenant: str | None = None,
    seen: Seen = UNKNOWN_REVIEW,
    undo_seconds: float = 0,
) -> Job:
    """Record an approval, and hand the job to publish.

    Args:
        session: the caller's transaction.
        job_id: the job.
        actor: who approves.
        policy: the platform's policy; the tenant's overrides are applied here.
        tenant: if given, the only tenant whose job it may be.
        seen: what the reviewer looked at.
        undo_seconds: how long the publish is held back, so that the approval can be undone; at most
            `MOST_UNDO_SECONDS`.

    Raises:
        JobNotFoundError: the caller's fault.
        WrongStateError: the caller's fault: nothing waits for approval here.
        ApprovalRefusedError: the caller's fault, or nobody's: something changed underneath.
        PolicyError: the operator's fault: the tenant's overrides do not fit.
    """
    job = lock_job(session, job_id, tenant=tenant)
    release = _release_in_review(session, job)
    rules = effective_policy(session, job.tenant, policy).approval
    if not rules.requester_may_approve and has_requested(session, job, actor):
        raise ApprovalRefusedError(job.id, "own_request")
    if reason := _changed_underneath(session, job, release, seen):
        raise ApprovalRefusedError(job.id, reason)
    _hand_to_publish(session, job, release, actor=actor, undo_seconds=undo_seconds)
    return job


def approve_by_policy(session: Session, job: Job) -> None:
    """Approve a locked job without a person, where the tenant opted in (ruling A24)."""
    _hand_to_publish(session, job, _release_in_review(session, job), actor=POLICY_ACTOR)


def _hand_to_publish(session: Session, job: Job, release: Release, *, actor: str, undo_seconds: float = 0) -> None:
    _record_decision(session, job, release, decision="approved", actor=actor)
    audit.append(
        session,
        "approved",
        actor=actor,
        job=job,
        release=str(release.id),
        report=release.scan_digest,
        base=str(release.base_release_id) if release.base_release_id else None,
    )
    job.expires_at = None
    job.lost_attempts = 0  # publishing is other work than what lost workers before
    move(session, job, State.PUBLISHING, actor=actor)
    requeue(session, job, QueueName.CONTROL, seconds=undo_seconds)


class _Hold(NamedTuple):
    """How an approved job is held back from its publish."""

    seconds: float = 0.0
    """That are left of it."""
    has_begun: bool = False
    """Whether a worker has taken the publish up: a hold after that is a pause between tries."""
    expires_at: datetime | None = None
    """When the preview expires if the approval is undone now: its time stands still while it is approved."""


_HOLD = Statement(f"""
    SELECT extract(epoch FROM job.held_until - clock_timestamp())::float AS seconds,
           EXISTS (SELECT FROM attempt WHERE job_id = job.id AND queue = '{QueueName.CONTROL.value}') AS has_begun,
           approval.expires_at + (clock_timestamp() - approval.at) AS expires_at
      FROM job JOIN approval ON approval.job_id = job.id
     WHERE job.id = %(job)s AND job.held_for = '{WaitReason.TIME.value}' AND approval.expires_at IS NOT NULL
""")


def _hold_of(session: Session, job: Job) -> _Hold:
    rows = _HOLD.all(session, {"job": job.id})
    return _Hold(*rows[0]) if rows else _Hold()


def why_not_undoable(state: State, *, held_seconds: float, has_begun: bool) -> UndoRefusal | None:
    """Return why an approval cannot be undone; None when it can.

    Args:
        state: of the job.
        held_seconds: for how long its publish is still held back; 0 when it is not.
        has_begun: whether a worker has ever taken the publish up.
    """
    if state is not State.PUBLISHING:
        return "state"
    return "over" if has_begun or held_seconds <= 0 else None


def undo_until(session: Session, job: Job) -> datetime | None:
    """Return until when a job's approval can be undone, by the ledger's clock; None when it cannot."""
    if job.state != State.PUBLISHING or job.held_for != WaitReason.TIME:
        return None
    hold = _hold_of(session, job)
    refusal = why_not_undoable(State(job.state), held_seconds=hold.seconds, has_begun=hold.has_begun)
    return job.held_until if refusal is None else None


def undo_approval(session: Session, job_id: UUID, *, actor: str, tenant: str | None = None) -> Job:
    """Undo an approval whose publish is held back: the preview waits for a decision again, as before (issue 21).

    Args:
        session: the caller's transaction.
        job_id: the job. Where a newer one has replaced it meanwhile, it ends, as any preview does.
        actor: who undoes it.
        tenant: if given, the only tenant whose job it may be.

    Raises:
        JobNotFoundError: the caller's fault.
        NotUndoableError: the caller's fault, or nobody's: it is not held back, or not any more.
    """
    lock_supersede_key(session, find_job(session, job_id, tenant=tenant))
    job = lock_job(session, job_id, tenant=tenant)
    hold = _hold_of(session, job)
    if reason := why_not_undoable(State(job.state), held_seconds=hold.seconds, has_begun=hold.has_begun):
        raise NotUndoableError(job.id, reason, job.state)
    session.delete(session.get_one(Approval, job.id))
    job.expires_at = hold.expires_at
    stop_waiting(session, job, State.AWAITING_APPROVAL, actor=actor)
    audit.append(session, "approval_undone", actor=actor, job=job, release=str(job.release_id))
    if (newer := newer_rival(session, job)) is not None:
        job.superseded_by = newer
        request_cancel(session, job, actor=f"job:{newer}")
    return job


def _changed_underneath(session: Session, job: Job, release: Release, seen: Seen) -> ApprovalRefusal | None:
    if session.scalar(select(col(Job.expires_at) < now()).where(col(Job.id) == job.id)):
        return "expired"
    if seen.release_id not in (None, release.id):
        return "other_release"
    if seen.report_digest not in (None, release.scan_digest):
        return "other_report"
    active = session.scalar(select(col(Site.active_release_id)).where(col(Site.id) == release.site_id))
    return "site_moved_on" if active != release.base_release_id else None


def reject(session: Session, job_id: UUID, *, actor: str, reason: str, tenant: str | None = None) -> Job:
    """Record a rejection and end the job.

    Raises:
        JobNotFoundError: the caller's fault.
        WrongStateError: the caller's fault: nothing waits for approval here.
    """
    job = lock_job(session, job_id, tenant=tenant)
    release = _release_in_review(session, job)
    _record_decision(session, job, release, decision="rejected", actor=actor, reason=reason)
    end(session, job, State.REJECTED, reason=Reason.REVIEWER_REJECTED, detail=reason, actor=actor)
    return job


def send_back(session: Session, job: Job, *, actor: str, text: str, successor: NewJob) -> None:
    """Reject a locked job's preview in favour of a revision, which takes over the site's lock in the same commit.

    Raises:
        WrongStateError: the caller's fault: nothing waits for approval here.
    """
    text = text[:_REASON_LIMIT]  # all of it is the successor's prompt
    _record_decision(session, job, _release_in_review(session, job), decision="rejected", actor=actor, reason=text)
    end(session, job, State.REJECTED, reason=Reason.REVISED, detail=text, actor=actor, successor=successor)


def has_requested(session: Session, job: Job, actor: str) -> bool:
    """Whether an actor requested any round of a session, or told it in words what to do."""
    has_told = col(Job.result)[ANSWERS].contains([{"by": actor}])
    requested = select(col(Job.id)).where(on_bill(job.root_id), or_(col(Job.requested_by) == actor, has_told))
    return session.scalar(requested.limit(1)) is not None


def expire(session: Session, job_id: UUID) -> None:
    """End a job whose preview was not reviewed, or whose question was not answered, in time (A16, A30)."""
    job = lock_job(session, job_id)
    overdue = session.scalar(select(col(Job.expires_at) < now()).where(col(Job.id) == job_id))
    if not overdue:
        return
    if job.state == State.AWAITING_APPROVAL:
        release = _release_in_review(session, job)
        _record_decision(session, job, release, decision="expired", actor="pointsman")
    detail = "nobody answered its question in time" if job.state == State.CLARIFYING else "nobody judged it in time"
    end(session, job, State.EXPIRED, reason=Reason.APPROVAL_EXPIRED, detail=detail)


def overdue_jobs(session: Session, *, limit: int = 100) -> Sequence[UUID]:
    """Return the jobs that a person should have decided by now."""
    overdue = select(col(Job.id)).where(col(Job.expires_at) < moment()).order_by(col(Job.expires_at))
    return session.scalars(overdue.where(text(OF_OPEN_TENANTS)).limit(limit)).all()


def approved_release(session: Session, job: Job) -> Release:
    """Return the release that may be published for a job: scanned, approved, and unchanged since (H-083, H-114).

    Raises:
        WrongStateError: our fault: publish was asked for without a passing scan and a matching approval.
    """
    release = session.get(Release, job.release_id) if job.release_id else None
    approval = session.get(Approval, job.id)
    matches = (
        release is not None
        and release.scan_passed
        and approval is not None
        and approval.decision == "approved"
        and approval.release_id == release.id
        and approval.scan_digest == release.scan_digest
        and approval.base_release_id == release.base_release_id
    )
    if release is None or not matches:
        raise WrongStateError(job.id, job.state, "a passing scan and an approval of exactly this release")
    return release


def _release_in_review(session: Session, job: Job) -> Release:
    if is_run(job):
        raise WrongStateError(job.id, "a run", "a preview; a run waits at gates, which are passed or failed one by one")
    release = session.get(Release, job.release_id) if job.release_id else None
    if job.state != State.AWAITING_APPROVAL or release is None:
        raise WrongStateError(job.id, job.state, State.AWAITING_APPROVAL.value)
    return release


def _record_decision(
    session: Session, job: Job, release: Release, *, decision: str, actor: str, reason: str = ""
) -> None:
    session.add(
        Approval(
            job_id=job.id,
            release_id=release.id,
            base_release_id=release.base_release_id,
            scan_digest=release.scan_digest,
            decision=decision,
            actor=actor,
            reason=storable(reason),
            expires_at=job.expires_at,
        )
    )
    session.flush()


WORKED_ON = frozenset({State.RUNNING, State.SCANNING})
"""States in which a worker may hold the job: it then ends when the worker stops."""


def request_cancel(session: Session, job: Job, *, actor: str) -> None:
    """Cancel a locked job.

    Raises:
        WrongStateError: the caller's fault: the job has ended, is being published, or is a step of a run.
    """
    state = State(job.state)
    if state in ENDS or state == State.PUBLISHING:
        raise WrongStateError(job.id, job.state, "a job that has not ended and is not being published")
    if is_step(job):
        raise WrongStateError(job.id, "a step of a run", f"the run: cancel {job.parent_id} as a whole")
    job.cancel_requested_at = job.cancel_requested_at or now()  # type: ignore[assignment]
    session.flush()
    audit.append(session, "cancel_requested", actor=actor, job=job)
    if is_run(job) and state in (State.QUEUED, State.RUNNING, State.AWAITING_APPROVAL):
        _cancel_run(session, job, actor=actor)
    elif state not in WORKED_ON:
        end(session, job, State.CANCELLED, reason=Reason.CANCELLED, actor=actor)


def _cancel_run(session: Session, job: Job, *, actor: str) -> None:
    """Cancel the steps of a locked run, and end it when nobody works on it; otherwise its next advance does."""
    cancel_steps(session, job)
    is_live = session.scalar(select(col(AgentExecution.job_id)).where(is_live_step_of(job)).limit(1)) is not None
    if not is_live and not has_live_attempt(session, job):
        end(session, job, State.CANCELLED, reason=Reason.CANCELLED, actor=actor)


def cancel_steps(session: Session, job: Job, *, keys: Sequence[str] | None = None) -> None:
    """Cancel all unfinished executions of a locked run, or only those of some steps."""
    live = select(col(AgentExecution.job_id)).where(is_live_step_of(job))
    if keys is not None:
        live = live.where(col(AgentExecution.step_key).in_(keys))
    for step_id in session.scalars(live.order_by(col(AgentExecution.job_id))).all():
        step = lock_job(session, step_id)
        if step.ended_at is not None:
            continue
        step.cancel_requested_at = step.cancel_requested_at or now()  # type: ignore[assignment]
        session.flush()
        if step.state not in WORKED_ON:
            end(session, step, State.CANCELLED, reason=Reason.CANCELLED)


MOST_AT_ONCE = 100
"""The most jobs that one newer job supersedes: it locks each of them."""


def supersede(session: Session, newer: Job) -> list[UUID]:
    """Cancel the older jobs that a new one replaces, and return their ids.

    Each owner gets the usual notification, which names the newer job. `newer` has a known target; without a supersede
    key it replaces nothing.
    """
    if newer.supersede_key is None:
        return []
    lock_supersede_key(session, newer)
    ended = []
    for job_id in session.scalars(_rivals(newer).order_by(col(Job.id)).limit(MOST_AT_ONCE)).all():
        job = lock_job(session, job_id)
        if State(job.state) in ENDS or job.state == State.PUBLISHING or is_step(job):
            continue
        job.superseded_by = newer.id
        request_cancel(session, job, actor=f"job:{newer.id}")
        ended.append(job_id)
    return ended


def newer_rival(session: Session, job: Job) -> UUID | None:
    """Return the newest job that supersedes one whose target has just become known; None without one."""
    if job.supersede_key is None:
        return None
    lock_supersede_key(session, job)
    newer = _rivals(job).where(col(Job.created_at) > job.created_at)
    return session.scalars(newer.order_by(col(Job.created_at).desc()).limit(1)).one_or_none()


def lock_supersede_key(session: Session, job: Job | ClaimedJob) -> None:
    """Wait for other jobs with the same key, so that of two concurrent ones the second sees the first.

    Call it before the job's row is locked: whoever has the turn goes on to lock the rows of the others.
    """
    if job.supersede_key is None:
        return
    name = f"supersede/{job.tenant}/{job.supersede_key}"
    session.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(name, 0))))


def _rivals(job: Job) -> Select[UUID]:
    """Return a query for the other unfinished jobs with the same target and key."""
    return (
        select(col(Job.id))
        .where(col(Job.tenant) == job.tenant, col(Job.supersede_key) == job.supersede_key)
        .where(col(Job.ended_at).is_(None), col(Job.id) != job.id, col(Job.superseded_by).is_(None))
        .where(col(Job.site_id).is_not_distinct_from(job.site_id))
        .where(col(Job.request)["project"].astext.is_not_distinct_from(job.request.get("project")))
    )

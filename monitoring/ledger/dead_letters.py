"""Dead letters: jobs that ended as nobody wanted, grouped by what their ends have in common, until somebody sees to it.

A job becomes one in the transaction of its end (`jobs.end`), and stops being one when another job goes on from it
(`jobs.accept`) or when somebody says that nothing more is needed (`dismiss`). Nothing else keeps them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, func, or_, select, tuple_
from sqlmodel import Session, col

from monitoring.errors import MonitoringError, WrongStateError
from monitoring.ledger import audit
from monitoring.ledger.clock import now
from monitoring.ledger.tables import Job

_NAME_DIGITS = 10


class ClusterNotFoundError(MonitoringError, LookupError):
    """The tenant has no dead letters of this signature (the caller's fault), or none any more."""

    def __str__(self) -> str:
        return "no dead letters have this signature"


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
    found = (_with_example(session, tenant, *row) for row in session.execute(grouped).all())
    return [cluster for cluster in found if cluster is not None]


def _with_example(
    session: Session, tenant: str, signature: str, jobs: int, first_at: datetime, last_at: datetime
) -> Cluster | None:  # fmt: skip
    """Return a cluster with its newest job; None when all of it was seen to meanwhile."""
    newest = (
        select(col(Job.id), col(Job.reason), col(Job.detail))
        .where(_is_dead(tenant), col(Job.failure_signature) == signature)
        .order_by(col(Job.ended_at).desc())
        .limit(1)
    )
    row = session.execute(newest).first()
    return None if row is None else Cluster(signature, jobs, row[1], row[0], row[2], first_at, last_at)


def find_signature(session: Session, tenant: str, given: str) -> str:
    """Return the signature of a tenant's dead letters that is given in full or by its short name.

    Raises:
        ClusterNotFoundError: the caller's fault.
    """
    signature = col(Job.failure_signature)
    named = or_(signature == given, func.left(func.md5(signature), _NAME_DIGITS) == given)
    found = session.scalar(select(signature).where(_is_dead(tenant), named).limit(1))
    if found is None:
        raise ClusterNotFoundError
    return found


def dead_jobs(
    session: Session, tenant: str, signature: str, *, after: JobMark | None = None, limit: int = 50
) -> Sequence[Job]:  # fmt: skip
    """Return the dead letters of one signature, the oldest first: the order in which they are replayed."""
    query = select(Job).where(_is_dead(tenant), col(Job.failure_signature) == signature)
    if after is not None:
        query = query.where(tuple_(col(Job.ended_at), col(Job.id)) > tuple_(*after))
    return session.scalars(query.order_by(col(Job.ended_at), col(Job.id)).limit(limit)).all()


def dismiss(session: Session, job: Job, *, actor: str) -> bool:
    """Say that a locked dead letter needs nothing more; False when that was said before.

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

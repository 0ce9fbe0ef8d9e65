"""Why a job waits: the one place that decides it, for HTTP, CLI and console."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from sqlmodel import Session

from ledger.dispatch_window import paused_queues
from ledger.operations.backlog import attempts_at_work
from ledger.operations.leaders import DISPATCHER, leaders
from ledger.operations.workers import slots_by_queue
from ledger.provider_circuits import circuits
from ledger.tables import Job, Site, Tenant
from routing.policy.platform import Policy
from routing.queues import QueueName
from routing.scheduling import WaitReason


class Cause(NamedTuple):
    """What a job waits for besides its turn."""

    text: str
    """In words that follow "waits for"; where `holder` is set, the words that precede it."""
    holder: Job | None = None
    """The job that holds its site."""
    until: datetime | None = None
    """When it goes on by itself, if that is known."""

    def __str__(self) -> str:
        if self.holder is not None:
            return f"{self.text} job {self.holder.id} ({self.holder.state})"
        return f"{self.text} (until {self.until:%Y-%m-%d %H:%M:%S} UTC)" if self.until is not None else self.text


def cause_of(session: Session, job: Job, *, policy: Policy | None = None) -> Cause | None:
    """Return why a job does not start: what holds it first, as that keeps it out of its queue's line.

    Args:
        session: the transaction to read in.
        job: any job.
        policy: the platform's, for the limit of tenants without one of their own.

    Returns:
        None when it does not wait for a worker, or only for its turn.
    """
    if job.waiting_since is None or job.ended_at is not None:
        return None
    tenant = session.get_one(Tenant, job.tenant)
    if job.held_for == WaitReason.TIME:
        return Cause("its time", until=job.held_until)
    if job.held_for == WaitReason.SITE:
        return _site_of(session, job)
    if job.held_for == WaitReason.PROVIDER:
        return _provider_of(session, job, tenant)
    if tenant.paused_at is not None:
        return Cause(f"tenant {tenant.name}, which is paused")
    if job.queue in paused_queues(session):
        return Cause(f"queue {job.queue}, which is paused")
    if job.pushed_at is None and DISPATCHER not in leaders(session):
        return Cause("a dispatcher; none runs")
    return _at_limit(session, job, tenant, policy) or _workers_of(session, job)


def _site_of(session: Session, job: Job) -> Cause:
    site = session.get(Site, job.site_id) if job.site_id is not None else None
    holder = session.get(Job, site.lock_job_id) if site is not None and site.lock_job_id is not None else None
    if site is None or holder is None or holder.id == job.id:
        return Cause("its turn at its site")
    return Cause(f"the site {site.name}, which is held by", holder)


def _provider_of(session: Session, job: Job, tenant: Tenant) -> Cause:
    shut = [one for one in circuits(session) if one.provider == tenant.provider and one.state != "closed"]
    which = ", ".join(f"{one.model} ({(one.reason or one.state).replace('_', ' ')})" for one in shut)
    return Cause(f"its provider: {which or 'the circuit of its model is open'}", until=job.held_until)


def _at_limit(session: Session, job: Job, tenant: Tenant, policy: Policy | None) -> Cause | None:
    """Return the limit of its tenant, which `control` does not count against."""
    most = tenant.max_running
    if most is None and policy is not None:
        most = policy.admission.running_per_tenant
    if most is None or job.queue == QueueName.CONTROL or attempts_at_work(session, tenant.name) < most:
        return None
    return Cause(f"another job of tenant {tenant.name} to end: it may have {most} at work, and has")


def _workers_of(session: Session, job: Job) -> Cause | None:
    served = next((one for one in slots_by_queue(session) if one.queue == job.queue), None)
    if served is None:
        return Cause(f"a worker of queue {job.queue}; none serves it")
    return Cause(f"a free worker of queue {job.queue}") if served.busy >= served.slots else None

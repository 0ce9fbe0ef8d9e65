"""Sites and releases: the active release is one column, changed by compare-and-swap and by nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy import select
from sqlalchemy import update as sql_update
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import Session, col

from monitoring.errors import MonitoringError, PublishConflictError, SiteNotFoundError, WrongStateError
from monitoring.ledger import audit
from monitoring.ledger.clock import after, now
from monitoring.ledger.jobs import end, lock_job, move, wait_on
from monitoring.ledger.storable import storable
from monitoring.ledger.tables import Approval, Job, Release, Site
from routing.jobs import Reason, State
from routing.tiers import QueueName


class ReleaseNotFoundError(MonitoringError, LookupError):
    """The site has no published release of this id, or none at all (the caller's fault)."""

    def __str__(self) -> str:
        return "the site has no such published release"


@dataclass(frozen=True, kw_only=True)
class NewRelease:
    """A candidate as it goes on record: content by hash, and the scan that judged exactly this content."""

    site_id: UUID
    digest: str
    manifest: Mapping[str, Any]
    total_bytes: int
    signals: Mapping[str, Any]
    scan: Mapping[str, Any]
    scan_passed: bool
    scan_digest: str
    spec_sha256: str | None = None
    diff_sha256: str | None = None
    reverse_sha256: str | None = None
    base_release_id: UUID | None = None
    job_id: UUID | None = field(default=None)


def ensure_site(session: Session, tenant: str, name: str, *, profile: str = "default") -> Site:
    """Return the tenant's site of this name, made empty when there was none."""
    add_site(session, tenant, name, profile=profile)
    return find_site(session, tenant, name)


def add_site(session: Session, tenant: str, name: str, *, profile: str = "default") -> bool:
    """Make an empty site; False when the tenant has one of this name already."""
    new = insert(Site).values(tenant=tenant, name=name, profile=profile).on_conflict_do_nothing()
    return session.scalar(new.returning(col(Site.id))) is not None


def find_site(session: Session, tenant: str, name: str) -> Site:
    """Return a site.

    Raises:
        SiteNotFoundError: the caller's fault.
    """
    site = session.scalars(select(Site).where(col(Site.tenant) == tenant, col(Site.name) == name)).one_or_none()
    if site is None:
        raise SiteNotFoundError(name)
    return site


def sites_of(session: Session, tenant: str) -> Sequence[Site]:
    """Return a tenant's sites by name."""
    return session.scalars(select(Site).where(col(Site.tenant) == tenant).order_by(col(Site.name))).all()


def lock_site(session: Session, site_id: UUID) -> Site:
    """Return a site with its row locked until the transaction ends: nobody else can activate a release meanwhile."""
    query = select(Site).where(col(Site.id) == site_id).with_for_update()
    return session.scalars(query, execution_options={"populate_existing": True}).one()


def active_release(session: Session, site: Site) -> Release | None:
    """Return the release that the site shows now."""
    return session.get(Release, site.active_release_id) if site.active_release_id else None


def add_release(session: Session, new: NewRelease) -> Release:
    """Put a candidate on record. It changes nothing that anybody sees."""
    release = Release(
        site_id=new.site_id,
        base_release_id=new.base_release_id,
        job_id=new.job_id,
        digest=new.digest,
        manifest=dict(new.manifest),
        spec_sha256=new.spec_sha256,
        diff_sha256=new.diff_sha256,
        reverse_sha256=new.reverse_sha256,
        total_bytes=new.total_bytes,
        signals=dict(new.signals),
        scan=dict(new.scan),
        scan_passed=new.scan_passed,
        scan_digest=new.scan_digest,
    )
    session.add(release)
    session.flush()
    return release


def releases_of(session: Session, site: Site, *, limit: int = 50) -> Sequence[Release]:
    """Return a site's published releases, newest first."""
    return session.scalars(
        select(Release)
        .where(col(Release.site_id) == site.id, col(Release.published_at).is_not(None))
        .order_by(col(Release.published_at).desc())
        .limit(limit)
    ).all()


def published_release(session: Session, site: Site, release_id: UUID) -> Release:
    """Return one of a site's published releases.

    Raises:
        ReleaseNotFoundError: the caller's fault.
    """
    release = session.get(Release, release_id)
    if release is None or release.site_id != site.id or release.published_at is None:
        raise ReleaseNotFoundError
    return release


def activate(session: Session, site_id: UUID, release: Release, *, base_release_id: UUID | None) -> None:
    """Make a release the active one, if the active one still is `base_release_id`.

    `published_at` keeps the first time: a rollback does not reorder history, and the audit trail tells of it.

    Raises:
        PublishConflictError: nobody's fault: another release became active first; nothing changed.
    """
    swapped = session.execute(
        sql_update(Site)
        .where(col(Site.id) == site_id, col(Site.active_release_id).is_not_distinct_from(base_release_id))
        .values(active_release_id=release.id)
    )
    if swapped.rowcount == 0:  # type: ignore[attr-defined]
        raise PublishConflictError(str(site_id))
    first_time = col(Release.published_at).is_(None)
    session.execute(sql_update(Release).where(col(Release.id) == release.id, first_time).values(published_at=now()))


def await_approval(session: Session, job: Job, release: Release, *, hours: float) -> None:
    """Let a held job wait for a person to judge its preview."""
    job.release_id = release.id
    job.expires_at = after(hours * 3600)  # type: ignore[assignment]
    job.fence += 1  # the attempt is over: a call of its that is being admitted right now must be refused
    move(session, job, State.AWAITING_APPROVAL, release=str(release.id), digest=release.digest)


def approve(session: Session, job_id: UUID, *, actor: str, tenant: str | None = None) -> Job:
    """Record an approval, bound to this release, its scan and its base, and hand the job to publish.

    Raises:
        JobNotFoundError: the caller's fault.
        WrongStateError: the caller's fault: nothing waits for approval here.
    """
    job = lock_job(session, job_id, tenant=tenant)
    release = _judged(session, job)
    _decide(session, job, release, decision="approved", actor=actor)
    job.expires_at = None
    job.lost_attempts = 0  # publishing is other work than what may have cost workers before
    move(session, job, State.PUBLISHING, actor=actor)
    audit.append(session, "approved", actor=actor, job=job)
    wait_on(session, job, QueueName.CONTROL)
    return job


def approve_by_policy(session: Session, job: Job) -> None:
    """Approve a locked job in a person's place, where the tenant opted in (ruling A24)."""
    approve(session, job.id, actor="policy:auto-approve")


def reject(session: Session, job_id: UUID, *, actor: str, reason: str, tenant: str | None = None) -> Job:
    """Record a rejection and end the job.

    Raises:
        JobNotFoundError: the caller's fault.
        WrongStateError: the caller's fault: nothing waits for approval here.
    """
    job = lock_job(session, job_id, tenant=tenant)
    release = _judged(session, job)
    _decide(session, job, release, decision="rejected", actor=actor, reason=reason)
    end(session, job, State.REJECTED, reason=Reason.REVIEWER_REJECTED, detail=reason, actor=actor)
    return job


def expire(session: Session, job_id: UUID) -> None:
    """End a job whose preview nobody judged, or whose question nobody answered, in time (A16, A30)."""
    job = lock_job(session, job_id)
    overdue = session.scalar(select(col(Job.expires_at) < now()).where(col(Job.id) == job_id))
    if not overdue:
        return
    if job.state == State.AWAITING_APPROVAL:
        release = _judged(session, job)
        _decide(session, job, release, decision="expired", actor="pointsman")
    detail = "nobody answered its question in time" if job.state == State.CLARIFYING else "nobody judged it in time"
    end(session, job, State.EXPIRED, reason=Reason.APPROVAL_EXPIRED, detail=detail)


def overdue_jobs(session: Session, *, limit: int = 100) -> Sequence[UUID]:
    """Return the jobs that have waited past their time."""
    overdue = select(col(Job.id)).where(col(Job.expires_at) < now()).order_by(col(Job.expires_at))
    return session.scalars(overdue.limit(limit)).all()


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


def _judged(session: Session, job: Job) -> Release:
    release = session.get(Release, job.release_id) if job.release_id else None
    if job.state != State.AWAITING_APPROVAL or release is None:
        raise WrongStateError(job.id, job.state, State.AWAITING_APPROVAL.value)
    return release


def _decide(
    session: Session, job: Job, release: Release, *, decision: str, actor: str, reason: str = ""
) -> None:  # fmt: skip
    session.add(
        Approval(
            job_id=job.id,
            release_id=release.id,
            base_release_id=release.base_release_id,
            scan_digest=release.scan_digest,
            decision=decision,
            actor=actor,
            reason=storable(reason),
        )
    )
    session.flush()

"""Sites, their releases, and the rounds of a session that build on each other's work.

The active release is one column, changed by compare-and-swap. Retention never takes the files of a release that is
live, previous or pending (threat H7).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, and_, func, inspect, not_, select, text
from sqlalchemy import update as sql_update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm.attributes import set_committed_value
from sqlmodel import Session, col

from ledger.errors import (
    NotContinuableError,
    PublishConflictError,
    ReleaseNotFoundError,
    ReleaseSweptError,
    SiteNotFoundError,
)
from ledger.record_tables import Epoch
from ledger.spending import booked_on_bill
from ledger.store import OF_OPEN_TENANTS, Statement, now
from ledger.tables import Job, Release, Site, on_bill
from routing.decision.router import SiteSignals
from routing.ids import new_id
from routing.jobs import Reason, read_stored
from routing.policy.platform import Retention
from routing.queues import QueueName, Tier
from routing.rounds import Work


@dataclass(frozen=True, kw_only=True)
class NewRelease:
    """A candidate to be recorded: content by hash, and the scan of exactly this content."""

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
    build_seconds: float | None = None
    base_release_id: UUID | None = None
    job_id: UUID | None = None


def ensure_site(session: Session, tenant: str, name: str) -> Site:
    """Return the tenant's site of this name, created empty if needed."""
    add_site(session, tenant, name)
    return find_site(session, tenant, name)


def add_site(session: Session, tenant: str, name: str, *, profile: str = "default") -> bool:
    """Create an empty site; False when the tenant already has one of this name."""
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


def came_to_nothing() -> ColumnElement[bool]:
    """Return the condition under which all that ever came to a site are uploads that were refused.

    Its name stays free: the next upload or job of it finds the site, which is then listed. Sites are never deleted, so
    retention keeps the newest of these uploads.
    """
    of_site = select(col(Job.id)).where(col(Job.site_id) == col(Site.id))
    others = of_site.where(col(Job.reason).is_distinct_from(Reason.UPLOAD_REFUSED.value))
    return and_(col(Site.active_release_id).is_(None), of_site.exists(), not_(others.exists()))


def sites_of(session: Session, tenant: str) -> Sequence[Site]:
    """Return a tenant's sites by name, without those that came to nothing."""
    own = select(Site).where(col(Site.tenant) == tenant, not_(came_to_nothing()))
    return session.scalars(own.order_by(col(Site.name))).all()


def lock_site(session: Session, site_id: UUID) -> Site:
    """Lock a site's row until the transaction ends, and return it: nobody else can activate a release meanwhile."""
    query = select(Site).where(col(Site.id) == site_id).with_for_update()
    return session.scalars(query, execution_options={"populate_existing": True}).one()


def active_release(session: Session, site: Site) -> Release | None:
    """Return the release that the site shows now."""
    return session.get(Release, site.active_release_id) if site.active_release_id else None


def add_release(session: Session, new: NewRelease, *, release_id: UUID | None = None) -> Release:
    """Record a candidate, under a new id unless one is given. Nothing visible changes."""
    columns: dict[str, Any] = {
        name: dict(value) if isinstance(value, Mapping) else value for name, value in vars(new).items()
    }
    release = Release(id=release_id or new_id(), **columns)
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
    """Return one of a site's published releases whose files still exist.

    Raises:
        ReleaseNotFoundError, ReleaseSweptError: the caller's fault.
    """
    release = session.get(Release, release_id, populate_existing=True)
    if release is None or release.site_id != site.id or release.published_at is None:
        raise ReleaseNotFoundError
    if release.swept_at is not None:
        raise ReleaseSweptError(release.id)
    return release


def activate(session: Session, site_id: UUID, release: Release, *, base_release_id: UUID | None) -> None:
    """Make a release the active one, if the active one still is `base_release_id`.

    `published_at` keeps the first time: a rollback is in the audit trail and does not reorder history.

    Raises:
        PublishConflictError: nobody's fault: another release became active first; nothing changed.
        ReleaseSweptError: nobody's fault: its files were given up meanwhile; nothing changed.
    """
    swapped = session.execute(
        sql_update(Site)
        .where(col(Site.id) == site_id, col(Site.active_release_id).is_not_distinct_from(base_release_id))
        .values(active_release_id=release.id)
    )
    if swapped.rowcount == 0:  # type: ignore[attr-defined]
        raise PublishConflictError(str(site_id))
    first_time = func.coalesce(col(Release.published_at), now())
    published_at = session.scalars(  # waits for a concurrent sweep of this row
        sql_update(Release)
        .where(col(Release.id) == release.id, col(Release.swept_at).is_(None))
        .values(published_at=first_time)
        .returning(col(Release.published_at))
        .execution_options(synchronize_session=False)
    ).one_or_none()
    if published_at is None:
        raise ReleaseSweptError(release.id)
    set_committed_value(release, "published_at", published_at)


def note_projection(session: Session, job_id: UUID, text: str) -> None:
    """Set an ended job's detail to what became of the copy for web servers."""
    ended = (col(Job.id) == job_id) & col(Job.ended_at).is_not(None)
    session.execute(sql_update(Job).where(ended).values(detail=text))


def revoke_previews(session: Session, site: Site, *, release_id: UUID | None = None) -> int:
    """Revoke the preview links of one release, or of all releases of a site; return the number of releases."""
    raised = sql_update(Release).where(col(Release.site_id) == site.id)
    if release_id is not None:
        raised = raised.where(col(Release.id) == release_id)
    done = session.execute(raised.values(preview_generation=col(Release.preview_generation) + 1))
    return int(done.rowcount)  # type: ignore[attr-defined]


_LAGGING = Statement(f"""
    SELECT id FROM site WHERE active_release_id IS DISTINCT FROM shown_release_id AND id <> ALL (%(besides)s::uuid[])
       AND {OF_OPEN_TENANTS}
     ORDER BY id LIMIT %(limit)s
""")


def lagging_sites(session: Session | Connection, *, besides: Sequence[UUID] = (), limit: int = 100) -> Sequence[UUID]:
    """Return sites, except `besides`, whose projection may not show the active release."""
    return _LAGGING.scalars(session, {"besides": list(besides), "limit": limit})


def shown_sites(session: Session, *, after: UUID | None, limit: int = 500) -> Sequence[Site]:
    """Return a page of the sites whose projection is believed to be current, by id."""
    query = select(Site).where(col(Site.shown_release_id).is_not(None)).order_by(col(Site.id)).limit(limit)
    return session.scalars(query if after is None else query.where(col(Site.id) > after)).all()


def clear_shown_release(session: Session, site: Site) -> None:
    """Record that a site's projection was found to show something else."""
    believed = col(Site.shown_release_id) == site.shown_release_id
    own = (col(Site.id) == site.id) & believed & text(OF_OPEN_TENANTS)
    session.execute(sql_update(Site).where(own).values(shown_release_id=None))


_DAY_SECONDS = 86_400.0
_HOUR_SECONDS = 3_600.0
_NAMES_A_BLOB = "_sha256"
"""Suffix of the columns that name a stored file: sweeps respect new ones without a change here."""


class ReleaseFacts(NamedTuple):
    """The facts about a release that retention decides on."""

    id: UUID
    base_release_id: UUID | None
    published_seconds: float | None
    """Since it was first published; None for a draft."""
    created_seconds: float
    """Since it was created."""


class KeptRelease(NamedTuple):
    """A release whose files are needed."""

    id: UUID
    site_id: UUID
    manifest: dict[str, Any]
    blobs: frozenset[str]
    """Blobs that it needs besides the files of its manifest, such as its spec and its diff."""


def choose_swept(
    releases: Sequence[ReleaseFacts], rules: Retention, *, active: UUID | None, pending: Collection[UUID]
) -> set[UUID]:
    """Return the releases of a site that give up their files.

    Args:
        releases: the site's releases that still have files.
        rules: the policy's retention.
        active: the live release.
        pending: releases that unfinished jobs offer, publish, start from or are based on.
    """
    published = sorted(
        (release for release in releases if release.published_seconds is not None),
        key=lambda release: release.published_seconds or 0.0,
    )
    kept = {release.id for release in published[: rules.releases]} | set(pending)
    kept |= {release.id for release in published if (release.published_seconds or 0.0) < rules.days * _DAY_SECONDS}
    kept |= {release.id for release in releases if release.created_seconds < rules.draft_hours * _HOUR_SECONDS}
    if active is not None:
        kept.add(active)
        kept |= {release.base_release_id for release in releases if release.id == active and release.base_release_id}
    return {release.id for release in releases} - kept


def sweep_site(session: Session, site_id: UUID, rules: Retention, *, is_dry_run: bool = False) -> set[UUID]:
    """Mark the releases of a site that give up their files, and return them.

    The site's row is locked meanwhile, so none of them can become active; once marked none can again.
    """
    site = lock_site(session, site_id)
    unfinished = select(col(Job.release_id), col(Job.base_release_id), col(Job.start_release_id)).where(
        col(Job.site_id) == site_id, col(Job.ended_at).is_(None)
    )
    pending = {release_id for row in session.execute(unfinished) for release_id in row if release_id is not None}
    rows = session.execute(
        select(
            col(Release.id),
            col(Release.base_release_id),
            func.extract("epoch", now() - col(Release.published_at)),
            func.extract("epoch", now() - col(Release.created_at)),
        ).where(col(Release.site_id) == site_id, col(Release.swept_at).is_(None))
    )
    facts = [
        ReleaseFacts(one, base, None if published is None else float(published), float(created))
        for one, base, published, created in rows
    ]
    swept = choose_swept(facts, rules, active=site.active_release_id, pending=pending)
    if swept and not is_dry_run:
        session.execute(sql_update(Release).where(col(Release.id).in_(swept)).values(swept_at=now()))
    return swept


def all_sites(session: Session) -> Sequence[Site]:
    """Return every site of the installation."""
    return session.scalars(select(Site).order_by(col(Site.id))).all()


_NAMING_LOCK = 0x4E414D45


def some_active_releases(session: Session, *, limit: int) -> Sequence[Release]:
    """Return a few releases that are live."""
    query = select(Release).join(Site, col(Site.active_release_id) == col(Release.id))
    return session.scalars(query.order_by(col(Site.id)).limit(limit)).all()


def epoch_of(session: Session) -> str:
    """Return the id of this ledger, which a restore changes."""
    newest = select(col(Epoch.id)).order_by(col(Epoch.since).desc(), col(Epoch.id)).limit(1)
    if (found := session.scalar(newest)) is None:  # `migrate` did not always give one
        session.execute(select(func.pg_advisory_xact_lock(_NAMING_LOCK)))
        if (found := session.scalar(newest)) is None:
            found = new_id()
            session.add(Epoch(id=found))
    return str(found)


def has_releases(session: Session) -> bool:
    """Whether any site ever had a release."""
    return session.scalar(select(col(Release.id)).limit(1)) is not None


def kept_releases(session: Session, *, tenant: str | None = None) -> Iterator[KeptRelease]:
    """Yield every release whose files are needed, or those of one tenant."""
    named = [column for column in inspect(Release).columns if column.key.endswith(_NAMES_A_BLOB)]
    transcript = col(Job.result)["agent"]["transcript_sha256"].astext  # what explains how an agent made it (H-048)
    query = (
        select(col(Release.id), col(Release.site_id), col(Release.manifest), *named, transcript)
        .outerjoin(Job, col(Job.id) == col(Release.job_id))
        .where(col(Release.swept_at).is_(None))
        .execution_options(yield_per=200)
    )
    if tenant is not None:
        query = query.where(col(Release.site_id).in_(select(col(Site.id)).where(col(Site.tenant) == tenant)))
    for release_id, site_id, manifest, *blobs in session.execute(query):
        yield KeptRelease(release_id, site_id, manifest, frozenset(blob for blob in blobs if blob is not None))


_UNPICTURED = Statement(f"""
    SELECT release.id FROM release JOIN site ON site.id = release.site_id
     WHERE release.published_at IS NOT NULL AND release.swept_at IS NULL AND release.thumbnail_sha256 IS NULL
       AND release.id <> ALL(%(besides)s) AND {OF_OPEN_TENANTS}
     ORDER BY release.id = site.active_release_id DESC NULLS LAST, release.published_at DESC LIMIT 1
""")


def next_unpictured(connection: Session | Connection, *, besides: Collection[UUID] = ()) -> UUID | None:
    """Return a published release that has files and no thumbnail, live ones first; None when each has one."""
    found: UUID | None = _UNPICTURED.scalar(connection, {"besides": list(besides)})
    return found


def set_thumbnail(session: Session, release_id: UUID, sha256: str) -> bool:
    """Record the stored picture of a release; False when the release is gone, or its files are, and so is its need."""
    kept = (col(Release.id) == release_id) & col(Release.swept_at).is_(None)
    row = session.scalars(select(Release).where(kept).with_for_update()).one_or_none()
    if row is None:
        return False
    row.thumbnail_sha256 = sha256
    return True


MAX_ROUNDS = 50
"""The most jobs in one session: each of them shows all the others."""
_IS_ROUND = col(Job.queue) != QueueName.STEPS.value
"""The steps of a run are jobs on its bill, too, but not rounds."""


@dataclass(frozen=True)
class RoundContext:
    """What a new round builds on."""

    site: Site | None
    start: Release | None
    """What the previous job kept, if anything."""
    spent_nanousd: int
    """Spent on its bill, with what is reserved for open calls."""


def successor_of(session: Session, job_id: UUID) -> UUID | None:
    """Return the job that continues this one."""
    return session.scalar(select(col(Job.id)).where(col(Job.parent_id) == job_id, _IS_ROUND))


def is_about_earlier_work(job: Job) -> bool:
    """Whether a job's request was about unpublished work of earlier rounds."""
    return bool((job.result.get("begun") or {}).get("earlier"))


def rounds_of(session: Session, root_id: UUID) -> Sequence[Job]:
    """Return the jobs of a session in order."""
    return session.scalars(select(Job).where(on_bill(root_id), _IS_ROUND).order_by(col(Job.created_at))).all()


def continued_work(start: Release, made_by: Sequence[Job] = ()) -> Work:
    """Return the work that a round continues from: a release, and the highest tier that made it."""
    tiers = (Tier(one.tier) for one in made_by if one.tier is not None)
    return Work(max(tiers, default=None), start.total_bytes, read_stored(SiteSignals, start.signals).has_build)


def verb_of(job: Job) -> str | None:
    """Return how a job continues its parent, a `routing.rounds.Verb` or `debate`; None for the first."""
    if job.parent_id is None:
        return None
    return str(job.result.get("verb") or "debate")


def load_round_context(session: Session, job: Job, *, keeps_work: bool = True) -> RoundContext:
    """Lock the site of a locked job, and return what a new round after it builds on.

    Both locks are needed: no job may be continued twice, nor a release be swept that a new job starts from.

    Args:
        session: the caller's transaction.
        job: the job to continue.
        keeps_work: whether the round starts from what the job kept; else from the site as it is, unless the request
            makes no sense without the unpublished work that the job itself started from.

    Raises:
        NotContinuableError: the caller's fault, or nobody's.
    """
    child = successor_of(session, job.id)
    if child is not None:
        raise NotContinuableError(job.id, "continued", str(child))
    rounds = session.scalar(select(func.count()).where(on_bill(job.root_id), _IS_ROUND)) or 0
    if rounds >= MAX_ROUNDS:
        raise NotContinuableError(job.id, "too_many_rounds", MAX_ROUNDS)
    site = lock_site(session, job.site_id) if job.site_id is not None else None
    earlier_start = job.start_release_id if keeps_work or is_about_earlier_work(job) else None
    start_id = (job.release_id if keeps_work else None) or earlier_start
    start = session.get(Release, start_id, populate_existing=True) if start_id is not None else None
    if start is not None and start.swept_at is not None:
        raise NotContinuableError(job.id, "release_swept")
    if start is not None and site is not None and start.base_release_id != site.active_release_id:
        raise NotContinuableError(job.id, "site_moved_on")
    return RoundContext(site, start, sum(booked_on_bill(session, job.root_id)))

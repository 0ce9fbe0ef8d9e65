"""Sites and releases: the active release is one column, changed by compare-and-swap and by nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import func, select
from sqlalchemy import update as sql_update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm.attributes import set_committed_value
from sqlmodel import Session, col

from monitoring.errors import MonitoringError, PublishConflictError, SiteNotFoundError
from monitoring.ledger.clock import now
from monitoring.ledger.tables import Job, Release, Site


class ReleaseNotFoundError(MonitoringError, LookupError):
    """The site has no published release of this id, or none at all (the caller's fault)."""

    def __str__(self) -> str:
        return "the site has no such published release"


class ReleaseSweptError(ReleaseNotFoundError):
    """The release's files were given up when it was older than retention keeps them (the caller's fault)."""

    def __init__(self, release_id: UUID) -> None:
        super().__init__(release_id)

    def __str__(self) -> str:
        return f"the files of release {self.args[0]} are gone: it was older than retention keeps them"


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
    build_seconds: float | None = None
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


def find_shown(session: Session, tenant: str, name: str) -> tuple[Site, Release | None]:
    """Return a site and the release that it shows now.

    Raises:
        SiteNotFoundError: the caller's fault.
    """
    shown = select(Site, Release).outerjoin(Release, col(Release.id) == col(Site.active_release_id))
    found = session.execute(shown.where(col(Site.tenant) == tenant, col(Site.name) == name)).one_or_none()
    if found is None:
        raise SiteNotFoundError(name)
    return found[0], found[1]


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


def add_release(session: Session, new: NewRelease, *, release_id: UUID | None = None) -> Release:
    """Put a candidate on record, under an id of its own unless one is given. It changes nothing that anybody sees."""
    release = Release(
        id=release_id or uuid4(),
        site_id=new.site_id,
        base_release_id=new.base_release_id,
        job_id=new.job_id,
        digest=new.digest,
        manifest=dict(new.manifest),
        spec_sha256=new.spec_sha256,
        diff_sha256=new.diff_sha256,
        reverse_sha256=new.reverse_sha256,
        build_seconds=new.build_seconds,
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
    """Return one of a site's published releases, with files that are still there.

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

    `published_at` keeps the first time: a rollback does not reorder history, and the audit trail tells of it.

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
    published_at = session.scalars(  # waits for a sweep that is deciding about this row
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
    """Tell an ended job's owner what became of the copy for web servers; neither state nor reason change."""
    ended = (col(Job.id) == job_id) & col(Job.ended_at).is_not(None)
    session.execute(sql_update(Job).where(ended).values(detail=text))


def revoke_previews(session: Session, site: Site, *, release_id: UUID | None = None) -> int:
    """Make the preview links of one release, or of all of a site's, that are out useless; return how many releases."""
    raised = sql_update(Release).where(col(Release.site_id) == site.id)
    if release_id is not None:
        raised = raised.where(col(Release.id) == release_id)
    done = session.execute(raised.values(preview_generation=col(Release.preview_generation) + 1))
    return int(done.rowcount)  # type: ignore[attr-defined]


def lagging_sites(session: Session, *, besides: Sequence[UUID] = (), limit: int = 100) -> Sequence[UUID]:
    """Return sites whose projection is not known to show the active release; `besides` are left out."""
    lags = col(Site.active_release_id).is_distinct_from(col(Site.shown_release_id)) & col(Site.id).not_in(besides)
    return session.scalars(select(col(Site.id)).where(lags).order_by(col(Site.id)).limit(limit)).all()


def shown_sites(session: Session, *, after: UUID | None, limit: int = 500) -> Sequence[Site]:
    """Return the sites, page by page in the order of their ids, whose projection is believed to be up to date."""
    query = select(Site).where(col(Site.shown_release_id).is_not(None)).order_by(col(Site.id)).limit(limit)
    return session.scalars(query if after is None else query.where(col(Site.id) > after)).all()


def forget_shown(session: Session, site: Site) -> None:
    """Take back what is believed of a site's projection: somebody looked, and it shows something else."""
    believed = col(Site.shown_release_id) == site.shown_release_id
    session.execute(sql_update(Site).where(col(Site.id) == site.id, believed).values(shown_release_id=None))

"""Which releases keep their files.

Whoever asks for less space never gets that of what is live, previous or pending (threat H7).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import func, inspect, select
from sqlalchemy import update as sql_update
from sqlmodel import Session, col

from monitoring.ledger.clock import now
from monitoring.ledger.releases import lock_site
from monitoring.ledger.tables import Job, Release, Site
from routing.policy import Retention

_DAY_SECONDS = 86_400.0
_HOUR_SECONDS = 3_600.0
_NAMES_A_BLOB = "_sha256"
"""How the columns end that name a stored file: a new one is kept without a word here."""


class ReleaseFacts(NamedTuple):
    """What retention looks at in a release."""

    id: UUID
    base_release_id: UUID | None
    published_seconds: float | None
    """How long ago it was published for the first time; None for a draft."""
    created_seconds: float
    """How long ago it was made."""


class KeptRelease(NamedTuple):
    """A release whose files are needed."""

    id: UUID
    site_id: UUID
    manifest: dict[str, Any]
    blobs: frozenset[str]
    """What it needs besides the files of its manifest: its spec, its diff and the like."""


def choose_swept(
    releases: Sequence[ReleaseFacts], rules: Retention, *, active: UUID | None, pending: Collection[UUID]
) -> set[UUID]:  # fmt: skip
    """Return the releases of a site that give up their files.

    Args:
        releases: those of the site that still have them.
        rules: what the policy keeps.
        active: the live release.
        pending: what unfinished jobs offer, publish, start from, or were made from.
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


def sweep_site(session: Session, site_id: UUID, rules: Retention, *, is_rehearsal: bool = False) -> set[UUID]:
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
            col(Release.id), col(Release.base_release_id),
            func.extract("epoch", now() - col(Release.published_at)),
            func.extract("epoch", now() - col(Release.created_at)),
        ).where(col(Release.site_id) == site_id, col(Release.swept_at).is_(None))
    )  # fmt: skip
    facts = [
        ReleaseFacts(one, base, None if published is None else float(published), float(created))
        for one, base, published, created in rows
    ]
    swept = choose_swept(facts, rules, active=site.active_release_id, pending=pending)
    if swept and not is_rehearsal:
        session.execute(sql_update(Release).where(col(Release.id).in_(swept)).values(swept_at=now()))
    return swept


def all_sites(session: Session) -> Sequence[Site]:
    """Return every site of the installation."""
    return session.scalars(select(Site).order_by(col(Site.id))).all()


def kept_releases(session: Session, *, page: int = 200) -> Iterator[KeptRelease]:
    """Yield every release whose files are needed."""
    named = [column for column in inspect(Release).columns if column.key.endswith(_NAMES_A_BLOB)]
    transcript = col(Job.result)["agent"]["transcript_sha256"].astext  # what explains how an agent made it (H-048)
    query = (
        select(col(Release.id), col(Release.site_id), col(Release.manifest), *named, transcript)
        .outerjoin(Job, col(Job.id) == col(Release.job_id))
        .where(col(Release.swept_at).is_(None))
        .execution_options(yield_per=page)
    )
    for release_id, site_id, manifest, *blobs in session.execute(query):
        yield KeptRelease(release_id, site_id, manifest, frozenset(blob for blob in blobs if blob is not None))

"""What sites and releases look like from outside: one view for HTTP and command line, so that they cannot differ."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import BaseModel

from monitoring.ledger.tables import Release, Site


class SiteView(BaseModel):
    """A site."""

    name: str
    profile: str
    active_release_id: UUID | None
    live_url: str | None
    is_shown: bool
    """Whether its copy for web servers is known to show the active release; where not, the dispatcher sees to it."""
    locked_by: UUID | None
    """The job that is writing the site now."""
    created_at: datetime


class ReleaseView(BaseModel):
    """A published release of a site."""

    id: UUID
    is_active: bool
    base_release_id: UUID | None
    """The release that it replaced."""
    job_id: UUID | None
    digest: str
    files: int
    total_bytes: int
    public: str
    """The directory that is served, where the site is built; empty when all files are."""
    has_spec: bool
    """Whether tier 1 can edit it by its spec; pages that were edited otherwise are no longer rendered from it."""
    published_at: datetime | None
    is_swept: bool
    """Its files were given up: it can no longer be exported, compared or gone back to."""


def site_view(site: Site, *, pages_url: str) -> SiteView:
    """Return the view of a site; `pages_url` is the origin of the pages."""
    live_url = f"{pages_url.rstrip('/')}/live/{site.tenant}/{site.name}/"
    return SiteView(
        name=site.name,
        profile=site.profile,
        active_release_id=site.active_release_id,
        live_url=live_url if site.active_release_id else None,
        is_shown=site.shown_release_id == site.active_release_id,
        locked_by=site.lock_job_id,
        created_at=site.created_at,
    )


def release_view(release: Release, *, is_active: bool) -> ReleaseView:
    """Return the view of a release."""
    return ReleaseView(
        id=release.id,
        is_active=is_active,
        base_release_id=release.base_release_id,
        job_id=release.job_id,
        digest=release.digest,
        files=int(release.signals.get("files", 0)),
        total_bytes=release.total_bytes,
        public=str(release.manifest.get("public", "")),
        has_spec=release.spec_sha256 is not None,
        published_at=release.published_at,
        is_swept=release.swept_at is not None,
    )

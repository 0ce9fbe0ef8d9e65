"""Sites and queues over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel, ConfigDict

from monitoring.ledger.tables import Release, Site
from producers.api.bodies import parse_model, read_body
from producers.api.examples import body_of
from producers.api.problems import Problem
from producers.api.resources import Admin, Approver, Reader, Resources, ResourcesDep
from producers.jobs import QueueView, queue_depths
from routing.jobs import SiteName

router = APIRouter(prefix="/v1", responses={"4XX": {"model": Problem}, "5XX": {"model": Problem}})

Body = Annotated[bytes, Depends(read_body)]


class SiteView(BaseModel):
    """A site."""

    name: str
    profile: str
    active_release_id: UUID | None
    live_url: str | None
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
    is_spec_managed: bool
    published_at: datetime | None


class NewSiteBody(BaseModel):
    """A site to be made, empty."""

    model_config = ConfigDict(extra="forbid")

    name: str
    profile: str = "default"


class RollbackBody(BaseModel):
    """Where to go back to."""

    model_config = ConfigDict(extra="forbid")

    release_id: UUID | None = None
    """One of the site's published releases; without it the one that the active release replaced."""


@router.get("/sites", tags=["sites"])
def get_sites(resources: ResourcesDep, caller: Reader) -> list[SiteView]:
    """List the tenant's sites by name."""
    return [_site_view(site, resources) for site in resources.sites.all(caller.tenant)]


@router.post("/sites", status_code=201, tags=["sites"], openapi_extra=body_of(NewSiteBody, {"name": "bakery"}))
def create_site(resources: ResourcesDep, caller: Admin, raw: Body, response: Response) -> SiteView:
    """Make an empty site."""
    body = parse_model(NewSiteBody, raw)
    site = resources.sites.create(caller.tenant, body.name, profile=body.profile, actor=caller.actor)
    response.headers["Location"] = f"/v1/sites/{site.name}/releases"
    return _site_view(site, resources)


@router.get("/sites/{name}/releases", tags=["sites"])
def get_releases(
    resources: ResourcesDep, caller: Reader, name: SiteName, limit: Annotated[int, Query(ge=1, le=200)] = 50
) -> list[ReleaseView]:
    """List a site's published releases, newest first."""
    site, releases = resources.sites.releases(caller.tenant, name, limit=limit)
    return [_release_view(release, is_active=release.id == site.active_release_id) for release in releases]


@router.post("/sites/{name}/rollback", tags=["sites"], openapi_extra=body_of(RollbackBody, {}))
def roll_back(resources: ResourcesDep, caller: Approver, name: SiteName, raw: Body) -> ReleaseView:
    """Make an earlier release the active one again."""
    body = parse_model(RollbackBody, raw)
    release = resources.sites.rollback(caller.tenant, name, to=body.release_id, actor=caller.actor)
    return _release_view(release, is_active=True)


@router.get("/queues", tags=["queues"])
def get_queues(resources: ResourcesDep, caller: Reader) -> list[QueueView]:
    """Tell how many of the tenant's jobs wait on each queue, and how long the oldest has."""
    with resources.ledger.begin() as session:
        return queue_depths(session, caller.tenant)


def _site_view(site: Site, resources: Resources) -> SiteView:
    live_url = f"{resources.pages_url.rstrip('/')}/live/{site.tenant}/{site.name}/"
    return SiteView(
        name=site.name,
        profile=site.profile,
        active_release_id=site.active_release_id,
        live_url=live_url if site.active_release_id else None,
        locked_by=site.lock_job_id,
        created_at=site.created_at,
    )


def _release_view(release: Release, *, is_active: bool) -> ReleaseView:
    return ReleaseView(
        id=release.id,
        is_active=is_active,
        base_release_id=release.base_release_id,
        job_id=release.job_id,
        digest=release.digest,
        files=int(release.signals.get("files", 0)),
        total_bytes=release.total_bytes,
        is_spec_managed=release.spec_sha256 is not None,
        published_at=release.published_at,
    )

"""Sites and queues over HTTP."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel, ConfigDict

from producers.api.examples import body_of
from producers.api.requests import Admin, Approver, Reader, ResourcesDep, parse_model, read_body
from producers.use_cases.fleet import QueueView, queue_depths
from producers.use_cases.review import Comparison
from producers.use_cases.sites import ReleaseView, SiteView, release_view, site_view
from routing.jobs import SiteName
from sites.directories import write_tar

router = APIRouter(prefix="/v1")

Body = Annotated[bytes, Depends(read_body)]


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


class RevokeBody(BaseModel):
    """Whose preview links are revoked."""

    model_config = ConfigDict(extra="forbid")

    release_id: UUID | None = None
    """One of the site's releases, published or not; without it all of them."""


class RevokedView(BaseModel):
    """What was revoked."""

    releases: int
    """How many releases it concerns; a new link can be asked for at once."""


@router.get("/sites", tags=["sites"])
def get_sites(resources: ResourcesDep, caller: Reader) -> list[SiteView]:
    """List the tenant's sites by name."""
    return [site_view(site, pages_url=resources.pages_url) for site in resources.sites.all(caller.tenant)]


@router.post("/sites", status_code=201, tags=["sites"], openapi_extra=body_of(NewSiteBody, {"name": "bakery"}))
def create_site(resources: ResourcesDep, caller: Admin, raw: Body, response: Response) -> SiteView:
    """Make an empty site."""
    body = parse_model(NewSiteBody, raw)
    site = resources.sites.create(caller.tenant, body.name, profile=body.profile, actor=caller.actor)
    response.headers["Location"] = f"/v1/sites/{site.name}/releases"
    return site_view(site, pages_url=resources.pages_url)


@router.get("/sites/{name}/releases", tags=["sites"])
def get_releases(
    resources: ResourcesDep, caller: Reader, name: SiteName, limit: Annotated[int, Query(ge=1, le=200)] = 50
) -> list[ReleaseView]:
    """List a site's published releases, newest first."""
    site, releases = resources.sites.releases(caller.tenant, name, limit=limit)
    return [release_view(release, is_active=release.id == site.active_release_id) for release in releases]


@router.post("/sites/{name}/rollback", tags=["sites"], openapi_extra=body_of(RollbackBody, {}))
def roll_back(resources: ResourcesDep, caller: Approver, name: SiteName, raw: Body) -> ReleaseView:
    """Make an earlier release the active one again."""
    body = parse_model(RollbackBody, raw)
    release = resources.sites.rollback(caller.tenant, name, to=body.release_id, actor=caller.actor)
    return release_view(release, is_active=True)


@router.post("/sites/{name}/revoke-previews", tags=["sites"], openapi_extra=body_of(RevokeBody, {}))
def revoke_previews(resources: ResourcesDep, caller: Approver, name: SiteName, raw: Body) -> RevokedView:
    """Make every preview link that is out useless, because one of them leaked."""
    body = parse_model(RevokeBody, raw)
    revoked = resources.sites.revoke_previews(caller.tenant, name, release=body.release_id, actor=caller.actor)
    return RevokedView(releases=revoked)


@router.get("/sites/{name}/diff", tags=["sites"])
def get_diff(
    resources: ResourcesDep,
    caller: Reader,
    name: SiteName,
    before: Annotated[UUID | None, Query(description="By default what `after` replaced.")] = None,
    after: Annotated[UUID | None, Query(description="By default the active release.")] = None,
) -> Comparison:
    """Tell what changed from one release to another, file by file, with unified diffs of text."""
    return resources.sites.diff(caller.tenant, name, before, after)


@router.get(
    "/sites/{name}/export",
    tags=["sites"],
    response_class=Response,
    responses={200: {"description": "A tar archive.", "content": {"application/x-tar": {}}}},
)
def export_site(
    resources: ResourcesDep,
    caller: Reader,
    name: SiteName,
    release: Annotated[UUID | None, Query(description="By default the active release.")] = None,
    sources: Annotated[bool, Query(description="All of a built site instead of what it serves.")] = False,
) -> Response:
    """Return what a release serves as a tar archive, with its spec as `site.json` when it has one."""
    found, files = resources.sites.read(caller.tenant, name, release=release, with_sources=sources)
    headers = {"Content-Disposition": f'attachment; filename="{name}-{found.digest[:12]}.tar"'}
    return Response(write_tar(files, name), media_type="application/x-tar", headers=headers)


@router.get("/queues", tags=["queues"])
def get_queues(resources: ResourcesDep, caller: Reader) -> list[QueueView]:
    """Tell how many of the tenant's jobs wait on each queue, and how long the oldest has."""
    with resources.ledger.begin() as session:
        return queue_depths(session, caller.tenant)

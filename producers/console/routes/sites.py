"""Sites: how they look now, their releases, what each changed, and the way back to an earlier one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Form, Request
from sqlalchemy import select
from sqlmodel import col
from starlette.responses import Response

from monitoring.errors import SiteNotFoundError
from monitoring.ledger.tables import Release, Site
from producers.api.resources import Resources
from producers.console.job_facts import frame_of
from producers.console.web import REFUSALS, Approver, ConsoleResources, ViewerDep, go, render, told
from producers.site_views import release_view, site_view
from routing.jobs import SiteName

router = APIRouter(prefix="/sites")
_PICTURED = 24
"""Sites that are shown as they look; more of them are named."""


@router.get("")
def show_sites(request: Request, resources: ConsoleResources, viewer: ViewerDep) -> Response:
    """List the tenant's sites as they look now."""
    sites = resources.sites.all(viewer.caller.tenant)
    views = [site_view(site, pages_url=resources.pages_url) for site in sites]
    frames = _frames(resources, sites[:_PICTURED])
    return render(request, "sites.html", viewer=viewer, sites=views, frames=frames, pictured=_PICTURED)


@router.get("/{name}")
def show_site(request: Request, resources: ConsoleResources, viewer: ViewerDep, name: SiteName) -> Response:
    """Show a site's releases, newest first."""
    site, releases = resources.sites.releases(viewer.caller.tenant, name)
    views = [release_view(release, is_active=release.id == site.active_release_id) for release in releases]
    shown = site_view(site, pages_url=resources.pages_url)
    frame = _frames(resources, [site]).get(site.name)
    return render(request, "site.html", viewer=viewer, site=shown, releases=views, frame=frame)


@router.get("/{name}/diff/{release_id}")
def show_diff(
    request: Request, resources: ConsoleResources, viewer: ViewerDep, name: SiteName, release_id: UUID
) -> Response:
    """Show what a release changed of the one that it replaced."""
    try:
        changes = resources.sites.diff(viewer.caller.tenant, name, None, release_id)
    except SiteNotFoundError:
        raise
    except REFUSALS as error:
        return go(request, f"/sites/{name}", notice=told(error), is_error=True)
    return render(request, "diff.html", viewer=viewer, name=name, release_id=release_id, changes=changes)


@router.post("/{name}/rollback")
def roll_back(
    request: Request, resources: ConsoleResources, viewer: Approver, name: SiteName, release_id: Annotated[UUID, Form()]
) -> Response:
    """Make an earlier release the active one again."""
    try:
        resources.sites.rollback(viewer.caller.tenant, name, to=release_id, actor=viewer.caller.actor)
    except SiteNotFoundError:
        raise
    except REFUSALS as error:
        return go(request, f"/sites/{name}", notice=told(error), is_error=True)
    return go(request, f"/sites/{name}", notice="That release is live again.")


def _frames(resources: Resources, sites: Sequence[Site]) -> Mapping[str, str]:
    """Return links to what sites show now, for frames, by the sites' names."""
    active = {site.active_release_id: site.name for site in sites if site.active_release_id is not None}
    with resources.ledger.begin() as session:
        releases = session.scalars(select(Release).where(col(Release.id).in_(active))).all()
    links = {active[release.id]: frame_of(resources, release) for release in releases}
    return {name: link for name, link in links.items() if link is not None}

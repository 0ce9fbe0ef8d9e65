"""Sites: their releases, what each changed, and the way back to an earlier one."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from producers.console.routes.jobs import REFUSALS
from producers.console.web import Approver, ConsoleResources, ViewerDep, go, render, told
from producers.site_views import release_view, site_view
from routing.jobs import SiteName

router = APIRouter()


@router.get("/sites")
def show_sites(request: Request, resources: ConsoleResources, viewer: ViewerDep) -> Response:
    """List the tenant's sites."""
    sites = [site_view(site, pages_url=resources.pages_url) for site in resources.sites.all(viewer.caller.tenant)]
    return render(request, "sites.html", viewer=viewer, sites=sites)


@router.get("/sites/{name}")
def show_site(request: Request, resources: ConsoleResources, viewer: ViewerDep, name: SiteName) -> Response:
    """Show a site's releases, newest first."""
    site, releases = resources.sites.releases(viewer.caller.tenant, name)
    views = [release_view(release, is_active=release.id == site.active_release_id) for release in releases]
    shown = site_view(site, pages_url=resources.pages_url)
    return render(request, "site.html", viewer=viewer, site=shown, releases=views)


@router.get("/sites/{name}/diff/{release_id}")
def show_diff(
    request: Request, resources: ConsoleResources, viewer: ViewerDep, name: SiteName, release_id: UUID
) -> Response:
    """Show what a release changed of the one that it replaced."""
    try:
        changes = resources.sites.diff(viewer.caller.tenant, name, None, release_id)
    except REFUSALS as error:
        return go(request, f"/sites/{name}", notice=told(error), is_error=True)
    return render(request, "diff.html", viewer=viewer, name=name, release_id=release_id, changes=changes)


@router.post("/sites/{name}/rollback")
def roll_back(
    request: Request, resources: ConsoleResources, viewer: Approver, name: SiteName, release_id: Annotated[UUID, Form()]
) -> Response:
    """Make an earlier release the active one again."""
    try:
        resources.sites.rollback(viewer.caller.tenant, name, to=release_id, actor=viewer.caller.actor)
    except REFUSALS as error:
        return go(request, f"/sites/{name}", notice=told(error), is_error=True)
    return go(request, f"/sites/{name}", notice="That release is live again.")

"""The application of previews and live pages, on a listener of its own.

Pages hold scripts that a model or a stranger wrote. Their origin has no API, no documentation and no cookie, and the
headers of every response restrict what a page may do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple
from urllib.parse import quote, urlsplit
from uuid import UUID

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.responses import PlainTextResponse, RedirectResponse
from sqlmodel import Session
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ledger.errors import SiteNotFoundError
from ledger.releases import active_release, find_site
from ledger.store import Ledger
from ledger.tables import Job, Release
from producers.api.operations_routes import NO_TELEMETRY, ApiMetrics, Observer
from producers.api.problems import add_handlers
from producers.errors import PageNotFoundError, PreviewGoneError
from producers.use_cases.jobs import CONSOLE_AUDIENCE, PREVIEW_AUDIENCE
from routing.jobs import SiteName, State
from sites.content_store import ContentStore, Entry
from sites.errors import PreviewRefusedError
from sites.files import content_type_of, disposition_of
from sites.preview import (
    NO_CSP,
    OWN_ORIGIN,
    REFUSAL_HEADERS,
    SANDBOX,
    SITE,
    PreviewClaim,
    PreviewSigner,
    host_label_of_preview,
    host_label_of_site,
    live_headers,
    preview_headers,
    with_probe,
)
from sites.releases import manifest_of
from sites.spec.fonts.families import is_original


@dataclass(frozen=True)
class PageResources:
    """Everything the pages need. Whoever made it opens and closes it."""

    ledger: Ledger
    content_store: ContentStore
    signer: PreviewSigner
    preview_seconds: float
    """How long a preview link is valid."""
    console_url: str = ""
    """The origin of the console, which may frame its own links; empty for none."""
    site_url: str = ""
    """The template of origins that are one site's alone; empty for none: then pages have no storage."""


def page_resources_of(request: Request) -> PageResources:
    """Return the resources of the application that serves this request."""
    resources = request.app.state.resources
    assert isinstance(resources, PageResources)
    return resources


PageResourcesDep = Annotated[PageResources, Depends(page_resources_of)]


# Paths from outside are only compared with names in a manifest and never reach a file system. A preview shows exactly
# the release that its token names, so nobody sees other bytes than those that were scanned (H-082, threat H1).

router = APIRouter()

INDEX = "index.html"
_AUDIENCES = frozenset({PREVIEW_AUDIENCE, CONSOLE_AUDIENCE})
_OFFERED = frozenset({State.AWAITING_APPROVAL, State.PUBLISHING})
_YEAR_SECONDS = 365 * 24 * 3600


class FoundFile(NamedTuple):
    """A file of a release."""

    name: str
    entry: Entry


@router.api_route("/preview/{token}", methods=["GET", "HEAD"])
def enter_preview(token: str) -> Response:
    """Redirect to the directory, where relative links work."""
    return RedirectResponse(f"/preview/{quote(token, safe='')}/")


@router.api_route("/preview/{token}/{path:path}", methods=["GET", "HEAD"])
def show_preview(resources: PageResourcesDep, request: Request, token: str, path: str) -> Response:
    """Serve a file of the release that a signed link names."""
    try:
        claim = resources.signer.verify(token, max_age_seconds=resources.preview_seconds, audiences=_AUDIENCES)
    except PreviewRefusedError as error:
        raise (PreviewGoneError if error.reason == "expired" else PageNotFoundError)() from None
    with resources.ledger.begin() as session:
        release = _offered_release(session, claim)
    label = host_label_of_preview(release.id)
    if (redirect := _to_own_origin(resources, request, label)) is not None:
        return redirect
    found = _find(release, path, request)
    framed_by = resources.console_url if claim.audience == CONSOLE_AUDIENCE else ""
    sandbox = _sandbox_of(resources, request, label)
    headers = preview_headers(str(release.scan.get("csp") or NO_CSP), framed_by=framed_by, sandbox=sandbox)
    return _serve(resources, request, found, headers, is_probed=bool(framed_by))


@router.api_route("/live/{tenant}/{site}", methods=["GET", "HEAD"])
def enter_site(tenant: SiteName, site: SiteName) -> Response:
    """Redirect to the directory, where relative links work."""
    return RedirectResponse(f"/live/{quote(tenant, safe='')}/{quote(site, safe='')}/")


@router.api_route("/live/{tenant}/{site}/{path:path}", methods=["GET", "HEAD"])
def show_page(resources: PageResourcesDep, request: Request, tenant: SiteName, site: SiteName, path: str) -> Response:
    """Serve a file of a site's active release."""
    with resources.ledger.begin() as session:
        try:
            release = active_release(session, find_site(session, tenant, site))
        except SiteNotFoundError:
            release = None
    if release is None:
        raise PageNotFoundError
    label = host_label_of_site(tenant, site)
    if (redirect := _to_own_origin(resources, request, label)) is not None:
        return redirect
    found = _find(release, path, request)
    headers = live_headers(str(release.scan.get("csp") or NO_CSP), sandbox=_sandbox_of(resources, request, label))
    headers["ETag"] = f'"{found.entry.sha256}"'
    if is_original(found.name, found.entry.sha256):
        headers["Cache-Control"] = f"public, max-age={_YEAR_SECONDS}, immutable"
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return _serve(resources, request, found, headers)


def _offered_release(session: Session, claim: PreviewClaim) -> Release:
    """Return the release of a link if it waits for approval or has been published.

    Raises:
        PageNotFoundError: the bearer's fault: the site has no such release.
        PreviewGoneError: nobody's fault: the link was revoked, or its release is no longer offered.
    """
    try:
        release_id = UUID(claim.release_id)
    except ValueError:
        raise PageNotFoundError from None
    release = session.get(Release, release_id)
    if release is None or str(release.site_id) != claim.site:
        raise PageNotFoundError
    if claim.generation != release.preview_generation or release.swept_at is not None:
        raise PreviewGoneError
    job = session.get(Job, release.job_id) if release.job_id else None
    is_offered = job is not None and job.release_id == release.id and State(job.state) in _OFFERED
    if not release.scan_passed or not (is_offered or release.published_at is not None):
        raise PreviewGoneError
    return release


def _to_own_origin(resources: PageResources, request: Request, label: str) -> Response | None:
    """Send a browser that opens a page to the origin that is its site's alone; None for whoever need not go.

    Raises:
        PageNotFoundError: the caller's fault: the request came to another site's origin.
    """
    if not resources.site_url or _is_own(resources, request, label):
        return None
    if _host_of(request).partition(".")[2] == urlsplit(resources.site_url).netloc.lower().partition(".")[2]:
        raise PageNotFoundError
    if request.headers.get("sec-fetch-mode") != "navigate":
        return None
    path = bytes(request.scope["raw_path"]).decode("latin-1")
    query = f"?{request.url.query}" if request.url.query else ""
    headers = {"Cache-Control": "no-store", "Vary": "Sec-Fetch-Mode"}
    return RedirectResponse(f"{resources.site_url.replace(SITE, label)}{path}{query}", headers=headers)


def _sandbox_of(resources: PageResources, request: Request, label: str) -> str:
    return OWN_ORIGIN if resources.site_url and _is_own(resources, request, label) else SANDBOX


def _is_own(resources: PageResources, request: Request, label: str) -> bool:
    return _host_of(request) == urlsplit(resources.site_url.replace(SITE, label)).netloc.lower()


def _host_of(request: Request) -> str:
    return (request.headers.get("host") or "").lower()


def _find(release: Release, path: str, request: Request) -> FoundFile:
    """Return the served file at a path; a directory has its index page.

    Raises:
        PageNotFoundError: the caller's fault, for example an encoded slash.
    """
    if b"%2f" in bytes(request.scope.get("raw_path") or b"").lower():
        raise PageNotFoundError
    manifest = manifest_of(release).served
    for name in (path, f"{path}{INDEX}") if path.endswith("/") or not path else (path,):
        if name in manifest:
            return FoundFile(name, manifest[name])
    raise PageNotFoundError


def _serve(
    resources: PageResources, request: Request, found: FoundFile, headers: dict[str, str], *, is_probed: bool = False
) -> Response:
    served = headers | {
        "Content-Type": content_type_of(found.entry.media_type),
        "Content-Disposition": disposition_of(found.entry.media_type),
        "Content-Length": str(found.entry.size),
    }
    body = b"" if request.method == "HEAD" else resources.content_store.get(found.entry.sha256)
    if body and is_probed and found.entry.media_type == "text/html":
        body = with_probe(body)
        served["Content-Length"] = str(len(body))
    return Response(body, headers=served)


@router.api_route("/favicon.ico", methods=["GET", "HEAD"])
def get_icon() -> Response:
    """Browsers ask for one at the origin of every page; a site's own icon is named by its pages."""
    return Response(status_code=204, headers={"Cross-Origin-Resource-Policy": "cross-origin"})


@router.api_route("/robots.txt", methods=["GET", "HEAD"])
def get_robots() -> PlainTextResponse:
    """Keep crawlers from previews, should a link ever be found."""
    return PlainTextResponse("User-agent: *\nDisallow: /preview/\n")


@router.api_route("/healthz", methods=["GET", "HEAD"])
def get_health() -> PlainTextResponse:
    """Report that the process serves requests."""
    return PlainTextResponse("ok")


_PORTS = {"http": 80, "https": 443}
_REFUSAL = [(name.lower().encode(), value.encode()) for name, value in REFUSAL_HEADERS.items()]


class _Shield:
    """ASGI middleware that adds the strictest policy to responses without one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def shielded_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", []))
                names = {name.lower() for name, _ in headers}
                if b"content-security-policy" not in names:
                    headers += [(name, value) for name, value in _REFUSAL if name not in names]
                message["headers"] = headers
            await send(message)

        await self._app(scope, receive, shielded_send)


def create_pages_app(wiring: PageResources, *, metrics: ApiMetrics | None = None) -> FastAPI:
    """Return the application."""
    app = FastAPI(
        title="Pages", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False, telemetry=NO_TELEMETRY
    )
    app.state.resources = wiring
    app.add_middleware(Observer, metrics=metrics or ApiMetrics())
    app.add_middleware(_Shield)
    add_handlers(app)
    app.include_router(router)
    return app


def is_same_origin(one: str, other: str) -> bool:
    """Whether a browser treats two URLs as one origin."""
    return _origin_of(one) == _origin_of(other)


def is_below(url: str, site_url: str) -> bool:
    """Whether a URL's host may be one of the host names of single sites."""
    host, domain = urlsplit(url).hostname or "", (urlsplit(site_url).hostname or "").partition(".")[2]
    return bool(domain) and (host == domain or host.endswith(f".{domain}"))


def _origin_of(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)

"""What every console page shares: session, viewer, templates, security headers and redirects."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import resources as files
from typing import Annotated, Any
from urllib.parse import quote, urlsplit
from uuid import UUID

from fastapi import Depends, Form, Header, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from itsdangerous import BadData, URLSafeTimedSerializer
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.responses import Response

from ledger.errors import GateNotFoundError, JobNotFoundError, LedgerError, SiteNotFoundError
from producers.api.requests import Resources, resources_of
from producers.console import presentation
from producers.console.oidc import OidcProvider
from producers.errors import ActionRefusedError, ForgedFormError, NotLoggedInError, ProducerError
from producers.use_cases.people import holder_of, open_session
from producers.use_cases.tenants import Caller, Scope
from routing.errors import RoutingError
from sites.errors import HandoverError
from sites.preview import SITE

COOKIE = "pointsman_console"
MAX_AGE_SECONDS = 12 * 3600
"""A session ends after this."""
_SALT = "pointsman.console.v1"


@dataclass(frozen=True)
class ConsoleSession:
    """A session as its cookie names it. The ledger has its row and its holder, which are looked up at each request."""

    holder: UUID
    """The API key or the person."""
    nonce: str
    """Random but not secret: the form token is derived from it."""


def signer_of(keys: Sequence[str], salt: str) -> URLSafeTimedSerializer:
    """Return what signs cookies with the first key and reads those of every key; a salt is for one kind of cookie."""
    options = {"key_derivation": "hmac", "digest_method": hashlib.sha256}
    return URLSafeTimedSerializer(list(reversed(keys)), salt=salt, signer_kwargs=options)


class Sessions:
    """Creates and reads signed session cookies."""

    def __init__(self, keys: Sequence[str]) -> None:
        """Create it from the installation's preview keys; its own salt keeps the two kinds of tokens apart."""
        self.keys = tuple(keys)
        self._form_key = hashlib.sha256(f"{_SALT}.form:{keys[0]}".encode()).digest()
        self._signer = signer_of(keys, _SALT)

    def open(self, session: ConsoleSession) -> str:
        """Return the cookie of a session."""
        return str(self._signer.dumps([str(session.holder), session.nonce]))

    def read(self, cookie: str) -> ConsoleSession | None:
        """Return the session of a cookie; None if it has expired or is not ours."""
        try:
            holder, nonce = self._signer.loads(cookie, max_age=MAX_AGE_SECONDS)
        except BadData:
            return None
        return ConsoleSession(UUID(holder), nonce)

    def form_token(self, session: ConsoleSession) -> str:
        """Return the CSRF token of a session's forms."""
        return hmac.new(self._form_key, f"{session.holder}:{session.nonce}".encode(), hashlib.sha256).hexdigest()

    def is_own_form(self, session: ConsoleSession, token: str) -> bool:
        """Whether a form belongs to this session."""
        return hmac.compare_digest(self.form_token(session).encode(), token.encode("utf-8", "replace"))


PREFIX = "/console"
_SAFE = frozenset({"GET", "HEAD"})
_NOTICE = "pointsman_notice"
THEME = "pointsman_theme"
"""Cookie with the chosen theme, read by the server, so that no page flashes in the other one."""
_NOTICE_CHARS = 500


@dataclass(frozen=True)
class Viewer:
    """The person who looks at a page, and what answers them."""

    request: Request
    resources: Resources
    caller: Caller
    session: ConsoleSession
    form_token: str

    def render(self, template: str, *, status: int = 200, **facts: Any) -> Response:
        """Render a page for them."""
        return render(self.request, template, viewer=self, status=status, **facts)

    def redirect(self, path: str, *, notice: str = "", is_error: bool = False) -> Response:
        """Send them to another page of the console, which shows the notice."""
        return redirect(self.request, path, notice=notice, is_error=is_error)

    @property
    def can(self) -> dict[str, bool]:
        """Whether the viewer has each scope."""
        return {scope.value: self.caller.may(scope) for scope in Scope}


@dataclass(frozen=True)
class Console:
    """What the console needs besides the resources of the HTTP API."""

    sessions: Sessions
    public_url: str
    """Where browsers find it."""
    audit_key: bytes = b""
    """The key of the audit trail; empty where this process cannot verify it."""
    provider: OidcProvider | None = None
    """Where people sign in; None where keys alone open the console."""

    @property
    def is_secure(self) -> bool:
        """Whether the public URL uses https, so that cookies must."""
        return self.public_url.startswith("https://")


@cache
def load_templates() -> Environment:
    """Return the templates; they escape everything, and a missing name is an error."""
    environment = Environment(
        loader=FileSystemLoader(str(files.files("producers.console") / "templates")),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(presentation.FILTERS)
    return environment


def console_of(request: Request) -> Console:
    """Return the console of the application that serves this request."""
    console = request.app.state.console
    assert isinstance(console, Console)
    return console


ConsoleDep = Annotated[Console, Depends(console_of)]
ConsoleResources = Annotated[Resources, Depends(resources_of)]


def viewer_of(request: Request, console: ConsoleDep, resources: ConsoleResources) -> Viewer:
    """Return who is logged in.

    Raises:
        NotLoggedInError: nobody is, or the session was ended, or the key revoked.
        MissingScopeError: the viewer's fault: the key may not even read.
    """
    session = console.sessions.read(cookie_of(request, COOKIE))
    if session is None:
        raise NotLoggedInError
    with resources.ledger.begin() as transaction:
        caller = holder_of(transaction, session.nonce, session.holder, idle_seconds=resources.idle_seconds)
    if caller is None:
        raise NotLoggedInError
    caller.require(Scope.READ)
    return Viewer(request, resources, caller, session, console.sessions.form_token(session))


ViewerDep = Annotated[Viewer, Depends(viewer_of)]


def refuse_foreign(
    request: Request,
    console: ConsoleDep,
    origin: Annotated[str | None, Header()] = None,
    sec_fetch_site: Annotated[str | None, Header()] = None,
) -> None:
    """Refuse a form that a page of another origin has sent. A browser says which; the others have no cookies to lend.

    Raises:
        ForgedFormError: the sender's fault.
    """
    own = (request.headers.get("host"), urlsplit(console.public_url).netloc)  # a proxy may have changed the first
    is_foreign = origin is not None and (urlsplit(origin).netloc or origin) not in own
    if is_foreign or sec_fetch_site not in (None, "same-origin", "none"):
        raise ForgedFormError


def acting(scope: Scope) -> Callable[..., Viewer]:
    """Return a dependency of forms: the form must belong to the session, and the key must have the scope."""

    def actor_of(
        request: Request,
        console: ConsoleDep,
        viewer: ViewerDep,
        _: Annotated[None, Depends(refuse_foreign)],
        form_token: Annotated[str, Form()] = "",
    ) -> Viewer:
        if request.method in _SAFE or not console.sessions.is_own_form(viewer.session, form_token):
            raise ForgedFormError
        viewer.caller.require(scope)
        return viewer

    return actor_of


Submitter = Annotated[Viewer, Depends(acting(Scope.SUBMIT))]
Approver = Annotated[Viewer, Depends(acting(Scope.APPROVE))]
Operator = Annotated[Viewer, Depends(acting(Scope.OPERATE))]
Admin = Annotated[Viewer, Depends(acting(Scope.ADMIN))]


def start_session(request: Request, *, key_id: UUID | None = None, person_id: UUID | None = None) -> Response:
    """Open a session under a new name, whatever cookie the browser had, and go to the console's first page."""
    console, holder = console_of(request), key_id or person_id
    assert holder is not None
    session = ConsoleSession(holder, secrets.token_urlsafe(16))
    with resources_of(request).ledger.begin() as transaction:
        open_session(transaction, session.nonce, seconds=MAX_AGE_SECONDS, key_id=key_id, person_id=person_id)
    response = redirect(request, "/")
    set_cookie(response, console, COOKIE, console.sessions.open(session), seconds=MAX_AGE_SECONDS)
    return response


def set_cookie(response: Response, console: Console, name: str, value: str, *, seconds: int) -> None:
    """Set a cookie that no script reads, no other site sends and, with https, no other host sets; 0 removes it."""
    facts: dict[str, Any] = {"httponly": True, "samesite": "lax", "secure": console.is_secure}
    path = "/" if console.is_secure else PREFIX
    response.set_cookie(_name_of(console, name), value, path=path, max_age=seconds, **facts)


def cookie_of(request: Request, name: str) -> str:
    """Return a cookie of the console; empty if there is none."""
    return request.cookies.get(_name_of(console_of(request), name), "")


def _name_of(console: Console, name: str) -> str:
    """Return a cookie's whole name; with this prefix browsers let no page of a neighbouring host set it."""
    return f"__Host-{name}" if console.is_secure else name


def policy_of(pages_url: str, site_url: str) -> str:
    """Return the console's Content-Security-Policy: its own files, previews in frames, and nothing else."""
    parts = urlsplit(pages_url)
    framed = " ".join(filter(None, (f"{parts.scheme}://{parts.netloc}", site_url.replace(SITE, "*"))))
    return (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; "
        "connect-src 'self'; "
        f"frame-src {framed}; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )


def render(request: Request, template: str, *, viewer: Viewer | None, status: int = 200, **facts: Any) -> Response:
    """Render a page, or its part where htmx asks for one that there is."""
    notice = cookie_of(request, _NOTICE)
    common = {
        "notice": presentation.notice(notice),
        "viewer": viewer,
        "prefix": PREFIX,
        "here": request.url.path,
        "status": status,
        "theme": theme_of(request),
    }
    names = (f"parts/{template}", template) if is_part(request) else (template,)
    body = load_templates().select_template(names).render(**common, **facts)
    response = HTMLResponse(body, status_code=status, headers=_headers(resources_of(request)))
    if notice and not is_part(request):
        set_cookie(response, console_of(request), _NOTICE, "", seconds=0)
    return response


def theme_of(request: Request) -> str:
    """Return the theme that this browser chose; empty for the system's."""
    chosen = cookie_of(request, THEME)
    return chosen if chosen in ("light", "dark") else ""


def is_part(request: Request) -> bool:
    """Whether htmx requests a part of a page."""
    return request.headers.get("hx-request") == "true"


def _headers(resources: Resources) -> Mapping[str, str]:
    return {
        "Content-Security-Policy": policy_of(resources.pages_url, resources.site_url),
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cache-Control": "no-store",
    }


def redirect(request: Request, path: str, *, notice: str = "", is_error: bool = False) -> Response:
    """Redirect to another page of the console, which shows the notice."""
    place = f"{PREFIX}{path}"
    response: Response
    if is_part(request):  # htmx loads the whole page; a redirect it would follow by itself
        response = Response(status_code=204, headers={"HX-Redirect": place, "Cache-Control": "no-store"})
    else:
        response = RedirectResponse(place, status_code=303, headers={"Cache-Control": "no-store"})
    if notice:
        text = quote(f"{'!' if is_error else ''}{notice[:_NOTICE_CHARS]}")
        set_cookie(response, console_of(request), _NOTICE, text, seconds=60)
    return response


@contextmanager
def refusals_on(path: str) -> Iterator[None]:
    """Show a refusal of the block inside as a page of the console; what does not exist has its own page.

    Raises:
        ActionRefusedError: it was.
    """
    try:
        yield
    except (GateNotFoundError, JobNotFoundError, SiteNotFoundError):
        raise
    except (HandoverError, LedgerError, ProducerError, RoutingError) as error:
        raise ActionRefusedError(path, str(error)) from None

"""What routes work with: the application's resources, the caller, and strictly parsed JSON bodies."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request, Security
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel

from producers.api.event_streams import EventStreams
from producers.api.key_limits import KeyLimits, Presented
from producers.bootstrap import UseCases
from producers.errors import BodyTooLargeError, BrokenBodyError
from producers.intake.submit import Requester, Submitter
from producers.use_cases.imports import Imports
from producers.use_cases.jobs import PreviewLinks
from producers.use_cases.tenants import USE_SECONDS, Caller, Scope, authenticate, check_shape, hash_secret
from routing.config import UNSTORABLE
from routing.errors import FieldError, InvalidJobError
from routing.jobs import parse_as
from routing.policy.agents import AccountsConfig
from sites.preview import PreviewSigner

_MOST_CALLERS = 10_000


@dataclass(frozen=True, kw_only=True)
class Resources(UseCases):
    """Everything the HTTP API and the console need. Nothing is global: the application holds it."""

    submitter: Submitter
    signer: PreviewSigner
    pages_url: str
    """Public URL of the pages, with which preview links start."""
    site_url: str = ""
    """The template of origins that are one site's alone; empty for none."""
    accounts: AccountsConfig = field(default_factory=AccountsConfig)
    """Accounts at forges and trackers whose webhooks are accepted."""
    poll_seconds: float = 0.25
    """Pause between two looks for events while streams are open."""

    idle_seconds: float = 2 * 3600
    """A session of the console that nobody uses for so long is over."""
    key_limits: KeyLimits = field(default_factory=KeyLimits)
    seen_callers: dict[str, Caller] = field(default_factory=dict)
    """Holders of keys that were good when they were last looked up, by hash."""
    seen_at: dict[str, float] = field(default_factory=dict)
    """When each was looked up, in monotonic seconds."""

    def caller(self, presented: Presented, scope: Scope, *, is_login: bool = False) -> Caller:
        """Return the holder of a key that has this scope.

        Raises:
            AuthenticationError, TooManyTriesError: the caller's fault.
        """
        key = hash_secret(presented.key)
        self.seen_callers.pop(key, None)
        with self.key_limits.counted(presented, is_login=is_login), self.ledger.look() as connection:
            caller = authenticate(connection, presented.key)
        if len(self.seen_callers) >= _MOST_CALLERS:
            self.seen_callers.clear()
            self.seen_at.clear()
        self.seen_callers[key], self.seen_at[key] = caller, time.monotonic()
        caller.require(scope)
        return caller

    def seen_caller(self, presented: Presented, scope: Scope) -> Caller | None:
        """Return who held a key when it was last looked up, if it had this scope: whoever acts on it checks it."""
        key = hash_secret(presented.key)
        caller = self.seen_callers.get(key)
        is_fresh = time.monotonic() - self.seen_at.get(key, -math.inf) < USE_SECONDS  # or its use were not noted
        return caller if caller is not None and is_fresh and caller.may(scope) else None

    @cached_property
    def streams(self) -> EventStreams:
        """The open event streams."""
        return EventStreams(self.ledger, self.policy.streams, poll_seconds=self.poll_seconds)

    @cached_property
    def imports(self) -> Imports:
        """Takes archives of sites."""
        return Imports(self.ledger, self.content_store, self.policy, self.submitter)

    @property
    def links(self) -> PreviewLinks:
        """Creates preview links."""
        return PreviewLinks(self.signer, self.pages_url)


def resources_of(request: Request) -> Resources:
    """Return the resources of the application that serves this request."""
    resources = request.app.state.resources
    assert isinstance(resources, Resources)
    return resources


async def _resources_here(request: Request) -> Resources:
    return resources_of(request)  # FastAPI would run a function that is not async in a thread


ResourcesDep = Annotated[Resources, Depends(_resources_here)]

_BEARER = HTTPBearer(auto_error=False, description="`Authorization: Bearer pmk_...`")
_HEADER = APIKeyHeader(name="X-API-Key", auto_error=False, description="`X-API-Key: pmk_...`")


def presented_by(request: Request, key: str) -> Presented:
    """Return a request's key; forwarding headers are ignored, because a caller can forge them."""
    return Presented(key, request.client.host if request.client is not None else "")


def key_for(scope: Scope) -> Callable[..., Awaitable[Presented]]:
    """Return a dependency that gives the request's API key; `Resources.caller` authenticates it.

    A request without anything like a key is refused here, before its body is read.
    """

    async def key_of(
        request: Request,
        bearer: HTTPAuthorizationCredentials | None = Security(_BEARER, scopes=[scope.value]),
        api_key: str | None = Security(_HEADER, scopes=[scope.value]),
    ) -> Presented:
        return presented_by(request, check_shape(bearer.credentials if bearer is not None else api_key or ""))

    return key_of


def require(scope: Scope) -> Callable[..., Caller]:
    """Return a dependency that admits only keys with this scope. The key alone determines the tenant."""

    def caller_of(resources: ResourcesDep, key: Presented = Depends(key_for(scope))) -> Caller:
        return resources.caller(key, scope)

    return caller_of


def requester_of(caller: Caller) -> Requester:
    """Return the author of an order over HTTP."""
    return Requester(tenant=caller.tenant, source=caller.source, actor=caller.actor)


Reader = Annotated[Caller, Depends(require(Scope.READ))]
SubmitCaller = Annotated[Caller, Depends(require(Scope.SUBMIT))]
_key_for_submit = key_for(Scope.SUBMIT)
SubmitKey = Annotated[Presented, Depends(_key_for_submit)]


async def presented_for_submit(request: Request) -> Presented:
    """Return what the dependency `SubmitKey` gives."""
    return await _key_for_submit(request, await _BEARER(request), await _HEADER(request))


Approver = Annotated[Caller, Depends(require(Scope.APPROVE))]
Admin = Annotated[Caller, Depends(require(Scope.ADMIN))]


MAX_BODY_BYTES = 64 * 1024
"""Counted without JSON's escapes: a prompt of 32 KiB must pass however its sender encodes it."""
MAX_RAW_BYTES = 256 * 1024
"""Counted with escapes."""

ModelT = TypeVar("ModelT", bound=BaseModel)


def body_reader(max_bytes: int, *, stated_bytes: int = 0) -> Callable[[Request], Awaitable[bytes]]:
    """Return a dependency that reads the raw body; it stops reading one that is too large and raises BodyTooLargeError.

    Args:
        max_bytes: how much is read.
        stated_bytes: the limit that the error states, which is lower where escapes do not count.
    """

    async def read(request: Request) -> bytes:
        parts: list[bytes] = []
        size = 0
        async for part in request.stream():
            size += len(part)
            if size > max_bytes:
                raise BodyTooLargeError(stated_bytes or max_bytes)
            parts.append(part)
        return b"".join(parts)

    return read


read_body = body_reader(MAX_RAW_BYTES, stated_bytes=MAX_BODY_BYTES)


def parse_json(raw: bytes, *, max_bytes: int = MAX_BODY_BYTES) -> Any:
    """Parse JSON text of at most `max_bytes`, counted without its escapes.

    Raises:
        BrokenBodyError: the caller's fault: no JSON, not UTF-8, a duplicate key, NaN, or nested too deeply.
        BodyTooLargeError: the caller's fault.
    """
    try:
        body = json.loads(raw.decode(), object_pairs_hook=_object_of, parse_constant=_refuse_constant)
    except UnicodeDecodeError:
        raise BrokenBodyError("must be UTF-8") from None
    except json.JSONDecodeError as error:
        raise BrokenBodyError(f"must be valid JSON; line {error.lineno}, column {error.colno}") from None
    except (ValueError, RecursionError):
        raise BrokenBodyError("must be valid JSON of moderate depth and size") from None
    if len(raw) > max_bytes and _size_of(body) > max_bytes:
        raise BodyTooLargeError(max_bytes)
    return body


def check_text(body: object) -> None:
    """Refuse text that the ledger cannot store, anywhere in a body.

    Raises:
        InvalidJobError: the caller's fault; names the first field at fault.
    """
    for path, value in _walk(body):
        if isinstance(value, str) and UNSTORABLE.search(value):
            raise InvalidJobError((FieldError(path or "body", "must be valid Unicode text without NUL"),))
        if isinstance(value, dict) and any(map(UNSTORABLE.search, value)):
            raise InvalidJobError((FieldError(path or "body", "a field's name must be valid Unicode text"),))


def parse_model(model: type[ModelT], raw: bytes, *, key: str | None = None) -> ModelT:
    """Return a body as a model; an empty body is an empty object.

    Args:
        model: what it has to be.
        raw: the body.
        key: the header Idempotency-Key, if there is one.

    Raises:
        BrokenBodyError, BodyTooLargeError, InvalidJobError: the caller's fault.
    """
    body = parse_json(raw) if raw.strip() else {}
    check_text(body)
    return parse_as(model, body if key is None else with_key(body, key))


def with_key(body: Any, key: str) -> Any:
    """Add the idempotency key of the request's header to a body.

    Raises:
        InvalidJobError: the caller's fault: the body holds another one.
    """
    if not isinstance(body, dict):
        return body
    if body.get("idempotency_key") not in (None, key):
        rule = "differs from the header Idempotency-Key; give one of them, or the same in both"
        raise InvalidJobError((FieldError("idempotency_key", rule),))
    return body | {"idempotency_key": key}


def _walk(body: object) -> Iterator[tuple[str, object]]:
    """Yield every value with its dotted path, containers before their contents."""
    stack: list[tuple[str, object]] = [("", body)]
    while stack:
        path, value = stack.pop()
        yield path, value
        inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        stack.extend((f"{path}.{name}" if path else str(name), item) for name, item in inner)


def _size_of(body: object) -> int:
    """Return the bytes of all text in a body, plus one for every value."""
    size = 0
    for _, value in _walk(body):
        text = value if isinstance(value, str) else "".join(value) if isinstance(value, dict) else ""
        size += len(text.encode("utf-8", "surrogatepass")) + 1
    return size


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise BrokenBodyError("must not hold a field twice")
    return fields


def _refuse_constant(_: str) -> None:
    raise BrokenBodyError("must be valid JSON: NaN and Infinity are no JSON numbers")

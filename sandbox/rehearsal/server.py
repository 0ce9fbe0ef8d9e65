"""The HTTP side of the rehearsal model: the Messages API's routes, keys, errors, and one log line for each call."""

from __future__ import annotations

import asyncio
import hashlib
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from aiohttp import web

from routing.policy import Speed as StatedSpeed
from routing.prices import Usage
from sandbox.rehearsal.casting import Casting, Part
from sandbox.rehearsal.config import Speed
from sandbox.rehearsal.errors import RequestError, ScenarioError
from sandbox.rehearsal.events import error_body
from sandbox.rehearsal.log import LoggedCall, RequestLog
from sandbox.rehearsal.reply import Reply, plan_reply
from sandbox.rehearsal.request import Request, parse_request
from sandbox.rehearsal.scenario import Rule
from sandbox.rehearsal.stage import BodySink, ClientGoneError, Pace, Progress, Stage, StreamSink, status_response
from sandbox.rehearsal.tokens import PromptCache, count_input

MAX_BODY_BYTES = 32 * 1024 * 1024
"""What the API takes at most."""
CALL_HEADER = "x-pointsman-call"
_CALL_HEADER_CHARACTERS = 200


def create_app(
    rules: Sequence[Rule], *, speeds: Mapping[str, StatedSpeed], log: RequestLog, speed: Speed = "real"
) -> web.Application:
    """Return the server as an application.

    Args:
        rules: scenario rules in the order in which they are tried.
        speeds: stated speeds by model; a model that is not listed is as slow as the slowest.
        log: where ended calls are written.
        speed: real, or max for no pauses but those of a rule.
    """
    server = _Server(Casting(rules), speeds if speed == "real" else {}, log)
    app = web.Application(client_max_size=MAX_BODY_BYTES)
    app.on_shutdown.append(server.end)
    app.router.add_post("/v1/messages", server.messages)
    app.router.add_post("/v1/messages/count_tokens", server.count_tokens)
    app.router.add_get("/api/hello", server.hello)
    app.router.add_route("*", "/{path:.*}", server.unknown)
    return app


@dataclass
class _Call:
    """What the log will say about one call."""

    id: str
    key_sha256: str
    call: str | None
    received_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    started: float = field(default_factory=time.monotonic)
    progress: Progress = field(default_factory=Progress)
    request: Request | None = None
    rule: str | None = None
    reply: Reply | None = None

    def usage(self) -> Usage:
        """Return the tokens billed."""
        if self.reply is None:
            return Usage()
        if not self.progress.has_begun:
            failed = self.progress.status is not None and self.progress.status >= 400
            return Usage() if failed else self.reply.usage._replace(output_tokens=0)
        if self.progress.finish == "completed":
            return self.reply.usage
        return self.reply.usage_after(self.progress.characters)

    def logged(self) -> LoggedCall:
        """Return the log line."""
        request = self.request
        return LoggedCall(
            id=self.id,
            received_at=self.received_at,
            seconds=round(time.monotonic() - self.started, 4),
            model=request.model if request else "",
            stream=request.body.stream if request else False,
            key_sha256=self.key_sha256,
            call=self.call,
            status=self.progress.status,
            **self.usage()._asdict(),
            finish=self.progress.finish,
            prompt_sha256=_digest(request.prompt if request else ""),
            rule=self.rule,
            tools=request.tool_names if request else (),
            characters=self.progress.characters,
        )


@dataclass
class _Server:
    casting: Casting
    speeds: Mapping[str, StatedSpeed]
    log: RequestLog
    cache: PromptCache = field(default_factory=PromptCache)
    is_ending: bool = False

    async def messages(self, http: web.Request) -> web.StreamResponse:
        """Play a reply, and log the call however it ends."""
        key = _key(http)
        call = _Call(f"req_{uuid.uuid4().hex[:24]}", _digest(key)[:16] if key else "", _call_header(http))
        try:
            return await self._messages(http, call, key)
        except RequestError as error:
            call.progress.finish = "refused"
            return _refuse(call, error)
        except ScenarioError as error:
            call.progress.finish = "fault"
            return _refuse(call, RequestError("api_error", f"rehearsal: {error}"))
        except ClientGoneError:
            self._note_cut(call)
            return web.Response()
        except ConnectionAbortedError:
            return web.Response()
        except asyncio.CancelledError:
            self._note_cut(call)
            raise
        finally:
            self.log.write(call.logged())

    async def _messages(self, http: web.Request, call: _Call, key: str) -> web.StreamResponse:
        request = call.request = await _read(http, key)
        part = self.casting.choose(request)
        if part is None:
            raise ScenarioError("no rule matches this request")
        call.rule = part.name
        if part.refusal:
            call.progress.finish, call.progress.status = "fault", part.refusal.status
            return status_response(part.refusal, call.id)
        reply = call.reply = self._plan(request, part, owner=call.key_sha256)
        sink = (
            StreamSink(http, call.id, call.progress) if request.body.stream else BodySink(reply, call.id, call.progress)
        )
        return await Stage(http, sink, call.progress, self._pace(part, request.model), part.fault).play(reply)

    def _plan(self, request: Request, part: Part, *, owner: str) -> Reply:
        try:
            counted = self.cache.usage(request, owner=owner, now=time.monotonic())
            return plan_reply(request, part, counted=counted)
        except RecursionError:
            raise RequestError("invalid_request_error", "The request body is nested too deeply") from None

    def _pace(self, part: Part, model: str) -> Pace | None:
        if part.pace is not None:
            return Pace(part.pace.first_token_seconds, part.pace.tokens_per_second)
        if not self.speeds:
            return None
        stated = self.speeds.get(model) or min(self.speeds.values(), key=lambda speed: speed.tokens_per_second)
        return Pace(stated.first_token_seconds, stated.tokens_per_second)

    def _note_cut(self, call: _Call) -> None:
        if self.is_ending:
            call.progress.finish = "server_cut"
        else:
            call.progress.finish = "stalled" if call.progress.is_stalled else "client_cut"

    async def end(self, _app: web.Application) -> None:
        """Note that calls cut from now on are cut by the server."""
        self.is_ending = True

    async def count_tokens(self, http: web.Request) -> web.Response:
        """Count the input tokens that the same request to `/v1/messages` would bill."""
        try:
            request = await _read(http, _key(http), needs_max_tokens=False)
            return web.json_response({"input_tokens": count_input(request)})
        except RequestError as error:
            return _error_response(error, f"req_{uuid.uuid4().hex[:24]}")

    async def hello(self, _http: web.Request) -> web.Response:
        """Tell a client that the server is there."""
        return web.json_response({"message": "hello"})

    async def unknown(self, http: web.Request) -> web.Response:
        """Refuse every other path."""
        error = RequestError("not_found_error", f"Not found: {http.method} on this path")
        return _error_response(error, f"req_{uuid.uuid4().hex[:24]}")


_STATUS_OF = {"authentication_error": 401, "not_found_error": 404, "request_too_large": 413, "api_error": 500}


async def _read(http: web.Request, key: str, *, needs_max_tokens: bool = True) -> Request:
    if not key:
        raise RequestError("authentication_error", "x-api-key or Authorization: Bearer is required; any key will do")
    try:
        body = await http.read()
    except web.HTTPRequestEntityTooLarge:
        raise RequestError("request_too_large", f"The request body exceeds {MAX_BODY_BYTES} bytes") from None
    except (web.RequestPayloadError, ConnectionResetError):
        raise ClientGoneError from None
    return parse_request(body, needs_max_tokens=needs_max_tokens)


def _key(http: web.Request) -> str:
    scheme, _, token = http.headers.get("authorization", "").partition(" ")
    return http.headers.get("x-api-key", "").strip() or (token.strip() if scheme.lower() == "bearer" else "")


def _call_header(http: web.Request) -> str | None:
    value = http.headers.get(CALL_HEADER)
    return None if value is None else value[:_CALL_HEADER_CHARACTERS]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _refuse(call: _Call, error: RequestError) -> web.Response:
    response = _error_response(error, call.id)
    call.progress.status = response.status
    return response


def _error_response(error: RequestError, request_id: str) -> web.Response:
    body = error_body(error.kind, error.message, request_id)
    return web.json_response(body, status=_STATUS_OF.get(error.kind, 400), headers={"request-id": request_id})

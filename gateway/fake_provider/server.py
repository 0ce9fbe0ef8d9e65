"""The fake provider's server: it speaks the Messages API and plays scenarios, so that everything runs without a key."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial

import uvloop
from aiohttp import web

from gateway.fake_provider.config import FakeProviderConfig, Finish, LoggedCall
from gateway.fake_provider.library import Recordings, read_library
from gateway.fake_provider.playback import ClientGoneError, Playback, Progress, plan_reply, status_response
from gateway.fake_provider.request import Request, RequestError, parse_request
from gateway.fake_provider.scenario import Match, PaceOverride, RuleBook, ScenarioError, load_rules
from gateway.fake_provider.wire import PromptCache, Reply, count_input, error_of
from routing.policy.platform import Speed as StatedSpeed
from routing.policy.platform import load_policy
from routing.policy.prices import Usage

MAX_BODY_BYTES = 32 * 1024 * 1024
"""The API's own limit."""
CALL_HEADER = "x-pointsman-call"
_CALL_HEADER_CHARACTERS = 200
_SHUTDOWN_SECONDS = 0.2
"""How long calls in flight may continue at shutdown, before they are cut and logged."""
_START_SECONDS = 10.0


@dataclass(frozen=True)
class Address:
    """A listening server's address."""

    host: str
    port: int
    url: str
    """The clients' `base_url`."""


def announce(address: Address) -> None:
    """Print the address as one JSON line."""
    sys.stdout.write(json.dumps(asdict(address)) + "\n")
    sys.stdout.flush()


def serve(config: FakeProviderConfig, *, ready: Callable[[Address], None] = announce) -> None:
    """Serve until SIGTERM or SIGINT; `ready` is called once the server accepts requests.

    Raises:
        ScenarioError: the author's fault: a scenario file is wrong.
        PolicyError: the operator's fault.
        OSError: the port is taken, or the log cannot be written.
    """

    async def run() -> None:
        ended = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        async with _listening(config) as address:
            ready(address)
            await ended.wait()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


@contextmanager
def running_fake_provider(config: FakeProviderConfig) -> Iterator[Address]:
    """Serve in a thread of this process while the context is open.

    Raises:
        ScenarioError: a scenario file is wrong.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="fake-provider", daemon=True)
    thread.start()
    listening = _listening(config)
    try:
        address = asyncio.run_coroutine_threadsafe(listening.__aenter__(), loop).result(_START_SECONDS)
        try:
            yield address
        finally:
            asyncio.run_coroutine_threadsafe(listening.__aexit__(None, None, None), loop).result(_START_SECONDS)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_START_SECONDS)
        loop.close()


@asynccontextmanager
async def _listening(config: FakeProviderConfig) -> AsyncIterator[Address]:
    """Serve in the running event loop while the context is open."""
    rules = RuleBook(load_rules(config.scenarios, faults=config.faults), partial(read_library, config.cases))
    speeds = load_policy(config.policy).speeds if config.speed == "real" else {}
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    descriptor = os.open(config.log or os.devnull, flags, 0o600)
    recordings = Recordings(config.recorded) if config.recorded is not None else None
    server = _Server(rules, speeds, log=descriptor, recordings=recordings)
    runner = web.AppRunner(server.app(), handler_cancellation=True, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
    try:
        await runner.setup()
        await web.TCPSite(runner, config.host, config.port).start()
        host, port = runner.addresses[0][:2]
        yield Address(host, port, f"http://{host}:{port}")
    finally:
        await runner.cleanup()
        os.close(descriptor)


@dataclass
class _Call:
    """A call's log entry in the making."""

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
        if self.reply is None:
            return Usage()
        if not self.progress.has_begun:
            failed = self.progress.status is not None and self.progress.status >= 400
            return Usage() if failed else self.reply.usage._replace(output_tokens=0)
        if self.progress.finish == "completed":
            return self.reply.usage
        return self.reply.usage_after(self.progress.characters)

    def logged(self) -> LoggedCall:
        request = self.request
        return LoggedCall(
            id=self.id,
            received_at=self.received_at,
            seconds=round(time.monotonic() - self.started, 4),
            model=request.body.model if request else "",
            stream=request.body.stream if request else False,
            key_sha256=self.key_sha256,
            call=self.call,
            status=self.progress.status,
            **self.usage()._asdict(),
            finish=self.progress.finish,
            rule=self.rule,
            tools=request.tool_names if request else (),
            characters=self.progress.characters,
        )


@dataclass
class _Server:
    rules: RuleBook
    speeds: Mapping[str, StatedSpeed]
    """Speeds by model; an unlisted model is as slow as the slowest. Empty for no pauses."""
    log: int
    """Descriptor of the request log; each line is one system call."""
    recordings: Recordings | None = None
    """What is replayed instead of the rules."""
    cache: PromptCache = field(default_factory=PromptCache)
    is_ending: bool = False

    def app(self) -> web.Application:
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.on_shutdown.append(self.end)
        app.router.add_post("/v1/messages", self.messages)
        app.router.add_post("/v1/messages/count_tokens", self.count_tokens)
        app.router.add_get("/api/hello", self.hello)
        app.router.add_route("*", "/{path:.*}", self.unknown)
        return app

    async def messages(self, http: web.Request) -> web.StreamResponse:
        """Play a reply, and log the call however it ends."""
        key, header = _key(http), http.headers.get(CALL_HEADER)
        header = None if header is None else header[:_CALL_HEADER_CHARACTERS]
        call = _Call(_request_id(), _digest(key)[:16] if key else "", header)
        try:
            return await self._messages(http, call, key)
        except RequestError as error:
            return _refuse(call, error, finish="refused")
        except ScenarioError as error:
            return _refuse(call, RequestError(f"scenario: {error}", 500), finish="fault")
        except ClientGoneError:
            self._note_cut(call)
            return web.Response()
        except ConnectionAbortedError:
            return web.Response()
        except asyncio.CancelledError:
            self._note_cut(call)
            raise
        finally:
            os.write(self.log, call.logged().model_dump_json().encode() + b"\n")

    async def _messages(self, http: web.Request, call: _Call, key: str) -> web.StreamResponse:
        request = call.request = await _read(http, key)
        if self.recordings is not None:
            call.rule, call.reply = "replayed", self.recordings.take(request)
            return await Playback(
                http, call.reply, call.id, call.progress, None, None, is_streamed=request.body.stream
            ).play()
        match = self.rules.match(request)
        if match is None:
            raise ScenarioError("no rule matches this request")
        call.rule = match.name
        if match.refusal:
            call.progress.finish, call.progress.status = "fault", match.refusal.status
            return status_response(match.refusal, call.id)
        try:
            counted = self.cache.usage(request, owner=call.key_sha256, now=time.monotonic())
            reply = call.reply = plan_reply(request, match, counted=counted)
        except RecursionError:
            raise RequestError("The request body is nested too deeply") from None
        pace = self._pace(match, request.body.model)
        playback = Playback(http, reply, call.id, call.progress, pace, match.fault, is_streamed=request.body.stream)
        return await playback.play()

    def _pace(self, match: Match, model: str) -> PaceOverride | StatedSpeed | None:
        if match.pace is not None or not self.speeds:
            return match.pace
        return self.speeds.get(model) or min(self.speeds.values(), key=lambda speed: speed.tokens_per_second)

    def _note_cut(self, call: _Call) -> None:
        if self.is_ending:
            call.progress.finish = "server_cut"
        else:
            call.progress.finish = "stalled" if call.progress.is_stalled else "client_cut"

    async def end(self, _app: web.Application) -> None:
        """Note that the server itself cuts calls from now on."""
        self.is_ending = True

    async def count_tokens(self, http: web.Request) -> web.Response:
        """Count the input tokens that the same request to `/v1/messages` would bill."""
        try:
            request = await _read(http, _key(http), needs_max_tokens=False)
            return web.json_response({"input_tokens": count_input(request)})
        except RequestError as error:
            return _error_response(error, _request_id())

    async def hello(self, _http: web.Request) -> web.Response:
        """Answer a health check."""
        return web.json_response({"message": "hello"})

    async def unknown(self, http: web.Request) -> web.Response:
        """Refuse every other path."""
        return _error_response(RequestError(f"Not found: {http.method} on this path", 404), _request_id())


async def _read(http: web.Request, key: str, *, needs_max_tokens: bool = True) -> Request:
    if not key:
        raise RequestError("x-api-key or Authorization: Bearer is required; any key will do", 401)
    try:
        body = await http.read()
    except web.HTTPRequestEntityTooLarge:
        raise RequestError(f"The request body exceeds {MAX_BODY_BYTES} bytes", 413) from None
    except (web.RequestPayloadError, ConnectionResetError):
        raise ClientGoneError from None
    return parse_request(body, needs_max_tokens=needs_max_tokens)


def _key(http: web.Request) -> str:
    scheme, _, token = http.headers.get("authorization", "").partition(" ")
    return http.headers.get("x-api-key", "").strip() or (token.strip() if scheme.lower() == "bearer" else "")


def _request_id() -> str:
    return f"req_{uuid.uuid4().hex[:24]}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _refuse(call: _Call, error: RequestError, *, finish: Finish) -> web.Response:
    response = _error_response(error, call.id)
    call.progress.finish, call.progress.status = finish, response.status
    return response


def _error_response(error: RequestError, request_id: str) -> web.Response:
    body = error_of(error.status, error.message, request_id)
    return web.json_response(body, status=error.status, headers={"request-id": request_id})

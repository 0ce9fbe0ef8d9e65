"""The workers' model client: the Messages API of the gateway and of nothing else, behind our own values and errors.

No other worker module knows the API. It never retries; workers/retries.py decides that. A soft time limit is a
BaseException, so it passes through a call and closes the open stream on its way.

It is plain `http.client`, and each call has a connection of its own: a thousand calls that wait in the threads of one
process must cost next to nothing, no idle connection can die between two calls, and `abort` ends exactly one.
"""

from __future__ import annotations

import hashlib
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from io import BufferedReader
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from pydantic_core import from_json, to_json

from gateway.errors import (
    BudgetExceededError,
    CallTimeoutError,
    CancelledCallError,
    FencedCallError,
    GatewayError,
    GatewayUnreachableError,
    NoProviderKeyError,
    ProviderBusyError,
    ProviderDownError,
    ProviderError,
)
from gateway.messages import MALFORMED, MESSAGES_PATH, Code, ReplyReader, usage_of
from gateway.network import authorities
from gateway.providers.provider import EventSplitter, data_of, trouble_of
from monitoring import traces
from routing.model_call import request_digest
from routing.policy.prices import Usage
from routing.provider_circuit import Trouble, read_retry_after

MAX_REPLY_BYTES = 32 * 1024 * 1024
"""Of one stream: 150 times what the policy's `max_output_tokens` take, one event each."""
_MAX_ERROR_BYTES = 64 * 1024
_CHUNK_BYTES = 64 * 1024
_BUFFER_BYTES = 1024
"""For the head and the chunks' sizes; data is read past it."""
_CONNECT_SECONDS = 5.0
_HEALTH_SECONDS = 2.0
"""Less than what a soft time limit leaves before the hard one."""
_KEEP_ALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 60),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 5),
)
"""A provider may think for minutes: what translates addresses on the way must not forget a silent connection."""
_VERSION = "2026-10-21"
"""Of the API: the one that the SDK speaks which the tests hold us equal to."""
_OK = 200
_LOST_JOB = frozenset({Code.UNKNOWN_TOKEN, Code.ATTEMPT_ENDED, Code.DEADLINE_PASSED, Code.FENCED})
_NO_GATEWAY = frozenset({Code.LEDGER_UNREACHABLE, Code.SHUTTING_DOWN})
_CIRCUIT = frozenset({Code.CIRCUIT_OPEN, Code.RATE_LIMITED})


class Text(NamedTuple):
    """A text block of our turn."""

    text: str
    ends_prefix: bool = False
    """Whether to cache the prompt up to here: the next call with the same prefix reads it at a tenth of the price."""


class ToolResult(NamedTuple):
    """The result of a tool use."""

    use_id: str
    text: str
    is_error: bool = False
    ends_prefix: bool = False
    """As in `Text`."""


class ToolUse(NamedTuple):
    """A tool use that the model asks for."""

    id: str
    name: str
    input: Any


class Stop(StrEnum):
    """Why a reply ended."""

    DONE = "done"
    MAX_TOKENS = "max_tokens"
    """Cut short: the last tool's input may be incomplete."""
    REFUSED = "refused"


@dataclass(frozen=True)
class ModelReply:
    """A model's whole reply."""

    text: str
    tool_uses: tuple[ToolUse, ...]
    stop: Stop
    usage: Usage
    """As the reply states it; the ledger has the bill."""
    content: tuple[Mapping[str, Any], ...]
    """The provider's content blocks, only for the next turn of the conversation."""


Turn = str | Sequence[Text | ToolResult] | ModelReply
"""One turn of a conversation: ours, or an earlier reply."""


@dataclass(frozen=True)
class ToolCall:
    """The input that a model wrote for the tool it had to use."""

    input: dict[str, Any]
    usage: Usage
    is_cut: bool
    """The reply stopped at `max_tokens`, so the input may be incomplete."""


class ModelClient:
    """Calls models for one attempt; its owner closes it.

    Args:
        gateway_url: the only address that is called; no proxy stands before it.
        token: the attempt's token.
        timeout_seconds: how long the gateway may stay silent.
        replies: what was paid for, by the `request_digest` of its request, which is answered from it, once.
    """

    def __init__(
        self, gateway_url: str, token: str, *, timeout_seconds: float = 300.0, replies: dict[str, Any] | None = None
    ) -> None:
        self._replies = {} if replies is None else replies
        self._asked: set[str] = set()
        self.prompt_version = ""
        """Eight hex digits of the digest of the last call's system text: they change when its prompt does."""
        self._url = gateway_url
        self._token = token
        self._timeout_seconds = timeout_seconds
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        """Of the calls under way."""
        self._cause: BaseException | None = None
        """Why no call is made any more."""

    def create(
        self,
        conversation: Sequence[Turn],
        *,
        model: str,
        max_tokens: int,
        system: str | Text = "",
        tools: Sequence[Mapping[str, Any]] = (),
        must_use: str | None = None,
        is_single: bool = False,
        until: float | None = None,
    ) -> ModelReply:
        """Make one call and return the whole reply. It is streamed, so that giving up costs only what was generated.

        Args:
            conversation: the turns so far; the last one is ours.
            model: one of the queue's models.
            max_tokens: requested output tokens; the gateway may lower them to fit the budgets.
            system: the system prompt.
            tools: name, description and JSON schema (`input_schema`) of each tool that the model may use.
            must_use: the tool that the reply must use; None to let the model choose.
            is_single: whether the reply may use only that tool, once.
            until: monotonic time at which to give up.

        Raises:
            BudgetExceededError: a budget cannot cover the call, or cut it.
            FencedCallError: the attempt lost its job.
            CancelledCallError: the job was cancelled.
            NoProviderKeyError: the tenant's fault.
            ProviderBusyError: try later; also when the reply broke off.
            ProviderError: the request or the reply was wrong.
            GatewayUnreachableError: the operator's fault, or transient.
            CallTimeoutError: `until` has passed.
        """
        messages = [_message_of(turn) for turn in conversation]
        fields: dict[str, Any] = {"model": model, "max_tokens": max_tokens, "messages": messages}
        text = system if isinstance(system, str) else system.text
        self.prompt_version = hashlib.sha256(text.encode()).hexdigest()[:8]
        if text:
            fields["system"] = system if isinstance(system, str) else [_block_of(system)]
        if tools:
            fields["tools"] = list(tools)
        if must_use is not None:
            fields["tool_choice"] = {"type": "tool", "name": must_use, "disable_parallel_tool_use": is_single}
        digest = request_digest(fields)
        with self._translated(until):
            is_paid = digest in self._replies and digest not in self._asked
            message = self._replies[digest] if is_paid else self._stream(fields, until)
            reply = _reply_of(message)
        self._replies[digest] = message
        self._asked.add(digest)
        self._check()
        return reply

    def _stream(self, fields: Mapping[str, Any], until: float | None) -> dict[str, Any]:
        reader = ReplyReader()
        with self._open(to_json({**fields, "stream": True}), until) as (connected, response):
            retry_after = response.getheader("retry-after")
            if response.status != _OK:
                raise translate_error(response.status, _body_of(response), retry_after=retry_after)
            for event in self._events(connected, response, until):
                if event.get("type") == "error":
                    raise translate_error(_OK, event, retry_after=retry_after)
                reader.read(event)
        if (message := reader.message()) is None:
            raise ProviderDownError("the reply broke off")
        return message

    @contextmanager
    def _open(self, body: bytes, until: float | None) -> Iterator[tuple[socket.socket, HTTPResponse]]:
        """Post a request on a connection of its own, and close it in the end."""
        headers = {
            "authorization": f"Bearer {self._token}",
            "anthropic-version": _VERSION,
            "content-type": "application/json",
            "connection": "close",
        }
        if (trace := traces.current()) is not None:
            headers["traceparent"] = trace
        connection, path = _connection(self._url, timeout_seconds=_CONNECT_SECONDS)
        with closing(connection):
            connection.connect()
            connected: socket.socket = connection.sock
            for level, option, value in _KEEP_ALIVE:
                connected.setsockopt(level, option, value)
            with self._abortable(connected):
                self._wait_until(until, connected)
                connection.request("POST", path + MESSAGES_PATH, body, headers)
                with connection.getresponse() as response:
                    yield connected, response

    @contextmanager
    def _abortable(self, connected: socket.socket) -> Iterator[None]:
        held = connected.makefile("rb", buffering=0)  # its descriptor stays open until `abort` cannot meet it any more
        with self._lock:
            self._sockets.add(connected)
        try:
            self._check()
            yield
        finally:
            with self._lock:
                self._sockets.discard(connected)
            held.close()

    def _events(
        self, connected: socket.socket, response: HTTPResponse, until: float | None
    ) -> Iterator[Mapping[str, Any]]:
        """Yield the events of a stream; what is no event is passed over.

        Raises:
            ValueError: the provider's fault: they are too large, or no JSON.
        """
        splitter, left = EventSplitter(), MAX_REPLY_BYTES
        while chunk := response.read1(_CHUNK_BYTES):
            left -= len(chunk)
            if left < 0:
                raise ValueError(f"a reply is longer than {MAX_REPLY_BYTES} bytes")
            for part in splitter.feed(chunk):
                event = from_json(data) if (data := data_of(part)) else None
                if isinstance(event, dict):
                    yield event
            self._wait_until(until, connected)

    def _wait_until(self, until: float | None, connected: socket.socket) -> None:
        """Let the next wait last until then at most."""
        left = self._timeout_seconds if until is None else min(until - time.monotonic(), self._timeout_seconds)
        if left <= 0:
            raise CallTimeoutError
        connected.settimeout(left)

    @contextmanager
    def _translated(self, until: float | None) -> Iterator[None]:
        """Turn whatever a call raises into our errors, or into the cause of its abortion."""
        self._check()
        try:
            yield
        except GatewayError:
            self._check()
            raise
        except (OSError, HTTPException) as error:
            self._check()
            if until is not None and time.monotonic() >= until:
                raise CallTimeoutError from None
            text = f"the gateway broke off or cannot be reached ({type(error).__name__})"
            raise GatewayUnreachableError(text) from None
        except MALFORMED as error:
            raise ProviderError(_OK, f"the reply cannot be read ({type(error).__name__})") from None

    def _check(self) -> None:
        if self._cause is not None:
            raise self._cause from None

    def abort(self, cause: BaseException) -> None:
        """End every call under way, from another thread: it raises `cause` at once, as does every later call.

        A reply that is already whole is not lost. A call that is still connecting notices within seconds.
        """
        with self._lock:
            self._cause = self._cause or cause
            for connected in self._sockets:
                with suppress(OSError):  # it is closed already
                    socket.socket.shutdown(connected, socket.SHUT_RDWR)  # TLS would say goodbye first, and wait

    def tool_call(
        self,
        conversation: Sequence[Turn],
        *,
        model: str,
        max_tokens: int,
        tool: Mapping[str, Any],
        system: str | Text = "",
        until: float | None = None,
    ) -> ToolCall:
        """Make one call that must use `tool`, and return the tool's input.

        Raises:
            ProviderError: also when the model did not use the tool.
            GatewayError: as in `create`.
        """
        reply = self.create(
            conversation,
            model=model,
            max_tokens=max_tokens,
            system=system,
            tools=[tool],
            must_use=tool["name"],
            is_single=True,
            until=until,
        )
        for use in reply.tool_uses:
            if use.name == tool["name"] and isinstance(use.input, dict):
                return ToolCall(use.input, reply.usage, reply.stop is Stop.MAX_TOKENS)
        raise ProviderError(200, f"the model did not use the tool {tool['name']}")

    def close(self) -> None:
        """Make no more calls."""
        self.abort(GatewayError("the model client is closed"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def is_away(gateway_url: str, *, within_seconds: float) -> bool:
    """Return whether a gateway does not answer, or stood still within the last so many seconds.

    It tells a dead or frozen gateway from failed or slow work that called through it.
    """
    connection, path = _connection(gateway_url, timeout_seconds=_HEALTH_SECONDS)
    try:
        with closing(connection):
            connection.request("GET", f"{path}/healthz")
            answer = connection.getresponse()
            stood_still = _part(_body_of(answer), "stood_still_seconds_ago")
            return answer.status != _OK or (stood_still is not None and float(stood_still) <= within_seconds)
    except (OSError, HTTPException, *MALFORMED):
        return True


class _Response(HTTPResponse):
    """A response that is read through a small buffer: a thousand of them wait in one process."""

    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp.close()
        self.fp = BufferedReader(sock.makefile("rb", buffering=0), _BUFFER_BYTES)


def _connection(url: str, *, timeout_seconds: float) -> tuple[HTTPConnection, str]:
    """Return a connection that is yet to be opened, and what to put before every path."""
    parts = urlsplit(url)
    host, path = parts.hostname or "", parts.path.rstrip("/")
    is_secure = parts.scheme == "https"
    kind = partial(HTTPSConnection, context=authorities()) if is_secure else HTTPConnection
    connection = kind(host, parts.port, timeout=timeout_seconds)
    connection.response_class = _Response
    return connection, path


def _body_of(response: HTTPResponse) -> object:
    """Return a short JSON body, None for any other."""
    try:
        return from_json(response.read(_MAX_ERROR_BYTES))
    except ValueError:
        return None


def _part(value: object, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _message_of(turn: Turn) -> dict[str, Any]:
    if isinstance(turn, ModelReply):
        return {"role": "assistant", "content": list(turn.content) or [{"type": "text", "text": "..."}]}
    return {"role": "user", "content": turn if isinstance(turn, str) else [_block_of(part) for part in turn]}


def _block_of(part: Text | ToolResult) -> dict[str, Any]:
    if isinstance(part, Text):
        block: dict[str, Any] = {"type": "text", "text": part.text}
    else:
        block = {"type": "tool_result", "tool_use_id": part.use_id, "content": part.text, "is_error": part.is_error}
    return block | {"cache_control": {"type": "ephemeral"}} if part.ends_prefix else block


_STOPS = {"max_tokens": Stop.MAX_TOKENS, "refusal": Stop.REFUSED}


def _reply_of(message: Mapping[str, Any]) -> ModelReply:
    content = message["content"]
    return ModelReply(
        text="\n".join(block["text"] for block in content if block["type"] == "text").strip(),
        tool_uses=tuple(
            ToolUse(block["id"], block["name"], block["input"]) for block in content if block["type"] == "tool_use"
        ),
        stop=_STOPS.get(message["stop_reason"], Stop.DONE),
        usage=usage_of(message),
        content=tuple(content),
    )


def translate_error(status: int, body: object, *, retry_after: str | None = None) -> GatewayError:
    """Return our error for an error response: by the gateway's code, else by the provider's status.

    Args:
        status: of the response; 200 when the error is an event of a stream.
        body: of the response, or the event; None when it is no JSON.
        retry_after: the header of that name.
    """
    error = _part(body, "error")
    code = _part(_part(error, "details"), "error_code")
    message = str(_part(error, "message") or "no message")[:500]
    seconds = read_retry_after(retry_after, now=datetime.now(UTC))
    if not isinstance(code, str):
        return _provider_error(status, _part(error, "type"), message, seconds)
    if code == Code.BUDGET_EXCEEDED:
        return BudgetExceededError(message)
    if code in _LOST_JOB:
        return FencedCallError(message)
    if code == Code.CANCELLED:
        return CancelledCallError(message)
    if code == Code.NO_PROVIDER:
        return NoProviderKeyError(message)
    if code in _NO_GATEWAY:
        return GatewayUnreachableError(message)
    if code in (Code.PROVIDER_UNREACHABLE, Code.PROVIDER_GONE):
        return ProviderDownError(message, seconds)
    if code in _CIRCUIT:
        return ProviderBusyError(message, seconds)
    return ProviderError(status, message)


def _provider_error(status: int, kind: object, message: str, retry_after: float | None) -> GatewayError:
    if status in (401, 403):
        return NoProviderKeyError(f"the provider refuses the tenant's key: {message}")
    trouble = trouble_of(status) or trouble_of(status, kind=str(kind))
    if trouble is None:
        return ProviderError(status, message)
    return (ProviderDownError if trouble is Trouble.FAILING else ProviderBusyError)(message, retry_after)

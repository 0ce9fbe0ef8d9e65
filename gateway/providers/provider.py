"""The provider interface, and the meter that prices a reply as a provider reports it.

Callers always speak the Messages API (messages.py). A provider with another API translates requests, replies and errors
behind this interface; admission and relay do not know which one it is.

The meter never counts less than the provider may bill: a reply that did not arrive whole may have been written to its
`max_tokens`, and one whose input is unknown costs the whole reserve.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, TypeGuard
from uuid import UUID

from pydantic_core import from_json, to_json

from gateway.messages import ModelRequest
from routing.policy.prices import Price, Usage, cost_nanousd
from routing.provider_circuit import Trouble

CHARACTERS_PER_TOKEN = 4
_MOST_CHARACTERS_PER_TOKEN = 6
"""Prose has about five at most. A reply with more per token of its `max_tokens` ignores `max_tokens`."""


class Settlement(NamedTuple):
    """How a call is booked."""

    usage: Usage
    """As far as it could be seen."""
    cost_nanousd: int
    """The most that it can have cost, where that was not all."""
    state: str
    finish: str
    status: int


class Meter:
    """Counts one reply from what the provider's reader reports."""

    def __init__(self, price: Price, *, reserved_nanousd: int, max_tokens: int) -> None:
        self.price = price
        self._reserved = reserved_nanousd
        self._max_tokens = max_tokens
        self._input: Usage | None = None
        self._dear_writes = 0
        self._dear_nanousd = 0
        self._output = 0
        self._has_output = False
        self._characters = 0
        self._is_garbled = False
        self.has_started = False
        """The provider has begun to reply."""
        self.is_complete = False
        """The provider reported the end of the message."""
        self.has_failed = False
        """The provider reported an error inside the stream."""
        self.error_kind = ""
        """The kind of that error."""

    @property
    def is_overrun(self) -> bool:
        """Whether an unfinished reply has used more than its reserve, as far as it can be seen."""
        return self.has_started and not self._has_output and self._cost(self._usage()) > self._reserved

    def begin(self) -> None:
        """Note that the provider has begun to reply."""
        self.has_started = True

    def garble(self) -> None:
        """Note that something the provider sent is unreadable, so the usage is unknown."""
        self._is_garbled = True

    def count_characters(self, count: int) -> None:
        """Add characters of output."""
        self._characters += count

    def count_input(self, usage: Usage) -> None:
        """Note the input's total usage so far; output tokens are ignored."""
        self.has_started = True
        last = self._input or Usage()
        self._input = Usage(
            input_tokens=max(usage.input_tokens, last.input_tokens),
            cache_write_tokens=max(usage.cache_write_tokens, last.cache_write_tokens),
            cache_read_tokens=max(usage.cache_read_tokens, last.cache_read_tokens),
        )

    def count_dear_writes(self, tokens: int, *, nanousd_each: int) -> None:
        """Note how many cache-write tokens cost more than the price table says, and by how much each."""
        self._dear_writes, self._dear_nanousd = tokens, nanousd_each

    def count_output(self, tokens: int, *, is_final: bool) -> None:
        """Note the output tokens so far, or the final count."""
        self._output = max(tokens, self._output)
        self._has_output = self._has_output or is_final

    def fail(self, kind: object) -> None:
        """Note an error that the provider reported inside the stream."""
        self.has_failed = True
        self.error_kind = kind if isinstance(kind, str) else ""

    def complete(self) -> None:
        """Note the end of a streamed reply."""
        self.is_complete = True

    def complete_whole(self) -> None:
        """Note the end of an unstreamed reply, which is complete if it was readable."""
        self.is_complete = self._has_output = not self._is_garbled

    def _usage(self) -> Usage:
        """Return the usage as far as it can be seen."""
        written = -(-self._characters // CHARACTERS_PER_TOKEN)
        if self._characters <= _MOST_CHARACTERS_PER_TOKEN * self._max_tokens:
            written = min(written, self._max_tokens)
        output = self._output if self.is_complete and self._has_output else max(self._output, written)
        return (self._input or Usage())._replace(output_tokens=output)

    def _cost(self, usage: Usage) -> int:
        return cost_nanousd(self.price, usage) + min(self._dear_writes, usage.cache_write_tokens) * self._dear_nanousd

    def settlement(self, *, finish: str, status: int) -> Settlement:
        """Return how to book the call as far as it went."""
        usage = self._usage()
        is_input_known = self._input is not None and not self._is_garbled
        if self.is_complete and self._has_output and is_input_known:
            return Settlement(usage, self._cost(usage), "settled", finish, status)
        most = self._cost(usage._replace(output_tokens=max(usage.output_tokens, self._max_tokens)))
        return Settlement(usage, most if is_input_known else max(self._reserved, most), "presumed", finish, status)


class UpstreamRequest(NamedTuple):
    """A request to post to the provider."""

    url: str
    headers: dict[str, str]
    body: bytes


class WorstInput(NamedTuple):
    """Upper bounds of a call's input and its cost."""

    tokens: int
    nanousd: int


class ReplyStream(Protocol):
    """One reply while it arrives."""

    def feed(self, chunk: bytes) -> bytes:
        """Meter some bytes and return what the caller gets: whole events, so that an error event can follow.

        Raises:
            UnreadableStreamError: the provider's fault.
        """


class Provider(ABC):
    """One account at one provider. What is not abstract is so for a provider that counts and caches nothing."""

    @abstractmethod
    def check(self, request: ModelRequest, *, allows_references: bool) -> None:
        """Refuse what the provider must not do for a caller, or what the price table does not cover.

        `allows_references` says whether media may be outside the body.

        Raises:
            RefusedError: the caller's fault; names the field and the rule.
        """

    @abstractmethod
    def worst_input(
        self,
        request: ModelRequest,
        price: Price,
        *,
        headers: Mapping[bytes, bytes],
        counted: int | None = None,
        trusts_cache: bool = False,
    ) -> WorstInput | None:
        """Return an upper bound of the provider's bill for the input; None if only its own count can tell.

        `counted` is the provider's own count (`read_count`), if it was asked; with `trusts_cache`, what the provider
        promised to keep cached is priced as that.
        """

    def note_usage(  # noqa: B027 - a provider without a cache has nothing to learn
        self, request: ModelRequest, usage: Usage, *, headers: Mapping[bytes, bytes], sent_at: float
    ) -> None:
        """Remember what a reply told about its prompt, for the bounds of later calls; `sent_at` is monotonic time."""

    @abstractmethod
    def call(
        self, request: ModelRequest, *, max_tokens: int, headers: Mapping[bytes, bytes], call_id: UUID
    ) -> UpstreamRequest:
        """Return the request to post, with the account's key; of the headers only those of the API are passed on."""

    def count(self, request: ModelRequest, *, headers: Mapping[bytes, bytes]) -> UpstreamRequest | None:
        """Return the request that counts the input free of charge; None where the provider offers none."""
        return None

    def read_count(self, body: bytes) -> int | None:
        """Return the input tokens that a count states, plus a safety margin; None when it states none."""
        return None

    @abstractmethod
    def open_stream(self, meter: Meter) -> ReplyStream:
        """Return a reader of a streamed reply that reports to `meter`."""

    @abstractmethod
    def read_reply(self, body: bytes, meter: Meter) -> bytes:
        """Meter a reply that is not streamed and return what the caller gets."""

    @abstractmethod
    def pass_back(self, body: bytes, *, status: int) -> bytes:
        """Return an error, or a count (status 200), as the Messages API states it and without the account's key."""

    @abstractmethod
    def reply_headers(self, headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
        """Return the provider's headers that the caller may see."""

    def status_of(self, status: int, body: bytes) -> int:
        """Return the status that an error has in the Messages API."""
        return status

    def trouble_of(self, status: int | None, *, kind: str = "") -> Trouble | None:
        """Return what ails the provider, by a call's status (None for no answer) or the kind of error in its stream."""
        return trouble_of(status, kind=kind)


def trouble_of(status: int | None, *, kind: str = "") -> Trouble | None:
    """Return what the end of a call of the Messages API says about its provider, as `Provider.trouble_of` does."""
    if kind:
        return _TROUBLES_OF_KIND.get(kind)
    if status is None:
        return Trouble.FAILING
    return _TROUBLES.get(status) or (Trouble.FAILING if status >= _FAULT else None)


_TROUBLES = {408: Trouble.FAILING, 429: Trouble.RATE_LIMITED, 503: Trouble.OVERLOADED, 529: Trouble.OVERLOADED}
_TROUBLES_OF_KIND = {
    "rate_limit_error": Trouble.RATE_LIMITED,
    "overloaded_error": Trouble.OVERLOADED,
    "api_error": Trouble.FAILING,
    "timeout_error": Trouble.FAILING,
}
_KINDS = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
"""Kinds of errors of the Messages API by HTTP status; any other is `invalid_request_error`, or `api_error` from 500."""
_FAULT = 500
_MAX_MESSAGE_CHARACTERS = 1000


def error_fields(status: int, message: str) -> dict[str, Any]:
    """Return an error as the Messages API words it."""
    kind = _KINDS.get(status) or ("api_error" if status >= _FAULT else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": message[:_MAX_MESSAGE_CHARACTERS]}}


def error_body(status: int, message: str) -> bytes:
    """Return that error as a body."""
    return to_json(error_fields(status, message))


def message_of_error(body: bytes) -> str:
    """Return the message in an error of another API, wherever such APIs put it."""
    try:
        error = from_json(body)
    except ValueError:
        return "the provider gave no readable reason"
    for name in ("error", "message", "Message", "detail"):
        found = error.get(name) if isinstance(error, dict) else None
        if isinstance(found, str):
            return found
        error = found if isinstance(found, dict) else error
    return "the provider gave no reason"


def is_count(value: Any) -> TypeGuard[int]:
    """Return whether a value is a number of tokens, which the ledger has a column for."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_TOKENS


_MOST_TOKENS = 2**31
_BORDER = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LONGEST_BORDER = 4
MAX_EVENT_BYTES = 4 * 1024 * 1024


class UnreadableStreamError(ValueError):
    """An event exceeds the size limit, or the stream cannot be split into events (the provider's fault)."""


class EventSplitter:
    """Splits a stream of bytes into whole events, unchanged."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take bytes and return the events that are now complete.

        Raises:
            UnreadableStreamError: the provider's fault.
        """
        new = self._pending[-_LONGEST_BORDER:] + chunk if self._pending else chunk
        if b"\n\n" not in new and not (b"\r" in new and _BORDER.search(new)):
            self._pending += chunk  # and nothing that came before is looked at again
            events: list[bytes] = []
        else:
            *events, rest = _split(bytes(self._pending) + chunk)
            self._pending = bytearray(rest)
        if len(self._pending) > MAX_EVENT_BYTES:
            raise UnreadableStreamError(f"an event is longer than {MAX_EVENT_BYTES} bytes")
        return events


def _split(data: bytes) -> list[bytes]:
    """Return whole events, and what follows the last."""
    if b"\r" not in data:
        *events, rest = data.split(b"\n\n")
        return [*(event + b"\n\n" for event in events), rest]
    borders = [0, *(border.end() for border in _BORDER.finditer(data)), len(data)]
    return [data[start:end] for start, end in pairwise(borders)]


def data_of(event: bytes) -> bytes:
    """Return an event's data; empty when it has none."""
    lines = [line[5:].removeprefix(b" ") for line in event.splitlines() if line.startswith(b"data:")]
    return lines[0] if len(lines) == 1 else b"\n".join(lines)

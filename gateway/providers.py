"""What the gateway needs of a model provider: all that knows one provider's API stands behind this protocol.

Callers always speak the Messages API (messages.py), whoever answers. A provider with another API translates requests,
replies and errors here; admission, relay, meter and circuit do not know which one it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple, Protocol
from uuid import UUID

from gateway.messages import ModelRequest
from gateway.meter import Meter
from routing.policy.prices import Price
from routing.provider_circuit import Trouble


class UpstreamRequest(NamedTuple):
    """A request to the provider, posted as it is."""

    url: str
    headers: dict[str, str]
    body: bytes


class WorstInput(NamedTuple):
    """The most that a call's input can be and cost."""

    tokens: int
    nanousd: int


class ReplyStream(Protocol):
    """One reply while it arrives."""

    def feed(self, chunk: bytes) -> bytes:
        """Meter bytes as they come and return what the caller gets of them: whole events, so an error can follow.

        Raises:
            EventTooLargeError: the provider's fault.
        """


class Provider(Protocol):
    """One account at one provider."""

    def check(self, request: ModelRequest) -> None:
        """Refuse what this provider must not do for a caller, or what its price list does not cover.

        Raises:
            RefusedError: the caller's fault; names the field and the rule.
        """

    def worst_input(self, request: ModelRequest, price: Price, *, counted: int | None = None) -> WorstInput:
        """Return a bound that the provider's bill for the input does not exceed.

        Args:
            request: the request.
            price: the model's.
            counted: tokens that the provider itself counted, see `read_count`; None when nobody asked it.
        """

    def call(
        self, request: ModelRequest, *, max_tokens: int, headers: Mapping[bytes, bytes], call_id: UUID
    ) -> UpstreamRequest:
        """Return what is posted for a call that may write `max_tokens`, with the account's key put in.

        Args:
            request: the request.
            max_tokens: what the budgets have room for.
            headers: the caller's, of which only those of the API are passed on.
            call_id: the call's id in the ledger.
        """

    def count(self, request: ModelRequest, *, headers: Mapping[bytes, bytes]) -> UpstreamRequest | None:
        """Return what is posted to have a request's input counted free of charge; None where that is not offered."""

    def read_count(self, body: bytes) -> int | None:
        """Return the input tokens that a count names, with the margin of its error; None when it names none."""

    def open_stream(self, meter: Meter) -> ReplyStream:
        """Return what reads a streamed reply, on `meter`."""

    def read_reply(self, body: bytes, meter: Meter) -> bytes:
        """Meter a reply that is not streamed and return what the caller gets."""

    def pass_back(self, body: bytes) -> bytes:
        """Return an error or a count as the caller gets it: without the account's key."""

    def reply_headers(self, headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
        """Return what the caller may see of the provider's headers."""

    def trouble_of(self, status: int | None, *, kind: str = "") -> Trouble | None:
        """Return what is wrong with the provider by one call's end; None when it is well, whatever it said.

        Args:
            status: its HTTP status; None when there was no answer.
            kind: of the error that it reported inside a stream; empty for none.
        """


_BORDER = re.compile(rb"\r\n\r\n|\n\n|\r\r")
MAX_EVENT_BYTES = 4 * 1024 * 1024


class EventTooLargeError(ValueError):
    """An event does not end (the provider's fault)."""


class EventSplitter:
    """Collects the bytes of a stream and gives back whole events, unchanged."""

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take bytes as they come, return the events that are now complete.

        Raises:
            EventTooLargeError: the provider's fault.
        """
        data = self._pending + chunk
        if b"\r" not in data:
            *events, self._pending = data.split(b"\n\n")
            events = [event + b"\n\n" for event in events]
        else:
            events = self._split(data)
        if len(self._pending) > MAX_EVENT_BYTES:
            raise EventTooLargeError(f"an event is longer than {MAX_EVENT_BYTES} bytes")
        return events

    def _split(self, data: bytes) -> list[bytes]:
        events, start = [], 0
        for border in _BORDER.finditer(data):
            events.append(data[start : border.end()])
            start = border.end()
        self._pending = data[start:]
        return events


def data_of(event: bytes) -> bytes:
    """Return the data of an event; empty when it has none."""
    lines = [line[5:].removeprefix(b" ") for line in event.splitlines() if line.startswith(b"data:")]
    return lines[0] if len(lines) == 1 else b"\n".join(lines)

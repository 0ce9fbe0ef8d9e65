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
from routing.policy.prices import Price, Usage, cost_nanousd
from routing.provider_circuit import Trouble

# What a call has cost so far, and did cost. Pure: the gateway's one idea of money.
#
# Never under what the provider may bill: a reply that was cut is counted from its characters, and what cannot be
# known
# costs the whole reserve.

CHARACTERS_PER_TOKEN = 4
_MOST_CHARACTERS_PER_TOKEN = 6
"""Prose has up to about five. A reply with more than this for each of its `max_tokens` ignores them."""


class Settlement(NamedTuple):
    """How a call is booked."""

    usage: Usage
    cost_nanousd: int
    state: str
    finish: str
    status: int


class Meter:
    """Counts one reply from what a provider's reader tells it (providers.py)."""

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
        self._hides_output = False
        self.is_complete = False
        """The provider said that the message is whole."""
        self.has_failed = False
        """The provider reported an error inside the stream."""
        self.error_kind = ""
        """Which kind of error that was."""

    @property
    def has_started(self) -> bool:
        """Whether the provider has said what the input was."""
        return self._input is not None

    @property
    def is_overrun(self) -> bool:
        """Whether more than the reserve has been used and more may come."""
        return self._input is not None and not self._has_output and self._cost(self._usage()) > self._reserved

    def garble(self) -> None:
        """Something that the provider sent cannot be read, so nobody knows what was used."""
        self._is_garbled = True

    def hide_output(self) -> None:
        """The reply holds output of which not every token is shown."""
        self._hides_output = True

    def count_characters(self, count: int) -> None:
        """So many more characters of output have been sent."""
        self._characters += count

    def count_input(self, usage: Usage) -> None:
        """The provider says what the input was, all in all; its output tokens are not read."""
        last = self._input or Usage()
        self._input = Usage(
            input_tokens=max(usage.input_tokens, last.input_tokens),
            cache_write_tokens=max(usage.cache_write_tokens, last.cache_write_tokens),
            cache_read_tokens=max(usage.cache_read_tokens, last.cache_read_tokens),
        )

    def count_dear_writes(self, tokens: int, *, nanousd_each: int) -> None:
        """So many of the tokens written to a cache cost more than the price table says, each by so much."""
        self._dear_writes, self._dear_nanousd = tokens, nanousd_each

    def count_output(self, tokens: int, *, is_final: bool) -> None:
        """The provider says how many tokens it has written so far, or in the end."""
        self._output = max(tokens, self._output)
        self._has_output = self._has_output or is_final

    def fail(self, kind: object) -> None:
        """The provider reports an error of its own inside the stream."""
        self.has_failed = True
        self.error_kind = kind if isinstance(kind, str) else ""

    def complete(self) -> None:
        """The provider says that the reply is whole."""
        self.is_complete = True

    def complete_whole(self) -> None:
        """A reply that came at once is whole if it could be read."""
        self.is_complete = self._has_output = not self._is_garbled

    def _usage(self) -> Usage:
        written = -(-self._characters // CHARACTERS_PER_TOKEN)
        if self._characters <= _MOST_CHARACTERS_PER_TOKEN * self._max_tokens:
            written = min(written, self._max_tokens)
        output = self._output if self.is_complete and self._has_output else max(self._output, written)
        return (self._input or Usage())._replace(output_tokens=output)

    def _cost(self, usage: Usage) -> int:
        return cost_nanousd(self.price, usage) + min(self._dear_writes, usage.cache_write_tokens) * self._dear_nanousd

    def settlement(self, *, finish: str, status: int) -> Settlement:
        """Return how the call is booked, as far as it has come."""
        usage = self._usage()
        is_output_known = self._has_output if self.is_complete else not self._hides_output
        if self._input is not None and is_output_known and not self._is_garbled:
            return Settlement(usage, self._cost(usage), "settled", finish, status)
        cost = max(self._reserved, self._cost(usage))
        return Settlement(usage, cost, "presumed", finish, status)


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

"""What a call can cost, has cost so far, and did cost. Pure: the gateway's one idea of money.

Never under what the provider may bill: an input that nobody counted is bounded from its bytes, a reply that was cut is
counted from its characters, and what cannot be known costs the whole reserve.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pydantic_core import from_json

from routing.prices import Price, Usage, cost_nanousd, nanousd_per_token

CHARACTERS_PER_TOKEN = 4
_MOST_CHARACTERS_PER_TOKEN = 6
"""Prose has up to about five. A reply with more than this for each of its `max_tokens` ignores them."""
_BYTES_PER_INPUT_TOKEN = 2
TOOL_PROMPT_TOKENS = 600
"""What the provider itself adds to a prompt with tools: 264 to 530 tokens, by its own list."""
_LONG_CACHE_FACTOR = 2
"""Writing to the one-hour cache costs this many times the input price; the price table holds the five-minute cache."""


class Settlement(NamedTuple):
    """How a call is booked."""

    usage: Usage
    cost_nanousd: int
    state: str
    finish: str
    status: int


def most_input_tokens(encoded: bytes, *, has_tools: bool) -> int:
    """Return a number of input tokens that a body does not exceed."""
    return -(-len(encoded) // _BYTES_PER_INPUT_TOKEN) + (TOOL_PROMPT_TOKENS if has_tools else 0)


def most_input_nanousd(price: Price, tokens: int, *, has_long_cache: bool) -> int:
    """Return what so many input tokens cost at the dearest kind of input."""
    kinds = (price.input, price.cache_write, price.cache_read)
    dearest = max(*kinds, _LONG_CACHE_FACTOR * price.input if has_long_cache else 0)
    return tokens * nanousd_per_token(dearest)


def has_long_cache(encoded: bytes) -> bool:
    """Tell whether a body, as the gateway writes it, asks for the one-hour cache."""
    return b'"ttl":"1h"' in encoded


class Meter:
    """Counts one reply from a copy of what is passed on."""

    def __init__(self, price: Price, *, reserved_nanousd: int, max_tokens: int) -> None:
        self._price = price
        self._reserved = reserved_nanousd
        self._max_tokens = max_tokens
        self._input: Usage | None = None
        self._long_cache_tokens = 0
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

    def read(self, data: bytes) -> None:
        """Take the data of one event of a stream."""
        if not data:
            return
        try:
            event = from_json(data)
        except ValueError:
            self._is_garbled = True
            return
        if isinstance(event, dict):
            self._read_event(event)

    def read_message(self, body: bytes) -> None:
        """Take the body of a reply that is not streamed."""
        try:
            message = from_json(body)
        except ValueError:
            self._is_garbled = True
            return
        self._read_usage(message.get("usage") if isinstance(message, dict) else None, is_first=True)
        self.is_complete = self._has_output = not self._is_garbled

    def _read_event(self, event: dict[str, Any]) -> None:
        kind = event.get("type")
        if kind == "content_block_delta":
            self._read_delta(event.get("delta"))
        elif kind == "message_start":
            message = event.get("message")
            self._read_usage(message.get("usage") if isinstance(message, dict) else None, is_first=True)
        elif kind == "message_delta":
            self._read_usage(event.get("usage"), is_first=False)
        elif kind == "content_block_start":
            block = event.get("content_block")
            opened = block.get("type") if isinstance(block, dict) else None
            self._hides_output = self._hides_output or opened in ("thinking", "redacted_thinking")
        elif kind == "message_stop":
            self.is_complete = True
        elif kind == "error":
            self.has_failed = True
            error = event.get("error")
            said = error.get("type") if isinstance(error, dict) else None
            self.error_kind = said if isinstance(said, str) else ""

    def _read_delta(self, delta: Any) -> None:
        if isinstance(delta, dict):
            for field in ("text", "partial_json", "thinking"):
                value = delta.get(field)
                if isinstance(value, str):
                    self._characters += len(value)

    def _read_usage(self, usage: Any, *, is_first: bool) -> None:
        if not isinstance(usage, dict):
            self._is_garbled = True
            return
        counts = {name: usage.get(name) for name in _USAGE_FIELDS}
        if any(count is not None and not _is_count(count) for count in counts.values()) or (
            counts["input_tokens"] is None if is_first else self._input is None
        ):
            self._is_garbled = True
            return
        known = self._input or Usage()
        self._input = Usage(
            input_tokens=max(counts["input_tokens"] or 0, known.input_tokens),
            cache_write_tokens=max(counts["cache_creation_input_tokens"] or 0, known.cache_write_tokens),
            cache_read_tokens=max(counts["cache_read_input_tokens"] or 0, known.cache_read_tokens),
        )
        self._output = max(counts["output_tokens"] or 0, self._output)
        self._has_output = self._has_output or (not is_first and counts["output_tokens"] is not None)
        written = usage.get("cache_creation")
        long_cache = written.get("ephemeral_1h_input_tokens") if isinstance(written, dict) else None
        if isinstance(long_cache, int) and long_cache > 0:
            self._long_cache_tokens = long_cache

    def _usage(self) -> Usage:
        written = -(-self._characters // CHARACTERS_PER_TOKEN)
        if self._characters <= _MOST_CHARACTERS_PER_TOKEN * self._max_tokens:
            written = min(written, self._max_tokens)
        output = self._output if self.is_complete and self._has_output else max(self._output, written)
        return (self._input or Usage())._replace(output_tokens=output)

    def _cost(self, usage: Usage) -> int:
        long_cache = min(self._long_cache_tokens, usage.cache_write_tokens)
        listed = nanousd_per_token(self._price.cache_write)
        dearer = max(0, _LONG_CACHE_FACTOR * nanousd_per_token(self._price.input) - listed)
        return cost_nanousd(self._price, usage) + long_cache * dearer

    def settlement(self, *, finish: str, status: int) -> Settlement:
        """Return how the call is booked, as far as it has come."""
        usage = self._usage()
        is_output_known = self._has_output if self.is_complete else not self._hides_output
        if self._input is not None and is_output_known and not self._is_garbled:
            return Settlement(usage, self._cost(usage), "settled", finish, status)
        cost = max(self._reserved, self._cost(usage))
        return Settlement(usage, cost, "presumed", finish, status)


_USAGE_FIELDS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0

"""What a call has cost so far, and did cost. Pure: the gateway's one idea of money.

Never under what the provider may bill: a reply that was cut is counted from its characters, and what cannot be known
costs the whole reserve.
"""

from __future__ import annotations

from typing import NamedTuple

from routing.policy.prices import Price, Usage, cost_nanousd

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

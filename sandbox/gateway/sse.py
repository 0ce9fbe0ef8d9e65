"""Server-sent events, cut at their borders: only whole ones are passed on, so an error event can always follow."""

from __future__ import annotations

import re

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

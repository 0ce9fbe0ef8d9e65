"""What a session printed, kept so that a run can be explained later; the attempt's token is not in it."""

from __future__ import annotations

import gzip

HIDDEN = "[token]"
LEAST_CHARACTERS = 16
"""Of a token that is worth hiding: the gateway's have 47, and a shorter one would take ordinary words with it."""
MAX_BYTES = 2_097_152
"""Of one session; the beginning and the end are kept."""


class Hider:
    """Takes an attempt's token out of what is put on record.

    Any process in the box knows it and may print it, in the letters of JSON too: so lines are cleaned, and what is read
    out of them once more.
    """

    def __init__(self, token: str) -> None:
        self._token = token if len(token) >= LEAST_CHARACTERS else ""

    def line(self, line: bytes) -> bytes:
        """Return a line as it may be kept."""
        return line.replace(self._token.encode(), HIDDEN.encode()) if self._token else line

    def text(self, text: str) -> str:
        """Return a text as it may be kept."""
        return text.replace(self._token, HIDDEN) if self._token else text


class Transcript:
    """Collects lines, as they are once the attempt's token is out of them."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, line: bytes) -> None:
        """Take one line."""
        clean = line + b"\n"
        if not self._tail and len(self._head) + len(clean) <= MAX_BYTES // 2:
            self._head += clean
            return
        self._tail += clean
        del self._tail[: -(MAX_BYTES // 2)]

    def packed(self) -> bytes:
        """Return it compressed; equal lines give equal bytes."""
        return gzip.compress(bytes(self._head + self._tail), mtime=0)

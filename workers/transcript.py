"""What a session printed, kept so that a run can be explained later; the attempt's token is not in it."""

from __future__ import annotations

import gzip

MAX_BYTES = 2_097_152
"""Of one session; the beginning and the end are kept."""


class Transcript:
    """Collects lines.

    Args:
        secret: what is never stored: the attempt's token.
    """

    def __init__(self, *, secret: str) -> None:
        self._secret = secret.encode()
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, line: bytes) -> None:
        """Take one line."""
        clean = line.replace(self._secret, b"[token]") + b"\n"
        if not self._tail and len(self._head) + len(clean) <= MAX_BYTES // 2:
            self._head += clean
            return
        self._tail += clean
        del self._tail[: -(MAX_BYTES // 2)]

    def packed(self) -> bytes:
        """Return it compressed; equal lines give equal bytes."""
        return gzip.compress(bytes(self._head + self._tail), mtime=0)

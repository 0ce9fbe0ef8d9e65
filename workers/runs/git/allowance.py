"""What a remote may take, time and bytes, and how the git library complains of one."""

from __future__ import annotations

import struct
import time
import zlib
from dataclasses import dataclass

from dulwich.errors import (
    ApplyDeltaError,
    ChecksumMismatch,
    GitProtocolError,
    ObjectFormatException,
    RefFormatError,
)
from urllib3.exceptions import HTTPError

from sites.errors import RepositoryRefusedError
from workers.errors import RemoteError

SILENCE_SECONDS = 10.0
"""Without a byte from a remote."""
GARBAGE = (
    GitProtocolError,
    ApplyDeltaError,
    ChecksumMismatch,
    ObjectFormatException,
    RefFormatError,
    HTTPError,
    OSError,
    ValueError,
    KeyError,
    IndexError,
    AssertionError,
    NotImplementedError,
    struct.error,
    zlib.error,
)
"""What the library may raise about a malformed answer."""


@dataclass
class Allowance:
    """The time and bytes that a remote has left."""

    deadline: float
    bytes: int

    def spend(self, count: int) -> None:
        """Count received bytes.

        Raises:
            RepositoryRefusedError: `pack_too_large` (the remote's fault).
            RemoteError: it took too long.
        """
        self.bytes -= count
        if self.bytes < 0:
            raise RepositoryRefusedError("pack_too_large", "the remote sends more than a project may have")
        if time.monotonic() > self.deadline:
            raise RemoteError("the remote took too long")

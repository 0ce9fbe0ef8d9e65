"""Ids of rows that come and go by the thousand, for what they cost an index."""

from __future__ import annotations

import os
import time
from uuid import UUID

_VERSION = 7 << 76
_VARIANT = 0b10 << 62
_RANDOM = (1 << 76) - 1 ^ 0b11 << 62


def new_id() -> UUID:
    """Return a UUID of version 7 (RFC 9562): the time in milliseconds by this host's clock, then 74 random bits.

    Rows that are made together have their entries on one page of each index, and leave it together when they are
    deleted. With random ids each entry lies on a page of its own, which is written to the log as a whole once after
    each checkpoint (issue 23). Nothing reads the time, and no order is promised.
    """
    random = int.from_bytes(os.urandom(10))
    return UUID(int=(time.time_ns() // 1_000_000) << 80 | _VERSION | _VARIANT | random & _RANDOM)

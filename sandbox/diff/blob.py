"""git's ids of contents: they prove which content a diff was made from, and which it was meant to give."""

from __future__ import annotations

import hashlib


def blob_id(data: bytes) -> str:
    """Return git's id of a content, in hex."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()

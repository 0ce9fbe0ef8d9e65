"""Take secrets out of text before it is written where people and machines read it (ruling A31)."""

from __future__ import annotations

import hashlib
import hmac

from routing.secret_patterns import SECRETS

REDACTED = "[redacted]"


def redact(text: str, *, known: tuple[str, ...] = ()) -> str:
    """Return `text` with key patterns and the `known` values replaced."""
    for value in known:
        if value:
            text = text.replace(value, REDACTED)
    return SECRETS.sub(REDACTED, text)


def key_fingerprint(key: str, *, pepper: str) -> str:
    """Return a short keyed hash that names a key without giving it away (S-064, P-037)."""
    return hmac.new(pepper.encode(), key.encode(), hashlib.sha256).hexdigest()[:16]

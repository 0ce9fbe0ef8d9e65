"""Take secrets out of text before it is written where people and machines read it (ruling A31)."""

from __future__ import annotations

import hashlib
import hmac
import re

REDACTED = "[redacted]"

_SECRETS = re.compile(
    r"sk-[A-Za-z0-9_-]{16,}"
    r"|(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}"
    r"|gh[pousr]_[A-Za-z0-9]{30,}"
    r"|github_pat_[A-Za-z0-9_]{30,}"
    r"|glpat-[A-Za-z0-9_-]{20,}"
    r"|xox[abprs]-[A-Za-z0-9-]{10,}"
    r"|AIza[A-Za-z0-9_-]{30,}"
    r"|pmk_[A-Za-z0-9_-]{20,}"
    r"|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|(?i:(?<=bearer )[A-Za-z0-9._~+/=-]{16,})"
    r"|(?i:(?<=password=)\S+|(?<=password: )\S+)"
)


def redact(text: str, *, known: tuple[str, ...] = ()) -> str:
    """Return `text` with key patterns and the `known` values replaced."""
    for value in known:
        if value:
            text = text.replace(value, REDACTED)
    return _SECRETS.sub(REDACTED, text)


def key_fingerprint(key: str, *, pepper: str) -> str:
    """Return a short keyed hash that names a key without giving it away (S-064, P-037)."""
    return hmac.new(pepper.encode(), key.encode(), hashlib.sha256).hexdigest()[:16]

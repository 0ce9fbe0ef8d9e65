"""Take secrets out of text before it is written where people and machines read it (ruling A31)."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

from routing.secret_patterns import HIDDEN, may_hide

REDACTED = "[redacted]"


def redact(text: str, *, known: tuple[str, ...] = ()) -> str:
    """Return `text` with key patterns and the `known` values replaced."""
    for value in known:
        if value:
            text = text.replace(value, REDACTED)
    return HIDDEN.sub(REDACTED, text) if may_hide(text) else text


def redact_all(value: Any, *, known: tuple[str, ...] = ()) -> Any:
    """Return a JSON value with every text in it redacted, the names of fields included."""
    if not known and not may_hide(repr(value)):  # which holds every text, and every mark as it stands there
        return value
    return _redact_each(value, known)


def _redact_each(value: Any, known: tuple[str, ...]) -> Any:
    if isinstance(value, str):
        return redact(value, known=known)
    if isinstance(value, Mapping):
        return {redact(str(name), known=known): _redact_each(item, known) for name, item in value.items()}
    return [_redact_each(item, known) for item in value] if isinstance(value, list | tuple) else value


def key_fingerprint(key: str, *, pepper: str) -> str:
    """Return a short keyed hash that names a key without giving it away (S-064, P-037)."""
    return hmac.new(pepper.encode(), key.encode(), hashlib.sha256).hexdigest()[:16]

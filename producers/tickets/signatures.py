"""Whether a webhook is from whom it says it is: checked over the raw body, before anything in it is read."""

from __future__ import annotations

import hashlib
import hmac

_PREFIX = "sha256="
MAX_AGE_SECONDS = 60.0
"""How old a dated delivery may be, or how far ahead of our clock."""


def is_from_github(secret: str, body: bytes, *, signature: str) -> bool:
    """Return whether `X-Hub-Signature-256` is right (GitHub, "Validating webhook deliveries")."""
    return signature.startswith(_PREFIX) and _is_equal(secret, body, signature.removeprefix(_PREFIX))


def is_from_linear(secret: str, body: bytes, *, signature: str) -> bool:
    """Return whether `Linear-Signature` is right; that the delivery is fresh is `is_fresh`'s to say."""
    return _is_equal(secret, body, signature)


def is_fresh(sent_milliseconds: object, *, now_seconds: float) -> bool:
    """Return whether a delivery was sent just now, by the time in its signed body."""
    if not isinstance(sent_milliseconds, int) or isinstance(sent_milliseconds, bool):
        return False
    return abs(now_seconds - sent_milliseconds / 1000) <= MAX_AGE_SECONDS


def _is_equal(secret: str, body: bytes, signature: str) -> bool:
    if not secret:  # an empty key would make everybody a sender
        return False
    wanted = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(wanted.encode(), signature.encode("utf-8", "replace"))

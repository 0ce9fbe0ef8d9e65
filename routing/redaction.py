"""Secrets: what they look like, and how they are taken out of text before people or machines read it (ruling A31).

Each pattern stands beside what every text holds that it finds something in, whatever the case of its letters: a text
with none of these marks need not be searched, which costs ten times as much as a look for them.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Any

REDACTED = "[redacted]"
_KEYS = (
    (("sk-",), r"sk-[A-Za-z0-9_-]{16,}"),
    (("k_live_", "k_test_"), r"(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}"),
    (("akia", "asia"), r"(?:AKIA|ASIA)[A-Z0-9]{16}"),
    (("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"gh[pousr]_[A-Za-z0-9]{30,}"),
    (("github_pat_",), r"github_pat_[A-Za-z0-9_]{30,}"),
    (("glpat-",), r"glpat-[A-Za-z0-9_-]{20,}"),
    (("lin_api_", "lin_oauth_"), r"lin_(?:api|oauth)_[A-Za-z0-9]{20,}"),
    (("xox",), r"xox[abprs]-[A-Za-z0-9-]{10,}"),
    (("aiza",), r"AIza[A-Za-z0-9_-]{30,}"),
    (("pmk_",), r"pmk_[A-Za-z0-9_-]{20,}"),
    (("whsec_",), r"whsec_[A-Za-z0-9+/=_-]{16,}"),
    (("eyj",), r"eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"),
    (("private key-----",), r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"),
    (("bearer ",), r"(?i:(?<=bearer )[A-Za-z0-9._~+/=-]{16,})"),
    (("password=", "password: "), r"(?i:(?<=password=)\S+|(?<=password: )\S+)"),
)
_URL_USER = (("://",), r"(?<=://)[^\s/:@]*:[^\s/@]+(?=@)")
MARKED = (*_KEYS, _URL_USER)
"""What is hidden: marks, as `str.casefold` leaves them, and the pattern that finds nothing where none of them is."""
_MARKS = tuple(mark for marks, _ in MARKED for mark in marks)
SECRETS = re.compile("|".join(pattern for _, pattern in _KEYS))
"""What no configuration or plan may hold, wherever it stands in it."""
HIDDEN = re.compile("|".join(pattern for _, pattern in MARKED))
"""What is taken out of everything that is told or kept: keys, and the user and password of a URL."""


def may_hide(text: str) -> bool:
    """Tell whether HIDDEN could find anything in a text; if not, it does not."""
    folded = text.casefold()
    return any(mark in folded for mark in _MARKS)


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

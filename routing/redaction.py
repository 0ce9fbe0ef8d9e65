"""Redact secrets from text before people or machines can read it (ruling A31)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_URL_USER = (("://",), r"(?<=://)[^\s/:@]*:[^\s/@]+(?=@)")
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
    (("eyj",), r"eyJ[A-Za-z0-9_-]{10,1000}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"),
    (("private key-----",), r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"),
    (("bearer ",), r"(?i:(?<=bearer )[A-Za-z0-9._~+/=-]{16,})"),
    (("password=", "password: "), r"(?i:(?<=password=)\S+|(?<=password: )\S+)"),
)
MARKED = (*_KEYS, _URL_USER)
"""Case-folded marks, and a pattern that cannot match without one: looking for marks is ten times cheaper."""
_MARKS = tuple(mark for marks, _ in MARKED for mark in marks)
SECRETS = re.compile("|".join(pattern for _, pattern in _KEYS))
"""Keys that no configuration or plan may contain."""
HIDDEN = re.compile("|".join(pattern for _, pattern in MARKED))
"""What is redacted everywhere: keys, and the user and password of a URL."""


def may_hide(text: str) -> bool:
    """Return whether `HIDDEN` could match."""
    return any(map(text.casefold().__contains__, _MARKS))


def redact(text: str, *, known: tuple[str, ...] = ()) -> str:
    """Return `text` with keys and the `known` secrets replaced."""
    for value in known:
        if value:
            text = text.replace(value, REDACTED)
    return HIDDEN.sub(REDACTED, text) if may_hide(text) else text


def redact_all(value: Any, *, known: tuple[str, ...] = ()) -> Any:
    """Return a JSON value with all its texts and field names redacted."""
    if not known and not may_hide(repr(value)):  # repr holds every text with its marks
        return value
    return _redact_each(value, known)


def _redact_each(value: Any, known: tuple[str, ...]) -> Any:
    if isinstance(value, str):
        return redact(value, known=known)
    if isinstance(value, Mapping):
        return {redact(str(name), known=known): _redact_each(item, known) for name, item in value.items()}
    return [_redact_each(item, known) for item in value] if isinstance(value, list | tuple) else value

"""A person's session in the console: a signed cookie that names an API key, never the key itself.

The key is looked up for each request, so that a revoked one ends its sessions at once. Forms carry a token that only
pages of the same session can know (CSRF).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from itsdangerous import BadData, URLSafeTimedSerializer

COOKIE = "pointsman_console"
MAX_AGE_SECONDS = 12 * 3600
"""After so long a person logs in again."""
_SALT = "pointsman.console.v1"
_MAX_COOKIE_CHARS = 1024
_FIELDS = 2


@dataclass(frozen=True)
class ConsoleSession:
    """Who is logged in."""

    key_id: UUID
    """Of the API key."""
    nonce: str
    """Random, and no secret: what the form token is derived from."""


class Sessions:
    """Makes and reads session cookies."""

    def __init__(self, keys: Sequence[str]) -> None:
        """Take the installation's preview keys; another salt keeps the two kinds of tokens apart.

        Args:
            keys: the first signs, the others are still accepted.
        """
        self._form_key = hashlib.sha256(f"{_SALT}.form:{keys[0]}".encode()).digest()
        self._serializer = URLSafeTimedSerializer(
            list(reversed(keys)), salt=_SALT,
            signer_kwargs={"key_derivation": "hmac", "digest_method": hashlib.sha256},
        )  # fmt: skip

    def open(self, key_id: UUID) -> str:
        """Return the cookie of a new session."""
        return str(self._serializer.dumps([str(key_id), secrets.token_urlsafe(16)]))

    def read(self, cookie: str) -> ConsoleSession | None:
        """Return the session that a cookie names; None for one that is expired or not ours."""
        if not cookie or len(cookie) > _MAX_COOKIE_CHARS:
            return None
        try:
            return _session_of(self._serializer.loads(cookie, max_age=MAX_AGE_SECONDS))
        except BadData:
            return None

    def form_token(self, session: ConsoleSession) -> str:
        """Return what every form of a session carries."""
        return hmac.new(self._form_key, f"{session.key_id}:{session.nonce}".encode(), hashlib.sha256).hexdigest()

    def is_own_form(self, session: ConsoleSession, token: str) -> bool:
        """Tell whether a form was made for this session."""
        return hmac.compare_digest(self.form_token(session).encode(), token.encode("utf-8", "replace"))


def _session_of(payload: Any) -> ConsoleSession | None:
    if not isinstance(payload, list) or len(payload) != _FIELDS or not all(isinstance(part, str) for part in payload):
        return None
    try:
        return ConsoleSession(UUID(payload[0]), payload[1])
    except ValueError:
        return None

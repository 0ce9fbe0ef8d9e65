"""Signed preview links, and the headers under which a release is shown.

A link is a capability: who holds it may look at one release of one site and at nothing else, until it expires. The
token says which release, so that nobody can be shown other bytes than those that were scanned (H-082, threat H1).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from itsdangerous import BadData, SignatureExpired, TimestampSigner, URLSafeTimedSerializer

from sites.errors import PreviewRefusedError

_SALT = "pointsman.preview.v1"
_MAX_TOKEN_CHARS = 2048
_MIN_KEY_CHARS = 32

SANDBOX = "sandbox allow-downloads allow-forms allow-modals allow-popups allow-popups-to-escape-sandbox allow-scripts"
"""Added to the policy of every page: without `allow-same-origin` each page has an origin of its own that equals no
other, so the scripts of one release reach neither another release nor anything kept under the listener's origin."""

SECURITY_HEADERS: Mapping[str, str] = MappingProxyType(
    {
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "X-Frame-Options": "DENY",
        "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
        # A page whose origin equals no other's asks for its own images and scripts as a stranger.
        "Cross-Origin-Resource-Policy": "cross-origin",
        "Access-Control-Allow-Origin": "*",
    }
)
"""What every file of a release carries, live or not; the Content-Security-Policy comes from its scan report.

There is no Cross-Origin-Opener-Policy here: HTML makes a page that has one and is sandboxed a network error. The
sandbox does its work: a page without `allow-top-navigation` cannot send its opener elsewhere.
"""

REFUSAL_HEADERS: Mapping[str, str] = MappingProxyType(
    {
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "X-Frame-Options": "DENY",
        "Content-Security-Policy": f"default-src 'none'; frame-ancestors 'none'; {SANDBOX.split()[0]}",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "no-store",
        "X-Robots-Tag": "noindex, nofollow, noarchive",
    }
)
"""What an answer carries that is no file of a release: a refusal, or the way to a directory."""


def live_headers(csp: str) -> dict[str, str]:
    """Return the headers of a published page; `csp` is the scan report's header value."""
    return {**SECURITY_HEADERS, "Content-Security-Policy": f"{csp}; {SANDBOX}", "Cache-Control": "no-cache"}


def preview_headers(csp: str, *, framed_by: str = "") -> dict[str, str]:
    """Return the headers of a page that is only shown to the holder of a link: never stored, never indexed.

    Args:
        csp: the scan report's header value.
        framed_by: the one origin that may show it in a frame; empty for nobody.
    """
    headers = {
        **SECURITY_HEADERS,
        "Content-Security-Policy": f"{csp}; {SANDBOX}",
        "Cache-Control": "no-store",
        "X-Robots-Tag": "noindex, nofollow, noarchive",
    }
    if framed_by:
        kept = [part for part in csp.split("; ") if not part.startswith("frame-ancestors")]
        headers["Content-Security-Policy"] = "; ".join([*kept, f"frame-ancestors {framed_by}", SANDBOX])
        del headers["X-Frame-Options"]
    return headers


@dataclass(frozen=True)
class PreviewClaim:
    """What a valid token entitles its holder to."""

    site: str
    release_id: str
    audience: str
    """Whom the link was made for, such as `reviewer`; a token for one audience is not accepted for another."""
    generation: int
    """Of the release's links: raising the release's own generation revokes all that were made before."""


class PreviewSigner:
    """Makes and checks preview tokens; itsdangerous compares signatures in constant time (`hmac.compare_digest`)."""

    def __init__(self, keys: Sequence[str], *, clock: Callable[[], float] = time.time) -> None:
        """Take the installation's keys.

        Args:
            keys: the first signs; the others are still accepted, so that a key can be replaced while links are out.
            clock: seconds since the epoch.

        Raises:
            ValueError: there is no key, or one is shorter than 32 characters (the operator's fault).
        """
        if not keys or any(len(key) < _MIN_KEY_CHARS for key in keys):
            raise ValueError(f"preview keys: at least one, each of at least {_MIN_KEY_CHARS} characters")

        class ClockedSigner(TimestampSigner):
            def get_timestamp(self) -> int:
                return int(clock())

        self._serializer = URLSafeTimedSerializer(
            list(reversed(keys)),  # itsdangerous signs with the last one
            salt=_SALT,
            signer=ClockedSigner,
            signer_kwargs={"key_derivation": "hmac", "digest_method": hashlib.sha256},
        )

    def sign(self, *, site: str, release_id: str, audience: str, generation: int = 0) -> str:
        """Return a token for one release of one site, safe in a URL."""
        return str(self._serializer.dumps([site, release_id, audience, generation]))

    def verify(self, token: str, *, max_age_seconds: float, audiences: Collection[str]) -> PreviewClaim:
        """Return what a token entitles to.

        Args:
            token: as it came from the URL or the cookie.
            max_age_seconds: how old it may be.
            audiences: whose links are accepted.

        Raises:
            PreviewRefusedError: the bearer's fault: `expired`, or `tampered` for everything else.
        """
        if len(token) > _MAX_TOKEN_CHARS:
            raise PreviewRefusedError("tampered")
        try:
            claim = _claim_of(self._serializer.loads(token, max_age=int(max_age_seconds)))
        except SignatureExpired:
            raise PreviewRefusedError("expired") from None
        except BadData:
            raise PreviewRefusedError("tampered") from None
        if claim is None or claim.audience not in audiences:
            raise PreviewRefusedError("tampered")
        return claim


def _claim_of(payload: Any) -> PreviewClaim | None:
    fields = 4
    if not isinstance(payload, list) or len(payload) != fields:
        return None
    site, release_id, audience, generation = payload
    if type(generation) is int and all(isinstance(word, str) for word in (site, release_id, audience)):
        return PreviewClaim(site, release_id, audience, generation)
    return None

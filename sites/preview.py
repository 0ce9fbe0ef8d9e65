"""Signed preview links, and the headers under which a release is served.

A link is a capability: until it expires, its holder may see one release of one site and nothing else. The token names
the release, so nobody is shown other bytes than those that were scanned (H-082, threat H1).
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any
from uuid import UUID

from itsdangerous import BadData, SignatureExpired, TimestampSigner, URLSafeTimedSerializer

from sites.errors import PreviewRefusedError
from sites.scan.rules import csp_hash

_SALT = "pointsman.preview.v1"
_MAX_TOKEN_CHARS = 2048
_MIN_KEY_CHARS = 32

SANDBOX = "sandbox allow-downloads allow-forms allow-modals allow-popups allow-popups-to-escape-sandbox allow-scripts"
"""Added to every page's policy. Without `allow-same-origin` each page has an opaque origin, so the scripts of one
release reach neither another release nor the listener's own origin, and have no storage."""
OWN_ORIGIN = f"{SANDBOX} allow-same-origin"
"""Instead of it at a host name that is one site's alone, or one preview's."""
NO_CSP = "default-src 'none'"
"""For a release whose scan computed no policy: nothing may load."""
SITE = "{site}"
"""What stands for a site in the template of such host names."""
_SLUG_CHARACTERS = 40
_DIGEST_CHARACTERS = 16
_FRONT = re.compile(rb"(?:\xef\xbb\xbf)?(?:(?:\s|<!--(?>-?>|.*?--!?>))*+<!doctype[^>]*>)?", re.IGNORECASE | re.DOTALL)
"""What stands before a page's elements: an element before the doctype would have it laid out as old pages are."""

SECURITY_HEADERS: Mapping[str, str] = MappingProxyType(
    {
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "X-Frame-Options": "DENY",
        "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
        # From an opaque origin, a page's own images and scripts are cross-origin.
        "Cross-Origin-Resource-Policy": "cross-origin",
        "Access-Control-Allow-Origin": "*",
    }
)
"""Headers of every file of a release, live or previewed; the Content-Security-Policy comes from the scan report.

A Cross-Origin-Opener-Policy would make a sandboxed page a network error. It is not needed: without
`allow-top-navigation` a page cannot navigate its opener.
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
"""Headers of answers that are no file of a release: refusals and redirects to directories."""


def host_label_of_site(tenant: str, site: str) -> str:
    """Return the first label of the host name that is a live site's alone."""
    digest = hashlib.sha256(f"{tenant}/{site}".encode()).hexdigest()
    return f"{site[:_SLUG_CHARACTERS]}-{digest[:_DIGEST_CHARACTERS]}"


def host_label_of_preview(release_id: UUID) -> str:
    """Return the first label of the host name that is one preview's alone: its storage begins empty."""
    return f"preview-{release_id.hex}"


def with_probe(page: bytes) -> bytes:
    """Return an HTML page that reports its scripts' faults to the frame around it; its `preview_headers` allow that."""
    front = _FRONT.match(page)
    at = front.end() if front else 0
    return b"%b<script>%b</script>%b" % (page[:at], _probe().encode(), page[at:])


@cache
def _probe() -> str:
    return (resources.files("sites") / "preview_probe.js").read_text(encoding="utf-8")


def live_headers(csp: str, *, sandbox: str = SANDBOX) -> dict[str, str]:
    """Return the headers of a published page; `csp` is the scan report's value."""
    return {**SECURITY_HEADERS, "Content-Security-Policy": f"{csp}; {sandbox}", "Cache-Control": "no-cache"}


def preview_headers(csp: str, *, framed_by: str = "", sandbox: str = SANDBOX) -> dict[str, str]:
    """Return the headers of a previewed page, which is never stored or indexed.

    `framed_by` is the one origin that may frame it, with the probe; `sandbox` is what its scripts may do.
    """
    headers = {
        **SECURITY_HEADERS,
        "Content-Security-Policy": f"{csp}; {sandbox}",
        "Cache-Control": "no-store",
        "X-Robots-Tag": "noindex, nofollow, noarchive",
    }
    if framed_by:
        directives = [part for part in csp.split("; ") if not part.startswith("frame-ancestors")]
        directives = [f"{part} {csp_hash(_probe())}" if part.startswith("script-src ") else part for part in directives]
        headers["Content-Security-Policy"] = "; ".join([*directives, f"frame-ancestors {framed_by}", sandbox])
        del headers["X-Frame-Options"]
    return headers


@dataclass(frozen=True)
class PreviewClaim:
    """What a valid token allows its holder to see."""

    site: str
    release_id: str
    audience: str
    """Whom the link is for, such as `reviewer`; no other audience accepts it."""
    generation: int
    """Of the release's links; raising the release's generation revokes all earlier ones."""


class PreviewSigner:
    """Signs and verifies preview tokens; itsdangerous compares signatures in constant time."""

    def __init__(self, keys: Sequence[str], *, clock: Callable[[], float] = time.time) -> None:
        """Take the installation's keys: the first one signs, all verify, so that keys can be rotated.

        Raises:
            ValueError: there is no key, or one has fewer than 32 characters (the operator's fault).
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
        """Return the claim of a token from a URL or a cookie.

        Raises:
            PreviewRefusedError: `expired`, or `tampered` for everything else (the bearer's fault).
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

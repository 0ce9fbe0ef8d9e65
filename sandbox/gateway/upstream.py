"""The way to the providers: one pooled session, the provider's key put in, of the caller only its API headers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from uuid import UUID

import aiohttp

from routing.lanes import read_retry_after
from sandbox.gateway.config import GatewayConfig, ProviderConfig

_DEFAULT_VERSION = "2023-06-01"
_PASSED_BACK = frozenset({"content-type", "request-id", "retry-after", "x-should-retry"})
_IDLE_SECONDS = 15.0
"""A connection is not used again after so long: before any provider closes it."""


def open_session(config: GatewayConfig) -> aiohttp.ClientSession:
    """Return the session for every call of this gateway; needs a running event loop."""
    connector = aiohttp.TCPConnector(
        limit=config.upstream_connections, keepalive_timeout=_IDLE_SECONDS, ttl_dns_cache=60
    )
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=config.connect_seconds, sock_read=config.silence_seconds)
    return aiohttp.ClientSession(
        connector=connector, timeout=timeout, auto_decompress=True, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
    )


def request_headers(
    headers: Mapping[bytes, bytes], provider: ProviderConfig, *, call_id: UUID | None
) -> dict[str, str]:  # fmt: skip
    """Return what the provider is sent: the caller's `anthropic-*` headers and the provider's own key."""
    passed = {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in headers.items()
        if name.startswith(b"anthropic-")
    }
    passed.setdefault("anthropic-version", _DEFAULT_VERSION)
    passed["x-api-key"] = provider.api_key.get_secret_value()
    passed["content-type"] = "application/json"
    passed["accept-encoding"] = "identity"
    if call_id is not None:
        passed["x-pointsman-call"] = str(call_id)
    return passed


def response_headers(response: aiohttp.ClientResponse) -> list[tuple[bytes, bytes]]:
    """Return what the caller may see of the provider's headers."""
    return [
        (name.lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in response.headers.items()
        if name.lower() in _PASSED_BACK or name.lower().startswith("anthropic-ratelimit-")
    ]


def retry_after_of(response: aiohttp.ClientResponse) -> float | None:
    """Return the seconds that a provider asks for, by its own clock where it shows one; None when it names no time."""
    now = datetime.now(UTC)
    with suppress(ValueError, TypeError):
        shown = parsedate_to_datetime(response.headers.get("date", ""))
        now = shown if shown.tzinfo is not None else now
    return read_retry_after(response.headers.get("retry-after"), now=now)


def without_key(body: bytes, provider: ProviderConfig) -> bytes:
    """Return a provider's error without the key, should it repeat it."""
    return body.replace(provider.api_key.get_secret_value().encode(), b"[redacted]")


async def read_up_to(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """Return a body, cut after about `limit` bytes."""
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > limit:
            response.close()
            break
    return b"".join(parts)

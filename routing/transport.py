"""Which connections of an installation cross a network in the clear: told from their URLs alone."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import parse_qs, urlsplit

_CHECKED = frozenset({"verify-ca", "verify-full"})


def is_exposed_broker(url: str) -> bool:
    """Tell whether a broker's URL leads over a network without TLS."""
    return url.startswith("redis:") and not _is_here(url)


def is_exposed_ledger(url: str) -> bool:
    """Tell whether a ledger's URL leads over a network to a server whose certificate nobody checks."""
    return not _is_here(url) and _CHECKED.isdisjoint(parse_qs(urlsplit(url).query).get("sslmode", []))


def _is_here(url: str) -> bool:
    """Tell whether a URL names this machine; a ledger's without a host is a socket's."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host in ("", "localhost") or host.startswith("%2f")

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
    """Tell whether a URL names this machine only; a ledger's without a host is a socket's.

    The clients of both services take a host from the query, too, in the place of the one before the path.
    """
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    named = [host for name in ("host", "hostaddr") for value in query.get(name, []) for host in value.split(",")]
    return all(_is_this_machine(host) for host in named or [parts.hostname or ""])


def _is_this_machine(host: str) -> bool:
    """Tell whether a name, an address or a socket's directory, with a port or without, is on this machine."""
    host = host.partition(":")[0].lower() if host.count(":") == 1 else host.lower()
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host in ("", "localhost") or host.startswith(("/", "%2f"))

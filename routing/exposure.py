"""Whether a connection to broker or ledger crosses a network unprotected."""

from ipaddress import ip_address
from urllib.parse import parse_qs, urlsplit

_CHECKED = frozenset({"verify-ca", "verify-full"})


def is_exposed_broker(url: str) -> bool:
    """Return whether a broker URL crosses a network without TLS."""
    return url.startswith("redis:") and not _is_here(url)


def is_exposed_ledger(url: str) -> bool:
    """Return whether a ledger URL crosses a network without checking the server's certificate."""
    return not _is_here(url) and _CHECKED.isdisjoint(parse_qs(urlsplit(url).query).get("sslmode", []))


def _is_here(url: str) -> bool:
    """Return whether a URL names only this machine; without a host it names a socket.

    The clients of both services let a host in the query override the one before the path.
    """
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    hosts = [host for name in ("host", "hostaddr") for value in query.get(name, []) for host in value.split(",")]
    return all(_is_this_machine(host) for host in hosts or [parts.hostname or ""])


def _is_this_machine(host: str) -> bool:
    """Return whether a host name, address or socket directory, with or without a port, is on this machine."""
    host = host.partition(":")[0].lower() if host.count(":") == 1 else host.lower()
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host in ("", "localhost") or host.startswith(("/", "%2f"))

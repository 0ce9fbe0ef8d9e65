"""Which addresses are public, where alone a tenant's names may lead, and which of our URLs cross a network unprotected.

A callback, a project's remote or a package's URL may be any name, and a name may resolve to something else each time.
So the address decides, at the moment of connecting (`gateway/network.py`); what shows before is refused at once.
"""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import parse_qs, urlsplit

NO_URL = "must be an http or https URL with a host and without credentials"
NOT_PUBLIC = "must not lead to an address that is not public"

_GLOBAL_UNICAST = ip_network("2000::/3")
_WRAPPING_IPV4 = (ip_network("::ffff:0:0/96"), ip_network("64:ff9b::/96"))
"""IPv4-mapped addresses, and those of NAT64: the last 32 bits are where a connection ends."""
_EXCLUDED = tuple(
    map(
        ip_network,
        (
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
            *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24"),
            *("203.0.113.0/24", "224.0.0.0/3"),
            *("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"),
        ),
    )
)
"""What is not global in IPv4 and within `2000::/3`, by IANA's registries of special-purpose addresses; also Teredo and
6to4, which lead to an IPv4 address by somebody's relay."""


def is_public(address: str) -> bool:
    """Return whether an address is global unicast, or wraps an IPv4 address that is."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, IPv6Address):
        if any(found in network for network in _WRAPPING_IPV4):
            found = IPv4Address(int(found) & 0xFFFFFFFF)
        elif found not in _GLOBAL_UNICAST:
            return False
    return not any(found in network for network in _EXCLUDED)


def refusal_of(url: str, *, allow_private: bool) -> str | None:
    """Return the rule that a URL breaks, as far as that shows without looking its name up; None if it breaks none."""
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna").decode()
        is_sound = host != "" and parts.port != 0 and parts.username is None and url.isprintable()
    except ValueError:
        return NO_URL
    if not is_sound or parts.scheme not in ("http", "https"):
        return NO_URL
    return None if allow_private or _may_be_public(host) else NOT_PUBLIC


def _may_be_public(host: str) -> bool:
    """Judge an address in any form that a socket accepts, such as `127.1`; a name may be, unless it is `localhost`."""
    if ":" in host:
        return is_public(host)
    try:
        return is_public(socket.inet_ntoa(socket.inet_aton(host)))
    except OSError:
        return host.rstrip(".").rpartition(".")[2] != "localhost"


_CHECKED = frozenset({"verify-ca", "verify-full"})


def is_exposed_broker(url: str) -> bool:
    """Return whether a broker URL crosses a network without TLS."""
    return url.startswith("redis:") and not _is_here(url)


def is_exposed_url(url: str) -> bool:
    """Return whether a web address crosses a network without TLS."""
    return url.startswith("http:") and not _is_here(url)


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

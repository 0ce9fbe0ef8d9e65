"""Which addresses are public: what a name or a URL from outside leads to is judged by where it really goes."""

from __future__ import annotations

import ssl
from functools import cache
from ipaddress import IPv6Address, ip_address, ip_network

import certifi

_NAT64 = ip_network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Tell whether an address is one of the public Internet, also where it is wrapped into another."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo[1] if found.teredo else None)
        if inner is not None:
            return inner.is_global and not inner.is_multicast
        if found in _NAT64:
            return is_public(str(ip_address(int(found) & 0xFFFFFFFF)))
    return found.is_global and not found.is_multicast


# Whom this process trusts over TLS: certifi's list, read once, as it takes 50 ms of a core for each client.


@cache
def authorities() -> ssl.SSLContext:
    """Return the certificate authorities to trust, whatever the environment says; any thread may use them.

    Give it to a client as `verify`. A process that forks may make it before or after.
    """
    return ssl.create_default_context(cafile=certifi.where())

"""Outbound network rules: which addresses are public, and which certificate authorities to trust.

It lives here because every room that calls out (workers, producers, sandbox) stands above the gateway.
"""

from __future__ import annotations

import ssl
from functools import cache
from ipaddress import IPv6Address, ip_address, ip_network

import certifi

_NAT64 = ip_network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Return whether an address is on the public Internet, even if it is wrapped in an IPv6 address."""
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


@cache  # loading certifi's list takes 50 ms of CPU
def authorities() -> ssl.SSLContext:
    """Return the TLS context to give to a client as `verify`: certifi's authorities, whatever the environment says.

    It is safe to share between threads and across a fork.
    """
    return ssl.create_default_context(cafile=certifi.where())

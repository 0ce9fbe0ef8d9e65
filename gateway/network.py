"""Connect to what others name: public addresses only, and the certificate authorities to trust.

It lives here because every room that calls out (workers, producers, sandbox) stands above the gateway.
"""

from __future__ import annotations

import socket
import ssl
from functools import cache
from typing import Any

import certifi

from gateway.errors import AddressRefusedError
from routing.addresses import NOT_PUBLIC, is_public


def public_socket(info: tuple[Any, ...]) -> socket.socket:
    """Open the socket for a resolved address, an entry of `getaddrinfo`.

    Raises:
        AddressRefusedError: the fault of whoever named the host: the address is not public.
    """
    family, kind, protocol, _, address = info
    if not is_public(str(address[0])):
        raise AddressRefusedError(NOT_PUBLIC)
    return socket.socket(family, kind, protocol)


def connect_public(host: str, port: int, *, timeout_seconds: float) -> socket.socket:
    """Connect to the first of a host's public addresses that accepts.

    Raises:
        AddressRefusedError: as `public_socket`.
        OSError: the host has no address, or none that accepts.
    """
    failure = OSError("the host has no address")
    for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        try:
            opened = public_socket(info)
        except OSError as error:
            failure = error
            continue
        try:
            opened.settimeout(timeout_seconds)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opened.connect(info[4])
            return opened
        except OSError as error:
            failure = error
            opened.close()
    raise failure


@cache  # loading certifi's list takes 50 ms of CPU
def authorities() -> ssl.SSLContext:
    """Return the TLS context to give to a client as `verify`: certifi's authorities, whatever the environment says.

    It is safe to share between threads and across a fork.
    """
    return ssl.create_default_context(cafile=certifi.where())

"""Whom this process trusts over TLS. For each client httpx reads that list anew, 50 ms of a core: here, once."""

from __future__ import annotations

import ssl
from functools import cache

import httpx


@cache
def authorities() -> ssl.SSLContext:
    """Return the certificate authorities that httpx ships with, whatever the environment says; any thread may use them.

    Give it to a client as `verify`. A process that forks may make it before or after.
    """
    return httpx.create_ssl_context(trust_env=False)

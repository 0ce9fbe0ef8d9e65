"""Whom this process trusts over TLS: certifi's list, read once, as it takes 50 ms of a core for each client."""

from __future__ import annotations

import ssl
from functools import cache

import certifi


@cache
def authorities() -> ssl.SSLContext:
    """Return the certificate authorities to trust, whatever the environment says; any thread may use them.

    Give it to a client as `verify`. A process that forks may make it before or after.
    """
    return ssl.create_default_context(cafile=certifi.where())

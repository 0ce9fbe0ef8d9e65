"""A client of the broker, apart from Celery: whoever needs only this one does not wait for the import of the other."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from redis import Redis


def open_broker(url: str, *, tls: Mapping[str, Any] = MappingProxyType({}), timeout_seconds: float = 5) -> Redis:
    """Return a client of the broker for what Celery cannot do.

    Args:
        url: the broker's.
        tls: from the broker's settings.
        timeout_seconds: for connecting and for each answer.
    """
    opened: Redis = Redis.from_url(url, socket_timeout=timeout_seconds, socket_connect_timeout=timeout_seconds, **tls)
    return opened

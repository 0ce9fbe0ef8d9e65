"""The broker's shape: one direct queue for each kind of work, and what its connections are told.

Messages carry ids, are JSON and are acknowledged before the work begins: recovery is the ledger's business, so no
visibility timeout and no private kombu field takes part in it (docs/why.md).
"""

from __future__ import annotations

from typing import Any

from kombu.entity import Exchange, Queue

from routing.tiers import QueueName

TRANSPORT_OPTIONS: dict[str, Any] = {
    "socket_timeout": 30,
    "socket_connect_timeout": 5,
    "socket_keepalive": True,
    "health_check_interval": 10,
    "deadletter_queue": QueueName.UNROUTED.value,
}
"""`retry_on_timeout` stays off: after an ambiguous timeout it would push a message twice."""

PUBLISH_RETRY: dict[str, Any] = {"max_retries": 2, "interval_start": 0.1, "interval_step": 0.2, "interval_max": 0.5}


def door_of(tenant: str) -> str:
    """Return the name of the queue at which a tenant's own Celery clients submit."""
    return f"{QueueName.INTAKE.value}.{tenant}"


def build_queues() -> list[Queue]:
    """Return every queue of the fleet, `unrouted` included."""
    return [
        Queue(name.value, Exchange(name.value, type="direct"), routing_key=name.value, durable=True)
        for name in QueueName
    ]

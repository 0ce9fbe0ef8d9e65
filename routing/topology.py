"""The broker's shape: one direct queue for each kind of work, and what its connections are told.

Messages carry ids, are JSON and are acknowledged before the work begins: recovery is the ledger's business, so no
visibility timeout and no private kombu field takes part in it (docs/why.md).
"""

from __future__ import annotations

from typing import Any

from kombu.entity import Exchange, Queue

from routing.tiers import QueueName

TRANSPORT_OPTIONS: dict[str, Any] = {
    "socket_timeout": 2,
    "socket_connect_timeout": 3,
    "socket_keepalive": True,
    "health_check_interval": 10,
    "deadletter_queue": QueueName.UNROUTED.value,
    # Whatever else uses this database sweeps its own unacknowledged messages by its own clock, and not these.
    "unacked_key": "pointsman:unacked",
    "unacked_index_key": "pointsman:unacked_index",
    "unacked_mutex_key": "pointsman:unacked_mutex",
}
"""`retry_on_timeout` stays off: after an ambiguous timeout it would push a message twice."""

PUBLISH_RETRY: dict[str, Any] = {"max_retries": 1, "interval_start": 0.1, "interval_step": 0.2, "interval_max": 0.5}

_DOOR = "intake"
DOOR_LISTS = (_DOOR, *(f"{_DOOR}\x06\x16{step}" for step in (3, 6, 9)))
"""Where Celery clients put `pointsman.submit`: the list `intake`, and those that kombu makes of it for priorities."""


def list_of(queue: QueueName) -> str:
    """Return the broker's list behind a queue: its name, but for `intake`, whose name is the Celery door's."""
    return "intake.jobs" if queue == QueueName.INTAKE else queue.value


def build_queues() -> list[Queue]:
    """Return every queue of the fleet, `unrouted` included."""
    return [
        Queue(name, Exchange(name, type="direct"), routing_key=name, durable=True) for name in map(list_of, QueueName)
    ]

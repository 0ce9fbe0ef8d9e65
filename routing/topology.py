"""The broker's shape: one direct queue for each kind of work, and what its connections are told.

Messages carry ids, are JSON and are a worker's for good once it has them: recovery is the ledger's business, so no
acknowledgement, no visibility timeout and no private kombu field takes part in it (docs/why.md).
"""

from __future__ import annotations

from typing import Any

from kombu.entity import Exchange, Queue

from routing.queues import QueueName

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


def door_of(tenant: str) -> str:
    """Return the name of the queue at which a tenant's own Celery clients submit: no name of ours looks like one."""
    return f"{_DOOR}.{tenant}"


def lists_at(door: str) -> tuple[str, ...]:
    """Return where Celery clients put messages for a door: on its list, or one that kombu makes for priorities."""
    return (door, *(f"{door}\x06\x16{step}" for step in (3, 6, 9)))


DOOR_LISTS = lists_at(_DOOR)
"""Where Celery clients put `pointsman.submit` that share one door."""


def list_of(queue: QueueName) -> str:
    """Return the broker's list behind a queue: its name, but for `intake`, whose name is the Celery door's."""
    return "jobs.intake" if queue == QueueName.INTAKE else queue.value


def build_queues() -> list[Queue]:
    """Return every queue of the fleet, `unrouted` included.

    None waits for an acknowledgement: a message that is lost with its worker is missed on the runway and sent again.
    """
    return [
        Queue(name, Exchange(name, type="direct"), routing_key=name, durable=True, no_ack=True)
        for name in map(list_of, QueueName)
    ]

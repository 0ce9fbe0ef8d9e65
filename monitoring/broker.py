"""Read how the broker does: its memory, and what lies on its lists. All else that is measured is in the ledger."""

from __future__ import annotations

from itertools import islice
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from monitoring.probes import Reading
from routing.queues import QueueName
from routing.topology import DOOR_LISTS, list_of

DOOR = "door"
_LISTS: dict[str, tuple[str, ...]] = {queue.value: (list_of(queue),) for queue in QueueName} | {DOOR: DOOR_LISTS}
"""The lists by the label that they count for: each queue's, and those at which Celery clients submit."""


def read_broker(broker: Redis) -> list[Reading]:
    """Return the present values of the broker's metrics; of one that does not answer only that.

    A list's length costs the broker the same however long the list is.
    """
    try:
        facts: dict[str, Any] = broker.info()
        pipe = broker.pipeline(transaction=False)
        for names in _LISTS.values():
            for name in names:
                pipe.llen(name)
        lengths = iter(pipe.execute())
    except (RedisError, OSError):
        return [Reading("broker_up", (), 0)]
    return [
        Reading("broker_up", (), 1),
        *(Reading("broker_messages", (label,), float(sum(islice(lengths, len(_LISTS[label]))))) for label in _LISTS),
        Reading("broker_memory_used_bytes", (), float(facts["used_memory"])),
        Reading("broker_memory_limit_bytes", (), float(facts["maxmemory"])),
        Reading("broker_clients", (), float(facts["connected_clients"])),
        Reading("broker_evicted_keys_total", (), float(facts["evicted_keys"])),
    ]

"""Celery: two prefork processes work off messages of a task that does nothing, each acknowledged when it is done."""

import time
from collections.abc import Callable

from redis import Redis

from benchmarks.peers.celery_app import HELD, QUEUE, WORKER, noop
from benchmarks.places import BATCH, PEER_BROKER, beside, body, place, until


def turn() -> Callable[[int], float]:
    """Return what works off so many batches, which wait on another list before the clock starts."""
    broker = Redis.from_url(place(PEER_BROKER))
    beside(*WORKER)
    noop.delay(body(0)).get(timeout=60)

    def is_done() -> bool:
        return not broker.llen(QUEUE) and not broker.hlen("unacked")

    def take(times: int) -> float:
        for _ in range(times * BATCH):
            noop.apply_async([body(0)], queue=HELD, ignore_result=True)
        began = time.perf_counter()
        broker.rename(HELD, QUEUE)
        until(is_done)
        return time.perf_counter() - began

    return take

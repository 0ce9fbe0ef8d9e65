"""procrastinate: two worker processes, one job at a time each, as many as a prefork pool of two has."""

import time
from collections.abc import Callable

import psycopg

from benchmarks.peers.procrastinate_app import QUEUE, opened
from benchmarks.places import BATCH, PEER_DATABASE, beside, body, place, until

APP = "benchmarks.peers.procrastinate_app.app"
WORKER = ("procrastinate", "--app", APP, "worker", "--queues", QUEUE, "--concurrency", "1")


def turn() -> Callable[[int], float]:
    """Return what works off so many batches, which wait on another queue before the clock starts."""
    app = opened()
    here, held = (app.configure_task("noop", queue=queue, allow_unknown=True) for queue in (QUEUE, "held"))
    database = psycopg.connect(place(PEER_DATABASE), autocommit=True)
    for _ in range(2):
        beside(*WORKER)

    def is_done() -> bool:
        left = database.execute("SELECT 1 FROM procrastinate_jobs WHERE status IN ('todo', 'doing') LIMIT 1")
        return left.fetchone() is None

    def take(times: int) -> float:
        held.batch_defer(*[{"body": body(number)} for number in range(times * BATCH)])
        began = time.perf_counter()
        database.execute("UPDATE procrastinate_jobs SET queue_name = %s WHERE queue_name = 'held'", (QUEUE,))
        for _ in range(2):
            here.defer(body=body(0))  # which wakes the workers
        until(is_done)
        return time.perf_counter() - began

    here.defer(body=body(0))
    until(is_done)
    return take

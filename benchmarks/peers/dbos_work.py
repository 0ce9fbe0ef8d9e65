"""DBOS: a queue of workflows that do nothing, enqueued and worked off by the same process, as it is used."""

import time
from collections.abc import Callable
from itertools import count

from dbos import DBOS

from benchmarks.places import BATCH, PEER_DATABASE, body, place


def turn() -> Callable[[int], float]:
    """Return what enqueues so many batches and waits for all of them."""
    url = place(PEER_DATABASE).replace("postgresql://", "postgresql+psycopg://", 1)
    DBOS(config={"name": "peer", "system_database_url": url, "run_admin_server": False, "log_level": "ERROR"})
    number = count()

    @DBOS.workflow(name="noop")
    def noop(body: dict[str, str]) -> None:
        return None

    DBOS.launch()
    queue = DBOS.register_queue("bench", polling_interval_sec=0.1)

    def take(times: int) -> float:
        began = time.perf_counter()
        for handle in [queue.enqueue(noop, body(next(number))) for _ in range(times * BATCH)]:
            handle.get_result(polling_interval_sec=0.05)
        return time.perf_counter() - began

    take(1)
    return take

"""How long from a submit to the job's end, when nothing else waits? The client hears of the end from the ledger."""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from benchmarks.lifecycle import COMMAND, started
from benchmarks.places import LEDGER, place
from benchmarks.race import Peer, Race, module
from benchmarks.servers import shared
from benchmarks.submit import CELERY
from ledger.store import WORK_CHANNEL


def operation() -> Callable[[], object]:
    """Return what submits a job and waits until it has ended."""
    fleet = started()
    ears = psycopg.connect(place(LEDGER), autocommit=True)
    ears.execute(f"LISTEN {WORK_CHANNEL}".encode())

    def ask() -> None:
        fleet.submit(COMMAND)
        while not fleet.is_done():
            list(ears.notifies(timeout=10, stop_after=1))

    return ask


QUESTION = Race(
    name="idle",
    asks="From a submit to the job's end, the fleet being idle",
    ours=module(__name__),
    peers=(Peer("Celery 5.7.0, send and get", module("benchmarks.peers.celery_get", CELERY), target=1 / 3),),
    pairs=25,
    turn_seconds=0.1,
    beside=shared,
)

"""How long from a submit to the job's end, when nothing else waits? The client asks the ledger every millisecond."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.lifecycle import COMMAND, started
from benchmarks.places import until
from benchmarks.race import Peer, Race, module
from benchmarks.servers import shared
from benchmarks.submit import CELERY


def operation() -> Callable[[], object]:
    """Return what submits a job and waits until it has ended."""
    fleet = started()

    def ask() -> None:
        fleet.submit(COMMAND)
        until(fleet.is_done, every=0.001)

    return ask


QUESTION = Race(
    name="idle",
    asks="From a submit to the job's end, the fleet being idle; two commits to disk, where Celery keeps nothing",
    ours=module(__name__),
    peers=(Peer("Celery 5.7.0, send and get", module("benchmarks.peers.celery_get", CELERY), target=1 / 3),),
    pairs=25,
    turn_seconds=0.1,
    beside=shared,
)

"""What do 1,000 jobs at once cost? There is no bulk submit yet: each is checked, routed and committed for itself."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.fleet import Fleet
from benchmarks.places import AT_ONCE, body
from benchmarks.race import Peer, Race, Turn, module
from benchmarks.servers import shared
from benchmarks.submit import CELERY, PROCRASTINATE
from benchmarks.turns import seconds


def turn() -> Turn:
    """Return what submits 1,000 edits so many times: the runway takes the first, the others wait in the ledger."""
    fleet = Fleet()
    fleet.add_sites()

    def take(times: int) -> float:
        fleet.rest()
        return seconds(_all(fleet), times)

    return take


def _all(fleet: Fleet) -> Callable[[], object]:
    def submit() -> None:
        for number in range(AT_ONCE):
            fleet.submit(body(number))

    return submit


QUESTION = Race(
    name="bulk",
    asks="1,000 jobs submitted at once",
    ours=module(__name__),
    peers=(
        Peer("Celery 5.7.0, a group", module("benchmarks.peers.celery_group", CELERY), target=10),
        Peer("procrastinate 3.10.0, batch_defer", module("benchmarks.peers.procrastinate_batch", PROCRASTINATE), 2),
    ),
    pairs=2,
    beside=shared,
)

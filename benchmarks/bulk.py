"""What do 1,000 jobs at once cost? Each is checked and routed for itself; they are looked up and written together."""

from __future__ import annotations

from benchmarks.fleet import Fleet
from benchmarks.places import AT_ONCE, body
from benchmarks.race import Peer, Race, Turn, module
from benchmarks.servers import shared
from benchmarks.submit import CELERY, PROCRASTINATE
from benchmarks.turns import seconds


def turn() -> Turn:
    """Return what submits 1,000 edits: the dispatch window takes the first, the others wait in the ledger."""
    fleet = Fleet()
    fleet.add_sites()

    bodies = [body(number) for number in range(AT_ONCE)]

    def take(times: int) -> float:
        fleet.rest()
        return seconds(lambda: fleet.submit_many(bodies), times)

    return take


QUESTION = Race(
    name="bulk",
    asks="1,000 jobs submitted at once",
    ours=module(__name__),
    peers=(
        Peer("Celery 5.7.0, a group", module("benchmarks.peers.celery_group", CELERY), target=10),
        Peer("procrastinate 3.10.0, batch_defer", module("benchmarks.peers.procrastinate_batch", PROCRASTINATE), 2),
    ),
    pairs=5,
    beside=shared,
)

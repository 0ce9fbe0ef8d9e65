"""What do 1,000 jobs at once cost? Each is checked and routed for itself; they are looked up and written together."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from benchmarks.fleet import Fleet
from benchmarks.places import AT_ONCE, DIFFERENT, body
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


@contextmanager
def _different() -> Iterator[None]:
    os.environ[DIFFERENT] = "1"
    try:
        with shared():
            yield
    finally:
        del os.environ[DIFFERENT]


def _race(
    name: str, asks: str, *, group: float, batch: float, beside: Callable[[], AbstractContextManager[None]]
) -> Race:
    return Race(
        name=name,
        asks=asks,
        ours=module(__name__),
        peers=(
            Peer("Celery 5.7.0, a group", module("benchmarks.peers.celery_group", CELERY), target=group),
            Peer(
                "procrastinate 3.10.0, batch_defer",
                module("benchmarks.peers.procrastinate_batch", PROCRASTINATE),
                target=batch,
            ),
        ),
        pairs=5,
        beside=beside,
    )


QUESTION = _race("bulk", "1,000 jobs submitted at once", group=6, batch=0.7, beside=shared)
DIFFERENT_PROMPTS = _race(
    "bulk_different", "1,000 jobs with 1,000 prompts submitted at once", group=2.5, batch=0.3, beside=_different
)

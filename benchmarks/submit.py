"""What does it cost to submit a job? Checked, routed, its row and its audit row on disk, its message on the queue."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count

from benchmarks.environments import python_with
from benchmarks.fleet import Fleet, with_room
from benchmarks.places import body
from benchmarks.race import Peer, Race, Turn, calls_of, module
from benchmarks.servers import shared
from benchmarks.turns import seconds

CELERY = partial(python_with, ["celery==5.7.0", "redis==8.1.0", "packaging==25.0"])
PROCRASTINATE = partial(python_with, ["procrastinate==3.10.0", "psycopg[binary]==3.3.9"])


def operation() -> Callable[[], object]:
    """Return what submits the next edit."""
    return _opened()[1]


def turn() -> Turn:
    """Return what submits so many edits; before each turn the queue is emptied."""
    fleet, submit = _opened()

    def take(times: int) -> float:
        fleet.rest()
        return seconds(submit, times)

    return take


def _opened() -> tuple[Fleet, Callable[[], object]]:
    fleet, number = Fleet(with_room()), count()
    fleet.add_sites()
    return fleet, lambda: fleet.submit(body(next(number)))


QUESTION = Race(
    name="submit",
    asks="One job submitted: checked, routed, a durable row, on the queue",
    ours=module(__name__),
    peers=(
        Peer("Celery 5.7.0, send_task alone", module("benchmarks.peers.celery_submit", CELERY), target=0.45),
        Peer("procrastinate 3.10.0, defer", module("benchmarks.peers.procrastinate_submit", PROCRASTINATE), target=1.0),
        Peer("one row committed to PostgreSQL, by psycopg", module("benchmarks.peers.one_commit")),
    ),
    pairs=9,
    beside=shared,
    count_calls=calls_of(__name__),
)

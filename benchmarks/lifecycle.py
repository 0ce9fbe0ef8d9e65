"""What does a job cost that does nothing? Claimed, fenced, finished, billed, on record: a fleet's work without work."""

from __future__ import annotations

import time
from functools import partial

from benchmarks.environments import python_with
from benchmarks.fleet import Fleet, environment, home, run
from benchmarks.places import BATCH, until
from benchmarks.race import Peer, Race, Turn, module
from benchmarks.servers import shared
from benchmarks.submit import CELERY, PROCRASTINATE
from ledger.dispatch_window import pause_queue
from producers.local.supervisor import Program, python_module
from routing.queues import QueueName

COMMAND = {"prompt": "pwd"}
"""The least that a job can be: no model, no site, no box."""

DBOS = partial(python_with, ["dbos==3.4.0", "psycopg[binary]==3.3.9"])
PREFECT = partial(python_with, ["prefect==3.8.8", "fastapi==0.139.2"])
"""Its server does not start on newer versions of FastAPI."""


def started() -> Fleet:
    """Return a fleet with a dispatcher and one prefork worker of two processes, which has done its first job."""
    fleet, directory = Fleet(), home()
    programs = [
        Program("dispatcher", python_module("producers.cli", "dispatcher")),
        Program("worker", python_module("workers.main", "tools", "--concurrency", "2")),
    ]
    fleet.rest()
    run(programs, environment(directory), directory)
    fleet.submit(COMMAND)
    until(fleet.is_done)
    return fleet


def turn() -> Turn:
    """Return what works off so many batches, which wait on a paused queue before the clock starts."""
    fleet = started()

    def take(times: int) -> float:
        _pause(fleet, is_paused=True)
        for _ in range(times * BATCH):
            fleet.submit(COMMAND)
        began = time.perf_counter()
        _pause(fleet, is_paused=False)
        until(fleet.is_done)
        return time.perf_counter() - began

    return take


def _pause(fleet: Fleet, *, is_paused: bool) -> None:
    with fleet.ledger.begin() as session:
        pause_queue(session, QueueName.TOOLS, is_paused=is_paused)


QUESTION = Race(
    name="lifecycle",
    asks="100 empty jobs through their whole lives (claim, fence, finish, bill, audit), two worker processes; "
    "no peer audits or bills, and Celery keeps nothing",
    ours=module(__name__),
    peers=(
        Peer("Celery 5.7.0, a no-op with acks_late", module("benchmarks.peers.celery_work", CELERY), target=0.7),
        Peer("procrastinate 3.10.0", module("benchmarks.peers.procrastinate_work", PROCRASTINATE), target=1),
        Peer("DBOS 3.4.0, a queue", module("benchmarks.peers.dbos_work", DBOS), target=2),
        Peer("Prefect 3.8.8, flows without heartbeats", module("benchmarks.peers.prefect_work", PREFECT), target=45),
    ),
    pairs=5,
    turn_seconds=1.0,
    beside=shared,
)

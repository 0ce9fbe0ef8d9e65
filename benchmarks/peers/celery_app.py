"""Celery's application for its workers: a task that does nothing, acknowledged late, whose result can be had."""

from celery import Celery

from benchmarks.places import PEER_BROKER, place

QUEUE, HELD = "bench", "held"

app = Celery("peer", broker=place(PEER_BROKER), backend=place(PEER_BROKER))
app.conf.update(task_default_queue=QUEUE, task_acks_late=True, worker_prefetch_multiplier=1)

WORKER = ("celery", "-A", "benchmarks.peers.celery_app", "worker", "-c", "2", "-Q", QUEUE, "-l", "ERROR")


@app.task(name="noop")
def noop(body: object) -> object:
    """Do nothing."""
    return body

"""Celery: `send_task`, which puts a message on a list of the broker and keeps nothing else."""

from collections.abc import Callable

from celery import Celery

from benchmarks.places import PEER_BROKER, body, place


def application() -> Celery:
    """Return an application whose results nobody keeps."""
    app = Celery("peer", broker=place(PEER_BROKER))
    app.conf.update(task_ignore_result=True, task_default_queue="bench")
    return app


def operation() -> Callable[[], object]:
    """Return what sends one task."""
    app = application()
    return lambda: app.send_task("noop", args=[body(0)])

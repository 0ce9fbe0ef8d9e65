"""Celery: send a task that does nothing to an idle worker, and get its result."""

from collections.abc import Callable

from benchmarks.peers.celery_app import WORKER, noop
from benchmarks.places import beside, body


def operation() -> Callable[[], object]:
    """Return what sends a task and waits for its result."""
    beside(*WORKER)
    noop.delay(body(0)).get(timeout=60)
    return lambda: noop.delay(body(0)).get(timeout=60)

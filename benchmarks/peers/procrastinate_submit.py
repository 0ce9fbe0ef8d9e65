"""procrastinate: `defer`, which commits a row to PostgreSQL that is the queue, too."""

from collections.abc import Callable

from benchmarks.peers.procrastinate_app import QUEUE, opened
from benchmarks.places import body


def operation() -> Callable[[], object]:
    """Return what defers one job."""
    task = opened().configure_task("noop", queue=QUEUE, allow_unknown=True)
    return lambda: task.defer(body=body(0))

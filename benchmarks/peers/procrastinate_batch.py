"""procrastinate: `batch_defer`, one statement for all rows."""

from collections.abc import Callable

from benchmarks.peers.procrastinate_app import QUEUE, opened
from benchmarks.places import AT_ONCE, body


def operation() -> Callable[[], object]:
    """Return what defers a batch."""
    task = opened().configure_task("noop", queue=QUEUE, allow_unknown=True)
    return lambda: task.batch_defer(*[{"body": body(number)} for number in range(AT_ONCE)])

"""Signs of life from a worker's consumer: a file for whoever starts workers, a pulse for the registry of workers.

They come from the consumer's event loop while the consumer is connected: a process that answers but takes in nothing
falls silent (docs/pitfalls.md, 8). `pointsman worker --check` reads the file, and `python -m monitoring.heartbeat` at
less cost; no broker and no other worker is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery import Celery, bootsteps

BEAT_SECONDS = 5.0


def show_life(app: Celery, *signs: Callable[[], None]) -> None:
    """Let the consumer of an application's worker give these signs every few seconds while it is connected."""

    class Heartbeat(bootsteps.StartStopStep):  # type: ignore[misc]
        requires = ("celery.worker.consumer.tasks:Tasks",)

        def __init__(self, parent: Any, **_: Any) -> None:
            super().__init__(parent)
            self.timer: Any = None

        def start(self, parent: Any) -> None:
            give_signs()
            self.timer = parent.timer.call_repeatedly(BEAT_SECONDS, give_signs)

        def stop(self, parent: Any) -> None:
            if self.timer is not None:
                self.timer.cancel()

    def give_signs() -> None:
        for sign in signs:
            sign()

    app.steps["consumer"].add(Heartbeat)

"""A sign of life from a worker's consumer, for whoever starts workers: a file that says when it last was well.

It is written by the consumer's event loop while the consumer is connected: a process that answers but takes in nothing
falls silent (docs/pitfalls.md, 8). `pointsman worker --check` reads it, and `python -m monitoring.heartbeat` at less
cost; no broker and no other worker is asked.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from celery import Celery, bootsteps

from monitoring.heartbeat import beat

BEAT_SECONDS = 5.0


def show_life(app: Celery, path: Path) -> None:
    """Let the consumer of an application's worker write to `path` every few seconds while it is connected."""

    class Heartbeat(bootsteps.StartStopStep):  # type: ignore[misc]
        requires = ("celery.worker.consumer.tasks:Tasks",)

        def __init__(self, parent: Any, **_: Any) -> None:
            super().__init__(parent)
            self.timer: Any = None

        def start(self, parent: Any) -> None:
            beat(path)
            self.timer = parent.timer.call_repeatedly(BEAT_SECONDS, beat, (path,))

        def stop(self, parent: Any) -> None:
            if self.timer is not None:
                self.timer.cancel()

    app.steps["consumer"].add(Heartbeat)

"""Celery: a group, which sends its messages one after the other."""

from collections.abc import Callable

from celery import group

from benchmarks.peers.celery_submit import application
from benchmarks.places import AT_ONCE, body


def operation() -> Callable[[], object]:
    """Return what sends a group."""
    app = application()

    def send() -> object:
        each = [app.signature("noop", (body(number),)) for number in range(AT_ONCE)]
        return group(each, app=app).apply_async()

    return send

"""Sends spans to the collector from a thread of its own, so that no job ever waits for one that is slow or away.

OpenTelemetry's batch processor starts its thread before the fork of a pool, waits in a flush for as long as a delivery
lasts, and logs a line for each one that fails. Here the thread begins with the first span that a process ends; every
wait has a bound; and the log says when a collector goes away, and when it is back.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from monitoring.config import TracingConfig

logger = logging.getLogger(__name__)

EVERY_SECONDS = 0.5
"""How long a span waits for others at most."""
BATCH = 256


class Outbox(SpanProcessor):
    """Spans on their way out of this process, and of each one that is forked from it."""

    def __init__(self, config: TracingConfig, *, create: Callable[[TracingConfig], SpanExporter] | None = None) -> None:
        self._config = config
        self._create = create or _create_exporter
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # a line per failed delivery; one is enough here
        self._begin_anew()
        forget = weakref.WeakMethod(self._begin_anew)
        os.register_at_fork(after_in_child=lambda: (begin := forget()) and begin())
        atexit.register(self._at_exit)

    def _begin_anew(self) -> None:
        """Let a child have its own queue and thread: what its parent has recorded, its parent sends."""
        # Its `put` may be interrupted by a signal at any point, which no lock of Python's could be.
        self._queue: SimpleQueue[ReadableSpan | threading.Event] = SimpleQueue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._dropped = 0
        self._is_failing = False

    def on_end(self, span: ReadableSpan) -> None:
        """Take a span that is over. Called by whoever did the work; never waits."""
        if self._queue.qsize() >= self._config.queue_spans:
            self._dropped += 1
            return
        self._queue.put(span)
        if self._thread is None and self._starting.acquire(blocking=False):
            self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
            self._thread.start()

    def hurry(self) -> None:
        """Send at once what waits for others to go with."""
        if self._thread is not None and not self._is_failing:
            self._queue.put(threading.Event())

    def flush(self, seconds: float) -> bool:
        """Wait until all is sent that has ended by now, for so many seconds; not for a collector that is away."""
        if self._thread is None or self._is_failing:
            return not self._is_failing
        is_sent = threading.Event()
        self._queue.put(is_sent)
        return is_sent.wait(seconds)

    def _at_exit(self) -> None:
        self.flush(self._config.exit_seconds)

    def _run(self) -> None:
        exporter = self._create(self._config)
        while True:
            batch, waiting = self._next()
            if batch:
                self._send(exporter, batch)
            for is_sent in waiting:
                is_sent.set()

    def _next(self) -> tuple[list[ReadableSpan], list[threading.Event]]:
        """Return the next spans to send, and who waits for them: with the first one that does, all are sent."""
        batch: list[ReadableSpan] = []
        found = self._queue.get()
        until = time.monotonic() + EVERY_SECONDS
        while True:
            if isinstance(found, threading.Event):
                return batch, [found]
            batch.append(found)
            if len(batch) >= BATCH:
                return batch, []
            try:
                found = self._queue.get(timeout=max(0.0, until - time.monotonic()))
            except Empty:
                return batch, []

    def _send(self, exporter: SpanExporter, batch: list[ReadableSpan]) -> None:
        is_sent = exporter.export(batch) is SpanExportResult.SUCCESS
        if not is_sent:
            self._dropped += len(batch)
        if is_sent == self._is_failing:
            self._is_failing = not is_sent
            if is_sent:
                logger.info("traces_delivered_again", extra={"spans_lost": self._dropped})
                self._dropped = 0
            else:
                logger.warning("traces_not_delivered", extra={"spans_lost": self._dropped})


def _create_exporter(config: TracingConfig) -> SpanExporter:
    return OTLPSpanExporter(
        endpoint=config.endpoint,
        headers={name: secret.get_secret_value() for name, secret in config.headers.items()},
        timeout=config.timeout_seconds,
        compression=Compression.Gzip,
    )

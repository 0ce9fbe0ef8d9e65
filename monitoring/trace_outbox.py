"""Sends spans to the collector from a thread of its own, so that no job ever waits for one that is slow or away.

OpenTelemetry's batch processor starts its thread before the fork of a pool, waits in a flush for as long as a delivery
lasts, and logs a line for each one that fails. Here the thread begins with the first span that a process ends; every
wait has a bound; and the log says when a collector goes away, when it is back, and when it is too slow.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
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
TELL_SECONDS = 60.0
"""How often the log says at most that a collector which answers is too slow."""


class Outbox(SpanProcessor):
    """Spans on their way out of this process, and of each one that is forked from it."""

    def __init__(self, config: TracingConfig, *, create: Callable[[TracingConfig], SpanExporter] | None = None) -> None:
        self._config = config
        self._create = create or _create_exporter
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # a line per failed delivery; one is enough here
        self._begin_anew()
        os.register_at_fork(after_in_child=self._begin_anew)
        atexit.register(self._at_exit)

    def _begin_anew(self) -> None:
        """Let a child have its own queue and thread: what its parent has recorded, its parent sends."""
        # Its `put` may be interrupted by a signal at any point, which no lock of Python's could be.
        # A span, who waits until all before it is sent, or None: what came before it must not wait for more.
        self._queue: SimpleQueue[ReadableSpan | threading.Event | None] = SimpleQueue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._exporter: SpanExporter | None = None
        self._dropped = 0
        self._told_at = -TELL_SECONDS
        self._is_failing = False
        self._is_hurried = False

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
        if self._thread is not None and not self._is_failing and not self._is_hurried:
            self._is_hurried = True  # once is enough, however slow the collector is
            self._queue.put(None)

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
        while True:
            batch, waiting = self._next()
            if batch:
                self._tell(self._send(batch), len(batch))
            if waiting is not None:
                waiting.set()

    def _next(self) -> tuple[list[ReadableSpan], threading.Event | None]:
        """Return the next spans to send, and who waits for them: with the first one that does, all are sent."""
        batch: list[ReadableSpan] = []
        found = self._queue.get()
        until = time.monotonic() + EVERY_SECONDS
        while True:
            if found is None:
                self._is_hurried = False
                return batch, None
            if isinstance(found, threading.Event):
                return batch, found
            batch.append(found)
            if len(batch) >= BATCH:
                return batch, None
            try:
                found = self._queue.get(timeout=max(0.0, until - time.monotonic()))
            except Empty:
                return batch, None

    def _send(self, batch: list[ReadableSpan]) -> bool:
        """Deliver spans; False where that failed, in whatever way: the next ones may fare better."""
        try:
            self._exporter = self._exporter or self._create(self._config)
            return self._exporter.export(batch) is SpanExportResult.SUCCESS
        except Exception:
            if not self._is_failing:
                logger.exception("traces_exporter_failed")
            return False

    def _tell(self, is_sent: bool, spans: int) -> None:
        """Say in the log what became of a delivery, where that is news."""
        if not is_sent:
            self._dropped += spans
            if not self._is_failing:
                logger.warning("traces_not_delivered", extra={"spans_lost": self._dropped})
        elif self._is_failing:
            logger.info("traces_delivered_again", extra={"spans_lost": self._dropped})
            self._dropped = 0
        elif self._dropped and time.monotonic() - self._told_at >= TELL_SECONDS:
            logger.warning("traces_dropped", extra={"spans_lost": self._dropped})
            self._dropped, self._told_at = 0, time.monotonic()
        self._is_failing = not is_sent


def _create_exporter(config: TracingConfig) -> SpanExporter:
    return OTLPSpanExporter(
        endpoint=config.endpoint,
        headers={name: secret.get_secret_value() for name, secret in config.headers.items()},
        timeout=config.timeout_seconds,
        compression=Compression.Gzip,
    )

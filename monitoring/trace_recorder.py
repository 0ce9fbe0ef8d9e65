"""Record spans with OpenTelemetry's SDK. Loaded only if `traces.start` finds an endpoint.

The tracer provider is private, never OpenTelemetry's global one: libraries that trace by themselves, such as a model's
client, would write prompts into spans.
"""

from __future__ import annotations

import logging
import os
import random
import threading
from collections.abc import Callable, Sequence
from contextvars import Token
from importlib.metadata import version
from types import TracebackType

import requests  # not when the first spans are sent: a fork during an import breaks the child's
from opentelemetry import context, trace
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from monitoring.config import TracingConfig
from monitoring.traces import Fact, Facts, Kind, Span

logger = logging.getLogger(__name__)

_EVERY_MS = 500
"""The longest wait before a batch is sent."""
_HEADER = "traceparent"
_ERROR = "error.type"
"""A span with this attribute has failed."""
_MAX_HEADER = 256
_LIMITS = SpanLimits(max_span_attributes=32, max_span_attribute_length=200, max_events=0, max_links=8)
_IDS = RandomIdGenerator()
_PROPAGATOR = TraceContextTextMapPropagator()


class Recorder:
    """Opens this process's spans, and sends ended ones from a thread."""

    def __init__(
        self, config: TracingConfig, *, program: str, connect: Callable[[], SpanExporter] | None = None
    ) -> None:
        self._config = config
        logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)  # it logs each failed delivery
        resource = Resource.create({"service.name": f"pointsman-{program}", "service.version": version("pointsman")})
        # Sampling is decided where a trace begins, and then carried in its flag.
        self._provider = TracerProvider(
            sampler=ParentBased(ALWAYS_ON), resource=resource, shutdown_on_exit=False, span_limits=_LIMITS
        )
        batches = BatchSpanProcessor(
            _Delivery(connect or self._connect),
            max_queue_size=config.queue_spans,
            schedule_delay_millis=_EVERY_MS,
            max_export_batch_size=config.queue_spans,  # below it an ending span takes no lock
        )
        self._provider.add_span_processor(batches)
        self._tracer = self._provider.get_tracer("pointsman", version("pointsman"))

    def stop(self) -> None:
        """Send ended spans within `exit_seconds`; the SDK itself would wait for the whole delivery."""
        stopping = threading.Thread(target=self._provider.shutdown, name="traces-stop", daemon=True)
        stopping.start()
        stopping.join(self._config.exit_seconds)

    def current(self) -> SpanContext | None:
        """Return the current span's ids."""
        here = trace.get_current_span().get_span_context()
        return here if here.is_valid else None

    def parse(self, header: str | None) -> SpanContext | None:
        """Return the ids of an untrusted `traceparent`; None if it is invalid."""
        if not isinstance(header, str) or len(header) > _MAX_HEADER:
            return None
        parsed = trace.get_current_span(_PROPAGATOR.extract({_HEADER: header}, context.Context())).get_span_context()
        return parsed if parsed.is_valid else None

    def format(self, ids: SpanContext, *, flags: int | None = None) -> str:
        """Return ids as a `traceparent`."""
        return f"00-{ids.trace_id:032x}-{ids.span_id:016x}-{ids.trace_flags if flags is None else flags:02x}"

    def join(self, incoming: str | None) -> SpanContext | None:
        """Decide whether a trace that begins here is sampled, and return its parent, if any.

        The caller's ids do not count, since it can choose them.
        """
        caller = self.parse(incoming)
        if caller is not None and self._config.trust_sampled:
            is_sampled = caller.trace_flags.sampled
        else:
            is_sampled = random.random() < self._config.sample_ratio
        if caller is None and is_sampled:
            return None
        trace_id = _IDS.generate_trace_id() if caller is None else caller.trace_id
        span_id = _IDS.generate_span_id() if caller is None else caller.span_id
        flags = TraceFlags(TraceFlags.SAMPLED if is_sampled else TraceFlags.DEFAULT)
        return SpanContext(trace_id, span_id, is_remote=True, trace_flags=flags)

    def open(self, name: str, parent: SpanContext | None, *, kind: Kind, facts: Facts) -> Span:
        """Start a span below a parent, or a trace without one."""
        return _RecordedSpan(self._tracer.start_span(name, _below(parent), SpanKind[kind.name], _present(facts)))

    def put(self, name: str, parent: SpanContext, *, began: float, ended: float, kind: Kind, facts: Facts) -> None:
        """Record a completed span."""
        span = self._tracer.start_span(name, _below(parent), SpanKind[kind.name], start_time=round(began * 1e9))
        _note(span, facts)
        span.end(round(max(began, ended) * 1e9))

    def note(self, facts: Facts) -> None:
        """Add attributes to the current span."""
        _note(trace.get_current_span(), facts)

    def link(self, job: SpanContext) -> None:
        """Link the current span to another trace, once."""
        span = trace.get_current_span()
        linked = {link.context.trace_id for link in getattr(span, "links", ())}
        if span.is_recording() and job.trace_id not in linked | {span.get_span_context().trace_id}:
            span.add_link(job)

    def _connect(self) -> SpanExporter:
        return OTLPSpanExporter(
            endpoint=self._config.endpoint,
            headers={name: secret.get_secret_value() for name, secret in self._config.headers.items()},
            timeout=self._config.timeout_seconds,
            compression=Compression.Gzip,
            session=requests.Session(),
        )


class _RecordedSpan(Span):
    """The current span until its block ends."""

    __slots__ = ("_is_discarded", "_span", "_token")

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        self._token: Token[context.Context] | None = None
        self._is_discarded = False

    def __enter__(self) -> _RecordedSpan:
        self._token = context.attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and self._span.is_recording():
            attributes = getattr(self._span, "attributes", None) or {}
            _note(self._span, {_ERROR: attributes.get(_ERROR, kind.__name__)})
        if not self._is_discarded:
            self._span.end()  # a span that does not end is never sent
        if self._token is not None:
            context.detach(self._token)

    def note(self, facts: Facts) -> None:
        """Add attributes."""
        _note(self._span, facts)

    def rename(self, name: str) -> None:
        """Change the name."""
        self._span.update_name(name)

    def discard(self) -> None:
        """Prevent its recording."""
        self._is_discarded = True


class _Delivery(SpanExporter):
    """Connects in the sending process, since no connection survives a fork, and logs when the collector is away."""

    def __init__(self, connect: Callable[[], SpanExporter]) -> None:
        self._connect = connect
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._exporter: SpanExporter | None = None
        self._spans_lost = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        failure: Exception | None = None
        try:
            self._exporter = self._exporter or self._connect()
            result = self._exporter.export(spans)
        except Exception as error:  # noqa: BLE001 - a failing exporter may cost these spans, but not the thread
            failure, result = error, SpanExportResult.FAILURE
        if result is not SpanExportResult.SUCCESS:
            if not self._spans_lost:
                logger.warning("traces_not_delivered", exc_info=failure)
            self._spans_lost += len(spans)
        elif self._spans_lost:
            logger.info("traces_delivered_again", extra={"spans_lost": self._spans_lost})
            self._spans_lost = 0
        return result

    def shutdown(self) -> None:
        if self._exporter is not None:
            self._exporter.shutdown()


def _below(parent: SpanContext | None) -> context.Context:
    # Ids only: the caller's tracestate is dropped.
    if parent is None:
        return context.Context()
    ids = SpanContext(parent.trace_id, parent.span_id, is_remote=parent.is_remote, trace_flags=parent.trace_flags)
    return trace.set_span_in_context(trace.NonRecordingSpan(ids), context.Context())


def _note(span: trace.Span, facts: Facts) -> None:
    if not span.is_recording():
        return
    span.set_attributes(_present(facts))
    if facts.get(_ERROR) is not None:
        span.set_status(Status(StatusCode.ERROR))


def _present(facts: Facts) -> dict[str, Fact]:
    return {name: fact for name, fact in facts.items() if fact is not None}

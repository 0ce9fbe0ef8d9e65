"""Records spans with OpenTelemetry's SDK. Loaded only where `traces.start` finds an endpoint.

The provider is this module's own and never OpenTelemetry's global one: libraries that trace by themselves, a model's
client among them, would write prompts into spans.
"""

from __future__ import annotations

import random
from contextlib import AbstractContextManager
from contextvars import Token
from importlib.metadata import version
from types import TracebackType

from opentelemetry import context, trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from monitoring.config import TracingConfig
from monitoring.trace_outbox import Outbox
from monitoring.traces import Facts, Kind, Span

_HEADER = "traceparent"
_ERROR = "error.type"
"""A span that names what went wrong is one that failed."""
_MAX_HEADER = 256
_LIMITS = SpanLimits(
    max_span_attributes=32, max_span_attribute_length=200, max_attributes=32, max_attribute_length=200, max_events=0,
    max_links=8,
)  # fmt: skip
_KINDS = {kind: SpanKind[kind.name] for kind in Kind}
_IDS = RandomIdGenerator()
_PROPAGATOR = TraceContextTextMapPropagator()
_UNTRACED = trace.set_span_in_context(trace.INVALID_SPAN, context.Context())


class OtelRecorder:
    """See `traces.Recorder`."""

    def __init__(self, config: TracingConfig, *, program: str, outbox: Outbox | None = None) -> None:
        self._config = config
        self._outbox = outbox or Outbox(config)
        resource = Resource.create({"service.name": f"pointsman-{program}", "service.version": version("pointsman")})
        # Whether a trace is recorded is decided where it begins, and stands in its flag from then on.
        provider = TracerProvider(
            sampler=ParentBased(ALWAYS_ON), resource=resource, shutdown_on_exit=False, span_limits=_LIMITS
        )
        provider.add_span_processor(self._outbox)
        self._tracer = provider.get_tracer("pointsman", version("pointsman"))

    def begin(self, name: str, incoming: str | None, *, kind: Kind, facts: Facts) -> AbstractContextManager[Span]:
        """See `traces.begin`."""
        if (inner := self.span(name, kind=kind, facts=facts)) is not None:
            return inner
        joined = _read(incoming)
        is_sampled = self._is_sampled(joined)
        if joined is not None:
            return self._open(name, _below(joined, is_sampled=is_sampled), kind=kind, facts=facts)
        if is_sampled:
            return self._open(name, _UNTRACED, kind=kind, facts=facts)
        nobody = SpanContext(_IDS.generate_trace_id(), _IDS.generate_span_id(), is_remote=True)
        return self._open(name, _below(nobody, is_sampled=False), kind=kind, facts=facts)

    def span(self, name: str, *, kind: Kind, facts: Facts) -> AbstractContextManager[Span] | None:
        """See `traces.span`."""
        if not trace.get_current_span().get_span_context().is_valid:
            return None
        return self._open(name, context.get_current(), kind=kind, facts=facts)

    def of_job(self, name: str, trace_of_job: str, *, kind: Kind, facts: Facts) -> AbstractContextManager[Span] | None:
        """See `traces.of_job`."""
        if (stored := _read(trace_of_job)) is None:
            return None
        return self._open(name, _below(stored, is_sampled=stored.trace_flags.sampled), kind=kind, facts=facts)

    def past(self, name: str, trace_of_job: str, *, began: float, ended: float, kind: Kind, facts: Facts) -> None:
        """See `traces.past`."""
        if (stored := _read(trace_of_job)) is None:
            return
        span = self._tracer.start_span(
            name, _below(stored, is_sampled=stored.trace_flags.sampled), _KINDS[kind], _known(facts),
            start_time=_nanoseconds(began),
        )  # fmt: skip
        _note(span, facts)
        span.end(_nanoseconds(max(began, ended)))

    def current(self) -> str | None:
        """See `traces.current`."""
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier)
        return carrier.get(_HEADER)

    def within(self, trace_of_job: str, incoming: str) -> str:
        """See `traces.within`."""
        stored, asked = _read(trace_of_job), _read(incoming)
        if stored is None or asked is None or asked.trace_id != stored.trace_id:
            return trace_of_job
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, _below(asked, is_sampled=stored.trace_flags.sampled))
        return carrier[_HEADER]

    def note(self, facts: Facts) -> None:
        """See `traces.note`."""
        _note(trace.get_current_span(), facts)

    def refer_to(self, trace_of_job: str) -> None:
        """See `traces.refer_to`."""
        span = trace.get_current_span()
        if not span.is_recording() or (stored := _read(trace_of_job)) is None:
            return
        known = {link.context.trace_id for link in getattr(span, "links", ())}
        if stored.trace_id not in known | {span.get_span_context().trace_id}:
            span.add_link(stored)

    def hurry(self) -> None:
        """See `traces.hurry`."""
        self._outbox.hurry()

    def finish(self) -> None:
        """See `traces.stop`."""
        self._outbox.flush(self._config.exit_seconds)

    def _is_sampled(self, joined: SpanContext | None) -> bool:
        """Decide whether a trace is recorded. A caller's ids say nothing about it: it can choose them."""
        if joined is not None and self._config.trust_sampled:
            return joined.trace_flags.sampled
        return random.random() < self._config.sample_ratio

    def _open(
        self, name: str, parent: context.Context, *, kind: Kind, facts: Facts
    ) -> AbstractContextManager[Span]:  # fmt: skip
        return _Recorded(self._tracer.start_span(name, parent, _KINDS[kind], _known(facts)))


class _Recorded:
    """A span that is the current one until its block ends."""

    __slots__ = ("_is_discarded", "_span", "_token")

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        self._token: Token[context.Context] | None = None
        self._is_discarded = False

    def __enter__(self) -> Span:
        self._token = context.attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and self._span.is_recording():
            known = getattr(self._span, "attributes", None) or {}
            _note(self._span, {_ERROR: known.get(_ERROR, kind.__name__)})
        if not self._is_discarded:
            self._span.end()  # what does not end is never sent
        if self._token is not None:
            context.detach(self._token)

    def note(self, facts: Facts) -> None:
        """See `traces.Span`."""
        _note(self._span, facts)

    def rename(self, name: str) -> None:
        """See `traces.Span`."""
        self._span.update_name(name)

    def discard(self) -> None:
        """See `traces.Span`."""
        self._is_discarded = True


def _read(header: str | None) -> SpanContext | None:
    """Return the ids of a `traceparent` of any origin; None for what is none."""
    if not isinstance(header, str) or len(header) > _MAX_HEADER:
        return None
    read = trace.get_current_span(_PROPAGATOR.extract({_HEADER: header}, context.Context())).get_span_context()
    return read if read.is_valid else None


def _below(above: SpanContext, *, is_sampled: bool) -> context.Context:
    flags = TraceFlags(TraceFlags.SAMPLED if is_sampled else TraceFlags.DEFAULT)
    parent = SpanContext(above.trace_id, above.span_id, is_remote=True, trace_flags=flags)
    return trace.set_span_in_context(trace.NonRecordingSpan(parent), context.Context())


def _note(span: trace.Span, facts: Facts) -> None:
    if not span.is_recording():
        return
    span.set_attributes(_known(facts))
    if facts.get(_ERROR) is not None:
        span.set_status(Status(StatusCode.ERROR))


def _known(facts: Facts) -> dict[str, str | int | float | bool]:
    return {name: fact for name, fact in facts.items() if fact is not None}


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1_000_000_000)

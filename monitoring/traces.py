"""One trace per job, from the request that submits it to its publication, which may be hours later.

This module hides OpenTelemetry: until `start` finds an endpoint it is not loaded, and each function returns after one
comparison. A source begins a trace, the job's row carries it, and everything that works on the job continues it; a job
whose source was not traced is not traced at all.

A span holds what was done, for how long and at what cost, but no prompt, answer or secret, and of an exception only its
type.
"""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from enum import StrEnum
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ledger.errors import TracingUnavailableError
from monitoring.config import TracingConfig

if TYPE_CHECKING:
    from ledger.tables import Job
    from monitoring.trace_recorder import Recorder


Fact = str | int | float | bool
Facts = Mapping[str, Fact | None]
"""A span's attributes by dotted name; None is omitted."""
_NO_FACTS: Facts = {}


class Kind(StrEnum):
    """OpenTelemetry's kinds of spans."""

    INTERNAL = "internal"
    SERVER = "server"
    CLIENT = "client"
    PRODUCER = "producer"
    CONSUMER = "consumer"


class Span:
    """A span, for the time of its `with` block. This base class records nothing."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None

    def note(self, facts: Facts) -> None:
        """Add attributes."""

    def rename(self, name: str) -> None:
        """Change the name."""

    def discard(self) -> None:
        """Do not record it; to be called before it has children."""


UNRECORDED = Span()
_recorder: Recorder | None = None


def start(config: TracingConfig, *, program: str) -> None:
    """Start tracing in this process and those that it forks, if there is an endpoint.

    Raises:
        TracingUnavailableError: the operator's fault: an endpoint is set, but the extra is not installed.
    """
    global _recorder
    if not config.endpoint:
        return
    try:
        from monitoring.trace_recorder import Recorder
    except ImportError:
        raise TracingUnavailableError("POINTSMAN_TRACING__ENDPOINT: needs `pip install 'pointsman[tracing]'`") from None
    stop()
    _recorder = Recorder(config, program=program)
    atexit.register(stop)
    from ledger.jobs import lock_observers

    if _link_to_job not in lock_observers:
        lock_observers.append(_link_to_job)


def stop() -> None:
    """Stop tracing, after a bounded wait for the delivery of recorded spans."""
    global _recorder
    recorder, _recorder = _recorder, None
    if recorder is not None:
        recorder.stop()


def is_on() -> bool:
    """Whether this process traces."""
    return _recorder is not None


def begin(name: str, incoming: str | None = None, *, kind: Kind = Kind.INTERNAL, facts: Facts = _NO_FACTS) -> Span:
    """Open a span where traces begin: below the current span, else in the caller's own trace.

    Only the ids of `incoming`, the caller's `traceparent`, are trusted, and its flag if the operator says so.
    """
    if _recorder is None:
        return UNRECORDED
    parent = _recorder.current() or _recorder.join(incoming)
    return _recorder.open(name, parent, kind=kind, facts=facts)


def span(name: str, *, kind: Kind = Kind.INTERNAL, facts: Facts = _NO_FACTS) -> Span:
    """Open a span below the current one; untraced without one."""
    if _recorder is None or (parent := _recorder.current()) is None:
        return UNRECORDED
    return _recorder.open(name, parent, kind=kind, facts=facts)


def of_job(name: str, trace: str | None, *, kind: Kind = Kind.INTERNAL, facts: Facts = _NO_FACTS) -> Span:
    """Open a span in the trace of a job's row; untraced if it has none."""
    if _recorder is None or (parent := _recorder.parse(trace)) is None:
        return UNRECORDED
    return _recorder.open(name, parent, kind=kind, facts=facts)


def past(name: str, trace: str | None, *, began: float, ended: float, facts: Facts = _NO_FACTS) -> None:
    """Record a completed span in a job's trace; times are seconds since the epoch."""
    if _recorder is not None and (parent := _recorder.parse(trace)) is not None:
        _recorder.put(name, parent, began=began, ended=ended, kind=Kind.INTERNAL, facts=facts)


def current() -> str | None:
    """Return the current span's `traceparent`, for a job's row or a call of another program of ours."""
    if _recorder is None or (here := _recorder.current()) is None:
        return None
    return _recorder.format(here)


def within(trace: str | None, incoming: str | None) -> str | None:
    """Return the parent for a call made for a job: the caller's span if it is in the job's trace, else the job's.

    So a holder of a job's token, such as code in a box, can write only into that job's trace.
    """
    if _recorder is None:
        return trace
    job, caller = _recorder.parse(trace), _recorder.parse(incoming)
    if job is None or caller is None or caller.trace_id != job.trace_id:
        return trace
    return _recorder.format(caller, flags=job.trace_flags)


def note(facts: Facts) -> None:
    """Add attributes to the current span."""
    if _recorder is not None:
        _recorder.note(facts)


def refer_to(trace: str | None) -> None:
    """Link the current span to a job's trace: an approval, for example, is a separate request."""
    if _recorder is not None and (job := _recorder.parse(trace)) is not None:
        _recorder.link(job)


def _link_to_job(job: Job) -> None:
    refer_to(job.trace)

"""One trace for each job, from the request that submits it to the publish that may come hours later.

Programs call this module and nothing of OpenTelemetry: until `start` finds an endpoint nothing of it is loaded here,
and each function returns after one comparison. A source begins a trace, the ledger carries it in the job's row, and
whoever works on the job goes on with it; a job whose source traced nothing is traced by nobody.

A span says what was done, how long it took and what it cost; never what was asked or answered, nor a secret. An
exception leaves its kind on a span, and not its text.
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
"""What a span says, by names with dots; what is None is left out."""
_NO_FACTS: Facts = {}


class Kind(StrEnum):
    """What a span is to the ones beside it, in OpenTelemetry's words."""

    INTERNAL = "internal"
    SERVER = "server"
    CLIENT = "client"
    PRODUCER = "producer"
    CONSUMER = "consumer"


class Span:
    """What is being done, while its block lasts. This one records nothing."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None

    def note(self, facts: Facts) -> None:
        """Say more about it."""

    def rename(self, name: str) -> None:
        """Call it otherwise, now that more is known."""

    def discard(self) -> None:
        """Let it leave no trace. To be called before anything was done as a part of it."""


UNRECORDED = Span()
"""What is not traced."""
_recorder: Recorder | None = None


def start(config: TracingConfig, *, program: str) -> None:
    """Trace what this process does from now on, and what processes do that it forks; nothing without an endpoint.

    Raises:
        TracingUnavailableError: the operator's fault: an endpoint is set, and the extra is not installed.
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
    """Trace nothing any more, after a bounded wait for what is recorded already."""
    global _recorder
    recorder, _recorder = _recorder, None
    if recorder is not None:
        recorder.stop()


def is_on() -> bool:
    """Return whether this process traces."""
    return _recorder is not None


def begin(name: str, incoming: str | None = None, *, kind: Kind = Kind.INTERNAL, facts: Facts = _NO_FACTS) -> Span:
    """Do something at a source, where traces begin: within what is traced already, else within the caller's own trace.

    Of `incoming`, the caller's `traceparent`, only the ids are trusted, and the flag where the operator says so.
    """
    if _recorder is None:
        return UNRECORDED
    parent = _recorder.current() or _recorder.join(incoming)
    return _recorder.open(name, parent, kind=kind, facts=facts)


def span(name: str, *, kind: Kind = Kind.INTERNAL, facts: Facts = _NO_FACTS) -> Span:
    """Do something that is a part of what is being traced here; untraced where nothing is."""
    if _recorder is None or (parent := _recorder.current()) is None:
        return UNRECORDED
    return _recorder.open(name, parent, kind=kind, facts=facts)


def of_job(name: str, trace: str | None, *, kind: Kind = Kind.INTERNAL, facts: Facts = _NO_FACTS) -> Span:
    """Do something for a job, in the trace that its row carries; untraced where it carries none."""
    if _recorder is None or (parent := _recorder.parse(trace)) is None:
        return UNRECORDED
    return _recorder.open(name, parent, kind=kind, facts=facts)


def past(
    name: str, trace: str | None, *, began: float, ended: float, kind: Kind = Kind.INTERNAL, facts: Facts = _NO_FACTS
) -> None:
    """Put something into a job's trace that is over, from and to seconds since the epoch."""
    if _recorder is not None and (parent := _recorder.parse(trace)) is not None:
        _recorder.put(name, parent, began=began, ended=ended, kind=kind, facts=facts)


def current() -> str | None:
    """Return the `traceparent` of what is being done: for a job's row, or for a call of another program of ours."""
    if _recorder is None or (here := _recorder.current()) is None:
        return None
    return _recorder.format(here)


def within(trace: str | None, incoming: str | None) -> str | None:
    """Return where to go on in a job's trace: at the caller's span if that is a part of it, else at the job's.

    Whoever calls with a job's token, code in a box among them, cannot write into another trace than that job's.
    """
    if _recorder is None:
        return trace
    job, caller = _recorder.parse(trace), _recorder.parse(incoming)
    if job is None or caller is None or caller.trace_id != job.trace_id:
        return trace
    return _recorder.format(caller, flags=job.trace_flags)


def note(facts: Facts) -> None:
    """Say more about what is being done."""
    if _recorder is not None:
        _recorder.note(facts)


def refer_to(trace: str | None) -> None:
    """Link the current span to a job's trace: approving, say, is a request of its own."""
    if _recorder is not None and (job := _recorder.parse(trace)) is not None:
        _recorder.link(job)


def _link_to_job(job: Job) -> None:
    refer_to(job.trace)

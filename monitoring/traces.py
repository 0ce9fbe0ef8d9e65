"""One trace for each job, from the request that submits it to the publish that may come hours later.

Programs call this module and nothing of OpenTelemetry: until `start` finds an endpoint nothing of it is loaded here,
and each function returns after one comparison. A door begins a trace, the ledger carries it in the job's row, and
whoever works on the job goes on with it; a job whose door traced nothing is traced by nobody.

A span says what was done, how long it took and what it cost; never what was asked or answered, nor a secret. An
exception leaves its kind on a span, and not its text.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from enum import StrEnum
from types import TracebackType
from typing import Protocol

from monitoring.config import TracingConfig
from monitoring.errors import TracingUnavailableError

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


class Span(Protocol):
    """What is being done."""

    def note(self, facts: Facts) -> None:
        """Say more about it."""

    def rename(self, name: str) -> None:
        """Call it otherwise, now that more is known."""

    def discard(self) -> None:
        """Let it leave no trace. To be called before anything was done as a part of it."""


class Recorder(Protocol):
    """Records spans, and sends them away without anybody waiting."""

    def begin(self, name: str, incoming: str | None, *, kind: Kind, facts: Facts) -> AbstractContextManager[Span]:
        """See `begin`."""

    def span(self, name: str, *, kind: Kind, facts: Facts) -> AbstractContextManager[Span] | None:
        """See `span`; None when nothing is being traced."""

    def of_job(self, name: str, trace: str, *, kind: Kind, facts: Facts) -> AbstractContextManager[Span] | None:
        """See `of_job`; None when that is no trace."""

    def past(self, name: str, trace: str, *, began: float, ended: float, kind: Kind, facts: Facts) -> None:
        """See `past`."""

    def current(self) -> str | None:
        """See `current`."""

    def within(self, trace: str, incoming: str) -> str:
        """See `within`."""

    def note(self, facts: Facts) -> None:
        """See `note`."""

    def refer_to(self, trace: str) -> None:
        """See `refer_to`."""

    def hurry(self) -> None:
        """See `hurry`."""

    def finish(self) -> None:
        """See `stop`."""


class _Unrecorded:
    """A span of a program that traces nothing: one object for all of them."""

    __slots__ = ()

    def __enter__(self) -> Span:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None

    def note(self, facts: Facts) -> None:
        """Say nothing."""

    def rename(self, name: str) -> None:
        """Stay without a name."""

    def discard(self) -> None:
        """Leave no trace, as ever."""


UNRECORDED = _Unrecorded()
"""What is not traced."""
_recorder: Recorder | None = None


def start(config: TracingConfig, *, program: str) -> None:
    """Trace what this process does from now on, and what processes do that it forks.

    Args:
        config: where to; without an endpoint nothing happens.
        program: which of the product's programs this is.

    Raises:
        TracingUnavailableError: the operator's fault: an endpoint is set, and the extra is not installed.
    """
    global _recorder
    if not config.endpoint:
        return
    try:
        from monitoring.trace_recorder import OtelRecorder
    except ImportError:
        raise TracingUnavailableError("POINTSMAN_TRACING__ENDPOINT: needs `pip install 'pointsman[tracing]'`") from None
    stop()
    _recorder = OtelRecorder(config, program=program)


def stop() -> None:
    """Trace nothing any more, after a bounded wait for what is recorded already."""
    global _recorder
    recorder, _recorder = _recorder, None
    if recorder is not None:
        recorder.finish()


def is_on() -> bool:
    """Return whether this process traces."""
    return _recorder is not None


def begin(
    name: str, incoming: str | None = None, *, kind: Kind = Kind.INTERNAL, facts: Facts = _NO_FACTS
) -> AbstractContextManager[Span]:
    """Do something at a door, where traces begin: within what is traced already, else within the caller's own trace.

    Args:
        name: what is done; one of a few constant names.
        incoming: the caller's `traceparent`. Of it only the ids are trusted, and the flag where the operator says so.
        kind: what it is to the spans beside it.
        facts: what is known of it.
    """
    if _recorder is None:
        return UNRECORDED
    return _recorder.begin(name, incoming, kind=kind, facts=facts)


def span(name: str, *, kind: Kind = Kind.INTERNAL, facts: Facts = _NO_FACTS) -> AbstractContextManager[Span]:
    """Do something that is a part of what is being traced here; untraced where nothing is."""
    if _recorder is None:
        return UNRECORDED
    return _recorder.span(name, kind=kind, facts=facts) or UNRECORDED


def of_job(
    name: str, trace: str | None, *, kind: Kind = Kind.INTERNAL, facts: Facts = _NO_FACTS
) -> AbstractContextManager[Span]:
    """Do something for a job, in the trace that its row carries; untraced where it carries none."""
    if _recorder is None or trace is None:
        return UNRECORDED
    return _recorder.of_job(name, trace, kind=kind, facts=facts) or UNRECORDED


def past(
    name: str, trace: str | None, *, began: float, ended: float, kind: Kind = Kind.INTERNAL, facts: Facts = _NO_FACTS
) -> None:
    """Put something into a job's trace that is over: nobody knew its trace while it was done.

    Args:
        name: what was done.
        trace: what the job's row carries, if anything.
        began: seconds since the epoch.
        ended: likewise.
        kind: what it is to the spans beside it.
        facts: what is known of it.
    """
    if _recorder is not None and trace is not None:
        _recorder.past(name, trace, began=began, ended=ended, kind=kind, facts=facts)


def current() -> str | None:
    """Return the `traceparent` of what is being done: for a job's row, or for a call of another program of ours."""
    return None if _recorder is None else _recorder.current()


def within(trace: str | None, incoming: str | None) -> str | None:
    """Return where to go on in a job's trace: at the caller's span if that is a part of it, else at the job's.

    Whoever calls with a job's token, code in a box among them, cannot write into another trace than that job's.
    """
    if _recorder is None or trace is None or incoming is None:
        return trace
    return _recorder.within(trace, incoming)


def note(facts: Facts) -> None:
    """Say more about what is being done."""
    if _recorder is not None:
        _recorder.note(facts)


def refer_to(trace: str | None) -> None:
    """Link what is being done to a job's trace: a judgement, say, which is a request of its own."""
    if _recorder is not None and trace is not None:
        _recorder.refer_to(trace)


def hurry() -> None:
    """Let what is recorded go out now. Nobody waits for it."""
    if _recorder is not None:
        _recorder.hurry()

"""What the rules about a ledger's history are held against: values that a reader collects, each of one subject."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class EventFact(NamedTuple):
    """One event of a job; what its kind does not have is None."""

    kind: str
    origin: str | None = None
    target: str | None = None
    state: str | None = None
    attempt: int | None = None
    cost_nanousd: int = 0
    wasted_nanousd: int = 0


class AttemptFact(NamedTuple):
    """One attempt of a job."""

    number: int
    fence: int
    outcome: str | None
    is_live: bool
    lapsed_seconds: float
    """How long ago the lease of a live one ran out; negative while it holds."""


class CallFact(NamedTuple):
    """One model call of a job."""

    attempt: int
    is_open: bool
    cost_nanousd: int
    is_on_bill: bool
    """Whether it was reserved under its job's own cap and that of its root."""
    lapsed_seconds: float


class JobKind(StrEnum):
    """What a row of the job table stands for."""

    JOB = "job"
    RUN = "run"
    STEP = "step"
    REFUSED = "refused"
    """A request that was refused at the Celery door: it stands under the id that its caller knows, and owes nothing."""


@dataclass(frozen=True, kw_only=True)
class JobFacts:
    """A job with everything that happened to it."""

    id: str
    kind: JobKind
    state: str
    fence: int
    has_ended: bool
    """Whether the row has the moment of an end."""
    marks: Collection[str] = ()
    """Names of the columns that say what it waits for, of those that are set."""
    works: Collection[str] = ()
    """Of a run: what of it is under way, so that somebody will come back to it."""
    is_partial: bool = False
    """Whether retention may have taken some of its events."""
    notifications: int = 0
    audits: int | None = None
    """Rows of the audit trail about its end; None when they may have been archived."""
    events: Sequence[EventFact] = ()
    attempts: Sequence[AttemptFact] = ()
    calls: Sequence[CallFact] = ()


@dataclass(frozen=True, kw_only=True)
class CapFacts:
    """A cap, and what the calls say that counted against it."""

    name: str
    limit_nanousd: int
    spent_nanousd: int
    reserved_nanousd: int
    calls_spent_nanousd: int
    calls_reserved_nanousd: int
    overrun_nanousd: int = 0
    """What its calls cost beyond their reserves: streams that were cut, and replies that ignored their limits."""
    is_partial: bool = False
    """Whether retention may have taken some of its calls, or the row of its day before them."""


class ApprovalFact(NamedTuple):
    """A judgement."""

    release_id: str
    base_id: str | None
    scan_digest: str


@dataclass(frozen=True, kw_only=True)
class ReleaseFacts:
    """A published release."""

    id: str
    base_id: str | None
    scan_passed: bool
    scan_digest: str
    job_id: str | None = None
    """None for an imported one, and for one whose job retention took."""
    job_state: str | None = None
    job_release_id: str | None = None
    approval: ApprovalFact | None = None
    """The approval of its job."""
    approvals: int = 0
    """How many approvals name it."""


@dataclass(frozen=True, kw_only=True)
class SiteFacts:
    """A site, its published releases in the order of their publication, and who went back to which."""

    id: str
    active_id: str | None
    lock_state: str | None = None
    """The state of the job that holds its lock; empty when there is no such job."""
    releases: Sequence[ReleaseFacts] = ()
    rollbacks: Mapping[str, int] = field(default_factory=dict)
    """How often each release was gone back to."""
    is_partial: bool = False
    """Whether retention may have taken some of its releases."""
    is_audited: bool = True
    """Whether every time that somebody went back is still on record here; otherwise some may have been archived."""


class ExecutionFact(NamedTuple):
    """One execution of a step of a run."""

    key: str
    attempt: int
    is_settled: bool
    job_has_ended: bool
    is_on_bill: bool
    """Whether its job names the run as its parent, and adds to the run's bill."""
    is_stopping: bool = False
    """Whether it was told to stop: it may outlive its run for a moment."""


class StepFact(NamedTuple):
    """One step of a run."""

    key: str
    state: str
    tries: int


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """A run and its steps."""

    id: str
    has_ended: bool
    steps: Sequence[StepFact] = ()
    executions: Sequence[ExecutionFact] = ()
    open_gates: int = 0

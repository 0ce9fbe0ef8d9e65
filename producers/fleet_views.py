"""How an installation looks to who watches it: the views of queues, workers, attempts and what ended lately."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from monitoring.ledger.workers import FleetSlots, QueueSlots, WorkerView
from producers.jobs import JobSummary


class _View(BaseModel):
    model_config = ConfigDict(frozen=True)


class QueueState(_View):
    """One queue."""

    queue: str
    waiting: int
    running: int
    oldest_age_seconds: float
    is_paused: bool
    is_served: bool
    """Whether any worker serves it."""
    slots: QueueSlots | None
    """Of the workers that serve it, whatever queue's jobs take them. For operators alone."""


class WorkView(_View):
    """One attempt that is under way."""

    worker: str | None
    """For operators alone: it names a host."""
    queue: str
    job_id: UUID
    tenant: str
    prompt: str | None
    """Of the looker's own jobs alone: of others' an operator sees that they run, never what they say."""
    number: int
    started_at: datetime
    seconds: float
    soft_seconds: float
    is_lost: bool
    """Its lease has lapsed: the dispatcher is about to give the job to somebody else."""


class Bin(_View):
    """What ended in a piece of time."""

    began: datetime
    good: int
    bad: int
    other: int


class FleetView(_View):
    """The whole of it."""

    queues: tuple[QueueState, ...]
    slots: FleetSlots | None
    """Of all workers together. For operators alone."""
    workers: tuple[WorkerView, ...]
    """For operators alone."""
    work: tuple[WorkView, ...]
    """What is being worked on, the longest first."""
    asking: tuple[JobSummary, ...]
    """What waits for a person: questions and previews."""
    asking_total: int
    gates: int
    failing: tuple[JobSummary, ...]
    """What failed lately."""
    dead: int
    """Dead letters that nobody has seen to, up to a thousand."""
    leader_present: bool
    """Whether a dispatcher leads."""

"""A job as it is about to be accepted, the row that it becomes, and what is told of it then."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple
from uuid import UUID

from routing.jobs import Door, JobRequest, State
from routing.queues import QueueName
from routing.waits import Hold

WAITING_STATES = frozenset({State.RECEIVED, State.DEBATING, State.QUEUED, State.PUBLISHING})
"""States in which a job can wait for a worker."""


@dataclass(frozen=True, kw_only=True)
class NewJob:
    """A job as it is about to be accepted: validated and routed."""

    id: UUID
    tenant: str
    door: Door
    request: JobRequest
    state: State
    queue: QueueName
    mode: str | None = None
    tier: int | None = None
    route: Mapping[str, Any] = field(default_factory=dict)
    site_id: UUID | None = None
    cap_nanousd: int = 0
    requested_by: str = ""
    parent_id: UUID | None = None
    root_id: UUID | None = None
    start_release_id: UUID | None = None
    keeps_route: bool = False
    """Whether its decision is the one about its parent, which is counted already."""
    digest: str | None = None
    """Hash of what was asked, where that is more than the request: of a job that goes on from another one."""
    clarification: Mapping[str, Any] | None = None
    """What is asked, of a job that is accepted `clarifying`."""
    clarify_hours: float = 0.0
    """How long the question stays open."""
    result: Mapping[str, Any] = field(default_factory=dict)
    """What is known of it from the start, because of the job it goes on from."""
    is_pushed: bool = False
    """Whether the caller pushes its message right after the commit."""
    hold: Hold | None = None
    """Why it must not go to the broker yet."""
    trace: str | None = None
    """In which trace it is worked on, as a `traceparent`."""
    held_until: datetime | None = None
    """When it may, where a time decides; one that is over already keeps nothing."""

    @cached_property
    def asked(self) -> str:
        """Hash of what was asked."""
        return self.digest or request_digest(self.request)


def request_digest(request: JobRequest) -> str:
    """Return a hash of what was asked: equal for equal requests, whatever the order of their fields."""
    body = request.model_dump(mode="json", exclude={"idempotency_key"}, exclude_defaults=True)
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


class KnownJob(NamedTuple):
    """A job as it is told to whoever asked for it."""

    id: UUID
    tenant: str
    state: str
    queue: str
    mode: str | None
    tier: int | None
    route: Mapping[str, Any]
    trace: str | None
    detail: str | None
    request_digest: str
    idempotency_key: str | None


def known_of(new: NewJob) -> KnownJob:
    """Return what is told of a job that has just been accepted."""
    return KnownJob(
        new.id, new.tenant, new.state.value, new.queue.value, new.mode, new.tier, new.route, new.trace, None,
        new.asked, new.request.idempotency_key,
    )  # fmt: skip


def waits(new: NewJob) -> bool:
    """Tell whether a new job waits for a worker."""
    return new.state in WAITING_STATES


def new_row(new: NewJob) -> dict[str, Any]:
    """Return the columns of a new job's row as JSON has them, and what its moments are reckoned from."""
    return {
        "id": str(new.id),
        "tenant": new.tenant,
        "door": new.door.value,
        "requested_by": new.requested_by,
        "state": new.state.value,
        "prompt": new.request.prompt,
        "request": new.request.model_dump(mode="json", exclude={"prompt"}, exclude_defaults=True),
        "request_digest": new.asked,
        "idempotency_key": new.request.idempotency_key,
        "priority": new.request.priority,
        "site_id": _text(new.site_id),
        "parent_id": _text(new.parent_id),
        "root_id": str(new.root_id or new.id),
        "start_release_id": _text(new.start_release_id),
        "route": dict(new.route),
        "mode": new.mode,
        "tier": new.tier,
        "queue": new.queue.value,
        "waits": waits(new),
        "is_pushed": new.is_pushed,
        "held_for": new.hold.value if new.hold is not None else None,
        "held_until": _text(new.held_until),
        "supersede_key": new.request.supersede_key,
        "cap_nanousd": new.cap_nanousd,
        "clarification": new.clarification,
        "open_seconds": new.clarify_hours * 3600 if new.clarification is not None else None,
        "result": dict(new.result),
        "trace": new.trace,
    }


def _text(value: object) -> str | None:
    return None if value is None else str(value)

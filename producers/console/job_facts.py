"""All that a job's page shows, read in one transaction, with the places of what it draws."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlmodel import Session

from monitoring.ledger.events import events_after
from monitoring.ledger.jobs import find_job
from monitoring.ledger.money import calls_of
from monitoring.ledger.releases import ReleaseNotFoundError, ReleaseSweptError
from monitoring.ledger.tables import Approval, Call, Job, Release
from producers.api.resources import Resources
from producers.comparison import Comparison
from producers.console.timeline import phases_of
from producers.job_views import EventView, JobView
from producers.jobs import CONSOLE_AUDIENCE, describe, describe_events
from producers.overrides import tiers_instead
from producers.review import changes_of_job
from routing.jobs import State
from routing.rounds import Verb, can_go_on

_EVENTS_SHOWN = 200


@dataclass(frozen=True, kw_only=True)
class CallLine:
    """What one model was asked of a job, all calls together."""

    model: str
    provider: str
    calls: int
    input_tokens: int
    output_tokens: int
    cost_nanousd: int
    failed: int
    """Calls that did not complete."""


@dataclass(frozen=True)
class Frames:
    """Links that the console may show in a frame."""

    before: str | None
    after: str | None


def facts_of(resources: Resources, job_id: UUID, *, tenant: str) -> dict[str, Any]:
    """Return what the templates of a job's page need.

    Raises:
        JobNotFoundError: the caller's fault: the tenant has no such job.
    """
    with resources.ledger.begin() as session:
        job = find_job(session, job_id, tenant=tenant)
        view = describe(session, job, links=resources.links)
        events = describe_events(session, events_after(session, job_id, after_id=0, limit=_EVENTS_SHOWN))
        lines = bill_lines(calls_of(session, job_id))
        frames = _frames(session, job, resources)
        approval = session.get(Approval, job_id)
        instead = tiers_instead(job)
    until = view.ended_at or datetime.now(UTC)
    return {
        "job": view, "events": events, "last_event": _last(events), "lines": lines, "frames": frames,
        "approval": approval, "instead": instead, "until": until,
        "phases": phases_of([event for event in events if event.run_id is None], until=until),
        "changes": _changes(resources, job_id, tenant=tenant), **_ways_on(view),
    }  # fmt: skip


def bill_lines(calls: Iterable[Call]) -> tuple[CallLine, ...]:
    """Return a bill's lines, the dearest model first."""
    by_model: dict[tuple[str, str], list[Call]] = {}
    for call in calls:
        by_model.setdefault((call.provider, call.model), []).append(call)
    lines = [_line(provider, model, found) for (provider, model), found in by_model.items()]
    return tuple(sorted(lines, key=lambda line: (-line.cost_nanousd, line.model)))


def _line(provider: str, model: str, calls: Sequence[Call]) -> CallLine:
    return CallLine(
        model=model,
        provider=provider,
        calls=len(calls),
        input_tokens=sum(call.input_tokens + call.cache_write_tokens + call.cache_read_tokens for call in calls),
        output_tokens=sum(call.output_tokens for call in calls),
        cost_nanousd=sum(call.cost_nanousd for call in calls),
        failed=sum(call.ended_at is not None and call.finish != "completed" for call in calls),
    )


def _ways_on(view: JobView) -> dict[str, bool]:
    """Tell how the job can be gone on from."""
    is_free = view.continued_as is None and view.project is None
    return {
        "can_resume": is_free and can_go_on(Verb.RESUME, view.state, view.reason),
        "can_revise": is_free and view.site is not None and can_go_on(Verb.REVISE, view.state, view.reason),
        "can_cancel": not view.is_final and view.state != State.PUBLISHING and not view.is_cancel_requested,
    }


def _last(events: Sequence[EventView]) -> int:
    return max((event.id for event in events), default=0)


def _frames(session: Session, job: Job, resources: Resources) -> Frames:
    offered = session.get(Release, job.release_id) if job.release_id else None
    if offered is None or not _is_offered(job, offered):
        return Frames(None, None)
    base = session.get(Release, offered.base_release_id) if offered.base_release_id else None
    before = base if base is not None and base.published_at is not None else None
    return Frames(frame_of(resources, before) if before is not None else None, frame_of(resources, offered))


def frame_of(resources: Resources, release: Release) -> str | None:
    """Return a link that the console may show in a frame; None where the files are gone."""
    return None if release.swept_at is not None else resources.links.url_of(release, audience=CONSOLE_AUDIENCE)


def _is_offered(job: Job, release: Release) -> bool:
    return job.state in (State.AWAITING_APPROVAL, State.PUBLISHING) or release.published_at is not None


def _changes(resources: Resources, job_id: UUID, *, tenant: str) -> Comparison | None:
    try:
        return changes_of_job(resources.ledger, resources.den, job_id, tenant=tenant)
    except (ReleaseNotFoundError, ReleaseSweptError):
        return None

"""All that a job's page shows, read in one transaction, with the places of what it draws."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlmodel import Session

from monitoring.ledger.events import newest_events, newest_of_kinds
from monitoring.ledger.jobs import find_job
from monitoring.ledger.money import calls_of
from monitoring.ledger.tables import Approval, Call, Job, Release
from producers.api.resources import Resources
from producers.console.timeline import CUTS, MOST_CUTS, timeline_of
from producers.jobs import CONSOLE_AUDIENCE, EventView, JobView, describe, describe_events
from producers.replays import tiers_instead
from producers.review import compare_releases, releases_of_job
from routing.jobs import State
from routing.prices import decimal_usd
from routing.rounds import Verb, can_go_on

_EVENTS_SHOWN = 200
"""Events of one page: of a job's own page the newest."""


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

    @property
    def cost_usd(self) -> str:
        """What it cost, as an exact decimal."""
        return decimal_usd(self.cost_nanousd)


@dataclass(frozen=True)
class Frames:
    """Links that the console may show in a frame."""

    before: str | None
    after: str | None


@dataclass(frozen=True)
class EventPage:
    """Some of a job's events, oldest first."""

    events: tuple[EventView, ...]
    has_older: bool

    @property
    def first(self) -> int:
        """Where an older page ends; 0 on one without events."""
        return self.events[0].id if self.events else 0

    @property
    def last(self) -> int:
        """Where what happens next goes on."""
        return self.events[-1].id if self.events else 0


def facts_of(resources: Resources, job_id: UUID, *, tenant: str) -> dict[str, Any]:
    """Return what the templates of a job's page need.

    Raises:
        JobNotFoundError: the caller's fault: the tenant has no such job.
    """
    with resources.ledger.begin() as session:
        job = find_job(session, job_id, tenant=tenant)
        view = describe(session, job, links=resources.links)
        page = _page_of_events(session, job_id)
        cuts = describe_events(session, newest_of_kinds(session, job_id, CUTS, limit=MOST_CUTS))
        lines = bill_lines(calls_of(session, job_id))
        before, after = releases_of_job(session, job)
        approval = session.get(Approval, job_id)
        instead = tiers_instead(job) if view.continued_as is None else ()
    until = view.ended_at or datetime.now(UTC)
    is_there = after is not None and after.swept_at is None and (before is None or before.swept_at is None)
    return {
        "job": view, "page": page, "lines": lines, "frames": _frames(job, before, after, resources),
        "approval": approval, "instead": instead, "until": until, "timeline": timeline_of(cuts, until=until),
        "changes": compare_releases(resources.den, before, after) if after is not None and is_there else None,
        **_ways_on(view),
    }  # fmt: skip


def events_of(resources: Resources, job_id: UUID, *, tenant: str, before_id: int) -> EventPage:
    """Return the page of a job's events that ends before one of them.

    Raises:
        JobNotFoundError: the caller's fault: the tenant has no such job.
    """
    with resources.ledger.begin() as session:
        find_job(session, job_id, tenant=tenant)
        return _page_of_events(session, job_id, before_id=before_id)


def _page_of_events(session: Session, job_id: UUID, *, before_id: int | None = None) -> EventPage:
    found = newest_events(session, job_id, limit=_EVENTS_SHOWN + 1, before_id=before_id)
    shown = describe_events(session, found[-_EVENTS_SHOWN:])
    return EventPage(tuple(shown), has_older=len(found) > _EVENTS_SHOWN)


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


def _frames(job: Job, before: Release | None, after: Release | None, resources: Resources) -> Frames:
    if after is None or not _is_offered(job, after):
        return Frames(None, None)
    was_live = before is not None and before.published_at is not None
    return Frames(frame_of(resources, before) if before and was_live else None, frame_of(resources, after))


def frame_of(resources: Resources, release: Release) -> str | None:
    """Return a link that the console may show in a frame; None where the files are gone."""
    return None if release.swept_at is not None else resources.links.url_of(release, audience=CONSOLE_AUDIENCE)


def _is_offered(job: Job, release: Release) -> bool:
    return job.state in (State.AWAITING_APPROVAL, State.PUBLISHING) or release.published_at is not None
